"""From parameters to log-tables: free entries, tied tables, features, conditional tables.

Log-tables are `base + A theta`, for directed graphs normalised afterwards. Learners work on theta;
gradients by the tables are carried back to it. Entries of -inf stay -inf.

Reference: TEH-L1.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.errors import MethodError, ModelError
from kikuchi.core.text import is_whole
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.likelihood.dirichlet import ConditionalTables


class FeatureMatrix:
    """A log-linear model: log-tables are those of the graph plus `matrix @ theta`.

    `matrix` has one row for each entry of `graph.log_tables` and one column for each feature; dense
    or SciPy sparse. The expectation of a feature is its column times the factor marginals.

    >>> FeatureMatrix([[1.0], [0.0]]).shape
    (2, 1)
    """

    def __init__(self, matrix: ArrayLike | Any) -> None:
        from scipy.sparse import csr_array, issparse

        values: Any = matrix if issparse(matrix) else np.asarray(matrix, dtype=np.float64)
        if values.ndim != 2:
            raise ModelError(f"features: a matrix of entries by features, got {values.ndim} axes")
        self.matrix = csr_array(values, dtype=np.float64)
        if not np.all(np.isfinite(self.matrix.data)):
            raise ModelError("features: every value must be finite")

    @property
    def shape(self) -> tuple[int, int]:
        """Table entries and features."""
        rows, columns = self.matrix.shape
        return int(rows), int(columns)

    def __str__(self) -> str:
        m = self.matrix
        digest = hashlib.sha256()
        for part in (m.indptr.astype(np.int64), m.indices.astype(np.int64), m.data):
            digest.update(np.ascontiguousarray(part).tobytes())
        return f"<{m.shape[0]}x{m.shape[1]} {digest.hexdigest()[:12]}>"

    __repr__ = __str__


class Parameters:
    """theta and the log-tables that it stands for.

    `start` stands for the graph's own tables (their means where tables are tied). `directed` says
    that the tables are normalised, so that log Z is 0.
    """

    def __init__(
        self, graph: FactorGraph, ties: str | None = None, features: FeatureMatrix | None = None
    ) -> None:
        if ties is not None and features is not None:
            raise MethodError("ties and features exclude each other: write ties as features")
        self.size = graph.log_tables.size
        self.free = np.isfinite(graph.log_tables)
        self.base = np.where(self.free, 0.0, -np.inf)
        self.conditional = ConditionalTables(graph) if graph.children is not None else None
        self.matrix: Any = None
        self._places = np.flatnonzero(self.free)
        if features is not None:
            self._take_features(graph, features)
        elif ties is not None:
            self._tie(graph, tied_groups(graph, ties))
        else:
            self.start = graph.log_tables[self._places].copy()

    @property
    def directed(self) -> bool:
        """Whether the tables are conditional and normalised."""
        return self.conditional is not None

    @property
    def n_free(self) -> int:
        """Number of parameters."""
        return len(self.start)

    def tables(self, theta: Array) -> Array:
        """The log-tables of some parameters."""
        out = self.base.copy()
        if self.matrix is None:
            out[self._places] = theta
        else:
            out += self.matrix @ theta
        return out if self.conditional is None else self.conditional.normalised(out)

    def pull_back(self, tables: Array, gradient: Array) -> Array:
        """The gradient by theta of something whose gradient by the log-tables is given."""
        g = np.where(self.free, gradient, 0.0)
        if self.conditional is not None:
            rows = self.conditional
            g = g - rows.row_sums(g)[rows.row_of] * np.exp(tables)
        return g[self._places] if self.matrix is None else np.asarray(self.matrix.T @ g)

    # ------------------------------------------------------------------ making

    def _take_features(self, graph: FactorGraph, features: FeatureMatrix) -> None:
        if features.shape[0] != self.size:
            raise ModelError(
                f"features: {features.shape[0]} rows for {self.size} table entries; give one row "
                "for each entry of graph.log_tables"
            )
        from scipy.sparse import diags_array

        self.base = np.array(graph.log_tables)
        self.matrix = (diags_array(self.free.astype(np.float64)) @ features.matrix).tocsr()
        self.start = np.zeros(features.shape[1])

    def _tie(self, graph: FactorGraph, groups: list[list[int]]) -> None:
        from scipy.sparse import csr_array

        owner = np.full(self.size, -1, dtype=np.int64)
        count = 0
        for group in groups:
            blocks = [_block(graph, a) for a in group]
            free = self.free[blocks[0]]
            for a, block in zip(group, blocks, strict=True):
                if not np.array_equal(self.free[block], free):
                    raise ModelError(
                        f"ties: factors {group[0]} and {a} have zeros in different places"
                    )
                owner[block] = np.where(free, count + np.cumsum(free) - 1, -1)
            count += int(free.sum())
        places = self._places
        self.matrix = csr_array(
            (np.ones(len(places)), (places, owner[places])), shape=(self.size, count)
        )
        sums = np.bincount(owner[places], graph.log_tables[places], count)
        self.start = sums / np.bincount(owner[places], minlength=count)


def tied_groups(graph: FactorGraph, text: str) -> list[list[int]]:
    """Groups of factors that share a table; factors not named stand alone.

    `shape` ties all factors of equal shape; otherwise groups are separated by `;`, with numbers and
    ranges between commas.

    >>> pairs = FactorGraph([2] * 3, [((0, 1), [1] * 4), ((1, 2), [1] * 4), ((0,), [1, 1])])
    >>> tied_groups(pairs, "0-1"), tied_groups(pairs, "shape")
    ([[0, 1], [2]], [[0, 1], [2]])
    """
    if text.strip() == "shape":
        by_shape: dict[tuple[int, ...], list[int]] = {}
        for a in range(graph.n_factors):
            by_shape.setdefault(graph.shape(a), []).append(a)
        return list(by_shape.values())
    groups = [_numbers(part, graph.n_factors) for part in text.split(";") if part.strip()]
    named = [a for group in groups for a in group]
    if len(set(named)) < len(named):
        raise MethodError(f"ties '{text}': a factor is named twice")
    for group in groups:
        for a in group[1:]:
            if graph.shape(a) != graph.shape(group[0]):
                raise ModelError(
                    f"ties: factors {group[0]} and {a} have different shapes "
                    f"{graph.shape(group[0])} and {graph.shape(a)}"
                )
    return groups + [[a] for a in sorted(set(range(graph.n_factors)) - set(named))]


def _numbers(text: str, n_factors: int) -> list[int]:
    found: list[int] = []
    for piece in filter(None, (p.strip() for p in text.split(","))):
        low, dash, high = piece.partition("-")
        if not is_whole(low.strip()) or (dash and not is_whole(high.strip())):
            raise MethodError(
                f"ties: '{piece}' is no factor; write groups such as 0-3,8;4-7, or shape"
            )
        first, last = int(low), int(high) if dash else int(low)
        if last < first or last >= n_factors:
            raise MethodError(f"ties: '{piece}' is not within the factors 0..{n_factors - 1}")
        found += range(first, last + 1)
    return found


def _block(graph: FactorGraph, a: int) -> slice:
    return slice(int(graph.table_offsets[a]), int(graph.table_offsets[a + 1]))
