"""Elimination in mini-buckets: which variable goes next, and how its functions are grouped.

Functions are the factors of the graph and, numbered after them, the messages of the nodes made so
far. The order is greedy on the functions as they really are after splitting, which are sparser
than the graph that exact elimination would leave: fewest splits, then fewest new pairs of
variables in one function, then smallest tables.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.compiled import planner
from kikuchi.core.copying import copy_into
from kikuchi.graphs.kernels.heap import sift

_U = np.uint64
_MANY = 64  # functions on one variable; beyond it the price is estimated, not tried
_FILL_STEP = 2.0**10
_SPLIT_STEP = 2.0**28
_SIZE_STEP = 8.0
_LEVEL_STEP = 2.0**43


class Functions(NamedTuple):
    """Scopes of all functions, and for each variable a linked list of its places in them."""

    offsets: Ints
    members: Ints
    function_of: Ints
    links: Ints
    heads: Ints
    dead: NDArray[np.uint8]
    owners: Ints


class Desk(NamedTuple):
    """Room to work in: marks of variables with their stamp, function lists, and mini-buckets."""

    mark: Ints
    stamp: Ints
    found: Ints
    other: Ints
    groups: Ints
    sizes: Ints
    group_of: Ints


class Ruler(NamedTuple):
    """What prices depend on: log2 of the numbers of states, ties, levels, and the largest scope."""

    bits: Array
    ties: Array
    levels: Ints
    cap: int


@planner
def _functions_of(functions, v, found):
    """Live functions on variable `v` in `found`, as many as fit; answers how many there are.

    Places in dead functions are taken off the variable's list.
    """
    heads, links, function_of, dead = (
        functions.heads, functions.links, functions.function_of, functions.dead
    )  # fmt: skip
    count = 0
    before = -1
    at = heads[v]
    while at >= 0:
        if dead[function_of[at]]:
            if before < 0:
                heads[v] = links[at]
            else:
                links[before] = links[at]
        else:
            if count < len(found):
                found[count] = function_of[at]
            count += 1
            before = at
        at = links[at]
    return count


@planner
def _group(functions, list_, count, cap, desk):
    """Put functions, largest first, where they enlarge a mini-bucket least; else open a new one.

    Answers the number of mini-buckets; `desk.groups` holds their scopes.
    """
    offsets, members = functions.offsets, functions.members
    mark, groups, sizes = desk.mark, desk.groups, desk.sizes
    lengths = np.empty(count, dtype=np.int64)
    for k in range(count):
        lengths[k] = offsets[list_[k]] - offsets[list_[k] + 1]
    n_groups = 0
    for k in np.argsort(lengths, kind="mergesort"):
        lo, hi = offsets[list_[k]], offsets[list_[k] + 1]
        desk.stamp[0] += 1
        stamp = desk.stamp[0]
        for m in range(lo, hi):
            mark[members[m]] = stamp
        best, least = -1, cap + 1
        for g in range(n_groups):
            growth = hi - lo
            for m in range(sizes[g]):
                if mark[groups[g, m]] == stamp:
                    growth -= 1
            if sizes[g] + growth <= cap and growth < least:
                best, least = g, growth
        if best < 0:
            best = n_groups
            sizes[best] = 0
            n_groups += 1
        for m in range(sizes[best]):
            mark[groups[best, m]] = -1  # already there
        for m in range(lo, hi):
            if mark[members[m]] == stamp:
                groups[best, sizes[best]] = members[m]
                sizes[best] += 1
        desk.group_of[k] = best
    return n_groups


@planner
def _new_pairs(functions, v, group, desk):
    """Pairs of variables of `group` without `v` that no function has in common yet."""
    mark = desk.mark
    pairs = 0
    for m in range(len(group)):
        if group[m] == v:
            continue
        count = _functions_of(functions, group[m], desk.other)
        if count > len(desk.other):
            continue  # joined to so many that another pair hardly matters
        desk.stamp[0] += 1
        stamp = desk.stamp[0]
        for k in range(count):
            f = desk.other[k]
            for e in range(functions.offsets[f], functions.offsets[f + 1]):
                mark[functions.members[e]] = stamp
        for other in range(m + 1, len(group)):
            if group[other] != v and mark[group[other]] != stamp:
                pairs += 1
    return pairs


@planner
def _price(functions, v, ruler, desk):
    """Level, splits, new pairs and table size of eliminating `v` now, as one number."""
    count = _functions_of(functions, v, desk.found)
    if count > len(desk.found):
        price = min(count, 2**14) * _SPLIT_STEP
    else:
        n_groups = _group(functions, desk.found, count, ruler.cap, desk)
        pairs = 0
        largest = 0.0
        for g in range(n_groups):
            group = desk.groups[g, : desk.sizes[g]]
            pairs += _new_pairs(functions, v, group, desk)
            size = 0.0
            for x in group:
                size += ruler.bits[x]
            largest = max(largest, size)
        price = min(n_groups - 1, 2**14) * _SPLIT_STEP
        price += min(pairs, 2**17) * _FILL_STEP + min(_SIZE_STEP * largest, _FILL_STEP - 2.0)
    return ruler.levels[v] * _LEVEL_STEP + price + ruler.ties[v]


@planner
def _take_cheapest(functions, ruler, desk, heap, place, keys):
    """Remove the cheapest variable from the heap. Prices that rose unseen are put right first."""
    while True:
        v = heap[0]
        key = -_price(functions, v, ruler, desk)
        if key >= keys[v]:
            break
        keys[v] = key
        sift(heap, place, keys, _U(0))
    keys[v] = -np.inf
    sift(heap, place, keys, _U(0))
    return v


@planner
def _longer(array, size):
    out = np.zeros(size, dtype=array.dtype)
    copy_into(out, 0, array, 0, len(array))
    return out


@planner
def _with_room(functions, n_functions, n_members):
    """The same functions with room for more."""
    offsets, members, function_of, links, heads, dead, owners = functions
    if n_functions + 1 > len(offsets):
        size = 2 * (n_functions + 1)
        offsets, dead, owners = _longer(offsets, size), _longer(dead, size), _longer(owners, size)
    if n_members > len(members):
        size = 2 * n_members
        members, links = _longer(members, size), _longer(links, size)
        function_of = _longer(function_of, size)
    return Functions(offsets, members, function_of, links, heads, dead, owners)


@planner
def _begin(n, scopes, scope_offsets):
    n_factors = len(scope_offsets) - 1
    room = n_factors + n + 2
    functions = Functions(
        _longer(scope_offsets.astype(np.int64), room),
        _longer(scopes.astype(np.int64), 2 * len(scopes) + 16),
        np.zeros(2 * len(scopes) + 16, dtype=np.int64),
        np.zeros(2 * len(scopes) + 16, dtype=np.int64),
        np.full(n, -1, dtype=np.int64),
        np.zeros(room, dtype=np.uint8),
        np.zeros(room, dtype=np.int64),
    )
    for f in range(n_factors):
        for e in range(scope_offsets[f], scope_offsets[f + 1]):
            functions.function_of[e] = f
            functions.links[e] = functions.heads[scopes[e]]
            functions.heads[scopes[e]] = e
    return functions


@planner
def _desk(n, room, cap):
    return Desk(
        np.zeros(n, dtype=np.int64),
        np.zeros(1, dtype=np.int64),
        np.zeros(room, dtype=np.int64),
        np.zeros(_MANY, dtype=np.int64),
        np.zeros((room, cap), dtype=np.int64),
        np.zeros(room, dtype=np.int64),
        np.zeros(room, dtype=np.int64),
    )


@planner
def _send(functions, f, v, group, touched, n_touched, desk):
    """Make the message of a mini-bucket, function `f`; list the variables that it touches."""
    at = functions.offsets[f]
    for x in group:
        if x == v:
            continue
        functions.members[at] = x
        functions.function_of[at] = f
        functions.links[at] = functions.heads[x]
        functions.heads[x] = at
        at += 1
        if desk.mark[x] != desk.stamp[0]:
            desk.mark[x] = desk.stamp[0]
            touched[n_touched] = x
            n_touched += 1
    functions.offsets[f + 1] = at
    functions.owners[f] = -1
    return n_touched


@planner
def split(scopes, scope_offsets, bits, cap, order, ties, levels):
    """Eliminate all variables in mini-buckets of at most `cap` variables.

    In the given `order`, or greedily if that is empty: all of the lowest of `levels` first, within
    a level by price (`ties`, in [0, 1), break ties). Answers the rank of each variable; the
    variable of each node; offsets and scopes of the messages of the nodes; and for each function
    the node that takes it (-1 for a message without variables).
    """
    n = len(bits)
    n_factors = len(scope_offsets) - 1
    greedy = len(order) == 0
    ruler = Ruler(bits, ties, levels, cap)
    functions = _begin(n, scopes, scope_offsets)
    desk = _desk(n, _MANY, cap)
    rank = np.zeros(n, dtype=np.int64)
    node_variables = np.zeros(n + 2, dtype=np.int64)
    keys = np.full(n, np.inf)
    heap, place = np.arange(n).astype(np.uint32), np.arange(n).astype(np.uint32)
    touched = np.arange(n)
    n_touched = n if greedy else 0
    nodes = 0
    for step in range(n):
        for v in touched[:n_touched]:
            keys[v] = -_price(functions, v, ruler, desk)
            sift(heap, place, keys, _U(place[v]))
        if greedy:
            v = np.int64(_take_cheapest(functions, ruler, desk, heap, place, keys))
        else:
            v = np.int64(order[step])
        rank[v] = step
        count = _functions_of(functions, v, desk.found)
        at_work = desk
        if count > _MANY:
            at_work = _desk(n, count, cap)
            _functions_of(functions, v, at_work.found)
        n_groups = _group(functions, at_work.found, count, cap, at_work)
        n_functions = n_factors + nodes + n_groups
        n_members = functions.offsets[n_factors + nodes] + n_groups * cap
        functions = _with_room(functions, n_functions, n_members)
        if nodes + n_groups > len(node_variables):
            node_variables = _longer(node_variables, 2 * (nodes + n_groups))
        for k in range(count):
            functions.dead[at_work.found[k]] = 1
            functions.owners[at_work.found[k]] = nodes + at_work.group_of[k]
        at_work.stamp[0] += 1
        n_touched = 0
        for g in range(n_groups):
            group = at_work.groups[g, : at_work.sizes[g]]
            f = n_factors + nodes
            n_touched = _send(functions, f, v, group, touched, n_touched, at_work)
            node_variables[nodes] = v
            nodes += 1
        if not greedy:
            n_touched = 0
    end = n_factors + nodes
    offsets = functions.offsets[n_factors : end + 1]
    members = functions.members[offsets[0] : offsets[-1]].copy()
    return (
        rank,
        node_variables[:nodes].copy(),
        offsets - offsets[0],
        members,
        functions.owners[:end].copy(),
    )
