"""Propagation on a junction tree laid out by `junction_layout` (TEH-I2, HOJ-I4, HOJ-I5).

All tables live in one buffer `mem`: products of factors, one message for each separator. Results
of the walk over a clique gather in `temporary` first.
In Shafer-Shenoy propagation a message up is overwritten by the message down once its parent has
used it, so that only separators are held, each once. Hugin propagation holds the cliques.

`sweep` is the one entry: compiling it compiles all of this once, which is why the passes are inlined
into it.

Every message is scaled to a largest entry of 1 (0 as a logarithm). `floors` bound the logarithm of
the smallest entry above zero of each input; where they cannot exclude that a product falls below
FLOOR, the walk looks, and if it does the pass answers UNDERFLOW.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from kikuchi.inference.kernels.junction import EXPSUM, FLOOR, MAX, SUM, contract

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

OK, UNDERFLOW, IMPOSSIBLE = 0, 1, 2
LINEAR, LOG_MAX, LOG_SUM = 0, 1, 2
_LOG_FLOOR = float(np.log(FLOOR))
UP, DOWN, HUGIN_UP, HUGIN_DOWN, READ = 0, 1, 2, 3, 4


class Tree(NamedTuple):
    """A junction tree in flat arrays; the last five are offsets in the buffer of tables."""

    card: Ints
    clique_offsets: Ints
    clique_vars: Ints
    residual: Ints
    parent: Ints
    child_offsets: Ints
    children: Ints
    separator_size: Ints
    groups: Ints
    group_offsets: Ints
    group_vars: Ints
    group_tables: Ints
    up: Ints
    down: Ints
    tables: Ints


class Targets(NamedTuple):
    """Marginals to read: their axes (ranks and strides), place and size in the result, and which
    of them belong to each clique and to the separator above each clique.
    """

    offsets: Ints
    ranks: Ints
    strides: Ints
    bases: Ints
    sizes: Ints
    clique_offsets: Ints
    in_clique: Ints
    separator_offsets: Ints
    in_separator: Ints


class Scratch(NamedTuple):
    """Room for the operands of one walk."""

    tile: Floats
    dims: Ints
    steps: Ints
    bases: Ints
    runs: Ints
    strides: Ints
    lengths: Ints
    places: Ints
    count: Ints


# ---------------------------------------------------------------------- operands


@njit(cache=True, error_model="numpy")
def table_steps(
    steps: Any, k: int, dims: Any, axes: Any, low: int, nd: int, names: Any, first: int, end: int
) -> None:
    """Strides of operand k, a table over names[first:end], on the axes axes[low:low + nd]."""
    stride = 1
    j = end - 1
    for a in range(nd - 1, -1, -1):
        if j >= first and names[j] == axes[low + a]:
            steps[k * nd + a] = stride
            stride *= dims[a]
            j -= 1
        else:
            steps[k * nd + a] = 0


@njit(cache=True, error_model="numpy")
def _target_steps(
    steps: Any, k: int, axes: Any, low: int, nd: int, ranks: Any, strides: Any, j: int, end: int
) -> None:
    """Strides of operand k, a result with strides of its own."""
    for a in range(nd):
        if j < end and ranks[j] == axes[low + a]:
            steps[k * nd + a] = strides[j]
            j += 1
        else:
            steps[k * nd + a] = 0


@njit(cache=True, error_model="numpy")
def clique_axes(card: Any, names: Any, low: int, high: int, dims: Any) -> int:
    """Cardinalities of names[low:high] into `dims`; answers how many there are."""
    for k in range(low, high):
        dims[k - low] = card[names[k]]
    return high - low


@njit(cache=True, error_model="numpy", inline="always")
def _add_separator(tree: Any, s: Any, k: Any, base: Any, low: Any, nd: Any, c: Any) -> None:
    """Operand k: a table at `base` over the separator above clique c."""
    s.bases[k] = base
    table_steps(
        s.steps, k, s.dims, tree.clique_vars, low, nd, tree.clique_vars,
        tree.clique_offsets[c], tree.clique_offsets[c + 1] - tree.residual[c],
    )  # fmt: skip


@njit(cache=True, error_model="numpy", inline="always")
def _add_target(
    tree: Any, s: Any, k: Any, base: Any, low: Any, nd: Any, targets: Any, t: Any
) -> None:
    """Operand k: target t, to be gathered at `base`."""
    s.bases[k] = base
    _target_steps(
        s.steps, k, tree.clique_vars, low, nd, targets.ranks, targets.strides,
        targets.offsets[t], targets.offsets[t + 1],
    )  # fmt: skip


@njit(cache=True, error_model="numpy", inline="always")
def _add_whole(tree: Any, s: Any, k: Any, base: Any, low: Any, nd: Any) -> None:
    """Operand k: a table at `base` over all axes."""
    s.bases[k] = base
    table_steps(
        s.steps, k, s.dims, tree.clique_vars, low, nd, tree.clique_vars, low, low + nd
    )


@njit(cache=True, error_model="numpy", inline="always")
def _add_inputs(tree: Any, s: Any, k: Any, low: Any, nd: Any, c: Any, down: Any, up: Any) -> Any:
    """Operands k, k + 1, ...: factors of clique c, the message from its parent if `down`, those
    from its children if `up`; answers the next number.
    """
    for g in range(tree.groups[c], tree.groups[c + 1]):
        s.bases[k] = tree.group_tables[g]
        table_steps(
            s.steps, k, s.dims, tree.clique_vars, low, nd, tree.group_vars,
            tree.group_offsets[g], tree.group_offsets[g + 1],
        )  # fmt: skip
        k += 1
    if down and tree.parent[c] >= 0:
        _add_separator(tree, s, k, tree.down[c], low, nd, c)
        k += 1
    if up:
        for i in range(tree.child_offsets[c], tree.child_offsets[c + 1]):
            _add_separator(tree, s, k, tree.up[tree.children[i]], low, nd, tree.children[i])
            k += 1
    return k


# ---------------------------------------------------------------------- walks


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


@njit(cache=True, error_model="numpy", inline="always")
def _walk(
    mem: Any,
    temporary: Any,
    s: Any,
    nd: Any,
    n_fixed: Any,
    n_children: Any,
    n_targets: Any,
    low: Any,
    high: Any,
    arithmetic: Any,
    check: Any,
) -> Any:
    """Contract into temporary[low:high]; sums of exponentials use as much after it."""
    bad = False
    _fill(temporary, low, high, 0.0 if arithmetic == LINEAR else -np.inf)
    for phase in range(2 if arithmetic == LOG_SUM else 1):
        if phase == 1:
            _fill(temporary, high, high + high - low, 0.0)
        how = EXPSUM if phase == 1 else (SUM if arithmetic == LINEAR else MAX)
        bad |= contract(
            mem, temporary, s.tile, s.dims, nd, s.steps, s.bases, s.runs, s.strides, s.lengths,
            s.places, s.count, n_fixed, n_children, n_targets, False, how, check, high - low,
        )  # fmt: skip
    if arithmetic == LOG_SUM:
        _add_logs(temporary, low, high)
    return bad


@njit(cache=True, error_model="numpy", inline="always")
def _store(
    tree: Any, mem: Any, s: Any, low: Any, nd: Any, n_fixed: Any, base: Any, arithmetic: Any
) -> Any:
    """Write the whole product of the fixed operands as a table at `base`."""
    _add_whole(tree, s, n_fixed, base, low, nd)
    return contract(
        mem, mem, s.tile, s.dims, nd, s.steps, s.bases, s.runs, s.strides, s.lengths, s.places,
        s.count, n_fixed, 0, 1, True, SUM if arithmetic == LINEAR else MAX, True, 0,
    )  # fmt: skip


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
def _answers(
    x: Any,
    place: int,
    sizes: Any,
    bases: Any,
    which: Any,
    low: int,
    high: int,
    out: Any,
    arithmetic: int,
) -> int:
    """Turn targets which[low:high], one after the other in x, into probabilities."""
    for i in range(low, high):
        size, to = sizes[which[i]], bases[which[i]]
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
        place += size
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
    return bool(floor < _LOG_FLOOR)


# ---------------------------------------------------------------------- factors


@njit(cache=True, error_model="numpy")
def multiply_factors(
    mem: Any,
    tree: Any,
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
    n_groups = len(tree.group_tables) - 1
    _fill(mem, tree.group_tables[0], tree.group_tables[n_groups], 0.0)
    widest = 1
    for g in range(n_groups):
        widest = max(widest, tree.group_offsets[g + 1] - tree.group_offsets[g])
    steps = np.zeros(widest, np.int64)
    index = np.zeros(widest, np.int64)
    for a in range(len(group_of)):
        g = group_of[a]
        low, high = tree.group_offsets[g], tree.group_offsets[g + 1]
        nd = high - low
        j = scope_offsets[a]
        for k in range(nd):
            steps[k] = 0
            index[k] = 0
            if j < scope_offsets[a + 1] and ranks[j] == tree.group_vars[low + k]:
                steps[k] = strides[j]
                j += 1
        place = table_offsets[a]
        inner = tree.card[tree.group_vars[high - 1]]
        step = steps[nd - 1]
        for start in range(tree.group_tables[g], tree.group_tables[g + 1], inner):
            for i in range(inner):
                mem[start + i] += log_tables[place + i * step]
            k = nd - 2
            while k >= 0:
                index[k] += 1
                place += steps[k]
                if index[k] < tree.card[tree.group_vars[low + k]]:
                    break
                place -= steps[k] * index[k]
                index[k] = 0
                k -= 1
    log_scale = 0.0
    for g in range(n_groups):
        low, high = tree.group_tables[g], tree.group_tables[g + 1]
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


# ---------------------------------------------------------------------- reading marginals


@njit(cache=True, error_model="numpy", inline="always")
def _read_separator(
    tree: Any,
    s: Any,
    mem: Any,
    belief: Any,
    temporary: Any,
    spare: Any,
    c: Any,
    targets: Any,
    out: Any,
    arithmetic: Any,
) -> Any:
    """Marginals from the belief, at mem[belief], of the separator above c."""
    begin, end = targets.separator_offsets[c], targets.separator_offsets[c + 1]
    low = tree.clique_offsets[c]
    high = tree.clique_offsets[c + 1] - tree.residual[c]
    nd = clique_axes(tree.card, tree.clique_vars, low, high, s.dims)
    _add_whole(tree, s, 0, belief, low, nd)
    place = spare
    for i in range(begin, end):
        t = targets.in_separator[i]
        _add_target(tree, s, 1 + i - begin, place, low, nd, targets, t)
        place += targets.sizes[t]
    _walk(mem, temporary, s, nd, 1, 0, end - begin, spare, place, arithmetic, False)
    return _answers(
        temporary, spare, targets.sizes, targets.bases, targets.in_separator, begin, end, out,
        arithmetic,
    )  # fmt: skip


@njit(cache=True, error_model="numpy", inline="always")
def _read_clique(
    tree: Any, s: Any, mem: Any, temporary: Any, targets: Any, out: Any, c: Any, arithmetic: Any
) -> Any:
    """All targets from the belief of one clique, when messages of both directions are there."""
    low = tree.clique_offsets[c]
    nd = clique_axes(tree.card, tree.clique_vars, low, tree.clique_offsets[c + 1], s.dims)
    if len(tree.tables):
        _add_whole(tree, s, 0, tree.tables[c], low, nd)
        k = 1
    else:
        k = _add_inputs(tree, s, 0, low, nd, c, True, True)
    n_targets = len(targets.sizes)
    end = 0
    for t in range(n_targets):
        _add_target(tree, s, k + t, end, low, nd, targets, t)
        end += targets.sizes[t]
    _walk(mem, temporary, s, nd, k, 0, n_targets, 0, end, arithmetic, False)
    return _answers(
        temporary, 0, targets.sizes, targets.bases, np.arange(n_targets), 0, n_targets, out,
        arithmetic,
    )  # fmt: skip


# ---------------------------------------------------------------------- Shafer-Shenoy


@njit(cache=True, error_model="numpy", inline="always")
def _floor(tree: Any, c: Any, group_floors: Any, message_floors: Any) -> Any:
    """Bound on the logarithm of the product of the factors of c and its children's messages."""
    floor = 0.0
    for g in range(tree.groups[c], tree.groups[c + 1]):
        floor += group_floors[g]
    for i in range(tree.child_offsets[c], tree.child_offsets[c + 1]):
        floor += message_floors[tree.children[i]]
    return floor


