"""Gibbs sweeps over several chains in lock step, and what is kept of them.

The state of variable v in chain c is `states[v * chains + c]`. The chains are independent, so the
processor works on one while it waits for another: this hides the latency of a sequential sweep.
Indices are unsigned 64-bit numbers throughout; signed ones cost half as much again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

if TYPE_CHECKING:
    from kikuchi.inference.flat import FlatGraph

F8 = NDArray[np.float64]
U8 = NDArray[np.uint64]
U4 = NDArray[np.uint32]
States = NDArray[Any]

_U = np.uint64
_ZERO, _ONE, _TWO, _THREE, _FOUR, _SIX = _U(0), _U(1), _U(2), _U(3), _U(4), _U(6)
_UNIT = 1.0 / 2**53


@njit(cache=True, error_model="numpy")
def seed_streams(words: U8) -> U8:
    """Four words of xoshiro256++ state for each chain, from one word by splitmix64."""
    streams = np.empty(4 * len(words), np.uint64)
    for c in range(len(words)):
        z = words[c]
        for k in range(4):
            z += _U(0x9E3779B97F4A7C15)
            y = (z ^ (z >> _U(30))) * _U(0xBF58476D1CE4E5B9)
            y = (y ^ (y >> _U(27))) * _U(0x94D049BB133111EB)
            streams[4 * c + k] = y ^ (y >> _U(31))
    return streams


@njit(cache=True, error_model="numpy", inline="always")
def uniform(streams: U8, k: np.uint64) -> float:
    """The next number in [0, 1) of the stream whose state begins at k (xoshiro256++)."""
    s0, s1 = streams[k], streams[k + _ONE]
    s2, s3 = streams[k + _TWO], streams[k + _THREE]
    mixed = s0 + s3
    word = ((mixed << _U(23)) | (mixed >> _U(41))) + s0
    shifted = s1 << _U(17)
    s2 ^= s0
    s3 ^= s1
    s1 ^= s2
    s0 ^= s3
    s2 ^= shifted
    s3 = (s3 << _U(45)) | (s3 >> _U(19))
    streams[k], streams[k + _ONE] = s0, s1
    streams[k + _TWO], streams[k + _THREE] = s2, s3
    return np.float64(np.int64(word >> _U(11))) * _UNIT


# ---------------------------------------------------------------------- sweeps in bits


@njit(cache=True, error_model="numpy")
def sample_bits(
    g: FlatGraph,
    places: U8,
    offsets: U8,
    neighbours: U8,
    multipliers: F8,
    odds: F8,
    states: States,
    streams: U8,
    first: int,
    sweeps: int,
    thin: int,
    sums: F8,
    entries: U8,
    draws: States,
    counts: NDArray[np.int64],
    best: F8,
    best_state: NDArray[np.int64],
) -> None:
    """Kept sweeps number `first` and on; every `thin`-th is recorded."""
    for sweep in range(first, first + sweeps):
        sweep_bits(places, offsets, neighbours, multipliers, odds, states, streams, True, sums)
        if (sweep + 1) % thin == 0:
            locate(g, states, entries)
            _record((sweep + 1) // thin - 1, g, states, entries, draws, counts, best, best_state)


@njit(cache=True, error_model="numpy")
def burn_bits(
    places: U8,
    offsets: U8,
    neighbours: U8,
    multipliers: F8,
    odds: F8,
    states: States,
    streams: U8,
    sweeps: int,
    sums: F8,
) -> None:
    """Sweeps that nothing is kept of."""
    for _ in range(sweeps):
        sweep_bits(places, offsets, neighbours, multipliers, odds, states, streams, False, sums)


@njit(cache=True, error_model="numpy")
def sweep_bits(
    places: U8,
    offsets: U8,
    neighbours: U8,
    multipliers: F8,
    odds: F8,
    states: States,
    streams: U8,
    keep: bool,
    sums: F8,
) -> None:
    """Update every bit once: the odds of 1 are e^b_i times e^W_ij for every neighbour j at 1.

    Row r updates the bit at `places[r]` (already times the number of chains, as are
    `neighbours`); `multipliers` holds 1 and e^W for each neighbour. No logarithm, no exponential,
    and a division only for the mean that is kept. Rows of four neighbours, those of a grid, are
    written out: that saves a third of the time.
    """
    chains = _U(len(streams)) // _FOUR
    for r in range(_U(len(places))):
        here, lo, hi = places[r], offsets[r], offsets[r + _ONE]
        own = odds[r]
        mean = 0.0
        if hi - lo == _FOUR:
            a, b = neighbours[lo], neighbours[lo + _ONE]
            c, d = neighbours[lo + _TWO], neighbours[lo + _THREE]
            m = lo + lo
            for k in range(chains):
                ratio = (own * multipliers[m + _U(states[a + k])]) * multipliers[
                    m + _TWO + _U(states[b + k])
                ]
                ratio *= (
                    multipliers[m + _FOUR + _U(states[c + k])]
                    * multipliers[m + _SIX + _U(states[d + k])]
                )
                u = uniform(streams, k * _FOUR)
                total = 1.0 + ratio
                states[here + k] = u * total < ratio
                if keep:
                    mean += ratio / total
        else:
            for k in range(chains):
                ratio = own
                for e in range(lo, hi):
                    ratio *= multipliers[e + e + _U(states[neighbours[e] + k])]
                u = uniform(streams, k * _FOUR)
                total = 1.0 + ratio
                states[here + k] = u * total < ratio
                if keep:
                    mean += ratio / total
        if keep:
            sums[r] += mean


# ---------------------------------------------------------------------- sweeps over tables


@njit(cache=True, error_model="numpy")
def sample_tables(
    g: FlatGraph,
    order: U8,
    rows: U8,
    row_factors: U8,
    row_strides: U8,
    states: States,
    streams: U8,
    first: int,
    sweeps: int,
    thin: int,
    field: F8,
    sums: F8,
    entries: U8,
    draws: States,
    counts: NDArray[np.int64],
    best: F8,
    best_state: NDArray[np.int64],
) -> None:
    """Kept sweeps number `first` and on; every `thin`-th is recorded."""
    for sweep in range(first, first + sweeps):
        sweep_tables(
            g, order, rows, row_factors, row_strides, states, streams, True, field, sums, entries
        )
        if (sweep + 1) % thin == 0:
            _record((sweep + 1) // thin - 1, g, states, entries, draws, counts, best, best_state)


@njit(cache=True, error_model="numpy")
def burn_tables(
    g: FlatGraph,
    order: U8,
    rows: U8,
    row_factors: U8,
    row_strides: U8,
    states: States,
    streams: U8,
    sweeps: int,
    field: F8,
    sums: F8,
    entries: U8,
) -> None:
    """Sweeps that nothing is kept of."""
    for _ in range(sweeps):
        sweep_tables(
            g, order, rows, row_factors, row_strides, states, streams, False, field, sums, entries
        )


@njit(cache=True, error_model="numpy")
def sweep_tables(
    g: FlatGraph,
    order: U8,
    rows: U8,
    row_factors: U8,
    row_strides: U8,
    states: States,
    streams: U8,
    keep: bool,
    field: F8,
    sums: F8,
    entries: U8,
) -> None:
    """Update every variable once from its conditional; any cardinality, order and zeros.

    `entries[a * chains + c]` is the current entry of factor a in chain c; `row_factors` and
    `row_strides` list the factors of each variable (times `chains`) and its strides in them.
    """
    chains = _U(len(streams)) // _FOUR
    for v in order:
        card = _U(g.cards[v])
        slot = _U(g.state_offsets[v])
        for c in range(chains):
            here = v * chains + c
            old = _U(states[here])
            total = conditional_weights(
                g, v, old, c, rows, row_factors, row_strides, entries, field
            )
            u = uniform(streams, c * _FOUR) * total
            new = old
            cumulated = 0.0
            chosen = False
            for x in range(card):
                weight = field[x]
                cumulated += weight
                if weight > 0.0 and not chosen:
                    new = x  # the last state of positive weight if rounding leaves u above all
                    chosen = u < cumulated
                if keep:
                    sums[slot + x] += weight / total
            if new != old:
                states[here] = new
                for k in range(rows[v], rows[v + _ONE]):
                    stride = row_strides[k]
                    entries[row_factors[k] + c] += new * stride - old * stride


@njit(cache=True, error_model="numpy")
def conditional_weights(
    g: FlatGraph,
    v: np.uint64,
    old: np.uint64,
    c: np.uint64,
    rows: U8,
    row_factors: U8,
    row_strides: U8,
    entries: U8,
    field: F8,
) -> float:
    """Fill `field` with weights proportional to p(x_v | rest), the largest 1; answers their sum."""
    card = _U(g.cards[v])
    for x in range(card):
        field[x] = 0.0
    for k in range(rows[v], rows[v + _ONE]):
        stride = row_strides[k]
        entry = entries[row_factors[k] + c] - old * stride
        for x in range(card):
            field[x] += g.log_tables[entry]
            entry += stride
    top = field[_ZERO]
    for x in range(card):
        top = max(top, field[x])
    total = 0.0
    for x in range(card):
        weight = 1.0 if field[x] == top else np.exp(field[x] - top)
        field[x] = weight
        total += weight
    return total


# ---------------------------------------------------------------------- records


@njit(cache=True, error_model="numpy")
def locate(g: FlatGraph, states: States, entries: U8) -> None:
    """The entry of every factor's table that each chain is at."""
    factors = _U(len(g.table_offsets) - 1)
    if factors == _ZERO:
        return
    chains = _U(len(entries)) // factors
    for a in range(factors):
        lo, hi = _U(g.scope_offsets[a]), _U(g.scope_offsets[a + _ONE])
        for c in range(chains):
            entry = _U(g.table_offsets[a])
            for e in range(lo, hi):
                entry += _U(g.edge_strides[e]) * _U(states[_U(g.scopes[e]) * chains + c])
            entries[a * chains + c] = entry


