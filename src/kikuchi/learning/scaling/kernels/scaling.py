"""Scaling and propagation on the tables of a junction tree.

A table holds the probabilities of a clique, up to a factor that every reader divides out, so that
rounding does not add up over millions of updates. Each separator has two messages, one in each
direction: message `h` and message `h ^ 1` belong to one separator. Maps give the state of a
separator or of a factor for each state of a clique. Zeros stay zero, and 0 / 0 is 0.

Reference: TEH-L14 to L16, TEH-L15, TEH-L16, TEH-L18.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import U4, U8, Array, Mask
from kikuchi.core.compiled import njit
from kikuchi.engines.regions.kernels.regions import sum_down

NO_MESSAGE = np.uint64(2**63)
"""In a walk: no message is sent after this visit."""

_U0 = np.uint64(0)
_U1 = np.uint64(1)
_NEWTON_STEPS = 200
_NEWTON_TOL = 1e-14


class Tables(NamedTuple):
    """Clique tables end to end, then what the separators hold."""

    p: Array
    s: Array


class ScalingLayout(NamedTuple):
    """Where everything is; `outgoing` lists the messages that leave each clique."""

    clique_at: U8
    separator_at: U8
    maps: U4
    sender: U8
    receiver: U8
    sender_map: U8
    receiver_map: U8
    outgoing_at: U8
    outgoing: U8
    home: U8
    factor_map: U8
    factor_at: U8
    clique_factors_at: U8
    clique_factors: U8


class Walk(NamedTuple):
    """Cliques in the order of their visits, which visits are first ones, and the message after."""

    visits: U8
    first: Mask
    messages: U8


class Columns(NamedTuple):
    """Features of each factor: which, and their values, entry by entry of the factor's table.

    `order[order_at[a]:order_at[a + 1]]` are the features of factor a; the values of the k-th of
    these stand in `values` at `value_at[k]`. `total` is their sum over the features of the factor,
    laid out as the tables.
    """

    order_at: U8
    order: U8
    value_at: U8
    values: Array
    total: Array


@njit(cache=True, error_model="numpy", inline="always")
def _sum_clique(layout, tables, c, map_at, states, out):
    """Sums of a clique's table over all states with the same image under a map; their total."""
    begin, end = layout.clique_at[c], layout.clique_at[c + _U1]
    return sum_down(tables.p, begin, end, layout.maps, map_at, out, states)


@njit(cache=True, error_model="numpy", inline="always")
def _multiply_clique(layout, tables, c, map_at, factor):
    """Multiply a clique's table by a function of the image of its states under a map."""
    begin = layout.clique_at[c]
    for i in range(layout.clique_at[c + _U1] - begin):
        tables.p[begin + i] *= factor[layout.maps[map_at + i]]


@njit(cache=True, error_model="numpy", inline="always")
def _send(layout, tables, h, keep_mass, work):
    """One separator message, in Hugin's form.

    With `keep_mass` the mass of the sending table goes along, which is what collecting needs;
    without it the separator holds probabilities.
    """
    begin = layout.separator_at[h >> _U1]
    states = layout.separator_at[(h >> _U1) + _U1] - begin
    total = _sum_clique(layout, tables, layout.sender[h], layout.sender_map[h], states, work)
    scale = 1.0 if keep_mass else 1.0 / total
    for x in range(states):
        new = work[x] * scale
        old = tables.s[begin + x]
        tables.s[begin + x] = new
        work[x] = new / old if old > 0.0 else 0.0
    _multiply_clique(layout, tables, layout.receiver[h], layout.receiver_map[h], work)


@njit(cache=True, error_model="numpy", inline="always")
def _factor_marginal(layout, tables, a, work):
    """Probabilities of a factor's states in its clique; answers how many states there are."""
    states = layout.factor_at[a + _U1] - layout.factor_at[a]
    total = _sum_clique(layout, tables, layout.home[a], layout.factor_map[a], states, work)
    scale = 1.0 / total
    for x in range(states):
        work[x] *= scale
    return states


@njit(cache=True, error_model="numpy", inline="always")
def _scale_factor(layout, tables, a, factor):
    """Multiply a factor into its clique."""
    _multiply_clique(layout, tables, layout.home[a], layout.factor_map[a], factor)


