"""Certified bounds on log Z that tighten with time.

`Portfolio` runs several methods on one graph with a common clock and records their bounds. `bounds`
uses it to run a schedule of increasingly expensive methods: mean field and tree-reweighting first,
then structured mean field and weighted mini-buckets with increasing i-bounds.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from kikuchi.brackets.live import BoundsBar
from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget, Clock, RunLimits, limits, named_limits
from kikuchi.core.compiling import compiles_when_needed
from kikuchi.core.errors import BudgetError, MethodError
from kikuchi.core.labelled import html_facts
from kikuchi.core.progress import Progress, ProgressOption, phase, shown, silent
from kikuchi.engines.mini_buckets.plan import (
    least_ibound,
    mini_bucket_plan,
    planning_seconds,
)
from kikuchi.engines.run import rounding_error
from kikuchi.engines.small_work import loops_for
from kikuchi.graphs.factor_graph import Evidence, FactorGraph, check_graph
from kikuchi.methods.beliefs import Beliefs
from kikuchi.methods.method import Method, certain_bounds, crossed_bounds
from kikuchi.methods.registry import METHODS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEFAULT_SECONDS = 10.0
LOOPS = ("mf", "trw", "tree-mf:width=1", "wmb:ibound=2")
_FROM_TABLES = "tables"  # name of the bounds that need one pass over the tables
_ROUNDING = 1e-9  # relative to log Z: bounds that cross by less have met
_ENTRIES_PER_SECOND = 2e8
_EVALUATIONS = 60  # evaluations of a bound and its gradient that make an i-bound worthwhile
_GROWTH = 8.0  # factor of the cost from one i-bound to the next
_MOST_IBOUND = 40


@dataclass(frozen=True)
class BoundStep:
    """The best bounds at one time, and the running method."""

    seconds: float
    lower: float
    upper: float
    method: str


@dataclass
class LogZBounds:
    """The best certified bounds on log Z, and their history.

    Bounds that are not known yet are infinite. `rounding` is the gap that rounding errors alone may
    cause.

    `lower` and `upper` are the bounds, `lower_method` and `upper_method` the methods that proved
    them, `history` every improvement, `skipped` the methods that were not run, with the reasons.

    >>> LogZBounds(lower=1.0, upper=3.0).gap
    2.0
    """

    lower: float = -math.inf
    upper: float = math.inf
    lower_method: str = ""
    upper_method: str = ""
    history: list[BoundStep] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    rounding: float = 0.0

    def _repr_html_(self) -> str:
        facts = [
            ("at least", f"{self.lower:.9g} by {self.lower_method or 'nothing'}"),
            ("at most", f"{self.upper:.9g} by {self.upper_method or 'nothing'}"),
            ("gap", f"{self.gap:.3g} nats"),
        ]
        return html_facts("Bounds on log Z", facts)

    @property
    def gap(self) -> float:
        """Upper minus lower bound, in nats; infinite while one is missing."""
        return self.upper - self.lower

    @property
    def closed(self) -> bool:
        """Whether the bounds have met, up to rounding."""
        return self.gap <= _ROUNDING * max(1.0, abs(self.lower)) + 4.0 * self.rounding

    def update(self, beliefs: Beliefs, started: float = 0.0) -> None:
        """Update with the bounds of a run, step by step, from its `beliefs`; the run started at
        `started` seconds.
        """
        trace = beliefs.trace
        for low, high, seconds in zip(trace.lower, trace.upper, trace.seconds, strict=True):
            self._improve(low, high, started + seconds, beliefs.method)
        low = -math.inf if beliefs.log_z_lower is None else beliefs.log_z_lower
        high = math.inf if beliefs.log_z_upper is None else beliefs.log_z_upper
        self._improve(low, high, started + beliefs.seconds, beliefs.method)

    def take(self, lower: float, upper: float, constant: float, by: str) -> None:
        """Update with the bounds `lower` and `upper` on log Z minus a `constant`, valid up to
        rounding, where they improve on the known ones; `by` names their source.
        """
        seconds = self.history[-1].seconds if self.history else 0.0
        low, high = lower + constant - self.rounding, upper + constant + self.rounding
        self._improve(low, high, seconds, by)

    def _improve(self, lower: float, upper: float, seconds: float, method: str) -> None:
        improved = False
        if lower > self.lower:  # False for NaN, which is "not known"
            self.lower, self.lower_method, improved = lower, method, True
        if upper < self.upper:
            self.upper, self.upper_method, improved = upper, method, True
        if self.lower > self.upper:
            raise crossed_bounds(self.lower, self.lower_method, self.upper, self.upper_method)
        if improved:
            self.history.append(BoundStep(seconds, self.lower, self.upper, method))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; infinite bounds are None."""
        return {
            "lower": _finite(self.lower),
            "upper": _finite(self.upper),
            "gap": _finite(self.gap),
            "lower_method": self.lower_method or None,
            "upper_method": self.upper_method or None,
            "history": [
                {
                    "seconds": step.seconds,
                    "lower": _finite(step.lower),
                    "upper": _finite(step.upper),
                    "method": step.method,
                }
                for step in self.history
            ],
            "skipped": self.skipped,
        }

    def plot(self, title: str | None = None) -> Figure:
        """Plot both bounds against time, with a `title`."""
        from kikuchi.plots.bounds import bounds_over_time

        steps = self.history
        return bounds_over_time(
            [s.seconds for s in steps],
            [s.lower if math.isfinite(s.lower) else math.nan for s in steps],
            [s.upper if math.isfinite(s.upper) else math.nan for s in steps],
            [s.method for s in steps],
            title=title,
        )

    def __repr__(self) -> str:
        return f"LogZBounds({self.lower:.6f} <= log Z <= {self.upper:.6f}, gap {self.gap:.3g})"


