"""Unified propagation and scaling: convergent minimisation of the Bethe free energy.

If enough variables are clamped to cut all cycles, the Bethe free energy is a sum of convex problems
on trees, each solved by one walk that mixes propagation and scaling. Repeating this with other
clamped variables never increases the free energy.

Reference: TEH-I16, TEH-I17, WH-I5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from kikuchi.core.arrays import Mask
from kikuchi.core.errors import MethodError
from kikuchi.engines.messages.clamped_descent import ClampedDescent
from kikuchi.engines.messages.clamped_messages import observed_marginals
from kikuchi.engines.messages.tables import with_logarithms_if_needed
from kikuchi.engines.run import MethodRun, Solution
from kikuchi.graphs.cutsets import cuts_cycles, greedy_cutsets, lattice_cutsets
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.lists import sets_of, sets_text
from kikuchi.methods.method import Method, option

_NAMED = ("auto", "rows-columns", "columns", "greedy")


@dataclass(frozen=True)
class UnifiedScaling(Method):
    """Convergent minimisation of the Bethe free energy, with observed marginals.

    Coordinate descent: in each iteration one set of variables is clamped at its current marginals,
    so that with the observed ones all cycles are cut, and the rest is solved to the optimum by
    UPS-T (walks, and Newton's method where they are slow). The Bethe free energy never increases,
    and it is that of beliefs that agree with each other and with the observed marginals: a tree
    that cannot be solved keeps its previous beliefs. In the limit they are a stationary point: a
    fixed point of `bp` or `loopy-is`, even if these do not converge. Strong factors and zeros
    couple variables of different sets, so alternating sets make little progress; `accelerate` then
    also updates all marginals of a set jointly, each time to a lower free energy. Without it this
    is the algorithm of the thesis. `diagnostics["stationarity"]` measures the distance of the
    result from a stationary point: the change of a clamped variable if it were free, or the size of
    the Newton step, whichever is less.

    `log_z` and the trace are minus the Bethe free energy (see `loopy-is` for its meaning with
    observed marginals). `clamps` selects the sets of variables that are clamped alternately: on
    grids even columns, odd rows, odd columns, even rows (`rows-columns`) or even and odd columns
    (`columns`); `greedy` finds small sets for any graph; `auto` is rows-columns on a grid and
    greedy elsewhere. The sets can also be given, in Python as `clamps=[[0], [2]]` and in a
    specification string as `0/2`, with + between variables.

    >>> import kikuchi as kk
    >>> weights = {(0, 1): 2.0, (1, 2): -1.5, (2, 3): 1.0, (0, 3): 3.0}
    >>> cycle = kk.boltzmann_graph(weights, [0.1, -0.4, 0.3, -1.0])
    >>> beliefs = UnifiedScaling(clamps=[[0], [2]]).run(cycle)
    >>> [round(x, 6) for x in beliefs.trace.objective[:4]]
    [3.956996, 4.846043, 4.846323, 4.846323]
    """

    name: ClassVar[str] = "ups"
    edge_seconds: ClassVar[float] = 1.2e-6
    edge_setup_seconds: ClassVar[float | None] = 1.5e-6
    edge_bytes: ClassVar[int] = 372
    summary: ClassVar[str] = "unified propagation and scaling: Bethe, always converges"
    objective_name: ClassVar[str] = "Bethe log Z"
    exactness = "forests"
    takes_observed_marginals: ClassVar[bool] = True

    clamps: str | Sequence[Sequence[int]] = option(
        "auto", "alternately clamped sets: auto, rows-columns, columns, greedy, or such as 0+4/2"
    )
    start: Literal["uniform", "bp"] = option(
        "uniform", "initial marginals: uniform, or after a few damped sweeps of belief propagation"
    )
    accelerate: bool = option(
        True, "between the sets, also update all clamped marginals jointly to a lower free energy"
    )
    tol: float = option(
        1e-9, "stop when no probability changes by more than this in one round of all sets", above=0
    )
    max_iter: int = option(10000, "maximum number of clamped sets", low=1)
    max_walks: int = option(100000, "maximum number of walks over a tree in one iteration", low=1)

    def __post_init__(self) -> None:
        clamps = sets_text(self.clamps, _NAMED)
        if clamps is None:
            raise MethodError(
                f"method ups: option clamps must be one of {', '.join(_NAMED)}, or sets of "
                f"variable numbers such as 0+4/2, got {self.clamps!r}"
            )
        object.__setattr__(self, "clamps", clamps)
        super().__post_init__()

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        observed, _ = observed_marginals(graph, run.targets)
        sets = self._sets(graph, run, observed)
        return with_logarithms_if_needed(lambda mode: self._solved(graph, run, sets, mode), run)

    def _solved(self, graph: FactorGraph, run: MethodRun, sets: list[Mask], mode: int) -> Solution:
        descent = ClampedDescent(
            graph,
            run,
            sets,
            tol=self.tol,
            max_walks=self.max_walks,
            mode=mode,
            propagate_first=self.start == "bp",
            accelerate=self.accelerate,
        )
        iterations, converged = run.iterate(descent.steps(), tol=self.tol, limit=self.max_iter)
        return descent.solution(iterations, converged)

    # ------------------------------------------------------------------ sets

    def _sets(self, graph: FactorGraph, run: MethodRun, observed: Mask) -> list[Mask]:
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

    def _given_sets(self, graph: FactorGraph, run: MethodRun, observed: Mask) -> list[Mask]:
        assert isinstance(self.clamps, str)
        sets = []
        for number, asked in enumerate(sets_of(self.clamps)):
            chosen = np.zeros(graph.n_variables, dtype=bool)
            position = np.searchsorted(run.variables, asked)
            known = position < len(run.variables)
            known[known] = run.variables[position[known]] == np.array(asked, dtype=np.int64)[known]
            chosen[position[known]] = True  # the others are observed or not in this graph
            if not cuts_cycles(graph, chosen | observed):
                text = "+".join(map(str, asked)) or "empty"
                raise MethodError(
                    f"method ups: clamp set {number} ({text}) leaves a cycle; "
                    "add variables to it, or use clamps=greedy"
                )
            sets.append(chosen & ~observed)
        always = np.logical_and.reduce(sets)
        if always.any():
            v = int(run.variables[np.flatnonzero(always)[0]])
            raise MethodError(
                f"method ups: variable {v} is in every clamp set and would never change; remove "
                "it from one"
            )
        return sets


@dataclass(frozen=True)
class UnifiedTreeScaling(Method):
    """Unified propagation and scaling on forests, exact.

    Requires observed variables that cut every cycle; a forest has no cycles. The problem is then
    convex with one optimum. A walk over the paths between observed variables scales each of them
    once, every time at its exact current marginal, at the cost of one message per edge and
    direction. On a forest the result is exact; elsewhere it is the Bethe approximation.

    The trace is minus the dual value, which decreases to `log_z` = minus the minimum of the Bethe
    free energy. `diagnostics` contains the numbers of messages and scalings, in total and in one
    walk.

    >>> import kikuchi as kk
    >>> chain = kk.boltzmann_graph({(0, 1): 1.0, (1, 2): -2.0}, [0.5, -0.3, 0.2])
    >>> round(kk.infer(chain, "ups-t", evidence={0: [0.3, 0.7], 2: [0.6, 0.4]}).log_z, 6)
    2.36008
    """

    name: ClassVar[str] = "ups-t"
    objective_name: ClassVar[str] = "minus the dual value"
    exactness = "always"
    needs_forest: ClassVar[bool] = True
    takes_observed_marginals: ClassVar[bool] = True

    tol: float = option(
        1e-10, "stop when no marginal is further than this from its target", above=0
    )
    max_iter: int = option(1_000_000, "maximum number of walks over a tree", low=1)

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        observed, _ = observed_marginals(graph, run.targets)
        if not cuts_cycles(graph, observed):
            raise MethodError(
                "method ups-t needs a graph whose cycles are all cut by variables with observed "
                "marginals; use ups"
            )
        return with_logarithms_if_needed(lambda mode: self._solved(graph, run, mode), run)

    def _solved(self, graph: FactorGraph, run: MethodRun, mode: int) -> Solution:
        nothing = [np.zeros(graph.n_variables, dtype=bool)]
        descent = ClampedDescent(
            graph, run, nothing, tol=self.tol, max_walks=self.max_iter, mode=mode
        )
        iterations, converged = run.iterate(descent.walks(), tol=self.tol, limit=self.max_iter)
        return descent.solution(iterations, converged)
