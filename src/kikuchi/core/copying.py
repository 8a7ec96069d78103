"""Copying of arrays inside compiled loops.

Numba's own `x[a:b] = y` checks the shapes and contains the code for an error about them, which
takes a second or two to compile for each array type. This loop takes a twentieth of a second.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kikuchi.core.compiled import njit


@njit(cache=True, error_model="numpy")
def copy_into(target: Any, at: int, source: Any, low: int, count: int) -> None:
    """Set target[at:at + count] = source[low:low + count] for two arrays that do not overlap.

    >>> x = np.zeros(4)
    >>> copy_into(x, 1, np.array([5.0, 6.0, 7.0]), 1, 2)
    >>> x.tolist()
    [0.0, 6.0, 7.0, 0.0]
    """
    to, start = np.uint64(at), np.uint64(low)
    for i in range(np.uint64(count)):
        target[to + i] = source[start + i]


@njit(cache=True, error_model="numpy")
def copy_matrix(target: Any, source: Any) -> None:
    """Copy `source` into the first rows and columns of `target`.

    >>> x = np.zeros((2, 2))
    >>> copy_matrix(x, np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> x.tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            target[i, j] = source[i, j]
