"""Spin models J, h of binary graphs as expansions need them, and their answers as beliefs.

Reference: HOJ-M4.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kikuchi.core.arrays import U4, Array, Ints
from kikuchi.core.errors import MethodError, ModelError
from kikuchi.graphs.binary import couplings_and_fields, pairwise_factor_tables
from kikuchi.graphs.factor_graph import FactorGraph

Indices = Ints

_STRONGEST = 1e6  # cubes of couplings are summed


@dataclass(frozen=True, eq=False)
class SpinModel:
    """log weight = constant + sum_{i<j} J_ij s_i s_j + sum_i h_i s_i over s = -1, +1.

    J is symmetric without diagonal, as rows of (neighbour, coupling).
    """

    fields: Array
    offsets: U4
    neighbours: U4
    couplings: Array
    constant: float

    @property
    def size(self) -> int:
        """Number of spins."""
        return len(self.fields)

    @cached_property
    def rows(self) -> Ints:
        """The spin that each stored coupling belongs to; its neighbour is in `neighbours`."""
        ends = self.offsets.astype(np.int64)
        return np.repeat(np.arange(self.size), ends[1:] - ends[:-1])

    @cached_property
    def columns(self) -> Ints:
        """`neighbours` as plain numbers."""
        return self.neighbours.astype(np.int64)

    def sums(self, values: Array) -> Array:
        """The sum over each spin's row of one value for each stored coupling."""
        return np.bincount(self.rows, values, self.size).astype(np.float64)

    def sparse(self, values: Array) -> Any:
        """A symmetric sparse matrix with these values in place of the couplings."""
        from scipy.sparse import csr_array

        return csr_array((values, self.columns, self.offsets.astype(np.int64)), (self.size,) * 2)

    def scaled(self, factor: float) -> SpinModel:
        """Couplings times a factor, fields as they are."""
        return SpinModel(
            self.fields, self.offsets, self.neighbours, factor * self.couplings, self.constant
        )


def spin_model(graph: FactorGraph, method: str) -> SpinModel:
    """The spin form of a positive binary pairwise graph; other graphs are refused.

    >>> from kikuchi import ising
    >>> spin_model(ising({(0, 1): 0.5}, [0.1, -0.2]), "tap").couplings.tolist()
    [0.5, 0.5]
    """
    try:
        form = couplings_and_fields(graph)
    except ModelError as error:
        raise MethodError(
            f"method {method}: {error}; use mf, bp or kikuchi, which take any model"
        ) from error
    matrix = form.couplings
    matrix.sort_indices()
    strongest = float(np.abs(matrix.data).max(initial=0.0))
    if not strongest <= _STRONGEST or not np.all(np.isfinite(form.fields)):
        raise MethodError(
            f"method {method}: a coupling of {strongest:.4g} is beyond {_STRONGEST:g}; use bp or mf"
        )
    return SpinModel(
        form.fields,
        matrix.indptr.astype(np.uint32),
        matrix.indices.astype(np.uint32),
        np.asarray(matrix.data, dtype=np.float64),
        form.constant - graph.log_constant,
    )


def spin_marginals(fields: Array) -> Array:
    """Flat probabilities of both states from x = atanh m, each to full relative accuracy.

    >>> spin_marginals(np.array([0.0])).tolist()
    [0.5, 0.5]
    """
    tail = np.exp(-2.0 * np.abs(fields))
    near, far = 1.0 / (1.0 + tail), tail / (1.0 + tail)
    up = fields >= 0
    return np.stack([np.where(up, far, near), np.where(up, near, far)], axis=1).ravel()


def spin_covariance_root(root: Array) -> Any:
    """From spins to states: x = (1 + s) / 2 has minus and plus half the deviation of s."""
    from scipy.sparse import coo_array

    n = len(root)
    rows = np.arange(2 * n)
    values = np.stack([-0.5 * root, 0.5 * root], axis=1).ravel()
    return coo_array((values, (rows, rows // 2)), shape=(2 * n, n)).tocsr()


class PairBeliefs:
    """Pair tables from single marginals and correlations E[s_i s_j] of a model's couplings.

    A table with means m_i, m_j exists only if |m_i + m_j| - 1 <= E[s_i s_j] <= 1 - |m_i - m_j|;
    expansions can leave that range, and are brought back to it. `excess` is by how much.
    """

    def __init__(self, model: SpinModel, marginals: Array, correlations: Array) -> None:
        self.model = model
        self.marginals = marginals.reshape(-1, 2)
        m = self.marginals[:, 1] - self.marginals[:, 0]
        mi, mj = m[model.rows], m[model.columns]
        low, high = np.abs(mi + mj) - 1.0, 1.0 - np.abs(mi - mj)
        self.correlations = np.clip(correlations, low, np.maximum(low, high))
        self.excess = float(np.abs(correlations - self.correlations).max(initial=0.0))

    def tables(self, graph: FactorGraph) -> Array:
        """Beliefs of all factors of the graph, laid out as its log-tables."""
        m = self.marginals[:, 1] - self.marginals[:, 0]
        signs = np.array([[-1, -1, 1], [-1, 1, -1], [1, -1, -1], [1, 1, 1]], dtype=np.float64)

        def pair_tables(first: Indices, second: Indices) -> Array:
            moments = np.stack([m[first], m[second], self._correlation(first, second)], axis=1)
            tables = np.maximum(0.25 * (1.0 + moments @ signs.T), 0.0)
            return np.asarray(tables / tables.sum(axis=1, keepdims=True))

        return pairwise_factor_tables(graph, self.marginals, pair_tables)

    def _correlation(self, first: Indices, second: Indices) -> Array:
        """E[s_i s_j] of pairs that have a stored coupling."""
        model = self.model
        keys = model.rows * model.size + model.columns
        return self.correlations[np.searchsorted(keys, first * model.size + second)]
