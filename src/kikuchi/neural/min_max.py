r"""Min-max learning: steps on a region-energy network and on the model in turn.

    min over theta, max over omega:  -<counts, theta> - F(b(omega); theta) - penalty D(b(omega))

The negative log-likelihood with minus the region free energy F in the place of log Z, and D the sum
of the squared disagreements of regions. The
network's weights omega are kept from turn to turn: it follows the model while that changes, and is
never trained anew. With the beliefs held, the gradient in theta is the counts of the data less
sum_R c_R b_R, each factor's share of every region weighted by the counting number; where regions
agree that is the belief of the factor.

Reference: LIU-L4.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import DataError
from kikuchi.core.numerics import xlogy
from kikuchi.core.options import option
from kikuchi.core.run import Step
from kikuchi.engines.regions.engine import RegionBeliefs
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.regions.builders import region_graph
from kikuchi.learning.data import Data
from kikuchi.learning.learner import FitRun, Learned, check_undirected
from kikuchi.neural.region_energy import EnergyDescent, EnergySettings, Logits
from kikuchi.neural.turns import UNWATCHED, TurnLearner, Turns

_LEAST_STEPS = 10  # on the network in a turn that `network_tol` may end


@dataclass(frozen=True)
class RegionMinMax(TurnLearner, EnergySettings):
    """Model and region-energy network in turn (needs JAX).

    Each turn takes `network_steps` of Adam on the network at the present tables, then `model_steps`
    of Adam on the tables with the beliefs held; in one turn no log-weight moves by much more than
    `model_steps * learning_rate`. With many of them the tables swing around their best for ever
    unless the rate falls (`decay`). `network=none` has free tables in the network's place. Minus
    the penalised energy is not a bound on log Z, so that the objective is a surrogate. `converged`
    means that neither the tables nor the beliefs have a slope above `tol`; a fixed number of turns,
    as published, is not that. For the network trained anew at every step use
    `gradient:inference=renn`; `gradient:inference=kikuchi` has the same energy at its minimum.

    >>> import kikuchi as kk
    >>> truth = kk.grid(2, 3, seed=1, coupling=0.5)
    >>> rows = kk.plan(truth).calibrate().sample(200, seed=0)
    >>> flat = truth.with_log_tables(np.zeros(truth.log_tables.size))
    >>> fit = RegionMinMax(network="none", rate=0.1, learning_rate=0.05).fit(flat, rows)
    >>> bool(fit.log_likelihood > kk.evaluate(truth, rows).log_likelihood)
    True
    """

    name: ClassVar[str] = "min-max"
    objective_name: ClassVar[str] = "region-energy log-likelihood per row"

    network_steps: int = option(10, "maximum number of steps on the network per alternation", low=1)
    network_tol: float = option(
        0.0, "mean squared change of beliefs in a step that ends a turn's steps after ten", low=0
    )
    model_steps: int = option(1, "steps on the log-tables per turn", low=1)
    batch: int = option(0, "rows of each step on the log-tables; 0: all of them", low=0)
    seed: int = option(0, "seed of the first weights and of the batches", low=0)

    def _fit(self, graph: FactorGraph, data: Data, run: FitRun) -> Learned:
        check_undirected(self.name, graph)
        if graph.n_factors == 0:
            raise DataError(f"learner {self.name}: the model has no factor to learn")
        turns = _MinMaxTurns(self, graph, data, run)
        learned = self._in_turns(turns, run)
        learned.diagnostics |= {
            "disagreement": turns.beliefs.disagreement(),
            "network_steps": turns.network_steps,
            "penalty": self.penalty,
        }
        return learned


@dataclass(eq=False, init=False)
class _MinMaxTurns(Turns):
    """The state of a fit: theta under Adam, and what writes the root beliefs."""

    network: Logits
    network_steps: int

    def __init__(self, learner: RegionMinMax, graph: FactorGraph, data: Data, run: FitRun) -> None:
        super().__init__(learner, graph, run)
        self.data, self.graph = data, graph
        self.counts = data.factor_counts(graph) / data.total
        budget = run.clock.budget
        self.beliefs = RegionBeliefs(region_graph(graph, learner.regions, budget=budget), budget)
        self.potentials = potential_matrix(self.beliefs)
        sizes = self.beliefs.regions.sizes.astype(np.int64)
        self.counting = np.repeat(self.beliefs.regions.counting, sizes)
        self.descent = EnergyDescent(self.beliefs, learner, learner.seed)
        self.network = self.descent.source
        self.energy = np.nan
        self.network_steps = 0

    def follow(self) -> None:
        self.beliefs.log_phi[:] = self.potentials @ self.tables
        self._descend()
        self.energy = self.descent.evaluate()

    def report(self) -> Step:
        slope = self._slope()
        self.objective = float(xlogy(self.counts, self.tables).sum()) + self.energy - self.penalty
        gap = self.descent.gap()
        measures = {"slope of the tables": slope, "slope of the beliefs": gap}
        return Step(self.done, max(slope, gap), self.objective, measures=measures)

    def _descend(self) -> None:
        """Steps on the network, until they no longer change the beliefs."""
        learner, known = self.learner, None
        for done in range(learner.network_steps):
            if done and done % UNWATCHED == 0:
                self.require_time()
            self.descent.evaluate()
            if learner.network_tol > 0:
                found = self.beliefs.factor_marginals()
                if (
                    known is not None
                    and done > _LEAST_STEPS
                    and np.mean((found - known) ** 2) < learner.network_tol
                ):
                    break
                known = found
            self.descent.descend()
            self.network_steps += 1

    def _gradient(self, counts: Array) -> Array:
        """Counts less the beliefs of the factors, each region's weighted by its counting number."""
        held = self.potentials.T @ (self.counting * self.beliefs.b)
        return self.parameters.pull_back(self.tables, counts - held)

    def _slope(self) -> float:
        slope = self._gradient(self.counts) - self.learner.l2 * self.theta.values
        return float(np.abs(slope).max(initial=0.0))

    def move(self) -> None:
        self.slow_down()
        for ascent in [self._gradient(counts) for counts in self._batches()]:
            self.theta.step(self.learner.l2 * self.theta.values - ascent)

    def _batches(self) -> Iterator[Array]:
        """Counts of the rows of each step of a turn."""
        learner, data = self.learner, self.data
        size = min(learner.batch, data.n_rows) or data.n_rows
        rng = np.random.default_rng([learner.seed, self.done])
        rows = np.empty(0, dtype=np.int64)
        for _ in range(learner.model_steps):
            if size == data.n_rows:
                yield self.counts
                continue
            if len(rows) < size:  # a pass ends; the rest of its rows waits for another
                rows = rng.permutation(data.n_rows)
            taken, rows = np.split(rows, [size])
            part = data.like(data.states[taken], data.weights[taken])
            yield part.factor_counts(self.graph) / part.total

    def measure(self) -> None:
        self.beliefs.log_phi[:] = self.potentials @ self.tables
        self.descent.evaluate()


