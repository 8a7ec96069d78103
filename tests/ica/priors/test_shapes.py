"""The stock of shapes that prior "auto" chooses from."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from kikuchi.ica.priors.shapes import choose_shapes, shapes, two_components

DENSITIES = {
    "laplace": stats.laplace(),
    "logistic": stats.logistic(),
    "student": stats.t(4),
    "heavy": stats.t(2.7),
    "sparse": stats.gennorm(0.5),
    "uniform": stats.uniform(),
    "flat top": stats.gennorm(4.0),
    "semicircle": stats.semicircular(),
    "arcsine": stats.arcsine(),
    "exponential": stats.expon(),
    "gamma": stats.gamma(2.5),
    "gumbel": stats.gumbel_r(),
    "half normal": stats.halfnorm(),
    "rayleigh": stats.rayleigh(),
    "beta": stats.beta(1.0, 3.0),
}
SHAPES = {shape.name: shape for shape in shapes()}


@pytest.mark.parametrize("name", DENSITIES)
def test_shapes_are_near_the_densities_that_they_are_named_after(name):
    """Divergence of the mixture from the density, by its quantiles; an arcsine has poles."""
    density, shape = DENSITIES[name], SHAPES[name]
    mean, variance = (float(value) for value in density.stats(moments="mv"))
    points = density.ppf((np.arange(4000) + 0.5) / 4000)
    log_density = density.logpdf(points) + 0.5 * np.log(variance)
    prior = shape.prior(1.0, smooth=True)
    own_mean, own_variance = prior.mean_variance
    s = own_mean + np.sqrt(own_variance) * (points - mean) / np.sqrt(variance)
    mixture = prior.log_density(s) + 0.5 * np.log(own_variance)
    assert -0.01 < float(np.mean(log_density - mixture)) < (0.2 if name == "arcsine" else 0.06)


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_have_mean_zero_and_variance_one(name):
    shape = SHAPES[name]
    assert shape.weights.sum() == pytest.approx(1.0, abs=1e-3)
    assert shape.weights @ shape.means == pytest.approx(0.0, abs=2e-3)
    assert shape.weights @ (shape.variances + shape.means**2) == pytest.approx(1.0, abs=5e-3)


@pytest.mark.parametrize("level", [0.0, 0.2])
@pytest.mark.parametrize("name", ["laplace", "uniform", "exponential", "arcsine", "student"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_shape_is_recognised_in_noise(name, level, sign):
    rng = np.random.default_rng(0)
    s = DENSITIES[name].rvs(size=6000, random_state=rng)
    s = sign * (s - s.mean()) / s.std()
    y = np.sqrt(1.0 - level) * s + np.sqrt(level) * rng.standard_normal(6000)
    found = choose_shapes(y[None], np.ones(1), [level])
    assert found.names == [name]
    if name == "exponential":
        assert found.signs.tolist() == [sign]


def test_two_values_have_the_rate_of_the_source():
    rng = np.random.default_rng(1)
    bits = (rng.random(5000) < 0.2) + 0.15 * rng.standard_normal(5000)
    level = 0.15**2 / (0.16 + 0.15**2)
    found = choose_shapes(bits[None], np.ones(1), [level])
    assert found.names == ["two values"]
    assert found.shapes[0].weights[1] == pytest.approx(0.2, abs=0.03)
    assert found.priors[0].states is not None


def test_the_level_of_the_noise_is_found_with_the_shapes():
    rng = np.random.default_rng(2)
    s = np.sqrt([[12.0], [0.5]]) * np.array([rng.uniform(size=8000), rng.laplace(size=8000)])
    y = s + 0.5 * rng.standard_normal(s.shape)
    noise = 1.0 / y.var(axis=1)
    found = choose_shapes(y, noise, [0.0, 0.06, 0.25, 0.7])
    assert found.level == 0.25
    assert found.names == ["uniform", "laplace"]


def test_values_among_densities_become_narrow_components():
    rng = np.random.default_rng(3)
    s = np.array([rng.choice([-1.0, 1.0], 4000), rng.laplace(size=4000)])
    binary, laplace = choose_shapes(s, np.ones(2), [0.0]).priors
    assert binary.states is None
    assert laplace.name == "laplace"
    assert two_components("two values", 0.5, 0.0).discrete
