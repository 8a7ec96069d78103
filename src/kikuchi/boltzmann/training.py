"""`train`: any machine by any rule with any optimiser, in epochs of shuffled batches.

The trainer knows machines, batches, time and files; rules know statistics. Everything that the next
update depends on is in one state, so that a training that was killed goes on as if it had not been.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi import __version__
from kikuchi.boltzmann.files import Checkpoint, Saved, describe, part
from kikuchi.boltzmann.machine import Machine, Parameters
from kikuchi.boltzmann.optimiser import Optimiser, Updater, parse_optimiser, parse_schedule
from kikuchi.boltzmann.rows import fingerprint, fit_rows, is_sparse, take_rows
from kikuchi.boltzmann.rule import Rule, State, parse_rule
from kikuchi.core import seeds
from kikuchi.core.budget import Budget
from kikuchi.core.errors import DataError, MethodError, MissingExtraError
from kikuchi.core.progress import silent
from kikuchi.core.run import Run, Step
from kikuchi.core.trace import Trace

Array = NDArray[Any]

EXPLODED = 500.0
"""Weights of this size count as diverged: units that they reach are never in doubt."""
_GOOD = 50.0  # weights of states that are kept in case the next ones diverge
_KEEP_EVERY = 100  # updates
_SHOW_EVERY = 0.2  # seconds
_LATERAL = ("visible_weights", "hidden_weights")


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

        return convergence({"training": self})


@dataclass
class Carried:
    """What outlives a training besides the machine: chains and the optimiser's memory."""

    rule: State
    optimiser: dict[str, Array]


@dataclass
class Training:
    """A trained machine and how it came about.

    `stopped` is "epochs" (all are done), "converged" (the mean slope of an epoch fell to `tol`, or
    the rule needs one step only), "seconds", "interrupted" or "diverged"; in the last case the
    machine is that of the last good state, and `warnings` says what to lower. `carried` lets the
    next training go on with the same chains.
    """

    machine: Machine
    trace: Trace
    epochs: int
    stopped: str
    warnings: list[str] = field(default_factory=list)
    carried: Carried | None = None

    @property
    def converged(self) -> bool:
        """Whether training ended because nothing was left to learn."""
        return self.stopped == "converged"


def train(
    machine: Machine,
    data: Any,
    rule: str | Rule,
    *,
    optimiser: str | Optimiser = "sgd",
    epochs: int = 10,
    batch_size: int = 100,
    rng: seeds.Seed = None,
    run: Run | None = None,
    checkpoint: Checkpoint | str | PathLike[str] | None = None,
    threads: int | None = 1,
    tol: float = 0.0,
    carried: Carried | None = None,
) -> Training:
    """Train a copy of `machine` on rows of data, dense or sparse.

    If `checkpoint` exists and belongs to this training, it goes on from there, with the same result
    as if it had never stopped. `threads` limits those of matrix products (None: as the libraries
    like; on a busy machine that is many times slower). With `tol` > 0 training ends when no mean
    slope over an epoch, weight decay included, is larger. `carried` is that of a training before:
    chains that belong to no row go on, and so does the memory of the optimiser.

    >>> rows = np.repeat([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]], 50, axis=0)
    >>> start = Machine.random(3, 2, random_state=0)
    >>> done = train(start, rows, "cd", optimiser="sgd:learning_rate=0.5", epochs=20, rng=0)
    >>> done.stopped, done.epochs, done.machine.visible_bias.shape
    ('epochs', 20, (3,))
    """
    rule, optimiser = parse_rule(rule), parse_optimiser(optimiser)
    for name, value in (("epochs", epochs), ("batch_size", batch_size)):
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
            raise MethodError(f"{name} must be a whole number of at least 1, got {value!r}")
    rows = fit_rows(machine, data)
    run = run or Run(Budget().start(), silent, TrainingTrace())
    run.trace.objective_name = rule.objective_name
    work = _Work(machine, rows, rule, optimiser, int(epochs), int(batch_size), rng, tol)
    work.carried = carried
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        checkpoint = Checkpoint(checkpoint)
    with limited_threads(threads):
        return work.train(run, checkpoint)


def limited_threads(threads: int | None) -> Any:
    """A block in which numerical libraries use at most so many threads."""
    if threads is not None and threads < 1:
        raise MethodError(f"threads must be at least 1 or None, got {threads!r}")
    return _libraries().limit(limits=threads)


@cache
def _libraries() -> Any:
    """The numerical libraries of this process: to look for them takes longer than to use them."""
    try:
        from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]
    except ImportError:
        raise MissingExtraError(
            "training needs threadpoolctl; pip install 'kikuchi[learn]'"
        ) from None
    import scipy.linalg.blas  # noqa: F401  (its library must be there to be found)

    return ThreadpoolController()


def constrain(machine: Machine, ascent: Parameters) -> None:
    """Make a direction one that the machine can take: masks, symmetry, zero diagonals (WH-T10)."""
    for name in _LATERAL:
        if name in ascent:
            array = ascent[name]
            array += array.T.copy()
            array *= array.dtype.type(0.5)
            np.fill_diagonal(array, 0)
    for name, mask in machine.masks.items():
        np.multiply(ascent[name], mask, out=ascent[name])


