"""Loops of the search for a subgraph: spanning forests, and how long paths between ends are."""

from __future__ import annotations

import numpy as np

from kikuchi.core.arrays import U4, Array, Ints, Mask
from kikuchi.core.compiled import planner
from kikuchi.graphs.kernels.disjoint_sets import find_root


@planner
def count_sites(
    parent: Ints, depth: Ints, size: Array, home: Ints, tree: Ints, scopes: U4, offsets: Ints
) -> tuple[int, float]:
    """Cliques between the variables of each factor that are in one tree: number and entries."""
    total, entries = 0, 0.0
    for factor in range(len(offsets) - 1):
        for e in range(offsets[factor] + 1, offsets[factor + 1]):
            for other in range(offsets[factor], e):
                if tree[scopes[other]] == tree[scopes[e]]:
                    a, b = home[scopes[e]], home[scopes[other]]
                    while a != b:
                        if depth[a] >= depth[b]:
                            entries += size[a]
                            a = parent[a]
                        else:
                            entries += size[b]
                            b = parent[b]
                        total += 1
                    break
    return total, entries


@planner
def spanning_forest(n: int, ends: U4) -> Mask:
    """Which of the pairs, in their order, join two trees that were apart (Kruskal)."""
    parent = np.arange(n)
    joins = np.zeros(len(ends), dtype=np.bool_)
    for k in range(len(ends)):
        a, b = find_root(parent, np.int64(ends[k, 0])), find_root(parent, np.int64(ends[k, 1]))
        if a != b:
            parent[a] = b
            joins[k] = True
    return joins
