"""Rows of evidence on one junction tree: queries, predictions, and the clamped phase of learning.

A tree of moderate size runs rows side by side with plain numbers (`kernels.rows`). A large tree,
and every row whose numbers might underflow, goes through the engine of single runs, one row at a
time, which checks the clock between cliques and uses logarithms where it must.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import Array, Ints, offsets_of
from kikuchi.core.budget import Budget, Clock
from kikuchi.core.errors import ImpossibleEvidenceError
from kikuchi.engines.trees.kernels import row_program, rows
from kikuchi.engines.trees.kernels.row_program import RowProgram, RowTables
from kikuchi.engines.trees.kernels.rows import RowCells, RowJob, RowResults
from kikuchi.engines.trees.plan import (
    TreePlan,
    factor_targets,
    joint_target,
    no_targets,
    variable_targets,
)
from kikuchi.engines.trees.row_layout import (
    RowCuts,
    RowLayout,
    RowProgramBuilder,
    States,
)
from kikuchi.engines.trees.shape import MarginalTargets
from kikuchi.engines.trees.tree import Tree
from kikuchi.graphs.factor_graph import FactorGraph

MOST_ENTRIES = 2**18  # of all cliques: a map of each entry is affordable
_BLOCK_ENTRIES = 2**17  # of all cliques and rows of a block: they stay in the cache of a core
_LEAST_ROWS, _MOST_ROWS = 8, 64  # of a block, if there are as many
_LARGE_CLIQUES = 192  # entries on average, from which a single row is better run by itself
_MAPS = 6  # of four bytes for each entry of a clique, about
_BLOCK_BYTES = 3 * 8  # for each entry and row of a block: cliques, messages, numbers by row
_CHUNK = 5e7  # multiply-adds between two looks at the clock
_NONE = np.zeros(0, dtype=np.int64)


def positive_exp(logs: Array) -> Array:
    """exp, with numbers that would underflow to 0 kept above it: only -inf gives 0.

    >>> positive_exp(np.array([-800.0, -np.inf, 0.0])).tolist()
    [5e-324, 0.0, 1.0]
    """
    return np.asarray(np.where(logs > -np.inf, np.maximum(np.exp(logs), row_program.TINY), 0.0))


class LinearTables(NamedTuple):
    """The tables of a model as logarithms, and as plain numbers, each divided by its largest entry.

    `tops` holds the logarithm of that entry for each table, `floors` the smallest positive number.
    A number is 0 only where the table has a zero (see `positive_exp`).
    """

    logs: Array
    values: Array
    tops: Array
    floors: Array

    @classmethod
    def of(cls, graph: FactorGraph, log_tables: Array | None = None) -> LinearTables:
        """The tables of a graph, or others with the same scopes."""
        logs = np.array(graph.log_tables if log_tables is None else log_tables)
        tops, floors = np.empty(graph.n_factors), np.empty(graph.n_factors)
        values = np.empty(len(logs))
        row_program.plain_numbers(logs, graph.table_offsets, values, tops, floors)
        return cls(logs, values, tops, floors)


def clique_entries(plan: TreePlan) -> float:
    """Entries of all cliques; infinite if the search for a tree was given up."""
    return float(plan.tree.clique_size.sum()) if plan.tree is not None else np.inf


def row_bytes(plan: TreePlan) -> int:
    """Memory of the maps of a tree and of a block of rows, where rows run side by side."""
    entries = clique_entries(plan)
    if entries > MOST_ENTRIES:
        return 0
    block = max(_BLOCK_ENTRIES, _LEAST_ROWS * entries)
    return int(_BLOCK_BYTES * block + (8 + 4 * _MAPS) * entries)


class TreeRows:
    """Rows of evidence on one junction tree. It holds maps and tables of the model, but nothing of
    a row.

    Parameters
    ----------
    graph : the model whose scopes count; its tables come with `set_tables`.
    layout : what the rows have in common.
    plan : the tree, as `layout.plan` makes it.
    n_rows : how many rows there will be, if that is known.

    >>> import kikuchi as kk
    >>> from kikuchi.engines.trees.row_layout import RowLayout
    >>> pair = kk.FactorGraph([2, 2], [((0, 1), [[1, 2], [3, 4]])])
    >>> layout = RowLayout(np.array([False, True]), np.array([0, -1]), np.array([0]))
    >>> tree = TreeRows(pair, layout, layout.plan(pair))
    >>> tree.set_tables(LinearTables.of(pair))
    >>> log_z, out = tree.marginals(np.array([[0], [1]], np.int32), np.zeros((2, 0)))
    >>> np.exp(log_z).round(6).tolist(), out.round(6).tolist()
    ([3.0, 7.0], [[0.333333, 0.666667], [0.428571, 0.571429]])
    """

    def __init__(
        self, graph: FactorGraph, layout: RowLayout, plan: TreePlan, n_rows: int | None = None
    ) -> None:
        self.graph, self.layout = graph, layout
        entries = clique_entries(plan)
        self.side_by_side = entries <= MOST_ENTRIES  # maps are affordable
        if self.side_by_side and n_rows == 1:
            self.side_by_side = entries <= _LARGE_CLIQUES * plan.found_tree.n_nodes
        self._plan: TreePlan | None = plan
        self._program: RowProgram | None = None
        self._cut_factors = _NONE  # in the order of the program
        self._base: _Base | None = None
        self._single: Tree | None = None  # for rows that are run one at a time

    @property
    def plan(self) -> TreePlan:
        """The tree; made again if it was forgotten."""
        if self._plan is None:
            self._plan = self.layout.plan(self.graph)
        return self._plan

    def forget_plan(self) -> None:
        """Keep the maps only: there may be thousands of trees."""
        if self.side_by_side:
            self._prepared()
            self._plan = None

    def set_tables(self, tables: LinearTables) -> None:
        """Use these tables of the model."""
        self.tables = tables
        self._base = None

    def replace_cut_tables(self, tables: LinearTables) -> None:
        """The same where only tables with observed variables have changed."""
        self.tables = tables

    # ------------------------------------------------------------------ answers

    def marginals(
        self,
        states: States,
        log_weights: Array,
        clock: Clock | None = None,
        *,
        logs: bool = False,
    ) -> tuple[Array, Array]:
        """log Z of each row, -inf where it is impossible, and what the layout reads.

        Each target sums to 1; with `logs` the answers are logarithms of that, which do not
        underflow. `log_weights` have a column for each state of each weighted variable.
        """
        n, (places, sizes) = len(states), self._target_places
        log_z, status = np.empty(n), np.full(n, rows.MARKED, dtype=np.int64)
        out = np.zeros((n, int(sizes.sum())))
        scaled, tops = self._scaled(log_weights)
        cells = RowCells(states, positive_exp(scaled), np.zeros(0))
        answers = RowResults(log_z, status, out, np.zeros(0), np.zeros(0))
        if self.side_by_side and n:
            log_z += self._run_blocks(cells, answers, rows.TARGETS, logs)
            rows.normalise_rows(out, 0, n, places, sizes)
        if logs:
            with np.errstate(divide="ignore"):
                out = np.log(out)
        marked = np.flatnonzero(status == rows.MARKED).tolist()
        tree = Tree(self.plan, clock or _unlimited(), reuse=True) if marked else None
        for row in marked:
            assert tree is not None
            tree.set_tables(self._filled(states[row], scaled[row]))
            log_z[row] = self._read_carefully(tree, out[row], logs)
        return log_z + tops, out

    def counts(
        self,
        states: States,
        weights: Array,
        counts: Array | None,
        watch: Callable[[], None],
    ) -> Array:
        """log Z of each row, -inf where it is impossible; adds the expected counts of the factors'
        states to `counts`, each row by its weight.

        `watch` is called several times a second.
        """
        n = len(states)
        log_z, status = np.empty(n), np.full(n, rows.MARKED, dtype=np.int64)
        if self.side_by_side and n:
            sums = np.zeros(0 if counts is None else int(self._prepared().clique_at[-1]))
            into = np.zeros(0) if counts is None else counts
            answers = RowResults(log_z, status, np.zeros((0, 0)), sums, into)
            cells = RowCells(states, np.zeros((n, 0)), weights)
            read = rows.NOTHING if counts is None else rows.COUNTS
            log_z += self._run_blocks(cells, answers, read, False, watch)
        for row in np.flatnonzero(status == rows.MARKED).tolist():
            log_z[row] = self._count_carefully(states[row], float(weights[row]), counts)
            watch()
        if self.side_by_side:
            self._single = None
        return log_z

    def best(self, states: States, log_weights: Array, clock: Clock) -> tuple[Ints, Array] | None:
        """The most probable state of the open variables in one row and the logarithms of their
        max-marginals, each with a largest entry of 0; None if the row is impossible.
        """
        if not len(self.layout.open):
            return np.zeros(0, dtype=np.int64), np.zeros(0)
        tree = Tree(self.plan, clock)
        tree.set_tables(self._filled(states, log_weights))
        try:
            found = tree.run(variable_targets, mode="max")
        except ImpossibleEvidenceError:
            return None
        assert found.state is not None  # mode="max" finds it
        return found.state, found.log_out

    # ------------------------------------------------------------------ side by side

    def _run_blocks(
        self,
        cells: RowCells,
        answers: RowResults,
        read: int,
        strict: bool,
        watch: Callable[[], None] = lambda: None,
    ) -> float:
        """Rows side by side; answers what is to be added to their log Z."""
        program, tables, base = self._prepared(), self.tables, self._base
        entries, n = max(int(program.clique_at[-1]), 1), len(cells.states)
        block = min(max(_BLOCK_ENTRIES // entries, _LEAST_ROWS), _MOST_ROWS, n)
        chunk = block * max(int(_CHUNK / (entries * _MAPS * block)), 1)
        products = base or _Base(np.empty(entries), np.empty(len(program.parent)), 0.0)
        floors = tables.floors[self._cut_factors]
        plain = RowTables(tables.logs, *products[:2], tables.values, floors)
        job = RowJob(block, read, base is None, strict)
        for begin in range(0, n, chunk):
            added = rows.run_rows(program, plain, cells, begin, min(begin + chunk, n), job, answers)
            if job.fill:
                self._base = products = products._replace(added=added)
                job = job._replace(fill=False)
            watch()
        return products.added + float(tables.tops[self._cut_factors].sum())

    def _prepared(self) -> RowProgram:
        """The maps, written down when they are first needed."""
        if self._program is None:
            builder = RowProgramBuilder(self.graph, self.layout, self.plan.found_tree)
            self._cut_factors = builder.cut_factors
            self._program = builder.program()
        return self._program

    @cached_property
    def _target_places(self) -> tuple[Ints, Ints]:
        """Where each target begins in an answer, and its size."""
        cards = self.graph.cardinalities.astype(np.int64)
        sizes = cards[self.layout.open]
        if self.layout.read == "joint":
            sizes = np.array([int(np.prod(cards[list(self.layout.together)], initial=1))])
        return offsets_of(sizes)[:-1], sizes

    def _scaled(self, log_weights: Array) -> tuple[Array, Array]:
        """The log-weights, those of each variable with a largest entry of 0, and of each row what
        was taken off.
        """
        if not len(self.layout.weighted):
            return log_weights, np.zeros(len(log_weights))
        sizes = self.graph.cardinalities[self.layout.weighted].astype(np.int64)
        tops = np.maximum.reduceat(log_weights, offsets_of(sizes)[:-1], axis=1)
        finite = np.where(tops > -np.inf, tops, 0.0)
        return log_weights - np.repeat(finite, sizes, axis=1), tops.sum(axis=1)

    # ------------------------------------------------------------------ one at a time

    @cached_property
    def _cuts(self) -> RowCuts:
        return RowCuts.of(self.graph, self.layout, self.plan.graph)

    def _filled(self, states: States, log_weights: Array) -> Array:
        """Log-tables of the template at one row."""
        cut = self.tables.logs[self._cuts.at(states)]
        if len(cut) == self.plan.graph.log_tables.size:
            return cut
        cards = self.graph.cardinalities
        masks = [np.zeros(int(cards[v])) for v in self.layout.seen]
        for mask, v in zip(masks, self.layout.seen.tolist(), strict=True):
            state = int(states[self.layout.column[v]])
            if state >= 0:
                mask[np.arange(len(mask)) != state] = -np.inf
        found = np.concatenate([cut, *masks, log_weights])
        rest = self.plan.graph.log_tables.size - len(found)
        return np.concatenate([found, np.zeros(rest)])

    def _read_carefully(self, tree: Tree, out: Array, logs: bool) -> float:
        """Run one row by itself, with a look for underflow."""
        template = self.plan.graph
        if not template.n_factors:
            sizes = self._target_places[1]
            even = np.repeat(1.0 / sizes, sizes)
            out[:] = np.log(even) if logs else even
            return float(np.log(template.cardinalities).sum())
        try:
            found = tree.run(self._targets, logs=logs, distribute=self._reads)
        except ImpossibleEvidenceError:
            out[:] = -np.inf if logs else 0.0
            return -np.inf
        size = int(found.targets.sizes.sum())  # none where all asked variables have one state
        out[:size] = found.log_probabilities if logs else found.out
        return found.log_z

    def _count_carefully(self, states: States, weight: float, counts: Array | None) -> float:
        """The same for the expected counts of one row."""
        if self._single is None:
            self._single = Tree(self.plan, _unlimited(), reuse=True)
        self._single.set_tables(self._filled(states, np.zeros(0)))
        try:
            if counts is None:
                found = self._single.run(no_targets, distribute=False)
            else:
                found = self._single.run(factor_targets)
        except ImpossibleEvidenceError:
            return -np.inf
        if counts is not None:
            places = self._cuts.at(states)
            counts[places] += weight * found.out[: len(places)]
        return found.log_z

    @property
    def _reads(self) -> bool:
        """Whether anything is read besides log Z."""
        return self.layout.read == "variables" or len(self.layout.together) > 0

    def _targets(self, plan: TreePlan) -> MarginalTargets:
        if self.layout.read == "variables":
            return variable_targets(plan)
        numbers = self.layout.number[list(self.layout.together)].tolist()
        if not numbers:
            return no_targets(plan)
        tree = plan.found_tree
        return joint_target(plan, numbers, int(tree.home[tree.rank[numbers].max()]))


def _unlimited() -> Clock:
    return Budget(bytes=None).start()


class _Base(NamedTuple):
    """The products of the whole factors of each clique, bounds on their smallest positive entries,
    and the logarithm of what was taken off.
    """

    values: Array
    floors: Array
    added: float
