"""Estimates of the log evidence against quadrature and against draws of the prior (LAW-I21)."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf, gammaln, logsumexp

from kikuchi.bayesnn import BayesianMLPRegressor, LaplaceMLPRegressor, log_evidence
from kikuchi.bayesnn.evidence import _proposal, log_joint
from kikuchi.bayesnn.images import (
    NetworkModel,
    log_distinct_images,
    log_image_count,
    log_permanent,
)
from kikuchi.bayesnn.network import Network
from kikuchi.core.errors import MethodError

WEIGHT, NOISE = (2.0, 2.0), (2.0, 0.2)  # shapes and rates of the precisions
PRIORS = {"weight_shape": 2.0, "weight_rate": 2.0, "noise_shape": 2.0, "noise_rate": 0.2}


def rows_of(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(12, 1))
    return x, 1.5 * erf((1.3 * x[:, 0] + 0.3) / np.sqrt(2)) + 0.3 * rng.normal(size=12)


def standard(values):
    return (values - values.mean()) / values.std()


def fitted(hidden, x, y, posterior="full"):
    options = {"n_init": 2, "random_state": 0, **PRIORS}
    return BayesianMLPRegressor(hidden, posterior, "single", **options).fit(x, y)


# ---------------------------------------------------------------------- independent evidences


def log_gamma(log_value, shape, rate):
    """Log density of the logarithm of a gamma variable."""
    constant = shape * np.log(rate) - gammaln(shape)
    return constant + shape * log_value - rate * np.exp(log_value)


def of_linear_outputs(g, y, log_alpha, log_beta):
    """log p(y) of a linear model with columns g (..., rows, columns), weights summed out."""
    ratio = np.exp(log_alpha - log_beta)
    square = np.swapaxes(g, -1, -2) @ g + ratio[..., None, None] * np.eye(g.shape[-1])
    pull = np.swapaxes(g, -1, -2) @ y
    explained = np.sum(pull * np.linalg.solve(square, pull[..., None])[..., 0], axis=-1)
    size = np.linalg.slogdet(square)[1] - g.shape[-1] * np.log(ratio)
    fit = -0.5 * np.exp(log_beta) * (y @ y - explained)
    return 0.5 * len(y) * (log_beta - np.log(2 * np.pi)) - 0.5 * size + fit


def quadrature(x, y, size=41):
    """log evidence of a 1-1 network with one precision for all weights, by the trapezoidal rule
    over both precisions and the two weights into the hidden unit.
    """
    xs, ys = standard(x[:, 0]), standard(y)
    z, log_beta = np.linspace(-6.0, 6.0, size), np.linspace(-5.0, 6.0, size)
    steps = np.log(z[1] - z[0]) * 2 + np.log(log_beta[1] - log_beta[0])
    normal = -0.5 * z**2 - 0.5 * np.log(2 * np.pi)
    near = normal[:, None] + normal + steps
    logs, n, total = [], len(ys), ys.sum()
    log_alphas = np.linspace(-7.0, 3.2, 35)
    for log_alpha in log_alphas:
        u = z * np.exp(-0.5 * log_alpha)
        g = erf((u[:, None, None] * xs + u[:, None]) / np.sqrt(2.0))
        ratio = np.exp(log_alpha - log_beta)[:, None, None]
        a, b, d, pull = n + ratio, g.sum(axis=-1), (g * g).sum(axis=-1) + ratio, g @ ys
        determinant = a * d - b * b
        explained = (d * total**2 - 2 * b * total * pull + a * pull**2) / determinant
        beta = log_beta[:, None, None]
        value = 0.5 * n * (beta - np.log(2 * np.pi)) - 0.5 * np.log(determinant / ratio**2)
        value += near - 0.5 * np.exp(beta) * (ys @ ys - explained) + log_gamma(beta, *NOISE)
        logs.append(logsumexp(value) + log_gamma(log_alpha, *WEIGHT))
    return logsumexp(logs) + np.log(log_alphas[1] - log_alphas[0]) - n * np.log(y.std())


def by_prior_draws(hidden, x, y, draws, seed):
    """log evidence with its error by draws of precisions and weights into hidden units."""
    rng = np.random.default_rng(seed)
    xs, ys, logs = standard(x[:, 0]), standard(y), []
    for _ in range(draws // 10_000):
        alpha = rng.gamma(WEIGHT[0], 1 / WEIGHT[1], size=10_000)
        beta = rng.gamma(NOISE[0], 1 / NOISE[1], size=10_000)
        u = rng.normal(size=(10_000, 1, hidden, 2)) / np.sqrt(alpha)[:, None, None, None]
        g = erf((u[..., 0] * xs[:, None] + u[..., 1]) / np.sqrt(2.0))
        g = np.concatenate([np.ones((*g.shape[:2], 1)), g], axis=-1)
        logs.append(of_linear_outputs(g, ys, np.log(alpha), np.log(beta)))
    logs = np.concatenate(logs)
    ratios = np.exp(logs - logs.max())
    value = np.log(ratios.mean()) + logs.max() - len(y) * np.log(y.std())
    return value, ratios.std() / ratios.mean() / np.sqrt(len(logs))


def scores(net, truth, method, draws, seeds):
    """Errors of estimates by several seeds, in units of the standard error that each states."""
    found = [log_evidence(net, method, draws=draws, random_state=s) for s in range(seeds)]
    assert not any(one.warnings for one in found)
    return np.array([(one.log_evidence - truth) / one.error for one in found])


@pytest.mark.parametrize("posterior", ["diagonal", "full", "mixture:2"])
def test_importance_sampling_has_the_evidence_and_the_error_that_it_states(posterior):
    x, y = rows_of(0)
    truth = quadrature(x, y)
    assert truth == pytest.approx(quadrature(x, y, 49), abs=0.004)
    z = scores(fitted(1, x, y, posterior), truth, "importance", 1000, 30)
    assert abs(z.mean()) < 0.75 and 0.5 < z.std() < 1.5
    assert np.mean(np.abs(z) < 2) > 0.85


@pytest.mark.slow
def test_sequential_monte_carlo_has_the_evidence_and_the_error_that_it_states():
    for seed in range(3):
        x, y = rows_of(seed)
        z = scores(fitted(1, x, y), quadrature(x, y, 65), "smc", 1000, 12)
        assert abs(z.mean()) < 1 and 0.4 < z.std() < 1.6
        assert np.mean(np.abs(z) < 2) > 0.8


def test_exchanged_units_are_counted():
    x, y = rows_of(1)
    truth, error = by_prior_draws(2, x, y, 100_000, 0)
    found = log_evidence(fitted(2, x, y), draws=4000, random_state=0)
    assert error < 0.03 and found.error < 0.1
    assert abs(found.log_evidence - truth) < 3 * np.hypot(error, found.error)


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [1, 3])
def test_numbers_of_units_can_be_compared(hidden):
    """The difference to two units is that of draws of the prior."""
    x, y = rows_of(1)
    truth = [by_prior_draws(h, x, y, 400_000, h) for h in (hidden, 2)]
    found = [log_evidence(fitted(h, x, y), draws=20_000, random_state=0) for h in (hidden, 2)]
    errors = [*(e for _, e in truth), *(f.error for f in found)]
    gain = found[0].log_evidence - found[1].log_evidence
    assert abs(gain - (truth[0][0] - truth[1][0])) < 3 * np.linalg.norm(errors)


def test_the_evidence_of_laplace_counts_images():
    """Against quadrature at the precisions that it ends with, where a Gaussian fits well."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 1))
    y = 1.5 * erf((1.3 * x[:, 0] + 0.3) / np.sqrt(2)) + 0.2 * rng.normal(size=60)
    net = LaplaceMLPRegressor(1, prior="grouped", n_init=2, random_state=0).fit(x, y)
    alpha = np.array(list(net.precisions_.values()))
    xs, ys, log_beta = standard(x[:, 0]), standard(y), -2 * np.log(net.noise_ / y.std())
    u, b = np.meshgrid(np.linspace(-6, 6, 241), np.linspace(-3, 3, 181), indexing="ij")
    g = erf((u[..., None] * xs + b[..., None]) / np.sqrt(2.0))
    g = np.stack([np.full_like(g, alpha[3] ** -0.5), g * alpha[2] ** -0.5], axis=-1)
    logs = of_linear_outputs(g, ys, np.zeros(u.shape), np.full(u.shape, log_beta))
    logs += 0.5 * np.log(alpha[0] * alpha[1]) - np.log(2 * np.pi)
    logs -= 0.5 * (alpha[0] * u**2 + alpha[1] * b**2)
    truth = logsumexp(logs) + np.log(12 / 240 * 6 / 180) - 60 * np.log(y.std())
    assert net.log_evidence_ == pytest.approx(truth, abs=0.2)


