"""The arrays of a factor graph in one tuple, for compiled loops."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import U4, Array, Ints
from kikuchi.graphs.factor_graph import FactorGraph


class GraphArrays(NamedTuple):
    """The arrays of a graph, all read-only, in the order that compiled loops expect."""

    cards: U4
    scopes: U4
    scope_offsets: Ints
    log_tables: Array
    table_offsets: Ints
    state_offsets: Ints
    variable_offsets: Ints
    variable_edges: U4
    edge_factors: U4
    edge_strides: Ints

    @property
    def n_factors(self) -> int:
        """Number of factors."""
        return len(self.table_offsets) - 1

    @property
    def max_card(self) -> int:
        """Largest number of states of a variable."""
        return int(self.cards.max())

    def with_tables(self, log_tables: Array) -> GraphArrays:
        """Return the same graph with other log-potentials (read-only, as compiled loops expect)."""
        log_tables.flags.writeable = False
        return self._replace(log_tables=log_tables)


def flatten(graph: FactorGraph) -> GraphArrays:
    """The arrays of `graph`.

    >>> flat = flatten(FactorGraph([2, 3], [((0, 1), np.ones(6))]))
    >>> flat.edge_strides.tolist()
    [3, 1]
    """
    return GraphArrays(
        graph.cardinalities,
        graph.scopes,
        graph.scope_offsets,
        graph.log_tables,
        graph.table_offsets,
        graph.state_offsets,
        graph.variable_offsets,
        graph.variable_edges,
        graph.edge_factors,
        graph.edge_strides,
    )


def local_fields(graph: FactorGraph) -> Array:
    """Return the sums of the log-tables of single-variable factors, flat by variable and state.

    >>> graph = FactorGraph([2, 2], [((0,), [1, 3]), ((0,), [1, 3]), ((0, 1), np.ones(4))])
    >>> np.exp(local_fields(graph)).round(6).tolist()
    [1.0, 9.0, 1.0, 1.0]
    """
    field = np.zeros(int(graph.state_offsets[-1]))
    single = np.diff(graph.scope_offsets) == 1
    entries = np.flatnonzero(np.repeat(single, np.diff(graph.table_offsets)))
    sizes = np.diff(graph.table_offsets)[single]
    begin = graph.state_offsets[graph.scopes[graph.scope_offsets[:-1][single]]]
    starts = np.repeat(begin - np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes)
    np.add.at(field, starts + np.arange(len(entries)), graph.log_tables[entries])
    return field
