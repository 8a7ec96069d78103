"""Exact inference by summing over all states.

Reference: LAW-I1, LIU-I1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Budget
from kikuchi.core.errors import BudgetError, ImpossibleEvidenceError
from kikuchi.core.numerics import count_states
from kikuchi.engines import tables
from kikuchi.engines.response.linear_response import clamped_covariance
from kikuchi.engines.run import Joint, MethodRun, Solution, Step
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.method import Method, option

_INDEX = np.uint64
FEW_STATES = 2**10  # of the whole model: one table of them needs no compiled loop
_VISITS = 2**18  # steps of the walk between two checks of the clock: about 10 ms


@dataclass(frozen=True)
class Enumeration(Method):
    """Exact log Z, all marginals and the most probable state by summing over all states.

    log Z = log sum_x prod_a phi_a(x_a). The states are visited depth first and not stored, so the
    memory is that of the result; the time is proportional to the number of states of positive
    weight. This is the reference for all other methods.

    >>> import kikuchi as kk
    >>> model = kk.FactorGraph([2, 2], [((0, 1), [[1, 2], [3, 4]])])
    >>> beliefs = kk.infer(model, "enumerate")
    >>> beliefs[0].tolist(), round(beliefs.log_z, 6), beliefs.state.tolist()
    ([0.3, 0.7], 2.302585, [1, 1])
    """

    name: ClassVar[str] = "enumerate"
    summary: ClassVar[str] = "exact: sum over all states (small models)"
    objective_name: ClassVar[str] = "log of the sum so far"
    exactness = "always"
    certifies = ("lower", "upper")
    most_joint_states: ClassVar[int | None] = 2**24
    gives_covariance: ClassVar[bool] = True

    max_states: int = option(
        most_joint_states, "largest number of states; larger models raise an error", low=1
    )

    def _most_interpreted(self, graph: FactorGraph) -> int:
        """Return None if states are visited one by one: their number is not that of the table
        entries.
        """
        few = count_states(graph.cardinalities) <= FEW_STATES
        return self.most_interpreted if few else 0

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        total = self._count_states(graph)
        walk: _JointTable | _Walk
        if total <= FEW_STATES:
            walk = _JointTable(graph)
            run.record(walk.sum(), total)
        else:
            walk = _Walk(graph)
            self._walk_to_the_end(walk, total, run)
        if walk.best_score == -np.inf:
            raise ImpossibleEvidenceError(
                "no state of the model has positive weight (Z = 0); check the zeros in its tables"
            )
        tables, marginals = walk.factor_tables(), walk.marginals()
        return Solution(
            marginals=marginals,
            log_z=walk.log_sum,
            log_z_lower=walk.log_sum,
            log_z_upper=walk.log_sum,
            factor_tables=lambda: tables,
            covariance=lambda variables: clamped_covariance(
                graph, marginals, lambda v, k: self._given(graph, v, k), variables
            ),
            joint=walk.joint(run.clock.budget),
            state=walk.best_state(),
            score=walk.best_score,
            diagnostics={"states": total},
        )

    def _given(self, graph: FactorGraph, variable: int, state: int) -> Array:
        """Return all marginals given the state of one variable."""
        return self.run(graph, evidence={variable: state}).flat_marginals

    def _count_states(self, graph: FactorGraph) -> int:
        digits = float(np.log10(graph.cardinalities.astype(np.float64)).sum())
        total = int(math.prod(graph.cardinalities.tolist())) if digits < 18 else None
        if total is None or total > self.max_states:
            figure = f"10^{digits:.1f}" if total is None else str(total)
            raise BudgetError(
                f"enumeration would sum over {figure} states but max_states is {self.max_states}; "
                "raise max_states, or use jt (exact) or bp, mf, gibbs (approximate)"
            )
        return total

    def _walk_to_the_end(self, walk: _Walk, total: int, run: MethodRun) -> None:
        try:
            step = walk.stepping()
            while not walk.finished:
                run.record(step(), total)
                if run.clock.expired and not walk.finished:
                    raise BudgetError(_unfinished(walk, total, "the time budget ended"))
        except KeyboardInterrupt:
            raise BudgetError(_unfinished(walk, total, "it was interrupted")) from None


def _unfinished(walk: _Walk, total: int, why: str) -> str:
    bound = f"; so far log Z >= {walk.log_sum:.6g}" if walk.log_sum > -np.inf else ""
    return (
        f"enumeration has no partial result, and {why} after about {walk.done:.3g} of {total:.3g} "
        f"states{bound}; allow more seconds, or use jt, bp, mf or gibbs"
    )


class _JointTable:
    """The weights of all states of a small model as one NumPy table."""

    def __init__(self, graph: FactorGraph) -> None:
        self.graph = graph
        self.log_sum = self.best_score = -math.inf

    def sum(self) -> Step:
        """Sum over all states."""
        graph = self.graph
        scores = np.zeros(graph.cardinalities)
        for a in range(graph.n_factors):
            axes = graph.scope(a)
            table = graph.log_table(a).transpose(np.argsort(axes))
            shape = np.ones(graph.n_variables, dtype=np.int64)
            shape[list(axes)] = graph.shape(a)
            scores += table.reshape(shape)
        self._best = int(scores.argmax())
        self.best_score = float(scores.flat[self._best])
        if self.best_score > -math.inf:
            self._weights = np.exp(scores - self.best_score)
            self.log_sum = self.best_score + math.log(self._weights.sum())
        return Step(scores.size, objective=self.log_sum)

    def best_state(self) -> Ints:
        """The state of largest weight."""
        return np.array(np.unravel_index(self._best, self._weights.shape), dtype=np.int64)

    def marginals(self) -> Array:
        """Flat variable marginals."""
        return np.concatenate([self._onto((v,)) for v in range(self.graph.n_variables)])

    def factor_tables(self) -> Array:
        """Flat factor marginals, laid out as the log-tables."""
        scopes = map(self.graph.scope, range(self.graph.n_factors))
        return np.concatenate([np.zeros(0), *map(self._onto, scopes)])

    def joint(self, budget: Budget) -> Joint:
        """Return joints of any variables, summed from the same table."""
        return partial(_summed, self._weights)

    def _onto(self, scope: tuple[int, ...]) -> Array:
        others = tuple(v for v in range(self.graph.n_variables) if v not in scope)
        ranks = np.argsort(np.argsort(scope))
        table = self._weights.sum(axis=others).transpose(ranks).ravel()
        return np.asarray(table / table.sum())


def _summed(weights: Array, variables: list[int]) -> Array:
    """The joint of some axes of a table, in the order given."""
    others = tuple(v for v in range(weights.ndim) if v not in variables)
    table = weights.sum(axis=others).transpose(np.argsort(np.argsort(variables)))
    return np.asarray(table / table.sum())


class _Walk:
    """Flat arrays of the depth-first traversal: the factors by level, and the sums so far."""

    def __init__(self, graph: FactorGraph) -> None:
        self.graph = graph
        self.order = level_order(graph)
        n = graph.n_variables
        self._cards = graph.cardinalities[self.order].astype(_INDEX)
        self._single_starts = np.cumsum([0, *self._cards.tolist()], dtype=_INDEX)
        self._index_factors()
        self._state = np.zeros(n, dtype=_INDEX)
        self._scores = np.zeros(n)
        self._masses = np.zeros(n)
        self._singles = np.zeros(int(self._single_starts[-1]))
        self._tables = np.zeros(graph.log_tables.size)
        self._best = np.zeros(n, dtype=_INDEX)
        self._numbers = np.array([-np.inf, -np.inf])
        self._depth = np.zeros(1, dtype=_INDEX)
        self.finished = False

    def _index_factors(self) -> None:
        graph = self.graph
        level_of = np.argsort(self.order)
        by_level: list[list[int]] = [[] for _ in range(graph.n_variables)]
        for a in range(graph.n_factors):
            by_level[max(int(level_of[v]) for v in graph.scope(a))].append(a)
        starts, strides, others, levels, other_strides = [], [], [0], [], []
        for d, factors in enumerate(by_level):
            for a in factors:
                scope, steps = graph.scope(a), tables.strides(graph.shape(a))
                starts.append(int(graph.table_offsets[a]))
                strides.append(steps[scope.index(int(self.order[d]))])
                for v, step in zip(scope, steps, strict=True):
                    if level_of[v] < d:
                        levels.append(int(level_of[v]))
                        other_strides.append(step)
                others.append(len(levels))
        self._level_slots = np.cumsum([0, *map(len, by_level)], dtype=_INDEX)
        self._slot_starts = np.array(starts, dtype=_INDEX)
        self._slot_strides = np.array(strides, dtype=_INDEX)
        self._slot_others = np.array(others, dtype=_INDEX)
        self._other_levels = np.array(levels, dtype=_INDEX)
        self._other_strides = np.array(other_strides, dtype=_INDEX)
        self._bases = self._slot_starts.copy()

    def joint(self, budget: Budget) -> Joint:
        """Return joints of any variables by a junction tree, since the traversal only stores those
        of factors.
        """
        from kikuchi.engines.trees.calibrated import tree_joint

        return tree_joint(self.graph, budget)

    def stepping(self) -> Callable[[], Step]:
        """Return a function that continues the traversal by one chunk."""
        from kikuchi.engines.trees.kernels.enumeration import Levels, Sums, walk

        levels = Levels(
            self.graph.log_tables,
            self._cards,
            self._level_slots,
            self._slot_strides,
            self._slot_starts,
            self._slot_others,
            self._other_levels,
            self._other_strides,
            self._single_starts,
        )
        sums = Sums(
            self._state,
            self._scores,
            self._masses,
            self._bases,
            self._singles,
            self._tables,
            self._best,
            self._numbers,
            self._depth,
        )

        def step() -> Step:
            self.finished = walk(levels, sums, _VISITS)
            return Step(self.done, objective=self.log_sum)

        return step

    @property
    def done(self) -> int:
        """Number of states summed or skipped: the position of the current prefix."""
        below = int(math.prod(self._cards.tolist()))
        if self.finished:
            return below
        place = 0
        for level in range(int(self._depth[0]) + 1):
            below //= int(self._cards[level])
            tried = int(self._state[level]) - (level < int(self._depth[0]))
            place += below * tried
        return place

    @property
    def best_score(self) -> float:
        """Largest log-weight found so far."""
        return float(self._numbers[1])

    @property
    def log_sum(self) -> float:
        """Log of the weight summed so far: a lower bound on log Z, and log Z at the end."""
        mass = float(self._masses[: int(self._depth[0]) + 1].sum())
        return math.log(mass) + float(self._numbers[0]) if mass > 0 else -math.inf

    def best_state(self) -> Ints:
        """The state of largest weight, in variable order."""
        return self._best[np.argsort(self.order)].astype(np.int64)

    def marginals(self) -> Array:
        """Flat variable marginals, in variable order."""
        blocks = np.split(self._singles, self._single_starts[1:-1])
        places = np.argsort(self.order)
        return np.concatenate([blocks[d] / blocks[d].sum() for d in places])

    def factor_tables(self) -> Array:
        """Flat factor marginals, laid out as the log-tables."""
        if self.graph.n_factors == 0:
            return self._tables
        offsets = self.graph.table_offsets
        sums = np.add.reduceat(self._tables, offsets[:-1])
        return np.asarray(self._tables / np.repeat(sums, np.diff(offsets)))


def level_order(graph: FactorGraph) -> Ints:
    """Return the variables from the shallowest to the deepest level of the traversal.

    The deepest levels are visited most often, so they get the variables with the fewest factors; a
    factor counts only for the deepest variable of its scope.

    >>> import kikuchi as kk
    >>> star = [((2, 0), [1] * 4), ((2, 1), [1] * 4), ((2, 3), [1] * 4)]
    >>> level_order(kk.FactorGraph([2] * 4, star)).tolist()
    [0, 2, 1, 3]
    """
    scopes = [set(graph.scope(a)) for a in range(graph.n_factors)]
    left = list(range(graph.n_variables))
    deepest_first = []
    while left:
        counts = dict.fromkeys(left, 0)
        for scope in scopes:
            for v in scope:
                counts[v] += 1
        chosen = min(left, key=lambda v: (counts[v], -int(graph.cardinalities[v]), -v))
        deepest_first.append(chosen)
        left.remove(chosen)
        scopes = [scope for scope in scopes if chosen not in scope]
    return np.array(deepest_first[::-1], dtype=np.int64)
