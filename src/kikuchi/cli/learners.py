"""`kikuchi learners`: every learner with its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kikuchi.cli import options

_MISSING = "takes rows with missing cells and hidden variables"


def learners(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Show one learner only.")
    ] = None,
    machines: Annotated[
        bool, typer.Option("--machines", help="Those of `kikuchi train` instead.")
    ] = False,
    json: options.Json = None,
) -> None:
    """List the learners and their options."""
    from kikuchi.cli.methods import show_all
    from kikuchi.learning.registry import DEFAULT, LEARNERS

    if machines:
        _show_rules(name, json)
        return
    classes = [LEARNERS.find(word) for word in ([name] if name else LEARNERS)]
    show_all(
        {cls: _MISSING if cls.takes_missing else "" for cls in classes},
        {
            cls: {"takes_missing": cls.takes_missing, "objective": cls.objective_name}
            for cls in classes
        },
        f"pseudo:l2=0.1,tol=1e-8. The default learner is {DEFAULT}.",
        json,
    )


def _show_rules(name: str | None, json: Path | None) -> None:
    from kikuchi.boltzmann.rule import RULES
    from kikuchi.cli.methods import show_all

    rules = [RULES.find(word) for word in ([name] if name else RULES)]
    show_all(
        dict.fromkeys(rules, ""),
        {rule: {"objective": rule.objective_name} for rule in rules},
        "cf:energy=tap,k=1. The default learner of an rbm is pcd, of a machine cf.",
        json,
    )
