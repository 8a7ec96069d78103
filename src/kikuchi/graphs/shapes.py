"""Shapes of graphs: edges of grids, trees, random and regular graphs, and recognising a grid.

Edges are rows (i, j) with i < j; except for grids they are in lexicographic order.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from kikuchi.core.arrays import U4, U8, Ints
from kikuchi.core.numerics import distinct
from kikuchi.graphs.checks import scope_rows
from kikuchi.graphs.factor_graph import FactorGraph

Edges = U4
_PAIRED_ENDS = 100_000  # ends to pair in search of a simple regular graph before one is repaired


def grid_edges(rows: int, cols: int, *, periodic: bool = False) -> Edges:
    """Edges of a grid whose variables are numbered row by row, the smaller number first.

    Cell by cell: the edge to the right, then the edge downwards. `periodic` joins the last row
    and column to the first ones.

    >>> grid_edges(2, 2).tolist()
    [[0, 1], [0, 2], [1, 3], [2, 3]]
    """
    cells = np.arange(rows * cols, dtype=np.uint32).reshape(rows, cols)
    ends = np.empty((rows, cols, 2, 2), dtype=np.uint32)
    ends[..., 0] = cells[..., None]
    ends[:, :, 0, 1] = np.roll(cells, -1, axis=1)
    ends[:, :, 1, 1] = np.roll(cells, -1, axis=0)
    if periodic:
        return np.sort(ends.reshape(-1, 2), axis=1)
    exists = np.ones((rows, cols, 2), dtype=bool)
    exists[:, -1, 0] = False
    exists[-1, :, 1] = False
    return ends[exists]


def complete_edges(n: int) -> Edges:
    """All pairs i < j of n variables, in lexicographic order.

    >>> complete_edges(3).tolist()
    [[0, 1], [0, 2], [1, 2]]
    """
    return np.stack(np.triu_indices(n, 1), axis=1).astype(np.uint32)


def _in_order(edges: Ints) -> Edges:
    """Smaller number first, then the edges in lexicographic order."""
    edges = np.sort(edges, axis=1)
    return edges[np.lexsort((edges[:, 1], edges[:, 0]))].astype(np.uint32)


def random_edges(n: int, p: float, rng: np.random.Generator) -> Edges:
    """Each pair with probability p: walk over all pairs from hit to hit by geometric steps.

    >>> len(random_edges(4, 1.0, np.random.default_rng(0)))
    6
    """
    n_pairs = n * (n - 1) // 2
    if p == 0 or n_pairs == 0:
        return np.zeros((0, 2), dtype=np.uint32)
    hits = [np.zeros(0, dtype=np.int64)]
    position = -1
    while position < n_pairs:
        expected = (n_pairs - position) * p
        steps = rng.geometric(p, size=int(expected + 4 * math.sqrt(expected)) + 4)
        numbers = position + np.cumsum(np.minimum(steps, n_pairs + 1))
        hits.append(numbers[numbers < n_pairs])
        position = int(numbers[-1])
    return _in_order(_pair_of_number(np.concatenate(hits)))


def _pair_of_number(number: Ints) -> Ints:
    """The pair i < j whose number is j (j - 1) / 2 + i."""
    j = ((1 + np.sqrt(1 + 8 * number.astype(np.float64))) / 2).astype(np.int64)
    j -= j * (j - 1) // 2 > number  # below 2^31 the root is rounded up at times, never down
    return np.stack([number - j * (j - 1) // 2, j], axis=1)


def tree_edges(n: int, rng: np.random.Generator) -> Edges:
    """Return a uniform labelled tree by Joyal's bijection, which needs no loop, unlike Prüfer's
    code.

    A random map f of n points is a random tree with two marked points: the points on cycles of
    f, c_1 < ... < c_k, become the path f(c_1), ..., f(c_k); every other point x has the edge to
    f(x).

    >>> len(tree_edges(9, np.random.default_rng(0)))
    8
    """
    image = rng.integers(0, n, size=n)
    far = image
    for _ in range(n.bit_length()):
        far = far[far]
    on_cycle = np.zeros(n, dtype=bool)
    on_cycle[far] = True
    path = image[on_cycle]
    others = np.flatnonzero(~on_cycle)
    edges = np.concatenate(
        [np.stack([path[:-1], path[1:]], axis=1), np.stack([others, image[others]], axis=1)]
    )
    return _in_order(edges)


def regular_edges(n: int, degree: int, rng: np.random.Generator) -> Edges:
    """Return a graph with `degree` neighbours for each of n variables; dense ones via their
    complement.

    Random pairings of the ends are drawn until one has no loop or double edge, which makes all
    graphs equally likely. If that would take too long, the last pairing is repaired by switching
    ends with random other edges, which is nearly uniform in large graphs.

    >>> np.bincount(regular_edges(4, 2, np.random.default_rng(0)).ravel()).tolist()
    [2, 2, 2, 2]
    """
    if 2 * degree > n - 1:
        everything = complete_edges(n).astype(np.int64)
        missing = regular_edges(n, n - 1 - degree, rng).astype(np.int64)
        absent = np.isin(everything @ [n, 1], missing @ [n, 1])
        return everything[~absent].astype(np.uint32)
    ends = np.repeat(np.arange(n), degree)
    fair_trials = 1 + _PAIRED_ENDS // max(len(ends), 1)
    for trial in itertools.count(1):
        edges = rng.permutation(ends).reshape(-1, 2)
        switching = _Switching(n, edges, rng)
        if not switching.suspects.size or (trial >= fair_trials and switching.mend()):
            break
    return _in_order(edges)


class _Switching:
    """Repairs loops and double edges of a random pairing in place, preserving every degree."""

    def __init__(self, n: int, edges: Ints, rng: np.random.Generator) -> None:
        self.n = n
        self.edges = edges
        self.rng = rng
        low, high = edges.min(axis=1), edges.max(axis=1)
        keys = low * n + high
        order = np.argsort(keys, kind="stable")
        self._keys = keys[order]
        self._changes: dict[int, int] = {}  # copies made or removed since the pairing
        suspect = low == high
        suspect[order[1:][self._keys[1:] == self._keys[:-1]]] = True
        self.suspects = np.flatnonzero(suspect)

    def mend(self) -> bool:
        """Repair the pairing; return whether the graph is simple."""
        return all(self._mend_edge(int(e)) for e in self.suspects)

    def _mend_edge(self, e: int) -> bool:
        u, v = (int(x) for x in self.edges[e])
        if u != v and self._copies(u, v) == 1:
            return True
        for _ in range(100 + 10 * self.n):
            f = int(self.rng.integers(len(self.edges)))
            x, y = (int(x) for x in self.edges[f][:: 1 if self.rng.random() < 0.5 else -1])
            if f != e and self._fits(u, x, v, y):
                self._replace(e, f, (u, x), (v, y))
                return True
        return False

    def _fits(self, u: int, x: int, v: int, y: int) -> bool:
        return (
            u != x
            and v != y
            and {u, x} != {v, y}
            and not self._copies(u, x)
            and not self._copies(v, y)
        )

    def _replace(self, e: int, f: int, one: tuple[int, int], other: tuple[int, int]) -> None:
        for edge, change in ((self.edges[e], -1), (self.edges[f], -1), (one, 1), (other, 1)):
            key = self._key(int(edge[0]), int(edge[1]))
            self._changes[key] = self._changes.get(key, 0) + change
        self.edges[e], self.edges[f] = one, other

    def _key(self, u: int, v: int) -> int:
        return min(u, v) * self.n + max(u, v)

    def _copies(self, u: int, v: int) -> int:
        key = self._key(u, v)
        paired = self._keys.searchsorted(key, "right") - self._keys.searchsorted(key, "left")
        return int(paired) + self._changes.get(key, 0)


# ---------------------------------------------------------------------- recognising a grid


def grid_shape(graph: FactorGraph) -> tuple[int, int] | None:
    """Return rows and columns if the graph is an open or periodic grid numbered row by row, else
    None.

    The test uses only the structure: no factor over more than two variables, and pairs that are
    exactly the edges of a grid with at least two rows and two columns (a single row is a chain).

    >>> from kikuchi.graphs.generators import grid
    >>> grid_shape(grid(3, 5)), grid_shape(grid(1, 5))
    ((3, 5), None)
    """
    orders = np.diff(graph.scope_offsets)
    if graph.n_variables < 4 or not orders.size or orders.max() > 2:
        return None
    keys = _pair_keys(graph, orders)
    if not graph.n_variables - 1 < keys.size <= 2 * graph.n_variables:
        return None
    return _matching_shape(keys, graph.n_variables)


def _pair_keys(graph: FactorGraph, orders: Ints) -> U8:
    """One number for each pair of variables that share a factor, sorted, each once."""
    starts = graph.scope_offsets[:-1][orders == 2]
    first, second = graph.scopes[starts], graph.scopes[starts + 1]
    return distinct(_keys(np.minimum(first, second), np.maximum(first, second), graph.n_variables))


def _keys(low: U4, high: U4, n_variables: int) -> U8:
    return low.astype(np.uint64) * np.uint64(n_variables) + high


def _matching_shape(keys: U8, n: int) -> tuple[int, int] | None:
    steps = distinct(keys % np.uint64(n) - keys // np.uint64(n))
    if steps.size > 4:  # right, down and their two periodic versions
        return None
    for cols in (int(step) for step in steps):
        rows = n // cols
        if n % cols or rows < 2 or cols < 2:
            continue
        for periodic in (False, True):
            if periodic and min(rows, cols) < 3:
                continue
            edges = grid_edges(rows, cols, periodic=periodic)
            expected = np.sort(_keys(edges[:, 0], edges[:, 1], n))
            if np.array_equal(expected, keys):
                return rows, cols
    return None


# ---------------------------------------------------------------------- neighbours


def primal_pairs(graph: FactorGraph) -> Edges:
    """Pairs of variables that share a factor, each once; see `FactorGraph.pairs`."""
    keys_by_order = [np.zeros(0, dtype=np.uint64)]
    n = np.uint64(max(graph.n_variables, 1))
    orders = np.diff(graph.scope_offsets)
    for order in np.unique(orders):
        rows = np.sort(
            scope_rows(graph.scopes, graph.scope_offsets, orders, int(order)), axis=1
        ).astype(np.uint64)
        for i in range(int(order)):
            for j in range(i + 1, int(order)):
                keys_by_order.append(rows[:, i] * n + rows[:, j])
    keys = np.sort(np.concatenate(keys_by_order))
    fresh = np.ones(len(keys), dtype=bool)
    fresh[1:] = keys[1:] != keys[:-1]
    return np.stack([keys[fresh] // n, keys[fresh] % n], axis=1).astype(np.uint32)


def component_labels(graph: FactorGraph) -> Ints:
    """The connected component of each variable; see `FactorGraph.components`."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = graph.n_variables
    rows = graph.scopes.astype(np.int64)
    cols = graph.edge_factors.astype(np.int64) + n
    size = n + graph.n_factors
    matrix = coo_array((np.ones(len(rows), dtype=np.int8), (rows, cols)), shape=(size, size))
    labels = connected_components(matrix, directed=False)[1][:n]
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


# ---------------------------------------------------------------------- notebooks


def html_summary(graph: FactorGraph) -> str:
    """Sizes and the first variables of a model as HTML.

    >>> "2 variables" in html_summary(FactorGraph([2, 2], [((0, 1), [[1, 2], [3, 4]])]))
    True
    """
    from kikuchi.core.labelled import html_facts

    shown = range(min(graph.n_variables, _SHOWN_IN_HTML))
    facts = [
        (
            graph.label(v),
            f"{graph.cardinalities[v]} states"
            + (f": {', '.join(graph.states[v][:12])}" if graph.states else "")
            + _parents_text(graph, v),
        )
        for v in shown
    ]
    more = graph.n_variables - len(facts)
    return html_facts(repr(graph), facts, f"and {more} more variables" if more > 0 else "")


def _parents_text(graph: FactorGraph, v: int) -> str:
    above = graph.parents(v) if graph.is_directed else ()
    return f"; parents: {', '.join(map(str, above))}" if above else ""


_SHOWN_IN_HTML = 20
