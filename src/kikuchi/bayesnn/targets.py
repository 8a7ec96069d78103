"""Scales of targets on which noise is Gaussian: as they are, square roots of counts, logarithms.

The bound is on the density of the targets themselves, whatever their scale, so that it can be used
to compare scales. Means, standard deviations and intervals come back from a Gaussian on the scale
in closed form.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError

_SHIFT = 0.375  # with it the square root of a Poisson count has the steadiest variance


class TargetScale(ABC):
    """A monotone scale of targets."""

    @abstractmethod
    def forward(self, y: Array) -> Array:
        """Targets on the scale."""

    @abstractmethod
    def back(self, z: Array) -> Array:
        """Targets of values on the scale."""

    @abstractmethod
    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Mean and variance of targets whose values on the scale are Gaussian."""

    @abstractmethod
    def log_slopes(self, y: Array) -> Array:
        """Logarithms of the slope of the scale at each target."""

    def log_slope(self, y: Array) -> float:
        """Their sum."""
        return float(self.log_slopes(y).sum())


class PlainScale(TargetScale):
    """Targets as they are."""

    def forward(self, y: Array) -> Array:
        """The same."""
        return y

    def back(self, z: Array) -> Array:
        """The same."""
        return z

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """The same."""
        return mean, variance

    def log_slopes(self, y: Array) -> Array:
        """0."""
        return np.zeros(len(y))


class RootScale(TargetScale):
    """2 sqrt(y + 3/8): counts, whose variance grows with their size, get the variance 1.

    >>> scale = RootScale()
    >>> float(scale.back(scale.forward(np.array([7.0])))[0])
    7.0
    """

    def forward(self, y: Array) -> Array:
        """2 sqrt(y + 3/8)."""
        if np.any(y < 0):
            raise DataError(f"scale='root' is for targets from 0 up, got {y.min():g}")
        return 2.0 * np.sqrt(y + _SHIFT)

    def back(self, z: Array) -> Array:
        """z² / 4 - 3/8, of which no target is below the value at z = 0."""
        return np.maximum(z, 0.0) ** 2 / 4.0 - _SHIFT

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return the moments of z² / 4 - 3/8."""
        squares = 4.0 * mean**2 * variance + 2.0 * variance**2
        return (mean**2 + variance) / 4.0 - _SHIFT, squares / 16.0

    def log_slopes(self, y: Array) -> Array:
        """Return the log derivative, log (y + 3/8)^(-1/2)."""
        return np.asarray(-0.5 * np.log(y + _SHIFT))


class LogScale(TargetScale):
    """ln y: positive targets whose errors are proportional to their size."""

    def forward(self, y: Array) -> Array:
        """ln y."""
        if np.any(y <= 0):
            raise DataError(f"scale='log' is for targets above 0, got {y.min():g}")
        return np.log(y)

    def back(self, z: Array) -> Array:
        """exp z."""
        return np.exp(z)

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return the moments of a log-normal variable."""
        average = np.exp(mean + 0.5 * variance)
        return average, average**2 * np.expm1(variance)

    def log_slopes(self, y: Array) -> Array:
        """Return the log derivative, log (1 / y)."""
        return np.asarray(-np.log(y))


SCALES: dict[str, Any] = {"plain": PlainScale(), "root": RootScale(), "log": LogScale()}
"""The scales by name."""
