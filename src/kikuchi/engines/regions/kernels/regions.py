"""The two updates of the region engine: *propagate* along an edge, *scale* to agreement.

Tables of all regions lie end to end in `b`, as probabilities, at `table_at`. A link is a pair
(large region, small region inside it); `map_at` says where in `maps` the small state of each large
state stands. Zeros are kept: an entry that is 0 stays 0, and none becomes 0 by underflow, because
positive entries are not let below a floor.

Reference: LIU-D7, LIU-I13, TEH-I10.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import U4, U8, Array
from kikuchi.core.compiled import njit

FLOOR = 1e-200

_U1 = np.uint64(1)


class RegionLinks(NamedTuple):
    """Where the table of each region begins, and pairs of nested regions: the large one, the small
    one, and where the map of states begins.
    """

    table_at: U8
    large: U8
    small: U8
    map_at: U8
    maps: U4


class RegionMessages(NamedTuple):
    """The link of each message from a parent to a child, and the links to the beliefs that it
    enters, end to end from `at`.
    """

    edge_link: U8
    at: U8
    receivers: U8


class InnerRegions(NamedTuple):
    """Regions that are not roots, and the links of each to the roots around it, end to end from
    `link_at`.

    `weight` is the convex part of the counting number, `concave` the rest, divided among the roots;
    the messages from the roots stand end to end from `message_at`.
    """

    region: U8
    link_at: U8
    links: U8
    message_at: U8
    weight: Array
    concave: Array


class RegionEnergy(NamedTuple):
    """Terms of the region free energy: log-tables, counting numbers, the messages from parents,
    and the share of each parent in a child's belief.
    """

    log_phi: Array
    counting: Array
    edge_link: U8
    shares: Array


@njit(cache=True, error_model="numpy", inline="always")
def sum_down(b, begin, end, maps, map_at, out, states):
    """Sum a large table down to a small one; answers the total."""
    for x in range(states):
        out[x] = 0.0
    total = 0.0
    for i in range(end - begin):
        value = b[begin + i]
        out[maps[map_at + i]] += value
        total += value
    return total


@njit(cache=True, error_model="numpy", inline="always")
def marginal(b, begin, end, maps, map_at, out, states):
    """Sum a large table down to a small one, normalised; answers the total before."""
    total = sum_down(b, begin, end, maps, map_at, out, states)
    scale = 1.0 / total
    for x in range(states):
        out[x] *= scale
    return total


@njit(cache=True, error_model="numpy", inline="always")
def multiply(b, begin, end, maps, map_at, factor):
    """Multiply a large table by a function of the small state and normalise it."""
    total = 0.0
    for i in range(end - begin):
        value = b[begin + i] * factor[maps[map_at + i]]
        b[begin + i] = value
        total += value
    scale = 1.0 / total
    for i in range(begin, end):
        value = b[i] * scale
        b[i] = value if value > FLOOR or value == 0.0 else FLOOR


@njit(cache=True, error_model="numpy", inline="always")
def _ratio(wanted, b, begin, states, damping, factor):
    """factor = (wanted / b)^(1 - damping) with 0 / 0 = 1; answers the largest difference."""
    change = 0.0
    for x in range(states):
        old = b[begin + x]
        new = wanted[x]
        change = max(change, abs(new - old))
        if new > 0.0 and old > 0.0:
            factor[x] = new / old
            if damping > 0.0:
                factor[x] = factor[x] ** (1.0 - damping)
        elif new == 0.0 and old > 0.0:
            factor[x] = 0.0
        else:
            factor[x] = 1.0
    return change


@njit(cache=True, error_model="numpy", inline="always")
def _apply(receivers, span, child, table_at, links, b, factor, states):
    """Put the change of one message into every belief that it enters: those of a span."""
    begin = table_at[child]
    total = 0.0
    for x in range(states):
        b[begin + x] *= factor[x]
        total += b[begin + x]
    for x in range(states):
        if b[begin + x] > 0.0:
            b[begin + x] = max(b[begin + x] / total, FLOOR)
    for k in range(span[0], span[1]):
        link = receivers[k]
        region = links.large[link]
        at = links.map_at[link]
        multiply(b, table_at[region], table_at[region + _U1], links.maps, at, factor)


@njit(cache=True, error_model="numpy", inline="always")
def _wanted(link, table_at, links, b, wanted):
    """The marginal of a parent's belief on its child, and the child with the size of its table."""
    parent = links.large[link]
    child = links.small[link]
    states = table_at[child + _U1] - table_at[child]
    begin, end = table_at[parent], table_at[parent + _U1]
    marginal(b, begin, end, links.maps, links.map_at[link], wanted, states)
    return child, states


