"""Linear response covariances of many samples at once, without ever dividing by v.

    chi = V^1/2 K^-1 V^1/2,   K = 1 + V^1/2 (J - diag lam) V^1/2,   V = diag v.

K is symmetric and is factored by Cholesky, for a block of samples side by side so that the inner
loops run over them. Where K is not positive definite, chi = diag v and the sample is marked.

Reference: HOJ-I18.
"""

from __future__ import annotations

import math

import numpy as np

from kikuchi.core.compiled import njit

BLOCK = 16
_LEAST_PIVOT = 1e-12


@njit(cache=True, error_model="numpy")
def _build(couplings, lam, v, start, width, root, work):
    """K of a block in the lower triangle of `work`; unused places get the identity."""
    count = lam.shape[0]
    shared = couplings.shape[0] == 1
    for i in range(count):
        for b in range(BLOCK):
            root[i, b] = math.sqrt(v[i, start + b]) if b < width else 0.0
        for j in range(i):
            if shared:
                value = couplings[0, i, j]
                for b in range(BLOCK):
                    work[i, j, b] = root[i, b] * value * root[j, b]
            else:
                for b in range(BLOCK):
                    n = start + min(b, width - 1)
                    work[i, j, b] = root[i, b] * couplings[n, i, j] * root[j, b]
        for b in range(BLOCK):
            n = start + min(b, width - 1)
            own = couplings[0 if shared else n, i, i]
            work[i, i, b] = 1.0 + root[i, b] * root[i, b] * (own - lam[i, n])


@njit(cache=True, error_model="numpy")
def _factor(work, fine, product, log_det):
    """Cholesky in place, with 1 / l_jj on the diagonal; log det and what was definite."""
    count = work.shape[0]
    for b in range(BLOCK):
        fine[b] = 1.0
        product[b] = 1.0
        log_det[b] = 0.0
    for j in range(count):
        for k in range(j):
            for i in range(j, count):
                for b in range(BLOCK):
                    work[i, j, b] -= work[i, k, b] * work[j, k, b]
        for b in range(BLOCK):
            pivot = work[j, j, b]
            if not pivot > _LEAST_PIVOT:
                fine[b] = 0.0
                pivot = 1.0
            product[b] *= pivot
            work[j, j, b] = 1.0 / math.sqrt(pivot)
        if j % 8 == 7 or j == count - 1:
            for b in range(BLOCK):
                log_det[b] += math.log(product[b])
                product[b] = 1.0
        for i in range(j + 1, count):
            for b in range(BLOCK):
                work[i, j, b] *= work[j, j, b]


@njit(cache=True, error_model="numpy")
def _invert_factor(work, inverse):
    """`inverse` = L^-1, lower; `work` as `_factor` leaves it."""
    count = work.shape[0]
    for j in range(count):
        for b in range(BLOCK):
            inverse[j, j, b] = work[j, j, b]
        for i in range(j + 1, count):
            for b in range(BLOCK):
                inverse[i, j, b] = work[i, j, b] * inverse[j, j, b]
            for k in range(j + 1, i):
                for b in range(BLOCK):
                    inverse[i, j, b] += work[i, k, b] * inverse[k, j, b]
            for b in range(BLOCK):
                inverse[i, j, b] *= -work[i, i, b]


@njit(cache=True, error_model="numpy")
def block_arrays(count):
    """Working arrays for one block of samples: the matrix, the inverse of its factor, the scales,
    which samples were definite, running products of pivots, log determinants and one entry.
    """
    work, inverse = np.empty((count, count, BLOCK)), np.empty((count, count, BLOCK))
    root, numbers = np.empty((count, BLOCK)), np.empty((4, BLOCK))
    return work, inverse, root, numbers[0], numbers[1], numbers[2], numbers[3]


@njit(cache=True, error_model="numpy")
def invert_block(work, inverse, fine, product, log_det):
    """Factor the matrices of a block and invert the factors."""
    _factor(work, fine, product, log_det)
    _invert_factor(work, inverse)


@njit(cache=True, error_model="numpy", inline="always")
def _entry(inverse, root, fine, i, j, out):
    """chi_ij of a block, i >= j, where K was definite and 0 elsewhere."""
    for b in range(BLOCK):
        out[b] = 0.0
    for k in range(i, inverse.shape[0]):
        for b in range(BLOCK):
            out[b] += inverse[k, i, b] * inverse[k, j, b]
    for b in range(BLOCK):
        out[b] *= root[i, b] * root[j, b] * fine[b]


