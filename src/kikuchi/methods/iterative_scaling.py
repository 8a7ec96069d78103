"""Iterative scaling: inference inside, tilts of observed variables outside.

The generalised posterior Q nearest to the model P that has given marginals o_i on some variables
is P times a tilt exp lambda_i(x_i) of each of them. Its dual,

    D(lambda) = sum_i sum_x o_i(x) lambda_i(x) - log Z(lambda) + log Z(0),

is concave with maximum KL(Q || P); its gradient is o_i - Q(x_i). Scaling one variable at a time
(IS) or all by a fraction (GIS) raises it. What gives Q(x_i) can be exchanged: a junction tree is
exact, belief propagation makes it the Bethe approximation, anything else is at the user's risk.

Reference: TEH-E8, TEH-I12, TEH-I13, TEH-I15, TEH-M24.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget
from kikuchi.core.errors import MethodError
from kikuchi.engines.dual_ascent import DualAscent, QuasiNewtonAscent, with_tilts
from kikuchi.engines.engine import Engine, settle
from kikuchi.engines.loops.iterate import iterate
from kikuchi.engines.loops.state import Iterations, State
from kikuchi.engines.messages.tables import TableMessages, with_logarithms_if_needed
from kikuchi.engines.response.linear_response import Response
from kikuchi.engines.run import MethodRun, Solution
from kikuchi.engines.trees.exact import ExactEngine
from kikuchi.engines.trees.plan import make_plan, unconditioned
from kikuchi.graphs.elimination import Order
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.beliefs import Beliefs
from kikuchi.methods.method import Method, ObservedMarginalsMethod, more_damping, option

# ---------------------------------------------------------------------- exact methods


@dataclass(frozen=True)
class _ExactScaling(ObservedMarginalsMethod):
    """What `is` and `gis` share: a junction tree that is planned once."""

    objective_name: ClassVar[str] = "minus the dual value"
    exactness = "always"
    certifies = ("upper",)
    needs_junction_tree: ClassVar[bool] = True
    edge_bytes: ClassVar[int] = 110

    tol: float = option(1e-9, "largest distance of a marginal from its target", above=0)
    max_iterations: int = option(10000, "most scalings or steps", low=1)
    order: Order = option("min-fill", "elimination order of the junction tree")
    seed: int | None = option(None, "random ties in the elimination order", low=0)

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        tilted = unconditioned(with_tilts(graph, run.targets))
        engine = ExactEngine(make_plan(tilted, self.order, self.seed, run.clock), run.clock)
        ascent = self._ascent(engine, graph, run)
        ended = iterate(ascent.step, Iterations(), run, tol=self.tol, limit=self.max_iterations)
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
    thesis, which takes thousands of runs of the junction tree where weights are strong. Either way
    the dual rises, and the trace of minus the dual falls, in every iteration. `log_z` is
    log Z - KL(Q || P), minus the least free energy under the constraints; `diagnostics` has the KL
    and the log-tilts (largest entry 0). Without observed marginals this is the method `jt`.

    >>> import kikuchi as kk
    >>> chain = kk.boltzmann_graph({(0, 1): 1.0, (1, 2): -2.0}, [0.5, -0.3, 0.2])
    >>> beliefs = kk.infer(chain, "is", evidence={0: [0.3, 0.7], 2: [0.6, 0.4]})
    >>> beliefs[1].round(6).tolist(), round(beliefs.diagnostics["kl"], 6)
    ([0.569402, 0.430598], 0.00229)
    """

    name: ClassVar[str] = "is"

    solver: Literal["lbfgs", "scaling"] = option(
        "lbfgs", "how the dual is maximised: all tilts at once, or one variable after the other"
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


# ---------------------------------------------------------------------- with belief propagation


@dataclass(frozen=True)
class PropagatedScaling(ObservedMarginalsMethod):
    """Iterative scaling with marginals of BP.

    One iteration runs belief propagation on the tilted model to convergence, from the messages of
    the last one, then scales one observed variable by o_i / b_i. Where it converges, it has found
    a point of `loopy-is` and `ups`; it fails where belief propagation does. `log_z` is minus the
    Bethe free energy under the constraints.

    >>> import kikuchi as kk
    >>> chain = kk.boltzmann_graph({(0, 1): 1.0, (1, 2): -2.0}, [0.5, -0.3, 0.2])
    >>> kk.infer(chain, "is-bp", evidence={0: [0.3, 0.7], 2: [0.6, 0.4]})[1].round(6).tolist()
    [0.569402, 0.430598]
    """

    name: ClassVar[str] = "is-bp"
    edge_bytes: ClassVar[int] = 142
    objective_name: ClassVar[str] = "minus the Bethe dual value"
    exactness = "forests"
    parallel: ClassVar[bool] = False

    damping: float = option(0.0, "weight on the old message", low=0, below=1)
    tol: float = option(1e-10, "largest distance of a marginal from its target", above=0)
    max_iterations: int = option(10000, "most scalings", low=1)
    inner_tol: float = option(1e-10, "largest change of a message in belief propagation", above=0)
    inner_iterations: int = option(2000, "most sweeps of belief propagation at a time", low=1)

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        return with_logarithms_if_needed(lambda mode: self._solved(graph, run, mode), run)

    def _solved(self, graph: FactorGraph, run: MethodRun, mode: int) -> Solution:
        messages = TableMessages(with_tilts(graph, run.targets), mode)
        sweeps = 0

        def settled() -> bool:
            nonlocal sweeps
            found = settle(
                messages,
                run.clock,
                tol=self.inner_tol,
                limit=self.inner_iterations,
                damping=self.damping,
            )
            sweeps += found.sweeps
            return found.residual <= self.inner_tol

        ascent = DualAscent(
            messages,
            graph,
            run.targets,
            run.clock,
            parallel=self.parallel,
            settled=settled,
            certifies=graph.is_forest,
        )
        ended = iterate(ascent.step, Iterations(), run, tol=self.tol, limit=self.max_iterations)
        solution = ascent.solution(run, ended.iterations, ended.converged)
        orders = np.diff(graph.scope_offsets)
        solution.diagnostics["sweeps"] = sweeps
        solution.diagnostics["messages"] = sweeps * int(orders[orders > 1].sum())
        solution.diagnostics["arithmetic"] = messages.arithmetic
        if not ascent.converged:
            solution.warnings = [
                "belief propagation did not converge inside; try ups, which always converges, or "
                + more_damping(self.damping)
            ]
        return solution


class GeneralisedPropagatedScaling(PropagatedScaling):
    """Generalised iterative scaling with marginals of BP.

    Like `is-bp`, but one iteration multiplies the tilts of all n observed variables by
    (o_i / b_i)^(1/n).

    >>> import kikuchi as kk
    >>> chain = kk.boltzmann_graph({(0, 1): 1.0, (1, 2): -2.0}, [0.5, -0.3, 0.2])
    >>> round(kk.infer(chain, "gis-bp", evidence={0: [0.3, 0.7], 2: [0.6, 0.4]}).log_z, 6)
    2.36008
    """

    name: ClassVar[str] = "gis-bp"
    parallel: ClassVar[bool] = True


# ---------------------------------------------------------------------- with anything (TEH-I13)


@dataclass(frozen=True, eq=False)
class ScalingPath:
    """What `plug_in_scaling` did: tilts after each scaling, and how far the marginals then were.

    `tilts[t]` are the log-tilts of all observed variables, flat in the order of `variables`, each
    shifted so that its first entry is 0; for a bit the other is the change of its bias.
    """

    variables: tuple[int, ...]
    tilts: Array
    residuals: Array
    marginals: Array
    converged: bool


def plug_in_scaling(
    graph: FactorGraph,
    targets: Mapping[int, Array],
    method: Method,
    *,
    sweeps: int = 100,
    tol: float = 1e-9,
) -> ScalingPath:
    """Sequential scaling with the marginals of any method in place of the exact ones.

    Each scaling is followed by a run of `method` on the tilted model. No objective is maximised in
    general: with mean field it can cycle for ever. With exact marginals it is method `is`.

    `graph` is the model, `targets` are the wanted marginals by variable number; it ends after
    `sweeps` over them, or when none is further off than `tol`.

    >>> from kikuchi import Enumeration, boltzmann_graph
    >>> pair = boltzmann_graph({(0, 1): 5.0}, [-2.5, -2.5])
    >>> wanted = {0: np.array([0.7, 0.3]), 1: np.array([0.7, 0.3])}
    >>> path = plug_in_scaling(pair, wanted, Enumeration(), sweeps=1000)
    >>> path.converged, (-2.5 + path.tilts[-1][[1, 3]]).round(6).tolist()
    (True, [-2.959466, -2.959466])
    """
    engine = MethodEngine(with_tilts(graph, targets), method)
    ascent = DualAscent(engine, graph, targets, Budget().start(), certifies=False)
    order = list(targets)
    tilts, residuals = [], []
    state = Iterations()
    converged = False
    for _ in range(sweeps * len(order) + 1):
        step = ascent.step(state)
        if step is None:
            break
        first = np.repeat(ascent.tilts[ascent.starts[:-1]], ascent.sizes)
        tilts.append(ascent.tilts - first)
        residuals.append(step.residual)
        if step.residual <= tol:
            converged = True
            break
    return ScalingPath(
        tuple(order), np.array(tilts), np.array(residuals), ascent.marginals, converged
    )


class MethodEngine:
    """Any method as an engine: each sweep is a run of it on the present tables."""

    def __init__(self, graph: FactorGraph, method: Method) -> None:
        self.graph = graph
        self.method = method
        self._beliefs: Beliefs | None = None

    @property
    def beliefs(self) -> Beliefs:
        """The result of the method for the present tables."""
        if self._beliefs is None:
            self._beliefs = self.method.run(self.graph)
        return self._beliefs

    @property
    def state(self) -> State:
        """Nothing that a run could go on from."""
        return State()

    def set_tables(self, log_tables: Array) -> None:
        """Use other log-tables."""
        self.graph = self.graph.replaced(log_tables=log_tables)
        self._beliefs = None

    def sweep(self, damping: float = 0.0) -> float:
        """Run the method; answers 0 where it converged."""
        return 0.0 if self.beliefs.converged else math.inf

    def marginals(self) -> Array:
        """Marginals of all variables, flat."""
        return self.beliefs.flat_marginals

    def factor_marginals(self) -> Array:
        """Marginals of all factors, flat as the tables."""
        return self.beliefs.flat_factors

    def log_z(self) -> float:
        """The estimate of log Z, NaN where the method has none."""
        found = self.beliefs.log_z
        return math.nan if found is None else found - self.graph.log_constant

    def response(self) -> Response:
        """The response of the engine of the method, if it has one."""
        raise MethodError(f"{self.method.text} is run as a whole, and has no linear response here")
