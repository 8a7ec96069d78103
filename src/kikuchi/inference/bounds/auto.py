"""`auto`: exact where that fits the budget, otherwise the best approximation, with bounds."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget, format_bytes
from kikuchi.core.errors import BudgetError
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.generators import complete
from kikuchi.inference.beliefs import Beliefs
from kikuchi.inference.method import Method, MethodRun, Solution, expand_factors, option
from kikuchi.inference.registry import METHODS
from kikuchi.inference.trees.engine import Watch
from kikuchi.inference.trees.junction_tree import JunctionTree, unconditioned
from kikuchi.inference.trees.plan import TreePlan, factor_targets, make_plan
from kikuchi.inference.trees.slices import SlicedPlan, sliced_plan
from kikuchi.inference.trees.speed import measured

if TYPE_CHECKING:
    from kikuchi.inference.bounds.auto_search import Search

_DEFAULT_SECONDS = 600.0  # default time limit of exact inference
_TRIED = 2.0  # times the time left: exact inference is tried up to such a price
_MOST_OVERFULL = 64.0  # times the memory: sums over slices are thought of
_SCALINGS = 50.0  # propagations that meeting observed marginals may take
_SURE = 0.1  # part of the time left below which it needs no answer in reserve


@dataclass(frozen=True)
class Auto(Method):
    """The best answer for the budget, and what was chosen and why.

    If the cheapest junction tree found fits the memory and, by the measured speed of the machine,
    may fit the seconds, exact inference is tried, with an estimate in reserve; where it exceeds the
    memory by a small factor, as a sum over slices of a few variables. Otherwise estimates
    come first (belief propagation, then Kikuchi free energies over growing regions) while certified
    bounds on log Z close from both sides; `bounds` is their part of the time, which without a limit
    is 30 seconds. The converged estimate over the largest regions that lies inside the bounds is
    returned; `diagnostics` name it (`chosen`), the reason (`why`), and what else was tried.
    Observed marginals are met by `is` where dozens of propagations fit, by `loopy-is` where it
    converges, and by `ups` elsewhere.

    >>> import kikuchi as kk
    >>> kk.infer(kk.grid(4, 4, seed=0), "auto").diagnostics["chosen"]
    'jt'
    """

    name: ClassVar[str] = "auto"
    summary: ClassVar[str] = "exact if the budget allows, else the best approximation with bounds"
    objective_name: ClassVar[str] = "estimate of log Z"
    exactness = "affordable"
    certifies = ("lower", "upper")
    gives_covariance: ClassVar[bool] = True
    takes_observed_marginals: ClassVar[bool] = True

    exact: bool = option(True, "use exact inference where it fits the budget")
    bounds: float = option(0.4, "part of the time for bounds if not exact", low=0, high=0.9)
    ibound: int | None = option(None, "largest i-bound of the bounds; none is as time allows")

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        cost, plan = _least_cost(graph, run)
        sliced = None
        if self.exact and not run.targets and 1.0 < cost.overfull <= _MOST_OVERFULL:
            sliced = sliced_plan(plan, run.clock)
            if sliced is not None:
                cost = _ExactCost.of(plan, run, sliced)
        exact = self.exact and cost.fits
        why = cost.why if self.exact else "exact inference was not asked for"
        if run.targets:
            return _with_marginals(graph, run, plan, why)
        search = None
        if exact:
            if not cost.sure:
                search = self._search(graph, run)
                search.reserve()
            answer = _exactly(plan, run, why) if sliced is None else _in_slices(sliced, run, why)
            if answer is not None:
                return answer
            why = f"exact inference would have taken too long ({cost.need})"
        from kikuchi.inference.bounds.log_z_bounds import check_ibound

        check_ibound(graph, self.ibound)
        search = search or self._search(graph, run)
        search.improve(self.bounds, self.ibound)
        return search.answer(why)

    def _search(self, graph: FactorGraph, run: MethodRun) -> Search:
        from kikuchi.inference.bounds.auto_search import Search

        return Search(graph, run)


def _least_cost(graph: FactorGraph, run: MethodRun) -> tuple[_ExactCost, TreePlan]:
    """The cheapest junction tree found and its cost."""
    with run.clock.paused():
        _load_planner()
    plan = make_plan(unconditioned(graph), "cheapest", None, run.clock)
    return _ExactCost.of(plan, run), plan


@functools.cache
def _load_planner() -> None:
    """Plan a model with a clique large enough for every step of a plan, and look up the speed of
    the machine: compiled loops take a while to load, once per process.
    """
    _ = make_plan(unconditioned(complete(12, seed=0)), "cheapest", None).seconds(measured())


def _exactly(plan: TreePlan, run: MethodRun, why: str) -> Solution | None:
    """The exact answer, or None if the time ended before it was there."""
    try:
        solution = JunctionTree().solve_planned(plan, run, foresee=True)
    except BudgetError:
        return None
    solution.diagnostics.update(chosen=JunctionTree.name, why=why)
    return solution


def _in_slices(sliced: SlicedPlan, run: MethodRun, why: str) -> Solution | None:
    """The exact answer as a sum over slices, or None if the time ended before it was there."""
    try:
        log_z, marginals = sliced.solve(Watch(run.clock, foresee=True))
    except BudgetError:
        return None
    unhurried = Budget(bytes=run.clock.budget.bytes)

    def factor_tables() -> Array:
        return sliced.solve(Watch(unhurried.start()), factor_targets, expand_factors)[1]

    return Solution(
        marginals,
        log_z,
        log_z_lower=log_z,
        log_z_upper=log_z,
        factor_tables=factor_tables,
        diagnostics={"chosen": JunctionTree.name, "why": why, "slices": sliced.count},
    )


def _with_marginals(graph: FactorGraph, run: MethodRun, plan: TreePlan, why: str) -> Solution:
    """Observed marginals have methods of their own: exact scaling where some dozens of propagations
    fit the time left, then scaled belief propagation, then its convergent form, which always meets
    the observed marginals. The first that converges is taken.
    """
    from kikuchi.inference.bounds.auto_search import solution_of

    memory = run.clock.budget.bytes
    texts: list[tuple[str, float]] = []
    held = plan.complete and (memory is None or plan.bytes <= memory)
    if held and _SCALINGS * plan.seconds(measured()) <= _time_left(run):
        texts.append(("is", 0.6))
    best: Beliefs | None = None
    tried: list[str] = []
    for text, part in (*texts, ("loopy-is", 0.3), ("ups:start=bp", 1.0)):
        seconds = None if run.clock.budget.seconds is None else part * max(_time_left(run), 0.05)
        budget = Budget(seconds=seconds, bytes=memory)
        tried.append(text)
        try:
            beliefs = METHODS.parse(text).run(
                graph, evidence=run.targets, budget=budget, progress=run.progress
            )
        except BudgetError:
            continue
        if best is None or _missed(beliefs, run) <= _missed(best, run):
            best = beliefs
        if best.converged or beliefs.stopped == "interrupted":
            break
    if best is None:
        raise BudgetError("auto: no method met the observed marginals in the time; allow more")
    run.trace.restore(best.trace.arrays())
    run.stopped = best.stopped
    reasons = {"chosen": best.method, "why": f"there are observed marginals; {why}", "tried": tried}
    return solution_of(best, graph, {**best.diagnostics, **reasons})


def _missed(beliefs: Beliefs, run: MethodRun) -> float:
    """Largest distance of a marginal from what was observed."""
    return max(float(np.abs(beliefs[v] - target).max()) for v, target in run.targets.items())


def _time_left(run: MethodRun) -> float:
    limit = run.clock.budget.seconds
    return _DEFAULT_SECONDS if limit is None else max(limit - run.clock.seconds, 0.0)


@dataclass(frozen=True)
class _ExactCost:
    """What exact inference would cost beside what is allowed."""

    fits: bool
    sure: bool
    need: str
    why: str
    overfull: float

    @classmethod
    def of(cls, plan: TreePlan, run: MethodRun, sliced: SlicedPlan | None = None) -> _ExactCost:
        budget = run.clock.budget
        least = "" if plan.complete else "at least "
        seconds, needed, slices = plan.seconds(measured()), plan.bytes, ""
        if sliced is not None:
            seconds, needed = sliced.seconds(measured()), sliced.plan.bytes
            slices = f" in {sliced.count} slices"
        need = f"width {least}{plan.width}, {least}{format_bytes(needed)}{slices}, {_time(seconds)}"
        allowed = _time_left(run)
        overfull = 0.0 if budget.bytes is None else needed / budget.bytes
        fits = sure = False
        if not plan.complete or overfull > 1.0:
            limit = "any memory" if budget.bytes is None else format_bytes(budget.bytes)
            why = f"exact inference does not fit {limit} ({need})"
        elif seconds > _TRIED * allowed:
            why = f"exact inference does not fit {allowed:.3g} seconds ({need})"
        else:
            fits, sure = True, seconds <= _SURE * allowed
            why = f"exact inference fits ({need})"
        return cls(fits, sure, need, why, overfull if plan.complete else math.inf)


def _time(seconds: float) -> str:
    return "less than 0.1 s" if seconds < 0.1 else f"about {seconds:.2g} s"
