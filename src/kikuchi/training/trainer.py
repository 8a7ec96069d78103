"""`train`: training of any model by any rule with any optimiser, in epochs of shuffled batches.

The trainer handles batches, time and files; rules estimate gradients. Everything that the next
update depends on is in one state, so that a killed training continues as if it had not been
interrupted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from os import PathLike
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from kikuchi.core import seeds
from kikuchi.core.budget import Budget
from kikuchi.core.errors import DataError, MethodError, MissingExtraError
from kikuchi.core.extras import install
from kikuchi.core.interrupts import DeferredInterrupt
from kikuchi.core.progress import part_done, phase, silent
from kikuchi.core.run import Run, Step
from kikuchi.core.trace import Trace
from kikuchi.engines.loops.iterate import iterate
from kikuchi.engines.loops.state import Held, State
from kikuchi.training.checkpoint import Array, Arrays, Checkpoint
from kikuchi.training.model import Trainable, named_leaves, set_parameters
from kikuchi.training.optimiser import Optimiser, parse_optimiser
from kikuchi.training.resuming import StateFile
from kikuchi.training.rows import count_rows, fingerprint
from kikuchi.training.rule import BaseRule, LossRule, function_name
from kikuchi.training.updates import (
    BatchUpdates,
    Position,
    ScanUpdates,
    TrainerState,
    Updates,
    held_tree,
)

T = TypeVar("T", bound=Trainable)
Score = Callable[[Any, Any], float]

_PART = Step(0, partial=True)
_KEEP_EVERY = 100  # updates between two copies of the last good parameters
_SHOW_EVERY = 0.2  # seconds


COMPLETE = ("epochs", "converged", "validation")
"""Values of `stopped` after which the training is complete; others can be continued."""


class TrainingTrace(Trace):
    """The trace of a training, with a plot."""

    def plot(self) -> Any:
        """Return a figure of the objective (and the residual, if `tol` was given) against epochs.

        >>> trace = TrainingTrace("log-likelihood per row")
        >>> trace.record(1, objective=-3.0)
        >>> len(trace.plot().axes)
        1
        """
        from kikuchi.plots.convergence import convergence

        return convergence({"training": self}, unit="epochs")


@dataclass
class Training(Generic[T]):
    """A trained model and its training.

    `stopped` is "converged" (the mean gradient fell to `tol`, or the rule needs one step only),
    "validation" (early stopping: the score of the validation rows no longer improved), "epochs"
    (all of them are done), "seconds", "iterations", "interrupted" or "diverged". After divergence
    the model is that of the last good state, and `warnings` contains advice. `state` lets the next
    training continue with the same chains and the same memory of the optimiser; there is none after
    divergence, which may have corrupted both. `scores` are those of the validation rows, one per
    epoch.

    `model` is the trained model, `trace` the training history, `epochs` the number of completed
    epochs.
    """

    model: T
    trace: Trace
    epochs: int
    stopped: str
    warnings: list[str] = field(default_factory=list)
    state: TrainerState | None = None
    scores: list[float] = field(default_factory=list)

    @property
    def converged(self) -> bool:
        """Whether a stopping criterion was met: `tol`, early stopping, or a rule that solves in one
        step. Running out of epochs or of time is not convergence.
        """
        return self.stopped in ("converged", "validation")


@dataclass(frozen=True, eq=False)
class Validation:
    """Early stopping: training ends when the score of validation rows no longer improves.

    Parameters
    ----------
    rows
        The validation rows, in the format of the data.
    patience
        Number of epochs after which training ends if none of them improved by more than
        `least_gain`.
    least_gain
        Smallest improvement of the score that counts.
    score
        `score(model, rows)`, larger is better; by default that of the rule.
    """

    rows: Any
    patience: int = 10
    least_gain: float = 0.0
    score: Score | None = None

    def __post_init__(self) -> None:
        _require_count("patience", self.patience)


def train(
    model: T,
    data: Any,
    rule: str | BaseRule,
    *,
    optimiser: str | Optimiser = "sgd",
    epochs: int = 10,
    batch_size: int = 100,
    seed: seeds.Seed = None,
    run: Run | None = None,
    checkpoint: Checkpoint | str | PathLike[str] | None = None,
    threads: int | None = 1,
    tol: float = 0.0,
    average: float = 0.0,
    last: bool = False,
    validation: Validation | None = None,
    state: TrainerState | None = None,
) -> Training[T]:
    """Train a copy of `model` on rows of data, dense or sparse, by a rule or its specification
    string.

    If `checkpoint` exists and belongs to this training, the training continues from it with the
    same result as an uninterrupted one. `threads` limits the threads of matrix products (None:
    chosen by the libraries, which is many times slower on a busy machine).

    With `tol` > 0 training ends when no entry of the mean gradient over an epoch, weight decay
    included, is larger. With `average` > 0 the result is the mean of the parameters over that last
    fraction of the epochs (0.5: the second half); `tol` is then compared with the mean gradient
    over the same epochs, once, at the end. With `last` the result is nevertheless the last
    parameters. With `validation` training ends early, and the result is the parameters of the best
    epoch.

    Non-finite numbers, and weights beyond the model's `weight_limit`, count as divergence. `state`
    is that of an earlier training: chains that belong to no row and the memory of the optimiser
    continue from it.

    `data` are the rows, `rule` is the learning rule or its specification string, `optimiser` one of
    optax by name, with `epochs` over the data in batches of `batch_size`; `seed` is that of chains
    and order, `run` contains the budget and the progress callback.

    >>> from kikuchi.boltzmann import Machine
    >>> rows = np.repeat([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]], 50, axis=0)
    >>> start = Machine.random(3, 2, random_state=0)
    >>> done = train(start, rows, "cd", optimiser="sgd:learning_rate=0.5", epochs=20, seed=0)
    >>> done.stopped, done.epochs, done.model.visible_bias.shape
    ('epochs', 20, (3,))
    """
    rule = _parsed(model, rule)
    optimiser = parse_optimiser(optimiser)
    _require_count("epochs", epochs)
    _require_count("batch_size", batch_size)
    if not tol >= 0:
        raise MethodError(f"tol must be at least 0, got {tol!r}")
    if not 0 <= average <= 1:
        raise MethodError(f"average must be in [0, 1], a fraction of the epochs, got {average!r}")
    run = run or Run(Budget().start(), silent, TrainingTrace())
    run.trace.objective_name = rule.objective_name
    model, data = model.copy(), model.check_data(data)
    trainer = _Trainer(model, data, rule, optimiser, int(epochs), int(batch_size), seed, tol)
    trainer.first_averaged = epochs if average == 0 else math.ceil(epochs * (1.0 - average))
    trainer.last = last
    if validation is not None:
        trainer.validation = _EarlyStopping(model, validation, rule)
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        checkpoint = Checkpoint(checkpoint)
    trainer.checkpoint = checkpoint
    with limited_threads(threads):
        return trainer.train(run, state)


def _require_count(name: str, value: Any) -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise MethodError(f"{name} must be an integer of at least 1, got {value!r}")


def _parsed(model: Trainable, rule: str | BaseRule) -> BaseRule:
    parsed: BaseRule = model.rule(rule) if isinstance(rule, str) else rule
    return parsed


def limited_threads(threads: int | None) -> Any:
    """Context manager that limits the threads of numerical libraries."""
    if threads is not None and threads < 1:
        raise MethodError(f"threads must be at least 1 or None, got {threads!r}")
    return nullcontext() if threads is None else _libraries().limit(limits=threads)


@cache
def _libraries() -> Any:
    """Return the numerical libraries of this process, cached since the search is slow."""
    try:
        from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]
    except ImportError:
        raise MissingExtraError(f"training needs threadpoolctl; {install('learn')}") from None
    import scipy.linalg.blas  # noqa: F401  (its library must be loaded to be limited)

    return ThreadpoolController()


# ---------------------------------------------------------------------- one training


@dataclass(eq=False, init=False)
class _EarlyStopping(State):
    """The scores of validation rows, and the best parameters so far."""

    varying: ClassVar[tuple[str, ...]] = ("scores",)
    logarithms: ClassVar[tuple[str, ...]] = ("scores",)

    scores: list[float]
    best: Held[Any]
    best_epoch: int

    def __init__(self, model: Trainable, validation: Validation, rule: BaseRule) -> None:
        self.rows, self.patience = model.check_data(validation.rows), int(validation.patience)
        self.score, self.least_gain = validation.score or rule.score, validation.least_gain
        self.scores, self.best, self.best_epoch = [], held_tree(model), 0

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Restore the values from `to_arrays`."""
        super().load(arrays)
        if self.scores and not 1 <= self.best_epoch <= len(self.scores):
            raise DataError(f"its best_epoch is {self.best_epoch}")

    def judge(self, model: Any, parameters: Any) -> None:
        """Score the model after an epoch."""
        score = float(np.nan_to_num(self.score(model, self.rows), nan=-np.inf))
        self.scores.append(score)
        if self.best.value is None or score > self.scores[self.best_epoch - 1]:
            self.best.value, self.best_epoch = parameters, len(self.scores)

    @property
    def exhausted(self) -> bool:
        """Return whether `patience` epochs have passed since the last sufficient improvement."""
        reference, since = self.scores[0] if self.scores else 0.0, 0
        for score in self.scores[1:]:
            gained = score > reference + self.least_gain
            reference, since = (score, 0) if gained else (reference, since + 1)
        return since >= self.patience


