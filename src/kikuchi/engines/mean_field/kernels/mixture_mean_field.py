"""Coordinate updates of a mixture of product distributions with Lawrence's bound on its entropy.

Arrays by component: weights a, probabilities q, smoothing functions r (largest entry of each
variable 1), log_scale = ln lambda. overlap[m, k] = ln prod_i sum_x r_m(x_i) q_k(x_i) is kept as a
sum over the variables whose factor is not zero, with the number of those whose factor is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kikuchi.core.arrays import Array, Ints, Mask
from kikuchi.core.compiled import njit
from kikuchi.engines.mean_field.kernels.mean_field import _contract, bound

if TYPE_CHECKING:
    from kikuchi.engines.mean_field.mixture import Mixture
    from kikuchi.graphs.graph_arrays import GraphArrays


_U = np.uint64
_ONE, _TWO = _U(1), _U(2)
LEAST = 1e-300  # where q is above zero r must be, or its logarithm is not finite


@njit(cache=True, error_model="numpy")
def _field(g: GraphArrays, q: Array, number: int, field: Array, scratch: Array) -> None:
    """E_q[sum_a log phi_a | x_v] for every state of one variable."""
    cards, scopes, scope_offsets, log_tables, table_offsets, state_offsets = g[:6]
    variable_offsets, variable_edges, edge_factors, _ = g[6:]
    v = _U(number)
    card = _U(cards[v])
    for x in range(card):
        field[x] = 0.0
    for k in range(_U(variable_offsets[v]), _U(variable_offsets[v + _ONE])):
        edge = _U(variable_edges[k])
        a = _U(edge_factors[edge])
        lo, hi = _U(scope_offsets[a]), _U(scope_offsets[a + _ONE])
        start = _U(table_offsets[a])
        if hi - lo == _ONE:
            for x in range(card):
                field[x] += log_tables[start + x]
        elif hi - lo == _TWO:
            other = _U(scopes[lo + hi - _ONE - edge])
            first = _U(state_offsets[other])
            step, other_step = (_U(cards[other]), _ONE) if edge == lo else (_ONE, card)
            for y in range(_U(cards[other])):
                p = q[first + y]
                if p > 0.0:
                    for x in range(card):
                        field[x] += p * log_tables[start + y * other_step + x * step]
        else:
            part = (start, lo, hi, edge)
            _contract(cards, scopes, state_offsets, log_tables, part, q, scratch)
            for x in range(card):
                field[x] += scratch[x]


@njit(cache=True, error_model="numpy")
def fields(g: GraphArrays, q: Array, out: Array, scratch: Array) -> None:
    """The field of every state of every variable, for every component."""
    for m in range(len(q)):
        for v in range(len(g.cards)):
            first, last = g.state_offsets[v], g.state_offsets[v + 1]
            _field(g, q[m], v, out[m, first:last], scratch)


@njit(cache=True, error_model="numpy")
def component_bounds(
    g: GraphArrays, q: Array, temperature: float, out: Array, scratch: Array
) -> None:
    """sum_a E[log phi_a] / T + H of each component."""
    for m in range(len(q)):
        out[m] = bound(g, q[m], temperature, scratch)


@njit(cache=True, error_model="numpy")
def overlaps(first: Ints, w: Mixture) -> None:
    """ln pi(m, k) of all pairs from scratch."""
    weights, q, smoothing, overlap, disjoint = w.weights, w.q, w.smoothing, w.overlap, w.disjoint
    for m in range(len(weights)):
        for k in range(len(weights)):
            overlap[m, k] = 0.0
            disjoint[m, k] = 0
            for v in range(len(first) - 1):
                inside = smoothed_dot(smoothing, q, m, k, first[v], first[v + 1])
                count_overlap(overlap, disjoint, m, k, inside, 1)


@njit(cache=True, error_model="numpy")
def smoothed_dot(smoothing: Array, q: Array, m: int, k: int, first: int, last: int) -> float:
    """Return the factor of one variable in pi(m, k): its smoothing under the distribution of k."""
    total = 0.0
    for x in range(first, last):
        total += smoothing[m, x] * q[k, x]
    return total


@njit(cache=True, error_model="numpy")
def count_overlap(overlap: Array, disjoint: Ints, m: int, k: int, value: float, sign: int) -> None:
    """Take the factor of one variable into pi(m, k), or out of it."""
    if value > 0.0:
        overlap[m, k] += sign * np.log(value)
    else:
        disjoint[m, k] += sign


@njit(cache=True, error_model="numpy")
def log_overlap(overlap: Array, disjoint: Ints, m: int, k: int) -> float:
    """ln pi(m, k), or of its part that was not taken out."""
    return -np.inf if disjoint[m, k] > 0 else overlap[m, k]


@njit(cache=True, error_model="numpy")
def _log_mass(weights: Array, overlap: Array, disjoint: Ints, m: int) -> float:
    """ln sum_k a_k pi(m, k)."""
    top = -np.inf
    for k in range(len(weights)):
        if weights[k] > 0.0:
            top = max(top, log_overlap(overlap, disjoint, m, k))
    if top == -np.inf:
        return top
    total = 0.0
    for k in range(len(weights)):
        if weights[k] > 0.0:
            total += weights[k] * np.exp(log_overlap(overlap, disjoint, m, k) - top)
    return float(top + np.log(total))


@njit(cache=True, error_model="numpy")
def set_scales(w: Mixture) -> None:
    """lambda_m = a_m / sum_k a_k pi(m, k), its optimum."""
    weights, log_scale, overlap, disjoint = w.weights, w.log_scale, w.overlap, w.disjoint
    for m in range(len(weights)):
        if weights[m] > 0.0:
            log_scale[m] = np.log(weights[m]) - _log_mass(weights, overlap, disjoint, m)


@njit(cache=True, error_model="numpy")
def smoothed(w: Mixture, m: int) -> float:
    """E_q[ln r_m] under component m."""
    q, smoothing = w.q, w.smoothing
    total = 0.0
    for x in range(q.shape[1]):
        if q[m, x] > 0.0:
            total += q[m, x] * np.log(smoothing[m, x])
    return total


@njit(cache=True, error_model="numpy")
def information(w: Mixture) -> tuple[float, float]:
    """Lawrence's bound on the mutual information: with lambda (2.24), and lambda eliminated."""
    weights, log_scale, overlap, disjoint = w.weights, w.log_scale, w.overlap, w.disjoint
    explicit, eliminated = 1.0, 0.0
    for m in range(len(weights)):
        a = weights[m]
        if a > 0.0:
            inside = smoothed(w, m)
            mass = _log_mass(weights, overlap, disjoint, m)
            explicit += a * (inside - np.log(a) + log_scale[m]) - np.exp(log_scale[m] + mass)
            eliminated += a * (inside - mass)
    return explicit, eliminated