@njit(cache=True, error_model="numpy")
def propagate(links, edges, b, damping, visits, renewals, work):
    """One sweep of parent-to-child generalised belief propagation over the `edges` in `visits`.

    Equating the parent's marginal with the child's belief and cancelling what both contain gives
    m_new = m_old * marginal(b_parent) / b_child; the quotient is put into every belief that the
    message enters: the child, and the regions above it that are not above the parent. The visits
    that are `renewals` are not damped. `work` has two rows.
    """
    table_at = links.table_at
    edge_link, receiver_at, receivers = edges
    residual = 0.0
    wanted, factor = work[0], work[1]
    for k in range(visits.size):
        edge = np.uint64(visits[k])
        child, states = _wanted(edge_link[edge], table_at, links, b, wanted)
        kept = 0.0 if renewals[k] else damping
        residual = max(residual, _ratio(wanted, b, table_at[child], states, kept, factor))
        span = (receiver_at[edge], receiver_at[edge + _U1])
        _apply(receivers, span, child, table_at, links, b, factor, states)
    return residual


@njit(cache=True, error_model="numpy")
def propagate_together(links, edges, b, damping, work):
    """As `propagate`, over all edges at once: `work` has a row for each, and one more."""
    table_at = links.table_at
    edge_link, receiver_at, receivers = edges
    residual = 0.0
    wanted = work[edge_link.size]
    for edge in range(np.uint64(edge_link.size)):
        child, states = _wanted(edge_link[edge], table_at, links, b, wanted)
        begin = table_at[child]
        residual = max(residual, _ratio(wanted, b, begin, states, damping, work[edge]))
    for edge in range(np.uint64(edge_link.size)):
        child = links.small[edge_link[edge]]
        states = table_at[child + _U1] - table_at[child]
        span = (receiver_at[edge], receiver_at[edge + _U1])
        _apply(receivers, span, child, table_at, links, b, work[edge], states)
    return residual


@njit(cache=True, error_model="numpy")
def scale(links, around, b, messages, work):
    """One sweep that makes all roots agree on each inner region in turn (double loop, inner part).

    For an inner region with n roots around it, mu_j = marginal(b_j) / message_j; the common belief
    is prop. to (prod_j mu_j)^(1 / (n + weight)), and each root is scaled to it. The tangent of the
    concave part is inside the tables. `around` are the `InnerRegions`; returns the largest change
    of a common belief.
    """
    table_at, large, _, map_at, maps = links
    inner, link_of_inner_at, inner_links, message_at, weight, _ = around
    residual = 0.0
    for k in range(np.uint64(inner.size)):
        region = inner[k]
        begin = table_at[region]
        states = table_at[region + _U1] - begin
        lo = link_of_inner_at[k]
        count = link_of_inner_at[k + _U1] - lo
        common = work[count]
        for x in range(states):
            common[x] = 0.0
        for j in range(count):
            link = inner_links[lo + j]
            root = large[link]
            marginal(b, table_at[root], table_at[root + _U1], maps, map_at[link], work[j], states)
            for x in range(states):
                if work[j, x] > 0.0:
                    common[x] += np.log(work[j, x]) - messages[message_at[k] + j * states + x]
                else:
                    common[x] = -np.inf
        exponent = 1.0 / (float(count) + weight[k])
        top = -np.inf
        for x in range(states):
            top = max(top, common[x])
        total = 0.0
        for x in range(states):
            common[x] = np.exp((common[x] - top) * exponent)
            total += common[x]
        for x in range(states):
            value = common[x] / total
            if common[x] > 0.0:
                value = max(value, FLOOR)
            residual = max(residual, abs(value - b[begin + x]))
            b[begin + x] = value
        for j in range(count):
            link = inner_links[lo + j]
            root = large[link]
            for x in range(states):
                if b[begin + x] > 0.0 and work[j, x] > 0.0:
                    step = b[begin + x] / work[j, x]
                    messages[message_at[k] + j * states + x] += np.log(step)
                    work[j, x] = step
                else:
                    work[j, x] = 0.0
            multiply(b, table_at[root], table_at[root + _U1], maps, map_at[link], work[j])
    return residual


