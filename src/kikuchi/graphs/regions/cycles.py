"""Cycles of the pair graph as root regions: faces, short loops, a shortest basis, star triangles.

The pair graph joins two variables that share a factor. A cycle is a tuple of
variables in cyclic order.

Reference: LIU-I11, LIU-I12, LIU-M9..
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import U4, Ints
from kikuchi.core.budget import require_time
from kikuchi.core.errors import BudgetError, ModelError
from kikuchi.core.seeds import generator
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.regions.parts import Region

Cycle = tuple[int, ...]
Edge = tuple[int, int]
Neighbours = list[set[int]]

MOST_CYCLES = 200_000
MOST_STEPS = 20_000_000
_CYCLES_AT_ONCE = 50_000


def ordered(i: int, j: int) -> Edge:
    """An edge with its smaller end first."""
    return (i, j) if i < j else (j, i)


def edges_of_cycle(cycle: Sequence[int]) -> list[Edge]:
    """Edges of a cycle.

    >>> edges_of_cycle((0, 2, 1))
    [(0, 2), (1, 2), (0, 1)]
    """
    return [ordered(i, j) for i, j in zip(cycle, [*cycle[1:], cycle[0]], strict=True)]


def pair_edges(graph: FactorGraph) -> list[Edge]:
    """Edges of the pair graph, rising; a factor over several variables joins them all."""
    return [(i, j) for i, j in graph.pairs().tolist()]


def neighbour_sets(n: int, edges: Iterable[Edge]) -> Neighbours:
    """Neighbours of each of n variables."""
    neighbours: Neighbours = [set() for _ in range(n)]
    for i, j in edges:
        neighbours[i].add(j)
        neighbours[j].add(i)
    return neighbours


class FactorIndex:
    """Finds the factors inside a set of variables, or along given edges only.

    >>> index = FactorIndex(FactorGraph([2, 2], [((0, 1), np.ones(4)), ((1,), np.ones(2))]))
    >>> index.region([0, 1]), index.region([0, 1], along=[])
    (Region(variables=(0, 1), factors=(0, 1)), Region(variables=(0, 1), factors=(1,)))
    """

    def __init__(self, graph: FactorGraph) -> None:
        flat, at = graph.scopes.tolist(), graph.scope_offsets.tolist()
        self._scopes = [tuple(flat[at[a] : at[a + 1]]) for a in range(graph.n_factors)]
        self._factors: list[list[int]] = [[] for _ in range(graph.n_variables)]
        for a, scope in enumerate(self._scopes):
            for v in scope:
                self._factors[v].append(a)

    def region(self, variables: Iterable[int], along: Iterable[Edge] | None = None) -> Region:
        """The region of these variables with all factors inside, or all whose pairs are `along`."""
        inside = set(variables)
        near = {a for v in inside for a in self._factors[v]}
        factors = [a for a in near if inside.issuperset(self._scopes[a])]
        if along is not None:
            allowed = set(along)
            factors = [a for a in factors if self._pairs(a) <= allowed]
        return Region(tuple(sorted(inside)), tuple(sorted(factors)))

    def cycle(self, cycle: Sequence[int]) -> Region:
        """The region of a cycle with the factors of its own variables and edges only."""
        if len(set(cycle)) < max(len(cycle), 3):
            raise ModelError(f"{tuple(cycle)} is not a cycle: it needs three different variables")
        return self.region(cycle, edges_of_cycle(cycle))

    def _pairs(self, factor: int) -> set[Edge]:
        return {ordered(i, j) for i, j in combinations(self._scopes[factor], 2)}


# ---------------------------------------------------------------------- faces


def grid_faces(rows: int, cols: int, *, periodic: bool = False) -> list[Cycle]:
    """Return the unit squares of a grid numbered row by row, each in cyclic order.

    >>> grid_faces(2, 3)
    [(0, 1, 4, 3), (1, 2, 5, 4)]
    """
    cells = np.arange(rows * cols).reshape(rows, cols)
    if periodic:
        cells = np.pad(cells, (0, 1), mode="wrap")
    corners = [cells[:-1, :-1], cells[:-1, 1:], cells[1:, 1:], cells[1:, :-1]]
    return [(a, b, c, d) for a, b, c, d in np.stack(corners, axis=-1).reshape(-1, 4).tolist()]


def grid_border(rows: int, cols: int) -> Cycle:
    """The outer face of an open grid.

    >>> grid_border(3, 3)
    (0, 1, 2, 5, 8, 7, 6, 3)
    """
    cells = np.arange(rows * cols).reshape(rows, cols)
    sides = [cells[0, :-1], cells[:-1, -1], cells[-1, :0:-1], cells[:0:-1, 0]]
    return tuple(np.concatenate(sides).tolist())


def grid_windows(
    rows: int, cols: int, high: int, wide: int, *, periodic: bool = False
) -> list[tuple[int, ...]]:
    """All windows of `high` by `wide` variables of a grid numbered row by row.

    On a periodic grid they wrap around, with each set of variables once.

    >>> grid_windows(2, 3, 2, 2)
    [(0, 1, 3, 4), (1, 2, 4, 5)]
    """
    cells = np.arange(rows * cols).reshape(rows, cols)
    if periodic:
        cells = np.pad(cells, ((0, high - 1), (0, wide - 1)), mode="wrap")
    windows = np.lib.stride_tricks.sliding_window_view(cells, (high, wide))
    variables = map(tuple, np.sort(windows.reshape(-1, high * wide), axis=1).tolist())
    return list(dict.fromkeys(variables))


def planar_faces(edges: Sequence[Edge], *, outer: bool = False) -> list[Cycle] | None:
    """Faces of a planar embedding of each two-connected part, or None if there is no embedding.

    Faces of two-connected graphs are simple cycles; bridges belong to none. The longest face of
    each part is treated as the outer one and omitted unless `outer` is set (theorem 2: the others
    are a tree-robust basis).

    >>> planar_faces([(0, 1), (1, 2), (0, 2), (2, 3)])
    [(0, 2, 1)]
    """
    import networkx as nx

    chosen: list[Cycle] = []
    for part in nx.biconnected_component_edges(nx.Graph(edges)):
        block = sorted(ordered(i, j) for i, j in part)
        if len(block) < 3:
            continue
        planar, embedding = nx.check_planarity(nx.Graph(block))
        if not planar:
            return None
        faces = _traced_faces(embedding, block)
        if not outer:
            faces.remove(max(faces, key=len))
        chosen += faces
    return chosen


def _traced_faces(embedding: Any, block: list[Edge]) -> list[Cycle]:
    seen: set[Edge] = set()
    faces = []
    for i, j in [*block, *((j, i) for i, j in block)]:
        if (i, j) not in seen:
            faces.append(tuple(embedding.traverse_face(i, j, mark_half_edges=seen)))
    return faces


# ---------------------------------------------------------------------- short cycles and stars


def short_cycles(
    n: int, edges: Sequence[Edge] | Ints | U4, longest: int, *, steps: int = MOST_STEPS
) -> list[Cycle]:
    """Every simple cycle of at most `longest` variables once, from its smallest variable.

    Raises an error after this many `steps`; variables in dangling trees need none.

    >>> short_cycles(4, [(0, 1), (1, 2), (2, 3), (0, 3), (0, 2)], 3)
    [(0, 1, 2), (0, 2, 3)]
    """
    blocks = [block.tolist() for block in _cycle_blocks(n, edges, longest, steps)]
    return [tuple(v for v in row if v >= 0) for block in blocks for row in block]


def _cycle_blocks(
    n: int, edges: Sequence[Edge] | Ints | U4, longest: int, steps: int
) -> Iterator[NDArray[np.int64]]:
    """Yield the cycles of `short_cycles` in blocks of rows padded with -1."""
    from kikuchi.graphs.kernels import cycles as kernels

    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    ends = np.concatenate([pairs, pairs[:, ::-1]])
    around = ends[np.lexsort((ends[:, 1], ends[:, 0])), 1]
    degree = np.bincount(ends[:, 0], minlength=n)
    at = np.concatenate([[0], np.cumsum(degree)])
    kernels.drop_branches(at, around, degree)
    marks = np.full(n, -1)
    start, room = 0, _CYCLES_AT_ONCE
    while start < n:
        out = np.empty((room, longest), dtype=np.int64)
        rows, start, steps = kernels.list_cycles(
            at, around, degree, start, longest, steps, out, marks
        )
        if steps < 0:
            raise BudgetError(
                f"the model has too many paths of {longest} variables to list its cycles; "
                "use a shorter bound, cycles or tree-robust"
            )
        room = room if rows else 2 * room
        require_time("listing the cycles", "choose the regions bethe")
        yield out[:rows]


def loops(
    n: int,
    edges: Sequence[Edge] | Ints | U4,
    longest: int,
    *,
    most: int | None = None,
    steps: int = MOST_STEPS,
) -> list[Cycle]:
    """Return the distinct sets of variables of all cycles of at most `longest` variables, sorted.

    Raises an error for more than `most` of them (`MOST_CYCLES`), or after this many `steps`.

    >>> loops(4, [(0, 1), (1, 2), (2, 3), (0, 3), (0, 2)], 4)
    [(0, 1, 2), (0, 1, 2, 3), (0, 2, 3)]
    """
    limit = MOST_CYCLES if most is None else most
    found = np.zeros((0, longest), dtype=np.int64)
    for block in _cycle_blocks(n, edges, longest, steps):
        found = _distinct_rows(np.concatenate([found, np.sort(block, axis=1)]))
        if len(found) > limit:
            raise BudgetError(
                f"the model has more than {limit} cycles of at most {longest} variables; "
                "use a shorter bound, cycles or tree-robust"
            )
    rows = found.tolist()
    if not np.any(found < 0):
        return list(map(tuple, rows))
    return sorted(tuple(v for v in row if v >= 0) for row in rows)


def _distinct_rows(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each row once, sorted."""
    rows = rows[np.lexsort(rows.T[::-1])]
    return rows[np.any(np.diff(rows, axis=0, prepend=-2), axis=1)]


