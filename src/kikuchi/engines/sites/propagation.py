"""Expectation propagation: Gaussian factors in place of sites, refitted until none changes.

Each site belongs to one linear function f of a Gaussian and has a factor exp(h f - r f^2 / 2), of
precision r and shift h. Without its own factor f has the cavity N(c, u). The site tilts the cavity;
the new factor is the one with which f has the mean and the variance of the tilted cavity.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import ModelError

_HALVINGS = 20  # of a step that leaves no proper Gaussian

P = TypeVar("P")


class SiteModel(ABC, Generic[P]):
    """A Gaussian and its sites; factors are arrays (..., 2) of precisions and shifts.

    Attributes
    ----------
    least
        Least precision of a factor and of a cavity; without it factors may have any, and an
        improper cavity is refused.
    """

    least: float | None = None

    @abstractmethod
    def condition(self, factors: Array) -> P:
        """Return the Gaussian with these factors; refuse those that leave no proper one."""

    @abstractmethod
    def marginals(self, posterior: P) -> tuple[Array, Array]:
        """Return mean and variance of f of each site."""

    @abstractmethod
    def tilted(self, mean: Array, variance: Array) -> tuple[Array, Array, Array]:
        """Return log-mass, mean and variance of cavities times their sites."""

    def cavities(self, factors: Array, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return mean and variance of each cavity, from the marginals."""
        precision = 1.0 / variance - factors[..., 0]
        if self.least is not None:
            precision = np.maximum(precision, self.least)
        elif (precision <= 0).any():
            raise ModelError("a cavity of expectation propagation is not proper; raise damping")
        return (mean / variance - factors[..., 1]) / precision, 1.0 / precision

    def refitted(self, factors: Array, posterior: P) -> tuple[Array, float]:
        """Return new factors, and the largest change of a mean in standard deviations, to which
        that of its variance, relative, is added.
        """
        mean, variance = self.marginals(posterior)
        centre, spread = self.cavities(factors, mean, variance)
        _, moved, shrunk = self.tilted(centre, spread)
        if not (shrunk > 0).all():
            raise ModelError("a tilted variance is not positive")
        precision = 1.0 / shrunk - 1.0 / spread
        if self.least is not None:
            precision = np.maximum(precision, self.least)
        change = np.abs(moved - mean) / np.sqrt(variance) + np.abs(shrunk / variance - 1.0)
        target = np.stack([precision, moved / shrunk - centre / spread], axis=-1)
        return target, float(change.max())

    def log_masses(self, factors: Array, posterior: P) -> float:
        """Return the sum over sites of the log-mass of the site less that of its factor, both
        under the cavity.
        """
        centre, spread = self.cavities(factors, *self.marginals(posterior))
        log_mass, _, _ = self.tilted(centre, spread)
        precision, shift = 1.0 / spread + factors[..., 0], centre / spread + factors[..., 1]
        log_factor = 0.5 * (shift**2 / precision - centre**2 / spread - np.log(precision * spread))
        return float((log_mass - log_factor).sum())


class Propagated(NamedTuple, Generic[P]):
    """Factors at the end of expectation propagation, and the Gaussian with them."""

    factors: Array
    posterior: P
    converged: bool
    iterations: int


def propagate(
    model: SiteModel[P], factors: Array, *, tol: float, limit: int, damping: float
) -> Propagated[P]:
    """Refit all factors at once, from `factors`, until the largest change is at most `tol`.

    A step takes the share 1 - `damping` of the way, or half, a quarter, ... of that where it would
    leave no proper Gaussian. `limit` is the maximum number of steps.

    >>> class Product(SiteModel[Array]):  # of N(0, 1) and N(f; 2, 1)
    ...     def condition(self, factors): return factors.sum(axis=0) + np.array([1.0, 0.0])
    ...     def marginals(self, q): return q[1:] / q[:1], 1.0 / q[:1]
    ...     def tilted(self, mean, variance):
    ...         total = 1.0 / variance + 1.0
    ...         return np.zeros(1), (mean / variance + 2.0) / total, 1.0 / total
    >>> propagate(Product(), np.zeros((1, 2)), tol=1e-9, limit=10, damping=0.0).factors.tolist()
    [[1.0, 2.0]]
    """
    posterior = model.condition(factors)
    done, converged = 0, False
    while done < limit and not converged:
        done += 1
        target, change = model.refitted(factors, posterior)
        factors, posterior = _towards(model, factors, target, 1.0 - damping)
        converged = change <= tol
    return Propagated(factors, posterior, converged, done)


def _towards(model: SiteModel[P], factors: Array, target: Array, step: float) -> tuple[Array, P]:
    for _ in range(_HALVINGS):
        trial = (1.0 - step) * factors + step * target
        try:
            return trial, model.condition(trial)
        except (ModelError, np.linalg.LinAlgError):
            step *= 0.5
    raise ModelError("expectation propagation finds no proper Gaussian; raise damping")
