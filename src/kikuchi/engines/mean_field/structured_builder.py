"""Builds the layout of a junction forest for a graph: cliques first, then factor by factor."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod

import numpy as np

from kikuchi.core.arrays import U4, Array, Ints, offsets_of
from kikuchi.core.budget import Budget
from kikuchi.engines.mean_field.structured_layout import (
    FactorParts,
    Layout,
    Shape,
    Tours,
)
from kikuchi.engines.mean_field.structured_sites import Branch, GrowingColumns, Site
from kikuchi.engines.mean_field.structured_subgraph import Forest, in_time, look_at_clock
from kikuchi.engines.tables import places, strides
from kikuchi.graphs.factor_graph import FactorGraph

_WAY_OUT = "lower width, or use mf"


def lay_out(graph: FactorGraph, forest: Forest, budget: Budget) -> Layout:
    """Arrays of a forest for a graph; refuses what the time or the memory does not hold."""
    maker = _Maker(graph, forest)
    budget.require_bytes(maker.clique_bytes, "structured mean field", _WAY_OUT)
    for factor in in_time(range(graph.n_factors)):
        maker.place_factor(factor)
    needed = maker.clique_bytes + maker.site_bytes
    budget.require_bytes(needed, "structured mean field", _WAY_OUT)
    return maker.layout()


class _Maker:
    """Builds a layout: cliques first, then factor by factor."""

    def __init__(self, graph: FactorGraph, forest: Forest) -> None:
        self.graph = graph
        self.forest = forest
        self.cards = [int(c) for c in graph.cardinalities]
        self.sizes = [prod([self.cards[v] for v in c]) for c in in_time(forest.cliques)]
        self.separators = [
            prod([self.cards[v] for v in c[: len(c) - r]])
            for c, r in in_time(zip(forest.cliques, forest.residual, strict=True))
        ]
        self.whole: list[tuple[int, int]] = []
        self.split_factors: list[int] = []
        self.lists = GrowingColumns()
        self.site_rows: list[tuple[int, Site]] = []
        self.n_tables = 0
        self.n_pending = 0
        self.part_site: list[Site | None] = []
        self.part_variables: list[list[int]] = []

    @property
    def clique_bytes(self) -> int:
        """Bytes of the tables of the cliques and their separators."""
        maps = sum(self.sizes[p] for p in self.forest.parent if p >= 0)
        return 36 * sum(self.sizes) + 16 * sum(self.separators) + 4 * maps

    @property
    def site_bytes(self) -> int:
        """Bytes of the tables of split factors, and of their lists."""
        return 8 * self.n_pending + 24 * self.n_tables + 500 * len(self.site_rows)

    def strides(self, clique: int) -> dict[int, int]:
        """Strides of the table of a clique, by variable."""
        members = self.forest.cliques[clique]
        return dict(zip(members, strides([self.cards[v] for v in members]), strict=True))

    # ------------------------------------------------------------------ factors

    def place_factor(self, factor: int) -> None:
        """A factor to its clique, or in parts to its trees."""
        home, tree = self.forest.home, self.forest.tree
        scope = self.graph.scope(factor)
        clique = min(home[v] for v in scope)
        if all(v in self.forest.cliques[clique] for v in scope):
            self.whole.append((factor, clique))
            return
        steps = dict(zip(scope, strides(self.graph.shape(factor)), strict=True))
        self.split_factors.append(factor)
        self.lists.factor_parts.append(len(self.lists.factor))
        for k in dict.fromkeys(tree[v] for v in scope):
            self._add_part([v for v in scope if tree[v] == k], steps)

    def _add_part(self, variables: list[int], steps: dict[int, int]) -> None:
        lists = self.lists
        self.part_variables.append(variables)
        cards = [self.cards[v] for v in variables]
        table = dict(zip(variables, strides(cards), strict=True))
        clique = min(self.forest.home[v] for v in variables)
        lists.factor.append(len(self.split_factors) - 1)
        lists.table.append(self.n_tables)
        lists.size.append(prod(cards))
        lists.owns.append(len(lists.part_strides))
        if all(v in self.forest.cliques[clique] for v in variables):
            self.part_site.append(None)
            in_clique = self.strides(clique)
            for v in variables:
                lists.part_strides.append(in_clique[v])
                lists.part_cards.append(self.cards[v])
                lists.part_steps.append(table[v])
        else:
            clique = self._add_sites(variables, table)
        lists.clique.append(clique)
        lists.places.extend(places(cards, [steps[v] for v in variables]).tolist())
        self.n_tables += lists.size[-1]

    def _add_sites(self, variables: list[int], table: dict[int, int]) -> int:
        """Sites of a split part, in every clique between its variables; answers the highest."""
        active = self._between(variables)
        sites = {
            c: Site(c, self.n_tables, [v for v in variables if v in self.forest.cliques[c]])
            for c in active
        }
        parent = self.forest.parent
        highest = {v: max(c for c in active if v in self.forest.cliques[c]) for v in variables}
        below: dict[int, list[int]] = {c: [] for c in active}
        for c in active:  # children come before parents
            below[c].extend(v for v in variables if highest[v] == c)
            if parent[c] in sites:
                below[parent[c]].extend(below[c])
                inner = [v for v in variables if v in below[c]]
                outer = [v for v in variables if v not in inner and v not in self.forest.cliques[c]]
                self._add_edge(c, sites[c], sites[parent[c]], inner, outer)
        for c in active:
            sites[c].table_steps = table
            self.site_rows.append((c, sites[c]))
        self.part_site.append(sites[active[-1]])
        return active[-1]

    def _between(self, variables: list[int]) -> list[int]:
        """The smallest subtree that joins the variables: paths between homes, leaves pruned."""
        parent, depth = self.forest.parent, self.forest.depth
        paths = {self.forest.home[v] for v in variables}
        ends = set(paths)
        while len(ends) > 1:
            deepest = max(ends, key=lambda c: depth[c])
            ends.remove(deepest)
            ends.add(parent[deepest])
            paths.add(parent[deepest])
        links: dict[int, set[int]] = {c: set() for c in paths}
        for c in paths:
            if parent[c] in paths:
                links[c].add(parent[c])
                links[parent[c]].add(c)
        loose = [c for c in paths if len(links[c]) == 1]
        while loose:
            c = loose.pop()
            if len(links[c]) != 1:
                continue
            (other,) = links[c]
            shared = [v for v in variables if v in self.forest.cliques[c]]
            if all(v in self.forest.cliques[other] for v in shared):
                del links[c]
                links[other].discard(c)
                loose.append(other)
        return sorted(links)

    def _add_edge(
        self, edge: int, lower: Site, upper: Site, inner: list[int], outer: list[int]
    ) -> None:
        """Pending tables both ways over one tree edge between two sites."""
        n = self.separators[edge]
        n_inner = prod([self.cards[v] for v in inner])
        n_outer = prod([self.cards[v] for v in outer])
        rising, falling = self.n_pending, self.n_pending + n * n_inner
        self.n_pending += n * (n_inner + n_outer)
        upper.branches.append(Branch(edge, 1, inner, outer, rising, falling))
        lower.branches.append(Branch(edge, 0, outer, inner, falling, rising))

    # ------------------------------------------------------------------ arrays

    def layout(self) -> Layout:
        """All arrays."""
        self.site_rows.sort(key=lambda row: row[0])
        number = {id(site): k for k, (_, site) in enumerate(self.site_rows)}
        for _, site in in_time(self.site_rows):
            site.write(self.lists, self.cards, self.strides(site.clique))
        lists = self.lists
        part_sites = [-1 if site is None else number[id(site)] for site in self.part_site]
        parts = FactorParts(
            factor=lists.array("factor"),
            table=lists.array("table"),
            size=lists.array("size"),
            clique=lists.array("clique"),
            site=np.array(part_sites, dtype=np.int64),
            owns=_closed(lists.array("owns"), len(lists.part_strides)),
            own_strides=lists.array("part_strides"),
            own_cards=lists.array("part_cards"),
            own_steps=lists.array("part_steps"),
            places=lists.array("places"),
            factor_parts=_closed(lists.array("factor_parts"), len(lists.factor)),
            factor_table=self.graph.table_offsets[:-1][self.split_factors].astype(np.int64),
        )
        forest = self.forest
        tree_of_part = np.array([forest.tree_of_clique[c] for c in lists.clique], dtype=np.int64)
        look_at_clock()
        return Layout(
            graph=self.graph,
            forest=forest,
            shape=self._shape(),
            parts=parts,
            tours=self._tours(tree_of_part),
            sites=[site for _, site in self.site_rows],
            part_variables=self.part_variables,
            whole=self.whole,
            split_factors=self.split_factors,
            n_pending=self.n_pending,
            move_cost=self._move_costs(),
        )

    def _tours(self, tree_of_part: Ints) -> Tours:
        look_at_clock()
        trees = np.array(self.forest.tree_offsets, dtype=np.int64)
        paths = [_tour(self.forest, int(end) - 1) for end in trees[1:]]
        counts = np.bincount(tree_of_part, minlength=len(paths))
        return Tours(
            trees,
            np.concatenate(paths),
            offsets_of([len(path) for path in paths]),
            np.concatenate([_upward(self.forest, a, b) for a, b in pairwise(trees)]),
            offsets_of(np.diff(trees) - 1),
            np.argsort(tree_of_part, kind="stable").astype(np.int64),
            offsets_of(counts),
        )

    def _move_costs(self) -> Array:
        """Elementary steps of one move from each clique, about."""
        look_at_clock()
        links = np.array([len(found) + 3.0 for found in self.forest.children])
        for clique, site in in_time(self.site_rows):
            behind = [prod(self.cards[v] for v in branch.behind) for branch in site.branches]
            links[clique] += 2.0 * prod(behind) + len(site.own)
        return np.asarray(links * np.array(self.sizes))

    def _shape(self) -> Shape:
        forest, lists = self.forest, self.lists
        sizes = np.array(self.sizes, dtype=np.int64)
        separators = np.array(self.separators, dtype=np.int64)
        maps = [self._map(c, p) for c, p in in_time(enumerate(forest.parent)) if p >= 0]
        maps += [self._map(c, c) for c in in_time(range(len(sizes)))]
        lengths = [self.sizes[p] if p >= 0 else 0 for p in forest.parent]
        map_starts = offsets_of(np.array([*lengths, *self.sizes], dtype=np.int64))[:-1].copy()
        parent_map, own_map = map_starts[: len(sizes)].copy(), map_starts[len(sizes) :].copy()
        edge, up = lists.array("branch_edge"), lists.array("branch_up")
        children = [c for found in forest.children for c in found]
        sites = (
            np.bincount([c for c, _ in self.site_rows], minlength=len(sizes))
            if (self.site_rows)
            else np.zeros(len(sizes))
        )
        return Shape(
            size=sizes,
            table=offsets_of(sizes)[:-1].copy(),
            parent=np.array(forest.parent, dtype=np.int64),
            separator=offsets_of(separators)[:-1].copy(),
            separator_size=separators,
            residual_size=sizes // separators,
            child_offsets=offsets_of([len(found) for found in forest.children]),
            children=np.array(children, dtype=np.int64),
            parent_map=parent_map,
            own_map=own_map,
            maps=np.concatenate(maps),
            sites=offsets_of(sites),
            site_table=lists.array("site_table"),
            site_owns=_closed(lists.array("site_owns"), len(lists.own_strides)),
            own_strides=lists.array("own_strides"),
            own_cards=lists.array("own_cards"),
            own_steps=lists.array("own_steps"),
            site_branches=_closed(lists.array("site_branches"), len(lists.branch_edge)),
            branch_edge=edge,
            branch_up=up,
            branch_map=np.where(up == 1, parent_map[edge], own_map[edge]),
            branch_in=lists.array("branch_in"),
            branch_out=lists.array("branch_out"),
            branch_below=lists.array("branch_below"),
            branch_above=lists.array("branch_above"),
            branch_places=lists.array("branch_places"),
            out_own=lists.array("out_own"),
            out_steps=lists.array("out_steps"),
            out_from=lists.array("out_from"),
            out_places=lists.array("out_places"),
            shifts=lists.array("shifts"),
        )

    def _map(self, clique: int, at: int) -> U4:
        """State of the separator above a clique for every entry of it, or of its parent."""
        forest = self.forest
        shared = forest.cliques[clique][: len(forest.cliques[clique]) - forest.residual[clique]]
        steps = dict(zip(shared, strides([self.cards[v] for v in shared]), strict=True))
        members = forest.cliques[at]
        found = places([self.cards[v] for v in members], [steps.get(v, 0) for v in members])
        return found.astype(np.uint32)


def _upward(forest: Forest, first: int, end: int) -> Ints:
    """Moves from the leaves of a tree to its root, the last of its cliques."""
    cliques = np.arange(first, end - 1, dtype=np.int64)
    parents = np.array(forest.parent[first : end - 1], dtype=np.int64)
    return np.ascontiguousarray(np.stack([cliques, parents], axis=1))


def _tour(forest: Forest, root: int) -> Ints:
    """Moves of one sweep over a tree: down and up again from the root, depth first."""
    return np.array(list(in_time(_moves(forest, root))), dtype=np.int64).reshape(-1, 2)


def _moves(forest: Forest, root: int) -> Iterator[tuple[int, int]]:
    stack = [(root, iter(forest.children[root]))]
    while stack:
        clique, rest = stack[-1]
        child = next(rest, None)
        if child is None:
            stack.pop()
            if stack:
                yield clique, stack[-1][0]
        else:
            yield clique, child
            stack.append((child, iter(forest.children[child])))


def _closed(first: Ints, end: int) -> Ints:
    """Beginnings of segments with the end of the last."""
    return np.append(first, end).astype(np.int64)
