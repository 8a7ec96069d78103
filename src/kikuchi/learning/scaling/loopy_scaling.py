"""Loopy iterative scaling: approximate maximum likelihood on regions.

The entropy is replaced by that of a region graph, sum_r c_r H(P_r), which needs tables of
regions only. Propagation makes the regions agree, scaling moves them to the targets, by turns. On a
junction tree the answer is exact; on the factors themselves (`bethe`) it has a closed form.
With a base model the targets are marginals observed on scopes of factors.

Reference: TEH-L17, TEH-M27, TEH-X1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kikuchi.core.arrays import Array, Ints, offsets_of
from kikuchi.core.errors import MethodError
from kikuchi.core.options import option
from kikuchi.core.run import Step
from kikuchi.engines.loops.iterate import iterate
from kikuchi.engines.loops.state import State
from kikuchi.engines.regions.engine import RegionBeliefs
from kikuchi.engines.regions.kernels.regions import FLOOR
from kikuchi.engines.tables import StateMaps
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.regions.builders import region_graph
from kikuchi.graphs.regions.region_graph import RegionGraph
from kikuchi.learning.learner import FitRun, Learned
from kikuchi.learning.scaling.kernels import region_scaling as kernels
from kikuchi.learning.scaling.scaling import (
    ScalingLearner,
    TargetMoments,
    impossible_target,
    not_converged,
)
from kikuchi.methods.lists import sets_of, sets_text

_MOST_DAMPING = 0.98
_PROGRESS = 0.99  # a residual below this fraction of the best so far is progress
_PATIENCE = 50  # sweeps without any, without damping
_SLOW = 10  # times that, as long as the residual stays near its best
_NEAR = 1.5


@dataclass(frozen=True)
class LoopyScalingML(ScalingLearner):
    """Approximate maximum likelihood of tables on regions.

    Propagation makes the regions agree, scaling moves them to the marginals of the data,
    lambda_a += step (log p_a - log P_a), and each visit of a region does both: it scales its
    factors and sends to its children. (Propagating to convergence before each scaling, as the
    thesis does, takes many times longer, and fails where belief propagation does not find the
    beliefs that are wanted.) There is no guarantee: where sweeps make no progress, damping is
    raised, and the report says so. The objective is the likelihood with the region estimate of
    log Z. `regions` is a text as for `gbp` and `kikuchi` (`bethe`, `junction:6`, `faces`,
    `junction-tree` ...); `cliques` instead builds a junction graph of given sets of variables,
    `[[0, 1, 2], [1, 2, 3]]` or `0+1+2/1+2+3`.

    >>> pairs = [((0, 1), np.ones(4)), ((1, 2), np.ones(4)), ((0, 2), np.ones(4))]
    >>> rows = [[0, 0, 0], [0, 1, 1], [1, 1, 0], [1, 1, 1]]
    >>> graph = FactorGraph([2] * 3, pairs)
    >>> exact = LoopyScalingML(regions="junction-tree", smoothing=1.0).fit(graph, rows)
    >>> bethe = LoopyScalingML(regions="bethe", smoothing=1.0).fit(graph, rows)
    >>> round(exact.log_likelihood, 6), round(bethe.log_likelihood, 6)
    (-1.545363, -1.616303)
    """

    name: ClassVar[str] = "loopy-is"
    objective_name: ClassVar[str] = "region log-likelihood per row"

    regions: str = option("junction:4", "regions of the entropy, as for gbp and kikuchi")
    cliques: str | Sequence[Sequence[int]] = option(
        "", "instead: cliques of a junction graph, such as 0+1+2/1+2+3"
    )
    damping: float = option(0.3, "fraction of the old message that is kept", low=0.0, below=1.0)
    step: float = option(1.0, "fraction of a full scaling", above=0.0, high=1.0)

    def __post_init__(self) -> None:
        cliques = sets_text(self.cliques, ("",))
        if cliques is None or (cliques and "" in cliques.split("/")):
            raise MethodError(
                "learner loopy-is: option cliques must be sets of variable numbers such as "
                f"0+1+2/1+2+3, got {self.cliques!r}"
            )
        object.__setattr__(self, "cliques", cliques)
        super().__post_init__()

    def _scale(self, graph: FactorGraph, wanted: TargetMoments, run: FitRun) -> Learned:
        base = self._start(graph)
        if graph.n_factors == 0:
            return Learned(base)
        model = graph.with_log_tables(base)
        beliefs = RegionBeliefs(self._regions(model, run), run.clock.budget)
        sweeps = _Sweeps(self, beliefs, wanted)
        state = sweeps.state
        ended = iterate(
            sweeps.step,
            state,
            run,
            tol=self.tol,
            limit=self.max_iter,
            store=run.store,
        )
        warnings = sweeps.warnings()
        if not ended.converged:
            warnings.append(not_converged(state.residual, run.stopped))
            if run.stopped == "diverged":
                warnings.append("these regions gave no fixed point; try others, such as junction:5")
        return Learned(
            base + state.weights,
            objective=sweeps.objective(),
            converged=ended.converged,
            iterations=ended.iterations,
            warnings=warnings,
            diagnostics={
                "regions": len(beliefs.regions),
                "largest_region": max(map(len, beliefs.regions.roots)),
                "exact": beliefs.regions.is_exact,
                "damping": state.damping,
                "distance": state.residual,
            },
        )

    def _regions(self, graph: FactorGraph, run: FitRun) -> RegionGraph:
        if not self.cliques:
            return region_graph(graph, self.regions, budget=run.clock.budget)
        assert isinstance(self.cliques, str)
        sets = sets_of(self.cliques)
        worst = max(v for part in sets for v in part)
        if worst >= graph.n_variables:
            raise MethodError(
                f"learner loopy-is: option cliques: there is no variable {worst}; they are "
                f"0..{graph.n_variables - 1}"
            )
        found = RegionGraph.junction_graph(graph, sets)
        found.require(run.clock.budget)
        return found


@dataclass(eq=False)
class _SweepState(State):
    """All that the next sweep depends on: beliefs, potentials, the weights that scaling has added,
    the present damping, the least residual with it and in which sweep it was, and the counters.
    """

    logarithms: ClassVar[tuple[str, ...]] = ("b", "log_phi", "weights")

    b: Array
    log_phi: Array
    weights: Array
    damping: float
    residual: float = np.inf
    best: float = np.inf
    sweeps: int = 0
    raised: int = 0
    best_sweep: int = 0


class _Sweeps:
    """Sweeps that change the beliefs of the regions and the weights that scaling has added.

    Where sweeps do not bring the beliefs nearer to agreement and to the targets, they begin again
    with more damping. On a junction tree none is needed.
    """

    def __init__(
        self, learner: LoopyScalingML, beliefs: RegionBeliefs, wanted: TargetMoments
    ) -> None:
        self.learner = learner
        self.beliefs = beliefs
        self.targets = wanted.tables
        self.graph = beliefs.graph
        self.base_mean = self.targets.mean_of(self.graph.log_tables)
        damping = 0.0 if beliefs.regions.is_exact else learner.damping
        weights = np.zeros(self.graph.log_tables.size)
        self.state = _SweepState(beliefs.b, beliefs.log_phi, weights, damping)
        self.holders, homes = self._holders()
        self.links = self._links(homes)
        self.tour = region_tour(beliefs.regions)
        widest = int(np.diff(self.graph.table_offsets).max())
        self.work = np.empty(max(widest, beliefs.width))
        self.start = self.state.copy()

    def _holders(self) -> tuple[kernels.Holders, Ints]:
        """For each factor the regions that hold it, large ones first, and the first of them."""
        maps = StateMaps(self.graph.cardinalities)
        regions = self.beliefs.regions.regions
        of_factor: list[list[int]] = [[] for _ in range(self.graph.n_factors)]
        for r, region in enumerate(regions):
            for a in region.factors:
                of_factor[a].append(r)
        places = [
            maps.offset(regions[r].variables, self.graph.scope(a))
            for a, holders in enumerate(of_factor)
            for r in holders
        ]
        found = kernels.Holders(
            at=offsets_of([len(h) for h in of_factor]).view(np.uint64),
            regions=np.array([r for h in of_factor for r in h], dtype=np.uint64),
            map_at=np.array(places, dtype=np.uint64),
            maps=maps.flat(),
            factor_at=self.graph.table_offsets.astype(np.uint64),
        )
        return found, np.array([h[0] for h in of_factor], dtype=np.int64)

    def _links(self, homes: Ints) -> kernels.Links:
        engine = self.beliefs
        n = len(engine.regions)
        return kernels.Links(
            engine.table_at,
            engine.edge_link,
            *engine.links[1:],
            *engine.message_receivers()[1:],
            factors_at=offsets_of(np.bincount(homes, minlength=n)).view(np.uint64),
            factors=np.argsort(homes, kind="stable").astype(np.uint64),
        )

    def objective(self) -> float:
        """Mean of the log-tables under the targets, plus the region free energy (= -log Z)."""
        mean = self.targets.mean_of(self.state.weights) + self.base_mean
        return mean + self.beliefs.free_energy()

    # ------------------------------------------------------------------ sweeps

    def step(self, state: _SweepState) -> Step | None:
        """Sweep; raise the damping where that does not help; None when it cannot be raised."""
        if not self._sweep(state) and not self._damp(state):
            return None
        return self.report(state)

    def report(self, state: _SweepState) -> Step:
        """Return the report of the last sweep."""
        return Step(state.sweeps, residual=state.residual, objective=self.objective())

    def _sweep(self, state: _SweepState) -> bool:
        """One sweep; is there progress?"""
        disagreement, distance, impossible = kernels.region_sweep(
            self.links,
            self.holders,
            self.tour,
            kernels.Scaled(state.b, state.log_phi, state.weights),
            kernels.Wanted(self.targets.active, self.targets.tables),
            kernels.Pace(state.damping, self.learner.step, FLOOR),
            self.work,
        )
        state.sweeps += 1
        state.residual = max(disagreement, distance)
        if impossible >= 0 and np.isneginf(self.graph.log_tables + state.weights).any():
            raise impossible_target(int(impossible))
        if impossible >= 0 or not np.isfinite(state.residual):
            return False
        if state.residual < _PROGRESS * state.best:
            state.best, state.best_sweep = state.residual, state.sweeps
        patience = _PATIENCE / (1.0 - state.damping)
        near = state.residual <= _NEAR * state.best
        return state.sweeps - state.best_sweep < (_SLOW * patience if near else patience)

    def _damp(self, state: _SweepState) -> bool:
        """Begin again with more damping; False when there is no more."""
        if state.damping >= _MOST_DAMPING:
            return False
        for name in ("b", "log_phi", "weights"):
            getattr(state, name)[:] = getattr(self.start, name)
        state.residual = state.best = np.inf
        state.best_sweep = state.sweeps
        state.damping = min(_MOST_DAMPING, max(0.5, (1.0 + state.damping) / 2.0))
        state.raised += 1
        return True

    def warnings(self) -> list[str]:
        """What was not as it should be."""
        found = []
        if self.state.raised:
            found.append(f"the sweeps made no progress until damping was {self.state.damping:.3g}")
        if self.beliefs.collapsed() or self.beliefs.has_floored_mass():
            found.append("some beliefs came to the end of the numbers; add smoothing")
        return found


def region_tour(regions: RegionGraph) -> kernels.Tour:
    """A depth-first walk over the roots, with all the edges that a sweep sends along.

    The walk goes from root to root through common children along a spanning forest, and back; each
    visit sends where the walk goes next, the first visit also along edges that are in no walk. Then
    come the regions below the roots that have children. On a junction tree this is the walk of
    UPS-JT, and every visit finds the exact marginal.
    """
    edge_of = {(p, c): e for e, (p, c) in enumerate(regions.edges.tolist())}
    walk, used = _root_walk(regions)
    visits: list[int] = []
    sends: list[list[int]] = []
    seen: set[int] = set()
    for r, child in walk:
        rest = [] if r in seen else [c for c in regions.children[r] if (r, c) not in used]
        seen.add(r)
        visits.append(r)
        sends.append([edge_of[r, c] for c in (*rest, *([] if child is None else [child]))])
    for r in range(regions.n_roots, len(regions.regions)):
        visits.append(r)
        sends.append([edge_of[r, c] for c in regions.children[r]])
    return kernels.Tour(
        np.array(visits, dtype=np.uint64),
        offsets_of([len(own) for own in sends]).view(np.uint64),
        np.array([e for own in sends for e in own], dtype=np.uint64),
    )


def _root_walk(
    regions: RegionGraph,
) -> tuple[list[tuple[int, int | None]], set[tuple[int, int]]]:
    """Visits (root, child through which the walk goes on) and the edges that the walk uses."""
    n = regions.n_roots
    above = [[p for p in parents if p < n] for parents in regions.parents]
    below = [
        sorted(own, key=lambda c: (-len(regions.regions[c].variables), c))
        for own in regions.children[:n]
    ]
    seen: set[int] = set()
    walk: list[tuple[int, int | None]] = []
    used: set[tuple[int, int]] = set()
    for start in range(n):
        if start in seen:
            continue
        seen.add(start)
        path: list[tuple[int, Any, int | None]] = [
            (start, iter([(c, p) for c in below[start] for p in above[c]]), None)
        ]
        while path:
            r, rest, back = path[-1]
            step = next(((c, p) for c, p in rest if p not in seen), None)
            if step is None:
                path.pop()
                walk.append((r, back))
                if back is not None:
                    used.add((r, back))
                continue
            child, to = step
            seen.add(to)
            used.add((r, child))
            walk.append((r, child))
            path.append((to, iter([(c, p) for c in below[to] for p in above[c]]), child))
    return walk, used
