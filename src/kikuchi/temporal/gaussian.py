"""Gaussian potentials in canonical and in moment form, over named blocks of variables.

A canonical potential may be rank deficient: a conditional density, or no information at all.
Multiplying, dividing and conditioning are free there; marginalising is free in moment form.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import ModelError

_LOG_2PI = math.log(2.0 * math.pi)
_SINGULAR = 1e-12  # smallest eigenvalue of a definite matrix, relative to the largest
_SYMMETRIC = 1e-8

Scope = Mapping[str, int]
"""Names of blocks with their numbers of dimensions."""


def is_positive(matrix: Array) -> bool:
    """Whether a symmetric matrix is positive definite, with a margin for rounding.

    >>> is_positive(np.eye(2)), is_positive(np.ones((2, 2)))
    (True, False)
    """
    if not matrix.size:
        return True
    values = np.linalg.eigvalsh(matrix)
    return bool(values[0] > _SINGULAR * max(values[-1], 0.0))


def symmetric_inverse(matrix: Array) -> Array:
    """The inverse of a symmetric matrix, or of each of several, without the asymmetry of rounding.

    >>> symmetric_inverse(np.array([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    inverse = np.asarray(np.linalg.inv(matrix), dtype=np.float64)
    return 0.5 * (inverse + np.swapaxes(inverse, -1, -2))


@dataclass(frozen=True, eq=False)
class CanonicalGaussian:
    """exp(log_scale - x' Lambda x / 2 + gamma' x) over the blocks of `scope`.

    Parameters
    ----------
    scope : names of blocks with their dimensions, in the order of the coordinates
    shift : gamma
    precision : Lambda, symmetric; need not be invertible or positive
    log_scale : logarithm of the value at x = 0

    >>> prior = MomentGaussian({"x": 1}, [0.0], [[4.0]]).canonical()
    >>> seen = CanonicalGaussian.conditional("y", "x", [[1.0]], [[1.0]]).condition({"y": [2.0]})
    >>> posterior = (prior * seen).moments()
    >>> posterior.mean.round(3).tolist(), posterior.covariance.round(3).tolist()
    ([1.6], [[0.8]])

    Reference: HOJ-M16, HOJ-I25.
    """

    scope: Scope
    shift: Array
    precision: Array
    log_scale: float = 0.0

    def __post_init__(self) -> None:
        shift, precision = _checked(self.scope, self.shift, self.precision, "precision")
        object.__setattr__(self, "scope", dict(self.scope))
        object.__setattr__(self, "shift", shift)
        object.__setattr__(self, "precision", precision)

    # ------------------------------------------------------------------ makers

    @classmethod
    def flat(cls, scope: Scope) -> CanonicalGaussian:
        """The potential over the blocks of `scope`, {name: dimension}, that is 1 everywhere: no
        information.

        >>> CanonicalGaussian.flat({"x": 2}).precision.sum()
        np.float64(0.0)
        """
        n = sum(scope.values())
        return cls(scope, np.zeros(n), np.zeros((n, n)))

    @classmethod
    def conditional(
        cls,
        child: str,
        parent: str,
        matrix: ArrayLike,
        covariance: ArrayLike,
        offset: ArrayLike | None = None,
    ) -> CanonicalGaussian:
        """The density N(`child`; `matrix` `parent` + offset, covariance) of two blocks given by
        name, of rank dim(child).

        `covariance` must be positive definite; `offset` is zero if it is not given.
        """
        a, cov = np.asarray(matrix, dtype=np.float64), np.asarray(covariance, dtype=np.float64)
        n_child, n_parent = a.shape
        _, precision = _checked({child: n_child}, np.zeros(n_child), cov, "covariance")
        if not is_positive(precision):
            raise ModelError(
                f"the covariance of '{child}' given '{parent}' is not positive definite; "
                "a deterministic relation has no density"
            )
        inverse = symmetric_inverse(precision)
        b = np.zeros(n_child) if offset is None else np.asarray(offset, dtype=np.float64)
        pull = inverse @ b
        coupling = a.T @ inverse
        return cls(
            {parent: n_parent, child: n_child},
            np.concatenate([-a.T @ pull, pull]),
            np.block([[coupling @ a, -coupling], [-coupling.T, inverse]]),
            -0.5 * (float(b @ pull) + float(np.linalg.slogdet(2.0 * np.pi * cov)[1])),
        )

    # ------------------------------------------------------------------ algebra

    def __mul__(self, other: CanonicalGaussian) -> CanonicalGaussian:
        return self._combined(other, 1.0)

    def __truediv__(self, other: CanonicalGaussian) -> CanonicalGaussian:
        return self._combined(other, -1.0)

    def _combined(self, other: CanonicalGaussian, sign: float) -> CanonicalGaussian:
        scope = {**self.scope, **other.scope}
        for name in self.scope.keys() & other.scope.keys():
            if self.scope[name] != other.scope[name]:
                raise ModelError(
                    f"block '{name}' has {self.scope[name]} dimensions in one potential and "
                    f"{other.scope[name]} in the other"
                )
        n = sum(scope.values())
        shift, precision = np.zeros(n), np.zeros((n, n))
        for part, weight in ((self, 1.0), (other, sign)):
            index = _coordinates(scope, part.scope)
            shift[index] += weight * part.shift
            precision[np.ix_(index, index)] += weight * part.precision
        return CanonicalGaussian(scope, shift, precision, self.log_scale + sign * other.log_scale)

    def marginal(self, keep: Iterable[str]) -> CanonicalGaussian:
        """The integral over all blocks but those of `keep`, in the order of `keep`.

        gamma_1 - L12 L22^-1 gamma_2 and L11 - L12 L22^-1 L21; L22 must be positive definite.
        """
        scope = _part(self.scope, keep)
        gone = [name for name in self.scope if name not in scope]
        one, two = _coordinates(self.scope, scope), _coordinates(self.scope, gone)
        if not len(two):
            return CanonicalGaussian(
                scope, self.shift[one], self.precision[np.ix_(one, one)], self.log_scale
            )
        inner = self.precision[np.ix_(two, two)]
        if not is_positive(inner):
            raise ModelError(
                f"the integral over {', '.join(gone)} is infinite; multiply by a prior"
            )
        cross = self.precision[np.ix_(one, two)]
        solved = np.linalg.solve(inner, np.column_stack([cross.T, self.shift[two]]))
        precision = self.precision[np.ix_(one, one)] - cross @ solved[:, :-1]
        constant = 0.5 * (len(two) * _LOG_2PI - np.linalg.slogdet(inner)[1])
        return CanonicalGaussian(
            scope,
            self.shift[one] - cross @ solved[:, -1],
            0.5 * (precision + precision.T),
            self.log_scale + float(constant + 0.5 * self.shift[two] @ solved[:, -1]),
        )

    def condition(self, evidence: Mapping[str, ArrayLike]) -> CanonicalGaussian:
        """The potential with some blocks held at values, `evidence` {name: value}: gamma_1 - L12
        x_2, L11.
        """
        _part(self.scope, evidence)
        keep = [name for name in self.scope if name not in evidence]
        one, two = _coordinates(self.scope, keep), _coordinates(self.scope, evidence)
        x = _values(self.scope, evidence)
        inner = self.precision[np.ix_(two, two)]
        return CanonicalGaussian(
            {name: self.scope[name] for name in keep},
            self.shift[one] - self.precision[np.ix_(one, two)] @ x,
            self.precision[np.ix_(one, one)],
            self.log_scale + float(self.shift[two] @ x - 0.5 * x @ inner @ x),
        )

    # ------------------------------------------------------------------ readings

    @property
    def is_proper(self) -> bool:
        """Whether the integral over all coordinates is finite."""
        return is_positive(self.precision)

    @property
    def rank(self) -> int:
        """Number of directions about which the potential says something."""
        return int(np.linalg.matrix_rank(self.precision, hermitian=True))

    def log_value(self, x: ArrayLike) -> float:
        """Logarithm of the potential at a point `x`, all blocks one after the other."""
        point = np.asarray(x, dtype=np.float64)
        return float(self.log_scale + self.shift @ point - 0.5 * point @ self.precision @ point)

    def log_integral(self) -> float:
        """Logarithm of the integral over all coordinates."""
        return self.marginal(()).log_scale

    def moments(self) -> MomentGaussian:
        """The same in moment form; refused where the potential is not proper."""
        if not self.is_proper:
            raise ModelError(
                f"rank {self.rank} of {len(self.shift)}: the potential has no mean; multiply by a "
                "prior first"
            )
        covariance = symmetric_inverse(self.precision)
        return MomentGaussian(self.scope, covariance @ self.shift, covariance, self.log_integral())


@dataclass(frozen=True, eq=False)
class MomentGaussian:
    """exp(log_mass) N(x; mean, covariance) over the blocks of `scope`.

    Parameters
    ----------
    scope : names of blocks with their dimensions, in the order of the coordinates
    mean, covariance : the moments; the covariance may be singular
    log_mass : logarithm of the integral

    >>> g = MomentGaussian({"a": 1, "b": 1}, [0.0, 1.0], [[2.0, 1.0], [1.0, 2.0]])
    >>> g.condition({"b": [3.0]}).mean.tolist()
    [1.0]

    Reference: HOJ-M16, HOJ-I25.
    """

    scope: Scope
    mean: Array
    covariance: Array
    log_mass: float = 0.0

    def __post_init__(self) -> None:
        mean, covariance = _checked(self.scope, self.mean, self.covariance, "covariance")
        values = np.linalg.eigvalsh(covariance) if covariance.size else np.zeros(1)
        if values[0] < -_SYMMETRIC * max(abs(values[-1]), 1e-300):
            raise ModelError(f"a covariance has the negative eigenvalue {values[0]:.3g}")
        object.__setattr__(self, "scope", dict(self.scope))
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "covariance", covariance)

    def marginal(self, keep: Iterable[str]) -> MomentGaussian:
        """The blocks of `keep` alone, in that order."""
        scope = _part(self.scope, keep)
        one = _coordinates(self.scope, scope)
        return MomentGaussian(
            scope, self.mean[one], self.covariance[np.ix_(one, one)], self.log_mass
        )

    def condition(self, evidence: Mapping[str, ArrayLike]) -> MomentGaussian:
        """The density of the other blocks, given values of some, `evidence` {name: value}; the mass
        becomes that of the evidence.
        """
        _part(self.scope, evidence)
        keep = [name for name in self.scope if name not in evidence]
        one, two = _coordinates(self.scope, keep), _coordinates(self.scope, evidence)
        inner = self.covariance[np.ix_(two, two)]
        if not is_positive(inner):
            raise ModelError(
                f"the covariance of {', '.join(evidence)} is singular; condition on fewer blocks"
            )
        error = _values(self.scope, evidence) - self.mean[two]
        gain = np.linalg.solve(inner, self.covariance[np.ix_(two, one)]).T
        covariance = self.covariance[np.ix_(one, one)] - gain @ self.covariance[np.ix_(two, one)]
        quadratic = float(error @ np.linalg.solve(inner, error))
        log_det = float(np.linalg.slogdet(2.0 * np.pi * inner)[1])
        return MomentGaussian(
            {name: self.scope[name] for name in keep},
            self.mean[one] + gain @ error,
            0.5 * (covariance + covariance.T),
            self.log_mass - 0.5 * (quadratic + log_det),
        )

    def log_value(self, x: ArrayLike) -> float:
        """Logarithm of mass times density at a point `x`, all blocks one after the other."""
        names = {name: np.asarray(x)[_coordinates(self.scope, [name])] for name in self.scope}
        return self.condition(names).log_mass

    def canonical(self) -> CanonicalGaussian:
        """The same in canonical form; refused for a singular covariance."""
        if not is_positive(self.covariance):
            raise ModelError("a singular covariance has no canonical form; keep the moment form")
        precision = symmetric_inverse(self.covariance)
        shift = precision @ self.mean
        log_z = 0.5 * (float(np.linalg.slogdet(2 * np.pi * self.covariance)[1]) + shift @ self.mean)
        return CanonicalGaussian(self.scope, shift, precision, self.log_mass - float(log_z))


# ---------------------------------------------------------------------- coordinates


def _checked(scope: Scope, vector: Any, matrix: Any, what: str) -> tuple[Array, Array]:
    v, m = np.asarray(vector, dtype=np.float64), np.asarray(matrix, dtype=np.float64)
    n = sum(scope.values())
    if v.shape != (n,) or m.shape != (n, n):
        raise ModelError(
            f"blocks of {n} dimensions need a vector ({n},) and a {what} ({n}, {n}), got {v.shape} "
            f"and {m.shape}"
        )
    if not (np.isfinite(v).all() and np.isfinite(m).all()):
        raise ModelError(f"a vector or {what} of a Gaussian is not finite")
    if np.abs(m - m.T).max(initial=0.0) > _SYMMETRIC * np.abs(m).max(initial=0.0):
        raise ModelError(f"a {what} must be symmetric")
    return v, 0.5 * (m + m.T)


def _part(scope: Scope, names: Iterable[str]) -> dict[str, int]:
    """The named part of a scope, in the order of the names."""
    chosen = list(names)
    unknown = [name for name in chosen if name not in scope]
    if unknown:
        raise ModelError(f"no block '{unknown[0]}'; known: {', '.join(scope)}")
    return {name: scope[name] for name in chosen}


def _coordinates(scope: Scope, names: Iterable[str]) -> Ints:
    """Coordinates of blocks within a scope, in the order of the names."""
    starts = dict(zip(scope, np.cumsum([0, *scope.values()])[:-1].tolist(), strict=True))
    found = [np.arange(starts[name], starts[name] + scope[name]) for name in names]
    return np.concatenate(found).astype(np.int64) if found else np.zeros(0, dtype=np.int64)


def _values(scope: Scope, evidence: Mapping[str, ArrayLike]) -> Array:
    parts = [np.atleast_1d(np.asarray(evidence[name], dtype=np.float64)) for name in evidence]
    for name, part in zip(evidence, parts, strict=True):
        if part.shape != (scope[name],):
            raise ModelError(
                f"block '{name}' has {scope[name]} dimensions; the value has shape {part.shape}"
            )
    return np.concatenate(parts) if parts else np.zeros(0)
