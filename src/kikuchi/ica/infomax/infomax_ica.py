"""`InfomaxICA`: noiseless ICA by maximum likelihood, which is maximum output entropy."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.core.budget import Budget
from kikuchi.core.errors import DataError, MethodError, MissingExtraError
from kikuchi.core.lbfgs import Lbfgs
from kikuchi.core.progress import Progress, silent
from kikuchi.core.run import Run, Step
from kikuchi.core.seeds import generator
from kikuchi.core.trace import Trace
from kikuchi.ica.infomax.densities import Density, find_density
from kikuchi.ica.infomax.most_probable import map_sources
from kikuchi.ica.infomax.objective import (
    manifold_objective,
    per_source,
    relative_gradient,
    square_gradient,
    square_objective,
)
from kikuchi.ica.recordings import checked_samples, checked_sources

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils.validation import check_is_fitted
except ImportError:
    raise MissingExtraError("InfomaxICA needs scikit-learn; pip install 'kikuchi[learn]'") from None

Array = NDArray[np.float64]

_CHOICES = {
    "solver": ("newton", "natural", "gradient"),
    "view": ("infomax", "causal"),
    "density": ("auto", "logistic", "sech", "cauchy", "bimodal"),
}
_RANK = 1e-10  # least variance of a direction, as a share of the greatest
_LEAST_CURVATURE = 0.01  # of the approximate Hessian
_TRIALS = 40
_ROUNDS = 10  # changes of densities in `auto`
_NOISE = 0.01  # of the mean variance of the sensors
_ALIKE = 0.98  # cosine of two columns that have become one


class InfomaxICA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """ICA without noise: as many sources as sensors, fewer, or more.

    With as many, the causal view (sources drawn from `p`, mixed by a square matrix, TEH-M15) and
    infomax (outputs squashed by the distribution function of `p`, made as spread as possible,
    TEH-M17) have the same objective and the same gradient (TEH-L13). With more sources than sensors
    they part: `view="infomax"` learns filters and answers their outputs; `view="causal"` learns a
    mixing matrix with columns of length 1 and answers the most probable sources (TEH-I19), with
    Laplace sources and a little noise.

    Parameters
    ----------
    n_sources
        `None` takes one a sensor; fewer keep the strongest principal components.
    density
        `logistic`, `sech`, `cauchy` (heavy tails), `bimodal` (sub-Gaussian), or `auto`, which
        begins with `sech` and gives each output the kind of density for which it is stable.
    solver
        For at most as many sources as sensors: `gradient` (Bell and Sejnowski's), `natural` (the
        relative gradient), `newton` (the relative gradient over an approximate Hessian). All climb
        with a line search, so that the objective never falls (`auto` may change what it is).
    view, noise
        See above; `noise` is the variance of each sensor's noise in the over-complete causal view,
        by default 1 % of the mean variance of the sensors.
    max_iter, tol
        Most steps, and the change below which they end.
    seconds, progress
        Time limit of a fit, after which the best so far is kept and marked; told how far it is.

    Attributes
    ----------
    components_, mixing_, mean_
        Filters (sources, sensors), mixing matrix (sensors, sources), mean of the sensors.
    densities_, log_likelihood_, trace_, converged_, warnings_, n_iter_
        What the names say; `log_likelihood_` is the mean over samples: with fewer sources that of
        the whitened components that are kept, with over-complete filters the entropy of the outputs
        less that of the data.

    >>> rng = np.random.default_rng(0)
    >>> sources = rng.laplace(size=(2000, 2))
    >>> ica = InfomaxICA().fit(sources @ np.array([[1.0, 0.5], [-0.3, 1.0]]))
    >>> ica.converged_, ica.mixing_.shape
    (True, (2, 2))
    """

    def __init__(
        self,
        n_sources: int | None = None,
        *,
        density: str = "logistic",
        solver: Literal["newton", "natural", "gradient"] = "newton",
        view: Literal["infomax", "causal"] = "infomax",
        noise: float | None = None,
        max_iter: int = 1000,
        tol: float = 1e-6,
        seconds: float | None = None,
        progress: Progress | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_sources = n_sources
        self.density = density
        self.solver = solver
        self.view = view
        self.noise = noise
        self.max_iter = max_iter
        self.tol = tol
        self.seconds = seconds
        self.progress = progress
        self.random_state = random_state

    # ------------------------------------------------------------------ fitting

    def fit(self, X: ArrayLike, y: Any = None) -> InfomaxICA:
        """Learn from rows of sensor values."""
        samples = checked_samples(self, X, reset=True)
        self._check_options()
        self.warnings_: list[str] = []
        self.mean_ = samples.mean(axis=0)
        centred = (samples - self.mean_).T
        n_sensors = len(centred)
        n_sources = n_sensors if self.n_sources is None else int(self.n_sources)
        self._n_features_out = n_sources
        self.mixing_: Array
        self.components_: Array
        self.overcomplete_ = n_sources > n_sensors
        if self.overcomplete_ and self.view == "causal":
            self._fit_causal(centred, n_sources)
        else:
            self._fit_filters(centred, n_sources)
        return self

    def _check_options(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise MethodError(
                    f"InfomaxICA: {name} must be one of {', '.join(choices)}, "
                    f"got {getattr(self, name)!r}"
                )
        counts = [("max_iter", self.max_iter)]
        counts += [] if self.n_sources is None else [("n_sources", self.n_sources)]
        for name, value in counts:
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
                raise MethodError(f"InfomaxICA: {name} must be a whole number >= 1, got {value!r}")
        numbers = [("tol", self.tol)] + ([] if self.noise is None else [("noise", self.noise)])
        for name, number in numbers:
            if not isinstance(number, int | float | np.number) or not 0 < number < math.inf:
                raise MethodError(f"InfomaxICA: {name} must be a positive number, got {number!r}")

    def _run(self, steps: Iterator[Step], name: str, offset: float) -> None:
        self.trace_ = Trace(objective_name=name)
        run = Run(
            Budget(seconds=self.seconds).start(), self.progress or silent, self.trace_, offset
        )
        self.n_iter_, self.converged_ = run.iterate(steps, tol=self.tol, limit=self.max_iter)
        if run.stopped in ("seconds", "interrupted"):
            self.warnings_.append(f"stopped early ({run.stopped}): the best so far is kept")
        elif run.stopped == "diverged":
            self.warnings_.append("no step raised the objective any more before tol was reached")
        elif not self.converged_:
            self.warnings_.append(
                f"not converged in {self.n_iter_} iterations; raise max_iter or tol"
            )

    def _fit_filters(self, centred: Array, n_sources: int) -> None:
        whitener = _whitener(centred, min(n_sources, len(centred)))
        data = whitener @ centred
        climb: _FilterAscent = (
            _OvercompleteAscent(self, data, n_sources)
            if self.overcomplete_
            else _SquareAscent(self, data)
        )
        offset = 0.0  # of a change of coordinates, which exists if no direction was left out
        if len(data) == len(centred):
            offset = float(np.linalg.slogdet(whitener)[1])
        self._run(climb.steps(), "mean log likelihood", offset)
        self.components_ = climb.filters @ whitener
        self.mixing_ = _pinv(self.components_)
        self.densities_ = [density.name for density in climb.densities]
        self.log_likelihood_ = climb.value + offset
        if isinstance(climb, _SquareAscent) and len(climb.unstable()):
            self.warnings_.append(
                "some outputs do not fit their density (sub-Gaussian under a super-Gaussian one or "
                "the reverse): such sources stay mixed; use density='auto'"
            )

    def _fit_causal(self, centred: Array, n_sources: int) -> None:
        variance = float(np.mean(centred**2))
        noise = _NOISE * variance if self.noise is None else float(self.noise)
        learner = _CausalAscent(self, centred, n_sources, noise)
        self._run(learner.steps(), "mean log density at the best sources", 0.0)
        self.mixing_ = learner.mixing
        self.components_ = _pinv(self.mixing_)
        self.densities_ = ["laplace"] * n_sources
        self.noise_variance_, self.rate_ = noise, learner.rate
        self.log_likelihood_ = learner.value
        idle = np.flatnonzero(~np.any(learner.sources, axis=0))
        if idle.size:
            names = ", ".join(map(str, idle))
            self.warnings_.append(
                f"collapsed: always 0, with columns where they began, are sources {names}; ask for "
                "fewer sources or give less noise"
            )
            self.converged_ = False
        alike = np.abs(np.triu(self.mixing_.T @ self.mixing_, 1))
        if (alike > _ALIKE).any():
            self.warnings_.append("two columns have become one: ask for fewer sources")

    # ------------------------------------------------------------------ using

    def transform(self, X: ArrayLike) -> Array:
        """Sources, one row a sample: outputs of the filters, or most probable sources."""
        check_is_fitted(self)
        centred = checked_samples(self, X, reset=False) - self.mean_
        if self.overcomplete_ and self.view == "causal":
            return map_sources(centred, self.mixing_, rate=self.rate_, noise=self.noise_variance_)
        return np.asarray(centred @ self.components_.T)

    def inverse_transform(self, X: ArrayLike) -> Array:
        """Sensor values that given sources make."""
        check_is_fitted(self)
        sources = checked_sources(self, X, self.mixing_.shape[1])
        return np.asarray(sources @ self.mixing_.T + self.mean_)

    def score_samples(self, X: ArrayLike) -> Array:
        """Log density of each row; for as many sources as sensors only."""
        check_is_fitted(self)
        if len(self.components_) != self.n_features_in_:
            raise MethodError(
                f"InfomaxICA: a density of the data needs as many sources as sensors, got "
                f"{len(self.components_)} sources and {self.n_features_in_} sensors"
            )
        densities = [find_density(name) for name in self.densities_]
        energies = per_source(self.transform(X).T.copy(), densities, "energy").sum(axis=0)
        return np.asarray(float(np.linalg.slogdet(self.components_)[1]) - energies)

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Mean of `score_samples`."""
        return float(self.score_samples(X).mean())


