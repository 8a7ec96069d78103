"""Ascent of the dual of observed marginals: by scaling, or by a quasi-Newton method.

Reference: TEH-I12.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import BudgetError
from kikuchi.core.lbfgs import Memory, Metric
from kikuchi.core.numerics import log, xlogy
from kikuchi.engines.loops.state import Iterations
from kikuchi.engines.messages.clamped_messages import by_original, free_energy_limit
from kikuchi.engines.messages.tables import contradiction
from kikuchi.engines.run import FactorTables, MethodRun, Solution, Step
from kikuchi.graphs.factor_graph import FactorGraph


class Oracle(Protocol):
    """Marginals of a model whose observed variables are tilted; log Z without its constant.

    `certifies` says that minus the dual is an upper bound of log Z - KL, so that a dual beyond all
    limits proves that the targets are impossible. `converged` says whether the last marginals are
    those of a converged run.
    """

    certifies: bool
    converged: bool

    def tilt(self, log_tilts: Array) -> None:
        """Tilt the observed variables from now on: their states side by side."""

    def marginals(self) -> Array:
        """Flat marginals of the tilted model."""

    def log_z(self) -> float:
        """log Z of the tilted model, as of the last marginals."""

    def factor_tables(self) -> FactorTables | None:
        """Beliefs of the factors, if there are any."""


class DualAscent:
    """Scaling of one variable after the other, or of all at once by a fraction of the step.

    Tilts, targets and marginals of the observed variables are flat arrays, the states of one
    variable after those of another: there may be very many of them.
    """

    def __init__(
        self, oracle: Oracle, graph: FactorGraph, targets: Mapping[int, Array], parallel: bool
    ) -> None:
        self.oracle = oracle
        self.parallel = parallel
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

    def step(self, state: Iterations) -> Step | None:
        """One run of the oracle, after the first following a scaling."""
        if state.done:
            if not self.oracle.converged:
                return None
            self._scale_next(state.done - 1)
        self._measure(self.oracle.marginals())
        state.done += 1
        residual = self.residual if self.oracle.converged else math.nan
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

    def _measure(self, marginals: Array) -> None:
        """log Z(lambda) - sum o lambda: it falls to log Z - KL."""
        self.log_z = self.oracle.log_z() - float(xlogy(self.wanted, self.tilts).sum())
        if self.oracle.certifies and -self.log_z > self.limit:
            raise contradiction()
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
        self.oracle.tilt(self.tilts)

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
        self.oracle.tilt(self.measured)
        tilts = {v: self.measured[self._states(k)] for k, v in enumerate(self.variables)}
        solution = Solution(
            self.marginals,
            log_z=self.log_z,
            converged=converged,
            iterations=iterations,
            factor_tables=self.oracle.factor_tables(),
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
                "more max_iterations"
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
    """Tilts and what the oracle says there; `gradient` is that of minus the dual."""

    tilts: Array
    marginals: Array
    log_z: float
    gradient: Array


class QuasiNewtonAscent(DualAscent):
    """The same dual by L-BFGS: some fifty runs of the oracle where scaling takes thousands.

    The metric is that of scaling. A step is taken only if the dual does not fall. Where no such
    step is found, every variable is scaled once, which always raises the dual.
    """

    def __init__(self, oracle: Oracle, graph: FactorGraph, targets: Mapping[int, Array]) -> None:
        super().__init__(oracle, graph, targets, parallel=False)
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
        """Run the oracle with these tilts."""
        self.oracle.tilt(tilts)
        marginals = self.oracle.marginals()
        self.runs += 1
        now = marginals[self.where]
        log_z = self.oracle.log_z() - float(xlogy(self.wanted, tilts).sum())
        if self.oracle.certifies and -log_z > self.limit:
            raise contradiction()
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
        negative proves a decrease which rounding or an inexact oracle hides, and points carry their
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