# ---------------------------------------------------------------------- one training


class _Work:
    """Machine, optimiser, rule and place in the data of one training."""

    def __init__(
        self,
        machine: Machine,
        data: Any,
        rule: Rule,
        optimiser: Optimiser,
        epochs: int,
        batch_size: int,
        rng: seeds.Seed,
        tol: float,
    ) -> None:
        self.machine = _own(machine)
        self.data = data
        self.rule, self.optimiser = rule, optimiser
        self.epochs, self.tol = epochs, tol
        self.n_rows = int(data.shape[0])
        self.batch_size = min(batch_size, self.n_rows)
        self.per_epoch = -(-self.n_rows // self.batch_size)
        self.rng = seeds.generator(rng)
        self.updater: Updater = optimiser.start(self.machine, self.per_epoch, epochs)
        self.epoch = self.update = 0
        self.order_seed = 0
        self.total = 0.0  # of the objective over the epoch
        self.slopes: Parameters = {}  # summed over the epoch, if `tol` needs them
        self.state: State = {}
        self.good = (0, self._parameters())
        self.warnings: list[str] = []
        self.carried: Carried | None = None

    def train(self, run: Run, checkpoint: Checkpoint | None) -> Training:
        solved = self.rule.solve(self.machine, self._for_rule())
        if solved is not None:
            for name, array in self.machine.parameters.items():
                array[...] = solved[name]
            run.record(Step(1), 1)
            return Training(self.machine, run.trace, 1, "converged")
        saved = self._saved(checkpoint)
        if saved is None:
            self._begin()
        else:
            self._restore(saved, run.trace)
        if self._finished(run.trace):
            return self._answer(run, "converged" if self.epoch < self.epochs else "epochs")
        _, converged = run.iterate(self._steps(run, checkpoint), tol=self.tol, limit=self.epochs)
        stopped = "converged" if converged else run.stopped
        if stopped == "iterations" and self.epoch >= self.epochs:
            stopped = "epochs"
        if stopped in ("converged", "epochs", "iterations"):
            self._save(checkpoint, run.trace)
        return self._answer(run, stopped)

    def _finished(self, trace: Trace) -> bool:
        """Whether the training that is resumed was complete already."""
        return self.epoch >= self.epochs or 0 < self.tol >= trace.last_residual

    def _begin(self) -> None:
        keeps = self.carried is not None and self.rule.carries
        if self.carried is not None and keeps:
            self.state = {n: a.copy() for n, a in self.carried.rule.items()}
        else:
            self.state = self.rule.begin(self.machine, self._for_rule(), self.rng)
        if self.carried is not None:
            self.updater.restore(self.carried.optimiser)

    def _for_rule(self) -> Any:
        sparse = is_sparse(self.data) and not self.rule.takes_sparse
        return self.data.toarray() if sparse else self.data

    def _answer(self, run: Run, stopped: str) -> Training:
        if stopped == "diverged":
            self.epoch = self.good[0]
            for name, array in self.machine.parameters.items():
                array[...] = self.good[1][name]
        elif stopped not in ("epochs", "converged"):
            self.warnings.append(f"ended after {self.epoch} of {self.epochs} epochs ({stopped})")
        self.warnings += self.rule.warnings(self.state)
        chains = {n: a for n, a in self.state.items() if not n.startswith("_")}
        carried = Carried(chains, self.updater.state)
        return Training(self.machine, run.trace, self.epoch, stopped, self.warnings, carried)

    # ------------------------------------------------------------------ epochs

    def _steps(self, run: Run, checkpoint: Checkpoint | None) -> Iterator[Step]:
        while self.epoch < self.epochs:
            if self.update == 0:
                if self.epoch:
                    self._save(checkpoint, run.trace)
                self._begin_epoch()
            yield from self._batches(run, checkpoint)
            if self.update < self.per_epoch:
                return  # diverged
            self.epoch, self.update = self.epoch + 1, 0
            yield Step(self.epoch, self._residual(), self.total / self.per_epoch)

    def _begin_epoch(self) -> None:
        self.order_seed = int(self.rng.integers(2**63))
        self.total = 0.0
        if self.tol > 0:
            self.slopes = {n: np.zeros_like(a) for n, a in self.machine.parameters.items()}

    def _batches(self, run: Run, checkpoint: Checkpoint | None) -> Iterator[Step]:
        """The rest of an epoch; a step only where the time has run out."""
        order = np.random.default_rng(self.order_seed).permutation(self.n_rows)
        shown = time.monotonic()
        while self.update < self.per_epoch:
            if not self._one_update(order):
                self.update = 0
                return
            if self.update == self.per_epoch:
                return
            if run.clock.expired:
                self._save(checkpoint, run.trace)
                yield Step(self.epoch, objective=self.total / self.update)
            if checkpoint is not None and checkpoint.due:
                self._save(checkpoint, run.trace)
            if time.monotonic() - shown > _SHOW_EVERY:
                shown = time.monotonic()
                self._show(run)

    def _residual(self) -> float:
        """Largest entry of the mean slope over the epoch, if anyone asked."""
        if not self.slopes:
            return math.nan
        decay, largest = self.optimiser.weight_decay, 0.0
        for name, array in self.machine.parameters.items():
            left = self.slopes[name] - (decay * array if array.ndim == 2 else 0.0)
            largest = max(largest, float(np.max(np.abs(left), initial=0.0)))
        return largest

    def _show(self, run: Run) -> None:
        objective = self.total / max(self.update, 1)
        shown = None if math.isnan(objective) else objective
        run.progress(self.epoch, self.epochs, residual=None, objective=shown)

    def _one_update(self, order: NDArray[np.int64]) -> bool:
        """Learn from the next batch; False when the machine has diverged."""
        first = self.update * self.batch_size
        rows = order[first : first + self.batch_size]
        batch = take_rows(self.data, rows, self.machine.dtype)
        slope = self.rule.slope(self.machine, batch, rows, self.state, self.rng)
        constrain(self.machine, slope.ascent)
        for name, total in self.slopes.items():
            total += total.dtype.type(len(rows) / self.n_rows) * slope.ascent[name]
        largest = self.updater.step(slope.ascent, self.epoch, self.update)
        self.rule.project(self.machine)
        self.update += 1
        self.total += math.nan if slope.objective is None else slope.objective
        if not largest < EXPLODED or math.isinf(self.total):
            self._say_diverged(largest)
            return False
        if largest < _GOOD and (self.update % _KEEP_EVERY == 0 or self.update == self.per_epoch):
            self.good = (self.epoch + (self.update == self.per_epoch), self._parameters())
        return True

    def _say_diverged(self, largest: float) -> None:
        what = f"a weight of {largest:.3g}" if np.isfinite(largest) else "numbers not finite"
        text = self.optimiser.text
        self.warnings.append(
            f"diverged in epoch {self.epoch + 1} ({what}): the machine is that of the last good "
            f"state, after {self.good[0]} whole epochs; lower learning_rate or momentum ({text}), "
            "raise weight_decay, or scale the data"
        )

    def _parameters(self) -> Parameters:
        return {name: array.copy() for name, array in self.machine.parameters.items()}

    # ------------------------------------------------------------------ checkpoints

    def _saved(self, checkpoint: Checkpoint | None) -> Saved | None:
        if checkpoint is None:
            return None
        checkpoint.identity = {
            "machine": describe(self.machine),
            "data": fingerprint(self.data)[:32],
            "learner": repr(self.rule),
            "optimiser": repr(self.optimiser),
            "batch size": self.batch_size,
            "program": __version__,
            "tol": self.tol,
            **checkpoint.about,
        }
        if parse_schedule(self.optimiser.schedule).needs_end:
            checkpoint.identity["epochs"] = self.epochs
        return checkpoint.load()

    def _save(self, checkpoint: Checkpoint | None, trace: Trace) -> None:
        if checkpoint is None:
            return
        arrays = {f"optimiser/{n}": a for n, a in self.updater.state.items()}
        arrays |= {f"rule/{n}": a for n, a in self.state.items() if not n.startswith("_")}
        arrays |= {f"slopes/{n}": a for n, a in self.slopes.items()}
        arrays |= {f"good/{n}": a for n, a in self.good[1].items()}
        arrays |= {f"trace/{n}": a for n, a in trace.arrays().items()}
        progress = {
            "epoch": self.epoch,
            "update": self.update,
            "good": int(self.good[0]),
            "order_seed": self.order_seed,
            "objective": None if math.isnan(self.total) else self.total,
            "rng": self.rng.bit_generator.state,
        }
        checkpoint.save(self.machine, arrays, progress)

    def _restore(self, saved: Saved, trace: Trace) -> None:
        try:
            for name, array in self.machine.parameters.items():
                array[...] = saved.arrays[f"parameters/{name}"]
            self.updater.restore(part(saved.arrays, "optimiser"))
            self.state = {n: a.copy() for n, a in part(saved.arrays, "rule").items()}
            self.slopes = {n: a.copy() for n, a in part(saved.arrays, "slopes").items()}
            self.epoch, self.update = saved.progress["epoch"], saved.progress["update"]
            self.good = (saved.progress["good"], part(saved.arrays, "good"))
            self.order_seed = saved.progress["order_seed"]
            total = saved.progress["objective"]
            self.total = math.nan if total is None else float(total)
            self.rng.bit_generator.state = saved.progress["rng"]
            for name, column in part(saved.arrays, "trace").items():
                getattr(trace, name)[:] = column.tolist()
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"checkpoint: its state does not fit this training ({error})") from None


def _own(machine: Machine) -> Machine:
    """A copy whose arrays are contiguous and of one dtype, as the compiled loops need them."""
    if machine.dtype not in (np.float32, np.float64):
        raise MethodError(f"machines learn in float32 or float64, not {machine.dtype}")
    arrays = {n: np.array(a, machine.dtype, order="C") for n, a in machine.parameters.items()}
    return Machine(**arrays, masks=machine.masks, visible=machine.visible, hidden=machine.hidden)
