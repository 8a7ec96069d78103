"""Coordinate updates of naive mean field, on tables of any order and in bits.

Where a probability is zero its log-potential is not looked at: 0 * log 0 = 0. A forbidden entry of
positive probability makes an expectation -inf, never NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit
from numpy.typing import NDArray

if TYPE_CHECKING:
    from kikuchi.inference.flat import FlatGraph

F8 = NDArray[np.float64]
U4 = NDArray[np.uint32]


@njit(cache=True, error_model="numpy")
def sweep_tables(
    g: FlatGraph,
    q: F8,
    alive: NDArray[np.bool_],
    order: U4,
    temperatures: F8,
    tol: float,
    field: F8,
    scratch: F8,
) -> tuple[int, float]:
    """One sweep for each temperature, ended early when no probability moves more than `tol`.

    Answers the sweeps done and the largest change in the last. `field` has room for the states of
    one variable, `scratch` for half of the largest table.
    """
    largest = np.inf
    for sweep in range(len(temperatures)):
        largest = 0.0
        for v in order:
            fill_field(g, q, v, field, scratch)
            change = _move(g, q, alive, v, temperatures[sweep], field)
            largest = max(largest, change)
        if largest <= tol:
            return sweep + 1, largest
    return len(temperatures), largest


@njit(cache=True, error_model="numpy")
def fill_field(g: FlatGraph, q: F8, v: int, field: F8, scratch: F8) -> None:
    """field[x] = sum over the factors of v of the expected log-potential given x_v = x."""
    card = np.int64(g.cards[v])
    field[:card] = 0.0
    for k in range(g.variable_offsets[v], g.variable_offsets[v + 1]):
        edge = np.int64(g.variable_edges[k])
        a = g.edge_factors[edge]
        lo, hi = g.scope_offsets[a], g.scope_offsets[a + 1]
        start = g.table_offsets[a]
        if hi - lo == 1:
            for x in range(card):
                field[x] += g.log_tables[start + x]
        elif hi - lo == 2:
            other = g.scopes[lo] if edge > lo else g.scopes[hi - 1]
            step = g.edge_strides[edge]
            other_step = np.int64(1) if edge == lo else card
            first = g.state_offsets[other]
            for y in range(np.int64(g.cards[other])):
                p = q[first + y]
                if p > 0.0:
                    entry = start + y * other_step
                    for x in range(card):
                        field[x] += p * g.log_tables[entry + x * step]
        else:
            _contract(g, q, a, edge, scratch)
            for x in range(card):
                field[x] += scratch[x]


@njit(cache=True, error_model="numpy")
def _contract(g: FlatGraph, q: F8, a: int, edge: int, scratch: F8) -> int:
    """Expectation of table a over all its variables but that of `edge` (all if edge is -1).

    One axis at a time: first those behind the edge, last first, then those before it.
    """
    lo, hi = g.scope_offsets[a], g.scope_offsets[a + 1]
    start = g.table_offsets[a]
    size = g.table_offsets[a + 1] - start
    copied = False
    e = hi - 1
    while e > max(edge, lo - 1):
        card = np.int64(g.cards[g.scopes[e]])
        first = g.state_offsets[g.scopes[e]]
        size //= card
        for row in range(size):
            total = 0.0
            for y in range(card):
                p = q[first + y]
                if p > 0.0:
                    value = (
                        scratch[row * card + y] if copied else g.log_tables[start + row * card + y]
                    )
                    total += p * value
            scratch[row] = total
        copied = True
        e -= 1
    for e in range(lo, edge):
        card = np.int64(g.cards[g.scopes[e]])
        first = g.state_offsets[g.scopes[e]]
        size //= card
        for column in range(size):
            total = 0.0
            for y in range(card):
                p = q[first + y]
                if p > 0.0:
                    value = (
                        scratch[y * size + column]
                        if copied
                        else g.log_tables[start + y * size + column]
                    )
                    total += p * value
            scratch[column] = total
        copied = True
    return size


@njit(cache=True, error_model="numpy")
def _move(
    g: FlatGraph, q: F8, alive: NDArray[np.bool_], v: int, temperature: float, field: F8
) -> float:
    """Set q_v to its optimum exp(field / T), normalised over the live states."""
    first = g.state_offsets[v]
    card = np.int64(g.cards[v])
    top = -np.inf
    for x in range(card):
        if alive[first + x] and field[x] > top:
            top = field[x]
    if top == -np.inf:
        return 0.0
    total = 0.0
    for x in range(card):
        field[x] = np.exp((field[x] - top) / temperature) if alive[first + x] else 0.0
        total += field[x]
    change = 0.0
    for x in range(card):
        p = field[x] / total
        change = max(change, abs(p - q[first + x]))
        q[first + x] = p
    return change


@njit(cache=True, error_model="numpy")
def bound(g: FlatGraph, q: F8, scratch: F8) -> float:
    """sum_a E_q log phi_a + H(q); -inf when a forbidden entry has positive probability."""
    total = 0.0
    for a in range(len(g.table_offsets) - 1):
        _contract(g, q, a, np.int64(-1), scratch)
        total += scratch[0]
    for p in q:
        if p > 0.0:
            total -= p * np.log(p)
    return total


@njit(cache=True, error_model="numpy")
def products(g: FlatGraph, q: F8, tables: F8) -> None:
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
    biases: F8,
    offsets: U4,
    neighbours: U4,
    weights: F8,
    means: F8,
    order: U4,
    temperatures: F8,
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
