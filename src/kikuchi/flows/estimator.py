"""`FlowMixture`: a mixture of flows; `LatentMixtureFlow`: one flow with a mixture as latent.

Reference: LIU-M13, LIU-M14, LIU-L9, LIU-L10.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.options import option
from kikuchi.core.run import Run
from kikuchi.core.seeds import Seed, generator
from kikuchi.flows.densities import (
    BaseFloor,
    FlowDensity,
    FlowSpec,
    choose,
    drawn_rows,
    evaluate_joint,
    in_parts,
    latent_rows,
    pack_base,
    require_density,
)
from kikuchi.flows.learning import (
    FlowEM,
    FlowRule,
    LikelihoodLoss,
    MaximisationStep,
    MeanLogLikelihood,
    responsibilities,
)
from kikuchi.flows.options import FlowOptions
from kikuchi.flows.preparation import padded
from kikuchi.flows.start import STARTS, GaussianStart, chosen_start, k_means_start, refitted
from kikuchi.training.estimator import FeatureTransformer, ending_remarks
from kikuchi.training.optimiser import Optimiser
from kikuchi.training.resuming import StateFile, fit_checkpoint, iterate_resumable
from kikuchi.training.trainer import limited_threads

_FEWEST_HELD_OUT = 2
_EXPLODED = 10.0  # standard errors by which validation rows fall when a flow explodes


@dataclass(eq=False, repr=False)
class _FlowEstimator(FeatureTransformer, FlowOptions):
    """Options and answers that all densities of flows share."""

    form: ClassVar[Literal["mixture", "latent"]] = "mixture"

    _: KW_ONLY
    learner: Literal["gradient", "em"] = option(
        "gradient",
        "gradient (of the likelihood) or em (exact responsibilities; the likelihood of the rows "
        "never falls).",
    )
    start: str = option("gaussian", "First parameters: gaussian (a mixture by EM) or k-means.")
    temperature: float = option(
        1.0, "Of the responsibilities in em; 1 is exact, larger is nearer to uniform.", above=0
    )
    em_epochs: int = option(5, "Passes over the rows per maximisation step of em.", low=1)
    tol: float = option(1e-6, "em ends when a round gains less per row.", low=0)

    # ------------------------------------------------------------------ learning

    @abstractmethod
    def _components(self) -> int | None:
        """How many components the options ask for; none: as many as held-out rows like best."""

    def _check_options(self) -> None:
        super()._check_options()
        if self.start not in STARTS:
            raise MethodError(f"start is {' or '.join(STARTS)}, got {self.start!r}")

    def _begin(self, rows: Array, rng: np.random.Generator) -> FlowDensity:
        """The Gaussian mixture that the flows begin from."""
        seed = int(rng.integers(2**31))
        count = round(self.validation_fraction * len(rows))
        held = count if _FEWEST_HELD_OUT <= count <= len(rows) - 2 else 0
        order = rng.permutation(len(rows)) if held else np.arange(len(rows))
        self._split = order[held:], order[:held]
        learnt, judged = rows[order[held:]], rows[order[:held]] if held else None
        clock = Budget(seconds=self.seconds).start()
        with limited_threads(self.threads):
            start = self._start(learnt, judged, seed, lambda: not clock.expired)
        self._spent = clock.seconds
        self._gaussian = start
        spec = FlowSpec(
            self.form,
            self.flow_text,
            rows.shape[1],
            len(start.weights),
            image=self._shape(rows.shape[1]),
            double=self.dtype == "float64",
            seed=seed,
        )
        self._say_start(start, learnt)
        return FlowDensity.of(spec, start.arrays(), rng)

    def _start(
        self, learnt: Array, judged: Array | None, seed: int, going: Callable[[], bool]
    ) -> GaussianStart:
        number = self._components()
        if self.start == "k-means":
            return k_means_start(learnt, number or 1, self.floor, seed)
        return chosen_start(learnt, judged, number, self.floor, seed, going)

    def _run(self) -> Run:
        """The search for the beginning counts as time of the fit."""
        run = super()._run()
        spent = self.__dict__.pop("_spent", 0.0)
        if self.seconds is not None:
            run.clock = Budget(seconds=max(self.seconds - spent, 1e-3)).start()
        return run

    def _say_start(self, start: GaussianStart, learnt: Array) -> None:
        rows, columns = learnt.shape
        if rows < 2 * columns * len(start.weights):
            pooling, shrinkage = start.shrinking
            self._said.append(
                f"{rows} rows to learn {len(start.weights)} covariances of {columns} columns from: "
                f"they were moved towards their mean by {pooling:g} and towards their diagonals by "
                f"{shrinkage:g}"
            )

    def _rule(self, model: FlowDensity) -> FlowRule:
        spec = model.spec
        return FlowRule(LikelihoodLoss(spec, self.noise), project=BaseFloor(spec, self.floor))

    def _train(
        self, model: FlowDensity, rows: Array, rng: np.random.Generator, *arguments: Any
    ) -> None:
        learnt, held = self.__dict__.pop("_split", (np.arange(len(rows)), np.arange(0)))
        judged = rows[held] if len(held) else None
        self.validation_scores_ = []
        self.gaussian_score_ = np.nan
        if judged is not None:
            self.gaussian_score_ = MeanLogLikelihood()(model, (judged,)) + self._log_det
        gaussian = self.__dict__.pop("_gaussian", None)
        learn = self._train_em if self.learner == "em" else self._train_gradient
        learn(model, rows[learnt], judged, rng, *arguments)
        scores = self.validation_scores_
        if self.learner == "gradient" and scores and not max(scores) > self.gaussian_score_:
            whole = refitted(gaussian, rows, self.floor).arrays()
            packed = pack_base(model.spec, whole["weights"], whole["means"], whole["covariances"])
            self.model_ = FlowDensity({**model.parameters, "base": packed}, model.facts)
        self._remark(judged)

    def _train_gradient(
        self,
        model: FlowDensity,
        rows: Array,
        judged: Array | None,
        rng: np.random.Generator,
        *arguments: Any,
    ) -> None:
        training = self._trained(
            model,
            padded(self.batch_size, rows),
            self._rule(model),
            rng,
            *arguments,
            validation=None if judged is None else (judged, np.ones(len(judged))),
            score=MeanLogLikelihood(),
            patience=self.patience,
        )
        self.validation_scores_ = [s + self._log_det for s in training.scores]
        self._keep(training, rng)

    def _train_em(
        self,
        model: FlowDensity,
        rows: Array,
        judged: Array | None,
        rng: np.random.Generator,
        optimiser: Optimiser,
        epochs: int,
        *_: object,
    ) -> None:
        step = MaximisationStep(
            self.floor, optimiser, self.em_epochs, self.batch_size, self.noise, rng, self.threads
        )
        em = FlowEM(model, rows, judged, step, self.temperature, self.patience)
        run = self._run()
        run.trace.objective_name = FlowRule.objective_name
        kept = fit_checkpoint(self, rows)
        store = None if kept is None else StateFile(kept)
        with limited_threads(self.threads):
            done, met = iterate_resumable(run, em, em.steps(), store, tol=self.tol, limit=epochs)
        stopped = "validation" if em.exhausted else "converged" if met else run.stopped
        stopped = "epochs" if stopped == "iterations" else stopped
        self.validation_scores_ = [s + self._log_det for s in em.scores]
        self.model_, self._rng, self._state = em.best, rng, None
        met = stopped in ("converged", "validation")
        remarks = [] if stopped == "epochs" else ending_remarks(stopped, met, "log-likelihood", "")
        self._ended(done, stopped, met, remarks, run.trace)

    @property
    def _log_det(self) -> float:
        return self.preparation_.log_det

    def _remark(self, judged: Array | None) -> None:
        """What the reader must know: dequantisation, few rows, collapse, explosion."""
        self.warnings_ += self.__dict__.pop("_said", [])
        weights = self.weights_
        for k in np.flatnonzero(weights < 1e-3 / len(weights)):
            self.warnings_.append(
                f"component {k} has collapsed (weight {weights[k]:.2g}); give fewer components"
            )
        scores = self.validation_scores_
        if judged is None or len(scores) < 2 or self.learner == "em":
            return
        logs = logsumexp(evaluate_joint(self._spec, self._model.parameters, judged), axis=(1, 2))
        error = float(np.std(logs) / np.sqrt(len(logs)))
        best = int(np.argmax(scores))
        worst = min(scores[best:])
        learnt = scores[best] > self.gaussian_score_
        if scores[best] - worst > max(_EXPLODED * error, 1.0):
            answer = f", and the answer is that of epoch {best + 1}" if learnt else ""
            self.warnings_.append(
                f"the held-out log-likelihood fell from {scores[best]:.4g} (epoch {best + 1}) to "
                f"{worst:.4g}: the flow had begun to overfit{answer}"
            )
        if not learnt:
            self.warnings_.append(
                "no epoch was better on held-out rows than the Gaussian mixture that the flow "
                "began from, which is the answer, fitted to all rows"
            )

    # ------------------------------------------------------------------ answers

    def _joint(self, X: ArrayLike) -> tuple[Array, Array]:
        """log pi_k p_k of prepared rows at the middles of their cells, and the rows."""
        self._model  # noqa: B018  (refuses an estimator that was not fitted)
        middle = self.preparation_.middles(self._checked(X))
        joint = evaluate_joint(self._spec, self._model.parameters, middle)[:, 0]
        return require_density(joint), middle

    @property
    def weights_(self) -> Array:
        """Weights of the components."""
        logits = np.asarray(self._model.parameters["base"]["logits"], dtype=np.float64)
        return np.asarray(np.exp(logits - logsumexp(logits)))

    def score_samples(self, X: ArrayLike) -> Array:
        """Log-density of each row of `X` (rows, columns); of rows of whole numbers that were
        dequantised the estimate of their log-probability.
        """
        self._model  # noqa: B018
        rows = self._checked(X)

        def log_density(at: Array) -> Array:
            return np.asarray(
                logsumexp(evaluate_joint(self._spec, self._model.parameters, at), axis=(1, 2))
            )

        return self.preparation_.cell_average(rows, log_density)

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Mean log-density of the rows of `X`; `y` is ignored."""
        return float(np.mean(self.score_samples(X)))

    def score_with_error(self, X: ArrayLike) -> tuple[float, float]:
        """Mean log-density of the rows of `X`, and the standard error of that mean."""
        logs = self.score_samples(X)
        if len(logs) < 2:
            raise DataError("the standard error of a mean needs at least 2 rows")
        return float(np.mean(logs)), float(np.std(logs, ddof=1) / np.sqrt(len(logs)))

    def predict_proba(self, X: ArrayLike) -> Array:
        """Responsibilities: the probability of each component given each row of `X`."""
        return responsibilities(self._joint(X)[0])

    def predict(self, X: ArrayLike) -> Array:
        """The most probable component of each row of `X` (rows, columns)."""
        return np.asarray(np.argmax(self._joint(X)[0], axis=1))

    def transform(self, X: ArrayLike) -> Array:
        """Latent values of each row of `X`, by the flow of its most probable component."""
        joint, rows = self._joint(X)
        latent = in_parts(
            self._spec, latent_rows, self._model.parameters, rows.astype(self._spec.dtype)
        )
        which = np.argmax(joint, axis=1) if latent.shape[1] > 1 else np.zeros(len(rows), np.int64)
        return np.asarray(latent[np.arange(len(rows)), which])

    @property
    def _n_features_out(self) -> int:
        return int(self.n_features_in_)

    def sample(self, n_samples: int = 1, *, random_state: Seed = None) -> Array:
        """`n_samples` rows drawn from the model with the seed `random_state`; whole numbers in
        columns that were dequantised.
        """
        if n_samples < 1:
            raise DataError(f"a sample of {n_samples} rows; give at least 1")
        rng, spec = generator(random_state), self._spec
        component = choose(self.weights_, n_samples, rng)
        noise = rng.normal(size=(n_samples, spec.columns)).astype(spec.dtype)
        rows = in_parts(
            spec, drawn_rows, self._model.parameters, noise, np.zeros_like(component), component
        )
        return self.preparation_.restored(rows.astype(np.float64))


