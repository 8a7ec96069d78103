"""Tables of numbers in files: CSV, TSV, Parquet, NumPy arrays; missing cells are NaN."""

from __future__ import annotations

import csv
import io
import math
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array
from kikuchi.core.errors import (
    DataError,
    MissingDataFileError,
    MissingExtraError,
    suggestion,
)
from kikuchi.core.extras import install
from kikuchi.core.files import PathName, guarded_reading, read_text, require_room, suffix_of
from kikuchi.core.text import from_cell

SUFFIXES = (".csv", ".tsv", ".parquet", ".npy", ".npz")
_MISSING = frozenset({
    "", "?", "na", "nan", "-nan", "null", "n/a", "<na>", "#na", "#n/a", "#n/a n/a",
    "1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan",
})  # fmt: skip

_DELIMITERS = ",;\t"
_BYTES_PER_CELL = 96  # of a short string in two lists, and its code
_BYTES_PER_LINE = 300  # a short string with its index, and the list of its cells
_ROWS_AT_ONCE = 4096
_TEXTS = ("string", "large_string")
_MOST_EMPTY = 10**6  # rows or columns of an array without entries


def is_missing(cell: str) -> bool:
    """Return whether a string marks a missing cell: empty, ?, or a marker of spreadsheets, pandas
    or R.

    Case is ignored, except for `None`: Python writes it for missing values, while `none` is often a
    value. In a column of strings `None` is also a value: several published networks have a state of
    this name.

    >>> [is_missing(word) for word in (" ", "n/a", "NULL", "<NA>", "None", "none", "no")]
    [True, True, True, True, True, False, False]
    """
    word = cell.strip()
    return word == "None" or word.lower() in _MISSING


@dataclass(frozen=True)
class Table:
    """Numbers in rows and columns (an .npy file may have more axes), the column names if the file
    has them, and the other arrays of an .npz file. `texts` contains the distinct strings of each
    non-numeric column, whose values are indices into them; `lines` contains the line of each row in
    a text file.
    """

    values: Array
    names: tuple[str, ...] | None = None
    others: dict[str, NDArray[Any]] = field(default_factory=dict)
    texts: dict[int, NDArray[Any]] = field(default_factory=dict)
    lines: tuple[int, ...] | None = None

    def fault_of(self, column: int) -> str:
        """Return the location of the first value that is not a number in a column of strings."""
        for row, code in enumerate(self.values[:, column]):
            word = "" if np.isnan(code) else str(self.texts[column][int(code)])
            if not _is_number(word):
                where = f"row {row + 1}" if self.lines is None else f"line {self.lines[row]}"
                return f"{where}, column {column + 1}: '{word}' is not a number"
        raise AssertionError(f"column {column} contains numbers only")


def read_table(
    path: PathName,
    *,
    arrays: tuple[str, ...] = ("data",),
    what: str = "a table",
    texts: bool = False,
) -> Table:
    """Read the numbers of a .csv, .tsv, .parquet, .npy or .npz file.

    The first line of a text file contains the column names, unless it is itself a row of numbers.
    `arrays` are the accepted names of the array in an .npz file, in order of preference; a single
    array may have any name. `what` is the word for the file in messages. Columns with values other
    than numbers raise an error, or with `texts` are encoded (`Table.texts`).
    """
    place = Path(path)
    suffix = table_suffix(place, what)
    if suffix == ".parquet":
        return _parquet(place, texts)
    if suffix in (".npy", ".npz"):
        return _numpy(place, arrays)
    return _text(place, texts)


def table_suffix(place: Path, what: str) -> str:
    """Return the suffix of an existing file that may contain a table; `what` is the word for it in
    messages.
    """
    suffix = suffix_of(place)
    if suffix not in SUFFIXES:
        raise DataError(f"{place}: not {what}; {suggestion(suffix, SUFFIXES)}")
    if not place.is_file():
        raise MissingDataFileError(f"{place}: no such file")
    return suffix


# ---------------------------------------------------------------------- text


@dataclass(frozen=True)
class Lines:
    """The non-empty lines of a text file below its column names, if any, and their line numbers."""

    place: Path
    names: tuple[str, ...] | None
    width: int
    delimiter: str
    body: list[str]
    numbers: list[int]

    def cells(self) -> tuple[list[list[str]], tuple[int, ...]]:
        """Yield the cells of each row, all of the same width, and the first line of each row."""
        rows, begins = [], []
        with guarded_reading(self.place, "text"):
            reader, line = csv.reader(self.body, delimiter=self.delimiter), 0
            for row in reader:
                rows.append(row)
                begins.append(self.numbers[line])
                line = reader.line_num  # a quoted cell may span several lines
        if any("'" in line for line in self.body):
            rows = [[from_cell(cell) for cell in row] for row in rows]
        for number, row in zip(begins, rows, strict=True):
            if len(row) != self.width:
                raise DataError(
                    f"{self.place}: line {number} has {len(row)} cells, the first has {self.width}"
                )
        return rows, tuple(begins)


