"""Beliefs that agree with each other, in models whose tables have zeros.

Where every entry is positive any marginals can be clamped. Zeros can make clamped marginals
impossible together, so a descent over consistent beliefs must begin at some: a linear programme
finds them, or proves that there are none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import BudgetError, ImpossibleEvidenceError
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.graph_arrays import flatten

_MARGIN = 1e-2  # of a uniform table: mass that every entry should have if it can


def consistent_marginals(
    graph: FactorGraph, targets: Mapping[int, Array], seconds: float | None = None
) -> Array | None:
    """Flat marginals of locally consistent beliefs that meet `targets`; None if there are none.

    Maximises the sum over table entries of min(belief, a small margin), so that as few beliefs as
    possible are zero, subject to: every factor's belief sums to the marginal of each of its
    variables, is zero where the table is, and observed variables have their targets.

    >>> equal = FactorGraph([2, 2], [((0, 1), [[1, 0], [0, 1]])])
    >>> consistent_marginals(equal, {0: np.array([0.3, 0.7])}).round(9).tolist()
    [0.3, 0.7, 0.3, 0.7]
    >>> consistent_marginals(equal, {0: np.array([0.3, 0.7]), 1: np.array([0.5, 0.5])}) is None
    True
    """
    from scipy.optimize import linprog
    from scipy.sparse import hstack

    allowed = np.flatnonzero(graph.log_tables > -np.inf)
    balance, fixed = _equations(graph, allowed, targets)
    singles = int(graph.state_offsets[-1])
    sizes = np.repeat(np.diff(graph.table_offsets), np.diff(graph.table_offsets))[allowed]
    # An entry is the sum of a part up to the margin, which counts, and of the rest.
    matrix: Any = hstack([balance[:, singles:], balance], format="csr")
    gains = np.concatenate([-np.ones(len(allowed)), np.zeros(singles + len(allowed))])
    upper = np.concatenate([_MARGIN / sizes, np.ones(singles + len(allowed))])
    found = linprog(
        gains,
        A_eq=matrix,
        b_eq=fixed,
        bounds=np.stack([np.zeros(len(upper)), upper], axis=1),
        method="highs-ds",
        options={} if seconds is None else {"time_limit": max(seconds, 0.01)},
    )
    if found.status == 2:
        return None
    if found.x is None or found.status not in (0, 1):
        raise BudgetError(
            "the search for consistent beliefs of a model with zeros ended without an answer "
            f"({found.message.strip()}); allow more seconds, or use loopy-is"
        )
    marginals: Array = np.maximum(found.x[len(allowed) : len(allowed) + singles], 0.0)
    totals = np.add.reduceat(marginals, graph.state_offsets[:-1])
    return np.asarray(marginals / np.repeat(totals, graph.cardinalities))


def starting_marginals(
    graph: FactorGraph, targets: Mapping[int, Array], seconds: float | None = None
) -> Array:
    """As `consistent_marginals`, but an error where there are none."""
    from kikuchi.engines.messages.tables import contradiction

    found = consistent_marginals(graph, targets, seconds)
    if found is not None:
        return found
    if targets:
        raise contradiction()
    raise ImpossibleEvidenceError(
        "the evidence has probability zero: the tables allow no common state"
    )


def _equations(
    graph: FactorGraph, allowed: Ints, targets: Mapping[int, Array]
) -> tuple[Any, Array]:
    """Equations over the single marginals and then the allowed table entries."""
    from scipy.sparse import coo_array

    flat = flatten(graph)
    singles = int(graph.state_offsets[-1])
    column = np.full(graph.log_tables.size, -1)
    column[allowed] = singles + np.arange(len(allowed))
    rows: list[Ints] = []
    cols: list[Ints] = []
    for e in range(graph.n_edges):
        a, v = int(graph.edge_factors[e]), int(graph.scopes[e])
        entries = np.arange(graph.table_offsets[a], graph.table_offsets[a + 1])
        inside = column[entries] >= 0
        state = (entries - entries[0]) // flat.edge_strides[e] % int(graph.cardinalities[v])
        rows.append(graph.message_offsets[e] + state[inside])
        cols.append(column[entries[inside]])
    ends = np.concatenate(rows)
    minus = np.arange(int(graph.message_offsets[-1]))
    of_edge = np.repeat(np.arange(graph.n_edges), graph.cardinalities[graph.scopes])
    single = graph.state_offsets[graph.scopes[of_edge]] + minus - graph.message_offsets[of_edge]
    totals = np.repeat(np.arange(graph.n_variables), graph.cardinalities)
    by_variable = [graph.state_offsets[v] + np.arange(len(t)) for v, t in targets.items()]
    clamped = np.concatenate([np.zeros(0, dtype=np.int64), *by_variable])
    base, above = len(minus), len(minus) + graph.n_variables
    r = np.concatenate([ends, minus, base + totals, above + np.arange(len(clamped))])
    c = np.concatenate([np.concatenate(cols), single, np.arange(singles), clamped])
    signs = [np.ones(len(ends)), -np.ones(len(minus)), np.ones(singles), np.ones(len(clamped))]
    shape = (above + len(clamped), singles + len(allowed))
    matrix = coo_array((np.concatenate(signs), (r, c)), shape=shape).tocsr()
    values = [np.zeros(base), np.ones(graph.n_variables), *targets.values()]
    return matrix, np.concatenate(values)
