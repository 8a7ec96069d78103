"""`BayesianMLPClassifier`: classification by networks with a variational posterior of weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax
from scipy.stats import norm, qmc
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from kikuchi.bayesnn import kinds
from kikuchi.bayesnn.bound import ClassData
from kikuchi.bayesnn.estimator import BayesianNetworkEstimator, Trivial
from kikuchi.bayesnn.fitting import NetworkProblem
from kikuchi.bayesnn.networks import NetworksPosterior
from kikuchi.bayesnn.posteriors import OutputMoments, WeightPosterior, weight_posterior
from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import DataError
from kikuchi.core.options import option
from kikuchi.training.checkpoint import of_type, read_labels
from kikuchi.training.estimator import validate_data

_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
_POINTS = 256  # of the integral over the outputs of several classes


class ClassResults:
    """Further fitted attributes of a classifier; as annotations of a dataclass they would be
    options.
    """

    classes_: NDArray[Any]


@dataclass(eq=False, repr=False)
class BayesianMLPClassifier(ClassifierMixin, BayesianNetworkEstimator, ClassResults):  # type: ignore[misc]
    """Classification by networks of one hidden layer with a variational posterior of their weights.

    Two classes: one network, whose output is the log odds. More: one such network per
    class, whose outputs are the arguments of a softmax. The bound on the log probability of the
    classes has no sampling noise: logistic functions are bounded by Gaussian ones, whose local
    variational parameters are put in at their best, and a softmax by the product of the logistic
    functions against each other class.

    Defaults differ from those of `BayesianMLPRegressor`: skip connections, so that a network that
    has switched its units off is a logistic regression; a precision for each kind of weights rather
    than for each input; and a prior of the precisions that is less vague.

    Attributes
    ----------
    classes_, bound_ (lower bound on the log probability of the classes), relevance_ (root mean
    square slope of the outputs by each input, in its standard deviations), hidden_relevance_,
    precisions_, hidden_kept_ (with a row per class if there are more than two), inputs_kept_,
    weights_kept_, pruning_, trace_, converged_, stopped_, n_iter_, warnings_.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(80, 2))
    >>> y = np.where(X[:, 0] > 0, "right", "left")
    >>> net = BayesianMLPClassifier(2, "diagonal", n_init=1, random_state=0).fit(X, y)
    >>> net.predict([[2.0, 0.0], [-2.0, 0.0]]).tolist()
    ['right', 'left']
    >>> bool(net.score(X, y) > 0.95), bool(net.relevance_[0] > 5 * net.relevance_[1])
    (True, True)
    """

    kind = kinds.CLASSIFIER
    prior: Literal["single", "grouped", "ard", "nrd"] = option(
        "grouped",
        "Weights that share a precision: single, grouped, ard (by input) or nrd (by nodes).",
    )
    _: KW_ONLY
    skip: bool = option(True, "Also connect inputs with the output.")
    weight_shape: float = option(0.1, "Shape of the gamma prior of weight precisions.", above=0)
    weight_rate: float = option(0.1, "Rate of the gamma prior of weight precisions.", above=0)

    # ------------------------------------------------------------------ fitting

    def _read(self, X: ArrayLike, y: ArrayLike, *, reset: bool) -> tuple[Array, Array]:
        rows, labels = validate_data(self, X, y, reset=reset, dtype=np.float64)
        try:
            check_classification_targets(labels)
        except ValueError as error:
            raise DataError(f"y: {error}") from None
        if reset:
            self._standardise(rows)
            self.classes_ = np.unique(labels)
            if len(self.classes_) < 2:
                raise DataError(
                    f"y has one class only ({self.classes_[0]}): classification needs 2 or more"
                )
        codes = np.searchsorted(self.classes_, labels)
        inside = np.minimum(codes, len(self.classes_) - 1)
        unknown = np.flatnonzero(self.classes_[inside] != labels)
        if len(unknown):
            raise DataError(f"y: '{labels[unknown[0]]}' is none of the classes of the fit")
        return rows, codes.astype(np.float64)

    @property
    def _count(self) -> int:
        """The number of networks."""
        return 1 if len(self.classes_) == 2 else len(self.classes_)

    def _data(self, rows: Array, targets: Array) -> ClassData:
        if self._count == 1:
            marks = 2.0 * targets[:, None] - 1.0
        else:
            marks = (targets[:, None] == np.arange(self._count)).astype(np.float64)
        return ClassData(self._inputs(rows), jnp.asarray(marks))

    def _family(self) -> WeightPosterior:
        each = weight_posterior(self.posterior, self._network)
        return NetworksPosterior(self._network, each, self._count)

    def _codes(self, problem: NetworkProblem) -> Ints:
        """Number of the class of each row of the fit."""
        marks = np.asarray(problem.data.y)
        return np.argmax(marks, axis=1) if self._count > 1 else (marks[:, 0] > 0).astype(np.int64)

    def _trivial(self, problem: NetworkProblem) -> Trivial:
        counts = np.bincount(self._codes(problem), minlength=len(self.classes_))
        likeliest = float(np.sum(counts * np.log(counts / counts.sum())))
        return Trivial("the class frequencies", likeliest - (len(counts) - 1))

    def _log_probability(self, problem: NetworkProblem, output: OutputMoments) -> float:
        codes = self._codes(problem)
        found = self._probabilities(output.mean, np.maximum(output.variance, 0.0))
        return float(np.sum(np.log(np.maximum(found[np.arange(len(codes)), codes], 1e-300))))

    # ------------------------------------------------------------------ answers

    def predict_proba(self, X: ArrayLike) -> Array:
        """Probabilities (rows, classes) for rows `X` (rows, inputs): the mean of the logistic
        function or softmax over the outputs, taken as Gaussian with their exact means and
        variances.
        """
        return self._probabilities(*self._moments(self._rows(X)))

    def _probabilities(self, mean: Array, variance: Array) -> Array:
        """Return probabilities of the classes, from moments (networks, rows) of the outputs."""
        spread = np.sqrt(variance)
        if self._count == 1:
            at = mean[0][:, None] + spread[0][:, None] * _NODES
            second = expit(at) @ _NODE_WEIGHTS / _NODE_WEIGHTS.sum()
            return np.column_stack([1.0 - second, second])
        points = norm.ppf(qmc.Sobol(self._count, seed=0).random(_POINTS))
        outputs = mean.T[:, :, None] + spread.T[:, :, None] * points.T  # (rows, classes, points)
        found: Array = softmax(outputs, axis=1).mean(axis=2)
        return found

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of each row of `X` (rows, inputs)."""
        best = np.argmax(self.predict_proba(X), axis=1)
        found: NDArray[Any] = self.classes_[best]
        return found

    # ------------------------------------------------------------------ files

    def _facts(self) -> dict[str, Any]:
        return {"classes": self.classes_.tolist(), "labels": self.classes_.dtype.str}

    def _restore_facts(self, about: Mapping[str, Any]) -> None:
        self.classes_ = read_labels(about, "classes").astype(of_type(about, "labels", str))
