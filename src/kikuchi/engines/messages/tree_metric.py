"""A metric for marginals of a graph: the covariance of a Markov tree (see the kernels)."""

from __future__ import annotations

import itertools

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.engines.messages.kernels import tree_metric
from kikuchi.engines.messages.tables import message_layout
from kikuchi.graphs.factor_graph import FactorGraph


class TreeMetric:
    """Covariance of the Markov tree of most mutual information in given beliefs.

    >>> edge = FactorGraph([2, 2], [((0, 1), np.eye(2))])
    >>> metric = TreeMetric(edge)
    >>> metric.update(np.array([0.5, 0.0, 0.0, 0.5]), np.full(4, 0.5))
    >>> metric(np.array([0.0, 1.0, 0.0, 0.0])).tolist()
    [-0.25, 0.25, -0.25, 0.25]
    """

    tree: tree_metric.MarkovTree  # of the last update

    def __init__(self, graph: FactorGraph) -> None:
        self.graph = graph
        self.layout = message_layout(graph)
        first, second = _pairs(graph)
        one = graph.scopes[first].astype(np.int64)
        two = graph.scopes[second].astype(np.int64)
        cards = graph.cardinalities.astype(np.int64)
        pair_at = np.concatenate([[0], np.cumsum(cards[one] * cards[two])]).astype(np.int64)
        self.pairs = tree_metric.FactorPairs(
            graph.edge_factors[first].astype(np.int64),
            first,
            second,
            one,
            two,
            pair_at,
            np.zeros(int(pair_at[-1])),
        )

    def update(self, factor_beliefs: Array, marginals: Array) -> None:
        """Take the tree from these beliefs."""
        graph = self.graph
        shared = np.zeros(len(self.pairs.factor))
        tree_metric.pair_marginals(self.pairs, self.layout, factor_beliefs, shared)
        order = np.argsort(-shared, kind="stable")
        pair, flipped = tree_metric.spanning_forest(
            order, self.pairs.one, self.pairs.two, graph.n_variables
        )
        self.tree = tree_metric.MarkovTree(pair, flipped, marginals.copy(), graph.state_offsets)

    def __call__(self, vector: Array) -> Array:
        """The covariance times a vector with one entry per state."""
        product: Array = tree_metric.covariance_times(vector, self.pairs, self.tree)
        return product


def _pairs(graph: FactorGraph) -> tuple[Ints, Ints]:
    """Edges of all pairs of variables that share a factor."""
    starts = graph.scope_offsets[:-1]
    orders = np.diff(graph.scope_offsets)
    first = [np.zeros(0, dtype=np.int64)]
    second = [np.zeros(0, dtype=np.int64)]
    for order in np.unique(orders[orders > 1]):
        for i, j in itertools.combinations(range(int(order)), 2):
            first.append(starts[orders == order] + i)
            second.append(starts[orders == order] + j)
    return np.concatenate(first), np.concatenate(second)
