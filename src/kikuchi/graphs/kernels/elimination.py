"""Compiled loops of variable elimination: primal graph, greedy orders, degeneracy.

Graphs are adjacency lists in one growing pool. Neighbour lists are sorted; eliminated neighbours
stay in a list until half of it is dead, so that hubs of large degree cost no more than their
neighbours. Weights are integers (fixed-point logarithms), so that their sums do not depend on the
order of summation and ties are exact.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import U4, Ints, Mask
from kikuchi.core.compiled import planner
from kikuchi.core.copying import copy_into
from kikuchi.graphs.kernels.heap import sift

RULES = ("min-fill", "min-degree", "min-weight")


@planner
def primal_graph(n, scopes, scope_offsets):
    """Sorted neighbour lists (offsets, neighbours) of the graph that joins variables in a factor.

    Visiting the variables in order appends to every list in increasing order, so no sorting is
    needed.
    """
    n_factors = len(scope_offsets) - 1
    starts = np.zeros(n + 1, np.int64)
    capacity = np.zeros(n + 1, np.int64)
    for a in range(n_factors):
        order = scope_offsets[a + 1] - scope_offsets[a]
        for e in range(scope_offsets[a], scope_offsets[a + 1]):
            starts[scopes[e] + 1] += 1
            capacity[scopes[e] + 1] += order - 1
    for v in range(n):
        starts[v + 1] += starts[v]
        capacity[v + 1] += capacity[v]
    factor_of = np.empty(len(scopes), np.int64)
    fill = starts[:-1].copy()
    for a in range(n_factors):
        for e in range(scope_offsets[a], scope_offsets[a + 1]):
            factor_of[fill[scopes[e]]] = a
            fill[scopes[e]] += 1
    loose = np.empty(capacity[n], np.uint32)
    end = capacity[:-1].copy()
    for v in range(n):
        for k in range(starts[v], starts[v + 1]):
            a = factor_of[k]
            for e in range(scope_offsets[a], scope_offsets[a + 1]):
                u = scopes[e]
                if u != v and (end[u] == capacity[u] or loose[end[u] - 1] != v):
                    loose[end[u]] = v
                    end[u] += 1
    offsets = np.zeros(n + 1, np.int64)
    for v in range(n):
        offsets[v + 1] = offsets[v] + end[v] - capacity[v]
    neighbours = np.empty(offsets[n], np.uint32)
    for v in range(n):
        copy_into(neighbours, offsets[v], loose, capacity[v], end[v] - capacity[v])
    return offsets, neighbours


@planner
def breadth_first_levels(offsets, neighbours, start):
    """Distance from the far end of the component of `start`, counted from 1; likewise in the
    other components, each from the far end of its first variable.
    """
    n = len(offsets) - 1
    levels = np.zeros(n, np.int64)
    queue = np.empty(n, np.int64)
    for i in range(-1, n):
        root = start if i < 0 else i
        if levels[root]:
            continue
        for again in range(2):
            levels[root] = 1
            queue[0] = root
            head, tail = 0, 1
            while head < tail:
                v = queue[head]
                head += 1
                for k in range(offsets[v], offsets[v + 1]):
                    u = np.int64(neighbours[k])
                    if levels[u] == 0:
                        levels[u] = levels[v] + 1
                        queue[tail] = u
                        tail += 1
            if again == 0:  # restart from the last level, where the degree is smallest
                last = queue[tail - 1]
                k = tail - 1
                while k >= 0 and levels[queue[k]] == levels[queue[tail - 1]]:
                    v = queue[k]
                    if offsets[v + 1] - offsets[v] <= offsets[last + 1] - offsets[last]:
                        last = v
                    k -= 1
                for k in range(tail):
                    levels[queue[k]] = 0
                root = last
    return levels


@planner
def degeneracy(offsets, neighbours):
    """Return the largest minimum degree of any subgraph: no elimination order has a smaller
    width.
    """
    n = len(offsets) - 1
    degree = offsets[1:] - offsets[:-1]
    top = degree.max() if n else 0
    bucket = np.zeros(top + 2, np.int64)
    for v in range(n):
        bucket[degree[v] + 1] += 1
    for d in range(top + 1):
        bucket[d + 1] += bucket[d]
    start = bucket[:-1].copy()
    where = np.empty(n, np.int64)
    nodes = np.empty(n, np.int64)
    for v in range(n):
        where[v] = bucket[degree[v]]
        nodes[where[v]] = v
        bucket[degree[v]] += 1
    best = 0
    for i in range(n):
        v = nodes[i]
        best = max(best, degree[v])
        for k in range(offsets[v], offsets[v + 1]):
            u = np.int64(neighbours[k])
            if degree[u] > degree[v]:  # move u to the front of its bucket, then down one bucket
                first = start[degree[u]]
                w = nodes[first]
                if u != w:
                    nodes[first], nodes[where[u]] = u, w
                    where[w], where[u] = where[u], first
                start[degree[u]] += 1
                degree[u] -= 1
    return best


@planner
def triangle_work(offsets, neighbours):
    """Return the number of steps to count all triangles: the sum of the smaller degree over the
    edges.
    """
    work = 0
    for v in range(len(offsets) - 1):
        mine = offsets[v + 1] - offsets[v]
        for k in range(offsets[v], offsets[v + 1]):
            u = neighbours[k]
            work += min(mine, offsets[u + 1] - offsets[u])
    return work


@planner
def missing_pairs(offsets, neighbours):
    """Return the fill of each variable: the number of pairs of neighbours that are not joined."""
    n = len(offsets) - 1
    fill = np.empty(n, np.int64)
    # Edges point to the larger (degree, number), so no list is longer than sqrt(2 edges), and
    # each triangle is visited once, from its smallest corner.
    upper = np.empty(len(neighbours) // 2, np.int64)
    starts = np.zeros(n + 1, np.int64)
    place = 0
    for v in range(n):
        d = offsets[v + 1] - offsets[v]
        fill[v] = d * (d - 1) // 2
        for k in range(offsets[v], offsets[v + 1]):
            u = np.int64(neighbours[k])
            du = offsets[u + 1] - offsets[u]
            if du > d or (du == d and u > v):
                upper[place] = u
                place += 1
        starts[v + 1] = place
    mark = np.full(n, -1, np.int64)
    for v in range(n):
        for k in range(starts[v], starts[v + 1]):
            mark[upper[k]] = v
        for k in range(starts[v], starts[v + 1]):
            u = upper[k]
            for j in range(starts[u], starts[u + 1]):
                w = upper[j]
                if mark[w] == v:
                    fill[v] -= 1
                    fill[u] -= 1
                    fill[w] -= 1
    return fill


# ---------------------------------------------------------------------- neighbour lists


@planner
def _find(pool, low, high, x):
    """Return the first index in the sorted pool[low:high] whose entry is at least x."""
    while low < high:
        middle = (low + high) >> 1
        if pool[middle] < x:
            low = middle + 1
        else:
            high = middle
    return low


@planner
def _compact(pool, start, length, alive):
    kept = start
    for k in range(start, start + length):
        if alive[pool[k]]:
            pool[kept] = pool[k]
            kept += 1
    return kept - start


@planner
def _reserve(pool, used, v, starts, lengths, capacities, alive):
    """Make room for one more entry in list v: remove dead entries, or move the list to the end of
    the pool.
    """
    lengths[v] = _compact(pool, starts[v], lengths[v], alive)
    if 4 * lengths[v] <= 3 * capacities[v] and lengths[v] < capacities[v]:
        return pool, used
    capacity = 2 * capacities[v] + 4
    if used + capacity > len(pool):
        larger = np.empty(2 * len(pool) + capacity, np.uint32)
        copy_into(larger, 0, pool, 0, used)
        pool = larger
    copy_into(pool, used, pool, starts[v], lengths[v])
    starts[v] = used
    capacities[v] = capacity
    return pool, used + capacity


class PrimalGraph(NamedTuple):
    """Neighbours of each variable, and the weights of all: units of log2 of their states."""

    offsets: Ints
    neighbours: U4
    weights: Ints


class Stop(NamedTuple):
    """Criteria to end an elimination early: a clique heavier than `weight` once more than `effort`
    list entries were read, or a total size of the cliques above `cost`.
    """

    weight: int
    effort: int
    cost: float


class _Lists(NamedTuple):
    """Neighbour lists of the variables: pool[starts[v]:starts[v] + lengths[v]], some of which are
    eliminated; the degree and the fill count of each.
    """

    starts: Ints
    lengths: Ints
    degree: Ints
    alive: Mask
    fill: Ints


class _Touched(NamedTuple):
    """Variables whose keys have changed, and the step in which each was last among them."""

    variables: Ints
    stamps: Ints


@planner
def _insert(pool, start, length, x):
    k = start + length
    while k > start and pool[k - 1] > x:
        pool[k] = pool[k - 1]
        k -= 1
    pool[k] = x


@planner
def _count_marked(pool, start, length, alive, mark, stamp, members, count):
    """Count the marked members (listed, alive) in a list, iterating over the shorter side."""
    found = 0
    if length > 16 * count:
        for k in range(count):
            i = _find(pool, start, start + length, members[k])
            if i < start + length and pool[i] == members[k]:
                found += 1
        return found
    for k in range(start, start + length):
        if mark[pool[k]] == stamp and alive[pool[k]]:
            found += 1
    return found


@planner
def _join(pool, a, b, lists, touched, n_touched, stamp):
    """Update the fill counts when the edge a-b is added; common neighbours lose one each."""
    starts, lengths, degree = lists.starts, lists.lengths, lists.degree
    alive, fill = lists.alive, lists.fill
    touch, found = touched.stamps, touched.variables
    i, i_end = starts[a], starts[a] + lengths[a]
    j, j_end = starts[b], starts[b] + lengths[b]
    common = 0
    while i < i_end and j < j_end:
        x, y = pool[i], pool[j]
        if x < y:
            i += 1
        elif y < x:
            j += 1
        else:
            if alive[x]:
                common += 1
                fill[x] -= 1
                if touch[x] != stamp:
                    touch[x] = stamp
                    found[n_touched] = x
                    n_touched += 1
            i += 1
            j += 1
    fill[a] += degree[a] - common
    fill[b] += degree[b] - common
    return n_touched


# ---------------------------------------------------------------------- greedy elimination


@planner
def eliminate(graph, initial_fill, rule, tie, levels, stop, unit):
    """Eliminate greedily by level, then (fill | degree | weight), then weight, then `tie`.

    With all `levels` zero this is the plain greedy order. Under min-fill, a variable whose
    neighbours are all joined does not wait for its level. `unit` turns weights into powers
    of two.

    Returns (number eliminated, order, offsets and members of the neighbour sets at elimination,
    heaviest clique, widest clique, summed sizes, effort).
    """
    offsets, neighbours, weights = graph.offsets, graph.neighbours, graph.weights
    n = len(offsets) - 1
    with_fill = rule == 0
    starts = np.empty(n, np.int64)
    lengths = offsets[1:] - offsets[:-1]
    capacities = lengths + lengths // 2 + 2
    used = capacities.sum()
    pool = np.empty(used + used // 2 + 64, np.uint32)
    degree = lengths.copy()
    weight = weights.copy()
    place = 0
    for v in range(n):
        starts[v] = place
        for k in range(offsets[v], offsets[v + 1]):
            pool[place + k - offsets[v]] = neighbours[k]
            weight[v] += weights[neighbours[k]]
        place += capacities[v]
    alive = np.ones(n, np.bool_)
    fill = initial_fill.copy()
    first = fill if with_fill else (degree if rule == 1 else weight)
    keys = np.empty((n, 4), np.int64)
    for v in range(n):
        keys[v, 0], keys[v, 1] = -levels[v], -first[v]  # negative: the smallest comes first
        keys[v, 2], keys[v, 3] = -weight[v], -np.int64(tie[v])
        if with_fill and fill[v] == 0:
            keys[v, 0] = 0
    heap = np.arange(n).astype(np.uint32)
    position = np.arange(n).astype(np.uint32)
    for i in range(n):
        sift(heap[: i + 1], position, keys, np.uint64(i))
    mark = np.zeros(n, np.int64)
    touch = np.zeros(n, np.int64)
    touched = np.empty(n, np.int64)
    lists, changed = _Lists(starts, lengths, degree, alive, fill), _Touched(touched, touch)
    nearby = np.empty(n, np.int64)
    order = np.empty(n, np.uint32)
    member_offsets = np.zeros(n + 1, np.int64)
    members = np.empty(4 * n + 64, np.uint32)
    heaviest, widest, cost, effort = 0, 0, 0.0, 0
    done = 0
    while done < n:
        v = int(heap[0])
        heaviest = max(heaviest, weight[v])
        widest = max(widest, degree[v] + 1)
        cost += 2.0 ** (weight[v] * unit)
        if (weight[v] > stop.weight and effort > stop.effort) or cost > stop.cost:
            break
        stamp = done + 1
        last = heap[-1]
        heap = heap[:-1]
        if len(heap):
            heap[0] = last
            sift(heap, position, keys, np.uint64(0))
        alive[v] = False
        d = 0
        for k in range(starts[v], starts[v] + lengths[v]):
            u = np.int64(pool[k])
            if alive[u]:
                nearby[d] = u
                mark[u] = stamp
                d += 1
        effort += lengths[v] + d
        end = member_offsets[done] + d
        if end > len(members):
            larger = np.empty(2 * end, np.uint32)
            copy_into(larger, 0, members, 0, member_offsets[done])
            members = larger
        n_touched = 0
        for i in range(d):
            u = nearby[i]
            members[member_offsets[done] + i] = u
            touch[u] = stamp
            touched[n_touched] = u
            n_touched += 1
        simplicial = with_fill and fill[v] == 0
        for i in range(d):
            u = nearby[i]
            degree[u] -= 1
            weight[u] -= weights[v]
            if with_fill:
                inside = d - 1
                if not simplicial:
                    inside = _count_marked(
                        pool, starts[u], lengths[u], alive, mark, stamp, nearby, d
                    )
                    effort += lengths[u]
                fill[u] -= degree[u] - inside
            if lengths[u] > 2 * degree[u] + 8:
                lengths[u] = _compact(pool, starts[u], lengths[u], alive)
        if not simplicial:
            for i in range(d):
                a = nearby[i]
                for j in range(i + 1, d):
                    b = nearby[j]
                    high = starts[a] + lengths[a]
                    k = _find(pool, starts[a], high, b)
                    if k < high and pool[k] == b:
                        continue
                    if with_fill:
                        n_touched = _join(pool, a, b, lists, changed, n_touched, stamp)
                    effort += lengths[a] + lengths[b]
                    if lengths[a] == capacities[a]:
                        pool, used = _reserve(pool, used, a, starts, lengths, capacities, alive)
                    if lengths[b] == capacities[b]:
                        pool, used = _reserve(pool, used, b, starts, lengths, capacities, alive)
                    _insert(pool, starts[a], lengths[a], b)
                    _insert(pool, starts[b], lengths[b], a)
                    lengths[a] += 1
                    lengths[b] += 1
                    degree[a] += 1
                    degree[b] += 1
                    weight[a] += weights[b]
                    weight[b] += weights[a]
        for i in range(n_touched):
            u = touched[i]
            keys[u, 1], keys[u, 2] = -first[u], -weight[u]
            if with_fill and fill[u] == 0:
                keys[u, 0] = 0
            sift(heap, position, keys, np.uint64(position[u]))
        order[done] = v
        member_offsets[done + 1] = end
        done += 1
    return (
        done,
        order[:done].copy(),
        member_offsets[: done + 1].copy(),
        members[: member_offsets[done]].copy(),
        heaviest,
        widest,
        cost,
        effort,
    )
