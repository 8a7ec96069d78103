"""Descent of the tree-reweighted upper bound on log Z, over messages and appearances.

Reference: LIU-D6, LIU-I8.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.engines.messages.anderson import Anderson
from kikuchi.engines.messages.reweighted import ReweightedMessages
from kikuchi.engines.run import MethodRun, Step
from kikuchi.graphs.appearances import Appearances, forest_appearances
from kikuchi.graphs.factor_graph import FactorGraph

_SINGLE_READINGS = 4  # sweeps after each of which the bound is computed; later after every few
_READ_EVERY = 8
_LARGE = 100_000  # edges
_WINDOW = 100  # sweeps in which the residual must fall, or damping is raised
_MUST_FALL = 1.0
_MOST_DAMPING = 0.75
_INNER_TOL = 1e-6  # of the messages between two changes of the appearances
_INNER_SWEEPS = 60
_FIRST_STEP = 0.5  # of the conditional gradient
_LARGEST_STEP = 0.9
_LEAST_WEIGHT = 1e-6  # powers 1 / weight beyond this cost digits and gain nothing
_LEAST_STEP = 2.0**-12  # of the first one tried in a round


class DescentOptions(Protocol):
    """The options that a descent reads."""

    @property
    def optimises(self) -> bool:
        """Whether the appearances are changed too."""

    @property
    def damping(self) -> float:
        """Least weight on the old message."""

    @property
    def accelerate(self) -> int:
        """Past sweeps that are combined."""

    @property
    def schedule(self) -> str:
        """Order of the updates."""

    @property
    def tol(self) -> float:
        """Largest change of a message to stop at."""

    @property
    def rounds(self) -> int:
        """Most changes of the appearances."""

    @property
    def gap(self) -> float:
        """Stop changing them when the bound can fall by less."""


def copies_kept(accelerate: int) -> int:
    """Copies of all messages that the acceleration keeps."""
    return 2 * (accelerate + 2)


@dataclass(eq=False)
class ReweightedDescent:
    """One run: messages, appearances, and the smallest bound so far.

    Sweeps are accelerated by combining the last few (Anderson); damping rises by itself where the
    messages do not converge. With `optimised` appearances, the forest of largest mutual
    informations is mixed in as long as the bound falls.
    """

    method: DescentOptions
    graph: FactorGraph
    run: MethodRun
    appearances: Appearances

    def __post_init__(self) -> None:
        method = self.method
        self.engine = ReweightedMessages(
            self.graph,
            self.appearances.weights,
            schedule=method.schedule,
            budget=self.run.clock.budget,
            copies=copies_kept(method.accelerate),
        )
        if self.run.start is not None and self.run.reduced is not None:
            self.engine.state = self.run.start.messages(self.run.reduced)
        self.past = Anderson(method.accelerate)
        self.damping = method.damping
        self.done = 0
        self.rounds = 0
        self.gap = math.inf
        self.upper = self.engine.log_z_upper(self.appearances.parents)
        self.residual = math.inf
        self._window = (math.inf, math.inf)  # least residual of the last window and of this
        self._in_window = 0

    # ------------------------------------------------------------------ messages

    def steps(self) -> Iterator[Step]:
        """Sweeps to the end, between changes of the appearances if there are any."""
        if self.method.optimises and not self.graph.is_forest:
            yield from self._optimise()
        yield from self._sweeps(0.0, None, math.nan)

    def _sweeps(self, tol: float, count: int | None, gap: float) -> Iterator[Step]:
        """Sweeps until the residual is at most `tol`, at most `count`; a step for each reading."""
        taken = 0
        while count is None or taken < count:
            self._sweep()
            taken += 1
            ended = self.residual <= (tol if count is not None else self.method.tol)
            if ended or taken == count or self._is_time_to_read(taken):
                residual = self.residual if math.isnan(gap) else max(self.residual, gap)
                yield Step(self.done, residual, self._bound(), upper=self.upper)
            if ended and count is not None:
                return

    def _is_time_to_read(self, taken: int) -> bool:
        """A reading costs about as much as five sweeps: every sweep at first, then every few."""
        every = _READ_EVERY if self.graph.n_edges < _LARGE else 4 * _READ_EVERY
        due = self.done <= _SINGLE_READINGS or taken % every == 0
        return due or self.run.clock.expired

    def _sweep(self) -> None:
        before = self._centred()
        self.residual = self.engine.sweeps(1, self.damping)
        self.done += 1
        if not math.isfinite(self.residual):  # too strong for the present damping
            self.engine.set_messages(np.zeros_like(before))
            self._damp()
            return
        if self.residual > self.method.tol:
            better = self.past.combined(before, self._centred(), self.residual)
            if better is not None:
                self.engine.set_messages(better)
        self._watch()

    def _centred(self) -> Array:
        """The messages with mean 0 each, a form that is linear and so can be extrapolated."""
        messages, offsets = self.engine.messages, self.graph.message_offsets
        sizes = np.diff(offsets)
        means = np.add.reduceat(messages, offsets[:-1]) / sizes
        return np.asarray(messages - np.repeat(means, sizes))

    def _watch(self) -> None:
        """Raise damping when the residual no longer falls."""
        last, least = self._window
        self._window = (last, min(least, self.residual))
        self._in_window += 1
        if self._in_window == _WINDOW:
            last, least = self._window
            if least > _MUST_FALL * last and least > self.method.tol:
                self._damp()
            self._window = (least, math.inf)
            self._in_window = 0

    def _damp(self) -> None:
        self.damping = max(self.damping, min(_MOST_DAMPING, 0.5 * (1.0 + self.damping)))
        self.past.clear()

    def _bound(self) -> float:
        upper = self.engine.log_z_upper(self.appearances.parents)
        self.upper = min(self.upper, upper)
        return upper

    # ------------------------------------------------------------------ appearances

    def _optimise(self) -> Iterator[Step]:
        """Conditional gradient: the bound has slope -I_a in the weight of factor a."""
        step = _FIRST_STEP
        yield from self._sweeps(_INNER_TOL, 4 * _INNER_SWEEPS, 1.0)
        level = self._bound()
        while self.rounds < self.method.rounds:
            gains = self.engine.informations()
            forest = self._best_forest(gains)
            self.gap = float(gains @ (forest.weights - self.appearances.weights))
            if self.gap <= self.method.gap or self.appearances.weights.min() < _LEAST_WEIGHT:
                return
            first = step
            kept, messages = self.appearances, self.engine.messages.copy()
            self._use(kept.mixed(forest, step))
            while True:
                yield from self._sweeps(_INNER_TOL, _INNER_SWEEPS, self.gap)
                bound = self._bound()
                if bound < level:
                    break
                step *= 0.5
                self.engine.set_messages(messages)
                if step < first * _LEAST_STEP:
                    self._use(kept)
                    return
                self._use(kept.mixed(forest, step))
            level = bound
            self.rounds += 1
            if step == first:
                step = min(_LARGEST_STEP, 1.3 * step)

    def _best_forest(self, gains: Array) -> Appearances:
        """The forest of largest total gain; larger factors have no sure rule, so two are tried."""
        forest = forest_appearances(self.graph, gains)
        cost = np.maximum(np.diff(self.graph.scope_offsets) - 1, 1)
        if cost.max() > 1:
            other = forest_appearances(self.graph, gains / cost)
            forest = max(forest, other, key=lambda candidate: float(gains @ candidate.weights))
        return forest

    def _use(self, appearances: Appearances) -> None:
        self.appearances = appearances
        self.engine.set_weights(appearances.weights)
        self.past.clear()
        self._window = (math.inf, math.inf)
        self._in_window = 0

    def finish(self) -> None:
        """Read the bound once more, at the end of a run."""
        if self.run.stopped == "interrupted":  # perhaps in the middle of a change of weights
            self._use(self.appearances)
        self._bound()
