"""Starts of flow models: Gaussian mixtures, by EM, with covariance shrinkage chosen on held-out
rows.
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

BESIDE = (1, 5, 20)
"""Numbers of components of the mixtures beside a fit whose number was given."""

_ROWS_PER_COMPONENT = 10  # at least, of a number that is tried
_JUDGES, _MOST_PARTS = 1000, 5  # held-out rows that choose a number, from so many parts at most
_MOST_BESIDE = 4000  # rows of such a mixture
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

    The search for their number ends when `going` returns False because the time is over.
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
    number, best = _chosen_number(rows, held_out, floor, seed, going)
    for again in range(1, _RESTARTS + 1 if number > 1 and going() else 1):
        start = gaussian_start(rows, held_out, number, floor, seed + again)
        best = start if start.score > best.score else best
    return best


def _chosen_number(
    rows: Array, held_out: Array, floor: float, seed: int, going: Callable[[], bool]
) -> tuple[int, GaussianStart]:
    """The number of components that held-out rows prefer, and its mixture of `rows`.

    Few held-out rows choose by chance: other parts of the rows, of the same size, are held out in
    turn until a thousand rows have judged.
    """
    parts = _parts(rows, held_out)
    chosen: tuple[int, GaussianStart] | None = None
    best, worse = -np.inf, 0
    for number in CANDIDATES:
        few = min(len(learnt) for learnt, _ in parts) < _ROWS_PER_COMPONENT * number
        if chosen is not None and (worse == 2 or few or not going()):
            break
        starts = [gaussian_start(learnt, held, number, floor, seed) for learnt, held in parts]
        score = float(np.mean([start.score for start in starts]))
        if chosen is None or score > best:
            chosen, best, worse = (number, starts[0]), score, 0
        else:
            worse += 1
    assert chosen is not None  # the first candidate is always tried
    return chosen


def _parts(rows: Array, held_out: Array) -> list[tuple[Array, Array]]:
    """Rows and held-out rows, then the same with other parts of the rows held out."""
    count = len(held_out)
    wanted = min(_MOST_PARTS, -(-_JUDGES // count), 1 + len(rows) // count)
    parts = [(rows, held_out)]
    for k in range(wanted - 1):
        cut = slice(k * count, (k + 1) * count)
        parts.append((np.concatenate([np.delete(rows, cut, axis=0), held_out]), rows[cut]))
    return parts


def mixture_beside(rows: Array, held_out: Array, floor: float, seed: int) -> GaussianStart:
    """The best of a few Gaussian mixtures of at most 4000 rows: what a fit must not be below."""
    some = rows[:_MOST_BESIDE]
    numbers = [k for k in BESIDE if k == 1 or len(some) >= _ROWS_PER_COMPONENT * k]
    return max((gaussian_start(some, held_out, k, floor, seed) for k in numbers), key=_score)


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
