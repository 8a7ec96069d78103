"""Gibbs sweeps over several chains in lock step, and what is kept of them.

The state of variable v in chain c is `states[v * chains + c]`. The chains are independent, so the
processor works on one while it waits for another: this hides the latency of a sequential sweep.
Indices are unsigned 64-bit numbers throughout; signed ones cost half as much again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import U4, U8, Array, Ints, Mask
from kikuchi.core.compiled import njit

if TYPE_CHECKING:
    from kikuchi.engines.sampling.chains import BitRows, Chains, TableRows
    from kikuchi.graphs.graph_arrays import GraphArrays

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


@njit(cache=True, error_model="numpy", inline="always")
def record(chains, thin):
    """Count a sweep that is kept; every `thin`-th is recorded: its number, otherwise -1."""
    chains.kept[0] += 1
    if chains.kept[0] % thin != 0:
        return -1
    number = chains.kept[0] // thin - 1
    chains.draws[number, :] = chains.states
    return number


@njit(cache=True, error_model="numpy")
def run_bits(rows: BitRows, chains: Chains, sweeps: int, thin: int) -> None:
    """Sweep; unless `thin` is 0, add up the conditionals, record states and their log-weights."""
    for _ in range(sweeps):
        if thin == 0:
            sweep_bits(rows, chains.states, chains.streams, False, chains.sums)
        else:
            sweep_bits(rows, chains.states, chains.streams, True, chains.sums)
            number = record(chains, thin)
            if number >= 0:
                score_bits(rows, chains.states, chains.scores[number])


@njit(cache=True, error_model="numpy")
def score_bits(rows: BitRows, states: States, scores: Array) -> None:
    """Log-weight of each chain's state, without the constant; every coupling counts once."""
    places, offsets, neighbours, _, _, biases, weights = rows
    chains = _U(len(scores))
    scores[:] = 0.0
    for r in range(_U(len(places))):
        here = places[r]
        bias = biases[r]
        for k in range(chains):
            scores[k] += bias * np.float64(np.int64(states[here + k]))
        for e in range(offsets[r], offsets[r + _ONE]):
            there = neighbours[e]
            if there < here:
                weight = weights[e]
                for k in range(chains):
                    scores[k] += weight * np.float64(np.int64(states[here + k] & states[there + k]))


@njit(cache=True, error_model="numpy")
def sweep_bits(rows: BitRows, states: States, streams: U8, keep: bool, sums: Array) -> None:
    """Update every bit once: the odds of 1 are e^b_i times e^W_ij for every neighbour j at 1.

    No logarithm, no exponential, and a division only for the mean that is kept. Rows of four
    neighbours, those of a grid, are written out: that saves a third of the time.
    """
    places, offsets, neighbours, multipliers, odds, _, _ = rows
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
def run_tables(
    g: GraphArrays,
    rows: TableRows,
    chains: Chains,
    free: Mask | None,
    sweeps: int,
    thin: int,
    field: Array,
    entries: U8,
) -> None:
    """Sweep; unless `thin` is 0, add up the conditionals, record states and their log-weights."""
    for _ in range(sweeps):
        if thin == 0:
            sweep_tables(g, rows, chains, free, False, field, entries)
        else:
            sweep_tables(g, rows, chains, free, True, field, entries)
            number = record(chains, thin)
            if number >= 0:
                score_tables(g, entries, chains.scores[number])