# ---------------------------------------------------------------------- climbing


class _FilterAscent(ABC):
    """A climb to the best filters of whitened data."""

    def __init__(self, options: InfomaxICA, data: Array, n_sources: int) -> None:
        self.options = options
        self.data = data
        name = "sech" if options.density == "auto" else options.density
        self.densities: list[Density] = [find_density(name)] * n_sources
        self.filters: Array = np.eye(n_sources, len(data))
        self.value = -math.inf

    @abstractmethod
    def steps(self) -> Iterator[Step]:
        """One step an iteration, residual the largest component of the gradient."""


class _SquareAscent(_FilterAscent):
    """As many filters as directions of the data: gradient, natural gradient, or nearly Newton."""

    def __init__(self, options: InfomaxICA, data: Array) -> None:
        super().__init__(options, data, len(data))
        rng = generator(options.random_state)
        self.filters = np.linalg.qr(rng.standard_normal((len(data), len(data))))[0]
        self.length = 1.0
        self.iterations = 0

    def steps(self) -> Iterator[Step]:
        """With `auto`, each change of densities begins a new climb where the last one ended."""
        rounds = _ROUNDS if self.options.density == "auto" else 1
        for number in range(rounds):
            self.value = square_objective(self.filters, self.data, self.densities)
            last = number == rounds - 1
            for residual in self._ascent():
                self.iterations += 1
                reached = residual <= self.options.tol
                if reached and not last and self._choose_densities():
                    break
                yield Step(self.iterations, residual=residual, objective=self.value)
                if reached:
                    return
            else:
                return

    def _ascent(self) -> Iterator[float]:
        """Residual after each step; ends when no step goes up."""
        while True:
            outputs = self.filters @ self.data
            relative = relative_gradient(outputs, self.densities)
            residual = float(np.abs(relative).max())
            yield residual
            if self.options.solver == "gradient":
                direction = square_gradient(self.filters, self.data, self.densities)
                rise = float(np.sum(direction**2))
            elif self.options.solver == "natural":
                direction = relative @ self.filters
                rise = float(np.sum(relative**2))
            else:
                step = self._newton(outputs, relative)
                direction = step @ self.filters
                rise = float(np.sum(step * relative))
            if not self._ascend(direction, rise):
                return

    def _newton(self, outputs: Array, relative: Array) -> Array:
        """The relative gradient over the Hessian of independent outputs, made positive.

        For independent outputs only the pairs (i, j), (j, i) are coupled:
        h_ij = <curvature_i> <u_j^2> on the diagonal of a 2 x 2 block, 1 off it.
        """
        curvature = per_source(outputs, self.densities, "curvature")
        power = outputs**2
        h = np.outer(curvature.mean(axis=1), power.mean(axis=1))
        np.fill_diagonal(h, np.mean(curvature * power, axis=1))
        least = 0.5 * (h + h.T - np.sqrt((h - h.T) ** 2 + 4))
        h = h + np.where(least < _LEAST_CURVATURE, _LEAST_CURVATURE - least, 0.0)
        step = (h.T * relative - relative.T) / (h * h.T - 1)
        own = np.maximum(np.mean(curvature * power, axis=1) + 1, _LEAST_CURVATURE)
        np.fill_diagonal(step, np.diagonal(relative) / own)
        return np.asarray(step)

    def _ascend(self, direction: Array, rise: float) -> bool:
        """A step along `direction` that raises the objective enough, found by halving."""
        length = 1.0 if self.options.solver == "newton" else 2 * self.length
        for _ in range(_TRIALS):
            trial = self.filters + length * direction
            value = square_objective(trial, self.data, self.densities)
            if value >= self.value + 1e-4 * length * rise or self._level(trial, value):
                self.filters, self.value, self.length = trial, value, length
                return True
            length *= 0.5
        return False

    def _level(self, trial: Array, value: float) -> bool:
        """Whether only rounding hides the rise: as good as equal values, a smaller gradient."""
        if value < self.value - 1e-14 * max(1.0, abs(self.value)):
            return False
        new = np.abs(relative_gradient(trial @ self.data, self.densities)).max()
        old = np.abs(relative_gradient(self.filters @ self.data, self.densities)).max()
        return bool(new < old)

    def unstable(self) -> NDArray[np.intp]:
        """Outputs at which the objective is no maximum: <curvature> <u^2> < <slope u>."""
        outputs = self.filters @ self.data
        curvature = per_source(outputs, self.densities, "curvature").mean(axis=1)
        slope = np.mean(per_source(outputs, self.densities, "slope") * outputs, axis=1)
        return np.flatnonzero(curvature * np.mean(outputs**2, axis=1) < slope)

    def _choose_densities(self) -> bool:
        """Give each unstable output the other kind of density; whether any was changed."""
        changed = self.unstable()
        for k in changed:
            name = "bimodal" if self.densities[k].name == "sech" else "sech"
            self.densities[k] = find_density(name)
        return len(changed) > 0


