"""Columns of real numbers: refused as states, divided into bins, read by a model with bins."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.bins import bin_column, check_bins, interval_edges
from kikuchi.core.errors import DataError
from kikuchi.core.labels import place_of_cell
from kikuchi.core.tables import is_missing

MISSING = -1
_WHOLE = re.compile(r"[+-]?[0-9]+(\.0*)?")
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class CellError(DataError):
    """A cell that is no state: its row, from 0, and what is wrong with it."""

    def __init__(self, row: int, fault: str) -> None:
        super().__init__(f"data: row {row}, {fault}")
        self.row, self.fault = row, fault

    def __reduce__(self) -> tuple[type[CellError], tuple[int, str]]:
        return type(self), (self.row, self.fault)  # as workers send it


@dataclass(frozen=True)
class IntervalColumn:
    """A column that was divided into bins: their numbers, and their names."""

    codes: NDArray[np.int32]
    words: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.codes)


def binned_rows(rows: Any, graph: Any, bins: int) -> Any:
    """The rows as columns by name, those of real numbers divided into quantile bins."""
    number = check_bins(bins)
    if graph is not None:
        raise DataError("bins are for rows without a model; the states of a model are its bins")
    if isinstance(rows, Mapping) or hasattr(rows, "columns"):
        columns = {name: rows[name] for name in getattr(rows, "columns", rows)}
    else:
        array = np.asarray(rows)
        if array.ndim != 2:
            raise DataError("bins need a table of rows by variables")
        columns = {f"x{k}": array[:, k] for k in range(array.shape[1])}
    return {name: _binned_column(column, number, name) for name, column in columns.items()}


def _binned_column(column: Any, bins: int, name: Any) -> Any:
    if hasattr(getattr(column, "dtype", None), "categories"):
        return column
    found = bin_column(np.asarray(column), bins, f"column {name}")
    if found is None:
        return column
    codes, words = found
    return IntervalColumn(np.where(np.isnan(codes), MISSING, codes).astype(np.int32), words)


def interval_codes(
    column: NDArray[Any], known: Sequence[str] | None, label: str
) -> NDArray[np.int32] | None:
    """Numbers, or texts that are numbers, as the intervals of the model; None without intervals.

    >>> interval_codes(np.array([0.2, np.nan, 3.0]), ("<1", ">=1"), "column x").tolist()
    [0, -1, 1]
    """
    if known is None or interval_edges(known) is None:
        return None
    codes = np.full(len(column), MISSING, dtype=np.int32)
    for row, cell in enumerate(column.tolist()):
        if cell is None or cell != cell or (isinstance(cell, str) and is_missing(cell)):
            continue
        place = place_of_cell(known, cell)
        if place is None:
            raise CellError(row, f"{label}: {cell!r} is neither a number nor a state of the model")
        codes[row] = place
    return codes


def refuse_real_numbers(texts: list[str], label: str) -> None:
    """Refuse a column of texts that are all numbers, some with a fraction, as in a CSV file."""
    present = [text for text in texts if text]
    fraction = next((text for text in present if not _WHOLE.fullmatch(text)), None)
    if fraction is not None and all(map(_REAL.fullmatch, present)):
        raise CellError(texts.index(fraction), real_number(label, fraction))


def real_number(label: str, value: Any) -> str:
    """What is wrong with a real number in a column of states, and the way out."""
    return (
        f"{label}: {value} is not a state; states are words or whole numbers: divide real numbers "
        "into bins with --bins 5, or Data.of(rows, bins=5) in Python"
    )
