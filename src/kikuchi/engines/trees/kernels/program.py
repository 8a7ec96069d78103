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

from kikuchi.core.arrays import Ints
from kikuchi.core.compiled import planner
from kikuchi.engines.trees.kernels.contraction import tile_split

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


class PropagationProgram(NamedTuple):
    """Operations in the order of their execution; `ends[i]` counts those done after i cliques.

    The last row of `ops` is no operation: it only ends the list of actions.
    """

    ops: Ints
    dims: Ints
    steps: Ints
    bases: Ints
    tables: Ints
    actions: Ints
    ends: Ints


class Action(NamedTuple):
    """What is done with results[source:source + size]: a row of `actions`."""

    kind: int
    source: int
    size: int
    place: int
    table: int
    scale: int
    opposite: int


class Operand(NamedTuple):
    """The variables of a table, names[first:end], by rank like the axes of every operation."""

    names: Ints
    first: int
    end: int


@planner
def new_program(lengths, n_cliques):
    """An empty program with lists of the given lengths (see `measure`)."""
    return PropagationProgram(
        np.empty((lengths[0], COLUMNS), np.int64),
        np.empty(lengths[1], np.int64),
        np.empty(lengths[2], np.int64),
        np.empty(lengths[3], np.int64),
        np.empty(lengths[3], np.int64),
        np.empty((lengths[4], ACTION_COLUMNS), np.int64),
        np.zeros(n_cliques + 1, np.int64),
    )


@planner
def begin(at, program, card, names, low, high):
    """Open an operation over names[low:high]; `at` counts ops, dims, steps, operands, actions."""
    o = at[0]
    at[0] += 1
    ops = program.ops
    ops[o, AXES] = high - low
    ops[o, DIMS], ops[o, STEPS], ops[o, BASES] = at[1], at[2], at[3]
    for column in range(FIXED, CHECK + 1):
        ops[o, column] = 0
    ops[o, ACTIONS] = at[4]
    for k in range(low, high):
        program.dims[at[1]] = card[names[k]]
        at[1] += 1
    return o


@planner
def add_table(at, program, o, axes, low, operand, base, table):
    """Add an operand, laid out by rank like the axes themselves."""
    nd, d = program.ops[o, AXES], program.ops[o, DIMS]
    stride = 1
    j = operand.end - 1
    for a in range(nd - 1, -1, -1):
        step = 0
        if j >= operand.first and operand.names[j] == axes[low + a]:
            step = stride
            stride *= program.dims[d + a]
            j -= 1
        program.steps[at[2] + a] = step
    at[2] += nd
    program.bases[at[3]] = base
    program.tables[at[3]] = table
    at[3] += 1


@planner
def add_target(at, program, o, axes, low, targets, t, source):
    """Add the marginal target t, gathered at `source`, and the action that normalises it."""
    j, end = targets.offsets[t], targets.offsets[t + 1]
    nd = program.ops[o, AXES]
    for a in range(nd):
        step = 0
        if j < end and targets.ranks[j] == axes[low + a]:
            step = targets.strides[j]
            j += 1
        program.steps[at[2] + a] = step
    at[2] += nd
    program.bases[at[3]] = source
    at[3] += 1
    program.ops[o, TARGETS] += 1
    size = targets.sizes[t]
    add_action(at, program, Action(ANSWER, source, size, targets.places[t], -1, -1, -1))
    return source + size


@planner
def add_action(at, program, action):
    """Add an action to the current operation."""
    row = program.actions[at[4]]
    row[KIND], row[SOURCE], row[SIZE] = action.kind, action.source, action.size
    row[PLACE], row[TABLE] = action.place, action.table
    row[SCALE], row[OPPOSITE] = action.scale, action.opposite
    at[4] += 1


@planner
def _add_separator(at, program, tree, o, low, j, base, table):
    """Add an operand over the separator above clique j."""
    first, end = tree.clique_offsets[j], tree.clique_offsets[j + 1] - tree.residual[j]
    operand = Operand(tree.clique_vars, first, end)
    add_table(at, program, o, tree.clique_vars, low, operand, base, table)


@planner
def _add_clique(at, program, tree, o, c, base):
    """Add an operand over all variables of clique c, the axes of operation o."""
    low, high = tree.clique_offsets[c], tree.clique_offsets[c + 1]
    operand = Operand(tree.clique_vars, low, high)
    add_table(at, program, o, tree.clique_vars, low, operand, base, -1)


@planner
def add_factors(at, program, tree, o, c):
    """Add the products of factors that clique c holds, as fixed inputs."""
    low = tree.clique_offsets[c]
    for g in range(tree.groups[c], tree.groups[c + 1]):
        group = Operand(tree.group_vars, tree.group_offsets[g], tree.group_offsets[g + 1])
        add_table(at, program, o, tree.clique_vars, low, group, tree.group_tables[g], g)
        program.ops[o, FIXED] += 1


