"""Piecewise learning: every factor by itself, in closed form.

The pieces' likelihood, mean over rows of sum_a log(phi_a(x_a) / sum phi_a), is largest where each
table is the empirical distribution of its scope. Variables in several factors are then counted
several times. The Bethe form divides that out again:

    phi_a = p_a / prod_{i in a} p_i,   times p_i once for every variable.

Belief propagation has the empirical marginals as a fixed point in that model, and on a forest it
is the maximum of the likelihood.

Reference: LIU-L11.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from kikuchi.core.arrays import Array, Mask
from kikuchi.core.numerics import log, xlogy
from kikuchi.core.options import option
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.data import Data
from kikuchi.learning.learner import FitRun, Learned, Learner, check_undirected


@dataclass(frozen=True)
class Piecewise(Learner):
    """Every factor from its own counts, in closed form; complete rows.

    `prior` rows of the uniform distribution are added to the data, so that no count is zero; with
    `prior=0` what never occurs becomes impossible. The pieces' likelihood, which is the objective,
    is never more than the likelihood of the form `pieces`, since there Z <= prod_a sum phi_a.

    >>> import kikuchi as kk
    >>> chain = kk.FactorGraph([2, 2], [((0, 1), np.ones(4)), ((1,), np.ones(2))])
    >>> rows = [[0, 0], [0, 0], [1, 1], [0, 1]]
    >>> Piecewise(form="bethe", prior=0.0).fit(chain, rows).graph.table(0).round(3).tolist()
    [[0.5, 0.25], [0.0, 0.25]]
    """

    name: ClassVar[str] = "piecewise"
    objective_name: ClassVar[str] = "piecewise log-likelihood per row"

    form: Literal["bethe", "pieces"] = option(
        "bethe", "bethe: shared variables divided out, exact on forests; pieces: plain"
    )
    prior: float = option(1.0, "number of added rows of the uniform distribution", low=0)

    def _fit(self, graph: FactorGraph, data: Data, run: FitRun) -> Learned:
        check_undirected(self.name, graph)
        marginals = empirical_factors(graph, data, self.prior)
        if self.form == "pieces":
            tables = log(marginals)
        else:
            tables = pseudo_moments(graph, marginals, np.ones(graph.n_factors))
        tables[np.isneginf(graph.log_tables)] = -np.inf
        objective = float(xlogy(data.factor_counts(graph), log(marginals)).sum()) / data.total
        return Learned(tables, objective)


def empirical_factors(graph: FactorGraph, data: Data, prior: float) -> Array:
    """The distribution of every factor's scope in the data and `prior` uniform rows, flat."""
    sizes = np.diff(graph.table_offsets)
    added = prior / np.repeat(sizes, sizes)
    return np.asarray((data.factor_counts(graph) + added) / (data.total + prior))


def pseudo_moments(graph: FactorGraph, marginals: Array, weights: Array) -> Array:
    """Log-tables whose reweighted beliefs, with one weight for each factor, are `marginals`.

    log phi_a = weight_a log(p_a / prod_{i in a} p_i), plus log p_i once for every variable, in its
    first factor. Factors inside another factor's scope, and copies, get zeros, since the larger one
    says it all. Weights of 1 give the Bethe form, appearances in forests the tree-reweighted one.
    """
    out = np.zeros(graph.log_tables.size)
    singles = _singles(graph, marginals)
    owner = _owners(graph)
    placed = np.zeros(graph.n_variables, dtype=bool)
    for a in np.flatnonzero(owner).tolist():
        scope = graph.scope(a)
        block = slice(int(graph.table_offsets[a]), int(graph.table_offsets[a + 1]))
        p = marginals[block].reshape(graph.shape(a))
        with np.errstate(invalid="ignore"):
            table = log(p)
            for axis, v in enumerate(scope):
                shape = [-1 if k == axis else 1 for k in range(len(scope))]
                table = table - log(singles[v]).reshape(shape)
            table = weights[a] * np.where(p > 0, table, -np.inf)
            for axis, v in enumerate(scope):
                if not placed[v]:
                    shape = [-1 if k == axis else 1 for k in range(len(scope))]
                    table = table + log(singles[v]).reshape(shape)
                    placed[v] = True
        out[block] = table.ravel()
    return out


def _singles(graph: FactorGraph, marginals: Array) -> dict[int, Array]:
    """The distribution of every variable that has a factor."""
    found: dict[int, Array] = {}
    for v in range(graph.n_variables):
        around = graph.neighbours(v)
        if around:
            a = around[0]
            lo, hi = graph.table_offsets[a], graph.table_offsets[a + 1]
            table = marginals[lo:hi].reshape(graph.shape(a))
            axes = tuple(k for k, u in enumerate(graph.scope(a)) if u != v)
            found[v] = table.sum(axis=axes)
    return found


def _owners(graph: FactorGraph) -> Mask:
    """Factors whose scope lies in no other; of equal scopes the first."""
    sets = [frozenset(graph.scope(a)) for a in range(graph.n_factors)]
    keep = np.ones(graph.n_factors, dtype=bool)
    for a, scope in enumerate(sets):
        around = graph.neighbours(min(scope, key=lambda v: len(graph.neighbours(v))))
        keep[a] = not any(scope < sets[b] or (scope == sets[b] and b < a) for b in around if b != a)
    return keep
