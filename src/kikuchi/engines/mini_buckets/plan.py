"""The plan of weighted mini-bucket elimination: which mini-buckets, and what they cost.

Eliminating a variable exactly joins all functions on it in one table. Mini-bucket elimination puts
them in several tables of at most `ibound` + 1 variables instead, each of which sums the variable
out on its own; a message then has at most `ibound` variables. No table is made here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from kikuchi.core.arrays import U4, Array, Ints
from kikuchi.core.budget import Clock
from kikuchi.core.errors import MethodError, OutOfTimeError
from kikuchi.core.numerics import segment_sums
from kikuchi.core.seeds import generator
from kikuchi.engines.mini_buckets.kernels import layout
from kikuchi.engines.mini_buckets.kernels import passes as kernels
from kikuchi.engines.mini_buckets.kernels.split import split
from kikuchi.graphs.elimination import eliminate
from kikuchi.graphs.factor_graph import Evidence, FactorGraph

SplitOrder = Literal["min-split", "sweep", "min-fill", "min-degree", "min-weight"]

MEMORY = 12  # pairs of steps and gradient changes that L-BFGS remembers
_AUTO_ENTRIES = 2.0**17  # of all tables, where the i-bound is not given
_ENTRIES_PER_SECOND = 5e4  # that leave time for a few hundred steps
_AUTO_RANGE = (2.0**13, 2.0**22)
_LARGEST_AUTO = 24
_PLANNING_PART = 0.3  # of the time, after which no larger i-bound is tried
_EDGE_SECONDS = 1.2e-6  # for each edge of a graph beyond caches, to split it
_LATE = 0.25  # seconds by which a plan may exceed the limit
_EFFORT_PER_SECOND = 2e8  # of elimination
_SWEEP_HOPE = 1.5  # a sweep may be this much narrower than the greedy order
_HUGE = 2.0**62


@dataclass(frozen=True, eq=False)
class MiniBucketPlan:
    """Mini-buckets of a graph in order of elimination, and the price of one pass over them.

    A node is a mini-bucket. `node_ranks` says which variable (by rank in the order) it sums out;
    nodes of one variable follow each other. Scopes are ranks, falling. `owners` names the node
    that takes each function: the factors, then the messages of the nodes. A separator is the set of
    variables that two nodes of one variable share, over which they may shift costs.

    >>> import kikuchi as kk
    >>> plan = mini_bucket_plan(kk.grid(10, 10, seed=0), 5)
    >>> plan.exact, plan.largest_scope, plan.bytes < 10**6
    (False, 6, True)
    """

    graph: FactorGraph
    ibound: int
    rank: Ints
    node_ranks: Ints
    scope_offsets: Ints
    scopes: Ints
    owners: Ints
    set_offsets: Ints
    set_ranks: Ints
    set_nodes: Ints

    @property
    def n_nodes(self) -> int:
        """Number of mini-buckets."""
        return len(self.node_ranks)

    @cached_property
    def splits(self) -> int:
        """Mini-buckets beyond one for each variable; 0 when elimination is exact."""
        return self.n_nodes - len(np.unique(self.node_ranks))

    @property
    def exact(self) -> bool:
        """Whether no bucket was split: both bounds are then log Z itself."""
        return self.splits == 0

    @property
    def largest_scope(self) -> int:
        """Variables in the largest mini-bucket."""
        return int(np.diff(self.scope_offsets).max(initial=0))

    @cached_property
    def ranked_cards(self) -> Ints:
        """Numbers of states by rank."""
        cards = np.empty(self.graph.n_variables, dtype=np.int64)
        cards[self.rank] = self.graph.cardinalities
        return cards

    @cached_property
    def table_sizes(self) -> Array:
        """Entries of the table of each node."""
        return _products(self.ranked_cards, self.scope_offsets, self.scopes)

    @cached_property
    def set_sizes(self) -> Array:
        """Entries of each separator."""
        return _products(self.ranked_cards, self.set_offsets, self.set_ranks)

    @property
    def entries(self) -> float:
        """Entries of all tables together."""
        return float(self.table_sizes.sum())

    @property
    def n_messages(self) -> float:
        """Entries of all messages together."""
        return float((self.table_sizes / self.ranked_cards[self.node_ranks]).sum())

    @property
    def n_shifts(self) -> float:
        """Entries of all cost shifts: what one node of a separator gains and the other loses."""
        return float(self.set_sizes.sum())

    @cached_property
    def factor_ranks(self) -> tuple[Ints, Ints]:
        """Scopes of the factors as falling ranks, and which axis each of those was."""
        found = layout.ranked_scopes(self.graph.scopes, self.graph.scope_offsets, self.rank)
        return found[0], found[1]

    @cached_property
    def _unions(self) -> tuple[Ints, Ints]:
        """For each node the scope of all its factors together: offsets and ranks."""
        ranks = self.factor_ranks[0]
        found = layout.unions(self.n_nodes, self.graph.scope_offsets, ranks, self.owners)
        return found[0], found[1]

    @cached_property
    def union_sizes(self) -> Array:
        """Entries of the sum of the factors of each node; 0 where there are none."""
        return _products(self.ranked_cards, *self._unions)

    @property
    def table_bytes(self) -> int:
        """Bytes of the tables, which all searches of one run share."""
        return int(min(8 * self.entries, _HUGE))

    @property
    def search_bytes(self) -> int:
        """Bytes of what each search for one bound keeps."""
        values = float(self.union_sizes.sum()) + self.n_messages + 2 * self.n_shifts
        vectors = (2 * MEMORY + 8) * (self.n_shifts + self.n_nodes)
        index = 4 * (len(self.scopes) + len(self.set_ranks)) * 4 + 20 * self.n_nodes
        return int(min(8 * (3 * values + vectors + index), _HUGE))

    @property
    def bytes(self) -> int:
        """Bytes of a run with one order that seeks both bounds, the lower one from two starts."""
        return self.table_bytes + 3 * self.search_bytes

    @property
    def operations(self) -> float:
        """Table entries touched by one evaluation of one bound with its gradient."""
        messages = self.owners[self.graph.n_factors :]
        counts = np.bincount(messages[messages >= 0], minlength=self.n_nodes)
        counts = counts + np.bincount(self.set_nodes.ravel(), minlength=self.n_nodes)
        return float((self.table_sizes * (2 * counts + 5)).sum())

    # ------------------------------------------------------------------ layout of the values

    @cached_property
    def static_places(self) -> Ints:
        """Where the sum of the factors of each node lies among the values, and where all end."""
        return _ends(self.union_sizes)

    @cached_property
    def message_places(self) -> Ints:
        """Where the message of each node lies among the values, and where all end."""
        sizes = self.table_sizes / self.ranked_cards[self.node_ranks]
        return np.asarray(_ends(sizes) + self.static_places[-1])

    @cached_property
    def shift_places(self) -> Ints:
        """Where what each separator gives its first node lies, and where all these end.

        What it takes from its second node lies in a second block of the same size.
        """
        return np.asarray(_ends(self.set_sizes) + self.message_places[-1])

    def static_values(self) -> Array:
        """Sums of the log-tables of the factors of each node."""
        graph = self.graph
        ranks, axes = self.factor_ranks
        sorted_tables = np.empty(graph.log_tables.size)
        layout.sort_tables(
            graph.log_tables,
            graph.table_offsets,
            graph.scope_offsets,
            ranks,
            axes,
            self.ranked_cards,
            False,
            sorted_tables,
        )
        offsets, union_ranks = self._unions
        reading = self._reading(offsets, union_ranks, self._factors)
        out = np.zeros(int(self.static_places[-1]))
        digits = np.zeros(self.largest_scope + 1, dtype=np.int64)
        cards = self.ranked_cards[union_ranks]
        kernels.add_all(self.static_places, offsets, cards, reading, sorted_tables, out, digits)
        return out

    def factor_beliefs(self, beliefs: Array) -> Array:
        """Beliefs of the factors, laid out as in the graph, from those of all nodes."""
        graph = self.graph
        sums = np.zeros(graph.log_tables.size)
        reading = self._reading(self.scope_offsets, self.scopes, self._factors)
        digits = np.zeros(self.largest_scope + 1, dtype=np.int64)
        kernels.sum_all(self.program, reading, beliefs, sums, digits)
        sums.flags.writeable = False  # compiled loops see the type of a graph's own tables
        ranks, axes = self.factor_ranks
        out = np.empty(graph.log_tables.size)
        layout.sort_tables(
            sums,
            graph.table_offsets,
            graph.scope_offsets,
            ranks,
            axes,
            self.ranked_cards,
            True,
            out,
        )
        return out

    @property
    def _factors(self) -> _Items:
        """The factors, each at the place of its own table."""
        graph = self.graph
        owners = self.owners[: graph.n_factors]
        return _Items(graph.scope_offsets, self.factor_ranks[0], owners, graph.table_offsets[:-1])

    def _reading(self, offsets: Ints, ranks: Ints, items: _Items) -> kernels.Inputs:
        return kernels.Inputs(
            *layout.readings(
                self.ranked_cards,
                offsets,
                ranks,
                items.offsets.astype(np.int64),
                items.ranks,
                items.hosts.copy(),
                items.places.astype(np.int64),
            )
        )

    @cached_property
    def inputs(self) -> kernels.Inputs:
        """How every node reads its factors, the messages to it and its shifts."""
        offsets, ranks = self._unions
        own = np.flatnonzero(np.diff(offsets) > 0)
        static = _Items(offsets, ranks, np.arange(self.n_nodes), self.static_places[:-1]).of(own)
        not_last = np.ones(len(self.scopes), dtype=bool)
        not_last[self.scope_offsets[1:] - 1] = False
        messages = _Items(
            self.scope_offsets - np.arange(self.n_nodes + 1),
            self.scopes[not_last],
            self.owners[self.graph.n_factors :],
            self.message_places[:-1],
        )
        gains = _Items(
            self.set_offsets, self.set_ranks, self.set_nodes[:, 0], self.shift_places[:-1]
        )
        ends = self.shift_places[-1] - self.shift_places[0]
        losses = gains._replace(hosts=self.set_nodes[:, 1], places=gains.places + ends)
        items = static.then(messages).then(gains).then(losses)
        return self._reading(self.scope_offsets, self.scopes, items)

    @cached_property
    def program(self) -> kernels.MiniBucketProgram:
        """Where the tables, messages and axes of every node are."""
        cards = self.ranked_cards
        node_cards = cards[self.node_ranks]
        sizes = self.table_sizes.astype(np.int64)
        return kernels.MiniBucketProgram(
            sizes // node_cards,
            node_cards,
            np.cumsum(sizes) - sizes,
            self.message_places[:-1].copy(),
            self.owners[self.graph.n_factors :].copy(),
            self.scope_offsets,
            cards[self.scopes],
        )


class _Items(NamedTuple):
    """Scopes as falling ranks, the host that reads each, and where it lies."""

    offsets: Ints
    ranks: Ints
    hosts: Ints
    places: Ints

    def then(self, others: _Items) -> _Items:
        """These items, then others."""
        return _Items(
            np.concatenate([self.offsets, others.offsets[1:] + self.offsets[-1]]),
            np.concatenate([self.ranks, others.ranks]),
            np.concatenate([self.hosts, others.hosts]),
            np.concatenate([self.places, others.places]),
        )

    def of(self, chosen: Ints) -> _Items:
        """Some of these items; those left out must have empty scopes."""
        ends = np.concatenate([[0], self.offsets[1:][chosen]]).astype(np.int64)
        return _Items(ends, self.ranks, self.hosts[chosen], self.places[chosen])


def planning_seconds(graph: FactorGraph) -> float:
    """Seconds that one plan of a large graph takes, about."""
    return _EDGE_SECONDS * graph.n_edges


def mini_bucket_plan(
    graph: FactorGraph,
    ibound: int,
    *,
    evidence: Evidence | None = None,
    order: SplitOrder = "min-split",
    seed: int | None = None,
) -> MiniBucketPlan:
    """Mini-buckets of at most `ibound` + 1 variables, given evidence, and what they cost.

    `min-split` eliminates the variable that needs the fewest mini-buckets, then the one that joins
    the fewest new pairs, judged on the functions as they are after splitting; `sweep` does so level
    by level from a far end of the graph. The other orders are those of exact elimination. A `seed`
    breaks ties at random.

    `graph` is the model, `evidence` what is observed, `order` the elimination order.

    >>> import kikuchi as kk
    >>> mini_bucket_plan(kk.grid(4, 4, seed=0), 4).exact
    True
    """
    reduced = graph.reduce(graph.resolve(evidence)).graph
    return make_plan(reduced, ibound, order, seed)


def least_ibound(graph: FactorGraph) -> int:
    """The smallest i-bound that holds every factor: the largest scope less one.

    >>> least_ibound(FactorGraph([2, 2, 2], [((0, 1, 2), np.ones(8))]))
    2
    """
    return max(int(np.diff(graph.scope_offsets).max(initial=1)) - 1, 0)


def make_plan(
    graph: FactorGraph, ibound: int, order: SplitOrder, seed: int | None
) -> MiniBucketPlan:
    """`mini_bucket_plan` of a graph that is already reduced by its evidence."""
    least = least_ibound(graph)
    if ibound < least:
        raise MethodError(
            f"method wmb: i-bound {ibound} is too small for a factor of {least + 1} variables; "
            f"use ibound={least} or more"
        )
    n = graph.n_variables
    rng = None if seed is None else generator(seed)
    rank, variables, message_offsets, message_scopes, owners = split(
        graph.scopes,
        graph.scope_offsets,
        np.log2(graph.cardinalities),
        min(ibound, n) + 1,
        _given_order(graph, order, seed),
        np.zeros(n) if rng is None else rng.random(n),
        _levels(graph, order, rng),
    )
    message_ranks, _ = layout.ranked_scopes(message_scopes, message_offsets, rank)
    node_ranks = rank[variables]
    offsets, scopes = layout.node_scopes(node_ranks, message_offsets, message_ranks)
    cards = np.empty(n, dtype=np.int64)
    cards[rank] = graph.cardinalities
    sets = layout.separators(node_ranks, offsets, scopes, cards)
    return MiniBucketPlan(graph, ibound, rank, node_ranks, offsets, scopes, owners, *sets)


def _given_order(graph: FactorGraph, order: SplitOrder, seed: int | None) -> U4:
    """The order of exact elimination; empty for one that is made while splitting."""
    if order == "min-split" or order == "sweep":
        return np.zeros(0, dtype=np.uint32)
    found = eliminate(graph, order, seed=seed).order
    left = np.setdiff1d(np.arange(graph.n_variables, dtype=np.uint32), found)
    return np.concatenate([found, left]).astype(np.uint32)


def _levels(graph: FactorGraph, order: SplitOrder, rng: np.random.Generator | None) -> Ints:
    """Levels of a sweep through the graph from a far end of it; all 0 for the other orders."""
    n = graph.n_variables
    if order != "sweep":
        return np.zeros(n, dtype=np.int64)
    from kikuchi.graphs.kernels import elimination

    adjacency = elimination.primal_graph(n, graph.scopes, graph.scope_offsets)
    start = 0 if rng is None else int(rng.integers(n))
    return np.asarray(elimination.breadth_first_levels(adjacency[0], adjacency[1], start))


def _products(cards: Ints, offsets: Ints, ranks: Ints) -> Array:
    """Product of the numbers of states over each scope; 0 for an empty scope."""
    logs = np.log2(cards[ranks].astype(np.float64))
    sizes = np.exp2(segment_sums(logs, offsets))
    whole = np.where(sizes < 2.0**50, np.rint(sizes), sizes)
    return np.asarray(np.where(np.diff(offsets) > 0, whole, 0.0))


def _ends(sizes: Array) -> Ints:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


class Planner:
    """Plans of one graph at several i-bounds; finds those that need no split."""

    def __init__(self, graph: FactorGraph, order: SplitOrder, clock: Clock) -> None:
        self.graph = graph
        self.order: SplitOrder = order
        self.clock = clock

    @cached_property
    def _width(self) -> float:
        """Width of the best order of exact elimination, infinite if that is out of reach."""
        effort = _EFFORT_PER_SECOND * _PLANNING_PART * self.clock.seconds_left
        order = eliminate(self.graph, most_effort=effort)
        return order.width if order.complete else math.inf

    def plan(self, ibound: int, most: float = math.inf) -> MiniBucketPlan:
        """The plan at an i-bound. Where its order splits, an order of exact elimination that does
        not, with at most `most` table entries, is preferred.
        """
        self._require_seconds()
        plan = make_plan(self.graph, ibound, self.order, None)
        if plan.exact or self.order != "min-split":
            return plan
        others: list[SplitOrder] = []
        if self._width <= ibound:
            others.append("min-fill")
        if self._width <= _SWEEP_HOPE * ibound:
            others.append("sweep")
        for other in others:
            unsplit = make_plan(self.graph, ibound, other, None)
            if unsplit.exact and unsplit.entries <= most:
                return unsplit
        return plan

    def _require_seconds(self) -> None:
        """Refuse a plan that cannot be made in the time left."""
        needed = planning_seconds(self.graph)
        if needed > self.clock.seconds_left + _LATE:
            raise OutOfTimeError(
                f"planning mini-buckets takes about {needed:.2g} s, more than the budget leaves; "
                "give more seconds or use mf"
            )

    def largest(self) -> MiniBucketPlan:
        """The plan of the largest i-bound whose tables fit the time and memory of the budget."""
        clock = self.clock
        budget, most = clock.budget, _AUTO_ENTRIES
        if budget.seconds is not None:
            most = float(np.clip(_ENTRIES_PER_SECOND * budget.seconds, *_AUTO_RANGE))
        ibound = least_ibound(self.graph)
        plan = self.plan(ibound, most)
        enough = _PLANNING_PART * (budget.seconds or math.inf)
        while not plan.exact and ibound < _LARGEST_AUTO and clock.seconds < enough:
            ibound += self._safe_growth(plan, most)
            larger = self.plan(ibound, most)
            too_large = budget.bytes is not None and larger.bytes > budget.bytes
            if larger.entries > most or too_large:
                break
            plan = larger
        return plan

    def _safe_growth(self, plan: MiniBucketPlan, most: float) -> int:
        """How far the i-bound may grow before the tables could be too large; at least 1."""
        growth = math.log(max(most / plan.entries, 1.0))
        return max(1, int(growth / math.log(int(self.graph.cardinalities.max()))))
