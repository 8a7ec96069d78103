"""`iterate`: steps that change a state, until they converge or must end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from numpy.typing import NDArray

from kikuchi.core.named_arrays import Arrays, prefixed
from kikuchi.core.run import Run, Step
from kikuchi.core.trace import Trace
from kikuchi.engines.loops.state import Part, State

_SNAPSHOT_EVERY = 0.2  # seconds


class Store(Protocol):
    """Where the state of some work is saved, such as a checkpoint file."""

    @property
    def due(self) -> bool:
        """Whether so much time has passed that the state should be saved."""

    def save(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Save arrays in place of those before."""

    def resume(self, state: Part, trace: Trace) -> bool:
        """Load what was saved last into `state` and `trace`; False if there is nothing."""


S = TypeVar("S", bound=State)
W = TypeVar("W", bound=Part)


@dataclass(frozen=True)
class Ended:
    """How a loop ended: the number of its last step, whether it converged, and the residual of the
    state that it left behind.
    """

    iterations: int
    converged: bool
    residual: float


def iterate(
    step: Callable[[W], Step | None],
    state: W,
    run: Run,
    *,
    tol: float,
    limit: int,
    first: Callable[[W], Step] | None = None,
    store: Store | None = None,
) -> Ended:
    """Change `state` step by step until it converges, the budget or `limit` ends, or Ctrl-C.

    `run.stopped` says afterwards why the loop ended.

    Parameters
    ----------
    step : changes the state in place and reports on it; None ends the loop as diverged.
    state : what the steps change.
    run : the clock and the trace.
    tol : stop when a residual is at most this; 0 disables the test.
    limit : maximum number of iterations.
    first : a report on the state before the first step.
    store : where the state is saved every few seconds, and at the end. If it
        holds the state of such work, the loop goes on from there, and ends as an unbroken one does.

    >>> from kikuchi.core.budget import Budget
    >>> from kikuchi.core.progress import silent
    >>> from kikuchi.engines.loops.state import Iterations
    >>> def halve(state):
    ...     state.done += 1
    ...     return Step(state.done, residual=0.5**state.done)
    >>> run = Run(Budget().start(), silent, Trace())
    >>> iterate(halve, Iterations(), run, tol=0.1, limit=100)
    Ended(iterations=4, converged=True, residual=0.0625)
    """
    residual, before, begun = math.inf, 0, False
    if store is not None and store.resume(state, run.trace) and len(run.trace):
        before, residual, begun = run.trace.iterations[-1], run.trace.last_residual, True
        if tol > 0 and residual <= tol:
            return Ended(before, True, residual)
        if before >= run.clock.iterations(limit):
            run.stopped = "iterations"
            return Ended(before, False, residual)

    def reports() -> Iterator[Step]:
        nonlocal residual
        report = step(state) if begun or first is None else first(state)
        while report is not None:
            if not report.partial:
                residual = report.residual
            yield report
            report = step(state)

    saver = None if store is None else _Saver(reports(), state, run, store)
    done, converged = run.iterate(saver or reports(), tol=tol, limit=limit, done=before)
    if saver is not None:
        saver.save()
    return Ended(done, converged, residual)


class _Saver:
    """Steps between which the state is saved when that is due.

    When Ctrl-C or the clock cuts a step short, the last whole state is saved: a copy that is made a
    few times a second, unless the state knows that it is whole.
    """

    def __init__(self, steps: Iterator[Step], state: Part, run: Run, store: Store) -> None:
        self.steps, self.state, self.run, self.store = steps, state, run, store
        self.copies = getattr(state, "whole", None) is None
        self.between = False  # two steps
        self.latest: Arrays | None = None

    def __iter__(self) -> Iterator[Step]:
        last = -math.inf
        for step in self.steps:
            self.between = True
            yield step  # which puts it in the trace
            if self.store.due and (self.copies or self._is_whole):
                self.store.save(self._arrays())
            if self.copies and time.monotonic() - last >= _SNAPSHOT_EVERY:
                self.latest = self._arrays()
                last = time.monotonic()
            self.between = False

    @property
    def _is_whole(self) -> bool:
        return bool(getattr(self.state, "whole", False))

    def _arrays(self) -> Arrays:
        """The state, and the trace up to its last iteration."""
        arrays, trace = self.state.to_arrays(), self.run.trace.arrays()
        if "done" in arrays:
            shown = trace["iterations"] <= arrays["done"]
            trace = {name: column[shown] for name, column in trace.items()}
        return {**arrays, **prefixed(trace, "trace")}

    def save(self) -> None:
        """Save the present state, or the last copy if a step was cut short; nothing if no step
        was ever finished.
        """
        whole = self.between if self.copies else self._is_whole
        arrays = self._arrays() if whole else self.latest
        if arrays is not None:
            self.store.save(arrays)


def iterate_to_best(
    step: Callable[[S], Step | None], state: S, run: Run, *, tol: float, limit: int
) -> Ended:
    """As `iterate`; without convergence the state of the smallest residual is restored."""
    best, least = state.copy(), math.inf

    def watched(state: S) -> Step | None:
        nonlocal least
        report = step(state)
        if report is not None and report.residual <= least:
            least = report.residual
            best.assign(state)
        return report

    ended = iterate(watched, state, run, tol=tol, limit=limit)
    if not ended.converged:
        state.assign(best)
    return Ended(ended.iterations, ended.converged, least)