@njit(cache=True, error_model="numpy", inline="always")
def _scale_table(layout, tables, a, targets, weights, work):
    """Scale one factor to its target (6.6, 6.7); answers (distance before, gain, possible)."""
    states = _factor_marginal(layout, tables, a, work)
    begin = layout.factor_at[a]
    distance = 0.0
    gain = 0.0
    possible = True
    for x in range(states):
        target = targets[begin + x]
        present = work[x]
        distance = max(distance, abs(target - present))
        if present > 0.0:
            ratio = target / present
            if target > 0.0:
                step = np.log(ratio)
                gain += target * step
                weights[begin + x] += step
            else:
                weights[begin + x] = -np.inf
            work[x] = ratio
        else:
            possible = possible and target == 0.0
            work[x] = 0.0
    _scale_factor(layout, tables, a, work)
    return distance, gain, possible


@njit(cache=True, error_model="numpy")
def ups_sweep(layout, tables, walk, targets, active, weights, work, features):
    """A walk that scales every active factor of a clique at its first visit (Algorithm 6.1).

    Scaling again when the walk comes back saves no sweeps. `features` is None, or `(columns, theta,
    present)`: `targets` are then those of the features.

    Answers (largest distance from a target at a visit, gain of the log-likelihood or with features
    change of log Z, the factor whose target is impossible or -1, propagations, scalings).
    """
    distance = 0.0
    gain = 0.0
    propagations = 0
    scalings = 0
    for t in range(np.uint64(walk.visits.size)):
        c = walk.visits[t]
        for k in range(layout.clique_factors_at[c], layout.clique_factors_at[c + _U1]):
            a = layout.clique_factors[k]
            if active[a] and walk.first[t]:
                if features is None:
                    off, more, possible = _scale_table(layout, tables, a, targets, weights, work)
                else:
                    off, more, possible = _scale_features(
                        layout, tables, a, features, targets, weights, work
                    )
                if not possible:
                    return distance, gain, np.int64(a), propagations, scalings
                distance = max(distance, off)
                gain += more
                scalings += 1
        if walk.messages[t] != NO_MESSAGE:
            _send(layout, tables, walk.messages[t], False, work)
            propagations += 1
    return distance, gain, -1, propagations, scalings


@njit(cache=True, error_model="numpy")
def ipf_sweep(layout, tables, targets, active, weights, stack, work):
    """Effective IPF: after each scaling all other cliques of its tree are told (6.12).

    Answers as `ups_sweep`.
    """
    distance = 0.0
    gain = 0.0
    propagations = 0
    scalings = 0
    for a in range(np.uint64(layout.home.size)):
        if not active[a]:
            continue
        off, more, possible = _scale_table(layout, tables, a, targets, weights, work)
        if not possible:
            return distance, gain, np.int64(a), propagations, scalings
        distance = max(distance, off)
        gain += more
        scalings += 1
        propagations += _distribute(layout, tables, layout.home[a], stack, work)
    return distance, gain, -1, propagations, scalings


@njit(cache=True, error_model="numpy", inline="always")
def _distribute(layout, tables, root, stack, work):
    """Propagate outwards from a clique; `stack` holds two entries per clique."""
    count = 0
    size = _U1
    stack[0, 0] = root
    stack[0, 1] = NO_MESSAGE
    while size > _U0:
        size -= _U1
        c = stack[size, 0]
        came = stack[size, 1]
        for k in range(layout.outgoing_at[c], layout.outgoing_at[c + _U1]):
            h = layout.outgoing[k]
            if h != came:
                _send(layout, tables, h, False, work)
                count += 1
                stack[size, 0] = layout.receiver[h]
                stack[size, 1] = h ^ _U1
                size += _U1
    return count


@njit(cache=True, error_model="numpy")
def calibrate(layout, tables, roots, down, work):
    """Collect and distribute; answers log of the mass that the tables had together.

    `down` are the messages from the roots outwards. Tables must be relative to their separators.
    """
    count = np.uint64(down.size)
    for k in range(count):
        _send(layout, tables, down[count - _U1 - k] ^ _U1, True, work)
    log_mass = 0.0
    for k in range(np.uint64(roots.size)):
        begin, end = layout.clique_at[roots[k]], layout.clique_at[roots[k] + _U1]
        mass = 0.0
        for i in range(begin, end):
            mass += tables.p[i]
        log_mass += np.log(mass)
        for i in range(begin, end):
            tables.p[i] /= mass
    for k in range(count):
        _send(layout, tables, down[k], False, work)
    return log_mass


