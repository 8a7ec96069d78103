"""Ragged arrays: offsets, table layouts and size limits."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array, Ints
from kikuchi.graphs.table_shapes import factors_by_shape

_PER_PIECE = 20_000
_FREE = 10_000_000  # numbers that any file may require
_PER_TOKEN = 100  # and how many more for each number that it holds


def too_many(count: float, held: int) -> bool:
    """Return whether `count` numbers are more than a file with `held` numbers can plausibly need.

    Sparse tables and default rows may need more numbers than they list, but not arbitrarily many: a
    header alone must not exhaust the memory.

    >>> too_many(2.0**20, 100), too_many(1e9, 100)
    (False, True)
    """
    return count > _FREE + _PER_TOKEN * held


def ragged(starts: Ints, lengths: Ints) -> Ints:
    """Return the concatenated indices `starts[k] .. starts[k] + lengths[k] - 1`.

    >>> ragged(np.array([10, 20]), np.array([2, 3])).tolist()
    [10, 11, 20, 21, 22]
    """
    before = np.cumsum(lengths) - lengths
    out: Ints = np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
    return out


def text_pieces(values: NDArray[Any], offsets: Ints) -> Iterator[tuple[int, list[list[str]]]]:
    """The pieces between offsets as texts, a few thousand at a time after the number of the first.

    >>> list(text_pieces(np.array([0.5, 1.0, 2.0]), np.array([0, 2, 3])))
    [(0, [['0.5', '1.0'], ['2.0']])]
    """
    for first in range(0, len(offsets) - 1, _PER_PIECE):
        part = offsets[first : first + _PER_PIECE + 1]
        words = list(map(repr, values[part[0] : part[-1]].tolist()))
        yield first, [words[lo:hi] for lo, hi in pairwise((part - part[0]).tolist())]


def table_sizes(cards: NDArray[Any], scopes: NDArray[Any], orders: Ints) -> Array:
    """Return the number of table entries of each factor, as floats because it may overflow
    integers.

    >>> table_sizes(np.array([2, 3]), np.array([0, 0, 1]), np.array([1, 0, 2])).tolist()
    [2.0, 1.0, 6.0]
    """
    sizes = np.ones(len(orders))
    filled = np.flatnonzero(orders)
    if filled.size:
        starts = (np.cumsum(orders) - orders)[filled]
        with np.errstate(over="ignore"):
            sizes[filled] = np.multiply.reduceat(cards[scopes].astype(np.float64), starts)
    return sizes


def repeated_variable(scopes: NDArray[Any], orders: Ints) -> tuple[int, int] | None:
    """The first factor that names a variable twice, and the place in its scope of the second.

    >>> repeated_variable(np.array([0, 4, 5, 4]), np.array([1, 3]))
    (1, 2)
    """
    starts = np.cumsum(orders) - orders
    culprits = []
    for order in np.unique(orders[orders > 1]):
        factors = np.flatnonzero(orders == order)
        rows = np.sort(scopes[starts[factors][:, None] + np.arange(order)], axis=1)
        twice = np.any(rows[:, 1:] == rows[:, :-1], axis=1)
        if twice.any():
            culprits.append(int(factors[np.argmax(twice)]))
    if not culprits:
        return None
    factor = min(culprits)
    scope = scopes[starts[factor] : starts[factor] + orders[factor]]
    return factor, first_repeat(scope)


def first_repeat(values: NDArray[Any]) -> int:
    """Place of the first value that occurred before; -1 when all differ.

    >>> first_repeat(np.array([3, 1, 3, 1]))
    2
    """
    again = np.ones(len(values), dtype=bool)
    again[np.unique(values, return_index=True)[1]] = False
    return int(np.argmax(again)) if again.any() else -1


def reverse_layout(
    flat: Array, cards: NDArray[Any], scopes: NDArray[Any], orders: Ints, *, to_last_fastest: bool
) -> Array:
    """Tables one after the other, from "first variable fastest" to "last fastest" or back.

    >>> tables = np.arange(6.0)
    >>> cards, scopes, orders = np.array([2, 3]), np.array([0, 1]), np.array([2])
    >>> reverse_layout(tables, cards, scopes, orders, to_last_fastest=True).tolist()
    [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]
    """
    offsets = np.concatenate([[0], np.cumsum(table_sizes(cards, scopes, orders))]).astype(np.int64)
    out = flat.copy()
    for factors, shape in factors_by_shape(cards, scopes, orders, least_order=2):
        size = int(np.prod(shape))
        # The place of each entry of a "first fastest" list in the "last fastest" one.
        places = np.arange(size).reshape(shape).ravel(order="F")
        starts = offsets[factors][:, None]
        if to_last_fastest:
            out[starts + places] = flat[starts + np.arange(size)]
        else:
            out[starts + np.arange(size)] = flat[starts + places]
    return out
