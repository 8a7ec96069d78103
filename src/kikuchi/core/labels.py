"""One rule for names that may be numbers: variables, evidence, states, and cells of tables.

Models of other libraries name states 1, 2, 3 or True and False. An integer is then a name to some
libraries and an index to others, so it is accepted only if both interpretations agree.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from kikuchi.core.bins import interval_of
from kikuchi.core.errors import KikuchiError, suggestion

_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")


class AmbiguousNumberError(ValueError):
    """A number that is one label's name and another label's position."""


def required_place(what: str, labels: Sequence[str], state: Any, kind: type[KikuchiError]) -> int:
    """Return the index of a state of `what`; raise an error of class `kind` if there is none, or
    several.
    """
    try:
        found = place_of(labels, state)
    except AmbiguousNumberError as error:
        raise kind(f"{what}: state {error}") from None
    if found is None:
        raise kind(f"{what} has no state {state!r}; {suggestion(str(state), labels)}")
    return found


def place_of(labels: Sequence[str], word: Any) -> int | None:
    """Return the index of a label, given as a string, a Boolean or a number; None if there is none.

    >>> place_of(["no", "yes"], 1), place_of(["True", "False"], False), place_of(["5", "9"], 9)
    (1, 1, 1)
    >>> place_of(["1", "2", "3"], 1)
    Traceback (most recent call last):
      ...
    kikuchi.core.labels.AmbiguousNumberError: 1 is the name at position 0 and the position of '2'; \
give a name as a string, such as '1'
    """
    if isinstance(word, str):
        return labels.index(word) if word in labels else interval_of(labels, word)
    if isinstance(word, bool | np.bool_):
        texts = (str(word), str(word).lower(), str(word).upper())
        return next((labels.index(text) for text in texts if text in labels), None)
    if not isinstance(word, int | np.integer):
        return interval_of(labels, word)
    number = int(word)
    counted = number if 0 <= number < len(labels) else None
    if str(number) not in labels:
        return counted
    named = labels.index(str(number))
    if counted is None or counted == named:
        return named
    raise _ambiguous(labels, counted, named)


def place_of_cell(labels: Sequence[str], cell: Any) -> int | None:
    """Return the position of the state in a cell of a table; None if it is not a state.

    A number is compared with the names by its value, as a column of integers with gaps contains
    1.0 for 1. It counts states only where no state has a number as its name. A number that is the
    name of one state and the position of another raises `AmbiguousNumberError`.

    >>> [place_of_cell(["5", "9"], cell) for cell in (9, 9.0, 0)], place_of_cell(["no", "yes"], 1.0)
    ([1, 1, None], 1)
    """
    if isinstance(cell, bool | np.bool_):
        return place_of(labels, cell)
    if not isinstance(cell, int | float | np.number):
        return place_of(labels, str(cell))
    number = float(cell)
    interval = interval_of(labels, number)
    if interval is not None:
        return interval
    counted = int(number) if number.is_integer() and 0 <= number < len(labels) else None
    alike = _alike(labels, number)
    if counted is not None and alike and alike != [counted]:
        raise _ambiguous(labels, counted, alike[0])
    return place_of_value(labels, number)


def place_of_value(labels: Sequence[str], number: float) -> int | None:
    """Return the position of the label with the value of a number; None if there is none.

    Where no label is a number, a whole number is itself the position.

    >>> place_of_value(["1", "2"], 1.0), place_of_value(["no", "yes"], 1.0)
    (0, 1)
    """
    if names_numbers(labels):
        alike = _alike(labels, number)
        return alike[0] if len(alike) == 1 else None
    return int(number) if number.is_integer() and 0 <= number < len(labels) else None


def number_of_text(word: str) -> float | None:
    """Return the number that a text writes in digits; None if it is another text.

    >>> number_of_text("2.0"), number_of_text("2e0")
    (2.0, None)
    """
    return float(word) if _NUMBER.fullmatch(word) else None


def _alike(labels: Sequence[str], number: float) -> list[int]:
    return [k for k, label in enumerate(labels) if number_of_text(label) == number]


def names_numbers(labels: Sequence[str]) -> bool:
    """Return whether any label is a number, so that numbers in tables may be names."""
    return any(map(_NUMBER.fullmatch, labels))


def _ambiguous(labels: Sequence[str], counted: int, named: int) -> AmbiguousNumberError:
    return AmbiguousNumberError(
        f"{counted} is the name at position {named} and the position of '{labels[counted]}'; give "
        f"a name as a string, such as '{labels[named]}'"
    )
