"""Naive mean field: the best product distribution, and a certified lower bound on log Z.

The trial distribution is q(x) = prod_i q_i(x_i); by Jensen

    log Z >= L(q) = sum_a E_q[log phi_a(x_a)] + sum_i H(q_i),      log Z - L(q) = KL(q || p).

With the others fixed, L is maximal at q_i(x_i) proportional to exp(sum_a E_q[log phi_a | x_i]).
Variables are set to this optimum one after the other, so L never decreases.

Reference: HOJ-I9, LAW-I4, LIU-D3, LIU-D4, LIU-I2, TEH-I5.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from kikuchi.core.arrays import U4, Array
from kikuchi.engines.feasibility import Constraints
from kikuchi.engines.loops.iterate import Ended, iterate
from kikuchi.engines.loops.state import Iterations
from kikuchi.engines.mean_field.ascent import LocalOptimum, MultiStartAscent, normalised
from kikuchi.engines.mean_field.product import (
    BitSweeps,
    ProductDistribution,
    Sweeps,
    TableSweeps,
    scratch_of,
)
from kikuchi.engines.run import MethodRun, Solution, Step
from kikuchi.graphs.binary import boltzmann_parameters
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.graph_arrays import GraphArrays, flatten
from kikuchi.methods.method import EngineMethod, option

_FLOORS = tuple(
    2.0**k for k in range(7)
)  # distance of a zero below the least entry of its table, on the log scale
_SWEEPS_PER_FLOOR = 10
_FLOOR_TOL = 1e-3
_SINGLE_SWEEPS = 16  # sweeps recorded one by one before they run in chunks
_LEAST_START = 1e-12  # probability of a state in a given start
_CHUNK_WORK = 4e6  # elementary steps of a chunk: a few milliseconds


@dataclass(frozen=True)
class MeanField(EngineMethod):
    """Naive mean field: a certified lower bound on log Z.

    `log_z` and `log_z_lower` are the bound
    L(q), evaluated on the tables as given. The first start is uniform, the others are random;
    the best bound is returned. In a model with symmetries the uniform start can be a saddle point
    that no update leaves, hence the random starts. Annealing maximises sum_a E_q[log phi_a] + T
    H(q) with T decreasing to 1 before the ascent.

    Zeros in tables: the bound is finite only if no forbidden entry has positive probability. Each
    start first replaces log 0 by a decreasing floor, then restricts the states to a product set
    without forbidden entries (the most likely states first), and then updates with the true tables.

    >>> import kikuchi as kk
    >>> pair = kk.FactorGraph([2, 2], [((0, 1), [[3, 1], [1, 3]]), ((0,), [1, 2])])
    >>> beliefs = kk.infer(pair, "mf")
    >>> beliefs.log_z <= kk.infer(pair, "enumerate").log_z
    True
    """

    name: ClassVar[str] = "mf"
    edge_seconds: ClassVar[float] = 1.2e-7
    objective_name: ClassVar[str] = "lower bound"
    certifies = ("lower",)
    gives_covariance: ClassVar[bool] = True
    takes_start: ClassVar[bool] = True

    order: Literal["given", "random"] = option("given", "order of the updates in a sweep")
    restarts: int = option(4, "random starts after the uniform one; the best bound wins", low=0)
    anneal_from: float = option(1.0, "initial temperature of each start", low=1.0)
    anneal_sweeps: int = option(20, "sweeps in which the temperature decreases to 1", low=1)
    tol: float = option(
        1e-9, "stop when no probability changes by more than this in a sweep", low=0.0
    )
    max_iter: int = option(1000, "maximum number of sweeps of each start", low=1)
    seed: int = option(0, "seed of the random starts and orders", low=0)

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        ascent = MeanFieldAscent(self, graph, run)
        ascent.from_all_starts()
        return ascent.solution()

    def settled(
        self, graph: FactorGraph, run: MethodRun, prepared: None = None
    ) -> tuple[ProductDistribution, Ended]:
        """Return the best product distribution of all starts."""
        ascent = MeanFieldAscent(self, graph, run)
        ascent.from_all_starts()
        best = ascent.best
        run.stopped = ascent.why_stopped(best)
        return ascent.engine_at(best), Ended(ascent.done, best.converged, best.residual)


class MeanFieldAscent(MultiStartAscent):
    """All starts of one run, and their local optima."""

    def __init__(self, method: MeanField, graph: FactorGraph, run: MethodRun) -> None:
        super().__init__(method.seed, run)
        self.method = method
        self.graph = graph
        self.flat = flat = flatten(graph)
        bits = boltzmann_parameters(graph)
        self.constraints = Constraints(flat)
        self.alive = self.constraints.alive
        self.engine: Sweeps = TableSweeps(flat, self.alive) if bits is None else BitSweeps(bits)
        self.scratch = scratch_of(flat)
        self.optima: list[LocalOptimum] = []
        self.first_steps: list[int] = []

    def from_all_starts(self) -> None:
        """Ascend from one start after the other until the budget or the user ends the run."""
        try:
            for number in range(self.n_starts):
                self.from_start(number)
                if self.must_end:
                    break
        except KeyboardInterrupt:
            self.run.stopped = "interrupted"
            self.end_here()

    @property
    def n_starts(self) -> int:
        """Number of ascents: one from a given start, else the uniform and the random ones."""
        return self.method.restarts + 1 if self.run.start is None else 1

    def from_start(self, number: int) -> None:
        """Ascend from the uniform start (number 0) or from a random one."""
        self.first_steps.append(len(self.run.trace))
        uniform = number == 0
        masses = (
            np.ones(len(self.alive)) if uniform else self.rng.standard_exponential(len(self.alive))
        )
        if self.run.start is not None and self.run.reduced is not None:
            masses = np.maximum(self.run.start.marginals(self.run.reduced), _LEAST_START)
        self.engine.set(normalised(masses * self.alive, self.flat.state_offsets))
        limit = self.done + self.method.max_iter + self._preparation_sweeps
        iterate(self._preparation(), Iterations(self.done), self.run, tol=0.0, limit=limit)
        if self.constraints.any and not self._enter_box():
            self.end_here()
            return
        converged = not self.must_end and self.take(self._ascent(), self.method.tol, limit)
        self.end_here(converged)

    def end_here(self, converged: bool = False) -> None:
        """Record the current distribution as the end of this start."""
        q = self.engine.q()
        residual = self.run.trace.last_residual
        self.optima.append(LocalOptimum(self.bound_of(q), q, converged, residual))

    # ------------------------------------------------------------------ phases of a start

    @property
    def _temperatures(self) -> Array:
        if self.method.anneal_from == 1.0:
            return np.zeros(0)
        falling = np.geomspace(self.method.anneal_from, 1.0, self.method.anneal_sweeps + 1)
        return np.asarray(falling[:-1])

    @property
    def _preparation_sweeps(self) -> int:
        floors = len(_FLOORS) * _SWEEPS_PER_FLOOR if self.constraints.any else 0
        return len(self._temperatures) + floors

    def _preparation(self) -> Callable[[Iterations], Step | None]:
        """Make a step of annealing with decreasing floors. No bound is recorded, since it may
        decrease here.
        """
        engine, taken = self.engine, 0
        temperatures = self._temperatures.tolist()
        floors = list(_FLOORS) if self.constraints.any else []
        if floors:
            engine.use_tables(_floored(self.flat, floors[0]))

        def step(state: Iterations) -> Step | None:
            nonlocal taken
            if temperatures:
                engine.sweeps(self._order(), np.array([temperatures.pop(0)]), -1.0)
            elif floors:
                if not taken:
                    engine.use_tables(_floored(self.flat, floors[0]))
                change = engine.sweeps(self._order(), np.ones(1), 0.0)[1]
                taken += 1
                if change <= _FLOOR_TOL or taken == _SWEEPS_PER_FLOOR:
                    del floors[0]
                    taken = 0
            else:
                return None
            self.done += 1
            state.done = self.done
            return Step(self.done)

        return step

    def _enter_box(self) -> bool:
        """Restrict q to a product set without forbidden entries; return False if none was found."""
        self.engine.use_tables(self.flat)
        q = self.engine.q()
        box = self.constraints.box(q)
        if box is not None:
            self.engine.set(normalised(q * box, self.flat.state_offsets, box))
            return True
        state = self.constraints.find_state(q, self.rng, self.run.clock)
        if state is None:
            return False
        point = np.zeros(len(q))
        point[self.flat.state_offsets[:-1] + state] = 1.0
        self.engine.set(point)
        return True

    def _ascent(self) -> Callable[[Iterations], Step]:
        """Sweep at temperature 1 with the true tables, so that the bound never decreases."""
        first = self.done

        def step(state: Iterations) -> Step:
            taken = state.done - first
            left = self.method.max_iter - taken
            # sweeps not used by the preparation are also available: the run enforces the limit
            many = 1 if taken < _SINGLE_SWEEPS else max(1, min(left, self._chunk))
            sweeps, change = self.engine.sweeps(self._order(), np.ones(many), self.method.tol)
            self.done = state.done = state.done + sweeps
            bound = self.bound_of(self.engine.q())
            return Step(state.done, residual=change, objective=bound, lower=bound)

        return step

    @property
    def _chunk(self) -> int:
        if self.method.order == "random":
            return 1
        return int(np.clip(_CHUNK_WORK / self.engine.work, 1, 64))

    def _order(self) -> U4:
        n = len(self.flat.cards)
        if self.method.order == "given":
            return np.arange(n, dtype=np.uint32)
        return self.rng.permutation(n).astype(np.uint32)

    # ------------------------------------------------------------------ values

    def bound_of(self, q: Array) -> float:
        """The lower bound on log Z."""
        from kikuchi.engines.mean_field.kernels.mean_field import bound

        return float(bound(self.flat, q, 1.0, self.scratch))

    # ------------------------------------------------------------------ answer

    @property
    def best(self) -> LocalOptimum:
        """The local optimum with the largest bound."""
        return self.optima[int(np.argmax([optimum.bound for optimum in self.optima]))]

    def engine_at(self, optimum: LocalOptimum) -> ProductDistribution:
        """The engine at a local optimum."""
        return ProductDistribution(self.graph, optimum.beliefs)

    def solution(self) -> Solution:
        """Return the best local optimum as a solution."""
        constant, best = self.graph.log_constant, self.best
        number = int(np.argmax([optimum.bound for optimum in self.optima]))
        bound = best.bound if best.bound > -math.inf else None
        self.run.stopped = self.why_stopped(best)
        engine = self.engine_at(best)
        bounds = [o.bound + constant if o.bound > -math.inf else None for o in self.optima]
        return Solution(
            marginals=best.beliefs,
            log_z=bound,
            log_z_lower=bound,
            converged=best.converged,
            iterations=self.done,
            factor_tables=engine.factor_marginals,
            covariance=lambda variables: engine.response().covariance(variables),
            engine=engine,
            warnings=self._warnings(best),
            diagnostics={
                "bounds": bounds,
                "best_start": number,
                "first_steps": self.first_steps,
            },
        )

    def why_stopped(self, best: LocalOptimum) -> str:
        """Return why the run ended, if `best` is its result."""
        if self.run.stopped in ("seconds", "interrupted"):
            return self.run.stopped
        if len(self.optima) >= self.n_starts:
            return "converged" if best.converged else "iterations"
        return "seconds" if self.run.clock.expired else "iterations"

    def _warnings(self, best: LocalOptimum) -> list[str]:
        warnings = []
        if best.bound == -math.inf:
            warnings.append(
                "no product distribution without forbidden entries was found, so there is no "
                "bound and the marginals are a guess; use jt or bp, or more restarts"
            )
        elif not best.converged and not self.must_end:
            warnings.append(
                f"mean field still changed by {best.residual:.1e} after {self.method.max_iter} "
                "sweeps; the bound holds, but raise max_iter for a better one"
            )
        if len(self.optima) < self.n_starts:
            warnings.append(f"the budget ended after {len(self.optima)} of {self.n_starts} starts")
        return warnings


def _floored(flat: GraphArrays, depth: float) -> GraphArrays:
    """Return log-tables with zeros replaced by values `depth` below the least positive entry of
    their table.
    """
    finite = np.where(np.isfinite(flat.log_tables), flat.log_tables, np.inf)
    least = np.minimum.reduceat(finite, flat.table_offsets[:-1])
    floors = np.repeat(least - depth, np.diff(flat.table_offsets))
    return flat.with_tables(np.where(np.isfinite(flat.log_tables), flat.log_tables, floors))
