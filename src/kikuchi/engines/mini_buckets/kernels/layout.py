"""From mini-buckets to tables: scopes by rank, separators, and where every input is read.

Ranks number the variables in order of elimination. Scopes are sorted by falling rank, so the
variable that a node sums out comes last, in the node and in all that it adds up.
"""

from __future__ import annotations

import numpy as np

from kikuchi.core.compiled import planner
from kikuchi.core.copying import copy_into
from kikuchi.graphs.kernels.disjoint_sets import find_root

_ALL_PAIRS = 16  # mini-buckets of one variable up to which every pair shares its own shift


@planner
def ranked_scopes(scopes, offsets, rank):
    """Scopes as ranks, falling; and for each sorted axis which axis of the given scope it is."""
    ranks = np.empty(len(scopes), dtype=np.int64)
    axes = np.empty(len(scopes), dtype=np.int64)
    for k in range(len(offsets) - 1):
        lo, hi = offsets[k], offsets[k + 1]
        for e in range(lo, hi):
            value = rank[scopes[e]]
            at = e
            while at > lo and ranks[at - 1] < value:
                ranks[at] = ranks[at - 1]
                axes[at] = axes[at - 1]
                at -= 1
            ranks[at] = value
            axes[at] = e - lo
    return ranks, axes


@planner
def node_scopes(node_ranks, message_offsets, message_ranks):
    """Scope of each node: its message's, then its own variable."""
    n_nodes = len(node_ranks)
    offsets = message_offsets + np.arange(n_nodes + 1)
    ranks = np.empty(offsets[-1], dtype=np.int64)
    for r in range(n_nodes):
        lo, hi = message_offsets[r], message_offsets[r + 1]
        copy_into(ranks, offsets[r], message_ranks, lo, hi - lo)
        ranks[offsets[r + 1] - 1] = node_ranks[r]
    return offsets, ranks


@planner
def _common(ranks, lo_a, hi_a, lo_b, hi_b, out):
    """Ranks in both of two falling lists; answers how many."""
    count = 0
    a, b = lo_a, lo_b
    while a < hi_a and b < hi_b:
        if ranks[a] == ranks[b]:
            out[count] = ranks[a]
            count += 1
            a += 1
            b += 1
        elif ranks[a] > ranks[b]:
            a += 1
        else:
            b += 1
    return count


@planner
def _size(scope, cards):
    size = 1.0
    for v in scope:
        size *= cards[v]
    return size


@planner
def _n_pairs(count):
    return count * (count - 1) // 2 if count <= _ALL_PAIRS else count - 1


@planner
def _pairs(first, last, offsets, ranks, scope):
    """Pairs of mini-buckets of one variable, those with most in common first.

    All pairs, or only neighbours in the list where there are very many mini-buckets.
    """
    count = last - first
    near = count if count <= _ALL_PAIRS else 2
    pairs = np.empty((_n_pairs(count), 2), dtype=np.int64)
    overlaps = np.empty(len(pairs), dtype=np.int64)
    k = 0
    for a in range(first, last):
        for b in range(a + 1, min(a + near, last)):
            pairs[k, 0], pairs[k, 1] = a, b
            overlaps[k] = -_common(
                ranks, offsets[a], offsets[a + 1], offsets[b], offsets[b + 1], scope
            )
            k += 1
    return pairs[np.argsort(overlaps, kind="mergesort")]


@planner
def _is_new(set_offsets, set_ranks, begin, end, common):
    """Whether none of the separators `begin` to `end` is the set `common`."""
    for s in range(begin, end):
        if np.array_equal(set_ranks[set_offsets[s] : set_offsets[s + 1]], common):
            return False
    return True


@planner
def _last_of_bucket(node_ranks, first):
    last = first + 1
    while last < len(node_ranks) and node_ranks[last] == node_ranks[first]:
        last += 1
    return last


@planner
def separators(node_ranks, offsets, ranks, cards):
    """Pairs of mini-buckets of one variable that shift costs over all that they have in common.

    A spanning tree of largest overlaps always; then other pairs, as long as all shifts of the
    variable take no more room than half of its tables. Answers offsets and ranks of the separators
    and the two nodes of each.
    """
    n_nodes = len(node_ranks)
    widest = 1
    most = 0
    first = 0
    while first < n_nodes:
        last = _last_of_bucket(node_ranks, first)
        most += _n_pairs(last - first)
        for r in range(first, last):
            widest = max(widest, offsets[r + 1] - offsets[r])
        first = last
    scope = np.empty(widest, dtype=np.int64)
    leads = np.arange(n_nodes)
    set_offsets = np.zeros(most + 1, dtype=np.int64)
    set_ranks = np.empty(most * widest, dtype=np.int64)
    set_nodes = np.empty((most, 2), dtype=np.int64)
    n_sets = 0
    first = 0
    while first < n_nodes:
        last = _last_of_bucket(node_ranks, first)
        room = 0.0
        for r in range(first, last):
            room += 0.5 * _size(ranks[offsets[r] : offsets[r + 1]], cards)
        begin = n_sets
        for a, b in _pairs(first, last, offsets, ranks, scope):
            count = _common(ranks, offsets[a], offsets[a + 1], offsets[b], offsets[b + 1], scope)
            common = scope[:count]
            needed = 2.0 * _size(common, cards)
            linked = find_root(leads, a) == find_root(leads, b)
            if linked and (
                needed > room or not _is_new(set_offsets, set_ranks, begin, n_sets, common)
            ):
                continue
            leads[find_root(leads, a)] = find_root(leads, b)
            room -= needed
            at = set_offsets[n_sets]
            copy_into(set_ranks, at, common, 0, count)
            set_nodes[n_sets, 0], set_nodes[n_sets, 1] = a, b
            n_sets += 1
            set_offsets[n_sets] = at + count
        first = last
    return (
        set_offsets[: n_sets + 1].copy(),
        set_ranks[: set_offsets[n_sets]].copy(),
        set_nodes[:n_sets].copy(),
    )