@njit(cache=True, error_model="numpy")
def set_weights(w: Mixture, bounds: Array) -> None:
    """Q(m), its optimum with all else held: soft maximum of what each component brings."""
    weights, _, _, log_scale, overlap, disjoint, gains, _ = w
    n = len(weights)
    top = -np.inf
    for m in range(n):
        value = -np.inf
        if weights[m] > 0.0:
            value = bounds[m] + smoothed(w, m) + log_scale[m]
            for k in range(n):
                if weights[k] > 0.0:
                    value -= np.exp(log_scale[k] + log_overlap(overlap, disjoint, k, m))
        gains[m] = value
        top = max(top, value)
    if top == -np.inf:
        return
    total = 0.0
    for m in range(n):
        weights[m] = np.exp(gains[m] - top)
        total += weights[m]
    for m in range(n):
        weights[m] /= total


@njit(cache=True, error_model="numpy")
def sweep(
    g: GraphArrays,
    alive: Mask,
    w: Mixture,
    temperature: float,
    field: Array,
    scratch: Array,
    bounds: Array,
) -> float:
    """Every factor of every component, every smoothing function, then lambda and Q(m), once.

    Each is set to its optimum with all else held. Answers the largest change of a probability.
    """
    state_offsets = g.state_offsets
    n = len(w.weights)
    largest = 0.0
    for v in range(len(g.cards)):
        first, last = state_offsets[v], state_offsets[v + 1]
        for m in range(n):
            if w.weights[m] > 0.0:
                largest = max(largest, _move(g, alive, w, v, m, temperature, field, scratch))
        for m in range(n):
            if w.weights[m] > 0.0:
                smooth(w, m, first, last)
    set_scales(w)
    component_bounds(g, w.q, temperature, bounds, scratch)
    set_weights(w, bounds)
    set_scales(w)
    return largest


