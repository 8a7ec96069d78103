"""Rows of evidence on one junction tree: the clamped phase of learning, without Python per row.

The tree is that of the variables that some row leaves open. For every row the tables of the
reduced graph are cut out of the full ones, propagated up (and down), and its factor beliefs are
added to the expected counts. Variables that only some rows observe stay in the tree: a table for
each says which state the row sees.
"""

from __future__ import annotations

import numpy as np

from kikuchi.core.compiled import njit
from kikuchi.engines.trees.kernels.passes import (
    IMPOSSIBLE,
    LINEAR,
    LOG_FLOOR,
    LOG_SUM,
    OK,
    UNDERFLOW,
    execute,
    fill,
    multiply_factors,
)


@njit(cache=True, error_model="numpy")
def _cut(
    states, row, log_tables, places, offsets, shift_offsets, shift_columns, shift_strides, shifts,
    seen_columns, out,
):  # fmt: skip
    """Tables of the reduced graph for one row; the last len(seen_columns) factors are evidence."""
    n_cut = len(shift_offsets) - 1
    for k in range(n_cut):
        shift = np.int64(0)
        for j in range(shift_offsets[k], shift_offsets[k + 1]):
            shift += shift_strides[j] * states[row, shift_columns[j]]
        shifts[k] = shift
        for e in range(offsets[k], offsets[k + 1]):
            out[e] = log_tables[places[e] + shift]
    for i in range(len(seen_columns)):
        state = states[row, seen_columns[i]]
        for e in range(offsets[n_cut + i], offsets[n_cut + i + 1]):
            visible = state < 0 or e - offsets[n_cut + i] == state
            out[e] = 0.0 if visible else -np.inf


@njit(cache=True, error_model="numpy", forceinline=True)  # a call would copy the tree's arrays
def _propagate(tree, offsets, scope_offsets, up, down, state, workspace, reduced, arithmetic, both):
    """Both passes for the tables in `reduced`, or the upward one: (status, log Z)."""
    mem, floors = state.mem, state.floors
    log_z = multiply_factors(mem, floors, tree, reduced, offsets, scope_offsets, workspace.counters)
    if log_z == -np.inf:
        return IMPOSSIBLE, log_z
    n_groups = len(tree.group_tables) - 1
    if arithmetic == LINEAR:
        for g in range(n_groups):
            if floors[g] < LOG_FLOOR:
                return UNDERFLOW, 0.0
        for i in range(tree.group_tables[n_groups]):
            mem[i] = np.exp(mem[i])
    fill(state.losses, 0, len(state.losses), np.inf)
    fill(state.scales, 0, len(state.scales), 0.0)
    status = execute(up, 0, up.ends[-1], -1, 0, 1, state, workspace, arithmetic)
    if status == OK:
        log_z += state.scales.sum()
        if both:
            status = execute(down, 0, down.ends[-1], -1, 0, 1, state, workspace, arithmetic)
    return status, log_z


@njit(cache=True, error_model="numpy")
def _exponentiate(logs, offsets, n):
    """Turn the logarithms of n tables, each with a largest entry of 0, into probabilities."""
    for k in range(n):
        total = 0.0
        for e in range(offsets[k], offsets[k + 1]):
            logs[e] = np.exp(logs[e])
            total += logs[e]
        for e in range(offsets[k], offsets[k + 1]):
            logs[e] /= total


@njit(cache=True, error_model="numpy")
def clamped_rows(
    states, start, stop, weights, log_tables, places, offsets, shift_offsets, shift_columns,
    shift_strides, seen_columns, shifts, reduced, tree, scope_offsets, up, down, propagation,
    workspace, log_z, counts, both,
):  # fmt: skip
    """log Z of rows start..stop - 1 that have a weight, -inf where impossible; with `both`,
    weighted counts too.
    """
    out = workspace.out
    for row in range(start, stop):
        if weights[row] == 0.0:
            continue
        _cut(
            states, row, log_tables, places, offsets, shift_offsets, shift_columns, shift_strides,
            shifts, seen_columns, reduced,
        )  # fmt: skip
        status, value = _propagate(
            tree, offsets, scope_offsets, up, down, propagation, workspace, reduced, LINEAR, both
        )
        if status == UNDERFLOW:
            status, value = _propagate(
                tree, offsets, scope_offsets, up, down, propagation, workspace, reduced, LOG_SUM,
                both,
            )  # fmt: skip
            if both and status == OK:
                _exponentiate(out, offsets, len(shift_offsets) - 1)
        log_z[row] = value if status == OK else -np.inf
        if not both or status != OK:
            continue
        weight = weights[row]
        for k in range(len(shift_offsets) - 1):
            shift = shifts[k]
            for e in range(offsets[k], offsets[k + 1]):
                counts[places[e] + shift] += weight * out[e]


@njit(cache=True, error_model="numpy")
def cut_tables(factors, is_open, column_of, cards, scopes, scope_offsets, table_offsets):
    """How tables over the open variables are cut from full ones.

    Answers (place of each entry where all observed variables are in state 0; for each factor where
    its observed variables begin; their columns in a row; their strides).
    """
    n_entries, n_seen = np.int64(0), np.int64(0)
    for a in factors:
        size = np.int64(1)
        for k in range(scope_offsets[a], scope_offsets[a + 1]):
            if is_open[scopes[k]]:
                size *= cards[scopes[k]]
            else:
                n_seen += 1
        n_entries += size
    places = np.empty(n_entries, np.int64)
    offsets = np.zeros(len(factors) + 1, np.int64)
    columns = np.empty(n_seen, np.int64)
    strides = np.empty(n_seen, np.int64)
    at, seen = np.int64(0), np.int64(0)
    for j in range(len(factors)):
        a = factors[j]
        low, high = scope_offsets[a], scope_offsets[a + 1]
        places[at] = table_offsets[a]
        size, stride = np.int64(1), np.int64(1)
        for k in range(high - 1, low - 1, -1):  # the last variable runs fastest
            v = scopes[k]
            if is_open[v]:
                for state in range(1, cards[v]):
                    for e in range(size):
                        places[at + state * size + e] = places[at + e] + state * stride
                size *= cards[v]
            else:
                columns[seen] = column_of[v]
                strides[seen] = stride
                seen += 1
            stride *= cards[v]
        at += size
        offsets[j + 1] = seen
    return places, offsets, columns, strides
