r"""How many sources there are: BIC with the full count of parameters, or held-out rows.

BIC(I) = log p(X | fit) - |Omega| / 2 log N with |Omega| = D I + noise + learned priors; the
greatest wins. I = 0 stands for the better of two Gaussians without sources: isotropic, and with a
free covariance (left out where values are missing, or where the covariance is singular).

Reference: HOJ-L8.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError, MethodError
from kikuchi.ica.estimator import drawn_seeds
from kikuchi.ica.initialisation import principal
from kikuchi.ica.model import Model, Observations
from kikuchi.ica.noise import AUTO, restore_noise
from kikuchi.ica.priors.prior import AUTO as ADAPTED
from kikuchi.ica.priors.prior import SourcePrior, as_priors

CRITERIA = ("bic", "held-out")
_HELD_OUT = 0.2
_MOST_CHANNELS = 500  # for the Gaussian with a free covariance
_SINGULAR = 1e-10  # least variance of a direction, as a fraction of the greatest
_NEW_FRACTION = 0.5  # of the residual's leading direction that a new column takes


class _SourceEstimator(Protocol):
    """What is asked of an estimator whose number of sources is chosen."""

    prior: Any
    n_components: int | None
    checkpoint: Any
    random_state: Any

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...

    def _fit(self, X: ArrayLike, models: Sequence[Model]) -> Any: ...


_Estimator = TypeVar("_Estimator", bound=_SourceEstimator)


@dataclass(frozen=True)
class Choice:
    """The number of sources that was chosen, and everything it was chosen from.

    `values` holds the criterion of the kept fit by number of sources, greatest best: log-likelihood
    minus penalty for "bic" (0 sources: the better Gaussian), mean held-out log-likelihood of a row
    for "held-out". `averages` are means over restarts by their own energies (bic only).
    `estimators` holds the fits; `best` is the chosen one, None when no source is better than any.
    """

    n_components: int
    criterion: str
    values: dict[int, float]
    averages: dict[int, float]
    null_models: dict[str, float]
    estimators: dict[int, Any]

    @property
    def best(self) -> Any:
        """The estimator with the chosen number of sources."""
        return self.estimators.get(self.n_components)

    @property
    def probabilities(self) -> dict[int, float]:
        """Posterior probabilities of the numbers, exp(BIC) normalised; for "bic" only."""
        if self.criterion != "bic":
            raise MethodError("probabilities of the number of sources need criterion='bic'")
        peak = max(self.values.values())
        weights = {k: math.exp(v - peak) for k, v in self.values.items()}
        total = sum(weights.values())
        return {k: w / total for k, w in weights.items()}


def choose_sources(
    estimator: _Estimator, X: ArrayLike, sources: Iterable[int], criterion: str
) -> Choice:
    """Fit each number of sources with the options of `estimator`, the larger ones also from the
    smaller ones grown by a column.
    """
    if criterion not in CRITERIA:
        raise MethodError(f"criterion must be one of {', '.join(CRITERIA)}, got {criterion!r}")
    if estimator.checkpoint is not None:
        raise MethodError(
            "choose_sources makes several fits, but a checkpoint holds one; set checkpoint=None"
        )
    numbers = _numbers(sources)
    rows = np.asarray(X, dtype=np.float64)
    if rows.ndim != 2:
        raise DataError(f"choose_sources: rows of data are needed, got shape {rows.shape}")
    _check_likelihood(estimator.prior)
    seed = drawn_seeds(estimator.random_state, 1)[0]
    train, test = _split(rows, criterion, seed)
    values: dict[int, float] = {}
    averages: dict[int, float] = {}
    fitted: dict[int, _Estimator] = {}
    last: _Estimator | None = None
    for count in (k for k in numbers if k > 0):
        now = _with_sources(estimator, count, seed)
        now._fit(train, () if last is None else _grown(last, train, now))
        fitted[count] = last = now
        values[count] = _value(now, train, test, criterion)
        if criterion == "bic":
            averages[count] = _average(now, len(train))
    centre = _centre(estimator, train)
    nulls = _null_models(train - centre, test - centre, criterion)
    if 0 in numbers:
        values[0] = max(nulls.values())
    best = max(values, key=lambda k: (values[k], -k))
    return Choice(best, criterion, dict(sorted(values.items())), averages, nulls, fitted)


def _with_sources(estimator: _Estimator, count: int, seed: int) -> _Estimator:
    """An estimator of the same options, but for the number of sources and the seed.

    Options are passed on as they are: copies of a progress bar would draw over each other.
    """
    options = estimator.get_params(deep=False) | {"n_components": count, "random_state": seed}
    return type(estimator)(**options)


def _numbers(sources: Any) -> list[int]:
    numbers = list(sources) if isinstance(sources, Iterable) else []
    if not numbers or not all(isinstance(k, int | np.integer) and k >= 0 for k in numbers):
        raise MethodError(f"sources must be whole numbers >= 0, got {sources!r}")
    return sorted({int(k) for k in numbers})


def _value(fit: Any, train: Array, test: Array, criterion: str) -> float:
    if criterion == "bic":
        return -0.5 * float(fit.bic(train))
    return float(fit.score(test))


def _average(fit: Any, rows: int) -> float:
    penalty = 0.5 * fit.n_parameters() * math.log(rows)
    return float(np.mean([f.objective for f in fit.restarts_]) * rows - penalty)


def _split(rows: Array, criterion: str, seed: int) -> tuple[Array, Array]:
    if criterion == "bic":
        return rows, rows
    count = max(1, round(_HELD_OUT * len(rows)))
    order = np.random.default_rng(seed).permutation(len(rows))
    if len(rows) - count < 2:
        raise DataError(f"held-out rows: {len(rows)} rows are too few to split")
    return rows[np.sort(order[count:])], rows[np.sort(order[:count])]


def _grown(last: Any, train: Array, wanted: Any) -> list[Model]:
    """Models of the kept fit with more columns, along what it leaves unexplained; none where priors
    adapt, which need a separation of their own, or where the new one would not fit the kept ones.
    """
    model: Model = last.model_
    adapts = isinstance(wanted.prior, str) and wanted.prior == ADAPTED
    if adapts and (wanted.n_components <= model.channels or any(p.states for p in model.priors)):
        return []
    more = wanted.n_components - model.sources
    priors = tuple(as_priors(wanted.prior, wanted.n_components))
    data = Observations.of((train - last.mean_).T)
    moments = last.posterior_of_fit().solve(model.problem(data))
    rest = data.x - model.mixing @ moments.mean
    if data.observed is not None:
        rest = rest * data.observed
    if more > min(rest.shape):
        return []
    rest = rest - rest.mean(axis=1, keepdims=True)
    vectors, values, _ = principal(rest, more, np.random.default_rng(0))
    columns = vectors * np.sqrt(_NEW_FRACTION * values)
    kept = (*model.priors, *priors[model.sources :])
    noise = model.noise
    if isinstance(wanted.noise, str) and wanted.noise == AUTO:  # chosen again with more sources
        noise = restore_noise("isotropic", np.asarray(noise.value), np.asarray(noise.floor), True)
    models = []
    for sign in (1.0, -1.0):
        mixing = np.hstack([model.mixing, sign * columns])
        if wanted.mixing != "free":
            mixing = np.abs(mixing)
        models.append(Model(mixing, noise, kept))
    return models


def _kinds(prior: Any) -> list[SourcePrior]:
    """The priors that are meant, one for all or one per source."""
    return as_priors(prior, 1 if isinstance(prior, str | SourcePrior) else len(prior))


def _check_likelihood(prior: Any) -> None:
    names = sorted({p.name for p in _kinds(prior) if not p.has_log_partition})
    if names:
        raise MethodError(
            f"prior {', '.join(names)} is a mean function without a density: there is no "
            "likelihood to choose the number of sources by"
        )


def _centre(estimator: Any, train: Array) -> Array:
    """What the fits take away from the rows."""
    centred = estimator.center
    if centred == "auto":
        centred = all(p.symmetric for p in _kinds(estimator.prior))
    return np.nanmean(train, axis=0) if centred else np.zeros(train.shape[1])


def _null_models(train: Array, test: Array, criterion: str) -> dict[str, float]:
    """The criterion of Gaussians without sources, by name; `test` are the rows that are
    scored, both are centred.
    """
    count, channels = train.shape
    variance = float(np.nanmean(train**2))
    squares = test[~np.isnan(test)] ** 2
    level = -0.5 * float(np.sum(squares / variance + math.log(2.0 * math.pi * variance)))
    levels = {"isotropic": (level, 1)}
    complete = not (np.isnan(train).any() or np.isnan(test).any())
    if complete and channels < min(count, _MOST_CHANNELS):
        values, vectors = np.linalg.eigh(train.T @ train / count)
        if values[0] > _SINGULAR * values[-1]:  # centred or detrended channels have no density
            squares = (test @ vectors) ** 2
            level = -0.5 * float(np.sum(squares / values + np.log(2.0 * math.pi * values)))
            levels["covariance"] = (level, channels * (channels + 1) // 2)
    if criterion == "bic":
        return {k: level - 0.5 * size * math.log(count) for k, (level, size) in levels.items()}
    return {k: level / len(test) for k, (level, _) in levels.items()}
