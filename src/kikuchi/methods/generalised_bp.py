"""Generalised belief propagation on any region graph.

Reference: LIU-D7, LIU-I13, TEH-I10.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.engines.loops.iterate import Ended, iterate_to_best
from kikuchi.engines.loops.state import State
from kikuchi.engines.regions.engine import RegionBeliefs, region_beliefs
from kikuchi.engines.regions.regions import (
    PropagatedRegions,
    Regions,
    RegionState,
    other_regions,
)
from kikuchi.engines.run import MethodRun, Solution, Step
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.method import EngineMethod, option
from kikuchi.methods.plausibility import warn_if_implausible

_LARGE = 50_000  # entries of all region tables


@dataclass(frozen=True)
class GeneralisedBP(EngineMethod):
    """Generalised belief propagation: parent-to-child messages between regions.

    Its fixed points are stationary points of the region free energy. With `regions=bethe` this is
    belief propagation, with `regions=junction-tree` it is exact. It may diverge for strong
    couplings; then the most consistent beliefs are returned, marked as not converged, and `kikuchi`
    minimises the same free energy with a guarantee. A converged result is compared with belief
    propagation and mean field, and a warning is issued if it is implausible.

    >>> import kikuchi as kk
    >>> grid = kk.grid(3, 3, seed=0, coupling=0.3)
    >>> exact, gbp = kk.infer(grid, "jt"), kk.infer(grid, "gbp:regions=faces")
    >>> bool(abs(gbp.log_z - exact.log_z) < 1e-6)
    True
    """

    name: ClassVar[str] = "gbp"
    edge_seconds: ClassVar[float] = 2e-6
    summary: ClassVar[str] = "Generalised BP: Kikuchi approximation over regions"
    objective_name: ClassVar[str] = "Kikuchi log Z"
    exactness = "forests"
    takes_start: ClassVar[bool] = True

    regions: str = option("auto", "choice of regions; `kikuchi regions --help` lists them")
    damping: float = option(0.5, "weight on the old message, in the logarithm", low=0, below=1)
    schedule: Literal["sequential", "parallel"] = option(
        "sequential",
        "one region after the other, large ones first, or all messages at once, which may end at "
        "a poor fixed point",
    )
    tol: float = option(1e-9, "stop when no beliefs disagree by more than this; 0: never", low=0)
    max_iter: int = option(1000, "maximum number of sweeps over all edges", low=1)

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        engine, ended = self.settled(graph, run)
        solution = read_regions(engine.beliefs, run, ended)
        solution.engine = engine
        return solution

    def settled(
        self, graph: FactorGraph, run: MethodRun, prepared: None = None
    ) -> tuple[PropagatedRegions, Ended]:
        """Return the engine at a fixed point, or at its most consistent beliefs."""
        beliefs = region_beliefs(graph, self.regions, run)
        parallel = self.schedule == "parallel"
        engine = PropagatedRegions(beliefs, parallel=parallel, clock=run.clock)
        start_regions(engine, run)
        state, limit = _Beliefs(beliefs.b), self.max_iter
        ended = iterate_to_best(self._sweep(engine), state, run, tol=self.tol, limit=limit)
        engine.rest()
        diverged = mark_diverged(beliefs, run) if ended.converged else False
        return engine, replace(ended, converged=ended.converged and not diverged)

    def _sweep(self, engine: PropagatedRegions) -> Callable[[_Beliefs], Step | None]:
        """Make one sweep over all edges; return None once the messages have diverged."""
        beliefs = engine.beliefs
        engine.prepare(self.damping)
        every = 1 if beliefs.b.size < _LARGE else 10  # the energy costs a third of a sweep

        def sweep(state: _Beliefs) -> Step | None:
            residual = engine.sweep(self.damping)
            state.done += 1
            if beliefs.collapsed():
                return None  # messages diverged: consistent beliefs are not a fixed point here
            energy = beliefs.log_z() if state.done % every == 0 else math.nan
            return Step(state.done, residual, energy)

        return sweep


@dataclass(eq=False)
class _Beliefs(State):
    """The beliefs of all regions after a number of sweeps."""

    b: Array
    done: int = 0


def mark_diverged(beliefs: RegionBeliefs, run: MethodRun) -> bool:
    """Mark a run as diverged if its beliefs belong to another model (`has_floored_mass`)."""
    diverged = beliefs.has_floored_mass()
    if diverged:
        run.stopped = "diverged"
    return diverged


def start_regions(engine: Regions, run: MethodRun) -> None:
    """Continue from the start of the run, if it has one."""
    if run.start is not None:
        state = run.start.state
        if not isinstance(state, RegionState):
            raise run.start.refused("gbp or kikuchi")
        now = run.start.conditioned if run.reduced is None else run.reduced
        if not np.array_equal(run.start.conditioned.variables, now.variables):
            raise other_regions()
        engine.go_on_from(state)


def read_regions(
    beliefs: RegionBeliefs,
    run: MethodRun,
    ended: Ended,
    advice: str = "more damping or iterations, or the method kikuchi, which converges",
) -> Solution:
    """Return the solution for region beliefs, with warnings about its quality."""
    solution = Solution(
        beliefs.marginals(),
        beliefs.log_z(),
        converged=ended.converged,
        iterations=ended.iterations,
        factor_tables=beliefs.factor_marginals,
        joint=beliefs.joint_reader(),
        diagnostics={
            "regions": len(beliefs.regions),
            "disagreement": beliefs.disagreement(),
            "residual": ended.residual,
        },
    )
    if beliefs.regions.caution and not beliefs.regions.is_exact:
        solution.warnings.append(beliefs.regions.caution)
    if beliefs.has_floored_mass():
        solution.warnings.append(
            "the range of the log-tables is too large for double precision, and the result "
            "depends on truncated values; use bp, mf or jt, or weaker couplings"
        )
    elif not ended.iterations and math.isinf(ended.residual):
        solution.warnings.append("no sweep was finished within the time limit; give more seconds")
    elif not ended.converged:
        solution.warnings.append(
            f"not converged: regions still disagree by {ended.residual:.2g}; try {advice}"
        )
    if not beliefs.regions.is_exact:
        warn_if_implausible(beliefs.graph, solution, run)
    return solution
