"""Local configurations of complete rows: counted once, then scored and differentiated.

A local configuration of a variable is what its conditional depends on: the entry of each of its
factors' tables when the variable itself is in state 0. Indices are unsigned throughout.

Reference: TEH-L10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import U4, U8, Array
from kikuchi.core.compiled import njit
from kikuchi.engines.sampling.kernels.gibbs import (
    conditional_log_weights,
    exponentiate,
    table_entry,
)

if TYPE_CHECKING:
    from kikuchi.engines.sampling.chains import TableRows
    from kikuchi.graphs.graph_arrays import GraphArrays

I4 = NDArray[np.int32]

_U = np.uint64
_ZERO, _ONE = _U(0), _U(1)
_BLOCK = _U(512)


class Blankets(NamedTuple):
    """Variables and their neighbours: a key for each joint state of the neighbours, from `key_at`,
    and a count for each state of the variable beside it, from `count_at`.
    """

    variables: U8
    neighbour_at: U8
    neighbours: U8
    radix: U8
    key_at: U8
    count_at: U8
    cards: U8


class Configurations(NamedTuple):
    """Local configurations: their variables, table entries, and counts of the variable's states."""

    variable_of: U4
    entry_at: U8
    entries: U4
    count_at: U8
    counts: Array


class VariableRows(NamedTuple):
    """The factors of each variable, from `at`, and the strides of its states in their tables."""

    at: U8
    strides: U8


@njit(cache=True, error_model="numpy")
def count_blankets(
    states: I4, weights: Array, blankets: Blankets, counts: Array, shown_by: I4
) -> None:
    """Weight of each state of some variables beside each state of their neighbours.

    `shown_by` becomes a row in which the neighbours are in that state. So many variables at a time
    as keep their counts in the processor's cache.
    """
    variables, cards, radix = blankets.variables, blankets.cards, blankets.radix
    neighbour_at, neighbours = blankets.neighbour_at, blankets.neighbours
    key_at, count_at = blankets.key_at, blankets.count_at
    for begin in range(_ZERO, _U(len(variables)), _BLOCK):
        end = min(begin + _BLOCK, _U(len(variables)))
        for r in range(_U(len(states))):
            weight = weights[r]
            for k in range(begin, end):
                key = _ZERO
                for e in range(neighbour_at[k], neighbour_at[k + _ONE]):
                    key += radix[e] * _U(states[r, neighbours[e]])
                place = count_at[k] + key * cards[k] + _U(states[r, variables[k]])
                before = counts[place]
                if before == 0.0:
                    shown_by[key_at[k] + key] = np.int32(r)
                counts[place] = before + weight


@njit(cache=True, error_model="numpy")
def blanket_keys(states: I4, neighbours: U8, radix: U8, keys: U8) -> None:
    """One number for the states of some variables in each row."""
    for r in range(_U(len(states))):
        key = _ZERO
        for e in range(_U(len(neighbours))):
            key += radix[e] * _U(states[r, neighbours[e]])
        keys[r] = key


@njit(cache=True, error_model="numpy")
def blanket_entries(
    g: GraphArrays, states: I4, variable_of: U4, shown_by: I4, entry_at: U8, entries: U4
) -> None:
    """The table entries of each configuration, its own variable in state 0."""
    scopes, scope_offsets, table_offsets, edge_strides = g[1], g[2], g[4], g[9]
    variable_offsets, variable_edges, edge_factors = g[6], g[7], g[8]
    for c in range(_U(len(variable_of))):
        v = _U(variable_of[c])
        row = states[_U(shown_by[c])]
        place = entry_at[c]
        for k in range(_U(variable_offsets[v]), _U(variable_offsets[v + _ONE])):
            edge = _U(variable_edges[k])
            a = _U(edge_factors[edge])
            entry = _U(table_offsets[a])
            for e in range(_U(scope_offsets[a]), _U(scope_offsets[a + _ONE])):
                if e != edge:
                    entry += _U(edge_strides[e]) * _U(row[_U(scopes[e])])
            entries[place] = np.uint32(entry)
            place += _ONE


@njit(cache=True, error_model="numpy")
def score_blankets(
    log_tables: Array,
    cards: U4,
    rows: VariableRows,
    configurations: Configurations,
    field: Array,
    gradient: Array,
) -> float:
    """Sum over configurations of the weighted log-conditionals; adds their gradient."""
    row_at, row_strides = rows.at, rows.strides
    variable_of, entry_at = configurations.variable_of, configurations.entry_at
    entries, counts = configurations.entries, configurations.counts
    count_at = configurations.count_at
    total = 0.0
    for c in range(_U(len(variable_of))):
        v = _U(variable_of[c])
        card = _U(cards[v])
        first, here = entry_at[c], count_at[c]
        lo, hi = row_at[v], row_at[v + _ONE]
        for x in range(card):
            field[x] = 0.0
        for k in range(lo, hi):
            entry = _U(entries[first + k - lo])
            stride = row_strides[k]
            for x in range(card):
                field[x] += log_tables[entry]
                entry += stride
        weight = 0.0
        for x in range(card):
            weight += counts[here + x]
        total += _log_conditionals(field, card, counts, here, weight)
        for k in range(lo, hi):
            entry = _U(entries[first + k - lo])
            stride = row_strides[k]
            for x in range(card):
                gradient[entry] += field[x]
                entry += stride
    return total


@njit(cache=True, error_model="numpy", inline="always")
def _log_conditionals(
    field: Array, card: np.uint64, counts: Array, here: np.uint64, weight: float
) -> float:
    """sum_x counts_x log p_x for p = softmax(field), which becomes counts - weight p."""
    top = field[_ZERO]
    for x in range(card):
        top = max(top, field[x])
    value = 0.0
    mass = 0.0
    for x in range(card):
        if counts[here + x] > 0.0:
            value += counts[here + x] * (field[x] - top)
        p = 1.0 if field[x] == top else np.exp(field[x] - top)
        field[x] = p
        mass += p
    scale = weight / mass
    for x in range(card):
        field[x] = counts[here + x] - scale * field[x]
    return float(value - weight * np.log(mass))


@njit(cache=True, error_model="numpy")
def row_log_conditionals(
    g: GraphArrays, rows: TableRows, states: I4, entries: U8, field: Array, out: Array
) -> None:
    """sum_i log p(x_i | rest) of each row; -inf where a row is impossible."""
    cards, log_tables = g.cards, g.log_tables
    _, offsets, factors, strides = rows
    for r in range(_U(len(states))):
        row = states[r]
        for a in range(_U(len(entries))):
            entries[a] = table_entry(g, a, row, _ONE, _ZERO)
        total = 0.0
        for v in range(_U(len(cards))):
            card, own = _U(cards[v]), _U(row[v])
            lo, hi = offsets[v], offsets[v + _ONE]
            top = conditional_log_weights(
                log_tables, card, (lo, hi), (own, _ZERO), factors, strides, entries, field
            )
            log_weight = field[own] - top
            if log_weight == -np.inf:
                total = -np.inf
                break
            total += log_weight - np.log(exponentiate(field, card, top))
        out[r] = total
