"""Constraint propagation and search in tables with zeros.

`alive` marks the states of each variable that are still allowed (flat, by `state_offsets`),
`counts` how many there are. Every removal goes on the trail, so that it can be undone.
`numbers` holds [length of the trail, head of the queue, length of the queue].
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import U4, Array, Ints
from kikuchi.core.compiled import njit
from kikuchi.core.copying import copy_into

if TYPE_CHECKING:
    from kikuchi.graphs.graph_arrays import GraphArrays

FOUND = 1
IMPOSSIBLE = 0
GAVE_UP = -1


class PropagationWorkspace(NamedTuple):
    """Arrays that the search changes as it goes."""

    hard: NDArray[np.uint8]
    slot_variables: U4
    alive: NDArray[np.uint8]
    counts: Ints
    trail: Ints
    queue: Ints
    queued: NDArray[np.uint8]
    support: NDArray[np.uint8]
    digits: Ints
    numbers: Ints


@njit(cache=True, error_model="numpy")
def propagate_all(g: GraphArrays, w: PropagationWorkspace) -> bool:
    """Remove every state without support in some factor; False if a variable has none left."""
    for a in range(len(w.hard)):
        _enqueue(w, a)
    return bool(_propagate(g, w))


@njit(cache=True, error_model="numpy")
def search(
    g: GraphArrays, w: PropagationWorkspace, order: Ints, preference: Array, max_backtracks: int
) -> int:
    """Fix variables in `order`, each to its preferred live state, with backtracking."""
    n = len(order)
    variables = np.empty(n, np.int64)
    slots = np.empty(n, np.int64)
    marks = np.empty(n, np.int64)
    places = np.empty(n, np.int64)
    depth = 0
    backtracks = 0
    place = 0
    while place < n:
        v = order[place]
        if w.counts[v] == 1:
            place += 1
            continue
        slot = _preferred(g, w, v, preference)
        variables[depth], slots[depth] = v, slot
        marks[depth], places[depth] = w.numbers[0], place
        depth += 1
        fine = _fix(g, w, v, slot)
        while not fine:
            if depth == 0:
                return IMPOSSIBLE
            depth -= 1
            v, place = variables[depth], places[depth]
            _undo(w, marks[depth])
            backtracks += 1
            if backtracks > max_backtracks:
                return GAVE_UP
            _kill(g, w, slots[depth])
            fine = w.counts[v] > 0 and _propagate(g, w)
    return FOUND


@njit(cache=True, error_model="numpy")
def thin(g: GraphArrays, w: PropagationWorkspace, q: Array) -> bool:
    """Shrink the live states until no factor has a forbidden entry among them.

    Of each forbidden entry the state of least mass `q` goes (only from variables that keep
    another). Live states only become fewer, so one pass over the factors is enough.
    """
    for a in range(len(w.hard)):
        if w.hard[a]:
            _clear(w.digits)
            for entry in range(g.table_offsets[a], g.table_offsets[a + 1]):
                if g.log_tables[entry] == -np.inf and _entry_alive(g, w, a):
                    slot = _weakest(g, w, a, q)
                    if slot < 0:
                        return False
                    _kill(g, w, slot)
                    if not _propagate_aside(g, w):
                        return False
                _advance(g, w, a)
    return True


@njit(cache=True, error_model="numpy")
def breadth_first(g: GraphArrays, hard: NDArray[np.uint8], roots: Ints) -> Ints:
    """Variables in breadth-first order through the hard factors, components by their root."""
    n = len(roots)
    order = np.empty(n, np.int64)
    seen = np.zeros(n, np.uint8)
    factor_seen = np.zeros(len(hard), np.uint8)
    head, tail = 0, 0
    for root in roots:
        if not seen[root]:
            seen[root] = 1
            order[tail] = root
            tail += 1
        while head < tail:
            v = order[head]
            head += 1
            for k in range(g.variable_offsets[v], g.variable_offsets[v + 1]):
                a = g.edge_factors[g.variable_edges[k]]
                if hard[a] and not factor_seen[a]:
                    factor_seen[a] = 1
                    for e in range(g.scope_offsets[a], g.scope_offsets[a + 1]):
                        u = g.scopes[e]
                        if not seen[u]:
                            seen[u] = 1
                            order[tail] = u
                            tail += 1
    return order


@njit(cache=True, error_model="numpy")
def _preferred(g: GraphArrays, w: PropagationWorkspace, v: int, preference: Array) -> int:
    best = -1
    for slot in range(g.state_offsets[v], g.state_offsets[v + 1]):
        if w.alive[slot] and (best < 0 or preference[slot] > preference[best]):
            best = slot
    return best


@njit(cache=True, error_model="numpy")
def _fix(g: GraphArrays, w: PropagationWorkspace, v: int, chosen: int) -> bool:
    for slot in range(g.state_offsets[v], g.state_offsets[v + 1]):
        if slot != chosen and w.alive[slot]:
            _kill(g, w, slot)
    return bool(_propagate(g, w))


@njit(cache=True, error_model="numpy")
def _kill(g: GraphArrays, w: PropagationWorkspace, slot: int) -> None:
    v = w.slot_variables[slot]
    w.alive[slot] = 0
    w.counts[v] -= 1
    w.trail[w.numbers[0]] = slot
    w.numbers[0] += 1
    for k in range(g.variable_offsets[v], g.variable_offsets[v + 1]):
        _enqueue(w, g.edge_factors[g.variable_edges[k]])


@njit(cache=True, error_model="numpy")
def _undo(w: PropagationWorkspace, mark: int) -> None:
    while w.numbers[0] > mark:
        w.numbers[0] -= 1
        slot = w.trail[w.numbers[0]]
        w.alive[slot] = 1
        w.counts[w.slot_variables[slot]] += 1


@njit(cache=True, error_model="numpy")
def _enqueue(w: PropagationWorkspace, a: int) -> None:
    if w.hard[a] and not w.queued[a]:
        w.queued[a] = 1
        w.queue[(w.numbers[1] + w.numbers[2]) % len(w.queue)] = a
        w.numbers[2] += 1


@njit(cache=True, error_model="numpy")
def _dequeue(w: PropagationWorkspace) -> int:
    a = int(w.queue[w.numbers[1]])
    w.numbers[1] = (w.numbers[1] + 1) % len(w.queue)
    w.numbers[2] -= 1
    w.queued[a] = 0
    return a


@njit(cache=True, error_model="numpy")
def _propagate(g: GraphArrays, w: PropagationWorkspace) -> bool:
    fine = True
    while w.numbers[2] > 0:
        a = _dequeue(w)
        if fine:
            w.queued[a] = 1  # its own removals leave its other supports as they are
            fine = _revise(g, w, a)
            w.queued[a] = 0
    return fine


@njit(cache=True, error_model="numpy")
def _propagate_aside(g: GraphArrays, w: PropagationWorkspace) -> bool:
    """Propagate while the digits of another walk are in use."""
    kept = w.digits.copy()
    fine = bool(_propagate(g, w))
    copy_into(w.digits, 0, kept, 0, len(kept))
    return fine


@njit(cache=True, error_model="numpy")
def _revise(g: GraphArrays, w: PropagationWorkspace, a: int) -> bool:
    """Remove the states that no live, allowed entry of factor a contains."""
    lo, hi = g.scope_offsets[a], g.scope_offsets[a + 1]
    width = np.int64(0)
    for e in range(lo, hi):
        width += np.int64(g.cards[g.scopes[e]])
    w.support[:width] = 0
    _clear(w.digits)
    for entry in range(g.table_offsets[a], g.table_offsets[a + 1]):
        if g.log_tables[entry] > -np.inf and _entry_alive(g, w, a):
            start = np.int64(0)
            for e in range(lo, hi):
                w.support[start + w.digits[e - lo]] = 1
                start += np.int64(g.cards[g.scopes[e]])
        _advance(g, w, a)
    start = np.int64(0)
    for e in range(lo, hi):
        v = g.scopes[e]
        for x in range(np.int64(g.cards[v])):
            slot = g.state_offsets[v] + x
            if w.alive[slot] and not w.support[start + x]:
                _kill(g, w, slot)
        if w.counts[v] == 0:
            return False
        start += np.int64(g.cards[v])
    return True


@njit(cache=True, error_model="numpy")
def _entry_alive(g: GraphArrays, w: PropagationWorkspace, a: int) -> bool:
    lo = g.scope_offsets[a]
    for e in range(lo, g.scope_offsets[a + 1]):
        if not w.alive[g.state_offsets[g.scopes[e]] + w.digits[e - lo]]:
            return False
    return True


@njit(cache=True, error_model="numpy")
def _weakest(g: GraphArrays, w: PropagationWorkspace, a: int, q: Array) -> int:
    """Of the current entry of factor a, the state of least mass that its variable can spare."""
    lo = g.scope_offsets[a]
    best = -1
    for e in range(lo, g.scope_offsets[a + 1]):
        v = g.scopes[e]
        slot = g.state_offsets[v] + w.digits[e - lo]
        if w.counts[v] > 1 and (best < 0 or q[slot] < q[best]):
            best = slot
    return best


@njit(cache=True, error_model="numpy")
def _clear(digits: Ints) -> None:
    digits[:] = 0


@njit(cache=True, error_model="numpy")
def _advance(g: GraphArrays, w: PropagationWorkspace, a: int) -> None:
    """Move the digits to the next entry of factor a, the last variable fastest."""
    lo = g.scope_offsets[a]
    e = g.scope_offsets[a + 1] - 1
    while e >= lo:
        w.digits[e - lo] += 1
        if w.digits[e - lo] < np.int64(g.cards[g.scopes[e]]):
            return
        w.digits[e - lo] = 0
        e -= 1
