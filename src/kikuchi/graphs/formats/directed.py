"""Directed models in files: the child last in its scope, and no cycles."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Ints
from kikuchi.graphs.factor_graph import FactorGraph

ROW_TOLERANCE = 1e-2 + 1e-9  # 0.33 + 0.33 + 0.33 is within


def child_last(graph: FactorGraph) -> FactorGraph:
    """The same directed model with the child as the last variable of every scope.

    >>> graph = FactorGraph([2, 2], [((0,), [1, 0]), ((1, 0), [[1, 2], [3, 4]])], children=[0, 1])
    >>> child_last(graph).scope(1), child_last(graph).table(1).round(9).tolist()
    ((0, 1), [[1.0, 3.0], [2.0, 4.0]])
    """
    assert graph.children is not None
    last = graph.scopes[graph.scope_offsets[1:] - 1]
    wrong = np.flatnonzero(last != graph.children)
    if not wrong.size:
        return graph
    scopes, log_tables = graph.scopes.copy(), graph.log_tables.copy()
    for a in wrong.tolist():
        scope = graph.scope(a)
        axis = scope.index(int(graph.children[a]))
        lo, hi = graph.scope_offsets[a], graph.scope_offsets[a + 1]
        scopes[lo:hi] = [*scope[:axis], *scope[axis + 1 :], scope[axis]]
        lo, hi = graph.table_offsets[a], graph.table_offsets[a + 1]
        log_tables[lo:hi] = np.moveaxis(graph.log_table(a), axis, -1).ravel()
    return graph.replaced(scopes=scopes, log_tables=log_tables)


def row_fault(graph: FactorGraph) -> str | None:
    """Describe the first row of a conditional table that does not sum to 1; None if all do.

    Files may contain rounded numbers, so the tolerance is 0.01, the same in every format.

    >>> row_fault(FactorGraph([2], [((0,), [0.4, 20])], names=["coin"], children=[0]))
    "row 0 of the table of 'coin' sums to 20.4"
    """
    graph = child_last(graph)
    assert graph.children is not None
    states = graph.cardinalities[graph.children].astype(np.int64)
    rows = np.diff(graph.table_offsets).astype(np.int64) // states
    if not rows.size:
        return None
    starts = np.concatenate([[0], np.cumsum(np.repeat(states, rows))[:-1]])
    with np.errstate(over="ignore"):
        sums = np.add.reduceat(np.exp(graph.log_tables), starts)
    wrong = np.flatnonzero(~(np.abs(sums - 1.0) <= ROW_TOLERANCE))
    if not wrong.size:
        return None
    k = int(wrong[0])
    first_rows = np.concatenate([[0], np.cumsum(rows)])
    a = int(np.searchsorted(first_rows, k, side="right")) - 1
    child = graph.label(int(graph.children[a]))
    return f"row {k - int(first_rows[a])} of the table of '{child}' sums to {sums[k]:.6g}"


def directed_cycle(children: NDArray[Any], scopes: NDArray[Any], orders: Ints) -> list[int]:
    """Variables along one directed cycle, the first repeated at the end; empty when there is none.

    >>> directed_cycle(np.array([0, 1]), np.array([1, 0, 0, 1]), np.array([2, 2]))
    [0, 1, 0]
    """
    owners = np.repeat(children, orders)
    is_parent = scopes != owners
    parents, kids = scopes[is_parent], owners[is_parent]
    if np.all(parents < kids):  # numbered in the order of the arrows, as most files are
        return []
    remaining = _after_peeling(len(children), parents, kids)
    if not remaining:
        return []
    parent_left = {int(k): int(p) for p, k in zip(parents, kids, strict=True) if p in remaining}
    path, place = [min(remaining)], {}
    while path[-1] not in place:
        place[path[-1]] = len(path) - 1
        path.append(parent_left[path[-1]])
    return path[place[path[-1]] :][::-1]


def _after_peeling(n: int, parents: NDArray[Any], kids: NDArray[Any]) -> set[int]:
    """Variables that are left when those without parents are taken away again and again."""
    waiting = np.bincount(kids, minlength=n).tolist()
    by_parent = kids[np.argsort(parents, kind="stable")].tolist()
    offsets = np.concatenate([[0], np.cumsum(np.bincount(parents, minlength=n))]).tolist()
    ready = [v for v in range(n) if waiting[v] == 0]
    while ready:
        v = ready.pop()
        for kid in by_parent[offsets[v] : offsets[v + 1]]:
            waiting[kid] -= 1
            if waiting[kid] == 0:
                ready.append(kid)
    return {v for v in range(n) if waiting[v] > 0}


def parents_first(graph: FactorGraph) -> list[int]:
    """The variables of a directed model with parents before children: as they are numbered where
    that is so already.
    """
    from kikuchi.graphs.directed import topological_order

    assert graph.children is not None
    owners = np.repeat(graph.children, np.diff(graph.scope_offsets))
    if np.all(graph.scopes <= owners):
        return list(range(graph.n_variables))
    return [int(v) for v in topological_order(graph)]
