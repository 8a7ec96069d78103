"""Penalised maximisation of a smooth objective of the log-tables by L-BFGS, one step at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar

import numpy as np

from kikuchi.core.arrays import Array, Mask
from kikuchi.core.lbfgs import Lbfgs
from kikuchi.core.run import Step, StepAborted
from kikuchi.engines.loops.iterate import iterate
from kikuchi.engines.loops.lbfgs import HeldDescent
from kikuchi.engines.loops.state import State
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.data import Data
from kikuchi.learning.learner import FitRun, Learned
from kikuchi.learning.ties import Parameters

Objective = Callable[[Array], tuple[float, Array]]  # value and gradient at some log-tables

_SUSPICIOUS = 3e-3  # a next step that would move a parameter so far is looked into
_FIRST_ROWS = 256  # in which suspected parameters are looked for
_FAR = 0.1  # how far theta moves at least, without a maximum, while the gradient falls to a tenth
_STEADY = 0.4  # and at least this fraction of how far it moved while it fell to a tenth before
_MOST_STEPS = 30  # of looking into it


@dataclass(eq=False)
class AscentState(State):
    """L-BFGS, which is None before the first evaluation; what the objective remembers between
    calls; and the number of steps.
    """

    varying: ClassVar[tuple[str, ...]] = ("descent/",)

    descent: HeldDescent
    beside: State
    done: int = 0


@dataclass(eq=False)
class Ascent:
    """Maximise `objective(log-tables) - l2 / 2 |theta|^2 - l1 |theta|_1` by L-BFGS.

    `objective` is per row of `data`; `lower`, if given, answers a bound on the log-likelihood that
    is certified at the present point, for the trace. `accepted` is told the log-tables of every
    step that is kept, and `beside` is what the objective remembers between calls. Where the line
    search finds no better point, the ascent is `stuck` and has not converged.
    Nor has it where the objective has no maximum at finite parameters, which is looked for in
    two ways: a state that the model allows and no row shows, and parameters that still run away
    while the gradient falls because probabilities saturate.
    """

    graph: FactorGraph
    data: Data
    parameters: Parameters
    objective: Objective
    _: KW_ONLY
    l1: float = 0.0
    l2: float = 0.0
    longest: float = np.inf
    memory: int = 10
    lower: Callable[[], float] | None = None
    accepted: Callable[[Array], None] | None = None
    beside: State = field(default_factory=State)

    def __post_init__(self) -> None:
        start = self.parameters.start
        descent = HeldDescent(
            self._cost, start, begun=False, l1=self.l1, longest=self.longest, memory=self.memory
        )
        self.state = AscentState(descent, self.beside)
        self.stuck = False

    @property
    def descent(self) -> Lbfgs | None:
        """L-BFGS; None before the first evaluation."""
        return self.state.descent.value

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
        ended = iterate(
            self._step, self.state, run, tol=tol, limit=limit, first=self._begin, store=run.store
        )
        learned = Learned(self.tables, converged=ended.converged, iterations=ended.iterations)
        learned.warnings += few_rows(self.graph, self.data, self.parameters, self.l1, self.l2)
        if self.descent is None:
            return learned
        learned.objective = -self.descent.value
        learned.diagnostics["evaluations"] = self.descent.evaluations
        if self.l1 == self.l2 == 0:
            slope = -self.descent.gradient
            check_bounded(learned, run, self.graph, self.data, self.parameters, slope)
            if learned.converged:
                self._follow(learned, run)
        if self.stuck and not ended.converged:
            learned.warnings.append(
                f"no better point along the gradient, though its largest component is "
                f"{self.residual:.1e} (tol {tol:g}): objective and gradient agree no further"
            )
        return learned

    def _follow(self, learned: Learned, run: FitRun) -> None:
        """Where the next step would still be long: go on, and see whether it ever ends.

        Near a maximum theta is as far from it as the gradient is large, so that every tenth of the
        gradient is a tenth of the way before. Without one, probabilities that saturate bring the
        gradient down, by the same factor for every equal length of the way.
        """
        assert self.descent is not None
        on = Lbfgs(
            self._cost,
            self.point,
            longest=self.longest,
            memory=self.memory,
            state=self.descent.state,
        )
        least_row = self.data.weights[self.data.weights > 0].min() / self.data.total
        first = on.residual
        if first > 0.1 * least_row:
            return  # one row more or less would matter as much: the gradient says nothing yet
        if np.abs(on.memory.direction(on.gradient)).max(initial=0.0) < _SUSPICIOUS:
            return
        rates = []
        for tenth in (0.1, 0.01):
            start, before = on.point, on.residual
            try:
                for _ in on.steps(_MOST_STEPS, tol=tenth * first):
                    if run.clock.expired:
                        return
            except StepAborted:
                return
            if not on.converged or not 0 < on.residual < before:
                return
            tenths = float(np.log10(before / on.residual))
            rates.append(float(np.linalg.norm(on.point - start)) / tenths)
        if rates[1] < max(_FAR, _STEADY * rates[0]):
            return
        k = int(np.abs(on.point - self.point).argmax())
        why = (
            f"the log-tables moved on as steadily while the gradient fell from {first:.1e} to "
            f"{on.residual:.1e}: the data are separable, so that probabilities run to 0 and 1"
        )
        run_away(learned, run, self.graph, self.data, self.parameters, k, why)

    def _begin(self, state: AscentState) -> Step:
        """The first point."""
        state.descent.begin()
        return self._report(state)

    def _step(self, state: AscentState) -> Step | None:
        """One step up; None where no better point is found."""
        if not state.descent.now.step():
            self.stuck = True
            return None
        state.done += 1
        return self._report(state)

    def _report(self, state: AscentState) -> Step:
        descent = state.descent.now
        if self.accepted is not None:
            self.accepted(self.tables)
        lower = np.nan if self.lower is None else self.lower()
        return Step(state.done, descent.residual, -descent.value, lower=lower)

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


# ---------------------------------------------------------------------- no finite maximum


def check_bounded(
    learned: Learned,
    run: FitRun,
    graph: FactorGraph,
    data: Data,
    parameters: Parameters,
    slope: Array,
) -> None:
    """Take back convergence where no finite parameters are a maximum, since some never can be.

    The gradient by the log-weight of a state is how often the rows show it less how probable the
    model says it is. If no row does, the gradient is below 0 at any finite log-weight, and only
    rounding or a tolerance ends the ascent. `slope` is the unpenalised gradient by theta.
    """
    never = np.flatnonzero(_never_seen(graph, data, parameters, slope < 0))
    if never.size:
        rest = f" (and {never.size - 1} more)" if never.size > 1 else ""
        why = f"no row shows that state, which the model allows{rest}"
        run_away(learned, run, graph, data, parameters, int(never[0]), why)


def run_away(
    learned: Learned,
    run: FitRun,
    graph: FactorGraph,
    data: Data,
    parameters: Parameters,
    parameter: int,
    why: str,
) -> None:
    """Say that a parameter runs to infinity, and what to do."""
    if learned.converged:
        learned.converged, run.stopped = False, "diverged"
    learned.warnings.append(
        f"no finite maximum: {_described(graph, parameters, parameter)} runs to infinity, as {why};"
        f" give a small l2, such as l2={1.0 / data.total:.1g} (learner gradient or pseudo), or tie "
        "parameters"
    )


def _never_seen(graph: FactorGraph, data: Data, parameters: Parameters, suspects: Mask) -> Mask:
    """Which suspected parameters can only lower the probability of what the rows show.

    Rows are counted in ever larger blocks, as the first often show all states that are suspected.
    """
    hidden = np.any(data.states < 0, axis=0)
    unknown = np.logical_or.reduceat(hidden[graph.scopes], graph.scope_offsets[:-1])
    counts = np.repeat(unknown, np.diff(graph.table_offsets)).astype(np.float64)
    if parameters.matrix is not None:
        suspects = suspects & (np.asarray((parameters.matrix < 0).sum(axis=0)).ravel() == 0)
    never, begin, end = suspects, 0, _FIRST_ROWS
    while begin < data.n_rows and never.any():
        block = data.like(data.states[begin:end], data.weights[begin:end])
        counts += block.factor_counts(graph)
        shown = (
            counts[parameters.free] if parameters.matrix is None else parameters.matrix.T @ counts
        )
        never = suspects & np.asarray(shown == 0)
        begin, end = end, 8 * end
    return never


def _described(graph: FactorGraph, parameters: Parameters, k: int) -> str:
    """Words for a parameter: the first table entry that it changes."""
    if parameters.matrix is None:
        entry = int(np.flatnonzero(parameters.free)[k])
    else:
        entry = int(parameters.matrix[:, [k]].nonzero()[0][0])
    a = int(np.searchsorted(graph.table_offsets, entry, side="right")) - 1
    cell = np.unravel_index(entry - int(graph.table_offsets[a]), graph.shape(a))
    states = (
        f"{graph.label(v)}={x if graph.states is None else graph.states[v][x]}"
        for v, x in zip(graph.scope(a), map(int, cell), strict=True)
    )
    return f"the log-weight of {', '.join(states)} in factor {a}"


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
    orders, free = np.diff(graph.scope_offsets), 0.0
    for order in np.unique(orders):
        starts = graph.scope_offsets[:-1][orders == order]
        scopes = np.sort(graph.scopes[starts[:, None] + np.arange(order)], axis=1)
        free += float(np.prod(cards[np.unique(scopes, axis=0)] - 1, axis=1).sum())
    return int(min(free, parameters.n_free))
