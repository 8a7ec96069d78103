"""What is too small to be compiled for.

The smallest models never run a compiled loop: the choice depends on the model alone. Models of some
hundred entries run compiled loops if these are on disk, and plain Python if they are not: nobody
waits for a compiler to ask a few questions, and thousands of questions are not slowed down.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import numpy as np

from kikuchi.core.compiling import interpreted, patient
from kikuchi.graphs.factor_graph import FactorGraph

SMALL = 800
"""Table entries of a model that a few passes of plain Python answer within about a tenth of a
second, where compiling takes ten, if its tree is small too: a network of forty variables. Loops
that are on disk are quicker still, and used."""

SMALL_FOR_MANY_SWEEPS = 150
"""The same for methods that may sweep many hundred times, and whatever the tree: it has at most
256 states, since all pairs of more than eight variables would have more entries."""

_SMALL_TREE = 50_000  # entries of all cliques
_SMALL_JOINT = 17.0  # bits

_ROWS = 20  # of a small model: as long as one call of another method


def loops_for(graph: FactorGraph, most_entries: int = SMALL) -> AbstractContextManager[None]:
    """Run loops as plain Python within, if the model is small.

    It is small with at most `most_entries` in its tables and about 10 ** 5 joint states or a small
    junction tree. `most_entries` of 0 compiles always.

    >>> with loops_for(FactorGraph([2], [((0,), [1, 3])])):
    ...     pass
    """
    entries = graph.log_tables.size
    if entries > most_entries:
        return interpreted(False)
    if entries <= SMALL_FOR_MANY_SWEEPS or np.log2(graph.cardinalities).sum() <= _SMALL_JOINT:
        return interpreted(True)
    if _tree_entries(graph) <= _SMALL_TREE:
        return patient()
    return interpreted(False)


def loops_for_rows(graph: FactorGraph, rows: int) -> AbstractContextManager[None]:
    """The same for so many rows of evidence, each as much work as one pass.

    >>> with loops_for_rows(FactorGraph([2], [((0,), [1, 3])]), 10):
    ...     pass
    """
    if graph.log_tables.size * rows > _ROWS * SMALL:
        return interpreted(False)
    return loops_for(graph)


def _tree_entries(graph: FactorGraph) -> float:
    """Entries of all cliques if variables are eliminated in a greedy order, smallest clique first.

    >>> import kikuchi as kk
    >>> _tree_entries(kk.grid(1, 4))
    14.0
    """
    near: list[set[int]] = [set() for _ in range(graph.n_variables)]
    for a in range(graph.n_factors):
        scope = graph.scope(a)
        for v in scope:
            near[v].update(scope)
    bits = np.log2(graph.cardinalities).tolist()
    size = {v: sum(bits[u] for u in around | {v}) for v, around in enumerate(near)}
    total = 0.0
    while size:
        v = min(size, key=size.__getitem__)
        total += 2.0 ** size.pop(v)
        around = near[v] - {v}
        for u in around:
            near[u] |= around
            near[u].discard(v)
            size[u] = sum(bits[w] for w in near[u])
    return total
