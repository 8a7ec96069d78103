"""Variables that do not matter for a question, and prior marginals without most of the others.

A variable without children that is neither asked for nor observed is barren: its conditional table
sums to 1, and goes. So do its parents after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from kikuchi.core.arrays import Array, Mask
from kikuchi.core.budget import Budget, Clock
from kikuchi.core.errors import BudgetError
from kikuchi.graphs.directed import part_of
from kikuchi.graphs.factor_graph import FactorGraph

_ROUNDED = 1e-6  # files print six or seven digits: rows that miss 1 by less are rounded, no more
_SMALL_TABLES = 10_000  # entries of a model up to which one tree takes a few milliseconds
_PART_SECONDS = 2e-3  # of planning and propagating in one small part of a model


def barren_variables(graph: FactorGraph, needed: Iterable[int], normalised: Mask) -> frozenset[int]:
    """Return the variables whose conditional tables sum to 1 in every query: no needed variable
    descends from them. There are none in models without directions.

    A variable whose table is not `normalised` stays, and so do its ancestors.
    """
    if graph.children is None:
        return frozenset()
    seen = with_ancestors(graph, [*needed, *np.flatnonzero(~normalised).tolist()])
    return frozenset(range(graph.n_variables)) - seen


def with_ancestors(graph: FactorGraph, variables: Iterable[int]) -> frozenset[int]:
    """Some variables of a directed model and all that they descend from."""
    assert graph.children is not None  # only directed models have ancestors
    stack = list(variables)
    seen = set(stack)
    factor_of = np.empty(graph.n_variables, dtype=np.int64)
    factor_of[graph.children] = np.arange(graph.n_factors)
    while stack:
        for u in graph.scope(int(factor_of[stack.pop()])):
            if u not in seen:
                seen.add(u)
                stack.append(u)
    return frozenset(seen)


def normalised_tables(graph: FactorGraph) -> Mask:
    """Return for each variable whether its conditional table sums to 1, up to the digits of a
    file.
    """
    good = np.zeros(graph.n_variables, dtype=bool)
    if graph.children is None:
        return good
    for a, child in enumerate(graph.children.tolist()):
        sums = graph.table(a).sum(axis=graph.scope(a).index(child))
        good[child] = bool(np.all(np.abs(sums - 1.0) <= _ROUNDED))
    return good


def without_variables(
    graph: FactorGraph, left_out: frozenset[int]
) -> tuple[FactorGraph, dict[int, int]]:
    """The model without barren variables and their tables, and the new numbers of the others."""
    if not left_out:
        return graph, {v: v for v in range(graph.n_variables)}
    return part_of(graph, [v for v in range(graph.n_variables) if v not in left_out])


def marginals_by_parts(
    graph: FactorGraph, asked: Sequence[int], normalised: Mask, clock: Clock
) -> Array | None:
    """Prior marginals of the variables `asked`, laid out as `graph.state_offsets`, each from a part
    of the model; None where one tree of the whole model is expected to be quicker.

    A part is a variable that no other asked one descends from, with its ancestors: all others are
    barren. On networks with many findings such parts are far narrower than the whole.

    >>> import kikuchi as kk
    >>> asia = kk.example("asia")
    >>> marginals_by_parts(asia, range(8), normalised_tables(asia), Budget().start()) is None
    True
    """
    if graph.log_tables.size < _SMALL_TABLES or not graph.is_directed or not normalised.all():
        return None
    assert graph.children is not None
    wanted = with_ancestors(graph, asked)
    scopes = zip(graph.children.tolist(), map(graph.scope, range(graph.n_factors)), strict=True)
    parents = {u for child, scope in scopes if child in wanted for u in scope if u != child}
    last = [v for v in asked if v not in parents]
    from kikuchi.engines.trees.calibrated import plan
    from kikuchi.methods.junction_tree import JunctionTree

    limit = plan(graph, order="min-fill").seconds() / 2
    if len(last) < 2 or len(last) * _PART_SECONDS > limit:
        return None
    everything = frozenset(range(graph.n_variables))
    parts = [without_variables(graph, everything - with_ancestors(graph, [v])) for v in last]
    if sum(plan(part, order="min-fill").seconds() for part, _ in parts) > limit:
        return None
    flat = np.zeros(int(graph.state_offsets[-1]))
    for part, numbers in parts:
        try:
            found = JunctionTree(order="min-fill").run(part, budget=rest_of(clock))
        except BudgetError:
            return None
        for v, k in numbers.items():
            flat[graph.state_offsets[v] : graph.state_offsets[v + 1]] = found.marginals[k]
    return flat


def rest_of(clock: Clock) -> Budget:
    """The budget that a clock has left."""
    limit = clock.budget.seconds
    if limit is None:
        return clock.budget
    return replace(clock.budget, seconds=max(limit - clock.seconds, 1e-3))
