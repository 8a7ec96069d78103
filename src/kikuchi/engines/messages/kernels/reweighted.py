"""Reweighted sum-product on any factor graph (I8 and appendix B.2): one update for all.

Factor a has a weight mu_a (its entropy count) and a step; `power` is 1 / mu. The state is one
logarithmic message l_{a->i} = mu_a log n_{a->i} for each edge, which is what the factor adds to the
belief of its variable:

    log b_i   = field_i + sum_a l_{a->i}                           (field: factors of one variable)
    cavity    = log b_j - power_a l_{a->j}
    target    = log sum_{x_a \\ x_i} phi_a^power_a prod_{j != i} exp(cavity_j)
    l_{a->i} <- l_{a->i} + step_a mu_a (target - power_a l_{a->i}).

`gain` below is step_a mu_a. Belief propagation has mu = 1 and step 1, alpha-BP mu = 1 / alpha and
step alpha, so its gain is 1. Layout and arithmetic (SUM, LOG_SUM) are those of `bp_messages`; a
number too small for SUM sets the status, and the caller goes on with logarithms. States that the
zeros of the model exclude have field -inf; their messages mean nothing. The largest entry of a
message over the other states is 0, so that none loses digits when another diverges.

Reference: LIU-I6.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.compiled import njit
from kikuchi.engines.messages.kernels.bp_messages import (
    OK,
    SUM,
    UNDERFLOW,
    factor_messages,
    one_message,
)

_U0 = np.uint64(0)
_U1 = np.uint64(1)
MILD = 200.0  # of an exponent: products of three such exponentials are within doubles
_FLOOR = 1e-60  # least positive cavity that SUM is trusted with


class WeightedTables(NamedTuple):
    """A model under weights: phi^power of all factors, fields by `state_at`, and by factor the
    power and the gain.
    """

    tables: NDArray[Any]
    state_at: NDArray[Any]
    field: NDArray[Any]
    power: NDArray[Any]
    gain: NDArray[Any]


class WeightedMessages(NamedTuple):
    """Messages, log-beliefs and cavities; `new` takes targets, `work` the sums of one factor."""

    ell: NDArray[Any]
    log_b: NDArray[Any]
    nu: NDArray[Any]
    new: NDArray[Any]
    work: NDArray[Any]


class FactorReading(NamedTuple):
    """What `factor_reading` finds: two numbers by factor, and one for each message entry."""

    log_norms: NDArray[Any]
    cross: NDArray[Any]
    log_ratio: NDArray[Any]


class WeightedPairs(NamedTuple):
    """A positive binary pairwise model under weights: the edges as in `bp_binary`, with kappa =
    2 power J and k = exp(kappa), the powers and gains of the edges, and the fields of the nodes.
    """

    start: NDArray[Any]
    reverse: NDArray[Any]
    k: NDArray[Any]
    kappa: NDArray[Any]
    power: NDArray[Any]
    gain: NDArray[Any]
    field: NDArray[Any]


# ---------------------------------------------------------------------- beliefs and cavities


@njit(cache=True, error_model="numpy")
def log_belief(v, layout, state_at, field, ell, log_b):
    """log b_v up to a constant: its largest entry is 0."""
    _, _, at, variable_at, edges, _, _ = layout
    begin = state_at[v]
    states = state_at[v + _U1] - begin
    for x in range(states):
        log_b[begin + x] = field[begin + x]
    for i in range(variable_at[v], variable_at[v + _U1]):
        base = at[edges[i]]
        for x in range(states):
            log_b[begin + x] += ell[base + x]
    top = -np.inf
    for x in range(states):
        top = max(top, log_b[begin + x])
    for x in range(states):
        log_b[begin + x] -= top
    return top


@njit(cache=True, error_model="numpy", inline="always")
def _cavity(e, begin, at, power, log_b, ell, nu, mode):
    """Cavity of one edge into `nu`, largest entry 1 (in logarithms 0): (status, what was taken)."""
    base = at[e]
    states = at[e + _U1] - base
    status = OK
    top = -np.inf
    for x in range(states):
        value = log_b[begin + x] - power * ell[base + x]
        nu[base + x] = value
        top = max(top, value)
    for x in range(states):
        value = nu[base + x] - top
        if mode == SUM:
            weight = np.exp(value)
            if weight < _FLOOR and value > -np.inf:
                status = UNDERFLOW
            nu[base + x] = weight
        else:
            nu[base + x] = value
    return status, top


@njit(cache=True, error_model="numpy")
def cavities(v, layout, state_at, power, log_b, ell, nu, mode):
    """All cavities of variable `v` towards factors of several variables."""
    scope_at, _, at, variable_at, edges, edge_factor, _ = layout
    status = OK
    for i in range(variable_at[v], variable_at[v + _U1]):
        e = np.uint64(edges[i])
        a = np.uint64(edge_factor[e])
        if scope_at[a + _U1] - scope_at[a] > _U1:
            edge_status, _ = _cavity(e, state_at[v], at, power[a], log_b, ell, nu, mode)
            status = max(status, edge_status)
    return status


@njit(cache=True, error_model="numpy")
def refresh(layout, model, state, mode):
    """Beliefs and cavities of every variable."""
    _, state_at, field, power, _ = model
    ell, log_b, nu, _, _ = state
    status = OK
    for v in range(np.uint64(state_at.size) - _U1):
        log_belief(v, layout, state_at, field, ell, log_b)
        edge_status = cavities(v, layout, state_at, power, log_b, ell, nu, mode)
        status = max(status, edge_status)
    return status


# ---------------------------------------------------------------------- updates


@njit(cache=True, error_model="numpy")
def _update_message(e, begin, at, rates, field, ell, new, mode):
    """Move the message along `e` towards its target in `new`; returns how far that was.

    `rates` are the power and the gain of the factor.
    The distance is the largest difference of n and its target as probabilities, so that a message
    that must diverge, where the optimum excludes a state, still converges.
    """
    power, gain = rates
    base = at[e]
    states = at[e + _U1] - base
    high = -np.inf
    old_high = -np.inf
    for x in range(states):
        if field[begin + x] > -np.inf:
            high = max(high, new[base + x])
            old_high = max(old_high, power * ell[base + x])
    total = 0.0
    old_total = 0.0
    for x in range(states):
        if field[begin + x] > -np.inf:
            total += new[base + x] / high if mode == SUM else np.exp(new[base + x] - high)
            old_total += np.exp(power * ell[base + x] - old_high)
    change = 0.0
    top = -np.inf
    for x in range(states):
        if field[begin + x] > -np.inf:
            scaled = new[base + x] / high if mode == SUM else np.exp(new[base + x] - high)
            target = np.log(scaled) if mode == SUM else new[base + x] - high
            old = power * ell[base + x]
            change = max(change, abs(scaled / total - np.exp(old - old_high) / old_total))
            ell[base + x] += gain * (target - old)
            top = max(top, ell[base + x])
    for x in range(states):
        if field[begin + x] > -np.inf:
            ell[base + x] -= top
    return change


@njit(cache=True, error_model="numpy")
def sequential(layout, model, state, order, mode):
    """One sweep over the variables in `order`: each takes in its messages, then sends cavities."""
    scope_at, _, at, variable_at, edges, edge_factor, _ = layout
    tables, state_at, field, power, gain = model
    ell, log_b, nu, new, work = state
    status = OK
    residual = 0.0
    for position in range(np.uint64(order.size)):
        v = np.uint64(order[position])
        for i in range(variable_at[v], variable_at[v + _U1]):
            e = np.uint64(edges[i])
            a = np.uint64(edge_factor[e])
            if scope_at[a + _U1] - scope_at[a] == _U1:
                continue
            status = one_message(e, layout, tables, nu, new, work, mode)
            if status != OK:
                return status, residual  # nothing was moved by a number that is too small
            rates = (power[a], gain[a])
            change = _update_message(e, state_at[v], at, rates, field, ell, new, mode)
            residual = max(residual, change)
        log_belief(v, layout, state_at, field, ell, log_b)
        status = cavities(v, layout, state_at, power, log_b, ell, nu, mode)
        if status != OK:
            return status, residual
    return status, residual


@njit(cache=True, error_model="numpy")
def parallel(layout, model, state, mode):
    """One parallel sweep: every factor sends from the same cavities, then all are refreshed."""
    scope_at, _, at, _, _, _, scopes = layout
    tables, state_at, field, power, gain = model
    ell, _, nu, new, work = state
    status = OK
    residual = 0.0
    for a in range(np.uint64(scope_at.size) - _U1):
        lo = scope_at[a]
        hi = scope_at[a + _U1]
        if hi - lo == _U1:
            continue
        status = factor_messages(a, layout, tables, nu, new, work, mode)
        if status != OK:
            return status, residual
        for e in range(lo, hi):
            begin = state_at[scopes[e]]
            rates = (power[a], gain[a])
            change = _update_message(e, begin, at, rates, field, ell, new, mode)
            residual = max(residual, change)
    return refresh(layout, model, state, mode), residual


# ---------------------------------------------------------------------- reading the answer


@njit(cache=True, error_model="numpy")
def normalised_beliefs(layout, state_at, field, ell, log_b, log_norms):
    """log b_i with sum 1, and the logarithm of what was divided out of each."""
    for v in range(np.uint64(state_at.size) - _U1):
        top = log_belief(v, layout, state_at, field, ell, log_b)
        total = 0.0
        for x in range(state_at[v], state_at[v + _U1]):
            total += np.exp(log_b[x])
        shift = np.log(total)
        for x in range(state_at[v], state_at[v + _U1]):
            log_b[x] -= shift
        log_norms[v] = top + shift


@njit(cache=True, error_model="numpy")
def factor_reading(layout, model, state, reading, mode):
    """What the factors say at the present messages, from normalised `log_b`.

    b_a = phi_a^power prod_i exp(cavity_i) / Z_a has marginals b_ai. For each factor: log Z_a
    (without the peak of its table) and sum_i sum_x b_ai l_{a->i}; for each edge log(b_ai / b_i), 0
    for impossible states.
    """
    scope_at, _, at, _, _, _, scopes = layout
    tables, state_at, _, power, _ = model
    ell, log_b, nu, new, work = state
    log_norms, cross, log_ratio = reading
    status = OK
    for a in range(np.uint64(scope_at.size) - _U1):
        lo = scope_at[a]
        hi = scope_at[a + _U1]
        log_norms[a] = 0.0
        cross[a] = 0.0
        if hi - lo == _U1:
            for i in range(at[lo], at[hi]):
                log_ratio[i] = 0.0
            continue
        taken = 0.0
        for e in range(lo, hi):
            edge_status, top = _cavity(e, state_at[scopes[e]], at, power[a], log_b, ell, nu, mode)
            status = max(status, edge_status)
            taken += top
        status = max(status, factor_messages(a, layout, tables, nu, new, work, mode))
        for e in range(lo, hi):
            begin = state_at[scopes[e]]
            top = -np.inf
            for i in range(at[e], at[e + _U1]):
                joint = np.log(nu[i] * new[i]) if mode == SUM else nu[i] + new[i]
                new[i] = joint
                top = max(top, joint)
            total = 0.0
            for i in range(at[e], at[e + _U1]):
                total += np.exp(new[i] - top)
            top += np.log(total)
            for i in range(at[e], at[e + _U1]):
                log_mass = new[i] - top
                log_ratio[i] = 0.0
                if log_mass > -np.inf:
                    log_ratio[i] = log_mass - log_b[begin + i - at[e]]
                    cross[a] += np.exp(log_mass) * ell[i]
            if e == lo:
                log_norms[a] = top + taken
    return status


@njit(cache=True, error_model="numpy")
def slack(layout, state_at, log_b, log_ratio, parents, roots):
    """sum_i max_t (sum_a parents_ai <t, log(b_ai / b_i)> - roots_i KL(t || b_i)).

    The maximum is roots_i log sum_x b_i prod_a (b_ai / b_i)^(parents_ai / roots_i); where no root
    weight is left it is the largest exponent.
    """
    _, _, at, variable_at, edges, _, _ = layout
    total = 0.0
    for v in range(np.uint64(state_at.size) - _U1):
        begin = state_at[v]
        states = state_at[v + _U1] - begin
        kappa = roots[v]
        top = -np.inf
        for turn in range(2):
            mass = 0.0
            for x in range(states):
                if log_b[begin + x] == -np.inf:
                    continue
                value = 0.0
                for i in range(variable_at[v], variable_at[v + _U1]):
                    e = np.uint64(edges[i])
                    value += parents[e] * log_ratio[at[e] + x]
                value += kappa * log_b[begin + x]
                if turn == 0:
                    top = max(top, value)
                elif kappa > 0.0:
                    mass += np.exp((value - top) / kappa)
            if turn == 1:
                total += top + (kappa * np.log(mass) if kappa > 0.0 else 0.0)
    return total


@njit(cache=True, error_model="numpy")
def informations(layout, log_tables, state_at, power, log_b, ell, log_norms, out):
    """I_a = sum_x b_a log(b_a / prod_i b_i) of every factor; `log_norms` with the peaks of tables.

    log(b_a / prod_i b_i) = power (log phi_a - sum_i l_{a->i}) - log Z_a.
    """
    scope_at, table_at, at, _, _, _, scopes = layout
    for a in range(np.uint64(scope_at.size) - _U1):
        out[a] = 0.0
        if scope_at[a + _U1] - scope_at[a] == _U1:
            continue
        for entry in range(table_at[a + _U1] - table_at[a]):
            ratio = log_tables[table_at[a] + entry]
            log_product = 0.0
            rest = entry
            for back in range(scope_at[a + _U1] - scope_at[a]):
                e = scope_at[a + _U1] - _U1 - back
                states = at[e + _U1] - at[e]
                x = rest % states
                rest = rest // states
                ratio -= ell[at[e] + x]
                log_product += log_b[state_at[scopes[e]] + x]
            ratio = power[a] * ratio - log_norms[a]
            if ratio > -np.inf and log_product > -np.inf:
                out[a] += np.exp(ratio + log_product) * ratio


# ---------------------------------------------------------------------- positive binary pairs


@njit(cache=True, error_model="numpy", inline="always")
def _log_ratio(k, kappa, delta):
    """log((k e^delta + 1) / (e^delta + k)) with k = e^kappa, without overflow."""
    if not 1e-300 < k < 1e300:  # beyond doubles: the same with the larger terms taken out
        near = np.log1p(np.exp(-abs(delta + kappa))) - np.log1p(np.exp(-abs(delta - kappa)))
        least = min(abs(delta), abs(kappa))
        return near + (least if (delta > 0.0) == (kappa > 0.0) else -least)
    if delta > 0.0:
        e = np.exp(-delta)
        return np.log((k + e) / (1.0 + k * e))
    e = np.exp(delta)
    return np.log((k * e + 1.0) / (e + k))


@njit(cache=True, error_model="numpy", inline="always")
def _distance(first, second):
    """Difference of two log-ratios as probabilities."""
    small = np.exp(-abs(first))
    other = np.exp(-abs(second))
    p = 1.0 / (1.0 + small)
    q = 1.0 / (1.0 + other)
    if (first > 0.0) != (second > 0.0):
        return abs(p - other / (1.0 + other))
    return abs(p - q)


@njit(cache=True, error_model="numpy")
def binary_sweep(pairs, source, target, order, mild, full):
    """One sweep over nodes, from the messages (z, n) of `source` into those of `target`.

    `z` holds l(1) - l(0) into each node. Sequential if both are the same, else parallel. With
    `mild` couplings `n` holds exp(power z), and a node that is not too sure of its state sends
    n' = (k a + n) / (k n + a), where a = b(1) / b(0): one exponential for all its messages. `full`
    says that every gain is 1 / power, so that n' is the new n.
    """
    start, reverse, k, kappa, power, gain, field = pairs
    z, n = source
    z_out, n_out = target
    residual = 0.0
    for position in range(np.uint64(order.size)):
        i = np.uint64(order[position])
        lo = np.uint64(start[i])
        hi = np.uint64(start[i + _U1])
        total = field[i]
        for e in range(lo, hi):
            total += z[e]
        if mild and abs(total) < MILD:
            a = np.exp(total)
            for e in range(lo, hi):
                g = np.uint64(reverse[e])
                ratio = (k[e] * a + n[e]) / (k[e] * n[e] + a)
                value = z[g] + gain[e] * (np.log(ratio) - power[e] * z[g])
                change = abs(ratio - n[g]) / ((1.0 + ratio) * (1.0 + n[g]))
                residual = max(residual, change)
                z_out[g] = value
                n_out[g] = ratio if full else np.exp(power[e] * value)
        else:
            for e in range(lo, hi):
                g = np.uint64(reverse[e])
                aim = _log_ratio(k[e], kappa[e], total - power[e] * z[e])
                value = z[g] + gain[e] * (aim - power[e] * z[g])
                residual = max(residual, _distance(aim, power[e] * z[g]))
                z_out[g] = value
                if mild:
                    n_out[g] = np.exp(power[e] * value)
    return residual
