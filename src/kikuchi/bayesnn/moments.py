"""Moments of erf units whose activations are Gaussian, in closed form.

With g(a) = erf(a / sqrt 2) = 2 Phi(a) - 1 and jointly Gaussian a_i, a_j (means m, variances s²,
covariance c), all that a bound on the evidence needs is

    <g(a_i)>          = g(eta_i),                    eta = m / sqrt(1 + s²)
    <g(a_i) g(a_j)>   = 4 Phi_2(eta_i, eta_j; rho) - 2 Phi(eta_i) - 2 Phi(eta_j) + 1
    <g(a)²>           = 1 - 8 T(eta, 1 / sqrt(1 + 2 s²)),

with rho = c / sqrt((1 + s_i²) (1 + s_j²)), the bivariate normal distribution function Phi_2 and
Owen's T. Nothing here is approximate but the quadrature of T, whose error is below 1e-14, so that
bounds stay bounds. All derivatives are given in closed form.

Reference: LAW-I18, LAW-T16.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_NODES, _WEIGHTS = 0.5 * (_NODES + 1.0), 0.5 * _WEIGHTS  # on (0, 1)
_ROOT_HALF = math.sqrt(0.5)
_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)
_TINY = 1e-290  # stands for zero where a ratio is taken


def activation(a: Any) -> Any:
    """The activation function of a hidden unit, g(a) = erf(a / sqrt 2), from -1 to 1."""
    return erf(a * _ROOT_HALF)


def normal_density(x: Any) -> Any:
    """Density of a standard normal variable."""
    return _DENSITY * jnp.exp(-0.5 * x * x)


def owens_t(h: Any, a: Any) -> Any:
    """Owen's T function for 0 <= a <= 1: the integral of phi(h) phi(h x) / (1 + x²) from 0 to a.

    >>> with jax.enable_x64(True):
    ...     round(float(owens_t(0.5, 1.0)), 12)
    0.106671062961
    """
    square = 1.0 + (jnp.asarray(a)[..., None] * _NODES) ** 2
    start = -0.5 * jnp.asarray(h * h)[..., None]
    total = jnp.sum(_WEIGHTS * jnp.exp(start * square) / square, axis=-1)
    return total * a / (2.0 * math.pi)


def _unbounded_t(p: Any, q: Any) -> Any:
    """Owen's T(p, q / p) of any two numbers that are not both zero; 0 counts as positive."""
    size_p, size_q = jnp.abs(p), jnp.abs(q)
    large = jnp.maximum(size_p, size_q)
    t = owens_t(large, jnp.minimum(size_p, size_q) / large)
    rest = 0.25 * (1.0 - activation(size_p) * activation(size_q)) - t
    sign = jnp.where((p >= 0) == (q >= 0), 1.0, -1.0)
    return sign * jnp.where(size_q > size_p, rest, t)


@jax.custom_jvp
def product_mean(h: Any, k: Any, rho: Any) -> Any:
    """<g(a_i) g(a_j)> by eta_i, eta_j and rho: 4 Phi_2(h, k; rho) - 2 Phi(h) - 2 Phi(k) + 1.

    >>> with jax.enable_x64(True):
    ...     round(float(product_mean(0.0, 0.0, 0.5)), 12)  # (2 / pi) asin(rho)
    0.333333333333
    """
    apart = jnp.sqrt((1.0 - rho) * (1.0 + rho))
    both = (h == 0) & (k == 0)
    h, k = jnp.where(both, _TINY, h), jnp.where(both, _TINY, k)
    t = _unbounded_t(h, (k - rho * h) / apart) + _unbounded_t(k, (h - rho * k) / apart)
    return 1.0 - 4.0 * t - jnp.where((h >= 0) == (k >= 0), 0.0, 2.0)


@product_mean.defjvp
def _product_mean_jvp(primals: Any, tangents: Any) -> Any:
    h, k, rho = primals
    by_h, by_k, by_rho = product_slopes(h, k, rho)
    change = by_h * tangents[0] + by_k * tangents[1] + by_rho * tangents[2]
    return product_mean(h, k, rho), change


