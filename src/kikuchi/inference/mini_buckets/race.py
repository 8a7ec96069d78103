"""The race of many searches for both mini-bucket bounds, and the answer that it gives.

Orders differ much in how good the bounds are that they allow, and a few steps tell them apart.
So several orders start, and after some rounds the worse half of them leaves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.budget import Budget
from kikuchi.core.errors import ImpossibleEvidenceError
from kikuchi.core.seeds import generator
from kikuchi.graphs.elimination import eliminate
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.inference.method import MethodRun, Solution, Step
from kikuchi.inference.mini_buckets.bounds import Bound, Descent, Lower, Scratch, Upper
from kikuchi.inference.mini_buckets.plan import MiniBucketPlan, SplitOrder, least_ibound, make_plan
from kikuchi.inference.mini_buckets.support import LiveGraph, boxed_graph

Array = NDArray[np.float64]

_AUTO_ENTRIES = 2.0**17  # of all tables, where the i-bound is not given
_ENTRIES_PER_SECOND = 5e4  # that leave time for a few hundred steps
_AUTO_RANGE = (2.0**13, 2.0**22)
_LARGEST_AUTO = 24
_QUICK = 2.0**22  # entries up to which both bounds are found, however little time is left
_ENTRY_SHARE = 0.1  # of the seconds that may pass while orders enter
_RACE_ENTRIES = 2.0**19  # of the tables of all orders that race
_ROUNDS = (8, 16, 32, 64, 128)  # iterations after which the worse half of the orders leaves
_WARMTHS = (0.25, 0.5)  # strengths of the factors while a lower bound warms up
_WARM_STEPS = 8  # iterations at each of them
_LAST_ROUND = 160  # iterations after which only one race for each bound is left
_SWEEP_HOPE = 1.5  # a sweep may be this much narrower than the greedy order
_WINDOW = 10  # iterations over which progress is judged


class OutOfTime(Exception):
    """The clock ran out inside a pass."""


class Options(Protocol):
    """What a race must know of the method's options."""

    @property
    def ibound(self) -> int | None:
        """Most variables of a message."""

    @property
    def bound(self) -> str:
        """Which bounds to seek: both, upper or lower."""

    @property
    def order(self) -> SplitOrder:
        """Elimination order."""

    @property
    def orders(self) -> int:
        """Orders that race."""

    @property
    def tol(self) -> float:
        """Least gain in nats of ten iterations."""

    @property
    def max_iterations(self) -> int:
        """Most steps of each search."""

    @property
    def seed(self) -> int:
        """Seed of the ties."""


