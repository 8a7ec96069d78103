"""`kikuchi certify`: what is certain about belief propagation before it is run (LIU-I9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kikuchi.cli import options

if TYPE_CHECKING:
    from kikuchi.inference.bounds.certificates import Certificate, Condition

_HEAD = ("condition", "value", "must be", "holds", "")

Alpha = Annotated[
    float,
    typer.Option("--alpha", metavar="A", help="Certify alpha-belief propagation; 1 is plain."),
]


def certify(
    model: options.Model,
    evidence: options.Evidence = None,
    alpha: Alpha = 1.0,
    seconds: options.Seconds = None,
    memory: options.Memory = None,
    json: options.Json = None,
    quiet: options.Quiet = False,
) -> None:
    """Tell whether belief propagation is sure to converge.

    Where one of the conditions holds, the messages reach the same, only fixed point from every
    start and under every schedule. Where none holds, nothing is known either way.
    """
    from kikuchi.cli.console import Screen
    from kikuchi.cli.inputs import load_evidence, load_model, make_budget
    from kikuchi.cli.outputs import STANDARD_OUTPUT, check_outputs, write_json
    from kikuchi.cli.startup import defer_blas

    budget = make_budget(seconds, memory)
    check_outputs(model, json)
    defer_blas()
    from kikuchi.inference.bounds.certificates import certify as prove

    graph = load_model(model)
    found = prove(graph, load_evidence(graph, evidence), alpha, budget=budget)
    if json is not None:
        from kikuchi import __version__

        write_json({"model": model, "version": __version__, **found.to_dict()}, json)
    screen = Screen(quiet=quiet or json == STANDARD_OUTPUT)
    screen.facts(_facts(model, found))
    screen.line()
    screen.table(_HEAD, [_row(condition) for condition in found.conditions], right=[1])


def _facts(model: str, found: Certificate) -> list[tuple[str, str]]:
    pairs = [("model", model), ("alpha", f"{found.alpha:g}"), ("verdict", found.text)]
    pairs += [("fact", fact) for fact in found.facts]
    return pairs + [("remark", remark) for remark in found.remarks]


def _row(condition: Condition) -> list[str]:
    value = "unknown" if condition.value is None else f"{condition.value:.6g}"
    holds = "yes" if condition.holds else "no"
    return [condition.name, value, f"below {condition.threshold:g}", holds, condition.remark]
