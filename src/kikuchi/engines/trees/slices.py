"""Exact inference within less memory than its junction tree takes: sums over slices.

A few variables are held at each of their joint states in turn. What is left has smaller tables,
the same for all of these slices; log Z and marginals are sums over the slices, weighted by the Z
of each.

Reference: TEH-I2.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Clock
from kikuchi.core.errors import ImpossibleEvidenceError
from kikuchi.engines.trees.plan import TreePlan, make_plan, variable_targets
from kikuchi.engines.trees.propagation import Watch
from kikuchi.engines.trees.speed import NOMINAL, Speed
from kikuchi.engines.trees.tree import Read, Tree, all_or_nothing
from kikuchi.graphs.conditioned import expand_marginals
from kikuchi.graphs.factor_graph import Conditioned, FactorGraph

_MOST_SLICES = 1024
Expand = Callable[[Conditioned, Array], Array]


@dataclass(frozen=True)
class Slices:
    """Variables to hold, the number of their joint states, and the plan of every slice.

    >>> import kikuchi as kk
    >>> sliced = sliced_plan(kk.plan(kk.grid(9, 9, seed=0)), kk.Budget(bytes=100_000).start())
    >>> sliced.plan.bytes <= 100_000, sliced.count == 2 ** len(sliced.variables)
    (True, True)
    """

    graph: FactorGraph
    variables: tuple[int, ...]
    plan: TreePlan

    @property
    def count(self) -> int:
        """Number of slices."""
        return int(np.prod(self.graph.cardinalities[list(self.variables)], dtype=np.int64))

    def seconds(self, speed: Speed = NOMINAL) -> float:
        """Rough time of all slices on a machine of some speed."""
        return self.count * self.plan.seconds(speed)

    def solve(
        self, watch: Watch, read: Read = variable_targets, expand: Expand = expand_marginals
    ) -> tuple[float, Array]:
        """log Z and what `read` asks for, carried back to the whole graph by `expand`."""
        log_zs, marginals = [], []
        for number, states in enumerate(self._slices()):
            try:
                part = self.graph.reduce(states)
                plan = dataclasses.replace(self.plan, conditioned=part)
                with all_or_nothing(watch):
                    run = Tree(plan, watch.clock).run(read)
            except ImpossibleEvidenceError:
                continue  # a slice of weight zero
            finally:
                watch.check(number + 1, self.count)
            log_zs.append(run.log_z + part.graph.log_constant - self.graph.log_constant)
            marginals.append(expand(part, run.out))
        if not log_zs:
            raise ImpossibleEvidenceError(
                "the evidence has probability zero: no state satisfies all factors at once"
            )
        log_z = float(np.logaddexp.reduce(log_zs))
        weights = np.exp(np.array(log_zs) - log_z)
        return log_z, np.asarray(weights @ np.array(marginals))

    def _slices(self) -> Iterator[dict[int, int]]:
        ranges = (range(int(self.graph.cardinalities[v])) for v in self.variables)
        for states in itertools.product(*ranges):
            yield dict(zip(self.variables, states, strict=True))


def sliced_plan(plan: TreePlan, clock: Clock) -> Slices | None:
    """The fewest slices found that fit the memory of a budget; None if there are too many."""
    graph, memory = plan.graph, clock.budget.bytes
    # Plans need scopes alone: no table is empty in a state that a slice holds.
    positive = graph.replaced(log_tables=np.zeros_like(graph.log_tables))
    plan = dataclasses.replace(plan, conditioned=positive.reduce({}))
    held: list[int] = []
    count = 1
    while plan.complete and memory is not None and plan.bytes > memory:
        v = _heaviest(plan)
        held.append(int(plan.conditioned.variables[v]))
        count *= int(plan.graph.cardinalities[v])
        if count > _MOST_SLICES or clock.expired:
            return None
        part = positive.reduce(dict.fromkeys(held, 0))
        plan = make_plan(part, "min-fill" if len(held) % 4 else "cheapest", None, clock)
    return Slices(graph, tuple(held), plan) if plan.complete and held else None


def _heaviest(plan: TreePlan) -> int:
    """The variable of the reduced graph that saves most entries of separators for each slice."""
    tree = plan.found_tree
    ends = tree.clique_offsets[1:] - tree.residual
    saved = np.zeros(plan.graph.n_variables)
    for c in np.argsort(tree.separator_size)[-64:]:
        names = tree.clique_vars[tree.clique_offsets[c] : ends[c]]
        saved[names] += tree.separator_size[c] * (1.0 - 1.0 / tree.card[names])
    saved /= np.log(tree.card)
    return int(plan.variable_of_rank[int(np.argmax(saved))])
