"""Factors grouped by the shape of their tables, so that NumPy can treat a group at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Ints

if TYPE_CHECKING:
    from kikuchi.graphs.factor_graph import FactorGraph

Shape = tuple[int, ...]


def same_shapes(graph: FactorGraph, least_order: int = 2) -> Iterator[tuple[Ints, Shape]]:
    """`factors_by_shape` of a graph: by default of its factors of two variables or more."""
    orders = np.diff(graph.scope_offsets)
    return factors_by_shape(graph.cardinalities, graph.scopes, orders, least_order)


def factors_by_shape(
    cards: NDArray[Any], scopes: NDArray[Any], orders: Ints, least_order: int = 1
) -> Iterator[tuple[Ints, Shape]]:
    """Factors in groups whose tables have the same shape, with that shape.

    Parameters
    ----------
    cards : (n_variables,) array of integers
        Counts of states.
    scopes : (n_edges,) array of integers
        Variables of all factors, one factor after the other.
    orders : (n_factors,) array of integers
        Counts of variables of the factors.
    least_order : int
        Factors of fewer variables are left out.

    >>> scopes, orders = np.array([0, 1, 1, 2, 0, 1]), np.array([2, 2, 2])
    >>> [(found.tolist(), shape) for found, shape in factors_by_shape([2, 3, 2], scopes, orders)]
    [([0, 2], (2, 3)), ([1], (3, 2))]
    """
    cards = np.asarray(cards)
    starts = np.cumsum(orders) - orders
    for order in np.unique(orders[orders >= least_order]).tolist():
        factors = np.flatnonzero(orders == order)
        shapes = cards[scopes[starts[factors][:, None] + np.arange(order)]]
        group = row_numbers(shapes)
        sizes = np.bincount(group)
        by_group = np.argsort(group, kind="stable")
        for members in np.split(by_group, np.cumsum(sizes)[:-1]):
            yield factors[members], tuple(int(size) for size in shapes[members[0]])


def row_numbers(rows: NDArray[Any]) -> Ints:
    """The rank of each row among the distinct ones.

    Columns are taken in one after the other: to sort numbers takes a tenth of the time that
    sorting rows takes.

    Parameters
    ----------
    rows : (n_rows, n_columns) array of integers
        Rows, compared by their first column first.

    >>> row_numbers(np.array([[1, 5], [0, 7], [1, 5], [1, 2]])).tolist()
    [2, 0, 2, 1]
    """
    rank = np.zeros(len(rows), np.int64)
    for column in rows.T:
        values, place = np.unique(column, return_inverse=True)
        if len(values) > 1:
            rank = np.unique(rank * len(values) + place, return_inverse=True)[1]
    return rank
