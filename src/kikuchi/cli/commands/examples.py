"""`kikuchi examples`: the bundled models."""

from __future__ import annotations

from dataclasses import dataclass

from kikuchi.cli.command import Output, finish, grouped
from kikuchi.core.answer import Answer, TextTable


@grouped
def examples(*, output: Output) -> None:
    """List the bundled models.

    Any of them is a MODEL as example:NAME.
    """
    from kikuchi.data import examples as bundled

    output.check("")
    finish(ExamplesAnswer(bundled()), output)


@dataclass(frozen=True)
class ExamplesAnswer(Answer):
    """Names of bundled models with what they are."""

    models: dict[str, str]

    def table(self) -> TextTable:
        """One row per model."""
        rows = [[f"example:{name}", what] for name, what in self.models.items()]
        return TextTable(["model", "what it is"], rows)

    def to_dict(self) -> dict[str, str]:
        """The same."""
        return self.models
