"""Messages on a factor graph with pinned variables: what loopy scaling and UPS share.

A variable is pinned when its marginal is given: observed (TEH-M24), or held for a while (TEH-I17).
The updates are in `kernels.scaling`; here are the buffers, the order of the updates and the errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.errors import EvidenceError
from kikuchi.core.numerics import log
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.inference.messages.belief_propagation import _Tables, _UnderflowError
from kikuchi.inference.messages.clamped_schedules import Schedule, Walks, newton_space
from kikuchi.inference.messages.kernels import bp_messages, scaling, tree_newton
from kikuchi.inference.method import Run

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Targets = Mapping[int, Array]

UnderflowError = _UnderflowError
_STIFFEST = 1e-9  # damping of linear response: ties are not stiffer than its inverse
_FIRST_DAMPING = 0.1  # of Newton's steps: at 1 they are no bolder than scaling


class PinnedMessages(_Tables):
    """Messages, and the marginals at which some variables are pinned.

    >>> edge = FactorGraph([2, 2], [((0, 1), [[2, 1], [1, 2]])])
    >>> messages = PinnedMessages(edge, bp_messages.SUM)
    >>> messages.pin(*pins_of(edge, {0: np.array([0.2, 0.8])}))
    >>> messages.sequential(np.arange(2, dtype=np.uint32), 0.0, bp_messages.LINEAR) > 0
    True
    >>> messages.variable_beliefs().round(6).tolist()
    [0.2, 0.8, 0.4, 0.6]
    """

    def __init__(self, graph: FactorGraph, mode: int) -> None:
        self.pinned = np.zeros(graph.n_variables, dtype=np.uint8)
        self.pins = np.zeros(int(graph.state_offsets[-1]))
        self.state_at = graph.state_offsets.view(np.uint64)
        self._newton_space: tuple[Any, ...] | None = None
        super().__init__(graph, mode)

    def pin(self, pinned: Mask, pins: Array) -> None:
        """Pin variables from now on, at the marginals that `pins` holds for them."""
        self.pinned[:] = pinned
        self.pins[:] = pins

    @property
    def _pinning(self) -> tuple[NDArray[Any], ...]:
        return self.pinned, self.pins, self.state_at

    def _check(self, status: int) -> None:
        if status == bp_messages.OK:
            return
        if self.mode == bp_messages.SUM:
            raise _UnderflowError  # a zero too is only believed in logarithms
        if self.pinned.any():
            raise contradiction()
        super()._check(status)

    def _refresh(self) -> None:
        status, _ = scaling.all_answers(
            self.layout, self.m, self.nu, self.work, *self._pinning, self.mode
        )
        self._check(status)

    # ------------------------------------------------------------------ sweeps

    def sequential(self, order: NDArray[np.uint32], damping: float, kind: int) -> float:
        """One sweep, variable by variable; answers the largest change (TEH-I14)."""
        status, residual = scaling.sequential(
            *self._state, *self._pinning, order, damping, kind, self.mode
        )
        self._check(status)
        return float(residual)

    def parallel(self, sweeps: int, damping: float, kind: int) -> float:
        """Sweeps in which all messages change at once; answers the largest change of the last."""
        residual = np.inf
        for _ in range(sweeps):
            status, residual = scaling.parallel(
                *self._state, *self._pinning, damping, kind, self.mode
            )
            self._check(status)
        return float(residual)

    # ------------------------------------------------------------------ walks

    def collect(self, schedule: Schedule) -> None:
        """Messages of all trees towards their roots."""
        self._walk(schedule.up_edge, schedule.up_kind)

    def distribute(self, schedule: Schedule) -> None:
        """Messages of all trees away from their roots: afterwards all beliefs agree."""
        self._walk(schedule.down_edge, schedule.down_kind)

    def _walk(self, edges: NDArray[np.uint32], kinds: NDArray[np.uint8]) -> None:
        status, _ = scaling.walk(
            *self._state, *self._pinning, edges, kinds, np.uint64(0), np.uint64(len(edges)),
            self.mode,
        )  # fmt: skip
        self._check(status)

    def scale(self, schedule: Schedule, work: Walks, loops: int, tol: float) -> None:
        """At most `loops` walks over each tree whose residual is above `tol`."""
        status = scaling.scale_trees(
            *self._state,
            *self._pinning,
            schedule.core_edge,
            schedule.core_kind,
            schedule.core_start,
            work.residual,
            work.walks,
            loops,
            tol,
            self.mode,
        )
        self._check(status)

    def newton(self, schedule: Schedule, work: Walks, loops: int, tol: float) -> None:
        """At most `loops` steps of Newton's method on each tree whose residual is above `tol`."""
        if self._newton_space is None:
            self._newton_space = newton_space(self.graph)
        status = tree_newton.newton_trees(
            *self._state,
            *self._pinning,
            schedule.newton_plan,
            self._newton_space,
            work.residual,
            work.walks,
            np.full(schedule.n_trees, _FIRST_DAMPING),
            loops,
            tol,
            self.mode,
        )
        self._check(status)

    def curvature(self, schedule: Schedule, held: Mask) -> Array:
        """Hessian of the least Bethe free energy with respect to the pins of some variables.

        Along the changes of a pin towards each of its states. By linear response: (1 - degree) /
        pin, and for each leaf the change of its tilt. Needs solved trees; stiffness beyond
        1 / _STIFFEST is cut off.
        """
        if self._newton_space is None:
            self._newton_space = newton_space(self.graph)
        states = np.flatnonzero(np.repeat(held, self.graph.cardinalities))
        changes = self._towards(states)
        out = np.zeros_like(changes)
        tree_newton.respond(
            self.layout,
            self.tables,
            self.nu,
            *self._pinning,
            schedule.newton_plan,
            self._newton_space,
            changes,
            _STIFFEST,
            self.mode,
            out,
        )
        orders = np.diff(self.graph.scope_offsets)[self.graph.edge_factors]
        degrees = np.bincount(self.graph.scopes[orders > 1], minlength=self.graph.n_variables)
        excess = np.repeat(1.0 - degrees, self.graph.cardinalities)
        out += changes * np.where(self.pins > 0, excess / np.maximum(self.pins, 1e-300), 0.0)
        hessian = out @ changes.T
        return np.asarray(0.5 * (hessian + hessian.T))

    def _towards(self, states: NDArray[np.int64]) -> Array:
        """For each of some states the change of the pins towards it: they still sum to 1."""
        owner = np.repeat(np.arange(self.graph.n_variables), self.graph.cardinalities)
        changes = np.where(owner[states][:, None] == owner[None, :], -self.pins, 0.0)
        changes[np.arange(len(states)), states] += 1.0
        return changes

    def save(self) -> Saved:
        """All that changes, to go back to later."""
        return Saved(self.m.copy(), self.nu.copy(), self.pinned.copy(), self.pins.copy(), self.mode)

    def restore(self, saved: Saved, factors: Mask | None = None) -> None:
        """Go back to what was saved: everything, or the messages of some factors only."""
        if saved.mode != self.mode:  # probabilities were saved and are logarithms now
            saved = saved.in_logarithms()
        if factors is None:
            self.pinned[:], self.pins[:] = saved.pinned, saved.pins
            self.m[:], self.nu[:] = saved.m, saved.nu
            return
        where = np.repeat(factors[self.graph.edge_factors], self._edge_states)
        self.m[where], self.nu[where] = saved.m[where], saved.nu[where]

    @property
    def _edge_states(self) -> NDArray[np.int64]:
        return np.diff(self.graph.message_offsets)

    def _to_logarithms(self) -> None:
        super()._to_logarithms()
        self.nu = log(self.nu)

    # ------------------------------------------------------------------ answers

    def variable_beliefs(self) -> Array:
        """Pinned marginals as given, the others from the messages."""
        out = np.empty(int(self.graph.state_offsets[-1]))
        status = scaling.beliefs(self.layout, self.m, *self._pinning, out, self.mode)
        if status == bp_messages.UNDERFLOW:
            self._to_logarithms()
            return self.variable_beliefs()
        self._check(status)
        return out

    def log_z(self, marginals: Array, *, primal: bool = False) -> float:
        """Minus the Bethe free energy of the pinned problem, from its dual.

        With `primal` that of the beliefs themselves. For solved trees the two are equal, but an
        error of the beliefs enters the first by its square.
        """
        status, energy = scaling.free_energy(
            self.layout,
            self.tables,
            self.nu,
            self.new,
            self.work,
            np.zeros_like(self.pinned) if primal else self.pinned,
            marginals,
            self.state_at,
            self.mode,
        )
        if status == bp_messages.UNDERFLOW:
            self._to_logarithms()
            return self.log_z(marginals, primal=primal)
        self._check(status)
        return self.peaks - float(energy)

    def stationarity(self, observed: Mask) -> float:
        """How much the marginal of a pinned but unobserved variable would change if it were free.

        At a stationary point of the Bethe free energy its messages agree with its pin: 0.
        """
        held = self.pinned.astype(bool) & ~observed
        if not held.any():
            return 0.0
        free = self._freed(observed)
        if free is None:
            return 1.0
        where = np.repeat(held, self.graph.cardinalities)
        return float(np.abs(free - self.pins)[where].max())

    def pull(self, observed: Mask) -> Array:
        """Gradient of the least Bethe free energy with respect to the pins, up to constants.

        It is log pin - log of what the marginal would be if the variable were free; 0 at variables
        that are free or observed, and at states whose pin is 0.
        """
        held = np.repeat(self.pinned.astype(bool) & ~observed, self.graph.cardinalities)
        where = held & (self.pins > 0)
        out = np.zeros_like(self.pins)
        out[where] = np.log(self.pins[where]) - self._log_freed()[where]
        return out

    def _log_freed(self) -> Array:
        """Sum of the logarithms of all messages to each variable."""
        graph, out = self.graph, np.zeros_like(self.pins)
        logs = log(self.m) if self.mode == bp_messages.SUM else self.m
        edge = np.repeat(np.arange(graph.n_edges), self._edge_states)
        place = graph.state_offsets[graph.scopes[edge]] + np.arange(len(logs))
        np.add.at(out, place - graph.message_offsets[edge], logs)
        return out

    def _freed(self, observed: Mask) -> Array | None:
        out = np.empty_like(self.pins)
        status = scaling.beliefs(
            self.layout, self.m, observed.astype(np.uint8), self.pins, self.state_at, out, self.mode
        )
        return None if status == bp_messages.CONTRADICTION else out

    def tilts(self, targets: Targets) -> dict[int, Array]:
        """log-tilts of observed variables: log target - sum_a log m_a (TEH-M23, Theorem 5.5.2).

        The generalised posterior is the model times exp of these; the largest entry is put at 0.
        """
        graph, found = self.graph, {}
        for v, target in targets.items():
            tilt = np.where(target > 0, np.log(np.where(target > 0, target, 1.0)), -np.inf)
            for e in graph.variable_edges[
                graph.variable_offsets[v] : graph.variable_offsets[v + 1]
            ]:
                message = self.m[graph.message_offsets[e] : graph.message_offsets[e + 1]]
                if self.mode == bp_messages.SUM:
                    message = np.log(np.where(target > 0, message, 1.0))
                tilt = np.where(target > 0, tilt - np.where(target > 0, message, 0.0), -np.inf)
            found[v] = tilt - tilt.max()
        return found


