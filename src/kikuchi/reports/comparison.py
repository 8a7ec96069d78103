"""Several methods on one model, measured against the exact answer where it can be had."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np

from kikuchi.core import text
from kikuchi.core.answer import attributes
from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget, RunLimits, format_bytes, limits, named_limits
from kikuchi.core.compiling import COMPILING
from kikuchi.core.errors import KikuchiError
from kikuchi.core.progress import Progress
from kikuchi.graphs.factor_graph import Evidence, FactorGraph
from kikuchi.methods.beliefs import Beliefs
from kikuchi.methods.method import Method
from kikuchi.methods.registry import METHODS
from kikuchi.reports.evidence import Observed, as_observed, has_marginals, observed_states

_EXACT = "jt"
_LONG_SECONDS = 600.0  # an exact answer that takes longer is only computed when asked for
_QUICK = 10.0  # seconds, of which loading may be a large part
_CHEAP_BYTES = 10**8
_CHEAP_OPERATIONS = 2 * 10**8  # about a second

Announce = Callable[[str], Progress | None]


@dataclass(frozen=True)
class ComparedMethod:
    """One method: its answer with its errors, or the reason why there is none.

    The error of a marginal is the largest absolute difference over the states of the variable;
    `largest_error` and `mean_error` are over the variables that were not observed.
    """

    method: str
    beliefs: Beliefs | None = None
    problem: str | None = None
    log_z_error: float | None = None
    largest_error: float | None = None
    mean_error: float | None = None

    def cells(self, decimals: int = 9) -> list[str]:
        """The row of a table: method, log Z, errors, sweeps, seconds, and whether it converged."""
        answer = self.beliefs
        if answer is None:
            return [self.method, *[text.UNKNOWN] * 6, "no answer"]
        return [
            self.method,
            text.log_z(answer.log_z, decimals),
            text.error(self.log_z_error),
            text.error(self.largest_error),
            text.error(self.mean_error),
            text.whole(answer.iterations),
            f"{answer.seconds:.3g}",
            "yes" if answer.converged else f"no ({answer.stopped})",
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: the answer without its marginals, and its errors."""
        answer = {} if self.beliefs is None else self.beliefs.to_dict()
        for name in ("marginals", "max_marginals", "state", "diagnostics"):
            answer.pop(name, None)
        return {
            **answer,
            **attributes(self, "method problem log_z_error largest_error mean_error"),
        }


@dataclass(frozen=True)
class Comparison:
    """The rows of a comparison, the exact answer if it was feasible, and a remark about it."""

    graph: FactorGraph
    rows: tuple[ComparedMethod, ...]
    exact: Beliefs | None
    exact_note: str
    evidence: Observed = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "exact": None if self.exact is None else {"log_z": self.exact.log_z},
            "exact_note": self.exact_note,
            "methods": [row.to_dict() for row in self.rows],
        }


@named_limits
def compare(
    graph: FactorGraph,
    methods: Sequence[str | Method],
    *,
    evidence: Evidence | None = None,
    announce: Announce | None = None,
    **within: Unpack[RunLimits],
) -> Comparison:
    """Run each method on the model; one that fails or refuses becomes a row with its reason.

    The exact answer comes from the junction tree if its plan fits the memory of the budget.
    `announce(text)` is called before each run and may answer with a progress to report to.
    A run that had to load libraries or compiled loops is made again, so that the seconds of a row
    are those of its own work.

    >>> import kikuchi as kk
    >>> result = compare(kk.FactorGraph([2], [((0,), [1, 3])]), ["bp", "enumerate"])
    >>> [row.method for row in result.rows], result.rows[0].largest_error < 1e-12
    (['bp', 'enumerate'], True)
    """
    chosen = [METHODS.parse(method) for method in methods]
    observed = as_observed(graph, evidence)
    graph.condition(observed_states(observed))  # impossible evidence is refused before any method
    allowed = limits(**within)
    announced = announce or _without_progress
    exact, note = _exact_answer(graph, observed, allowed, announced)
    rows: list[ComparedMethod] = []
    interrupted = exact is not None and exact.stopped == "interrupted"
    for method in chosen:
        if interrupted:
            rows.append(ComparedMethod(method.text, problem="not run: interrupted"))
        elif method.text == _EXACT and exact is not None:
            rows.append(_measured(method, exact, exact, observed))
        else:
            rows.append(_run(method, graph, observed, allowed, announced, exact))
        answer = rows[-1].beliefs
        interrupted = interrupted or (answer is not None and answer.stopped == "interrupted")
    return Comparison(graph, tuple(rows), exact, note, observed)


