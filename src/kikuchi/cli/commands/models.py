"""`kikuchi models`: the kinds of models, what each takes and gives."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from kikuchi.cli.command import Output, finish, grouped
from kikuchi.core.answer import Answer, TextTable
from kikuchi.training.kinds import Kind, all_kinds, find_kind

OneKind = Annotated[
    str | None, typer.Argument(metavar="[KIND]", help="Show one kind only, with its options.")
]


@grouped
def models(kind: OneKind = None, *, output: Output) -> None:
    """List the kinds of models that `kikuchi fit` takes.

    What each is fitted to, what a fitted one gives, and its class in Python. For one kind also
    every option of its own, with its type, range, default and whole description.
    """
    output.check("")
    if kind is None:
        finish(KindsAnswer(list(all_kinds().values())), output)
        return
    from kikuchi.cli.estimators import KindOptions

    found = find_kind(kind)
    finish(KindsAnswer([found], KindOptions(found).facts()), output)


@dataclass(frozen=True)
class KindsAnswer(Answer):
    """Kinds with what they take and give; for a single kind also facts about each option."""

    kinds: Sequence[Kind]
    options: Sequence[dict[str, str]] = field(default_factory=list)

    def table(self) -> TextTable:
        """One line per kind."""
        rows = [[k.name, k.takes, ", ".join(k.gives), k.estimator] for k in self.kinds]
        return TextTable(["kind", "takes", "gives", "class"], rows)

    def parts(self) -> list[tuple[list[str], TextTable | None]]:
        """The options of a single kind."""
        if not self.options:
            return []
        rows = [list(facts.values()) for facts in self.options]
        table = TextTable(["option", "takes", "default", "meaning"], rows)
        return [(["", f"Options of kikuchi fit {self.kinds[0].name}"], table)]

    def to_dict(self) -> list[dict[str, Any]]:
        """One entry per kind."""
        names = ("name", "summary", "group", "takes", "gives", "estimator")
        options = {"options": list(self.options)} if self.options else {}
        return [{name: dataclasses.asdict(k)[name] for name in names} | options for k in self.kinds]
