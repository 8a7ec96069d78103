"""The exact posterior of few discrete sources, by enumeration of their joint states (HOJ-I21)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kikuchi.core.budget import format_bytes
from kikuchi.core.errors import BudgetError, ModelError
from kikuchi.core.numerics import logsumexp
from kikuchi.core.options import option
from kikuchi.ica.posteriors import Moments, Posterior, Problem
from kikuchi.ica.priors import Array

_BYTES = 8


@dataclass(frozen=True)
class Exact(Posterior):
    """Every joint state is weighed: exact, for discrete sources and few of them.

    gamma and lam of the answer are those of naive fields, for methods that start from it.

    >>> from kikuchi.ica.priors import parse_prior
    >>> problem = Problem([[2, 0.5], [0.5, 1.25]], [[0.3], [0.9]], [parse_prior("binary")] * 2)
    >>> Exact().solve(problem).mean.ravel().round(6).tolist()
    [-0.043938, 0.643753]
    """

    name: ClassVar[str] = "exact"
    summary: ClassVar[str] = "enumeration of the joint states of few discrete sources"
    max_states: int = option(2**20, "most joint states", low=1)
    max_bytes: int = option(400_000_000, "most bytes of working tables", low=1)

    def _solve(self, problem: Problem, start: Moments | None) -> Moments:
        states, log_prior = self._states(problem)
        shape = problem.field.shape
        mean, log_z = np.empty(shape), np.empty(shape[1])
        weight = np.zeros(states.shape[0])
        squares = np.empty(shape)
        for part in self._parts(problem, states):
            p, log_z[part] = _weights(problem.take(part), states, log_prior)
            mean[:, part] = states.T @ p
            squares[:, part] = (states * states).T @ p
            weight += np.sum(p, axis=1)
        second = (states * weight[:, None]).T @ states
        gamma = problem.field - (problem.pull(mean) - problem.diagonal * mean)
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
        )

    def covariances(self, problem: Problem, moments: Moments) -> Array:
        """Posterior covariance of each sample (N, I, I), enumerated again."""
        states, log_prior = self._states(problem)
        out = np.empty((problem.n_samples, problem.n_sources, problem.n_sources))
        for part in self._parts(problem, states):
            p, _ = _weights(problem.take(part), states, log_prior)
            mean = states.T @ p
            second = np.einsum("kn,ki,kj->nij", p, states, states, optimize=True)
            out[part] = second - mean.T[:, :, None] * mean.T[:, None, :]
        return out

    def _states(self, problem: Problem) -> tuple[Array, Array]:
        """Joint states (K, I) and their prior log-probabilities, if they are few enough."""
        lists = []
        for i, prior in enumerate(problem.priors):
            if prior.states is None:
                raise ModelError(
                    f"posterior exact: source {i} has prior {prior.name}, which is not discrete; "
                    "use adatap or lr"
                )
            lists.append(prior.states)
        count = math.prod(values.size for values, _ in lists)
        needed = count * (problem.n_sources + 4) * _BYTES
        if count > self.max_states or needed > self.max_bytes:
            raise BudgetError(
                f"posterior exact: {problem.n_sources} sources have {count} joint states, whose "
                f"tables need {format_bytes(needed)}; the limits are {self.max_states} states and "
                f"{format_bytes(self.max_bytes)}; use adatap or lr"
            )
        grids = np.meshgrid(*(values for values, _ in lists), indexing="ij")
        priors = np.meshgrid(*(p for _, p in lists), indexing="ij")
        return np.stack([g.ravel() for g in grids], axis=1), np.sum(
            [p.ravel() for p in priors], axis=0
        )

    def _parts(self, problem: Problem, states: Array) -> list[slice]:
        """Samples in pieces whose tables of all states stay within a quarter of `max_bytes`."""
        size = max(1, self.max_bytes // (4 * _BYTES * states.shape[0]))
        return [slice(k, k + size) for k in range(0, problem.n_samples, size)]


def _weights(problem: Problem, states: Array, log_prior: Array) -> tuple[Array, Array]:
    """Posterior probabilities (K, n) of the joint states, and log Z (n,)."""
    if problem.per_sample:
        square = np.einsum("ki,nij,kj->kn", states, problem.coupling, states, optimize=True)
    else:
        square = np.sum((states @ problem.coupling) * states, axis=1)[:, None]
    scores = log_prior[:, None] + states @ problem.field - 0.5 * square
    log_z = np.asarray(logsumexp(scores, axis=0))
    return np.exp(scores - log_z), log_z
