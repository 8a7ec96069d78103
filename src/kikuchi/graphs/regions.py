"""`RegionGraph`: which sets of variables and factors share a belief, and how often each counts.

Rows TEH-M27, LIU-M9, LIU-I10, LIU-I11. How regions are chosen is in `region_builders`; here is what
holds for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.core.budget import Budget, format_bytes
from kikuchi.core.errors import ModelError
from kikuchi.graphs import region_sets as sets
from kikuchi.graphs.factor_graph import FactorGraph, Variable
from kikuchi.graphs.region_sets import Ints, SetFamily

MOST_REGIONS = 1_000_000
"""Roots whose intersections are more than this are refused."""

_MOST_OVERLAPS = 20_000_000  # pairs of roots looked at to prove that regions are exact


@dataclass(frozen=True)
class Region:
    """A set of variables (rising) and a set of factors (rising) inside them (LIU-M9).

    The factors belong to the identity of a region: two regions over the same variables may differ.
    """

    variables: tuple[int, ...]
    factors: tuple[int, ...]

    def contains(self, other: Region) -> bool:
        """True when `other` is a subset, of variables and of factors.

        >>> Region((0, 1), (0,)).contains(Region((1,), ()))
        True
        """
        return set(other.variables) <= set(self.variables) and set(other.factors) <= set(
            self.factors
        )


class RegionGraph:
    """Regions, the edges from each to its next smaller ones, and the counting numbers.

    The region free energy sum_r c_r sum_x b_r (log b_r - log phi_r) (LIU-D7) with phi_r the product
    of the factors of region r. Counting numbers are c_r = 1 - sum of those of all regions above r.
    Without `edges`, above r are all regions that contain it (the robust rule of LIU-I10) and the
    edges are those of the Hasse diagram; with `edges`, pairs (parent, child) of positions in
    `regions`, above r are its ancestors, and the same set may stand in several places.
    `counting` replaces the rule. Every graph is checked (see `check`).

    The roots, regions below no other, come first; then large before small: parents before children.

    >>> square = FactorGraph([2] * 4, [((i, (i + 1) % 4), np.ones((2, 2))) for i in range(4)])
    >>> regions = RegionGraph.closure(square, [(0, 1, 2), (0, 2, 3)])
    >>> [(r.variables, int(c)) for r, c in zip(regions.regions, regions.counting)]
    [((0, 1, 2), 1), ((0, 2, 3), 1), ((0, 2), -1)]
    """

    graph: FactorGraph
    note: str
    counting: NDArray[np.float64]
    edges: NDArray[np.int64]

    def __init__(
        self,
        graph: FactorGraph,
        regions: Iterable[Region],
        *,
        edges: ArrayLike | None = None,
        counting: ArrayLike | None = None,
        note: str = "",
    ) -> None:
        given = list(regions)
        if edges is None and counting is None:
            given = list(dict.fromkeys(given))
        family = SetFamily.of(_checked_items(graph, given), graph.n_variables + graph.n_factors)
        pairs = None if edges is None else np.asarray(edges, dtype=np.int64).reshape(-1, 2)
        self._set(graph, family, pairs, counting, note)

    def _set(
        self,
        graph: FactorGraph,
        family: SetFamily,
        edges: Ints | None,
        counting: ArrayLike | None,
        note: str,
    ) -> None:
        self.graph = graph
        self.note = note
        if edges is None:
            rows, cols = sets.subset_pairs(family, family)
            below, above = rows[rows != cols], cols[rows != cols]
        else:
            _check_edges(family, edges)
            above, below = edges[:, 0], edges[:, 1]
        order = _roots_then_large_first(family, graph.n_variables, below)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        self._family = family.take(order)
        below, above = rank[below], rank[above]
        if edges is None:
            self._above = _grouped(below, above, len(order))
            self.edges = _covering_edges(self._above)
        else:
            self.edges = np.stack([above, below], axis=1)[np.lexsort((above, below))]
            self._above = _ancestors(self.edges, len(order))
        self.counting = _counting_numbers(self._above)
        if counting is not None:
            self.counting = np.asarray(counting, dtype=np.float64)[order]
        self.check()

    # ------------------------------------------------------------------ constructors

    @classmethod
    def closure(
        cls,
        graph: FactorGraph,
        roots: Iterable[Sequence[Variable] | Region],
        *,
        cover: bool = True,
        note: str = "",
    ) -> RegionGraph:
        """Cluster variation (LIU-I11, TEH-M27): the roots and all their intersections.

        A root given by its variables holds every factor that fits in it; a `Region` keeps its own
        factors. Roots inside others are dropped. With `cover`, factors and variables that are in no
        root become small roots of their own; without it, they are an error.

        >>> square = FactorGraph([2] * 4, [((i, (i + 1) % 4), np.ones((2, 2))) for i in range(4)])
        >>> len(RegionGraph.closure(square, []).regions)
        8
        """
        full, explicit = _sorted_roots(graph, roots)
        n, n_items = graph.n_variables, graph.n_variables + graph.n_factors
        fixed = SetFamily.of(_checked_items(graph, explicit), n_items)
        plain = SetFamily.of(full, n)
        if cover:
            plain = sets.joined(plain, SetFamily.of(_uncovered(graph, plain, fixed), n))
        everything = sets.joined(_filled(graph, sets.maximal(plain)), fixed)
        regions = cls.__new__(cls)
        closed = sets.closure(sets.maximal(everything), n, MOST_REGIONS)
        regions._set(graph, closed, None, None, note)
        return regions

    @classmethod
    def bethe(cls, graph: FactorGraph) -> RegionGraph:
        """One region for each factor and one for each variable (TEH-M27, LIU-I10).

        A factor over one variable is part of that variable's region, and of the factors' around it.
        The free energy is the Bethe one, also where factors overlap in several variables.

        >>> chain = FactorGraph([2] * 3, [((0, 1), np.ones(4)), ((1, 2), np.ones(4))])
        >>> RegionGraph.bethe(chain).counting.tolist()
        [1.0, 1.0, 0.0, -1.0, 0.0]
        """
        orders = np.diff(graph.scope_offsets)
        unary: list[list[int]] = [[] for _ in range(graph.n_variables)]
        for a in np.flatnonzero(orders == 1).tolist():
            unary[int(graph.scopes[graph.scope_offsets[a]])].append(a)
        regions = [Region((v,), tuple(own)) for v, own in enumerate(unary)]
        for a in np.flatnonzero(orders > 1).tolist():
            scope = tuple(sorted(graph.scope(a)))
            regions.append(Region(scope, tuple(sorted([a, *(b for v in scope for b in unary[v])]))))
        note = "Bethe regions: a fixed point of belief propagation is a stationary point"
        return cls(graph, regions, note=note)

    @classmethod
    def junction_graph(
        cls,
        graph: FactorGraph,
        cliques: Iterable[Sequence[Variable]],
        separators: Iterable[tuple[int, int, Sequence[int]]] | None = None,
        *,
        note: str = "",
    ) -> RegionGraph:
        """Two levels, cliques counted 1 and separators counted -1 (TEH-M27).

        Each factor belongs to one clique. `separators` are (clique, clique, variables); without
        them they come from one maximum spanning tree for each variable (Aji and McEliece), so that
        the cliques and separators with a variable form a tree. Cliques that make a junction tree
        then get its separators.

        >>> square = FactorGraph([2] * 4, [((i, (i + 1) % 4), np.ones((2, 2))) for i in range(4)])
        >>> regions = RegionGraph.junction_graph(square, [(0, 1, 2), (0, 2, 3)])
        >>> [(r.variables, int(c)) for r, c in zip(regions.regions, regions.counting)]
        [((0, 1, 2), 1), ((0, 2, 3), 1), ((0, 2), -1)]
        >>> regions.is_exact
        True
        """
        from kikuchi.graphs.region_junction import spanning_tree_separators

        family = SetFamily.of(_sorted_roots(graph, cliques)[0], graph.n_variables)
        if separators is None:
            family = sets.maximal(family)
            separators = spanning_tree_separators(family)
        tops = family.tuples()
        homes = _homes(graph, family)
        regions = [Region(c, tuple(homes.get(k, ()))) for k, c in enumerate(tops)]
        edges: list[tuple[int, int]] = []
        for one, other, shared in separators:
            edges += [(one, len(regions)), (other, len(regions))]
            regions.append(Region(tuple(sorted(shared)), ()))
        return cls(graph, regions, edges=np.array(edges, dtype=np.int64), note=note)

    @classmethod
    def loop_edge_vertex(
        cls, graph: FactorGraph, loops: Iterable[Sequence[Variable]], *, note: str = ""
    ) -> RegionGraph:
        """Loops, single edges that lie in two of them or more, single variables (LIU-I11).

        A loop is given by its variables in cyclic order and holds the factors of its own edges and
        variables only. This is the three-level graph of Liu's figure 4.1; intersections of loops
        that are longer than an edge are not regions. Factors in no loop become roots.

        >>> from kikuchi.graphs.generators import grid
        >>> faces_and_outer = [(0, 1, 4, 3), (1, 2, 5, 4), (0, 1, 2, 5, 4, 3)]
        >>> regions = RegionGraph.loop_edge_vertex(grid(2, 3), faces_and_outer)
        >>> [len(r.variables) for r in regions.regions]
        [6, 4, 4, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1]
        """
        from kikuchi.graphs.region_cycles import cycle_region, cycle_root, edges_of_cycle

        tops: list[Region] = []
        edges: list[tuple[int, int]] = []
        for loop in loops:
            numbers = [graph.index(v) for v in loop]
            tops.append(cycle_region(graph, numbers))
            edges += {(min(i, j), max(i, j)) for i, j in edges_of_cycle(numbers)}
        fixed = SetFamily.of(_checked_items(graph, tops), graph.n_variables + graph.n_factors)
        none = SetFamily.of([], graph.n_variables)
        for scope in _uncovered(graph, none, fixed):
            tops.append(cycle_root(graph, scope))
            edges += [(i, j) for i in scope for j in scope if i < j]
        times: dict[tuple[int, ...], int] = {}
        for part in [*edges, *((v,) for region in tops for v in region.variables)]:
            times[part] = times.get(part, 0) + 1
        inner = [cycle_root(graph, part) for part, count in times.items() if count > 1]
        return cls(graph, [*tops, *inner], note=note)

    # ------------------------------------------------------------------ structure

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """All regions, roots first, then large before small."""
        n = self.graph.n_variables
        variables = np.bincount(
            self._family.owners[self._family.items < n], minlength=len(self._family)
        ).tolist()
        factors = self._family.items - n * (self._family.items >= n)
        shifted = SetFamily(factors, self._family.offsets, self._family.n_items).tuples()
        return tuple(Region(s[:k], s[k:]) for s, k in zip(shifted, variables, strict=True))

    @property
    def n_roots(self) -> int:
        """Number of regions that are below no other; they come first."""
        return int(np.sum(self._above.sizes == 0))

    @cached_property
    def supersets(self) -> tuple[tuple[int, ...], ...]:
        """All regions above each: those that contain it, or its ancestors along given edges."""
        return tuple(self._above.tuples())

    @cached_property
    def parents(self) -> tuple[tuple[int, ...], ...]:
        """Next larger regions of each."""
        parent, child = self.edges.T
        return tuple(_grouped(child, parent, len(self._family)).tuples())

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Next smaller regions of each."""
        parent, child = self.edges.T
        return tuple(_grouped(parent, child, len(self._family)).tuples())

    @property
    def roots(self) -> list[tuple[int, ...]]:
        """Variables of each root."""
        return [region.variables for region in self.regions[: self.n_roots]]

    @cached_property
    def sizes(self) -> NDArray[np.float64]:
        """Number of joint states of each region (as floats: infinite if beyond all of them)."""
        if not len(self._family):
            return np.zeros(0)
        members = self._family.below(self.graph.n_variables)
        cards = self.graph.cardinalities.astype(np.float64)
        with np.errstate(over="ignore"):
            return np.multiply.reduceat(cards[members.items], members.offsets[:-1])

    @property
    def bytes(self) -> int:
        """Bytes of all region tables and of the maps between them."""
        links = self.sizes[self._above.items].sum()
        return int(min(8 * self.sizes.sum() + 4 * links, 2.0**62))

    def require(self, budget: Budget | None) -> None:
        """Refuse, before anything is allocated, regions whose tables pass the budget."""
        if budget is None or not len(self._family):
            return
        largest = int(self.sizes.argmax())
        budget.require_bytes(
            self.bytes,
            f"{len(self._family)} regions, the largest of "
            f"{len(self.regions[largest].variables)} variables and "
            f"{self.sizes[largest]:.3g} states:",
            "choose smaller regions (bethe, loops:4, junction:K) or raise the budget",
        )

    @cached_property
    def is_exact(self) -> bool:
        """True when the region free energy is the true one at its minimum.

        So it is if one region holds everything, if the edges have no cycle, or if every region
        holds all factors that fit and the roots can be joined to a junction tree.
        """
        if len(self._family) and len(self._family.take(np.arange(1)).items) == self._family.n_items:
            return True
        return self._is_forest() or self._has_junction_tree()

    def _is_forest(self) -> bool:
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        n = len(self._family)
        if len(self.edges) >= n:
            return False
        matrix = coo_array((np.ones(len(self.edges)), tuple(self.edges.T)), shape=(n, n))
        return bool(len(self.edges) == n - connected_components(matrix, directed=False)[0])

    def _has_junction_tree(self) -> bool:
        """A tree of roots joins each variable's roots: heaviest tree weighs sum (holders - 1)."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import minimum_spanning_tree

        n = self.graph.n_variables
        members = self._family.below(n)
        filled = _filled(self.graph, members)
        if not np.array_equal(filled.items, self._family.items):
            return False
        if len(sets.first_copies(members)) < len(members):
            return False
        tops = members.take(np.arange(self.n_roots))
        if np.sum(tops.holders.sizes**2) > _MOST_OVERLAPS:
            return False
        ones = np.ones(len(tops.items))
        incidence = csr_array((ones, tops.items, tops.offsets), shape=(len(tops), n))
        overlaps = (incidence @ incidence.T).tocsr()
        overlaps.setdiag(0)
        overlaps.eliminate_zeros()
        weight = -minimum_spanning_tree(-overlaps).sum()
        return bool(weight == len(tops.items) - np.sum(tops.holders.sizes > 0))

    # ------------------------------------------------------------------ for people

    def groups(self) -> list[tuple[int, int, int]]:
        """(variables, counting number, how many regions of that kind), large regions first."""
        lengths = self._family.below(self.graph.n_variables).sizes
        kinds, counts = np.unique(
            np.stack([lengths, self.counting.astype(np.int64)], axis=1), axis=0, return_counts=True
        )
        rows = zip(kinds.tolist(), counts.tolist(), strict=True)
        return [(size, c, count) for (size, c), count in rows][::-1]

    def describe(self) -> str:
        """A plan for people: regions by size and counting number, memory, how good they are.

        >>> from kikuchi.graphs.generators import grid
        >>> print(RegionGraph.closure(grid(2, 3), [(0, 1, 3, 4), (1, 2, 4, 5)]).describe())
        3 regions, 2 of them roots, 2 edges
        largest region 16 states, tables 416 B
               2 regions of 4 variables, counted +1
               1 region  of 2 variables, counted -1
        exact: the regions form a junction tree
        """
        lines = [
            f"{len(self._family)} regions, {self.n_roots} of them roots, {len(self.edges)} edges",
            f"largest region {self.sizes.max(initial=0):.6g} states, "
            f"tables {format_bytes(self.bytes)}",
        ]
        for size, c, count in self.groups():
            what = "region " if count == 1 else "regions"
            word = "variable" if size == 1 else "variables"
            lines.append(f"  {count:6d} {what} of {size} {word}, counted {c:+d}")
        return "\n".join([*lines, *self.remarks()])

    def remarks(self) -> list[str]:
        """What is known about how good the regions are."""
        found = [self.note] if self.note else []
        if self.is_exact:
            found.append("exact: the regions form a junction tree")
        return found

    def to_dict(self) -> dict[str, Any]:
        """Regions, counting numbers and edges as plain data; `roots` can be read back."""
        return {
            "roots": [list(root) for root in self.roots],
            "regions": [
                {"variables": list(r.variables), "factors": list(r.factors), "counting": int(c)}
                for r, c in zip(self.regions, self.counting, strict=True)
            ],
            "edges": self.edges.tolist(),
            "bytes": self.bytes,
            "exact": self.is_exact,
            "remarks": self.remarks(),
        }

    def __repr__(self) -> str:
        return f"RegionGraph({len(self._family)} regions, {self.n_roots} roots)"

    # ------------------------------------------------------------------ validity

    def check(self) -> None:
        """Raise unless every variable and factor is counted once and lives in connected regions.

        The conditions of TEH-M27 and LIU-I10 (1-balance), for variables and for factors.
        """
        weights = self.counting[self._family.owners]
        total = np.bincount(self._family.items, weights=weights, minlength=self._family.n_items)
        bad = np.flatnonzero(np.abs(total - 1) > 1e-9)
        if bad.size:
            raise ModelError(
                f"invalid regions: {self._item_name(int(bad[0]))} is counted "
                f"{total[bad[0]]:g} times, not once; every factor must lie inside a region, and "
                "overlaps must be regions too"
            )
        self._check_connected()

    def _check_connected(self) -> None:
        """The regions of each variable and factor must hang together along edges between them."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        family = self._family
        parent, child = self.edges.T
        entry, edge = sets.spread(family.offsets[child], family.sizes[child])
        above = family.place(parent[edge], family.items[entry])
        shape = (len(family.items), len(family.items))
        matrix = coo_array((np.ones(len(entry), dtype=np.int8), (entry, above)), shape=shape)
        part = connected_components(matrix, directed=False)[1]
        some = np.zeros(family.n_items, dtype=part.dtype)
        some[family.items] = part
        bad = np.flatnonzero(some[family.items] != part)
        if bad.size:
            name = self._item_name(int(family.items[bad[0]]))
            raise ModelError(
                f"invalid regions: those with {name} are not connected; add their overlaps"
            )

    def _item_name(self, item: int) -> str:
        n = self.graph.n_variables
        if item < n:
            return f"variable {self.graph.label(item)}"
        scope = ", ".join(self.graph.label(v) for v in self.graph.scope(item - n))
        return f"factor {item - n} over ({scope})"


