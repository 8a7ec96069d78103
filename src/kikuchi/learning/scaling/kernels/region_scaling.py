"""Scaling and propagation on the beliefs of a region graph.

Tables, links and receivers are those of `RegionBeliefs` (`inference.kernels.regions`). A positive
belief never becomes 0 by underflow: it is not let below a floor.

Reference: TEH-L17.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import U4, U8, Array, Mask
from kikuchi.core.compiled import njit
from kikuchi.engines.regions.kernels.regions import sum_down

_U1 = np.uint64(1)


class Holders(NamedTuple):
    """Regions that hold each factor, the largest first, and the maps of their states."""

    at: U8
    regions: U8
    map_at: U8
    maps: U4
    factor_at: U8


class Tour(NamedTuple):
    """Regions in the order of their visits, and the edges along which each visit sends."""

    visits: U8
    send_at: U8
    sends: U8


class Links(NamedTuple):
    """Edges of a region graph, and what their messages enter (see `RegionBeliefs`)."""

    table_at: U8
    edge_link: U8
    large: U8
    small: U8
    map_at: U8
    maps: U4
    receiver_at: U8
    receivers: U8
    factors_at: U8
    factors: U8


class Scaled(NamedTuple):
    """What scaling changes: beliefs and log-potentials of the regions, weights of the factors."""

    b: Array
    log_phi: Array
    weights: Array


class Wanted(NamedTuple):
    """Which factors have a target, and the targets."""

    active: Mask
    tables: Array


class Pace(NamedTuple):
    """How far a sweep goes: damping of messages, fraction of a scaling, the least belief."""

    damping: float
    step: float
    floor: float


@njit(cache=True, error_model="numpy", inline="always")
def _sum_region(links, b, r, maps, at, states, out):
    """Sums of a region's table over all states with the same image under a map; their total."""
    return sum_down(b, links.table_at[r], links.table_at[r + _U1], maps, at, out, states)


@njit(cache=True, error_model="numpy", inline="always")
def _change(links, b, r, maps, at, factor, floor):
    """Multiply the table of a region by a function of part of its state, and normalise; none
    underflows to 0.
    """
    begin, end = links.table_at[r], links.table_at[r + _U1]
    total = 0.0
    for i in range(end - begin):
        ratio = factor[maps[at + i]]
        if b[begin + i] > 0.0 and ratio > 0.0:
            b[begin + i] = max(b[begin + i] * ratio, floor)
            total += b[begin + i]
        else:
            b[begin + i] = 0.0
    for i in range(begin, end):
        if b[i] > 0.0:
            b[i] = max(b[i] / total, floor)


@njit(cache=True, error_model="numpy", inline="always")
def _scale_held(links, holders, scaled, a, targets, pace, work):
    """Scale a factor in its first region; the change enters every region that holds it.

    Returns (distance before, possible).
    """
    b, log_phi, weights = scaled.b, scaled.log_phi, scaled.weights
    step, floor = pace.step, pace.floor
    begin = holders.factor_at[a]
    states = holders.factor_at[a + _U1] - begin
    first = holders.at[a]
    r, at = holders.regions[first], holders.map_at[first]
    total = _sum_region(links, b, r, holders.maps, at, states, work)
    distance = 0.0
    for x in range(states):
        present = work[x] / total
        target = targets[begin + x]
        distance = max(distance, abs(present - target))
        if target > 0.0:
            if not present > 0.0:
                return distance, False
            work[x] = step * np.log(target / present)
            weights[begin + x] += work[x]
        elif present > 0.0:
            work[x] = -np.inf
            weights[begin + x] = -np.inf
        else:
            work[x] = 0.0
    for k in range(first, holders.at[a + _U1]):
        r = holders.regions[k]
        at = holders.map_at[k]
        for i in range(links.table_at[r + _U1] - links.table_at[r]):
            log_phi[links.table_at[r] + i] += work[holders.maps[at + i]]
    for x in range(states):
        work[x] = np.exp(work[x])
    for k in range(first, holders.at[a + _U1]):
        _change(links, b, holders.regions[k], holders.maps, holders.map_at[k], work, floor)
    return distance, True


@njit(cache=True, error_model="numpy", inline="always")
def _propagate_edge(links, b, edge, damping, floor, work):
    """One damped message from parent to child; answers how far they disagreed."""
    link = links.edge_link[edge]
    parent, child = links.large[link], links.small[link]
    begin = links.table_at[child]
    states = links.table_at[child + _U1] - begin
    total = _sum_region(links, b, parent, links.maps, links.map_at[link], states, work)
    residual = 0.0
    kept = 0.0
    for x in range(states):
        new = work[x] / total
        old = b[begin + x]
        residual = max(residual, abs(new - old))
        if old > 0.0:
            work[x] = (new / old) ** (1.0 - damping) if new > 0.0 else 0.0
            b[begin + x] = max(old * work[x], floor) if new > 0.0 else 0.0
            kept += b[begin + x]
        else:
            work[x] = 0.0
    for x in range(states):
        b[begin + x] /= kept
    for k in range(links.receiver_at[edge], links.receiver_at[edge + _U1]):
        link = links.receivers[k]
        _change(links, b, links.large[link], links.maps, links.map_at[link], work, floor)
    return residual


@njit(cache=True, error_model="numpy")
def region_sweep(links, holders, tour, scaled, wanted, pace, work):
    """Visit regions: scale the factors at home there, then send to children.

    Returns (largest disagreement met, largest distance from a target met, the factor whose target
    is impossible or -1).
    """
    residual = 0.0
    distance = 0.0
    for t in range(np.uint64(tour.visits.size)):
        r = tour.visits[t]
        for k in range(links.factors_at[r], links.factors_at[r + _U1]):
            a = links.factors[k]
            if wanted.active[a]:
                off, possible = _scale_held(links, holders, scaled, a, wanted.tables, pace, work)
                if not possible:
                    return residual, distance, np.int64(a)
                distance = max(distance, off)
        for k in range(tour.send_at[t], tour.send_at[t + _U1]):
            off = _propagate_edge(links, scaled.b, tour.sends[k], pace.damping, pace.floor, work)
            residual = max(residual, off)
    return residual, distance, -1
