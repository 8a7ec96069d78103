"""Iterative scaling: inference inside, tilts of observed variables outside.

The generalised posterior Q closest to the model P, with given marginals o_i on some variables, is P
times a tilt exp lambda_i(x_i) of each of them. Its dual,

    D(lambda) = sum_i sum_x o_i(x) lambda_i(x) - log Z(lambda) + log Z(0),

is concave with maximum KL(Q || P); its gradient is o_i - Q(x_i). Scaling one variable at a time
(IS) or all by a fraction (GIS) increases it. The inference of Q(x_i) is interchangeable: a junction
tree is exact, belief propagation gives the Bethe approximation, and other methods have no
guarantee.

Reference: TEH-E8, TEH-I12, TEH-M24.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from kikuchi.engines.dual_ascent import DualAscent, QuasiNewtonAscent, with_tilts
from kikuchi.engines.engine import Engine
from kikuchi.engines.loops.iterate import iterate
from kikuchi.engines.loops.state import Iterations
from kikuchi.engines.run import MethodRun, Solution
from kikuchi.engines.trees.plan import make_plan, unconditioned
from kikuchi.engines.trees.tree import Tree
from kikuchi.graphs.elimination import Order
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.method import ObservedMarginalsMethod, option


@dataclass(frozen=True)
class _ExactScaling(ObservedMarginalsMethod):
    """Base class of `is` and `gis`: a junction tree that is planned once."""

    objective_name: ClassVar[str] = "minus the dual value"
    exactness = "always"
    certifies = ("upper",)
    needs_junction_tree: ClassVar[bool] = True
    edge_bytes: ClassVar[int] = 110

    tol: float = option(1e-9, "stop when no marginal is further than this from its target", above=0)
    max_iter: int = option(10000, "maximum number of scalings or steps", low=1)
    order: Order = option("min-fill", "elimination order of the junction tree")
    seed: int | None = option(
        None, "seed of random ties in the elimination order; none: no random ties", low=0
    )

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        tilted = unconditioned(with_tilts(graph, run.targets))
        plan = make_plan(tilted, self.order, self.seed, run.clock)
        engine = Tree(plan, run.clock, reuse=True)
        ascent = self._ascent(engine, graph, run)
        ended = iterate(ascent.step, Iterations(), run, tol=self.tol, limit=self.max_iter)
        solution = ascent.solution(run, ended.iterations, ended.converged)
        solution.log_z_upper = solution.log_z  # any value of the dual is a bound
        engine.unhurried()
        return solution

    def _ascent(self, engine: Engine, graph: FactorGraph, run: MethodRun) -> DualAscent:
        return DualAscent(engine, graph, run.targets, run.clock, parallel=True)


@dataclass(frozen=True)
class IterativeScaling(_ExactScaling):
    """Iterative scaling: exact with observed marginals.

    The dual is maximised until no marginal is further than `tol` from its target. The default
    `solver=lbfgs` moves all tilts at once by a quasi-Newton method; with `solver=scaling` one
    iteration scales one observed variable, lambda_i += log o_i - log Q(x_i): the algorithm of the
    thesis, which takes thousands of junction tree runs if weights are strong. In both cases the
    dual increases, and the trace of minus the dual decreases, in every iteration. `log_z` is log Z
    - KL(Q || P), minus the minimum free energy under the constraints; `diagnostics` contains the KL
    and the log-tilts (largest entry 0). Without observed marginals this is the method `jt`.

    >>> import kikuchi as kk
    >>> chain = kk.boltzmann_graph({(0, 1): 1.0, (1, 2): -2.0}, [0.5, -0.3, 0.2])
    >>> beliefs = kk.infer(chain, "is", evidence={0: [0.3, 0.7], 2: [0.6, 0.4]})
    >>> beliefs[1].round(6).tolist(), round(beliefs.diagnostics["kl"], 6)
    ([0.569402, 0.430598], 0.00229)
    """

    name: ClassVar[str] = "is"

    solver: Literal["lbfgs", "scaling"] = option(
        "lbfgs", "maximise the dual over all tilts at once, or one variable after the other"
    )

    def _ascent(self, engine: Engine, graph: FactorGraph, run: MethodRun) -> DualAscent:
        ascent = QuasiNewtonAscent if self.solver == "lbfgs" else DualAscent
        return ascent(engine, graph, run.targets, run.clock)


class GeneralisedScaling(_ExactScaling):
    """Generalised iterative scaling: as is, all variables at once.

    Like `is:solver=scaling`, but one iteration is lambda_i += (log o_i - log Q(x_i)) / n for all n
    observed variables, with one run of the junction tree for all of them.

    >>> import kikuchi as kk
    >>> chain = kk.boltzmann_graph({(0, 1): 1.0, (1, 2): -2.0}, [0.5, -0.3, 0.2])
    >>> beliefs = kk.infer(chain, "gis", evidence={0: [0.3, 0.7], 2: [0.6, 0.4]})
    >>> round(beliefs.log_z, 6)
    2.36008
    """

    name: ClassVar[str] = "gis"
