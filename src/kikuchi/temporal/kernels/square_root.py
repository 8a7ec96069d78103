"""Filter and smoother on roots of covariances, by reflections of rows that stand below each other.

With L a root of the covariance of the filter, the state is x_t = m_t + L_t z_t, z_t ~ N(0, I). The
reflections of both halves of a step are orthogonal maps between z_t, z_t+1 and independent noise,
and the smoother runs on z alone. A covariance is always a root times its transpose, so that it has
no negative eigenvalues, and none is ever inverted: state and output noise may be singular or zero.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import U4, Array, Ints
from kikuchi.core.compiled import njit
from kikuchi.temporal.kernels.small import forward_solve

_LOG_2PI = math.log(2.0 * math.pi)
_ROUNDING = 1e-14  # deviation of a state that is rounding, relative to what it was computed from
_DETERMINED = 1e-12  # deviation of an output with too few digits for a density, likewise


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def lower_factor(x, rows, more, columns, scale):
    """Turn x[:rows, :columns] by reflections of its columns into a lower triangle, in place; the
    `more` rows below are reflected too.

    A row that depends on those above it, up to the rounding of numbers of size scale[i], gets a
    zero on the diagonal.
    """
    for i in range(min(rows, columns)):
        s = 0.0
        for k in range(i, columns):
            s += x[i, k] * x[i, k]
        norm = math.sqrt(s)
        if not norm > _ROUNDING * scale[i]:
            for k in range(i, columns):
                x[i, k] = 0.0
            continue
        alpha = -norm if x[i, i] > 0.0 else norm
        first = x[i, i] - alpha
        half = s - alpha * x[i, i]  # half the squared length of the reflector
        for r in range(i + 1, rows + more):
            d = first * x[r, i]
            for k in range(i + 1, columns):
                d += x[i, k] * x[r, k]
            d /= half
            x[r, i] -= d * first
            for k in range(i + 1, columns):
                x[r, k] -= d * x[i, k]
        x[i, i] = alpha
        for k in range(i + 1, columns):
            x[i, k] = 0.0


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def _put_product(weights, root, noise, x, at, scale, norms):
    """Write [noise, weights root] into the first rows of x, weights root from column `at` on.

    scale gets the sizes of the terms of each row, norms the lengths of the rows of root.
    """
    n = len(root)
    beside = 0 if at else n
    for k in range(n):
        s = 0.0
        for j in range(n):
            s += root[k, j] * root[k, j]
        norms[k] = math.sqrt(s)
    for i in range(len(weights)):
        s = 0.0
        for j in range(noise.shape[1]):
            x[i, beside + j] = noise[i, j]
            s += noise[i, j] * noise[i, j]
        scale[i] = math.sqrt(s)
        for k in range(n):
            scale[i] += abs(weights[i, k]) * norms[k]
        for j in range(n):
            s = 0.0
            for k in range(n):
                s += weights[i, k] * root[k, j]
            x[i, at + j] = s


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def _put_identity(x, row, column, n):
    """Write the rows [0, I, 0] from `row` on, the identity from `column` on."""
    for i in range(n):
        for j in range(x.shape[1]):
            x[row + i, j] = 0.0
        x[row + i, column + i] = 1.0


class RootChain(NamedTuple):
    """A sequence with roots of all covariances: of the state noise, outputs and first state."""

    a: Array
    q_root: Array
    drift: Array
    c: Array
    r_root: Array
    which: U4
    counts: Ints
    y: Array
    mean0: Array
    root0: Array


class UnsureDeviations(NamedTuple):
    """Deviations that rounding of covariances hides: first state, state noise, outputs."""

    first: Array
    state: Array
    outputs: Array


class RootSteps(NamedTuple):
    """Means and roots of covariances of the filter, and what links each step to the next."""

    means: Array
    roots: Array
    links: Array
    fresh: Array
    shifts: Array


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def root_forward(chain, unsure_deviations, kept):
    """Means and roots of covariances after each step.

    For the smoother, if there is room: z_t = links[t] z_t+1 + shifts[t] + fresh[t] N(0, I), given
    the outputs up to t + 1. Returns (log-likelihood, the step whose outputs have a singular
    covariance or -1).
    """
    a, q_root, drift, c, r_root, which, count, y, mean0, root0 = chain
    unsure0, unsure_q, unsure_r = unsure_deviations
    means, roots, links, fresh, shifts = kept
    steps, n = means.shape
    most = c.shape[1]
    m, centre, e = mean0.copy(), np.empty(n), np.empty(most)
    root = root0.copy()
    wide, block = np.empty((2 * n, 2 * n)), np.empty((most + 2 * n, most + n))
    scale, norms = np.empty(most + n), np.empty(n)
    whole_a, whole_q, whole_b = len(a) > 1, len(q_root) > 1, len(drift) > 1
    more = n if len(links) > 0 else 0
    log_likelihood = 0.0
    for t in range(steps):
        if t > 0:
            at, b = a[t if whole_a else 0], drift[t if whole_b else 0]
            for i in range(n):
                s = b[i]
                for k in range(n):
                    s += at[i, k] * m[k]
                centre[i] = s
            m[:] = centre
            _put_product(at, root, q_root[t if whole_q else 0], wide, 0, scale, norms)
            if more:
                _put_identity(wide, n, 0, n)  # z before, by (z predicted, noise)
            lower_factor(wide, n, more, 2 * n, scale)
            root[:] = wide[:n, :n]
        w = which[t]
        o = count[w]
        ct = c[w]
        for i in range(o):
            e[i] = y[t, i]
            for k in range(n):
                e[i] -= ct[i, k] * m[k]
        unsure = unsure_q[t if whole_q else 0] if t > 0 else unsure0
        _put_product(ct[:o], root, r_root[w, :o, :o], block, o, scale, norms)
        for i in range(n):
            scale[o + i] = norms[i]
            for j in range(n):
                block[o + i, o + j] = root[i, j]
            for j in range(o):
                block[o + i, j] = 0.0
        if more:
            _put_identity(block, o + n, o, n)  # z predicted, by (errors, z after)
        lower_factor(block, o + n, more, o + n, scale)
        for i in range(o):
            limit = max(_DETERMINED * scale[i], unsure_r[w, i])
            for k in range(n):
                limit = max(limit, abs(ct[i, k]) * unsure[k])
            if not abs(block[i, i]) > limit:
                return log_likelihood, t
            log_likelihood -= math.log(abs(block[i, i])) + 0.5 * _LOG_2PI
        forward_solve(block, e[:o])
        for i in range(o):
            log_likelihood -= 0.5 * e[i] * e[i]
        for i in range(n):
            for k in range(o):
                m[i] += block[o + i, k] * e[k]
            for j in range(n):
                root[i, j] = block[o + i, o + j]
        means[t] = m
        roots[t] = root
        if more and t > 0:
            _link(wide, block, o, e, links[t - 1], fresh[t - 1], shifts[t - 1])
    return log_likelihood, -1


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def _link(wide, block, o, e, link, fresh, shift):
    """z before a step by z after it, from the reflected identities below both halves of it."""
    n = len(link)
    for i in range(n):
        s = 0.0
        for k in range(n):
            for h in range(o):
                s += wide[n + i, k] * block[o + n + k, h] * e[h]
            fresh[i, k] = wide[n + i, n + k]
        shift[i] = s
        for j in range(n):
            s = 0.0
            for k in range(n):
                s += wide[n + i, k] * block[o + n + k, o + j]
            link[i, j] = s


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def root_backward(kept, means, covs, pairs):
    """Means, covariances and covariances of neighbours given all outputs: by the mean and a root of
    the covariance of z, which [link root, fresh] gives for the step before.
    """
    filtered, roots, links, fresh, shifts = kept
    steps, n = filtered.shape
    z, z_new, z_root = np.zeros(n), np.zeros(n), np.eye(n)
    wide, scale, norms = np.empty((n, 2 * n)), np.empty(n), np.empty(n)
    space = np.empty((2, n, n))
    now, later = space[0], space[1]  # roots of the smoothed covariances
    for t in range(steps - 1, -1, -1):
        root = roots[t]
        if t < steps - 1:
            for i in range(n):
                s = shifts[t, i]
                for k in range(n):
                    s += links[t, i, k] * z[k]
                z_new[i] = s
            z[:] = z_new
            _put_product(links[t], z_root, fresh[t], wide, 0, scale, norms)
            _product(root, wide, now)
            for i in range(n):
                for j in range(n):
                    s = 0.0
                    for k in range(n):
                        s += now[i, k] * later[j, k]
                    pairs[t, i, j] = s
            lower_factor(wide, n, 0, 2 * n, scale)
            z_root[:] = wide[:, :n]
        _product(root, z_root, now)
        later[:] = now
        for i in range(n):
            s = filtered[t, i]
            for k in range(n):
                s += root[i, k] * z[k]
            means[t, i] = s
            for j in range(i + 1):
                s = 0.0
                for k in range(n):
                    s += now[i, k] * now[j, k]
                covs[t, i, j] = s
                covs[t, j, i] = s


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def _product(one, other, out):
    """out = one other, of whose columns only the first len(one) are used."""
    n = len(one)
    for i in range(n):
        for j in range(n):
            s = 0.0
            for k in range(n):
                s += one[i, k] * other[k, j]
            out[i, j] = s
