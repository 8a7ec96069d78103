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

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget, Clock
from kikuchi.core.errors import BudgetError
from kikuchi.core.run import StepAborted
from kikuchi.engines.dual_ascent import DualAscent, QuasiNewtonAscent
from kikuchi.engines.loops.iterate import iterate
from kikuchi.engines.loops.state import Iterations
from kikuchi.engines.messages.kernels import bp_messages
from kikuchi.engines.messages.tables import (
    TableMessages,
    UnderflowError,
    with_logarithms_if_needed,
)
from kikuchi.engines.run import FactorTables, MethodRun, Solution
from kikuchi.engines.trees.engine import Watch, propagate
from kikuchi.engines.trees.plan import factor_targets, make_plan, variable_targets
from kikuchi.graphs.conditioned import Conditioned
from kikuchi.graphs.elimination import Order
from kikuchi.graphs.factor_graph import FactorGraph
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
        oracle = _TreeOracle(graph, list(run.targets), self.order, self.seed, run.clock)
        ascent = self._ascent(oracle, graph, run.targets)
        ended = iterate(ascent.step, Iterations(), run, tol=self.tol, limit=self.max_iterations)
        solution = ascent.solution(run, ended.iterations, ended.converged)
        solution.log_z_upper = solution.log_z  # any value of the dual is a bound
        return solution

    def _ascent(
        self, oracle: _TreeOracle, graph: FactorGraph, targets: Mapping[int, Array]
    ) -> DualAscent:
        return DualAscent(oracle, graph, targets, parallel=True)


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

    def _ascent(
        self, oracle: _TreeOracle, graph: FactorGraph, targets: Mapping[int, Array]
    ) -> DualAscent:
        if self.solver == "lbfgs":
            return QuasiNewtonAscent(oracle, graph, targets)
        return DualAscent(oracle, graph, targets, parallel=False)


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
        oracle = _BetheOracle(graph, run.targets, mode, self, run.clock)
        ascent = DualAscent(oracle, graph, run.targets, self.parallel)
        ended = iterate(ascent.step, Iterations(), run, tol=self.tol, limit=self.max_iterations)
        solution = ascent.solution(run, ended.iterations, ended.converged)
        solution.diagnostics["sweeps"] = oracle.sweeps
        solution.diagnostics["messages"] = oracle.sweeps * oracle.messages_per_sweep
        solution.diagnostics["arithmetic"] = oracle.messages.arithmetic
        if not oracle.converged:
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
    oracle = _MethodOracle(graph, list(targets), method)
    ascent = DualAscent(oracle, graph, targets, parallel=False)
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


# ---------------------------------------------------------------------- what gives the marginals


class _TiltedGraph:
    """A graph and the tilts of its observed variables, joined when asked for."""

    converged = True

    def __init__(self, graph: FactorGraph, variables: list[int]) -> None:
        self.graph = graph
        self._untilted = _with_tilts(graph, variables)
        self.tilt(np.zeros(self._untilted.log_tables.size - graph.log_tables.size))

    def tilt(self, log_tilts: Array) -> None:
        self.tilts = log_tilts

    @property
    def joined(self) -> FactorGraph:
        tables = np.concatenate([self.graph.log_tables, self.tilts])
        return self._untilted.replaced(log_tables=tables)


class _TreeOracle(_TiltedGraph):
    """Exact marginals from a junction tree that is planned once."""

    certifies = True

    def __init__(
        self, graph: FactorGraph, variables: list[int], order: Order, seed: int | None, clock: Clock
    ) -> None:
        super().__init__(graph, variables)
        self.plan = make_plan(_unconditioned(self.joined), order, seed, clock)
        self.clock = clock
        self._log_z = math.nan

    def marginals(self) -> Array:
        self.plan = dataclasses.replace(self.plan, conditioned=_unconditioned(self.joined))
        try:
            run = propagate(self.plan, variable_targets, Watch(self.clock))
        except BudgetError as error:
            if isinstance(error.__cause__, KeyboardInterrupt):
                raise KeyboardInterrupt from error
            if self.clock.expired and not math.isnan(self._log_z):
                raise StepAborted("seconds") from error  # the run before is the answer
            raise
        self._log_z = run.log_z
        return run.out

    def log_z(self) -> float:
        return self._log_z

    def factor_tables(self) -> FactorTables:
        plan = dataclasses.replace(self.plan, conditioned=_unconditioned(self.joined))
        size = self.graph.log_tables.size
        unhurried = Budget(bytes=self.clock.budget.bytes)
        return lambda: propagate(plan, factor_targets, Watch(unhurried.start())).out[:size]


