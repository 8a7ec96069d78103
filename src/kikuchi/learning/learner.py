"""`Learner`: what every way to fit a discrete model shares, so that a new one writes only its own
mathematics.

A learner is a frozen dataclass of options. `Learner.fit` does what is the same for all: it matches
the data to the graph, refuses rows that the model forbids, watches the budget, keeps checkpoints,
and scores the result. A new learner gives its options and `_fit`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget, limits
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.interrupts import safe_interrupts
from kikuchi.core.log import log_warnings, logger
from kikuchi.core.options import Configured
from kikuchi.core.progress import Progress, ProgressOption, shown, silent
from kikuchi.core.run import Run
from kikuchi.core.trace import Trace
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.data import Data
from kikuchi.learning.fit import Fit
from kikuchi.training.checkpoint import Checkpoint
from kikuchi.training.resuming import StateFile
from kikuchi.training.rows import fingerprint

_LOG = logger("learning")


@dataclass
class Learned:
    """What `_fit` answers: new log-tables, laid out as those of the graph, and how they came."""

    log_tables: Array
    objective: float | None = None
    converged: bool = True
    iterations: int = 1
    warnings: list[str] = field(default_factory=list)
    diagnostics: dict[str, Any] = field(default_factory=dict)


class FitRun(Run):
    """A fit in progress: a run that knows where its state is saved.

    The checkpoint, if any, belongs to one learner, one graph and one set of `rows` (arrays).
    """

    def __init__(
        self,
        learner: Learner,
        graph: FactorGraph,
        rows: tuple[NDArray[Any], ...],
        budget: Budget | None,
        progress: Progress | None,
        checkpoint: str | Path | None,
    ) -> None:
        trace = Trace(learner.objective_name)
        super().__init__((budget or Budget()).start(), progress or silent, trace)
        self.checkpoint: Checkpoint | None = None
        if checkpoint is not None:
            model = (graph.cardinalities, graph.scopes, graph.scope_offsets, graph.log_tables)
            about = {"learner": learner.text, "model": fingerprint(model)[:32]}
            self.checkpoint = Checkpoint(checkpoint, about={**about, "rows": fingerprint(rows)})

    @property
    def store(self) -> StateFile | None:
        """Where the state of the fit is saved."""
        return None if self.checkpoint is None else StateFile(self.checkpoint)


@dataclass(frozen=True)
class Learner(Configured, ABC, kind="learner"):
    """Base of all learners of discrete models.

    Entries of the graph's tables that are zero (log-weight -inf) stay zero.
    """

    objective_name: ClassVar[str] = "log-likelihood per row"
    takes_missing: ClassVar[bool] = False

    @safe_interrupts()
    def fit(
        self,
        graph: FactorGraph,
        data: Data | ArrayLike,
        *,
        budget: Budget | None = None,
        seconds: float | None = None,
        memory: int | str | None = None,
        progress: ProgressOption = None,
        checkpoint: str | Path | None = None,
        score: bool = True,
    ) -> Fit:
        """Fit the tables of `graph` to `data`; the arguments are those of `learn`.

        `budget`, or `seconds` and `memory`, limit the fit; `progress` is told how far it is, and
        True draws a bar; `checkpoint` is a file from which an interrupted fit goes on.

        With `score` the likelihood of the rows under the fitted model is computed or bounded.
        """
        allowed = limits(budget, seconds, memory)
        rows = Data.of(data, graph)
        self._check(graph, rows)
        arrays = (rows.states, rows.weights)
        with shown(progress, self.text) as report:
            run = FitRun(self, graph, arrays, allowed, report, checkpoint)
            fit = self._answer(graph, self._fit(graph, rows, run), run, rows if score else None)
        _LOG.info("%r in %.3g s", fit, fit.seconds)
        log_warnings(_LOG, self.text, fit.warnings)
        return fit

    @abstractmethod
    def _fit(self, graph: FactorGraph, data: Data, run: FitRun) -> Learned:
        """The learner itself."""

    def _check(self, graph: FactorGraph, data: Data) -> None:
        if data.total <= 0:
            raise DataError("data: all rows have weight 0; give at least one a positive weight")
        if not self.takes_missing and not data.complete:
            row, v = (int(x) for x in np.argwhere(data.states < 0)[0])
            raise DataError(
                f"data: row {row} does not say the state of {graph.label(v)}; learner {self.name} "
                "needs complete rows: use gradient or em, or leave such rows out"
            )
        if np.isneginf(graph.log_tables).any():
            _check_possible(graph, data)

    def _answer(
        self, graph: FactorGraph, learned: Learned, run: FitRun, scored: Data | None
    ) -> Fit:
        """The result of a fit, with the likelihood of some rows.

        A checkpoint stays until the caller has put the result where it is safe.
        """
        from kikuchi.learning.evaluation import evaluate

        fitted = graph.with_log_tables(learned.log_tables)
        return Fit(
            graph=fitted,
            learner=self.text,
            objective=learned.objective,
            converged=learned.converged,
            iterations=learned.iterations,
            seconds=run.clock.seconds,
            stopped=run.stopped,
            score=None if scored is None else evaluate(fitted, scored, budget=run.clock.budget),
            trace=run.trace,
            warnings=tuple(learned.warnings),
            diagnostics=learned.diagnostics,
        )


def _check_possible(graph: FactorGraph, data: Data) -> None:
    """Refuse rows to which a zero of the tables gives weight zero."""
    zero = np.isneginf(graph.log_tables)
    clash = np.flatnonzero(zero & (data.distinct().factor_counts(graph) > 0))
    if not clash.size:
        return
    factor = int(np.searchsorted(graph.table_offsets, clash[0], side="right")) - 1
    scope = graph.scope(factor)
    shape = graph.shape(factor)
    cell = np.unravel_index(int(clash[0] - graph.table_offsets[factor]), shape)
    row = int(np.flatnonzero(np.all(data.states[:, list(scope)] == cell, axis=1))[0])
    raise DataError(
        f"data: row {row} is impossible: factor {factor} gives it weight zero, and zeros stay "
        "zero; correct the row or the table"
    )


def check_undirected(learner: str, graph: FactorGraph) -> None:
    """Refuse conditional tables, which would not stay normalised."""
    if graph.is_directed:
        raise MethodError(
            f"learner {learner} fits undirected tables, and this model has conditional ones; "
            "use learner em or gradient"
        )


def check_hidden_zeros(learner: str, graph: FactorGraph, data: Data, why: str) -> None:
    """Refuse factors with zeros that touch variables which some row leaves open."""
    zeros = np.isneginf(graph.log_tables)
    if data.complete or not zeros.any():
        return
    gaps = np.any(data.states < 0, axis=0)
    owners = np.repeat(np.arange(graph.n_factors), np.diff(graph.table_offsets))
    for a in np.unique(owners[zeros]).tolist():
        touched = [v for v in graph.scope(a) if gaps[v]]
        if touched:
            raise MethodError(
                f"learner {learner}: variable {graph.label(touched[0])} is hidden and factor {a} "
                f"has zeros, where {why}; use learner gradient or em"
            )
