"""`InfomaxICA`: noiseless ICA by maximum likelihood, which is maximum output entropy.

Reference: TEH-I19, TEH-L13, TEH-M15, TEH-M16, TEH-M17.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError
from kikuchi.core.interrupts import safe_interrupts
from kikuchi.core.options import option
from kikuchi.core.seeds import generator
from kikuchi.engines.loops.iterate import iterate
from kikuchi.ica import kinds
from kikuchi.ica.estimator import IcaEstimator
from kikuchi.ica.infomax.ascent import CausalAscent, InfomaxAscent, OvercompleteAscent, SquareAscent
from kikuchi.ica.infomax.densities import find_density
from kikuchi.ica.infomax.most_probable import map_sources
from kikuchi.ica.infomax.objective import per_source
from kikuchi.ica.recordings import checked_samples
from kikuchi.training.available import available_unless
from kikuchi.training.checkpoint import Arrays
from kikuchi.training.estimator import check_is_fitted
from kikuchi.training.resuming import StateFile, fit_store

_RANK = 1e-10  # least variance of a direction, as a fraction of the greatest
_NOISE = 0.01  # of the mean variance of the sensors
_ALIKE = 0.98  # cosine of two columns that have become one


def _without_density(ica: InfomaxICA) -> str | None:
    """Return why a fitted estimator has no density of the data; None if it has one."""
    if not hasattr(ica, "components_") or len(ica.components_) == ica.n_features_in_:
        return None
    return (
        "InfomaxICA: a density of the data needs as many sources as sensors, got "
        f"{len(ica.components_)} sources and {ica.n_features_in_} sensors"
    )


@dataclass(eq=False, repr=False)
class InfomaxICA(IcaEstimator):
    """ICA without noise: as many sources as sensors, fewer, or more.

    With as many, the causal view (sources drawn from `p`, mixed by a square matrix) and
    infomax (outputs squashed by the distribution function of `p`, made as spread as possible) have
    the same objective and the same gradient. With more sources than sensors they differ:
    `view="infomax"` learns filters and returns their outputs; `view="causal"` learns a mixing
    matrix with columns of length 1 and returns the most probable sources, with Laplace sources and
    a little noise. The help of each field explains the parameters.

    Attributes
    ----------
    components_, mixing_, mean_
        Filters (sources, sensors), mixing matrix (sensors, sources), mean of the sensors.
    densities_, log_likelihood_, trace_, converged_, stopped_, warnings_, n_iter_
        What the names say; `log_likelihood_` is the mean over samples: with fewer sources that of
        the whitened components that are kept, with over-complete filters the entropy of the outputs
        less that of the data.

    >>> rng = np.random.default_rng(0)
    >>> sources = rng.laplace(size=(2000, 2))
    >>> ica = InfomaxICA().fit(sources @ np.array([[1.0, 0.5], [-0.3, 1.0]]))
    >>> ica.converged_, ica.mixing_.shape
    (True, (2, 2))
    """

    kind = kinds.INFOMAX
    n_components: int | None = option(
        None,
        "Number of sources; none takes one per sensor, fewer keep the strongest principal "
        "components.",
        low=1,
    )
    _: KW_ONLY
    prior: Literal["logistic", "sech", "cauchy", "bimodal", "auto"] = option(
        "logistic",
        "Density of the sources: logistic, sech, cauchy (heavy tails), bimodal (sub-Gaussian), or "
        "auto, which begins with sech and gives each output the kind for which it is stable.",
    )
    solver: Literal["newton", "natural", "gradient"] = option(
        "newton",
        "For at most as many sources as sensors: gradient (Bell and Sejnowski's), natural (the "
        "relative gradient), newton (the relative gradient over an approximate Hessian), each with "
        "a line search, so that the objective never falls.",
    )
    view: Literal["infomax", "causal"] = option(
        "infomax", "What is learned with more sources than sensors: filters or a mixing matrix."
    )
    noise: float | None = option(
        None,
        "Variance of the noise of each sensor in the over-complete causal view; 1 % of the mean "
        "variance of the sensors by default.",
        above=0,
        below=math.inf,
    )
    max_iter: int = option(1000, "Largest number of steps.", low=1)
    tol: float = option(1e-6, "The fit ends when its residual falls to this.", above=0)

    # ------------------------------------------------------------------ fitting

    @safe_interrupts()
    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Learn from rows `X` of sensor values (samples, sensors); `y` is ignored."""
        samples = checked_samples(self, X, reset=True)
        self._check_options()
        self.warnings_ = []
        self.mean_ = samples.mean(axis=0)
        centred = (samples - self.mean_).T
        n_sensors = len(centred)
        n_sources = n_sensors if self.n_components is None else int(self.n_components)
        self.overcomplete_ = n_sources > n_sensors
        file = fit_store(self, samples)
        if self.overcomplete_ and self.view == "causal":
            self._fit_causal(centred, n_sources, file)
        else:
            self._fit_filters(centred, n_sources, file)
        return self

    def _iterate(
        self, ascent: InfomaxAscent, file: StateFile | None, name: str, offset: float
    ) -> None:
        run = self._run()
        run.trace.objective_name, run.offset = name, offset
        ended = iterate(
            type(ascent).step, ascent, run, tol=self.tol, limit=self.max_iter, store=file
        )
        self._conclude(run, ended.iterations, ended.converged)
        self.log_likelihood_ = ascent.value + offset

    def _fit_filters(self, centred: Array, n_sources: int, file: StateFile | None) -> None:
        whitener = _whitener(centred, min(n_sources, len(centred)))
        data = whitener @ centred
        rng = generator(self.random_state)
        ascent: SquareAscent | OvercompleteAscent
        if self.overcomplete_:
            ascent = OvercompleteAscent(data, n_sources, rng, self.prior)
        else:
            ascent = SquareAscent(data, rng, self.prior, self.solver, self.tol)
        offset = 0.0  # of a change of coordinates, which exists if no direction was left out
        if len(data) == len(centred):
            offset = float(np.linalg.slogdet(whitener)[1])
        self._iterate(ascent, file, "mean log likelihood", offset)
        self.components_ = ascent.filters @ whitener
        self.mixing_ = _pinv(self.components_)
        self.densities_ = [density.name for density in ascent.densities]
        if isinstance(ascent, SquareAscent) and len(ascent.unstable()):
            self.warnings_.append(
                "some outputs do not fit their density (sub-Gaussian under a super-Gaussian one or "
                "the reverse): such sources stay mixed; use prior='auto'"
            )

    def _fit_causal(self, centred: Array, n_sources: int, file: StateFile | None) -> None:
        variance = float(np.mean(centred**2))
        noise = _NOISE * variance if self.noise is None else float(self.noise)
        ascent = CausalAscent(centred, n_sources, generator(self.random_state), noise)
        self._iterate(ascent, file, "mean log density at the best sources", 0.0)
        self.mixing_ = ascent.mixing
        self.components_ = _pinv(self.mixing_)
        self.densities_ = ["laplace"] * n_sources
        self.noise_variance_, self.rate_ = noise, ascent.rate
        idle = np.flatnonzero(~np.any(ascent.sources, axis=0))
        if idle.size:
            names = ", ".join(map(str, idle))
            self.warnings_.append(
                f"collapsed: always 0, with columns where they began, are sources {names}; "
                "request fewer sources or give less noise"
            )
            self.converged_ = False
        alike = np.abs(np.triu(self.mixing_.T @ self.mixing_, 1))
        if (alike > _ALIKE).any():
            self.warnings_.append("two columns have become one: request fewer sources")

    # ------------------------------------------------------------------ using

    def transform(self, X: ArrayLike) -> Array:
        """Sources, one row per row of `X`: outputs of the filters, or most probable sources."""
        check_is_fitted(self)
        centred = checked_samples(self, X, reset=False) - self.mean_
        if self.overcomplete_ and self.view == "causal":
            return map_sources(centred, self.mixing_, rate=self.rate_, noise=self.noise_variance_)
        return np.asarray(centred @ self.components_.T)

    @available_unless(_without_density)
    def score_samples(self, X: ArrayLike) -> Array:
        """Log density of each row of `X`; for as many sources as sensors only."""
        check_is_fitted(self)
        densities = [find_density(name) for name in self.densities_]
        energies = per_source(self.transform(X).T.copy(), densities, "energy").sum(axis=0)
        return np.asarray(float(np.linalg.slogdet(self.components_)[1]) - energies)

    # ------------------------------------------------------------------ files

    file_values: ClassVar[Mapping[str, type]] = {"densities_": list, "overcomplete_": bool}

    def _restore_state(
        self, arrays: Arrays, facts: Mapping[str, Any], about: Mapping[str, Any]
    ) -> None:
        super()._restore_state(arrays, facts, about)
        sensors, sources = self.mixing_.shape
        if self.overcomplete_ != (sources > sensors) or len(self.densities_) != sources:
            raise DataError(f"{len(self.densities_)} densities for {sources} sources")
        if self.overcomplete_ and self.view == "causal":
            if not min(float(self.rate_), float(self.noise_variance_)) > 0:
                raise DataError("its rate_ or noise_variance_ is not above 0")
        else:
            self.densities_ = [find_density(str(name)).name for name in self.densities_]


def _whitener(centred: Array, count: int) -> Array:
    """Rows that turn data into `count` uncorrelated directions of variance 1, strongest first."""
    n_sensors, n_samples = centred.shape
    values, vectors = np.linalg.eigh(centred @ centred.T / n_samples)
    values, vectors = values[::-1][:count], vectors[:, ::-1][:, :count]
    rank = int(np.sum(values > _RANK * values[0]))
    if rank < count:
        few = " (there are fewer samples than sensors)" if n_samples <= n_sensors else ""
        raise DataError(
            f"InfomaxICA: the data vary in {rank} directions only{few}; "
            f"set n_components to {rank} or fewer"
        )
    return np.asarray((vectors / np.sqrt(values)).T)


def _pinv(matrix: Array) -> Array:
    return np.ascontiguousarray(np.linalg.pinv(matrix), dtype=np.float64)
