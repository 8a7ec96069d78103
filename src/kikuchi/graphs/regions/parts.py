"""Parts of a `RegionGraph`: regions as sets, their factors, their order and counting numbers.

Reference: LIU-I10, LIU-I11, LIU-M9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kikuchi.core.arrays import Array, Ints, offsets_of
from kikuchi.core.budget import require_time
from kikuchi.core.errors import ModelError
from kikuchi.graphs.factor_graph import FactorGraph, Variable
from kikuchi.graphs.regions import sets
from kikuchi.graphs.regions.sets import SetFamily

_ROOTS_AT_ONCE = 2**12  # that are checked between two checks of the clock


@dataclass(frozen=True)
class Region:
    """A sorted set of variables and a sorted set of factors over them.

    The factors belong to the identity of a region: two regions over the same variables may differ.
    """

    variables: tuple[int, ...]
    factors: tuple[int, ...]

    def contains(self, other: Region) -> bool:
        """Return whether `other` is a subset, of variables and of factors.

        >>> Region((0, 1), (0,)).contains(Region((1,), ()))
        True
        """
        return set(other.variables) <= set(self.variables) and set(other.factors) <= set(
            self.factors
        )


# ---------------------------------------------------------------------- roots and factors


def sorted_roots(
    graph: FactorGraph, roots: Iterable[Sequence[Variable] | Region]
) -> tuple[list[set[int]], list[Region]]:
    """Roots given by variables alone, checked, and those with factors of their own."""
    full: list[set[int]] = []
    explicit: list[Region] = []
    n = graph.n_variables
    for number, root in enumerate(roots):
        if isinstance(root, Region):
            explicit.append(root)
            continue
        if isinstance(root, str) or not isinstance(root, Iterable):
            raise ModelError(f"root {number}: {root!r} is not a list of variables")
        try:
            members = {v if type(v) is int and 0 <= v < n else graph.index(v) for v in root}
        except ModelError as error:
            raise ModelError(f"root {number}: {error}") from None
        if not members:
            raise ModelError(f"root {number} has no variables; remove it")
        full.append(members)
        if number % _ROOTS_AT_ONCE == 0:
            require_time("checking the roots", "use bp")
    return full, explicit


def members_of(graph: FactorGraph, regions: Sequence[Region]) -> list[tuple[int, ...]]:
    """Members of each region as one set: variables, then factors moved up by n."""
    n = graph.n_variables
    members = []
    for region in regions:
        inside = set(region.variables)
        for v in inside:
            graph.index(v)
        for a in region.factors:
            if not 0 <= a < graph.n_factors:
                raise ModelError(f"a region holds factor {a}; factors are 0..{graph.n_factors - 1}")
            if not inside.issuperset(graph.scope(a)):
                raise ModelError(
                    f"the region of variables {region.variables} holds factor {a}, whose scope "
                    f"{graph.scope(a)} is not inside; add the variables or remove the factor"
                )
        if not inside:
            raise ModelError("a region has no variables; remove it")
        members.append((*inside, *(n + a for a in set(region.factors))))
    return members


def _scopes(graph: FactorGraph) -> SetFamily:
    """The scopes of all factors as sets."""
    owners = graph.edge_factors.astype(np.int64)
    items = graph.scopes.astype(np.int64)
    order = np.lexsort((items, owners))
    return SetFamily(items[order], graph.scope_offsets.astype(np.int64), graph.n_variables)


def filled(graph: FactorGraph, variables: SetFamily) -> SetFamily:
    """Sets of variables with every factor that fits in each added."""
    factors, regions = sets.subset_pairs(_scopes(graph), variables)
    n = graph.n_variables
    owners = np.concatenate([variables.owners, regions])
    items = np.concatenate([variables.items, n + factors])
    order = np.lexsort((items, owners))
    sizes = np.bincount(owners, minlength=len(variables))
    return SetFamily(items[order], offsets_of(sizes), n + graph.n_factors)


def uncovered(graph: FactorGraph, plain: SetFamily, fixed: SetFamily) -> list[tuple[int, ...]]:
    """Scopes of factors, and single variables, that no root contains."""
    n = graph.n_variables
    scopes = _scopes(graph)
    covered = np.zeros(n + graph.n_factors, dtype=bool)
    covered[plain.items] = True
    covered[fixed.items] = True
    covered[n + sets.subset_pairs(scopes, plain)[0]] = True
    missing = scopes.take(np.flatnonzero(~covered[n:])).tuples()
    covered[[v for scope in missing for v in scope]] = True
    return missing + [(v,) for v in np.flatnonzero(~covered[:n]).tolist()]


def homes_of_factors(graph: FactorGraph, cliques: SetFamily) -> Mapping[int, list[int]]:
    """Return the factors of each clique, with every factor assigned to the first of the smallest
    cliques that contain it.
    """
    factors, regions = sets.subset_pairs(_scopes(graph), cliques)
    order = np.lexsort((regions, cliques.sizes[regions], factors))
    homed, first = np.unique(factors[order], return_index=True)
    if len(homed) < graph.n_factors:
        a = int(np.setdiff1d(np.arange(graph.n_factors), homed)[0])
        raise ModelError(f"no clique holds factor {a} over variables {graph.scope(a)}; add one")
    found: dict[int, list[int]] = {}
    for a, r in zip(homed.tolist(), regions[order][first].tolist(), strict=True):
        found.setdefault(r, []).append(a)
    return found


# ---------------------------------------------------------------------- order and counting


def grouped(rows: Ints, cols: Ints, count: int) -> SetFamily:
    """For each row number the columns paired with it, rising."""
    order = np.lexsort((cols, rows))
    return SetFamily(cols[order], offsets_of(np.bincount(rows, minlength=count)), count)


def roots_then_large_first(family: SetFamily, n_variables: int, below: Ints) -> Ints:
    """Return the order of regions: roots first, then by number of variables and factors, then
    lexicographic.
    """
    is_inner = np.zeros(len(family), dtype=bool)
    is_inner[below] = True
    lengths, sizes = family.below(n_variables).sizes, family.sizes
    order = np.lexsort((-sizes, -lengths, is_inner))
    keys = np.stack([sizes, lengths, is_inner])[:, order]
    ends = np.flatnonzero(np.any(np.diff(keys, append=-1), axis=0)) + 1
    for begin, end in pairwise([0, *ends.tolist()]):
        alike = order[begin:end]
        members = family.items[family.offsets[alike][:, None] + np.arange(sizes[alike[0]])]
        order[begin:end] = alike[np.lexsort(members.T[::-1])]
    return order


def check_edges(family: SetFamily, edges: Ints) -> None:
    """Raise an error unless every child is a proper subset of its parent."""
    if edges.size and not 0 <= edges.min() <= edges.max() < len(family):
        raise ModelError(f"edges must join regions 0..{len(family) - 1}, got {edges.max()}")
    parent, child = edges.T
    entry, edge = sets.spread(family.offsets[child], family.sizes[child])
    fits = family.has(parent[edge], family.items[entry])
    wrong = set(edge[~fits].tolist()) | set(
        np.flatnonzero(family.sizes[child] >= family.sizes[parent]).tolist()
    )
    if wrong:
        p, c = edges[min(wrong)].tolist()
        raise ModelError(
            f"region {c} is not a proper subset of region {p}, so no edge can join them"
        )


def ancestors(edges: Ints, count: int) -> SetFamily:
    """All regions above each along edges; parents come before children."""
    above: list[set[int]] = [set() for _ in range(count)]
    for parent, child in sorted(edges.tolist(), key=lambda edge: edge[1]):
        above[child] |= above[parent] | {parent}
    return SetFamily.of(above, count)


def counting_numbers(above: SetFamily) -> Array:
    """c_r = 1 - sum of c_s over all s above r; parents come before children."""
    from kikuchi.graphs.kernels import sets as kernels

    counting = np.empty(len(above))
    kernels.counting_numbers(above.offsets, above.items, counting)
    return counting


def covering_edges(above: SetFamily) -> Ints:
    """Edges (parent, child) with no region in between, by child."""
    from scipy.sparse import csr_array

    n = len(above)
    if not n:
        return np.zeros((0, 2), dtype=np.int64)
    ones = np.ones(len(above.items), dtype=np.int64)
    contained = csr_array((ones, above.items, above.offsets), shape=(n, n))
    # Entry (r, s) of the square counts the regions between r and s.
    between = (contained @ contained).tocoo()
    keys = above.owners * n + above.items
    indirect = between.coords[0].astype(np.int64) * n + between.coords[1]
    direct = keys[~np.isin(keys, indirect)]
    return np.stack([direct % n, direct // n], axis=1)
