"""Covariance of the Markov tree that shares most information with some beliefs.

Pair marginals that agree on single variables define a Markov tree on any tree of pairs. Chosen by
mutual information (Chow and Liu), it joins variables that can only move together, so that its
covariance is a good metric for moving many marginals at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.compiled import njit
from kikuchi.graphs.kernels.disjoint_sets import find_root


class FactorPairs(NamedTuple):
    """All pairs of variables that share a factor: the factor, two of its edges and their variables.

    The marginal of pair k is `pairs[pair_at[k] : pair_at[k + 1]]`.
    """

    factor: NDArray[np.int64]
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    one: NDArray[np.int64]
    two: NDArray[np.int64]
    pair_at: NDArray[np.int64]
    pairs: NDArray[np.float64]


class MarkovTree(NamedTuple):
    """Pairs of a forest from the roots outwards, whether the second variable of each is the parent,
    and the marginals of single variables by `state_at`.
    """

    pair: NDArray[np.int64]
    flipped: NDArray[np.uint8]
    marginals: NDArray[np.float64]
    state_at: NDArray[Any]


@njit(cache=True, error_model="numpy")
def pair_marginals(pairs_of, layout, tables, shared):
    """Marginals of pairs of a factor's variables and their mutual information, from its belief.

    `layout` is a `MessageLayout`, `tables` are the beliefs of all factors.
    """
    factor, first, second, _, _, pair_at, pairs = pairs_of
    scope_at, table_at, at, _, _, _, _ = layout
    for k in range(factor.size):
        a = np.int64(factor[k])
        one, two = np.int64(first[k]), np.int64(second[k])
        rows, cols = np.int64(at[one + 1] - at[one]), np.int64(at[two + 1] - at[two])
        inner_one, inner_two = np.int64(1), np.int64(1)
        for e in range(one + 1, np.int64(scope_at[a + 1])):
            inner_one *= np.int64(at[e + 1] - at[e])
        for e in range(two + 1, np.int64(scope_at[a + 1])):
            inner_two *= np.int64(at[e + 1] - at[e])
        joint = pairs[pair_at[k] : pair_at[k + 1]].reshape((rows, cols))
        joint[:] = 0.0
        begin = np.int64(table_at[a])
        for i in range(np.int64(table_at[a + 1]) - begin):
            joint[(i // inner_one) % rows, (i // inner_two) % cols] += tables[begin + i]
        shared[k] = information(joint)


@njit(cache=True, error_model="numpy")
def information(joint):
    """Mutual information of a table of probabilities."""
    total = 0.0
    for x in range(joint.shape[0]):
        for y in range(joint.shape[1]):
            if joint[x, y] > 0.0:
                total += joint[x, y] * np.log(joint[x, y] / (joint[x].sum() * joint[:, y].sum()))
    return total


@njit(cache=True, error_model="numpy")
def spanning_forest(order, one, two, n):
    """Kruskal: pairs of `order` that close no cycle, then sorted from the roots outwards.

    Answers for each pair of the forest its number and whether its second variable is the parent.
    """
    parent = np.arange(n)
    taken = np.zeros(order.size, np.int64)
    count = 0
    degree = np.zeros(n + 1, np.int64)
    for k in order:
        r, s = find_root(parent, one[k]), find_root(parent, two[k])
        if r != s:
            parent[r] = s
            taken[count] = k
            count += 1
            degree[one[k] + 1] += 1
            degree[two[k] + 1] += 1
    begin = np.cumsum(degree)
    free = begin[:-1].copy()
    near = np.empty(2 * count, np.int64)
    for t in range(count):
        k = taken[t]
        near[free[one[k]]] = k
        free[one[k]] += 1
        near[free[two[k]]] = k
        free[two[k]] += 1
    pair = np.empty(count, np.int64)
    flipped = np.empty(count, np.uint8)
    seen = np.zeros(n, np.uint8)
    queue = np.empty(n, np.int64)
    done = 0
    for root in range(n):
        if seen[root]:
            continue
        seen[root] = 1
        queue[0] = root
        head, tail = 0, 1
        while head < tail:
            v = queue[head]
            head += 1
            for i in range(begin[v], begin[v + 1]):
                k = near[i]
                other = two[k] if one[k] == v else one[k]
                if seen[other]:
                    continue
                seen[other] = 1
                pair[done] = k
                flipped[done] = 1 if two[k] == v else 0
                done += 1
                queue[tail] = other
                tail += 1
    return pair, flipped


@njit(cache=True, error_model="numpy", inline="always")
def _sum_below(y, above, below, flipped, pairs, at, weight, first):
    """Sum over the child's states of P(y, x) times its `weight`, y a state of the parent."""
    total = 0.0
    for x in range(below):
        entry = x * above + y if flipped else y * below + x
        total += pairs[at + entry] * weight[first + x]
    return total


@njit(cache=True, error_model="numpy")
def covariance_times(vector, pairs_of, tree):
    """C v of the indicators of all states: v is gathered at the roots, then spread out again."""
    _, _, _, one, two, pair_at, pairs = pairs_of
    pair, flipped, marginals, state_at = tree
    weight = vector.copy()
    out = np.empty_like(vector)
    for t in range(pair.size - 1, -1, -1):
        k = pair[t]
        up, down = (two[k], one[k]) if flipped[t] else (one[k], two[k])
        above, below = state_at[up + 1] - state_at[up], state_at[down + 1] - state_at[down]
        at, first = pair_at[k], state_at[down]
        for y in range(above):
            mass = marginals[state_at[up] + y]
            if mass > 0.0:
                total = _sum_below(y, above, below, flipped[t], pairs, at, weight, first)
                weight[state_at[up] + y] += total / mass
    for v in range(state_at.size - 1):  # right at the roots, written over elsewhere
        begin, end = state_at[v], state_at[v + 1]
        mean = 0.0
        for i in range(begin, end):
            mean += marginals[i] * weight[i]
        for i in range(begin, end):
            out[i] = marginals[i] * (weight[i] - mean)
    for t in range(pair.size):
        k = pair[t]
        up, down = (two[k], one[k]) if flipped[t] else (one[k], two[k])
        above, below = state_at[up + 1] - state_at[up], state_at[down + 1] - state_at[down]
        at, first = pair_at[k], state_at[down]
        for x in range(below):
            out[first + x] = 0.0
        for y in range(above):
            mass = marginals[state_at[up] + y]
            if mass > 0.0:
                total = _sum_below(y, above, below, flipped[t], pairs, at, weight, first)
                moved = (out[state_at[up] + y] - total) / mass
                for x in range(below):
                    entry = x * above + y if flipped[t] else y * below + x
                    out[first + x] += pairs[at + entry] * (moved + weight[first + x])
    return out
