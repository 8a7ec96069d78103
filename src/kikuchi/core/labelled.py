"""Labelled numbers for other programs: pandas tables, xarray arrays, HTML for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import MissingExtraError, ModelError
from kikuchi.core.extras import install
from kikuchi.core.text import html_text

Rows = Sequence[tuple[str, Sequence[str], Array]]
"""The name of a variable, the names of its states, and a number for each."""


def pandas_module() -> Any:
    """Return pandas, or raise an error with the command that installs it."""
    try:
        import pandas
    except ImportError:
        raise MissingExtraError(f"a table of pandas needs pandas; {install('data')}") from None
    return pandas


def xarray_module() -> Any:
    """Return xarray, or raise an error with the command that installs it."""
    try:
        import xarray
    except ImportError:
        raise MissingExtraError(f"arrays with names need xarray; {install('data')}") from None
    return xarray


class Marginal(np.ndarray[Any, Any]):
    """Probabilities of the states of one variable: an array that can be indexed by state names.

    Arrays computed from it are plain arrays without names.

    >>> coin = Marginal.named(np.array([0.25, 0.75]), "coin", ("heads", "tails"))
    >>> coin["tails"], coin[0].item(), coin.sum().item()
    (0.75, 0.25, 1.0)
    """

    variable: str | None
    states: tuple[str, ...] | None

    @classmethod
    def named(cls, values: Array, variable: str, states: Sequence[str] | None) -> Marginal:
        """Return the values with the name of the variable and the names of its states, if any."""
        marginal = np.asarray(values).view(cls)
        marginal.variable = variable
        marginal.states = None if states is None else tuple(states)
        return marginal

    def __array_finalize__(self, source: Any) -> None:
        self.variable = None
        self.states = None

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if return_scalar else np.asarray(array)

    def __getitem__(self, state: Any) -> Any:
        if not isinstance(state, str):
            return np.asarray(self)[state]
        names = self.states if self.states is not None else tuple(map(str, range(len(self))))
        if state not in names:
            known = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
            raise ModelError(
                f"variable {self.variable} has no state '{state}'; its states are {known}"
            )
        return float(np.asarray(self)[names.index(state)])

    def __reduce__(self) -> Any:
        return Marginal.named, (np.asarray(self), self.variable, self.states)

    def _repr_html_(self) -> str:
        names = self.states if self.states is not None else tuple(map(str, range(len(self))))
        return html_states([(str(self.variable), names, np.asarray(self))])


def long_frame(rows: Rows, column: str) -> Any:
    """Return a DataFrame with one row for each state of each variable."""
    values = [values for *_, values in rows]
    return pandas_module().DataFrame(
        {
            "variable": [name for name, states, _ in rows for _ in states],
            "state": [state for _, states, _ in rows for state in states],
            column: np.concatenate(values) if values else np.zeros(0),
        }
    )


def dataset(rows: Rows, word: str, **attributes: Any) -> Any:
    """Return an xarray Dataset with an array `word(name)` over the dimension `name` for each
    variable.
    """
    xarray = xarray_module()
    arrays = {
        f"{word}({name})": xarray.DataArray(values, dims=[name], coords={name: list(states)})
        for name, states, values in rows
    }
    return xarray.Dataset(arrays, attrs=attributes)


# ---------------------------------------------------------------------- notebooks


def bar(share: float) -> str:
    """Return an HTML bar whose width is a fraction of 100 pixels.

    >>> bar(0.5)
    '<div style="background:#4c78a8;height:0.8em;width:50.0px"></div>'
    """
    return f'<div style="background:#4c78a8;height:0.8em;width:{100 * share:.1f}px"></div>'


def html_states(rows: Rows, column: str = "probability") -> str:
    """Return an HTML table of states, numbers and bars, with variable names next to their first
    states.
    """
    body = []
    for name, states, values in rows:
        for k, (state, value) in enumerate(zip(states, values.tolist(), strict=True)):
            label = f'<th rowspan="{len(states)}">{html_text(name)}</th>' if k == 0 else ""
            body.append(
                f"<tr>{label}<td>{html_text(state)}</td><td>{value:.6g}</td><td>{bar(value)}</td></tr>"
            )
    head = f"<tr><th>variable</th><th>state</th><th>{html_text(column)}</th><th></th></tr>"
    return f"<table><thead>{head}</thead><tbody>{''.join(body)}</tbody></table>"


def html_facts(title: str, facts: Sequence[tuple[str, str]], note: str = "") -> str:
    """Return a small HTML table of labels and values under a title.

    >>> html_facts("A model", [("factors", "3")])
    '<p><b>A model</b></p><table><tbody><tr><th>factors</th><td>3</td></tr></tbody></table>'
    """
    body = "".join(
        f"<tr><th>{html_text(label)}</th><td>{html_text(value)}</td></tr>" for label, value in facts
    )
    end = f"<p><small>{html_text(note)}</small></p>" if note else ""
    return f"<p><b>{html_text(title)}</b></p><table><tbody>{body}</tbody></table>{end}"
