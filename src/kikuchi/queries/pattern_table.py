"""One table of all joint states for all evidence of one pattern: small models in plain NumPy.

Nothing is compiled, and nothing underflows: weights are added as logarithms.
"""

from __future__ import annotations

import math

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Budget, Clock
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.queries.patterns import EvidencePattern, PatternEngine, States, log_of

_MOST_STATES = 2**17  # joint states of what a row leaves open: a few milliseconds
_MOST_ENTRIES = 2**22  # states times rows: a fifth of a second
_MOST_FACTORS = 1024  # each takes a few microseconds of Python
_BLOCK_ENTRIES = 2**17  # states times rows of a block
_MOST_AXES = 60  # of an array of NumPy, one of them for rows
_COPIES = 4  # of a block that are held at once


def fits(graph: FactorGraph, pattern: EvidencePattern, rows: int, budget: Budget) -> bool:
    """Whether `rows` rows of a pattern are few and small enough for a table.

    >>> fits(FactorGraph([2] * 20, []), EvidencePattern(()), 1, Budget())
    False
    >>> fits(FactorGraph([2] * 20, []), EvidencePattern((0, 1, 2)), 1, Budget())
    True
    """
    if graph.n_factors > _MOST_FACTORS:
        return False
    cards = graph.cardinalities
    log_states = float(np.log2(cards).sum() - np.log2(cards[list(pattern.observed)]).sum())
    axes = log_states + np.count_nonzero(cards[list(pattern.weighted)] == 1)
    if log_states > math.log2(_MOST_STATES) + 1e-6 or axes > _MOST_AXES:
        return False
    states = 2.0**log_states
    memory = 8 * _COPIES * max(_BLOCK_ENTRIES if rows > 1 else 0, states)
    return rows * states <= 1.001 * _MOST_ENTRIES and (
        budget.bytes is None or memory <= budget.bytes
    )


