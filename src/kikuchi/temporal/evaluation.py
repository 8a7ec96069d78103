"""What a command has to say about a model in time: facts, plain data and a table to write."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from kikuchi.core import text
from kikuchi.core.answer import TextTable
from kikuchi.core.arrays import Array, Ints
from kikuchi.core.dates import DateIndex
from kikuchi.core.errors import MethodError
from kikuchi.core.page import Sections, Tile
from kikuchi.training.answer import TrainingAnswer
from kikuchi.training.estimator import Estimator

_SHOWN_ROWS = 5  # of an answer, on the screen
_SHOWN_STEPS = 24  # of a forecast
_TINY = 1e-6  # probabilities below are not written out there
TASKS = ("fit", "filter", "forecast")


@dataclass(frozen=True)
class DatedRows:
    """The dates of a sequence: the column that holds them, the dates themselves, and how many of
    them have no row in the file.
    """

    column: str
    index: DateIndex
    gaps: int


class RowLabels(NamedTuple):
    """Dates of the rows of an answer, and the name of their column."""

    column: str
    labels: list[str]


@dataclass(eq=False)
class TemporalEvaluation(TrainingAnswer):
    """A model of sequences and one task done with it.

    Attributes
    ----------
    estimator, kind (word of the command line), task, tables (the sequences), names (of columns),
    seconds (of the fit and of the task), columns (names of `rows`), rows (the answer as one table;
    sequences below each other), result (the object that the estimator answered for the first
    sequence), forecast (of the steps after the first sequence, where a fit was asked for it),
    dates (of each sequence; None where its file has none).
    """

    subtitle: ClassVar[str] = "A model of sequences"

    estimator: Any
    kind: str
    task: str
    tables: list[Array]
    names: list[str]
    seconds: float = 0.0
    columns: list[str] = field(default_factory=list)
    rows: Array = field(default_factory=lambda: np.zeros((0, 0)))
    result: Any = None
    labels: list[Any] = field(default_factory=list)
    forecast: Any = None
    dates: list[DatedRows | None] = field(default_factory=list)
    source: str = ""

    def index(self) -> RowLabels | None:
        """The dates of `rows`; None where they have none."""
        if not self.columns:
            return None
        steps = len(self.rows) // len(self.tables) if self.task == "forecast" else None
        return self._labels(self.dates, steps)

    def forecast_index(self) -> RowLabels | None:
        """The dates of the forecast of a fit."""
        if self.forecast is None:
            return None
        return self._labels(self.dates[:1], len(self.forecast.mean))

    def _labels(self, dates: list[DatedRows | None], ahead: int | None) -> RowLabels | None:
        """Dates of sequences, or of so many steps after each."""
        known = [d for d in dates if d is not None]
        if not known or len(known) < len(dates):
            return None
        labels: list[str] = []
        for d in known:
            labels += d.index.labels() if ahead is None else d.index.labels(d.index.count, ahead)
        return RowLabels(known[0].column, labels)

    def times(self, ahead: int = 0) -> Any:
        """The dates of the first sequence and of so many steps after it, as datetime64; None
        without.
        """
        first = self.dates[0] if self.dates else None
        return None if first is None else first.index.times(0, first.index.count + ahead)

    @property
    def warnings(self) -> list[str]:
        """Those of the fit, and of the answer."""
        told = list(self.estimator.warnings_)
        told += getattr(self.result, "warnings", [])
        if getattr(self.result, "converged", True) is False:
            told.append("the posterior of the states has not converged")
        return told

    @property
    def converged(self) -> bool:
        """Whether the fit met its criterion."""
        return bool(self.estimator.converged_)

    @property
    def log_likelihood(self) -> float:
        """Of the data that the model was fitted to: log-likelihood, bound or evidence."""
        e = self.estimator
        return float(e.log_evidence_ if self.kind == "probit" else e.log_likelihood_)

    @property
    def objective_name(self) -> str:
        """What `log_likelihood` is."""
        names = {"factorial": "bound", "probit": "log-evidence"}
        return names.get(self.kind, "log-likelihood")

    def facts(self) -> list[tuple[str, str]]:
        """Labels with their values."""
        e: Estimator = self.estimator
        rows = sum(map(len, self.tables))
        told = [
            ("model", type(e).__name__),
            ("data", f"{text.count(rows, 'row')} of {text.count(self.tables[0].shape[1], 'column')}"
                     f" in {text.count(len(self.tables), 'sequence')}"),
            *self._date_facts(),
            ("fit", self._ending()),
        ]  # fmt: skip
        if np.isfinite(self.log_likelihood):
            told.append((self.objective_name, f"{self.log_likelihood:.4f}"))
        return [*told, *self._model_facts()]

    def _date_facts(self) -> list[tuple[str, str]]:
        """From when to when, by which step, and how many steps have no row."""
        known = [d for d in self.dates if d is not None]
        if not known:
            return []
        index, gaps = known[0].index, sum(d.gaps for d in known)
        ends = f"{index.labels(0, 1)[0]} to {index.labels(index.count - 1, 1)[0]}"
        missing = f", {gaps} without a row" if gaps else ""
        return [("dates", f"{ends} by {index.name}{missing}")]

    def _ending(self) -> str:
        e: Estimator = self.estimator
        done = text.count(e.n_iter_, "iteration")
        if e.stopped_ == "rows" or self.kind == "probit":
            return f"{text.count(e.n_iter_, 'label')} ({e.stopped_})"
        return f"{done} (limit)" if e.stopped_ == "iterations" else f"{done} ({e.stopped_})"

    def _model_facts(self) -> list[tuple[str, str]]:
        e = self.estimator
        if self.kind == "ssm":
            m = e.model_
            return [("states", str(m.n_states)), ("largest eigenvalue", f"{m.radius:.4f}")]
        if self.kind == "hmm":
            return [("states", str(e.model_.n_states))]
        if self.kind == "factorial":
            sizes = " x ".join(map(str, e.model_.sizes))
            return [("chains", sizes), ("lags", ", ".join(map(str, e.model_.lags)))]
        if self.kind == "ica":
            return [("sources", str(e.n_components)), ("posterior", e.posterior)]
        if self.kind == "blood":
            m = e.model_
            return [("switching on, off", f"{m.rise:.3f}, {m.fall:.3f} per frame")]
        return [("classes", ", ".join(map(str, e.classes_))), ("evidence by", e.evidence_kind_)]

    def ending_tiles(self) -> list[Tile]:
        """How the fit ended, its objective, and how long it took."""
        value = self.log_likelihood
        return [
            Tile.judged("converged", self.converged),
            Tile(self.objective_name, f"{value:.2f}" if np.isfinite(value) else "not fitted"),
            Tile("time", text.seconds(self.seconds)),
        ]

    def figures(self) -> Sections:
        """States with bands, forecasts, the parameters and the course of the fit."""
        from kikuchi.temporal.figures import sequence_figures

        return sequence_figures(self)

    def table(self) -> TextTable | None:
        """The states of a hidden Markov model, or the last rows of the answer."""
        if self.kind == "hmm" and self.task == "fit" and self.result is not None:
            return self._regimes()
        if not self.rows.size:
            return None
        first = 0 if self.task == "forecast" else max(len(self.rows) - self._shown, 0)
        label, index = "step" if self.task == "forecast" else "row", self.index()
        shown = self.rows[first : first + self._shown]
        at = [str(first + k + 1) for k in range(len(shown))]
        if index is not None:
            label, at = index.column, index.labels[first : first + self._shown]
        cells = [[name, *map(self._cell, row)] for name, row in zip(at, shown, strict=True)]
        return TextTable([label, *self.columns], cells, range(len(self.columns) + 1))

    @property
    def _shown(self) -> int:
        """Rows of the answer on the screen."""
        return _SHOWN_STEPS if self.task == "forecast" else _SHOWN_ROWS

    def _cell(self, value: float) -> str:
        tiny = self.kind in ("hmm", "factorial") and 0.0 < value < _TINY
        return f"<{_TINY:g}" if tiny and self.task == "filter" else f"{value:.4g}"

    def _regimes(self) -> TextTable:
        """Each state: its share of the steps, how long it lasts, and the moments of its outputs."""
        model, p = self.estimator.model_, self.result.probabilities
        stay = np.diagonal(model.transition)
        moments = _state_moments(model.emission, p, self.tables[0])
        names = self.names if moments is not None else []
        rows = []
        for k in range(model.n_states):
            lasts = f"{1 / (1 - stay[k]):.1f}" if stay[k] < 1 else "always"
            told = [] if moments is None else [
                f"{m:.4g} ± {d:.2g}" for m, d in zip(moments[0][k], moments[1][k], strict=True)
            ]  # fmt: skip
            rows.append([str(k), f"{p[:, k].mean():.0%}", lasts, *told])
        return TextTable(["state", "share", "lasts", *names], rows, range(3 + len(names)))

    def parts(self) -> list[tuple[list[str], TextTable]]:
        """The forecast of a fit."""
        if self.forecast is None:
            return []
        mean, deviation = self.forecast.mean, self.forecast.deviation
        index = self.forecast_index()
        at = [str(k + 1) for k in range(len(mean))] if index is None else index.labels
        rows = [
            [at[k], *(f"{m:.4g} ± {d:.2g}" for m, d in zip(*step, strict=True))]
            for k, step in enumerate(zip(mean, deviation, strict=True))
        ]
        steps, label = text.count(len(rows), "step"), "step" if index is None else index.column
        table = TextTable([label, *self.names], rows, range(len(self.names) + 1))
        return [(["", f"forecast of {steps} after the last row (± standard deviation)"], table)]

    def remarks(self) -> list[str]:
        """Which state a hidden Markov model was in when, and where the rest of the answer is."""
        lines = []
        if self.kind == "hmm" and self.task == "fit" and self.result is not None:
            first = self.dates[0] if self.dates else None
            labels = None if first is None else first.index.labels()
            by = "rows" if first is None else first.column
            lines.append(
                f"states by {by}: {_runs(self.result.probabilities.argmax(axis=1), labels)}"
            )
        if self.task in ("filter", "fit", "forecast") and len(self.rows) > self._shown:
            other = "kikuchi filter MODEL DATA --smooth -o" if self.task == "fit" else "--out"
            lines.append(f"all {len(self.rows)} rows: {other} OUT.csv, or --json OUT")
        return ["", *lines] if lines else []

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        e = self.estimator
        told = {
            "model": type(e).__name__,
            "task": self.task,
            "log_likelihood": self.log_likelihood,
            "converged": self.converged,
            "stopped": e.stopped_,
            "iterations": e.n_iter_,
            "seconds": self.seconds,
            "warnings": self.warnings,
        }
        if self.columns:
            told["columns"] = self.columns
            told["rows"] = self.rows.tolist()
            told |= _plain_index(self.index())
        if self.forecast is not None:
            columns, rows = _moments(self.forecast, self.names)
            found = {"columns": columns, "rows": rows.tolist()}
            told["forecast"] = found | _plain_index(self.forecast_index())
        return told


def _plain_index(index: RowLabels | None) -> dict[str, Any]:
    return {} if index is None else {"index": {"column": index.column, "labels": index.labels}}


def _runs(states: Ints, labels: list[str] | None = None, most: int = 12) -> str:
    """Stretches of one state, counted from row 1 or named by the labels of the rows.

    >>> _runs(np.array([0, 0, 1, 1, 1, 0]))
    '0 in 1-2, 1 in 3-5, 0 in 6'
    """
    ends = [*(np.flatnonzero(np.diff(states)) + 1).tolist(), len(states)]
    firsts = [0, *ends[:-1]]
    names = labels or [str(k + 1) for k in range(len(states))]
    to = "-" if labels is None else " to "
    runs = [
        f"{states[a]} in {names[a]}" + (f"{to}{names[b - 1]}" if b > a + 1 else "")
        for a, b in zip(firsts, ends, strict=True)
    ]
    more = f", and {len(runs) - most} more stretches" if len(runs) > most else ""
    return ", ".join(runs[:most]) + more


def _state_moments(emission: Any, p: Array, data: Array) -> tuple[Array, Array] | None:
    """Means and deviations of the outputs in each state: those of the model where it has some,
    else of the rows, weighted by the probabilities `p` of the states; None for categories.
    """
    if emission.kind == "categorical" or len(data) != len(p):
        return None
    if emission.kind in ("gaussian", "mixture"):
        return emission.mean(), np.sqrt(emission.variance())
    known = np.isfinite(data)
    values, weights = np.where(known, data, 0.0), p.T @ known
    weights = np.maximum(weights, 1e-300)
    mean = p.T @ values / weights
    variance = np.maximum(p.T @ (values * values) / weights - mean * mean, 0.0)
    return mean, np.sqrt(variance)


def carry_out(
    estimator: Any,
    kind: str,
    task: str,
    tables: list[Array],
    *,
    steps: int,
    smooth: bool,
    method: str | None = None,
    names: list[str] | None = None,
) -> tuple[list[str], Array, Any]:
    """Columns, rows and the estimator's own answer of `filter` or `forecast` (not of probit).

    `method` is that of the posterior, where the estimator has several; `names` are those of the
    outputs.
    """
    width = tables[0].shape[1]
    outputs_named = names or [f"output{k}" for k in range(width)]
    how = {} if method is None else {"method": method}
    if task == "forecast":
        found = estimator.forecast(tables, steps, **how)
        parts = [_moments(f, outputs_named) for f in found]
    elif task == "filter":
        with warnings.catch_warnings(action="ignore"):  # the answer has them as `warnings`
            found = estimator.smooth(tables, **how) if smooth else estimator.filter(tables, **how)
        parts = [_states(kind, f) for f in found]
    else:
        raise MethodError(f"there is no task '{task}'; known: {', '.join(TASKS)}")
    columns, rows = parts[0][0], [r for _, r in parts]
    if len(rows) > 1:
        numbered = [np.hstack([np.full((len(r), 1), float(k)), r]) for k, r in enumerate(rows)]
        return ["sequence", *columns], np.vstack(numbered), found[0]
    return columns, rows[0], found[0]


def _states(kind: str, answer: Any) -> tuple[list[str], Array]:
    """States as columns with names."""
    if kind == "hmm":
        p = answer.probabilities
        best = p.argmax(axis=1)[:, None].astype(np.float64)
        return ["state", *(f"p{k}" for k in range(p.shape[1]))], np.hstack([best, p])
    if kind == "blood":
        return ["on"], answer.probability[:, None]
    if kind == "factorial":
        names = [f"chain{c}_p{k}" for c, p in enumerate(answer.probabilities)
                 for k in range(p.shape[1])]  # fmt: skip
        return names, np.hstack(answer.probabilities)
    return _moments(answer, [f"state{k}" for k in range(answer.mean.shape[1])])


def _moments(answer: Any, names: list[str]) -> tuple[list[str], Array]:
    """Means and standard deviations as columns with names."""
    columns = [*names, *(f"{name}_sd" for name in names)]
    return columns, np.hstack([answer.mean, answer.deviation])
