"""Expectation maximisation: EM, generalised EM, and variational Bayes for conditional tables.

E: expected counts of every factor's states given the rows. M: directed tables become frequencies of
those counts, in closed form; undirected ones take a few steps up the expected log-likelihood. With
exact E-steps the objective never falls.

Reference: HOJ-L2, LAW-L1, LIU-D8, LIU-L6, TEH-L2, TEH-L3.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError, MethodError, ModelError
from kikuchi.core.lbfgs import Lbfgs
from kikuchi.core.numerics import log, xlogy
from kikuchi.core.options import option
from kikuchi.core.seeds import generator
from kikuchi.engines.loops.em import ExpectationMaximisation
from kikuchi.engines.loops.iterate import iterate
from kikuchi.engines.loops.state import Held, State
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.ascent import check_bounded
from kikuchi.learning.data import Data
from kikuchi.learning.learner import FitRun, Learned, Learner
from kikuchi.learning.likelihood.dirichlet import ConditionalTables, Spread
from kikuchi.learning.likelihood.objective import (
    InnerRuns,
    check_methods,
    clamped_phase,
    free_phase,
)
from kikuchi.learning.ties import Parameters

Start = Literal["graph", "random"]

_TINY = 1e-300


@dataclass(frozen=True)
class ExpectationLearner(Learner):
    """Options of the learners with an E-step."""

    takes_missing: ClassVar[bool] = True

    inference: str = option("auto", "E-step: auto (exact where the trees fit), exact or a method")
    prior: float = option(0.0, "pseudo-counts of directed tables", low=0)
    spread: Spread = option("cell", "the prior is for each cell, or divided over each table")
    start: Start = option("graph", "start from the graph's tables or from random ones")
    seed: int = option(0, "random start", low=0)
    max_iter: int = option(1000, "most iterations", low=1)
    tol: float = option(1e-7, "largest change of a probability, or moment left (undirected)", low=0)
    on_divergence: str = option("damp", "inner inference: damp, continue, stop, or a method")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_methods((self.inference, getattr(self, "free", "auto")), self.on_divergence)


@dataclass(frozen=True)
class EM(ExpectationLearner):
    """EM from the graph's own tables.

    For directed graphs the M-step is exact: every row of a table becomes the frequencies of its
    expected counts plus `prior` (a Dirichlet prior of parameter 1 + prior per cell; with
    `spread=table` the prior is divided evenly over each table). For undirected graphs it is
    generalised EM: `m_steps` steps of L-BFGS, each with a free phase by `free`. `inference` makes
    the E-step: exact trees of the hidden part, or any method, then without a guarantee.

    >>> import kikuchi as kk
    >>> net = kk.FactorGraph([2, 2], [((0,), [0.5, 0.5]), ((0, 1), [[0.9, 0.1], [0.2, 0.8]])],
    ...                      children=[0, 1])
    >>> fit = EM().fit(net, [[0, 0], [0, 0], [1, 1], [1, 0]])
    >>> fit.graph.table(1).round(6).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """

    name: ClassVar[str] = "em"
    summary: ClassVar[str] = "expectation maximisation, exact or with any inference"

    ties: str | None = option(None, "factors that share a table: shape, or groups 0-3,8;4-7")
    free: str = option("auto", "free phase of undirected M-steps; auto is exact where fast")
    m_steps: int = option(5, "steps of L-BFGS in an undirected M-step", low=1)

    def _fit(self, graph: FactorGraph, data: Data, run: FitRun) -> Learned:
        rows = data.distinct()
        if graph.children is not None:
            return _Frequencies(self, graph, rows, run).learned()
        if self.prior:
            raise MethodError(
                "learner em: prior is for directed tables; use gradient with l2 for others"
            )
        return _Generalised(self, graph, rows, run).learned()


@dataclass(frozen=True)
class VariationalEM(ExpectationLearner):
    """Variational Bayes EM of directed tables, bounds the evidence.

    Q(hidden) and Q(tables) take turns: expected counts given tables exp E[log p], then Dirichlet
    parameters prior + counts. The bound -F <= log p(rows) never falls, and is the evidence itself
    when nothing is hidden. The fitted tables are the posterior means; `diagnostics["log_evidence"]`
    is the bound in nats for all rows, `diagnostics["alpha"]` the Dirichlet parameters.

    >>> import kikuchi as kk
    >>> coin = kk.FactorGraph([2], [((0,), [0.5, 0.5])], children=[0])
    >>> fit = VariationalEM(prior=1.0).fit(coin, [[1], [1], [0]])
    >>> evidence = np.exp(fit.diagnostics["log_evidence"])
    >>> fit.graph.table(0).round(6).tolist(), float(evidence.round(6))
    ([0.4, 0.6], 0.083333)
    """

    name: ClassVar[str] = "vbem"
    objective_name: ClassVar[str] = "bound on log evidence per row"

    prior: float = option(1.0, "Dirichlet parameter", above=0)

    def _fit(self, graph: FactorGraph, data: Data, run: FitRun) -> Learned:
        if graph.children is None:
            raise ModelError(
                "learner vbem needs a directed model (conditional tables); use gradient or em"
            )
        rows = data.distinct()
        return _Dirichlets(self, graph, rows, run).learned()


# ---------------------------------------------------------------------- what all three share


@dataclass(eq=False)
class _Engines(State):
    """Inner inference, and what the free phase expects at the point."""

    engines: tuple[InnerRuns, ...] = ()
    expected: Array = field(default_factory=lambda: np.zeros(0))

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Take the values that `to_arrays` described."""
        shape = self.expected.shape
        super().load(arrays)
        if self.expected.shape != shape:
            raise DataError(f"its expected counts have shape {self.expected.shape}, not {shape}")


