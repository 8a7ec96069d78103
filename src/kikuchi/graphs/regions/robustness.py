"""Tree-robust cycle bases: the test, and Liu's Algorithm 1 for general graphs.

Reference: LIU-I12.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np

from kikuchi.core.errors import BudgetError, ModelError
from kikuchi.core.seeds import generator
from kikuchi.graphs.regions.cycles import (
    Cycle,
    Edge,
    Neighbours,
    edges_of_cycle,
    neighbour_sets,
    ordered,
    planar_faces,
    star_triangles,
)

_MOST_TREES = 2_000
_PLANARITY_WORK = 100_000  # edges read by planarity tests, about two seconds
_PATH_WORK = 20_000_000
_CLIQUE_STARTS = 20


@dataclass(frozen=True)
class TreeRobustness:
    """Number of spanning trees for which a cycle basis is tree exact; true if for all that were
    tested.

    `basis` is True if there are as many cycles as in a basis, and `sampled` if trees were drawn at
    random because there are too many to list: "robust" then means that no counterexample was found.
    """

    exact_trees: int
    trees: int
    sampled: bool
    basis: bool

    def __bool__(self) -> bool:
        return self.basis and self.exact_trees == self.trees

    def __str__(self) -> str:
        drawn = " drawn at random" if self.sampled else ""
        verdict = "tree-robust" if self else "not tree-robust"
        if not self.basis:
            return f"{verdict}: not as many cycles as in a basis"
        return f"{verdict}: exact for {self.exact_trees} of {self.trees} spanning trees{drawn}"


def tree_exact(cycles: Iterable[Sequence[int]], tree: Iterable[Edge]) -> bool:
    """Return whether the cycles can be removed one by one, each owning an edge outside the tree.

    An edge is owned if no other remaining cycle contains it. Removing a cycle does not change the
    owned edges of others, so any order of removal gives the same result. This is the corrected
    definition; the published one omits the tree.

    >>> tree_exact([(0, 1, 2), (0, 2, 3)], [(0, 1), (0, 2), (0, 3)])
    True
    >>> tree_exact([(0, 1, 2)], [(0, 1), (1, 2), (0, 2)])
    False
    """
    inside = {ordered(*edge) for edge in tree}
    owned = [set(edges_of_cycle(tuple(cycle))) - inside for cycle in cycles]
    holders: dict[Edge, set[int]] = {}
    for k, edges in enumerate(owned):
        for edge in edges:
            holders.setdefault(edge, set()).add(k)
    ready = [k for k, edges in enumerate(owned) if any(len(holders[e]) == 1 for e in edges)]
    removed: set[int] = set()
    while ready:
        k = ready.pop()
        if k in removed:
            continue
        removed.add(k)
        for edge in owned[k]:
            holders[edge].discard(k)
            if len(holders[edge]) == 1:
                ready.append(next(iter(holders[edge])))
    return len(removed) == len(owned)


def is_tree_robust(
    graph_edges: Iterable[Edge],
    cycles: Iterable[Sequence[int]],
    *,
    samples: int = 200,
    seed: int = 0,
) -> TreeRobustness:
    """Whether a cycle basis is tree exact for all spanning trees of a connected graph.

    All trees are tested for graphs with at most 2000 spanning trees; for others `samples` trees are
    drawn uniformly (Wilson's walks), which the result records.

    >>> triangle = [(0, 1), (1, 2), (0, 2)]
    >>> print(is_tree_robust(triangle, [(0, 1, 2)]))
    tree-robust: exact for 3 of 3 spanning trees
    """
    edges = sorted({ordered(*edge) for edge in graph_edges})
    rings = [tuple(cycle) for cycle in cycles]
    nodes = sorted({v for edge in edges for v in edge})
    known = set(edges)
    for ring in rings:
        for i, j in edges_of_cycle(ring):
            if (i, j) not in known:
                raise ModelError(f"cycle {ring} uses ({i}, {j}), which is not an edge of the graph")
    log_trees = log_spanning_trees(edges)
    if log_trees == -np.inf:
        raise ModelError("the graph is not connected; test each component separately")
    basis = len(rings) == len(edges) - len(nodes) + 1
    sampled = log_trees > np.log(_MOST_TREES)
    trees = random_trees(edges, samples, seed) if sampled else spanning_trees(edges)
    verdicts = [tree_exact(rings, tree) for tree in trees]
    return TreeRobustness(sum(verdicts), len(verdicts), bool(sampled), basis)


def log_spanning_trees(edges: Sequence[Edge]) -> float:
    """log of the number of spanning trees, by Kirchhoff's determinant; -inf if not connected.

    >>> round(float(np.exp(log_spanning_trees(list(combinations(range(5), 2))))))
    125
    """
    nodes = sorted({v for edge in edges for v in edge})
    place = {v: k for k, v in enumerate(nodes)}
    laplacian = np.zeros((len(nodes), len(nodes)))
    for i, j in edges:
        a, b = place[i], place[j]
        laplacian[[a, b], [a, b]] += 1
        laplacian[[a, b], [b, a]] -= 1
    sign, value = np.linalg.slogdet(laplacian[1:, 1:])
    return float(value) if sign > 0 and value > -1e-6 else -np.inf


def spanning_trees(edges: Sequence[Edge]) -> Iterator[list[Edge]]:
    """All spanning trees of a connected graph.

    >>> len(list(spanning_trees([(0, 1), (1, 2), (0, 2)])))
    3
    """
    nodes = {v for edge in edges for v in edge}
    stack: list[tuple[list[Edge], int]] = [([], 0)]
    while stack:
        chosen, k = stack.pop()
        if len(chosen) == len(nodes) - 1:
            yield chosen
            continue
        # The remaining edges must be able to join all parts, or there is no tree.
        if k == len(edges) or _parts(nodes, [*chosen, *edges[k:]]) > 1:
            continue
        stack.append((chosen, k + 1))
        with_edge = [*chosen, edges[k]]
        if _parts(nodes, with_edge) == len(nodes) - len(with_edge):
            stack.append((with_edge, k + 1))


def _parts(nodes: set[int], edges: Iterable[Edge]) -> int:
    """Number of connected parts."""
    return len(nodes) - len(_spanning_tree(nodes, edges))


def _spanning_tree(nodes: Iterable[int], edges: Iterable[Edge]) -> list[Edge]:
    """Return the edges that close no cycle with previous ones."""
    top = {v: v for v in nodes}

    def find(v: int) -> int:
        while top[v] != v:
            top[v] = top[top[v]]
            v = top[v]
        return v

    tree = []
    for i, j in edges:
        a, b = find(i), find(j)
        if a != b:
            top[a] = b
            tree.append((i, j))
    return tree


def random_trees(edges: Sequence[Edge], count: int, seed: int) -> Iterator[list[Edge]]:
    """Uniform spanning trees by loop-erased random walks (Wilson).

    >>> [len(tree) for tree in random_trees([(0, 1), (1, 2), (0, 2)], 2, seed=0)]
    [2, 2]
    """
    rng = generator(seed)
    nodes = sorted({v for edge in edges for v in edge})
    around = {v: sorted(s) for v, s in enumerate(neighbour_sets(max(nodes) + 1, edges)) if s}
    for _ in range(count):
        inside = {nodes[int(rng.integers(len(nodes)))]}
        step: dict[int, int] = {}
        for start in nodes:
            v = start
            while v not in inside:
                step[v] = around[v][int(rng.integers(len(around[v])))]
                v = step[v]
            v = start
            while v not in inside:
                inside.add(v)
                v = step[v]
        yield [ordered(v, w) for v, w in step.items()]


# ---------------------------------------------------------------------- Algorithm 1


@dataclass(frozen=True)
class GrownRoots:
    """Cycles and single edges that cover a graph; the first `n_core` are a tree-robust basis."""

    roots: list[tuple[int, ...]]
    n_core: int
    core: str


def grow_roots(n: int, edges: Sequence[Edge]) -> GrownRoots:
    """Algorithm 1 of Liu for general graphs, with its gaps filled.

    For each component: a planar or complete subgraph, whichever has the larger cycle space, gives
    its tree-robust basis; then every unused edge closes a cycle with a shortest path over used
    ones. (a) Bridges become roots of two variables. (b) Components are processed one by one. (c)
    Roots contained in others and (d) long cycles are left to the caller: `closure` removes the
    former, `cut_cycle` cuts the latter. Only the core is tree-robust.

    >>> grow_roots(4, [(0, 1), (1, 2), (0, 2), (2, 3)]).roots
    [(0, 2, 1), (2, 3)]
    """
    neighbours = neighbour_sets(n, edges)
    cores: list[tuple[int, ...]] = []
    grown: list[tuple[int, ...]] = []
    kinds = []
    for part in _components(neighbours):
        if len(part) < 2:
            continue
        kind, basis, core_edges = _core(neighbours, part)
        cores += basis
        kinds.append(kind)
        grown += _Growth(neighbours, core_edges).run()
    core = " and ".join(sorted(set(kinds))) or "empty"
    roots = [*cores, *grown]
    on_cycles = {edge for root in roots for edge in edges_of_cycle(root)}
    roots += [edge for edge in edges if edge not in on_cycles]
    return GrownRoots(roots, len(cores), core)


def _components(neighbours: Neighbours) -> Iterator[list[int]]:
    seen: set[int] = set()
    for start in range(len(neighbours)):
        if start in seen:
            continue
        part = [start]
        seen.add(start)
        for v in part:
            fresh = sorted(neighbours[v] - seen)
            seen.update(fresh)
            part += fresh
        yield part


def _core(neighbours: Neighbours, part: list[int]) -> tuple[str, list[Cycle], list[Edge]]:
    """A planar or complete subgraph with many cycles: its kind, tree-robust basis and edges."""
    clique = _greedy_clique(neighbours, part)
    star = star_triangles([s & set(clique) for s in neighbours], min(clique))
    edges = _planar_subgraph(neighbours, part)
    faces = planar_faces(edges)
    assert faces is not None  # the subgraph was tested
    if len(star) > len(faces):
        return "complete", star, sorted(ordered(i, j) for i, j in combinations(clique, 2))
    return "planar", faces, edges


def _greedy_clique(neighbours: Neighbours, part: list[int]) -> list[int]:
    best: list[int] = []
    for start in sorted(part, key=lambda v: (-len(neighbours[v]), v))[:_CLIQUE_STARTS]:
        clique, open_ends = [start], set(neighbours[start])
        while open_ends:
            v = min(open_ends, key=lambda v: (-len(neighbours[v] & open_ends), v))
            clique.append(v)
            open_ends &= neighbours[v]
        if len(clique) > len(best):
            best = clique
    return best


def _planar_subgraph(neighbours: Neighbours, part: list[int]) -> list[Edge]:
    """Return a spanning tree and further edges, as far as planarity tests within a fixed effort
    allow.
    """
    import networkx as nx

    edges = sorted({ordered(i, j) for i in part for j in neighbours[i]})
    edges.sort(key=lambda edge: _detour(neighbours, *edge))
    tree = _spanning_tree(part, edges)
    inside = set(tree)
    rest = [edge for edge in edges if edge not in inside]
    chosen = list(tree)
    batches = deque([rest])
    work = 0
    while batches and len(chosen) < max(3 * len(part) - 6, 1) and work < _PLANARITY_WORK:
        batch = batches.popleft()
        work += len(chosen) + len(batch)
        if nx.check_planarity(nx.Graph([*chosen, *batch]))[0]:
            chosen += batch
        elif len(batch) > 1:
            middle = len(batch) // 2
            batches.extendleft([batch[middle:], batch[:middle]])
    return chosen


def _detour(neighbours: Neighbours, i: int, j: int) -> int:
    """Return 2 or 3 if a path of that many other edges joins i and j, else 4: edges of short cycles
    come first.
    """
    if neighbours[i] & neighbours[j]:
        return 2
    goal = neighbours[j] - {i}
    return 3 if any(neighbours[k] & goal for k in neighbours[i] if k != j) else 4


class _Growth:
    """Step 4 of the algorithm: cycles through unused edges until all are used."""

    def __init__(self, neighbours: Neighbours, core: list[Edge]) -> None:
        self.neighbours = neighbours
        self.used: dict[int, set[int]] = {}
        self.visited = {v for edge in core for v in edge}
        self.roots: list[tuple[int, ...]] = []
        self.work = 0
        for edge in core:
            self._use(*edge)

    def run(self) -> list[tuple[int, ...]]:
        frontier = deque(sorted(self.visited))
        while frontier:
            s = frontier.popleft()
            for t in sorted(self.neighbours[s]):
                if t not in self.used.get(s, ()):
                    frontier.extend(self._add(s, t))
        return self.roots

    def _add(self, s: int, t: int) -> list[int]:
        """Use the edge (s, t) in a cycle, or alone if it is a bridge; the new variables."""
        outward = [s, t] if t in self.visited else self._return_path(s, t)
        new = [v for v in outward if v not in self.visited]
        if len(outward) == 1:
            self.roots.append(ordered(s, t))
            self._use(s, t)
            new = [t]
        else:
            back = self._used_path(outward[-1], s)
            self.roots.append((*outward, *back[1:-1]) if back[1:] else tuple(outward[:-1]))
            for i, j in pairwise(outward):
                self._use(i, j)
        self.visited.update(new)
        return new

    def _return_path(self, s: int, t: int) -> list[int]:
        """A shortest path s, t, ... over new variables to a visited one; just [s] if none is."""
        parent = {t: s}
        layer = deque([t])
        while layer:
            i = layer.popleft()
            for j in sorted(self.neighbours[i]):
                self._count()
                if j in self.visited and (i, j) != (t, s):
                    return [*_walk_back(parent, i, s), j]
                if j not in self.visited and j not in parent:
                    parent[j] = i
                    layer.append(j)
        return [s]

    def _used_path(self, start: int, goal: int) -> list[int]:
        parent = {start: start}
        layer = deque([start])
        while goal not in parent:
            i = layer.popleft()
            for j in sorted(self.used[i]):
                self._count()
                if j not in parent:
                    parent[j] = i
                    layer.append(j)
        return _walk_back(parent, goal, start)

    def _use(self, i: int, j: int) -> None:
        self.used.setdefault(i, set()).add(j)
        self.used.setdefault(j, set()).add(i)

    def _count(self) -> None:
        self.work += 1
        if self.work > _PATH_WORK:
            raise BudgetError(
                "the graph is too large for tree-robust roots: it is neither planar nor complete; "
                "use loops:4 or bethe"
            )


def _walk_back(parent: dict[int, int], end: int, start: int) -> list[int]:
    path = [end]
    while path[-1] != start:
        path.append(parent[path[-1]])
    return path[::-1]
