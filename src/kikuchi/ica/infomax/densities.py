"""Densities of sources for noiseless ICA, with the squashing functions whose slopes they are.

The causal view reads `p(s)`; infomax squashes outputs by the distribution function of the same
density, so that both views are one.

Reference: TEH-M15, TEH-M17.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import MethodError, suggestion


@dataclass(frozen=True)
class Density:
    """A normalised density by its energy `-log p` and the first two derivatives of it.

    >>> logistic = find_density("logistic")
    >>> round(float(logistic.energy(np.array(0.0))), 6)  # log 4, TEH-M13
    1.386294
    """

    name: str
    energy: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    curvature: Callable[[Array], Array]


def find_density(name: str) -> Density:
    """A density by its name: logistic, sech, cauchy or bimodal."""
    if name not in DENSITIES:
        raise MethodError(f"there is no density '{name}'; {suggestion(name, DENSITIES)}")
    return DENSITIES[name]


def _logistic_energy(u: Array) -> Array:
    size = np.abs(u)
    return np.asarray(size + 2 * np.log1p(np.exp(-size)))


def _log_cosh(u: Array) -> Array:
    size = np.abs(u)
    return np.asarray(size + np.log1p(np.exp(-2 * size)) - math.log(2))


DENSITIES = {
    "logistic": Density(
        "logistic",
        _logistic_energy,
        lambda u: np.asarray(np.tanh(0.5 * u)),
        lambda u: np.asarray(0.5 * (1 - np.tanh(0.5 * u) ** 2)),
    ),
    "sech": Density(
        "sech",
        lambda u: math.log(math.pi) + _log_cosh(u),
        lambda u: np.asarray(np.tanh(u)),
        lambda u: np.asarray(1 - np.tanh(u) ** 2),
    ),
    "cauchy": Density(
        "cauchy",
        lambda u: np.asarray(math.log(math.pi) + np.log1p(u**2)),
        lambda u: np.asarray(2 * u / (1 + u**2)),
        lambda u: np.asarray(2 * (1 - u**2) / (1 + u**2) ** 2),
    ),
    "bimodal": Density(
        "bimodal",
        lambda u: 0.5 * (u**2 + 1 + math.log(2 * math.pi)) - _log_cosh(u),
        lambda u: np.asarray(u - np.tanh(u)),
        lambda u: np.asarray(np.tanh(u) ** 2),
    ),
}
"""Super-Gaussian ones with lighter to heavier tails, and an equal mixture of Gaussians of variance
1 at -1 and 1, which is sub-Gaussian."""
