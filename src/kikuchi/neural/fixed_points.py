"""Fixed points of inference methods, each with its linear response, for one structure of a graph.

A solver is made once per structure and method: it keeps what depends on the scopes alone (a
junction tree, appearance probabilities). Given tables it lets the method bring its engine to rest
and reads log Z, marginals and factor beliefs, and the response of the last two to a change of the
tables, which is its own adjoint.

Reference: LIU-D7, LIU-I1, LIU-I2, LIU-I3, LIU-I8.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget
from kikuchi.core.errors import ImpossibleEvidenceError, KikuchiError, ModelError
from kikuchi.core.numerics import entropy
from kikuchi.core.progress import silent
from kikuchi.core.trace import Trace
from kikuchi.engines.feasibility import require_possible
from kikuchi.engines.run import MethodRun
from kikuchi.engines.trees.plan import unconditioned
from kikuchi.graphs.checks import check_size
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.method import EngineMethod, Method

Respond = Callable[[Array, Array], tuple[Array, Array]]  # of a `Response`


@dataclass(frozen=True)
class FixedPoint:
    """The result of a method for one set of tables, and its derivative.

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


class Solver:
    """An engine on one structure: tables in, fixed point out.

    Parameters
    ----------
    graph : FactorGraph
        The structure.
    method : EngineMethod
        What brings the engine to rest.
    budget : Budget
        The limits of each run.
    """

    def __init__(self, graph: FactorGraph, method: EngineMethod, budget: Budget) -> None:
        self.graph = graph
        self.method = method
        self.budget = budget
        self.prepared = self._prepared() if graph.n_factors else None

    def _prepared(self) -> Any:
        return self.method.prepared(self.graph, self._run(self.graph))

    def solve(self, log_tables: Array) -> FixedPoint:
        """The fixed point for these tables; refused where the method did not converge."""
        graph = self.graph.with_log_tables(log_tables)
        if graph.n_factors == 0:
            return _without_factors(graph)
        return self._solve(graph)

    def _solve(self, graph: FactorGraph) -> FixedPoint:
        method, run = self.method, self._run(graph)
        if method.exactness != "always":
            require_possible(graph)
        with run.clock.watching():
            engine, ended = method.settled(graph, run, self.prepared)
        if not ended.converged:
            raise not_converged(method, run.stopped, run.trace.last_residual)
        factors = engine.factor_marginals()
        return FixedPoint(
            engine.log_z(), engine.marginals(), factors, lambda: engine.response().respond
        )

    def _run(self, graph: FactorGraph) -> MethodRun:
        trace = Trace(self.method.objective_name)
        return MethodRun(self.budget.start(), silent, trace, 0.0, {}, unconditioned(graph))


class RowsSolver(Solver, ABC):
    """A solver of many sets of tables at once."""

    def _prepared(self) -> None:
        return None

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


def numbers(graph: FactorGraph, log_tables: Array) -> Array:
    """Log-tables of the graph in 64 bits, along any leading axes; NaN raises an error that names
    the factor.
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


def _without_factors(graph: FactorGraph) -> FixedPoint:
    marginals = np.repeat(1.0 / graph.cardinalities, graph.cardinalities)
    log_z = float(entropy(marginals))
    return FixedPoint(log_z, marginals, np.zeros(0), lambda: lambda u, t: (0.0 * u, 0.0 * t))
