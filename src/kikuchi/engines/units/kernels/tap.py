"""Coordinate descent on the Plefka expansion of a spin model, in terms of x = atanh m.

With v = 1 - m^2 and u = m v the part of the free energy that depends on one spin is

    phi(m) = -H(m) - a m + b m^2 / 2 - (2/3) c (m - m^3),
    a = h_i + sum_j J_ij m_j,   b = sum_j J_ij^2 v_j + 2 sum_{j<k} J_ij J_jk J_ki v_j v_k,
    c = sum_j J_ij^3 u_j

(order 1: b = c = 0; order 2: b without triangles, c = 0). A stationary point is a zero of
g(x) = x - a + b tanh x - (2/3) c (1 - 3 tanh^2 x). To second order b >= 0, so that g rises and the
zero is the only one.

Reference: TEH-I6.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import U4, Array
from kikuchi.core.compiled import njit

_STEPS = 200
_ROUNDING = 1e-14
_EXACT = 1e-15
_TWO_THIRDS = 2.0 / 3.0


class SpinRows(NamedTuple):
    """Fields of all spins, and of each its neighbours with their couplings."""

    fields: Array
    offsets: U4
    neighbours: U4
    couplings: Array


class SpinMoments(NamedTuple):
    """x = atanh m, m and v = 1 - m^2 of all spins."""

    x: Array
    m: Array
    v: Array


@njit(cache=True, error_model="numpy", inline="always")
def _moments(x):
    """tanh x and 1 - tanh^2 x, the second without cancellation."""
    tail = np.exp(-2.0 * abs(x))
    m = (1.0 - tail) / (1.0 + tail)
    return m if x >= 0.0 else -m, 4.0 * tail / ((1.0 + tail) * (1.0 + tail))


@njit(cache=True, error_model="numpy")
def _energy(x, a, b, c):
    """phi up to a constant; x m - log 2cosh x is minus the entropy."""
    m = np.tanh(x)
    size = abs(x)
    entropy = size + np.log1p(np.exp(-2.0 * size)) - x * m
    return -entropy - a * m + 0.5 * b * m * m - _TWO_THIRDS * c * m * (1.0 - m * m)


@njit(cache=True, error_model="numpy")
def _stationary(x, a, b, c):
    """A zero of g where it rises, on the side of x that phi falls to: Newton inside a bracket."""
    reach = abs(b) + 2.0 * _TWO_THIRDS * abs(c)
    low, high = a - reach, a + reach
    x = min(max(x, low), high)
    for _ in range(_STEPS):
        m, v = _moments(x)
        value = x - a + b * m - _TWO_THIRDS * c * (1.0 - 3.0 * m * m)
        rise = 1.0 + (b + 4.0 * c * m) * v
        if value > 0.0:
            high = x
        else:
            low = x
        new = x - value / rise if rise > 0.0 else 0.5 * (low + high)
        if not low <= new <= high:
            new = 0.5 * (low + high)
        if abs(new - x) <= _EXACT * (1.0 + abs(x)) or high - low <= _EXACT * (1.0 + abs(x)):
            return new
        x = new
    return x


@njit(cache=True, error_model="numpy")
def _move(x, a, b, c, damping):
    """Where a whole step leads and where a damped one does. If phi is not convex (third order) and
    would rise there, both are a point nearer to x where it does not.
    """
    whole = _stationary(x, a, b, c)
    new = whole if damping == 0.0 else whole + damping * (x - whole)
    if c == 0.0 and b >= 0.0:
        return whole, new
    here = _energy(x, a, b, c)
    slack = _ROUNDING * (1.0 + abs(here) + abs(a) + abs(b) + abs(c))
    for _ in range(_STEPS):
        if _energy(new, a, b, c) <= here + slack:
            return whole, new
        new = 0.5 * (x + new)
        whole = new
    return x, x


@njit(cache=True, error_model="numpy")
def sweep(order, which, rows, damping, spins, marks):
    """Move each spin of `which` towards its own minimum; returns the largest change of a
    probability that whole moves would make. `marks` is zero before and after.
    """
    fields, offsets, neighbours, couplings = rows
    x, m, v = spins
    largest = 0.0
    for i in which:
        lo = offsets[i]
        hi = offsets[i + np.uint32(1)]
        a = fields[i]
        b = 0.0
        c = 0.0
        for k in range(lo, hi):
            j = neighbours[k]
            w = couplings[k]
            a += w * m[j]
            if order > 1:
                b += w * w * v[j]
            if order > 2:
                c += w * w * w * m[j] * v[j]
        if order > 2:
            b += _triangles(i, offsets, neighbours, couplings, v, marks)
        whole, new = _move(x[i], a, b, c, damping)
        mean, _ = _moments(whole)
        largest = max(largest, 0.5 * abs(mean - m[i]))
        x[i] = new
        m[i], v[i] = _moments(new)
    return largest


@njit(cache=True, error_model="numpy")
def _triangles(i, offsets, neighbours, couplings, v, marks):
    """sum over j and k of J_ij J_jk J_ki v_j v_k: each triangle at i twice."""
    lo = offsets[i]
    hi = offsets[i + np.uint32(1)]
    for k in range(lo, hi):
        marks[neighbours[k]] = couplings[k]
    total = 0.0
    for k in range(lo, hi):
        j = neighbours[k]
        around = 0.0
        for e in range(offsets[j], offsets[j + np.uint32(1)]):
            around += couplings[e] * marks[neighbours[e]] * v[neighbours[e]]
        total += couplings[k] * v[j] * around
    for k in range(lo, hi):
        marks[neighbours[k]] = 0.0
    return total


@njit(cache=True, error_model="numpy")
def paths(offsets, neighbours, couplings, v, marks, out):
    """sum_k J_ik J_kj v_k for each stored coupling ij: the ways round by one other spin."""
    for row in range(offsets.size - 1):
        i = np.uint32(row)
        lo = offsets[i]
        hi = offsets[i + np.uint32(1)]
        for k in range(lo, hi):
            marks[neighbours[k]] = couplings[k]
        for k in range(lo, hi):
            j = neighbours[k]
            total = 0.0
            for e in range(offsets[j], offsets[j + np.uint32(1)]):
                total += couplings[e] * marks[neighbours[e]] * v[neighbours[e]]
            out[k] = total
        for k in range(lo, hi):
            marks[neighbours[k]] = 0.0
