"""Damped sweeps of belief propagation: the steps of `bp` and `loopy-is`.

Reference: TEH-M23.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Protocol

from kikuchi.core.arrays import U4
from kikuchi.engines.loops.state import Iterations
from kikuchi.engines.messages.ratios import RatioMessages
from kikuchi.engines.messages.tables import Damping, TableMessages
from kikuchi.engines.run import MethodRun, Step


class SweepOptions(Protocol):
    """Protocol of the options used by the steps."""

    @property
    def schedule(self) -> str:
        """Order of the updates; the schedule tree is not damped."""

    @property
    def damping(self) -> float:
        """Weight on the old message."""

    @property
    def damping_kind(self) -> str:
        """Whether to mix probabilities or their logarithms."""

    @property
    def damping_end(self) -> float | None:
        """Weight on the old message after `anneal` iterations."""

    @property
    def anneal(self) -> int:
        """Iterations over which damping changes to `damping_end`."""

    @property
    def tol(self) -> float:
        """Largest change of a message that counts as converged."""

    @property
    def max_iter(self) -> int:
        """Maximum number of sweeps."""


def damped_sweeps(
    options: SweepOptions,
    messages: RatioMessages | TableMessages,
    run: MethodRun,
    orders: Iterator[U4],
    *,
    traced: bool,
) -> Callable[[Iterations], Step]:
    """Return the step function of a run: one sweep in the order of the schedule, or a few parallel
    ones.

    Parameters
    ----------
    options : SweepOptions
        Options of the method.
    messages : RatioMessages or TableMessages
        Messages to update.
    run : MethodRun
        Run whose clock limits the sweeps.
    orders : iterator of arrays of int
        The order of the variables in each sweep.
    traced : bool
        Record the Bethe log Z at every step.
    """
    limit, schedule, tol = (
        run.clock.iterations(options.max_iter),
        options.schedule,
        options.tol,
    )
    damping = Damping(options.damping, options.damping_kind, options.damping_end, options.anneal)

    def sweep(state: Iterations) -> Step:
        sweeps, weight = 1, 0.0 if schedule == "tree" else damping.at(state.done)
        if schedule == "residual":
            residual = messages.residual(weight, damping.code, tol, run.clock)
        elif schedule == "parallel":
            sweeps = min(limit - state.done, messages.sweeps_per_call(tol))
            residual = messages.parallel(sweeps, weight, damping.code)
        else:
            residual = messages.sequential(next(orders), weight, damping.code)
        if schedule != "tree":
            residual = messages.settled(residual, tol)
        state.done += sweeps
        return Step(
            state.done, residual, messages.log_z(messages.marginals()) if traced else math.nan
        )

    return sweep
