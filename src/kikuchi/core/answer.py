"""The presentation of a result: labelled facts, tables, remarks, warnings, and plain data.

The command line prints an `Answer` and writes it as JSON; a report page shows the same facts next
to its figures. The evaluations of trained models are answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

Pairs = Sequence[tuple[str, str]]


class TextTable(NamedTuple):
    """Header and rows of a table, and the indices of its right-aligned numeric columns."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[int] = ()


def attributes(thing: object, names: str) -> dict[str, Any]:
    """Return the named attributes of an object as a dictionary.

    >>> attributes(TextTable(["a"], []), "head rows")
    {'head': ['a'], 'rows': []}
    """
    return {name: getattr(thing, name) for name in names.split()}


class Answer(ABC):
    """Base class of everything that a command shows; subclasses override the parts that they have.

    `converged` is False if the result is not reliable; with `--strict` it determines the exit code.
    """

    @property
    def converged(self) -> bool:
        """Whether a stopping criterion was met."""
        return True

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings to read before using the result."""
        return ()

    def facts(self) -> Pairs:
        """Labels and their values."""
        return ()

    def table(self) -> TextTable | None:
        """The main table, or None."""
        return None

    def parts(self) -> Sequence[tuple[Sequence[str], TextTable | None]]:
        """Further tables, each with the lines above it."""
        return ()

    def remarks(self) -> Sequence[str]:
        """Lines shown below the tables."""
        return ()

    @abstractmethod
    def to_dict(self) -> Any:
        """Return the plain data that is written as JSON."""


class Judged(Protocol):
    """A result with `converged` and `warnings`."""

    @property
    def converged(self) -> bool:
        """Whether a stopping criterion was met."""

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings to read before using the result."""


class ResultAnswer(Answer):
    """Base class of answers that show a `result` with its own `converged` and `warnings`."""

    result: Judged

    @property
    def converged(self) -> bool:
        """Whether the result has converged."""
        return self.result.converged

    @property
    def warnings(self) -> Sequence[str]:
        """The warnings of the result."""
        return self.result.warnings
