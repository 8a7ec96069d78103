"""A density of the weights that is the same at all mirror images.

A network does not change when all weights into and out of a hidden unit are negated, or when two
hidden units are exchanged. The priors `single`, `grouped` and `ard` do not change either, with or
without skip connections. Every vector of weights therefore has 2^H H! images with the same
posterior density, where H is the number of hidden units. A Gaussian at one mode misses the mass of
all other images.

`ImageProposal` is the average over all images of a density with independent hidden units. The sum
over images is then a permanent,

    sum over images of prod_h q_h(u_h) = permanent of the matrix q_h(u_j) + q_h(-u_j),

which is computed exactly, by adding one unit at a time to sets of units (2^H H / 2 terms). The
weights into the output are drawn given those into hidden units, around the regularised least
squares solution, which every image shares. All tails are those of Student's t, and some units are
drawn around 0 with the width of the prior, because a variational posterior is too narrow.

Reference: LAW-I21.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import gammaln
from scipy.special import chdtri

from kikuchi.bayesnn.bound import Hyper, RegressionData
from kikuchi.bayesnn.moments import activation
from kikuchi.bayesnn.network import Network, precisions
from kikuchi.bayesnn.posteriors import FullFactor, LayeredFactor, WeightMixture
from kikuchi.core.arrays import Array

MOST_UNITS = 12
"""Largest number of hidden units for which the sum over images is computed."""

_WIDE_SHARE = 0.1  # share of the units that are drawn around 0
_FREEDOM = 5.0  # degrees of freedom of Student's t
_STRETCH = 1.2  # scale of the units relative to the posterior
_ROUNDS = 4  # updates of the precisions for which output weights are drawn


def log_image_count(hidden: int) -> float:
    """Return log(2^H H!) for a number of hidden units.

    >>> round(log_image_count(8), 2)
    16.15
    """
    return hidden * math.log(2.0) + math.lgamma(hidden + 1.0)


def log_distinct_images(network: Network, mode: Array, covariance: Array) -> float:
    """Return the log number of images of a Gaussian of the weights that do not overlap it.

    A hidden unit that is switched off has its weights around 0, where its mirror image is the same
    Gaussian. Of H units with A switched on there are 2^A H! / (H - A)! distinct images. A unit is
    on if the origin is outside the region that holds 95 % of the Gaussian of its weights.

    >>> network, covariance = Network(1, 2), 0.01 * np.eye(7)
    >>> mode = np.array([1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0])
    >>> round(math.exp(log_distinct_images(network, mode, covariance)))
    4
    """
    hidden, on = network.n_hidden, 0
    for unit in range(hidden):
        own = np.flatnonzero(network.units == unit)
        distance = mode[own] @ np.linalg.solve(covariance[np.ix_(own, own)], mode[own])
        on += bool(distance > chdtri(len(own), 0.05))
    return log_image_count(hidden) - log_image_count(hidden - on)


@lru_cache(maxsize=16)
def _subsets(size: int) -> list[tuple[Any, Any]]:
    """For subsets of 1, 2, ... columns: the members of each subset, and the index of the subset
    without that member in the list of the next smaller ones.
    """
    levels: list[tuple[Any, Any]] = []
    index: dict[tuple[int, ...], int] = {(): 0}
    for count in range(1, size + 1):
        sets = list(combinations(range(size), count))
        smaller = [[index[s[:k] + s[k + 1 :]] for k in range(count)] for s in sets]
        levels.append((np.array(sets), np.array(smaller)))
        index = {s: k for k, s in enumerate(sets)}
    return levels


def log_permanent(logs: Any) -> Any:
    """Return the log permanent of a square matrix of positive entries, given their logarithms.

    >>> with jax.enable_x64(True):
    ...     round(float(jnp.exp(log_permanent(jnp.log(jnp.array([[1.0, 2.0], [3.0, 4.0]]))))), 9)
    10.0
    """
    total = jnp.zeros(1)
    for row, (members, smaller) in zip(logs, _subsets(logs.shape[0]), strict=True):
        total = jax.nn.logsumexp(row[members] + total[smaller], axis=1)
    return total[0]


# ---------------------------------------------------------------------- Student's t


def _log_t(white: Any, log_size: Any) -> Any:
    """Log density of a multivariate t of whitened values (..., dimensions)."""
    d, v = white.shape[-1], _FREEDOM
    first = gammaln(0.5 * (v + d)) - gammaln(0.5 * v) - 0.5 * d * math.log(v * math.pi)
    return first - log_size - 0.5 * (v + d) * jnp.log1p(jnp.sum(white**2, axis=-1) / v)


def _draw_t(key: Any, shape: tuple[int, ...]) -> Any:
    """Whitened draws of a multivariate t along the last axis."""
    first, second = jax.random.split(key)
    spread = jax.random.gamma(first, 0.5 * _FREEDOM, (*shape[:-1], 1)) / (0.5 * _FREEDOM)
    return jax.random.normal(second, shape) / jnp.sqrt(spread)


# ---------------------------------------------------------------------- hidden units


class UnitBlocks(NamedTuple):
    """Gaussians of the weights into each hidden unit: log probabilities of the components, means
    (components, units, inputs + 1), and factors of the covariances.
    """

    log_share: Any
    mean: Any
    factor: Any


def unit_blocks(network: Network, q: Any) -> UnitBlocks:
    """Return the marginals of a posterior for the weights into each hidden unit."""
    hidden, inputs = network.n_hidden, network.n_inputs + 1
    alone = jnp.zeros(1)
    if isinstance(q, WeightMixture):
        mean, sd = (network.split(a)[0] for a in q.components)
        return UnitBlocks(q.log_weights, mean, sd[..., None] * jnp.eye(inputs))
    mean = network.split(q.mean)[0][None]
    if isinstance(q, LayeredFactor):
        return UnitBlocks(alone, mean, q.units[None])
    if isinstance(q, FullFactor):
        rows = q.factor[: network.n_into_hidden].reshape(hidden, inputs, -1)
        return UnitBlocks(alone, mean, jnp.linalg.cholesky(rows @ jnp.swapaxes(rows, 1, 2))[None])
    return UnitBlocks(alone, mean, network.split(q.sd)[0][None, ..., None] * jnp.eye(inputs))


def log_unit_densities(blocks: UnitBlocks, wide: Any, u: Any) -> Any:
    """Return log densities (components, units h, units j) of the weights u_j under the proposal of
    unit h, of which a share has standard deviations `wide` around 0.
    """

    def near(mean: Any, factor: Any, at: Any) -> Any:
        white = solve_triangular(factor, at - mean, lower=True) / _STRETCH
        return _log_t(white, jnp.sum(jnp.log(_STRETCH * jnp.diagonal(factor))))

    each = jax.vmap(jax.vmap(jax.vmap(near, (None, None, 0)), (0, 0, None)), (0, 0, None))
    own = each(blocks.mean, blocks.factor, u)
    around_zero = _log_t(u / wide, jnp.sum(jnp.log(wide)))
    return jnp.logaddexp(math.log1p(-_WIDE_SHARE) + own, math.log(_WIDE_SHARE) + around_zero)


# ---------------------------------------------------------------------- the proposal


@dataclass(frozen=True)
class NetworkModel:
    """A network, its prior, and the data that it explains."""

    network: Network
    prior: str
    data: RegressionData
    hyper: Hyper


class ImageProposal(NamedTuple):
    """A distribution of positions: the weights into hidden units, and the weights into the output,
    whitened given the former. All images have the same density.

    `wide` are standard deviations of units around 0; `alpha` and `beta` are the precisions of
    weights and noise from which those of a position are computed.
    """

    blocks: UnitBlocks
    wide: Any
    alpha: Any
    beta: Any

    def log_density(self, model: NetworkModel, position: Any) -> Any:
        """Return the log density at one position."""
        u, white = model.network.split(position)
        plus, minus = (log_unit_densities(self.blocks, self.wide, s * u) for s in (1.0, -1.0))
        permanents = jax.vmap(log_permanent)(jnp.logaddexp(plus, minus))
        of_units = jax.nn.logsumexp(self.blocks.log_share + permanents)
        return of_units - log_image_count(model.network.n_hidden) + _log_t(white, 0.0)

    def draw(self, model: NetworkModel, key: Any) -> Any:
        """Draw one position, each of its images with the same probability."""
        keys = jax.random.split(key, 7)
        shape = self.blocks.mean.shape[1:]
        component = jax.random.categorical(keys[0], self.blocks.log_share)
        stretched = _STRETCH * self.blocks.factor[component]
        near = jnp.einsum("hij,hj->hi", stretched, _draw_t(keys[1], shape))
        is_wide = jax.random.bernoulli(keys[2], _WIDE_SHARE, (shape[0], 1))
        around_zero = self.wide * _draw_t(keys[3], shape)
        u = jnp.where(is_wide, around_zero, self.blocks.mean[component] + near)
        order = jax.random.permutation(keys[4], shape[0])
        sign = jax.random.rademacher(keys[5], (shape[0], 1), dtype=u.dtype)
        white = _draw_t(keys[6], (model.network.n_output,))
        return jnp.concatenate([(sign * u[order]).ravel(), white])

    def weights(self, model: NetworkModel, position: Any) -> tuple[Any, Any]:
        """Return the weights of a position, and the log determinant of their derivatives by it."""
        u, white = model.network.split(position)
        mean, factor = self._given_units(model, u)
        o = mean + solve_triangular(factor.T, white, lower=False)
        return jnp.concatenate([u.ravel(), o]), -jnp.sum(jnp.log(jnp.diagonal(factor)))

    def _given_units(self, model: NetworkModel, u: Any) -> tuple[Any, Any]:
        """Mean of the weights into the output and the factor of their precision, by variational
        updates of the precisions of weights and noise at these weights into hidden units.
        """
        network, data, hyper = model.network, model.data, model.hyper
        incidence = jnp.asarray(precisions(network, model.prior).incidence)
        g = jnp.concatenate([network.linear_features(data.x), activation(data.x @ u.T)], axis=1)
        square, pull = g.T @ g, g.T @ data.y
        alpha, beta = self.alpha, self.beta
        shape = hyper.alpha.shape + 0.5 * incidence.sum(axis=1)
        for _ in range(_ROUNDS):
            own = (alpha @ incidence)[network.n_into_hidden :]
            factor = jnp.linalg.cholesky(beta * square + jnp.diag(own))
            inverse = solve_triangular(factor, jnp.eye(len(factor)), lower=True)
            covariance = inverse.T @ inverse
            mean = beta * covariance @ pull
            squares = jnp.concatenate([u.ravel() ** 2, mean**2 + jnp.diagonal(covariance)])
            alpha = shape / (hyper.alpha.rate + 0.5 * incidence @ squares)
            error = jnp.sum((data.y - g @ mean) ** 2) + jnp.sum(square * covariance)
            beta = (hyper.beta.shape + 0.5 * len(data.y)) / (hyper.beta.rate + 0.5 * error)
        return mean, factor

    def spread(self) -> Any:
        """Return variances of a position that suit all images: harmonic means over units."""
        variance = jnp.sum(self.blocks.factor**2, axis=3)
        return jnp.exp(self.blocks.log_share) @ (1.0 / jnp.mean(1.0 / variance, axis=1))