def marginal_errors(
    beliefs: Beliefs, exact: Beliefs, observed: Observed | None = None
) -> tuple[float, float]:
    """Largest and mean error over the variables that were not observed (see `ComparedMethod`).

    >>> import kikuchi as kk
    >>> answer = kk.infer(kk.FactorGraph([2], [((0,), [1, 3])]), "enumerate")
    >>> marginal_errors(answer, answer)
    (0.0, 0.0)
    """
    worst = np.delete(variable_errors(beliefs, exact), list(observed or {}))
    return (float(worst.max()), float(worst.mean())) if worst.size else (0.0, 0.0)


def variable_errors(beliefs: Beliefs, exact: Beliefs) -> Array:
    """Largest error over the states of each variable."""
    gaps = np.abs(beliefs.flat_marginals - exact.flat_marginals)
    return np.maximum.reduceat(gaps, exact.graph.state_offsets[:-1]) if gaps.size else gaps


def log_z_error(beliefs: Beliefs, exact: Beliefs) -> float | None:
    """log Z less the exact one, where both are known."""
    if beliefs.log_z is None or exact.log_z is None:
        return None
    return beliefs.log_z - exact.log_z


def cheap_exact(
    graph: FactorGraph, evidence: Evidence | None, budget: Budget | None = None
) -> Beliefs | None:
    """The exact answer where it costs next to nothing (about a second, 100 MB), else None.

    >>> import kikuchi as kk
    >>> cheap_exact(kk.FactorGraph([2], [((0,), [1, 3])]), None)[0].tolist()
    [0.25, 0.75]
    >>> cheap_exact(kk.generate.complete(60), None) is None
    True
    """
    from kikuchi.engines.trees.calibrated import plan

    allowed = limits(budget)
    observed, targets = graph.observations(evidence)
    if targets:
        return None
    cost = plan(graph, evidence=observed)
    most = min(_CHEAP_BYTES, allowed.bytes or _CHEAP_BYTES)
    if not cost.complete or cost.bytes > most or cost.operations > _CHEAP_OPERATIONS:
        return None
    return METHODS.parse(_EXACT).run(graph, evidence=observed, budget=allowed)


# ---------------------------------------------------------------------- parts


def _without_progress(method: str) -> Progress | None:
    return None


def _exact_answer(
    graph: FactorGraph, observed: Observed, budget: Budget, announce: Announce
) -> tuple[Beliefs | None, str]:
    from kikuchi.engines.trees.calibrated import plan

    states = {v: k for v, k in observed.items() if np.ndim(k) == 0}
    cost = plan(graph, evidence=states)
    least = "" if cost.complete else "at least "
    figures = f"width {least}{cost.width}, {least}{format_bytes(cost.bytes)}"
    if budget.bytes is not None and cost.bytes > budget.bytes:
        allowed = format_bytes(budget.bytes)
        return None, f"exact inference is not feasible: {figures}, the budget is {allowed}"
    if budget.seconds is None and cost.seconds() > _LONG_SECONDS:
        hours = cost.seconds() / 3600
        return None, f"exact inference would take about {hours:.1g} hours ({figures})"
    method = METHODS.parse("is" if has_marginals(observed) else _EXACT)
    try:
        exact = _loaded(method, graph, observed, budget, announce)
    except KikuchiError as error:
        return None, f"there is no exact answer: {error}"
    if not exact.converged:
        return None, "there is no exact answer: the junction tree did not finish"
    return exact, f"errors are against the junction tree ({figures})"


def _run(
    method: Method,
    graph: FactorGraph,
    observed: Observed,
    budget: Budget,
    announce: Announce,
    exact: Beliefs | None,
) -> ComparedMethod:
    try:
        beliefs = _loaded(method, graph, observed, budget, announce)
    except KikuchiError as error:
        return ComparedMethod(method.text, problem=str(error))
    except MemoryError:
        return ComparedMethod(method.text, problem="ran out of memory")
    return _measured(method, beliefs, exact, observed)


def _measured(
    method: Method, beliefs: Beliefs, exact: Beliefs | None, observed: Observed
) -> ComparedMethod:
    if exact is None or not method.gives_marginals:
        return ComparedMethod(method.text, beliefs)
    largest, mean = marginal_errors(beliefs, exact, observed)
    gap = log_z_error(beliefs, exact)
    return ComparedMethod(method.text, beliefs, None, gap, largest, mean)


def _loaded(
    method: Method, graph: FactorGraph, observed: Observed, budget: Budget, announce: Announce
) -> Beliefs:
    """The answer of a run that loads nothing: a quick one that had to load libraries or compiled
    loops, which would be most of its time, is made again.
    """
    progress = announce(method.text)
    before = len(sys.modules), COMPILING.seconds
    first = method.run(graph, evidence=observed, budget=budget, progress=progress)
    loaded = (len(sys.modules), COMPILING.seconds) != before
    if not loaded or first.seconds > _QUICK or first.stopped == "interrupted":
        return first
    return method.run(graph, evidence=observed, budget=budget, progress=progress)
