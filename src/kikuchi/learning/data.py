"""`Data`: rows of observed states, some of them missing, each with a weight.

States are whole numbers from 0; a missing cell is -1 and counts as hidden. Equal rows may be merged
into one with the sum of their weights, so that a learner's cost follows the distinct rows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import DataError
from kikuchi.core.tables import is_missing
from kikuchi.core.text import html_text
from kikuchi.graphs.cells import BadCellError, column_variables, states_of
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.real_numbers import (
    MISSING,
    CellError,
    IntervalColumn,
    binned_rows,
    is_real_number,
    real_number,
    refuse_real_numbers,
)

_WHOLE = re.compile(r"\+?\d+(\.0*)?")  # also as tables with gaps are written by pandas: 1.0
_MOST_STATES = 10**6  # of a column; a larger number is an identifier and no state
_MOST_STATES_TOGETHER = 10**7
_ROWS_SHOWN, _COLUMNS_SHOWN = 5, 20  # in notebooks


@dataclass(frozen=True, eq=False)
class Data:
    """Rows over variables that may have names, as may their states.

    `states` are numbers of states (rows, variables) with -1 where a cell is missing, `weights` how
    often each row counts, `cardinalities` the numbers of states, `names` and `state_names` their
    names.

    >>> data = Data.of([[0, 1], [0, 1], [1, -1]])
    >>> data.n_rows, data.complete, data.distinct().weights.tolist()
    (3, False, [2.0, 1.0])
    """

    states: NDArray[np.int32]
    weights: Array
    cardinalities: Ints
    names: tuple[str, ...] | None = None
    state_names: tuple[tuple[str, ...], ...] | None = None

    # ------------------------------------------------------------------ making

    @classmethod
    def of(
        cls,
        rows: Data | ArrayLike | Mapping[str, Any],
        graph: FactorGraph | None = None,
        *,
        weights: ArrayLike | None = None,
        bins: int | None = None,
    ) -> Data:
        """Data from `rows`: an array (rows by variables), columns by name, or a data frame;
        `weights` are those of the rows (1 if None).

        `bins` divides columns of real numbers, and of more than `bins` different whole numbers,
        into so many quantile bins, whose edges are the names of the states: `<1.2`, `1.2..3.4`,
        `>=3.4`. A model with such states takes numbers as evidence and in later rows.

        >>> Data.of({"height": [1.61, 1.74, 1.69, 1.88]}, bins=2).state_names
        (('<1.7', '>=1.7'),)

        With a `graph` the columns are matched to its variables by name, or by place if there are as
        many as variables; variables without a column are hidden in every row. Without one, the
        states of a column are those that occur; `None` is one of them in a column of words.

        Numbers in an array count states, from 0. Cells of columns with names are read as in
        `predict_proba`: they are names of states, and numbers count states only where no state has
        a number as its name. A number that is the name of one state and the position of another is
        refused: give names as texts.
        """
        if bins is not None:
            rows = binned_rows(rows, graph, bins)
        if isinstance(rows, Data):
            return rows if graph is None else rows.matched(graph)
        if isinstance(rows, Mapping) or hasattr(rows, "columns"):
            found = _from_columns(rows, graph)
        else:
            found = _from_array(np.asarray(rows), graph)
        if weights is None:
            return found
        given = np.asarray(weights, dtype=np.float64)
        if given.shape != (found.n_rows,) or not np.all(np.isfinite(given)) or np.any(given < 0):
            raise DataError(
                f"weights: one finite number from 0 up for each of the {found.n_rows} rows is "
                f"needed, got shape {given.shape}"
            )
        return Data(found.states, given, found.cardinalities, found.names, found.state_names)

    def matched(self, graph: FactorGraph) -> Data:
        """The same rows with columns and states as `graph` numbers them."""
        if (
            self.names == graph.names
            and self.state_names == graph.states
            and np.array_equal(self.cardinalities, graph.cardinalities)
        ):
            return self
        named = self.names is not None and self.state_names is None and graph.states is not None
        if (
            self.n_variables == graph.n_variables
            and self.names in (None, graph.names)
            and self.state_names in (None, graph.states)
            and not named  # its numbers may be names of states
        ):
            _check_states(self.states, graph)
            cards = graph.cardinalities.astype(np.int64)
            return Data(self.states, self.weights, cards, graph.names, graph.states)
        if self.names is None or graph.names is None:
            return Data.of(self.states, graph, weights=self.weights)
        columns = {
            name: _worded(
                self.states[:, k], None if self.state_names is None else self.state_names[k]
            )
            for k, name in enumerate(self.names)
        }
        return Data.of(columns, graph, weights=self.weights)

    def like(self, states: NDArray[np.int32], weights: Array) -> Data:
        """Other rows, `states` (rows, variables) with -1 for unknown and their `weights`, over the
        same variables.
        """
        return Data(states, weights, self.cardinalities, self.names, self.state_names)

    # ------------------------------------------------------------------ asking

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.states)

    @property
    def n_variables(self) -> int:
        """Number of variables, hidden ones included."""
        return len(self.cardinalities)

    @cached_property
    def total(self) -> float:
        """Sum of the weights."""
        return float(self.weights.sum())

    @cached_property
    def complete(self) -> bool:
        """Whether no cell is missing."""
        return self.states.size == 0 or bool(self.states.min() >= 0)

    def require_complete(self, what: str) -> None:
        """Raise a `DataError` that names the first missing cell; `what` needs complete rows."""
        if self.complete:
            return
        row, v = (int(x) for x in np.argwhere(self.states < 0)[0])
        name = self.names[v] if self.names else v
        rows = int(np.count_nonzero((self.states < 0).any(axis=1)))
        raise DataError(
            f"data: {what} needs complete rows, but cells are missing in {rows} of {self.n_rows} "
            f"rows (first: row {row}, column {name}); drop these rows or fill the cells. A state "
            "that is called NA, nan, null or ? is read as missing: rename it, or make the column a "
            "pandas.Categorical"
        )

    @cached_property
    def hidden(self) -> Ints:
        """Variables that no row observes."""
        return np.flatnonzero(np.all(self.states < 0, axis=0))

    def distinct(self) -> Data:
        """Each different row once, with the weights of its copies added; in order of appearance."""
        return self._distinct

    @cached_property
    def _distinct(self) -> Data:
        first, _, sums = merged_rows(self.states, self.weights, self.cardinalities)
        if len(first) == self.n_rows:
            return self
        return self.like(self.states[first], sums)

    def patterns(self) -> Iterator[tuple[Ints, Ints]]:
        """Rows that observe the same variables, together: (observed variables, rows)."""
        seen = self.states >= 0
        packed = np.packbits(seen, axis=1)
        _, first, where = np.unique(packed, axis=0, return_index=True, return_inverse=True)
        where = where.ravel()
        for k in np.argsort(first, kind="stable"):
            yield np.flatnonzero(seen[first[k]]), np.flatnonzero(where == k)

    def counts(self, scope: Sequence[int]) -> Array:
        """Weight of each joint state of the variables `scope`, by number, over the rows that
        observe them all.
        """
        shape = tuple(int(self.cardinalities[v]) for v in scope)
        size = math.prod(shape)
        columns = self.states[:, list(scope)]
        seen = np.all(columns >= 0, axis=1)
        places = (
            np.ravel_multi_index(tuple(columns[seen].T), shape)
            if scope
            else np.zeros(int(seen.sum()), dtype=np.int64)
        )
        return np.bincount(places, self.weights[seen], size).astype(np.float64).reshape(shape)

    def factor_counts(self, graph: FactorGraph) -> Array:
        """Counts of the scope of every factor of the `graph`, laid out as `graph.log_tables`.

        Rows count for the factors whose variables they all observe.
        """
        from kikuchi.learning.likelihood.kernels.rows import FactorLayout, count_factors

        cards = graph.cardinalities.astype(np.int64)
        layout = FactorLayout(cards, graph.scopes, graph.scope_offsets, graph.table_offsets)
        counts = np.zeros(graph.log_tables.size)
        count_factors(
            np.ascontiguousarray(self.states),
            np.arange(self.n_rows),
            self.weights,
            np.arange(graph.n_factors),
            layout,
            counts,
        )
        return counts

    def __repr__(self) -> str:
        missing = int(np.count_nonzero(self.states < 0))
        return f"Data({self.n_rows} rows, {self.n_variables} variables, {missing} cells missing)"

    def _repr_html_(self) -> str:
        """The first rows, with the names of variables and states."""
        names = self.names or tuple(map(str, range(self.n_variables)))
        head = "".join(f"<th>{html_text(name)}</th>" for name in names[:_COLUMNS_SHOWN])
        body = []
        for row in self.states[:_ROWS_SHOWN].tolist():
            cells = [self._word(v, state) for v, state in enumerate(row[:_COLUMNS_SHOWN])]
            body.append("<tr>" + "".join(f"<td>{html_text(c)}</td>" for c in cells) + "</tr>")
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
        return f"<p><b>{html_text(repr(self))}</b></p>{table}"

    def _word(self, variable: int, state: int) -> str:
        """A cell as it was given; nothing where it is missing."""
        if state < 0:
            return ""
        return str(state) if self.state_names is None else self.state_names[variable][state]


def merged_rows(
    states: NDArray[np.int32],
    weights: Array,
    cards: Ints | None = None,
) -> tuple[Ints, Ints, Array]:
    """Different rows in order of appearance: a row of each, the number of each row, their weights.

    With `cards`, the numbers of states, rows over few variables are merged twice as fast.

    >>> first, number, sums = merged_rows(np.array([[1], [0], [1]], np.int32), np.ones(3))
    >>> first.tolist(), number.tolist(), sums.tolist()
    ([0, 1], [0, 1, 0], [2.0, 1.0])
    """
    from kikuchi.learning.likelihood.kernels.rows import distinct_few, distinct_rows

    n = len(states)
    states = np.ascontiguousarray(states)
    first, where = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    sums = np.zeros(n)
    possible = math.inf if cards is None else float(np.prod(cards + 1.0))
    if cards is not None and possible <= n:
        slots = np.full(int(possible), -1, dtype=np.int64)
        strides = np.cumprod(np.concatenate([[1], cards[:-1] + 1])).astype(np.uint64)
        found = distinct_few(states, weights, strides, slots, first, where, sums)
    else:
        slots = np.full(2 ** max(2 * n, 2).bit_length(), -1, dtype=np.int64)
        found = distinct_rows(states, weights, slots, first, where, sums)
    return first[:found].copy(), where, sums[:found].copy()


# ---------------------------------------------------------------------- arrays


def _from_array(rows: NDArray[Any], graph: FactorGraph | None) -> Data:
    if rows.ndim != 2:
        got = f"shape {rows.shape}" if rows.ndim else f"{rows.item()!r:.60}"
        hint = "; kk.read_data reads a file" if rows.dtype.kind == "U" and not rows.ndim else ""
        raise DataError(f"data: a table of rows by variables is needed, got {got}{hint}")
    if rows.shape[0] == 0:
        raise DataError("data: there are no rows; give at least one")
    if rows.shape[1] == 0 and (graph is None or graph.n_variables):
        raise DataError("data: there are no columns; give at least one")
    if graph is not None and rows.shape[1] != graph.n_variables:
        raise DataError(
            f"data: {rows.shape[1]} columns for {graph.n_variables} variables; give one column "
            "for each, or columns with the names of the variables"
        )
    words: list[tuple[str, ...] | None] = [None] * rows.shape[1]
    whole = _whole_states(rows, graph)
    if whole is not None:  # the usual case, all columns at once
        return _finished(whole, graph, None, words, checked=True)
    states = np.empty(rows.shape, dtype=np.int32)
    for k in range(rows.shape[1]):
        if graph is None or rows.dtype.kind in "iufb":  # numbers in an array count states
            label = f"column {k}" if graph is None else f"variable {graph.label(k)}"
            states[:, k], words[k] = _coded(rows[:, k], label)
        else:
            states[:, k] = _coded_for(graph, k, rows[:, k], f"variable {graph.label(k)}")
    return _finished(states, graph, None, words)


def _whole_states(rows: NDArray[Any], graph: FactorGraph | None) -> NDArray[np.int32] | None:
    """A table of whole numbers as states; None if it is another kind, or one is out of range."""
    if rows.dtype.kind not in "iu" or rows.shape[1] == 0 or rows.max(initial=0) > _MOST_STATES:
        return None
    from kikuchi.learning.likelihood.kernels.rows import read_states

    limits = np.full(rows.shape[1], _MOST_STATES, dtype=np.int64)
    if graph is not None:
        limits[:] = graph.cardinalities
    states = np.empty(rows.shape, dtype=np.int32)
    fit = rows.dtype in (np.int32, np.int64) and rows.flags.c_contiguous and rows.flags.writeable
    whole = rows if fit else np.array(rows, dtype=np.int64, order="C")
    return states if read_states(whole, limits, states) else None


def _from_columns(rows: Any, graph: FactorGraph | None) -> Data:
    columns = {
        str(name): rows[name]
        for name in (rows.keys() if isinstance(rows, Mapping) else rows.columns)
    }
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1 or lengths == {0}:
        raise DataError(
            "data: there are no rows"
            if lengths <= {0}
            else f"data: columns of different lengths {sorted(lengths)}"
        )
    n_rows = lengths.pop()
    names = tuple(columns) if graph is None else graph.names
    places = (
        dict(enumerate(range(len(columns))))
        if graph is None
        else column_variables(graph, list(columns))
    )
    width = len(columns) if graph is None else graph.n_variables
    states = np.full((n_rows, width), MISSING, dtype=np.int32)
    words: list[tuple[str, ...] | None] = [None] * width
    for place, (name, column) in enumerate(columns.items()):
        k = places[place]
        if isinstance(column, IntervalColumn):
            states[:, k], words[k] = column.codes, column.words
        elif graph is not None:
            states[:, k] = _coded_for(graph, k, column, f"column {name}")
        elif (array := np.asarray(column)).dtype.kind == "b":
            states[:, k], words[k] = array, ("False", "True")
        else:
            states[:, k], words[k] = _coded(array, f"column {name}", _categories(column))
    return _finished(states, graph, names, words)


def _coded_for(graph: FactorGraph, v: int, column: Any, label: str) -> NDArray[np.int32]:
    """Return the cells of a column as states of a variable of the graph."""
    try:
        return states_of(graph, v).codes(column)
    except BadCellError as error:
        raise CellError(error.row, _fault(graph, v, error, label)) from None


def _fault(graph: FactorGraph, v: int, error: BadCellError, label: str) -> str:
    """What is wrong with a cell that is not a state, and what the states are."""
    if error.reason:
        return f"{label}: {error.reason}"
    if is_real_number(error.cell):
        return real_number(label, error.cell)
    if graph.states is None:
        count = int(graph.cardinalities[v])
        return (
            f"{label}: {error.cell!r} is not a state; the model has no names of its {count} "
            f"states: write numbers from 0 to {count - 1}"
        )
    return f"{label}: {error.cell!r} is not a state; known: {', '.join(graph.states[v])}"


def _categories(column: Any) -> tuple[str, ...]:
    """Return the categories of a column of pandas that are texts: each is a state."""
    found = getattr(getattr(column, "dtype", None), "categories", ())
    return tuple(word for word in found if isinstance(word, str))


def _coded(
    column: NDArray[Any], label: str, declared: Sequence[str] = ()
) -> tuple[NDArray[np.int32], tuple[str, ...] | None]:
    """A column as state numbers, and the words that the states have if it held words.

    `declared` are words that are states even if they look like missing cells.
    """
    if column.dtype.kind in "iub":
        return _numbers(column, label), None
    if column.dtype.kind == "f":
        whole = np.where(np.isnan(column), MISSING, column)
        broken = np.flatnonzero(whole != np.rint(whole))
        if len(broken):
            raise CellError(int(broken[0]), real_number(label, column[broken[0]]))
        return _numbers(whole, label), None
    cells = column.tolist()
    texts = [_text_of(x, declared) for x in cells]
    if not all(map(_WHOLE.fullmatch, filter(None, set(texts)))):
        texts = [_text_of(x, (*declared, "None")) for x in cells]  # a word among other words
    if not declared:
        refuse_real_numbers(texts, label)
    number, words = _words(sorted(set(texts)))
    codes = np.array([number.get(text, MISSING) for text in texts], dtype=np.int64)
    return _numbers(codes, label), words


def _numbers(column: NDArray[Any], label: str) -> NDArray[np.int32]:
    out = np.flatnonzero((column < MISSING) | (column > _MOST_STATES))
    if len(out):
        raise CellError(
            int(out[0]),
            f"{label}: {column[out[0]]} is not a state; states are whole numbers from 0 to "
            f"{_MOST_STATES}, and -1 is missing",
        )
    return column.astype(np.int32)


def _text_of(value: Any, known: Sequence[str]) -> str:
    """A cell as text, "" if it is missing; a state that is named like a missing cell is a state."""
    if value is None or type(value).__name__ == "NAType" or value != value:  # None, NaN, NaT
        return ""
    if isinstance(value, str) and value in known:
        return value
    word = str(value).strip()
    if word in known or not (is_missing(word) or word == "-1"):
        return word
    return "" if isinstance(value, str) else word


def _words(values: list[str]) -> tuple[dict[str, int], tuple[str, ...] | None]:
    """Numbers of the words of a column ("" is missing), and the words if they name states.

    Whole numbers are numbers of states; other words are states in their order.
    """
    present = [value for value in values if value]
    if all(map(_WHOLE.fullmatch, present)):
        return {value: int(min(float(value), 2.0 * _MOST_STATES)) for value in present}, None
    return {value: k for k, value in enumerate(present)}, tuple(present)


def _finished(
    states: NDArray[np.int32],
    graph: FactorGraph | None,
    names: tuple[str, ...] | None,
    words: list[tuple[str, ...] | None],
    *,
    checked: bool = False,
) -> Data:
    weights = np.ones(len(states))
    if graph is not None:
        if not checked:
            _check_states(states, graph)
        return Data(
            states, weights, graph.cardinalities.astype(np.int64), graph.names, graph.states
        )
    cards = np.maximum(states.max(axis=0, initial=0).astype(np.int64) + 1, 1)
    cards = np.array([len(w) if w else c for w, c in zip(words, cards, strict=True)])
    if cards.sum() > _MOST_STATES_TOGETHER:
        raise DataError(f"data: the columns have {cards.sum()} states; number them from 0 up")
    named = None
    if any(words):
        named = tuple(
            w or tuple(map(str, range(int(c)))) for w, c in zip(words, cards, strict=True)
        )
    return Data(states, weights, cards.astype(np.int64), names, named)


def _check_states(states: NDArray[np.int32], graph: FactorGraph) -> None:
    cards = graph.cardinalities.astype(np.int64)
    if states.size == 0 or states.max() < cards.min():  # far faster than column by column
        return
    if np.all(states.max(axis=0) < cards):
        return
    row, v = (int(x) for x in np.argwhere(states >= cards)[0])
    raise CellError(
        row,
        f"variable {graph.label(v)}: state {int(states[row, v])}, but the variable has states "
        f"0..{int(graph.cardinalities[v]) - 1}",
    )


def _worded(column: NDArray[np.int32], words: Sequence[str] | None) -> NDArray[Any]:
    if words is None:
        return column
    return np.array(["" if k < 0 else words[k] for k in column.tolist()], dtype=object)
