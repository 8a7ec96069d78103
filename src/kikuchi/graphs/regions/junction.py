"""Junction graphs: cliques, and separators along which they agree.

Reference: TEH-M27.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from kikuchi.core.errors import BudgetError
from kikuchi.graphs.disjoint_sets import find_root
from kikuchi.graphs.elimination import eliminate
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.junction_tree import Clique, Separator, junction_tree
from kikuchi.graphs.regions import sets
from kikuchi.graphs.regions.cycles import Edge, neighbour_sets, ordered, pair_edges
from kikuchi.graphs.regions.sets import SetFamily

_MOST_OVERLAPS = 10_000_000


def spanning_tree_separators(cliques: SetFamily) -> list[Separator]:
    """Return separators from one maximum spanning tree for each variable (Aji and McEliece).

    The tree of variable i spans the cliques with i, heavy overlaps first; cliques c and d get the
    variables whose trees use the edge (c, d) as separator. All trees break ties in the same way, so
    that cliques that admit a junction tree are joined to one.

    >>> spanning_tree_separators(SetFamily.of([(0, 1), (1, 2), (0, 2)], 3))
    [(0, 1, (1,)), (0, 2, (0,)), (1, 2, (2,))]
    """
    parent = list(range(len(cliques.items)))
    position = [{v: k for k, v in row} for row in _numbered(cliques)]
    separators: list[Separator] = []
    for c, d in _heavy_overlaps_first(cliques):
        shared = []
        for v in sorted(position[c].keys() & position[d].keys()):
            left = find_root(parent, position[c][v])
            right = find_root(parent, position[d][v])
            if left != right:
                parent[left] = right
                shared.append(v)
        if shared:
            separators.append((c, d, tuple(shared)))
    return separators


def _numbered(family: SetFamily) -> Iterable[list[tuple[int, int]]]:
    """Members of each set with their positions in the flat array."""
    items, at = family.items.tolist(), family.offsets.tolist()
    for k in range(len(family)):
        yield list(enumerate(items[at[k] : at[k + 1]], at[k]))


def _heavy_overlaps_first(cliques: SetFamily) -> Iterable[tuple[int, int]]:
    """Pairs of cliques that overlap, in many variables first, then by number."""
    held = cliques.holders.sizes
    if np.sum(held**2) > _MOST_OVERLAPS:
        raise BudgetError(
            f"one variable is in {held.max()} cliques, too many to join by spanning trees; "
            "use bethe or junction-tree"
        )
    place, entry = sets.spread(cliques.holders.offsets[cliques.items], held[cliques.items])
    one, other = cliques.owners[entry], cliques.holders.items[place]
    keys, overlap = np.unique((one * len(cliques) + other)[one < other], return_counts=True)
    order = np.lexsort((keys, -overlap))
    first, second = np.divmod(keys[order], max(len(cliques), 1))
    return zip(first.tolist(), second.tolist(), strict=True)


# ---------------------------------------------------------------------- mini-buckets


def mini_buckets(graph: FactorGraph, most: int) -> tuple[list[Clique], list[Separator], str]:
    """A junction graph of mini-buckets of at most `most` variables (Dechter, Kask and Mateescu).

    Variables are eliminated as for a junction tree, but the bucket of a variable is split into
    parts of at most `most` variables (or one factor, if that has more). A part passes all its
    variables except the eliminated one to a part of a later bucket; parts of one bucket are joined
    by the eliminated variable only. If no bucket is split, this is a junction tree.

    >>> square = FactorGraph([2] * 4, [((i, (i + 1) % 4), np.ones(4)) for i in range(4)])
    >>> mini_buckets(square, 2)[:2]
    ([(0, 1), (0, 3), (1, 2), (2, 3)], [(0, 1, (0,)), (0, 2, (1,)), (2, 3, (2,)), (1, 3, (3,))])
    >>> mini_buckets(square, 3)[:2]
    ([(0, 1, 3), (1, 2, 3)], [(0, 1, (1, 3))])
    """
    elimination = eliminate(graph)
    order = [int(v) for v in elimination.order]
    left = set(range(graph.n_variables)) - set(order)  # none, unless the search gave up
    degrees = np.bincount(graph.scopes, minlength=graph.n_variables)
    order += sorted(left, key=lambda v: (int(degrees[v]), v))
    buckets = _Buckets(graph, order, most)
    split = sum(buckets.eliminate(v) for v in order)
    cliques, separators = buckets.contracted()
    note = f"mini-buckets of at most {most} variables, {split} of {len(order)} buckets split"
    return cliques, separators, note


class _Buckets:
    """Scopes and messages in the bucket of their first variable, and the parts created."""

    def __init__(self, graph: FactorGraph, order: list[int], most: int) -> None:
        self.most = most
        self.step = {v: k for k, v in enumerate(order)}
        self.waiting: list[list[tuple[frozenset[int], int | None]]] = [[] for _ in order]
        for a in range(graph.n_factors):
            self._put(frozenset(graph.scope(a)), None)
        self.parts: list[set[int]] = []
        self.joins: list[Separator] = []

    def _put(self, scope: frozenset[int], sender: int | None) -> None:
        self.waiting[min(scope, key=self.step.__getitem__)].append((scope, sender))

    def eliminate(self, v: int) -> bool:
        """Split the bucket of a variable and pass on the rest of each part; return whether it was
        split.
        """
        first = len(self.parts)
        for scope, sender in sorted(self.waiting[v], key=lambda item: -len(item[0])):
            part = self._part_for(scope, first)
            self.parts[part] |= scope
            if sender is not None:
                self.joins.append((sender, part, tuple(sorted(scope))))
        if len(self.parts) == first:
            self.parts.append({v})
        for part in range(first, len(self.parts)):
            if part > first:
                self.joins.append((part - 1, part, (v,)))
            rest = frozenset(self.parts[part] - {v})
            if rest:
                self._put(rest, part)
        return len(self.parts) > first + 1

    def _part_for(self, scope: frozenset[int], first: int) -> int:
        """Return the part of the bucket that has room for a scope and shares most with it, or a new
        part.
        """
        fits = [
            (-len(scope & self.parts[k]), k)
            for k in range(first, len(self.parts))
            if len(scope | self.parts[k]) <= max(self.most, len(self.parts[k]))
        ]
        if fits:
            return min(fits)[1]
        self.parts.append(set())
        return len(self.parts) - 1

    def contracted(self) -> tuple[list[Clique], list[Separator]]:
        """Return parts and joins after merging parts that are contained in a neighbour."""
        into = list(range(len(self.parts)))

        def home(k: int) -> int:
            while into[k] != k:
                k = into[k]
            return k

        separators: list[Separator] = []
        for one, other, shared in self.joins:
            if len(shared) == len(self.parts[other]) and home(other) == other:
                into[other] = home(
                    one
                )  # a later part equals the variables passed on by an earlier one
            else:
                separators.append((one, other, shared))
        alive = [k for k in range(len(into)) if into[k] == k]
        number_of = {k: number for number, k in enumerate(alive)}
        cliques = [tuple(sorted(self.parts[k])) for k in alive]
        ends = [(number_of[home(i)], number_of[home(j)], shared) for i, j, shared in separators]
        return cliques, [(min(i, j), max(i, j), shared) for i, j, shared in ends]


# ---------------------------------------------------------------------- growing cliques


def grown_cliques(graph: FactorGraph, most: int) -> tuple[list[Clique], str]:
    """Cliques of at most `most` variables, grown from the factors, and how (specs 10.4).

    They start as the scopes and grow one variable at a time inside the cliques of a junction tree,
    along edges of the pair graph where that is possible.
    Without data there is no mutual information to gain, so the gain of a new pair of variables is
    one plus the number of their common neighbours, since paths of length two make them dependent.
    Without gain the smallest clique grows. If `most` is at least the size of the junction tree's
    cliques, these are the result. If there is no junction tree, cliques grow along edges only.
    """
    elimination = eliminate(graph)
    limits = junction_tree(elimination).cliques if elimination.complete else None
    if limits is not None and elimination.width < most:
        return limits, "the cliques of a junction tree"
    where = "along edges" if limits is None else "inside those of a junction tree"
    growth = _GreedyCliques(graph, most, limits)
    return growth.run(), f"cliques grown to {most} variables {where}"


class _GreedyCliques:
    """The state of the greedy growth: cliques that are alive, and pairs already together."""

    def __init__(self, graph: FactorGraph, most: int, limits: list[Clique] | None) -> None:
        n = graph.n_variables
        self.most = most
        self.neighbours = neighbour_sets(n, pair_edges(graph))
        scopes = [*map(graph.scope, range(graph.n_factors)), *((v,) for v in range(n))]
        starts = sets.maximal(SetFamily.of(scopes, n)).tuples()
        self.cliques: dict[int, frozenset[int]] = dict(enumerate(map(frozenset, starts)))
        self.holders: list[set[int]] = [set() for _ in range(n)]
        for k, clique in self.cliques.items():
            for v in clique:
                self.holders[v].add(k)
        self.together = {ordered(i, j) for i, near in enumerate(self.neighbours) for j in near}
        self.limits = None if limits is None else [frozenset(c) for c in limits]
        self.limits_with: list[set[int]] = [set() for _ in range(n)]
        for k, limit in enumerate(self.limits or ()):
            for v in limit:
                self.limits_with[v].add(k)
        self.worth: dict[Edge, int] = {}

    def run(self) -> list[Clique]:
        """Grow until no clique can."""
        grow_greedily(self.cliques, self._best, self._grow)
        return [tuple(sorted(clique)) for clique in self.cliques.values()]

    def _best(self, k: int) -> tuple[int, int, int, int, int] | None:
        """(-gain, size, -links, clique, variable) of the best extension of a clique."""
        clique = self.cliques[k]
        if len(clique) >= self.most:
            return None
        options = [
            (-self._gain(clique, v), len(clique), -len(clique & self.neighbours[v]), k, v)
            for v in self._candidates(clique)
        ]
        return min(options, default=None)

    def _candidates(self, clique: frozenset[int]) -> set[int]:
        """Return neighbours of the clique that fit within its limits; if there are none, all
        variables that fit.
        """
        near = set().union(*(self.neighbours[v] for v in clique)) - clique
        if self.limits is None:
            return near
        around = set.intersection(*(self.limits_with[v] for v in clique))
        fitting = {v for v in near if not around.isdisjoint(self.limits_with[v])}
        return fitting or set().union(*(self.limits[k] for k in around)) - clique

    def _gain(self, clique: frozenset[int], v: int) -> int:
        return sum(self._worth(ordered(u, v)) for u in clique if ordered(u, v) not in self.together)

    def _worth(self, pair: Edge) -> int:
        if pair not in self.worth:
            i, j = pair
            self.worth[pair] = 1 + len(self.neighbours[i] & self.neighbours[j])
        return self.worth[pair]

    def _grow(self, k: int, v: int) -> int:
        self.together.update(ordered(u, v) for u in self.cliques[k])
        self.cliques[k] = grown = self.cliques[k] | {v}
        self.holders[v].add(k)
        for other in [j for j in self.holders[v] if j != k and self.cliques[j] <= grown]:
            for u in self.cliques.pop(other):
                self.holders[u].discard(other)
        return k


def grow_greedily(
    cliques: Mapping[int, frozenset[int]],
    best: Callable[[int], tuple[Any, ...] | None],
    grow: Callable[[int, int], int],
) -> None:
    """Extend cliques by one variable at a time, largest gain first, until none can grow.

    `best` returns the best extension of a clique that is alive: a sort key, the clique and the
    variable. `grow` applies it to `cliques` and returns the number of the new clique. Gains must
    not increase, so an extension whose gain has not changed since it was queued is the best of all.
    """
    queue = [extension for k in cliques if (extension := best(k)) is not None]
    heapq.heapify(queue)
    while queue:
        first = heapq.heappop(queue)
        k, v = first[-2:]
        if k not in cliques:
            continue
        present = best(k)
        if present == first:
            present = best(grow(k, v))
        if present is not None:
            heapq.heappush(queue, present)
