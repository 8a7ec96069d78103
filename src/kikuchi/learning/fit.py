"""`Fit`: the one thing that learning returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from kikuchi.core.answer import attributes
from kikuchi.core.labelled import html_facts
from kikuchi.core.trace import Trace
from kikuchi.graphs.factor_graph import FactorGraph

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from kikuchi.learning.evaluation import Score

_SHOWN_TABLES = 40


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted model, how well it explains its data, and how it was found.

    `objective` is the last value of what the learner optimises, per row (its name is in `trace`).
    `score` holds the log-likelihood of the training rows: exact where that is feasible, otherwise
    bounds; None if it was not asked for. `held_out` is the score of rows that were set aside, by a
    fit to the others; None without `hold_out`. `converged` is True only if the learner's own test
    was met; `stopped` says why it ended: "converged", "iterations", "seconds", "interrupted" or
    "diverged".

    `graph` is the fitted model, `learner` the text of the learner, `iterations` and `seconds` what
    it took, `warnings` what the user should know, `diagnostics` further results by name.
    """

    graph: FactorGraph
    learner: str
    objective: float | None
    converged: bool
    iterations: int
    seconds: float
    stopped: str
    score: Score | None = None
    trace: Trace = field(default_factory=Trace)
    warnings: tuple[str, ...] = ()
    diagnostics: dict[str, Any] = field(default_factory=dict)
    held_out: Score | None = None

    @property
    def log_likelihood(self) -> float | None:
        """Mean log-likelihood of a training row if it is known exactly."""
        return None if self.score is None else self.score.log_likelihood

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            **attributes(self, "learner objective"),
            "objective_name": self.trace.objective_name,
            **attributes(self, "converged stopped iterations seconds"),
            "score": None if self.score is None else self.score.to_dict(),
            "held_out": None if self.held_out is None else self.held_out.to_dict(),
            "edges": [list(pair) for pair in self.graph.edges] if self.graph.is_directed else None,
            "warnings": list(self.warnings),
            "diagnostics": self.diagnostics,
        }

    def report(self) -> str:
        """The findings in a few lines; `kikuchi.reports.learn_report` writes a page with pictures.

        >>> import kikuchi as kk
        >>> coin = kk.FactorGraph([2], [((0,), [1, 1])])
        >>> fit = kk.learning.PseudoLikelihood().fit(coin, [[1], [1], [0]])
        >>> print(fit.report().splitlines()[0])
        pseudo: pseudo-log-likelihood per row -0.636514
        """
        lines = [f"{self.learner}: {self.trace.objective_name} {_number(self.objective)}"]
        if self.graph.is_directed:
            lines.append(f"arrows: {arrows_text(self.graph)}")
        if self.score is not None:
            lines += self.score.lines("training rows")
        if self.held_out is not None:
            lines += self.held_out.lines("held-out rows")
        how = "converged" if self.converged else f"not converged ({self.stopped})"
        lines.append(f"{how}: {self.iterations} iterations, {self.seconds:.3g} s")
        return "\n".join([*lines, *(f"warning: {warning}" for warning in self.warnings)])

    def _repr_html_(self) -> str:
        lines = [line.partition(": ") for line in self.report().splitlines()]
        facts = html_facts("Fit", [(label, value) for label, _, value in lines])
        if not self.graph.is_directed:
            return facts
        shown = range(min(self.graph.n_variables, _SHOWN_TABLES))
        tables = [self.graph.cpt(v) for v in shown]
        return facts + "".join(
            f"<details><summary>{escape(table.title)}</summary>{table._repr_html_()}</details>"
            for table in tables
        )

    def plot(self) -> Figure:
        """The fitted model with its marginals, as `kk.infer(fit.graph).plot()` draws them."""
        from kikuchi.methods.registry import infer

        return infer(self.graph).plot()

    def __repr__(self) -> str:
        value = "unknown" if self.objective is None else f"{self.objective:.6f}"
        how = "converged" if self.converged else f"not converged ({self.stopped})"
        name = self.trace.objective_name
        return f"Fit({self.learner}: {name} {value}, {how}, {self.iterations} iterations)"


def arrows_text(graph: FactorGraph, most: int = 60) -> str:
    """The arrows of a directed model in one line.

    >>> import kikuchi as kk
    >>> arrows_text(kk.network("rain -> wet <- sprinkler"))
    'rain -> wet, sprinkler -> wet'
    """
    arrows = [f"{u} -> {v}" for u, v in graph.edges]
    more = f", and {len(arrows) - most} more" if len(arrows) > most else ""
    return ", ".join(arrows[:most]) + more if arrows else "none"


def _number(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:.6f}" if isinstance(value, float) else str(value)
