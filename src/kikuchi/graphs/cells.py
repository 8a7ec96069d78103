"""Tables of cells for a model: which variable a column belongs to, and which state a cell names.

`kk.learn`, `kk.evaluate`, `kk.predict_proba` and the commands read tables by these rules.

* The first line of a text file names the columns, unless it holds whole numbers and missing cells
  alone: then it is a row, and columns go by place. The numbers `0,1,2,...` of all variables name
  the columns of a model without names if they cannot be a row of states. The columns of an array go
  by place too, and its numbers always count states.
* A column belongs to the variable of its name. Where the model has no names, `x3` and `3` are
  variable 3, and columns with other names go by place if there are as many as variables.
* A cell that is the name of a state is that state. Other numbers, typed or written, are compared
  with the names by value, so that `1.0` is the state `1`.
* A number counts states, from 0, where no state has a number as its name. A typed number that is
  the name of one state and the position of another is refused.
* Words for states without names are refused.
* None, NaN, -1, an empty text, `?`, `NA` and the like are missing, unless a state has that name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Ints
from kikuchi.core.bins import interval_edges
from kikuchi.core.errors import DataError, suggestion
from kikuchi.core.labels import (
    AmbiguousNumberError,
    names_numbers,
    number_of_text,
    place_of,
    place_of_cell,
    place_of_value,
)
from kikuchi.core.tables import is_missing
from kikuchi.core.text import is_whole
from kikuchi.graphs.factor_graph import FactorGraph

UNSEEN = -1
"""The code of a missing cell."""
_NO_STATE = -2
_WHOLE_NUMBERS = tuple(np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8))
_MISSING_KINDS = ("NAType", "NaTType")  # what pandas has in place of missing values


class BadCellError(ValueError):
    """A cell that is not a state: its row, from 0, the cell, and the reason if it is ambiguous."""

    def __init__(self, row: int, cell: Any, reason: str = "") -> None:
        super().__init__(reason or f"{cell!r} is not a state")
        self.row, self.cell, self.reason = row, cell, reason


def state_of_cell(names: Sequence[str] | None, count: int, cell: Any) -> int | None:
    """Return the number of the state in a cell, -1 for a missing cell, None for anything else.

    `names` are those of the `count` states, None if they have none.

    >>> [state_of_cell(["no", "yes"], 2, cell) for cell in ("yes", "1", 1.0, "NA", -1, "maybe")]
    [1, 1, 1, -1, -1, None]
    >>> [state_of_cell(None, 2, cell) for cell in ("0", 1, True, "yes")]
    [0, 1, 1, None]
    """
    if cell is None or _is_nan(cell) or type(cell).__name__ in _MISSING_KINDS:
        return UNSEEN
    if isinstance(cell, str):
        return _state_of_text(names, count, cell)
    if isinstance(cell, bool | np.bool_) and names is not None:
        return place_of(names, cell)
    if not isinstance(cell, int | float | np.integer | np.floating | np.bool_):
        return None if names is None else place_of_cell(names, str(cell))
    if names is None:
        return _counted(count, float(cell))
    found = place_of_cell(names, cell)
    if cell != UNSEEN or interval_edges(names) is not None:
        return found
    if found is not None:
        raise AmbiguousNumberError("-1 names a state and marks missing cells; give names as texts")
    return UNSEEN


def _state_of_text(names: Sequence[str] | None, count: int, cell: str) -> int | None:
    """The state that a text names; a number in a text is first a name."""
    word = cell.strip()
    for candidate in (cell, word):
        if names is not None and candidate in names:
            return names.index(candidate)
    if is_missing(cell):
        return UNSEEN
    number = number_of_text(word)
    if names is None:
        return None if number is None else _counted(count, number)
    found = place_of(names, word)  # an interval
    if found is None and number is not None:
        found = place_of_value(names, number)
    return UNSEEN if found is None and number == UNSEEN else found


def _counted(count: int, number: float) -> int | None:
    return int(number) if number.is_integer() and UNSEEN <= number < count else None


class StateCoder:
    """Codes the cells of a variable whose `count` states have `names`, and remembers them."""

    def __init__(self, names: Sequence[str] | None, count: int) -> None:
        self.names, self.count = names, count
        self._known: dict[Any, int] = {}
        self._numbers_count = names is None or not (names_numbers(names) or interval_edges(names))

    def codes(self, cells: Any) -> NDArray[np.int32]:
        """Return the state of each cell, -1 where it is missing.

        Raises
        ------
        BadCellError : for the first cell that is not a state, or that may be two.
        """
        if self._numbers_count and getattr(cells, "dtype", None) in _WHOLE_NUMBERS:
            array = np.asarray(cells)  # the usual case: all of them at once
            if not array.size or (array.min() >= UNSEEN and array.max() < self.count):
                return array.astype(np.int32)
        distinct, inverse = _distinct(cells)
        table = np.full(max(len(distinct), 1), _NO_STATE, dtype=np.int32)
        reasons: dict[int, str] = {}
        for k, cell in enumerate(distinct):
            try:
                table[k] = self._code(cell)
            except AmbiguousNumberError as error:
                reasons[k] = str(error)
        out: NDArray[np.int32] = table[inverse]
        bad = np.flatnonzero(out == _NO_STATE)
        if len(bad):
            k = int(inverse[bad[0]])
            raise BadCellError(int(bad[0]), distinct[k], reasons.get(k, ""))
        return out

    def _code(self, cell: Any) -> int:
        key = (type(cell), cell)  # True is 1 to a dict
        try:
            return self._known[key]
        except KeyError:
            found = state_of_cell(self.names, self.count, cell)
            code = self._known[key] = _NO_STATE if found is None else found
            return code
        except TypeError:  # lists and arrays
            return _NO_STATE


def _distinct(cells: Any) -> tuple[list[Any], Ints]:
    """The distinct cells of a column and, for each cell, which of them it is."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "iufb":
        numbers, inverse = np.unique(cells, return_inverse=True)
        return numbers.tolist(), inverse
    if type(cells).__module__.partition(".")[0] == "pandas" and cells.dtype != object:
        import pandas

        codes, found = pandas.factorize(cells, use_na_sentinel=False)
        return list(found), np.asarray(codes, dtype=np.int64)
    items = cells.tolist() if hasattr(cells, "tolist") else list(cells)
    kinds = set(map(type, items))
    mixed = len(kinds) > 1 and not kinds.isdisjoint((bool, np.bool_))  # True is 1 to a dict
    try:
        seen: dict[Any, int] = {}
        if mixed:
            places = [seen.setdefault((type(x), x), len(seen)) for x in items]
            return [cell for _, cell in seen], np.array(places, dtype=np.int64)
        if not kinds.isdisjoint((float, np.float64, np.float32)):
            items = [None if _is_nan(item) else item for item in items]
        places = [seen.setdefault(item, len(seen)) for item in items]
    except TypeError:  # lists or arrays in cells
        return items, np.arange(len(items))
    return list(seen), np.array(places, dtype=np.int64)


