"""Every short cycle of a graph, by depth-first search from its smallest variable."""

from __future__ import annotations

import numpy as np

from kikuchi.core.compiled import planner


@planner
def drop_branches(at, around, degree):
    """Set to 0 the degree of every variable in a dangling tree, which lies on no cycle."""
    ends = np.empty(len(degree), np.int64)
    count = 0
    for v in range(len(degree)):
        if degree[v] == 1:
            ends[count] = v
            count += 1
    while count:
        count -= 1
        v = ends[count]
        degree[v] = 0
        for k in range(at[v], at[v + 1]):
            w = around[k]
            if degree[w] > 0:
                degree[w] -= 1
                if degree[w] == 1:
                    ends[count] = w
                    count += 1


@planner
def list_cycles(at, around, degree, begin, longest, steps, out, marks):
    """Cycles of at most `longest` variables from each start, in rows of `out` padded with -1.

    Starts at variable `begin` and continues until `out` is full. Returns the number of rows, the
    next start, and the remaining steps: negative if they did not suffice.
    """
    path = np.empty(longest, np.int64)
    place = np.empty(longest, np.int64)
    rows = 0
    for start in range(begin, len(degree)):
        if degree[start] == 0:
            continue
        first_row = rows
        for k in range(at[start], at[start + 1]):
            marks[around[k]] = start
        path[0] = start
        place[0] = at[start]
        depth = 0
        while depth >= 0:
            if place[depth] == at[path[depth] + 1]:
                depth -= 1
                continue
            v = around[place[depth]]
            place[depth] += 1
            closes = marks[v] == start
            fits = v > start and degree[v] > 0 and (depth < longest - 2 or closes)
            for j in range(1, depth + 1):
                fits = fits and path[j] != v
            if not fits:
                continue
            steps -= 1
            if steps < 0:
                return rows, start, steps
            if depth > 0 and closes and path[1] < v:
                if rows == len(out):
                    return first_row, start, steps
                for j in range(depth + 1):
                    out[rows, j] = path[j]
                out[rows, depth + 1] = v
                for j in range(depth + 2, out.shape[1]):
                    out[rows, j] = -1
                rows += 1
            if depth + 2 < longest:
                depth += 1
                path[depth] = v
                place[depth] = at[v]
    return rows, len(degree), steps
