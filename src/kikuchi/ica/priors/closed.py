"""Source priors with closed forms, compiled.

Reference: HOJ-L7, HOJ-M8a, HOJ-M8b, HOJ-M8c, HOJ-M8f, HOJ-M8g, HOJ-M8i, HOJ-M8j.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.errors import MethodError
from kikuchi.core.options import option
from kikuchi.ica.priors.prior import CompiledPrior, _flat

_LEAST_RATE = 1e-3  # a binary source that is always on or always off tells nothing more
_LOG_TWO_PI = math.log(2.0 * math.pi)


@dataclass(frozen=True)
class GaussianPrior(CompiledPrior):
    """N(0, variance): not separating, but everything about it is exact.

    >>> [round(float(a), 6) for a in GaussianPrior().moments(1.0, 1.0)]
    [0.5, 0.5]
    """

    name: ClassVar[str] = "gaussian"
    summary: ClassVar[str] = "normal source: factor analysis, no separation"
    code: ClassVar[int] = 0
    kurtosis: ClassVar[float] = 0.0
    variance: float = option(1.0, "variance of the source", above=0.0)

    @property
    def least_lam(self) -> float:  # type: ignore[override]
        """-1 / variance."""
        return -1.0 / self.variance

    def log_density(self, s: ArrayLike) -> Array:
        """log N(s; 0, variance)."""
        s = np.asarray(s, dtype=np.float64)
        return np.asarray(-0.5 * (s * s / self.variance + math.log(self.variance) + _LOG_TWO_PI))

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> Array:
        """Normal draws."""
        return math.sqrt(self.variance) * rng.standard_normal(size)


@dataclass(frozen=True)
class _TwoStatePrior(CompiledPrior):
    """A source with two values; lam may be anything."""

    code: ClassVar[int] = 1
    least_lam: ClassVar[float] = -math.inf
    log_concave: ClassVar[bool] = False
    support: ClassVar[str] = "discrete"

    @property
    def states(self) -> tuple[Array, Array]:
        """Both values and their log-probabilities."""
        return self.numbers[:2], self.numbers[2:]


class BinaryPrior(_TwoStatePrior):
    """-1 or +1, equally probable.

    >>> round(float(BinaryPrior().moments(1.0, 7.0)[0]), 6)
    0.761594
    """

    name: ClassVar[str] = "binary"
    kurtosis: ClassVar[float] = -2.0

    @cached_property
    def numbers(self) -> Array:
        """Both values and their log-probabilities."""
        return np.array([-1.0, 1.0, -math.log(2.0), -math.log(2.0)])

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> Array:
        """Random signs."""
        return np.asarray(2.0 * rng.integers(0, 2, size) - 1.0, dtype=np.float64)


@dataclass(frozen=True)
class Binary01Prior(_TwoStatePrior):
    """1 with probability `rate`, else 0; EM learns the rate.

    >>> [round(float(a), 6) for a in Binary01Prior(rate=0.3).moments(0.0, 1.0)]
    [0.206312, 0.163748]
    """

    name: ClassVar[str] = "binary01"
    summary: ClassVar[str] = "0 or 1, with a rate that can be learned"
    symmetric: ClassVar[bool] = False
    n_parameters: ClassVar[int] = 1
    rate: float = option(0.5, "probability of 1", above=0.0, below=1.0)

    @cached_property
    def numbers(self) -> Array:
        """Both values and their log-probabilities."""
        return np.array([0.0, 1.0, math.log1p(-self.rate), math.log(self.rate)])

    @property
    def kurtosis(self) -> float:  # type: ignore[override]
        """(1 - 6 r (1 - r)) / (r (1 - r))."""
        spread = self.rate * (1.0 - self.rate)
        return (1.0 - 6.0 * spread) / spread

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> Array:
        """Bits that are 1 at the rate."""
        return (rng.random(size) < self.rate).astype(np.float64)

    def updated(self, statistics: Array) -> Binary01Prior:
        """The mean of the posterior means is the new rate, kept within [0.001, 0.999]."""
        rate = float(statistics[1] / statistics[0])
        return replace(self, rate=min(max(rate, _LEAST_RATE), 1.0 - _LEAST_RATE))


@dataclass(frozen=True)
class LaplacePrior(CompiledPrior):
    """(rate / 2) exp(-rate |s|): sparse sources.

    At lam = 0 the integral exists for |gamma| < rate; below 0 it never does.

    >>> round(float(LaplacePrior().log_partition(3.0, 0.5)), 6)
    4.57128
    """

    name: ClassVar[str] = "laplace"
    summary: ClassVar[str] = "two-sided exponential: sparse sources"
    code: ClassVar[int] = 2
    kurtosis: ClassVar[float] = 3.0
    n_parameters: ClassVar[int] = 1
    rate: float = option(1.0, "rate of decay on both sides", above=0.0)

    def log_density(self, s: ArrayLike) -> Array:
        """log(rate / 2) - rate |s|."""
        return math.log(0.5 * self.rate) - self.rate * np.abs(np.asarray(s, dtype=np.float64))

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> Array:
        """Laplace draws."""
        return rng.laplace(scale=1.0 / self.rate, size=size)

    def statistics(self, gamma: ArrayLike, lam: ArrayLike) -> Array:
        """Number of samples and the sum of the posterior means of |s|."""
        from kikuchi.engines.sites.kernels.densities import mean_size_of

        g, precision, _ = _flat(gamma, lam)
        size = np.empty(g.size)
        mean_size_of(self.rate, g, precision, size)
        self._check_integrals(size, g, precision)
        return np.array([g.size, np.sum(size)])

    def updated(self, statistics: Array) -> LaplacePrior:
        """rate = 1 / mean |s|; redundant with the scale of the column unless that is fixed."""
        return replace(self, rate=_rate(self.rate, statistics))


@dataclass(frozen=True)
class ExponentialPrior(CompiledPrior):
    """rate exp(-rate s) on s >= 0 (with the corrected response).

    At lam = 0 the integral exists for gamma < rate; below 0 it never does.

    >>> [round(float(a), 6) for a in ExponentialPrior().moments(-2.0, 1.0)]
    [0.283099, 0.070559]
    """

    name: ClassVar[str] = "exponential"
    summary: ClassVar[str] = "positive and sparse"
    code: ClassVar[int] = 3
    kurtosis: ClassVar[float] = 6.0
    support: ClassVar[str] = "positive"
    symmetric: ClassVar[bool] = False
    n_parameters: ClassVar[int] = 1
    rate: float = option(1.0, "rate of decay", above=0.0)

    def log_density(self, s: ArrayLike) -> Array:
        """log rate - rate s; -inf below 0."""
        s = np.asarray(s, dtype=np.float64)
        return np.where(s >= 0.0, math.log(self.rate) - self.rate * s, -np.inf)

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> Array:
        """Exponential draws."""
        return rng.exponential(scale=1.0 / self.rate, size=size)

    def updated(self, statistics: Array) -> ExponentialPrior:
        """rate = 1 / mean s; redundant with the scale of the column unless that is fixed."""
        return replace(self, rate=_rate(self.rate, statistics))


@dataclass(frozen=True)
class PositiveGaussianPrior(CompiledPrior):
    """N(mean, variance) cut to s >= 0 (with the corrected response).

    >>> [round(float(a), 6) for a in PositiveGaussianPrior().moments(0.0, 1.0)]
    [0.56419, 0.18169]
    """

    name: ClassVar[str] = "positive-gaussian"
    summary: ClassVar[str] = "normal source cut to be positive"
    code: ClassVar[int] = 7
    support: ClassVar[str] = "positive"
    symmetric: ClassVar[bool] = False
    mean: float = option(0.0, "mean before the cut")
    variance: float = option(1.0, "variance before the cut", above=0.0)

    @cached_property
    def numbers(self) -> Array:
        """mean / variance and 1 / variance."""
        return np.array([self.mean / self.variance, 1.0 / self.variance])

    @property
    def least_lam(self) -> float:  # type: ignore[override]
        """-1 / variance."""
        return -1.0 / self.variance

    @property
    def kurtosis(self) -> float:  # type: ignore[override]
        """Excess kurtosis, by quadrature: a recursion of the moments cancels far out."""
        mean, variance = self.mean_variance
        low, high = max(mean - 12.0 * math.sqrt(variance), 0.0), mean + 60.0 * math.sqrt(variance)
        nodes, weights = np.polynomial.legendre.leggauss(256)
        s = low + 0.5 * (high - low) * (nodes + 1.0)
        mass = weights * np.exp(self.log_density(s))
        return float(mass @ (s - mean) ** 4 / np.sum(mass) / variance**2 - 3.0)

    def log_density(self, s: ArrayLike) -> Array:
        """log density of the cut Gaussian; -inf below 0."""
        from kikuchi.engines.sites.kernels.half_line import log_integral

        s = np.asarray(s, dtype=np.float64)
        linear, square = self.numbers
        inside = linear * s - 0.5 * square * s * s - log_integral(linear, square)
        return np.where(s >= 0.0, inside, -np.inf)

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> Array:
        """Draws by the inverse of the tail, in the log domain."""
        from scipy.special import log_ndtr, ndtri_exp

        root = math.sqrt(self.variance)
        log_tail = np.log1p(-rng.random(size)) + log_ndtr(self.mean / root)
        return np.maximum(self.mean - root * np.asarray(ndtri_exp(log_tail)), 0.0)


@dataclass(frozen=True)
class UniformPrior(CompiledPrior):
    """Equal density on [low, high]; lam may be anything.

    >>> [round(float(a), 6) for a in UniformPrior().moments(3.0, 0.5)]
    [0.65082, 0.105586]
    """

    name: ClassVar[str] = "uniform"
    summary: ClassVar[str] = "equal density on an interval: flat, sub-Gaussian sources"
    code: ClassVar[int] = 8
    kurtosis: ClassVar[float] = -1.2
    least_lam: ClassVar[float] = -math.inf
    support: ClassVar[str] = "interval"
    low: float = option(-1.0, "left end")
    high: float = option(1.0, "right end")

    @property
    def symmetric(self) -> bool:  # type: ignore[override]
        """Whether the middle of the interval is 0."""
        return self.low == -self.high

    def __post_init__(self) -> None:
        super().__post_init__()
        if not -math.inf < self.low < self.high < math.inf:
            raise MethodError(
                f"prior uniform: low must be below high and both finite, got {self.low:g} "
                f"and {self.high:g}"
            )

    def log_density(self, s: ArrayLike) -> Array:
        """-log(high - low) inside, -inf outside."""
        s = np.asarray(s, dtype=np.float64)
        inside = (s >= self.low) & (s <= self.high)
        return np.where(inside, -math.log(self.high - self.low), -np.inf)

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> Array:
        """Uniform draws."""
        return rng.uniform(self.low, self.high, size)


def _rate(rate: float, statistics: Array) -> float:
    """1 / mean; unchanged where the mean is 0, as of a source without any signal."""
    return float(statistics[0] / statistics[1]) if statistics[1] > 0.0 else rate