@planner
def _reading(scope, inner, cards, strides, moves, first_move):
    """How a host of falling ranks `scope` reads an item of ranks `inner`, a part of those.

    Answers the contiguous run, how often it is repeated, and the number of axes before; `moves`
    gets what turning each of these (and so setting all later ones back to 0) adds to the place.
    """
    stride = 1
    k = len(inner) - 1
    for axis in range(len(scope) - 1, -1, -1):
        strides[axis] = 0
        if k >= 0 and inner[k] == scope[axis]:
            strides[axis] = stride
            stride *= cards[scope[axis]]
            k -= 1
    run = 1
    axes = len(scope)
    while axes > 0 and strides[axes - 1] == run:
        run *= cards[scope[axes - 1]]
        axes -= 1
    repeats = 1
    while axes > 0 and strides[axes - 1] == 0:
        repeats *= cards[scope[axes - 1]]
        axes -= 1
    back = 0
    for axis in range(axes - 1, -1, -1):
        moves[first_move + axis] = strides[axis] - back
        back += strides[axis] * (cards[scope[axis]] - 1)
    return run, repeats, axes


@planner
def readings(cards, host_offsets, host_ranks, offsets, ranks, hosts, places):
    """Readings of all items, grouped by host, as the fields of `mini_buckets.Inputs`.

    Items of host -1 are left out.
    """
    n_hosts = len(host_offsets) - 1
    counts = np.zeros(n_hosts + 1, dtype=np.int64)
    total_moves = 0
    widest = 1
    for k in range(len(hosts)):
        if hosts[k] >= 0:
            counts[hosts[k] + 1] += 1
            width = host_offsets[hosts[k] + 1] - host_offsets[hosts[k]]
            widest = max(widest, width)
            total_moves += width
    input_offsets = np.cumsum(counts)
    n_inputs = input_offsets[-1]
    input_places = np.zeros(n_inputs, dtype=np.int64)
    runs = np.zeros(n_inputs, dtype=np.int64)
    repeats = np.zeros(n_inputs, dtype=np.int64)
    axes = np.zeros(n_inputs, dtype=np.int64)
    move_offsets = np.zeros(n_inputs, dtype=np.int64)
    moves = np.zeros(total_moves, dtype=np.int64)
    strides = np.zeros(widest, dtype=np.int64)
    filled = input_offsets[:-1].copy()
    used = 0
    for k in range(len(hosts)):
        h = hosts[k]
        if h < 0:
            continue
        at = filled[h]
        filled[h] += 1
        input_places[at] = places[k]
        move_offsets[at] = used
        scope = host_ranks[host_offsets[h] : host_offsets[h + 1]]
        inner = ranks[offsets[k] : offsets[k + 1]]
        runs[at], repeats[at], axes[at] = _reading(scope, inner, cards, strides, moves, used)
        used += axes[at]
    return input_offsets, input_places, runs, repeats, axes, move_offsets, moves[:used].copy()


@planner
def unions(n_nodes, factor_offsets, factor_ranks, owners):
    """Scope of all factors of each node together, as falling ranks: offsets and ranks."""
    counts = np.zeros(n_nodes + 1, dtype=np.int64)
    for f in range(len(factor_offsets) - 1):
        counts[owners[f] + 1] += factor_offsets[f + 1] - factor_offsets[f]
    starts = np.cumsum(counts)
    gathered = np.empty(starts[-1], dtype=np.int64)
    filled = starts[:-1].copy()
    for f in range(len(factor_offsets) - 1):
        for e in range(factor_offsets[f], factor_offsets[f + 1]):
            gathered[filled[owners[f]]] = factor_ranks[e]
            filled[owners[f]] += 1
    offsets = np.zeros(n_nodes + 1, dtype=np.int64)
    ranks = np.empty(starts[-1], dtype=np.int64)
    count = 0
    for r in range(n_nodes):
        mine = np.sort(gathered[starts[r] : starts[r + 1]])[::-1]
        for k in range(len(mine)):
            if k == 0 or mine[k] != mine[k - 1]:
                ranks[count] = mine[k]
                count += 1
        offsets[r + 1] = count
    return offsets, ranks[:count].copy()


@planner
def sort_tables(log_tables, table_offsets, scope_offsets, ranks, axes, cards, back, out):
    """Tables with their axes in falling rank, or with `back` from there to the given order."""
    strides = np.zeros(64, dtype=np.int64)
    digits = np.zeros(64, dtype=np.int64)
    for a in range(len(table_offsets) - 1):
        lo, hi = scope_offsets[a], scope_offsets[a + 1]
        order = hi - lo
        given = np.ones(order, dtype=np.int64)
        size_of = np.ones(order, dtype=np.int64)
        for e in range(lo, hi):
            size_of[axes[e]] = cards[ranks[e]]
        for k in range(order - 2, -1, -1):
            given[k] = given[k + 1] * size_of[k + 1]
        for k in range(order):
            strides[k] = given[axes[lo + k]]
            digits[k] = 0
        at = table_offsets[a]
        for entry in range(table_offsets[a], table_offsets[a + 1]):
            if back:
                out[at] = log_tables[entry]
            else:
                out[entry] = log_tables[at]
            k = order - 1
            while k >= 0:
                digits[k] += 1
                at += strides[k]
                if digits[k] < cards[ranks[lo + k]]:
                    break
                at -= strides[k] * digits[k]
                digits[k] = 0
                k -= 1
