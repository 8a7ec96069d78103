r"""Noise of ICA (HOJ-M10) and its maximum likelihood update (HOJ-L5).

Isotropic and diagonal noise are held as one number or one number a channel; no matrix of the size
of the channels squared is ever made for them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.core.errors import MethodError

Array = NDArray[np.float64]

KINDS = ("isotropic", "diagonal", "full")
FLOOR = 1e-6  # share of the data's variance below which learned noise does not fall


class Residual(Protocol):
    """What the update needs to know of data, sources and mixing."""

    @property
    def count(self) -> float:
        """Number of samples."""

    def channel_counts(self) -> Array:
        """Number of observed samples of each channel."""

    def channel_residuals(self, mixing: Array) -> Array:
        """Expected squared residual of each channel, summed over its observed samples."""

    def residual_matrix(self, mixing: Array) -> Array:
        """Expected outer products of residuals, summed over samples."""


@dataclass(frozen=True)
class Noise(ABC):
    """Gaussian noise with zero mean; `learned` tells whether EM may change it."""

    learned: bool
    floor: Array | float

    kind: ClassVar[str]

    @property
    @abstractmethod
    def value(self) -> Any:
        """Variance, variances or covariance: what `noise_` shows."""

    @abstractmethod
    def n_parameters(self, channels: int) -> int:
        """How many numbers are learned."""

    @abstractmethod
    def times_precision(self, columns: Array) -> Array:
        """Precision matrix times columns (channels, anything)."""

    @abstractmethod
    def log_det(self, channels: int) -> float:
        """log det of the covariance."""

    def squares(self, x: Array) -> Array:
        """x^T precision x for every sample, x of shape (channels, samples)."""
        return np.asarray(np.einsum("dn,dn->n", x, self.times_precision(x)))

    @abstractmethod
    def sample(self, rng: np.random.Generator, channels: int, count: int) -> Array:
        """Draws of shape (channels, samples)."""

    @abstractmethod
    def updated(self, residual: Residual, mixing: Array) -> Noise:
        """The noise of greatest likelihood given source moments (HOJ-L5), not below the floor."""

    @abstractmethod
    def scaled(self, share: float) -> Noise:
        """The same noise with its covariance times `share`."""

    def relative_change(self, other: Noise) -> float:
        """Greatest relative change of a (diagonal) variance from here to `other`."""
        here, there = np.atleast_1d(self.value), np.atleast_1d(other.value)
        if here.ndim == 2:
            here, there = np.diag(here), np.diag(there)
        return float(np.abs(there / here - 1.0).max())


@dataclass(frozen=True)
class IsotropicNoise(Noise):
    """One variance for all channels."""

    variance: float
    kind: ClassVar[str] = "isotropic"

    @property
    def value(self) -> float:
        """The variance."""
        return self.variance

    def n_parameters(self, channels: int) -> int:
        """One, if learned."""
        return int(self.learned)

    def times_precision(self, columns: Array) -> Array:
        """Columns over the variance."""
        return np.asarray(columns / self.variance)

    def log_det(self, channels: int) -> float:
        """channels log variance."""
        return channels * math.log(self.variance)

    def squares(self, x: Array) -> Array:
        """Squared lengths over the variance."""
        return np.asarray(np.einsum("dn,dn->n", x, x) / self.variance)

    def channel_precisions(self, channels: int) -> Array:
        """1 / variance, for each channel."""
        return np.full(channels, 1.0 / self.variance)

    def sample(self, rng: np.random.Generator, channels: int, count: int) -> Array:
        """Independent draws."""
        return math.sqrt(self.variance) * rng.standard_normal((channels, count))

    def updated(self, residual: Residual, mixing: Array) -> IsotropicNoise:
        """Mean expected squared residual over channels and samples."""
        if not self.learned:
            return self
        total = float(residual.channel_residuals(mixing).sum())
        variance = total / float(residual.channel_counts().sum())
        return replace(self, variance=max(variance, float(np.mean(self.floor))))

    def scaled(self, share: float) -> IsotropicNoise:
        """Variance times `share`."""
        return replace(self, variance=self.variance * share)


@dataclass(frozen=True)
class DiagonalNoise(Noise):
    """A variance for each channel."""

    variances: Array
    kind: ClassVar[str] = "diagonal"

    @property
    def value(self) -> Array:
        """The variances."""
        return self.variances

    def n_parameters(self, channels: int) -> int:
        """One a channel, if learned."""
        return channels * int(self.learned)

    def times_precision(self, columns: Array) -> Array:
        """Each channel over its variance."""
        return np.asarray(columns / self.variances[:, None])

    def log_det(self, channels: int) -> float:
        """Sum of log variances."""
        return float(np.log(self.variances).sum())

    def channel_precisions(self, channels: int) -> Array:
        """1 / variances."""
        return np.asarray(1.0 / self.variances)

    def sample(self, rng: np.random.Generator, channels: int, count: int) -> Array:
        """Independent draws."""
        return np.sqrt(self.variances)[:, None] * rng.standard_normal((channels, count))

    def updated(self, residual: Residual, mixing: Array) -> DiagonalNoise:
        """Mean expected squared residual of each channel over its samples."""
        if not self.learned:
            return self
        means = residual.channel_residuals(mixing) / residual.channel_counts()
        return replace(self, variances=np.maximum(means, self.floor))

    def scaled(self, share: float) -> DiagonalNoise:
        """Variances times `share`."""
        return replace(self, variances=self.variances * share)


@dataclass(frozen=True)
class FullNoise(Noise):
    """A whole covariance matrix; with its Cholesky factor."""

    covariance: Array
    factor: Array
    kind: ClassVar[str] = "full"

    @staticmethod
    def of(covariance: Array, learned: bool, floor: Array | float) -> FullNoise:
        """Noise of a covariance, which must be symmetric and positive."""
        return FullNoise(learned, floor, covariance, _cholesky(covariance))

    @property
    def value(self) -> Array:
        """The covariance."""
        return self.covariance

    def n_parameters(self, channels: int) -> int:
        """channels (channels + 1) / 2, if learned."""
        return channels * (channels + 1) // 2 * int(self.learned)

    def times_precision(self, columns: Array) -> Array:
        """Solved with the Cholesky factor."""
        from scipy.linalg import cho_solve

        return np.asarray(cho_solve((self.factor, True), columns))

    def log_det(self, channels: int) -> float:
        """Twice the sum of the logarithms of the factor's diagonal."""
        return 2.0 * float(np.log(np.diag(self.factor)).sum())

    def sample(self, rng: np.random.Generator, channels: int, count: int) -> Array:
        """The factor times independent draws."""
        return np.asarray(self.factor @ rng.standard_normal((channels, count)))

    def updated(self, residual: Residual, mixing: Array) -> FullNoise:
        """Mean expected outer product of residuals; small eigenvalues are lifted to the floor."""
        if not self.learned:
            return self
        matrix = residual.residual_matrix(mixing) / residual.count
        matrix = 0.5 * (matrix + matrix.T)
        values, vectors = np.linalg.eigh(matrix)
        least = float(np.mean(self.floor))
        if values[0] < least:
            matrix = (vectors * np.maximum(values, least)) @ vectors.T
        return FullNoise.of(matrix, True, self.floor)

    def scaled(self, share: float) -> FullNoise:
        """Covariance times `share`."""
        return FullNoise.of(self.covariance * share, self.learned, self.floor)