@njit(cache=True, error_model="numpy")
def _move(
    g: GraphArrays,
    alive: Mask,
    w: Mixture,
    v: int,
    m: int,
    temperature: float,
    field: Array,
    scratch: Array,
) -> float:
    """ln q = field / T + ln r_m - sum_k lambda_k pi^v(k, m) r_k + const."""
    weights, q, smoothing, log_scale, overlap, disjoint, _, _ = w
    first, last = g.state_offsets[v], g.state_offsets[v + 1]
    n = len(weights)
    _field(g, q[m], v, field, scratch)
    for x in range(first, last):
        r = smoothing[m, x]
        usable = alive[x] and r > 0.0
        field[x - first] = field[x - first] / temperature + np.log(r) if usable else -np.inf
    for k in range(n):
        if weights[k] > 0.0:
            count_overlap(
                overlap, disjoint, k, m, smoothed_dot(smoothing, q, k, m, first, last), -1
            )
            outside = log_overlap(overlap, disjoint, k, m)
            if outside > -np.inf:
                penalty = np.exp(log_scale[k] + outside)
                for x in range(first, last):
                    if field[x - first] > -np.inf:
                        field[x - first] -= penalty * smoothing[k, x]
    top = -np.inf
    for x in range(last - first):
        top = max(top, field[x])
    change = 0.0
    if top > -np.inf:
        total = 0.0
        for x in range(last - first):
            field[x] = np.exp(field[x] - top)
            total += field[x]
        for x in range(first, last):
            p = field[x - first] / total
            change = max(change, abs(p - q[m, x]))
            q[m, x] = p
    for k in range(n):
        if weights[k] > 0.0:
            count_overlap(overlap, disjoint, k, m, smoothed_dot(smoothing, q, k, m, first, last), 1)
    return change


@njit(cache=True, error_model="numpy")
def smooth(w: Mixture, m: int, first: int, last: int) -> None:
    """r_m(x) = q_m(x) / sum_k a_k pi^v(m, k) q_k(x), its largest entry scaled to 1, and lambda."""
    weights, q, smoothing, log_scale, overlap, disjoint, _, row = w
    n = len(weights)
    top = -np.inf
    for k in range(n):
        if weights[k] > 0.0:
            count_overlap(
                overlap, disjoint, m, k, smoothed_dot(smoothing, q, m, k, first, last), -1
            )
            top = max(top, log_overlap(overlap, disjoint, m, k))
    largest = 0.0
    if top > -np.inf:
        row[: last - first] = 0.0
        for k in range(n):
            if weights[k] > 0.0:
                share = weights[k] * np.exp(log_overlap(overlap, disjoint, m, k) - top)
                for x in range(first, last):
                    row[x - first] += share * q[k, x]
        for x in range(first, last):
            mass = row[x - first]
            value = q[m, x] / mass if mass > 0.0 and q[m, x] > 0.0 else 0.0
            row[x - first] = value
            largest = max(largest, value)
    if 0.0 < largest < np.inf:
        for x in range(first, last):
            value = row[x - first] / largest
            smoothing[m, x] = max(value, LEAST) if q[m, x] > 0.0 else value
    for k in range(n):
        if weights[k] > 0.0:
            count_overlap(overlap, disjoint, m, k, smoothed_dot(smoothing, q, m, k, first, last), 1)
    log_scale[m] = np.log(weights[m]) - _log_mass(weights, overlap, disjoint, m)
