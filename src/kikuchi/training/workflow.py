"""Workflows of the commands: fitting an estimator to data from files, and evaluating it.

A family derives a `Workflow` where the defaults are not enough, names it in its `Kind`, and so gets
`kikuchi fit`, `evaluate`, `sample`, `predict`, `transform`, `forecast` and `filter`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kikuchi.core import text
from kikuchi.core.answer import Answer
from kikuchi.core.errors import MethodError
from kikuchi.core.options import option
from kikuchi.training.answer import TrainingAnswer

if TYPE_CHECKING:
    from kikuchi.training.kinds import Kind


@dataclass
class DataSet:
    """Data for a fit, or to measure a fitted model on.

    Attributes
    ----------
    source : str
        The files, as shown.
    rows : array, or list of arrays for sequences
    targets : array, or list of arrays for labelled sequences
        The column to predict, if there is one.
    held_out, held_out_targets : array
        Held-out rows.
    names : list of str
        Names of the columns of `rows`; None if the file has none.
    shape : tuple of int
        Height and width where rows are images.
    target : str
        The name of the column to predict.
    columns : list of str
        Names, or numbers, of all columns, the target last.
    seed : int
        Seed of measurements that draw random numbers.
    seconds : float
        Time limit of a measurement.
    fit_seconds : float
        Time that the fit took.
    positions : array
        Numbers from 0 that `rows`, and then `held_out`, have in the file; None if no rows are held
        out, or if they are not rows of a file.
    """

    source: str
    rows: Any
    targets: Any = None
    held_out: Any = None
    held_out_targets: Any = None
    names: list[str] | None = None
    shape: tuple[int, ...] | None = None
    target: str = ""
    columns: list[str] | None = None
    seed: int = 0
    seconds: float | None = None
    fit_seconds: float = 0.0
    positions: Any = None

    def in_file_order(self) -> Any:
        """Return `rows` and `held_out` together, in the order of the file where it is known.

        >>> held_out = np.zeros((1, 2))
        >>> data = DataSet("a.csv", np.eye(2), held_out=held_out, positions=[0, 2, 1])
        >>> data.in_file_order().tolist()
        [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]
        """
        if self.held_out is None:
            return self.rows
        both = np.concatenate([self.rows, self.held_out])
        return both if self.positions is None else both[np.argsort(self.positions)]


@dataclass
class NoSettings:
    """No further options."""


class Workflow:
    """The default workflow; `settings` is a dataclass of further options of `kikuchi fit`."""

    settings: ClassVar[Any] = NoSettings

    def __init__(self, kind: Kind) -> None:
        self.kind = kind

    def check(self, estimator: Any, settings: Any) -> None:
        """Raise an error for options that do not go together, before any data are read."""

    def fit(self, estimator: Any, data: DataSet, settings: Any) -> Any:
        """Return the estimator, fitted to the data."""
        return estimator.fit(data.rows, *(() if data.targets is None else (data.targets,)))

    def measure(self, estimator: Any, data: DataSet, settings: Any) -> Answer:
        """Return what is shown after a fit."""
        return FitSummary(estimator, data)

    def score(self, estimator: Any, data: DataSet) -> Answer:
        """Return how well a fitted model explains, or predicts, other data."""
        if "classes" in self.kind.gives and data.targets is not None:
            return class_errors(estimator, data)
        if "states" in self.kind.gives:
            mean = float(estimator.score(data.rows))
            return RowScores(estimator, data.source, _count(data), "log-likelihood per step", mean)
        if "density" not in self.kind.gives:
            mean = float(estimator.score(data.rows))
            return RowScores(estimator, data.source, _count(data), "score", mean)
        scores = np.asarray(estimator.score_samples(data.rows))
        error = float(scores.std(ddof=1) / np.sqrt(len(scores))) if len(scores) > 1 else None
        label = "log-likelihood per row"
        return RowScores(
            estimator, data.source, len(scores), label, float(scores.mean()), error=error
        )

    def how_drawn(self, estimator: Any) -> str:
        """Return how the rows that a fitted model draws depend on each other."""
        return "independent"

    def bundle(self, estimator: Any, rows: Any, model: str) -> Any:
        """Return what holds drawn rows in an .npz file and has a method `save`; None for arrays."""
        return None

    def predict(self, estimator: Any, data: DataSet) -> tuple[list[str], list[Any]]:
        """Return names and values of the columns of predictions: classes with probabilities, or
        numbers.
        """
        label = data.target or "prediction"
        columns, values = [label], [np.asarray(estimator.predict(data.rows))]
        if "classes" in self.kind.gives and hasattr(estimator, "predict_proba"):
            p = np.asarray(estimator.predict_proba(data.rows))
            classes = getattr(estimator, "classes_", range(p.shape[1]))
            columns += [f"p({name})" for name in label_texts(classes)]
            values += list(p.T)
        return columns, values

    def transform(self, estimator: Any, data: DataSet) -> tuple[list[str], Any]:
        """Return names and values of the columns of features or sources."""
        values = np.asarray(estimator.transform(data.rows))
        word = "source" if "sources" in self.kind.gives else "feature"
        return [f"{word}{k}" for k in range(values.shape[1])], values

    def carry_out(self, task: str, estimator: Any, data: DataSet, **how: Any) -> Answer:
        """Return the answer to a task on sequences: `filter`, `smooth` or `forecast`."""
        raise MethodError(f"{self.kind.name} does not take the task {task}")


def label_texts(labels: Any) -> list[str]:
    """Labels of classes as they are written.

    >>> label_texts(np.array([0.0, 1.0])), label_texts(["no", "yes"])
    (['0', '1'], ['no', 'yes'])
    """
    return [str(x) if isinstance(x, str | bytes) else f"{x:g}" for x in labels]


def _count(data: DataSet) -> int:
    return sum(map(len, data.rows)) if isinstance(data.rows, list) else len(data.rows)


@dataclass
class FitSummary(TrainingAnswer):
    """Summary of a fit, for estimators without their own evaluation."""

    estimator: Any
    data: DataSet

    def __post_init__(self) -> None:
        self.source = self.data.source

    def facts(self) -> list[tuple[str, str]]:
        """The data and the fit."""
        rows = text.count(_count(self.data), "row")
        return [("data", f"{self.source}: {rows}"), *self.training_facts()]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            **self.training_dict(),
            "rows": _count(self.data),
            "warnings": self.warnings,
        }


@dataclass(frozen=True)
class RowScores(Answer):
    """A mean score per row, or per step of a sequence, with its standard error."""

    estimator: Any
    source: str
    rows: int
    label: str
    mean: float
    error: float | None = None
    note: str = ""
    about_rows: Sequence[str] = ()

    @property
    def warnings(self) -> list[str]:
        """The warnings of the fit, then those of the rows."""
        return [*self.estimator.warnings_, *self.about_rows]

    def facts(self) -> list[tuple[str, str]]:
        """The data, the model and the score."""
        spread = "" if self.error is None else f" ± {self.error:.2g}"
        return [
            ("data", f"{self.source}: {text.count(self.rows, 'row')}"),
            ("estimator", type(self.estimator).__name__),
            (self.label, f"{self.mean:.6g}{spread}{self.note}"),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "estimator": type(self.estimator).__name__,
            "rows": self.rows,
            "measure": self.label,
            "mean": self.mean,
            "standard_error": self.error,
            "warnings": self.warnings,
        }


def class_errors(estimator: Any, data: DataSet) -> RowScores:
    """Return the fraction of wrong predictions of the target column."""
    wrong = estimator.predict(data.rows) != data.targets
    share, rows = float(np.mean(wrong)), len(wrong)
    error = float(np.sqrt(share * (1 - share) / rows))
    note = f" ({int(wrong.sum())} of {rows}; {data.target})"
    new = int(np.sum(~np.isin(data.targets, estimator.classes_)))
    told = [f"{text.count(new, 'row')} of classes that were not learnt: all are errors"]
    return RowScores(
        estimator, data.source, rows, "errors per row", share, error, note, told if new else []
    )


@dataclass
class LogZSettings:
    """Whether log Z, and so the log-likelihood, is estimated after the fit."""

    log_z: str | None = option(None, "Log-likelihoods too: exact or ais.")

    def check(self) -> None:
        """Raise an error for another word."""
        if self.log_z not in (None, "exact", "ais"):
            raise MethodError(f"--log-z is exact or ais, got '{self.log_z}'")
