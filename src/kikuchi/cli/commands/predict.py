"""`kikuchi predict`: predictions for all cases of a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from kikuchi import __version__
from kikuchi.cli import options
from kikuchi.cli.command import Limits, PageOutput, finish, grouped
from kikuchi.cli.options import argument, option
from kikuchi.core.answer import Answer

if TYPE_CHECKING:
    from kikuchi.core.budget import Budget
    from kikuchi.queries.case_files import Prediction

CasesFiles = Annotated[list[str], argument("CASES...", "Cases, one a row: .csv, .tsv or .parquet.")]
Targets = Annotated[
    str | None, option("--target -t A,B", "Variables to predict, separated by commas.  [all]")
]
OutFile = Annotated[Path, option("--out -o OUT", "Answers: .csv, .tsv or .parquet.")]
MethodText = Annotated[
    str,
    option(
        "--method -m TEXT", "auto, exact, or a method with its options, such as bp:damping=0.5."
    ),
]
Processes = Annotated[int, option("--processes N", "Worker processes.")]
Kept = Annotated[
    str | None,
    option("--keep A,B", "Columns of CASES to write before the answers, such as an id."),
]
SkipImpossible = Annotated[
    bool, option("--skip-impossible", "Leave the answers of cases of probability zero empty.")
]


@dataclass(frozen=True)
class Workers:
    """Who shares the cases."""

    processes: Processes = 1
    cluster: options.Cluster = None


@dataclass(frozen=True)
class WrittenCases:
    """What is written for each case."""

    keep: Kept = None
    skip_impossible: SkipImpossible = False

    @property
    def kept(self) -> list[str]:
        """Columns to write before the answers."""
        return [word.strip() for word in (self.keep or "").split(",") if word.strip()]


@grouped
def predict(
    model: options.Model,
    cases: CasesFiles,
    out: OutFile,
    target: Targets = None,
    method: MethodText = "auto",
    format: options.Format = None,
    *,
    rows: WrittenCases,
    workers: Workers,
    limits: Limits,
    output: PageOutput,
) -> None:
    """Predict every case of a table.

    Of a graph: a row of distributions of the targets for each case. Columns of the table are named
    as the variables; empty cells are unknown. Targets are not read as evidence. Rows stream
    through, so that a table may be of any length. Of a fitted model (.safetensors): classes with
    probabilities, numbers with intervals, or states, as its kind gives them.
    """
    from kikuchi.cli.rows import one_file
    from kikuchi.cli.trained import is_trained

    budget = limits.budget
    output.check(model, out)
    if is_trained(model):
        _predict_trained(model, cases, out, target, output)
        return
    _predict_graph(
        GraphCases(model, one_file(cases), out, target, method, format),
        rows,
        workers,
        budget,
        output,
    )


class GraphCases(NamedTuple):
    """What is predicted by a graph: the table of cases, the targets and the method."""

    model: str
    table: str
    out: Path
    target: str | None
    method: str
    format: str | None


def _predict_graph(
    cases: GraphCases, rows: WrittenCases, workers: Workers, budget: Budget, output: PageOutput
) -> None:
    """Distributions of the targets for each case, written as a table."""
    from kikuchi.cli.console import ProgressBar
    from kikuchi.cli.inputs import load_model, variable_number
    from kikuchi.cli.questions import named
    from kikuchi.core.cluster import optional_cluster
    from kikuchi.queries.case_files import predict_file

    graph = load_model(cases.model, cases.format)
    words = [word.strip() for word in (cases.target or "").split(",") if word.strip()]
    asked = [named(graph, variable_number(graph, word)) for word in words]
    with optional_cluster(workers.cluster), ProgressBar("cases", quiet=output.quiet) as progress:
        done = predict_file(
            graph,
            cases.table,
            cases.out,
            asked or None,
            method=cases.method,
            impossible="missing" if rows.skip_impossible else "error",
            processes=workers.processes,
            budget=budget,
            progress=progress,
            keep=rows.kept,
        )
    answer = PredictionAnswer(cases.model, cases.table, done)

    def page(path: Path, command: str) -> None:
        from kikuchi.reports.answer_pages import predict_page, read_model

        more = f", keep={rows.kept!r}" if rows.kept else ""

        call = (
            f"kk.predict_file(graph, {cases.table!r}, {str(cases.out)!r}, {asked or None!r}, "
            f"method={cases.method!r}{more})"
        )
        predict_page(
            answer,
            done,
            model=cases.model,
            cases=cases.table,
            python=f"{read_model(cases.model)}\n{call}",
        ).write(path, command)

    finish(answer, output, page=page, written=[cases.out])


def _predict_trained(
    model: str, data: list[str], out: Path, target: str | None, output: PageOutput
) -> None:
    """Predictions of a fitted model, written as a table."""
    from kikuchi.cli.outputs import check_table_suffix, write_cells
    from kikuchi.cli.trained import load_trained
    from kikuchi.core.errors import KikuchiError

    if target is not None:
        raise KikuchiError("a fitted model predicts the column of its fit; leave --target out")
    if output.report is not None:
        raise KikuchiError("predictions of a fitted model have no page; leave --report out")
    check_table_suffix(out, ".csv")
    trained = load_trained(model, "classes", "numbers", "states")
    names, columns = trained.workflow.predict(trained.estimator, trained.read(data))
    answer = ModelPredictions(model, trained.kind.name, data, names, len(columns[0]))
    finish(answer, output, files=[(out, lambda path: write_cells(path, names, columns))])


@dataclass(frozen=True)
class ModelPredictions(Answer):
    """What a fitted model predicted."""

    model: str
    kind: str
    data: list[str]
    columns: list[str]
    rows: int

    def facts(self) -> list[tuple[str, str]]:
        """How many rows, and which columns."""
        from kikuchi.core import text

        shown = ", ".join(self.columns[:6]) + (" ..." if len(self.columns) > 6 else "")
        data = f"{', '.join(self.data)}: {text.count(self.rows, 'row')}"
        model = f"{self.model} ({self.kind})"
        return [("model", model), ("data", data), ("columns", shown)]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**vars(self), "version": __version__}


@dataclass(frozen=True)
class PredictionAnswer(Answer):
    """What was answered."""

    model: str
    cases: str
    done: Prediction

    def facts(self) -> list[tuple[str, str]]:
        """How many cases, and which columns."""
        from kikuchi.core import text

        columns = self.done.columns
        shown = ", ".join(columns[:6]) + (" ..." if len(columns) > 6 else "")
        facts = [
            ("model", self.model),
            ("cases", f"{self.cases}: {text.count(self.done.rows, 'row')}"),
            ("columns", f"{len(columns)}: {shown}"),
        ]
        if self.done.not_converged:
            facts.append(("not converged", text.count(self.done.not_converged, "row")))
        if self.done.impossible:
            facts.append(("impossible", text.count(self.done.impossible, "row")))
        return facts

    def to_dict(self) -> dict[str, Any]:
        """The same facts for programs."""
        return {
            "model": self.model,
            "version": __version__,
            "cases": self.cases,
            "rows": self.done.rows,
            "impossible": self.done.impossible,
            "not_converged": self.done.not_converged,
            "columns": list(self.done.columns),
            "method": self.done.method,
        }
