"""`kikuchi compare`: several methods on one model, in one table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kikuchi.cli import options
from kikuchi.cli.command import Limits, PageOutput, finish, grouped
from kikuchi.cli.options import option
from kikuchi.core.answer import Answer, TextTable
from kikuchi.core.errors import KikuchiError

if TYPE_CHECKING:
    from kikuchi.reports.comparison import Comparison

MethodList = Annotated[str, option("--methods -m LIST", "Method texts separated by commas.")]


@grouped
def compare(
    model: options.Model,
    methods: MethodList = "jt,bp,mf,gibbs",
    evidence: options.Evidence = None,
    seed: options.Seed = None,
    format: options.Format = None,
    *,
    limits: Limits,
    output: PageOutput,
) -> None:
    """Compare methods on one model in one table.

    log Z, its error, the largest and mean error of the marginals against the exact answer where
    that is feasible, sweeps, seconds, and whether each method converged.
    """
    from kikuchi.cli.console import ProgressBar
    from kikuchi.cli.inputs import choose_method, load_evidence, load_model, split_methods
    from kikuchi.reports.comparison import compare as run_all

    chosen = [choose_method(text, seed) for text in split_methods(methods)]
    budget = limits.budget
    output.check(model)
    graph = load_model(model, format)
    observed = load_evidence(graph, evidence)
    with ProgressBar("", quiet=output.quiet) as bar:
        result = run_all(graph, chosen, evidence=observed, budget=budget, announce=bar.relabel)

    def page(path: Path, command: str) -> None:
        from kikuchi.reports.compare_page import compare_report

        compare_report(result, path, model=model, command=command)

    finish(ComparisonAnswer(model, result), output, page=page)
    if all(row.beliefs is None for row in result.rows):
        raise KikuchiError(f"no method gave an answer; {result.rows[0].problem}")


@dataclass(frozen=True)
class ComparisonAnswer(Answer):
    """A comparison as the screen and JSON show it."""

    model: str
    result: Comparison

    def facts(self) -> list[tuple[str, str]]:
        """The question, and what errors are measured against."""
        from kikuchi.reports import wording

        graph, evidence = self.result.graph, self.result.evidence
        facts = [("model", f"{self.model}: {wording.model_size(graph)}")]
        if evidence:
            facts.append(("evidence", wording.observations(graph, evidence)))
        return [*facts, ("exact", self.result.exact_note)]

    def table(self) -> TextTable:
        """One row per method."""
        names = ["log Z", "error", "largest", "mean", "sweeps", "seconds"]
        rows = [row.cells() for row in self.result.rows]
        return TextTable(["method", *names, "converged"], rows, range(1, 7))

    def remarks(self) -> list[str]:
        """What the table cannot say: reasons, warnings and how it was measured."""
        rows = self.result.rows
        notes = [f"{row.method}: {row.problem}" for row in rows if row.problem]
        for row in rows:
            warnings = row.beliefs.warnings if row.beliefs else ()
            notes += [f"{row.method}: {warning}" for warning in warnings]
        if any(row.largest_error is not None for row in rows):
            notes.append(
                "error: log Z minus the exact one; largest, mean: errors of the marginals."
            )
        loaded = "libraries and compiled loops were loaded before"
        return [*notes, f"seconds: wall clock of each run; {loaded}."]

    def to_dict(self) -> dict[str, Any]:
        """The comparison with the model, the evidence and the version."""
        from kikuchi.reports.evidence import question

        result = self.result
        return {**question(self.model, result.graph, result.evidence), **result.to_dict()}
