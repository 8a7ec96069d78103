"""Unified propagation and scaling: the Bethe free energy, minimised with certainty (TEH-I16, I17).

Pin enough variables to cut all cycles. The Bethe free energy is then a sum of convex problems on
trees, each solved by one walk that mixes propagation and scaling. Pin other variables and repeat:
the free energy never rises.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.errors import MethodError
from kikuchi.graphs.cutsets import cuts_cycles, greedy_cutsets, lattice_cutsets
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.inference.kernels import bp_messages
from kikuchi.inference.local_consistency import starting_marginals
from kikuchi.inference.method import Method, Run, Solution, Step, option
from kikuchi.inference.pinned_messages import (
    PinnedMessages,
    Schedule,
    UnderflowError,
    Walks,
    by_original,
    contradiction,
    free_energy_limit,
    make_schedule,
    pins_of,
)

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_NAMED = ("auto", "rows-columns", "columns", "greedy")
_SMALL = 1e-6
_STALLED = 0.99
_STATIONARY = 1e-5  # largest gradient, as a change of a probability, that counts as none
_START_SWEEPS = 20
_START_DAMPING = 0.5
_INNER = 0.1  # trees are solved to this share of the tolerance at last,
_LOOSE = 0.01  # before that to this share of how far the marginals moved last,
_LOOSEST = 1e-6  # and never worse than this; an error enters the free energy squared


@dataclass(frozen=True)
class UnifiedScaling(Method):
    """Convergent minimisation of the Bethe free energy, with observed marginals (TEH-I17, WH-I5).

    Coordinate descent: in each iteration one set of variables is pinned at its current marginals,
    so that with the observed ones all cycles are cut, and the rest is solved to the optimum by
    UPS-T. The Bethe free energy never rises and the beliefs always agree with each other, with the
    observed marginals and, in the limit, with a stationary point: a fixed point of `bp` or
    `loopy-is`, also where those do not converge. `diagnostics["stationarity"]` is how far the
    answer is from that. Any factors are allowed, but zeros can tie variables of different sets so
    that none can move without the others; the run is then not marked as converged.

    `log_z` and the trace are minus the Bethe free energy (see `loopy-is` for what that means with
    observed marginals). `clamps` says which variables are pinned in turn: on grids even columns,
    odd rows, odd columns, even rows (`rows-columns`) or even and odd columns (`columns`); `greedy`
    finds small sets for any graph; `auto` is rows-columns on a grid and greedy elsewhere. In Python
    the sets can be given, `clamps=[[0], [2]]`, and as a text too: `0/2`, with + between variables.

    >>> import kikuchi as kk
    >>> weights = {(0, 1): 2.0, (1, 2): -1.5, (2, 3): 1.0, (0, 3): 3.0}
    >>> cycle = kk.boltzmann(weights, [0.1, -0.4, 0.3, -1.0])
    >>> beliefs = UnifiedScaling(clamps=[[0], [2]]).run(cycle)
    >>> [round(x, 6) for x in beliefs.trace.objective[:4]]
    [3.956996, 4.846043, 4.846323, 4.846323]
    """

    name: ClassVar[str] = "ups"
    summary: ClassVar[str] = "unified propagation and scaling: Bethe, always converges"
    objective_name: ClassVar[str] = "Bethe log Z"
    takes_observed_marginals: ClassVar[bool] = True

    clamps: str | Sequence[Sequence[int]] = option(
        "auto", "sets pinned in turn: auto, rows-columns, columns, greedy, or such as 0+4/2"
    )
    start: Literal["uniform", "bp"] = option(
        "uniform", "first marginals: uniform, or after a few damped sweeps of belief propagation"
    )
    tol: float = option(
        1e-9, "largest change of a probability in one round of all sets to stop at", above=0
    )
    max_iterations: int = option(10000, "most sets pinned", low=1)
    max_walks: int = option(100000, "most walks over a tree in one iteration", low=1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "clamps", _clamps_text(self.clamps))
        super().__post_init__()

    def _solve(self, graph: FactorGraph, run: Run) -> Solution:
        observed, _ = pins_of(graph, run.targets)
        sets = self._sets(graph, run, observed)
        descent = _Descent(self, graph, run, sets)
        iterations, converged = run.iterate(
            descent.steps(), tol=self.tol, limit=self.max_iterations
        )
        return descent.solution(iterations, converged)

    # ------------------------------------------------------------------ sets

    def _sets(self, graph: FactorGraph, run: Run, observed: Mask) -> list[Mask]:
        if cuts_cycles(graph, observed):
            return [np.zeros_like(observed)]
        if self.clamps == "greedy":
            return greedy_cutsets(graph, observed)
        if self.clamps in _NAMED:
            sets = self._lattice_sets(graph, observed)
            return greedy_cutsets(graph, observed) if sets is None else sets
        return self._given_sets(graph, run, observed)

    def _lattice_sets(self, graph: FactorGraph, observed: Mask) -> list[Mask] | None:
        from kikuchi.graphs.shapes import grid_shape

        shape = grid_shape(graph)
        if shape is not None:
            both = self.clamps != "columns"
            sets = [s & ~observed for s in lattice_cutsets(*shape, both=both)]
            if all(cuts_cycles(graph, s | observed) for s in sets):
                return sets
        if self.clamps == "auto":
            return None
        raise MethodError(
            f"method ups: clamps={self.clamps} needs a grid with open borders and one factor for "
            "each pair; use clamps=greedy"
        )

    def _given_sets(self, graph: FactorGraph, run: Run, observed: Mask) -> list[Mask]:
        assert isinstance(self.clamps, str)
        sets = []
        for number, text in enumerate(self.clamps.split("/")):
            chosen = np.zeros(graph.n_variables, dtype=bool)
            asked = [int(v) for v in text.split("+") if v]
            place = np.searchsorted(run.variables, asked)
            known = place < len(run.variables)
            known[known] = run.variables[place[known]] == np.array(asked, dtype=np.int64)[known]
            chosen[place[known]] = True  # the others are observed, or not in this graph
            if not cuts_cycles(graph, chosen | observed):
                raise MethodError(
                    f"method ups: clamp set {number} ({text or 'empty'}) leaves a cycle; "
                    "add variables to it, or use clamps=greedy"
                )
            sets.append(chosen & ~observed)
        always = np.logical_and.reduce(sets)
        if always.any():
            v = int(run.variables[np.flatnonzero(always)[0]])
            raise MethodError(
                f"method ups: variable {v} is in every clamp set and would never move; "
                "leave it out of one"
            )
        return sets


@dataclass(frozen=True)
class UnifiedTreeScaling(Method):
    """Exact inference with observed marginals on forests, by one mixed walk (TEH-I16, UPS-T).

    Needs observed variables that cut every cycle; a forest has none to cut. The problem is then
    convex with one optimum. A walk over the paths between observed variables scales each of them
    once, every time at its exact current marginal, at the cost of one message an edge and
    direction. On a forest the answer is exact; elsewhere it is the Bethe approximation.

    The trace is minus the dual value, which falls to `log_z` = minus the least Bethe free energy.
    `diagnostics` counts messages and scalings, in all and in one walk.

    >>> import kikuchi as kk
    >>> chain = kk.boltzmann({(0, 1): 1.0, (1, 2): -2.0}, [0.5, -0.3, 0.2])
    >>> beliefs = kk.infer(chain, "ups-t", evidence={0: [0.3, 0.7], 2: [0.6, 0.4]})
    >>> beliefs[1].round(6).tolist(), round(beliefs.log_z, 6)
    ([0.569402, 0.430598], 2.36008)
    """

    name: ClassVar[str] = "ups-t"
    summary: ClassVar[str] = "unified propagation and scaling on forests, exact"
    objective_name: ClassVar[str] = "minus the dual value"
    takes_observed_marginals: ClassVar[bool] = True

    tol: float = option(1e-10, "largest distance of a marginal from its target", above=0)
    max_iterations: int = option(1_000_000, "most walks over a tree", low=1)

    def _solve(self, graph: FactorGraph, run: Run) -> Solution:
        observed, _ = pins_of(graph, run.targets)
        if not cuts_cycles(graph, observed):
            raise MethodError(
                "method ups-t needs a graph whose cycles are all cut by variables with observed "
                "marginals; use ups"
            )
        descent = _Descent(self, graph, run, [np.zeros_like(observed)])
        iterations, converged = run.iterate(
            descent.walks(), tol=self.tol, limit=self.max_iterations
        )
        return descent.solution(iterations, converged)


class _Descent:
    """A run of UPS: current marginals, the messages behind them, and counts."""

    def __init__(
        self,
        method: UnifiedScaling | UnifiedTreeScaling,
        graph: FactorGraph,
        run: Run,
        sets: list[Mask],
    ) -> None:
        self.method = method
        self.graph = graph
        self.run = run
        self.sets = sets
        self.observed, self.beliefs = pins_of(graph, run.targets)
        self.zeros = not bool(np.all(np.isfinite(graph.log_tables)))
        self.limit = free_energy_limit(graph)
        self.limit += 1e-6 * (1.0 + abs(self.limit))
        self.schedules: list[Schedule | None] = [None] * len(sets)
        self.messages = self._new_messages(bp_messages.SUM)
        self.saved: tuple[NDArray[Any], ...] | None = None
        self.counts = {"walks": 0, "messages": 0, "scalings": 0}

    def _new_messages(self, mode: int) -> PinnedMessages:
        try:
            return PinnedMessages(self.graph, mode)
        except UnderflowError:
            return PinnedMessages(self.graph, bp_messages.LOG_SUM)

    # ------------------------------------------------------------------ UPS

    def steps(self) -> Iterator[Step]:
        """Pin one set after the other and solve the rest."""
        self._begin()
        method, count = self.method, len(self.sets)
        assert isinstance(method, UnifiedScaling)
        moves: deque[float] = deque([math.inf] * count, maxlen=count)
        done = 0
        while True:
            before = self.beliefs
            tol = max(_INNER * method.tol, min(_LOOSE * max(moves), _LOOSEST))
            tol = _INNER * method.tol if count == 1 else tol
            worst = self._solve_set(done % count, tol, method.max_walks)
            done += 1
            if self.run.clock.expired and worst > tol:
                return  # the trees are half done: the last complete iteration is the answer
            self.saved = self.messages.save()
            moves.append(worst if count == 1 else max(worst, _distance(before, self.beliefs)))
            residual = max(moves)
            log_z = self.messages.log_z(self.beliefs)
            yield Step(done, residual if math.isfinite(residual) else math.nan, log_z)

    def _begin(self) -> None:
        """First marginals; any are possible together unless tables have zeros."""
        if len(self.sets) == 1:
            return
        if self.zeros:
            limit = self.run.clock.budget.seconds
            left = None if limit is None else limit - self.run.clock.seconds
            self.beliefs = starting_marginals(self.graph, self.run.targets, left)
            for v, target in self.run.targets.items():
                offsets = self.graph.state_offsets
                self.beliefs[offsets[v] : offsets[v + 1]] = target
        elif isinstance(self.method, UnifiedScaling) and self.method.start == "bp":
            self.beliefs = self._propagated(bp_messages.SUM)

    def _propagated(self, mode: int) -> Array:
        """Marginals after some damped sweeps of loopy scaling."""
        try:
            messages = self._new_messages(mode)
            messages.pin(self.observed, self.beliefs)
            order = np.arange(self.graph.n_variables, dtype=np.uint32)
            for _ in range(_START_SWEEPS):
                messages.sequential(order, _START_DAMPING, bp_messages.LINEAR)
            return messages.variable_beliefs()
        except UnderflowError:
            return self._propagated(bp_messages.LOG_SUM)

    def _solve_set(self, number: int, tol: float, max_walks: int) -> float:
        """Solve all trees with one set pinned; answers the residual that is left."""
        try:
            self.messages.pin(self.sets[number] | self.observed, self.beliefs)
            schedule = self._schedule(number)
            self.messages.collect(schedule)
            progress = Walks.begin(schedule)
            floor = math.inf
            while progress.worst > tol and progress.most < max_walks:
                loops = min(schedule.loops_per_call, max_walks - progress.most)
                self.messages.scale(schedule, progress, loops, tol)
                if progress.worst <= tol or self.run.clock.expired:
                    break
                if self.run.targets:
                    self._refuse_contradiction(schedule)
                if self.zeros and _STALLED * floor < progress.worst < _SMALL:
                    break  # zeros tie the pins, and they agree only so far
                floor = progress.worst
            self.messages.distribute(schedule)
            self._count(schedule, progress)
            self.beliefs = self.messages.variable_beliefs()
            return 0.0 if progress.worst < _SMALL and self.zeros else progress.worst
        except UnderflowError:
            self.messages = PinnedMessages(self.graph, bp_messages.LOG_SUM)
            return self._solve_set(number, tol, max_walks)

    def _schedule(self, number: int) -> Schedule:
        found = self.schedules[number]
        if found is None:
            found = make_schedule(self.graph, self.sets[number] | self.observed)
            assert found is not None  # the sets were checked
            self.schedules[number] = found
        return found

    def _refuse_contradiction(self, schedule: Schedule) -> None:
        """A dual value above the limit proves that nothing meets the targets."""
        self.messages.distribute(schedule)
        if -self.messages.log_z(self.messages.variable_beliefs()) > self.limit:
            raise contradiction()

    def _count(self, schedule: Schedule, progress: Walks) -> None:
        self.counts["walks"] += progress.most
        self.counts["messages"] += schedule.pass_messages
        self.counts["messages"] += int(progress.walks @ schedule.core_messages)
        self.counts["scalings"] += int(progress.walks @ schedule.core_scalings)

    # ------------------------------------------------------------------ UPS-T

    def walks(self) -> Iterator[Step]:
        """Walks over all trees, recorded one by one at first and then in growing numbers."""
        try:
            yield from self._walks()
        except UnderflowError:
            self.run.trace.clear()
            self.messages = PinnedMessages(self.graph, bp_messages.LOG_SUM)
            yield from self._walks()

    def _walks(self) -> Iterator[Step]:
        messages, schedule = self.messages, self._schedule(0)
        messages.pin(self.observed, self.beliefs)
        messages.collect(schedule)
        progress = Walks.begin(schedule)
        limit = self.run.clock.iterations(self.method.max_iterations)
        loops = 1
        while True:
            loops = max(1, min(loops, schedule.loops_per_call, limit - progress.most))
            messages.scale(schedule, progress, loops, self.method.tol)
            if self.run.targets and progress.worst > self.method.tol:
                self._refuse_contradiction(schedule)
            else:
                messages.distribute(schedule)
            self.beliefs = messages.variable_beliefs()
            self.counts = {"walks": 0, "messages": 0, "scalings": 0}
            self._count(schedule, progress)
            yield Step(max(1, progress.most), progress.worst, messages.log_z(self.beliefs))
            loops *= 1 if progress.most < 32 else 2

    # ------------------------------------------------------------------ answer

    def solution(self, iterations: int, converged: bool) -> Solution:
        """The last complete iteration as an answer."""
        messages = self.messages
        if self.saved is not None:
            messages.restore(self.saved)
        elif isinstance(self.method, UnifiedScaling):
            messages._refresh()
        marginals = messages.variable_beliefs()
        stationarity = messages.stationarity(self.observed)
        stuck = converged and stationarity > max(_STATIONARY, self.method.tol)
        if stuck:
            converged = False
            self.run.stopped = "diverged"
        elif self.run.stopped == "diverged":  # the steps ended because the time had
            self.run.stopped = "seconds"
        solution = Solution(
            marginals,
            log_z=messages.log_z(marginals),
            converged=converged,
            iterations=iterations,
            factor_tables=messages.factor_beliefs,
            diagnostics={**self._diagnostics(), "stationarity": stationarity},
        )
        if converged and self.graph.is_forest:
            solution.log_z_lower = solution.log_z_upper = solution.log_z
        if stuck:
            solution.warnings.append(self._stuck(stationarity))
        elif not converged:
            solution.warnings.append(self._warning())
        return solution

    def _diagnostics(self) -> dict[str, Any]:
        schedules = [self._schedule(k) for k in range(len(self.sets))]
        return {
            "arithmetic": self.messages.arithmetic,
            "residual": self.run.trace.last_residual,
            "clamp_sets": [int(s.sum()) for s in self.sets],
            "messages_per_walk": [int(s.core_messages.sum()) for s in schedules],
            "scalings_per_walk": [int(s.core_scalings.sum()) for s in schedules],
            "tilts": by_original(self.messages.tilts(self.run.targets), self.run),
            **self.counts,
        }

    def _stuck(self, stationarity: float) -> str:
        text = f"not at a stationary point: a pinned variable would move by {stationarity:.2g}; "
        if self.zeros:
            return text + "zeros tie the sets to each other: give other clamps, or use loopy-is"
        return text + "the steps had become very small: lower tol, or give other clamps"

    def _warning(self) -> str:
        residual = self.run.trace.last_residual
        if math.isnan(residual):
            return "not converged: the run ended in its first round; allow more iterations or time"
        text = f"not converged: a probability still moves by {residual:.2g}; "
        if self.run.targets:
            text += "observed marginals that contradict each other would explain it, else "
        return text + "allow more iterations or time"


def _distance(before: Array, after: Array) -> float:
    return float(np.abs(after - before).max(initial=0.0))


def _clamps_text(clamps: Any) -> str:
    """The option as a text; sets of variables are written as `0+4/2`."""
    if isinstance(clamps, str):
        sets = clamps.strip()
        if sets in _NAMED or all(
            v.strip().isdecimal() for part in sets.split("/") for v in part.split("+")
        ):
            return sets
    elif isinstance(clamps, Sequence) and len(clamps):
        try:
            numbers = [[int(v) for v in part] for part in clamps]
        except (TypeError, ValueError):
            numbers = []
        if numbers and all(v >= 0 for part in numbers for v in part):
            return "/".join("+".join(map(str, part)) for part in numbers)
    raise MethodError(
        f"method ups: option clamps must be one of {', '.join(_NAMED)}, or sets of variable "
        f"numbers such as 0+4/2, got {clamps!r}"
    )
