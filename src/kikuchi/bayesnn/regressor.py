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

from kikuchi.bayesnn.bound import EvidenceBound, GammaDensity, RegressionData
from kikuchi.bayesnn.estimator import BayesianNetworkEstimator
from kikuchi.bayesnn.network import Network
from kikuchi.bayesnn.posteriors import WeightPosterior, weight_posterior
from kikuchi.bayesnn.targets import SCALES, TargetScale
from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError
from kikuchi.core.options import option
from kikuchi.core.seeds import Seed, generator
from kikuchi.training.estimator import validate_data


@partial(jax.jit, static_argnames=("network",))
def network_outputs(network: Network, draws: Any, x: Any) -> Any:
    """Outputs (rows, draws) of several networks."""
    return jax.vmap(lambda w: network.output(w, x), out_axes=1)(draws)


@dataclass(eq=False, repr=False)
class BayesianMLPRegressor(RegressorMixin, BayesianNetworkEstimator):  # type: ignore[misc]
    """Regression by a network of one hidden layer with a variational posterior of its weights.

    The posterior maximises a lower bound on the log evidence that has no sampling noise: units are
    erf functions, whose moments under Gaussian weights are known in closed form. Precisions of the
    weights and of the noise have gamma priors and posteriors. Inputs and targets are standardised
    inside; everything is answered in their own units.

    Attributes
    ----------
    bound_ (lower bound on the log density of the targets), relevance_ (root mean square slope of
    the prediction by each input, in standard deviations of target and input), noise_ (standard
    deviation, on the scale of the targets), precisions_ (mean precision of each group of weights,
    standardised), hidden_relevance_ (effective number of parameters of each unit), hidden_kept_,
    inputs_kept_ and weights_kept_ (which have not been removed by `prune`), pruning_ (the trials of
    `prune`), trace_, converged_, stopped_, n_iter_, warnings_.

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

    _: KW_ONLY
    scale: Literal["plain", "root", "log"] = option(
        "plain", "Scale on which the noise is Gaussian: plain, root (for counts) or log."
    )
    noise_shape: float = option(0.02, "Shape of the gamma prior of the noise precision.", above=0)
    noise_rate: float = option(1e-4, "Rate of the gamma prior of the noise precision.", above=0)

    # ------------------------------------------------------------------ fitting

    def _read(self, X: ArrayLike, y: ArrayLike, *, reset: bool) -> tuple[Array, Array]:
        rows, targets = validate_data(self, X, y, reset=reset, dtype=np.float64, y_numeric=True)
        targets = np.asarray(targets, dtype=np.float64)
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
        return RegressionData(self._inputs(rows), jnp.asarray(y))

    def _family(self) -> WeightPosterior:
        return weight_posterior(self.posterior, self._network)

    def _noise_prior(self) -> GammaDensity:
        return GammaDensity(self.noise_shape, self.noise_rate)

    def _shift(self) -> float:
        return self._log_slope

    def _learnt(self, found: EvidenceBound) -> None:
        self._set_noise(float(found.beta.shape), float(found.beta.rate))

    def _set_noise(self, shape: float, rate: float) -> None:
        self._noise = GammaDensity(shape, rate)
        self.noise_ = self._target_scale * math.sqrt(rate / max(shape - 1.0, 0.5 * shape))

    # ------------------------------------------------------------------ answers

    def _gaussian(self, X: ArrayLike) -> tuple[Array, Array]:
        """Predictive mean and variance on the scale, noise included."""
        mean, variance = self._moments(self._rows(X))
        return (
            self._target_mean + self._target_scale * mean,
            self._target_scale**2 * variance + self.noise_**2,
        )

    def predict(self, X: ArrayLike, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Predictive means for rows `X` (rows, inputs), and with `return_std` standard deviations
        that include the noise.
        """
        mean, variance = self._scale.moments(*self._gaussian(X))
        return (mean, np.sqrt(variance)) if return_std else mean

    def predict_interval(self, X: ArrayLike, level: float = 0.95) -> tuple[Array, Array]:
        """Ends of central predictive intervals for rows `X` (rows, inputs), which hold a target
        with probability `level`, in (0, 1).
        """
        if not 0.0 < level < 1.0:
            raise DataError(f"level = {level:g}: a probability between 0 and 1 is needed")
        mean, variance = self._gaussian(X)
        reach = float(norm.ppf(0.5 + 0.5 * level)) * np.sqrt(variance)
        return self._scale.back(mean - reach), self._scale.back(mean + reach)

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
        if noise:
            values = values + rng.standard_normal(values.shape) / np.sqrt(
                self._noise_draws(n_samples, rng)
            )
        return self._scale.back(self._target_mean + self._target_scale * values)

    def _noise_draws(self, count: int, rng: np.random.Generator) -> Array:
        """Precisions of the noise of draws."""
        shape, rate = self._noise
        return rng.gamma(shape, 1.0 / rate, size=count)

    # ------------------------------------------------------------------ files

    def _facts(self) -> dict[str, Any]:
        return {
            "noise": list(self._noise),
            "target": [self._target_mean, self._target_scale, self._log_slope],
        }

    def _restore_facts(self, about: Mapping[str, Any]) -> None:
        target = [float(v) for v in about["target"]]
        self._target_mean, self._target_scale, self._log_slope = target
        if not np.isfinite(target).all() or not self._target_scale > 0:
            raise DataError(f"its target is {target}")
        self._set_noise(*(float(v) for v in about["noise"]))
