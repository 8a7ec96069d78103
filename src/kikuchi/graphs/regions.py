"""`RegionGraph`: which sets of variables and factors share a belief, and how often each counts.

Rows TEH-M27, LIU-M9, LIU-I10, LIU-I11. How regions are chosen is in `region_builders`; here is what
holds for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.budget import format_bytes
from kikuchi.core.errors import ModelError
from kikuchi.graphs.factor_graph import FactorGraph


@dataclass(frozen=True)
class Region:
    """A set of variables (rising) and a set of factors (rising) inside them (LIU-M9).

    The factors belong to the identity of a region: two regions over the same variables may differ.
    """

    variables: tuple[int, ...]
    factors: tuple[int, ...]

    def contains(self, other: Region) -> bool:
        """True when `other` is a subset, of variables and of factors."""
        return set(other.variables) <= set(self.variables) and set(other.factors) <= set(
            self.factors
        )


class RegionGraph:
    """Regions, the edges from each to its next smaller ones, and the counting numbers.

    The region free energy sum_r c_r sum_x b_r (log b_r - log phi_r) (LIU-D7) with phi_r the product
    of the factors of region r. Counting numbers are c_r = 1 - sum of those of all regions that
    contain r (the robust rule of LIU-I10). Regions are sorted from large to small, so that parents
    come before children; the first `n_roots` lie in no other.

    >>> square = FactorGraph([2] * 4, [((i, (i + 1) % 4), np.ones((2, 2))) for i in range(4)])
    >>> regions = RegionGraph.closure(square, [(0, 1, 2), (0, 2, 3)])
    >>> [(r.variables, int(c)) for r, c in zip(regions.regions, regions.counting)]
    [((0, 1, 2), 1), ((0, 2, 3), 1), ((0, 2), -1)]
    """

    def __init__(self, graph: FactorGraph, regions: Iterable[Region]) -> None:
        unique = dict.fromkeys(regions)
        self.graph = graph
        self.regions: tuple[Region, ...] = tuple(sorted(unique, key=_large_first))
        self.supersets = _supersets(self.regions)
        self.counting = _counting_numbers(self.supersets)
        self.edges = _covering_edges(self.supersets)
        self.check()

    # ------------------------------------------------------------------ constructors

    @classmethod
    def closure(
        cls, graph: FactorGraph, roots: Iterable[Sequence[int]], *, cover: bool = True
    ) -> RegionGraph:
        """Cluster variation (LIU-I11): the roots and all their intersections.

        Each root holds every factor that fits in it. With `cover`, factors and variables that are
        in no root become small roots of their own.
        """
        wanted = [tuple(sorted({int(v) for v in root})) for root in roots]
        if cover:
            wanted += _uncovered(graph, wanted)
        filled = [_filled(graph, variables) for variables in _maximal(wanted)]
        return cls(graph, _close(filled))

    # ------------------------------------------------------------------ structure

    @property
    def n_roots(self) -> int:
        """Number of regions that lie in no other."""
        return int(np.sum([len(s) == 0 for s in self.supersets]))

    @cached_property
    def parents(self) -> tuple[tuple[int, ...], ...]:
        """Next larger regions of each."""
        found: list[list[int]] = [[] for _ in self.regions]
        for parent, child in self.edges:
            found[child].append(int(parent))
        return tuple(tuple(p) for p in found)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Next smaller regions of each."""
        found: list[list[int]] = [[] for _ in self.regions]
        for parent, child in self.edges:
            found[parent].append(int(child))
        return tuple(tuple(c) for c in found)

    @cached_property
    def sizes(self) -> NDArray[np.float64]:
        """Number of joint states of each region (as floats: they may be beyond all integers)."""
        cards = self.graph.cardinalities.astype(np.float64)
        return np.array([np.prod(cards[list(r.variables)]) for r in self.regions])

    @property
    def bytes(self) -> int:
        """Bytes of all region tables and of the maps between them."""
        links = np.array([self.sizes[list(s)].sum() for s in self.supersets])
        return int(min(8 * self.sizes.sum() + 4 * links.sum(), 2.0**62))

    @property
    def is_exact(self) -> bool:
        """True when one region holds everything, so that nothing is approximated."""
        return len(self.regions[0].variables) == self.graph.n_variables

    def describe(self) -> str:
        """A plan for people: regions by size and count, memory."""
        lines = [
            f"{len(self.regions)} regions, {self.n_roots} of them roots, {len(self.edges)} edges",
            f"largest region {self.sizes.max():.0f} states, tables {format_bytes(self.bytes)}",
        ]
        groups: dict[tuple[int, int], int] = {}
        for region, c in zip(self.regions, self.counting, strict=True):
            key = (len(region.variables), int(c))
            groups[key] = groups.get(key, 0) + 1
        for (size, c), count in sorted(groups.items(), reverse=True):
            word = "variable" if size == 1 else "variables"
            lines.append(f"  {count:6d} regions of {size} {word}, counted {c:+d}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"RegionGraph({len(self.regions)} regions, {self.n_roots} roots)"

    # ------------------------------------------------------------------ validity

    def check(self) -> None:
        """Raise unless every variable and factor is counted once and lives in connected regions."""
        graph = self.graph
        for what, count, members in (
            ("variable", graph.n_variables, [r.variables for r in self.regions]),
            ("factor", graph.n_factors, [r.factors for r in self.regions]),
        ):
            total = np.zeros(count)
            for c, items in zip(self.counting, members, strict=True):
                total[list(items)] += c
            bad = np.flatnonzero(total != 1)
            if bad.size:
                raise ModelError(
                    f"invalid regions: {what} {bad[0]} is counted {total[bad[0]]:g} times, not "
                    "once; every factor must lie inside a region, and overlaps must be regions too"
                )
        self._check_connected()

    def _check_connected(self) -> None:
        """The regions of each variable must hang together along edges between them."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        place: dict[tuple[int, int], int] = {}
        for r, region in enumerate(self.regions):
            for v in region.variables:
                place[r, v] = len(place)
        ties = [
            (place[int(parent), v], place[int(child), v])
            for parent, child in self.edges
            for v in self.regions[child].variables
        ]
        rows, cols = np.array(ties, dtype=np.int64).reshape(-1, 2).T
        shape = (len(place), len(place))
        found = connected_components(coo_array((np.ones(len(ties)), (rows, cols)), shape=shape))[1]
        parts: dict[int, int] = {}
        for (_, v), k in place.items():
            if parts.setdefault(v, int(found[k])) != found[k]:
                raise ModelError(f"invalid regions: those with variable {v} are not connected")


# ---------------------------------------------------------------------- building blocks


def _large_first(region: Region) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    return -len(region.variables), -len(region.factors), region.variables, region.factors


def _holders(groups: Iterable[Sequence[int]]) -> dict[int, list[int]]:
    """For each member, the numbers of the groups that hold it."""
    found: dict[int, list[int]] = {}
    for k, group in enumerate(groups):
        for item in group:
            found.setdefault(item, []).append(k)
    return found


def _maximal(sets: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The sets that lie in no other, each once, in the order given."""
    unique = list(dict.fromkeys(s for s in sets if s))
    holders = _holders(unique)
    return [
        s
        for k, s in enumerate(unique)
        if not any(
            j != k and set(s) < set(unique[j]) for j in min((holders[v] for v in s), key=len)
        )
    ]


def _filled(graph: FactorGraph, variables: tuple[int, ...]) -> Region:
    """The region of these variables with every factor that fits in it."""
    inside = set(variables)
    near = {a for v in variables for a in graph.neighbours(v)}
    return Region(variables, tuple(sorted(a for a in near if inside.issuperset(graph.scope(a)))))


def _uncovered(graph: FactorGraph, roots: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Scopes of factors, and single variables, that no root contains."""
    holders = _holders(roots)
    sets = [set(root) for root in roots]
    missing = []
    for a in range(graph.n_factors):
        scope = graph.scope(a)
        if not any(sets[k].issuperset(scope) for k in holders.get(scope[0], ())):
            missing.append(tuple(sorted(scope)))
    covered = {v for scope in missing for v in scope} | set(holders)
    return missing + [(v,) for v in range(graph.n_variables) if v not in covered]


def _close(roots: Sequence[Region]) -> list[Region]:
    """The roots and all intersections of any number of them."""
    found = dict.fromkeys(roots)
    fresh = list(roots)
    while fresh:
        every = list(found)
        holders = _holders(r.variables for r in every)
        created: dict[Region, None] = {}
        for region in fresh:
            variables, factors = set(region.variables), set(region.factors)
            for k in {k for v in region.variables for k in holders[v]}:
                other = every[k]
                common = Region(
                    tuple(sorted(variables.intersection(other.variables))),
                    tuple(sorted(factors.intersection(other.factors))),
                )
                if common not in found:
                    created[common] = None
        found.update(created)
        fresh = list(created)
    return list(found)


def _supersets(regions: Sequence[Region]) -> tuple[tuple[int, ...], ...]:
    """The regions that strictly contain each region."""
    holders = _holders(r.variables for r in regions)
    answer = []
    for k, region in enumerate(regions):
        near = min((holders[v] for v in region.variables), key=len)
        answer.append(tuple(j for j in near if j != k and regions[j].contains(region)))
    return tuple(answer)


def _counting_numbers(supersets: Sequence[tuple[int, ...]]) -> NDArray[np.float64]:
    """c_r = 1 - sum of c_s over all s that contain r; regions come large before small."""
    counting = np.ones(len(supersets))
    for r, above in enumerate(supersets):
        counting[r] = 1.0 - counting[list(above)].sum()
    return counting


def _covering_edges(supersets: Sequence[tuple[int, ...]]) -> NDArray[np.int64]:
    """Edges (parent, child) with no region in between."""
    edges = []
    for child, above in enumerate(supersets):
        indirect = {s for t in above for s in supersets[t]}
        edges += [(parent, child) for parent in above if parent not in indirect]
    return np.array(edges, dtype=np.int64).reshape(-1, 2)