@njit(cache=True, error_model="numpy")
def relinearise(links, around, b, old, work):
    """The outer step: move the tangent of the concave part to the present beliefs.

    Each root around an inner region is multiplied by (b_new / b_old)^concave, where `concave` is
    the negative counting number of the region divided among its roots.
    """
    table_at, large, _, map_at, maps = links
    inner, link_of_inner_at, inner_links, _, _, concave = around
    for k in range(np.uint64(inner.size)):
        region = inner[k]
        begin = table_at[region]
        states = table_at[region + _U1] - begin
        if concave[k] > 0.0:
            for x in range(states):
                if old[begin + x] > 0.0 and b[begin + x] > 0.0:
                    work[0, x] = (b[begin + x] / old[begin + x]) ** concave[k]
                else:
                    work[0, x] = 1.0
            for j in range(link_of_inner_at[k], link_of_inner_at[k + _U1]):
                root = large[inner_links[j]]
                multiply(
                    b, table_at[root], table_at[root + _U1], maps, map_at[inner_links[j]], work[0]
                )
        for x in range(states):
            old[begin + x] = b[begin + x]


@njit(cache=True, error_model="numpy")
def free_energy(table_at, b, log_phi, counting):
    """sum_r c_r sum_x b_r (log b_r - log phi_r)."""
    energy = 0.0
    for r in range(np.uint64(counting.size)):
        own = 0.0
        for i in range(table_at[r], table_at[r + _U1]):
            if b[i] > 0.0:
                own += b[i] * (np.log(b[i]) - log_phi[i])
        energy += counting[r] * own
    return energy


@njit(cache=True, error_model="numpy")
def disagreement(links, edge_link, b, work):
    """Largest difference between a region's belief and a parent's marginal."""
    table_at, large, small, map_at, maps = links
    worst = 0.0
    for edge in range(np.uint64(edge_link.size)):
        link = edge_link[edge]
        parent = large[link]
        begin = table_at[small[link]]
        states = table_at[small[link] + _U1] - begin
        marginal(b, table_at[parent], table_at[parent + _U1], maps, map_at[link], work[0], states)
        for x in range(states):
            worst = max(worst, abs(work[0, x] - b[begin + x]))
    return worst


@njit(cache=True, error_model="numpy")
def _softmax(b, begin, end, logits_alive):
    """Turn logits into probabilities, in place; entries marked dead are 0."""
    top = -np.inf
    for i in range(begin, end):
        if logits_alive[i] > -np.inf:
            top = max(top, b[i])
    total = 0.0
    for i in range(begin, end):
        b[i] = np.exp(b[i] - top) if logits_alive[i] > -np.inf else 0.0
        total += b[i]
    for i in range(begin, end):
        b[i] /= total
        if logits_alive[i] > -np.inf:
            b[i] = max(b[i], FLOOR)


@njit(cache=True, error_model="numpy")
def penalised_energy(links, terms, n_roots, weight, b, gradient, work):
    """Region free energy plus weighted squared disagreement, and its gradient in root logits.

    On entry the roots' part of `b` holds logits. Edges are sorted by child, large regions first, so
    that a child's belief, the mean of its parents' marginals, is whole before it is used.
    """
    table_at, large, small, map_at, maps = links
    log_phi, counting, edge_link, shares = terms
    for r in range(n_roots):
        _softmax(b, table_at[r], table_at[r + _U1], log_phi)
    b[table_at[n_roots] :] = 0.0
    for edge in range(np.uint64(edge_link.size)):
        link = edge_link[edge]
        parent, child = large[link], small[link]
        begin = table_at[child]
        states = table_at[child + _U1] - begin
        marginal(b, table_at[parent], table_at[parent + _U1], maps, map_at[link], work, states)
        for x in range(states):
            b[begin + x] += shares[child] * work[x]
    value = 0.0
    for r in range(np.uint64(counting.size)):
        for i in range(table_at[r], table_at[r + _U1]):
            gradient[i] = 0.0
            if b[i] > 0.0:
                local = np.log(b[i]) - log_phi[i]
                value += counting[r] * b[i] * local
                gradient[i] = counting[r] * (local + 1.0)
    for back in range(np.uint64(edge_link.size)):
        link = edge_link[np.uint64(edge_link.size) - _U1 - back]
        parent, child = large[link], small[link]
        begin = table_at[child]
        states = table_at[child + _U1] - begin
        at = table_at[parent]
        marginal(b, at, table_at[parent + _U1], maps, map_at[link], work, states)
        for x in range(states):
            difference = work[x] - b[begin + x]
            value += weight * difference * difference
            work[x] = shares[child] * gradient[begin + x] + 2.0 * weight * difference
        for i in range(table_at[parent + _U1] - at):
            gradient[at + i] += work[maps[map_at[link] + i]]
    for r in range(n_roots):
        mean = 0.0
        for i in range(table_at[r], table_at[r + _U1]):
            mean += b[i] * gradient[i]
        for i in range(table_at[r], table_at[r + _U1]):
            gradient[i] = b[i] * (gradient[i] - mean)
    return value
