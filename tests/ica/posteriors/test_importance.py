"""Importance sampling around adaptive TAP (HOJ-L6), against integrals on a grid and Gaussians."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from kikuchi.core.errors import ModelError
from kikuchi.core.numerics import logsumexp
from kikuchi.ica.em import expectation
from kikuchi.ica.model import Model, Observations
from kikuchi.ica.noise import make_noise
from kikuchi.ica.posteriors.posterior import Problem, parse_posterior
from kikuchi.ica.priors.prior import as_priors, parse_prior


def _on_a_grid(problem: Problem, reach: float = 14.0, points: int = 561):
    """log Z, means and second moments of two sources by sums over a fine grid."""
    axis = np.linspace(-reach, reach, points)
    s = np.array(np.meshgrid(axis, axis, indexing="ij")).reshape(2, -1)
    prior = sum(p.log_density(row) for p, row in zip(problem.priors, s, strict=True))
    quadratic = np.einsum("ik,ij,jk->k", s, problem.coupling, s)
    out = []
    for field in problem.field.T:
        score = prior + field @ s - 0.5 * quadratic
        log_z = logsumexp(score)
        p = np.exp(score - log_z)
        out.append((log_z + 2 * np.log(axis[1] - axis[0]), s @ p, (s * p) @ s.T))
    return out


_MIXTURE = "mixture:weights=(0.3,0.5,0.2),means=(-1.5,0.4,2),variances=(0.3,1,0.1)"


@pytest.mark.parametrize("prior", ["laplace", "logistic", _MIXTURE])
def test_moments_and_likelihood_are_those_of_the_integrals(prior):
    rng = np.random.default_rng(0)
    problem = Problem(
        [[6.0, 4.5], [4.5, 4.0]], rng.normal(size=(2, 20), scale=3), [parse_prior(prior)] * 2
    )
    exact = _on_a_grid(problem)
    posterior = parse_posterior("importance:draws=20000,numbered=true")
    found = posterior.solve(problem)
    approximate = parse_posterior("adatap").solve(problem)
    truth = np.array([z for z, _, _ in exact])
    assert np.abs(found.log_z - truth).max() < 0.01
    assert np.abs(found.log_z - truth).mean() < 0.5 * np.abs(approximate.log_z - truth).mean()
    assert np.allclose(found.mean.T, [m for _, m, _ in exact], atol=0.02)
    second = sum(m for _, _, m in exact)
    assert np.allclose(found.second_moment_sum, second, rtol=0.01, atol=0.1)
    each = posterior.covariances(problem, found)
    assert np.allclose(each.sum(axis=0), found.covariance_sum, atol=1e-9)


def test_nothing_is_left_to_chance_for_gaussian_sources():
    """Draws only tell how the posterior differs from a normal one: here not at all."""
    rng = np.random.default_rng(12)
    mixing = rng.normal(size=(3, 2))
    data = Observations.of(mixing @ rng.normal(size=(2, 60)) + 0.5 * rng.normal(size=(3, 60)))
    model = Model(mixing, make_noise(0.25, np.ones(3)), tuple(as_priors("gaussian", 2)))
    statistics, moments = expectation(model, data, parse_posterior("importance:draws=8"), "none")
    covariance = mixing @ mixing.T + 0.25 * np.eye(3)
    exact = multivariate_normal(np.zeros(3), covariance).logpdf(data.x.T)
    assert np.allclose(moments.log_z + model.log_base(data), exact, atol=1e-6)
    assert statistics.log_likelihood == pytest.approx(exact.sum(), abs=1e-5)


def test_draws_need_a_density():
    with pytest.raises(ModelError, match="prior binary has no density"):
        parse_posterior("importance").solve(
            Problem(np.eye(1), np.ones((1, 1)), [parse_prior("binary")])
        )