def read_lines(place: Path, is_row: Callable[[Sequence[str]], bool]) -> Lines:
    """Read the lines of a text file; the first contains the column names unless `is_row` holds."""
    text = read_text(place)
    require_room(place, _bytes_to_split(text), "its text")
    every = list(enumerate(io.StringIO(text, newline=""), start=1))
    first = next((k for k, (_, line) in enumerate(every) if line.strip()), None)
    if first is None:
        raise DataError(f"{place}: the file is empty")
    delimiter = max(_DELIMITERS, key=every[first][1].count)
    with guarded_reading(place, "text"):
        head = next(csv.reader([every[first][1]], delimiter=delimiter))
    kept = _kept_lines(place, every[first:], delimiter, len(head))
    numbers, lines = [number for number, _ in kept], [line for _, line in kept]
    if is_row(head):
        return Lines(place, None, len(head), delimiter, lines, numbers)
    names = tuple(from_cell(cell.strip()) for cell in head)
    if len(lines) == 1:
        raise DataError(f"{place}: there are column names but no rows")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{place}: two columns have the name '{twice}'")
    return Lines(place, names, len(head), delimiter, lines[1:], numbers[1:])


def _bytes_to_split(text: str) -> int:
    """Return the memory of a text: a copy of four bytes per character, its lines and its cells."""
    lines = text.count("\n") + text.count("\r")
    cells = lines + sum(map(text.count, _DELIMITERS))
    letters = 2 * sys.getsizeof(text) + 4 * len(text)
    return letters + _BYTES_PER_LINE * lines + _BYTES_PER_CELL * cells


def _kept_lines(
    place: Path, lines: list[tuple[int, str]], delimiter: str, width: int
) -> list[tuple[int, str]]:
    """Return the non-empty lines; a line of delimiters only is a row whose cells are all missing.

    An empty line between the rows of a single column is a missing cell to some programs and is
    skipped by others, so it raises an error.
    """
    kept = [pair for pair in lines if pair[1].strip() or delimiter in pair[1]]
    if width == 1 and kept:
        gap = next((n for n, line in lines if not line.strip() and n < kept[-1][0]), None)
        if gap is not None:
            raise DataError(
                f"{place}: line {gap} is empty; in a table of one column write NA for a missing "
                "cell, or remove the line"
            )
    return kept


def _text(place: Path, texts: bool) -> Table:
    lines = read_lines(place, lambda head: all(map(_is_number, head)))
    try:
        found = np.loadtxt(lines.body, delimiter=lines.delimiter, ndmin=2, comments=None)
        if found.shape == (len(lines.body), lines.width):
            return Table(found, lines.names, lines=tuple(lines.numbers))
    except ValueError:
        pass  # missing cells, quotes or faults: cell by cell, to locate faults
    cells, numbers = lines.cells()
    rows = [[cell.strip() for cell in row] for row in cells]
    out = np.empty((len(rows), lines.width))
    coded: dict[int, NDArray[Any]] = {}
    for k, words in enumerate(rows):
        for j, word in enumerate(words):
            if j in coded:
                continue
            if _is_number(word):
                out[k, j] = np.nan if is_missing(word) else float(word)
            elif texts:
                out[:, j], coded[j] = _codes([row[j] for row in rows])
            else:
                raise DataError(
                    f"{place}: line {numbers[k]}, column {j + 1}: '{word}' is not a number"
                )
    for j, known in coded.items():
        if lines.names is not None and lines.names[j] in known:  # a row would be lost
            raise DataError(
                f"{place}: line 1 contains the column names, but '{lines.names[j]}' is also a "
                "value of "
                f"column {j + 1}; add a line of column names above the rows"
            )
    return Table(out, lines.names, texts=coded, lines=numbers)


def _codes(words: list[str]) -> tuple[Array, NDArray[Any]]:
    """Return the index of each string among the sorted distinct strings (NaN if missing), and these
    strings.
    """
    known = sorted({word for word in words if word == "None" or not is_missing(word)})
    places = {word: float(k) for k, word in enumerate(known)}
    return np.array([places.get(word, np.nan) for word in words]), np.array(known)


def _is_number(cell: str) -> bool:
    if is_missing(cell):
        return True
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # Python reads 2020_01 as 202001


# ---------------------------------------------------------------------- arrays


