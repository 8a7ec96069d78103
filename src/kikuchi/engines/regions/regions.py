"""Regions as engines: generalised belief propagation, and the double loop.

Reference: LIU-D7, LIU-I13, LIU-I14, TEH-I10.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Clock
from kikuchi.core.errors import StartError
from kikuchi.core.numerics import log
from kikuchi.core.run import StepAborted
from kikuchi.engines.loops.state import State
from kikuchi.engines.regions.double_loop import DoubleLoop, InnerLoopController
from kikuchi.engines.regions.engine import RegionBeliefs
from kikuchi.engines.regions.response import RegionResponse
from kikuchi.graphs.factor_graph import FactorGraph

_INNER_TOLERANCE = 0.03  # change in an inner sweep, relative to that since the last outer step


@dataclass(eq=False)
class RegionState(State):
    """Beliefs of all regions, and the log-tables that they belong to; in a double loop also its
    messages, and where the tangent was placed. `members` says which regions they are.
    """

    logarithms: ClassVar[tuple[str, ...]] = ("log_tables",)

    b: Array
    log_tables: Array
    messages: Array
    old: Array
    members: Ints


class Regions(ABC):
    """Beliefs over regions as an engine.

    Beliefs are the potentials of a region times messages, so that they move with the tables:
    `set_tables` and a state of other tables keep the messages. Where a state of a factor that was
    impossible becomes possible, they begin again.
    """

    def __init__(self, beliefs: RegionBeliefs) -> None:
        self.beliefs = beliefs

    @property
    def graph(self) -> FactorGraph:
        """The model, with the present tables."""
        return self.beliefs.graph

    def set_tables(self, log_tables: Array) -> None:
        """Use other log-tables and keep the messages."""
        state = self.state
        self.beliefs.set_tables(log_tables)
        self._begin()
        self.state = state

    @property
    def state(self) -> RegionState:
        """What has been reached."""
        return self._reached()

    @state.setter
    def state(self, state: RegionState) -> None:
        known = (state.log_tables > -np.inf) | (self.graph.log_tables == -np.inf)
        if known.all():
            self._move_to(state)

    def go_on_from(self, state: RegionState) -> None:
        """Go on from what a run of the same method has reached on the same regions."""
        mine = self._reached()
        same = np.array_equal(mine.members, state.members)
        parts = ("b", "log_tables", "messages", "old")
        if not same or any(len(getattr(mine, x)) != len(getattr(state, x)) for x in parts):
            raise other_regions()
        self.state = state

    @property
    def _members(self) -> Ints:
        """The variables of all regions, and where those of each begin."""
        variables, scopes = self.beliefs.regions.variables, self.graph.scopes
        return np.concatenate([variables.offsets, variables.items, scopes]).astype(np.int64)

    @abstractmethod
    def _reached(self) -> RegionState:
        """A copy of what has been reached."""

    @abstractmethod
    def _begin(self) -> None:
        """Begin again from the potentials."""

    @abstractmethod
    def _move_to(self, state: RegionState) -> None:
        """Go on from a state of these or other tables."""

    @abstractmethod
    def sweep(self, damping: float = 0.0) -> float:
        """Take one step towards a fixed point and return how far it still moves."""

    def marginals(self) -> Array:
        """Marginals of all variables, flat."""
        return self.beliefs.marginals()

    def factor_marginals(self) -> Array:
        """Marginals of all factors, flat as the tables."""
        return self.beliefs.factor_marginals()

    def log_z(self) -> float:
        """Minus the region free energy."""
        return self.beliefs.log_z()

    def response(self) -> RegionResponse:
        """How the marginals at this fixed point move with the tables."""
        return RegionResponse(self.beliefs)

    def _moved(self, b: Array, before: Array, after: Array) -> Array:
        """Logarithms of beliefs when their log-potentials change."""
        with np.errstate(invalid="ignore"):
            return np.where(after > -np.inf, log(b) + after - before, -np.inf)


def other_regions() -> StartError:
    """The error for a start from other regions."""
    return StartError(
        "start: it has other regions than this run; start from a result of the same method "
        "with the same regions and the same observed variables"
    )


class PropagatedRegions(Regions):
    """Generalised belief propagation: messages from parents to children.

    >>> import kikuchi as kk
    >>> from kikuchi.graphs.regions.builders import region_graph
    >>> pair = kk.FactorGraph([2, 2], [((0, 1), [[2, 1], [1, 2]]), ((0,), [1, 3])])
    >>> engine = PropagatedRegions(RegionBeliefs(region_graph(pair, "bethe"), kk.Budget()))
    >>> while engine.sweep() > 1e-12: pass
    >>> engine.marginals().round(6).tolist()
    [0.25, 0.75, 0.416667, 0.583333]
    """

    def __init__(
        self, beliefs: RegionBeliefs, *, parallel: bool = False, clock: Clock | None = None
    ) -> None:
        super().__init__(beliefs)
        self.parallel = parallel
        self.clock = clock
        self._sweeps: tuple[float, Iterator[float]] | None = None

    def prepare(self, damping: float) -> Iterator[float]:
        """List what each message enters, which is part of the set-up; return the sweeps."""
        if self._sweeps is None or self._sweeps[0] != damping:
            sweeps = self.beliefs.propagations(damping, self.parallel, self.clock)
            self._sweeps = damping, sweeps
        return self._sweeps[1]

    def rest(self) -> None:
        """Forget what each message enters, which is large, until the next sweep."""
        self._sweeps = None

    def sweep(self, damping: float = 0.0) -> float:
        """One sweep over all edges; answers the largest disagreement."""
        try:
            return next(self.prepare(damping))
        except StepAborted:
            self._sweeps = None  # an iterator ends with its first error
            raise

    def _reached(self) -> RegionState:
        none = np.zeros(0)
        return RegionState(self.beliefs.b.copy(), self.graph.log_tables, none, none, self._members)

    def _begin(self) -> None:
        """Beliefs begin with the potentials, as their tables do."""

    def _move_to(self, state: RegionState) -> None:
        beliefs = self.beliefs
        before = np.empty_like(beliefs.b)
        ones, last = np.ones(self.graph.n_factors), len(beliefs.regions)
        beliefs.add_potentials(state.log_tables, ones, last, before)
        beliefs.normalise(self._moved(state.b, before, beliefs.log_phi), last)


class MinimisedRegions(Regions):
    """The double loop, whose free energy falls.

    Parameters
    ----------
    beliefs : the tables of all regions.
    inner : inner sweeps in each outer step; grows when progress stops.
    tol : change of a belief that the outer loop aims at.

    >>> import kikuchi as kk
    >>> from kikuchi.graphs.regions.builders import region_graph
    >>> pair = kk.FactorGraph([2, 2], [((0, 1), [[2, 1], [1, 2]]), ((0,), [1, 3])])
    >>> engine = MinimisedRegions(RegionBeliefs(region_graph(pair, "bethe"), kk.Budget()))
    >>> while engine.sweep() > 1e-12: pass
    >>> engine.marginals().round(6).tolist()
    [0.25, 0.75, 0.416667, 0.583333]
    """

    def __init__(self, beliefs: RegionBeliefs, *, inner: int = 1, tol: float = 1e-9) -> None:
        super().__init__(beliefs)
        self.loop = DoubleLoop(beliefs)
        self.controller = InnerLoopController(self.loop, inner)
        self.tol = tol
        self.reached = -np.inf
        self._is_new = True

    def sweep(self, damping: float = 0.0) -> float:
        """One outer step, except at first, and the inner loop, which needs no damping; answers the
        larger change of a belief in the last inner sweep and in all of them. `reached` is log Z
        after them.
        """
        if not self._is_new:
            self.loop.outer_step()
        self._is_new = False
        residual = self._inner_loop(self.controller.sweeps)
        self.reached = self.log_z()
        self.controller.update(residual, self.reached)
        return residual

    def _inner_loop(self, most: int) -> float:
        """Sweep until a sweep changes the beliefs far less than all since the last outer step."""
        for _ in range(most):
            change = self.loop.inner_sweep()
            moved = self.loop.moved()
            if change <= max(0.1 * self.tol, _INNER_TOLERANCE * moved):
                break
        return max(change, moved)

    def _reached(self) -> RegionState:
        loop = self.loop
        return RegionState(
            self.beliefs.b.copy(),
            self.graph.log_tables,
            loop.messages.copy(),
            loop.old.copy(),
            self._members,
        )

    def _begin(self) -> None:
        self.loop.begin()
        self._is_new = True

    def _move_to(self, state: RegionState) -> None:
        beliefs, loop = self.beliefs, self.loop
        last = beliefs.regions.n_roots
        end = int(beliefs.offsets[last])
        before, after = np.empty(end), np.empty(end)
        loop.share(state.log_tables, before)
        loop.share(self.graph.log_tables, after)
        beliefs.normalise(self._moved(state.b[:end], before, after), last)
        beliefs.b[end:], loop.messages[:], loop.old[:] = state.b[end:], state.messages, state.old
        self._is_new = False
        self.controller.begin()
