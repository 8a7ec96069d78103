"""`kikuchi bounds`: certified bounds on log Z closing in time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kikuchi.cli import options
from kikuchi.cli.command import PageOutput, finish, grouped
from kikuchi.cli.options import option
from kikuchi.core import text
from kikuchi.core.answer import Answer, TextTable

if TYPE_CHECKING:
    from kikuchi.brackets.log_z_bounds import BoundStep, LogZBounds
    from kikuchi.graphs.factor_graph import FactorGraph
    from kikuchi.reports.evidence import Observed

_MOST_ROWS = 12

TimeLimit = Annotated[float, option("--seconds S", "Time to close the bounds in.")]
LargestTable = Annotated[
    int | None,
    option(
        "--ibound K",
        "No table of more than K + 1 variables; by default as memory and time allow.",
        min=1,
    ),
]


@grouped
def bounds(
    model: options.Model,
    evidence: options.Evidence = None,
    seconds: TimeLimit = 10.0,
    ibound: LargestTable = None,
    memory: options.Memory = None,
    plot: options.Plot = None,
    format: options.Format = None,
    *,
    output: PageOutput,
) -> None:
    """Bound log Z from both sides, ever tighter, within a time.

    Cheap bounds come first (mean field, tree-reweighting), then costlier ones (structured mean
    field, weighted mini-buckets with rising i-bounds). Every bound is certified. Ctrl-C keeps the
    best.
    """
    from kikuchi.cli import outputs
    from kikuchi.cli.inputs import load_evidence, load_model, make_budget

    budget = make_budget(seconds, memory)
    output.check(model, plot)
    outputs.check_picture_suffix(plot)
    graph = load_model(model, format)
    observed = load_evidence(graph, evidence)
    from kikuchi.brackets.live import BoundsBar
    from kikuchi.brackets.log_z_bounds import bounds as close

    with BoundsBar(seconds, quiet=output.quiet) as progress:
        result = close(graph, evidence=observed, budget=budget, ibound=ibound, progress=progress)

    def draw(path: Path) -> None:
        outputs.write_picture(result.plot(f"{Path(model).name}: bounds on log Z"), path)

    answer = BoundsAnswer(model, graph, observed, result)

    def page(path: Path, command: str) -> None:
        from kikuchi.reports.answer_pages import bounds_page, python_call

        known = {"evidence": observed, "ibound": ibound}
        given = {name: value for name, value in known.items() if value}
        call = python_call(model, "proved = kk.bounds", **given, seconds=seconds)
        bounds_page(answer, result, model=answer.question, python=call).write(path, command)

    finish(answer, output, page=page, files=[(plot, draw)])


@dataclass(frozen=True)
class BoundsAnswer(Answer):
    """Bounds on log Z as the screen and JSON show them."""

    model: str
    graph: FactorGraph
    observed: Observed
    result: LogZBounds

    @property
    def question(self) -> str:
        """The model, and the evidence if there is some."""
        from kikuchi.reports import wording

        given = wording.observations(self.graph, self.observed, most=4) if self.observed else ""
        return f"{self.model} given {given}" if given else self.model

    def facts(self) -> list[tuple[str, str]]:
        """The best bounds, who proved them, and the gap between them."""
        best = self.result
        return [
            ("model", self.question),
            ("lower bound", f"{_bound(best.lower)} ({best.lower_method or 'none found'})"),
            ("upper bound", f"{_bound(best.upper)} ({best.upper_method or 'none found'})"),
            ("gap", f"{_gap(best.gap)} nats" + (": exact" if best.closed else "")),
        ]

    def table(self) -> TextTable:
        """How the bounds closed in time."""
        rows = [
            [
                f"{s.seconds:.3f}",
                _bound(s.lower),
                _bound(s.upper),
                _gap(s.upper - s.lower),
                s.method,
            ]
            for s in _few(self.result.history)
        ]
        return TextTable(["seconds", "lower", "upper", "gap", "method"], rows, [0, 1, 2, 3])

    def remarks(self) -> list[str]:
        """Methods that were skipped, and why."""
        lines = [f"{method}: {why}" for method, why in self.result.skipped.items()]
        if not self.result.history:
            lines.append("no bound was proved; allow more --seconds")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """The bounds with the model, the evidence and the version."""
        from kikuchi.reports.evidence import question

        return {**question(self.model, self.graph, self.observed), **self.result.to_dict()}


def _few(steps: list[BoundStep]) -> list[BoundStep]:
    """At most a dozen of the steps: the last of each method, and others evenly between, without
    those whose bounds look like the ones before.
    """
    shown = [(step.method, _bound(step.lower), _bound(step.upper)) for step in steps]
    steps = [step for k, step in enumerate(steps) if k == 0 or shown[k] != shown[k - 1]]
    last = {step.method: number for number, step in enumerate(steps)}
    keep = set(last.values())
    spare = max(_MOST_ROWS - len(keep), 0)
    if spare and len(steps) > len(keep):
        stride = max(len(steps) // spare, 1)
        keep |= set(range(0, len(steps), stride))
    return [steps[number] for number in sorted(keep)]


def _bound(value: float) -> str:
    return text.log_z(value, 6) if math.isfinite(value) else text.UNKNOWN


def _gap(value: float) -> str:
    return f"{max(value, 0.0):.4g}" if math.isfinite(value) else text.UNKNOWN
