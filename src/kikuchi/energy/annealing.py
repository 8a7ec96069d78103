"""log Z of an energy model between bounds: annealed importance sampling with Hamiltonian moves.

The base has mean, covariance and spread of lengths of the rows that the model was learnt from;
chains run in coordinates in which it is a standard Gaussian (`radial`). Forward chains are led from
the base to the model, reverse chains back from samples of the model: exact ones where the model is
square, otherwise the coldest replicas of chains at many temperatures that exchange their states.
The step size of each temperature is found by a pilot run and then fixed, so that the weights are
unbiased.
"""

from __future__ import annotations

import math
from dataclasses import InitVar, dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from kikuchi.core.arrays import Array
from kikuchi.core.errors import MethodError
from kikuchi.core.run import Run
from kikuchi.core.seeds import Seed, generator
from kikuchi.energy.energies import Energy, square_experts
from kikuchi.energy.radial import RadialMap
from kikuchi.energy.samplers import ChainMoves
from kikuchi.engines.loops.annealing import AnnealedBatches
from kikuchi.engines.sampling.annealing import LogZ, beta_steps, bracket
from kikuchi.training.optimiser import precision

_PIECE = 50  # steps of beta in one compiled loop: how often the clock is seen
_FIRST_STEP = 0.3
_LEARNT_STEP = 0.5  # how fast the pilot's step size follows its acceptance


def path_potential(energy: Energy, parameters: Any, path: RadialMap, beta: Any, z: Any) -> Any:
    """-log f_beta(z): standard normal at beta = 0, the model at beta = 1."""
    return (1.0 - beta) * _base(z) + beta * _model(energy, parameters, path, z)


def _base(z: Any) -> Any:
    return 0.5 * jnp.sum(z * z, axis=-1)


def _model(energy: Energy, parameters: Any, path: RadialMap, z: Any) -> Any:
    """Energy of the model in the coordinates of the base."""
    return energy(parameters, path(z)) - path.log_det(z)


@partial(jax.jit, static_argnames=("energy", "moves", "pilot"))
def _anneal(
    energy: Energy,
    moves: ChainMoves,
    parameters: Any,
    path: RadialMap,
    state: Any,
    pieces: Any,
    key: Any,
    pilot: bool,
) -> Any:
    """Lead chains through one piece of betas: (old, new, step size, active) for each step."""

    def move(carry: Any, piece: Any) -> Any:
        z, weights, step = carry
        old, new, given, active, number = piece
        size = step if pilot else given

        def potential(at: Any) -> Any:
            return path_potential(energy, parameters, path, new, at)

        gain = (new - old) * (_base(z) - _model(energy, parameters, path, z))
        moved, rate = moves.transition(potential, z, size, jax.random.fold_in(key, number))
        learnt = step * jnp.exp(_LEARNT_STEP * (rate - moves.desired))
        z = jnp.where(active, moved, z)
        weights = weights + jnp.where(active, gain, 0.0)
        return (z, weights, jnp.where(active, learnt, step)), (size, rate)

    return lax.scan(move, state, pieces)


