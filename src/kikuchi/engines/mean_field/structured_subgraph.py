"""Which interactions a structured trial distribution keeps: a forest of small cliques.

`keep_strongest` adds factors in order of their strength as long as the junction tree of those kept
stays narrow: with width 1 that is the spanning tree of greatest weight (Kruskal). `subsets` keeps
everything inside given sets of variables and nothing between them.

Reference: LAW-I5, LAW-M11, TEH-I6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Any, TypeVar

import numpy as np

from kikuchi.core.arrays import Array, Ints, Mask
from kikuchi.core.budget import require_time
from kikuchi.core.errors import MethodError
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.table_shapes import row_numbers, same_shapes

_UNIT = 2.0**-20
_BATCH = 2**20  # table entries looked at together
_BELOW = 10.0  # how far below the least entry of its table a zero counts, on the log scale
_LOOK_EVERY = 256  # items between two looks at the clock
_MOST_EFFORT = 2 * 10**8  # list entries read while looking for a subgraph: about two seconds

_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class Forest:
    """Cliques of a junction forest: separator first, then the variables that go no higher.

    Cliques of one tree stand together, children before parents, the root last.
    """

    cliques: list[tuple[int, ...]]
    residual: list[int]
    parent: list[int]

    @cached_property
    def children(self) -> list[list[int]]:
        """Children of each clique."""
        found: list[list[int]] = [[] for _ in self.cliques]
        for c, p in in_time(enumerate(self.parent)):
            if p >= 0:
                found[p].append(c)
        return found

    @cached_property
    def home(self) -> dict[int, int]:
        """The clique nearest the root that holds each variable."""
        return {
            v: c
            for c, (members, r) in in_time(enumerate(zip(self.cliques, self.residual, strict=True)))
            for v in members[len(members) - r :]
        }

    @cached_property
    def depth(self) -> list[int]:
        """Steps from each clique to its root."""
        depth = [0] * len(self.cliques)
        for c in in_time(range(len(self.cliques) - 1, -1, -1)):
            if self.parent[c] >= 0:
                depth[c] = depth[self.parent[c]] + 1
        return depth

    @cached_property
    def tree_offsets(self) -> list[int]:
        """Where the cliques of each tree begin, and the end."""
        return [0, *(c + 1 for c, p in enumerate(self.parent) if p < 0)]

    @cached_property
    def tree_of_clique(self) -> list[int]:
        """The tree of each clique."""
        return [k for k, (a, b) in enumerate(pairwise(self.tree_offsets)) for _ in range(a, b)]

    @cached_property
    def tree(self) -> dict[int, int]:
        """The tree of each variable."""
        return {v: self.tree_of_clique[c] for v, c in in_time(self.home.items())}

    @property
    def width(self) -> int:
        """Variables of the largest clique less one."""
        return max(len(c) for c in self.cliques) - 1


def look_at_clock() -> None:
    """Between two parts of the work: is there time for more?"""
    require_time("choosing a forest of cliques", "use mf")


def in_time(items: Iterable[_T]) -> Iterator[_T]:
    """The items of a long loop; looks at the clock now and then."""
    for k, item in enumerate(items):
        if k % _LOOK_EVERY == 0:
            look_at_clock()
        yield item


def forest_of(graph: FactorGraph, scopes: Sequence[Sequence[int]]) -> Forest:
    """Junction forest in which every scope lies in one clique."""
    from kikuchi.graphs.elimination import eliminate
    from kikuchi.graphs.junction_tree import junction_tree

    look_at_clock()
    skeleton = _skeleton(graph, scopes)
    look_at_clock()
    found = eliminate(skeleton)
    look_at_clock()
    if not found.complete:
        raise MethodError(
            "tree-mf: the subsets are too densely joined for a junction tree; "
            "give smaller subsets, or use subgraph=auto"
        )
    tree = junction_tree(found)
    look_at_clock()
    return _by_tree(tree.ranked_cliques, tree.residual.tolist(), tree.parent.tolist())


def _by_tree(cliques: list[tuple[int, ...]], residual: list[int], parent: list[int]) -> Forest:
    """Cliques renumbered so that trees stand together; children stay before parents."""
    root = list(range(len(cliques)))
    for c in in_time(range(len(cliques) - 1, -1, -1)):
        if parent[c] >= 0:
            root[c] = root[parent[c]]
    order = np.argsort(np.array(root, dtype=np.int64), kind="stable")
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    above = np.array(parent, dtype=np.int64)[order]
    return Forest(
        [cliques[c] for c in in_time(order.tolist())],
        np.array(residual, dtype=np.int64)[order].tolist(),
        np.where(above >= 0, number[above], -1).tolist(),
    )


def split(forest: Forest, blocks: int) -> Forest:
    """The forest with trees cut into pieces of about `blocks` variables.

    A separator that is cut goes to the upper piece; the lower piece goes on without it.
    """
    weight = list(forest.residual)
    piece = list(range(len(forest.cliques)))
    cut = [p < 0 for p in forest.parent]
    for c, p in enumerate(forest.parent):
        if p >= 0:
            if weight[c] >= blocks:
                cut[c] = True
            else:
                weight[p] += weight[c]
    for c in range(len(forest.cliques) - 1, -1, -1):
        if not cut[c]:
            piece[c] = piece[forest.parent[c]]
    home = forest.home
    cliques = [
        tuple(v for v in members if piece[home[v]] == piece[c])
        for c, members in enumerate(forest.cliques)
    ]
    parent = [-1 if cut[c] else p for c, p in enumerate(forest.parent)]
    return _by_tree(cliques, list(forest.residual), parent)


# ---------------------------------------------------------------------- choices


def subset_scopes(graph: FactorGraph, label: Ints) -> list[list[int]]:
    """What each factor joins inside each subset, given the subset of every variable."""
    scopes: list[list[int]] = []
    for a in range(graph.n_factors):
        groups: dict[int, list[int]] = {}
        for v in graph.scope(a):
            groups.setdefault(int(label[v]), []).append(v)
        scopes.extend(groups.values())
    return scopes


def strips(graph: FactorGraph, thickness: int) -> Ints:
    """Labels of strips of a grid, `thickness` rows each; of breadth-first levels elsewhere."""
    from kikuchi.graphs.kernels.elimination import breadth_first_levels, primal_graph
    from kikuchi.graphs.shapes import grid_shape

    shape = grid_shape(graph)
    if shape is not None:
        return np.repeat(np.arange(shape[0]) // thickness, shape[1]).astype(np.int64)
    offsets, neighbours = primal_graph(graph.n_variables, graph.scopes, graph.scope_offsets)
    levels = np.asarray(breadth_first_levels(offsets, neighbours, 0), dtype=np.int64)
    return levels // thickness


def strengths(graph: FactorGraph, q: Array) -> Array:
    """How much each factor would cost if it were cut: half the variance of its interaction.

    That is the second-order term of the expansion about the product distribution q. Zeros
    count as entries far below the least.
    """
    out = np.zeros(graph.n_factors)
    for factors, shape in same_shapes(graph):
        for first in range(0, len(factors), max(1, _BATCH // prod(shape))):
            look_at_clock()
            batch = factors[first : first + max(1, _BATCH // prod(shape))]
            out[batch] = 0.5 * _interaction_variances(graph, q, batch, shape)
    return out


def _interaction_variances(
    graph: FactorGraph, q: Array, factors: Ints, shape: tuple[int, ...]
) -> Array:
    """Variance of tables under a product, less that of the best sum of single functions."""
    entries = graph.table_offsets[factors][:, None] + np.arange(prod(shape))
    tables = graph.log_tables[entries].reshape(-1, *shape)
    axes = tuple(range(1, tables.ndim))
    finite = np.isfinite(tables)
    low = np.min(np.where(finite, tables, np.inf), axis=axes, keepdims=True)
    tables = np.where(finite, tables, low - _BELOW)
    joint = np.ones((len(factors), *[1] * len(shape)))
    weights = []
    for axis, card in enumerate(shape, start=1):
        variables = graph.scopes[graph.scope_offsets[factors] + axis - 1]
        states = graph.state_offsets[variables][:, None] + np.arange(card)
        # Mean field often is too sure: a tenth of uniform keeps strong factors strong.
        p = 0.9 * q[states] + 0.1 / card
        weights.append(p.reshape([-1, *(card if k == axis else 1 for k in axes)]))
        joint = joint * weights[-1]
    centred = tables - (joint * tables).sum(axis=axes, keepdims=True)
    for axis, w in zip(axes, weights, strict=True):
        others = tuple(k for k in axes if k != axis)
        centred = centred - (joint * centred).sum(axis=others, keepdims=True) / w
    return np.asarray((joint * centred**2).sum(axis=axes))


def keep_strongest(
    graph: FactorGraph, strength: Array, width: int, states: int, stop: Callable[[], bool]
) -> list[list[int]]:
    """Scopes that a forest of at most `width` can hold, strongest first.

    A pair that joins two trees never makes cliques of more than two, so the spanning forest of
    greatest weight is kept at once; with width 1 and pairs only that is all.
    """
    ranked = _ranked_scopes(graph, strength, width, states)
    search = _SubgraphSearch(graph, ranked, width, states, stop)
    if width > 1 or (search.orders > 2).any():
        search.add(np.flatnonzero(~search.kept))
    look_at_clock()
    kept = ranked[search.kept].tolist()
    return [[v for v in scope if v >= 0] for scope in in_time(kept)]


def _ranked_scopes(graph: FactorGraph, strength: Array, width: int, states: int) -> Ints:
    """Sorted scopes that one clique can hold, each once, strongest first; -1 fills short rows."""
    groups = [np.zeros((0, width + 1), dtype=np.int64)]
    totals = [np.zeros(0)]
    for factors, shape in same_shapes(graph):
        look_at_clock()
        order = len(shape)
        if order > width + 1 or prod(shape) > states:
            continue
        rows = np.full((len(factors), width + 1), -1, dtype=np.int64)
        places = graph.scope_offsets[factors][:, None] + np.arange(order)
        rows[:, :order] = np.sort(graph.scopes[places], axis=1)
        groups.append(rows)
        totals.append(strength[factors])
    rows, total = np.concatenate(groups), np.concatenate(totals)
    look_at_clock()
    number = row_numbers(rows)
    look_at_clock()
    _, first = np.unique(number, return_index=True)
    look_at_clock()
    weights = np.bincount(number, weights=total, minlength=len(first))
    return rows[first[np.argsort(-weights, kind="stable")]]


class _SubgraphSearch:
    """Adds scopes in order while the junction tree stays narrow; halves what does not fit."""

    def __init__(
        self,
        graph: FactorGraph,
        scopes: Ints,
        width: int,
        states: int,
        stop: Callable[[], bool],
    ) -> None:
        self.n = graph.n_variables
        self.width = width
        self.stop = stop
        self.flat = scopes[scopes >= 0].astype(np.uint32)
        self.orders = (scopes >= 0).sum(axis=1)
        self.kept = self._spanning_forest()
        self.effort = 0
        most = float(np.log2(graph.cardinalities.max())) * (width + 1)
        by_states = most > np.log2(states)
        bits = np.log2(graph.cardinalities) if by_states else np.ones(self.n)
        self.limit = float(np.log2(states)) if by_states else width + 1.0
        self.weights = np.rint(bits / _UNIT).astype(np.int64)

    def _spanning_forest(self) -> Mask:
        from kikuchi.engines.mean_field.kernels.structured_search import spanning_forest

        kept = np.zeros(len(self.orders), dtype=bool)
        pairs = self.orders == 2
        ends = self.flat[np.repeat(pairs, self.orders)].reshape(-1, 2)
        kept[pairs] = spanning_forest(self.n, ends)
        return kept

    def add(self, numbers: Ints) -> None:
        """Keep as many of these scopes as fit."""
        if not len(numbers) or self.effort > _MOST_EFFORT or self.stop():
            return
        self.kept[numbers] = True
        if self._fits():
            return
        self.kept[numbers] = False
        if len(numbers) > 1:
            half = len(numbers) // 2
            self.add(numbers[:half])
            self.add(numbers[half:])

    def _fits(self) -> bool:
        """Whether a greedy order finds a narrow junction tree of what is kept."""
        from kikuchi.graphs.kernels import elimination as kernels

        n, kept = self.n, self.kept
        flat = self.flat[np.repeat(kept, self.orders)]
        ends = np.concatenate([[0], np.cumsum(self.orders[kept])]).astype(np.int64)
        offsets, neighbours = kernels.primal_graph(n, flat, ends)
        found: Any = kernels.eliminate(
            kernels.PrimalGraph(offsets, neighbours, self.weights),
            kernels.missing_pairs(offsets, neighbours),
            kernels.RULES.index("min-fill"),
            np.arange(n, dtype=np.uint32),
            np.zeros(n, dtype=np.int64),
            kernels.Stop(int(self.limit / _UNIT), -1, np.inf),
            _UNIT,
        )
        self.effort += 10 * int(found[7]) + 20 * n
        return bool(found[0] == n) and int(found[5]) <= self.width + 1


def _skeleton(graph: FactorGraph, scopes: Sequence[Sequence[int]]) -> FactorGraph:
    """A graph of constant pairs that joins every scope; its tables are never read."""
    n = graph.n_variables
    keys = [a * n + b for s in in_time(scopes) for a in s for b in s if a < b]
    pairs = np.stack(np.divmod(np.unique(np.array(keys, dtype=np.int64)), n), axis=1)
    cards = graph.cardinalities.astype(np.int64)
    size = int(cards[pairs].prod(axis=1).sum())
    return FactorGraph.from_arrays(
        graph.cardinalities, pairs.ravel(), 2 * np.arange(len(pairs) + 1), np.zeros(size),
        validate=False,
    )  # fmt: skip
