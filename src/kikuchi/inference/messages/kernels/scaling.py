"""Propagation and scaling: messages on a factor graph some of whose variables are pinned.

The messages, their layout and their arithmetic are those of `bp_messages`. A pinned variable has a
given marginal c and answers each factor by itself ("bouncing", TEH-M23 eq. 5.26 on factor graphs):

    nu_{i->a}(x_i)  prop. to  c_i(x_i) / m_{a->i}(x_i)

so that the belief of every factor agrees with c at once. Pinned variables therefore carry nothing
from one factor to another: if they cut all cycles, what is left is a forest in which each pinned
variable is a leaf once for each of its factors (TEH-I16, I17).

`pinned` has one entry a variable; `pins` holds the marginals, flat by `state_at`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from kikuchi.inference.messages.kernels.bp_messages import (
    CONTRADICTION,
    OK,
    SUM,
    UNDERFLOW,
    cavities,
    factor_messages,
    one_message,
    rescale,
    settle,
)

INFEASIBLE = 3  # a pin has mass where a message has none

MESSAGE = 0  # factor to variable
CAVITY = 1  # free variable to factor
BOUNCE = 2  # pinned variable to factor

_CAVITY_FLOOR = 1e-60  # as in bp_messages: below, a run starts again with logarithms
_MESSAGE_FLOOR = 1e-150
_U1 = np.uint64(1)
_U2 = np.uint64(2)


# ---------------------------------------------------------------------- one variable


@njit(cache=True, error_model="numpy", inline="always")
def _bounce_sum(begin, end, m, nu, pins, pin_at):
    total = 0.0
    for i in range(begin, end):
        total += nu[i] * m[i]
    share = 1.0 / total if total > 0.0 else 0.0
    status = OK
    mismatch = 0.0
    sum_nu = 0.0
    for i in range(begin, end):
        pin = pins[pin_at + (i - begin)]
        mismatch = max(mismatch, abs(nu[i] * m[i] * share - pin))
        value = 0.0
        if pin > 0.0:
            if m[i] == 0.0:
                status = INFEASIBLE
            value = pin / m[i]
        nu[i] = value
        sum_nu += value
    if status == OK:
        share = 1.0 / sum_nu
        for i in range(begin, end):
            nu[i] *= share
            if 0.0 < nu[i] < _CAVITY_FLOOR:
                status = UNDERFLOW
    return status, mismatch


@njit(cache=True, error_model="numpy")
def _bounce_log(begin, end, m, nu, pins, pin_at):
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
        pin = pins[pin_at + (i - begin)]
        now = np.exp(nu[i] + m[i] - top) / total if top > -np.inf else 0.0
        mismatch = max(mismatch, abs(now - pin))
        if pin > 0.0 and m[i] == -np.inf:
            status = INFEASIBLE
        nu[i] = np.log(pin) - m[i] if pin > 0.0 else -np.inf
        peak = max(peak, nu[i])
    if status == OK:
        for i in range(begin, end):
            nu[i] -= peak
    return status, mismatch


@njit(cache=True, error_model="numpy", inline="always")
def bounce(begin, end, m, nu, pins, pin_at, mode):
    """nu = pin / m along one edge; answers status and how far the marginal was from the pin."""
    if mode == SUM:
        return _bounce_sum(begin, end, m, nu, pins, pin_at)
    return _bounce_log(begin, end, m, nu, pins, pin_at)


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
        if low < _MESSAGE_FLOOR:
            status = max(status, rescale(nu, begin, states))
    total = 0.0
    for x in range(states):
        total += nu[begin + x]
    if total == 0.0:
        return CONTRADICTION
    share = 1.0 / total
    low = 1.0
    for x in range(states):
        value = nu[begin + x] * share
        nu[begin + x] = value
        low = min(low, value if value > 0.0 else 1.0)
    return UNDERFLOW if low < _CAVITY_FLOOR else status


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
        place = table + x * step
        for y in range(others):
            value += tables[place + y * stride] * nu[beyond + y]
        m[begin + x] = value
        total += value
    if total == 0.0:
        return CONTRADICTION
    share = 1.0 / total
    low = 1.0
    for x in range(states):
        value = m[begin + x] * share
        m[begin + x] = value
        low = min(low, value if value > 0.0 else 1.0)
    return UNDERFLOW if low < _MESSAGE_FLOOR else OK


@njit(cache=True, error_model="numpy")
def answer(v, layout, m, nu, work, pinned, pins, state_at, mode):
    """All nu of variable `v`, pinned or free; answers status and mismatch."""
    _, _, at, variable_at, edges, _, _ = layout
    if not pinned[v]:
        return cavities(v, variable_at, edges, at, m, nu, work, mode), 0.0
    status = OK
    mismatch = 0.0
    for i in range(variable_at[v], variable_at[v + _U1]):
        e = np.uint64(edges[i])
        found, away = bounce(at[e], at[e + _U1], m, nu, pins, state_at[v], mode)
        status = max(status, found)
        mismatch = max(mismatch, away)
    return status, mismatch


@njit(cache=True, error_model="numpy")
def all_answers(layout, m, nu, work, pinned, pins, state_at, mode):
    """Refresh every nu; answers status and the largest mismatch there was."""
    status = OK
    mismatch = 0.0
    for v in range(np.uint64(layout[3].size) - _U1):
        found, away = answer(v, layout, m, nu, work, pinned, pins, state_at, mode)
        status = max(status, found)
        mismatch = max(mismatch, away)
    return status, mismatch


# ---------------------------------------------------------------------- loopy sweeps (TEH-I14)


@njit(cache=True, error_model="numpy")
def sequential(
    layout, tables, m, nu, new, work, pinned, pins, state_at, order, damping, kind, mode
):
    """One sweep over the variables in `order`: each takes in its messages, then answers.

    Answers status and the largest change of a message or distance of a marginal from its pin.
    """
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
        found, away = answer(v, layout, m, nu, work, pinned, pins, state_at, mode)
        status = max(status, found)
        residual = max(residual, away)
    return status, residual


@njit(cache=True, error_model="numpy")
def parallel(layout, tables, m, nu, new, work, pinned, pins, state_at, damping, kind, mode):
    """One sweep in which all factors send from the same nu, then all variables answer."""
    scope_at, _, at, _, _, _, _ = layout
    status = OK
    residual = 0.0
    for a in range(np.uint64(scope_at.size) - _U1):
        lo = scope_at[a]
        hi = scope_at[a + _U1]
        if hi - lo == _U1:
            continue
        status = max(status, factor_messages(a, layout, tables, nu, new, work, mode))
        for e in range(lo, hi):
            found, change = settle(m, new, at[e], at[e + _U1], damping, kind, mode)
            status = max(status, found)
            residual = max(residual, change)
    found, away = all_answers(layout, m, nu, work, pinned, pins, state_at, mode)
    return max(status, found), max(residual, away)


# ---------------------------------------------------------------------- walks over a forest


@njit(cache=True, error_model="numpy")
def walk(
    layout, tables, m, nu, new, work, pinned, pins, state_at, op_edge, op_kind, begin, end, mode
):
    """Do the updates `begin` to `end` of a schedule; answers status and the largest mismatch."""
    scope_at, table_at, at, variable_at, edges, edge_factor, scopes = layout
    status = OK
    mismatch = 0.0
    for place in range(begin, end):
        e = np.uint64(op_edge[place])
        kind = op_kind[place]
        if kind == MESSAGE:
            a = np.uint64(edge_factor[e])
            first = scope_at[a]
            if mode == SUM and scope_at[a + _U1] - first == _U2:
                status = _pair_message_sum(e, first, at, table_at[a], tables, nu, m)
            else:
                found = one_message(e, layout, tables, nu, new, work, mode)
                status, _ = settle(m, new, at[e], at[e + _U1], 0.0, 0, mode)
                status = max(status, found)
        else:
            v = np.uint64(scopes[e])
            if kind == CAVITY:
                lo = variable_at[v]
                hi = variable_at[v + _U1]
                status = cavity(e, lo, hi, edges, at, m, nu, mode)
            else:
                status, away = bounce(at[e], at[e + _U1], m, nu, pins, state_at[v], mode)
                mismatch = max(mismatch, away)
        if status != OK:
            break
    return status, mismatch


@njit(cache=True, error_model="numpy")
def scale_trees(
    layout,
    tables,
    m,
    nu,
    new,
    work,
    pinned,
    pins,
    state_at,
    op_edge,
    op_kind,
    tree_start,
    residual,
    walks,
    loops,
    tol,
    mode,
):
    """Walk each tree until no scaling moved a marginal by more than `tol` (TEH-I16 steps 3 to 7).

    `residual` holds the largest mismatch of each tree in its last walk; trees at most `tol` are
    left alone. At most `loops` walks are made over each; `walks` counts them.
    """
    for tree in range(np.uint64(tree_start.size) - _U1):
        begin = np.uint64(tree_start[tree])
        end = np.uint64(tree_start[tree + _U1])
        done = 0
        while residual[tree] > tol and done < loops:
            status, residual[tree] = walk(
                layout,
                tables,
                m,
                nu,
                new,
                work,
                pinned,
                pins,
                state_at,
                op_edge,
                op_kind,
                begin,
                end,
                mode,
            )
            done += 1
            if status != OK:
                return status
        walks[tree] += done
    return OK


# ---------------------------------------------------------------------- reading the answer


@njit(cache=True, error_model="numpy")
def beliefs(layout, m, pinned, pins, state_at, out, mode):
    """Pins as they are, other variables prop. to the product of their messages."""
    _, _, at, variable_at, edges, _, _ = layout
    status = OK
    for v in range(np.uint64(variable_at.size) - _U1):
        begin = state_at[v]
        states = state_at[v + _U1] - begin
        if pinned[v]:
            for x in range(states):
                out[begin + x] = pins[begin + x]
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
def free_energy(layout, tables, nu, new, work, pinned, marginals, state_at, mode):
    """The Bethe free energy with pinned marginals, as the value of its dual (TEH-M23, ER18).

    A factor adds sum_j sum_x b_aj(x) log nu_j(x) - log Z_a, a variable (1 - degree) sum_x b log b.
    Where j is pinned, b_aj is the pin itself: then the value is, for consistent messages on a
    forest, a lower bound of the constrained minimum whose error is of second order.
    """
    scope_at, _, at, variable_at, _, _, scopes = layout
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
                if pinned[v]:
                    weight = marginals[state_at[v] + x]
                if weight > 0.0:
                    cross += weight * (np.log(nu[i]) if mode == SUM else nu[i])
            if total == 0.0:
                return CONTRADICTION, np.inf
            energy += cross if pinned[v] else cross / total
            if k == scope_at[a]:
                energy -= np.log(total) + top
    for u in range(np.uint64(variable_at.size) - _U1):
        excess = 1.0 - float(variable_at[u + _U1] - variable_at[u])
        for i in range(state_at[u], state_at[u + _U1]):
            if marginals[i] > 0.0:
                energy += excess * marginals[i] * np.log(marginals[i])
    return status, energy
