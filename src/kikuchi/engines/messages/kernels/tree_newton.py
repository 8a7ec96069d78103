"""Newton's method for clamped leaves of a forest.

On a tree with tilted leaves, Q(x) prop. to prod_a phi_a(x_a) prod_l exp tilt_l(x_l), the dual

    D(tilts) = sum_l sum_x c_l(x) tilt_l(x) - log Z(tilts)

is concave, c being the marginals at which the leaves are clamped. Its gradient is g = c - q at the
leaves and minus its Hessian is the covariance C of the leaves' indicators under Q. A damped Newton
step solves (C + mu diag(c)) step = g.

C is dense, but indicators of a Markov tree have the covariance of a linear Gaussian tree: given y_v
the mean of y_u is P(u | v) y_v. So the step is what a Kalman smoother finds that observes the
leaves with noise mu diag(c): one pass up, one down, linear in the size of the tree. Numbers stay
bounded because no covariance is ever inverted alone, only I + (covariance)(information).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.compiled import njit
from kikuchi.engines.messages.kernels.bp_messages import OK, SUM
from kikuchi.engines.messages.kernels.walks import walk

_U1 = np.uint64(1)
_TRIALS = 12  # most shortenings of a step
_OVERSHOOT = 0.0  # a step is too long if the slope at its end is below minus this fraction
_EASIER = 0.1  # of the damping after a whole step
_HARDER = 5.0  # times the damping after a step that had to be shortened twice
_LONGEST = 50.0  # change of a tilt in one step
_LEAST = 1e-13  # damping
_MOST = 1e6


class NewtonPlan(NamedTuple):
    """The core of a forest, tree by tree.

    `tour` has its edges in the order in which they are entered and left, `leaving` says which of
    the two it is, `from_factor` whether an edge is entered from its factor. `leaves` are the edges
    of clamped variables, `edge` and `kind` the updates that refresh all messages of a tree. Each
    `start` says where the entries of each tree begin. `core` marks the edges.
    """

    tour: NDArray[np.uint32]
    leaving: NDArray[np.uint8]
    from_factor: NDArray[np.uint8]
    start: NDArray[np.int64]
    leaves: NDArray[np.uint32]
    leaf_start: NDArray[np.int64]
    edge: NDArray[np.uint32]
    kind: NDArray[np.uint8]
    edge_start: NDArray[np.int64]
    core: NDArray[np.uint8]


class FactorSpace(NamedTuple):
    """Room for one factor: its belief, and the linear system of its children."""

    joint: NDArray[np.float64]
    noise: NDArray[np.float64]
    rate: NDArray[np.float64]
    parents: NDArray[np.float64]
    system: NDArray[np.float64]
    right: NDArray[np.float64]
    place_of: NDArray[np.int64]
    states_of: NDArray[np.int64]
    entry: NDArray[np.int64]


class NewtonSpace(NamedTuple):
    """Room for the steps: by message entry (the first six), and matrices by edge with where each
    begins: `lam` the information that an edge carries, `gain` what a child follows its parent by.
    """

    gradient: NDArray[np.float64]
    tried: NDArray[np.float64]
    step: NDArray[np.float64]
    old: NDArray[np.float64]
    eta: NDArray[np.float64]
    y: NDArray[np.float64]
    lam: NDArray[np.float64]
    lam_at: NDArray[np.int64]
    gain: NDArray[np.float64]
    gain_at: NDArray[np.int64]
    factor: FactorSpace


class TreeProgress(NamedTuple):
    """By tree: the largest mismatch, the number of walks, and the damping of the steps."""

    residual: NDArray[Any]
    walks: NDArray[Any]
    damping: NDArray[Any]


@njit(cache=True, error_model="numpy")
def newton_trees(layout, arrays, clamping, plan, space, trees, limits, mode):
    """Steps on each tree whose residual is above the tolerance; returns the status.

    `limits` are the most steps on a tree and the tolerance, `trees` a `TreeProgress`. A step counts
    as three walks: two for the smoother, and one for each refreshing.
    """
    tour, leaving, from_factor, start, leaves, leaf_start, op_edge, op_kind, op_start, core = plan
    residual, walks, damping = trees
    loops, tol = limits
    at, scopes = layout.at, layout.scopes
    m, nu = arrays.m, arrays.nu
    gradient, tried, step, old = space.gradient, space.tried, space.step, space.old
    for tree in range(start.size - 1):
        if residual[tree] <= tol:
            continue
        here = leaves[leaf_start[tree] : leaf_start[tree + 1]]
        updates = (op_edge, op_kind, np.uint64(op_start[tree]), np.uint64(op_start[tree + 1]))
        lo, hi = start[tree], start[tree + 1]
        path = (tour[lo:hi], leaving[lo:hi], from_factor, core)
        status, _ = walk(layout, arrays, clamping, updates, mode)
        if status != OK:
            return status
        residual[tree] = leaf_gradient(here, at, scopes, m, nu, clamping, gradient, mode)
        for _ in range(loops):
            if residual[tree] <= tol or damping[tree] >= _MOST:
                break
            smooth(path, layout, arrays, clamping, space, damping[tree], mode)
            slope = along(here, at, gradient, step)
            if not slope > 0.0:
                damping[tree] *= _HARDER
                continue
            for e in here:
                for i in range(at[e], at[e + 1]):
                    old[i] = nu[i]
            length = 1.0
            for e in here:
                for i in range(at[e], at[e + 1]):
                    length = min(length, _LONGEST / max(abs(step[i]), _LONGEST))
            trial = 0
            while True:
                status = tilt_leaves(here, at, old, step, length, nu, mode)
                if status == OK:
                    status, _ = walk(layout, arrays, clamping, updates, mode)
                if status != OK:
                    return status
                worst = leaf_gradient(here, at, scopes, m, nu, clamping, tried, mode)
                after = along(here, at, tried, step)
                trial += 1
                if after >= -_OVERSHOOT * slope or trial == _TRIALS:
                    break
                length *= min(0.5, max(0.1, slope / (slope - after)))
            walks[tree] += 2 + trial
            residual[tree] = worst
            for e in here:
                for i in range(at[e], at[e + 1]):
                    gradient[i] = tried[i]
            if trial == 1:
                damping[tree] = max(_LEAST, _EASIER * damping[tree])
            elif trial > 2:
                damping[tree] *= _HARDER
    return OK


@njit(cache=True, error_model="numpy")
def respond(layout, arrays, clamping, plan, space, changes, mu, mode):
    """How the tilts respond to changes of the clamped marginals, summed by variable.

    For each row of `changes` (one entry per state) returns the sum over trees of
    (C + mu diag(c))^-1 of it. Messages must be refreshed and the trees solved.
    """
    tour, leaving, from_factor, start, leaves, leaf_start, _, _, _, core = plan
    at, scopes, state_at = layout.at, layout.scopes, clamping.state_at
    gradient, step = space.gradient, space.step
    out = np.zeros_like(changes)
    for row in range(changes.shape[0]):
        for tree in range(start.size - 1):
            here = leaves[leaf_start[tree] : leaf_start[tree + 1]]
            moved = 0.0
            for e in here:
                for i in range(at[e], at[e + 1]):
                    gradient[i] = changes[row, state_at[scopes[e]] + (i - at[e])]
                    moved = max(moved, abs(gradient[i]))
            if moved == 0.0:
                continue
            lo, hi = start[tree], start[tree + 1]
            path = (tour[lo:hi], leaving[lo:hi], from_factor, core)
            smooth(path, layout, arrays, clamping, space, mu, mode)
            for e in here:
                for i in range(at[e], at[e + 1]):
                    out[row, state_at[scopes[e]] + (i - at[e])] += step[i]
    return out


# ---------------------------------------------------------------------- leaves


@njit(cache=True, error_model="numpy")
def leaf_gradient(leaves, at, scopes, m, nu, clamping, out, mode):
    """c - q along the leaf edges; answers its largest entry."""
    _, clamped_to, state_at = clamping
    worst = 0.0
    for e in leaves:
        begin, end = at[e], at[e + 1]
        states_at = state_at[scopes[e]]
        top = 0.0
        if mode != SUM:
            top = -np.inf
            for i in range(begin, end):
                top = max(top, nu[i] + m[i])
        total = 0.0
        for i in range(begin, end):
            out[i] = nu[i] * m[i] if mode == SUM else np.exp(nu[i] + m[i] - top)
            total += out[i]
        for i in range(begin, end):
            out[i] = clamped_to[states_at + (i - begin)] - out[i] / total
            worst = max(worst, abs(out[i]))
    return worst


@njit(cache=True, error_model="numpy")
def along(leaves, at, gradient, step):
    """The slope of the dual in the direction of a step."""
    total = 0.0
    for e in leaves:
        for i in range(at[e], at[e + 1]):
            total += gradient[i] * step[i]
    return total


@njit(cache=True, error_model="numpy")
def tilt_leaves(leaves, at, old, step, length, nu, mode):
    """nu = old exp(length step), normalised; answers the status."""
    for e in leaves:
        begin, end = at[e], at[e + 1]
        top = -np.inf
        for i in range(begin, end):
            if mode == SUM:
                nu[i] = np.log(old[i]) + length * step[i] if old[i] > 0.0 else -np.inf
            else:
                nu[i] = old[i] + length * step[i]
            top = max(top, nu[i])
        for i in range(begin, end):
            nu[i] -= top
        if mode == SUM:
            total = 0.0
            for i in range(begin, end):
                if -np.inf < nu[i] < -138.0:  # 1e-60, the floor of other messages
                    return 1
                nu[i] = np.exp(nu[i])
                total += nu[i]
            for i in range(begin, end):
                nu[i] /= total
    return OK


# ---------------------------------------------------------------------- the smoother


@njit(cache=True, error_model="numpy")
def smooth(path, layout, arrays, clamping, space, mu, mode):
    """The damped Newton step of one tree into `step` (one entry per state of each leaf edge).

    `path` is (edges, whether each is left or entered, from_factor, core).
    """
    walked, left, from_factor, core = path
    clamped, clamped_to, state_at = clamping
    scope_at, _, at, variable_at, edges, edge_factor, scopes = layout
    gradient, _, step, _, eta, y, lam, lam_at, gain, gain_at, factor = space
    tables, nu = arrays.tables, arrays.nu
    root = np.int64(edge_factor[walked[0]])
    for position in range(walked.size):
        if not left[position]:
            continue
        e = np.int64(walked[position])
        v = np.int64(scopes[e])
        begin, states = np.int64(at[e]), np.int64(at[e + 1] - at[e])
        if not from_factor[e]:
            a = np.int64(edge_factor[e])
            eliminate(
                a, e, layout, tables, nu, core, eta, y, lam, lam_at, gain, gain_at, factor, mode
            )
            continue
        lam[lam_at[e] : lam_at[e + 1]] = 0.0
        eta[begin : begin + states] = 0.0
        if clamped[v]:
            for x in range(states):
                mass = clamped_to[state_at[v] + np.uint64(x)]
                information = 1.0 / (mu * max(mass, 1e-100)) if mass > 0.0 else 0.0
                lam[lam_at[e] + x * states + x] = information
                eta[begin + x] = information * gradient[begin + x]
            continue
        for i in range(variable_at[v], variable_at[v + 1]):
            f = np.int64(edges[i])
            if f != e and core[f]:
                for k in range(states * states):
                    lam[lam_at[e] + k] += lam[lam_at[f] + k]
                for x in range(states):
                    eta[begin + x] += eta[np.int64(at[f]) + x]
    none = np.int64(-1)
    eliminate(
        root, none, layout, tables, nu, core, eta, y, lam, lam_at, gain, gain_at, factor, mode
    )
    for position in range(walked.size):
        if left[position]:
            continue
        e = np.int64(walked[position])
        v = np.int64(scopes[e])
        begin, states = np.int64(at[e]), np.int64(at[e + 1] - at[e])
        if not from_factor[e]:
            a = np.int64(edge_factor[e])
            for k in range(np.int64(scope_at[a]), np.int64(scope_at[a + 1])):
                if k == e or not core[k]:
                    continue
                for x in range(np.int64(at[k + 1] - at[k])):
                    total = y[np.int64(at[k]) + x]
                    for z in range(states):
                        total += gain[gain_at[k] + x * states + z] * y[begin + z]
                    y[np.int64(at[k]) + x] = total
        elif clamped[v]:
            for x in range(states):
                information = lam[lam_at[e] + x * states + x]
                step[begin + x] = eta[begin + x] - information * y[begin + x]
        else:
            for i in range(variable_at[v], variable_at[v + 1]):
                f = np.int64(edges[i])
                if f != e and core[f]:
                    for x in range(states):
                        y[np.int64(at[f]) + x] = y[begin + x]


@njit(cache=True, error_model="numpy")
def eliminate(
    a, parent, layout, tables, nu, core, eta, y, lam, lam_at, gain, gain_at, factor, mode
):
    """Take in what the children of factor `a` know: lam and eta of the parent edge, and the gains.

    The arrays come one by one: a tuple of them would cost a reference count per array and call.

    With y_c = R y_p + noise of covariance N and the children's information L, eta:
    y_c = (I + N L)^-1 (R y_p + N eta); the parent's is R' L (I + N L)^-1 R and R'(eta - L y_c).
    """
    scope_at, table_at, at, _, _, _, _ = layout
    _, noise, rate, _, system, right, place_of, states_of, _ = factor
    lo, hi = np.int64(scope_at[a]), np.int64(scope_at[a + 1])
    above = np.int64(1) if parent < 0 else np.int64(at[parent + 1] - at[parent])
    size = np.int64(0)
    for k in range(hi - lo):
        states_of[k] = np.int64(at[lo + k + 1] - at[lo + k])
        place_of[k] = -1
        if lo + k != parent and core[lo + k]:
            place_of[k] = size
            size += states_of[k]
    factor_belief(a, layout, tables, nu, factor, mode)
    entries = np.int64(table_at[a + 1] - table_at[a])
    moments(entries, hi - lo, parent - lo, above, size, factor)
    columns = above + 1
    for i in range(size):
        for j in range(size):
            system[i, j] = 1.0 if i == j else 0.0
        for z in range(above):
            right[i, z] = rate[i, z]
        right[i, above] = 0.0
    for k in range(hi - lo):
        at_k = place_of[k]
        if at_k < 0:
            continue
        f, n = lo + k, states_of[k]
        for i in range(size):
            for x in range(n):
                total = 0.0
                for z in range(n):
                    total += noise[i, at_k + z] * lam[lam_at[f] + z * n + x]
                system[i, at_k + x] += total
                right[i, above] += noise[i, at_k + x] * eta[np.int64(at[f]) + x]
    solve(system, right, size, columns)
    if parent >= 0:
        lam[lam_at[parent] : lam_at[parent + 1]] = 0.0
        eta[np.int64(at[parent]) : np.int64(at[parent + 1])] = 0.0
    for k in range(hi - lo):
        at_k = place_of[k]
        if at_k < 0:
            continue
        f, n = lo + k, states_of[k]
        for x in range(n):
            y[np.int64(at[f]) + x] = right[at_k + x, above]
            if parent < 0:
                continue
            for z in range(above):
                gain[gain_at[f] + x * above + z] = right[at_k + x, z]
            weight = eta[np.int64(at[f]) + x]
            for z in range(n):
                weight -= lam[lam_at[f] + x * n + z] * right[at_k + z, above]
            for u in range(above):
                eta[np.int64(at[parent]) + u] += rate[at_k + x, u] * weight
                for w in range(above):
                    total = 0.0
                    for z in range(n):
                        total += lam[lam_at[f] + x * n + z] * right[at_k + z, w]
                    lam[lam_at[parent] + u * above + w] += rate[at_k + x, u] * total
    if parent >= 0:
        for u in range(above):
            for w in range(u):
                one = lam_at[parent] + u * above + w
                two = lam_at[parent] + w * above + u
                lam[one] = lam[two] = 0.5 * (lam[one] + lam[two])


@njit(cache=True, error_model="numpy")
def factor_belief(a, layout, tables, nu, factor, mode):
    """prop. to the table times what its variables send, summing to 1."""
    scope_at, table_at, at, _, _, _, _ = layout
    joint, _, _, _, _, _, _, states_of, entry = factor
    begin, end = np.int64(table_at[a]), np.int64(table_at[a + 1])
    lo, hi = np.int64(scope_at[a]), np.int64(scope_at[a + 1])
    order = hi - lo
    entry[:order] = 0
    top = 0.0 if mode == SUM else -np.inf
    for i in range(end - begin):
        value = tables[begin + i]
        for k in range(order):
            sent = nu[np.int64(at[lo + k]) + entry[k]]
            value = value * sent if mode == SUM else value + sent
        joint[i] = value
        top = max(top, value)
        advance(entry, states_of, order)
    total = 0.0
    for i in range(end - begin):
        joint[i] = joint[i] / top if mode == SUM else np.exp(joint[i] - top)
        total += joint[i]
    for i in range(end - begin):
        joint[i] /= total


@njit(cache=True, error_model="numpy", inline="always")
def advance(entry, states_of, order):
    """The next entry of a table, the last variable fastest."""
    k = order - 1
    while k >= 0:
        entry[k] += 1
        if entry[k] < states_of[k]:
            break
        entry[k] = 0
        k -= 1


@njit(cache=True, error_model="numpy")
def moments(entries, order, parent, above, size, factor):
    """rate = P(child | parent), noise = expected covariance of the children given the parent."""
    joint, noise, rate, parents, _, _, place_of, states_of, entry = factor
    noise[:size, :size] = 0.0
    rate[:size, :above] = 0.0
    parents[:above] = 0.0
    entry[:order] = 0
    for i in range(entries):
        p = joint[i]
        if p > 0.0:
            z = entry[parent] if parent >= 0 else 0
            parents[z] += p
            for k in range(order):
                if place_of[k] < 0:
                    continue
                one = place_of[k] + entry[k]
                rate[one, z] += p
                for j in range(k):
                    if place_of[j] >= 0:
                        noise[one, place_of[j] + entry[j]] += p
        advance(entry, states_of, order)
    for z in range(above):
        if parents[z] > 0.0:
            for i in range(size):
                rate[i, z] /= parents[z]
    for k in range(order):
        if place_of[k] < 0:
            continue
        for one in range(place_of[k], place_of[k] + states_of[k]):
            for j in range(k):
                if place_of[j] < 0:
                    continue
                for two in range(place_of[j], place_of[j] + states_of[j]):
                    for z in range(above):
                        noise[one, two] -= parents[z] * rate[one, z] * rate[two, z]
                    noise[two, one] = noise[one, two]
            for two in range(place_of[k], one):  # off the diagonal first: no cancellation
                total = 0.0
                for z in range(above):
                    total += parents[z] * rate[one, z] * rate[two, z]
                noise[one, two] = noise[two, one] = -total
        for one in range(place_of[k], place_of[k] + states_of[k]):
            total = 0.0
            for two in range(place_of[k], place_of[k] + states_of[k]):
                if two != one:
                    total -= noise[one, two]
            noise[one, one] = total


@njit(cache=True, error_model="numpy")
def solve(system, right, size, columns):
    """Gauss with row pivots, in place; the rows are scaled to a largest entry of 1 first."""
    for i in range(size):
        peak = 0.0
        for j in range(size):
            peak = max(peak, abs(system[i, j]))
        for j in range(size):
            system[i, j] /= peak
        for j in range(columns):
            right[i, j] /= peak
    for k in range(size):
        pivot = k
        for i in range(k + 1, size):
            if abs(system[i, k]) > abs(system[pivot, k]):
                pivot = i
        if pivot != k:
            for j in range(k, size):
                system[k, j], system[pivot, j] = system[pivot, j], system[k, j]
            for j in range(columns):
                right[k, j], right[pivot, j] = right[pivot, j], right[k, j]
        if system[k, k] == 0.0:
            system[k, k] = 1e-300
        for i in range(k + 1, size):
            ratio = system[i, k] / system[k, k]
            if ratio != 0.0:
                for j in range(k + 1, size):
                    system[i, j] -= ratio * system[k, j]
                for j in range(columns):
                    right[i, j] -= ratio * right[k, j]
    for k in range(size - 1, -1, -1):
        for j in range(columns):
            total = right[k, j]
            for i in range(k + 1, size):
                total -= system[k, i] * right[i, j]
            right[k, j] = total / system[k, k]
