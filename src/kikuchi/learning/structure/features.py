"""Features: log-linear models whose log-tables are sums of weighted local functions.

log phi_a(x_a) = base_a(x_a) + sum_i theta_i s_i(x_a): a model with fewer parameters than table
entries. A feature may have parts on several scopes that share its parameter (tied parameters). As a
matrix with a row for each table entry and a column for each feature, log_tables = base + A theta,
and expectations are the transpose applied to the marginals: E[s] = A^T mu.

Reference: TEH-M2, TEH-M5.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import ModelError
from kikuchi.graphs.factor_graph import FactorGraph, Variable
from kikuchi.learning.scaling.kernels.scaling import Columns


@dataclass(frozen=True)
class Feature:
    """A non-negative function of a few variables: its value in some states, 0 in all others.

    `parts` lets one parameter act on several scopes: pairs (scope, {states: value}).

    `name` is for people.

    >>> Feature.where(("a", "b"), (1, 1)).parts
    ((('a', 'b'), {(1, 1): 1.0}),)
    """

    parts: tuple[tuple[tuple[Variable, ...], Mapping[tuple[int, ...], float]], ...]
    name: str = ""

    @classmethod
    def where(cls, scope: Sequence[Variable], states: Sequence[int], name: str = "") -> Feature:
        """1 where the variables `scope` have these `states`, otherwise 0; `name` is its name in
        answers.
        """
        return cls(((tuple(scope), {tuple(int(k) for k in states): 1.0}),), name)

    @classmethod
    def table(cls, scope: Sequence[Variable], values: ArrayLike, name: str = "") -> Feature:
        """`values` for all states of the variables `scope`; `name` is its name in answers.

        >>> Feature.table((0, 1), [[0, 1], [1, 0]]).parts[0][1]
        {(0, 1): 1.0, (1, 0): 1.0}
        """
        array = np.asarray(values, dtype=np.float64)
        found = {tuple(int(k) for k in at): float(array[tuple(at)]) for at in np.argwhere(array)}
        return cls(((tuple(scope), found),), name)

    @classmethod
    def tied(cls, features: Iterable[Feature], name: str = "") -> Feature:
        """The sum of several `features` under one parameter; `name` is its name in answers."""
        return cls(tuple(part for feature in features for part in feature.parts), name)


class Features:
    """Features on the factors of a graph: each part belongs to a factor with the same variables.

    `graph` gives the factors, `features` one parameter each.

    >>> graph = FactorGraph([2] * 3, [((0, 1), np.ones(4)), ((1, 2), np.ones(4))])
    >>> equal = np.eye(2)
    >>> both = Feature.tied([Feature.table((0, 1), equal), Feature.table((1, 2), equal)])
    >>> features = Features(graph, [both])
    >>> features.expectations(np.full(8, 0.25)).tolist()
    [1.0]
    """

    def __init__(self, graph: FactorGraph, features: Iterable[Feature]) -> None:
        from scipy.sparse import csc_array

        self.graph = graph
        self.features = tuple(features)
        index = {frozenset(graph.scope(a)): a for a in reversed(range(graph.n_factors))}
        rows: list[int] = []
        cols: list[int] = []
        values: list[float] = []
        for i, feature in enumerate(self.features):
            for scope, entries in feature.parts:
                for row, value in _entries(graph, index, i, scope, entries):
                    if value > 0:
                        rows.append(row)
                        cols.append(i)
                        values.append(value)
        shape = (graph.log_tables.size, len(self.features))
        self.matrix: Any = csc_array((values, (rows, cols)), shape=shape, dtype=np.float64)
        self.matrix.sum_duplicates()
        unused = np.flatnonzero(np.diff(self.matrix.indptr) == 0)
        if unused.size:
            raise ModelError(f"feature {self.label(int(unused[0]))} is 0 everywhere; leave it out")

    def __len__(self) -> int:
        return len(self.features)

    def __str__(self) -> str:
        """Short, and different for different features: part of a learner's text."""
        digest = hashlib.sha256()
        for part in (self.matrix.indptr, self.matrix.indices, self.matrix.data):
            digest.update(np.ascontiguousarray(part).tobytes())
        return f"{len(self)} features {digest.hexdigest()[:12]}"

    __repr__ = __str__

    def label(self, feature: int) -> str:
        """The name of the feature number `feature`, or its number."""
        return self.features[feature].name or str(feature)

    def expectations(self, marginals: Array) -> Array:
        """E[s_i] from the factors' `marginals`, flat as the graph's tables."""
        return np.asarray(self.matrix.T @ marginals)

    def log_tables(self, theta: Array) -> Array:
        """sum_i theta_i s_i for every table entry, with `theta` (features,); -inf wins."""
        finite = np.where(np.isneginf(theta), 0.0, theta)
        out = np.asarray(self.matrix @ finite)
        for i in np.flatnonzero(np.isneginf(theta)):
            out[self.matrix.indices[self.matrix.indptr[i] : self.matrix.indptr[i + 1]]] = -np.inf
        return out

    @cached_property
    def entry_sums(self) -> Array:
        """sum_i s_i for every table entry: the parts of t(x), one term per factor."""
        return np.asarray(self.matrix.sum(axis=1)).ravel()

    @cached_property
    def factors(self) -> list[Ints]:
        """The factors that each feature has parts on."""
        at = self.graph.table_offsets
        if not self.features:
            return []
        return [
            np.unique(np.searchsorted(at, part, side="right") - 1)
            for part in np.split(self.matrix.indices, self.matrix.indptr[1:-1])
        ]

    @property
    def is_tied(self) -> bool:
        """Whether some parameter acts on several factors."""
        return any(len(factors) > 1 for factors in self.factors)

    def check_graph(self, graph: FactorGraph) -> None:
        """Refuse another `graph` than the features were made for."""
        same = np.array_equal(graph.scopes, self.graph.scopes) and np.array_equal(
            graph.table_offsets, self.graph.table_offsets
        )
        if not same:
            raise ModelError("the features belong to another graph; make them for this one")

    def columns(self) -> Columns:
        """Untied features as the compiled loops read them."""
        at = self.graph.table_offsets
        of_factor: list[list[int]] = [[] for _ in range(self.graph.n_factors)]
        for i, factors in enumerate(self.factors):
            of_factor[int(factors[0])].append(i)
        order = [i for own in of_factor for i in own]
        sizes = [int(at[a + 1] - at[a]) for a, own in enumerate(of_factor) for _ in own]
        value_at = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        values = np.zeros(int(value_at[-1]))
        for k, i in enumerate(order):
            span = slice(self.matrix.indptr[i], self.matrix.indptr[i + 1])
            inside = self.matrix.indices[span] - at[int(self.factors[i][0])]
            values[value_at[k] + inside] = self.matrix.data[span]
        counts = [len(own) for own in of_factor]
        return Columns(
            order_at=np.concatenate([[0], np.cumsum(counts)]).astype(np.uint64),
            order=np.array(order, dtype=np.uint64),
            value_at=value_at[:-1].astype(np.uint64),
            values=values,
            total=np.array(self.entry_sums, dtype=np.float64),
        )


