"""Tables of data in files: CSV, Parquet, NumPy arrays; and samples written as CSV."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO, cast

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.errors import DataError, suggestion
from kikuchi.core.files import atomic_write
from kikuchi.core.tables import read_parquet
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.data import Data

SUFFIXES = (".csv", ".tsv", ".parquet", ".npy", ".npz")
_DELIMITERS = ",;\t"


def read_data(path: str | Path, graph: FactorGraph | None = None) -> Data:
    """Rows of a .csv, .tsv, .parquet, .npy or .npz file, matched to `graph` if one is given.

    The first line of a text file names its columns, unless it is a row of whole numbers itself.
    Empty cells and `?`, `NA`, `nan`, `-1` are missing. An .npz file holds an array `states` (or a
    single array) and perhaps `weights`.
    """
    place = Path(path)
    suffix = Path(place.name.lower().removesuffix(".gz")).suffix
    if suffix not in SUFFIXES:
        raise DataError(f"{path}: not a table of data; {suggestion(suffix, SUFFIXES)}")
    if not place.is_file():
        raise DataError(f"{path}: there is no such file")
    if suffix == ".parquet":
        return Data.of(read_parquet(place), graph)
    if suffix in (".npy", ".npz"):
        states, weights = _arrays(place)
        return Data.of(states, graph, weights=weights)
    names, rows = _text(place)
    return Data.of(rows if names is None else dict(zip(names, rows.T, strict=True)), graph)


def write_states(
    path: str | Path,
    states: NDArray[Any],
    names: Sequence[str],
    state_names: Sequence[Sequence[str]] | None = None,
) -> None:
    """Rows of states as CSV with a line of names; missing cells are empty."""
    words = [["", *map(str, w)] for w in state_names] if state_names is not None else None
    with atomic_write(Path(path)) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for row in np.asarray(states).tolist():
            if words is not None:
                writer.writerow([words[k][x + 1] for k, x in enumerate(row)])
            else:
                writer.writerow(["" if x < 0 else x for x in row])


# ---------------------------------------------------------------------- formats


def _text(place: Path) -> tuple[list[str] | None, NDArray[Any]]:
    try:
        opener = gzip.open if place.suffix.lower() == ".gz" else open
        with opener(place, "rt", encoding="utf-8", newline="") as file:
            first = cast(TextIO, file).readline()
            delimiter = max(_DELIMITERS, key=first.count)
            head = next(csv.reader([first], delimiter=delimiter), [])
            named = not all(_is_number(cell) for cell in head)
            body = list(csv.reader(cast(TextIO, file), delimiter=delimiter))
    except (OSError, UnicodeDecodeError, csv.Error, EOFError) as error:
        raise DataError(f"{place}: cannot be read as text: {error}") from None
    if not head:
        raise DataError(f"{place}: the file is empty")
    rows = [row for row in (body if named else [head, *body]) if row]
    for number, row in enumerate(rows, start=2 if named else 1):
        if len(row) != len(head):
            raise DataError(
                f"{place}: line {number} has {len(row)} cells, the first has {len(head)}"
            )
    if not rows:
        raise DataError(f"{place}: there are names of columns but no rows")
    names = [cell.strip() for cell in head] if named else None
    if names is not None and len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{place}: two columns have the name '{twice}'")
    return names, np.array(rows, dtype=object)


def _is_number(cell: str) -> bool:
    return cell.strip().removeprefix("-").isdecimal()


def _arrays(place: Path) -> tuple[NDArray[Any], NDArray[Any] | None]:
    try:
        loaded = np.load(place, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{place}: cannot be read as NumPy arrays: {error}") from None
    if isinstance(loaded, np.ndarray):
        return loaded, None
    with loaded:
        keys = [key for key in loaded.files if key != "weights"]
        chosen = "states" if "states" in keys else keys[0] if len(keys) == 1 else None
        if chosen is None:
            raise DataError(f"{place}: name the array of rows 'states'; found {sorted(keys)}")
        return loaded[chosen], loaded["weights"] if "weights" in loaded.files else None
