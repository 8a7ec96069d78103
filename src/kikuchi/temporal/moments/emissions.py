"""Outputs that depend on one linear function of the state: what they are and what they take.

Reference: HOJ-M13.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.options import Configured, Registry, option
from kikuchi.engines.sites.kernels import likelihoods as kernels


@dataclass(frozen=True)
class ScalarEmission(Configured, kind="emission"):
    """Base of emissions p(y | f) with f = w' x + offset."""

    code: ClassVar[int]

    def numbers(self) -> Array:
        """What the compiled loops need to know."""
        return np.zeros(1)

    def check(self, y: Array) -> Array:
        """Outputs as the compiled loops read them; NaN is missing."""
        return y

    def log_likelihood(self, y: ArrayLike, f: ArrayLike) -> Array:
        """log p(y | f), element by element.

        >>> EMISSIONS.parse("logistic").log_likelihood([1.0], [0.0]).round(3).tolist()
        [-0.693]
        """
        outputs, predictors = np.broadcast_arrays(np.asarray(y, float), np.asarray(f, float))
        flat = [
            kernels.log_likelihood(self.code, a, b, self.numbers())
            for a, b in zip(outputs.ravel().tolist(), predictors.ravel().tolist(), strict=True)
        ]
        return np.array(flat).reshape(outputs.shape)

    def tilted(self, y: Array, means: Array, variances: Array) -> tuple[Array, Array, Array]:
        """Log-mass, mean and variance of N(f; mean, variance) p(y | f) for each row.

        Reference: HOJ-I22.
        """
        out = [np.empty(len(y)) for _ in range(3)]
        kernels.tilted_rows(self.code, y, means, variances, self.numbers(), *out)
        return out[0], out[1], out[2]

    def sample(self, f: Array, rng: np.random.Generator) -> Array:
        """Outputs drawn at these linear predictors."""
        raise NotImplementedError


@dataclass(frozen=True)
class LabelEmission(ScalarEmission):
    """Base of labels 1 and -1: the sign of f less noise of a distribution, `noise`."""

    noise: ClassVar[str]

    def check(self, y: Array) -> Array:
        """Refuse other labels."""
        wrong = ~np.isnan(y) & (np.abs(y) != 1.0)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise DataError(f"row {row} has label {y[row]:g}; labels are 1 and -1")
        return y

    def sample(self, f: Array, rng: np.random.Generator) -> Array:
        """Draw labels."""
        return np.where(getattr(rng, self.noise)(size=f.shape) < f, 1.0, -1.0)


class Probit(LabelEmission):
    """Labels 1 and -1 with p(1) = Phi(f)."""

    name: ClassVar[str] = "probit"
    code: ClassVar[int] = kernels.PROBIT
    noise: ClassVar[str] = "normal"


class Logistic(LabelEmission):
    """Labels 1 and -1 with p(1) = 1 / (1 + exp(-f))."""

    name: ClassVar[str] = "logistic"
    code: ClassVar[int] = kernels.LOGISTIC
    noise: ClassVar[str] = "logistic"


class Poisson(ScalarEmission):
    """Counts with mean exp(f)."""

    name: ClassVar[str] = "poisson"
    code: ClassVar[int] = kernels.POISSON

    def check(self, y: Array) -> Array:
        """Refuse what is no count."""
        wrong = ~np.isnan(y) & ((y < 0) | (y != np.round(y)))
        if wrong.any():
            row = int(np.argmax(wrong))
            raise DataError(f"row {row} has {y[row]:g}; counts are whole numbers >= 0")
        return y

    def sample(self, f: Array, rng: np.random.Generator) -> Array:
        """Draw counts."""
        return rng.poisson(np.exp(f)).astype(np.float64)


@dataclass(frozen=True)
class StudentNoise(ScalarEmission):
    """Numbers f + scale times a Student t variable: outliers count little."""

    name: ClassVar[str] = "student"
    code: ClassVar[int] = kernels.STUDENT

    dof: float = option(4.0, "Degrees of freedom.", above=0)
    scale: float = option(1.0, "Scale of the noise.", above=0)

    def numbers(self) -> Array:
        """Degrees of freedom and scale."""
        return np.array([self.dof, self.scale])

    def sample(self, f: Array, rng: np.random.Generator) -> Array:
        """Draw numbers."""
        return f + self.scale * rng.standard_t(self.dof, size=f.shape)


@dataclass(frozen=True)
class Quantised(ScalarEmission):
    """The number of the interval in which f + noise lies: 0 below the first edge, and so on."""

    name: ClassVar[str] = "quantised"
    code: ClassVar[int] = kernels.QUANTISED

    edges: str = option("-1;0;1", "Edges of the intervals, increasing, between semicolons.")
    noise: float = option(1.0, "Standard deviation of the noise.", above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.inner or any(b <= a for a, b in zip(self.inner, self.inner[1:], strict=False)):
            raise MethodError(f"edges must be increasing numbers, got '{self.edges}'")

    @property
    def inner(self) -> list[float]:
        """The edges as numbers."""
        try:
            return [float(part) for part in self.edges.split(";")]
        except ValueError:
            raise MethodError(f"edges are numbers between semicolons, got '{self.edges}'") from None

    def numbers(self) -> Array:
        """Noise and all edges."""
        return np.array([self.noise, -np.inf, *self.inner, np.inf])

    def check(self, y: Array) -> Array:
        """Refuse what is no number of an interval."""
        last = len(self.inner)
        wrong = ~np.isnan(y) & ((y < 0) | (y > last) | (y != np.round(y)))
        if wrong.any():
            row = int(np.argmax(wrong))
            raise DataError(f"row {row} has {y[row]:g}; intervals are numbered 0 to {last}")
        return y

    def sample(self, f: Array, rng: np.random.Generator) -> Array:
        """Draw numbers of intervals."""
        noisy = f + self.noise * rng.normal(size=f.shape)
        return np.searchsorted(self.inner, noisy).astype(np.float64)


EMISSIONS: Registry[Any] = Registry(
    __name__.rpartition(".")[0],
    "emission",
    {
        "probit": "emissions:Probit",
        "logistic": "emissions:Logistic",
        "poisson": "emissions:Poisson",
        "student": "emissions:StudentNoise",
        "quantised": "emissions:Quantised",
    },
)
