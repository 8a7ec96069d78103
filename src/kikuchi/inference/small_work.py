"""What is too small to be compiled for."""

from __future__ import annotations

from contextlib import AbstractContextManager

from kikuchi.core.compiling import interpreted
from kikuchi.graphs.factor_graph import FactorGraph

SMALL = 150  # table entries


def loops_for(graph: FactorGraph, most_entries: int = SMALL) -> AbstractContextManager[None]:
    """Run loops as plain Python within, if the tables of `graph` have at most `most_entries`.

    Up to the default, every method but those that sample or restart many times ends within a
    fraction of a second this way, where compiling takes seconds. The choice depends on the model
    alone, so that the same question always takes the same path.

    >>> with loops_for(FactorGraph([2], [((0,), [1, 3])])):
    ...     pass
    """
    return interpreted(graph.log_tables.size <= most_entries)
