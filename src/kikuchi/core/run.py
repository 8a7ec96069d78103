"""`Run`: one piece of iterative work, with its clock, its trace and why it stopped."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from logging import DEBUG
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.budget import Clock
from kikuchi.core.log import logger
from kikuchi.core.progress import Progress
from kikuchi.core.trace import Trace

State = Mapping[str, NDArray[Any]]
"""Everything that the next step of some work depends on, as plain arrays."""

_LOG = logger("iterations")
_PROGRESS_EVERY = 0.1  # seconds
_SNAPSHOT_EVERY = 0.2  # seconds


@dataclass(frozen=True)
class Step:
    """One report of a running method: iterations so far, and if known the residual, the objective,
    certified bounds on log Z and further measures by name.
    """

    iterations: int
    residual: float = math.nan
    objective: float = math.nan
    lower: float = math.nan
    upper: float = math.nan
    measures: Mapping[str, float] | None = None


class StepAborted(Exception):
    """Raised inside a step to end its run; `stopped` says why: "seconds" or "diverged"."""

    def __init__(self, stopped: str) -> None:
        super().__init__(stopped)
        self.stopped = stopped


class Store(Protocol):
    """Where states are kept, such as a checkpoint file."""

    @property
    def due(self) -> bool:
        """Whether so much time has passed that the state should be saved."""

    def save(self, state: State) -> None:
        """Keep a state in place of the one before."""


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
        self._bounded = getattr(progress, "bounded", None)  # of bars that show bounds
        self._next_progress = _PROGRESS_EVERY

    def iterate(self, steps: Iterable[Step], *, tol: float, limit: int) -> tuple[int, bool]:
        """Take steps until the residual is at most `tol` (never if `tol` is 0), the budget or
        `limit` ends, the steps do (then the method has diverged), or Ctrl-C. Answers the
        iterations done and whether it converged.
        """
        limit = self.clock.iterations(limit)
        done = 0
        self.clock.setting_up = False
        try:
            for step in steps:
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
            self.stopped = "diverged"  # the method itself gave up
        except KeyboardInterrupt:
            self.stopped = "interrupted"
            if done and self.trace.iterations[-1:] != [
                done
            ]:  # it came before the step was recorded
                self.record(step, limit)
        except StepAborted as end:
            self.stopped = end.stopped
        return done, False

    def iterate_saving(
        self,
        steps: Iterable[Step],
        state: Callable[[], State],
        store: Store | None,
        *,
        tol: float,
        limit: int,
    ) -> tuple[int, bool]:
        """As `iterate`, with the answer of `state` kept in `store` every few seconds, and at the
        end unless the steps converged.

        `state` holds everything that the next step depends on, random generators included, so
        that a resumed run ends where an unbroken one does. It is asked between two steps only:
        when Ctrl-C or the clock cuts a step short, the last whole state is kept.
        """
        if store is None:
            return self.iterate(steps, tol=tol, limit=limit)
        snapshots = _Snapshots(steps, lambda: {**state(), **self.kept_beside()}, store)
        done, converged = self.iterate(snapshots, tol=tol, limit=limit)
        if not converged:
            snapshots.save()
        return done, converged

    def kept_beside(self) -> State:
        """What a run itself keeps beside every state of its steps."""
        return {}

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


class _Snapshots:
    """Steps of which the state in between is copied now and then, and saved when it is due."""

    def __init__(self, steps: Iterable[Step], state: Callable[[], State], store: Store) -> None:
        self.steps, self.state, self.store = steps, state, store
        self.between = False  # two steps
        self.latest: State | None = None

    def __iter__(self) -> Iterator[Step]:
        last = -math.inf
        for step in self.steps:
            self.between = True
            yield step  # which puts it in the trace
            if self.store.due:
                self.store.save(self.state())
            if time.monotonic() - last >= _SNAPSHOT_EVERY:
                self.latest = {name: np.array(array) for name, array in self.state().items()}
                last = time.monotonic()
            self.between = False

    def save(self) -> None:
        """Keep the present state, or the last copy if a step was cut short; nothing if no step
        was ever finished.
        """
        state = self.state() if self.between else self.latest
        if state is not None:
            self.store.save(state)
