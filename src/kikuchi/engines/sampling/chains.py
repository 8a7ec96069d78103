"""What the kernels of a Gibbs sampler work on: chains, and the models that move them."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

from kikuchi.core.arrays import U8, Array, Ints


class Chains(NamedTuple):
    """Where the chains are and what is kept of them; `kept` counts the sweeps added to `sums`."""

    states: NDArray[Any]
    streams: U8
    kept: Ints
    sums: Array
    draws: NDArray[Any]
    scores: Array


class BitRows(NamedTuple):
    """The couplings of each bit, in the order of the updates.

    Row r updates the bit at `places[r]` (already times the number of chains, as are
    `neighbours`); `multipliers` holds 1 and e^W for each neighbour, `odds` e^bias of each row.
    """

    places: U8
    offsets: U8
    neighbours: U8
    multipliers: Array
    odds: Array
    biases: Array
    weights: Array


class TableRows(NamedTuple):
    """The factors of each variable and its strides in their tables, and the order of the updates.

    Those of variable v stand at `offsets[v]` to `offsets[v + 1]`; `factors` are already times the
    number of chains.
    """

    order: U8
    offsets: U8
    factors: U8
    strides: U8
