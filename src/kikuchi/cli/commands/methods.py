"""`kikuchi methods`: every method with its options."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from kikuchi.cli.command import Output, finish, grouped
from kikuchi.core.answer import Answer, TextTable

OneMethod = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show one method only.")]

_MARGINALS = "takes observed marginals (x4=0.3:0.7) besides observed states"


@grouped
def methods(name: OneMethod = None, *, output: Output) -> None:
    """List the methods and their options."""
    from kikuchi.methods.registry import DEFAULT, METHODS

    output.check("")
    classes = [METHODS.find(word) for word in ([name] if name else METHODS)]
    takes = {cls: cls.takes_observed_marginals for cls in classes}
    answer = RegistryAnswer(
        {cls: {"takes_observed_marginals": takes[cls]} for cls in classes},
        {cls: _MARGINALS if takes[cls] else "" for cls in classes},
        f"bp:damping=0.5,schedule=residual. The default method is {DEFAULT}.",
    )
    finish(answer, output)


@dataclass(frozen=True)
class RegistryAnswer(Answer):
    """Methods or learners with their options: `about` goes to JSON, `notes` to the screen."""

    about: Mapping[Any, Mapping[str, Any]]
    notes: Mapping[Any, str]
    example: str

    def parts(self) -> list[tuple[list[str], TextTable | None]]:
        """How a text is written, then one table of options per class."""
        kind = next(iter(self.about)).kind
        how = f"A {kind} is written name:option=value,option=value, for example"
        parts: list[tuple[list[str], TextTable | None]] = [([how, self.example], None)]
        for cls, note in self.notes.items():
            rows = [list(facts.values()) for facts in _options(cls)]
            table = TextTable(["option", "takes", "default", "meaning"], rows) if rows else None
            parts.append((["", f"{cls.name}  {cls.summary}", *([note] if note else [])], table))
        return parts

    def to_dict(self) -> list[dict[str, Any]]:
        """One entry per class."""
        return [
            {cls.kind: cls.name, "summary": cls.summary, **facts, "options": _options(cls)}
            for cls, facts in self.about.items()
        ]


def _options(cls: Any) -> list[dict[str, str]]:
    from kikuchi.core.options import option_facts

    return [option_facts(cls, f) for f in dataclasses.fields(cls)]
