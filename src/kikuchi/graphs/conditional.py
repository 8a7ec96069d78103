"""Named conditional probability tables: input, validation and display."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.errors import ModelError, suggestion
from kikuchi.core.labelled import Marginal, pandas_module
from kikuchi.core.text import html_text, printable

if TYPE_CHECKING:
    import pandas as pd

TOLERANCE = 1e-6  # tolerance of the sum of a row
_SHOWN_ROWS = 64


@dataclass(frozen=True, eq=False, repr=False)
class ConditionalTable:
    """The conditional probability table (CPT) of one variable, p(variable | parents).

    Parameters
    ----------
    variable : str
        Name of the variable.
    parents : tuple[str, ...]
        Names of its parents.
    states : tuple[tuple[str, ...], ...]
        Names of the states of each parent, then of the variable itself.
    table : array
        Probabilities, with one axis for each parent and the variable as the last axis.

    >>> import kikuchi as kk
    >>> wet = kk.example("sprinkler").cpt("wet_grass")
    >>> wet
    p(wet_grass | sprinkler, rain)
    sprinkler  rain  no    yes
    no         no    1     0
    no         yes   0.1   0.9
    yes        no    0.1   0.9
    yes        yes   0.01  0.99
    >>> round(wet[{"sprinkler": "yes", "rain": "no"}]["yes"], 12)
    0.9
    """

    variable: str
    parents: tuple[str, ...]
    states: tuple[tuple[str, ...], ...]
    table: Array

    def __getitem__(self, given: Any) -> Marginal:
        """Return the distribution given the states of all parents: a mapping by name, a state, or a
        tuple.
        """
        where = _cell(self.variable, self.parents, self.states[:-1], given)
        return Marginal.named(self.table[where], self.variable, self.states[-1])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.table, dtype=dtype)

    def to_pandas(self) -> pd.DataFrame:
        """Return a DataFrame with a row for each combination of parent states and a column for each
        state.
        """
        pandas = pandas_module()
        columns = pandas.Index(self.states[-1], name=self.variable)
        rows = self.table.reshape(-1, self.table.shape[-1])
        index = (
            pandas.MultiIndex.from_product(self.states[:-1], names=self.parents)
            if self.parents
            else pandas.Index([""])
        )
        frame: pd.DataFrame = pandas.DataFrame(rows, index=index, columns=columns)
        return frame

    @property
    def title(self) -> str:
        """The table as a formula, such as `p(lung | smoke)`."""
        given = f" | {', '.join(self.parents)}" if self.parents else ""
        return f"p({self.variable}{given})"

    def cells(self, digits: int = 6) -> list[list[str]]:
        """Return the table as strings: names of the parents and states, then a list for each row.

        Probabilities have `digits` significant digits.

        >>> import kikuchi as kk
        >>> kk.example("asia").cpt("tub").cells()
        [['asia', 'no', 'yes'], ['no', '0.99', '0.01'], ['yes', '0.95', '0.05']]
        """
        return [[*self.parents, *self.states[-1]], *self._rows(digits)]

    def _rows(self, digits: int = 6) -> list[list[str]]:
        combinations = itertools.product(*self.states[:-1])
        probabilities = self.table.reshape(-1, self.table.shape[-1])
        return [
            [*given, *(f"{round(p, 12):.{digits}g}" for p in row)]
            for given, row in zip(combinations, probabilities[:_SHOWN_ROWS].tolist(), strict=False)
        ]

    @property
    def _hidden_rows(self) -> int:
        return max(len(self.table.reshape(-1, self.table.shape[-1])) - _SHOWN_ROWS, 0)

    def __repr__(self) -> str:
        lines = self.cells()
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [
            "  ".join(f"{word:<{w}}" for word, w in zip(line, widths, strict=True)).rstrip()
            for line in lines
        ]
        more = [f"... and {self._hidden_rows} more rows"] if self._hidden_rows else []
        return "\n".join(printable(line) for line in [self.title, *text, *more])

    def _repr_html_(self) -> str:
        n = len(self.parents)
        head = "".join(f"<th>{html_text(name)}</th>" for name in self.parents)
        head += "".join(
            f"<th>{html_text(self.variable)} = {html_text(state)}</th>" for state in self.states[-1]
        )
        body = "".join(
            "<tr>"
            + "".join(f"<th>{html_text(word)}</th>" for word in line[:n])
            + "".join(_shaded_cell(word) for word in line[n:])
            + "</tr>"
            for line in self._rows()
        )
        note = f"; {self._hidden_rows} more rows not shown" if self._hidden_rows else ""
        return (
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
            f"<p><small>{html_text(self.title)}{note}</small></p>"
        )


def _shaded_cell(text: str) -> str:
    share = min(max(float(text), 0.0), 1.0)
    return f'<td style="background:rgba(0,114,178,{0.45 * share:.2f})">{text}</td>'


# ---------------------------------------------------------------------- user input


def conditional_table(
    variable: str,
    parents: Sequence[str],
    states: Sequence[Sequence[str]],
    given: ArrayLike | Mapping[Any, Any],
) -> Array:
    """Build the table of a variable from an array or cell by cell, and check that rows sum to 1.

    Parameters
    ----------
    variable : str
        Name of the variable, for messages.
    parents : Sequence[str]
        Names of its parents.
    states : Sequence[Sequence[str]]
        Names of the states of each parent, then of the variable itself.
    given : array-like or Mapping[Any, Any]
        An array with one axis for each parent and the variable as the last axis; one row for each
        combination of parent states, the last parent running fastest; or a mapping with one entry
        for each combination of parent states. A key is a state, a tuple of states in the order of
        the parents, or a string such as `"smoke=yes, tub=no"`. An entry is a list of probabilities,
        a mapping {state: probability} in which one state may be omitted, or, for variables with two
        states, the probability of the second.

    >>> conditional_table("wet", ["rain"], [["no", "yes"]] * 2, {"no": 0.1, "yes": {"yes": 0.75}})
    array([[0.9 , 0.1 ],
           [0.25, 0.75]])
    """
    shape = tuple(len(names) for names in states)
    if isinstance(given, Mapping):
        table = _from_cells(variable, parents, states, given)
    else:
        table = _from_array(variable, parents, shape, given)
    _check_rows(variable, parents, states, table)
    return table


def _from_array(
    variable: str, parents: Sequence[str], shape: tuple[int, ...], given: ArrayLike
) -> Array:
    what = _formula(variable, parents)
    table = _numbers(what, given)
    if table.shape == () and shape == (2,):
        table = np.array([1.0 - float(table), float(table)])
    rows = (int(np.prod(shape[:-1])), shape[-1])
    if table.size != int(np.prod(shape)) or (table.ndim > 1 and table.shape not in (shape, rows)):
        turned = table.shape in (shape[::-1], (shape[-1], *shape[:-1]), rows[::-1])
        hint = f" (transposed? {variable} itself is the last axis)" if turned else ""
        raise ModelError(
            f"{what}: the table has shape {table.shape}, but {_axes(variable, parents, shape)} "
            f"needs {shape}{hint}"
        )
    return table.reshape(shape)


def _numbers(what: str, given: Any, shape: tuple[int, ...] | None = None) -> Array:
    """Convert the user's numbers to an array, of any shape or of a given one."""
    try:
        numbers = np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{what}: the table must contain numbers ({error})") from None
    if shape is not None and numbers.shape != shape:
        raise ModelError(f"{what}: one probability is needed for each state, got {given!r:.60}")
    return numbers


