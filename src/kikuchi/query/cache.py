"""What queries remember about a model: its plain tables, and the trees of its evidence patterns.

A model is immutable, so that nothing here can go stale; what is remembered goes with the model.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from kikuchi.core.arrays import Array, Mask
from kikuchi.core.budget import Clock
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.query.barren import barren_variables, normalised_tables

if TYPE_CHECKING:  # trees need compiled loops, and answers of small models do not
    from kikuchi.query.pattern_tree import EvidencePattern, LinearTables, PatternTree, States

_MOST_TREES = 64
_MOST_PATTERNS = 10_000
_SMALL_MODEL = 256  # variables: the tree of all of them is worth having
_SMALL_TREE = 2**15  # entries of all cliques: reading everything costs less than another tree

Row = tuple[float, Array]


class ModelCache:
    """Trees of one model by evidence pattern, the least used forgotten first."""

    def __init__(self, graph: FactorGraph) -> None:
        self._graph = weakref.ref(graph)
        self._trees: OrderedDict[EvidencePattern, PatternTree] = OrderedDict()
        self._last: tuple[PatternTree, bytes, bytes, Row] | None = None
        self._lock = threading.Lock()
        self._asked: set[tuple[tuple[int, ...], ...]] = set()
        self.prior: tuple[frozenset[int], Array] | None = None  # of variables asked part by part

    @property
    def graph(self) -> FactorGraph:
        """The model."""
        graph = self._graph()
        assert graph is not None  # a cache is reached through its model only
        return graph

    @cached_property
    def linear(self) -> LinearTables:
        """The tables as plain numbers."""
        from kikuchi.query.pattern_tree import LinearTables

        return LinearTables.of(self.graph)

    @cached_property
    def normalised(self) -> Mask:
        """Whether each variable's conditional table sums to 1."""
        return normalised_tables(self.graph)

    def barren(self, needed: set[int]) -> frozenset[int]:
        """Variables that do not matter for the needed ones."""
        return barren_variables(self.graph, needed, self.normalised)

    def tree(self, pattern: EvidencePattern, clock: Clock) -> PatternTree:
        """The tree of a pattern, made when first asked for."""
        from kikuchi.query.pattern_tree import PatternTree

        with self._lock:
            found = self._trees.get(pattern)
            if found is not None:
                self._trees.move_to_end(pattern)
                return found
        made = PatternTree(self.graph, self.linear, pattern, clock)
        with self._lock:
            self._trees[pattern] = made
            if len(self._trees) > _MOST_TREES:
                self._trees.popitem(last=False)
        return made

    def is_new(
        self, observed: tuple[int, ...], weighted: tuple[int, ...], together: tuple[int, ...]
    ) -> bool:
        """Whether nothing was asked with this evidence pattern so far; it counts as asked then."""
        key = observed, weighted, together
        if key in self._asked:
            return False
        if len(self._asked) > _MOST_PATTERNS:
            self._asked.clear()
        self._asked.add(key)
        return True

    def tree_for(
        self,
        observed: tuple[int, ...],
        weighted: tuple[int, ...],
        asked: set[int],
        together: tuple[int, ...],
        clock: Clock,
    ) -> PatternTree:
        """A tree that answers about `asked`: that of all variables if it is small, so that the next
        question finds it; else that without the barren ones.
        """
        from kikuchi.query.pattern_tree import EvidencePattern

        whole = EvidencePattern(observed, weighted, together)
        graph = self.graph
        if not graph.is_directed:
            return self.tree(whole, clock)
        if whole in self._trees or graph.n_variables <= _SMALL_MODEL:
            tree = self.tree(whole, clock)
            if tree.entries <= _SMALL_TREE:
                return tree
        left_out = self.barren({*observed, *weighted, *asked, *together})
        if not left_out:
            return self.tree(whole, clock)
        return self.tree(EvidencePattern(observed, weighted, together, left_out), clock)

    def row(self, tree: PatternTree, states: States, weights: Array, clock: Clock) -> Row:
        """log Z and targets of one row; the same row asked again is remembered."""
        key = states.tobytes(), weights.tobytes()
        last = self._last
        if last is not None and last[0] is tree and last[1:3] == key:
            return last[3]
        log_z, out = tree.run(states, weights, clock)
        answer = float(log_z[0]), out[0]
        answer[1].flags.writeable = False
        self._last = (tree, *key, answer)
        return answer


_CACHES: dict[int, ModelCache] = {}


def cache_of(graph: FactorGraph) -> ModelCache:
    """What is remembered about a model."""
    key = id(graph)
    found = _CACHES.get(key)
    if found is None:
        found = _CACHES[key] = ModelCache(graph)
        weakref.finalize(graph, _CACHES.pop, key, None)
    return found


def empty_weights(rows: int) -> Array:
    """No likelihoods for so many rows."""
    return np.zeros((rows, 0))
