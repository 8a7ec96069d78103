"""Moments of erf units against quadrature, SciPy's bivariate normal and finite differences."""

import jax
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import erf, ndtr
from scipy.special import owens_t as scipy_owens_t
from scipy.stats import multivariate_normal

from kikuchi.bayesnn.moments import (
    owens_t,
    product_mean,
    product_slopes,
    square_mean,
    square_slopes,
    unit_moments,
)


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def test_owens_t_is_that_of_scipy():
    rng = np.random.default_rng(0)
    h, a = 4 * rng.normal(size=2000), rng.random(2000)
    assert np.abs(owens_t(h, a) - scipy_owens_t(h, a)).max() < 1e-15


def test_mean_square_against_quadrature():
    # LAW-T16
    rng = np.random.default_rng(1)
    means, variances = 3 * rng.normal(size=60), 10 ** rng.uniform(-4, 3, 60)

    def reference(m, s):
        kink = [-m / s] if abs(m / s) < 12 else None
        value, _ = quad(
            lambda z: erf((m + s * z) / np.sqrt(2)) ** 2 * np.exp(-z * z / 2),
            -12, 12, epsabs=1e-13, epsrel=1e-13, points=kink, limit=500,
        )  # fmt: skip
        return value / np.sqrt(2 * np.pi)

    expected = [reference(m, np.sqrt(v)) for m, v in zip(means, variances, strict=True)]
    found = np.asarray(square_mean(means, variances))
    assert np.abs(found - expected).max() < 1e-12
    surrogate = 1 - np.exp(-0.62 * means**2 / (1 + 1.24 * variances)) / np.sqrt(
        1 + 1.24 * variances
    )
    assert 1e-4 < np.abs(found - surrogate).max() < 0.006  # what the surrogate would cost


def test_mean_product_is_the_bivariate_normal():
    rng = np.random.default_rng(2)
    h, k = rng.normal(size=(2, 150)) * rng.choice([0, 1e-8, 0.1, 1, 3, 8], size=(2, 150))
    rho = np.clip(np.tanh(rng.normal(size=150) * rng.choice([0.3, 1, 5], 150)), -0.999999, 0.999999)
    expected = [
        4 * multivariate_normal([0, 0], [[1, r], [r, 1]]).cdf([x, y]) - 2 * ndtr(x) - 2 * ndtr(y)
        for x, y, r in zip(h, k, rho, strict=True)
    ]
    assert np.abs(product_mean(h, k, rho) - np.array(expected) - 1).max() < 1e-11


def test_one_unit_with_itself_is_its_square():
    rng = np.random.default_rng(3)
    m, v = 2 * rng.normal(size=100), 10 ** rng.uniform(-3, 2, 100)
    eta = m / np.sqrt(1 + v)
    assert np.abs(product_mean(eta, eta, v / (1 + v)) - square_mean(m, v)).max() < 1e-13


def test_derivatives_by_finite_differences():
    rng = np.random.default_rng(4)
    h, k = 2 * rng.normal(size=(2, 100))
    rho, e = 0.9 * np.tanh(rng.normal(size=100)), 1e-5
    slopes = product_slopes(h, k, rho)
    for number, slope in enumerate(slopes):
        moved = [[h, k, rho], [h, k, rho]]
        moved[0][number] = moved[0][number] + e
        moved[1][number] = moved[1][number] - e
        difference = (product_mean(*moved[0]) - product_mean(*moved[1])) / (2 * e)
        assert np.abs(difference - slope).max() < 1e-7
    variance = 10 ** rng.uniform(-2, 2, 100)
    first, second = square_slopes(h, variance)
    by_mean = (square_mean(h + e, variance) - square_mean(h - e, variance)) / (2 * e)
    assert np.abs(by_mean - first).max() < 1e-8
    slope = jax.vmap(jax.grad(square_mean, argnums=1))(h, variance)
    assert slope == pytest.approx(np.asarray(second) / 2, abs=1e-12)
    curved = (unit_moments(h + e, variance).slope - unit_moments(h - e, variance).slope) / (2 * e)
    assert np.abs(curved - unit_moments(h, variance).curvature).max() < 1e-8


def test_gradients_pass_through_zero():
    slope = jax.grad(product_mean, argnums=(0, 1, 2))(0.0, 0.0, 0.3)
    assert slope == pytest.approx((0.0, 0.0, 2 / np.pi / np.sqrt(1 - 0.09)))
