"""Coordinate ascent of mean field and mixtures in sigmoid networks, with the tilted local bound.

For every unit with uncertain inputs, and every xi,

    <log(1 + e^z)> <= xi <z> + log <e^{-xi z} + e^{(1 - xi) z}> = xi <z> + log(A + B),

whose expectations are products over the parents. The best xi lies in [0, 1], and the problem is
convex. As a function of one mean, A + B is linear, so that -log(A + B) is convex and lies above its
tangent: setting a mean to the optimum of tangent plus entropy never lowers the bound. That is the
fixed-point equation of Saul, Jaakkola and Jordan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kikuchi.beliefnets.kernels.states import set_inputs, xi_step
from kikuchi.core.arrays import U4, Array, Ints
from kikuchi.core.compiled import njit
from kikuchi.engines.mean_field.kernels.mixture_mean_field import (
    LEAST,
    count_overlap,
    information,
    log_overlap,
    overlaps,
    set_scales,
    set_weights,
    smooth,
    smoothed_dot,
)
from kikuchi.engines.mean_field.mixture import Mixture

if TYPE_CHECKING:
    from kikuchi.beliefnets.models import Edges

_NEWTON = 60
_TINY = 1e-300
_REFRESH = 16  # sweeps after which overlaps are computed from scratch
_HUGE = 1e150
_CANCELS = 1e-3  # e^-w less 1 plus 1 has lost digits
_EDGE = 1e-15  # means of unknown units stay so far from 0 and 1, where hard weights have no slope
_OVER = 1.5  # means and smoothing of mixtures follow each other in many small steps: go further
_PLAIN = 20  # sweeps of plain steps, which choose where the ascent ends
_FAR = 7.0  # ratio of smoothing functions up to which they are moved further too
_FEW = 10  # unknown units whose overlaps are plain products: none below 1e-300
_SMALLEST = 1e-30  # factor of such a product


class EdgeTilts(NamedTuple):
    """For each edge, e^{-xi w} - 1, e^{(1 - xi) w} - 1 and e^w."""

    minus: Array
    plus: Array
    growth: Array


class TiltedComponents(NamedTuple):
    """The components of one row: means and xi of units, their <z>, log(B / A) and B / (A + B), and
    what `EdgeTilts` has of edges.
    """

    means: Array
    xi: Array
    inputs: Array
    logs: Array
    shares: Array
    minus: Array
    plus: Array


class PlainProducts(NamedTuple):
    """pi(m, k) as plain products, their factors by unit, and lambda of each component."""

    dots: Array
    products: Array
    scales: Array


class RowComponents(NamedTuple):
    """By row and component: means and xi (units), weights, smoothing (two per free unit)."""

    means: Array
    xi: Array
    weights: Array
    smoothing: Array


class RowBounds(NamedTuple):
    """Bound of each row, its part that is information, the last change, and the sweeps."""

    bounds: Array
    informations: Array
    residuals: Array
    counts: Ints


@njit(cache=True, error_model="numpy")
def tilt(
    net: Edges, unit: int, xi: float, means: Array, edges: EdgeTilts, same: bool
) -> tuple[float, float, float, float, float, float]:
    """log A and log B of a unit with mean and variance of its input under both tilted products.

    `edges` get their tilts, or have them already if `same` says that xi is what it was.
    """
    minus, plus, growth = edges
    bias = net.bias[unit]
    log_a, log_b = -xi * bias, (1.0 - xi) * bias
    mean_a, mean_b, var_a, var_b = bias, bias, 0.0, 0.0
    product_a, product_b = 1.0, 1.0
    for p in range(net.into_first[unit], net.into_first[unit + 1]):
        e = net.into[p]
        w, mean = net.weights[e], means[net.tails[e]]
        small, large = minus[e] + 1.0, plus[e] + 1.0
        if not same or min(small, large) < _CANCELS:
            small = np.exp(-xi * w)
            large = small * growth[e]
            minus[e], plus[e] = small - 1.0, large - 1.0
        factor_a, factor_b = 1.0 - mean + mean * small, 1.0 - mean + mean * large
        product_a *= factor_a
        product_b *= factor_b
        if not 1.0 / _HUGE < product_a < _HUGE:
            log_a += np.log(product_a)
            product_a = 1.0
        if not 1.0 / _HUGE < product_b < _HUGE:
            log_b += np.log(product_b)
            product_b = 1.0
        on_a, on_b = mean * small / factor_a, mean * large / factor_b
        mean_a += w * on_a
        mean_b += w * on_b
        var_a += w * w * on_a * (1.0 - on_a)
        var_b += w * w * on_b * (1.0 - on_b)
    log_a += np.log(product_a)
    log_b += np.log(product_b)
    return log_a, log_b, mean_a, mean_b, var_a, var_b


@njit(cache=True, error_model="numpy")
def best_xi(
    net: Edges, unit: int, xi: float, mean_input: float, means: Array, edges: EdgeTilts, same: bool
) -> tuple[float, float, float]:
    """The xi that minimises xi <z> + log(A + B), with log A and log B there: Newton in a bracket.

    A step is taken only if it promises a gain; one that leaves the bracket becomes a bisection.
    `same` says that `edges` have the tilts of the first xi.
    """
    low, high = 0.0, 1.0
    log_a, log_b = 0.0, 0.0
    for _ in range(_NEWTON):
        found = tilt(net, unit, xi, means, edges, same)
        log_a, log_b = found[0], found[1]
        same = False
        xi, low, high, done = xi_step(xi, low, high, mean_input, found)
        if done:
            break
    return xi, log_a, log_b


@njit(cache=True, error_model="numpy")
def _settle(
    net: Edges, loose: Array, components: TiltedComponents, m: int, growth: Array, same: bool
) -> float:
    """The best xi of every unit of component m; returns the bound of this component."""
    means, xi, inputs = components.means[m], components.xi[m], components.inputs[m]
    logs, shares = components.logs[m], components.shares[m]
    edges = EdgeTilts(components.minus[m], components.plus[m], growth)
    total = 0.0
    for i in range(len(xi)):
        if loose[i] > 0.0:
            found, log_a, log_b = best_xi(net, i, xi[i], inputs[i], means, edges, same)
            xi[i] = found
        else:
            xi[i] = 0.5
            log_a, log_b = -0.5 * inputs[i], 0.5 * inputs[i]
        logs[i] = log_b - log_a
        shares[i] = 1.0 / (1.0 + np.exp(-logs[i]))
        top = max(log_a, log_b)
        both = top + np.log1p(np.exp(-abs(logs[i])))
        total += (means[i] - xi[i]) * inputs[i] - both
        if 0.0 < means[i] < 1.0:
            total -= means[i] * np.log(means[i]) + (1.0 - means[i]) * np.log1p(-means[i])
    return total


@njit(cache=True, error_model="numpy")
def _field(net: Edges, unit: int, components: TiltedComponents, m: int) -> float:
    """The log-odds to which the tangents of the children and the parents drive a unit."""
    means, xi, inputs = components.means[m], components.xi[m], components.inputs[m]
    shares, minus, plus = components.shares[m], components.minus[m], components.plus[m]
    field = inputs[unit]
    mean = means[unit]
    for e in range(net.first[unit], net.first[unit + 1]):
        i = net.heads[e]
        field += net.weights[e] * (means[i] - xi[i])
        field -= (1.0 - shares[i]) * minus[e] / (1.0 + mean * minus[e])
        field -= shares[i] * plus[e] / (1.0 + mean * plus[e])
    return float(field)


@njit(cache=True, error_model="numpy")
def _moved(mean: float, field: float, over: float) -> float:
    """The mean of a unit after `over` times the step to its optimum.

    What it still lacks is KL(mean, optimum), which no step of at most 1 + 1 / (e - 1) times the
    whole one can raise.
    """
    new = mean + over * (1.0 / (1.0 + np.exp(-field)) - mean)
    return float(min(max(new, _EDGE), 1.0 - _EDGE))


@njit(cache=True, error_model="numpy")
def _set_mean(net: Edges, unit: int, new: float, components: TiltedComponents, m: int) -> None:
    """Give a unit of component m another mean, and its children what follows from it."""
    means, inputs, logs = components.means[m], components.inputs[m], components.logs[m]
    shares, minus, plus = components.shares[m], components.minus[m], components.plus[m]
    old = means[unit]
    means[unit] = new
    for e in range(net.first[unit], net.first[unit + 1]):
        i = net.heads[e]
        inputs[i] += net.weights[e] * (new - old)
        up = (1.0 + new * plus[e]) * (1.0 + old * minus[e])
        down = (1.0 + old * plus[e]) * (1.0 + new * minus[e])
        logs[i] += np.log(up / down)
        shares[i] = 1.0 / (1.0 + np.exp(-logs[i]))


@njit(cache=True, error_model="numpy")
def _mixing_field(w: Mixture, m: int, first: int) -> float:
    """What the bound on the information adds to the log-odds of one unit of component m.

    Takes the unit out of the overlaps of component m.
    """
    on, off = w.smoothing[m, first + 1], w.smoothing[m, first]
    field = np.log(max(on, _TINY)) - np.log(max(off, _TINY))
    for k in range(len(w.weights)):
        if w.weights[k] > 0.0:
            count_overlap(
                w.overlap,
                w.disjoint,
                k,
                m,
                smoothed_dot(w.smoothing, w.q, k, m, first, first + 2),
                -1,
            )
            outside = log_overlap(w.overlap, w.disjoint, k, m)
            if outside > -np.inf:
                step = w.smoothing[k, first + 1] - w.smoothing[k, first]
                field -= np.exp(w.log_scale[k] + outside) * step
    return float(field)


@njit(cache=True, error_model="numpy")
def _set_products(w: Mixture, plain: PlainProducts) -> bool:
    """Set the plain products; False if a factor is too small to be divided by."""
    dots, products, _ = plain
    n = len(w.weights)
    for m in range(n):
        for k in range(n):
            products[m, k] = 1.0
            for f in range(len(dots)):
                dots[f, m, k] = smoothed_dot(w.smoothing, w.q, m, k, 2 * f, 2 * f + 2)
                products[m, k] *= dots[f, m, k]
                if dots[f, m, k] < _SMALLEST and w.weights[m] > 0.0 and w.weights[k] > 0.0:
                    return False
    return True


@njit(cache=True, error_model="numpy")
def _mixing_step(w: Mixture, m: int, f: int, plain: PlainProducts) -> float:
    """As `_mixing_field`, with plain products."""
    dots, products, scales = plain
    on, off = w.smoothing[m, 2 * f + 1], w.smoothing[m, 2 * f]
    field = np.log(max(on, _TINY)) - np.log(max(off, _TINY))
    for k in range(len(w.weights)):
        if w.weights[k] > 0.0:
            products[k, m] /= dots[f, k, m]
            step = w.smoothing[k, 2 * f + 1] - w.smoothing[k, 2 * f]
            field -= scales[k] * products[k, m] * step
    return float(field)


@njit(cache=True, error_model="numpy")
def _smooth_unit(w: Mixture, m: int, f: int, plain: PlainProducts, further: bool) -> bool:
    """The best smoothing of one unit of component m and its lambda, with plain products."""
    dots, products, scales = plain
    weights, q, smoothing = w.weights, w.q, w.smoothing
    off, on = 0.0, 0.0
    for k in range(len(weights)):
        if weights[k] > 0.0:
            products[m, k] /= dots[f, m, k]
            share = weights[k] * products[m, k]
            off += share * q[k, 2 * f]
            on += share * q[k, 2 * f + 1]
    off = q[m, 2 * f] / off if off > 0.0 and q[m, 2 * f] > 0.0 else 0.0
    on = q[m, 2 * f + 1] / on if on > 0.0 and q[m, 2 * f + 1] > 0.0 else 0.0
    ratio = on * smoothing[m, 2 * f] / (off * smoothing[m, 2 * f + 1])
    if further and 1.0 / _FAR < ratio < _FAR:  # half a step more, which cannot lower the bound
        on *= np.sqrt(ratio)
    largest = max(off, on)
    if 0.0 < largest < np.inf:
        smoothing[m, 2 * f] = max(off / largest, LEAST) if q[m, 2 * f] > 0.0 else off / largest
        on /= largest
        smoothing[m, 2 * f + 1] = max(on, LEAST) if q[m, 2 * f + 1] > 0.0 else on
    mass = 0.0
    for k in range(len(weights)):
        if weights[k] > 0.0:
            dots[f, m, k] = smoothed_dot(smoothing, q, m, k, 2 * f, 2 * f + 2)
            products[m, k] *= dots[f, m, k]
            mass += weights[k] * products[m, k]
            if dots[f, m, k] < _SMALLEST:
                return False
    scales[m] = weights[m] / mass
    return mass > 0.0


@njit(cache=True, error_model="numpy")
def _few_units_sweep(
    net: Edges, free: U4, w: Mixture, components: TiltedComponents, plain: PlainProducts,
    over: float,
) -> float:  # fmt: skip
    """A sweep over all units of all components with plain products in place of logarithms, for few
    units; returns the largest change of a mean, or -1 where a product became too small.
    """
    means, (dots, products, _) = components.means, plain
    n, weights = len(w.weights), w.weights
    change = 0.0
    for f in range(len(free)):
        unit = free[f]
        for m in range(n):
            if weights[m] <= 0.0:
                continue
            field = _field(net, unit, components, m)
            field += _mixing_step(w, m, f, plain)
            new = _moved(means[m, unit], field, over)
            change = max(change, abs(new - means[m, unit]))
            _set_mean(net, unit, new, components, m)
            w.q[m, 2 * f + 1], w.q[m, 2 * f] = new, 1.0 - new
            for k in range(n):
                if weights[k] > 0.0:
                    dots[f, k, m] = smoothed_dot(w.smoothing, w.q, k, m, 2 * f, 2 * f + 2)
                    products[k, m] *= dots[f, k, m]
                    if dots[f, k, m] < _SMALLEST:
                        return -1.0
        for m in range(n):
            if weights[m] > 0.0 and not _smooth_unit(w, m, f, plain, over > 1.0):
                return -1.0
    for m in range(n):
        for k in range(n):
            if weights[m] > 0.0 and weights[k] > 0.0:
                w.overlap[m, k], w.disjoint[m, k] = np.log(products[m, k]), 0
    return change


@njit(cache=True, error_model="numpy")
def ascend(
    net: Edges, free: U4, state: RowComponents, tol: float, max_sweeps: int, found: RowBounds
) -> None:
    """Ascend the bound of each row until no probability moves by more than `tol` in a sweep."""
    means, xi, weights, smoothing = state
    bounds, informations, residuals, counts = found
    n_rows, n, n_units = means.shape
    n_free = len(free)
    growth = np.exp(net.weights)
    loose = np.zeros(n_units)
    for f in range(n_free):
        for e in range(net.first[free[f]], net.first[free[f] + 1]):
            loose[net.heads[e]] = 1.0
    inputs, logs, shares = np.empty((n, n_units)), np.empty((n, n_units)), np.empty((n, n_units))
    minus, plus = np.zeros((n, len(growth))), np.zeros((n, len(growth)))
    parts = np.empty(n)
    q = np.empty((n, 2 * n_free))
    first_states = np.arange(0, 2 * n_free + 1, 2)
    log_scale, gains, row = np.zeros(n), np.zeros(n), np.zeros(2)
    overlap, disjoint = np.zeros((n, n)), np.zeros((n, n), dtype=np.int64)
    plain = PlainProducts(np.empty((n_free, n, n)), np.empty((n, n)), np.empty(n))
    for r in range(n_rows):
        w = Mixture(weights[r], q, smoothing[r], log_scale, overlap, disjoint, gains, row)
        components = TiltedComponents(means[r], xi[r], inputs, logs, shares, minus, plus)
        for m in range(n):
            for f in range(n_free):
                q[m, 2 * f + 1] = means[r, m, free[f]]
                q[m, 2 * f] = 1.0 - q[m, 2 * f + 1]
            set_inputs(net, means[r, m], inputs[m])
            parts[m] = _settle(net, loose, components, m, growth, False)
        change, sweeps, settled = np.inf, 0, True
        if n > 1:
            overlaps(first_states, w)
            set_scales(w)
        few = n > 1 and n_free <= _FEW
        while sweeps < max_sweeps and change > tol and n_free > 0:
            change, begin = 0.0, 0
            over = _OVER if n > 1 and sweeps >= _PLAIN else 1.0
            if few and sweeps % _REFRESH == 0:
                few = _set_products(w, plain)
            if few:
                if settled:
                    for m in range(n):
                        plain.scales[m] = np.exp(log_scale[m]) if weights[r, m] > 0.0 else 0.0
                change = _few_units_sweep(net, free, w, components, plain, over)
                begin, few = n_free, change >= 0.0
                if not few:  # as far as it came, then by logarithms
                    overlaps(first_states, w)
                    set_scales(w)
                    change = np.inf
            for f in range(begin, n_free):
                unit = free[f]
                for m in range(n):
                    if weights[r, m] <= 0.0:
                        continue
                    field = _field(net, unit, components, m)
                    if n > 1:
                        field += _mixing_field(w, m, 2 * f)
                    new = _moved(means[r, m, unit], field, over)
                    change = max(change, abs(new - means[r, m, unit]))
                    _set_mean(net, unit, new, components, m)
                    q[m, 2 * f + 1], q[m, 2 * f] = new, 1.0 - new
                    if n > 1:
                        for k in range(n):
                            if weights[r, k] > 0.0:
                                inside = smoothed_dot(w.smoothing, q, k, m, 2 * f, 2 * f + 2)
                                count_overlap(overlap, disjoint, k, m, inside, 1)
                if n > 1:
                    for m in range(n):
                        if weights[r, m] > 0.0:
                            smooth(w, m, 2 * f, 2 * f + 2)
            sweeps += 1
            settled = (
                n == 1 or sweeps < _PLAIN or not settled or change <= tol or sweeps == max_sweeps
            )
            if not settled:  # of mixtures xi and weights follow after every other sweep
                continue
            for m in range(n):
                if weights[r, m] > 0.0:
                    set_inputs(net, means[r, m], inputs[m])
                    parts[m] = _settle(net, loose, components, m, growth, True)
            if n > 1:
                if sweeps % _REFRESH < 2:  # sums and differences drift
                    overlaps(first_states, w)
                set_scales(w)
                set_weights(w, parts)
                set_scales(w)
        told = 0.0
        if n > 1:
            overlaps(first_states, w)
            set_scales(w)
            told = information(w)[1]
        total = 0.0
        for m in range(n):
            if weights[r, m] > 0.0:
                total += weights[r, m] * parts[m]
        bounds[r], informations[r] = total + told, told
        residuals[r], counts[r] = 0.0 if n_free == 0 else change, sweeps


@njit(cache=True, error_model="numpy")
def add_gradient(
    net: Edges,
    means: Array,
    xi: Array,
    weights: Array,
    to_weights: Array,
    to_bias: Array,
) -> None:
    """Add the gradient of the sum of the rows' bounds, all else held."""
    n_rows, n, n_units = means.shape
    growth = np.exp(net.weights)
    minus, plus = np.zeros(len(growth)), np.zeros(len(growth))
    edges = EdgeTilts(minus, plus, growth)
    for r in range(n_rows):
        for m in range(n):
            a = weights[r, m]
            if a <= 0.0:
                continue
            mu, x = means[r, m], xi[r, m]
            for i in range(n_units):
                log_a, log_b, _, _, _, _ = tilt(net, i, x[i], mu, edges, False)
                share = 1.0 / (1.0 + np.exp(log_a - log_b))
                to_bias[i] += a * (mu[i] - share)
                for p in range(net.into_first[i], net.into_first[i + 1]):
                    e = net.into[p]
                    mean = mu[net.tails[e]]
                    on_a = mean * (minus[e] + 1.0) / (1.0 + mean * minus[e])
                    on_b = mean * (plus[e] + 1.0) / (1.0 + mean * plus[e])
                    step = (mu[i] - x[i]) * mean + (1.0 - share) * x[i] * on_a
                    to_weights[e] += a * (step - share * (1.0 - x[i]) * on_b)