class _Alternation(ExpectationMaximisation[Array], ABC):
    """E and M in turn on a point that M changes; the statistics are expected counts in all rows
    together, zeros before the first E-step.
    """

    logarithms = ("model/point",)

    def __init__(
        self, learner: EM | VariationalEM, graph: FactorGraph, data: Data, run: FitRun, size: int
    ) -> None:
        self.learner, self.graph, self.data, self.run = learner, graph, data, run
        self.phase, self.e_step, engine = clamped_phase(
            graph, data, learner.inference, learner.inference, run.clock, learner.on_divergence
        )
        self.inner = _Engines(() if engine is None else (engine,))
        super().__init__(
            _held_array(np.zeros(size), "point"),
            self._expect,
            self._maximise,
            statistics=_held_array(np.zeros(graph.log_tables.size), "counts"),
            beside=self.inner,
        )

    @property
    def begun(self) -> bool:
        """Whether there was an E-step."""
        return bool(self.statistics.now.any())

    def learned(self) -> Learned:
        """Alternate and return what was learned."""
        ended = iterate(
            type(self).step,
            self,
            self.run,
            tol=self.learner.tol,
            limit=self.learner.max_iter,
            first=lambda _: self.begin(self._first()),
            store=self.run.store,
        )
        engines = self.inner.engines
        return Learned(
            self._tables(),
            objective=self.objective if np.isfinite(self.objective) else None,
            converged=ended.converged,
            iterations=ended.iterations,
            warnings=self._notes() + [text for engine in engines for text in engine.warnings],
            diagnostics={
                "e_step": self.e_step,
                "inner_runs": sum(e.runs for e in engines),
                "inner_failures": sum(e.failures for e in engines),
                **self._diagnostics(),
            },
        )

    @abstractmethod
    def _first(self) -> Array:
        """Where to start."""

    @abstractmethod
    def _expect(self, point: Array) -> tuple[float, Array]:
        """The objective of a point, and the expected counts (in all rows together)."""

    @abstractmethod
    def _maximise(self, point: Array, counts: Array) -> Array:
        """The next point, from this one and its counts."""

    @abstractmethod
    def _change(self, point: Array, objective: float, counts: Array) -> float:
        """How far from stationary."""

    @abstractmethod
    def _tables(self) -> Array:
        """Log-tables of the current point."""

    def _notes(self) -> list[str]:
        """What a reader of the tables must know."""
        return []

    def _diagnostics(self) -> dict[str, Any]:
        return {}


def _held_array(value: Array, name: str) -> Held[Array]:
    return Held(value, lambda arrays: arrays[name], lambda array: {name: array})


# ---------------------------------------------------------------------- directed tables


class _Directed(_Alternation):
    """What EM and variational Bayes of conditional tables share: rows, pseudo-counts, the start."""

    def __init__(
        self, learner: EM | VariationalEM, graph: FactorGraph, data: Data, run: FitRun
    ) -> None:
        super().__init__(learner, graph, data, run, graph.log_tables.size)
        self.tables = ConditionalTables(graph)
        self.pseudo = self.tables.pseudo_counts(learner.prior, learner.spread)

    def _first_tables(self) -> Array:
        """The graph's log-tables, or those of exponentially distributed weights."""
        if self.learner.start == "graph":
            return self.graph.log_tables
        draws = generator(self.learner.seed).exponential(size=self.graph.log_tables.size)
        return np.where(self.tables.allowed, log(np.maximum(draws, _TINY)), -np.inf)


