"""Variational Bayes of noisy ICA, one block at a time, and its bound.

The factors are q(X) q(W) q(alpha) q(beta) q(mu). The source says that the bound cannot be computed
because q(X) is a mixture; it can: right after its own update, q(X) is the prior times a known
exponential over a known normaliser, so that its divergence from the prior is known, and it stays
the same number until q(X) is next updated.

Reference: LAW-I20, LAW-I22, LAW-T19.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError
from kikuchi.ica.bayesian.sources import (
    Mixing,
    Mixtures,
    SourcePosterior,
    expected_error,
    source_posterior,
)
from kikuchi.training.checkpoint import check_sizes, part, prefixed

_LAYOUT = {
    "weights": "channels sources",
    "weight_covariance": "sources sources",
    "mean": "channels",
    "noise": "",
    "relevance": "sources",
    "mixtures/weights": "sources components",
    "mixtures/means": "sources components",
    "mixtures/variances": "sources components",
    "sources/mean": "sources samples",
    "sources/covariance_sum": "sources sources",
    "sources/log_z": "samples",
    "sources/counts": "sources components",
    "sources/sums": "sources components",
    "sources/squares": "sources components",
    "numbers": "numbers",
}


@dataclass(frozen=True)
class Gamma:
    """Gamma distributions with shape `a` and rates `b`, means `a / b`.

    >>> Gamma(2.0, np.array([4.0])).mean.tolist()
    [0.5]
    """

    a: float
    b: Array

    @property
    def mean(self) -> Array:
        """<x>."""
        return np.asarray(self.a / self.b)

    @property
    def mean_log(self) -> Array:
        """<ln x>."""
        return np.asarray(digamma(self.a) - np.log(self.b))

    def divergence(self, a: float, b: float) -> float:
        """KL to the gamma distribution with shape `a` and rate `b`, summed."""
        shape = (self.a - a) * digamma(self.a) - gammaln(self.a) + gammaln(a)
        rate = a * (np.log(self.b) - math.log(b)) + self.a * (b - self.b) / self.b
        return float(np.sum(shape + rate))


@dataclass(frozen=True)
class Hyperpriors:
    """Gamma priors of relevances and noise precision, precision of the mean."""

    relevance_shape: float = 1e-3
    relevance_rate: float = 1e-3
    noise_shape: float = 1e-3
    noise_rate: float = 1e-3
    mean_precision: float = 1e-3


class BayesianPosterior:
    """All factors and their updates; no update lowers `bound` (up to rounding).

    `data` is (P, N). Blocks: `update_sources`, `update_mixing`, `update_mean`,
    `update_relevance`, `update_noise`, and `adapt_sources` for the densities themselves.
    """

    def __init__(
        self, data: Array, mixing: Array, noise: float, mixtures: Mixtures, priors: Hyperpriors
    ) -> None:
        self.data = data
        self.priors = priors
        self.mixtures = mixtures
        self.weights = mixing
        self.weight_covariance = np.zeros((mixing.shape[1],) * 2)
        n_sensors, n_samples = data.shape
        self.mean = data.mean(axis=1)
        self.mean_variance = 0.0
        shape = priors.noise_shape + n_sensors * n_samples / 2
        self.noise = Gamma(shape, np.array(shape * noise))
        self.relevance = self._relevance()
        self.update_sources()
        self.update_mixing()
        self.update_mean()

    def to_arrays(self) -> dict[str, Array]:
        """All factors as arrays."""
        numbers = [self.mean_variance, self.source_divergence, self.noise.a, self.relevance.a]
        arrays = {name: getattr(self, name) for name in ("weights", "weight_covariance", "mean")}
        arrays |= {"noise": self.noise.b, "relevance": self.relevance.b}
        arrays |= prefixed(vars(self.mixtures), "mixtures")
        arrays |= prefixed(self.sources.to_arrays(), "sources")
        return arrays | {"numbers": np.array(numbers)}

    @classmethod
    def from_arrays(
        cls, data: Array, priors: Hyperpriors, arrays: Mapping[str, Array]
    ) -> BayesianPosterior:
        """The posterior of these data that `to_arrays` described."""
        check_sizes(arrays, _LAYOUT, channels=data.shape[0], samples=data.shape[1], numbers=4)
        fresh = cls.__new__(cls)
        fresh.data, fresh.priors = data, priors
        fresh.mixtures = Mixtures(**part(arrays, "mixtures"))
        fresh.sources = SourcePosterior.from_arrays(part(arrays, "sources"))
        for name in ("weights", "weight_covariance", "mean"):
            setattr(fresh, name, arrays[name])
        variance, divergence, *shapes = (float(x) for x in arrays["numbers"])
        fresh.mean_variance, fresh.source_divergence = variance, divergence
        fresh.noise = Gamma(shapes[0], arrays["noise"])
        fresh.relevance = Gamma(shapes[1], arrays["relevance"])
        positive: tuple[Any, ...] = (
            *shapes,
            arrays["noise"],
            arrays["relevance"],
            fresh.mixtures.variances,
        )
        if not all(np.all((x > 0) & (x < np.inf)) for x in positive):
            raise DataError("its precisions or variances are not all above 0 and finite")
        return fresh

    # ------------------------------------------------------------------ what is known

    @property
    def beta(self) -> float:
        """Mean noise precision."""
        return float(self.noise.mean)

    @property
    def mixing(self) -> Mixing:
        """The mixing factor, as the source posterior needs it."""
        return Mixing(self.weights, self.weight_covariance, self.beta)

    @property
    def column_powers(self) -> Array:
        """<w_i' w_i> of each column."""
        spread = len(self.data) * np.diagonal(self.weight_covariance)
        return np.asarray(np.sum(self.weights**2, axis=0) + spread)

    @property
    def prior_relevance(self) -> float:
        """What the relevance of a source that is off tends to: (a + P/2) / b."""
        return self.relevance.a / self.priors.relevance_rate

    @property
    def error(self) -> float:
        """sum_n <|t_n - mu - W x_n|^2>."""
        centred = self.data - self.mean[:, None]
        return expected_error(centred, self.mixing, self.sources) + self.data.size * (
            self.mean_variance
        )

    @property
    def bound(self) -> float:
        """Lower bound of the log evidence, after any block."""
        size = self.data.size
        fit = 0.5 * size * (float(self.noise.mean_log) - math.log(2 * math.pi))
        fit -= 0.5 * self.beta * self.error
        priors = self.priors
        hyper = self.relevance.divergence(priors.relevance_shape, priors.relevance_rate)
        hyper += self.noise.divergence(priors.noise_shape, priors.noise_rate)
        return fit - self.source_divergence - self._mean_divergence() + self._mixing_terms() - hyper

    def _mean_divergence(self) -> float:
        tau, variance = self.priors.mean_precision, self.mean_variance
        power = float(self.mean @ self.mean) + len(self.mean) * variance
        return 0.5 * (tau * power - len(self.mean) * (1.0 + math.log(tau * variance)))

    def _mixing_terms(self) -> float:
        """<ln p(W | alpha)> + entropy of q(W)."""
        n_sensors, n_sources = self.weights.shape
        log_det = float(np.linalg.slogdet(self.weight_covariance)[1])
        prior = 0.5 * n_sensors * float(self.relevance.mean_log.sum())
        prior -= 0.5 * float(self.relevance.mean @ self.column_powers)
        return float(prior + 0.5 * n_sensors * (log_det + n_sources))

    # ------------------------------------------------------------------ blocks

    def update_sources(self) -> None:
        """q(X), a mixture over all tuples of components."""
        centred = self.data - self.mean[:, None]
        self.sources: SourcePosterior = source_posterior(centred, self.mixing, self.mixtures)
        error = expected_error(centred, self.mixing, self.sources)
        self.source_divergence = -float(self.sources.log_z.sum()) - 0.5 * self.beta * error

    def update_mixing(self) -> None:
        """q(W): rows share a covariance (6.21 with the factor that is missing there, 6.22)."""
        precision = np.diag(self.relevance.mean) + self.beta * self.sources.second
        factor = np.linalg.inv(np.linalg.cholesky(precision))
        self.weight_covariance = np.ascontiguousarray(factor.T @ factor)
        cross = (self.data - self.mean[:, None]) @ self.sources.mean.T
        self.weights = np.linalg.solve(precision, self.beta * cross.T).T.copy()

    def update_mean(self) -> None:
        """q(mu)."""
        self.mean_variance = 1.0 / (self.priors.mean_precision + self.data.shape[1] * self.beta)
        rest = np.sum(self.data - self.weights @ self.sources.mean, axis=1)
        self.mean = self.mean_variance * self.beta * rest

    def update_relevance(self) -> None:
        """q(alpha): large for columns that are small."""
        self.relevance = self._relevance()

    def _relevance(self) -> Gamma:
        shape = self.priors.relevance_shape + len(self.data) / 2
        return Gamma(shape, self.priors.relevance_rate + 0.5 * self.column_powers)

    def update_noise(self) -> None:
        """q(beta)."""
        shape = self.priors.noise_shape + self.data.size / 2
        self.noise = Gamma(shape, np.array(self.priors.noise_rate + 0.5 * self.error))

    def adapt_sources(self) -> None:
        """The densities of the sources that fit their posterior best."""
        adapted = self.mixtures.adapted(self.sources.components)
        gain = adapted.expected_log(self.sources.components)
        gain -= self.mixtures.expected_log(self.sources.components)
        if gain > 0:
            self.mixtures = adapted
            self.source_divergence -= gain

    def without(self, source: int) -> BayesianPosterior:
        """A posterior that goes on from this one with one source removed."""
        keep: NDArray[np.intp] = np.delete(np.arange(self.weights.shape[1]), source)
        fresh = BayesianPosterior.__new__(BayesianPosterior)
        fresh.__dict__.update(self.__dict__)
        fresh.mixtures = self.mixtures.kept(keep)
        fresh.weights = self.weights[:, keep].copy()
        fresh.weight_covariance = self.weight_covariance[np.ix_(keep, keep)].copy()
        fresh.relevance = Gamma(self.relevance.a, self.relevance.b[keep])
        fresh.update_sources()
        return fresh
