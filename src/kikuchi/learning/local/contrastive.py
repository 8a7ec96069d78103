"""Learning from short Markov chains: contrastive divergence and its relatives (TEH-L4, TEH-L8).

The gradient of the log-likelihood is data counts minus model counts. Here the model's counts come
from Gibbs chains of a few sweeps, and so do those of hidden cells. The chains start in one of three
places:

    cd           at the rows themselves, anew for every update
    pcd          where the chains of the update before ended
    brief-gibbs  one chain for every row, or (`restart`) always the same state

The updates of `cd` are the gradient of no function, those of the others become unbiased as the
rate falls.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kikuchi.core import seeds
from kikuchi.core.options import option
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.inference.graph_arrays import GraphArrays, flatten
from kikuchi.inference.sampling.sweepers import TableSweeper
from kikuchi.learning.ascent import few_rows
from kikuchi.learning.data import Data
from kikuchi.learning.graph_model import GraphModel, PenalisedRule
from kikuchi.learning.learner import (
    FitRun,
    Learned,
    Learner,
    check_hidden_zeros,
    check_undirected,
)
from kikuchi.learning.local.pseudo import pseudo_log_likelihood
from kikuchi.training.optimiser import Sgd
from kikuchi.training.rule import State

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
States = NDArray[np.int32]

_JUDGED_ROWS = 1000  # of which the trace holds the pseudo-likelihood
_STREAM_WORDS = 4  # of the random stream of a chain


@dataclass(frozen=True)
class ContrastiveLearner(Learner):
    """What the three share: stochastic ascent with momentum, a falling rate and tail averages.

    An update is theta += rate velocity with velocity = momentum velocity + data counts - chain
    counts - l2 theta and rate = learning_rate / (1 + decay epoch). The answer is the mean of theta
    over the second half of the epochs (`average`). The fit counts as converged when the mean
    gradient of that half is at most `tol`: the moments of chains and data agree.

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
    momentum: float = option(0.5, "fraction of the last update that is kept", low=0, below=1)
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
        used = data.weights > 0
        data = data.like(np.ascontiguousarray(data.states[used]), data.weights[used])
        rule = GibbsRule(self, data, flatten(graph))
        schedule = f"inverse-time:decay={self.decay}"
        done, learned = rule.train(
            GraphModel(graph, self.ties),
            data,
            run,
            optimiser=Sgd(
                learning_rate=self.learning_rate, momentum=self.momentum, schedule=schedule
            ),
            batch_size=self.batch,
            average=0.5,
            last=not self.average,
        )
        if data.complete:
            learned.objective = rule.objective(done.model)
        residual = run.trace.last_residual
        learned.diagnostics |= {
            "moment_difference": None if np.isnan(residual) else residual,
            "chains": self._chains(rule.batch),
            "updates_per_epoch": rule.per_epoch,
        }
        learned.warnings += few_rows(graph, data, done.model.map, self.l1, self.l2)
        if done.stopped == "epochs":
            learned.warnings.append(
                f"the moments of the chains still differ from the data's by {residual:.2g} on "
                "average; use more epochs or another learning_rate"
            )
        if np.isneginf(graph.log_tables).any():
            learned.warnings.append(
                "the tables have zeros: chains that change one variable at a time may not reach "
                "every state"
            )
        return learned

    def _chains(self, batch: int) -> int:
        """Number of chains beside a batch of so many rows."""
        return batch

    @property
    def _restarts(self) -> bool:
        """Whether hidden cells and chains begin at one fixed state each time."""
        return False

    def _begin(self, completed: States, rng: np.random.Generator) -> States | None:
        """Chains that persist between updates, one per row of the answer; None if none do."""
        return None

    @abstractmethod
    def _start(self, rows: Ints, completed: States, state: State) -> States:
        """Where the chains start beside a batch of rows, one per row of the answer."""

    def _keep(self, rows: Ints, ended: States, state: State) -> None:
        """Remember where the chains ended, if the next start depends on it."""


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

    def _start(self, rows: Ints, completed: States, state: State) -> States:
        return completed[rows]


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

    def _begin(self, completed: States, rng: np.random.Generator) -> States | None:
        return completed[rng.integers(0, len(completed), self.chains)]

    def _start(self, rows: Ints, completed: States, state: State) -> States:
        return state["chains"]

    def _keep(self, rows: Ints, ended: States, state: State) -> None:
        state["chains"][:] = ended


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

    def _begin(self, completed: States, rng: np.random.Generator) -> States | None:
        return completed[:1].copy() if self.restart else completed.copy()

    def _start(self, rows: Ints, completed: States, state: State) -> States:
        return state["chains"][np.zeros_like(rows) if self.restart else rows]

    def _keep(self, rows: Ints, ended: States, state: State) -> None:
        if not self.restart:
            state["chains"][rows] = ended


# ---------------------------------------------------------------------- the gradient


