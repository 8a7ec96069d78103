"""The two passes of weighted mini-bucket elimination over flat tables.

A node is a mini-bucket: it owns a table over its scope whose last axis is the variable that it sums
out, so a row is what is summed and a message has one entry for each row. Everything that a node
adds up (factors, messages of earlier nodes, cost shifts) lies in one buffer of `values`; the
derivative by each of them lies at the same place in `slopes`. All contain the last axis, so they
are read in contiguous runs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.compiled import njit

_U = np.uint64


class Inputs(NamedTuple):
    """How hosts read items whose scopes are part of theirs, grouped by host.

    An item is read in contiguous runs, each used `repeats` times over; then an odometer over the
    first `axes` axes of the host moves the place that is read.
    """

    offsets: Ints
    places: Ints
    runs: Ints
    repeats: Ints
    axes: Ints
    move_offsets: Ints
    moves: Ints


class Conditionals(NamedTuple):
    """Conditional distributions of all nodes, the entropies of their rows, and an odometer."""

    table: Array
    entropies: Array
    digits: Ints


class MiniBucketProgram(NamedTuple):
    """Where the tables, messages and axes of each node are; nodes in order of elimination."""

    rows: Ints
    cards: Ints
    tables: Ints
    messages: Ints
    parents: Ints
    axis_offsets: Ints
    axis_cards: Ints


@njit(cache=True, error_model="numpy", inline="always")
def _turn(digits, axis_cards, axes, moves, first_move):
    """Advance the odometer by one; answers how far that moves the item."""
    axis = axes - 1
    while axis >= 0:
        digits[_U(axis)] += 1
        if digits[_U(axis)] < axis_cards[_U(axis)]:
            return moves[_U(first_move + axis)]
        digits[_U(axis)] = 0
        axis -= 1
    return 0


@njit(cache=True, error_model="numpy", inline="always")
def _item(inputs, i, digits):
    """Place, run, repeats, axes and moves of item `i`; its odometer is set to zero."""
    axes, first_move = inputs.axes[i], inputs.move_offsets[i]
    for axis in range(axes):
        digits[axis] = 0
    return inputs.places[i], inputs.runs[i], inputs.repeats[i], axes, inputs.moves, first_move


@njit(cache=True, error_model="numpy")
def _add_item(table, inputs, i, axis_cards, values, digits):
    """Add item `i` to the table of its host, whose axes have `axis_cards`."""
    at, run, repeats, axes, moves, first_move = _item(inputs, i, digits)
    entry, end = _U(0), _U(len(table))
    while entry < end:
        if run == 2:
            first, second = values[_U(at)], values[_U(at + 1)]
            for _ in range(_U(repeats)):
                table[entry] += first
                table[entry + _U(1)] += second
                entry += _U(2)
        else:
            for _ in range(_U(repeats)):
                for k in range(_U(run)):
                    table[entry + k] += values[_U(at) + k]
                entry += _U(run)
        at += _turn(digits, axis_cards, axes, moves, first_move)


@njit(cache=True, error_model="numpy")
def _sum_to_item(table, inputs, i, axis_cards, sums, digits):
    """Add the table of a host, summed to the scope of item `i`, at the item's place."""
    at, run, repeats, axes, moves, first_move = _item(inputs, i, digits)
    entry, end = _U(0), _U(len(table))
    while entry < end:
        if run == 2:
            first, second = 0.0, 0.0
            for _ in range(_U(repeats)):
                first += table[entry]
                second += table[entry + _U(1)]
                entry += _U(2)
            sums[_U(at)] += first
            sums[_U(at + 1)] += second
        else:
            for _ in range(_U(repeats)):
                for k in range(_U(run)):
                    sums[_U(at) + k] += table[entry + k]
                entry += _U(run)
        at += _turn(digits, axis_cards, axes, moves, first_move)


@njit(cache=True, error_model="numpy")
def add_all(tables, axis_offsets, axis_cards, inputs, values, out, digits):
    """Sum of all items of each host; the tables of the hosts lie one after the other in `out`."""
    for h in range(len(tables) - 1):
        table, cards = out[tables[h] : tables[h + 1]], axis_cards[axis_offsets[h] :]
        for i in range(inputs.offsets[h], inputs.offsets[h + 1]):
            _add_item(table, inputs, i, cards, values, digits)


@njit(cache=True, error_model="numpy")
def sum_all(p, inputs, table, sums, digits):
    """Every item's own sums of the table of its node."""
    for r in range(len(p.rows)):
        mine = table[p.tables[r] : p.tables[r] + p.rows[r] * p.cards[r]]
        cards = p.axis_cards[p.axis_offsets[r] :]
        for i in range(inputs.offsets[r], inputs.offsets[r + 1]):
            _sum_to_item(mine, inputs, i, cards, sums, digits)


