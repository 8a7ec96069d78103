"""The constrained free-energy engine: beliefs over regions that agree on their overlaps.

Minimise sum_r c_r sum_x b_r log(b_r / phi_r) (LIU-D7) over region beliefs that agree. The state is
one table of probabilities for each region of a `RegionGraph`; only two updates exist, *propagate*
along an edge and *scale* to agreement (kernels.regions). `gbp` and `kikuchi` are schedules of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kikuchi.core.arrays import U8, Array
from kikuchi.core.budget import Budget
from kikuchi.core.errors import ImpossibleEvidenceError
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.regions.region_graph import RegionGraph
from kikuchi.graphs.state_maps import StateMaps
from kikuchi.inference.method import MethodRun
from kikuchi.inference.regions.kernels import regions as kernels

_SMALLER = "choose smaller regions (regions=bethe, loops:4, junction:K) or raise the memory"
_NEGLIGIBLE = 1e-9  # largest belief in a state of floored weight that does no harm


class RegionBeliefs:
    """Tables of all regions, the links between nested ones, and the answers read off them."""

    def __init__(self, regions: RegionGraph, budget: Budget) -> None:
        budget.require_bytes(
            3 * regions.bytes,
            f"the tables of {len(regions.regions)} regions (largest {regions.sizes.max():.3g})",
            _SMALLER,
        )
        self.regions = regions
        self.budget = budget
        self.graph = regions.graph
        sizes = regions.sizes.astype(np.uint64)
        self.table_at = np.concatenate([[0], np.cumsum(sizes)]).astype(np.uint64)
        self._maps = StateMaps(self.graph.cardinalities)
        self._scopes = [self.graph.scope(a) for a in range(self.graph.n_factors)]
        self.log_phi = self._log_potentials(len(regions.regions), np.ones(self.graph.n_factors))
        self._link_regions()
        self.maps = self._maps.flat()
        self.b = self._start()
        self._started_above = self.b > kernels.FLOOR
        self.width = int(sizes[regions.n_roots :].max(initial=1))

    # ------------------------------------------------------------------ set-up

    def _shape(self, region: int) -> tuple[int, ...]:
        cards = self.graph.cardinalities
        return tuple(int(cards[v]) for v in self.regions.regions[region].variables)

    def _part(self, region: int) -> slice:
        return slice(int(self.table_at[region]), int(self.table_at[region + 1]))

    def _log_potentials(self, count: int, weights: Array) -> Array:
        """log phi_r of the first regions: the weighted log-tables of their factors, summed."""
        graph = self.graph
        starts, ends = graph.table_offsets.tolist(), self.table_at.tolist()
        out = np.zeros(ends[count])
        for region, begin, end in zip(self.regions.regions[:count], ends, ends[1:], strict=False):
            total = out[begin:end]
            scopes = [self._scopes[a] for a in region.factors]
            maps = self._maps.maps(region.variables, scopes)
            for a, states in zip(region.factors, maps, strict=True):
                total += weights[a] * graph.log_tables[starts[a] : starts[a + 1]][states]
        return out

    def _link_regions(self) -> None:
        """A link for every pair of nested regions, with the map from large to small states."""
        regions = self.regions.regions
        self._link: dict[tuple[int, int], int] = {}
        large: list[int] = []
        small: list[int] = []
        map_at: list[int] = []
        for child, above in enumerate(self.regions.supersets):
            for region in above:
                self._link[region, child] = len(large)
                large.append(region)
                small.append(child)
                map_at.append(
                    self._maps.offset(regions[region].variables, regions[child].variables)
                )
        self.large = np.array(large, dtype=np.uint64)
        self.small = np.array(small, dtype=np.uint64)
        self.map_at = np.array(map_at, dtype=np.uint64)
        pairs = self.regions.edges.tolist()
        self.edge_link = np.array([self._link[p, c] for p, c in pairs], dtype=np.uint64)

    def _start(self) -> Array:
        """Each region on its own: b_r prop. to phi_r."""
        tops = np.maximum.reduceat(self.log_phi, self.table_at[:-1].astype(np.int64))
        for r in np.flatnonzero(tops == -np.inf):
            raise ImpossibleEvidenceError(
                "the evidence has probability zero: the tables allow no common state of "
                f"variables {self.regions.regions[r].variables}"
            )
        return _above_floor(self.log_phi, self.table_at)

    @property
    def links(self) -> kernels.RegionLinks:
        """All pairs of nested regions, as the kernels take them."""
        return kernels.RegionLinks(self.large, self.small, self.map_at, self.maps)

    def collapsed(self) -> bool:
        """True when a belief that began positive has fallen to the smallest number allowed."""
        at_floor = (self.b > 0.0) & (self.b <= kernels.FLOOR)
        return bool(np.any(self._started_above & at_floor))

    def has_floored_mass(self) -> bool:
        """True when a state whose initial weight was raised to the floor has gained probability.

        Weights too small for floating-point numbers are raised to a floor, so that they do not
        become forbidden. That is harmless as long as nothing makes these states likely; if
        something does, the answer is wrong.
        """
        return bool(np.any(self.b[~self._started_above] > _NEGLIGIBLE))

    # ------------------------------------------------------------------ answers

    def free_energy(self) -> float:
        """The region free energy of the present beliefs."""
        return float(
            kernels.free_energy(self.table_at, self.b, self.log_phi, self.regions.counting)
        )

    def disagreement(self) -> float:
        """Largest difference between a belief and the marginal of a parent's."""
        work = np.empty((1, self.width))
        return float(kernels.disagreement(self.table_at, self.b, self.edge_link, self.links, work))

    def variable_marginals(self) -> Array:
        """Marginal of each variable from the smallest region that holds it."""
        out = np.empty(int(self.graph.state_offsets[-1]))
        home = _smallest_holders(
            (region.variables for region in self.regions.regions), self.graph.n_variables
        )
        for v, r in enumerate(home):
            region = self.regions.regions[r]
            table = self.b[self._part(r)].reshape(self._shape(r))
            rest = tuple(k for k, w in enumerate(region.variables) if w != v)
            marginal = table.sum(axis=rest)
            at = self.graph.state_offsets
            out[at[v] : at[v + 1]] = marginal / marginal.sum()
        return out

    def factor_marginals(self) -> Array:
        """Belief of each factor from the smallest region that holds it."""
        graph = self.graph
        out = np.empty(graph.log_tables.size)
        home = _smallest_holders(
            (region.factors for region in self.regions.regions), graph.n_factors
        )
        for a, r in enumerate(home):
            region = self.regions.regions[r]
            table = self.b[self._part(r)].reshape(self._shape(r))
            scope = graph.scope(a)
            rest = tuple(k for k, w in enumerate(region.variables) if w not in scope)
            marginal = table.sum(axis=rest)
            inside = [w for w in region.variables if w in scope]
            marginal = np.transpose(marginal, [inside.index(w) for w in scope])
            out[graph.table_offsets[a] : graph.table_offsets[a + 1]] = (
                marginal / marginal.sum()
            ).ravel()
        return out

    # ------------------------------------------------------------------ propagate

    def receivers(self) -> tuple[U8, U8]:
        """For each edge P -> R, links to the beliefs above R that its message enters.

        A message into R enters b_Q when R lies in Q but P does not (TEH-I10).
        """
        supersets = self.regions.supersets
        at, links = [0], []
        for parent, child in self.regions.edges.tolist():
            blocked = {parent, *supersets[parent]}
            links += [self._link[q, child] for q in supersets[child] if q not in blocked]
            at.append(len(links))
        return np.array(at, dtype=np.uint64), np.array(links, dtype=np.uint64)

    def propagations(self, damping: float, parallel: bool) -> Iterator[float]:
        """Sweeps of generalised belief propagation; yields the residual of each."""
        receiver_at, receivers = self.receivers()
        rows = len(self.edge_link) if parallel else 1
        factors = np.empty((max(rows, 1), self.width))
        while True:
            yield float(
                kernels.propagate(
                    self.table_at,
                    self.b,
                    self.edge_link,
                    self.links,
                    receiver_at,
                    receivers,
                    damping,
                    parallel,
                    factors,
                )
            )


