"""Compiled loops of `appearances`: forests, their orientations, and flows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.compiled import njit
from kikuchi.graphs.kernels.disjoint_sets import find_root

_TINY = 1e-14


@njit(cache=True, error_model="numpy")
def grow_forest(scope_offsets, scopes, n, order, chosen):
    """Add factors in `order` whose variables are still in different trees."""
    above = np.arange(n)
    for position in range(order.size):
        a = order[position]
        lo, hi = scope_offsets[a], scope_offsets[a + 1]
        free = True
        for k in range(lo + 1, hi):
            root = find_root(above, np.int64(scopes[k]))
            for j in range(lo, k):
                if find_root(above, np.int64(scopes[j])) == root:
                    free = False
        chosen[a] = free
        if free:
            root = find_root(above, np.int64(scopes[lo]))
            for k in range(lo + 1, hi):
                above[find_root(above, np.int64(scopes[k]))] = root


@njit(cache=True, error_model="numpy")
def hang(scope_offsets, scopes, variable_offsets, variable_edges, edge_factors, chosen, parents):
    """Compute the probability that each variable is the parent of each chosen factor, for a uniform
    root.

    It is the fraction of the variables of the tree on the variable's side of the factor.
    """
    n = variable_offsets.size - 1
    order = np.empty(n, np.int64)
    above = np.full(n, -1, np.int64)  # the edge through which a variable was reached
    seen = np.zeros(n, np.bool_)
    size = np.ones(n)
    tree = np.empty(n, np.int64)
    trees = 0
    tail = 0
    head = 0
    for start in range(n):
        if seen[start]:
            continue
        seen[start] = True
        order[tail] = start
        tail += 1
        while head < tail:
            v = order[head]
            head += 1
            tree[v] = trees
            for i in range(variable_offsets[v], variable_offsets[v + 1]):
                e = variable_edges[i]
                a = np.int64(edge_factors[e])
                if not chosen[a] or (above[v] >= 0 and np.int64(edge_factors[above[v]]) == a):
                    continue
                for k in range(scope_offsets[a], scope_offsets[a + 1]):
                    w = np.int64(scopes[k])
                    if w != v:
                        seen[w] = True
                        above[w] = k
                        order[tail] = w
                        tail += 1
        trees += 1
    total = np.zeros(trees)
    for v in range(n):
        total[tree[v]] += 1.0
    below = np.zeros(scope_offsets.size - 1)  # variables under each factor
    for e in range(parents.size):
        parents[e] = 0.0
    for back in range(n):
        v = order[n - 1 - back]
        for i in range(variable_offsets[v], variable_offsets[v + 1]):
            e = np.int64(variable_edges[i])
            a = np.int64(edge_factors[e])
            if chosen[a] and e != above[v]:
                parents[e] = 1.0 - below[a] / total[tree[v]]
                size[v] += below[a]
        if above[v] >= 0:
            parents[above[v]] = size[v] / total[tree[v]]
            below[np.int64(edge_factors[above[v]])] += size[v]


@njit(cache=True, error_model="numpy")
def selected_inverse(indptr, indices, lower, diagonal, out, out_diagonal):
    """Entries of A^-1 where L has entries, for A = L D L^T with unit lower L (Takahashi).

    `indices` are the rows below the diagonal, sorted in each column. In column j, with S the rows
    of L there, Z_ij = -sum_{k in S} Z_ik L_kj and Z_jj = 1 / D_j - sum_{k in S} Z_kj L_kj.
    """
    n = diagonal.size
    value = np.zeros(n)
    inside = np.full(n, -1, np.int64)
    for back in range(n):
        j = n - 1 - back
        lo, hi = indptr[j], indptr[j + 1]
        for p in range(lo, hi):
            inside[indices[p]] = p
            value[indices[p]] = 0.0
        for p in range(lo, hi):
            k = indices[p]
            value[k] -= lower[p] * out_diagonal[k]
            for q in range(indptr[k], indptr[k + 1]):
                i = indices[q]
                if lo <= inside[i] < hi:
                    value[i] -= lower[p] * out[q]
                    value[k] -= lower[inside[i]] * out[q]
        total = 1.0 / diagonal[j]
        for p in range(lo, hi):
            out[p] = value[indices[p]]
            total -= lower[p] * out[p]
        out_diagonal[j] = total


class EdgeSlots(NamedTuple):
    """Edges from both ends: slot 2e is edge e seen from its first end, 2e + 1 from its second. The
    slots of node v are `slots[starts[v]:starts[v + 1]]`, and `other` is the node at the far end.
    """

    starts: Ints
    slots: Ints
    other: Ints


class EdgeLoads(NamedTuple):
    """The part of its edge's weight that each slot bears, the load of each node, and how much a
    node may bear.
    """

    share: Array
    load: Array
    most: Array


@njit(cache=True, error_model="numpy")
def _push_away(root, capacity, edges, loads, reached, through):
    """Push excess flow from `root` along residual edges; return the remaining excess.

    On return `reached` marks all reachable variables.
    """
    starts, slots, other = edges.starts, edges.slots, edges.other
    share, load, most = loads.share, loads.load, loads.most
    n = load.size
    queue = np.empty(n, np.int64)
    while load[root] - capacity > _TINY:
        reached[:] = False
        reached[root] = True
        queue[0] = root
        head, tail = 0, 1
        goal = -1
        while head < tail and goal < 0:
            v = queue[head]
            head += 1
            for i in range(starts[v], starts[v + 1]):
                s = slots[i]
                w = other[s]
                if share[s] > _TINY and not reached[w]:
                    reached[w] = True
                    through[w] = s
                    if most[w] - load[w] > _TINY:
                        goal = w
                        break
                    queue[tail] = w
                    tail += 1
        if goal < 0:
            break
        amount = min(load[root] - capacity, most[goal] - load[goal])
        v = goal
        while v != root:
            amount = min(amount, share[through[v]])
            v = other[through[v] ^ 1]
        v = goal
        while v != root:
            s = through[v]
            share[s] -= amount
            share[s ^ 1] += amount
            v = other[s ^ 1]
        load[root] -= amount
        load[goal] += amount
    return load[root] - capacity


@njit(cache=True, error_model="numpy")
def orient(roots, edges, loads, tolerance, mean, reached):
    """Average, over roots, a split of every edge's weight in which no variable receives more than 1
    and the root nothing. Returns a root without such a split (then `reached` is a violating set),
    or -1.
    """
    n = loads.load.size
    through = np.empty(n, np.int64)
    for v in range(n):
        if _push_away(v, 1.0, edges, loads, reached, through) > tolerance:
            return v
    for position in range(roots.size):
        r = roots[position]
        loads.most[r] = 0.0
        left = _push_away(r, 0.0, edges, loads, reached, through)
        loads.most[r] = 1.0
        if left > tolerance:
            return r
        for s in range(mean.size):
            mean[s] += loads.share[s] / roots.size
    return -1