@njit(cache=True, error_model="numpy")
def forward(p, inputs, weights, values, conditionals, first, last):
    """Messages and conditionals of nodes `first` to `last`; returns the sum of their roots.

    A node of weight w sends w log sum_x exp(psi / w) (a hard minimum over zeros where w < 0) and
    leaves its conditional distribution of x and the entropy of each row.
    """
    table, entropies = conditionals.table, conditionals.entropies
    digits = conditionals.digits
    total = 0.0
    for r in range(first, last):
        start, size = p.tables[r], p.rows[r] * p.cards[r]
        for entry in range(_U(start), _U(start + size)):
            table[entry] = 0.0
        mine, cards = table[start : start + size], p.axis_cards[p.axis_offsets[r] :]
        for i in range(inputs.offsets[r], inputs.offsets[r + 1]):
            _add_item(mine, inputs, i, cards, values, digits)
        to, n_rows, card = _U(p.messages[r]), _U(p.rows[r]), _U(p.cards[r])
        if card == _U(2):
            _sum_out_pairs(table, _U(start), n_rows, weights[r], values, entropies, to)
        else:
            _sum_out(table, _U(start), n_rows, card, weights[r], values, entropies, to)
        if p.parents[r] < 0:
            total += values[to]
    return total


@njit(cache=True, error_model="numpy")
def _sum_out_pairs(table, start, n_rows, weight, values, entropies, to):
    one = _U(1)
    inverse = 1.0 / weight
    entry = start
    for row in range(n_rows):
        a, b = table[entry], table[entry + one]
        if a == -np.inf or b == -np.inf:
            message, p, q = _sum_out_zeros(a, b, weight)
            entropy = 0.0
        else:
            gap = (b - a) * inverse
            if gap > 0.0:
                x = np.exp(-gap)
                q = 1.0 / (1.0 + x)
                p = x * q
                excess = np.log(1.0 + x)
                message = b + weight * excess
                entropy = excess + p * gap
            else:
                x = np.exp(gap)
                p = 1.0 / (1.0 + x)
                q = x * p
                excess = np.log(1.0 + x)
                message = a + weight * excess
                entropy = excess - q * gap
        table[entry] = p
        table[entry + one] = q
        values[to + row] = message
        entropies[to + row] = entropy
        entry += _U(2)


@njit(cache=True, error_model="numpy")
def _sum_out_zeros(a, b, weight):
    """The row (a, b), one or both of them -inf: message and conditional."""
    if a == b:
        return -np.inf, 0.5, 0.5
    keep_first = (a == -np.inf) == (weight < 0.0)
    message = -np.inf if weight < 0.0 else max(a, b)
    return (message, 1.0, 0.0) if keep_first else (message, 0.0, 1.0)


@njit(cache=True, error_model="numpy")
def _sum_out(table, start, n_rows, card, weight, values, entropies, to):
    inverse = 1.0 / weight
    entry = start
    for row in range(n_rows):
        peak = -np.inf
        for k in range(card):
            peak = max(peak, table[entry + k] * inverse)
        if np.isinf(peak):
            # No state is left (w > 0), or a zero takes the minimum (w < 0): the row is worth 0.
            count = 0.0
            for k in range(card):
                hit = table[entry + k] == -np.inf
                table[entry + k] = 1.0 if hit else 0.0
                count += table[entry + k]
            for k in range(card):
                table[entry + k] /= count
            values[to + row] = -np.inf
            entropies[to + row] = 0.0
        else:
            total = 0.0
            pull = 0.0
            for k in range(card):
                gap = table[entry + k] * inverse - peak
                x = np.exp(gap)
                total += x
                if x > 0.0:
                    pull += x * gap
                table[entry + k] = x
            for k in range(card):
                table[entry + k] /= total
            values[to + row] = weight * (peak + np.log(total))
            entropies[to + row] = np.log(total) - pull / total
        entry += card


@njit(cache=True, error_model="numpy")
def backward(p, inputs, slopes, conditionals, node_entropies, wanted, first, last):
    """Beliefs of nodes `last` down to `first`, and the derivative of the bound by each input.

    The derivative by an entry of an input is the belief of that entry (Danskin); by the weight of
    a node it is the conditional entropy of its variable. Slopes of places before `wanted` are left
    out. Slopes must be zero before the first call.
    """
    table, entropies = conditionals.table, conditionals.entropies
    digits = conditionals.digits
    for r in range(last - 1, first - 1, -1):
        card = _U(p.cards[r])
        start, size = p.tables[r], p.rows[r] * p.cards[r]
        mine = _U(p.messages[r])
        if p.parents[r] < 0:
            slopes[mine] = 1.0
        total = 0.0
        entry = _U(start)
        for row in range(_U(p.rows[r])):
            mass = slopes[mine + row]
            total += mass * entropies[mine + row]
            for k in range(card):
                table[entry + k] *= mass
            entry += card
        node_entropies[r] = total
        beliefs, cards = table[start : start + size], p.axis_cards[p.axis_offsets[r] :]
        for i in range(inputs.offsets[r], inputs.offsets[r + 1]):
            if inputs.places[i] >= wanted:
                _sum_to_item(beliefs, inputs, i, cards, slopes, digits)


@njit(cache=True, error_model="numpy")
def variable_beliefs(p, table, shares, node_places, beliefs):
    """Add `shares[r]` times the belief of each node's own variable at its place in `beliefs`."""
    for r in range(len(p.rows)):
        entry = p.tables[r]
        for _ in range(p.rows[r]):
            for k in range(p.cards[r]):
                beliefs[node_places[r] + k] += shares[r] * table[entry + k]
            entry += p.cards[r]


@njit(cache=True, error_model="numpy")
def count_zeros(p, table, counts):
    """How many conditionals of each node vanish."""
    for r in range(len(p.rows)):
        counts[r] = 0
        for entry in range(p.tables[r], p.tables[r] + p.rows[r] * p.cards[r]):
            if table[entry] == 0.0:
                counts[r] += 1