# ---------------------------------------------------------------------- images


def test_units_that_are_switched_off_have_no_images_of_their_own():
    network = Network(1, 3)
    mode = np.zeros(network.n_weights)
    covariance = 0.01 * np.eye(network.n_weights)
    assert log_distinct_images(network, mode, covariance) == 0
    mode[[0, 2]] = 1.0  # input weights of two of the units
    assert log_distinct_images(network, mode, covariance) == pytest.approx(np.log(4 * 6))
    mode[4] = 1.0
    assert log_distinct_images(network, mode, covariance) == pytest.approx(np.log(8 * 6))


def test_the_permanent_is_the_sum_over_permutations():
    logs = np.random.default_rng(0).normal(size=(4, 4))
    orders = itertools.permutations(range(4))
    brute = logsumexp([logs[range(4), order].sum() for order in orders])
    with jax.enable_x64(True):
        assert float(log_permanent(jnp.asarray(logs))) == pytest.approx(brute, abs=1e-12)
    assert log_image_count(8) == pytest.approx(np.log(2**8 * 40320))


@pytest.mark.parametrize("skip", [False, True])
def test_all_images_have_the_same_density(skip):
    """Of the proposal at a position, and of data and weights."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(15, 2))
    net = BayesianMLPRegressor(3, "layered", "ard", skip=skip, n_init=1, random_state=0)
    net.fit(x, x[:, 0] + 0.1 * rng.normal(size=15))
    network = net._network
    order, signs = jnp.array([2, 0, 1]), jnp.array([-1.0, 1.0, -1.0])
    with jax.enable_x64(True):
        proposal = _proposal(net)
        data, hyper = net._problem_.data, net._problem_.hyper
        model = NetworkModel(network, net.prior, data, hyper)
        at = proposal.draw(model, jax.random.key(0))
        u, white = network.split(at)
        image = jnp.concatenate([(signs[:, None] * u[order]).ravel(), white])
        one, other = (float(proposal.log_density(model, p)) for p in (at, image))
        assert other == pytest.approx(one, abs=1e-9)
        w, _ = proposal.weights(model, at)
        u, out = network.split(w)
        linear, v = out[: network.n_linear], out[network.n_linear :]
        image = jnp.concatenate([(signs[:, None] * u[order]).ravel(), linear, signs * v[order]])
        one, other = (float(log_joint(network, net.prior, p, data, hyper)) for p in (w, image))
        assert other == pytest.approx(one, abs=1e-9)


@pytest.mark.slow
def test_errors_that_are_too_small_come_with_a_warning():
    """A second kind of mode that few draws reach: seeds differ by more than their errors."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(50, 1))
    y = np.sin(3 * x[:, 0]) + 0.1 * rng.normal(size=50)
    net = BayesianMLPRegressor(2, "mixture:3", "grouped", n_init=1, random_state=0, **PRIORS)
    net.fit(x[:15], y[:15])
    found = [log_evidence(net, draws=4000, random_state=s) for s in range(6)]
    values, errors = np.array([(one.log_evidence, one.error) for one in found]).T
    assert values.std(ddof=1) > 1.2 * np.median(errors)
    assert all(one.warnings for one in found)
    assert not log_evidence(net, "smc", draws=1000, random_state=0).warnings


def test_few_effective_draws_are_reported():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(40, 2))
    net = BayesianMLPRegressor(4, "diagonal", "ard", n_init=1, random_state=0)
    net.fit(x, np.sin(3 * x[:, 0]) + 0.1 * rng.normal(size=40))
    found = log_evidence(net, draws=100, random_state=0)
    assert found.effective < 50
    assert "of 100 draws are effective" in found.warnings[0]
    assert found.warnings[0].endswith("use draws=1000, or method='smc'")


def test_what_has_no_estimate_is_refused():
    x, y = rows_of(0)
    with pytest.raises(MethodError, match="fitted here"):
        log_evidence(BayesianMLPRegressor())
    with pytest.raises(MethodError, match="cannot be summed out"):
        log_joint(Network(1, 2), "nrd", np.zeros(7), None, None)
    net = fitted(1, x, y)
    with pytest.raises(MethodError, match="'importance' or 'smc', got 'ais'"):
        log_evidence(net, "ais")
    with pytest.raises(MethodError, match="draws = 10; at least 80"):
        log_evidence(net, draws=10)
    net._network = dataclasses.replace(net._network, n_hidden=13)
    with pytest.raises(MethodError, match=r"13 hidden units.*at most 12 hidden units"):
        log_evidence(net)
