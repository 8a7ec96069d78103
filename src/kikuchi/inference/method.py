"""`Method`: what every inference method shares, so that a new one writes only its own mathematics.

A method is a frozen dataclass of options. `Method.run` does what is the same for all: it checks the
evidence, reduces the graph by it (LIU-M4), watches the budget, and carries the answer back to the
variables of the original graph. A new method gives its options and `_solve`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.budget import Budget, Clock
from kikuchi.core.errors import EvidenceError, KikuchiError, MethodError
from kikuchi.core.numerics import entropy
from kikuchi.core.progress import Progress, silent
from kikuchi.core.trace import Trace
from kikuchi.graphs.factor_graph import Conditioned, Evidence, FactorGraph
from kikuchi.inference.beliefs import Beliefs, FactorTables

_PROGRESS_EVERY = 0.1  # seconds


def option(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> Any:
    """A dataclass field with its description and range: `low`, `high` belong to it, `above`,
    `below` do not.
    """
    limits = {"low": low, "high": high, "above": above, "below": below}
    return field(default=default, metadata={"help": help, **limits})


@dataclass
class Solution:
    """What `_solve` answers about the reduced graph; log-weights exclude `graph.log_constant`."""

    marginals: NDArray[np.float64]
    log_z: float | None = None
    converged: bool = True
    iterations: int = 1
    log_z_lower: float | None = None
    log_z_upper: float | None = None
    factor_tables: FactorTables | None = None
    state: NDArray[np.int64] | None = None
    score: float | None = None
    warnings: list[str] = field(default_factory=list)
    diagnostics: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One report of a running method: iterations so far, residual and objective if known."""

    iterations: int
    residual: float = math.nan
    objective: float = math.nan


class Run:
    """A run in progress: clock, trace and progress, why it stopped, and the observed marginals.

    `targets` holds them by variable of the reduced graph (TEH-M24); it is empty unless the method
    says `takes_observed_marginals`. `reduced` is the way back to the graph before evidence, for
    methods whose options or messages name variables.
    """

    def __init__(
        self,
        clock: Clock,
        progress: Progress,
        trace: Trace,
        offset: float,
        targets: dict[int, NDArray[np.float64]] | None = None,
        reduced: Conditioned | None = None,
    ) -> None:
        self.clock = clock
        self.progress = progress
        self.trace = trace
        self.offset = offset
        self.targets = targets or {}
        self.reduced = reduced
        self.stopped = "converged"
        self._next_progress = _PROGRESS_EVERY

    @property
    def variables(self) -> NDArray[np.int64]:
        """The numbers that the variables of the reduced graph have in the original."""
        return np.zeros(0, dtype=np.int64) if self.reduced is None else self.reduced.variables

    def iterate(self, steps: Iterable[Step], *, tol: float, limit: int) -> tuple[int, bool]:
        """Take steps until the residual is at most `tol` (never if `tol` is 0), the budget or
        `limit` ends, the steps do (then the method has diverged), or Ctrl-C. Answers the
        iterations done and whether it converged.
        """
        limit = self.clock.iterations(limit)
        done = 0
        try:
            for step in steps:
                done = step.iterations
                self.record(step, limit)
                if tol > 0 and step.residual <= tol:
                    return done, True
                if done >= limit:
                    self.stopped = "iterations"
                    return done, False
                if self.clock.expired:
                    self.stopped = "seconds"
                    return done, False
            self.stopped = "diverged"  # the method itself gave up
        except KeyboardInterrupt:
            self.stopped = "interrupted"
        return done, False

    def record(self, step: Step, limit: int) -> None:
        """Put a step in the trace and, a few times a second, on the screen."""
        seconds = self.clock.seconds
        objective = step.objective + self.offset
        self.trace.record(
            step.iterations, residual=step.residual, objective=objective, seconds=seconds
        )
        if seconds >= self._next_progress:
            self._next_progress = seconds + _PROGRESS_EVERY
            self.progress(
                step.iterations,
                limit,
                residual=None if math.isnan(step.residual) else step.residual,
                objective=None if math.isnan(objective) else objective,
            )


