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
from kikuchi.core.numerics import segment_sums
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.inference.belief_propagation import _layout, _Tables, _UnderflowError
from kikuchi.inference.kernels import bp_messages, scaling
from kikuchi.inference.method import Run

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Targets = Mapping[int, Array]

UnderflowError = _UnderflowError
_OPS_PER_CALL = 500_000  # updates between two looks at the clock


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

    def save(self) -> tuple[NDArray[Any], ...]:
        """All that changes, to go back to later."""
        return tuple(x.copy() for x in (self.m, self.nu, self.pinned, self.pins))

    def restore(self, saved: tuple[NDArray[Any], ...]) -> None:
        """Go back to what was saved."""
        mine: tuple[NDArray[Any], ...] = (self.m, self.nu, self.pinned, self.pins)
        for array, kept in zip(mine, saved, strict=True):
            array[:] = kept

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

    def log_z(self, marginals: Array) -> float:
        """Minus the Bethe free energy of the pinned problem, from its dual."""
        status, energy = scaling.free_energy(
            self.layout,
            self.tables,
            self.nu,
            self.new,
            self.work,
            self.pinned,
            marginals,
            self.state_at,
            self.mode,
        )
        if status == bp_messages.UNDERFLOW:
            self._to_logarithms()
            self._refresh()
            return self.log_z(marginals)
        self._check(status)
        return self.peaks - float(energy)

    def stationarity(self, observed: Mask) -> float:
        """How much the marginal of a pinned but unobserved variable would change if it were free.

        At a stationary point of the Bethe free energy its messages agree with its pin: 0.
        """
        held = self.pinned.astype(bool) & ~observed
        if not held.any():
            return 0.0
        out = np.empty_like(self.pins)
        status = scaling.beliefs(
            self.layout, self.m, observed.astype(np.uint8), self.pins, self.state_at, out, self.mode
        )
        if status == bp_messages.CONTRADICTION:
            return 1.0
        where = np.repeat(held, self.graph.cardinalities)
        return float(np.abs(out - self.pins)[where].max())

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


# ---------------------------------------------------------------------- schedules


@dataclass(frozen=True, eq=False)
class Schedule:
    """The order of the updates on the forest that some pinned variables leave (TEH-I16).

    `up` and `down` are the two passes over all of it (`down` also reaches factors of one variable,
    which have no message to give back); `core` is the depth-first walk over the paths
    between pinned leaves, tree by tree, that is repeated.
    """

    up_edge: NDArray[np.uint32]
    up_kind: NDArray[np.uint8]
    down_edge: NDArray[np.uint32]
    down_kind: NDArray[np.uint8]
    core_edge: NDArray[np.uint32]
    core_kind: NDArray[np.uint8]
    core_start: NDArray[np.int64]

    @property
    def n_trees(self) -> int:
        """Number of trees with something to scale."""
        return len(self.core_start) - 1

    @property
    def core_messages(self) -> NDArray[np.int64]:
        """Messages from factors to variables in one walk over each tree: one an edge."""
        return np.diff(self.core_start) // 2

    @property
    def core_scalings(self) -> NDArray[np.int64]:
        """Scalings in one walk over each tree: one for each factor of a pinned variable."""
        bounces = (self.core_kind == scaling.BOUNCE).astype(np.float64)
        return segment_sums(bounces, self.core_start).astype(np.int64)

    @property
    def pass_messages(self) -> int:
        """Messages from factors to variables in the two passes over everything."""
        kinds = np.concatenate([self.up_kind, self.down_kind])
        return int(np.count_nonzero(kinds == scaling.MESSAGE))

    @property
    def loops_per_call(self) -> int:
        """Walks that take a small part of a second."""
        return max(1, _OPS_PER_CALL // max(1, len(self.core_edge)))


@dataclass(eq=False)
class Walks:
    """Progress on the trees of one schedule: the last residual and the walks made of each."""

    residual: Array
    walks: NDArray[np.int64]

    @classmethod
    def begin(cls, schedule: Schedule) -> Walks:
        """Nothing done yet."""
        n = schedule.n_trees
        return cls(np.full(n, np.inf), np.zeros(n, dtype=np.int64))

    @property
    def worst(self) -> float:
        """Largest residual of a tree."""
        return float(self.residual.max(initial=0.0))

    @property
    def most(self) -> int:
        """Walks over the tree that needed most."""
        return int(self.walks.max(initial=0))


def make_schedule(graph: FactorGraph, pinned: Mask) -> Schedule | None:
    """The schedule for some pinned variables; None if they leave a cycle.

    >>> from kikuchi import grid
    >>> make_schedule(grid(2, 2), np.zeros(4, dtype=bool)) is None
    True
    >>> make_schedule(grid(2, 2), np.array([1, 0, 0, 0], dtype=bool)).core_messages.tolist()
    [8]
    """
    flags = pinned.astype(np.uint8)
    ok, tour, leaving, from_factor, tree_start = scaling.euler_tour(_layout(graph), flags)
    if not ok:
        return None
    core = scaling.core_edges(tour, leaving, from_factor, tree_start, graph.scopes, flags)
    left = leaving.astype(bool)
    to_variable = from_factor[tour].astype(bool) ^ left  # down from a factor, or up from below
    answer = np.where(pinned[graph.scopes[tour]], scaling.BOUNCE, scaling.CAVITY)
    kinds = np.where(to_variable, scaling.MESSAGE, answer).astype(np.uint8)
    inside = core[tour].astype(bool)
    sizes = segment_sums(inside.astype(np.float64), tree_start).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes[sizes > 0])]).astype(np.int64)
    alone = np.flatnonzero(np.diff(graph.scope_offsets)[graph.edge_factors] == 1).astype(np.uint32)
    to_alone = np.where(pinned[graph.scopes[alone]], scaling.BOUNCE, scaling.CAVITY)
    return Schedule(
        tour[left],
        kinds[left],
        np.concatenate([tour[~left], alone]),
        np.concatenate([kinds[~left], to_alone.astype(np.uint8)]),
        tour[inside],
        kinds[inside],
        starts,
    )


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
