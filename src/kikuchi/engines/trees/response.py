"""Exact responses of marginals and factor beliefs to changes of the tables, on a junction tree.

Reference: HOJ-I11, LIU-I1.
"""

from __future__ import annotations

import numpy as np

from kikuchi.core.arrays import Array, Ints, offsets_of
from kikuchi.engines.response.linear_response import Response
from kikuchi.engines.trees.kernels import layout, passes
from kikuchi.engines.trees.kernels import response as kernels
from kikuchi.engines.trees.propagation import Propagation

_LEAST = -745.0  # exponents below give 0


class ExactResponse(Response):
    """Covariances applied to a direction: the second derivative of log Z.

    Exactly, d b_a(x_a) / d theta_c(x_c) = Cov(1[x_a], 1[x_c]). Applied to a direction, the sum over
    all c is a conditional expectation that two passes over the calibrated tree carry everywhere, at
    the price of about one more propagation.

    Parameters
    ----------
    run : a Hugin propagation (it holds the clique tables) after both passes.

    >>> import kikuchi as kk
    >>> from kikuchi.engines.trees.tree import Tree
    >>> pair = kk.FactorGraph([2, 2], [((0, 1), [[2, 1], [1, 2]]), ((0,), [1, 3])])
    >>> response = Tree(kk.plan(pair), kk.Budget().start(), "hugin").response()
    >>> fields = np.array([0.0, 1.0, 0.0, 0.0])  # on state 1 of variable 0
    >>> response.respond(fields, np.zeros(6))[0].round(6).tolist()
    [-0.1875, 0.1875, -0.0625, 0.0625]
    """

    def __init__(self, run: Propagation) -> None:
        tree, graph = run.plan.found_tree, run.plan.graph
        self.graph = graph
        self.tree = tree
        sizes = tree.clique_size.astype(np.int64)
        self.beliefs = kernels.CliqueBeliefs(
            _beliefs(run, sizes),
            offsets_of(sizes),
            offsets_of(run.separator_size),
            kernels.separator_strides(
                tree.card, tree.clique_offsets, tree.clique_vars, tree.residual
            ),
        )
        self.n_tables = graph.log_tables.size
        edges, n = len(graph.scopes), graph.n_variables
        homes = np.concatenate([tree.factor_home, tree.home[tree.rank]])
        self.items = kernels.ItemTables(
            np.concatenate([graph.scope_offsets, edges + 1 + np.arange(n)]),
            np.concatenate([tree.factor_ranks, tree.rank]),
            np.concatenate([tree.factor_strides, np.ones(n, dtype=np.int64)]),
            np.concatenate([graph.table_offsets[:-1], self.n_tables + graph.state_offsets[:-1]]),
            *layout.lists_by(homes, tree.n_nodes),
        )

    def respond(self, fields: Array, tables: Array) -> tuple[Array, Array]:
        """C applied: changes of the flat marginals and of the flat factor beliefs."""
        values = np.concatenate([tables, fields])
        out = np.empty_like(values)
        scratch = kernels.ResponseScratch(
            np.empty_like(self.beliefs.values), np.empty(int(self.beliefs.separator_at[-1]))
        )
        kernels.respond(self.tree, self.beliefs, self.items, values, scratch, out)
        return out[self.n_tables :], out[: self.n_tables]


def _beliefs(run: Propagation, sizes: Ints) -> Array:
    """The clique tables, each normalised."""
    first = int(run.clique_tables[0])
    values = run.tables.mem[first : first + int(sizes.sum())]
    starts = np.cumsum(sizes) - sizes
    if run.arithmetic == passes.LOG_SUM:
        top = np.repeat(np.maximum.reduceat(values, starts), sizes)
        values = np.exp(np.maximum(values - top, _LEAST))
    return np.asarray(values / np.repeat(np.add.reduceat(values, starts), sizes))
