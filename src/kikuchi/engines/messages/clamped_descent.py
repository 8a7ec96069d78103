"""The runs of UPS and UPS-T: which trees are solved, how far, and what counts as an answer.

A tree is solved by walks, and by Newton's method on the same dual where walks are slow.
UPS goes from one locally consistent point to the next: a tree whose solution is not finished keeps
the beliefs it had, so that every free energy that is reported is one of beliefs that exist.

Reference: TEH-I16, TEH-I17.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kikuchi.core.arrays import Array, Mask
from kikuchi.core.run import StepAborted
from kikuchi.engines.messages.clamped_directions import NEWTON_STATES, Directions, directions
from kikuchi.engines.messages.clamped_messages import (
    ClampedMessages,
    ClampedMessageState,
    by_original,
    free_energy_limit,
    observed_marginals,
)
from kikuchi.engines.messages.kernels import bp_messages
from kikuchi.engines.messages.local_consistency import starting_marginals
from kikuchi.engines.messages.tables import UnderflowError, contradiction
from kikuchi.engines.messages.update_order import UpdateOrder, Walks, make_update_order
from kikuchi.engines.run import MethodRun, Solution, Step
from kikuchi.graphs.factor_graph import FactorGraph


@dataclass(frozen=True)
class _Tolerances:
    """What counts as zero, or as solved."""

    gradient: float = 1e-5  # of a stationary point, as a change of a probability
    newton_step: float = 1e-7  # of a stationary point
    solved: float = 1e-12  # distance of a clamped marginal at which a tree is solved,
    tol_fraction: float = 0.1  # or this fraction of the tolerance if that is less,
    finest: float = 1e-14  # but for rounding
    feasible: float = 1e-11  # a tree that misses a clamped marginal by more keeps its last beliefs
    rise: float = 1e-10  # of the free energy in one iteration that rounding explains
    rounding: float = 1e-13  # of the free energy, relative
    dual_gap: float = 10.0  # times these two that may lie between the free energy and its dual

    def inner(self, tol: float) -> float:
        """How far trees are solved in a run with this tolerance."""
        return max(self.finest, min(self.solved, self.tol_fraction * tol))

    def noise(self, log_z: float) -> float:
        """A change of the free energy that may be rounding."""
        return self.rise + self.rounding * abs(log_z)


@dataclass(frozen=True)
class _TreeWork:
    """How trees are solved: by walks, and by Newton's method where those are slow."""

    walks: int = 50  # before Newton's method is tried; four times as many each time it fails
    newton_steps: int = 100
    walks_alone: int = 1000  # of UPS-T before Newton's method is tried too
    single_walks: int = 32  # that UPS-T records one by one
    start_sweeps: int = 20  # of loopy scaling for the first marginals
    start_damping: float = 0.5


@dataclass(frozen=True)
class _JointSteps:
    """When all marginals of a set are moved at once, and how."""

    patience: int = 4  # rounds of all sets before the first
    slow: float = 0.75  # fraction of the residual left after a round at which they are taken
    steps: int = 10  # at a time
    trials: int = 6  # lengths of one step
    trial_walks: int = 60
    shorten: float = 0.25
    sufficient: float = 1e-4  # fraction of the predicted decrease (Armijo)
    largest_loss: float = 0.9  # fraction of a probability that one step may take
    negligible: float = 1e-12  # probabilities that do not shorten a step


_TOLERANCES, _TREES, _JOINT = _Tolerances(), _TreeWork(), _JointSteps()


@dataclass(frozen=True, eq=False)
class Point:
    """Locally consistent beliefs: the marginals, the messages that give the rest, minus F."""

    messages: ClampedMessageState
    beliefs: Array
    log_z: float


