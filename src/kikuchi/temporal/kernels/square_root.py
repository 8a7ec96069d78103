"""Filter in square-root covariance form, smoother by adjoint recursions: nothing is ever inverted
but the covariance of the innovations, so that state and output noise may be singular or zero.
"""

from __future__ import annotations

import math

import numpy as np

from kikuchi.core.compiled import njit
from kikuchi.temporal.kernels.small import forward_solve

_LOG_2PI = math.log(2.0 * math.pi)


@njit(cache=True, error_model="numpy")
def lower_factor(x, rows, columns):
    """Turn x[:rows, :columns] by reflections of its columns into a lower triangle, in place."""
    for i in range(min(rows, columns)):
        s = 0.0
        for k in range(i, columns):
            s += x[i, k] * x[i, k]
        norm = math.sqrt(s)
        if norm == 0.0:
            continue
        alpha = -norm if x[i, i] > 0.0 else norm
        first = x[i, i] - alpha
        scale = s - alpha * x[i, i]  # half the squared length of the reflector
        if scale <= 0.0:
            continue
        for r in range(i + 1, rows):
            d = first * x[r, i]
            for k in range(i + 1, columns):
                d += x[i, k] * x[r, k]
            d /= scale
            x[r, i] -= d * first
            for k in range(i + 1, columns):
                x[r, k] -= d * x[i, k]
        x[i, i] = alpha
        for k in range(i + 1, columns):
            x[i, k] = 0.0


@njit(cache=True, error_model="numpy")
def root_forward(
    a, q_root, drift, c, r_root, which, count, y, mean0, root0,
    means, roots, pred_means, pred_roots, updates, pulls, infos
):  # fmt: skip
    """Means and roots of covariances before and after each step.

    For the smoother, if there is room: updates[t] = I - K C, pulls[t] = C' S^-1 e and infos[t] =
    C' S^-1 C of each step. Answers (log-likelihood, failure step or -1).
    """
    steps, n = means.shape
    most = c.shape[1]
    m, centre = mean0.copy(), np.empty(n)
    root = root0.copy()
    wide = np.empty((n, 2 * n))
    block = np.empty((most + n, most + n))
    e = np.empty(most)
    solved = np.empty((n, most))  # rows: S^-T-solved columns of C
    whole_a, whole_q, whole_b = len(a) > 1, len(q_root) > 1, len(drift) > 1
    keep = len(updates) > 0
    log_likelihood, smallest = 0.0, 1e-150
    for t in range(steps):
        if t > 0:
            at, qt = a[t if whole_a else 0], q_root[t if whole_q else 0]
            b = drift[t if whole_b else 0]
            for i in range(n):
                s = b[i]
                for k in range(n):
                    s += at[i, k] * m[k]
                centre[i] = s
                for j in range(n):
                    x = 0.0
                    for k in range(n):
                        x += at[i, k] * root[k, j]
                    wide[i, j] = x
                    wide[i, n + j] = qt[i, j]
            m[:] = centre
            lower_factor(wide, n, 2 * n)
            root[:] = wide[:, :n]
        pred_means[t] = m
        pred_roots[t] = root
        w = which[t]
        o = count[w]
        ct, rt = c[w], r_root[w]
        for i in range(o):
            e[i] = y[t, i]
            for k in range(n):
                e[i] -= ct[i, k] * m[k]
            for j in range(o):
                block[i, j] = rt[i, j]
            for j in range(n):
                x = 0.0
                for k in range(n):
                    x += ct[i, k] * root[k, j]
                block[i, o + j] = x
        for i in range(n):
            for j in range(o):
                block[o + i, j] = 0.0
            for j in range(n):
                block[o + i, o + j] = root[i, j]
        lower_factor(block, o + n, o + n)
        for i in range(o):
            if not abs(block[i, i]) > smallest:
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
        if keep:
            for k in range(n):
                for i in range(o):
                    solved[k, i] = ct[i, k]
                forward_solve(block, solved[k, :o])
            for i in range(n):
                s = 0.0
                for h in range(o):
                    s += solved[i, h] * e[h]
                pulls[t, i] = s
                for k in range(n):
                    s, x = 0.0, 1.0 if i == k else 0.0
                    for h in range(o):
                        s += solved[i, h] * solved[k, h]
                        x -= block[o + i, h] * solved[k, h]
                    infos[t, i, k] = s
                    updates[t, i, k] = x
    return log_likelihood, -1


@njit(cache=True, error_model="numpy")
def root_backward(a, pred_means, pred_roots, updates, pulls, infos, means, covs, pairs):
    """Means, covariances and covariances of neighbours given all outputs.

    With r and N the score of the later outputs and its covariance at the predicted state,
    mean = m + P r, covariance = P - P N P, Cov(x_t, x_t+1) = P_t F_t' A' (I - N_t+1 P_t+1).
    """
    steps, n = pred_means.shape
    r, r_new = np.zeros(n), np.zeros(n)
    space = np.zeros((6, n, n))
    big, later, p, p_later, work, one = space[0], space[1], space[2], space[3], space[4], space[5]
    whole_a = len(a) > 1
    for t in range(steps - 1, -1, -1):
        root, f = pred_roots[t], updates[t]
        p[:] = root @ root.T
        if t < steps - 1:
            at = a[t + 1 if whole_a else 0]
            af = at @ f  # state at t + 1 by the predicted state at t
            later[:] = np.eye(n) - big @ p_later
            pairs[t] = p @ af.T @ later
            r_new[:] = pulls[t] + af.T @ r
            work[:] = infos[t] + af.T @ big @ af
        else:
            r_new[:] = pulls[t]
            work[:] = infos[t]
        r[:] = r_new
        big[:] = 0.5 * (work + work.T)
        means[t] = pred_means[t] + p @ r
        one[:] = np.eye(n) - root.T @ big @ root
        covs[t] = root @ one @ root.T
        p_later[:] = p
    return True
