"""Structured mean field: the best distribution on a junction forest, a certified lower bound.

The trial distribution Q is any distribution that is Markov with respect to a forest of small
cliques: a spanning tree, subsets of variables with exact inference inside each, or any subgraph of
bounded width. By Jensen

    log Z >= L(Q) = sum_a E_Q[log phi_a] + H(Q).

Cliques are updated one after the other. With the conditionals of all others given a clique C fixed,
L is maximal at

    Q(x_C) proportional to exp E_Q[sum_a log phi_a - log Q(x | x_C) | x_C],

so L never decreases; with subsets this is Lawrence's (1.33), exact inside each subset. Factors over
variables of different cliques contribute their expectation given x_C, propagated along the tree.

Reference: HOJ-I10, LAW-I5, LAW-M11, TEH-I5.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import MethodError, OutOfTimeError
from kikuchi.core.progress import silent
from kikuchi.core.text import is_whole
from kikuchi.core.trace import Trace
from kikuchi.engines.loops.state import Iterations
from kikuchi.engines.mean_field import structured_subgraph as subgraphs
from kikuchi.engines.mean_field.ascent import LocalOptimum, MultiStartAscent, normalised
from kikuchi.engines.mean_field.structured_builder import lay_out
from kikuchi.engines.mean_field.structured_layout import Layout, Route, StructuredForest
from kikuchi.engines.mean_field.structured_subgraph import Forest, in_time
from kikuchi.engines.run import MethodRun, Solution, Step
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.mean_field import MeanField
from kikuchi.methods.method import Method, option

_NAIVE_PART = 0.2
_SEARCH_PART = 0.3
_CHUNK = 4e6  # elementary steps between two checks of the clock
_CHUNK_TREES = 100_000
# Cliques between the ends of cut factors, in all, and their entries: with more, trees are cut.
_MOST_SITES = 30_000
_ENTRIES_PER_SITE = 300.0
_CHOICES = "auto, tree, strips:K, subsets:0-4/5-9 or factors:0-20"


@dataclass(frozen=True)
class StructuredMeanField(Method):
    """Structured mean field on a tree or any narrow subgraph: a lower bound.

    `log_z` and `log_z_lower` are the bound. `subgraph` selects the factors in the forest: `auto`
    the strongest factors that fit `width`, `tree` a spanning tree, `strips:K` strips of K rows of a
    grid (of K breadth-first levels elsewhere), `subsets:0-4/5-9` everything inside sets of
    variables (others are single), `factors:0-20` the factors with these numbers. The first start is
    the naive mean field solution, so the bound is never below that one; the second is uniform, the
    others are random.

    >>> import kikuchi as kk
    >>> grid = kk.grid(4, 4, seed=0)
    >>> exact, naive = kk.infer(grid, "jt").log_z, kk.infer(grid, "mf").log_z
    >>> naive < kk.infer(grid, "tree-mf:width=2").log_z < exact
    True
    """

    name: ClassVar[str] = "tree-mf"
    edge_seconds: ClassVar[float] = 1.5e-7
    edge_bytes: ClassVar[int] = 162
    objective_name: ClassVar[str] = "lower bound"
    exactness = "forests"
    certifies = ("lower",)

    subgraph: str = option("auto", f"subgraph of the trial distribution: {_CHOICES}")
    width: int = option(7, "maximum number of variables of a clique, minus one (auto)", low=0)
    states: int = option(2**16, "maximum number of states of a clique (auto, tree)", low=2)
    restarts: int = option(0, "random starts after the naive and the uniform one", low=0)
    tol: float = option(1e-7, "stop when no clique belief changes by more than this", low=0.0)
    max_iter: int = option(500, "maximum number of sweeps of each start", low=1)
    seed: int = option(0, "seed of the random starts", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        kind, _, rest = self.subgraph.partition(":")
        good = {
            "auto": not rest,
            "tree": not rest,
            "strips": is_whole(rest) and int(rest) > 0,
            "subsets": bool(rest),
            "factors": bool(rest),
        }
        if not good.get(kind, False):
            raise MethodError(
                f"method tree-mf: option subgraph must be {_CHOICES}, got '{self.subgraph}'"
            )
        if kind in ("subsets", "factors"):
            read_ranges(rest)

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        naive = naive_solution(graph, run, self.seed)
        try:
            layout = self._layout(graph, run, naive.marginals)
            if run.stopped == "interrupted":
                return _out_of_time(naive, run)
            ascent = StructuredAscent(self, layout, run)
            ready = ascent.start(naive.marginals, keep=naive.log_z is not None)
        except OutOfTimeError:
            return _out_of_time(naive, run)
        if ready:
            ascent.ascend()
        uniform = np.repeat(1.0 / graph.cardinalities, graph.cardinalities)
        for number in range(self.restarts + 1):
            if ascent.must_end:
                break
            q = uniform if number == 0 else ascent.random_product()
            if ascent.start(q, keep=False):
                ascent.ascend()
        return ascent.solution(naive)

    # ------------------------------------------------------------------ which forest

    def _layout(self, graph: FactorGraph, run: MethodRun, q: Array) -> Layout:
        """Return the arrays of the forest."""
        forest = self._forest(graph, run, q)
        pieces = graph.n_variables
        while pieces > 1 and _too_long(graph, forest):
            subgraphs.look_at_clock()
            pieces = (pieces + 1) // 2
            forest = subgraphs.split(forest, pieces)
        subgraphs.look_at_clock()
        return lay_out(graph, forest, run.clock.budget)

    def _forest(self, graph: FactorGraph, run: MethodRun, q: Array) -> Forest:
        kind, _, rest = self.subgraph.partition(":")
        if kind in ("auto", "tree"):
            width = 1 if kind == "tree" else self.width
            scopes = subgraphs.keep_strongest(
                graph,
                subgraphs.strengths(graph, q),
                width,
                self.states,
                _deadline(run, _SEARCH_PART),
            )
        elif kind == "factors":
            known = {int(a): k for k, a in enumerate(_reduced_factors(graph, run))}
            asked = [a for group in read_ranges(rest) for a in group]
            _check_numbers("factor", asked, _original(graph, run).n_factors)
            scopes = [list(graph.scope(known[a])) for a in asked if a in known]
        else:
            label = (
                subgraphs.strips(graph, int(rest))
                if kind == "strips"
                else self._labels(graph, run, rest)
            )
            scopes = subgraphs.subset_scopes(graph, label)
        return subgraphs.forest_of(graph, scopes)

    def _labels(self, graph: FactorGraph, run: MethodRun, text: str) -> Ints:
        """Return the subset of every variable; others are singletons."""
        original = run.variables if len(run.variables) else np.arange(graph.n_variables)
        number = {int(v): k for k, v in enumerate(original)}
        groups = read_ranges(text)
        asked = [v for group in groups for v in group]
        _check_numbers("variable", asked, _original(graph, run).n_variables)
        if len(set(asked)) != len(asked):
            twice = next(v for v in asked if asked.count(v) > 1)
            raise MethodError(f"tree-mf: variable {twice} is in two subsets; each may be in one")
        label = len(groups) + np.arange(graph.n_variables)
        for k, group in enumerate(groups):
            for v in group:
                if v in number:
                    label[number[v]] = k
        return label


@dataclass
class StructuredOptimum(LocalOptimum):
    """A local optimum with the marginals of its clique beliefs on cut factors."""

    marginals: Array


class StructuredAscent(MultiStartAscent):
    """All starts of one run, and their best local optimum."""

    def __init__(self, method: StructuredMeanField, layout: Layout, run: MethodRun) -> None:
        super().__init__(method.seed, run)
        self.method = method
        self.layout = layout
        self.work = layout.work()
        self.log_tables = layout.graph.log_tables
        self.values = np.zeros(layout.n_trees)
        self.best: StructuredOptimum | None = None
        self.bounds: list[float] = []

    def start(self, q: Array, *, keep: bool) -> bool:
        """Begin at the product q; without `keep`, fit to it from the leaves to the roots.

        Returns whether there is a finite bound to increase, found in time.
        """
        from kikuchi.engines.mean_field.kernels.structured_mean_field import KEEP, UPDATE

        self.layout.start_at(self.work, q)
        tours = self.layout.tours
        in_time = self._pass(tours.upward, tours.upward_offsets, KEEP if keep else UPDATE)
        if in_time:
            self.bounds.append(self.bound)
            self._keep_best(False, math.inf)
        return in_time and self.bounds[-1] > -math.inf

    def _pass(self, path: Ints, path_offsets: Ints, mode: int) -> bool:
        """Update all trees once; return False if the time ended before, leaving the other trees
        unchanged.
        """
        from kikuchi.engines.mean_field.kernels import structured_mean_field as kernels

        layout, work, clock = self.layout, self.work, self.run.clock
        forest = StructuredForest(layout.shape, layout.parts, layout.tours)
        route = Route(path, path_offsets, mode)
        cost = np.append(0.0, np.cumsum(layout.move_cost[path[:, 0]]))

        def sweep(first: int, last: int, start: int, stop: int, stages: int) -> None:
            kernels.sweep(
                forest,
                work,
                self.log_tables,
                route,
                self.values,
                (first, last),
                (start, stop),
                stages,
            )

        tree = 0
        while tree < layout.n_trees:
            limit = cost[path_offsets[tree]] + _CHUNK
            fits = int(np.searchsorted(cost[path_offsets], limit, side="right")) - 1
            stop = min(max(fits, tree + 1), tree + _CHUNK_TREES, layout.n_trees)
            if fits > tree:
                sweep(tree, stop, 0, len(path), kernels.ENTER | kernels.LEAVE)
            else:
                began = clock.seconds
                sweep(tree, stop, 0, 0, kernels.ENTER)
                place, end = int(path_offsets[tree]), int(path_offsets[tree + 1])
                while place < end:
                    after = int(np.searchsorted(cost, cost[place] + _CHUNK, side="right")) - 1
                    after = min(max(after, place + 1), end)
                    sweep(tree, stop, place, after, 0)
                    place = after
                    if clock.expired and place < end:
                        return False  # beliefs are those before the update of this tree
                now = clock.seconds  # finishing it takes about as long as its updates
                if clock.budget.seconds is not None and 2.0 * now - began > clock.budget.seconds:
                    return False
                sweep(tree, stop, 0, 0, kernels.LEAVE)
            tree = stop
            if clock.expired and tree < layout.n_trees:
                return False
        return True

    @property
    def bound(self) -> float:
        """Return L(Q) of the current tables."""
        from kikuchi.engines.mean_field.kernels.structured_mean_field import parts_energy

        total = float(self.values.sum())
        if total == -math.inf:
            return total
        return total + float(parts_energy(self.work, self.layout.parts, self.log_tables))

    def ascend(self) -> None:
        """Sweep until convergence."""
        limit = self.done + self.method.max_iter
        converged = self.take(self._step(), self.method.tol, limit)
        self.bounds[-1] = self.bound
        self._keep_best(converged, self.run.trace.last_residual)

    def _step(self) -> Callable[[Iterations], Step]:
        """Make a sweep over all trees, which never decreases the bound."""
        from kikuchi.engines.mean_field.kernels.structured_mean_field import UPDATE

        before = self.work.belief.copy()
        tours = self.layout.tours

        def step(state: Iterations) -> Step:
            finished = self._pass(tours.path, tours.path_offsets, UPDATE)
            residual = float(np.abs(self.work.belief - before).max()) if finished else math.inf
            before[:] = self.work.belief
            self.done = state.done = state.done + 1
            bound = self.bound
            return Step(state.done, residual=residual, objective=bound, lower=bound)

        return step

    def _keep_best(self, converged: bool, residual: float) -> None:
        bound = self.bounds[-1]
        if self.best is None or bound > self.best.bound or (bound == self.best.bound and converged):
            work = self.work
            beliefs, marginals = work.belief.copy(), work.marginals.copy()
            self.best = StructuredOptimum(bound, beliefs, converged, residual, marginals)

    def random_product(self) -> Array:
        """Return a random product distribution."""
        graph = self.layout.graph
        masses = self.rng.standard_exponential(int(graph.state_offsets[-1]))
        return normalised(masses, graph.state_offsets)

    def solution(self, naive: Solution) -> Solution:
        """Return the best local optimum as a solution."""
        best, layout = self.best, self.layout
        diagnostics = {
            "width": layout.forest.width,
            "cliques": len(layout.forest.cliques),
            "trees": layout.n_trees,
            "cut_factors": len(layout.split_factors),
            "bounds": [
                b + layout.graph.log_constant if b > -math.inf else None for b in self.bounds
            ],
        }
        if best is None or best.bound == -math.inf:
            naive.diagnostics = diagnostics
            if best is None:
                return _out_of_time(naive, self.run)
            naive.warnings = [
                "no distribution on this subgraph without forbidden entries was found, so there is "
                "no bound and the marginals are a guess; use jt or bp, or a larger width"
            ]
            return naive
        self.record_stop(best.converged)
        warnings = []
        if not best.converged and not self.must_end:
            warnings.append(
                f"structured mean field still changed by {best.residual:.1e} after "
                f"{self.method.max_iter} sweeps; the bound holds, but raise max_iter"
            )
        return Solution(
            marginals=layout.variable_marginals(best.beliefs),
            log_z=best.bound,
            log_z_lower=best.bound,
            converged=best.converged,
            iterations=max(self.done, 1),
            factor_tables=lambda: layout.factor_tables(best.beliefs, best.marginals),
            warnings=warnings,
            diagnostics=diagnostics,
        )


# ---------------------------------------------------------------------- parts


def naive_solution(graph: FactorGraph, run: MethodRun, seed: int) -> Solution:
    """Return the naive mean field solution of a reduced graph, within a fraction of the remaining
    time.
    """
    budget = run.clock.budget
    if budget.seconds is not None:
        left = max(_NAIVE_PART * (budget.seconds - run.clock.seconds), 1e-6)
        budget = replace(budget, seconds=left)
    inner = MethodRun(budget.start(), silent, Trace(), 0.0, reduced=run.reduced)
    solution = MeanField(seed=seed).solve(graph, inner)
    if inner.stopped == "interrupted":
        run.stopped = "interrupted"
    return solution


def _out_of_time(naive: Solution, run: MethodRun) -> Solution:
    """Return the naive solution, with the reason why there is no better one."""
    if run.stopped != "interrupted":
        run.stopped = "seconds"
    naive.converged = False
    naive.warnings = [
        "there was no time for a pass over the cliques: these are naive mean field beliefs; allow "
        "more seconds, or a smaller width"
    ]
    return naive


def _deadline(run: MethodRun, part: float) -> Callable[[], bool]:
    """Return a function that tests whether a fraction of the remaining time has passed."""
    seconds = run.clock.budget.seconds
    if seconds is None:
        return lambda: False
    end = run.clock.seconds + part * (seconds - run.clock.seconds)
    return lambda: run.clock.seconds >= end


def read_ranges(text: str) -> list[list[int]]:
    """Parse groups of integers: ranges and single numbers, with groups separated by `/`.

    >>> read_ranges("0-2 7/4 5")
    [[0, 1, 2, 7], [4, 5]]
    """
    groups = []
    for group in text.split("/"):
        numbers: list[int] = []
        for word in group.split():
            low, dash, high = word.partition("-")
            if not is_whole(low) or (dash and not is_whole(high)):
                raise MethodError(
                    f"tree-mf: '{word}' is neither a number nor a range; write for example 0-4 "
                    "9/5-8"
                )
            numbers.extend(range(int(low), int(high if dash else low) + 1))
        groups.append(numbers)
    return groups


def _check_numbers(what: str, asked: list[int], count: int) -> None:
    wrong = [k for k in asked if k >= count]
    if wrong:
        raise MethodError(
            f"tree-mf: there is no {what} {wrong[0]}; they are numbered 0 to {count - 1}"
        )


def _original(graph: FactorGraph, run: MethodRun) -> FactorGraph:
    return graph if run.reduced is None else run.reduced.original


def _reduced_factors(graph: FactorGraph, run: MethodRun) -> Ints:
    return np.arange(graph.n_factors) if run.reduced is None else run.reduced.factors


def _too_long(graph: FactorGraph, forest: Forest) -> bool:
    """Return whether the cliques between the variables of cut factors are too many, or too
    large.
    """
    from kikuchi.engines.mean_field.kernels.structured_search import count_sites

    every = range(graph.n_variables)
    cards = [int(c) for c in graph.cardinalities]
    sites, entries = count_sites(
        np.array(forest.parent, dtype=np.int64),
        np.array(forest.depth, dtype=np.int64),
        np.array([float(prod(cards[v] for v in c)) for c in in_time(forest.cliques)]),
        np.array([forest.home[v] for v in in_time(every)], dtype=np.int64),
        np.array([forest.tree[v] for v in in_time(every)], dtype=np.int64),
        graph.scopes,
        graph.scope_offsets,
    )
    most = max(_MOST_SITES, 2 * graph.n_factors)
    return bool(sites > most or entries > most * _ENTRIES_PER_SITE)
