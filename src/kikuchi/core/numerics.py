"""Numerics in the log domain (log 0 is -inf and 0 log 0 is 0), and sums and sets of flat arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.core.arrays import Array


def log(x: ArrayLike) -> Array:
    """Return the natural logarithm with log 0 = -inf, without a warning.

    >>> log([0.0, 1.0]).tolist()
    [-inf, 0.0]
    """
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.asarray(x, dtype=np.float64)))


def count_states(cardinalities: ArrayLike) -> float:
    """Return the number of joint states of variables with these `cardinalities`, inf on overflow.

    >>> count_states([2, 3]), count_states([2] * 2000)
    (6.0, inf)
    """
    with np.errstate(over="ignore"):
        return float(np.prod(np.asarray(cardinalities, dtype=np.float64)))


def logsumexp(x: ArrayLike, axis: int | tuple[int, ...] | None = None) -> Any:
    """Return log sum exp along `axis`; -inf where all entries are -inf.

    >>> float(logsumexp([-np.inf, 0.0, 0.0])) == float(np.log(2))
    True
    """
    x = np.asarray(x, dtype=np.float64)
    peak = np.max(x, axis=axis, keepdims=True)
    shift = np.where(np.isfinite(peak), peak, 0.0)
    total = log(np.sum(np.exp(x - shift), axis=axis, keepdims=True)) + shift
    return total[()] if axis is None and x.ndim == 0 else np.squeeze(total, axis=axis)


def normalise_log(x: ArrayLike, axis: int | tuple[int, ...] | None = None) -> Array:
    """Return the probabilities exp(x) / sum exp(x) along `axis`.

    >>> normalise_log([0.0, 0.0]).tolist()
    [0.5, 0.5]
    """
    x = np.asarray(x, dtype=np.float64)
    weights = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return np.asarray(weights / np.sum(weights, axis=axis, keepdims=True))


def xlogy(p: ArrayLike, log_y: ArrayLike) -> Array:
    """Return p * log_y elementwise with 0 * (-inf) = 0; the second argument is already a logarithm.

    >>> xlogy([0.0, 0.5], [-np.inf, 2.0]).tolist()
    [0.0, 1.0]
    """
    p = np.asarray(p, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        return np.where(p == 0.0, 0.0, p * np.asarray(log_y, dtype=np.float64))


def entropy(p: ArrayLike, axis: int | tuple[int, ...] | None = None) -> Any:
    """Return the entropy -sum p log p along `axis`.

    >>> round(float(entropy([0.5, 0.5])), 6)
    0.693147
    """
    p = np.asarray(p, dtype=np.float64)
    return -np.sum(xlogy(p, log(p)), axis=axis)


def segment_sums(values: NDArray[Any], offsets: NDArray[Any]) -> Array:
    """Return the sums of `values[offsets[i]:offsets[i + 1]]`; empty segments give 0.

    >>> segment_sums(np.array([1.0, 2.0, 3.0]), np.array([0, 2, 2, 3])).tolist()
    [3.0, 0.0, 3.0]
    """
    out = np.zeros(len(offsets) - 1)
    full = np.flatnonzero(np.diff(offsets) > 0)
    if full.size:
        out[full] = np.add.reduceat(values, offsets[:-1][full])
    return out


def distinct(keys: NDArray[Any]) -> NDArray[Any]:
    """Return the distinct values of a vector in increasing order, by sorting.

    `numpy.unique` hashes integers, which is up to fifty times slower on indices of pairs.

    >>> distinct(np.array([3, 1, 3, 2])).tolist()
    [1, 2, 3]
    """
    keys = np.sort(keys)
    first = np.ones(len(keys), dtype=bool)
    first[1:] = keys[1:] != keys[:-1]
    return keys[first]
