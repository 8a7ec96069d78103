"""`TrainingAnswer`: base of the evaluations of fitted estimators, with their page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from kikuchi.core import text
from kikuchi.core.answer import Answer
from kikuchi.core.page import Facts, Page, Picture, Sections, Tile, settings_text
from kikuchi.plots.convergence import convergence

COMPLETE = ("epochs", "converged", "validation")
"""Endings of a fit that leave nothing to resume."""
_STOPPED = {
    "epochs": "all epochs done",
    "seconds": "the time budget ended",
    "validation": "held-out rows no longer improved",
    "diverged": "diverged; the last good state is used",
}


class TrainingAnswer(Answer):
    """Base class of the evaluations of fitted estimators.

    A family declares the tiles and the figures of its page; `page` puts them together with the
    facts, the warnings and the code. `subtitle` describes the fitted model in one line.
    """

    subtitle: ClassVar[str] = ""
    estimator: Any
    source: str

    @property
    def converged(self) -> bool:
        """Whether the fit of the estimator converged."""
        return bool(self.estimator.converged_)

    @property
    def warnings(self) -> list[str]:
        """The warnings of the training."""
        return list(self.estimator.warnings_)

    @property
    def stopped(self) -> str:
        """The reason for the end of the training, in words."""
        return _STOPPED.get(self.estimator.stopped_, str(self.estimator.stopped_))

    @property
    def seconds(self) -> float:
        """Seconds used by the training."""
        taken = self.estimator.trace_.seconds
        return taken[-1] if taken else 0.0

    @property
    def objective(self) -> float | None:
        """The last objective of the trace, if the rule has one."""
        values = self.estimator.trace_.objective
        return values[-1] if values and np.isfinite(values[-1]) else None

    # ------------------------------------------------------------------ the page

    def tiles(self) -> Sequence[Tile]:
        """The large figures of the page, after those of the fit."""
        return ()

    def figures(self) -> Sections:
        """The sections of figures and tables of the page."""
        return {"Training": [training_picture(self.estimator)]}

    @property
    def title(self) -> str:
        """The title of the page."""
        return f"{type(self.estimator).__name__} on {self.source}"

    def ending_tiles(self) -> list[Tile]:
        """Return tiles with the end of the fit and its duration."""
        e = self.estimator
        return [
            Tile("training", self.stopped, "good" if e.stopped_ in COMPLETE else "bad"),
            Tile("epochs", text.whole(e.n_iter_)),
            Tile("time", text.seconds(self.seconds)),
        ]

    def python(self) -> str:
        """The equivalent code."""
        e = self.estimator
        name, package = type(e).__name__, ".".join(type(e).__module__.split(".")[:2])
        return f"from {package} import {name}\nrows = ...  # the data\nmodel = {e!r}.fit(rows)"

    def page(self) -> Page:
        """The content of the report page."""
        settings = ("settings", settings_text(self.estimator))
        return Page(
            title=self.title,
            subtitle=self.subtitle,
            warnings=self.warnings,
            tiles=[*self.ending_tiles(), *self.tiles()],
            sections={"Model": [Facts([*self.facts(), settings])], **self.figures()},
            python=self.python(),
        )

    # ------------------------------------------------------------------ facts

    def training_facts(self) -> list[tuple[str, str]]:
        """Return the learner, the end of the training, and its objective."""
        e = self.estimator
        work = f"{text.count(e.n_iter_, 'epoch')}, {text.seconds(self.seconds)}"
        learner = [("learner", e.learner)] if hasattr(e, "learner") else []
        facts = [*learner, ("training", f"{self.stopped} ({work})")]
        if self.objective is not None:
            facts.append((e.trace_.objective_name, f"{self.objective:.6g}"))
        return facts

    def training_dict(self) -> dict[str, Any]:
        """Return the same as plain data."""
        e = self.estimator
        return {
            "estimator": type(e).__name__,
            "options": e.plain_options(),
            "epochs": e.n_iter_,
            "stopped": e.stopped_,
            "seconds": self.seconds,
            "objective_name": e.trace_.objective_name,
            "objective": self.objective,
        }


class RowsAnswer(TrainingAnswer):
    """Base class of the evaluations on training rows, held-out rows or new rows."""

    rows: Any
    held_out: Any
    new: bool = False

    @property
    def judged(self) -> str:
        """The evaluated rows, in words."""
        if self.new:
            return "these rows"
        return "training rows" if self.held_out is None else "rows held out"

    def data_fact(self, kind: str = "row") -> tuple[str, str]:
        """Return the source of the rows, and their number."""
        kept = "" if self.held_out is None else f", {len(self.held_out)} held out"
        return "data", f"{self.source}: {text.count(len(self.rows), kind)}{kept}"

    def rows_dict(self) -> dict[str, Any]:
        """Return the training and the numbers of rows as plain data."""
        held_out = 0 if self.held_out is None else len(self.held_out)
        return {**self.training_dict(), "rows": len(self.rows), "held_out": held_out}


class MeasuredAnswer(RowsAnswer):
    """Base class of the evaluations with `measures`, numbers by name, and `notes` on some of
    them.
    """

    measures: dict[str, float]
    notes: dict[str, str]

    def tiles(self) -> list[Tile]:
        """The measures."""
        return [Tile(name, f"{value:.5g}") for name, value in self.measures.items()]

    def measured_facts(self) -> list[tuple[str, str]]:
        """Return the measures with their notes."""
        notes = {name: f" ({note})" for name, note in self.notes.items() if note}
        return [(n, f"{value:.6g}{notes.get(n, '')}") for n, value in self.measures.items()]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {**self.rows_dict(), "measures": self.measures, "warnings": self.warnings}


def log_z_text(told: Any) -> str:
    """Return an estimate of log Z (a dictionary) in words: exact, or with its bounds.

    >>> log_z_text({"method": "exact", "estimate": 1.5})
    '1.500000 (exact)'
    """
    if told["method"] == "exact":
        return f"{told['estimate']:.6f} (exact)"
    ends = f"between {told['lower']:.4f} and {told['upper']:.4f}"
    return f"{told['estimate']:.4f}, {ends} ({100 * told['confidence']:g} %)"


def training_picture(estimator: Any) -> Picture | None:
    """The objective by epochs, if the rule has one."""
    if not any(np.isfinite(estimator.trace_.objective)):
        return None
    caption = f"The {estimator.trace_.objective_name}, epoch by epoch."
    label = getattr(estimator, "learner", "fit")
    return Picture(convergence({label: estimator.trace_}, unit="epochs"), caption)
