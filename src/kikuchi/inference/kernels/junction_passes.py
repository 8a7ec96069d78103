"""Propagation on a junction tree: the programs of `junction_program`, carried out (TEH-I2, HOJ-I4, I5).

All tables live in one buffer `mem`: products of factors, one message for each separator. Results of a
walk gather in `temporary` first.

Every message is scaled to a largest entry of 1 (0 as a logarithm). `floors` bound the logarithm of
the smallest entry above zero of each input; where they cannot exclude that a product falls below
FLOOR, the walk looks, and if it does the answer is UNDERFLOW.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from kikuchi.inference.kernels.junction import EXPSUM, FLOOR, MAX, SUM, contract
from kikuchi.inference.kernels.junction_program import (
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


# ---------------------------------------------------------------------- scaling


@njit(cache=True, error_model="numpy", fastmath={"nnan", "nsz"})
def _largest(x: Any, low: int, size: int) -> float:
    top = -np.inf
    for i in range(np.uint64(low), np.uint64(low + size)):
        top = max(top, x[i])
    return top


@njit(cache=True, error_model="numpy", fastmath={"nnan", "nsz"})
def _scale_linear(x: Any, source: int, size: int, mem: Any, to: int, top: float) -> float:
    """Divide by `top`; answers the smallest entry above zero."""
    low, factor = np.inf, 1.0 / top
    a, b = np.uint64(source), np.uint64(to)
    for i in range(np.uint64(size)):
        y = x[a + i] * factor
        mem[b + i] = y
        low = min(low, y if y > 0.0 else np.inf)
    return low


@njit(cache=True, error_model="numpy")
def _normalise(x: Any, source: int, size: int, mem: Any, to: int, arithmetic: int) -> Any:
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
def _answer(x: Any, place: int, size: int, out: Any, to: int, arithmetic: int) -> int:
    """Turn a result into probabilities."""
    top = 0.0 if arithmetic == LINEAR else _largest(x, place, size)
    total = 0.0
    for k in range(size):
        y = x[place + k] if arithmetic == LINEAR else np.exp(x[place + k] - top)
        out[to + k] = y
        total += y
    if arithmetic == LINEAR and total < FLOOR:
        return UNDERFLOW
    for k in range(size):
        out[to + k] /= total
    return OK


@njit(cache=True, error_model="numpy")
def _multiply(
    mem: Any, up: int, temporary: Any, place: int, size: int, to: int, arithmetic: int
) -> None:
    """The belief of a separator: its two messages together."""
    a, b, c = np.uint64(up), np.uint64(place), np.uint64(to)
    for i in range(np.uint64(size)):
        if arithmetic == LINEAR:
            mem[c + i] = mem[a + i] * temporary[b + i]
        else:
            mem[c + i] = mem[a + i] + temporary[b + i]


@njit(cache=True, error_model="numpy")
def _divide(new: Any, place: int, mem: Any, old: int, size: int, arithmetic: int) -> bool:
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


@njit(cache=True, error_model="numpy")
def multiply_factors(
    mem: Any,
    card: Any,
    group_offsets: Any,
    group_vars: Any,
    group_tables: Any,
    log_tables: Any,
    table_offsets: Any,
    scope_offsets: Any,
    ranks: Any,
    strides: Any,
    group_of: Any,
    floors: Any,
) -> float:
    """Logarithms of the products of factors, each scaled to a largest entry of 0.

    Fills `floors` with the logarithm of the smallest entry above zero of each; answers the log of
    all scales together, -inf if some product vanishes everywhere.
    """
    n_groups = len(group_tables) - 1
    _fill(mem, group_tables[0], group_tables[n_groups], 0.0)
    widest = 1
    for g in range(n_groups):
        widest = max(widest, group_offsets[g + 1] - group_offsets[g])
    steps = np.zeros(widest, np.int64)
    index = np.zeros(widest, np.int64)
    for a in range(len(group_of)):
        g = group_of[a]
        low, high = group_offsets[g], group_offsets[g + 1]
        nd = high - low
        j = scope_offsets[a]
        for k in range(nd):
            steps[k] = 0
            index[k] = 0
            if j < scope_offsets[a + 1] and ranks[j] == group_vars[low + k]:
                steps[k] = strides[j]
                j += 1
        place = table_offsets[a]
        inner = card[group_vars[high - 1]]
        step = steps[nd - 1]
        for start in range(group_tables[g], group_tables[g + 1], inner):
            for i in range(inner):
                mem[start + i] += log_tables[place + i * step]
            k = nd - 2
            while k >= 0:
                index[k] += 1
                place += steps[k]
                if index[k] < card[group_vars[low + k]]:
                    break
                place -= steps[k] * index[k]
                index[k] = 0
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
def _fill(x: Any, low: int, high: int, value: float) -> None:
    for i in range(np.uint64(low), np.uint64(high)):
        x[i] = value


@njit(cache=True, error_model="numpy")
def _add_logs(x: Any, low: int, high: int) -> None:
    """Maxima at x[low:high] and sums of exponentials above them, which follow: log-sum-exp."""
    for i in range(low, high):
        if x[i] > -np.inf:
            x[i] += np.log(x[i + high - low])


@njit(cache=True, error_model="numpy")
def _watched(ops: Any, o: int, tables: Any, floors: Any) -> bool:
    """Whether the walk of operation o must look for underflow."""
    if ops[o, CHECK] != BY_FLOORS:
        return bool(ops[o, CHECK] == ALWAYS)
    floor = 0.0
    first = ops[o, BASES]
    for k in range(first, first + ops[o, FIXED] + ops[o, CHILDREN]):
        floor += floors[tables[k]]
    return floor < LOG_FLOOR


@njit(cache=True, error_model="numpy")
def _perform(
    actions: Any,
    first: int,
    end: int,
    mem: Any,
    temporary: Any,
    out: Any,
    floors: Any,
    scales: Any,
    arithmetic: int,
) -> int:
    """Carry out the actions first..end - 1 on the results in `temporary`."""
    for i in range(first, end):
        kind, source, size = actions[i, KIND], actions[i, SOURCE], actions[i, SIZE]
        place, table = actions[i, PLACE], actions[i, TABLE]
        if kind == MESSAGE:
            scale, floor = _normalise(temporary, source, size, mem, place, arithmetic)
            if scale == -np.inf:
                return IMPOSSIBLE
            if table >= 0:
                floors[table] = floor
            if actions[i, SCALE] >= 0:
                scales[actions[i, SCALE]] = scale
        elif kind == ANSWER:
            status = _answer(temporary, source, size, out, place, arithmetic)
            if status != OK:
                return status
        elif kind == BELIEF:
            _multiply(mem, table, temporary, source, size, place, arithmetic)
        elif kind == DIVIDE and _divide(temporary, source, mem, place, size, arithmetic):
            return UNDERFLOW
    return OK


@njit(cache=True, error_model="numpy")
def execute(
    ops: Any,
    dims: Any,
    steps: Any,
    bases: Any,
    tables: Any,
    actions: Any,
    start: int,
    stop: int,
    mem: Any,
    temporary: Any,
    out: Any,
    tile: Any,
    runs: Any,
    strides: Any,
    lengths: Any,
    places: Any,
    count: Any,
    floors: Any,
    scales: Any,
    arithmetic: int,
) -> int:
    """Carry out the operations start..stop - 1.

    Sums of exponentials are made behind the maxima and need as much room again.
    """
    for o in range(start, stop):
        low, high = ops[o, LOW], ops[o, HIGH]
        store = ops[o, STORE] == 1
        how = SUM if arithmetic == LINEAR else MAX
        watched = arithmetic == LINEAR and _watched(ops, o, tables, floors)
        twice = arithmetic == LOG_SUM and not store
        _fill(temporary, low, high, 0.0 if arithmetic == LINEAR else -np.inf)
        for phase in range(2 if twice else 1):
            if phase == 1:
                how = EXPSUM
                _fill(temporary, high, high + high - low, 0.0)
            bad = contract(
                mem,
                mem if store else temporary,
                tile,
                ops[o, AXES],
                dims,
                ops[o, DIMS],
                steps,
                ops[o, STEPS],
                bases,
                ops[o, BASES],
                runs,
                strides,
                lengths,
                places,
                count,
                ops[o, FIXED],
                ops[o, CHILDREN],
                ops[o, TARGETS],
                store,
                how,
                watched,
                high - low,
            )
            if bad:
                return UNDERFLOW
        if twice:
            _add_logs(temporary, low, high)
        status = _perform(
            actions, ops[o, ACTIONS], ops[o + 1, ACTIONS], mem, temporary, out, floors, scales,
            arithmetic,
        )  # fmt: skip
        if status != OK:
            return status
    return OK
