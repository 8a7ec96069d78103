"""`ExactEngine`: exact inference on one junction tree, planned once for all tables.

Reference: HOJ-I5, LIU-I1, TEH-I2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget, Clock
from kikuchi.engines.loops.state import State
from kikuchi.engines.trees.engine import Propagation, Read, RepeatedRuns, Watch, propagate
from kikuchi.engines.trees.plan import (
    Architecture,
    TreePlan,
    factor_targets,
    unconditioned,
    variable_targets,
)
from kikuchi.engines.trees.response import ExactResponse
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.table_shapes import factor_groups


@dataclass(eq=False)
class ExactState(State):
    """Nothing: an exact answer follows from the tables."""


class ExactEngine:
    """Both passes over a junction tree, for any tables; each answer is read when it is asked for.

    Parameters
    ----------
    plan : the tree, and with its graph the first tables.
    clock : the time and memory of all propagations.
    propagation : with hugin the tables of the cliques are kept, from which the response is read.

    >>> import kikuchi as kk
    >>> from kikuchi.engines.trees.plan import make_plan
    >>> pair = kk.FactorGraph([2, 2], [((0, 1), [[1, 2], [3, 4]])])
    >>> engine = ExactEngine(make_plan(unconditioned(pair), "cheapest", None), kk.Budget().start())
    >>> engine.marginals().round(6).tolist()
    [0.3, 0.7, 0.4, 0.6]
    >>> engine.set_tables(np.log([1.0, 1.0, 1.0, 2.0]))
    >>> round(np.exp(engine.log_z()), 6)
    5.0
    """

    state = ExactState()

    def __init__(
        self, plan: TreePlan, clock: Clock, propagation: Architecture = "shafer-shenoy"
    ) -> None:
        self.plan = plan
        self.clock = clock
        self.propagation: Architecture = propagation
        self.graph: FactorGraph = plan.graph
        self._log_tables = self.graph.log_tables
        self._runs: dict[Read, RepeatedRuns] = {}
        self._found: dict[Read, Propagation] = {}

    def set_tables(self, log_tables: Array) -> None:
        """Use other log-tables."""
        self._log_tables = log_tables
        self._found.clear()

    def sweep(self, damping: float = 0.0) -> float:
        """Nothing moves."""
        return 0.0

    def marginals(self) -> Array:
        """The marginals of all variables, flat."""
        if self.propagation == "hugin":
            return _sums(self.graph, self.factor_marginals())
        return self._run(variable_targets).out.copy()

    def factor_marginals(self) -> Array:
        """The marginals of all factors, flat as the tables."""
        return self._run(factor_targets).out.copy()

    def log_z(self) -> float:
        """log Z, without the constant of the graph."""
        done = next(iter(self._found.values()), None)
        return self._run(factor_targets).log_z if done is None else done.log_z

    def response(self) -> ExactResponse:
        """How the marginals move with the tables."""
        hugin = self.propagation == "hugin"
        return ExactResponse(self._run(factor_targets) if hugin else self._with_cliques())

    def unhurried(self) -> None:
        """Take as long as it needs from now on: what is read after a run has no time limit."""
        self.clock = Budget(bytes=self.clock.budget.bytes).start()

    def _run(self, read: Read) -> Propagation:
        if read not in self._found:
            self._found[read] = (
                self._with_cliques() if self.propagation == "hugin" else self._repeated(read)
            )
        return self._found[read]

    def _with_cliques(self) -> Propagation:
        """A run that keeps the tables of the cliques, for a response that is read later."""
        graph = self.graph.replaced(log_tables=self._log_tables)
        plan = replace(self.plan, conditioned=unconditioned(graph))
        return propagate(plan, factor_targets, Watch(self.clock), propagation="hugin")

    def _repeated(self, read: Read) -> Propagation:
        if read not in self._runs:
            blank = self.graph.replaced(log_tables=np.zeros(len(self._log_tables)))
            plan = replace(self.plan, conditioned=unconditioned(blank))
            self._runs[read] = RepeatedRuns(plan, read)
        return self._runs[read].run(self._log_tables, Watch(self.clock))


def _sums(graph: FactorGraph, factors: Array) -> Array:
    """Marginals of the variables from those of the factors; variables of no factor are uniform."""
    out = np.repeat(1.0 / graph.cardinalities, graph.cardinalities)
    for group in factor_groups(graph):
        beliefs = factors[group.entries]
        for k, card in enumerate(group.shape):
            axes = tuple(j + 1 for j in range(len(group.shape)) if j != k)
            table = beliefs.reshape(len(beliefs), *group.shape).sum(axis=axes)
            begin = sum(group.shape[:k])
            out[group.states[:, begin : begin + card]] = table
    return out
