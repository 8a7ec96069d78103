"""Rows of data, dense or sparse: counting, batches, checks and fingerprints.

Data are an array with one case per row, a SciPy sparse matrix, or a tuple of arrays with equal
numbers of rows, such as inputs and targets.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kikuchi.core.errors import DataError

Array = NDArray[Any]


def is_sparse(data: Any) -> bool:
    """Return whether these are the rows of a SciPy sparse matrix."""
    return hasattr(data, "tocsr")


def count_rows(data: Any) -> int:
    """Return the number of cases; raise an error for no cases, and for parts of different lengths.

    >>> count_rows((np.eye(3), np.zeros(3)))
    3
    """
    counts = {int(part.shape[0]) for part in (data if isinstance(data, tuple) else (data,))}
    if len(counts) != 1 or 0 in counts:
        raise DataError(
            f"data of {' and '.join(map(str, sorted(counts)))} rows: at least one case is "
            f"required, and equal numbers of rows in all parts"
        )
    return counts.pop()


def take_rows(data: Any, rows: NDArray[np.int64], dtype: DTypeLike | None = None) -> Any:
    """Return a dense copy of these rows, of type `dtype` if given.

    >>> take_rows(np.eye(3), np.array([2]), np.float32).tolist()
    [[0.0, 0.0, 1.0]]
    """
    if isinstance(data, tuple):
        return tuple(take_rows(part, rows, dtype) for part in data)
    if is_sparse(data):
        return np.ascontiguousarray(data[rows].toarray(), dtype=dtype)
    return np.ascontiguousarray(data[rows], dtype=dtype)


def check_values(
    data: Any, limits: tuple[float, float], advice: str, *, name: str = "data", first: int = 0
) -> None:
    """Raise an error for numbers that are not finite or not within the limits; `advice` ends the
    message.

    `name` is that of the data, and `first` the number of the first row and column.
    """
    values = data.data if is_sparse(data) else data
    if not values.size:
        return
    low, high = limits
    smallest, largest = values.min(), values.max()
    if np.isfinite(smallest) and np.isfinite(largest) and low <= smallest and largest <= high:
        return
    bad = ~(np.isfinite(values) & (values >= low) & (values <= high))
    row, column = _position(data, bad)
    value = values[bad][0]
    where = f"{name}: row {row + first}, column {column + first} is {value:g}"
    if not np.isfinite(value):
        raise DataError(f"{where}: NaN and infinity are not supported; fill or remove it")
    raise DataError(f"{where}, outside [{low:g}, {high:g}] {advice}")


def fingerprint(data: Any) -> str:
    """Return a digest of the data."""
    if isinstance(data, tuple):
        return hashlib.sha256("".join(map(fingerprint, data)).encode()).hexdigest()
    arrays = (data.data, data.indices, data.indptr) if is_sparse(data) else (data,)
    digest = hashlib.sha256(repr(data.shape).encode())
    for array in arrays:
        digest.update(repr(array.dtype).encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()


def _position(data: Any, bad: NDArray[np.bool_]) -> tuple[int, int]:
    """Return the row and column of the first marked number."""
    if is_sparse(data):
        first = int(np.flatnonzero(bad)[0])
        row = int(np.searchsorted(data.indptr, first, side="right")) - 1
        return row, int(data.indices[first])
    row, column = np.argwhere(bad)[0]
    return int(row), int(column)
