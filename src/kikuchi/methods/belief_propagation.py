"""Belief propagation: sum-product and max-product on any factor graph.

Reference: LIU-D5, LIU-I3, LIU-I4, TEH-I1, TEH-I8, TEH-M23.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from kikuchi.core.arrays import U4
from kikuchi.core.errors import MethodError
from kikuchi.core.seeds import generator
from kikuchi.engines.certificates import attach_uniqueness_certificate
from kikuchi.engines.loops.iterate import Ended, iterate
from kikuchi.engines.loops.state import Iterations
from kikuchi.engines.messages.kernels import bp_messages
from kikuchi.engines.messages.kernels.beliefs import breadth_first
from kikuchi.engines.messages.ratios import RatioMessages
from kikuchi.engines.messages.tables import (
    TableMessages,
    message_layout,
    with_logarithms_if_needed,
)
from kikuchi.engines.run import MethodRun, Solution
from kikuchi.engines.small_work import SMALL
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.damped_sweeps import damped_sweeps
from kikuchi.methods.method import EngineMethod, more_damping, option


@dataclass(frozen=True)
class BeliefPropagation(EngineMethod):
    r"""Loopy belief propagation, exact on forests.

    Messages m_{a->i}(x_i) prop. to sum_{x_a \ x_i} phi_a prod_{j in a \ i} prod_{b != a} m_{b->j}
    are updated by one of the schedules until none changes by more than `tol` as a
    probability, before damping. `log_z` is minus the Bethe free energy. On forests it is exact:
    after the stop, an undamped pass from the leaves to the roots and one back ensure this.
    Elsewhere it is not a bound. `damping` is the weight on the old message; with `damping_end` it
    changes linearly to that value over the first `anneal` iterations.

    Positive binary pairwise models whose numbers stay in range run in ratio form; all others use
    tables of probabilities, or of logarithms as soon as a number would underflow. The choice is in
    `diagnostics["arithmetic"]`; the results agree.

    >>> import kikuchi as kk
    >>> chain = kk.FactorGraph([2, 2], [((0,), [1, 3]), ((0, 1), [[2, 1], [1, 2]])])
    >>> BeliefPropagation(schedule="tree").run(chain)[1].round(6).tolist()
    [0.416667, 0.583333]
    """

    name: ClassVar[str] = "bp"
    edge_seconds: ClassVar[float] = 1.3e-7
    edge_bytes: ClassVar[int] = 92
    summary: ClassVar[str] = "Belief propagation: Bethe approximation, exact on forests"
    objective_name: ClassVar[str] = "Bethe log Z"
    exactness = "forests"
    gives_covariance: ClassVar[bool] = True
    takes_start: ClassVar[bool] = True
    most_interpreted: ClassVar[int] = SMALL

    schedule: Literal["parallel", "sequential", "random", "residual", "tree"] = option(
        "sequential",
        "order of updates: all at once, variable by variable, in random order, "
        "largest change first, or the two exact passes over a forest",
    )
    damping: float = option(0.0, "weight on the old message", low=0, below=1)
    tol: float = option(1e-9, "stop when no message changes by more than this; 0: never", low=0)
    max_iter: int = option(1000, "maximum number of sweeps over all messages", low=1)
    mode: Literal["sum", "max"] = option("sum", "marginals, or max-marginals and a best state")
    damping_kind: Literal["linear", "geometric"] = option(
        "linear", "mix probabilities, or their logarithms"
    )
    damping_end: float | None = option(
        None, "weight on the old message after `anneal` iterations", low=0, below=1
    )
    anneal: int = option(1000, "iterations over which damping changes to damping_end", low=1)
    trace_energy: bool = option(False, "also record the Bethe log Z at every step")
    seed: int = option(0, "seed of the random schedule", low=0)

    @property
    def gives_marginals(self) -> bool:
        """Whether the beliefs are marginals; in `max` mode they are max-marginals."""
        return self.mode == "sum"

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        engine, ended = self.settled(graph, run)
        return self._read(engine, ended, run)

    def settled(
        self, graph: FactorGraph, run: MethodRun, prepared: None = None
    ) -> tuple[RatioMessages | TableMessages, Ended]:
        """The messages after the last sweep."""
        if self.schedule == "tree" and not graph.is_forest:
            raise MethodError(
                "method bp: schedule=tree needs a graph without cycles; use sequential or residual"
            )
        ratios = RatioMessages.of(graph) if self.mode == "sum" else None
        if ratios is not None:
            return self._swept(ratios, run)
        if self.mode == "max":
            return self._swept(TableMessages(graph, bp_messages.LOG_MAX), run)
        return with_logarithms_if_needed(
            lambda mode: self._swept(TableMessages(graph, mode), run), run
        )

    def _swept(
        self, messages: RatioMessages | TableMessages, run: MethodRun
    ) -> tuple[RatioMessages | TableMessages, Ended]:
        """Sweep until the messages converge."""
        if run.start is not None and run.reduced is not None:
            messages.state = run.start.messages(run.reduced)
        is_tree = self.schedule == "tree"
        limit = 2 if is_tree else self.max_iter
        orders, traced = self._orders(messages.graph), self.trace_energy and self.mode == "sum"
        sweep = damped_sweeps(self, messages, run, orders, traced=traced)
        ended = iterate(sweep, Iterations(), run, tol=0.0 if is_tree else self.tol, limit=limit)
        if is_tree and ended.iterations == 2:
            ended, run.stopped = replace(ended, converged=True), "converged"
        elif ended.converged and self.mode == "sum" and messages.graph.is_forest:
            for order in itertools.islice(
                forest_passes(messages.graph), 2
            ):  # small steps do not prove convergence
                messages.sequential(order, 0.0, bp_messages.LINEAR)
        return messages, ended

    def _orders(self, graph: FactorGraph) -> Iterator[U4]:
        """The order of the variables in each sweep."""
        if self.schedule == "tree":
            yield from forest_passes(graph)
        order = np.arange(graph.n_variables, dtype=np.uint32)
        rng = generator(self.seed)
        while True:
            if self.schedule == "random":
                order = rng.permutation(order)
            yield order

    # ------------------------------------------------------------------ reading

    def _read(
        self,
        messages: RatioMessages | TableMessages,
        ended: Ended,
        run: MethodRun,
    ) -> Solution:
        marginals, converged = messages.marginals(), ended.converged
        solution = Solution(
            marginals,
            converged=converged,
            iterations=ended.iterations,
            engine=messages,
            diagnostics={"arithmetic": messages.arithmetic, "residual": run.trace.last_residual},
        )
        if self.mode == "max":
            assert isinstance(messages, TableMessages)
            solution.state = messages.decode()
            solution.score = float(messages.graph.log_score(solution.state))
            solution.score -= messages.graph.log_constant
            if solution.score > -np.inf:
                solution.log_z_lower = solution.score
            else:
                solution.state = solution.score = None
                solution.warnings.append("no state of positive weight was decoded")
        else:
            solution.log_z = messages.log_z(marginals)
            solution.factor_tables = messages.factor_marginals
            solution.covariance = lambda variables: messages.response().covariance(variables)
            if messages.graph.is_forest and converged:
                solution.log_z_lower = solution.log_z_upper = solution.log_z
        if not converged:
            residual = "" if self.schedule == "residual" else "schedule=residual, "
            solution.warnings.append(
                f"not converged: a message still changes by {run.trace.last_residual:.2g}; "
                f"try {more_damping(self.damping)}, {residual}or a larger max_iter"
            )
        if self.mode == "sum":
            attach_uniqueness_certificate(messages.graph, solution)
        return solution


def forest_passes(graph: FactorGraph) -> Iterator[U4]:
    """Yield the variables of a forest from the leaves to the roots, and then repeatedly in
    reverse.
    """
    order = breadth_first(message_layout(graph))
    yield order[::-1].copy()
    while True:
        yield order
