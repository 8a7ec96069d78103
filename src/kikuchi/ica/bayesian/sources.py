"""Posterior of mixture-of-Gaussian sources given Gaussian mixing, by all tuples of components.

With `r_n = t_n - mu` the unnormalised posterior of a sample is

    p(x) exp(-beta/2 <|r - W x|^2>),   <|r - W x|^2> = |r - M x|^2 + P x' S x,

where `M` is the mean of the mixing matrix and `S` the covariance of each of its rows. Each of the
components**sources tuples gives one Gaussian. Exponents are written as sums of squares, so that
nothing cancels when the noise is small.

Reference: LAW-I22, LAW-M9.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array
from kikuchi.core.errors import BudgetError, MethodError
from kikuchi.core.numerics import logsumexp

MOST_TUPLES = 4096
_CHUNK = 2_000_000  # numbers in one working table
_LEAST_VARIANCE = 1e-3  # of a component, as a share of the variance of its source


@dataclass(frozen=True)
class Mixtures:
    """One mixture of Gaussians for each source: weights, means, variances, each (I, M).

    >>> Mixtures.shared("sparse", 2).variances.tolist()
    [[1.0, 50.0], [1.0, 50.0]]
    """

    weights: Array
    means: Array
    variances: Array

    @classmethod
    def shared(cls, sources: object, count: int) -> Mixtures:
        """The same mixture for `count` sources: `heavy-tailed`, `sparse`, `bimodal`, `gaussian`, or
        (weights, means, variances).
        """
        rows = [np.tile(row, (count, 1)) for row in _mixture(sources)]
        return cls(*rows)

    @property
    def variance(self) -> Array:
        """Variance of each source."""
        mean = np.sum(self.weights * self.means, axis=1)
        power = np.sum(self.weights * (self.variances + self.means**2), axis=1)
        return np.asarray(power - mean**2)

    def kept(self, keep: NDArray[np.intp]) -> Mixtures:
        """The mixtures of some of the sources."""
        return Mixtures(self.weights[keep], self.means[keep], self.variances[keep])

    def expected_log(self, stats: ComponentStats) -> float:
        """<ln p(x, component)> of all samples under a posterior with these statistics."""
        spread = stats.squares - 2 * self.means * stats.sums + self.means**2 * stats.counts
        terms = stats.counts * (_safe_log(self.weights) - 0.5 * np.log(self.variances))
        constant = -0.5 * math.log(2 * math.pi) * float(stats.counts.sum())
        return constant + float(np.sum(terms - 0.5 * spread / self.variances))

    def adapted(self, stats: ComponentStats) -> Mixtures:
        """The mixtures that maximise `expected_log`, variances not below a small share."""
        counts = np.maximum(stats.counts, 1e-12)
        weights = counts / counts.sum(axis=1, keepdims=True)
        means = stats.sums / counts
        variances = np.maximum(stats.squares / counts - means**2, 0.0)
        floor = _LEAST_VARIANCE * np.sum(weights * (variances + means**2), axis=1, keepdims=True)
        return Mixtures(weights, means, np.maximum(variances, np.maximum(floor, 1e-12)))


@dataclass(frozen=True)
class ComponentStats:
    """For each source and component: expected count, sum and sum of squares, each (I, M)."""

    counts: Array
    sums: Array
    squares: Array


@dataclass(frozen=True)
class Mixing:
    """What the source posterior needs of the other factors: means, covariances, noise."""

    mean: Array  # (P, I)
    covariance: Array  # (I, I), of each row
    noise_precision: float


@dataclass(frozen=True)
class SourcePosterior:
    """Moments of all samples and the divergence of the posterior from the prior."""

    mean: Array  # (I, N)
    covariance_sum: Array  # (I, I)
    log_z: Array  # (N,), log of p(x) exp(-beta/2 <|r - W x|^2>) integrated over x
    components: ComponentStats

    @property
    def second(self) -> Array:
        """sum_n <x_n x_n'>."""
        return np.asarray(self.mean @ self.mean.T + self.covariance_sum)

    def to_arrays(self) -> dict[str, Array]:
        """Everything as arrays by name."""
        arrays = {"mean": self.mean, "covariance_sum": self.covariance_sum, "log_z": self.log_z}
        return arrays | vars(self.components)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> SourcePosterior:
        """The inverse of `to_arrays`."""
        components = ComponentStats(*(arrays[name] for name in ("counts", "sums", "squares")))
        return cls(arrays["mean"], arrays["covariance_sum"], arrays["log_z"], components)


