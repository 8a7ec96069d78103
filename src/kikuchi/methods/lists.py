"""Options that are lists, in specification strings: one grammar for all of them.

Items are separated by `/` and the numbers of an item by `+`: `0.5/0.7/1` are numbers of factors,
`0+4/2` sets of variables, `0:0.2+0.8/3:0.6+0.4` distributions of variables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import MethodError
from kikuchi.core.text import is_whole
from kikuchi.engines.run import MethodRun

_LONGEST_TEXT = 200


def numbers_text(method: str, name: str, value: Any, words: Sequence[str] = ()) -> str:
    """Return an option that is one of `words`, a number, or one number for each factor, as a
    string.

    >>> numbers_text("alpha", "alpha", [0.5, 1])
    '0.5/1'
    """
    if isinstance(value, str) and value.strip() in words:
        return value.strip()
    parts = value.split("/") if isinstance(value, str) else np.ravel(value).tolist()
    try:
        numbers = [float(part) for part in parts]
    except (TypeError, ValueError):
        numbers = []
    if numbers and np.all(np.isfinite(numbers)):
        return "/".join(repr(number).removesuffix(".0") for number in numbers)
    choices = f"one of {', '.join(words)}, or " if words else ""
    shown = shortened(repr(value))
    raise MethodError(
        f"method {method}: option {name} must be {choices}numbers such as 0.5 or 0.5/0.7/1, "
        f"got {shown}"
    )


def numbers_of(method: str, name: str, text: str, run: MethodRun) -> Array:
    """Parse the numbers of such a string, one for each factor of the reduced graph."""
    numbers = np.array([float(part) for part in text.split("/")])
    assert run.reduced is not None
    if numbers.size == 1:
        return np.full(run.reduced.graph.n_factors, numbers[0])
    if numbers.size != run.reduced.original.n_factors:
        raise MethodError(
            f"method {method}: option {name} needs one number, or one for each of the "
            f"{run.reduced.original.n_factors} factors, got {numbers.size}"
        )
    return np.asarray(numbers[run.reduced.factors])


def shortened(text: str) -> str:
    """Shorten a string to a bounded length."""
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 3] + "..."


def sets_text(value: Any, words: Sequence[str] = ()) -> str | None:
    """Return sets of variable numbers, or one of `words`, as a string; None if it is neither.

    >>> sets_text([[0, 4], [2]]), sets_text("0 + 4/2"), sets_text("greedy", ["greedy"])
    ('0+4/2', '0+4/2', 'greedy')
    """
    if isinstance(value, str):
        text = value.strip()
        parts = [[v.strip() for v in part.split("+")] for part in text.split("/")]
        if text in words:
            return text
        if all(is_whole(v) for part in parts for v in part):
            return "/".join("+".join(part) for part in parts)
    elif isinstance(value, Sequence) and len(value):
        try:
            sets = [[int(v) for v in part] for part in value]
        except (TypeError, ValueError):
            return None
        if all(v >= 0 for part in sets for v in part):
            return "/".join("+".join(map(str, part)) for part in sets) or None
    return None


def sets_of(text: str) -> list[list[int]]:
    """Parse the sets of such a string.

    >>> sets_of("0+4/2")
    [[0, 4], [2]]
    """
    return [[int(v) for v in part.split("+") if v] for part in text.split("/")]


def distributions_text(value: Any) -> str | None:
    """Return weights of the states of some variables as a string; `none` if there are none, None if
    they are invalid.

    >>> distributions_text({0: [0.2, 0.8]}), distributions_text(None)
    ('0:0.2+0.8', 'none')
    """
    if value is None or (isinstance(value, str) and value.strip() == "none"):
        return "none"
    try:
        rows = distributions_of(value) if isinstance(value, str) else None
    except ValueError:
        return None
    if rows is None:
        rows = dict(value) if isinstance(value, Mapping) else dict(enumerate(value))
    parts = []
    for variable, weights in rows.items():
        if weights is None:
            continue
        numbers = np.asarray(weights, dtype=np.float64).ravel().tolist()
        if not isinstance(variable, int | np.integer) or variable < 0 or not numbers:
            return None
        parts.append(f"{int(variable)}:" + "+".join(map(_unsigned, numbers)))
    return "/".join(parts) or "none"


def distributions_of(text: str) -> dict[int, list[float]]:
    """Parse the weights of such a string, by variable."""
    rows = {}
    for part in text.split("/"):
        variable, _, weights = part.partition(":")
        rows[int(variable)] = [float(w) for w in weights.split("+")]
    return rows


def _unsigned(value: float) -> str:
    """Write a number without a + in its exponent, since + separates weights."""
    return repr(value).replace("e+", "e")
