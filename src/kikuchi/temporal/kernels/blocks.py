"""Smoother of one block of a long sequence whose next block is not known yet.

A block ends at a state that is taken as zero without uncertainty, and what the answers owe to it is
tracked until it is negligible; `filter_forward` does the same from the other side. Blocks so run
beside each other, and only their last steps are run again once their neighbours are known.
"""

from __future__ import annotations

import numpy as np

from kikuchi.core.compiled import njit
from kikuchi.temporal.kernels.covariance import forgotten, smooth_covariance, smooth_mean, stride
from kikuchi.temporal.kernels.small import cholesky, product_into, solve_rows


@njit(cache=True, error_model="numpy", nogil=True)
def smooth_span(a, drift, filtered, low, v, weights, smoothed):
    """Smoother of a block from its end down to step low, after a state beyond its end whose mean is
    the last of `smoothed` and whose covariance is v.

    Smoothed means, predicted covariances, and `a` and `drift` where they vary, have one row more
    than filtered means. With `weights` (n, n) the part of the state beyond in the
    answers is tracked, and the loop ends early once it is forgotten. v gets the covariance of the
    last step done. Returns (that step, failure step or -1).
    """
    means, covs, pred_covs = filtered
    out, out_covs, pairs = smoothed
    steps = len(means)
    n = means.shape[1]
    space = np.empty((4, n, n))
    gain, factor, work, turned = space[0], space[1], space[2], space[3]
    tracked, every_a = len(weights) > 0, stride(a)
    if tracked:
        weights[:] = np.eye(n)
    for t in range(steps - 1, low - 1, -1):
        at = a[(t + 1) * every_a]
        if not cholesky(pred_covs[t + 1], factor):
            return t, t
        product_into(covs[t], at.T, gain)
        solve_rows(factor, gain)
        smooth_mean(t, at, drift, gain, means, out)
        smooth_covariance(gain, covs[t], pred_covs[t + 1], v, work, pairs[t])
        out_covs[t] = v
        if tracked:
            product_into(gain, weights, turned)
            weights[:] = turned
            if forgotten(weights, v):
                weights[:] = 0.0
                return t, -1
    return low, -1
