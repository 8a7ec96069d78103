r"""Linear response of naive mean field.

Reference: HOJ-I11, TEH-I7.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.engines.response.linear_response import (
    Response,
    factored,
    projected_inverse,
    scattered,
    states_of,
)
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.table_shapes import FactorGroup, factor_groups, pair_sums


def narrow_root(graph: FactorGraph, q: Array) -> Any:
    """R with R R' = diag(q) - q q' in each block, and a column fewer than states per variable.

    R = diag(s) B, where s = sqrt(q) and the columns of B are those of the Householder reflection
    that takes s to the first axis, but for the first: an orthonormal basis of all that is
    orthogonal to s.

    >>> coin = FactorGraph([2], [((0,), [1, 3])])
    >>> root = narrow_root(coin, np.array([0.25, 0.75]))
    >>> root.shape, (root @ root.T).toarray().round(6).tolist()
    ((2, 1), [[0.1875, -0.1875], [-0.1875, 0.1875]])
    """
    from scipy.sparse import coo_array

    s = np.sqrt(q)
    columns_at = graph.state_offsets[:-1] - np.arange(graph.n_variables)
    rows, cols, values = [], [], []
    for card in np.unique(graph.cardinalities).tolist():
        chosen = graph.cardinalities == card
        states = graph.state_offsets[:-1][chosen][:, None] + np.arange(card)
        block = s[states]
        mirror = block + np.eye(card)[0]
        turned = mirror[:, :, None] * mirror[:, None, 1:] / (1.0 + block[:, 0])[:, None, None]
        values.append((block[:, :, None] * (np.eye(card)[:, 1:] - turned)).ravel())
        rows.append(np.repeat(states, card - 1, axis=1).ravel())
        cols.append(np.tile(columns_at[chosen][:, None] + np.arange(card - 1), card).ravel())
    positions = (np.concatenate(rows), np.concatenate(cols))
    shape = (len(q), len(q) - graph.n_variables)
    return coo_array((np.concatenate(values), positions), shape=shape).tocsr()


class MeanFieldResponse(Response):
    r"""The response of naive mean field at a stationary point, for any factors.

    From log q_i = field_i + sum_a E_q[log phi_a | x_i] follows dq = C (ds + H dq), with the blocks
    C_i = diag(q_i) - q_i q_i', the source ds_i = dfield_i + sum_a E_q[dtheta_a | x_i], and
    H_ij = sum_a E_q[log phi_a | x_i, x_j]. With C = R R' the response is R (1 - R' H R)^-1 R'.
    Factor beliefs are the products of their variables'.

    Parameters
    ----------
    graph : the model, with its tables.
    marginals : q, flat.

    >>> pair = FactorGraph([2, 2], [((0, 1), [[2, 1], [1, 2]]), ((0,), [1, 3])])
    >>> import kikuchi as kk
    >>> response = MeanFieldResponse(pair, kk.infer(pair, "mf").flat_marginals)
    >>> response.respond(np.array([0.0, 1.0, 0.0, 0.0]), np.zeros(6))[0].round(3).tolist()
    [-0.191, 0.191, -0.064, 0.064]
    """

    def __init__(self, graph: FactorGraph, marginals: Array) -> None:
        from scipy.sparse import coo_array, eye_array

        self.graph = graph
        self.q = marginals
        self.groups = factor_groups(graph)
        self.root = narrow_root(graph, marginals)
        size = len(marginals)
        matrix: Any = eye_array(self.root.shape[1], format="csc")
        parts = [part for group in self.groups for part in self._curvature(group)]
        if parts:
            rows, cols, values = (np.concatenate(part) for part in zip(*parts, strict=True))
            curvature = coo_array((values, (rows, cols)), shape=(size, size)).tocsr()
            matrix = (matrix - self.root.T @ curvature @ self.root).tocsc()
        self.solve = factored(matrix)

    def _curvature(self, group: FactorGroup) -> Iterator[tuple[Ints, Ints, Array]]:
        """Entries of H: the mean log-table given each pair of states."""
        values = self.graph.log_tables[group.entries]
        values = np.where(np.isfinite(values), values, 0.0)  # q forbids the others
        weights, starts = self.q[group.states], group.starts
        for i, j, mean in pair_sums(values, group.shape, weights):
            rows = group.states[:, starts[i] : starts[i + 1]]
            cols = group.states[:, starts[j] : starts[j + 1]]
            yield scattered(mean, rows, cols)
            yield scattered(mean.transpose(0, 2, 1), cols, rows)

    def _others(self, group: FactorGroup, without: int) -> Array:
        """The product of q over the variables of each table entry but one."""
        weight = np.ones(group.entries.shape)
        for k in range(len(group.shape)):
            if k != without:
                weight = weight * self.q[group.states[:, group.onto[:, k]]]
        return weight

    def respond(self, fields: Array, tables: Array) -> tuple[Array, Array]:
        """C applied: changes of the flat marginals and of the flat factor beliefs."""
        source = np.array(fields, dtype=np.float64)
        for group in self.groups:
            for k in range(len(group.shape)):
                mean = self._others(group, k) * tables[group.entries]
                np.add.at(source, group.states[:, group.onto[:, k]], mean)
        change = np.asarray(self.root @ self.solve(self.root.T @ source))
        out = np.empty(len(tables))
        for group in self.groups:
            total = np.zeros(group.entries.shape)
            for k in range(len(group.shape)):
                total += self._others(group, k) * change[group.states[:, group.onto[:, k]]]
            out[group.entries] = total
        return change, out

    def covariance(self, variables: Ints) -> Array:
        """The covariance of the states of some variables, many columns at once."""
        return projected_inverse(self.solve, self.root[states_of(self.graph, variables)])
