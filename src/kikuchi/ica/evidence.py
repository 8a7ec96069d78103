r"""How likely data are under a fitted model, by means that do not favour collapse.

Mean field energies are too low by an amount that changes with the mixing: in overcomplete or noisy
problems the naive bound, and less so the linear response value, rate a model with a lost column
above the truth although the likelihood says the opposite (HOJ-I17, HOJ-I20). Restarts are therefore
ranked by enumeration where sources are discrete and few, and by importance sampling around the
mean field posterior where they have densities; both estimate the likelihood itself.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.numerics import logsumexp
from kikuchi.ica.model import Model, Observations
from kikuchi.ica.posteriors.posterior import Posterior, parse_posterior

_MOST_STATES = 4096
_SAMPLES = 500  # data that restarts are compared on
_DRAWS = 1000  # for each of them
_FRACTIONS = (0.5, 0.4, 0.1)  # of draws: posterior, wide posterior, prior
_WIDTHS = (1.2, 4.0)  # times the covariance
_PROPOSAL = "adatap:tol=1e-4,max_iterations=100"  # nearest to the true posterior
_SEED = 20010401


class Evidence(NamedTuple):
    """Mean log-likelihood of a sample, and how it was estimated."""

    value: float
    method: str


def evidence(model: Model, data: Observations, posterior: Posterior) -> Evidence:
    """The best estimate of the mean log p(x) there is for these priors."""
    states = [p.states for p in model.priors]
    if all(s is not None for s in states):
        if math.prod(len(s[0]) for s in states if s is not None) <= _MOST_STATES:
            return _by_energy(model, data, parse_posterior("exact"), "enumeration")
    elif all(s is None and p.is_proper for s, p in zip(states, model.priors, strict=True)):
        part = _subset(data)
        proposal = parse_posterior(_PROPOSAL)
        value = float(np.mean(importance_log_likelihood(model, part, proposal)))
        return Evidence(value, "importance sampling")
    return _by_energy(model, data, posterior, f"energy of {posterior.name}")


def importance_log_likelihood(
    model: Model, data: Observations, posterior: Posterior, draws: int = _DRAWS, seed: int = _SEED
) -> Array:
    """log p(x) of each sample by importance sampling around its posterior.

    Draws come from the Gaussian with the posterior's mean and 1.2 times its covariance, from one
    four times as wide, and from the prior, so that weights stay bounded. The mean weight has the
    likelihood as its expectation; its logarithm is low on average, less so with more draws.
    """
    rng = np.random.default_rng(seed)
    problem = model.problem(data)
    moments = posterior.solve(problem)
    covariances = posterior.covariances(problem, moments)
    counts = [round(fraction * draws) for fraction in _FRACTIONS]
    base = model.log_base(data)
    out = np.empty(data.count)
    for t in range(data.count):
        root = _root(covariances[t])
        mean = moments.mean[:, t]
        from_prior = np.array([p.sample(rng, counts[2]) for p in model.priors])
        parts = [
            mean[:, None] + math.sqrt(width) * root @ rng.standard_normal((model.sources, k))
            for width, k in zip(_WIDTHS, counts, strict=False)
        ]
        s = np.concatenate([*parts, from_prior], axis=1)
        log_prior = sum(p.log_density(row) for p, row in zip(model.priors, s, strict=True))
        coupling = problem.couplings[t if problem.per_sample else 0]
        log_joint = problem.field[:, t] @ s - 0.5 * np.einsum("ik,ik->k", s, coupling @ s)
        log_weight = log_prior + log_joint - _log_proposal(s, mean, root, np.asarray(log_prior))
        out[t] = base[t] + float(logsumexp(log_weight)) - math.log(s.shape[1])
    return out


def _log_proposal(s: Array, mean: Array, root: Array, log_prior: Array) -> Array:
    from scipy.linalg import solve_triangular

    size = len(mean)
    squares = np.sum(solve_triangular(root, s - mean[:, None], lower=True) ** 2, axis=0)
    constant = 0.5 * size * math.log(2.0 * math.pi) + float(np.log(np.diag(root)).sum())
    terms = [
        math.log(fraction) - 0.5 * squares / width - constant - 0.5 * size * math.log(width)
        for fraction, width in zip(_FRACTIONS[:2], _WIDTHS, strict=True)
    ]
    return np.asarray(logsumexp(np.array([*terms, math.log(_FRACTIONS[2]) + log_prior]), axis=0))


def _root(covariance: Array) -> Array:
    """Cholesky factor; of the diagonal alone where an approximate covariance has none."""
    scale = np.maximum(np.diag(covariance), 1e-12)
    try:
        return np.asarray(np.linalg.cholesky(covariance + 1e-9 * np.diag(scale)))
    except np.linalg.LinAlgError:
        return np.diag(np.sqrt(scale))


def _by_energy(model: Model, data: Observations, posterior: Posterior, method: str) -> Evidence:
    moments = posterior.solve(model.problem(data))
    if moments.log_z is None:
        return Evidence(math.nan, "none")
    return Evidence(float(np.mean(moments.log_z + model.log_base(data))), method)


def _subset(data: Observations) -> Observations:
    if data.count <= _SAMPLES:
        return data
    picks = np.random.default_rng(_SEED).choice(data.count, _SAMPLES, replace=False)
    return data.take(np.sort(picks))
