"""Propagation on a junction tree laid out by `junction_layout` (TEH-I2, HOJ-I4, HOJ-I5).

All tables live in one buffer `mem`: products of factors, one message for each separator. Results
of the walk over a clique gather in `temporary` first.
In Shafer-Shenoy propagation a message up is overwritten by the message down once its parent has
used it, so that only separators are held, each once. Hugin propagation holds the cliques.

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
SPREAD = 4096  # residual states up to which a draw looks offsets up instead of walking


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
def _axes(tree: Any, low: int, high: int, dims: Any) -> int:
    for k in range(low, high):
        dims[k - low] = tree.card[tree.clique_vars[k]]
    return high - low


@njit(cache=True, error_model="numpy")
def _operand(
    s: Any, k: int, base: int, tree: Any, low: int, nd: int, names: Any, first: int, end: int
) -> None:
    """Operand k: a table over names[first:end], laid out by rank like the clique itself."""
    s.bases[k] = base
    stride = 1
    j = end - 1
    for a in range(nd - 1, -1, -1):
        if j >= first and names[j] == tree.clique_vars[low + a]:
            s.steps[k * nd + a] = stride
            stride *= s.dims[a]
            j -= 1
        else:
            s.steps[k * nd + a] = 0


@njit(cache=True, error_model="numpy")
def _separator(s: Any, k: int, base: int, tree: Any, low: int, nd: int, c: int) -> None:
    """Operand k: a table over the separator above clique c."""
    end = tree.clique_offsets[c + 1] - tree.residual[c]
    _operand(s, k, base, tree, low, nd, tree.clique_vars, tree.clique_offsets[c], end)


@njit(cache=True, error_model="numpy")
def _target(s: Any, k: int, base: int, tree: Any, low: int, nd: int, targets: Any, t: int) -> None:
    """Operand k: a result with axes and strides of its own."""
    s.bases[k] = base
    j = targets.offsets[t]
    for a in range(nd):
        if j < targets.offsets[t + 1] and targets.ranks[j] == tree.clique_vars[low + a]:
            s.steps[k * nd + a] = targets.strides[j]
            j += 1
        else:
            s.steps[k * nd + a] = 0


@njit(cache=True, error_model="numpy")
def _factors(s: Any, k: int, tree: Any, low: int, nd: int, c: int) -> int:
    """Operands k, k + 1, ...: the products of factors of clique c; answers the next number."""
    for g in range(tree.groups[c], tree.groups[c + 1]):
        first, end = tree.group_offsets[g], tree.group_offsets[g + 1]
        _operand(s, k, tree.group_tables[g], tree, low, nd, tree.group_vars, first, end)
        k += 1
    return k


@njit(cache=True, error_model="numpy")
def _fill(mem: Any, low: int, high: int, value: float) -> None:
    for i in range(np.uint64(low), np.uint64(high)):
        mem[i] = value


@njit(cache=True, error_model="numpy")
def _walk(
    mem: Any,
    temporary: Any,
    s: Any,
    nd: int,
    n_fixed: int,
    n_children: int,
    n_targets: int,
    low: int,
    high: int,
    arithmetic: int,
    check: bool,
) -> bool:
    """Contract into temporary[low:high]; sums of exponentials use as much after it."""
    how = SUM if arithmetic == LINEAR else MAX
    _fill(temporary, low, high, 0.0 if arithmetic == LINEAR else -np.inf)
    bad = contract(
        mem, temporary, s.tile, s.dims, nd, s.steps, s.bases, s.runs, s.strides, s.lengths,
        s.places, s.count, n_fixed, n_children, n_targets, False, how, check, 0,
    )  # fmt: skip
    if arithmetic == LOG_SUM:
        shift = high - low
        _fill(temporary, high, high + shift, 0.0)
        contract(
            mem, temporary, s.tile, s.dims, nd, s.steps, s.bases, s.runs, s.strides, s.lengths,
            s.places, s.count, n_fixed, n_children, n_targets, False, EXPSUM, False, shift,
        )  # fmt: skip
        for i in range(low, high):
            if temporary[i] > -np.inf:
                temporary[i] += np.log(temporary[i + shift])
    return bad


@njit(cache=True, error_model="numpy")
def _store(
    mem: Any, s: Any, nd: int, n_fixed: int, base: int, arithmetic: int, check: bool
) -> bool:
    """Write the whole product of the fixed operands as a table over all axes."""
    s.bases[n_fixed] = base
    stride = 1
    for a in range(nd - 1, -1, -1):
        s.steps[n_fixed * nd + a] = stride
        stride *= s.dims[a]
    return contract(
        mem, mem, s.tile, s.dims, nd, s.steps, s.bases, s.runs, s.strides, s.lengths, s.places,
        s.count, n_fixed, 0, 1, True, SUM if arithmetic == LINEAR else MAX, check, 0,
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
    x: Any, place: int, targets: Any, which: Any, low: int, high: int, out: Any, arithmetic: int
) -> int:
    """Turn targets which[low:high], one after the other in x, into probabilities."""
    for i in range(low, high):
        t = which[i]
        size, to = targets.sizes[t], targets.bases[t]
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


# ---------------------------------------------------------------------- Shafer-Shenoy


@njit(cache=True, error_model="numpy")
def collect(
    tree: Any,
    s: Any,
    mem: Any,
    temporary: Any,
    group_floors: Any,
    message_floors: Any,
    scales: Any,
    start: int,
    stop: int,
    arithmetic: int,
) -> int:
    """Messages of cliques start..stop - 1 to their parents; scales[c] gets each one's logarithm.

    A root has an empty separator: its message is its part of Z.
    """
    for c in range(start, stop):
        low = tree.clique_offsets[c]
        nd = _axes(tree, low, tree.clique_offsets[c + 1], s.dims)
        k = _factors(s, 0, tree, low, nd, c)
        floor = 0.0
        for g in range(tree.groups[c], tree.groups[c + 1]):
            floor += group_floors[g]
        for i in range(tree.child_offsets[c], tree.child_offsets[c + 1]):
            j = tree.children[i]
            _separator(s, k, tree.up[j], tree, low, nd, j)
            floor += message_floors[j]
            k += 1
        _separator(s, k, 0, tree, low, nd, c)
        size = tree.separator_size[c]
        check = floor < _LOG_FLOOR
        if _walk(mem, temporary, s, nd, k, 0, 1, 0, size, arithmetic, check):
            return UNDERFLOW
        scales[c], message_floors[c] = _normalise(temporary, 0, size, mem, tree.up[c], arithmetic)
        if scales[c] == -np.inf:
            return IMPOSSIBLE
    return OK


@njit(cache=True, error_model="numpy")
def distribute(
    tree: Any,
    s: Any,
    mem: Any,
    temporary: Any,
    group_floors: Any,
    message_floors: Any,
    targets: Any,
    out: Any,
    start: int,
    stop: int,
    arithmetic: int,
) -> int:
    """Messages from cliques start, start - 1, ..., stop + 1 to their children, and marginals."""
    room = 2 if arithmetic == LOG_SUM else 1
    for c in range(start, stop, -1):
        first_child, last_child = tree.child_offsets[c], tree.child_offsets[c + 1]
        n_children = last_child - first_child
        first_target, last_target = targets.clique_offsets[c], targets.clique_offsets[c + 1]
        n_targets = last_target - first_target
        if n_children == 0 and n_targets == 0:
            continue
        low = tree.clique_offsets[c]
        nd = _axes(tree, low, tree.clique_offsets[c + 1], s.dims)
        n_fixed = _factors(s, 0, tree, low, nd, c)
        floor = 0.0
        for g in range(tree.groups[c], tree.groups[c + 1]):
            floor += group_floors[g]
        if tree.parent[c] >= 0:
            _separator(s, n_fixed, tree.down[c], tree, low, nd, c)
            floor += message_floors[c]
            n_fixed += 1
        end = 0
        for i in range(n_children):
            j = tree.children[first_child + i]
            _separator(s, n_fixed + i, tree.up[j], tree, low, nd, j)
            _separator(s, n_fixed + n_children + i, end, tree, low, nd, j)
            floor += message_floors[j]
            end += tree.separator_size[j]
        place = end
        for i in range(n_targets):
            t = targets.in_clique[first_target + i]
            _target(s, n_fixed + 2 * n_children + i, end, tree, low, nd, targets, t)
            end += targets.sizes[t]
        check = floor < _LOG_FLOOR and n_children > 0
        if _walk(
            mem, temporary, s, nd, n_fixed, n_children, n_targets, 0, end, arithmetic, check
        ):
            return UNDERFLOW
        status = _answers(
            temporary, place, targets, targets.in_clique, first_target, last_target, out, arithmetic
        )
        if status != OK:
            return status
        place = 0
        for i in range(n_children):
            j = tree.children[first_child + i]
            size = tree.separator_size[j]
            if targets.separator_offsets[j] < targets.separator_offsets[j + 1]:
                _multiply(mem, tree.up[j], temporary, place, size, tree.down[j], arithmetic)
                status = _separator_marginals(
                    tree, s, mem, tree.down[j], temporary, room * end, j, targets, out, arithmetic
                )
                if status != OK:
                    return status
            top, message_floors[j] = _normalise(
                temporary, place, size, mem, tree.down[j], arithmetic
            )
            if top == -np.inf:
                return IMPOSSIBLE
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
def _separator_marginals(
    tree: Any,
    s: Any,
    mem: Any,
    belief: int,
    temporary: Any,
    spare: int,
    c: int,
    targets: Any,
    out: Any,
    arithmetic: int,
) -> int:
    """Marginals from the belief, at mem[belief], of the separator above c."""
    begin, end = targets.separator_offsets[c], targets.separator_offsets[c + 1]
    low = tree.clique_offsets[c]
    nd = _axes(tree, low, tree.clique_offsets[c + 1] - tree.residual[c], s.dims)
    _separator(s, 0, belief, tree, low, nd, c)
    place = spare
    for i in range(begin, end):
        t = targets.in_separator[i]
        _target(s, 1 + i - begin, place, tree, low, nd, targets, t)
        place += targets.sizes[t]
    _walk(mem, temporary, s, nd, 1, 0, end - begin, spare, place, arithmetic, False)
    return _answers(temporary, spare, targets, targets.in_separator, begin, end, out, arithmetic)


@njit(cache=True, error_model="numpy")
def read_clique(
    tree: Any,
    s: Any,
    mem: Any,
    temporary: Any,
    c: int,
    targets: Any,
    out: Any,
    arithmetic: int,
    hugin: bool,
) -> int:
    """All targets from the belief of one clique, after both passes with every message kept."""
    low = tree.clique_offsets[c]
    nd = _axes(tree, low, tree.clique_offsets[c + 1], s.dims)
    if hugin:
        _operand(s, 0, tree.tables[c], tree, low, nd, tree.clique_vars, low, low + nd)
        k = 1
    else:
        k = _factors(s, 0, tree, low, nd, c)
        if tree.parent[c] >= 0:
            _separator(s, k, tree.down[c], tree, low, nd, c)
            k += 1
        for i in range(tree.child_offsets[c], tree.child_offsets[c + 1]):
            j = tree.children[i]
            _separator(s, k, tree.up[j], tree, low, nd, j)
            k += 1
    end = 0
    n_targets = len(targets.sizes)
    for t in range(n_targets):
        _target(s, k + t, end, tree, low, nd, targets, t)
        end += targets.sizes[t]
    _walk(mem, temporary, s, nd, k, 0, n_targets, 0, end, arithmetic, False)
    return _answers(temporary, 0, targets, np.arange(n_targets), 0, n_targets, out, arithmetic)


# ---------------------------------------------------------------------- Hugin


@njit(cache=True, error_model="numpy")
def hugin_collect(
    tree: Any,
    s: Any,
    mem: Any,
    temporary: Any,
    scales: Any,
    start: int,
    stop: int,
    arithmetic: int,
) -> int:
    """Absorb the children's separators into each clique's table and sum it onto its own."""
    for c in range(start, stop):
        low = tree.clique_offsets[c]
        nd = _axes(tree, low, tree.clique_offsets[c + 1], s.dims)
        k = _factors(s, 0, tree, low, nd, c)
        for i in range(tree.child_offsets[c], tree.child_offsets[c + 1]):
            j = tree.children[i]
            _separator(s, k, tree.up[j], tree, low, nd, j)
            k += 1
        if _store(mem, s, nd, k, tree.tables[c], arithmetic, True):
            return UNDERFLOW
        _operand(s, 0, tree.tables[c], tree, low, nd, tree.clique_vars, low, low + nd)
        _separator(s, 1, 0, tree, low, nd, c)
        size = tree.separator_size[c]
        _walk(mem, temporary, s, nd, 1, 0, 1, 0, size, arithmetic, False)
        scales[c], _ = _normalise(temporary, 0, size, mem, tree.up[c], arithmetic)
        if scales[c] == -np.inf:
            return IMPOSSIBLE
    return OK


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


@njit(cache=True, error_model="numpy")
def hugin_distribute(
    tree: Any,
    s: Any,
    mem: Any,
    temporary: Any,
    targets: Any,
    out: Any,
    start: int,
    stop: int,
    arithmetic: int,
) -> int:
    """Sum each clique's table onto its children's separators and pass the quotients down."""
    room = 2 if arithmetic == LOG_SUM else 1
    for c in range(start, stop, -1):
        first_child, last_child = tree.child_offsets[c], tree.child_offsets[c + 1]
        n_children = last_child - first_child
        first_target, last_target = targets.clique_offsets[c], targets.clique_offsets[c + 1]
        low = tree.clique_offsets[c]
        nd = _axes(tree, low, tree.clique_offsets[c + 1], s.dims)
        _operand(s, 0, tree.tables[c], tree, low, nd, tree.clique_vars, low, low + nd)
        k = 1
        end = 0
        for i in range(n_children):
            j = tree.children[first_child + i]
            _separator(s, k, end, tree, low, nd, j)
            end += tree.separator_size[j]
            k += 1
        place = end
        for i in range(first_target, last_target):
            _target(s, k, end, tree, low, nd, targets, targets.in_clique[i])
            end += targets.sizes[targets.in_clique[i]]
            k += 1
        _walk(mem, temporary, s, nd, 1, 0, k - 1, 0, end, arithmetic, False)
        status = _answers(
            temporary, place, targets, targets.in_clique, first_target, last_target, out, arithmetic
        )
        if status != OK:
            return status
        place = 0
        for i in range(n_children):
            j = tree.children[first_child + i]
            size = tree.separator_size[j]
            if _divide(temporary, place, mem, tree.up[j], size, arithmetic):
                return UNDERFLOW
            place += size
            below = tree.clique_offsets[j]
            nd = _axes(tree, below, tree.clique_offsets[j + 1], s.dims)
            table = tree.tables[j]
            _operand(s, 0, table, tree, below, nd, tree.clique_vars, below, below + nd)
            _separator(s, 1, tree.up[j], tree, below, nd, j)
            if _store(mem, s, nd, 2, table, arithmetic, True):
                return UNDERFLOW
            if targets.separator_offsets[j] < targets.separator_offsets[j + 1]:
                first = np.uint64(place - size)
                for i in range(np.uint64(size)):  # the quotient has done its work
                    mem[np.uint64(tree.up[j]) + i] = temporary[first + i]
                status = _separator_marginals(
                    tree, s, mem, tree.up[j], temporary, room * end, j, targets, out, arithmetic
                )
                if status != OK:
                    return status
    return OK


# ---------------------------------------------------------------------- samples and best states


@njit(cache=True, error_model="numpy")
def _weights(
    tree: Any,
    s: Any,
    mem: Any,
    low: int,
    nd: int,
    ns: int,
    k: int,
    states: Any,
    column: int,
    spread: Any,
    size: int,
    logs: bool,
    weights: Any,
) -> None:
    """Product of the k operands for every residual state, given the separator's states."""
    for j in range(k):
        s.places[j] = s.bases[j]
        for a in range(ns):
            s.places[j] += s.steps[j * nd + a] * states[tree.clique_vars[low + a], column]
    if size <= SPREAD:
        for r in range(size):
            w = 0.0 if logs else 1.0
            for j in range(k):
                y = mem[s.places[j] + spread[j * size + r]]
                w = w + y if logs else w * y
            weights[r] = w
        return
    steps = np.empty((k + 1) * (nd - ns), np.int64)
    bases = np.empty(k + 1, np.int64)
    dims = s.dims[ns:nd].copy()
    bases[:k] = s.places[:k]
    bases[k] = 0
    stride = 1
    for a in range(nd - ns - 1, -1, -1):
        for j in range(k):
            steps[j * (nd - ns) + a] = s.steps[j * nd + ns + a]
        steps[k * (nd - ns) + a] = stride
        stride *= dims[a]
    contract(
        mem, weights, s.tile, dims, nd - ns, steps, bases, s.runs, s.strides, s.lengths, s.places,
        s.count, k, 0, 1, True, MAX if logs else SUM, False, 0,
    )  # fmt: skip