def star_triangles(neighbours: Neighbours, root: int) -> list[Cycle]:
    """Triangles with `root` (theorem 3: a tree-robust basis of a complete graph).

    >>> star_triangles(neighbour_sets(4, combinations(range(4), 2)), 1)
    [(1, 0, 2), (1, 0, 3), (1, 2, 3)]
    """
    around = sorted(neighbours[root])
    return [(root, j, k) for j, k in combinations(around, 2) if k in neighbours[j]]


# ---------------------------------------------------------------------- a shortest cycle basis


def minimum_cycle_basis(n: int, edges: Sequence[Edge], *, seed: int = 0) -> list[Cycle]:
    """A basis of the cycle space with the smallest total length (definition 9).

    Horton's candidates, two shortest paths from a variable joined by an edge, are sorted by length
    and added if independent over GF(2). Small random weights make shortest paths unique, as
    required for the candidates. Candidates from small balls come first: if all cycles are short,
    the work is linear in the graph.

    >>> sorted(map(sorted, minimum_cycle_basis(4, [(0, 1), (1, 2), (2, 3), (0, 3), (0, 2)])))
    [[0, 1, 2], [0, 2, 3]]
    """
    neighbours = neighbour_sets(n, edges)
    bits = _chord_bits(n, neighbours)
    weights = dict(zip(edges, generator(seed).random(len(edges)).tolist(), strict=True))
    wanted = len(bits)
    basis: dict[int, int] = {}
    cycles: list[Cycle] = []
    radius, done = 1, 2
    while len(cycles) < wanted:
        for cycle in _horton_cycles(neighbours, weights, radius, done):
            if _is_independent(sum_of_bits(cycle, bits), basis):
                cycles.append(cycle)
                if len(cycles) == wanted:
                    break
        done, radius = 2 * radius + 1, 2 * radius
    return cycles


