"""The tables of a junction tree, laid out in flat arrays: nothing here touches a table.

Every table of the tree lists its variables by rising rank (`graphs.junction_tree.CliqueTree`) and
is row-major, so the variables that a clique sums out run fastest and its separator comes first.
"""

from __future__ import annotations

import numpy as np

from kikuchi.core.compiled import planner

_MERGED = (
    32768  # factors of a clique are multiplied beforehand while their product stays this small
)
_OPEN_GROUPS = 8


@planner
def sizes(cards, rank, clique_offsets, clique_vars, residual):
    """Cardinality of each rank; states of each clique and of its separator (as floats)."""
    card = np.empty(len(rank), np.int64)
    for v in range(len(rank)):
        card[rank[v]] = cards[v]
    n_cliques = len(residual)
    clique_size = np.ones(n_cliques)
    separator_size = np.ones(n_cliques)
    for c in range(n_cliques):
        for k in range(clique_offsets[c], clique_offsets[c + 1]):
            clique_size[c] *= card[clique_vars[k]]
            if k < clique_offsets[c + 1] - residual[c]:
                separator_size[c] *= card[clique_vars[k]]
    return card, clique_size, separator_size


@planner
def ranked_scopes(rank, cards, scopes, scope_offsets):
    """Each factor's ranks in rising order, and the stride of each in the factor's own table."""
    ranks = np.empty(len(scopes), np.int64)
    strides = np.empty(len(scopes), np.int64)
    for a in range(len(scope_offsets) - 1):
        low, high = scope_offsets[a], scope_offsets[a + 1]
        stride = np.int64(1)
        for e in range(high - 1, low - 1, -1):
            # insert from the right: entries after e are sorted already
            r = rank[scopes[e]]
            k = e
            while k + 1 < high and ranks[k + 1] < r:
                ranks[k] = ranks[k + 1]
                strides[k] = strides[k + 1]
                k += 1
            ranks[k] = r
            strides[k] = stride
            stride *= np.int64(cards[scopes[e]])
    return ranks, strides


@planner
def lists_by(owner, n_owners):
    """Items grouped by owner (offsets, items in rising order); owners below 0 own nothing."""
    offsets = np.zeros(n_owners + 1, np.int64)
    for i in range(len(owner)):
        if owner[i] >= 0:
            offsets[owner[i] + 1] += 1
    for c in range(n_owners):
        offsets[c + 1] += offsets[c]
    items = np.empty(offsets[n_owners], np.int64)
    fill = offsets.copy()
    for i in range(len(owner)):
        if owner[i] >= 0:
            items[fill[owner[i]]] = i
            fill[owner[i]] += 1
    return offsets, items


@planner
def union(a, a_low, a_high, b, b_low, b_high, out):
    """Union of two sorted lists into `out`; answers its length."""
    n = 0
    while a_low < a_high or b_low < b_high:
        if b_low >= b_high or (a_low < a_high and a[a_low] < b[b_low]):
            out[n] = a[a_low]
            a_low += 1
        else:
            if a_low < a_high and a[a_low] == b[b_low]:
                a_low += 1
            out[n] = b[b_low]
            b_low += 1
        n += 1
    return n


@planner
def grown(x, used, more):
    """x, or a larger copy of its first `used` entries, with room for `more`."""
    if used + more <= len(x):
        return x
    larger = np.empty(2 * (used + more), np.int64)
    for k in range(used):
        larger[k] = x[k]
    return larger


