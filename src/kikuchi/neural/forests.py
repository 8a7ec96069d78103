"""The exact solver of forests: chains and trees, for many sets of tables in one compiled loop.

Reference: LIU-I1.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Budget
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.method import EngineMethod
from kikuchi.neural.fixed_points import RowsSolver
from kikuchi.neural.kernels import forests as kernels


class ForestSolver(RowsSolver):
    """Sum-product from the leaves to a root of each tree and back.

    A factor stores the distribution of its lower variables given the one towards the root, so that
    each entry of a table takes one exponential. The response is the derivative of the two passes
    along a direction, the product with the covariances of the factors' states.

    >>> import kikuchi as kk
    >>> chain = kk.FactorGraph([2, 2], [((0,), [1, 3]), ((0, 1), [[1, 1], [1, 2]])])
    >>> solver = ForestSolver(chain, kk.methods.JunctionTree(), kk.Budget())
    >>> log_z, marginals, _ = solver.beliefs(np.stack([chain.log_tables, 0 * chain.log_tables]))
    >>> np.exp(log_z).round(6).tolist()
    [11.0, 4.0]
    """

    def __init__(self, graph: FactorGraph, method: EngineMethod, budget: Budget) -> None:
        super().__init__(graph, method, budget)
        self.forest = forest_of(graph)

    def beliefs(self, tables: Array) -> tuple[Array, Array, Array]:
        """log Z, marginals and factor beliefs of each row of tables."""
        rows = len(tables)
        log_z, factors = np.empty(rows), np.empty(tables.shape)
        states = np.empty((rows, int(self.graph.state_offsets[-1])))
        kernels.forest_beliefs(self.forest, np.ascontiguousarray(tables), log_z, states, factors)
        self.require_possible(log_z)
        return log_z, states, factors

    def response(self, tables: Array, states: Array, factors: Array) -> tuple[Array, Array]:
        """Linear response of marginals and factor beliefs of each row, its own adjoint. A marginal
        is a sum over the belief of one factor, so that a change of it is one of that factor.
        """
        entries, places = self._readers
        direction = np.array(factors, dtype=np.float64)
        np.add.at(direction.T, entries, states[:, places].T)
        moved, moved_states = np.empty(tables.shape), np.zeros(states.shape)
        kernels.forest_response(self.forest, np.ascontiguousarray(tables), direction, moved)
        np.add.at(moved_states.T, places, moved[:, entries].T)
        return moved_states, moved

    @cached_property
    def _readers(self) -> tuple[Ints, Ints]:
        """For each variable in a factor: the entries of one such factor, and their states."""
        graph = self.graph
        first = {int(v): k for k, v in reversed(list(enumerate(graph.scopes)))}
        entries, places = [], []
        for v, edge in first.items():
            factor = int(graph.edge_factors[edge])
            begin, end = graph.table_offsets[factor : factor + 2].tolist()
            within = np.arange(end - begin) // int(graph.edge_strides[edge])
            entries.append(np.arange(begin, end))
            places.append(graph.state_offsets[v] + within % graph.cardinalities[v])
        if not entries:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        return np.concatenate(entries), np.concatenate(places).astype(np.int64)


def forest_of(graph: FactorGraph) -> kernels.ForestLayout:
    """The layout of a graph without cycles, from the leaves to a root of each tree."""
    order, upper, roots = _rooted(graph)
    offsets = graph.table_offsets.astype(np.int64)
    entries = np.empty(int(offsets[-1]), dtype=np.uint32)
    blocks, firsts, widths = (np.empty(graph.n_factors, dtype=np.int64) for _ in range(3))
    lowers = np.zeros(graph.n_factors + 1, dtype=np.int64)
    lower = []
    for a in range(graph.n_factors):
        scope, shape = graph.scope(a), graph.shape(a)
        axis = scope.index(upper[a])
        others = [k for k in range(len(scope)) if k != axis]
        table = np.arange(offsets[a], offsets[a + 1]).reshape(shape).transpose(axis, *others)
        entries[offsets[a] : offsets[a + 1]] = table.ravel()
        blocks[a] = table.size // shape[axis]
        firsts[a] = graph.state_offsets[upper[a]]
        widths[a] = len(others)
        states = np.indices([shape[k] for k in others]).reshape(len(others), blocks[a])
        states += np.array([graph.state_offsets[scope[k]] for k in others], dtype=int)[:, None]
        lower.append(np.tile(states.T.ravel(), shape[axis]))
        lowers[a + 1] = lowers[a] + lower[-1].size
    return kernels.ForestLayout(
        np.array(order, dtype=np.uint32),
        offsets,
        entries,
        blocks,
        firsts,
        np.concatenate([*lower, np.zeros(0)]).astype(np.uint32),
        lowers,
        widths,
        np.array(roots, dtype=np.uint32),
        graph.state_offsets.astype(np.int64),
    )


def _rooted(graph: FactorGraph) -> tuple[list[int], list[int], list[int]]:
    """Factors from the leaves to the roots, the upper variable of each, and the roots."""
    factors_of: list[list[int]] = [[] for _ in range(graph.n_variables)]
    for a in range(graph.n_factors):
        for v in graph.scope(a):
            factors_of[v].append(a)
    upper = [-1] * graph.n_factors
    reached = [False] * graph.n_variables
    outward: list[int] = []
    roots = []
    for root in range(graph.n_variables):
        if reached[root]:
            continue
        roots.append(root)
        reached[root] = True
        ahead = [root]
        while ahead:
            v = ahead.pop()
            for a in factors_of[v]:
                if upper[a] < 0:
                    upper[a] = v
                    outward.append(a)
                    below = [u for u in graph.scope(a) if u != v]
                    for u in below:
                        reached[u] = True
                    ahead += below
    return outward[::-1], upper, roots
