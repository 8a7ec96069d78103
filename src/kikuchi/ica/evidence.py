r"""How likely data are under a fitted model, by means that do not favour collapse.

Mean field energies are too low by an amount that changes with the mixing: in overcomplete or noisy
problems the naive bound, and less so the linear response value, rate a model with a lost column
above the truth although the likelihood says the opposite. Restarts are therefore
ranked by enumeration where sources are discrete and few, and by importance sampling around the
mean field posterior where they have densities; both estimate the likelihood itself.

Reference: HOJ-I17, HOJ-I20.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kikuchi.ica.model import Model, Observations
from kikuchi.ica.posteriors.posterior import Posterior, parse_posterior

_MOST_STATES = 4096
_SAMPLES = 500  # data that restarts are compared on
_PROPOSAL = "importance:draws=1000,numbered=true"
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
        return _by_energy(model, _subset(data), parse_posterior(_PROPOSAL), "importance sampling")
    return _by_energy(model, data, posterior, f"energy of {posterior.name}")


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
