"""One junction tree for all evidence of one pattern.

A tree of moderate size runs rows side by side (`kernels.evidence_rows`) with plain numbers. A large
tree, and every row whose numbers might underflow, goes through the engine of `inference.trees`, one
row at a time, which checks the clock between cliques and uses logarithms where it must.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array, Ints, Mask, offsets_of
from kikuchi.core.budget import Budget, Clock
from kikuchi.core.errors import ImpossibleEvidenceError
from kikuchi.engines.kernels.tables import project
from kikuchi.engines.small_work import loops_for, loops_for_rows
from kikuchi.engines.tables import strides
from kikuchi.engines.trees.engine import Watch, propagate
from kikuchi.engines.trees.plan import (
    TreePlan,
    joint_target,
    make_plan,
    no_targets,
    variable_targets,
)
from kikuchi.engines.trees.shape import MarginalTargets
from kikuchi.graphs.conditioned import Conditioned
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.query.kernels.evidence_rows import (
    DEAD,
    GOOD,
    MARKED,
    RowProgram,
    answer_rows,
    normalise_rows,
)
from kikuchi.query.patterns import EvidencePattern, PatternEngine, States, log_of

_MOST_ENTRIES = 2**18  # of all cliques: a map of each entry is affordable
_BLOCK_ENTRIES = 2**15  # of all cliques and rows of a block: they stay in the cache of a core
_MOST_ROWS = 64
_SAFE_EXPONENT = 280.0  # products of operands stay above 10 to minus this
_TINY = 5e-324  # stands for every positive number that a float cannot hold
_DEFAULT_SECONDS = 60.0  # of a tree that is propagated where no limit was given


def positive_exp(logs: Array) -> Array:
    """exp, with numbers that would underflow to 0 kept above it: only -inf gives 0.

    Rows with such numbers are marked, and then computed with logarithms.

    >>> positive_exp(np.array([-800.0, -np.inf, 0.0])).tolist()
    [5e-324, 0.0, 1.0]
    """
    return np.asarray(np.where(logs > -np.inf, np.maximum(np.exp(logs), _TINY), 0.0))


class LinearTables(NamedTuple):
    """Tables as plain numbers, each divided by its largest entry, whose logarithm is in `tops`.

    An entry is 0 only where the table has a zero (see `positive_exp`).
    """

    values: Array
    tops: Array

    @classmethod
    def of(cls, graph: FactorGraph) -> LinearTables:
        """The tables of a graph."""
        if not graph.n_factors:
            return cls(np.zeros(0), np.zeros(0))
        tops = np.maximum.reduceat(graph.log_tables, graph.table_offsets[:-1])
        sizes = np.diff(graph.table_offsets)
        return cls(positive_exp(graph.log_tables - np.repeat(tops, sizes)), tops)


class _CutTables(NamedTuple):
    """Where the entries of all cut tables are among the flat tables of a graph: the place of each
    where observed variables are in state 0, the factor it belongs to, and the edges to observed
    variables with their factors, strides and columns in a row.
    """

    places: Ints
    factors: Ints
    edge_factors: Ints
    strides: Ints
    columns: Ints

    @classmethod
    def of(cls, owner: PatternEngine) -> _CutTables:
        """The cuts of a pattern."""
        graph = owner.graph
        places: list[Ints] = [np.zeros(0, dtype=np.int64)]
        edges: list[tuple[int, int]] = []
        for k, a in enumerate(owner.cut.tolist()):
            own = np.full((), graph.table_offsets[a], dtype=np.int64)
            for e in range(int(graph.scope_offsets[a]), int(graph.scope_offsets[a + 1])):
                v = int(graph.scopes[e])
                if owner.is_open[v]:
                    own = np.add.outer(
                        own, graph.edge_strides[e] * np.arange(graph.cardinalities[v])
                    )
                elif owner.column[v] >= 0:
                    edges.append((k, e))
            places.append(own.ravel())
        of, seen = np.array(edges, dtype=np.int64).reshape(-1, 2).T
        return cls(
            np.concatenate(places),
            np.repeat(np.arange(len(owner.cut)), [p.size for p in places[1:]]),
            of,
            graph.edge_strides[seen].astype(np.int64),
            owner.column[graph.scopes[seen]],
        )

    def tables(self, log_tables: Array, states: States) -> Array:
        """Log-tables of all cut factors at the observed states of one row."""
        if not len(self.columns):
            return np.asarray(log_tables[self.places])
        shifts = np.zeros(int(self.factors.max()) + 1, dtype=np.int64)
        np.add.at(shifts, self.edge_factors, self.strides * states[self.columns])
        return np.asarray(log_tables[self.places + shifts[self.factors]])


class PatternTree(PatternEngine):
    """The plan and the maps of one evidence pattern; it holds no table of a row."""

    def __init__(
        self, graph: FactorGraph, linear: LinearTables, pattern: EvidencePattern, clock: Clock
    ) -> None:
        super().__init__(graph, pattern)
        self.linear = linear
        template = self._template(self.is_open)
        everything = np.arange(template.n_variables), np.arange(template.n_factors)
        with loops_for(graph):
            self.plan = make_plan(
                Conditioned(template, template, {}, *everything), "cheapest", None, clock, uses=4
            )
        self.side_by_side = self.entries <= _MOST_ENTRIES  # whether maps are affordable
        self._program: RowProgram | None = None
        self._log_base = 0.0  # of the products of constant tables
        self._least = 0.0  # operands of at least this size cannot make a product that underflows

    @property
    def entries(self) -> float:
        """Entries of all cliques; infinite if the search for a tree was given up."""
        return float(self.plan.tree.clique_size.sum()) if self.plan.tree is not None else np.inf

    @property
    def many_rows_are_cheap(self) -> bool:
        """Whether rows run side by side."""
        return self.side_by_side

    def affordable(self, budget: Budget) -> bool:
        """Whether a row fits the memory and the time of a budget."""
        if self.side_by_side:
            return True
        if not self.plan.complete or (budget.bytes is not None and self.plan.bytes > budget.bytes):
            return False
        limit = _DEFAULT_SECONDS if budget.seconds is None else 0.5 * budget.seconds
        return self.plan.seconds() <= limit

    def refill(self, graph: FactorGraph) -> None:
        """Use the tables of another graph with the same scopes."""
        self.graph, self.linear = graph, LinearTables.of(graph)

    def _template(self, is_open: Mask) -> FactorGraph:
        """The reduced graph: cut factors, one factor of each weighted variable, the joint."""
        graph = self.graph
        cards = graph.cardinalities[self.open]
        scopes = [
            [int(self.number[v]) for v in graph.scope(a) if is_open[v]] for a in self.cut.tolist()
        ]
        scopes += [[int(self.number[v])] for v in self.weighted]
        if len(self.together) > 1:
            scopes.append([int(self.number[v]) for v in self.together])
        sizes = [math.prod(cards[scope].tolist()) for scope in scopes]
        return FactorGraph.from_arrays(
            cards,
            np.array([v for scope in scopes for v in scope], dtype=np.uint32),
            np.concatenate([[0], np.cumsum([len(s) for s in scopes], dtype=np.int64)]),
            np.zeros(sum(sizes)),
            validate=False,
        )

    # ------------------------------------------------------------------ the program

    @property
    def program(self) -> RowProgram:
        """The maps, written down when they are first needed."""
        if self._program is None:
            builder = _ProgramBuilder(self)
            self._program = builder.program()
            self._log_base, self._least = builder.log_base, builder.least
        return self._program

    # ------------------------------------------------------------------ answers

    def run(
        self, states: States, log_weights: Array, clock: Clock, *, logs: bool = False
    ) -> tuple[Array, Array]:
        """log Z of each row, -inf where it is impossible, and its targets."""
        with loops_for_rows(self.graph, len(states)):
            return self._run(states, log_weights, clock, logs)

    def _run(
        self, states: States, log_weights: Array, clock: Clock, logs: bool
    ) -> tuple[Array, Array]:
        n = len(states)
        log_z, status = np.empty(n), np.full(n, MARKED, dtype=np.int64)
        out = np.zeros((n, self.width))
        log_weights, tops = self._scaled(log_weights)
        if self.side_by_side and n:
            self._run_blocks(states, positive_exp(log_weights), log_z, status, out)
        if self.pattern.together and not self.together:
            out[:] = 1.0  # variables of a single state each: the joint has one entry
        if logs:
            out = log_of(out)
        for row in np.flatnonzero((status != GOOD) & (status != DEAD)).tolist():
            cells = states[row], log_weights[row]
            log_z[row] = self._run_carefully(*cells, out[row], clock, logs)
        log_z += self.fixed_scores(states) + tops
        out[log_z == -np.inf] = -np.inf if logs else 0.0
        return log_z, out

    def _scaled(self, log_weights: Array) -> tuple[Array, Array]:
        """The log-weights, those of each variable with a largest entry of 0, and of each row what
        was taken off.
        """
        if not len(self.weighted):
            return log_weights, np.zeros(len(log_weights))
        tops = np.maximum.reduceat(log_weights, self.weight_at[:-1], axis=1)
        finite = np.where(tops > -np.inf, tops, 0.0)
        sizes = np.diff(self.weight_at)
        return log_weights - np.repeat(finite, sizes, axis=1), tops.sum(axis=1)

    def _run_blocks(
        self, states: States, weights: Array, log_z: Array, status: Ints, out: Array
    ) -> None:
        """Rows side by side; those that might underflow stay marked."""
        program = self.program
        if self._least == np.inf:
            return  # every row might underflow
        entries = max(int(program.clique_at[-1]), 1)
        block = max(min(_BLOCK_ENTRIES // entries, _MOST_ROWS, len(states)), 1)
        answer_rows(
            program, self.linear.values, self._least, block, states, weights, 0, len(states),
            log_z, status, out,
        )  # fmt: skip
        log_z += float(self.linear.tops[self.cut].sum()) + self.graph.log_constant + self._log_base
        normalise_rows(out, 0, len(states), self.target_at, self.target_size)
        if weights.shape[1]:
            tiny = ((weights > 0) & (weights < self._least)).any(axis=1)
            status[tiny] = MARKED

    def filled(self, states: States, log_weights: Array) -> TreePlan:
        """The plan with the tables of one row."""
        logs = [self._cuts.tables(self.graph.log_tables, states), log_weights]
        size = self.plan.graph.log_tables.size
        rest = np.zeros(size - sum(map(len, logs)))
        template = self.plan.graph.replaced(log_tables=np.concatenate([*logs, rest]))
        every = np.arange(template.n_variables), np.arange(template.n_factors)
        return replace(self.plan, conditioned=Conditioned(template, template, {}, *every))

    def best(self, states: States, log_weights: Array, clock: Clock) -> tuple[Ints, Array] | None:
        """The most probable state of the open variables and their max-marginals as logarithms."""
        if not len(self.open):
            return np.zeros(0, dtype=np.int64), np.zeros(0)
        try:
            with loops_for(self.graph):
                found = propagate(
                    self.filled(states, log_weights), variable_targets, Watch(clock), mode="max"
                )
        except ImpossibleEvidenceError:
            return None
        assert found.state is not None  # mode="max" finds it
        return found.state, found.log_out

    def _run_carefully(
        self, states: States, log_weights: Array, out: Array, clock: Clock, logs: bool
    ) -> float:
        """One row through the engine that watches for underflow."""
        plan = self.filled(states, log_weights)
        template = plan.graph
        if not template.n_factors:
            even = np.repeat(1.0 / self.target_size, self.target_size)
            out[:] = np.log(even) if logs else even
            return self.graph.log_constant + float(np.log(template.cardinalities).sum())
        try:
            found = propagate(plan, self._read, Watch(clock), logs=logs)
        except ImpossibleEvidenceError:
            return -np.inf
        size = int(found.targets.sizes.sum())  # none where all asked variables have one state
        out[:size] = found.log_probabilities if logs else found.out
        return found.log_z + self.graph.log_constant

    def _read(self, plan: TreePlan) -> MarginalTargets:
        if not self.pattern.together:
            return variable_targets(plan)
        numbers = [int(self.number[v]) for v in self.together]
        if not numbers:
            return no_targets(plan)
        tree = plan.found_tree
        clique = int(tree.home[tree.rank[numbers].max()])
        return joint_target(plan, numbers, clique)

    @cached_property
    def _cuts(self) -> _CutTables:
        return _CutTables.of(self)


class _ProgramBuilder:
    """Writes down the maps of a pattern tree.

    `log_base` is the logarithm that was taken off the products of constant tables, `least` the size
    below which an operand marks its row.
    """

    def __init__(self, owner: PatternTree) -> None:
        self.owner = owner
        self.graph = owner.graph
        self.tree = owner.plan.found_tree
        self.size = np.rint(self.tree.clique_size).astype(np.int64)
        self.maps: list[NDArray[np.int32]] = []
        self.used = 0

    def program(self) -> RowProgram:
        tree = self.tree
        separator = np.rint(tree.separator_size).astype(np.int64)
        child_map = np.array(
            [self._separator_map(c) if p >= 0 else 0 for c, p in enumerate(tree.parent.tolist())],
            dtype=np.int64,
        )
        base, cut = self._factors()
        soft = self._weights()
        target = self._targets()
        operands = np.diff(tree.child_offsets) + np.diff(cut[0]) + np.diff(soft[0]) + 2
        self.least = 10.0 ** (-_SAFE_EXPONENT / float(operands.max(initial=2)))
        if ((base > 0) & (base < self.least)).any():
            self.least = np.inf
        fields: list[Any] = [
            offsets_of(self.size),
            offsets_of(separator),
            self.size // separator,
            tree.parent,
            child_map,
            base,
            np.concatenate(self.maps) if self.maps else np.zeros(0, dtype=np.int32),
            *cut,
            *soft,
            *target,
            tree.child_offsets,
            tree.children,
        ]
        return RowProgram(*fields)

    def _map(self, clique: int, names: Any, strides: Any, start: int = 0) -> int:
        """Where the map of a clique's entries into a table begins."""
        tree = self.tree
        at = self.used
        out = np.empty(int(self.size[clique]), dtype=np.int32)
        sub = np.asarray(names, dtype=np.int64)
        low, high = int(tree.clique_offsets[clique]), int(tree.clique_offsets[clique + 1])
        steps = np.asarray(strides, dtype=np.int64)
        project(tree.card, tree.clique_vars, low, high, sub, 0, len(sub), steps, start, out, 0)
        self.maps.append(out)
        self.used += len(out)
        return at

    def _separator_map(self, c: int) -> int:
        tree = self.tree
        low, high = int(tree.clique_offsets[c]), int(tree.clique_offsets[c + 1] - tree.residual[c])
        names = tree.clique_vars[low:high]
        return self._map(int(tree.parent[c]), names, strides(tree.card[names].tolist()))

    def _factors(self) -> tuple[Array, tuple[Ints, ...]]:
        """The product of constant tables of each clique, with a largest entry of 1, and the cut
        tables with their shifts, by clique.
        """
        graph, owner, tree = self.graph, self.owner, self.tree
        tables = graph.log_tables - np.repeat(owner.linear.tops, np.diff(graph.table_offsets))
        at = offsets_of(self.size)
        logs = np.zeros(int(at[-1]))
        homes = tree.factor_home[: len(owner.cut)]
        maps: list[int] = []
        offsets, columns, strides, cliques = [0], [], [], []
        for k in np.argsort(homes, kind="stable").tolist():
            a, c = int(owner.cut[k]), int(homes[k])
            edges = range(graph.scope_offsets[a], graph.scope_offsets[a + 1])
            inside = [e for e in edges if owner.is_open[graph.scopes[e]]]
            names = tree.rank[owner.number[graph.scopes[inside]]]
            seen = owner.observed_edges(a)
            place = self._map(c, names, graph.edge_strides[inside], int(graph.table_offsets[a]))
            if not seen:
                logs[at[c] : at[c + 1]] += tables[self.maps.pop()]
                self.used = place
                continue
            maps.append(place)
            cliques.append(c)
            columns += [int(owner.column[graph.scopes[e]]) for e in seen]
            strides += [int(graph.edge_strides[e]) for e in seen]
            offsets.append(len(columns))
        tops = np.maximum.reduceat(logs, at[:-1]) if len(logs) else np.zeros(0)
        tops[tops == -np.inf] = 0.0
        self.log_base = float(tops.sum())
        by_clique = _offsets(cliques, tree.n_nodes)
        arrays = [np.array(x, dtype=np.int64) for x in (maps, offsets, columns, strides)]
        return positive_exp(logs - np.repeat(tops, self.size)), (by_clique, *arrays)

    def _weights(self) -> tuple[Ints, ...]:
        owner, tree = self.owner, self.tree
        ranks = tree.rank[owner.number[owner.weighted]]
        homes = tree.home[ranks]
        order = np.argsort(homes, kind="stable").tolist()
        maps = [self._map(int(homes[k]), [ranks[k]], [1]) for k in order]
        places = owner.weight_at[:-1][order].astype(np.int64)
        return _offsets(homes[order], tree.n_nodes), np.array(maps, dtype=np.int64), places

    def _targets(self) -> tuple[Ints, ...]:
        owner, tree = self.owner, self.tree
        if owner.pattern.together:
            if not owner.together:
                return _offsets([], tree.n_nodes), *(np.zeros(0, dtype=np.int64),) * 2
            ranks = tree.rank[owner.number[owner.together]]
            clique = int(tree.home[ranks.max()])
            steps = strides(self.graph.cardinalities[owner.together].tolist())
            maps = np.array([self._map(clique, ranks, steps)])
            return _offsets([clique], tree.n_nodes), maps, owner.target_at
        smallest = np.zeros(len(tree.rank), dtype=np.int64)
        for c in np.argsort(-self.size, kind="stable").tolist():
            smallest[tree.clique_vars[tree.clique_offsets[c] : tree.clique_offsets[c + 1]]] = c
        ranks = tree.rank[owner.number[owner.open]]
        homes = smallest[ranks]
        order = np.argsort(homes, kind="stable")
        maps = np.array(
            [self._map(int(homes[k]), [ranks[k]], [1]) for k in order.tolist()], dtype=np.int64
        )
        return _offsets(homes[order], tree.n_nodes), maps, owner.target_at[order]


def _offsets(owners: Any, n: int) -> Ints:
    """Where the items of each owner begin, the items being sorted by owner."""
    counts = np.bincount(np.asarray(owners, dtype=np.int64), minlength=n)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
