"""`kikuchi learners`: every learner with its options."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kikuchi.cli import options

if TYPE_CHECKING:
    from kikuchi.learning.learner import Learner


def learners(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Show one learner only.")
    ] = None,
    json: options.Json = None,
) -> None:
    """List the learners and their options."""
    from kikuchi.cli.console import Screen
    from kikuchi.cli.methods import option_facts
    from kikuchi.cli.outputs import STANDARD_OUTPUT, check_outputs, write_json
    from kikuchi.learning.registry import DEFAULT, LEARNERS, learner_class

    check_outputs("", json)
    classes = [learner_class(word) for word in ([name] if name else LEARNERS)]
    if json is not None:
        write_json([_as_data(cls) for cls in classes], json)
    screen = Screen(quiet=json == STANDARD_OUTPUT)
    screen.line("A learner is written name:option=value,option=value, for example")
    screen.line(f"pseudo:l2=0.1,tol=1e-8. The default learner is {DEFAULT}.")
    for cls in classes:
        screen.line()
        screen.line(f"{cls.name}  {cls.summary}")
        if cls.takes_missing:
            screen.line("takes rows with missing cells and hidden variables")
        described = [option_facts(cls, f) for f in dataclasses.fields(cls)]
        rows = [[d["option"], d["takes"], d["default"], d["help"]] for d in described]
        if rows:
            screen.table(["option", "takes", "default", "meaning"], rows)


def _as_data(cls: type[Learner]) -> dict[str, Any]:
    from kikuchi.cli.methods import option_facts

    return {
        "learner": cls.name,
        "summary": cls.summary,
        "takes_missing": cls.takes_missing,
        "objective": cls.objective_name,
        "options": [option_facts(cls, f) for f in dataclasses.fields(cls)],
    }