def _axes(variable: str, parents: Sequence[str], shape: tuple[int, ...]) -> str:
    names = [*parents, variable]
    return ", ".join(f"{name} ({n} states)" for name, n in zip(names, shape, strict=True))


def _from_cells(
    variable: str,
    parents: Sequence[str],
    states: Sequence[Sequence[str]],
    given: Mapping[Any, Any],
) -> Array:
    own = states[-1]
    if not parents:
        return _distribution(variable, _formula(variable, parents), own, given)
    table = np.full([len(names) for names in states], np.nan)
    for key, entry in given.items():
        where = _cell(variable, parents, states[:-1], key)
        what = _formula(variable, parents, [states[k][i] for k, i in enumerate(where)])
        if not np.isnan(table[where]).all():
            raise ModelError(f"{what} is defined twice; give every combination of parents once")
        table[where] = _distribution(variable, what, own, entry)
    missing = np.argwhere(np.isnan(table[..., 0]))
    if len(missing):
        words = [states[k][i] for k, i in enumerate(missing[0])]
        raise ModelError(
            f"{_formula(variable, parents, words)} is missing; give every combination of parents"
        )
    return table


def _cell(
    variable: str, parents: Sequence[str], states: Sequence[Sequence[str]], key: Any
) -> tuple[int, ...]:
    """Return the index of a combination of parent states."""
    formula = _formula(variable, parents)
    if isinstance(key, str) and "=" in key and (len(parents) != 1 or key not in states[0]):
        pairs = [part.partition("=") for part in key.split(",")]
        key = {name.strip(): state.strip() for name, _, state in pairs}
    if isinstance(key, Mapping):
        unknown = [name for name in key if name not in parents]
        if unknown:
            hint = suggestion(str(unknown[0]), parents)
            raise ModelError(f"{formula}: {unknown[0]!r} is not a parent of {variable}; {hint}")
        missing = [name for name in parents if name not in key]
        if missing:
            raise ModelError(f"{formula}: the state of the parent {missing[0]!r} is missing")
        words = [key[name] for name in parents]
    else:
        words = list(key) if isinstance(key, tuple | list) else [key]
    if len(words) != len(parents):
        raise ModelError(
            f"{formula}: {key!r} gives {len(words)} states for {len(parents)} parents; give one "
            "state for each, as a tuple in this order or as 'parent=state, ...'"
        )
    return tuple(
        _state(f"{formula}: parent {name}", labels, word)
        for name, labels, word in zip(parents, states, words, strict=True)
    )


