"""The forest that clamped variables leave: the depth-first walk over it and its core.

Reference: TEH-I16.
"""

from __future__ import annotations

import numpy as np

from kikuchi.core.compiled import njit

_U0 = np.uint64(0)
_U1 = np.uint64(1)


@njit(cache=True, error_model="numpy")
def euler_tour(layout, clamped):
    """Depth-first walk over the forest that clamped variables leave (recipe 10.1 on factor graphs).

    Answers the edges in the order in which they are entered and left, which of the two it is,
    whether an edge is entered from its factor, and where the walk of each tree begins. Trees start
    at a factor with a clamped variable where there is one. Factors of one variable are left out:
    what they say never changes. An empty walk with `ok` False means that a cycle is left.
    """
    scope_at, _, _, variable_at, edges, edge_factor, scopes = layout
    n_factors = np.uint64(scope_at.size) - _U1
    n_edges = np.uint64(scopes.size)
    tour = np.empty(np.uint64(2) * n_edges, np.uint32)
    leaving = np.zeros(tour.size, np.uint8)
    from_factor = np.zeros(n_edges, np.uint8)
    tree_start = np.zeros(n_factors + _U1, np.int64)
    seen_factor = np.zeros(n_factors, np.uint8)
    seen_variable = np.zeros(clamped.size, np.uint8)
    most_depth = n_factors + np.uint64(clamped.size) + _U1
    entered_by = np.empty(most_depth, np.uint64)
    cursor = np.empty(most_depth, np.uint64)
    at_factor = np.empty(most_depth, np.uint8)
    none = n_edges
    length = _U0
    trees = _U0
    for round_ in range(2):
        for root in range(n_factors):
            if seen_factor[root] or scope_at[root + _U1] - scope_at[root] == _U1:
                continue
            has_clamped = False
            for k in range(scope_at[root], scope_at[root + _U1]):
                has_clamped = has_clamped or clamped[scopes[k]] != 0
            if round_ == 0 and not has_clamped:
                continue
            seen_factor[root] = 1
            tree_start[trees] = np.int64(length)
            trees += _U1
            depth = _U1
            entered_by[_U0] = none
            cursor[_U0] = scope_at[root]
            at_factor[_U0] = 1
            while depth > _U0:
                top = depth - _U1
                by = entered_by[top]
                if at_factor[top]:
                    here = np.uint64(root) if by == none else np.uint64(edge_factor[by])
                    stop = scope_at[here + _U1]
                else:
                    stop = variable_at[np.uint64(scopes[by]) + _U1]
                if cursor[top] == stop:
                    depth = top
                    if by != none:
                        tour[length] = np.uint32(by)
                        leaving[length] = 1
                        length += _U1
                    continue
                position = cursor[top]
                cursor[top] = position + _U1
                e = position if at_factor[top] else np.uint64(edges[position])
                if e == by:
                    continue
                if at_factor[top]:
                    v = np.uint64(scopes[e])
                    tour[length] = np.uint32(e)
                    length += _U1
                    from_factor[e] = 1
                    if clamped[v]:
                        tour[length] = np.uint32(e)
                        leaving[length] = 1
                        length += _U1
                        continue
                    if seen_variable[v]:
                        return False, tour[:_U0], leaving[:_U0], from_factor, tree_start[:_U1]
                    seen_variable[v] = 1
                    at_factor[depth] = 0
                    cursor[depth] = variable_at[v]
                else:
                    b = np.uint64(edge_factor[e])
                    if scope_at[b + _U1] - scope_at[b] == _U1:
                        continue
                    if seen_factor[b]:
                        return False, tour[:_U0], leaving[:_U0], from_factor, tree_start[:_U1]
                    seen_factor[b] = 1
                    tour[length] = np.uint32(e)
                    length += _U1
                    at_factor[depth] = 1
                    cursor[depth] = scope_at[b]
                entered_by[depth] = e
                depth += _U1
    tree_start[trees] = np.int64(length)
    return True, tour[:length], leaving[:length], from_factor, tree_start[: trees + _U1]


@njit(cache=True, error_model="numpy")
def core_edges(tour, leaving, from_factor, tree_start, scopes, clamped):
    """Edges on a path between two clamped leaves, or that hold the only one of their tree.

    Only these need to be walked more than once.
    """
    core = np.zeros(from_factor.size, np.uint8)
    before = np.zeros(from_factor.size, np.int64)
    for tree in range(np.uint64(tree_start.size) - _U1):
        lo = np.uint64(tree_start[tree])
        hi = np.uint64(tree_start[tree + _U1])
        count = 0
        for position in range(lo, hi):
            e = tour[position]
            if not leaving[position]:
                before[e] = count
                if from_factor[e] and clamped[scopes[e]]:
                    count += 1
        total = count
        count = 0
        for position in range(lo, hi):
            e = tour[position]
            if not leaving[position]:
                if from_factor[e] and clamped[scopes[e]]:
                    count += 1
                    core[e] = 1
            else:
                below = count - before[e]
                if 0 < below < total:
                    core[e] = 1
    return core
