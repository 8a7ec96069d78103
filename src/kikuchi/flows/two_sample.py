"""Two samples of the same law? Maximum mean discrepancy and the nearest-neighbour test.

Reference: LIU-M16.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget
from kikuchi.core.errors import DataError
from kikuchi.core.seeds import Seed, generator


class TwoSampleTest(NamedTuple):
    """A statistic, its mean and deviation where both samples have one law, and the p-value."""

    statistic: float
    null_mean: float
    null_deviation: float
    p_value: float


def mmd_test(
    one: ArrayLike, other: ArrayLike, *, permutations: int = 200, seed: Seed = 0
) -> TwoSampleTest:
    """Squared maximum mean discrepancy, unbiased, with a Gaussian kernel of the median distance (of
    the mean one where most rows are alike).

    `one` and `other` are tables of rows. The null distribution is that of samples exchanged at
    random, `permutations` times; `seed` is that of the exchanges.

    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(80, 2)), rng.normal(size=(80, 2))
    >>> mmd_test(x, y).p_value > 0.01, mmd_test(x, y + 1).p_value < 0.01
    (True, True)
    """
    x, y = _samples(one, other)
    rows = np.concatenate([x, y])
    squares = cdist(rows, rows, "sqeuclidean")
    width = np.median(squares[np.triu_indices(len(rows), 1)])
    if width == 0.0:  # most rows are alike
        width = squares.mean() or 1.0
    kernel = np.exp(-squares / width)
    np.fill_diagonal(kernel, 0.0)
    rng = generator(seed)
    found = _mmd(kernel, np.arange(len(rows)), len(x))
    null = np.array([_mmd(kernel, rng.permutation(len(rows)), len(x)) for _ in range(permutations)])
    p = (1 + np.sum(null >= found)) / (1 + permutations)
    return TwoSampleTest(found, float(null.mean()), float(null.std()), float(p))


def _mmd(kernel: Array, order: Any, n: int) -> float:
    first, second = order[:n], order[n:]
    m = len(second)
    within = kernel[np.ix_(first, first)].sum() / (n * (n - 1))
    within += kernel[np.ix_(second, second)].sum() / (m * (m - 1))
    return float(within - 2.0 * kernel[np.ix_(first, second)].mean())


def nearest_neighbour_test(one: ArrayLike, other: ArrayLike) -> TwoSampleTest:
    """Share of rows whose nearest other row is of their own sample: one half for equal laws.

    `one` and `other` are the samples and must have the same number of rows. Several nearest rows,
    as whole numbers have them, count as parts of one. The p-value is one-sided, by the normal law
    with the variance of n independent rows, 1 / (4 n), widened for those that are each other's
    neighbours.

    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(200, 2)), rng.normal(size=(200, 2))
    >>> abs(nearest_neighbour_test(x, y).statistic - 0.5) < 0.1
    True
    """
    from scipy.special import ndtr

    x, y = _samples(one, other)
    if len(x) != len(y):
        raise DataError(f"samples of {len(x)} and {len(y)} rows; give equally many")
    rows = np.concatenate([x, y])
    distances = cdist(rows, rows, "sqeuclidean")
    np.fill_diagonal(distances, np.inf)
    nearest = distances == distances.min(axis=1, keepdims=True)
    parts = nearest / nearest.sum(axis=1, keepdims=True)
    own = np.arange(len(rows)) < len(x)
    share = float(parts[own[:, None] == own].sum() / len(rows))
    mean = (len(x) - 1) / (len(rows) - 1)
    variance = 0.25 * np.sum(parts * (parts + parts.T)) / len(rows) ** 2
    deviation = float(np.sqrt(variance))
    return TwoSampleTest(share, mean, deviation, float(ndtr(-(share - mean) / deviation)))


def _samples(one: ArrayLike, other: ArrayLike) -> tuple[Array, Array]:
    x, y = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or min(len(x), len(y)) < 2:
        raise DataError(
            f"samples of shapes {x.shape} and {y.shape}; give two tables of at least 2 rows and "
            "the same columns"
        )
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise DataError("a sample holds numbers that are not finite; leave those rows out")
    count = len(x) + len(y)
    way_out = "give a random part of them"
    Budget().require_bytes(32 * count**2, f"distances between {count} rows", way_out)
    return x, y