@dataclass(frozen=True, eq=False)
class Saved:
    """Messages, pins and the arithmetic they are written in."""

    m: Array
    nu: Array
    pinned: NDArray[np.uint8]
    pins: Array
    mode: int

    def in_logarithms(self) -> Saved:
        """The same as logarithms."""
        return Saved(log(self.m), log(self.nu), self.pinned, self.pins, bp_messages.LOG_SUM)


# ---------------------------------------------------------------------- targets


def pins_of(graph: FactorGraph, targets: Targets) -> tuple[Mask, Array]:
    """Which variables are observed, and flat marginals that are theirs there and uniform else."""
    pinned = np.zeros(graph.n_variables, dtype=bool)
    pins = np.repeat(1.0 / graph.cardinalities, graph.cardinalities)
    for v, target in targets.items():
        pinned[v] = True
        pins[graph.state_offsets[v] : graph.state_offsets[v + 1]] = target
    return pinned, pins


def by_original(tilts: Mapping[int, Array], run: Run) -> dict[int, list[float]]:
    """Tilts as plain lists, by the number that each variable has in the original graph."""
    return {int(run.variables[v]): tilt.tolist() for v, tilt in tilts.items()}


def free_energy_limit(graph: FactorGraph) -> float:
    """A number that the Bethe free energy of no consistent beliefs exceeds.

    sum_a max_x -log phi_a over positive entries, plus (degree - 1) log states where that is
    positive. A dual value above it proves that no beliefs meet all the constraints.
    """
    finite = np.where(np.isfinite(graph.log_tables), graph.log_tables, np.inf)
    worst = -np.minimum.reduceat(finite, graph.table_offsets[:-1]).sum()
    degrees = np.diff(graph.variable_offsets)
    return float(worst + (np.maximum(degrees - 1, 0) * np.log(graph.cardinalities)).sum())


def contradiction() -> EvidenceError:
    """The error for observed marginals that no distribution of the model's support has."""
    return EvidenceError(
        "the observed marginals contradict the zeros of the model or each other: no distribution "
        "on its states of positive weight has them; change the targets or soften the zeros"
    )
