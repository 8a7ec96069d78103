"""`kikuchi evaluate`: how well a model explains rows of data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    data: options.DataFile,
    format: options.Format = None,
    *,
    limits: Limits,
    output: PageOutput,
) -> None:
    """Tell how well a model explains rows of data.

    Log-likelihood per row (exact, or bounds), pseudo-likelihood and distance of marginals. MODEL
    may be a trained model of any family (.safetensors), DATA then rows of numbers: of machines,
    energy models and belief networks the likelihood is exact, or between bounds; of models in time
    DATA is one sequence; of networks that predict, errors (and calibration) on the column that they
    were trained for, or on the last one.
    """
    from kikuchi.cli.inputs import load_model
    from kikuchi.cli.trained import is_trained, refuse_for_trained, score_of_trained
    from kikuchi.learning import evaluation
    from kikuchi.learning.files import read_data

    output.check(model)
    budget = limits.budget
    if is_trained(model):
        refuse_for_trained(model, format=format)
        head = {"model": model, "data": data, "version": __version__}
        measured = score_of_trained(model, data, budget.seconds)
        finish(measured, output, head=head, page=trained_page(measured, model, data))
        return
    graph = load_model(model, format)
    rows = read_data(data, graph)
    impossible = impossible_rows(graph, rows)
    score = evaluation.evaluate(graph, rows, budget=budget)
    answer = ScoreAnswer(model, data, graph, rows, score, impossible)

    def page(path: Path, command: str) -> None:
        from kikuchi.reports import wording
        from kikuchi.reports.answer_pages import evaluate_page, read_model
        from kikuchi.reports.learn_page import fitted_beliefs, model_and_data

        lines = f"score = kk.evaluate(graph, kk.read_data({data!r}, graph))"
        evaluate_page(
            answer,
            model=model,
            data=data,
            figures=wording.score_pairs(score),
            pictures=model_and_data(graph, rows, fitted_beliefs(graph)),
            python=f"{read_model(model)}\n{lines}",
        ).write(path, command)

    finish(answer, output, page=page)


def trained_page(measured: Answer, model: str, data: str) -> WritePage:
    """Writes the page of the scores of a trained model."""

    def page(path: Path, command: str) -> None:
        from kikuchi.cli.trained import class_of
        from kikuchi.reports.answer_pages import evaluate_page

        package, name = class_of(model)
        about = ("data", "estimator", "machine", "network", "model", "learner", "training")
        evaluate_page(
            measured,
            model=model,
            data=data,
            figures=[(label, value) for label, value in measured.facts() if label not in about],
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
