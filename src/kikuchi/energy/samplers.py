"""Hamiltonian Monte Carlo over batches of chains, with the step size controlled from outside.

A chain moves by L leapfrog steps of a dynamics with energy H(x, k) = E(x) + |k|² / 2 and accepts
the end with probability min(1, exp(H_begin - H_end)) (algorithm 4.2). All chains of a batch
move at once, so that a gradient is one pair of matrix products and one step size serves all; the
leapfrogs are those of blackjax, whose moves are of one chain. MALA is L = 1; Langevin dynamics is
L = 1 where every move is accepted, and is right only as the step size goes to 0.

Reference: TEH-I4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from kikuchi.core.errors import MethodError
from kikuchi.energy.energies import Energy

SAMPLERS = ("hmc", "mala", "langevin")


def leapfrog(gradient: Callable[[Any], Any], x: Any, k: Any, step: Any, leapfrogs: int) -> Any:
    """Position and momentum after some leapfrog steps; L + 1 gradients.

    >>> x, k = leapfrog(lambda x: x, jnp.ones(1), jnp.zeros(1), 0.1, 10)
    >>> round(float(x[0]), 6), round(float(k[0]), 6)
    (0.539951, -0.840644)
    """

    def move(_: Any, state: Any) -> Any:
        x, k = state
        x = x + step * k
        return x, k - step * gradient(x)

    k = k - 0.5 * step * gradient(x)
    x, k = lax.fori_loop(0, leapfrogs - 1, move, (x, k))
    x = x + step * k
    return x, k - 0.5 * step * gradient(x)


@dataclass(frozen=True)
class ChainMoves:
    """How chains move: a sampler and its settings; frozen, so that compiled loops are kept for it.

    `desired` is the acceptance rate that the step size is led to, by `rate` times the difference
    after each update, never inside a chain, and never below `floor` (4.41).
    """

    sampler: str = "hmc"
    leapfrogs: int = 20
    desired: float = 0.9
    rate: float = 0.01
    floor: float = 1e-4

    def __post_init__(self) -> None:
        if self.sampler not in SAMPLERS:
            raise MethodError(
                f"there is no sampler '{self.sampler}'; there are {', '.join(SAMPLERS)}"
            )

    def transition(self, potential: Callable[[Any], Any], x: Any, step: Any, key: Any) -> Any:
        """One move of each chain (rows of x): new rows, and the acceptance rate.

        `potential` gives one energy per row.
        """
        gradient = jax.grad(lambda rows: jnp.sum(potential(rows)))
        key_momentum, key_accept = jax.random.split(key)
        k = jax.random.normal(key_momentum, x.shape, x.dtype)
        leapfrogs = self.leapfrogs if self.sampler == "hmc" else 1
        moved, momentum = leapfrog(gradient, x, k, step, leapfrogs)
        before = potential(x) + 0.5 * jnp.sum(k * k, axis=-1)
        after = potential(moved) + 0.5 * jnp.sum(momentum * momentum, axis=-1)
        change = jnp.where(jnp.isnan(after), jnp.inf, after - before)
        if self.sampler == "langevin":
            accepted = jnp.isfinite(change)
        else:
            accepted = jnp.log(jax.random.uniform(key_accept, change.shape, x.dtype)) < -change
        rate = jnp.mean(jnp.minimum(1.0, jnp.exp(-change)))
        return jnp.where(accepted[:, None], moved, x), rate

    def run(
        self, potential: Callable[[Any], Any], x: Any, step: Any, key: Any, count: int
    ) -> tuple[Any, Any]:
        """So many moves with one step size; last rows, and the mean acceptance rate."""

        def move(n: Any, state: Any) -> Any:
            rows, total = state
            rows, rate = self.transition(potential, rows, step, jax.random.fold_in(key, n))
            return rows, total + rate

        rows, total = lax.fori_loop(0, count, move, (x, jnp.zeros((), x.dtype)))
        return rows, total / count

    def controlled(self, step: Any, rate: Any) -> Any:
        """The next step size after an update with this acceptance rate."""
        return jnp.maximum(self.floor, step - self.rate * (self.desired - rate))


@partial(jax.jit, static_argnames=("energy", "moves", "count"))
def sample_chains(
    energy: Energy, moves: ChainMoves, parameters: Any, x: Any, step: Any, key: Any, count: int
) -> tuple[Any, Any, Any]:
    """Chains moved `count` times, the step size controlled after each: rows, step size and mean
    acceptance rate of the last half.
    """

    def move(n: Any, state: Any) -> Any:
        rows, step, total = state
        rows, rate = moves.transition(
            lambda at: energy(parameters, at), rows, step, jax.random.fold_in(key, n)
        )
        counted = jnp.where(n >= count // 2, rate, 0.0)
        return rows, moves.controlled(step, rate), total + counted

    start = (x, jnp.asarray(step, x.dtype), jnp.zeros((), x.dtype))
    rows, step, total = lax.fori_loop(0, count, move, start)
    return rows, step, total / (count - count // 2)
