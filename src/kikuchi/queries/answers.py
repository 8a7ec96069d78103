"""Named results of queries: distributions of variables, joint distributions, and their portable
forms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kikuchi.core.answer import attributes
from kikuchi.core.arrays import Array
from kikuchi.core.errors import KikuchiError, ModelError, suggestion
from kikuchi.core.labelled import (
    bar,
    dataset,
    html_states,
    long_frame,
    pandas_module,
    xarray_module,
)
from kikuchi.core.labels import required_place
from kikuchi.core.text import html_text, printable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from kikuchi.graphs.factor_graph import FactorGraph

_SHOWN = 12  # variables in a terminal
_SHOWN_IN_HTML = 40
_SHOWN_STATES = 12


class StateDistribution(Mapping[str, float]):
    """Probabilities of the states of one variable, by the name or the number of a state.

    >>> coin = StateDistribution("coin", ("heads", "tails"), np.array([0.25, 0.75]))
    >>> coin["tails"], coin[0], coin.most_probable
    (0.75, 0.25, 'tails')
    >>> coin
    coin: heads 0.25, tails 0.75
    """

    __slots__ = ("name", "states", "values_array")

    def __init__(self, name: str, states: tuple[str, ...], values: Array) -> None:
        self.name = name
        self.states = states
        self.values_array = values

    def __getitem__(self, state: str | int) -> float:
        return float(
            self.values_array[
                required_place(f"variable {self.name}", self.states, state, ModelError)
            ]
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.states)

    def __len__(self) -> int:
        return len(self.states)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.values_array, dtype=dtype)

    @property
    def most_probable(self) -> str:
        """The state of the greatest probability; of equals the first."""
        return self.states[int(np.argmax(self.values_array))]

    def __repr__(self) -> str:
        pairs = zip(self.states, self.values_array.tolist(), strict=True)
        return printable(f"{self.name}: " + _states_text(list(pairs)))

    def _repr_html_(self) -> str:
        return html_states([(self.name, self.states, self.values_array)])


def _asked_name(variable: str | int, names: Sequence[str]) -> str:
    """The name of a variable; of one without a name the number, which `x3` stands for too."""
    name = str(variable)
    number = name.removeprefix("x")
    return number if name not in names and number.isdecimal() and number in names else name


def _states_text(pairs: Sequence[tuple[str, float]]) -> str:
    shown = ", ".join(f"{state} {value:.6g}" for state, value in pairs[:_SHOWN_STATES])
    more = len(pairs) - _SHOWN_STATES
    return shown + (f", and {more} more states" if more > 0 else "")


@dataclass(frozen=True, eq=False)
class QueryAnswer:
    """The attributes of a query result besides its probabilities.

    `log_evidence` is the logarithm of the probability of the evidence (of its weight, in a model
    that is not normalised), None where the method has none; `exact` is True if the method is exact;
    `converged` is False if an approximation did not converge, and `warnings` contains details.
    """

    method: str = field(kw_only=True)
    log_evidence: float | None = field(kw_only=True, default=None)
    exact: bool = field(kw_only=True, default=True)
    converged: bool = field(kw_only=True, default=True)
    warnings: tuple[str, ...] = field(kw_only=True, default=())

    def _about(self) -> str:
        words = [self.method, "exact" if self.exact else "approximate"]
        if not self.converged:
            words.append("not converged")
        if self.log_evidence is not None:
            words.append(f"log evidence {self.log_evidence:.6f}")
        return ", ".join(words)

    def _facts(self) -> dict[str, Any]:
        told = attributes(self, "method exact converged log_evidence")
        return {**told, "warnings": list(self.warnings)}


@dataclass(frozen=True, eq=False, repr=False)
class Distributions(QueryAnswer, Mapping[str, StateDistribution]):
    """The distribution of each queried variable, by name (or by number as a string).

    `names` and `states` are those of the variables, `values_by_variable` their probabilities;
    `graph` is the model and `observed` the evidence as numbers, for `plot`; `method` is the
    specification string of the method, `log_evidence` the log-probability of the evidence if known;
    `exact`, `converged` and `warnings` describe the quality of the result.

    >>> import kikuchi as kk
    >>> answer = kk.query(kk.example("asia"), ["lung", "bronc"], evidence={"dysp": "yes"})
    >>> round(answer["bronc"]["yes"], 4)
    0.834
    >>> answer
    lung   no 0.897241, yes 0.102759
    bronc  no 0.166033, yes 0.833967
    (jt, exact, log evidence -0.830180)
    """

    names: tuple[str, ...]
    states: tuple[tuple[str, ...], ...]
    values_by_variable: tuple[Array, ...]
    graph: FactorGraph | None = field(kw_only=True, default=None)
    observed: Mapping[int, int] = field(kw_only=True, default_factory=dict)

    def plot(self, title: str | None = None) -> Figure:
        """The network as `kk.show` draws it, with bars for the variables of the answer.

        Of a model with more than 100 variables, those of the answer and of the evidence are drawn.
        `title` is text above the picture.

        >>> import kikuchi as kk
        >>> answer = kk.query(kk.example("asia"), "lung", evidence={"xray": "yes"})
        >>> figure = answer.plot()
        >>> "48.9%" in [text.get_text() for text in figure.axes[0].texts]
        True
        """
        from kikuchi.graphs.picture import network_picture
        from kikuchi.plots.network import MOST_NODES

        if self.graph is None:
            raise KikuchiError("this answer belongs to no model that can be drawn")
        asked = [self.graph.index(name) for name in self.names]
        shown = list(dict.fromkeys([*asked, *self.observed]))
        return network_picture(
            self.graph,
            dict(zip(asked, self.values_by_variable, strict=True)),
            observed=self.observed,
            variables=shown if self.graph.n_variables > MOST_NODES else None,
            title=title,
        )

    def __getitem__(self, variable: str | int) -> StateDistribution:
        name = _asked_name(variable, self.names)
        if name not in self.names:
            raise ModelError(f"the answer has no variable '{name}'; {suggestion(name, self.names)}")
        k = self.names.index(name)
        return StateDistribution(name, self.states[k], self.values_by_variable[k])

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: probabilities by names of variables and of states."""
        return {
            **self._facts(),
            "distributions": {
                name: dict(zip(states, values.tolist(), strict=True))
                for name, states, values in self._rows()
            },
        }

    def to_pandas(self) -> pd.DataFrame:
        """One row for each state of each variable: columns variable, state and probability."""
        frame: pd.DataFrame = long_frame(self._rows(), "probability")
        return frame

    def to_xarray(self) -> Any:
        """A data set with one array for each variable, over a dimension of the same name."""
        return dataset(self._rows(), "p", method=self.method)

    def _rows(self) -> list[tuple[str, tuple[str, ...], Array]]:
        return list(zip(self.names, self.states, self.values_by_variable, strict=True))

    def __repr__(self) -> str:
        rows = self._rows()
        width = max((len(name) for name, *_ in rows[:_SHOWN]), default=0)
        lines = [
            f"{name:<{width}}  {_states_text(list(zip(states, values.tolist(), strict=True)))}"
            for name, states, values in rows[:_SHOWN]
        ]
        if len(rows) > _SHOWN:
            lines.append(f"... and {len(rows) - _SHOWN} more variables")
        return "\n".join(printable(line) for line in [*lines, f"({self._about()})"])

    def _repr_html_(self) -> str:
        rows = self._rows()
        more = len(rows) - _SHOWN_IN_HTML
        note = self._about() + (f"; {more} more variables not shown" if more > 0 else "")
        return html_states(rows[:_SHOWN_IN_HTML]) + f"<p><small>{html_text(note)}</small></p>"