@njit(cache=True, error_model="numpy", inline="always")
def _collect(
    tree: Any,
    s: Any,
    mem: Any,
    temporary: Any,
    group_floors: Any,
    message_floors: Any,
    scales: Any,
    c: Any,
    arithmetic: Any,
) -> Any:
    """The message of clique c to its parent; scales[c] gets the logarithm of its scale.

    A root has an empty separator: its message is its part of Z.
    """
    low = tree.clique_offsets[c]
    nd = clique_axes(tree.card, tree.clique_vars, low, tree.clique_offsets[c + 1], s.dims)
    k = _add_inputs(tree, s, 0, low, nd, c, False, True)
    _add_separator(tree, s, k, 0, low, nd, c)
    check = _floor(tree, c, group_floors, message_floors) < _LOG_FLOOR
    size = tree.separator_size[c]
    bad = _walk(mem, temporary, s, nd, k, 0, 1, 0, size, arithmetic, check)
    status = UNDERFLOW if bad else OK
    if status == OK:
        scales[c], message_floors[c] = _normalise(temporary, 0, size, mem, tree.up[c], arithmetic)
        if scales[c] == -np.inf:
            status = IMPOSSIBLE
    return status


@njit(cache=True, error_model="numpy", inline="always")
def _distribute(
    tree: Any,
    s: Any,
    mem: Any,
    temporary: Any,
    group_floors: Any,
    message_floors: Any,
    targets: Any,
    out: Any,
    c: Any,
    arithmetic: Any,
) -> Any:
    """Messages from clique c to its children, marginals from it and the separators below it."""
    first_child = tree.child_offsets[c]
    n_children = tree.child_offsets[c + 1] - first_child
    first, last = targets.clique_offsets[c], targets.clique_offsets[c + 1]
    if n_children == 0 and first == last:
        return OK
    low = tree.clique_offsets[c]
    nd = clique_axes(tree.card, tree.clique_vars, low, tree.clique_offsets[c + 1], s.dims)
    k = _add_inputs(tree, s, 0, low, nd, c, True, False)
    end = 0
    for i in range(n_children):
        j = tree.children[first_child + i]
        _add_separator(tree, s, k + i, tree.up[j], low, nd, j)
        _add_separator(tree, s, k + n_children + i, end, low, nd, j)
        end += tree.separator_size[j]
    place = end
    for i in range(first, last):
        t = targets.in_clique[i]
        _add_target(tree, s, k + 2 * n_children + i - first, end, low, nd, targets, t)
        end += targets.sizes[t]
    floor = _floor(tree, c, group_floors, message_floors)
    if tree.parent[c] >= 0:
        floor += message_floors[c]
    check = floor < _LOG_FLOOR and n_children > 0
    if _walk(mem, temporary, s, nd, k, n_children, last - first, 0, end, arithmetic, check):
        return UNDERFLOW
    status = _answers(
        temporary, place, targets.sizes, targets.bases, targets.in_clique, first, last, out,
        arithmetic,
    )  # fmt: skip
    place = 0
    spare = 2 * end if arithmetic == LOG_SUM else end
    for i in range(n_children):
        if status != OK:
            break
        j = tree.children[first_child + i]
        size = tree.separator_size[j]
        if targets.separator_offsets[j] < targets.separator_offsets[j + 1]:
            _multiply(mem, tree.up[j], temporary, place, size, tree.down[j], arithmetic)
            status = _read_separator(
                tree, s, mem, tree.down[j], temporary, spare, j, targets, out, arithmetic
            )
        top, message_floors[j] = _normalise(temporary, place, size, mem, tree.down[j], arithmetic)
        if top == -np.inf and status == OK:
            status = IMPOSSIBLE
        place += size
    return status


