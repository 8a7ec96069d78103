"""Learning from short Markov chains: contrastive divergence and its relatives (TEH-L4, TEH-L8).

The gradient of the log-likelihood is data counts minus model counts. Here the model's counts come
from Gibbs chains of a few sweeps, and so do those of hidden cells. Three places to start from:

    cd           at the rows themselves, anew for every update
    pcd          where the chains of the update before ended
    brief-gibbs  one chain for every row, or (`restart`) always the same state

The updates of `cd` are the gradient of no function, those of the others become unbiased as the
rate falls.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kikuchi.core import seeds
from kikuchi.core.options import option
from kikuchi.core.run import Step
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.inference.graph_arrays import flatten
from kikuchi.inference.sampling.sweepers import TableSweeper
from kikuchi.learning.ascent import few_rows
from kikuchi.learning.checkpoint import State
from kikuchi.learning.data import Data
from kikuchi.learning.learner import (
    FitRun,
    Learned,
    Learner,
    check_hidden_zeros,
    check_undirected,
)
from kikuchi.learning.local.pseudo import pseudo_log_likelihood
from kikuchi.learning.ties import Parameters

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_REPORT_EVERY = 0.2  # seconds between two steps within a long epoch
_JUDGED_ROWS = 1000  # of which the trace holds the pseudo-likelihood
_NEGATIVE, _POSITIVE, _FIRST = 1, 2, 3  # what a random stream is for


@dataclass(frozen=True)
class ContrastiveLearner(Learner):
    """What the three share: stochastic ascent with momentum, a falling rate and tail averages.

    An update is velocity = momentum velocity + rate (data counts - chain counts - l2 theta), with
    rate = learning_rate / (1 + decay epoch). The answer is the mean of theta over the second half
    of the epochs (`average`). The fit counts as converged when the mean update direction of that
    half is at most `tol`: the moments of the chains agree with those of the data.

    Hidden cells are drawn by sweeps that hold what the row observes, and kept for the next time.
    """

    takes_missing: ClassVar[bool] = True
    objective_name: ClassVar[str] = "pseudo-log-likelihood per row"
    paired: ClassVar[bool] = False  # chains belong to rows and weigh as much

    sweeps: int = option(1, "Gibbs sweeps of the chains before each update (k of CD-k)", low=1)
    epochs: int = option(60, "passes over the rows", low=1)
    batch: int = option(100, "rows of each update", low=1)
    learning_rate: float = option(0.1, "first rate of the updates", above=0)
    decay: float = option(0.05, "the rate is divided by 1 + decay times the epoch", low=0)
    momentum: float = option(0.5, "share of the last update that is kept", low=0, below=1)
    l1: float = option(0.0, "penalty on the sizes of log-weights", low=0)
    l2: float = option(0.0, "penalty on the squares of log-weights (half of their sum)", low=0)
    ties: str | None = option(None, "factors that share a table, such as 0-3;4-7, or shape")
    hidden_sweeps: int = option(1, "sweeps over the hidden cells before each update", low=1)
    average: bool = option(True, "answer with the mean over the second half of the epochs")
    tol: float = option(0.02, "largest mean difference of moments that counts as converged", low=0)
    seed: int = option(0, "seed of chains and batches", low=0)

    def _fit(self, graph: FactorGraph, data: Data, run: FitRun) -> Learned:
        check_undirected(self.name, graph)
        check_hidden_zeros(self.name, graph, data, "Gibbs chains cannot move freely")
        chains = self._chains(self.batch) + self.batch
        run.clock.budget.require_bytes(
            chains * (8 * graph.n_factors + 5 * graph.n_variables) + 8 * data.states.size,
            "the chains",
            "use fewer chains, a smaller batch, or fewer rows",
        )
        climb = _Climb(self, graph, data, run.resumed)
        run.iterate_saving(climb.steps(), climb.state, run.checkpoint, tol=0.0, limit=self.epochs)
        return climb.learned(run)

    @abstractmethod
    def _negative(self, climb: _Climb, rows: Ints) -> NDArray[Any]:
        """Where the chains start, one a column, beside a batch of rows."""

    def _keep(self, climb: _Climb, rows: Ints, ended: NDArray[Any]) -> None:
        """Remember where the chains ended, if the next start depends on it."""

    def _pool(self, climb: _Climb) -> NDArray[np.int32] | None:
        """Persistent chains at the start, one a row; None if there are none."""
        return None

    def _chains(self, batch: int) -> int:
        return batch

    @property
    def _restarts(self) -> bool:
        """Whether hidden cells begin at a fixed state each time."""
        return False


@dataclass(frozen=True)
class ContrastiveDivergence(ContrastiveLearner):
    """Contrastive divergence (TEH-L8): chains start at the rows of the batch.

    >>> import kikuchi as kk
    >>> pair = kk.FactorGraph([2, 2], [((0, 1), np.ones(4))])
    >>> rows = [[0, 0]] * 40 + [[1, 1]] * 40 + [[0, 1]] * 20
    >>> fit = ContrastiveDivergence(epochs=20).fit(pair, rows)
    >>> bool(fit.graph.table(0)[0, 0] > fit.graph.table(0)[0, 1])
    True
    """

    paired: ClassVar[bool] = True
    name: ClassVar[str] = "cd"
    summary: ClassVar[str] = "contrastive divergence: short Gibbs chains from the rows"

    def _negative(self, climb: _Climb, rows: Ints) -> NDArray[Any]:
        return climb.completed[rows].T


@dataclass(frozen=True)
class PersistentDivergence(ContrastiveLearner):
    """Persistent contrastive divergence: the chains go on where they were (TEH-L4).

    >>> import kikuchi as kk
    >>> coin = kk.FactorGraph([2], [((0,), [1, 1])])
    >>> fit = PersistentDivergence(chains=50).fit(coin, [[1]] * 75 + [[0]] * 25)
    >>> bool(abs(kk.infer(fit.graph, "jt")[0][1] - 0.75) < 0.05)
    True
    """

    name: ClassVar[str] = "pcd"
    summary: ClassVar[str] = "persistent contrastive divergence: chains that never restart"

    chains: int = option(100, "persistent chains", low=1)

    def _chains(self, batch: int) -> int:
        return self.chains

    def _pool(self, climb: _Climb) -> NDArray[np.int32] | None:
        rng = seeds.generator(np.random.SeedSequence([self.seed, _FIRST]))
        return climb.completed[rng.integers(0, climb.n_rows, self.chains)]

    def _negative(self, climb: _Climb, rows: Ints) -> NDArray[Any]:
        return climb.pool.T

    def _keep(self, climb: _Climb, rows: Ints, ended: NDArray[Any]) -> None:
        climb.pool[:] = ended.T


@dataclass(frozen=True)
class BriefGibbs(ContrastiveLearner):
    """Brief Gibbs learning (TEH-L4): a persistent chain for every row, one sweep an update.

    With `restart` the "even briefer" form: hidden cells and free chains begin at one fixed state
    (that of the first row) each time. Its updates are biased, but vary less.

    >>> import kikuchi as kk
    >>> coin = kk.FactorGraph([2], [((0,), [1, 1])])
    >>> fit = BriefGibbs().fit(coin, [[1]] * 75 + [[0]] * 25)
    >>> bool(abs(kk.infer(fit.graph, "jt")[0][1] - 0.75) < 0.05)
    True
    """

    name: ClassVar[str] = "brief-gibbs"
    summary: ClassVar[str] = "brief Gibbs learning: one persistent chain for every row"

    restart: bool = option(False, "begin at one fixed state each time instead")

    @property
    def _restarts(self) -> bool:
        return self.restart

    def _pool(self, climb: _Climb) -> NDArray[np.int32] | None:
        return None if self.restart else climb.completed.copy()

    def _negative(self, climb: _Climb, rows: Ints) -> NDArray[Any]:
        if self.restart:
            return np.repeat(climb.fixed[:, None], len(rows), axis=1)
        return climb.pool[rows].T

    def _keep(self, climb: _Climb, rows: Ints, ended: NDArray[Any]) -> None:
        if not self.restart:
            climb.pool[rows] = ended.T


# ---------------------------------------------------------------------- one fit


class _Climb:
    """theta, its velocity and mean, the chains, and how far the passes have come."""

    def __init__(
        self, learner: ContrastiveLearner, graph: FactorGraph, data: Data, state: State | None
    ) -> None:
        self.learner = learner
        self.graph = graph
        self.parameters = Parameters(graph, learner.ties)
        self.flat = flatten(graph)
        used = data.weights > 0
        self.observed = np.ascontiguousarray(data.states[used])
        self.weights = data.weights[used]
        self.data = data
        self.n_rows = len(self.observed)
        self.batch = min(learner.batch, self.n_rows)
        self.missing = self.observed < 0
        self.has_hidden = bool(self.missing.any())
        self._make_sweepers()
        if state is None:
            self._begin()
        else:
            self._restore(state)
        self.fixed = self.completed[0].copy() if state is None else np.array(state["fixed"])

    def _make_sweepers(self) -> None:
        order = np.arange(self.graph.n_variables)
        chains = self.learner._chains(self.batch)
        self.free = TableSweeper(self.flat, chains, order)
        self.held = TableSweeper(self.flat, self.batch, order)
        for sweeper, purpose in ((self.free, _NEGATIVE), (self.held, _POSITIVE)):
            sequence = np.random.SeedSequence([self.learner.seed, purpose])
            sweeper.seed(seeds.kernel_seeds(sequence, sweeper.chains))

    def _begin(self) -> None:
        self.theta = self.parameters.start.copy()
        self.velocity = np.zeros_like(self.theta)
        self.mean = np.zeros_like(self.theta)
        self.slope = np.zeros_like(self.theta)  # summed over the averaged updates
        self.averaged = 0
        self.epoch = 0
        self.update = 0  # within the epoch
        self.completed = self.observed.copy()
        if self.has_hidden:
            rng = seeds.generator(np.random.SeedSequence([self.learner.seed, _FIRST, 1]))
            cards = self.graph.cardinalities.astype(np.int64)
            random = rng.integers(0, np.broadcast_to(cards, self.observed.shape))
            self.completed[self.missing] = random[self.missing]
        pool = self.learner._pool(self)
        self.pool = np.zeros((0, 0), dtype=np.int32) if pool is None else pool

    def _restore(self, state: State) -> None:
        for name in ("theta", "velocity", "mean", "slope"):
            setattr(self, name, np.array(state[name], dtype=np.float64))
        self.epoch, self.update, self.averaged = (int(x) for x in state["counters"])
        self.completed = self.observed.copy()
        self.completed[self.missing] = state["hidden"]
        self.pool = np.array(state["pool"], dtype=np.int32)
        self.free.streams[:] = state["free_streams"]
        self.held.streams[:] = state["held_streams"]

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that the next update depends on."""
        return {
            "theta": self.theta,
            "velocity": self.velocity,
            "mean": self.mean,
            "slope": self.slope,
            "counters": np.array([self.epoch, self.update, self.averaged]),
            "hidden": self.completed[self.missing],
            "fixed": self.fixed,
            "pool": self.pool,
            "free_streams": self.free.streams,
            "held_streams": self.held.streams,
        }

    # ------------------------------------------------------------------ updates

    def steps(self) -> Iterator[Step]:
        """One step for each epoch, and more where an epoch takes long."""
        last = time.perf_counter()
        if self.epoch >= self.learner.epochs:  # resumed at the very end
            yield Step(self.epoch, self._residual(), self._judged())
        while self.epoch < self.learner.epochs:
            sequence = np.random.SeedSequence([self.learner.seed, _FIRST, 2, self.epoch])
            order = seeds.generator(sequence).permutation(self.n_rows)
            updates = self.n_rows // self.batch
            while self.update < updates:
                rows = order[self.update * self.batch : (self.update + 1) * self.batch]
                self._update(np.sort(rows))
                self.update += 1
                if time.perf_counter() - last > _REPORT_EVERY and self.update < updates:
                    yield Step(self.epoch, self._residual())
                    last = time.perf_counter()
            self.epoch += 1
            self.update = 0
            yield Step(self.epoch, self._residual(), self._judged())
            last = time.perf_counter()

    def _update(self, rows: Ints) -> None:
        learner = self.learner
        tables = self.parameters.tables(self.theta)
        flat = self.flat.with_tables(tables)
        gradient = self._positive(flat, rows) - self._negative(flat, rows)
        slope = self.parameters.pull_back(tables, gradient) - learner.l2 * self.theta
        rate = learner.learning_rate / (1.0 + learner.decay * self.epoch)
        self.velocity = learner.momentum * self.velocity + rate * slope
        self.theta = self.theta + self.velocity
        if learner.l1:
            shrunk = np.maximum(np.abs(self.theta) - rate * learner.l1, 0.0)
            self.theta = np.sign(self.theta) * shrunk
        if 2 * self.epoch >= learner.epochs:
            self.averaged += 1
            self.mean += (self.theta - self.mean) / self.averaged
            self.slope += slope - learner.l1 * np.sign(self.theta)

    def _positive(self, flat: Any, rows: Ints) -> Array:
        """Mean counts of the batch, its hidden cells drawn."""
        from kikuchi.learning.local.kernels.contrastive import held_sweeps

        held, learner = self.held, self.learner
        if self.has_hidden and learner._restarts:
            gaps = self.missing[rows]
            self.completed[rows] = np.where(gaps, self.fixed, self.completed[rows])
        held.set(self.completed[rows].T.astype(np.int64))
        if self.has_hidden:
            free = np.ascontiguousarray(self.missing[rows].T).ravel()
            held_sweeps(
                flat,
                *held._rows,
                held.states,
                held.streams,
                free,
                learner.hidden_sweeps,
                held.field,
                held.entries,
            )
            self.completed[rows] = held.states.reshape(-1, len(rows)).T
        return self._counts(held, self.weights[rows])

    def _negative(self, flat: Any, rows: Ints) -> Array:
        """Mean counts of the chains after their sweeps."""
        free, learner = self.free, self.learner
        free.set(np.ascontiguousarray(learner._negative(self, rows)).astype(np.int64))
        free.flat = flat
        free.burn(learner.sweeps)
        learner._keep(self, rows, free.states.reshape(-1, free.chains))
        weights = self.weights[rows] if learner.paired else np.ones(free.chains)
        return self._counts(free, weights)

    def _counts(self, sweeper: TableSweeper, weights: Array) -> Array:
        from kikuchi.learning.local.kernels.contrastive import add_entries

        counts = np.zeros(self.graph.log_tables.size)
        add_entries(sweeper.entries, np.ascontiguousarray(weights / weights.sum()), counts)
        return counts

    # ------------------------------------------------------------------ reading

    @property
    def answer(self) -> Array:
        """The parameters to answer with."""
        return self.mean if self.learner.average and self.averaged else self.theta

    def _residual(self) -> float:
        """Largest mean update direction of the averaged half; NaN before it."""
        if not self.averaged:
            return float("nan")
        return float(np.abs(self.slope).max(initial=0.0)) / self.averaged

    def _judged(self) -> float:
        if self.has_hidden:
            return float("nan")
        model = self.graph.with_log_tables(self.parameters.tables(self.answer))
        some = slice(0, _JUDGED_ROWS)
        return pseudo_log_likelihood(model, self.data.like(self.observed[some], self.weights[some]))

    def learned(self, run: FitRun) -> Learned:
        """The answer, and whether the chains' moments agree with the data's."""
        residual = self._residual()
        complete = self.epoch >= self.learner.epochs
        converged = complete and residual <= self.learner.tol
        learned = Learned(
            self.parameters.tables(self.answer),
            None if self.has_hidden else self._judged(),
            converged,
            self.epoch,
            diagnostics={
                "moment_difference": None if np.isnan(residual) else residual,
                "chains": self.free.chains,
                "updates_an_epoch": self.n_rows // self.batch,
            },
        )
        learned.warnings += few_rows(
            self.graph, self.data, self.parameters, self.learner.l1, self.learner.l2
        )
        if converged:
            run.stopped = "converged"
        elif complete:
            learned.warnings.append(
                f"the moments of the chains still differ from the data's by {residual:.2g} on "
                "average; use more epochs or another learning_rate"
            )
        else:
            learned.warnings.append(
                f"ended after {self.epoch} of {self.learner.epochs} epochs ({run.stopped}): the "
                "rate has not fallen yet"
            )
        if np.isneginf(self.graph.log_tables).any():
            learned.warnings.append(
                "the tables have zeros: chains that change one variable at a time may not reach "
                "every state"
            )
        return learned