class _BetheOracle:
    """Marginals of belief propagation, which goes on from its last messages."""

    def __init__(
        self,
        graph: FactorGraph,
        targets: Mapping[int, Array],
        mode: int,
        method: PropagatedScaling,
        clock: Clock,
    ) -> None:
        self.size = graph.log_tables.size
        joined = _with_tilts(graph, list(targets))
        self.first = int(joined.message_offsets[joined.scope_offsets[graph.n_factors]])
        starts = joined.table_offsets[graph.n_factors :] - self.size
        self.starts, self.sizes = starts[:-1], np.diff(starts)
        self.messages = TableMessages(joined, mode)
        self.method = method
        self.clock = clock
        self.certifies = graph.is_forest
        self.converged = False
        self.sweeps = 0
        orders = np.diff(graph.scope_offsets)
        self.messages_per_sweep = int(orders[orders > 1].sum())
        self._beliefs = np.zeros(0)
        self._tilted = False

    def tilt(self, log_tilts: Array) -> None:
        messages = self.messages
        linear = messages.mode == bp_messages.SUM
        tilts = np.exp(log_tilts) if linear else log_tilts
        if linear and np.any((tilts < bp_messages.TABLE_FLOOR) & (log_tilts > -np.inf)):
            raise UnderflowError
        messages.tables[self.size :] = tilts
        if linear and len(tilts):
            sums = np.add.reduceat(tilts, self.starts)
            tilts = tilts / np.repeat(sums, self.sizes)
        messages.m[self.first :] = tilts
        self._tilted = True

    def _refresh(self) -> None:
        """Once after any number of tilts: what the variables send."""
        if self._tilted:
            self._tilted = False
            self.messages.refresh()

    def marginals(self) -> Array:
        self._refresh()
        method = self.method
        order = np.arange(self.messages.graph.n_variables, dtype=np.uint32)
        residual, done = math.inf, 0
        while residual > method.inner_tol and done < method.inner_iterations:
            residual = self.messages.sequential(order, method.damping, bp_messages.LINEAR)
            done += 1
            if self.clock.expired:
                break
        self.sweeps += done
        self.converged = residual <= method.inner_tol
        self._beliefs = self.messages.variable_beliefs()
        return self._beliefs

    def log_z(self) -> float:
        return self.messages.log_z(self._beliefs)

    def factor_tables(self) -> FactorTables:
        self._refresh()
        return lambda: self.messages.factor_beliefs()[: self.size]


class _MethodOracle(_TiltedGraph):
    """Marginals of any method."""

    certifies = False

    def __init__(self, graph: FactorGraph, variables: list[int], method: Method) -> None:
        super().__init__(graph, variables)
        self.method = method
        self._log_z = math.nan

    def marginals(self) -> Array:
        beliefs = self.method.run(self.joined)
        constant = self.graph.log_constant
        self._log_z = math.nan if beliefs.log_z is None else beliefs.log_z - constant
        return beliefs.flat_marginals

    def log_z(self) -> float:
        return self._log_z

    def factor_tables(self) -> FactorTables | None:
        return None


def _with_tilts(graph: FactorGraph, variables: list[int]) -> FactorGraph:
    """The graph with a table of zeros for each of some variables, the last tables of all."""
    return graph.with_fields((v, np.zeros(int(graph.cardinalities[v]))) for v in variables)


def _unconditioned(graph: FactorGraph) -> Conditioned:
    return Conditioned(graph, graph, {}, np.arange(graph.n_variables), np.arange(graph.n_factors))