class Portfolio:
    """Runs of several methods on one graph with a common clock, and their bounds."""

    def __init__(self, graph: FactorGraph, clock: Clock, progress: Progress, limit: float) -> None:
        self.graph = graph
        self.clock = clock
        self.progress = progress
        self.limit = limit
        self.bounds = LogZBounds(rounding=rounding_error(graph))
        self.interrupted = False

    @property
    def seconds_left(self) -> float:
        """Seconds left."""
        return 0.0 if self.interrupted else self.limit - self.clock.seconds

    def attempt(
        self, method: Method, seconds: float = math.inf, *, at_least: float = 0.0
    ) -> Beliefs | None:
        """Run a method for a limited time, or for `at_least` some seconds even when the time is
        over.

        A method that does not support this model, or needs too much memory, is skipped;
        `bounds.skipped` contains the reason.
        """
        seconds = max(min(seconds, self.seconds_left), at_least)
        if seconds <= 0.0:
            return None
        began = self.clock.seconds
        budget = Budget(seconds=seconds, bytes=self.clock.budget.bytes)
        try:
            with phase(method.text):
                beliefs = method.run(self.graph, budget=budget, progress=self.progress)
        except (MethodError, BudgetError) as error:
            self.bounds.skipped[method.text] = str(error)
            self.interrupted |= isinstance(error.__cause__, KeyboardInterrupt)
            return None
        except KeyboardInterrupt:
            if not self.bounds.history:
                raise  # nothing to store
            self.interrupted = True
            self.bounds.skipped[method.text] = "interrupted before it had a result"
            return None
        self.interrupted |= beliefs.stopped == "interrupted"
        self.bounds.update(beliefs, began)
        if isinstance(self.progress, BoundsBar):
            self.progress.bounded(self.bounds.lower, self.bounds.upper)
        return beliefs

    def take_from_tables(self, marginals: Array) -> None:
        """Compute a missing bound by one pass over the tables; `marginals` are arbitrary flat
        marginals of all variables.
        """
        if not math.isfinite(self.bounds.gap):
            lower, upper = certain_bounds(self.graph, marginals)
            self.bounds.take(lower, upper, self.graph.log_constant, _FROM_TABLES)


@named_limits
def bounds(
    graph: FactorGraph,
    *,
    evidence: Evidence | None = None,
    ibound: int | None = None,
    progress: ProgressOption = None,
    **within: Unpack[RunLimits],
) -> LogZBounds:
    """Compute bounds on log Z from both sides, as tight as the time allows.

    The default time limit is 10 seconds, counted from when the compiled loops are loaded. Ctrl-C
    stops with the best bounds so far.

    Parameters
    ----------
    graph : FactorGraph
        The model.
    evidence : Evidence, optional
        Observed states by variable, given by name or number.
    budget, seconds, memory
        Limits of the run: a budget, or seconds and memory.
    ibound : int, optional
        No table has more than `ibound` + 1 variables; by default as many as memory and time allow.
        If this reaches the elimination width, the bounds meet.
    progress : ProgressOption, optional
        True for a bar, or a progress callback.

    >>> import kikuchi as kk
    >>> grid = kk.grid(4, 4, seed=0)
    >>> proved = bounds(grid, ibound=2, seconds=1)
    >>> exact = kk.infer(grid, "jt").log_z
    >>> proved.lower <= exact <= proved.upper
    True
    """
    check_graph(graph, "bounds")
    budget = limits(**within)
    reduced = graph.reduce(graph.resolve(evidence)).graph
    check_ibound(reduced, ibound)
    with loops_for(graph):
        return _schedule(reduced, budget, ibound, progress)


def _schedule(
    reduced: FactorGraph, budget: Budget, ibound: int | None, progress: ProgressOption
) -> LogZBounds:
    """Attempt one method after the other until the bounds meet or the time is over."""
    load_loops(LOOPS, reduced)
    clock = budget.start()
    limit = DEFAULT_SECONDS if budget.seconds is None else budget.seconds
    with shown(progress, BoundsBar(limit, lines=True)) as report:
        if isinstance(report, BoundsBar):
            report.clock = clock
        portfolio = Portfolio(reduced, clock, report, limit)
        try:
            for method, allotted in bound_schedule(portfolio, ibound):
                portfolio.attempt(method, allotted)
                if portfolio.bounds.closed or portfolio.seconds_left <= 0.0:
                    break
        except KeyboardInterrupt:  # between two runs, while the next is planned
            if not portfolio.bounds.history:
                raise
        if reduced.n_factors:
            portfolio.take_from_tables(
                np.repeat(1.0 / reduced.cardinalities, reduced.cardinalities)
            )
    return portfolio.bounds


