"""Stochastic ascent with optax's moments: mini-batches, a decaying rate, state in plain arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.errors import MissingExtraError

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Update = Callable[[Array], Array]


class StochasticSteps:
    """theta <- theta + rate(epoch) * direction(gradient), one mini-batch at a time.

    `sgd` follows the gradient itself and shrinks theta by rate * l1 towards 0 after each step (a
    proximal step, so that exact zeros arise); `adam` divides by running root mean squares. Each
    epoch visits every row once, in an order that follows from the seed and the epoch alone.
    """

    def __init__(
        self,
        kind: Literal["adam", "sgd"],
        theta: Array,
        *,
        rate: float,
        decay: float = 0.0,
        l1: float = 0.0,
        seed: int = 0,
        state: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        self.rate, self.decay, self.l1, self.seed = rate, decay, l1, seed
        self._moments = _Moments(kind, len(theta))
        self.theta = np.array(theta if state is None else state["theta"], dtype=np.float64)
        self.epoch = 0 if state is None else int(state["epoch"])
        if state is not None:
            self._moments.restore(state)

    @property
    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that the next epoch depends on."""
        return {"theta": self.theta, "epoch": np.array(self.epoch), **self._moments.state}

    def batches(self, n_rows: int, batch: int | None) -> list[Ints | None]:
        """The rows of each step of the current epoch; None is all of them."""
        if batch is None or batch >= n_rows:
            return [None]
        order = np.random.default_rng([self.seed, self.epoch]).permutation(n_rows)
        return [np.sort(order[k : k + batch]) for k in range(0, n_rows, batch)]

    def step(self, gradient: Array) -> None:
        """Move along the gradient of what is to grow."""
        rate = self.rate / (1.0 + self.decay * self.epoch)
        theta = self.theta + rate * self._moments.direction(gradient)
        if self.l1:
            theta = np.sign(theta) * np.maximum(np.abs(theta) - rate * self.l1, 0.0)
        self.theta = theta


class _Moments:
    """optax's transformation of the gradient, compiled, in double precision."""

    def __init__(self, kind: Literal["adam", "sgd"], size: int) -> None:
        self._adam = kind == "adam"
        if not self._adam:
            return
        try:
            import jax
            import optax  # type: ignore[import-untyped]
        except ImportError:
            raise MissingExtraError(
                "optimiser adam needs optax; pip install 'kikuchi[learn]', or use lbfgs or sgd"
            ) from None
        self._jax = jax
        with jax.enable_x64(True):
            transform = optax.scale_by_adam()
            self._state = transform.init(jax.numpy.zeros(size))
            self._update = jax.jit(transform.update)

    def direction(self, gradient: Array) -> Array:
        if not self._adam:
            return gradient
        with self._jax.enable_x64(True):
            given = self._jax.numpy.asarray(gradient)
            found, self._state = self._update(given, self._state)
            return np.array(found)

    @property
    def state(self) -> dict[str, NDArray[Any]]:
        if not self._adam:
            return {}
        leaves = self._jax.tree.leaves(self._state)
        return {f"moment{k}": np.asarray(leaf) for k, leaf in enumerate(leaves)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        if not self._adam:
            return
        with self._jax.enable_x64(True):
            leaves, shape = self._jax.tree.flatten(self._state)
            kept = [self._jax.numpy.asarray(state[f"moment{k}"]) for k in range(len(leaves))]
            self._state = self._jax.tree.unflatten(shape, kept)
