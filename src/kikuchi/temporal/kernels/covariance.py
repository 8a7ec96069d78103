"""Filter and smoother of linear Gaussian state spaces in covariance form.

Outputs come whitened (unit noise), so that each is one scalar measurement: no matrix is inverted in
the filter. Parameters have a leading axis of length 1 (constant) or of the length of the sequence.
Once the covariance stops changing, only means are computed: `steady` holds the first such step.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.compiled import njit
from kikuchi.core.copying import copy_into, copy_matrix
from kikuchi.temporal.kernels.small import (
    affine_into,
    along_into,
    cholesky,
    product_into,
    residual_into,
    sandwich_into,
    solve_rows,
)

_LOG_2PI = math.log(2.0 * math.pi)
_FORGOTTEN = 1e-36  # squared weight of a far state, in units of standard deviations
_MANTISSA = 1e100  # products of variances are turned into logarithms beyond it


class FilteredSteps(NamedTuple):
    """Means and covariances after each step, and covariances before it, which may lack room."""

    means: Array
    covs: Array
    pred_covs: Array


class StepsGivenAll(NamedTuple):
    """Means and covariances given all outputs, and covariances of neighbours."""

    means: Array
    covs: Array
    pairs: Array


@njit(cache=True, error_model="numpy", fastmath={"contract"}, nogil=True)
def filter_forward(chain, tol, filtered, weights, pull, information):
    """Means and covariances after each step, and covariances before it, into `filtered`.

    Of `chain`, a `WhiteChain`, c[which[t], :count] are the whitened rows that are observed at
    t, y[t] the whitened outputs.
    With tol > 0 and constant parameters the covariances from the step on that is answered are
    those of the step before it, and need no room: `covs` may then be shorter than `means`.

    With `weights` (n, n) the first state is the unknown state x before the sequence by these
    weights, plus mean0. Then means[t] + weights x is the mean of the last step done t, and the
    log-likelihood has pull' x - x' information x / 2 beside that of x = 0, which is answered. It
    ends early once x is forgotten; weights are then zero.

    Answers (log-likelihood of whitened outputs, first steady step or number of steps done or 0 if
    the room did not suffice, failure step or -1).
    """
    a, q, drift, c, which, count, y, mean0, cov0 = chain
    means, covs, pred_covs = filtered
    steps, n = means.shape
    m, p = np.empty(n), np.empty((n, n))
    work, old = np.empty((n, n)), np.empty((n, n))
    pc = np.empty(n)
    copy_into(m, 0, mean0, 0, n)
    copy_matrix(p, cov0)
    every_a, every_q, every_b = stride(a), stride(q), stride(drift)
    constant = len(a) == 1 and len(q) == 1 and len(c) == 1
    tracked = len(weights) > 0
    log_likelihood, product, outputs = 0.0, 1.0, 0
    for t in range(len(covs)):
        if t > 0:
            at, qt, bt = a[t * every_a], q[t * every_q], drift[t * every_b]
            affine_into(bt, at, m, pc)
            copy_into(m, 0, pc, 0, n)
            sandwich_into(qt, at, p, work, p)
            if tracked:
                product_into(at, weights, work)
                copy_matrix(weights, work)
        if len(pred_covs) > 0:
            copy_matrix(pred_covs[t], p)
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
            if tracked:
                _track_output(ct[o], pc, inverse, gain, weights, pull, information, work)
        copy_into(means[t], 0, m, 0, n)
        copy_matrix(covs[t], p)
        if tracked and forgotten(weights, p):
            weights[:] = 0.0
            log_likelihood -= 0.5 * (math.log(product) + outputs * _LOG_2PI)
            return log_likelihood, t + 1, -1
        if constant and tol > 0.0 and t > 0:
            largest, change = 0.0, 0.0
            for i in range(n):
                largest = max(largest, abs(p[i, i]))
                for j in range(i + 1):
                    change = max(change, abs(p[i, j] - old[i, j]))
            if change <= tol * largest:
                log_likelihood -= 0.5 * (math.log(product) + outputs * _LOG_2PI)
                log_likelihood += _steady(t + 1, chain, p, means)
                return log_likelihood, t + 1, -1
        if tol > 0.0:
            copy_matrix(old, p)
    log_likelihood -= 0.5 * (math.log(product) + outputs * _LOG_2PI)
    return log_likelihood, steps if len(covs) == steps else 0, -1


@njit(cache=True, error_model="numpy", inline="always")
def stride(parameter):
    """Rows of a parameter per step: 0 if it is constant, 1 if it varies.

    A product with it picks the row of a step. With a condition instead, the compiler would write
    the whole loop once for each combination of conditions.
    """
    return int(len(parameter) > 1)


@njit(cache=True, error_model="numpy", fastmath={"contract"}, nogil=True)
def _track_output(row, pc, inverse, gain, weights, pull, information, work):
    """What one whitened output tells of the state before the sequence, and leaves of its weights;
    pc is the covariance of the state with the output, of variance 1 / inverse.
    """
    n = len(row)
    h = work[0]
    for j in range(n):
        s = 0.0
        for k in range(n):
            s += row[k] * weights[k, j]
        h[j] = s
    for i in range(n):
        pull[i] += h[i] * gain
        for j in range(n):
            information[i, j] += h[i] * h[j] * inverse
            weights[i, j] -= pc[i] * inverse * h[j]


@njit(cache=True, error_model="numpy", nogil=True)
def forgotten(weights, p):
    """Whether a state's weight in each coordinate is negligible, coordinates in units of p."""
    n = len(p)
    for i in range(n):
        for j in range(n):
            if weights[i, j] * weights[i, j] * p[j, j] > _FORGOTTEN * p[i, i]:
                return False
    return True


