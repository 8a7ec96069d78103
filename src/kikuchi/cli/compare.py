"""`kikuchi compare`: several methods on one model, in one table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from kikuchi.cli import options

if TYPE_CHECKING:
    from kikuchi.cli.console import Screen
    from kikuchi.reports.comparison import Comparison, Row

_HEAD = ["method", "log Z", "error", "largest", "mean", "sweeps", "seconds", "converged"]


def compare(
    model: options.Model,
    methods: Annotated[
        str,
        typer.Option("--methods", "-m", metavar="LIST", help="Method texts separated by commas."),
    ] = "jt,bp,mf,gibbs",
    evidence: options.Evidence = None,
    json: options.Json = None,
    report: options.Report = None,
    seconds: options.Seconds = None,
    memory: options.Memory = None,
    seed: options.Seed = None,
    quiet: options.Quiet = False,
) -> None:
    """Compare methods on one model in one table.

    log Z, its error, the largest and mean error of the marginals against the exact answer where
    that is feasible, sweeps, seconds, and whether each method converged.
    """
    from kikuchi.cli import outputs
    from kikuchi.cli.console import ProgressBar, Screen
    from kikuchi.cli.inputs import (
        choose_method,
        load_evidence,
        load_model,
        make_budget,
        split_methods,
    )
    from kikuchi.reports.comparison import compare as run_all

    chosen = [choose_method(text, seed) for text in split_methods(methods)]
    budget = make_budget(seconds, memory)
    outputs.check_outputs(model, json, report)
    graph = load_model(model)
    observed = load_evidence(graph, evidence)
    with ProgressBar("", quiet=quiet) as bar:
        result = run_all(graph, chosen, evidence=observed, budget=budget, announce=bar.relabel)
    screen = Screen(quiet=quiet or json == outputs.STANDARD_OUTPUT)
    _show(screen, model, result)
    if json is not None:
        from kikuchi import __version__
        from kikuchi.reports.evidence import by_label

        head = {"model": model, "version": __version__, "evidence": by_label(graph, observed)}
        outputs.write_json({**head, **result.to_dict()}, json)
    if report is not None:
        import shlex

        from kikuchi.reports.compare_page import compare_report

        words = ["kikuchi", "compare", model, "--methods", methods]
        words += ["--evidence", evidence] if evidence else []
        words += ["--seed", str(seed)] if seed is not None else []
        command = shlex.join([*words, "--report", str(report)])
        compare_report(result, report, model=model, command=command)
    for path in (json, report):
        if path is not None and path != outputs.STANDARD_OUTPUT:
            screen.note(f"written: {path}")
    if all(row.beliefs is None for row in result.rows):
        from kikuchi.core.errors import KikuchiError

        raise KikuchiError(f"no method gave an answer; {result.rows[0].problem}")


def _show(screen: Screen, model: str, result: Comparison) -> None:
    from kikuchi.reports import text

    graph = result.graph
    size = f"{text.count(graph.n_variables, 'variable')}, {text.count(graph.n_factors, 'factor')}"
    facts = [("model", f"{model}: {size}")]
    if result.evidence:
        facts.append(("evidence", text.observations(graph, result.evidence)))
    screen.facts([*facts, ("exact", result.exact_note)])
    screen.line()
    screen.table(_HEAD, [table_row(row) for row in result.rows], right=[1, 2, 3, 4, 5, 6])
    for note in footnotes(result.rows):
        screen.line(note)


def table_row(row: Row) -> list[str]:
    """The cells of one method."""
    from kikuchi.reports import text

    answer = row.beliefs
    if answer is None:
        return [row.method, *[text.UNKNOWN] * 6, "no answer"]
    return [
        row.method,
        text.log_z(answer.log_z),
        text.error(row.log_z_error),
        text.error(row.largest_error),
        text.error(row.mean_error),
        text.whole(answer.iterations),
        f"{answer.seconds:.3g}",
        "yes" if answer.converged else f"no ({answer.stopped})",
    ]


def footnotes(rows: Sequence[Row]) -> list[str]:
    """What the table cannot say: reasons, warnings and how it was measured."""
    notes = [f"{row.method}: {row.problem}" for row in rows if row.problem]
    for row in rows:
        notes += [f"{row.method}: {text}" for text in (row.beliefs.warnings if row.beliefs else ())]
    if any(row.largest_error is not None for row in rows):
        notes.append("error: log Z minus the exact one; largest, mean: errors of the marginals.")
    return [*notes, "seconds: wall clock of each run; compiled loops were loaded beforehand."]