@njit(cache=True, error_model="numpy")
def _inputs_from_below(tree: Any, s: Any, c: int, spread: Any, hugin: bool) -> Any:
    """Operands of clique c whose product, given the separator, is the conditional weight of the
    rest: (axes, separator axes, operands, residual states).
    """
    low = tree.clique_offsets[c]
    nd = _axes(tree, low, tree.clique_offsets[c + 1], s.dims)
    ns = nd - tree.residual[c]
    if hugin:
        _operand(s, 0, tree.tables[c], tree, low, nd, tree.clique_vars, low, low + nd)
        k = 1
    else:
        k = _factors(s, 0, tree, low, nd, c)
        for i in range(tree.child_offsets[c], tree.child_offsets[c + 1]):
            j = tree.children[i]
            _separator(s, k, tree.up[j], tree, low, nd, j)
            k += 1
    size = 1
    for a in range(ns, nd):
        size *= s.dims[a]
    if size <= SPREAD:
        for j in range(k):
            for r in range(size):
                rest, offset = r, 0
                for a in range(nd - 1, ns - 1, -1):
                    offset += s.steps[j * nd + a] * (rest % s.dims[a])
                    rest //= s.dims[a]
                spread[j * size + r] = offset
    return nd, ns, k, size


@njit(cache=True, error_model="numpy")
def _write_state(tree: Any, s: Any, low: int, nd: int, ns: int, r: int, states: Any, i: int) -> None:
    for a in range(nd - 1, ns - 1, -1):
        states[tree.clique_vars[low + a], i] = r % s.dims[a]
        r //= s.dims[a]


