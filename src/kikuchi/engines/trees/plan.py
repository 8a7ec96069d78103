"""A junction tree and what propagation on it would cost.

A plan is made from the graph's scopes alone. It knows the cliques, the separators, which factor
goes to which clique, and the memory and operations of the propagation in `engine`. It
allocates no tables.

Reference: HOJ-I3, TEH-I2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Budget, Clock, format_bytes
from kikuchi.core.errors import BudgetError
from kikuchi.core.labelled import html_facts
from kikuchi.core.log import logger
from kikuchi.engines.trees import shape
from kikuchi.engines.trees.kernels import program as programs
from kikuchi.engines.trees.shape import HUGE, MarginalTargets, TreeLayout
from kikuchi.engines.trees.speed import NOMINAL, Speed
from kikuchi.graphs.elimination import Elimination, cheapest, eliminate
from kikuchi.graphs.factor_graph import Conditioned, FactorGraph

Architecture = Literal["shafer-shenoy", "hugin"]
Mode = Literal["sum", "max"]
PlanOrder = Literal["cheapest", "min-fill", "min-degree", "min-weight"]

_LOG = logger("methods.plan")
_MOST_BITS = 990  # numbers stay printable
_DEFAULT_SECONDS = 600.0  # of exact inference without a limit
_EFFORT_PER_SECOND = 2e8  # list entries that the search for orders reads
_PLANNING = 0.25  # part of the time that the search for orders may take
_MOST_SECONDS = 100.0  # of which this part is taken
_HOPELESS_BITS = 60.0  # of the largest table
_SECONDS_PER_ENTRY = 1e-9  # of the cliques, about
_LEAST_EFFORT = 2e7  # for one order of a large graph

ADVICE = (
    "raise the memory limit (--memory, Budget(bytes=...)), observe more variables, "
    "or use an approximation: bp, mf or gibbs"
)


class Measure(NamedTuple):
    """What a propagation takes (see `kernels.program.measure`)."""

    up: Array
    down: Array
    up_lengths: Ints
    down_lengths: Ints
    scratch: Ints
    up_results: float
    down_results: float
    read_results: float
    up_total: float
    down_total: float
    separators: float
    cliques: float
    targets: float

    @property
    def operations(self) -> float:
        """Multiply-adds of both passes."""
        return self.up_total + self.down_total

    def temporary(self, logs: bool) -> float:
        """Entries for the results of a walk; sums of exponentials take as many again."""
        if logs:
            return max(
                2 * max(self.up_results, self.down_results),
                self.down_results + 2 * self.read_results,
            )
        return max(self.up_results, self.down_results + self.read_results)

    @property
    def index_bytes(self) -> int:
        """Bytes of both programs and of the scratch that one walk uses."""
        tile, operands, table, axes = (int(x) for x in self.scratch)
        ops, dims, steps, bases, actions = (int(x) for x in self.up_lengths + self.down_lengths)
        lists = (
            programs.COLUMNS * ops + dims + steps + 2 * bases + programs.ACTION_COLUMNS * actions
        )
        return 8 * (lists + tile + 2 * operands + 2 * table + 3 * axes)


@dataclass(frozen=True, eq=False)
class TreePlan:
    """A junction tree for one graph and evidence: its shape and its cost.

    `width` is the size of the largest clique less one, `largest_clique` its number of states,
    `bytes` the peak working memory and `operations` the multiply-adds of all single-variable
    marginals and log Z by Shafer-Shenoy propagation. If `complete` is False the search for an
    elimination order stopped, since the tree would be too large for any machine, and the figures
    are lower bounds for this order.
    """

    conditioned: Conditioned
    order: PlanOrder
    seed: int | None
    elimination: Elimination
    tree: TreeLayout | None

    # ------------------------------------------------------------------ price

    @property
    def complete(self) -> bool:
        """False if the search for an order stopped early: all figures are then lower bounds."""
        return self.tree is not None

    @property
    def given_up(self) -> bool:
        """True if the search for an order ended for want of time, not of memory."""
        return self.elimination.given_up

    @property
    def width(self) -> int:
        """Size of the largest clique less one."""
        return self.elimination.width

    @cached_property
    def largest_clique(self) -> int:
        """Number of states of the largest clique."""
        if self.tree is None:
            return int(2 ** min(int(self.elimination.log2_weight), _MOST_BITS))
        return _whole(self.tree.clique_size.max(initial=1.0))

    @cached_property
    def bytes(self) -> int:
        """Peak working memory of all single-variable marginals, in bytes."""
        if self.tree is None:
            # The heaviest clique sends a message over all its variables but the one summed out.
            return 8 * self.largest_clique // int(self.graph.cardinalities.max(initial=1))
        return self.bytes_for(self.variable_targets)

    @cached_property
    def operations(self) -> int:
        """Multiply-adds of all single-variable marginals."""
        if self.tree is None:
            return _whole(2 * self.elimination.cost)
        return _whole(self.measure(self.variable_targets).operations)

    def seconds(self, speed: Speed = NOMINAL) -> float:
        """Rough time of all single-variable marginals on a machine of some speed."""
        if self.tree is None:
            return speed.entry * self.operations
        nodes = speed.node * self.tree.n_nodes
        return speed.walks(self.walk_work) + nodes + speed.byte * self.bytes

    @cached_property
    def walk_work(self) -> Array:
        """Entries, rows and calls of the loops that find all single-variable marginals."""
        work: Array = programs.walk_work(self.found_tree, self.variable_targets)
        return work

    def bytes_for(
        self,
        targets: MarginalTargets,
        *,
        logs: bool = False,
        keep: bool = False,
        hugin: bool = False,
        decode: bool = False,
    ) -> int:
        """Peak working memory of a run that reads `targets`.

        `logs` is for sums of exponentials, `keep` for messages of both directions held at once,
        `hugin` for clique tables held as well, `decode` for a best state or samples besides.
        """
        tree = self.found_tree
        measure = self.measure(targets, hugin=hugin)
        entries = (
            float(tree.group_tables[-1])  # products of factors
            + measure.separators * (2 if keep and not hugin else 1)
            + measure.temporary(logs)
            + measure.targets
        )
        if hugin:
            entries += measure.cliques
        if decode:
            entries += tree.largest_residual
        by_node = 64 * tree.n_nodes  # offsets, scales and floors of the messages
        indices = measure.index_bytes + tree.nbytes + targets.nbytes + by_node
        return _whole(8 * entries) + indices

    @cached_property
    def variable_targets(self) -> MarginalTargets:
        """The marginal of every variable, each from the smallest table that holds it."""
        return shape.variable_targets(self.found_tree, self.graph)

    @cached_property
    def _usual_measure(self) -> Measure:
        return self._measure(self.variable_targets, hugin=False)

    def measure(self, targets: MarginalTargets, *, hugin: bool = False) -> Measure:
        """Work per clique, and the sizes of programs and results."""
        if targets is self.variable_targets and not hugin:
            return self._usual_measure
        return self._measure(targets, hugin=hugin)

    def _measure(self, targets: MarginalTargets, *, hugin: bool) -> Measure:
        return Measure(*programs.measure(hugin, self.found_tree, targets))

    # ------------------------------------------------------------------ shape

    @property
    def graph(self) -> FactorGraph:
        """The graph that is propagated on: reduced by the evidence and by single states."""
        return self.conditioned.graph

    @property
    def found_tree(self) -> TreeLayout:
        """The tree of a complete plan."""
        if self.tree is None:
            raise BudgetError(f"there is no tree: {self}; {ADVICE}")
        return self.tree

    @cached_property
    def variable_of_rank(self) -> Ints:
        """Number in the reduced graph of the variable of each rank."""
        return np.asarray(self.elimination.order[::-1], dtype=np.int64)

    @cached_property
    def elimination_order(self) -> list[int]:
        """Variables of the given graph in the order of their elimination, without observed ones."""
        return [int(v) for v in self.conditioned.variables[self.elimination.order]]

    @cached_property
    def cliques(self) -> list[tuple[int, ...]]:
        """Variables of each node of the tree, sorted; children come before their parents.

        Besides the maximal cliques there may be join nodes, which lie inside their parents: there
        small messages are multiplied before they meet a large table.
        """
        s = self.found_tree
        return [
            self._names(s.clique_vars[s.clique_offsets[c] : s.clique_offsets[c + 1]])
            for c in range(s.n_nodes)
        ]

    @cached_property
    def separators(self) -> list[tuple[int, ...]]:
        """What each clique shares with its parent, sorted; empty for roots."""
        s = self.found_tree
        ends = s.clique_offsets[1:] - s.residual
        return [self._names(s.clique_vars[s.clique_offsets[c] : ends[c]]) for c in range(s.n_nodes)]

    @property
    def parents(self) -> list[int]:
        """Parent of each clique, -1 for roots: one root for each component of the graph."""
        return [int(p) for p in self.found_tree.parent]

    @cached_property
    def factor_cliques(self) -> dict[int, int]:
        """The clique that each factor is multiplied into; factors all observed have none."""
        homes = self.found_tree.factor_home
        return {int(a): int(c) for a, c in zip(self.conditioned.factors, homes, strict=True)}

    def _names(self, ranks: Ints) -> tuple[int, ...]:
        variables = self.conditioned.variables[self.variable_of_rank[ranks]]
        return tuple(sorted(int(v) for v in variables))

    # ------------------------------------------------------------------ words

    def __str__(self) -> str:
        about = "" if self.complete else "at least "
        cliques = f"{self.found_tree.n_cliques} cliques, " if self.complete else ""
        return (
            f"junction tree: width {about}{self.width}, {cliques}"
            f"largest {about}{_number(self.largest_clique)} states, "
            f"{about}{format_bytes(self.bytes)}, {about}{self.operations:.2g} multiply-adds"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    def _repr_html_(self) -> str:
        about = "" if self.complete else "at least "
        facts = [
            ("width", f"{about}{self.width}"),
            ("largest clique", f"{about}{_number(self.largest_clique)} states"),
            ("memory", f"{about}{format_bytes(self.bytes)}"),
            ("multiply-adds", f"{about}{self.operations:.2g}"),
        ]
        return html_facts("Junction tree", facts)

    def describe(self) -> str:
        """The plan in several lines, for people."""
        about = "" if self.complete else "at least "
        tries = "1 try" if self.elimination.tries == 1 else f"best of {self.elimination.tries}"
        lines = [
            f"elimination order   {self.order} ({tries})",
            f"variables           {self.graph.n_variables} "
            f"({len(self.conditioned.observed)} fixed beforehand)",
            f"width               {about}{self.width}",
            f"largest clique      {about}{_number(self.largest_clique)} states",
            f"memory              {about}{format_bytes(self.bytes)}",
            f"multiply-adds       {about}{self.operations:.3g}",
        ]
        if self.complete:
            roots = int(np.count_nonzero(self.found_tree.parent < 0))
            trees = "1 tree" if roots == 1 else f"{roots} trees"
            lines.insert(2, f"cliques             {self.found_tree.n_cliques} in {trees}")
        else:
            lines.append("the search stopped: no machine can pay for this order")
        return "\n".join(lines)


def unconditioned(graph: FactorGraph) -> Conditioned:
    """A graph as it is, as if reduced by no evidence."""
    return Conditioned(graph, graph, {}, np.arange(graph.n_variables), np.arange(graph.n_factors))


def make_plan(
    conditioned: Conditioned,
    order: PlanOrder,
    seed: int | None,
    clock: Clock | None = None,
    uses: int = 1,
) -> TreePlan:
    """Plan exact inference on a conditioned graph.

    An order that takes too much of the time of `clock` is given up. The search for the `cheapest`
    order heeds its whole budget: orders that exceed it are worth a longer search, of which `clock`
    is the end. So are orders for many `uses`: propagations.
    """
    graph = conditioned.graph
    if order == "cheapest":
        elimination = _cheapest(conditioned, seed, clock or Budget().start(), uses)
    else:
        most = math.inf if clock is None else _most_effort(clock.budget.seconds)
        elimination = eliminate(graph, order, seed=seed, most_effort=most)
    hurried = clock is not None and clock.budget.seconds is not None
    wanted = elimination.complete and not (hurried and _is_hopeless(elimination))
    plan = _plan(conditioned, order, seed, elimination, wanted)
    _LOG.debug("%s", plan)
    return plan


def _most_effort(seconds: float | None) -> float:
    """List entries that the search for an order may read within so many seconds of a run."""
    if seconds is None:
        return math.inf
    return max(_EFFORT_PER_SECOND * _PLANNING * min(seconds, _MOST_SECONDS), _LEAST_EFFORT)


def _is_hopeless(elimination: Elimination) -> bool:
    """Whether no machine can hold the largest table."""
    return elimination.log2_weight > _HOPELESS_BITS


def _plan(
    conditioned: Conditioned,
    order: PlanOrder,
    seed: int | None,
    elimination: Elimination,
    with_tree: bool,
) -> TreePlan:
    tree = shape.build_tree(conditioned.graph, elimination) if with_tree else None
    return TreePlan(conditioned, order, seed, elimination, tree)


def _cheapest(conditioned: Conditioned, seed: int | None, clock: Clock, uses: int) -> Elimination:
    """The cheapest order, by the seconds and bytes of its tree beside what the budget allows."""
    budget = clock.budget
    seconds = _DEFAULT_SECONDS if budget.seconds is None else budget.seconds
    memory = math.inf if budget.bytes is None else budget.bytes

    def judge(found: Elimination) -> tuple[float, float]:
        if _is_hopeless(found):  # its tree may take longer than all that can be done in time
            price = _SECONDS_PER_ENTRY * found.cost
        else:
            plan = _plan(conditioned, "cheapest", seed, found, found.complete)
            price = plan.seconds() * max(1.0, plan.bytes / memory)
        return _EFFORT_PER_SECOND * uses * price, price / seconds

    return cheapest(
        conditioned.graph,
        judge,
        seed=seed,
        most_effort=_most_effort(seconds),
        stop=lambda: clock.expired,
    )


# ---------------------------------------------------------------------- what to read


def variable_targets(plan: TreePlan) -> MarginalTargets:
    """The marginal of every variable."""
    return plan.variable_targets


def factor_targets(plan: TreePlan) -> MarginalTargets:
    """The marginal of every factor."""
    return shape.factor_targets(plan.found_tree, plan.graph)


def no_targets(plan: TreePlan) -> MarginalTargets:
    """Nothing: log Z, samples and best states need the upward pass only."""
    return shape.no_targets(plan.found_tree)


def joint_target(plan: TreePlan, variables: list[int], clique: int) -> MarginalTargets:
    """The joint marginal of some variables of the reduced graph, all in one clique."""
    return shape.joint_target(plan.found_tree, plan.graph, variables, clique)


def _whole(value: float) -> int:
    return int(min(value, HUGE))


def _number(value: int) -> Any:
    return value if value < 10**6 else f"{float(min(value, int(HUGE))):.3g}"
