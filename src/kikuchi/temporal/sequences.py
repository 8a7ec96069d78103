"""Sequences as users give them: one table of rows in time, or several of one width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError


class EntryTypeError(DataError, TypeError):
    """An entry of a table that is neither a number nor a text; scikit-learn expects a TypeError."""


class Sequences(NamedTuple):
    """The tables (rows, width) of all sequences; `single` if one array was given, not a list.
    `joined` if they stood in one table, so that answers are joined as well.
    """

    tables: list[Array]
    single: bool
    joined: bool = False

    def split(self, lengths: Any) -> Sequences:
        """The sequences of these `lengths` in one table; the same where none are given.

        >>> read_sequences([[1.0], [2.0], [3.0]]).split([1, 2]).answer([[10], [20, 30]]).tolist()
        [10, 20, 30]
        """
        if lengths is None:
            return self
        if not self.single:
            raise DataError("lengths are for sequences in one table; leave them out for a list")
        ends = np.cumsum(checked_lengths(lengths, len(self.tables[0])))[:-1]
        return Sequences(np.split(self.tables[0], ends), False, True)

    @property
    def width(self) -> int:
        """Number of columns."""
        return int(self.tables[0].shape[1])

    @property
    def rows(self) -> int:
        """Number of rows of all sequences."""
        return sum(map(len, self.tables))

    @property
    def observed(self) -> int:
        """Number of rows with at least one value."""
        return sum(int((~np.isnan(table)).any(axis=1).sum()) for table in self.tables)

    def stacked(self) -> Array:
        """All rows below each other."""
        return np.concatenate(self.tables)

    def answer(self, results: list[Any]) -> Any:
        """One result for one array, a list for a list, one array for a table with lengths."""
        if self.joined:
            return np.concatenate(results)
        return results[0] if self.single else results


def checked_lengths(lengths: Any, rows: int) -> NDArray[np.int64]:
    """Lengths of sequences that stand one after the other in a table of so many rows."""
    found = np.atleast_1d(np.asarray(lengths))
    whole = found.ndim == 1 and found.dtype.kind in "iu" and bool(np.all(found >= 1))
    if not whole or int(found.sum()) != rows:
        raise DataError(
            f"lengths must be whole numbers of at least 1 that add up to the {rows} rows of X, "
            f"got {lengths!r}"
        )
    return found.astype(np.int64)


def check_steps(steps: int, what: str) -> None:
    """Refuse a forecast or a sample of no steps."""
    if steps < 1:
        raise DataError(f"a {what} of {steps} steps; give at least 1")


def read_sequences(data: Any, what: str = "X", *, missing: bool = True) -> Sequences:
    """Tables of numbers: an array (time, outputs), or (time,) for one output, or a list of them.

    NaN is a missing value where `missing` allows it.

    >>> read_sequences([[[1.0], [2.0]], [[3.0]]]).rows
    3
    """
    single = not _is_list_of_tables(data)
    given = [data] if single else list(data)
    tables = [_table(part, what, "" if single else f" of sequence {k}") for k, part in
              enumerate(given)]  # fmt: skip
    if not tables:
        raise DataError(f"{what} holds no sequence; give an array of shape (time, outputs)")
    widths = {table.shape[1] for table in tables}
    if len(widths) > 1:
        raise DataError(f"sequences of different width {sorted(widths)} in {what}; give one width")
    for table in tables:
        if not missing and np.isnan(table).any():
            row, column = np.argwhere(np.isnan(table))[0]
            raise DataError(f"{what} has a missing value in row {row}, column {column}; fill it in")
    return Sequences(tables, single)


def read_inputs(inputs: Any, outputs: Sequences, count: int, steps: int = 0) -> list[Array]:
    """Inputs of each sequence, with `steps` more rows than outputs; empty ones if count is 0."""
    if not count:
        if inputs is not None:
            raise DataError("inputs were given, but the model has none; fit it with inputs")
        return [np.zeros((len(t) + steps, 0)) for t in outputs.tables]
    if inputs is None:
        raise DataError(f"the model has {count} inputs; give inputs of shape (time, {count})")
    read = read_sequences([inputs] if outputs.single else inputs, "inputs", missing=False)
    if read.width != count or len(read.tables) != len(outputs.tables):
        raise DataError(
            f"{len(read.tables)} sequences of {read.width} inputs for {len(outputs.tables)} "
            f"sequences of a model with {count} inputs"
        )
    for k, (u, y) in enumerate(zip(read.tables, outputs.tables, strict=True)):
        if len(u) != len(y) + steps:
            raise DataError(
                f"sequence {k}: {len(u)} rows of inputs, but {len(y) + steps} are needed"
            )
    return read.tables


def check_columns(sequences: Sequences, what: str = "X") -> None:
    """Refuse columns without a single value: nothing can be learnt about them."""
    empty = np.flatnonzero(np.isnan(sequences.stacked()).all(axis=0))
    if len(empty):
        raise DataError(f"column {empty[0]} of {what} has no value at all; leave it out")


def check_width(sequences: Sequences, width: int, model: str) -> None:
    """Refuse tables of another width than that of the fitted model, in scikit-learn's words."""
    if sequences.width == width:
        return
    advice = f". Reshape your data to (time, {width})" if sequences.width == 1 else ""
    raise DataError(
        f"X has {sequences.width} features, but {model} is expecting {width} features as input"
        + advice
    )