def make_noise(noise: str | ArrayLike, variances: Array) -> Noise:
    """Noise to begin with: a kind to be learned, from the channels' variances, or known values.

    >>> make_noise("isotropic", np.array([1.0, 3.0])).value
    2.0
    >>> make_noise([[2.0, 1.0], [1.0, 2.0]], np.ones(2)).kind
    'full'
    """
    floor = FLOOR * variances
    if isinstance(noise, str):
        if noise == "isotropic":
            return IsotropicNoise(True, floor, float(variances.mean()))
        if noise == "diagonal":
            return DiagonalNoise(True, floor, variances.copy())
        if noise == "full":
            return FullNoise.of(np.diag(variances), True, floor)
        raise MethodError(f"noise must be one of {', '.join(KINDS)} or known values, got {noise!r}")
    return _known(np.asarray(noise, dtype=np.float64), len(variances), floor)


def _known(values: Array, channels: int, floor: Array) -> Noise:
    if not np.isfinite(values).all():
        raise MethodError("noise: the known noise contains NaN or infinite values")
    if values.shape not in ((), (channels,), (channels, channels)):
        raise MethodError(
            f"noise: known noise is a variance, {channels} variances or a {channels} x {channels} "
            f"covariance, got an array of shape {values.shape}"
        )
    if values.ndim == 2:
        if not np.allclose(values, values.T, rtol=1e-8, atol=0.0):
            raise MethodError("noise: the known covariance is not symmetric")
        return FullNoise.of(values, False, floor)
    if not (values > 0).all():
        raise MethodError("noise: known variances must be positive")
    if values.ndim == 1:
        return DiagonalNoise(False, floor, values)
    return IsotropicNoise(False, floor, float(values))


def _cholesky(covariance: Array) -> Array:
    try:
        return np.asarray(np.linalg.cholesky(covariance))
    except np.linalg.LinAlgError as error:
        raise MethodError("noise: the covariance is not positive definite") from error
