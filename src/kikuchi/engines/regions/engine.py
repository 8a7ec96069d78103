"""The constrained free-energy engine: beliefs over regions that agree on their overlaps.

Minimise sum_r c_r sum_x b_r log(b_r / phi_r) over region beliefs that agree. The state is
one table of probabilities for each region of a `RegionGraph`; only two updates exist, *propagate*
along an edge and *scale* to agreement (kernels.regions). `gbp` and `kikuchi` are schedules of them.

Reference: LIU-D7, TEH-I10.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import U4, Array, Ints, offsets_of
from kikuchi.core.budget import Budget, Clock, require_time
from kikuchi.core.errors import ImpossibleEvidenceError
from kikuchi.core.run import StepAborted
from kikuchi.engines.regions.kernels import layout
from kikuchi.engines.regions.kernels import regions as kernels
from kikuchi.engines.run import MethodRun
from kikuchi.engines.tables import StateMaps
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.regions.region_graph import RegionGraph
from kikuchi.graphs.regions.sets import SetFamily, spread

SMALLER = "choose smaller regions (regions=bethe, loops:4, junction:K) or raise the memory"
_FASTER = "choose fewer regions (regions=bethe) or the method bp"
_LIST_BYTES = 64  # of a region, a member of it or a link, in all lists together
_MESSAGE_BYTES = 8  # of a belief that a message enters, in the list of all of them
_LISTING_BYTES = 80  # of such a belief while its part of the list is made
_VISIT_BYTES = 60  # of a visit to an edge, while the order of visits is made
_STATES_AT_ONCE = 2_000_000  # of tables that are filled between two looks at the clock
_MESSAGES_AT_ONCE = 200_000  # beliefs that are listed between two looks at the clock
_MAPS_AT_ONCE = 1000
_NEGLIGIBLE = 1e-9  # largest belief in a state of floored weight that does no harm


@dataclass(frozen=True, eq=False)
class RegionJoints:
    """Joint distributions of variables that one region holds, read from the smallest such one."""

    variables: SetFamily
    table_at: Ints
    beliefs: Array
    cardinalities: Ints

    def __call__(self, chosen: list[int]) -> Array | None:
        """The joint of some variables, an axis for each; None where no region holds them all."""
        holders = self.variables.holders
        found = holders.row(chosen[0])
        for v in chosen[1:]:
            found = np.intersect1d(found, holders.row(v), assume_unique=True)
        if not len(found):
            return None
        region = int(found[np.argmin(np.diff(self.table_at)[found])])
        members = self.variables.row(region).tolist()
        flat = self.beliefs[self.table_at[region] : self.table_at[region + 1]]
        table = flat.reshape(self.cardinalities[members])
        others = tuple(k for k, v in enumerate(members) if v not in chosen)
        left = [v for v in members if v in chosen]
        return np.transpose(table.sum(axis=others), [left.index(v) for v in chosen])


class RegionBeliefs:
    """Tables of all regions, the links between nested ones, and the answers read off them."""

    def __init__(self, regions: RegionGraph, budget: Budget) -> None:
        self.regions = regions
        self.budget = budget
        self.graph = regions.graph
        budget.require_bytes(
            self.bytes_needed(),
            f"the tables of {len(regions)} regions (largest {regions.sizes.max():.3g})",
            SMALLER,
        )
        self.offsets = offsets_of(regions.sizes.astype(np.int64))
        self.table_at = self.offsets.astype(np.uint64)
        self.region_variables = layout.RegionVariables(
            regions.variables.offsets,
            regions.variables.items,
            self.graph.cardinalities.astype(np.int64),
        )
        self.log_phi = np.empty(int(self.offsets[-1]))
        self.b = np.empty_like(self.log_phi)
        self._begin()
        self._link_regions()
        self.width = int(regions.sizes[regions.n_roots :].max(initial=1))

    # ------------------------------------------------------------------ set-up

    def bytes_needed(self) -> int:
        """Of tables and maps with their copies, and of the lists of regions and links."""
        regions = self.regions
        members, links = (
            len(regions.variables.items) + len(regions.factors.items),
            len(regions.above.items),
        )
        return 3 * regions.bytes + _LIST_BYTES * (len(regions) + members + links)

    def set_tables(self, log_tables: Array) -> None:
        """Use other log-tables; the beliefs begin again from them."""
        self.graph = self.graph.replaced(log_tables=log_tables)
        self._begin()

    def _begin(self) -> None:
        graph = self.graph
        ones = np.ones(graph.n_factors)
        self.add_potentials(graph.log_tables, ones, len(self.regions), self.log_phi)
        self.normalise(self.log_phi, len(self.regions))
        self.note_start()

    def note_start(self) -> None:
        """Remember which of the present beliefs are above the smallest number allowed."""
        self._started_above = self.b > kernels.FLOOR

    def add_potentials(self, log_tables: Array, weights: Array, last: int, out: Array) -> None:
        """log phi of the regions before `last`, with a weight for each factor."""
        graph, factors = self.graph, self.regions.factors
        work = self.regions.sizes[:last] * (1.0 + factors.sizes[:last])
        for begin, end in self._parts(work, _STATES_AT_ONCE):
            layout.add_potentials(
                self.region_variables,
                layout.RegionFactors(factors.offsets, factors.items),
                scope_tables(graph),
                log_tables,
                weights,
                (begin, end),
                self.offsets,
                out,
            )

    def normalise(self, logs: Array, last: int) -> None:
        """Each of the regions before `last` on its own: b_r prop. to exp of its logs."""
        for begin, end in self._parts(self.regions.sizes[:last], _STATES_AT_ONCE):
            r = layout.normalise_logs(begin, end, self.offsets, logs, kernels.FLOOR, self.b)
            if r < end:
                raise ImpossibleEvidenceError(
                    "the evidence has probability zero: the tables allow no common state of "
                    f"variables {self.regions.regions[r].variables}"
                )

    def _parts(self, work: Array, at_once: int) -> Iterator[tuple[int, int]]:
        """Ranges of regions with about as much work in each, while there is time."""
        ends = np.flatnonzero(np.diff(np.cumsum(work) // at_once, append=-1)) + 1
        begin = 0
        for end in ends.tolist():
            self._require_time()
            yield begin, end
            begin = end

    def _require_time(self) -> None:
        require_time(f"setting up {len(self.regions)} regions", _FASTER)

    def _link_regions(self) -> None:
        """A link for every pair of nested regions, with the map from large to small states."""
        above, variables = self.regions.above, self.regions.variables
        first = layout.map_kinds(self.region_variables, above.items, above.owners)
        maps = StateMaps(self.graph.cardinalities)
        offsets = np.zeros(len(first), dtype=np.uint64)
        kinds = np.flatnonzero(first == np.arange(len(first)))
        for count, link in enumerate(kinds.tolist()):
            if count % _MAPS_AT_ONCE == 0:
                self._require_time()
            pair = (int(above.items[link]), int(above.owners[link]))
            large, small = (variables.row(region).tolist() for region in pair)
            offsets[link] = maps.offset(large, small)
        self.large = above.items.astype(np.uint64)
        self.small = above.owners.astype(np.uint64)
        self.map_at = offsets[first]
        self.maps = maps.flat()
        parent, child = self.regions.edges.T
        self.edge_link = above.place(child, parent).astype(np.uint64)

    @property
    def links(self) -> kernels.RegionLinks:
        """All pairs of nested regions, as the kernels take them."""
        return kernels.RegionLinks(self.table_at, self.large, self.small, self.map_at, self.maps)

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

    def log_z(self) -> float:
        """Minus the region free energy."""
        return -self.free_energy()

    def free_energy(self) -> float:
        """The region free energy of the present beliefs."""
        return float(
            kernels.free_energy(self.table_at, self.b, self.log_phi, self.regions.counting)
        )

    def disagreement(self) -> float:
        """Largest difference between a belief and the marginal of a parent's."""
        work = np.empty((1, self.width))
        return float(kernels.disagreement(self.links, self.edge_link, self.b, work))

    def marginals(self) -> Array:
        """Marginal of each variable from the smallest region that holds it."""
        n, at = self.graph.n_variables, self.graph.state_offsets.astype(np.int64)
        tables = layout.ScopeTables(np.arange(n + 1), np.arange(n), at)
        return self._marginals(self.regions.variables, tables, int(at[-1]))

    def factor_marginals(self) -> Array:
        """Belief of each factor from the smallest region that holds it."""
        tables = scope_tables(self.graph)
        return self._marginals(self.regions.factors, tables, self.graph.log_tables.size)

    def joint_reader(self) -> RegionJoints:
        """Joints of variables that one region holds, of the present beliefs."""
        return RegionJoints(
            self.regions.variables, self.offsets, self.b, self.region_variables.cardinalities
        )

    def _marginals(self, members: SetFamily, tables: layout.ScopeTables, size: int) -> Array:
        homes = np.zeros(members.n_items, dtype=np.int64)
        homes[members.items] = members.owners  # the last one stays, and large come before small
        out = np.empty(size)
        layout.sums(self.region_variables, homes, tables, self.offsets, self.b, out, True)
        return out

    # ------------------------------------------------------------------ propagate

    def message_receivers(self) -> kernels.RegionMessages:
        """For each edge P -> R, links to the beliefs above R that its message enters.

        A message into R enters b_Q when R lies in Q but P does not.
        """
        above, (parent, child) = self.regions.above, self.regions.edges.T
        counts = above.sizes[child]  # quadratic in the number of regions around a small one
        total = int(counts.sum())
        listing = _MESSAGE_BYTES * total + _LISTING_BYTES * min(total, _MESSAGES_AT_ONCE)
        self.budget.require_bytes(
            self.bytes_needed() + listing,
            f"the list of all beliefs that the messages of {len(self.regions)} regions enter",
            _FASTER,
        )
        entered = np.zeros(len(parent), dtype=np.int64)
        links, listed = np.empty(total, dtype=np.uint64), 0
        for begin, end in self._parts(counts, _MESSAGES_AT_ONCE):
            places, edge = spread(above.offsets[child[begin:end]], counts[begin:end])
            larger, sender = above.items[places], parent[begin:end][edge]
            enters = (larger != sender) & ~above.has(sender, larger)
            entered[begin:end] = np.bincount(edge[enters], minlength=end - begin)
            found = places[enters]
            links[listed : listed + len(found)] = found
            listed += len(found)
        at = offsets_of(entered).astype(np.uint64)
        return kernels.RegionMessages(self.edge_link, at, links[:listed])

    def propagations(
        self, damping: float, parallel: bool, clock: Clock | None = None
    ) -> Iterator[float]:
        """Sweeps of generalised belief propagation; yields the residual of each.

        Raises `StepAborted` in the middle of a sweep once the `clock` has expired.
        """
        edges = self.message_receivers()
        state = (self.links, edges, self.b, damping)
        if parallel:
            work = np.empty((len(self.edge_link) + 1, self.width))
            return (float(kernels.propagate_together(*state, work)) for _ in itertools.count())
        visits, renewals = self.visits()
        work = np.empty((2, self.width))
        entered = np.diff(edges.at.astype(np.float64))
        parts = list(self._parts(1.0 + entered[visits], _STATES_AT_ONCE))

        def sweep() -> float:
            residual = 0.0
            for begin, end in parts:
                if begin and clock is not None and clock.expired:
                    raise StepAborted("seconds")
                part = visits[begin:end], renewals[begin:end]
                residual = max(residual, float(kernels.propagate(*state, *part, work)))
            return residual

        return (sweep() for _ in itertools.count())

    def visits(self) -> tuple[U4, NDArray[np.bool_]]:
        """The edges of a sweep in their order, and which visits are renewals.

        To each region, large ones first, come the messages of its parents; then all messages below
        it are renewed without damping. Messages from P to R contain those that leave regions beside
        R for smaller ones. Were these a sweep behind, complete graphs of five variables and more
        would turn away from the minimum of the free energy, however weak the couplings are: for
        triangles that share a variable the update then has the eigenvalues
        (n - 5 +- sqrt((n - 5)^2 - 8)) / 2, whose real part is not negative.
        """
        parent, child = self.regions.edges.T
        above = self.regions.above
        counts = above.sizes[parent]
        self.budget.require_bytes(
            self.bytes_needed() + _VISIT_BYTES * int(counts.sum() + 2 * len(parent)),
            f"the order in which the messages of {len(self.regions)} regions are sent",
            _FASTER,
        )
        places, edge = spread(above.offsets[parent], counts)
        own = np.arange(len(parent))
        after = np.concatenate([child, parent, above.items[places]])  # the region whose turn it is
        order = np.concatenate([own, own, edge])
        renewals = np.arange(len(after)) >= len(own)
        inner = after >= self.regions.n_roots  # no message comes to a root
        after, order, renewals = after[inner], order[inner], renewals[inner]
        turn = np.lexsort((order, renewals, after))
        return order[turn].astype(np.uint32), renewals[turn]


def scope_tables(graph: FactorGraph) -> layout.ScopeTables:
    """Scopes and tables of the factors, as the kernels of the layout take them."""
    return layout.ScopeTables(
        graph.scope_offsets.astype(np.int64),
        graph.scopes.astype(np.int64),
        graph.table_offsets.astype(np.int64),
    )


def region_beliefs(graph: FactorGraph, regions: str, run: MethodRun) -> RegionBeliefs:
    """The engine's state for a graph and a choice of regions; the text names original variables."""
    from kikuchi.graphs.regions.builders import region_graph

    budget = run.clock.budget
    return RegionBeliefs(region_graph(graph, regions, budget=budget, reduced=run.reduced), budget)