# ---------------------------------------------------------------------- Hugin


@njit(cache=True, error_model="numpy", inline="always")
def _hugin_collect(
    tree: Any, s: Any, mem: Any, temporary: Any, scales: Any, c: Any, arithmetic: Any
) -> Any:
    """Absorb the children's separators into the table of clique c and sum it onto its own."""
    low = tree.clique_offsets[c]
    nd = clique_axes(tree.card, tree.clique_vars, low, tree.clique_offsets[c + 1], s.dims)
    k = _add_inputs(tree, s, 0, low, nd, c, False, True)
    if _store(tree, mem, s, low, nd, k, tree.tables[c], arithmetic):
        return UNDERFLOW
    _add_whole(tree, s, 0, tree.tables[c], low, nd)
    _add_separator(tree, s, 1, 0, low, nd, c)
    size = tree.separator_size[c]
    _walk(mem, temporary, s, nd, 1, 0, 1, 0, size, arithmetic, False)
    scales[c], _ = _normalise(temporary, 0, size, mem, tree.up[c], arithmetic)
    return IMPOSSIBLE if scales[c] == -np.inf else OK


@njit(cache=True, error_model="numpy", inline="always")
def _hugin_distribute(
    tree: Any, s: Any, mem: Any, temporary: Any, targets: Any, out: Any, c: Any, arithmetic: Any
) -> Any:
    """Sum the table of clique c onto its children's separators and pass the quotients down."""
    first_child = tree.child_offsets[c]
    n_children = tree.child_offsets[c + 1] - first_child
    first, last = targets.clique_offsets[c], targets.clique_offsets[c + 1]
    low = tree.clique_offsets[c]
    nd = clique_axes(tree.card, tree.clique_vars, low, tree.clique_offsets[c + 1], s.dims)
    _add_whole(tree, s, 0, tree.tables[c], low, nd)
    k = 1
    end = 0
    for i in range(n_children):
        j = tree.children[first_child + i]
        _add_separator(tree, s, k, end, low, nd, j)
        end += tree.separator_size[j]
        k += 1
    place = end
    for i in range(first, last):
        _add_target(tree, s, k, end, low, nd, targets, targets.in_clique[i])
        end += targets.sizes[targets.in_clique[i]]
        k += 1
    _walk(mem, temporary, s, nd, 1, 0, k - 1, 0, end, arithmetic, False)
    status = _answers(
        temporary, place, targets.sizes, targets.bases, targets.in_clique, first, last, out,
        arithmetic,
    )  # fmt: skip
    place = 0
    spare = 2 * end if arithmetic == LOG_SUM else end
    for i in range(n_children):
        if status != OK:
            break
        j = tree.children[first_child + i]
        size = tree.separator_size[j]
        bad = _divide(temporary, place, mem, tree.up[j], size, arithmetic)
        below = tree.clique_offsets[j]
        nd = clique_axes(tree.card, tree.clique_vars, below, tree.clique_offsets[j + 1], s.dims)
        _add_whole(tree, s, 0, tree.tables[j], below, nd)
        _add_separator(tree, s, 1, tree.up[j], below, nd, j)
        bad |= _store(tree, mem, s, below, nd, 2, tree.tables[j], arithmetic)
        _normalise(temporary, place, size, mem, tree.up[j], arithmetic)  # the belief stays
        if bad:
            status = UNDERFLOW
        elif targets.separator_offsets[j] < targets.separator_offsets[j + 1]:
            status = _read_separator(
                tree, s, mem, tree.up[j], temporary, spare, j, targets, out, arithmetic
            )
        place += size
    return status


