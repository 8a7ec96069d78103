"""Elimination orders of the variables and their costs.

Removing a variable joins its neighbours pairwise; the variable and its neighbours are a clique of
the triangulated graph. The largest clique determines the cost of exact inference. Finding the best
order is NP-hard; the orders here are greedy, and the best of them is improved by local search.

Reference: HOJ-I3, TEH-I2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from kikuchi.core.arrays import U4, Ints
from kikuchi.core.errors import MethodError, suggestion
from kikuchi.core.seeds import generator
from kikuchi.graphs.factor_graph import FactorGraph

Order = Literal["min-fill", "min-degree", "min-weight"]
Judge = Callable[["Elimination"], tuple[float, float]]
"""The price of a complete order, in units of reading one list entry, and the factor by which the
order exceeds the limit.
"""

_UNIT = 2.0**-20  # weights are fixed-point log2 of cardinalities: exact sums, real ties
_STOP_BITS = 40.0  # no machine can store 2^40 numbers: beyond it only small efforts continue
_STOP_EFFORT = 10**8  # list entries read in about a second
_TRIES = 32
_PATIENCE = 10  # attempts without improvement
_EFFORT_PER_ENTRY = 0.1  # the search may cost a tenth of what it could save
_MAX_EFFORT = 3 * 10**7
_MAX_TRIANGLE_WORK = 3 * 10**8
_EFFORT_PER_VARIABLE = 20  # overhead of one attempt, besides the lists that it reads
_EFFORT_OF_A_TRY = 3000
_KINDS = 5  # of orders: three greedy rules, and sweeps by two of them
_FIRST_TRIES = 64  # before the search estimates its gain
_FIRST_EFFORT = 0.05  # fraction of the price that the first attempts may cost
_LEAST_DROP = 0.05  # expected decrease of the log price from twice the effort
_HOPED_DROP = 0.7  # the same while the order exceeds the limit
_LEAST_SHARE = 0.2  # fraction of the allowed effort before a too expensive order is final
_HOPELESS = 1e8  # factor by which an order is too expensive
_EFFORT_OF_JUDGING = 100_000
_NEAR = 1.3
_SECOND_EFFORT = 2e7  # for each other kind of order if the first did not finish
_CACHED = 15_000  # variables whose lists fit into the caches of a core; measured on grids


@dataclass(frozen=True, eq=False)
class Elimination:
    """An elimination order and its cliques.

    `neighbours[neighbour_offsets[i]:neighbour_offsets[i + 1]]` are the remaining neighbours of
    `order[i]` when it is eliminated. `width` is the size of the largest clique minus one,
    `log2_weight` the base-2 logarithm of its number of states and `cost` the number of states of
    all cliques together. If not `complete`, the elimination stopped because a clique became far too
    large for any machine, or its effort was used up: `width`, `log2_weight` and `cost` are then
    lower bounds for this order.

    >>> chain = FactorGraph([2, 3, 2], [((0, 1), np.ones(6)), ((1, 2), np.ones(6))])
    >>> found = eliminate(chain)
    >>> found.width, found.order.tolist(), found.cliques
    (1, [0, 1, 2], [(0, 1), (1, 2), (2,)])
    """

    n_variables: int
    order: U4
    neighbour_offsets: Ints
    neighbours: U4
    width: int
    log2_weight: float
    cost: float
    effort: int
    tries: int = 1

    @property
    def complete(self) -> bool:
        """False if the search stopped before the last variable."""
        return len(self.order) == self.n_variables

    @property
    def given_up(self) -> bool:
        """True if the search ran out of time before any clique was far too large."""
        return not self.complete and self.log2_weight <= _STOP_BITS

    @cached_property
    def cliques(self) -> list[tuple[int, ...]]:
        """The clique of each elimination step, sorted; some may be contained in others."""
        ends = self.neighbour_offsets[1:-1]
        rest = np.split(self.neighbours, ends) if len(self.order) else []
        return [
            tuple(sorted((int(v), *map(int, others))))
            for v, others in zip(self.order, rest, strict=True)
        ]


def eliminate(
    graph: FactorGraph,
    order: Order = "min-fill",
    *,
    seed: int | None = None,
    tries: int = _TRIES,
    most_effort: float = math.inf,
) -> Elimination:
    """A greedy elimination order of the variables of `graph`.

    `min-fill` takes the variable that adds the fewest edges, `min-degree` the one with the fewest
    neighbours, `min-weight` the one whose clique has the fewest states; ties are broken by fewer
    states of the clique, then by the smaller number, or at random if a `seed` is given. If a better
    order could save more than the search costs, up to `tries` orders are tried, with random ties
    and also by sweeping the graph level by level from a far end (good for long strips and grids);
    the cheapest is returned. An order that takes more than `most_effort` is abandoned. The same
    arguments always give the same order.

    >>> square = FactorGraph([2] * 4, [((i, (i + 1) % 4), np.ones(4)) for i in range(4)])
    >>> eliminate(square).width
    2
    """
    if order not in get_args(Order):
        raise MethodError(f"there is no order '{order}'; {suggestion(order, get_args(Order))}")
    greedy = _Greedy(graph)
    if order == "min-fill" and (bound := greedy.hopeless_degeneracy()):
        return _too_dense(graph.n_variables, bound)
    best: Elimination | None = None
    effort = last_gain = count = 0
    for tie, levels in _attempts(greedy, seed):
        most = math.inf if best is None else best.cost
        found = greedy.eliminate(order, tie, levels, most_effort, most=most)
        count += 1
        effort += found.effort
        if best is None or (found.complete and found.cost < best.cost):
            best, last_gain = found, count
        allowed = min(_EFFORT_PER_ENTRY * best.cost, _MAX_EFFORT)
        if (
            count >= max(tries, 1)
            or count - last_gain >= _PATIENCE
            or effort * (count + 1) >= allowed * count  # the next attempt would exceed the limit
            or not best.complete
        ):
            break
    assert best is not None  # _attempts never ends
    return replace(best, tries=count, effort=effort)


def cheapest(
    graph: FactorGraph,
    judge: Judge,
    *,
    seed: int | None = None,
    most_effort: float = 1e9,
    stop: Callable[[], bool] = lambda: False,
) -> Elimination:
    """Return the order with the lowest price: greedy by fill, weight and degree with random ties,
    sweeps from a far end, then local search, which reorders a segment, the beginning or the end of
    the best order.

    The search continues while the expected saving of further effort, extrapolated from the last
    one, exceeds its cost; if the best order exceeds the limit, while that rate could still bring it
    below. If one of the first orders adds no edge, no order has smaller cliques, and the search
    ends; otherwise a graph is abandoned only if orders of all kinds agree. `most_effort` is the
    number of list entries that may be read, and `stop` ends the search at once; unless it does, the
    same arguments give the same order.

    >>> square = FactorGraph([2] * 4, [((i, (i + 1) % 4), np.ones(4)) for i in range(4)])
    >>> cheapest(square, lambda found: (found.cost, 0.0)).width
    2
    """
    greedy = _Greedy(graph)
    if bound := greedy.hopeless_degeneracy():
        return _too_dense(graph.n_variables, bound)
    rng = generator(0 if seed is None else seed)
    found = greedy.eliminate("min-fill", _tie(greedy.n, seed, rng), greedy.flat, most_effort)
    best = _SearchState(found, most_effort, len(greedy.neighbours) // 2)
    best.compare(found, judge)
    while not stop() and best.should_continue():
        by_number = best.tries == 1 and seed is None
        rule, levels = _next_attempt(greedy, best.found, best.tries, rng)
        tie = _tie(greedy.n, None if by_number else 0, rng)
        left = most_effort - best.effort if best.found.complete else _SECOND_EFFORT
        best.compare(greedy.eliminate(rule, tie, levels, left, most=best.most_cost), judge)
    return replace(best.found, tries=best.tries, effort=int(best.effort))


def elimination_work(graph: FactorGraph, most_effort: float) -> float:
    """Return the approximate number of multiplications of a sparse symmetric factorisation in
    minimum-degree order: the squared sizes of the columns. After `most_effort` list entries the
    remaining variables count as one dense block.

    >>> star = FactorGraph([2] * 5, [((0, v), np.ones(4)) for v in range(1, 5)])
    >>> elimination_work(star, 1e6)
    4.0
    """
    greedy = _Greedy(graph)
    tie = np.arange(greedy.n, dtype=np.uint32)
    found = greedy.eliminate("min-degree", tie, greedy.flat, min(most_effort, _STOP_EFFORT - 1.0))
    sizes = np.diff(found.neighbour_offsets).astype(np.float64)
    return float(sizes @ sizes) + (greedy.n - len(found.order)) ** 3 / 3.0


class _SearchState:
    """State of a search: the best order so far, its effort, and the expected gain of more
    effort.
    """

    def __init__(self, found: Elimination, most_effort: float, edges: int) -> None:
        self.found = found
        self.edges = edges  # of the primal graph
        self.price, self.excess = math.inf, math.inf
        self.tries = 0
        self.effort = 0.0
        self.most_effort = most_effort
        self.history = [(0.0, math.inf)]

    @property
    def most_cost(self) -> float:
        """Cost above which an order cannot be the best: prices of orders with equal cost differ
        slightly.
        """
        return _NEAR * self.found.cost if self.found.complete else math.inf

    def compare(self, found: Elimination, judge: Judge) -> None:
        """Compare an order with the best; an equal one replaces it, so that the search moves."""
        overhead = _EFFORT_OF_A_TRY + _EFFORT_PER_VARIABLE * found.n_variables
        self.tries += 1
        self.effort += found.effort + overhead
        if not found.complete:
            return
        price, excess = judge(found)
        self.effort += _EFFORT_OF_JUDGING + 2 * overhead
        if price < self.price:
            self.history.append((self.effort, price))
        if price <= self.price:
            self.found, self.price, self.excess = found, price, excess

    def should_continue(self) -> bool:
        """Return whether as much effort again is expected to pay off."""
        if self.effort >= self.most_effort or self.price <= _EFFORT_OF_A_TRY:
            return False
        if self.tries < _KINDS:
            return self.excess > 1.0 or self.effort < _FIRST_EFFORT * self.price
        if not self.found.complete or self.found.neighbour_offsets[-1] == self.edges:
            return False  # if no edge was added, the cliques of every order are at least as large
        before = next(
            price for effort, price in reversed(self.history) if 2 * effort <= self.effort
        )
        drop = math.log(before / self.price)
        if self.excess > 1.0:
            if self.effort < _LEAST_SHARE * self.most_effort and self.excess < _HOPELESS:
                return True
            doublings = math.log2(self.most_effort / self.effort)
            return max(2 * drop, _HOPED_DROP) * doublings > math.log(self.excess)
        if self.tries < _FIRST_TRIES:
            return self.effort < _FIRST_EFFORT * self.price
        return -math.expm1(-max(drop, _LEAST_DROP)) * self.price > self.effort


def _next_attempt(
    greedy: _Greedy, best: Elimination, count: int, rng: np.random.Generator
) -> tuple[Order, Ints]:
    """Return the rule and the levels of the next attempt."""
    n = greedy.n
    if count < 3 * _KINDS or not best.complete:
        rules: list[Order] = ["min-fill", "min-fill", "min-weight", "min-degree", "min-weight"]
        kind = count % _KINDS
        start = 0 if count == 1 else int(rng.integers(n))
        return rules[kind], greedy.sweep(start) if kind in (1, 4) else greedy.flat
    rule: Order = "min-fill" if rng.random() < 0.5 else "min-weight"
    draw = rng.random()
    if draw < 0.1:
        return rule, greedy.flat
    if draw < 0.2:
        return rule, greedy.sweep(int(rng.integers(n)))
    position = np.empty(n, dtype=np.int64)
    position[best.order] = np.arange(1, n + 1)
    first = int(rng.integers(1, n + 1))
    if draw < 0.7:
        last = first + int(n ** rng.random())
        return rule, np.where((position >= first) & (position <= last), first, position)
    return rule, np.minimum(position, first) if draw < 0.85 else np.maximum(position, first)


def _tie(n: int, seed: int | None, rng: np.random.Generator) -> U4:
    """Return the tie-breaking keys: by number, or random if there is a seed."""
    return np.arange(n, dtype=np.uint32) if seed is None else rng.permutation(n).astype(np.uint32)


def _attempts(greedy: _Greedy, seed: int | None) -> Iterator[tuple[U4, Ints]]:
    """Yield ties and levels to try: plain greedy, then alternately sweeps and greedy with random
    ties.
    """
    n = greedy.n
    rng = generator(0 if seed is None else seed)
    yield _tie(n, seed, rng), greedy.flat
    start = 0 if seed is None else int(rng.integers(n))
    yield np.arange(n, dtype=np.uint32), greedy.sweep(start)
    while True:
        tie = rng.permutation(n).astype(np.uint32)
        yield tie, greedy.flat
        yield tie, greedy.sweep(int(rng.integers(n)))


class _Greedy:
    """The primal graph of a model, prepared for repeated elimination."""

    def __init__(self, graph: FactorGraph) -> None:
        from kikuchi.graphs.kernels import elimination as kernels

        self.kernels: Any = kernels
        self.n = graph.n_variables
        self.offsets, self.neighbours = kernels.primal_graph(
            self.n, graph.scopes, graph.scope_offsets
        )
        self.weights = np.rint(np.log2(graph.cardinalities) / _UNIT).astype(np.int64)
        self.flat = np.zeros(self.n, dtype=np.int64)
        self.slowness = max(1.0, math.sqrt(self.n / _CACHED))  # reading lists that are not cached

    @cached_property
    def _fill(self) -> Ints:
        fill: Ints = self.kernels.missing_pairs(self.offsets, self.neighbours)
        return fill

    def hopeless_degeneracy(self) -> int:
        """Return a lower bound on the width of every order if it excludes them all, else 0;
        computed only if counting the fill is expensive.
        """
        work = self.kernels.triangle_work(self.offsets, self.neighbours)
        if work <= _MAX_TRIANGLE_WORK:
            return 0
        bound = int(self.kernels.degeneracy(self.offsets, self.neighbours))
        return bound if bound + 1 > _STOP_BITS else 0

    def sweep(self, start: int) -> Ints:
        """Levels by distance from the far end of the component of a variable."""
        levels: Ints = self.kernels.breadth_first_levels(self.offsets, self.neighbours, start)
        return levels

    def eliminate(
        self,
        order: Order,
        tie: U4,
        levels: Ints,
        most_effort: float = math.inf,
        *,
        most: float = math.inf,
    ) -> Elimination:
        """Return one greedy order, which stops if its cost exceeds `most`.

        Efforts count list entries of a graph that fits the caches; each entry of a larger graph
        counts as several.
        """
        limit = most_effort / self.slowness
        hard = limit < _STOP_EFFORT
        stop = self.kernels.Stop(
            0 if hard else int(_STOP_BITS / _UNIT),
            int(limit if hard else _STOP_EFFORT / self.slowness),
            float(most),
        )
        result = self.kernels.eliminate(
            self.kernels.PrimalGraph(self.offsets, self.neighbours, self.weights),
            self._fill if order == "min-fill" else self.flat,
            self.kernels.RULES.index(order),
            tie,
            levels,
            stop,
            _UNIT,
        )
        return self._as_elimination(result)

    def _as_elimination(self, result: tuple[Any, ...]) -> Elimination:
        _, order, offsets, members, heaviest, widest, cost, effort = result
        return Elimination(
            n_variables=self.n,
            order=order,
            neighbour_offsets=offsets,
            neighbours=members,
            width=max(int(widest) - 1, 0),
            log2_weight=int(heaviest) * _UNIT,
            cost=float(cost),
            effort=int(self.slowness * effort),
        )


def _too_dense(n: int, degeneracy: int) -> Elimination:
    """Abandoned elimination: the degeneracy bound exceeds the budget."""
    return Elimination(
        n_variables=n,
        order=np.zeros(0, dtype=np.uint32),
        neighbour_offsets=np.zeros(1, dtype=np.int64),
        neighbours=np.zeros(0, dtype=np.uint32),
        width=int(degeneracy),
        log2_weight=float(degeneracy + 1),
        cost=2.0 ** min(degeneracy + 1, 1000),
        effort=0,
    )
