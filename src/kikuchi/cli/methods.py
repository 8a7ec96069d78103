"""`kikuchi methods`: every method with its options."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kikuchi.cli import options

if TYPE_CHECKING:
    from kikuchi.inference.method import Method


def methods(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Show one method only.")
    ] = None,
    json: options.Json = None,
) -> None:
    """List the methods and their options."""
    from kikuchi.inference.registry import DEFAULT, METHODS

    classes = [METHODS.find(word) for word in ([name] if name else METHODS)]
    show_all(
        {cls: _remark(cls) for cls in classes},
        {cls: {"takes_observed_marginals": cls.takes_observed_marginals} for cls in classes},
        f"bp:damping=0.5,schedule=residual. The default method is {DEFAULT}.",
        json,
    )


def _remark(cls: type[Method]) -> str:
    wanted = cls.takes_observed_marginals
    return "takes observed marginals (x4=0.3:0.7) besides observed states" if wanted else ""


def show_all(
    remarks: Mapping[Any, str],
    facts: Mapping[Any, Mapping[str, Any]],
    example: str,
    json: Path | None,
) -> None:
    """Methods or learners with a remark and further facts about each, as tables and as JSON."""
    from kikuchi.cli.console import Screen
    from kikuchi.cli.outputs import STANDARD_OUTPUT, check_outputs, write_json
    from kikuchi.core.options import option_facts

    check_outputs("", json)
    kind = next(iter(remarks)).kind
    options_of = {cls: [option_facts(cls, f) for f in dataclasses.fields(cls)] for cls in remarks}
    if json is not None:
        write_json(
            [
                {kind: cls.name, "summary": cls.summary, **facts[cls], "options": options_of[cls]}
                for cls in remarks
            ],
            json,
        )
    screen = Screen(quiet=json == STANDARD_OUTPUT)
    screen.line(f"A {kind} is written name:option=value,option=value, for example")
    screen.line(example)
    for cls, remark in remarks.items():
        screen.line()
        screen.line(f"{cls.name}  {cls.summary}")
        if remark:
            screen.line(remark)
        rows = [[d["option"], d["takes"], d["default"], d["help"]] for d in options_of[cls]]
        if rows:
            screen.table(["option", "takes", "default", "meaning"], rows)
