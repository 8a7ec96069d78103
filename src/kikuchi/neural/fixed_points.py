"""Fixed points of inference methods, each with its linear response, for one structure of a graph.

A solver is made once per structure and method: it keeps what depends on the scopes alone (a
junction tree, appearance probabilities). Given tables it answers log Z, marginals and factor
beliefs, and the response of the last two to a change of the tables, which is its own adjoint.

Reference: LIU-D7, LIU-I1, LIU-I2, LIU-I3, LIU-I8.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget
from kikuchi.core.errors import ImpossibleEvidenceError, KikuchiError, MethodError, ModelError
from kikuchi.core.numerics import entropy
from kikuchi.core.progress import silent
from kikuchi.core.trace import Trace
from kikuchi.engines.response.mean_field import MeanFieldResponse
from kikuchi.engines.response.reweighted import ReweightedResponse
from kikuchi.engines.run import MethodRun
from kikuchi.engines.trees.plan import unconditioned
from kikuchi.graphs._checks import check_size
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.beliefs import Beliefs
from kikuchi.methods.generalised_bp import GeneralisedBP
from kikuchi.methods.junction_tree import JunctionTree
from kikuchi.methods.kikuchi import Kikuchi
from kikuchi.methods.method import Method
from kikuchi.methods.tree_reweighted import TreeReweighted

Respond = Callable[[Array, Array], tuple[Array, Array]]  # of a `Response`


@dataclass(frozen=True)
class FixedPoint:
    """What a method answers about one set of tables, and how to differentiate it.

    `respond` builds the linear response; log Z alone never needs it.
    """

    log_z: float
    marginals: Array
    factors: Array
    respond: Callable[[], Respond]

    @cached_property
    def response(self) -> Respond:
        """The linear response, built once for all cotangents of this point."""
        return self.respond()


class Solver(ABC):
    """A method on one structure: tables in, fixed point out."""

    def __init__(self, graph: FactorGraph, method: Method, budget: Budget) -> None:
        self.graph = graph
        self.method = method
        self.budget = budget

    def solve(self, log_tables: Array) -> FixedPoint:
        """The fixed point for these tables; refused where the method did not converge."""
        graph = self.graph.with_log_tables(log_tables)
        if graph.n_factors == 0:
            return _without_factors(graph)
        return self._solve(graph)

    @abstractmethod
    def _solve(self, graph: FactorGraph) -> FixedPoint: ...

    def _beliefs(self, graph: FactorGraph) -> Beliefs:
        found = self.method.run(graph, budget=self.budget)
        if not found.converged:
            raise not_converged(self.method, found.stopped, found.trace.last_residual)
        return found

    def _run(self, graph: FactorGraph) -> MethodRun:
        trace = Trace(self.method.objective_name)
        return MethodRun(self.budget.start(), silent, trace, 0.0, {}, unconditioned(graph))


class RowsSolver(Solver):
    """A solver of many sets of tables at once."""

    @abstractmethod
    def beliefs(self, tables: Array) -> tuple[Array, Array, Array]:
        """log Z, marginals and factor beliefs of each row of tables."""

    @abstractmethod
    def response(self, tables: Array, states: Array, factors: Array) -> tuple[Array, Array]:
        """Linear response of marginals and factor beliefs of each row, its own adjoint."""

    def require_possible(self, log_z: Array) -> None:
        """Refuse rows that leave no state any probability."""
        impossible = np.flatnonzero(np.isneginf(log_z))
        if impossible.size:
            where = f" in row {impossible[0]} of {len(log_z)}" if len(log_z) > 1 else ""
            raise ImpossibleEvidenceError(
                f"no state has any probability with these tables{where}; check the observed "
                "states, and what a network forbids"
            )

    def _solve(self, graph: FactorGraph) -> FixedPoint:
        row = graph.log_tables[None]
        log_z, marginals, factors = self.beliefs(row)

        def respond(fields: Array, tables: Array) -> tuple[Array, Array]:
            moved = self.response(row, fields[None], tables[None])
            return moved[0][0], moved[1][0]

        return FixedPoint(float(log_z[0]), marginals[0], factors[0], lambda: respond)


class MessageSolver(Solver):
    """Belief propagation and the tree-reweighted bound."""

    def __init__(self, graph: FactorGraph, method: Method, budget: Budget) -> None:
        super().__init__(graph, method, budget)
        self.weights = np.ones(graph.n_factors)
        if isinstance(method, TreeReweighted) and graph.n_factors:
            self.weights = method.choose_appearances(graph, self._run(graph)).weights

    def _solve(self, graph: FactorGraph) -> FixedPoint:
        found = self._beliefs(graph)
        assert found.log_z is not None  # both methods have one
        factors = found.flat_factors
        return FixedPoint(
            found.log_z,
            found.flat_marginals,
            factors,
            lambda: self._response(graph, found.flat_marginals, factors),
        )

    def _response(self, graph: FactorGraph, marginals: Array, factors: Array) -> Respond:
        if isinstance(self.method, TreeReweighted) and self.method.appearances == "optimised":
            raise MethodError(
                "trw:appearances=optimised: the appearances depend on the tables, and only log_z "
                "has a gradient; use uniform or sampled ones for marginals and factor beliefs"
            )
        return ReweightedResponse(graph, marginals, factors, self.weights).respond


class MeanFieldSolver(Solver):
    """Naive mean field, at the best of its starts."""

    def _solve(self, graph: FactorGraph) -> FixedPoint:
        found = self._beliefs(graph)
        assert found.log_z is not None  # mean field has a bound
        q = found.flat_marginals
        return FixedPoint(
            found.log_z, q, found.flat_factors, lambda: MeanFieldResponse(graph, q).respond
        )


class RegionSolver(Solver):
    """Kikuchi by the double loop, or generalised belief propagation."""

    def __init__(self, graph: FactorGraph, method: Method, budget: Budget) -> None:
        if isinstance(method, Kikuchi) and method.solver == "penalty":
            raise MethodError(
                "kikuchi:solver=penalty ends with regions that disagree a little, which is no "
                "stationary point and has no implicit gradient; use solver=double-loop"
            )
        super().__init__(graph, method, budget)

    def _solve(self, graph: FactorGraph) -> FixedPoint:
        from kikuchi.engines.feasibility import require_possible
        from kikuchi.engines.regions.engine import region_beliefs
        from kikuchi.engines.regions.response import RegionResponse

        method = self.method
        assert isinstance(method, Kikuchi | GeneralisedBP)  # `solver_for` saw to it
        require_possible(graph)
        run = self._run(graph)
        with run.clock.watching():
            found = region_beliefs(graph, method.regions, run)
            _, converged = method.minimise(found, run)
        if not converged:
            raise not_converged(method, run.stopped, run.trace.last_residual)
        return FixedPoint(
            -found.free_energy(),
            found.variable_marginals(),
            found.factor_marginals(),
            lambda: RegionResponse(found).respond,
        )


class TreeSolver(Solver):
    """Exact: one junction tree for all tables."""

    def __init__(self, graph: FactorGraph, method: Method, budget: Budget) -> None:
        from kikuchi.engines.trees.plan import make_plan

        assert isinstance(method, JunctionTree)  # `solver_for` saw to it
        super().__init__(graph, method, budget)
        clock = budget.start()
        if graph.n_factors:
            self.plan = make_plan(unconditioned(graph), method.order, method.seed, clock)

    def _solve(self, graph: FactorGraph) -> FixedPoint:
        from kikuchi.engines.trees.engine import Watch, propagate
        from kikuchi.engines.trees.plan import factor_targets
        from kikuchi.engines.trees.response import ExactResponse

        plan = replace(self.plan, conditioned=unconditioned(graph))
        watch = Watch(self.budget.start())
        run = propagate(plan, factor_targets, watch, propagation="hugin")
        factors = run.out.copy()
        marginals = marginals_of(graph, factors)
        return FixedPoint(run.log_z, marginals, factors, lambda: ExactResponse(run).respond)


def numbers(graph: FactorGraph, log_tables: Array) -> Array:
    """Log-tables of the graph in 64 bits, along any leading axes; those that are no numbers are
    named with their factor.
    """
    tables = np.array(log_tables, dtype=np.float64)
    check_size(tables[(0,) * (tables.ndim - 1)], graph.table_offsets)
    if not np.all(tables < np.inf):
        bad = np.isnan(tables) | (tables == np.inf)
        *row, place = (int(k) for k in np.argwhere(bad)[0])
        factor = int(np.searchsorted(graph.table_offsets, place, side="right")) - 1
        entry = np.unravel_index(place - int(graph.table_offsets[factor]), graph.shape(factor))
        where = f"row {row[0]}, " if row else ""
        raise ModelError(
            f"log_tables: {where}factor {factor}, entry {tuple(int(k) for k in entry)} is "
            f"{tables[(*row, place)]}; a network's scores must be finite (or -inf for what is "
            "forbidden): look at its inputs, its rate, or clip its output"
        )
    return tables


def not_converged(method: Method, stopped: str, residual: float) -> KikuchiError:
    """The error for a fixed point that was not reached, whose gradient would be wrong."""
    return KikuchiError(
        f"{method.text} did not converge ({stopped}, residual {residual:.2g}), and gradients are "
        "those of a fixed point; add damping, allow more iterations, use kikuchi or trw, or jt"
    )


def marginals_of(graph: FactorGraph, factors: Array) -> Array:
    """Flat marginals from flat factor beliefs; variables of no factor are uniform."""
    from kikuchi.graphs.table_shapes import factor_groups

    out = np.repeat(1.0 / graph.cardinalities, graph.cardinalities)
    for group in factor_groups(graph):
        beliefs = factors[group.entries]
        for k, card in enumerate(group.shape):
            axes = tuple(j + 1 for j in range(len(group.shape)) if j != k)
            table = beliefs.reshape(len(beliefs), *group.shape).sum(axis=axes)
            begin = sum(group.shape[:k])
            out[group.states[:, begin : begin + card]] = table
    return out


def _without_factors(graph: FactorGraph) -> FixedPoint:
    marginals = np.repeat(1.0 / graph.cardinalities, graph.cardinalities)
    log_z = float(entropy(marginals))
    return FixedPoint(log_z, marginals, np.zeros(0), lambda: lambda u, t: (0.0 * u, 0.0 * t))
