"""`BayesianMLPRegressor`: regression by a network whose weights have a variational posterior."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm
from sklearn.base import RegressorMixin

from kikuchi.bayesnn import kinds
from kikuchi.bayesnn.bound import EvidenceBound, GammaDensity, RegressionData
from kikuchi.bayesnn.estimator import BayesianNetworkEstimator, Trivial
from kikuchi.bayesnn.fitting import NetworkProblem
from kikuchi.bayesnn.network import Network
from kikuchi.bayesnn.noise import DEGREES, NoiseMixture, StudentData, student_mixture
from kikuchi.bayesnn.posteriors import OutputMoments, WeightPosterior, weight_posterior
from kikuchi.bayesnn.targets import SCALES, TargetScale
from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.options import option
from kikuchi.core.seeds import Seed, generator
from kikuchi.training.estimator import validate_data

_LOG_2PI = math.log(2.0 * math.pi)


@partial(jax.jit, static_argnames=("network",))
def network_outputs(network: Network, draws: Any, x: Any) -> Any:
    """Outputs (rows, draws) of several networks."""
    return jax.vmap(lambda w: network.output(w, x), out_axes=1)(draws)


class RegressionResults:
    """Further fitted attributes of a regressor; as annotations of a dataclass they would be
    options.
    """

    noise_: float
    degrees_of_freedom_: float


@dataclass(eq=False, repr=False)
class BayesianMLPRegressor(
    RegressorMixin,  # type: ignore[misc]
    BayesianNetworkEstimator,
    RegressionResults,
):
    """Regression by a network of one hidden layer with a variational posterior of its weights.

    The posterior maximises a lower bound on the log evidence that has no sampling noise: units are
    erf functions, whose moments under Gaussian weights are known in closed form. Precisions of the
    weights and of the noise have gamma priors and posteriors. Inputs and targets are standardised
    inside; all results are in the original units.

    With `noise="student"` the noise is Student's t, so that outliers count little and intervals of
    every level fit heavy tails. Its degrees of freedom have equal prior probability at 2.5, 3, 4,
    6, 10, 20 and infinity (Gaussian noise), and a posterior (`bayesnn.noise`).

    Attributes
    ----------
    bound_ (lower bound on the log density of the targets), relevance_ (root mean square slope of
    the prediction by each input, in standard deviations of target and input), noise_ (standard
    deviation, on the scale of the targets), degrees_of_freedom_ (the most probable ones of Student
    noise; infinite for Gaussian noise), precisions_ (mean precision of each group of weights,
    standardised), hidden_relevance_ (effective number of parameters of each unit), hidden_kept_,
    inputs_kept_ and weights_kept_ (which have not been removed by `prune`), pruning_ (the trials of
    `prune`), trace_, converged_, stopped_, n_iter_, warnings_.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(80, 2))
    >>> y = np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=80)
    >>> net = BayesianMLPRegressor(3, posterior="diagonal", n_init=2, random_state=0).fit(X, y)
    >>> mean, sd = net.predict(X, return_std=True)
    >>> bool(np.mean(np.abs(mean - y) < 2 * sd) > 0.9), bool(0.05 < net.noise_ < 0.2)
    (True, True)
    >>> bool(net.relevance_[1] < 0.1 < net.relevance_[0])
    True

    Reference: LAW-M6, LAW-I18, LAW-I21.
    """

    kind = kinds.REGRESSOR
    _: KW_ONLY
    scale: Literal["plain", "root", "log"] = option(
        "plain", "Scale on which the noise is Gaussian: plain, root (for counts) or log."
    )
    noise: Literal["gaussian", "student"] = option(
        "gaussian", "Noise: gaussian, or student (heavy tails, outliers)."
    )
    noise_shape: float = option(0.02, "Shape of the gamma prior of the noise precision.", above=0)
    noise_rate: float = option(1e-4, "Rate of the gamma prior of the noise precision.", above=0)

    # ------------------------------------------------------------------ fitting

    def _read(self, X: ArrayLike, y: ArrayLike, *, reset: bool) -> tuple[Array, Array]:
        rows, targets = validate_data(self, X, y, reset=reset, dtype=np.float64, y_numeric=True)
        targets = np.asarray(targets, dtype=np.float64)
        if self.noise == "student" and self.scale != "plain":
            raise MethodError(
                f"noise='student' is for scale='plain': on scale='{self.scale}' a heavy tail may "
                "leave the targets without a mean or a standard deviation"
            )
        if reset:
            self._standardise(rows)
            if targets.std() <= 1e-12 * max(1.0, float(np.abs(targets).max())):
                raise DataError("all targets are equal; there is nothing to learn")
            values = self._scale.forward(targets)
            self._target_mean, self._target_scale = float(values.mean()), float(values.std())
            slope = self._scale.log_slope(targets)
            self._log_slope = slope - len(targets) * math.log(self._target_scale)
        return rows, targets

    @property
    def _scale(self) -> TargetScale:
        found: TargetScale = SCALES[self.scale]
        return found

    def _data(self, rows: Array, targets: Array) -> RegressionData:
        y = (self._scale.forward(targets) - self._target_mean) / self._target_scale
        kind = StudentData if self.noise == "student" else RegressionData
        return kind(self._inputs(rows), jnp.asarray(y))

    def _family(self) -> WeightPosterior:
        return weight_posterior(self.posterior, self._network)

    def _noise_prior(self) -> GammaDensity:
        return GammaDensity(self.noise_shape, self.noise_rate)

    def _shift(self) -> float:
        return self._log_slope

    def _learnt(self, found: EvidenceBound) -> None:
        if self.noise == "student":
            beta, probability = found.beta.beta, np.asarray(found.beta.probability)
            self._set_student(probability, float(beta.shape[0]), np.asarray(beta.rate))
        else:
            self._set_noise(float(found.beta.shape), float(found.beta.rate))

    def _trivial(self, problem: NetworkProblem) -> Trivial:
        return Trivial("the mean", -0.5 * len(problem.data.y) * (_LOG_2PI + 1.0) - 2.0)

    def _log_probability(self, problem: NetworkProblem, output: OutputMoments) -> float:
        scale = self._target_scale
        distance = scale * (np.asarray(problem.data.y) - output.mean)
        logs = self._log_errors(distance, scale**2 * np.maximum(output.variance, 0.0))
        return float(np.sum(logs)) + len(logs) * math.log(scale)

    def _log_errors(self, distance: Array, variance: Array) -> Array:
        """Log density of targets this far from the means of outputs with this variance."""
        if self._mixture is not None:
            return self._mixture.log_density(distance, variance)
        whole = variance + self.noise_**2
        return np.asarray(-0.5 * (distance**2 / whole + np.log(whole) + _LOG_2PI))

    def _set_noise(self, shape: float, rate: float) -> None:
        self._noise = GammaDensity(shape, rate)
        self._mixture: NoiseMixture | None = None
        self.noise_ = self._target_scale * math.sqrt(rate / max(shape - 1.0, 0.5 * shape))
        self.degrees_of_freedom_ = math.inf

    def _set_student(self, probability: Array, shape: float, rates: Array) -> None:
        self._noise = GammaDensity(shape, rates)
        self._degrees = probability
        self._mixture = student_mixture(probability, shape, rates).scaled(self._target_scale)
        self.noise_ = math.sqrt(self._mixture.total)
        self.degrees_of_freedom_ = DEGREES[int(np.argmax(probability))]

    # ------------------------------------------------------------------ answers

    def _output(self, X: ArrayLike) -> tuple[Array, Array]:
        """Mean and variance of the output on the scale."""
        mean, variance = self._moments(self._rows(X))
        return self._target_mean + self._target_scale * mean, self._target_scale**2 * variance

    def predict(self, X: ArrayLike, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Predictive means for rows `X` (rows, inputs), and with `return_std` standard deviations
        that include the noise.
        """
        mean, variance = self._output(X)
        mean, variance = self._scale.moments(mean, variance + self.noise_**2)
        return (mean, np.sqrt(variance)) if return_std else mean

    def predict_interval(self, X: ArrayLike, level: float = 0.95) -> tuple[Array, Array]:
        """Ends of central predictive intervals for rows `X` (rows, inputs), which hold a target
        with probability `level`, in (0, 1).
        """
        if not 0.0 < level < 1.0:
            raise DataError(f"level = {level:g}: a probability between 0 and 1 is needed")
        mean, variance = self._output(X)
        if self._mixture is None:
            reach = float(norm.ppf(0.5 + 0.5 * level)) * np.sqrt(variance + self.noise_**2)
        else:
            reach = self._mixture.reach(level, variance)
        return self._scale.back(mean - reach), self._scale.back(mean + reach)

    def log_density(self, X: ArrayLike, y: ArrayLike) -> Array:
        """Log predictive density of each target of `y` (rows,) at its row of `X` (rows, inputs)."""
        rows, targets = self._read(X, y, reset=False)
        mean, variance = self._output(rows)
        distance = self._scale.forward(targets) - mean
        return self._log_errors(distance, variance) + self._scale.log_slopes(targets)

    def sample_y(
        self, X: ArrayLike, n_samples: int = 1, *, noise: bool = True, random_state: Seed = None
    ) -> Array:
        """Targets (rows, `n_samples`) for rows `X` by networks drawn from the posterior, with
        `noise` or without; `random_state` is the seed of the draws.
        """
        rows = self._rows(X)
        if n_samples < 1:
            raise DataError(f"sample_y: at least 1 sample is needed, got {n_samples}")
        rng = generator(random_state)
        with jax.enable_x64(True):
            draws = self._draws(n_samples, rng)
            values = np.asarray(network_outputs(self._network, draws, self._inputs(rows)))
        found = self._target_mean + self._target_scale * values
        if noise and self._mixture is not None:
            found = found + self._mixture.draws(rng, found.shape)
        elif noise:
            errors = rng.standard_normal(found.shape) / np.sqrt(self._noise_draws(n_samples, rng))
            found = found + self._target_scale * errors
        return self._scale.back(found)

    def _noise_draws(self, count: int, rng: np.random.Generator) -> Array:
        """Precisions of the noise of draws."""
        shape, rate = self._noise
        return rng.gamma(shape, 1.0 / rate, size=count)

    # ------------------------------------------------------------------ files

    def _facts(self) -> dict[str, Any]:
        shape, rates = self._noise
        student = {} if self._mixture is None else {"degrees": self._degrees.tolist()}
        return {
            "noise": [shape, *np.ravel(rates).tolist()],
            "target": [self._target_mean, self._target_scale, self._log_slope],
            **student,
        }

    def _restore_facts(self, about: Mapping[str, Any]) -> None:
        target = [float(v) for v in about["target"]]
        self._target_mean, self._target_scale, self._log_slope = target
        if not np.isfinite(target).all() or not self._target_scale > 0:
            raise DataError(f"its target is {target}")
        shape, *rates = (float(v) for v in about["noise"])
        if self.noise == "student":
            self._restore_student(shape, rates, [float(v) for v in about["degrees"]])
        else:
            (rate,) = rates
            self._set_noise(shape, rate)

    def _restore_student(self, shape: float, rates: list[float], degrees: list[float]) -> None:
        found = np.array([shape, *rates, *degrees])
        if len(rates) != len(DEGREES) or len(degrees) != len(DEGREES):
            raise DataError(f"its noise has {len(degrees)} values of the degrees of freedom")
        if not np.isfinite(found).all() or found.min() < 0 or not min(shape, *rates) > 0:
            raise DataError(f"its noise is {found.tolist()}")
        if not 0 < sum(degrees) < math.inf:
            raise DataError(f"its noise has the probabilities {degrees}")
        self._set_student(np.array(degrees) / sum(degrees), shape, np.array(rates))
