"""Sweeps of reweighted messages with a power for each factor, for `alpha` and `fractional`.

Reference: LIU-I6.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from kikuchi.core.arrays import Array
from kikuchi.engines.loops.iterate import iterate_to_best
from kikuchi.engines.loops.state import State
from kikuchi.engines.messages.reweighted import ReweightedMessages
from kikuchi.engines.run import MethodRun, Solution, Step
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.lists import shortened
from kikuchi.methods.method import Method

SMALLEST = 1e-6  # powers closer to 0 than this are mean field to working accuracy
_SWEEPS_PER_STEP = 4
_SINGLE_STEPS = 16


@dataclass(frozen=True)
class PowerMethod(Method):
    """Base class of `alpha` and `fractional`: each factor has a power, 1 / weight."""

    objective_name: ClassVar[str] = "reweighted log Z"
    edge_seconds: ClassVar[float] = 3e-7
    edge_bytes: ClassVar[int] = 272
    takes_start: ClassVar[bool] = True

    @property
    def text(self) -> str:
        """The specification string of the method, with long lists of numbers shortened."""
        return shortened(super().text)


class PowerOptions(Protocol):
    """Protocol of the options used by `pass_messages`."""

    @property
    def schedule(self) -> str:
        """Update all messages at once, or variable by variable."""

    @property
    def damping(self) -> float:
        """Weight on the old message."""

    @property
    def tol(self) -> float:
        """Largest change of a message that counts as converged."""

    @property
    def max_iter(self) -> int:
        """Maximum number of sweeps."""


@dataclass(eq=False)
class _SweptState(State):
    """The messages of the engine after a number of sweeps."""

    messages: Array
    done: int = 0


def _sweeps(
    engine: ReweightedMessages, damping: float, limit: int, tol: float
) -> Callable[[_SweptState], Step | None]:
    """Return the step function: one sweep at first, then a few."""

    def sweep(state: _SweptState) -> Step | None:
        done = state.done
        many = 1 if done < _SINGLE_STEPS or tol == 0 else min(_SWEEPS_PER_STEP, limit - done)
        residual = engine.sweeps(many, damping)
        state.done += many
        return Step(state.done, residual) if math.isfinite(residual) else None

    return sweep


def pass_messages(
    method: PowerOptions,
    graph: FactorGraph,
    run: MethodRun,
    powers: Array,
    steps: Array | float,
    way_out: str,
) -> tuple[Solution, ReweightedMessages]:
    """Sweep with given powers of the factors; `way_out` is the advice if this fails."""
    engine = ReweightedMessages(
        graph, 1.0 / powers, steps, schedule=method.schedule, budget=run.clock.budget, copies=2
    )
    if run.start is not None and run.reduced is not None:
        engine.state = run.start.messages(run.reduced, graph)
    sweep = _sweeps(engine, method.damping, run.clock.iterations(method.max_iter), method.tol)
    state, limit = _SweptState(engine.messages), method.max_iter
    ended = iterate_to_best(sweep, state, run, tol=method.tol, limit=limit)
    if not ended.converged:
        engine.set_messages(state.messages)
    solution = Solution(
        engine.marginals(),
        engine.log_z(),
        converged=ended.converged,
        iterations=ended.iterations,
        factor_tables=engine.factor_marginals,
        engine=engine,
        diagnostics={
            "arithmetic": engine.arithmetic,
            "residual": ended.residual if math.isfinite(ended.residual) else None,
        },
    )
    if not ended.converged:
        solution.warnings.append(
            f"{'diverged' if run.stopped == 'diverged' else 'not converged'}: the best messages "
            f"still change by {ended.residual:.2g}; {way_out}"
        )
    return solution, engine