@njit(cache=True, error_model="numpy")
def response_sums(couplings, lam, v, sums, variances, half_log_det, definite):
    """Add the covariances of all samples to `sums`; write variances and log det K / 2."""
    count, total = lam.shape
    work, inverse = np.empty((count, count, BLOCK)), np.empty((count, count, BLOCK))
    root, fine, product = np.empty((count, BLOCK)), np.empty(BLOCK), np.empty(BLOCK)
    log_det, entry = np.empty(BLOCK), np.empty(BLOCK)
    for start in range(0, total, BLOCK):
        width = min(BLOCK, total - start)
        _build(couplings, lam, v, start, width, root, work)
        _factor(work, fine, product, log_det)
        _invert_factor(work, inverse)
        for i in range(count):
            for j in range(i):
                _entry(inverse, root, fine, i, j, entry)
                part = 0.0
                for b in range(BLOCK):
                    part += entry[b]
                sums[i, j] += part
                sums[j, i] += part
            _entry(inverse, root, fine, i, i, entry)
            for b in range(width):
                value = entry[b] if fine[b] == 1.0 else v[i, start + b]
                sums[i, i] += value
                variances[i, start + b] = value
        for b in range(width):
            half_log_det[start + b] = 0.5 * log_det[b] if fine[b] == 1.0 else 0.0
            definite[start + b] = fine[b] == 1.0


@njit(cache=True, error_model="numpy")
def response_matrices(couplings, lam, v, out):
    """The covariance of every sample, (N, I, I)."""
    count, total = lam.shape
    work, inverse, root, fine, product, log_det, entry = block_arrays(count)
    for start in range(0, total, BLOCK):
        width = min(BLOCK, total - start)
        _build(couplings, lam, v, start, width, root, work)
        invert_block(work, inverse, fine, product, log_det)
        for i in range(count):
            for j in range(i + 1):
                _entry(inverse, root, fine, i, j, entry)
                for b in range(width):
                    value = entry[b]
                    if i == j and fine[b] == 0.0:
                        value = v[i, start + b]
                    out[start + b, i, j] = value
                    out[start + b, j, i] = value


@njit(cache=True, error_model="numpy")
def newton_steps(couplings, lam, v, ridge, slope, move, step, definite):
    """The Newton step of the mean field equations: move = (V^-1 + C)^-1 slope in the means,
    as V^1/2 K^-1 V^1/2 slope, and step = slope - C move in the fields; C = J - diag lam.

    `ridge` is added to the diagonal of K, for samples whose K is nearly singular or indefinite.
    """
    count, total = lam.shape
    work, root = np.empty((count, count, BLOCK)), np.empty((count, BLOCK))
    fine, product, log_det = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    y = np.empty((count, BLOCK))
    for start in range(0, total, BLOCK):
        width = min(BLOCK, total - start)
        _build(couplings, lam, v, start, width, root, work)
        for i in range(count):
            for b in range(width):
                work[i, i, b] += ridge[start + b]
        _factor(work, fine, product, log_det)
        for i in range(count):
            for b in range(BLOCK):
                y[i, b] = root[i, b] * slope[i, start + min(b, width - 1)]
            for j in range(i):
                for b in range(BLOCK):
                    y[i, b] -= work[i, j, b] * y[j, b]
            for b in range(BLOCK):
                y[i, b] *= work[i, i, b]
        for i in range(count - 1, -1, -1):
            for b in range(BLOCK):
                y[i, b] *= work[i, i, b]
            for j in range(i):
                for b in range(BLOCK):
                    y[j, b] -= work[i, j, b] * y[i, b]
        for i in range(count):
            for b in range(BLOCK):
                y[i, b] *= root[i, b]
            for b in range(width):
                move[i, start + b] = y[i, b]
                step[i, start + b] = slope[i, start + b] + lam[i, start + b] * y[i, b]
        _subtract_coupled(couplings, y, start, width, step)
        for i in range(count):
            for b in range(width):
                step[i, start + b] /= 1.0 + ridge[start + b]
        for b in range(width):
            definite[start + b] = fine[b] == 1.0


@njit(cache=True, error_model="numpy")
def _subtract_coupled(couplings, y, start, width, out):
    """out -= J y for a block."""
    count = y.shape[0]
    shared = couplings.shape[0] == 1
    for i in range(count):
        for j in range(count):
            if shared:
                value = couplings[0, i, j]
                for b in range(width):
                    out[i, start + b] -= value * y[j, b]
            else:
                for b in range(width):
                    out[i, start + b] -= couplings[start + b, i, j] * y[j, b]
