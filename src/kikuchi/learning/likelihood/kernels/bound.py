"""Mean field of the hidden cells of many rows, warm, in one compiled loop.

Reference: LIU-L8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kikuchi.core.arrays import U4, Array, Ints, Mask
from kikuchi.core.compiled import njit
from kikuchi.engines.mean_field.kernels.mean_field import bound, products, sweep_tables

if TYPE_CHECKING:
    from kikuchi.graphs.graph_arrays import GraphArrays


class RowDistributions(NamedTuple):
    """Row r of `q` holds the distributions of all variables, all mass on one state for those that
    the row observes; its hidden ones are `order[order_at[r]:order_at[r + 1]]`.
    """

    q: Array
    weights: Array
    order_at: Ints
    order: U4
    alive: Mask


class RowScratch(NamedTuple):
    """Working memory of one row: a field, the entries of one factor, and of all."""

    field: Array
    entries: Array
    tables: Array


class BoundSums(NamedTuple):
    """The bound of each row, and the expected counts of all together."""

    bounds: Array
    counts: Array


@njit(cache=True, error_model="numpy")
def mean_field_rows(
    g: GraphArrays,
    rows: RowDistributions,
    temperatures: Array,
    tol: float,
    begin: int,
    end: int,
    scratch: RowScratch,
    out: BoundSums,
) -> None:
    """Ascend each row's q over its hidden variables; fill its bound, add its expected counts."""
    for r in range(begin, end):
        q = rows.q[r]
        hidden = rows.order[rows.order_at[r] : rows.order_at[r + 1]]
        if len(hidden) > 0:
            sweep_tables(
                g, q, rows.alive, hidden, temperatures, tol, scratch.field, scratch.entries
            )
        out.bounds[r] = bound(g, q, 1.0, scratch.entries)
        products(g, q, scratch.tables)
        for entry in range(len(scratch.tables)):
            out.counts[entry] += rows.weights[r] * scratch.tables[entry]
