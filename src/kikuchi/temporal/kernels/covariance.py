"""Filter and smoother of linear Gaussian state spaces in covariance form.

Outputs come whitened (unit noise), so that each is one scalar measurement: no matrix is inverted in
the filter. Parameters have a leading axis of length 1 (constant) or of the length of the sequence.
Once the covariance stops changing, only means are computed: `steady` holds the first such step.
"""

from __future__ import annotations

import math

import numpy as np

from kikuchi.core.compiled import njit
from kikuchi.temporal.kernels.small import cholesky, solve_rows

_LOG_2PI = math.log(2.0 * math.pi)
_MANTISSA = 1e100  # products of variances are turned into logarithms beyond it


@njit(cache=True, error_model="numpy", fastmath={"contract"}, nogil=True)
def filter_forward(
    a, q, drift, c, which, count, y, mean0, cov0, tol, means, covs, pred_covs, gains
):
    """Means and covariances after each step, into `means` and `covs`; covariances before each step
    into `pred_covs`, if it has room.

    c[which[t], :count] are the whitened rows that are observed at t, y[t] the whitened outputs.
    With tol > 0 and constant parameters the covariances from the step on that is answered are
    those of the step before it. `gains` gets the steady gain of every output.
    Answers (log-likelihood of whitened outputs, steady step or T, failure step or -1).
    """
    steps, n = means.shape
    m, p = np.empty(n), np.empty((n, n))
    work, old = np.empty((n, n)), np.empty((n, n))
    pc = np.empty(n)
    m[:] = mean0
    p[:] = cov0
    whole_a, whole_q, whole_b = len(a) > 1, len(q) > 1, len(drift) > 1
    constant = not whole_a and not whole_q and len(c) == 1
    log_likelihood, product, outputs = 0.0, 1.0, 0
    for t in range(steps):
        if t > 0:
            at, qt = a[t if whole_a else 0], q[t if whole_q else 0]
            bt = drift[t if whole_b else 0]
            for i in range(n):
                s = bt[i]
                for k in range(n):
                    s += at[i, k] * m[k]
                pc[i] = s
            m[:] = pc
            for i in range(n):
                for j in range(n):
                    s = 0.0
                    for k in range(n):
                        s += at[i, k] * p[k, j]
                    work[i, j] = s
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
                x = 0.0
                for k in range(n):
                    x += p[i, k] * ct[o, k]
                pc[i] = x
                s += ct[o, i] * x
                e -= ct[o, i] * m[i]
            if not s > 0.0:
                return log_likelihood, steps, t
            inverse = 1.0 / s
            gain = e * inverse
            log_likelihood -= 0.5 * e * gain
            product *= s
            outputs += 1
            if product > _MANTISSA:
                log_likelihood -= 0.5 * math.log(product)
                product = 1.0
            for i in range(n):
                m[i] += pc[i] * gain
                x = pc[i] * inverse
                for j in range(i + 1):
                    p[i, j] -= x * pc[j]
                    p[j, i] = p[i, j]
        means[t] = m
        covs[t] = p
        if constant and tol > 0.0 and t > 0:
            largest, change = 0.0, 0.0
            for i in range(n):
                largest = max(largest, abs(p[i, i]))
                for j in range(i + 1):
                    change = max(change, abs(p[i, j] - old[i, j]))
            if change <= tol * largest:
                log_likelihood -= 0.5 * (math.log(product) + outputs * _LOG_2PI)
                log_likelihood += _steady(
                    t + 1, a[0], q[0], drift, c[0], count[0], y, p, means, gains
                )
                return log_likelihood, t + 1, -1
        if tol > 0.0:
            old[:] = p
    log_likelihood -= 0.5 * (math.log(product) + outputs * _LOG_2PI)
    return log_likelihood, steps, -1


@njit(cache=True, error_model="numpy", fastmath={"contract"}, nogil=True)
def _steady(first, a, q, drift, c, count, y, p_start, means, gains):
    """Means from step `first` on with the gains of the covariance p_start before it."""
    steps, n = means.shape
    p, work, pc = np.empty((n, n)), np.empty((n, n)), np.empty(n)
    for i in range(n):
        for j in range(n):
            s = 0.0
            for k in range(n):
                s += a[i, k] * p_start[k, j]
            work[i, j] = s
    for i in range(n):
        for j in range(n):
            s = q[i, j]
            for k in range(n):
                s += work[i, k] * a[j, k]
            p[i, j] = s
    scale, log_scale = np.empty(count), 0.0
    for o in range(count):
        s = 1.0
        for i in range(n):
            x = 0.0
            for k in range(n):
                x += p[i, k] * c[o, k]
            pc[i] = x
            s += c[o, i] * x
        scale[o] = 1.0 / s
        log_scale += math.log(s)
        for i in range(n):
            gains[o, i] = pc[i] / s
            for j in range(n):
                p[i, j] -= gains[o, i] * pc[j]
    log_likelihood = -0.5 * (steps - first) * (log_scale + count * _LOG_2PI)
    whole_b = len(drift) > 1
    m = np.empty(n)
    for t in range(first, steps):
        bt, before = drift[t if whole_b else 0], means[t - 1]
        for i in range(n):
            s = bt[i]
            for k in range(n):
                s += a[i, k] * before[k]
            m[i] = s
        for o in range(count):
            e = y[t, o]
            for i in range(n):
                e -= c[o, i] * m[i]
            log_likelihood -= 0.5 * e * e * scale[o]
            for i in range(n):
                m[i] += gains[o, i] * e
        for i in range(n):
            means[t, i] = m[i]
    return log_likelihood


