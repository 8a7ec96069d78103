"""Depth-first walk over all states, in chunks that can be resumed.

Level d fixes one variable. A factor belongs to the deepest level of its scope, so its entry is
known there: the score of a prefix is a sum that is never undone (no drift, and a prefix of weight
zero skips its whole subtree), and the mass of a subtree goes to the marginals once, on the way up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import U8, Array
from kikuchi.core.compiled import njit

_RESCALE_ABOVE = 300.0


class Levels(NamedTuple):
    """The factors of each level of the walk, and where the sums of its variable begin.

    `slot_*` describe a factor: stride of the level's own variable, start of the table, and the
    other variables of the scope (all at shallower levels) with their strides.
    """

    log_tables: Array
    cards: U8
    level_slots: U8
    slot_strides: U8
    slot_starts: U8
    slot_others: U8
    other_levels: U8
    other_strides: U8
    single_starts: U8


class Sums(NamedTuple):
    """How far the walk is, and the sums so far.

    `state[d]` is the next state to try at level d. `numbers` holds the reference score that the
    masses are relative to, and the best score.
    """

    state: U8
    scores: Array
    masses: Array
    bases: U8
    singles: Array
    tables: Array
    best_state: U8
    numbers: Array
    depth: U8


@njit(cache=True, error_model="numpy")
def walk(levels: Levels, sums: Sums, visits: int) -> bool:
    """Take `visits` steps of the walk, each a new prefix; True when every state has been summed.

    All indices are unsigned: half the time.
    """
    log_tables, cards, level_slots, slot_strides, slot_starts, slot_others = levels[:6]
    other_levels, other_strides, single_starts = levels[6:]
    state, scores, masses, bases, singles, tables, _, _, depth = sums
    one = np.uint64(1)
    last = np.uint64(len(cards)) - one
    d = depth[0]
    for _ in range(visits):
        if d == last:
            _sum_last_level(d, levels, sums)
        while state[d] == cards[d]:
            if d == 0:
                depth[0] = d
                return True
            mass = masses[d]
            d -= one
            x = state[d] - one
            masses[d] += mass
            singles[single_starts[d] + x] += mass
            for k in range(level_slots[d], level_slots[d + one]):
                tables[bases[k] + slot_strides[k] * x] += mass
        x = state[d]
        state[d] = x + one
        s = scores[d]
        for k in range(level_slots[d], level_slots[d + one]):
            s += log_tables[bases[k] + slot_strides[k] * x]
        if s > -np.inf:
            d += one
            scores[d] = s
            masses[d] = 0.0
            state[d] = 0
            for k in range(level_slots[d], level_slots[d + one]):
                base = slot_starts[k]
                for o in range(slot_others[k], slot_others[k + one]):
                    base += other_strides[o] * (state[other_levels[o]] - one)
                bases[k] = base
    depth[0] = d
    return False


@njit(cache=True, error_model="numpy", inline="always")
def _sum_last_level(d: np.uint64, levels: Levels, sums: Sums) -> None:
    """Sum over the states of the deepest variable, all others being fixed."""
    log_tables, cards, level_slots, slot_strides = levels[:4]
    single_starts = levels.single_starts
    state, scores, masses, bases, singles, tables, best_state, numbers, _ = sums
    lo, hi = level_slots[d], level_slots[d + np.uint64(1)]
    for x in range(cards[d]):
        s = scores[d]
        for k in range(lo, hi):
            s += log_tables[bases[k] + slot_strides[k] * x]
        if s == -np.inf:
            continue
        if s - numbers[0] > _RESCALE_ABOVE:
            _rescale(s, masses, singles, tables, numbers)
        if s > numbers[1]:
            numbers[1] = s
            for level in range(d):
                best_state[level] = state[level] - np.uint64(1)
            best_state[d] = x
        w = np.exp(s - numbers[0])
        masses[d] += w
        singles[single_starts[d] + x] += w
        for k in range(lo, hi):
            tables[bases[k] + slot_strides[k] * x] += w
    state[d] = cards[d]


@njit(cache=True, error_model="numpy")
def _rescale(score: float, masses: Array, singles: Array, tables: Array, numbers: Array) -> None:
    """Make `score` the reference; the first positive weight finds it at -inf, all sums at 0."""
    factor = np.exp(numbers[0] - score)
    masses *= factor
    singles *= factor
    tables *= factor
    numbers[0] = score
