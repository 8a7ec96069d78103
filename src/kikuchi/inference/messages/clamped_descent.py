"""The runs of UPS and UPS-T: which trees are solved, how far, and what counts as an answer.

Rows TEH-I17.

A tree is solved by walks (TEH-I16), and by Newton's method on the same dual where walks are slow.
UPS goes from one locally consistent point to the next: a tree whose solution is not finished keeps
the beliefs it had, so that every free energy that is reported is one of beliefs that exist.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.inference.bounds.local_consistency import starting_marginals
from kikuchi.inference.messages.clamped_directions import NEWTON_STATES, Directions, directions
from kikuchi.inference.messages.clamped_messages import (
    PinnedMessages,
    Saved,
    UnderflowError,
    by_original,
    contradiction,
    free_energy_limit,
    pins_of,
)
from kikuchi.inference.messages.clamped_schedules import Schedule, Walks, make_schedule
from kikuchi.inference.messages.kernels import bp_messages
from kikuchi.inference.method import Run, Solution, Step

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_STATIONARY = 1e-5  # largest gradient, as a change of a probability, that counts as none
_NEAR = 1e-7  # Newton's step that counts as none
_START_SWEEPS = 20
_START_DAMPING = 0.5
_SOLVED = 1e-12  # trees are solved until no pin is missed by more, or by this
_SHARE = 0.1  # share of the tolerance if that is less,
_FINEST = 1e-14  # but for rounding
_FEASIBLE = 1e-11  # a tree that misses a pin by more keeps its last beliefs
_NOISE = 1e-10  # rounding of the free energy in one iteration: such a rise is none
_GAPS = 10  # times that may lie between it and its dual
_WALKS = 50  # walks before Newton's method is tried, four times as many each time it fails
_NEWTON_STEPS = 100
_PATIENCE = 4  # rounds before steps of all pins at once are tried between the sets
_SLOW = 0.75  # share of the residual that is left after a round, at which they are
_JOINT_STEPS = 10  # at a time
_TRIALS = 6
_TRIAL_WALKS = 60
_SHORTER = 0.25
_ARMIJO = 1e-4
_ROUNDING = 1e-13  # of the free energy, relative
_MOST_OF = 0.9  # of a probability may be used up in one step
_TINY = 1e-12  # probabilities that do not shorten a step
_ALONE = 1000  # walks of UPS-T before Newton's method is tried too
_FIRST_WALKS = 32  # recorded one by one by UPS-T


@dataclass(frozen=True, eq=False)
class Point:
    """Locally consistent beliefs: the marginals, the messages that give the rest, minus F."""

    messages: Saved
    beliefs: Array
    log_z: float


@dataclass(frozen=True)
class Away:
    """Two estimates of the distance from a stationary point.

    `free` is what a pinned variable would move by if it were free: small wherever the gradient is.
    `newton` is Newton's step, small also where ties make the gradient steep.
    """

    free: float
    newton: float

    @property
    def least(self) -> float:
        """The better of the two."""
        return min(self.free, self.newton)


class Descent:
    """A run of UPS (`steps`) or UPS-T (`walks`) with some sets of variables to pin in turn."""

    def __init__(
        self,
        graph: FactorGraph,
        run: Run,
        sets: list[Mask],
        *,
        tol: float,
        max_walks: int,
        propagate_first: bool = False,
        accelerate: bool = False,
    ) -> None:
        self.graph = graph
        self.run = run
        self.sets = sets
        self.tol = tol
        self.inner_tol = max(_FINEST, min(_SOLVED, _SHARE * tol))
        self.max_walks = max_walks
        self.propagate_first = propagate_first
        self.accelerate = accelerate
        self.helpless = False
        self.observed, self.beliefs = pins_of(graph, run.targets)
        self.zeros = not bool(np.all(np.isfinite(graph.log_tables)))
        self.limit = free_energy_limit(graph)
        self.limit += 1e-6 * (1.0 + abs(self.limit))
        self.schedules: list[Schedule | None] = [None] * len(sets)
        self.messages = self._new_messages(bp_messages.SUM)
        self.point: Point | None = None
        self.complete: deque[bool] = deque(maxlen=len(sets))
        self.residuals: deque[float] = deque([0.0] * len(sets), maxlen=len(sets))
        self.counts = {"walks": 0, "messages": 0, "scalings": 0, "unfinished": 0}

    def _new_messages(self, mode: int) -> PinnedMessages:
        try:
            return PinnedMessages(self.graph, mode)
        except UnderflowError:
            return PinnedMessages(self.graph, bp_messages.LOG_SUM)

    # ------------------------------------------------------------------ UPS

    def steps(self) -> Iterator[Step]:
        """Pin one set after the other and solve the rest."""
        self._begin()
        count = len(self.sets)
        moves: deque[float] = deque([math.inf] * count, maxlen=count)
        done, turn = 0, 0
        while True:
            before, number = self.beliefs, turn % count
            progress = self._solve_set(number)
            if self.run.clock.expired and progress.worst > _FEASIBLE:
                return  # the trees are half done: the last complete iteration is the answer
            self.complete.append(self._accept(number, progress))
            done, turn = done + 1, turn + 1
            moved = progress.worst if count == 1 else _distance(before, self.beliefs)
            moves.append(moved if self.point else math.inf)
            residual = max(moves)
            if self.point is None:
                yield Step(done)
                if done >= count:
                    return  # not one set can be solved
                continue
            if count > 1 and residual <= self.tol and not all(self.complete):
                yield Step(done, objective=self.point.log_z)
                return  # nothing moves any more, but not because all is solved
            due = self._joint_steps_due(done, residual, number)
            if due:  # small steps far from a stationary point are no convergence yet
                residual = max(residual, self._away(number).least)
            yield Step(done, residual if math.isfinite(residual) else math.nan, self.point.log_z)
            if due:
                self.helpless = True
                for moved in self._joint_steps(number):
                    self.helpless = False
                    done += 1
                    yield Step(done, max(residual, moved), self.point.log_z)

    def _begin(self) -> None:
        """First marginals; any are possible together unless tables have zeros."""
        if len(self.sets) == 1:
            return
        if self.zeros:
            limit = self.run.clock.budget.seconds
            left = None if limit is None else limit - self.run.clock.seconds
            self.beliefs = starting_marginals(self.graph, self.run.targets, left)
            for v, target in self.run.targets.items():
                offsets = self.graph.state_offsets
                self.beliefs[offsets[v] : offsets[v + 1]] = target
        elif self.propagate_first:
            self.beliefs = self._propagated(bp_messages.SUM)

    def _propagated(self, mode: int) -> Array:
        """Marginals after some damped sweeps of loopy scaling."""
        try:
            messages = self._new_messages(mode)
            messages.pin(self.observed, self.beliefs)
            order = np.arange(self.graph.n_variables, dtype=np.uint32)
            for _ in range(_START_SWEEPS):
                messages.sequential(order, _START_DAMPING, bp_messages.LINEAR)
            return messages.variable_beliefs()
        except UnderflowError:
            return self._propagated(bp_messages.LOG_SUM)

    def _solve_set(self, number: int, most: int | None = None) -> Walks:
        """Solve all trees with one set pinned, as far as walks and time allow."""
        schedule = self._schedule(number)
        try:
            self.messages.pin(self.sets[number] | self.observed, self.beliefs)
            self.messages.collect(schedule)
            progress = Walks.begin(schedule)
            for _ in self._solving(schedule, progress, most or self.max_walks):
                if self.run.targets and progress.worst > _FEASIBLE:
                    self._refuse_contradiction(schedule)
            self.messages.distribute(schedule)
            self._count(schedule, progress)
            return progress
        except UnderflowError:
            self.messages = PinnedMessages(self.graph, bp_messages.LOG_SUM)
            if self.point is not None:
                self.messages.restore(self.point.messages)
            return self._solve_set(number, most)

    def _solving(self, schedule: Schedule, progress: Walks, most: int) -> Iterator[None]:
        """Walks and Newton steps in turn until all trees are solved; a look between two calls."""
        walks, tol = _WALKS, self.inner_tol
        while progress.worst > tol and progress.most < most:
            end = min(progress.most + walks, most)
            while progress.worst > tol and progress.most < end:
                loops = min(schedule.loops_per_call, end - progress.most)
                self.messages.scale(schedule, progress, loops, tol)
                yield
                if self.run.clock.expired:
                    return
            if progress.worst > tol and progress.most < most:
                self.messages.newton(schedule, progress, _NEWTON_STEPS, tol)
                yield
            if self.run.clock.expired:
                return
            walks *= 4

    def _accept(self, number: int, progress: Walks) -> bool:
        """Make what was found the current point, but for trees that are not solved.

        Answers whether there were none.
        """
        schedule, messages = self._schedule(number), self.messages
        unfinished = np.append(progress.residual > _FEASIBLE, False)  # the last is "no tree"
        found = messages.variable_beliefs()
        self.counts["unfinished"] += int(unfinished.sum())
        if unfinished.any() and len(self.sets) > 1:
            if self.point is None:
                return False
            messages.restore(self.point.messages, unfinished[schedule.factor_tree])
            kept = np.repeat(unfinished[schedule.variable_tree], self.graph.cardinalities)
            found = np.where(kept, self.beliefs, found)
        log_z = messages.log_z(found)
        if len(self.sets) > 1 and not self._not_higher(found, log_z):
            if self.point is not None:
                messages.restore(self.point.messages)
            same = _distance(self.beliefs, found) <= self.tol  # then only rounding was refused
            return self.point is not None and same and not unfinished.any()
        self.beliefs = found
        self.point = Point(messages.save(), found, log_z)
        return not unfinished.any()

    def _not_higher(self, found: Array, log_z: float) -> bool:
        """Whether the free energy did not rise, and beliefs and dual agree on it."""
        gap = abs(self.messages.log_z(found, primal=True) - log_z)
        allowed = _NOISE + _ROUNDING * abs(log_z)
        before = -math.inf if self.point is None else self.point.log_z
        return gap <= _GAPS * allowed and log_z >= before - allowed

    # ------------------------------------------------------------------ steps of all pins at once

    def _joint_steps_due(self, done: int, residual: float, number: int) -> bool:
        """After some rounds if those are slow, and where all is stuck unless it did not help."""
        if not self.accelerate or len(self.sets) == 1:
            return False
        if residual <= self.tol:
            return not self.helpless and not self._stationary(self._away(number))
        a_round_ago = self.residuals[0]
        self.residuals.append(residual)
        return done > _PATIENCE * len(self.sets) and residual > _SLOW * a_round_ago

    def _away(self, number: int) -> Away:
        """How far the point is from a stationary one."""
        free = self.messages.stationarity(self.observed)
        gradient = self.messages.pull(self.observed)
        if free == 0.0 or not self._newton_fits(number) or not np.isfinite(gradient).all():
            return Away(free, math.inf)
        step = self._directions(number).propose(self.messages, gradient)
        return Away(free, float(np.abs(step).max(initial=0.0)))

    def _stationary(self, away: Away) -> bool:
        return away.free <= max(_STATIONARY, self.tol) or away.newton <= max(_NEAR, self.tol)

    def _newton_fits(self, number: int) -> bool:
        return int(self.graph.cardinalities[self.sets[number]].sum()) <= NEWTON_STATES

    def _directions(self, number: int) -> Directions:
        return directions(self.graph, self._schedule(number), self.sets[number])

    def _joint_steps(self, number: int) -> Iterator[float]:
        """Steps of the pins of one set, each to a lower free energy; yields the change."""
        chosen = self._directions(number)
        for _ in range(_JOINT_STEPS):
            pins, gradient = self.beliefs, self.messages.pull(self.observed)
            if not np.isfinite(gradient).all():
                return
            step = chosen.propose(self.messages, gradient)
            if not self._line_search(number, step, gradient):
                return
            chosen.learn(self.beliefs - pins, self.messages.pull(self.observed) - gradient)
            moved = _distance(pins, self.beliefs)
            yield moved
            if moved <= self.tol:
                return  # the sets in turn do the rest

    def _line_search(self, number: int, step: Array, gradient: Array) -> bool:
        """Move the pins by a part of a step to a lower free energy; False if none was found."""
        before, pins = self.point, self.beliefs
        assert before is not None
        slope = float(gradient @ step)
        share = _longest(pins, step)
        for _ in range(_TRIALS):
            self.beliefs = _moved(self.graph, pins, share * step)
            progress = self._solve_set(number, _TRIAL_WALKS)
            if progress.worst <= _FEASIBLE and self._lower(step, share, slope, before.log_z):
                return True
            self.beliefs = pins
            self.messages.restore(before.messages)
            if self.run.clock.expired:
                return False
            share *= _SHORTER
        return False

    def _lower(self, step: Array, share: float, slope: float, before: float) -> bool:
        """Take the solved trees as the new point if the free energy fell enough.

        Changes that drown in rounding are judged by the slope at the end of the step.
        """
        found = self.messages.variable_beliefs()
        log_z = self.messages.log_z(found)
        gain, rounding = log_z - before, _ROUNDING * (1.0 + abs(log_z))
        after = float(self.messages.pull(self.observed) @ step)
        flat = abs(gain) <= rounding and abs(after) <= 0.9 * abs(slope)
        if not flat and gain < max(rounding, -_ARMIJO * share * slope):
            return False
        if not self._not_higher(found, log_z):
            return False
        self.beliefs = found
        self.point = Point(self.messages.save(), found, log_z)
        return True

    def _schedule(self, number: int) -> Schedule:
        found = self.schedules[number]
        if found is None:
            found = make_schedule(self.graph, self.sets[number] | self.observed)
            assert found is not None  # the sets were checked
            self.schedules[number] = found
        return found

    def _refuse_contradiction(self, schedule: Schedule) -> None:
        """A dual value above the limit proves that nothing meets the targets."""
        self.messages.distribute(schedule)
        if -self.messages.log_z(self.messages.variable_beliefs()) > self.limit:
            raise contradiction()

    def _count(self, schedule: Schedule, progress: Walks) -> None:
        self.counts["walks"] += progress.most
        self.counts["messages"] += schedule.pass_messages
        self.counts["messages"] += int(progress.walks @ schedule.core_messages)
        self.counts["scalings"] += int(progress.walks @ schedule.core_scalings)

    # ------------------------------------------------------------------ UPS-T

    def walks(self) -> Iterator[Step]:
        """Walks over all trees, recorded one by one at first and then in growing numbers."""
        try:
            yield from self._walks()
        except UnderflowError:
            self.run.trace.clear()
            self.messages = PinnedMessages(self.graph, bp_messages.LOG_SUM)
            yield from self._walks()

    def _walks(self) -> Iterator[Step]:
        messages, schedule = self.messages, self._schedule(0)
        messages.pin(self.observed, self.beliefs)
        messages.collect(schedule)
        progress = Walks.begin(schedule)
        limit = self.run.clock.iterations(self.max_walks)
        loops = 1
        while True:
            loops = max(1, min(loops, schedule.loops_per_call, limit - progress.most))
            messages.scale(schedule, progress, loops, self.tol)
            if progress.worst > self.tol and _ALONE < progress.most < limit:
                messages.newton(schedule, progress, _NEWTON_STEPS, self.tol)
            if self.run.targets and progress.worst > self.tol:
                self._refuse_contradiction(schedule)
            else:
                messages.distribute(schedule)
            self.beliefs = messages.variable_beliefs()
            self.counts |= {"walks": 0, "messages": 0, "scalings": 0}
            self._count(schedule, progress)
            yield Step(max(1, progress.most), progress.worst, messages.log_z(self.beliefs))
            loops *= 1 if progress.most < _FIRST_WALKS else 2

    # ------------------------------------------------------------------ answer

    def solution(self, iterations: int, converged: bool) -> Solution:
        """The last complete iteration as an answer."""
        messages = self.messages
        if self.point is not None:
            messages.restore(self.point.messages)
            marginals, log_z = self.point.beliefs, self.point.log_z
        else:
            messages._refresh()
            marginals = messages.variable_beliefs()
            log_z = messages.log_z(marginals)
        away = self._last_away()
        stuck = converged and not self._stationary(away)
        if stuck:
            converged = False
            self.run.stopped = "diverged"
        elif self.run.stopped == "diverged" and self.run.clock.expired:
            self.run.stopped = "seconds"  # the steps ended because the time had
        solution = Solution(
            marginals,
            log_z=log_z,
            converged=converged,
            iterations=iterations,
            factor_tables=messages.factor_beliefs,
            diagnostics={**self._diagnostics(), "stationarity": away.least},
        )
        if converged and self.graph.is_forest:
            solution.log_z_lower = solution.log_z_upper = solution.log_z
        if stuck:
            solution.warnings.append(self._stuck(away.least))
        elif not converged:
            solution.warnings.append(self._warning())
        return solution

    def _last_away(self) -> Away:
        """The distance from a stationary point, for the set that was pinned last."""
        pinned = self.messages.pinned.astype(bool) & ~self.observed
        for number, held in enumerate(self.sets):
            if np.array_equal(held, pinned):
                return self._away(number)
        return Away(self.messages.stationarity(self.observed), math.inf)

    def _diagnostics(self) -> dict[str, Any]:
        schedules = [self._schedule(k) for k in range(len(self.sets))]
        return {
            "arithmetic": self.messages.arithmetic,
            "residual": self.run.trace.last_residual,
            "clamp_sets": [int(s.sum()) for s in self.sets],
            "messages_per_walk": [int(s.core_messages.sum()) for s in schedules],
            "scalings_per_walk": [int(s.core_scalings.sum()) for s in schedules],
            "tilts": by_original(self.messages.tilts(self.run.targets), self.run),
            **self.counts,
        }

    def _stuck(self, stationarity: float) -> str:
        text = f"not at a stationary point: a pinned variable would move by {stationarity:.2g}; "
        if self.zeros:
            return text + "zeros tie the sets to each other: give other clamps, or use loopy-is"
        return text + "the steps had become very small: lower tol, or give other clamps"

    def _warning(self) -> str:
        residual = self.run.trace.last_residual
        if not all(self.complete):
            return (
                "not converged: some trees could not be solved and kept their beliefs; the factors "
                "are too strong for ups, try kikuchi, or allow more max_walks"
            )
        if math.isnan(residual):
            return "not converged: the run ended in its first round; allow more iterations or time"
        text = f"not converged: a probability still moves by {residual:.2g}; "
        if self.run.targets:
            text += "observed marginals that contradict each other would explain it, else "
        return text + "allow more iterations or time"


def _distance(before: Array, after: Array) -> float:
    return float(np.abs(after - before).max(initial=0.0))


def _longest(pins: Array, step: Array) -> float:
    """The share of a step, at most 1, that uses up no more than most of any probability."""
    falls = (step < 0) & (pins > _TINY)
    return float(min(1.0, _MOST_OF * np.min(pins[falls] / -step[falls], initial=math.inf)))


def _moved(graph: FactorGraph, pins: Array, step: Array) -> Array:
    """The marginals pins + step, without negative ones."""
    weights = np.maximum(pins + step, (1.0 - _MOST_OF) * pins)
    totals = np.add.reduceat(weights, graph.state_offsets[:-1])
    return np.asarray(weights / np.repeat(totals, graph.cardinalities))
