"""Cases in files, answered as they stream through: CSV, TSV and Parquet, of any length."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np

from kikuchi.core.answer import TextTable
from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget, Clock, RunLimits, limits, named_limits
from kikuchi.core.cluster import shared_with
from kikuchi.core.errors import BudgetError, DataError, suggestion
from kikuchi.core.files import (
    PathName,
    affordable,
    atomic_write,
    guarded_reading,
    is_compressed,
    limited_lines,
    limited_rows,
    open_text,
    reading_limit,
    require_room,
    suffix_of,
)
from kikuchi.core.progress import ProgressOption, shown
from kikuchi.core.tables import open_parquet, parquet_module
from kikuchi.core.text import from_cell, spreadsheet_cell
from kikuchi.graphs.cells import names_columns
from kikuchi.graphs.factor_graph import FactorGraph, Variable
from kikuchi.methods.method import Method
from kikuchi.queries.cases import Cases, CellReader
from kikuchi.queries.converters import as_model
from kikuchi.queries.predict import (
    Impossible,
    answer_cases,
    answer_columns,
    check_impossible,
    distinct_rows,
    require_possible_rows,
)
from kikuchi.queries.question import asked_variables, state_labels

if TYPE_CHECKING:
    from kikuchi.core.cluster import Client

SUFFIXES = (".csv", ".tsv", ".parquet")
_ROWS_AT_ONCE = 2**16
_CELLS_AT_ONCE = 2**22
_LETTERS_AT_ONCE = 2**25
_BYTES_PER_CELL = 100  # its text, its place in two lists, and its code
_BYTES_PER_LETTER = 4
_DELIMITERS = ",;\t"
_PREVIEW = 20  # cases kept for a look

Chunk = tuple[int, Sequence[Any]]
"""The number of the first row, and the columns."""


class MeanTarget(NamedTuple):
    """A target of predictions, and the mean of its distributions over the possible cases."""

    name: str
    states: tuple[str, ...]
    mean: tuple[float, ...]


@dataclass(frozen=True)
class Prediction:
    """Summary of the output: number of cases, of impossible cases, the columns, the method, and the
    number of cases whose approximation did not converge.

    `targets` have the mean answers, `first` the first cases as texts, in the order of the columns.
    """

    rows: int
    impossible: int
    columns: tuple[str, ...]
    method: str
    not_converged: int = 0
    targets: tuple[MeanTarget, ...] = ()
    first: tuple[tuple[str, ...], ...] = ()

    def preview(self) -> TextTable:
        """The first cases as a table."""
        numeric = [
            k for k in range(len(self.columns)) if self.first and _is_figure(self.first[0][k])
        ]
        return TextTable(self.columns, self.first, numeric)


@named_limits
def predict_file(
    model: Any,
    source: PathName,
    out: PathName,
    targets: Sequence[Variable] | Variable | None = None,
    *,
    method: str | Method = "auto",
    impossible: Impossible = "error",
    processes: int | Client | None = 1,
    progress: ProgressOption = None,
    keep: Sequence[str] = (),
    **within: Unpack[RunLimits],
) -> Prediction:
    """Answer every case of a file and write the answers to another, a few thousand at a time.

    The arguments are those of `predict_proba`; source and answers are CSV, TSV or Parquet by the
    ending of their names (CSV and TSV also with .gz). Answers are written whole or not at all.

    `model`, `targets`, `method`, `impossible`, `processes`, `progress` and the limits `budget`,
    `seconds` and `memory` are those of `predict_proba`; `source` is the file of cases, `out` that
    of the answers, `keep` are columns of the source to write before the answers, as they are.

    >>> import tempfile, pathlib, kikuchi as kk
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "cases.csv").write_text("xray,smoke\\nyes,yes\\n,no\\n")
    >>> done = predict_file(kk.example("asia"), folder / "cases.csv", folder / "out.csv", ["lung"])
    >>> done.rows, (folder / "out.csv").read_text().splitlines()[0]
    (2, 'lung=no,lung=yes,log_evidence')
    """
    check_impossible(impossible)
    graph = as_model(model)
    asked = (
        list(range(graph.n_variables))
        if targets is None
        else asked_variables(graph, targets, "targets")
    )
    _check_ending(out, "the answers")
    clock = limits(**within).start()
    answers = [*answer_columns(graph, asked), "log_evidence"]
    columns = [*keep, *answers]
    rows = dead = restless = 0
    total = np.zeros(len(answers) - 1)
    first_cases: list[tuple[str, ...]] = []
    with (
        reading_limit(clock.budget.bytes),
        _reading(source, graph) as (names, chunks),
        _writing(out, list(keep), answers) as write,
        shown(progress, "cases") as report,
        shared_with(processes) as count,
    ):
        kept = _kept_columns(source, names, keep, answers)
        reader = CellReader(graph, names, set() if targets is None else set(asked), keep)
        for first, cells in chunks:
            cases = _coded(reader, cells, first, f"{source}: ")
            found = answer_cases(graph, cases, asked, method, _left(clock, rows), processes=count)
            if impossible == "error":
                require_possible_rows(graph, cases, found.log_z, first, f"{source}: ")
            beside = [cells[k] for k in kept]
            write(found.values, found.log_z, cases, beside)
            rows += len(cases)
            possible = found.log_z != -np.inf
            total += found.values[possible].sum(axis=0)
            for k in range(min(len(cases), _PREVIEW - len(first_cases))):
                figures = [*found.values[k].tolist(), found.log_z[k]] if possible[k] else []
                shown_row = [f"{x:.6g}" for x in figures] or [""] * len(answers)
                first_cases.append((*(_cell(column[k]) for column in beside), *shown_row))
            dead += int(np.count_nonzero(~possible))
            restless += int(np.count_nonzero(~found.converged))
            report(rows, 0, residual=None, objective=None)
    if not rows:
        raise DataError(f"{source}: there are column names but no rows")
    text = method if isinstance(method, str) else method.text
    means = _mean_targets(graph, asked, total / max(rows - dead, 1))
    return Prediction(rows, dead, tuple(columns), text, restless, means, tuple(first_cases))


def _kept_columns(
    source: PathName, names: Sequence[str], keep: Sequence[str], answers: Sequence[str]
) -> list[int]:
    """Places of the columns that are written before the answers."""
    for name in keep:
        if name not in names:
            raise DataError(f"{source}: there is no column '{name}'; {suggestion(name, names)}")
        if list(keep).count(name) > 1 or name in answers:
            raise DataError(f"{source}: column '{name}' would be written twice; keep it once")
    return [list(names).index(name) for name in keep]


def _mean_targets(graph: FactorGraph, asked: Sequence[int], means: Array) -> tuple[MeanTarget, ...]:
    """The mean answers, variable by variable."""
    found, at = [], 0
    for v in asked:
        states = tuple(state_labels(graph, v))
        name = graph.names[v] if graph.names is not None else f"x{v}"
        found.append(MeanTarget(name, states, tuple(means[at : at + len(states)].tolist())))
        at += len(states)
    return tuple(found)


def _cell(value: Any) -> str:
    return "" if value is None else str(value)


def _is_figure(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _left(clock: Clock, rows: int) -> Clock:
    limit = clock.budget.seconds
    if limit is None:
        return clock
    if clock.expired:
        raise BudgetError(
            f"{rows} cases were completed when the {limit:g} seconds were over; allow more seconds"
        )
    left = Budget(clock.budget.iterations, limit - clock.seconds, clock.budget.bytes)
    return left.start()


def _coded(reader: CellReader, cells: Sequence[Any], first: int, source: str) -> Cases:
    n = len(cells[0]) if len(cells) else 0
    states = np.empty((n, len(reader.used)), dtype=np.int32)
    for k, column in enumerate(reader.used):
        states[:, k] = reader.codes(k, cells[column], first, source)
    return Cases(reader.variables, states)


# ---------------------------------------------------------------------- reading


def _check_ending(path: PathName, what: str) -> str:
    suffix = suffix_of(path)
    if suffix not in SUFFIXES:
        raise DataError(f"{path}: no file of {what}; {suggestion(suffix, SUFFIXES)}")
    if suffix == ".parquet" and is_compressed(path):
        raise DataError(f"{path}: Parquet is compressed by itself; leave .gz out")
    return suffix


@contextmanager
def _reading(path: PathName, graph: FactorGraph) -> Iterator[tuple[list[str], Iterator[Chunk]]]:
    """Names of the columns, and the rows in chunks; rows are counted from 1."""
    suffix = _check_ending(path, "cases")
    place = Path(path)
    if not place.is_file():
        raise DataError(f"{path}: no such file")
    if suffix == ".parquet":
        with _parquet(path) as file:
            yield list(file.schema_arrow.names), _parquet_chunks(place, file)
        return
    with open_text(place) as file:
        lines = limited_lines(file, place)
        head = next((line for line in lines if line.strip()), "")
        if not head:
            raise DataError(f"{path}: the file is empty")
        delimiter = max(_DELIMITERS, key=head.count)
        with guarded_reading(place, "text"):
            cells = next(csv.reader([head], delimiter=delimiter))
        names = [from_cell(cell.strip()) for cell in cells]
        if not names_columns(names, graph):
            names, lines = _names_by_place(place, graph, len(names)), chain([head], lines)
        yield names, _text_chunks(place, lines, delimiter, len(names))


def _names_by_place(place: Path, graph: FactorGraph, width: int) -> list[str]:
    """Names for the columns of a file whose first line is a row."""
    if width != graph.n_variables:
        raise DataError(
            f"{place}: the first line is a row of numbers, with {width} columns for "
            f"{graph.n_variables} variables; write a line of names above the rows"
        )
    return [graph.label(v) for v in range(width)]


def _text_chunks(place: Path, lines: Iterator[str], delimiter: str, width: int) -> Iterator[Chunk]:
    reader = limited_rows(lines, place, delimiter)
    first, gap = 1, False
    while True:
        read = _some_rows(reader, width)
        if not read:
            return
        rows = [row for row in read if row]
        if width == 1:
            gap = _check_no_gap(place, read, first, gap)
        if not rows:
            continue
        for number, row in enumerate(rows, start=first):
            if len(row) != width:
                raise DataError(
                    f"{place}: row {number} has {len(row)} cells, the header has {width}"
                )
        yield first, [_texts(column) for column in zip(*rows, strict=True)]
        first += len(rows)


def _some_rows(reader: Iterator[list[str]], width: int) -> list[list[str]]:
    """Return the next rows: as many as usual, fewer where they are wide or their cells long."""
    rows: list[list[str]] = []
    letters, most_letters = 0, affordable(_LETTERS_AT_ONCE, _BYTES_PER_LETTER)
    cells = affordable(_CELLS_AT_ONCE, _BYTES_PER_CELL)
    for row in islice(reader, max(min(_ROWS_AT_ONCE, cells // width), 1)):
        rows.append(row)
        letters += sum(map(len, row))
        if letters > most_letters:
            break
    return rows


def _check_no_gap(place: Path, read: list[list[str]], first: int, gap: bool) -> bool:
    """Refuse an empty line before a case of one column, which may be a case of its own; the answer
    is whether the last line is empty.
    """
    for row in read:
        if row and gap:
            raise DataError(
                f"{place}: a line before row {first} is empty; in a table of one column write NA "
                "for a missing cell, or remove the line"
            )
        gap = not row
        first += bool(row)
    return gap


def _texts(column: Sequence[str]) -> Any:
    """A column of texts, without the marks that keep spreadsheets from running a cell."""
    array = np.empty(len(column), dtype=object)
    array[:] = column
    if any(cell.startswith("'") for cell in set(column)):
        array[:] = [from_cell(cell) for cell in column]
    return array


def _parquet(path: PathName) -> Any:
    with guarded_reading(path, "Parquet"):
        return open_parquet(path)


def _parquet_chunks(place: Path, file: Any) -> Iterator[Chunk]:
    width = max(len(file.schema_arrow.names), 1)
    rows = max(min(_ROWS_AT_ONCE, affordable(_CELLS_AT_ONCE, _BYTES_PER_CELL) // width), 1)
    first = 1
    with guarded_reading(place, "Parquet"):
        for batch in file.iter_batches(rows, use_threads=False):
            require_room(place, 2 * batch.nbytes, f"{batch.num_rows} rows")
            yield first, [_parquet_cells(column) for column in batch.columns]
            first += batch.num_rows


def _parquet_cells(column: Any) -> Any:
    """The cells of a column; equal texts are one object, as a short file may repeat a long one."""
    if not hasattr(column, "dictionary"):
        return np.array(column.to_pylist(), dtype=object)
    words = np.array([*column.dictionary.to_pylist(), None], dtype=object)
    return words[column.indices.fill_null(len(words) - 1).to_numpy()]


# ---------------------------------------------------------------------- writing

Write = Callable[[Array, Array, Cases, Sequence[Any]], None]
"""Writes answers and their log-evidence, beside columns that are kept."""


@contextmanager
def _writing(path: PathName, keep: list[str], answers: list[str]) -> Iterator[Write]:
    columns = [*keep, *answers]
    if suffix_of(path) == ".parquet":
        with atomic_write(path, "wb") as file, _parquet_writer(path, file, keep, answers) as write:
            yield write
        return
    delimiter = "\t" if suffix_of(path) == ".tsv" else ","
    with atomic_write(path, "wb") as raw, _packed(raw, is_compressed(path)) as file:
        head = io.StringIO()
        csv.writer(head, delimiter=delimiter, lineterminator="\n").writerow(
            [spreadsheet_cell(name) for name in columns]
        )
        file.write(head.getvalue().encode())

        def write(values: Array, log_z: Array, cases: Cases, beside: Sequence[Any]) -> None:
            cards = cases.states.max(axis=0, initial=-1) + 1
            first, inverse = distinct_rows(cases.states, cards)  # equal cases, equal lines
            lines = [
                delimiter.join([*map(repr, row), repr(z) if z == z else ""]).encode() + b"\n"
                if z != -np.inf
                else delimiter.encode() * len(row) + b"-inf\n"
                for row, z in zip(values[first].tolist(), log_z[first].tolist(), strict=True)
            ]
            answered = map(lines.__getitem__, inverse.tolist())
            file.writelines(_prefixed(answered, beside, delimiter) if beside else answered)

        yield write


def _prefixed(lines: Iterable[bytes], beside: Sequence[Any], delimiter: str) -> Iterator[bytes]:
    """The lines, each after the cells of its row of the columns that are kept."""
    for line, row in zip(lines, zip(*beside, strict=True), strict=True):
        text = io.StringIO()
        cells = [spreadsheet_cell(_cell(value)) for value in row]
        csv.writer(text, delimiter=delimiter, lineterminator="").writerow(cells)
        yield text.getvalue().encode() + delimiter.encode() + line


@contextmanager
def _packed(raw: IO[bytes], compressed: bool) -> Iterator[IO[bytes]]:
    if not compressed:
        yield raw
        return
    with gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as packed:
        yield packed  # type: ignore[misc]


@contextmanager
def _parquet_writer(
    path: PathName, file: Any, keep: list[str], answers: list[str]
) -> Iterator[Write]:
    pyarrow = parquet_module(path)
    texts = [(name, pyarrow.string()) for name in keep]
    schema = pyarrow.schema([*texts, *((name, pyarrow.float64()) for name in answers)])
    with pyarrow.parquet.ParquetWriter(file, schema) as writer:

        def write(values: Array, log_z: Array, cases: Cases, beside: Sequence[Any]) -> None:
            gone = log_z == -np.inf
            kept = [pyarrow.array([_cell(value) for value in column]) for column in beside]
            arrays = [*kept, *(pyarrow.array(column, mask=gone) for column in values.T)]
            table = pyarrow.Table.from_arrays([*arrays, pyarrow.array(log_z)], schema=schema)
            writer.write_table(table)

        yield write
