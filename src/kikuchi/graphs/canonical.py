"""Conditional tables from few parameters: noisy or, noisy max, and deterministic functions.

Each table has one axis for each parent, in order, and the child as the last axis, as required by
`bayesian_network`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.errors import ModelError
from kikuchi.core.numerics import count_states

_MOST_ENTRIES = 2**26


def noisy_or(probabilities: Sequence[float], leak: float = 0.0) -> Array:
    """Return the table of a noisy or: P(no effect) = (1 - leak) prod over present causes (1 - p_i).

    Parameters
    ----------
    probabilities : Sequence[float]
        Probability of the effect if only cause i is present; its states are absent, present.
    leak : float, default 0.0
        Probability of the effect without any cause.

    >>> noisy_or([0.8, 0.5], leak=0.1)[..., 1].round(6).tolist()
    [[0.1, 0.55], [0.82, 0.91]]
    """
    chances = _probabilities(probabilities, "probabilities")
    _probabilities([leak], "leak")
    tables = [np.array([[1.0, 0.0], [1.0 - p, p]]) for p in chances]
    return noisy_max(tables, [1.0 - leak, leak])


def noisy_max(tables: Sequence[ArrayLike], leak: ArrayLike | None = None) -> Array:
    """Return the table of a noisy max: the child is the maximum of independent effects of its
    causes.

    P(child <= k) is the product of P(child_i <= k | cause i) over the causes, times that of the
    leak.

    Parameters
    ----------
    tables : Sequence[array-like]
        For each cause, the table of the child given this cause alone, with a row for each state of
        the cause.
    leak : array-like, optional
        Distribution of the child without any cause; by default all mass is on its first state.

    >>> noisy_max([[[1, 0, 0], [0.5, 0.3, 0.2]]], [0.9, 0.1, 0.0]).round(6).tolist()
    [[0.9, 0.1, 0.0], [0.45, 0.35, 0.2]]
    """
    rows = [np.asarray(table, dtype=np.float64) for table in tables]
    states = rows[0].shape[-1] if rows else len(np.atleast_1d(np.asarray(leak)))
    for k, table in enumerate(rows):
        if table.ndim != 2 or table.shape[1] != states:
            raise ModelError(
                f"table {k} must have a row for each state of the cause, {states} wide"
            )
        _distributions(table, f"table {k}")
    start = np.eye(states)[0] if leak is None else np.asarray(leak, dtype=np.float64)
    if start.shape != (states,):
        raise ModelError(f"leak must have {states} entries, got shape {start.shape}")
    _distributions(start, "leak")
    _check_size([len(table) for table in rows], states)
    below = np.cumsum(start)
    for table in rows:
        below = below[..., None, :] * np.cumsum(table, axis=1)
    return np.maximum(np.diff(below, axis=-1, prepend=0.0), 0.0)


def deterministic(function: Callable[..., int], cards: Sequence[int], states: int) -> Array:
    """Return the table of a function of the parents' states.

    Parameters
    ----------
    function : Callable[..., int]
        Maps the state number of each parent to the state number of the child.
    cards : Sequence[int]
        Numbers of states of the parents.
    states : int
        Number of states of the child.

    >>> deterministic(lambda a, b: a ^ b, [2, 2], 2).tolist()
    [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]]
    """
    _check_size(list(cards), states)
    table = np.zeros((*cards, states))
    for place in product(*(range(c) for c in cards)):
        value = function(*place)
        if not 0 <= value < states:
            raise ModelError(f"the function gives {value} at {place}; states are 0..{states - 1}")
        table[(*place, int(value))] = 1.0
    return table


def _probabilities(values: ArrayLike, what: str) -> Array:
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not np.all((numbers >= 0) & (numbers <= 1)):
        raise ModelError(f"{what} must be numbers from 0 to 1, got {values!r}")
    return numbers


def _distributions(table: Array, what: str) -> None:
    if not np.all(table >= 0) or not np.allclose(table.sum(axis=-1), 1.0, atol=1e-6):
        raise ModelError(f"{what} must contain distributions: non-negative numbers that sum to 1")


def _check_size(cards: list[int], states: int) -> None:
    size = count_states(cards) * states
    if size > _MOST_ENTRIES:
        raise ModelError(
            f"the table would have {size:.3g} entries; split the causes over helper variables"
        )
