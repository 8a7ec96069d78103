"""Products of tables summed over axes: the inner loop of all junction tree propagation.

`contract` walks the states of a clique once. Its operands are tables over some of the clique's
variables, inputs in one buffer `mem` and results in another; each is given by an offset and one
stride for each axis of the clique, 0 where the variable is absent. The product is made in tiles
(the fastest axes) that stay in the first-level cache, so that no clique is ever held whole. Within
a tile, runs of axes that an operand treats alike are fused, which leaves one or two long loops for
most operands.

With children the same walk gives the product without each child in turn (Shafer-Shenoy), from
products of the children before it and after it.

Three arithmetics: SUM multiplies and adds; MAX adds logarithms and takes the largest; EXPSUM adds
logarithms and sums exponentials above maxima that a MAX walk left in place. In SUM with `check`, a
product of two numbers above 0 that falls below FLOOR is reported.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.compiled import njit

SUM, MAX, EXPSUM = 0, 1, 2
FLOOR = 1e-290
TILE = 2048
_SMALL = 64

_SET, _MULTIPLY, _ADD, _CHECKED = 0, 1, 2, 3
_U0, _U1, _U2 = np.uint64(0), np.uint64(1), np.uint64(2)
_SUMS = {"reassoc", "nsz"}  # sums may be reordered, so that they vectorise
_EXTREMES = {"nnan", "nsz"}  # no NaN ever arises, so that maxima vectorise


class CliqueWalk(NamedTuple):
    """The operands of one walk over the states of a clique with `nd` axes.

    They stand in this order: fixed inputs, children's inputs, children's results (each the product
    of everything but that child), targets (results of the whole product). From `dims_at` on `dims`
    holds the cardinality of each axis; from `steps_at` on `steps` holds nd strides per operand,
    from `bases_at` on `bases` their offsets.
    """

    nd: int
    dims: Ints
    dims_at: int
    steps: Ints
    steps_at: int
    bases: Ints
    bases_at: int
    n_fixed: int
    n_children: int
    n_targets: int
    store: bool


class Workspace(NamedTuple):
    """Working memory of a propagation: results of a walk, answers, and scratch of one walk."""

    temporary: Array
    out: Array
    tile: Array
    runs: Ints
    strides: Ints
    lengths: Ints
    places: Ints
    counters: Ints


@njit(cache=True, error_model="numpy")
def _combine_rows(t, p, x, b, n2, s2, n1, s1, how):
    """Combine n2 rows of n1 tile entries with an operand of strides s2 and s1."""
    if s1 == _U1:
        for _ in range(n2):
            if how == _SET:
                for k in range(n1):
                    t[p + k] = x[b + k]
            elif how == _MULTIPLY:
                for k in range(n1):
                    t[p + k] *= x[b + k]
            else:
                for k in range(n1):
                    t[p + k] += x[b + k]
            p += n1
            b += s2
        return
    for _ in range(n2):
        c = x[b]
        if s1 != _U0:
            for k in range(n1):
                y = x[b + k * s1]
                t[p + k] = (
                    y if how == _SET else (t[p + k] * y if how == _MULTIPLY else t[p + k] + y)
                )
        elif how == _SET:
            for k in range(n1):
                t[p + k] = c
        elif how == _MULTIPLY:
            for k in range(n1):
                t[p + k] *= c
        else:
            for k in range(n1):
                t[p + k] += c
        p += n1
        b += s2


@njit(cache=True, error_model="numpy")
def _combine_pairs(t, p, x, b, n2, s2, s1, how):
    """Rows of two entries, as binary variables make them: the loop runs over the rows."""
    for i in range(n2):
        c, d = x[b + i * s2], x[b + i * s2 + s1]
        q = p + _U2 * i
        if how == _SET:
            t[q] = c
            t[q + _U1] = d
        elif how == _MULTIPLY:
            t[q] *= c
            t[q + _U1] *= d
        else:
            t[q] += c
            t[q + _U1] += d


@njit(cache=True, error_model="numpy")
def _combine_checked(t, p, x, b, n2, s2, n1, s1):
    """Multiply; answers whether a product of two numbers above 0 is below FLOOR."""
    bad = False
    for _ in range(n2):
        for k in range(n1):
            a, y = t[p + k], x[b + k * s1]
            r = a * y
            bad |= (r < FLOOR) & (a != 0.0) & (y != 0.0)
            t[p + k] = r
        p += n1
        b += s2
    return bad


@njit(cache=True, error_model="numpy")
def _combine_tiles(t, p, q, width, how):
    """Combine the tile at p with the tile at q."""
    if how == _CHECKED:
        return _combine_checked(t, p, t, q, _U1, _U0, width, _U1)
    for k in range(width):
        t[p + k] = t[p + k] * t[q + k] if how == _MULTIPLY else t[p + k] + t[q + k]
    return False


@njit(cache=True, error_model="numpy", inline="always")
def _advance(b, runs, strides, at, g, count):
    """Count on from axis `g`: the slowest axis that moved (-1 after the last), and the place."""
    while g >= 0:
        count[g] += 1
        b += np.uint64(strides[at + g])
        if count[g] < runs[at + g]:
            break
        b -= np.uint64(strides[at + g]) * np.uint64(runs[at + g])
        count[g] = 0
        g -= 1
    return g, b


@njit(cache=True, error_model="numpy")
def _combine(t, p, x, b, runs, strides, at, n, count, how):
    """Combine a tile with an operand whose fused axes are runs[at:at + n], slowest first."""
    n1, s1 = np.uint64(runs[at + n - 1]), np.uint64(strides[at + n - 1])
    n2, s2 = _U1, _U0
    if n > 1:
        n2, s2 = np.uint64(runs[at + n - 2]), np.uint64(strides[at + n - 2])
    bad = False
    block = n1 * n2
    for g in range(n - 2):
        count[g] = 0
    while True:
        if how == _CHECKED:
            bad |= _combine_checked(t, p, x, b, n2, s2, n1, s1)
        elif n1 == _U2:
            _combine_pairs(t, p, x, b, n2, s2, s1, how)
        else:
            _combine_rows(t, p, x, b, n2, s2, n1, s1, how)
        p += block
        g, b = _advance(b, runs, strides, at, n - 3, count)
        if g < 0:
            return bad


@njit(cache=True, error_model="numpy", fastmath=_SUMS)
def _sum_rows(t, p, x, b, n2, s2, n1, s1):
    """Add n2 rows of n1 tile entries into a result of strides s2 and s1."""
    if s1 == _U1:
        for _ in range(n2):
            for k in range(n1):
                x[b + k] += t[p + k]
            p += n1
            b += s2
    elif s1 == _U0 and n1 == _U2:
        for i in range(n2):
            x[b + i * s2] += t[p + _U2 * i] + t[p + _U2 * i + _U1]
    elif s1 == _U0:
        for _ in range(n2):
            total = 0.0
            for k in range(n1):
                total += t[p + k]
            x[b] += total
            p += n1
            b += s2
    else:
        for _ in range(n2):
            for k in range(n1):
                x[b + k * s1] += t[p + k]
            p += n1
            b += s2


@njit(cache=True, error_model="numpy", fastmath=_EXTREMES)
def _max_rows(t, p, x, b, n2, s2, n1, s1):
    """Raise a result of strides s2 and s1 to n2 rows of n1 tile entries."""
    for _ in range(n2):
        if s1 == _U0:
            top = x[b]
            for k in range(n1):
                top = max(top, t[p + k])
            x[b] = top
        else:
            for k in range(n1):
                x[b + k * s1] = max(x[b + k * s1], t[p + k])
        p += n1
        b += s2


@njit(cache=True, error_model="numpy")
def _expsum_rows(t, p, x, b, n2, s2, n1, s1, shift):
    """Add exp(entry - maximum) into the sums that lie `shift` after the maxima."""
    for _ in range(n2):
        for k in range(n1):
            i = b + k * s1
            if t[p + k] > -np.inf:
                x[i + shift] += np.exp(t[p + k] - x[i])
        p += n1
        b += s2


@njit(cache=True, error_model="numpy")
def _reduce(t, p, x, b, runs, strides, at, n, count, how, shift):
    """Sum (or maximise) a tile into a result whose fused axes are runs[at:at + n]."""
    n1, s1 = np.uint64(runs[at + n - 1]), np.uint64(strides[at + n - 1])
    n2, s2 = _U1, _U0
    if n > 1:
        n2, s2 = np.uint64(runs[at + n - 2]), np.uint64(strides[at + n - 2])
    block = n1 * n2
    for g in range(n - 2):
        count[g] = 0
    while True:
        if how == SUM:
            _sum_rows(t, p, x, b, n2, s2, n1, s1)
        elif how == MAX:
            _max_rows(t, p, x, b, n2, s2, n1, s1)
        else:
            _expsum_rows(t, p, x, b, n2, s2, n1, s1, shift)
        p += block
        g, b = _advance(b, runs, strides, at, n - 3, count)
        if g < 0:
            return


@njit(cache=True, error_model="numpy")
def tile_split(dims, at, nd, buffers):
    """The first axis of the tile and the tile's size: trailing axes that fit TILE.

    Many buffers share the cache, so each is smaller; a tile below _SMALL is widened anyway.
    """
    limit = max(_SMALL, 2 * TILE // max(buffers, 2))
    size = 1
    first = nd
    while first > 0 and (size * dims[at + first - 1] <= limit or size < _SMALL):
        first -= 1
        size *= dims[at + first]
    return first, size


@njit(cache=True, error_model="numpy")
def _fuse(dims, at, first, nd, steps, begin, row, runs, strides):
    """Fuse neighbouring tile axes of one operand; answers the number of runs left."""
    n = 0
    for a in range(first, nd):
        d = dims[at + a]
        if d == 1:
            continue
        step = steps[begin + a]
        if n and strides[row + n - 1] == d * step:
            runs[row + n - 1] *= d
            strides[row + n - 1] = step
        else:
            runs[row + n] = d
            strides[row + n] = step
            n += 1
    if n == 0:
        runs[row] = 1
        strides[row] = 0
        n = 1
    return n


@njit(cache=True, error_model="numpy", forceinline=True)  # a call would copy all arrays
def contract(walk, mem, results, workspace, how, check, shift, piece, pieces):
    """One walk over a clique, or the given piece of it; answers whether a product fell below FLOOR.

    Results must be initialised (0, or -inf for MAX), except that with `walk.store` the one target
    is overwritten: its axes are the clique's.
    """
    nd, dims, dims_at, steps, steps_at, bases, bases_at = walk[:7]
    n_fixed, n_children, n_targets, store = walk[7:]
    tile, runs, strides = workspace.tile, workspace.runs, workspace.strides
    lengths, places, count = workspace.lengths, workspace.places, workspace.counters
    n_operands = n_fixed + 2 * n_children + n_targets
    first, size = tile_split(dims, dims_at, nd, n_children + 1)
    tiles = 1
    for a in range(first):
        tiles *= dims[dims_at + a]
    for k in range(n_operands):
        row = steps_at + k * nd
        lengths[k] = _fuse(dims, dims_at, first, nd, steps, row, k * nd, runs, strides)
        places[k] = bases[bases_at + k]
    # Axes that the first result sums over turn fastest, so that its tile stays in the cache.
    walk, index = nd, 2 * nd  # sections of `count`
    result = steps_at + (n_fixed + n_children) * nd
    n = 0
    for summed in range(2):
        for a in range(first):
            if (steps[result + a] == 0) == (summed == 1):
                count[walk + n] = a
                n += 1
    begin, end = tiles * piece // pieces, tiles * (piece + 1) // pieces
    rest = begin
    for g in range(first - 1, -1, -1):
        a = count[walk + g]
        count[index + g] = rest % dims[dims_at + a]
        rest //= dims[dims_at + a]
        for k in range(n_operands):
            places[k] += count[index + g] * steps[steps_at + k * nd + a]
    times = _MULTIPLY if how == SUM else _ADD
    if check and how == SUM:
        times = _CHECKED
    one = 1.0 if how == SUM else 0.0
    width = np.uint64(size)
    bad = False
    child = n_fixed
    child_result = n_fixed + n_children
    target = n_fixed + 2 * n_children
    for _ in range(begin, end):
        if n_fixed == 0:
            for i in range(width):
                tile[i] = one
        for k in range(n_fixed):
            bad |= _combine(
                tile, _U0, mem, np.uint64(places[k]), runs, strides, k * nd, lengths[k], count,
                _SET if k == 0 else times,
            )  # fmt: skip
        if n_children:
            # Buffer j holds the product of the fixed inputs and of the children before j.
            last = n_children if n_targets else n_children - 1
            for j in range(last):
                low, high = np.uint64(j) * width, np.uint64(j + 1) * width
                for i in range(width):
                    tile[high + i] = tile[low + i]
                k = child + j
                watched = times if j < n_children - 1 or times != _CHECKED else _MULTIPLY
                bad |= _combine(
                    tile, high, mem, np.uint64(places[k]), runs, strides, k * nd, lengths[k],
                    count, watched,
                )  # fmt: skip
        full = np.uint64(n_children) * width
        for k in range(target, target + n_targets):
            if store:
                b = np.uint64(places[k])
                for i in range(width):
                    results[b + i] = tile[full + i]
            else:
                _reduce(
                    tile, full, results, np.uint64(places[k]), runs, strides, k * nd, lengths[k],
                    count, how, np.uint64(shift),
                )  # fmt: skip
        for j in range(n_children - 1, -1, -1):
            low = np.uint64(j) * width
            if j < n_children - 1:  # `full` now collects the children after j
                k = child + j + 1
                bad |= _combine(
                    tile, full, mem, np.uint64(places[k]), runs, strides, k * nd, lengths[k],
                    count, _SET if j == n_children - 2 else times,
                )  # fmt: skip
                bad |= _combine_tiles(tile, low, full, width, times)
            k = child_result + j
            _reduce(
                tile, low, results, np.uint64(places[k]), runs, strides, k * nd, lengths[k],
                count, how, np.uint64(shift),
            )  # fmt: skip
        g = first - 1
        while g >= 0:
            a = count[walk + g]
            count[index + g] += 1
            if count[index + g] < dims[dims_at + a]:
                for k in range(n_operands):
                    places[k] += steps[steps_at + k * nd + a]
                break
            for k in range(n_operands):
                places[k] -= steps[steps_at + k * nd + a] * (dims[dims_at + a] - 1)
            count[index + g] = 0
            g -= 1
    return bad
