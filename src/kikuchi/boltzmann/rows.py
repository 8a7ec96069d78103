"""Rows of data: checked once, taken in batches, dense or sparse."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.units import Binary, Binomial
from kikuchi.core.errors import DataError

Array = NDArray[Any]


def is_sparse(data: Any) -> bool:
    """Whether these are the rows of a SciPy sparse matrix."""
    return hasattr(data, "tocsr")


def take_rows(data: Any, rows: NDArray[np.int64], dtype: DTypeLike) -> Array:
    """These rows as a dense array of their own.

    >>> take_rows(np.eye(3), np.array([2]), np.float32).tolist()
    [[0.0, 0.0, 1.0]]
    """
    if is_sparse(data):
        dense: Array = data[rows].toarray().astype(dtype, copy=False)
        return np.ascontiguousarray(dense)
    return np.ascontiguousarray(data[rows], dtype=dtype)


def mean_biases(machine: Machine, rows: Any) -> Array:
    """Visible biases of the machine without weights that has the means of these rows, a little
    smoothed.

    >>> mean_biases(Machine.random(1, 1), np.array([[1.0], [0.0]])).tolist()
    [0.0]
    """
    units, count = machine.visible, rows.shape[0]
    sums = np.asarray(rows.sum(axis=0), dtype=np.float64).ravel()
    if not isinstance(units, Binary | Binomial):
        return np.asarray(sums / count)
    replicas = units.replicas if isinstance(units, Binomial) else 1
    share = (sums / replicas + 1.0) / (count + 2.0)
    return np.asarray(np.log(share / (1.0 - share)))


def fit_rows(machine: Machine, data: Any) -> Any:
    """Data that the machine can be trained on: as they are, or as CSR, or refused.

    >>> fit_rows(Machine.random(2, 1), [[0, 1], [2, 0]])
    Traceback (most recent call last):
    ...
    kikuchi.core.errors.DataError: data: row 1, column 0 is 2, outside [0, 1] of binary units; ...
    """
    found = data.tocsr() if is_sparse(data) else np.asarray(data)
    if found.ndim != 2 or not found.shape[0]:
        raise DataError(f"data of shape {found.shape}: give at least one row, one case in each")
    if found.dtype.kind not in "biuf":
        raise DataError(f"data of type {found.dtype}: give numbers")
    if found.shape[1] != machine.n_visible:
        raise DataError(
            f"data have {found.shape[1]} columns; the machine has {machine.n_visible} visible "
            "units, give one column for each"
        )
    refuse_values(
        found,
        machine.visible.limits,
        f"of {machine.visible.name} units; scale the data, or use visible=gaussian",
    )
    return found


def refuse_values(
    data: Any, limits: tuple[float, float], told: str, *, name: str = "data", first: int = 0
) -> None:
    """Refuse numbers that are not finite or not within the limits; `told` ends that message.

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
    row, column = _place(data, bad)
    value = values[bad][0]
    where = f"{name}: row {row + first}, column {column + first} is {value:g}"
    if not np.isfinite(value):
        raise DataError(f"{where}: neither NaN nor infinity can be learned; fill or remove it")
    raise DataError(f"{where}, outside [{low:g}, {high:g}] {told}")


def fingerprint(data: Any) -> str:
    """A text that differs when the data do."""
    arrays = (data.data, data.indices, data.indptr) if is_sparse(data) else (data,)
    digest = hashlib.sha256(repr(data.shape).encode())
    for array in arrays:
        digest.update(repr(array.dtype).encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()


def _place(data: Any, bad: NDArray[np.bool_]) -> tuple[int, int]:
    """Row and column of the first number that is marked."""
    if is_sparse(data):
        first = int(np.flatnonzero(bad)[0])
        row = int(np.searchsorted(data.indptr, first, side="right")) - 1
        return row, int(data.indices[first])
    row, column = np.argwhere(bad)[0]
    return int(row), int(column)