# ---------------------------------------------------------------------- roots and factors


def _sorted_roots(
    graph: FactorGraph, roots: Iterable[Sequence[Variable] | Region]
) -> tuple[list[set[int]], list[Region]]:
    """Roots given by variables alone, checked, and those with factors of their own."""
    full: list[set[int]] = []
    explicit: list[Region] = []
    for number, root in enumerate(roots):
        if isinstance(root, Region):
            explicit.append(root)
            continue
        if isinstance(root, str) or not isinstance(root, Iterable):
            raise ModelError(f"root {number}: {root!r} is not a list of variables")
        try:
            members = {graph.index(v) for v in root}
        except ModelError as error:
            raise ModelError(f"root {number}: {error}") from None
        if not members:
            raise ModelError(f"root {number} has no variables; leave it out")
        full.append(members)
    return full, explicit


def _checked_items(graph: FactorGraph, regions: Sequence[Region]) -> list[tuple[int, ...]]:
    """Members of each region as one set: variables, then factors moved up by n."""
    n = graph.n_variables
    found = []
    for region in regions:
        inside = set(region.variables)
        for v in inside:
            graph.index(v)
        for a in region.factors:
            if not 0 <= a < graph.n_factors:
                raise ModelError(f"a region holds factor {a}; factors are 0..{graph.n_factors - 1}")
            if not inside.issuperset(graph.scope(a)):
                raise ModelError(
                    f"the region of variables {region.variables} holds factor {a}, whose scope "
                    f"{graph.scope(a)} is not inside; add the variables or leave the factor out"
                )
        if not inside:
            raise ModelError("a region has no variables; leave it out")
        found.append((*inside, *(n + a for a in set(region.factors))))
    return found