class _Frequencies(_Directed):
    """EM of conditional tables; the point is the log-tables."""

    def __init__(self, learner: EM, graph: FactorGraph, data: Data, run: FitRun) -> None:
        super().__init__(learner, graph, data, run)
        self.ties = None if learner.ties is None else Parameters(graph, learner.ties).matrix
        self.copies = np.ones(graph.log_tables.size)
        if self.ties is not None:
            sizes = np.asarray(self.ties.sum(axis=0)).ravel()
            self.copies = np.maximum(self.ties @ sizes, 1.0)

    def _first(self) -> Array:
        tables = self._first_tables()
        if self.ties is not None:
            finite = np.where(self.tables.allowed, tables, 0.0)
            means = self.ties @ (self.ties.T @ finite) / self.copies
            tables = np.where(self.tables.allowed, means, -np.inf)
        return self.tables.normalised(tables)

    def _expect(self, point: Array) -> tuple[float, Array]:
        mean, counts = self.phase(point, None)
        prior = float(xlogy(self.pseudo / self.copies, point).sum()) / self.data.total
        return mean + prior, counts * self.data.total

    def _maximise(self, point: Array, counts: Array) -> Array:
        return self._estimate(point, counts)[0]

    def _estimate(self, point: Array, counts: Array) -> tuple[Array, int]:
        """The next tables, and how many of their rows keep their values."""
        if self.ties is not None:
            counts = self.ties @ (self.ties.T @ counts)
        return self.tables.estimate(counts + self.pseudo, point)

    def _notes(self) -> list[str]:
        empty = self._estimate(self.now, self.statistics.now)[1] if self.begun else 0
        if not empty:
            return []
        return [
            f"table rows whose parents' states never occur in the data: {empty}; they keep their "
            "values (give a prior)"
        ]

    def _change(self, point: Array, objective: float, counts: Array) -> float:
        return float(np.abs(np.exp(point) - np.exp(self.now)).max(initial=0.0))

    def _tables(self) -> Array:
        return self.now if self.begun else self.tables.normalised(self.graph.log_tables)


class _Dirichlets(_Directed):
    """Variational Bayes; the point is the Dirichlet parameters."""

    def _first(self) -> Array:
        tables = self.tables.normalised(self._first_tables())
        _, counts = self.phase(tables, None)  # the counts that the first tables expect
        return self.pseudo + np.where(self.tables.allowed, counts * self.data.total, 0.0)

    def _expect(self, point: Array) -> tuple[float, Array]:
        mean, counts = self.phase(self.tables.expected_logs(point), None)
        bound = mean - self.tables.divergence(point, self.pseudo) / self.data.total
        return bound, counts * self.data.total

    def _maximise(self, point: Array, counts: Array) -> Array:
        return self.pseudo + np.where(self.tables.allowed, counts, 0.0)

    def _change(self, point: Array, objective: float, counts: Array) -> float:
        return float(np.abs(self._means(point) - self._means(self.now)).max(initial=0.0))

    def _means(self, alpha: Array) -> Array:
        return alpha / self.tables.row_sums(alpha)[self.tables.row_of]

    def _tables(self) -> Array:
        return log(self._means(self.now if self.begun else self.pseudo))

    def _diagnostics(self) -> dict[str, Any]:
        return {
            "log_evidence": (self.objective if self.begun else np.nan) * self.data.total,
            "alpha": self.now.tolist() if self.begun else [],
        }


# ---------------------------------------------------------------------- undirected tables


class _Generalised(_Alternation):
    """Generalised EM of an undirected model; the point is theta."""

    learner: EM

    def __init__(self, learner: EM, graph: FactorGraph, data: Data, run: FitRun) -> None:
        self.parameters = Parameters(graph, learner.ties)
        super().__init__(learner, graph, data, run, len(self.parameters.start))
        self.free, self.free_by, engine = free_phase(
            graph, learner.free, run.clock, learner.on_divergence
        )
        if engine is not None:
            self.inner.engines += (engine,)
        self.inner.expected = np.zeros(graph.log_tables.size)

    def learned(self) -> Learned:
        """As ever, but without convergence where there is no maximum."""
        learned = super().learned()
        if self.begun:
            slope = self._slope(self.now, self.statistics.now)
            check_bounded(learned, self.run, self.graph, self.data, self.parameters, slope)
        return learned

    def _first(self) -> Array:
        start = self.parameters.start
        if self.learner.start == "random":
            noise = generator(self.learner.seed).normal(size=len(start))
            return start + noise
        return start

    def _expect(self, point: Array) -> tuple[float, Array]:
        tables = self.parameters.tables(point)
        mean, counts = self.phase(tables, None)
        log_z, self.inner.expected = self.free(tables, None)
        return mean - log_z, counts * self.data.total

    def _maximise(self, point: Array, counts: Array) -> Array:
        target = counts / self.data.total

        def objective(theta: Array) -> tuple[float, Array]:
            tables = self.parameters.tables(theta)
            log_z, expected = self.free(tables, None)
            value = float(xlogy(target, tables).sum()) - log_z
            return -value, -self.parameters.pull_back(tables, target - expected)

        descent = Lbfgs(objective, point, longest=5.0)
        for _ in range(self.learner.m_steps):
            if not descent.step():
                break
        return descent.point

    def _change(self, point: Array, objective: float, counts: Array) -> float:
        return float(np.abs(self._slope(point, counts)).max(initial=0.0))

    def _slope(self, point: Array, counts: Array) -> Array:
        tables = self.parameters.tables(point)
        return self.parameters.pull_back(tables, counts / self.data.total - self.inner.expected)

    def _tables(self) -> Array:
        return self.parameters.tables(self.now if self.begun else self.parameters.start)

    def _diagnostics(self) -> dict[str, Any]:
        return {"free": self.free_by}
