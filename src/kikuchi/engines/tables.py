"""Strides of tables, and where the entries of one table lie in another.

The states of a table are numbered in row-major order: its last variable runs fastest.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence

import numpy as np

from kikuchi.core.arrays import U4, Array, Ints

_SMALL = 1024  # entries of tables whose places are kept
_LARGEST_CACHED = 2**12  # states of a table whose digits are kept while maps are made


def strides(cards: Sequence[int]) -> list[int]:
    """Return the strides of a row-major table.

    >>> strides([2, 3, 4])
    [12, 4, 1]
    """
    found = [1] * len(cards)
    for k in range(len(cards) - 2, -1, -1):
        found[k] = found[k + 1] * cards[k + 1]
    return found


def places(cards: Sequence[int], steps: Sequence[int]) -> Ints:
    """Return sum_k digit_k * steps_k for every combination of digits, the last digit fastest.

    With the strides of another table as steps, and 0 for variables that it does not have, these are
    the places of the entries there.

    >>> places([2, 3], [10, 1]).tolist()
    [0, 1, 2, 10, 11, 12]
    """
    small = math.prod(cards) <= _SMALL
    return (_places_again if small else _places)(tuple(cards), tuple(steps))


def _places(cards: tuple[int, ...], steps: tuple[int, ...]) -> Ints:
    out = np.zeros(1, dtype=np.int64)
    for card, step in zip(cards, steps, strict=True):
        out = np.add.outer(out, step * np.arange(card, dtype=np.int64)).ravel()
    out.flags.writeable = False
    return out


_places_again = functools.lru_cache(maxsize=1024)(_places)  # grids ask for the same few often


def outer(factors: Sequence[Array]) -> Array:
    """Return the outer product of rows, flat.

    >>> outer([np.array([1.0, 2.0]), np.array([1.0, 3.0])]).tolist()
    [1.0, 3.0, 2.0, 6.0]
    """
    out = np.ones(1)
    for factor in factors:
        out = np.multiply.outer(out, factor).ravel()
    return out


Key = tuple[tuple[int, ...], tuple[int, ...]]


class StateMaps:
    """State maps that are computed once per shape and stored end to end for compiled loops.

    Two sets of variables with the same cardinalities share their maps.

    >>> maps = StateMaps([2, 3])
    >>> maps.map((0, 1), (1, 0)).tolist()
    [0, 2, 4, 1, 3, 5]
    >>> maps.offset((0, 1), (0,)), maps.offset((0, 1), (1,)), maps.flat().tolist()
    (0, 6, [0, 0, 0, 1, 1, 1, 0, 1, 2, 0, 1, 2])
    """

    def __init__(self, cardinalities: Iterable[int]) -> None:
        self._cards = [int(c) for c in cardinalities]
        self._digits: dict[tuple[int, ...], U4] = {}
        self._maps: dict[Key, U4] = {}
        self._offsets: dict[Key, int] = {}
        self._size = 0

    def map(self, variables: Sequence[int], subset: Sequence[int]) -> U4:
        """The state of `subset`, in the order given, for each state of `variables`."""
        return self.maps(variables, [subset])[0]

    def maps(self, variables: Sequence[int], subsets: Iterable[Sequence[int]]) -> list[U4]:
        """The maps to several subsets."""
        axis = {v: k for k, v in enumerate(variables)}
        shape = tuple([self._cards[v] for v in variables])
        return [self._of((shape, tuple([axis[v] for v in subset]))) for subset in subsets]

    def offset(self, variables: Sequence[int], subset: Sequence[int]) -> int:
        """Where this map begins in `flat()`."""
        key = self._key(variables, subset)
        if key not in self._offsets:
            self._offsets[key] = self._size
            self._size += self._of(key).size
        return self._offsets[key]

    def flat(self) -> U4:
        """All maps whose offsets were asked for, end to end."""
        maps = [self._maps[key] for key in self._offsets]
        return np.concatenate([np.zeros(0, dtype=np.uint32), *maps])

    def _key(self, variables: Sequence[int], subset: Sequence[int]) -> Key:
        axis = {v: k for k, v in enumerate(variables)}
        return tuple([self._cards[v] for v in variables]), tuple([axis[v] for v in subset])

    def _of(self, key: Key) -> U4:
        if key not in self._maps:
            self._maps[key] = self._computed(*key)
        return self._maps[key]

    def _computed(self, shape: tuple[int, ...], axes: tuple[int, ...]) -> U4:
        if shape not in self._digits and math.prod(shape) <= _LARGEST_CACHED:
            self._digits[shape] = np.indices(shape, dtype=np.uint32).reshape(len(shape), -1)
        digits = self._digits.get(shape)
        states = np.zeros(shape if digits is None else math.prod(shape), dtype=np.uint32)
        for axis in axes:
            states *= np.uint32(shape[axis])
            if digits is not None:
                states += digits[axis]
            else:
                steps = np.arange(shape[axis], dtype=np.uint32)
                states += steps.reshape([-1 if k == axis else 1 for k in range(len(shape))])
        return states.ravel()
