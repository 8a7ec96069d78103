"""Propagation on a junction tree: the operations of a program carried out.

All tables live in one buffer `mem`: products of factors, one message for each separator. Results
of a walk gather in `temporary` first.

Every message is scaled to a largest entry of 1 (0 as a logarithm). `floors` bound the logarithm of
the smallest entry above zero of each input; where they cannot exclude that a product falls below
FLOOR, the walk looks. What is lost below FLOOR is harmless if the mass that the messages of both
directions leave on a separator is far larger: all inputs are at most 1, so the states that are
lost weigh less than FLOOR times their number. `losses` holds, for every message that lost
something, the logarithm of its scale until its opposite comes and the mass is known. Where that is
not above SAFE the answer is UNDERFLOW.

Reference: HOJ-I4, HOJ-I5, TEH-I2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.compiled import njit
from kikuchi.engines.trees.kernels.contraction import (
    EXPSUM,
    FLOOR,
    MAX,
    SUM,
    CliqueWalk,
    contract,
)
from kikuchi.engines.trees.kernels.program import (
    ACTIONS,
    ALWAYS,
    ANSWER,
    AXES,
    BASES,
    BELIEF,
    BY_FLOORS,
    CHECK,
    CHILDREN,
    DIMS,
    DIVIDE,
    FIXED,
    HIGH,
    KIND,
    LOW,
    MESSAGE,
    OPPOSITE,
    PLACE,
    SCALE,
    SIZE,
    SOURCE,
    STEPS,
    STORE,
    TABLE,
    TARGETS,
)

OK, UNDERFLOW, IMPOSSIBLE = 0, 1, 2
LINEAR, LOG_MAX, LOG_SUM = 0, 1, 2
LOG_FLOOR = float(np.log(FLOOR))
_SAFE = 1e-250  # against FLOOR: up to 1e20 lost terms still weigh less than 1e-20 of this
_LOG_SAFE = float(np.log(_SAFE))


class PropagationState(NamedTuple):
    """What the passes change: all tables, their floors and losses, scales of the messages, and
    whether something was lost in the present operation.
    """

    mem: Array
    floors: Array
    losses: Array
    scales: Array
    flags: Ints


# ---------------------------------------------------------------------- scaling


@njit(cache=True, error_model="numpy", fastmath={"nnan", "nsz"})
def _largest(x, low, size):
    top = -np.inf
    for i in range(np.uint64(low), np.uint64(low + size)):
        top = max(top, x[i])
    return top


@njit(cache=True, error_model="numpy", fastmath={"nnan", "nsz"})
def _scale_linear(x, source, size, mem, to, top):
    """Divide by `top`; answers the smallest entry above zero."""
    low, factor = np.inf, 1.0 / top
    a, b = np.uint64(source), np.uint64(to)
    for i in range(np.uint64(size)):
        y = x[a + i] * factor
        mem[b + i] = y
        low = min(low, y if y > 0.0 else np.inf)
    return low


@njit(cache=True, error_model="numpy")
def _normalise(x, source, size, mem, to, arithmetic):
    """Scale a message to a largest entry of 1: (log of the scale, log of the smallest entry)."""
    top = _largest(x, source, size)
    if arithmetic == LINEAR:
        if top == 0.0:
            return -np.inf, 0.0
        return np.log(top), np.log(_scale_linear(x, source, size, mem, to, top))
    if top == -np.inf:
        return top, 0.0
    for i in range(size):
        mem[to + i] = x[source + i] - top
    return top, 0.0


@njit(cache=True, error_model="numpy")
def _answer(x, place, size, out, to, arithmetic):
    """Turn a result into probabilities, or where it holds logarithms, scale them to a largest
    entry of 0.
    """
    if arithmetic != LINEAR:
        top = _largest(x, place, size)
        for k in range(size):
            out[to + k] = x[place + k] - top
        return OK
    total = 0.0
    for k in range(size):
        total += x[place + k]
    if total < _SAFE:
        return UNDERFLOW
    for k in range(size):
        out[to + k] = x[place + k] / total
    return OK


@njit(cache=True, error_model="numpy")
def _multiply(mem, up, temporary, place, size, to, arithmetic):
    """The belief of a separator: its two messages together."""
    a, b, c = np.uint64(up), np.uint64(place), np.uint64(to)
    for i in range(np.uint64(size)):
        if arithmetic == LINEAR:
            mem[c + i] = mem[a + i] * temporary[b + i]
        else:
            mem[c + i] = mem[a + i] + temporary[b + i]


@njit(cache=True, error_model="numpy")
def _divide(new, place, mem, old, size, arithmetic):
    """old <- new / old with 0/0 = 0, scaled to a largest entry of 1; True if an entry got lost."""
    for i in range(size):
        if arithmetic == LINEAR:
            zero = mem[old + i] == 0.0
            mem[old + i] = 0.0 if zero else new[place + i] / mem[old + i]
        elif mem[old + i] > -np.inf:
            mem[old + i] = new[place + i] - mem[old + i]
    _, floor = _normalise(mem, old, size, mem, old, arithmetic)
    return bool(floor < LOG_FLOOR)


# ---------------------------------------------------------------------- factors


@njit(cache=True, error_model="numpy", forceinline=True)  # a call would copy the tree's arrays
def multiply_factors(mem, floors, tree, log_tables, table_offsets, scope_offsets, counters):
    """Logarithms of the products of factors, each scaled to a largest entry of 0.

    `counters` is working memory, two numbers for each variable of the largest product. Fills
    `floors` with the logarithm of the smallest entry above zero of each; answers the log of all
    scales together, -inf if some product vanishes everywhere.
    """
    card, group_of, ranks, strides = (
        tree.card,
        tree.group_of,
        tree.factor_ranks,
        tree.factor_strides,
    )
    group_offsets, group_vars = tree.group_offsets, tree.group_vars
    group_tables = tree.group_tables
    n_groups = len(group_tables) - 1
    fill(mem, group_tables[0], group_tables[n_groups], 0.0)
    index = len(counters) // 2  # where the second section begins: states, after steps
    for a in range(len(group_of)):
        g = group_of[a]
        low, high = group_offsets[g], group_offsets[g + 1]
        nd = high - low
        j = scope_offsets[a]
        for k in range(nd):
            counters[k] = 0
            counters[index + k] = 0
            if j < scope_offsets[a + 1] and ranks[j] == group_vars[low + k]:
                counters[k] = strides[j]
                j += 1
        place = table_offsets[a]
        inner = card[group_vars[high - 1]]
        step = counters[nd - 1]
        for start in range(group_tables[g], group_tables[g + 1], inner):
            for i in range(inner):
                mem[start + i] += log_tables[place + i * step]
            k = nd - 2
            while k >= 0:
                counters[index + k] += 1
                place += counters[k]
                if counters[index + k] < card[group_vars[low + k]]:
                    break
                place -= counters[k] * counters[index + k]
                counters[index + k] = 0
                k -= 1
    log_scale = 0.0
    for g in range(n_groups):
        low, high = group_tables[g], group_tables[g + 1]
        top = _largest(mem, low, high - low)
        if top == -np.inf:
            return top
        log_scale += top
        floor = 0.0
        for i in range(low, high):
            mem[i] -= top
            if mem[i] > -np.inf:
                floor = min(floor, mem[i])
        floors[g] = floor
    return log_scale


# ---------------------------------------------------------------------- programs


@njit(cache=True, error_model="numpy")
def fill(x, low, high, value):
    """Put `value` at x[low:high]."""
    for i in range(np.uint64(low), np.uint64(high)):
        x[i] = value


@njit(cache=True, error_model="numpy")
def _add_logs(x, low, high):
    """Maxima at x[low:high] and sums of exponentials above them, which follow: log-sum-exp."""
    for i in range(low, high):
        if x[i] > -np.inf:
            x[i] += np.log(x[i + high - low])


@njit(cache=True, error_model="numpy")
def _watched(ops, o, tables, floors):
    """Whether the walk of operation o must look for underflow."""
    if ops[o, CHECK] != BY_FLOORS:
        return bool(ops[o, CHECK] == ALWAYS)
    floor = 0.0
    first = ops[o, BASES]
    for k in range(first, first + ops[o, FIXED] + ops[o, CHILDREN]):
        floor += floors[tables[k]]
    return floor < LOG_FLOOR


@njit(cache=True, error_model="numpy")
def _harmless(mem, opposite, x, place, size, lossy, loss):
    """Whether the mass on a separator is so large that what its messages lost does not matter.

    `lossy` says that the message at x[place:place + size] lost something, a finite `loss` that its
    opposite did.
    """
    total = 0.0
    for i in range(size):
        total += mem[opposite + i] * x[place + i]
    if total == 0.0 or (lossy and total < _SAFE):
        return False
    return bool(np.log(total / _largest(x, place, size)) + loss >= _LOG_SAFE)


@njit(cache=True, error_model="numpy", forceinline=True)  # a call would copy all arrays
def _perform(actions, first, end, lossy, state, temporary, out, arithmetic):
    """Carry out the actions first..end - 1 on the results in `temporary`."""
    mem, floors, losses, scales = state.mem, state.floors, state.losses, state.scales
    for i in range(first, end):
        kind, source, size = actions[i, KIND], actions[i, SOURCE], actions[i, SIZE]
        place, table, opposite = actions[i, PLACE], actions[i, TABLE], actions[i, OPPOSITE]
        if (
            opposite >= 0
            and table >= 0
            and (lossy or losses[table] < np.inf)
            and not _harmless(mem, opposite, temporary, source, size, lossy, losses[table])
        ):
            return UNDERFLOW
        if kind == MESSAGE:
            scale, floor = _normalise(temporary, source, size, mem, place, arithmetic)
            if scale == -np.inf:
                return UNDERFLOW if lossy or losses.min() < np.inf else IMPOSSIBLE
            if table >= 0:
                floors[table] = floor
            if actions[i, SCALE] >= 0:
                scales[actions[i, SCALE]] = scale
                if lossy:
                    losses[table] = scale
                    if size == 1 and scale < _LOG_SAFE:  # a root: this is the whole mass
                        return UNDERFLOW
        elif kind == ANSWER:
            status = _answer(temporary, source, size, out, place, arithmetic)
            if status != OK:
                return status
        elif kind == BELIEF:
            _multiply(mem, opposite, temporary, source, size, place, arithmetic)
        elif kind == DIVIDE and _divide(temporary, source, mem, place, size, arithmetic):
            return UNDERFLOW
    return OK


@njit(cache=True, error_model="numpy")
def execute(program, start, stop, phase, piece, pieces, state, workspace, arithmetic):
    """Carry out the operations start..stop - 1, or one piece of one operation.

    Sums of exponentials take two phases: maxima first, then the sums behind them, which need as
    many entries again. A `phase` below 0 means all phases. `state.flags[0]` remembers, from piece
    to piece, whether something was lost.
    """
    ops, mem, flags = program.ops, state.mem, state.flags
    temporary = workspace.temporary
    for o in range(start, stop):
        low, high = ops[o, LOW], ops[o, HIGH]
        store = ops[o, STORE] == 1
        watched = arithmetic == LINEAR and _watched(ops, o, program.tables, state.floors)
        phases = 2 if arithmetic == LOG_SUM and not store else 1
        walk = CliqueWalk(
            ops[o, AXES], program.dims, ops[o, DIMS], program.steps, ops[o, STEPS], program.bases,
            ops[o, BASES], ops[o, FIXED], ops[o, CHILDREN], ops[o, TARGETS], store,
        )  # fmt: skip
        for now in range(max(phase, 0), phases if phase < 0 else phase + 1):
            if piece == 0 and now == 0:
                flags[0] = 0
                fill(temporary, low, high, 0.0 if arithmetic == LINEAR else -np.inf)
            elif piece == 0:
                fill(temporary, high, high + high - low, 0.0)
            how = EXPSUM if now == 1 else (SUM if arithmetic == LINEAR else MAX)
            results = mem if store else temporary
            shift = high - low
            if contract(walk, mem, results, workspace, how, watched, shift, piece, pieces):
                flags[0] = 1
        if piece + 1 < pieces or 0 <= phase < phases - 1:
            continue
        lossy = flags[0] == 1
        if lossy and store:
            return UNDERFLOW
        if phases == 2:
            _add_logs(temporary, low, high)
        status = _perform(
            program.actions, ops[o, ACTIONS], ops[o + 1, ACTIONS], lossy, state, temporary,
            workspace.out, arithmetic,
        )  # fmt: skip
        if status != OK:
            return status
    return OK