def _above_floor(logs: Array, table_at: U8) -> Array:
    """Probabilities from log-weights, normalised for each table; no possible state becomes
    impossible by underflow.
    """
    ends = table_at.astype(np.int64)
    begin, sizes = ends[:-1], np.diff(ends)
    weights = np.exp(logs - np.repeat(np.maximum.reduceat(logs, begin), sizes))
    weights = np.where(logs > -np.inf, np.maximum(weights, kernels.FLOOR), 0.0)
    return np.asarray(weights / np.repeat(np.add.reduceat(weights, begin), sizes))


class DoubleLoop:
    """The convergent minimiser: roots and inner regions, scaled to agreement (kernels.regions).

    The entropies of regions with negative counting numbers are concave; their tangent at the
    present beliefs bounds the free energy from above, and what is left is convex. The inner loop
    lowers the bound by making the roots agree on one inner region after the other; the outer step
    moves the tangent. Each pass of both lowers the region free energy if the inner loop is run out.
    """

    def __init__(self, beliefs: RegionBeliefs) -> None:
        self.beliefs = beliefs
        regions = beliefs.regions
        n_roots = regions.n_roots
        self.inner = np.arange(n_roots, len(regions.regions), dtype=np.uint64)
        at, links = [0], []
        for r in range(n_roots, len(regions.regions)):
            links += [beliefs._link[q, r] for q in regions.supersets[r] if q < n_roots]
            at.append(len(links))
        self.at = np.array(at, dtype=np.uint64)
        self.inner_links = np.array(links, dtype=np.uint64)
        counts = np.diff(self.at).astype(np.float64)
        counting = regions.counting[n_roots:]
        self.weight = np.maximum(counting, 0.0)
        self.concave = np.where(counting < 0.0, -counting / np.maximum(counts, 1.0), 0.0)
        sizes = regions.sizes[n_roots:]
        ends = np.concatenate([[0.0], np.cumsum(counts * sizes)])
        rows = counts.max(initial=0.0) + 1.0
        beliefs.budget.require_bytes(
            int(16 * ends[-1] + 32 * regions.sizes.sum() + 8 * rows * beliefs.width),
            f"the messages between {len(regions.regions)} regions",
            _SMALLER,
        )
        self.message_at = ends.astype(np.uint64)
        self.messages = np.zeros(int(ends[-1]))
        self.work = np.empty((int(counts.max(initial=0)) + 1, beliefs.width))
        self._divide_potentials()
        self.old = beliefs.b.copy()

    def _divide_potentials(self) -> None:
        """Divide each factor among the roots that hold it; inner regions start uniform."""
        beliefs = self.beliefs
        regions = beliefs.regions
        n_roots = regions.n_roots
        owners = np.zeros(beliefs.graph.n_factors)
        for region in regions.regions[:n_roots]:
            owners[list(region.factors)] += 1.0
        shared = beliefs._log_potentials(n_roots, 1.0 / owners)
        beliefs.b[: shared.size] = _above_floor(shared, beliefs.table_at[: n_roots + 1])
        sizes = regions.sizes[n_roots:]
        beliefs.b[shared.size :] = np.repeat(1.0 / sizes, sizes.astype(np.int64))
        beliefs._started_above = beliefs.b > kernels.FLOOR

    def inner_sweep(self) -> float:
        """Make the roots agree on every inner region once."""
        beliefs = self.beliefs
        return float(
            kernels.scale(
                beliefs.table_at,
                beliefs.b,
                self.inner,
                self.at,
                self.inner_links,
                beliefs.links,
                self.weight,
                self.message_at,
                self.messages,
                self.work,
            )
        )

    def state(self, into: tuple[Array, ...] | None = None) -> tuple[Array, ...]:
        """A copy of all that changes, in the arrays of an earlier copy if one is given."""
        present = (self.beliefs.b, self.messages, self.old)
        if into is None:
            return tuple(part.copy() for part in present)
        for part, copy in zip(present, into, strict=True):
            copy[:] = part
        return into

    def restore(self, state: tuple[Array, ...]) -> None:
        """Go back to a copy."""
        for part, copy in zip((self.beliefs.b, self.messages, self.old), state, strict=True):
            part[:] = copy

    def moved(self) -> float:
        """Largest change of an inner belief since the tangent was last placed."""
        begin = int(self.beliefs.table_at[self.beliefs.regions.n_roots])
        return float(np.abs(self.beliefs.b[begin:] - self.old[begin:]).max(initial=0.0))

    def outer_step(self) -> None:
        """Move the tangent to the present beliefs."""
        beliefs = self.beliefs
        kernels.relinearise(
            beliefs.table_at,
            beliefs.b,
            self.old,
            self.inner,
            self.at,
            self.inner_links,
            beliefs.links,
            self.concave,
            self.work,
        )


def _smallest_holders(groups: Iterator[Sequence[int]], count: int) -> list[int]:
    """For each member, the last group that holds it: groups come large before small."""
    home = [0] * count
    for k, group in enumerate(groups):
        for item in group:
            home[item] = k
    return home


def region_beliefs(graph: FactorGraph, regions: str, run: MethodRun) -> RegionBeliefs:
    """The engine's state for a graph and a choice of regions; the text names original variables."""
    from kikuchi.graphs.regions.builders import region_graph

    budget = run.clock.budget
    return RegionBeliefs(region_graph(graph, regions, budget=budget, reduced=run.reduced), budget)
