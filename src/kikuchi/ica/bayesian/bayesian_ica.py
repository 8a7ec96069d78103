"""`BayesianICA`: noisy ICA by variational Bayes, which says how many sources there are.

Reference: LAW-I22, LAW-L12, LAW-M9.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.interrupts import safe_interrupts
from kikuchi.core.options import option
from kikuchi.core.seeds import generator
from kikuchi.engines.loops.iterate import iterate
from kikuchi.ica import kinds
from kikuchi.ica.bayesian.search import PruningSearch, SearchOptions
from kikuchi.ica.bayesian.sources import Mixing, Mixtures, source_posterior, tuples_of
from kikuchi.ica.bayesian.updates import Hyperpriors
from kikuchi.ica.estimator import IcaEstimator
from kikuchi.ica.recordings import checked_samples
from kikuchi.training.checkpoint import Arrays, part, prefixed
from kikuchi.training.estimator import check_is_fitted
from kikuchi.training.resuming import fit_store

_MOST_DEFAULT_SOURCES = 5


@dataclass(eq=False, repr=False)
class BayesianICA(IcaEstimator):
    """Noisy linear mixtures of sources whose densities are mixtures of Gaussians.

    Variational Bayes over mixing, noise, means and a relevance for each column (automatic relevance
    determination); the bound on the log evidence never falls. Columns that the data do
    not support are switched off by their relevance, and removed if the bound is then better, so
    that the number of sources is an answer. Time is proportional to components**sources: meant for
    a few sources; MeanFieldICA serves many. The help of each field explains the parameters.

    Attributes
    ----------
    mixing_, components_
        Mixing matrix (sensors, sources), strongest column first, and its pseudo-inverse.
    relevance_
        Precision of every column that was tried, kept ones first: a large one is off.
    relevance_history_
        Relevances after each update of them, before any source was removed.
    n_components_
        Number of sources that are left.
    noise_variance_, mean_, bound_, trace_, converged_, stopped_, warnings_, mixtures_
        What the names say; the bound is in nats and comparable between numbers of sources.

    >>> rng = np.random.default_rng(0)
    >>> sources = rng.standard_normal((300, 2)) * rng.choice([1.0, 7.0], (300, 2))
    >>> mixed = sources @ rng.standard_normal((2, 3)) + 0.1 * rng.standard_normal((300, 3))
    >>> ica = BayesianICA(n_components=3).fit(mixed)
    >>> ica.n_components_, ica.transform(mixed).shape
    (2, (300, 2))
    """

    kind = kinds.BAYESIAN
    n_components: int | None = option(
        None, "Largest number of sources; none takes one per sensor, 5 at most.", low=1
    )
    prior: str | Sequence[Any] = option(
        "heavy-tailed",
        'Density of every source: "heavy-tailed" (weights .5, .3, .2, variances .25, 1, 4), '
        '"sparse" (variances 1 and 50), "bimodal" (means -1 and 1), "gaussian" (then only '
        "the subspace is determined), or (weights, means, variances).",
    )
    _: KW_ONLY
    adapt: bool = option(
        False,
        "Learn the density of each source as well, beginning with `prior`; densities that are "
        "wrong keep phantom sources alive.",
    )
    pruning: Literal["bound", "relevance", "none"] = option(
        "bound",
        "bound removes the least relevant source as long as the bound gains by it, relevance "
        "removes sources whose column has shrunk to its prior, none keeps all.",
    )
    unit: float | Literal["auto"] = option(
        "auto",
        "Unit of the data in which the hyperpriors are meant; auto centres the data and takes "
        "their root mean square, 1 leaves them as they are.",
        above=0,
        below=math.inf,
    )
    relevance_prior: Sequence[float] = option(
        (1e-3, 1e-3), "Shape and rate of the gamma prior of the relevances."
    )
    noise_prior: Sequence[float] = option(
        (1e-6, 1e-6), "Shape and rate of the gamma prior of the noise precision."
    )
    mean_precision: float = option(
        1e-3, "Precision of the prior of the mean of each sensor.", above=0, below=math.inf
    )
    n_init: int = option(
        1, "Starts: principal components, then random rotations; the best bound wins.", low=1
    )
    max_iter: int = option(50, "Largest number of updates of the hyperparameters.", low=1)
    inner_max_iter: int = option(
        100, "Largest number of sweeps over sources, mixing and mean before each of them.", low=1
    )
    tol: float = option(
        3e-6,
        "Sweeps end when one gains less than this, in nats per sample, and so does the fit when an "
        "update of the hyperparameters together with its sweeps does.",
        above=0,
        below=math.inf,
    )

    # ------------------------------------------------------------------ fitting

    @safe_interrupts()
    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Learn from rows `X` of sensor values (samples, sensors); `y` is ignored."""
        samples = checked_samples(self, X, reset=True)
        self._check_options()
        relevance_prior = _positive_pair("relevance_prior", self.relevance_prior)
        noise_prior = _positive_pair("noise_prior", self.noise_prior)
        n_sources = self._wanted_sources(samples.shape[1])
        centre, unit = self._unit_of(samples)
        data = ((samples - centre) / unit).T
        tuples_of(n_sources, Mixtures.shared(self.prior, 1).means.shape[1])
        names = ("prior", "adapt", "pruning", "n_init", "max_iter", "inner_max_iter", "tol")
        options = SearchOptions(
            **{name: getattr(self, name) for name in names},
            hyperpriors=Hyperpriors(*relevance_prior, *noise_prior, self.mean_precision),
        )
        search = PruningSearch(options, data, n_sources, generator(self.random_state))
        run = self._run()
        run.trace.objective_name, run.offset = "lower bound", -data.size * math.log(unit)
        ended = iterate(
            PruningSearch.step, search, run, tol=self.tol, limit=2**31,
            store=fit_store(self, samples),
        )  # fmt: skip
        self._conclude(run, search.done, ended.converged and search.best_converged)
        self._keep(search, centre, unit)
        self.bound_ = search.best.now.bound + run.offset
        return self

    def _wanted_sources(self, n_sensors: int) -> int:
        self.warnings_ = []
        if self.n_components is not None:
            return int(self.n_components)
        if n_sensors > _MOST_DEFAULT_SOURCES:
            self.warnings_.append(
                f"looked for {_MOST_DEFAULT_SOURCES} sources in {n_sensors} sensors; "
                "set n_components to look for more"
            )
        return min(n_sensors, _MOST_DEFAULT_SOURCES)

    def _unit_of(self, samples: Array) -> tuple[Array, float]:
        if self.unit != "auto":
            return np.zeros(samples.shape[1]), float(self.unit)
        return samples.mean(axis=0), float(np.sqrt(samples.var(axis=0).mean()))

    def _keep(self, search: PruningSearch, centre: Array, unit: float) -> None:
        posterior = search.best.now
        strength = np.sum(posterior.weights**2, axis=0) * posterior.mixtures.variance
        order = np.argsort(-strength, kind="stable")
        relevance = posterior.relevance.mean[order]
        self.mixtures_ = posterior.mixtures.kept(order)
        self.mixing_ = np.ascontiguousarray(unit * posterior.weights[:, order])
        covariance = posterior.weight_covariance[np.ix_(order, order)]
        self.mixing_covariance_ = np.ascontiguousarray(unit**2 * covariance)
        self.relevance_ = np.concatenate([relevance, search.dropped]) / unit**2
        self.relevance_history_ = (
            np.array(search.history.now).reshape(-1, search.n_sources) / unit**2
        )
        self.prior_relevance_ = posterior.prior_relevance / unit**2
        self.n_components_ = len(order)
        self.mean_ = centre + unit * posterior.mean
        self.noise_variance_ = unit**2 / posterior.beta
        self.components_ = np.ascontiguousarray(np.linalg.pinv(self.mixing_))

    # ------------------------------------------------------------------ using

    def transform(self, X: ArrayLike) -> Array:
        """Posterior means of the sources, one row per row of `X` (samples, sensors)."""
        check_is_fitted(self)
        samples = checked_samples(self, X, reset=False)
        mixing = Mixing(self.mixing_, self.mixing_covariance_, 1.0 / self.noise_variance_)
        return source_posterior((samples - self.mean_).T, mixing, self.mixtures_).mean.T.copy()

    def score_samples(self, X: ArrayLike) -> Array:
        """Log density of each row of `X` with mixing, mean and noise at their posterior means."""
        check_is_fitted(self)
        samples = checked_samples(self, X, reset=False)
        none = np.zeros((self.n_components_, self.n_components_))
        mixing = Mixing(self.mixing_, none, 1.0 / self.noise_variance_)
        posterior = source_posterior((samples - self.mean_).T, mixing, self.mixtures_)
        noise = math.log(2 * math.pi * self.noise_variance_)
        return np.asarray(posterior.log_z - 0.5 * samples.shape[1] * noise)

    def sample(
        self, n_samples: int = 1, *, random_state: Any = None, return_latents: bool = False
    ) -> Any:
        """Draw `n_samples` rows of sensor values with the seed `random_state`; with
        `return_latents` the pair of rows and the sources (n_samples, sources) that made them.
        """
        check_is_fitted(self)
        if not isinstance(n_samples, int | np.integer) or n_samples < 1:
            raise DataError(f"sample: at least 1 sample is needed, got {n_samples!r}")
        rng = generator(random_state)
        sources = np.empty((n_samples, self.n_components_))
        mixtures = self.mixtures_
        for i in range(self.n_components_):
            chosen = rng.choice(mixtures.means.shape[1], n_samples, p=mixtures.weights[i])
            spread = np.sqrt(mixtures.variances[i, chosen])
            sources[:, i] = mixtures.means[i, chosen] + spread * rng.standard_normal(n_samples)
        noise = rng.standard_normal((n_samples, len(self.mean_)))
        rows = self.inverse_transform(sources) + math.sqrt(self.noise_variance_) * noise
        return (rows, sources) if return_latents else rows

    # ------------------------------------------------------------------ files

    file_layout: ClassVar[Mapping[str, str]] = {
        **IcaEstimator.file_layout,
        "fitted/mixing_covariance_": "sources sources",
        "fitted/relevance_": "begun",
        "fitted/relevance_history_": "updates begun",
        "mixtures/weights": "sources components",
        "mixtures/means": "sources components",
        "mixtures/variances": "sources components",
    }
    file_values: ClassVar[Mapping[str, type]] = {"n_components_": int, "noise_variance_": float}
    positive: ClassVar[tuple[str, ...]] = ("mixtures/variances",)

    def _fitted_state(self) -> tuple[Arrays, dict[str, Any], dict[str, Any]]:
        arrays, facts, about = super()._fitted_state()
        return arrays | prefixed(vars(self.mixtures_), "mixtures"), facts, about

    def _restore_state(
        self, arrays: Arrays, facts: Mapping[str, Any], about: Mapping[str, Any]
    ) -> None:
        super()._restore_state(arrays, facts, about)
        self.mixtures_ = Mixtures(**part(arrays, "mixtures"))
        if self.n_components_ != self.mixing_.shape[1] or not 0 < self.noise_variance_ < math.inf:
            raise DataError("its n_components_ or noise_variance_ is not that of its arrays")
        if not np.allclose(self.mixtures_.weights.sum(axis=1), 1):
            raise DataError("its array mixtures/weights has rows that do not sum to 1")


def _positive_pair(name: str, value: Any) -> tuple[float, float]:
    try:
        shape, rate = (float(number) for number in value)
    except (TypeError, ValueError):
        shape = rate = math.nan
    if not (0 < shape < math.inf and 0 < rate < math.inf):
        raise MethodError(f"BayesianICA: {name} must be two positive numbers, got {value!r}")
    return shape, rate