class _OvercompleteAscent(_FilterAscent):
    """More filters than sensors: entropy of outputs on a curved sheet (TEH-M17, 4.15)."""

    def __init__(self, options: InfomaxICA, data: Array, n_sources: int) -> None:
        super().__init__(options, data, n_sources)
        if options.density == "auto":
            raise MethodError("InfomaxICA: density auto needs at most as many sources as sensors")
        rng = generator(options.random_state)
        start = rng.standard_normal((n_sources, len(data)))
        self.filters = start / np.linalg.norm(start, axis=1, keepdims=True)

    def steps(self) -> Iterator[Step]:
        """L-BFGS steps."""

        def objective(point: Array) -> tuple[float, Array]:
            filters = point.reshape(self.filters.shape)
            value, gradient = manifold_objective(filters, self.data, self.densities)
            return -value, -gradient.ravel()

        descent = Lbfgs(objective, self.filters.ravel(), longest=0.5)
        iteration = 0
        while True:
            iteration += 1
            self.filters = descent.point.reshape(self.filters.shape)
            self.value = -descent.value
            yield Step(iteration, residual=descent.residual, objective=self.value)
            if not descent.step():
                return


class _CausalAscent:
    """Mixing matrix with unit columns and the most probable sources, in turn (TEH-M16).

    Each of the two steps raises `-|X - A S|^2 / (2 noise) - rate |S|`; the lengths of the columns
    are held at 1, or they would grow without end.
    """

    def __init__(self, options: InfomaxICA, data: Array, n_sources: int, noise: float) -> None:
        self.data, self.noise = data, noise
        self.rate = math.sqrt(2 * n_sources / float(np.sum(data**2) / data.shape[1]))
        rng = generator(options.random_state)
        power = np.sum(data**2, axis=0)
        loud = np.argsort(-power)[: max(n_sources, data.shape[1] // 10)]
        loud = loud[power[loud] > 0.0]
        chosen = data[:, spread_columns(data[:, loud], n_sources, rng, loud)]
        self.mixing: Array = chosen / np.linalg.norm(chosen, axis=0)
        self.sources = np.zeros((data.shape[1], n_sources))
        self.value = -math.inf

    def steps(self) -> Iterator[Step]:
        """Residual: largest change of an entry of the mixing matrix."""
        iteration = 0
        while True:
            iteration += 1
            before = self.mixing.copy()
            self.sources = map_sources(
                self.data.T, self.mixing, rate=self.rate, noise=self.noise, start=self.sources
            )
            self._update_columns()
            rest = self.data.T - self.sources @ self.mixing.T
            fit = -0.5 * np.sum(rest**2) / self.noise - self.rate * np.abs(self.sources).sum()
            constant = self.mixing.shape[1] * math.log(self.rate / 2)
            constant -= 0.5 * len(self.data) * math.log(2 * math.pi * self.noise)
            self.value = float(fit) / self.data.shape[1] + constant
            residual = float(np.abs(self.mixing - before).max())
            yield Step(iteration, residual=residual, objective=self.value)

    def _update_columns(self) -> None:
        """The best unit column given the others, one after the other."""
        power = self.sources.T @ self.sources
        cross = self.data @ self.sources
        for i in range(len(power)):
            if power[i, i] == 0:
                continue
            pull = cross[:, i] - self.mixing @ power[:, i] + self.mixing[:, i] * power[i, i]
            length = float(np.linalg.norm(pull))
            if length > 0:
                self.mixing[:, i] = pull / length


def spread_columns(
    candidates: Array, count: int, rng: np.random.Generator, names: NDArray[np.intp]
) -> NDArray[np.intp]:
    """`count` of the `names` whose columns point in different directions, each chosen with a
    chance that grows with its angle to those chosen before.
    """
    units = candidates / np.maximum(np.linalg.norm(candidates, axis=0), 1e-300)
    chosen = [int(rng.integers(units.shape[1]))]
    nearest = np.zeros(units.shape[1])
    for _ in range(1, count):
        nearest = np.maximum(nearest, np.abs(units[:, chosen[-1]] @ units))
        chance = np.maximum(1 - nearest**2, 0.0) ** 2
        if chance.sum() == 0:
            raise DataError("all samples lie on fewer lines than sources; ask for fewer sources")
        chosen.append(int(rng.choice(len(chance), p=chance / chance.sum())))
    return np.asarray(names[chosen])


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
            f"set n_sources to {rank} or fewer"
        )
    return np.asarray((vectors / np.sqrt(values)).T)


def _pinv(matrix: Array) -> Array:
    return np.asarray(np.linalg.pinv(matrix), dtype=np.float64)
