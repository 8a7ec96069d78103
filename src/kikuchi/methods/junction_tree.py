"""Exact inference on a junction tree.

The engine `trees` does the work; this module contains the options of the method.

Reference: HOJ-I3 to I5, HOJ-I4, HOJ-I5, HOJ-M3, LIU-I1, TEH-I2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget
from kikuchi.engines.loops.iterate import Ended
from kikuchi.engines.response.linear_response import clamped_covariance
from kikuchi.engines.run import Covariance, MethodRun, Solution
from kikuchi.engines.small_work import SMALL
from kikuchi.engines.trees.calibrated import tree_joint
from kikuchi.engines.trees.plan import (
    Architecture,
    Mode,
    PlanOrder,
    TreePlan,
    factor_targets,
    make_plan,
    unconditioned,
    variable_targets,
)
from kikuchi.engines.trees.propagation import Report, Watch
from kikuchi.engines.trees.tree import Tree, all_or_nothing
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.method import EngineMethod, option


@dataclass(frozen=True)
class JunctionTree(EngineMethod):
    """Junction tree: exact marginals and log Z, or with `mode="max"` the most probable state.

    In `max` mode there are `max_marginals`, max_{x without i} p(x), each scaled to sum to 1,
    instead of marginals and factor beliefs; `state` is the most probable state and `score` its
    log-weight, a lower bound on log Z.

    >>> import kikuchi as kk
    >>> graph = kk.FactorGraph([2, 2], [((0, 1), [[1, 2], [3, 4]])])
    >>> beliefs = JunctionTree().run(graph)
    >>> beliefs[0].round(6).tolist(), round(beliefs.log_z, 6)
    ([0.3, 0.7], 2.302585)
    >>> JunctionTree(mode="max").run(graph).state.tolist()
    [1, 1]
    """

    name: ClassVar[str] = "jt"
    edge_seconds: ClassVar[float] = 5e-8
    summary: ClassVar[str] = "exact: junction tree, as far as memory allows"
    exactness = "always"
    certifies = ("lower", "upper")
    needs_junction_tree: ClassVar[bool] = True
    gives_covariance: ClassVar[bool] = True
    most_interpreted: ClassVar[int] = SMALL

    order: PlanOrder = option("cheapest", "elimination order: the best of many, or one greedy rule")
    propagation: Architecture = option(
        "shafer-shenoy", "shafer-shenoy stores only separators, hugin stores cliques and divides"
    )
    mode: Mode = option("sum", "sum for marginals, max for the most probable state")
    seed: int | None = option(
        None, "seed of random ties in the elimination order; none: no random ties", low=0
    )

    @property
    def gives_marginals(self) -> bool:
        """Whether it sums: in `max` mode the beliefs are max-marginals."""
        return self.mode == "sum"

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        return self.solve_planned(self.prepared(graph, run), run)

    def prepared(self, graph: FactorGraph, run: MethodRun) -> TreePlan:
        """The tree."""
        return make_plan(unconditioned(graph), self.order, self.seed, run.clock)

    def settled(
        self, graph: FactorGraph, run: MethodRun, prepared: TreePlan | None = None
    ) -> tuple[Tree, Ended]:
        """Run both passes and store the tables of the cliques."""
        plan = replace(prepared or self.prepared(graph, run), conditioned=unconditioned(graph))
        return Tree(plan, run.clock, "hugin"), Ended(1, True, 0.0)

    def solve_planned(
        self, tree_plan: TreePlan, run: MethodRun, *, foresee: bool = False
    ) -> Solution:
        """Solve the graph of an existing plan `tree_plan` within the limits of the `run`; with
        `foresee` it stops as soon as the measured speed shows that the time will not suffice.
        """
        graph = tree_plan.graph
        watch = Watch(run.clock, _reporter(run), foresee)
        with all_or_nothing(watch):
            tree = Tree(tree_plan, run.clock, self.propagation).run(
                variable_targets, watch, mode=self.mode
            )
        score = None
        if tree.state is not None:
            score = float(graph.log_score(tree.state)) - graph.log_constant
        exact = tree.log_z if self.mode == "sum" else None
        return Solution(
            tree.out,
            log_z=exact,
            log_z_lower=exact if score is None else score,
            log_z_upper=exact,
            factor_tables=(lambda: self._factor_tables(tree_plan, run.clock.budget))
            if self.mode == "sum"
            else None,
            covariance=None if self.mode == "max" else self._covariance_of(graph, tree.out, run),
            joint=None
            if self.mode == "max"
            else tree_joint(graph, run.clock.budget, self.order, self.seed),
            state=tree.state,
            score=score,
            diagnostics={
                "width": tree_plan.width,
                "cliques": tree_plan.found_tree.n_cliques,
                "bytes": tree_plan.bytes,
                "operations": tree_plan.operations,
                "arithmetic": "logarithms" if tree.logs else "linear",
            },
        )

    def _covariance_of(self, graph: FactorGraph, marginals: Array, run: MethodRun) -> Covariance:
        """Return covariances by one run for each state of the requested variables, minus one per
        variable.
        """
        unhurried = Budget(bytes=run.clock.budget.bytes)

        def given(variable: int, state: int) -> Array:
            beliefs = self.run(graph, evidence={variable: state}, budget=unhurried)
            return beliefs.flat_marginals

        return lambda variables: clamped_covariance(graph, marginals, given, variables)

    def _factor_tables(self, tree_plan: TreePlan, budget: Budget) -> Array:
        """Return beliefs of all factors by a second run, since no tables were stored."""
        watch = Watch(Budget(bytes=budget.bytes).start())
        with all_or_nothing(watch):
            return Tree(tree_plan, watch.clock, self.propagation).run(factor_targets, watch).out


def _reporter(run: MethodRun) -> Report:
    """Return a function that reports progress at most a few times per second."""
    last = 0.0

    def report(done: int, total: int) -> None:
        nonlocal last
        if run.clock.seconds - last > 0.1:
            last = run.clock.seconds
            run.progress(done, total, residual=None, objective=None)

    return report
