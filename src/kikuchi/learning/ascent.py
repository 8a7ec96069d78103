"""Penalised maximisation of a smooth objective of the log-tables by L-BFGS, one step at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.lbfgs import Lbfgs
from kikuchi.core.run import State, Step
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.data import Data
from kikuchi.learning.learner import FitRun, Learned
from kikuchi.learning.ties import Parameters

Objective = Callable[[Array], tuple[float, Array]]  # value and gradient at some log-tables

_ROUNDING = 1e-5  # largest gradient of a point that differs from the maximum by rounding only


@dataclass(eq=False)
class Ascent:
    """Maximise `objective(log-tables) - l2 / 2 |theta|^2 - l1 |theta|_1` by L-BFGS.

    `objective` is per row; `lower`, if given, answers a bound on the log-likelihood that is
    certified at the present point, for the trace. `accepted` is told the log-tables of every step
    that is kept, and `extra` adds to the saved state what the objective remembers between calls.
    Where the line search finds no better point (`stuck`), the ascent counts as converged if no
    component of the gradient is larger than `rounding`.
    """

    parameters: Parameters
    objective: Objective
    _: KW_ONLY
    l1: float = 0.0
    l2: float = 0.0
    longest: float = np.inf
    memory: int = 10
    rounding: float = _ROUNDING
    lower: Callable[[], float] | None = None
    accepted: Callable[[Array], None] | None = None
    extra: Callable[[], State] | None = None

    def __post_init__(self) -> None:
        self.descent: Lbfgs | None = None  # before the first evaluation
        self.iterations = 0
        self.stuck = False

    @property
    def point(self) -> Array:
        """The parameters theta reached."""
        return self.parameters.start if self.descent is None else self.descent.point

    @property
    def tables(self) -> Array:
        """The log-tables of the present point."""
        return self.parameters.tables(self.point)

    @property
    def residual(self) -> float:
        """The largest component of the gradient."""
        return np.inf if self.descent is None else self.descent.residual

    def maximise(self, run: FitRun, *, tol: float, limit: int) -> Learned:
        """Steps until no component of the gradient is larger than `tol`."""
        steps = self._steps(run.resumed)
        done, converged = run.iterate_saving(
            steps, self._state, run.checkpoint, tol=tol, limit=limit
        )
        if self.stuck and self.residual <= max(tol, self.rounding):
            converged, run.stopped = True, "converged"
        learned = Learned(self.tables, converged=converged, iterations=done)
        if self.descent is not None:
            learned.objective = -self.descent.value
            learned.diagnostics["evaluations"] = self.descent.evaluations
        return learned

    def _steps(self, resumed: State | None) -> Iterator[Step]:
        self.iterations = 0 if resumed is None else int(resumed["done"])
        self.descent = descent = Lbfgs(
            self._cost,
            self.parameters.start,
            l1=self.l1,
            longest=self.longest,
            memory=self.memory,
            state=resumed,
        )
        yield self._report(descent)
        while descent.step():
            self.iterations += 1
            yield self._report(descent)
        self.stuck = True

    def _report(self, descent: Lbfgs) -> Step:
        if self.accepted is not None:
            self.accepted(self.tables)
        lower = np.nan if self.lower is None else self.lower()
        return Step(self.iterations, descent.residual, -descent.value, lower=lower)

    def _state(self) -> State:
        assert self.descent is not None
        more = {} if self.extra is None else self.extra()
        return {**self.descent.state, "done": np.array(self.iterations), **more}

    def _cost(self, theta: Array) -> tuple[float, Array]:
        value, gradient = penalised(self.objective, self.parameters, theta, self.l2)
        return -value, -gradient


def penalised(
    objective: Objective, parameters: Parameters, theta: Array, l2: float
) -> tuple[float, Array]:
    """`objective(log-tables) - l2 / 2 |theta|^2` and its gradient by theta."""
    tables = parameters.tables(theta)
    value, gradient = objective(tables)
    slope = parameters.pull_back(tables, gradient) - l2 * theta
    return value - 0.5 * l2 * float(theta @ theta), slope


def few_rows(
    graph: FactorGraph, data: Data, parameters: Parameters, l1: float, l2: float
) -> list[str]:
    """A warning where the rows are fewer than the free parameters and no penalty regularises."""
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
