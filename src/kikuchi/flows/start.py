"""Where models of flows begin: Gaussian mixtures, by EM, with covariances shrunk as held-out rows
advise.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError

STARTS = ("gaussian", "k-means")
CANDIDATES = (1, 2, 3, 5, 8, 12, 16, 20, 30, 40)
"""Numbers of components that are tried where the number is to be chosen."""

_ROWS_PER_COMPONENT = 10  # at least, of a number that is tried
_RESTARTS = 2  # of the number that was chosen
_REFITTED = 10  # steps of EM on all rows
_FRACTIONS = (0.0, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)  # of shrinking


@dataclass(frozen=True)
class GaussianStart:
    """Weights (K,), means (K, d), covariances (K, d, d), their score on held-out rows, and how the
    covariances were shrunk: towards their mean, then towards their diagonals.
    """

    weights: Array
    means: Array
    covariances: Array
    score: float
    shrinking: tuple[float, float]

    def arrays(self) -> dict[str, Array]:
        """With one group in front."""
        return {
            "weights": self.weights[None],
            "means": self.means[None],
            "covariances": self.covariances[None],
        }


def gaussian_log_density(weights: Array, means: Array, covariances: Array, rows: Array) -> Array:
    """Log-density of a Gaussian mixture at rows.

    >>> zero, one = np.zeros((1, 1)), np.ones((1, 1, 1))
    >>> round(float(gaussian_log_density(np.ones(1), zero, one, zero)[0]), 4)
    -0.9189
    """
    return np.asarray(logsumexp(_log_joint(weights, means, covariances, rows), axis=1))


def _log_joint(weights: Array, means: Array, covariances: Array, rows: Array) -> Array:
    """log pi_k p_k of rows, (rows, components)."""
    joint = np.empty((len(rows), len(weights)))
    for k, (mean, covariance) in enumerate(zip(means, covariances, strict=True)):
        factor = np.linalg.cholesky(covariance)
        z = np.linalg.solve(factor, (rows - mean).T)
        norm = np.log(np.diagonal(factor)).sum() + 0.5 * rows.shape[1] * np.log(2 * np.pi)
        joint[:, k] = -0.5 * np.sum(z * z, axis=0) - norm
    with np.errstate(divide="ignore"):
        return np.asarray(joint + np.log(weights))


def gaussian_start(
    rows: Array, held_out: Array | None, components: int, floor: float, seed: int
) -> GaussianStart:
    """A Gaussian mixture by EM (scikit-learn's); with held-out rows, its covariances are moved
    towards their mean and towards their diagonals as far as those rows advise.
    """
    from sklearn.mixture import GaussianMixture

    model = GaussianMixture(components, reg_covar=floor**2, random_state=seed, max_iter=100)
    with warnings.catch_warnings(action="ignore"):
        model.fit(rows)
    weights, means = np.asarray(model.weights_), np.asarray(model.means_)
    covariances = np.asarray(model.covariances_)
    judged = rows if held_out is None else held_out

    def shrunk_by(pooling: float, shrinkage: float) -> GaussianStart:
        shrunk = _shrunk(weights, covariances, (pooling, shrinkage))
        score = float(np.mean(gaussian_log_density(weights, means, shrunk, judged)))
        return GaussianStart(weights, means, shrunk, score, (pooling, shrinkage))

    if held_out is None:
        few = len(rows) < 2 * rows.shape[1] * components
        return shrunk_by(0.0, 0.3 if few else 0.0)
    best = max((shrunk_by(0.0, s) for s in _FRACTIONS), key=_score)
    if components > 1:
        best = max((shrunk_by(p, best.shrinking[1]) for p in _FRACTIONS), key=_score)
        best = max((shrunk_by(best.shrinking[0], s) for s in _FRACTIONS), key=_score)
    return best


def _score(start: GaussianStart) -> float:
    return start.score


def _shrunk(weights: Array, covariances: Array, shrinking: tuple[float, float]) -> Array:
    """Covariances moved by these fractions towards their mean, then towards their diagonals."""
    pooling, shrinkage = shrinking
    mean = np.einsum("k,kij->ij", weights, covariances)
    pooled = (1.0 - pooling) * covariances + pooling * mean
    diagonals = np.einsum("kij,ij->kij", pooled, np.eye(pooled.shape[-1]))
    return np.asarray((1.0 - shrinkage) * pooled + shrinkage * diagonals)


def refitted(start: GaussianStart, rows: Array, floor: float) -> GaussianStart:
    """A mixture after some steps of EM on more rows than it was chosen with, shrunk as it was.

    >>> rows = np.random.default_rng(0).normal(size=(200, 2))
    >>> start = gaussian_start(rows[:20], None, 1, 1e-3, 0)
    >>> bool(np.allclose(refitted(start, rows, 1e-3).means, rows.mean(axis=0)))
    True
    """
    parts = start.weights, start.means, start.covariances
    for _ in range(_REFITTED):
        joint = _log_joint(*parts, rows)
        share = np.exp(joint - logsumexp(joint, axis=1)[:, None])
        weights, means, covariances = gaussian_maximum(rows, share, floor)
        parts = weights, means, _shrunk(weights, covariances, start.shrinking)
    return GaussianStart(*parts, start.score, start.shrinking)


def chosen_start(
    rows: Array,
    held_out: Array | None,
    components: int | None,
    floor: float,
    seed: int,
    going: Callable[[], bool] = lambda: True,
) -> GaussianStart:
    """The Gaussian mixture of so many components, or of as many as held-out rows like best.

    The search for their number ends when `going` says that the time is over.
    """
    if components is not None:
        if components > len(rows):
            raise DataError(
                f"{components} components for {len(rows)} rows to learn from; give fewer "
                "components or more rows"
            )
        return gaussian_start(rows, held_out, components, floor, seed)
    if held_out is None:
        return gaussian_start(rows, None, 1, floor, seed)
    best, worse = gaussian_start(rows, held_out, 1, floor, seed), 0
    for number in CANDIDATES[1:]:
        if worse == 2 or len(rows) < _ROWS_PER_COMPONENT * number or not going():
            break
        start = gaussian_start(rows, held_out, number, floor, seed)
        better = start.score > best.score
        best, worse = (start, 0) if better else (best, worse + 1)
    for again in range(1, _RESTARTS + 1 if len(best.weights) > 1 and going() else 1):
        start = gaussian_start(rows, held_out, len(best.weights), floor, seed + again)
        best = start if start.score > best.score else best
    return best


def k_means_start(rows: Array, components: int, floor: float, seed: int) -> GaussianStart:
    """One maximisation step from the clusters of k-means, as scikit-learn begins EM."""
    from sklearn.cluster import KMeans

    if components > len(rows):
        raise DataError(
            f"{components} components for {len(rows)} rows to learn from; give fewer components or "
            "more rows"
        )
    labels = KMeans(components, n_init=1, random_state=seed).fit(rows).labels_
    share = np.eye(components)[labels]
    weights, means, covariances = gaussian_maximum(rows, share, floor)
    score = float(np.mean(gaussian_log_density(weights, means, covariances, rows)))
    return GaussianStart(weights, means, covariances, score, (0.0, 0.0))


def gaussian_maximum(rows: Array, share: Array, floor: float) -> tuple[Array, Array, Array]:
    """Weights, means and covariances of greatest likelihood, rows shared among components.

    `floor` squared is added to the variances.
    """
    counts = share.sum(axis=0) + 10 * np.finfo(np.float64).eps
    means = share.T @ rows / counts[:, None]
    covariances = np.empty((len(counts), rows.shape[1], rows.shape[1]))
    for k, mean in enumerate(means):
        centred = rows - mean
        covariances[k] = (share[:, k, None] * centred).T @ centred / counts[k]
        covariances[k].flat[:: rows.shape[1] + 1] += floor**2
    return counts / counts.sum(), means, covariances
