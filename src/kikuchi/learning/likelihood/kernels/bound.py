"""Mean field of the hidden cells of many rows, warm, in one compiled loop.

Reference: LIU-L8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kikuchi.core.arrays import U4, Array, Ints, Mask
from kikuchi.core.compiled import njit
from kikuchi.engines.mean_field.kernels.mean_field import bound, products, sweep_tables

if TYPE_CHECKING:
    from kikuchi.graphs.graph_arrays import GraphArrays


@njit(cache=True, error_model="numpy")
def mean_field_rows(
    g: GraphArrays,
    q: Array,
    weights: Array,
    order_at: Ints,
    order: U4,
    alive: Mask,
    temperatures: Array,
    tol: float,
    begin: int,
    end: int,
    field: Array,
    scratch: Array,
    tables: Array,
    bounds: Array,
    counts: Array,
) -> None:
    """Ascend each row's q over its hidden variables; fill its bound, add its expected counts.

    Row r of `q` holds the distributions of all variables, all mass on one state for those that the
    row observes; its hidden ones are `order[order_at[r]:order_at[r + 1]]`.
    """
    for r in range(begin, end):
        hidden = order[order_at[r] : order_at[r + 1]]
        if len(hidden) > 0:
            sweep_tables(g, q[r], alive, hidden, temperatures, tol, field, scratch)
        bounds[r] = bound(g, q[r], 1.0, scratch)
        products(g, q[r], tables)
        for entry in range(len(tables)):
            counts[entry] += weights[r] * tables[entry]
