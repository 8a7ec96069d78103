"""Coordinate ascent of the Markov-chain posterior of layered sigmoid networks.

The units of a layer form a chain in their order, Q(s_j = 1 | s_{j-1} = a) = odds[j, a]; layers are
independent. Expectations of e^{t z} are products of 2 x 2 matrices along the layer above. Both they
and the means are linear in the two numbers of one unit, so that a tangent of -log(A + B) gives an
update that never lowers the bound, as in mean field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kikuchi.beliefnets.kernels.states import set_inputs, softplus, xi_step
from kikuchi.core.arrays import Array, Ints
from kikuchi.core.compiled import njit

if TYPE_CHECKING:
    from kikuchi.beliefnets.models import Edges

_NEWTON = 60
_TINY = 1e-300


class ChainRows(NamedTuple):
    """Odds of the chains, xi and means of all units, by row."""

    odds: Array
    xi: Array
    means: Array


class ChainBounds(NamedTuple):
    """Bound of each row, the last change, and the sweeps."""

    bounds: Array
    residuals: Array
    counts: Ints


class Passes(NamedTuple):
    """Work space of a layer: matrices of each child and side behind and before each unit, with
    log-scales, and the entropy ahead.
    """

    back: Array
    back_logs: Array
    front: Array
    front_logs: Array
    ahead: Array


@njit(cache=True, error_model="numpy")
def _entropy(p: float) -> float:
    return float(-p * np.log(p) - (1.0 - p) * np.log1p(-p)) if 0.0 < p < 1.0 else 0.0


@njit(cache=True, error_model="numpy")
def tilted_moments(
    net: Edges, child: int, t: float, first: int, last: int, start: int, odds: Array
) -> tuple[float, float, float]:
    """log E[e^{t z}] of a unit, with mean and variance of z under the tilted chain.

    Its parents are the units `first` to `last`; `start` is the first unit of its own layer.
    """
    bias = net.bias[child]
    log_scale = t * bias
    off0, off1, off2 = 1.0, bias, bias * bias
    on0, on1, on2 = 0.0, 0.0, 0.0
    for k in range(first, last):
        w = net.weights[net.first[k] + child - start]
        e = np.exp(t * w)
        p0, p1 = odds[k, 0], odds[k, 1]
        up0, up1, up2 = p0 * off0 + p1 * on0, p0 * off1 + p1 * on1, p0 * off2 + p1 * on2
        off0, off1, off2 = off0 + on0 - up0, off1 + on1 - up1, off2 + on2 - up2
        on2 = e * (up2 + 2.0 * w * up1 + w * w * up0)
        on1 = e * (up1 + w * up0)
        on0 = e * up0
        total = off0 + on0
        log_scale += np.log(total)
        off0, off1, off2 = off0 / total, off1 / total, off2 / total
        on0, on1, on2 = on0 / total, on1 / total, on2 / total
    mean = off1 + on1
    return log_scale, mean, max(off2 + on2 - mean * mean, 0.0)


@njit(cache=True, error_model="numpy")
def _best_xi(
    net: Edges, child: int, xi: float, mean_input: float, first: int, last: int, start: int,
    odds: Array,
) -> tuple[float, float, float]:  # fmt: skip
    """The best xi of a unit, with log A and log B there: Newton in a bracket."""
    low, high = 0.0, 1.0
    log_a, log_b = 0.0, 0.0
    for _ in range(_NEWTON):
        log_a, mean_a, var_a = tilted_moments(net, child, -xi, first, last, start, odds)
        log_b, mean_b, var_b = tilted_moments(net, child, 1.0 - xi, first, last, start, odds)
        tilts = log_a, log_b, mean_a, mean_b, var_a, var_b
        xi, low, high, done = xi_step(xi, low, high, mean_input, tilts)
        if done:
            break
    return xi, log_a, log_b


@njit(cache=True, error_model="numpy")
def _means_and_inputs(net: Edges, starts: Ints, odds: Array, means: Array, inputs: Array) -> None:
    """Marginals along the chains, and <z>."""
    for layer in range(len(starts) - 1):
        before = 0.0
        for j in range(starts[layer], starts[layer + 1]):
            before = odds[j, 1] * before + odds[j, 0] * (1.0 - before)
            means[j] = before
    set_inputs(net, means, inputs)


@njit(cache=True, error_model="numpy")
def _settle(net: Edges, starts: Ints, odds: Array, means: Array, inputs: Array, xi: Array) -> float:
    """Means, inputs and the best xi; answers the bound."""
    _means_and_inputs(net, starts, odds, means, inputs)
    total = 0.0
    for layer in range(len(starts) - 1):
        for i in range(starts[layer], starts[layer + 1]):
            if layer == 0:
                total += means[i] * inputs[i] - softplus(inputs[i])
                xi[i] = 0.5
            else:
                found, log_a, log_b = _best_xi(
                    net, i, xi[i], inputs[i], starts[layer - 1], starts[layer], starts[layer], odds
                )
                xi[i] = found
                both = max(log_a, log_b) + np.log1p(np.exp(-abs(log_a - log_b)))
                total += (means[i] - found) * inputs[i] - both
            before = means[i - 1] if i > starts[layer] else 0.0
            total += before * _entropy(odds[i, 1]) + (1.0 - before) * _entropy(odds[i, 0])
    return total


@njit(cache=True, error_model="numpy")
def _backward(
    net: Edges, child: int, t: float, first: int, last: int, odds: Array, out: Array, logs: Array
) -> None:
    """Products of the matrices after each unit, (unit, state), largest entry 1, with log-scales."""
    n = last - first
    out[n - 1, 0], out[n - 1, 1], logs[n - 1] = 1.0, 1.0, 0.0
    for j in range(n - 1, 0, -1):
        k = first + j
        e = np.exp(t * net.weights[net.first[k] + child - last])
        off, on = out[j, 0], e * out[j, 1]
        a0 = off + odds[k, 0] * (on - off)
        a1 = off + odds[k, 1] * (on - off)
        top = max(a0, a1)
        out[j - 1, 0], out[j - 1, 1] = a0 / top, a1 / top
        logs[j - 1] = logs[j] + np.log(top)


@njit(cache=True, error_model="numpy")
def _sweep_layer(
    net: Edges, starts: Ints, layer: int, free: Array, row: ChainRows, inputs: Array, room: Passes
) -> float:
    """Both numbers of every free unit of a layer once; returns the largest change."""
    odds, xi, means = row
    back, back_logs, front, front_logs, ahead = room
    first, last = starts[layer], starts[layer + 1]
    n = last - first
    bottom = layer == len(starts) - 2
    below = last
    n_children = 0 if bottom else starts[layer + 2] - last
    for c in range(n_children):
        child = below + c
        for side in range(2):
            t = -xi[child] if side == 0 else 1.0 - xi[child]
            _backward(net, child, t, first, last, odds, back[2 * c + side], back_logs[2 * c + side])
            front[2 * c + side, 0], front[2 * c + side, 1] = 1.0, 0.0
            front_logs[2 * c + side] = t * net.bias[child]
    ahead[n - 1, 0], ahead[n - 1, 1] = 0.0, 0.0
    pull = np.empty(n)
    for j in range(n - 1, -1, -1):
        k = first + j
        pull[j] = inputs[k]
        for c in range(n_children):
            pull[j] += net.weights[net.first[k] + c] * (means[below + c] - xi[below + c])
        if j > 0:
            for a in range(2):
                p = odds[k, a]
                up = pull[j] + ahead[j, 1]
                ahead[j - 1, a] = p * up + (1.0 - p) * ahead[j, 0] + _entropy(p)
    before, change = 0.0, 0.0
    for j in range(n):
        k = first + j
        if free[k] > 0.0:
            slope0, slope1 = 0.0, 0.0
            for c in range(n_children):
                w = net.weights[net.first[k] + c]
                child = below + c
                value, part0, part1 = np.empty(2), np.empty(2), np.empty(2)
                scale = np.empty(2)
                for side in range(2):
                    t = -xi[child] if side == 0 else 1.0 - xi[child]
                    at = 2 * c + side
                    off, on = back[at, j, 0], np.exp(t * w) * back[at, j, 1]
                    f0, f1 = front[at, 0], front[at, 1]
                    part0[side], part1[side] = f0 * (on - off), f1 * (on - off)
                    value[side] = (
                        (f0 + f1) * off + odds[k, 0] * part0[side] + (odds[k, 1] * part1[side])
                    )
                    scale[side] = front_logs[at] + back_logs[at, j]
                top = max(scale[0], scale[1])
                e0, e1 = np.exp(scale[0] - top), np.exp(scale[1] - top)
                total = e0 * value[0] + e1 * value[1]
                slope0 += (e0 * part0[0] + e1 * part0[1]) / total
                slope1 += (e0 * part1[0] + e1 * part1[1]) / total
            gain = pull[j] + ahead[j, 1] - ahead[j, 0]
            new0, new1 = odds[k, 0], odds[k, 1]
            if 1.0 - before > _TINY:
                new0 = 1.0 / (1.0 + np.exp(-(gain - slope0 / (1.0 - before))))
            if before > _TINY:
                new1 = 1.0 / (1.0 + np.exp(-(gain - slope1 / before)))
            if j == 0:
                new1 = new0
            change = max(change, (1.0 - before) * abs(new0 - odds[k, 0]))
            change = max(change, before * abs(new1 - odds[k, 1]))
            odds[k, 0], odds[k, 1] = new0, new1
        for c in range(n_children):
            w = net.weights[net.first[k] + c]
            for side in range(2):
                t = -xi[below + c] if side == 0 else 1.0 - xi[below + c]
                at = 2 * c + side
                f0, f1 = front[at, 0], front[at, 1]
                up = odds[k, 0] * f0 + odds[k, 1] * f1
                off, on = f0 + f1 - up, np.exp(t * w) * up
                top = off + on
                front[at, 0], front[at, 1] = off / top, on / top
                front_logs[at] += np.log(top)
        before = odds[k, 1] * before + odds[k, 0] * (1.0 - before)
    return change


@njit(cache=True, error_model="numpy")
def ascend_chains(
    net: Edges, starts: Ints, free: Array, chains: ChainRows, tol: float, max_sweeps: int,
    found: ChainBounds,
) -> None:  # fmt: skip
    """Ascend the bound of each row until no joint probability moves by more than `tol`."""
    odds, xi, means = chains
    bounds, residuals, counts = found
    widest = 0
    for layer in range(len(starts) - 1):
        widest = max(widest, starts[layer + 1] - starts[layer])
    inputs = np.empty(means.shape[1])
    room = Passes(
        np.empty((2 * widest, widest, 2)),
        np.empty((2 * widest, widest)),
        np.empty((2 * widest, 2)),
        np.empty(2 * widest),
        np.empty((widest, 2)),
    )
    for r in range(len(odds)):
        row = ChainRows(odds[r], xi[r], means[r])
        value = _settle(net, starts, odds[r], means[r], inputs, xi[r])
        change, sweeps = np.inf, 0
        while sweeps < max_sweeps and change > tol:
            change = 0.0
            for layer in range(len(starts) - 1):
                moved = _sweep_layer(net, starts, layer, free, row, inputs, room)
                change = max(change, moved)
                _means_and_inputs(net, starts, odds[r], means[r], inputs)
            value = _settle(net, starts, odds[r], means[r], inputs, xi[r])
            sweeps += 1
        bounds[r], residuals[r], counts[r] = value, change, sweeps


@njit(cache=True, error_model="numpy")
def add_chain_gradient(
    net: Edges, starts: Ints, odds: Array, xi: Array, to_weights: Array, to_bias: Array
) -> None:
    """Add the gradient of the sum of the rows' bounds by weights and biases, all else held."""
    n_units = len(net.bias)
    means, inputs = np.empty(n_units), np.empty(n_units)
    widest = 0
    for layer in range(len(starts) - 1):
        widest = max(widest, starts[layer + 1] - starts[layer])
    back, logs = np.empty((widest, 2)), np.empty(widest)
    on = np.empty((2, widest))
    for r in range(len(odds)):
        _means_and_inputs(net, starts, odds[r], means, inputs)
        for i in range(starts[1]):
            to_bias[i] += means[i] - 1.0 / (1.0 + np.exp(-inputs[i]))
        for layer in range(1, len(starts) - 1):
            first, last = starts[layer - 1], starts[layer]
            for i in range(last, starts[layer + 1]):
                x = xi[r, i]
                log_a = tilted_moments(net, i, -x, first, last, last, odds[r])[0]
                log_b = tilted_moments(net, i, 1.0 - x, first, last, last, odds[r])[0]
                share = 1.0 / (1.0 + np.exp(log_a - log_b))
                for side in range(2):
                    t = -x if side == 0 else 1.0 - x
                    _backward(net, i, t, first, last, odds[r], back, logs)
                    f0, f1 = 1.0, 0.0
                    for k in range(first, last):
                        e = np.exp(t * net.weights[net.first[k] + i - last])
                        up = odds[r, k, 0] * f0 + odds[r, k, 1] * f1
                        off, above = f0 + f1 - up, e * up
                        f0, f1 = off / (off + above), above / (off + above)
                        tops = f0 * back[k - first, 0] + f1 * back[k - first, 1]
                        on[side, k - first] = f1 * back[k - first, 1] / tops
                to_bias[i] += means[i] - share
                for k in range(first, last):
                    step = (means[i] - x) * means[k] + (1.0 - share) * x * on[0, k - first]
                    step -= share * (1.0 - x) * on[1, k - first]
                    to_weights[net.first[k] + i - last] += step
