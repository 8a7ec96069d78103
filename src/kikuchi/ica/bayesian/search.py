"""Restarts and pruning of Bayesian ICA: the search for the best bound.

Reference: LAW-L12.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.run import Step
from kikuchi.engines.loops.state import Held, Rounds
from kikuchi.ica.bayesian.sources import Mixtures
from kikuchi.ica.bayesian.updates import BayesianPosterior, Hyperpriors
from kikuchi.training.checkpoint import check_sizes, part

_FIRST_NOISE = 0.1  # of the variance of the data


@dataclass(frozen=True)
class SearchOptions:
    """What the search may do; the names are those of the estimator."""

    prior: object
    adapt: bool
    pruning: str
    n_init: int
    max_iter: int
    inner_max_iter: int
    tol: float
    hyperpriors: Hyperpriors


@dataclass(eq=False, init=False)
class PruningSearch(Rounds):
    """Restarts, then pruning; `best` is the posterior to keep at any moment.

    A round ends with an update of the hyperparameters, and has a step for each sweep before it.

    Attributes
    ----------
    stage
        The number of complete restarts; after them comes pruning.
    current
        What is being fitted; None between two fits.
    rounds, current_history
        Updates of its hyperparameters.
    best
        The posterior of the greatest bound; saved unless it is the current one.
    history
        Updates of the hyperparameters of the best, as long as it has all sources.
    dropped
        Relevance of sources that were removed.
    """

    varying: ClassVar[tuple[str, ...]] = ("history", "current", "dropped")  # sources are dropped

    rng: np.random.Generator
    stage: int
    current: Held[BayesianPosterior]
    rounds: int
    current_history: Held[list[Array]]
    best: Held[BayesianPosterior]
    best_converged: bool
    history: Held[list[Array]]
    dropped: list[float]

    def __init__(
        self, options: SearchOptions, data: Array, n_sources: int, rng: np.random.Generator
    ) -> None:
        super().__init__()
        self.options, self.data, self.n_sources, self.rng = options, data, n_sources, rng
        self.stage, self.rounds, self.dropped = 0, 0, []
        self.best_converged = False
        self.history: Held[list[Array]] = Held([], _rows, _stacked)
        self.current_history: Held[list[Array]] = Held([], _rows, _stacked)

        def read(arrays: dict[str, Any]) -> BayesianPosterior:
            return BayesianPosterior.from_arrays(data, options.hyperpriors, arrays)

        def unless_current(posterior: BayesianPosterior) -> dict[str, Any]:
            return {} if posterior is self.current.value else posterior.to_arrays()

        first = self._start(0)
        self.current, self.best = Held(first, read), Held(first, read, unless_current)
        self._round: _SweepRound | None = None
        self._finished = self._reported = False

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Take the values that `to_arrays` described."""
        super().load(arrays)
        if len(arrays["history/rows"]):
            check_sizes(arrays, {"history/rows": "updates sources"}, sources=self.n_sources)
        if not part(arrays, "best"):
            self.best.value = self.current.now

    # ------------------------------------------------------------------ search

    def step(self) -> Step | None:
        """Take a sweep; the objective is the bound of the best so far."""
        while self._begin_fit():
            fit, posterior = self._round, self.current.now
            if fit is None:
                self.mark()
                trial = self.stage > 0
                floor = self.best.now.bound if trial else -math.inf
                fit = self._round = _SweepRound(posterior.bound, posterior.bound, floor)
            if fit.over:
                self._end_round(posterior, fit)
                continue
            last = fit.bound
            posterior.update_mean()
            posterior.update_sources()
            posterior.update_mixing()
            fit.bound = posterior.bound
            fit.sweeps += 1
            self.done += 1
            fit.over = (
                fit.sweeps == self.options.inner_max_iter or fit.bound - last <= self._smallest_gain
            )
            return Step(self.done, objective=max(fit.bound, fit.floor))
        if self._reported:
            return None
        self._reported = True
        return Step(self.done, residual=0.0, objective=self.best.now.bound)

    @property
    def _smallest_gain(self) -> float:
        return float(self.options.tol * self.data.shape[1])

    def _begin_fit(self) -> bool:
        """Whether there is something to fit: another start, or the best without a source."""
        if self._finished:
            return False
        if self.current.value is not None:
            return True
        if self.stage < self.options.n_init:
            self.current.value = self._start(self.stage)
            return True
        if self.options.pruning == "relevance":
            self._drop_shrunken()
        if self.options.pruning != "bound" or self.best.now.weights.shape[1] == 1:
            self._finished = True
            return False
        self.current.value = self.best.now.without(self._weakest)
        return True

    @property
    def _weakest(self) -> int:
        return int(np.argmax(self.best.now.relevance.mean))

    def _end_round(self, posterior: BayesianPosterior, fit: _SweepRound) -> None:
        """Update the hyperparameters; where the fit ends, it replaces the best if its bound is
        greater.
        """
        posterior.update_relevance()
        posterior.update_noise()
        if self.options.adapt:
            posterior.adapt_sources()
        self.current_history.now.append(posterior.relevance.mean)
        self.rounds += 1
        self._round = None
        bound = posterior.bound
        converged = bound - fit.before <= self._smallest_gain
        if self.rounds < self.options.max_iter and not converged:
            return
        relevance = float(self.best.now.relevance.mean[self._weakest])
        better = bound > fit.floor
        if better:
            self.best.value, self.best_converged = posterior, converged
            if posterior.weights.shape[1] == self.n_sources:
                self.history.value = self.current_history.now
        self.current.value, self.rounds, self.current_history.value = None, 0, []
        if self.stage < self.options.n_init:
            self.stage += 1
        elif better:
            self.dropped.insert(0, relevance)
        else:
            self._finished = True

    def _drop_shrunken(self) -> None:
        """Remove sources whose relevance has come near that of a column of zeros."""
        best = self.best.now
        limit = 0.5 * best.prior_relevance
        while best.weights.shape[1] > 1 and best.relevance.mean.max() >= limit:
            source = int(np.argmax(best.relevance.mean))
            self.dropped.insert(0, float(best.relevance.mean[source]))
            best = self.best.value = best.without(source)

    def _start(self, number: int) -> BayesianPosterior:
        """Principal components scaled to sources of their prior variance, rotated if not first."""
        mixtures = Mixtures.shared(self.options.prior, self.n_sources)
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


@dataclass
class _SweepRound:
    """The sweeps of a round: the bound before them and now, and that of the best of other fits."""

    before: float
    bound: float
    floor: float
    sweeps: int = 0
    over: bool = False


def _stacked(rows: list[Array]) -> dict[str, Array]:
    return {"rows": np.array(rows) if rows else np.empty((0, 1))}


def _rows(arrays: Mapping[str, Array]) -> list[Array]:
    return list(arrays["rows"])


def _rotation(size: int, rng: np.random.Generator) -> Array:
    base, corner = np.linalg.qr(rng.standard_normal((size, size)))
    return np.asarray(base * np.sign(np.diagonal(corner)))