def _scopes(graph: FactorGraph) -> SetFamily:
    """The scopes of all factors as sets."""
    owners = graph.edge_factors.astype(np.int64)
    items = graph.scopes.astype(np.int64)
    order = np.lexsort((items, owners))
    return SetFamily(items[order], graph.scope_offsets.astype(np.int64), graph.n_variables)


def _filled(graph: FactorGraph, variables: SetFamily) -> SetFamily:
    """Sets of variables with every factor that fits in each added."""
    factors, regions = sets.subset_pairs(_scopes(graph), variables)
    n = graph.n_variables
    owners = np.concatenate([variables.owners, regions])
    items = np.concatenate([variables.items, n + factors])
    order = np.lexsort((items, owners))
    sizes = np.bincount(owners, minlength=len(variables))
    return SetFamily(items[order], sets.offsets_of(sizes), n + graph.n_factors)


def _uncovered(graph: FactorGraph, plain: SetFamily, fixed: SetFamily) -> list[tuple[int, ...]]:
    """Scopes of factors, and single variables, that no root contains."""
    n = graph.n_variables
    scopes = _scopes(graph)
    covered = np.zeros(n + graph.n_factors, dtype=bool)
    covered[plain.items] = True
    covered[fixed.items] = True
    covered[n + sets.subset_pairs(scopes, plain)[0]] = True
    missing = scopes.take(np.flatnonzero(~covered[n:])).tuples()
    covered[[v for scope in missing for v in scope]] = True
    return missing + [(v,) for v in np.flatnonzero(~covered[:n]).tolist()]


