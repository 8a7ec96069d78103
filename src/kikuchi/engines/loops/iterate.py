"""`iterate`: steps that change a state, until they converge or must end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from numpy.typing import NDArray

from kikuchi.core.run import Run, Step, Store
from kikuchi.engines.loops.state import State


class Saveable(Protocol):
    """What can be saved between two steps: a `State`, or an object with arrays of its own."""

    def to_arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return everything that the next step depends on."""


S = TypeVar("S", bound=State)
W = TypeVar("W", bound=Saveable)


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
    store : where the state is saved every few seconds, and at the end unless it converged.

    >>> from kikuchi.core.budget import Budget
    >>> from kikuchi.core.progress import silent
    >>> from kikuchi.core.trace import Trace
    >>> from kikuchi.engines.loops.state import Iterations
    >>> def halve(state):
    ...     state.done += 1
    ...     return Step(state.done, residual=0.5**state.done)
    >>> run = Run(Budget().start(), silent, Trace())
    >>> iterate(halve, Iterations(), run, tol=0.1, limit=100)
    Ended(iterations=4, converged=True, residual=0.0625)
    """
    residual = math.inf

    def reports() -> Iterator[Step]:
        nonlocal residual
        report = step(state) if first is None else first(state)
        while report is not None:
            residual = report.residual
            yield report
            report = step(state)

    done, converged = run.iterate_saving(reports(), state.to_arrays, store, tol=tol, limit=limit)
    return Ended(done, converged, residual)


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
