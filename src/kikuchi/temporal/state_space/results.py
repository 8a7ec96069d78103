"""What filters, smoothers and forecasts of state spaces answer with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import Array, Mask
from kikuchi.core.errors import ModelError

_ROUNDING = 1e-8  # of a variance, relative to the largest one of its state


def check_variances(covariances: Array) -> None:
    """Refuse covariances (T, n, n) with variances that are negative by more than rounding.

    >>> check_variances(np.array([[[1.0]], [[-1e-12]]]))
    """
    variances = np.diagonal(covariances, axis1=1, axis2=2)
    low, high = variances.min(axis=0, initial=0.0), variances.max(axis=0, initial=0.0)
    if (low < -_ROUNDING * high).any():
        raise ModelError(
            f"rounding made the variance of a state negative ({low.min():.2g}); use "
            "arithmetic='square-root'"
        )


def deviations(covariances: Array) -> Array:
    """Standard deviations (T, n) of covariances (T, n, n); negative variances are refused."""
    check_variances(covariances)
    return np.sqrt(np.maximum(np.diagonal(covariances, axis1=1, axis2=2), 0.0))


class EqualSteps(NamedTuple):
    """A matrix for each step, of which those of steps low <= t < high are all `same`.

    `rows` are the matrices of the other steps in order: once covariances no longer change, memory
    is that of the means alone.

    >>> steps = EqualSteps(np.array([[[1.0]], [[4.0]]]), 1, 4, np.array([[2.0]]))
    >>> steps.every().ravel().tolist(), steps.sum().item()
    ([1.0, 2.0, 2.0, 2.0, 4.0], 11.0)
    """

    rows: Array
    low: int = 0
    high: int = 0
    same: Array | None = None

    def every(self) -> Array:
        """All of them, (T, n, n)."""
        if self.same is None or self.low == self.high:
            return self.rows
        out = np.empty((len(self.rows) + self.high - self.low, *self.rows.shape[1:]))
        out[: self.low], out[self.high :] = self.rows[: self.low], self.rows[self.low :]
        out[self.low : self.high] = self.same
        return out

    def sum(self) -> Array:
        """Their sum over steps."""
        total = self.rows.sum(axis=0)
        return np.asarray(
            total if self.same is None else total + (self.high - self.low) * self.same
        )

    @property
    def first(self) -> Array:
        """That of the first step."""
        return self.rows[0] if self.same is None or self.low > 0 else self.same

    @property
    def last(self) -> Array:
        """That of the last step."""
        return self.rows[-1] if self.same is None or self.low < len(self.rows) else self.same


@dataclass(eq=False)
class StateMoments:
    """`mean` (T, n) and covariances of states, `log_likelihood`, and the `arithmetic` used."""

    mean: Array
    log_likelihood: float
    arithmetic: str
    _covariances: EqualSteps

    @cached_property
    def covariance(self) -> Array:
        """Covariance of each step, (T, n, n); steady ones are filled in when asked for."""
        return self._covariances.every()

    @property
    def deviation(self) -> Array:
        """Standard deviation of each state, (T, n)."""
        return deviations(self.covariance)


@dataclass(eq=False)
class FilteredStates(StateMoments):
    """States given the outputs up to each step.

    Attributes
    ----------
    mean (T, n), covariance (T, n, n), log_likelihood, steady (first step from which on covariances
    stay the same; T if none), proper (T,): False where a flat prior is not yet overcome. There the
    mean is that of the directions known so far, and unknown variances are infinite.

    Reference: HOJ-I6.
    """

    steady: int
    proper: Mask

    @property
    def last(self) -> tuple[Array, Array]:
        """Mean and covariance of the last step."""
        return self.mean[-1], self._covariances.last


@dataclass(eq=False)
class SmoothedStates(StateMoments):
    """States given all outputs.

    Attributes
    ----------
    mean (T, n), covariance (T, n, n), pair_covariance (T - 1, n, n): Cov(x_t, x_t+1),
    log_likelihood, arithmetic.

    Reference: HOJ-I7.
    """

    _pairs: EqualSteps

    @cached_property
    def pair_covariance(self) -> Array:
        """Covariance of each state (rows) and the next (columns), (T - 1, n, n)."""
        return self._pairs.every()

    def covariance_sums(self) -> tuple[Array, Array, Array, Array]:
        """Sums over steps of the covariances of all steps and of pairs, and the first and the last
        covariance, without filling in those that are equal.
        """
        return (
            self._covariances.sum(), self._pairs.sum(), self._covariances.first,
            self._covariances.last,
        )  # fmt: skip


class Forecast(NamedTuple):
    """Moments of outputs and states of the steps after the last one.

    mean (steps, m) and covariance (steps, m, m) are those of the outputs, noise included;
    state_mean (steps, n) and state_covariance (steps, n, n) those of the states.
    """

    mean: Array
    covariance: Array
    state_mean: Array
    state_covariance: Array

    @property
    def deviation(self) -> Array:
        """Standard deviation of each output."""
        return np.sqrt(np.diagonal(self.covariance, axis1=1, axis2=2))
