"""Rows that share one junction tree of their missing cells: its tables, its compiled program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import U4, Array, Ints, Mask
from kikuchi.core.budget import Budget
from kikuchi.engines.trees.engine import Propagation
from kikuchi.engines.trees.kernels import passes
from kikuchi.engines.trees.kernels.clamped_rows import clamped_rows, cut_tables
from kikuchi.engines.trees.kernels.contraction import Workspace
from kikuchi.engines.trees.plan import ADVICE, TreePlan, factor_targets
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.data import Data, merged_rows
from kikuchi.learning.likelihood.kernels.rows import count_factors, score_factors

Watch = Callable[[], None]

_CHUNK = 5e7  # multiply-adds between two looks at the clock


@dataclass(frozen=True)
class MissingnessPattern:
    """Rows that share one tree, the variables that they miss, and the tree's plan (None where no
    factor touches a missing variable).
    """

    rows: Ints
    missing: Mask  # in some row
    always: Mask  # missing in every row
    plan: TreePlan | None


# ---------------------------------------------------------------------- one tree


class RowGroup:
    """The rows of one pattern: what differs between them, once each, and the tree they share."""

    def __init__(
        self, graph: FactorGraph, data: Data, pattern: MissingnessPattern, budget: Budget
    ) -> None:
        self.graph = graph
        self.pattern = replace(pattern, plan=None)  # thousands of plans take much memory
        self.rows = pattern.rows
        self.states = np.ascontiguousarray(data.states[pattern.rows])
        touched = pattern.missing[graph.scopes]
        self.touched = np.unique(graph.edge_factors[touched]).astype(np.int64)
        self.fixed = np.setdiff1d(np.arange(graph.n_factors), self.touched)
        near = np.zeros(graph.n_variables, dtype=bool)
        near[graph.scopes[np.isin(graph.edge_factors, self.touched)]] = True
        self.columns = np.flatnonzero((near | pattern.missing) & ~pattern.always)
        near_states = np.ascontiguousarray(self.states[:, self.columns])
        first, self.inverse, _ = merged_rows(near_states, data.weights[pattern.rows])
        self.unique = np.ascontiguousarray(near_states[first])
        # Missing variables without a factor count their states.
        loose = pattern.always & ~near
        self.loose = float(np.log(graph.cardinalities[loose].astype(np.float64)).sum())
        self.tree = None if pattern.plan is None else self._tree(pattern.plan, budget)

    @property
    def price(self) -> float:
        """Multiply-adds for all distinct rows."""
        return 0.0 if self.tree is None else self.tree.operations * len(self.unique)

    def _tree(self, plan: TreePlan, budget: Budget) -> CompiledTree:
        cuts = _cuts(self.graph, self.touched, self.pattern.missing, self.columns)
        sometimes = self.pattern.missing & ~self.pattern.always
        seen = np.searchsorted(self.columns, np.flatnonzero(sometimes))
        return CompiledTree(plan, cuts, seen.astype(np.int64), budget)

    def run(self, log_tables: Array, weights: Array, counts: Array | None, watch: Watch) -> Array:
        """log Z of each distinct row that has a weight; adds expected counts to `counts`."""
        if self.tree is None:
            return np.full(len(self.unique), self.loose)
        values = np.zeros(len(self.unique))
        self.tree.run(self.unique, weights, log_tables, values, counts, watch)
        return values  # the tree counts the states of loose variables itself

    # ------------------------------------------------------------------ factors all observed

    def fixed_scores(self, log_tables: Array) -> Array:
        """Log-weight of each row from the factors that are all observed."""
        out = np.zeros(len(self.rows))
        score_factors(self.states, self.fixed, *layout(self.graph), log_tables, out)
        return out

    def add_fixed_counts(self, counts: Array, weights: Array) -> None:
        """Add what those factors see, by the weights of all rows of the data."""
        here = weights[self.rows]
        chosen = np.flatnonzero(here)
        count_factors(self.states, chosen, here[chosen], self.fixed, *layout(self.graph), counts)


def layout(graph: FactorGraph) -> tuple[Ints, U4, Ints, Ints]:
    """The arrays that say where a factor's entries are."""
    cards = graph.cardinalities.astype(np.int64)
    return cards, graph.scopes, graph.scope_offsets, graph.table_offsets


@dataclass(frozen=True)
class _Cuts:
    """How the tables of the tree are cut from the full ones, by what a row observes.

    Entry e of the tree's tables is entry places[e] + shift of the full ones; the shift of a factor
    is the sum of strides times states over its observed variables.
    """

    places: Ints
    offsets: Ints
    columns: Ints
    strides: Ints


def _cuts(graph: FactorGraph, factors: Ints, gaps: Mask, columns: Ints) -> _Cuts:
    column_of = np.full(graph.n_variables, -1, dtype=np.int64)
    column_of[columns] = np.arange(len(columns))
    return _Cuts(*cut_tables(factors, gaps, column_of, *layout(graph)))


class CompiledTree:
    """The compiled program of one tree, and where the tables of one row are put."""

    def __init__(self, plan: TreePlan, cuts: _Cuts, seen: Ints, budget: Budget) -> None:
        targets = factor_targets(plan)
        needed = plan.bytes_for(targets, logs=True)
        budget.require_bytes(needed, f"the clamped junction tree (width {plan.width})", ADVICE)
        run = Propagation(plan, targets, arithmetic=passes.LINEAR)
        graph = plan.graph
        self.operations = run.measure.operations
        self.cuts, self.seen = cuts, seen
        self.shifts = np.zeros(len(cuts.offsets), dtype=np.int64)
        self.reduced = np.zeros(graph.log_tables.size)
        self.offsets = np.array(graph.table_offsets)
        self.tree, self.scope_offsets = plan.found_tree, np.array(graph.scope_offsets)
        self.up, self.down = run.upward, run.downward()
        self.table_sizes = [(array.size, array.dtype) for array in run.tables]
        temporary = (int(run.measure.temporary(True)), run.workspace.temporary.dtype)
        rest = [(array.size, array.dtype) for array in run.workspace[1:]]
        self.workspace_sizes = [temporary, *rest]

    def _arrays(self) -> tuple[passes.PropagationState, Workspace]:
        """Arrays of one propagation; they are not kept, as there may be thousands of trees."""
        tables: list[NDArray[Any]] = [np.empty(size, dtype=kind) for size, kind in self.table_sizes]
        workspace: list[NDArray[Any]]
        workspace = [np.empty(size, dtype=kind) for size, kind in self.workspace_sizes]
        return passes.PropagationState(*tables), Workspace(*workspace)

    def run(
        self,
        states: NDArray[np.int32],
        weights: Array,
        log_tables: Array,
        values: Array,
        counts: Array | None,
        watch: Watch,
    ) -> None:
        """Fill `values` with log Z of every row and add to `counts`, chunk by chunk."""
        both = counts is not None
        sums = np.zeros(0) if counts is None else counts
        chunk = max(int(_CHUNK / max(self.operations, 1.0)), 1)
        cuts, (propagation, workspace) = self.cuts, self._arrays()
        for start in range(0, len(states), chunk):
            stop = min(start + chunk, len(states))
            clamped_rows(
                states, start, stop, weights, log_tables, cuts.places, self.offsets, cuts.offsets,
                cuts.columns, cuts.strides, self.seen, self.shifts, self.reduced, self.tree,
                self.scope_offsets, self.up, self.down, propagation, workspace, values, sums, both,
            )  # fmt: skip
            watch()
