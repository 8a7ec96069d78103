"""Junction trees that answer any number of questions.

`plan` builds the tree, `Plan` tells what it costs, and propagation on it gives log Z, marginals,
most probable states, joint marginals and samples, all exact.

Reference: HOJ-I3 to I5, HOJ-I4, HOJ-I5, HOJ-M3, LIU-I1, TEH-I2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Unpack

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Budget, RunLimits, limits, named_limits
from kikuchi.core.errors import MethodError, ModelError
from kikuchi.core.seeds import Seed, generator
from kikuchi.engines.run import Joint
from kikuchi.engines.small_work import loops_for, loops_for_rows
from kikuchi.engines.trees.plan import (
    Architecture,
    PlanOrder,
    TreePlan,
    factor_targets,
    joint_target,
    make_plan,
    no_targets,
    unconditioned,
    variable_targets,
)
from kikuchi.engines.trees.propagation import Propagation, Underflow, Watch
from kikuchi.engines.trees.shape import MarginalTargets
from kikuchi.engines.trees.tree import Read, Tree, all_or_nothing
from kikuchi.graphs.conditioned import expand_factors, expand_marginals, expand_states
from kikuchi.graphs.factor_graph import Evidence, FactorGraph, Variable, check_graph

__all__ = ["CalibratedTree", "Plan", "plan"]


def plan(
    graph: FactorGraph,
    *,
    evidence: Evidence | None = None,
    order: PlanOrder = "cheapest",
    seed: int | None = None,
) -> Plan:
    """The junction tree of a graph given evidence, and what it would cost; no table is made.

    `graph` is the model, `evidence` what is observed, `order` the elimination order (the cheapest
    of several by default), `seed` breaks its ties at random.

    >>> import kikuchi as kk
    >>> plan(kk.grid(3, 3, seed=0), evidence={4: 1}).width
    2
    """
    check_graph(graph, "plan")
    with loops_for(graph):
        best = make_plan(graph.reduce(graph.resolve(evidence)), order, seed)
    return Plan(best.conditioned, best.order, best.seed, best.elimination, best.tree)


class Plan(TreePlan):
    """What exact inference on one graph given evidence would cost, and the tree to do it with.

    >>> import kikuchi as kk
    >>> plan = kk.plan(kk.grid(4, 4, seed=0))
    >>> plan.width, plan.largest_clique, plan.complete
    (4, 32, True)
    >>> print(plan)
    junction tree: width 4, 12 cliques, largest 32 states, 21 kB, 1.8e+03 multiply-adds
    """

    @named_limits
    def calibrate(
        self,
        *,
        propagation: Architecture = "shafer-shenoy",
        **within: Unpack[RunLimits],
    ) -> CalibratedTree:
        """Propagate: a tree that answers any number of questions exactly.

        >>> import kikuchi as kk
        >>> tree = kk.plan(kk.FactorGraph([2, 2], [((0, 1), [[1, 2], [3, 4]])])).calibrate()
        >>> tree.joint([1, 0]).round(6).tolist()
        [[0.1, 0.3], [0.2, 0.4]]
        """
        return CalibratedTree(self, propagation, limits(**within))


class CalibratedTree:
    """A junction tree after both passes: every clique belief can be read off.

    Made by `Plan.calibrate`. Variables are those of the graph that was planned, observed ones
    included. Messages of both directions (or, for Hugin, cliques) stay in memory.

    >>> import kikuchi as kk
    >>> tree = kk.plan(kk.FactorGraph([2, 2], [((0, 1), [[1, 2], [3, 4]])])).calibrate()
    >>> round(tree.log_z, 6), tree.marginals[1].round(6).tolist()
    (2.302585, [0.4, 0.6])
    >>> tree.sample(3, seed=0).shape
    (3, 2)
    """

    def __init__(self, plan: TreePlan, propagation: Architecture, budget: Budget) -> None:
        self.plan = plan
        self.propagation: Architecture = propagation
        self.budget = budget
        self._run = self._propagate(plan, variable_targets, keep=True)

    def _propagate(
        self, plan: TreePlan, read: Read, *, keep: bool = False, logs: bool = False
    ) -> Propagation:
        watch = Watch(self.budget.start())
        tree = Tree(plan, watch.clock, self.propagation)
        with loops_for(self._original), all_or_nothing(watch):
            return tree.run(read, watch, keep=keep, logs=logs)

    @property
    def log_z(self) -> float:
        """Logarithm of the total weight of all states that agree with the evidence."""
        return self._run.log_z + self.plan.graph.log_constant

    @cached_property
    def flat_marginals(self) -> Array:
        """Marginals of all variables, one after the other."""
        return expand_marginals(self.plan.conditioned, self._run.out)

    @property
    def marginals(self) -> list[Array]:
        """Marginal of each variable."""
        return np.split(self.flat_marginals, self._original.state_offsets[1:-1])

    @cached_property
    def flat_factors(self) -> Array:
        """Marginals of all factors, laid out as the graph's `log_tables`."""
        tables = self._propagate(self.plan, factor_targets).out
        return expand_factors(self.plan.conditioned, tables)

    def factor(self, factor: int) -> Array:
        """Marginal of one factor's scope."""
        offsets = self._original.table_offsets
        table = self.flat_factors[offsets[factor] : offsets[factor + 1]]
        return table.reshape(self._original.shape(factor))

    def clique(self, clique: int) -> Array:
        """Marginal of a clique, its axes in the order of `plan.cliques[clique]`."""
        return self.joint(self.plan.cliques[clique])

    def separator(self, clique: int) -> Array:
        """Marginal of the separator above a clique, axes as in `plan.separators[clique]`."""
        return self.joint(self.plan.separators[clique])

    def joint(self, variables: Sequence[Variable]) -> Array:
        """Joint marginal of any variables, axes in the order given.

        A set inside one clique is read from it; for any other the set is joined to one clique of a
        new tree, whose price counts against the budget.
        """
        graph, conditioned = self._original, self.plan.conditioned
        asked = [graph.index(v) for v in variables]
        if len(set(asked)) != len(asked):
            raise ModelError(f"joint: a variable is repeated in {list(variables)}")
        number = {int(v): k for k, v in enumerate(conditioned.variables)}
        free = [number[v] for v in asked if v in number]
        shape = tuple(int(graph.cardinalities[v]) for v in asked)
        needed = 8 * math.prod(shape)
        self.budget.require_bytes(needed, f"the joint of {len(asked)} variables", "request fewer")
        table = np.zeros(shape)
        where = tuple(conditioned.observed.get(v, slice(None)) for v in asked)
        with loops_for(graph):
            table[where] = self._free_joint(free).reshape(table[where].shape)
        return table

    def _free_joint(self, variables: list[int]) -> Array:
        """Joint of variables of the reduced graph, flat."""
        if not variables:
            return np.ones(1)
        clique = _holding_clique(self.plan, variables)
        if clique is not None:
            return self._read(clique, joint_target(self.plan, variables, clique))
        joined = make_plan(
            unconditioned(_joined(self.plan.graph, variables)), self.plan.order, self.plan.seed
        )
        return self._propagate(joined, lambda plan: _joint_in(plan, variables)).out

    def _read(self, clique: int, targets: MarginalTargets) -> Array:
        try:
            return self._run.read(clique, targets)
        except Underflow:  # the messages are fine, their product here is not
            self._run = self._propagate(self.plan, variable_targets, keep=True, logs=True)
            return self._run.read(clique, targets)

    def sample(self, n: int, seed: Seed = None) -> Ints:
        """`n` independent exact samples, one per row.

        Variables are drawn against the order of elimination, each clique's given its separator.
        """
        if n < 0:
            raise MethodError(f"sample: the number of samples must not be negative, got {n}")
        with loops_for_rows(self._original, int(n)):
            drawn = self._run.draw(int(n), generator(seed))
        return expand_states(self.plan.conditioned, drawn)

    def max_state(self) -> tuple[Ints, float]:
        """The most probable state and its log-weight; of equals always the same."""
        watch = Watch(self.budget.start())
        tree = Tree(self.plan, watch.clock)
        with loops_for(self._original), all_or_nothing(watch):
            run = tree.run(no_targets, watch, mode="max", distribute=False)
        assert run.state is not None  # mode="max" finds it
        state = expand_states(self.plan.conditioned, run.state)
        return state, float(self._original.log_score(state))

    @property
    def _original(self) -> FactorGraph:
        return self.plan.conditioned.original

    def __repr__(self) -> str:
        return f"CalibratedTree({self.propagation}, log Z {self.log_z:.6f}, {self.plan})"