@planner
def upward(lengths, tree, size, up, clique_tables):
    """The program that sends every clique's message to its parent, leaves first.

    A root has an empty separator: its message is its part of Z. If there are `clique_tables` each
    clique is written there first (Hugin). `lengths` are those of the lists (see `measure`), `size`
    the whole-number sizes of the separators, `up` the offsets of the messages.
    """
    n_cliques = len(tree.residual)
    n_groups = len(tree.group_tables) - 1
    hugin = len(clique_tables) > 0
    program = new_program(lengths, n_cliques)
    ops = program.ops
    at = np.zeros(5, np.int64)
    for c in range(n_cliques):
        low, high = tree.clique_offsets[c], tree.clique_offsets[c + 1]
        o = begin(at, program, tree.card, tree.clique_vars, low, high)
        add_factors(at, program, tree, o, c)
        for i in range(tree.child_offsets[c], tree.child_offsets[c + 1]):
            j = tree.children[i]
            _add_separator(at, program, tree, o, low, j, up[j], n_groups + j)
            ops[o, FIXED] += 1
        ops[o, CHECK] = BY_FLOORS
        if hugin:
            _add_clique(at, program, tree, o, c, clique_tables[c])
            ops[o, TARGETS], ops[o, STORE], ops[o, CHECK] = 1, 1, ALWAYS
            o = begin(at, program, tree.card, tree.clique_vars, low, high)
            _add_clique(at, program, tree, o, c, clique_tables[c])
            ops[o, FIXED] = 1
        _add_separator(at, program, tree, o, low, c, 0, -1)
        ops[o, TARGETS], ops[o, HIGH] = 1, size[c]
        add_action(at, program, Action(MESSAGE, 0, size[c], up[c], n_groups + c, c, -1))
        program.ends[c + 1] = at[0]
    ops[at[0], ACTIONS] = at[4]
    return program


@planner
def _add_inputs(at, program, tree, o, c, up, down):
    """Inputs of the downward walk of clique c: factors, message from the parent, children's."""
    low, ops = tree.clique_offsets[c], program.ops
    n_groups = len(tree.group_tables) - 1
    add_factors(at, program, tree, o, c)
    if tree.parent[c] >= 0:
        _add_separator(at, program, tree, o, low, c, down[c], n_groups + c)
        ops[o, FIXED] += 1
    first, last = tree.child_offsets[c], tree.child_offsets[c + 1]
    for i in range(first, last):
        j = tree.children[i]
        _add_separator(at, program, tree, o, low, j, up[j], n_groups + j)
    ops[o, CHILDREN] = last - first
    ops[o, CHECK] = BY_FLOORS if last > first else NEVER


@planner
def _read_separator(at, program, tree, j, table, targets, spare):
    """The operation that sums the belief of the separator above clique j onto its targets."""
    above, below = tree.clique_offsets[j], tree.clique_offsets[j + 1] - tree.residual[j]
    o = begin(at, program, tree.card, tree.clique_vars, above, below)
    _add_separator(at, program, tree, o, above, j, table, -1)
    program.ops[o, FIXED], program.ops[o, LOW] = 1, spare
    end = spare
    for i in range(targets.separator_offsets[j], targets.separator_offsets[j + 1]):
        t = targets.in_separator[i]
        end = add_target(at, program, o, tree.clique_vars, above, targets, t, end)
    program.ops[o, HIGH] = end


