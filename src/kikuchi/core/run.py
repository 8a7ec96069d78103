"""`Run`: one piece of iterative work, with its clock, its trace and why it stopped."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from kikuchi.core.budget import Clock
from kikuchi.core.progress import Progress
from kikuchi.core.trace import Trace

_PROGRESS_EVERY = 0.1  # seconds


@dataclass(frozen=True)
class Step:
    """One report of a running method: iterations so far, and if known the residual, the objective
    and certified bounds on log Z.
    """

    iterations: int
    residual: float = math.nan
    objective: float = math.nan
    lower: float = math.nan
    upper: float = math.nan


class Run:
    """Work in progress: clock, trace and progress, and why it stopped.

    `offset` is added to every objective and bound before it is recorded or shown.
    """

    def __init__(self, clock: Clock, progress: Progress, trace: Trace, offset: float = 0.0) -> None:
        self.clock = clock
        self.progress = progress
        self.trace = trace
        self.offset = offset
        self.stopped = "converged"
        self._next_progress = _PROGRESS_EVERY

    def iterate(self, steps: Iterable[Step], *, tol: float, limit: int) -> tuple[int, bool]:
        """Take steps until the residual is at most `tol` (never if `tol` is 0), the budget or
        `limit` ends, the steps do (then the method has diverged), or Ctrl-C. Answers the
        iterations done and whether it converged.
        """
        limit = self.clock.iterations(limit)
        done = 0
        try:
            for step in steps:
                done = step.iterations
                self.record(step, limit)
                if tol > 0 and step.residual <= tol:
                    return done, True
                if done >= limit:
                    self.stopped = "iterations"
                    return done, False
                if self.clock.expired:
                    self.stopped = "seconds"
                    return done, False
            self.stopped = "diverged"  # the method itself gave up
        except KeyboardInterrupt:
            self.stopped = "interrupted"
        return done, False

    def record(self, step: Step, limit: int) -> None:
        """Put a step in the trace and, a few times a second, on the screen."""
        seconds = self.clock.seconds
        objective = step.objective + self.offset
        self.trace.record(
            step.iterations,
            residual=step.residual,
            objective=objective,
            seconds=seconds,
            lower=step.lower + self.offset,
            upper=step.upper + self.offset,
        )
        if seconds >= self._next_progress:
            self._next_progress = seconds + _PROGRESS_EVERY
            self.progress(
                step.iterations,
                limit,
                residual=None if math.isnan(step.residual) else step.residual,
                objective=None if math.isnan(objective) else objective,
            )
