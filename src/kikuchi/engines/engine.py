"""`Engine`: what every engine of inference does, whatever approximation it makes.

Log-tables go in; marginals, marginals of the factors, log Z and the linear response of these come
out. Between the two a number of sweeps brings the engine to a fixed point. What it has reached is
its state, from which it, or an engine of the same kind for other tables, can go on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Clock
from kikuchi.engines.loops.state import State
from kikuchi.engines.response.linear_response import Response
from kikuchi.graphs.factor_graph import FactorGraph


class Engine(Protocol):
    """Inference on one graph, for any tables."""

    @property
    def graph(self) -> FactorGraph:
        """The model, of which the variables and scopes count: other tables may have been set."""

    @property
    def state(self) -> State:
        """A copy of what has been reached, which can be set again, also under other tables."""

    def set_tables(self, log_tables: Array) -> None:
        """Use these log-tables, flat as those of the graph, and go on from the present state."""

    def sweep(self, damping: float = 0.0) -> float:
        """Take one step towards a fixed point and return how far it still moves; 0 if exact."""

    def marginals(self) -> Array:
        """Return the marginals of all variables, flat."""

    def factor_marginals(self) -> Array:
        """Return the marginals of all factors, flat as the tables."""

    def log_z(self) -> float:
        """Return the estimate of log Z, without the constant of the graph."""

    def response(self) -> Response:
        """Return how the marginals at this fixed point move with the tables."""


@dataclass(frozen=True)
class Settled:
    """How an engine came to rest: the sweeps taken, and how far it moved in the last one."""

    sweeps: int
    residual: float


def settle(
    engine: Engine, clock: Clock, *, tol: float, limit: int, damping: float = 0.0
) -> Settled:
    """Sweep until the engine moves by at most `tol`, at most `limit` times, within the time."""
    residual, done = math.inf, 0
    while residual > tol and done < limit:
        residual = engine.sweep(damping)
        done += 1
        if clock.expired:
            break
    return Settled(done, residual)
