"""How well sources and mixing matrices were recovered: Amari distance, matching, SNR (HOJ §7).

Sources of ICA have no order and, for symmetric priors, no sign: every measure here matches first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import DataError


def amari_distance(unmixing: ArrayLike, mixing: ArrayLike) -> float:
    r"""Distance of `unmixing @ mixing` from a scaled permutation: 0 at one, 1 at worst.

    With P = |W A| of size I the sum of (row sum / row maximum - 1) over rows and the same over
    columns is divided by 2 I (I - 1), its greatest value, so that sizes can be compared.

    `unmixing` is W (sources, sensors), `mixing` A (sensors, sources).

    >>> amari_distance([[0.0, 2.0], [-3.0, 0.0]], np.eye(2))
    0.0
    >>> amari_distance(np.ones((4, 4)), np.eye(4))
    1.0
    """
    w, a = _matrix(unmixing, "unmixing"), _matrix(mixing, "mixing")
    if w.shape[1] != a.shape[0] or w.shape[0] != a.shape[1]:
        raise DataError(
            f"Amari distance: unmixing is {w.shape} and mixing {a.shape}; their product must be "
            "square, with as many sources in both"
        )
    product = np.abs(w @ a)
    size = len(product)
    if size == 1:
        return 0.0
    rows, columns = product.max(axis=1), product.max(axis=0)
    if not (rows.all() and columns.all()):
        raise DataError("Amari distance: a source is missing altogether (a row or column of zeros)")
    excess = (product / rows[:, None]).sum() + (product / columns).sum() - 2 * size
    return float(excess / (2 * size * (size - 1)))


@dataclass(frozen=True)
class Match:
    """Which estimate belongs to which true source: `order[k]` and `sign[k]` for true source k.

    `correlation[k]` is between the true source k and its estimate, after the sign.
    """

    order: Ints
    sign: Array
    correlation: Array

    def apply(self, sources: ArrayLike) -> Array:
        """Estimated sources (columns) in the order and with the signs of the true ones."""
        return _matrix(sources, "sources")[:, self.order] * self.sign


def match_sources(estimated: ArrayLike, true: ArrayLike) -> Match:
    """The assignment of greatest total |correlation| between columns (Hungarian method).

    There may be more estimated sources than true ones; a constant column correlates with nothing.

    `estimated` and `true` have a column for each source.

    >>> s = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 5.0], [3.0, 2.0]])
    >>> match_sources(-s[:, ::-1], s).order.tolist()
    [1, 0]
    """
    from scipy.optimize import linear_sum_assignment

    e, t = _matrix(estimated, "estimated sources"), _matrix(true, "true sources")
    if len(e) != len(t):
        raise DataError(f"match: {len(e)} samples of estimated sources but {len(t)} of true ones")
    if e.shape[1] < t.shape[1]:
        raise DataError(
            f"match: {e.shape[1]} estimated sources cannot cover {t.shape[1]} true ones"
        )
    correlation = _standardised(t).T @ _standardised(e)
    rows, order = linear_sum_assignment(-np.abs(correlation))
    chosen = correlation[rows, order]
    return Match(order.astype(np.int64), np.where(chosen < 0, -1.0, 1.0), np.abs(chosen))


def matched_correlation(estimated: ArrayLike, true: ArrayLike) -> Array:
    """|correlation| of each true source with the estimate that is matched to it.

    >>> s = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 5.0], [3.0, 2.0]])
    >>> matched_correlation(2 * s[:, ::-1] + 1, s).round(6).tolist()
    [1.0, 1.0]
    """
    return match_sources(estimated, true).correlation


def snr(estimated: ArrayLike, true: ArrayLike) -> Array:
    r"""Signal-to-noise ratio in decibels of each true source after matching.

    The estimate is scaled and shifted to fit best, so that the ratio is r^2 / (1 - r^2) of the
    correlation r; infinite for a perfect estimate, minus infinite for an unrelated one.

    >>> s = np.array([[-1.0], [1.0], [-1.0], [1.0]])
    >>> (snr(s + np.array([[1.0], [1.0], [-1.0], [-1.0]]), s).round(6) + 0.0).tolist()
    [0.0]
    """
    explained = np.minimum(matched_correlation(estimated, true) ** 2, 1.0)
    with np.errstate(divide="ignore"):
        return np.asarray(10.0 * (np.log10(explained) - np.log10(1.0 - explained)))


def column_angles(estimated: ArrayLike, true: ArrayLike) -> Array:
    """Angles in degrees between true columns of the mixing matrix and estimates matched to them.

    Signs do not count. A column of zeros is at 90 degrees from everything.

    >>> column_angles([[0.0, 1.0], [-1.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]).round(6).tolist()
    [45.0, 0.0]
    """
    from scipy.optimize import linear_sum_assignment

    e, t = _matrix(estimated, "estimated mixing"), _matrix(true, "true mixing")
    if e.shape[0] != t.shape[0] or e.shape[1] < t.shape[1]:
        raise DataError(
            f"angles: estimated mixing is {e.shape} and true mixing {t.shape}; "
            "sensors must agree and every true column needs an estimate"
        )
    cosines = np.abs(_unit_columns(t).T @ _unit_columns(e))
    angles = np.degrees(np.arccos(np.clip(cosines, 0.0, 1.0)))
    rows, order = linear_sum_assignment(angles)
    return np.asarray(angles[rows, order])


def _matrix(values: ArrayLike, what: str) -> Array:
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim != 2 or not matrix.size:
        raise DataError(f"{what}: a matrix is needed, got an array of shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise DataError(f"{what}: contains NaN or infinite values")
    return matrix


def _standardised(columns: Array) -> Array:
    centred = columns - columns.mean(axis=0)
    scale = np.abs(columns).max(axis=0) * 1e-13 * np.sqrt(len(columns))
    norms = np.linalg.norm(centred, axis=0)
    return np.asarray(centred / np.where(norms > scale, norms, np.inf))


def _unit_columns(matrix: Array) -> Array:
    norms = np.linalg.norm(matrix, axis=0)
    return np.asarray(matrix / np.where(norms > 0, norms, np.inf))
