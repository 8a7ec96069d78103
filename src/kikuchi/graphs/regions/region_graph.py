"""`RegionGraph`: sets of variables and factors with a joint belief, and their counting numbers.

The choice of regions is in `regions.builders`.

Reference: LIU-D7, LIU-I10, LIU-I11, LIU-M9, TEH-M27.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Budget, format_bytes
from kikuchi.core.errors import ModelError
from kikuchi.graphs.factor_graph import FactorGraph, Variable
from kikuchi.graphs.regions import sets
from kikuchi.graphs.regions.acyclicity import is_acyclic
from kikuchi.graphs.regions.parts import (
    Region,
    ancestors,
    check_edges,
    counting_numbers,
    covering_edges,
    filled,
    grouped,
    homes_of_factors,
    members_of,
    roots_then_large_first,
    sorted_roots,
    uncovered,
)
from kikuchi.graphs.regions.sets import SetFamily

MOST_REGIONS = 1_000_000
"""Roots with more intersections than this raise an error."""

__all__ = ["MOST_REGIONS", "Region", "RegionGraph"]


class RegionGraph:
    """Regions, the edges from each to its next smaller ones, and the counting numbers.

    The region free energy sum_r c_r sum_x b_r (log b_r - log phi_r) with phi_r the product
    of the factors of region r. Counting numbers are c_r = 1 - sum of those of all regions above r.
    Without `edges`, these are all regions that contain r (the robust rule), and the edges are those
    of the Hasse diagram; with `edges`, pairs (parent, child) of positions in `regions`, they are
    its ancestors, and the same set may occur several times. `counting` replaces the rule. Every
    graph is checked (see `check`).

    The roots, regions below no other, come first; then large before small: parents before children.

    `graph` is the model, `note` describes how the regions were chosen.

    >>> square = FactorGraph([2] * 4, [((i, (i + 1) % 4), np.ones((2, 2))) for i in range(4)])
    >>> regions = RegionGraph.closure(square, [(0, 1, 2), (0, 2, 3)])
    >>> [(r.variables, int(c)) for r, c in zip(regions.regions, regions.counting)]
    [((0, 1, 2), 1), ((0, 2, 3), 1), ((0, 2), -1)]
    """

    graph: FactorGraph
    note: str
    above: SetFamily
    counting: Array
    edges: Ints
    caution: str = ""

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
        family = SetFamily.of(members_of(graph, given), graph.n_variables + graph.n_factors)
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
        sets.require_lists(len(family.items))
        if edges is None:
            rows, cols = sets.subset_pairs(family, family)
            below, above = rows[rows != cols], cols[rows != cols]
        else:
            check_edges(family, edges)
            above, below = edges[:, 0], edges[:, 1]
        order = roots_then_large_first(family, graph.n_variables, below)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        self._family = family.take(order)
        below, above = rank[below], rank[above]
        if edges is None:
            self.above = grouped(below, above, len(order))
            self.edges = covering_edges(self.above)
        else:
            self.edges = np.stack([above, below], axis=1)[np.lexsort((above, below))]
            self.above = ancestors(self.edges, len(order))
        self.counting = counting_numbers(self.above)
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
        """Cluster variation: the `roots`, sets of variables of the `graph`, and all their
        intersections. `note` describes how they were chosen.

        A root given by its variables contains every factor over them; a `Region` has its own
        factors. Roots contained in others are removed. With `cover`, factors and variables that are
        in no root become additional small roots; otherwise they raise an error.

        >>> square = FactorGraph([2] * 4, [((i, (i + 1) % 4), np.ones((2, 2))) for i in range(4)])
        >>> len(RegionGraph.closure(square, []).regions)
        8
        """
        full, explicit = sorted_roots(graph, roots)
        n, n_items = graph.n_variables, graph.n_variables + graph.n_factors
        fixed = SetFamily.of(members_of(graph, explicit), n_items)
        plain = SetFamily.of(full, n)
        sets.require_few_overlaps(plain)
        if cover:
            plain = sets.joined(plain, SetFamily.of(uncovered(graph, plain, fixed), n))
        everything = sets.joined(filled(graph, sets.maximal(plain)), fixed)
        regions = cls.__new__(cls)
        closed = sets.closure(sets.maximal(everything), n, MOST_REGIONS)
        regions._set(graph, closed, None, None, note)
        return regions

    @classmethod
    def bethe(cls, graph: FactorGraph) -> RegionGraph:
        """One region for each factor and one for each variable of the `graph`.

        A factor over one variable belongs to the region of that variable, and to those of the
        factors that contain it. The free energy is the Bethe free energy, also if factors overlap
        in several variables.

        >>> chain = FactorGraph([2] * 3, [((0, 1), np.ones(4)), ((1, 2), np.ones(4))])
        >>> RegionGraph.bethe(chain).counting.tolist()
        [1.0, 1.0, 0.0, -1.0, 0.0]
        """
        n, orders = graph.n_variables, np.diff(graph.scope_offsets)
        single, larger = np.flatnonzero(orders == 1), np.flatnonzero(orders > 1)
        alone = grouped(graph.scopes[graph.scope_offsets[single]].astype(np.int64), single, n)
        scopes = graph.scopes[np.repeat(orders > 1, orders)].astype(np.int64)
        number = n + np.arange(len(larger))
        variables = np.concatenate([np.arange(n), scopes])
        owners = np.concatenate([np.arange(n), np.repeat(number, orders[larger])])
        held, pair = sets.spread(alone.offsets[variables], alone.sizes[variables])
        owners = np.concatenate([owners, number, owners[pair]])
        items = np.concatenate([variables, n + larger, n + alone.items[held]])
        family = replace(grouped(owners, items, n + len(larger)), n_items=n + graph.n_factors)
        regions = cls.__new__(cls)
        note = "Bethe regions: a fixed point of belief propagation is a stationary point"
        regions._set(graph, family, None, None, note)
        return regions

    @classmethod
    def junction_graph(
        cls,
        graph: FactorGraph,
        cliques: Iterable[Sequence[Variable]],
        separators: Iterable[tuple[int, int, Sequence[int]]] | None = None,
        *,
        note: str = "",
    ) -> RegionGraph:
        """Two levels over the variables of the `graph`: `cliques` counted 1 and separators counted
        -1. `note` describes how they were chosen.

        Each factor belongs to one clique. `separators` are (clique, clique, variables); without
        them they come from one maximum spanning tree for each variable (Aji and McEliece), so that
        the cliques and separators with a variable form a tree. Cliques that admit a junction tree
        then get its separators.

        >>> square = FactorGraph([2] * 4, [((i, (i + 1) % 4), np.ones((2, 2))) for i in range(4)])
        >>> regions = RegionGraph.junction_graph(square, [(0, 1, 2), (0, 2, 3)])
        >>> [(r.variables, int(c)) for r, c in zip(regions.regions, regions.counting)]
        [((0, 1, 2), 1), ((0, 2, 3), 1), ((0, 2), -1)]
        >>> regions.is_exact
        True
        """
        from kikuchi.graphs.regions.junction import spanning_tree_separators

        family = SetFamily.of(sorted_roots(graph, cliques)[0], graph.n_variables)
        if separators is None:
            family = sets.maximal(family)
            separators = spanning_tree_separators(family)
        tops = family.tuples()
        homes = homes_of_factors(graph, family)
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
        """The `loops` of the `graph`, edges contained in at least two of them, and single
        variables. `note` describes how they were chosen.

        A loop is given by its variables in cyclic order and contains only the factors of its own
        edges and variables. This is the three-level graph of Liu's figure 4.1; intersections of
        loops that are longer than an edge are not regions. Factors in no loop become roots.

        >>> from kikuchi.graphs.generators import grid
        >>> faces_and_outer = [(0, 1, 4, 3), (1, 2, 5, 4), (0, 1, 2, 5, 4, 3)]
        >>> regions = RegionGraph.loop_edge_vertex(grid(2, 3), faces_and_outer)
        >>> [len(r.variables) for r in regions.regions]
        [6, 4, 4, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1]
        """
        from kikuchi.graphs.regions.cycles import FactorIndex, edges_of_cycle

        index = FactorIndex(graph)
        tops: list[Region] = []
        parts: list[tuple[int, ...]] = []
        for loop in loops:
            numbers = [graph.index(v) for v in loop]
            tops.append(index.cycle(numbers))
            parts += edges_of_cycle(numbers)
        fixed = SetFamily.of(members_of(graph, tops), graph.n_variables + graph.n_factors)
        for scope in uncovered(graph, SetFamily.of([], graph.n_variables), fixed):
            tops.append(index.region(scope))
            parts += combinations(scope, 2)
        times = Counter([*parts, *((v,) for region in tops for v in region.variables)])
        inner = [index.region(part) for part, count in times.items() if count > 1]
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

    def __len__(self) -> int:
        return len(self._family)

    @cached_property
    def variables(self) -> SetFamily:
        """Variables of each region, in flat arrays."""
        return self._family.below(self.graph.n_variables)

    @cached_property
    def factors(self) -> SetFamily:
        """Factors of each region, in flat arrays."""
        return self._family.above(self.graph.n_variables)

    @cached_property
    def n_roots(self) -> int:
        """Number of regions that are contained in no other; they come first."""
        return int(np.sum(self.above.sizes == 0))

    @cached_property
    def supersets(self) -> tuple[tuple[int, ...], ...]:
        """All regions above each: those that contain it, or its ancestors along given edges."""
        return tuple(self.above.tuples())

    @cached_property
    def parents(self) -> tuple[tuple[int, ...], ...]:
        """Next larger regions of each."""
        parent, child = self.edges.T
        return tuple(grouped(child, parent, len(self._family)).tuples())

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Next smaller regions of each."""
        parent, child = self.edges.T
        return tuple(grouped(parent, child, len(self._family)).tuples())

    @property
    def roots(self) -> list[tuple[int, ...]]:
        """Variables of each root."""
        return [region.variables for region in self.regions[: self.n_roots]]

    @cached_property
    def sizes(self) -> Array:
        """Number of joint states of each region, as floats (infinite on overflow)."""
        if not len(self._family):
            return np.zeros(0)
        members = self.variables
        cards = self.graph.cardinalities.astype(np.float64)
        with np.errstate(over="ignore"):
            return np.multiply.reduceat(cards[members.items], members.offsets[:-1])

    @property
    def bytes(self) -> int:
        """Bytes of all region tables and of the maps between them."""
        links = self.sizes[self.above.items].sum()
        return int(min(8 * self.sizes.sum() + 4 * links, 2.0**62))

    def require(self, budget: Budget | None) -> None:
        """Raise an error, before anything is allocated, if the region tables exceed the bytes of
        the `budget`.
        """
        if budget is None or not len(self._family):
            return
        largest = int(self.sizes.argmax())
        budget.require_bytes(
            self.bytes,
            f"{len(self._family)} regions, the largest of "
            f"{self.variables.sizes[largest]} variables and "
            f"{self.sizes[largest]:.3g} states:",
            "choose smaller regions (bethe, loops:4, junction:K) or raise the budget",
        )

    @cached_property
    def is_exact(self) -> bool:
        """Whether the minimum of the region free energy is exact.

        This holds, with the usual counting numbers, if one region contains everything, if the edges
        have no cycle, or if the regions are all intersections of roots that admit a junction tree,
        each with all factors over its variables.
        """
        if not np.array_equal(self.counting, counting_numbers(self.above)):
            return False
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
        """Whether the regions are the intersections of roots that a junction tree can join."""
        n = self.graph.n_variables
        members = self._family.below(n)
        if not np.array_equal(filled(self.graph, members).items, self._family.items):
            return False
        if len(sets.first_copies(members)) < len(members):
            return False
        tops = members.take(np.arange(self.n_roots))
        if not is_acyclic(tops):
            return False
        closed = sets.closure(tops, n, MOST_REGIONS)
        together = sets.first_copies(sets.joined(closed, members))
        return len(together) == len(closed) == len(members)

    # ------------------------------------------------------------------ description

    def groups(self) -> list[tuple[int, int, int]]:
        """(variables, counting number, how many regions of that kind), large regions first."""
        lengths = self.variables.sizes
        kinds, counts = np.unique(
            np.stack([lengths, self.counting.astype(np.int64)], axis=1), axis=0, return_counts=True
        )
        rows = zip(kinds.tolist(), counts.tolist(), strict=True)
        return [(size, c, count) for (size, c), count in rows][::-1]

    def describe(self) -> str:
        """Return a description: regions by size and counting number, memory, and known quality.

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
        """Return what is known about the quality of the regions."""
        found = [self.note] if self.note else []
        if self.is_exact:
            found.append("exact: the regions form a junction tree")
        elif self.caution:
            found.append(self.caution)
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
        """Raise an error unless every variable and factor is counted once and its regions are
        connected.

        The conditions of a valid region graph (1-balance), for variables and for factors.
        """
        weights = self.counting[self._family.owners]
        total = np.bincount(self._family.items, weights=weights, minlength=self._family.n_items)
        bad = np.flatnonzero(np.abs(total - 1) > 1e-9)
        if bad.size:
            raise ModelError(
                f"invalid regions: {self._item_name(int(bad[0]))} is counted "
                f"{total[bad[0]]:g} times, not once; every factor must be contained in a region, "
                "and overlaps must also be regions"
            )
        self._check_connected()

    def _check_connected(self) -> None:
        """Raise an error unless the regions of each variable and factor are connected by edges."""
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
