"""Evidence patterns: the same observed variables, in any states.

An engine for a pattern is made once and then runs any number of rows. There are two: a table of all
joint states in NumPy (`pattern_table`) and a compiled junction tree (`pattern_tree`). Which one
runs is decided by the work (`ModelCache.engine`), so a question takes the same path every time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array, Ints, Mask, offsets_of
from kikuchi.core.budget import Budget, Clock
from kikuchi.graphs.factor_graph import FactorGraph

States = NDArray[np.int32]


@dataclass(frozen=True)
class EvidencePattern:
    """The variables that are observed, that have weights, whose joint is requested, and that may be
    omitted (barren ones), by number and in increasing order.
    """

    observed: tuple[int, ...]
    weighted: tuple[int, ...] = ()
    together: tuple[int, ...] = ()
    left_out: frozenset[int] = frozenset()


class PatternEngine(ABC):
    """Exact answers for rows of one evidence pattern.

    Attributes
    ----------
    open : numbers of the variables that a row leaves open.
    number : of each variable, its place in `open`, if it is there.
    target_at, target_size : where the marginal of each open variable begins in a row of answers,
        and how many entries it has; a joint of `pattern.together` is a single target.
    weighted, weight_at : the variables with weights, and where those of each begin in a row.
    """

    def __init__(self, graph: FactorGraph, pattern: EvidencePattern) -> None:
        self.graph, self.pattern = graph, pattern
        is_open = graph.cardinalities > 1
        is_open[list(pattern.observed)] = False
        is_open[list(pattern.left_out)] = False
        is_open[list(pattern.weighted)] = True
        self.is_open: Mask = is_open
        self.open = np.flatnonzero(is_open)
        self.number = np.cumsum(is_open) - 1
        self.column = np.full(graph.n_variables, -1, dtype=np.int64)
        self.column[list(pattern.observed)] = np.arange(len(pattern.observed))
        used = _used_factors(graph, pattern.left_out)
        touching = np.zeros(graph.n_factors, dtype=bool)
        touching[graph.edge_factors[is_open[graph.scopes]]] = True
        self.cut = np.flatnonzero(used & touching)  # factors with open variables
        self.fixed = np.flatnonzero(used & ~touching)
        self.weighted = np.array(pattern.weighted, dtype=np.int64)
        self.weight_at = offsets_of(graph.cardinalities[self.weighted])
        self.together = [v for v in pattern.together if is_open[v]]
        self._set_targets()

    def _set_targets(self) -> None:
        cards = self.graph.cardinalities.astype(np.int64)
        sizes = cards[self.open]
        if self.pattern.together:
            sizes = np.array([int(np.prod(cards[self.together], initial=1))])
        ends = np.cumsum(sizes)
        self.target_at = (ends - sizes).astype(np.int64)
        self.target_size = sizes.astype(np.int64)
        self.width = int(ends[-1]) if len(ends) else 0

    # ------------------------------------------------------------------ answers

    @abstractmethod
    def run(
        self, states: States, log_weights: Array, clock: Clock, *, logs: bool = False
    ) -> tuple[Array, Array]:
        """log Z of each row, -inf where it is impossible, and its targets.

        `states` has a column for each observed variable, `log_weights` the logarithms of the
        weights of all states of the weighted variables, one variable after the other. Each target
        sums to 1; with `logs` the targets are logarithms of that, which do not underflow.
        """

    @abstractmethod
    def best(self, states: States, log_weights: Array, clock: Clock) -> tuple[Ints, Array] | None:
        """The most probable state of the open variables in one row and the logarithms of their
        max-marginals, each with a largest entry of 0; None if the row is impossible.
        """

    @abstractmethod
    def affordable(self, budget: Budget) -> bool:
        """Whether a row fits the memory and the time of a budget."""

    @property
    @abstractmethod
    def many_rows_are_cheap(self) -> bool:
        """Whether thousands of rows take seconds at most."""

    @abstractmethod
    def refill(self, graph: FactorGraph) -> None:
        """Use the tables of another graph with the same scopes.

        Only tables with both open and observed variables may differ from those of the graph that
        the engine was made for.
        """

    def marginal(self, row: Array, v: int) -> Array:
        """The marginal of an open variable in a row of answers."""
        k = int(self.number[v])
        at = int(self.target_at[k])
        return row[at : at + int(self.target_size[k])]

    def observed_edges(self, a: int) -> list[int]:
        """The edges of a factor to observed variables."""
        graph = self.graph
        edges = range(int(graph.scope_offsets[a]), int(graph.scope_offsets[a + 1]))
        return [e for e in edges if self.column[graph.scopes[e]] >= 0]

    def observed_entries(self, a: int, states: States) -> Ints:
        """Return for each row the index in the flat tables of factor `a` at its observed states and
        state 0 of all its other variables.
        """
        graph = self.graph
        index = np.full(len(states), graph.table_offsets[a], dtype=np.int64)
        for e in self.observed_edges(a):
            index += graph.edge_strides[e] * states[:, self.column[graph.scopes[e]]]
        return index

    def fixed_scores(self, states: States) -> Array:
        """Log-weight of each row from the factors without open variables."""
        total = np.zeros(len(states))
        for a in self.fixed.tolist():
            total += self.graph.log_tables[self.observed_entries(a, states)]
        return total


def _used_factors(graph: FactorGraph, left_out: frozenset[int]) -> Mask:
    if not left_out:
        return np.ones(graph.n_factors, dtype=bool)
    assert graph.children is not None  # only directed models have barren variables
    return ~np.isin(graph.children, list(left_out))


def log_of(weights: Array) -> Array:
    """Logarithms of weights, -inf where they are 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(weights))


def no_weights(rows: int) -> Array:
    """The log-weights of so many rows without likelihoods."""
    return np.zeros((rows, 0))
