"""Marginal MAP: the most probable states of some variables, the others summed out.

Summing out first and maximising then is exact; where the tables of that order do not fit, the
answer is bounded from both sides: from above by elimination in any order with buckets split to fit
(max after sum is at most sum after max, and a sum of products at most the sum of one factor times
the maximum of the other), from below by the weight of a state that was found by local search.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget, Clock, RunLimits, limits, named_limits
from kikuchi.core.errors import BudgetError, ImpossibleEvidenceError, ModelError
from kikuchi.core.labelled import html_facts
from kikuchi.core.text import printable
from kikuchi.graphs.factor_graph import FactorGraph, Variable
from kikuchi.methods.method import certain_bounds
from kikuchi.methods.registry import infer
from kikuchi.queries.cache import cache_of
from kikuchi.queries.conflicts import impossible
from kikuchi.queries.converters import as_model
from kikuchi.queries.patterns import log_of
from kikuchi.queries.question import Given, asked_variables, given, state_labels

_MOST_ENTRIES = 2**24  # of one table in an exact elimination
_BOUND_ENTRIES = 2**20  # of one table in an elimination that bounds
_EXACT_PART = 0.4  # of the time: for an exact elimination
_BOUND_PART = 0.3  # of the time left: for an elimination that bounds
_START_PART = 0.5  # of the time left: for the state that the search starts from
_LEAST_SECONDS = 0.01  # for the weight of a state
_SWEEPS = 5  # of local search

_UNFIT = "the tables of this elimination do not fit the budget"

Table = tuple[tuple[int, ...], Array]


@dataclass(frozen=True, eq=False)
class MarginalMap:
    """The states found, and the logarithm of their probability together with the evidence.

    `log_weight` is that of the states given here, exactly or from below; no states have more than
    `log_weight_upper`. They are equal, and `exact` is True, where the elimination fits.
    """

    states: dict[str, str]
    log_weight: float
    log_weight_upper: float
    exact: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return dict(vars(self))

    def _repr_html_(self) -> str:
        return html_facts("Most probable states", list(self.states.items()), repr(self))

    def __repr__(self) -> str:
        states = ", ".join(f"{name}={state}" for name, state in self.states.items())
        if self.exact:
            return printable(f"{states} (log-weight {self.log_weight:.6f}, exact)")
        upper = f"at most {self.log_weight_upper:.6f} for any"
        return printable(f"{states} (log-weight {self.log_weight:.6f}; {upper})")


@named_limits
def marginal_map(
    model: Any,
    variables: Sequence[Variable],
    evidence: Mapping[Any, Any] | None = None,
    *,
    likelihood: Mapping[Any, Any] | None = None,
    **within: Unpack[RunLimits],
) -> MarginalMap:
    """The most probable joint state of some variables given evidence, all others summed out.

    Parameters
    ----------
    model, evidence, likelihood
        As in `query`.
    variables : Sequence[Variable]
        The variables whose states are wanted.
    budget, seconds, memory
        Limits of the run: a budget, or seconds and memory. Where an exact answer does not fit, it
        is bounded from both sides.

    >>> import kikuchi as kk
    >>> kk.marginal_map(kk.example("asia"), ["smoke", "bronc"], {"dysp": "yes"})
    smoke=yes, bronc=yes (log-weight -1.413539, exact)
    """
    graph = model if isinstance(model, FactorGraph) else as_model(model)
    clock = limits(**within).start()
    known = given(graph, evidence, likelihood)
    wanted = asked_variables(graph, variables, "variables")
    if not wanted:
        raise ModelError("variables: name at least one")
    free = [v for v in wanted if v not in known.states]
    tables = _tables(graph, known)
    states, lower, upper = _solve(graph, tables, free, known, clock)
    states = {**known.states, **states}
    return MarginalMap(
        {graph.label(v): state_labels(graph, v)[states[v]] for v in wanted},
        lower,
        upper,
        lower == upper,
    )


def _tables(graph: FactorGraph, known: Given) -> list[Table]:
    """Log-tables at the evidence, with one of each likelihood and the constant."""
    tables: list[Table] = [((), np.array(graph.log_constant))]
    for a in range(graph.n_factors):
        scope = graph.scope(a)
        where = tuple(known.states.get(v, slice(None)) for v in scope)
        tables.append((tuple(v for v in scope if v not in known.states), graph.log_table(a)[where]))
    with np.errstate(divide="ignore"):
        tables += [((v,), np.log(w)) for v, w in known.weights.items()]
    return tables


def _solve(
    graph: FactorGraph, tables: list[Table], free: list[int], known: Given, clock: Clock
) -> tuple[dict[int, int], float, float]:
    limit = _MOST_ENTRIES
    if clock.budget.bytes is not None:
        limit = min(limit, max(clock.budget.bytes // 64, 16))
    hidden = set(range(graph.n_variables)) - set(free) - set(known.states)
    try:
        first = clock.left(_EXACT_PART).start()
        _require_small(graph, tables, hidden, limit, first)
        left = eliminate(graph, tables, hidden, limit, lambda v: _log_sum, first)
        return _maximised(graph, left, free, known, clock)
    except BudgetError:
        return _bounded(graph, tables, free, known, clock, min(limit, _BOUND_ENTRIES))


def _maximised(
    graph: FactorGraph, tables: list[Table], free: list[int], known: Given, clock: Clock
) -> tuple[dict[int, int], float, float]:
    """The best state of a model over the wanted variables only."""
    number = {v: k for k, v in enumerate(free)}
    constant = sum(float(table) for scope, table in tables if not scope)
    inner = [([number[v] for v in scope], table) for scope, table in tables if scope]
    if constant == -np.inf or any(np.max(table) == -np.inf for _, table in inner):
        raise impossible(graph, known)
    part = FactorGraph(graph.cardinalities[free], inner, log=True, log_constant=constant)
    engine = cache_of(part).engine((), (), set(), (), clock)
    found = engine.best(np.zeros(0, dtype=np.int32), np.zeros(0), clock)
    if found is None:
        raise impossible(graph, known)
    state = np.zeros(len(free), dtype=np.int64)  # 0 where there is a single state
    state[engine.open] = found[0]
    value = float(part.log_score(state))
    return {v: int(state[number[v]]) for v in free}, value, value


# ---------------------------------------------------------------------- elimination

Reduce = Callable[[Array, int], Array]


def eliminate(
    graph: FactorGraph,
    tables: list[Table],
    variables: set[int],
    limit: float,
    how: Callable[[int], Reduce],
    clock: Clock,
    *,
    split: bool = False,
) -> list[Table]:
    """Eliminate variables, each by its own reduction, the one with the smallest product first.

    A product of more than `limit` entries is refused, as are tables that together exceed the memory
    of the `clock`, and work beyond its time. With `split` none is: products are made in pieces that
    fit, of which the first is reduced as asked and the others by their maximum, an upper bound, and
    variables that are left when the time is over are eliminated at the maximum of each table.
    """
    buckets = _EliminationQueue(graph, tables, variables)
    memory = math.inf if clock.budget.bytes is None else clock.budget.bytes / 8
    while buckets.of:
        late = clock.expired
        if late and split:
            return [((), np.array(_loosest(buckets, how)))]
        v, bucket, size = buckets.pop()
        room = 0.5 * (memory - buckets.entries)
        if not split and (late or size > min(limit, room)):
            raise BudgetError(_UNFIT)
        largest = max(min(limit, room), 1.0)
        pieces = _pieces(buckets.cards, bucket, largest) if split else [bucket] if bucket else []
        for k, piece in enumerate(pieces):
            scope, table = _product(graph, piece)
            reduce = how(v) if k == 0 else _maximum
            axis = scope.index(v)
            buckets.add((scope[:axis] + scope[axis + 1 :], reduce(table, axis)))
        if not bucket and how(v) is _log_sum:  # a variable without a factor counts its states
            buckets.add(((), np.array(float(np.log(buckets.cards[v])))))
        buckets.update()
    return list(buckets.tables.values())


def _require_small(
    graph: FactorGraph, tables: list[Table], variables: set[int], limit: float, clock: Clock
) -> None:
    """Refuse an elimination with a product of more than `limit` entries, before any is made."""
    nothing = np.zeros(0)
    buckets = _EliminationQueue(graph, [(scope, nothing) for scope, _ in tables], variables)
    while buckets.of:
        v, bucket, size = buckets.pop()
        if size > limit or clock.expired:
            raise BudgetError(_UNFIT)
        scope = set().union(*(scope for scope, _ in bucket)) - {v}
        buckets.add((tuple(scope), nothing))
        buckets.update()


def _loosest(buckets: _EliminationQueue, how: Callable[[int], Reduce]) -> float:
    """An upper bound on what eliminating all variables that are left would give: the maximum of
    each table, times the number of states of the variables that are summed out.
    """
    counts = [float(buckets.cards[v]) for v in buckets.of if how(v) is _log_sum]
    tops = [float(table.max()) for _, table in buckets.tables.values()]
    return float(np.sum(np.log(counts))) + sum(tops)


class _EliminationQueue:
    """Tables by number, those of each variable, and the variables that are left in a queue by the
    size of the product of their tables.
    """

    def __init__(self, graph: FactorGraph, tables: list[Table], variables: set[int]) -> None:
        self.cards = graph.cardinalities.astype(np.float64)
        self.tables: dict[int, Table] = {}
        self.of: dict[int, set[int]] = {v: set() for v in variables}
        self.sizes: dict[int, float] = {}
        self.queue: list[tuple[float, int]] = []
        self.changed = set(variables)
        self.count = 0
        self.entries = 0  # of all tables
        for table in tables:
            self.add(table)
        self.update()

    def add(self, table: Table) -> None:
        """Put a table into the buckets of its variables."""
        self.tables[self.count] = table
        self.entries += table[1].size
        for v in table[0]:
            if v in self.of:
                self.of[v].add(self.count)
                self.changed.add(v)
        self.count += 1

    def update(self) -> None:
        """Queue the variables whose tables have changed."""
        for v in self.changed:
            scope = {u for k in self.of[v] for u in self.tables[k][0]}
            size = float(np.prod(self.cards[sorted(scope)])) if scope else 1.0
            if self.sizes.get(v) != size:
                self.sizes[v] = size
                heapq.heappush(self.queue, (size, v))
        self.changed.clear()

    def pop(self) -> tuple[int, list[Table], float]:
        """Take out the variable with the smallest product: its tables, and the product's size."""
        size, v = heapq.heappop(self.queue)
        while self.sizes.get(v) != size:  # it has changed since, or v is eliminated
            size, v = heapq.heappop(self.queue)
        del self.sizes[v]
        bucket = [self.tables.pop(k) for k in sorted(self.of.pop(v))]
        self.entries -= sum(table.size for _, table in bucket)
        for scope, _ in bucket:
            for u in scope:
                if u in self.of:
                    self.of[u] &= self.tables.keys()
                    self.changed.add(u)
        return v, bucket, size


