"""Surrogate likelihood: log Z replaced by the Bethe or the tree-reweighted one.

    S(theta) = mean over rows of log weight(row) - A(theta),   grad S = data counts - beliefs

A is minus the least Bethe free energy, or the tree-reweighted one. The latter is convex and never
below log Z, so that S is then concave and a lower bound on the log-likelihood at every theta. The
messages are kept from one theta to the next.

Reference: LIU-D6, LIU-L2, LIU-L11.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Clock
from kikuchi.core.numerics import xlogy
from kikuchi.core.options import option
from kikuchi.engines.loops.state import State
from kikuchi.engines.messages.reweighted import ReweightedMessages
from kikuchi.graphs.appearances import (
    Appearances,
    forest_appearances,
    sampled_appearances,
    uniform_appearances,
)
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.ascent import Ascent, Objective
from kikuchi.learning.data import Data
from kikuchi.learning.learner import FitRun, Learned, Learner, check_undirected
from kikuchi.learning.local.piecewise import empirical_factors, pseudo_moments
from kikuchi.learning.ties import Parameters

_FORESTS = 100
_WINDOW = 50  # sweeps in which the residual must halve, or damping rises
_MOST_DAMPING = 0.9
_FLOOR = 1e3  # times the tolerance: a residual that no longer falls has met rounding
_LONGEST_STEP = 2.0
_BELIEVABLE = 1e-3  # difference of closed-form beliefs from the data that the prior explains
_LEAST_PRIOR = 1e-3  # rows; keeps closed-form tables finite where a count is zero


@dataclass(frozen=True)
class Surrogate(Learner):
    """Maximise the Bethe or tree-reweighted surrogate of the likelihood.

    Without penalties and ties the maximum has a closed form, from which the ascent starts
    (`start=moments`): log phi_a = mu_a log(p_a / prod_i p_i), and log p_i once for every variable.
    With `energy=trw` the trace holds the lower bound that is certified at each step. Marginals of
    data may be no minimum of the Bethe free energy in any model; the maximum of the Bethe surrogate
    is then a kink, where the ascent ends and says so.
    The Bethe surrogate is not a bound, and where the messages do not converge its gradient is that
    of the last ones; the fit then warns.

    >>> import kikuchi as kk
    >>> ring = kk.boltzmann_graph({(0, 1): 1.0, (1, 2): 1.0, (0, 2): 1.0}, [0.1] * 3)
    >>> rows = kk.plan(ring).calibrate().sample(500, seed=0)
    >>> fit = Surrogate(energy="trw").fit(ring, rows)
    >>> fit.diagnostics["certified_lower"] <= fit.log_likelihood
    True
    """

    name: ClassVar[str] = "surrogate"
    summary: ClassVar[str] = "Bethe or tree-reweighted likelihood (trw: a lower bound)"
    objective_name: ClassVar[str] = "surrogate log-likelihood per row"

    energy: Literal["trw", "bethe"] = option("trw", "which log Z: tree-reweighted or Bethe")
    l1: float = option(0.0, "penalty on the sizes of log-weights", low=0)
    l2: float = option(0.0, "penalty on the squares of log-weights (half of their sum)", low=0)
    ties: str | None = option(None, "factors that share a table, such as 0-3;4-7, or shape")
    start: Literal["moments", "graph"] = option(
        "moments", "begin at the closed form if there is one, or at the model's own tables"
    )
    tol: float = option(1e-6, "largest slope to stop at", low=0)
    max_iter: int = option(500, "most steps of the ascent", low=1)
    inner_tol: float = option(1e-12, "largest change of a message to stop at", above=0)
    inner_max_iter: int = option(2000, "most sweeps over the messages for one step", low=1)
    seed: int = option(0, "seed of the random forests of larger factors", low=0)

    def _fit(self, graph: FactorGraph, data: Data, run: FitRun) -> Learned:
        check_undirected(self.name, graph)
        counts = data.factor_counts(graph) / data.total
        energy = WarmEnergy(graph, self.energy, run.clock, self)
        parameters = Parameters(graph, self.ties)
        believable = True
        if self.start == "moments" and self.ties is None and self.l1 == self.l2 == 0:
            closed = _closed_form(graph, data, energy.weights)
            closed[~parameters.free] = -np.inf
            believable = energy.gives(closed, counts)
            if believable or self.energy == "trw":
                parameters.start = closed[parameters.free]

        def objective(tables: Array) -> tuple[float, Array]:
            log_z, beliefs = energy.at(tables)
            return float(xlogy(counts, tables).sum()) - log_z, counts - beliefs

        def certified() -> float:
            tables = ascent.tables
            return float(xlogy(counts, tables).sum()) - energy.upper(tables)

        lower = certified if self.energy == "trw" else None
        ascent = energy.ascent(data, parameters, objective, _LONGEST_STEP, lower, energy.state)
        learned = ascent.maximise(run, tol=self.tol, limit=self.max_iter)
        learned.diagnostics |= {
            "energy": self.energy,
            "unconverged": energy.state.unconverged,
            "damping": energy.state.damping,
        }
        if self.energy == "trw":
            learned.diagnostics["certified_lower"] = certified()
        learned.warnings += self._doubts(learned, ascent, energy, believable)
        return learned

    def _doubts(
        self, learned: Learned, ascent: Ascent, energy: WarmEnergy, believable: bool
    ) -> Iterator[str]:
        """What speaks against the answer."""
        if not believable:
            yield (
                "the marginals of the data are no minimum of the Bethe free energy in the closed "
                "form, so that the ascent began at the model's own tables"
            )
        if ascent.stuck and not learned.converged and self.energy == "bethe":
            yield (
                "the surrogate has a kink where two minima of the free energy meet; use "
                "energy=trw, learner pseudo, or gradient with a region method"
            )
        inner = energy.state
        if inner.unconverged:
            yield (
                f"the messages did not converge in {inner.unconverged} of {inner.calls} inner "
                f"runs (damping rose to {inner.damping:g}): gradients there are only approximate"
            )


@dataclass(eq=False)
class WarmState(State):
    """What the next call of a `WarmEnergy` depends on: the messages that were kept, the damping,
    the log-tables of the last call, and how many calls there were and did not converge.
    """

    logarithms: ClassVar[tuple[str, ...]] = ("messages", "at_tables")

    messages: Array
    at_tables: Array
    damping: float = 0.0
    calls: int = 0
    unconverged: int = 0


class WarmEnergy:
    """A(theta) and its gradient from messages that start at those of the last point kept.

    All trials of a line search start from the same messages, so that a Bethe free energy of several
    minima is followed along one of them. Tolerances, penalties and the seed are those of `learner`.
    """

    def __init__(
        self, graph: FactorGraph, kind: Literal["trw", "bethe"], clock: Clock, learner: Any
    ) -> None:
        self.graph, self.clock, self.learner = graph, clock, learner
        self.tol: float = learner.inner_tol
        self.limit: int = learner.inner_max_iter
        self.appearances = None if kind == "bethe" else appearances(graph, clock, learner.seed)
        self.weights = (
            np.ones(graph.n_factors) if self.appearances is None else self.appearances.weights
        )
        messages = np.zeros(int(graph.message_offsets[-1]))
        self.state = WarmState(messages, np.array(graph.log_tables))
        self._messages: ReweightedMessages | None = None
        self._at: tuple[Array, ReweightedMessages] | None = None

    def ascent(
        self,
        data: Data,
        parameters: Parameters,
        objective: Objective,
        longest: float,
        lower: Callable[[], float] | None,
        beside: State,
    ) -> Ascent:
        """The ascent of an objective with this log Z, with the penalties of the learner."""
        l1, l2 = self.learner.l1, self.learner.l2
        return Ascent(
            self.graph, data, parameters, objective, l1=l1, l2=l2, longest=longest,
            lower=lower, accepted=self.keep, beside=beside,
        )  # fmt: skip

    def at(self, tables: Array) -> tuple[float, Array]:
        """A and the factor beliefs at some log-tables."""
        if self.graph.n_factors == 0:
            return float(np.log(self.graph.cardinalities.astype(np.float64)).sum()), np.zeros(0)
        engine = self._converged_at(tables)
        return engine.log_z(), engine.factor_marginals()

    def upper(self, tables: Array) -> float:
        """A certified upper bound on log Z at some log-tables (tree-reweighted only)."""
        assert self.appearances is not None
        if self.graph.n_factors == 0:
            return self.at(tables)[0]
        return self._converged_at(tables).log_z_upper(self.appearances.parents)

    def gives(self, tables: Array, counts: Array) -> bool:
        """Whether the beliefs at some log-tables, from no messages, are the given ones."""
        beliefs = self.at(tables)[1]
        self._at, self.state.at_tables = None, np.full_like(tables, np.nan)
        return bool(np.abs(beliefs - counts).max(initial=0.0) <= _BELIEVABLE)

    def keep(self, tables: Array) -> None:
        """Start from the messages of these tables from now on."""
        if self.graph.n_factors:
            self.state.messages = self._converged_at(tables).messages.copy()

    def _converged_at(self, tables: Array) -> ReweightedMessages:
        if self._at is not None and np.array_equal(self._at[0], tables):
            return self._at[1]
        fresh = self._at is None and self.state.calls > 0
        if fresh and np.array_equal(self.state.at_tables, tables):
            self._at = (self.state.at_tables, self._engine(tables))  # a fit goes on from here
            return self._at[1]
        engine = self._engine(tables)
        self.state.calls += 1
        if not self._sweep(engine):
            self.state.unconverged += 1
        self.state.at_tables = tables.copy()
        self._at = (self.state.at_tables, engine)
        return engine

    def _engine(self, tables: Array) -> ReweightedMessages:
        if self._messages is None:
            self._messages = ReweightedMessages(self.graph, self.weights, budget=self.clock.budget)
        self._messages.set_tables(tables.copy())
        self._messages.set_messages(self.state.messages)
        return self._messages

    def _sweep(self, engine: ReweightedMessages) -> bool:
        """Sweep until the messages converge; damping rises where they do not."""
        least, since = math.inf, 0
        for _ in range(self.limit):
            residual = engine.sweeps(1, self.state.damping)
            if residual <= self.tol:
                self.state.damping = max(0.0, 2.0 * self.state.damping - 1.0)
                return True
            if not math.isfinite(residual):
                engine.set_messages(np.zeros_like(self.state.messages))
                self._damp()
                least, since = math.inf, 0
                continue
            since += 1
            if since == _WINDOW:
                if residual > 0.5 * least and least < math.inf:
                    if residual <= _FLOOR * self.tol:  # rounding keeps it from falling
                        return True
                    self._damp()
                least, since = residual, 0
            if self.clock.expired:
                return False
        return False

    def _damp(self) -> None:
        self.state.damping = min(_MOST_DAMPING, 0.5 * (1.0 + self.state.damping))


def appearances(graph: FactorGraph, clock: Clock, seed: int) -> Appearances:
    """Probabilities of the factors in random forests: exact for pairs, sampled for larger ones."""
    if graph.is_forest:
        return forest_appearances(graph, np.ones(graph.n_factors))
    if np.any(np.diff(graph.scope_offsets) > 2):
        from kikuchi.core.seeds import generator

        return sampled_appearances(graph, _FORESTS, generator(seed), lambda: clock.expired)
    return uniform_appearances(graph, clock.budget)


def _closed_form(graph: FactorGraph, data: Data, weights: Array) -> Array:
    marginals = empirical_factors(graph, data, _LEAST_PRIOR)
    return pseudo_moments(graph, marginals, weights)
