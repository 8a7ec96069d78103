"""Iterative scaling outside, belief propagation inside.

Reference: TEH-I15, TEH-M24.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kikuchi.engines.dual_ascent import DualAscent, with_tilts
from kikuchi.engines.engine import settle
from kikuchi.engines.loops.iterate import iterate
from kikuchi.engines.loops.state import Iterations
from kikuchi.engines.messages.tables import TableMessages, with_logarithms_if_needed
from kikuchi.engines.run import MethodRun, Solution
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.method import ObservedMarginalsMethod, more_damping, option


@dataclass(frozen=True)
class PropagatedScaling(ObservedMarginalsMethod):
    """Iterative scaling with marginals of BP.

    One iteration runs belief propagation on the tilted model to convergence, starting from the last
    messages, then scales one observed variable by o_i / b_i. If it converges, the result is a fixed
    point of `loopy-is` and `ups`; it fails if belief propagation does. `log_z` is minus the Bethe
    free energy under the constraints.

    >>> import kikuchi as kk
    >>> chain = kk.boltzmann_graph({(0, 1): 1.0, (1, 2): -2.0}, [0.5, -0.3, 0.2])
    >>> kk.infer(chain, "is-bp", evidence={0: [0.3, 0.7], 2: [0.6, 0.4]})[1].round(6).tolist()
    [0.569402, 0.430598]
    """

    name: ClassVar[str] = "is-bp"
    edge_bytes: ClassVar[int] = 240
    objective_name: ClassVar[str] = "minus the Bethe dual value"
    exactness = "forests"
    parallel: ClassVar[bool] = False

    damping: float = option(0.0, "weight on the old message", low=0, below=1)
    tol: float = option(
        1e-10, "stop when no marginal is further than this from its target", above=0
    )
    max_iter: int = option(10000, "maximum number of scalings", low=1)
    inner_tol: float = option(
        1e-10, "stop belief propagation when no message changes by more than this", above=0
    )
    inner_max_iter: int = option(
        2000, "maximum number of sweeps of belief propagation in one iteration", low=1
    )

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
                limit=self.inner_max_iter,
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
        ended = iterate(ascent.step, Iterations(), run, tol=self.tol, limit=self.max_iter)
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