@planner
def downward(lengths, spare, tree, size, up, down, clique_tables, targets):
    """The program that sends messages from every clique to its children, roots first, and reads
    the targets from cliques and separators on the way. Separators are read into results from
    `spare` on, since those of their clique are still needed.
    """
    n_cliques = len(tree.residual)
    n_groups = len(tree.group_tables) - 1
    hugin = len(clique_tables) > 0
    names, reads = tree.clique_vars, targets.separator_offsets
    program = new_program(lengths, n_cliques)
    ops = program.ops
    at = np.zeros(5, np.int64)
    for c in range(n_cliques - 1, -1, -1):
        low, high = tree.clique_offsets[c], tree.clique_offsets[c + 1]
        first, last = tree.child_offsets[c], tree.child_offsets[c + 1]
        if first == last and targets.clique_offsets[c] == targets.clique_offsets[c + 1]:
            program.ends[n_cliques - c] = at[0]
            continue
        o = begin(at, program, tree.card, names, low, high)
        if hugin:
            _add_clique(at, program, tree, o, c, clique_tables[c])
            ops[o, FIXED], ops[o, TARGETS] = 1, last - first
        else:
            _add_inputs(at, program, tree, o, c, up, down)
        end = 0
        for i in range(first, last):
            j = tree.children[i]
            _add_separator(at, program, tree, o, low, j, end, -1)
            end += size[j]
        for i in range(targets.clique_offsets[c], targets.clique_offsets[c + 1]):
            end = add_target(at, program, o, names, low, targets, targets.in_clique[i], end)
        ops[o, HIGH] = end
        place = 0
        for i in range(first, last):
            j = tree.children[i]
            if hugin:
                action = Action(DIVIDE, place, size[j], up[j], -1, -1, up[j])
            else:
                kind = BELIEF if reads[j] < reads[j + 1] else MESSAGE
                action = Action(kind, place, size[j], down[j], n_groups + j, -1, up[j])
            add_action(at, program, action)
            place += size[j]
        place = 0
        for i in range(first, last):
            j = tree.children[i]
            if hugin:
                above = tree.clique_offsets[j]
                o = begin(at, program, tree.card, names, above, tree.clique_offsets[j + 1])
                _add_clique(at, program, tree, o, j, clique_tables[j])
                _add_separator(at, program, tree, o, above, j, up[j], -1)
                _add_clique(at, program, tree, o, j, clique_tables[j])
                ops[o, FIXED], ops[o, TARGETS], ops[o, STORE], ops[o, CHECK] = 2, 1, 1, ALWAYS
                add_action(at, program, Action(MESSAGE, place, size[j], up[j], -1, -1, -1))
            if reads[j] < reads[j + 1]:
                table = up[j] if hugin else down[j]
                _read_separator(at, program, tree, j, table, targets, spare)
                if not hugin:
                    action = Action(MESSAGE, place, size[j], down[j], n_groups + j, -1, -1)
                    add_action(at, program, action)
            place += size[j]
        program.ends[n_cliques - c] = at[0]
    ops[at[0], ACTIONS] = at[4]
    return program


@planner
def _count(lengths, scratch, dims, nd, operands, buffers, actions):
    """Count one operation: its entries in the lists, and the scratch that its walk needs."""
    lengths[0] += 1
    lengths[1] += nd
    lengths[2] += operands * nd
    lengths[3] += operands
    lengths[4] += actions
    _, tile = tile_split(dims, 0, nd, buffers)
    scratch[0] = max(scratch[0], buffers * tile)
    scratch[1] = max(scratch[1], operands)
    scratch[2] = max(scratch[2], operands * nd)
    scratch[3] = max(scratch[3], nd)


@planner
def measure(hugin, tree, targets):
    """What propagation takes, without doing it; sizes are floats, they may be astronomic.

    Answers (multiply-adds of each clique's upward walk; of its downward walk; lengths of the lists
    of the upward program: ops, dims, steps, operands, actions; of the downward program; scratch:
    tile entries, operands, operands x axes, axes; largest results of an upward walk, of a downward
    walk, of reading a separator; sums of the upward and downward work, of the sizes of separators,
    cliques and targets).
    """
    offsets, parent = tree.clique_offsets, tree.parent
    child_offsets, separator_size = tree.child_offsets, tree.separator_size
    clique_targets, separator_targets = targets.clique_offsets, targets.separator_offsets
    n_cliques = len(parent)
    up = np.zeros(n_cliques)
    down = np.zeros(n_cliques)
    up_lengths = np.zeros(5, np.int64)
    down_lengths = np.zeros(5, np.int64)
    up_lengths[0] = down_lengths[0] = 1
    scratch = np.ones(4, np.int64)
    dims = np.empty(len(tree.card) + 1, np.int64)
    up_results, down_results, read_results = 1.0, 1.0, 0.0
    for c in range(n_cliques):
        nd = offsets[c + 1] - offsets[c]
        for k in range(nd):
            dims[k] = tree.card[tree.clique_vars[offsets[c] + k]]
        size, separator = tree.clique_size[c], separator_size[c]
        n_groups = tree.groups[c + 1] - tree.groups[c]
        n_children = child_offsets[c + 1] - child_offsets[c]
        n_targets = clique_targets[c + 1] - clique_targets[c]
        n_read = separator_targets[c + 1] - separator_targets[c]
        inputs = n_groups + n_children
        up_results = max(up_results, separator)
        if hugin:
            up[c] = size * (inputs + 2)
            _count(up_lengths, scratch, dims, nd, inputs + 1, 1, 0)
            _count(up_lengths, scratch, dims, nd, 2, 1, 1)
            down[c] = size * (1 + n_children + n_targets)
            if n_children + n_targets:
                actions = n_children + n_targets
                _count(down_lengths, scratch, dims, nd, 1 + n_children + n_targets, 1, actions)
            if parent[c] >= 0:
                down[c] += 2 * size
                _count(down_lengths, scratch, dims, nd, 3, 1, 1)
        else:
            up[c] = size * (inputs + 1)
            _count(up_lengths, scratch, dims, nd, inputs + 1, 1, 1)
            if n_children + n_targets:
                fixed = n_groups + (parent[c] >= 0)
                products = fixed + max(3 * (n_children - 1), 0)
                if n_children and n_targets:
                    products += 1
                down[c] = size * (products + n_children + n_targets)
                operands = fixed + 2 * n_children + n_targets
                actions = n_children + n_targets
                _count(down_lengths, scratch, dims, nd, operands, n_children + 1, actions)
        if n_read:
            down[c] += separator * (1 + n_read)
            _count(down_lengths, scratch, dims, nd - tree.residual[c], 1 + n_read, 1, n_read + 1)
        results = 0.0
        for i in range(clique_targets[c], clique_targets[c + 1]):
            results += targets.sizes[targets.in_clique[i]]
        for i in range(child_offsets[c], child_offsets[c + 1]):
            results += separator_size[tree.children[i]]
        down_results = max(down_results, results)
        results = 0.0
        for i in range(separator_targets[c], separator_targets[c + 1]):
            results += targets.sizes[targets.in_separator[i]]
        read_results = max(read_results, results)
    target_total = 0.0
    for t in range(len(targets.sizes)):
        target_total += targets.sizes[t]
    totals = (up.sum(), down.sum(), separator_size.sum(), tree.clique_size.sum(), target_total)
    largest = (up_results, down_results, read_results)
    return (up, down, up_lengths, down_lengths, scratch, *largest, *totals)


