"""Cycle-cutting sets: variables whose removal leaves a graph without cycles.

A cycle is a cycle of the bipartite graph of variables and factors. A set cuts it by containing one
of its variables. Sets that are used alternately must leave every variable outside at least one of
them.

Reference: TEH-I17.
"""

from __future__ import annotations

import heapq

import numpy as np

from kikuchi.core.arrays import Ints, Mask
from kikuchi.core.budget import require_time
from kikuchi.graphs.disjoint_sets import find_root
from kikuchi.graphs.factor_graph import FactorGraph

_TAKEN_AT_ONCE = 100  # variables between two checks of the clock


def cuts_cycles(graph: FactorGraph, cut: Mask) -> bool:
    """Return whether the variables outside `cut` and the factors contain no cycle.

    >>> from kikuchi import grid
    >>> square = grid(2, 2)
    >>> cuts_cycles(square, np.array([1, 0, 0, 0], dtype=bool))
    True
    >>> cuts_cycles(square, np.zeros(4, dtype=bool))
    False
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    free = ~cut[graph.scopes]
    size = graph.n_variables + graph.n_factors
    rows = graph.scopes[free].astype(np.int64)
    cols = graph.edge_factors[free].astype(np.int64) + graph.n_variables
    matrix = coo_array((np.ones(len(rows), dtype=np.int8), (rows, cols)), shape=(size, size))
    return len(rows) == size - int(connected_components(matrix, directed=False)[0])


def lattice_cutsets(rows: int, cols: int, *, both: bool = True) -> list[Mask]:
    """Return the even and odd columns of a lattice; with `both`, even columns, odd rows, odd
    columns, even rows.

    >>> [s.astype(int).tolist() for s in lattice_cutsets(2, 2, both=False)]
    [[1, 0, 1, 0], [0, 1, 0, 1]]
    """
    row, col = np.divmod(np.arange(rows * cols), cols)
    even_cols, odd_cols = col % 2 == 0, col % 2 == 1
    if not both:
        return [even_cols, odd_cols]
    return [even_cols, row % 2 == 1, odd_cols, row % 2 == 0]


def greedy_cutsets(graph: FactorGraph, observed: Mask | None = None) -> list[Mask]:
    """Return minimal cycle-cutting sets such that every variable is outside at least one of them.

    Each set is built from variables of many factors first, with ties for the least recently used;
    variables that were in every set so far are avoided as far as possible. `observed` variables
    already cut cycles and are in no set. A forest gives one empty set.

    >>> from kikuchi.generate import complete
    >>> [np.flatnonzero(s).tolist() for s in greedy_cutsets(complete(3))]
    [[0], [1]]
    """
    fixed = np.zeros(graph.n_variables, dtype=bool) if observed is None else observed
    builder = _Builder(graph, fixed)
    last = np.full(graph.n_variables, -1)
    always = ~fixed
    sets: list[Mask] = []
    while not sets or always.any():
        cut = builder.build(last, always if sets else np.zeros_like(always))
        last[cut] = len(sets)
        sets.append(cut)
        always = always & cut
    return sets


class _Builder:
    """Adjacency as lists, for many small steps."""

    def __init__(self, graph: FactorGraph, fixed: Mask) -> None:
        self.fixed = fixed
        edges = np.split(graph.variable_edges, graph.variable_offsets[1:-1])
        self.factors = [graph.edge_factors[e].tolist() for e in edges]
        self.variables = [graph.scope(a) for a in range(graph.n_factors)]

    def build(self, last: Ints, spared: Mask) -> Mask:
        """Build one set: add variables until no cycle remains, then remove redundant ones."""
        return self._give_back(_Peeling(self, last, spared).run(), spared)

    def _give_back(self, taken: list[int], spared: Mask) -> Mask:
        """Remove every variable that closes no cycle, those to be avoided first."""
        cut = np.zeros(len(self.factors), dtype=bool)
        cut[taken] = True
        parent = list(range(len(self.variables)))

        def join(v: int) -> None:
            for a in self.factors[v][1:]:
                parent[find_root(parent, a)] = find_root(parent, self.factors[v][0])

        for free in np.flatnonzero(~cut & ~self.fixed):
            join(int(free))
        for v in sorted(taken, key=lambda v: not spared[v]):
            roots = {find_root(parent, a) for a in self.factors[v]}
            if len(roots) == len(self.factors[v]):
                cut[v] = False
                join(v)
        return cut


class _Peeling:
    """Repeatedly removes variables on no cycle, and adds another one to the set whenever there are
    none.
    """

    def __init__(self, graph: _Builder, last: Ints, spared: Mask) -> None:
        self.factors, self.variables = graph.factors, graph.variables
        self.last, self.spared = last, spared
        self.inside = (~graph.fixed).tolist()
        self.sizes = [sum(self.inside[v] for v in scope) for scope in self.variables]
        self.degrees = [
            len(factors) if inside else 0
            for factors, inside in zip(self.factors, self.inside, strict=True)
        ]
        self.ends: list[int] = []  # variables of at most one factor
        self.heap: list[tuple[bool, int, int, int]] = []
        for v, inside in enumerate(self.inside):
            if inside:
                self._enter(v)
        for a, size in enumerate(self.sizes):
            if size == 1:
                self._remove_factor(a)

    def run(self) -> list[int]:
        """Return the variables of the set, when no cycle remains."""
        taken: list[int] = []
        while True:
            while self.ends:
                v = self.ends.pop()
                if self.inside[v]:
                    self._remove(v)
            while self.heap and self._outdated(self.heap[0]):
                heapq.heappop(self.heap)
            if not self.heap:
                return taken
            if len(taken) % _TAKEN_AT_ONCE == 0:
                require_time("finding variables that cut all cycles", "use bp or loopy-is")
            v = heapq.heappop(self.heap)[3]
            taken.append(v)
            self._remove(v)

    def _enter(self, v: int) -> None:
        if self.degrees[v] <= 1:
            self.ends.append(v)
        else:
            entry = (bool(self.spared[v]), -self.degrees[v], int(self.last[v]), v)
            heapq.heappush(self.heap, entry)

    def _outdated(self, entry: tuple[bool, int, int, int]) -> bool:
        _, degree, _, v = entry
        return not self.inside[v] or -degree != self.degrees[v]

    def _remove(self, v: int) -> None:
        self.inside[v] = False
        for a in self.factors[v]:
            self.sizes[a] -= 1
            if self.sizes[a] == 1:
                self._remove_factor(a)

    def _remove_factor(self, a: int) -> None:
        for w in self.variables[a]:
            if self.inside[w]:
                self.degrees[w] -= 1
                self._enter(w)