@njit(cache=True, error_model="numpy")
def score_tables(g: GraphArrays, entries: U8, scores: Array) -> None:
    """Log-weight of each chain's state, without the constant."""
    log_tables = g.log_tables
    chains = _U(len(scores))
    scores[:] = 0.0
    for a in range(_U(len(entries)) // chains):
        for k in range(chains):
            scores[k] += log_tables[entries[a * chains + k]]


@njit(cache=True, error_model="numpy")
def sweep_tables(
    g: GraphArrays,
    rows: TableRows,
    chains: Chains,
    free: Mask | None,
    keep: bool,
    field: Array,
    entries: U8,
) -> None:
    """Update every variable once from its conditional; any cardinality, order and zeros.

    `entries[a * chains + c]` is the current entry of factor a in chain c. Where `free` is given,
    only the cells that it marks move.
    """
    cards, log_tables, state_offsets = g.cards, g.log_tables, g.state_offsets
    states, streams, sums = chains.states, chains.streams, chains.sums
    offsets, factors, strides = rows.offsets, rows.factors, rows.strides
    n_chains = _U(len(streams)) // _FOUR
    for v in rows.order:
        card = _U(cards[v])
        slot = _U(state_offsets[v])
        lo, hi = offsets[v], offsets[v + _ONE]
        for c in range(n_chains):
            here = v * n_chains + c
            if free is not None and not free[here]:
                continue
            old = _U(states[here])
            now = (old, c)
            top = conditional_log_weights(
                log_tables, card, (lo, hi), now, factors, strides, entries, field
            )
            total = exponentiate(field, card, top)
            u = uniform(streams, c * _FOUR) * total
            if keep:
                share = 1.0 / total
                for x in range(card):
                    sums[slot + x] += field[x] * share
            new = draw(field, card, u)
            if new != old:
                states[here] = new
                for k in range(lo, hi):
                    entries[factors[k] + c] += new * strides[k] - old * strides[k]


@njit(cache=True, error_model="numpy", inline="always")
def draw(field, card, u):
    """The state at which the sum of the weights passes `u`."""
    new = _ZERO
    cumulated = field[new]
    while cumulated <= u and new + _ONE < card:
        new += _ONE
        cumulated += field[new]
    while field[new] == 0.0:
        new -= _ONE  # rounding left u above all: the last state of positive weight
    return new


@njit(cache=True, error_model="numpy", inline="always")
def exponentiate(field, card, top):
    """Make weights of log-weights, the largest 1, that of `top`; answers their sum."""
    total = 0.0
    for x in range(card):
        weight = 1.0 if field[x] == top else np.exp(field[x] - top)
        field[x] = weight
        total += weight
    return total


@njit(cache=True, error_model="numpy", inline="always")
def conditional_log_weights(log_tables, card, span, now, factors, strides, entries, field):
    """Fill `field` with log p(x_v | rest) up to a constant; returns the largest.

    `span` is where v stands in the rows of `factors`, `now` its state and the number of the chain.
    """
    lo, hi = span
    old, c = now
    for x in range(card):
        field[x] = 0.0
    for k in range(lo, hi):
        stride = strides[k]
        entry = entries[factors[k] + c] - old * stride
        for x in range(card):
            field[x] += log_tables[entry]
            entry += stride
    top = field[_ZERO]
    for x in range(card):
        top = max(top, field[x])
    return top


# ---------------------------------------------------------------------- records


@njit(cache=True, error_model="numpy")
def locate(g: GraphArrays, states: States, entries: U8) -> None:
    """The entry of every factor's table that each chain is at."""
    chains = _U(len(states)) // _U(len(g.cards))
    for a in range(_U(len(g.table_offsets) - 1)):
        for c in range(chains):
            entries[a * chains + c] = table_entry(g, a, states, chains, c)


@njit(cache=True, error_model="numpy", inline="always")
def table_entry(g, a, states, chains, c):
    """The entry of factor a's table that chain c is at."""
    scopes, edge_strides = g.scopes, g.edge_strides
    entry = _U(g.table_offsets[a])
    for e in range(_U(g.scope_offsets[a]), _U(g.scope_offsets[a + _ONE])):
        entry += _U(edge_strides[e]) * _U(states[_U(scopes[e]) * chains + c])
    return entry


@njit(cache=True, error_model="numpy")
def count_entries(g: GraphArrays, draws: States, entries: U8, counts: Array) -> None:
    """How often each entry of each table occurs in the draws."""
    for number in range(len(draws)):
        locate(g, draws[number], entries)
        for entry in entries:
            counts[entry] += 1.0


@njit(cache=True, error_model="numpy")
def indicator_diagnostics(series: States, cards: U4, rhat: Array, ess: Array) -> None:
    """Largest split R-hat and smallest ESS over the indicators of each variable's states.

    `series` is shaped (variables, chains, draws). The same numbers as `core.diagnostics`, which
    says what they mean, from sums of zeros and ones, 64 in a word. The two indicators of a binary
    variable mirror each other, so one is enough.
    """
    m, n = 2 * series.shape[1], series.shape[2] // 2
    words = np.empty((m, n // 64 + 2), np.uint64)
    counts = np.zeros((m, n + 1), np.int64)
    for v in range(len(cards)):
        rhat[v], ess[v] = 1.0, float(m * n)
        for x in range(1 if cards[v] == 2 else 0, cards[v]):
            words[:] = 0
            for h in range(m):
                begin = (series.shape[2] - n) * (h % 2)
                for t in range(n):
                    one = series[v, h // 2, begin + t] == x
                    counts[h, t + 1] = counts[h, t] + one
                    words[h, t // 64] |= np.uint64(one) << np.uint64(t % 64)
            r, e = _indicator(words, counts)
            rhat[v] = max(rhat[v], r)
            ess[v] = min(ess[v], e)


@njit(cache=True, error_model="numpy")
def _indicator(words: U8, counts: Ints) -> tuple[float, float]:
    m, n = counts.shape[0], counts.shape[1] - 1
    means = np.empty(m)
    within = 0.0
    for h in range(m):
        means[h] = counts[h, n] / n
        within += means[h] * (1.0 - means[h]) * n / (n - 1) / m
    spread = np.sum((means - means.mean()) ** 2) / (m - 1)
    pooled = (n - 1) / n * within + spread
    if pooled == 0.0:
        return 1.0, float(m * n)
    tau = -1.0
    previous = np.inf
    for lag in range(0, n - 1, 2):
        first = 1.0 if lag == 0 else 1.0 - (within - _covariance(words, counts, lag)) / pooled
        second = 1.0 - (within - _covariance(words, counts, lag + 1)) / pooled
        pair = min(first + second, previous)
        if not pair > 0.0:
            break
        tau += 2.0 * pair
        previous = pair
    tau = max(tau, 1.0 / np.log10(m * n))
    return np.sqrt(pooled / within) if within > 0.0 else np.inf, m * n / tau


@njit(cache=True, error_model="numpy")
def _covariance(words: U8, counts: Ints, lag: int) -> float:
    """Mean autocovariance of the halves: products of the ones, corrected for the means."""
    m, n = counts.shape[0], counts.shape[1] - 1
    total = 0.0
    for h in range(m):
        mean = counts[h, n] / n
        ends = counts[h, lag] + counts[h, n] - counts[h, n - lag]
        overlap = _overlap(words[h], lag)
        total += overlap - mean * (2.0 * n * mean - ends) + (n - lag) * mean * mean
    return float(total / (m * n))


@njit(cache=True, error_model="numpy")
def _overlap(words: U8, lag: int) -> np.int64:
    """How often a one is followed by a one `lag` draws later; the last word holds none."""
    skip, low = lag // 64, np.uint64(lag % 64)
    total = np.uint64(0)
    for k in range(len(words) - 1 - skip):
        later = words[k + skip] >> low
        if low > np.uint64(0):
            later |= words[k + skip + 1] << (np.uint64(64) - low)
        both = words[k] & later
        both -= (both >> np.uint64(1)) & np.uint64(0x5555555555555555)
        pairs = np.uint64(0x3333333333333333)
        both = (both & pairs) + ((both >> np.uint64(2)) & pairs)
        both = (both + (both >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
        total += (both * np.uint64(0x0101010101010101)) >> np.uint64(56)
    return np.int64(total)


@njit(cache=True, error_model="numpy")
def greedy_colours(offsets: U4, neighbours: U4, order: U4) -> Ints:
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
