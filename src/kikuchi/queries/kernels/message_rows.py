"""Belief propagation on one graph for many rows of evidence, several rows side by side.

The messages and their layout are those of `inference.messages.kernels.bp_messages` in plain
probabilities, with the rows of a block as the last axis: `m` from factors to variables, `nu` from
variables to factors. Evidence is a weight of each state of each variable in each row, `seen`, so
that the tables are the same for all rows:

    nu_{i->a}(x_i)  prop. to  seen_i(x_i) prod_{b != a} m_{b->i}(x_i)

A number that is neither zero nor above its floor marks its row, as does a sum of zero; what becomes
of a marked row means nothing, and it is left to an engine that turns to logarithms.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.compiled import njit

_RUN_FLOOR = 1e-150  # of products of messages whose largest entry is 1


class RowGraph(NamedTuple):
    """Offsets and scopes of a graph and its tables, each divided by its largest entry."""

    scope_at: Ints
    table_at: Ints
    message_at: Ints
    variable_at: Ints
    edges: Ints
    edge_factors: Ints
    scopes: Ints
    state_at: Ints
    tables: Array
    floor: float


class RowState(NamedTuple):
    """Messages of a block of rows, the evidence, and workspace; rows are the last axis."""

    m: Array
    nu: Array
    seen: Array
    marked: NDArray[np.bool_]
    new: Array
    run: Array
    product: Array
    top: Array


@njit(cache=True, error_model="numpy")
def _factor_message(g, s, e, width):
    """Compute the message of a factor along edge `e` in `s.new`, with each row scaled to sum to
    1.
    """
    a = g.edge_factors[e]
    low, high = g.scope_at[a], g.scope_at[a + 1]
    own = g.message_at[e + 1] - g.message_at[e]
    for x in range(own):
        for b in range(width):
            s.new[x, b] = 0.0
    digits = np.zeros(high - low, np.int64)
    for entry in range(g.table_at[a], g.table_at[a + 1]):
        value = g.tables[entry]
        if value > 0.0:
            for b in range(width):
                s.product[b] = value
            for k in range(low, high):
                if k != e:
                    place = g.message_at[k] + digits[k - low]
                    for b in range(width):
                        s.product[b] *= s.nu[place, b]
            x = digits[e - low]
            for b in range(width):
                s.new[x, b] += s.product[b]
        k = high - 1
        while k >= low:
            digits[k - low] += 1
            if digits[k - low] < g.message_at[k + 1] - g.message_at[k]:
                break
            digits[k - low] = 0
            k -= 1
    return own


@njit(cache=True, error_model="numpy")
def _divide(s, values, states, floor, width):
    """Divide `values` by `s.top` in each row; marks zeros and what falls below the floor."""
    for b in range(width):
        if not s.top[b] > 0.0:
            s.marked[b] = True
            s.top[b] = 1.0
    for x in range(states):
        for b in range(width):
            value = values[x, b] / s.top[b]
            if 0.0 < value < floor:
                s.marked[b] = True
            values[x, b] = value


@njit(cache=True, error_model="numpy")
def _normalise(s, states, floor, width):
    """Divide `s.new` by its sum in each row, which stays in `s.top`; marks zeros and underflow."""
    for b in range(width):
        s.top[b] = 0.0
    for x in range(states):
        for b in range(width):
            s.top[b] += s.new[x, b]
    _divide(s, s.new, states, floor, width)


@njit(cache=True, error_model="numpy")
def _update(g, s, e, damping, width, residual):
    """Replace the message along an edge; `residual` keeps each row's largest change."""
    states = _factor_message(g, s, e, width)
    _normalise(s, states, _RUN_FLOOR, width)
    at = g.message_at[e]
    for x in range(states):
        for b in range(width):
            old = s.m[at + x, b]
            change = s.new[x, b] - old
            residual[b] = max(residual[b], abs(change))
            s.m[at + x, b] = old + (1.0 - damping) * change


@njit(cache=True, error_model="numpy")
def _take(s, at, states, width):
    """Multiply the running product by a message, and bring its largest entry back to 1."""
    for b in range(width):
        s.top[b] = 0.0
    for x in range(states):
        for b in range(width):
            value = s.run[x, b] * s.m[at + x, b]
            s.run[x, b] = value
            s.top[b] = max(s.top[b], value)
    _divide(s, s.run, states, _RUN_FLOOR, width)


