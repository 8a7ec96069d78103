"""Minimise a Kikuchi free energy, convergently.

Reference: LIU-D7, LIU-I14, LIU-I14b, TEH-M27.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.lbfgs import Lbfgs
from kikuchi.engines.loops.iterate import iterate
from kikuchi.engines.loops.state import Iterations
from kikuchi.engines.regions.engine import DoubleLoop, RegionBeliefs, region_beliefs
from kikuchi.engines.regions.kernels import regions as kernels
from kikuchi.engines.run import MethodRun, Solution, Step
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.generalised_bp import mark_diverged, read_regions
from kikuchi.methods.method import Method, option

_PATIENCE = 100  # outer steps without a smaller residual before the inner loop is made longer
_PATIENCE_DIVERGING = 10  # outer steps in which a run may get worse before it goes back
_FAST = 0.1  # change of a probability in one outer step
_INNER_TOLERANCE = 0.03  # change in an inner sweep, relative to that since the last outer step
_MOST_INNER = 1000
_ADVICE = "more iterations or seconds, or smaller regions"
_PENALTIES = (10.0, 30.0, 100.0, 300.0)
_LEAST_DECREASE = 1e-10  # of the penalised free energy in one step, relative: less ends a penalty
_LEAST_GRADIENT = 1e-6


@dataclass(frozen=True)
class Kikuchi(Method):
    """Minimum of the region free energy, where generalised BP may diverge.

    `solver=double-loop` bounds the concave entropies by their tangents and minimises the convex
    rest by scaling roots to agreement (concave-convex procedure); the inner loop grows by itself
    when the outer one stalls, and with an inner loop run to its end the free energy never rises.
    `solver=penalty` minimises over free tables of the roots with a penalty on disagreement that
    grows in steps; it ends with a small disagreement left.

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

    regions: str = option("auto", "which regions; `kikuchi regions --help` lists them")
    solver: Literal["double-loop", "penalty"] = option("double-loop", "how it is minimised")
    inner: int = option(1, "scaling sweeps in each outer step; grows when progress stops", low=1)
    tol: float = option(1e-9, "largest change of a belief to stop at; 0 runs on", low=0)
    max_iterations: int = option(5000, "most outer steps, or gradient steps for penalty", low=1)

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        beliefs = region_beliefs(graph, self.regions, run)
        if self.solver == "penalty":
            return self._by_penalty(beliefs, run)
        iterations, converged = self.minimise(beliefs, run)
        residual = run.trace.last_residual
        return read_regions(beliefs, run, iterations, converged, residual, _ADVICE)

    def minimise(self, beliefs: RegionBeliefs, run: MethodRun) -> tuple[int, bool]:
        """Move the `beliefs` to the minimum by the double loop, within the limits of the `run`;
        answers steps and convergence.
        """
        step, limit = self._outer_step(DoubleLoop(beliefs)), self.max_iterations
        ended = iterate(step, Iterations(), run, tol=self.tol, limit=limit)
        return ended.iterations, ended.converged and not mark_diverged(beliefs, run)

    def _outer_step(self, loop: DoubleLoop) -> Callable[[Iterations], Step]:
        """The step of the run: move the tangent, then sweep the inner loop."""
        controller = InnerLoopController(loop, self.inner)

        def step(state: Iterations) -> Step:
            if state.done > 0:
                loop.outer_step()
            residual = self._inner_loop(loop, controller.sweeps)
            state.done += 1
            log_z = -loop.beliefs.free_energy()
            controller.update(residual, log_z)
            return Step(state.done, residual, log_z)

        return step

    def _inner_loop(self, loop: DoubleLoop, most: int) -> float:
        """Sweep until a sweep changes the beliefs far less than all since the last outer step did.

        Answers the larger of the two changes.
        """
        for _ in range(most):
            change = loop.inner_sweep()
            moved = loop.moved()
            if change <= max(0.1 * self.tol, _INNER_TOLERANCE * moved):
                break
        return max(change, moved)

    def _by_penalty(self, beliefs: RegionBeliefs, run: MethodRun) -> Solution:
        penalised = PenalisedEnergy(beliefs)
        iterations, converged = penalised.minimise(run, self.max_iterations, self.tol)
        residual = beliefs.disagreement()
        solution = read_regions(beliefs, run, iterations, converged, residual, _ADVICE)
        solution.diagnostics["penalty"] = penalised.weight
        return solution


