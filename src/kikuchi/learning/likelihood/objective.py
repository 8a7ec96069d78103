"""Log-likelihood of rows as clamped minus free log Z, with any inference for either phase.

objective(theta) = mean_rows log Z(row; theta) - log Z(theta), and its gradient by the log-tables is
expected counts given the rows minus those of the model. With
inputs the free phase keeps those variables at each row's states: log p(rest | inputs).

Reference: HOJ-L1, LIU-D9, LIU-L2, LIU-L5, TEH-L1.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Budget, Clock
from kikuchi.core.errors import BudgetError, DataError, KikuchiError, MethodError, StartError
from kikuchi.core.run import StepAborted
from kikuchi.core.text import is_whole
from kikuchi.engines.loops.state import Held, State
from kikuchi.engines.messages.state import MessageState
from kikuchi.engines.regions.regions import RegionState
from kikuchi.engines.start import Start
from kikuchi.engines.trees.plan import TreePlan, make_plan, unconditioned
from kikuchi.engines.trees.tree import Tree
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.data import Data
from kikuchi.learning.likelihood.clamped import ClampedRows, ClampedRuns, feasible
from kikuchi.learning.likelihood.clamped_tree import PROPAGATIONS
from kikuchi.learning.real_numbers import MISSING
from kikuchi.methods.beliefs import Beliefs
from kikuchi.methods.kikuchi import Kikuchi
from kikuchi.methods.method import Method
from kikuchi.methods.registry import parse_method
from kikuchi.methods.tree_reweighted import TreeReweighted

Arrays = dict[str, NDArray[Any]]
Phase = Callable[[Array, Ints | None], tuple[float, Array]]

_EXACT = ("exact", "jt")
_MOST_OPERATIONS = 2e9  # of a tree that `auto` uses in every step: about two seconds
_DAMPINGS = (0.5, 0.9)


# ---------------------------------------------------------------------- inner inference


@dataclass(eq=False, init=False)
class InnerRuns(State):
    """Runs of one inference method that watch the clock and count failures to converge.

    What happens then is `on_divergence`: `damp` repeats the run with more damping, and keeps that;
    `continue` uses what there is; `stop` ends the fit; anything else is a method to change to.

    Attributes
    ----------
    level
        The number of the present alternative.
    runs, failures
        How many there were, and how many of them did not converge.
    start
        What a run without evidence goes on from; None for nothing.
    tol
        Inner inference need not be more precise than this; 0 for the tolerance of the method.
    """

    logarithms: ClassVar[tuple[str, ...]] = ("start/log_tables", "start/messages")

    level: int
    runs: int
    failures: int
    start: Held[Start]

    def __init__(
        self, graph: FactorGraph, text: str, clock: Clock, on_divergence: str = "damp"
    ) -> None:
        self.graph, self.tol = graph, 0.0
        self.start = Held(None, self._read_start, lambda start: start.state.to_arrays())
        self._latest: Beliefs | None = None
        self.clock = clock
        self.on_divergence = on_divergence
        self.methods = _alternatives(parse_method(text), on_divergence)
        self.level, self.runs, self.failures = 0, 0, 0

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on as the fit that saved its runs did."""
        super().load(arrays)
        if not 0 <= self.level < len(self.methods) or min(self.runs, self.failures) < 0:
            raise DataError(f"there is no method {self.level} for inner inference")

    def _read_start(self, arrays: Arrays) -> Start:
        kind = RegionState if "b" in arrays else MessageState
        state: State = kind.from_arrays(arrays)
        text = self.methods[self.level].text
        return Start(self.graph.reduce({}), text, saved=state)

    def run(self, graph: FactorGraph, evidence: dict[int, int] | None = None) -> Beliefs:
        """Beliefs from the present method, or from the first after it that converges."""
        while True:
            beliefs = self._run(graph, evidence)
            if beliefs.converged:
                return beliefs
            self.failures += 1
            if self.on_divergence == "stop":
                raise StepAborted("diverged")
            if self.level + 1 == len(self.methods):
                return beliefs
            self.level += 1

    def _run(self, graph: FactorGraph, evidence: dict[int, int] | None) -> Beliefs:
        limits = self.clock.budget
        left = None
        if limits.seconds is not None:
            left = max(limits.seconds - self.clock.seconds, 1e-3)
        budget = Budget(seconds=left, bytes=limits.bytes)
        self.runs += 1
        start = self.start.value if evidence is None and self._keeps_its_kind else None
        method = self._method()
        try:
            try:
                beliefs = method.run(graph, evidence=evidence, budget=budget, start=start)
            except StartError:  # the tables have changed which regions the method chooses
                beliefs = method.run(graph, evidence=evidence, budget=budget)
        except BudgetError as error:
            passed_on(error, self.clock)
        if beliefs.stopped == "interrupted":
            raise KeyboardInterrupt
        if self.clock.expired:
            raise StepAborted("seconds")
        if evidence is None:
            self._latest = beliefs
        return beliefs

    def _method(self) -> Method:
        """The present method, no more precise than it must be."""
        method = self.methods[self.level]
        if getattr(method, "tol", math.inf) >= self.tol:
            return method
        return dataclasses.replace(method, tol=self.tol)  # type: ignore[call-arg]

    def keep(self) -> None:
        """Start from what the last run has reached from now on."""
        if not self._keeps_its_kind:
            return
        if self._latest is not None and self._latest._start is not None:
            self.start.value = self._latest._start.as_data()

    @property
    def _keeps_its_kind(self) -> bool:
        """Whether the present method is the first, or differs from it in damping alone."""
        return self.level == 0 or self.on_divergence == "damp"

    @property
    def follows(self) -> bool:
        """Whether runs should start from one another: where the method minimises its free energy
        from any start, so that nothing but time depends on it.
        """
        return isinstance(self.methods[0], Kikuchi | TreeReweighted)

    @property
    def warnings(self) -> list[str]:
        """What a reader of the result must know."""
        if not self.failures:
            return []
        text = f"inner inference did not converge in {self.failures} of {self.runs} runs"
        if self.level:
            text += f"; changed to {self.methods[self.level].text}"
        stopped = ["stopped: inner inference did not converge (on_divergence=stop)"]
        return [*(stopped if self.on_divergence == "stop" else []), text]


