"""Coordinate updates of naive mean field, on tables of any order and in bits.

Where a probability is zero its log-potential is not looked at: 0 * log 0 = 0. A forbidden entry of
positive probability makes an expectation -inf, never NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kikuchi.core.arrays import U4, Array, Ints, Mask
from kikuchi.core.compiled import njit

if TYPE_CHECKING:
    from kikuchi.graphs.graph_arrays import GraphArrays


_U = np.uint64
_ZERO, _ONE, _TWO = _U(0), _U(1), _U(2)
_NO_EDGE = _U(2**64 - 1)


@njit(cache=True, error_model="numpy")
def sweep_tables(
    g: GraphArrays,
    q: Array,
    alive: Mask,
    order: U4,
    temperatures: Array,
    tol: float,
    field: Array,
    scratch: Array,
) -> tuple[int, float]:
    """One sweep for each temperature, ended early when no probability moves more than `tol`.

    Answers the sweeps done and the largest change in the last. `field` has room for the states of
    one variable, `scratch` for half of the largest table. The arrays are taken out of the tuple
    once: every access to a field of it would count references, ten times the work itself.
    """
    cards, scopes, scope_offsets, log_tables, table_offsets, state_offsets = g[:6]
    variable_offsets, variable_edges, edge_factors, edge_strides = g[6:]
    largest = np.inf
    for sweep in range(len(temperatures)):
        largest = 0.0
        for number in order:
            v = _U(number)
            card = _U(cards[v])
            first = _U(state_offsets[v])
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
                    step = _U(edge_strides[edge])
                    other_step = _ONE if edge == lo else card
                    other_first = _U(state_offsets[other])
                    for y in range(_U(cards[other])):
                        p = q[other_first + y]
                        if p > 0.0:
                            entry = start + y * other_step
                            for x in range(card):
                                field[x] += p * log_tables[entry]
                                entry += step
                else:
                    part = (start, lo, hi, edge)
                    _contract(cards, scopes, state_offsets, log_tables, part, q, scratch)
                    for x in range(card):
                        field[x] += scratch[x]
            largest = max(largest, _move(q, alive, first, card, temperatures[sweep], field))
        if largest <= tol:
            return sweep + 1, largest
    return len(temperatures), largest


@njit(cache=True, error_model="numpy")
def _contract(
    cards: U4,
    scopes: U4,
    state_offsets: Ints,
    log_tables: Array,
    part: tuple[np.uint64, np.uint64, np.uint64, np.uint64],
    q: Array,
    scratch: Array,
) -> None:
    """Expectation of a table over all its variables but that of one edge (over all if the edge is
    `_NO_EDGE`).

    `part` is where the table begins, the range of its scope, and the edge. One axis at a time:
    first those behind the edge, last first, then those before it.
    """
    start, lo, hi, edge = part
    size = _ONE
    for e in range(lo, hi):
        size *= _U(cards[scopes[e]])
    whole = True
    behind = hi - lo if edge == _NO_EDGE else hi - edge - _ONE
    for back in range(behind):
        v = scopes[hi - _ONE - back]
        card = _U(cards[v])
        first = _U(state_offsets[v])
        size //= card
        entry = start if whole else _ZERO
        for row in range(size):
            total = 0.0
            for y in range(card):
                p = q[first + y]
                if p > 0.0:
                    total += p * (log_tables[entry] if whole else scratch[entry])
                entry += _ONE
            scratch[row] = total
        whole = False
    for e in range(lo, lo if edge == _NO_EDGE else edge):
        v = scopes[e]
        card = _U(cards[v])
        first = _U(state_offsets[v])
        size //= card
        for column in range(size):
            total = 0.0
            entry = start + column if whole else _U(column)
            for y in range(card):
                p = q[first + y]
                if p > 0.0:
                    total += p * (log_tables[entry] if whole else scratch[entry])
                entry += size
            scratch[column] = total
        whole = False


@njit(cache=True, error_model="numpy")
def _move(
    q: Array, alive: Mask, first: np.uint64, card: np.uint64, temperature: float, field: Array
) -> float:
    """Set q_v to its optimum exp(field / T), normalised over the live states."""
    top = -np.inf
    for x in range(card):
        if alive[first + x] and field[x] > top:
            top = field[x]
    if top == -np.inf:
        return 0.0
    total = 0.0
    for x in range(card):
        weight = 0.0
        if alive[first + x]:
            weight = 1.0 if field[x] == top else np.exp((field[x] - top) / temperature)
        field[x] = weight
        total += weight
    change = 0.0
    for x in range(card):
        p = field[x] / total
        change = max(change, abs(p - q[first + x]))
        q[first + x] = p
    return change


@njit(cache=True, error_model="numpy")
def bound(g: GraphArrays, q: Array, temperature: float, scratch: Array) -> float:
    """sum_a E_q log phi_a / T + H(q); -inf when a forbidden entry has positive probability."""
    cards, scopes, scope_offsets, log_tables, table_offsets, state_offsets = g[:6]
    total = 0.0
    for a in range(_U(len(table_offsets) - 1)):
        lo, hi = _U(scope_offsets[a]), _U(scope_offsets[a + _ONE])
        part = (_U(table_offsets[a]), lo, hi, _NO_EDGE)
        _contract(cards, scopes, state_offsets, log_tables, part, q, scratch)
        total += scratch[0]
    total /= temperature
    for p in q:
        if p > 0.0:
            total -= p * np.log(p)
    return total


@njit(cache=True, error_model="numpy")
def simple_bounds(g: GraphArrays, q: Array, scratch: Array) -> tuple[float, float]:
    """Bounds on log Z that cost one look at the tables, given marginals q of any origin.

    From below: Jensen's bound for their product, and the weight of their most probable states. From
    above: all states, weighted by the factors of one variable, each other table at its largest.
    """
    n = len(g.cards)
    states = np.zeros(n, np.int64)
    for v in range(n):
        first = g.state_offsets[v]
        for x in range(1, g.cards[v]):
            if q[first + x] > q[first + states[v]]:
                states[v] = x
    field = np.zeros(len(q))
    score = upper = 0.0
    for a in range(len(g.table_offsets) - 1):
        lo, hi = g.scope_offsets[a], g.scope_offsets[a + 1]
        entry = begin = g.table_offsets[a]
        end = g.table_offsets[a + 1]
        for e in range(lo, hi):
            entry += states[g.scopes[e]] * g.edge_strides[e]
        score += g.log_tables[entry]
        if hi - lo == 1:
            first = g.state_offsets[g.scopes[lo]]
            for x in range(end - begin):
                field[first + x] += g.log_tables[begin + x]
        else:
            top = -np.inf
            for k in range(begin, end):
                top = max(top, g.log_tables[k])
            upper += top
    for v in range(n):
        top, total = -np.inf, 0.0
        for k in range(g.state_offsets[v], g.state_offsets[v + 1]):
            top = max(top, field[k])
        for k in range(g.state_offsets[v], g.state_offsets[v + 1]):
            total += np.exp(field[k] - top)
        upper += top + np.log(total)
    return max(bound(g, q, 1.0, scratch), score), upper


@njit(cache=True, error_model="numpy")
def products(g: GraphArrays, q: Array, tables: Array) -> None:
    """Factor beliefs of a product distribution, laid out as the log-tables."""
    for a in range(len(g.table_offsets) - 1):
        for entry in range(g.table_offsets[a], g.table_offsets[a + 1]):
            rest = entry - g.table_offsets[a]
            p = 1.0
            for e in range(g.scope_offsets[a], g.scope_offsets[a + 1]):
                digit = rest // g.edge_strides[e]
                rest -= digit * g.edge_strides[e]
                p *= q[g.state_offsets[g.scopes[e]] + digit]
            tables[entry] = p


@njit(cache=True, error_model="numpy")
def sweep_bits(
    biases: Array,
    offsets: U4,
    neighbours: U4,
    weights: Array,
    means: Array,
    order: U4,
    temperatures: Array,
    tol: float,
) -> tuple[int, float]:
    """The same sweeps in bits: m_i = 1 / (1 + exp(-(b_i + sum_j W_ij m_j) / T)) (TEH 2.38)."""
    largest = np.inf
    for sweep in range(len(temperatures)):
        largest = 0.0
        scale = -1.0 / temperatures[sweep]
        for v in order:
            z = biases[v]
            for k in range(offsets[v], offsets[v + np.uint32(1)]):
                z += weights[k] * means[neighbours[k]]
            m = 1.0 / (1.0 + np.exp(z * scale))
            largest = max(largest, abs(m - means[v]))
            means[v] = m
        if largest <= tol:
            return sweep + 1, largest
    return len(temperatures), largest
