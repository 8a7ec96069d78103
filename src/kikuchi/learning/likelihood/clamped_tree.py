"""Rows that share one junction tree of their missing cells, and the factors that they observe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from kikuchi.core.arrays import Array, Ints, Mask
from kikuchi.core.budget import Budget
from kikuchi.engines.trees.plan import ADVICE, TreePlan, factor_targets
from kikuchi.engines.trees.row_layout import RowLayout
from kikuchi.engines.trees.rows import LinearTables, TreeRows
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.data import Data, merged_rows
from kikuchi.learning.likelihood.kernels.rows import FactorLayout, count_factors, score_factors

Watch = Callable[[], None]

PROPAGATIONS = 20  # on each tree of a fit, at least: what its elimination order is worth


@dataclass(frozen=True)
class MissingnessPattern:
    """Rows that share one tree, and the variables that they miss.

    Parameters
    ----------
    rows : numbers of the rows, rising.
    missing : variables that some row misses.
    always : variables that every row misses.
    layout : what the rows have in common, for the engine of trees.
    plan : the tree; None where no factor touches a missing variable.
    """

    rows: Ints
    missing: Mask
    always: Mask
    layout: RowLayout
    plan: TreePlan | None

    @classmethod
    def of(cls, graph: FactorGraph, rows: Ints, missing: Mask, always: Mask) -> MissingnessPattern:
        """The pattern of some rows, planned."""
        touched = np.zeros(graph.n_factors, dtype=bool)
        touched[graph.edge_factors[missing[graph.scopes]]] = True
        near = missing.copy()
        near[graph.scopes[touched[graph.edge_factors]]] = True
        columns = np.flatnonzero(near & ~always)
        column = np.full(graph.n_variables, -1, dtype=np.int64)
        column[columns] = np.arange(len(columns))
        seen = np.flatnonzero(missing & ~always)
        layout = RowLayout(missing, column, np.flatnonzero(touched), seen, read="counts")
        planned = touched.any() or len(seen)
        plan = layout.plan(graph, uses=PROPAGATIONS) if planned else None
        return cls(np.sort(rows), missing, always, layout, plan)


class RowGroup:
    """The rows of one pattern: what differs between them, once each, and the tree they share."""

    def __init__(
        self, graph: FactorGraph, data: Data, pattern: MissingnessPattern, budget: Budget
    ) -> None:
        self.graph = graph
        self.pattern = replace(pattern, plan=None)  # thousands of plans take much memory
        self.rows = pattern.rows
        self.states = np.ascontiguousarray(data.states[pattern.rows])
        layout = pattern.layout
        self.fixed = np.setdiff1d(np.arange(graph.n_factors), layout.factors)
        near_states = np.ascontiguousarray(self.states[:, layout.column >= 0])
        first, self.inverse, _ = merged_rows(near_states, data.weights[pattern.rows])
        self.unique = np.ascontiguousarray(near_states[first])
        # Missing variables without a factor count their states; a tree counts them itself.
        cards = graph.cardinalities[pattern.always].astype(np.float64)
        self.loose = float(np.log(cards).sum()) if pattern.plan is None else 0.0
        self.tree: TreeRows | None = None
        self.price = 0.0  # multiply-adds for all distinct rows
        plan = pattern.plan
        if plan is not None:
            self.price = float(plan.operations * len(self.unique))
            self.tree = TreeRows(graph, layout, plan, len(self.unique))
            if not self.tree.side_by_side:
                needed = plan.bytes_for(factor_targets(plan), logs=True)
                what = f"the clamped junction tree (width {plan.width})"
                budget.require_bytes(needed, what, ADVICE)
            self.tree.forget_plan()

    def run(
        self, tables: LinearTables, weights: Array, counts: Array | None, watch: Watch
    ) -> Array:
        """log Z of each distinct row that has a weight; adds expected counts to `counts`."""
        if self.tree is None:
            return np.full(len(self.unique), self.loose)
        self.tree.set_tables(tables)
        chosen = np.flatnonzero(weights)
        if len(chosen) == len(weights):
            return self.tree.counts(self.unique, weights, counts, watch)
        values = np.zeros(len(weights))
        values[chosen] = self.tree.counts(self.unique[chosen], weights[chosen], counts, watch)
        return values

    # ------------------------------------------------------------------ factors all observed

    def fixed_scores(self, log_tables: Array) -> Array:
        """Log-weight of each row from the factors that are all observed."""
        out = np.zeros(len(self.rows))
        score_factors(self.states, self.fixed, layout(self.graph), log_tables, out)
        return out

    def add_fixed_counts(self, counts: Array, weights: Array) -> None:
        """Add what those factors see, by the weights of all rows of the data."""
        here = weights[self.rows]
        chosen = np.flatnonzero(here)
        count_factors(self.states, chosen, here[chosen], self.fixed, layout(self.graph), counts)


def layout(graph: FactorGraph) -> FactorLayout:
    """Return where the entries of the factors of a graph are."""
    cards = graph.cardinalities.astype(np.int64)
    return FactorLayout(cards, graph.scopes, graph.scope_offsets, graph.table_offsets)
