"""Every prior over the whole plane of tilts, against quadrature that knows nothing of it (HOJ-M8).

The reference is scipy.integrate.quad on the integrand shifted by its peak, in pieces of all scales.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr

from kikuchi.core.errors import ModelError
from kikuchi.ica.priors.prior import PRIORS, parse_prior

LOG_TWO_PI = math.log(2.0 * math.pi)
GAMMAS = (0.0, 0.3, -2.5, 30.0, -300.0, 1e4, -1e4)
LAMS = (1e-8, 1e-3, 1.0, 50.0, 1e8)


@dataclass(frozen=True)
class Density:
    """log p, and log p(s + u) - log p(s) without cancellation far out."""

    log: Callable[[float], float]
    rise: Callable[[float, float], float]
    low: float = -math.inf
    high: float = math.inf


def straight(rate: float) -> Callable[[float, float], float]:
    """-rate (|s + u| - |s|)."""

    def rise(s: float, u: float) -> float:
        if s * (s + u) > 0.0:
            return -rate * math.copysign(1.0, s) * u
        return -rate * (abs(s + u) - abs(s))

    return rise


def bent(s: float, u: float) -> float:
    tail = math.log1p(math.exp(-2.0 * abs(s + u))) - math.log1p(math.exp(-2.0 * abs(s)))
    return straight(1.0)(s, u) - tail


def two_gaussians(s: float, u: float) -> float:
    """Of exp(-(s-1)^2 / 0.02) + exp(-(s+1)^2 / 0.02)."""

    def fold(x: float) -> float:
        return math.log1p(math.exp(-200.0 * abs(x)))

    far = straight(-100.0)(s, u)
    return -50.0 * u * (2.0 * s + u) + far + fold(s + u) - fold(s)


def spike_and_slab(s: float, u: float) -> float:
    """Of exp(-s^2 / 2) + exp(-s^2 / 8) / 2: the wide one by itself, times 1 + ratio."""

    def ratio(x: float) -> float:
        return math.log1p(2.0 * math.exp(-0.375 * x * x))

    return -0.125 * u * (2.0 * s + u) + ratio(s + u) - ratio(s)


CUT = -0.5 * LOG_TWO_PI - 0.5 * math.log(2.0) - float(log_ndtr(-3.0 / math.sqrt(2.0)))
DENSITIES = {
    "gaussian:variance=2": Density(
        lambda s: -0.25 * s * s - 0.5 * LOG_TWO_PI - 0.5 * math.log(2.0),
        lambda s, u: -0.25 * u * (2.0 * s + u),
    ),
    "laplace": Density(lambda s: math.log(0.5) - abs(s), straight(1.0)),
    "laplace:rate=0.25": Density(lambda s: math.log(0.125) - 0.25 * abs(s), straight(0.25)),
    "exponential": Density(lambda s: -s, lambda s, u: -u, low=0.0),
    "positive-gaussian:mean=-3,variance=2": Density(
        lambda s: CUT - 0.25 * (s + 3.0) ** 2, lambda s, u: -0.25 * u * (2.0 * (s + 3.0) + u), 0.0
    ),
    "uniform": Density(lambda s: -math.log(2.0), lambda s, u: 0.0, -1.0, 1.0),
    "uniform:low=2,high=2.5": Density(lambda s: math.log(2.0), lambda s, u: 0.0, 2.0, 2.5),
    "mixture": Density(
        lambda s: (
            -0.125 * s * s
            + math.log1p(2.0 * math.exp(-0.375 * s * s))
            - math.log(4.0)
            - 0.5 * LOG_TWO_PI
        ),
        spike_and_slab,
    ),
    "bi-gaussian:mean=1,variance=0.01": Density(
        lambda s: (
            -50.0 * (abs(s) - 1.0) ** 2
            + math.log1p(math.exp(-200.0 * abs(s)))
            + math.log(5.0)
            - 0.5 * LOG_TWO_PI
        ),
        two_gaussians,
    ),
    "cosh": Density(
        lambda s: math.log(2.0 / math.pi) - abs(s) - math.log1p(math.exp(-2.0 * abs(s))), bent
    ),
    "logistic": Density(
        lambda s: -abs(s) - 2.0 * math.log1p(math.exp(-abs(s))),
        lambda s, u: 2.0 * bent(0.5 * s, 0.5 * u),
    ),
    "rayleigh": Density(
        lambda s: (math.log(s) if s > 0.0 else -math.inf) - 0.5 * s * s,
        lambda s, u: (math.log1p(u / s) if u > -s else -math.inf) - 0.5 * u * (2.0 * s + u),
        low=0.0,
    ),
}


def reference(density: Density, gamma: float, lam: float) -> tuple[float, float, float]:
    """log Z0, mean and variance by quadrature in steps u from the peak."""
    grid = _grid(density, gamma, lam)
    peak = _peak(density, gamma, lam, grid)

    def weight(u: float) -> float:
        drop = density.rise(peak, u) + u * (gamma - lam * peak - 0.5 * lam * u)
        return math.exp(drop) if drop > -700.0 else 0.0

    edges = _edges(weight, grid - peak)

    def integral(f: Callable[[float], float]) -> float:
        return math.fsum(
            quad(f, a, b, epsabs=0, epsrel=1e-11, limit=200)[0] for a, b in pairwise(edges)
        )

    mass = integral(weight)
    shift = integral(lambda u: u * weight(u)) / mass
    spread = integral(lambda u: (u - shift) ** 2 * weight(u)) / mass
    height = density.log(peak) + peak * (gamma - 0.5 * lam * peak)
    return height + math.log(mass), peak + shift, spread


def _grid(density: Density, gamma: float, lam: float) -> np.ndarray:
    half = np.geomspace(1e-10, 1e14, 73)
    scales = np.concatenate([-half[::-1], [0.0], half])
    points = [scales, np.array([-1.0, 1.0])]
    if lam > 0.0:
        points.append(gamma / lam + np.linspace(-12.0, 12.0, 25) / math.sqrt(lam))
    points += [end + scales for end in (density.low, density.high) if math.isfinite(end)]
    grid = np.unique(np.concatenate(points))
    return grid[(grid >= density.low) & (grid <= density.high)]


def _peak(density: Density, gamma: float, lam: float, grid: np.ndarray) -> float:
    """A point near the top: the best of the grid, then golden section around it."""

    def value(s: float) -> float:
        return density.log(s) + s * (gamma - 0.5 * lam * s)

    k = int(np.argmax([value(s) for s in grid]))
    a, b = float(grid[max(k - 1, 0)]), float(grid[min(k + 1, grid.size - 1)])
    for _ in range(120):
        c, d = b - 0.618 * (b - a), a + 0.618 * (b - a)
        a, b = (a, d) if value(c) > value(d) else (c, b)
    middle = 0.5 * (a + b)
    return float(grid[k]) if value(grid[k]) >= value(middle) else middle


def _edges(weight: Callable[[float], float], steps: np.ndarray) -> list[float]:
    """Grid steps where the integrand is not negligible, and where it becomes so."""
    steps = np.unique(np.append(steps, 0.0))
    inside = np.flatnonzero([weight(u) > 1e-26 for u in steps])
    first, last = inside[0], inside[-1]
    ends = []
    for k, outer in ((first, first - 1), (last, last + 1)):
        near, far = steps[k], steps[min(max(outer, 0), steps.size - 1)]
        for _ in range(60):
            middle = 0.5 * (near + far)
            near, far = (middle, far) if weight(middle) > 1e-26 else (near, middle)
        ends.append(float(near))
    inner = [float(u) for u in steps[first : last + 1] if ends[0] < u < ends[1]]
    kept = [ends[0]]
    for u in [*inner, ends[1]]:
        if u - kept[-1] > 1e-6 * (ends[1] - ends[0]):
            kept.append(u)
    kept[-1] = ends[1]
    return kept


@pytest.mark.parametrize("text", DENSITIES)
def test_moments_over_the_whole_plane(text: str) -> None:
    # HOJ-M8a, HOJ-M8d, HOJ-M8e, HOJ-M8f, HOJ-M8g, HOJ-M8i, HOJ-M8j
    prior = parse_prior(text)
    for gamma in GAMMAS:
        for lam in LAMS:
            log_z, mean, variance = reference(DENSITIES[text], gamma, lam)
            found_mean, found_variance = prior.moments(gamma, lam)
            where = f"gamma={gamma:g}, lam={lam:g}"
            found = float(prior.log_partition(gamma, lam))
            assert abs(found - log_z) <= 1e-8 * max(1.0, abs(log_z)), where
            scale = max(abs(mean), math.sqrt(variance))
            assert abs(float(found_mean) - mean) <= 1e-8 * scale, where
            assert abs(float(found_variance) - variance) <= 1e-8 * variance, where


NEGATIVE = {
    "gaussian:variance=2": -0.4,
    "positive-gaussian:mean=-3,variance=2": -0.4,
    "uniform": -30.0,
    "uniform:low=2,high=2.5": -1e4,
    "mixture": -0.2,
    "bi-gaussian:mean=1,variance=0.01": -90.0,
    "rayleigh": -0.9,
}


@pytest.mark.parametrize("text", NEGATIVE)
@pytest.mark.parametrize("gamma", [0.0, 0.7, -40.0])
def test_moments_where_lam_is_negative(text: str, gamma: float) -> None:
    prior, lam = parse_prior(text), NEGATIVE[text]
    log_z, mean, variance = reference(DENSITIES[text], gamma, lam)
    assert float(prior.log_partition(gamma, lam)) == pytest.approx(log_z, rel=1e-8, abs=1e-8)
    assert float(prior.moments(gamma, lam)[0]) == pytest.approx(mean, rel=1e-8, abs=1e-8)
    assert float(prior.moments(gamma, lam)[1]) == pytest.approx(variance, rel=1e-8)


@pytest.mark.parametrize(
    ("text", "gamma", "lam"),
    [
        ("laplace", 0.0, -1e-12),
        ("laplace", 1.0, 0.0),
        ("exponential", 2.0, 0.0),
        ("gaussian", 0.0, -1.0),
        ("positive-gaussian", 0.0, -1.0),
        ("mixture", 0.0, -0.25),
        ("bi-gaussian", 0.0, -1.0),
        ("power-law", 1.0, 0.0),
        ("cosh", 0.0, -0.1),
        ("rayleigh", 0.0, -1.0),
        *[(text, math.nan, 1.0) for text in PRIORS],
        *[(text, 0.5, math.nan) for text in PRIORS if text != "binary"],
        *[(text, math.inf, 1.0) for text in ("gaussian", "bi-gaussian", "laplace", "cosh")],
        ("cosh", 1e308, 1e-8),
    ],
)
def test_what_has_no_integral_is_refused(text: str, gamma: float, lam: float) -> None:
    prior = parse_prior(text)
    with pytest.raises(ModelError, match="no integral"):
        prior.moments([0.0, gamma], [1.0, lam])
    with pytest.raises(ModelError, match="no integral"):
        prior.log_partition(gamma, lam)


def test_lam_zero_where_the_integral_exists() -> None:
    gamma = np.array([-0.9, 0.0, 0.5])
    laplace, exponential = parse_prior("laplace"), parse_prior("exponential")
    np.testing.assert_allclose(laplace.log_partition(gamma, 0), -np.log1p(-(gamma**2)), atol=1e-14)
    np.testing.assert_allclose(laplace.moments(gamma, 0)[0], 2 * gamma / (1 - gamma**2))
    np.testing.assert_allclose(exponential.moments(gamma, 0)[1], (1 - gamma) ** -2.0)
    for text in ("gaussian", "laplace", "exponential", "uniform", "mixture", "cosh", "binary01"):
        assert float(parse_prior(text).log_partition(0.0, 0.0)) == pytest.approx(0.0, abs=1e-12)


def test_two_states_over_the_whole_plane() -> None:
    """Against sums in extended precision, where the two weights differ by thousands of orders."""
    # HOJ-M8b, HOJ-M8c
    for gamma in GAMMAS:
        for lam in (-3.0, *LAMS):
            x = np.longdouble(gamma)
            mean, response = parse_prior("binary").moments(gamma, lam)
            assert float(mean) == pytest.approx(float(np.tanh(x)), rel=1e-13)
            expected = (2.0 / (np.exp(x) + np.exp(-x))) ** 2
            assert float(response) == pytest.approx(float(expected), rel=1e-12, abs=1e-300)
            odds = np.longdouble(0.3) / np.longdouble(0.7) * np.exp(x - np.longdouble(lam) / 2)
            mean, response = parse_prior("binary01:rate=0.3").moments(gamma, lam)
            share = odds / (1 + odds)
            assert float(mean) == pytest.approx(float(share), rel=1e-8, abs=1e-300)
            assert float(response) == pytest.approx(float(share / (1 + odds)), rel=1e-8, abs=1e-300)