@njit(cache=True, error_model="numpy")
def scale_all(layout, tables, steps, active, work):
    """Multiply every active factor's clique by exp of its steps."""
    for a in range(np.uint64(layout.home.size)):
        if active[a]:
            begin = layout.factor_at[a]
            for x in range(layout.factor_at[a + _U1] - begin):
                work[x] = np.exp(steps[begin + x])
            _scale_factor(layout, tables, a, work)


@njit(cache=True, error_model="numpy")
def factor_marginals(layout, tables, out, work):
    """Probabilities of all factors, laid out as their tables."""
    for a in range(np.uint64(layout.home.size)):
        states = _factor_marginal(layout, tables, a, work)
        for x in range(states):
            out[layout.factor_at[a] + x] = work[x]


# ---------------------------------------------------------------------- features


@njit(cache=True, error_model="numpy", inline="always")
def _moment(present, begin, states, columns, at, delta):
    """E[s e^(t delta)] of one feature and its derivative; t is the sum of the factor's features."""
    value = 0.0
    slope = 0.0
    for x in range(states):
        s = columns.values[at + x]
        if s > 0.0 and present[x] > 0.0:
            t = columns.total[begin + x]
            term = present[x] * s * np.exp(t * delta)
            value += term
            slope += term * t
    return value, slope


@njit(cache=True, error_model="numpy")
def improved_step(present, begin, states, columns, at, target):
    """delta with E[s e^(t delta)] = target > 0 (2.54): Newton on the log, kept inside a bracket.

    log of the left side is increasing and convex in delta, so Newton from any point lands at or
    above the root and then falls to it.
    """
    low = -np.inf
    high = np.inf
    delta = 0.0
    wanted = np.log(target)
    for _ in range(_NEWTON_STEPS):
        value, slope = _moment(present, begin, states, columns, at, delta)
        if value == 0.0:
            return np.nan
        if np.isfinite(value):
            off = np.log(value) - wanted
            new = delta - off * value / slope
        else:
            off = np.inf
            new = np.inf
        if off > 0.0:
            high = min(high, delta)
        else:
            low = max(low, delta)
        if abs(off) <= _NEWTON_TOL:
            break
        if not low < new < high and np.isfinite(low) and np.isfinite(high):
            new = 0.5 * (low + high)
        if new == delta:
            break
        delta = new
    return delta


@njit(cache=True, error_model="numpy", inline="always")
def _scale_features(layout, tables, a, features, targets, weights, work):
    """Improve the features of one factor at once (2.54 with U the factor's own features).

    Answers (largest distance from a target before, change of log Z, possible).
    """
    columns, theta, present = features
    states = _factor_marginal(layout, tables, a, present)
    begin = layout.factor_at[a]
    distance = 0.0
    possible = True
    for x in range(states):
        work[x] = 0.0
    for k in range(columns.order_at[a], columns.order_at[a + _U1]):
        i = columns.order[k]
        at = columns.value_at[k]
        value, _ = _moment(present, begin, states, columns, at, 0.0)
        distance = max(distance, abs(targets[i] - value))
        if targets[i] > 0.0:
            delta = improved_step(present, begin, states, columns, at, targets[i])
            if np.isnan(delta):
                possible = False
            else:
                theta[i] += delta
                for x in range(states):
                    work[x] += delta * columns.values[at + x]
        elif value > 0.0:
            theta[i] = -np.inf
            for x in range(states):
                if columns.values[at + x] > 0.0:
                    work[x] = -np.inf
    mass = 0.0
    for x in range(states):
        weights[begin + x] += work[x]
        work[x] = np.exp(work[x])
        mass += present[x] * work[x]
    if mass > 0.0:
        _scale_factor(layout, tables, a, work)
    return distance, np.log(mass), possible and mass > 0.0
