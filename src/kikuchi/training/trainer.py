"""`train`: any model by any rule with any optimiser, in epochs of shuffled batches.

The trainer knows batches, time and files; rules know how a gradient is estimated. Everything that
the next update depends on is in one state, so that a training that was killed goes on as if it had
not been.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from os import PathLike
from typing import Any, Generic, TypeVar

import numpy as np

from kikuchi.core import seeds
from kikuchi.core.budget import Budget
from kikuchi.core.errors import DataError, MethodError, MissingExtraError
from kikuchi.core.extras import install
from kikuchi.core.interrupts import DeferredInterrupt
from kikuchi.core.progress import part_done, phase, silent
from kikuchi.core.run import Run, Step
from kikuchi.core.trace import Trace
from kikuchi.training.checkpoint import (
    Arrays,
    Checkpoint,
    SavedState,
    check_like,
    of_type,
    part,
    prefixed,
    restoring,
)
from kikuchi.training.model import Trainable, named_leaves, set_parameters, with_leaves
from kikuchi.training.optimiser import Optimiser, parse_optimiser
from kikuchi.training.rows import count_rows, fingerprint
from kikuchi.training.rule import BaseRule, LossRule, function_name
from kikuchi.training.updates import BatchUpdates, Position, ScanUpdates, TrainerState, Updates

T = TypeVar("T", bound=Trainable)
Score = Callable[[Any, Any], float]

_KEPT = ("parameters", "good", "best", "optimiser", "rule", "slopes", "average", "average_count")
_KEEP_EVERY = 100  # updates between two copies of good parameters
_SHOW_EVERY = 0.2  # seconds


COMPLETE = ("epochs", "converged", "validation")
"""Words of `stopped` after which nothing is left to do; other trainings can go on."""


class TrainingTrace(Trace):
    """The trace of a training, which can draw itself."""

    def plot(self) -> Any:
        """A figure of the objective (and the residual, if `tol` was given) against epochs.

        >>> trace = TrainingTrace("log-likelihood per row")
        >>> trace.record(1, objective=-3.0)
        >>> len(trace.plot().axes)
        1
        """
        from kikuchi.plots.convergence import convergence

        return convergence({"training": self}, unit="epochs")


@dataclass
class Training(Generic[T]):
    """A trained model and how it came about.

    `stopped` is "converged" (the mean gradient fell to `tol`, or the rule needs one step only),
    "validation" (early stopping: the score of the validation rows no longer improved), "epochs"
    (all of them are done), "seconds", "iterations", "interrupted" or "diverged". After divergence
    the model is that of the last good state, and `warnings` says what to lower. `state` lets the
    next training go on with the same chains and the same memory of the optimiser; there is none
    after divergence, which may have spoilt both. `scores` are those of the validation rows, one
    per epoch.

    `model` is the answer, `trace` the training epoch by epoch, `epochs` how many were done.
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
        go. Running out of epochs or of time is not convergence.
        """
        return self.stopped in ("converged", "validation")


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
    validation: Any = None,
    patience: int = 10,
    least_gain: float = 0.0,
    score: Score | None = None,
    state: TrainerState | None = None,
) -> Training[T]:
    """Train a copy of `model` on rows of data, dense or sparse, by a rule or its text.

    If `checkpoint` exists and belongs to this training, it goes on from there, with the same result
    as if it had never stopped. `threads` limits those of matrix products (None: as the libraries
    choose; on a busy machine that is many times slower).

    With `tol` > 0 training ends when no entry of the mean gradient over an epoch, weight decay
    included, is larger. With `average` > 0 the answer is the mean of the parameters over that last
    fraction of the epochs (0.5: the second half); `tol` then judges the mean gradient over the same
    epochs, once, at the end. With `last` the answer is the last parameters all the same. With
    `validation` rows, training ends when their score has not
    improved by more than `least_gain` for `patience` epochs, and the answer is the parameters of
    the best epoch; `score(model, rows)`, larger for better, replaces that of the rule.

    Numbers that are not finite, and weights beyond the model's `weight_limit`, count as divergence.
    `state` is that of a training before: chains that belong to no row go on, and so does the memory
    of the optimiser.

    `data` are the rows, `rule` is the learning rule or its text, `optimiser` one of optax by name,
    with `epochs` over the data in batches of `batch_size`; `seed` is that of chains and order,
    `run` holds the budget and the progress, `score` judges the validation rows.

    >>> from kikuchi.boltzmann import Machine
    >>> rows = np.repeat([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]], 50, axis=0)
    >>> start = Machine.random(3, 2, random_state=0)
    >>> done = train(start, rows, "cd", optimiser="sgd:learning_rate=0.5", epochs=20, seed=0)
    >>> done.stopped, done.epochs, done.model.visible_bias.shape
    ('epochs', 20, (3,))
    """
    rule = _parsed(model, rule)
    optimiser = parse_optimiser(optimiser)
    for name, value in (("epochs", epochs), ("batch_size", batch_size), ("patience", patience)):
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
            raise MethodError(f"{name} must be a whole number of at least 1, got {value!r}")
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
        trainer.early = _EarlyStopping(
            model.check_data(validation), int(patience), score or rule.score, least_gain
        )
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        checkpoint = Checkpoint(checkpoint)
    trainer.checkpoint = checkpoint
    with limited_threads(threads):
        return trainer.train(run, state)


def _parsed(model: Trainable, rule: str | BaseRule) -> BaseRule:
    parsed: BaseRule = model.rule(rule) if isinstance(rule, str) else rule
    return parsed


def limited_threads(threads: int | None) -> Any:
    """A block in which numerical libraries use at most so many threads."""
    if threads is not None and threads < 1:
        raise MethodError(f"threads must be at least 1 or None, got {threads!r}")
    return nullcontext() if threads is None else _libraries().limit(limits=threads)


@cache
def _libraries() -> Any:
    """The numerical libraries of this process: to look for them takes longer than to use them."""
    try:
        from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]
    except ImportError:
        raise MissingExtraError(f"training needs threadpoolctl; {install('learn')}") from None
    import scipy.linalg.blas  # noqa: F401  (its library must be loaded to be limited)

    return ThreadpoolController()


# ---------------------------------------------------------------------- one training


class _EarlyStopping:
    """The scores of validation rows, and the best parameters so far."""

    def __init__(self, rows: Any, patience: int, score: Score, least_gain: float) -> None:
        self.rows, self.patience, self.score = rows, patience, score
        self.least_gain = least_gain
        self.scores: list[float] = []
        self.best: Any = None
        self.best_epoch = 0

    def judge(self, model: Any, parameters: Any) -> bool:
        """Score the model after an epoch; True when it has not improved for too long."""
        score = float(np.nan_to_num(self.score(model, self.rows), nan=-np.inf))
        self.scores.append(score)
        if self.best is None or score > self.scores[self.best_epoch - 1]:
            self.best, self.best_epoch = parameters, len(self.scores)
        return self.exhausted

    @property
    def exhausted(self) -> bool:
        """Whether `patience` epochs have passed since the last that gained enough."""
        reference, since = self.scores[0] if self.scores else 0.0, 0
        for score in self.scores[1:]:
            gained = score > reference + self.least_gain
            reference, since = (score, 0) if gained else (reference, since + 1)
        return since >= self.patience


class _Trainer:
    """Model, optimiser, rule and position in the data of one training."""

    checkpoint: Checkpoint | None = None
    early: _EarlyStopping | None = None
    first_averaged: int = 0
    last: bool = False

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
        self.updates: Updates = engine(rule, model, data, optimiser, sizes, self.rng, sums=tol > 0)
        self.at = Position()
        self.order_seed = 0
        self.total = 0.0  # of the objective over the epoch
        self.good = (0, self.updates.parameters())
        self.warnings: list[str] = []
        self.interrupt = DeferredInterrupt()
        self.compiled = not isinstance(rule, LossRule)  # the first update of a loss compiles it
        self.whole = False  # whether the next update can be taken from the state as it is

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
        saved = self._load()
        self.updates.begin(state if saved is None else None)
        if saved is not None:
            self._restore(saved, run.trace)
        already = self._already_stopped(run.trace)
        if already is not None:
            return self._answer(run, already)
        with self.interrupt.deferred(), phase("epoch"):
            return self._answer(run, self._iterate(run))

    def _iterate(self, run: Run) -> str:
        """Run the epochs; answers why they ended."""
        tol = 0.0 if self._averages else self.tol
        _, converged = run.iterate(self._steps(run), tol=tol, limit=self.epochs)
        stopped = "converged" if converged else run.stopped
        if stopped == "iterations" and self.at.epoch >= self.epochs:
            stopped = "epochs"
        if stopped == "diverged" and self.early is not None and self.early.exhausted:
            stopped = "validation"
        if stopped == "epochs" and self._averages and 0 < self.tol >= run.trace.last_residual:
            stopped = "converged"
        # within an epoch, the state was saved when the time had run out, and the trace has a step
        # since then that no uninterrupted training has
        within = stopped == "seconds" and self.at.update > 0
        if stopped != "diverged" and self.whole and not within:
            self._save(run.trace)
        return stopped

    def _already_stopped(self, trace: Trace) -> str | None:
        """Why the training that is resumed was complete already, if it was."""
        met = 0 < self.tol >= trace.last_residual
        if self.early is not None and self.early.exhausted:
            return "validation"
        if self.at.epoch >= self.epochs:
            return "converged" if met else "epochs"
        return "converged" if met and not self._averages else None

    def _answer(self, run: Run, stopped: str) -> Training[Any]:
        self.updates.finish()
        if stopped == "diverged":
            self.at.epoch = self.good[0]
            set_parameters(self.model, self.good[1])
        elif stopped not in COMPLETE:
            self.warnings.append(f"ended after {self.at.epoch} of {self.epochs} epochs ({stopped})")
        carried = self.updates.carried
        self.warnings += self.rule.warnings(carried.rule)
        scores: list[float] = []
        if self.early is not None and self.early.best is not None:
            set_parameters(self.model, self.early.best)
            scores = list(self.early.scores)
        elif stopped != "diverged" and self.updates.averaged is not None and not self.last:
            set_parameters(self.model, self.updates.averaged)
        state = None if stopped == "diverged" else carried
        return Training(self.model, run.trace, self.at.epoch, stopped, self.warnings, state, scores)

    # ------------------------------------------------------------------ epochs

    def _steps(self, run: Run) -> Iterator[Step]:
        at = self.at
        while at.epoch < self.epochs:
            if at.update == 0:
                if at.epoch:
                    self._save(run.trace)
                self.whole = False
                self._begin_epoch()
            at.order = np.random.default_rng(self.order_seed).permutation(self.n_rows)
            yield from self._batches(run)
            if at.update < self.per_epoch:
                return  # diverged
            self.whole = False
            at.epoch, at.update = at.epoch + 1, 0
            exhausted, residual = self._judge(), self._residual()
            self.whole = True
            told = self.rule.measures(self.updates.parameters(), self.updates.carried.rule)
            yield Step(at.epoch, residual, self.total / self.per_epoch, measures=told)
            if exhausted:
                return

    def _judge(self) -> bool:
        """Whether the validation rows say that enough has been learnt."""
        if self.early is None:
            return False
        parameters = self.updates.parameters()
        set_parameters(self.model, parameters)
        return self.early.judge(self.model, parameters)

    def _begin_epoch(self) -> None:
        self.order_seed = int(self.rng.integers(2**63))
        self.total = 0.0
        if self.tol > 0 and (not self._averages or self.at.epoch <= self.first_averaged):
            self.updates.restart_sums()

    def _batches(self, run: Run) -> Iterator[Step]:
        """The rest of an epoch; a step only where the time has run out."""
        at, shown = self.at, time.monotonic()
        while at.update < self.per_epoch:
            if not self._advance():
                at.update = 0
                return
            self.interrupt.check()
            if at.update == self.per_epoch:
                return
            if run.clock.expired:
                if self.whole:
                    self._save(run.trace)
                yield Step(at.epoch, objective=self.total / at.update if at.update else math.nan)
            if self.checkpoint is not None and self.checkpoint.due:
                self._save(run.trace)
            if time.monotonic() - shown > _SHOW_EVERY:
                shown = time.monotonic()
                self._show(run)

    def _residual(self) -> float:
        """Largest entry of the mean gradient over the epochs that count, if anybody asked."""
        if self.tol <= 0 or (self._averages and self.at.epoch <= self.first_averaged):
            return math.nan
        return self.updates.mean_gradient(
            self.at.epoch - self.first_averaged if self._averages else 1
        )

    def _show(self, run: Run) -> None:
        objective = self.total / max(self.at.update, 1)
        shown = None if math.isnan(objective) else objective
        part_done(self.at.update / self.per_epoch)
        run.progress(self.at.epoch, self.epochs, residual=None, objective=shown)

    def _advance(self) -> bool:
        """Learn from the next batches; False when the model has diverged."""
        at = self.at
        before, self.whole = at.update, False
        with nullcontext() if self.compiled else phase("compiling"):
            done = self.updates.advance(at, at.epoch >= self.first_averaged)
        self.compiled = True
        if not done.updates:  # the time ended within an update; an epoch has its order already
            self.whole = before > 0
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
            self.good = (at.epoch + ended, self.updates.parameters())
        self.whole = True
        return True

    def _warn_diverged(self, largest: float) -> None:
        what = f"a weight of {largest:.3g}" if np.isfinite(largest) else "numbers not finite"
        self.warnings.append(
            f"diverged in epoch {self.at.epoch + 1} ({what}): the {self.model.kind} is that of the "
            f"last good state, after {self.good[0]} whole epochs; lower learning_rate or momentum "
            f"({self.optimiser.text}), raise weight_decay, or scale the data"
        )

    # ------------------------------------------------------------------ checkpoints

    def _load(self) -> SavedState | None:
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
        return self.checkpoint.load()

    def _save(self, trace: Trace) -> None:
        if self.checkpoint is None:
            return
        self.updates.finish()
        arrays = self.model.to_arrays()
        arrays |= prefixed(named_leaves(self.model.parameters), "parameters")
        arrays |= self.updates.arrays()
        arrays |= prefixed(named_leaves(self.good[1]), "good")
        arrays |= prefixed(trace.arrays(), "trace")
        progress: dict[str, Any] = {
            "epoch": self.at.epoch,
            "update": self.at.update,
            "good": int(self.good[0]),
            "order_seed": self.order_seed,
            "objective": None if math.isnan(self.total) else self.total,
            "rng": self.rng.bit_generator.state,
        }
        if self.early is not None and self.early.best is not None:
            arrays |= prefixed(named_leaves(self.early.best), "best")
            progress |= {"scores": self.early.scores, "best_epoch": self.early.best_epoch}
        self.checkpoint.save(arrays, progress, {self.model.kind: self.model.describe()})

    def _restore(self, saved: SavedState, trace: Trace) -> None:
        assert self.checkpoint is not None
        arrays, progress = saved.arrays, saved.progress
        tree = self.model.parameters
        with restoring(self.checkpoint.path):
            self._check(arrays, progress)
            set_parameters(self.model, with_leaves(tree, part(arrays, "parameters")))
            self.updates.restore(arrays)
            self.at.epoch, self.at.update = progress["epoch"], progress["update"]
            self.good = (progress["good"], with_leaves(tree, part(arrays, "good")))
            self.order_seed = progress["order_seed"]
            total = progress["objective"]
            self.total = math.nan if total is None else float(total)
            self.rng.bit_generator.state = progress["rng"]
            trace.restore(part(arrays, "trace"))
            if self.early is not None and "scores" in progress:
                self.early.scores = [float(x) for x in progress["scores"]]
                self.early.best_epoch = int(progress["best_epoch"])
                self.early.best = with_leaves(tree, part(arrays, "best"))

    def _check(self, arrays: Arrays, progress: dict[str, Any]) -> None:
        """Refuse a state whose arrays or counts cannot be those of this training."""
        leaves = {n: np.asarray(a) for n, a in named_leaves(self.model.parameters).items()}
        fresh = prefixed(leaves, "parameters") | prefixed(leaves, "good") | self.updates.arrays()
        for name in ("slopes", "average", "best"):
            fresh |= prefixed(leaves, name) if part(arrays, name) else {}
        known = {n: a for n, a in arrays.items() if n.partition("/")[0] in _KEPT}
        if unknown := sorted(part(arrays, "parameters").keys() - leaves.keys()):
            raise DataError(f"the model has no parameter {unknown[0]}")
        check_like(known, fresh, varying=("slopes/",))
        limits = {"epoch": self.epochs, "update": self.per_epoch, "good": self.epochs}
        for name, most in limits.items():
            if not 0 <= of_type(progress, name, int) <= most:
                raise DataError(f"its {name} is {progress[name]}, and at most {most} are possible")
        scores = progress.get("scores", [])
        if scores and not 1 <= of_type(progress, "best_epoch", int) <= len(scores):
            raise DataError(f"its best_epoch is {progress['best_epoch']}")
