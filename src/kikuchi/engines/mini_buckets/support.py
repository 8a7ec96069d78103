"""A graph without the states that zeros rule out.

A zero in a mini-bucket of negative weight forbids a whole row, so states that cannot occur anyway
must not be there; and smaller tables serve both bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kikuchi.core.arrays import Array, Mask
from kikuchi.core.budget import Clock
from kikuchi.engines.feasibility import Constraints
from kikuchi.graphs.conditioned import expand_factors, expand_marginals
from kikuchi.graphs.factor_graph import Conditioned, FactorGraph
from kikuchi.graphs.graph_arrays import flatten


@dataclass(frozen=True, eq=False)
class LiveGraph:
    """A graph without impossible states, and the way back.

    `kept` are the states of `reduced.graph` that stay, `kept_entries` its table entries; `offset`
    is what an earlier reduction added to log Z.
    """

    graph: FactorGraph
    reduced: Conditioned
    kept: Mask
    kept_entries: Mask
    offset: float

    @cached_property
    def constant(self) -> float:
        """What decided factors and variables without a factor add to log Z."""
        decided = self.graph.log_constant - self.reduced.original.log_constant
        free = np.diff(self.graph.variable_offsets) == 0
        return self.offset + decided + float(np.log(self.graph.cardinalities[free]).sum())

    def marginals(self, live: Array) -> Array:
        """Marginals of the original graph."""
        out = np.zeros(len(self.kept))
        out[self.kept] = live
        return expand_marginals(self.reduced, out)

    def factor_tables(self, live: Array) -> Array:
        """Factor beliefs of the original graph."""
        out = np.zeros(len(self.kept_entries))
        out[self.kept_entries] = live
        return expand_factors(self.reduced, out)


def live_graph(graph: FactorGraph) -> LiveGraph:
    """Leave out the states that propagation of the zeros rules out.

    >>> decided = FactorGraph([2, 3], [((0, 1), [[0, 0, 0], [1, 2, 0]])])
    >>> live_graph(decided).graph.cardinalities.tolist()
    [2]
    """
    return _restricted(graph, Constraints(flatten(graph)).alive)


def boxed_graph(
    live: LiveGraph, preference: Array, rng: np.random.Generator, clock: Clock
) -> LiveGraph | None:
    """A live graph restricted to a box of states that holds no zero, the preferred ones first.

    Its log Z, constant included, is at most that of `live`. None if no box was found.
    """
    constraints = Constraints(flatten(live.graph))
    box = constraints.box(preference)
    if box is None:
        state = constraints.find_state(preference, rng, clock)
        if state is None:
            return None
        box = np.zeros(len(preference), dtype=bool)
        box[live.graph.state_offsets[:-1] + state] = True
    offset = live.graph.log_constant - live.reduced.original.log_constant
    return _restricted(live.graph, box, offset)


def _restricted(graph: FactorGraph, alive: Mask, offset: float = 0.0) -> LiveGraph:
    owners = np.repeat(np.arange(graph.n_variables), graph.cardinalities)
    counts = np.bincount(owners[alive], minlength=graph.n_variables)
    decided = alive & (counts[owners] == 1)
    states = np.flatnonzero(decided) - graph.state_offsets[:-1][owners[decided]]
    single = dict(zip(owners[decided].tolist(), states.tolist(), strict=True))
    reduced = graph.condition(single)
    kept = alive[counts[owners] > 1]
    return _without_dead(reduced, kept, offset)


def _without_dead(reduced: Conditioned, kept: Mask, offset: float) -> LiveGraph:
    graph = reduced.graph
    entries = np.ones(graph.log_tables.size, dtype=bool)
    if kept.all():
        return LiveGraph(graph, reduced, kept, entries, offset)
    masks = np.split(kept, graph.state_offsets[1:-1])
    thinned = np.array([not mask.all() for mask in masks])
    for factor in np.unique(graph.edge_factors[thinned[graph.scopes]]):
        a = int(factor)
        box = np.ones((), dtype=bool)
        for v in graph.scope(a):
            box = np.logical_and.outer(box, masks[v])
        entries[graph.table_offsets[a] : graph.table_offsets[a + 1]] = box.ravel()
    live = FactorGraph.from_arrays(
        np.array([int(mask.sum()) for mask in masks]),
        graph.scopes,
        graph.scope_offsets,
        graph.log_tables[entries],
        log_constant=graph.log_constant,
        validate=False,
    )
    return LiveGraph(live, reduced, kept, entries, offset)
