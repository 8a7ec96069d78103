"""One junction tree for all evidence of one pattern: the same variables observed, any states.

A tree of moderate size runs rows side by side (`kernels.evidence_rows`); a large one, or a row
whose numbers might underflow, goes through the engine of `inference.trees`, one row at a time,
which heeds the clock between cliques and turns to logarithms where it must.
"""

from __future__ import annotations

import math
from dataclasses import InitVar, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array, Ints, Mask
from kikuchi.core.budget import Clock
from kikuchi.core.errors import ImpossibleEvidenceError
from kikuchi.graphs.conditioned import Conditioned
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.inference.trees.engine import Watch, propagate
from kikuchi.inference.trees.plan import (
    TreePlan,
    joint_target,
    make_plan,
    no_targets,
    variable_targets,
)
from kikuchi.inference.trees.shape import MarginalTargets
from kikuchi.query.kernels.evidence_rows import (
    DEAD,
    GOOD,
    RowProgram,
    answer_rows,
    normalise_rows,
    project,
)

States = NDArray[np.int32]

_MOST_ENTRIES = 2**18  # of all cliques: a map of each entry is affordable
_BLOCK_ENTRIES = 2**15  # of all cliques and rows of a block: they stay in the cache of a core
_MOST_ROWS = 64
_SAFE_EXPONENT = 280.0  # products of operands stay above 10 to minus this


@dataclass(frozen=True)
class EvidencePattern:
    """Which variables are observed, which have weights, which must be in one clique, and which may
    be left out (barren ones), all by number and in rising order.
    """

    observed: tuple[int, ...]
    weighted: tuple[int, ...] = ()
    together: tuple[int, ...] = ()
    left_out: frozenset[int] = frozenset()


class LinearTables(NamedTuple):
    """Tables as plain numbers, each divided by its largest entry, whose logarithm is in `tops`."""

    values: Array
    tops: Array

    @classmethod
    def of(cls, graph: FactorGraph) -> LinearTables:
        """The tables of a graph."""
        if not graph.n_factors:
            return cls(np.zeros(0), np.zeros(0))
        tops = np.maximum.reduceat(graph.log_tables, graph.table_offsets[:-1])
        sizes = np.diff(graph.table_offsets)
        return cls(np.exp(graph.log_tables - np.repeat(tops, sizes)), tops)


