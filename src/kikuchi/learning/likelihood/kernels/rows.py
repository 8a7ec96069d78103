"""Rows of data in compiled loops: equal rows merged, and what each factor sees counted."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import U4, Ints
from kikuchi.core.compiled import njit

_PRIME = np.uint64(0x9E3779B97F4A7C15)
_HALF, _ONE, _TWO = np.uint64(32), np.uint64(1), np.uint64(2)


@njit(cache=True, error_model="numpy")
def read_states(rows, limits, out):
    """Copy whole numbers to states; answers whether all are in -1..limit - 1 of their column."""
    width = len(limits)
    good = True
    for row in range(rows.shape[0]):
        for k in range(width):
            state = rows[row, k]
            good &= (state >= -1) & (state < limits[k])
            out[row, k] = state
    return good


@njit(cache=True, error_model="numpy")
def distinct_rows(states, weights, slots, first, where, sums):
    """Number equal rows alike, in order of appearance; answers how many different ones there are.

    `slots` is a hash table of a power of two entries, more than rows, all -1. Fills `first` (a
    row of each number), `where` (the number of each row) and adds to `sums` the weights.
    """
    n_rows, width = np.uint64(states.shape[0]), np.uint64(states.shape[1])
    flat = states.reshape(-1)
    mask = np.uint64(len(slots) - 1)
    found = 0
    for row in range(n_rows):
        begin = np.uint64(row) * width
        one, two = np.uint64(0), np.uint64(0)  # two chains of products run side by side
        for k in range(begin, begin + width - width % _TWO, _TWO):
            one = one * _PRIME + np.uint64(flat[k] + 1)
            two = two * _PRIME + np.uint64(flat[k + _ONE] + 1)
        if width % _TWO:
            one = one * _PRIME + np.uint64(flat[begin + width - _ONE] + 1)
        key = (one ^ (two >> _HALF) ^ (two << _HALF)) * _PRIME
        at = (key ^ (key >> _HALF)) & mask
        while True:
            number = slots[at]
            if number < 0:
                slots[at] = found
                first[found] = row
                number = found
                found += 1
                break
            other = np.uint64(first[number]) * width
            same = True
            for k in range(width):
                same &= flat[begin + k] == flat[other + k]
            if same:
                break
            at = (at + _ONE) & mask
        where[row] = number
        sums[number] += weights[row]
    return found


@njit(cache=True, error_model="numpy")
def distinct_few(states, weights, strides, slots, first, where, sums):
    """As `distinct_rows` where all rows that there may be are few enough for a slot each."""
    width = np.uint64(len(strides))
    flat = states.reshape(-1)
    found = 0
    begin = np.uint64(0)
    for row in range(len(states)):
        at = np.uint64(0)
        for k in range(width):
            at += strides[k] * np.uint64(flat[begin + k] + 1)
        begin += width
        number = slots[at]
        if number < 0:
            slots[at] = found
            first[found] = row
            number = found
            found += 1
        where[row] = number
        sums[number] += weights[row]
    return found


class FactorLayout(NamedTuple):
    """Where the entries of factors are: cardinalities of the variables, scopes, tables."""

    cards: Ints
    scopes: U4
    scope_offsets: Ints
    table_offsets: Ints


@njit(cache=True, error_model="numpy")
def count_factors(states, rows, weights, factors, layout, counts):
    """Add the weight of each row to the entry of each factor that it sees; gaps see none."""
    cards, scopes = layout.cards, layout.scopes
    scope_offsets, table_offsets = layout.scope_offsets, layout.table_offsets
    for i in range(len(rows)):
        row = rows[i]
        weight = weights[i]
        for j in range(len(factors)):
            a = factors[j]
            place = np.int64(0)
            seen = True
            for k in range(scope_offsets[a], scope_offsets[a + 1]):
                v = scopes[k]
                state = states[row, v]
                seen &= state >= 0
                place = place * cards[v] + state
            if seen:
                counts[table_offsets[a] + place] += weight


@njit(cache=True, error_model="numpy")
def score_factors(states, factors, layout, log_tables, scores):
    """Add to the score of each row the log-weights of factors whose variables it all sees."""
    cards, scopes = layout.cards, layout.scopes
    scope_offsets, table_offsets = layout.scope_offsets, layout.table_offsets
    for row in range(len(states)):
        total = 0.0
        for j in range(len(factors)):
            a = factors[j]
            place = np.int64(0)
            for k in range(scope_offsets[a], scope_offsets[a + 1]):
                v = scopes[k]
                place = place * cards[v] + states[row, v]
            total += log_tables[table_offsets[a] + place]
        scores[row] += total