@partial(jax.jit, static_argnames=("energy", "moves", "sweeps"))
def _exchange(
    energy: Energy,
    moves: ChainMoves,
    parameters: Any,
    path: RadialMap,
    chains: tuple[Any, Any],
    betas: Any,
    key: Any,
    sweeps: int,
) -> Any:
    """Replicas that move and then exchange with a neighbour.

    `chains` are the replicas (temperatures, chains, columns) and the step size of each temperature.
    """
    replicas = len(betas)

    def potential(beta: Any, at: Any) -> Any:
        return path_potential(energy, parameters, path, beta, at)

    def one(beta: Any, at: Any, size: Any, key: Any) -> Any:
        return moves.transition(partial(potential, beta), at, size, key)

    def sweep(n: Any, state: Any) -> Any:
        z, sizes = state
        keys = jax.random.split(jax.random.fold_in(key, n), replicas + 1)
        z, rates = jax.vmap(one)(betas, z, sizes, keys[:-1])
        sizes = sizes * jnp.exp(0.1 * (rates - moves.desired))
        energies = jax.vmap(lambda at: _model(energy, parameters, path, at) - _base(at))(z)
        odd = n % 2
        partner = jnp.arange(replicas) + jnp.where((jnp.arange(replicas) + odd) % 2 == 0, 1, -1)
        partner = jnp.where((partner < 0) | (partner >= replicas), jnp.arange(replicas), partner)
        gain = (betas - betas[partner])[:, None] * (energies - energies[partner])
        low = jnp.minimum(jnp.arange(replicas), partner)
        draws = jax.random.uniform(keys[-1], energies.shape)[low]
        swap = jnp.log(draws) < gain
        return jnp.where(swap[..., None], z[partner], z), sizes

    return lax.fori_loop(0, sweeps, sweep, chains)


def without_density(model: Any) -> str | None:
    """Return why a fitted `EnergyModel` has no density; None if it has one or is not fitted."""
    if not hasattr(model, "model_") or model.has_density:
        return None
    return f"the model has no density and no samples: {model.improper}"


def need_density(model: Any) -> None:
    """Raise an error for an `EnergyModel` without a density."""
    if reason := without_density(model):
        raise MethodError(reason)


def annealed_log_z(
    energy: Energy,
    parameters: Any,
    rows: Array,
    *,
    batches: int = 5,
    width: float = 0.1,
    random_state: Seed = None,
    run: Run | None = None,
    **options: Any,
) -> LogZ:
    """log Z by annealed importance sampling, forward and reverse.

    `rows` are those that the model was learnt from (or alike): the base has their mean, covariance
    and spread of lengths, and tempered chains begin at them. Up to `batches` of `chains` are made,
    until the bracket is at most `width` nats wide, or the budget of `run` ends.

    `energy` is a function of `parameters` and rows, `random_state` the seed. Further `options`:
    `chains` (100) go through `betas` (500) temperatures with `leapfrogs` (10) steps in each, after
    `burn_in` (200) sweeps with `replicas` (12) temperatures for the reverse ones; `confidence`
    (0.95) is that of the bracket.

    >>> from kikuchi.energy.energies import LinearExperts
    >>> energy = LinearExperts(expert="logistic")
    >>> parameters = {"filters": np.array([[1.0, 0.5], [-0.3, 0.8]], dtype=np.float32)}
    >>> rows = np.random.default_rng(0).normal(size=(500, 2)) * 2
    >>> found = annealed_log_z(energy, parameters, rows, betas=99, confidence=0.999, random_state=0)
    >>> bool(found.lower < -np.log(0.95) < found.upper)
    True
    """
    with precision(parameters):
        key = jax.random.key(int(generator(random_state).integers(2**31)))
        work = _Annealing(energy, parameters, rows, run, key, **options)
        if work.chains < 2 or batches < 1 or work.replicas < 2:
            raise MethodError("log_z: at least two chains, one batch and two replicas are needed")
        return work.batches(width, batches)


