"""`ProbitFilter`, on-line classification with uncertainty, and `MomentSSM`, any scalar outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from scipy.special import ndtr
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.options import option
from kikuchi.core.seeds import Seed, generator
from kikuchi.engines.sites.kernels.half_line import probit_gain
from kikuchi.temporal import kinds
from kikuchi.temporal.kernels.moments import probit_pass, probit_refit
from kikuchi.temporal.moments.emissions import EMISSIONS, ScalarEmission
from kikuchi.temporal.moments.inference import (
    MomentStates,
    expectation_propagation,
    moment_filter,
)
from kikuchi.temporal.sequences import read_sequences
from kikuchi.temporal.state_space.inference import forecast_states, sample_states
from kikuchi.temporal.state_space.parameters import StateSpace
from kikuchi.temporal.state_space.results import Forecast
from kikuchi.training.checkpoint import Arrays, read_labels
from kikuchi.training.estimator import Estimator, check_is_fitted, validate_data
from kikuchi.training.trainer import TrainingTrace

_MOST_PASSES = 100  # of `fit`, where none are asked for
_CLOSE = 1e-8  # change of a linear predictor in standard deviations that counts as none


def probit_gains(kappa: Any) -> tuple[Array, Array]:
    """Gains of mean and covariance of the probit filter: r = D / Phi and H = (kappa + r) r.

    Surprising labels (kappa far below 0) move the state most, unsurprising ones hardly.

    `kappa` is the margin of the label in standard deviations.

    >>> [round(float(g), 6) for g in probit_gains(0.0)]
    [0.797885, 0.63662]

    Reference: HOJ-E10, HOJ-I23.
    """
    points = np.asarray(kappa, dtype=np.float64)
    found = [probit_gain(k)[:2] for k in points.ravel().tolist()]
    r, h = np.array(found).reshape(-1, 2).T
    return r.reshape(points.shape), h.reshape(points.shape)


class _ProbitFit:
    classes_: np.ndarray
    mean_: Array
    covariance_: Array
    log_evidence_: float
    evidence_kind_: str
    n_seen_: int
    predicted_: Array


@dataclass(eq=False, repr=False)
class ProbitFilter(ClassifierMixin, Estimator, _ProbitFit):  # type: ignore[misc]
    """On-line probit classification: weights with a Gaussian posterior that may drift.

    p(label 1 | x) = Phi(w' x). Each label updates mean and covariance of the weights by their exact
    moments (assumed-density filtering); between labels the weights walk by N(0, drift I), so that
    old labels are forgotten. `partial_fit` is one pass in the order of the rows, for labels that
    come and go. `fit` has all labels at hand: unless the weights drift, it goes on with passes that
    take each label out and put it in again, which is expectation propagation, until nothing
    changes. Its answer and evidence do not depend on the order.

    Attributes
    ----------
    mean_, covariance_ (of the weights; the last is the intercept), log_evidence_ (of all labels so
    far), evidence_kind_, classes_, n_seen_, predicted_ (probability of the second class for each
    row of the last call, before its label was seen).

    evidence_kind_ says what log_evidence_ is worth. "expectation propagation": its estimate of the
    log-probability of the labels. "one pass": the sum of the logarithms of the predictions, each
    made before its label was seen. That is a fair score of
    the filter itself, but as evidence it depends on the order of the labels and is too low by nats
    under wide priors (with 8 weights: 0.2, 1 and 5 nats at prior variances 0.1, 1 and 10), so
    that priors and drifts should not be compared by it where they differ by less.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> y = np.where(X[:, 0] - X[:, 1] > 0, 1, -1)
    >>> clf = ProbitFilter(drift=1e-3).partial_fit(X, y)
    >>> bool(clf.score(X, y) > 0.95)
    True

    Reference: HOJ-M13, HOJ-I23.
    """

    kind = kinds.PROBIT
    file_kind: ClassVar[str] = "probit-filter"

    drift: float = option(0.0, "Variance of the steps of each weight between labels.", low=0)
    _: KW_ONLY
    prior: float = option(10.0, "Variance of each weight before the first label.", above=0)
    intercept: bool = option(True, "Also learn a constant.")
    max_iter: int | None = option(
        None, "Passes of fit; those after the first refit each label's Gaussian (drift 0). "
        "By default until nothing changes; 1 with drift.", low=1,
    )  # fmt: skip

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows `X` and labels `y` of two classes, from the prior."""
        self._check_options()
        for name in ("mean_", "covariance_", "classes_"):
            if hasattr(self, name):
                delattr(self, name)
        most = self.max_iter or (1 if self.drift > 0 else _MOST_PASSES)
        if most > 1 and self.drift > 0:
            raise MethodError("max_iter > 1 is for weights that stand still; give drift=0")
        self._pass(X, y, None, reset=True)
        return self._refit(X, y, most) if most > 1 else self

    def _refit(self, X: Any, y: Any, most: int) -> Self:
        """Expectation propagation: passes that take each label out and put it in again."""
        rows, labels = validate_data(self, X, y, reset=False, dtype=np.float64)
        design = self._design(rows)
        signs = np.where(labels == self.classes_[-1], 1.0, -1.0)
        n = design.shape[1]
        sites, masses = np.zeros((len(rows), 2)), np.zeros(len(rows))
        self.mean_, self.covariance_ = np.zeros(n), self.prior * np.eye(n)
        trace, change = TrainingTrace(), math.inf
        for number in range(1, most + 1):
            change = float(probit_refit(design, signs, sites, self.mean_, self.covariance_, masses))
            trace.record(number, residual=change)
            if change <= _CLOSE:
                break
        log_det = float(np.linalg.slogdet(self.covariance_ / self.prior)[1])
        square = float(self.mean_ @ np.linalg.solve(self.covariance_, self.mean_))
        self.log_evidence_ = 0.5 * (log_det + square) + float(masses.sum())
        self.evidence_kind_ = "expectation propagation"
        converged, remarks = change <= _CLOSE, []
        if not converged and self.max_iter is None:
            remarks = [
                f"weights still change by {change:.1g} standard deviations after {most} passes"
            ]
        self._ended(
            self.n_seen_, "converged" if converged else "iterations", converged, remarks, trace
        )
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Go on with more rows `X` and labels `y`; `classes` names both if the first rows have only
        one.
        """
        self._check_options()
        return self._pass(X, y, classes, reset=not hasattr(self, "mean_"))

    def _pass(self, X: Any, y: Any, classes: Any, *, reset: bool) -> Self:
        rows, labels = validate_data(self, X, y, reset=reset, dtype=np.float64)
        try:
            check_classification_targets(labels)
        except ValueError as error:
            raise DataError(str(error)) from None
        if reset:
            self._begin(labels, classes)
        known = np.isin(labels, self.classes_)
        if not known.all():
            raise DataError(
                f"label {labels[~known][0]!r} is none of the two, {self.classes_.tolist()}"
            )
        signs = np.where(labels == self.classes_[-1], 1.0, -1.0)
        chances = np.empty(len(rows))
        self.log_evidence_ += float(
            probit_pass(
                self._design(rows), signs, self.drift, self.mean_, self.covariance_, chances
            )
        )
        self.n_seen_ += len(rows)
        self.predicted_, self.evidence_kind_ = chances, "one pass"
        self._ended(self.n_seen_, "rows", True, [], TrainingTrace())
        return self

    def _begin(self, labels: np.ndarray, classes: Any) -> None:
        found = np.unique(labels if classes is None else classes)
        if len(found) > 2:
            kind = type_of_target(labels, input_name="y", raise_unknown=True)
            raise DataError(
                f"Only binary classification is supported. The type of the target is {kind}; there "
                f"are {len(found)} classes"
            )
        if len(found) < 2:
            if set(found.tolist()) <= {-1, 1}:
                found = np.array([-1, 1])
            else:
                raise DataError(
                    f"all labels are {found[0]!r}, there is 1 class; name both: "
                    "partial_fit(X, y, classes=[...])"
                )
        self.classes_ = found
        n = self.n_features_in_ + self.intercept
        self.mean_, self.covariance_ = np.zeros(n), self.prior * np.eye(n)
        self.log_evidence_, self.n_seen_ = 0.0, 0

    def _design(self, rows: Array) -> Array:
        columns = [rows, np.ones((len(rows), 1))] if self.intercept else [rows]
        return np.ascontiguousarray(np.hstack(columns))

    def decision_function(self, X: Any) -> Array:
        """Mean of the linear predictor of each row of `X` over its standard deviation with the
        noise: the label is the second class with the probability Phi of it.
        """
        check_is_fitted(self, "mean_")
        design = self._design(validate_data(self, X, reset=False, dtype=np.float64))
        variance = np.einsum("ti,ij,tj->t", design, self.covariance_, design)
        return np.asarray(design @ self.mean_ / np.sqrt(1.0 + variance))

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of both classes for each row of `X`, the uncertainty of the weights
        included.
        """
        p = np.asarray(ndtr(self.decision_function(X)))
        return np.stack([1.0 - p, p], axis=1)

    def predict(self, X: Any) -> np.ndarray:
        """The more probable class of each row of `X`."""
        check_is_fitted(self, "mean_")
        return np.asarray(self.classes_[(self.decision_function(X) > 0).astype(int)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    # ------------------------------------------------------------------ files

    def _fitted_state(self) -> tuple[Arrays, dict[str, Any], dict[str, Any]]:
        arrays = {
            "mean": self.mean_, "covariance": self.covariance_, "predicted": self.predicted_,
        }  # fmt: skip
        about = {
            "classes": self.classes_.tolist(), "log_evidence": self.log_evidence_,
            "seen": self.n_seen_, "evidence_kind": self.evidence_kind_,
        }  # fmt: skip
        return arrays, {}, about

    def _restore_state(
        self, arrays: Arrays, facts: Mapping[str, Any], about: Mapping[str, Any]
    ) -> None:
        self.mean_, self.covariance_ = np.array(arrays["mean"]), np.array(arrays["covariance"])
        if "predicted" in arrays:  # files of version 0.1.0 lack it
            self.predicted_ = np.array(arrays["predicted"])
        self.classes_ = read_labels(about, "classes")
        self.log_evidence_, self.n_seen_ = float(about["log_evidence"]), int(about["seen"])
        self.evidence_kind_ = str(about.get("evidence_kind", "one pass"))
        if len(self.classes_) != 2 or self.covariance_.shape != (len(self.mean_),) * 2:
            raise DataError("its arrays do not fit together")


class MomentSSM:
    """Linear Gaussian dynamics whose scalar outputs are labels, counts, outliers or intervals.

    Parameters
    ----------
    model : dynamics, prior, and the row and offset of the linear predictor, a `StateSpace` of one
        output (its output_noise is not used)
    emission : probit, logistic, poisson, student or quantised with options as text, such as
        "student:dof=3,scale=0.2", or an object

    >>> walk = StateSpace([[1.0]], [[1.0]], [[0.05]], [[0.0]], initial_covariance=[[1.0]])
    >>> counts = MomentSSM(walk, "poisson")
    >>> y = counts.sample(50, random_state=0)
    >>> s = counts.smooth(y)
    >>> s.mean.shape, s.converged
    ((50, 1), True)

    Reference: HOJ-I22, HOJ-M13.
    """

    def __init__(self, model: StateSpace, emission: str | ScalarEmission = "probit") -> None:
        self.model = model
        self.emission: ScalarEmission = EMISSIONS.parse(emission)

    def _columns(self, X: Any) -> Any:
        sequences = read_sequences(X)
        if sequences.width != 1:
            raise DataError(f"outputs are one column, there are {sequences.width}")
        return sequences

    def filter(self, X: Any) -> Any:
        """States given the outputs `X` (time, 1), or a list of such tables, up to each step, by
        assumed-density filtering.
        """
        sequences = self._columns(X)
        return sequences.answer(
            [moment_filter(self.model, self.emission, y) for y in sequences.tables]
        )

    def smooth(self, X: Any, *, damping: float = 0.2, max_iter: int = 100) -> Any:
        """States given all outputs `X` (time, 1), by expectation propagation: at most
        `max_iter` passes, each with the share `damping` of the old messages.
        """
        sequences = self._columns(X)
        return sequences.answer(
            [
                expectation_propagation(
                    self.model, self.emission, y, damping=damping, max_iter=max_iter
                )
                for y in sequences.tables
            ]
        )

    def log_likelihood(self, X: Any, *, method: Literal["ep", "filter"] = "ep") -> float:
        """Approximate log p(`X`), summed over sequences, by the `method` "ep" (expectation
        propagation) or "filter".
        """
        if method not in ("ep", "filter"):
            raise MethodError(f"method is ep or filter, got {method!r}")
        found = self.smooth(X) if method == "ep" else self.filter(X)
        every = [found] if isinstance(found, MomentStates) else found
        return float(sum(s.log_evidence for s in every))

    def forecast(self, X: Any, steps: int) -> Forecast | list[Forecast]:
        """Linear predictors and states of so many `steps` after the last output of `X`."""
        sequences = self._columns(X)
        answers = []
        for y in sequences.tables:
            f = moment_filter(self.model, self.emission, y)
            answers.append(forecast_states(self.model, f.mean[-1], f.covariance[-1], steps))
        answer: Forecast | list[Forecast] = sequences.answer(answers)
        return answer

    def sample(
        self, n_samples: int = 1, *, random_state: Seed = None, return_latents: bool = False
    ) -> Any:
        """Draw one sequence of `n_samples` outputs (n_samples, 1) with the seed `random_state`;
        with `return_latents` the pair of outputs and states (n_samples, n).
        """
        rng = generator(random_state)
        quiet = self.model.updated(output_noise=np.zeros((1, 1)))
        states, predictors = sample_states(quiet, n_samples, rng)
        rows = self.emission.sample(predictors, rng)
        return (rows, states) if return_latents else rows

    def fit_em(self, X: Any, *, max_iter: int = 50, tol: float = 1e-4) -> MomentSSM:
        """The model with transition, offset and noise of the states learnt from outputs `X` (time,
        1) by EM over the moments of expectation propagation, until the evidence per output gains
        less than `tol`, or for `max_iter`.

        The evidence is an approximation: it need not rise at every step.
        """
        from kikuchi.temporal.moments.learning import alternation

        em = alternation(self.model, self.emission, self._columns(X))
        for _ in range(max_iter):
            if em.advance().residual <= tol:
                break
        model = em.maximisation(em.now, em.expect()) if em.done else em.now
        return MomentSSM(model, self.emission)

    def fit_gradient(self, X: Any, *, max_iter: int = 100, tol: float = 1e-6) -> MomentSSM:
        """The model with transition, offset and noise of the states learnt from outputs `X` (time,
        1) by L-BFGS up the evidence of expectation propagation, until a step gains less than `tol`
        per output, or for `max_iter`.
        """
        from kikuchi.temporal.moments.learning import ascend

        sequences = self._columns(X)
        return MomentSSM(ascend(self.model, self.emission, sequences, max_iter, tol), self.emission)
