"""The clamped phase: log Z and expected counts given each row, the missing cells summed out.

Rows that miss the same variables share one junction tree of those variables, and rows that also
agree on everything that touches them share one propagation. All of that runs in one compiled loop.
Where patterns of missing cells are many, one tree of all variables that are ever missing serves
them together if that is cheaper. log Z given a row less log Z is the log-likelihood of
what the row observes.

Reference: LIU-L5, LIU-M11.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, partial
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.core import parallel
from kikuchi.core.arrays import Array, Ints, Mask
from kikuchi.core.budget import Budget, RunLimits, limits, named_limits
from kikuchi.core.errors import BudgetError, DataError, ImpossibleEvidenceError, MethodError
from kikuchi.core.numerics import xlogy
from kikuchi.engines.trees.plan import ADVICE
from kikuchi.engines.trees.rows import LinearTables, row_bytes
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.data import Data
from kikuchi.learning.likelihood.clamped_tree import MissingnessPattern, RowGroup, Watch
from kikuchi.methods.beliefs import Beliefs
from kikuchi.methods.method import Method
from kikuchi.methods.registry import parse_method

_EVALUATIONS = 20  # how often a tree is expected to be used
_SECONDS_PER_PLAN = 1e-3
_BYTES_PER_PLAN = 40_000  # measured: lists and small objects
_SECONDS_PER_CALL = 4e-5  # of the loop over rows of one tree
_SECONDS_PER_CLIQUE = 1e-6  # in each block of rows
_SECONDS_PER_OPERATION = 3e-10  # of a multiply-add, in each row
_SECONDS_PER_NODE = 2e-8
_BLOCK = 64  # rows, about
_MOST_OPERATIONS = 2e10  # of an exact phase that nobody asked for: about twenty seconds
_SAMPLED = 8  # patterns whose trees are priced before all of them are built


@named_limits
def clamped_log_z(
    graph: FactorGraph,
    data: Data | ArrayLike,
    **within: Unpack[RunLimits],
) -> Array:
    """log Z of each row with its missing cells summed out, exactly; -inf for impossible rows.

    Parameters
    ----------
    graph : the model.
    data : rows of states, -1 where one is missing.
    budget, seconds, memory : limits of the run: a budget, or seconds and memory.

    >>> pair = FactorGraph([2, 2], [((0, 1), [[1, 2], [3, 4]])])
    >>> np.exp(clamped_log_z(pair, [[0, -1], [-1, 1], [1, 1], [-1, -1]])).round(9).tolist()
    [3.0, 6.0, 4.0, 10.0]
    """
    rows = Data.of(data, graph)
    allowed = limits(**within)
    return ClampedRows(graph, rows, budget=allowed).log_z(graph.log_tables) + graph.log_constant


@named_limits
def clamped_statistics(
    graph: FactorGraph,
    data: Data | ArrayLike,
    *,
    inference: str | Method | None = None,
    processes: int = 1,
    **within: Unpack[RunLimits],
) -> tuple[float, Array]:
    """Mean over rows of log Z(row), and expected counts of every factor's states.

    The counts are laid out as `graph.log_tables` and add up to the total weight in each factor.

    Parameters
    ----------
    graph : the model.
    data : rows of states, -1 where one is missing.
    budget, seconds, memory : limits of the run: a budget, or seconds and memory.
    inference : a method for each distinct row; exact, all rows together, without one.
    processes : worker processes that share the runs of `inference`.

    >>> pair = FactorGraph([2, 2], [((0, 1), [[1, 2], [3, 4]])])
    >>> clamped_statistics(pair, [[0, -1], [1, 1]])[1].round(6).tolist()
    [0.333333, 0.666667, 0.0, 1.0]
    """
    rows = Data.of(data, graph)
    allowed = limits(**within)
    if inference is None:
        mean, counts = ClampedRows(graph, rows, budget=allowed).statistics(graph.log_tables)
        return mean + graph.log_constant, counts
    method = parse_method(inference) if isinstance(inference, str) else inference
    run = partial(run_method, method, allowed)
    mean, counts = ClampedRuns(rows.distinct(), run, processes=processes).statistics(graph)
    if np.isnan(mean):
        raise MethodError(f"{method.text} gives no log Z, which the clamped phase needs; use bp")
    return mean, counts


# ---------------------------------------------------------------------- exact


class ClampedRows:
    """Trees for the rows of some data on the scopes of a graph; tables may change from call to
    call.

    `watch` is called several times a second, so that a caller can stop a long phase by raising.
    """

    def __init__(
        self,
        graph: FactorGraph,
        data: Data,
        *,
        budget: Budget | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.graph = graph
        self.data = _with_single_states(data)
        self.budget = budget or Budget()
        self.watch = watch or (lambda: None)
        patterns = _patterns(graph, self.data, self.budget)
        plans = [pattern.plan for pattern in patterns if pattern.plan is not None]
        widest = max((plan.width for plan in plans), default=0)
        self.budget.require_bytes(
            sum(plan.bytes + row_bytes(plan) + _BYTES_PER_PLAN for plan in plans),
            f"the clamped junction trees ({len(plans)}, width {widest})",
            ADVICE,
        )
        self.groups = [RowGroup(graph, self.data, pattern, self.budget) for pattern in patterns]

    @cached_property
    def fixed_counts(self) -> Array:
        """Counts of factors whose variables are all observed, which no parameter changes."""
        return self._fixed_counts(self.data.weights)

    def _fixed_counts(self, weights: Array) -> Array:
        counts = np.zeros(self.graph.log_tables.size)
        for group in self.groups:
            group.add_fixed_counts(counts, weights)
        return counts

    def log_z(self, log_tables: Array) -> Array:
        """log Z of each row, without the graph's constant."""
        tables = LinearTables.of(self.graph, log_tables)
        out = np.empty(self.data.n_rows)
        for group in self.groups:
            values = group.run(tables, np.full(len(group.unique), 1.0), None, self.watch)
            out[group.rows] = values[group.inverse] + group.fixed_scores(tables.logs)
        return out

    def statistics(self, log_tables: Array, rows: Ints | None = None) -> tuple[float, Array]:
        """Mean of log Z over the rows, and the expected counts of the factors' states.

        `rows` names the few that count this time.
        """
        tables = LinearTables.of(self.graph, log_tables)
        weights = self.data.weights
        if rows is not None:
            weights = np.zeros(self.data.n_rows)
            weights[rows] = self.data.weights[rows]
        counts = self.fixed_counts.copy() if rows is None else self._fixed_counts(weights)
        total = float(xlogy(counts, tables.logs).sum())
        for group in self.groups:
            if group.tree is not None or group.loose:
                here = weights[group.rows]
                merged = np.bincount(group.inverse, here, len(group.unique)).astype(np.float64)
                values = group.run(tables, merged, counts, self.watch)
                total += float(merged @ values)
        if total == -np.inf:
            values = self.log_z(tables.logs)
            bad = np.flatnonzero(np.isneginf(values) & (self.data.weights > 0))
            raise impossible_row(int(bad[0]))
        return total / float(weights.sum()), counts

    @property
    def price(self) -> float:
        """Multiply-adds of one call of `statistics`."""
        return sum(group.price for group in self.groups)