def load_loops(texts: tuple[str, ...], graph: FactorGraph) -> None:
    """Load the compiled loops that methods need on a graph, once per process: those for binary
    pairwise positive models, or those for all others.
    """
    if not compiles_when_needed():
        return
    plain = np.all(graph.cardinalities == 2) and np.all(np.diff(graph.scope_offsets) <= 2)
    _load_loops(texts, not (plain and np.isfinite(graph.log_tables).all()))


@functools.cache
def _load_loops(texts: tuple[str, ...], general: bool) -> None:
    """Run methods on a small model."""
    pairs = [((v, (v + 1) % 4), [[1.0, 1.1], [1.2, 1.3]]) for v in range(3 if general else 4)]
    if general:
        triple = np.array([1.0, 1.1, 1.2, 0.0, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2.0, 2.1])
        small = FactorGraph([2, 2, 2, 2, 3], [*pairs, ((0, 3, 4), triple), ((4,), [1, 2, 3])])
    else:
        small = FactorGraph([2] * 4, pairs)
    portfolio = Portfolio(small, Budget().start(), silent, math.inf)
    for text in texts:
        portfolio.attempt(METHODS.parse(text))
        if portfolio.interrupted:
            raise KeyboardInterrupt


def bound_schedule(
    portfolio: Portfolio, ibound: int | None = None
) -> Iterator[tuple[Method, float]]:
    """Yield methods that bound log Z with their time limits, from cheap to expensive.

    Structured mean field nearly always gives the better lower bound. Mini-buckets compute both
    bounds only at the first i-bound, and afterwards if their lower bound was the better one.
    """
    whole = portfolio.seconds_left
    for text, part in (("mf", 0.05), ("trw", 0.10)):
        method = METHODS.parse(text)
        yield method, max(part * whole, method.least_seconds(portfolio.graph))
    structured: set[str] = set()
    ibounds = list(_ibounds(portfolio, ibound))
    if not ibounds:  # a large graph: there is no time for even one plan of mini-buckets
        yield METHODS.parse(f"tree-mf:width={least_ibound(portfolio.graph)}"), math.inf
    for number, (size, exact) in enumerate(ibounds):
        last = number == len(ibounds) - 1
        if not exact:
            method = METHODS.parse(f"tree-mf:width={size}")
            structured.add(method.text)
            yield method, (0.3 if last else 0.1) * portfolio.seconds_left
        ahead = portfolio.bounds.lower_method in structured
        both = exact or number == 0 or not ahead
        text = f"wmb:ibound={size}" + ("" if both else ",bound=upper")
        yield METHODS.parse(text), (0.9 if last else 0.2) * portfolio.seconds_left
    yield METHODS.parse("trw:appearances=optimised"), portfolio.seconds_left


def check_ibound(graph: FactorGraph, ibound: int | None) -> None:
    """Raise an error if an i-bound is too small for the largest factor, or not an integer."""
    if ibound is None:
        return
    if isinstance(ibound, bool) or not isinstance(ibound, int | np.integer):
        raise MethodError(f"ibound must be an integer or None, got {ibound!r}")
    smallest = least_ibound(graph)
    if ibound < smallest:
        raise MethodError(
            f"an i-bound of {ibound} is too small for a factor of {smallest + 1} variables; "
            f"use at least {smallest}"
        )


def _ibounds(portfolio: Portfolio, ibound: int | None) -> Iterator[tuple[int, bool]]:
    """Return the i-bounds that memory and time allow, each several times as expensive as the one
    before, and whether they reach the elimination width.
    """
    graph = portfolio.graph
    smallest = least_ibound(graph)
    highest = _MOST_IBOUND if ibound is None else ibound
    highest = min(highest, max(graph.n_variables - 1, smallest))
    last_cost = 0.0
    wanted = None
    for size in range(smallest, highest + 1):
        if portfolio.seconds_left <= planning_seconds(graph):
            break
        plan = mini_bucket_plan(graph, size)
        cost = plan.operations
        if not _affordable(portfolio, plan.bytes, cost) and size > smallest:
            break
        wanted = size
        if plan.exact or cost >= _GROWTH * last_cost:
            last_cost, wanted = cost, None
            yield size, plan.exact
        if plan.exact:
            break
    if wanted is not None:
        yield wanted, False


def _affordable(portfolio: Portfolio, needed: int, operations: float) -> bool:
    allowed = portfolio.clock.budget.bytes
    fits = allowed is None or needed <= allowed
    return fits and _EVALUATIONS * operations / _ENTRIES_PER_SECOND <= portfolio.seconds_left


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
