"""Square mixtures whose noise is too low to matter: Newton's method against finite differences."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from kikuchi.ica import MeanFieldICA
from kikuchi.ica.infomax.densities import Density
from kikuchi.ica.measures import amari_distance
from kikuchi.ica.model import Model, Observations, is_clear
from kikuchi.ica.noise import make_noise
from kikuchi.ica.noiseless import laplace_density, mixture_density, noiseless_optimum
from kikuchi.ica.priors.mixture import MixturePrior
from kikuchi.ica.priors.prior import parse_prior

MIXING = np.array([[1.0, 0.4, -0.3], [-0.5, 1.2, 0.2], [0.3, 0.1, 0.8]])
PARTS = [0.7, 0.3], [0.0, 0.0], np.array([0.2, 2.0])
LEVEL = 1e-6


def sparse_data(count: int = 4000) -> np.ndarray:
    """A source that is zero most of the time, and two Laplace ones."""
    rng = np.random.default_rng(5)
    spikes = rng.standard_normal(count) * (rng.random(count) < 0.3)
    return MIXING @ np.array([spikes, 0.5 * rng.laplace(size=count), rng.laplace(size=count)])


def model_of(data: np.ndarray, mixing: np.ndarray, level: float = LEVEL) -> Model:
    priors = (
        MixturePrior.of(*map(list, PARTS)),
        parse_prior("laplace:rate=2"),
        parse_prior("laplace"),
    )
    noise = make_noise("isotropic", np.full(len(data), 1e-9))  # whose floor is lower still
    return Model(mixing, noise.scaled(level / float(np.mean(noise.value))), priors)


def log_density(data: np.ndarray, mixing: np.ndarray) -> float:
    """The mean log density without the library: sums over components, and quadrature of Laplace
    densities, whose noise is a third of the step of a grid that follows each value.
    """
    filters = np.linalg.inv(mixing)
    total = math.log(abs(np.linalg.det(filters)))
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    for row, rate in zip(filters, (0.0, 2.0, 1.0), strict=True):
        u, noise = (row @ data)[:, None], LEVEL * float(row @ row)
        if rate:
            away = np.abs(u - math.sqrt(noise) * nodes)
            each = weights / weights.sum() * 0.5 * rate * np.exp(-rate * away)
        else:
            wide = PARTS[2] + noise
            each = np.array(PARTS[0]) * np.exp(-0.5 * u**2 / wide) / np.sqrt(2.0 * np.pi * wide)
        total += float(np.log(each.sum(axis=1)).mean())
    return total


@pytest.mark.parametrize(
    "density",
    [
        mixture_density([0.2, 0.5, 0.3], [-1.0, 0.0, 2.0], np.array([0.3, 0.05, 1.0])),
        laplace_density(1.5, 0.2),
        laplace_density(1.5, 4.0),
    ],
)
def test_derivatives_of_densities_equal_finite_differences(density: Density) -> None:
    u, step = np.linspace(-4.0, 4.0, 41), 1e-5
    ends = [density.energy(u + s * step) for s in (1.0, -1.0)]
    np.testing.assert_allclose(density.slope(u), (ends[0] - ends[1]) / (2 * step), atol=1e-6)
    ends = [density.slope(u + s * step) for s in (1.0, -1.0)]
    np.testing.assert_allclose(density.curvature(u), (ends[0] - ends[1]) / (2 * step), atol=1e-5)


@pytest.mark.parametrize(("rate", "deviation"), [(2.0, 0.03), (0.7, 1.3)])
def test_a_laplace_density_with_noise_equals_an_integral(rate: float, deviation: float) -> None:
    for u in (-3.0, 0.0, 0.4):
        grid = np.linspace(u - 9.0 * deviation, u + 9.0 * deviation, 20001)
        within = 0.5 * rate * np.exp(-rate * np.abs(grid))
        noise = np.exp(-0.5 * ((u - grid) / deviation) ** 2) / math.sqrt(2 * math.pi) / deviation
        whole = -math.log(np.trapezoid(within * noise, grid))
        found = float(laplace_density(rate, deviation).energy(np.array([u]))[0])
        assert found == pytest.approx(whole, abs=1e-5)


def test_no_direction_leads_up_from_the_mixing_that_is_found() -> None:
    data = sparse_data()
    start = model_of(data, MIXING + 0.1)
    assert is_clear(start)
    found = noiseless_optimum(start, Observations.of(data))
    assert found is not None
    mixing, step = found[0], 1e-4
    value = log_density(data, mixing)
    assert value > log_density(data, start.mixing) + 0.1
    error = 1.0 / math.sqrt(data.shape[1])  # of an entry
    for entry in np.ndindex(3, 3):
        relative = np.zeros((3, 3))
        relative[entry] = step
        ends = [log_density(data, mixing @ (np.eye(3) + s * relative)) for s in (1.0, -1.0)]
        assert abs(ends[0] - ends[1]) / (2.0 * step) <= error


def test_there_is_none_where_noise_matters_or_with_other_priors() -> None:
    data = sparse_data()
    loud = model_of(data, MIXING, level=0.05)
    assert noiseless_optimum(loud, Observations.of(data)) is None
    other = replace(loud, noise=model_of(data, MIXING).noise, priors=(parse_prior("uniform"),) * 3)
    assert is_clear(other) and noiseless_optimum(other, Observations.of(data)) is None
    holes = data.copy()
    holes[0, 0] = np.nan
    clear = model_of(data, MIXING)
    assert noiseless_optimum(clear, Observations.of(holes)) is None


@pytest.mark.parametrize("seed", [0, 1])
def test_sources_that_are_mostly_zero_are_found_without_noise(seed: int) -> None:
    """EM all but stands still here, and gradients of samples are no information."""
    rng = np.random.default_rng(seed)
    sources = rng.standard_normal((3000, 3)) * (rng.random((3000, 3)) < 0.2)
    ica = MeanFieldICA(random_state=0).fit(sources @ MIXING.T)
    assert amari_distance(ica.components_, MIXING) < 0.005
    assert ica.converged_ and ica.n_iter_ < 20