@njit(cache=True, error_model="numpy")
def draw(
    tree: Any,
    s: Any,
    mem: Any,
    c: int,
    states: Any,
    uniforms: Any,
    spread: Any,
    weights: Any,
    logs: bool,
    hugin: bool,
) -> None:
    """Draw the variables that clique c sums out, for all samples, given its separator's states.

    `states` has a row for each rank and a column for each sample. Samples that share the states of
    the separator share the weights.
    """
    low = tree.clique_offsets[c]
    nd, ns, k, size = _inputs_from_below(tree, s, c, spread, hugin)
    n = len(uniforms)
    key = np.zeros(n, np.int64)
    for a in range(ns):
        for i in range(n):
            key[i] = key[i] * s.dims[a] + states[tree.clique_vars[low + a], i]
    order = np.argsort(key) if ns else np.arange(n)
    previous = np.int64(-1)
    for place in range(n):
        i = order[place]
        if key[i] != previous:
            previous = key[i]
            _weights(tree, s, mem, low, nd, ns, k, states, i, spread, size, logs, weights)
            top = weights[:size].max() if logs else 0.0
            total = 0.0
            for r in range(size):
                total += np.exp(weights[r] - top) if logs else weights[r]
                weights[r] = total
        wanted = uniforms[i] * weights[size - 1]
        first, end = 0, size - 1
        while first < end:  # the first state whose cumulative weight is above what is wanted
            middle = (first + end) >> 1
            if weights[middle] > wanted:
                end = middle
            else:
                first = middle + 1
        while first > 0 and weights[first] == weights[first - 1]:  # rounding: no state of weight 0
            first -= 1
        _write_state(tree, s, low, nd, ns, first, states, i)


@njit(cache=True, error_model="numpy")
def decode(
    tree: Any, s: Any, mem: Any, states: Any, spread: Any, weights: Any, hugin: bool
) -> None:
    """The best state, from the roots down, after a LOG_MAX collect; the first of equals (HOJ-I5)."""
    for c in range(len(tree.parent) - 1, -1, -1):
        low = tree.clique_offsets[c]
        nd, ns, k, size = _inputs_from_below(tree, s, c, spread, hugin)
        _weights(tree, s, mem, low, nd, ns, k, states, 0, spread, size, True, weights)
        best = 0
        for r in range(1, size):
            if weights[r] > weights[best]:
                best = r
        _write_state(tree, s, low, nd, ns, best, states, 0)
