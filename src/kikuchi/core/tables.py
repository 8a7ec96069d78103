"""Tables of numbers in files: CSV, TSV, Parquet, NumPy arrays; missing cells are NaN."""

from __future__ import annotations

import csv
import gzip
import zipfile
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, TextIO, cast

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError, MissingExtraError, suggestion

SUFFIXES = (".csv", ".tsv", ".parquet", ".npy", ".npz")
MISSING = frozenset({"", "?", "na", "nan", "null"})
"""How a missing cell may be written, in small letters."""

_DELIMITERS = ",;\t"


@dataclass(frozen=True)
class Table:
    """Numbers in rows and columns (an .npy file may have more axes), names of the columns if the
    file has them, and the other arrays of an .npz file.
    """

    values: Array
    names: tuple[str, ...] | None = None
    others: dict[str, NDArray[Any]] = field(default_factory=dict)


def suffix_of(path: str | PathLike[str]) -> str:
    """The suffix of a file in small letters, without `.gz`.

    >>> suffix_of("Rows.CSV.gz")
    '.csv'
    """
    return Path(Path(path).name.lower().removesuffix(".gz")).suffix


def read_table(
    path: str | PathLike[str], *, arrays: tuple[str, ...] = ("data",), what: str = "a table"
) -> Table:
    """The numbers of a .csv, .tsv, .parquet, .npy or .npz file.

    The first line of a text names the columns, unless it is a row of numbers itself. `arrays` are
    the names, in order of preference, that the array of an .npz file may have; one array alone may
    have any name. `what` is the word for the file in messages.
    """
    place = Path(path)
    suffix = suffix_of(place)
    if suffix not in SUFFIXES:
        raise DataError(f"{place}: not {what}; {suggestion(suffix, SUFFIXES)}")
    if not place.is_file():
        raise DataError(f"{place}: there is no such file")
    if suffix == ".parquet":
        return _parquet(place)
    if suffix in (".npy", ".npz"):
        return _numpy(place, arrays)
    return _text(place)


# ---------------------------------------------------------------------- text


def _text(place: Path) -> Table:
    try:
        opener: Any = gzip.open if place.suffix.lower() == ".gz" else open
        with opener(place, "rt", encoding="utf-8", newline="") as file:
            lines = [line for line in cast(TextIO, file) if line.strip()]
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise DataError(f"{place}: cannot be read as text: {error}") from None
    if not lines:
        raise DataError(f"{place}: the file is empty")
    delimiter = max(_DELIMITERS, key=lines[0].count)
    head = next(csv.reader([lines[0]], delimiter=delimiter))
    names = None if all(map(_is_number, head)) else tuple(cell.strip() for cell in head)
    body = lines if names is None else lines[1:]
    if not body:
        raise DataError(f"{place}: there are names of columns but no rows")
    if names is not None and len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{place}: two columns have the name '{twice}'")
    return Table(_numbers(place, body, delimiter, len(head), 1 if names is None else 2), names)


def _is_number(cell: str) -> bool:
    word = cell.strip()
    if word.lower() in MISSING:
        return True
    try:
        float(word)
    except ValueError:
        return False
    return True


def _numbers(place: Path, body: list[str], delimiter: str, width: int, first: int) -> Array:
    try:
        found = np.loadtxt(body, delimiter=delimiter, ndmin=2, dtype=np.float64, comments=None)
        if found.shape[1] == width:
            return found
    except ValueError:
        pass  # missing cells, quotes or faults: cell by cell, which says where
    out = np.empty((len(body), width))
    for k, cells in enumerate(csv.reader(body, delimiter=delimiter)):
        if len(cells) != width:
            raise DataError(
                f"{place}: line {k + first} has {len(cells)} cells, the first has {width}"
            )
        for j, cell in enumerate(cells):
            word = cell.strip()
            if not _is_number(word):
                raise DataError(
                    f"{place}: line {k + first}, column {j + 1}: '{word}' is not a number"
                )
            out[k, j] = np.nan if word.lower() in MISSING else float(word)
    return out


# ---------------------------------------------------------------------- arrays


def _numpy(place: Path, wanted: tuple[str, ...]) -> Table:
    try:
        loaded = np.load(place, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return Table(as_numbers(loaded, str(place)))
        with loaded:
            arrays = {name: loaded[name] for name in loaded.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{place}: cannot be read as NumPy arrays: {error}") from None
    chosen = next((name for name in wanted if name in arrays), None)
    if chosen is None and len(arrays) == 1:
        chosen = next(iter(arrays))
    if chosen is None:
        raise DataError(f"{place}: name the array '{wanted[0]}'; found {sorted(arrays)}")
    values = as_numbers(arrays.pop(chosen), str(place))
    return Table(values, None, arrays)


def as_numbers(values: Any, source: str) -> Array:
    """An array of numbers, or an error that names the source."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{source}: the values must be numbers") from None


def read_parquet(place: Path) -> dict[str, Any]:
    """The columns of a Parquet file as arrays, by name."""
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise MissingExtraError(
            f"{place}: reading Parquet needs pyarrow; pip install 'kikuchi[data]', or use CSV"
        ) from None
    try:
        table = parquet.read_table(place)
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise DataError(f"{place}: cannot be read as Parquet: {error}") from None
    return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}


def _parquet(place: Path) -> Table:
    named = read_parquet(place)
    if not named:
        raise DataError(f"{place}: there are no columns")
    columns = [as_numbers(values, f"{place}: column {name}") for name, values in named.items()]
    return Table(np.column_stack(columns), tuple(named))
