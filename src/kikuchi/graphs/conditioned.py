"""A graph reduced by evidence, and the mapping back to the original graph."""

from __future__ import annotations

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import ImpossibleEvidenceError
from kikuchi.graphs.checks import all_zero_factors
from kikuchi.graphs.factor_graph import Conditioned, FactorGraph


def conditioned(graph: FactorGraph, observed: dict[int, int]) -> Conditioned:
    """Slice every table of `graph` at the `observed` states and remove the observed variables."""
    if not observed:
        every = np.arange(graph.n_variables), np.arange(graph.n_factors)
        return Conditioned(graph, graph, observed, *every)
    keep_entry = np.ones(graph.log_tables.size, dtype=bool)
    is_observed = np.zeros(graph.n_variables, dtype=bool)
    is_observed[list(observed)] = True
    for factor in np.unique(graph.edge_factors[is_observed[graph.scopes]]):
        a = int(factor)
        box = np.zeros(graph.shape(a), dtype=bool)
        box[tuple(observed.get(v, slice(None)) for v in graph.scope(a))] = True
        keep_entry[graph.table_offsets[a] : graph.table_offsets[a + 1]] = box.ravel()
    keep_edge = ~is_observed[graph.scopes]
    orders = np.diff(np.concatenate([[0], np.cumsum(keep_edge)])[graph.scope_offsets])
    values = graph.log_tables[keep_entry]
    sizes = np.diff(np.concatenate([[0], np.cumsum(keep_entry)])[graph.table_offsets])
    constant_factors = np.repeat(orders == 0, sizes)
    constant = graph.log_constant + float(values[constant_factors].sum())
    variables = np.flatnonzero(~is_observed)
    kept_factors = np.flatnonzero(orders > 0)
    renumber = np.cumsum(~is_observed) - 1
    log_tables = values[~constant_factors]
    offsets = np.concatenate([[0], np.cumsum(sizes[kept_factors])]).astype(np.int64)
    dead = all_zero_factors(log_tables, offsets)
    if constant == -np.inf or dead.size:
        where = f" (factor {kept_factors[dead[0]]} has no remaining weight)" if dead.size else ""
        raise ImpossibleEvidenceError(
            f"the evidence has probability zero{where}; check the observed states"
        )
    reduced = FactorGraph.from_arrays(
        graph.cardinalities[variables],
        renumber[graph.scopes[keep_edge]],
        np.concatenate([[0], np.cumsum(orders[kept_factors])]),
        log_tables,
        names=None if graph.names is None else [graph.names[v] for v in variables],
        states=None if graph.states is None else [graph.states[v] for v in variables],
        log_constant=constant,
        validate=False,
    )
    return Conditioned(reduced, graph, observed, variables, kept_factors)


def expand_marginals(reduced: Conditioned, marginals: Array) -> Array:
    """Return flat marginals of the original graph; observed variables have all mass on a state."""
    if not reduced.observed:
        return marginals
    graph = reduced.original
    unobserved = np.zeros(graph.n_variables, dtype=bool)
    unobserved[reduced.variables] = True
    out = np.zeros(int(graph.state_offsets[-1]))
    out[np.repeat(unobserved, graph.cardinalities)] = marginals
    for v, k in reduced.observed.items():
        out[graph.state_offsets[v] + k] = 1.0
    return out


def expand_states(reduced: Conditioned, states: Ints) -> Ints:
    """Return a state vector, or rows of them, of the original graph."""
    out = np.empty((*states.shape[:-1], reduced.original.n_variables), dtype=np.int64)
    out[..., reduced.variables] = states
    for v, k in reduced.observed.items():
        out[..., v] = k
    return out


def expand_factors(reduced: Conditioned, tables: Array) -> Array:
    """Return factor beliefs of the original graph from those of the reduced one."""
    graph = reduced.original
    out = np.zeros(graph.log_tables.size)
    position = {int(a): k for k, a in enumerate(reduced.factors)}
    offsets = reduced.graph.table_offsets
    if not reduced.observed:
        return tables
    for a in range(graph.n_factors):
        block = out[graph.table_offsets[a] : graph.table_offsets[a + 1]].reshape(graph.shape(a))
        where = tuple(reduced.observed.get(v, slice(None)) for v in graph.scope(a))
        k = position.get(a)
        if k is None:
            block[where] = 1.0
        else:
            values = tables[offsets[k] : offsets[k + 1]]
            block[where] = values.reshape(block[where].shape)
    return out
