"""Rows as flows learn from them: whole numbers dequantised, columns standardised, batches padded.

A density of whole numbers is unbounded: a flow would put spikes on them. Uniform noise of width one
makes the density of x + u that of the numbers: log P(x) = log of the integral of p(x + u) over the
cell, of which `cell_average` is an estimate from below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError

Dequantisation = Literal["auto", "uniform", "none"]
_ROUNDING = 1e-13  # least deviation of a column, as a fraction of its numbers
_DRAWS = 8  # points of a cell at which a row of whole numbers is scored


@dataclass(frozen=True, eq=False)
class RowPreparation:
    """Width of the noise of each column (1 for whole numbers, else 0), and means and deviations."""

    cells: Array
    means: Array
    scales: Array

    def arrays(self) -> dict[str, Array]:
        """For files."""
        return {"cells": self.cells, "means": self.means, "scales": self.scales}

    @classmethod
    def read(cls, arrays: Mapping[str, Any]) -> RowPreparation:
        """The preparation of a file, whose names begin with preparation/."""
        names = ("cells", "means", "scales")
        read = cls(*(np.array(arrays[f"preparation/{n}"], dtype=np.float64) for n in names))
        if not np.all(read.scales > 0):
            raise DataError("its scales are not all above 0")
        return read

    @property
    def log_det(self) -> float:
        """Log-determinant of the standardisation."""
        return -float(np.sum(np.log(self.scales)))

    def standardised(self, rows: Array) -> Array:
        """Columns of mean 0 and deviation 1 (of the training rows)."""
        return np.asarray((rows - self.means) / self.scales)

    def restored(self, rows: Array) -> Array:
        """Return rows in their original units, rounded to integers if the training data were
        integers.
        """
        own = rows * self.scales + self.means
        return np.asarray(np.where(self.cells > 0, np.floor(own), own))

    def dequantised(self, rows: Array, rng: np.random.Generator) -> Array:
        """Rows with uniform noise in the columns of whole numbers."""
        return np.asarray(rows + self.cells * rng.random(rows.shape))

    def whole_rows(self, rows: Array) -> Any:
        """Which rows have whole numbers in all columns that were dequantised."""
        columns = self.cells > 0
        if not columns.any():
            return np.zeros(len(rows), dtype=bool)
        part = rows[:, columns]
        return np.asarray(np.all(part == np.floor(part), axis=1))

    def middles(self, rows: Array) -> Array:
        """Rows standardised, whole numbers at the middles of their cells."""
        return self.standardised(rows + 0.5 * self.cells * self.whole_rows(rows)[:, None])

    def cell_average(self, rows: Array, log_density: Callable[[Array], Array]) -> Array:
        """Log-density of each row; of whole numbers the logarithm of its mean over points of the
        cell, the same points for every row.
        """
        whole = self.whole_rows(rows)
        out = np.empty(len(rows))
        if not whole.all():
            out[~whole] = log_density(self.standardised(rows[~whole]))
        if whole.any():
            points = np.random.default_rng(0).random((_DRAWS, rows.shape[1]))
            logs = [log_density(self.standardised(rows[whole] + self.cells * p)) for p in points]
            out[whole] = np.logaddexp.reduce(logs, axis=0) - np.log(_DRAWS)
        return out + self.log_det


def whole_columns(rows: Array) -> Any:
    """Columns that hold nothing but whole numbers."""
    return np.asarray(np.all(rows == np.floor(rows), axis=0))


def prepare(
    rows: Array, dequantise: Dequantisation, rng: np.random.Generator
) -> tuple[RowPreparation, Array, list[str]]:
    """Return the preparation, the prepared rows, and warnings about it.

    >>> rng = np.random.default_rng(0)
    >>> told, rows, remarks = prepare(rng.integers(9, size=(50, 2)).astype(float), "auto", rng)
    >>> told.cells.tolist(), remarks[0][:35]
    ([1.0, 1.0], '2 columns hold whole numbers only: ')
    """
    if len(rows) < 2:
        raise DataError("at least 2 rows are needed, got 1 sample")
    whole = whole_columns(rows)
    if whole.any() and dequantise == "none":
        raise DataError(
            f"column {int(np.argmax(whole))} holds whole numbers only, whose density is unbounded; "
            "give dequantise='uniform', which adds uniform noise in [0, 1)"
        )
    remarks = []
    if dequantise == "uniform" and not whole.all():
        raise DataError(
            f"column {int(np.argmin(whole))} holds numbers that are not whole; dequantise='auto' "
            "adds noise to columns of whole numbers only"
        )
    if whole.any() and dequantise == "auto":
        remarks.append(
            f"{int(whole.sum())} columns hold whole numbers only: the density is that of the rows "
            "with uniform noise in [0, 1) added to them (dequantise)"
        )
    told = RowPreparation(whole.astype(np.float64), np.zeros(0), np.zeros(0))
    noisy = told.dequantised(rows, rng)
    means, scales = noisy.mean(axis=0), noisy.std(axis=0)
    flat = scales <= _ROUNDING * (1e-300 + np.abs(noisy).max(axis=0))
    if flat.any():
        column = int(np.argmax(flat))
        to = "" if np.ptp(rows[:, column]) == 0 else " to within rounding"
        raise DataError(
            f"column {column} is constant{to} ({rows[0, column]:g}) and has no density; leave it "
            "out"
        )
    told = RowPreparation(told.cells, means, scales)
    return told, told.standardised(noisy), remarks


# ---------------------------------------------------------------------- batches of one size


def bucket(count: int) -> int:
    """The next number of a sequence with four per doubling: 1 to 8, 10, 12, 14, 16, 20, ...

    >>> [bucket(n) for n in (3, 9, 17, 100)]
    [3, 10, 20, 112]
    """
    if count <= 8:
        return max(count, 1)
    step: int = 1 << ((count - 1).bit_length() - 3)
    return -(-count // step) * step


def padded(batch: int, *arrays: Array) -> tuple[Any, ...]:
    """Arrays whose number of rows is a whole number of batches, out of few such numbers, and the
    weight of each row.

    Rows are repeated, and rows that stand there m times have weight 1 / m (times the number of rows
    after padding per row before), so that the mean of weighted rows is that of the rows, and fits
    to other numbers of rows share compiled programs.
    """
    count = len(arrays[0])
    total = batch * bucket(-(-count // batch))
    index = np.arange(total) % count
    times = np.bincount(index, minlength=count)
    weights = (total / count) / times[index]
    return (*(a[index] for a in arrays), weights)
