"""Elimination orders: in which order to remove the variables, and what that costs (HOJ-I3, TEH-I2).

Removing a variable joins its neighbours pairwise; the variable and its neighbours are a clique of
the triangulated graph. The largest clique rules the cost of exact inference. Finding the best order
is NP-hard; the orders here are greedy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from kikuchi.core.arrays import U4, Ints
from kikuchi.core.errors import MethodError, suggestion
from kikuchi.core.seeds import generator
from kikuchi.graphs.factor_graph import FactorGraph

Order = Literal["min-fill", "min-degree", "min-weight"]

_UNIT = 2.0**-20  # weights are fixed-point log2 of cardinalities: exact sums, real ties
_STOP_BITS = 40.0  # no machine holds a table of 2^40 numbers: past it only small efforts go on
_STOP_EFFORT = 10**8  # list entries read, about a second
_TRIES = 32
_PATIENCE = 10  # tries without gain
_EFFORT_PER_ENTRY = 0.1  # seeking a better order may cost a tenth of what it could save
_MAX_EFFORT = 3 * 10**7
_MAX_TRIANGLE_WORK = 3 * 10**8


@dataclass(frozen=True, eq=False)
class Elimination:
    """An elimination order and the cliques that it makes.

    `neighbours[neighbour_offsets[i]:neighbour_offsets[i + 1]]` are the variables still joined to
    `order[i]` when that is eliminated. `width` is the size of the largest clique less one,
    `log2_weight` the base-2 logarithm of its number of states and `cost` the number of states of
    all cliques together. If not `complete`, the search stopped because a clique became far too
    large for any machine: `width`, `log2_weight` and `cost` are then lower bounds for this order.

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
) -> Elimination:
    """A greedy elimination order of the variables of `graph`.

    `min-fill` takes the variable that adds the fewest edges, `min-degree` the one with the fewest
    neighbours, `min-weight` the one whose clique has the fewest states; ties go to the clique with
    fewer states (HOJ-I3), then to the smaller number, or at random if a `seed` is given. Where a
    better order could save more than the search costs, up to `tries` orders are made, with
    random ties and also sweeping the graph level by level from a far end (what a long strip or a
    grid wants); the cheapest is kept. The same arguments always give the same order.

    >>> square = FactorGraph([2] * 4, [((i, (i + 1) % 4), np.ones(4)) for i in range(4)])
    >>> eliminate(square).width
    2
    """
    from kikuchi.graphs.kernels import elimination as kernels

    if order not in get_args(Order):
        raise MethodError(f"there is no order '{order}'; {suggestion(order, get_args(Order))}")
    offsets, neighbours = kernels.primal_graph(graph.n_variables, graph.scopes, graph.scope_offsets)
    if order == "min-fill" and kernels.triangle_work(offsets, neighbours) > _MAX_TRIANGLE_WORK:
        bound = kernels.degeneracy(offsets, neighbours)
        if bound + 1 > _STOP_BITS:
            return _too_dense(graph.n_variables, bound)
    return _best_of(kernels, graph, offsets, neighbours, order, seed, max(tries, 1))


def _best_of(
    kernels: Any,
    graph: FactorGraph,
    offsets: Ints,
    neighbours: U4,
    order: Order,
    seed: int | None,
    tries: int,
) -> Elimination:
    n = graph.n_variables
    weights = np.rint(np.log2(graph.cardinalities) / _UNIT).astype(np.int64)
    if order == "min-fill":
        fill = kernels.missing_pairs(offsets, neighbours)
    else:
        fill = np.zeros(n, dtype=np.int64)
    best: Elimination | None = None
    effort = last_gain = count = 0
    for tie, levels in _attempts(kernels, offsets, neighbours, seed):
        result = kernels.eliminate(
            offsets,
            neighbours,
            weights,
            fill,
            kernels.RULES.index(order),
            tie,
            levels,
            int(_STOP_BITS / _UNIT),
            _STOP_EFFORT,
            math.inf if best is None else best.cost,
            _UNIT,
        )
        count += 1
        effort += int(result[7])
        if best is None or (result[0] == n and result[6] < best.cost):
            best, last_gain = _as_elimination(n, result), count
        allowed = min(_EFFORT_PER_ENTRY * best.cost, _MAX_EFFORT)
        if (
            count >= tries
            or count - last_gain >= _PATIENCE
            or effort * (count + 1) >= allowed * count  # the next try would pass what is allowed
            or not best.complete
        ):
            break
    assert best is not None  # _attempts never ends
    return Elimination(**{**best.__dict__, "tries": count, "effort": effort})


def _attempts(
    kernels: Any, offsets: Ints, neighbours: U4, seed: int | None
) -> Iterator[tuple[U4, Ints]]:
    """Ties and levels to try: plain greedy, then sweeps and greedy by turns with random ties."""
    n = len(offsets) - 1
    flat = np.zeros(n, dtype=np.int64)
    rng = None if seed is None else generator(seed)
    number = np.arange(n, dtype=np.uint32)
    yield (number if rng is None else rng.permutation(n).astype(np.uint32)), flat
    rng = rng or generator(0)
    start = 0 if seed is None else int(rng.integers(n))
    yield number, kernels.breadth_first_levels(offsets, neighbours, start)
    while True:
        tie = rng.permutation(n).astype(np.uint32)
        yield tie, flat
        yield tie, kernels.breadth_first_levels(offsets, neighbours, int(rng.integers(n)))


def _as_elimination(n: int, result: tuple[Any, ...]) -> Elimination:
    _, order, offsets, members, heaviest, widest, cost, effort = result
    return Elimination(
        n_variables=n,
        order=order,
        neighbour_offsets=offsets,
        neighbours=members,
        width=max(int(widest) - 1, 0),
        log2_weight=int(heaviest) * _UNIT,
        cost=float(cost),
        effort=int(effort),
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
