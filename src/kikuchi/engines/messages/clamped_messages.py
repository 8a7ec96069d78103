"""Messages on a factor graph with clamped variables: what loopy scaling and UPS share.

A variable is clamped when its marginal is given: because it is observed, or because it is
held for a while so that the others form a forest. The updates are in `kernels.walks`.

Reference: TEH-I17, TEH-M23, TEH-M24.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import U4, Array, Ints, Mask
from kikuchi.core.budget import Budget, Clock
from kikuchi.core.numerics import log
from kikuchi.core.run import StepAborted
from kikuchi.engines.messages.kernels import beliefs, bp_messages, tree_newton, walks
from kikuchi.engines.messages.tables import TableMessages
from kikuchi.engines.messages.update_order import UpdateOrder, Walks, newton_space
from kikuchi.engines.run import MethodRun
from kikuchi.graphs.factor_graph import FactorGraph

Targets = Mapping[int, Array]

_STIFFEST = 1e-9  # damping of linear response: ties are not stiffer than its inverse
_ROWS_AT_ONCE = 16  # of the Hessian, between two looks at the clock
_BETWEEN_LOOKS = 0.02  # seconds of Newton's steps, about, between two looks at the clock
_FIRST_DAMPING = 0.1  # of Newton's steps: at 1 they are no bolder than scaling


class ClampedMessages(TableMessages):
    """Messages, and what is done with them on the forest that clamped variables leave.

    >>> edge = FactorGraph([2, 2], [((0, 1), [[2, 1], [1, 2]])])
    >>> messages = ClampedMessages(edge, bp_messages.SUM)
    >>> messages.clamp(*observed_marginals(edge, {0: np.array([0.2, 0.8])}))
    >>> from kikuchi.engines.messages.update_order import make_update_order
    >>> order = make_update_order(edge, messages.clamped.astype(bool))
    >>> messages.collect(order)
    >>> messages.distribute(order)
    >>> messages.marginals().round(6).tolist()
    [0.2, 0.8, 0.4, 0.6]
    """

    def __init__(self, graph: FactorGraph, mode: int, clock: Clock | None = None) -> None:
        super().__init__(graph, mode)
        self.clock = clock or Budget().start()

    # ------------------------------------------------------------------ walks

    def collect(self, order: UpdateOrder) -> None:
        """Messages of all trees towards their roots."""
        self._walk(order.up_edge, order.up_kind)

    def distribute(self, order: UpdateOrder) -> None:
        """Messages of all trees away from their roots: afterwards all beliefs agree."""
        self._walk(order.down_edge, order.down_kind)

    def _walk(self, edges: U4, kinds: NDArray[np.uint8]) -> None:
        updates = (edges, kinds, np.uint64(0), np.uint64(len(edges)))
        status, _ = walks.walk(self.layout, self.arrays, self.clamping, updates, self.mode)
        self._check(status)

    def scale(self, order: UpdateOrder, progress: Walks, loops: int, tol: float) -> None:
        """At most `loops` walks over each tree whose residual is above `tol`."""
        core = (order.core_edge, order.core_kind, order.core_start)
        trees = (progress.residual, progress.walks)
        status = walks.scale_trees(
            self.layout, self.arrays, self.clamping, core, trees, loops, tol, self.mode
        )
        self._check(status)

    def newton(self, order: UpdateOrder, progress: Walks, loops: int, tol: float) -> None:
        """At most `loops` steps of Newton's method on each tree whose residual is above `tol`.

        In parts with a look at the clock in between; how they are cut changes nothing.
        """
        damping, clock = np.full(order.n_trees, _FIRST_DAMPING), self.clock
        trees = tree_newton.TreeProgress(progress.residual, progress.walks, damping)
        plan, space = order.newton_plan, self._newton_space
        part = loops if clock.budget.seconds is None else 1
        while loops > 0 and progress.worst > tol and not clock.expired:
            began = clock.seconds
            part = min(part, loops)
            at = (self.layout, self.arrays, self.clamping, plan, space, trees)
            status = tree_newton.newton_trees(*at, (part, tol), self.mode)
            self._check(status)
            loops -= part
            if clock.seconds - began < _BETWEEN_LOOKS:
                part *= 2

    @cached_property
    def _newton_space(self) -> tree_newton.NewtonSpace:
        return newton_space(self.graph)

    def curvature(self, order: UpdateOrder, held: Mask) -> Array:
        """Hessian of the least Bethe free energy with respect to some clamped marginals.

        Along the changes of a marginal c towards each of its states. By linear response:
        (1 - degree) / c, and for each leaf the change of its tilt. Needs solved trees;
        stiffness beyond 1 / _STIFFEST is cut off. Ends the step where the time is over.
        """
        states = np.flatnonzero(np.repeat(held, self.graph.cardinalities))
        changes = self._towards(states)
        out = np.zeros_like(changes)
        plan, space = order.newton_plan, self._newton_space
        at = (self.layout, self.arrays, self.clamping, plan, space)
        for begin in range(0, len(states), _ROWS_AT_ONCE):
            if begin and self.clock.expired:
                raise StepAborted("seconds")
            rows = slice(begin, begin + _ROWS_AT_ONCE)
            out[rows] = tree_newton.respond(*at, changes[rows], _STIFFEST, self.mode)
        orders = np.diff(self.graph.scope_offsets)[self.graph.edge_factors]
        degrees = np.bincount(self.graph.scopes[orders > 1], minlength=self.graph.n_variables)
        excess = np.repeat(1.0 - degrees, self.graph.cardinalities)
        out += changes * np.where(
            self.clamped_to > 0, excess / np.maximum(self.clamped_to, 1e-300), 0.0
        )
        hessian = out @ changes.T
        return np.asarray(0.5 * (hessian + hessian.T))

    def _towards(self, states: Ints) -> Array:
        """For each of some states the change of the clamped marginals towards it: sums stay 1."""
        owner = np.repeat(np.arange(self.graph.n_variables), self.graph.cardinalities)
        changes = np.where(owner[states][:, None] == owner[None, :], -self.clamped_to, 0.0)
        changes[np.arange(len(states)), states] += 1.0
        return changes

    def save(self) -> ClampedMessageState:
        """All that changes, to go back to later."""
        return ClampedMessageState(
            self.m.copy(), self.nu.copy(), self.clamped.copy(), self.clamped_to.copy(), self.mode
        )

    def restore(self, saved: ClampedMessageState, factors: Mask | None = None) -> None:
        """Go back to what was saved: everything, or the messages of some factors only."""
        if saved.mode != self.mode:  # probabilities were saved and are logarithms now
            saved = saved.in_logarithms()
        if factors is None:
            self.clamped[:], self.clamped_to[:] = saved.clamped, saved.clamped_to
            self.m[:], self.nu[:] = saved.m, saved.nu
            return
        where = np.repeat(factors[self.graph.edge_factors], self._edge_states)
        self.m[where], self.nu[where] = saved.m[where], saved.nu[where]

    @property
    def _edge_states(self) -> Ints:
        return np.diff(self.graph.message_offsets)

    # ------------------------------------------------------------------ answers

    def stationarity(self, observed: Mask) -> float:
        """How much the marginal of a clamped but unobserved variable would change if it were free.

        At a stationary point of the Bethe free energy its messages agree with it: 0.
        """
        held = self.clamped.astype(bool) & ~observed
        if not held.any():
            return 0.0
        free = self._freed(observed)
        if free is None:
            return 1.0
        where = np.repeat(held, self.graph.cardinalities)
        return float(np.abs(free - self.clamped_to)[where].max())

    def gradient(self, observed: Mask) -> Array:
        """Gradient of the least Bethe free energy in the clamped marginals, up to constants.

        It is log c - log of what the marginal c would be if the variable were free; 0 at variables
        that are free or observed, and at states where c is 0.
        """
        held = np.repeat(self.clamped.astype(bool) & ~observed, self.graph.cardinalities)
        where = held & (self.clamped_to > 0)
        out = np.zeros_like(self.clamped_to)
        out[where] = np.log(self.clamped_to[where]) - self._log_freed()[where]
        return out

    def _log_freed(self) -> Array:
        """Sum of the logarithms of all messages to each variable."""
        graph = self.graph
        logs = log(self.m) if self.mode == bp_messages.SUM else self.m
        edge = np.repeat(np.arange(graph.n_edges), self._edge_states)
        place = graph.state_offsets[graph.scopes[edge]] + np.arange(len(logs))
        place -= graph.message_offsets[edge]
        return np.asarray(np.bincount(place, logs, len(self.clamped_to)), dtype=np.float64)

    def _freed(self, observed: Mask) -> Array | None:
        out = np.empty_like(self.clamped_to)
        clamping = self.clamping._replace(clamped=observed.astype(np.uint8))
        status = beliefs.variable_beliefs(self.layout, self.m, clamping, out, self.mode)
        return None if status == bp_messages.CONTRADICTION else out

    def tilts(self, targets: Targets) -> dict[int, Array]:
        """log-tilts of observed variables: log target - sum_a log m_a (Theorem 5.5.2).

        The generalised posterior is the model times exp of these; the largest entry is put at 0.
        """
        if not targets:
            return {}
        chosen = np.fromiter(targets, dtype=np.int64)
        sizes = self.graph.cardinalities[chosen].astype(np.int64)
        ends = np.cumsum(sizes)
        starts = ends - sizes
        begin = self.graph.state_offsets[chosen].astype(np.int64) - starts
        freed = self._log_freed()[np.arange(ends[-1]) + np.repeat(begin, sizes)]
        wanted = np.concatenate(list(targets.values()))
        held = wanted > 0
        flat = np.where(held, log(wanted) - np.where(held, freed, 0.0), -np.inf)
        flat -= np.repeat(np.maximum.reduceat(flat, starts), sizes)
        return dict(zip(targets, np.split(flat, ends[:-1]), strict=True))


@dataclass(frozen=True, eq=False)
class ClampedMessageState:
    """Messages, clamped marginals and the arithmetic they are written in."""

    m: Array
    nu: Array
    clamped: NDArray[np.uint8]
    clamped_to: Array
    mode: int

    def in_logarithms(self) -> ClampedMessageState:
        """The same as logarithms."""
        return ClampedMessageState(
            log(self.m), log(self.nu), self.clamped, self.clamped_to, bp_messages.LOG_SUM
        )


# ---------------------------------------------------------------------- targets


def observed_marginals(graph: FactorGraph, targets: Targets) -> tuple[Mask, Array]:
    """Which variables are observed, and flat marginals: theirs, and uniform ones elsewhere."""
    observed = np.zeros(graph.n_variables, dtype=bool)
    marginals = np.repeat(1.0 / graph.cardinalities, graph.cardinalities)
    for v, target in targets.items():
        observed[v] = True
        marginals[graph.state_offsets[v] : graph.state_offsets[v + 1]] = target
    return observed, marginals


def by_original(tilts: Mapping[int, Array], run: MethodRun) -> dict[int, list[float]]:
    """Tilts as plain lists, by the number that each variable has in the original graph."""
    numbers = run.variables[np.fromiter(tilts, dtype=np.int64)].tolist()
    return {v: tilt.tolist() for v, tilt in zip(numbers, tilts.values(), strict=True)}


def free_energy_limit(graph: FactorGraph) -> float:
    """A number that the Bethe free energy of no consistent beliefs exceeds.

    sum_a max_x -log phi_a over positive entries, plus (degree - 1) log states where that is
    positive. A dual value above it proves that no beliefs meet all the constraints.
    """
    finite = np.where(np.isfinite(graph.log_tables), graph.log_tables, np.inf)
    worst = -np.minimum.reduceat(finite, graph.table_offsets[:-1]).sum()
    degrees = np.diff(graph.variable_offsets)
    return float(worst + (np.maximum(degrees - 1, 0) * np.log(graph.cardinalities)).sum())
