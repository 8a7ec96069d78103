"""Products of a matrix of 0 and 1 with a real one, in a third of the additions.

Six rows of the real matrix have 64 different sums of some of them. These are put in a table, and
six bits of the other matrix choose one of the sums: one addition in place of six multiplications
and additions (the "four Russians"). With 64 columns at a time a table of three such groups stays
close to the processor.
"""

from __future__ import annotations

import numpy as np
from numba import njit

BITS = 6
COLUMNS = 64
_SUMS = 1 << BITS
_U = np.uint64
_TABLE = _U(_SUMS * COLUMNS)


@njit(cache=True, error_model="numpy")
def pack(bits, patterns):
    """patterns[g, i] = six numbers below each other in column i; False if any is not 0 or 1."""
    rows, width = bits.shape
    patterns[:] = 0
    odd = np.uint8(0)
    for n in range(rows):
        row, words = bits[n], patterns[n // BITS]
        k = np.uint8(n % BITS)
        for i in range(width):
            bit = np.uint8(row[i])
            odd |= np.uint8(row[i] != bit) | np.uint8(bit > 1)
            words[i] |= np.uint8(bit << k)
    return odd == 0


@njit(cache=True, error_model="numpy")
def pattern_product(patterns, matrix, out):
    """out[n] = sum over groups g of those of the six rows of group g that patterns[g, n] names.

    The number of groups is a multiple of three; rows beyond the last of `matrix` count as 0. `out`
    has at least COLUMNS columns.
    """
    groups, rows = patterns.shape
    width = matrix.shape[1]
    table = np.empty(3 * _SUMS * COLUMNS, matrix.dtype)
    for start in range(0, width, COLUMNS):
        column = min(start, width - COLUMNS)  # the last block may overlap the one before
        for n in range(rows):
            block = out[n, column : column + COLUMNS]
            for i in range(COLUMNS):
                block[i] = 0
        for g in range(0, groups, 3):
            for k in range(3):
                _fill(table[k * _SUMS * COLUMNS : (k + 1) * _SUMS * COLUMNS], matrix, g + k, column)
            first, second, third = patterns[g], patterns[g + 1], patterns[g + 2]
            for n in range(rows):
                a = _U(first[n]) * _U(COLUMNS)
                b = _U(second[n]) * _U(COLUMNS) + _TABLE
                c = _U(third[n]) * _U(COLUMNS) + _TABLE + _TABLE
                block = out[n, column : column + COLUMNS]
                for i in range(COLUMNS):
                    j = _U(i)
                    block[i] += (table[a + j] + table[b + j]) + table[c + j]


@njit(cache=True, error_model="numpy", inline="always")
def _fill(table, matrix, group, column):
    """All sums of the six rows of a group, COLUMNS numbers each."""
    for i in range(COLUMNS):
        table[i] = 0
    for k in range(BITS):
        r = group * BITS + k
        size = COLUMNS << k
        old, new = table[:size], table[size : 2 * size]
        if r >= matrix.shape[0]:
            for i in range(size):
                new[i] = old[i]
        else:
            row = matrix[r, column : column + COLUMNS]
            for first in range(0, size, COLUMNS):
                source, target = old[first : first + COLUMNS], new[first : first + COLUMNS]
                for i in range(COLUMNS):
                    target[i] = source[i] + row[i]
