"""`Targets`: the marginals that a fitted model shall have, one table per factor.

Counted from data they always belong to some distribution. Given directly they may not: tables that
contradict each other where they overlap are refused here; subtler contradictions are found by the
scaling itself, whose log-likelihood then passes what any distribution allows.

Reference: TEH-M25.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array, Mask
from kikuchi.core.errors import DataError, ModelError
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.data import Data

_SUM = 1e-6  # how far from 1 a table may sum; it is then normalised
_AGREE = 1e-7  # how far two tables may disagree about a common variable


@dataclass(frozen=True, eq=False)
class Targets:
    """Wanted marginals of some factors, laid out as the graph's tables; the others are left alone.

    `tables` is 0 for factors without a target, which `active` marks with False.

    `graph` is the model whose factors they are.

    >>> graph = FactorGraph([2, 2], [((0, 1), np.ones(4)), ((1,), np.ones(2))])
    >>> targets = Targets.given(graph, {0: [[0.4, 0.1], [0.2, 0.3]]})
    >>> targets.active.tolist(), targets.table(0).tolist()
    ([True, False], [[0.4, 0.1], [0.2, 0.3]])
    """

    graph: FactorGraph
    tables: Array
    active: Mask

    @classmethod
    def of(cls, graph: FactorGraph, data: Data | ArrayLike, *, smoothing: float = 0.0) -> Targets:
        """Frequencies of the states of each factor of `graph` in the complete rows of `data`, to
        which `smoothing` rows spread over all states are added.

        All tables stay marginals of one distribution, which a pseudo-count in each cell would not
        give where tables have different sizes.

        >>> graph = FactorGraph([2, 2], [((0, 1), np.ones(4))])
        >>> Targets.of(graph, [[0, 0], [1, 1]], smoothing=2.0).tables.tolist()
        [0.375, 0.125, 0.125, 0.375]
        """
        rows = Data.of(data, graph)
        if not rows.complete:
            raise DataError("targets: rows with missing cells have no joint frequencies; fill them")
        if smoothing > 0 and np.isneginf(graph.log_tables).any():
            raise DataError(
                "targets: smoothing spreads weight over all states, but the tables forbid some; "
                "use smoothing=0 or give the zeros a small weight"
            )
        sizes = np.diff(graph.table_offsets)
        spread = np.repeat(smoothing / np.maximum(sizes, 1), sizes)
        tables = (rows.factor_counts(graph) + spread) / (rows.total + smoothing)
        return cls(graph, tables, np.ones(graph.n_factors, dtype=bool))

    @classmethod
    def given(
        cls, graph: FactorGraph, tables: Mapping[int, ArrayLike] | Sequence[ArrayLike | None]
    ) -> Targets:
        """Targets of the factors of `graph`: `tables` by factor number, or one for each factor
        (None for no target), checked.
        """
        items = tables.items() if isinstance(tables, Mapping) else enumerate(tables)
        flat = np.zeros(graph.log_tables.size)
        active = np.zeros(graph.n_factors, dtype=bool)
        for a, table in items:
            if table is None:
                continue
            if not isinstance(a, int | np.integer) or not 0 <= a < graph.n_factors:
                raise ModelError(f"targets: there is no factor {a!r}; they count from 0")
            flat[graph.table_offsets[a] : graph.table_offsets[a + 1]] = _checked(graph, a, table)
            active[a] = True
        targets = cls(graph, flat, active)
        targets._check_agreement()
        targets._check_zeros()
        return targets

    def table(self, factor: int) -> Array:
        """The target of the factor number `factor`."""
        offsets = self.graph.table_offsets
        return self.tables[offsets[factor] : offsets[factor + 1]].reshape(self.graph.shape(factor))

    @property
    def least_entropy(self) -> float:
        """A distribution with these marginals has at least this entropy: that of any of them."""
        if not self.tables.size:
            return 0.0
        logs = np.log(np.where(self.tables > 0, self.tables, 1.0))
        by_factor = -np.add.reduceat(self.tables * logs, self.graph.table_offsets[:-1])
        return float(by_factor.max())

    def mean_of(self, log_tables: Array) -> float:
        """Expected sum of `log_tables`, flat as those of the graph, under the targets, with 0 times
        -inf = 0.
        """
        with np.errstate(invalid="ignore"):
            return float(np.where(self.tables > 0, self.tables * log_tables, 0.0).sum())

    def _check_agreement(self) -> None:
        """Compare every table with the first that has the same overlap: pairs and single ones."""
        from kikuchi.graphs.regions.sets import SetFamily

        graph = self.graph
        scopes = [graph.scope(a) for a in range(graph.n_factors)]
        holders = SetFamily.of([sorted(s) for s in scopes], graph.n_variables).holders.tuples()
        seen: set[tuple[int, int]] = set()
        for group in holders:
            active = [a for a in group if self.active[a]]
            for k, b in enumerate(active):
                for a in active[:k]:
                    shared = tuple(sorted(set(scopes[a]) & set(scopes[b])))
                    compared = len(shared) == 1 and a != active[0]
                    if (a, b) not in seen and not compared:
                        seen.add((a, b))
                        self._compare(a, b, shared)

    def _compare(self, a: int, b: int, shared: tuple[int, ...]) -> None:
        gap = np.abs(self._marginal(a, shared) - self._marginal(b, shared)).max()
        if gap > _AGREE:
            names = ", ".join(self.graph.label(v) for v in shared)
            raise DataError(
                f"targets: no distribution has them: factors {a} and {b} disagree about ({names}) "
                f"by {gap:.3g}; give marginals of one distribution"
            )

    def _marginal(self, factor: int, shared: tuple[int, ...]) -> Array:
        scope = self.graph.scope(factor)
        rest = tuple(k for k, v in enumerate(scope) if v not in shared)
        kept = [v for v in scope if v in shared]
        table = self.table(factor).sum(axis=rest)
        return np.transpose(table, [kept.index(v) for v in shared])

    def _check_zeros(self) -> None:
        clash = np.flatnonzero(np.isneginf(self.graph.log_tables) & (self.tables > 0))
        if clash.size:
            a = int(np.searchsorted(self.graph.table_offsets, clash[0], side="right")) - 1
            raise DataError(
                f"targets: factor {a} has weight zero where its target is positive, and zeros stay "
                "zero; correct the table or the target"
            )


def _checked(graph: FactorGraph, factor: int, table: ArrayLike) -> Array:
    shape = graph.shape(factor)
    try:
        values = np.asarray(table, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"targets: factor {factor}: not a table of numbers") from None
    if values.size != int(np.prod(shape)) or values.shape not in (shape, (values.size,)):
        raise DataError(f"targets: factor {factor} needs shape {shape}, got {values.shape}")
    if not np.all(np.isfinite(values)) or np.any(values < 0):
        raise DataError(f"targets: factor {factor} holds a number that is no probability")
    total = float(values.sum())
    if abs(total - 1.0) > _SUM:
        raise DataError(f"targets: factor {factor} sums to {total:.6g}, not to 1")
    return np.asarray(values.ravel() / total)
