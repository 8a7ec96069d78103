"""Removal of regions with counting number zero that have no effect.

Reference: LIU-I10.
"""

from __future__ import annotations

import numpy as np

from kikuchi.core.arrays import Mask
from kikuchi.graphs.regions.region_graph import RegionGraph


def without_idle_regions(regions: RegionGraph) -> RegionGraph:
    """Return a region graph with fewer regions and the same free energy over the same beliefs.

    A region with counting number zero does not contribute to the free energy, but may enforce
    agreement of larger regions. If chains of nested regions that all contain it already do so, it
    is removed. The other counting numbers do not change. Regions known to be exact are not changed,
    since exactness is a property of the closure.

    >>> from kikuchi.graphs.generators import grid
    >>> from kikuchi.graphs.regions.cycles import grid_windows
    >>> closed = RegionGraph.closure(grid(5, 5), grid_windows(5, 5, 3, 3))
    >>> len(closed.regions), len(without_idle_regions(closed).regions)
    (36, 25)
    """
    idle = np.flatnonzero(regions.counting == 0.0)
    idle = idle[idle >= regions.n_roots]
    above = regions.supersets
    working = np.ones(len(above), dtype=bool)
    working[idle] = False
    dropped = {r for r in idle.tolist() if _is_connected(above[r], above, working)}
    if not dropped or regions.is_exact:
        return regions
    kept = [region for r, region in enumerate(regions.regions) if r not in dropped]
    return RegionGraph(regions.graph, kept, note=regions.note)


def _is_connected(
    around: tuple[int, ...], above: tuple[tuple[int, ...], ...], working: Mask
) -> bool:
    """Return whether the active regions of `around` are connected by nesting."""
    leader = {r: r for r in around if working[r]}

    def find(r: int) -> int:
        while leader[r] != r:
            leader[r] = leader[leader[r]]
            r = leader[r]
        return r

    pieces = len(leader)
    for small in list(leader):
        for large in above[small]:
            if working[large]:
                one, other = find(small), find(large)
                if one != other:
                    leader[one] = other
                    pieces -= 1
    return pieces == 1
