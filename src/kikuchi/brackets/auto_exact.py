"""Exact inference within `auto`: its cost, and the results by tree, slices and scaling."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget, format_bytes
from kikuchi.core.compiling import compiles_when_needed
from kikuchi.core.errors import BudgetError
from kikuchi.engines.run import MethodRun, Solution
from kikuchi.engines.trees.calibrated import tree_joint
from kikuchi.engines.trees.measured_speed import measured
from kikuchi.engines.trees.plan import TreePlan, factor_targets, make_plan, unconditioned
from kikuchi.engines.trees.propagation import Watch
from kikuchi.engines.trees.slices import Slices
from kikuchi.engines.trees.speed import NOMINAL
from kikuchi.graphs.conditioned import expand_factors
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.generators import complete
from kikuchi.methods.beliefs import Beliefs
from kikuchi.methods.junction_tree import JunctionTree
from kikuchi.methods.registry import METHODS

_DEFAULT_SECONDS = 600.0  # default time limit of exact inference
_TRIED = 2.0  # multiple of the remaining time up to which exact inference is tried
_HOPELESS = (
    100.0  # multiple of the remaining time on a typical machine beyond which it is not measured
)
_SCALINGS = 50.0  # propagations that fitting observed marginals may take
_SURE = 0.1  # fraction of the remaining time below which no estimate in reserve is needed


def least_cost(graph: FactorGraph, run: MethodRun) -> tuple[ExactCost, TreePlan]:
    """Return the cheapest junction tree found and its cost."""
    if compiles_when_needed():
        with run.clock.paused():
            _load_planner()
    plan = make_plan(unconditioned(graph), "cheapest", None, run.clock)
    return ExactCost.of(plan, run), plan


@functools.cache
def _load_planner() -> None:
    """Plan a model with a clique large enough for every step of a plan, to load the compiled loops
    once per process.
    """
    _ = make_plan(unconditioned(complete(12, seed=0)), "cheapest", None).seconds()


def by_junction_tree(plan: TreePlan, run: MethodRun, why: str) -> Solution | None:
    """Return the exact result, or None if the time ended first."""
    try:
        solution = JunctionTree().solve_planned(plan, run, foresee=True)
    except BudgetError:
        return None
    solution.diagnostics.update(chosen=JunctionTree.name, why=why)
    return solution


def in_slices(sliced: Slices, run: MethodRun, why: str) -> Solution | None:
    """Return the exact result as a sum over slices, or None if the time ended first."""
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
        joint=tree_joint(sliced.graph, unhurried),
        diagnostics={"chosen": JunctionTree.name, "why": why, "slices": sliced.count},
    )


def with_marginals(graph: FactorGraph, run: MethodRun, plan: TreePlan, why: str) -> Solution:
    """Fit observed marginals: by exact scaling if there is time for some dozens of propagations,
    then by scaled belief propagation, then by its convergent form, which always matches the
    observed marginals. The first that converges is returned.
    """
    from kikuchi.brackets.auto_search import solution_of

    memory = run.clock.budget.bytes
    methods: list[tuple[str, float]] = []
    held = plan.complete and (memory is None or plan.bytes <= memory)
    if held and _SCALINGS * plan.seconds(measured()) <= _time_left(run):
        methods.append(("is", 0.6))
    best: Beliefs | None = None
    tried: list[str] = []
    for method, part in (*methods, ("loopy-is", 0.3), ("ups:start=bp", 1.0)):
        seconds = None if run.clock.budget.seconds is None else part * max(_time_left(run), 0.05)
        budget = Budget(seconds=seconds, bytes=memory)
        tried.append(method)
        try:
            beliefs = METHODS.parse(method).run(
                graph, evidence=run.targets, budget=budget, progress=run.progress
            )
        except BudgetError:
            continue
        if best is None or _missed(beliefs, run) <= _missed(best, run):
            best = beliefs
        if best.converged or beliefs.stopped == "interrupted":
            break
    if best is None:
        raise BudgetError(
            "auto: no method matched the observed marginals in the time; allow more seconds"
        )
    run.trace.restore(best.trace.arrays())
    run.stopped = best.stopped
    reasons = {"chosen": best.method, "why": f"there are observed marginals; {why}", "tried": tried}
    return solution_of(best, graph, {**best.diagnostics, **reasons})


def _missed(beliefs: Beliefs, run: MethodRun) -> float:
    """Return the largest distance of a marginal from the observed one."""
    return max(float(np.abs(beliefs[v] - target).max()) for v, target in run.targets.items())


def _time_left(run: MethodRun) -> float:
    limit = run.clock.budget.seconds
    return _DEFAULT_SECONDS if limit is None else max(limit - run.clock.seconds, 0.0)


@dataclass(frozen=True)
class ExactCost:
    """The cost of exact inference, compared with the budget."""

    fits: bool
    sure: bool
    need: str
    why: str
    overfull: float

    @classmethod
    def of(cls, plan: TreePlan, run: MethodRun, sliced: Slices | None = None) -> ExactCost:
        """Return the cost of a junction tree, or of its slices, beside the budget of a run."""
        budget = run.clock.budget
        least = "" if plan.complete else "at least "
        needed, slices = plan.bytes, ""
        if sliced is not None:
            needed, slices = sliced.plan.bytes, f" in {sliced.count} slices"
        overfull = 0.0 if budget.bytes is None else needed / budget.bytes
        allowed, seconds = _time_left(run), (sliced or plan).seconds(NOMINAL)
        if plan.complete and overfull <= 1.0 and seconds <= _HOPELESS * allowed:
            with run.clock.paused():  # measuring would compile loops that such a plan does not need
                speed = measured()
            seconds = (sliced or plan).seconds(speed)
        need = f"width {least}{plan.width}, {least}{format_bytes(needed)}{slices}, {_time(seconds)}"
        fits = sure = False
        if plan.given_up:
            why = f"the search for a junction tree took too long (width {least}{plan.width} so far)"
        elif not plan.complete or overfull > 1.0:
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
