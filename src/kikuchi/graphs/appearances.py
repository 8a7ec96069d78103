"""Appearance probabilities: how often each factor is in a random forest.

A forest is a set of factors whose bipartite graph with the variables has no cycle; a set of pairs
is one if it is a forest of edges, and it contains at most one of several factors over the same
variables. Tree-reweighted methods need the probability rho_a of each factor, because then

    H(p) <= sum_i H_i - sum_a rho_a I_a        for every distribution p,

where I_a is the multi-information of p on factor a. Proof: among all distributions with p's
marginals on the factors of a forest T, the product prod_i p_i prod_{a in T} p_a / prod_{i in a} p_i
has the largest entropy, sum_i H_i - sum_{a in T} I_a. This is therefore at least H(p) for every T,
and also on average over T.

Reference: LIU-D6, LIU-I8.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Budget
from kikuchi.core.errors import MethodError, OutOfTimeError
from kikuchi.graphs.elimination import elimination_work
from kikuchi.graphs.factor_graph import FactorGraph

_POLYTOPE_TOL = 1e-9
_DENSE = 0.25  # density above which a Laplacian is inverted as a full matrix
_LISTED = 8  # variables named in an error
_FACTOR_SECONDS, _INVERSE_SECONDS = 4e-10, 3e-9  # per squared entry of a column of the factor
_ENTRIES_PER_SECOND = 3e8  # read by a greedy elimination
_GRACE = 0.1  # CPU seconds beyond the budget for including every factor in a forest
_FORESIGHT = 0.1  # fraction of the time available for the estimate


@dataclass(frozen=True, eq=False)
class Appearances:
    """Probability of each factor in a random forest, and the orientation of the forests.

    `weights` has one entry for each factor, 1 for factors of one variable. `parents` has one for
    each edge (factor, variable): the probability that the factor is in the forest and the variable
    is the one of its variables closest to the root. The parents of a factor therefore sum to its
    weight, and the probability that a variable is a root is 1 minus the sum of the remaining
    weights around it.
    """

    weights: Array
    parents: Array
    kind: str

    def mixed(self, other: Appearances, share: float) -> Appearances:
        """Return the mixture of the forests of `other`, with probability `share`, and of this."""
        return Appearances(
            (1.0 - share) * self.weights + share * other.weights,
            (1.0 - share) * self.parents + share * other.parents,
            self.kind,
        )


def uniform_appearances(
    graph: FactorGraph, budget: Budget | None = None, seconds: float = math.inf
) -> Appearances:
    """Return exact probabilities under uniform spanning trees: the effective resistance of each
    edge.

    For factors of at most two variables. It takes one sparse factorisation and the entries of the
    inverse that belong to edges, for each connected component separately. With g the inverse
    Laplacian grounded at a vertex, rho_ij = g_ii + g_jj - 2 g_ij, and i is the parent of j under a
    uniform root with probability rho_ij / 2 + (h_j - h_i) / 2 where h_i = g_ii - 2 mean_k g_ik.

    `seconds` is the remaining time: a factorisation expected to take longer raises
    `OutOfTimeError`.

    >>> from kikuchi.generate import complete
    >>> np.unique(uniform_appearances(complete(5)).weights.round(12)).tolist()
    [0.4, 1.0]
    """
    orders = np.diff(graph.scope_offsets)
    if np.any(orders > 2):
        raise MethodError(
            "uniform appearances are for factors of at most two variables; use sampled ones"
        )
    weights, parents = _of_single_factors(graph)
    first = graph.scope_offsets[:-1][orders == 2]
    if first.size:
        _foresee(graph, seconds)
        i, j = graph.scopes[first].astype(np.int64), graph.scopes[first + 1].astype(np.int64)
        resistance, height = _resistances(graph.n_variables, i, j, budget or Budget(), seconds)
        lean = 0.5 * (height[j] - height[i])
        weights[orders == 2] = resistance
        parents[first] = np.clip(0.5 * resistance + lean, 0.0, resistance)
        parents[first + 1] = resistance - parents[first]
    return Appearances(weights, parents, "uniform")


def forest_appearances(graph: FactorGraph, gains: Array) -> Appearances:
    """Return one forest, built greedily from the factors with the largest `gains`.

    For factors of two variables it is a spanning forest of largest total gain (Kruskal).

    >>> from kikuchi.generate import complete
    >>> triangle = complete(3)
    >>> pairs = np.diff(triangle.scope_offsets) == 2
    >>> gains = np.zeros(triangle.n_factors)
    >>> gains[pairs] = [3, 1, 2]
    >>> forest_appearances(triangle, gains).weights[pairs].tolist()
    [1.0, 0.0, 1.0]
    """
    from kikuchi.graphs.kernels.appearances import grow_forest, hang

    weights, parents = _of_single_factors(graph)
    many = np.flatnonzero(np.diff(graph.scope_offsets) > 1)
    order = many[np.argsort(-gains[many], kind="stable")]
    chosen = np.zeros(graph.n_factors, dtype=bool)
    hung = np.zeros(graph.n_edges)
    grow_forest(graph.scope_offsets, graph.scopes, graph.n_variables, order, chosen)
    hang(
        graph.scope_offsets,
        graph.scopes,
        graph.variable_offsets,
        graph.variable_edges,
        graph.edge_factors,
        chosen,
        hung,
    )
    weights[many] = chosen[many]
    return Appearances(weights, np.where(parents > 0, parents, hung), "forest")


def sampled_appearances(
    graph: FactorGraph,
    count: int,
    rng: np.random.Generator,
    expired: Callable[[], bool] = lambda: False,
) -> Appearances:
    """Return the frequencies in at least `count` random forests, for factors of any order.

    Each forest adds factors in the order of how rarely they were used so far, with random ties,
    until every factor has been used. Once `expired` is true, more forests are built only for
    another tenth of a second; if a factor has not been used by then, `OutOfTimeError` is raised.

    >>> from kikuchi import grid
    >>> weights = sampled_appearances(grid(3, 3), 50, np.random.default_rng(0)).weights
    >>> bool(weights.min() > 0 and weights.max() <= 1)
    True
    """
    many = np.diff(graph.scope_offsets) > 1
    counts = np.zeros(graph.n_factors)
    parents = np.zeros(graph.n_edges)
    done = 0
    began = time.thread_time()
    while (missing := np.any(counts[many] == 0)) or (done < count and not expired()):
        if missing and expired() and time.thread_time() > began + _GRACE:
            left = int(np.count_nonzero(counts[many] == 0))
            raise OutOfTimeError(
                f"after {done} random forests {left} factors have not been in one, and the budget "
                "leaves no time for more; give more seconds or use mf"
            )
        forest = forest_appearances(graph, rng.random(graph.n_factors) - counts)
        counts += forest.weights
        parents += forest.parents
        done += 1
    return Appearances(counts / done, parents / done, "sampled")


def given_appearances(graph: FactorGraph, weights: ArrayLike) -> Appearances:
    """Return the user's probabilities after checking that they belong to a random forest.

    For factors of two variables this holds if no set S of variables contains factors of total
    weight above |S| - 1 (the spanning-tree polytope). For every variable r, a flow splits each
    weight between the two ends so that no variable receives more than 1 and r receives nothing; if
    there is no such flow, the cut is a violating set, which the error names. On forests all weights
    up to 1 are possible.

    >>> from kikuchi.generate import complete
    >>> triangle = complete(3)
    >>> given_appearances(triangle, np.full(triangle.n_factors, 2 / 3)).kind
    'given'
    >>> given_appearances(triangle, np.ones(triangle.n_factors))  # doctest: +NORMALIZE_WHITESPACE
    Traceback (most recent call last):
        ...
    kikuchi.core.errors.MethodError: appearances: the factors among variables 0, 1, 2 sum to 3, but
    no forest contains more than 2 of them; lower them, or use uniform appearances
    """
    rho = np.asarray(weights, dtype=np.float64)
    if rho.shape != (graph.n_factors,):
        raise MethodError(
            f"appearances: one number for each of the {graph.n_factors} factors is required, got "
            f"{rho.size}"
        )
    orders = np.diff(graph.scope_offsets)
    wrong = np.flatnonzero((orders > 1) & ~((rho > 0) & (rho <= 1 + _POLYTOPE_TOL)))
    if wrong.size:
        raise MethodError(
            f"appearances: that of factor {wrong[0]} must be in (0, 1], got {rho[wrong[0]]:g}"
        )
    if graph.is_forest:
        return _thinned(forest_appearances(graph, rho), graph, rho)
    if np.any(orders > 2):
        raise MethodError(
            f"appearances: factor {np.argmax(orders > 2)} has {orders.max()} variables, and given "
            "ones can be checked only for factors of two; use sampled or optimised"
        )
    return _oriented(graph, np.where(orders > 1, rho, 1.0))


# ---------------------------------------------------------------------- parts


def _of_single_factors(graph: FactorGraph) -> tuple[Array, Array]:
    """Weight 1 for factors of one variable, which is their parent; 0 for the others."""
    single = np.diff(graph.scope_offsets) == 1
    return single.astype(np.float64), single[graph.edge_factors].astype(np.float64)


def _thinned(forest: Appearances, graph: FactorGraph, rho: Array) -> Appearances:
    """Return a forest whose factors are retained with given probabilities."""
    keep = np.where(np.diff(graph.scope_offsets) > 1, rho, 1.0)
    return Appearances(forest.weights * keep, forest.parents * keep[graph.edge_factors], "given")


def _foresee(graph: FactorGraph, seconds: float) -> None:
    """Raise an error if a factorisation would take longer, estimated from the fill of a quick
    elimination.

    If the elimination stops early, the remaining variables are assumed to form one dense block.
    """
    if _FACTOR_SECONDS * graph.n_variables**3 / 3.0 <= seconds:  # dense, and fast enough
        return
    work = elimination_work(graph, _ENTRIES_PER_SECOND * _FORESIGHT * seconds)
    _require_seconds(_FACTOR_SECONDS * work, seconds)


def _require_seconds(needed: float, seconds: float) -> None:
    if needed > seconds:
        raise OutOfTimeError(
            f"uniform appearances need about {needed:.2g} s, more than the budget leaves; "
            "give more seconds or use appearances=sampled"
        )


def _resistances(n: int, i: Ints, j: Ints, budget: Budget, seconds: float) -> tuple[Array, Array]:
    """Effective resistance of every edge, and g_ii - 2 mean_k g_ik of every vertex."""
    from scipy.sparse import coo_array, diags_array
    from scipy.sparse.csgraph import connected_components

    ones = np.ones(len(i))
    links: Any = coo_array((ones, (i, j)), shape=(n, n)).tocsr()
    links = links + links.T
    _, component = connected_components(links, directed=False)
    laplacian: Any = (diags_array(np.asarray(links.sum(axis=1))) - links).tocsc()
    sizes = np.bincount(component)
    free = np.ones(n, dtype=bool)
    free[np.unique(component, return_index=True)[1]] = False  # one ground in each component
    kept = np.flatnonzero(free)
    g_diagonal, g_sums = np.zeros(n), np.zeros(n)
    place = np.full(n, -1)
    place[kept] = np.arange(len(kept))
    grounded = laplacian[:, kept][kept, :].tocsc()
    dense = grounded.nnz > _DENSE * len(kept) ** 2
    inverse = (
        _DenseInverse(grounded, budget) if dense else _SparseInverse(grounded, budget, seconds)
    )
    g_diagonal[kept] = inverse.diagonal
    g_sums[kept] = inverse.solve(np.ones(len(kept)))
    inside = free[i] & free[j]
    between = np.zeros(len(i))
    between[inside] = inverse.entries(place[i[inside]], place[j[inside]])
    resistance = np.clip(g_diagonal[i] + g_diagonal[j] - 2.0 * between, 0.0, 1.0)
    return resistance, g_diagonal - 2.0 * g_sums / sizes[component]


class _DenseInverse:
    """The inverse of a dense matrix."""

    def __init__(self, matrix: Any, budget: Budget) -> None:
        budget.require_bytes(
            24 * matrix.shape[0] ** 2, "the inverse Laplacian", "use appearances=sampled"
        )
        self._inverse = np.linalg.inv(matrix.toarray())
        self.diagonal = self._inverse.diagonal()

    def solve(self, right: Array) -> Array:
        """A^-1 times a vector."""
        return np.asarray(self._inverse @ right)

    def entries(self, rows: Ints, cols: Ints) -> Array:
        """Entries of the inverse."""
        return np.asarray(self._inverse[rows, cols])


class _SparseInverse:
    """Entries of the inverse of a sparse symmetric positive definite matrix, at its nonzero
    positions.
    """

    def __init__(self, matrix: Any, budget: Budget, seconds: float) -> None:
        from scipy.sparse.linalg import splu

        from kikuchi.graphs.kernels.appearances import selected_inverse

        self._lu = splu(
            matrix,
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
        budget.require_bytes(
            120 * int(self._lu.nnz // 2), "the factorised Laplacian", "use appearances=sampled"
        )
        lower = self._lu.L.tocsc()
        columns = np.diff(lower.indptr).astype(np.float64)
        _require_seconds(_INVERSE_SECONDS * float(columns @ columns), seconds)
        lower.sort_indices()
        below = lower.indices > np.repeat(np.arange(lower.shape[0]), np.diff(lower.indptr))
        ends = np.concatenate([[0], np.cumsum(below)])[lower.indptr]
        self._indptr = ends.astype(np.int64)
        self._indices = lower.indices[below].astype(np.int64)
        values = np.ascontiguousarray(lower.data[below])
        self._values = np.empty_like(values)
        diagonal = np.empty(matrix.shape[0])
        selected_inverse(
            self._indptr, self._indices, values, self._lu.U.diagonal(), self._values, diagonal
        )
        self._new_place = np.asarray(self._lu.perm_c, dtype=np.int64)
        self.diagonal = diagonal[self._new_place]

    def solve(self, right: Array) -> Array:
        """A^-1 times a vector."""
        return np.asarray(self._lu.solve(right))

    def entries(self, rows: Ints, cols: Ints) -> Array:
        """Entries of the inverse at nonzero positions of the matrix."""
        r, c = self._new_place[rows], self._new_place[cols]
        low, high = np.minimum(r, c), np.maximum(r, c)
        n = len(self.diagonal)
        columns = np.repeat(np.arange(n), np.diff(self._indptr))
        keys = columns * n + self._indices  # ascending: columns, then sorted rows
        return np.asarray(self._values[np.searchsorted(keys, low * n + high)])


def _oriented(graph: FactorGraph, rho: Array) -> Appearances:
    """Split the weights of pairs between their ends, or raise an error naming the violating set."""
    from kikuchi.graphs.kernels.appearances import EdgeLoads, EdgeSlots, orient

    orders = np.diff(graph.scope_offsets)
    first = graph.scope_offsets[:-1][orders == 2]
    ends = np.stack([graph.scopes[first], graph.scopes[first + 1]], axis=1).astype(np.int64)
    other = ends[:, ::-1].ravel().copy()
    slots = np.argsort(ends.ravel(), kind="stable")
    counts = np.bincount(ends.ravel(), minlength=graph.n_variables)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    share = np.repeat(0.5 * rho[orders == 2], 2)
    load: Array = np.bincount(ends.ravel(), share, graph.n_variables).astype(np.float64)
    mean = np.zeros_like(share)
    reached = np.zeros(graph.n_variables, dtype=bool)
    roots = _neighbours_in_turn(graph)
    edges = EdgeSlots(starts, slots, other)
    loads = EdgeLoads(share, load, np.ones(graph.n_variables))
    failed = orient(roots, edges, loads, _POLYTOPE_TOL, mean, reached)
    if failed >= 0:
        heavy = np.flatnonzero(reached)
        total = float(rho[orders == 2][reached[ends].all(axis=1)].sum())
        raise MethodError(
            f"appearances: the factors among variables {_listed(graph, heavy)} sum to {total:g}, "
            f"but no forest contains more than {len(heavy) - 1} of them; lower them, or use "
            "uniform "
            "appearances"
        )
    _, parents = _of_single_factors(graph)
    parents[first] = mean[1::2]  # the share of the second end as a child has the first as parent
    parents[first + 1] = mean[0::2]
    return Appearances(rho, parents, "given")


def _neighbours_in_turn(graph: FactorGraph) -> Ints:
    """Return an order in which successive variables are close, which keeps flows between them
    short.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import depth_first_order

    pairs = graph.pairs().astype(np.int64)
    n = graph.n_variables
    links: Any = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n, n)).tocsr()
    order: list[Ints] = []
    for start in np.unique(graph.components, return_index=True)[1]:
        found = depth_first_order(links, start, directed=False, return_predecessors=False)
        order.append(np.asarray(found, dtype=np.int64))
    return np.concatenate(order)


def _listed(graph: FactorGraph, variables: Sequence[int] | Ints) -> str:
    names = [graph.label(int(v)) for v in variables[:_LISTED]]
    rest = len(variables) - len(names)
    return ", ".join(names) + (f" and {rest} more" if rest else "")
