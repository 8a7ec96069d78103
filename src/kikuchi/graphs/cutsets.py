"""Cycle-cutting sets: variables whose removal leaves a graph without cycles (TEH-I17, 10.2).

A cycle is one of the bipartite graph of variables and factors. A set cuts it by holding one of its
variables. Sets that take turns must be fair: every variable is outside at least one of them.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from kikuchi.graphs.factor_graph import FactorGraph

Mask = NDArray[np.bool_]


def cuts_cycles(graph: FactorGraph, cut: Mask) -> bool:
    """Whether no cycle is left among the variables outside `cut` and the factors.

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
    """Every second column in turn, or with `both` even columns, odd rows, odd columns, even rows.

    >>> [s.astype(int).tolist() for s in lattice_cutsets(2, 2, both=False)]
    [[1, 0, 1, 0], [0, 1, 0, 1]]
    """
    row, col = np.divmod(np.arange(rows * cols), cols)
    even_cols, odd_cols = col % 2 == 0, col % 2 == 1
    if not both:
        return [even_cols, odd_cols]
    return [even_cols, row % 2 == 1, odd_cols, row % 2 == 0]


def greedy_cutsets(graph: FactorGraph, observed: Mask | None = None) -> list[Mask]:
    """Small cycle-cutting sets, none of which can spare a variable, that are fair together.

    Each is built by taking variables of many factors first, the least recently taken among equals;
    variables that were in every set so far are spared as far as possible. `observed` variables cut
    cycles already and are in no set. A forest gives one empty set.

    >>> from kikuchi import complete
    >>> [np.flatnonzero(s).tolist() for s in greedy_cutsets(complete(3))]
    [[0], [1]]
    """
    fixed = np.zeros(graph.n_variables, dtype=bool) if observed is None else observed
    builder = _Builder(graph, fixed)
    last = np.full(graph.n_variables, -1)
    always = ~fixed
    sets: list[Mask] = []
    while not sets or always.any():
        found = builder.build(last, always if sets else np.zeros_like(always))
        last[found] = len(sets)
        sets.append(found)
        always = always & found
    return sets


class _Builder:
    """Adjacency as lists, for many small steps."""

    def __init__(self, graph: FactorGraph, fixed: Mask) -> None:
        self.fixed = fixed
        edges = np.split(graph.variable_edges, graph.variable_offsets[1:-1])
        self.factors = [graph.edge_factors[e].tolist() for e in edges]
        self.variables = [graph.scope(a) for a in range(graph.n_factors)]

    def build(self, last: NDArray[np.int64], spared: Mask) -> Mask:
        """One set: take variables until no cycle is left, then give back what is not needed."""
        taken = self._take(last, spared)
        return self._give_back(taken, spared)

    def _take(self, last: NDArray[np.int64], spared: Mask) -> list[int]:
        degrees = [
            0 if fixed else len(f) for f, fixed in zip(self.factors, self.fixed, strict=True)
        ]
        sizes = [sum(not self.fixed[v] for v in scope) for scope in self.variables]
        inside = [not fixed for fixed in self.fixed]
        peel = [v for v, degree in enumerate(degrees) if inside[v] and degree <= 1]
        heap = [
            (bool(spared[v]), -degree, int(last[v]), v)
            for v, degree in enumerate(degrees)
            if inside[v] and degree > 1
        ]

        def remove_factor(a: int) -> None:
            for w in self.variables[a]:
                if inside[w]:
                    degrees[w] -= 1
                    if degrees[w] <= 1:
                        peel.append(w)
                    else:
                        heapq.heappush(heap, (bool(spared[w]), -degrees[w], int(last[w]), w))

        def remove(v: int) -> None:
            inside[v] = False
            for a in self.factors[v]:
                sizes[a] -= 1
                if sizes[a] == 1:
                    remove_factor(a)

        for a, size in enumerate(sizes):
            if size == 1:
                remove_factor(a)
        heapq.heapify(heap)
        taken: list[int] = []
        while True:
            while peel:
                v = peel.pop()
                if inside[v]:
                    remove(v)
            while heap and (not inside[heap[0][3]] or -heap[0][1] != degrees[heap[0][3]]):
                heapq.heappop(heap)
            if not heap:
                return taken
            v = heapq.heappop(heap)[3]
            taken.append(v)
            remove(v)

    def _give_back(self, taken: list[int], spared: Mask) -> Mask:
        """Free again every variable that would close no cycle, those to be spared first."""
        cut = np.zeros(len(self.factors), dtype=bool)
        cut[taken] = True
        parent = list(range(len(self.variables)))

        def root(a: int) -> int:
            while parent[a] != a:
                parent[a] = parent[parent[a]]
                a = parent[a]
            return a

        def join(v: int) -> None:
            for a in self.factors[v][1:]:
                parent[root(a)] = root(self.factors[v][0])

        for free in np.flatnonzero(~cut & ~self.fixed):
            join(int(free))
        for v in sorted(taken, key=lambda v: not spared[v]):
            roots = {root(a) for a in self.factors[v]}
            if len(roots) == len(self.factors[v]):
                cut[v] = False
                join(v)
        return cut
