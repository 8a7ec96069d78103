r"""Free energies of ICA, one value per sample and without log Z_L.

With q_i(s) prop. to p_i(s) exp(-lam s^2 / 2 + gamma s), mean m and response v:

    bound = sum_i log Z0 + sum_i (lam - J_ii) <s^2> / 2 + (h - gamma)'m - m'(J - diag J)m / 2,
    TAP   = sum_i log Z0 + m'Jm / 2 - sum_i lam m^2 / 2 - log det(I + diag(v)(J - diag lam)) / 2.

The first is never above log Z, whatever gamma and lam are. The second holds at a fixed point only
and is not a bound; with lam = J_ii it is the linear response value, bound - log det / 2. The sign
and the m^2 of the second are those that are exact for Gaussian sources.

Reference: HOJ-I17, HOJ-I20.
"""

from __future__ import annotations

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.ica.posteriors.posterior import Problem


def has_log_z(problem: Problem) -> bool:
    """Whether every prior knows its log partition."""
    return all(prior.has_log_partition for prior in problem.priors)


def bound_holds(problem: Problem) -> bool:
    """Whether the bound is one: every prior must be a density."""
    return all(prior.is_proper for prior in problem.priors)


def site_log_z(problem: Problem, gamma: Array, lam: Array) -> Array:
    """sum_i log Z0(gamma_i, lam_i) of each sample."""
    total = np.zeros(problem.n_samples)
    for i, prior in enumerate(problem.priors):
        total += prior.log_partition(gamma[i], lam[i])
    return total


def mean_field_bound(
    problem: Problem, gamma: Array, lam: Array, mean: Array, response: Array
) -> Array:
    """The variational bound of each sample, at any gamma and lam."""
    others = problem.couple(mean) - problem.diagonal * mean
    excess = 0.5 * (lam - problem.diagonal) * (response + mean * mean)
    rest = excess + (problem.field - gamma - 0.5 * others) * mean
    return np.asarray(site_log_z(problem, gamma, lam) + np.sum(rest, axis=0))


def tap_value(
    problem: Problem, gamma: Array, lam: Array, mean: Array, half_log_det: Array
) -> Array:
    """The adaptive TAP value of each sample, at a fixed point."""
    rest = 0.5 * (problem.couple(mean) - lam * mean) * mean
    return np.asarray(site_log_z(problem, gamma, lam) + np.sum(rest, axis=0) - half_log_det)