@dataclass(eq=False, repr=False)
class FlowMixture(_FlowEstimator):
    """A mixture of normalising flows, each a bijection to a standard Gaussian.

    It begins as a Gaussian mixture with as many components, and returns the epoch with the
    highest held-out likelihood, which may be that beginning. One component is a plain flow; with
    flow `affine` the model is a Gaussian mixture.

    Attributes
    ----------
    model_, preparation_, weights_, validation_scores_, gaussian_score_ (of the beginning, on the
    held-out rows), trace_, converged_, stopped_, n_iter_, warnings_.

    >>> rows = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = FlowMixture(2, flow="coupling:layers=2,width=8", epochs=3, random_state=0).fit(rows)
    >>> model.score_samples(rows).shape, model.predict_proba(rows).shape
    ((200,), (200, 2))
    >>> model.sample(3, random_state=0).shape, model.transform(rows).shape
    ((3, 2), (200, 2))

    Reference: LIU-M13, LIU-L9.
    """

    n_components: int = option(3, "Number of flows.", low=1)
    flow: str = option(
        "coupling:layers=4", "Bijection: coupling, spline, autoregressive, affine or image."
    )

    def _components(self) -> int | None:
        return self.n_components


@dataclass(eq=False, repr=False)
class LatentMixtureFlow(_FlowEstimator):
    """One flow whose latent values are a mixture of Gaussians with full covariances.

    It begins as the Gaussian mixture of one to forty components with the highest held-out
    likelihood, and returns the epoch with the highest one, which may be that beginning.

    Attributes
    ----------
    model_, preparation_, weights_, validation_scores_, gaussian_score_ (of the beginning, on the
    held-out rows), trace_, converged_, stopped_, n_iter_, warnings_.

    >>> rows = np.random.default_rng(0).normal(size=(200, 2)) ** 3
    >>> model = LatentMixtureFlow(2, flow="spline:layers=1,width=8", epochs=3, random_state=0)
    >>> model.fit(rows).score_samples(rows).shape
    (200,)

    Reference: LIU-M14, LIU-L10.
    """

    form: ClassVar[Literal["mixture", "latent"]] = "latent"

    n_components: int | None = option(
        None, "Gaussians of the latent values; none: chosen by held-out rows.", low=1
    )
    flow: str = option("spline:layers=2", "Bijection: coupling, spline, autoregressive or image.")

    def _components(self) -> int | None:
        return self.n_components
