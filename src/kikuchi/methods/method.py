"""`Method`: the base class of inference methods.

A method is a frozen dataclass of options. `Method.run` contains the common steps: it checks the
evidence, reduces the graph by it, enforces the budget, and maps the result back to the variables of
the original graph. A new method defines its options and `_solve`.

Reference: LIU-M4, TEH-M24.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from logging import DEBUG
from typing import Any, ClassVar, Literal, ParamSpec, TypeVar

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Budget, Clock, limits
from kikuchi.core.errors import EvidenceError, KikuchiError, MethodError, OutOfTimeError
from kikuchi.core.interrupts import safe_interrupts
from kikuchi.core.log import logger
from kikuchi.core.numerics import entropy
from kikuchi.core.options import Configured, option
from kikuchi.core.progress import Progress, ProgressOption, shown
from kikuchi.core.trace import Trace
from kikuchi.engines.engine import Engine
from kikuchi.engines.feasibility import require_possible
from kikuchi.engines.loops.iterate import Ended
from kikuchi.engines.response.linear_response import product_covariance
from kikuchi.engines.run import Covariance, Joint, MethodRun, Solution
from kikuchi.engines.small_work import SMALL_FOR_MANY_SWEEPS, loops_for
from kikuchi.engines.start import Start
from kikuchi.graphs.conditioned import expand_factors, expand_marginals, expand_states
from kikuchi.graphs.factor_graph import Conditioned, Evidence, FactorGraph
from kikuchi.graphs.graph_arrays import flatten
from kikuchi.methods.beliefs import Beliefs
from kikuchi.methods.names import METHODS

__all__ = [
    "Method",
    "expand_covariance",
    "more_damping",
    "option",
]

P = ParamSpec("P")
T = TypeVar("T")

_LOG = logger("methods")
_READINGS_BEFORE = 1.5  # default ratio of the set-up to the time for reading off the result
_SHORT = 0.05  # negligible seconds for reading off the result
_FEW_BYTES = 20_000_000  # negligible compared with the memory of the process itself
_CHEAP, _CHEAP_FOR_MARGINALS = ("bp", "mf"), ("loopy-is", "is-bp")  # methods for large graphs
_SLACK = 1e-6  # relative to log Z, or nats: tolerance of an estimate outside its bounds
_COVARIANCE_COPIES = 4  # the matrix itself and its intermediate arrays


@dataclass(frozen=True)
class Method(Configured, ABC):
    """Base class of all inference methods.

    The class attributes declare the requirements and results of a method. `kikuchi info`, `auto`,
    the report pages and the documentation use them; a test compares each of them with the behaviour
    of the method.

    Attributes
    ----------
    exactness
        Models on which the marginals and log Z are exact: all supported models ("always"), those
        within the budget ("affordable"), graphs without cycles ("forests") or none ("never").
    certifies
        Bounds on log Z that the method proves with its default options: "lower", "upper".
    needs_binary_pairwise, needs_positive_tables, needs_forest
        Restrictions of the supported models: variables of two states in factors of at most two
        variables, tables without zeros, graphs without cycles (observed marginals cut cycles).
    needs_junction_tree, most_joint_states
        Whether the tables of a junction tree must fit into memory, and the maximum number of joint
        states that an enumeration sums over, with the default options.
    takes_observed_marginals, only_for_observed_marginals
        Whether evidence may be distributions, and whether the method is pointless without them.
    gives_log_z, gives_factor_beliefs, gives_covariance
        Whether a result contains an estimate of log Z, a belief of each factor, and covariances.
    takes_start
        Whether a run can continue from the result of an earlier one.
    caveat_with_zeros
        Caveat for tables with zeros.
    edge_seconds
        Seconds per edge, for graphs larger than the processor caches, to read off the result after
        the last iteration; see `least_seconds`.
    edge_setup_seconds
        Seconds per edge of such a graph until the end of the first iteration; None for 1.5 times
        those of reading off the result.
    edge_bytes
        Bytes per edge that a run adds to the memory of the process, besides two copies of all
        tables; see `least_bytes`.
    most_interpreted
        Table entries up to which the method runs as plain Python, without compiled loops.

    >>> from kikuchi.methods import BeliefPropagation
    >>> BeliefPropagation(damping=0.5).text, BeliefPropagation.exactness
    ('bp:damping=0.5', 'forests')
    """

    objective_name: ClassVar[str] = "objective"
    exactness: ClassVar[Literal["always", "affordable", "forests", "never"]] = "never"
    certifies: ClassVar[tuple[Literal["lower", "upper"], ...]] = ()
    needs_binary_pairwise: ClassVar[bool] = False
    needs_positive_tables: ClassVar[bool] = False
    needs_forest: ClassVar[bool] = False
    needs_junction_tree: ClassVar[bool] = False
    most_joint_states: ClassVar[int | None] = None
    takes_observed_marginals: ClassVar[bool] = False
    only_for_observed_marginals: ClassVar[bool] = False
    gives_log_z: ClassVar[bool] = True
    gives_factor_beliefs: ClassVar[bool] = True
    gives_covariance: ClassVar[bool] = False
    takes_start: ClassVar[bool] = False
    caveat_with_zeros: ClassVar[str] = ""
    most_interpreted: ClassVar[int] = SMALL_FOR_MANY_SWEEPS
    edge_seconds: ClassVar[float] = 2e-7
    edge_setup_seconds: ClassVar[float | None] = None
    edge_bytes: ClassVar[int] = 82

    @property
    def gives_marginals(self) -> bool:
        """False if options request a most probable state: beliefs are then max-marginals."""
        return True

    def least_seconds(self, graph: FactorGraph) -> float:
        """Return the least seconds of a run on a large `graph`, including set-up and reading off
        the result; 0 if negligible.

        >>> from kikuchi import grid
        >>> from kikuchi.methods import BeliefPropagation
        >>> BeliefPropagation().least_seconds(grid(4, 4))
        0.0
        """
        reading, setup = self._reading_seconds(graph), self.edge_setup_seconds
        before = _READINGS_BEFORE * reading if setup is None else setup * graph.n_edges
        return before + reading if reading > _SHORT else 0.0

    def _reading_seconds(self, graph: FactorGraph) -> float:
        """Return the seconds for reading off the result after the last iteration."""
        return self.edge_seconds * graph.n_edges

    def least_bytes(self, graph: FactorGraph) -> int:
        """Return the least bytes that a run on a large `graph` adds to the memory of the process; 0
        if negligible.

        >>> from kikuchi import grid
        >>> from kikuchi.methods import BeliefPropagation
        >>> BeliefPropagation().least_bytes(grid(4, 4))
        0
        """
        needed = 2 * graph.log_tables.nbytes + self.edge_bytes * graph.n_edges
        return needed if needed > _FEW_BYTES else 0

    @safe_interrupts()
    def run(
        self,
        graph: FactorGraph,
        *,
        evidence: Evidence | None = None,
        budget: Budget | None = None,
        seconds: float | None = None,
        memory: int | str | None = None,
        progress: ProgressOption = None,
        start: Beliefs | Start | None = None,
    ) -> Beliefs:
        """Infer the marginals of `graph` given `evidence`; the arguments are those of `infer`.

        `budget`, or `seconds` and `memory`, limit the run; `progress` is a progress callback, or
        True for a bar. `start` is an earlier result to continue from.
        """
        allowed = limits(budget, seconds, memory)
        with loops_for(graph, self._most_interpreted(graph)), shown(progress, self.text) as report:
            beliefs = self._run(graph, evidence, allowed.start(), report, start)
        if _LOG.isEnabledFor(DEBUG):
            _LOG.debug("%r of %r in %.3g s", beliefs, graph, beliefs.seconds)
        return beliefs

    def _most_interpreted(self, graph: FactorGraph) -> int:
        """Return the number of table entries up to which the method runs as plain Python on this
        graph.
        """
        return self.most_interpreted

    def _run(
        self,
        graph: FactorGraph,
        evidence: Evidence | None,
        clock: Clock,
        progress: Progress,
        start: Beliefs | Start | None,
    ) -> Beliefs:
        begin = None if start is None else self._start_of(start, graph)
        states, targets = graph.observations(evidence)
        if targets and not self.takes_observed_marginals:
            raise EvidenceError(
                f"variable {graph.label(next(iter(targets)))}: method {self.name} takes observed "
                "states, not observed marginals; `kikuchi methods` lists the methods that do"
            )
        reduced = graph.reduce(states)
        self._require_memory(reduced.graph, clock.budget, bool(targets))
        self._keep_time_for_the_answer(reduced.graph, clock, bool(targets))
        run = MethodRun(
            clock,
            progress,
            Trace(self.objective_name),
            reduced.graph.log_constant,
            dict(zip(_numbers(reduced, targets), targets.values(), strict=True)),
            reduced,
            begin,
        )
        if self._certainly_exact(reduced.graph, run):
            return self._answer(reduced, self.solve(reduced.graph, run), run)
        require_possible(reduced.graph)  # exact methods detect Z = 0 themselves
        solution = self.solve(reduced.graph, run)
        if not targets and solution.log_z is not None and reduced.graph.n_factors:
            warn_outside_bounds(reduced.graph, solution)
        return self._answer(reduced, solution, run)

    def _start_of(self, given: Beliefs | Start, graph: FactorGraph) -> Start | None:
        """Return the state of an earlier result from which a run on `graph` can continue; None if
        it had no remaining factor.
        """
        if not isinstance(given, Beliefs | Start):
            raise MethodError(
                f"start must be the result of an earlier run, got {type(given).__name__}"
            )
        if not self.takes_start:
            able = [name for name, cls in METHODS.items() if cls.takes_start]
            raise MethodError(
                f"method {self.name} takes no start: omit start=, or use one of {', '.join(able)}"
            )
        start = given if isinstance(given, Start) else given._start
        if start is None and isinstance(given, Beliefs):
            before = given.graph.reduce(given.evidence)
            if not before.graph.n_factors:
                Start(before, given.method).require_scopes(graph)
                return None
        if start is None:
            raise MethodError(
                f"start: a result of {given.method} has no state to start from; start from one of "
                "bp, fractional, alpha, trw, gbp, kikuchi or mf"
            )
        start.require_scopes(graph)
        return start

    def _require_memory(self, graph: FactorGraph, budget: Budget, observed: bool) -> None:
        """Raise an error if a run does not fit into memory, before it allocates any."""
        needed = self.least_bytes(graph)
        if budget.bytes is None or needed <= budget.bytes:
            return
        what = f"{self.name} on a model of {graph.n_variables} variables"
        way_out = "allow more memory" + self._cheaper(graph, budget, observed)
        budget.require_bytes(needed, what, way_out)

    def _keep_time_for_the_answer(self, graph: FactorGraph, clock: Clock, observed: bool) -> None:
        """End the clock of a run on a large graph before its limit, by the time for reading off the
        result; raise an error if a run cannot end within the limit.
        """
        least, seconds = self.least_seconds(graph), clock.budget.seconds
        if seconds is None or least == 0.0:
            return
        if least > seconds:
            raise OutOfTimeError(
                f"{self.name} takes about {least:.2g} s on a model of {graph.n_variables} "
                f"variables, more than the {seconds:.3g} s of the budget; give more seconds"
                + self._cheaper(graph, clock.budget, observed)
            )
        reading = self._reading_seconds(graph)
        clock.keep_time(reading, least - reading)

    def _cheaper(self, graph: FactorGraph, budget: Budget, observed: bool) -> str:
        """Return the methods that fit the budget, as the end of an error message; `observed` are
        marginals.
        """
        able = [METHODS[name]() for name in (_CHEAP_FOR_MARGINALS if observed else _CHEAP)]
        fitting = [method.name for method in able if method._fits(graph, budget)]
        return f" or use {' or '.join(fitting)}" if fitting else ", or observe more variables"

    def _fits(self, graph: FactorGraph, budget: Budget) -> bool:
        seconds = math.inf if budget.seconds is None else budget.seconds
        most = math.inf if budget.bytes is None else budget.bytes
        return self.least_seconds(graph) <= seconds and self.least_bytes(graph) <= most

    def _certainly_exact(self, graph: FactorGraph, run: MethodRun) -> bool:
        """Return whether the result on this graph is certainly exact, so that no other check is
        needed.
        """
        return self.exactness == "always"

    def solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        """Solve a `graph` already reduced by evidence, as part of the `run` of another method."""
        if graph.n_factors == 0:
            return _independent(graph, run)
        with run.clock.watching():
            return self._solve(graph, run)

    @abstractmethod
    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        """Solve a graph without evidence or single-state variables."""

    def _answer(self, reduced: Conditioned, solution: Solution, run: MethodRun) -> Beliefs:
        _check_numbers(self.text, solution)
        constant = reduced.graph.log_constant
        graph = reduced.original
        tables = solution.factor_tables
        lower, upper = solution.log_z_lower, solution.log_z_upper
        lower = None if lower is None else float(lower) - run.rounding + constant
        upper = None if upper is None else float(upper) + run.rounding + constant
        if lower is not None and upper is not None and lower > upper:
            raise crossed_bounds(lower, self.text, upper, self.text)
        return Beliefs(
            graph=graph,
            method=self.text,
            flat_beliefs=expand_marginals(reduced, solution.marginals),
            log_z=_shift(solution.log_z, constant),
            log_z_lower=lower,
            log_z_upper=upper,
            converged=bool(solution.converged),
            iterations=int(solution.iterations),
            seconds=run.clock.seconds,
            stopped=run.stopped,
            trace=run.trace,
            warnings=tuple(solution.warnings),
            diagnostics=solution.diagnostics,
            state=None if solution.state is None else expand_states(reduced, solution.state),
            score=_shift(solution.score, constant),
            max_product=not self.gives_marginals,
            evidence={v: k for v, k in reduced.observed.items() if graph.cardinalities[v] > 1},
            _factor_tables=None
            if tables is None
            else self._read_later(graph, lambda: expand_factors(reduced, tables())),
            _covariance=self._covariance(reduced, solution, run),
            _start=None if solution.engine is None else Start(reduced, self.text, solution.engine),
            _joint=None
            if solution.joint is None
            else self._read_later(graph, partial(_joint, reduced, solution.joint)),
        )

    def _read_later(self, graph: FactorGraph, read: Callable[P, T]) -> Callable[P, T]:
        """Make later reads of a result run as plain Python if the method did."""
        return partial(_read_interpreted, graph, self._most_interpreted(graph), read)

    def _covariance(
        self, reduced: Conditioned, solution: Solution, run: MethodRun
    ) -> Covariance | None:
        """Return covariances of the original graph; raise an error without enough memory or
        convergence.
        """
        inner = solution.covariance
        if inner is None:
            return None
        budget, converged = run.clock.budget, solution.converged

        def covariance(variables: Ints) -> Array:
            states = int(reduced.original.cardinalities[variables].sum(dtype=np.int64))
            budget.require_bytes(
                _COVARIANCE_COPIES * 8 * states**2,
                f"the covariance of {states} states",
                "name fewer variables (covariance(variables=...)) or allow more memory",
            )
            if not converged:
                raise KikuchiError(
                    f"{self.text} did not converge, and covariances are those of a fixed point; "
                    "allow more iterations, damp it, or use jt"
                )
            return expand_covariance(reduced, inner, variables)

        return self._read_later(reduced.original, covariance)


@dataclass(frozen=True)
class EngineMethod(Method):
    """Base class of methods that run one engine to a fixed point with a linear response."""

    def prepared(self, graph: FactorGraph, run: MethodRun) -> Any:
        """Return the preparation that depends only on the scopes of the `graph`; the `run` limits
        the time.
        """
        return None

    @abstractmethod
    def settled(
        self, graph: FactorGraph, run: MethodRun, prepared: Any = None
    ) -> tuple[Engine, Ended]:
        """Return the engine at its fixed point for the `graph`, and how the `run` ended.

        `prepared` is the result of `prepared` for a graph with the same scopes, if available.
        """


@dataclass(frozen=True)
class BinaryPairwiseMethod(Method):
    """Base class of methods for positive binary pairwise models with several starts."""

    needs_binary_pairwise: ClassVar[bool] = True
    needs_positive_tables: ClassVar[bool] = True

    restarts: int = option(2, "random starts after the first; the best result is returned", low=0)
    seed: int = option(0, "seed of the random starts", low=0)


@dataclass(frozen=True)
class ObservedMarginalsMethod(Method):
    """Base class of methods that are only useful with observed marginals."""

    takes_observed_marginals: ClassVar[bool] = True
    only_for_observed_marginals: ClassVar[bool] = True


def _read_interpreted(
    graph: FactorGraph, most: int, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    with loops_for(graph, most):
        return read(*args, **kwargs)


def _numbers(reduced: Conditioned, variables: Iterable[int]) -> list[int]:
    """Return the numbers in the reduced graph of variables of the original graph."""
    asked = np.fromiter(variables, dtype=np.int64)
    return list(np.searchsorted(reduced.variables, asked).tolist())


def _joint(reduced: Conditioned, joint: Joint, variables: list[int]) -> Array | None:
    """Return the joint of unobserved variables of the original graph."""
    return joint(np.searchsorted(reduced.variables, variables).tolist())


def expand_covariance(reduced: Conditioned, covariance: Covariance, variables: Ints) -> Array:
    """Return covariances of variables of the original graph, zero for observed ones."""
    cards = reduced.original.cardinalities[variables]
    free = np.isin(variables, reduced.variables)
    numbers = np.searchsorted(reduced.variables, variables[free])
    if free.all():
        return covariance(numbers)
    out = np.zeros((int(cards.sum(dtype=np.int64)),) * 2)
    if free.any():
        rows = np.flatnonzero(np.repeat(free, cards))
        out[np.ix_(rows, rows)] = covariance(numbers)
    return out


def more_damping(damping: float) -> str:
    """Return the damping to try next, as an option, larger than the present one.

    >>> more_damping(0.0), more_damping(0.5)
    ('damping=0.5', 'damping=0.75')
    """
    return f"damping={0.5 if damping < 0.5 else 0.5 * (1.0 + damping):g}"


# ---------------------------------------------------------------------- checks


def _independent(graph: FactorGraph, run: MethodRun) -> Solution:
    """Return the result of every method if no factor remains: uniform except for observed
    marginals.
    """
    cards = graph.cardinalities.astype(np.float64)
    marginals = np.repeat(1.0 / cards, graph.cardinalities)
    for v, target in run.targets.items():
        marginals[graph.state_offsets[v] : graph.state_offsets[v + 1]] = target
    log_z = float(entropy(marginals))
    return Solution(
        marginals,
        log_z,
        log_z_lower=log_z,
        log_z_upper=log_z,
        factor_tables=lambda: np.zeros(0),
        covariance=lambda variables: product_covariance(graph, marginals, variables),
        joint=partial(_product_joint, graph, marginals, Budget(bytes=run.clock.budget.bytes)),
        state=np.zeros(graph.n_variables, dtype=np.int64),
        score=0.0,
    )


def _product_joint(
    graph: FactorGraph, marginals: Array, budget: Budget, variables: list[int]
) -> Array:
    """Return the joint of independent variables."""
    cards = graph.cardinalities[variables].tolist()
    needed = 8 * math.prod(map(int, cards))
    budget.require_bytes(needed, f"the joint of {len(cards)} variables", "request fewer")
    joint = np.ones(())
    for v in variables:
        own = marginals[graph.state_offsets[v] : graph.state_offsets[v + 1]]
        joint = np.multiply.outer(joint, own)
    return joint


def certain_bounds(graph: FactorGraph, marginals: Array) -> tuple[float, float]:
    """Return bounds on log Z, without the constant of the graph, from one pass over the tables. The
    `marginals` are those of any method; more accurate ones give a higher lower bound.
    """
    from kikuchi.engines.mean_field.kernels.mean_field import simple_bounds

    totals = np.add.reduceat(marginals, graph.state_offsets[:-1])
    q = marginals / np.repeat(totals, graph.cardinalities)
    scratch = np.empty(2 * int(np.diff(graph.table_offsets).max()))
    lower, upper = simple_bounds(flatten(graph), q, scratch)
    return float(lower), float(upper)


def warn_outside_bounds(graph: FactorGraph, solution: Solution) -> None:
    """Warn about an estimate of log Z outside certified bounds.

    Besides the method's own bounds, those from one pass over the tables are used (`simple_bounds`).
    An estimate outside the method's bounds by no more than its precision is moved to the nearest
    bound.
    """
    estimate = solution.log_z
    assert estimate is not None  # checked by the caller
    lower, upper = certain_bounds(graph, solution.marginals)
    least = -math.inf if solution.log_z_lower is None else solution.log_z_lower
    most = math.inf if solution.log_z_upper is None else solution.log_z_upper
    lower, upper = max(lower, least), min(upper, most)
    slack = _SLACK * max(1.0, abs(estimate))
    if not lower - slack <= estimate <= upper + slack:
        constant = graph.log_constant
        solution.warnings.append(
            f"the estimate {estimate + constant:.6g} of log Z is outside its certified bounds, "
            "from "
            f"{lower + constant:.6g} to {upper + constant:.6g}: this result is not reliable; use "
            "jt or auto, or compare with bp"
        )
    elif not least <= estimate <= most:
        solution.log_z = min(max(estimate, least), most)


def crossed_bounds(lower: float, by: str, upper: float, and_by: str) -> KikuchiError:
    """Return the error for a lower bound on log Z above an upper one, with the methods that proved
    them.
    """
    return KikuchiError(
        f"the bounds on log Z cross: at least {lower!r} by {by}, at most {upper!r} by {and_by}; "
        "one is false, which is a bug in kikuchi, please report the model"
    )


def _check_numbers(text: str, solution: Solution) -> None:
    numbers = [solution.log_z, solution.log_z_lower, solution.log_z_upper, solution.score]
    if np.isnan(solution.marginals).any() or any(x is not None and math.isnan(x) for x in numbers):
        raise KikuchiError(
            f"{text} produced NaN; this is a bug in kikuchi, please report the model"
        )


def _shift(value: float | None, by: float) -> float | None:
    return None if value is None else float(value) + by