@dataclass(frozen=True, eq=False, repr=False)
class JointDistribution(QueryAnswer):
    """The joint distribution of some variables: `table` has an axis for each, in the order asked.

    `names` and `states` are those of the axes; `method` is the specification string of the method,
    `log_evidence` the log-probability of the evidence if known; `exact`, `converged` and `warnings`
    describe the quality of the result.

    >>> import kikuchi as kk
    >>> answer = kk.query(kk.example("asia"), joint=("lung", "bronc"), evidence={"smoke": "yes"})
    >>> answer.table.shape, round(answer.probability(lung="yes", bronc="yes"), 6)
    ((2, 2), 0.06)
    >>> answer["bronc"]
    bronc: no 0.4, yes 0.6
    """

    names: tuple[str, ...]
    states: tuple[tuple[str, ...], ...]
    table: Array

    def __getitem__(self, variable: str | int) -> StateDistribution:
        """The marginal of one of the variables."""
        k = self._axis(str(variable))
        others = tuple(j for j in range(len(self.names)) if j != k)
        return StateDistribution(self.names[k], self.states[k], self.table.sum(axis=others))

    def _axis(self, name: str) -> int:
        name = _asked_name(name, self.names)
        if name not in self.names:
            raise ModelError(f"the joint has no variable '{name}'; {suggestion(name, self.names)}")
        return self.names.index(name)

    def probability(self, states: Mapping[str, str | int] | None = None, /, **named: Any) -> float:
        """The probability that variables are in given states, the others summed out: {name: state}
        as `states`, or `named` one by one as keywords.
        """
        where: list[Any] = [slice(None)] * len(self.names)
        for name, state in {**(states or {}), **named}.items():
            k = self._axis(str(name))
            where[k] = required_place(f"variable {name}", self.states[k], state, ModelError)
        return float(self.table[tuple(where)].sum())

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: the table as nested lists, with the names of its axes."""
        return {
            **self._facts(),
            "variables": list(self.names),
            "states": [list(states) for states in self.states],
            "joint": self.table.tolist(),
        }

    def to_pandas(self) -> pd.Series:
        """Probabilities with one level of the index for each variable."""
        pandas = pandas_module()
        index = pandas.MultiIndex.from_product(self.states, names=self.names)
        series: pd.Series = pandas.Series(self.table.ravel(), index=index, name="probability")
        return series

    def to_xarray(self) -> Any:
        """An array with a named dimension for each variable."""
        coords = {n: list(s) for n, s in zip(self.names, self.states, strict=True)}
        return xarray_module().DataArray(
            self.table,
            dims=self.names,
            coords=coords,
            name="probability",
            attrs={"method": self.method},
        )

    def most_probable(self, most: int) -> list[tuple[tuple[str, ...], float]]:
        """The `most` most probable joint states with their probabilities, in order."""
        flat = self.table.ravel()
        order = np.argsort(-flat, kind="stable")[:most]
        places = np.array(np.unravel_index(order, self.table.shape)).T
        return [
            (tuple(s[i] for s, i in zip(self.states, place, strict=True)), float(flat[k]))
            for place, k in zip(places.tolist(), order.tolist(), strict=True)
        ]

    def __repr__(self) -> str:
        rows = [
            (", ".join(f"{n}={s}" for n, s in zip(self.names, states, strict=True)), value)
            for states, value in self.most_probable(_SHOWN)
        ]
        width = max((len(text) for text, _ in rows), default=0)
        lines = [f"{text:<{width}}  {value:.6g}" for text, value in rows]
        if self.table.size > _SHOWN:
            lines.append(f"... and {self.table.size - _SHOWN} less probable ones")
        return "\n".join(printable(line) for line in [*lines, f"({self._about()})"])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html_text(name)}</th>" for name in self.names)
        rows = self.most_probable(_SHOWN_IN_HTML)
        most = rows[0][1] if rows else 1.0
        body = "".join(
            "<tr>"
            + "".join(f"<td>{html_text(state)}</td>" for state in states)
            + f"<td>{value:.6g}</td><td>{bar(value / most if most else 0.0)}</td></tr>"
            for states, value in rows
        )
        more = self.table.size - len(rows)
        note = self._about() + (f"; {more} less probable rows not shown" if more else "")
        return (
            f"<table><thead><tr>{head}<th>probability</th><th></th></tr></thead>"
            f"<tbody>{body}</tbody></table><p><small>{html_text(note)}</small></p>"
        )