def product_slopes(h: Any, k: Any, rho: Any) -> tuple[Any, Any, Any]:
    """Derivatives of `product_mean` by h, k and rho; that by rho is also the mixed one by h, k."""
    apart = (1.0 - rho) * (1.0 + rho)
    root = jnp.sqrt(apart)
    by_h = 2.0 * normal_density(h) * activation((k - rho * h) / root)
    by_k = 2.0 * normal_density(k) * activation((h - rho * k) / root)
    form = (h * h - 2.0 * rho * h * k + k * k) / apart
    return by_h, by_k, 2.0 / math.pi * jnp.exp(-0.5 * form) / root


@jax.custom_jvp
def square_mean(mean: Any, variance: Any) -> Any:
    """<g(a)²> of a Gaussian activation.

    >>> with jax.enable_x64(True):
    ...     round(float(square_mean(0.0, 1.0)), 12)  # (2 / pi) asin(1 / 2)
    0.333333333333
    """
    eta = mean / jnp.sqrt(1.0 + variance)
    return 1.0 - 8.0 * owens_t(eta, 1.0 / jnp.sqrt(1.0 + 2.0 * variance))


@square_mean.defjvp
def _square_mean_jvp(primals: Any, tangents: Any) -> Any:
    slope, curvature = square_slopes(*primals)
    return square_mean(*primals), slope * tangents[0] + 0.5 * curvature * tangents[1]


def square_slopes(mean: Any, variance: Any) -> tuple[Any, Any]:
    """First and second derivative of `square_mean` by the mean.

    That by the variance is half the second, as for any expectation under a Gaussian.
    """
    wide, wider = 1.0 + variance, 1.0 + 2.0 * variance
    eta, root = mean / jnp.sqrt(wide), jnp.sqrt(wider)
    slope = 4.0 * normal_density(eta) * activation(eta / root) / jnp.sqrt(wide)
    mixed = 4.0 / math.pi * jnp.exp(-mean * mean / wider) / root  # <2 g'(a)²>
    return slope, mixed - mean / wide * slope - variance / wide * mixed


class UnitMoments(NamedTuple):
    """<g>, <g'>, <g''>, <g²> and the first two derivatives of the last by the mean."""

    mean: Any
    slope: Any
    curvature: Any
    square: Any
    square_slope: Any
    square_curvature: Any


@jax.custom_vjp
def unit_moments(mean: Any, variance: Any) -> UnitMoments:
    """Moments of units whose activations have these means and variances (rows, units)."""
    wide = 1.0 + variance
    eta = mean / jnp.sqrt(wide)
    slope = 2.0 * normal_density(eta) / jnp.sqrt(wide)
    return UnitMoments(
        activation(eta),
        slope,
        -mean / wide * slope,
        square_mean(mean, variance),
        *square_slopes(mean, variance),
    )


def _moments_forward(mean: Any, variance: Any) -> tuple[UnitMoments, Any]:
    found = UnitMoments(*(_once(a) for a in unit_moments(mean, variance)))
    return found, (mean, variance, found)


def _moments_backward(kept: Any, by: UnitMoments) -> tuple[Any, Any]:
    """Half the second derivative by the mean is that by the variance, for each of the moments."""
    mean, variance, m = kept
    wide, wider = 1.0 + variance, 1.0 + 2.0 * variance
    ratio, mixed = mean / wide, 4.0 / math.pi * jnp.exp(-mean * mean / wider) / jnp.sqrt(wider)
    third = -ratio * m.curvature - m.slope / wide
    fourth = -ratio * third - 2.0 * m.curvature / wide
    by_mixed = -2.0 * mean / wider * mixed
    square_third = (by_mixed - m.square_slope) / wide - ratio * m.square_curvature
    bent = -2.0 / wider * (mixed + mean * by_mixed)
    square_fourth = (bent - 2.0 * m.square_curvature) / wide - ratio * square_third
    orders = (m.slope, m.curvature, third, fourth)
    squares = (m.square_slope, m.square_curvature, square_third, square_fourth)
    weights = (by[:3], by[3:])
    by_mean, by_variance = (
        sum(w * d for own, all_ in zip(weights, (orders, squares), strict=True)
            for w, d in zip(own, all_[k : k + 3], strict=True))
        for k in (0, 1)
    )  # fmt: skip
    return _once(by_mean), 0.5 * _once(by_variance)


unit_moments.defvjp(_moments_forward, _moments_backward)