@dataclass(frozen=True)
class Method(ABC):
    """Base of all inference methods.

    >>> from kikuchi import BeliefPropagation
    >>> BeliefPropagation(damping=0.5).text
    'bp:damping=0.5'
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    objective_name: ClassVar[str] = "objective"
    takes_observed_marginals: ClassVar[bool] = False

    def __post_init__(self) -> None:
        hints = option_hints(type(self))
        for f in dataclasses.fields(self):
            value = _checked(self.name, f, hints[f.name], getattr(self, f.name))
            object.__setattr__(self, f.name, value)

    @property
    def text(self) -> str:
        """The method as one text: its name and the options that differ from their defaults."""
        changed = [
            f"{f.name}={_option_text(getattr(self, f.name))}"
            for f in dataclasses.fields(self)
            if getattr(self, f.name) != f.default
        ]
        return self.name + (":" + ",".join(changed) if changed else "")

    def run(
        self,
        graph: FactorGraph,
        *,
        evidence: Evidence | None = None,
        budget: Budget | None = None,
        progress: Progress | None = None,
    ) -> Beliefs:
        """Infer the marginals of `graph` given `evidence`."""
        clock = (budget or Budget()).start()
        states, targets = graph.observations(evidence)
        if targets and not self.takes_observed_marginals:
            raise EvidenceError(
                f"variable {graph.label(next(iter(targets)))}: method {self.name} takes observed "
                "states, not observed marginals; `kikuchi methods` says which methods do"
            )
        single = {int(v): 0 for v in np.flatnonzero(graph.cardinalities == 1)}
        reduced = graph.condition({**states, **single})
        run = Run(
            clock,
            progress or silent,
            Trace(self.objective_name),
            reduced.graph.log_constant,
            {int(np.searchsorted(reduced.variables, v)): t for v, t in targets.items()},
            reduced,
        )
        if reduced.graph.n_factors == 0:
            solution = _independent(reduced.graph, run.targets)
        else:
            solution = self._solve(reduced.graph, run)
        return self._answer(reduced, solution, run)

    @abstractmethod
    def _solve(self, graph: FactorGraph, run: Run) -> Solution:
        """The method itself, on a graph without evidence or single-state variables."""

    def _answer(self, reduced: Conditioned, solution: Solution, run: Run) -> Beliefs:
        _refuse_nan(self.text, solution)
        constant = reduced.graph.log_constant
        graph = reduced.original
        tables = solution.factor_tables
        return Beliefs(
            graph=graph,
            method=self.text,
            flat_marginals=reduced.expand_marginals(solution.marginals),
            log_z=_shift(solution.log_z, constant),
            log_z_lower=_shift(solution.log_z_lower, constant),
            log_z_upper=_shift(solution.log_z_upper, constant),
            converged=solution.converged,
            iterations=solution.iterations,
            seconds=run.clock.seconds,
            stopped=run.stopped,
            trace=run.trace,
            warnings=tuple(solution.warnings),
            diagnostics=solution.diagnostics,
            state=None if solution.state is None else reduced.expand_states(solution.state),
            score=_shift(solution.score, constant),
            _factor_tables=None if tables is None else lambda: expand_factors(reduced, tables()),
        )


def expand_factors(reduced: Conditioned, tables: NDArray[np.float64]) -> NDArray[np.float64]:
    """Factor beliefs of the original graph from those of the reduced one."""
    graph = reduced.original
    out = np.zeros(graph.log_tables.size)
    position = {int(a): k for k, a in enumerate(reduced.factors)}
    offsets = reduced.graph.table_offsets
    if not reduced.observed:
        return tables
    for a in range(graph.n_factors):
        block = out[graph.table_offsets[a] : graph.table_offsets[a + 1]].reshape(graph.shape(a))
        where = tuple(reduced.observed.get(v, slice(None)) for v in graph.scope(a))
        k = position.get(a)
        if k is None:
            block[where] = 1.0
        else:
            values = tables[offsets[k] : offsets[k + 1]]
            block[where] = values.reshape(block[where].shape)
    return out


# ---------------------------------------------------------------------- options


@functools.cache
def option_hints(cls: type) -> dict[str, Any]:
    """Types of a method's options; looked up once, since that takes longer than a small model."""
    return typing.get_type_hints(cls)


