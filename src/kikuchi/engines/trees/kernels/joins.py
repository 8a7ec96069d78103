"""Join nodes: small messages and factors of a large clique are multiplied before they meet it.

A clique with many children pays for each with a walk over its own table, several for the messages
down. Children whose separators together span few states get a node of their own in between: its
variables are their union, all of them go on to the clique, nothing is summed out in it. The tree
stays a junction tree. Nodes are made from the smallest up, so a hub with hundreds of children ends
with two or three.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.compiled import planner
from kikuchi.engines.trees.kernels.layout import grown, lists_by, union
from kikuchi.graphs.junction_tree import CliqueTree

WORTH = 1024.0  # states of a clique from which joining pays
_SMALLEST = 64.0  # states of the first nodes; each round allows _STEP times as many
_STEP = 8.0
_OPEN = 16
_CHILD, _FACTOR, _NODE = 0, 1, 2


class JoinNodes(NamedTuple):
    """The join nodes of a tree: the clique that each serves, their variables, and the node above
    each node, each clique and each factor; -1 for none. Nodes of one clique stand together, lower
    ones first.
    """

    serves: Ints
    offsets: Ints
    ranks: Ints
    above_node: Ints
    above_clique: Ints
    above_factor: Ints


class _JoinItems(NamedTuple):
    """Children and factors of a clique: their variables, pool[low:high], their states, what they
    are and which, and the cluster of each.
    """

    low: Ints
    high: Ints
    size: Array
    kind: Ints
    ref: Ints
    cluster: Ints


class _Clusters(NamedTuple):
    """Unions of the variables of items: ranks[k, :lengths[k]]."""

    ranks: Ints
    lengths: Ints


@planner
def _states(card, x, low, high):
    size = 1.0
    for k in range(low, high):
        size *= card[x[k]]
    return size


@planner
def _appended(pool, used, source, first, n):
    """`pool`, grown where needed, with source[first:first + n] behind its first `used` entries."""
    pool = grown(pool, used, n)
    for a in range(n):
        pool[used + a] = source[first + a]
    return pool


@planner
def _round(limit, n_items, items, pool, card, clusters, merged):
    """Put items of at most `limit` states into clusters whose union has no more, largest first.

    Fills `items.cluster` (-1 for none) and the unions; returns the number of clusters.
    """
    low, high, size, cluster = items.low, items.high, items.size, items.cluster
    spans, lengths = clusters.ranks, clusters.lengths
    order = np.argsort(-size[:n_items], kind="mergesort")
    n_clusters = 0
    for position in range(n_items):
        i = order[position]
        cluster[i] = -1
        if size[i] > limit:
            continue
        for k in range(max(0, n_clusters - _OPEN), n_clusters):
            n = union(spans[k], 0, lengths[k], pool, low[i], high[i], merged)
            if n == lengths[k] or _states(card, merged, 0, n) <= limit:
                for a in range(n):
                    spans[k, a] = merged[a]
                lengths[k] = n
                cluster[i] = k
                break
        if cluster[i] < 0:
            if n_clusters == len(spans):
                continue
            for a in range(high[i] - low[i]):
                spans[n_clusters, a] = pool[low[i] + a]
            lengths[n_clusters] = high[i] - low[i]
            cluster[i] = n_clusters
            n_clusters += 1
    return n_clusters


@planner
def join_nodes(tree, card, clique_size, factor_home, scope_offsets, ranks):
    """Find the join nodes of a `CliqueTree` whose factors have these scopes, by rank."""
    offsets, names, parent, residual = tree.offsets, tree.ranks, tree.parent, tree.residual
    n_cliques, n_factors = len(parent), len(factor_home)
    child_offsets, children = lists_by(parent, n_cliques)
    factor_offsets, factors = lists_by(factor_home, n_cliques)
    above_clique = np.full(n_cliques, -1, np.int64)
    above_factor = np.full(n_factors, -1, np.int64)
    most, widest = 1, 1
    for c in range(n_cliques):
        if clique_size[c] >= WORTH and child_offsets[c + 1] > child_offsets[c]:
            n = child_offsets[c + 1] - child_offsets[c] + factor_offsets[c + 1] - factor_offsets[c]
            most = max(most, n)
            widest = max(widest, offsets[c + 1] - offsets[c])
    low, high = np.empty(most, np.int64), np.empty(most, np.int64)
    kind, ref = np.empty(most, np.int64), np.empty(most, np.int64)
    size, cluster = np.empty(most), np.empty(most, np.int64)
    items = _JoinItems(low, high, size, kind, ref, cluster)
    most_clusters = min(most, 256)
    spans, lengths = np.empty((most_clusters, widest), np.int64), np.empty(most_clusters, np.int64)
    clusters = _Clusters(spans, lengths)
    members, has_child = np.empty(most_clusters, np.int64), np.empty(most_clusters, np.bool_)
    new_node = np.empty(most_clusters, np.int64)
    merged = np.empty(2 * widest, np.int64)
    pool = np.empty(64, np.int64)
    serves = np.empty(n_cliques + n_factors, np.int64)
    above_node = np.full(n_cliques + n_factors, -1, np.int64)
    node_offsets = np.zeros(n_cliques + n_factors + 1, np.int64)
    node_vars = np.empty(64, np.int64)
    n_nodes = 0
    for c in range(n_cliques):
        n_items = 0
        if clique_size[c] < WORTH or child_offsets[c + 1] == child_offsets[c]:
            continue
        used = 0
        for i in range(child_offsets[c], child_offsets[c + 1]):
            j = children[i]
            n = offsets[j + 1] - residual[j] - offsets[j]
            pool = _appended(pool, used, names, offsets[j], n)
            low[n_items], high[n_items] = used, used + n
            kind[n_items], ref[n_items] = _CHILD, j
            used += n
            n_items += 1
        for i in range(factor_offsets[c], factor_offsets[c + 1]):
            f = factors[i]
            n = scope_offsets[f + 1] - scope_offsets[f]
            pool = _appended(pool, used, ranks, scope_offsets[f], n)
            low[n_items], high[n_items] = used, used + n
            kind[n_items], ref[n_items] = _FACTOR, f
            used += n
            n_items += 1
        for i in range(n_items):
            size[i] = _states(card, pool, low[i], high[i])
        limit = _SMALLEST
        while limit <= clique_size[c] / _STEP and n_items > 2:
            n_clusters = _round(limit, n_items, items, pool, card, clusters, merged)
            for k in range(n_clusters):
                members[k], has_child[k], new_node[k] = 0, False, -1
            for i in range(n_items):
                k = cluster[i]
                if k >= 0:
                    members[k] += 1
                    has_child[k] |= kind[i] != _FACTOR
            for k in range(n_clusters):
                if members[k] < 2 or not has_child[k]:
                    continue
                node_vars = _appended(node_vars, node_offsets[n_nodes], spans[k], 0, lengths[k])
                serves[n_nodes] = c
                node_offsets[n_nodes + 1] = node_offsets[n_nodes] + lengths[k]
                new_node[k] = n_nodes
                n_nodes += 1
            kept = 0
            for i in range(n_items):
                node = new_node[cluster[i]] if cluster[i] >= 0 else -1
                if node >= 0:
                    if kind[i] == _CHILD:
                        above_clique[ref[i]] = node
                    elif kind[i] == _FACTOR:
                        above_factor[ref[i]] = node
                    else:
                        above_node[ref[i]] = node
                    continue
                low[kept], high[kept], size[kept] = low[i], high[i], size[i]
                kind[kept], ref[kept] = kind[i], ref[i]
                kept += 1
            n_items = kept
            for k in range(n_clusters):
                if new_node[k] < 0:
                    continue
                pool = _appended(pool, used, spans[k], 0, lengths[k])
                low[n_items], high[n_items] = used, used + lengths[k]
                kind[n_items], ref[n_items] = _NODE, new_node[k]
                size[n_items] = _states(card, spans[k], 0, lengths[k])
                used += lengths[k]
                n_items += 1
            limit *= _STEP
    return JoinNodes(
        serves[:n_nodes], node_offsets, node_vars, above_node, above_clique, above_factor
    )


@planner
def with_joins(tree, nodes, factor_home):
    """Insert join nodes into a tree, each numbered just before the clique that it serves.

    Returns the `CliqueTree` and the home of each factor.
    """
    offsets, names, residual, parent = tree.offsets, tree.ranks, tree.residual, tree.parent
    serves, node_offsets, node_vars = nodes.serves, nodes.offsets, nodes.ranks
    n_cliques, n_nodes = len(parent), len(serves)
    clique_number = np.empty(n_cliques, np.int64)
    node_number = np.empty(n_nodes, np.int64)
    total = n_cliques + n_nodes
    new_offsets = np.zeros(total + 1, np.int64)
    new_names = np.empty(len(names) + node_offsets[n_nodes], np.int64)
    new_residual = np.zeros(total, np.int64)
    number, node, place = 0, 0, 0
    for c in range(n_cliques):
        while node < n_nodes and serves[node] == c:
            for k in range(node_offsets[node], node_offsets[node + 1]):
                new_names[place] = node_vars[k]
                place += 1
            node_number[node] = number
            number += 1
            node += 1
            new_offsets[number] = place
        for k in range(offsets[c], offsets[c + 1]):
            new_names[place] = names[k]
            place += 1
        clique_number[c] = number
        new_residual[number] = residual[c]
        number += 1
        new_offsets[number] = place
    new_parent = np.full(total, -1, np.int64)
    for c in range(n_cliques):
        if nodes.above_clique[c] >= 0:
            new_parent[clique_number[c]] = node_number[nodes.above_clique[c]]
        elif parent[c] >= 0:
            new_parent[clique_number[c]] = clique_number[parent[c]]
    for k in range(n_nodes):
        above = nodes.above_node[k]
        new_parent[node_number[k]] = node_number[above] if above >= 0 else clique_number[serves[k]]
    new_home = np.empty(len(tree.home), np.int64)
    for r in range(len(tree.home)):
        new_home[r] = clique_number[tree.home[r]]
    new_factor_home = np.empty(len(factor_home), np.int64)
    for f in range(len(factor_home)):
        above = nodes.above_factor[f]
        new_factor_home[f] = node_number[above] if above >= 0 else clique_number[factor_home[f]]
    joined = CliqueTree(tree.rank, new_offsets, new_names, new_residual, new_parent, new_home)
    return joined, new_factor_home
