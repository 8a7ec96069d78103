"""Gibbs sweeps of chains with clamped variables, and counts of the table entries of chains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from kikuchi.inference.sampling.kernels.gibbs import (
    conditional_weights,
    draw,
    move_entries,
    uniform,
)

if TYPE_CHECKING:
    from kikuchi.inference.graph_arrays import GraphArrays

F8 = NDArray[np.float64]
U8 = NDArray[np.uint64]
States = NDArray[Any]

_U = np.uint64
_ONE, _FOUR = _U(1), _U(4)


@njit(cache=True, error_model="numpy")
def clamped_sweeps(
    g: GraphArrays,
    order: U8,
    rows: U8,
    row_factors: U8,
    row_strides: U8,
    states: States,
    streams: U8,
    free: NDArray[np.bool_],
    sweeps: int,
    field: F8,
    entries: U8,
) -> None:
    """As `burn_tables` of the Gibbs sampler, but a cell moves only where `free` says so."""
    cards, log_tables = g.cards, g.log_tables
    chains = _U(len(streams)) // _FOUR
    for _ in range(sweeps):
        for v in order:
            card = _U(cards[v])
            for c in range(chains):
                here = v * chains + c
                if not free[here]:
                    continue
                old = _U(states[here])
                total = conditional_weights(
                    log_tables,
                    card,
                    rows[v],
                    rows[v + _ONE],
                    old,
                    c,
                    row_factors,
                    row_strides,
                    entries,
                    field,
                )
                u = uniform(streams, c * _FOUR) * total
                new = draw(field, card, u)
                if new != old:
                    states[here] = new
                    move_entries(
                        rows[v], rows[v + _ONE], old, new, c, row_factors, row_strides, entries
                    )


@njit(cache=True, error_model="numpy")
def add_entries(entries: U8, weights: F8, out: F8) -> None:
    """Add each chain's weight at the entries of all tables that it is at."""
    chains = _U(len(weights))
    for a in range(_U(len(entries)) // chains):
        for c in range(chains):
            out[entries[a * chains + c]] += weights[c]