@dataclass(frozen=True)
class StationarityGap:
    """Two estimates of the distance from a stationary point.

    `free` is how far a clamped variable would move if it were free: small wherever the gradient is.
    `newton` is the size of Newton's step, small also where ties make the gradient steep.
    """

    free: float
    newton: float

    @property
    def least(self) -> float:
        """The better of the two."""
        return min(self.free, self.newton)


class ClampedDescent:
    """A run of UPS (`steps`) or UPS-T (`walks`) with sets of variables to clamp in turn."""

    def __init__(
        self,
        graph: FactorGraph,
        run: MethodRun,
        sets: list[Mask],
        *,
        tol: float,
        max_walks: int,
        mode: int = bp_messages.SUM,
        propagate_first: bool = False,
        accelerate: bool = False,
    ) -> None:
        self.graph = graph
        self.run = run
        self.sets = sets
        self.tol = tol
        self.inner_tol = _TOLERANCES.inner(tol)
        self.max_walks = max_walks
        self.propagate_first = propagate_first
        self.accelerate = accelerate
        self.helpless = False
        self.observed, self.beliefs = observed_marginals(graph, run.targets)
        self.zeros = not bool(np.all(np.isfinite(graph.log_tables)))
        self.limit = free_energy_limit(graph)
        self.limit += 1e-6 * (1.0 + abs(self.limit))
        self.orders: list[UpdateOrder | None] = [None] * len(sets)
        self.messages = self._new_messages(mode)
        self.point: Point | None = None
        self.complete: deque[bool] = deque(maxlen=len(sets))
        self.residuals: deque[float] = deque([0.0] * len(sets), maxlen=len(sets))
        self.counts = {"walks": 0, "messages": 0, "scalings": 0, "unfinished": 0}

    def _new_messages(self, mode: int) -> ClampedMessages:
        try:
            return ClampedMessages(self.graph, mode, self.run.clock)
        except UnderflowError:
            return ClampedMessages(self.graph, bp_messages.LOG_SUM, self.run.clock)

    # ------------------------------------------------------------------ UPS

    def steps(self) -> Iterator[Step]:
        """Clamp one set after the other and solve the rest."""
        self._begin()
        count = len(self.sets)
        moves: deque[float] = deque([math.inf] * count, maxlen=count)
        done, turn = 0, 0
        while True:
            before, number = self.beliefs, turn % count
            progress = self._solve_set(number)
            if self.run.clock.expired and progress.worst > _TOLERANCES.feasible:
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
                residual = max(residual, self._stationarity_gap(number).least)
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
            messages.clamp(self.observed, self.beliefs)
            order = np.arange(self.graph.n_variables, dtype=np.uint32)
            for _ in range(_TREES.start_sweeps):
                messages.sequential(order, _TREES.start_damping, bp_messages.LINEAR)
            return messages.marginals()
        except UnderflowError:
            return self._propagated(bp_messages.LOG_SUM)

    def _solve_set(self, number: int, most: int | None = None) -> Walks:
        """Solve all trees with one set clamped, as far as walks and time allow."""
        order = self._order(number)
        try:
            self.messages.clamp(self.sets[number] | self.observed, self.beliefs)
            self.messages.collect(order)
            progress = Walks.begin(order)
            for _ in self._solving(order, progress, most or self.max_walks):
                if self.run.targets and progress.worst > _TOLERANCES.feasible:
                    self._check_targets(order)
            self.messages.distribute(order)
            self._count(order, progress)
            return progress
        except UnderflowError:
            self.messages = self._new_messages(bp_messages.LOG_SUM)
            if self.point is not None:
                self.messages.restore(self.point.messages)
            return self._solve_set(number, most)

    def _solving(self, order: UpdateOrder, progress: Walks, most: int) -> Iterator[None]:
        """Walks and Newton steps in turn until all trees are solved; a look between two calls."""
        walks, tol = _TREES.walks, self.inner_tol
        while progress.worst > tol and progress.most < most:
            end = min(progress.most + walks, most)
            while progress.worst > tol and progress.most < end:
                loops = min(order.loops_per_call, end - progress.most)
                self.messages.scale(order, progress, loops, tol)
                yield
                if self.run.clock.expired:
                    return
            if progress.worst > tol and progress.most < most:
                self.messages.newton(order, progress, _TREES.newton_steps, tol)
                yield
            if self.run.clock.expired:
                return
            walks *= 4

    def _accept(self, number: int, progress: Walks) -> bool:
        """Make the solved trees the current point; those that are not solved keep their beliefs.

        Answers whether all were solved.
        """
        order, messages = self._order(number), self.messages
        unfinished = np.append(
            progress.residual > _TOLERANCES.feasible, False
        )  # the last is "no tree"
        beliefs = messages.marginals()
        self.counts["unfinished"] += int(unfinished.sum())
        if unfinished.any() and len(self.sets) > 1:
            if self.point is None:
                return False
            messages.restore(self.point.messages, unfinished[order.factor_tree])
            kept = np.repeat(unfinished[order.variable_tree], self.graph.cardinalities)
            beliefs = np.where(kept, self.beliefs, beliefs)
        log_z = messages.log_z(beliefs)
        if len(self.sets) > 1 and not self._not_higher(beliefs, log_z):
            if self.point is not None:
                messages.restore(self.point.messages)
            same = _distance(self.beliefs, beliefs) <= self.tol  # then only rounding was refused
            return self.point is not None and same and not unfinished.any()
        self.beliefs = beliefs
        self.point = Point(messages.save(), beliefs, log_z)
        return not unfinished.any()

    def _not_higher(self, beliefs: Array, log_z: float) -> bool:
        """Whether the free energy did not rise, and beliefs and dual agree on it."""
        gap = abs(self.messages.log_z(beliefs, primal=True) - log_z)
        allowed = _TOLERANCES.noise(log_z)
        before = -math.inf if self.point is None else self.point.log_z
        return gap <= _TOLERANCES.dual_gap * allowed and log_z >= before - allowed

    # ------------------------------------------------------------------ joint steps

    def _joint_steps_due(self, done: int, residual: float, number: int) -> bool:
        """After some rounds if those are slow, and where all is stuck unless it did not help."""
        if not self.accelerate or len(self.sets) == 1:
            return False
        if residual <= self.tol:
            return not self.helpless and not self._stationary(self._stationarity_gap(number))
        a_round_ago = self.residuals[0]
        self.residuals.append(residual)
        return done > _JOINT.patience * len(self.sets) and residual > _JOINT.slow * a_round_ago

    def _stationarity_gap(self, number: int) -> StationarityGap:
        """How far the point is from a stationary one."""
        free = self.messages.stationarity(self.observed)
        gradient = self.messages.gradient(self.observed)
        no_step = not self._newton_fits(number) or self.run.clock.expired
        if free == 0.0 or no_step or not np.isfinite(gradient).all():
            return StationarityGap(free, math.inf)
        try:
            step = self._directions(number).propose(self.messages, gradient)
        except StepAborted:
            return StationarityGap(free, math.inf)
        return StationarityGap(free, float(np.abs(step).max(initial=0.0)))

    def _stationary(self, gap: StationarityGap) -> bool:
        return gap.free <= max(_TOLERANCES.gradient, self.tol) or gap.newton <= max(
            _TOLERANCES.newton_step, self.tol
        )

    def _newton_fits(self, number: int) -> bool:
        return int(self.graph.cardinalities[self.sets[number]].sum()) <= NEWTON_STATES

    def _directions(self, number: int) -> Directions:
        return directions(self.graph, self._order(number), self.sets[number])

    def _joint_steps(self, number: int) -> Iterator[float]:
        """Steps of all marginals of one set, each to a lower free energy; yields the change."""
        chosen = self._directions(number)
        for _ in range(_JOINT.steps):
            before, gradient = self.beliefs, self.messages.gradient(self.observed)
            if not np.isfinite(gradient).all():
                return
            step = chosen.propose(self.messages, gradient)
            if not self._line_search(number, step, gradient):
                return
            chosen.learn(self.beliefs - before, self.messages.gradient(self.observed) - gradient)
            moved = _distance(before, self.beliefs)
            yield moved
            if moved <= self.tol:
                return  # the sets in turn do the rest

    def _line_search(self, number: int, step: Array, gradient: Array) -> bool:
        """Move along part of a step to a lower free energy; False if no length gives one."""
        before, marginals = self.point, self.beliefs
        assert before is not None
        slope = float(gradient @ step)
        length = _longest(marginals, step)
        for _ in range(_JOINT.trials):
            self.beliefs = _moved(self.graph, marginals, length * step)
            progress = self._solve_set(number, _JOINT.trial_walks)
            if progress.worst <= _TOLERANCES.feasible and self._lower(
                step, length, slope, before.log_z
            ):
                return True
            self.beliefs = marginals
            self.messages.restore(before.messages)
            if self.run.clock.expired:
                return False
            length *= _JOINT.shorten
        return False

    def _lower(self, step: Array, length: float, slope: float, before: float) -> bool:
        """Take the solved trees as the new point if the free energy fell enough.

        Changes below rounding are judged by the slope at the end of the step.
        """
        beliefs = self.messages.marginals()
        log_z = self.messages.log_z(beliefs)
        gain, rounding = log_z - before, _TOLERANCES.rounding * (1.0 + abs(log_z))
        after = float(self.messages.gradient(self.observed) @ step)
        flat = abs(gain) <= rounding and abs(after) <= 0.9 * abs(slope)
        if not flat and gain < max(rounding, -_JOINT.sufficient * length * slope):
            return False
        if not self._not_higher(beliefs, log_z):
            return False
        self.beliefs = beliefs
        self.point = Point(self.messages.save(), beliefs, log_z)
        return True

    def _order(self, number: int) -> UpdateOrder:
        order = self.orders[number]
        if order is None:
            order = make_update_order(self.graph, self.sets[number] | self.observed)
            assert order is not None  # the sets were checked
            self.orders[number] = order
        return order

    def _check_targets(self, order: UpdateOrder) -> None:
        """A dual value above the limit proves that nothing meets the targets."""
        self.messages.distribute(order)
        if -self.messages.log_z(self.messages.marginals()) > self.limit:
            raise contradiction()

    def _count(self, order: UpdateOrder, progress: Walks) -> None:
        self.counts["walks"] += progress.most
        self.counts["messages"] += order.pass_messages
        self.counts["messages"] += int(progress.walks @ order.core_messages)
        self.counts["scalings"] += int(progress.walks @ order.core_scalings)

    # ------------------------------------------------------------------ UPS-T

    def walks(self) -> Iterator[Step]:
        """Walks over all trees, recorded one by one at first and then in growing numbers."""
        messages, order = self.messages, self._order(0)
        messages.clamp(self.observed, self.beliefs)
        messages.collect(order)
        progress = Walks.begin(order)
        limit = self.run.clock.iterations(self.max_walks)
        loops = 1
        while True:
            loops = max(1, min(loops, order.loops_per_call, limit - progress.most))
            messages.scale(order, progress, loops, self.tol)
            if progress.worst > self.tol and _TREES.walks_alone < progress.most < limit:
                messages.newton(order, progress, _TREES.newton_steps, self.tol)
            if self.run.targets and progress.worst > self.tol:
                self._check_targets(order)
            else:
                messages.distribute(order)
            self.beliefs = messages.marginals()
            self.counts |= {"walks": 0, "messages": 0, "scalings": 0}
            self._count(order, progress)
            yield Step(max(1, progress.most), progress.worst, messages.log_z(self.beliefs))
            loops *= 1 if progress.most < _TREES.single_walks else 2

    # ------------------------------------------------------------------ answer

    def solution(self, iterations: int, converged: bool) -> Solution:
        """The last complete iteration as an answer."""
        messages = self.messages
        if self.point is not None:
            messages.restore(self.point.messages)
            marginals, log_z = self.point.beliefs, self.point.log_z
        else:
            messages.refresh()
            marginals = messages.marginals()
            log_z = messages.log_z(marginals)
        gap = self._last_stationarity_gap()
        stuck = converged and not self._stationary(gap)
        if stuck and self.run.clock.expired:  # before Newton's step could say how far it is
            converged = stuck = False
            self.run.stopped = "seconds"
        elif stuck:
            converged = False
            self.run.stopped = "diverged"
        elif self.run.stopped == "diverged" and self.run.clock.expired:
            self.run.stopped = "seconds"  # the steps ended because the time had
        solution = Solution(
            marginals,
            log_z=log_z,
            converged=converged,
            iterations=iterations,
            factor_tables=messages.factor_marginals,
            diagnostics={**self._diagnostics(), "stationarity": gap.least},
        )
        if stuck:
            solution.warnings.append(self._stuck(gap.least))
        elif not converged:
            solution.warnings.append(self._warning())
        return solution

    def _last_stationarity_gap(self) -> StationarityGap:
        """The distance from a stationary point, for the set that was clamped last."""
        clamped = self.messages.clamped.astype(bool) & ~self.observed
        for number, held in enumerate(self.sets):
            if np.array_equal(held, clamped):
                return self._stationarity_gap(number)
        return StationarityGap(self.messages.stationarity(self.observed), math.inf)

    def _diagnostics(self) -> dict[str, Any]:
        orders = [self._order(k) for k in range(len(self.sets))]
        return {
            "arithmetic": self.messages.arithmetic,
            "residual": self.run.trace.last_residual,
            "clamp_sets": [int(s.sum()) for s in self.sets],
            "messages_per_walk": [int(s.core_messages.sum()) for s in orders],
            "scalings_per_walk": [int(s.core_scalings.sum()) for s in orders],
            "tilts": by_original(self.messages.tilts(self.run.targets), self.run),
            **self.counts,
        }

    def _stuck(self, stationarity: float) -> str:
        text = f"not at a stationary point: a clamped variable would move by {stationarity:.2g}; "
        if self.zeros:
            return text + "zeros tie the sets to each other: give other clamps, or use loopy-is"
        return text + "the steps had become very small: lower tol, or give other clamps"

    def _warning(self) -> str:
        residual = self.run.trace.last_residual
        if not all(self.complete):
            return (
                "not converged: some trees could not be solved and kept their beliefs; the factors "
                "are too strong for ups, try kikuchi, or raise max_iter"
            )
        if math.isnan(residual):
            return "not converged: the run ended in its first round; allow more iterations or time"
        text = f"not converged: a probability still moves by {residual:.2g}; "
        if self.run.targets:
            text += "observed marginals that contradict each other would explain it, else "
        return text + "allow more iterations or time"


def _distance(before: Array, after: Array) -> float:
    return float(np.abs(after - before).max(initial=0.0))


def _longest(marginals: Array, step: Array) -> float:
    """The part of a step, at most 1, that takes no more than most of any probability."""
    falls = (step < 0) & (marginals > _JOINT.negligible)
    return float(
        min(1.0, _JOINT.largest_loss * np.min(marginals[falls] / -step[falls], initial=math.inf))
    )


def _moved(graph: FactorGraph, marginals: Array, step: Array) -> Array:
    """The marginals after a step, without negative ones."""
    weights = np.maximum(marginals + step, (1.0 - _JOINT.largest_loss) * marginals)
    totals = np.add.reduceat(weights, graph.state_offsets[:-1])
    return np.asarray(weights / np.repeat(totals, graph.cardinalities))
