"""What is read off the messages: beliefs, the Bethe free energy, and a state of high weight.

The messages, their layout and their arithmetic are those of `bp_messages`, `clamping` is that
of `sweeps`.

Reference: HOJ-I5, LIU-D5, TEH-M23.
"""

from __future__ import annotations

import numpy as np

from kikuchi.core.compiled import njit
from kikuchi.core.copying import copy_into
from kikuchi.engines.messages.kernels.bp_messages import (
    CONTRADICTION,
    LOG_MAX,
    OK,
    SUM,
    factor_messages,
    one_message,
    rescale,
)

_U0 = np.uint64(0)
_U1 = np.uint64(1)


@njit(cache=True, error_model="numpy")
def variable_beliefs(layout, m, clamping, out, mode):
    """b_i prop. to prod_a m_{a->i}, but clamped marginals as they are; LOG_MAX: max-marginals."""
    clamped, clamped_to, state_at = clamping
    _, _, at, variable_at, edges, _, _ = layout
    status = OK
    for v in range(np.uint64(variable_at.size) - _U1):
        begin = state_at[v]
        states = state_at[v + _U1] - begin
        if clamped[v]:
            for x in range(states):
                out[begin + x] = clamped_to[begin + x]
            continue
        for x in range(states):
            out[begin + x] = 1.0 if mode == SUM else 0.0
        for i in range(variable_at[v], variable_at[v + _U1]):
            base = at[edges[i]]
            for x in range(states):
                if mode == SUM:
                    out[begin + x] *= m[base + x]
                else:
                    out[begin + x] += m[base + x]
            if mode == SUM:
                status = max(status, rescale(out, begin, states))
        top = -np.inf
        for x in range(states):
            top = max(top, out[begin + x])
        if top <= (0.0 if mode == SUM else -np.inf):
            return CONTRADICTION
        total = 0.0
        for x in range(states):
            out[begin + x] = out[begin + x] / top if mode == SUM else np.exp(out[begin + x] - top)
            total += out[begin + x]
        for x in range(states):
            out[begin + x] /= total
    return status


@njit(cache=True, error_model="numpy")
def factor_beliefs(layout, tables, nu, out, mode):
    """b_a prop. to phi_a prod_i nu_{i->a} for every factor, in the layout of the tables."""
    scope_at, table_at, at, _, _, _, _ = layout
    for a in range(np.uint64(scope_at.size) - _U1):
        b = out[table_at[a] : table_at[a + _U1]]
        inner = np.uint64(b.size)
        copy_into(b, 0, tables, table_at[a], inner)
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
def free_energy(layout, arrays, beliefs, mode):
    """The Bethe free energy of the beliefs that the messages define.

    `beliefs` are a `Clamping`: the marginals of all variables, and which of them were given.
    Since b_a = phi_a prod_j nu_j / Z_a, a factor adds sum_j sum_x b_aj(x) log nu_j(x) - log Z_a,
    with b_aj its marginals: logarithms of messages only, none of tables. Variables add
    (1 - degree) sum_x b_i log b_i. Where j is clamped, b_aj is the given marginal itself, and the
    value is that of the dual (ER18): for consistent messages on a forest, a lower bound of the
    constrained minimum whose error is of second order.
    """
    scope_at, _, at, variable_at, _, _, scopes = layout
    tables, _, nu, new, work = arrays
    clamped, marginals, state_at = beliefs
    energy = 0.0
    status = OK
    for a in range(np.uint64(scope_at.size) - _U1):
        status = max(status, factor_messages(a, layout, tables, nu, new, work, mode))
        for k in range(scope_at[a], scope_at[a + _U1]):
            v = np.uint64(scopes[k])
            top = 0.0
            if mode != SUM:
                top = -np.inf
                for i in range(at[k], at[k + _U1]):
                    top = max(top, nu[i] + new[i])
                if top == -np.inf:
                    return CONTRADICTION, np.inf
            total = 0.0
            cross = 0.0
            for x in range(at[k + _U1] - at[k]):
                i = at[k] + x
                weight = nu[i] * new[i] if mode == SUM else np.exp(nu[i] + new[i] - top)
                total += weight
                if clamped[v]:
                    weight = marginals[state_at[v] + x]
                if weight > 0.0:
                    cross += weight * (np.log(nu[i]) if mode == SUM else nu[i])
            if total == 0.0:
                return CONTRADICTION, np.inf
            energy += cross if clamped[v] else cross / total
            if k == scope_at[a]:
                energy -= np.log(total) + top
    for u in range(np.uint64(variable_at.size) - _U1):
        excess = 1.0 - float(variable_at[u + _U1] - variable_at[u])
        for i in range(state_at[u], state_at[u + _U1]):
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
def decode(layout, arrays, order, states):
    """A state from max-product messages: fix variables in `order`, each at the best state
    given those fixed before it. Exact on forests, ties included.
    """
    scope_at, _, at, variable_at, edges, edge_factor, _ = layout
    tables, m, nu, new, work = arrays
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
