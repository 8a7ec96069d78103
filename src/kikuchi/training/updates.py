"""The updates of a training: single batches for rules in NumPy, and chunks of updates in one
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

_CHUNK = 256  # maximum number of updates in one compiled loop
_CHUNK_SECONDS = 0.1  # seconds between two checks of the clock


@dataclass
class TrainerState:
    """The state of a training besides the model: chains of the rule and memory of the optimiser.

    The next training can continue from it.
    """

    rule: RuleState
    optimiser: Arrays


@dataclass(eq=False)
class Position(State):
    """Position within a training: epoch, update within it, and the order of the rows in the epoch,
    which is not saved.
    """

    epoch: int = 0
    update: int = 0

    def __post_init__(self) -> None:
        self.order: Ints = np.empty(0, dtype=np.int64)


class Progressed(NamedTuple):
    """Result of some updates: their number, their objectives (NaN where unknown), and the largest
    absolute value of a weight afterwards, which is not finite if the training has diverged.
    """

    updates: int
    objectives: list[float]
    largest: float


@dataclass(eq=False, init=False)
class Updates(State, ABC):
    """Performs the updates of one training on one model; the parameters are saved separately.

    Attributes
    ----------
    memory
        The memory of the optimiser.
    chains
        The chains of the rule, without its workspace.
    slopes
        Sums of gradients for the stopping criterion, each batch weighted by its fraction of the
        rows.
    average, n_averaged
        The running mean of the parameters, and its number of updates.
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
        self.clock = Budget().start()  # the clock of the run, once there is one
        if sums:
            self.restart_sums()

    def solve(self) -> tuple[Any, list[str]] | None:
        """Return the parameters that the rule computes in one step, with warnings; None for other
        rules.
        """
        return None

    @abstractmethod
    def begin(self, state: TrainerState | None) -> None:
        """Prepare the first update; raise an error for models and data that the rule does not
        support.
        """

    @abstractmethod
    def advance(self, at: Position, averaging: bool) -> Progressed:
        """Perform the next updates of the epoch: at least one, within a fraction of a second."""

    @abstractmethod
    def restart_sums(self) -> None:
        """Set the sums of gradients to zero."""

    @abstractmethod
    def parameters(self) -> Any:
        """Return copies of the current parameters."""

    @abstractmethod
    def finish(self) -> None:
        """Set the parameters of the model to those of the updates."""

    def take(self) -> None:
        """Continue from the parameters of the model."""

    @property
    @abstractmethod
    def carried(self) -> TrainerState:
        """Return the state for the next training."""

    def mean_gradient(self, epochs: int) -> float:
        """Return the largest entry of the mean gradient over some epochs, including weight
        decay.
        """
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
    """Return storage for arrays like the parameters of a model, as a part of a state."""

    def read(arrays: Mapping[str, Array]) -> Any:
        leaves = {n: np.asarray(a) for n, a in named_leaves(model.parameters).items()}
        if unknown := sorted(arrays.keys() - leaves.keys()):
            raise DataError(f"the model has no parameter {unknown[0]}")
        check_like(arrays, leaves)
        return with_leaves(model.parameters, {n: a.copy() for n, a in arrays.items()})

    return Held(value, read, named_leaves)


# ---------------------------------------------------------------------- rules in NumPy