def check_methods(texts: tuple[str, ...], on_divergence: str) -> None:
    """Refuse options that name no inference method."""
    for text in texts:
        if text not in ("auto", "exact"):
            parse_method(text)
    if on_divergence not in ("damp", "continue", "stop"):
        parse_method(on_divergence)


def _alternatives(method: Method, on_divergence: str) -> list[Method]:
    """The method, then what to change to where it does not converge."""
    if on_divergence in ("continue", "stop"):
        return [method]
    if on_divergence != "damp":
        return [method, parse_method(on_divergence)]
    damping = getattr(method, "damping", None)
    if not isinstance(damping, float):
        return [method]
    more = [d for d in _DAMPINGS if d > damping]
    return [method, *(dataclasses.replace(method, damping=d) for d in more)]  # type: ignore[call-arg]


def passed_on(error: BudgetError, clock: Clock) -> NoReturn:
    """Tell Ctrl-C and the end of the time, which exact inference wraps, from a lack of memory."""
    if isinstance(error.__cause__, KeyboardInterrupt):
        raise KeyboardInterrupt from None
    if clock.expired:
        raise StepAborted("seconds") from None
    raise error


# ---------------------------------------------------------------------- the free phase


def exact_free(graph: FactorGraph, clock: Clock, plan: TreePlan | None = None) -> Phase:
    """log Z and factor marginals by one junction tree, planned once."""
    plan = plan or make_plan(unconditioned(graph), "cheapest", None, uses=PROPAGATIONS)
    engine = Tree(plan, clock, reuse=True)

    def phase(log_tables: Array, rows: Ints | None = None) -> tuple[float, Array]:
        if graph.n_factors == 0:
            return float(np.log(graph.cardinalities.astype(np.float64)).sum()), np.zeros(0)
        engine.set_tables(log_tables)
        try:
            marginals = engine.factor_marginals()
        except BudgetError as error:
            passed_on(error, clock)
        return engine.log_z(), marginals

    return phase


