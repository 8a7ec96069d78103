"""Log-likelihoods of rows: exact by enumeration, by importance sampling, and by annealing.

Importance sampling draws from a fitted posterior Q: log mean P(h, v) / Q(h) is below the
log-likelihood in expectation and rises with the number of draws. Annealed importance sampling goes
from the prior of the hidden units to their posterior in many steps with Gibbs sweeps between.
Annealing back from a state of the posterior errs on the other side, so that both give a bracket.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kikuchi.beliefnets.models import SigmoidNetwork
from kikuchi.beliefnets.posteriors.base import UnitPosterior, unknown_groups
from kikuchi.beliefnets.posteriors.exact import EnumeratedUnits
from kikuchi.core.arrays import Array, Ints
from kikuchi.core.numerics import logsumexp
from kikuchi.core.seeds import Seed, generator, kernel_seeds

_BLOCK = 4_000_000  # numbers of one block of draws


@dataclass(frozen=True)
class RowLikelihoods:
    """Log-likelihoods of rows.

    Attributes
    ----------
    estimate : one number per row.
    lower, upper : a bracket by row. Exact: both are the estimate. Importance sampling: `upper` is
        infinite, and `lower` is below the log-likelihood in expectation. Annealing: `lower` in
        expectation, `upper` in expectation if the states from which it goes back are from the
        posterior, which long annealing makes true to a good approximation.
    error : standard error of the mean over rows of the estimate that comes from the draws.
    """

    estimate: Array
    lower: Array
    upper: Array
    error: float

    @property
    def mean(self) -> float:
        """Mean over the rows."""
        return float(np.mean(self.estimate))


def exact_likelihood(network: SigmoidNetwork, states: Array) -> RowLikelihoods:
    """By enumeration of the unknown units."""
    found = EnumeratedUnits().fit(network, states, rng=generator(0)).bound
    return RowLikelihoods(found, found, found, 0.0)


def importance_likelihood(
    network: SigmoidNetwork,
    states: Array,
    posterior: UnitPosterior,
    *,
    draws: int = 1000,
    random_state: Seed = None,
) -> RowLikelihoods:
    """By draws from a posterior that is fitted to each row.

    Reference: LIU-L7.
    """
    rng = generator(random_state)
    estimate, spread = np.empty(len(states)), np.empty(len(states))
    for rows, free in unknown_groups(states):
        fit = posterior.fit(network, states[rows], rng=rng)
        size = max(1, _BLOCK // network.n_units)
        for at, row in enumerate(rows):
            logs = []
            for first in range(0, draws, size):
                count = min(size, draws - first)
                drawn, log_q = posterior.draw(network, fit, at, free, count, rng)
                whole = np.repeat(states[row][None], count, axis=0)
                whole[:, free] = drawn
                logs.append(network.log_joint(whole) - log_q)
            estimate[row], spread[row] = _log_mean(np.concatenate(logs))
    error = float(np.sqrt(np.sum(spread**2)) / len(states))
    return RowLikelihoods(estimate, estimate, np.full(len(states), np.inf), error)


def annealed_likelihood(
    network: SigmoidNetwork,
    states: Array,
    *,
    steps: int = 500,
    chains: int = 16,
    random_state: Seed = None,
) -> RowLikelihoods:
    """By annealing from the prior to the posterior, and back from where it ends.

    The distribution at b is P(h) P(v | h)^b: terms of known units are tempered, others are not.
    """
    rng = generator(random_state)
    lower, upper, spread = (np.empty(len(states)) for _ in range(3))
    for rows, free in unknown_groups(states):
        whole = np.repeat(states[rows], chains, axis=0)
        known = np.setdiff1d(np.arange(network.n_units), free)
        whole = network.sample_states(len(whole), rng, whole)
        forward, ends = _anneal(network, whole, free, known, np.linspace(0, 1, steps + 1), rng)
        logs = forward.reshape(len(rows), chains)
        for at, row in enumerate(rows):
            lower[row], spread[row] = _log_mean(logs[at])
        start = _resampled(ends.reshape(len(rows), chains, -1), logs, rng)
        back, _ = _anneal(
            network, start.reshape(-1, network.n_units), free, known,
            np.linspace(1, 0, steps + 1), rng,
        )  # fmt: skip
        reverse = back.reshape(len(rows), chains)
        for at, row in enumerate(rows):
            upper[row] = -_log_mean(reverse[at])[0]
    upper = np.maximum(upper, lower)
    error = float(np.sqrt(np.sum(spread**2)) / len(states))
    return RowLikelihoods(lower, lower, upper, error)


def _anneal(
    network: SigmoidNetwork, states: Array, free: Ints, known: Ints, betas: Array,
    rng: np.random.Generator,
) -> tuple[Array, Array]:  # fmt: skip
    """Log-weights of the chains, and where they end."""
    from kikuchi.beliefnets.kernels.states import gibbs_sweeps

    words = kernel_seeds(rng, len(states))
    waste = np.zeros_like(states)
    share = np.ones(network.n_units)
    logs = np.zeros(len(states))
    units = free.astype(np.uint32)
    for before, after in pairwise(betas):
        z = network.inputs(states)[:, known]
        x = states[:, known]
        logs += (after - before) * np.sum(x * z - np.logaddexp(0.0, z), axis=1)
        share[known] = after
        gibbs_sweeps(network.edges, units, states, share, 1, words, waste)
    return logs, states


def _resampled(ends: Array, logs: Array, rng: np.random.Generator) -> Array:
    """States drawn among the chains of each row by their weights."""
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    chosen = [rng.choice(len(w), size=len(w), p=w) for w in weights]
    return np.stack([ends[row][which] for row, which in enumerate(chosen)])


def _log_mean(logs: Array) -> tuple[float, float]:
    """log mean e^x with its standard error."""
    total = float(logsumexp(logs))
    ratios = np.exp(logs - total) * len(logs)
    error = float(np.std(ratios) / np.sqrt(len(logs)))
    return total - float(np.log(len(logs))), error