def _pieces(cards: Array, bucket: list[Table], limit: float) -> list[list[Table]]:
    """Tables in groups whose products fit, large ones first."""
    groups: list[tuple[set[int], list[Table]]] = []
    for table in sorted(bucket, key=lambda t: -t[1].size):
        for scope, group in groups:
            union = scope | set(table[0])
            if float(np.prod(cards[sorted(union)])) <= limit:
                scope |= union
                group.append(table)
                break
        else:
            groups.append((set(table[0]), [table]))
    return [group for _, group in groups]


def _product(graph: FactorGraph, tables: list[Table]) -> Table:
    scope = tuple(sorted(set().union(*(scope for scope, _ in tables))))
    total = np.zeros([int(graph.cardinalities[v]) for v in scope])
    for names, table in tables:
        order = sorted(range(len(names)), key=lambda k: names[k])
        shape = [int(graph.cardinalities[v]) if v in names else 1 for v in scope]
        total = total + np.transpose(table, order).reshape(shape)
    return scope, total


def _log_sum(table: Array, axis: int) -> Array:
    top = table.max(axis=axis, keepdims=True)
    safe = np.where(np.isneginf(top), 0.0, top)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(table - safe).sum(axis=axis)) + safe.squeeze(axis))


def _maximum(table: Array, axis: int) -> Array:
    return np.asarray(table.max(axis=axis))


