"""The updates of a training: one batch at a time for rules in NumPy, or chunks of updates in one
compiled `lax.scan` for losses in JAX.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.budget import Budget
from kikuchi.core.errors import DataError
from kikuchi.engines.loops.state import Held, Part, State
from kikuchi.training.checkpoint import Arrays, check_like
from kikuchi.training.losses import loss_of as loss_of
from kikuchi.training.model import Trainable, named_leaves, set_parameters, with_leaves
from kikuchi.training.optimiser import (
    Optimiser,
    is_weight,
    numbered_leaves,
    precision,
    with_numbered_leaves,
)
from kikuchi.training.rows import is_sparse, take_rows
from kikuchi.training.rule import BaseRule, LossRule, Rule
from kikuchi.training.rule import State as RuleState

Array = NDArray[Any]
Ints = NDArray[np.int64]

_CHUNK = 256  # updates at most in one compiled loop
_CHUNK_SECONDS = 0.1  # between two looks at the clock


@dataclass
class TrainerState:
    """What outlives a training besides the model: chains of the rule and memory of the optimiser.

    Given to the next training, that goes on with them.
    """

    rule: RuleState
    optimiser: Arrays


@dataclass(eq=False)
class Position(State):
    """Where a training stands: epoch, update within it, and the order of the rows in the epoch,
    which is not saved.
    """

    epoch: int = 0
    update: int = 0

    def __post_init__(self) -> None:
        self.order: Ints = np.empty(0, dtype=np.int64)


class Progressed(NamedTuple):
    """What some updates did: their number, their objectives (NaN where unknown), and the largest
    absolute value of a weight afterwards, not finite if the training has diverged.
    """

    updates: int
    objectives: list[float]
    largest: float


@dataclass(eq=False, init=False)
class Updates(State, ABC):
    """Carries out the updates of one training on one model; the parameters are saved apart.

    Attributes
    ----------
    memory
        That of the optimiser.
    chains
        Those of the rule, without its workspace.
    slopes
        Sums of gradients for the stopping criterion, each batch weighted by its fraction of the
        rows.
    average, n_averaged
        The running mean of the parameters over so many updates.
    """

    memory: Part
    chains: Held[dict[str, Any]]
    slopes: Held[Any]
    average: Held[Any]
    n_averaged: int

    def __init__(
        self,
        rule: BaseRule,
        model: Trainable,
        data: Any,
        optimiser: Optimiser,
        sizes: tuple[int, int, int, int],
        rng: np.random.Generator,
        *,
        sums: bool,
    ) -> None:
        self.rule: Any = rule
        self.model, self.data, self.optimiser, self.rng = model, data, optimiser, rng
        self.sums = sums
        self.n_rows, self.batch_size, self.per_epoch, self.epochs = sizes
        self.slopes, self.average, self.n_averaged = held_tree(model), held_tree(model), 0
        self.clock = Budget().start()  # that of the run, once there is one
        if sums:
            self.restart_sums()

    def solve(self) -> tuple[Any, list[str]] | None:
        """Parameters that the rule finds in one go, and doubts; None if it finds none."""
        return None

    @abstractmethod
    def begin(self, state: TrainerState | None) -> None:
        """Prepare the first update; refuses models and data that the rule cannot learn."""

    @abstractmethod
    def advance(self, at: Position, averaging: bool) -> Progressed:
        """Carry out the next updates of the epoch: at least one, within a fraction of a second."""

    @abstractmethod
    def restart_sums(self) -> None:
        """Set the sums of gradients to zero."""

    @abstractmethod
    def parameters(self) -> Any:
        """The parameters now, as arrays of their own."""

    @abstractmethod
    def finish(self) -> None:
        """Give the model the parameters that the updates have reached."""

    def take(self) -> None:
        """Go on from the parameters of the model."""

    @property
    @abstractmethod
    def carried(self) -> TrainerState:
        """What the next training can go on with."""

    def mean_gradient(self, epochs: int) -> float:
        """Largest entry of the mean gradient over some epochs, weight decay included."""
        decay, largest = self.optimiser.weight_decay, 0.0
        values = named_leaves(self.parameters())
        for name, total in named_leaves(self.slopes.now).items():
            left = np.asarray(total) / epochs
            if decay and is_weight(left):
                left = left - decay * np.asarray(values[name])
            left = self.rule.stationarity(left, np.asarray(values[name]))
            largest = max(largest, float(np.max(np.abs(left), initial=0.0)))
        return largest


def held_tree(model: Trainable, value: Any = None) -> Held[Any]:
    """Return a place for arrays like the parameters of a model, as a part of a state."""

    def read(arrays: Mapping[str, Array]) -> Any:
        leaves = {n: np.asarray(a) for n, a in named_leaves(model.parameters).items()}
        if unknown := sorted(arrays.keys() - leaves.keys()):
            raise DataError(f"the model has no parameter {unknown[0]}")
        check_like(arrays, leaves)
        return with_leaves(model.parameters, {n: a.copy() for n, a in arrays.items()})

    return Held(value, read, named_leaves)


# ---------------------------------------------------------------------- rules in NumPy


class BatchUpdates(Updates):
    """One batch at a time: the rule estimates a gradient, the optimiser moves the parameters."""

    def __init__(self, rule: Rule[Any], *arguments: Any, sums: bool) -> None:
        super().__init__(rule, *arguments, sums=sums)
        self.updater = self.memory = self.optimiser.start(self.model, self.per_epoch, self.epochs)
        self.chains = Held({}, _copies, _without_workspace)

    @property
    def state(self) -> RuleState:
        """The chains of the rule, with its workspace."""
        return self.chains.now

    def solve(self) -> tuple[Any, list[str]] | None:
        """What the rule answers."""
        data = self._for_rule()
        solution = self.rule.solve(self.model, data)
        if solution is None:
            return None
        return solution, self.rule.doubts(self.model, data, solution)

    def begin(self, state: TrainerState | None) -> None:
        """The rule's first state, or that of the training before."""
        if state is not None and self.rule.carries:
            self.chains.value = _copies(state.rule)
        else:
            self.chains.value = self.rule.begin(self.model, self._for_rule(), self.rng)
        if state is not None:
            self.updater.load(state.optimiser)

    def _for_rule(self) -> Any:
        sparse = is_sparse(self.data) and not self.rule.takes_sparse
        return self.data.toarray() if sparse else self.data

    def restart_sums(self) -> None:
        """Zeros of the parameters' shapes."""
        zeros = {n: np.zeros_like(a) for n, a in self.model.parameters.items()}
        self.slopes.value = zeros

    def advance(self, at: Position, averaging: bool) -> Progressed:
        """One update."""
        first = at.update * self.batch_size
        rows = at.order[first : first + self.batch_size]
        batch = take_rows(self.data, rows, self.model.batch_dtype)
        before = self.rng.bit_generator.state
        estimate = self.rule.gradient_within(
            self.model, batch, rows, self.state, self.rng, self.clock
        )
        if estimate is None:  # the time is over; as if the update had not been begun
            self.rng.bit_generator.state = before
            return Progressed(0, [], 0.0)
        self.model.constrain(estimate.ascent)
        if self.sums:
            for name, total in self.slopes.now.items():
                total += total.dtype.type(len(rows) / self.n_rows) * estimate.ascent[name]
        largest = self.updater.step(estimate.ascent, at.epoch, at.update)
        self.rule.project(self.model, self.updater.rate(at.epoch, at.update))
        if averaging:
            self._average()
        objective = math.nan if estimate.objective is None else estimate.objective
        return Progressed(1, [objective], math.inf if math.isinf(objective) else largest)

    def _average(self) -> None:
        if self.average.value is None:
            zeros = {n: np.zeros_like(a) for n, a in self.model.parameters.items()}
            self.average.value = zeros
        self.n_averaged += 1
        for name, array in self.model.parameters.items():
            mean = self.average.now[name]
            mean += (array - mean) / mean.dtype.type(self.n_averaged)

    def parameters(self) -> Any:
        """Copies of the model's arrays."""
        return {name: array.copy() for name, array in self.model.parameters.items()}

    def finish(self) -> None:
        """The updater has changed the model's own arrays."""

    @property
    def carried(self) -> TrainerState:
        """Chains without workspace, and the optimiser's memory."""
        return TrainerState(_without_workspace(self.state), self.updater.to_arrays())


