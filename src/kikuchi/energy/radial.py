"""Coordinates in which rows of widely different lengths are nearly Gaussian.

Patches of photographs, windows of sounds and the like differ in contrast by orders of magnitude: no
single step size suits their Hamiltonian dynamics, and a Gaussian is no start for annealing. With
x = mean + factor z exp(centre + stretch (|z| - sqrt(D))) and z standard normal, x has the wanted
covariance up to a factor, and the logarithm of its length is nearly normal. Chains move in z and
keep the density of x by the determinant of the map.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from kikuchi.core.arrays import Array

_SHORTEST = 1e-30  # length of a row that has none
_ROUNDS = 12  # of Newton's method for the length of z; digits double in each


class RadialMap(NamedTuple):
    """x = mean + h(|z|) factor z, with h(r) = exp(centre + stretch (r - sqrt(D))).

    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(500, 4)) * rng.lognormal(size=(500, 1))
    >>> chart = RadialMap.fit(rows)
    >>> np.allclose(chart(chart.back(rows)), rows, atol=1e-4)
    True
    """

    mean: Any
    factor: Any  # None for white rows
    centre: Any
    stretch: Any

    @classmethod
    def fit(cls, rows: Array) -> RadialMap:
        """Mean and covariance of these rows, and the spread of their lengths."""
        rows = np.asarray(rows, dtype=np.float64)
        size = rows.shape[1]
        mean = rows.mean(axis=0)
        covariance = np.cov(rows, rowvar=False).reshape(size, size)
        factor = np.linalg.cholesky(covariance)
        white = np.linalg.solve(factor, (rows - mean).T).T
        return cls(mean, factor, *length_spread(white))

    def __call__(self, z: Any) -> Any:
        """Rows at these coordinates."""
        excess = _length(z)[..., None] - math.sqrt(z.shape[-1])
        turned = z if self.factor is None else z @ self.factor.T
        return self.mean + turned * jnp.exp(self.centre + self.stretch * excess)

    def log_det(self, z: Any) -> Any:
        """Log of the volume by which the map stretches space at z."""
        size = z.shape[-1]
        length = _length(z)
        scale = self.centre + self.stretch * (length - math.sqrt(size))
        fixed = 0.0 if self.factor is None else jnp.sum(jnp.log(jnp.diagonal(self.factor)))
        return fixed + size * scale + jnp.log1p(self.stretch * length)

    def back(self, x: Any) -> Any:
        """Coordinates of these rows."""
        x = jnp.asarray(x)
        size = x.shape[-1]
        centred = x - self.mean
        if self.factor is not None:
            factor = jnp.asarray(self.factor, x.dtype)
            centred = solve_triangular(factor, centred.T, lower=True).T
        wanted = jnp.maximum(jnp.linalg.norm(centred, axis=-1, keepdims=True), _SHORTEST)
        level = jnp.log(wanted) - self.centre + self.stretch * math.sqrt(size)
        length = jnp.full_like(wanted, math.sqrt(size))
        for _ in range(_ROUNDS):
            slope = 1.0 / length + self.stretch
            step = (jnp.log(length) + self.stretch * length - level) / slope
            length = jnp.maximum(length - step, 0.1 * length)
        return centred * (length / wanted)


def _length(z: Any) -> Any:
    """Norms of rows, with a gradient also where a row is 0: chains that begin there must move."""
    return jnp.sqrt(jnp.sum(z * z, axis=-1) + _SHORTEST)


def length_spread(white: Array) -> tuple[float, float]:
    """Centre and stretch for white rows of these lengths; 0 where lengths differ no more than those
    of Gaussian rows do.

    |z| has the standard deviation 1 / sqrt(2) about sqrt(D), so that log |x| has
    (stretch + 1 / sqrt(D)) / sqrt(2).
    """
    size = white.shape[1]
    lengths = np.linalg.norm(white, axis=1)
    logs = np.log(lengths[lengths > 0])
    if not len(logs):
        return 0.0, 0.0
    stretch = math.sqrt(2.0) * float(logs.std()) - 1.0 / math.sqrt(size)
    return (float(logs.mean()) - 0.5 * math.log(size), stretch) if stretch > 0 else (0.0, 0.0)
