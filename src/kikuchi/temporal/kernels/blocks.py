"""Filter and smoother of one block of a long sequence whose neighbours are not known yet.

A block begins (the filter) or ends (the smoother) at a state that is taken as zero without
uncertainty, and what the answers owe to it is tracked until it is negligible. Blocks so run beside
each other, and only their first steps are run again once their neighbours are known.
"""

from __future__ import annotations

import math

import numpy as np

from kikuchi.core.compiled import njit
from kikuchi.temporal.kernels.covariance import smooth_covariance, smooth_mean
from kikuchi.temporal.kernels.small import cholesky, solve_rows

_LOG_2PI = math.log(2.0 * math.pi)
_FORGOTTEN = 1e-36  # squared weight of a far state, in units of standard deviations


@njit(cache=True, error_model="numpy", nogil=True)
def _forgotten(weights, p):
    """Whether a state's weight in each coordinate is negligible, coordinates in units of p."""
    n = len(p)
    for i in range(n):
        for j in range(n):
            if weights[i, j] * weights[i, j] * p[j, j] > _FORGOTTEN * p[i, i]:
                return False
    return True


@njit(cache=True, error_model="numpy", fastmath={"contract"}, nogil=True)
def filter_tracked(
    a, q, drift, c, which, count, y, means, covs, pred_covs, weights, pull, information
):
    """Filter of a block after a state x that is taken as zero.

    Its last mean is `means[k - 1] + weights x`, and the log-likelihood of its outputs that of
    x = 0 plus pull' x - x' information x / 2. Parameters as of `filter_forward`, those that vary
    cut to the block. Answers (log-likelihood for x = 0, steps done k, failure step or -1): it ends
    early once x is forgotten.
    """
    steps, n = means.shape
    m, p = np.zeros(n), np.zeros((n, n))
    work, turned = np.empty((n, n)), np.empty((n, n))
    pc, h = np.empty(n), np.empty(n)
    weights[:] = np.eye(n)
    pull[:] = 0.0
    information[:] = 0.0
    log_likelihood = 0.0
    for t in range(steps):
        at, qt = a[t if len(a) > 1 else 0], q[t if len(q) > 1 else 0]
        bt = drift[t if len(drift) > 1 else 0]
        for i in range(n):
            s = bt[i]
            for k in range(n):
                s += at[i, k] * m[k]
            pc[i] = s
            for j in range(n):
                x, z = 0.0, 0.0
                for k in range(n):
                    x += at[i, k] * p[k, j]
                    z += at[i, k] * weights[k, j]
                work[i, j] = x
                turned[i, j] = z
        m[:] = pc
        weights[:] = turned
        for i in range(n):
            for j in range(i + 1):
                s = qt[i, j]
                for k in range(n):
                    s += work[i, k] * at[j, k]
                p[i, j] = s
                p[j, i] = s
        if len(pred_covs) > 0:
            pred_covs[t] = p
        w = which[t]
        ct = c[w]
        for o in range(count[w]):
            s, e = 1.0, y[t, o]
            for i in range(n):
                x, z = 0.0, 0.0
                for k in range(n):
                    x += p[i, k] * ct[o, k]
                    z += ct[o, k] * weights[k, i]
                pc[i] = x
                h[i] = z
                s += ct[o, i] * x
                e -= ct[o, i] * m[i]
            if not s > 0.0:
                return log_likelihood, t, t
            inverse = 1.0 / s
            log_likelihood -= 0.5 * (e * e * inverse + math.log(s) + _LOG_2PI)
            for i in range(n):
                m[i] += pc[i] * e * inverse
                pull[i] += h[i] * e * inverse
                for j in range(n):
                    information[i, j] += h[i] * h[j] * inverse
                    weights[i, j] -= pc[i] * inverse * h[j]
                for j in range(i + 1):
                    p[i, j] -= pc[i] * inverse * pc[j]
                    p[j, i] = p[i, j]
        means[t] = m
        covs[t] = p
        if _forgotten(weights, p):
            weights[:] = 0.0
            return log_likelihood, t + 1, -1
    return log_likelihood, steps, -1


@njit(cache=True, error_model="numpy", fastmath={"contract"}, nogil=True)
def smooth_span(a, drift, means, covs, pred_covs, low, v, weights, out, out_covs, pairs):
    """Smoother of a block from its end down to step low, after a state beyond its end whose mean is
    the last row of `out` and whose covariance is v.

    `out`, `pred_covs`, and `a` and `drift` where they vary, have one row more than `means`. With
    `weights` (n, n) the part of the state beyond in the answers is tracked, and the loop ends early
    once it is forgotten. v gets the covariance of the last step done. Answers (that step, failure
    step or -1).
    """
    steps = len(means)
    n = means.shape[1]
    space = np.empty((4, n, n))
    gain, factor, work, turned = space[0], space[1], space[2], space[3]
    tracked = len(weights) > 0
    if tracked:
        weights[:] = np.eye(n)
    for t in range(steps - 1, low - 1, -1):
        at = a[t + 1 if len(a) > 1 else 0]
        if not cholesky(pred_covs[t + 1], factor):
            return t, t
        for i in range(n):
            for j in range(n):
                s = 0.0
                for k in range(n):
                    s += covs[t, i, k] * at[j, k]
                gain[i, j] = s
        solve_rows(factor, gain)
        smooth_mean(t, at, drift, gain, means, out)
        smooth_covariance(gain, covs[t], pred_covs[t + 1], v, work, pairs[t])
        out_covs[t] = v
        if tracked:
            for i in range(n):
                for j in range(n):
                    s = 0.0
                    for k in range(n):
                        s += gain[i, k] * weights[k, j]
                    turned[i, j] = s
            weights[:] = turned
            if _forgotten(weights, v):
                weights[:] = 0.0
                return t, -1
    return low, -1
