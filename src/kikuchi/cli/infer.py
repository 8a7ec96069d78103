"""`kikuchi infer`: marginals and log Z of a model by one method."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kikuchi.cli import options

if TYPE_CHECKING:
    from kikuchi.cli.console import Screen
    from kikuchi.core.budget import Budget
    from kikuchi.graphs.factor_graph import FactorGraph
    from kikuchi.inference.beliefs import Beliefs
    from kikuchi.inference.method import Method
    from kikuchi.reports.evidence import Observed

NOT_CONVERGED = 3
_MOST_ROWS = 40


def infer(
    model: options.Model,
    evidence: options.Evidence = None,
    method: Annotated[
        str,
        typer.Option(
            "--method",
            "-m",
            metavar="TEXT",
            help="Method text such as bp:damping=0.5; see `kikuchi methods`.",
        ),
    ] = "auto",
    json: options.Json = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="Write marginals to OUT.MAR or OUT.csv, or log Z to OUT.PR.",
        ),
    ] = None,
    report: options.Report = None,
    seconds: options.Seconds = None,
    memory: options.Memory = None,
    seed: options.Seed = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 3 when the method did not converge.")
    ] = False,
    quiet: options.Quiet = False,
) -> None:
    """Infer the marginals of all variables and log Z."""
    from kikuchi.cli import outputs
    from kikuchi.cli.console import ProgressBar, Screen
    from kikuchi.cli.inputs import choose_method, load_evidence, load_model, make_budget

    chosen = choose_method(method, seed)
    budget = make_budget(seconds, memory)
    outputs.check_marginals_suffix(output)
    outputs.check_outputs(model, json, output, report)
    graph = load_model(model)
    observed = load_evidence(graph, evidence)
    with ProgressBar(chosen.text, quiet=quiet) as progress:
        beliefs = chosen.run(graph, evidence=observed, budget=budget, progress=progress)
    screen = Screen(quiet=quiet or json == outputs.STANDARD_OUTPUT)
    _show(screen, model, graph, observed, beliefs)
    for warning in () if quiet else beliefs.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if json is not None:
        outputs.write_json(as_json(model, graph, observed, beliefs), json)
    if output is not None:
        outputs.write_marginals_file(beliefs, output)
    if report is not None:
        exact = _exact_for_report(chosen, graph, observed, budget)
        _write_report(beliefs, exact, report, model, observed, evidence)
    for path in (json, output, report):
        if path is not None and path != outputs.STANDARD_OUTPUT:
            screen.note(f"written: {path}")
    if strict and not beliefs.converged:
        raise typer.Exit(NOT_CONVERGED)


def as_json(model: str, graph: FactorGraph, observed: Observed, beliefs: Beliefs) -> dict[str, Any]:
    """The JSON contract: `Beliefs.to_dict` with the model, the evidence and the version."""
    from kikuchi import __version__
    from kikuchi.reports.evidence import by_label

    return {
        "model": model,
        "version": __version__,
        "evidence": by_label(graph, observed),
        **beliefs.to_dict(),
    }


def _show(
    screen: Screen,
    model: str,
    graph: FactorGraph,
    observed: Observed,
    beliefs: Beliefs,
) -> None:
    from kikuchi.reports import text

    size = f"{text.count(graph.n_variables, 'variable')}, {text.count(graph.n_factors, 'factor')}"
    facts = [("model", f"{model}: {size}")]
    if observed:
        facts.append(("evidence", text.observations(graph, observed)))
    work = f"{text.count(beliefs.iterations, 'iteration')}, {text.seconds(beliefs.seconds)}"
    facts += [
        ("method", beliefs.method),
        *text.choice(beliefs),
        ("log Z", text.log_z(beliefs.log_z)),
        ("bounds on log Z", text.bounds(beliefs)),
        ("converged", f"{text.verdict(beliefs)} ({work})"),
    ]
    if beliefs.score is not None:
        facts.append(("best state", f"log-weight {text.log_z(beliefs.score)}"))
    screen.facts(facts)
    screen.line()
    head, rows, right = _marginal_rows(graph, beliefs)
    screen.table(head, rows, right)
    hidden = graph.n_variables - len(rows)
    if hidden > 0:
        screen.line(
            f"... and {text.count(hidden, 'variable')} more: --output OUT.csv or --json OUT"
        )


def _marginal_rows(
    graph: FactorGraph, beliefs: Beliefs
) -> tuple[list[str], list[list[str]], list[int]]:
    """The first marginals; with a best state, its entry for each variable too."""
    from kikuchi.reports import text

    head = ["variable", "marginal"]
    if beliefs.state is not None:
        head.append("best state")
    rows = []
    for v in range(min(graph.n_variables, _MOST_ROWS)):
        row = [text.variable_name(graph, v), text.marginal_text(graph, v, beliefs[v].tolist())]
        if beliefs.state is not None:
            row.append(text.state_names(graph, v)[int(beliefs.state[v])])
        rows.append(row)
    return head, rows, []


def _exact_for_report(
    method: Method, graph: FactorGraph, observed: Observed, budget: Budget
) -> Beliefs | None:
    """What an approximate answer is held against on its page, if that is cheap to have."""
    from kikuchi.reports.comparison import cheap_exact, gives_marginals

    if method.name in ("jt", "enumerate", "auto") or not gives_marginals(method):
        return None
    return cheap_exact(graph, observed, budget)


def _write_report(
    beliefs: Beliefs,
    exact: Beliefs | None,
    path: Path,
    model: str,
    observed: Observed,
    evidence: str | None,
) -> None:
    import shlex

    from kikuchi.reports.infer_page import infer_report

    words = ["kikuchi", "infer", model, "--method", beliefs.method]
    if evidence:
        words += ["--evidence", evidence]
    command = shlex.join([*words, "--report", str(path)])
    infer_report(beliefs, path, exact, model=model, evidence=observed, command=command)
