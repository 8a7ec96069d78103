"""`Run`: iterative work with its clock, its trace and the reason why it stopped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from logging import DEBUG
from typing import Any

from numpy.typing import NDArray

from kikuchi.core.budget import Clock
from kikuchi.core.log import logger
from kikuchi.core.progress import Progress
from kikuchi.core.trace import Trace

State = Mapping[str, NDArray[Any]]
"""Everything that the next step depends on, as plain arrays."""

_LOG = logger("iterations")
_PROGRESS_EVERY = 0.1  # seconds


@dataclass(frozen=True)
class Step:
    """One report of a running method: iterations so far and, if known, the residual, the objective,
    certified bounds on log Z and further measures by name.

    A `partial` step is part of an iteration: it is not recorded, but the run may stop or be saved
    after it.
    """

    iterations: int
    residual: float = math.nan
    objective: float = math.nan
    lower: float = math.nan
    upper: float = math.nan
    measures: Mapping[str, float] | None = None
    partial: bool = False


class StepAborted(Exception):
    """Raised inside a step to end the run; `stopped` is the reason: "seconds" or "diverged"."""

    def __init__(self, stopped: str) -> None:
        super().__init__(stopped)
        self.stopped = stopped


class Run:
    """A run in progress: clock, trace, progress reports, and the reason why it stopped.

    `offset` is added to every objective and bound before it is recorded or shown.
    """

    def __init__(self, clock: Clock, progress: Progress, trace: Trace, offset: float = 0.0) -> None:
        self.clock = clock
        self.progress = progress
        self.trace = trace
        self.offset = offset
        self.stopped = "converged"
        self._bounded = getattr(progress, "bounded", None)  # of bars that show bounds
        self._next_progress = _PROGRESS_EVERY

    def iterate(
        self, steps: Iterable[Step], *, tol: float, limit: int, done: int = 0
    ) -> tuple[int, bool]:
        """Take steps until the residual is at most `tol` (never if `tol` is 0), until the budget or
        `limit` is used up, until there are no more steps (the method has then diverged), or until
        Ctrl-C. Return the number of iterations and whether the run converged; `done` iterations
        were done before.
        """
        limit = self.clock.iterations(limit)
        self.clock.setting_up = False
        try:
            for step in steps:
                if step.partial:
                    if self.clock.expired:
                        self.stopped = "seconds"
                        return done, False
                    continue
                done = step.iterations
                self.record(step, limit)
                if self.clock.kept is not None:
                    self.clock.first_iteration_ended()
                if tol > 0 and step.residual <= tol:
                    return done, True
                if done >= limit:
                    self.stopped = "iterations"
                    return done, False
                if self.clock.expired:
                    self.stopped = "seconds"
                    return done, False
            self.stopped = "diverged"  # the method stopped by itself
        except KeyboardInterrupt:
            self.stopped = "interrupted"
            if done and self.trace.iterations[-1:] != [
                done
            ]:  # Ctrl-C came before the step was recorded
                self.record(step, limit)
        except StepAborted as end:
            self.stopped = end.stopped
        return done, False

    def record(self, step: Step, limit: int) -> None:
        """Add a step to the trace and report it a few times per second."""
        seconds = self.clock.seconds
        objective = step.objective + self.offset
        self.trace.record(
            step.iterations,
            residual=step.residual,
            objective=objective,
            seconds=seconds,
            lower=step.lower + self.offset,
            upper=step.upper + self.offset,
            measures=step.measures,
        )
        if self._bounded is not None:
            self._bounded(step.lower + self.offset, step.upper + self.offset)
        if seconds >= self._next_progress:
            self._next_progress = seconds + _PROGRESS_EVERY
            if _LOG.isEnabledFor(DEBUG):
                _LOG.debug(
                    "iteration %d of at most %d after %.3g s: residual %.6g, %s %.6g",
                    step.iterations, limit, seconds, step.residual, self.trace.objective_name,
                    objective,
                )  # fmt: skip
            self.progress(
                step.iterations,
                limit,
                residual=None if math.isnan(step.residual) else step.residual,
                objective=None if math.isnan(objective) else objective,
            )