def free_phase(
    graph: FactorGraph, text: str, clock: Clock, on_divergence: str, *, response: bool = False
) -> tuple[Phase, str, InnerRuns | None]:
    """The free phase for a method text, what was chosen, and the engine if it is approximate.

    `auto` is exact where one propagation takes a few seconds at most, else belief propagation. With
    `response` an approximate method answers with pair tables of its linear response.
    """
    if text in (*_EXACT, "auto"):
        plan = make_plan(unconditioned(graph), "cheapest", None, uses=PROPAGATIONS)
        bytes_allowed = clock.budget.bytes
        fits = plan.complete and (bytes_allowed is None or plan.bytes <= bytes_allowed)
        if text != "auto" or (fits and plan.operations <= _MOST_OPERATIONS):
            return exact_free(graph, clock, plan), "exact", None
        text = "bp"
    engine = InnerRuns(graph, text, clock, on_divergence)

    def phase(log_tables: Array, rows: Ints | None) -> tuple[float, Array]:
        beliefs = engine.run(graph.with_log_tables(log_tables))
        log_z = np.nan if beliefs.log_z is None else beliefs.log_z
        return log_z, response_factors(beliefs) if response else beliefs.flat_factors

    return phase, text, engine


def response_factors(beliefs: Beliefs) -> Array:
    """Tables of the factors by linear response: p_i p_j + Cov(i, j) for pairs.

    They answer for the correlations that a method's own beliefs may lack (mean field's are
    p_i p_j), and need not be positive.
    """
    graph = beliefs.graph
    if np.any(np.diff(graph.scope_offsets) > 2):
        raise MethodError(
            "correlations=response needs factors of one or two variables; use correlations=beliefs"
        )
    p, at = beliefs.flat_marginals, graph.state_offsets
    joint = np.outer(p, p) + beliefs.covariance()
    parts = [np.zeros(0)]
    for a in range(graph.n_factors):
        i, j = (*graph.scope(a), *graph.scope(a))[:2]
        block = joint[at[i] : at[i + 1], at[j] : at[j + 1]]
        parts.append(p[at[i] : at[i + 1]] if i == j else block.ravel())
    return np.concatenate(parts)


# ---------------------------------------------------------------------- clamped phases


def clamped_phase(
    graph: FactorGraph, data: Data, text: str, other: str, clock: Clock, on_divergence: str
) -> tuple[Phase, str, InnerRuns | None]:
    """Statistics per row of weight, given what the rows observe.

    `text` is `exact`, a method, or `auto`: exact where the trees fit, else the method `other`.
    """
    if data.complete or text in (*_EXACT, "auto"):
        rows = (
            ClampedRows(graph, data, budget=clock.budget, watch=_watch(clock))
            if text != "auto" or data.complete
            else feasible(graph, data, clock.budget, _watch(clock))
        )
        if rows is not None:
            return _exact_phase(rows), "exact", None
        text = other if other not in (*_EXACT, "auto") else "bp"
    engine = InnerRuns(graph, text, clock, on_divergence)
    runs = ClampedRuns(data, engine.run)

    def phase(log_tables: Array, rows: Ints | None) -> tuple[float, Array]:
        mean, counts = runs.statistics(graph.with_log_tables(log_tables), rows)
        return mean, counts / _weight(data, rows)

    return phase, text, engine


def _exact_phase(clamped: ClampedRows) -> Phase:
    def phase(log_tables: Array, rows: Ints | None) -> tuple[float, Array]:
        mean, counts = clamped.statistics(log_tables, rows)
        return mean, counts / _weight(clamped.data, rows)

    return phase


def _weight(data: Data, rows: Ints | None) -> float:
    return data.total if rows is None else float(data.weights[rows].sum())


def _watch(clock: Clock) -> Callable[[], None]:
    def watch() -> None:
        if clock.expired:
            raise StepAborted("seconds")

    return watch


# ---------------------------------------------------------------------- the objective


