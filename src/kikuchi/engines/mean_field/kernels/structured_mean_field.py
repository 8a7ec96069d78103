"""Exact coordinate ascent of a distribution on a junction forest, one clique at a time.

The trial distribution is kept as one conditional table a clique, q(clique | separator), directed
towards the clique that is being updated. With the conditionals of all others held, the bound is
largest at

    q(x_C) proportional to exp G(x_C),   G = theta_C + sum_D e_D(separator) + sum_f E[f | x_C],

where e_D(s) is the expected energy plus the entropy of the part of the tree behind neighbour D
given its separator, and f runs over the factors whose variables meet only in C ("split" factors).
What a split factor needs from behind a neighbour is the distribution of its variables there given
the separator: the pending tables. No division, no messages of mass: only conditionals and
expectations. An entry of probability zero is never looked at, so that 0 * log 0 = 0; -inf may
appear, NaN cannot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.compiled import njit

if TYPE_CHECKING:
    from kikuchi.engines.mean_field.structured_layout import (
        FactorParts,
        Route,
        Shape,
        StructuredForest,
        StructuredWorkspace,
        Tours,
    )


KEEP, UPDATE = 0, 1
ENTER, LEAVE = 1, 2


@njit(cache=True, error_model="numpy")
def _own_offset(
    x: int, first: int, last: int, strides: Ints, cards: Ints, steps: Ints, skip: int
) -> int:
    """Where entry x of a clique points in another table, by the variables they share."""
    place = 0
    for o in range(first, last):
        place += ((x // strides[o]) % cards[o]) * steps[skip + o]
    return place


@njit(cache=True, error_model="numpy")
def _advance(counter: Ints, sizes: Ints, low: int, high: int, skip: int) -> bool:
    """The next combination of branch states; False after the last. `skip` is not counted."""
    b = high - 1
    while b >= low:
        if b != skip:
            counter[b - low] += 1
            if counter[b - low] < sizes[b]:
                return True
            counter[b - low] = 0
        b -= 1
    return False


@njit(cache=True, error_model="numpy")
def _expect(s: Shape, w: StructuredWorkspace, clique: int, site: int, out: Array) -> None:
    """Add E[split factor | x] to `out` for every entry x of the clique."""
    size = s.size[clique]
    first, last = s.site_owns[site], s.site_owns[site + 1]
    low, high = s.site_branches[site], s.site_branches[site + 1]
    strides, cards, steps = s.own_strides, s.own_cards, s.own_steps
    incoming, below, places, shifts = s.branch_in, s.branch_below, s.branch_places, s.shifts
    separators, maps = s.branch_map, s.maps
    pending, tables = w.pending, w.tables
    start = s.site_table[site]
    n, at, shift, sep = below[low], incoming[low], places[low], separators[low]
    if high - low == 1:
        for x in range(size):
            here = start + _own_offset(x, first, last, strides, cards, steps, 0)
            row = at + n * maps[sep + x]
            total = 0.0
            for y in range(n):
                p = pending[row + y]
                if p > 0.0:
                    total += p * tables[here + shifts[shift + y]]
            out[x] += total
    elif high - low == 2:
        n2, at2, shift2 = below[low + 1], incoming[low + 1], places[low + 1]
        sep2 = separators[low + 1]
        for x in range(size):
            here = start + _own_offset(x, first, last, strides, cards, steps, 0)
            row, row2 = at + n * maps[sep + x], at2 + n2 * maps[sep2 + x]
            total = 0.0
            for y in range(n):
                p = pending[row + y]
                if p > 0.0:
                    place = here + shifts[shift + y]
                    inner = 0.0
                    for z in range(n2):
                        p2 = pending[row2 + z]
                        if p2 > 0.0:
                            inner += p2 * tables[place + shifts[shift2 + z]]
                    total += p * inner
            out[x] += total
    else:
        _expect_many(s, w, clique, site, out)


@njit(cache=True, error_model="numpy")
def _expect_many(s: Shape, w: StructuredWorkspace, clique: int, site: int, out: Array) -> None:
    """The same for three branches or more."""
    first, last = s.site_owns[site], s.site_owns[site + 1]
    low, high = s.site_branches[site], s.site_branches[site + 1]
    strides, cards, steps = s.own_strides, s.own_cards, s.own_steps
    incoming, below, places, shifts = s.branch_in, s.branch_below, s.branch_places, s.shifts
    separators, maps = s.branch_map, s.maps
    pending, tables, counter = w.pending, w.tables, w.counter
    start = s.site_table[site]
    for x in range(s.size[clique]):
        here = start + _own_offset(x, first, last, strides, cards, steps, 0)
        counter[: high - low] = 0
        total = 0.0
        more = True
        while more:
            p = 1.0
            place = here
            for b in range(low, high):
                k = counter[b - low]
                p *= pending[incoming[b] + below[b] * maps[separators[b] + x] + k]
                place += shifts[places[b] + k]
            if p > 0.0:
                total += p * tables[place]
            more = _advance(counter, below, low, high, -1)
        out[x] += total


@njit(cache=True, error_model="numpy")
def _send(s: Shape, w: StructuredWorkspace, clique: int, site: int, out: int) -> None:
    """The pending table over branch `out`: the factor's variables on this side given the separator.

    `w.cond` must hold q(clique | separator of that branch).
    """
    size, start = s.size[clique], s.table[clique]
    first, last = s.site_owns[site], s.site_owns[site + 1]
    low, high = s.site_branches[site], s.site_branches[site + 1]
    strides, cards, steps = s.own_strides, s.own_cards, s.out_steps
    incoming, below, shifts, places = s.branch_in, s.branch_below, s.shifts, s.out_places
    separators, maps, pending, cond = s.branch_map, s.maps, w.pending, w.cond
    skip = s.out_own[out] - first
    target, n, sep = s.branch_out[out], s.branch_above[out], separators[out]
    for k in range(target, target + n * s.separator_size[s.branch_edge[out]]):
        pending[k] = 0.0
    source = s.out_from[out] - low
    if high - low == 1:
        for x in range(size):
            here = _own_offset(x, first, last, strides, cards, steps, skip)
            pending[target + n * maps[sep + x] + here] += cond[start + x]
    elif high - low == 2:
        b = low + high - 1 - out
        rows, at, from_sep, shift = below[b], incoming[b], separators[b], places[source + b]
        for x in range(size):
            p = cond[start + x]
            if p > 0.0:
                here = target + n * maps[sep + x]
                here += _own_offset(x, first, last, strides, cards, steps, skip)
                row = at + rows * maps[from_sep + x]
                for y in range(rows):
                    pending[here + shifts[shift + y]] += p * pending[row + y]
    else:
        counter = w.counter
        for x in range(size):
            weight = cond[start + x]
            if weight > 0.0:
                base = target + n * maps[sep + x]
                base += _own_offset(x, first, last, strides, cards, steps, skip)
                counter[: high - low] = 0
                more = True
                while more:
                    p = weight
                    place = base
                    for b in range(low, high):
                        if b != out:
                            k = counter[b - low]
                            p *= pending[incoming[b] + below[b] * maps[separators[b] + x] + k]
                            place += shifts[places[source + b] + k]
                    pending[place] += p
                    more = _advance(counter, below, low, high, out)


@njit(cache=True, error_model="numpy")
def _read_split(s: Shape, w: StructuredWorkspace, clique: int, site: int, at: int) -> None:
    """Add the joint of all variables of a split factor to the marginals from `at` on."""
    start = s.table[clique]
    first, last = s.site_owns[site], s.site_owns[site + 1]
    low, high = s.site_branches[site], s.site_branches[site + 1]
    counter, pending = w.counter, w.pending
    for x in range(s.size[clique]):
        weight = w.belief[start + x]
        if weight > 0.0:
            here = _own_offset(x, first, last, s.own_strides, s.own_cards, s.own_steps, 0)
            counter[: high - low] = 0
            more = True
            while more:
                p = weight
                place = at + here
                for b in range(low, high):
                    k = counter[b - low]
                    row = s.branch_in[b] + s.branch_below[b] * s.maps[s.branch_map[b] + x]
                    p *= pending[row + k]
                    place += s.shifts[s.branch_places[b] + k]
                w.marginals[place] += p
                more = _advance(counter, s.branch_below, low, high, -1)


@njit(cache=True, error_model="numpy")
def _gather(s: Shape, w: StructuredWorkspace, clique: int, towards: int) -> None:
    """What the clique knows without neighbour `towards` (-1: with all), in two parts.

    `resolved` is final for the side of the clique; `open` holds the split factors that also have
    variables behind `towards`.
    """
    size = s.size[clique]
    resolved, unresolved, theta, maps = w.resolved, w.unresolved, w.theta, s.maps
    start = s.table[clique]
    for x in range(size):
        resolved[x] = theta[start + x]
        unresolved[x] = 0.0
    parent = s.parent[clique]
    if parent >= 0 and parent != towards:
        at, to, message = s.separator[clique], s.own_map[clique], w.down
        for x in range(size):
            resolved[x] += message[at + maps[to + x]]
    for k in range(s.child_offsets[clique], s.child_offsets[clique + 1]):
        child = s.children[k]
        if child != towards:
            at, to, message = s.separator[child], s.parent_map[child], w.up
            for x in range(size):
                resolved[x] += message[at + maps[to + x]]
    for site in range(s.sites[clique], s.sites[clique + 1]):
        if _branch_to(s, site, clique, towards) < 0:
            _expect(s, w, clique, site, resolved)
        else:
            _expect(s, w, clique, site, unresolved)


@njit(cache=True, error_model="numpy")
def _branch_to(s: Shape, site: int, clique: int, towards: int) -> int:
    """The branch of a split factor that lies behind a neighbour, -1 if none does."""
    if towards >= 0:
        for b in range(s.site_branches[site], s.site_branches[site + 1]):
            neighbour = s.branch_edge[b] if s.branch_up[b] else s.parent[clique]
            if neighbour == towards:
                return int(b)
    return -1


@njit(cache=True, error_model="numpy")
def move(s: Shape, w: StructuredWorkspace, clique: int, towards: int, mode: int) -> None:
    """Update q at `clique` (or with mode KEEP leave it) and send what neighbour `towards` needs."""
    _gather(s, w, clique, towards)
    size, start = s.size[clique], s.table[clique]
    down = s.parent[clique] != towards
    edge = towards if down else clique
    at, n = s.separator[edge], s.separator_size[edge]
    sep = s.parent_map[edge] if down else s.own_map[edge]
    message = w.down if down else w.up
    top, total, maps = w.top, w.total, s.maps
    cond, resolved, unresolved = w.cond, w.resolved, w.unresolved
    if mode == UPDATE:
        for r in range(n):
            top[r] = -np.inf
            total[r] = 0.0
        for x in range(size):
            r = maps[sep + x]
            top[r] = max(top[r], resolved[x] + unresolved[x])
        for x in range(size):
            r = maps[sep + x]
            g = resolved[x] + unresolved[x]
            p = 0.0 if g == -np.inf else np.exp(g - top[r])
            cond[start + x] = p
            total[r] += p
        for r in range(n):
            message[at + r] = top[r] + np.log(total[r]) if total[r] > 0.0 else -np.inf
        for x in range(size):
            p = cond[start + x]
            if p > 0.0:
                r = maps[sep + x]
                p /= total[r]
                cond[start + x] = p
                if p > 0.0:
                    message[at + r] -= p * unresolved[x]
    else:
        for r in range(n):
            message[at + r] = 0.0
        for x in range(size):
            p = cond[start + x]
            if p > 0.0:
                message[at + maps[sep + x]] += p * (resolved[x] - np.log(p))
    for site in range(s.sites[clique], s.sites[clique + 1]):
        b = _branch_to(s, site, clique, towards)
        if b >= 0:
            _send(s, w, clique, site, b)


@njit(cache=True, error_model="numpy")
def _finish_tree(s: Shape, w: StructuredWorkspace, first: int, last: int) -> float:
    """Update the root (clique last - 1) of one tree, then clique marginals from the root down.

    Answers the entropy plus the expectation of the factors that lie inside one clique.
    """
    root = last - 1
    _gather(s, w, root, -1)
    start, size = s.table[root], s.size[root]
    g, belief, base = w.resolved, w.belief, w.base
    top = -np.inf
    for x in range(size):
        top = max(top, g[x])
    if top == -np.inf:
        for x in range(start, start + size):
            belief[x] = 1.0 / size
        return -np.inf
    total = 0.0
    for x in range(size):
        belief[start + x] = 0.0 if g[x] == -np.inf else np.exp(g[x] - top)
        total += belief[start + x]
    value = 0.0
    for x in range(start, start + size):
        belief[x] /= total
        if belief[x] > 0.0:
            value += belief[x] * (base[x] - np.log(belief[x]))
    for clique in range(root - 1, first - 1, -1):
        value += _marginal(s, w, clique)
    return value


@njit(cache=True, error_model="numpy")
def _marginal(s: Shape, w: StructuredWorkspace, clique: int) -> float:
    parent = s.parent[clique]
    above, n = w.top, s.separator_size[clique]
    for r in range(n):
        above[r] = 0.0
    at, to = s.table[parent], s.parent_map[clique]
    maps, belief, cond, base = s.maps, w.belief, w.cond, w.base
    for x in range(s.size[parent]):
        above[maps[to + x]] += belief[at + x]
    start, step = s.table[clique], s.residual_size[clique]
    value = 0.0
    for x in range(s.size[clique]):
        c = cond[start + x]
        p = above[x // step] * c
        belief[start + x] = p
        if p > 0.0:
            value += p * (base[start + x] - np.log(c))
    return value


# ---------------------------------------------------------------------- parts of factors


@njit(cache=True, error_model="numpy")
def _read_parts(s: Shape, w: StructuredWorkspace, q: FactorParts, listed: Ints) -> None:
    """Marginals of the listed parts of factors that no clique holds whole."""
    for part in listed:
        at, n = q.table[part], q.size[part]
        for k in range(at, at + n):
            w.marginals[k] = 0.0
        clique, site = q.clique[part], q.site[part]
        start = s.table[clique]
        if site >= 0:
            _read_split(s, w, clique, site, at)
        else:
            low, high = q.owns[part], q.owns[part + 1]
            for x in range(s.size[clique]):
                k = _own_offset(x, low, high, q.own_strides, q.own_cards, q.own_steps, 0)
                w.marginals[at + k] += w.belief[start + x]


@njit(cache=True, error_model="numpy")
def _average(
    w: StructuredWorkspace, q: FactorParts, log_tables: Array, factor: int, without: int, here: int
) -> float:
    """Expectation of a factor over all its parts but one."""
    low, high = q.factor_parts[factor], q.factor_parts[factor + 1]
    counter = w.counter
    for k in range(high - low):
        counter[k] = 0
    total = 0.0
    while True:
        p = 1.0
        place = here
        for part in range(low, high):
            if part != without:
                k = counter[part - low]
                p *= w.marginals[q.table[part] + k]
                place += q.places[q.table[part] + k]
        if p > 0.0:
            total += p * log_tables[place]
        part = high - 1
        while part >= low:
            if part != without:
                counter[part - low] += 1
                if counter[part - low] < q.size[part]:
                    break
                counter[part - low] = 0
            part -= 1
        if part < low:
            return total


@njit(cache=True, error_model="numpy")
def parts_energy(w: StructuredWorkspace, q: FactorParts, log_tables: Array) -> float:
    """Expectation of all factors that no clique holds whole."""
    total = 0.0
    for factor in range(len(q.factor_table)):
        total += _average(w, q, log_tables, factor, -1, q.factor_table[factor])
    return total


@njit(cache=True, error_model="numpy")
def _enter(
    s: Shape, w: StructuredWorkspace, q: FactorParts, t: Tours, log_tables: Array, tree: int
) -> None:
    """Begin with a tree: its tables given what the other trees believe now."""
    first, last = t.trees[tree], t.trees[tree + 1]
    for x in range(s.table[first], s.table[last - 1] + s.size[last - 1]):
        w.theta[x] = w.base[x]
    for part in t.parts[t.part_offsets[tree] : t.part_offsets[tree + 1]]:
        factor = q.factor[part]
        if q.factor_parts[factor + 1] - q.factor_parts[factor] == 1:
            continue  # a split factor of one tree: its table never changes
        at = q.table[part]
        start = q.factor_table[factor]
        for y in range(q.size[part]):
            w.tables[at + y] = _average(w, q, log_tables, factor, part, start + q.places[at + y])
        if q.site[part] < 0:
            clique = q.clique[part]
            low, high = q.owns[part], q.owns[part + 1]
            for x in range(s.size[clique]):
                k = _own_offset(x, low, high, q.own_strides, q.own_cards, q.own_steps, 0)
                w.theta[s.table[clique] + x] += w.tables[at + k]


@njit(cache=True, error_model="numpy")
def _leave(
    s: Shape, w: StructuredWorkspace, q: FactorParts, t: Tours, tree: int, values: Array
) -> None:
    """End with a tree: its root updated, its marginals read. Only here beliefs change."""
    values[tree] = _finish_tree(s, w, t.trees[tree], t.trees[tree + 1])
    _read_parts(s, w, q, t.parts[t.part_offsets[tree] : t.part_offsets[tree + 1]])


@njit(cache=True, error_model="numpy")
def sweep(
    forest: StructuredForest,
    w: StructuredWorkspace,
    log_tables: Array,
    route: Route,
    values: Array,
    trees: tuple[int, int],
    places: tuple[int, int],
    stages: int,
) -> None:
    """Update the trees of a range, each by those of its moves that are among `places` of the path.

    A move is a clique and a neighbour; `stages` says whether trees are entered before and left
    afterwards. With updates the bound never falls.
    """
    s, q, t = forest
    path, path_offsets, mode = route
    for tree in range(trees[0], trees[1]):
        if stages & ENTER:
            _enter(s, w, q, t, log_tables, tree)
        first, last = max(places[0], path_offsets[tree]), min(places[1], path_offsets[tree + 1])
        for k in range(first, last):
            move(s, w, path[k, 0], path[k, 1], mode)
        if stages & LEAVE:
            _leave(s, w, q, t, tree, values)
