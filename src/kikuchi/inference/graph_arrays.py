"""What compiled loops read: the arrays of a graph in one tuple, and its form in bits.

Two views of a `FactorGraph`. `FlatGraph` is any graph; `Bits` is the Boltzmann form (TEH-M1) of a
positive graph of binary variables and factors of one or two variables,

    log weight(x) = constant + sum_i bias_i x_i + sum_(i<j) W_ij x_i x_j,    x in {0, 1}.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kikuchi.graphs.factor_graph import FactorGraph


class FlatGraph(NamedTuple):
    """The arrays of a graph, all read-only, in the order that compiled loops expect."""

    cards: NDArray[np.uint32]
    scopes: NDArray[np.uint32]
    scope_offsets: NDArray[np.int64]
    log_tables: NDArray[np.float64]
    table_offsets: NDArray[np.int64]
    state_offsets: NDArray[np.int64]
    variable_offsets: NDArray[np.int64]
    variable_edges: NDArray[np.uint32]
    edge_factors: NDArray[np.uint32]
    edge_strides: NDArray[np.int64]

    @property
    def n_variables(self) -> int:
        """Number of variables."""
        return len(self.cards)

    @property
    def n_factors(self) -> int:
        """Number of factors."""
        return len(self.table_offsets) - 1

    @property
    def max_card(self) -> int:
        """Largest number of states of a variable."""
        return int(self.cards.max())

    def with_tables(self, log_tables: NDArray[np.float64]) -> FlatGraph:
        """The same graph with other log-potentials (frozen, as compiled loops expect)."""
        log_tables.flags.writeable = False
        return self._replace(log_tables=log_tables)


def flatten(graph: FactorGraph) -> FlatGraph:
    """The arrays of `graph`.

    >>> flat = flatten(FactorGraph([2, 3], [((0, 1), np.ones(6))]))
    >>> flat.edge_strides.tolist()
    [3, 1]
    """
    return FlatGraph(
        graph.cardinalities,
        graph.scopes,
        graph.scope_offsets,
        graph.log_tables,
        graph.table_offsets,
        graph.state_offsets,
        graph.variable_offsets,
        graph.variable_edges,
        graph.edge_factors,
        _edge_strides(graph),
    )


def _edge_strides(graph: FactorGraph) -> NDArray[np.int64]:
    """How far apart two neighbouring states of each edge's variable are in the factor's table."""
    strides = np.ones(graph.n_edges, dtype=np.int64)
    orders = np.diff(graph.scope_offsets)
    cards = graph.cardinalities[graph.scopes].astype(np.int64)
    for order in np.unique(orders[orders > 1]):
        first = graph.scope_offsets[:-1][orders == order]
        for k in range(int(order) - 2, -1, -1):
            strides[first + k] = strides[first + k + 1] * cards[first + k + 1]
    strides.flags.writeable = False
    return strides


class Bits(NamedTuple):
    """Boltzmann form: biases, and symmetric couplings as rows of (neighbour, weight)."""

    biases: NDArray[np.float64]
    offsets: NDArray[np.uint32]
    neighbours: NDArray[np.uint32]
    weights: NDArray[np.float64]
    constant: float

    @property
    def degrees(self) -> NDArray[np.int64]:
        """Number of neighbours of each variable."""
        return np.diff(self.offsets.astype(np.int64)).astype(np.int64)


def bits_form(graph: FactorGraph) -> Bits | None:
    """The graph in bits; None if a variable is not binary, a factor has more than two variables,
    or a table has a zero.

    >>> bits = bits_form(FactorGraph([2, 2], [((0, 1), [[1, 1], [1, np.e]])]))
    >>> bits.biases.tolist(), bits.weights.tolist()
    ([0.0, 0.0], [1.0, 1.0])
    """
    from scipy.sparse import coo_array

    orders = np.diff(graph.scope_offsets)
    if (
        np.any(graph.cardinalities != 2)
        or np.any(orders > 2)
        or not np.all(np.isfinite(graph.log_tables))
    ):
        return None
    n = graph.n_variables
    biases = np.zeros(n)
    constant = float(graph.log_tables[graph.table_offsets[:-1]].sum())  # all bits at 0
    ones = orders == 1
    start = graph.table_offsets[:-1][ones]
    slope = graph.log_tables[start + 1] - graph.log_tables[start]
    np.add.at(biases, graph.scopes[graph.scope_offsets[:-1][ones]], slope)
    first = graph.scope_offsets[:-1][~ones]
    i, j = graph.scopes[first].astype(np.int64), graph.scopes[first + 1].astype(np.int64)
    w00, w01, w10, w11 = (graph.log_tables[graph.table_offsets[:-1][~ones] + k] for k in range(4))
    np.add.at(biases, i, w10 - w00)
    np.add.at(biases, j, w01 - w00)
    couplings = (w11 - w10) - (w01 - w00)
    upper = coo_array((couplings, (np.minimum(i, j), np.maximum(i, j))), shape=(n, n)).tocsr()
    matrix: Any = (upper + upper.T).tocsr()
    matrix.sort_indices()
    return Bits(
        biases,
        matrix.indptr.astype(np.uint32),
        matrix.indices.astype(np.uint32),
        np.asarray(matrix.data, dtype=np.float64),
        constant,
    )