def read_arrays(place: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz file by name, or that of an .npy file under the name ""."""
    with guarded_reading(place, "NumPy arrays"), place.open("rb") as file:
        if file.read(2) != b"PK":
            file.seek(0)
            return {"": _read_array(place, file, place.stat().st_size)}
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            require_room(place, sum(m.file_size for m in members), "its arrays unpacked")
            arrays = {}
            for member in members:
                with archive.open(member) as packed:
                    name = member.filename.removesuffix(".npy")
                    arrays[name] = _read_array(place, packed, member.file_size)
    return arrays


def _read_array(place: Path, file: IO[bytes], size: int) -> NDArray[Any]:
    """Read one array of numbers or strings from a stream of exactly `size` bytes."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, fortran, kind = np.lib.format.read_array_header_1_0(file)
    else:
        shape, fortran, kind = np.lib.format.read_array_header_2_0(file)
    if kind.kind not in "biufUS" or not kind.itemsize:
        raise DataError(
            f"{place}: cannot be read as NumPy arrays: type {kind}; store plain numbers"
        )
    if any(length < 0 for length in shape):
        raise DataError(f"{place}: cannot be read: an array of shape {shape}; use another file")
    count = math.prod(shape)
    held = size - file.tell()
    if count * kind.itemsize != held:
        raise DataError(
            f"{place}: cannot be read: an array of shape {shape} and type {kind} takes "
            f"{count * kind.itemsize} bytes, but the file contains {held}; use another file"
        )
    if not count and max(shape) > _MOST_EMPTY:  # no data, but a result for each row or column
        raise DataError(f"{place}: an array of shape {shape} is empty; use another file")
    require_room(place, count * max(kind.itemsize, 8), f"an array of shape {shape}")
    data = bytearray(file.read(held))
    if len(data) < held:
        raise EOFError
    if kind.kind == "U":
        letters = np.frombuffer(data, np.dtype("u4").newbyteorder(kind.byteorder))
        if letters.max(initial=0) > sys.maxunicode:
            raise DataError(f"{place}: cannot be read: an invalid string; use another file")
    return np.frombuffer(data, kind).reshape(shape, order="F" if fortran else "C")


def _numpy(place: Path, wanted: tuple[str, ...]) -> Table:
    arrays = read_arrays(place)
    chosen = next((name for name in wanted if name in arrays), None)
    if chosen is None and len(arrays) == 1:
        chosen = next(iter(arrays))
    if chosen is None:
        raise DataError(f"{place}: there must be an array '{wanted[0]}'; found {sorted(arrays)}")
    values = as_numbers(arrays.pop(chosen), str(place))
    return Table(values, None, arrays)


def as_numbers(values: Any, source: str) -> Array:
    """Convert to an array of numbers, or raise an error that names the source."""
    try:
        with np.errstate(invalid="ignore", over="ignore"):  # signalling NaN, wider floats
            return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{source}: the values must be numbers") from None


def parquet_module(place: PathName) -> Any:
    """Return pyarrow with its Parquet reader, or raise an error with the command that installs
    it.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError(
            f"{place}: Parquet needs pyarrow; {install('data')}, or use CSV"
        ) from None
    return pyarrow


def open_parquet(place: PathName) -> Any:
    """Open a Parquet file whose string columns are read as codes.

    A short file may repeat a long string so often that it does not fit into memory.
    """
    pyarrow = parquet_module(place)
    with pyarrow.parquet.ParquetFile(place) as file:
        texts = [field.name for field in file.schema_arrow if str(field.type) in _TEXTS]
    return pyarrow.parquet.ParquetFile(place, read_dictionary=texts)


def read_parquet(place: Path) -> dict[str, Any]:
    """Return the columns of a Parquet file as arrays, by name."""
    pyarrow = parquet_module(place)
    with guarded_reading(place, "Parquet"), open_parquet(place) as file:
        facts, schema = file.metadata, file.schema_arrow
        # Sizes of columns are not read: pyarrow ends the process if the statistics are malformed.
        packed = sum(facts.row_group(k).total_byte_size for k in range(facts.num_row_groups))
        require_room(place, max(packed, 8 * facts.num_rows * facts.num_columns), "its table")
        if len(set(schema.names)) < len(schema.names):
            raise DataError(f"{place}: two columns have the same name")
        if any(pyarrow.types.is_nested(kind) for kind in schema.types):
            raise DataError(f"{place}: a column contains lists or records; store plain columns")
        batches = list(_batches(place, file))
        table = pyarrow.Table.from_batches(batches) if batches else schema.empty_table()
        table.validate(full=True)
        return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}


def _batches(place: Path, file: Any) -> Iterator[Any]:
    """Yield the rows of a Parquet file in batches of a few thousand, within the reading limit."""
    pyarrow = parquet_module(place)
    held = 0
    for batch in file.iter_batches(_ROWS_AT_ONCE, use_threads=False):
        held += sum(map(_bytes_of_texts, batch.columns))
        require_room(place, held, "its table unpacked")
        columns = [getattr(c, "dictionary_decode", lambda c=c: c)() for c in batch.columns]
        yield pyarrow.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _bytes_of_texts(column: Any) -> int:
    """Return the size of a column in which each row has its own string."""
    if not hasattr(column, "dictionary") or str(column.type.value_type) not in _TEXTS:
        return int(column.nbytes)
    from pyarrow import compute

    lengths = compute.binary_length(column.dictionary)
    repeated = compute.sum(compute.take(lengths, column.indices)).as_py()
    return int(repeated or 0) + int(column.nbytes)


def _parquet(place: Path, texts: bool) -> Table:
    named = read_parquet(place)
    if not named:
        raise DataError(f"{place}: there are no columns")
    columns: list[Array] = []
    coded: dict[int, NDArray[Any]] = {}
    for name, values in named.items():
        if texts and any(isinstance(value, str) for value in values):
            words = ["" if value is None else str(value).strip() for value in values]
            values, coded[len(columns)] = _codes(words)
        columns.append(as_numbers(values, f"{place}: column {name}"))
    return Table(np.column_stack(columns), tuple(named), texts=coded)
