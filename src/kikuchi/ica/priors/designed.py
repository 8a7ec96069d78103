"""Priors given by a mean function instead of a density, and the power law.

Reference: HOJ-L9, HOJ-M8h.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import MethodError
from kikuchi.core.options import option
from kikuchi.ica.priors.prior import CompiledPrior, SourcePrior


@runtime_checkable
class MeanFunction(Protocol):
    """Mean and response of a tilted source, for flat arrays."""

    def __call__(self, gamma: Array, lam: Array) -> tuple[Array, Array]:
        """m(gamma, lam) and dm/dgamma."""


@runtime_checkable
class Potential(Protocol):
    """A function whose derivative in gamma is the mean."""

    def __call__(self, gamma: Array, lam: Array) -> Array:
        """The potential."""


@dataclass(frozen=True)
class DesignedPrior(SourcePrior):
    """A source known by its mean function alone: choose m, run the same algorithm.

    m must not fall (response >= 0), and be gamma / lam for large |gamma| less what makes sources
    sparse. It is checked for that on a grid when made. Without `potential` there is no log Z, and
    so no likelihood and no BIC. lam must be positive.

    >>> def shrink(gamma, lam):
    ...     root = np.sqrt(gamma**2 + lam)
    ...     return gamma / lam - gamma / root / lam**0.5, 1 / lam - lam**0.5 / root**3
    >>> float(DesignedPrior(shrink).moments(3.0, 1.0)[0].round(6))
    2.051317
    """

    name: ClassVar[str] = "designed"
    summary: ClassVar[str] = "given by its mean function"
    log_concave: ClassVar[bool] = False
    is_proper: ClassVar[bool] = False
    kurtosis: ClassVar[float] = math.inf  # unknown without a density; treated as heavy tails
    mean_function: MeanFunction = option(None, "mean and response of flat arrays")
    potential: Potential | None = option(None, "its gamma-derivative is the mean")

    def __post_init__(self) -> None:
        super().__post_init__()
        gamma, lam = (a.ravel() for a in np.meshgrid(_grid(), [0.1, 1.0, 10.0]))
        mean, response = self._moments(gamma, lam)
        if mean.shape != gamma.shape or response.shape != gamma.shape:
            raise MethodError("prior designed: the mean function must answer arrays like gamma")
        step = 1e-6 * np.maximum(1.0, np.abs(gamma))
        rise = (self._moments(gamma + step, lam)[0] - self._moments(gamma - step, lam)[0]) / (
            2.0 * step
        )
        if not (np.all(np.isfinite(mean)) and np.all(response >= 0.0)):
            raise MethodError(
                "prior designed: the mean must be finite and its response not below 0"
            )
        if not np.allclose(rise, response, rtol=1e-3, atol=1e-6):
            raise MethodError("prior designed: the response is not the derivative of the mean")

    @property
    def has_log_partition(self) -> bool:  # type: ignore[override]
        """Whether a potential was given."""
        return self.potential is not None

    @cached_property
    def mean_variance(self) -> tuple[float, float]:
        """Of the tilt at gamma = 0, lam = 1, the variance not below 1: there is no prior to take it
        from, and methods need a start.
        """
        mean, variance = self.moments(0.0, 1.0)
        return float(mean), max(float(variance), 1.0)

    def _moments(self, gamma: Array, lam: Array) -> tuple[Array, Array]:
        return self.mean_function(gamma, lam)

    def _log_partition(self, gamma: Array, lam: Array) -> Array:
        if self.potential is None:
            raise MethodError(
                "prior designed has no log partition; give it a potential, or use moments only"
            )
        return self.potential(gamma, lam)


@dataclass(frozen=True)
class PowerLawPrior(CompiledPrior):
    """m = gamma / lam - alpha gamma / (k alpha lam + gamma^2): tails |s|^-alpha.

    There is no density behind it: the tails are those of a power law, k = 1 is the original (with
    no response at gamma = 0) and k = 2 the regularised one. `log_partition` is a potential of the
    mean, known up to a function of lam only: there is no likelihood. It has no scale. lam must be
    positive.

    >>> [round(float(a), 6) for a in PowerLawPrior(alpha=1, k=2).moments(1.0, 1.0)]
    [0.666667, 0.888889]
    """

    name: ClassVar[str] = "power-law"
    summary: ClassVar[str] = "heavy tails |s|^-alpha, by its mean function"
    log_concave: ClassVar[bool] = False
    is_proper: ClassVar[bool] = False
    has_log_partition: ClassVar[bool] = False
    code: ClassVar[int] = 6
    kurtosis: ClassVar[float] = math.inf  # the tails have no fourth moment
    alpha: float = option(1.0, "exponent of the tails", above=0.0)
    k: float = option(1.0, "regularisation: 1 is the original, 2 has a response at 0", low=1.0)

    @cached_property
    def mean_variance(self) -> tuple[float, float]:
        """It has no scale; unit variance stands for it where a method needs a start."""
        return 0.0, 1.0


def _grid() -> Array:
    half = np.geomspace(1e-3, 1e3, 25)
    return np.concatenate([-half[::-1], [0.0], half])
