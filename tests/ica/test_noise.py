"""Noise structures: updates against numerical optimisation, densities against SciPy (HOJ-M10)."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal

from kikuchi.core.errors import MethodError
from kikuchi.ica.em import Rules, expectation, maximisation
from kikuchi.ica.mixing import FlatMixing
from kikuchi.ica.model import Model, Observations
from kikuchi.ica.noise import FullNoise, make_noise
from kikuchi.ica.posteriors.posterior import parse_posterior
from kikuchi.ica.priors.prior import as_priors

KINDS = ["isotropic", "diagonal", "full"]


def _data(seed=0, channels=3, count=400):
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(channels, 2))
    x = mixing @ rng.laplace(size=(2, count)) + 0.4 * rng.normal(size=(channels, count))
    return mixing, Observations.of(x)


def _expected_log_likelihood(covariance, residual_matrix, count):
    log_det = np.linalg.slogdet(covariance)[1]
    return -0.5 * count * log_det - 0.5 * np.trace(np.linalg.solve(covariance, residual_matrix))


@pytest.mark.parametrize("kind", KINDS)
def test_log_base_is_the_density_of_the_residual(kind):
    # HOJ-M7
    mixing, data = _data()
    model = Model(mixing, make_noise(kind, data.variances), tuple(as_priors("laplace", 2)))
    s = np.random.default_rng(1).normal(size=(2, data.count))
    problem = model.problem(data)
    quadratic = np.sum(problem.field * s, axis=0) - 0.5 * np.sum(s * (problem.coupling @ s), axis=0)
    covariance = (
        np.diag(data.variances) if kind != "isotropic" else data.variances.mean() * np.eye(3)
    )
    expected = multivariate_normal(np.zeros(3), covariance).logpdf((data.x - mixing @ s).T)
    assert np.allclose(model.log_base(data) + quadratic, expected, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_update_is_the_maximum_of_the_expected_likelihood(kind):
    # HOJ-L5
    mixing, data = _data()
    model = Model(mixing, make_noise(kind, data.variances), tuple(as_priors("laplace", 2)))
    full = Model(mixing, FullNoise.of(np.eye(3), True, 0.0), model.priors)
    statistics, moments = expectation(full, data, parse_posterior("lr"), "none")
    residual = data.x - mixing @ moments.mean
    matrix = residual @ residual.T + mixing @ moments.covariance_sum @ mixing.T
    assert np.allclose(statistics.residual_matrix(mixing), matrix)
    assert np.allclose(statistics.channel_residuals(mixing), np.diag(matrix))
    value = model.noise.updated(statistics, mixing).value
    covariance = {"isotropic": lambda v: v * np.eye(3), "diagonal": np.diag, "full": lambda v: v}
    best = _expected_log_likelihood(covariance[kind](value), matrix, data.count)
    rng = np.random.default_rng(2)
    for _ in range(50):
        if kind == "full":
            root = np.linalg.cholesky(value) @ (np.eye(3) + 0.05 * rng.normal(size=(3, 3)))
            trial = root @ root.T
        else:
            trial = covariance[kind](value * np.exp(0.1 * rng.normal(size=np.shape(value))))
        assert _expected_log_likelihood(trial, matrix, data.count) < best
    if kind == "isotropic":
        found = minimize_scalar(
            lambda v: -_expected_log_likelihood(np.exp(v) * np.eye(3), matrix, data.count),
            bounds=(-5, 5),
            method="bounded",
            options={"xatol": 1e-9},
        )
        assert np.exp(found.x) == pytest.approx(value, rel=1e-6)


def test_known_noise_is_kept_and_its_shape_tells_its_kind():
    variances = np.ones(3)
    assert make_noise(0.5, variances).kind == "isotropic"
    assert make_noise([0.5, 1.0, 2.0], variances).kind == "diagonal"
    assert make_noise(np.eye(3), variances).kind == "full"
    mixing, data = _data()
    model = Model(mixing, make_noise(0.16, data.variances), tuple(as_priors("laplace", 2)))
    statistics, _ = expectation(model, data, parse_posterior("lr"), "none")
    assert maximisation(model, statistics, Rules("free", FlatMixing(), "none")).noise.value == 0.16
    assert model.noise.n_parameters(3) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_learned_noise_stays_above_its_floor(kind):
    mixing, _ = _data()
    data = Observations.of(mixing @ np.random.default_rng(3).laplace(size=(2, 400)))
    noise = make_noise(kind, data.variances)
    statistics, _ = expectation(
        Model(mixing, make_noise(1e-9, data.variances), tuple(as_priors("laplace", 2))),
        data,
        parse_posterior("lr"),
        "none",
    )
    if kind == "full":
        statistics = statistics.__class__(**{**statistics.__dict__, "outer": data.outer})
    value = np.asarray(noise.updated(statistics, mixing).value)
    small = np.linalg.eigvalsh(value).min() if value.ndim == 2 else value.min()
    assert small >= 0.99e-6 * data.variances.min()
    assert small < 1e-4 * data.variances.min()


def test_draws_have_the_covariance():
    rng = np.random.default_rng(4)
    covariance = np.array([[2.0, 0.5], [0.5, 1.0]])
    for noise, wanted in (
        (make_noise(covariance, np.ones(2)), covariance),
        (make_noise([2.0, 1.0], np.ones(2)), np.diag([2.0, 1.0])),
        (make_noise(3.0, np.ones(2)), 3.0 * np.eye(2)),
    ):
        draws = noise.sample(rng, 2, 100_000)
        assert np.abs(np.cov(draws) - wanted).max() < 5 * 3.0 * np.sqrt(2 / 100_000)


def test_isotropic_noise_never_makes_a_matrix_of_channels_squared():
    rng = np.random.default_rng(5)
    channels, count = 4196, 60
    mixing = rng.normal(size=(channels, 3))
    bits = (rng.random((3, count)) < 0.5).astype(float)
    data = Observations.of(mixing @ bits + rng.normal(size=(channels, count)))
    model = Model(mixing, make_noise("isotropic", data.variances), tuple(as_priors("binary01", 3)))
    rules, posterior = Rules("free", FlatMixing(), "shape"), parse_posterior("lr")
    expectation(model, data, posterior, "shape")  # compiled before memory is watched
    tracemalloc.start()
    statistics, _ = expectation(model, data, posterior, "shape")
    maximisation(model, statistics, rules)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < channels**2 * 8 / 10


@pytest.mark.parametrize(
    ("noise", "text"),
    [
        ("white", "one of auto, isotropic"),
        (-1.0, "must be positive"),
        ([1.0, 2.0], "shape"),
        ([[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], "not symmetric"),
        (-np.eye(3), "not positive definite"),
        (np.nan, "NaN"),
    ],
)
def test_bad_noise_is_one_clear_line(noise, text):
    with pytest.raises(MethodError, match=text):
        make_noise(noise, np.ones(3))


@pytest.mark.parametrize("shape", [(5, 3), (3, 3), (2, 3)])
def test_the_unmixing_is_the_inverse_by_weighted_least_squares(shape):
    rng = np.random.default_rng(4)
    mixing, root = rng.normal(size=shape), rng.normal(size=(shape[0], shape[0]))
    spread = rng.uniform(0.1, 3.0, size=shape[0])
    for noise in (0.7, spread, root @ root.T + np.eye(shape[0])):
        found = make_noise(noise, np.ones(shape[0])).unmixing(mixing)
        covariance = noise * np.eye(shape[0]) if np.ndim(noise) < 2 else noise
        weighted = mixing.T @ np.linalg.inv(covariance)
        known = np.linalg.pinv(mixing)
        if shape[0] > shape[1]:
            known = np.linalg.solve(weighted @ mixing, weighted)
        np.testing.assert_allclose(found, known, rtol=1e-9, atol=1e-12)
