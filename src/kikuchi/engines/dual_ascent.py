"""Ascent of the dual of observed marginals: by scaling, or by a quasi-Newton method.

Reference: TEH-I12.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Clock
from kikuchi.core.errors import BudgetError
from kikuchi.core.lbfgs import Memory, Metric
from kikuchi.core.numerics import log, xlogy
from kikuchi.core.run import StepAborted
from kikuchi.engines.engine import Engine
from kikuchi.engines.loops.state import Iterations
from kikuchi.engines.messages.clamped_messages import by_original, free_energy_limit
from kikuchi.engines.messages.tables import contradiction
from kikuchi.engines.run import MethodRun, Solution, Step
from kikuchi.graphs.factor_graph import FactorGraph


def with_tilts(graph: FactorGraph, variables: Iterable[int]) -> FactorGraph:
    """The graph with a table of zeros for each of some variables, the last tables of all."""
    return graph.with_fields((v, np.zeros(int(graph.cardinalities[v]))) for v in variables)


class DualAscent:
    """Scaling of one variable after the other, or of all at once by a fraction of the step.

    Tilts, targets and marginals of the observed variables are flat arrays, the states of one
    variable after those of another: there may be very many of them.

    Parameters
    ----------
    engine : on the graph `with_tilts` of the targets; its tables are those of the model, then the
        tilts.
    graph : the model.
    targets : the wanted marginals.
    clock : when it is over, the last marginals count.
    parallel : scale all variables at once.
    settled : brings the engine to rest after its tables have changed; False if it did not come to
        rest.
    certifies : minus the dual is an upper bound of log Z - KL, so that a dual beyond all limits
        proves that the targets are impossible.
    """

    def __init__(
        self,
        engine: Engine,
        graph: FactorGraph,
        targets: Mapping[int, Array],
        clock: Clock,
        *,
        parallel: bool = False,
        settled: Callable[[], bool] = lambda: True,
        certifies: bool = True,
    ) -> None:
        self.engine = engine
        self.log_tables = graph.log_tables
        self.clock = clock
        self.parallel = parallel
        self.settled = settled
        self.certifies = certifies
        self.converged = False
        self.variables = tuple(targets)
        self.wanted = np.concatenate([np.zeros(0), *targets.values()])
        self.on = self.wanted > 0
        self.sizes = np.array([len(target) for target in targets.values()], dtype=np.int64)
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)
        begin = graph.state_offsets[list(targets)].astype(np.int64) - self.starts[:-1]
        self.where = np.arange(len(self.wanted)) + np.repeat(begin, self.sizes)
        self.tilts = np.zeros(len(self.wanted))
        self.limit = free_energy_limit(graph)
        self.limit += 1e-6 * (1.0 + abs(self.limit))
        self.marginals = np.zeros(0)
        self.log_z = math.nan
        self.first_log_z = math.nan
        self.measured = self.tilts

    def _tilt(self, tilts: Array) -> None:
        self.engine.set_tables(np.concatenate([self.log_tables, tilts]))

    def _infer(self) -> Array:
        """The marginals of the tilted model."""
        try:
            self.converged = self.settled()
            return self.engine.marginals()
        except BudgetError as error:
            if self.clock.expired and len(self.marginals):
                raise StepAborted("seconds") from error  # the marginals before are the answer
            raise

    def _dual(self, tilts: Array) -> float:
        """log Z(lambda) - sum o lambda: it falls to log Z - KL."""
        value = self.engine.log_z() - float(xlogy(self.wanted, tilts).sum())
        if self.certifies and -value > self.limit:
            raise contradiction()
        return value

    def step(self, state: Iterations) -> Step | None:
        """One inference, after the first following a scaling."""
        if state.done:
            if not self.converged:
                return None
            self._scale_next(state.done - 1)
        self._measure()
        state.done += 1
        residual = self.residual if self.converged else math.nan
        return Step(state.done, residual, self.log_z)

    def _scale_next(self, number: int) -> None:
        """Scale all variables a little, or the next one in turn."""
        count = len(self.variables)
        if self.parallel:
            self._scale(slice(None), 1.0 / count)
        else:
            self._scale(self._states(number % count), 1.0)

    def _states(self, k: int) -> slice:
        """Where the states of one observed variable are."""
        return slice(self.starts[k], self.starts[k + 1])

    def _measure(self) -> None:
        marginals = self._infer()
        self.log_z = self._dual(self.tilts)
        if math.isnan(self.first_log_z):
            self.first_log_z = self.log_z
        self.marginals = marginals
        self.measured = self.tilts

    def _scale(self, here: slice, fraction: float) -> None:
        target, now, wanted = self.wanted[here], self.marginals[self.where[here]], self.on[here]
        if np.any(wanted & (now == 0)):
            raise contradiction()
        step = log(np.where(wanted, target, 1.0)) - log(np.where(wanted, now, 1.0))
        tilts = self.tilts.copy()
        tilts[here] = np.where(wanted, tilts[here] + fraction * step, -np.inf)
        self.tilts = self._shifted(tilts)
        self._tilt(self.tilts)

    def _shifted(self, tilts: Array) -> Array:
        """The largest tilt of every variable becomes 0, which changes no distribution."""
        largest = np.maximum.reduceat(tilts, self.starts[:-1])
        return np.asarray(tilts - np.repeat(largest, self.sizes))

    @property
    def residual(self) -> float:
        """Largest distance of a marginal from its target."""
        return float(np.abs(self.marginals[self.where] - self.wanted).max(initial=0.0))

    # ------------------------------------------------------------------ answer

    def solution(self, run: MethodRun, iterations: int, converged: bool) -> Solution:
        """Marginals of the model as it was tilted when they were measured last."""
        if not len(self.marginals):
            raise BudgetError("the run was interrupted before it had any marginals")
        self._tilt(self.measured)
        tilts = {v: self.measured[self._states(k)] for k, v in enumerate(self.variables)}
        solution = Solution(
            self.marginals,
            log_z=self.log_z,
            converged=converged,
            iterations=iterations,
            factor_tables=lambda: self.engine.factor_marginals()[: len(self.log_tables)],
            diagnostics={
                "residual": self.residual,
                "kl": self.first_log_z - self.log_z,
                "tilts": by_original(tilts, run),
            },
        )
        if not converged:
            solution.warnings.append(
                f"not converged: a marginal is still {self.residual:.2g} from its target; targets "
                "that contradict each other or the zeros of the model would explain it, else allow "
                "a larger max_iter"
            )
        return solution


# ---------------------------------------------------------------------- quasi-Newton

_ARMIJO = 1e-4
_STEEP = 0.9  # a step with more than this fraction of the slope left at its end is too short
_TRIALS = 20
_LONGEST = 40.0  # first try of a step, in a log-tilt
_ROUNDING = 1e-14  # of the dual, relative


@dataclass(frozen=True, eq=False)
class _DualPoint:
    """Tilts, and what inference finds there; `gradient` is that of minus the dual."""

    tilts: Array
    marginals: Array
    log_z: float
    gradient: Array


class QuasiNewtonAscent(DualAscent):
    """The same dual by L-BFGS: some fifty inferences where scaling takes thousands.

    The metric is that of scaling. A step is taken only if the dual does not fall. Where no such
    step is found, every variable is scaled once, which always raises the dual.
    """

    def __init__(
        self, engine: Engine, graph: FactorGraph, targets: Mapping[int, Array], clock: Clock
    ) -> None:
        super().__init__(engine, graph, targets, clock)
        self.runs = 0
        self.memory = Memory()
        self.point: _DualPoint | None = None

    def step(self, state: Iterations) -> Step:
        """A step of L-BFGS, or a round of scalings where that fails."""
        self.point = self._begin() if self.point is None else self._next(self.point)
        state.done += 1
        return Step(state.done, self.residual, self.log_z)

    def _begin(self) -> _DualPoint:
        """The point without tilts, but for states that no target allows."""
        point = self._accept(self._at(np.zeros(len(self.wanted))))
        if np.any(self.on & (point.marginals[self.where] == 0)):
            raise contradiction()
        if not self.on.all():
            point = self._accept(self._at(np.where(self.on, 0.0, -np.inf)))
        return point

    def _next(self, point: _DualPoint) -> _DualPoint:
        """The point after this one."""
        direction = self.memory.direction(point.gradient, self._metric(point), 1.0)
        better = self._search(point, direction)
        if better is None:
            self.memory.clear()
            return self._accept(self._round(point))
        moved = np.where(self.on, better.tilts, 0.0) - np.where(self.on, point.tilts, 0.0)
        self.memory.add(moved, better.gradient - point.gradient)
        return self._accept(better)

    def solution(self, run: MethodRun, iterations: int, converged: bool) -> Solution:
        """The last point that was accepted."""
        solution = super().solution(run, iterations, converged)
        solution.diagnostics["runs"] = self.runs
        return solution

    def _metric(self, point: _DualPoint) -> Metric:
        """(log q - log o) / (q - o): times the gradient it is minus the step of scaling."""
        q, o = point.marginals[self.where], self.wanted
        distinct = self.on & (q > 0) & (np.abs(q - o) > 1e-6 * o)
        safe = np.where(distinct, q, 1.0)
        ratio = (log(safe) - log(np.where(distinct, o, 2.0))) / np.where(distinct, q - o, -1.0)
        weights = np.where(distinct, ratio, 1.0 / np.where(self.on, o, 1.0))
        return lambda v: weights * v

    def _at(self, tilts: Array) -> _DualPoint:
        """Infer with these tilts."""
        self._tilt(tilts)
        marginals = self._infer()
        self.runs += 1
        now = marginals[self.where]
        log_z = self._dual(tilts)
        return _DualPoint(tilts, marginals, log_z, np.where(self.on, now - self.wanted, 0.0))

    def _accept(self, point: _DualPoint) -> _DualPoint:
        """Make a point the current one."""
        if math.isnan(self.first_log_z):
            self.first_log_z = point.log_z
        self.marginals, self.log_z = point.marginals, point.log_z
        self.measured = self._shifted(point.tilts)
        return point

    def _search(self, point: _DualPoint, step: Array) -> _DualPoint | None:
        """A point along a step where minus the dual is lower and less steep.

        Not the line search of `Lbfgs`: minus the dual is convex, so that a slope that is still
        negative proves a decrease which rounding or inexact inference hides, and points carry their
        marginals along.
        """
        slope = float(point.gradient @ step)
        if not slope < 0:
            return None
        rounding = _ROUNDING * (1.0 + abs(point.log_z))
        length = min(1.0, _LONGEST / float(np.abs(step).max()))
        low, high, best = 0.0, math.inf, None
        for _ in range(_TRIALS):
            trial = self._at(point.tilts + length * step)
            after = float(trial.gradient @ step)
            fall = point.log_z - trial.log_z
            lower = after <= 0 or fall >= -_ARMIJO * length * slope
            if lower or (abs(fall) <= rounding and after <= -_STEEP * slope):
                if after >= _STEEP * slope:
                    return trial
                low, best = length, trial
            else:
                high = length
            length = 4.0 * length if math.isinf(high) else low + 0.3 * (high - low)
        return best

    def _round(self, point: _DualPoint) -> _DualPoint:
        """Scale every variable once."""
        for k in range(len(self.variables)):
            here = self._states(k)
            on, tilts = self.on[here], point.tilts.copy()
            now = point.marginals[self.where[here]]
            seen = on & (now > 0)  # a marginal may have underflown
            step = log(np.where(seen, self.wanted[here], 1.0)) - log(np.where(seen, now, 1.0))
            tilts[here] = np.where(on, tilts[here] + step, -np.inf)
            point = self._at(tilts)
        return point
