"""Diagnostics of Markov chain averages: split R-hat and effective sample size.

Both compare several chains, each split in half, so that a drift within a chain is detected as well
as a difference between chains. With m halves of n draws, W the mean of the variances in the halves
and B / n the variance of their means, the pooled variance is V = (n - 1) / n W + B / n.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.errors import MethodError

MIN_DRAWS = 4


def split_rhat(draws: ArrayLike) -> Array:
    """Return sqrt(V / W) of draws shaped (chains, draws, ...), which is near 1 if the chains agree.

    If all draws of each half are equal, it is 1 where the halves agree and infinite where they
    differ.

    >>> float(split_rhat(np.tile([0.0, 1.0], (4, 50))[..., None]).round(2)[0])
    0.99
    """
    halves = _halves(draws)
    within, pooled = _variances(halves)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.sqrt(pooled / within)
    return np.where(within > 0, ratio, np.where(pooled > 0, np.inf, 1.0))


def effective_sample_size(draws: ArrayLike) -> Array:
    """Return the number of independent draws equivalent to draws shaped (chains, draws, ...).

    m n / tau with tau = -1 + 2 sum_k P_k, where P_k is the sum of the autocorrelations at lags
    2k and 2k + 1, pooled over the halves, taken while positive and made non-increasing (Geyer's
    initial monotone sequence). Antithetic chains can exceed the number of draws; the excess is
    limited to a factor log10(m n). If all draws are equal, it is the number of draws.

    >>> rng = np.random.default_rng(0)
    >>> 3000 < float(effective_sample_size(rng.normal(size=(4, 1000)))) < 5000
    True
    """
    halves = _halves(draws)
    shape = halves.shape[2:]
    within, pooled = (x.ravel() for x in _variances(halves))
    m, n = halves.shape[:2]
    centred = (halves - halves.mean(axis=1, keepdims=True)).reshape(m, n, -1)
    tau = np.full(len(within), -1.0)
    active = np.flatnonzero(pooled > 0)
    centred = centred[:, :, active]
    previous = np.full(len(active), np.inf)
    for lag in range(0, n - 1, 2):
        first = 1.0 if lag == 0 else _correlation(centred, lag, within[active], pooled[active])
        second = _correlation(centred, lag + 1, within[active], pooled[active])
        pair = np.minimum(first + second, previous)
        positive = pair > 0
        active, centred, previous = active[positive], centred[:, :, positive], pair[positive]
        if not len(active):
            break
        tau[active] += 2.0 * previous
    tau[pooled == 0] = 1.0
    tau = np.maximum(tau, 1.0 / np.log10(m * n))
    return np.asarray((m * n / tau).reshape(shape))


def _halves(draws: ArrayLike) -> Array:
    x = np.asarray(draws, dtype=np.float64)
    if x.ndim < 2 or x.shape[1] < MIN_DRAWS:
        raise MethodError(
            f"diagnostics need draws shaped (chains, draws, ...) with at least {MIN_DRAWS} draws, "
            f"got shape {x.shape}"
        )
    half = x.shape[1] // 2
    return np.concatenate([x[:, :half], x[:, -half:]])


def _variances(halves: Array) -> tuple[Array, Array]:
    """Return W, the mean variance within the halves, and V, the pooled estimate."""
    n = halves.shape[1]
    within = halves.var(axis=1, ddof=1).mean(axis=0)
    between = halves.mean(axis=1).var(axis=0, ddof=1)
    return within, (n - 1) / n * within + between


def _correlation(centred: Array, lag: int, within: Array, pooled: Array) -> Array:
    """Return the autocorrelation at one lag, pooled over the halves: 1 - (W - autocovariance) /
    V.
    """
    m, n = centred.shape[:2]
    products = np.einsum("mtk,mtk->k", centred[:, : n - lag], centred[:, lag:])
    return np.asarray(1.0 - (within - products / (m * n)) / pooled)