@njit(cache=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"}, nogil=True)
def _steady(first, chain, p_start, means):
    """Means from step `first` on with the gains of the covariance p_start before it.

    A step waits for one product with the mean before it and for nothing else: see `_steady_maps`.
    Answers the log-likelihood of these steps.
    """
    drift, y, count = chain.drift, chain.y, chain.counts[0]
    steps, n = means.shape
    maps, errors, log_scale = _steady_maps(chain.a[0], chain.q[0], chain.c[0], count, p_start)
    keep, moved, taken = maps[:, :n], maps[:, n : 2 * n], maps[:, 2 * n :]
    whole_b, squares = len(drift) > 1, 0.0
    shift, error = np.empty(n), np.empty(count)
    for t in range(first, steps):
        before, now, row = means[t - 1], means[t], y[t]
        if whole_b or t == first:
            b = drift[t if whole_b else 0]
            for i in range(n):
                s = 0.0
                for k in range(n):
                    s += moved[i, k] * b[k]
                shift[i] = s
            for o in range(count):
                s = 0.0
                for k in range(n):
                    s += errors[o, n + k] * b[k]
                error[o] = s
        for i in range(n):
            s, x = shift[i], 0.0
            for o in range(count):
                s += taken[i, o] * row[o]
            for k in range(n):
                x += keep[i, k] * before[k]
            now[i] = s + x
        for o in range(count):
            e = error[o]
            for j in range(o + 1):
                e += errors[o, 2 * n + j] * row[j]
            for k in range(n):
                e += errors[o, k] * before[k]
            squares += e * e
    return -0.5 * (squares + (steps - first) * (log_scale + count * _LOG_2PI))


@njit(cache=True, error_model="numpy", fastmath={"contract"}, nogil=True)
def _steady_maps(a, q, c, count, p_start):
    """One step after the covariance p_start as a linear map of z = (mean before, drift, outputs).

    Answers the matrix (n, 2 n + count) of the new mean, that of the errors of the outputs over
    their standard deviations (count, 2 n + count), and the sum of the logarithms of their
    variances.
    """
    n = len(a)
    p, work, pc = np.empty((n, n)), np.empty((n, n)), np.empty(n)
    maps, errors, log_scale = np.zeros((n, 2 * n + count)), np.zeros((count, 2 * n + count)), 0.0
    copy_matrix(maps, a)
    sandwich_into(q, a, p_start, work, p)
    for i in range(n):
        maps[i, n + i] = 1.0
    for o in range(count):
        s = 1.0 + along_into(p, c[o], pc)
        log_scale += math.log(s)
        errors[o, 2 * n + o] = 1.0
        for k in range(n):
            for j in range(2 * n + count):
                errors[o, j] -= c[o, k] * maps[k, j]
        for i in range(n):
            gain = pc[i] / s
            for j in range(n):
                p[i, j] -= gain * pc[j]
            for j in range(2 * n + count):
                maps[i, j] += gain * errors[o, j]
        for j in range(2 * n + count):
            errors[o, j] /= math.sqrt(s)
    return maps, errors, log_scale


@njit(cache=True, error_model="numpy", nogil=True)
def smooth_backward(a, drift, filtered, first, tol, smoothed):
    """Means, covariances and covariances of neighbours given all outputs, by the RTS recursion.

    pairs[t] = Cov(x_t, x_t+1). From step `first` on the filter is steady: its covariances are those
    of step first - 1. The smoothed covariances and pairs may lack the same number of steps, `gap`:
    step t >= first is then in row t - gap.

    Answers (low, high, whether the room sufficed, failure step or -1): covariances of steps
    low <= t < high equal those of step `high` and are not written.
    """
    means, covs, pred_covs = filtered
    out, out_covs, pairs = smoothed
    steps, n = means.shape
    space = np.empty((4, n, n))
    gain, factor, v, work = space[0], space[1], space[2], space[3]
    every_a, gap = stride(a), steps - len(out_covs)
    copy_into(out[steps - 1], 0, means[steps - 1], 0, out.shape[1])
    copy_matrix(v, covs[min(steps, first) - 1])
    copy_matrix(out_covs[steps - 1 - gap], v)
    low, high = 0, 0
    for t in range(steps - 2, -1, -1):
        at = a[(t + 1) * every_a]
        if high > low and t >= low:
            continue
        row = t if t < first else t - gap
        if t >= first and row < first:
            return low, high, False, -1
        p, predicted = covs[min(t, first - 1)], pred_covs[min(t + 1, first - 1)]
        if t < first or t == steps - 2:
            if not cholesky(predicted, factor):
                return low, high, True, t
            product_into(p, at.T, gain)
            solve_rows(factor, gain)
        smooth_mean(t, at, drift, gain, means, out)
        change = smooth_covariance(gain, p, predicted, v, work, pairs[row])
        copy_matrix(out_covs[row], v)
        if tol > 0.0 and t > first:
            largest = 0.0
            for i in range(n):
                largest = max(largest, v[i, i])
            if change <= tol * largest:
                low, high = first, t
                _steady_smooth_means(low, high, at, drift, gain, means, out)
    return low, high, True, -1


@njit(cache=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"}, nogil=True)
def _steady_smooth_means(low, high, a, drift, gain, means, out):
    """`smooth_mean` of steps high - 1 down to low with one gain:
    (1 - gain a) now + gain (after - b).
    """
    n = len(a)
    keep, shift, whole_b = np.empty((n, n)), np.empty(n), len(drift) > 1
    residual_into(gain, a, keep)
    for t in range(high - 1, low - 1, -1):
        now, after, result = means[t], out[t + 1], out[t]
        if whole_b or t == high - 1:
            b = drift[t + 1 if whole_b else 0]
            for i in range(n):
                s = 0.0
                for k in range(n):
                    s -= gain[i, k] * b[k]
                shift[i] = s
        for i in range(n):
            s, x = shift[i], 0.0
            for k in range(n):
                s += keep[i, k] * now[k]
            for k in range(n):
                x += gain[i, k] * after[k]
            result[i] = s + x


@njit(cache=True, error_model="numpy", fastmath={"contract"}, nogil=True)
def smooth_mean(t, a, drift, gain, means, out):
    """out[t] = means[t] + gain (out[t+1] - what was predicted from means[t])."""
    n = len(a)
    now, result, after = means[t], out[t], out[t + 1]
    b = drift[(t + 1) * stride(drift)]
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