def impossible_row(row: int) -> DataError:
    """The error for a row that no completion makes possible."""
    return DataError(
        f"data: row {row} is impossible: the model gives every completion of it weight zero, and "
        "zeros stay zero; correct the row or the tables"
    )


def _with_single_states(data: Data) -> Data:
    """Variables with one state are always seen."""
    single = data.cardinalities == 1
    if not np.any(data.states[:, single] < 0):
        return data
    states = data.states.copy()
    states[:, single] = 0
    return data.like(states, data.weights)


# ---------------------------------------------------------------------- which rows share a tree


def _patterns(graph: FactorGraph, data: Data, budget: Budget) -> list[MissingnessPattern]:
    """One tree for each pattern of missing cells, or one for all patterns, as is cheaper."""
    if data.complete:
        none = np.zeros(data.n_variables, dtype=bool)
        return [MissingnessPattern.of(graph, np.arange(data.n_rows), none, none)]
    grouped = [(~np.isin(np.arange(data.n_variables), seen), r) for seen, r in data.patterns()]
    complete = [
        MissingnessPattern.of(graph, r, gaps, gaps) for gaps, r in grouped if not gaps.any()
    ]
    incomplete = [(gaps, r) for gaps, r in grouped if gaps.any()]
    together = _together(graph, incomplete, budget) if len(incomplete) > 1 else None
    if together is not None:
        return [*complete, together]
    return [*complete, *(MissingnessPattern.of(graph, r, gaps, gaps) for gaps, r in incomplete)]