# ---------------------------------------------------------------------- bounds


def _bounded(
    graph: FactorGraph,
    tables: list[Table],
    free: list[int],
    known: Given,
    clock: Clock,
    limit: float,
) -> tuple[dict[int, int], float, float]:
    """States by local search with their weight from below, and a bound on that of any states."""
    wanted = set(free)
    everything = set(range(graph.n_variables)) - set(known.states)
    left = eliminate(
        graph,
        tables,
        everything,
        limit,
        lambda v: _maximum if v in wanted else _log_sum,
        clock.left(_BOUND_PART).start(),
        split=True,
    )
    upper = sum(float(table) for _, table in left)
    if upper == -np.inf:
        raise impossible(graph, known)
    states, lower = _searched(graph, free, known, clock)
    return states, lower, max(upper, lower)


def _searched(
    graph: FactorGraph, free: list[int], known: Given, clock: Clock
) -> tuple[dict[int, int], float]:
    """Coordinate ascent on the weight of the wanted states, from their most probable marginals.

    Every weight is a lower bound that was found in a share of the time that is left.
    """
    model = graph.with_fields([(v, log_of(w)) for v, w in known.weights.items()])
    moves = [(v, k) for v in free for k in range(int(graph.cardinalities[v]))]
    start = infer(model, "auto", evidence=known.states, budget=clock.left(_START_PART))
    states = {v: int(np.argmax(start[v])) for v in free}
    best = _weight_of(model, {**known.states, **states}, clock.left(1.0 / (1 + len(moves))))
    for _ in range(_SWEEPS):
        before = best
        for number, (v, k) in enumerate(moves):
            if k == states[v] or clock.seconds_left < _LEAST_SECONDS:
                continue
            tried = {**states, v: k}
            budget = clock.left(1.0 / (len(moves) - number))
            weight = _weight_of(model, {**known.states, **tried}, budget)
            if weight > best:
                states, best = tried, weight
        if best <= before or clock.expired:
            break
    return states, best


def _weight_of(model: FactorGraph, states: dict[int, int], budget: Budget) -> float:
    """A lower bound on the logarithm of the weight of some states, the others summed out."""
    try:
        found = infer(model, "auto", evidence=states, budget=budget)
    except ImpossibleEvidenceError:
        return -np.inf
    except BudgetError:
        rest = model.reduce(states).graph
        even = np.repeat(1.0 / rest.cardinalities, rest.cardinalities)
        return certain_bounds(rest, even)[0] + rest.log_constant
    return -np.inf if found.log_z_lower is None else float(found.log_z_lower)
