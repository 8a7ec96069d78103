"""`LinearGaussianSSM`: linear Gaussian state spaces as an estimator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.methods import constructor
from kikuchi.core.options import option
from kikuchi.core.seeds import Seed
from kikuchi.temporal import kinds
from kikuchi.temporal.ascent import SeriesAscent
from kikuchi.temporal.base import Fitted, SequenceEstimator, total_log_likelihood
from kikuchi.temporal.gaussian import is_positive
from kikuchi.temporal.sequences import Sequences, read_inputs, read_sequences
from kikuchi.temporal.state_space.coordinates import StateCoordinates, pack, unpack
from kikuchi.temporal.state_space.identification import (
    correlated_errors,
    doubtful_dimensions,
)
from kikuchi.temporal.state_space.inference import (
    filter_states,
    forecast_states,
    sample_states,
    smooth_states,
)
from kikuchi.temporal.state_space.learning import (
    FirstState,
    StateConstraints,
    StateStatistics,
    expected_statistics,
    first_guess,
    flat_height,
    maximise,
)
from kikuchi.temporal.state_space.parameters import StateSpace
from kikuchi.temporal.state_space.results import Forecast
from kikuchi.temporal.state_space.scores import row_scores
from kikuchi.training.checkpoint import Arrays

_NEAR = {"auto": 1e-3, "em": 0.0, "gradient": np.inf}  # gain per row where EM ends

Noise = Literal["full", "diagonal", "isotropic"]


@dataclass(eq=False, repr=False)
class LinearGaussianSSM(SequenceEstimator, Fitted[StateSpace]):
    """Linear Gaussian state space.

    x_t = A x_t-1 + B u_t + b + noise, y_t = C x_t + D u_t + d + noise.

    Learnt by EM and along the gradient of the log-likelihood, from one sequence or several, with
    missing values (NaN) and known inputs. EM is fast at first and slow near a maximum, where L-BFGS
    takes over (`learner="auto"`). `filter` and `smooth` return means, covariances and the
    log-likelihood.

    The unit and the axes of the state are free. With two or more dimensions and one output, the
    share of `output_noise` in the variance of the outputs is free within limits as well: a full
    `state_noise` can take over a part of it without any change of the likelihood or of forecasts.
    A fit warns if its state has more dimensions than the data identify, or if errors of predictions
    one step ahead are correlated in time, as they are where it has too few.

    With `initial="learnt"` the mean of the first state is learnt. Its covariance is learnt too if
    there are more sequences than dimensions of the state. Otherwise it is the covariance that the
    state noise builds up in as many steps as the state has dimensions, unless fixed numbers
    (`fixed` or `patterns` of output, or a fixed state_noise) determine the unit of the state; then
    it is that of `start`. A constant covariance in a free unit would let the density of the first
    row grow without limit.

    Attributes
    ----------
    model_ (the parameters, a `StateSpace`), log_likelihood_, trace_, converged_, stopped_, n_iter_,
    warnings_.

    >>> rng = np.random.default_rng(0)
    >>> level = np.cumsum(0.3 * rng.normal(size=200))
    >>> noisy = level[:, None] + rng.normal(size=(200, 1))
    >>> ssm = LinearGaussianSSM(n_components=1, max_iter=500).fit(noisy)
    >>> smooth = ssm.smooth(level[:, None])
    >>> smooth.mean.shape, smooth.covariance.shape, smooth.pair_covariance.shape
    ((200, 1), (200, 1, 1), (199, 1, 1))
    >>> ssm.forecast(level[:, None], 3).mean.shape
    (3, 1)

    Reference: HOJ-M5, HOJ-M6, HOJ-I6, HOJ-I7.
    """

    kind = kinds.SSM
    file_kind: ClassVar[str] = "state-space"

    n_components: int = option(1, "Dimensions of the state.", low=1)
    _: KW_ONLY
    learner: Literal["auto", "em", "gradient"] = option(
        "auto",
        "How `fit` learns: em, gradient (L-BFGS), or auto: em until it slows down, then gradient.",
    )
    state_noise: Noise = option("full", "Covariance of the state noise: full, diagonal, isotropic.")
    output_noise: Noise = option(
        "diagonal", "Covariance of the output noise: full, diagonal, isotropic."
    )
    initial: Literal["learnt", "fixed", "flat"] = option(
        "learnt", "First state: learnt, fixed (as in start) or flat (no prior knowledge)."
    )
    fixed: tuple[str, ...] | list[str] = option((), "Names of parameters that stay as in start.")
    patterns: Mapping[str, Any] | None = option(
        None, "By name a table: entries with the same label share one value; numbers are fixed."
    )
    start: StateSpace | None = option(None, "Parameters before learning; by default from the data.")
    max_iter: int = option(500, "Maximum number of iterations.", low=1)
    tol: float = option(
        1e-6,
        "The fit has converged when ten iterations gain less log-likelihood per observed row.",
        low=0,
    )
    arithmetic: Literal["auto", "covariance", "information", "square-root"] = option(
        "auto", "Form of the recursions: auto, covariance, information or square-root."
    )

    _rises: ClassVar[bool] = True

    # ------------------------------------------------------------------ making

    @constructor
    def from_parameters(cls, model: StateSpace, **options: Any) -> Self:
        """An estimator that holds the parameters of `model`, as if it had been fitted to them;
        `options` are those of the class.

        >>> walk = StateSpace([[1.0]], [[1.0]], [[0.1]], [[1.0]])
        >>> LinearGaussianSSM.from_parameters(walk).score([[0.0], [1.0]]) < 0
        True
        """
        made = cls(n_components=model.n_states, **options)
        return made._given(model, model.n_outputs)

    def _constraints(self) -> StateConstraints:
        return StateConstraints(
            frozenset(self.fixed), self.patterns, self.state_noise, self.output_noise, self._kind
        )

    def _first_state(self, model: StateSpace, sequences: int) -> FirstState:
        """What is learnt of the first state; its covariance, or the height of a flat prior, follows
        the unit of the state where nothing else determines that unit.
        """
        free = not self._constraints().pins_unit(model)
        if self.initial == "fixed" and (free or self.start is None):
            raise MethodError(
                "initial='fixed' keeps the first state of start, but learning may change its unit; "
                "give start and fixed=['output'] or fixed=['state_noise'], or use initial='learnt'"
            )
        if self.initial == "fixed":
            return "fixed"
        if self.initial == "learnt" and "initial_covariance" in self.fixed:
            return "mean"
        if self.initial == "learnt" and sequences > self.n_components:
            return "free"
        return "noise" if free and is_positive(model.state_noise) else "mean"

    # ------------------------------------------------------------------ learning

    def fit(self, X: Any, y: object = None, *, inputs: Any = None) -> Self:
        """Learn by `learner` from outputs `X` (time, outputs), or a list of such tables; NaN is
        missing and `y` is ignored.

        `inputs` are known inputs (time, inputs), as many tables as X.
        """
        return self._learn(X, inputs, self.learner)

    def fit_em(self, X: Any, *, inputs: Any = None) -> Self:
        """Learn from `X` and `inputs`, as `fit` takes them, by expectation maximisation."""
        return self._learn(X, inputs, "em")

    def fit_gradient(self, X: Any, *, inputs: Any = None) -> Self:
        """Learn from `X` and `inputs`, as `fit` takes them, by L-BFGS along the gradient of the
        log-likelihood.
        """
        return self._learn(X, inputs, "gradient")

    def _learn(self, X: Any, inputs: Any, method: str) -> Self:
        self._check_options()
        sequences = self._sequences(X, reset=True)
        count = 0
        if inputs is not None:
            count = read_sequences([inputs] if sequences.single else inputs, "inputs").width
        self._outputs, self._inputs = sequences.tables, read_inputs(inputs, sequences, count)
        beside = np.concatenate([u.ravel() for u in self._inputs])
        self._kind: FirstState = "mean"
        try:
            return self._fit(sequences, method, beside)
        finally:
            del self._outputs, self._inputs, self._kind

    def _beside(self, model: StateSpace) -> float:
        """The height of a flat prior that follows the unit of the state."""
        follows = model.is_flat and self._kind == "noise"
        return len(self._inputs) * flat_height(model) if follows else 0.0

    def _doubts(self, model: StateSpace) -> list[str]:
        """A flat prior lets the likelihood grow without limit where the outputs lose sight of the
        first state; other free models may have more dimensions than the rows identify.
        """
        constraints = self._constraints()
        free = [(constraints.free(model, (n,))[0] >= 0) for n in ("transition", "output")]
        if model.is_flat and any(entries.any() for entries in free):
            return [
                "with initial='flat' the likelihood has no maximum if transition or output are "
                "learnt: these parameters may be far from the data's; use initial='learnt', or "
                "give start and fixed=['transition', 'output']"
            ]
        if model.varying or not all(entries.all() for entries in free):
            return []
        doubts = doubtful_dimensions(model, self._outputs, self._inputs)
        if not self.converged_:  # more iterations may mend it
            return doubts
        return doubts + correlated_errors(model, self._outputs, self._inputs, more=not doubts)

    def _begin(self, sequences: Sequences, rng: np.random.Generator) -> StateSpace:
        k = self._inputs[0].shape[1]
        model = self.start
        if model is None:
            if self.fixed:
                raise MethodError(f"fixed={list(self.fixed)} needs start, the values to keep")
            model = first_guess(sequences, self._inputs, self.n_components, rng)
        elif (model.n_states, model.n_outputs, model.n_inputs) != (
            self.n_components, sequences.width, k
        ):  # fmt: skip
            raise DataError(
                f"start has {model.n_states} states, {model.n_outputs} outputs and "
                f"{model.n_inputs} inputs; asked for are "
                f"{self.n_components}, {sequences.width} and {k}"
            )
        self._constraints().check(model.n_states, model.n_outputs, k)
        if self.initial == "flat":
            model = model.updated(initial_covariance=None)
        self._kind = self._first_state(model, len(sequences.tables))
        constraints = self._constraints()
        if constraints.learns(model, "initial_covariance") and not is_positive(
            model.initial_covariance
        ):
            raise MethodError(
                "the initial_covariance of start is singular and cannot be learnt; give a regular "
                "one, or fixed=['initial_covariance']"
            )
        return unpack(model, pack(_shaped(model, constraints), constraints), constraints)

    def _expectation(
        self, model: StateSpace, sequences: Sequences
    ) -> tuple[float, StateStatistics]:
        value, statistics = expected_statistics(model, sequences, self._inputs, self.arithmetic)
        return value + self._beside(model), statistics

    def _maximisation(self, model: StateSpace, statistics: StateStatistics) -> StateSpace:
        return maximise(model, statistics, self._constraints())

    def _work(
        self, model: StateSpace, sequences: Sequences, method: str
    ) -> SeriesAscent[StateSpace]:
        constraints = self._constraints()

        def coordinates(origin: StateSpace, statistics: StateStatistics) -> StateCoordinates:
            return StateCoordinates(origin, statistics, constraints)

        return SeriesAscent(self._em(model, sequences), coordinates, _NEAR[method], self.tol)

    def _read_model(self, arrays: Arrays) -> StateSpace:
        return StateSpace.from_arrays(arrays)

    # ------------------------------------------------------------------ asking

    def filter(
        self, X: Any, *, inputs: Any = None, steady: bool = True, threads: int = 1
    ) -> Any:  # fmt: skip
        """States given the outputs `X` (time, outputs) up to each step, and known `inputs` (time,
        inputs): `FilteredStates`, or a list for a list.

        `steady` computes means only, once the covariance stays the same. `threads` work on blocks
        of time side by side, where it does not.
        """
        return self._each(filter_states, X, inputs, steady=steady, threads=threads)

    def smooth(
        self, X: Any, *, inputs: Any = None, steady: bool = True, threads: int = 1
    ) -> Any:  # fmt: skip
        """States given all outputs `X`: `SmoothedStates`, or a list for a list; `inputs`, `steady`
        and `threads` are those of `filter`.
        """
        return self._each(smooth_states, X, inputs, steady=steady, threads=threads)

    def _each(self, infer: Any, X: Any, inputs: Any, **options: Any) -> Any:
        model: StateSpace = self._model
        sequences = self._sequences(X)
        every = read_inputs(inputs, sequences, model.n_inputs)
        return sequences.answer(
            [
                infer(
                    model, y, u if model.n_inputs else None, arithmetic=self.arithmetic, **options
                )
                for y, u in zip(sequences.tables, every, strict=True)
            ]
        )

    def score_samples(self, X: Any, *, inputs: Any = None) -> Any:
        """Return the log density of each row of `X` given the rows before it and `inputs`, or a
        list of such arrays for a list of tables. The sum is the log-likelihood.
        """
        model: StateSpace = self._model
        sequences = self._sequences(X)
        every = read_inputs(inputs, sequences, model.n_inputs)
        return sequences.answer(
            [
                row_scores(model, y, u if model.n_inputs else None, arithmetic=self.arithmetic)
                for y, u in zip(sequences.tables, every, strict=True)
            ]
        )

    def score(self, X: Any, y: object = None, *, inputs: Any = None) -> float:
        """Return the log-likelihood per row of `X` given `inputs`, the mean of `score_samples`;
        with a flat prior that of height 1. `y` is ignored.
        """
        return total_log_likelihood(self.filter(X, inputs=inputs)) / self._sequences(X).rows

    def forecast(self, X: Any, steps: int, *, inputs: Any = None) -> Forecast | list[Forecast]:
        """Outputs and states of so many `steps` after the last row of `X`.

        `inputs` has `steps` more rows than X. Dynamics that explode until then are refused.
        """
        model: StateSpace = self._model
        sequences = self._sequences(X)
        every = read_inputs(inputs, sequences, model.n_inputs, steps)
        answers = []
        for y, u in zip(sequences.tables, every, strict=True):
            known = u[: len(y)] if model.n_inputs else None
            f = filter_states(model, y, known, arithmetic=self.arithmetic)
            if not f.proper[-1]:
                raise DataError(f"{len(y)} rows do not determine the state yet; give more")
            later = u[len(y) :] if model.n_inputs else None
            answers.append(forecast_states(model, *f.last, steps, later))
        answer: Forecast | list[Forecast] = sequences.answer(answers)
        return answer

    def sample(
        self, n_samples: int = 1, *, inputs: Any = None, random_state: Seed = None,
        return_latents: bool = False,
    ) -> Any:  # fmt: skip
        """Draw one sequence of `n_samples` rows from the model.

        Parameters
        ----------
        n_samples : length of the sequence.
        inputs : known inputs (n_samples, inputs), for models that have them.
        random_state : seed of the draws.
        return_latents : whether to return the latent states as well.

        Returns
        -------
        Rows (n_samples, outputs); with `return_latents` the pair (rows, latents), latents
        (n_samples, n_components).
        """
        states, rows = sample_states(self._model, n_samples, random_state, inputs)
        return (rows, states) if return_latents else rows

    def _drawn(self, steps: int, rng: np.random.Generator) -> tuple[Array, Array]:
        return sample_states(self._model, steps, rng)

    def gain(self) -> Array:
        """The Kalman gain (n, m) that constant dynamics tend to, by the filter itself.

        Reference: HOJ-I6.
        """
        model: StateSpace = self._model
        f = filter_states(
            model.updated(initial_covariance=np.eye(model.n_states)),
            np.zeros((2000, model.n_outputs)),
            np.zeros((2000, model.n_inputs)),
        )
        return np.asarray(f.last[1] @ model.output.T @ np.linalg.pinv(model.output_noise))


def _shaped(model: StateSpace, constraints: StateConstraints) -> StateSpace:
    """The model with noise of the structures asked for, as a beginning."""
    changes = {}
    for name in ("state_noise", "output_noise"):
        if name in constraints.fixed | constraints.held(model):
            continue
        noise = np.array(getattr(model, name))
        if getattr(constraints, name) != "full":
            noise = np.diag(np.diagonal(noise))
        if getattr(constraints, name) == "isotropic":
            noise = np.eye(len(noise)) * np.diagonal(noise).mean()
        changes[name] = noise
    return model.updated(**changes)
