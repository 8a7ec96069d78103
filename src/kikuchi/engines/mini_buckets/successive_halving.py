"""Successive halving over elimination orders for both mini-bucket bounds, and the answer.

Orders differ much in how good the bounds are that they allow, and a few steps tell them apart.
So a descent is started for each of several orders, and after some rounds the worse half is dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, Protocol

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import require_time
from kikuchi.core.errors import ImpossibleEvidenceError
from kikuchi.core.seeds import generator
from kikuchi.engines.mini_buckets.bounds import (
    Bound,
    BoundDescent,
    Lower,
    MiniBucketWorkspace,
    Upper,
)
from kikuchi.engines.mini_buckets.plan import MiniBucketPlan, Planner, SplitOrder, make_plan
from kikuchi.engines.mini_buckets.support import LiveGraph, boxed_graph
from kikuchi.engines.run import MethodRun, Solution, Step

_QUICK = 2.0**17  # entries up to which both bounds are found, however little time is left
_STARTING_PART = 0.1  # of the seconds that may pass while orders are started
_MOST_ENTRIES = 2.0**19  # of the tables of all orders together
_ROUNDS = (8, 16, 32, 64, 128)  # iterations after which the worse half is dropped
_TEMPERING = (0.25, 0.5)  # strengths of the factors with which a lower bound begins
_TEMPERED_STEPS = 8  # iterations at each of them
_LAST_ROUND = 160  # iterations after which only one search for each bound is left
_WINDOW = 10  # iterations over which progress is judged


class MiniBucketOptions(Protocol):
    """What the search takes from the options of `wmb`."""

    @property
    def ibound(self) -> int | None:
        """Maximum number of variables of a message; None chooses by size."""

    @property
    def bound(self) -> Literal["both", "upper", "lower"]:
        """Which bounds to seek."""

    @property
    def order(self) -> SplitOrder:
        """Elimination order."""

    @property
    def orders(self) -> int:
        """How many orders are tried."""

    @property
    def tol(self) -> float:
        """Stop when ten iterations gain less than this many nats."""

    @property
    def max_iter(self) -> int:
        """Maximum number of steps of each search."""

    @property
    def seed(self) -> int:
        """Seed of the ties in the orders after the first."""


class OutOfTime(Exception):
    """The clock ran out inside a pass."""


class SuccessiveHalving:
    """Several descents of one bound, and the best value that any of them has reached."""

    def __init__(self, kind: type[Bound]) -> None:
        self.kind = kind
        self.descents: list[BoundDescent] = []
        self.values: list[float] = []  # best objective at the start and after each iteration

    def add(self, bound: Bound) -> None:
        """Start another descent."""
        self.descents.append(BoundDescent(bound, bound.start))

    @property
    def best(self) -> BoundDescent:
        """The descent with the best value."""
        return min(self.descents, key=lambda descent: descent.value)

    @property
    def gain(self) -> float:
        """What the last iterations gained: NaN while they are too few to tell."""
        if len(self.descents) == 1 and self.descents[0].stuck:
            return 0.0
        if len(self.values) <= _WINDOW or len(self.descents) > 1:
            return math.nan
        return self.values[-1 - _WINDOW] - self.values[-1]

    def step(self) -> None:
        """One step of every descent; after some rounds the worse half is dropped."""
        for descent in self.descents:
            descent.step()
        if len(self.values) in _ROUNDS:
            self.descents.sort(key=lambda descent: descent.value)
            del self.descents[(len(self.descents) + 1) // 2 :]

    def record(self) -> None:
        """Record the best value."""
        self.values.append(self.best.value)


class MiniBucketSearch:
    """One run: the plans, the searches for both bounds, and the answer."""

    def __init__(self, options: MiniBucketOptions, live: LiveGraph, run: MethodRun) -> None:
        self.options = options
        self.live = live
        self.run = run
        self.budget = run.clock.budget
        self.plan = self._first_plan()
        if self.plan.entries > _QUICK:
            require_time("planning mini-buckets", "use trw and mf")
        self.count = self._affordable_orders()
        self.workspace = MiniBucketWorkspace(self.plan)
        self.searches: list[SuccessiveHalving] = []
        self.tempered: list[BoundDescent] = []
        self.boxes: list[LiveGraph] = []
        self.started = 1
        self.may_stop = False
        self.done = 0

    def _kinds(self) -> list[type[Bound]]:
        if self.plan.exact:
            return [Upper]  # one pass gives both
        kinds: dict[str, list[type[Bound]]] = {"upper": [Upper], "lower": [Lower]}
        return kinds.get(self.options.bound, [Upper, Lower])

    # ------------------------------------------------------------------ plans

    def _first_plan(self) -> MiniBucketPlan:
        planner = Planner(self.live.graph, self.options.order, self.run.clock)
        if self.options.ibound is not None:
            return planner.plan(self.options.ibound)
        return planner.largest()

    def _affordable_orders(self) -> int:
        """How many orders may start; an error if the budget does not allow one."""
        plan = self.plan
        self.budget.require_bytes(
            plan.bytes,
            f"mini-buckets with i-bound {plan.ibound}",
            "take a smaller i-bound, allow more memory, or use mf",
        )
        if plan.exact:
            return 1
        count = min(self.options.orders, int(_MOST_ENTRIES / plan.entries))
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

    def _check_clock(self) -> None:
        if self.may_stop and self.run.clock.expired:
            raise OutOfTime

    def _start_search(self, kind: type[Bound]) -> None:
        """Start the search for a bound with the first order."""
        search = SuccessiveHalving(kind)
        search.add(self._bound(kind, self.plan))
        self.searches.append(search)

    def _start_orders(self) -> None:
        """Start all other orders, as long as that takes a small part of the time."""
        for kind in self._kinds()[len(self.searches) :]:
            self._start_search(kind)
        if self._needs_box:
            self._search_box(1)
        self.may_stop = True
        self._start_tempered(self.plan)
        for number in range(1, self.count):
            if self.run.clock.seconds > _STARTING_PART * (self.budget.seconds or math.inf):
                break
            plan = self._plan(number)
            if plan.entries <= 2 * self.plan.entries:  # else an unlucky order
                self.workspace.reserve(plan)
                for search in self.searches:
                    if search.kind is Upper or (2 * number <= self.count and not self.boxes):
                        search.add(self._bound(search.kind, plan))
                self._start_tempered(plan)
                self.started += 1

    def _start_tempered(self, plan: MiniBucketPlan) -> None:
        if self.searches[-1].kind is Lower and not (self.boxes or self._needs_box):
            bound = self._bound(Lower, plan)
            bound.scale_factors(_TEMPERING[0])
            self.tempered.append(BoundDescent(bound, bound.start))

    def _bound(self, kind: type[Bound], plan: MiniBucketPlan) -> Bound:
        return kind(plan, self.workspace, self._check_clock, self.live.constant)

    def _steps(self) -> Iterator[Step]:
        """Iteration 0 starts the orders; each one after moves every descent by a step."""
        try:
            self._start_orders()
            yield self._report()
            while True:
                self._step_tempered()
                self.done += 1
                for search in self.searches:
                    search.step()
                if self.done == _LAST_ROUND:
                    self._keep_one_lower()
                yield self._report()
        except OutOfTime:
            yield self._report()

    def _step_tempered(self) -> None:
        """One step of the lower bounds that begin with weakened factors, which leads past the local
        optima that strong factors have; once those have their full strength they make a search of
        their own. Bounds on likely states begin anew with what is known by then.
        """
        stage, within = divmod(self.done, _TEMPERED_STEPS)
        if stage < len(_TEMPERING):
            if within == 0 and stage > 0:
                self.tempered = [_strengthened(descent, stage) for descent in self.tempered]
            for descent in self.tempered:
                descent.step()
        elif stage == len(_TEMPERING) and within == 0:
            if self.boxes or self._needs_box:
                self._search_box(self.count)
            late = SuccessiveHalving(Lower)
            late.descents = [_strengthened(descent, stage) for descent in self.tempered]
            self.tempered = []
            self._add_search(late)

    def _add_search(self, late: SuccessiveHalving) -> None:
        if late.descents:
            late.record()
            self.searches = [s for s in self.searches if math.isfinite(s.best.value)]
            self.searches.append(late)

    @property
    def _needs_box(self) -> bool:
        """Whether zeros leave no lower bound on the whole model."""
        lower = self._best(Lower)
        return lower is not None and not math.isfinite(lower.value)

    def _search_box(self, count: int) -> None:
        """Start `count` orders on the model without zeros that is left when each variable keeps
        only states that exclude no state of another; its log Z is a lower bound already.
        """
        search = SuccessiveHalving(Lower)
        rng = generator(self.options.seed)
        boxed = boxed_graph(self.live, self._preference(), rng, self.run.clock)
        if boxed is None:
            return
        self.boxes.append(boxed)
        for number in range(count):
            seed = None if number == 0 else self._seed(number)
            plan = make_plan(boxed.graph, self.plan.ibound, self.options.order, seed)
            self.workspace.reserve(plan)
            search.add(Lower(plan, self.workspace, self._check_clock, boxed.constant))
        self._add_search(search)

    def _preference(self) -> Array:
        """Marginals of the live graph at the best point of the upper bound."""
        best = self._best(Upper)
        if best is None:
            bound = self._bound(Upper, self.plan)
            best = BoundDescent(bound, bound.start)
        return _marginals(best)

    def _keep_one_lower(self) -> None:
        lower = [search for search in self.searches if search.kind is Lower]
        if len(lower) == 2:
            self.searches.remove(max(lower, key=lambda search: search.best.value))

    def _report(self) -> Step:
        for search in self.searches:
            search.record()
        lower, upper = self._lower(), self._upper()
        gains = [search.gain for search in self.searches]
        known = not any(map(math.isnan, gains))
        if self.searches[-1].kind is Lower:
            known &= self.done > _TEMPERED_STEPS * len(_TEMPERING) + _WINDOW
        return Step(
            self.done,
            residual=max(gains) if known else math.nan,
            objective=lower if self.options.bound == "lower" and lower > -math.inf else upper,
            lower=lower if math.isfinite(lower) else math.nan,
            upper=upper,
        )

    def _best(self, kind: type[Bound]) -> BoundDescent | None:
        """The best descent of a bound, None if it was not asked for."""
        best = [search.best for search in self.searches if search.kind is kind]
        return min(best, key=lambda descent: descent.value, default=None)

    def _upper(self) -> float:
        best = None if self.options.bound == "lower" else self._best(Upper)
        return math.nan if best is None else best.log_z_bound

    def _lower(self) -> float:
        kind = Upper if self.plan.exact else Lower
        best = None if self.options.bound == "upper" else self._best(kind)
        return math.nan if best is None else best.log_z_bound

    # ------------------------------------------------------------------ answer

    def solution(self) -> Solution:
        """Search, and answer with the best of each bound."""
        self._start_search(self._kinds()[0])
        if self._upper() == -math.inf:
            raise ImpossibleEvidenceError(
                "no state of the model has positive weight (Z = 0); check the zeros in its tables "
                "and the evidence"
            )
        self.may_stop = self.plan.entries > _QUICK
        limit = self.options.max_iter
        done, converged = self.run.iterate(self._steps(), tol=self.options.tol, limit=limit)
        self.may_stop = False
        lower, upper = _finite(self._lower()), _finite(self._upper())
        best = self.searches[0].best
        marginals = _marginals(best)
        tables = best.bound.plan.factor_beliefs(self.workspace.table)
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
        descents = [self._best(kind) for kind in (Upper, Lower)]
        return {
            "ibound": self.plan.ibound,
            "orders": self.started,
            "exact": self.plan.exact,
            "splits": [None if best is None else best.bound.plan.splits for best in descents],
            "bytes": self.plan.bytes,
            "operations": self.plan.operations,
        }


def _strengthened(descent: BoundDescent, stage: int) -> BoundDescent:
    """The descent with factors of the strength of the next stage, and shifts to match."""
    strengths = (*_TEMPERING, 1.0)
    bound, point = descent.bound, descent.point.copy()
    point[: bound.n_shifts] *= strengths[stage] / strengths[stage - 1]
    bound.scale_factors(strengths[stage])
    return BoundDescent(bound, point)


def _marginals(best: BoundDescent) -> Array:
    """Marginals of all variables of the plan's graph, uniform where nothing is known.

    Leaves the beliefs of all nodes in the table of the workspace.
    """
    bound = best.bound
    plan = bound.plan
    if bound.workspace.owner is not bound or bound.workspace.point is not best.point:
        bound.propagate(best.point)
    weights = bound.node_weights(best.point)
    graph = plan.graph
    ranked = bound.variable_beliefs(weights)
    cards = plan.ranked_cards
    starts = (np.cumsum(cards) - cards)[plan.rank]
    within = np.arange(len(ranked)) - np.repeat(graph.state_offsets[:-1], graph.cardinalities)
    masses = ranked[np.repeat(starts, graph.cardinalities) + within]
    sums = np.repeat(np.add.reduceat(masses, graph.state_offsets[:-1]), graph.cardinalities)
    uniform = 1.0 / np.repeat(graph.cardinalities, graph.cardinalities)
    return np.where(sums > 0.0, masses / np.where(sums > 0.0, sums, 1.0), uniform)


def _middle(lower: float | None, upper: float | None) -> float | None:
    """The estimate of least guaranteed error, or the only bound."""
    if lower is None or upper is None:
        return upper if lower is None else lower
    return 0.5 * (lower + upper)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
