"""One junction tree for all evidence of one pattern: rows through the engine of trees."""

from __future__ import annotations

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Budget, Clock
from kikuchi.engines.small_work import loops_for, loops_for_rows
from kikuchi.engines.trees.plan import TreePlan
from kikuchi.engines.trees.row_layout import RowLayout
from kikuchi.engines.trees.rows import LinearTables, TreeRows, clique_entries
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.queries.patterns import EvidencePattern, PatternEngine, States

_DEFAULT_SECONDS = 60.0  # of a tree that is propagated where no limit was given


class PatternTree(PatternEngine):
    """The plan and the maps of one evidence pattern; it holds no table of a row."""

    def __init__(
        self, graph: FactorGraph, linear: LinearTables, pattern: EvidencePattern, clock: Clock
    ) -> None:
        super().__init__(graph, pattern)
        layout = RowLayout(
            self.is_open,
            self.column,
            self.cut,
            weighted=self.weighted,
            read="joint" if pattern.together else "variables",
            together=tuple(self.together),
        )
        with loops_for(graph):
            self.plan: TreePlan = layout.plan(graph, clock, uses=4)
        self.rows = TreeRows(graph, layout, self.plan)
        self.rows.set_tables(linear)

    @property
    def entries(self) -> float:
        """Entries of all cliques; infinite if the search for a tree was given up."""
        return clique_entries(self.plan)

    @property
    def many_rows_are_cheap(self) -> bool:
        """Whether rows run side by side."""
        return self.rows.side_by_side

    def affordable(self, budget: Budget) -> bool:
        """Whether a row fits the memory and the time of a budget."""
        if self.rows.side_by_side:
            return True
        if not self.plan.complete or (budget.bytes is not None and self.plan.bytes > budget.bytes):
            return False
        limit = _DEFAULT_SECONDS if budget.seconds is None else 0.5 * budget.seconds
        return self.plan.seconds() <= limit

    def refill(self, graph: FactorGraph) -> None:
        """Use the tables of another graph with the same scopes."""
        self.graph = graph
        self.rows.replace_cut_tables(LinearTables.of(graph))

    def run(
        self, states: States, log_weights: Array, clock: Clock, *, logs: bool = False
    ) -> tuple[Array, Array]:
        """log Z of each row, -inf where it is impossible, and its targets."""
        with loops_for_rows(self.graph, len(states)):
            log_z, out = self.rows.marginals(states, log_weights, clock, logs=logs)
        if self.pattern.together and not self.together:
            out[:] = 0.0 if logs else 1.0  # of a single state each: the joint has one entry
        log_z += self.fixed_scores(states) + self.graph.log_constant
        out[log_z == -np.inf] = -np.inf if logs else 0.0
        return log_z, out

    def best(self, states: States, log_weights: Array, clock: Clock) -> tuple[Ints, Array] | None:
        """The most probable state of the open variables and their max-marginals as logarithms."""
        with loops_for(self.graph):
            return self.rows.best(states, log_weights, clock)
