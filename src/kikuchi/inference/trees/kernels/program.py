"""From a junction tree to a program: a list of walks and what is done with their results.

An operation is one `contract` over the axes of a clique or separator, followed by actions on its
results. Rows of `ops`, columns by name below; `dims`, `steps`, `bases`, `tables` are flat lists
that the rows point into. `tables` numbers the inputs (products of factors first, then messages by
the clique below them) so that their floors can be looked up; -1 is a table that has none.

Shafer-Shenoy overwrites a message up by the message down once its parent has used it, unless the
two have places of their own. Hugin holds clique tables and divides.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from kikuchi.inference.trees.kernels.contraction import tile_split

Ints = NDArray[np.int64]

# columns of `ops`
AXES, DIMS, STEPS, BASES, FIXED, CHILDREN, TARGETS = range(7)
LOW, HIGH, STORE, CHECK, ACTIONS, COLUMNS = range(7, 13)
# when a walk looks for underflow
NEVER, ALWAYS, BY_FLOORS = 0, 1, 2
# columns of `actions`
KIND, SOURCE, SIZE, PLACE, TABLE, SCALE, OPPOSITE, ACTION_COLUMNS = range(8)
# MESSAGE scales results into a message; ANSWER into probabilities; BELIEF multiplies results by the
# message that came the opposite way; DIVIDE divides results by it. OPPOSITE is where that lies, -1
# for messages up, whose opposites are not there yet.
MESSAGE, ANSWER, BELIEF, DIVIDE = range(4)


class Program(NamedTuple):
    """Operations in the order of their execution; `ends[i]` counts those done after i cliques.

    The last row of `ops` is no operation: it only ends the list of actions.
    """

    ops: NDArray[np.int64]
    dims: Ints
    steps: Ints
    bases: Ints
    tables: Ints
    actions: NDArray[np.int64]
    ends: Ints


@njit(cache=True, error_model="numpy")
def begin(at, ops, dims, actions, card, names, low, high):
    """Open an operation over names[low:high]; `at` counts ops, dims, steps, operands, actions."""
    o = at[0]
    at[0] += 1
    ops[o, AXES] = high - low
    ops[o, DIMS], ops[o, STEPS], ops[o, BASES] = at[1], at[2], at[3]
    for column in range(FIXED, CHECK + 1):
        ops[o, column] = 0
    ops[o, ACTIONS] = at[4]
    for k in range(low, high):
        dims[at[1]] = card[names[k]]
        at[1] += 1
    return o


@njit(cache=True, error_model="numpy")
def add_table(at, ops, dims, steps, bases, tables, o, axes, low, names, first, end, base, table):
    """Add an operand over names[first:end], laid out by rank like the axes themselves."""
    nd, d = ops[o, AXES], ops[o, DIMS]
    stride = 1
    j = end - 1
    for a in range(nd - 1, -1, -1):
        step = 0
        if j >= first and names[j] == axes[low + a]:
            step = stride
            stride *= dims[d + a]
            j -= 1
        steps[at[2] + a] = step
    at[2] += nd
    bases[at[3]] = base
    tables[at[3]] = table
    at[3] += 1


@njit(cache=True, error_model="numpy")
def add_target(at, ops, steps, bases, o, axes, low, ranks, strides, first, end, base):
    """Add a result with strides of its own."""
    nd = ops[o, AXES]
    j = first
    for a in range(nd):
        step = 0
        if j < end and ranks[j] == axes[low + a]:
            step = strides[j]
            j += 1
        steps[at[2] + a] = step
    at[2] += nd
    bases[at[3]] = base
    at[3] += 1
    ops[o, TARGETS] += 1


@njit(cache=True, error_model="numpy")
def add_action(at, actions, kind, source, size, place, table, scale, opposite):
    """Add an action on temporary[source:source + size] to the current operation."""
    row = at[4]
    actions[row, KIND], actions[row, SOURCE], actions[row, SIZE] = kind, source, size
    actions[row, PLACE], actions[row, TABLE] = place, table
    actions[row, SCALE], actions[row, OPPOSITE] = scale, opposite
    at[4] += 1


@njit(cache=True, error_model="numpy")
def add_factors(
    at,
    ops,
    dims,
    steps,
    bases,
    tables,
    o,
    axes,
    low,
    first,
    end,
    group_offsets,
    group_vars,
    group_tables,
):
    """Add the products of factors first..end - 1 as fixed inputs."""
    for g in range(first, end):
        add_table(
            at, ops, dims, steps, bases, tables, o, axes, low, group_vars,
            group_offsets[g], group_offsets[g + 1], group_tables[g], g,
        )  # fmt: skip
        ops[o, FIXED] += 1


@njit(cache=True, error_model="numpy")
def upward(
    room,
    card,
    offsets,
    names,
    residual,
    child_offsets,
    children,
    size,
    groups,
    group_offsets,
    group_vars,
    group_tables,
    up,
    clique_tables,
):
    """The program that sends every clique's message to its parent, leaves first.

    A root has an empty separator: its message is its part of Z. If there are `clique_tables` each
    clique is written there first (Hugin). `room` is the length of the lists (see `measure`).
    """
    n_cliques = len(residual)
    n_groups = len(group_tables) - 1
    hugin = len(clique_tables) > 0
    ops = np.empty((room[0], COLUMNS), np.int64)
    dims = np.empty(room[1], np.int64)
    steps = np.empty(room[2], np.int64)
    bases = np.empty(room[3], np.int64)
    tables = np.empty(room[3], np.int64)
    actions = np.empty((room[4], ACTION_COLUMNS), np.int64)
    ends = np.zeros(n_cliques + 1, np.int64)
    at = np.zeros(5, np.int64)
    for c in range(n_cliques):
        low, high = offsets[c], offsets[c + 1]
        o = begin(at, ops, dims, actions, card, names, low, high)
        add_factors(
            at, ops, dims, steps, bases, tables, o, names, low, groups[c], groups[c + 1],
            group_offsets, group_vars, group_tables,
        )  # fmt: skip
        for i in range(child_offsets[c], child_offsets[c + 1]):
            j = children[i]
            add_table(
                at, ops, dims, steps, bases, tables, o, names, low, names,
                offsets[j], offsets[j + 1] - residual[j], up[j], n_groups + j,
            )  # fmt: skip
            ops[o, FIXED] += 1
        ops[o, CHECK] = BY_FLOORS
        if hugin:
            add_table(
                at, ops, dims, steps, bases, tables, o, names, low, names, low, high,
                clique_tables[c], -1,
            )  # fmt: skip
            ops[o, TARGETS], ops[o, STORE], ops[o, CHECK] = 1, 1, ALWAYS
            o = begin(at, ops, dims, actions, card, names, low, high)
            add_table(
                at, ops, dims, steps, bases, tables, o, names, low, names, low, high,
                clique_tables[c], -1,
            )  # fmt: skip
            ops[o, FIXED] = 1
        add_table(
            at, ops, dims, steps, bases, tables, o, names, low, names, low, high - residual[c],
            0, -1,
        )  # fmt: skip
        ops[o, TARGETS], ops[o, HIGH] = 1, size[c]
        add_action(at, actions, MESSAGE, 0, size[c], up[c], n_groups + c, c, -1)
        ends[c + 1] = at[0]
    ops[at[0], ACTIONS] = at[4]
    return ops, dims, steps, bases, tables, actions, ends


@njit(cache=True, error_model="numpy")
def downward(
    room,
    spare,
    card,
    offsets,
    names,
    residual,
    parent,
    child_offsets,
    children,
    size,
    groups,
    group_offsets,
    group_vars,
    group_tables,
    up,
    down,
    clique_tables,
    target_offsets,
    target_ranks,
    target_strides,
    target_places,
    target_sizes,
    clique_targets,
    in_clique,
    separator_targets,
    in_separator,
):
    """The program that sends messages from every clique to its children, roots first, and reads
    the targets from cliques and separators on the way. Separators are read into results from
    `spare` on, since those of their clique are still needed.
    """
    n_cliques = len(residual)
    n_groups = len(group_tables) - 1
    hugin = len(clique_tables) > 0
    ops = np.empty((room[0], COLUMNS), np.int64)
    dims = np.empty(room[1], np.int64)
    steps = np.empty(room[2], np.int64)
    bases = np.empty(room[3], np.int64)
    tables = np.empty(room[3], np.int64)
    actions = np.empty((room[4], ACTION_COLUMNS), np.int64)
    ends = np.zeros(n_cliques + 1, np.int64)
    at = np.zeros(5, np.int64)
    for c in range(n_cliques - 1, -1, -1):
        low, high = offsets[c], offsets[c + 1]
        first, last = child_offsets[c], child_offsets[c + 1]
        if first == last and clique_targets[c] == clique_targets[c + 1]:
            ends[n_cliques - c] = at[0]
            continue
        o = begin(at, ops, dims, actions, card, names, low, high)
        if hugin:
            add_table(
                at, ops, dims, steps, bases, tables, o, names, low, names, low, high,
                clique_tables[c], -1,
            )  # fmt: skip
            ops[o, FIXED], ops[o, TARGETS] = 1, last - first
        else:
            add_factors(
                at, ops, dims, steps, bases, tables, o, names, low, groups[c], groups[c + 1],
                group_offsets, group_vars, group_tables,
            )  # fmt: skip
            if parent[c] >= 0:
                add_table(
                    at, ops, dims, steps, bases, tables, o, names, low, names, low,
                    high - residual[c], down[c], n_groups + c,
                )  # fmt: skip
                ops[o, FIXED] += 1
            for i in range(first, last):
                j = children[i]
                add_table(
                    at, ops, dims, steps, bases, tables, o, names, low, names,
                    offsets[j], offsets[j + 1] - residual[j], up[j], n_groups + j,
                )  # fmt: skip
            ops[o, CHILDREN] = last - first
            ops[o, CHECK] = BY_FLOORS if last > first else NEVER
        end = 0
        for i in range(first, last):
            j = children[i]
            add_table(
                at, ops, dims, steps, bases, tables, o, names, low, names,
                offsets[j], offsets[j + 1] - residual[j], end, -1,
            )  # fmt: skip
            end += size[j]
        for i in range(clique_targets[c], clique_targets[c + 1]):
            t = in_clique[i]
            add_target(
                at, ops, steps, bases, o, names, low, target_ranks, target_strides,
                target_offsets[t], target_offsets[t + 1], end,
            )  # fmt: skip
            add_action(at, actions, ANSWER, end, target_sizes[t], target_places[t], -1, -1, -1)
            end += target_sizes[t]
        ops[o, HIGH] = end
        place = 0
        for i in range(first, last):
            j = children[i]
            if hugin:
                add_action(at, actions, DIVIDE, place, size[j], up[j], -1, -1, up[j])
            elif separator_targets[j] < separator_targets[j + 1]:
                add_action(at, actions, BELIEF, place, size[j], down[j], n_groups + j, -1, up[j])
            else:
                add_action(at, actions, MESSAGE, place, size[j], down[j], n_groups + j, -1, up[j])
            place += size[j]
        place = 0
        for i in range(first, last):
            j = children[i]
            reading = separator_targets[j] < separator_targets[j + 1]
            below, above = offsets[j + 1] - residual[j], offsets[j]
            if hugin:
                o = begin(at, ops, dims, actions, card, names, above, offsets[j + 1])
                for k in range(3):
                    add_table(
                        at, ops, dims, steps, bases, tables, o, names, above, names, above,
                        below if k == 1 else offsets[j + 1],
                        up[j] if k == 1 else clique_tables[j], -1,
                    )  # fmt: skip
                ops[o, FIXED], ops[o, TARGETS], ops[o, STORE], ops[o, CHECK] = 2, 1, 1, ALWAYS
                add_action(at, actions, MESSAGE, place, size[j], up[j], -1, -1, -1)
            if reading:
                o = begin(at, ops, dims, actions, card, names, above, below)
                add_table(
                    at, ops, dims, steps, bases, tables, o, names, above, names, above, below,
                    up[j] if hugin else down[j], -1,
                )  # fmt: skip
                ops[o, FIXED], ops[o, LOW] = 1, spare
                end = spare
                for i2 in range(separator_targets[j], separator_targets[j + 1]):
                    t = in_separator[i2]
                    add_target(
                        at, ops, steps, bases, o, names, above, target_ranks, target_strides,
                        target_offsets[t], target_offsets[t + 1], end,
                    )  # fmt: skip
                    add_action(
                        at, actions, ANSWER, end, target_sizes[t], target_places[t], -1, -1, -1
                    )
                    end += target_sizes[t]
                ops[o, HIGH] = end
                if not hugin:
                    add_action(at, actions, MESSAGE, place, size[j], down[j], n_groups + j, -1, -1)
            place += size[j]
        ends[n_cliques - c] = at[0]
    ops[at[0], ACTIONS] = at[4]
    return ops, dims, steps, bases, tables, actions, ends


@njit(cache=True, error_model="numpy")
def _count(room, scratch, dims, nd, operands, buffers, actions):
    """Count one operation: its share of the lists, and the scratch that its walk needs."""
    room[0] += 1
    room[1] += nd
    room[2] += operands * nd
    room[3] += operands
    room[4] += actions
    _, tile = tile_split(dims, 0, nd, buffers)
    scratch[0] = max(scratch[0], buffers * tile)
    scratch[1] = max(scratch[1], operands)
    scratch[2] = max(scratch[2], operands * nd)
    scratch[3] = max(scratch[3], nd)


@njit(cache=True, error_model="numpy")
def measure(
    hugin,
    card,
    offsets,
    names,
    residual,
    parent,
    child_offsets,
    children,
    clique_size,
    separator_size,
    groups,
    target_sizes,
    clique_targets,
    in_clique,
    separator_targets,
    in_separator,
):
    """What propagation takes, without doing it; sizes are floats, they may be astronomic.

    Answers (multiply-adds of each clique's upward walk; of its downward walk; lengths of the lists
    of the upward program: ops, dims, steps, operands, actions; of the downward program; scratch:
    tile entries, operands, operands x axes, axes; largest results of an upward walk, of a downward
    walk, of reading a separator; sums of the upward and downward work, of the sizes of separators,
    cliques and targets).
    """
    n_cliques = len(parent)
    up = np.zeros(n_cliques)
    down = np.zeros(n_cliques)
    up_room = np.zeros(5, np.int64)
    down_room = np.zeros(5, np.int64)
    up_room[0] = down_room[0] = 1
    scratch = np.ones(4, np.int64)
    dims = np.empty(len(card) + 1, np.int64)
    up_results, down_results, read_results = 1.0, 1.0, 0.0
    for c in range(n_cliques):
        nd = offsets[c + 1] - offsets[c]
        for k in range(nd):
            dims[k] = card[names[offsets[c] + k]]
        size, separator = clique_size[c], separator_size[c]
        n_groups = groups[c + 1] - groups[c]
        n_children = child_offsets[c + 1] - child_offsets[c]
        n_targets = clique_targets[c + 1] - clique_targets[c]
        n_read = separator_targets[c + 1] - separator_targets[c]
        inputs = n_groups + n_children
        up_results = max(up_results, separator)
        if hugin:
            up[c] = size * (inputs + 2)
            _count(up_room, scratch, dims, nd, inputs + 1, 1, 0)
            _count(up_room, scratch, dims, nd, 2, 1, 1)
            down[c] = size * (1 + n_children + n_targets)
            if n_children + n_targets:
                actions = n_children + n_targets
                _count(down_room, scratch, dims, nd, 1 + n_children + n_targets, 1, actions)
            if parent[c] >= 0:
                down[c] += 2 * size
                _count(down_room, scratch, dims, nd, 3, 1, 1)
        else:
            up[c] = size * (inputs + 1)
            _count(up_room, scratch, dims, nd, inputs + 1, 1, 1)
            if n_children + n_targets:
                fixed = n_groups + (parent[c] >= 0)
                products = fixed + max(3 * (n_children - 1), 0)
                if n_children and n_targets:
                    products += 1
                down[c] = size * (products + n_children + n_targets)
                operands = fixed + 2 * n_children + n_targets
                actions = n_children + n_targets
                _count(down_room, scratch, dims, nd, operands, n_children + 1, actions)
        if n_read:
            down[c] += separator * (1 + n_read)
            _count(down_room, scratch, dims, nd - residual[c], 1 + n_read, 1, n_read + 1)
        results = 0.0
        for i in range(clique_targets[c], clique_targets[c + 1]):
            results += target_sizes[in_clique[i]]
        for i in range(child_offsets[c], child_offsets[c + 1]):
            results += separator_size[children[i]]
        down_results = max(down_results, results)
        results = 0.0
        for i in range(separator_targets[c], separator_targets[c + 1]):
            results += target_sizes[in_separator[i]]
        read_results = max(read_results, results)
    target_total = 0.0
    for t in range(len(target_sizes)):
        target_total += target_sizes[t]
    totals = (up.sum(), down.sum(), separator_size.sum(), clique_size.sum(), target_total)
    return (
        up, down, up_room, down_room, scratch, up_results, down_results, read_results, *totals,
    )  # fmt: skip
