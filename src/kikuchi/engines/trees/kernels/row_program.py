"""What rows of evidence on one junction tree share: the maps of its cliques, constant products."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.compiled import njit, planner
from kikuchi.engines.kernels.tables import project

TINY = 5e-324  # stands for every positive number that a float cannot hold


class RowProgram(NamedTuple):
    """What rows of one pattern share: cliques, and maps of their entries; no table.

    `clique_at` and `separator_at` say where the tables of a clique and of the separator above it
    begin. Every map has one entry for each entry of a clique: `child_map` of a clique is over its
    parent's entries. Factors that rows leave open are `whole`; a `cut` one is read at
    `map + shift`, the shift being the sum of strides times observed states. `seen` variables are
    open, but some rows observe them; `soft` ones have a weight for each state.
    """

    clique_at: Ints
    separator_at: Ints
    residual: Ints
    parent: Ints
    child_map: Ints
    child_of: Ints
    children: Ints
    maps: NDArray[np.int32]
    whole_of: Ints
    whole_map: Ints
    cut_of: Ints
    cut_map: Ints
    shift_offsets: Ints
    shift_columns: Ints
    shift_strides: Ints
    seen_of: Ints
    seen_map: Ints
    seen_columns: Ints
    soft_of: Ints
    soft_map: Ints
    soft_at: Ints
    soft_size: Ints
    target_of: Ints
    target_map: Ints
    target_at: Ints


class RowTables(NamedTuple):
    """The tables of a program: all tables as logarithms and as plain numbers, and the product of
    the whole factors of each clique; with bounds on the smallest positive entry, of each clique and
    each cut factor.
    """

    logs: Array
    base: Array
    base_floors: Array
    linear: Array
    cut_floors: Array


@planner
def plain_numbers(logs, offsets, values, tops, floors):
    """exp of each table divided by its largest entry; fills `tops` with the logarithm of that entry
    and `floors` with the smallest positive number. Only -inf gives 0.
    """
    for a in range(len(offsets) - 1):
        top, floor = -np.inf, 1.0
        for e in range(offsets[a], offsets[a + 1]):
            top = max(top, logs[e])
        for e in range(offsets[a], offsets[a + 1]):
            value = 0.0
            if logs[e] > -np.inf:
                value = max(np.exp(logs[e] - top), TINY)
                floor = min(floor, value)
            values[e] = value
        tops[a], floors[a] = top, floor


class MapItems(NamedTuple):
    """Tables within others: each has variables of its home (`names`, from `offsets`), with
    `strides` in a buffer where it begins at `starts`.
    """

    homes: Ints
    offsets: Ints
    names: Ints
    strides: Ints
    starts: Ints


@planner
def write_maps(cards, offsets, names, items, places, out):
    """Write the places of each item's entries, for all entries of its home, to out[places[i]:].

    The variables of home t are `names[offsets[t]:offsets[t + 1]]`, with `cards` states.
    """
    for i in range(len(items.homes)):
        t = items.homes[i]
        first, end = items.offsets[i], items.offsets[i + 1]
        project(
            cards, names[offsets[t] : offsets[t + 1]], items.names[first:end],
            items.strides[first:end], items.starts[i], out[places[i] :],
        )  # fmt: skip


@njit(cache=True, error_model="numpy")
def fill_base(p, t):
    """The products of the whole factors, each clique with a largest entry of 1; answers the log of
    what was taken off.
    """
    total = 0.0
    logs, base, floors = t.logs, t.base, t.base_floors
    for c in range(len(p.parent)):
        low, high = p.clique_at[c], p.clique_at[c + 1]
        for e in range(low, high):
            base[e] = 0.0
        for f in range(p.whole_of[c], p.whole_of[c + 1]):
            place = p.whole_map[f]
            for e in range(high - low):
                base[low + e] += logs[p.maps[place + e]]
        top = -np.inf
        for e in range(low, high):
            top = max(top, base[e])
        floor = 1.0
        if top > -np.inf:
            total += top
            for e in range(low, high):
                if base[e] > -np.inf:
                    base[e] = max(np.exp(base[e] - top), TINY)
                    floor = min(floor, base[e])
                else:
                    base[e] = 0.0
        else:
            for e in range(low, high):
                base[e] = 0.0
        floors[c] = floor
    return total
