"""Two samples of the same law? Maximum mean discrepancy and the nearest-neighbour test.

Reference: LIU-M16.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist

from kikuchi.core.arrays import Array
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
    """Squared maximum mean discrepancy, unbiased, with a Gaussian kernel of the median distance.

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
    kernel = np.exp(-squares / np.median(squares[np.triu_indices(len(rows), 1)]))
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

    `one` and `other` are the samples and must have the same number of rows; the p-value is
    one-sided, by the normal law with the variance 1 / (4 n) of n independent rows, widened by half
    for rows that are each other's neighbours.

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
    own = np.arange(len(rows)) < len(x)
    share = float(np.mean(own[np.argmin(distances, axis=1)] == own))
    mean = (len(x) - 1) / (len(rows) - 1)
    deviation = float(np.sqrt(1.5 * 0.25 / len(rows)))
    return TwoSampleTest(share, mean, deviation, float(ndtr(-(share - mean) / deviation)))


def _samples(one: ArrayLike, other: ArrayLike) -> tuple[Array, Array]:
    x, y = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or min(len(x), len(y)) < 2:
        raise DataError(
            f"samples of shapes {x.shape} and {y.shape}; give two tables of at least 2 rows and "
            "the same columns"
        )
    return x, y