@planner
def group_factors(factor_home, scope_offsets, ranks, card, clique_offsets, clique_size):
    """Which factors of a clique are multiplied beforehand into one table.

    A factor joins a group if their product is no larger than the larger of the two, or small
    against the clique. Large factors go first, so that small ones fall into them.

    Answers (groups of each clique as offsets, offsets and ranks of each group's variables, offset
    of each group's table, group of each factor).
    """
    n_factors = len(scope_offsets) - 1
    n_cliques = len(clique_size)
    size = np.ones(n_factors)
    for a in range(n_factors):
        for e in range(scope_offsets[a], scope_offsets[a + 1]):
            size[a] *= card[ranks[e]]
    owned, factors = lists_by(factor_home, n_cliques)
    by_clique = np.zeros(n_cliques + 1, np.int64)
    group_of = np.empty(n_factors, np.int64)
    starts = np.empty(n_factors + 1, np.int64)  # each group's variables: room for a whole clique
    ends = np.empty(n_factors + 1, np.int64)
    group_size = np.ones(n_factors + 1)
    members = np.empty(len(ranks) + len(card) + 64, np.int64)
    merged = np.empty(len(card) + 1, np.int64)
    used = 0
    n_groups = 0
    for c in range(n_cliques):
        low, high = owned[c], owned[c + 1]
        for i in range(low + 1, high):  # stable insertion sort, largest first
            a = factors[i]
            k = i
            while k > low and size[factors[k - 1]] < size[a]:
                factors[k] = factors[k - 1]
                k -= 1
            factors[k] = a
        cheap = max(16.0, min(clique_size[c] / 8, _MERGED))
        for i in range(low, high):
            a = factors[i]
            a_low, a_high = scope_offsets[a], scope_offsets[a + 1]
            joined = False
            for g in range(max(by_clique[c], n_groups - _OPEN_GROUPS), n_groups):
                n = union(members, starts[g], ends[g], ranks, a_low, a_high, merged)
                together = 1.0
                for k in range(n):
                    together *= card[merged[k]]
                if together > max(cheap, group_size[g]):
                    continue
                if n > ends[g] - starts[g]:  # move to the end, where there is room to grow
                    members = grown(members, used, n)
                    starts[g] = used
                    for k in range(n):
                        members[used + k] = merged[k]
                    used += n
                    ends[g] = used
                group_size[g] = together
                group_of[a] = g
                joined = True
                break
            if joined:
                continue
            n = a_high - a_low
            members = grown(members, used, n)
            starts[n_groups] = used
            for k in range(n):
                members[used + k] = ranks[a_low + k]
            used += n
            ends[n_groups] = used
            group_size[n_groups] = size[a]
            group_of[a] = n_groups
            n_groups += 1
        by_clique[c + 1] = n_groups
    group_offsets = np.zeros(n_groups + 1, np.int64)
    table_offsets = np.zeros(n_groups + 1, np.int64)
    for g in range(n_groups):
        group_offsets[g + 1] = group_offsets[g] + ends[g] - starts[g]
        table_offsets[g + 1] = table_offsets[g] + np.int64(group_size[g])
    group_vars = np.empty(group_offsets[n_groups], np.int64)
    for g in range(n_groups):
        for k in range(ends[g] - starts[g]):
            group_vars[group_offsets[g] + k] = members[starts[g] + k]
    return by_clique, group_offsets, group_vars, table_offsets, group_of


@planner
def smallest_tables(
    rank, home, parent, residual, clique_offsets, clique_vars, clique_size, separator_size
):
    """Where each variable's marginal is read: (clique or -1, separator or -1), the smallest table.

    A separator is named by the clique below it.
    """
    n = len(rank)
    best = np.empty(n)
    in_clique = np.empty(n, np.int64)
    in_separator = np.full(n, -1, np.int64)
    for v in range(n):
        in_clique[v] = home[rank[v]]
        best[rank[v]] = clique_size[home[rank[v]]]
    by_rank = np.full(n, -1, np.int64)
    for c in range(len(parent)):
        for k in range(clique_offsets[c], clique_offsets[c + 1] - residual[c]):
            r = clique_vars[k]
            if separator_size[c] < best[r]:
                best[r] = separator_size[c]
                by_rank[r] = c
    for v in range(n):
        if by_rank[rank[v]] >= 0:
            in_separator[v] = by_rank[rank[v]]
            in_clique[v] = -1
    return in_clique, in_separator