def expected_error(data: Array, mixing: Mixing, sources: SourcePosterior) -> float:
    """sum_n <|r_n - W x_n|^2> (the printed sums corrected), as a sum of squares."""
    rest = data - mixing.mean @ sources.mean
    spread = np.sum((mixing.mean.T @ mixing.mean) * sources.covariance_sum)
    spread += len(data) * np.sum(mixing.covariance * sources.second)
    return float(np.sum(rest**2) + spread)


def tuples_of(n_sources: int, n_components: int) -> NDArray[np.intp]:
    """All choices of one component per source, (M**I, I); refused beyond `MOST_TUPLES`.

    >>> tuples_of(2, 2).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    count = n_components**n_sources
    if count > MOST_TUPLES:
        raise BudgetError(
            f"{n_sources} sources with {n_components} components each have {count} tuples, the "
            f"limit is {MOST_TUPLES}; request fewer sources (n_components) or use MeanFieldICA"
        )
    rows = list(itertools.product(range(n_components), repeat=n_sources))
    return np.array(rows, dtype=np.intp).reshape(count, n_sources)


def source_posterior(data: Array, mixing: Mixing, mixtures: Mixtures) -> SourcePosterior:
    """Moments of the sources of `data` (P, N), the mean already taken away (D.10-D.16)."""
    table = _ComponentTuples(mixing, mixtures)
    n_sources, n_samples = len(mixtures.means), data.shape[1]
    mean = np.empty((n_sources, n_samples))
    log_z = np.empty(n_samples)
    covariance_sum = np.zeros((n_sources, n_sources))
    totals = [np.zeros(mixtures.means.shape) for _ in range(3)]
    width = max(1, _CHUNK // (table.count * max(n_sources, 1)))
    for start in range(0, n_samples, width):
        part = slice(start, start + width)
        mean[:, part], log_z[part], spread, stats = table.solve(data[:, part])
        covariance_sum += spread
        for total, stat in zip(totals, stats, strict=True):
            total += stat
    return SourcePosterior(mean, covariance_sum, log_z, ComponentStats(*totals))


class _ComponentTuples:
    """The Gaussians of all tuples, which do not depend on the sample but for their means."""

    def __init__(self, mixing: Mixing, mixtures: Mixtures) -> None:
        n_sources, self.n_components = mixtures.means.shape
        self.choices = tuples_of(n_sources, self.n_components)
        self.count = len(self.choices)
        self.n_sources = n_sources
        source = np.arange(n_sources)
        self.centre = mixtures.means[source, self.choices]  # (K, I)
        self.variance = mixtures.variances[source, self.choices]
        self.beta = mixing.noise_precision
        self.weights = mixing.mean
        self.base, self.corner = np.linalg.qr(mixing.mean)
        self.slack = len(mixing.mean) * mixing.covariance  # P S
        precision = self.beta * (mixing.mean.T @ mixing.mean + self.slack)
        inverse = precision + np.einsum("ki,ij->kij", 1.0 / self.variance, np.eye(n_sources))
        self.covariance = np.linalg.inv(inverse)
        log_det = -np.linalg.slogdet(inverse)[1] - np.log(self.variance).sum(axis=1)
        prior = _safe_log(mixtures.weights[source, self.choices]).sum(axis=1)
        self.log_prior = prior + 0.5 * log_det

    def solve(self, data: Array) -> tuple[Array, Array, Array, tuple[Array, Array, Array]]:
        """Mean (I, n), log Z (n,), summed covariance (I, I) and component statistics."""
        inside = self.base.T @ data
        outside = np.sum((data - self.base @ inside) ** 2, axis=0)
        field = self.beta * (self.weights.T @ data)
        start = self.centre / self.variance
        f = self.covariance @ (field[None] + start[:, :, None])  # (K, I, n)
        log_weights = self.log_prior[:, None] - 0.5 * self._exponent(f, inside)
        log_z = np.asarray(logsumexp(log_weights, axis=0))
        shares = np.exp(log_weights - log_z)
        mean = np.einsum("kn,kin->in", shares, f)
        away = f - mean
        amounts = shares.sum(axis=1)
        spread = np.einsum("k,kij->ij", amounts, self.covariance)
        spread += np.einsum("kin,kjn->ij", shares[:, None] * away, away, optimize=True)
        return mean, log_z - 0.5 * self.beta * outside, spread, self._components(f, shares)

    def _exponent(self, f: Array, inside: Array) -> Array:
        """Twice the exponent at the best x of each tuple: noise, mixing and prior, all squares."""
        error = np.sum((inside - self.corner @ f) ** 2, axis=1)
        error += np.sum(f * (self.slack @ f), axis=1)
        prior = np.sum((f - self.centre[:, :, None]) ** 2 / self.variance[:, :, None], axis=1)
        return np.asarray(self.beta * error + prior)

    def _components(self, f: Array, shares: Array) -> tuple[Array, Array, Array]:
        amounts = shares.sum(axis=1)
        sums = np.einsum("kn,kin->ki", shares, f)
        squares = np.einsum("kn,kin->ki", shares, f**2)
        squares += amounts[:, None] * np.einsum("kii->ki", self.covariance)
        shape = (self.n_sources, self.n_components)
        place = (np.broadcast_to(np.arange(self.n_sources), self.choices.shape), self.choices)
        totals = []
        for values in (np.broadcast_to(amounts[:, None], sums.shape), sums, squares):
            total = np.zeros(shape)
            np.add.at(total, place, values)
            totals.append(total)
        return totals[0], totals[1], totals[2]


def _safe_log(x: Array) -> Array:
    return np.log(np.maximum(x, 1e-300))


def _mixture(sources: object) -> tuple[Array, Array, Array]:
    """Weights, means and variances of a mixture that is named or given."""
    named = {
        "heavy-tailed": ([0.5, 0.3, 0.2], [0.0, 0.0, 0.0], [0.25, 1.0, 4.0]),
        "sparse": ([0.5, 0.5], [0.0, 0.0], [1.0, 50.0]),
        "bimodal": ([0.5, 0.5], [-1.0, 1.0], [1.0, 1.0]),
        "gaussian": ([1.0], [0.0], [1.0]),
    }
    if isinstance(sources, str) and sources not in named:
        raise MethodError(
            f"sources '{sources}' are not known; use {', '.join(named)} or "
            "(weights, means, variances)"
        )
    given: Any = named[sources] if isinstance(sources, str) else sources
    advice = "sources must be a name or (weights, means, variances), three rows of equal length"
    try:
        weights, means, variances = (np.array(row, dtype=np.float64) for row in given)
        if weights.ndim != 1 or not len(weights) == len(means) == len(variances) > 0:
            raise ValueError
    except (TypeError, ValueError):
        raise MethodError(f"{advice}, got {sources!r}") from None
    finite = np.isfinite(np.concatenate([weights, means, variances])).all()
    if not finite or (weights <= 0).any() or (variances <= 0).any():
        raise MethodError("sources: weights and variances must be positive, all numbers finite")
    return weights / weights.sum(), means, variances
