"""`kikuchi bounds`: certified bounds on log Z closing in time."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kikuchi.cli import options

if TYPE_CHECKING:
    from kikuchi.cli.console import Screen
    from kikuchi.inference.bounds.log_z_bounds import Bracket, BracketStep

_MOST_ROWS = 12


def bounds(
    model: options.Model,
    evidence: options.Evidence = None,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="S", help="Time to close the bounds in.")
    ] = 10.0,
    ibound: Annotated[
        int | None,
        typer.Option(
            "--ibound",
            metavar="K",
            min=1,
            help="No table of more than K + 1 variables; by default as memory and time allow.",
        ),
    ] = None,
    memory: options.Memory = None,
    json: options.Json = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="OUT", help="Draw the bounds to a .png or .svg file."),
    ] = None,
    quiet: options.Quiet = False,
) -> None:
    """Bound log Z from both sides, ever tighter, within a time.

    Cheap bounds come first (mean field, tree-reweighting), then dearer ones (structured mean field,
    weighted mini-buckets with rising i-bounds). Every bound is certified. Ctrl-C keeps the best.
    """
    from kikuchi.cli import outputs
    from kikuchi.cli.console import ProgressBar, Screen
    from kikuchi.cli.inputs import load_evidence, load_model, make_budget
    from kikuchi.cli.startup import defer_blas

    budget = make_budget(seconds, memory)
    outputs.check_outputs(model, json, plot)
    outputs.check_picture_suffix(plot)
    graph = load_model(model)
    observed = load_evidence(graph, evidence)
    defer_blas()
    from kikuchi.inference.bounds.log_z_bounds import bounds as close

    with ProgressBar("bounds", quiet=quiet) as progress:
        found = close(graph, evidence=observed, budget=budget, ibound=ibound, progress=progress)
    screen = Screen(quiet=quiet or json == outputs.STANDARD_OUTPUT)
    _show(screen, model, found)
    if json is not None:
        from kikuchi import __version__
        from kikuchi.reports.evidence import by_label

        head = {"model": model, "version": __version__, "evidence": by_label(graph, observed)}
        outputs.write_json({**head, **found.to_dict()}, json)
    if plot is not None:
        outputs.write_picture(found.plot(f"{Path(model).name}: bounds on log Z"), plot)
    for path in (json, plot):
        if path is not None and path != outputs.STANDARD_OUTPUT:
            screen.note(f"written: {path}")


def _show(screen: Screen, model: str, found: Bracket) -> None:
    rows = [
        [f"{s.seconds:.2f}", _bound(s.lower), _bound(s.upper), _gap(s.upper - s.lower), s.method]
        for s in _few(found)
    ]
    screen.facts(
        [
            ("model", model),
            ("lower bound", f"{_bound(found.lower)} ({found.lower_method or 'none found'})"),
            ("upper bound", f"{_bound(found.upper)} ({found.upper_method or 'none found'})"),
            ("gap", f"{_gap(found.gap)} nats" + (": exact" if found.closed else "")),
        ]
    )
    screen.line()
    screen.table(["seconds", "lower", "upper", "gap", "method"], rows, right=[0, 1, 2, 3])
    for method, why in found.skipped.items():
        screen.line(f"{method}: {why}")
    if not found.history:
        screen.line("no bound was proved; allow more --seconds")


def _few(found: Bracket) -> list[BracketStep]:
    """At most a dozen of the steps: the last of each method, and others evenly between."""
    steps = found.history
    last = {step.method: number for number, step in enumerate(steps)}
    keep = set(last.values())
    spare = max(_MOST_ROWS - len(keep), 0)
    if spare and len(steps) > len(keep):
        stride = max(len(steps) // spare, 1)
        keep |= set(range(0, len(steps), stride))
    return [steps[number] for number in sorted(keep)]


def _bound(value: float) -> str:
    from kikuchi.reports import text

    return text.log_z(value, 6) if math.isfinite(value) else text.UNKNOWN


def _gap(value: float) -> str:
    from kikuchi.reports import text

    return f"{max(value, 0.0):.4g}" if math.isfinite(value) else text.UNKNOWN
