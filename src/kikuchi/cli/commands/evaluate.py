"""`kikuchi evaluate`: how well a model explains rows of data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kikuchi import __version__
from kikuchi.cli import options
from kikuchi.cli.command import Limits, PageOutput, WritePage, finish, grouped
from kikuchi.core import text
from kikuchi.core.answer import Answer

if TYPE_CHECKING:
    from kikuchi.graphs.factor_graph import FactorGraph
    from kikuchi.learning.data import Data
    from kikuchi.learning.evaluation import Score

_MOST_NAMED = 5


@grouped
def evaluate(
    model: options.Model,
    data: Annotated[list[str], options.argument("DATA...", options.ROWS_OR_STATES)],
    format: options.Format = None,
    *,
    limits: Limits,
    output: PageOutput,
) -> None:
    """Measure how well a model explains data.

    Of a graph: log-likelihood per row (exact, or bounds), pseudo-likelihood and distance of
    marginals. Of a fitted model (.safetensors) what its kind gives: likelihoods, exact or between
    bounds, or errors of predictions of the column that it was fitted for.
    """
    from kikuchi.cli.inputs import load_model
    from kikuchi.cli.rows import one_file
    from kikuchi.cli.trained import is_trained, load_trained, refuse_for_trained
    from kikuchi.learning import evaluation
    from kikuchi.learning.files import read_data

    output.check(model)
    budget = limits.budget
    if is_trained(model):
        refuse_for_trained(model, format=format)
        trained = load_trained(model)
        found = trained.read(data)
        found.seconds = budget.seconds
        measured = trained.workflow.score(trained.estimator, found)
        head = {"kind": trained.kind.name, "model": model, "data": data, "version": __version__}
        finish(measured, output, head=head, page=trained_page(measured, model, ", ".join(data)))
        return
    source = one_file(data)
    graph = load_model(model, format)
    rows = read_data(source, graph)
    impossible = impossible_rows(graph, rows)
    score = evaluation.evaluate(graph, rows, budget=budget)
    answer = ScoreAnswer(model, source, graph, rows, score, impossible)

    def page(path: Path, command: str) -> None:
        from kikuchi.reports import wording
        from kikuchi.reports.answer_pages import evaluate_page, read_model
        from kikuchi.reports.learn_page import fitted_beliefs, model_and_data

        lines = f"score = kk.evaluate(graph, kk.read_data({source!r}, graph))"
        evaluate_page(
            answer,
            model=model,
            data=source,
            figures=wording.score_pairs(score),
            pictures=model_and_data(graph, rows, fitted_beliefs(graph)),
            python=f"{read_model(model)}\n{lines}",
        ).write(path, command)

    finish(answer, output, page=page)


def trained_page(measured: Answer, model: str, data: str) -> WritePage:
    """Writes the page of the scores of a trained model."""

    def page(path: Path, command: str) -> None:
        from kikuchi.cli.trained import kind_of
        from kikuchi.reports.answer_pages import evaluate_page

        kind = kind_of(model)
        package, name = kind.package, kind.class_name
        tiles = getattr(measured, "tiles", None)
        scores = measured.facts()[2:] if tiles is None else [t[:2] for t in tiles()]
        evaluate_page(
            measured,
            model=model,
            data=data,
            figures=scores,
            pictures=[],
            python=f"from {package} import {name}\nmodel = {name}.load({model!r})",
        ).write(path, command)

    return page


@dataclass(frozen=True)
class ScoreAnswer(Answer):
    """How well a model explains rows, as the screen and JSON show it."""

    model: str
    source: str
    graph: FactorGraph
    data: Data
    score: Score
    impossible: list[int]

    @property
    def warnings(self) -> list[str]:
        """Rows that the model gives no weight."""
        if not self.impossible:
            return []
        shown = ", ".join(map(str, self.impossible[:_MOST_NAMED]))
        shown += ", ..." if len(self.impossible) > _MOST_NAMED else ""
        rows = text.count(len(self.impossible), "row")
        return [
            f"{rows} of {self.data.n_rows} impossible under the model (its zeros), so that the "
            f"log-likelihood is -inf: {shown}"
        ]

    def facts(self) -> list[tuple[str, str]]:
        """The question and the scores."""
        from kikuchi.reports import wording

        return [
            ("model", f"{self.model}: {wording.model_size(self.graph)}"),
            ("data", f"{self.source}: {wording.data_text(self.data)}"),
            *wording.score_pairs(self.score),
        ]

    def to_dict(self) -> dict[str, Any]:
        """The scores with the model, the data and the version."""
        content = {"model": self.model, "data": self.source, "version": __version__}
        return {**content, **self.score.to_dict(), "impossible_rows": len(self.impossible)}


def impossible_rows(graph: FactorGraph, data: Data) -> list[int]:
    """Complete rows that the model gives no weight."""
    import numpy as np

    if not np.isneginf(graph.log_tables).any():
        return []
    whole = np.flatnonzero(np.all(data.states >= 0, axis=1) & (data.weights > 0))
    numbers: list[int] = whole[np.isneginf(graph.log_score(data.states[whole]))].tolist()
    return numbers
