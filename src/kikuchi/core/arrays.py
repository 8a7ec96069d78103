"""Types of arrays in signatures, one name per type of entry, and sizes of arrays as attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
U4 = NDArray[np.uint32]
U8 = NDArray[np.uint64]


class AxisLength:
    """An attribute of a class that is the length of one axis of an array of the same object.

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
