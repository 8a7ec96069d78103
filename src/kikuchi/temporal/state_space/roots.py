"""Square roots of covariances that may be singular, and what rounding leaves unknown of them."""

from __future__ import annotations

import numpy as np

from kikuchi.core.arrays import Array

_EPSILON = float(np.finfo(np.float64).eps)


def covariance_roots(covariances: Array) -> Array:
    """A square root of each covariance (k, n, n), also of singular ones.

    It is the Cholesky factor with the largest remaining share of a variance first. Shares that are
    rounding count as zero. The units of the coordinates do not matter.

    >>> covariance_roots(np.array([[[4.0, 2.0], [2.0, 1.0]]]))[0].tolist()
    [[2.0, 0.0], [1.0, 0.0]]
    """
    rest, out = covariances.copy(), np.zeros(covariances.shape)
    variances = np.diagonal(covariances, axis1=1, axis2=2)
    scale, every = np.where(variances > 0.0, variances, 1.0), np.arange(len(rest))
    for k in range(rest.shape[-1]):
        shares = np.diagonal(rest, axis1=1, axis2=2) / scale
        i = shares.argmax(axis=1)
        some = shares[every, i] > _rounding(covariances)
        pivot = np.where(some, rest[every, i, i], 1.0)
        column = np.where(some[:, None], rest[every, :, i] / np.sqrt(pivot)[:, None], 0.0)
        out[:, :, k] = column
        rest -= column[:, :, None] * column[:, None, :]
        rest[every, i, :] = rest[every, :, i] = 0.0
    return out


def unsure_deviations(covariances: Array) -> Array:
    """Deviation of each coordinate (k, n) below which rounding of the covariance hides it.

    It is zero for coordinates without correlations, whose variances are exact.

    >>> unsure_deviations(np.array([[[4.0, 0.0], [0.0, 1e-30]]])).tolist()
    [[0.0, 0.0]]
    >>> bool(0 < unsure_deviations(np.array([[[4.0, 2.0], [2.0, 1.0]]])).max() < 1e-7)
    True
    """
    variances = np.diagonal(covariances, axis1=1, axis2=2)
    correlated = np.count_nonzero(covariances, axis=2) > (variances != 0.0)
    return np.where(correlated, np.sqrt(_rounding(covariances) * variances), 0.0)


def _rounding(covariances: Array) -> float:
    """Share of a variance that is rounding."""
    return float(2 * covariances.shape[-1] * _EPSILON)
