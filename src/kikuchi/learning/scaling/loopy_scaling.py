"""Loopy iterative scaling: approximate maximum likelihood on regions.

The entropy is replaced by that of a region graph, sum_r c_r H(P_r), which needs tables of
regions only. Propagation makes the regions agree, scaling moves them to the targets, by turns. On a
junction tree the answer is exact; on the factors themselves (`bethe`) it has a closed form.
With a base model the targets are marginals observed on scopes of factors.

Reference: TEH-L17, TEH-M27, TEH-X1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import U8, Array, Ints
from kikuchi.core.errors import MethodError
from kikuchi.core.options import option
from kikuchi.core.run import State, Step
from kikuchi.core.text import is_whole
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.regions.builders import region_graph
from kikuchi.graphs.regions.region_graph import RegionGraph
from kikuchi.graphs.state_maps import StateMaps
from kikuchi.inference.regions.engine import RegionBeliefs
from kikuchi.inference.regions.kernels.regions import FLOOR
from kikuchi.learning.learner import FitRun, Learned
from kikuchi.learning.scaling.kernels import region_scaling as kernels
from kikuchi.learning.scaling.scaling import (
    ScalingLearner,
    TargetMoments,
    impossible_target,
    not_converged,
)

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
        object.__setattr__(self, "cliques", _cliques_text(self.cliques))
        super().__post_init__()

    def _scale(self, graph: FactorGraph, wanted: TargetMoments, run: FitRun) -> Learned:
        base = self._start(graph)
        if graph.n_factors == 0:
            return Learned(base)
        model = graph.with_log_tables(base)
        beliefs = RegionBeliefs(self._regions(model, run), run.clock.budget)
        sweeps = _Sweeps(self, beliefs, wanted)
        run.restore(sweeps)
        done, converged = run.iterate_saving(
            sweeps.steps(), sweeps.state, run.checkpoint, tol=self.tol, limit=self.max_iterations
        )
        warnings = sweeps.warnings()
        if not converged:
            warnings.append(not_converged(sweeps.residual, run.stopped))
            if run.stopped == "diverged":
                warnings.append("these regions gave no fixed point; try others, such as junction:5")
        return Learned(
            base + sweeps.weights,
            objective=sweeps.objective(),
            converged=converged,
            iterations=done,
            warnings=warnings,
            diagnostics={
                "regions": len(beliefs.regions),
                "largest_region": max(map(len, beliefs.regions.roots)),
                "exact": beliefs.regions.is_exact,
                "damping": sweeps.damping,
                "distance": sweeps.residual,
            },
        )

    def _regions(self, graph: FactorGraph, run: FitRun) -> RegionGraph:
        if not self.cliques:
            return region_graph(graph, self.regions, budget=run.clock.budget)
        assert isinstance(self.cliques, str)
        sets = [[int(v) for v in part.split("+")] for part in self.cliques.split("/")]
        worst = max(v for part in sets for v in part)
        if worst >= graph.n_variables:
            raise MethodError(
                f"learner loopy-is: option cliques: there is no variable {worst}; they are "
                f"0..{graph.n_variables - 1}"
            )
        found = RegionGraph.junction_graph(graph, sets)
        found.require(run.clock.budget)
        return found


class _Sweeps:
    """Beliefs of the regions, the weights that scaling has added, and sweeps that change both.

    Where sweeps do not bring the beliefs nearer to agreement and to the targets, they begin again
    with more damping. On a junction tree none is needed.
    """

    logarithms = ("b", "log_phi", "weights")

    def __init__(
        self, learner: LoopyScalingML, beliefs: RegionBeliefs, wanted: TargetMoments
    ) -> None:
        self.learner = learner
        self.beliefs = beliefs
        self.targets = wanted.tables
        self.graph = beliefs.graph
        self.weights = np.zeros(self.graph.log_tables.size)
        self.base_mean = self.targets.mean_of(self.graph.log_tables)
        self.damping = 0.0 if beliefs.regions.is_exact else learner.damping
        self.sweeps = self.raised = self.best_sweep = 0
        self.residual = self.best = np.inf
        self.holders, homes = self._holders()
        self.links = self._links(homes)
        self.tour = region_tour(beliefs.regions)
        widest = int(np.diff(self.graph.table_offsets).max())
        self.work = np.empty(max(widest, beliefs.width))
        self.start = tuple(part.copy() for part in self._arrays())

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
            at=_offsets([len(h) for h in of_factor]),
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
            *engine.links,
            *engine.receivers(),
            factors_at=_offsets(np.bincount(homes, minlength=n)),
            factors=np.argsort(homes, kind="stable").astype(np.uint64),
        )

    def objective(self) -> float:
        """Mean of the log-tables under the targets, plus the region free energy (= -log Z)."""
        mean = self.targets.mean_of(self.weights) + self.base_mean
        return mean + self.beliefs.free_energy()

    # ------------------------------------------------------------------ sweeps

    def steps(self) -> Iterator[Step]:
        """Sweep; raise the damping where that does not help; end when it cannot be raised."""
        if self.sweeps:  # resumed, perhaps after the last sweep that is allowed
            yield self._step()
        while True:
            if not self._sweep() and not self._damp():
                return
            yield self._step()

    def _step(self) -> Step:
        return Step(self.sweeps, residual=self.residual, objective=self.objective())

    def _sweep(self) -> bool:
        """One sweep; is there progress?"""
        engine = self.beliefs
        disagreement, distance, impossible = kernels.region_sweep(
            self.links,
            self.holders,
            self.tour,
            engine.b,
            engine.log_phi,
            self.targets.active,
            self.targets.tables,
            self.weights,
            self.damping,
            self.learner.step,
            FLOOR,
            self.work,
        )
        self.sweeps += 1
        self.residual = max(disagreement, distance)
        if impossible >= 0 and np.isneginf(self.graph.log_tables + self.weights).any():
            raise impossible_target(int(impossible))
        if impossible >= 0 or not np.isfinite(self.residual):
            return False
        if self.residual < _PROGRESS * self.best:
            self.best, self.best_sweep = self.residual, self.sweeps
        patience = _PATIENCE / (1.0 - self.damping)
        near = self.residual <= _NEAR * self.best
        return self.sweeps - self.best_sweep < (_SLOW * patience if near else patience)

    def _damp(self) -> bool:
        """Begin again with more damping; False when there is no more."""
        if self.damping >= _MOST_DAMPING:
            return False
        for part, copy in zip(self._arrays(), self.start, strict=True):
            part[:] = copy
        self.residual = self.best = np.inf
        self.best_sweep = self.sweeps
        self.damping = min(_MOST_DAMPING, max(0.5, (1.0 + self.damping) / 2.0))
        self.raised += 1
        return True

    def _arrays(self) -> tuple[Array, Array, Array]:
        return self.beliefs.b, self.beliefs.log_phi, self.weights

    def warnings(self) -> list[str]:
        """What was not as it should be."""
        found = []
        if self.raised:
            found.append(f"the sweeps made no progress until damping was {self.damping:.3g}")
        if self.beliefs.collapsed() or self.beliefs.has_floored_mass():
            found.append("some beliefs came to the end of the numbers; add smoothing")
        return found

    # ------------------------------------------------------------------ checkpoints

    def state(self) -> dict[str, NDArray[Any]]:
        """All that the next sweep depends on."""
        present = dict(zip(("b", "log_phi", "weights"), self._arrays(), strict=True))
        counts = [self.sweeps, self.raised, self.best_sweep]
        return {
            **present,
            "counts": np.array(counts, dtype=np.int64),
            "pace": np.array([self.damping, self.residual, self.best]),
        }

    def restore(self, state: State) -> None:
        """Go on from a saved state."""
        for name, part in zip(("b", "log_phi", "weights"), self._arrays(), strict=True):
            part[:] = state[name]
        self.sweeps, self.raised, self.best_sweep = (int(x) for x in state["counts"])
        self.damping, self.residual, self.best = (float(x) for x in state["pace"])


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
        _offsets([len(own) for own in sends]),
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


def _offsets(counts: Any) -> U8:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.uint64)


def _cliques_text(cliques: Any) -> str:
    """The option as a text: variables joined by +, cliques by /."""
    if isinstance(cliques, str):
        text = cliques.replace(" ", "")
        parts = [v for part in text.split("/") for v in part.split("+")]
        if not text or all(is_whole(v) for v in parts):
            return text
    elif isinstance(cliques, Sequence):
        try:
            sets = [[int(v) for v in part] for part in cliques]
        except (TypeError, ValueError):
            sets = [[-1]]
        if all(part and min(part) >= 0 for part in sets):
            return "/".join("+".join(map(str, part)) for part in sets)
    raise MethodError(
        "learner loopy-is: option cliques must be sets of variable numbers such as 0+1+2/1+2+3, "
        f"got {cliques!r}"
    )