def column_names(data: Any, what: str = "X") -> list[str] | None:
    """Names of the columns of data frames, the same in all of them; none where there are none."""
    tables = data if _is_list_of_tables(data) else [data]
    every = [_names(table) for table in tables]
    for k, names in enumerate(every):
        if names != every[0]:
            raise DataError(f"the columns of sequence {k} of {what} are not named as those before")
    return every[0]


def check_names(found: Sequence[str] | None, fitted: Sequence[str], what: str = "X") -> None:
    """Refuse data frames whose columns are not those that the model was fitted to."""
    if found is not None and list(found) != list(fitted):
        raise DataError(
            f"{what} has columns {', '.join(found)}, but the model was fitted to "
            f"{', '.join(fitted)}; give these in this order"
        )


def _names(table: Any) -> list[str] | None:
    """Names of the columns of a data frame; none where it is no frame or they are no texts."""
    columns = getattr(table, "columns", None)
    names = [] if columns is None or callable(columns) else list(columns)
    return names if names and all(isinstance(name, str) for name in names) else None


def _is_list_of_tables(data: Any) -> bool:
    if isinstance(data, np.ndarray):
        return data.ndim == 3
    return isinstance(data, Sequence) and bool(data) and np.ndim(data[0]) == 2


def _table(part: Any, what: str, where: str) -> Array:
    if issparse(part):
        raise DataError(f"{what}{where} is sparse, which is not supported; use {what}.toarray()")
    if np.iscomplexobj(part):
        raise DataError(
            f"Complex data not supported: {what}{where} has complex numbers; give their real and "
            "imaginary parts as columns"
        )
    try:
        table = np.ascontiguousarray(part, dtype=np.float64)
    except (TypeError, ValueError) as error:
        kind = EntryTypeError if isinstance(error, TypeError) else DataError
        raise kind(f"{what}{where} is not a table of numbers ({error})") from None
    if np.ndim(part) == 1:
        table = table.reshape(-1, 1)
    if table.ndim != 2:
        raise DataError(f"{what}{where} has shape {table.shape}; give (time, outputs)")
    if not table.size:
        lacking = "sample" if not len(table) else "feature"
        raise DataError(
            f"{what}{where} is empty: 0 {lacking}(s) (shape={table.shape}) while a minimum of 1 is "
            "required."
        )
    if np.isinf(table).any():
        row, column = np.argwhere(np.isinf(table))[0]
        raise DataError(f"{what}{where} has an infinite value in row {row}, column {column}")
    return table


def random_walk_likelihood(tables: list[Array]) -> float:
    """Largest log-likelihood of tables of outputs under independent Gaussian random walks, a
    baseline for models of sequences: each value is the one before it and Gaussian noise, whose
    variance grows with the number of missing rows between them, and first values have the mean and
    variance of their column. It is minus infinity, no baseline, where a column never changes.

    >>> round(random_walk_likelihood([np.array([[0.0], [1.0], [np.nan], [1.0]])]), 3)
    -3.658
    """
    total = 0.0
    for column in range(tables[0].shape[1]):
        values = [table[:, column] for table in tables]
        seen = [np.flatnonzero(~np.isnan(v)) for v in values]
        known = [v[s] for v, s in zip(values, seen, strict=True) if len(s)]
        gaps = np.concatenate([np.diff(s) for s in seen]).astype(np.float64)
        changes = np.concatenate([np.diff(v) for v in known])
        firsts, whole = np.array([v[0] for v in known]), np.concatenate(known)
        if not len(changes) or not changes.any():
            return -math.inf
        total += _log_gaussian(firsts - whole.mean(), np.full(len(firsts), whole.var()))
        total += _log_gaussian(changes, gaps * np.mean(changes**2 / gaps))
    return total


def _log_gaussian(distance: Array, variance: Array) -> float:
    logs = np.log(2.0 * np.pi * variance) + distance**2 / variance
    return -0.5 * float(np.sum(logs))
