"""The cavity method for one dense Gaussian with single sites, one factor after the other.

For p(s) = (1/Z) prod_i rho_i(s_i) exp(s'Js / 2 + theta's), a factor
exp(g_i s_i - Lambda_i s_i^2 / 2) in place of every rho_i gives a Gaussian with covariance
chi = (Lambda - J)^-1. Refitting one factor changes it by rank one, so that a sweep takes n^3
operations.

Reference: HOJ-I16.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import KikuchiError, ModelError

_LEAST_VARIANCE = 1e-10  # of a factor: beyond it a variable is as good as certain


class Sites(Protocol):
    """The single densities rho_i of a pairwise model, each under a Gaussian tilt."""

    def moments(self, index: Ints, field: Array, v: Array) -> tuple[Array, Array, Array]:
        """log of integral rho_i(s) exp(v s^2 / 2 + field s) ds, mean and variance, by index."""


class SpinSites:
    """rho_i puts weight 1 on -1 and on +1: the Boltzmann machine."""

    def moments(self, index: Ints, field: Array, v: Array) -> tuple[Array, Array, Array]:
        """log 2cosh f + V / 2, tanh f, 1 - tanh^2 f."""
        size = np.abs(field)
        tail = np.exp(-2.0 * size)
        log_z = size + np.log1p(tail) + 0.5 * v
        return log_z, np.tanh(field), 4.0 * tail / (1.0 + tail) ** 2


@dataclass(frozen=True, eq=False)
class GaussianSites:
    """rho_i(s) = exp(-precision_i s^2 / 2): the model for which the method is exact."""

    precisions: Array

    def moments(self, index: Ints, field: Array, v: Array) -> tuple[Array, Array, Array]:
        """Of a Gaussian with precision `precision_i - v`."""
        left = self.precisions[index] - v
        if np.any(left <= 0.0):
            raise ModelError("adaptive TAP: the couplings leave no normalisable Gaussian")
        log_z = 0.5 * (np.log(2.0 * np.pi / left) + field**2 / left)
        return log_z, field / left, 1.0 / left


class Cavity:
    """State of the fixed-point search: Gaussian factors, and the joint Gaussian that they make.

    >>> j = np.array([[0.0, 0.3], [0.3, 0.0]])
    >>> cavity = Cavity(j, np.array([0.5, 0.0]), GaussianSites(np.ones(2)))
    >>> while cavity.sweep(0.0) > 1e-12: pass
    >>> np.allclose(cavity.covariance, np.linalg.inv(np.eye(2) - j))
    True
    """

    def __init__(self, couplings: Array, fields: Array, sites: Sites) -> None:
        self.couplings = couplings
        self.fields = fields
        self.sites = sites
        self.precision = 1.0 + np.abs(couplings).sum(axis=1)  # positive definite: dominant diagonal
        self.linear = np.zeros(len(fields))
        self.refresh()

    def refresh(self) -> None:
        """The joint Gaussian from its factors, without the rounding that updates gather."""
        from scipy.linalg import cho_factor, cho_solve

        matrix = np.diag(self.precision) - self.couplings
        try:
            factor = cho_factor(matrix, lower=True)
        except (np.linalg.LinAlgError, ValueError) as error:  # not positive definite, not finite
            raise KikuchiError(
                "adaptive TAP: the Gaussian factors no longer make a distribution; use bp or mf"
            ) from error
        identity = np.eye(len(self.fields), order="F")
        self.covariance = cho_solve(factor, identity, overwrite_b=True)
        self.log_det = -2.0 * float(np.log(np.diagonal(factor[0])).sum())
        self.mean = self.covariance @ (self.fields + self.linear)

    def sweep(self, damping: float, stop: Callable[[], bool] = lambda: False) -> float:
        """Fit every factor once, in order; returns the largest disagreement of a mean or variance
        between a single density and the Gaussian, as it was met; infinity if it had to `stop`.

        A whole step multiplies det chi by v_i / chi_ii > 0, so chi stays positive definite.
        """
        from scipy.linalg.blas import dger

        largest = 0.0
        for i in range(len(self.fields)):
            if stop():
                return math.inf
            variance, mean = float(self.covariance[i, i]), float(self.mean[i])
            v = self.precision[i] - 1.0 / variance
            field = mean / variance - self.linear[i]
            m, u = self._tilted(i, field, v)
            largest = max(largest, abs(m - mean), abs(u - variance))
            u = max(u, _LEAST_VARIANCE)
            precision_step = (1.0 - damping) * (1.0 / u - 1.0 / variance)
            linear_step = (1.0 - damping) * (m / u - mean / variance)
            gain = 1.0 / (1.0 + precision_step * variance)
            column = self.covariance[:, i].copy()
            self.mean += column * (gain * (linear_step - precision_step * mean))
            self.covariance = dger(
                -gain * precision_step, column, column, a=self.covariance, overwrite_a=True
            )
            self.precision[i] += precision_step
            self.linear[i] += linear_step
        self.refresh()
        return largest

    def _tilted(self, i: int, field: float, v: float) -> tuple[float, float]:
        _, mean, variance = self.sites.moments(np.array([i]), np.array([field]), np.array([v]))
        return float(mean[0]), float(variance[0])

    @property
    def reactions(self) -> Array:
        """V: the variance of the cavity field of each variable."""
        return np.asarray(self.precision - 1.0 / np.diagonal(self.covariance))

    @property
    def cavity_fields(self) -> Array:
        """f: the mean of the field on each variable, its own reaction taken off."""
        return np.asarray(self.fields + self.couplings @ self.mean - self.reactions * self.mean)

    @property
    def log_z(self) -> float:
        """sum_i log Z_i - m'Jm / 2 + sum_i V_i m_i^2 / 2 + log det chi / 2 - sum_i log chi_ii / 2.

        Stationary at the fixed point (corrected: erratum 21 has chi_ii for m_i^2).
        """
        v, m = self.reactions, self.mean
        singles, _, _ = self.sites.moments(np.arange(len(m)), self.cavity_fields, v)
        energy = float(v @ m**2 - m @ (self.couplings @ m))
        spread = self.log_det - float(np.log(np.diagonal(self.covariance)).sum())
        return float(singles.sum()) + 0.5 * (energy + spread)
