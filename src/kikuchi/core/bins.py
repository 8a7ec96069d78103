"""Real numbers as states: quantile bins whose edges are the names of the states.

A variable with the states `<1.2`, `1.2..3.4` and `>=3.4` is binned: each state contains the numbers
from its lower edge up to, but not including, its upper edge. A model file stores only these names,
and evidence and new rows may be given as numbers.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError

_NUMBER = r"[+-]?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?"
_FIRST, _LAST = re.compile(rf"<({_NUMBER})"), re.compile(rf">=({_NUMBER})")
_MIDDLE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})")


def interval_names(edges: Sequence[float]) -> tuple[str, ...]:
    """Return the names of the intervals below, between and above increasing `edges`.

    >>> interval_names([1.5, 20.0])
    ('<1.5', '1.5..20', '>=20')
    """
    words = [_word(edge) for edge in edges]
    middle = [f"{a}..{b}" for a, b in itertools.pairwise(words)]
    return (f"<{words[0]}", *middle, f">={words[-1]}") if words else ("any",)


def interval_edges(names: Sequence[str]) -> tuple[float, ...] | None:
    """Return the edges of the intervals named by `names`; None if they are not interval names.

    >>> interval_edges(("<1.5", "1.5..20", ">=20")), interval_edges(("no", "yes"))
    ((1.5, 20.0), None)
    """
    return _edges(tuple(names)) if len(names) > 1 and names[0][:1] == "<" else None


@lru_cache(maxsize=4096)
def _edges(names: tuple[str, ...]) -> tuple[float, ...] | None:
    first, last = _FIRST.fullmatch(names[0]), _LAST.fullmatch(names[-1])
    middle = [_MIDDLE.fullmatch(name) for name in names[1:-1]]
    if first is None or last is None or None in middle:
        return None
    lower = [float(first[1]), *(float(m[2]) for m in middle if m)]
    upper = [*(float(m[1]) for m in middle if m), float(last[1])]
    return tuple(lower) if lower == upper and lower == sorted(set(lower)) else None


def interval_of(names: Sequence[str], value: Any) -> int | None:
    """Return the index of the interval that contains `value`; None if the names are not intervals
    or the value is not a number.

    >>> interval_of(("<1.5", ">=1.5"), 1.5), interval_of(("<1.5", ">=1.5"), "0.3")
    (1, 0)
    """
    edges = interval_edges(names)
    if edges is None or isinstance(value, bool | np.bool_):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return None if np.isnan(number) else int(np.searchsorted(edges, number, side="right"))


def interval_given(names: Sequence[str], state: Any) -> int | None:
    """Return `interval_of` for evidence, where an integer is a state index and a name is not a
    number.

    >>> interval_given(("<1.5", ">=1.5"), 1), interval_given(("<1.5", ">=1.5"), 1.0)
    (None, 0)
    """
    if isinstance(state, int | np.integer) or (isinstance(state, str) and state in names):
        return None
    return interval_of(names, state)


def quantile_edges(values: ArrayLike, bins: int) -> list[float]:
    """Return edges that divide the `values` into at most `bins` groups of about equal size.

    Each edge is the shortest decimal number between two neighbouring values. Equal values share a
    bin, so there may be fewer than `bins`.

    >>> quantile_edges([0.11, 0.24, 0.52, 0.77, 0.81, 0.99], 3)
    [0.4, 0.8]
    """
    finite = np.sort(np.asarray(values, dtype=np.float64))
    finite = finite[np.isfinite(finite)]
    edges: list[float] = []
    for k in range(1, bins):
        place = round(k * len(finite) / bins)
        if 0 < place < len(finite):
            above = finite[place]
            place = int(np.searchsorted(finite, above))  # the first of equal values
            if place and (not edges or edges[-1] < above) and finite[place - 1] < above:
                edges.append(_shortest(float(finite[place - 1]), float(above)))
    return edges


def bin_column(column: NDArray[Any], bins: int, label: str) -> tuple[Array, tuple[str, ...]] | None:
    """Return the interval indices of a numeric column (NaN where a cell is missing) and their
    names.

    Returns None for columns of strings, and for columns of at most `bins` distinct integers.
    `label` names the column in messages.

    >>> codes, names = bin_column(np.array([0.1, 0.2, 0.8, 0.9]), 2, "column x")
    >>> codes.tolist(), names
    ([0.0, 0.0, 1.0, 1.0], ('<0.5', '>=0.5'))
    """
    values = numbers_of(column)
    if values is None:
        return None
    known = values[~np.isnan(values)]
    different = np.unique(known)
    if len(different) <= bins and np.array_equal(different, np.rint(different)):
        return None
    if np.isinf(known).any():
        raise DataError(f"data: {label} contains an infinite number; remove such rows")
    edges = quantile_edges(known, bins)
    codes = np.searchsorted(edges, values, side="right").astype(np.float64)
    return np.where(np.isnan(values), np.nan, codes), interval_names(edges)


def numbers_of(column: NDArray[Any]) -> Array | None:
    """Return a column of numbers or numeric strings as floats, with NaN for missing cells; None for
    other columns.

    >>> numbers_of(np.array(["1.5", "?"], dtype=object)).tolist()
    [1.5, nan]
    """
    from kikuchi.core.tables import is_missing

    if column.dtype.kind in "iuf":
        return np.asarray(column, dtype=np.float64)
    if column.dtype.kind == "b":
        return None
    cells = [np.nan if x is None or (isinstance(x, str) and is_missing(x)) else x for x in column]
    try:
        values = np.array([float(x) for x in cells])
    except (TypeError, ValueError):
        return None
    return values if not np.isnan(values).all() else None


def check_bins(bins: Any) -> int:
    """Return the number of bins after checking it.

    >>> check_bins(5)
    5
    """
    if not isinstance(bins, int | np.integer) or isinstance(bins, bool) or bins < 2:
        raise DataError(f"bins must be an integer of at least 2, got {bins!r}")
    return int(bins)


def _word(edge: float) -> str:
    return np.format_float_positional(edge, trim="-") if 1e-5 <= abs(edge) < 1e9 else f"{edge:g}"


def _shortest(below: float, above: float) -> float:
    """The shortest decimal in (below, above]; near the middle where two are equally short."""
    middle = below + (above - below) / 2
    for digits in range(1, 18):
        rounded = float(f"{middle:.{digits}g}")
        if below < rounded <= above and float(_word(rounded)) == rounded:
            return rounded
    return above
