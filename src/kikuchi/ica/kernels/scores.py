"""Gradients of the log-likelihood of every sample, from the moments of its sources."""

from __future__ import annotations

import numpy as np

from kikuchi.core.compiled import njit
from kikuchi.engines.sites.kernels.half_line import FAST


@njit(cache=True, error_model="numpy", fastmath=FAST)
def sample_scores(residuals, observed, stretched_x, stretched_mixing, mean, second, own, scores):
    """Gradients of log p(x) of every sample (n, D I + noise): in the mixing, after the linear map
    that `stretched_x` (D, n) and `stretched_mixing` have passed, and in the log variances.

    All are in units of the noise; `residuals` (n, D) are the mean squares that sources leave of
    each channel. `observed` (D, n) has no rows if nothing is missing, else the map must be the
    identity. `own` tells whether each channel has a variance of its own; without it there is one,
    or none is learned if `scores` has no room.
    """
    channels, total = stretched_x.shape
    count = stretched_mixing.shape[1]
    noise = scores.shape[1] - channels * count
    product = np.empty(count)
    for n in range(total):
        for c in range(noise):
            scores[n, channels * count + c] = 0.0
        for d in range(channels):
            at = d * count
            seen = observed.shape[0] == 0 or observed[d, n]
            if not seen:
                for i in range(count):
                    scores[n, at + i] = 0.0
                continue
            value = stretched_x[d, n]
            for i in range(count):
                product[i] = value * mean[i, n]
            for j in range(count):
                value, row = stretched_mixing[d, j], second[n, j]
                for i in range(count):
                    product[i] -= value * row[i]
            for i in range(count):
                scores[n, at + i] = product[i]
            if noise:
                scores[n, channels * count + (d if own else 0)] += 0.5 * (residuals[n, d] - 1.0)