def _state(what: str, labels: Sequence[str], word: Any) -> int:
    text = word if isinstance(word, str) else str(word)
    if text in labels:
        return list(labels).index(text)
    raise ModelError(f"{what} has no state {word!r}; {suggestion(text, labels)}")


def _distribution(variable: str, what: str, own: Sequence[str], entry: Any) -> Array:
    """The probabilities of one row."""
    if isinstance(entry, Mapping):
        row = np.full(len(own), np.nan)
        for state, p in entry.items():
            row[_state(f"{what}: variable {variable}", own, state)] = _numbers(what, p, ())
        left_out = np.flatnonzero(np.isnan(row)).tolist()
        if len(left_out) > 1:
            names = ", ".join(own[k] for k in left_out)
            raise ModelError(f"{what}: no probability for {names}; only one may be omitted")
        row[left_out] = 1.0 - np.nansum(row)
        return row
    row = _numbers(what, entry)
    if row.ndim == 0:
        if len(own) != 2:
            raise ModelError(
                f"{what}: a single number is allowed only for two states, and {variable} has "
                f"{len(own)}; "
                "give a list of probabilities"
            )
        return np.array([1.0 - float(row), float(row)])
    if row.shape != (len(own),):
        raise ModelError(f"{what}: {variable} has {len(own)} states, got {row.size} probabilities")
    return row


def _check_rows(
    variable: str, parents: Sequence[str], states: Sequence[Sequence[str]], table: Array
) -> None:
    bad = np.argwhere(~(np.isfinite(table) & (table >= -0.0)))
    if len(bad):
        words = [states[k][i] for k, i in enumerate(bad[0][:-1])]
        value = table[tuple(bad[0])]
        raise ModelError(
            f"{_formula(variable, parents, words)}: {value:g} is not a probability of "
            f"{states[-1][bad[0][-1]]!r}"
        )
    sums = table.sum(axis=-1)
    wrong = np.argwhere(np.abs(sums - 1.0) > TOLERANCE)
    if not len(wrong):
        return
    words = [states[k][i] for k, i in enumerate(wrong[0])]
    first = np.abs(table.sum(axis=0) - 1.0)
    turned = table.ndim > 1 and table.shape[0] == table.shape[-1] and (first <= TOLERANCE).all()
    hint = f" Transposed? {variable} itself is the last axis" if turned else ""
    raise ModelError(
        f"{_formula(variable, parents, words)} sums to {sums[tuple(wrong[0])]:.9g}, not to 1.{hint}"
    )


def _formula(variable: str, parents: Sequence[str], words: Sequence[str] | None = None) -> str:
    if not parents:
        return f"p({variable})"
    given = (
        parents
        if words is None
        else [f"{name} = {word}" for name, word in zip(parents, words, strict=False)]
    )
    return f"p({variable} | {', '.join(given)})"
