"""Conditional random fields on top of a network: structures, tables from scores, and the loss.

The structure is a `FactorGraph` with a factor for each variable and then one for each pair; a
network gives the scores. `crf_loss` is minus the conditional log-likelihood of labels, by any
method of `neural.log_z`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Ints
from kikuchi.core.budget import Budget
from kikuchi.core.errors import DataError, ModelError
from kikuchi.core.extras import extras_named
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.traced import is_traced
from kikuchi.methods.method import Method
from kikuchi.neural.differentiable import log_z

_MOST_STATES = 1000  # of one variable of a structure


def chain_graph(length: int, states: int) -> FactorGraph:
    """A chain for a sequence: a factor per position, then one per pair of neighbours, all zero.

    Parameters
    ----------
    length : int
        Positions, at least 1.
    states : int
        Labels of a position, at least 2.

    >>> chain_graph(5, 3)
    FactorGraph(5 variables, 9 factors, 51 table entries)
    """
    first = np.arange(length - 1)
    return _structure(length, states, np.stack([first, first + 1], axis=1))


def grid_graph(rows: int, cols: int, states: int) -> FactorGraph:
    """A grid for an image: a factor per pixel, then one per pair across, then one per pair down.

    Parameters
    ----------
    rows, cols : int
        Size of the image, each at least 1.
    states : int
        Labels of a pixel, at least 2.

    >>> grid_graph(2, 3, 2)
    FactorGraph(6 variables, 13 factors, 40 table entries)
    """
    rows, cols = max(rows, 0), max(cols, 0)
    number = np.arange(rows * cols).reshape(rows, cols)
    across = np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()], axis=1)
    down = np.stack([number[:-1].ravel(), number[1:].ravel()], axis=1)
    return _structure(rows * cols, states, np.concatenate([across, down]))


def _structure(n: int, states: int, pairs: Ints) -> FactorGraph:
    if n < 1 or not 2 <= states <= _MOST_STATES:
        raise ModelError(
            f"a structure needs at least one variable and 2 to {_MOST_STATES} states, got {n} "
            f"variables of {states}"
        )
    scopes = np.concatenate([np.arange(n), pairs.ravel()])
    offsets = np.concatenate([np.arange(n), n + 2 * np.arange(len(pairs) + 1)])
    size = n * states + len(pairs) * states**2
    return FactorGraph.from_arrays(np.full(n, states), scopes, offsets, np.zeros(size))


@extras_named()
def pairwise_tables(graph: FactorGraph, unary: Any, pair: Any) -> Any:
    """The flat log-tables of a structure from scores, for `graph.with_log_tables`.

    Parameters
    ----------
    graph : FactorGraph
        A chain or grid of `chain_graph` or `grid_graph`.
    unary
        Scores of each variable's states, shape (n, states), from a network.
    pair
        Scores of pairs of states, (states, states) for all pairs alike, or (pairs, states, states).

    >>> import jax.numpy as jnp
    >>> pairwise_tables(chain_graph(2, 2), jnp.zeros((2, 2)), jnp.eye(2)).tolist()
    [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0]
    """
    import jax.numpy as jnp

    n, states = graph.n_variables, int(graph.cardinalities[0])
    n_pairs = graph.n_factors - n
    orders = np.repeat([1, 2], [n, max(n_pairs, 0)])
    if (
        np.any(graph.cardinalities != states)
        or not np.array_equal(np.diff(graph.scope_offsets), orders)
        or not np.array_equal(graph.scopes[:n], np.arange(n))
    ):
        raise ModelError(
            "scores are laid out for a factor of each variable in turn and then pairs, all of one "
            "number of states; make the structure with chain_graph or grid_graph"
        )
    unary, pair = jnp.asarray(unary), jnp.asarray(pair)
    if unary.shape != (n, states) or pair.shape not in (
        (states, states),
        (n_pairs, states, states),
    ):
        raise DataError(
            f"scores must have shapes {(n, states)} and {(states, states)} or "
            f"{(n_pairs, states, states)}, got {unary.shape} and {pair.shape}"
        )
    pairs = jnp.broadcast_to(pair, (n_pairs, states, states))
    return jnp.concatenate([unary.ravel(), pairs.ravel()])


@extras_named()
def crf_loss(
    graph: FactorGraph,
    tables: Any,
    labels: ArrayLike,
    method: str | Method = "jt",
    *,
    budget: Budget | None = None,
) -> Any:
    """Minus the log-likelihood of labels: log Z less their score. A JAX scalar.

    Parameters
    ----------
    graph : FactorGraph
        The structure; its own tables are not read.
    tables
        Flat log-tables, such as those of `pairwise_tables`.
    labels : array-like
        The state of each variable, whole numbers, shape (n,). A state that the variable does not
        have is refused; where JAX traces the labels its loss is infinite.
    method : str or Method, default "jt"
        Method of log Z: exact (jt), or an approximation where the exact one is out of reach.
    budget : Budget, optional
        Limits of each run of the method.

    >>> graph = chain_graph(2, 2)
    >>> round(float(crf_loss(graph, np.zeros(8), np.array([0, 1]))), 4)  # log of 4 states
    1.3863
    """
    import jax.numpy as jnp

    states = jnp.asarray(labels)
    if states.shape != (graph.n_variables,) or not jnp.issubdtype(states.dtype, jnp.integer):
        raise DataError(
            f"labels must be {graph.n_variables} whole numbers, one per variable, got "
            f"{states.dtype} of shape {states.shape}"
        )
    inside = (states >= 0) & (states < jnp.asarray(graph.cardinalities))
    if not is_traced(inside) and not inside.all():
        v = int(np.argmin(np.asarray(inside)))
        raise DataError(
            f"label {int(states[v])} of variable {v}, which has states 0 to "
            f"{int(graph.cardinalities[v]) - 1}"
        )
    values = jnp.asarray(tables)
    strides = jnp.asarray(graph.edge_strides)
    within = states[jnp.asarray(graph.scopes)] * strides
    entries = jnp.asarray(graph.table_offsets[:-1]) + jnp.zeros(graph.n_factors, int).at[
        jnp.asarray(graph.edge_factors)
    ].add(within)
    score = jnp.where(inside.all(), values[entries].sum(), -jnp.inf)
    return log_z(graph.with_log_tables(values), method, budget=budget) - score
