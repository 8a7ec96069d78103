"""Iterative scaling: ordinary inference inside, tilts of observed variables outside (TEH-I12, I15).

The generalised posterior Q nearest to the model P that has given marginals o_i on some variables
(TEH-M24) is P times a tilt exp lambda_i(x_i) of each of them. Its dual,

    D(lambda) = sum_i sum_x o_i(x) lambda_i(x) - log Z(lambda) + log Z(0),

is concave with maximum KL(Q || P); its gradient is o_i - Q(x_i). Scaling one variable at a time (IS)
or all by a share (GIS) climbs it. What gives Q(x_i) can be exchanged: a junction tree is exact,
belief propagation makes it the Bethe approximation, anything else is at the user's risk (TEH-I13).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.budget import Clock
from kikuchi.core.errors import MethodError
from kikuchi.core.numerics import log, logsumexp, xlogy
from kikuchi.graphs.elimination import Order
from kikuchi.graphs.factor_graph import Conditioned, FactorGraph
from kikuchi.inference.belief_propagation import _Tables, _UnderflowError
from kikuchi.inference.beliefs import FactorTables
from kikuchi.inference.junction_engine import Watch, propagate
from kikuchi.inference.junction_plan import factor_targets, make_plan, variable_targets
from kikuchi.inference.kernels import bp_messages
from kikuchi.inference.method import Method, Run, Solution, Step, option
from kikuchi.inference.pinned_messages import by_original, contradiction, free_energy_limit

Array = NDArray[np.float64]
Tilts = dict[int, Array]


# ---------------------------------------------------------------------- exact methods


@dataclass(frozen=True)
class IterativeScaling(Method):
    """Exact inference with observed marginals: IS on a junction tree (TEH-I12, M24).

    One iteration scales one observed variable, lambda_i += log o_i - log Q(x_i), with Q from a
    junction tree that is planned once. The dual rises in every iteration. It ends when no marginal
    is further than `tol` from its target. `log_z` is log Z - KL(Q || P), minus the least free
    energy under the constraints; `diagnostics` has the KL and the log-tilts (largest entry 0).
    Without observed marginals this is the method `jt`.

    >>> import kikuchi as kk
    >>> chain = kk.boltzmann({(0, 1): 1.0, (1, 2): -2.0}, [0.5, -0.3, 0.2])
    >>> beliefs = kk.infer(chain, "is", evidence={0: [0.3, 0.7], 2: [0.6, 0.4]})
    >>> beliefs[1].round(6).tolist(), round(beliefs.diagnostics["kl"], 6)
    ([0.569402, 0.430598], 0.00229)
    """

    name: ClassVar[str] = "is"
    summary: ClassVar[str] = "iterative scaling: exact with observed marginals"
    objective_name: ClassVar[str] = "dual value (KL)"
    takes_observed_marginals: ClassVar[bool] = True
    parallel: ClassVar[bool] = False

    tol: float = option(1e-9, "largest distance of a marginal from its target", above=0)
    max_iterations: int = option(10000, "most scalings", low=1)
    order: Order = option("min-fill", "elimination order of the junction tree")
    seed: int | None = option(None, "random ties in the elimination order", low=0)

    def _solve(self, graph: FactorGraph, run: Run) -> Solution:
        oracle = _TreeOracle(graph, list(run.targets), self.order, self.seed, run.clock)
        climb = _Climb(oracle, graph, run.targets, self.parallel)
        iterations, converged = _iterate(climb, run, self.tol, self.max_iterations)
        solution = climb.solution(run, iterations, converged)
        if converged:
            solution.log_z_lower = solution.log_z_upper = solution.log_z
        return solution


@dataclass(frozen=True)
class GeneralisedScaling(IterativeScaling):
    """Exact inference with observed marginals: all scaled at once by a share (TEH-I12, GIS).

    Like `is`, but one iteration is lambda_i += (log o_i - log Q(x_i)) / n for all n observed
    variables, with one run of the junction tree for all of them.

    >>> import kikuchi as kk
    >>> chain = kk.boltzmann({(0, 1): 1.0, (1, 2): -2.0}, [0.5, -0.3, 0.2])
    >>> beliefs = kk.infer(chain, "gis", evidence={0: [0.3, 0.7], 2: [0.6, 0.4]})
    >>> round(beliefs.log_z, 6)
    2.36008
    """

    name: ClassVar[str] = "gis"
    summary: ClassVar[str] = "generalised iterative scaling: as is, all variables at once"
    parallel: ClassVar[bool] = True


# ---------------------------------------------------------------------- with belief propagation


@dataclass(frozen=True)
class PropagatedScaling(Method):
    """Scaling outside, loopy belief propagation inside (TEH-I15, Algorithm 5.2, IS+BP).

    One iteration runs belief propagation on the tilted model to convergence, from the messages of
    the last one, then scales one observed variable by o_i / b_i. Where it converges, it has found a
    point of `loopy-is` and `ups`; it fails where belief propagation does. `log_z` is minus the Bethe
    free energy under the constraints.

    >>> import kikuchi as kk
    >>> chain = kk.boltzmann({(0, 1): 1.0, (1, 2): -2.0}, [0.5, -0.3, 0.2])
    >>> beliefs = kk.infer(chain, "is-bp", evidence={0: [0.3, 0.7], 2: [0.6, 0.4]})
    >>> beliefs[1].round(6).tolist(), round(beliefs.log_z, 6)
    ([0.569402, 0.430598], 2.36008)
    """

    name: ClassVar[str] = "is-bp"
    summary: ClassVar[str] = "iterative scaling with marginals of BP"
    objective_name: ClassVar[str] = "Bethe log Z less tilts"
    takes_observed_marginals: ClassVar[bool] = True
    parallel: ClassVar[bool] = False

    damping: float = option(0.0, "weight on the old message", low=0, below=1)
    tol: float = option(1e-10, "largest distance of a marginal from its target", above=0)
    max_iterations: int = option(10000, "most scalings", low=1)
    inner_tol: float = option(1e-10, "largest change of a message in belief propagation", above=0)
    inner_iterations: int = option(2000, "most sweeps of belief propagation at a time", low=1)

    def _solve(self, graph: FactorGraph, run: Run) -> Solution:
        try:
            return self._run(graph, run, bp_messages.SUM)
        except _UnderflowError:
            run.trace.clear()
            return self._run(graph, run, bp_messages.LOG_SUM)

    def _run(self, graph: FactorGraph, run: Run, mode: int) -> Solution:
        oracle = _BetheOracle(graph, run.targets, mode, self, run.clock)
        climb = _Climb(oracle, graph, run.targets, self.parallel)
        iterations, converged = _iterate(climb, run, self.tol, self.max_iterations)
        solution = climb.solution(run, iterations, converged)
        solution.diagnostics["sweeps"] = oracle.sweeps
        solution.diagnostics["messages"] = oracle.sweeps * oracle.messages_per_sweep
        solution.diagnostics["arithmetic"] = oracle.messages.arithmetic
        if oracle.failed:
            solution.converged = False
            solution.warnings = [
                "belief propagation did not converge inside; try ups, which always converges, or "
                "damping=0.5"
            ]
        elif converged and graph.is_forest:
            solution.log_z_lower = solution.log_z_upper = solution.log_z
        return solution


@dataclass(frozen=True)
class GeneralisedPropagatedScaling(PropagatedScaling):
    """All observed variables scaled at once by a share, belief propagation inside (TEH-I15).

    Like `is-bp`, but one iteration multiplies the tilts of all n observed variables by
    (o_i / b_i)^(1/n).

    >>> import kikuchi as kk
    >>> chain = kk.boltzmann({(0, 1): 1.0, (1, 2): -2.0}, [0.5, -0.3, 0.2])
    >>> round(kk.infer(chain, "gis-bp", evidence={0: [0.3, 0.7], 2: [0.6, 0.4]}).log_z, 6)
    2.36008
    """

    name: ClassVar[str] = "gis-bp"
    summary: ClassVar[str] = "generalised iterative scaling with marginals of BP"
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
    """Sequential scaling with the marginals of any method in place of the exact ones (TEH-I13).

    Each scaling is followed by a run of `method` on the tilted model. No objective is climbed in
    general: with mean field it can cycle for ever (TEH-E8). With exact marginals it is method `is`.

    >>> from kikuchi import Enumeration, boltzmann
    >>> pair = boltzmann({(0, 1): 5.0}, [-2.5, -2.5])
    >>> wanted = {0: np.array([0.7, 0.3]), 1: np.array([0.7, 0.3])}
    >>> path = plug_in_scaling(pair, wanted, Enumeration(), sweeps=1000)
    >>> path.converged, (-2.5 + path.tilts[-1][[1, 3]]).round(6).tolist()
    (True, [-2.959466, -2.959466])
    """
    oracle = _MethodOracle(graph, list(targets), method)
    climb = _Climb(oracle, graph, targets, parallel=False)
    order = list(targets)
    tilts, residuals = [], []
    steps = climb.steps()
    converged = False
    for _ in range(sweeps * len(order) + 1):
        step = next(steps)
        flat = [climb.tilts[v] - climb.tilts[v][0] for v in order]
        tilts.append(np.concatenate([np.zeros(0), *flat]))
        residuals.append(step.residual)
        if step.residual <= tol:
            converged = True
            break
    return ScalingPath(
        tuple(order), np.array(tilts), np.array(residuals), climb.marginals, converged
    )


# ---------------------------------------------------------------------- the climb


class _Oracle(Protocol):
    """Marginals of a model whose observed variables are tilted."""

    failed: bool

    def tilt(self, variable: int, log_tilt: Array) -> None: ...
    def marginals(self) -> Array: ...
    def log_z(self) -> float: ...
    def factor_tables(self) -> FactorTables: ...


class _Climb:
    """Scaling of one variable after the other, or of all by a share."""

    def __init__(
        self, oracle: _Oracle, graph: FactorGraph, targets: Mapping[int, Array], parallel: bool
    ) -> None:
        self.oracle = oracle
        self.graph = graph
        self.targets = dict(targets)
        self.parallel = parallel
        self.tilts: Tilts = {v: np.where(t > 0, 0.0, -np.inf) for v, t in targets.items()}
        for v, tilt in self.tilts.items():
            oracle.tilt(v, tilt)
        self.marginals = np.zeros(0)
        self.log_z_zero = math.nan
        self.dual = 0.0

    def steps(self) -> Iterator[Step]:
        """One run of the oracle a step, each after the first following a scaling."""
        queue = list(self.targets)
        done = 0
        while True:
            self.marginals = self.oracle.marginals()
            done += 1
            self._measure(done)
            yield Step(done, self._residual(), self.dual)
            if self.oracle.failed:
                return
            for v in queue if self.parallel else queue[:1]:
                self._scale(v, 1.0 / len(queue) if self.parallel else 1.0)
            queue = queue[1:] + queue[:1]

    def _measure(self, done: int) -> None:
        log_z = self.oracle.log_z()
        pull = sum(float(xlogy(t, self.tilts[v]).sum()) for v, t in self.targets.items())
        self.dual = pull - log_z

    def _scale(self, v: int, share: float) -> None:
        target, now = self.targets[v], self._marginal(v)
        if np.any((target > 0) & (now == 0)):
            raise contradiction()
        positive = target > 0
        step = np.where(positive, log(np.where(positive, target, 1.0)), 0.0)
        step -= np.where(positive, log(np.where(positive, now, 1.0)), 0.0)
        tilt = np.where(positive, self.tilts[v] + share * step, -np.inf)
        self.tilts[v] = tilt - tilt.max()
        self.oracle.tilt(v, self.tilts[v])

    def _marginal(self, v: int) -> Array:
        return self.marginals[self.graph.state_offsets[v] : self.graph.state_offsets[v + 1]]

    def _residual(self) -> float:
        return max(
            (float(np.abs(self._marginal(v) - t).max()) for v, t in self.targets.items()),
            default=0.0,
        )

    # ------------------------------------------------------------------ answer

    def solution(self, run: Run, iterations: int, converged: bool) -> Solution:
        """Marginals of the tilted model; minus the dual value is log Z - KL."""
        if len(self.marginals) == 0:  # interrupted before the first answer
            self.marginals = self.oracle.marginals()
            self._measure(0)
        solution = Solution(
            self.marginals,
            log_z=-self.dual,
            converged=converged,
            iterations=iterations,
            factor_tables=self.oracle.factor_tables(),
            diagnostics={
                "residual": run.trace.last_residual,
                "tilts": by_original(self.tilts, run),
            },
        )
        if not converged:
            solution.warnings.append(
                f"not converged: a marginal is still {run.trace.last_residual:.2g} from its target; "
                "targets that contradict each other or the zeros of the model would explain it, "
                "else allow more max_iterations"
            )
        return solution
