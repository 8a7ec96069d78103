"""`FlowClassifier`: one mixture of flows per class, and Bayes' rule.

All classes learn at the same time: a batch holds as many rows of each class, and each flow sees the
rows of its own class only.

Reference: LIU-X6, LIU-M13.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from kikuchi.core import text
from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import DataError
from kikuchi.core.interrupts import safe_interrupts
from kikuchi.core.options import option
from kikuchi.core.seeds import generator
from kikuchi.flows import kinds
from kikuchi.flows.densities import (
    BaseFloor,
    FlowDensity,
    FlowSpec,
    evaluate_joint,
    in_parts,
    log_joint_of_groups,
    require_density,
)
from kikuchi.flows.learning import FlowRule, LikelihoodLoss
from kikuchi.flows.options import FlowOptions
from kikuchi.flows.preparation import padded, prepare
from kikuchi.flows.start import GaussianStart, gaussian_log_density, gaussian_start
from kikuchi.training.checkpoint import Arrays, read_labels
from kikuchi.training.estimator import validate_data
from kikuchi.training.trainer import Validation, limited_threads

CANDIDATES = (1, 2, 3, 5, 8, 12, 16, 20)
"""Components of each class that are tried where their number is to be chosen."""

_ROWS_PER_COMPONENT = 10  # at least, of the smallest class


@dataclass(frozen=True)
class MeanGroupedLikelihood:
    """Score of validation rows of each class: their mean log-likelihood, summed over classes."""

    def __call__(self, model: FlowDensity, data: Any) -> float:
        """Larger is better."""
        rows, weights = data
        typed = np.asarray(rows, dtype=model.spec.dtype)
        joint = in_parts(model.spec, log_joint_of_groups, model.parameters, typed)
        return float(np.mean(weights * logsumexp(joint.astype(np.float64), axis=-1)))


@dataclass(eq=False, repr=False)
class FlowClassifier(ClassifierMixin, FlowOptions):  # type: ignore[misc]
    """A mixture of flows for the rows of each class; rows go to the class that explains them best.

    Attributes
    ----------
    classes_, class_weights_, model_, preparation_, validation_scores_, trace_, converged_,
    stopped_, n_iter_, warnings_.

    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(200, 2)), np.repeat(["a", "b"], 100)
    >>> X[100:] += 4.0
    >>> model = FlowClassifier(flow="coupling:layers=1,width=4", max_iter=2, random_state=0)
    >>> model.fit(X, y).score(X, y) > 0.95
    True

    Reference: LIU-X6.
    """

    kind = kinds.CLASSIFIER
    n_components: int | None = option(
        None,
        "Gaussians (density latent) or flows (density mixture) of each class; none: chosen by "
        "held-out rows.",
        low=1,
    )
    flow: str = option(
        "coupling:layers=4,width=24",
        "Bijection: coupling, spline, autoregressive, affine or image.",
    )
    _: KW_ONLY
    density: Literal["mixture", "latent"] = option(
        "latent", "mixture (a flow per component) or latent (one flow per class)."
    )
    class_prior: Literal["rows", "uniform"] = option(
        "rows", "Probabilities of classes: as among the rows, or uniform."
    )
    batch_size: int = option(32, "Rows of each class per update.", low=1)
    noise: float = option(
        0.1, "Gaussian noise on rows while learning, in deviations of the columns.", low=0
    )
    weight_decay: float = option(1e-2, "Decay of the flows towards the identity.", low=0)

    # ------------------------------------------------------------------ learning

    @safe_interrupts()
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the rows of `X` (rows, columns) of each class in `y` (rows,)."""
        self._check_options()
        checked, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError(f"one class only ({self.classes_[0]}); give rows of at least two")
        rng = generator(self.random_state)
        self.preparation_, rows, said = prepare(np.asarray(checked), self.dequantise, rng)
        parts = self._parts(rows, codes.reshape(-1), rng)
        counts = np.array([len(learnt) + len(held) for learnt, held in parts])
        self.class_weights_ = (
            counts / counts.sum()
            if self.class_prior == "rows"
            else np.full(len(counts), 1.0 / len(counts))
        )
        model = self._begin(parts, rng)
        fewest = min(len(learnt) for learnt, _ in parts)
        number = model.spec.components
        if fewest < 2 * rows.shape[1] * number:
            said.append(
                f"{fewest} rows of the smallest class to learn {number} covariances of "
                f"{rows.shape[1]} columns from: they were moved towards their mean and their "
                "diagonals where held-out rows advised it"
            )
        self._learn(model, parts, rng)
        self.warnings_ += said
        return self

    def _parts(
        self, rows: Array, codes: Ints, rng: np.random.Generator
    ) -> list[tuple[Array, Array]]:
        """Rows to learn from and held-out rows of each class."""
        parts = []
        for k, name in enumerate(self.classes_):
            own = rows[codes == k]
            count = round(self.validation_fraction * len(own))
            number = self.n_components or 1
            if len(own) - count < max(2, number):
                raise DataError(
                    f"class {name} has {text.count(len(own), 'row')}, too few for "
                    f"{text.count(number, 'flow')}; give more rows or fewer components"
                )
            order = rng.permutation(len(own))
            parts.append((own[order[count:]], own[order[:count]]))
        return parts

    def _begin(self, rows: list[tuple[Array, Array]], rng: np.random.Generator) -> FlowDensity:
        """The Gaussian mixtures that the flows begin from; `rows` are the parts of each class."""
        seed, columns = int(rng.integers(2**31)), rows[0][0].shape[1]
        with limited_threads(self.threads):
            starts = self._starts(rows, seed)
        number = len(starts[0].weights)
        base = {
            name: np.concatenate([start.arrays()[name] for start in starts])
            for name in ("weights", "means", "covariances")
        }
        spec = FlowSpec(
            self.density, self.flow_text, columns, number, groups=len(rows),
            image=self._shape(columns), double=self.dtype == "float64", seed=seed,
        )  # fmt: skip
        return FlowDensity.of(spec, base, rng)

    def _starts(self, rows: list[tuple[Array, Array]], seed: int) -> list[GaussianStart]:
        """A mixture for each class, with the given number of components, or the one that classifies
        the held-out rows best, by the mean log-probability of their classes.
        """
        judges = [held if len(held) > 1 else None for _, held in rows]

        def of(number: int) -> list[GaussianStart]:
            return [
                gaussian_start(learnt, judge, number, self.floor, seed)
                for (learnt, _), judge in zip(rows, judges, strict=True)
            ]

        if self.n_components is not None or any(judge is None for judge in judges):
            return of(self.n_components or 1)
        fewest = min(len(learnt) for learnt, _ in rows)
        chosen, worse = of(1), 0
        best = self._class_score(chosen, rows)
        for number in CANDIDATES[1:]:
            if worse == 2 or fewest < _ROWS_PER_COMPONENT * number:
                break
            starts = of(number)
            score = self._class_score(starts, rows)
            chosen, best, worse = (starts, score, 0) if score > best else (chosen, best, worse + 1)
        return chosen

    def _class_score(self, starts: list[GaussianStart], rows: list[tuple[Array, Array]]) -> float:
        """Mean log-probability of the classes of held-out rows."""
        prior = np.log(self.class_weights_)
        logs = []
        for k, (_, held) in enumerate(rows):
            parts = [gaussian_log_density(s.weights, s.means, s.covariances, held) for s in starts]
            joint = np.stack(parts, axis=1) + prior
            logs.append(joint[:, k] - logsumexp(joint, axis=1))
        return float(np.mean(np.concatenate(logs)))

    def _rule(self, model: FlowDensity) -> FlowRule:
        spec = model.spec
        loss = LikelihoodLoss(spec, self.noise, grouped=True)
        return FlowRule(loss, project=BaseFloor(spec, self.floor))

    def _learn(
        self, model: FlowDensity, parts: list[tuple[Array, Array]], rng: np.random.Generator
    ) -> None:
        held = [h for _, h in parts]
        judged = _side_by_side(held, 1) if min(map(len, held)) > 0 else None
        score = MeanGroupedLikelihood()
        first = np.nan if judged is None else score(model, judged)
        training = self._trained(
            model,
            _side_by_side([learnt for learnt, _ in parts], self.batch_size),
            self._rule(model),
            rng,
            self._optimiser(self.schedule),
            self.max_iter,
            self._checkpoint(),
            None,
            validation=(None if judged is None else Validation(judged, self.patience, score=score)),
        )
        self.gaussian_score_ = first + self.preparation_.log_det
        self.validation_scores_ = [s + self.preparation_.log_det for s in training.scores]
        if training.scores and not max(training.scores) > first:
            training.model = model
            training.warnings.append(
                "no epoch was better on held-out rows than the Gaussian mixtures that the flows "
                "began from, which are the answer"
            )
        self._keep(training, rng)

    def partial_fit(self, X: Any, y: object = None) -> Self:
        """Refused, whatever `X` and `y` are: classes learn together, from all their rows."""
        raise AttributeError("FlowClassifier has no partial_fit; call fit with all rows")

    # ------------------------------------------------------------------ answers

    def class_log_densities(self, X: ArrayLike) -> Array:
        """log p(x | class) of each row of `X`, (rows, classes)."""
        self._model  # noqa: B018  (refuses an estimator that was not fitted)
        middle = self.preparation_.middles(self._checked(X))
        joint = evaluate_joint(self._spec, self._model.parameters, middle)
        return np.asarray(logsumexp(joint, axis=-1) + self.preparation_.log_det)

    def predict_proba(self, X: ArrayLike) -> Array:
        """Probabilities of the classes given each row of `X`, (rows, classes)."""
        return np.asarray(softmax(self._log_posterior(X), axis=1))

    def predict(self, X: ArrayLike) -> Any:
        """The most probable class of each row of `X` (rows, columns)."""
        best = np.argmax(self._log_posterior(X), axis=1)  # refuses one that was not fitted
        return self.classes_[best]

    def _log_posterior(self, X: ArrayLike) -> Array:
        logs = require_density(self.class_log_densities(X))
        return np.asarray(logs + np.log(self.class_weights_))

    # ------------------------------------------------------------------ files

    def _fitted_state(self) -> tuple[Arrays, dict[str, Any], dict[str, Any]]:
        arrays, facts, about = super()._fitted_state()
        about |= {
            "classes": self.classes_.tolist(),
            "class_weights": self.class_weights_.tolist(),
        }
        return arrays, facts, about

    def _restore_state(
        self, arrays: Arrays, facts: Mapping[str, Any], about: Mapping[str, Any]
    ) -> None:
        super()._restore_state(arrays, facts, about)
        self.classes_ = read_labels(about, "classes")
        self.class_weights_ = np.array(about["class_weights"], dtype=np.float64)
        if not len(self.classes_) == len(self.class_weights_) == self._spec.groups:
            raise DataError(f"{len(self.classes_)} classes for {self._spec.groups} densities")
        if not np.all((self.class_weights_ > 0) & (self.class_weights_ < np.inf)):
            raise DataError("its class_weights are not all above 0 and finite")


def _side_by_side(parts: list[Array], batch: int) -> tuple[Array, Array]:
    """Rows of each class beside each other, (rows, classes, columns), and their weights; smaller
    classes are repeated, so that each class has the weight of one.
    """
    longest = max(parts, key=len)
    total = len(padded(batch, longest)[0])
    index = [np.arange(total) % len(p) for p in parts]
    rows = np.stack([p[i] for p, i in zip(parts, index, strict=True)], axis=1)
    weights = [
        total / len(p) / np.bincount(i, minlength=len(p))[i]
        for p, i in zip(parts, index, strict=True)
    ]
    return rows, np.stack(weights, axis=1)
