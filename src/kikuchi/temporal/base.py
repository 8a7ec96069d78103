"""`SequenceEstimator`: the shell of models of sequences that are learnt by EM or along a gradient.

A family gives the model before learning, one step of expectation and one of maximisation, and the
model as plain arrays; budget, Ctrl-C, checkpoints, traces and files are here.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, Self

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget
from kikuchi.core.errors import DataError, ModelError, UnavailableError
from kikuchi.core.interrupts import safe_interrupts
from kikuchi.core.log import warn_caller
from kikuchi.core.methods import constructor
from kikuchi.core.options import option
from kikuchi.core.run import Run
from kikuchi.core.seeds import Seed, generator
from kikuchi.engines.loops.em import Model
from kikuchi.engines.loops.iterate import iterate
from kikuchi.engines.loops.state import Held, Part
from kikuchi.temporal.ascent import GradientAscent, SeriesEM
from kikuchi.temporal.sequences import (
    Sequences,
    check_columns,
    check_names,
    check_steps,
    check_width,
    checked_lengths,
    column_names,
    random_walk_likelihood,
    read_sequences,
)
from kikuchi.training.available import available_unless
from kikuchi.training.checkpoint import Arrays, part, prefixed
from kikuchi.training.estimator import Estimator, check_is_fitted
from kikuchi.training.resuming import fit_store
from kikuchi.training.trainer import TrainingTrace

_RESIDUAL = "change of the objective per row"
_NO_ROW_SCORES = (
    "{} gives the likelihood of whole sequences only, as a bound or an approximation; use score, "
    "or the log_likelihood of the result of smooth"
)


class Fitted(Generic[Model]):
    """What a fit leaves behind; annotations of a dataclass would be options."""

    model_: Model
    log_likelihood_: float


@dataclass(eq=False, repr=False, kw_only=True)
class SequenceEstimator(Estimator):
    """Base of the estimators of sequences; the learnt parameters are in `model_`."""

    max_iter: int = option(200, "Largest number of iterations.", low=1)
    tol: float = option(
        1e-6,
        "The fit has converged when an iteration changes the log-likelihood per row by less.",
        low=0,
    )

    # ------------------------------------------------------------------ for the families

    _rises: ClassVar[bool] = False  # whether EM is exact, so that its objective never falls

    @abstractmethod
    def _begin(self, sequences: Sequences, rng: np.random.Generator) -> Any:
        """The model before learning."""

    @abstractmethod
    def _expectation(self, model: Any, sequences: Sequences) -> tuple[float, Any]:
        """What is maximised, and the statistics that maximisation needs: the log-likelihood (or a
        bound on it) and `_beside`.
        """

    @abstractmethod
    def _maximisation(self, model: Any, statistics: Any) -> Any:
        """The model that maximises the expected log-likelihood."""

    @abstractmethod
    def _read_model(self, arrays: Arrays) -> Any:
        """The model of its arrays."""

    def _pack(self, model: Any) -> Array:
        """Free parameters of a model as one unconstrained vector."""
        raise NotImplementedError

    def _unpack(self, model: Any, vector: Array) -> Any:
        """The model with other free parameters."""
        raise NotImplementedError

    def _gradient(self, model: Any, statistics: Any) -> Array:
        """Gradient of the log-likelihood along the free parameters, from the statistics."""
        raise NotImplementedError

    def _beside(self, model: Any) -> float:
        """What is maximised beside the log-likelihood, such as the logarithm of a prior."""
        return 0.0

    def _doubts(self, model: Any) -> list[str]:
        """Reasons not to rely on the parameters of a fit, however it ended; each is a warning."""
        return []

    def _beside_model(self) -> Part | None:
        """What expectations and maximisations depend on beside the model."""
        return None

    @property
    def _model(self) -> Any:
        check_is_fitted(self, "model_")
        return self.model_

    def _sequences(self, X: Any, *, reset: bool = False, lengths: Any = None) -> Sequences:
        """X as tables, checked; `reset` when a fit begins, else there must have been one."""
        if not reset:
            check_is_fitted(self, "model_")
        sequences, names = read_sequences(X).split(lengths), column_names(X)
        if reset:
            if sequences.rows < 2:
                raise DataError("at least 2 rows are needed, got 1 sample")
            check_columns(sequences)
            self.n_features_in_ = sequences.width
            self.__dict__.pop("feature_names_in_", None)  # those of an earlier fit
            if names is not None:
                self.feature_names_in_ = np.array(names, dtype=object)
        else:
            check_width(sequences, self.n_features_in_, type(self).__name__)
            check_names(names, getattr(self, "feature_names_in_", names or []))
        return sequences

    def _given(self, model: Any, columns: int) -> Self:
        """Hold a model as if it had been fitted to sequences of so many columns."""
        self.model_, self.n_features_in_ = model, columns
        self.log_likelihood_ = math.nan
        self._ended(0, "given", True, [], self._sequence_run("log-likelihood").trace)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    # ------------------------------------------------------------------ learning

    def _fit(self, sequences: Sequences, method: str, beside: Array | None = None) -> Self:
        self._iterate(sequences, method, beside)
        for text in self._doubts(self.model_):
            warn_caller(f"{type(self).__name__}: {text}")
        return self

    @safe_interrupts()
    def _iterate(self, sequences: Sequences, method: str, beside: Array | None) -> None:
        self._check_options()
        rng = generator(self.random_state)
        model = self._begin(sequences, rng)
        stacked = sequences.stacked()
        lengths = np.array([len(t) for t in sequences.tables], dtype=np.float64)
        rows = np.concatenate([stacked.ravel(), lengths, np.zeros(0) if beside is None else beside])
        run = self._sequence_run("log-likelihood")
        work = self._work(model, sequences, method)
        ended = iterate(
            type(work).step, work, run, tol=self.tol, limit=self.max_iter,
            store=fit_store(self, rows),
        )  # fmt: skip
        self._conclude(work.now, run, ended.iterations, ended.converged, work.failure)
        self.log_likelihood_ -= self._beside(work.now)

    def _sequence_run(self, name: str) -> Run:
        trace = TrainingTrace()
        trace.objective_name, trace.residual_name = name, _RESIDUAL
        return Run(Budget(seconds=self.seconds).start(), self._progress_callback(), trace)

    def _work(self, model: Any, sequences: Sequences, method: str) -> Any:
        """What learns from a model on: a state with `step`, `now` and `failure`."""
        if method == "em":
            return self._em(model, sequences)
        count = sequences.observed

        def objective(vector: Array) -> tuple[float, Array]:
            try:
                current = self._unpack(model, vector)
                value, statistics = self._expectation(current, sequences)
            except (ValueError, np.linalg.LinAlgError):  # outside the domain: the search steps back
                return math.inf, np.zeros_like(vector)
            return -value / count, -self._gradient(current, statistics) / count

        def unpack(vector: Array) -> Any:
            return self._unpack(model, vector)

        beside = self._beside_model()
        return GradientAscent(objective, self._pack(model), count, self.tol, unpack, beside)

    def _em(self, model: Any, sequences: Sequences) -> SeriesEM[Any]:
        em = SeriesEM(
            Held(model, self._read_model),
            lambda m: self._expectation(m, sequences),
            self._maximisation,
            beside=self._beside_model(),
            rows=sequences.observed,
        )
        em.rises = self._rises
        return em

    def _conclude(
        self, model: Any, run: Run, done: int, converged: bool, failure: str = ""
    ) -> None:
        if not done and failure:
            raise ModelError(f"the fit cannot begin: {failure}; give another start")
        if not done:
            raise KeyboardInterrupt
        self.model_ = model
        self.log_likelihood_ = float(run.trace.objective[-1])
        self.converged_ = converged
        remarks = []
        stopped = "converged" if converged else run.stopped
        if not converged:
            ends = {
                "iterations": f"not converged after {done} iterations (the log-likelihood per row "
                f"still changes by {run.trace.residual[-1]:.2g}, tol {self.tol:g}); raise max_iter",
                "seconds": "the time limit ended the fit before it converged",
                "interrupted": "the fit was interrupted; this is the best so far",
                "diverged": f"iteration {done + 1} failed; these are the parameters before it. "
                f"Reason: {failure or 'the log-likelihood is not finite'}",
            }
            remarks.append(ends.get(stopped, stopped))
        remarks += self._doubts(model)
        self._ended(done, stopped, converged, remarks, run.trace)

    # ------------------------------------------------------------------ drawing

    def sample(
        self, n_samples: int = 1, *, random_state: Seed = None, return_latents: bool = False
    ) -> Any:
        """Draw one sequence of `n_samples` rows from the model.

        Parameters
        ----------
        n_samples : length of the sequence.
        random_state : seed of the draws.
        return_latents : whether to return the latent states as well.

        Returns
        -------
        Rows (n_samples, outputs); with `return_latents` the pair (rows, latents), with a row of
        latents or the number of a state for each row.
        """
        check_steps(n_samples, "sample")
        latents, rows = self._drawn(n_samples, generator(random_state))
        return (rows, latents) if return_latents else rows

    @abstractmethod
    def _drawn(self, steps: int, rng: np.random.Generator) -> tuple[Any, Array]:
        """Latents and rows of a sequence of so many steps."""

    # ------------------------------------------------------------------ files

    def _fitted_state(self) -> tuple[Arrays, dict[str, Any], dict[str, Any]]:
        arrays = prefixed(self._model.to_arrays(), "model")
        return arrays, {}, {"log_likelihood": self.log_likelihood_}

    def _restore_state(
        self, arrays: Arrays, facts: Mapping[str, Any], about: Mapping[str, Any]
    ) -> None:
        self.model_ = self._read_model(part(arrays, "model"))
        value = about["log_likelihood"]
        if not isinstance(value, float):
            raise DataError(f"its log_likelihood is {value!r}")
        self.log_likelihood_ = value
        self.trace_.residual_name = _RESIDUAL


def _without_row_scores(estimator: RowsEstimator) -> str | None:
    """Return why an estimator has no log density of single rows; None if it has one."""
    if type(estimator)._row_scores is not RowsEstimator._row_scores:
        return None
    return _NO_ROW_SCORES.format(type(estimator).__name__)


@dataclass(eq=False, repr=False, kw_only=True)
class RowsEstimator(SequenceEstimator):
    """Base of the estimators that learn from outputs alone, by EM or along the gradient."""

    learner: Literal["em", "gradient"] = option("em", "How `fit` learns: em or gradient.")

    def fit(self, X: Any, y: object = None, *, lengths: Any = None) -> Self:
        """Learn by `learner` from sequences.

        Parameters
        ----------
        X : rows (time, outputs) of one sequence, or a list of such tables.
        y : ignored; lengths of sequences are refused there.
        lengths : lengths of the sequences that stand one after the other in the table `X`.
        """
        _refuse_lengths(X, y)
        return self._learn(_tables(X, lengths), self.learner)

    def fit_em(self, X: Any) -> Self:
        """Learn from rows `X`, as `fit` takes them, by expectation maximisation of the
        log-likelihood, or of the bound on it.
        """
        return self._learn(X, "em")

    def fit_gradient(self, X: Any) -> Self:
        """Learn from rows `X`, as `fit` takes them, by L-BFGS along the gradient of the
        log-likelihood, or of the bound on it.
        """
        return self._learn(X, "gradient")

    def _learn(self, X: Any, method: str) -> Self:
        self._check_options()
        return self._fit(self._sequences(X, reset=True), method)

    @available_unless(_without_row_scores)
    def score_samples(self, X: Any, lengths: Any = None) -> Any:
        """Return the log density of each row of `X` given the rows before it, or a list of such
        arrays for a list of tables; `lengths` are those of sequences in one table. The sum is the
        log-likelihood.
        """
        sequences = self._sequences(X, lengths=lengths)
        return sequences.answer([self._row_scores(rows) for rows in sequences.tables])

    def _row_scores(self, rows: Array) -> Array:
        """Log density of each row of a sequence given those before it."""
        raise UnavailableError(_NO_ROW_SCORES.format(type(self).__name__))

    def score(self, X: Any, y: object = None, *, lengths: Any = None) -> float:
        """Return the log-likelihood per row of `X`, the mean of `score_samples`; where only a bound
        or an approximation is known, that per row. `lengths` are those of sequences in one table;
        `y` is ignored, but lengths are refused there.
        """
        _refuse_lengths(X, y)
        tables = _tables(X, lengths)
        return self._total(tables) / self._sequences(tables).rows

    def _total(self, X: Any) -> float:
        """What is known of log p(X), summed over sequences."""
        return total_log_likelihood(self.filter(X))

    def forecast(self, X: Any, steps: int) -> Any:
        """So many `steps` after the last row of `X`: states and outputs, or a list for a list."""
        check_steps(steps, "forecast")
        sequences = self._sequences(X)
        return sequences.answer([self._ahead(rows, steps) for rows in sequences.tables])

    @abstractmethod
    def filter(self, X: Any) -> Any:
        """What is hidden, given the rows of `X` up to each step."""

    @abstractmethod
    def _ahead(self, rows: Array, steps: int) -> Any:
        """The forecast of one sequence."""


def _tables(X: Any, lengths: Any) -> Any:
    """The table `X` as a list of sequences of these lengths; as it is without lengths."""
    if lengths is None:
        return X
    ends = np.cumsum(checked_lengths(lengths, len(X)))[:-1]
    if hasattr(X, "iloc"):
        return [X.iloc[first:last] for first, last in itertools.pairwise([0, *ends, len(X)])]
    return np.split(np.asarray(X), ends)


def _refuse_lengths(X: Any, y: object) -> None:
    """Lengths of the sequences in one table, as hmmlearn takes them, would be ignored as `y`."""
    if y is None or isinstance(X, list | tuple):
        return
    lengths, rows = np.atleast_1d(np.asarray(y)), len(X)
    whole = lengths.dtype.kind in "iu" and lengths.ndim == 1
    if whole and len(lengths) < rows == int(lengths.sum()):
        raise DataError(
            f"{len(lengths)} lengths of sequences beside {rows} rows; give them by name: "
            "fit(X, lengths=lengths)"
        )


@dataclass(eq=False, repr=False, kw_only=True)
class ChainEstimator(RowsEstimator):
    """Base of the hidden chains with emissions."""

    pseudo_count: float = option(
        0.0, "Added to each expected number of starts and transitions not fixed at 0.", low=0
    )

    @constructor
    def from_parameters(cls, model: Any, **options: Any) -> Self:
        """An estimator that holds the parameters of `model`, as if it had been fitted to them;
        `options` are those of the class.
        """
        made = cls(cls._size(model), emission=model.emission.kind, **options)
        return made._given(model, model.emission.n_columns)

    @staticmethod
    @abstractmethod
    def _size(model: Any) -> Any:
        """The first option: states of the chain, or of each chain."""

    def _fit(self, sequences: Sequences, method: str, beside: Array | None = None) -> Self:
        self._walk = random_walk_likelihood(sequences.tables)
        try:
            return super()._fit(sequences, method, beside)
        finally:
            del self._walk

    def _drift(self, states: str, objective: str = "log-likelihood") -> list[str]:
        """A doubt if a random walk is likelier than this fit to Gaussian outputs."""
        if self.pseudo_count or not self.log_likelihood_ < self._walk:
            return []
        return [
            f"the {objective} is {self.log_likelihood_:.1f}, that of a random walk "
            f"{self._walk:.1f}: {states} do not follow how outputs drift; use "
            "LinearGaussianSSM, more states, or fit the changes from row to row"
        ]


def total_log_likelihood(found: Any) -> float:
    """Sum of the log-likelihoods of the answers to one sequence or to a list of them."""
    return float(sum(f.log_likelihood for f in (found if isinstance(found, list) else [found])))
