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
from kikuchi.ica.priors.shapes import shapes

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
    filters = np.linalg.inv(model.mixing)
    noise = filters**2 @ model.noise.channel_variances(model.channels)
    pairs = zip(model.priors, noise.tolist(), strict=True)
    densities = [_density(prior, variance) for prior, variance in pairs]
    found = [density for density in densities if density is not None]
    if len(found) < len(densities):
        return None
    near = _ERRORS / math.sqrt(data.count)
    ascent = SquareAscent.from_filters(data.x, filters, found, near)
    residual = math.inf
    for step in ascent.steps():
        residual = step.residual
        if step.iterations >= _MOST_STEPS:
            break
    return (np.linalg.inv(ascent.filters), residual) if residual <= near else None


def _density(prior: SourcePrior, noise: float) -> Density | None:
    if isinstance(prior, MixturePrior):
        weights, means, variances = prior.parameters
    elif prior.name == "laplace":
        stock = next(shape for shape in shapes() if shape.name == prior.name)
        size = prior.mean_variance[1]
        weights, means, variances = stock.weights, stock.means, size * stock.variances
    else:
        return None
    return mixture_density(weights, means, variances + noise)


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
