"""Mixtures of Gaussians as source priors, compiled.

Reference: HOJ-L7, HOJ-M8d, HOJ-M8e.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.errors import MethodError
from kikuchi.core.numerics import log, logsumexp
from kikuchi.core.options import option
from kikuchi.ica.priors.prior import CompiledPrior, _flat

_LEAST_VARIANCE = 1e-6  # of a learned component, in units of the mean square of the source
_LEAST_WEIGHT = 1e-12


@dataclass(frozen=True)
class MixturePrior(CompiledPrior):
    """sum_k weight_k N(mean_k, variance_k); a variance of 0 is a point.

    Lists are written "(0.5,0.5)"; `MixturePrior.of` takes arrays. lam may go down to
    -1 / greatest variance.

    >>> MixturePrior.of([1, 1], [-3, 3], [1, 1]).text
    'mixture:means=(-3.0,3.0),variances=(1.0,1.0)'
    >>> [round(float(a), 6) for a in MixturePrior.of([1, 1], [-3, 3], [1, 1]).moments(1.0, 1.0)]
    [1.857722, 0.90659]
    """

    name: ClassVar[str] = "mixture"
    summary: ClassVar[str] = "mixture of Gaussians, whose shape can be learned"
    log_concave: ClassVar[bool] = False
    symmetric: ClassVar[bool] = False
    code: ClassVar[int] = 4
    weights: str = option("0.5,0.5", "weights, in any scale")
    means: str = option("0,0", "means")
    variances: str = option("1,4", "variances; 0 is a point")

    def __post_init__(self) -> None:
        super().__post_init__()
        weights, means, variances = self.parameters
        if not weights.size == means.size == variances.size:
            raise MethodError(
                f"prior mixture: {weights.size} weights, {means.size} means and {variances.size} "
                "variances; give as many of each"
            )

    @classmethod
    def of(
        cls, weights: Sequence[float], means: Sequence[float], variances: Sequence[float]
    ) -> MixturePrior:
        """A mixture from its numbers; the weights are normalised."""
        w = np.asarray(weights, dtype=np.float64)
        total = float(np.sum(w))
        scaled = w / total if total > 0.0 else w
        return cls(*(_listed(a) for a in (scaled, np.asarray(means), np.asarray(variances))))

    @cached_property
    def parameters(self) -> tuple[Array, Array, Array]:
        """Normalised weights, means and variances."""
        weights = _numbers("weights", self.weights, least=0.0)
        if not np.sum(weights) > 0.0:
            raise MethodError("prior mixture: option weights needs a positive weight")
        variances = _numbers("variances", self.variances, least=0.0)
        return weights / np.sum(weights), _numbers("means", self.means), variances

    @cached_property
    def numbers(self) -> Array:
        """Number of components, then weight, mean and variance of each."""
        return np.concatenate([[self.parameters[0].size], np.stack(self.parameters, 1).ravel()])

    @property
    def n_parameters(self) -> int:  # type: ignore[override]
        """K - 1 weights, and mean and variance of each component that is not a point."""
        return self.parameters[0].size - 1 + 2 * int(np.count_nonzero(self.parameters[2]))

    @property
    def least_lam(self) -> float:  # type: ignore[override]
        """-1 / greatest variance."""
        widest = float(np.max(self.parameters[2]))
        return -1.0 / widest if widest > 0.0 else -math.inf

    @property
    def support(self) -> str:  # type: ignore[override]
        """Discrete when every component is a point."""
        return "real" if np.any(self.parameters[2] > 0.0) else "discrete"

    @property
    def states(self) -> tuple[Array, Array] | None:
        """The means, when every component is a point."""
        weights, means, variances = self.parameters
        return None if np.any(variances > 0.0) else (means, log(weights))

    @property
    def kurtosis(self) -> float:  # type: ignore[override]
        """Excess kurtosis of the mixture."""
        weights, means, variances = self.parameters
        mean, variance = self.mean_variance
        d = means - mean
        fourth = float(np.sum(weights * (d**4 + 6.0 * d * d * variances + 3.0 * variances**2)))
        return fourth / variance**2 - 3.0

    def log_density(self, s: ArrayLike) -> Array:
        """log of the sum of the components; refused when one of them is a point."""
        weights, means, variances = self.parameters
        if np.any(variances == 0.0):
            return super().log_density(s)
        d = np.asarray(s, dtype=np.float64)[..., None] - means
        terms = log(weights) - 0.5 * (d * d / variances + np.log(2.0 * math.pi * variances))
        return np.asarray(logsumexp(terms, axis=-1))

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> Array:
        """A component, then a normal draw."""
        weights, means, variances = self.parameters
        k = rng.choice(weights.size, size=size, p=weights)
        return means[k] + np.sqrt(variances[k]) * rng.standard_normal(size)

    def statistics(self, gamma: ArrayLike, lam: ArrayLike) -> Array:
        """Number of samples, then by component the sums of r, r s and r s^2."""
        from kikuchi.engines.sites.kernels.densities import component_sums

        g, precision, _ = _flat(gamma, lam)
        sums = np.zeros((self.parameters[0].size, 3))
        component_sums(self.numbers, g, precision, sums)
        if not np.all(np.isfinite(sums)):
            self.moments(g, precision)  # says where there is no integral
        return np.concatenate([[g.size], sums.ravel()])

    def statistics_of_states(self, sums: Array) -> Array:
        """Every component is a point: its probability, and that times its value and square."""
        means = self.parameters[1]
        columns = np.column_stack([sums, sums * means, sums * means * means])
        return np.concatenate([[sums.sum()], columns.ravel()])

    def updated(self, statistics: Array) -> MixturePrior:
        """New weights, means and variances; points, and components without samples, keep their
        shape.
        """
        sums = statistics[1:].reshape(-1, 3)
        count = np.maximum(sums[:, 0], _LEAST_WEIGHT * statistics[0])
        _, means, variances = self.parameters
        used = (sums[:, 0] > count * 0.5) & (variances > 0.0)
        means = np.where(used, sums[:, 1] / count, means)
        spread = sums[:, 2] / count - means * means
        whole = float(np.sum(sums[:, 2]) / np.sum(sums[:, 0]))
        variances = np.where(used, np.maximum(spread, _LEAST_VARIANCE * whole), variances)
        return MixturePrior.of(list(count), list(means), list(variances))


@dataclass(frozen=True)
class BiGaussianPrior(CompiledPrior):
    """Two equal Gaussians side by side: sub-Gaussian sources.

    >>> [round(float(a), 6) for a in BiGaussianPrior().moments(1.0, 1.0)]
    [0.731059, 0.696612]
    """

    name: ClassVar[str] = "bi-gaussian"
    log_concave: ClassVar[bool] = False
    code: ClassVar[int] = 5
    mean: float = option(1.0, "distance of both means from 0", low=0.0)
    variance: float = option(1.0, "variance of each", low=0.0)

    @property
    def least_lam(self) -> float:  # type: ignore[override]
        """-1 / variance."""
        return -1.0 / self.variance if self.variance > 0.0 else -math.inf

    @property
    def support(self) -> str:  # type: ignore[override]
        """Discrete when both are points."""
        return "real" if self.variance > 0.0 else "discrete"

    @property
    def states(self) -> tuple[Array, Array] | None:
        """-mean and +mean, when both are points."""
        if self.variance > 0.0:
            return None
        return np.array([-self.mean, self.mean]), np.full(2, -math.log(2.0))

    @property
    def kurtosis(self) -> float:  # type: ignore[override]
        """-2 mean^4 / (mean^2 + variance)^2."""
        return -2.0 * self.mean**4 / (self.mean**2 + self.variance) ** 2

    @property
    def mixture(self) -> MixturePrior:
        """The same prior as a mixture whose components are free."""
        return MixturePrior.of([0.5, 0.5], [-self.mean, self.mean], [self.variance, self.variance])

    def log_density(self, s: ArrayLike) -> Array:
        """log of the sum of both."""
        return self.mixture.log_density(s)

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> Array:
        """A sign, then a normal draw."""
        signs = 2.0 * rng.integers(0, 2, size) - 1.0
        return signs * self.mean + math.sqrt(self.variance) * rng.standard_normal(size)


def _numbers(option_name: str, text: str, least: float = -math.inf) -> Array:
    try:
        values = np.array([float(part) for part in text.split(",")])
    except ValueError:
        values = np.array([math.nan])
    if not np.all(np.isfinite(values) & (values >= least)):
        kind = "numbers" if least < 0.0 else "numbers not below 0"
        raise MethodError(
            f"prior mixture: option {option_name} must be {kind} between commas, got '{text}'"
        )
    return values


def _listed(values: Array) -> str:
    return ",".join(repr(float(v)) for v in values)
