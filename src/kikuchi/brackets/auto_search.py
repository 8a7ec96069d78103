"""The search of `auto` if exact inference does not fit: alternating estimates and bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from kikuchi.brackets.log_z_bounds import LOOPS, Portfolio, bound_schedule, load_loops
from kikuchi.core.errors import BudgetError, MethodError
from kikuchi.engines.run import MethodRun, Solution, Step
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.regions.builders import region_graph
from kikuchi.graphs.shapes import grid_shape
from kikuchi.methods.beliefs import Beliefs
from kikuchi.methods.kikuchi import Kikuchi
from kikuchi.methods.method import Method
from kikuchi.methods.registry import METHODS

_DEFAULT_SECONDS = 30.0  # without a limit
_WINDOWS = ((2, 3), (3, 3), (3, 4), (4, 4))
_BUCKETS = (3, 4, 5, 6, 8, 10, 12)
_SECONDS_PER_BYTE = 2e-7  # of region tables until convergence
_KIKUCHI_TOL = 1e-5
_PROPAGATION = (
    "bp:tol=1e-7",
    "bp:schedule=residual,tol=1e-7",
    "bp:damping=0.5,schedule=residual,tol=1e-7",
)
_CHEAP_BOUNDS = ("mf", "trw")
_LEAST_SECONDS = 0.05  # for the first estimate, even if it is late
_SMALL_RESIDUAL = (
    1e-3  # residual below which an estimate counts although it had no time to converge
)
_TIGHT = 1.0  # nats
_SLACK = 1e-6  # nats by which an estimate may be outside the bounds


class Search:
    """Estimates and bounds of one graph, from cheap to costly, until the time ends."""

    def __init__(self, graph: FactorGraph, run: MethodRun) -> None:
        self.graph = graph
        self.run = run
        budget = run.clock.budget
        limit = _DEFAULT_SECONDS if budget.seconds is None else budget.seconds
        self.portfolio = Portfolio(graph, run.clock, run.progress, limit)
        self.estimates: list[Beliefs] = []
        self.trial: Beliefs | None = None
        self.tried: list[str] = []

    @property
    def seconds_left(self) -> float:
        """Seconds left."""
        return self.portfolio.seconds_left

    # ------------------------------------------------------------------ approximate

    def reserve(self) -> None:
        """Compute a result to fall back on: belief propagation, and a bound on each side."""
        with self.run.clock.paused():
            load_loops(("bp", *_CHEAP_BOUNDS), self.graph)
        plain = METHODS.parse(_PROPAGATION[0])
        whole = self.seconds_left
        least = max(plain.least_seconds(self.graph), _LEAST_SECONDS)
        self.estimate(plain, 0.1 * whole, at_least=least)
        for method in map(METHODS.parse, _CHEAP_BOUNDS):
            self.bound(method, max(0.05 * whole, method.least_seconds(self.graph)))

    def first_estimates(self) -> None:
        """Run belief propagation, also with other schedules, and cheap bounds."""
        if not self.estimates:
            self.reserve()
        whole = self.seconds_left
        residual, damped = map(METHODS.parse, _PROPAGATION[1:])
        self.estimate(residual, 0.05 * whole)  # often another fixed point
        if not any(beliefs.converged for beliefs in self.estimates):
            self.estimate(damped, 0.05 * whole)
        self.record()

    def improve(self, part: float, ibound: int | None) -> None:
        """Alternate larger regions and tighter bounds, until the time ends or the bounds meet.

        `part` is the fraction of the time given to bounds.
        """
        with self.run.clock.paused():
            load_loops(("bp", "bp:schedule=residual", "kikuchi"), self.graph)
            load_loops(LOOPS, self.graph)
        self.first_estimates()
        schedule = bound_schedule(self.portfolio, ibound)
        bounds = (entry for entry in schedule if entry[0].text not in self.tried)
        shares = _TimeShares(self.larger_regions(), bounds, part)
        try:
            self._alternate(shares)
        except KeyboardInterrupt:  # between two runs, while the next is planned
            self.portfolio.interrupted = True

    def _alternate(self, shares: _TimeShares) -> None:
        while self.seconds_left > 0 and not self.portfolio.bounds.closed:
            began = self.run.clock.seconds
            if shares.estimate_next():
                method = next(shares.estimates, None)
                if method is None:
                    shares.estimates_end()
                    continue
                self.estimate(method, self.seconds_left * shares.portion(0))
                shares.spent[0] += self.run.clock.seconds - began
            elif shares.bound_next():
                entry = next(shares.bounds, None)
                if entry is None:
                    shares.bounds_end()
                    continue
                self.bound(entry[0], entry[1] * shares.portion(1))
                shares.spent[1] += self.run.clock.seconds - began
            else:
                break
            self.record()

    def larger_regions(self) -> Iterator[Method]:
        """Yield Kikuchi approximations over growing regions.

        The regions are sliding windows if the model is a grid; otherwise short loops, then
        mini-buckets and their intersections.
        """
        yield Kikuchi(tol=_KIKUCHI_TOL)
        if grid_shape(self.graph) is not None:
            regions = [f"blocks:{rows}x{columns}" for rows, columns in _WINDOWS]
        else:
            regions = [f"buckets:{size}" for size in _BUCKETS]
        for method in (Kikuchi(regions=text, tol=_KIKUCHI_TOL) for text in regions):
            if not self._has_time_for(method):
                return
            yield method

    def _has_time_for(self, method: Kikuchi) -> bool:
        """Return whether region tables of this size can converge in the remaining time; otherwise
        record why.
        """
        skipped = self.portfolio.bounds.skipped
        seconds = method.least_seconds(self.graph)  # creating the regions is a large part of it
        if seconds <= self.seconds_left:
            try:
                regions = region_graph(self.graph, method.regions, budget=self.run.clock.budget)
            except (MethodError, BudgetError) as error:
                skipped[method.text] = str(error)
                return False
            seconds = _SECONDS_PER_BYTE * regions.bytes
        if seconds > self.seconds_left:
            skipped[method.text] = f"would need about {seconds:.2g} s"
        return seconds <= self.seconds_left

    def estimate(self, method: Method, seconds: float, *, at_least: float = 0.0) -> None:
        """Run a method and store its result, if any."""
        self.tried.append(method.text)
        beliefs = self.portfolio.attempt(method, seconds, at_least=at_least)
        if beliefs is not None and beliefs.log_z is not None:
            self.estimates.append(beliefs)

    def bound(self, method: Method, seconds: float) -> None:
        """Run a method for its bounds; if they meet, its marginals are also exact."""
        self.tried.append(method.text)
        beliefs = self.portfolio.attempt(method, seconds)
        if beliefs is None or beliefs.log_z is None:
            return
        if self.portfolio.bounds.closed:
            self.estimates.append(beliefs)
        if self.portfolio.bounds.lower_method == beliefs.method and beliefs.log_z_upper is None:
            self.trial = beliefs

    def record(self) -> None:
        """Record the state of the search in the trace."""
        proved = self.portfolio.bounds
        constant = self.graph.log_constant
        best = self.best
        self.run.record(
            Step(
                len(self.run.trace) + 1,
                objective=math.nan if best is None else _minus(best.log_z, constant),
                lower=proved.lower - constant,
                upper=proved.upper - constant,
            ),
            0,
        )

    # ------------------------------------------------------------------ result

    @property
    def best(self) -> Beliefs | None:
        """The last converged estimate inside the bounds; else, if these are tight, the trial
        distribution of the lower bound (its KL divergence to the model is at most the gap); else
        the converged estimate closest to them; else the one with the smallest residual, preferably
        inside the bounds.
        """
        nearly_converged = [b for b in self.estimates if _has_nearly_converged(b)]
        inside = [b for b in nearly_converged if self._violation(b) == 0.0]
        if inside:
            return inside[-1]
        if self.trial is not None and self.portfolio.bounds.gap <= _TIGHT:
            return self.trial
        if nearly_converged:
            return min(nearly_converged, key=self._violation)
        return min(self.estimates, key=self._doubt, default=None)

    def _doubt(self, beliefs: Beliefs) -> tuple[bool, float]:
        """Return a sort key: estimates inside the bounds first, then those with small residuals."""
        return self._violation(beliefs) > 0.0, _residual(beliefs)

    def _violation(self, beliefs: Beliefs) -> float:
        """Return the nats by which an estimate of log Z is outside the certified bounds."""
        proved, log_z = self.portfolio.bounds, beliefs.log_z
        assert log_z is not None  # estimates without log Z are not stored
        outside = max(proved.lower - log_z, log_z - proved.upper, 0.0)
        return outside if outside > _SLACK * max(1.0, abs(log_z)) else 0.0

    def answer(self, why: str) -> Solution:
        """Return the best estimate with the best bounds."""
        best = self.best
        if best is None:
            reasons = "; ".join(f"{m}: {why}" for m, why in self.portfolio.bounds.skipped.items())
            raise BudgetError(f"auto: no method returned a result ({reasons or 'no time'})")
        proved, constant = self.portfolio.bounds, self.graph.log_constant
        self.portfolio.take_from_tables(best.flat_marginals)
        if self.portfolio.interrupted:
            self.run.stopped = "interrupted"
        elif not best.converged:
            self.run.stopped = best.stopped
        solution = solution_of(
            best,
            self.graph,
            {
                "chosen": best.method,
                "why": why,
                "tried": self.tried,
                "skipped": proved.skipped,
                "lower_method": proved.lower_method,
                "upper_method": proved.upper_method,
            },
        )
        solution.log_z_lower = proved.lower - constant if math.isfinite(proved.lower) else None
        solution.log_z_upper = proved.upper - constant if math.isfinite(proved.upper) else None
        solution.warnings = self._warnings(best)
        return solution

    def _warnings(self, best: Beliefs) -> list[str]:
        warnings = list(best.warnings)
        if self._violation(best) > 0.0:
            warnings.append(
                f"the estimate {best.log_z:.6g} of log Z is outside its certified bounds and not "
                "reliable; allow more seconds"
            )
        return warnings


def solution_of(best: Beliefs, graph: FactorGraph, diagnostics: dict[str, Any]) -> Solution:
    """Return the result of a method that was run on the same graph as a `Solution`."""
    constant = graph.log_constant
    return Solution(
        best.flat_marginals,
        _minus(best.log_z, constant),
        converged=best.converged,
        iterations=best.iterations,
        log_z_lower=None if best.log_z_lower is None else best.log_z_lower - constant,
        log_z_upper=None if best.log_z_upper is None else best.log_z_upper - constant,
        factor_tables=lambda: best.flat_factors,
        covariance=lambda variables: best.covariance(variables.tolist()),
        joint=best.held_joint,
        warnings=list(best.warnings),
        diagnostics=diagnostics,
    )


class _TimeShares:
    """Alternates two kinds of work by the time that each has used."""

    def __init__(
        self, estimates: Iterator[Method], bounds: Iterator[tuple[Method, float]], part: float
    ) -> None:
        self.estimates = estimates
        self.bounds = bounds
        self.parts = [1.0 - part, part]
        self.spent = [0.0, 0.0]

    def estimate_next(self) -> bool:
        """Return whether the next piece of work is an estimate."""
        mine, other = self.parts
        return mine > 0 and (other == 0 or self.spent[0] * other <= self.spent[1] * mine)

    def bound_next(self) -> bool:
        """Return whether bounds are still required."""
        return self.parts[1] > 0

    def portion(self, kind: int) -> float:
        """Return the remaining time that one kind of work may take."""
        return self.parts[kind] / sum(self.parts)

    def estimates_end(self) -> None:
        """End the estimates: bounds get all the remaining time."""
        self.parts[0] = 0.0

    def bounds_end(self) -> None:
        """End the bounds."""
        self.parts[1] = 0.0


def _has_nearly_converged(beliefs: Beliefs) -> bool:
    return beliefs.converged or _residual(beliefs) <= _SMALL_RESIDUAL


def _residual(beliefs: Beliefs) -> float:
    residual = float(beliefs.diagnostics.get("residual", math.inf))
    return math.inf if math.isnan(residual) else residual


def _minus(value: float | None, constant: float) -> float:
    assert value is not None  # estimates without log Z are not stored
    return value - constant
