"""`Tree`: exact inference on one junction tree, planned once for all tables.

Reference: HOJ-I5, LIU-I1, TEH-I2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget, Clock, format_bytes
from kikuchi.core.errors import BudgetError
from kikuchi.engines.loops.state import State
from kikuchi.engines.trees.kernels import passes
from kikuchi.engines.trees.plan import (
    ADVICE,
    Architecture,
    Mode,
    TreePlan,
    factor_targets,
    variable_targets,
)
from kikuchi.engines.trees.propagation import Propagation, Underflow, Watch
from kikuchi.engines.trees.response import ExactResponse
from kikuchi.engines.trees.shape import MarginalTargets
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.table_shapes import factor_groups

Read = Callable[[TreePlan], MarginalTargets]

_MOST_BYTES = 2**53
_MOST_OPERATIONS = 1e15  # weeks
_FASTEST = 1e10  # multiply-adds per second that no core exceeds


@dataclass(eq=False)
class ExactState(State):
    """Nothing: an exact answer follows from the tables."""


class Tree:
    """Exact inference on one junction tree, for any tables.

    As an `Engine` it reads each quantity when it is asked for. `run` is one propagation, with what
    else can be read from it: joints, samples, the most probable state.

    Parameters
    ----------
    plan : the tree, and with its graph the first tables.
    clock : the time and memory of all propagations.
    propagation : with hugin the tables of the cliques are kept, from which the response is read.
    reuse : whether working memory is kept for runs with other tables.

    >>> import kikuchi as kk
    >>> from kikuchi.engines.trees.plan import make_plan, unconditioned
    >>> pair = kk.FactorGraph([2, 2], [((0, 1), [[1, 2], [3, 4]])])
    >>> tree = Tree(make_plan(unconditioned(pair), "cheapest", None), kk.Budget().start())
    >>> tree.marginals().round(6).tolist()
    [0.3, 0.7, 0.4, 0.6]
    >>> tree.set_tables(np.log([1.0, 1.0, 1.0, 2.0]))
    >>> round(float(np.exp(tree.log_z())), 6)
    5.0
    """

    state = ExactState()

    def __init__(
        self,
        plan: TreePlan,
        clock: Clock,
        propagation: Architecture = "shafer-shenoy",
        *,
        reuse: bool = False,
    ) -> None:
        self.plan = plan
        self.clock = clock
        self.propagation: Architecture = propagation
        self.reuse = reuse
        self.graph: FactorGraph = plan.graph
        self._log_tables = self.graph.log_tables
        self._memory: dict[tuple[Read, int, bool], Propagation] = {}
        self._found: dict[Read, Propagation] = {}

    # ------------------------------------------------------------------ one propagation

    def run(
        self,
        read: Read,
        watch: Watch | None = None,
        *,
        mode: Mode = "sum",
        keep: bool = False,
        distribute: bool = True,
        logs: bool = False,
    ) -> Propagation:
        """Run both passes (or the upward one), with logarithms where plain numbers underflow.

        `read` says which marginals to read. With `mode` max the best state is found as well. With
        `keep` joints and samples can be read afterwards, with `logs` plain numbers are not tried.
        With `reuse` the run is valid until the next one of the same kind.
        """
        watch = watch or Watch(self.clock)
        arithmetics = (passes.LINEAR, passes.LOG_SUM)[logs:]
        for arithmetic in (passes.LOG_MAX,) if mode == "max" else arithmetics:
            try:
                run = self._filled(read, arithmetic, keep, watch)
                total = run.measure.up_total + distribute * run.measure.down_total
                run.collect(watch, total)
                if mode == "max":
                    run.state = run.best_state()  # before messages down replace those up
                if distribute:
                    run.distribute(watch, total)
                return run
            except Underflow:
                continue
        raise AssertionError("logarithms do not underflow")

    def _filled(self, read: Read, arithmetic: int, keep: bool, watch: Watch) -> Propagation:
        """The tables of a run, within the memory, before its passes."""
        key = read, arithmetic, keep
        run = self._memory.get(key)
        if run is None:
            plan, hugin, budget = self.plan, self.propagation == "hugin", watch.clock.budget
            _require_feasible(plan, budget)
            targets = read(plan)
            needed = plan.bytes_for(
                targets,
                logs=arithmetic == passes.LOG_SUM,
                keep=keep,
                hugin=hugin,
                decode=arithmetic == passes.LOG_MAX or keep,
            )
            budget.require_bytes(needed, _what(plan), ADVICE)
            run = Propagation(plan, targets, arithmetic=arithmetic, keep=keep, hugin=hugin)
            if self.reuse:
                self._memory[key] = run
        run.fill(self._log_tables)
        return run

    # ------------------------------------------------------------------ the engine

    def set_tables(self, log_tables: Array) -> None:
        """Use other log-tables."""
        self._log_tables = log_tables
        self._found.clear()

    def sweep(self, damping: float = 0.0) -> float:
        """Nothing moves."""
        return 0.0

    def marginals(self) -> Array:
        """Return the marginals of all variables, flat."""
        if self.propagation == "hugin":
            return _sums(self.graph, self.factor_marginals())
        return self._reading(variable_targets).out.copy()

    def factor_marginals(self) -> Array:
        """Return the marginals of all factors, flat as the tables."""
        return self._reading(factor_targets).out.copy()

    def log_z(self) -> float:
        """Return log Z, without the constant of the graph."""
        done = next(iter(self._found.values()), None)
        return self._reading(factor_targets).log_z if done is None else done.log_z

    def response(self) -> ExactResponse:
        """Return how the marginals move with the tables."""
        tree = self
        if self.propagation != "hugin":
            tree = Tree(self.plan, self.clock, "hugin")
            tree.set_tables(self._log_tables)
        return ExactResponse(tree._reading(factor_targets))

    def unhurried(self) -> None:
        """Take as long as it needs from now on: what is read after a run has no time limit."""
        self.clock = Budget(bytes=self.clock.budget.bytes).start()

    def _reading(self, read: Read) -> Propagation:
        if read not in self._found:
            self._found[read] = self.run(read)
        return self._found[read]


@contextmanager
def all_or_nothing(watch: Watch) -> Iterator[None]:
    """Turn Ctrl-C into an error that says how far the run was: it has no partial answer."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise BudgetError(
            f"the junction tree was interrupted when it was {100 * watch.done:.0f}% done; "
            "exact inference has no half answer"
        ) from stop


