"""Log-likelihoods of rows: exact by enumeration, by importance sampling, and by annealing.

Importance sampling draws from a fitted posterior Q: log mean P(h, v) / Q(h) is below the
log-likelihood in expectation and rises with the number of draws. Annealed importance sampling goes
from the prior of the hidden units to their posterior in many steps with Gibbs sweeps between.
Annealing back from states of the posterior errs on the other side. Limits at a given confidence are
added to both, so that each row has a bracket.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy.special import stdtrit

from kikuchi.beliefnets.models import SigmoidNetwork
from kikuchi.beliefnets.posteriors.base import UnitPosterior, unknown_groups
from kikuchi.beliefnets.posteriors.exact import EnumeratedUnits
from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import MethodError
from kikuchi.core.numerics import logsumexp
from kikuchi.core.seeds import Seed, generator, kernel_seeds
from kikuchi.engines.sampling.annealing import LogZ, WeightMean, bracket
from kikuchi.training.likelihoods import RowLikelihoods

_BLOCK = 4_000_000  # numbers of one block of draws
_ROUNDING = 1e-12  # what rounding may add to a sum of probabilities, relative


def exact_likelihood(network: SigmoidNetwork, states: Array) -> RowLikelihoods:
    """Return log-likelihoods by enumeration of the unknown units."""
    found = EnumeratedUnits().fit(network, states, rng=generator(0)).bound
    return RowLikelihoods(found, found, found)


def importance_likelihood(
    network: SigmoidNetwork,
    states: Array,
    posterior: UnitPosterior,
    *,
    draws: int = 1000,
    confidence: float = 0.95,
    random_state: Seed = None,
) -> RowLikelihoods:
    """Return log-likelihoods by draws from a posterior that is fitted to each row.

    Reference: LIU-L7.
    """
    _check(draws, "draws", confidence)
    rng = generator(random_state)
    means: dict[int, WeightMean] = {}
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
            means[int(row)] = WeightMean(np.concatenate(logs), 1.0 - confidence)
    found = [means[row] for row in range(len(states))]
    estimate = np.array([mean.log_mean for mean in found])
    error = _error_of_mean(found)
    low = float(np.mean(estimate)) - float(stdtrit(draws - 1, confidence)) * error
    doubtful = sum(bool(mean.doubts("")) for mean in found)
    return RowLikelihoods(
        estimate, np.array([mean.low for mean in found]), np.full(len(states), np.inf), confidence,
        error, (low, np.inf), _warnings(doubtful, len(found), "raise draws, or use method='ais'"),
    )  # fmt: skip


def annealed_likelihood(
    network: SigmoidNetwork,
    states: Array,
    *,
    steps: int = 500,
    chains: int = 16,
    confidence: float = 0.95,
    random_state: Seed = None,
) -> RowLikelihoods:
    """Return log-likelihoods by annealing from the prior to the posterior, and back from there.

    The distribution at b is P(h) P(v | h)^b: terms of known units are tempered, others are not.
    """
    _check(chains, "chains", confidence)
    rng = generator(random_state)
    found: dict[int, LogZ] = {}
    for rows, free in unknown_groups(states):
        whole = np.repeat(states[rows], chains, axis=0)
        known = np.setdiff1d(np.arange(network.n_units), free)
        whole = network.sample_states(len(whole), rng, whole)
        forward, ends = _anneal(network, whole, free, known, np.linspace(0, 1, steps + 1), rng)
        up, last = forward.reshape(len(rows), chains), ends.reshape(len(rows), chains, -1)
        proven = [_log_sum_of_distinct(network, part) for part in last]
        start = _resampled(last, up, rng)
        back, _ = _anneal(
            network, start.reshape(-1, network.n_units), free, known,
            np.linspace(1, 0, steps + 1), rng,
        )  # fmt: skip
        down = back.reshape(len(rows), chains)
        for at, row in enumerate(rows):
            found[int(row)] = bracket(
                0.0, (up[at], down[at]), confidence, exact_starts=False, stopped="steps",
                certain=(proven[at], 0.0),
            )  # fmt: skip
    return _joined([found[row] for row in range(len(states))], chains, confidence)


def _joined(found: list[LogZ], chains: int, confidence: float) -> RowLikelihoods:
    """The brackets of all rows, and that of their mean.

    Means of the two estimates of a row are on different sides of its log-likelihood, so that their
    means over the rows, with the limits of these, are a bracket that is much narrower than the mean
    of the brackets.
    """
    estimate, lower, upper = (
        np.array([getattr(row, name) for row in found]) for name in ("estimate", "lower", "upper")
    )
    outside = 0.5 * (1.0 - confidence)
    up, down = ([WeightMean(getattr(r, n), outside) for r in found] for n in ("forward", "reverse"))
    wide = float(stdtrit(chains - 1, 1.0 - outside))
    error = _error_of_mean(up)
    low = float(np.mean([mean.log_mean for mean in up])) - wide * error
    high = -float(np.mean([mean.log_mean for mean in down])) + wide * _error_of_mean(down)
    doubtful = sum(not row.reliable for row in found)
    limits = (max(low, float(lower.mean())), min(high, float(upper.mean())))
    return RowLikelihoods(
        estimate, lower, upper, confidence, error, limits if limits[0] <= limits[1] else None,
        _warnings(doubtful, len(found), "raise steps and chains"),
    )  # fmt: skip


def _check(count: int, name: str, confidence: float) -> None:
    if count < 2:
        raise MethodError(f"log_likelihood: at least 2 {name} are needed, got {count}")
    if not 0.0 < confidence < 1.0:
        raise MethodError(f"log_likelihood: confidence is between 0 and 1, got {confidence:g}")


def _error_of_mean(rows: list[WeightMean]) -> float:
    """Standard error of the mean over rows, from independent draws of each."""
    return float(np.sqrt(sum(row.error**2 for row in rows)) / max(len(rows), 1))


def _warnings(doubtful: int, rows: int, remedy: str) -> list[str]:
    if not doubtful:
        return []
    return [
        f"{doubtful} of {rows} rows: too few draws carry weight, or chains disagree, so the bounds "
        f"of these rows are not reliable; {remedy}"
    ]


def _log_sum_of_distinct(network: SigmoidNetwork, states: Array) -> float:
    """log sum of P(h, v) over distinct states of the units: below log P(v) for certain."""
    total = float(logsumexp(network.log_joint(np.unique(states, axis=0))))
    return total - _ROUNDING * max(1.0, abs(total))


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