def potential_matrix(beliefs: RegionBeliefs) -> Any:
    """The sparse matrix from the graph's log-tables to the log-potentials of all regions.

    >>> import kikuchi as kk
    >>> graph = kk.grid(2, 2, seed=0)
    >>> beliefs = RegionBeliefs(region_graph(graph, "faces"), kk.Budget())
    >>> matrix = potential_matrix(beliefs)
    >>> bool(np.allclose(matrix @ graph.log_tables, beliefs.log_phi))
    True
    """
    from scipy.sparse import csr_array

    graph, regions = beliefs.graph, beliefs.regions
    starts = np.cumsum(regions.sizes.astype(np.int64)) - regions.sizes.astype(np.int64)
    patterns: dict[tuple[Any, ...], Ints] = {}
    rows, columns = [], []
    for r in range(len(regions)):
        variables = regions.variables.row(r).tolist()
        shape = tuple(int(graph.cardinalities[v]) for v in variables)
        for a in regions.factors.row(r).tolist():
            at = tuple(variables.index(v) for v in graph.scope(a))
            key = (shape, at)
            if key not in patterns:
                digits = np.indices(shape).reshape(len(shape), -1)[list(at)]
                patterns[key] = np.ravel_multi_index(tuple(digits), graph.shape(a))
            columns.append(int(graph.table_offsets[a]) + patterns[key])
            rows.append(starts[r] + np.arange(len(patterns[key])))
    row, column = np.concatenate(rows), np.concatenate(columns)
    size = (len(beliefs.log_phi), len(graph.log_tables))
    return csr_array((np.ones(len(row)), (row, column)), shape=size)