@planner
def _add_pass(work, tree, axes, size, operand, times):
    """Count passes over tiles of a clique with an operand: entries, rows and calls of inner loops.

    `axes` is a range of `tree.clique_vars`. Runs of
    axes that the operand has, or has not, are fused: the last is a row, the last two are a call.
    """
    end = operand.end
    row = call = 1.0
    runs, before = 0, False
    for a in range(axes[1] - 1, axes[0] - 1, -1):
        variable = tree.clique_vars[a]
        has = end > operand.first and operand.names[end - 1] == variable
        end -= has
        if runs == 0 or has != before:
            runs += 1
            before = has
            if runs == 3:
                break
        if runs == 1:
            row *= tree.card[variable]
        call *= tree.card[variable]
    work[0] += times * size
    work[1] += times * size / row
    work[2] += times * size / call


@planner
def _add_separator_pass(work, tree, axes, size, j, times):
    """Count passes over tiles of a clique with the separator above clique j."""
    end = tree.clique_offsets[j + 1] - tree.residual[j]
    operand = Operand(tree.clique_vars, tree.clique_offsets[j], end)
    _add_pass(work, tree, axes, size, operand, times)


@planner
def walk_work(tree, targets):
    """What the walks of `contract` do in both passes of Shafer-Shenoy propagation: entries
    combined, rows of them (one inner loop each) and calls (of two nested inner loops).

    Short rows cost far more for each entry, and which rows are short depends on where the variables
    of separators stand among the axes of their cliques: on the shape of a tree, not on its size.
    """
    work = np.zeros(3)
    dims = np.empty(len(tree.card) + 1, np.int64)
    for c in range(len(tree.parent)):
        low, high = tree.clique_offsets[c], tree.clique_offsets[c + 1]
        for k in range(low, high):
            dims[k - low] = tree.card[tree.clique_vars[k]]
        size = tree.clique_size[c]
        children = tree.children[tree.child_offsets[c] : tree.child_offsets[c + 1]]
        reads = targets.in_clique[targets.clique_offsets[c] : targets.clique_offsets[c + 1]]
        for down in range(2):
            if down and len(children) + len(reads) == 0:
                continue
            first, _ = tile_split(dims, 0, high - low, 1 + down * len(children))
            axes = low + first, high
            for g in range(tree.groups[c], tree.groups[c + 1]):
                group = Operand(tree.group_vars, tree.group_offsets[g], tree.group_offsets[g + 1])
                _add_pass(work, tree, axes, size, group, 1)
            if not down or tree.parent[c] >= 0:
                _add_separator_pass(work, tree, axes, size, c, 1)
            for j in children:  # down: in two products, and one result
                _add_separator_pass(work, tree, axes, size, j, 3 if down else 1)
            if down:
                work[0] += size * max(2 * len(children) - 1, 0)  # tiles by tiles
                for t in reads:
                    target = Operand(targets.ranks, targets.offsets[t], targets.offsets[t + 1])
                    _add_pass(work, tree, axes, size, target, 1)
        n_read = targets.separator_offsets[c + 1] - targets.separator_offsets[c]
        work[0] += 2 * n_read * tree.separator_size[c]
    return work
