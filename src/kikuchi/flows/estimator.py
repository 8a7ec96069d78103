"""`FlowMixture`: a mixture of flows; `LatentMixtureFlow`: one flow with a mixture as latent.

Reference: LIU-M13, LIU-M14, LIU-L9, LIU-L10.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.log import warn_caller
from kikuchi.core.options import option
from kikuchi.core.run import Run
from kikuchi.core.seeds import Seed, generator
from kikuchi.engines.loops.iterate import iterate
from kikuchi.flows import kinds
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
    rows_of_latent,
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
from kikuchi.flows.start import (
    STARTS,
    GaussianStart,
    chosen_start,
    gaussian_log_density,
    gaussian_start,
    k_means_start,
    mixture_beside,
    refitted,
)
from kikuchi.training.estimator import (
    ConvergenceWarning,
    FeatureTransformer,
    check_array,
    ending_remarks,
)
from kikuchi.training.optimiser import Optimiser
from kikuchi.training.resuming import fit_store
from kikuchi.training.trainer import COMPLETE, Training, Validation, limited_threads

_FEWEST_HELD_OUT = 2
_MOST_FLOWS = 5  # of a mixture whose number of flows is chosen
_BELOW = 0.05  # nats by which a fit must be below a Gaussian mixture to say so
_SURE = 2.0  # standard errors by which it must be, besides
_PARTS = ("weights", "means", "covariances")
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
    inner_max_iter: int = option(5, "Passes over the rows per maximisation step of em.", low=1)
    tol: float = option(1e-6, "em ends when a round gains less per row.", low=0)

    # ------------------------------------------------------------------ learning

    @abstractmethod
    def _components(self) -> int | None:
        """The number of components in the options; none: the number with the best held-out
        score.
        """

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
        self._clock = self._search_clock()
        with limited_threads(self.threads):
            start, mixture, beside = self._starts(learnt, judged, seed)
        self._spent = self._clock.seconds
        self._gaussian, self._mixture = start, mixture
        self.mixture_score_ = np.nan if judged is None else beside.score + self._log_det
        self._beside = beside
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

    def _starts(
        self, learnt: Array, judged: Array | None, seed: int
    ) -> tuple[GaussianStart, GaussianStart, GaussianStart]:
        """The mixture that the flows begin from, the one that is the answer where they do not
        improve it, and the one that a fit is compared with.
        """
        number = self._components()
        if self.start == "k-means":
            start = k_means_start(learnt, number or 1, self.floor, seed)
        else:
            going = self._going
            start = chosen_start(learnt, judged, number, self.floor, seed, going)
        mixture = start
        if number is None and self.form == "mixture" and len(start.weights) > _MOST_FLOWS:
            start = gaussian_start(learnt, judged, _MOST_FLOWS, self.floor, seed)
        if judged is None or (number is None and self.start != "k-means"):
            return start, mixture, mixture
        return start, mixture, mixture_beside(learnt, judged, self.floor, seed)

    def _going(self) -> bool:
        return not self._clock.expired

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
        self.gaussian_score_ = self.start_score_ = np.nan
        gaussian, mixture = (self.__dict__.pop(name, None) for name in ("_gaussian", "_mixture"))
        if judged is not None:
            self.start_score_ = MeanLogLikelihood()(model, (judged,)) + self._log_det
            chosen = mixture is not None and mixture is not gaussian
            self.gaussian_score_ = mixture.score + self._log_det if chosen else self.start_score_
        learn = self._train_em if self.learner == "em" else self._train_gradient
        learn(model, rows[learnt], judged, rng, *arguments)
        if self.learner == "gradient" and self.validation_scores_:
            if not max(self.validation_scores_) > self.gaussian_score_:
                self._answer_mixture(model, refitted(mixture, rows, self.floor), rng)
            elif gaussian is not None:
                start = refitted(gaussian, rows, self.floor)
                self._refit(model, start, rows, held, rng, *arguments)
        self.__dict__.pop("_clock", None)
        self._remark(judged)

    def _answer_mixture(
        self, model: FlowDensity, mixture: GaussianStart, rng: np.random.Generator
    ) -> None:
        """Keep the Gaussian mixture of all rows as the answer."""
        if len(mixture.weights) == model.spec.components:
            base = pack_base(model.spec, *(mixture.arrays()[n] for n in _PARTS))
            self.model_ = FlowDensity({**model.parameters, "base": base}, model.facts)
            return
        spec = replace(model.spec, components=len(mixture.weights))
        self.model_, self._state = FlowDensity.of(spec, mixture.arrays(), rng), None

    def _refit(
        self,
        model: FlowDensity,
        gaussian: GaussianStart,
        rows: Array,
        held: Array,
        rng: np.random.Generator,
        optimiser: Optimiser,
        epochs: int,
        *_: object,
    ) -> None:
        """Train again on all rows, up to the epoch selected on the held-out rows.

        The selected parameters remain the result if there is no time left, or if the held-out rows
        are less likely after training on them.
        """
        if self.stopped_ not in COMPLETE or not self._going():
            return
        base = pack_base(model.spec, *(gaussian.arrays()[n] for n in _PARTS))
        first = FlowDensity({**model.parameters, "base": base}, model.facts)
        chosen, self._spent = self.model_, self._clock.seconds
        seen, score = (rows[held], np.ones(len(held))), MeanLogLikelihood()
        last = int(np.argmax(self.validation_scores_)) + 1
        training = self._learnt(
            first, rows, rng, optimiser, epochs, None, None,
            validation=Validation(seen, patience=1, score=_UntilEpoch(last)),
        )  # fmt: skip
        done = training.stopped in COMPLETE and len(training.scores) >= last
        if done and score(training.model, seen) >= score(chosen, seen):
            self.model_, self._state = training.model, training.state

    def _learnt(
        self,
        model: FlowDensity,
        rows: Array,
        rng: np.random.Generator,
        *arguments: Any,
        **more: Any,
    ) -> Training[FlowDensity]:
        data = padded(self.batch_size, rows)
        return self._trained(model, data, self._rule(model), rng, *arguments, **more)

    def _train_gradient(
        self,
        model: FlowDensity,
        rows: Array,
        judged: Array | None,
        rng: np.random.Generator,
        *arguments: Any,
    ) -> None:
        validation = None
        if judged is not None:
            seen = (judged, np.ones(len(judged)))
            validation = Validation(seen, self.patience, score=MeanLogLikelihood())
        training = self._learnt(model, rows, rng, *arguments, validation=validation)
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
            self.floor,
            optimiser,
            self.inner_max_iter,
            self.batch_size,
            self.noise,
            rng,
            self.threads,
        )
        em = FlowEM(model, rows, judged, step, self.temperature, self.patience)
        run = self._run()
        run.trace.objective_name = FlowRule.objective_name
        store = fit_store(self, rows)
        with limited_threads(self.threads):
            ended = iterate(FlowEM.step, em, run, tol=self.tol, limit=epochs, store=store)
        found = "converged" if ended.converged else run.stopped
        stopped = "validation" if em.judged.exhausted else found
        stopped = "epochs" if stopped == "iterations" else stopped
        self.validation_scores_ = [s + self._log_det for s in em.judged.scores]
        self.model_, self._rng, self._state = em.judged.best.now, rng, None
        met = stopped in ("converged", "validation")
        remarks = [] if stopped == "epochs" else ending_remarks(stopped, met, "log-likelihood", "")
        self._ended(ended.iterations, stopped, met, remarks, run.trace)

    @property
    def _log_det(self) -> float:
        return self.preparation_.log_det

    @property
    def flow_gain_(self) -> float:
        """Nats per held-out row by which the flow is above the Gaussian mixture that it began from;
        0 where a Gaussian mixture is the answer, NaN where no rows were held out.
        """
        if not self.validation_scores_ or np.isnan(self.start_score_):
            return float("nan")
        best = max(self.validation_scores_)
        return best - self.start_score_ if best > self.gaussian_score_ else 0.0

    def _remark(self, judged: Array | None) -> None:
        """Record the warnings: dequantisation, few rows, collapse, divergence."""
        self.warnings_ += self.__dict__.pop("_said", [])
        weights = self.weights_
        for k in np.flatnonzero(weights < 1e-3 / len(weights)):
            self.warnings_.append(
                f"component {k} has collapsed (weight {weights[k]:.2g}); give fewer components"
            )
        scores = self.validation_scores_
        self._compare(judged)
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
                "no epoch was better on held-out rows than the Gaussian mixture of "
                f"{len(weights)} that is the answer, fitted to all rows"
            )

    def _compare(self, judged: Array | None) -> None:
        """Warn of a fit that is below a Gaussian mixture on the held-out rows."""
        beside = self.__dict__.pop("_beside", None)
        if beside is None or judged is None or self.stopped_ not in COMPLETE:
            return
        best = max([*self.validation_scores_, self.gaussian_score_])
        theirs = gaussian_log_density(beside.weights, beside.means, beside.covariances, judged)
        ours = logsumexp(evaluate_joint(self._spec, self._model.parameters, judged), axis=(1, 2))
        error = float(np.std(theirs - ours) / np.sqrt(len(judged)))
        if self.mixture_score_ - best <= max(_BELOW, _SURE * error):
            return
        size = len(beside.weights)
        kind = "one Gaussian" if size == 1 else f"a Gaussian mixture of {size}"
        told = (
            f"below {kind}, which has {self.mixture_score_:.4g} nats per held-out row; this fit "
            f"has {best:.4g}: leave n_components out, and held-out rows choose it"
        )
        self.warnings_.append(told)
        warn_caller(f"{type(self).__name__}: {told}", ConvergenceWarning)

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

    def inverse_transform(self, Z: ArrayLike, components: ArrayLike | None = None) -> Array:
        """The rows whose latent values are the rows of `Z`; whole numbers in columns that were
        dequantised.

        Each component of a mixture of flows has latent values of its own: `components` are those of
        the rows, as `predict` gives them.
        """
        spec = self._spec
        latent = check_array(Z, dtype=np.float64)
        if latent.shape[1] != spec.columns:
            raise DataError(f"latent values of {latent.shape[1]} columns; give {spec.columns}")
        number = spec.components if spec.form == "mixture" else 1
        which = np.zeros(len(latent), dtype=np.int64)
        if components is not None:
            which = np.asarray(components)
            if which.shape != which.shape[:1] or len(which) != len(latent):
                raise DataError(f"{which.size} components for {len(latent)} rows; give one per row")
            if which.dtype.kind not in "iu" or which.min() < 0 or which.max() >= spec.components:
                raise DataError(f"components are whole numbers from 0 to {spec.components - 1}")
        elif number > 1:
            raise DataError(
                f"latent values of {number} flows; give components=model.predict(X), those of the "
                "rows that were transformed"
            )
        typed = latent.astype(spec.dtype)
        rows = in_parts(spec, rows_of_latent, self._model.parameters, typed, which)
        return self.preparation_.restored(rows.astype(np.float64))

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


class _UntilEpoch:
    """A score that rises up to an epoch and falls after it, which ends a training there."""

    def __init__(self, last: int) -> None:
        self.last, self.done = last, 0

    def __call__(self, model: FlowDensity, rows: Any) -> float:
        """The number of the epoch; 0 after the last one."""
        self.done += 1
        return float(self.done) if self.done <= self.last else 0.0


@dataclass(eq=False, repr=False)
class FlowMixture(_FlowEstimator):
    """A mixture of normalising flows, each a bijection to a standard Gaussian.

    It begins as a Gaussian mixture with as many components. The epoch with the highest held-out
    likelihood is learnt again from all rows, unless a Gaussian mixture is better on held-out rows:
    that is then the answer. With `n_components` none up to five flows are tried, and the mixture
    may have forty components. One component is a plain flow; with flow `affine` the model is a
    Gaussian mixture.

    Attributes
    ----------
    model_, preparation_, weights_, validation_scores_, trace_, converged_, stopped_, n_iter_,
    warnings_; on the held-out rows start_score_ (of the mixture that the flows begin from),
    gaussian_score_ (of the one that is the answer if no epoch is better), mixture_score_ (of one
    whose size held-out rows choose) and flow_gain_.

    >>> rows = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = FlowMixture(2, flow="coupling:layers=2,width=8", max_iter=3, random_state=0)
    >>> model = model.fit(rows)
    >>> model.score_samples(rows).shape, model.predict_proba(rows).shape
    ((200,), (200, 2))
    >>> model.sample(3, random_state=0).shape, model.transform(rows).shape
    ((3, 2), (200, 2))

    Reference: LIU-M13, LIU-L9.
    """

    kind = kinds.MIXTURE
    n_components: int | None = option(
        None, "Number of flows; none: chosen by held-out rows.", low=1
    )
    flow: str = option(
        "coupling:layers=4", "Bijection: coupling, spline, autoregressive, affine or image."
    )

    def _components(self) -> int | None:
        return self.n_components


@dataclass(eq=False, repr=False)
class LatentMixtureFlow(_FlowEstimator):
    """One flow whose latent values are a mixture of Gaussians with full covariances.

    It begins as the Gaussian mixture of one to forty components with the highest held-out
    likelihood. The epoch with the highest one is learnt again from all rows; if none is better
    than the mixture, that is the answer.

    Attributes
    ----------
    model_, preparation_, weights_, validation_scores_, trace_, converged_, stopped_, n_iter_,
    warnings_; on the held-out rows start_score_ and gaussian_score_ (of the beginning),
    mixture_score_ (of a mixture whose size held-out rows choose) and flow_gain_.

    >>> rows = np.random.default_rng(0).normal(size=(200, 2)) ** 3
    >>> model = LatentMixtureFlow(2, flow="spline:layers=1,width=8", max_iter=3, random_state=0)
    >>> model.fit(rows).score_samples(rows).shape
    (200,)

    Reference: LIU-M14, LIU-L10.
    """

    kind = kinds.FLOW
    form: ClassVar[Literal["mixture", "latent"]] = "latent"

    n_components: int | None = option(
        None, "Gaussians of the latent values; none: chosen by held-out rows.", low=1
    )
    flow: str = option("spline:layers=2", "Bijection: coupling, spline, autoregressive or image.")

    def _components(self) -> int | None:
        return self.n_components