@njit(cache=True, error_model="numpy")
def sweep(
    task: int,
    tree: Any,
    s: Any,
    mem: Any,
    temporary: Any,
    group_floors: Any,
    message_floors: Any,
    scales: Any,
    targets: Any,
    out: Any,
    start: int,
    stop: int,
    arithmetic: int,
) -> int:
    """Do one task on the cliques start..stop - 1, counted from the leaves for UP and HUGIN_UP and
    from the roots for DOWN and HUGIN_DOWN, or READ all targets from the clique `start`.
    """
    last = len(tree.parent) - 1
    status = OK
    for i in range(start, stop):
        if task == UP:
            status = _collect(
                tree, s, mem, temporary, group_floors, message_floors, scales, i, arithmetic
            )
        elif task == DOWN:
            status = _distribute(
                tree, s, mem, temporary, group_floors, message_floors, targets, out, last - i,
                arithmetic,
            )  # fmt: skip
        elif task == HUGIN_UP:
            status = _hugin_collect(tree, s, mem, temporary, scales, i, arithmetic)
        elif task == HUGIN_DOWN:
            status = _hugin_distribute(
                tree, s, mem, temporary, targets, out, last - i, arithmetic
            )
        else:
            status = _read_clique(tree, s, mem, temporary, targets, out, i, arithmetic)
        if status != OK:
            break
    return status
