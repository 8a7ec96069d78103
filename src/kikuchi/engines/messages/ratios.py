"""Messages of positive binary pairwise models as ratios m(1) / m(0), one number each."""

from __future__ import annotations

import numpy as np

from kikuchi.core.arrays import U4, Array
from kikuchi.core.budget import Clock
from kikuchi.engines.messages.kernels import bp_binary, bp_messages
from kikuchi.engines.messages.kernels.bp_messages import UpdateLimits
from kikuchi.engines.messages.state import MessageState
from kikuchi.engines.messages.tables import (
    BetheMessages,
    TableMessages,
    UnderflowError,
    new_queue,
    until_expired,
)
from kikuchi.graphs.binary import SpinFactors, spin_factors
from kikuchi.graphs.factor_graph import FactorGraph

_PROPOSALS_PER_CALL = 500_000  # between two looks at the clock: some hundredths of a second
_RATIO_LIMIT = 300.0  # sum of |log ratio| around a node that the ratio form is trusted with


class PairEdges:
    """The edges of the factors of two variables, sorted by variable.

    Those of variable i are `start[i]` to `start[i + 1]`. `edge` is the number that each has in the
    graph, `node` its variable, and `reverse` the position of the other edge of its factor.
    """

    def __init__(self, graph: FactorGraph, factors: SpinFactors) -> None:
        edges = graph.variable_edges
        self.edge = edges[np.diff(graph.scope_offsets)[graph.edge_factors[edges]] == 2]
        self.node = graph.scopes[self.edge]
        counts = np.bincount(self.node, minlength=graph.n_variables)
        self.start = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)
        self.position = np.empty(graph.n_edges, dtype=np.uint32)  # inverse of `edge`
        self.position[self.edge] = np.arange(len(self.edge), dtype=np.uint32)
        partner = np.empty(graph.n_edges, dtype=np.uint32)
        partner[factors.pair_edges] = self.position[factors.pair_edges + 1]
        partner[factors.pair_edges + 1] = self.position[factors.pair_edges]
        self.reverse = partner[self.edge]
        coupling = np.empty(graph.n_edges)
        coupling[factors.pair_edges] = coupling[factors.pair_edges + 1] = factors.couplings
        self.coupling = coupling[self.edge]


def _in_range(graph: FactorGraph) -> tuple[SpinFactors, PairEdges] | None:
    """The model as a binary pairwise one whose products stay in the range of a double, if it is."""
    factors = spin_factors(graph)
    if factors is None:
        return None
    pairs = PairEdges(graph, factors)
    around = np.abs(factors.fields)
    around += np.bincount(pairs.node, np.abs(2.0 * pairs.coupling), graph.n_variables)
    return (factors, pairs) if around.max() < _RATIO_LIMIT else None


class RatioMessages(BetheMessages):
    """Belief propagation on a positive binary pairwise model (kernels.bp_binary)."""

    arithmetic = "ratios"

    @classmethod
    def of(cls, graph: FactorGraph) -> RatioMessages | None:
        """None for models of another kind, or whose products could leave the range of a double."""
        found = _in_range(graph)
        return None if found is None else cls(graph, *found)

    def __init__(self, graph: FactorGraph, factors: SpinFactors, pairs: PairEdges) -> None:
        self.graph = graph
        self._use(factors, pairs)
        self.r = np.ones(len(pairs.edge))
        self.spare = np.empty_like(self.r)
        self.product = np.empty(graph.n_variables)
        self.order = np.arange(graph.n_variables, dtype=np.uint32)

    def _use(self, factors: SpinFactors, pairs: PairEdges) -> None:
        self.factors = factors
        self.pairs = pairs
        self.model = bp_binary.RatioEdges(
            pairs.start,
            pairs.reverse,
            pairs.node,
            np.exp(2.0 * pairs.coupling),
            np.exp(factors.fields),
        )

    def set_tables(self, log_tables: Array) -> None:
        """Use other log-tables, of which `of` would make ratios too, and keep the messages."""
        state = self.state
        graph = self.graph.replaced(log_tables=log_tables)
        found = _in_range(graph)
        if found is None:
            raise UnderflowError
        self.graph = graph
        self._use(*found)
        self.state = state

    @property
    def state(self) -> MessageState:
        """The logarithms of the messages; those of one-variable factors are 0."""
        messages = np.zeros(int(self.graph.message_offsets[-1]))
        edges = self.pairs.edge.astype(np.int64)
        messages[2 * edges + 1] = np.log(self.r) + self.factors.local_fields[edges]
        return MessageState(messages)

    @state.setter
    def state(self, state: MessageState) -> None:
        messages, edges = state.bounded(self.graph), self.pairs.edge.astype(np.int64)
        ratios = messages[2 * edges + 1] - messages[2 * edges]
        self.r[:] = np.exp(ratios - self.factors.local_fields[edges])
        self._queue = None

    def sweeps_per_call(self, tol: float) -> int:
        """Even, so that the messages end in the buffer they began in."""
        return 4 if tol > 0 else 20

    def parallel(self, count: int, damping: float, kind: int) -> float:
        """`count` sweeps in which all messages change at once; answers the last change."""
        return float(
            bp_binary.parallel(self.model, self.r, self.spare, self.order, count, damping, kind)
        )

    def sequential(self, order: U4, damping: float, kind: int) -> float:
        """One sweep, variable by variable; answers the largest change."""
        return float(bp_binary.sequential(self.model, self.r, order, damping, kind))

    def residual(self, damping: float, kind: int, tol: float, clock: Clock) -> float:
        """Single updates, largest change first: as many as there are messages, or until the clock
        has expired.
        """
        if self.r.size == 0:
            return 0.0
        if self._queue is None:
            self._queue = new_queue(self.r.size)
            bp_binary.residual_start(self.model, self.r, self.spare, self._queue)
        at = (self.model, self.r, self.spare, damping, kind, self._queue)
        return until_expired(
            lambda count: bp_binary.residual_updates(
                *at, UpdateLimits(count, _PROPOSALS_PER_CALL, tol)
            ),
            self.r.size,
            clock,
        )

    def marginals(self) -> Array:
        """Beliefs of the variables, flat."""
        out = np.empty(2 * self.graph.n_variables)
        bp_binary.beliefs(self.model, self.r, self.product, out)
        return out

    def log_z(self, marginals: Array | None = None) -> float:
        """Minus the Bethe free energy."""
        if marginals is None:
            self.marginals()  # for the products
        return self.factors.constant - float(bp_binary.bethe(self.model, self.r, self.product))

    def factor_marginals(self) -> Array:
        """Through tables: m(1) / m(0) is the ratio times the factor's own local field."""
        general = TableMessages(self.graph, bp_messages.LOG_SUM)
        edges = self.pairs.edge.astype(np.int64)
        general.m[2 * edges] = 0.0
        general.m[2 * edges + 1] = np.log(self.r) + self.factors.local_fields[edges]
        general.refresh()
        return general.factor_marginals()
