"""A metric for marginals of a graph: the covariance of a Markov tree (see the kernels)."""

from __future__ import annotations

import itertools

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.engines.messages.kernels import tree_metric
from kikuchi.graphs.factor_graph import FactorGraph


class TreeMetric:
    """Covariance of the Markov tree of most mutual information in given beliefs.

    >>> edge = FactorGraph([2, 2], [((0, 1), np.eye(2))])
    >>> metric = TreeMetric(edge)
    >>> metric.update(np.array([0.5, 0.0, 0.0, 0.5]), np.full(4, 0.5))
    >>> metric(np.array([0.0, 1.0, 0.0, 0.0])).tolist()
    [-0.25, 0.25, -0.25, 0.25]
    """

    def __init__(self, graph: FactorGraph) -> None:
        self.graph = graph
        first, second = _pairs(graph)
        self.factor = graph.edge_factors[first].astype(np.int64)
        self.first, self.second = first, second
        self.one = graph.scopes[first].astype(np.int64)
        self.two = graph.scopes[second].astype(np.int64)
        cards = graph.cardinalities.astype(np.int64)
        sizes = cards[self.one] * cards[self.two]
        self.pair_at = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.pairs = np.zeros(int(self.pair_at[-1]))
        self.marginals = np.zeros(0)
        self.pair = np.zeros(0, dtype=np.int64)
        self.flipped = np.zeros(0, dtype=np.uint8)

    def update(self, factor_beliefs: Array, marginals: Array) -> None:
        """Take the tree from these beliefs."""
        graph = self.graph
        shared = np.zeros(len(self.factor))
        tree_metric.pair_marginals(
            self.factor,
            self.first,
            self.second,
            self.pair_at,
            factor_beliefs,
            graph.table_offsets,
            graph.scope_offsets,
            graph.message_offsets,
            self.pairs,
            shared,
        )
        self.marginals = marginals.copy()
        order = np.argsort(-shared, kind="stable")
        self.pair, self.flipped = tree_metric.spanning_forest(
            order, self.one, self.two, graph.n_variables
        )

    def __call__(self, vector: Array) -> Array:
        """The covariance times a vector with one entry per state."""
        product: Array = tree_metric.covariance_times(
            vector,
            self.marginals,
            self.graph.state_offsets,
            self.one,
            self.two,
            self.pair,
            self.flipped,
            self.pair_at,
            self.pairs,
        )
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
