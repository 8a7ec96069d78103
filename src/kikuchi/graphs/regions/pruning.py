"""Regions that count zero and join nothing cost time and change no answer: leave them out.

Reference: LIU-I10.
"""

from __future__ import annotations

import numpy as np

from kikuchi.core.arrays import Mask
from kikuchi.graphs.regions.region_graph import RegionGraph


def without_idle_regions(regions: RegionGraph) -> RegionGraph:
    """The same free energy over the same beliefs with fewer regions.

    A region that is counted zero adds nothing to the free energy; what it may still do is make the
    larger regions around it agree. If chains of nested regions that all contain it do so already,
    it is left out. Counting numbers of the others do not change. Regions that are known to be
    exact stay as they are, since that is known of whole closures.

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
    dropped = {r for r in idle.tolist() if _hang_together(above[r], above, working)}
    if not dropped or regions.is_exact:
        return regions
    kept = [region for r, region in enumerate(regions.regions) if r not in dropped]
    return RegionGraph(regions.graph, kept, note=regions.note)


def _hang_together(
    around: tuple[int, ...], above: tuple[tuple[int, ...], ...], working: Mask
) -> bool:
    """Whether nesting among the working regions of `around` makes them one piece."""
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