def option_type(hint: Any) -> tuple[Any, bool]:
    """The type of an option and whether it may be None."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        inner = [t for t in typing.get_args(hint) if t is not type(None)]
        return inner[0], True
    return hint, False


def option_range(f: dataclasses.Field[Any]) -> str:
    """The range of an option for people, such as `[0, 1)`; empty when it has none."""
    m = f.metadata
    low, high, above, below = (m.get(k) for k in ("low", "high", "above", "below"))
    if low is None and above is None and high is None and below is None:
        return ""
    left = f"[{low:g}" if low is not None else f"({above:g}" if above is not None else "(-inf"
    right = f"{high:g}]" if high is not None else f"{below:g})" if below is not None else "inf)"
    return f"{left}, {right}"


def _checked(method: str, f: dataclasses.Field[Any], hint: Any, value: Any) -> Any:
    kind, optional = option_type(hint)
    where = f"method {method}: option {f.name}"
    if value is None and optional:
        return None
    if typing.get_origin(kind) is typing.Literal:
        choices = typing.get_args(kind)
        if value not in choices:
            raise MethodError(
                f"{where} must be one of {', '.join(map(str, choices))}, got {value!r}"
            )
        return value
    if kind is float and isinstance(value, int | float | np.number) and not isinstance(value, bool):
        value = float(value)
    elif kind is int and isinstance(value, int | np.integer) and not isinstance(value, bool):
        value = int(value)
    elif not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise MethodError(f"{where} must be {_type_name(kind)}, got {value!r}")
    m = f.metadata
    if kind in (int, float) and (
        math.isnan(value)
        or (m.get("low") is not None and value < m["low"])
        or (m.get("high") is not None and value > m["high"])
        or (m.get("above") is not None and value <= m["above"])
        or (m.get("below") is not None and value >= m["below"])
    ):
        raise MethodError(f"{where} must be in {option_range(f)}, got {value}")
    return value


def _type_name(kind: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    return names.get(kind, str(kind))


def _option_text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


# ---------------------------------------------------------------------- checks


def _independent(graph: FactorGraph, targets: dict[int, NDArray[np.float64]]) -> Solution:
    """The answer of every method when no factor is left: uniform but for observed marginals."""
    cards = graph.cardinalities.astype(np.float64)
    marginals = np.repeat(1.0 / cards, graph.cardinalities)
    for v, target in targets.items():
        marginals[graph.state_offsets[v] : graph.state_offsets[v + 1]] = target
    log_z = float(entropy(marginals))
    return Solution(
        marginals,
        log_z,
        log_z_lower=log_z,
        log_z_upper=log_z,
        factor_tables=lambda: np.zeros(0),
        state=np.zeros(graph.n_variables, dtype=np.int64),
        score=0.0,
    )


def _refuse_nan(text: str, solution: Solution) -> None:
    numbers = [solution.log_z, solution.log_z_lower, solution.log_z_upper, solution.score]
    if np.isnan(solution.marginals).any() or any(x is not None and math.isnan(x) for x in numbers):
        raise KikuchiError(
            f"{text} produced NaN; this is a bug in kikuchi, please report the model"
        )


def _shift(value: float | None, by: float) -> float | None:
    return None if value is None else float(value) + by
