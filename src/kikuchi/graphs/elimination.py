"""Elimination orders: in which order to remove the variables, and what that costs.

Removing a variable joins its neighbours pairwise; the variable and its neighbours are a clique of
the triangulated graph. The largest clique rules the cost of exact inference. Finding the best order
is NP-hard; the orders here are greedy, and the best of them is improved by local search.

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
"""The price of a complete order, in list entries whose reading takes as long, and the factor by
which the order exceeds what is allowed."""

_UNIT = 2.0**-20  # weights are fixed-point log2 of cardinalities: exact sums, real ties
_STOP_BITS = 40.0  # no machine holds a table of 2^40 numbers: past it only small efforts go on
_STOP_EFFORT = 10**8  # list entries read, about a second
_TRIES = 32
_PATIENCE = 10  # tries without gain
_EFFORT_PER_ENTRY = 0.1  # seeking a better order may cost a tenth of what it could save
_MAX_EFFORT = 3 * 10**7
_MAX_TRIANGLE_WORK = 3 * 10**8
_EFFORT_PER_VARIABLE = 20  # of one try, besides the lists that it reads
_EFFORT_OF_A_TRY = 3000
_KINDS = 5  # of orders: three greedy rules, and sweeps by two of them
_FIRST_TRIES = 64  # before the search judges what it gains
_FIRST_EFFORT = 0.05  # of the price, which the first tries may cost
_LEAST_DROP = 0.05  # of the logarithm of the price, expected from twice the effort
_HOPED_DROP = 0.7  # the same where the order is not allowed yet
_LEAST_SHARE = 0.2  # of the effort allowed, before an order that is too dear is taken as final
_HOPELESS = 1e8  # times too dear
_EFFORT_OF_JUDGING = 100_000
_NEAR = 1.3
_SECOND_EFFORT = 2e7  # for each other kind of order where the first had no end
_CACHED = 15_000  # variables whose lists stay in the caches of a core; measured on grids


@dataclass(frozen=True, eq=False)
class Elimination:
    """An elimination order and the cliques that it makes.

    `neighbours[neighbour_offsets[i]:neighbour_offsets[i + 1]]` are the variables still joined to
    `order[i]` when that is eliminated. `width` is the size of the largest clique less one,
    `log2_weight` the base-2 logarithm of its number of states and `cost` the number of states of
    all cliques together. If not `complete`, the search stopped because a clique became far too
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
        """True if the search stopped for want of time, before any clique was far too large."""
        return not self.complete and self.log2_weight <= _STOP_BITS

    @cached_property
    def cliques(self) -> list[tuple[int, ...]]:
        """The clique of each elimination step, sorted; some may lie inside others."""
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
    neighbours, `min-weight` the one whose clique has the fewest states; ties go to the clique with
    fewer states, then to the smaller number, or at random if a `seed` is given. Where a
    better order could save more than the search costs, up to `tries` orders are made, with
    random ties and also sweeping the graph level by level from a far end (what a long strip or a
    grid wants); the cheapest is kept. An order that takes more than `most_effort` is given up. The
    same arguments always give the same order.

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
            or effort * (count + 1) >= allowed * count  # the next try would pass what is allowed
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
    """The order of the lowest price found: greedy by fill, weight and degree with random ties,
    sweeps from a far end, then local search on the best, of which a stretch, the beginning or the
    end is ordered anew.

    The search goes on while what another such effort would save, judged by what the last one did,
    exceeds its cost; where the best order is not allowed, while that rate could still make it so.
    Where one of the first orders adds no edge, no order has smaller cliques, and the search ends;
    else a graph is given up only when orders of all kinds agree. `most_effort` is the number of
    list entries that may be read, `stop` ends the search at once; unless it does, the same
    arguments give the same order.

    >>> square = FactorGraph([2] * 4, [((i, (i + 1) % 4), np.ones(4)) for i in range(4)])
    >>> cheapest(square, lambda found: (found.cost, 0.0)).width
    2
    """
    greedy = _Greedy(graph)
    if bound := greedy.hopeless_degeneracy():
        return _too_dense(graph.n_variables, bound)
    rng = generator(0 if seed is None else seed)
    found = greedy.eliminate("min-fill", _tie(greedy.n, seed, rng), greedy.flat, most_effort)
    best = _Standing(found, most_effort, len(greedy.neighbours) // 2)
    best.meet(found, judge)
    while not stop() and best.worth_while():
        by_number = best.tries == 1 and seed is None
        rule, levels = _next_attempt(greedy, best.found, best.tries, rng)
        tie = _tie(greedy.n, None if by_number else 0, rng)
        left = most_effort - best.effort if best.found.complete else _SECOND_EFFORT
        best.meet(greedy.eliminate(rule, tie, levels, left, most=best.most_cost), judge)
    return replace(best.found, tries=best.tries, effort=int(best.effort))


def elimination_work(graph: FactorGraph, most_effort: float) -> float:
    """Multiplications of a sparse symmetric factorisation in an order of least degrees, about: the
    squared sizes of the columns. After `most_effort` list entries the variables left count as one
    dense block.

    >>> star = FactorGraph([2] * 5, [((0, v), np.ones(4)) for v in range(1, 5)])
    >>> elimination_work(star, 1e6)
    4.0
    """
    greedy = _Greedy(graph)
    tie = np.arange(greedy.n, dtype=np.uint32)
    found = greedy.eliminate("min-degree", tie, greedy.flat, min(most_effort, _STOP_EFFORT - 1.0))
    sizes = np.diff(found.neighbour_offsets).astype(np.float64)
    return float(sizes @ sizes) + (greedy.n - len(found.order)) ** 3 / 3.0


class _Standing:
    """The best order of a search so far, what it took and what more effort may bring."""

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
        """Cost at which an order cannot win: prices of orders with equal cost differ a little."""
        return _NEAR * self.found.cost if self.found.complete else math.inf

    def meet(self, found: Elimination, judge: Judge) -> None:
        """Compare an order with the best; an equal one takes its place, so that search moves on."""
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

    def worth_while(self) -> bool:
        """Whether as much effort again can be expected to pay."""
        if self.effort >= self.most_effort or self.price <= _EFFORT_OF_A_TRY:
            return False
        if self.tries < _KINDS:
            return self.excess > 1.0 or self.effort < _FIRST_EFFORT * self.price
        if not self.found.complete or self.found.neighbour_offsets[-1] == self.edges:
            return False  # where no edge was added, every order makes cliques at least as large
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
    """The rule and the levels of the next try."""
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
    """Ties by number, or at random if there is a seed."""
    return np.arange(n, dtype=np.uint32) if seed is None else rng.permutation(n).astype(np.uint32)


def _attempts(greedy: _Greedy, seed: int | None) -> Iterator[tuple[U4, Ints]]:
    """Ties and levels to try: plain greedy, then sweeps and greedy by turns with random ties."""
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
    """The primal graph of a model, to be eliminated again and again."""

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
        """A lower bound on the width of every order where it forbids them all, else 0; looked for
        only where counting the fill is costly.
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
        """One greedy order; it stops where its cost passes `most`.

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
    """No order at all: every subgraph bound says that none can be paid for."""
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