@dataclass(eq=False, init=False)
class Likelihood(State):
    """Mean log-likelihood of the rows and its gradient by the log-tables.

    `inputs` are variables that every row observes; then it is the conditional log-likelihood.
    """

    engines: tuple[InnerRuns, ...]

    def __init__(
        self,
        graph: FactorGraph,
        data: Data,
        clock: Clock,
        *,
        inference: str = "auto",
        clamped: str = "auto",
        inputs: Ints | None = None,
        on_divergence: str = "damp",
        response: bool = False,
    ) -> None:
        self.graph, self.data = graph, data
        self.evaluations = 0
        self.positive, self.clamped_by, positive_engine = clamped_phase(
            graph, data, clamped, inference, clock, on_divergence
        )
        engines = [positive_engine]
        self.negative: Phase | None
        if inputs is not None and len(inputs):
            given = _only(data, inputs, graph)
            self.negative, self.free_by, engine = clamped_phase(
                graph, given, inference, inference, clock, on_divergence
            )
            engines.append(engine)
        elif graph.is_directed:
            self.negative, self.free_by = None, "none: normalised tables"
        else:
            self.negative, self.free_by, engine = free_phase(
                graph, inference, clock, on_divergence, response=response
            )
            engines.append(engine)
        self.engines = tuple(engine for engine in engines if engine is not None)

    def at(self, tables: Array, rows: Ints | None = None) -> tuple[float, Array]:
        """The value (NaN where a method gives no log Z) and its gradient at some log-tables.

        `rows` names the few that count this time.
        """
        self.evaluations += 1
        value, gradient = self.positive(tables, rows)
        if self.negative is not None:
            log_z, expected = self.negative(tables, rows)
            value, gradient = value - log_z, gradient - expected
        return value, gradient

    def known_at(self, tables: Array) -> tuple[float, Array]:
        """As `at`, for optimisers that need the value."""
        value, gradient = self.at(tables)
        if np.isnan(value):
            raise MethodError(
                f"{self.engines[-1].methods[0].text} gives no log Z, which lbfgs needs; "
                "use solver=adam, or bp, mf or jt inside"
            )
        return value, gradient

    # ------------------------------------------------------------------ reports

    def follow(self) -> None:
        """Let runs of the free phase start from the last one, where that changes no answer."""
        for engine in self.engines:
            if engine.follows:
                engine.keep()

    def loosen(self, tol: float) -> None:
        """Let inner inference end at this tolerance."""
        for engine in self.engines:
            engine.tol = tol

    @property
    def warnings(self) -> list[str]:
        """What the engines have to say."""
        return [text for engine in self.engines for text in engine.warnings]

    @property
    def diagnostics(self) -> dict[str, object]:
        """What was computed how."""
        return {
            "free": self.free_by,
            "clamped": self.clamped_by,
            "evaluations": self.evaluations,
            "inner_runs": sum(e.runs for e in self.engines),
            "inner_failures": sum(e.failures for e in self.engines),
        }


def _only(data: Data, inputs: Ints, graph: FactorGraph) -> Data:
    """The rows with everything but the inputs hidden."""
    missing = np.argwhere(data.states[:, inputs] < 0)
    if len(missing):
        row, k = (int(x) for x in missing[0])
        raise DataError(
            f"data: row {row} does not say the state of the input {graph.label(int(inputs[k]))}; "
            "inputs must be observed in every row"
        )
    states = np.full_like(data.states, MISSING)
    states[:, inputs] = data.states[:, inputs]
    return data.like(states, data.weights)


def input_variables(graph: FactorGraph, text: str | None) -> Ints:
    """Variables from names or numbers between commas."""
    if text is None:
        return np.zeros(0, dtype=np.int64)
    found = []
    for word in filter(None, (w.strip() for w in text.split(","))):
        by_number = is_whole(word) and (graph.names is None or word not in graph.names)
        try:
            found.append(graph.index(int(word) if by_number else word))
        except KikuchiError as error:
            raise MethodError(f"inputs: {error}") from None
    return np.unique(np.array(found, dtype=np.int64))
