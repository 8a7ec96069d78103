"""Many cases by belief propagation on one graph: rows run side by side and leave as they converge.

Each row takes the steps that `bp` would take on the whole graph with the row's evidence; what a row
answers does not depend on the others. Rows whose numbers leave the range of probabilities, and
those that a state of positive weight was not found for, are left to a run of their own.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from kikuchi.core.arrays import Array, Ints, Mask
from kikuchi.core.budget import Clock
from kikuchi.core.errors import BudgetError
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.belief_propagation import BeliefPropagation, forest_passes
from kikuchi.methods.method import Method
from kikuchi.queries.kernels import message_rows as kernels
from kikuchi.queries.kernels.message_rows import RowGraph, RowState
from kikuchi.queries.patterns import States

_BLOCK_ENTRIES = 2**16  # of messages and rows of a block: they stay in the cache of a core
_FEWEST_ROWS, _MOST_ROWS = 8, 64
_TABLE_FLOOR = 1e-100  # smallest positive entry of a table whose largest is 1
_PRODUCT_EXPONENT = 200.0  # products of messages into a factor stay above 10 to minus this
_STILL = 100.0  # times the tolerance: how far a belief may move in a sweep without damping


def takes(method: Method, graph: FactorGraph) -> bool:
    """Whether rows of this method can run side by side: `bp` with its own schedule and damping.

    >>> takes(BeliefPropagation(damping=0.5), FactorGraph([2], [((0,), [1, 2])]))
    True
    """
    return (
        isinstance(method, BeliefPropagation)
        and method.schedule == "sequential"
        and method.mode == "sum"
        and method.damping_kind == "linear"
        and method.damping_end is None
        and not method.trace_energy
        and graph.n_factors > 0
    )


@dataclass
class RowAnswers:
    """For each row: log Z, flat marginals, whether it converged, and whether it was not
    finished.
    """

    log_z: Array
    marginals: Array
    converged: Mask
    left: Mask


class MessageRows:
    """The tables and offsets of a graph that all rows share.

    >>> pair = FactorGraph([2, 2], [((0, 1), [[1, 2], [3, 4]])])
    >>> rows = MessageRows(pair, BeliefPropagation())
    >>> from kikuchi.core.budget import Budget
    >>> found = rows.solve([0], np.array([[0], [1]], dtype=np.int32), Budget().start())
    >>> found.marginals[:, 2:].round(6).tolist(), found.converged.tolist()
    ([[0.333333, 0.666667], [0.428571, 0.571429]], [True, True])
    """

    def __init__(self, graph: FactorGraph, method: BeliefPropagation) -> None:
        self.graph, self.method = graph, method
        tops = np.maximum.reduceat(graph.log_tables, graph.table_offsets[:-1])
        sizes = np.diff(graph.table_offsets)
        tables = np.exp(graph.log_tables - np.repeat(tops, sizes))
        self.constant = float(tops.sum()) + graph.log_constant
        self.in_range = not bool(
            ((tables < _TABLE_FLOOR) & (graph.log_tables > -np.inf)).any() or tops.min() == -np.inf
        )
        order = int(np.diff(graph.scope_offsets).max())
        fields: list[Any] = [
            np.ascontiguousarray(array, dtype=np.int64)
            for array in (
                graph.scope_offsets,
                graph.table_offsets,
                graph.message_offsets,
                graph.variable_offsets,
                graph.variable_edges,
                graph.edge_factors,
                graph.scopes,
                graph.state_offsets,
            )
        ]
        floor = 10.0 ** (-_PRODUCT_EXPONENT / max(order - 1, 2))
        self.shared = RowGraph(*[*fields, tables, floor])
        self.positive = bool((graph.log_tables > -np.inf).all())

    def solve(self, variables: list[int], states: States, clock: Clock) -> RowAnswers:
        """Run all rows; `states` has a column for each of `variables`, -1 where it is unknown."""
        n, width = len(states), int(self.graph.state_offsets[-1])
        answers = RowAnswers(
            np.zeros(n), np.zeros((n, width)), np.zeros(n, dtype=bool), np.ones(n, dtype=bool)
        )
        if not self.in_range:
            return answers
        entries = max(int(self.graph.message_offsets[-1]), 1)
        most = min(max(_BLOCK_ENTRIES // entries, _FEWEST_ROWS), _MOST_ROWS)
        for first in range(0, n, most):
            if clock.expired:
                raise _late(first, n, clock)
            rows = np.arange(first, min(first + most, n))
            block = _Block(self, variables, states[rows], rows, answers)
            block.run(clock, n)
        if not self.positive:
            answers.left |= ~self._witnessed(answers)
        return answers

    def _witnessed(self, answers: RowAnswers) -> Mask:
        """Rows whose most probable states, one by one, have a positive weight together."""
        graph = self.graph
        states = np.stack(
            [
                answers.marginals[:, begin:end].argmax(axis=1)
                for begin, end in itertools.pairwise(graph.state_offsets.tolist())
            ],
            axis=1,
        )
        seen: Mask = np.array([graph.log_score(row) > -np.inf for row in states], dtype=bool)
        return seen


class _Block:
    """Some rows on their way; those that have converged are written down and taken out."""

    def __init__(
        self,
        owner: MessageRows,
        variables: list[int],
        states: States,
        rows: Ints,
        answers: RowAnswers,
    ) -> None:
        self.owner, self.answers = owner, answers
        self.g, self.method = owner.shared, owner.method
        self.rows = rows
        graph = owner.graph
        self.order = np.arange(graph.n_variables, dtype=np.int64)
        seen = np.ones((int(graph.state_offsets[-1]), len(rows)))
        for k, v in enumerate(variables):
            known = np.flatnonzero(states[:, k] >= 0)
            begin, end = graph.state_offsets[v], graph.state_offsets[v + 1]
            seen[begin:end, known] = 0.0
            seen[begin + states[known, k], known] = 1.0
        shape = int(graph.message_offsets[-1]), len(rows)
        self.s = self._workspace(np.empty(shape), np.empty(shape), seen)
        kernels.start(self.g, self.s, len(rows))

    def _workspace(self, m: Array, nu: Array, seen: Array) -> RowState:
        most = int(self.owner.graph.cardinalities.max())
        width = seen.shape[1]
        work = (np.empty((most, width)), np.empty((most, width)))
        marked = np.zeros(width, dtype=bool)
        return RowState(m, nu, seen, marked, *work, np.empty(width), np.empty(width))

    def run(self, clock: Clock, total: int) -> None:
        """Sweep until every row has converged or the iterations are over."""
        limit = clock.iterations(self.method.max_iter)
        for done in range(1, limit + 1):
            residual = self.sweep(self.order, self.method.damping)
            small = (residual <= self.method.tol) & (self.method.tol > 0) & ~self.s.marked
            self.finish(small, done == limit)
            self.keep(~self.s.marked)
            if not len(self.rows):
                return
            if clock.expired:
                raise _late(int((~self.answers.left).sum()), total, clock)

    def sweep(self, order: Ints, damping: float) -> Array:
        """Make one sweep of all rows; return the largest change of each."""
        residual = np.empty(len(self.rows))
        kernels.sweep(self.g, self.s, order, damping, len(self.rows), residual)
        return residual

    def finish(self, small: Mask, last: bool) -> None:
        """Write down the rows whose messages changed little, if a sweep without damping leaves
        their beliefs as they are; after the last sweep all of them.
        """
        chosen = ~self.s.marked if last else small
        if not chosen.any():
            return
        part = self.part(chosen)
        before = part.marginals()
        part.sweep(self.order, 0.0)
        moved = np.abs(part.marginals() - before).max(axis=0, initial=0.0)
        settled = small[chosen] & (moved <= _STILL * self.method.tol)
        self.s.m[:, chosen], self.s.nu[:, chosen] = part.s.m, part.s.nu
        ready = (settled | last) & ~part.s.marked
        if ready.any():
            part.part(ready).write(settled[ready])
        self.s.marked[np.flatnonzero(chosen)[ready | part.s.marked]] = True  # out of the block

    def write(self, converged: Mask) -> None:
        """Write the answers of all rows."""
        graph = self.owner.graph
        if graph.is_forest:  # if the result is exact, small changes do not prove convergence
            for order in itertools.islice(forest_passes(graph), 2):
                self.sweep(order.astype(np.int64), 0.0)
        marginals, energy = self.marginals(), np.empty(len(self.rows))
        kernels.bethe_energy(self.g, self.s, marginals, len(self.rows), energy)
        good = ~self.s.marked
        rows, answers = self.rows[good], self.answers
        answers.log_z[rows] = self.owner.constant - energy[good]
        answers.marginals[rows] = marginals[:, good].T
        answers.converged[rows] = converged[good]
        answers.left[rows] = False

    def marginals(self) -> Array:
        """Marginals of all variables in each row."""
        out = np.empty((int(self.owner.graph.state_offsets[-1]), len(self.rows)))
        kernels.beliefs(self.g, self.s, len(self.rows), out)
        return out

    def part(self, chosen: Mask) -> _Block:
        """Some of the rows, by copies of their messages."""
        block: _Block = object.__new__(_Block)
        block.owner, block.answers = self.owner, self.answers
        block.g, block.method, block.order = self.g, self.method, self.order
        block.rows = self.rows[chosen]
        arrays = (np.ascontiguousarray(x[:, chosen]) for x in (self.s.m, self.s.nu, self.s.seen))
        block.s = block._workspace(*arrays)
        return block

    def keep(self, chosen: Mask) -> None:
        """Go on with some of the rows only."""
        if not chosen.all():
            part = self.part(chosen)
            self.rows, self.s = part.rows, part.s


def _late(done: int, total: int, clock: Clock) -> BudgetError:
    return BudgetError(
        f"{done} of {total} distinct cases were completed when the "
        f"{clock.budget.seconds:g} seconds were over; allow more seconds or request fewer cases"
    )
