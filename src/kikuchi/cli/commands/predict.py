"""`kikuchi predict`: the answers to all cases of a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kikuchi import __version__
from kikuchi.cli import options
from kikuchi.cli.command import Limits, PageOutput, finish, grouped
from kikuchi.cli.options import argument, option
from kikuchi.core.answer import Answer

if TYPE_CHECKING:
    from kikuchi.queries.case_files import Prediction

CasesFile = Annotated[str, argument("CASES", "Cases, one a row: .csv, .tsv or .parquet.")]
Targets = Annotated[
    str | None, option("--targets -t A,B", "Variables asked for, separated by commas.  [all]")
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
    cases: CasesFile,
    out: OutFile,
    targets: Targets = None,
    method: MethodText = "auto",
    format: options.Format = None,
    *,
    rows: WrittenCases,
    workers: Workers,
    limits: Limits,
    output: PageOutput,
) -> None:
    """Answer every case of a table.

    The answer has a row of distributions of the targets for each case. Columns of the table are
    named as the variables; empty cells are unknown. Targets are not read as evidence. Rows stream
    through, so that a table may be of any length.
    """
    from kikuchi.cli.console import ProgressBar
    from kikuchi.cli.inputs import load_model, variable_number
    from kikuchi.cli.questions import named

    budget = limits.budget
    output.check(model, out)
    from kikuchi.core.cluster import optional_cluster
    from kikuchi.queries.case_files import predict_file

    graph = load_model(model, format)
    words = [word.strip() for word in (targets or "").split(",") if word.strip()]
    asked = [named(graph, variable_number(graph, word)) for word in words]
    with optional_cluster(workers.cluster), ProgressBar("cases", quiet=output.quiet) as progress:
        done = predict_file(
            graph,
            cases,
            out,
            asked or None,
            method=method,
            impossible="missing" if rows.skip_impossible else "error",
            processes=workers.processes,
            budget=budget,
            progress=progress,
            keep=rows.kept,
        )
    answer = PredictionAnswer(model, cases, done)

    def page(path: Path, command: str) -> None:
        from kikuchi.reports.answer_pages import predict_page, read_model

        more = f", keep={rows.kept!r}" if rows.kept else ""

        call = (
            f"kk.predict_file(graph, {cases!r}, {str(out)!r}, {asked or None!r}, "
            f"method={method!r}{more})"
        )
        predict_page(
            answer, done, model=model, cases=cases, python=f"{read_model(model)}\n{call}"
        ).write(path, command)

    finish(answer, output, page=page, written=[out])


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