class InnerLoopController:
    """Chooses the number of inner sweeps: more when the outer loop stalls or diverges.

    An inner loop that is cut short saves much time and nearly always works, but then the free
    energy may rise. If beliefs move faster and faster, while the free energy rises or the regions
    disagree, the run goes back to where they moved least and takes a longer inner loop from there.
    """

    def __init__(self, loop: DoubleLoop, sweeps: int) -> None:
        self.loop = loop
        self.sweeps = sweeps
        self._smallest_residual = np.inf
        self._steps_without_progress = 0
        self._highest_log_z = -np.inf
        self._diverging_steps = 0
        self._best = loop.state.copy()

    def update(self, residual: float, log_z: float) -> None:
        """Take note of one outer step."""
        self._steps_without_progress += 1
        if residual < self._smallest_residual:
            if residual < 0.5 * self._smallest_residual:
                self._steps_without_progress = 0
            self._smallest_residual, self._highest_log_z = residual, log_z
            self._diverging_steps = 0
            self._best.assign(self.loop.state)
            return
        if self.sweeps >= _MOST_INNER:
            return
        self._diverging_steps = self._diverging_steps + 1 if self._diverging(residual, log_z) else 0
        self._highest_log_z = max(self._highest_log_z, log_z)
        if self._diverging_steps > _PATIENCE_DIVERGING or self._collapsed(residual):
            self._go_back()
        elif self._steps_without_progress > _PATIENCE:
            self.sweeps, self._steps_without_progress = 2 * self.sweeps, 0

    def _diverging(self, residual: float, log_z: float) -> bool:
        if residual < max(2.0 * self._smallest_residual, _FAST):
            return False
        return log_z < self._highest_log_z or self.loop.beliefs.disagreement() > 0.5 * residual

    def _collapsed(self, residual: float) -> bool:
        """Whether beliefs fell to the floor on the way, so that the tables lost the model.

        With the longest inner loop such beliefs are the model's own.
        """
        return residual > _FAST and self.loop.beliefs.collapsed()

    def _go_back(self) -> None:
        self.loop.state.assign(self._best)
        self.sweeps = min(4 * self.sweeps, _MOST_INNER)
        self._diverging_steps = self._steps_without_progress = 0


class PenalisedEnergy:
    """J = F + w sum_(P -> R) |b_R - marginal(b_P)|^2 over logits of the roots.

    Beliefs of smaller regions are the mean of their parents' marginals.
    """

    def __init__(self, beliefs: RegionBeliefs) -> None:
        self.beliefs = beliefs
        self.weight = _PENALTIES[0]
        self.end = int(beliefs.table_at[beliefs.regions.n_roots])
        self.alive = beliefs.b[: self.end] > 0
        self.gradient = np.empty_like(beliefs.b)
        parents = np.array([len(p) for p in beliefs.regions.parents], dtype=np.float64)
        self.shares = 1.0 / np.maximum(parents, 1.0)

    def minimise(self, run: MethodRun, limit: int, tol: float) -> tuple[int, bool]:
        """L-BFGS for each penalty weight in turn, from where the last one ended."""
        limit = run.clock.iterations(limit)
        most = -(-limit // len(_PENALTIES))
        logits = np.log(self.beliefs.b[: self.end][self.alive])
        done, stopped, converged = 0, "", False
        try:
            for self.weight in _PENALTIES:
                descent = Lbfgs(self.value, logits)
                for _ in descent.steps(most, least_decrease=_LEAST_DECREASE, tol=_LEAST_GRADIENT):
                    done, logits = done + 1, descent.point
                    if descent.evaluated is not logits:
                        self.value(logits)
                    run.record(Step(done, objective=-self.beliefs.free_energy()), limit)
                    if done >= limit or run.clock.expired:
                        stopped = "iterations" if done >= limit else "seconds"
                        break
                converged = descent.converged
                if stopped:
                    break
        except KeyboardInterrupt:
            stopped = "interrupted"
        self.value(logits)
        converged = converged and not stopped
        run.stopped = "converged" if converged else stopped or "iterations"
        return done, converged

    def value(self, logits: Array) -> tuple[float, Array]:
        """J and its gradient in the logits of the positive root entries."""
        beliefs = self.beliefs
        beliefs.b[: self.end][self.alive] = logits
        value = kernels.penalised_energy(
            beliefs.table_at,
            beliefs.b,
            beliefs.log_phi,
            beliefs.regions.counting,
            np.uint64(beliefs.regions.n_roots),
            beliefs.edge_link,
            beliefs.links,
            self.shares,
            self.weight,
            self.gradient,
            np.empty(beliefs.width),
        )
        return float(value), self.gradient[: self.end][self.alive].copy()
