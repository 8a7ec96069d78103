"""`BayesianICA`: noisy ICA by variational Bayes, which says how many sources there are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.budget import Budget
from kikuchi.core.errors import DataError, MethodError, MissingExtraError
from kikuchi.core.progress import Progress, silent
from kikuchi.core.run import Run, Step
from kikuchi.core.seeds import generator
from kikuchi.core.trace import Trace
from kikuchi.ica.bayesian.sources import Array, Mixing, Mixtures, source_posterior, tuples_of
from kikuchi.ica.bayesian.updates import BayesianPosterior, Hyperpriors
from kikuchi.ica.recordings import checked_samples, checked_sources

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils.validation import check_is_fitted
except ImportError:
    raise MissingExtraError(
        "BayesianICA needs scikit-learn; pip install 'kikuchi[learn]'"
    ) from None

_MOST_DEFAULT_SOURCES = 5
_FIRST_NOISE = 0.1  # of the variance of the data


class BayesianICA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Noisy linear mixtures of sources whose densities are mixtures of Gaussians (LAW-M9).

    Variational Bayes over mixing, noise, means and a relevance for each column (automatic relevance
    determination); the bound on the log evidence never falls (LAW-I22). Columns that the data do
    not support are switched off by their relevance, and taken away if the bound is then better
    (LAW-L12), so that the number of sources is an answer. Time is proportional to
    components**sources: meant for a few sources; MeanFieldICA serves many.

    Parameters
    ----------
    n_sources
        The most sources to look for; `None` takes one a sensor, 5 at most.
    sources
        Density of every source: `"sparse"` (variances 1 and 50), `"bimodal"` (means -1 and 1),
        `"gaussian"` (then only the subspace is determined), or (weights, means, variances).
    adapt
        Learn the density of each source as well, beginning with `sources`. Densities that are wrong
        keep phantom sources alive.
    prune
        `"bound"`: take away the least relevant source as long as the bound gains by it.
        `"relevance"`: take away sources whose column has shrunk to its prior. `"none"`: keep all.
    unit
        The unit of the data in which the hyperpriors below are meant. `"auto"` centres the data and
        takes their root mean square as the unit; 1.0 leaves them as they are.
    relevance_prior, noise_prior
        Shape and rate of the gamma priors of relevances and of the noise precision.
    mean_precision
        Precision of the prior of the mean of each sensor.
    restarts
        Starts: principal components, then random rotations of them; the best bound wins.
    max_iter, inner_iterations
        Updates of the hyperparameters in one fit, and sweeps over sources, mixing and mean
        before each of them.
    tol
        Sweeps end when one gains less than this, in nats a sample, and so does the fit when an
        update of the hyperparameters together with its sweeps does.
    seconds, progress
        Time limit of a fit, after which the best so far is kept and marked; told how far it is.

    Attributes
    ----------
    mixing_, components_
        Mixing matrix (sensors, sources), strongest column first, and its pseudo-inverse.
    relevance_
        Precision of every column that was tried, kept ones first: a large one is off.
    relevance_history_
        Relevances after each update of them, before any source was taken away.
    n_sources_
        Number of sources that are left.
    noise_variance_, mean_, bound_, trace_, converged_, warnings_, mixtures_
        What the names say; the bound is in nats and comparable between numbers of sources.

    >>> rng = np.random.default_rng(0)
    >>> sources = rng.standard_normal((300, 2)) * rng.choice([1.0, 7.0], (300, 2))
    >>> mixed = sources @ rng.standard_normal((2, 3)) + 0.1 * rng.standard_normal((300, 3))
    >>> ica = BayesianICA(n_sources=3).fit(mixed)
    >>> ica.n_sources_, ica.transform(mixed).shape
    (2, (300, 2))
    """

    def __init__(
        self,
        n_sources: int | None = None,
        sources: Any = "sparse",
        *,
        adapt: bool = False,
        prune: Literal["bound", "relevance", "none"] = "bound",
        unit: float | Literal["auto"] = "auto",
        relevance_prior: tuple[float, float] = (1e-3, 1e-3),
        noise_prior: tuple[float, float] = (1e-6, 1e-6),
        mean_precision: float = 1e-3,
        restarts: int = 1,
        max_iter: int = 50,
        inner_iterations: int = 100,
        tol: float = 3e-6,
        seconds: float | None = None,
        progress: Progress | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_sources = n_sources
        self.sources = sources
        self.adapt = adapt
        self.prune = prune
        self.unit = unit
        self.relevance_prior = relevance_prior
        self.noise_prior = noise_prior
        self.mean_precision = mean_precision
        self.restarts = restarts
        self.max_iter = max_iter
        self.inner_iterations = inner_iterations
        self.tol = tol
        self.seconds = seconds
        self.progress = progress
        self.random_state = random_state

    # ------------------------------------------------------------------ fitting

    def fit(self, X: ArrayLike, y: Any = None) -> BayesianICA:
        """Learn from rows of sensor values."""
        samples = checked_samples(self, X, reset=True)
        self._check_options()
        n_sources = self._wanted_sources(samples.shape[1])
        centre, unit = self._unit_of(samples)
        data = ((samples - centre) / unit).T
        tuples_of(n_sources, Mixtures.shared(self.sources, 1).means.shape[1])
        offset = -data.size * math.log(unit)
        trace = Trace(objective_name="lower bound")
        run = Run(Budget(seconds=self.seconds).start(), self.progress or silent, trace, offset)
        search = _PruningSearch(self, data, n_sources)
        _, finished = run.iterate(search.steps(), tol=self.tol, limit=2**31)
        self._keep(search, finished, run.stopped, centre, unit)
        self.trace_ = trace
        self.bound_ = search.best.bound + offset
        return self

    def _check_options(self) -> None:
        whole = ("restarts", "max_iter", "inner_iterations")
        for name in whole if self.n_sources is None else (*whole, "n_sources"):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
                raise MethodError(f"BayesianICA: {name} must be a whole number >= 1, got {value!r}")
        numbers = [("tol", self.tol), ("mean_precision", self.mean_precision)]
        numbers += _pair("relevance_prior", self.relevance_prior)
        numbers += _pair("noise_prior", self.noise_prior)
        if self.unit != "auto":
            numbers.append(("unit", self.unit))
        for name, value in numbers:
            good = isinstance(value, int | float | np.number) and 0 < value < math.inf
            if not good:
                raise MethodError(f"BayesianICA: {name} must be a positive number, got {value!r}")
        if self.prune not in ("bound", "relevance", "none"):
            raise MethodError(
                f"BayesianICA: prune must be bound, relevance or none, got {self.prune!r}"
            )

    def _wanted_sources(self, n_sensors: int) -> int:
        self.warnings_: list[str] = []
        if self.n_sources is not None:
            return int(self.n_sources)
        if n_sensors > _MOST_DEFAULT_SOURCES:
            self.warnings_.append(
                f"looked for {_MOST_DEFAULT_SOURCES} sources in {n_sensors} sensors; "
                "set n_sources to look for more"
            )
        return min(n_sensors, _MOST_DEFAULT_SOURCES)

    def _unit_of(self, samples: Array) -> tuple[Array, float]:
        if self.unit != "auto":
            return np.zeros(samples.shape[1]), float(self.unit)
        return samples.mean(axis=0), float(np.sqrt(samples.var(axis=0).mean()))

    def _keep(
        self, search: _PruningSearch, finished: bool, stopped: str, centre: Array, unit: float
    ) -> None:
        posterior, dropped = search.best, search.dropped
        strength = np.sum(posterior.weights**2, axis=0) * posterior.mixtures.variance
        order = np.argsort(-strength, kind="stable")
        relevance = posterior.relevance.mean[order]
        self.mixtures_ = posterior.mixtures.kept(order)
        self.mixing_ = unit * posterior.weights[:, order]
        self.mixing_covariance_ = unit**2 * posterior.weight_covariance[np.ix_(order, order)]
        self.relevance_ = np.concatenate([relevance, dropped]) / unit**2
        self.relevance_history_ = np.array(search.history).reshape(-1, search.n_sources) / unit**2
        self.prior_relevance_ = posterior.prior_relevance / unit**2
        self.n_sources_ = len(order)
        self._n_features_out = self.n_sources_
        self.mean_ = centre + unit * posterior.mean
        self.noise_variance_ = unit**2 / posterior.beta
        self.components_ = np.linalg.pinv(self.mixing_)
        self.n_iter_ = search.sweeps
        self.converged_ = finished and search.best_converged
        if stopped in ("seconds", "interrupted"):
            self.warnings_.append(f"stopped early ({stopped}): the best so far is kept")
        elif not self.converged_:
            self.warnings_.append(
                f"not converged in {self.max_iter} iterations; raise max_iter or tol"
            )

    # ------------------------------------------------------------------ using

    def transform(self, X: ArrayLike) -> Array:
        """Posterior means of the sources, one row a sample."""
        check_is_fitted(self)
        samples = checked_samples(self, X, reset=False)
        mixing = Mixing(self.mixing_, self.mixing_covariance_, 1.0 / self.noise_variance_)
        return source_posterior((samples - self.mean_).T, mixing, self.mixtures_).mean.T.copy()

    def inverse_transform(self, X: ArrayLike) -> Array:
        """Sensor values without noise that given sources make."""
        check_is_fitted(self)
        sources = checked_sources(self, X, self.mixing_.shape[1])
        return np.asarray(sources @ self.mixing_.T + self.mean_)

    def score_samples(self, X: ArrayLike) -> Array:
        """Log density of each row with mixing, mean and noise at their posterior means."""
        check_is_fitted(self)
        samples = checked_samples(self, X, reset=False)
        mixing = Mixing(self.mixing_, np.zeros((self.n_sources_,) * 2), 1.0 / self.noise_variance_)
        found = source_posterior((samples - self.mean_).T, mixing, self.mixtures_)
        noise = math.log(2 * math.pi * self.noise_variance_)
        return np.asarray(found.log_z - 0.5 * samples.shape[1] * noise)

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Mean of `score_samples`."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[Array, Array]:
        """New rows of sensor values and the sources that made them."""
        check_is_fitted(self)
        if not isinstance(n_samples, int | np.integer) or n_samples < 1:
            raise DataError(f"sample: at least 1 sample is needed, got {n_samples!r}")
        rng = generator(random_state)
        sources = np.empty((n_samples, self.n_sources_))
        mixtures = self.mixtures_
        for i in range(self.n_sources_):
            chosen = rng.choice(mixtures.means.shape[1], n_samples, p=mixtures.weights[i])
            spread = np.sqrt(mixtures.variances[i, chosen])
            sources[:, i] = mixtures.means[i, chosen] + spread * rng.standard_normal(n_samples)
        noise = rng.standard_normal((n_samples, len(self.mean_)))
        return self.inverse_transform(sources) + math.sqrt(self.noise_variance_) * noise, sources


class _PruningSearch:
    """Starts, then pruning; `best` is the posterior to keep at any moment."""

    def __init__(self, options: BayesianICA, data: Array, n_sources: int) -> None:
        self.options = options
        self.data = data
        self.n_sources = n_sources
        self.rng = generator(options.random_state)
        self.sweeps = 0
        self.dropped: list[float] = []
        self.best_converged = False
        self.history: list[Array] = []
        self.best = self._start(0)

    def steps(self) -> Iterator[Step]:
        """One step a sweep; the objective of each is the bound of the best so far."""
        yield from self._fit(self.best, trial=False)
        for number in range(1, self.options.restarts):
            yield from self._fit(self._start(number), trial=True)
        if self.options.prune == "relevance":
            self._drop_shrunken()
        while self.options.prune == "bound" and self.best.weights.shape[1] > 1:
            source = int(np.argmax(self.best.relevance.mean))
            before, relevance = self.best, float(self.best.relevance.mean[source])
            yield from self._fit(self.best.without(source), trial=True)
            if self.best is before:
                break
            self.dropped.insert(0, relevance)
        yield Step(self.sweeps, residual=0.0, objective=self.best.bound)

    def _fit(self, posterior: BayesianPosterior, *, trial: bool) -> Iterator[Step]:
        """Updates until converged; a trial replaces the best only if its bound is greater."""
        converged = False
        bound = posterior.bound
        floor = self.best.bound if trial else -math.inf
        history: list[Array] = []
        tol = self.options.tol * self.data.shape[1]
        for _ in range(self.options.max_iter):
            before = bound
            for _ in range(self.options.inner_iterations):
                last = bound
                _sweep(posterior)
                bound = posterior.bound
                self.sweeps += 1
                yield Step(self.sweeps, objective=max(bound, floor))
                if bound - last <= tol:
                    break
            posterior.update_relevance()
            posterior.update_noise()
            if self.options.adapt:
                posterior.adapt_sources()
            history.append(posterior.relevance.mean)
            bound = posterior.bound
            if bound - before <= tol:
                converged = True
                break
        if bound > floor:
            self.best, self.best_converged = posterior, converged
            if posterior.weights.shape[1] == self.n_sources:
                self.history = history

    def _drop_shrunken(self) -> None:
        """Take away sources whose relevance has come near that of a column of zeros."""
        limit = 0.5 * self.best.prior_relevance
        while self.best.weights.shape[1] > 1 and self.best.relevance.mean.max() >= limit:
            source = int(np.argmax(self.best.relevance.mean))
            self.dropped.insert(0, float(self.best.relevance.mean[source]))
            self.best = self.best.without(source)

    def _start(self, number: int) -> BayesianPosterior:
        """Principal components scaled to sources of their prior variance, rotated if not first."""
        options = self.options
        mixtures = Mixtures.shared(options.sources, self.n_sources)
        centred = self.data - self.data.mean(axis=1, keepdims=True)
        base, size, _ = np.linalg.svd(centred, full_matrices=False)
        rank = min(self.n_sources, len(size))
        weights = np.zeros((len(self.data), self.n_sources))
        weights[:, :rank] = base[:, :rank] * size[:rank] / math.sqrt(self.data.shape[1])
        extra = self.n_sources - rank
        if extra:
            scale = np.sqrt(np.mean(weights[:, :rank] ** 2))
            weights[:, rank:] = scale * self.rng.standard_normal((len(self.data), extra))
        if number:
            weights = weights @ _rotation(self.n_sources, self.rng)
        priors = Hyperpriors(*options.relevance_prior, *options.noise_prior, options.mean_precision)
        noise = _FIRST_NOISE * float(centred.var())
        return BayesianPosterior(
            self.data, weights / np.sqrt(mixtures.variance), noise, mixtures, priors
        )


def _sweep(posterior: BayesianPosterior) -> None:
    posterior.update_mean()
    posterior.update_sources()
    posterior.update_mixing()


def _rotation(size: int, rng: np.random.Generator) -> Array:
    base, corner = np.linalg.qr(rng.standard_normal((size, size)))
    return np.asarray(base * np.sign(np.diagonal(corner)))


def _pair(name: str, value: Any) -> list[tuple[str, Any]]:
    try:
        shape, rate = value
    except (TypeError, ValueError):
        raise MethodError(f"BayesianICA: {name} must be (shape, rate), got {value!r}") from None
    return [(name, shape), (name, rate)]