def _together(
    graph: FactorGraph, patterns: list[tuple[Mask, Ints]], budget: Budget
) -> MissingnessPattern | None:
    """One tree for all patterns if it fits and costs less than one for each."""
    gaps = np.array([gap for gap, _ in patterns])
    rows = np.concatenate([rows for _, rows in patterns])
    ever, always = np.logical_or.reduce(gaps), np.logical_and.reduce(gaps)
    together = MissingnessPattern.of(graph, rows, ever, always)
    plan = together.plan
    if plan is None:
        return together
    if not plan.complete or (budget.bytes is not None and plan.bytes > budget.bytes):
        return None
    picked = patterns[:: max(len(patterns) // _SAMPLED, 1)]
    alone = [_seconds(MissingnessPattern.of(graph, r, gap, gap)) for gap, r in picked]
    separate = len(patterns) * (_SECONDS_PER_PLAN + _EVALUATIONS * float(np.mean(alone)))
    return together if _EVALUATIONS * _seconds(together) <= separate else None


def _seconds(pattern: MissingnessPattern) -> float:
    """Rough time of the rows of a pattern."""
    plan, n_rows = pattern.plan, len(pattern.rows)
    if plan is None:
        return 0.0
    if not plan.complete:
        return np.inf
    nodes = plan.found_tree.n_nodes
    blocks = _SECONDS_PER_CALL + _SECONDS_PER_CLIQUE * nodes * math.ceil(n_rows / _BLOCK)
    each = _SECONDS_PER_OPERATION * plan.operations + _SECONDS_PER_NODE * nodes
    return blocks + n_rows * each


# ---------------------------------------------------------------------- by any method


Runner = Callable[[FactorGraph, dict[int, int]], Beliefs]
_RowAnswer = tuple[float, Array]


class ClampedRuns:
    """The same by runs of an inference method, one for each row: exact only if the method is."""

    def __init__(self, data: Data, run: Runner, *, processes: int = 1) -> None:
        self.data = data
        self.run = run
        self.processes = processes

    def statistics(self, graph: FactorGraph, rows: Ints | None = None) -> tuple[float, Array]:
        """Mean estimate of log Z over the rows, and the counts that the beliefs expect."""
        chosen = np.arange(self.data.n_rows) if rows is None else rows
        job = partial(_run_row, graph, self.run)
        items = [(int(r), self.data.states[r]) for r in chosen]
        if self.processes > 1:
            answers: list[_RowAnswer] = parallel.map(job, items, processes=self.processes).values()
            if len(answers) < len(items):
                raise KeyboardInterrupt
        else:
            answers = [job(item) for item in items]
        counts = np.zeros(graph.log_tables.size)
        total = 0.0
        weights = self.data.weights[chosen]
        for weight, (log_z, tables) in zip(weights, answers, strict=True):
            counts += weight * tables
            total += weight * log_z
        return total / float(weights.sum()), counts


def _run_row(graph: FactorGraph, run: Runner, row: tuple[int, NDArray[np.int32]]) -> _RowAnswer:
    number, states = row
    evidence = {int(v): int(states[v]) for v in np.flatnonzero(states >= 0)}
    try:
        beliefs = run(graph, evidence)
    except ImpossibleEvidenceError:
        raise impossible_row(number) from None
    return float("nan") if beliefs.log_z is None else beliefs.log_z, beliefs.flat_factors


def run_method(
    method: Method, budget: Budget, graph: FactorGraph, evidence: dict[int, int]
) -> Beliefs:
    """One run of a method; Ctrl-C is passed on."""
    beliefs = method.run(graph, evidence=evidence, budget=budget)
    if beliefs.stopped == "interrupted":
        raise KeyboardInterrupt
    return beliefs


def feasible(graph: FactorGraph, data: Data, budget: Budget, watch: Watch) -> ClampedRows | None:
    """The exact clamped phase if its trees fit the memory and take seconds, else None."""
    try:
        rows = ClampedRows(graph, data, budget=budget, watch=watch)
    except BudgetError:
        return None
    return rows if rows.price <= _MOST_OPERATIONS else None
