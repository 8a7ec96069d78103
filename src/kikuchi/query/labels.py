"""Names that may be numbers: one rule for variables, states of evidence, and states of answers.

Models of other libraries name states 1, 2, 3 or True and False. A whole number is then a name to
some libraries and a place to others, so that it is taken only where both readings agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kikuchi.core.errors import KikuchiError, suggestion


class AmbiguousNumberError(ValueError):
    """A number that names one thing and counts to another."""


def required_place(what: str, labels: Sequence[str], state: Any, kind: type[KikuchiError]) -> int:
    """The place of a state of `what`; an error of this kind if there is none, or several."""
    try:
        found = place_of(labels, state)
    except AmbiguousNumberError as error:
        raise kind(f"{what}: state {error}") from None
    if found is None:
        raise kind(f"{what} has no state {state!r}; {suggestion(str(state), labels)}")
    return found


def place_of(labels: Sequence[str], word: Any) -> int | None:
    """The place of a label: given as a text, a truth value, or a number; None if there is none.

    >>> place_of(["no", "yes"], 1), place_of(["True", "False"], False), place_of(["5", "9"], 9)
    (1, 1, 1)
    >>> place_of(["1", "2", "3"], 1)
    Traceback (most recent call last):
      ...
    kikuchi.query.labels.AmbiguousNumberError: 1 is the name of number 0 and the number of '2'; \
give a name as a text, such as '1'
    """
    if isinstance(word, str):
        return labels.index(word) if word in labels else None
    if isinstance(word, bool | np.bool_):
        texts = (str(word), str(word).lower(), str(word).upper())
        return next((labels.index(text) for text in texts if text in labels), None)
    if not isinstance(word, int | np.integer):
        return None
    number = int(word)
    counted = number if 0 <= number < len(labels) else None
    if str(number) not in labels:
        return counted
    named = labels.index(str(number))
    if counted is None or counted == named:
        return named
    raise AmbiguousNumberError(
        f"{number} is the name of number {named} and the number of '{labels[number]}'; "
        f"give a name as a text, such as '{number}'"
    )
