"""Learning from short Markov chains: contrastive divergence and its relatives.

The gradient of the log-likelihood is data counts minus model counts. Here the model's counts come
from Gibbs chains of a few sweeps, and so do those of hidden cells. The chains start in one of three
places:

    cd           at the rows themselves, anew for every update
    pcd          where the chains of the update before ended
    brief-gibbs  one chain for every row, or (`restart`) always the same state

The updates of `cd` are the gradient of no function, those of the others become unbiased as the
rate falls.

Reference: TEH-L4, TEH-L8.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kikuchi.core.arrays import Ints
from kikuchi.core.options import option
from kikuchi.graphs.factor_graph import FactorGraph
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
from kikuchi.learning.local.conditionals import pseudo_log_likelihood
from kikuchi.training.contrastive import (
    BriefGibbsRule,
    ContrastiveDivergenceRule,
    PersistentDivergenceRule,
    SampledRule,
)
from kikuchi.training.optimiser import Sgd
from kikuchi.training.rule import GradientEstimate, State

_JUDGED_ROWS = 1000  # of which the trace holds the pseudo-likelihood
_UPDATES, _OBJECTIVE = "updates", "objective"  # names in the state of a rule


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

    sweeps: int = option(1, "Gibbs sweeps of the chains before each update (k of CD-k)", low=1)
    max_iter: int = option(60, "passes over the rows", low=1)
    batch: int = option(100, "rows of each update", low=1)
    learning_rate: float = option(0.1, "initial learning rate", above=0)
    decay: float = option(0.05, "the rate is divided by 1 + decay times the epoch", low=0)
    momentum: float = option(0.5, "momentum", low=0, below=1)
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
        sampled = self._rule()
        chains = getattr(sampled, "chains", self.batch)
        run.clock.budget.require_bytes(
            (chains + self.batch) * (8 * graph.n_factors + 5 * graph.n_variables)
            + 8 * data.states.size,
            "the chains",
            "use fewer chains, a smaller batch, or fewer rows",
        )
        used = data.weights > 0
        data = data.like(np.ascontiguousarray(data.states[used]), data.weights[used])
        per_epoch = -(-data.n_rows // min(self.batch, data.n_rows))
        rule = SampledGraphRule(self, sampled, data, per_epoch)
        schedule = f"inverse-time:decay={self.decay}"
        done, learned = rule.train(
            GraphModel(graph, self.ties, data=data),
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
            "chains": min(chains, data.n_rows) if self.name != "pcd" else chains,
            "updates_per_epoch": per_epoch,
        }
        learned.warnings += few_rows(graph, data, done.model.map, self.l1, self.l2)
        if done.stopped == "epochs":
            learned.warnings.append(
                f"the moments of the chains still differ from the data's by {residual:.2g} on "
                "average; raise max_iter or try another learning_rate"
            )
        if np.isneginf(graph.log_tables).any():
            learned.warnings.append(
                "the tables have zeros: chains that change one variable at a time may not reach "
                "every state"
            )
        return learned

    @abstractmethod
    def _rule(self) -> SampledRule:
        """Where the chains start: a rule of the training floor."""


class ContrastiveDivergence(ContrastiveLearner):
    """Contrastive divergence: short Gibbs chains from the rows.

    >>> import kikuchi as kk
    >>> pair = kk.FactorGraph([2, 2], [((0, 1), np.ones(4))])
    >>> rows = [[0, 0]] * 40 + [[1, 1]] * 40 + [[0, 1]] * 20
    >>> fit = ContrastiveDivergence(max_iter=20).fit(pair, rows)
    >>> bool(fit.graph.table(0)[0, 0] > fit.graph.table(0)[0, 1])
    True
    """

    name: ClassVar[str] = "cd"

    def _rule(self) -> SampledRule:
        return ContrastiveDivergenceRule(clamped=self.hidden_sweeps, k=self.sweeps)


@dataclass(frozen=True)
class PersistentDivergence(ContrastiveLearner):
    """Persistent contrastive divergence: chains that never restart.

    >>> import kikuchi as kk
    >>> coin = kk.FactorGraph([2], [((0,), [1, 1])])
    >>> fit = PersistentDivergence(chains=50).fit(coin, [[1]] * 75 + [[0]] * 25)
    >>> bool(abs(kk.infer(fit.graph, "jt")[0][1] - 0.75) < 0.05)
    True
    """

    name: ClassVar[str] = "pcd"

    chains: int = option(100, "persistent chains", low=1)

    def _rule(self) -> SampledRule:
        return PersistentDivergenceRule(
            clamped=self.hidden_sweeps, k=self.sweeps, chains=self.chains
        )


@dataclass(frozen=True)
class BriefGibbs(ContrastiveLearner):
    """Brief Gibbs learning: one persistent chain for every row.

    With `restart` the "even briefer" form: hidden cells and free chains begin at one fixed state
    (that of the first row) each time. Its updates are biased, but vary less.

    >>> import kikuchi as kk
    >>> coin = kk.FactorGraph([2], [((0,), [1, 1])])
    >>> fit = BriefGibbs().fit(coin, [[1]] * 75 + [[0]] * 25)
    >>> bool(abs(kk.infer(fit.graph, "jt")[0][1] - 0.75) < 0.05)
    True
    """

    name: ClassVar[str] = "brief-gibbs"

    restart: bool = option(False, "begin at one fixed state each time")

    def _rule(self) -> SampledRule:
        return BriefGibbsRule(clamped=self.hidden_sweeps, k=self.sweeps, restart=self.restart)


@dataclass(frozen=True)
class SampledGraphRule(PenalisedRule):
    """A sampled rule with penalties, and with an objective: the pseudo-log-likelihood of the first
    rows at the beginning of each epoch.
    """

    name: ClassVar[str] = "sampled"
    objective_name: ClassVar[str] = "pseudo-log-likelihood per row"

    sampled: SampledRule
    data: Data
    per_epoch: int

    def begin(self, model: GraphModel, data: Any, rng: np.random.Generator) -> State:
        """The chains, the number of updates so far, and the objective."""
        counters = {_UPDATES: np.zeros(1, dtype=np.int64), _OBJECTIVE: np.full(1, np.nan)}
        return counters | self.sampled.begin(model, data, rng)

    def unpenalised(
        self, model: GraphModel, batch: Any, rows: Ints, state: State, rng: np.random.Generator
    ) -> GradientEstimate:
        """Frequencies of the rows minus those of the chains."""
        if state[_UPDATES][0] % self.per_epoch == 0 and self.data.complete:
            state[_OBJECTIVE][0] = self.objective(model)
        state[_UPDATES] += 1
        estimate = self.sampled.gradient(model, batch, rows, state, rng)
        if self.data.complete:
            estimate.objective = float(state[_OBJECTIVE][0])
        return estimate

    def objective(self, model: GraphModel) -> float:
        """The pseudo-log-likelihood of the first rows."""
        first = slice(0, _JUDGED_ROWS)
        rows = self.data.like(self.data.states[first], self.data.weights[first])
        return pseudo_log_likelihood(model.fitted, rows)
