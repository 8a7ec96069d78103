"""Columns of real numbers: refused as states, divided into bins, read by a model with bins."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.bins import bin_column, check_bins
from kikuchi.core.errors import DataError

MISSING = -1
_WHOLE = re.compile(r"[+-]?[0-9]+(\.0*)?")
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class CellError(DataError):
    """A cell that is not a state: its row, from 0, and the reason."""

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


def is_real_number(cell: Any) -> bool:
    """Whether a cell is a number with a fraction, typed or written.

    >>> [is_real_number(cell) for cell in (0.5, "0.5", 1.0, "1.0", "x")]
    [True, True, False, False, False]
    """
    if isinstance(cell, str):
        word = cell.strip()
        return bool(_REAL.fullmatch(word)) and not _WHOLE.fullmatch(word)
    return isinstance(cell, float | np.floating) and not float(cell).is_integer()


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
