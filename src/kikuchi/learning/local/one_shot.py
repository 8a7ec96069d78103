"""One-shot learning of a fully visible Boltzmann machine by linear response (TEH-L7).

In the mean field approximation the inverse covariance of the bits is
[C^-1]_ij = delta_ij / (m_i (1 - m_i)) - W_ij, and m_i = sigma(b_i + sum_j W_ij m_j). Both are read
backwards here: means and covariances are those of the data, one matrix is inverted, and

    W_ij = -[C^-1]_ij,    b_i = logit(m_i) - sum_j W_ij m_j.

The error falls with the square of the couplings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.options import option
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.data import Data
from kikuchi.learning.learner import FitRun, Learned, Learner

Array = NDArray[np.float64]

_SINGULAR = 1e-12  # smallest eigenvalue of the covariance that is inverted


@dataclass(frozen=True)
class OneShot(Learner):
    """Couplings from the inverse covariance of the data: one matrix inversion (TEH-L7).

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

    prior: float = option(1.0, "rows of the uniform distribution that are added", low=0)

    def _fit(self, graph: FactorGraph, data: Data, run: FitRun) -> Learned:
        self._refuse(graph)
        n = graph.n_variables
        run.clock.budget.require_bytes(
            4 * 8 * n * n, f"the covariance of {n} variables", "use learner pseudo"
        )
        means, covariance = self._moments(graph, data)
        weights = -_inverse(covariance)
        return Learned(_boltzmann_tables(graph, means, weights))

    def _refuse(self, graph: FactorGraph) -> None:
        what = None
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

    def _moments(self, graph: FactorGraph, data: Data) -> tuple[Array, Array]:
        """Means and covariances of the bits in the data and `prior` uniform rows."""
        x = data.states.astype(np.float64)
        p = data.weights / (data.total + self.prior)
        share = self.prior / (data.total + self.prior)
        means = p @ x + 0.5 * share
        second = (x * p[:, None]).T @ x + share * (0.25 + 0.25 * np.eye(len(means)))
        if np.any((means <= 0) | (means >= 1)):
            v = int(np.flatnonzero((means <= 0) | (means >= 1))[0])
            raise DataError(
                f"data: variable {graph.label(v)} is in the same state in every row; raise prior"
            )
        return means, second - np.outer(means, means)


def _inverse(covariance: Array) -> Array:
    values, vectors = np.linalg.eigh(covariance)
    if values[0] < _SINGULAR:
        raise DataError(
            "data: the covariance of the variables is singular (some are functions of others); "
            "raise prior"
        )
    return np.asarray((vectors / values) @ vectors.T)


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
