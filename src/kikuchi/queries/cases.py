"""Cases of evidence as numbers: columns of a table matched to the variables of a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Ints
from kikuchi.core.errors import DataError, suggestion
from kikuchi.core.labels import AmbiguousNumberError, place_of_cell
from kikuchi.core.tables import is_missing
from kikuchi.core.text import is_whole
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.queries.patterns import States
from kikuchi.queries.question import state_labels

UNSEEN = -1  # a missing cell
_MISSING_KINDS = ("NAType", "NaTType")  # what pandas has in place of missing values


@dataclass(frozen=True)
class Cases:
    """Rows of evidence: `states` has a column for each of `variables`, -1 where nothing is known;
    `index` is what the rows were called, None for their numbers.
    """

    variables: list[int]
    states: States
    index: Any = None

    def __len__(self) -> int:
        return len(self.states)


class CellReader:
    """Turns the cells of named columns into state numbers; what it has met it remembers.

    Variables in `unused` are not read; columns in `kept` need not be variables.
    """

    def __init__(
        self,
        graph: FactorGraph,
        columns: Sequence[str],
        unused: set[int],
        kept: Sequence[str] = (),
    ) -> None:
        self.graph = graph
        self.columns = [str(name) for name in columns]
        numbers = {
            k: self._variable(name)
            for k, name in enumerate(self.columns)
            if name not in kept or self._is_variable(name)
        }
        if len(set(numbers.values())) < len(numbers):
            raise DataError("the cases have two columns for one variable")
        self.used = [k for k, v in numbers.items() if v not in unused]
        self.variables = [numbers[k] for k in self.used]
        self.known: list[dict[Any, int]] = [{} for _ in self.used]

    def _variable(self, name: str) -> int:
        graph = self.graph
        if graph.names is not None:
            if name in graph.names:
                return graph.names.index(name)
        else:
            word = name.removeprefix("x")
            if is_whole(word) and int(word) < graph.n_variables:
                return int(word)
        known = graph.names or [f"x{v}" for v in range(graph.n_variables)]
        raise DataError(
            f"column '{name}' is not a variable of the model; drop it, or rename it: "
            f"{suggestion(name, known)}"
        )

    def _is_variable(self, name: str) -> bool:
        try:
            self._variable(name)
        except DataError:
            return False
        return True

    def codes(self, k: int, cells: Any, first_row: int, source: str = "") -> NDArray[np.int32]:
        """State numbers of the cells of the k-th used column."""
        distinct, inverse = _distinct(cells)
        try:
            numbers = [self._code(k, cell) for cell in distinct]
        except AmbiguousNumberError as error:
            name = self.columns[self.used[k]]
            raise DataError(f"{source}column '{name}': state {error}") from None
        table = np.array(numbers or [UNSEEN], dtype=np.int32)
        out = table[inverse] if len(inverse) else np.zeros(0, dtype=np.int32)
        if (table == UNSEEN - 1).any():
            row = int(np.flatnonzero(out == UNSEEN - 1)[0])
            cell = distinct[int(inverse[row])]
            v = self.variables[k]
            raise DataError(
                f"{source}row {first_row + row}, column '{self.columns[self.used[k]]}': "
                f"{cell!r} is no state; the states are "
                f"{', '.join(state_labels(self.graph, v))} (empty for unknown)"
            )
        return out

    def _code(self, k: int, cell: Any) -> int:
        known = self.known[k]
        try:
            return known[cell]
        except KeyError:
            found = known[cell] = self._new_code(self.variables[k], cell)
            return found
        except TypeError:
            return UNSEEN - 1

    def _new_code(self, v: int, cell: Any) -> int:
        """The number of a state, -1 for a missing cell, -2 for anything else."""
        if cell is None or _is_nan(cell) or type(cell).__name__ in _MISSING_KINDS:
            return UNSEEN
        if isinstance(cell, str) and is_missing(cell):
            return self._named(v, cell)
        if isinstance(cell, str):
            found = self._named(v, cell)
            return UNSEEN - 1 if found == UNSEEN else found
        place = place_of_cell(state_labels(self.graph, v), cell)
        return UNSEEN - 1 if place is None else place

    def _named(self, v: int, word: str) -> int:
        labels = state_labels(self.graph, v)
        for candidate in (word, word.strip()):
            if candidate in labels:
                return labels.index(candidate)
        return UNSEEN


def _distinct(cells: Any) -> tuple[list[Any], Ints]:
    """The distinct cells of a column and, for each cell, which of them it is."""
    if type(cells).__module__.partition(".")[0] == "pandas":
        import pandas

        try:
            codes, found = pandas.factorize(cells, use_na_sentinel=False)
        except TypeError:  # lists or arrays in cells
            return list(cells), np.arange(len(cells))
        return list(found), np.asarray(codes, dtype=np.int64)
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "iub":
        numbers, inverse = np.unique(cells, return_inverse=True)
        return numbers.tolist(), inverse
    items = list(cells)
    try:
        seen: dict[Any, int] = {}
        places = [seen.setdefault(None if _is_nan(item) else item, len(seen)) for item in items]
    except TypeError:
        return items, np.arange(len(items))
    return list(seen), np.array(places, dtype=np.int64)


def _is_nan(cell: Any) -> bool:
    return isinstance(cell, float | np.floating) and cell != cell


def read_cases(graph: FactorGraph, frame: Any, unused: set[int]) -> Cases:
    """Cases from a DataFrame, a mapping of columns, or a sequence of mappings.

    Variables in `unused` are left out: they are asked for, and not evidence.

    >>> graph = FactorGraph([2, 2], [], names=["a", "b"], states=[["no", "yes"]] * 2)
    >>> read_cases(graph, {"a": ["yes", None], "b": ["no", "yes"]}, set()).states.tolist()
    [[1, 0], [-1, 1]]
    """
    columns, index = _columns(frame)
    reader = CellReader(graph, list(columns), unused)
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise DataError(f"the columns of the cases have different lengths: {sorted(lengths)}")
    n = lengths.pop() if lengths else (0 if index is None else len(index))
    cells = list(columns.values())
    states = np.empty((n, len(reader.used)), dtype=np.int32)
    for k, column in enumerate(reader.used):
        states[:, k] = reader.codes(k, cells[column], 0)
    return Cases(reader.variables, states, index)


def _column(name: Any, cells: Any) -> Any:
    if isinstance(cells, np.ndarray) and cells.ndim == 1:
        return cells
    if isinstance(cells, str) or not isinstance(cells, Iterable):
        raise DataError(
            f"column '{name}' must be a list of cells, got {cells!r}; write [{cells!r}]"
        )
    return list(cells)


def _columns(frame: Any) -> tuple[dict[str, Any], Any]:
    if isinstance(frame, Mapping):
        return {str(name): _column(name, column) for name, column in frame.items()}, None
    if hasattr(frame, "columns") and hasattr(frame, "__getitem__"):
        twice = [name for name, count in Counter(map(str, frame.columns)).items() if count > 1]
        if twice:
            raise DataError(f"the cases have two columns for one variable, '{twice[0]}'")
        columns = {str(name): frame[name] for name in frame.columns}
        return columns, getattr(frame, "index", None)
    if isinstance(frame, Sequence) and all(isinstance(row, Mapping) for row in frame):
        names = list(dict.fromkeys(str(name) for row in frame for name in row))
        return {name: [row.get(name) for row in frame] for name in names}, None
    raise DataError(
        f"cases of kind {type(frame).__name__} are not taken; give a DataFrame, a mapping of "
        "columns, or a list of mappings"
    )
