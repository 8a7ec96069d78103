"""Walks over the forest that clamped variables leave: propagation and scaling.

The messages are those of `bp_messages`, the messages of clamped variables those of `sweeps`.

Reference: TEH-I16.
"""

from __future__ import annotations

import numpy as np

from kikuchi.core.compiled import njit
from kikuchi.engines.messages.kernels.bp_messages import (
    CAVITY_FLOOR,
    CONTRADICTION,
    MESSAGE_FLOOR,
    OK,
    SUM,
    divide,
    one_message,
    rescale,
    update_message,
)
from kikuchi.engines.messages.kernels.sweeps import clamped_variable_message

MESSAGE = 0  # factor to variable
CAVITY = 1  # free variable to factor
CLAMPED = 2  # clamped variable to factor

_U1 = np.uint64(1)
_U2 = np.uint64(2)


@njit(cache=True, error_model="numpy", inline="always")
def _cavity_sum(e, lo, hi, edges, at, m, nu):
    begin = at[e]
    states = at[e + _U1] - begin
    for x in range(states):
        nu[begin + x] = 1.0
    status = OK
    for i in range(lo, hi):
        f = np.uint64(edges[i])
        if f == e:
            continue
        base = at[f]
        low = 1.0
        for x in range(states):
            value = nu[begin + x] * m[base + x]
            nu[begin + x] = value
            low = min(low, value if value > 0.0 else 1.0)
        if low < MESSAGE_FLOOR:
            status = max(status, rescale(nu, begin, states))
    total = 0.0
    for x in range(states):
        total += nu[begin + x]
    return max(status, divide(nu, begin, begin + states, total, CAVITY_FLOOR))


@njit(cache=True, error_model="numpy")
def _cavity_log(e, lo, hi, edges, at, m, nu):
    begin = at[e]
    states = at[e + _U1] - begin
    for x in range(states):
        nu[begin + x] = 0.0
    for i in range(lo, hi):
        f = np.uint64(edges[i])
        if f != e:
            for x in range(states):
                nu[begin + x] += m[at[f] + x]
    top = -np.inf
    for x in range(states):
        top = max(top, nu[begin + x])
    if top == -np.inf:
        return CONTRADICTION
    for x in range(states):
        nu[begin + x] -= top
    return OK


@njit(cache=True, error_model="numpy", inline="always")
def cavity(e, lo, hi, edges, at, m, nu, mode):
    """nu along edge `e` of a free variable with edges `lo` to `hi`: the product of the others."""
    if mode == SUM:
        return _cavity_sum(e, lo, hi, edges, at, m, nu)
    return _cavity_log(e, lo, hi, edges, at, m, nu)


@njit(cache=True, error_model="numpy", inline="always")
def _pair_message_sum(e, first, at, table, tables, nu, m):
    """The message along `e` out of a factor of two variables, normalised, straight into `m`."""
    other = first + _U1 if e == first else first
    begin = at[e]
    states = at[e + _U1] - begin
    beyond = at[other]
    others = at[other + _U1] - beyond
    step = others if e == first else _U1
    stride = _U1 if e == first else states
    total = 0.0
    for x in range(states):
        value = 0.0
        row = table + x * step
        for y in range(others):
            value += tables[row + y * stride] * nu[beyond + y]
        m[begin + x] = value
        total += value
    return divide(m, begin, begin + states, total, MESSAGE_FLOOR)


@njit(cache=True, error_model="numpy")
def walk(layout, arrays, clamping, updates, mode):
    """Do some updates of an order; answers status and the largest mismatch.

    `updates` is (edges, kinds, begin, end): an order and which part of it is done.
    """
    op_edge, op_kind, begin, end = updates
    _, clamped_to, state_at = clamping
    tables, m, nu, new, work = arrays
    scope_at, table_at, at, variable_at, edges, edge_factor, scopes = layout
    status = OK
    mismatch = 0.0
    for step in range(begin, end):
        e = np.uint64(op_edge[step])
        kind = op_kind[step]
        if kind == MESSAGE:
            a = np.uint64(edge_factor[e])
            first = scope_at[a]
            if mode == SUM and scope_at[a + _U1] - first == _U2:
                status = _pair_message_sum(e, first, at, table_at[a], tables, nu, m)
            else:
                message_status = one_message(e, layout, tables, nu, new, work, mode)
                status, _ = update_message(m, new, at[e], at[e + _U1], 0.0, 0, mode)
                status = max(status, message_status)
        else:
            v = np.uint64(scopes[e])
            if kind == CAVITY:
                lo = variable_at[v]
                hi = variable_at[v + _U1]
                status = cavity(e, lo, hi, edges, at, m, nu, mode)
            else:
                status, edge_mismatch = clamped_variable_message(
                    at[e], at[e + _U1], m, nu, clamped_to, state_at[v], mode
                )
                mismatch = max(mismatch, edge_mismatch)
        if status != OK:
            break
    return status, mismatch


@njit(cache=True, error_model="numpy")
def scale_trees(layout, arrays, clamping, core, trees, loops, tol, mode):
    """Walk each tree until no scaling moved a marginal by more than `tol`.

    `core` is (edges, kinds, where each tree begins), `trees` is (residual, walks): the largest
    mismatch of each tree in its last walk, and the walks made so far. Trees whose residual is at
    most `tol` are left alone. At most `loops` walks are made over each.
    """
    op_edge, op_kind, tree_start = core
    residual, walks = trees
    for tree in range(np.uint64(tree_start.size) - _U1):
        begin, end = np.uint64(tree_start[tree]), np.uint64(tree_start[tree + _U1])
        updates = (op_edge, op_kind, begin, end)
        done = 0
        while residual[tree] > tol and done < loops:
            status, residual[tree] = walk(layout, arrays, clamping, updates, mode)
            done += 1
            if status != OK:
                return status
        walks[tree] += done
    return OK