@dataclass(eq=False)
class _Annealing(AnnealedBatches):
    """Batches of chains, and the bracket so far."""

    name: ClassVar[str] = "log_z"

    energy: Energy
    parameters: Any
    rows: Array
    given_run: InitVar[Run | None]
    key: Any
    betas: Any = 500
    chains: int = 100
    leapfrogs: int = 10
    burn_in: int = 200
    replicas: int = 12
    confidence: float = 0.95

    def __post_init__(self, given_run: Run | None) -> None:
        super().__init__(given_run)
        self.betas = beta_steps(self.betas, "sigmoid")
        self.moves = ChainMoves("hmc", self.leapfrogs, 0.85)
        self.parameters = jax.tree.map(jnp.asarray, self.parameters)
        self.dtype = jax.tree.leaves(self.parameters)[0].dtype
        self.n_columns = self.rows.shape[1]
        self.log_z_base = 0.5 * self.n_columns * math.log(2 * math.pi)
        fitted = RadialMap.fit(self.rows)
        self.path = RadialMap(*(jnp.asarray(part, self.dtype) for part in fitted))
        self.square = square_experts(self.energy, self.parameters)
        self.sizes: Array | None = None
        self.tempered: Any = None

    def lead(self) -> tuple[Array, Array] | None:
        """Log weights of a batch in both directions; None if the time ended before."""
        if self.sizes is None and not self._pilot():
            return None
        up = self._lead(self._standard(), self.betas, self.sizes)
        if up is None:
            return None
        assert self.sizes is not None
        sizes = np.concatenate([self.sizes[-2::-1], self.sizes[:1]])
        down = self._lead(self._samples(), self.betas[::-1], sizes)
        return None if down is None else (up, down)

    def bracket(self) -> LogZ:
        """The bracket of all finished batches."""
        return bracket(
            self.log_z_base,
            self.weights,
            self.confidence,
            exact_starts=self.square is not None,
            stopped=self.run.stopped,
        )

    def _next_key(self) -> Any:
        self.key, key = jax.random.split(self.key)
        return key

    def _standard(self) -> Any:
        return jax.random.normal(self._next_key(), (self.chains, self.n_columns), self.dtype)

    def _pilot(self) -> bool:
        """Find the step size of every beta; False if the time ended before."""
        return self._lead(self._standard(), self.betas, None) is not None

    def _lead(self, z: Any, betas: Array, sizes: Array | None) -> Array | None:
        """Log weights of chains led along the betas; None if the time ended before. Without sizes
        it is the pilot, which keeps those that it found.
        """
        count = len(betas) - 1
        state = (z, jnp.zeros(len(z), self.dtype), jnp.asarray(_FIRST_STEP, self.dtype))
        learnt: list[Array] = []
        key = self._next_key()
        given = np.ones(count) if sizes is None else sizes
        for first in range(0, count, _PIECE):
            numbers = np.arange(first, first + _PIECE)
            at = np.minimum(numbers, count - 1)
            pieces = tuple(
                jnp.asarray(part, self.dtype) for part in (betas[at], betas[at + 1], given[at])
            )
            pieces = (*pieces, jnp.asarray(numbers < count), jnp.asarray(numbers))
            state, (used, _) = _anneal(
                self.energy, self.moves, self.parameters, self.path, state, pieces, key,
                pilot=sizes is None,
            )  # fmt: skip
            learnt.append(np.asarray(used)[numbers < count])
            if self.run.clock.expired:
                return None
        if sizes is None:
            self.sizes = np.concatenate(learnt)
        return np.asarray(state[1], dtype=np.float64)

    def _samples(self) -> Any:
        """Where reverse chains begin: samples of the model, in the coordinates of the base."""
        if self.square is not None:
            return self.path.back(self.square.draw(self.parameters, self.chains, self._next_key()))
        assert self.sizes is not None
        betas = np.linspace(0.0, 1.0, self.replicas)
        if self.tempered is None:
            rng = np.random.default_rng(0)
            rows = self.rows[rng.integers(0, len(self.rows), self.chains)]
            z = self.path.back(jnp.asarray(rows, self.dtype))
            at = np.searchsorted(self.betas[1:], betas).clip(0, len(self.sizes) - 1)
            start = jnp.broadcast_to(jnp.asarray(z, self.dtype), (self.replicas, *z.shape))
            self.tempered = (start, jnp.asarray(self.sizes[at], self.dtype))
        chains, inside = self.tempered, jnp.asarray(betas, self.dtype)
        for _ in range(0, self.burn_in, _PIECE):
            chains = _exchange(
                self.energy, self.moves, self.parameters, self.path, chains, inside,
                self._next_key(), sweeps=_PIECE,
            )  # fmt: skip
            if self.run.clock.expired:
                break
        self.tempered = chains
        return chains[0][-1]
