"""A few variables that belong to every region: clamping and Bethe in one region graph."""

from __future__ import annotations

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.regions import sets
from kikuchi.graphs.regions.sets import SetFamily

_HARD = 10.0  # distance of a forbidden state below the lowest log-weight of its table


def hub_roots(graph: FactorGraph, hubs: list[int]) -> list[tuple[int, ...]]:
    """Return the scope of each factor with the hubs added, without those contained in others.

    >>> path = FactorGraph([2] * 4, [((i, i + 1), np.ones(4)) for i in range(3)])
    >>> hub_roots(path, [0])
    [(0, 1, 2), (0, 2, 3)]
    """
    n = graph.n_variables
    always = set(hubs)
    scopes = [*map(graph.scope, range(graph.n_factors)), *((v,) for v in range(n))]
    return sets.maximal(SetFamily.of([always.union(scope) for scope in scopes], n)).tuples()


def strong_hubs(graph: FactorGraph, count: int) -> list[int]:
    """Return the variables with the strongest couplings to variables not chosen before, strongest
    first.

    Belief propagation fails because of strong couplings around cycles, and an observed variable
    blocks messages. The sum of coupling strengths at a variable is a cheap measure of the gain from
    clamping it.

    >>> pairs = [((0, 1), 1.0), ((1, 2), 3.0), ((2, 3), 0.5)]
    >>> tables = [(scope, np.exp([[j, -j], [-j, j]])) for scope, j in pairs]
    >>> strong_hubs(FactorGraph([2] * 4, tables), 2)
    [1, 2]
    """
    strength = [coupling_strength(graph, a) for a in range(graph.n_factors)]
    free = [set(graph.scope(a)) for a in range(graph.n_factors)]
    total = np.zeros(graph.n_variables)
    for a, scope in enumerate(free):
        for v in scope:
            total[v] += strength[a] if len(scope) > 1 else 0.0
    chosen: list[int] = []
    for _ in range(min(count, graph.n_variables)):
        v = int(np.argmax(total))
        chosen.append(v)
        total[v] = -1.0
        for a in graph.neighbours(v):
            free[a].discard(v)
            if len(free[a]) == 1:
                (last,) = free[a]
                total[last] -= strength[a]
    return chosen


def coupling_strength(graph: FactorGraph, factor: int) -> float:
    """Return the deviation of a log-table from the nearest sum of functions of single variables.

    For an Ising coupling J s_i s_j it is |J|. Forbidden states are treated as rare ones.
    """
    table = graph.log_table(factor)
    if table.ndim < 2:
        return 0.0
    finite = table > -np.inf
    if not finite.any():
        return 0.0
    logs: Array = np.where(finite, table, table[finite].min() - _HARD)
    rest = logs - logs.mean()
    for axis in range(logs.ndim):
        others = tuple(k for k in range(logs.ndim) if k != axis)
        rest = rest - (logs.mean(axis=others, keepdims=True) - logs.mean())
    return float(np.sqrt(np.mean(rest**2)))