class BatchUpdates(Updates):
    """Updates by single batches: the rule estimates a gradient, the optimiser moves the
    parameters.
    """

    def __init__(self, rule: Rule[Any], *arguments: Any, sums: bool) -> None:
        super().__init__(rule, *arguments, sums=sums)
        self.updater = self.memory = self.optimiser.start(self.model, self.per_epoch, self.epochs)
        self.chains = Held({}, _copies, _without_workspace)

    @property
    def state(self) -> RuleState:
        """The chains of the rule, with its workspace."""
        return self.chains.now

    def solve(self) -> tuple[Any, list[str]] | None:
        """Return the solution of the rule, if it has one."""
        data = self._for_rule()
        solution = self.rule.solve(self.model, data)
        if solution is None:
            return None
        return solution, self.rule.doubts(self.model, data, solution)

    def begin(self, state: TrainerState | None) -> None:
        """Set the initial state of the rule, or that of the previous training."""
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
        """Set the sums to zeros of the shapes of the parameters."""
        zeros = {n: np.zeros_like(a) for n, a in self.model.parameters.items()}
        self.slopes.value = zeros

    def advance(self, at: Position, averaging: bool) -> Progressed:
        """Perform one update."""
        first = at.update * self.batch_size
        rows = at.order[first : first + self.batch_size]
        batch = take_rows(self.data, rows, self.model.batch_dtype)
        before = self.rng.bit_generator.state
        estimate = self.rule.gradient_within(
            self.model, batch, rows, self.state, self.rng, self.clock
        )
        if estimate is None:  # the time is over; the update is discarded
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
        """Return copies of the arrays of the model."""
        return {name: array.copy() for name, array in self.model.parameters.items()}

    def finish(self) -> None:
        """Do nothing: the updater has modified the arrays of the model."""

    @property
    def carried(self) -> TrainerState:
        """Return the chains without workspace, and the memory of the optimiser."""
        return TrainerState(_without_workspace(self.state), self.updater.to_arrays())


def _without_workspace(state: RuleState) -> RuleState:
    return {n: a for n, a in state.items() if not n.startswith("_")}


def _copies(state: Mapping[str, Array]) -> RuleState:
    return {n: a.copy() for n, a in state.items()}


# ---------------------------------------------------------------------- losses in JAX


@dataclass(eq=False, init=False)
class ScanUpdates(Updates):
    """Chunks of updates of a JAX loss in one compiled `lax.scan`.

    The loop always has the same length; the number of its active steps is an argument, so that
    chunks of any length share one compiled program and an interrupted training reproduces the same
    numbers. The data are also an argument. Chunks are lengthened until they take about a tenth of a
    second: budget, progress and Ctrl-C are checked between chunks. A smaller last batch of an epoch
    has a separate program.
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
            self._zeros = jax.tree.map(  # JAX compiles a program for each shape
                lambda a: jax.numpy.asarray(np.zeros(a.shape, a.dtype)), self._values
            )
        self.key_seed = 0

    def restart_sums(self) -> None:
        """Start the next chunk with zeros."""
        self.slopes.value = None

    def begin(self, state: TrainerState | None) -> None:
        """Set the random key, and the memory of the optimiser from the previous training."""
        self.key_seed = int(self.rng.integers(2**31))
        if self.rule.begin is not None:
            with precision(self.model.parameters):
                key = self._jax.random.key(int(self.rng.integers(2**31)))
                self.chains.value = self.rule.begin(self._values, self._data, key)
        if state is not None:
            self.memory.load(state.optimiser)
            self.chains.load({n: a for n, a in state.rule.items() if n != "key_seed"})

    def advance(self, at: Position, averaging: bool) -> Progressed:
        """Perform a chunk of updates, or the last one of the epoch if its batch is smaller."""
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
        """Return the largest absolute value of a parameter, if the model has a limit."""
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
        """Return the tree itself, since JAX arrays are immutable."""
        return self._values

    def finish(self) -> None:
        """Set the tree, or its named arrays, in the model."""
        set_parameters(self.model, self._values)

    @property
    def carried(self) -> TrainerState:
        """Return the seed of the keys, and the leaves of optax's state."""
        chains = {n: np.asarray(a) for n, a in self.chains.now.items()}
        return TrainerState(
            chains | {"key_seed": np.array(self.key_seed)}, numbered_leaves(self.memory.now)
        )

    def take(self) -> None:
        """Continue from the parameters of the model."""
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
    """Return the compiled loop of a loss and an optimiser; JAX caches one version per shape of
    data.
    """
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
        """Perform the updates of a part, given their number before, the first row, and their
        count.
        """
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
