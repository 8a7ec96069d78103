"""Sweeps over the messages of any factor graph, some of whose variables may be clamped.

The messages, their layout and their arithmetic are those of `bp_messages`. A free variable sends
each factor the product of what the others sent. A clamped variable has a given marginal c and sends
(on factor graphs)

    nu_{i->a}(x_i)  prop. to  c_i(x_i) / m_{a->i}(x_i)

so that the belief of every factor agrees with c at once. Clamped variables therefore carry nothing
from one factor to another: if they cut all cycles, what is left is a forest in which each clamped
variable is a leaf once for each of its factors.

Reference: TEH-I14, TEH-I16, TEH-I17.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.compiled import njit
from kikuchi.engines.messages.kernels.bp_messages import (
    CAVITY_FLOOR,
    CONTRADICTION,
    OK,
    SUM,
    UNDERFLOW,
    cavities,
    damp,
    distance,
    factor_messages,
    normalise,
    one_message,
    update_message,
)
from kikuchi.graphs.kernels.heap import sift

INFEASIBLE = 3  # a clamped marginal has mass where a message has none

_FAST = {"reassoc", "nsz", "contract"}  # sums may be reordered, so that they vectorise
_U0 = np.uint64(0)
_U1 = np.uint64(1)


class Clamping(NamedTuple):
    """Which variables are clamped, and their marginals, flat by `state_at`."""

    clamped: NDArray[np.uint8]
    clamped_to: NDArray[np.float64]
    state_at: NDArray[Any]


# ---------------------------------------------------------------------- from variables to factors


@njit(cache=True, error_model="numpy", inline="always")
def _clamped_message_sum(begin, end, m, nu, clamped_to, states_at):
    total = 0.0
    for i in range(begin, end):
        total += nu[i] * m[i]
    scale = 1.0 / total if total > 0.0 else 0.0
    status = OK
    mismatch = 0.0
    total = 0.0
    for i in range(begin, end):
        wanted = clamped_to[states_at + (i - begin)]
        mismatch = max(mismatch, abs(nu[i] * m[i] * scale - wanted))
        value = 0.0
        if wanted > 0.0:
            if m[i] == 0.0:
                status = INFEASIBLE
            value = wanted / m[i]
        nu[i] = value
        total += value
    if status == OK:
        scale = 1.0 / total
        for i in range(begin, end):
            nu[i] *= scale
            if 0.0 < nu[i] < CAVITY_FLOOR:
                status = UNDERFLOW
    return status, mismatch


@njit(cache=True, error_model="numpy")
def _clamped_message_log(begin, end, m, nu, clamped_to, states_at):
    top = -np.inf
    for i in range(begin, end):
        top = max(top, nu[i] + m[i])
    total = 0.0
    for i in range(begin, end):
        total += np.exp(nu[i] + m[i] - top) if top > -np.inf else 1.0
    status = OK
    mismatch = 0.0
    peak = -np.inf
    for i in range(begin, end):
        wanted = clamped_to[states_at + (i - begin)]
        now = np.exp(nu[i] + m[i] - top) / total if top > -np.inf else 0.0
        mismatch = max(mismatch, abs(now - wanted))
        if wanted > 0.0 and m[i] == -np.inf:
            status = INFEASIBLE
        nu[i] = np.log(wanted) - m[i] if wanted > 0.0 else -np.inf
        peak = max(peak, nu[i])
    if status == OK:
        for i in range(begin, end):
            nu[i] -= peak
    return status, mismatch


@njit(cache=True, error_model="numpy", inline="always")
def clamped_variable_message(begin, end, m, nu, clamped_to, states_at, mode):
    """nu = c / m along one edge; answers status and how far the marginal was from c."""
    if mode == SUM:
        return _clamped_message_sum(begin, end, m, nu, clamped_to, states_at)
    return _clamped_message_log(begin, end, m, nu, clamped_to, states_at)


@njit(cache=True, error_model="numpy")
def _clamped_variable_messages(v, layout, m, nu, clamped_to, states_at, mode):
    _, _, at, variable_at, edges, _, _ = layout
    status = OK
    mismatch = 0.0
    for i in range(variable_at[v], variable_at[v + _U1]):
        e = np.uint64(edges[i])
        edge_status, edge_mismatch = clamped_variable_message(
            at[e], at[e + _U1], m, nu, clamped_to, states_at, mode
        )
        status = max(status, edge_status)
        mismatch = max(mismatch, edge_mismatch)
    return status, mismatch


@njit(cache=True, error_model="numpy", fastmath=_FAST)
def variable_messages(v, layout, m, nu, work, clamping, mode):
    """All nu of variable `v`, clamped or free; answers status and mismatch."""
    clamped, clamped_to, state_at = clamping
    if clamped[v]:
        return _clamped_variable_messages(v, layout, m, nu, clamped_to, state_at[v], mode)
    return cavities(v, layout.variable_at, layout.edges, layout.at, m, nu, work, mode), 0.0


@njit(cache=True, error_model="numpy", fastmath=_FAST)
def all_variable_messages(layout, m, nu, work, clamping, mode):
    """Refresh every nu; answers status and the largest mismatch there was."""
    clamped, clamped_to, state_at = clamping  # taken apart once: in the loop it would be costly
    _, _, at, variable_at, edges, _, _ = layout
    status = OK
    mismatch = 0.0
    for v in range(np.uint64(variable_at.size) - _U1):
        if clamped[v]:
            new_status, new_mismatch = _clamped_variable_messages(
                v, layout, m, nu, clamped_to, state_at[v], mode
            )
            status = max(status, new_status)
            mismatch = max(mismatch, new_mismatch)
        else:
            status = max(status, cavities(v, variable_at, edges, at, m, nu, work, mode))
    return status, mismatch


# ---------------------------------------------------------------------- sweeps


@njit(cache=True, error_model="numpy")
def sequential(layout, arrays, clamping, order, damping, kind, mode):
    """One sweep over the variables in `order`: each takes in its messages, then sends its nu.

    Answers status and the largest change of a message or mismatch of a clamped marginal.
    """
    scope_at, _, at, variable_at, edges, edge_factor, _ = layout
    tables, m, nu, new, work = arrays
    status = OK
    residual = 0.0
    for position in range(np.uint64(order.size)):
        v = np.uint64(order[position])
        for i in range(variable_at[v], variable_at[v + _U1]):
            e = np.uint64(edges[i])
            a = np.uint64(edge_factor[e])
            if scope_at[a + _U1] - scope_at[a] == _U1:
                continue  # the message of a one-variable factor never changes
            status = max(status, one_message(e, layout, tables, nu, new, work, mode))
            new_status, change = update_message(m, new, at[e], at[e + _U1], damping, kind, mode)
            status = max(status, new_status)
            residual = max(residual, change)
        new_status, mismatch = variable_messages(v, layout, m, nu, work, clamping, mode)
        status = max(status, new_status)
        residual = max(residual, mismatch)
    return status, residual


@njit(cache=True, error_model="numpy", fastmath=_FAST)
def parallel(layout, arrays, clamping, damping, kind, mode):
    """One sweep in which every factor sends from the same nu, then every variable answers."""
    scope_at, _, at, _, _, _, _ = layout
    tables, m, nu, new, work = arrays
    status = OK
    residual = 0.0
    for a in range(np.uint64(scope_at.size) - _U1):
        lo = scope_at[a]
        hi = scope_at[a + _U1]
        if hi - lo == _U1:
            continue
        status = max(status, factor_messages(a, layout, tables, nu, new, work, mode))
        for e in range(lo, hi):
            new_status, change = update_message(m, new, at[e], at[e + _U1], damping, kind, mode)
            status = max(status, new_status)
            residual = max(residual, change)
    new_status, mismatch = all_variable_messages(layout, m, nu, work, clamping, mode)
    return max(status, new_status), max(residual, mismatch)


# ---------------------------------------------------------------------- residual schedule


@njit(cache=True, error_model="numpy")
def _propose(e, layout, arrays, mode, key):
    """Compute what the message along `e` would become; its distance is the key."""
    tables, m, nu, new, work = arrays
    at = layout.at
    begin, end = at[e], at[e + _U1]
    status = one_message(e, layout, tables, nu, new, work, mode)
    status = max(status, normalise(new, begin, end, mode))
    key[e] = 0.0 if status == CONTRADICTION else distance(m, new, begin, end, mode)
    return status


@njit(cache=True, error_model="numpy")
def residual_start(layout, arrays, mode, queue):
    """Proposals of all messages and the heap over their distances."""
    key, heap, place = queue
    scope_at, _, _, _, _, edge_factor, _ = layout
    status = OK
    for e in range(np.uint64(edge_factor.size)):
        heap[e] = np.uint32(e)
        place[e] = np.uint32(e)
        key[e] = 0.0
    for e in range(np.uint64(edge_factor.size)):
        a = np.uint64(edge_factor[e])
        if scope_at[a + _U1] - scope_at[a] > _U1:
            status = max(status, _propose(e, layout, arrays, mode, key))
            sift(heap, place, key, np.uint64(place[e]))
    return status


@njit(cache=True, error_model="numpy")
def residual_updates(layout, arrays, damping, kind, mode, queue, limits):
    """Updates within `limits`, always of the message that would change most (residual BP).

    Returns the status, the largest distance left and the number of updates done.
    """
    scope_at, table_at, at, variable_at, edges, edge_factor, scopes = layout
    _, m, nu, new, work = arrays
    key, heap, place = queue
    count, most, tol = limits
    status = OK
    done = 0
    entries = _U0
    while done < count and entries <= np.uint64(most) and key[heap[_U0]] > tol:
        e = np.uint64(heap[_U0])
        a = np.uint64(edge_factor[e])
        v = np.uint64(scopes[e])
        status = max(status, damp(m, new, at[e], at[e + _U1], damping, kind, mode))
        key[e] = damping * key[e] if damping > 0.0 else 0.0
        sift(heap, place, key, _U0)
        status = max(status, cavities(v, variable_at, edges, at, m, nu, work, mode))
        for i in range(variable_at[v], variable_at[v + _U1]):
            b = np.uint64(edge_factor[edges[i]])
            if b == a:
                continue
            lo, hi = np.uint64(scope_at[b]), np.uint64(scope_at[b + _U1])
            entries += (hi - lo) * (np.uint64(table_at[b + _U1]) - np.uint64(table_at[b]))
            for f in range(lo, hi):
                if f != np.uint64(edges[i]):
                    new_status = _propose(f, layout, arrays, mode, key)
                    status = max(status, new_status)
                    sift(heap, place, key, np.uint64(place[f]))
        done += 1
        if status != OK:
            break
    return status, key[heap[_U0]], done
