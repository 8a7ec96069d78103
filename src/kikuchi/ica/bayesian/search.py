"""Restarts and pruning of Bayesian ICA: the search for the best bound.

Reference: LAW-L12.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.run import State, Step
from kikuchi.ica.bayesian.sources import Mixtures
from kikuchi.ica.bayesian.updates import BayesianPosterior, Hyperpriors
from kikuchi.training.checkpoint import check_sizes, part, prefixed
from kikuchi.training.resuming import from_json_array, json_array

_FIRST_NOISE = 0.1  # of the variance of the data


@dataclass(frozen=True)
class SearchOptions:
    """What the search may do; the names are those of the estimator."""

    sources: object
    adapt: bool
    prune: str
    restarts: int
    max_iter: int
    inner_iterations: int
    tol: float
    hyperpriors: Hyperpriors


class PruningSearch:
    """Restarts, then pruning; `best` is the posterior to keep at any moment.

    The state is that after the last update of the hyperparameters, not after each sweep.
    """

    varying = ("history", "current")  # sources are dropped

    def __init__(
        self, options: SearchOptions, data: Array, n_sources: int, rng: np.random.Generator
    ) -> None:
        self.options = options
        self.data = data
        self.n_sources = n_sources
        self.rng = rng
        self.sweeps = 0
        self.dropped: list[float] = []
        self.best_converged = False
        self.history: list[Array] = []
        self.best = self._start(0)
        self.stage = 0  # number of complete restarts
        self.current: BayesianPosterior | None = self.best  # what is being fitted
        self.rounds = 0  # updates of its hyperparameters
        self.current_history: list[Array] = []
        self._boundary = self._state()

    # ------------------------------------------------------------------ state

    def state(self) -> State:
        """The state after the last update of hyperparameters."""
        return self._boundary

    def _state(self) -> State:
        facts = {
            "rng": self.rng.bit_generator.state,
            "dropped": self.dropped,
            "best_converged": self.best_converged,
            "stage": self.stage,
            "rounds": self.rounds,
        }
        state = {"iterations": np.array(self.sweeps), "facts": json_array(facts)}
        state["history"] = _stacked(self.history)
        state["current_history"] = _stacked(self.current_history)
        for name, posterior in (("current", self.current), ("best", self.best)):
            if posterior is not None and (name == "current" or posterior is not self.current):
                state |= prefixed(posterior.to_arrays(), name)
        return state

    def restore(self, state: State) -> None:
        """Go on from a state."""
        facts = from_json_array(state["facts"])
        self.rng.bit_generator.state = facts["rng"]
        self.dropped, self.best_converged = facts["dropped"], facts["best_converged"]
        self.stage, self.rounds = facts["stage"], facts["rounds"]
        self.sweeps = int(state["iterations"])
        if len(state["history"]):
            check_sizes(state, {"history": "updates sources"}, sources=self.n_sources)
        self.history = list(state["history"])
        self.current_history = list(state["current_history"])
        given = self.data, self.options.hyperpriors
        self.current = BayesianPosterior.from_arrays(*given, part(state, "current"))
        best = part(state, "best")
        self.best = BayesianPosterior.from_arrays(*given, best) if best else self.current

    # ------------------------------------------------------------------ search

    def steps(self) -> Iterator[Step]:
        """One step per sweep; the objective of each is the bound of the best so far."""
        while self.stage < self.options.restarts:
            yield from self._fit(self.current or self._start(self.stage), trial=self.stage > 0)
            self.stage += 1
        if self.options.prune == "relevance":
            self._drop_shrunken()
        while self.options.prune == "bound" and self.best.weights.shape[1] > 1:
            source = int(np.argmax(self.best.relevance.mean))
            before, relevance = self.best, float(self.best.relevance.mean[source])
            yield from self._fit(self.current or self.best.without(source), trial=True)
            if self.best is before:
                break
            self.dropped.insert(0, relevance)
        yield Step(self.sweeps, residual=0.0, objective=self.best.bound)

    def _fit(self, posterior: BayesianPosterior, *, trial: bool) -> Iterator[Step]:
        """Updates until converged; a trial replaces the best only if its bound is greater."""
        self.current = posterior
        floor = self.best.bound if trial else -math.inf
        tol = self.options.tol * self.data.shape[1]
        bound, converged = posterior.bound, False
        while self.rounds < self.options.max_iter and not converged:
            self._boundary = self._state()
            before = bound
            for _ in range(self.options.inner_iterations):
                last = bound
                posterior.update_mean()
                posterior.update_sources()
                posterior.update_mixing()
                bound = posterior.bound
                self.sweeps += 1
                yield Step(self.sweeps, objective=max(bound, floor))
                if bound - last <= tol:
                    break
            posterior.update_relevance()
            posterior.update_noise()
            if self.options.adapt:
                posterior.adapt_sources()
            self.current_history.append(posterior.relevance.mean)
            self.rounds += 1
            bound = posterior.bound
            converged = bound - before <= tol
        if bound > floor:
            self.best, self.best_converged = posterior, converged
            if posterior.weights.shape[1] == self.n_sources:
                self.history = self.current_history
        self.current, self.rounds, self.current_history = None, 0, []

    def _drop_shrunken(self) -> None:
        """Remove sources whose relevance has come near that of a column of zeros."""
        limit = 0.5 * self.best.prior_relevance
        while self.best.weights.shape[1] > 1 and self.best.relevance.mean.max() >= limit:
            source = int(np.argmax(self.best.relevance.mean))
            self.dropped.insert(0, float(self.best.relevance.mean[source]))
            self.best = self.best.without(source)

    def _start(self, number: int) -> BayesianPosterior:
        """Principal components scaled to sources of their prior variance, rotated if not first."""
        mixtures = Mixtures.shared(self.options.sources, self.n_sources)
        centred = self.data - self.data.mean(axis=1, keepdims=True)
        base, size, _ = np.linalg.svd(centred, full_matrices=False)
        rank = min(self.n_sources, len(size))
        weights = np.zeros((len(self.data), self.n_sources))
        weights[:, :rank] = base[:, :rank] * size[:rank] / math.sqrt(self.data.shape[1])
        extra = self.n_sources - rank
        if extra:
            scale = np.sqrt(np.mean(weights[:, :rank] ** 2))
            weights[:, rank:] = scale * self.rng.standard_normal((len(self.data), extra))
        if number:
            weights = weights @ _rotation(self.n_sources, self.rng)
        noise = _FIRST_NOISE * float(centred.var())
        weights = weights / np.sqrt(mixtures.variance)
        return BayesianPosterior(self.data, weights, noise, mixtures, self.options.hyperpriors)


def _stacked(rows: list[Array]) -> Array:
    return np.array(rows) if rows else np.empty((0, 1))


def _rotation(size: int, rng: np.random.Generator) -> Array:
    base, corner = np.linalg.qr(rng.standard_normal((size, size)))
    return np.asarray(base * np.sign(np.diagonal(corner)))