def table_features(graph: FactorGraph) -> Features:
    """One feature for each entry of each table: the model with all tables free.

    >>> len(table_features(FactorGraph([2, 3], [((0, 1), np.ones(6))])))
    6
    """
    return Features(
        graph,
        [
            Feature.where(graph.scope(a), at)
            for a in range(graph.n_factors)
            for at in np.ndindex(*graph.shape(a))
        ],
    )


def _entries(
    graph: FactorGraph,
    index: Mapping[frozenset[int], int],
    number: int,
    scope: Sequence[Variable],
    entries: Mapping[tuple[int, ...], float],
) -> Iterable[tuple[int, float]]:
    """(table entry, value) of one part of a feature."""
    variables = [graph.index(v) for v in scope]
    factor = index.get(frozenset(variables))
    if factor is None or len(set(variables)) != len(variables):
        names = ", ".join(map(str, scope))
        raise ModelError(
            f"feature {number}: no factor has exactly the variables ({names}); add one to the graph"
        )
    own = graph.scope(factor)
    place = [variables.index(v) for v in own]
    shape = graph.shape(factor)
    for states, value in entries.items():
        if len(states) != len(variables):
            raise ModelError(f"feature {number}: {states} are not states of {len(own)} variables")
        at = tuple(int(states[k]) for k in place)
        if any(not 0 <= k < most for k, most in zip(at, shape, strict=True)):
            raise ModelError(f"feature {number}: the variables have no states {states}")
        if not np.isfinite(value) or value < 0:
            raise ModelError(
                f"feature {number}: value {value} at {states}; values must be numbers >= 0: add a "
                "constant to the feature, which changes nothing"
            )
        yield int(graph.table_offsets[factor]) + int(np.ravel_multi_index(at, shape)), float(value)
