"""The pseudo-log-likelihood of rows under a model: a score without a partition function."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.engines.sampling.sweepers import table_rows
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.graph_arrays import flatten
from kikuchi.learning.data import Data


def pseudo_log_likelihood(graph: FactorGraph, data: Data | ArrayLike) -> float:
    """Mean over rows of sum_i log p(x_i | rest); -inf if a row is impossible.

    `graph` is the model, `data` are complete rows.

    >>> pair = FactorGraph([2, 2], [((0, 1), [[4, 1], [1, 4]])])
    >>> round(pseudo_log_likelihood(pair, [[0, 0], [1, 1]]), 6)  # 2 log 0.8
    -0.446287
    """
    from kikuchi.learning.local.kernels.pseudo import row_log_conditionals

    rows = Data.of(data, graph)
    flat = flatten(graph)
    out = np.empty(rows.n_rows)
    row_log_conditionals(
        flat,
        table_rows(flat, 1, np.arange(graph.n_variables)),
        np.ascontiguousarray(rows.states),
        np.empty(graph.n_factors, dtype=np.uint64),
        np.empty(int(graph.cardinalities.max(initial=1))),
        out,
    )
    counted = rows.weights > 0
    return float(rows.weights[counted] @ out[counted]) / rows.total
