r"""Mixing matrices: priors on their entries and the M-step.

Given moments of the sources the M-step minimises, over A (channels, sources),

    tr(P A S A^T) / 2 - tr(P C A^T) + sum_di (alpha A_di^2 / 2 + beta |A_di|),

with P the noise precision, S = <SS^T> and C = X <S>^T. Where samples lack values, S differs from
channel to channel. Without beta and constraints the minimum is the solution of linear equations;
else coordinates are minimised in turn, each exactly, so that no step can go up.

Reference: HOJ-L3, HOJ-L4, HOJ-M9.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import MethodError
from kikuchi.core.options import Configured, Registry, option
from kikuchi.ica.noise import FullNoise, IndependentNoise, IsotropicNoise, Noise
from kikuchi.ica.statistics import times_second

RULES = ("free", "nonnegative", "multiplicative")
_SWEEPS = 200
_SINGULAR = 1e-12  # least eigenvalue of the sources' correlations, as a fraction of the greatest
_STOPPED = 1e-10  # of the largest entry: coordinates have stopped
_MULTIPLICATIVE_STEPS = 10
_LEAST = 1e-16  # entries of the multiplicative rule stay above this fraction of the largest


@dataclass(frozen=True)
class MixingPrior(Configured, kind="mixing prior"):
    """A prior of all entries of A: -log p = alpha A^2 / 2 + beta |A|."""

    @property
    def alpha(self) -> float:
        """Precision of the Gaussian part: the option `precision` where there is one."""
        return float(getattr(self, "precision", 0.0))

    @property
    def beta(self) -> float:
        """Rate of the Laplace part: the option `rate` where there is one."""
        return float(getattr(self, "rate", 0.0))

    def penalty(self, mixing: Array) -> float:
        """-log p(A), up to its constant."""
        squares, sizes = float(np.sum(mixing**2)), float(np.abs(mixing).sum())
        return 0.5 * self.alpha * squares + self.beta * sizes


class FlatMixing(MixingPrior):
    """No preference."""

    name: ClassVar[str] = "flat"


@dataclass(frozen=True)
class GaussianMixing(MixingPrior):
    """Entries normal around 0."""

    name: ClassVar[str] = "gaussian"
    precision: float = option(1.0, "1 / variance of an entry", above=0.0)


@dataclass(frozen=True)
class LaplaceMixing(MixingPrior):
    """Sparse entries."""

    name: ClassVar[str] = "laplace"
    rate: float = option(1.0, "rate of decay of an entry", above=0.0)


@dataclass(frozen=True)
class ElasticMixing(LaplaceMixing, GaussianMixing):
    """Sparse entries that are not large either."""

    name: ClassVar[str] = "elastic"


MIXING_PRIORS: Registry[MixingPrior] = Registry(
    "kikuchi.ica",
    "mixing prior",
    {cls.name: cls for cls in (FlatMixing, GaussianMixing, LaplaceMixing, ElasticMixing)},
)
parse_mixing_prior = MIXING_PRIORS.parse


class MixingTask(NamedTuple):
    """One M-step: C (D, I), S (I, I) or (D, I, I), the noise and the penalties."""

    cross: Array
    second: Array
    noise: Noise
    prior: MixingPrior

    @property
    def by_channel(self) -> bool:
        """Whether every channel has its own S."""
        return self.second.ndim == 3

    def gradient(self, mixing: Array) -> Array:
        """Derivative of the smooth part of what is minimised."""
        return (
            self.noise.times_precision(self.times_second(mixing) - self.cross)
            + self.prior.alpha * mixing
        )

    def times_second(self, mixing: Array) -> Array:
        """A S."""
        return times_second(mixing, self.second)

    def value(self, mixing: Array) -> float:
        """What is minimised."""
        weighted = self.noise.times_precision(0.5 * self.times_second(mixing) - self.cross)
        return float(np.sum(weighted * mixing)) + self.prior.penalty(mixing)


def update_mixing(rule: str, mixing: Array, task: MixingTask) -> Array:
    """The M-step of A under a rule: free, nonnegative, or nonnegative by multiplication."""
    if rule == "multiplicative":
        return multiplicative(mixing, task)
    if rule == "nonnegative":
        return _coordinates(np.maximum(mixing, 0.0), task, _positive_part)
    if task.prior.beta > 0:
        return _coordinates(mixing, task, _shrunk)
    return linear(task)


def linear(task: MixingTask) -> Array:
    """A = C (S + alpha Sigma)^-1 channel by channel; Sylvester's equation for full noise.

    >>> noise = IsotropicNoise(True, 0.0, 0.5)
    >>> linear(MixingTask(np.eye(2), np.eye(2), noise, GaussianMixing(2.0))).tolist()
    [[0.5, 0.0], [0.0, 0.5]]
    """
    alpha = task.prior.alpha
    channels, sources = task.cross.shape
    if alpha == 0.0 and not task.by_channel:
        return _solved(task.second, task.cross.T).T
    if isinstance(task.noise, FullNoise):
        from scipy.linalg import solve_sylvester

        left = alpha * task.noise.covariance
        return np.asarray(solve_sylvester(left, task.second, task.cross))
    ridge = alpha / _precisions(task.noise, channels)
    if not task.by_channel and isinstance(task.noise, IsotropicNoise):
        return _solved(task.second + ridge[0] * np.eye(sources), task.cross.T).T
    matrices = task.second + ridge[:, None, None] * np.eye(sources)
    return np.array([_solved(m, c) for m, c in zip(matrices, task.cross, strict=True)])


def multiplicative(mixing: Array, task: MixingTask) -> Array:
    """A_di times the ratio of what pulls it up to what pulls it down, ten times.

    A ratio that is not positive (linear response may give negative <SS^T>) has no such step: then
    coordinates are minimised under the same constraint.
    """
    up = task.noise.times_precision(task.cross)
    beta, alpha = task.prior.beta, task.prior.alpha
    now = np.maximum(mixing, _LEAST * float(np.abs(mixing).max()))
    for _ in range(_MULTIPLICATIVE_STEPS):
        down = task.noise.times_precision(task.times_second(now)) + alpha * now + beta
        if not ((up >= 0).all() and (down > 0).all()):
            return _coordinates(now, task, _positive_part)
        now = np.maximum(now * up / down, _LEAST * float(now.max()))
    return now


def _coordinates(mixing: Array, task: MixingTask, threshold: _Threshold) -> Array:
    """Exact minimisation of one coordinate after the other until they stop moving."""
    if isinstance(task.noise, FullNoise):
        sweep = _sweep_entries
        weights = task.noise.times_precision(np.eye(len(mixing)))
    else:
        sweep = _sweep_columns
        weights = _precisions(task.noise, len(mixing))
    now = mixing.copy()
    for _ in range(_SWEEPS):
        before = now.copy()
        sweep(now, task, weights, threshold)
        if float(np.abs(now - before).max()) <= _STOPPED * float(np.abs(now).max()):
            break
    return now


_Threshold = Callable[[Array, float], Array]


def _sweep_columns(now: Array, task: MixingTask, weights: Array, threshold: _Threshold) -> None:
    """Channels do not interact: a whole column at a time."""
    alpha, beta = task.prior.alpha, task.prior.beta
    for i in range(now.shape[1]):
        own = task.second[..., i, i]
        pulled = np.einsum("di,di->d", now, np.broadcast_to(task.second[..., i], now.shape))
        wanted = weights * (task.cross[:, i] - pulled + own * now[:, i])
        now[:, i] = threshold(wanted, beta) / np.maximum(weights * own + alpha, 1e-300)


def _sweep_entries(now: Array, task: MixingTask, weights: Array, threshold: _Threshold) -> None:
    """Full noise couples channels: one entry at a time."""
    alpha, beta = task.prior.alpha, task.prior.beta
    rest = task.cross - now @ task.second
    for i in range(now.shape[1]):
        for d in range(now.shape[0]):
            curve = weights[d, d] * task.second[i, i]
            wanted = float(weights[d] @ rest[:, i]) + curve * now[d, i]
            value = float(threshold(np.array(wanted), beta)) / max(curve + alpha, 1e-300)
            rest[d] -= (value - now[d, i]) * task.second[i]
            now[d, i] = value


def _positive_part(wanted: Array, beta: float) -> Array:
    return np.asarray(np.maximum(wanted - beta, 0.0))


def _shrunk(wanted: Array, beta: float) -> Array:
    return np.asarray(np.sign(wanted) * np.maximum(np.abs(wanted) - beta, 0.0))


def _precisions(noise: Noise, channels: int) -> Array:
    if isinstance(noise, IndependentNoise):
        return noise.channel_precisions(channels)
    raise MethodError("missing values need isotropic or diagonal noise, not full")


def _solved(matrix: Array, columns: Array) -> Array:
    """matrix^-1 columns, or of one column; a dead source (a zero row) gets zeros instead of a
    division by zero, and sources that are always alike divide their common column.
    """
    scale = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    alive = scale > 1e-150
    out = np.zeros(columns.shape)
    part = matrix[np.ix_(alive, alive)] / np.outer(scale[alive], scale[alive])
    right = (columns[alive].T / scale[alive]).T
    sizes = np.abs(np.linalg.eigvalsh(part)) if len(part) else np.ones(1)
    if sizes.min() > _SINGULAR * sizes.max():
        solution = np.linalg.solve(part, right)
    else:
        solution = np.linalg.lstsq(part, right, rcond=_SINGULAR)[0]
    out[alive] = (solution.T / scale[alive]).T
    return out
