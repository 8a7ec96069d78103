"""Cache of queries on a model: its plain tables, and the engines of its evidence patterns.

A model is immutable, so no entry can become stale; the cache is released with the model.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from kikuchi.core.arrays import Array, Mask
from kikuchi.core.budget import Budget, Clock
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.queries.barren import barren_variables, marginals_by_parts, normalised_tables
from kikuchi.queries.pattern_table import PatternTable, fits
from kikuchi.queries.patterns import EvidencePattern, PatternEngine, States

if TYPE_CHECKING:  # trees need compiled loops, and small models do not
    from kikuchi.engines.trees.rows import LinearTables
    from kikuchi.queries.pattern_tree import PatternTree

_MOST_ENGINES = 64
_MOST_PRIORS = 16
_SMALL_MODEL = 256  # variables: the tree of all of them is worth having
_SMALL_TREE = 2**15  # entries of all cliques: reading everything costs less than another tree

Row = tuple[float, Array]
Engine = TypeVar("Engine", bound=PatternEngine)


class ModelCache:
    """Engines of one model by evidence pattern, the least used forgotten first.

    Which engine runs a question depends on the question and its limits only, never on what was
    asked before: the first and the hundredth call give the same numbers.
    """

    def __init__(self, graph: FactorGraph) -> None:
        # A copy that shares the arrays: engines that held the model itself would keep it for ever.
        self.graph = graph.replaced(names=None, states=None)
        self._engines: OrderedDict[Any, Any] = OrderedDict()
        self._priors: OrderedDict[Any, Array | None] = OrderedDict()
        self._last: tuple[PatternEngine, bytes, bytes, Row] | None = None
        self._lock = threading.Lock()

    @cached_property
    def linear(self) -> LinearTables:
        """The tables as plain numbers."""
        from kikuchi.engines.trees.rows import LinearTables

        return LinearTables.of(self.graph)

    @cached_property
    def normalised(self) -> Mask:
        """Whether each variable's conditional table sums to 1."""
        return normalised_tables(self.graph)

    def barren(self, needed: set[int]) -> frozenset[int]:
        """Variables that do not matter for the needed ones."""
        return barren_variables(self.graph, needed, self.normalised)

    def engine(
        self,
        observed: tuple[int, ...],
        weighted: tuple[int, ...],
        asked: set[int],
        together: tuple[int, ...],
        clock: Clock,
        rows: int = 1,
    ) -> PatternEngine:
        """An engine for so many rows of a pattern that answers about `asked`: a table in NumPy if
        it is small, else a compiled tree.
        """
        pattern = EvidencePattern(observed, weighted, together)
        if fits(self.graph, pattern, rows, clock.budget):
            return self._kept(pattern, lambda: PatternTable(self.graph, pattern))
        return self._tree_for(pattern, asked, clock)

    def _tree_for(self, whole: EvidencePattern, asked: set[int], clock: Clock) -> PatternTree:
        """The tree of all variables if it is small, so that the next question finds it; else that
        without the barren ones.
        """
        graph = self.graph
        if not graph.is_directed:
            return self._tree(whole, clock)
        if graph.n_variables <= _SMALL_MODEL:
            tree = self._tree(whole, clock)
            if tree.entries <= _SMALL_TREE:
                return tree
        left_out = self.barren({*whole.observed, *whole.weighted, *asked, *whole.together})
        if not left_out:
            return self._tree(whole, clock)
        return self._tree(replace(whole, left_out=left_out), clock)

    def _tree(self, pattern: EvidencePattern, clock: Clock) -> PatternTree:
        """The tree of a pattern, whose plan depends on the limits."""
        from kikuchi.queries.pattern_tree import PatternTree

        return self._kept(
            (pattern, *_limits(clock.budget)),
            lambda: PatternTree(self.graph, self.linear, pattern, clock),
        )

    def _kept(self, key: Any, make: Callable[[], Engine]) -> Engine:
        """Return the entry of a key, created on first use."""
        with self._lock:
            if key in self._engines:
                self._engines.move_to_end(key)
                found: Engine = self._engines[key]
                return found
        made = make()
        with self._lock:
            self._engines[key] = made
            if len(self._engines) > _MOST_ENGINES:
                self._engines.popitem(last=False)
        return made

    def prior_by_parts(self, asked: set[int], clock: Clock) -> Array | None:
        """Marginals without evidence from narrow parts of a model; None where one tree is expected
        to be quicker.
        """
        key = frozenset(asked), *_limits(clock.budget)
        if key not in self._priors:
            self._priors[key] = marginals_by_parts(
                self.graph, sorted(asked), self.normalised, clock
            )
            if len(self._priors) > _MOST_PRIORS:
                self._priors.popitem(last=False)
        return self._priors[key]

    def row(self, engine: PatternEngine, states: States, weights: Array, clock: Clock) -> Row:
        """log Z and targets of one row; the same row asked again is remembered."""
        key = states.tobytes(), weights.tobytes()
        last = self._last
        if last is not None and last[0] is engine and last[1:3] == key:
            return last[3]
        log_z, out = engine.run(states, weights, clock)
        answer = float(log_z[0]), out[0]
        answer[1].flags.writeable = False
        self._last = (engine, *key, answer)
        return answer


def _limits(budget: Budget) -> tuple[float | None, int | None]:
    return budget.seconds, budget.bytes


_CACHES: dict[int, ModelCache] = {}


def cache_of(graph: FactorGraph) -> ModelCache:
    """Return the cache of a model."""
    key = id(graph)
    found = _CACHES.get(key)
    if found is None:
        found = _CACHES[key] = ModelCache(graph)
        weakref.finalize(graph, _CACHES.pop, key, None)
    return found
