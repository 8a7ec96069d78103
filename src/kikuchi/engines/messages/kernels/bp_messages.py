"""Belief propagation on any factor graph: any cardinalities and order, zeros, three arithmetics.

Two flat buffers hold the state, both laid out by `message_offsets` (one message for each edge, that
is each factor-variable pair): `m` from factors to variables, `nu` from variables to factors.

    nu_{i->a}(x_i)  prop. to  prod_{b != a} m_{b->i}(x_i)
    m_{a->i}(x_i)   prop. to  sum_{x_a \\ x_i} phi_a(x_a) prod_{j != i} nu_{j->a}(x_j). SUM works
    with probabilities; LOG_SUM and LOG_MAX (max-product) with logarithms.

All messages out of a factor cost little more than one pass over its table, whatever its order: let
S_k be the table with the variables after k summed out against their nu, seen as a matrix
(prefix, x_k), and W_k the product of the nu before k. One pass over S_k gives both
m_{a->k}(x) = sum_p W_k(p) S_k(p, x) and S_{k-1}(p) = sum_x S_k(p, x) nu_k(x).

Underflow in SUM is watched, not hoped against: every stored number is 0, a true zero, or above a
floor that keeps the product of any two of them representable. A number in between sets `status`,
and the caller starts again with logarithms.

Reference: LIU-I3, TEH-I1, TEH-I8.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.compiled import njit

SUM = 0
LOG_SUM = 1
LOG_MAX = 2

OK = 0
UNDERFLOW = 1
CONTRADICTION = 2

LINEAR = 0
GEOMETRIC = 1

TABLE_FLOOR = 1e-180
MESSAGE_FLOOR = 1e-150
CAVITY_FLOOR = 1e-60
_SUFFIX_FLOOR = 1e-240

_U0 = np.uint64(0)
_U1 = np.uint64(1)
_FAST = {"reassoc", "nsz", "contract"}  # sums may be reordered, so that they vectorise


class MessageLayout(NamedTuple):
    """Where the tables and the messages of a factor graph lie.

    The arrays are those of `FactorGraph`: scope_offsets, table_offsets, message_offsets,
    variable_offsets, variable_edges, edge_factors and scopes. Offsets are unsigned.
    """

    scope_at: NDArray[Any]
    table_at: NDArray[Any]
    at: NDArray[Any]
    variable_at: NDArray[Any]
    edges: NDArray[Any]
    edge_factor: NDArray[Any]
    scopes: NDArray[Any]


class MessageArrays(NamedTuple):
    """Tables and messages in one arithmetic: `new` takes messages of factors before they replace
    those of `m`, `work` the partial sums of one factor.
    """

    tables: NDArray[Any]
    m: NDArray[Any]
    nu: NDArray[Any]
    new: NDArray[Any]
    work: NDArray[Any]


class MessageQueue(NamedTuple):
    """A heap of messages: the key of each, the heap itself, and the place of each in the heap."""

    key: NDArray[Any]
    heap: NDArray[Any]
    place: NDArray[Any]


class UpdateLimits(NamedTuple):
    """When a call that makes single updates returns: after `updates` of them, once more than `most`
    entries of tables or proposals were computed, or when no message changes by more than `tol`.
    """

    updates: int
    most: int
    tol: float


# Arrays are passed whole with the place where their part begins: views would cost more than the
# work on small tables, because each counts its references.

# ---------------------------------------------------------------------- variables


@njit(cache=True, error_model="numpy", inline="always")
def divide(p, begin, end, total, floor):
    """Divide p[begin:end] by its total; UNDERFLOW if an entry above 0 is then below `floor`."""
    if total == 0.0:
        return CONTRADICTION
    scale = 1.0 / total
    low = 1.0
    for x in range(begin, end):
        value = p[x] * scale
        p[x] = value
        low = min(low, value if value > 0.0 else 1.0)
    return UNDERFLOW if low < floor else OK


@njit(cache=True, error_model="numpy", fastmath=_FAST, inline="always")
def _cavities_sum(lo, hi, edges, at, states, m, nu, run):
    """All nu of one variable by products from the left and from the right; answers the status."""
    status = OK
    for x in range(states):
        run[x] = 1.0
    for i in range(lo, hi):
        base = at[edges[i]]
        low = 1.0
        for x in range(states):
            value = run[x]
            nu[base + x] = value
            value *= m[base + x]
            run[x] = value
            low = min(low, value if value > 0.0 else 1.0)
        if low < MESSAGE_FLOOR:
            status = max(status, rescale(run, _U0, states))
    for x in range(states):
        run[x] = 1.0
    for back in range(lo, hi):
        base = at[edges[hi - _U1 - (back - lo)]]
        total = 0.0
        low = 1.0
        for x in range(states):
            value = nu[base + x] * run[x]
            nu[base + x] = value
            total += value
            value = run[x] * m[base + x]
            run[x] = value
            low = min(low, value if value > 0.0 else 1.0)
        if low < MESSAGE_FLOOR:
            status = max(status, rescale(run, _U0, states))
        status = max(status, divide(nu, base, base + states, total, CAVITY_FLOOR))
    return status


@njit(cache=True, error_model="numpy")
def rescale(p, begin, states):
    """Bring the largest entry back to 1; UNDERFLOW if the smallest positive one stays too small."""
    top = 0.0
    for x in range(begin, begin + states):
        top = max(top, p[x])
    if top == 0.0:
        return OK
    least = 1.0
    for x in range(begin, begin + states):
        p[x] /= top
        if p[x] > 0.0:
            least = min(least, p[x])
    return UNDERFLOW if least < MESSAGE_FLOOR else OK


@njit(cache=True, error_model="numpy")
def _cavities_log(lo, hi, edges, at, states, m, nu, run):
    """The same in logarithms; each nu is shifted so that its largest entry is 0."""
    status = OK
    for x in range(states):
        run[x] = 0.0
    for i in range(lo, hi):
        base = at[edges[i]]
        for x in range(states):
            nu[base + x] = run[x]
            run[x] += m[base + x]
    for x in range(states):
        run[x] = 0.0
    for back in range(lo, hi):
        base = at[edges[hi - _U1 - (back - lo)]]
        top = -np.inf
        for x in range(states):
            nu[base + x] += run[x]
            top = max(top, nu[base + x])
            run[x] += m[base + x]
        if top == -np.inf:
            status = CONTRADICTION
        else:
            for x in range(states):
                nu[base + x] -= top
    return status


@njit(cache=True, error_model="numpy", inline="always")
def cavities(v, offsets, edges, at, m, nu, run, mode):
    """Refresh nu from variable `v` to all its factors."""
    lo = offsets[v]
    hi = offsets[v + _U1]
    if lo == hi:
        return OK
    states = at[edges[lo] + _U1] - at[edges[lo]]
    if mode == SUM:
        return _cavities_sum(lo, hi, edges, at, states, m, nu, run)
    return _cavities_log(lo, hi, edges, at, states, m, nu, run)


# ---------------------------------------------------------------------- factors


@njit(cache=True, error_model="numpy", fastmath=_FAST, inline="always")
def _contract_both_sum(source, part, work, weights_at, shorter_at, nu, new, message_at):
    """One pass over S_k for new(x) = sum_p W(p) S(p, x) and shorter(p) = sum_x S(p, x) nu(x).

    S_k is a `part` of `source`: where it begins, its rows and its columns.
    """
    source_at, prefixes, states = part
    status = OK
    for x in range(states):
        new[message_at + x] = 0.0
    for p in range(prefixes):
        row = source_at + p * states
        w = work[weights_at + p]
        total = 0.0
        for x in range(states):
            value = source[row + x]
            total += value * nu[message_at + x]
            new[message_at + x] += w * value
        work[shorter_at + p] = total
        if 0.0 < total < _SUFFIX_FLOOR:
            status = UNDERFLOW
    return status


@njit(cache=True, error_model="numpy", fastmath=_FAST)
def _contract_last_sum(source, part, nu, nu_at, shorter, shorter_at):
    """shorter(p) = sum_x S(p, x) nu(x)."""
    source_at, prefixes, states = part
    status = OK
    for p in range(prefixes):
        row = source_at + p * states
        total = 0.0
        for x in range(states):
            total += source[row + x] * nu[nu_at + x]
        shorter[shorter_at + p] = total
        if 0.0 < total < _SUFFIX_FLOOR:
            status = UNDERFLOW
    return status


@njit(cache=True, error_model="numpy", fastmath=_FAST)
def _contract_first_sum(source, part, weights, weights_at, out, out_at):
    """out(x) = sum_p W(p) S(p, x)."""
    source_at, prefixes, states = part
    for x in range(states):
        out[out_at + x] = 0.0
    for p in range(prefixes):
        row = source_at + p * states
        w = weights[weights_at + p]
        for x in range(states):
            out[out_at + x] += w * source[row + x]


@njit(cache=True, error_model="numpy")
def _contract_last_log(source, part, nu, nu_at, shorter, shorter_at, mode):
    """shorter(p) = log sum_x exp(S(p, x) + nu(x)), or the maximum over x."""
    source_at, prefixes, states = part
    for p in range(prefixes):
        row = source_at + p * states
        top = -np.inf
        for x in range(states):
            top = max(top, source[row + x] + nu[nu_at + x])
        if mode == LOG_SUM and top > -np.inf:
            total = 0.0
            for x in range(states):
                total += np.exp(source[row + x] + nu[nu_at + x] - top)
            top += np.log(total)
        shorter[shorter_at + p] = top


@njit(cache=True, error_model="numpy")
def _contract_first_log(source, part, weights, weights_at, out, out_at, mode):
    """out(x) = log sum_p exp(W(p) + S(p, x)), or the maximum over p."""
    source_at, prefixes, states = part
    for x in range(states):
        top = -np.inf
        for p in range(prefixes):
            top = max(top, weights[weights_at + p] + source[source_at + p * states + x])
        if mode == LOG_SUM and top > -np.inf:
            total = 0.0
            for p in range(prefixes):
                value = weights[weights_at + p] + source[source_at + p * states + x]
                total += np.exp(value - top)
            top += np.log(total)
        out[out_at + x] = top


@njit(cache=True, error_model="numpy", inline="always")
def _prefix_weights(lo, stop, at, nu, work, mode):
    """W_0, W_1, ... end to end in `work`, up to the variable at edge `stop`: the last begins at the
    returned place and has the returned length. W_{k+1}(p, x) = W_k(p) nu_k(x).
    """
    status = OK
    work[_U0] = 1.0 if mode == SUM else 0.0
    begin = _U0
    size = _U1
    for k in range(lo, stop):
        states = at[k + _U1] - at[k]
        longer = begin + size
        for p in range(size):
            w = work[begin + p]
            for x in range(states):
                value = nu[at[k] + x]
                if mode == SUM:
                    value *= w
                    if 0.0 < value < CAVITY_FLOOR:
                        status = UNDERFLOW
                else:
                    value += w
                work[longer + p * states + x] = value
        begin = longer
        size *= states
    return status, begin, size


@njit(cache=True, error_model="numpy", inline="always")
def factor_messages(a, layout, tables, nu, new, work, mode):
    """All messages out of factor `a` into `new`, not yet normalised."""
    scope_at, table_at, at, _, _, _, _ = layout
    lo = scope_at[a]
    last = scope_at[a + _U1] - _U1
    # The first half of `work` holds the W, each smaller than the table; the second half the S.
    status, begin, size = _prefix_weights(lo, last, at, nu, work, mode)
    top = np.uint64(work.size) // np.uint64(2)
    source, source_at = tables, table_at[a]
    for back in range(last - lo + _U1):
        k = last - back
        part = (source_at, size, at[k + _U1] - at[k])
        if mode == SUM:
            step_status = _contract_both_sum(source, part, work, begin, top, nu, new, at[k])
            status = max(status, step_status)
        else:
            _contract_first_log(source, part, work, begin, new, at[k], mode)
            _contract_last_log(source, part, nu, at[k], work, top, mode)
        source, source_at = work, top
        top += size
        if k > lo:
            size = size // (at[k] - at[k - _U1])
            begin -= size
    return status


@njit(cache=True, error_model="numpy")
def one_message(e, layout, tables, nu, new, work, mode):
    """The message along edge `e`, from its factor to its variable, into `new`; not normalised."""
    scope_at, table_at, at, _, _, edge_factor, _ = layout
    a = np.uint64(edge_factor[e])
    last = scope_at[a + _U1] - _U1
    source, source_at = tables, table_at[a]
    size = table_at[a + _U1] - table_at[a]
    top = np.uint64(work.size) // np.uint64(2)
    status = OK
    for back in range(last - e):
        k = last - back
        states = at[k + _U1] - at[k]
        size = size // states
        part = (source_at, size, states)
        if mode == SUM:
            step_status = _contract_last_sum(source, part, nu, at[k], work, top)
            status = max(status, step_status)
        else:
            _contract_last_log(source, part, nu, at[k], work, top, mode)
        source, source_at = work, top
        top += size
    prefix_status, begin, size = _prefix_weights(scope_at[a], e, at, nu, work, mode)
    part = (source_at, size, at[e + _U1] - at[e])
    if mode == SUM:
        _contract_first_sum(source, part, work, begin, new, at[e])
    else:
        _contract_first_log(source, part, work, begin, new, at[e], mode)
    return max(status, prefix_status)


# ---------------------------------------------------------------------- messages


@njit(cache=True, error_model="numpy", fastmath=_FAST)
def normalise(new, begin, end, mode):
    """Scale a message to sum 1 (in logarithms: to largest entry 0)."""
    if mode == SUM:
        total = 0.0
        for x in range(begin, end):
            total += new[x]
        return divide(new, begin, end, total, MESSAGE_FLOOR)
    top = -np.inf
    for x in range(begin, end):
        top = max(top, new[x])
    if top == -np.inf:
        return CONTRADICTION
    for x in range(begin, end):
        new[x] -= top
    return OK


@njit(cache=True, error_model="numpy")
def _log_total(m, begin, end):
    """log of the sum of a message kept in logarithms with largest entry 0."""
    total = 0.0
    for x in range(begin, end):
        total += np.exp(m[x])
    return np.log(total)


@njit(cache=True, error_model="numpy", fastmath=_FAST)
def distance(old, new, begin, end, mode):
    """Largest difference of two messages as probabilities (LOG_MAX: as weights, largest 1)."""
    change = 0.0
    if mode == SUM:
        for x in range(begin, end):
            change = max(change, abs(new[x] - old[x]))
        return change
    total_old = 0.0
    total_new = 0.0
    if mode == LOG_SUM:
        total_old = _log_total(old, begin, end)
        total_new = _log_total(new, begin, end)
    for x in range(begin, end):
        change = max(change, abs(np.exp(new[x] - total_new) - np.exp(old[x] - total_old)))
    return change


@njit(cache=True, error_model="numpy")
def damp(old, new, begin, end, damping, kind, mode):
    """Move `old` towards `new`, with weight `damping` on the old message, in place."""
    if damping == 0.0:
        for x in range(begin, end):
            old[x] = new[x]
        return OK
    if mode == SUM:
        for x in range(begin, end):
            if kind == LINEAR:
                old[x] = (1.0 - damping) * new[x] + damping * old[x]
            elif new[x] > 0.0:
                old[x] = new[x] ** (1.0 - damping) * old[x] ** damping
            else:
                old[x] = 0.0
    elif kind == LINEAR and mode == LOG_SUM:
        shift_old = np.log(damping) - _log_total(old, begin, end)
        shift_new = np.log1p(-damping) - _log_total(new, begin, end)
        for x in range(begin, end):
            old[x] = np.logaddexp(new[x] + shift_new, old[x] + shift_old)
    else:
        for x in range(begin, end):
            if new[x] > -np.inf:
                old[x] = (1.0 - damping) * new[x] + damping * old[x]
            else:
                old[x] = -np.inf
    return normalise(old, begin, end, mode)


@njit(cache=True, error_model="numpy", inline="always")
def update_message(old, new, begin, end, damping, kind, mode):
    """Normalise `new`, measure how far it is from `old`, then move `old`: (status, distance)."""
    change = 0.0
    if mode == SUM and damping == 0.0:  # the common case in one pass
        total = 0.0
        for x in range(begin, end):
            total += new[x]
        if total == 0.0:
            return CONTRADICTION, 0.0
        scale = 1.0 / total
        least = 1.0
        for x in range(begin, end):
            value = new[x] * scale
            change = max(change, abs(value - old[x]))
            least = min(least, value if value > 0.0 else 1.0)
            old[x] = value
        return (UNDERFLOW if least < MESSAGE_FLOOR else OK), change
    status = normalise(new, begin, end, mode)
    if status == CONTRADICTION:
        return status, 0.0
    change = distance(old, new, begin, end, mode)
    return max(status, damp(old, new, begin, end, damping, kind, mode)), change
