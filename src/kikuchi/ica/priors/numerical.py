r"""Source priors given by a log-density, with tilted moments by quadrature.

The tilted log-density must be concave, as it is for every lam >= 0 when the prior is log-concave.
Its peak is found by bisection of the score; from there the integral is followed to both sides until
the integrand has fallen by exp(-45), in pieces that are short near the peak and near the centre of
the density, where it bends. Everything is measured from the peak, so that nothing cancels however
far away the tilt pushes it.

Reference: HOJ-M8.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array, Mask
from kikuchi.core.errors import MethodError
from kikuchi.core.numerics import log
from kikuchi.core.options import option
from kikuchi.ica.priors.prior import SourcePrior

_DROP = 45.0
_ORDER = 12
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(_ORDER)
_STEP_NODES = 0.5 * (_NODES + 1.0)  # on [0, 1]
_STEP_WEIGHTS = 0.5 * _WEIGHTS
_MOST_STEPS = 400
_CHUNK = 4096
_FINEST = 0.5  # length of the first piece, in units of the finest scale
_MOST_PIECES = 60


@runtime_checkable
class Function(Protocol):
    """A function of an array of source values."""

    def __call__(self, s: Array) -> Array:
        """The value at each s."""


@dataclass(frozen=True)
class QuadraturePrior(SourcePrior, ABC):
    """Base of priors by quadrature: log-density, score and the finest scale of its features.

    Subclasses give `log_shape` (the log-density up to a constant) and `score` (its slope), both
    for arrays, `low` and `high` (ends of the support) and `finest`. `rise` may be given where
    differences of `log_shape` lose digits far out.
    """

    low: ClassVar[float] = -math.inf  # left end of the support
    high: ClassVar[float] = math.inf  # right end of the support
    finest: ClassVar[float] = 1.0  # length over which the log-density bends

    @abstractmethod
    def log_shape(self, s: Array) -> Array:
        """log p(s) up to a constant."""

    @abstractmethod
    def score(self, s: Array) -> Array:
        """d log p / ds."""

    def rise(self, s: Array, step: Array) -> Array:
        """log p(s + step) - log p(s)."""
        return self.log_shape(s + step) - self.log_shape(s)

    @property
    def kurtosis(self) -> float:  # type: ignore[override]
        """Excess kurtosis by the same quadrature."""
        peak, left, right = self._window(np.zeros(1), np.zeros(1))
        steps, mass = self._pieces(np.zeros(1), np.zeros(1), peak, left, right)
        total = np.sum(mass)
        d = steps - np.sum(mass * steps) / total
        second, fourth = (float(np.sum(mass * d**k) / total) for k in (2, 4))
        return fourth / second**2 - 3.0

    def log_density(self, s: ArrayLike) -> Array:
        """log p(s), normalised by quadrature; -inf outside the support."""
        s = np.asarray(s, dtype=np.float64)
        inside = (s >= self.low) & (s <= self.high)
        shape = self.log_shape(np.where(inside, s, self._middle))
        return np.where(inside, shape - self._log_mass, -np.inf)

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> Array:
        """Draws by inverting the distribution function, interpolated between quadrature pieces."""
        grid, cumulative = self._distribution
        return np.interp(rng.random(size), cumulative, grid)

    def _log_partition(self, gamma: Array, lam: Array) -> Array:
        return self._integrate(gamma, lam)[0] - self._log_mass

    def _moments(self, gamma: Array, lam: Array) -> tuple[Array, Array]:
        _, mean, variance = self._integrate(gamma, lam)
        return mean, variance

    @cached_property
    def _log_mass(self) -> float:
        return float(self._integrate(np.zeros(1), np.zeros(1))[0][0])

    @property
    def _middle(self) -> float:
        """Some point inside the support."""
        if math.isfinite(self.low):
            return self.low + self.finest if math.isinf(self.high) else 0.5 * (self.low + self.high)
        return 0.0 if math.isinf(self.high) else self.high - self.finest

    @cached_property
    def _distribution(self) -> tuple[Array, Array]:
        peak, left, right = self._window(np.zeros(1), np.zeros(1))
        grid = np.linspace(float(peak[0] - left[0]), float(peak[0] + right[0]), 20001)
        centres = 0.5 * (grid[1:] + grid[:-1])
        mass = np.exp(self.log_shape(centres) - self.log_shape(peak))
        cumulative = np.concatenate([[0.0], np.cumsum(mass)])
        return grid, cumulative / cumulative[-1]

    # ------------------------------------------------------------------ quadrature

    def _integrate(self, gamma: Array, lam: Array) -> tuple[Array, Array, Array]:
        """log of the integral of the tilted shape, mean and variance; NaN where there is none."""
        out = np.full((3, gamma.size), np.nan)
        finite = np.isfinite(gamma) & np.isfinite(lam)
        good = np.flatnonzero(finite & self._exists(gamma, lam))
        for start in range(0, good.size, _CHUNK):
            part = good[start : start + _CHUNK]
            with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused
                out[:, part] = self._integrate_chunk(gamma[part], lam[part])
        return out[0], out[1], out[2]

    def _exists(self, gamma: Array, lam: Array) -> Mask:
        """Whether the tilted shape falls towards both ends: if lam > 0, or by its slope if 0."""
        far = 1e6 * self.finest
        right = True if math.isfinite(self.high) else self.score(np.full(1, far))[0] + gamma < 0.0
        left = True if math.isfinite(self.low) else self.score(np.full(1, -far))[0] + gamma > 0.0
        return np.asarray((lam > 0.0) | ((lam == 0.0) & right & left))

    def _integrate_chunk(self, gamma: Array, lam: Array) -> Array:
        peak, left, right = self._window(gamma, lam)
        steps, mass = self._pieces(gamma, lam, peak, left, right)
        total = np.sum(mass, axis=0)
        shift = np.sum(mass * steps, axis=0) / total
        spread = np.sum(mass * (steps - shift) ** 2, axis=0) / total
        height = self.log_shape(peak) + peak * (gamma - 0.5 * lam * peak)
        return np.stack([height + np.log(total), peak + shift, spread])

    def _drop(self, gamma: Array, lam: Array, peak: Array, step: Array) -> Array:
        """How far the tilted log-density has fallen at peak + step."""
        tilt = step * (gamma - lam * peak - 0.5 * lam * step)
        return np.asarray(-(self.rise(peak, step) + tilt))

    def _window(self, gamma: Array, lam: Array) -> tuple[Array, Array, Array]:
        """The peak, and how far to its left and right the integrand matters."""
        peak = self._peak(gamma, lam)
        left, right = (self._reach(gamma, lam, peak, sign) for sign in (-1.0, 1.0))
        return peak, left, right

    def _peak(self, gamma: Array, lam: Array) -> Array:
        """Zero of the tilted score, by bisection between ends that are moved out first."""
        lower, upper = self._bracket(gamma, lam, -1.0), self._bracket(gamma, lam, 1.0)
        for _ in range(_MOST_STEPS):
            middle = 0.5 * (lower + upper)
            slope = self.score(middle) + gamma - lam * middle
            lower = np.where(slope > 0.0, middle, lower)
            upper = np.where(slope > 0.0, upper, middle)
            if np.all(upper - lower <= 1e-9 * (self.finest + np.abs(middle))):
                break
        return np.asarray(0.5 * (lower + upper))

    def _bracket(self, gamma: Array, lam: Array, sign: float) -> Array:
        """A point on the side `sign` of the peak, or the end of the support there."""
        end = self.high if sign > 0.0 else self.low
        step = np.full(gamma.shape, self.finest)
        point = np.full(gamma.shape, self._middle)
        for _ in range(_MOST_STEPS):
            inside = np.clip(point, self.low, self.high)
            slope = self.score(inside) + gamma - lam * inside
            going = (sign * slope > 0.0) & (sign * (end - point) > 0.0)
            if not np.any(going):
                break
            point = np.where(going, point + sign * step, point)
            step = np.where(going, 2.0 * step, step)
        return np.asarray(np.clip(point, self.low, self.high))

    def _reach(self, gamma: Array, lam: Array, peak: Array, sign: float) -> Array:
        """Distance from the peak at which the integrand has fallen enough, within a tenth."""
        end = self.high if sign > 0.0 else self.low
        room = np.abs(end - peak)
        near, far = np.zeros(gamma.shape), np.minimum(self.finest, room)
        for _ in range(_MOST_STEPS):
            short = (self._drop(gamma, lam, peak, sign * far) < _DROP) & (far < room)
            if not np.any(short):
                break
            near = np.where(short, far, near)
            far = np.where(short, np.minimum(2.0 * far, room), far)
        for _ in range(_MOST_STEPS):
            wide = (far - near > 0.1 * far) & (near < far)
            if not np.any(wide):
                break
            middle = 0.5 * (near + far)
            enough = self._drop(gamma, lam, peak, sign * middle) >= _DROP
            far = np.where(wide & enough, middle, far)
            near = np.where(wide & ~enough, middle, near)
        return far

    def _pieces(
        self, gamma: Array, lam: Array, peak: Array, left: Array, right: Array
    ) -> tuple[Array, Array]:
        """Steps from the peak and their masses, (nodes, elements)."""
        longest = float(np.max(np.maximum(left, right)))
        unit, weight = _graded(math.log2(max(1.0, longest / (_FINEST * self.finest))))
        centre = np.clip(self._middle - peak, -left, right)
        steps, masses = [], []
        for begin, end in (
            (-left, np.minimum(centre, 0.0)),
            (np.minimum(centre, 0.0), np.maximum(centre, 0.0)),
            (np.maximum(centre, 0.0), right),
        ):
            length = end - begin
            if np.any(length > 0.0):
                step = begin + unit[:, None] * length
                drop = self._drop(gamma, lam, peak, step)
                steps.append(step)
                masses.append(weight[:, None] * length * np.exp(-drop))
        return np.concatenate(steps), np.concatenate(masses)


def _graded(doublings: float) -> tuple[Array, Array]:
    """Nodes and weights on [0, 1], in pieces that double in length from both ends."""
    count = min(_MOST_PIECES, 4 + math.ceil(doublings))
    half = np.concatenate([[0.0], 2.0 ** np.arange(-count, 0.0)])
    edges = np.concatenate([half, 1.0 - half[-2::-1]])
    widths = np.diff(edges)
    nodes = edges[:-1, None] + widths[:, None] * _STEP_NODES
    return nodes.ravel(), (widths[:, None] * _STEP_WEIGHTS).ravel()


@dataclass(frozen=True)
class _SechPowerPrior(QuadraturePrior):
    """Density in proportion to 1 / cosh(s / width)^power: round on top, with straight tails."""

    power: ClassVar[float]
    scale: float = option(1.0, "unit of the source", above=0.0)

    @property
    def width(self) -> float:
        """Unit of the argument of cosh: the slope in the tails is 1 / scale."""
        return self.power * self.scale

    @property
    def finest(self) -> float:  # type: ignore[override]
        """The scale."""
        return self.scale

    def log_shape(self, s: Array) -> Array:
        """-power log 2 cosh(s / width)."""
        return -(np.abs(s) / self.scale + self._bend(s))

    def score(self, s: Array) -> Array:
        """-tanh(s / width) / scale."""
        return np.asarray(-np.tanh(s / self.width) / self.scale)

    def rise(self, s: Array, step: Array) -> Array:
        """The straight part by itself, which far out is all of it."""
        end = s + step
        straight = np.where(s * end > 0.0, np.sign(s) * step, np.abs(end) - np.abs(s))
        return np.asarray(-straight / self.scale - (self._bend(end) - self._bend(s)))

    def _bend(self, s: Array) -> Array:
        """What cosh has more than its tails: power log(1 + exp(-2 |s| / width))."""
        return np.asarray(self.power * np.log1p(np.exp(-2.0 * np.abs(s) / self.width)))


class CoshPrior(_SechPowerPrior):
    """1 / (pi scale cosh(s / scale)), the hyperbolic secant: tails like Laplace, round on top.

    >>> round(CoshPrior().kurtosis, 8)
    2.0
    """

    name: ClassVar[str] = "cosh"
    summary: ClassVar[str] = "1 / cosh: sparse with a round top (by quadrature)"
    power: ClassVar[float] = 1.0

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> Array:
        """scale log tan(pi u / 2)."""
        u = rng.random(size) * (1.0 - 2.0**-52) + 2.0**-54
        return np.asarray(self.scale * np.log(np.tan(0.5 * math.pi * u)))


class LogisticPrior(_SechPowerPrior):
    """Density of the logistic distribution, 1 / (4 scale cosh^2(s / 2 scale)).

    >>> round(LogisticPrior().kurtosis, 8)
    1.2
    """

    name: ClassVar[str] = "logistic"
    summary: ClassVar[str] = "logistic density: mildly sparse (by quadrature)"
    power: ClassVar[float] = 2.0

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> Array:
        """Logistic draws."""
        return rng.logistic(scale=self.scale, size=size)


@dataclass(frozen=True)
class RayleighPrior(QuadraturePrior):
    """(s / variance) exp(-s^2 / 2 variance) on s > 0: positive, rarely near zero.

    >>> [round(x, 6) for x in RayleighPrior().mean_variance]
    [1.253314, 0.429204]
    """

    name: ClassVar[str] = "rayleigh"
    summary: ClassVar[str] = "length of a Gaussian vector: positive (by quadrature)"
    support: ClassVar[str] = "positive"
    symmetric: ClassVar[bool] = False
    low: ClassVar[float] = 0.0
    variance: float = option(1.0, "variance of each of the two coordinates", above=0.0)

    @property
    def least_lam(self) -> float:  # type: ignore[override]
        """-1 / variance."""
        return -1.0 / self.variance

    @property
    def finest(self) -> float:  # type: ignore[override]
        """The deviation of a coordinate."""
        return math.sqrt(self.variance)

    def log_shape(self, s: Array) -> Array:
        """log s - s^2 / 2 variance."""
        return log(s) - 0.5 * s * s / self.variance

    def score(self, s: Array) -> Array:
        """1 / s - s / variance."""
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 / s - s / self.variance)

    def rise(self, s: Array, step: Array) -> Array:
        """Without the difference of two logarithms."""
        with np.errstate(divide="ignore"):
            grown = np.log1p(np.maximum(step / s, -1.0))
        return np.asarray(grown - step * (s + 0.5 * step) / self.variance)

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> Array:
        """Rayleigh draws."""
        return rng.rayleigh(scale=math.sqrt(self.variance), size=size)

    def _exists(self, gamma: Array, lam: Array) -> Mask:
        return lam > self.least_lam


@dataclass(frozen=True)
class LogDensityPrior(QuadraturePrior):
    """Any log-concave density of your own: its logarithm (up to a constant) and its slope.

    That the slope falls, and is the slope, is checked on a grid when the prior is made. Densities
    with more than one peak are refused: use a mixture. lam must not be negative.

    >>> quartic = LogDensityPrior(lambda s: -(s**4) / 4, lambda s: -(s**3))
    >>> round(quartic.kurtosis, 6)
    -0.81156
    """

    name: ClassVar[str] = "log-density"
    summary: ClassVar[str] = "a log-concave density of your own (by quadrature)"
    log_function: Function = option(None, "log p(s) up to a constant, of an array")
    slope_function: Function = option(None, "d log p / ds, of an array")
    left: float = option(-math.inf, "left end of the support")
    right: float = option(math.inf, "right end of the support")
    unit: float = option(1.0, "length over which log p bends", above=0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.left < self.right:
            raise MethodError("prior log-density: left must be below right")
        self._check_shape()

    @property
    def support(self) -> str:  # type: ignore[override]
        """From the ends."""
        if math.isinf(self.left) and math.isinf(self.right):
            return "real"
        return "positive" if self.left >= 0.0 and math.isinf(self.right) else "interval"

    @property
    def symmetric(self) -> bool:  # type: ignore[override]
        """Whether the density is even, on a grid."""
        s = np.geomspace(1e-3, 30.0, 40) * self.unit
        if self.left != -self.right:
            return False
        s = s[s < self.right]
        return bool(np.allclose(self.score(s), -self.score(-s), rtol=1e-9, atol=1e-12))

    @property
    def low(self) -> float:  # type: ignore[override]
        """`left`."""
        return self.left

    @property
    def high(self) -> float:  # type: ignore[override]
        """`right`."""
        return self.right

    @property
    def finest(self) -> float:  # type: ignore[override]
        """`unit`."""
        return self.unit

    def log_shape(self, s: Array) -> Array:
        """As given."""
        return self.log_function(s)

    def score(self, s: Array) -> Array:
        """As given."""
        return self.slope_function(s)

    def _check_shape(self) -> None:
        half = np.geomspace(1e-2, 30.0, 60) * self.unit
        grid = self._middle + np.concatenate([-half[::-1], [0.0], half])
        grid = grid[(grid > self.low) & (grid < self.high)]
        slope = self.score(grid)
        if not np.all(np.isfinite(slope)) or np.any(np.diff(slope) > 1e-9 * np.max(np.abs(slope))):
            raise MethodError(
                "prior log-density: the slope must fall (a log-concave density); for more than one "
                "peak use a mixture"
            )
        step = 1e-5 * self.unit
        inner = grid[(grid - step > self.low) & (grid + step < self.high)]
        found = (self.log_shape(inner + step) - self.log_shape(inner - step)) / (2.0 * step)
        scale = np.maximum(1.0 / self.unit, np.abs(self.score(inner)))
        if not np.all(np.abs(found - self.score(inner)) <= 1e-3 * scale):
            raise MethodError("prior log-density: slope_function is not the slope of log_function")