@dataclass(eq=False, init=False)
class _Trainer(State):
    """Model, optimiser, rule and position in the data of one training.

    Attributes
    ----------
    at
        The epoch and the update within it.
    order_seed
        The seed of the order of the rows in the epoch.
    total
        The sum of the objective over the epoch.
    rng
        The generator of orders and chains.
    parameters
        The parameters of the model, saved by their names in it.
    updates
        The memory of the optimiser and the chains of the rule.
    good_epoch, good
        The last parameters far from divergence, and the number of epochs before them.
    validation
        The scores of the validation rows, if any.
    """

    at: Position
    order_seed: int
    total: float
    rng: np.random.Generator
    parameters: Held[Any]
    updates: Updates
    good_epoch: int
    good: Held[Any]
    validation: State

    def __init__(
        self,
        model: Any,
        data: Any,
        rule: BaseRule,
        optimiser: Optimiser,
        epochs: int,
        batch_size: int,
        seed: seeds.Seed,
        tol: float,
    ) -> None:
        self.model, self.data, self.rule, self.optimiser = model, data, rule, optimiser
        self.epochs, self.tol = epochs, tol
        self.n_rows = count_rows(data)
        self.batch_size = min(batch_size, self.n_rows)
        self.per_epoch = -(-self.n_rows // self.batch_size)
        self.rng = seeds.generator(seed)
        sizes = (self.n_rows, self.batch_size, self.per_epoch, epochs)
        engine: Any = ScanUpdates if isinstance(rule, LossRule) else BatchUpdates
        self.updates = engine(rule, model, data, optimiser, sizes, self.rng, sums=tol > 0)
        self.at, self.order_seed, self.total = Position(), 0, math.nan
        self.parameters = Held(model, self._read_parameters, self._written_parameters)
        self.good_epoch, self.good = 0, held_tree(model, self.updates.parameters())
        self.validation = State()
        self.checkpoint: Checkpoint | None = None
        self.first_averaged, self.last = 0, False
        self.warnings: list[str] = []
        self.interrupt = DeferredInterrupt()
        self.compiled = not isinstance(rule, LossRule)  # the first update of a loss compiles it
        self.is_whole = False  # whether the next update can start from the current state
        self.within = False  # an epoch, whose rows are in order
        self.rng_before = self.rng.bit_generator.state  # before the epoch
        self.shown = time.monotonic()

    @property
    def whole(self) -> bool:
        """Whether the next update can start from the current state."""
        return self.is_whole

    @property
    def early(self) -> _EarlyStopping | None:
        """The early stopping by validation rows, if any."""
        return self.validation if isinstance(self.validation, _EarlyStopping) else None

    @property
    def _averages(self) -> bool:
        return self.first_averaged < self.epochs

    def train(self, run: Run, state: TrainerState | None) -> Training[Any]:
        self.updates.clock = run.clock
        solved = self.updates.solve()
        if solved is not None:
            parameters, doubts = solved
            set_parameters(self.model, parameters)
            run.record(Step(1), 1)
            return Training(self.model, run.trace, 1, "epochs" if doubts else "converged", doubts)
        self.updates.begin(state)
        with self.interrupt.deferred(), phase("epoch"):
            return self._answer(run, self._iterate(run))

    def _iterate(self, run: Run) -> str:
        """Run the epochs; return why they ended."""
        self.run, tol = run, 0.0 if self._averages else self.tol
        ended = iterate(_Trainer.step, self, run, tol=tol, limit=self.epochs, store=self._store())
        stopped = "converged" if ended.converged else run.stopped
        if stopped == "iterations" and self.at.epoch >= self.epochs:
            stopped = "epochs"
        if stopped == "diverged" and self.early is not None and self.early.exhausted:
            stopped = "validation"
        if stopped == "epochs" and self._averages and 0 < self.tol >= run.trace.last_residual:
            stopped = "converged"
        if stopped == "seconds" and self.within:
            at = self.at
            run.record(Step(at.epoch, objective=self._mean_objective()), self.epochs)
        return stopped

    def _answer(self, run: Run, stopped: str) -> Training[Any]:
        self.updates.finish()
        if stopped == "diverged":
            self.at.epoch = self.good_epoch
            set_parameters(self.model, self.good.now)
        elif stopped not in COMPLETE:
            self.warnings.append(f"ended after {self.at.epoch} of {self.epochs} epochs ({stopped})")
        carried = self.updates.carried
        self.warnings += self.rule.warnings(carried.rule)
        scores: list[float] = []
        if self.early is not None and self.early.best.value is not None:
            set_parameters(self.model, self.early.best.value)
            scores = list(self.early.scores)
        elif stopped != "diverged" and self.updates.average.value is not None and not self.last:
            set_parameters(self.model, self.updates.average.value)
        state = None if stopped == "diverged" else carried
        return Training(self.model, run.trace, self.at.epoch, stopped, self.warnings, state, scores)

    # ------------------------------------------------------------------ epochs

    def step(self) -> Step | None:
        """Train on the next batches, the last ones with the report of the epoch; return None if the
        model has diverged or early stopping ends the training.
        """
        at = self.at
        if at.epoch >= self.epochs or (self.early is not None and self.early.exhausted):
            return None
        if not self.within:
            if at.update == 0:
                self.is_whole, self.rng_before = False, self.rng.bit_generator.state
                self._begin_epoch()
            at.order = np.random.default_rng(self.order_seed).permutation(self.n_rows)
            self.within = True
        if at.update < self.per_epoch and not self._advance():  # Ctrl-C may follow the last update
            at.update = 0
            return None
        self.interrupt.check()
        if at.update < self.per_epoch:
            self._show()
            return _PART
        self.is_whole = self.within = False
        at.epoch, at.update = at.epoch + 1, 0
        self._judge()
        residual = self._residual()
        self.is_whole = True
        told = self.rule.measures(self.updates.parameters(), self.updates.carried.rule)
        return Step(at.epoch, residual, self.total / self.per_epoch, measures=told)

    def _judge(self) -> None:
        """Score the validation rows."""
        if self.early is not None:
            parameters = self.updates.parameters()
            set_parameters(self.model, parameters)
            self.early.judge(self.model, parameters)

    def _begin_epoch(self) -> None:
        self.order_seed = int(self.rng.integers(2**63))
        self.total = 0.0
        if self.tol > 0 and (not self._averages or self.at.epoch <= self.first_averaged):
            self.updates.restart_sums()

    def _residual(self) -> float:
        """Return the largest entry of the mean gradient over the relevant epochs, if `tol` is
        set.
        """
        if self.tol <= 0 or (self._averages and self.at.epoch <= self.first_averaged):
            return math.nan
        return self.updates.mean_gradient(
            self.at.epoch - self.first_averaged if self._averages else 1
        )

    def _mean_objective(self) -> float:
        return self.total / self.at.update if self.at.update else math.nan

    def _show(self) -> None:
        if time.monotonic() - self.shown <= _SHOW_EVERY:
            return
        self.shown, objective = time.monotonic(), self._mean_objective()
        shown = None if math.isnan(objective) else objective
        part_done(self.at.update / self.per_epoch)
        self.run.progress(self.at.epoch, self.epochs, residual=None, objective=shown)

    def _advance(self) -> bool:
        """Train on the next batches; return False if the model has diverged."""
        at = self.at
        before, self.is_whole = at.update, False
        with nullcontext() if self.compiled else phase("compiling"):
            done = self.updates.advance(at, at.epoch >= self.first_averaged)
        self.compiled = True
        if not done.updates:  # the time ended within an update, which is discarded
            if not before:  # so is the epoch
                self.rng.bit_generator.state = self.rng_before
            self.is_whole = True
            return True
        at.update += done.updates
        for objective in done.objectives:
            self.total += objective
        if not done.largest < self.model.weight_limit:
            self._warn_diverged(done.largest)
            return False
        ended = at.update == self.per_epoch
        if done.largest <= 0.1 * self.model.weight_limit and (
            ended or before // _KEEP_EVERY != at.update // _KEEP_EVERY
        ):
            self.good_epoch, self.good.value = at.epoch + ended, self.updates.parameters()
        self.is_whole = True
        return True

    def _warn_diverged(self, largest: float) -> None:
        what = f"a weight of {largest:.3g}" if np.isfinite(largest) else "numbers not finite"
        self.warnings.append(
            f"diverged in epoch {self.at.epoch + 1} ({what}): the {self.model.kind} is that of "
            f"the last good state, after {self.good_epoch} complete epochs; lower learning_rate or "
            f"momentum ({self.optimiser.text}), raise weight_decay, or scale the data"
        )

    # ------------------------------------------------------------------ checkpoints

    def _store(self) -> StateFile | None:
        """Return the checkpoint, which belongs to this training only."""
        if self.checkpoint is None:
            return None
        identity = {
            self.model.kind: self.model.describe(),
            "data": fingerprint(self.data)[:32],
            "learner": repr(self.rule),
            "optimiser": repr(self.optimiser),
            "batch size": self.batch_size,
            "tol": self.tol,
        }
        if self.optimiser.rate_schedule.needs_end or self._averages:
            identity["epochs"] = self.epochs
        if self._averages:
            identity["averaged from epoch"] = self.first_averaged
        if self.early is not None:
            rows, score = fingerprint(self.early.rows)[:32], function_name(self.early.score)
            identity["validation"] = [rows, self.early.patience, score]
            if self.early.least_gain:
                identity["least gain"] = self.early.least_gain
        self.checkpoint.identity = identity
        return _ModelFile(self.checkpoint, self.model)

    def _written_parameters(self, model: Any) -> Arrays:
        self.updates.finish()
        return named_leaves(model.parameters)

    def _read_parameters(self, arrays: Arrays) -> Any:
        set_parameters(self.model, self.good.read(arrays))
        self.updates.take()
        return self.model

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Restore the values from `to_arrays`."""
        super().load(arrays)
        limits = {
            "epoch": (self.at.epoch, self.epochs),
            "update": (self.at.update, self.per_epoch),
            "good_epoch": (self.good_epoch, self.epochs),
        }
        for name, (value, most) in limits.items():
            if not 0 <= value <= most:
                raise DataError(f"its {name} is {value}, and at most {most} are possible")
        self.is_whole = True


class _ModelFile(StateFile):
    """A checkpoint that can also be read as a model."""

    def __init__(self, checkpoint: Checkpoint, model: Any) -> None:
        super().__init__(checkpoint)
        self.model = model

    def save(self, arrays: Mapping[str, Array]) -> None:
        """Replace the saved state."""
        everything = {**self.model.to_arrays(), **arrays}
        self.checkpoint.save(everything, None, {self.model.kind: self.model.describe()})
