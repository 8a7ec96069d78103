"""`HMM`: hidden Markov models as an estimator."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import DataError
from kikuchi.core.options import option
from kikuchi.temporal import kinds
from kikuchi.temporal.base import ChainEstimator, Fitted
from kikuchi.temporal.chains.emissions import (
    CategoricalEmission,
    Emission,
    GaussianEmission,
    GivenEmission,
    MixtureEmission,
    add,
    read_emission,
    variance_floor,
)
from kikuchi.temporal.chains.inference import (
    chain_posterior,
    chain_row_scores,
    check_chain,
    most_probable_path,
    sample_chain,
)
from kikuchi.temporal.chains.shares import (
    learnt_shares,
    log_prior,
    pack_shares,
    shares_slope,
    unpack_shares,
)
from kikuchi.temporal.covariances import CovarianceType, covariance_structure
from kikuchi.temporal.sequences import Sequences
from kikuchi.training.checkpoint import Arrays

_TRIAL = 40  # steps of EM of each start
_EQUAL = 0.1  # nats by which starts may differ and count as equal

EmissionKind = Literal["gaussian", "categorical", "mixture", "given"]


@dataclass(frozen=True, eq=False)
class HiddenMarkov:
    """Start (K,), transition (K, K) and emission of a hidden Markov model, checked.

    `start` and `transition` are probabilities, `emission` gives the outputs of each state.

    >>> HiddenMarkov([1.0], [[1.0]], GivenEmission(1)).n_states
    1

    Reference: HOJ-M5.
    """

    start: Array
    transition: Array
    emission: Emission

    def __post_init__(self) -> None:
        start, transition = check_chain(self.start, self.transition)
        object.__setattr__(self, "start", start)
        object.__setattr__(self, "transition", transition)

    @classmethod
    def mixture(cls, weights: Any, emission: Emission) -> HiddenMarkov:
        """A mixture model, which is a chain without memory: states are drawn anew at each step with
        the probabilities `weights`, and `emission` makes the rows.

        >>> HiddenMarkov.mixture([0.2, 0.8], GivenEmission(2)).transition.tolist()
        [[0.2, 0.8], [0.2, 0.8]]
        """
        return cls(
            weights, np.tile(np.asarray(weights, dtype=np.float64), (len(weights), 1)), emission
        )

    @property
    def n_states(self) -> int:
        """Number of states."""
        return len(self.start)

    def to_arrays(self) -> Arrays:
        """Start, transition and the arrays of the emission."""
        return {"start": self.start, "transition": self.transition, **self.emission.to_arrays()}


class ChainForecast(NamedTuple):
    """Probabilities of states (steps, K), mean and variance of outputs (steps, d)."""

    probabilities: Array
    mean: Array
    variance: Array

    @property
    def deviation(self) -> Array:
        """Standard deviation of each output."""
        return np.sqrt(self.variance)


class _ChainStatistics(NamedTuple):
    first: Array
    transitions: Array
    emission: Any


@dataclass(eq=False, repr=False)
class HMM(ChainEstimator, Fitted[HiddenMarkov]):
    """Hidden Markov model, learnt by EM or along the gradient.

    Outputs are Gaussian, mixtures of Gaussians, one column of categories 0, 1, ..., or `given`:
    then the rows are log-likelihoods of each state from a model of your own. NaN is missing.

    Starts and transitions that are zero in `start` stay zero, as in left-right chains. With a
    `pseudo_count`, the objective (`trace_.objective`) is the log-likelihood plus the pseudo-count
    times the logarithms of all other starts and transitions; `log_likelihood_` is without it.

    Attributes
    ----------
    model_ (start, transition, emission), log_likelihood_, trace_, converged_, stopped_, n_iter_,
    warnings_.

    >>> rng = np.random.default_rng(0)
    >>> states = np.repeat([0, 1, 0, 1], 50)
    >>> X = np.array([[-2.0], [2.0]])[states] + rng.normal(size=(200, 1))
    >>> hmm = HMM(2, random_state=0).fit(X)
    >>> path = hmm.predict(X)
    >>> bool(max(np.mean(path == states), np.mean(path != states)) > 0.97)
    True

    Reference: HOJ-M5.
    """

    kind = kinds.CHAIN
    file_kind: ClassVar[str] = "hidden-markov"

    n_states: int = option(2, "Number of states.", low=1)
    _: KW_ONLY
    emission: EmissionKind = option(
        "gaussian", "Outputs of a state: gaussian, categorical, mixture or given."
    )
    covariance_type: CovarianceType = option(
        "full",
        "Covariances of Gaussians: full, diag or spherical, one for each state; tied (full), "
        "tied-diag or tied-spherical, one for all states.",
    )
    n_mix: int = option(2, "Gaussians of each state of a mixture.", low=1)
    n_init: int = option(
        10, "Starts: k-means, then random ones; the best after 40 iterations is kept.", low=1
    )
    start: HiddenMarkov | None = option(None, "Parameters before learning; by default by k-means.")

    @staticmethod
    def _size(model: HiddenMarkov) -> int:
        return model.n_states

    # ------------------------------------------------------------------ learning

    def _begin(self, sequences: Sequences, rng: np.random.Generator) -> HiddenMarkov:
        if self.start is not None:
            if self.start.n_states != self.n_states:
                raise DataError(
                    f"start has {self.start.n_states} states, asked for {self.n_states}"
                )
            return self.start
        best, highest = self._guess(sequences.stacked(), rng), -np.inf
        if self.n_init == 1 or self.n_states == 1 or self.emission == "given":  # equal starts
            return best
        model, clock = best, self._search_clock()
        for number in range(self.n_init):
            if number:
                model = self._guess(sequences.stacked(), rng, random=True)
            value, statistics = self._expectation(model, sequences)
            for _ in range(_TRIAL):
                model = self._maximisation(model, statistics)
                value, statistics = self._expectation(model, sequences)
            if value > highest + _EQUAL:  # of equal ones the first: rounding must not decide
                best, highest = model, value
            if clock.expired:
                break
        return best

    def _fit(self, sequences: Sequences, method: str, beside: Array | None = None) -> Self:
        self._numbers = sequences.observed
        try:
            return super()._fit(sequences, method, beside)
        finally:
            del self._numbers

    def _doubts(self, model: HiddenMarkov) -> list[str]:
        """More parameters than numbers, or outputs that drift, which few states cannot follow."""
        emission = model.emission.n_parameters
        free = self.n_states**2 - 1 + emission
        if emission and free > self._numbers:
            return [
                f"{self.n_states} states have {free} parameters, and the rows hold {self._numbers} "
                "numbers: the parameters are not determined; use fewer states, or more rows"
            ]
        gaussian = self.emission in ("gaussian", "mixture")
        return self._drift(f"{self.n_states} states") if gaussian else []

    def _guess(self, rows: Array, rng: np.random.Generator, random: bool = False) -> HiddenMarkov:
        """Parameters before learning: emissions of clusters, or random ones, in lasting states."""
        k = self.n_states
        stay = np.full((k, k), 0.1 / max(k - 1, 1)) + (0.9 - 0.1 / max(k - 1, 1)) * np.eye(k)
        return HiddenMarkov(
            np.full(k, 1.0 / k),
            stay / stay.sum(axis=1, keepdims=True),
            self._first(rows, rng, random),
        )

    def _first(self, rows: Array, rng: np.random.Generator, random: bool) -> Emission:
        """Emissions before learning."""
        k = self.n_states
        if self.emission == "given":
            if rows.shape[1] != k:
                raise DataError(f"log-likelihoods of {rows.shape[1]} states, asked for {k}")
            return GivenEmission(k)
        if self.emission == "categorical":
            highest = np.nanmax(rows)
            categories = int(highest) + 1 if highest == int(highest) and highest >= 0 else 1
            return CategoricalEmission(rng.dirichlet(np.full(max(categories, 1), 2.0), size=k))
        if self.emission == "mixture":
            parts = self._gaussians(rows, k * self.n_mix, rng, random)
            return MixtureEmission(np.full((k, self.n_mix), 1.0 / self.n_mix), parts)
        return self._gaussians(rows, k, rng, random)

    def _gaussians(
        self, rows: Array, k: int, rng: np.random.Generator, random: bool
    ) -> GaussianEmission:
        from sklearn.cluster import KMeans

        known = np.where(np.isnan(rows), np.nanmean(rows, axis=0), rows)
        floor = variance_floor(rows)
        scale = np.sqrt(np.maximum(known.var(axis=0), 1e-300))
        seed = int(rng.integers(2**31))
        distinct = len(np.unique(known, axis=0))
        how: dict[str, Any] = {"init": "random", "max_iter": 1, "tol": 0.0} if random else {}
        clusters = KMeans(min(k, distinct), n_init=1 if random else 5, random_state=seed, **how)
        with warnings.catch_warnings(action="ignore"):  # one iteration is what is wanted
            centres = clusters.fit(known / scale)
        means = centres.cluster_centers_ * scale
        if len(means) < k:
            means = means[np.arange(k) % len(means)] + 1e-3 * scale * rng.normal(
                size=(k, len(scale))
            )
        order = np.argsort(means[:, 0], kind="stable")
        spread = np.array([known[centres.labels_ == j].var(axis=0) for j in range(len(order))
                           if (centres.labels_ == j).any()]).mean(axis=0)  # fmt: skip
        covariance = np.diag(np.maximum(spread, np.maximum(floor, 1e-3 * scale**2)))
        structure, tied = covariance_structure(self.covariance_type)
        if structure == "isotropic":
            covariance = np.eye(len(covariance)) * np.diagonal(covariance).mean()
        covariances = np.broadcast_to(covariance, (k, *covariance.shape)).copy()
        if random and not tied:  # states may differ in their spread alone
            covariances *= np.exp(rng.normal(size=(k, 1, 1)))
        return GaussianEmission(means[order], covariances, structure, tied, floor)

    def _expectation(self, model: HiddenMarkov, sequences: Sequences) -> tuple[float, Any]:
        k, total, first = model.n_states, 0.0, np.zeros(model.n_states)
        transitions, emission = np.zeros((k, k)), None
        for rows in sequences.tables:
            p = chain_posterior(
                model.start, model.transition, model.emission.log_likelihood(rows), counts=True
            )
            total += p.log_likelihood
            first += p.probabilities[0]
            transitions += p.transitions
            emission = add(emission, model.emission.statistics(rows, p.probabilities))
        return total + self._beside(model), _ChainStatistics(first, transitions, emission)

    def _beside(self, model: HiddenMarkov) -> float:
        return log_prior((model.start, model.transition), self.pseudo_count)

    def _maximisation(self, model: HiddenMarkov, statistics: Any) -> HiddenMarkov:
        return HiddenMarkov(
            learnt_shares(statistics.first, model.start, self.pseudo_count),
            learnt_shares(statistics.transitions, model.transition, self.pseudo_count),
            model.emission.maximised(statistics.emission),
        )

    def _pack(self, model: HiddenMarkov) -> Array:
        tables = [pack_shares(p) for p in (model.start, model.transition)]
        return np.concatenate([*tables, model.emission.pack()])

    def _unpack(self, model: HiddenMarkov, vector: Array) -> HiddenMarkov:
        first = np.count_nonzero(model.start)
        both = first + np.count_nonzero(model.transition)
        return HiddenMarkov(
            unpack_shares(model.start, vector[:first]),
            unpack_shares(model.transition, vector[first:both]),
            model.emission.unpack(vector[both:]),
        )

    def _gradient(self, model: HiddenMarkov, statistics: Any) -> Array:
        return np.concatenate(
            [
                shares_slope(statistics.first, model.start, self.pseudo_count),
                shares_slope(statistics.transitions, model.transition, self.pseudo_count),
                model.emission.gradient(statistics.emission),
            ]
        )

    def _read_model(self, arrays: Arrays) -> HiddenMarkov:
        emission = read_emission(arrays, *covariance_structure(self.covariance_type))
        return HiddenMarkov(np.array(arrays["start"]), np.array(arrays["transition"]), emission)

    def _restore_state(
        self, arrays: Arrays, facts: Mapping[str, Any], about: Mapping[str, Any]
    ) -> None:
        super()._restore_state(arrays, facts, about)
        if self.model_.n_states != self.n_states or self.model_.emission.kind != self.emission:
            raise DataError("its parameters are not those of its options")

    # ------------------------------------------------------------------ asking

    def filter(self, X: Any) -> Any:
        """Probabilities of states given the rows of `X` (time, outputs) up to each step:
        `ChainPosterior`, or a list for a list of tables.
        """
        return self._each(X, smooth=False)

    def smooth(self, X: Any) -> Any:
        """Probabilities of states given all rows `X` (time, outputs): `ChainPosterior`, or a list
        for a list of tables.
        """
        return self._each(X, smooth=True, counts=True)

    def _each(self, X: Any, **options: Any) -> Any:
        model: HiddenMarkov = self._model
        sequences = self._sequences(X)
        return sequences.answer(
            [
                chain_posterior(
                    model.start, model.transition, model.emission.log_likelihood(rows), **options
                )
                for rows in sequences.tables
            ]
        )

    def predict(self, X: Any, lengths: Any = None) -> Any:
        """Return the most probable sequence of states (Viterbi) given rows `X`, or a list of them
        for a list of tables; with `lengths` of the sequences in one table, one after the other.
        """
        model: HiddenMarkov = self._model
        sequences = self._sequences(X, lengths=lengths)
        paths = [
            most_probable_path(model.start, model.transition, model.emission.log_likelihood(rows))[
                0
            ]
            for rows in sequences.tables
        ]
        return sequences.answer(paths)

    def decode(self, X: Any, lengths: Any = None) -> tuple[float, Any]:
        """Return the log-probability of the most probable states together with the rows `X`, and
        these states, as `predict` returns them. Of several sequences, a list or one table with
        their `lengths`, it is the sum of the log-probabilities.

        >>> hmm = HMM(2, random_state=0).fit([[0.0], [0.1], [5.0], [5.1], [0.0], [5.0]])
        >>> hmm.decode([[0.0], [5.0]])[1].tolist()
        [0, 1]
        """
        model: HiddenMarkov = self._model
        sequences = self._sequences(X, lengths=lengths)
        found = [
            most_probable_path(model.start, model.transition, model.emission.log_likelihood(rows))
            for rows in sequences.tables
        ]
        return float(sum(value for _, value in found)), sequences.answer(
            [path for path, _ in found]
        )

    def predict_proba(self, X: Any, lengths: Any = None) -> Any:
        """Return the probabilities of the states (time, states) given all rows of `X`, or a list of
        them for a list of tables; with `lengths` of the sequences in one table, one after the
        other.
        """
        sequences = self._sequences(X, lengths=lengths)
        found = [self._each(rows, smooth=True) for rows in sequences.tables]
        return sequences.answer([posterior.probabilities for posterior in found])

    @property
    def startprob_(self) -> Array:
        """Probabilities of the first state."""
        return np.array(self._model.start)

    @property
    def transmat_(self) -> Array:
        """Transition probabilities (from, to)."""
        return np.array(self._model.transition)

    @property
    def means_(self) -> Array:
        """Mean of the outputs in each state (states, outputs)."""
        return np.array(self._model.emission.mean())

    @property
    def covars_(self) -> Array:
        """Covariance of the outputs in each state (states, outputs, outputs) of Gaussian emissions;
        of mixtures (states, components, outputs, outputs).
        """
        emission = self._model.emission
        if isinstance(emission, GaussianEmission):
            return np.array(emission.covariances)
        if isinstance(emission, MixtureEmission):
            covariances = emission.parts.covariances
            return covariances.reshape(*emission.weights.shape, *covariances.shape[1:])
        raise AttributeError(f"{type(self).__name__} of {self.emission} outputs has no covars_")

    def _row_scores(self, rows: Array) -> Array:
        model: HiddenMarkov = self._model
        return chain_row_scores(model.start, model.transition, model.emission.log_likelihood(rows))

    def _ahead(self, rows: Array, steps: int) -> ChainForecast:
        model: HiddenMarkov = self._model
        logs = model.emission.log_likelihood(rows)
        p = chain_posterior(model.start, model.transition, logs, smooth=False)
        return forecast_chain(model, p.probabilities[-1], steps)

    def _drawn(self, steps: int, rng: np.random.Generator) -> tuple[Ints, Array]:
        model: HiddenMarkov = self._model
        states = sample_chain(model.start, model.transition, steps, rng)
        return states, model.emission.sample(states, rng)


def forecast_chain(model: HiddenMarkov, probabilities: Array, steps: int) -> ChainForecast:
    """States and outputs of the steps after a state with these probabilities."""
    p = np.empty((steps, model.n_states))
    for t in range(steps):
        probabilities = probabilities @ model.transition
        p[t] = probabilities
    means, variances = model.emission.mean(), model.emission.variance()
    mean = p @ means
    away = means - mean[:, None]
    return ChainForecast(p, mean, p @ variances + (p[:, :, None] * away**2).sum(axis=1))