def _without_workspace(state: RuleState) -> RuleState:
    return {n: a for n, a in state.items() if not n.startswith("_")}


def _copies(state: Mapping[str, Array]) -> RuleState:
    return {n: a.copy() for n, a in state.items()}


# ---------------------------------------------------------------------- losses in JAX


@dataclass(eq=False, init=False)
class ScanUpdates(Updates):
    """Chunks of updates of a JAX loss in one compiled `lax.scan`.

    The loop always has the same length; how many of its steps are active is an argument, so that
    chunks of any length share one compiled program and a training that is cut anywhere repeats the
    same numbers. The data are an argument too. A chunk is lengthened until it takes about a tenth
    of a second: budget, progress and Ctrl-C are seen between chunks. A last, smaller batch of an
    epoch has a program of its own.
    """

    key_seed: int
    memory: Held[Any]

    def __init__(self, rule: LossRule, *arguments: Any, sums: bool) -> None:
        super().__init__(rule, *arguments, sums=sums)
        import jax

        self._jax = jax
        self._horizon = self.optimiser.horizon(self.per_epoch, self.epochs)
        self._chunk = 1
        self._order_epoch = -1
        self._order: Any = None
        with precision(self.model.parameters):
            data = self.data.toarray() if is_sparse(self.data) else self.data
            dtype: Any = self.model.batch_dtype
            self._data = jax.tree.map(lambda a: jax.numpy.asarray(a, dtype=dtype), data)
            self._values = jax.tree.map(jax.numpy.array, self.model.parameters)
            transform = self.optimiser.transform(*self._horizon)
            self.memory = Held(transform.init(self._values), self._read_memory, numbered_leaves)
            self.chains = Held({}, self._read_chains, dict)
            self._zeros = jax.tree.map(  # in JAX a program for each shape
                lambda a: jax.numpy.asarray(np.zeros(a.shape, a.dtype)), self._values
            )
        self.key_seed = 0

    def restart_sums(self) -> None:
        """The next chunk begins with zeros."""
        self.slopes.value = None

    def begin(self, state: TrainerState | None) -> None:
        """A random key, and the optimiser's memory of the training before."""
        self.key_seed = int(self.rng.integers(2**31))
        if self.rule.begin is not None:
            with precision(self.model.parameters):
                key = self._jax.random.key(int(self.rng.integers(2**31)))
                self.chains.value = self.rule.begin(self._values, self._data, key)
        if state is not None:
            self.memory.load(state.optimiser)
            self.chains.load({n: a for n, a in state.rule.items() if n != "key_seed"})

    def advance(self, at: Position, averaging: bool) -> Progressed:
        """A chunk of updates, or the last one of the epoch if its batch is smaller."""
        whole = self.n_rows // self.batch_size
        rest = self.n_rows - whole * self.batch_size
        small = at.update >= whole
        batch = rest if small else self.batch_size
        active = 1 if small else min(self._chunk, whole - at.update, _CHUNK)
        began = time.perf_counter()
        with precision(self.model.parameters):
            rule = self.rule
            carries = rule.begin is not None
            program = _program(rule.loss, rule.project, carries, self.optimiser, self._horizon)
            carry = (
                self._values,
                self.memory.now,
                self.chains.now,
                self._zeros if self.slopes.value is None else self.slopes.value,
                self._zeros if self.average.value is None else self.average.value,
                np.int32(self.n_averaged),
            )
            answer = program(
                carry,
                self._data,
                self._device_order(at),
                self._jax.random.key(self.key_seed),
                (
                    np.int32(at.epoch * self.per_epoch + at.update),
                    np.int32(at.update * self.batch_size),
                    np.int32(active),
                ),
                (np.float64(batch / self.n_rows if self.sums else 0.0), averaging),
                batch=batch,
            )
            carry, losses, done = answer
            self._values, self.memory.value, self.chains.value, summed, averaged, counted = carry
        done = int(done)
        self.slopes.value = summed if self.sums else None
        self.average.value = averaged if int(counted) else None
        self.n_averaged = int(counted)
        if not small and active == self._chunk:
            self._resize(time.perf_counter() - began)
        objectives = [float(x) for x in np.asarray(losses)[:done]]
        return Progressed(done, objectives, self._largest() if done == active else math.inf)

    def _largest(self) -> float:
        """Largest absolute value of a parameter, if the model has a limit to it."""
        if math.isinf(self.model.weight_limit):
            return 0.0
        leaves = map(np.asarray, self._jax.tree.leaves(self._values))
        return max(float(np.max(np.abs(leaf), initial=0.0)) for leaf in leaves)

    def _resize(self, seconds: float) -> None:
        if seconds < 0.5 * _CHUNK_SECONDS:
            self._chunk = min(2 * self._chunk, _CHUNK)
        elif seconds > 2 * _CHUNK_SECONDS:
            self._chunk = max(1, self._chunk // 2)

    def _device_order(self, at: Position) -> Any:
        if self._order_epoch != at.epoch:
            self._order_epoch, self._order = at.epoch, self._jax.numpy.asarray(at.order)
        return self._order

    def parameters(self) -> Any:
        """The tree itself: JAX arrays do not change."""
        return self._values

    def finish(self) -> None:
        """Put the tree, or its arrays by name, in the model."""
        set_parameters(self.model, self._values)

    @property
    def carried(self) -> TrainerState:
        """The seed of the keys, and the leaves of optax's state."""
        chains = {n: np.asarray(a) for n, a in self.chains.now.items()}
        return TrainerState(
            chains | {"key_seed": np.array(self.key_seed)}, numbered_leaves(self.memory.now)
        )

    def take(self) -> None:
        """Go on from the parameters of the model."""
        with precision(self.model.parameters):
            self._values = self._jax.tree.map(self._jax.numpy.array, self.model.parameters)

    def _read_memory(self, arrays: Mapping[str, Array]) -> Any:
        with precision(self.model.parameters):
            return with_numbered_leaves(self.memory.now, arrays)

    def _read_chains(self, arrays: Mapping[str, Array]) -> dict[str, Any]:
        with precision(self.model.parameters):
            return {name: self._jax.numpy.array(array) for name, array in arrays.items()}


@lru_cache(maxsize=64)
def _program(
    loss: Any, project: Any, carries: bool, optimiser: Optimiser, horizon: tuple[int, int]
) -> Any:
    """The compiled loop of a loss and an optimiser; JAX keeps one version per shape of data."""
    import jax
    from jax import lax
    from jax import numpy as jnp

    transform = optimiser.transform(*horizon)

    def carrying(values: Any, batch: Any, key: Any, carried: Any) -> Any:
        return loss(values, batch, key, carried) if carries else (loss(values, batch, key), carried)

    slope = jax.value_and_grad(carrying, has_aux=True)

    def run(
        carry: Any,
        data: Any,
        order: Any,
        key: Any,
        part: tuple[Any, Any, Any],
        weights: tuple[Any, Any],
        batch: int,
    ) -> Any:
        """Make the updates of a part: their number before, the first row, and how many."""
        (count, first, active), (weight, averaging) = part, weights

        def update(inner: Any, step: Any) -> Any:
            values, memory, carried, summed, averaged, counted = inner
            rows = lax.dynamic_slice(order, (first + step * batch,), (batch,))
            here = jax.tree.map(lambda part: part[rows], data)
            here_key = jax.random.fold_in(key, count + step)
            (value, carried), gradients = slope(values, here, here_key, carried)
            moves, memory = transform.update(gradients, memory, values)
            moved = jax.tree.map(lambda a, move: a + move, values, moves)
            if project is not None:
                moved = project(moved)
            finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(moved)]
            good = jnp.isfinite(value) & jnp.all(jnp.stack(finite))
            counted = counted + averaging
            summed = jax.tree.map(lambda s, g: s - (weight * g).astype(s.dtype), summed, gradients)
            averaged = jax.tree.map(
                lambda mean, a: jnp.where(
                    averaging, mean + (a - mean) / jnp.maximum(counted, 1).astype(a.dtype), mean
                ),
                averaged,
                moved,
            )
            later = (moved, memory, carried, summed, averaged, counted)
            kept = jax.tree.map(lambda new, old: jnp.where(good, new, old), later, inner)
            return kept, value, good

        def body(state: Any, step: Any) -> Any:
            inner, going, done = state

            def take(_: None) -> Any:
                kept, value, good = update(inner, step)
                return (kept, good, done + good), value.astype(jnp.result_type(float))

            def leave(_: None) -> Any:
                return (inner, going, done), jnp.zeros((), jnp.result_type(float))

            return lax.cond(going & (step < active), take, leave, None)

        start = (carry, jnp.array(True), jnp.int32(0))
        (carry, _, done), losses = lax.scan(body, start, jnp.arange(_CHUNK))
        return carry, losses, done

    return jax.jit(run, static_argnames=("batch",))