@njit(cache=True, error_model="numpy", fastmath={"contract"}, nogil=True)
def smooth_backward(a, drift, means, covs, pred_covs, first, tol, out, out_covs, pairs):
    """Means, covariances and covariances of neighbours given all outputs, by the RTS recursion.

    pairs[t] = Cov(x_t, x_t+1). From step `first` on the filter is steady: covs and pred_covs are
    those of step first - 1. Answers (low, high, failure step or -1): covariances of steps
    low <= t < high equal those of step `high` and are not written.
    """
    steps, n = means.shape
    space = np.empty((4, n, n))
    gain, factor, v, work = space[0], space[1], space[2], space[3]
    whole_a = len(a) > 1
    out[steps - 1] = means[steps - 1]
    v[:] = covs[min(steps, first) - 1]
    out_covs[steps - 1] = v
    low, high = 0, 0
    for t in range(steps - 2, -1, -1):
        at = a[t + 1 if whole_a else 0]
        if high > low and t >= low:
            continue
        p, predicted = covs[min(t, first - 1)], pred_covs[min(t + 1, first - 1)]
        if t < first or t == steps - 2:
            if not cholesky(predicted, factor):
                return low, high, t
            for i in range(n):
                for j in range(n):
                    s = 0.0
                    for k in range(n):
                        s += p[i, k] * at[j, k]
                    gain[i, j] = s
            solve_rows(factor, gain)
        smooth_mean(t, at, drift, gain, means, out)
        change = smooth_covariance(gain, p, predicted, v, work, pairs[t])
        out_covs[t] = v
        if tol > 0.0 and t > first:
            largest = 0.0
            for i in range(n):
                largest = max(largest, v[i, i])
            if change <= tol * largest:
                low, high = first, t
                _steady_smooth_means(low, high, at, drift, gain, means, out)
    return low, high, -1


@njit(cache=True, error_model="numpy", fastmath={"contract"}, nogil=True)
def _steady_smooth_means(low, high, a, drift, gain, means, out):
    """`smooth_mean` of steps high - 1 down to low with one gain: (1 - gain a) now + gain after."""
    n = len(a)
    keep, after, whole_b = np.empty((n, n)), np.empty(n), len(drift) > 1
    for i in range(n):
        for j in range(n):
            s = 1.0 if i == j else 0.0
            for k in range(n):
                s -= gain[i, k] * a[k, j]
            keep[i, j] = s
    for t in range(high - 1, low - 1, -1):
        b = drift[t + 1 if whole_b else 0]
        for k in range(n):
            after[k] = out[t + 1, k] - b[k]
        for i in range(n):
            s, x = 0.0, 0.0
            for k in range(n):
                s += keep[i, k] * means[t, k]
                x += gain[i, k] * after[k]
            out[t, i] = s + x


@njit(cache=True, error_model="numpy", fastmath={"contract"}, nogil=True)
def smooth_mean(t, a, drift, gain, means, out):
    """out[t] = means[t] + gain (out[t+1] - what was predicted from means[t])."""
    n = len(a)
    now, result, after = means[t], out[t], out[t + 1]
    b = drift[t + 1 if len(drift) > 1 else 0]
    for i in range(n):
        result[i] = now[i]
    for k in range(n):
        s = after[k] - b[k]
        for j in range(n):
            s -= a[k, j] * now[j]
        for i in range(n):
            result[i] += gain[i, k] * s


@njit(cache=True, error_model="numpy", fastmath={"contract"}, nogil=True)
def smooth_covariance(gain, p, predicted, v, work, pair):
    """v = p + gain (v - predicted) gain', and pair = gain v with the v before; the largest change
    of v is answered.
    """
    n = len(v)
    for i in range(n):
        for j in range(n):
            s, x = 0.0, 0.0
            for k in range(n):
                s += gain[i, k] * v[k, j]
                x += gain[i, k] * predicted[k, j]
            pair[i, j] = s
            work[i, j] = s - x
    change = 0.0
    for i in range(n):
        for j in range(i + 1):
            s = p[i, j]
            for k in range(n):
                s += work[i, k] * gain[j, k]
            change = max(change, abs(s - v[i, j]))
            v[i, j] = s
            v[j, i] = s
    return change
