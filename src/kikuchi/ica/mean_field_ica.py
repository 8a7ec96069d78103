r"""`MeanFieldICA`: noisy ICA by mean field EM. References: HOJ-I20, HOJ-L6, HOJ-L8, HOJ-M7."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.interrupts import safe_interrupts
from kikuchi.core.log import warn_caller
from kikuchi.core.methods import instance_method
from kikuchi.core.options import option
from kikuchi.core.trace import Trace
from kikuchi.ica import kinds
from kikuchi.ica.adaptation import adapt_priors, better_separation
from kikuchi.ica.em import Rules, expectation, maximisation
from kikuchi.ica.estimator import IcaEstimator, drawn_seeds
from kikuchi.ica.fitting import RestartTask, choose_fit, fit_all
from kikuchi.ica.initialisation import initial_model, start_kinds
from kikuchi.ica.mixing import RULES, parse_mixing_prior
from kikuchi.ica.model import Model, Observations, is_learned
from kikuchi.ica.order import Choice, choose_sources
from kikuchi.ica.posteriors.posterior import Moments, Posterior, parse_posterior
from kikuchi.ica.priors.mixture import MixturePrior
from kikuchi.ica.priors.prior import AUTO, SourcePrior, as_priors
from kikuchi.ica.restarts import CUT_SHORT, RestartFit, collapsed_sources, read_precision
from kikuchi.ica.scoring import Precision, has_enough_samples
from kikuchi.ica.solvers import check_solver
from kikuchi.ica.statistics import Statistics
from kikuchi.training.checkpoint import Arrays, part, prefixed
from kikuchi.training.estimator import check_is_fitted, validate_data
from kikuchi.training.resuming import fit_checkpoint

_MOST_DRAWN = 20  # sources that draws can follow
_MOST_STATES = 1024  # joint states of discrete sources that auto enumerates
_TOLERANCE = 1e-3
_ERRORS = 0.3  # standard errors that scoring stops at
_FORGETTING = 0.7  # partial_fit: the k-th batch has weight (k + 1)^-0.7


@dataclass(eq=False, repr=False)
class MeanFieldICA(IcaEstimator):
    r"""Independent sources of noisy mixtures, x = A s + mean + noise, by mean field EM.

    The sources may be more than the sensors, binary, positive or sparse. Samples are rows. The help
    of each field explains the parameters. Of several restarts the likeliest is kept that lost the
    fewest sources, not the one of the best mean field energy, which prefers collapse.

    Attributes
    ----------
    mixing_ (D, I), noise_, priors_, shapes_ (names of what prior "auto" chose, else of the priors),
    mean_, components_ (I, D), posterior_, trace_, converged_,
    stopped_, n_iter_, warnings_, collapsed_ (numbers of lost sources), restarts_ (all fits),
    selection_ (how the restart was chosen). posterior_ is the posterior of the fit. components_ is
    the unmixing, the inverse of mixing_ by least squares in units of the noise; `transform` gives
    posterior means instead, which are not linear. After scoring, and after lbfgs with few
    parameters, also noise_error_ (standard errors of the logarithms of learned variances) and
    doubt_ (I; the part of each source that the samples do not tell from others); converged_ is true
    only if they are small, else stopped_ is "unresolved".

    >>> rng = np.random.default_rng(0)
    >>> S = rng.laplace(size=(2000, 2))
    >>> X = S @ np.array([[1.0, 0.5], [-0.4, 1.0]]) + 0.1 * rng.standard_normal((2000, 2))
    >>> ica = MeanFieldICA(n_components=2, random_state=0).fit(X)
    >>> from kikuchi.ica.measures import matched_correlation
    >>> bool(matched_correlation(ica.transform(X), S).min() > 0.95)
    True
    """

    kind = kinds.MEAN_FIELD
    n_components: int | None = option(
        None, "Number of sources; as many as channels by default.", low=1
    )
    _: KW_ONLY
    prior: str | SourcePrior | Sequence[Any] = option(
        "auto",
        'Source prior such as "laplace" or "binary01:rate=0.3", or one per source. "auto" gives '
        "each source of a first separation the likeliest of a stock of shapes: sparse, flat, with "
        "two humps or values, skewed (shapes_); it is laplace for more sources than channels, "
        "missing values and constrained mixing.",
    )
    posterior: str | Posterior = option(
        "auto",
        "Posterior: naive, variational, lr, adatap, importance or exact, with options. auto takes "
        "exact for discrete sources with at most 1024 joint states, importance (the likelihood "
        "itself, by draws around adatap) for at most 20 sources with smooth densities, free mixing "
        "and two samples for each parameter, adatap for other smooth densities, else lr.",
    )
    mixing: Literal["free", "nonnegative", "multiplicative"] = option(
        "free", "Mixing matrix: free, nonnegative, or multiplicative (nonnegative by products)."
    )
    mixing_prior: str = option(
        "flat",
        'Prior of the mixing matrix: "flat", "gaussian:precision=", "laplace:rate=" or '
        '"elastic:precision=,rate=".',
    )
    noise: str | float | Sequence[Any] | Array = option(
        "auto",
        'Noise: "isotropic", "diagonal" or "full", learned; or known: a variance, variances or a '
        'covariance. "auto" is isotropic, or diagonal if BIC finds that channels differ '
        "(partial_fit: isotropic).",
    )
    learn_prior: Literal["none", "shape", "all"] = option(
        "shape",
        "shape learns rates of binary sources and mixtures, all also mere scales, none nothing.",
    )
    start: Literal["auto", "ica", "pca", "directions", "samples", "random"] = option(
        "auto", "Kind of all starts; auto chooses by the numbers of sources and channels."
    )
    n_init: int = option(1, "Number of fits from different starts.", low=1)
    solver: Literal["auto", "em", "over-relaxed", "lbfgs", "scoring"] = option(
        "auto",
        "em, over-relaxed, lbfgs (not for posteriors lr and importance) or scoring (accelerated "
        "steps along the gradient); auto takes scoring for importance, lbfgs for adatap with "
        "smooth densities and free mixing, else em.",
    )
    tol: float | None = option(
        None,
        "The fit stops when the gradient per sample in mixing and log noise falls to this, in "
        "units in which the information of a sample is about one: a standard error is one over the "
        "root of the number of samples. By default 0.001, and 0.3 standard errors for "
        "scoring.",
        low=0,
    )
    max_iter: int = option(200, "Largest number of iterations of a restart.", low=1)
    batch_size: int | None = option(
        None, "Rows of a mini-batch (incremental EM); all rows by default.", low=1
    )
    missing: Literal["error", "hidden"] = option(
        "error", "hidden takes NaN as a value that was not observed; error refuses it."
    )
    center: bool | Literal["auto"] = option(
        "auto", "Subtract the mean; auto does so when all priors are symmetric around 0."
    )
    processes: int = option(1, "Number of processes in which restarts run.", low=1)

    # ------------------------------------------------------------------ fitting

    @safe_interrupts()
    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Learn mixing, noise and priors from rows `X` of sensor values (samples, sensors); `y` is
        ignored.
        """
        return self._fit(X, ())

    def _fit(self, X: ArrayLike, models: Sequence[Model]) -> Self:
        """Fit from the usual starts and from given models."""
        rules = self._rules()
        rows = self._rows(X, reset=True)
        priors, data, columns = self._adapted(rows)
        posterior, solver = self.method_for(priors, rows.shape)
        check_solver(solver, posterior, rules, priors, self._noise())
        tasks = self._tasks(data, priors, rules, models, columns)
        checkpoint = fit_checkpoint(self, rows)
        fits, interrupted = fit_all(
            tasks, self.processes, self.seconds, self._run().progress, checkpoint
        )
        best, evidence = choose_fit(fits, data, posterior)
        self.restarts_, self.posterior_ = fits, posterior.text
        self.selection_ = evidence.method
        self.trace_, self.stopped_, self.converged_ = best.trace, best.stopped, best.converged
        if interrupted:
            self.stopped_, self.converged_ = "interrupted", False
        self.n_iter_ = max(1, best.trace.iterations[-1] if len(best.trace) else 0)
        self._keep(best.model, best.precision)
        rng = np.random.default_rng(tasks[0].seed)
        better = better_separation(best.model, data, columns, rng) if best.complete else []
        self._warn(best, len(tasks), tasks[0].tol, better)
        self._online: Statistics | None = None
        return self

    def partial_fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Learn from one more batch of rows `X`: stochastic EM that forgets old batches slowly; `y`
        is ignored.

        The first batch sets the mean and the start.
        """
        first = not hasattr(self, "model_")
        rules = self._rules()
        rows = self._rows(X, reset=first)
        if first:
            priors, data, columns = self._adapted(rows)
            task = self._tasks(data, priors, rules, (), columns)[0]
            assert isinstance(task.start, str)
            rng = np.random.default_rng(task.seed)
            kinds = priors, task.noise, rules.mixing
            model = initial_model(task.start, data, *kinds, rng, columns=columns)
            self.trace_, self.n_iter_ = Trace("mean log-likelihood"), 0
            self.stopped_, self.converged_ = "iterations", False
            self.restarts_, self.selection_ = [], "partial_fit"
            self.posterior_ = self.method_for(priors, rows.shape)[0].text
            self._online = None
        else:
            model = self.model_
            data = self._prepared(rows, model.priors, fit_mean=False)
        statistics, _ = expectation(model, data, self.posterior_of_fit(), rules.learned)
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
        self.warnings_ = []
        return self

    def _adapted(self, rows: Array) -> tuple[tuple[SourcePrior, ...], Observations, Array | None]:
        """Priors, data, and columns that "auto" has found priors with."""
        count = self._source_count(rows)
        priors = tuple(as_priors(self.prior, count))
        self._check_data(rows, priors)
        data = self._prepared(rows, priors, fit_mean=True)
        self.shapes_ = [prior.name for prior in priors]
        complete = data.observed is None and count <= min(data.channels, data.count - 1)
        adapts = self._is_auto and self.mixing == RULES[0] and self.start in ("auto", "ica")
        if not (adapts and complete):
            return priors, data, None
        rng = np.random.default_rng(drawn_seeds(self.random_state, 1)[0])
        noise = self._noise()
        known = None if isinstance(noise, str) else float(np.mean(_channel_variances(noise)))
        found = adapt_priors(data, count, known, rng)
        self.shapes_ = found.names
        return found.priors, data, found.columns

    @property
    def _is_auto(self) -> bool:
        return isinstance(self.prior, str) and self.prior == AUTO

    @property
    def _learned(self) -> str:
        """Which priors EM learns: shapes that were chosen remain as they are."""
        return "none" if self._is_auto else self.learn_prior

    def _tasks(
        self,
        data: Observations,
        priors: tuple[SourcePrior, ...],
        rules: Rules,
        models: Sequence[Model],
        columns: Array | None = None,
    ) -> list[RestartTask]:
        posterior, solver = self.method_for(priors, (data.count, data.channels))
        names = start_kinds(self.start, self.n_init, len(priors), data, rules.mixing)
        seeds = drawn_seeds(self.random_state, len(names))
        noise = self._noise()
        usual = _ERRORS / math.sqrt(data.count) if solver == "scoring" else _TOLERANCE
        tol = usual if self.tol is None else float(self.tol)
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
                solver,
                self.batch_size,
                tol,
                int(self.max_iter),
                self.seconds,
                columns=columns,
            )
            for k, start in enumerate(starts)
        ]

    def _keep(self, model: Model, precision: Precision | None = None) -> None:
        self.model_ = model
        self.mixing_ = model.mixing
        self.noise_ = model.noise.value
        self.priors_ = list(model.priors)
        self.components_ = np.ascontiguousarray(model.noise.unmixing(model.mixing))
        self.doubt_ = None if precision is None else precision.doubt
        self.noise_error_ = None if precision is None else precision.noise_error
        self.collapsed_ = collapsed_sources(model)

    def _warn(self, best: RestartFit, asked: int, tol: float, better: Sequence[str]) -> None:
        texts = []
        if self.stopped_ in CUT_SHORT:
            texts.append(f"stopped early ({self.stopped_}): the best result so far is used")
        elif best.stopped == "unresolved":
            sources = [] if best.precision is None else best.precision.open_sources
            if sources:
                texts.append(
                    "not converged: at the optimum the samples do not tell source "
                    f"{', '.join(map(str, sources))} from others (see doubt_); give more samples, "
                    "or request fewer sources"
                )
            if best.open_noise:
                where = " (see noise_error_)" if best.precision is not None else " (at its floor)"
                texts.append(
                    "not converged: at the optimum the samples do not determine the noise of "
                    f"channel {', '.join(map(str, best.open_noise))}{where}; give more samples or "
                    "channels, or noise='isotropic' or known"
                )
        elif best.stopped == "ambiguous":
            texts.append(
                "not converged: fits from several starts ended at different mixing matrices; raise "
                "n_init, or give more samples"
            )
        elif best.stopped == "stalled":
            texts.append(
                f"not converged: after {self.n_iter_} iterations steps no longer become shorter "
                f"(gradient {best.trace.last_residual:.1e}, tol {tol:.1e}), and more will not "
                "help; give priors closer to the sources, or more samples, or raise tol"
            )
        elif not best.converged:
            texts.append(
                f"not converged in {self.n_iter_} iterations (gradient "
                f"{best.trace.last_residual:.1e}, tol {tol:.1e}); raise max_iter or "
                "tol, or choose another solver"
            )
        if len(self.restarts_) < asked:
            texts.append(f"{asked - len(self.restarts_)} of {asked} restarts were left out")
        if best.collapsed:
            lost = ", ".join(map(str, best.collapsed))
            texts.append(
                f"collapsed: source {lost} has lost its column in the mixing matrix; use "
                "posterior='lr' or 'adatap', a larger n_init, or fewer sources"
            )
        if better:
            way = "n_init=5 or more samples" if self._is_auto else "prior='auto'"
            texts.append(
                "the sources are less independent than those of a first separation, whose shapes "
                f"are {', '.join(better)}: the prior may be wrong, or sources mixed up; use {way}"
            )
        self.warnings_ = texts
        self._log_fit()
        for text in texts:
            warn_caller(f"MeanFieldICA: {text}")

    # ------------------------------------------------------------------ using

    def transform(self, X: ArrayLike) -> Array:
        """Posterior means of the sources, one row per row of `X` (samples, sensors)."""
        moments, _ = self._moments(X)
        return np.ascontiguousarray(moments.mean.T)

    def source_covariance(self, X: ArrayLike) -> Array:
        """Posterior covariance of the sources of each row of `X`, (samples, sources, sources)."""
        moments, data = self._moments(X)
        return self.posterior_of_fit().covariances(self.model_.problem(data), moments)

    def score_samples(self, X: ArrayLike) -> Array:
        """log p(x) of each row of `X` by the posterior's free energy: a bound only for naive and
        variational, exact for exact.
        """
        moments, data = self._moments(X)
        if moments.log_z is None:
            names = ", ".join(sorted({p.name for p in self.priors_ if not p.has_log_partition}))
            raise MethodError(
                f"prior {names} is a mean function without a density: there is no likelihood"
            )
        return np.asarray(moments.log_z + self.model_.log_base(data))

    def n_parameters(self) -> int:
        """All free numbers: mixing, learned noise and learned priors."""
        check_is_fitted(self)
        return self.model_.n_parameters(self._learned)

    def bic(self, X: ArrayLike) -> float:
        """-2 log-likelihood of the rows of `X` + n_parameters log(samples); lower is better, as in
        scikit-learn.
        """
        scores = self.score_samples(X)
        return float(-2.0 * scores.sum() + self.n_parameters() * math.log(len(scores)))

    def aic(self, X: ArrayLike) -> float:
        """-2 log-likelihood of the rows of `X` + 2 n_parameters; lower is better."""
        return float(-2.0 * self.score_samples(X).sum() + 2.0 * self.n_parameters())

    def sample(
        self, n_samples: int = 1, *, random_state: Any = None, return_latents: bool = False
    ) -> Any:
        """Draw `n_samples` rows (n_samples, sensors) with the seed `random_state`; with
        `return_latents` the pair of rows and sources (n_samples, sources).
        """
        check_is_fitted(self)
        if n_samples < 1:
            raise DataError(f"sample: at least 1 sample is needed, got {n_samples}")
        rng = np.random.default_rng(drawn_seeds(random_state, 1)[0])
        sources = np.array([p.sample(rng, n_samples) for p in self.priors_])
        noise = self.model_.noise.sample(rng, self.model_.channels, n_samples)
        rows = (self.mixing_ @ sources + noise).T + self.mean_
        return (rows, sources.T) if return_latents else rows

    @instance_method
    def choose_sources(
        self, X: ArrayLike, n_components: Iterable[int], criterion: str = "bic"
    ) -> Choice:
        """Choose the number of sources of the rows `X`.

        Each number is fitted by a copy of this estimator with all of its options except
        `n_components`; numbers above the first also start from the fit before, grown by a column.
        The estimator itself is not changed. A `checkpoint` is refused, because it holds one fit.

        Parameters
        ----------
        X : (samples, sensors).
        n_components : numbers to try; 0 stands for Gaussians without sources.
        criterion : "bic", with the full count of parameters, or the likelihood of "held-out" rows.

        Returns
        -------
        The `Choice`, whose `best` is the fitted estimator with the chosen number.

        >>> rng = np.random.default_rng(0)
        >>> S = rng.laplace(size=(1000, 2))
        >>> X = S @ rng.normal(size=(2, 4)) + 0.1 * rng.standard_normal((1000, 4))
        >>> MeanFieldICA(random_state=0).choose_sources(X, range(1, 4)).n_components
        2
        """
        return choose_sources(self, X, n_components, criterion)

    def method_for(
        self, priors: Sequence[SourcePrior], shape: tuple[int, ...] | None = None
    ) -> tuple[Posterior, str]:
        """Posterior and solver of a fit with these `priors`, one per source, to rows of this
        `shape`; those that are "auto" are chosen, for many rows if no shape is given.

        >>> from kikuchi.ica.priors.prior import as_priors
        >>> MeanFieldICA().method_for(as_priors("laplace", 3))[1]
        'scoring'
        >>> MeanFieldICA().method_for(as_priors("laplace", 3), (80, 400))[1]
        'lbfgs'
        """
        smooth = all(_is_smooth(p, self._learned) for p in priors)
        free = self.mixing == RULES[0] and parse_mixing_prior(self.mixing_prior).beta == 0
        learned_full = isinstance(self.noise, str) and self.noise == "full"
        smooth = smooth and free and self.batch_size is None and not learned_full
        posterior: str | Posterior = self.posterior
        solver: str = self.solver
        if posterior == "auto":
            enough = shape is None or has_enough_samples(len(priors), shape[0], shape[1])
            drawn = len(priors) <= _MOST_DRAWN and (
                solver == "scoring" or (solver == "auto" and enough)
            )
            posterior = ("importance" if drawn else "adatap") if smooth else "lr"
            posterior = "exact" if _few_states(priors) else posterior
        found = parse_posterior(posterior)
        if solver == "auto":
            best = {"importance": "scoring", "adatap": "lbfgs"}
            solver = best.get(found.name, "em") if smooth else "em"
        return found, solver

    def posterior_of_fit(self) -> Posterior:
        """The posterior of the sources that `transform` and `score` use: the option, and where that
        is "auto" the one that the fit has chosen.
        """
        check_is_fitted(self)
        return parse_posterior(self.posterior_ if self.posterior == "auto" else self.posterior)

    # ------------------------------------------------------------------ checks

    def _noise(self) -> str | Array:
        return self.noise if isinstance(self.noise, str) else np.asarray(self.noise, np.float64)

    def _rules(self) -> Rules:
        self._check_options()
        return Rules(self.mixing, parse_mixing_prior(self.mixing_prior), self._learned)

    def _source_count(self, rows: Array) -> int:
        count = self.n_components
        if count is None:
            count = len(self.prior) if isinstance(self.prior, list | tuple) else rows.shape[1]
        if count < 1:
            raise MethodError("MeanFieldICA: no prior is given; name at least one")
        if len(rows) < count or len(rows) < 2:
            raise DataError(
                f"n_samples = {len(rows)}: {count} sources need at least {max(2, count)} samples"
            )
        return int(count)

    def _rows(self, X: ArrayLike, reset: bool) -> Array:
        """X checked: a finite matrix (NaN where it may be missing), enough values per channel."""
        finite: Any = "allow-nan" if self.missing == "hidden" else True
        return np.asarray(
            validate_data(self, X, reset=reset, dtype=np.float64, ensure_all_finite=finite)
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
        learned_full = isinstance(self.noise, str) and self.noise == "full"
        if missing.any() and (learned_full or np.ndim(self.noise) == 2):
            raise MethodError("missing values need isotropic or diagonal noise, not full")
        if learned_full and len(rows) <= rows.shape[1]:
            raise DataError(
                f"n_samples = {len(rows)} for {rows.shape[1]} channels: full noise needs more "
                "samples than channels; use isotropic or diagonal noise"
            )
        if self.mixing != "free" and all(p.support == "positive" for p in priors):
            _check_positive(rows[~missing])

    def _prepared(self, rows: Array, priors: Sequence[SourcePrior], fit_mean: bool) -> Observations:
        if fit_mean:
            centre = self.center
            if centre == "auto":
                centre = self._is_auto or all(p.symmetric for p in priors)
            self.mean_ = np.nanmean(rows, axis=0) if centre else np.zeros(rows.shape[1])
        return Observations.of((rows - self.mean_).T)

    def _moments(self, X: ArrayLike) -> tuple[Moments, Observations]:
        check_is_fitted(self)
        data = self._prepared(self._rows(X, reset=False), self.model_.priors, fit_mean=False)
        return self.posterior_of_fit().solve(self.model_.problem(data)), data

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

    # ------------------------------------------------------------------ files

    may_be_infinite: ClassVar[tuple[str, ...]] = ("fitted/noise_error_", "restart")

    def _fitted_state(self) -> tuple[Arrays, dict[str, Any], dict[str, Any]]:
        arrays, facts, about = super()._fitted_state()
        arrays |= prefixed(self.model_.to_arrays(), "model")
        for k, fit in enumerate(self.restarts_):
            arrays |= prefixed(fit.to_state(), f"restart{k}")
        if self._online is not None:
            arrays |= prefixed(self._online.to_arrays(), "online")
        return arrays, facts | {"model": self.model_.describe()}, about

    def _restore_state(
        self, arrays: Arrays, facts: Mapping[str, Any], about: Mapping[str, Any]
    ) -> None:
        super()._restore_state(arrays, facts, about)
        fitted = {n: getattr(self, n) for n in ("components_", "doubt_", "noise_error_")}
        self._keep(Model.from_arrays(part(arrays, "model"), facts["model"]))
        told = {"doubt": fitted["doubt_"], "noise_error": fitted["noise_error_"]}
        if any(value is not None for value in told.values()):
            read_precision(told, self.model_)
        for name, value in fitted.items():
            setattr(self, name, value)
        self.restarts_ = []
        while state := part(arrays, f"restart{len(self.restarts_)}"):
            self.restarts_.append(RestartFit.from_state(state))
        self.posterior_of_fit()  # refuses a name that does not exist
        online = part(arrays, "online")
        self._online = Statistics.from_arrays(online) if online else None


def _is_smooth(prior: SourcePrior, learned: str) -> bool:
    """Whether a prior has a density on the whole line that gradients can follow: a log-concave one,
    or a mixture that is not learned.
    """
    smooth = prior.is_proper and prior.support == "real" and prior.states is None
    fixed = isinstance(prior, MixturePrior) and not is_learned(prior, learned)
    return smooth and (prior.log_concave or fixed)


def _channel_variances(noise: Array) -> Array:
    return np.diag(noise) if noise.ndim == 2 else noise


def _few_states(priors: Sequence[SourcePrior]) -> bool:
    """Whether all sources are discrete, with few joint states."""
    lists = [prior.states for prior in priors]
    sizes = [states[0].size for states in lists if states is not None]
    return len(sizes) == len(lists) and math.prod(sizes) <= _MOST_STATES


def _check_positive(values: Array) -> None:
    """Positive sources and nonnegative mixing give positive data."""
    if values.max() <= 0 and values.min() < 0:
        raise DataError("positive sources and mixing cannot give data without positives")
    negative = float(np.mean(values < 0))
    if negative > 0.25:
        raise DataError(
            f"{negative:.0%} of the values are negative, but positive sources and nonnegative "
            "mixing give positive data; shift the data or use mixing='free'"
        )
