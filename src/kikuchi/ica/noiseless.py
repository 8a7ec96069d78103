"""Mixing matrices of square models whose noise is too low to matter, by Newton's method.

In so little noise the sources are linear in the data, EM all but stands still, and where a prior
is not quite the density of its source (a peak that is narrower than that of the prior) the outer
products of the gradients are no information. The Hessian of the likelihood without noise has a
form that is inverted at once. What noise there is only widens the priors.

Reference: TEH-L13, HOJ-L6.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.ica.infomax.ascent import SquareAscent
from kikuchi.ica.infomax.densities import Density
from kikuchi.ica.model import Model, Observations, is_clear
from kikuchi.ica.priors.mixture import MixturePrior
from kikuchi.ica.priors.prior import SourcePrior

_LOG_TWO_PI = math.log(2.0 * math.pi)
_MOST_STEPS = 30
_ERRORS = 0.3  # standard errors of an entry of the mixing matrix that steps end by


def noiseless_optimum(model: Model, data: Observations) -> tuple[Array, float] | None:
    """The mixing matrix of greatest likelihood with everything else as in the model, and the
    largest entry of the relative gradient there.

    None where noise matters, values are missing, a prior is neither Laplace nor a mixture of
    Gaussians, or Newton's method does not come near enough to an optimum.
    """
    if data.observed is not None or not is_clear(model):
        return None
    filters = np.asarray(np.linalg.inv(model.mixing), dtype=np.float64)
    noise = filters**2 @ model.noise.channel_variances(model.channels)
    pairs = zip(model.priors, noise.tolist(), strict=True)
    densities = [_density(prior, variance) for prior, variance in pairs]
    found = [density for density in densities if density is not None]
    if len(found) < len(densities):
        return None
    near = _ERRORS / math.sqrt(data.count)
    ascent = SquareAscent.from_filters(data.x, filters, found, near)
    residual = math.inf
    while ascent.done < _MOST_STEPS and (report := ascent.step()) is not None:
        residual = report.residual
    mixing = np.asarray(np.linalg.inv(ascent.filters), dtype=np.float64)
    return (mixing, residual) if residual <= near else None


def _density(prior: SourcePrior, noise: float) -> Density | None:
    if isinstance(prior, MixturePrior):
        weights, means, variances = prior.parameters
        return mixture_density(weights, means, variances + noise)
    if prior.name == "laplace":
        return laplace_density(math.sqrt(2.0 / prior.mean_variance[1]), math.sqrt(noise))
    return None


def laplace_density(rate: float, deviation: float) -> Density:
    """A Laplace source of this rate with normal noise, by its energy and its two derivatives.

    With a = u / deviation and r = rate * deviation it is rate / 2 exp(r^2 / 2) times the sum of
    exp(-rate u) Phi(a - r) and exp(rate u) Phi(-a - r).

    >>> density = laplace_density(1.0, 1e-3)
    >>> density.energy(np.array([3.0])).round(4).tolist(), density.slope(np.array([3.0])).tolist()
    ([3.6931], [1.0])
    """
    from scipy.special import expit, log_ndtr

    constant = math.log(0.5 * rate) + 0.5 * (rate * deviation) ** 2

    def tails(u: Array) -> tuple[Array, Array, Array, Array]:
        """Logarithms of the two terms, and the arguments of Phi."""
        right = u / deviation - rate * deviation
        left = -u / deviation - rate * deviation
        return log_ndtr(right) - rate * u, log_ndtr(left) + rate * u, right, left

    def energy(u: Array) -> Array:
        first, second, _, _ = tails(u)
        return np.asarray(-np.logaddexp(first, second) - constant)

    def slope(u: Array) -> Array:
        first, second, _, _ = tails(u)
        return np.asarray(rate * np.tanh(0.5 * (first - second)))

    def curvature(u: Array) -> Array:
        first, second, right, left = tails(u)
        both = expit(first - second) * expit(second - first)
        ratios = sum(np.exp(-0.5 * (a * a + _LOG_TWO_PI) - log_ndtr(a)) for a in (right, left))
        return np.asarray(2.0 * rate * both * (ratios / deviation - 2.0 * rate))

    return Density("laplace", energy, slope, curvature)


def mixture_density(
    weights: Sequence[float] | Array, means: Sequence[float] | Array, variances: Array
) -> Density:
    """A mixture of Gaussians by its energy and the two derivatives of it.

    >>> density = mixture_density([0.5, 0.5], [0.0, 0.0], np.array([1.0, 1.0]))
    >>> density.slope(np.array([2.0])).tolist(), density.curvature(np.array([2.0])).tolist()
    ([2.0], [1.0])
    """
    peaks = np.asarray(weights) / np.sqrt(2.0 * math.pi * variances)
    centres, precisions = np.asarray(means), 1.0 / variances

    def parts(u: Array) -> tuple[Array, Array, Array]:
        """Energy, the share of each component, and its slope."""
        apart = u[..., None] - centres
        terms = np.log(peaks) - 0.5 * apart * apart * precisions
        top = terms.max(axis=-1, keepdims=True)
        shares = np.exp(terms - top)
        total = shares.sum(axis=-1, keepdims=True)
        return -(top + np.log(total))[..., 0], shares / total, apart * precisions

    def energy(u: Array) -> Array:
        return parts(u)[0]

    def slope(u: Array) -> Array:
        _, shares, slopes = parts(u)
        return np.asarray((shares * slopes).sum(axis=-1))

    def curvature(u: Array) -> Array:
        _, shares, slopes = parts(u)
        mean = (shares * slopes).sum(axis=-1)
        each = precisions - slopes * slopes
        return np.asarray((shares * each).sum(axis=-1) + mean * mean)

    return Density("mixture", energy, slope, curvature)
