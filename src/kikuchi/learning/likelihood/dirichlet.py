"""Conditional tables in flat arrays: rows of a table, their normalisation, and Dirichlet priors."""

from __future__ import annotations

from typing import Literal

import numpy as np

from kikuchi.core.arrays import U4, Array, Ints
from kikuchi.core.errors import ModelError
from kikuchi.core.numerics import log, xlogy
from kikuchi.graphs.factor_graph import FactorGraph

Spread = Literal["cell", "table"]


class ConditionalTables:
    """The rows p(child | parents) of a directed graph's tables, without their entries of -inf.

    >>> import kikuchi as kk
    >>> net = kk.FactorGraph([2, 2], [((0,), [0.5, 0.5]), ((0, 1), [[0.9, 0.1], [0.2, 0.8]])],
    ...                      children=[0, 1])
    >>> tables = ConditionalTables(net)
    >>> np.exp(tables.normalised(np.log([1.0, 3.0, 2.0, 2.0, 1.0, 4.0]))).round(3).tolist()
    [0.25, 0.75, 0.5, 0.5, 0.2, 0.8]
    """

    def __init__(self, graph: FactorGraph) -> None:
        if graph.children is None:
            raise ModelError(
                "the model has no directions; build it with children=, or use learner gradient"
            )
        self.row_of = _rows(graph, graph.children)
        self.n_rows = int(self.row_of.max(initial=-1)) + 1
        self.allowed = np.isfinite(graph.log_tables)
        self.factor_of = np.repeat(np.arange(graph.n_factors), np.diff(graph.table_offsets))

    def row_sums(self, values: Array) -> Array:
        """Sum over each row's child states."""
        return np.bincount(self.row_of, values, self.n_rows).astype(np.float64)

    def normalised(self, log_tables: Array) -> Array:
        """Log-tables whose rows sum to 1; a row without weight stays as it is."""
        top = np.full(self.n_rows, -np.inf)
        np.maximum.at(top, self.row_of, log_tables)
        shift = np.where(np.isfinite(top), top, 0.0)[self.row_of]
        sums = self.row_sums(np.exp(log_tables - shift))
        with np.errstate(invalid="ignore"):
            return np.where(
                np.isneginf(log_tables), -np.inf, log_tables - shift - log(sums)[self.row_of]
            )

    def estimate(self, counts: Array, current: Array) -> tuple[Array, int]:
        """Log of the rows' frequencies; rows without counts keep `current` and are counted."""
        counts = np.where(self.allowed, counts, 0.0)
        sums = self.row_sums(counts)
        empty = sums <= 0
        with np.errstate(divide="ignore", invalid="ignore"):
            tables = np.log(counts / sums[self.row_of])
        return np.where(empty[self.row_of], current, tables), int(np.count_nonzero(empty))

    def pseudo_counts(self, prior: float, spread: Spread) -> Array:
        """Pseudo-counts: `prior` per cell, or per table, divided evenly over its allowed cells."""
        if spread == "cell":
            return np.where(self.allowed, prior, 0.0)
        n_factors = int(self.factor_of.max(initial=-1)) + 1
        cells = np.bincount(self.factor_of, self.allowed, n_factors)
        return np.where(self.allowed, prior / np.maximum(cells, 1)[self.factor_of], 0.0)

    # ------------------------------------------------------------------ Dirichlet distributions

    def expected_logs(self, alpha: Array) -> Array:
        """E[log p] of each entry when every row is Dirichlet with parameters `alpha`."""
        from scipy.special import digamma

        whole = self.row_sums(alpha)[self.row_of]
        safe = np.where(self.allowed, alpha, 1.0)
        return np.where(self.allowed, digamma(safe) - digamma(whole), -np.inf)

    def log_evidence(self, prior: Array, counts: Array) -> float:
        """log of the integral of prod p^counts over all rows: Dirichlet-multinomial evidence."""
        return self._log_beta(prior + counts) - self._log_beta(prior)

    def _log_beta(self, alpha: Array) -> float:
        from scipy.special import gammaln

        kept = self.allowed
        rows = self.row_sums(alpha)
        return float(gammaln(alpha[kept]).sum() - gammaln(rows[rows > 0]).sum())

    def divergence(self, alpha: Array, prior: Array) -> float:
        """KL(Dirichlet(alpha) || Dirichlet(prior)), summed over the rows."""
        logs = np.where(self.allowed, self.expected_logs(alpha), 0.0)
        return float(
            self._log_beta(prior) - self._log_beta(alpha) + xlogy(alpha - prior, logs).sum()
        )


def _rows(graph: FactorGraph, children: U4) -> Ints:
    """The row of each table entry: entries that differ only in the child's state share one."""
    steps, sizes = np.empty((2, graph.n_factors), dtype=np.int64)
    cards = graph.cardinalities.tolist()
    for a, child in enumerate(children.tolist()):
        stride = 1
        for v in reversed(graph.scope(a)):  # the child's stride: states of the axes after it
            if v == child:
                break
            stride *= cards[v]
        steps[a], sizes[a] = stride, cards[child]
    entries = np.diff(graph.table_offsets)
    rows = entries // sizes
    place = np.arange(graph.log_tables.size) - np.repeat(graph.table_offsets[:-1], entries)
    step, span = np.repeat(steps, entries), np.repeat(steps * sizes, entries)
    first = np.repeat(np.cumsum(rows) - rows, entries)
    return np.asarray(first + place // span * step + place % step, dtype=np.int64)
