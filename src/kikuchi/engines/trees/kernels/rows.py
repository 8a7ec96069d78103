"""Many rows of evidence through one junction tree, several rows side by side.

Every table has the rows of a block as its last axis, so that each step is a loop over neighbouring
numbers. Where an entry of a clique goes (into a factor, a separator, a marginal) was written down
once, in maps.

Numbers are plain, not logarithms. The operands of a clique are at most 1; a bound on the smallest
positive entry of their product is carried along, and where it sinks below `LOW` the product is
divided by its largest entry in each row, whose logarithm is kept. If even then an entry may
underflow, what is lost of each entry is below `LOST`. That is harmless if the mass of the clique
is far larger (`HARMLESS`) once all messages are in: all operands being at most 1, what is lost is
a part of the total weight of less than that. Rows in which it may not be harmless are `MARKED`,
and left to an engine that works with logarithms.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.compiled import njit
from kikuchi.engines.trees.kernels.row_program import fill_base

GOOD = 0
MARKED = 1  # something was lost that may matter
DEAD = 2  # a message is zero: the row is impossible

NOTHING, TARGETS, COUNTS = 0, 1, 2  # what is read besides log Z

LOW = 1e-300  # products above this lose nothing; smaller ones may be taken for 0
LOST = 1e-299  # an entry that is lost is smaller, of operands that are at most 1
HARMLESS = 1e-40  # the part of the total weight that may be lost
_SMALL, _LARGE = 1e-200, 1e200  # between these, scales are multiplied before a logarithm is taken
_FAST = {"reassoc", "nsz"}  # sums may be reordered, so that they vectorise
# What is called for every clique is made part of its caller: a call would count the references to
# all arrays of the program.


class RowCells(NamedTuple):
    """Rows: states by column (-1 where a seen variable is not observed), weights of soft states,
    and how often each row counts.
    """

    states: NDArray[np.int32]
    soft: Array
    counts: Array


class RowResults(NamedTuple):
    """What is found: log Z and status of each row, sums onto the targets up to a factor, and the
    weighted sums of clique tables (`sums`) and of the tables of cut factors (`counts`).
    """

    log_z: Array
    status: Ints
    out: Array
    sums: Array
    counts: Array


class RowJob(NamedTuple):
    """How rows are run: how many side by side, what is read besides log Z, whether the products of
    whole factors are filled first, and whether rows are good only if nothing at all was lost.
    """

    block: int
    read: int
    fill: bool
    strict: bool


class _RowBlock(NamedTuple):
    """The tables of a block of rows, its notes about losses, and numbers for each row."""

    psi: Array
    messages: Array
    spare: Array
    floors: Array  # of each clique, before the message from above
    message_floors: Array
    lossy: Ints  # whether a clique may have lost something
    scaled: Ints  # whether a clique was divided on the way
    losses: Array  # of a lossy clique, by row
    message_losses: Array  # of the message from a lossy clique, by row
    scales: Array  # of a scaled clique, by row
    mass: Array  # of each clique, by row
    product: Array
    top: Array
    factor: Array
    shift: Ints
    seen: Ints  # states by column and row


# ---------------------------------------------------------------------- products


@njit(cache=True, error_model="numpy", forceinline=True)
def _times(x, at, size, y, y_at, maps, map_at, width):
    """Multiply a table by a smaller one, entry by entry through a map."""
    rows = np.uint64(width)
    for e in range(size):
        to = np.uint64((at + e) * width)
        source = np.uint64((y_at + maps[map_at + e]) * width)
        for b in range(rows):
            x[to + b] *= y[source + b]


@njit(cache=True, error_model="numpy", forceinline=True)
def _tops(x, at, size, width, top):
    """The largest entry in each row."""
    rows = np.uint64(width)
    for b in range(rows):
        top[b] = 0.0
    for e in range(size):
        source = np.uint64((at + e) * width)
        for b in range(rows):
            value = x[source + b]
            top[b] = value if value > top[b] else top[b]


@njit(cache=True, error_model="numpy", forceinline=True)
def _divide_by(x, at, size, width, top, factor, least):
    """Divide by the largest entry in each row; answers the smallest positive entry of all rows.

    `factor` and `least` are working memory.
    """
    rows = np.uint64(width)
    for b in range(rows):
        factor[b] = 1.0 / top[b] if top[b] >= LOW else 0.0
        least[b] = 1.0
    for e in range(size):
        to = np.uint64((at + e) * width)
        for b in range(rows):
            value = x[to + b] * factor[b]
            x[to + b] = value
            least[b] = value if 0.0 < value < least[b] else least[b]
    floor = 1.0
    for b in range(rows):
        floor = min(floor, least[b])
    return floor


@njit(cache=True, error_model="numpy")
def _start_losses(k, c, width):
    """Note the first loss of a clique."""
    if not k.lossy[c]:
        k.lossy[c] = 1
        for b in range(width):
            k.losses[c * width + b] = 0.0


@njit(cache=True, error_model="numpy")
def _make_room(k, c, at, size, width, operand, log_z, start):
    """Before an operand that may bring products below LOW: divide each row by its largest entry.

    Answers the bound on the smallest positive entry afterwards; notes what may be lost.
    """
    _tops(k.psi, at, size, width, k.top)
    if not k.scaled[c]:
        k.scaled[c] = 1
        for b in range(width):
            k.scales[c * width + b] = 1.0
    for b in range(width):
        if k.top[b] >= LOW:
            log_z[start + b] += np.log(k.top[b])
            k.scales[c * width + b] = max(k.scales[c * width + b] * k.top[b], LOW)
            if k.lossy[c]:
                lost = k.losses[c * width + b]
                k.losses[c * width + b] = lost / k.top[b] if lost < k.top[b] else 1.0
    floor = _divide_by(k.psi, at, size, width, k.top, k.factor, k.mass[c * width :])
    if floor * operand < LOW:
        _start_losses(k, c, width)
        for b in range(width):
            k.losses[c * width + b] += LOST
    return floor


@njit(cache=True, error_model="numpy", forceinline=True)
def _shifts(strides, columns, first, end, seen, width, shift):
    """Where the table of a cut factor begins in each row: the sum of strides times states."""
    rows = np.uint64(width)
    for b in range(rows):
        shift[b] = 0
    for j in range(first, end):
        stride, source = strides[j], np.uint64(columns[j] * width)
        for b in range(rows):
            shift[b] += stride * seen[source + b]


@njit(cache=True, error_model="numpy")
def _soft_floor(cells, start, width, low, size):
    """The smallest positive weight of a soft variable in the rows of a block."""
    floor = 1.0
    for b in range(width):
        for s in range(low, low + size):
            value = cells.soft[start + b, s]
            if value > 0.0:
                floor = min(floor, value)
    return floor


@njit(cache=True, error_model="numpy", forceinline=True)
def _collect(p, t, cells, k, c, start, width, log_z):
    """The table of a clique before the message from above: factors, evidence, messages below."""
    at, size = p.clique_at[c], p.clique_at[c + 1] - p.clique_at[c]
    rows = np.uint64(width)
    k.lossy[c] = 0
    k.scaled[c] = 0
    floor = t.base_floors[c]
    if floor < LOW:
        _start_losses(k, c, width)
        for b in range(width):
            k.losses[c * width + b] = LOST
    for e in range(size):
        value = t.base[at + e]
        to = np.uint64((at + e) * width)
        for b in range(rows):
            k.psi[to + b] = value
    for f in range(p.cut_of[c], p.cut_of[c + 1]):
        operand = t.cut_floors[f]
        if floor * operand < LOW:
            floor = _make_room(k, c, at, size, width, operand, log_z, start)
        floor *= operand
        _shifts(
            p.shift_strides, p.shift_columns, p.shift_offsets[f], p.shift_offsets[f + 1], k.seen,
            width, k.shift,
        )  # fmt: skip
        for e in range(size):
            place = np.int64(p.maps[p.cut_map[f] + e])
            to = np.uint64((at + e) * width)
            for b in range(rows):
                k.psi[to + b] *= t.linear[np.uint64(place + k.shift[b])]
    for s in range(p.seen_of[c], p.seen_of[c + 1]):
        source = np.uint64(p.seen_columns[s] * width)
        for e in range(size):
            state = np.int64(p.maps[p.seen_map[s] + e])
            to = np.uint64((at + e) * width)
            for b in range(rows):
                found = k.seen[source + b]
                k.psi[to + b] = k.psi[to + b] if (found < 0) | (found == state) else 0.0
    for s in range(p.soft_of[c], p.soft_of[c + 1]):
        operand = _soft_floor(cells, start, width, p.soft_at[s], p.soft_size[s])
        if floor * operand < LOW:
            floor = _make_room(k, c, at, size, width, operand, log_z, start)
        floor *= operand
        for e in range(size):
            column = p.soft_at[s] + p.maps[p.soft_map[s] + e]
            to = (at + e) * width
            for b in range(width):
                k.psi[to + b] *= cells.soft[start + b, column]
    for i in range(p.child_of[c], p.child_of[c + 1]):
        j = p.children[i]
        operand = k.message_floors[j]
        if floor * operand < LOW:
            floor = _make_room(k, c, at, size, width, operand, log_z, start)
        floor *= operand
        _times(k.psi, at, size, k.messages, p.separator_at[j], p.maps, p.child_map[j], width)
    k.floors[c] = floor


# ---------------------------------------------------------------------- passes


@njit(cache=True, error_model="numpy", forceinline=True)
def _message_up(p, k, c, width):
    """Sum the variables of a clique that are not in its separator, which run fastest, and divide
    by the largest entry.
    """
    at, run = p.clique_at[c], p.residual[c]
    low, high = p.separator_at[c], p.separator_at[c + 1]
    rows = np.uint64(width)
    for s in range(high - low):
        to = np.uint64((low + s) * width)
        source = np.uint64((at + s * run) * width)
        for b in range(rows):
            k.messages[to + b] = k.psi[source + b]
        for r in range(1, run):
            source = np.uint64((at + s * run + r) * width)
            for b in range(rows):
                k.messages[to + b] += k.psi[source + b]
    _tops(k.messages, low, high - low, width, k.top)
    k.message_floors[c] = _divide_by(
        k.messages, low, high - low, width, k.top, k.factor, k.mass[c * width :]
    )
    if k.lossy[c]:
        for b in range(width):
            lost = k.losses[c * width + b]
            k.message_losses[c * width + b] = run * lost / k.top[b] if lost < k.top[b] else 1.0


@njit(cache=True, error_model="numpy", forceinline=True)
def _flush(k, start, width, log_z):
    """Take the logarithm of the scales that were multiplied."""
    for b in range(width):
        log_z[start + b] += np.log(k.product[b])
        k.product[b] = 1.0


@njit(cache=True, error_model="numpy", forceinline=True)
def _up(p, t, cells, k, start, width, log_z, status):
    """The upward pass of a block: log Z and the rows that are impossible; answers whether something
    may have been lost.
    """
    lossy = False
    for b in range(width):
        log_z[start + b] = 0.0
        status[start + b] = GOOD
        k.product[b] = 1.0
    low, high = 1.0, 1.0
    for c in range(len(p.parent)):
        _collect(p, t, cells, k, c, start, width, log_z)
        lossy |= k.lossy[c] == 1
        _message_up(p, k, c, width)
        smallest, largest = np.inf, 0.0
        for b in range(width):
            top = k.top[b]
            if top < LOW:
                if status[start + b] == GOOD:
                    status[start + b] = MARKED if lossy else DEAD
                k.top[b] = 1.0
            else:
                smallest, largest = min(smallest, top), max(largest, top)
        if low * smallest < _SMALL or high * largest > _LARGE:
            _flush(k, start, width, log_z)
            low, high = 1.0, 1.0
        for b in range(np.uint64(width)):
            k.product[b] *= k.top[b]
        low, high = low * min(smallest, 1.0), high * max(largest, 1.0)
    _flush(k, start, width, log_z)
    for b in range(width):
        if status[start + b] != GOOD:
            log_z[start + b] = -np.inf
    return lossy


@njit(cache=True, error_model="numpy", forceinline=True)
def _receive(p, k, c, width):
    """Multiply a clique by the message from above, and sum it."""
    at, size, run = p.clique_at[c], p.clique_at[c + 1] - p.clique_at[c], p.residual[c]
    rows = np.uint64(width)
    mass = np.uint64(c * width)
    for b in range(rows):
        k.mass[mass + b] = 0.0
    root = p.parent[c] < 0
    for e in range(size):
        to = np.uint64((at + e) * width)
        source = np.uint64((p.separator_at[c] + e // run) * width)
        if root:
            for b in range(rows):
                k.mass[mass + b] += k.psi[to + b]
        else:
            for b in range(rows):
                value = k.psi[to + b] * k.messages[source + b]
                k.psi[to + b] = value
                k.mass[mass + b] += value


@njit(cache=True, error_model="numpy", forceinline=True)
def _send(p, k, c, width):
    """The messages from a clique to those below."""
    at, size = p.clique_at[c], p.clique_at[c + 1] - p.clique_at[c]
    rows = np.uint64(width)
    for i in range(p.child_of[c], p.child_of[c + 1]):
        j = p.children[i]
        low, high = p.separator_at[j], p.separator_at[j + 1]
        for e in range(np.uint64((high - low) * width)):
            k.spare[e] = 0.0
        for e in range(size):
            to = np.uint64(p.maps[p.child_map[j] + e] * width)
            source = np.uint64((at + e) * width)
            for b in range(rows):
                k.spare[to + b] += k.psi[source + b]
        first = np.uint64(low * width)
        for e in range(np.uint64((high - low) * width)):
            below = k.messages[first + e]
            k.messages[first + e] = k.spare[e] / below if below >= LOW else 0.0
        _tops(k.messages, low, high - low, width, k.top)
        k.message_floors[j] = _divide_by(
            k.messages, low, high - low, width, k.top, k.factor, k.mass[j * width :]
        )


@njit(cache=True, error_model="numpy", forceinline=True)
def _judge(p, k, c, start, width, lossy, strict, status):
    """Mark the rows in which what a clique has lost may matter; all of them if `strict`, which
    wants the smallest numbers right as well.
    """
    size = p.clique_at[c + 1] - p.clique_at[c]
    floor = k.floors[c] if p.parent[c] < 0 else k.floors[c] * k.message_floors[c]
    if floor >= LOW and not lossy:
        return
    for b in range(width):
        lost = size * LOST if floor < LOW else 0.0
        if k.lossy[c]:
            lost += size * k.losses[c * width + b]
        for i in range(p.child_of[c], p.child_of[c + 1]):
            j = p.children[i]
            if k.lossy[j]:
                scale = k.scales[c * width + b] if k.scaled[c] else 1.0
                lost += size * k.message_losses[j * width + b] / scale
        good = lost == 0.0 or (not strict and lost <= HARMLESS * k.mass[c * width + b])
        if not good and status[start + b] == GOOD:
            status[start + b] = MARKED


@njit(cache=True, error_model="numpy", forceinline=True)
def _down(p, k, start, width, lossy, strict, status):
    """The downward pass of a block: every clique table becomes its belief, up to its mass."""
    n = len(p.parent)
    for i in range(n):
        c = n - 1 - i
        _receive(p, k, c, width)
        _send(p, k, c, width)
        _judge(p, k, c, start, width, lossy, strict, status)


# ---------------------------------------------------------------------- reading


@njit(cache=True, error_model="numpy", forceinline=True)
def _read(p, k, c, start, width, out):
    """Marginals that are read from one clique, up to a factor."""
    at, size = p.clique_at[c], p.clique_at[c + 1] - p.clique_at[c]
    for t in range(p.target_of[c], p.target_of[c + 1]):
        for e in range(size):
            column = p.target_at[t] + p.maps[p.target_map[t] + e]
            source = (at + e) * width
            for b in range(width):
                out[start + b, column] += k.psi[source + b]


@njit(cache=True, error_model="numpy", fastmath=_FAST)
def _dot(x, at, width, y):
    total = 0.0
    first = np.uint64(at)
    for b in range(np.uint64(width)):
        total += x[first + b] * y[b]
    return total


@njit(cache=True, error_model="numpy", forceinline=True)
def _count(p, cells, k, c, start, width, answers):
    """Add the weighted belief of a clique to the sums, and to the tables of its cut factors."""
    at, size = p.clique_at[c], p.clique_at[c + 1] - p.clique_at[c]
    whole = p.whole_of[c] < p.whole_of[c + 1]
    if not whole and p.cut_of[c] == p.cut_of[c + 1]:
        return
    for b in range(width):
        good = answers.status[start + b] == GOOD
        k.factor[b] = cells.counts[start + b] / k.mass[c * width + b] if good else 0.0
    if whole:
        for e in range(size):
            answers.sums[at + e] += _dot(k.psi, (at + e) * width, width, k.factor)
    for f in range(p.cut_of[c], p.cut_of[c + 1]):
        _shifts(
            p.shift_strides, p.shift_columns, p.shift_offsets[f], p.shift_offsets[f + 1], k.seen,
            width, k.shift,
        )  # fmt: skip
        for e in range(size):
            place = np.int64(p.maps[p.cut_map[f] + e])
            source = np.uint64((at + e) * width)
            for b in range(np.uint64(width)):
                to = np.uint64(place + k.shift[b])
                answers.counts[to] += k.psi[source + b] * k.factor[b]


@njit(cache=True, error_model="numpy")
def _spread_sums(p, sums, counts):
    """Add the weighted sums of clique tables to the counts of their whole factors."""
    for c in range(len(p.parent)):
        at, size = p.clique_at[c], p.clique_at[c + 1] - p.clique_at[c]
        for f in range(p.whole_of[c], p.whole_of[c + 1]):
            for e in range(size):
                counts[p.maps[p.whole_map[f] + e]] += sums[at + e]


@njit(cache=True, error_model="numpy")
def _new_block(p, width, n_columns):
    n = len(p.parent)
    largest = 1
    for c in range(n):
        largest = max(largest, p.separator_at[c + 1] - p.separator_at[c])
    return _RowBlock(
        np.empty(p.clique_at[n] * width),
        np.empty(p.separator_at[n] * width),
        np.empty(largest * width),
        np.empty(n),
        np.empty(n),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.empty(n * width),
        np.empty(n * width),
        np.empty(n * width),
        np.empty(n * width),
        np.empty(width),
        np.empty(width),
        np.empty(width),
        np.empty(width, np.int64),
        np.empty(n_columns * width, np.int64),
    )


@njit(cache=True, error_model="numpy")
def run_rows(p, t, cells, begin, end, job, answers):
    """Rows begin..end - 1, `job.block` of them side by side: log Z, and what is to be read. Answers
    the logarithm of what was taken off the products of whole factors, if they are filled.

    `answers.out` must be zero; targets of rows that are not good are worth nothing.
    """
    added = fill_base(p, t) if job.fill else 0.0
    n_columns = cells.states.shape[1]
    k = _new_block(p, min(job.block, max(end - begin, 1)), n_columns)
    for start in range(begin, end, job.block):
        width = min(job.block, end - start)
        for v in range(n_columns):
            for b in range(width):
                k.seen[v * width + b] = cells.states[start + b, v]
        lossy = _up(p, t, cells, k, start, width, answers.log_z, answers.status)
        if job.read == NOTHING and not lossy:
            continue
        _down(p, k, start, width, lossy, job.strict, answers.status)
        for c in range(len(p.parent)):
            if job.read == TARGETS:
                _read(p, k, c, start, width, answers.out)
            elif job.read == COUNTS:
                _count(p, cells, k, c, start, width, answers)
    if job.read == COUNTS and end == len(cells.states):
        _spread_sums(p, answers.sums, answers.counts)
    return added


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
