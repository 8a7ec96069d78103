"""Layers of units at the speed of memory: bias, logistic function and draw in one pass.

Every pass walks a layer in blocks of `LANES` numbers. Within a block all loops run over lanes, so
that the compiler turns them into vector instructions: exponentials are polynomials, and each lane
has a xoshiro generator of its own (128 bits of state for float32, 256 for float64), seeded anew for
every pass from one word. A pass therefore leaves no state behind: whoever gave the word can give it
again.

Reference: WH-I1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from kikuchi.core.compiled import njit
from kikuchi.engines.units.kernels.exponential import exp_negative

Array = NDArray[Any]

LANES = 64

_U4, _U8 = np.uint32, np.uint64
_FLUSH = 64  # blocks after which products of numbers in [1, 2] are put away


@njit(cache=True, error_model="numpy", inline="always")
def _split_mix(z):
    """One output of splitmix64 at the state z."""
    y = (z ^ (z >> _U8(30))) * _U8(0xBF58476D1CE4E5B9)
    y = (y ^ (y >> _U8(27))) * _U8(0x94D049BB133111EB)
    return y ^ (y >> _U8(31))


def _lanes(like, word):
    """Generators of all lanes for numbers of the type of `like`, seeded from one word."""
    raise NotImplementedError


@overload(_lanes, inline="always")
def _lanes_impl(like, word):
    kind, shift = (_U4, _U8(32)) if like.dtype == types.float32 else (_U8, _U8(0))

    def seeded(like, word):
        state = np.empty(4 * LANES, kind)
        z = word
        for k in range(4 * LANES):
            z += _U8(0x9E3779B97F4A7C15)
            state[k] = kind(_split_mix(z) >> shift)
        return state

    return seeded


def _uniforms(state, count, out):
    """Fill `out[:count]` with uniform numbers in [0, 1), one of each lane."""
    raise NotImplementedError


@overload(_uniforms, inline="always")
def _uniforms_impl(state, count, out):
    if state.dtype == types.uint32:

        def single(state, count, out):  # xoshiro128++
            for i in range(count):
                s0, s1 = state[i], state[LANES + i]
                s2, s3 = state[2 * LANES + i], state[3 * LANES + i]
                mixed = _U4(s0 + s3)
                word = _U4(_U4(_U4(mixed << _U4(7)) | (mixed >> _U4(25))) + s0)
                shifted = _U4(s1 << _U4(9))
                s2 = s2 ^ s0
                s3 = s3 ^ s1
                s1 = s1 ^ s2
                s0 = s0 ^ s3
                state[i], state[LANES + i] = s0, s1
                state[2 * LANES + i] = s2 ^ shifted
                state[3 * LANES + i] = _U4(_U4(s3 << _U4(11)) | (s3 >> _U4(21)))
                out[i] = np.float32(np.int32(word >> _U4(8))) * np.float32(2.0**-24)

        return single

    def double(state, count, out):  # xoshiro256++
        for i in range(count):
            s0, s1 = state[i], state[LANES + i]
            s2, s3 = state[2 * LANES + i], state[3 * LANES + i]
            mixed = s0 + s3
            word = ((mixed << _U8(23)) | (mixed >> _U8(41))) + s0
            shifted = s1 << _U8(17)
            s2 = s2 ^ s0
            s3 = s3 ^ s1
            s1 = s1 ^ s2
            s0 = s0 ^ s3
            state[i], state[LANES + i] = s0, s1
            state[2 * LANES + i] = s2 ^ shifted
            state[3 * LANES + i] = (s3 << _U8(45)) | (s3 >> _U8(19))
            # 52 bits as the fraction of a number in [1, 2)
            out[i] = _U8((word >> _U8(12)) | _U8(0x3FF0000000000000)).view(np.float64) - 1.0

    return double


@njit(cache=True, error_model="numpy")
def fill_uniform(out, word):
    """Fill a flat array with uniform numbers in [0, 1)."""
    state = _lanes(out, word)
    for start in range(0, len(out), LANES):
        count = min(LANES, len(out) - start)
        _uniforms(state, count, out[start : start + count])


# ---------------------------------------------------------------------- layers of binary units


@njit(cache=True, error_model="numpy")
def logistic(field, bias, log_sums):
    """Means of binary units in place of their fields (to which `bias` is added first).

    `log_sums[n]` becomes the sum of log(1 + exp(field)) over row n.
    """
    sums, products = np.empty(LANES, field.dtype), np.empty(LANES, field.dtype)
    for n in range(field.shape[0]):
        log_sums[n] = _means_of_row(field[n], bias, sums, products)


@njit(cache=True, error_model="numpy")
def draw_logistic(field, bias, log_sums, drawn, word):
    """As `logistic`, and a state of each unit in `drawn`, 0 or 1."""
    sums, products = np.empty(LANES, field.dtype), np.empty(LANES, field.dtype)
    uniform = np.empty(LANES, field.dtype)
    state = _lanes(field, word)
    zero, one = field.dtype.type(0), field.dtype.type(1)
    width = field.shape[1]
    for n in range(field.shape[0]):
        log_sums[n] = _means_of_row(field[n], bias, sums, products)
        for start in range(0, width, LANES):
            means, states = field[n, start : start + LANES], drawn[n, start : start + LANES]
            _uniforms(state, len(means), uniform)
            for i in range(len(means)):
                states[i] = one if uniform[i] < means[i] else zero


@njit(cache=True, error_model="numpy", inline="always")
def _means_of_row(row, bias, sums, products):
    """Means in place of fields; answers the row's sum of log(1 + exp(field)).

    A term is max(x, 0) + log(1 + exp(-|x|)). Each lane adds up the first and multiplies the second,
    numbers of at most 2, so that few logarithms are left.
    """
    zero, one = row.dtype.type(0), row.dtype.type(1)
    width = len(row)
    total = 0.0
    for first in range(0, width, LANES * _FLUSH):
        sums[:] = zero
        products[:] = one
        for start in range(first, min(first + LANES * _FLUSH, width), LANES):
            block, offset = row[start : start + LANES], bias[start : start + LANES]
            for i in range(len(block)):
                x = block[i] + offset[i]
                e = exp_negative(-abs(x))
                above = one + e
                block[i] = (one if x >= zero else e) / above
                products[i] *= above
                sums[i] += max(x, zero)
        total += _collected(sums, products)
    return total


@njit(cache=True, error_model="numpy", inline="always")
def _collected(sums, products):
    """Sum of the lanes and of the logarithms of their products."""
    total = 0.0
    for k in range(0, LANES, 8):
        product = 1.0
        for i in range(k, k + 8):
            total += sums[i]
            product *= products[i]
        total += np.log(product)
    return total


# ---------------------------------------------------------------------- connected units


@njit(cache=True, error_model="numpy")
def sweep_connected(totals, lateral, states, uniform, means):
    """One Gibbs sweep over binary units that are connected, row by row, unit by unit.

    `totals` are the fields on the units, those from their own layer included; they follow the
    `states` as these change. `means` receives the probability of 1 that each unit was drawn with.
    """
    rows, width = states.shape
    one, zero = states.dtype.type(1), states.dtype.type(0)
    for n in range(rows):
        total = totals[n]
        for i in range(width):
            x = total[i]
            e = exp_negative(-abs(x))
            p = (one if x >= zero else e) / (one + e)
            means[n, i] = p
            drawn = one if uniform[n, i] < p else zero
            change = drawn - states[n, i]
            if change != zero:
                states[n, i] = drawn
                row = lateral[i]
                for j in range(width):
                    total[j] += change * row[j]
