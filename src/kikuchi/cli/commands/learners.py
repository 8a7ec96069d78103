"""`kikuchi learners`: every learner with its options."""

from __future__ import annotations

from typing import Annotated

import typer

from kikuchi.cli.command import Output, finish, grouped
from kikuchi.cli.commands.methods import RegistryAnswer
from kikuchi.cli.options import option

_MISSING = "takes rows with missing cells and hidden variables"

OneLearner = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show one learner only.")]
OfMachines = Annotated[bool, option("--machines", "Those of Boltzmann machines instead.")]


@grouped
def learners(name: OneLearner = None, machines: OfMachines = False, *, output: Output) -> None:
    """List the learners and their options."""
    output.check("")
    finish(_rules(name) if machines else _learners(name), output)


def _learners(name: str | None) -> RegistryAnswer:
    from kikuchi.learning.registry import DEFAULT, LEARNERS

    classes = [LEARNERS.find(word) for word in ([name] if name else LEARNERS)]
    return RegistryAnswer(
        {
            cls: {"takes_missing": cls.takes_missing, "objective": cls.objective_name}
            for cls in classes
        },
        {cls: _MISSING if cls.takes_missing else "" for cls in classes},
        f"pseudo:l2=0.1,tol=1e-8. The default, {DEFAULT}, is em:prior=0.2 for directed models "
        "and gradient for others.",
    )


def _rules(name: str | None) -> RegistryAnswer:
    from kikuchi.boltzmann.rules import RULES

    rules = [RULES.find(word) for word in ([name] if name else RULES)]
    return RegistryAnswer(
        {rule: {"objective": rule.objective_name} for rule in rules},
        dict.fromkeys(rules, ""),
        "cf:energy=tap,k=1. The default learner of an rbm is pcd, of a machine cf.",
    )
