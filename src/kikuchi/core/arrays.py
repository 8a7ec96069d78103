"""Array types for annotations, one name per dtype, and attributes that return array lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
U4 = NDArray[np.uint32]
U8 = NDArray[np.uint64]


def offsets_of(sizes: NDArray[Any] | Sequence[int]) -> Ints:
    """Return the start of each of several consecutive blocks of these sizes, and the end.

    >>> offsets_of([2, 3]).tolist(), offsets_of([]).tolist()
    ([0, 2, 5], [0])
    """
    out = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(np.asarray(sizes, dtype=np.int64), out=out[1:])
    return out


class AxisLength:
    """Descriptor that returns the length of one axis of an array attribute of the same object.

    >>> class Table:
    ...     rows = AxisLength("cells", 0, "Number of rows.")
    ...     cells = np.zeros((3, 2))
    >>> Table().rows
    3
    """

    def __init__(self, array: str, axis: int, description: str) -> None:
        self.array, self.axis, self.__doc__ = array, axis, description

    def __get__(self, instance: Any, owner: type) -> int:
        return int(getattr(instance, self.array).shape[self.axis])
