"""The exact posterior of few discrete sources, by enumeration of their joint states.

Reference: HOJ-I21.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import format_bytes
from kikuchi.core.errors import BudgetError, ModelError
from kikuchi.core.numerics import logsumexp
from kikuchi.core.options import option
from kikuchi.ica.posteriors.posterior import Moments, Posterior, Problem

_BYTES = 8
_TABLES = 4  # numbers a joint state needs for each sample that is weighed at one time


@dataclass(frozen=True)
class ExactPosterior(Posterior):
    """Enumeration of the joint states of few discrete sources.

    gamma and lam of the answer are those of naive fields, for methods that start from it.

    >>> from kikuchi.ica.priors.prior import parse_prior
    >>> problem = Problem([[2, 0.5], [0.5, 1.25]], [[0.3], [0.9]], [parse_prior("binary")] * 2)
    >>> ExactPosterior().solve(problem).mean.ravel().round(6).tolist()
    [-0.043938, 0.643753]
    """

    name: ClassVar[str] = "exact"
    max_states: int = option(2**20, "most joint states", low=1)
    max_bytes: int = option(400_000_000, "most bytes of working tables", low=1)

    def _solve(self, problem: Problem, start: Moments | None) -> Moments:
        states, log_prior = self._states(problem)
        shape = problem.field.shape
        mean, log_z = np.empty(shape), np.empty(shape[1])
        weight = np.zeros(log_prior.size)
        squares = np.empty(shape)
        for part in self._parts(problem, states):
            p, log_z[part] = _weights(problem.take(part), states, log_prior)
            mean[:, part] = states @ p
            squares[:, part] = [(values * values) @ p for values in states]
            weight += np.sum(p, axis=1)
        second = np.array([states @ (values * weight) for values in states])
        gamma = problem.field - (problem.couple(mean) - problem.diagonal * mean)
        return Moments(
            mean=mean,
            covariance_sum=second - mean @ mean.T,
            variances=np.maximum(squares - mean * mean, 0.0),
            log_z=log_z,
            gamma=gamma,
            lam=np.broadcast_to(problem.diagonal, shape).copy(),
            converged=np.ones(shape[1], dtype=bool),
            iterations=1,
            is_bound=True,
            state_sums=_by_source(weight, problem),
        )

    def covariances(self, problem: Problem, moments: Moments) -> Array:
        """Posterior covariance of each sample (N, I, I), enumerated again."""
        states, log_prior = self._states(problem)
        out = np.empty((problem.n_samples, problem.n_sources, problem.n_sources))
        for part in self._parts(problem, states):
            p, _ = _weights(problem.take(part), states, log_prior)
            mean = (states @ p).T
            for i, j in zip(*np.tril_indices(len(states)), strict=True):
                out[part, i, j] = (states[i] * states[j]) @ p - mean[:, i] * mean[:, j]
                out[part, j, i] = out[part, i, j]
        return out

    def _states(self, problem: Problem) -> tuple[Array, Array]:
        """Joint states (I, K) and their prior log-probabilities, if they are few enough."""
        lists = []
        for i, prior in enumerate(problem.priors):
            if prior.states is None:
                raise ModelError(
                    f"posterior exact: source {i} has prior {prior.name}, which is not discrete; "
                    "use adatap or lr"
                )
            lists.append(prior.states)
        count = math.prod(values.size for values, _ in lists)
        needed = count * (problem.n_sources + _TABLES) * _BYTES
        if count > self.max_states or needed > self.max_bytes:
            raise BudgetError(
                f"posterior exact: {problem.n_sources} sources have {count} joint states, whose "
                f"tables need {format_bytes(needed)}; the limits are {self.max_states} states and "
                f"{format_bytes(self.max_bytes)}; use adatap or lr"
            )
        states, log_prior = np.empty((len(lists), count)), np.zeros(count)
        repeats = count
        for i, (values, log_p) in enumerate(lists):
            repeats //= values.size
            states[i] = np.resize(np.repeat(values, repeats), count)
            log_prior += np.resize(np.repeat(log_p, repeats), count)
        return states, log_prior

    def _parts(self, problem: Problem, states: Array) -> list[slice]:
        """Samples in pieces whose tables of all states stay within what `max_bytes` leaves."""
        size = max(1, (self.max_bytes - states.nbytes) // (_TABLES * _BYTES * states.shape[1]))
        return [slice(k, k + size) for k in range(0, problem.n_samples, size)]


def _by_source(weight: Array, problem: Problem) -> tuple[Array, ...]:
    """Sums over all other sources of numbers of the joint states."""
    sizes = [prior.states[0].size for prior in problem.priors if prior.states is not None]
    grid, axes = weight.reshape(sizes), range(len(sizes))
    return tuple(grid.sum(axis=tuple(k for k in axes if k != i)) for i in axes)


def _weights(problem: Problem, states: Array, log_prior: Array) -> tuple[Array, Array]:
    """Posterior probabilities (K, n) of the joint states, and log Z (n,)."""
    scores = states.T @ problem.field + log_prior[:, None]
    if problem.per_sample:
        for i, j in zip(*np.tril_indices(len(states)), strict=True):
            pair = states[i] * states[j] * (0.5 if i == j else 1.0)
            scores -= pair[:, None] * problem.coupling[:, i, j]
    else:
        for values, row in zip(states, problem.coupling, strict=True):
            scores -= (0.5 * values * (row @ states))[:, None]
    log_z = np.asarray(logsumexp(scores, axis=0))
    scores -= log_z
    return np.exp(scores, out=scores), log_z
