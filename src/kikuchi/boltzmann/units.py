"""Kinds of units: what a layer does with the field that the other layer sends it.

A unit with field `x` (bias included) has density proportional to `base(s) exp(x s)`. All that
sampling, reconstruction and free energies need is the mean, a draw, and the logarithm of the sum
of that density over the states, `log_partition`.

Reference: TEH-M8, TEH-M9.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from kikuchi.core.options import Configured, Registry, option

Array = NDArray[Any]


@dataclass(frozen=True)
class Units(Configured, ABC, kind="kind of units"):
    """Base of the kinds of units."""

    @property
    def limits(self) -> tuple[float, float]:
        """Smallest and largest value that data may have."""
        return -np.inf, np.inf

    @abstractmethod
    def mean(self, field: Array) -> Array:
        """Expected value of each unit."""

    @abstractmethod
    def draw(self, field: Array, rng: np.random.Generator) -> Array:
        """One state of each unit."""

    @abstractmethod
    def log_partition(self, field: Array) -> Array:
        """Logarithm of the sum of `base(s) exp(field s)` over the states `s`."""

    @abstractmethod
    def log_base(self, states: Array) -> Array:
        """Logarithm of the base measure of each state."""


class BinaryUnits(Units):
    """Units that are 0 or 1: the mean is the logistic function of the field.

    >>> float(BinaryUnits().mean(np.zeros(1))[0])
    0.5
    """

    name: ClassVar[str] = "binary"
    summary: ClassVar[str] = "0 or 1"

    @property
    def limits(self) -> tuple[float, float]:
        """Data are states or probabilities of 1."""
        return 0.0, 1.0

    def mean(self, field: Array) -> Array:
        """Probability of 1."""
        result: Array = expit(field)
        return result

    def draw(self, field: Array, rng: np.random.Generator) -> Array:
        """0 or 1, each as probable as the field says."""
        uniform = rng.random(field.shape, dtype=field.dtype.type)
        result: Array = (uniform < expit(field)).astype(field.dtype)
        return result

    def log_partition(self, field: Array) -> Array:
        """log(1 + exp(field))."""
        result: Array = np.logaddexp(field, np.zeros((), field.dtype))
        return result

    def log_base(self, states: Array) -> Array:
        """Both states weigh the same."""
        return np.zeros_like(states)


@dataclass(frozen=True)
class BinomialUnits(Units):
    """Units that count how many of `replicas` equal binary units are on.

    >>> float(BinomialUnits(replicas=10).mean(np.zeros(1))[0])
    5.0
    """

    name: ClassVar[str] = "binomial"
    summary: ClassVar[str] = "number of equal binary units that are on: 0 to replicas"

    replicas: int = option(10, "binary units that share their weights", low=1)

    @property
    def limits(self) -> tuple[float, float]:
        """Data are counts, or means of counts."""
        return 0.0, float(self.replicas)

    def mean(self, field: Array) -> Array:
        """Expected number of units that are on."""
        result: Array = self.replicas * expit(field)
        return result

    def draw(self, field: Array, rng: np.random.Generator) -> Array:
        """How many of the replicas are on."""
        result: Array = rng.binomial(self.replicas, expit(field)).astype(field.dtype)
        return result

    def log_partition(self, field: Array) -> Array:
        """`replicas` times log(1 + exp(field))."""
        result: Array = self.replicas * np.logaddexp(field, np.zeros((), field.dtype))
        return result

    def log_base(self, states: Array) -> Array:
        """Logarithm of the number of ways to choose the units that are on."""
        from scipy.special import gammaln

        n = self.replicas
        result: Array = gammaln(n + 1.0) - gammaln(states + 1.0) - gammaln(n - states + 1.0)
        return result.astype(states.dtype)


class GaussianUnits(Units):
    """Real units of variance 1 around their field; data are standardised to suit them.

    >>> float(GaussianUnits().mean(np.array([1.5]))[0])
    1.5
    """

    name: ClassVar[str] = "gaussian"
    summary: ClassVar[str] = "real, of variance 1"

    def mean(self, field: Array) -> Array:
        """The field itself."""
        return field

    def draw(self, field: Array, rng: np.random.Generator) -> Array:
        """The field and noise of variance 1."""
        return field + rng.standard_normal(field.shape, dtype=field.dtype.type)

    def log_partition(self, field: Array) -> Array:
        """Half the square of the field: the base measure is a standard normal density."""
        result: Array = 0.5 * field * field
        return result

    def log_base(self, states: Array) -> Array:
        """Logarithm of the standard normal density."""
        result: Array = -0.5 * states * states - 0.5 * np.log(2 * np.pi)
        return result.astype(states.dtype)


UNITS: Registry[Units] = Registry(
    "kikuchi.boltzmann",
    "kind of units",
    {cls.name: cls for cls in (BinaryUnits, BinomialUnits, GaussianUnits)},
)
parse_units = UNITS.parse
