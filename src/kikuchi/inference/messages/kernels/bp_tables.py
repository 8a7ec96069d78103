"""Belief propagation on any factor graph: the schedules, and what is read off the messages.

The messages, their layout and their arithmetic are those of `bp_messages`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from kikuchi.graphs.kernels.heap import sift
from kikuchi.inference.messages.kernels.bp_messages import (
    CONTRADICTION,
    LOG_MAX,
    OK,
    SUM,
    cavities,
    damp,
    distance,
    factor_messages,
    normalise,
    one_message,
    rescale,
    settle,
)

_U0 = np.uint64(0)
_U1 = np.uint64(1)
_FAST = {"reassoc", "nsz", "contract"}  # sums may be reordered, so that they vectorise


# ---------------------------------------------------------------------- schedules


@njit(cache=True, error_model="numpy", fastmath=_FAST)
def all_cavities(layout, m, nu, work, mode):
    """Refresh every nu."""
    _, _, at, variable_at, edges, _, _ = layout
    status = OK
    for v in range(np.uint64(variable_at.size) - _U1):
        status = max(status, cavities(v, variable_at, edges, at, m, nu, work, mode))
    return status


@njit(cache=True, error_model="numpy", fastmath=_FAST)
def parallel(layout, tables, m, nu, new, work, damping, kind, mode):
    """One parallel sweep: every factor sends from the same nu, then every variable answers."""
    scope_at, _, at, _, _, _, _ = layout
    status = OK
    residual = 0.0
    for a in range(np.uint64(scope_at.size) - _U1):
        lo = scope_at[a]
        hi = scope_at[a + _U1]
        if hi - lo == _U1:
            continue  # the message of a one-variable factor never changes
        status = max(status, factor_messages(a, layout, tables, nu, new, work, mode))
        for e in range(lo, hi):
            found, change = settle(m, new, at[e], at[e + _U1], damping, kind, mode)
            status = max(status, found)
            residual = max(residual, change)
    status = max(status, all_cavities(layout, m, nu, work, mode))
    return status, residual


@njit(cache=True, error_model="numpy")
def sequential(layout, tables, m, nu, new, work, order, damping, kind, mode):
    """One sweep over the variables in `order`: each takes in its messages, then sends its nu."""
    scope_at, _, at, variable_at, edges, edge_factor, _ = layout
    status = OK
    residual = 0.0
    for position in range(np.uint64(order.size)):
        v = np.uint64(order[position])
        for i in range(variable_at[v], variable_at[v + _U1]):
            e = np.uint64(edges[i])
            a = np.uint64(edge_factor[e])
            if scope_at[a + _U1] - scope_at[a] == _U1:
                continue
            status = max(status, one_message(e, layout, tables, nu, new, work, mode))
            found, change = settle(m, new, at[e], at[e + _U1], damping, kind, mode)
            status = max(status, found)
            residual = max(residual, change)
        status = max(status, cavities(v, variable_at, edges, at, m, nu, work, mode))
    return status, residual


# ---------------------------------------------------------------------- residual schedule


@njit(cache=True, error_model="numpy")
def _propose(e, layout, tables, m, nu, new, work, mode, key):
    """Compute what the message along `e` would become; its distance is the key."""
    at = layout[2]
    begin, end = at[e], at[e + _U1]
    status = one_message(e, layout, tables, nu, new, work, mode)
    status = max(status, normalise(new, begin, end, mode))
    key[e] = 0.0 if status == CONTRADICTION else distance(m, new, begin, end, mode)
    return status


@njit(cache=True, error_model="numpy")
def residual_start(layout, tables, m, nu, new, work, mode, key, heap, place):
    """Proposals of all messages and the heap over their distances."""
    scope_at, _, _, _, _, edge_factor, _ = layout
    status = OK
    for e in range(np.uint64(edge_factor.size)):
        heap[e] = np.uint32(e)
        place[e] = np.uint32(e)
        key[e] = 0.0
    for e in range(np.uint64(edge_factor.size)):
        a = np.uint64(edge_factor[e])
        if scope_at[a + _U1] - scope_at[a] > _U1:
            status = max(status, _propose(e, layout, tables, m, nu, new, work, mode, key))
            sift(heap, place, key, np.uint64(place[e]))
    return status


@njit(cache=True, error_model="numpy")
def residual_updates(
    layout, tables, m, nu, new, work, damping, kind, mode, key, heap, place, count, tol
):
    """At most `count` updates, always of the message that would change most (residual BP).

    Answers status, the largest distance left and the updates done.
    """
    scope_at, _, at, variable_at, edges, edge_factor, scopes = layout
    status = OK
    done = 0
    while done < count and key[heap[_U0]] > tol:
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
            for f in range(scope_at[b], scope_at[b + _U1]):
                if f != np.uint64(edges[i]):
                    found = _propose(f, layout, tables, m, nu, new, work, mode, key)
                    status = max(status, found)
                    sift(heap, place, key, np.uint64(place[f]))
        done += 1
        if status != OK:
            break
    return status, key[heap[_U0]], done


# ---------------------------------------------------------------------- reading the answer


@njit(cache=True, error_model="numpy")
def variable_beliefs(layout, m, state_at, out, mode):
    """b_i prop. to prod_a m_{a->i}, as probabilities; for LOG_MAX the normalised max-marginals."""
    _, _, at, variable_at, edges, _, _ = layout
    status = OK
    for v in range(np.uint64(variable_at.size) - _U1):
        b = out[state_at[v] : state_at[v + _U1]]
        b[:] = 1.0 if mode == SUM else 0.0
        for i in range(variable_at[v], variable_at[v + _U1]):
            base = at[edges[i]]
            for x in range(np.uint64(b.size)):
                if mode == SUM:
                    b[x] *= m[base + x]
                else:
                    b[x] += m[base + x]
            if mode == SUM:
                status = max(status, rescale(b, _U0, np.uint64(b.size)))
        if mode != SUM:
            top = b.max()
            if top == -np.inf:
                return CONTRADICTION
            for x in range(np.uint64(b.size)):
                b[x] = np.exp(b[x] - top)
        total = b.sum()
        if total == 0.0:
            return CONTRADICTION
        for x in range(np.uint64(b.size)):
            b[x] /= total
    return status


@njit(cache=True, error_model="numpy")
def factor_beliefs(layout, tables, nu, out, mode):
    """b_a prop. to phi_a prod_i nu_{i->a} for every factor, in the layout of the tables."""
    scope_at, table_at, at, _, _, _, _ = layout
    for a in range(np.uint64(scope_at.size) - _U1):
        b = out[table_at[a] : table_at[a + _U1]]
        b[:] = tables[table_at[a] : table_at[a + _U1]]
        inner = np.uint64(b.size)
        for k in range(scope_at[a], scope_at[a + _U1]):
            states = at[k + _U1] - at[k]
            inner = inner // states
            for entry in range(np.uint64(b.size)):
                value = nu[at[k] + (entry // inner) % states]
                if mode == SUM:
                    b[entry] *= value
                else:
                    b[entry] += value
        if mode != SUM:
            top = b.max()
            for entry in range(np.uint64(b.size)):
                b[entry] = np.exp(b[entry] - top)
        total = b.sum()
        for entry in range(np.uint64(b.size)):
            b[entry] /= total


@njit(cache=True, error_model="numpy")
def bethe(layout, tables, nu, marginals, state_at, new, work, mode):
    """The Bethe free energy (LIU-D5, TEH-M23) of the beliefs that the messages define.

    Since b_a = phi_a prod_j nu_j / Z_a, a factor adds sum_j sum_x b_aj(x) log nu_j(x) - log Z_a,
    with b_aj its marginals: logarithms of messages only, none of tables. Variables add
    (1 - degree) sum_x b_i log b_i.
    """
    scope_at, _, at, variable_at, _, _, _ = layout
    energy = 0.0
    status = OK
    for a in range(np.uint64(scope_at.size) - _U1):
        status = max(status, factor_messages(a, layout, tables, nu, new, work, mode))
        total = 0.0
        for k in range(scope_at[a], scope_at[a + _U1]):
            cross = 0.0
            total = 0.0
            top = 0.0
            if mode != SUM:
                top = -np.inf
                for i in range(at[k], at[k + _U1]):
                    top = max(top, nu[i] + new[i])
            for i in range(at[k], at[k + _U1]):
                if mode == SUM:
                    weight = nu[i] * new[i]
                    if weight > 0.0:
                        cross += weight * np.log(nu[i])
                else:
                    weight = np.exp(nu[i] + new[i] - top)
                    if weight > 0.0:
                        cross += weight * nu[i]
                total += weight
            energy += cross / total
            if k == scope_at[a]:
                energy -= np.log(total) + top
    for v in range(np.uint64(variable_at.size) - _U1):
        excess = 1.0 - float(variable_at[v + _U1] - variable_at[v])
        for i in range(state_at[v], state_at[v + _U1]):
            if marginals[i] > 0.0:
                energy += excess * marginals[i] * np.log(marginals[i])
    return status, energy


@njit(cache=True, error_model="numpy")
def breadth_first(layout):
    """Variables in breadth-first order, component after component."""
    scope_at, _, _, variable_at, edges, edge_factor, scopes = layout
    n = np.uint64(variable_at.size) - _U1
    order = np.empty(n, np.uint32)
    seen = np.zeros(n, np.bool_)
    used = np.zeros(np.uint64(scope_at.size) - _U1, np.bool_)
    head = _U0
    tail = _U0
    for root in range(n):
        if seen[root]:
            continue
        seen[root] = True
        order[tail] = np.uint32(root)
        tail += _U1
        while head < tail:
            v = np.uint64(order[head])
            head += _U1
            for i in range(variable_at[v], variable_at[v + _U1]):
                a = np.uint64(edge_factor[edges[i]])
                if used[a]:
                    continue
                used[a] = True
                for k in range(scope_at[a], scope_at[a + _U1]):
                    w = np.uint64(scopes[k])
                    if not seen[w]:
                        seen[w] = True
                        order[tail] = np.uint32(w)
                        tail += _U1
    return order


@njit(cache=True, error_model="numpy")
def decode(layout, tables, m, nu, new, work, order, states):
    """A state from max-product messages (HOJ-I5): fix variables in `order`, each at the best state
    given those fixed before it. Exact on forests, ties included.
    """
    scope_at, _, at, variable_at, edges, edge_factor, _ = layout
    for position in range(np.uint64(order.size)):
        v = np.uint64(order[position])
        lo = variable_at[v]
        hi = variable_at[v + _U1]
        best = _U0
        if lo < hi:
            total = new[at[edges[lo]] : at[edges[lo] + _U1]].copy()
            total[:] = 0.0
            for i in range(lo, hi):
                e = np.uint64(edges[i])
                a = np.uint64(edge_factor[e])
                if scope_at[a + _U1] - scope_at[a] == _U1:
                    total += m[at[e] : at[e + _U1]]
                else:
                    one_message(e, layout, tables, nu, new, work, LOG_MAX)
                    total += new[at[e] : at[e + _U1]]
            best = np.uint64(np.argmax(total))
            for i in range(lo, hi):
                e = np.uint64(edges[i])
                nu[at[e] : at[e + _U1]] = -np.inf
                nu[at[e] + best] = 0.0
        states[v] = best
