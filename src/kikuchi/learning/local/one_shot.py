"""One-shot learning of a fully visible Boltzmann machine by linear response.

Means and covariances of the data give couplings and biases by one matrix inversion, with an error
that falls with the square of the couplings: `training.local.OneShotRule` has the equations.

Reference: TEH-L7.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import MethodError
from kikuchi.core.options import option
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.data import Data
from kikuchi.learning.graph_model import GraphModel
from kikuchi.learning.learner import FitRun, Learned, Learner
from kikuchi.training.local import OneShotRule


@dataclass(frozen=True)
class OneShot(Learner):
    """Couplings from the inverse covariance of the data: one matrix inversion.

    For positive models of binary variables and factors of at most two of them; complete rows.
    Couplings of pairs without a factor are left out. `prior` rows of the uniform distribution are
    added to the data, which keeps means off 0 and 1 and the covariance away from singular.

    >>> import kikuchi as kk
    >>> machine = kk.boltzmann_graph({(0, 1): 0.2}, [0.1, -0.1])
    >>> states = [[0, 0], [0, 1], [1, 0], [1, 1]]
    >>> exact = Data.of(states, machine, weights=[np.exp(machine.log_score(x)) for x in states])
    >>> fit = OneShot(prior=0.0).fit(machine, exact)
    >>> bool(abs(fit.graph.log_table(2)[1, 1] - 0.2) < 0.01)
    True
    """

    name: ClassVar[str] = "one-shot"
    summary: ClassVar[str] = "Boltzmann machines by linear response: one matrix inversion"

    prior: float = option(1.0, "number of added rows of the uniform distribution", low=0)

    def _fit(self, graph: FactorGraph, data: Data, run: FitRun) -> Learned:
        n = graph.n_variables
        run.clock.budget.require_bytes(
            4 * 8 * n * n, f"the covariance of {n} variables", "use learner pseudo"
        )
        rule, model = OneShotRule(prior=self.prior), _PairwiseGraph(graph)
        solution = rule.solve(model, data)
        doubts = rule.doubts(model, data, solution)
        if doubts:
            run.stopped = "iterations"
        return Learned(solution["log_tables"], converged=not doubts, warnings=doubts)


class _PairwiseGraph(GraphModel):
    """A graph as the rule of linear response sees it: bits, couplings and biases."""

    def check_pairwise(self) -> None:
        """Refuse all but positive binary pairwise models."""
        graph, what = self.graph, None
        if graph.is_directed:
            what = "conditional tables"
        elif np.any(graph.cardinalities != 2):
            v = int(np.flatnonzero(graph.cardinalities != 2)[0])
            what = f"a variable ({graph.label(v)}) of {int(graph.cardinalities[v])} states"
        elif np.any(np.diff(graph.scope_offsets) > 2):
            what = "a factor of more than two variables"
        elif np.isneginf(graph.log_tables).any():
            what = "zeros in its tables"
        if what is not None:
            raise MethodError(
                f"learner one-shot is for positive binary pairwise models, and this one has {what};"
                " use learner pseudo"
            )

    def bits(self, data: Data) -> tuple[Array, Array]:
        """The rows and their weights."""
        return data.states.astype(np.float64), data.weights

    def couple(self, means: Array, couplings: Array) -> dict[str, Array]:
        """Log-tables with the couplings that have a factor, and their biases."""
        return {"log_tables": _boltzmann_tables(self.graph, means, couplings)}

    def pairwise_graph(self, parameters: Mapping[str, Array]) -> FactorGraph:
        """The graph with these log-tables."""
        return self.graph.with_log_tables(parameters["log_tables"])

    def label(self, variable: int) -> str:
        """The name of a variable in messages."""
        return f"variable {self.graph.label(variable)}"


def _boltzmann_tables(graph: FactorGraph, means: Array, weights: Array) -> Array:
    """Log-tables of the couplings that have a factor, and of the biases that belong to them."""
    out = np.zeros(graph.log_tables.size)
    bias = np.log(means) - np.log1p(-means)
    home: dict[int, int] = {}  # a factor of each variable, of one variable if there is such
    seen: set[tuple[int, int]] = set()
    for a in range(graph.n_factors):
        scope, start = graph.scope(a), int(graph.table_offsets[a])
        if len(scope) == 1:
            home[scope[0]] = a
            continue
        i, j = sorted(scope)
        for v in (i, j):
            home.setdefault(v, a)
        if (i, j) not in seen:
            seen.add((i, j))
            out[start + 3] += weights[i, j]
            bias[i] -= weights[i, j] * means[j]
            bias[j] -= weights[i, j] * means[i]
    for v, a in home.items():
        scope, start = graph.scope(a), int(graph.table_offsets[a])
        places = [1] if len(scope) == 1 else [2, 3] if scope[0] == v else [1, 3]
        for place in places:
            out[start + place] += bias[v]
    return out
