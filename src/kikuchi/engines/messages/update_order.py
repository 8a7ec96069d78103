"""The order of the updates on the forest that clamped variables leave.

Reference: TEH-I16.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import U4, Array, Ints, Mask
from kikuchi.core.numerics import segment_sums
from kikuchi.engines.messages.kernels import forest, walks
from kikuchi.engines.messages.kernels.tree_newton import FactorSpace, NewtonPlan, NewtonSpace
from kikuchi.engines.messages.tables import message_layout
from kikuchi.graphs.factor_graph import FactorGraph

_OPS_PER_CALL = 500_000  # updates between two looks at the clock


@dataclass(frozen=True, eq=False)
class UpdateOrder:
    """The order of the updates on the forest that some clamped variables leave.

    `up` and `down` are the two passes over all of it (`down` also reaches factors of one variable,
    which have no message to give back); `core` is the depth-first walk over the paths
    between clamped leaves, tree by tree, that is repeated. `newton_plan` is the same core as
    `kernels.tree_newton` reads it. `factor_tree` and `variable_tree` say which tree with something
    to scale a factor or a free variable is in, -1 if in none.
    """

    up_edge: U4
    up_kind: NDArray[np.uint8]
    down_edge: U4
    down_kind: NDArray[np.uint8]
    core_edge: U4
    core_kind: NDArray[np.uint8]
    core_start: Ints
    newton_plan: NewtonPlan
    factor_tree: Ints
    variable_tree: Ints

    @property
    def n_trees(self) -> int:
        """Number of trees with something to scale."""
        return len(self.core_start) - 1

    @property
    def core_messages(self) -> Ints:
        """Messages from factors to variables in one walk over each tree: one per edge."""
        return np.diff(self.core_start) // 2

    @property
    def core_scalings(self) -> Ints:
        """Scalings in one walk over each tree: one for each factor of a clamped variable."""
        at_leaves = (self.core_kind == walks.CLAMPED).astype(np.float64)
        return segment_sums(at_leaves, self.core_start).astype(np.int64)

    @property
    def pass_messages(self) -> int:
        """Messages from factors to variables in the two passes over everything."""
        kinds = np.concatenate([self.up_kind, self.down_kind])
        return int(np.count_nonzero(kinds == walks.MESSAGE))

    @property
    def loops_per_call(self) -> int:
        """Walks that take a small part of a second."""
        return max(1, _OPS_PER_CALL // max(1, len(self.core_edge)))


@dataclass(eq=False)
class Walks:
    """Progress on the trees of one update order: last residual of and walks over each."""

    residual: Array
    walks: Ints

    @classmethod
    def begin(cls, order: UpdateOrder) -> Walks:
        """Nothing done yet."""
        n = order.n_trees
        return cls(np.full(n, np.inf), np.zeros(n, dtype=np.int64))

    @property
    def worst(self) -> float:
        """Largest residual of a tree."""
        return float(self.residual.max(initial=0.0))

    @property
    def most(self) -> int:
        """Walks over the tree that needed most."""
        return int(self.walks.max(initial=0))


def make_update_order(graph: FactorGraph, clamped: Mask) -> UpdateOrder | None:
    """The update order for some clamped variables; None if they leave a cycle.

    >>> from kikuchi import grid
    >>> make_update_order(grid(2, 2), np.zeros(4, dtype=bool)) is None
    True
    >>> make_update_order(grid(2, 2), np.array([1, 0, 0, 0], dtype=bool)).core_messages.tolist()
    [8]
    """
    flags = clamped.astype(np.uint8)
    ok, tour, leaving, from_factor, tree_start = forest.euler_tour(message_layout(graph), flags)
    if not ok:
        return None
    core = forest.core_edges(tour, leaving, from_factor, tree_start, graph.scopes, flags)
    left = leaving.astype(bool)
    to_variable = from_factor[tour].astype(bool) ^ left  # down from a factor, or up from below
    answer = np.where(clamped[graph.scopes[tour]], walks.CLAMPED, walks.CAVITY)
    kinds = np.where(to_variable, walks.MESSAGE, answer).astype(np.uint8)
    inside = core[tour].astype(bool)
    sizes = segment_sums(inside.astype(np.float64), tree_start).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes[sizes > 0])]).astype(np.int64)
    alone = np.flatnonzero(np.diff(graph.scope_offsets)[graph.edge_factors] == 1).astype(np.uint32)
    to_alone = np.where(clamped[graph.scopes[alone]], walks.CLAMPED, walks.CAVITY)
    number = np.where(sizes > 0, np.cumsum(sizes > 0) - 1, -1)
    tree = np.repeat(number, np.diff(tree_start))
    factor_tree = np.full(graph.n_factors, -1)
    variable_tree = np.full(graph.n_variables, -1)
    factor_tree[graph.edge_factors[tour]] = tree
    variable_tree[graph.scopes[tour]] = tree
    variable_tree[clamped] = -1
    factor_tree[graph.edge_factors[alone]] = variable_tree[graph.scopes[alone]]
    plan = _newton_plan(
        tour[inside], left[inside], kinds[inside], tree[inside], from_factor, starts, core
    )
    return UpdateOrder(
        tour[left],
        kinds[left],
        np.concatenate([tour[~left], alone]),
        np.concatenate([kinds[~left], to_alone.astype(np.uint8)]),
        tour[inside],
        kinds[inside],
        starts,
        plan,
        factor_tree,
        variable_tree,
    )


def _newton_plan(
    tour: U4,
    left: Mask,
    kinds: NDArray[np.uint8],
    tree: Ints,
    from_factor: NDArray[np.uint8],
    starts: Ints,
    core: NDArray[np.uint8],
) -> NewtonPlan:
    """The core for `tree_newton`: its walk, its leaves, and the updates that refresh its messages.

    Those are all messages up and then all down, with what the leaves send left as it is.
    """
    at_leaf = left & (kinds == walks.CLAMPED)
    fresh = np.flatnonzero(~at_leaf)
    fresh = fresh[np.lexsort((fresh, ~left[fresh], tree[fresh]))]
    return NewtonPlan(
        tour,
        left.astype(np.uint8),
        from_factor,
        starts,
        tour[at_leaf],
        _counted(tree[at_leaf], len(starts) - 1),
        tour[fresh],
        kinds[fresh],
        _counted(tree[fresh], len(starts) - 1),
        core,
    )


def _counted(tree: Ints, n_trees: int) -> Ints:
    """Where the entries of each tree begin."""
    counts = np.bincount(tree, minlength=n_trees)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def newton_space(graph: FactorGraph) -> NewtonSpace:
    """Arrays in which `tree_newton` works: by message entry, by edge, and for one factor."""
    entries = int(graph.message_offsets[-1])
    states = graph.cardinalities[graph.scopes].astype(np.int64)
    most = int(graph.cardinalities.max())
    square = np.concatenate([[0], np.cumsum(states * states)])
    wide = np.concatenate([[0], np.cumsum(states * most)])
    rows = int(np.add.reduceat(states, graph.scope_offsets[:-1]).max())
    order = int(np.diff(graph.scope_offsets).max())
    one_factor = FactorSpace(
        np.zeros(int(np.diff(graph.table_offsets).max())),
        np.zeros((rows, rows)),
        np.zeros((rows, most)),
        np.zeros(most),
        np.zeros((rows, rows)),
        np.zeros((rows, most + 1)),
        np.zeros(order, dtype=np.int64),
        np.zeros(order, dtype=np.int64),
        np.zeros(order, dtype=np.int64),
    )
    gradient, tried, step, old, eta, y = np.zeros((6, entries))
    return NewtonSpace(
        gradient,
        tried,
        step,
        old,
        eta,
        y,
        np.zeros(int(square[-1])),
        square,
        np.zeros(int(wide[-1])),
        wide,
        one_factor,
    )