# ---------------------------------------------------------------------- parts


def tree_joint(
    graph: FactorGraph, budget: Budget, order: PlanOrder = "cheapest", seed: int | None = None
) -> Joint:
    """The joint of any variables of a graph, by a run of its own within the same memory."""
    return partial(_joint_of, graph, order, seed, Budget(bytes=budget.bytes))


def _joint_of(
    graph: FactorGraph, order: PlanOrder, seed: int | None, budget: Budget, variables: list[int]
) -> Array:
    plan = make_plan(unconditioned(graph), order, seed)
    return CalibratedTree(plan, "shafer-shenoy", budget).joint(variables)


def _holding_clique(plan: TreePlan, variables: list[int]) -> int | None:
    """The clique that eliminates the first of the variables holds them all, if any clique does."""
    s = plan.found_tree
    ranks = s.rank[variables]
    clique = int(s.home[ranks.max()])
    held = s.clique_vars[s.clique_offsets[clique] : s.clique_offsets[clique + 1]]
    return clique if np.isin(ranks, held).all() else None


def _joint_in(plan: TreePlan, variables: list[int]) -> MarginalTargets:
    clique = _holding_clique(plan, variables)
    assert clique is not None  # a factor over the variables made them a clique
    return joint_target(plan, variables, clique)


def _joined(graph: FactorGraph, variables: list[int]) -> FactorGraph:
    """The graph with a constant factor over some variables."""
    size = int(np.prod(graph.cardinalities[variables].astype(np.int64)))
    return FactorGraph.from_arrays(
        graph.cardinalities,
        np.concatenate([graph.scopes, np.array(variables, dtype=np.uint32)]),
        np.append(graph.scope_offsets, graph.scope_offsets[-1] + len(variables)),
        np.concatenate([graph.log_tables, np.zeros(size)]),
        log_constant=graph.log_constant,
        validate=False,
    )
