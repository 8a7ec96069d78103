"""The errors that kikuchi raises on purpose.

Every one of them is a `KikuchiError` whose text is one line: what was found, where, and what to do.
The command line prints that line and exits with 2; a traceback is always a bug.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from os import PathLike, fspath

from kikuchi.core.text import one_line

_MOST_NAMES = 40  # in a list of what is known
_LONGEST = 2000  # characters of a message, which may repeat what a file holds


class KikuchiError(Exception):
    """Base of all errors that a user can cause and mend; its text is one line."""

    def __init__(self, message: str = "") -> None:
        text = message if message.isprintable() else one_line(message)
        short = len(text) <= _LONGEST
        super().__init__(text if short else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}")


class ModelError(KikuchiError, ValueError):
    """A model that is not one: wrong sizes, negative entries, unknown variables."""


class FormatError(ModelError):
    """A file that cannot be read, with the place where reading stopped.

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
    """Rows of data that cannot be read, or do not fit the model."""


class MissingModelFileError(FileNotFoundError, FormatError):
    """A file of a model that does not exist."""

    __init__ = FormatError.__init__
    __reduce__ = FormatError.__reduce__


class MissingDataFileError(FileNotFoundError, DataError):
    """A file of data that does not exist."""


class EvidenceError(KikuchiError, ValueError):
    """Evidence about an unknown variable or state, or of a kind that a method cannot use."""


class ImpossibleEvidenceError(EvidenceError):
    """The model gives no state a positive weight (with this evidence): Z = 0."""


class MethodError(KikuchiError, ValueError):
    """An unknown method or option, or a value that the option does not take."""


class StartError(MethodError):
    """A run cannot go on from the result that was given as its start."""


class UnknownOptionError(MethodError, TypeError):
    """A keyword argument that an estimator does not have."""


class BudgetError(KikuchiError):
    """The work asked for needs more memory or time than the budget allows."""


class OutOfTimeError(BudgetError):
    """Raised where a set-up takes longer than the seconds of the budget."""


class MissingExtraError(KikuchiError, ImportError):
    """A part of kikuchi whose optional packages are not installed."""


def suggestion(word: str, known: Iterable[str]) -> str:
    """A hint after an unknown word: the nearest known one if any, then all of them.

    >>> suggestion("dampin", ["damping", "tol"])
    "did you mean 'damping'? known: damping, tol"
    """
    names = list(known)
    alike = 0.5 if len(word) < 4 else 0.6  # half of two or three letters are one slip of a finger
    near = difflib.get_close_matches(word, names, n=1, cutoff=alike)
    more = len(names) - _MOST_NAMES
    listing = "known: " + ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
    return f"did you mean '{near[0]}'? {listing}" if near else listing