def _once(values: Any) -> Any:
    """The same (rows, units), computed once.

    XLA computes values again for each of their uses in a loop, such as for each input of a unit,
    and drops barriers; a product of matrices it keeps.
    """
    return values @ np.eye(values.shape[1])


# ---------------------------------------------------------------------- sums over pairs of weights


@jax.custom_vjp
def quadratic_forms(factors: Any, x: Any) -> Any:
    """x' L_h L_h' x of all rows and units h (rows, units), of factors (units, inputs, inputs)."""
    return _forms_forward(factors, x)[0]


def _forms_forward(factors: Any, x: Any) -> tuple[Any, Any]:
    # plain products of two matrices: batched ones are much slower, backwards above all
    side_by_side = jnp.swapaxes(factors, 0, 1).reshape(x.shape[1], -1)
    r = x @ side_by_side
    forms = jnp.sum((r * r).reshape(len(x), len(factors), -1), axis=2)
    return forms, (side_by_side, x, r.reshape(len(x), len(factors), -1))


def _forms_backward(kept: Any, weight: Any) -> tuple[Any, Any]:
    side_by_side, x, r = kept
    by_r = (2.0 * weight[:, :, None] * r).reshape(len(x), -1)
    by_factors = (x.T @ by_r).reshape(x.shape[1], r.shape[1], -1)
    return jnp.swapaxes(by_factors, 0, 1), by_r @ side_by_side.T


quadratic_forms.defvjp(_forms_forward, _forms_backward)


@jax.custom_vjp
def crossed(pairs: Any, g: Any, slope: Any, pull: Any, x: Any) -> Any:
    """Return the contribution of covariances of outgoing weights o and activations of other units h
    to the variance of each row's output.

    With c_oh = x' p_oh the sum over o != h of c_oh c_ho s_o s_h + 2 g_o c_oh t_h, for features g
    (rows, outgoing weights), of which the last are those of the units, slopes s and pulls t (rows,
    units), and `pairs` p_oh (outgoing weights, units, inputs).
    """
    return _crossed_forward(pairs, g, slope, pull, x)[0]


def _crossed_forward(pairs: Any, g: Any, slope: Any, pull: Any, x: Any) -> tuple[Any, Any]:
    # rows are the last axis, so that loops run along them, and sums over units are written out:
    # XLA is several times slower with either of them turned or left to it
    units, outputs = slope.shape[1], g.shape[1]
    side_by_side = (_others(outputs, units) * pairs).reshape(-1, x.shape[1])
    g, slope, pull = (np.eye(a.shape[1]) @ a.T for a in (g, slope, pull))
    c = (side_by_side @ x.T).reshape(outputs, units, -1)
    hidden = c[-units:]
    loops = sum(hidden[:, h] * hidden[h] * slope[h] for h in range(units))
    by_g = sum(c[:, h] * pull[h] for h in range(units))
    by_pull = sum(c[o] * g[o] for o in range(outputs))
    loops, by_g, by_pull = (np.eye(len(a)) @ a for a in (loops, by_g, by_pull))
    value = jnp.sum(slope * loops + 2.0 * pull * by_pull, axis=0)
    return value, (side_by_side, g, slope, pull, x, c, loops, by_g, by_pull)


def _crossed_backward(kept: Any, weight: Any) -> tuple[Any, ...]:
    side_by_side, g, slope, pull, x, c, loops, by_g, by_pull = kept
    units, twice = len(slope), 2.0 * weight
    by_c = (np.eye(len(g)) @ (twice * g))[:, None] * pull
    within = (np.eye(units) @ (twice * slope))[:, None] * slope * jnp.swapaxes(c[-units:], 0, 1)
    parts = [by.reshape(-1, len(x)) for by in (by_c[:-units], by_c[-units:] + within)]
    by_pairs = jnp.concatenate([by @ x for by in parts]).reshape(*c.shape[:2], -1)
    by_x = jnp.concatenate(parts).T @ side_by_side
    slopes = [(twice * by).T for by in (by_g, loops, by_pull)]
    return _others(len(g), units) * by_pairs, *slopes, by_x


def _others(outputs: int, units: int) -> Any:
    """0 where an outgoing weight is that of the unit itself, else 1 (outputs, units, 1)."""
    return 1.0 - np.eye(outputs, units, units - outputs)[:, :, None]


crossed.defvjp(_crossed_forward, _crossed_backward)
