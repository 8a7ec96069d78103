"""Many rows of evidence through one junction tree, several rows side by side.

Every table has the rows of a block as its last axis, so that each step is a loop over neighbouring
numbers. Where an entry of a clique goes (into a factor, a separator, a marginal) was written down
once, in maps. Numbers are plain, not logarithms: an operand that is neither zero nor above a
threshold marks its row, which is then left to an engine that watches for underflow.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.compiled import njit

GOOD = 0
MARKED = 1  # an operand is so small that products might underflow
DEAD = 2  # a message is zero: the row is impossible


class RowProgram(NamedTuple):
    """What rows of one evidence pattern share: cliques, maps of their entries, constant tables.

    `clique_at` and `separator_at` say where the tables of a clique and of the separator above it
    begin; `base` is the product of the tables that no row changes. Every map has one entry for each
    entry of a clique: `child_map` of a clique is over its parent's entries. A cut table reads
    `linear[map + shift]`, the shift being the sum of strides times observed states.
    """

    clique_at: Ints
    separator_at: Ints
    residual: Ints
    parent: Ints
    child_map: Ints
    base: Array
    maps: NDArray[np.int32]
    cut_of: Ints
    cut_map: Ints
    shift_offsets: Ints
    shift_columns: Ints
    shift_strides: Ints
    soft_of: Ints
    soft_map: Ints
    soft_at: Ints
    target_of: Ints
    target_map: Ints
    target_at: Ints
    children_offsets: Ints
    children: Ints


@njit(cache=True, error_model="numpy")
def _times(x, at, size, y, y_at, maps, map_at, width):
    """Multiply a table by a smaller one, entry by entry through a map."""
    for e in range(size):
        to = (at + e) * width
        source = (y_at + maps[map_at + e]) * width
        for b in range(width):
            x[to + b] *= y[source + b]


@njit(cache=True, error_model="numpy")
def _collect(p, c, linear, states, weights, start, width, least, psi, messages, shift, status):
    """The table of a clique before messages from above: its factors and the messages below."""
    at, size = p.clique_at[c], p.clique_at[c + 1] - p.clique_at[c]
    for e in range(size):
        value = p.base[at + e]
        for b in range(width):
            psi[(at + e) * width + b] = value
    for f in range(p.cut_of[c], p.cut_of[c + 1]):
        for b in range(width):
            place = np.int64(0)
            for j in range(p.shift_offsets[f], p.shift_offsets[f + 1]):
                place += p.shift_strides[j] * states[start + b, p.shift_columns[j]]
            shift[b] = place
        for e in range(size):
            place = p.maps[p.cut_map[f] + e]
            for b in range(width):
                value = linear[place + shift[b]]
                if 0.0 < value < least:
                    status[start + b] = MARKED
                psi[(at + e) * width + b] *= value
    for s in range(p.soft_of[c], p.soft_of[c + 1]):
        for e in range(size):
            column = p.soft_at[s] + p.maps[p.soft_map[s] + e]
            for b in range(width):
                psi[(at + e) * width + b] *= weights[start + b, column]
    for k in range(p.children_offsets[c], p.children_offsets[c + 1]):
        j = p.children[k]
        _times(psi, at, size, messages, p.separator_at[j], p.maps, p.child_map[j], width)


@njit(cache=True, error_model="numpy")
def _scale(x, at, size, start, width, least, top, status):
    """Divide a message by its largest entry in each row, which `top` keeps; mark what is tiny."""
    for b in range(width):
        top[b] = 0.0
    for e in range(size):
        for b in range(width):
            top[b] = max(top[b], x[(at + e) * width + b])
    for e in range(size):
        for b in range(width):
            value = x[(at + e) * width + b] / top[b] if top[b] > 0.0 else 0.0
            if 0.0 < value < least:
                status[start + b] = MARKED
            x[(at + e) * width + b] = value


@njit(cache=True, error_model="numpy")
def _message_up(p, c, psi, messages, width):
    """Sum the variables of a clique that are not in its separator; these run fastest."""
    at, run = p.clique_at[c], p.residual[c]
    for s in range(p.separator_at[c], p.separator_at[c + 1]):
        to = s * width
        for b in range(width):
            messages[to + b] = 0.0
        for r in range(run):
            source = (at + (s - p.separator_at[c]) * run + r) * width
            for b in range(width):
                messages[to + b] += psi[source + b]


@njit(cache=True, error_model="numpy")
def _distribute(p, c, psi, messages, spare, start, width, least, top, status):
    """The belief of a clique, then the messages from it to the cliques below."""
    at, size, run = p.clique_at[c], p.clique_at[c + 1] - p.clique_at[c], p.residual[c]
    if p.parent[c] >= 0:
        for e in range(size):
            to, source = (at + e) * width, (p.separator_at[c] + e // run) * width
            for b in range(width):
                psi[to + b] *= messages[source + b]
    for k in range(p.children_offsets[c], p.children_offsets[c + 1]):
        j = p.children[k]
        low, high = p.separator_at[j], p.separator_at[j + 1]
        for i in range((high - low) * width):
            spare[i] = 0.0
        for e in range(size):
            to, source = p.maps[p.child_map[j] + e] * width, (at + e) * width
            for b in range(width):
                spare[to + b] += psi[source + b]
        for i in range((high - low) * width):
            below = messages[low * width + i]
            messages[low * width + i] = spare[i] / below if below > 0.0 else 0.0
        _scale(messages, low, high - low, start, width, least, top, status)


@njit(cache=True, error_model="numpy")
def _read(p, c, psi, out, start, width):
    """Marginals that are read from one clique, each scaled to sum to 1."""
    at, size = p.clique_at[c], p.clique_at[c + 1] - p.clique_at[c]
    for t in range(p.target_of[c], p.target_of[c + 1]):
        for e in range(size):
            column = p.target_at[t] + p.maps[p.target_map[t] + e]
            source = (at + e) * width
            for b in range(width):
                out[start + b, column] += psi[source + b]


@njit(cache=True, error_model="numpy")
def answer_rows(p, linear, least, block, states, weights, begin, end, log_z, status, out):
    """log Z of rows begin..end - 1 and sums of clique beliefs onto the targets, up to a factor.

    `out` must be zero. `status` says of each row whether it is good, marked or dead.
    """
    n = len(p.parent)
    psi = np.empty(p.clique_at[n] * block)
    messages = np.empty(p.separator_at[n] * block)
    largest = 1
    for c in range(n):
        largest = max(largest, p.separator_at[c + 1] - p.separator_at[c])
    spare = np.empty(largest * block)
    top = np.empty(block)
    shift = np.empty(block, np.int64)
    for start in range(begin, end, block):
        width = min(block, end - start)
        for b in range(width):
            log_z[start + b] = 0.0
            status[start + b] = GOOD
        for c in range(n):
            _collect(
                p, c, linear, states, weights, start, width, least, psi, messages, shift, status
            )
            _message_up(p, c, psi, messages, width)
            low = p.separator_at[c]
            size = p.separator_at[c + 1] - low
            _scale(messages, low, size, start, width, least, top, status)
            for b in range(width):
                log_z[start + b] += np.log(top[b]) if top[b] > 0.0 else -np.inf
                if top[b] == 0.0 and status[start + b] == GOOD:
                    status[start + b] = DEAD
        for k in range(n):
            c = n - 1 - k
            _distribute(p, c, psi, messages, spare, start, width, least, top, status)
            _read(p, c, psi, out, start, width)


@njit(cache=True, error_model="numpy")
def normalise_rows(out, begin, end, target_at, target_size):
    """Scale every target of every row to sum to 1; a row without mass stays zero."""
    for row in range(begin, end):
        for t in range(len(target_at)):
            total = 0.0
            for k in range(target_at[t], target_at[t] + target_size[t]):
                total += out[row, k]
            if total > 0.0:
                for k in range(target_at[t], target_at[t] + target_size[t]):
                    out[row, k] /= total
