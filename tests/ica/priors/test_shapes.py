"""The stock of shapes that prior "auto" chooses from."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

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


def _quantiles(name):
    """Quantiles of a density in units of its deviation, and its logarithm at them."""
    density = DENSITIES[name]
    mean, variance = (float(value) for value in density.stats(moments="mv"))
    points = density.ppf((np.arange(4000) + 0.5) / 4000)
    y = (points - mean) / np.sqrt(variance)
    return y, density.logpdf(points) + 0.5 * np.log(variance)


def _terms(y, weights, means, variances):
    apart = (y[:, None] - means) ** 2 / variances
    return np.log(weights / np.sqrt(2.0 * np.pi * variances)) - 0.5 * apart


@pytest.mark.parametrize("name", DENSITIES)
def test_no_mixture_of_as_many_components_is_nearer_to_the_density_of_a_shape(name):
    """EM from the stored numbers does not lower the divergence, but for quantiles and digits."""
    y, log_density = _quantiles(name)
    shape = SHAPES[name]
    parts = shape.weights / shape.weights.sum(), shape.means, shape.variances
    divergences = []
    for _ in range(200):
        terms = _terms(y, *parts)
        log_sum = logsumexp(terms, axis=1)
        divergences.append(float(np.mean(log_density - log_sum)))
        shares = np.exp(terms - log_sum[:, None])
        sizes = shares.sum(axis=0)
        means = shares.T @ y / sizes
        spread = np.sum(shares * (y[:, None] - means) ** 2, axis=0) / sizes
        parts = sizes / y.size, means, spread
    assert divergences[-1] <= divergences[0] < divergences[-1] + 3e-3


@pytest.mark.parametrize("name", DENSITIES)
def test_priors_are_much_nearer_to_their_densities_than_a_gaussian(name):
    """Also with the least width, which matters most for the poles of an arcsine."""
    y, log_density = _quantiles(name)
    prior = SHAPES[name].prior(1.0, smooth=True)
    mean, variance = prior.mean_variance
    mixture = prior.log_density(mean + np.sqrt(variance) * y) + 0.5 * np.log(variance)
    gaussian = stats.norm.logpdf(y)
    assert -1e-3 < float(np.mean(log_density - mixture)) < 0.5 * np.mean(log_density - gaussian)


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


@pytest.mark.parametrize("seed", range(4))
def test_outliers_do_not_pass_for_noise(seed):
    """They inflate the standard deviation, and beside them all other values look like a peak."""
    s = stats.t(2.2).rvs(size=(4, 4000), random_state=np.random.default_rng(seed))
    found = choose_shapes(s, np.ones(4), [0.0, 0.03, 0.1, 0.2, 0.4])
    assert found.names == ["heavy"] * 4
    assert found.level == 0.0


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