def _homes(graph: FactorGraph, cliques: SetFamily) -> Mapping[int, list[int]]:
    """Factors of each clique when every factor goes to the first of the smallest that hold it."""
    factors, regions = sets.subset_pairs(_scopes(graph), cliques)
    order = np.lexsort((regions, cliques.sizes[regions], factors))
    homed, first = np.unique(factors[order], return_index=True)
    if len(homed) < graph.n_factors:
        a = int(np.setdiff1d(np.arange(graph.n_factors), homed)[0])
        raise ModelError(f"no clique holds factor {a} over variables {graph.scope(a)}; add one")
    found: dict[int, list[int]] = {}
    for a, r in zip(homed.tolist(), regions[order][first].tolist(), strict=True):
        found.setdefault(r, []).append(a)
    return found


# ---------------------------------------------------------------------- order and counting


def _grouped(rows: Ints, cols: Ints, count: int) -> SetFamily:
    """For each row number the columns paired with it, rising."""
    order = np.lexsort((cols, rows))
    return SetFamily(cols[order], sets.offsets_of(np.bincount(rows, minlength=count)), count)


def _roots_then_large_first(family: SetFamily, n_variables: int, below: Ints) -> Ints:
    is_inner = np.zeros(len(family), dtype=bool)
    is_inner[below] = True
    lengths = family.below(n_variables).sizes
    keys = list(
        zip(
            is_inner.tolist(),
            (-lengths).tolist(),
            (-family.sizes).tolist(),
            family.tuples(),
            strict=True,
        )
    )
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)


