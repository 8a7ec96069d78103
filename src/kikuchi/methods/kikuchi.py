"""Convergent minimisation of a Kikuchi free energy.

Reference: LIU-D7, LIU-I14, LIU-I14b, TEH-M27.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from kikuchi.core.errors import MethodError
from kikuchi.engines.loops.iterate import Ended, iterate
from kikuchi.engines.loops.state import Iterations
from kikuchi.engines.regions.engine import RegionBeliefs, region_beliefs
from kikuchi.engines.regions.penalty import PenalisedEnergy
from kikuchi.engines.regions.regions import MinimisedRegions
from kikuchi.engines.run import MethodRun, Solution, Step
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.generalised_bp import mark_diverged, read_regions, start_regions
from kikuchi.methods.method import EngineMethod, option

_ADVICE = "more iterations or seconds, or smaller regions"


@dataclass(frozen=True)
class Kikuchi(EngineMethod):
    """Convergent minimisation of the region free energy, for which generalised BP may diverge.

    `solver=double-loop` bounds the concave entropies by their tangents and minimises the convex
    rest by scaling the roots until they agree (concave-convex procedure). The inner loop is
    extended automatically when the outer one stalls; if the inner loop converges, the free energy
    never increases. `solver=penalty` minimises over free tables of the roots with a penalty on
    disagreement that increases in steps; a small disagreement remains.

    >>> import kikuchi as kk
    >>> grid = kk.grid(4, 4, seed=1)
    >>> exact, kikuchi = kk.infer(grid, "jt"), kk.infer(grid, "kikuchi:regions=faces")
    >>> bool(abs(kikuchi.log_z - exact.log_z) < 0.01), kikuchi.converged
    (True, True)
    """

    name: ClassVar[str] = "kikuchi"
    edge_seconds: ClassVar[float] = 2e-6
    summary: ClassVar[str] = "Kikuchi free energy over regions, minimised convergently"
    objective_name: ClassVar[str] = "Kikuchi log Z"
    exactness = "forests"
    takes_start: ClassVar[bool] = True

    regions: str = option("auto", "choice of regions; `kikuchi regions --help` lists them")
    solver: Literal["double-loop", "penalty"] = option(
        "double-loop", "algorithm of the minimisation"
    )
    inner: int = option(
        1, "scaling sweeps in each outer step; increases when progress stops", low=1
    )
    tol: float = option(1e-9, "stop when no belief changes by more than this; 0: never", low=0)
    max_iter: int = option(
        5000, "maximum number of outer steps, or of gradient steps for penalty", low=1
    )

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        if self.solver == "penalty":
            return self._by_penalty(region_beliefs(graph, self.regions, run), run)
        engine, ended = self.settled(graph, run)
        solution = read_regions(engine.beliefs, run, ended, _ADVICE)
        solution.engine = engine
        return solution

    def prepared(self, graph: FactorGraph, run: MethodRun) -> None:
        """Return None; a run with a penalty raises an error, since its engine has no stationary
        point.
        """
        if self.solver == "penalty":
            raise MethodError(
                "kikuchi:solver=penalty ends with a small disagreement of regions, which is not a "
                "stationary point and has no implicit gradient; use solver=double-loop"
            )

    def settled(
        self, graph: FactorGraph, run: MethodRun, prepared: None = None
    ) -> tuple[MinimisedRegions, Ended]:
        """Return the engine at the minimum found by the double loop."""
        beliefs = region_beliefs(graph, self.regions, run)
        engine = MinimisedRegions(beliefs, inner=self.inner, tol=self.tol)
        start_regions(engine, run)

        def step(state: Iterations) -> Step:
            residual = engine.sweep()
            state.done += 1
            return Step(state.done, residual, engine.reached)

        ended = iterate(step, Iterations(), run, tol=self.tol, limit=self.max_iter)
        converged = ended.converged and not mark_diverged(beliefs, run)
        return engine, replace(ended, converged=converged, residual=run.trace.last_residual)

    def _by_penalty(self, beliefs: RegionBeliefs, run: MethodRun) -> Solution:
        penalised = PenalisedEnergy(beliefs)
        iterations, converged = penalised.minimise(run, self.max_iter, self.tol)
        ended = Ended(iterations, converged, beliefs.disagreement())
        solution = read_regions(beliefs, run, ended, _ADVICE)
        solution.diagnostics["penalty"] = penalised.weight
        return solution
