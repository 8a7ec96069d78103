"""Cases of evidence as numbers: columns of a table matched to the variables of a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.errors import DataError
from kikuchi.graphs.cells import BadCellError, column_variables, states_of
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.data import Data
from kikuchi.queries.patterns import States
from kikuchi.queries.question import state_labels


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
    """Turns the cells of columns into state numbers, chunk after chunk.

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
        numbers = column_variables(graph, self.columns, kept)
        self.used = [k for k, v in numbers.items() if v not in unused]
        self.variables = [numbers[k] for k in self.used]
        self._coders = [states_of(graph, v) for v in self.variables]

    def codes(self, k: int, cells: Any, first_row: int, source: str = "") -> NDArray[np.int32]:
        """State numbers of the cells of the k-th used column."""
        try:
            return self._coders[k].codes(cells)
        except BadCellError as error:
            name = self.columns[self.used[k]]
            if error.reason:
                raise DataError(f"{source}column '{name}': state {error.reason}") from None
            raise DataError(
                f"{source}row {first_row + error.row}, column '{name}': {error.cell!r} is not a "
                f"state; the states are {', '.join(state_labels(self.graph, self.variables[k]))} "
                "(empty for unknown)"
            ) from None


def read_cases(graph: FactorGraph, frame: Any, unused: set[int]) -> Cases:
    """Cases from a DataFrame, a mapping of columns, a sequence of mappings, an array or `Data`.

    Variables in `unused` are omitted, since they are targets and not evidence.

    >>> graph = FactorGraph([2, 2], [], names=["a", "b"], states=[["no", "yes"]] * 2)
    >>> read_cases(graph, {"a": ["yes", None], "b": ["no", "yes"]}, set()).states.tolist()
    [[1, 0], [-1, 1]]
    """
    if _is_array(frame):
        states = Data.of(frame, graph).states
        used = [v for v in range(graph.n_variables) if v not in unused]
        return Cases(used, np.ascontiguousarray(states[:, used]))
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


def _is_array(frame: Any) -> bool:
    """Whether a table has no names of columns: an array, `Data`, or a list of lists."""
    if isinstance(frame, Data | np.ndarray):
        return True
    listed = isinstance(frame, list | tuple) and len(frame) > 0
    return listed and all(isinstance(row, list | tuple | np.ndarray) for row in frame)


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
        "columns, a list of mappings, or an array of numbers of states"
    )