def _check_edges(family: SetFamily, edges: Ints) -> None:
    """Every child must be a smaller set inside its parent."""
    if edges.size and not 0 <= edges.min() <= edges.max() < len(family):
        raise ModelError(f"edges must join regions 0..{len(family) - 1}, got {edges.max()}")
    parent, child = edges.T
    entry, edge = sets.spread(family.offsets[child], family.sizes[child])
    fits = family.has(parent[edge], family.items[entry])
    wrong = set(edge[~fits].tolist()) | set(
        np.flatnonzero(family.sizes[child] >= family.sizes[parent]).tolist()
    )
    if wrong:
        p, c = edges[min(wrong)].tolist()
        raise ModelError(f"region {c} is no smaller part of region {p}, so no edge can join them")


def _ancestors(edges: Ints, count: int) -> SetFamily:
    """All regions above each along edges; parents come before children."""
    above: list[set[int]] = [set() for _ in range(count)]
    for parent, child in sorted(edges.tolist(), key=lambda edge: edge[1]):
        above[child] |= above[parent] | {parent}
    return SetFamily.of(above, count)


def _counting_numbers(above: SetFamily) -> NDArray[np.float64]:
    """c_r = 1 - sum of c_s over all s above r; parents come before children (LIU-I10)."""
    counting: list[float] = []
    for higher in above.tuples():
        counting.append(1.0 - sum([counting[s] for s in higher]))
    return np.array(counting)


def _covering_edges(above: SetFamily) -> Ints:
    """Edges (parent, child) with no region in between, by child."""
    from scipy.sparse import csr_array

    n = len(above)
    if not n:
        return np.zeros((0, 2), dtype=np.int64)
    ones = np.ones(len(above.items), dtype=np.int64)
    contained = csr_array((ones, above.items, above.offsets), shape=(n, n))
    # Entry (r, s) of the square counts the regions between r and s.
    between = (contained @ contained).tocoo()
    keys = above.owners * n + above.items
    indirect = between.coords[0].astype(np.int64) * n + between.coords[1]
    direct = keys[~np.isin(keys, indirect)]
    return np.stack([direct % n, direct // n], axis=1)
