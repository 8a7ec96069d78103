"""The errors that kikuchi raises.

Each is a `KikuchiError` with a one-line message: what was found, where, and what to do.
The command line prints that line and exits with 2; a traceback is always a bug.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from os import PathLike, fspath

from kikuchi.core.text import one_line

_MOST_NAMES = 40  # in a list of known names
_LONGEST = 2000  # characters of a message, which may quote the content of a file


class KikuchiError(Exception):
    """Base class of all errors that a user can cause and correct; the message is one line."""

    def __init__(self, message: str = "") -> None:
        text = message if message.isprintable() else one_line(message)
        short = len(text) <= _LONGEST
        super().__init__(text if short else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}")


class ModelError(KikuchiError, ValueError):
    """An invalid model: wrong sizes, negative entries, unknown variables."""


class FormatError(ModelError):
    """A file that cannot be parsed, with the line where parsing stopped.

    >>> print(FormatError("a.uai", 3, "found 'x'", "expected a whole number"))
    a.uai, line 3: found 'x'; expected a whole number
    """

    def __init__(
        self, path: str | PathLike[str], line: int | None, found: str, expected: str
    ) -> None:
        self.path = fspath(path)
        self.line = line
        place = self.path if line is None else f"{self.path}, line {line}"
        super().__init__(f"{place}: {found}; {expected}")
        self._parts = found, expected

    def __reduce__(self) -> tuple[type[FormatError], tuple[str, int | None, str, str]]:
        return type(self), (self.path, self.line, *self._parts)  # as workers send it


class DataError(KikuchiError, ValueError):
    """Data that cannot be read, or do not fit the model."""


class MissingModelFileError(FileNotFoundError, FormatError):
    """A model file that does not exist."""

    __init__ = FormatError.__init__
    __reduce__ = FormatError.__reduce__


class MissingDataFileError(FileNotFoundError, DataError):
    """A data file that does not exist."""


class EvidenceError(KikuchiError, ValueError):
    """Evidence for an unknown variable or state, or of a kind that the method does not support."""


class ImpossibleEvidenceError(EvidenceError):
    """No joint state has a positive weight given the evidence: Z = 0."""


class MethodError(KikuchiError, ValueError):
    """An unknown method or option, or an invalid value of an option."""


class StartError(MethodError):
    """A result that cannot be used as the start of a run."""


class UnknownOptionError(MethodError, TypeError):
    """A keyword argument that an estimator does not have."""


class UnavailableError(MethodError, AttributeError):
    """A method that an estimator does not have as it was fitted; `hasattr` is False."""


class BudgetError(KikuchiError):
    """Work that needs more memory or time than the budget allows."""


class OutOfTimeError(BudgetError):
    """A set-up that takes longer than the time limit."""


class MissingExtraError(KikuchiError, ImportError):
    """A feature whose optional packages are not installed."""


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name: the nearest known name, if any, then all of them.

    >>> suggestion("dampin", ["damping", "tol"])
    "did you mean 'damping'? known: damping, tol"
    """
    names = list(known)
    alike = (
        0.5 if len(word) < 4 else 0.6
    )  # of a word of two or three letters, half is one typing error
    near = difflib.get_close_matches(word, names, n=1, cutoff=alike)
    more = len(names) - _MOST_NAMES
    listing = "known: " + ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
    return f"did you mean '{near[0]}'? {listing}" if near else listing
