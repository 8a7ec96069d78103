"""Loops that lay out the tables of regions: potentials, links between states, marginals.

Regions are sets of variables, end to end in `variables` from `variable_at`; the tables of regions
lie end to end from `table_at`, states in row-major order. Indices are signed here: these loops run
once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import Ints
from kikuchi.core.compiled import njit

_HASH = np.uint64(1099511628211)


class RegionVariables(NamedTuple):
    """Variables of each region, end to end, and the cardinality of each variable."""

    variable_at: Ints
    variables: Ints
    cardinalities: Ints


class RegionFactors(NamedTuple):
    """Factors of each region, end to end."""

    factor_at: Ints
    factors: Ints


class ScopeTables(NamedTuple):
    """Scopes, end to end, and where the table of each begins."""

    scope_at: Ints
    scopes: Ints
    table_at: Ints


@njit(cache=True, error_model="numpy")
def _widest(offsets):
    """The length of the longest list between two neighbouring offsets; 0 if there is none."""
    widest = offsets[0] - offsets[0]
    for k in range(1, len(offsets)):
        widest = max(widest, offsets[k] - offsets[k - 1])
    return widest


@njit(cache=True, error_model="numpy")
def _strides(regions, region, tables, table, stride):
    """The step in a table of each variable of a region, 0 for those outside its scope."""
    variable_at, variables, cards = regions
    begin = variable_at[region]
    width = variable_at[region + 1] - begin
    for j in range(width):
        stride[j] = 0
    step = 1
    for k in range(tables.scope_at[table + 1] - 1, tables.scope_at[table] - 1, -1):
        v = tables.scopes[k]
        for j in range(width):
            if variables[begin + j] == v:
                stride[j] = step
        step *= cards[v]
    return step


@njit(cache=True, error_model="numpy")
def _advance(regions, region, digit, stride, place):
    """The place in a table after the next state of a region."""
    variable_at, variables, cards = regions
    begin = variable_at[region]
    for j in range(variable_at[region + 1] - begin - 1, -1, -1):
        card = cards[variables[begin + j]]
        digit[j] += 1
        place += stride[j]
        if digit[j] < card:
            return place
        digit[j] = 0
        place -= stride[j] * card
    return place


@njit(cache=True, error_model="numpy")
def add_potentials(regions, held, tables, logs, weights, span, table_at, out):
    """log phi_r of the regions of a span: the sum of the weighted log-tables of its factors.

    `held` are the `RegionFactors`.
    """
    factor_at, factors = held
    first, last = span
    widest = _widest(regions.variable_at)
    stride, digit = np.empty(widest, np.int64), np.zeros(widest, np.int64)
    for r in range(first, last):
        for i in range(table_at[r], table_at[r + 1]):
            out[i] = 0.0
        for k in range(factor_at[r], factor_at[r + 1]):
            a = factors[k]
            _strides(regions, r, tables, a, stride)
            place = tables.table_at[a]
            for i in range(table_at[r], table_at[r + 1]):
                out[i] += weights[a] * logs[place]
                place = _advance(regions, r, digit, stride, place)


@njit(cache=True, error_model="numpy")
def normalise_logs(first, last, table_at, logs, floor, b):
    """Probabilities from log-weights, of regions `first` to `last`; none above 0 below `floor`.

    Answers the first region whose states are all impossible, else `last`.
    """
    for r in range(first, last):
        top = -np.inf
        for i in range(table_at[r], table_at[r + 1]):
            top = max(top, logs[i])
        if top == -np.inf:
            return r
        total = 0.0
        for i in range(table_at[r], table_at[r + 1]):
            b[i] = max(np.exp(logs[i] - top), floor) if logs[i] > -np.inf else 0.0
            total += b[i]
        for i in range(table_at[r], table_at[r + 1]):
            b[i] /= total
    return last


@njit(cache=True, error_model="numpy")
def sums(regions, homes, tables, table_at, values, out, normalised=False):
    """Sums onto each scope of numbers in the layout of its home region, or marginals of beliefs.

    Marginals are `normalised`: each table is divided by its total.
    """
    widest = _widest(regions.variable_at)
    stride, digit = np.empty(widest, np.int64), np.zeros(widest, np.int64)
    for a in range(len(homes)):
        r = homes[a]
        size = _strides(regions, r, tables, a, stride)
        begin = tables.table_at[a]
        for x in range(begin, begin + size):
            out[x] = 0.0
        total = 0.0
        place = begin
        for i in range(table_at[r], table_at[r + 1]):
            out[place] += values[i]
            total += values[i]
            place = _advance(regions, r, digit, stride, place)
        if normalised:
            for x in range(begin, begin + size):
                out[x] /= total


@njit(cache=True, error_model="numpy")
def map_kinds(regions, large, small):
    """For each pair of nested regions the first pair whose map of states is the same.

    The map depends on the cardinalities of the large region and the places of the small one in it.
    """
    variable_at = regions.variable_at
    widest = _widest(variable_at)
    key, other = np.empty(2 * widest + 1, np.int64), np.empty(2 * widest + 1, np.int64)
    slots = 16
    while slots < 2 * len(large):
        slots *= 2
    table = np.full(slots, -1)
    first = np.empty(len(large), np.int64)
    for link in range(len(large)):
        length = _key(regions, large[link], small[link], key)
        mixed = np.uint64(length)
        for k in range(length):
            mixed = (mixed ^ np.uint64(key[k])) * _HASH
        slot = np.int64((mixed ^ (mixed >> np.uint64(29))) & np.uint64(slots - 1))
        while True:
            found = table[slot]
            if found < 0:
                table[slot] = first[link] = link
                break
            same = _key(regions, large[found], small[found], other) == length
            for k in range(length):
                same = same and key[k] == other[k]
            if same:
                first[link] = found
                break
            slot = (slot + 1) & (slots - 1)
    return first


@njit(cache=True, error_model="numpy")
def _key(regions, large, small, key):
    """What the map between two regions depends on, and its length."""
    variable_at, variables, cards = regions
    begin, end = variable_at[large], variable_at[large + 1]
    key[0] = end - begin
    length = 1
    for j in range(begin, end):
        key[length] = cards[variables[j]]
        length += 1
    place = begin
    for k in range(variable_at[small], variable_at[small + 1]):
        while variables[place] != variables[k]:  # both rise
            place += 1
        key[length] = place - begin
        length += 1
    return length
