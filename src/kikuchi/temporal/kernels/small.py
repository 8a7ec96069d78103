"""Factors of small square matrices, written as loops: no call of BLAS for four states."""

from __future__ import annotations

import math

from kikuchi.core.compiled import njit


@njit(cache=True, error_model="numpy")
def cholesky(a, out):
    """Lower factor of a symmetric matrix; False if it is not positive definite."""
    n = len(a)
    for j in range(n):
        s = a[j, j]
        for k in range(j):
            s -= out[j, k] * out[j, k]
        if not s > 0.0:
            return False
        root = math.sqrt(s)
        out[j, j] = root
        inverse = 1.0 / root
        for i in range(j + 1, n):
            s = a[i, j]
            for k in range(j):
                s -= out[i, k] * out[j, k]
            out[i, j] = s * inverse
    return True


@njit(cache=True, error_model="numpy")
def forward_solve(lower, b):
    """b = lower^-1 b for a vector."""
    for i in range(len(b)):
        s = b[i]
        for k in range(i):
            s -= lower[i, k] * b[k]
        b[i] = s / lower[i, i]


@njit(cache=True, error_model="numpy")
def backward_solve(lower, b):
    """b = lower^-T b for a vector."""
    for i in range(len(b) - 1, -1, -1):
        s = b[i]
        for k in range(i + 1, len(b)):
            s -= lower[k, i] * b[k]
        b[i] = s / lower[i, i]


@njit(cache=True, error_model="numpy")
def solve_rows(lower, b):
    """Each row of b solved with lower lower': b = b (lower lower')^-1."""
    n = len(lower)
    for r in range(len(b)):
        for i in range(n):
            s = b[r, i]
            for k in range(i):
                s -= lower[i, k] * b[r, k]
            b[r, i] = s / lower[i, i]
        for i in range(n - 1, -1, -1):
            s = b[r, i]
            for k in range(i + 1, n):
                s -= lower[k, i] * b[r, k]
            b[r, i] = s / lower[i, i]


@njit(cache=True, error_model="numpy")
def inverse_from_cholesky(lower, work, out):
    """out = (lower lower')^-1; `work` gets lower^-1."""
    n = len(lower)
    for j in range(n):
        work[j, j] = 1.0 / lower[j, j]
        for i in range(j + 1, n):
            s = 0.0
            for k in range(j, i):
                s -= lower[i, k] * work[k, j]
            work[i, j] = s / lower[i, i]
    for i in range(n):
        for j in range(i + 1):
            s = 0.0
            for k in range(i, n):
                s += work[k, i] * work[k, j]
            out[i, j] = s
            out[j, i] = s


@njit(cache=True, error_model="numpy", fastmath={"contract"}, inline="always")
def product_into(one, other, out):
    """out = one other, all (n, n)."""
    n = len(one)
    for i in range(n):
        for j in range(n):
            s = 0.0
            for k in range(n):
                s += one[i, k] * other[k, j]
            out[i, j] = s


@njit(cache=True, error_model="numpy", fastmath={"contract"}, inline="always")
def residual_into(one, other, out):
    """out = I - one other, all (n, n)."""
    product_into(one, other, out)
    for i in range(len(one)):
        for j in range(len(one)):
            out[i, j] = (1.0 if i == j else 0.0) - out[i, j]


@njit(cache=True, error_model="numpy", fastmath={"contract"}, inline="always")
def affine_into(base, matrix, x, out):
    """out = base + matrix x."""
    n = len(base)
    for i in range(n):
        s = base[i]
        for k in range(n):
            s += matrix[i, k] * x[k]
        out[i] = s


@njit(cache=True, error_model="numpy", fastmath={"contract"}, inline="always")
def along_into(p, w, out):
    """out = p w for symmetric p; answers w' p w."""
    v = 0.0
    for i in range(len(w)):
        s = 0.0
        for k in range(len(w)):
            s += p[i, k] * w[k]
        out[i] = s
        v += w[i] * s
    return v


@njit(cache=True, error_model="numpy", fastmath={"contract"}, inline="always")
def sandwich_into(base, x, p, work, out):
    """out = base + x p x' for symmetric base and p, of which `out` may be one; `work` gets x p."""
    n = len(x)
    product_into(x, p, work)
    for i in range(n):
        for j in range(i + 1):
            s = base[i, j]
            for k in range(n):
                s += work[i, k] * x[j, k]
            out[i, j] = s
            out[j, i] = s
