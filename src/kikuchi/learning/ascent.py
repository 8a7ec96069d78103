"""Climbing a smooth objective of the log-tables, penalised, one saved step at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.lbfgs import Lbfgs
from kikuchi.core.run import Step
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.checkpoint import State
from kikuchi.learning.data import Data
from kikuchi.learning.learner import FitRun
from kikuchi.learning.ties import Parameters

Array = NDArray[np.float64]
Objective = Callable[[Array], tuple[float, Array]]  # value and gradient at some log-tables
Extra = Callable[[], dict[str, NDArray[np.generic]]]

_ROUNDING = 1e-5  # slope below which a search that finds nothing better has met rounding


class Ascent:
    """Maximise `objective(log-tables) - l2 / 2 |theta|^2 - l1 |theta|_1` by L-BFGS.

    `objective` is per row; `lower`, if given, answers a bound on the log-likelihood that is
    certified at the present point, for the trace. `accepted` is told the log-tables of every step
    that is kept, and `extra` adds to the saved state what the objective remembers between calls.
    """

    def __init__(
        self,
        parameters: Parameters,
        objective: Objective,
        *,
        l1: float = 0.0,
        l2: float = 0.0,
        longest: float = np.inf,
        state: State | None = None,
        lower: Callable[[], float] | None = None,
        accepted: Callable[[Array], None] | None = None,
        extra: Extra | None = None,
    ) -> None:
        self.parameters = parameters
        self.l2 = l2
        self.lower = lower
        self.accepted = accepted
        self.extra = extra
        self._inner = objective
        self.done = 0 if state is None else int(state["done"])
        self.stuck = False
        self.descent = Lbfgs(
            self._cost, parameters.start, l1=l1, longest=longest, memory=10, state=state
        )

    @property
    def tables(self) -> Array:
        """The log-tables of the present point."""
        return self.parameters.tables(self.descent.point)

    @property
    def value(self) -> float:
        """The penalised objective at the present point."""
        return -self.descent.value

    def climb(self, run: FitRun, *, tol: float, limit: int) -> tuple[int, bool]:
        """Steps until the largest slope is at most `tol`; iterations done and whether it is."""
        done, converged = run.iterate_saving(
            self._steps(), self._state, run.checkpoint, tol=tol, limit=limit
        )
        if self.stuck and self.descent.residual <= max(tol, _ROUNDING):
            converged, run.stopped = True, "converged"
        return done, converged

    def _steps(self) -> Iterator[Step]:
        yield self._report()
        while True:
            if not self.descent.step():
                self.stuck = True
                return
            self.done += 1
            yield self._report()

    def _report(self) -> Step:
        if self.accepted is not None:
            self.accepted(self.tables)
        lower = np.nan if self.lower is None else self.lower()
        return Step(self.done, self.descent.residual, self.value, lower=lower)

    def _state(self) -> dict[str, NDArray[np.generic]]:
        more = {} if self.extra is None else self.extra()
        return {**self.descent.state, "done": np.array(self.done), **more}

    def _cost(self, theta: Array) -> tuple[float, Array]:
        tables = self.parameters.tables(theta)
        value, gradient = self._inner(tables)
        slope = self.l2 * theta - self.parameters.pull_back(tables, gradient)
        return 0.5 * self.l2 * float(theta @ theta) - value, slope


def few_rows(
    graph: FactorGraph, data: Data, parameters: Parameters, l1: float, l2: float
) -> list[str]:
    """A warning where the rows are fewer than the free parameters and nothing holds these."""
    free = _degrees_of_freedom(graph, parameters)
    if data.total >= free or l1 > 0 or l2 > 0:
        return []
    return [
        f"{data.total:g} rows for {free} free parameters and no prior: the fit follows chance; "
        "give l2 or l1, or tie parameters"
    ]


def _degrees_of_freedom(graph: FactorGraph, parameters: Parameters) -> int:
    """Parameters that are not fixed by normalisation; an upper bound where scopes overlap."""
    if parameters.matrix is not None:
        return parameters.n_free
    cards = graph.cardinalities.astype(np.float64)
    free = 0.0
    for scope in {frozenset(graph.scope(a)) for a in range(graph.n_factors)}:
        free += float(np.prod(cards[list(scope)] - 1))
    return int(min(free, parameters.n_free))