class PatternTable(PatternEngine):
    """The joint log-weights of all open variables.

    >>> import kikuchi as kk
    >>> pair = kk.FactorGraph([2, 2], [((0, 1), [[1, 2], [3, 4]])])
    >>> table = PatternTable(pair, EvidencePattern((0,)))
    >>> rows = np.array([[0], [1]], dtype=np.int32)
    >>> log_z, out = table.run(rows, np.zeros((2, 0)), kk.Budget().start())
    >>> np.exp(log_z).round(6).tolist(), out.round(6).tolist()
    ([3.0, 7.0], [[0.333333, 0.666667], [0.428571, 0.571429]])
    """

    def __init__(self, graph: FactorGraph, pattern: EvidencePattern) -> None:
        super().__init__(graph, pattern)
        self.cards = [int(c) for c in graph.cardinalities[self.open]]
        self.size = math.prod(self.cards)
        self.log_base = np.zeros(self.cards)
        self._cut: list[tuple[int, Ints]] = []
        for a in self.cut.tolist():
            entries = self._open_entries(a)
            if self.observed_edges(a):
                self._cut.append((a, entries))
            else:
                self.log_base += graph.log_tables[int(graph.table_offsets[a]) + entries]

    def _open_entries(self, a: int) -> Ints:
        """Places of the entries of a table, from its beginning, over the axes of open variables."""
        graph = self.graph
        places = np.zeros([1] * len(self.cards), dtype=np.int64)
        for e in range(int(graph.scope_offsets[a]), int(graph.scope_offsets[a + 1])):
            v = int(graph.scopes[e])
            if self.is_open[v]:
                places = places + self._along(v, graph.edge_strides[e] * np.arange(self._card(v)))
        return places

    def _card(self, v: int) -> int:
        return int(self.graph.cardinalities[v])

    def _along(self, v: int, values: Ints) -> Ints:
        """One value for each state of a variable, as an array over all open variables."""
        shape = [1] * len(self.cards)
        shape[int(self.number[v])] = self._card(v)
        return values.reshape(shape)

    # ------------------------------------------------------------------ answers

    def run(
        self, states: States, log_weights: Array, clock: Clock, *, logs: bool = False
    ) -> tuple[Array, Array]:
        """log Z of each row, -inf where it is impossible, and its targets."""
        n = len(states)
        log_z, out = np.empty(n), np.zeros((n, self.width))
        block = max(_BLOCK_ENTRIES // self.size, 1)
        for first in range(0, n, block):
            rows = slice(first, first + block)
            scores = self._scores(states[rows], log_weights[rows])
            scores = scores.reshape(len(scores), -1)
            log_z[rows] = self._sum(scores, out[rows])
            if logs:
                shift = np.where(log_z[rows] > -np.inf, log_z[rows], 0.0)
                out[rows] = self._log_targets(scores - shift[:, None])
        log_z += self.fixed_scores(states) + self.graph.log_constant
        out[log_z == -np.inf] = -np.inf if logs else 0.0
        return log_z, out

    def _scores(self, states: States, log_weights: Array) -> Array:
        """Log-weights of all joint states in each row."""
        total = np.repeat(self.log_base[None], len(states), axis=0)
        row_axis = (slice(None), *[None] * len(self.cards))
        for a, entries in self._cut:
            total += self.graph.log_tables[self.observed_entries(a, states)[row_axis] + entries]
        for k, v in enumerate(self.weighted.tolist()):
            own = log_weights[:, self.weight_at[k] : self.weight_at[k + 1]]
            shape = [len(states)] + [1] * len(self.cards)
            shape[1 + int(self.number[v])] = own.shape[1]
            total += own.reshape(shape)
        return total

    def _sum(self, scores: Array, out: Array) -> Array:
        """log of the sum of each row; writes the targets of the rows that have any weight."""
        top = scores.max(axis=1, initial=-np.inf)
        alive = top > -np.inf
        p = np.exp(scores - np.where(alive, top, 0.0)[:, None])
        mass = p.sum(axis=1)
        p /= np.where(alive, mass, 1.0)[:, None]
        if self.pattern.together:
            out[:] = self._joint(p)
        elif self.cards:
            self._marginals(p, 0, len(self.cards), out)
        return np.asarray(top + log_of(mass))

    def _log_targets(self, scores: Array) -> Array:
        """The targets as logarithms, each from the log-probabilities of all joint states."""
        kept = [[int(self.number[v]) for v in self.together]]
        if not self.pattern.together:
            kept = [[k] for k in range(len(self.cards))]
        table = scores.reshape(-1, *self.cards)
        found = [np.zeros((len(scores), 0))]
        for axes in kept:
            others = tuple(1 + k for k in range(len(self.cards)) if k not in axes)
            top = table.max(axis=others, keepdims=True)
            top[top == -np.inf] = 0.0
            sums = log_of(np.exp(table - top).sum(axis=others, keepdims=True)) + top
            found.append(sums.reshape(len(scores), -1))
        return np.concatenate(found, axis=1)

    def _joint(self, p: Array) -> Array:
        kept = {int(self.number[v]) for v in self.together}
        others = tuple(1 + k for k in range(len(self.cards)) if k not in kept)
        return np.asarray(p.reshape(-1, *self.cards).sum(axis=others).reshape(len(p), -1))

    def _marginals(self, p: Array, first: int, end: int, out: Array) -> None:
        """Marginals of the open variables first..end - 1, whose joint is `p`: each half of them
        from a table without the other half.
        """
        if end - first == 1:
            at = int(self.target_at[first])
            out[:, at : at + self.cards[first]] = p
            return
        middle = (first + end) // 2
        halves = p.reshape(len(p), math.prod(self.cards[first:middle]), -1)
        self._marginals(halves.sum(axis=2), first, middle, out)
        self._marginals(halves.sum(axis=1), middle, end, out)

    def best(self, states: States, log_weights: Array, clock: Clock) -> tuple[Ints, Array] | None:
        """The most probable state of the open variables and their max-marginals as logarithms."""
        scores = self._scores(states[None], log_weights[None])[0]
        place = int(scores.argmax())
        top = float(scores.flat[place])
        if top == -np.inf:
            return None
        state = np.array(np.unravel_index(place, scores.shape), dtype=np.int64)
        axes = range(scores.ndim)
        maxima = [scores.max(axis=tuple(j for j in axes if j != k)) - top for k in axes]
        return state, np.concatenate([np.zeros(0), *maxima])

    def affordable(self, budget: Budget) -> bool:
        """True: what does not fit is not made (see `fits`)."""
        return True

    @property
    def many_rows_are_cheap(self) -> bool:
        """True: many rows of a larger table are run by a tree (see `fits`)."""
        return True

    def refill(self, graph: FactorGraph) -> None:
        """Use the tables of another graph with the same scopes."""
        self.graph = graph
