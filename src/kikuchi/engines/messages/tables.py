"""Messages on any factor graph as tables of probabilities or logarithms.

The engine of `bp`, and with clamped variables of `loopy-is`, `is-bp` and `ups`. A run starts with
probabilities and starts again with logarithms where those underflow (`with_logarithms_if_needed`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from kikuchi.core.arrays import U4, Array, Ints, Mask
from kikuchi.core.budget import Clock
from kikuchi.core.errors import EvidenceError, ImpossibleEvidenceError
from kikuchi.core.numerics import log
from kikuchi.core.run import Run
from kikuchi.engines.messages.kernels import beliefs, bp_messages, sweeps
from kikuchi.engines.messages.kernels.bp_messages import (
    MessageArrays,
    MessageLayout,
    MessageQueue,
    UpdateLimits,
)
from kikuchi.engines.messages.kernels.sweeps import Clamping
from kikuchi.engines.messages.state import MessageState
from kikuchi.engines.response.reweighted import ReweightedResponse
from kikuchi.graphs.factor_graph import FactorGraph

T = TypeVar("T")

_ENTRIES_PER_CALL = 2_000_000  # of tables, between two looks at the clock


class UnderflowError(Exception):
    """Probabilities became too small; the run must start again with logarithms."""


def with_logarithms_if_needed(solve: Callable[[int], T], run: Run) -> T:
    """`solve(mode)` with probabilities, and with logarithms if a number underflows."""
    try:
        return solve(bp_messages.SUM)
    except UnderflowError:
        run.trace.clear()
        return solve(bp_messages.LOG_SUM)


@dataclass(frozen=True)
class Damping:
    """Weight on the old message, which may move linearly to `end` over `anneal` iterations.

    >>> Damping(0.5, "linear", end=0.0, anneal=10).at(5)
    0.25
    """

    start: float
    kind: str
    end: float | None = None
    anneal: int = 1

    def at(self, iteration: int) -> float:
        """The weight at an iteration."""
        if self.end is None:
            return self.start
        return self.start + min(1.0, iteration / self.anneal) * (self.end - self.start)

    @property
    def code(self) -> int:
        """How old and new are mixed, as compiled loops know it."""
        return bp_messages.LINEAR if self.kind == "linear" else bp_messages.GEOMETRIC


class BetheMessages(ABC):
    """Engine of belief propagation: messages in some arithmetic, that sweeps change."""

    graph: FactorGraph
    arithmetic: str
    _queue: MessageQueue | None = None  # of the residual schedule

    @abstractmethod
    def sequential(self, order: U4, damping: float, kind: int) -> float:
        """One sweep, variable by variable; answers the largest change."""

    @abstractmethod
    def marginals(self) -> Array:
        """Beliefs of the variables, flat."""

    @abstractmethod
    def factor_marginals(self) -> Array:
        """Beliefs of all factors, in the layout of the tables."""

    def sweep(self, damping: float = 0.0) -> float:
        """One sweep in the order of the variables; answers the largest change."""
        order = np.arange(self.graph.n_variables, dtype=np.uint32)
        return self.sequential(order, damping, bp_messages.LINEAR)

    def settled(self, residual: float, tol: float) -> float:
        """The residual of a sweep, or how far a belief still moves where only the residual is
        small.

        Messages are compared as probabilities. Of tables that span many decades an entry too small
        to count there may decide a product of messages, and damping hides how far it has to go: a
        residual within `tol` is believed only if one sweep without damping leaves the beliefs as
        they are, up to a hundred times `tol`.
        """
        if tol == 0 or not residual <= tol:
            return residual
        before = self.marginals()
        self.sweep()
        self._queue = None  # made anew from the changed messages
        moved = float(np.abs(self.marginals() - before).max(initial=0.0))
        return residual if moved <= 100.0 * tol else moved

    def response(self) -> ReweightedResponse:
        """How the marginals at this fixed point move with the tables."""
        return ReweightedResponse(
            self.graph, self.marginals(), self.factor_marginals(), np.ones(self.graph.n_factors)
        )


class TableMessages(BetheMessages):
    """Messages of a factor graph, some of whose variables may be clamped (kernels.sweeps).

    >>> edge = FactorGraph([2, 2], [((0, 1), [[2, 1], [1, 2]])])
    >>> messages = TableMessages(edge, bp_messages.SUM)
    >>> messages.clamp(np.array([True, False]), np.array([0.2, 0.8, 0.5, 0.5]))
    >>> messages.sequential(np.arange(2, dtype=np.uint32), 0.0, bp_messages.LINEAR) > 0
    True
    >>> messages.marginals().round(6).tolist()
    [0.2, 0.8, 0.4, 0.6]
    """

    def __init__(self, graph: FactorGraph, mode: int) -> None:
        self.graph = graph
        self.layout = message_layout(graph)
        self.clamped = np.zeros(graph.n_variables, dtype=np.uint8)
        self.clamped_to = np.zeros(int(graph.state_offsets[-1]))
        self.state_at = graph.state_offsets.view(np.uint64)
        self._set_mode(mode)
        self._fill(graph.log_tables)
        self.m = self._initial()
        self.nu = np.empty_like(self.m)
        self.new = np.empty_like(self.m)
        self.work = message_buffer(graph)
        self.refresh()

    def _set_mode(self, mode: int) -> None:
        self.mode = mode
        self.arithmetic = "probabilities" if mode == bp_messages.SUM else "logarithms"

    def _fill(self, log_tables: Array) -> None:
        """Tables in the present arithmetic, each with a largest entry of 1."""
        offsets = self.graph.table_offsets
        peaks = np.maximum.reduceat(log_tables, offsets[:-1])
        self.peaks = float(peaks.sum())
        self.tables: Array = log_tables - np.repeat(peaks, np.diff(offsets))
        if self.mode == bp_messages.SUM:
            np.exp(self.tables, out=self.tables)
            if np.any((self.tables < bp_messages.TABLE_FLOOR) & (log_tables > -np.inf)):
                raise UnderflowError

    def _initial(self) -> Array:
        """Uniform messages, but those of one-variable factors at their final value."""
        graph, orders = self.graph, np.diff(self.graph.scope_offsets)
        sizes = graph.cardinalities[graph.scopes]
        single = orders[graph.edge_factors] == 1
        at_message = np.repeat(single, sizes)
        at_table = np.repeat(orders == 1, np.diff(graph.table_offsets))
        if self.mode == bp_messages.SUM:
            m = np.repeat(1.0 / sizes, sizes)
            totals = np.add.reduceat(self.tables, graph.table_offsets[:-1])[orders == 1]
            m[at_message] = self.tables[at_table] / np.repeat(totals, sizes[single])
        else:
            m = np.zeros(int(graph.message_offsets[-1]))
            m[at_message] = self.tables[at_table]
        return m

    @property
    def arrays(self) -> MessageArrays:
        """Tables and messages, as compiled loops read them."""
        return MessageArrays(self.tables, self.m, self.nu, self.new, self.work)

    @property
    def clamping(self) -> Clamping:
        """Which variables are clamped and at what, as compiled loops read it."""
        return Clamping(self.clamped, self.clamped_to, self.state_at)

    def clamp(self, clamped: Mask, marginals: Array) -> None:
        """Clamp variables from now on, at the flat `marginals` (of the others any)."""
        self.clamped[:] = clamped
        self.clamped_to[:] = marginals

    def refresh(self) -> None:
        """What the variables send, from what the factors have sent."""
        status, _ = sweeps.all_variable_messages(
            self.layout, self.m, self.nu, self.work, self.clamping, self.mode
        )
        self._check(status)

    def _check(self, status: int) -> None:
        if status == bp_messages.OK:
            return
        if self.mode == bp_messages.SUM:
            raise UnderflowError  # a contradiction too is only believed in logarithms
        if self.clamped.any():
            raise contradiction()
        raise ImpossibleEvidenceError(
            "the evidence has probability zero: the tables allow no common state"
        )

    # ------------------------------------------------------------------ tables and state

    def set_tables(self, log_tables: Array) -> None:
        """Use other log-tables and keep the messages; those of one-variable factors follow."""
        state, zeros = self.state, self._zeros
        self._fill(log_tables)
        if np.any(zeros & ~self._zeros):  # no update brings back a message of 0
            self.state = state
        else:
            self._keep(self.m)

    @property
    def _zeros(self) -> Mask:
        return np.asarray(self.tables == (0.0 if self.mode == bp_messages.SUM else -np.inf))

    @property
    def state(self) -> MessageState:
        """The logarithms of the messages."""
        return MessageState(log(self.m) if self.mode == bp_messages.SUM else self.m.copy())

    @state.setter
    def state(self, state: MessageState) -> None:
        messages, offsets = state.bounded(self.graph), self.graph.message_offsets
        if self.mode == bp_messages.SUM:
            np.exp(messages, out=messages)
            messages /= np.repeat(np.add.reduceat(messages, offsets[:-1]), np.diff(offsets))
        self._keep(messages)

    def _keep(self, messages: Array) -> None:
        """Go on from these messages, but for those of one-variable factors."""
        orders = np.diff(self.graph.scope_offsets)[self.graph.edge_factors]
        several = np.repeat(orders > 1, np.diff(self.graph.message_offsets))
        self.m = np.where(several, messages, self._initial())
        self._queue = None
        self.refresh()

    # ------------------------------------------------------------------ sweeps

    def sweeps_per_call(self, tol: float) -> int:
        """Sweeps between two looks at the clock and at the residual."""
        return 1

    def parallel(self, count: int, damping: float, kind: int) -> float:
        """Sweeps in which all messages change at once; answers the largest change of the last."""
        residual = math.inf
        for _ in range(count):
            status, residual = sweeps.parallel(
                self.layout, self.arrays, self.clamping, damping, kind, self.mode
            )
            self._check(status)
        return float(residual)

    def sequential(self, order: U4, damping: float, kind: int) -> float:
        """One sweep, variable by variable; answers the largest change."""
        status, residual = sweeps.sequential(
            self.layout, self.arrays, self.clamping, order, damping, kind, self.mode
        )
        self._check(status)
        return float(residual)

    def residual(self, damping: float, kind: int, tol: float, clock: Clock) -> float:
        """Single updates, largest change first: as many as there are messages that can change, or
        until the clock has expired.
        """
        if self._queue is None:
            self._queue = new_queue(self.graph.n_edges)
            self._check(sweeps.residual_start(self.layout, self.arrays, self.mode, self._queue))
        at = (self.layout, self.arrays, damping, kind, self.mode, self._queue)

        def update(count: int) -> tuple[float, int]:
            limits = UpdateLimits(count, _ENTRIES_PER_CALL, tol)
            status, residual, done = sweeps.residual_updates(*at, limits)
            self._check(status)
            return residual, done

        count = int(np.sum(np.diff(self.graph.scope_offsets)[self.graph.edge_factors] > 1))
        return until_expired(update, count, clock)

    # ------------------------------------------------------------------ answers

    def marginals(self) -> Array:
        """Clamped marginals as given, the others from the messages."""
        out = np.empty_like(self.clamped_to)
        status = beliefs.variable_beliefs(self.layout, self.m, self.clamping, out, self.mode)
        if status != bp_messages.OK and self.mode == bp_messages.SUM:
            self._to_logarithms()
            return self.marginals()
        self._check(status)
        return out

    def log_z(self, marginals: Array | None = None, *, primal: bool = False) -> float:
        """Minus the Bethe free energy: with clamped variables the value of the dual.

        `marginals` are the present ones, where they are known. With `primal` it is that of the
        beliefs themselves. For solved trees the two are equal, but an error of the beliefs enters
        the dual by its square.
        """
        clamped = np.zeros_like(self.clamped) if primal else self.clamped
        marginals = self.marginals() if marginals is None else marginals
        given = Clamping(clamped, marginals, self.state_at)
        status, energy = beliefs.free_energy(self.layout, self.arrays, given, self.mode)
        if status != bp_messages.OK and self.mode == bp_messages.SUM:
            self._to_logarithms()
            return self.log_z(marginals, primal=primal)
        self._check(status)
        return self.peaks - float(energy)

    def factor_marginals(self) -> Array:
        """Beliefs of all factors, in the layout of the tables."""
        out = np.empty_like(self.tables)
        beliefs.factor_beliefs(self.layout, self.tables, self.nu, out, self.mode)
        return out

    def decode(self) -> Ints:
        """A state of high weight from max-product messages."""
        states = np.zeros(self.graph.n_variables, dtype=np.int64)
        order = beliefs.breadth_first(self.layout)
        beliefs.decode(self.layout, self.arrays._replace(nu=self.nu.copy()), order, states)
        return states

    def _to_logarithms(self) -> None:
        """Read the same messages as logarithms."""
        self._set_mode(bp_messages.LOG_SUM)
        self.tables, self.m, self.nu = log(self.tables), log(self.m), log(self.nu)


def until_expired(update: Callable[[int], tuple[float, int]], count: int, clock: Clock) -> float:
    """Make `count` updates, fewer if none is left to make or the clock has expired, by calls that
    return the largest change left and the updates done; return the change left.

    An update at a variable of many factors makes a proposal for each of them, so that even one
    sweep of single updates can take much longer than the time allowed.
    """
    residual, done = update(count)
    while 0 < done < count and not clock.expired:
        count -= done
        residual, done = update(count)
    return float(residual)


def message_layout(graph: FactorGraph) -> MessageLayout:
    """Where compiled loops find the tables and messages of a graph."""
    return MessageLayout(
        graph.scope_offsets.view(np.uint64),
        graph.table_offsets.view(np.uint64),
        graph.message_offsets.view(np.uint64),
        graph.variable_offsets.view(np.uint64),
        graph.variable_edges,
        graph.edge_factors,
        graph.scopes,
    )


def message_buffer(graph: FactorGraph) -> Array:
    """Room for what the messages out of one factor are made from (`kernels.bp_messages`).

    Either half holds the partial sums of a table. Every variable of two states or more at least
    halves them, so that all together are no longer than the table; one of a single state repeats
    the one before it.

    >>> len(message_buffer(FactorGraph([2, 2], [((0, 1), np.ones(4))])))
    10
    >>> len(message_buffer(FactorGraph([2, 1, 1], [((0, 1, 2), np.ones(2))])))
    18
    """
    largest = max(int(np.diff(graph.table_offsets).max()), int(graph.cardinalities.max()))
    single = graph.edge_factors[graph.cardinalities[graph.scopes] == 1]
    repeated = int(np.bincount(single, minlength=1).max())
    return np.empty(2 * (largest + 1) * (1 + repeated))


def new_queue(size: int) -> MessageQueue:
    """A priority queue of messages, not yet in order."""
    place = np.empty(size, dtype=np.uint32)
    return MessageQueue(np.zeros(size), np.empty(size, dtype=np.uint32), place)


def contradiction() -> EvidenceError:
    """The error for observed marginals that no distribution of the model's support has."""
    return EvidenceError(
        "the observed marginals contradict the zeros of the model or each other: no distribution "
        "on its states of positive weight has them; change the targets or soften the zeros"
    )