@dataclass(eq=False)
class PatternTree:
    """The plan and the maps of one evidence pattern; it holds no table of a row.

    `variables` are those whose marginals are read, by number in the graph, and `target_at` says
    where each begins in a row of answers; a joint of `pattern.together` is a single target.
    """

    graph: FactorGraph
    linear: LinearTables
    pattern: EvidencePattern
    clock: InitVar[Clock]

    def __post_init__(self, clock: Clock) -> None:
        graph, pattern = self.graph, self.pattern
        is_open = graph.cardinalities > 1
        is_open[list(pattern.observed)] = False
        is_open[list(pattern.left_out)] = False
        is_open[list(pattern.weighted)] = True
        self.open = np.flatnonzero(is_open)
        self.number = np.cumsum(is_open) - 1
        self.column = np.full(graph.n_variables, -1, dtype=np.int64)
        self.column[list(pattern.observed)] = np.arange(len(pattern.observed))
        used = _used_factors(graph, pattern.left_out)
        touching = np.zeros(graph.n_factors, dtype=bool)
        touching[graph.edge_factors[is_open[graph.scopes]]] = True
        self.cut = np.flatnonzero(used & touching)
        self.fixed = np.flatnonzero(used & ~touching)
        self.constant = float(self.linear.tops[self.cut].sum()) + graph.log_constant
        self.weighted = np.array(pattern.weighted, dtype=np.int64)
        self.weight_at = _ends(graph.cardinalities[self.weighted])
        self.together = [v for v in pattern.together if is_open[v]]
        template = self._template(is_open)
        everything = np.arange(template.n_variables), np.arange(template.n_factors)
        self.plan = make_plan(
            Conditioned(template, template, {}, *everything), "cheapest", None, clock, uses=4
        )
        self._set_targets()
        self._least = 0.0  # operands of at least this size cannot make a product that underflows
        self.side_by_side = self.entries <= _MOST_ENTRIES  # whether maps are affordable
        self._is_open = is_open
        self._program: RowProgram | None = None
        self._runs = 0

    @property
    def entries(self) -> float:
        """Entries of all cliques; infinite if the search for a tree was given up."""
        return float(self.plan.tree.clique_size.sum()) if self.plan.tree is not None else np.inf

    # ------------------------------------------------------------------ what is asked

    def _set_targets(self) -> None:
        cards = self.graph.cardinalities.astype(np.int64)
        if self.pattern.together:
            self.variables = np.zeros(0, dtype=np.int64)
            sizes = np.array([int(np.prod(cards[self.together], initial=1))])
        else:
            self.variables = self.open
            sizes = cards[self.open]
        ends = np.cumsum(sizes)
        self.target_at = (ends - sizes).astype(np.int64)
        self.target_size = sizes.astype(np.int64)
        self.width = int(ends[-1]) if len(ends) else 0

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
            self._program = _ProgramBuilder(self, self._is_open).program()
        return self._program

    # ------------------------------------------------------------------ answers

    def run(self, states: States, weights: Array, clock: Clock) -> tuple[Array, Array]:
        """log Z of each row, -inf where it is impossible, and its targets, each summing to 1."""
        n = len(states)
        log_z, status = np.empty(n), np.zeros(n, dtype=np.int64)
        out = np.zeros((n, self.width))
        scaled, tops = self._scaled(weights)
        self._runs += 1
        once = n == 1 and self._runs == 1
        if not self.side_by_side or once:  # for one row, maps cost more than they save
            status[:] = GOOD + 1
        elif n:
            self._run_blocks(states, scaled, log_z, status, out)
            log_z += self.constant
        for row in np.flatnonzero((status != GOOD) & (status != DEAD)).tolist():
            log_z[row] = self._run_carefully(states[row], scaled[row], out[row], clock)
        fixed = self._fixed_scores(states)
        log_z += fixed + tops
        if self.pattern.together and not self.together:
            out[:] = 1.0  # variables of a single state each: the joint has one entry
        out[log_z == -np.inf] = 0.0
        return log_z, out

    def _scaled(self, weights: Array) -> tuple[Array, Array]:
        if not len(self.weighted):
            return weights, np.zeros(len(weights))
        tops = np.maximum.reduceat(weights, self.weight_at[:-1], axis=1)
        sizes = np.diff(self.weight_at)
        with np.errstate(divide="ignore", invalid="ignore"):
            scaled = np.nan_to_num(weights / np.repeat(tops, sizes, axis=1), nan=0.0)
            logs = np.log(tops).sum(axis=1)
        return scaled, logs

    def _run_blocks(
        self, states: States, weights: Array, log_z: Array, status: Ints, out: Array
    ) -> None:
        program = self.program
        entries = max(int(program.clique_at[-1]), 1)
        least = self._least
        block = max(min(_BLOCK_ENTRIES // entries, _MOST_ROWS, len(states)), 1)
        answer_rows(
            program, self.linear.values, least, block, states, weights, 0, len(states), log_z,
            status, out,
        )  # fmt: skip
        normalise_rows(out, 0, len(states), self.target_at, self.target_size)
        if weights.shape[1]:
            tiny = ((weights > 0) & (weights < least)).any(axis=1)
            status[tiny] = GOOD + 1

    def filled(self, states: States, weights: Array) -> TreePlan:
        """The plan with the tables of one row."""
        with np.errstate(divide="ignore"):
            logs = [self._cut_tables(states), np.log(weights)]
        size = self.plan.graph.log_tables.size
        rest = np.zeros(size - sum(map(len, logs)))
        template = self.plan.graph.replaced(log_tables=np.concatenate([*logs, rest]))
        every = np.arange(template.n_variables), np.arange(template.n_factors)
        return replace(self.plan, conditioned=Conditioned(template, template, {}, *every))

    def best(self, states: States, weights: Array, clock: Clock) -> tuple[Ints, Array] | None:
        """The most probable state of the open variables and their max-marginals; None if the row is
        impossible.
        """
        try:
            found = propagate(
                self.filled(states, weights), variable_targets, Watch(clock), mode="max"
            )
        except ImpossibleEvidenceError:
            return None
        assert found.state is not None  # mode="max" finds it
        return found.state, found.out

    def _run_carefully(self, states: States, weights: Array, out: Array, clock: Clock) -> float:
        """One row through the engine that watches for underflow."""
        plan = self.filled(states, weights)
        template = plan.graph
        if not template.n_factors:
            out[:] = np.repeat(1.0 / self.target_size, self.target_size)
            return self.graph.log_constant + float(np.log(template.cardinalities).sum())
        try:
            found = propagate(plan, self._read, Watch(clock))
        except ImpossibleEvidenceError:
            return -np.inf
        out[: len(found.out)] = found.out
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

    def _cut_tables(self, states: States) -> Array:
        graph = self.graph
        pieces = []
        for a in self.cut.tolist():
            where = tuple(
                slice(None) if self.number_is_open(v) else self._state(v, states)
                for v in graph.scope(a)
            )
            pieces.append(graph.log_table(a)[where].ravel())
        return np.concatenate(pieces) if pieces else np.zeros(0)

    def number_is_open(self, v: int) -> bool:
        """Whether a variable of the graph is in the tree."""
        place = self.number[v]
        return bool(place >= 0 and place < len(self.open) and self.open[place] == v)

    def _state(self, v: int, states: Any) -> int:
        return int(states[self.column[v]]) if self.column[v] >= 0 else 0

    def _fixed_scores(self, states: States) -> Array:
        """Log-weight of each row from the factors that are all observed."""
        graph = self.graph
        total = np.zeros(len(states))
        for a in self.fixed.tolist():
            index = np.full(len(states), graph.table_offsets[a])
            for e in range(graph.scope_offsets[a], graph.scope_offsets[a + 1]):
                column = self.column[graph.scopes[e]]
                if column >= 0:
                    index += graph.edge_strides[e] * states[:, column]
            total += graph.log_tables[index]
        return total


class _ProgramBuilder:
    """Writes down the maps of a pattern tree."""

    def __init__(self, owner: PatternTree, is_open: Mask) -> None:
        self.owner = owner
        self.graph = owner.graph
        self.is_open = is_open
        self.tree = owner.plan.found_tree
        self.size = np.rint(self.tree.clique_size).astype(np.int64)
        self.maps: list[NDArray[np.int32]] = []
        self.used = 0

    def program(self) -> RowProgram:
        tree, owner = self.tree, self.owner
        separator = np.rint(tree.separator_size).astype(np.int64)
        child_map = np.array(
            [self._separator_map(c) if p >= 0 else 0 for c, p in enumerate(tree.parent.tolist())],
            dtype=np.int64,
        )
        base, cut = self._factors()
        owner.constant += base[1]
        soft = self._weights()
        target = self._targets()
        operands = np.diff(tree.child_offsets) + np.diff(cut[0]) + np.diff(soft[0]) + 2
        owner._least = 10.0 ** (-_SAFE_EXPONENT / float(operands.max(initial=2)))
        if ((base[0] > 0) & (base[0] < owner._least)).any():
            owner._least = np.inf  # every row is left to the careful engine
        fields: list[Any] = [
            _ends(self.size),
            _ends(separator),
            self.size // separator,
            tree.parent,
            child_map,
            base[0],
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
        return self._map(int(tree.parent[c]), names, _strides(tree.card[names]))

    def _factors(self) -> tuple[tuple[Array, float], tuple[Ints, ...]]:
        """The product of constant tables, and the cut ones with their shifts, by clique."""
        graph, owner, tree = self.graph, self.owner, self.tree
        at = _ends(self.size)
        base = np.ones(int(at[-1]))
        homes = tree.factor_home[: len(owner.cut)]
        maps: list[int] = []
        offsets, columns, strides, cliques = [0], [], [], []
        for k in np.argsort(homes, kind="stable").tolist():
            a, c = int(owner.cut[k]), int(homes[k])
            edges = range(graph.scope_offsets[a], graph.scope_offsets[a + 1])
            inside = [e for e in edges if self.is_open[graph.scopes[e]]]
            names = tree.rank[owner.number[graph.scopes[inside]]]
            seen = [e for e in edges if owner.column[graph.scopes[e]] >= 0]
            place = self._map(c, names, graph.edge_strides[inside], int(graph.table_offsets[a]))
            if not seen:
                base[at[c] : at[c + 1]] *= owner.linear.values[self.maps.pop()]
                self.used = place
                continue
            maps.append(place)
            cliques.append(c)
            columns += [int(owner.column[graph.scopes[e]]) for e in seen]
            strides += [int(graph.edge_strides[e]) for e in seen]
            offsets.append(len(columns))
        tops = np.maximum.reduceat(base, at[:-1]) if len(base) else np.ones(0)
        tops[tops == 0.0] = 1.0
        base /= np.repeat(tops, self.size)
        by_clique = _offsets(cliques, tree.n_nodes)
        arrays = [np.array(x, dtype=np.int64) for x in (maps, offsets, columns, strides)]
        return (base, float(np.log(tops).sum())), (by_clique, *arrays)

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
            strides = _strides(self.graph.cardinalities[owner.together].astype(np.int64))
            maps = np.array([self._map(clique, ranks, strides)])
            return _offsets([clique], tree.n_nodes), maps, owner.target_at
        smallest = np.zeros(len(tree.rank), dtype=np.int64)
        for c in np.argsort(-self.size, kind="stable").tolist():
            smallest[tree.clique_vars[tree.clique_offsets[c] : tree.clique_offsets[c + 1]]] = c
        ranks = tree.rank[owner.number[owner.variables]]
        homes = smallest[ranks]
        order = np.argsort(homes, kind="stable")
        maps = np.array(
            [self._map(int(homes[k]), [ranks[k]], [1]) for k in order.tolist()], dtype=np.int64
        )
        return _offsets(homes[order], tree.n_nodes), maps, owner.target_at[order]


def _used_factors(graph: FactorGraph, left_out: frozenset[int]) -> Mask:
    if not left_out:
        return np.ones(graph.n_factors, dtype=bool)
    assert graph.children is not None  # only directed models have barren variables
    return ~np.isin(graph.children, list(left_out))


def _ends(sizes: NDArray[Any]) -> Ints:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _offsets(owners: Any, n: int) -> Ints:
    """Where the items of each owner begin, the items being sorted by owner."""
    counts = np.bincount(np.asarray(owners, dtype=np.int64), minlength=n)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _strides(cards: Ints) -> Ints:
    """Row-major strides of a table."""
    return np.append(np.cumprod(cards[::-1])[::-1], 1)[1:].astype(np.int64)
