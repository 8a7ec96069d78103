"""The shape of a junction tree: which tables there are, and which marginals are read from which."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.engines.tables import strides
from kikuchi.engines.trees.kernels import joins, layout
from kikuchi.graphs.elimination import Elimination
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.junction_tree import junction_tree

HUGE = 1e300  # sizes stop here


class TreeLayout(NamedTuple):
    """A junction tree and its tables in flat arrays, by rank (see `CliqueTree`); sizes are floats.

    Nodes that sum nothing out are join nodes (see `kernels.joins`); all others are the
    maximal cliques of the elimination.
    """

    rank: Ints
    clique_offsets: Ints
    clique_vars: Ints
    residual: Ints
    parent: Ints
    home: Ints
    card: Ints
    clique_size: Array
    separator_size: Array
    child_offsets: Ints
    children: Ints
    factor_ranks: Ints
    factor_strides: Ints
    factor_home: Ints
    groups: Ints
    group_offsets: Ints
    group_vars: Ints
    group_tables: Ints
    group_of: Ints

    @property
    def n_nodes(self) -> int:
        """Number of cliques and join nodes."""
        return len(self.parent)

    @property
    def n_cliques(self) -> int:
        """Number of maximal cliques."""
        return int(np.count_nonzero(self.residual))

    @property
    def largest_residual(self) -> float:
        """States of the variables that one clique sums out, at most."""
        return float(np.rint(self.clique_size / self.separator_size).max(initial=1.0))

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays themselves."""
        return sum(array.nbytes for array in self)


class MarginalTargets(NamedTuple):
    """Marginals to read: their axes (ranks and strides), their offsets and sizes in the result, and
    which of them are read from each clique and from the separator above each clique.
    """

    offsets: Ints
    ranks: Ints
    strides: Ints
    places: Ints
    sizes: Ints
    clique_offsets: Ints
    in_clique: Ints
    separator_offsets: Ints
    in_separator: Ints

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays themselves."""
        return sum(array.nbytes for array in self)


def build_tree(graph: FactorGraph, found: Elimination) -> TreeLayout:
    """The junction tree of a complete elimination."""
    tree = junction_tree(found)
    card, clique_size, separator_size = layout.sizes(
        graph.cardinalities, tree.rank, tree.offsets, tree.ranks, tree.residual
    )
    ranks, strides = layout.ranked_scopes(
        tree.rank, graph.cardinalities, graph.scopes, graph.scope_offsets
    )
    # A factor belongs where the first of its variables to go is eliminated: its largest rank.
    factor_home = tree.home[ranks[graph.scope_offsets[1:] - 1]]
    if clique_size.max(initial=0.0) >= joins.WORTH:
        nodes = joins.join_nodes(tree, card, clique_size, factor_home, graph.scope_offsets, ranks)
        tree, factor_home = joins.with_joins(tree, nodes, factor_home)
        card, clique_size, separator_size = layout.sizes(
            graph.cardinalities, tree.rank, tree.offsets, tree.ranks, tree.residual
        )
    grouped = layout.group_factors(
        factor_home, graph.scope_offsets, ranks, card, tree.offsets, clique_size
    )
    sizes = np.minimum(clique_size, HUGE), np.minimum(separator_size, HUGE)
    child_offsets, children = layout.lists_by(tree.parent, len(tree.parent))
    factors = ranks, strides, factor_home
    return TreeLayout(*tree, card, *sizes, child_offsets, children, *factors, *grouped)


# ---------------------------------------------------------------------- what to read


def variable_targets(tree: TreeLayout, graph: FactorGraph) -> MarginalTargets:
    """The marginal of every variable, each from the smallest table that holds it."""
    in_clique, in_separator = layout.smallest_tables(
        tree.rank,
        tree.home,
        tree.parent,
        tree.residual,
        tree.clique_offsets,
        tree.clique_vars,
        tree.clique_size,
        tree.separator_size,
    )
    clique_offsets, by_clique = layout.lists_by(in_clique, tree.n_nodes)
    separator_offsets, by_separator = layout.lists_by(in_separator, tree.n_nodes)
    n = graph.n_variables
    return MarginalTargets(
        np.arange(n + 1),
        tree.rank,
        np.ones(n, dtype=np.int64),
        graph.state_offsets[:-1].copy(),
        graph.cardinalities.astype(np.int64),
        clique_offsets,
        by_clique,
        separator_offsets,
        by_separator,
    )


def factor_targets(tree: TreeLayout, graph: FactorGraph) -> MarginalTargets:
    """The marginal of every factor, from the clique that it was multiplied into."""
    clique_offsets, by_clique = layout.lists_by(tree.factor_home, tree.n_nodes)
    return MarginalTargets(
        graph.scope_offsets.copy(),
        tree.factor_ranks,
        tree.factor_strides,
        graph.table_offsets[:-1].copy(),
        np.diff(graph.table_offsets),
        clique_offsets,
        by_clique,
        _none(tree.n_nodes + 1),
        _none(0),
    )


def joint_target(
    tree: TreeLayout, graph: FactorGraph, variables: list[int], clique: int
) -> MarginalTargets:
    """The joint marginal of some variables, all in one clique; axes in the order given."""
    cards = graph.cardinalities[variables].astype(np.int64)
    steps = np.array(strides(cards.tolist()), dtype=np.int64)
    ranks = tree.rank[variables]
    by_rank = np.argsort(ranks)
    lists = _none(tree.n_nodes + 1)
    lists[clique + 1 :] = 1
    return MarginalTargets(
        np.array([0, len(variables)]),
        ranks[by_rank],
        steps[by_rank],
        _none(1),
        np.array([int(np.prod(cards))]),
        lists,
        _none(1),
        _none(tree.n_nodes + 1),
        _none(0),
    )


def no_targets(tree: TreeLayout) -> MarginalTargets:
    """Nothing to read: log Z, samples and best states need the upward pass only."""
    lists = _none(tree.n_nodes + 1)
    empty = _none(0)
    return MarginalTargets(_none(1), empty, empty, empty, empty, lists, empty, lists, empty)


def _none(size: int) -> Ints:
    return np.zeros(size, dtype=np.int64)
