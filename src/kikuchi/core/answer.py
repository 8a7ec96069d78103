"""What a run has to say to people: labelled facts, a table, remarks, warnings, and plain data.

The command line shows an `Answer` on the screen and writes it as JSON; a report page shows the same
facts beside its figures. Evaluations of the families are answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

Pairs = Sequence[tuple[str, str]]


class TextTable(NamedTuple):
    """The head of a table, its rows, and the columns that hold numbers (aligned to the right)."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[int] = ()


def attributes(thing: object, names: str) -> dict[str, Any]:
    """Attributes of a thing by their names, for its plain data.

    >>> attributes(TextTable(["a"], []), "head rows")
    {'head': ['a'], 'rows': []}
    """
    return {name: getattr(thing, name) for name in names.split()}


class Answer(ABC):
    """Base of everything that a command shows: override what there is to say.

    `converged` is False if the answer should not be relied upon; with `--strict` it decides about
    the exit code.
    """

    @property
    def converged(self) -> bool:
        """Whether a stopping criterion was met."""
        return True

    @property
    def warnings(self) -> Sequence[str]:
        """What a reader must know before using the answer."""
        return ()

    def facts(self) -> Pairs:
        """Labels with their values."""
        return ()

    def table(self) -> TextTable | None:
        """The main table, if there is one."""
        return None

    def parts(self) -> Sequence[tuple[Sequence[str], TextTable | None]]:
        """Further tables, each with lines above it."""
        return ()

    def remarks(self) -> Sequence[str]:
        """Lines below the tables."""
        return ()

    @abstractmethod
    def to_dict(self) -> Any:
        """Plain data for JSON."""


class Judged(Protocol):
    """A result of the library that says itself how far to trust it."""

    @property
    def converged(self) -> bool:
        """Whether a stopping criterion was met."""

    @property
    def warnings(self) -> Sequence[str]:
        """What a reader must know before using it."""


class ResultAnswer(Answer):
    """Base of answers that show a `result` of the library, which says how far to trust it."""

    result: Judged

    @property
    def converged(self) -> bool:
        """As the result says."""
        return self.result.converged

    @property
    def warnings(self) -> Sequence[str]:
        """Those of the result."""
        return self.result.warnings
