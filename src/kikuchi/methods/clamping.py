"""Clamping: tightening any bound on log Z by a sum over the states of a few variables.

With the variables C clamped to each of their joint states s in turn,

    log Z = log sum_s Z(s),     lower(s) <= log Z(s) <= upper(s)   for every s,

so that the log-sum-exp of the bounds of the branches is also a bound. Every branch has fewer cycles
than the whole model: at the optimum of the inner bound the sum is never looser (Weller and Domke's
property, C21 of the catalogue). If an inner method stops before its optimum, the bound of the whole
model is used if it is better.

Reference: LIU-C21, LIU-I17.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget
from kikuchi.core.errors import ImpossibleEvidenceError, MethodError
from kikuchi.core.numerics import count_states, entropy, logsumexp, normalise_log
from kikuchi.core.text import is_whole
from kikuchi.engines.mean_field.structured_subgraph import strengths
from kikuchi.engines.run import FactorTables, MethodRun, Solution, Step
from kikuchi.graphs.factor_graph import FactorGraph, Variable
from kikuchi.methods.beliefs import Beliefs
from kikuchi.methods.method import Method, option

_EDGE_BYTES = 150  # of a branch: its graph, its beliefs, and the memory retained by its run
_MOST_BRANCHES = 2**16


@dataclass(frozen=True)
class Clamped(Method):
    """Clamping: tightens the bounds of another method by sums over a few variables.

    `method` is a method with bounds, as an object or a specification string (in parentheses if it
    contains commas). `variables` are the variables to clamp; otherwise `k` are chosen one after the
    other: with the greatest total strength of factors shared with unclamped variables (`coupling`),
    most neighbours (`degree`), or the strength weighted by the entropy in the result of the
    unclamped method (`entropy`). The estimate is the log-sum-exp of the estimates of the branches,
    and the marginals are those of the branches weighted by their estimates. The time of the budget
    is divided among the branches; if it ends early, the lower bound is the sum over the finished
    branches.

    >>> import kikuchi as kk
    >>> grid = kk.grid(4, 4, seed=0)
    >>> plain = kk.infer(grid, "mf").log_z_lower
    >>> plain < kk.infer(grid, "clamp:method=mf,k=2").log_z_lower < kk.infer(grid, "jt").log_z
    True
    """

    name: ClassVar[str] = "clamp"
    objective_name: ClassVar[str] = "log Z of the branches so far"
    certifies = ("lower",)

    method: str | Method = option("mf", "the method whose bounds are tightened")
    k: int = option(2, "how many variables to clamp", low=1)
    variables: str | tuple[Variable, ...] | None = option(
        None, "variables to clamp, names or numbers separated by spaces; none: choose k"
    )
    choose: Literal["coupling", "degree", "entropy"] = option(
        "coupling", "criterion for the choice"
    )

    def __post_init__(self) -> None:
        if isinstance(self.method, Method):
            object.__setattr__(self, "method", self.method.text)
        if isinstance(self.variables, Sequence) and not isinstance(self.variables, str):
            object.__setattr__(self, "variables", " ".join(str(v) for v in self.variables))
        super().__post_init__()
        if not self._inner().gives_marginals:
            raise MethodError(
                f"clamp: {self.method} gives max-marginals, which cannot be summed over branches; "
                "use mode=sum"
            )

    def _inner(self) -> Method:
        from kikuchi.methods.registry import METHODS

        return METHODS.parse(self.method)

    def least_seconds(self, graph: FactorGraph) -> float:
        """Return the least seconds of a run: those of the first run of `method`, of the choice of
        variables and of at least 2^k runs of branches.
        """
        k = self.k if self.variables is None else len(str(self.variables).split())
        runs = 1 + (1 << min(k, _MOST_BRANCHES.bit_length()))
        return super().least_seconds(graph) + runs * self._inner().least_seconds(graph)

    def least_bytes(self, graph: FactorGraph) -> int:
        """Return the least bytes of a run: those of `method`, which dominate at first."""
        return self._inner().least_bytes(graph)

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        inner = self._inner()
        whole = inner.run(graph, budget=_part_of_budget(run, 2.0))
        if whole.log_z_lower is None and whole.log_z_upper is None:
            from kikuchi.methods.registry import METHODS

            able = [name for name, cls in METHODS.items() if cls.certifies]
            raise MethodError(
                f"clamp: {inner.text} has no bound on log Z to tighten; use a method with bounds: "
                f"{', '.join(able)}"
            )
        chosen = self._chosen(graph, run, whole)
        branches = _Branches(inner, graph, run, chosen)
        branches.run_all()
        return branches.solution(whole)

    # ------------------------------------------------------------------ which variables

    def _chosen(self, graph: FactorGraph, run: MethodRun, whole: Beliefs) -> list[int]:
        if self.variables is not None:
            chosen = self._given(graph, run)
        else:
            chosen = self._strongest(graph, whole)
        count = count_states(graph.cardinalities[chosen])
        if count > _MOST_BRANCHES:
            raise MethodError(
                f"clamp: {len(chosen)} variables make {count:.3g} branches, at most "
                f"{_MOST_BRANCHES} are allowed; clamp fewer variables"
            )
        a_branch = 16 * graph.log_tables.size + _EDGE_BYTES * graph.n_edges
        run.clock.budget.require_bytes(
            int(count) * a_branch, f"clamp: {count:.0f} branches", "clamp fewer variables"
        )
        return chosen

    def _given(self, graph: FactorGraph, run: MethodRun) -> list[int]:
        """Return the given variables as numbers of the reduced graph, without observed ones."""
        original = graph if run.reduced is None else run.reduced.original
        number = {int(v): n for n, v in enumerate(run.variables)}
        chosen: list[int] = []
        for word in str(self.variables).split():
            known = original.names is not None and word in original.names
            v = original.index(int(word) if is_whole(word) and not known else word)
            if v in number and number[v] not in chosen:
                chosen.append(number[v])
        return chosen

    def _strongest(self, graph: FactorGraph, whole: Beliefs) -> list[int]:
        """Choose variables greedily; factors with variables already clamped no longer count."""
        uniform = np.repeat(1.0 / graph.cardinalities, graph.cardinalities)
        if self.choose == "degree":
            weight = (np.diff(graph.scope_offsets) > 1).astype(np.float64)
        else:
            weight = np.sqrt(strengths(graph, uniform))
        factor = np.ones(graph.n_variables)
        if self.choose == "entropy":
            factor = np.array([float(entropy(p)) for p in whole.marginals])
        free_edges = np.diff(graph.scope_offsets).astype(np.int64)
        chosen: list[int] = []
        for _ in range(min(self.k, graph.n_variables)):
            counts = weight[graph.edge_factors] * (free_edges[graph.edge_factors] > 1)
            sums = np.bincount(graph.scopes, weights=counts, minlength=graph.n_variables)
            score = np.asarray((sums + 1e-12) * factor)
            score[chosen] = -1.0
            v = int(np.argmax(score))
            chosen.append(v)
            free_edges[list(graph.neighbours(v))] -= 1
        return chosen


class _Branches:
    """The runs of the inner method, one for each joint state of the clamped variables."""

    def __init__(
        self, inner: Method, graph: FactorGraph, run: MethodRun, chosen: list[int]
    ) -> None:
        self.inner = inner
        self.graph = graph
        self.run = run
        self.chosen = chosen
        self.answers: list[Beliefs] = []
        self.total = int(np.prod(graph.cardinalities[chosen].astype(np.int64), initial=1))
        self.done = 0

    def run_all(self) -> None:
        """Run every branch, within the remaining budget."""
        try:
            for state in self._states():
                if self.run.clock.expired:
                    self.run.stopped = "seconds"
                    return
                self._branch(state)
        except KeyboardInterrupt:
            self.run.stopped = "interrupted"

    def _states(self) -> Iterator[tuple[int, ...]]:
        return itertools.product(*(range(int(self.graph.cardinalities[v])) for v in self.chosen))

    def _branch(self, state: tuple[int, ...]) -> None:
        clamped = dict(zip(self.chosen, state, strict=True))
        budget = _part_of_budget(self.run, self.total - self.done + 0.0)
        try:
            beliefs = self.inner.run(self.graph, evidence=clamped, budget=budget)
        except ImpossibleEvidenceError:
            beliefs = None  # a branch without weight adds nothing to Z
        self.done += 1
        if beliefs is not None:
            self.answers.append(beliefs)
            if beliefs.stopped == "interrupted":
                raise KeyboardInterrupt
        lower = self._lower()
        self.run.record(Step(self.done, objective=self._sum("log_z"), lower=lower), self.total)

    # ------------------------------------------------------------------ sums

    def _values(self, name: str) -> list[float | None]:
        constant = self.graph.log_constant
        values = [getattr(beliefs, name) for beliefs in self.answers]
        return [None if value is None else value - constant for value in values]

    def _sum(self, name: str) -> float:
        """Return the log-sum-exp over the finished branches; NaN if one of them has no such
        value.
        """
        values = [math.nan if value is None else value for value in self._values(name)]
        if any(math.isnan(value) for value in values):
            return math.nan
        return float(logsumexp(values)) if values else -math.inf

    def _lower(self) -> float:
        """Return the lower bound; branches without a bound, or unfinished, contribute zero, so the
        sum is still a bound.
        """
        values = [value for value in self._values("log_z_lower") if value is not None]
        return float(logsumexp(values)) if values else -math.inf

    def _upper(self) -> float:
        if self.done < self.total:
            return math.inf
        upper = self._sum("log_z_upper")
        return math.inf if math.isnan(upper) else upper

    def solution(self, whole: Beliefs) -> Solution:
        """Return bounds no worse than those of the whole model, and the estimate between them."""
        constant = self.graph.log_constant
        lower, upper = self._lower(), self._upper()
        if whole.log_z_lower is not None:
            lower = max(lower, whole.log_z_lower - constant)
        if whole.log_z_upper is not None:
            upper = min(upper, whole.log_z_upper - constant)
        if not self.answers and self.done == self.total:
            raise ImpossibleEvidenceError(
                "no state of the model has positive weight (Z = 0); check the zeros in its tables "
                "and the evidence"
            )
        complete = self.done == self.total
        converged = complete and all(beliefs.converged for beliefs in self.answers)
        if self.run.stopped not in ("seconds", "interrupted"):
            self.run.stopped = "converged" if converged else "iterations"
        weights = self._weights(complete)
        marginals = whole.flat_marginals
        if weights is not None:
            marginals = _weighted(weights, [beliefs.flat_marginals for beliefs in self.answers])
        estimate = self._sum("log_z") if complete else math.nan
        if math.isnan(estimate) and whole.log_z is not None and not complete:
            estimate = whole.log_z - constant
        log_z = None if math.isnan(estimate) else min(max(estimate, lower), upper)
        return Solution(
            marginals=marginals,
            log_z=log_z,
            log_z_lower=lower if lower > -math.inf else None,
            log_z_upper=upper if upper < math.inf else None,
            converged=converged,
            iterations=max(self.done, 1),
            factor_tables=self._factor_tables(weights),
            warnings=self._warnings(),
            diagnostics={
                "clamped": [self._label(v) for v in self.chosen],
                "branches": self.total,
                "unclamped_lower": whole.log_z_lower,
                "unclamped_upper": whole.log_z_upper,
            },
        )

    def _weights(self, complete: bool) -> Array | None:
        """Return the probability of each branch from its estimate, or else from the midpoint of its
        bounds.
        """
        log_weights = []
        for beliefs in self.answers:
            known = (beliefs.log_z_lower, beliefs.log_z_upper)
            bounds = [b for b in known if b is not None]
            if beliefs.log_z is not None:
                log_weights.append(beliefs.log_z)
            elif bounds:
                log_weights.append(sum(bounds) / len(bounds))
            else:
                log_weights.append(-math.inf)
        if not complete or not log_weights or max(log_weights) == -math.inf:
            return None
        return normalise_log(log_weights)

    def _factor_tables(self, weights: Array | None) -> FactorTables | None:
        if weights is None or any(beliefs._factor_tables is None for beliefs in self.answers):
            return None
        return lambda: _weighted(weights, [beliefs.flat_factors for beliefs in self.answers])

    def _label(self, v: int) -> str:
        reduced = self.run.reduced
        if reduced is None:
            return self.graph.label(v)
        return reduced.original.label(int(self.run.variables[v]))

    def _warnings(self) -> list[str]:
        if self.done < self.total:
            return [
                f"the budget ended after {self.done} of {self.total} branches: the lower bound is "
                "their sum, all other results are those of the unclamped model"
            ]
        late = sum(not beliefs.converged for beliefs in self.answers)
        if late:
            return [f"{late} of {self.total} branches did not converge; allow more time"]
        return []


def _weighted(weights: Array, arrays: list[Array]) -> Array:
    """Return the weighted sum of arrays, without stacking them."""
    total = np.zeros_like(arrays[0])
    for weight, array in zip(weights, arrays, strict=True):
        total += weight * array
    return total


def _part_of_budget(run: MethodRun, parts: float) -> Budget:
    """Return an equal part of the remaining time, with the same limits of iterations and memory."""
    budget = run.clock.budget
    seconds = budget.seconds
    if seconds is not None:
        seconds = max((seconds - run.clock.seconds) / parts, 1e-6)
    return Budget(iterations=budget.iterations, seconds=seconds, bytes=budget.bytes)