class Race:
    """Several searches for one bound, and the best value that any of them has reached."""

    def __init__(self, kind: type[Bound]) -> None:
        self.kind = kind
        self.searches: list[Descent] = []
        self.values: list[float] = []  # best objective at the start and after each iteration

    def enter(self, bound: Bound, shifts: Array | None = None) -> None:
        """Add a search, from given cost shifts if any."""
        point = bound.start
        if shifts is not None:
            point[: len(shifts)] = shifts
        self.searches.append(Descent(bound, point))

    @property
    def best(self) -> Descent:
        """The search that is ahead."""
        return min(self.searches, key=lambda search: search.value)

    @property
    def gain(self) -> float:
        """What the last iterations gained: NaN while they are too few to tell."""
        if len(self.searches) == 1 and self.searches[0].stuck:
            return 0.0
        if len(self.values) <= _WINDOW or len(self.searches) > 1:
            return math.nan
        return self.values[-1 - _WINDOW] - self.values[-1]

    def advance(self) -> None:
        """One step of every search; after some rounds the worse half leaves."""
        for search in self.searches:
            search.step()
        if len(self.values) in _ROUNDS:
            self.searches.sort(key=lambda search: search.value)
            del self.searches[(len(self.searches) + 1) // 2 :]

    def note(self) -> None:
        """Put the best value on record."""
        self.values.append(self.best.value)


class Bracket:
    """One run: the plans, the races for both bounds, and the answer."""

    def __init__(self, options: Options, live: LiveGraph, run: MethodRun) -> None:
        self.options = options
        self.live = live
        self.run = run
        self.budget = run.clock.budget
        self.plan = self._first_plan()
        self.count = self._affordable_orders()
        self.scratch = Scratch(self.plan)
        self.races: list[Race] = []
        self.warming: list[Descent] = []
        self.boxes: list[LiveGraph] = []
        self.entered = 1
        self.may_stop = False
        self.done = 0

    def _kinds(self) -> list[type[Bound]]:
        if self.plan.exact:
            return [Upper]  # one pass gives both
        kinds: dict[str, list[type[Bound]]] = {"upper": [Upper], "lower": [Lower]}
        return kinds.get(self.options.bound, [Upper, Lower])

    # ------------------------------------------------------------------ plans

    def _first_plan(self) -> MiniBucketPlan:
        planner = Planner(self.live.graph, self.options.order)
        if self.options.ibound is not None:
            return planner.plan(self.options.ibound)
        return planner.largest(self.budget)

    def _affordable_orders(self) -> int:
        """How many orders may race; refuses if the budget has no room for one."""
        plan = self.plan
        self.budget.require_bytes(
            plan.bytes,
            f"mini-buckets with i-bound {plan.ibound}",
            "take a smaller i-bound, allow more memory, or use mf",
        )
        if plan.exact:
            return 1
        count = min(self.options.orders, int(_RACE_ENTRIES / plan.entries))
        if self.budget.bytes is not None:
            spare = self.budget.bytes - 2 * plan.table_bytes
            count = min(count, int(spare / (3 * plan.search_bytes)))
        return max(count, 1)

    def _plan(self, number: int) -> MiniBucketPlan:
        if number == 0:
            return self.plan
        graph, order = self.live.graph, self.options.order
        return make_plan(graph, self.plan.ibound, order, self._seed(number))

    def _seed(self, number: int) -> int:
        return 65536 * self.options.seed + number

    # ------------------------------------------------------------------ search

    def _pause(self) -> None:
        if self.may_stop and self.run.clock.expired:
            raise OutOfTime

    def _open(self, kind: type[Bound]) -> None:
        """Open the race for a bound with the first order."""
        race = Race(kind)
        race.enter(self._bound(kind, self.plan))
        self.races.append(race)

    def _enter_orders(self) -> None:
        """Let all other searches in, as long as that takes a small part of the time."""
        for kind in self._kinds()[len(self.races) :]:
            self._open(kind)
        if self._needs_box:
            self._box(1)
        self.may_stop = True
        self._enter_warm(self.plan)
        for number in range(1, self.count):
            if self.run.clock.seconds > _ENTRY_SHARE * (self.budget.seconds or math.inf):
                break
            plan = self._plan(number)
            if plan.entries <= 2 * self.plan.entries:  # else an unlucky order
                self.scratch.make_room(plan)
                for race in self.races:
                    if race.kind is Upper or (2 * number <= self.count and not self.boxes):
                        race.enter(self._bound(race.kind, plan))
                self._enter_warm(plan)
                self.entered += 1

    def _enter_warm(self, plan: MiniBucketPlan) -> None:
        if self.races[-1].kind is Lower and not (self.boxes or self._needs_box):
            warm = self._bound(Lower, plan)
            warm.heat(_WARMTHS[0])
            self.warming.append(Descent(warm, warm.start))

    def _bound(self, kind: type[Bound], plan: MiniBucketPlan) -> Bound:
        return kind(plan, self.scratch, self._pause, self.live.constant)

    def _steps(self) -> Iterator[Step]:
        """Iteration 0 enters the orders; each one after moves every search by a step."""
        try:
            self._enter_orders()
            yield self._report()
            while True:
                self._warm_up()
                self.done += 1
                for race in self.races:
                    race.advance()
                if self.done == _LAST_ROUND:
                    self._keep_one_lower()
                yield self._report()
        except OutOfTime:
            yield self._report()

    def _warm_up(self) -> None:
        """One step of the lower bounds that begin with weakened factors, which leads past the local
        optima that strong factors have; when those have their strength back they enter a race of
        their own. Bounds on likely states begin anew with what is known by then.
        """
        stage, rest = divmod(self.done, _WARM_STEPS)
        if stage < len(_WARMTHS):
            if rest == 0 and stage > 0:
                self.warming = [_colder(search, stage) for search in self.warming]
            for search in self.warming:
                search.step()
        elif stage == len(_WARMTHS) and rest == 0:
            if self.boxes or self._needs_box:
                self._box(self.count)
            late = Race(Lower)
            late.searches = [_colder(search, stage) for search in self.warming]
            self.warming = []
            self._let_in(late)

    def _let_in(self, late: Race) -> None:
        if late.searches:
            late.note()
            self.races = [race for race in self.races if math.isfinite(race.best.value)]
            self.races.append(late)

    @property
    def _needs_box(self) -> bool:
        """Whether zeros leave no lower bound on the whole model."""
        lower = self._best(Lower)
        return lower is not None and not math.isfinite(lower.value)

    def _box(self, count: int) -> None:
        """Race `count` orders on the model without zeros that is left when each variable keeps only
        states that exclude no state of another; its log Z is a lower bound already.
        """
        race = Race(Lower)
        rng = generator(self.options.seed)
        boxed = boxed_graph(self.live, self._preference(), rng, self.run.clock)
        if boxed is None:
            return
        self.boxes.append(boxed)
        for number in range(count):
            seed = None if number == 0 else self._seed(number)
            plan = make_plan(boxed.graph, self.plan.ibound, self.options.order, seed)
            self.scratch.make_room(plan)
            race.enter(Lower(plan, self.scratch, self._pause, boxed.constant))
        self._let_in(race)

    def _preference(self) -> Array:
        """Marginals of the live graph at the best point of the upper bound."""
        best = self._best(Upper)
        if best is None:
            bound = self._bound(Upper, self.plan)
            best = Descent(bound, bound.start)
        return _marginals(best)

    def _keep_one_lower(self) -> None:
        lower = [race for race in self.races if race.kind is Lower]
        if len(lower) == 2:
            self.races.remove(max(lower, key=lambda race: race.best.value))

    def _report(self) -> Step:
        for race in self.races:
            race.note()
        lower, upper = self._lower(), self._upper()
        gains = [race.gain for race in self.races]
        known = not any(map(math.isnan, gains))
        if self.races[-1].kind is Lower:
            known &= self.done > _WARM_STEPS * len(_WARMTHS) + _WINDOW
        return Step(
            self.done,
            residual=max(gains) if known else math.nan,
            objective=lower if self.options.bound == "lower" and lower > -math.inf else upper,
            lower=lower if math.isfinite(lower) else math.nan,
            upper=upper,
        )

    def _best(self, kind: type[Bound]) -> Descent | None:
        """The best search for a bound, None if it was not asked for."""
        found = [race.best for race in self.races if race.kind is kind]
        return min(found, key=lambda search: search.value) if found else None

    def _upper(self) -> float:
        best = None if self.options.bound == "lower" else self._best(Upper)
        return math.nan if best is None else best.log_z_bound

    def _lower(self) -> float:
        kind = Upper if self.plan.exact else Lower
        best = None if self.options.bound == "upper" else self._best(kind)
        return math.nan if best is None else best.log_z_bound

    # ------------------------------------------------------------------ answer

    def solution(self) -> Solution:
        """Race, and answer with the best of each bound."""
        self._open(self._kinds()[0])
        if self._upper() == -math.inf:
            raise ImpossibleEvidenceError(
                "no state of the model has positive weight (Z = 0); check the zeros in its tables "
                "and the evidence"
            )
        self.may_stop = self.plan.entries > _QUICK
        limit = self.options.max_iterations
        done, converged = self.run.iterate(self._steps(), tol=self.options.tol, limit=limit)
        self.may_stop = False
        lower, upper = _finite(self._lower()), _finite(self._upper())
        best = self.races[0].best
        marginals = _marginals(best)
        tables = best.bound.plan.factor_beliefs(self.scratch.table)
        for boxed in self.boxes:
            if best.bound.plan.graph is boxed.graph:
                marginals, tables = boxed.marginals(marginals), boxed.factor_tables(tables)
        return Solution(
            self.live.marginals(marginals),
            log_z=_middle(lower, upper),
            converged=converged,
            iterations=done,
            log_z_lower=lower,
            log_z_upper=upper,
            factor_tables=lambda: self.live.factor_tables(tables),
            warnings=self._warnings(lower),
            diagnostics=self._diagnostics(),
        )

    def _warnings(self, lower: float | None) -> list[str]:
        if lower is not None or self.options.bound == "upper":
            return []
        if self._best(Lower) is None:
            return ["the time was over before a lower bound was found; allow more seconds"]
        return [
            "the zeros of this model leave no finite lower bound, and no state of positive weight "
            "was found; take a larger i-bound, or use jt"
        ]

    def _diagnostics(self) -> dict[str, object]:
        found = [self._best(kind) for kind in (Upper, Lower)]
        return {
            "ibound": self.plan.ibound,
            "orders": self.entered,
            "exact": self.plan.exact,
            "splits": [None if best is None else best.bound.plan.splits for best in found],
            "bytes": self.plan.bytes,
            "operations": self.plan.operations,
        }


def _colder(search: Descent, stage: int) -> Descent:
    """The search with factors of the strength of the next stage, and shifts of the same."""
    strengths = (*_WARMTHS, 1.0)
    bound, point = search.bound, search.point.copy()
    point[: bound.n_shifts] *= strengths[stage] / strengths[stage - 1]
    bound.heat(strengths[stage])
    return Descent(bound, point)


class Planner:
    """Plans of one graph at several i-bounds; finds those that need no split."""

    def __init__(self, graph: FactorGraph, order: SplitOrder) -> None:
        self.graph = graph
        self.order: SplitOrder = order

    @cached_property
    def _width(self) -> float:
        """Width of the best order of exact elimination, infinite if that is out of reach."""
        found = eliminate(self.graph)
        return found.width if found.complete else math.inf

    def plan(self, ibound: int, most: float = math.inf) -> MiniBucketPlan:
        """The plan at an i-bound. Where its order splits, an order of exact elimination that does
        not, with at most `most` table entries, is preferred.
        """
        plan = make_plan(self.graph, ibound, self.order, None)
        if plan.exact or self.order != "min-split":
            return plan
        others: list[SplitOrder] = []
        if self._width <= ibound:
            others.append("min-fill")
        if self._width <= _SWEEP_HOPE * ibound:
            others.append("sweep")
        for other in others:
            found = make_plan(self.graph, ibound, other, None)
            if found.exact and found.entries <= most:
                return found
        return plan

    def largest(self, budget: Budget) -> MiniBucketPlan:
        """The plan of the largest i-bound whose tables fit the time and memory of the budget."""
        most = _AUTO_ENTRIES
        if budget.seconds is not None:
            most = float(np.clip(_ENTRIES_PER_SECOND * budget.seconds, *_AUTO_RANGE))
        ibound = least_ibound(self.graph)
        plan = self.plan(ibound, most)
        while not plan.exact and ibound < _LARGEST_AUTO:
            ibound += self._safe_growth(plan, most)
            larger = self.plan(ibound, most)
            too_large = budget.bytes is not None and larger.bytes > budget.bytes
            if larger.entries > most or too_large:
                break
            plan = larger
        return plan

    def _safe_growth(self, plan: MiniBucketPlan, most: float) -> int:
        """How far the i-bound may grow before the tables could be too large; at least 1."""
        room = math.log(max(most / plan.entries, 1.0))
        return max(1, int(room / math.log(int(self.graph.cardinalities.max()))))


def _marginals(best: Descent) -> Array:
    """Marginals of all variables of the plan's graph, uniform where nothing is known.

    Leaves the beliefs of all nodes in the scratch table.
    """
    bound = best.bound
    plan = bound.plan
    if bound.scratch.holds is not bound or bound.scratch.point is not best.point:
        bound.propagate(best.point)
    weights = bound.node_weights(best.point)
    graph = plan.graph
    ranked = bound.variable_beliefs(weights)
    cards = plan.ranked_cards
    starts = (np.cumsum(cards) - cards)[plan.rank]
    within = np.arange(len(ranked)) - np.repeat(graph.state_offsets[:-1], graph.cardinalities)
    found = ranked[np.repeat(starts, graph.cardinalities) + within]
    sums = np.repeat(np.add.reduceat(found, graph.state_offsets[:-1]), graph.cardinalities)
    uniform = 1.0 / np.repeat(graph.cardinalities, graph.cardinalities)
    return np.where(sums > 0.0, found / np.where(sums > 0.0, sums, 1.0), uniform)


def _middle(lower: float | None, upper: float | None) -> float | None:
    """The estimate of least guaranteed error, or the only bound."""
    if lower is None or upper is None:
        return upper if lower is None else lower
    return 0.5 * (lower + upper)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