def _is_nan(cell: Any) -> bool:
    return isinstance(cell, float | np.floating) and cell != cell


# ---------------------------------------------------------------------- columns


def names_columns(cells: Sequence[str], graph: FactorGraph | None = None) -> bool:
    """Whether the first line of a text file names its columns.

    A line of whole numbers and missing cells alone is a row: its columns go by place. The numbers
    0, 1, ... of all variables of a `graph` without names are the header that pandas writes, if one
    of them is not a state of its variable.

    >>> names_columns(["smoke", "1"]), names_columns(["0", "-1", "NA"])
    (True, False)
    >>> names_columns(["0", "1", "2"], FactorGraph([2, 2, 2], []))
    True
    """
    words = [cell.strip() for cell in cells]
    if not all(word.removeprefix("-").isdecimal() or is_missing(word) for word in words):
        return True
    if graph is None or graph.names is not None or graph.states is not None:
        return False
    numbered = words == [str(v) for v in range(graph.n_variables)]
    return numbered and any(v >= size for v, size in enumerate(graph.cardinalities))


def column_variables(
    graph: FactorGraph, columns: Sequence[str], kept: Sequence[str] = ()
) -> dict[int, int]:
    """Return the variable of each column, by the position of the column.

    Columns in `kept` need not be variables. A column that matches no variable, and two columns for
    one variable, raise a `DataError`.

    >>> column_variables(FactorGraph([2, 2], []), ["x1"]), column_variables(
    ...     FactorGraph([2, 2], []), ["smoke", "lung"]
    ... )
    ({0: 1}, {0: 0, 1: 1})
    """
    used = [k for k, name in enumerate(columns) if name not in kept]
    if graph.names is None:
        for group in (list(range(len(columns))), used):
            worded = not any(is_whole(columns[k].removeprefix("x")) for k in group)
            if worded and len(group) == graph.n_variables:
                return {k: v for v, k in enumerate(group)}
    found = {k: _variable(graph, name) for k, name in enumerate(columns)}
    missing = next((k for k in used if found[k] is None), None)
    if missing is not None:
        known = graph.names or [f"x{v}" for v in range(graph.n_variables)]
        raise DataError(
            f"column '{columns[missing]}' is not a variable of the model; drop it, or rename it: "
            f"{suggestion(columns[missing], known)}"
        )
    places = {k: v for k, v in found.items() if v is not None}
    if len(set(places.values())) < len(places):
        twice = next(v for v in places.values() if list(places.values()).count(v) > 1)
        raise DataError(f"two columns belong to one variable, '{graph.label(twice)}'")
    return places


def _variable(graph: FactorGraph, name: str) -> int | None:
    if graph.names is not None:
        return graph.index(name) if name in graph.names else None
    word = name.removeprefix("x")
    return int(word) if is_whole(word) and int(word) < graph.n_variables else None


def states_of(graph: FactorGraph, v: int) -> StateCoder:
    """Return the coder of the cells of a variable."""
    names = None if graph.states is None else graph.states[v]
    return StateCoder(names, int(graph.cardinalities[v]))
