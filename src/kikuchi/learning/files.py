"""Tables of data in files: CSV, Parquet, NumPy arrays; and samples written as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.errors import DataError
from kikuchi.core.files import atomic_write
from kikuchi.core.tables import read_arrays, read_lines, read_parquet, table_suffix
from kikuchi.core.text import spreadsheet_cell
from kikuchi.graphs.cells import names_columns
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.data import Data
from kikuchi.learning.real_numbers import CellError


def read_data(
    path: str | Path, graph: FactorGraph | None = None, *, bins: int | None = None
) -> Data:
    """Rows of a .csv, .tsv, .parquet, .npy or .npz file, matched to `graph` if one is given.

    The first line of a text file names its columns, unless it is a row of whole numbers and missing
    cells itself. Empty cells, `-1` and `?`, `NA`, `nan`, `N/A`, `NULL` and the like are missing,
    unless they are states of the `graph`; `None` is missing in a column of numbers and a state in a
    column of words. An .npz file holds an array `states` (or a
    single array) and perhaps `weights`.

    `path` is the file; `bins` divides columns of real numbers into quantile bins, as `Data.of`
    does.
    """
    place = Path(path)
    suffix = table_suffix(place, "a table of data")
    if suffix == ".parquet":
        with _named(place):
            return Data.of(read_parquet(place), graph, bins=bins)
    if suffix in (".npy", ".npz"):
        states, weights = _arrays(place)
        with _named(place):
            return Data.of(states, graph, weights=weights, bins=bins)
    lines = read_lines(place, lambda head: not names_columns(head, graph))
    cells, numbers = lines.cells()
    rows = np.array(cells, dtype=object)
    with _named(place, numbers):
        if lines.names is None:
            return Data.of(rows, graph, bins=bins)
        return Data.of(dict(zip(lines.names, rows.T, strict=True)), graph, bins=bins)


@contextmanager
def _named(place: Path, lines: Sequence[int] | None = None) -> Iterator[None]:
    """Errors tell the file, and the line of a cell (of a file without lines its row, from 1)."""
    try:
        yield
    except CellError as error:
        where = f"row {error.row + 1}" if lines is None else f"line {lines[error.row]}"
        raise DataError(f"{place}: {where}, {error.fault}") from None
    except DataError as error:
        raise DataError(f"{place}: {str(error).removeprefix('data: ')}") from None


def write_states(
    path: str | Path,
    states: NDArray[Any],
    names: Sequence[str],
    state_names: Sequence[Sequence[str]] | None = None,
) -> None:
    """Rows of states as CSV with a line of names; missing cells are empty."""
    words = None
    if state_names is not None:
        words = [["", *(spreadsheet_cell(str(word)) for word in group)] for group in state_names]
    with atomic_write(Path(path)) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(map(spreadsheet_cell, names))
        for row in np.asarray(states).tolist():
            if words is not None:
                writer.writerow([words[k][x + 1] for k, x in enumerate(row)])
            else:
                writer.writerow(["" if x < 0 else x for x in row])


# ---------------------------------------------------------------------- formats


def _arrays(place: Path) -> tuple[NDArray[Any], NDArray[Any] | None]:
    arrays = read_arrays(place)
    weights = arrays.pop("weights", None)
    chosen = "states" if "states" in arrays else next(iter(arrays)) if len(arrays) == 1 else None
    if chosen is None:
        raise DataError(f"{place}: name the array of rows 'states'; found {sorted(arrays)}")
    return arrays[chosen], weights
