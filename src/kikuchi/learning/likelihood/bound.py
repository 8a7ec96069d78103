"""Mean field below, tree-reweighted above: a certified bound for hidden variables.

    log p(v) = A(v, theta) - A(theta)  >=  A_M(v, theta) - A_T(theta)

A_M is the mean field bound on the log-weight of a row with its hidden cells summed out, A_T the
tree-reweighted bound on log Z. The right side is maximised over theta; it is a difference of convex
functions, so that the maximum found is a local one. Where the hidden variables of a row do not
touch each other (a restricted Boltzmann machine) A_M is exact. An upper bound in the place
of log Z leaves a lower bound on log p a lower bound.

Reference: LAW-I7, LIU-L8, LIU-M11.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kikuchi.core import seeds
from kikuchi.core.arrays import Array
from kikuchi.core.options import option
from kikuchi.engines.loops.state import State
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.graph_arrays import flatten
from kikuchi.learning.data import Data
from kikuchi.learning.learner import (
    FitRun,
    Learned,
    Learner,
    check_hidden_zeros,
    check_undirected,
)
from kikuchi.learning.likelihood.surrogate import WarmEnergy, WarmState
from kikuchi.learning.ties import Parameters

_CHUNK = 2e7  # table entries looked at between two looks at the clock
_LONGEST_STEP = 1.0


@dataclass(frozen=True)
class MeanFieldMinusTrw(Learner):
    """Hidden variables: mean field minus TRW, a certified lower bound.

    At every step of the trace `lower` is a certified lower bound on the mean log-likelihood of a
    row, whatever the messages and the mean field have reached; `diagnostics["certified_lower"]` is
    that of the answer. A model whose tables say nothing about its hidden variables is a saddle of
    the likelihood: small random numbers (`noise`) are then added to those tables at the start.

    >>> import kikuchi as kk
    >>> rbm = kk.boltzmann_graph({(0, 2): 0.5, (1, 2): -0.5}, [0.0, 0.0, 0.0])
    >>> fit = MeanFieldMinusTrw().fit(rbm, [[0, 0, -1], [1, 1, -1], [1, 1, -1], [0, 1, -1]])
    >>> fit.diagnostics["certified_lower"] <= fit.log_likelihood
    True
    """

    name: ClassVar[str] = "mf-trw"
    objective_name: ClassVar[str] = "lower bound on the log-likelihood per row"
    takes_missing: ClassVar[bool] = True

    l1: float = option(0.0, "penalty on the sizes of log-weights", low=0)
    l2: float = option(0.0, "penalty on the squares of log-weights (half of their sum)", low=0)
    ties: str | None = option(None, "factors that share a table, such as 0-3;4-7, or shape")
    tol: float = option(1e-5, "largest slope to stop at", low=0)
    max_iter: int = option(500, "most steps of the ascent", low=1)
    inner_tol: float = option(1e-11, "largest change of a message or probability inside", above=0)
    inner_max_iter: int = option(2000, "most sweeps of messages or mean field per step", low=1)
    noise: float = option(0.1, "random numbers added to uninformative tables", low=0)
    seed: int = option(0, "seed of the noise, the mean field and the forests", low=0)

    def _fit(self, graph: FactorGraph, data: Data, run: FitRun) -> Learned:
        check_undirected(self.name, graph)
        check_hidden_zeros(self.name, graph, data, "mean field has no bound to raise")
        rows = HiddenRows(graph, data.distinct(), run, self)
        energy = WarmEnergy(graph, "trw", run.clock, self)
        parameters = Parameters(graph, self.ties)
        drawn = noise_where_flat(graph, data, parameters, self.noise, self.seed)
        parameters.start = parameters.start + drawn

        def objective(tables: Array) -> tuple[float, Array]:
            below, counts = rows.at(tables)
            log_z, beliefs = energy.at(tables)
            return below - log_z, counts - beliefs

        def certified() -> float:
            tables = ascent.tables
            return rows.at(tables)[0] - energy.upper(tables)

        beside = _BoundState(energy.state, rows.state)
        ascent = energy.ascent(data, parameters, objective, _LONGEST_STEP, certified, beside)
        learned = ascent.maximise(run, tol=self.tol, limit=self.max_iter)
        learned.diagnostics |= {
            "certified_lower": certified(),
            "distinct_rows": rows.n_rows,
            "unconverged": energy.state.unconverged,
        }
        return learned


def noise_where_flat(
    graph: FactorGraph, data: Data, parameters: Parameters, noise: float, seed: int
) -> Array:
    """Random numbers for the tables of hidden variables if all of these are constant.

    Such tables say nothing about the hidden variables, and are a saddle of the likelihood.
    """
    none = np.zeros(parameters.n_free)
    touched = np.zeros(graph.log_tables.size, dtype=bool)
    gaps = np.any(data.states < 0, axis=0)
    for a in range(graph.n_factors):
        block = slice(int(graph.table_offsets[a]), int(graph.table_offsets[a + 1]))
        if any(gaps[v] for v in graph.scope(a)):
            touched[block] = True
            if np.ptp(graph.log_tables[block]) > 0:
                return none
    draws = noise * seeds.generator(seed).standard_normal(touched.size)
    tables = np.where(touched, draws, 0.0)
    if parameters.matrix is None:
        return tables[parameters.free]
    return np.asarray(parameters.matrix.T @ tables)


@dataclass(eq=False)
class HiddenRowState(State):
    """Mean field of all rows, and the bound and counts at the log-tables of the last call; the
    bound is NaN before the first.
    """

    logarithms: ClassVar[tuple[str, ...]] = ("q_tables",)

    q: Array
    q_tables: Array
    q_counts: Array
    q_value: float = np.nan


@dataclass(eq=False)
class _BoundState(State):
    energy: WarmState
    rows: HiddenRowState


class HiddenRows:
    """The mean field bound of every distinct row, kept warm from one theta to the next."""

    def __init__(
        self, graph: FactorGraph, data: Data, run: FitRun, learner: MeanFieldMinusTrw
    ) -> None:
        self.graph = graph
        self.flat = flatten(graph)
        self.run = run
        self.n_rows = data.n_rows
        self.weights = data.weights / data.total
        self.tol = learner.inner_tol
        self.temperatures = np.ones(learner.inner_max_iter)
        n_states = int(graph.state_offsets[-1])
        run.clock.budget.require_bytes(
            3 * 8 * n_states * data.n_rows,
            f"the mean field of {data.n_rows} distinct rows",
            "use fewer rows, or learner pcd",
        )
        self.order = np.nonzero(data.states < 0)[1].astype(np.uint32)
        per_row = np.count_nonzero(data.states < 0, axis=1)
        self.order_at = np.concatenate([[0], np.cumsum(per_row)]).astype(np.int64)
        tables = np.array(graph.log_tables)
        self.state = HiddenRowState(self._first(data, learner.seed), tables, np.zeros(len(tables)))

    def _first(self, data: Data, seed: int) -> Array:
        """All mass on observed states; hidden variables near uniform, at random."""
        graph = self.graph
        rng = seeds.generator(np.random.SeedSequence([seed, 1]))
        q = 1.0 + 0.1 * rng.random((data.n_rows, int(graph.state_offsets[-1])))
        sums = np.add.reduceat(q, graph.state_offsets[:-1], axis=1)
        q /= np.repeat(sums, graph.cardinalities, axis=1)
        row, v = np.nonzero(data.states >= 0)
        for k in range(int(graph.cardinalities.max(initial=1))):
            inside = graph.cardinalities[v] > k
            place = graph.state_offsets[v[inside]] + k
            q[row[inside], place] = data.states[row[inside], v[inside]] == k
        return q

    def at(self, tables: Array) -> tuple[float, Array]:
        """The mean bound over the rows and the expected counts, at some log-tables."""
        state = self.state
        if not np.isnan(state.q_value) and np.array_equal(state.q_tables, tables):
            return state.q_value, state.q_counts
        from kikuchi.learning.likelihood.kernels import bound as kernels

        flat = self.flat.with_tables(tables.copy())
        bounds, counts = np.empty(self.n_rows), np.zeros(len(tables))
        largest = int(np.diff(self.graph.table_offsets).max(initial=1))
        field = np.empty(int(self.graph.cardinalities.max(initial=1)))
        alive = np.ones(state.q.shape[1], dtype=bool)
        rows = kernels.RowDistributions(state.q, self.weights, self.order_at, self.order, alive)
        scratch = kernels.RowScratch(field, np.empty(largest + 1), np.empty(len(tables)))
        out = kernels.BoundSums(bounds, counts)
        chunk = max(int(_CHUNK / max(len(tables), 1)), 1)
        for begin in range(0, self.n_rows, chunk):
            end = min(begin + chunk, self.n_rows)
            kernels.mean_field_rows(
                flat, rows, self.temperatures, self.tol, begin, end, scratch, out
            )
        state.q_tables, state.q_counts = tables.copy(), counts
        state.q_value = float(self.weights @ bounds)
        return state.q_value, counts
