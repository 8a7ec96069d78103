"""Loops over families of sets in flat arrays: subsets, closure under intersection, counting."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import Ints
from kikuchi.core.compiled import planner

_HASH = np.uint64(1099511628211)


class Lists(NamedTuple):
    """Lists end to end: list i is `items[at[i]:at[i + 1]]`. A family of sets is one, and so are the
    holders of each item: the sets that it is in.
    """

    items: Ints
    at: Ints


class Roots(NamedTuple):
    """The first sets of a family: how many, their holders, and the number of items that count."""

    number: int
    holders: Lists
    n_essential: int


@planner
def subsets(small, rarest, large, holders, span, rows, cols):
    """Find the pairs of the small sets span[0] to span[1] with the large sets that contain them.

    Looks at the large sets that hold the rarest member of each, by their `holders`. Returns the
    number of pairs, and only that where `rows` is empty.
    """
    items, at, large_items, large_at = small.items, small.at, large.items, large.at
    count = 0
    for i in range(span[0], span[1]):
        size = at[i + 1] - at[i]
        for h in range(holders.at[rarest[i]], holders.at[rarest[i] + 1]):
            j = holders.items[h]
            end = large_at[j + 1]
            if end - large_at[j] < size:
                continue
            place = large_at[j]
            inside = True
            for k in range(at[i], at[i + 1]):
                while place < end and large_items[place] < items[k]:
                    place += 1
                if place == end or large_items[place] != items[k]:
                    inside = False
                    break
            if inside:
                if len(rows):
                    rows[count] = i
                    cols[count] = j
                count += 1
    return count


@planner
def _slot(items, begin, end, at, slots):
    """Return the slot of a set in a hash table of sets, or the empty slot for it."""
    mixed = np.uint64(end - begin)
    for k in range(begin, end):
        mixed = (mixed ^ np.uint64(items[k])) * _HASH
    mask = len(slots) - 1
    slot = np.int64((mixed ^ (mixed >> np.uint64(31))) & np.uint64(mask))
    while slots[slot] >= 0:
        other = at[slots[slot]]
        if at[slots[slot] + 1] - other == end - begin:
            same = True
            for k in range(end - begin):
                if items[other + k] != items[begin + k]:
                    same = False
                    break
            if same:
                return slot
        slot = (slot + 1) & mask
    return slot


@planner
def enter(items, at, count, slots):
    """Insert sets into an empty hash table of sets."""
    for i in range(count):
        slots[_slot(items, at[i], at[i + 1], at, slots)] = i


@planner
def cut(sets, count, row, roots, slots, marks, pairs):
    """Add intersections of sets from `row` on with roots that they overlap but are not contained
    in.

    The roots are the first sets. Stops at the end of the sets, after `pairs` pairs, or when space
    may run out. Returns the number of sets, and the row to continue with.
    """
    items, at, n_essential = sets.items, sets.at, roots.n_essential
    holders, holder_at = roots.holders.items, roots.holders.at
    while row < count and pairs > 0:
        begin, end = at[row], at[row + 1]
        met = 0
        for k in range(begin, end):
            if items[k] < n_essential:
                met += holder_at[items[k] + 1] - holder_at[items[k]]
        room = len(items) - at[count] >= (met + 1) * (end - begin)
        if not room or len(at) - count <= met + 1 or 2 * (count + met) > len(slots):
            break
        pairs -= met
        for k in range(begin, end):
            if items[k] >= n_essential:
                continue
            for h in range(holder_at[items[k]], holder_at[items[k] + 1]):
                root = holders[h]
                if marks[root] == row or (row < roots.number and root <= row):
                    continue
                marks[root] = row
                place, stop, new = at[root], at[root + 1], at[count]
                for j in range(begin, end):
                    while place < stop and items[place] < items[j]:
                        place += 1
                    if place < stop and items[place] == items[j]:
                        items[new] = items[j]
                        new += 1
                if new - at[count] < end - begin:
                    slot = _slot(items, at[count], new, at, slots)
                    if slots[slot] < 0:
                        slots[slot] = count
                        count += 1
                        at[count] = new
        row += 1
    return count, row


@planner
def counting_numbers(above_at, above, counting):
    """c_r = 1 - sum of c_s over all s above r; parents come before children."""
    for r in range(len(counting)):
        total = 1.0
        for k in range(above_at[r], above_at[r + 1]):
            total -= counting[above[k]]
        counting[r] = total
