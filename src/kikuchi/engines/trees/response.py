"""Exact responses of marginals and factor beliefs to changes of the tables, on a junction tree.

Reference: HOJ-I11, LIU-I1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.engines.response.linear_response import Response
from kikuchi.engines.trees.engine import Propagation
from kikuchi.engines.trees.kernels import layout, passes
from kikuchi.engines.trees.kernels import response as kernels

_LEAST = -745.0  # exponents below give 0


class ItemTables(NamedTuple):
    """Tables within cliques: their axes (ranks, strides), and where their values begin."""

    offsets: Ints
    ranks: Ints
    strides: Ints
    places: Ints


class MembersByClique(NamedTuple):
    """Which items belong to each clique."""

    offsets: Ints
    members: Ints


class ExactResponse(Response):
    """Covariances applied to a direction: the second derivative of log Z.

    Exactly, d b_a(x_a) / d theta_c(x_c) = Cov(1[x_a], 1[x_c]). Applied to a direction, the sum over
    all c is a conditional expectation that two passes over the calibrated tree carry everywhere, at
    the price of about one more propagation.

    Parameters
    ----------
    run : a Hugin propagation (it holds the clique tables) after both passes.

    >>> import kikuchi as kk
    >>> from kikuchi.engines.trees.engine import Watch, propagate
    >>> from kikuchi.engines.trees.plan import factor_targets
    >>> pair = kk.FactorGraph([2, 2], [((0, 1), [[2, 1], [1, 2]]), ((0,), [1, 3])])
    >>> watch = Watch(kk.Budget().start())
    >>> run = propagate(kk.plan(pair), factor_targets, watch, propagation="hugin")
    >>> fields = np.array([0.0, 1.0, 0.0, 0.0])  # on state 1 of variable 0
    >>> ExactResponse(run).respond(fields, np.zeros(6))[0].round(6).tolist()
    [-0.1875, 0.1875, -0.0625, 0.0625]
    """

    def __init__(self, run: Propagation) -> None:
        tree, graph = run.plan.found_tree, run.plan.graph
        self.graph = graph
        self.tree = tree
        sizes = tree.clique_size.astype(np.int64)
        self.table_at = np.concatenate([[0], np.cumsum(sizes)])
        self.separator_at = np.concatenate([[0], np.cumsum(run.separator_size)])
        self.beliefs = _beliefs(run, sizes)
        self.n_tables = graph.log_tables.size
        edges, n = len(graph.scopes), graph.n_variables
        self.items = ItemTables(
            np.concatenate([graph.scope_offsets, edges + 1 + np.arange(n)]),
            np.concatenate([tree.factor_ranks, tree.rank]),
            np.concatenate([tree.factor_strides, np.ones(n, dtype=np.int64)]),
            np.concatenate([graph.table_offsets[:-1], self.n_tables + graph.state_offsets[:-1]]),
        )
        homes = np.concatenate([tree.factor_home, tree.home[tree.rank]])
        self.by_clique = MembersByClique(*layout.lists_by(homes, tree.n_nodes))
        self.strides = kernels.separator_strides(
            tree.card, tree.clique_offsets, tree.clique_vars, tree.residual
        )

    def respond(self, fields: Array, tables: Array) -> tuple[Array, Array]:
        """C applied: changes of the flat marginals and of the flat factor beliefs."""
        values = np.concatenate([tables, fields])
        out = np.empty_like(values)
        kernels.respond(
            self.tree,
            self.strides,
            self.table_at,
            self.separator_at,
            self.beliefs,
            self.items,
            self.by_clique,
            values,
            np.empty_like(self.beliefs),
            np.empty(int(self.separator_at[-1])),
            out,
        )
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
