r"""Noise of ICA and its maximum likelihood update.

Isotropic and diagonal noise are held as one number or one number per channel; no matrix of the size
of the channels squared is ever made for them.

Reference: HOJ-L5, HOJ-M10.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array, Mask
from kikuchi.core.errors import MethodError

if TYPE_CHECKING:
    from kikuchi.ica.statistics import Statistics


KINDS = ("isotropic", "diagonal", "full")
AUTO = "auto"  # isotropic, or diagonal where the likelihood asks for it
FLOOR = 1e-6  # fraction of the data's variance below which learned noise does not fall


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

    @abstractmethod
    def unmixing(self, mixing: Array) -> Array:
        """The inverse of `mixing` (channels, sources) by least squares in units of this noise."""

    def squares(self, x: Array) -> Array:
        """x^T precision x for every sample, x of shape (channels, samples)."""
        return np.asarray(np.einsum("dn,dn->n", x, self.times_precision(x)))

    @abstractmethod
    def sample(self, rng: np.random.Generator, channels: int, count: int) -> Array:
        """Draws of shape (channels, samples)."""

    @abstractmethod
    def updated(self, statistics: Statistics, mixing: Array) -> Noise:
        """The noise of greatest likelihood given source moments, not below the floor."""

    @abstractmethod
    def scaled(self, factor: float) -> Noise:
        """The same noise with its covariance times `factor`."""

    def extrapolated(self, target: Noise, length: float) -> Noise:
        """Beyond `target` by `length` steps from here, variances in the logarithm; a covariance
        matrix stops at the target.
        """
        return target

    def channel_variances(self, channels: int) -> Array:
        """The variance of every channel."""
        value = np.asarray(self.value)
        return np.diag(value) if value.ndim == 2 else np.broadcast_to(value, (channels,)).copy()


@dataclass(frozen=True)
class IndependentNoise(Noise):
    """Noise without correlations between channels: one variance, or one per channel."""

    @property
    def flat(self) -> Array:
        """The variances as an array: one number, or one per channel."""
        return np.atleast_1d(self.value)

    @property
    def at_floor(self) -> Mask:
        """Which variances have fallen as far as they may."""
        floor = np.broadcast_to(self.floor, np.shape(self.floor))
        return np.asarray(self.flat <= (floor.mean() if self.flat.size == 1 else floor) * 1.000001)

    @abstractmethod
    def with_variances(self, variances: Array) -> IndependentNoise:
        """The same noise with other variances, as `flat` has them, raised to the floor."""

    def n_parameters(self, channels: int) -> int:
        """As many as there are variances, if learned."""
        return self.flat.size * int(self.learned)

    def times_precision(self, columns: Array) -> Array:
        """Each channel divided by its variance."""
        return np.asarray(columns / self.flat[:, None])

    def log_det(self, channels: int) -> float:
        """Sum of the log variances of all channels."""
        return float(np.log(self.flat).sum()) * (channels / self.flat.size)

    def unmixing(self, mixing: Array) -> Array:
        """The pseudo-inverse of the mixing whose channels are divided by their deviations."""
        root = np.sqrt(self.flat)[:, None]
        return np.asarray(np.linalg.pinv(mixing / root) / root.T)

    def channel_precisions(self, channels: int) -> Array:
        """1 / variance of every channel."""
        return np.full(channels, 1.0 / self.flat)

    def sample(self, rng: np.random.Generator, channels: int, count: int) -> Array:
        """Independent draws."""
        return np.sqrt(self.flat)[:, None] * rng.standard_normal((channels, count))

    def extrapolated(self, target: Noise, length: float) -> Noise:
        """Beyond `target` by `length` steps from here, in the logarithms of the variances."""
        assert isinstance(target, IndependentNoise)
        return target.with_variances(self.flat * (target.flat / self.flat) ** length)


@dataclass(frozen=True)
class IsotropicNoise(IndependentNoise):
    """One variance for all channels."""

    variance: float
    kind: ClassVar[str] = "isotropic"

    @property
    def value(self) -> float:
        """The variance."""
        return self.variance

    def with_variances(self, variances: Array) -> IsotropicNoise:
        """Noise with the one variance given, raised to the mean floor."""
        return replace(self, variance=max(float(variances[0]), float(np.mean(self.floor))))

    def squares(self, x: Array) -> Array:
        """Squared lengths divided by the variance."""
        return np.asarray(np.einsum("dn,dn->n", x, x) / self.variance)

    def updated(self, statistics: Statistics, mixing: Array) -> IsotropicNoise:
        """Mean expected squared residual over channels and samples."""
        if not self.learned:
            return self
        total = statistics.channel_residuals(mixing).sum() / statistics.counts.sum()
        return self.with_variances(np.atleast_1d(total))

    def scaled(self, factor: float) -> IsotropicNoise:
        """Variance times `factor`."""
        return replace(self, variance=self.variance * factor)


@dataclass(frozen=True)
class DiagonalNoise(IndependentNoise):
    """A variance for each channel."""

    variances: Array
    kind: ClassVar[str] = "diagonal"

    @property
    def value(self) -> Array:
        """The variances."""
        return self.variances

    def with_variances(self, variances: Array) -> DiagonalNoise:
        """Noise with these variances, each raised to its floor."""
        return replace(self, variances=np.maximum(variances, self.floor))

    def updated(self, statistics: Statistics, mixing: Array) -> DiagonalNoise:
        """Mean expected squared residual of each channel over its samples."""
        if not self.learned:
            return self
        return self.with_variances(statistics.channel_residuals(mixing) / statistics.counts)

    def scaled(self, factor: float) -> DiagonalNoise:
        """Variances times `factor`."""
        return replace(self, variances=self.variances * factor)


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

    def unmixing(self, mixing: Array) -> Array:
        """The pseudo-inverse of the mixing in coordinates in which the noise is white."""
        from scipy.linalg import solve_triangular

        white = np.linalg.pinv(solve_triangular(self.factor, mixing, lower=True))
        return np.asarray(solve_triangular(self.factor, white.T, lower=True, trans="T").T)

    def sample(self, rng: np.random.Generator, channels: int, count: int) -> Array:
        """The factor times independent draws."""
        return np.asarray(self.factor @ rng.standard_normal((channels, count)))

    def updated(self, statistics: Statistics, mixing: Array) -> FullNoise:
        """Mean expected outer product of residuals; small eigenvalues are lifted to the floor."""
        if not self.learned:
            return self
        matrix = statistics.residual_matrix(mixing) / statistics.count
        matrix = 0.5 * (matrix + matrix.T)
        values, vectors = np.linalg.eigh(matrix)
        least = float(np.mean(self.floor))
        if values[0] < least:
            matrix = (vectors * np.maximum(values, least)) @ vectors.T
        return FullNoise.of(matrix, True, self.floor)

    def scaled(self, factor: float) -> FullNoise:
        """Covariance times `factor`."""
        return FullNoise.of(self.covariance * factor, self.learned, self.floor)


def restore_noise(kind: str, value: Array, floor: Array, learned: bool) -> Noise:
    """The noise of this kind, value and floor; isotropic noise takes the mean of variances."""
    if kind == "isotropic":
        return IsotropicNoise(learned, floor, float(np.mean(value)))
    if kind == "diagonal":
        return DiagonalNoise(learned, floor, value)
    return FullNoise.of(value, learned, floor)


def make_noise(noise: str | ArrayLike, variances: Array) -> Noise:
    """Noise to begin with: a kind to be learned, from the channels' variances, or known values.
    "auto" begins as isotropic.

    >>> make_noise("isotropic", np.array([1.0, 3.0])).value
    2.0
    >>> make_noise([[2.0, 1.0], [1.0, 2.0]], np.ones(2)).kind
    'full'
    """
    floor = FLOOR * variances
    if isinstance(noise, str):
        noise = KINDS[0] if noise == AUTO else noise
        if noise not in KINDS:
            raise MethodError(
                f"noise must be one of {AUTO}, {', '.join(KINDS)} or known values, got {noise!r}"
            )
        first = np.diag(variances) if noise == "full" else variances.copy()
        return restore_noise(noise, first, floor, True)
    return _known(np.asarray(noise, dtype=np.float64), len(variances), floor)


def _known(values: Array, channels: int, floor: Array) -> Noise:
    if not np.isfinite(values).all():
        raise MethodError("noise: the known noise contains NaN or infinite values")
    if values.shape not in ((), (channels,), (channels, channels)):
        raise MethodError(
            f"noise: known noise is a variance, {channels} variances or a {channels} x {channels} "
            f"covariance, got an array of shape {values.shape}"
        )
    if values.ndim == 2 and not np.allclose(values, values.T, rtol=1e-8, atol=0.0):
        raise MethodError("noise: the known covariance is not symmetric")
    if values.ndim < 2 and not (values > 0).all():
        raise MethodError("noise: known variances must be positive")
    return restore_noise(KINDS[values.ndim], values, floor, False)


def _cholesky(covariance: Array) -> Array:
    try:
        return np.asarray(np.linalg.cholesky(covariance))
    except np.linalg.LinAlgError as error:
        raise MethodError("noise: the covariance is not positive definite") from error
