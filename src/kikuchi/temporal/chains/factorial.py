"""`FactorialHMM` and `FrameHoppingHMM`: several hidden chains that share their outputs."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.log import warn_caller
from kikuchi.core.methods import constructor
from kikuchi.core.options import option
from kikuchi.engines.loops.state import State
from kikuchi.temporal import kinds
from kikuchi.temporal.base import ChainEstimator, Fitted, total_log_likelihood
from kikuchi.temporal.chains.emissions import add, variance_floor
from kikuchi.temporal.chains.exact import exact_chains
from kikuchi.temporal.chains.propagation import filter_chains, propagate_chains
from kikuchi.temporal.chains.shares import (
    learnt_shares,
    log_prior,
    pack_shares,
    shares_slope,
    unpack_shares,
)
from kikuchi.temporal.chains.structured import (
    AdditiveGaussian,
    EmissionTable,
    HiddenChains,
    check_complete,
    mean_field_chains,
)
from kikuchi.temporal.covariances import covariance_structure
from kikuchi.temporal.sequences import Sequences, check_steps
from kikuchi.training.checkpoint import Arrays

Method = Literal["mean-field", "bp", "exact"]

_SMOOTHERS: dict[str, Any] = {
    "mean-field": mean_field_chains,
    "bp": propagate_chains,
    "exact": exact_chains,
}
_TRIAL = 15  # steps of EM of each random start
_SMALL = 0.1  # variance of the outputs that is noise at the start


class _ChainsStatistics(NamedTuple):
    first: list[Array]
    transitions: list[Array]
    emission: Any


@dataclass(eq=False)
class _Memory(State):
    """Beliefs by the number of their sequence that the next expectation begins with.

    What `repeats` the last expectation when it goes on, as EM does, saves those which that one
    began with.
    """

    beliefs: dict[str, Array]

    def __post_init__(self) -> None:
        self.began = dict(self.beliefs)
        self.repeats = False

    def to_arrays(self) -> Arrays:
        return _Memory(self.began).to_arrays() if self.repeats else super().to_arrays()


class ChainsForecast(NamedTuple):
    """Probabilities of the states of each chain, and mean and variance of Gaussian outputs."""

    probabilities: list[Array]
    mean: Array
    variance: Array

    @property
    def deviation(self) -> Array:
        """Standard deviation of each output."""
        return np.sqrt(self.variance)


@dataclass(eq=False, repr=False)
class FactorialHMM(ChainEstimator, Fitted[HiddenChains]):
    """Several hidden Markov chains whose states together produce each row.

    Gaussian outputs are sums of the outputs of the chains; categorical ones (one column 0, 1, ...)
    have a table of all combinations of states. Posteriors are by structured mean field, whose
    objective is a lower bound on the log-likelihood, or exact where the product chain fits.

    Attributes
    ----------
    model_ (starts, transitions, lags, emission), log_likelihood_ (the bound that EM reached),
    trace_, converged_, stopped_, n_iter_, warnings_.

    >>> rng = np.random.default_rng(0)
    >>> a, b = np.repeat([0, 1, 0, 1], 50), np.tile([0, 0, 0, 1, 1], 40)
    >>> X = 3.0 * a[:, None] + 1.0 * b[:, None] + 0.2 * rng.normal(size=(200, 1))
    >>> chains = FactorialHMM(n_states=(2, 2), random_state=0).fit(X)
    >>> s = chains.smooth(X)
    >>> exact = chains.smooth(X, method="exact")
    >>> [p.shape for p in s.probabilities], bool(s.log_likelihood < exact.log_likelihood + 1e-9)
    ([(200, 2), (200, 2)], True)

    Reference: HOJ-X1, HOJ-M5, LAW-I24.
    """

    kind = kinds.FACTORIAL
    file_kind: ClassVar[str] = "factorial-markov"

    n_states: tuple[int, ...] | list[int] = option((2, 2), "Number of states of each chain.")
    _: KW_ONLY
    emission: Literal["gaussian", "categorical"] = option(
        "gaussian", "Outputs: gaussian (sums over chains) or categorical (a table)."
    )
    covariance_type: Literal["full", "diag", "spherical"] = option(
        "full", "Covariance of Gaussian outputs: full, diag or spherical."
    )
    n_init: int = option(8, "Random starts, of which the best after a few steps is kept.", low=1)
    start: HiddenChains | None = option(None, "Parameters before learning; by default random.")

    # ------------------------------------------------------------------ making

    @staticmethod
    def _size(model: HiddenChains) -> tuple[int, ...]:
        return model.sizes

    def _given(self, model: HiddenChains, columns: int) -> Self:
        self._check_lags(model)
        return super()._given(model, columns)

    def _chain_lags(self) -> tuple[int, ...]:
        return (1,) * len(self.n_states)

    def _check_lags(self, model: HiddenChains) -> None:
        if model.lags != self._chain_lags():
            raise MethodError(f"lags {model.lags} are those of a FrameHoppingHMM")

    def _check_options(self) -> None:
        super()._check_options()
        sizes = list(self.n_states)
        if not sizes or any(not isinstance(k, int | np.integer) or k < 1 for k in sizes):
            raise MethodError(f"n_states are whole numbers of states, at least 1 each, got {sizes}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.emission == "categorical"
        return tags

    # ------------------------------------------------------------------ learning

    def _learn(self, X: Any, method: str) -> Self:
        self._check_options()
        sequences = self._sequences(X, reset=True)
        self._floor = variance_floor(sequences.stacked())
        self._memory = _Memory({})
        try:
            return self._fit(sequences, method)
        finally:
            del self._memory, self._floor

    def _begin(self, sequences: Sequences, rng: np.random.Generator) -> HiddenChains:
        if self.start is not None:
            self._check_lags(self.start)
            if self.start.sizes != tuple(self.n_states):
                raise DataError(f"start has chains {self.start.sizes}, asked for {self.n_states}")
            return self.start
        clock, highest = self._search_clock(), -np.inf
        best = model = self._random(sequences, rng)
        for number in range(self.n_init):
            model = model if number == 0 else self._random(sequences, rng)
            self._memory.beliefs.clear()
            for _ in range(_TRIAL if self.n_init > 1 else 0):
                bound, statistics = self._expectation(model, sequences)
                model = self._maximisation(model, statistics)
            bound = self._expectation(model, sequences)[0] if self.n_init > 1 else 0.0
            if bound > highest:
                best, highest = model, bound
            if clock.expired:
                break
        self._memory.beliefs.clear()
        return best

    def _doubts(self, model: HiddenChains) -> list[str]:
        """Outputs that drift, which few states cannot follow."""
        if self.emission != "gaussian":
            return []
        sizes = " and ".join(map(str, self.n_states))
        return self._drift(f"chains of {sizes} states", "bound on the log-likelihood")

    def _random(self, sequences: Sequences, rng: np.random.Generator) -> HiddenChains:
        sizes = tuple(int(k) for k in self.n_states)
        transitions = []
        for k in sizes:
            p = rng.dirichlet(np.full(k, 5.0), size=k) + 2.0 * np.eye(k)
            transitions.append(p / p.sum(axis=1, keepdims=True))
        starts = tuple(np.full(k, 1.0 / k) for k in sizes)
        emission = self._first(sequences.stacked(), sizes, rng)
        return HiddenChains(starts, tuple(transitions), self._chain_lags(), emission)

    def _first(self, rows: Array, sizes: tuple[int, ...], rng: np.random.Generator) -> Any:
        if self.emission == "categorical":
            highest = np.nanmax(rows)
            if highest != int(highest) or highest < 0:
                raise DataError(f"categories are whole numbers from 0, got {highest:g}")
            table = rng.dirichlet(np.full(int(highest) + 1, 2.0), size=sizes)
            return EmissionTable(table)
        check_complete(rows)
        spread = (
            np.cov(rows.T).reshape(rows.shape[1], -1) if len(rows) > 1 else np.eye(rows.shape[1])
        )
        spread = spread + np.diag(self._floor)
        root = np.linalg.cholesky(spread)
        spread = _SMALL * spread  # noise that explains everything is a fixed point
        outputs = rng.normal(size=(sum(sizes), rows.shape[1])) @ root.T / np.sqrt(len(sizes))
        outputs = outputs + rows.mean(axis=0) / len(sizes)
        structure, _ = covariance_structure(self.covariance_type)
        covariance: Array = np.diag(np.diagonal(spread)) if structure != "full" else spread
        if structure == "isotropic":
            covariance = np.eye(len(spread)) * np.diagonal(spread).mean()
        return AdditiveGaussian(outputs, covariance, structure)

    def _expectation(self, model: HiddenChains, sequences: Sequences) -> tuple[float, Any]:
        count = len(model.sizes)
        total, emission = 0.0, None
        memory = self._memory
        memory.began = dict(memory.beliefs)
        first = [np.zeros(k) for k in model.sizes]
        transitions = [np.zeros((k, k)) for k in model.sizes]
        for number, rows in enumerate(sequences.tables):
            p = mean_field_chains(model, rows)
            before = memory.beliefs.get(str(number))
            if before is not None:  # where the last ones lead may be better: never lower
                again = mean_field_chains(model, rows, beliefs=before)
                p = again if again.log_likelihood > p.log_likelihood else p
            memory.beliefs[str(number)] = p.beliefs
            total += p.log_likelihood
            emission = add(emission, model.emission.statistics(rows, p.beliefs, model.sizes))
            for c in range(count):
                first[c] += p.probabilities[c][: model.lags[c]].sum(axis=0)
                transitions[c] += p.transitions[c]
        return total + self._beside(model), _ChainsStatistics(first, transitions, emission)

    def _beside(self, model: HiddenChains) -> float:
        return log_prior((*model.starts, *model.transitions), self.pseudo_count)

    def _maximisation(self, model: HiddenChains, statistics: Any) -> HiddenChains:
        counts = [*statistics.first, *statistics.transitions]
        before = [*model.starts, *model.transitions]
        tables = [
            learnt_shares(c, old, self.pseudo_count) for c, old in zip(counts, before, strict=True)
        ]
        chains = len(model.sizes)
        return HiddenChains(
            tuple(tables[:chains]),
            tuple(tables[chains:]),
            model.lags,
            model.emission.maximised(statistics.emission, self._floor),
        )

    def _pack(self, model: HiddenChains) -> Array:
        tables = [pack_shares(t) for t in (*model.starts, *model.transitions)]
        return np.concatenate([*tables, model.emission.pack()])

    def _unpack(self, model: HiddenChains, vector: Array) -> HiddenChains:
        tables, at = [], 0
        for old in [*model.starts, *model.transitions]:
            size = int(np.count_nonzero(old))
            tables.append(unpack_shares(old, vector[at : at + size]))
            at += size
        n = len(model.sizes)
        emission = model.emission.unpack(vector[at:])
        return HiddenChains(tuple(tables[:n]), tuple(tables[n:]), model.lags, emission)

    def _gradient(self, model: HiddenChains, statistics: Any) -> Array:
        tables = [*model.starts, *model.transitions]
        counts = [*statistics.first, *statistics.transitions]
        extra = self.pseudo_count
        slopes = [shares_slope(c, t, extra) for c, t in zip(counts, tables, strict=True)]
        return np.concatenate([*slopes, model.emission.gradient(statistics.emission)])

    def _work(self, model: HiddenChains, sequences: Sequences, method: str) -> Any:
        self._memory.repeats = method == "em"
        return super()._work(model, sequences, method)

    def _beside_model(self) -> State:
        return self._memory

    def _read_model(self, arrays: Arrays) -> HiddenChains:
        return HiddenChains.from_arrays(arrays, covariance_structure(self.covariance_type)[0])

    # ------------------------------------------------------------------ asking

    def smooth(self, X: Any, *, method: Method = "mean-field") -> Any:
        """Probabilities of the states of each chain given all rows `X` (time, outputs):
        `ChainsPosterior`, or a list for a list of tables.

        `method` is mean-field (log_likelihood is a lower bound), bp (belief propagation: nearer to
        the truth where outputs are ambiguous, log_likelihood is not a bound) or exact. Where single
        frames leave the states of several chains open together, mean-field is too sure; it warns.
        """
        return self._each(X, _SMOOTHERS[self._checked(method)])

    @staticmethod
    def _checked(method: str) -> str:
        if method not in _SMOOTHERS:
            raise MethodError(f"method is one of {', '.join(_SMOOTHERS)}; got {method!r}")
        return method

    def filter(self, X: Any, *, method: Method = "mean-field") -> Any:
        """Probabilities given the rows of `X` up to each step, projected on independent chains
        after each (exact for one chain or with `method="exact"`).
        """
        if self._checked(method) == "exact":
            return self._each(X, lambda m, rows: exact_chains(m, rows, smooth=False))
        return self._each(X, filter_chains)

    def _each(self, X: Any, infer: Any) -> Any:
        model: HiddenChains = self._model
        sequences = self._sequences(X)
        found = [infer(model, rows) for rows in sequences.tables]
        for text in dict.fromkeys(text for f in found for text in f.warnings):
            warn_caller(text)
        return sequences.answer(found)

    def predict(self, X: Any, *, method: Method = "mean-field") -> Any:
        """The most probable state of each chain at each step, (T, chains), given rows `X`, or a
        list; `method` is that of `smooth`.
        """
        sequences = self._sequences(X)
        infer = _SMOOTHERS[self._checked(method)]
        found = [infer(self._model, rows) for rows in sequences.tables]
        return sequences.answer(
            [np.stack([p.argmax(axis=1) for p in f.probabilities], axis=1) for f in found]
        )

    def _total(self, X: Any) -> float:
        """The lower bound on log p(X)."""
        return total_log_likelihood(self.smooth(X))

    def forecast(self, X: Any, steps: int, *, method: Method = "mean-field") -> Any:
        """States and Gaussian outputs of so many `steps` after the last row of `X`:
        `ChainsForecast`, from the posterior of this `method`.
        """
        check_steps(steps, "forecast")
        sequences = self._sequences(X)
        return sequences.answer([self._ahead(rows, steps, method) for rows in sequences.tables])

    def _ahead(self, rows: Array, steps: int, method: Method = "mean-field") -> ChainsForecast:
        model: HiddenChains = self._model
        if not isinstance(model.emission, AdditiveGaussian):
            raise MethodError("forecasts are of Gaussian outputs")
        p = _SMOOTHERS[self._checked(method)](model, rows)
        return _forecast(model, p.probabilities, steps)

    def _drawn(self, steps: int, rng: np.random.Generator) -> tuple[Ints, Array]:
        """States (steps, chains) and rows."""
        model: HiddenChains = self._model
        states, rows = model.sample(steps, rng)
        return np.stack(states, axis=1), rows


@dataclass(eq=False, repr=False)
class FrameHoppingHMM(FactorialHMM):
    """Hidden chains that may skip frames: chain c moves from frame t - lag_c to frame t.

    A chain with lag l is l ordinary chains that take turns; with all lags 1 this is `FactorialHMM`.

    >>> rng = np.random.default_rng(0)
    >>> beat = np.tile([0, 1, 1, 0], 50)
    >>> X = 2.0 * beat[:, None] + 0.3 * rng.normal(size=(200, 1))
    >>> hopping = FrameHoppingHMM(n_states=(2,), lags=(2,), random_state=0).fit(X)
    >>> bool(hopping.model_.transitions[0].trace() < 0.2)
    True

    Reference: LAW-M10, LAW-I24.
    """

    kind = kinds.HOPPING
    file_kind: ClassVar[str] = "frame-hopping-markov"

    lags: tuple[int, ...] | list[int] = option(
        (1, 2), "Frames that a transition of each chain spans."
    )

    @constructor
    def from_parameters(cls, model: HiddenChains, **options: Any) -> Self:
        """An estimator that holds the parameters of `model`, as if it had been fitted to them;
        `options` are those of the class.
        """
        return super().from_parameters(model, lags=model.lags, **options)

    def _chain_lags(self) -> tuple[int, ...]:
        return tuple(int(lag) for lag in self.lags)

    def _check_options(self) -> None:
        super()._check_options()
        lags = list(self.lags)
        if len(lags) != len(self.n_states) or any(
            not isinstance(lag, int | np.integer) or lag < 1 for lag in lags
        ):
            raise MethodError(
                f"lags {lags} for {len(self.n_states)} chains; give one of at least 1 for each"
            )


def _forecast(model: HiddenChains, probabilities: list[Array], steps: int) -> ChainsForecast:
    emission = model.emission
    assert isinstance(emission, AdditiveGaussian)
    parts, first = [], 0
    mean = np.zeros((steps, emission.n_columns))
    variance = np.tile(np.diagonal(emission.covariance), (steps, 1))
    chains = zip(model.starts, model.transitions, model.lags, probabilities, strict=True)
    for start, transition, lag, p in chains:
        before = list(p[-lag:])
        if len(before) < lag:  # frames before the first one: a chain that has not begun
            before = [None] * (lag - len(before)) + before
        for t in range(steps):
            source = before[t]
            before.append(start if source is None else source @ transition)
        later = np.array(before[lag:])
        out = emission.outputs[first : first + len(start)]
        part = later @ out
        mean += part
        variance += (later[:, :, None] * (out - part[:, None]) ** 2).sum(axis=1)
        parts.append(later)
        first += len(start)
    return ChainsForecast(parts, mean, variance)
