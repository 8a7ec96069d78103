"""`kikuchi models`: the kinds of models, what each takes and gives."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from kikuchi.cli.command import Output, finish, grouped
from kikuchi.core.answer import Answer, TextTable
from kikuchi.training.kinds import Kind, all_kinds, find_kind

OneKind = Annotated[str | None, typer.Argument(metavar="[KIND]", help="Show one kind only.")]


@grouped
def models(kind: OneKind = None, *, output: Output) -> None:
    """List the kinds of models that `kikuchi fit` takes.

    What each is fitted to, what a fitted one gives, and its class in Python.
    """
    output.check("")
    finish(KindsAnswer([find_kind(kind)] if kind else list(all_kinds().values())), output)


@dataclass(frozen=True)
class KindsAnswer(Answer):
    """Kinds with what they take and give."""

    kinds: Sequence[Kind]

    def table(self) -> TextTable:
        """One line per kind."""
        rows = [[k.name, k.takes, ", ".join(k.gives), k.estimator] for k in self.kinds]
        return TextTable(["kind", "takes", "gives", "class"], rows)

    def to_dict(self) -> list[dict[str, Any]]:
        """One entry per kind."""
        names = ("name", "summary", "group", "takes", "gives", "estimator")
        return [{name: dataclasses.asdict(k)[name] for name in names} for k in self.kinds]