def _what(plan: TreePlan) -> str:
    return f"the junction tree (width {'' if plan.complete else 'at least '}{plan.width})"


def _require_feasible(plan: TreePlan, budget: Budget) -> None:
    """Raise an error for a plan without a tree, and for one that cannot end in time."""
    least = "" if plan.complete else "at least "
    if plan.complete and plan.operations > _MOST_OPERATIONS:
        raise BudgetError(
            f"{_what(plan)} needs {plan.operations:.2g} multiply-adds, which would take about "
            f"{plan.seconds() / 3600:.2g} hours; observe more variables, or use an approximation: "
            "bp, mf or gibbs"
        )
    budget.require_bytes(plan.bytes, _what(plan), ADVICE)
    if plan.given_up:
        raise BudgetError(
            f"no junction tree was found in the time of the budget ({_what(plan)} so far); give "
            "more seconds, observe more variables, or use an approximation: bp, mf or gibbs"
        )
    if not plan.complete or plan.bytes > _MOST_BYTES:
        raise BudgetError(
            f"{_what(plan)} needs {least}{format_bytes(plan.bytes)} and "
            f"{least}{plan.operations:.2g} multiply-adds; {ADVICE}"
        )
    if budget.seconds is not None and plan.operations > _FASTEST * budget.seconds:
        raise BudgetError(
            f"{_what(plan)} needs {plan.operations:.2g} multiply-adds, which {budget.seconds:g} "
            "seconds do not allow; allow more seconds, or use bp, mf or gibbs"
        )


def _sums(graph: FactorGraph, factors: Array) -> Array:
    """Marginals of the variables from those of the factors; variables of no factor are uniform."""
    out = np.repeat(1.0 / graph.cardinalities, graph.cardinalities)
    for group in factor_groups(graph):
        beliefs = factors[group.entries]
        for k, card in enumerate(group.shape):
            axes = tuple(j + 1 for j in range(len(group.shape)) if j != k)
            table = beliefs.reshape(len(beliefs), *group.shape).sum(axis=axes)
            begin = sum(group.shape[:k])
            out[group.states[:, begin : begin + card]] = table
    return out