@njit(cache=True, error_model="numpy")
def chain_scores(g: FlatGraph, chains: int, entries: U8) -> F8:
    """Log-weight of each chain's state."""
    scores = np.zeros(chains)
    for k in range(len(entries)):
        scores[k % chains] += g.log_tables[entries[k]]
    return scores


@njit(cache=True, error_model="numpy")
def _record(
    number: int,
    g: FlatGraph,
    states: States,
    entries: U8,
    draws: States,
    counts: NDArray[np.int64],
    best: F8,
    best_state: NDArray[np.int64],
) -> None:
    """Keep the states as draw `number`, count the factors' entries, note the best state."""
    n = len(best_state)
    chains = len(states) // n
    draws[number, :] = states
    for entry in entries:
        counts[entry] += 1
    scores = chain_scores(g, chains, entries)
    for c in range(chains):
        if scores[c] > best[0]:
            best[0] = scores[c]
            for v in range(n):
                best_state[v] = states[v * chains + c]


@njit(cache=True, error_model="numpy")
def greedy_colours(offsets: U4, neighbours: U4, order: U4) -> NDArray[np.int64]:
    """The first colour that no neighbour has, for each vertex in turn."""
    n = len(order)
    colours = np.full(n, -1, np.int64)
    taken_by = np.full(n + 1, -1, np.int64)
    for v in order:
        for k in range(offsets[v], offsets[v + np.uint32(1)]):
            colour = colours[neighbours[k]]
            if colour >= 0:
                taken_by[colour] = v
        colour = 0
        while taken_by[colour] == v:
            colour += 1
        colours[v] = colour
    return colours