@dataclass(frozen=True)
class GibbsRule(PenalisedRule):
    """Mean counts of a batch, its hidden cells drawn, minus those of short Gibbs chains.

    The rule's state holds the completed rows (if cells are hidden), the chains that persist, and
    the random streams of both. The objective is the pseudo-log-likelihood of some rows at the
    beginning of each epoch.
    """

    name: ClassVar[str] = "gibbs"
    objective_name: ClassVar[str] = "pseudo-log-likelihood per row"

    data: Data
    flat: GraphArrays

    @cached_property
    def batch(self) -> int:
        """Rows of each update but perhaps the last of an epoch."""
        return min(int(self.learner.batch), self.data.n_rows)

    @property
    def per_epoch(self) -> int:
        """Updates of an epoch."""
        return -(-self.data.n_rows // self.batch)

    @cached_property
    def _sweepers(self) -> dict[int, TableSweeper]:
        return {}

    def begin(self, model: GraphModel, data: Any, rng: np.random.Generator) -> State:
        """Hidden cells at random, chains where the learner starts them, and random streams."""
        from kikuchi.inference.sampling.kernels.gibbs import seed_streams

        state: State = {"updates": np.zeros(1, dtype=np.int64), "objective": np.full(1, np.nan)}
        completed = self.data.states
        if not self.data.complete:
            random = rng.integers(0, np.broadcast_to(self.data.cardinalities, completed.shape))
            completed = np.where(completed < 0, random, completed).astype(np.int32)
            state["completed"] = completed
            state["clamped_streams"] = seed_streams(seeds.kernel_seeds(rng, self.batch))
        chains = self.learner._begin(completed, rng)
        if chains is not None:
            state["chains"] = chains
        words = seeds.kernel_seeds(rng, self.learner._chains(self.batch))
        state["chain_streams"] = seed_streams(words)
        return state

    def table_gradient(
        self, model: GraphModel, tables: Array, rows: Ints, state: State
    ) -> tuple[float, Array]:
        """Counts of the rows minus those of the chains."""
        if state["updates"][0] % self.per_epoch == 0 and self.data.complete:
            state["objective"][0] = self.objective(model)
        state["updates"] += 1
        flat, weights = self.flat.with_tables(tables), self.data.weights[rows]
        if self.data.complete:
            batch = self.data.like(self.data.states[rows], weights)
            counts = batch.factor_counts(model.graph) / batch.total
        else:
            counts = _frequencies(self._completed(flat, rows, state), weights)
        chains = self._negative(flat, rows, state)
        paired = weights if self.learner.paired else np.ones(chains.chains)
        return float(state["objective"][0]), counts - _frequencies(chains, paired)

    def objective(self, model: GraphModel) -> float:
        """The pseudo-log-likelihood of the first rows."""
        first = slice(0, _JUDGED_ROWS)
        rows = self.data.like(self.data.states[first], self.data.weights[first])
        return pseudo_log_likelihood(model.fitted, rows)

    def _sweeper(self, flat: GraphArrays, states: States, streams: NDArray[Any]) -> TableSweeper:
        """Chains at these states, one per row, with their own random streams."""
        chains = len(states)
        if chains not in self._sweepers:
            order = np.arange(self.data.n_variables)
            self._sweepers[chains] = TableSweeper(self.flat, chains, order)
        sweeper = self._sweepers[chains]
        sweeper.flat, sweeper.streams = flat, streams[: _STREAM_WORDS * chains]
        sweeper.set(states.T.astype(np.int64))
        return sweeper

    def _completed(self, flat: GraphArrays, rows: Ints, state: State) -> TableSweeper:
        """The rows, their hidden cells drawn given the others."""
        from kikuchi.learning.local.kernels.contrastive import clamped_sweeps

        start, missing = state["completed"][rows], self.data.states[rows] < 0
        if self.learner._restarts:
            start = np.where(missing, state["chains"], start)
        sweeper = self._sweeper(flat, start, state["clamped_streams"])
        free = np.ascontiguousarray(missing.T).ravel()
        clamped_sweeps(
            flat, *sweeper._rows, sweeper.states, sweeper.streams, free,
            self.learner.hidden_sweeps, sweeper.field, sweeper.entries,
        )  # fmt: skip
        state["completed"][rows] = _by_chain(sweeper)
        return sweeper

    def _negative(self, flat: GraphArrays, rows: Ints, state: State) -> TableSweeper:
        """The chains after their sweeps."""
        learner = self.learner
        start = learner._start(rows, state.get("completed", self.data.states), state)
        sweeper = self._sweeper(flat, start, state["chain_streams"])
        sweeper.burn(learner.sweeps)
        learner._keep(rows, _by_chain(sweeper), state)
        return sweeper


def _frequencies(sweeper: TableSweeper, weights: Array) -> Array:
    """How often each entry of each table occurs in the states of the chains."""
    from kikuchi.learning.local.kernels.contrastive import add_entries

    counts = np.zeros(sweeper.flat.log_tables.size)
    add_entries(sweeper.entries, weights / weights.sum(), counts)
    return counts


def _by_chain(sweeper: TableSweeper) -> States:
    """The states of the chains, one per row."""
    return np.ascontiguousarray(sweeper.states.reshape(-1, sweeper.chains).T, dtype=np.int32)
