"""Strengths of factors and products with the matrix that bounds how message changes spread.

The matrix (for tables of any order) acts on one number for each edge (a, i) of the
graph, the change of the message from factor a to variable i:

    (M x)_ai = d_a x_ai + sum_{j in a, j != i} T_a(i, j) (sum_{b != a} x_bj + d_a x_aj),

with d_a = |1 - alpha_a|. It is never stored: `sums` holds sum_b x_bj, and T_a stands in a block of
|a|² numbers for each factor. `on` says which edges take part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import U4, Array, Ints
from kikuchi.core.compiled import njit

if TYPE_CHECKING:
    from kikuchi.graphs.graph_arrays import GraphArrays

On = NDArray[np.uint8]

_U = np.uint64
_0, _1 = _U(0), _U(1)
_FLOOR = 1e-150  # of the largest entry: vectors stay positive, whatever dies out


@njit(cache=True, error_model="numpy")
def strengths(
    g: GraphArrays, blocks: Ints, factors: U4, high: Array, low: Array, out: Array
) -> None:
    """D_a(i, j): the largest log odds ratio between two states of i and two of j, the rest free.

    D = max log [phi(u, v, r) phi(u', v', r') / (phi(u', v, r) phi(u, v', r'))] over u, u' of i,
    v != v' of j and r, r' of the others. Entries that are NaN belong to states that are ruled out;
    where both entries of a difference are zero, neither sum has that term.
    """
    cards, scopes, scope_offsets, tables, table_offsets = g[:5]
    strides = g.edge_strides
    for number in factors:
        a = _U(number)
        lo = _U(scope_offsets[a])
        order = _U(scope_offsets[a + _1]) - lo
        table = tables[table_offsets[a] : table_offsets[a + _1]]
        block = _U(blocks[a])
        for p in range(order):
            card_i = _U(cards[scopes[lo + p]])
            stride_i = _U(strides[lo + p])
            for q in range(order):
                if p == q:
                    continue
                if order == _U(2) and q < p:  # the same four entries
                    out[block + p * order + q] = out[block + q * order + p]
                    continue
                card_j = _U(cards[scopes[lo + q]])
                stride_j = _U(strides[lo + q])
                largest = 0.0
                for u in range(card_i):
                    for w in range(card_i):
                        if u == w:
                            continue
                        _ranges(table, u, w, (card_i, stride_i), (card_j, stride_j), high, low)
                        largest = max(largest, _widest(high, low, card_j))
                out[block + p * order + q] = largest


@njit(cache=True, error_model="numpy")
def _ranges(
    table: Array,
    u: int,
    w: int,
    axis_i: tuple[int, int],
    axis_j: tuple[int, int],
    high: Array,
    low: Array,
) -> None:
    """For each state of j the range of log phi(u, ...) - log phi(w, ...) over the others.

    An axis is given by its cardinality and its stride.
    """
    (card_i, stride_i), (card_j, stride_j) = axis_i, axis_j
    for v in range(card_j):
        high[v] = -np.inf
        low[v] = np.inf
    span = stride_i * card_i
    for outer in range(_U(len(table)) // span):
        for inner in range(stride_i):
            at = outer * span + inner
            one = table[at + u * stride_i]
            other = table[at + w * stride_i]
            if one == -np.inf and other == -np.inf:
                continue
            value = one - other
            if np.isnan(value):
                continue
            v = (at // stride_j) % card_j
            high[v] = max(high[v], value)
            low[v] = min(low[v], value)


@njit(cache=True, error_model="numpy")
def _widest(high, low, count):
    """max high[v] - low[v'] over v != v', from the two best of each; 0 if there is no pair."""
    first, second, top = -np.inf, -np.inf, _0
    for v in range(count):
        if high[v] > first:
            first, second, top = high[v], first, _U(v)
        elif high[v] > second:
            second = high[v]
    widest = 0.0
    for v in range(count):
        best = second if v == top else first
        if best > -np.inf and low[v] < np.inf:
            widest = max(widest, best - low[v])
    return widest


@njit(cache=True, error_model="numpy")
def trim(g, on, stack, factor_degrees, variable_degrees):
    """Switch off edges at nodes of degree one until none is left: what stays lies on cycles
    or between them, and the spectral radius of the messages is that of this core.
    """
    scopes, scope_offsets, edge_factors = g.scopes, g.scope_offsets, g.edge_factors
    variable_offsets, variable_edges = g.variable_offsets, g.variable_edges
    for e in range(_U(scopes.size)):
        if on[e]:
            factor_degrees[edge_factors[e]] += np.uint32(1)
            variable_degrees[scopes[e]] += np.uint32(1)
    top = _0
    for e in range(_U(scopes.size)):
        if on[e] and (factor_degrees[edge_factors[e]] == 1 or variable_degrees[scopes[e]] == 1):
            stack[top] = np.uint32(e)
            top += _1
            on[e] = 0
    while top > _0:
        top -= _1
        gone = _U(stack[top])
        a, v = _U(edge_factors[gone]), _U(scopes[gone])
        factor_degrees[a] -= np.uint32(1)
        variable_degrees[v] -= np.uint32(1)
        if factor_degrees[a] == 1:
            for f in range(_U(scope_offsets[a]), _U(scope_offsets[a + _1])):
                if on[f]:
                    on[f] = 0
                    stack[top] = np.uint32(f)
                    top += _1
        if variable_degrees[v] == 1:
            for k in range(_U(variable_offsets[v]), _U(variable_offsets[v + _1])):
                f = variable_edges[k]
                if on[f]:
                    on[f] = 0
                    stack[top] = np.uint32(f)
                    top += _1


# ---------------------------------------------------------------------- products


@njit(cache=True, error_model="numpy")
def spread(matrix: Any, x: Array, sums: Array, y: Array) -> None:
    """y = M x."""
    scopes, scope_offsets, block_offsets, strength, inertia, factors, on = matrix
    sums[:] = 0.0
    for number in factors:
        a = _U(number)
        for e in range(_U(scope_offsets[a]), _U(scope_offsets[a + _1])):
            if on[e]:
                sums[scopes[e]] += x[e]
    for number in factors:
        a = _U(number)
        lo = _U(scope_offsets[a])
        order = _U(scope_offsets[a + _1]) - lo
        block = _U(block_offsets[a])
        kept = inertia[a]
        for p in range(order):
            if not on[lo + p]:
                continue
            total = kept * x[lo + p]
            for q in range(order):
                if q != p and on[lo + q]:
                    inflow = sums[scopes[lo + q]] - x[lo + q] + kept * x[lo + q]
                    total += strength[block + p * order + q] * inflow
            y[lo + p] = total


@njit(cache=True, error_model="numpy")
def gather(matrix: Any, y: Array, sums: Array, work: Array, x: Array) -> None:
    """x = M' y."""
    scopes, scope_offsets, block_offsets, strength, inertia, factors, on = matrix
    sums[:] = 0.0
    for number in factors:
        a = _U(number)
        lo = _U(scope_offsets[a])
        order = _U(scope_offsets[a + _1]) - lo
        block = _U(block_offsets[a])
        for q in range(order):
            if not on[lo + q]:
                continue
            total = 0.0
            for p in range(order):
                if p != q and on[lo + p]:
                    total += strength[block + p * order + q] * y[lo + p]
            work[lo + q] = total
            sums[scopes[lo + q]] += total
    for number in factors:
        a = _U(number)
        kept = inertia[a]
        for e in range(_U(scope_offsets[a]), _U(scope_offsets[a + _1])):
            if on[e]:
                x[e] = kept * y[e] + sums[scopes[e]] - work[e] + kept * work[e]


@njit(cache=True, error_model="numpy")
def _rescaled(on: On, x: Array, y: Array, shift: float) -> None:
    """x = y + shift x over its largest entry, kept positive."""
    top = 0.0
    for e in range(_U(x.size)):
        if on[e]:
            x[e] = y[e] + shift * x[e]
            top = max(top, x[e])
    for e in range(_U(x.size)):
        if on[e]:
            x[e] = max(x[e] / top, _FLOOR) if top > 0.0 else 1.0


@njit(cache=True, error_model="numpy")
def _ratios(on: On, x: Array, y: Array) -> tuple[float, float]:
    """Least and largest y / x: for y = M x, x > 0, they bracket the spectral radius of M."""
    low, high = np.inf, 0.0
    for e in range(_U(x.size)):
        if on[e]:
            ratio = y[e] / x[e]
            low = min(low, ratio)
            high = max(high, ratio)
    return low, high


@njit(cache=True, error_model="numpy")
def radius_steps(matrix: Any, x: Array, sums: Array, y: Array, steps: int) -> tuple[float, float]:
    """Power steps on M + shift; answers the best bounds on the spectral radius of M.

    A shift (a share of the bound) is there for graphs whose cycles all have even length. The upper
    bound (Collatz and Wielandt) holds for every positive x, so at every step.
    """
    on = matrix[6]
    lower, upper = 0.0, np.inf
    for _ in range(steps):
        spread(matrix, x, sums, y)
        low, high = _ratios(on, x, y)
        lower = max(lower, low)
        upper = min(upper, high)
        _rescaled(on, x, y, 0.3 * high)
    return lower, upper


@njit(cache=True, error_model="numpy")
def singular_steps(
    matrix: Any, x: Array, sums: Array, y: Array, work: Array, z: Array, steps: int
) -> tuple[float, float]:
    """Power steps on M'M; answers the best bounds on the largest singular value of M.

    From below the Rayleigh quotient |Mx|² / |x|², from above the largest (M'Mx)_e / x_e.
    """
    on = matrix[6]
    lower, upper = 0.0, np.inf
    for _ in range(steps):
        spread(matrix, x, sums, y)
        gather(matrix, y, sums, work, z)
        over, under = 0.0, 0.0
        for e in range(_U(x.size)):
            if on[e]:
                over += y[e] * y[e]
                under += x[e] * x[e]
        high = _ratios(on, x, z)[1]
        lower = max(lower, over / under)
        upper = min(upper, high)
        _rescaled(on, x, z, 0.0)
    return np.sqrt(lower), np.sqrt(upper)
