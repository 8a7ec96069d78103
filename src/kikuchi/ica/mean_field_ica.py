r"""`MeanFieldICA`: noisy ICA by mean field EM as a scikit-learn estimator (HOJ-M7, HOJ-L6)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.core.errors import DataError, MethodError, MissingExtraError
from kikuchi.core.progress import Progress, silent
from kikuchi.core.trace import Trace
from kikuchi.ica.em import OPTIMISERS, Rules, Statistics, expectation, maximisation
from kikuchi.ica.fitting import (
    RestartFit,
    RestartTask,
    check_optimiser,
    choose_fit,
    collapsed_sources,
    fit_all,
)
from kikuchi.ica.initialisation import initial_model, start_kinds
from kikuchi.ica.mixing import RULES, parse_mixing_prior
from kikuchi.ica.model import Model, Observations
from kikuchi.ica.posteriors.posterior import Moments, Posterior, parse_posterior
from kikuchi.ica.priors.prior import SourcePrior, as_priors

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise MissingExtraError(
        "the estimators of ICA need scikit-learn: pip install 'kikuchi[learn]'"
    ) from error

if TYPE_CHECKING:
    from kikuchi.ica.order import Choice

Array = NDArray[np.float64]

LEARNED = ("none", "shape", "all")
MISSING = ("error", "hidden")
_FORGETTING = 0.7  # partial_fit: the k-th batch weighs (k + 1)^-0.7


class MeanFieldICA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    r"""Independent sources of noisy mixtures, x = A s + mean + noise, by mean field EM.

    The sources may be more than the sensors, binary, positive or sparse. Samples are rows.

    Parameters
    ----------
    n_sources : number of sources; as many as channels by default.
    prior : text of a source prior such as "laplace" or "binary01:rate=0.3", or one a source.
    posterior : naive, variational, lr, adatap or exact, with options (`parse_posterior`).
    mixing : "free", "nonnegative", or "multiplicative" (nonnegative by multiplication).
    mixing_prior : "flat", "gaussian:precision=", "laplace:rate=", "elastic:precision=,rate=".
    noise : "isotropic", "diagonal" or "full", learned; or known: variance, variances, covariance.
    learn_prior : "shape" learns rates of binary sources and mixtures, "all" also mere scales,
        "none" nothing (HOJ-L7).
    start : "auto", or the kind of all starts: ica, pca, directions, samples, random.
    restarts : fits from different starts; the likeliest is kept that lost the fewest sources.
        It is not chosen by the mean field energy, which prefers collapse.
    optimiser : "em", "over-relaxed", or "lbfgs" (not for lr).
    tol : EM stops when mixing and noise change by less than this share.
    max_iter : most iterations of a restart.
    batch_size : rows of a mini-batch (incremental EM); all rows by default.
    missing : "hidden" takes NaN as a value that was not observed; "error" refuses it.
    center : subtract the mean; "auto" does so when all priors are symmetric around 0.
    seconds : time limit of a fit; the best so far is kept and marked.
    processes : restarts run in this many processes.
    random_state : seed.
    progress : told how far a fit is.

    Attributes
    ----------
    mixing_ (D, I), noise_, priors_, mean_, components_ (I, D; unmixing), trace_, converged_,
    n_iter_, warnings_, collapsed_ (numbers of lost sources), restarts_ (all fits), selection_
    (how the restart was chosen).

    >>> rng = np.random.default_rng(0)
    >>> S = rng.laplace(size=(2000, 2))
    >>> X = S @ np.array([[1.0, 0.5], [-0.4, 1.0]]) + 0.1 * rng.standard_normal((2000, 2))
    >>> ica = MeanFieldICA(n_sources=2, random_state=0).fit(X)
    >>> from kikuchi.ica.measures import matched_correlation
    >>> bool(matched_correlation(ica.transform(X), S).min() > 0.95)
    True
    """

    def __init__(
        self,
        n_sources: int | None = None,
        *,
        prior: str | SourcePrior | Sequence[str | SourcePrior] = "laplace",
        posterior: str | Posterior = "lr",
        mixing: str = "free",
        mixing_prior: str = "flat",
        noise: str | ArrayLike = "isotropic",
        learn_prior: str = "shape",
        start: str = "auto",
        restarts: int = 1,
        optimiser: str = "em",
        tol: float = 1e-4,
        max_iter: int = 200,
        batch_size: int | None = None,
        missing: str = "error",
        center: bool | str = "auto",
        seconds: float | None = None,
        processes: int = 1,
        random_state: Any = None,
        progress: Progress | None = None,
    ) -> None:
        self.n_sources = n_sources
        self.prior = prior
        self.posterior = posterior
        self.mixing = mixing
        self.mixing_prior = mixing_prior
        self.noise = noise
        self.learn_prior = learn_prior
        self.start = start
        self.restarts = restarts
        self.optimiser = optimiser
        self.tol = tol
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.missing = missing
        self.center = center
        self.seconds = seconds
        self.processes = processes
        self.random_state = random_state
        self.progress = progress

    # ------------------------------------------------------------------ fitting

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Learn mixing, noise and priors from rows of X."""
        return self._fit(X, ())

    def _fit(self, X: ArrayLike, models: Sequence[Model]) -> Self:
        """Fit from the usual starts and from given models."""
        rules, posterior = self._rules(), parse_posterior(self.posterior)
        rows = self._rows(X, reset=True)
        priors = tuple(as_priors(self.prior, self._source_count(rows)))
        check_optimiser(self.optimiser, posterior, rules, priors)
        self._check_data(rows, priors)
        data = self._prepared(rows, priors, fit_mean=True)
        tasks = self._tasks(data, priors, posterior, rules, models)
        fits = fit_all(tasks, self.processes, self.seconds, self.progress or silent)
        best, found = choose_fit(fits, data, posterior)
        self.restarts_ = fits
        self.selection_ = found.method
        self.trace_ = best.trace
        self.converged_ = best.converged
        self.n_iter_ = max(1, best.trace.iterations[-1] if len(best.trace) else 0)
        self._keep(best.model)
        self._warn(best, len(tasks))
        self._online: Statistics | None = None
        return self

    def partial_fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Learn from one more batch of rows: stochastic EM that forgets old batches slowly.

        The first batch sets the mean and the start.
        """
        first = not hasattr(self, "model_")
        rules, posterior = self._rules(), parse_posterior(self.posterior)
        rows = self._rows(X, reset=first)
        if first:
            priors = tuple(as_priors(self.prior, self._source_count(rows)))
            self._check_data(rows, priors)
            data = self._prepared(rows, priors, fit_mean=True)
            task = self._tasks(data, priors, posterior, rules, ())[0]
            assert isinstance(task.start, str)
            rng = np.random.default_rng(task.seed)
            model = initial_model(task.start, data, priors, task.noise, rules.mixing, rng)
            self.trace_, self.n_iter_, self.converged_ = Trace("mean log-likelihood"), 0, False
            self.restarts_, self.selection_ = [], "partial_fit"
            self._online = None
        else:
            model = self.model_
            data = self._prepared(rows, model.priors, fit_mean=False)
        statistics, _ = expectation(model, data, posterior, rules.learned)
        self.n_iter_ += 1
        objective = statistics.log_likelihood / statistics.count
        self.trace_.record(self.n_iter_, objective=objective)
        old = getattr(self, "_online", None)
        if old is not None:
            weight = (self.n_iter_ + 1.0) ** -_FORGETTING
            scale = old.count / statistics.count
            statistics = old.plus(statistics, 1.0 - weight, weight * scale)
        self._online = statistics
        self._keep(maximisation(model, statistics, rules))
        self.warnings_: list[str] = []
        return self

    def _tasks(
        self,
        data: Observations,
        priors: tuple[SourcePrior, ...],
        posterior: Posterior,
        rules: Rules,
        models: Sequence[Model],
    ) -> list[RestartTask]:
        names = start_kinds(self.start, self.restarts, len(priors), data, rules.mixing)
        seeds = check_random_state(self.random_state).randint(2**31 - 1, size=len(names))
        noise = self.noise if isinstance(self.noise, str) else np.asarray(self.noise, np.float64)
        starts: list[str | Model] = [*names, *models]
        return [
            RestartTask(
                data,
                priors,
                noise,
                posterior,
                rules,
                start,
                int(seeds[k % len(seeds)]),
                self.optimiser,
                self.batch_size,
                float(self.tol),
                int(self.max_iter),
                self.seconds,
            )
            for k, start in enumerate(starts)
        ]

    def _keep(self, model: Model) -> None:
        self.model_ = model
        self.mixing_ = model.mixing
        self.noise_ = model.noise.value
        self.priors_ = list(model.priors)
        self.components_ = np.linalg.pinv(model.mixing)
        self.collapsed_ = collapsed_sources(model)

    def _warn(self, best: RestartFit, asked: int) -> None:
        found = []
        if best.stopped in ("seconds", "interrupted"):
            found.append(f"stopped early ({best.stopped}): the best so far is kept")
        elif not best.converged:
            found.append(
                f"not converged in {self.n_iter_} iterations (change {best.trace.last_residual:.1e}"
                f", tol {self.tol:g}); raise max_iter or tol, or choose another optimiser"
            )
        if len(self.restarts_) < asked:
            found.append(f"{asked - len(self.restarts_)} of {asked} restarts were left out")
        if best.collapsed:
            lost = ", ".join(map(str, best.collapsed))
            found.append(
                f"collapsed: source {lost} has lost its column in the mixing matrix; use "
                "posterior='lr' or 'adatap', more restarts, or fewer sources"
            )
        self.warnings_ = found
        for text in found:
            warnings.warn(f"MeanFieldICA: {text}", stacklevel=4)

    # ------------------------------------------------------------------ using

    def transform(self, X: ArrayLike) -> Array:
        """Posterior means of the sources, one row a sample."""
        moments, _ = self._moments(X)
        return np.ascontiguousarray(moments.mean.T)

    def inverse_transform(self, S: ArrayLike) -> Array:
        """Data without noise: A s + mean for rows of sources."""
        check_is_fitted(self)
        sources = np.asarray(S, dtype=np.float64)
        if sources.ndim != 2 or sources.shape[1] != self.model_.sources:
            raise DataError(
                f"inverse_transform: sources of shape {sources.shape}, expected "
                f"(samples, {self.model_.sources})"
            )
        return np.asarray(sources @ self.mixing_.T + self.mean_)

    def source_covariance(self, X: ArrayLike) -> Array:
        """Posterior covariance of the sources of each sample, (samples, sources, sources)."""
        moments, data = self._moments(X)
        posterior = parse_posterior(self.posterior)
        return posterior.covariances(self.model_.problem(data), moments)

    def score_samples(self, X: ArrayLike) -> Array:
        """log p(x) of each row by the posterior's free energy (HOJ-I20): a bound only for naive
        and variational, exact for exact.
        """
        moments, data = self._moments(X)
        if moments.log_z is None:
            names = ", ".join(sorted({p.name for p in self.priors_ if not p.has_log_partition}))
            raise MethodError(
                f"prior {names} is a mean function without a density: there is no likelihood"
            )
        return np.asarray(moments.log_z + self.model_.log_base(data))

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Mean log-likelihood of a row."""
        return float(np.mean(self.score_samples(X)))

    def n_parameters(self) -> int:
        """All free numbers: mixing, learned noise and learned priors (HOJ-L8)."""
        check_is_fitted(self)
        return self.model_.n_parameters(self.learn_prior)

    def bic(self, X: ArrayLike) -> float:
        """-2 log-likelihood + n_parameters log(samples); lower is better, as in scikit-learn."""
        scores = self.score_samples(X)
        return float(-2.0 * scores.sum() + self.n_parameters() * math.log(len(scores)))

    def aic(self, X: ArrayLike) -> float:
        """-2 log-likelihood + 2 n_parameters; lower is better."""
        return float(-2.0 * self.score_samples(X).sum() + 2.0 * self.n_parameters())

    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[Array, Array]:
        """Rows of data and of sources drawn from the model."""
        check_is_fitted(self)
        if n_samples < 1:
            raise DataError(f"sample: at least 1 sample is needed, got {n_samples}")
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
        sources = np.array([p.sample(rng, n_samples) for p in self.priors_])
        noise = self.model_.noise.sample(rng, self.model_.channels, n_samples)
        return (self.mixing_ @ sources + noise).T + self.mean_, sources.T

    @classmethod
    def choose_sources(
        cls, X: ArrayLike, sources: Iterable[int], criterion: str = "bic", **params: Any
    ) -> Choice:
        """How many sources there are (HOJ-L8): fits each number and compares by "bic", with the
        full count of parameters, or by the likelihood of "held-out" rows.

        `params` are those of the estimator.
        """
        from kikuchi.ica.order import choose_sources

        return choose_sources(cls, X, sources, criterion, params)

    # ------------------------------------------------------------------ checks

    def _rules(self) -> Rules:
        _one_of("mixing", self.mixing, RULES)
        _one_of("learn_prior", self.learn_prior, LEARNED)
        _one_of("optimiser", self.optimiser, OPTIMISERS)
        _one_of("missing", self.missing, MISSING)
        for name, least in (("restarts", 1), ("max_iter", 1), ("processes", 1), ("batch_size", 1)):
            value = getattr(self, name)
            if name == "batch_size" and value is None:
                continue
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
                raise MethodError(f"{name} must be a whole number >= {least}, got {value!r}")
        if not self.tol >= 0:
            raise MethodError(f"tol must be at least 0, got {self.tol!r}")
        return Rules(self.mixing, parse_mixing_prior(self.mixing_prior), self.learn_prior)

    def _source_count(self, rows: Array) -> int:
        count = self.n_sources
        if count is None:
            count = len(self.prior) if isinstance(self.prior, list | tuple) else rows.shape[1]
        if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < 1:
            raise MethodError(f"n_sources must be a whole number >= 1, got {count!r}")
        if len(rows) < count or len(rows) < 2:
            raise DataError(
                f"n_samples = {len(rows)}: {count} sources need at least {max(2, count)} samples"
            )
        return int(count)

    def _rows(self, X: ArrayLike, reset: bool) -> Array:
        """X checked: a finite matrix (NaN where it may be missing), enough values a channel."""
        finite: Any = "allow-nan" if self.missing == "hidden" else True
        return np.asarray(
            validate_data(
                self, X, reset=reset, dtype=np.float64, ensure_all_finite=finite, order="C"
            )
        )

    def _check_data(self, rows: Array, priors: Sequence[SourcePrior]) -> None:
        missing = np.isnan(rows)
        for whole, what in ((missing.all(axis=0), "channel"), (missing.all(axis=1), "row")):
            if whole.any():
                raise DataError(f"{what} {int(np.argmax(whole))} has no value at all; leave it out")
        spread = np.nanmax(rows, axis=0) - np.nanmin(rows, axis=0)
        constant = spread <= 1e-14 * np.nanmax(np.abs(rows), axis=0)
        if constant.any():
            raise DataError(
                f"channel {int(np.argmax(constant))} is constant ({int(constant.sum())} of "
                f"{rows.shape[1]} are); leave it out"
            )
        noise = self.noise if isinstance(self.noise, str) else np.asarray(self.noise)
        full = (isinstance(noise, str) and noise == "full") or np.ndim(noise) == 2
        if full and missing.any():
            raise MethodError("missing values need isotropic or diagonal noise, not full")
        if isinstance(noise, str) and noise == "full" and len(rows) <= rows.shape[1]:
            raise DataError(
                f"n_samples = {len(rows)} for {rows.shape[1]} channels: full noise needs more "
                "samples than channels; use isotropic or diagonal noise"
            )
        if self.mixing != "free" and all(p.support == "positive" for p in priors):
            if np.nanmin(rows) < 0 and np.nanmax(rows) <= 0:
                raise DataError("positive sources and mixing cannot give data without positives")
            negative = float(np.mean(rows[~missing] < 0))
            if negative > 0.25:
                raise DataError(
                    f"{negative:.0%} of the values are negative, but positive sources and "
                    "nonnegative mixing give positive data; shift the data or use mixing='free'"
                )

    def _prepared(self, rows: Array, priors: Sequence[SourcePrior], fit_mean: bool) -> Observations:
        if fit_mean:
            centre = self.center
            if centre == "auto":
                centre = all(p.symmetric for p in priors)
            elif not isinstance(centre, bool | np.bool_):
                raise MethodError(f"center must be True, False or 'auto', got {centre!r}")
            self.mean_ = np.nanmean(rows, axis=0) if centre else np.zeros(rows.shape[1])
        return Observations.of((rows - self.mean_).T)

    def _moments(self, X: ArrayLike) -> tuple[Moments, Observations]:
        check_is_fitted(self)
        data = self._prepared(self._rows(X, reset=False), self.model_.priors, fit_mean=False)
        posterior = parse_posterior(self.posterior)
        return posterior.solve(self.model_.problem(data)), data

    @property
    def _n_features_out(self) -> int:
        return self.model_.sources

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "model_" in state:  # priors make their tables anew: those of a memory map are read-only
            priors = tuple(replace(p) for p in self.model_.priors)
            self.model_ = replace(self.model_, priors=priors)
            self.priors_ = list(priors)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "hidden"
        return tags


def _one_of(name: str, value: Any, choices: Sequence[str]) -> None:
    if value not in choices:
        raise MethodError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
