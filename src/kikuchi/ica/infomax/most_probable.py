"""Most probable sources when there are more of them than sensors.

    argmax_s  -|x - A s|^2 / (2 noise) + sum_i log p(s_i),   or subject to x = A s without noise.

A Laplace prior makes this a lasso, or without noise a linear programme; the other densities are
smooth and go to a quasi-Newton descent (for `cauchy` to a local optimum).

Reference: TEH-I19, TEH-M16.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.lbfgs import Lbfgs
from kikuchi.ica.infomax.densities import find_density

_PROGRAMME = 64  # samples in one linear programme
_SMOOTH = 2000  # samples in one descent
_SWEEPS = 300  # over the sources of a lasso, before its path is followed
_STEPS = 10_000  # of a descent
_TOL = 1e-10  # of the largest source
_SMOOTH_TOL = 1e-8


def map_sources(
    X: ArrayLike,
    mixing: ArrayLike,
    *,
    prior: str = "laplace",
    rate: float = 1.0,
    noise: float = 0.0,
    start: Array | None = None,
) -> Array:
    """Most probable sources (N, M) of samples `X` (N, D) mixed by `mixing` (D, M).

    `prior` is `laplace` (density `rate/2 exp(-rate |s|)`) or a density of `infomax_densities`,
    stretched by `1 / rate`; `noise` is the variance of each sensor's noise.

    >>> map_sources([[2.0, 0.0]], [[1.0, 0.0, 0.6], [0.0, 1.0, 0.8]]).round(6).tolist()
    [[2.0, 0.0, 0.0]]
    """
    data = np.atleast_2d(np.asarray(X, dtype=np.float64))
    matrix = np.asarray(mixing, dtype=np.float64)
    _check(data, matrix, rate, noise)
    if prior == "laplace":
        if noise == 0:
            return _basis_pursuit(data, matrix)
        return _lasso(data, matrix, rate * noise, start)
    density = find_density(prior)
    parts = [
        _smooth(data[k : k + _SMOOTH], matrix, density, rate, noise)
        for k in range(0, len(data), _SMOOTH)
    ]
    return np.concatenate(parts)


def _check(data: Array, matrix: Array, rate: float, noise: float) -> None:
    if matrix.ndim != 2 or data.ndim != 2 or data.shape[1] != len(matrix):
        raise DataError(
            f"samples of shape {data.shape} do not fit a mixing matrix of shape {matrix.shape}"
        )
    if not (np.isfinite(data).all() and np.isfinite(matrix).all()):
        raise DataError("samples and mixing matrix must be finite")
    if not np.any(matrix, axis=0).all():
        raise DataError("a column of the mixing matrix is zero; remove it")
    if not rate > 0 or not noise >= 0:
        raise MethodError(f"rate must be > 0 and noise >= 0, got {rate!r} and {noise!r}")
    if noise == 0 and np.linalg.matrix_rank(matrix) < len(matrix):
        raise DataError(
            "without noise the columns of the mixing matrix must span all sensors; give noise > 0"
        )


def _basis_pursuit(data: Array, matrix: Array) -> Array:
    """min sum |s| subject to x = A s: one linear programme for some samples at a time."""
    from scipy.optimize import linprog
    from scipy.sparse import block_diag, csr_array

    n_sources = matrix.shape[1]
    block = csr_array(np.concatenate([matrix, -matrix], axis=1))
    out = np.empty((len(data), n_sources))
    for start in range(0, len(data), _PROGRAMME):
        part = data[start : start + _PROGRAMME]
        constraint = block_diag([block] * len(part), format="csr")
        cost = np.ones(2 * n_sources * len(part))
        solution: Any = linprog(cost, A_eq=constraint, b_eq=part.ravel(), method="highs")
        if not solution.success:
            raise DataError(f"the linear programme for the sources failed: {solution.message}")
        halves = solution.x.reshape(len(part), 2, n_sources)
        out[start : start + _PROGRAMME] = halves[:, 0] - halves[:, 1]
    return out


def _lasso(data: Array, matrix: Array, penalty: float, start: Array | None) -> Array:
    """min |x - A s|^2 / 2 + penalty sum |s| for all samples at once, one coordinate a time.

    That is slow where columns are nearly alike: samples that have not converged follow the path of
    solutions down from the penalty at which all sources are 0, one sample after the other.
    """
    gram = matrix.T @ matrix
    field = (data @ matrix).T  # (M, N)
    s = np.zeros_like(field) if start is None else start.T.copy()
    left = np.arange(len(data))
    for _ in range(_SWEEPS):
        part = s[:, left]
        change = _sweep(part, field[:, left], gram, penalty)
        s[:, left] = part
        left = left[change > _TOL * np.abs(part).max(axis=0)]
        if not left.size:
            return s.T.copy()
    for n in left:
        s[:, n] = _lasso_path(field[:, n], gram, penalty)
    return s.T.copy()


def _sweep(s: Array, field: Array, gram: Array, penalty: float) -> Array:
    """The best value of each source given the others, in place; the largest change by sample."""
    change = np.zeros(s.shape[1])
    for i, size in enumerate(np.diagonal(gram)):
        target = field[i] - gram[i] @ s + size * s[i]
        fresh = np.sign(target) * np.maximum(np.abs(target) - penalty, 0.0) / size
        np.maximum(change, np.abs(fresh - s[i]), out=change)
        s[i] = fresh
    return change


def _lasso_path(field: Array, gram: Array, penalty: float) -> Array:
    from sklearn.linear_model import lars_path_gram

    # in units of the penalty, for the path ends within an absolute distance of it
    *_, path = lars_path_gram(field / penalty, gram, n_samples=1, method="lasso", alpha_min=1.0)
    return np.asarray(penalty * path[:, -1])


def _smooth(data: Array, matrix: Array, density: Any, rate: float, noise: float) -> Array:
    """A smooth prior: descent in s, or without noise in the null space of the mixing matrix."""
    first = data @ np.linalg.pinv(matrix).T
    null = np.linalg.svd(matrix)[2][len(matrix) :].T  # (M, M - D)
    free = np.eye(matrix.shape[1]) if noise > 0 else null
    if free.shape[1] == 0:
        return first

    def objective(z: Array) -> tuple[float, Array]:
        s = first + z.reshape(len(data), -1) @ free.T
        value = float(np.sum(density.energy(rate * s)))
        slope = rate * density.slope(rate * s)
        if noise > 0:
            rest = s @ matrix.T - data
            value += 0.5 * float(np.sum(rest**2)) / noise
            slope = slope + rest @ matrix / noise
        return value, (slope @ free).ravel()

    descent = Lbfgs(objective, np.zeros(len(data) * free.shape[1]))
    for _ in range(_STEPS):
        if descent.residual <= _SMOOTH_TOL or not descent.step():
            break
    return np.asarray(first + descent.point.reshape(len(data), -1) @ free.T)