def n_independent(n: int, edges: Sequence[Edge] | Ints | U4) -> int:
    """Number of independent cycles: |E| - |V| + number of components.

    >>> n_independent(4, [(0, 1), (1, 2), (0, 2)])
    1
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    matrix = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    return len(pairs) - n + int(connected_components(matrix, directed=False)[0])


def independent_cycles(neighbours: Neighbours, loops: Iterable[Cycle]) -> list[Cycle]:
    """Return linearly independent cycles, chosen greedily from the shortest.

    >>> square = neighbour_sets(4, [(0, 1), (1, 2), (2, 3), (0, 3), (0, 2)])
    >>> independent_cycles(square, [(0, 1, 2), (0, 2, 3), (0, 1, 2, 3)])
    [(0, 1, 2), (0, 2, 3)]
    """
    bits = _chord_bits(len(neighbours), neighbours)
    basis: dict[int, int] = {}
    return [c for c in sorted(loops, key=len) if _is_independent(sum_of_bits(c, bits), basis)]


def _chord_bits(n: int, neighbours: Neighbours) -> dict[Edge, int]:
    """Return one bit for each edge outside a spanning forest; these bits identify cycles."""
    seen = [False] * n
    forest: set[Edge] = set()
    for start in range(n):
        if seen[start]:
            continue
        seen[start] = True
        stack = [start]
        while stack:
            i = stack.pop()
            for j in sorted(neighbours[i]):
                if not seen[j]:
                    seen[j] = True
                    forest.add(ordered(i, j))
                    stack.append(j)
    chords = [(i, j) for i in range(n) for j in sorted(neighbours[i]) if i < j]
    return {edge: 1 << k for k, edge in enumerate(e for e in chords if e not in forest)}


def sum_of_bits(cycle: Cycle, bits: dict[Edge, int]) -> int:
    """The chords of a cycle as one whole number."""
    return sum(bits.get(edge, 0) for edge in edges_of_cycle(cycle))


def _is_independent(vector: int, basis: dict[int, int]) -> bool:
    """Reduce by the basis and add a nonzero remainder to it; return False if the remainder is
    zero.
    """
    while vector:
        top = vector.bit_length()
        if top not in basis:
            basis[top] = vector
            return True
        vector ^= basis[top]
    return False


def _horton_cycles(
    neighbours: Neighbours, weights: dict[Edge, float], radius: int, longer_than: int
) -> list[Cycle]:
    """Return the candidates of more than `longer_than` and at most 2 radius + 1 variables, shortest
    first.
    """
    candidates: dict[frozenset[Edge], tuple[int, float, Cycle]] = {}
    steps = 0
    for root in range(len(neighbours)):
        parent, depth, cost = _ball(neighbours, weights, root, radius)
        steps += len(parent)
        if steps > MOST_STEPS:
            raise BudgetError(
                "the model has too many long cycles to find a shortest basis; "
                "use loops:4, tree-robust or bethe"
            )
        for i in parent:
            for j in neighbours[i]:
                if i < j and j in parent and i != parent[j] and j != parent[i]:
                    length = depth[i] + depth[j] + 1
                    if longer_than < length <= 2 * radius + 1:
                        cycle = _joined_paths(parent, i, j)
                        if cycle:
                            weight = cost[i] + cost[j] + weights[i, j]
                            key = frozenset(edges_of_cycle(cycle))
                            candidates.setdefault(key, (length, weight, cycle))
    return [cycle for _, _, cycle in sorted(candidates.values())]


def _ball(
    neighbours: Neighbours, weights: dict[Edge, float], root: int, radius: int
) -> tuple[dict[int, int], dict[int, int], dict[int, float]]:
    """Shortest paths from `root` of at most `radius` edges: parent, depth and weight of each."""
    parent, depth, cost = {root: root}, {root: 0}, {root: 0.0}
    layer = [root]
    for level in range(1, radius + 1):
        reached: dict[int, int] = {}
        for i in layer:
            for j in neighbours[i]:
                if j not in depth:
                    total = cost[i] + weights[ordered(i, j)]
                    if j not in reached or total < cost[j]:
                        reached[j], cost[j] = i, total
        parent.update(reached)
        depth.update(dict.fromkeys(reached, level))
        layer = list(reached)
    return parent, depth, cost


def _joined_paths(parent: dict[int, int], i: int, j: int) -> Cycle | None:
    """Return the paths from the root to i and j with the edge (i, j), if they meet only at the
    root.
    """
    left, right = [i], [j]
    while parent[left[-1]] != left[-1]:
        left.append(parent[left[-1]])
    while parent[right[-1]] != right[-1]:
        right.append(parent[right[-1]])
    if len(set(left) & set(right)) > 1:
        return None
    return (*left, *reversed(right[:-1]))


# ---------------------------------------------------------------------- long cycles


def cut_cycle(
    cycle: Cycle, cardinalities: Sequence[int], most_states: int
) -> list[tuple[int, ...]]:
    """Cut a cycle into paths that start at one variable, so that no region has too many states (gap
    d).

    Cycles of up to four variables are not cut. The chords between pieces also become regions. If
    other regions intersect the cycle only in single edges, the approximation is unchanged, because
    the maximum-entropy distribution of a cycle with given edge marginals is a fan of triangles.

    >>> cut_cycle((0, 1, 2, 3, 4, 5), [2] * 6, 16)
    [(0, 1, 2, 3), (0, 3, 4, 5)]
    """
    if len(cycle) <= 4 or math.prod(cardinalities[v] for v in cycle) <= most_states:
        return [cycle]
    anchor, others = cycle[0], cycle[1:]
    pieces: list[tuple[int, ...]] = []
    begin = 0
    while begin < len(others) - 1:
        end = begin + 2
        states = math.prod(cardinalities[v] for v in (anchor, *others[begin:end]))
        while end < len(others) and states * cardinalities[others[end]] <= most_states:
            states *= cardinalities[others[end]]
            end += 1
        pieces.append((anchor, *others[begin:end]))
        begin = end - 1
    return pieces
