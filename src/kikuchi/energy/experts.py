"""Experts: energies of one feature u, whose sum over the features is the energy of a row.

An expert need not be normalised. Where it is known, `log_normaliser` is log of the integral of
exp(-E(u)), which makes Z of a square model exact, and `quantiles` inverts its distribution.

Reference: TEH-M6, TEH-M12, TEH-M13, TEH-M14.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from numpy.typing import NDArray

from kikuchi.core.options import Configured, Registry, option


@dataclass(frozen=True)
class Expert(Configured, ABC, kind="expert"):
    """The energy of one feature; `shapes` are positive numbers that learning may change, one for
    each feature, or None for experts without.
    """

    first_shape: ClassVar[float | None] = None

    @abstractmethod
    def energy(self, u: Any, shapes: Any) -> Any:
        """E(u), elementwise."""

    @abstractmethod
    def log_normaliser(self, shapes: Any) -> Any:
        """Log of the integral of exp(-E(u)) for each shape (a number for experts without)."""

    @abstractmethod
    def draw(self, key: Any, size: tuple[int, int], shapes: Any) -> Any:
        """Independent features with density exp(-E(u)) / normaliser."""


class StudentT(Expert):
    """E(u) = shape * log(1 + u²): Student's t with 2 shape - 1 degrees of freedom."""

    name: ClassVar[str] = "student-t"
    summary: ClassVar[str] = "Student's t, heavy tails, shape learnt"
    first_shape: ClassVar[float | None] = 1.0

    def energy(self, u: Any, shapes: Any) -> Any:
        """shape * log(1 + u²)."""
        return shapes * jnp.log1p(u * u)

    def log_normaliser(self, shapes: Any) -> Any:
        """sqrt(pi) Gamma(shape - 1/2) / Gamma(shape); infinite up to a shape of 1/2."""
        safe = jnp.maximum(shapes, 0.5 + 1e-6)
        value = 0.5 * jnp.log(jnp.pi) + gammaln(safe - 0.5) - gammaln(safe)
        return jnp.where(shapes > 0.5, value, jnp.inf)

    def draw(self, key: Any, size: tuple[int, int], shapes: Any) -> Any:
        """Student's t, scaled."""
        degrees = 2.0 * shapes - 1.0
        return jax.random.t(key, degrees, size) / jnp.sqrt(degrees)


@jax.custom_jvp
def _logistic_energy(u: Any) -> Any:
    return u + 2.0 * jax.nn.softplus(-u)


@_logistic_energy.defjvp
def _logistic_slope(primals: Any, tangents: Any) -> Any:
    """The slope is tanh(u / 2), one function in place of the several of an automatic derivative."""
    (u,), (change,) = primals, tangents
    return _logistic_energy(u), jnp.tanh(0.5 * u) * change


class LogisticExpert(Expert):
    """E(u) = |u| + 2 log(1 + exp(-|u|)): the logistic density."""

    name: ClassVar[str] = "logistic"
    summary: ClassVar[str] = "the logistic density, as in infomax ICA"

    def energy(self, u: Any, shapes: Any) -> Any:
        """u + 2 softplus(-u), which is even in u and smooth at 0."""
        return _logistic_energy(u)

    def log_normaliser(self, shapes: Any) -> Any:
        """The density is normalised."""
        return 0.0

    def draw(self, key: Any, size: tuple[int, int], shapes: Any) -> Any:
        """Logistic numbers."""
        return jax.random.logistic(key, size)


@dataclass(frozen=True)
class TabulatedExpert(Expert):
    """Base of experts whose distribution is inverted from a table."""

    @abstractmethod
    def _half_width(self) -> float:
        """Where the density is negligible."""

    @cached_property
    def table(self) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """Distribution function on a grid, the grid, and the log of the whole integral."""
        width = self._half_width()
        # numbers also where a compiled function asks first
        with jax.ensure_compile_time_eval(), jax.enable_x64(True):
            grid = np.sinh(np.linspace(-1.0, 1.0, 20_001) * np.arcsinh(width))
            density = np.exp(-np.asarray(self.energy(jnp.asarray(grid), None)))
        mass = 0.5 * (density[1:] + density[:-1]) * np.diff(grid)
        total = np.concatenate([[0.0], np.cumsum(mass)])
        return total / total[-1], grid, float(np.log(total[-1]))

    def log_normaliser(self, shapes: Any) -> Any:
        """By the trapezoidal rule."""
        return self.table[2]

    def draw(self, key: Any, size: tuple[int, int], shapes: Any) -> Any:
        """Quantiles of uniform numbers."""
        below, grid, _ = self.table
        return jnp.interp(jax.random.uniform(key, size), jnp.asarray(below), jnp.asarray(grid))


@dataclass(frozen=True)
class SmoothLaplace(TabulatedExpert):
    """E(u) = sqrt(u² + width²): the tails of Laplace's density, smooth at 0."""

    name: ClassVar[str] = "laplace"
    summary: ClassVar[str] = "Laplace's tails, smooth at 0"

    width: float = option(0.1, "width of the rounding at 0", above=0)

    def energy(self, u: Any, shapes: Any) -> Any:
        """The rounded absolute value."""
        return jnp.sqrt(u * u + self.width**2)

    def _half_width(self) -> float:
        return 60.0 + 10.0 * self.width


@dataclass(frozen=True)
class GaussianMixtureExpert(TabulatedExpert):
    """A narrow and a broad Gaussian around 0."""

    name: ClassVar[str] = "gaussian-mixture"

    narrow: float = option(0.5, "standard deviation of the narrow Gaussian", above=0)
    broad: float = option(2.0, "standard deviation of the broad Gaussian", above=0)
    weight: float = option(0.7, "weight of the narrow Gaussian", above=0, below=1)

    def energy(self, u: Any, shapes: Any) -> Any:
        """Minus the log of the mixture's density."""
        squares, root = u * u, 0.5 * np.log(2 * np.pi)
        first = np.log(self.weight / self.narrow) - root - squares / (2 * self.narrow**2)
        second = np.log((1 - self.weight) / self.broad) - root - squares / (2 * self.broad**2)
        return -jnp.logaddexp(first, second)

    def _half_width(self) -> float:
        return 40.0 * max(self.narrow, self.broad)


EXPERTS: Registry[Expert] = Registry(
    "kikuchi.energy",
    "expert",
    {cls.name: cls for cls in (StudentT, LogisticExpert, SmoothLaplace, GaussianMixtureExpert)},
)
