"""Flat arrays of a junction forest and of the factors that no clique of it holds whole.

A factor inside one clique belongs to that clique. Any other is cut into parts, one for each tree of
the forest that has variables of it. A part inside one clique is read there; a part that is not is
"split": the cliques between its variables each have a site for it, where the distributions of its
variables behind the neighbours meet (see `kernels.structured_mean_field`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kikuchi.core.arrays import U4, Array, Ints
from kikuchi.engines.mean_field.structured_subgraph import Forest, in_time
from kikuchi.engines.tables import outer, places, strides
from kikuchi.graphs.factor_graph import FactorGraph

if TYPE_CHECKING:
    from kikuchi.engines.mean_field.structured_sites import Site


class Shape(NamedTuple):
    """Cliques, tree edges and sites; a tree edge has the number of the clique below it."""

    size: Ints
    table: Ints
    parent: Ints
    separator: Ints
    separator_size: Ints
    residual_size: Ints
    child_offsets: Ints
    children: Ints
    parent_map: Ints
    own_map: Ints
    maps: U4
    sites: Ints
    site_table: Ints
    site_owns: Ints
    own_strides: Ints
    own_cards: Ints
    own_steps: Ints
    site_branches: Ints
    branch_edge: Ints
    branch_up: Ints
    branch_map: Ints
    branch_in: Ints
    branch_out: Ints
    branch_below: Ints
    branch_above: Ints
    branch_places: Ints
    out_own: Ints
    out_steps: Ints
    out_from: Ints
    out_places: Ints
    shifts: Ints


class FactorParts(NamedTuple):
    """Parts of the factors that no clique holds whole; those of one factor stand together."""

    factor: Ints
    table: Ints
    size: Ints
    clique: Ints
    site: Ints
    owns: Ints
    own_strides: Ints
    own_cards: Ints
    own_steps: Ints
    places: Ints
    factor_parts: Ints
    factor_table: Ints


class Tours(NamedTuple):
    """By tree: its cliques, the moves of one sweep, the moves to the root, and its parts."""

    trees: Ints
    path: Ints
    path_offsets: Ints
    upward: Ints
    upward_offsets: Ints
    parts: Ints
    part_offsets: Ints


class StructuredForest(NamedTuple):
    """What the sweeps read."""

    shape: Shape
    parts: FactorParts
    tours: Tours


class Route(NamedTuple):
    """Moves of all trees, where those of each begin, and what a move does (`kernels.UPDATE`...)."""

    path: Ints
    path_offsets: Ints
    mode: int


class StructuredWorkspace(NamedTuple):
    """What the sweeps change."""

    base: Array
    theta: Array
    cond: Array
    belief: Array
    up: Array
    down: Array
    pending: Array
    tables: Array
    marginals: Array
    resolved: Array
    unresolved: Array
    top: Array
    total: Array
    counter: Ints


@dataclass(eq=False)
class Layout:
    """A forest laid out for one graph."""

    graph: FactorGraph
    forest: Forest
    shape: Shape
    parts: FactorParts
    tours: Tours
    sites: list[Site]
    part_variables: list[list[int]]
    whole: list[tuple[int, int]]
    split_factors: list[int]
    n_pending: int
    move_cost: Array

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        return len(self.tours.trees) - 1

    def work(self) -> StructuredWorkspace:
        """Room for the sweeps, with the factors that cliques hold multiplied in."""
        s, q = self.shape, self.parts
        entries = int(s.table[-1] + s.size[-1])
        seps = int(s.separator[-1] + s.separator_size[-1])
        largest = int(s.size.max())
        base = np.zeros(entries)
        for factor, clique in in_time(self.whole):
            place = slice(int(s.table[clique]), int(s.table[clique] + s.size[clique]))
            base[place] += self.clique_view(factor, clique)
        tables = self.graph.log_tables[_absolute(q)] if len(q.factor) else np.zeros(0)
        return StructuredWorkspace(
            base=base,
            theta=base.copy(),
            cond=np.zeros(entries),
            belief=np.zeros(entries),
            up=np.zeros(seps),
            down=np.zeros(seps),
            pending=np.zeros(self.n_pending),
            tables=tables,
            marginals=np.zeros(len(q.places)),
            resolved=np.zeros(largest),
            unresolved=np.zeros(largest),
            top=np.zeros(int(s.separator_size.max())),
            total=np.zeros(int(s.separator_size.max())),
            counter=np.zeros(64, dtype=np.int64),
        )

    def start_at(self, work: StructuredWorkspace, q: Array) -> None:
        """Put the product distribution q in every table that sweeps read before they write it."""
        offsets, s = self.graph.state_offsets, self.shape
        single = [q[a:b] for a, b in in_time(pairwise(offsets))]
        cliques = zip(self.forest.cliques, self.forest.residual, strict=True)
        for clique, (members, r) in enumerate(in_time(cliques)):
            rest = outer([single[v] for v in members[len(members) - r :]])
            at = int(s.table[clique])
            work.cond[at : at + int(s.size[clique])] = np.tile(rest, int(s.separator_size[clique]))
        for part, variables in enumerate(in_time(self.part_variables)):
            at = int(self.parts.table[part])
            work.marginals[at : at + int(self.parts.size[part])] = outer(
                [single[v] for v in variables]
            )
        for site in in_time(self.sites):
            for branch in site.branches:
                row = outer([single[v] for v in branch.behind])
                n = int(s.separator_size[branch.edge])
                rows = work.pending[branch.incoming : branch.incoming + n * len(row)]
                rows.reshape(n, len(row))[:] = row

    def clique_view(self, factor: int, clique: int) -> Array:
        """A factor's log-table spread over the entries of a clique that holds it."""
        at = int(self.graph.table_offsets[factor])
        return np.asarray(self.graph.log_tables[at + self._clique_index(factor, clique)])

    def _clique_index(self, factor: int, clique: int) -> Ints:
        scope = self.graph.scope(factor)
        steps = dict(zip(scope, strides(self.graph.shape(factor)), strict=True))
        members = self.forest.cliques[clique]
        cards = [int(self.graph.cardinalities[v]) for v in members]
        return places(cards, [steps.get(v, 0) for v in members])

    def factor_tables(self, belief: Array, marginals: Array) -> Array:
        """Beliefs of all factors of the graph, laid out as its log-tables."""
        graph, s, q = self.graph, self.shape, self.parts
        out = np.zeros(graph.log_tables.size)
        for factor, clique in self.whole:
            low, high = graph.table_offsets[factor], graph.table_offsets[factor + 1]
            mass = belief[s.table[clique] : s.table[clique] + s.size[clique]]
            index = self._clique_index(factor, clique)
            out[low:high] = np.bincount(index, weights=mass, minlength=int(high - low))
        for k, factor in enumerate(self.split_factors):
            places, mass = np.zeros(1, dtype=np.int64), np.ones(1)
            for part in range(int(q.factor_parts[k]), int(q.factor_parts[k + 1])):
                span = slice(int(q.table[part]), int(q.table[part] + q.size[part]))
                places = np.add.outer(places, q.places[span]).ravel()
                mass = np.multiply.outer(mass, marginals[span]).ravel()
            out[int(graph.table_offsets[factor]) + places] = mass
        return out

    def variable_marginals(self, belief: Array) -> Array:
        """Marginals of all variables, each from the clique nearest the root."""
        graph, s = self.graph, self.shape
        out = np.zeros(int(graph.state_offsets[-1]))
        for clique, members in enumerate(self.forest.cliques):
            shape = [int(graph.cardinalities[v]) for v in members]
            mass = belief[s.table[clique] : s.table[clique] + s.size[clique]].reshape(shape)
            for axis in range(len(members) - self.forest.residual[clique], len(members)):
                low = graph.state_offsets[members[axis]]
                sums = mass.sum(axis=tuple(k for k in range(len(members)) if k != axis))
                out[low : low + len(sums)] = sums
        return out


def _absolute(parts: FactorParts) -> Ints:
    """For the tables of single parts: where each entry is in the graph's log-tables."""
    first = parts.factor_table[parts.factor]
    return np.asarray(np.repeat(first, parts.size) + parts.places)