@njit(cache=True, error_model="numpy")
def _send(g, s, v, width):
    """All messages out of a variable, by products from the left and from the right."""
    begin, states = g.state_at[v], g.state_at[v + 1] - g.state_at[v]
    low, high = g.variable_at[v], g.variable_at[v + 1]
    for x in range(states):
        for b in range(width):
            s.run[x, b] = s.seen[begin + x, b]
    for i in range(low, high):
        at = g.message_at[g.edges[i]]
        for x in range(states):
            for b in range(width):
                s.nu[at + x, b] = s.run[x, b]
        _take(s, at, states, width)
    for x in range(states):
        for b in range(width):
            s.run[x, b] = 1.0
    for back in range(high - low):
        at = g.message_at[g.edges[high - 1 - back]]
        for x in range(states):
            for b in range(width):
                s.new[x, b] = s.nu[at + x, b] * s.run[x, b]
        _normalise(s, states, g.floor, width)
        for x in range(states):
            for b in range(width):
                s.nu[at + x, b] = s.new[x, b]
        if back < high - low - 1:
            _take(s, at, states, width)


@njit(cache=True, error_model="numpy")
def start(g, s, width):
    """Uniform messages, those of one-variable factors at their final value."""
    for e in range(g.message_at.size - 1):
        at, states = g.message_at[e], g.message_at[e + 1] - g.message_at[e]
        a = g.edge_factors[e]
        if g.scope_at[a + 1] - g.scope_at[a] == 1:
            _factor_message(g, s, e, width)
            _normalise(s, states, _RUN_FLOOR, width)
            for x in range(states):
                for b in range(width):
                    s.m[at + x, b] = s.new[x, b]
        else:
            for x in range(states):
                for b in range(width):
                    s.m[at + x, b] = 1.0 / states
    for v in range(g.state_at.size - 1):
        _send(g, s, v, width)


@njit(cache=True, error_model="numpy")
def sweep(g, s, order, damping, width, residual):
    """One sweep, variable by variable; `residual` gets the largest change of each row."""
    for b in range(width):
        residual[b] = 0.0
    for place in range(order.size):
        v = order[place]
        for i in range(g.variable_at[v], g.variable_at[v + 1]):
            e = g.edges[i]
            a = g.edge_factors[e]
            if g.scope_at[a + 1] - g.scope_at[a] > 1:
                _update(g, s, e, damping, width, residual)
        _send(g, s, v, width)


@njit(cache=True, error_model="numpy")
def beliefs(g, s, width, out):
    """Marginals of all variables, flat, in `out`; rows are the last axis."""
    for v in range(g.state_at.size - 1):
        begin, states = g.state_at[v], g.state_at[v + 1] - g.state_at[v]
        for x in range(states):
            for b in range(width):
                s.run[x, b] = s.seen[begin + x, b]
        for i in range(g.variable_at[v], g.variable_at[v + 1]):
            _take(s, g.message_at[g.edges[i]], states, width)
        for x in range(states):
            for b in range(width):
                s.new[x, b] = s.run[x, b]
        _normalise(s, states, 0.0, width)
        for x in range(states):
            for b in range(width):
                out[begin + x, b] = s.new[x, b]


@njit(cache=True, error_model="numpy")
def bethe_energy(g, s, marginals, width, energy):
    """The Bethe free energy of each row, as `inference.messages.kernels.beliefs.free_energy`."""
    for b in range(width):
        energy[b] = 0.0
    for a in range(g.scope_at.size - 1):
        for e in range(g.scope_at[a], g.scope_at[a + 1]):
            states = _factor_message(g, s, e, width)
            at = g.message_at[e]
            for b in range(width):
                total = 0.0
                cross = 0.0
                for x in range(states):
                    sent = s.nu[at + x, b]
                    weight = sent * s.new[x, b]
                    total += weight
                    if weight > 0.0:
                        cross += weight * np.log(sent)
                if not total > 0.0:
                    s.marked[b] = True
                    continue
                energy[b] += cross / total
                if e == g.scope_at[a]:
                    energy[b] -= np.log(total)
    for v in range(g.state_at.size - 1):
        excess = 1.0 - float(g.variable_at[v + 1] - g.variable_at[v])
        for place in range(g.state_at[v], g.state_at[v + 1]):
            for b in range(width):
                value = marginals[place, b]
                if value > 0.0:
                    energy[b] += excess * value * np.log(value)
