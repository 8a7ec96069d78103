"""`BayesianMLPRegressor`: regression by a network whose weights have a variational posterior."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin

from kikuchi.bayesnn.bound import GammaDensity, Hyper, RegressionData, output
from kikuchi.bayesnn.fitting import RegressionProblem, VariationalFit, final_bound, random_starts
from kikuchi.bayesnn.network import Network, precisions
from kikuchi.bayesnn.posteriors import WeightPosterior, Weights, weight_posterior
from kikuchi.bayesnn.structure import Pruning
from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.interrupts import safe_interrupts
from kikuchi.core.options import option
from kikuchi.core.run import Run
from kikuchi.core.seeds import Seed, generator
from kikuchi.training.checkpoint import Arrays
from kikuchi.training.estimator import Estimator, check_is_fitted, of_type, validate_data
from kikuchi.training.resuming import StateFile, fit_checkpoint, iterate_resumable

_BLOCK = 512  # rows of one prediction; fewer are padded to a power of two, so that few are compiled
_NO_EFFECT = 0.01  # standard deviations of the target per standard deviation of an input
_FITTED = ("flat", "scale", "kept", "input_mean", "input_scale", "relevance_")


class _NetworkFit:
    """What a fit leaves behind; annotations of a dataclass would be options."""

    bound_: float
    relevance_: Array
    hidden_kept_: Array
    inputs_kept_: Array
    noise_: float
    precisions_: dict[str, float]
    pruning_: list[dict[str, Any]]


@partial(jax.jit, static_argnames=("posterior",))
def _slopes(posterior: WeightPosterior, flat: Any, weights: Weights, x: Any) -> Any:
    """Slopes of the predictive mean at each row, by each input."""
    q = posterior.read(flat[: posterior.size], weights)
    return jax.grad(lambda rows: jnp.sum(posterior.output(q, rows).mean))(x)[:, :-1]


@partial(jax.jit, static_argnames=("network",))
def _outputs(network: Network, draws: Any, x: Any) -> Any:
    """Outputs (rows, draws) of several networks."""
    return jax.vmap(lambda w: network.output(w, x), out_axes=1)(draws)


@dataclass(eq=False, repr=False)
class BayesianMLPRegressor(RegressorMixin, Estimator, _NetworkFit):  # type: ignore[misc]
    """Regression by a network of one hidden layer with a variational posterior of its weights.

    The posterior maximises a lower bound on the log evidence that has no sampling noise: units are
    erf functions, whose moments under Gaussian weights are known in closed form. Precisions of the
    weights and of the noise have gamma priors and posteriors. Inputs and targets are standardised
    inside; everything is answered in their own units.

    Attributes
    ----------
    bound_ (lower bound on the log density of the targets), relevance_ (root mean square slope of
    the prediction by each input, in standard deviations of target and input), noise_ (standard
    deviation), precisions_ (mean precision of each group of weights, standardised), hidden_kept_
    and inputs_kept_ (which have not been removed by `prune`), pruning_ (the trials of `prune`),
    trace_, converged_, stopped_, n_iter_, warnings_.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(80, 2))
    >>> y = np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=80)
    >>> net = BayesianMLPRegressor(3, posterior="diagonal", restarts=2, random_state=0).fit(X, y)
    >>> mean, sd = net.predict(X, return_std=True)
    >>> bool(np.mean(np.abs(mean - y) < 2 * sd) > 0.9), bool(0.05 < net.noise_ < 0.2)
    (True, True)
    >>> bool(net.relevance_[1] < 0.1 < net.relevance_[0])
    True

    Reference: LAW-M6, LAW-I18, LAW-I21.
    """

    file_kind: ClassVar[str] = "bayesian-network"

    hidden: int = option(8, "Number of hidden units.", low=1)
    posterior: str = option(
        "layered", "Posterior of the weights: diagonal, layered, full, or mixture:M (diagonal)."
    )
    prior: Literal["single", "grouped", "ard", "nrd"] = option(
        "ard", "Weights that share a precision: single, grouped, ard (by input) or nrd (by nodes)."
    )
    _: KW_ONLY
    skip: bool = option(False, "Also connect inputs with the output.")
    restarts: int = option(5, "Random starts, of which the best bound is kept.", low=1)
    max_iter: int = option(1000, "Largest number of steps of each restart and of the rest.", low=1)
    tol: float = option(
        0.01, "The fit has converged when ten steps raise the bound by less (nats).", low=0
    )
    weight_shape: float = option(3e-4, "Shape of the gamma prior of weight precisions.", above=0)
    weight_rate: float = option(1e-3, "Rate of the gamma prior of weight precisions.", above=0)
    noise_shape: float = option(0.02, "Shape of the gamma prior of the noise precision.", above=0)
    noise_rate: float = option(1e-4, "Rate of the gamma prior of the noise precision.", above=0)

    # ------------------------------------------------------------------ fitting

    @safe_interrupts()
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit the posterior to rows of X and targets y (or go on from the checkpoint)."""
        self._check_options()
        rows, targets = self._checked(X, y)
        self._network = Network(rows.shape[1], self.hidden, self.skip)
        weight_posterior(self.posterior, self._network)
        rng = generator(self.random_state)
        with jax.enable_x64(True):
            problem = self._problem(rows, targets)
            starts = random_starts(self._network, self.restarts, rng)
            fit = VariationalFit(problem, starts, self.max_iter, self.tol)
            run = self._bound_run(len(rows))
            checkpoint = fit_checkpoint(self, np.column_stack([rows, targets]))
            store = None if checkpoint is None else StateFile(checkpoint)
            limit = (self.restarts + 1) * (self.max_iter + 1)
            steps = fit.steps()
            done, converged = iterate_resumable(run, fit, steps, store, tol=self.tol, limit=limit)
            if fit.climber is None:
                raise KeyboardInterrupt
            flat, weights = fit.answer()
            self._problem_, self.pruning_ = problem, []
            self._keep(flat, weights)
        self._conclude(run, done, converged, rows)
        return self

    def _checked(self, X: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
        rows, targets = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        targets = np.asarray(targets, dtype=np.float64)
        if len(rows) < 3:
            raise DataError(f"n_samples = {len(rows)}: at least 3 rows are needed")
        spread = rows.std(axis=0)
        constant = np.flatnonzero(spread <= 1e-12 * np.maximum(1.0, np.abs(rows).max(axis=0)))
        if len(constant):
            raise DataError(f"column {constant[0]} of X is constant; leave it out")
        if targets.std() <= 1e-12 * max(1.0, float(np.abs(targets).max())):
            raise DataError("all targets are equal; there is nothing to learn")
        self._input_mean, self._input_scale = rows.mean(axis=0), spread
        self._target_mean, self._target_scale = float(targets.mean()), float(targets.std())
        return rows, targets

    def _problem(self, rows: Array, targets: Array) -> RegressionProblem:
        hyper = Hyper(
            GammaDensity(self.weight_shape, self.weight_rate),
            GammaDensity(self.noise_shape, self.noise_rate),
        )
        family = weight_posterior(self.posterior, self._network)
        y = (targets - self._target_mean) / self._target_scale
        return RegressionProblem(
            family, self.prior, RegressionData(self._inputs(rows), jnp.asarray(y)), hyper
        )

    def _inputs(self, rows: Array) -> Any:
        """Standardised rows that end with a 1."""
        white = (rows - self._input_mean) / self._input_scale
        return jnp.asarray(np.column_stack([white, np.ones(len(rows))]))

    def _bound_run(self, n_rows: int) -> Run:
        run = self._run()
        run.trace.objective_name = "bound"
        run.offset = -n_rows * math.log(self._target_scale)
        return run

    def _keep(self, flat: Array, weights: Weights) -> None:
        """Set what was learnt from the parameters of a posterior."""
        problem, network = self._problem_, self._network
        self._flat = np.asarray(flat)
        self._weights = Weights(*(np.asarray(a, dtype=np.float64) for a in weights))
        found = final_bound(problem, flat, weights)
        rows = problem.data.x
        self.bound_ = float(found.value) - len(rows) * math.log(self._target_scale)
        self._noise = GammaDensity(float(found.beta.shape), float(found.beta.rate))
        names = precisions(network, self.prior).names
        self.precisions_ = dict(zip(names, np.asarray(found.alpha.mean).tolist(), strict=True))
        slopes = _slopes(problem.posterior, jnp.asarray(flat), weights, rows)
        self.relevance_ = np.sqrt(np.mean(np.asarray(slopes) ** 2, axis=0))
        self._set_kept()

    def _set_kept(self) -> None:
        kept, network = self._weights.kept > 0, self._network
        left = [network.units == h for h in range(network.n_hidden)]
        self.hidden_kept_ = np.array([bool(np.any(kept[own])) for own in left])
        begun = [network.inputs == i for i in range(network.n_inputs)]
        self.inputs_kept_ = np.array([bool(np.any(kept[own])) for own in begun])
        shape, rate = self._noise
        self.noise_ = self._target_scale * math.sqrt(rate / max(shape - 1.0, 0.5 * shape))

    def _conclude(self, run: Run, done: int, converged: bool, rows: Array) -> None:
        remarks = []
        if run.stopped in ("seconds", "interrupted"):
            remarks.append(f"stopped early ({run.stopped}): the best so far is kept")
        elif run.stopped == "diverged":
            remarks.append("no step raised the bound any more before tol was reached")
        elif not converged:
            remarks.append(f"not converged in {done} steps; raise max_iter or tol")
        if len(rows) <= rows.shape[1]:
            remarks.append(f"{len(rows)} rows for {rows.shape[1]} inputs: the prior decides much")
        if np.all(self.relevance_ < _NO_EFFECT):
            remarks.append(
                "the fit has fallen to the prior: no input has an effect, and predictions are the "
                "mean of the targets; try more restarts, or prior='grouped'"
            )
        self.n_iter_, self.stopped_, self.converged_ = done, run.stopped, converged
        self.warnings_, self.trace_ = remarks, run.trace

    # ------------------------------------------------------------------ answers

    def _rows(self, X: ArrayLike) -> Array:
        check_is_fitted(self, "bound_")
        return np.asarray(validate_data(self, X, reset=False, dtype=np.float64))

    def _family(self) -> WeightPosterior:
        return weight_posterior(self.posterior, self._network)

    def predict(self, X: ArrayLike, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Predictive means, and with `return_std` standard deviations that include the noise."""
        mean, variance = self._moments(self._rows(X))
        mean = self._target_mean + self._target_scale * mean
        if not return_std:
            return mean
        return mean, np.sqrt(self._target_scale**2 * variance + self.noise_**2)

    def _moments(self, rows: Array) -> tuple[Array, Array]:
        """Mean and variance of the standardised output, block by block."""
        parts = []
        with jax.enable_x64(True):
            family, flat = self._family(), jnp.asarray(self._flat)
            weights = Weights(*map(jnp.asarray, self._weights))
            for first in range(0, len(rows), _BLOCK):
                block = rows[first : first + _BLOCK]
                size = min(_BLOCK, 1 << max(4, (len(block) - 1).bit_length()))
                padded = np.concatenate([block, np.zeros((size - len(block), rows.shape[1]))])
                found = output(family, flat, weights, self._inputs(padded))
                parts.append([np.asarray(a)[: len(block)] for a in found])
        mean, variance = (np.concatenate(both) for both in zip(*parts, strict=True))
        return mean, np.maximum(variance, 0.0)

    def sample_y(
        self, X: ArrayLike, n_samples: int = 1, *, noise: bool = True, random_state: Seed = None
    ) -> Array:
        """Targets (rows, n_samples) of networks drawn from the posterior, with noise or without."""
        rows = self._rows(X)
        if n_samples < 1:
            raise DataError(f"sample_y: at least 1 sample is needed, got {n_samples}")
        rng = generator(random_state)
        with jax.enable_x64(True):
            family = self._family()
            weights = Weights(*map(jnp.asarray, self._weights))
            q = family.read(jnp.asarray(self._flat[: family.size]), weights)
            draws = family.sample(q, jax.random.key(int(rng.integers(2**31))), n_samples)
            values = np.asarray(_outputs(self._network, draws, self._inputs(rows)))
        if noise:
            shape, rate = self._noise
            beta = rng.gamma(shape, 1.0 / rate, size=n_samples)
            values = values + rng.standard_normal(values.shape) / np.sqrt(beta)
        return self._target_mean + self._target_scale * values

    # ------------------------------------------------------------------ structure

    @safe_interrupts()
    def prune(self, X: ArrayLike | None = None, y: ArrayLike | None = None) -> Self:
        """Remove hidden units and inputs for as long as the bound rises.

        Each trial is in `pruning_`. A network that was read from a file needs the data again.

        Reference: LAW-L11.
        """
        check_is_fitted(self, "bound_")
        with jax.enable_x64(True):
            if X is not None and y is not None:
                rows, targets = validate_data(
                    self, X, y, reset=False, dtype=np.float64, y_numeric=True
                )
                self._problem_ = self._problem(rows, targets)
            elif not hasattr(self, "_problem_"):
                raise MethodError("prune: a network that was read from a file needs X and y")
            problem = self._problem_
            weights = Weights(*map(jnp.asarray, self._weights))
            pruning = Pruning(problem, self._flat, weights, self.tol)
            run = self._bound_run(len(problem.data.y))
            limit = self._network.n_hidden + self._network.n_inputs + 1
            run.iterate(pruning.steps(), tol=0.0, limit=limit)
            self._keep(pruning.flat, pruning.weights)
            shift = run.offset
        for trial in pruning.path():
            told = {"before": trial["before"] + shift, "after": trial["after"] + shift}
            self.pruning_ = [*self.pruning_, {**trial, **told}]
        if run.stopped in ("seconds", "interrupted"):
            self.warnings_.append(f"pruning stopped early ({run.stopped})")
        return self

    # ------------------------------------------------------------------ files

    def _fitted_state(self) -> tuple[Arrays, dict[str, Any], dict[str, Any]]:
        held = (
            self._flat, *self._weights, self._input_mean, self._input_scale,
            self.relevance_,
        )  # fmt: skip
        about = {
            "bound": self.bound_,
            "noise": list(self._noise),
            "target": [self._target_mean, self._target_scale],
            "precisions": self.precisions_,
            "pruning": self.pruning_,
        }
        return dict(zip(_FITTED, held, strict=True)), {}, about

    def _restore_state(
        self, arrays: Arrays, facts: Mapping[str, Any], about: Mapping[str, Any]
    ) -> None:
        self.trace_.objective_name = "bound"
        held = {name: np.asarray(arrays[name], dtype=np.float64) for name in _FITTED}
        self._network = Network(self.n_features_in_, self.hidden, self.skip)
        weights = self._network.n_weights
        size = self._family().size + len(precisions(self._network, self.prior).free)
        shapes = {"flat": (size,), "scale": (weights,), "kept": (weights,)}
        for name, array in held.items():
            wanted = shapes.get(name, (self.n_features_in_,))
            if array.shape != wanted or not np.all(np.isfinite(array)):
                raise DataError(f"its {name} is not that of such a network")
        self._flat, self._weights = held["flat"], Weights(held["scale"], held["kept"])
        self._input_mean, self._input_scale = held["input_mean"], held["input_scale"]
        self.relevance_ = held["relevance_"]
        self._target_mean, self._target_scale = (float(v) for v in about["target"])
        self._noise = GammaDensity(*(float(v) for v in about["noise"]))
        self.bound_ = of_type(about, "bound", float)
        self.precisions_ = dict(of_type(about, "precisions", dict))
        self.pruning_ = of_type(about, "pruning", list)
        self._set_kept()
