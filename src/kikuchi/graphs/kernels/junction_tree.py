"""Maximal cliques of an elimination order and the tree that joins them.

Reference: HOJ-I3, TEH-I2.
"""

from __future__ import annotations

import numpy as np

from kikuchi.core.compiled import planner


@planner
def _sorted_neighbours(n, order, offsets, members):
    """Return the neighbour sets at elimination, as increasing ranks; transposing twice avoids
    sorting.
    """
    rank = np.empty(n, np.int64)
    for i in range(n):
        rank[order[i]] = n - 1 - i
    starts = np.zeros(n + 1, np.int64)
    for k in range(len(members)):
        starts[rank[members[k]] + 1] += 1
    for r in range(n):
        starts[r + 1] += starts[r]
    step_of = np.empty(len(members), np.int64)
    fill = starts.copy()
    for i in range(n):
        for k in range(offsets[i], offsets[i + 1]):
            r = rank[members[k]]
            step_of[fill[r]] = i
            fill[r] += 1
    ranked = np.empty(len(members), np.int64)
    end = offsets.copy()
    for r in range(n):
        for k in range(starts[r], starts[r + 1]):
            i = step_of[k]
            ranked[end[i]] = r
            end[i] += 1
    return rank, ranked


@planner
def clique_tree(n, order, offsets, members):
    """Maximal cliques of an elimination, joined in a tree.

    The clique of a step is contained in that of an earlier step u if and only if u's neighbours are
    that clique; such steps form chains, and each chain is one maximal clique. The next clique is
    the one that eliminates the first remaining neighbour, which implies running intersection.

    Returns (rank of each variable, clique offsets, clique variables by increasing rank, number of
    variables summed out in each clique, parent or -1, clique that sums out each rank).
    """
    rank, ranked = _sorted_neighbours(n, order, offsets, members)
    inner = np.full(n, -1, np.int64)  # step -> the earlier step whose clique contains its clique
    outer = np.full(n, -1, np.int64)
    for i in range(n):
        d = offsets[i + 1] - offsets[i]
        if d:
            p = n - 1 - ranked[offsets[i + 1] - 1]
            if d == offsets[p + 1] - offsets[p] + 1 and inner[p] < 0:
                inner[p] = i
                outer[i] = p
    n_cliques = 0
    total = 0
    for i in range(n):
        if outer[i] < 0:
            n_cliques += 1
        if inner[i] < 0:
            total += offsets[i + 1] - offsets[i] + 1
    clique_offsets = np.zeros(n_cliques + 1, np.int64)
    clique_vars = np.empty(total, np.int64)
    residual = np.empty(n_cliques, np.int64)
    parent = np.full(n_cliques, -1, np.int64)
    home = np.empty(n, np.int64)
    c = 0
    for i in range(n):
        if outer[i] >= 0:
            continue
        place = clique_offsets[c]
        for k in range(offsets[i], offsets[i + 1]):
            clique_vars[place] = ranked[k]
            place += 1
        j = i
        residual[c] = 0
        while j >= 0:  # from the last step of the chain to the first: increasing rank
            clique_vars[place] = n - 1 - j
            home[n - 1 - j] = c
            place += 1
            residual[c] += 1
            j = inner[j]
        clique_offsets[c + 1] = place
        c += 1
    for c in range(n_cliques):
        last = clique_offsets[c + 1] - residual[c] - 1
        if last >= clique_offsets[c]:
            parent[c] = home[clique_vars[last]]
    return rank, clique_offsets, clique_vars, residual, parent, home
