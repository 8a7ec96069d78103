"""Whether sets can be joined to a junction tree.

Reference: LIU-I11, TEH-M27.
"""

from __future__ import annotations

import numpy as np

from kikuchi.core.budget import require_time
from kikuchi.graphs.regions import sets
from kikuchi.graphs.regions.sets import SetFamily

_SLOW = 0.1  # part of all members; rounds that remove less are followed by a spanning tree
_FEW_PAIRS = 1_000_000  # of overlapping sets, 50 bytes each
_PAIRS_PER_MEMBER = 4


def is_acyclic(family: SetFamily) -> bool:
    """Return True if a tree of the sets exists in which the sets that hold an item are connected.

    Items that one set holds, items that all sets hold, and sets inside others make no difference
    and are removed in rounds (Graham's reduction). Where the rounds become slow, as in long chains
    of cliques, the heaviest spanning tree of the overlaps decides: it weighs the sum over items of
    the number of their sets less one. Where that tree would need far more memory than the sets
    themselves, False is returned: not shown to be acyclic.

    >>> is_acyclic(SetFamily.of([(0, 1), (1, 2), (1, 3)], 4))
    True
    >>> is_acyclic(SetFamily.of([(0, 1), (1, 2), (0, 2)], 3))
    False
    """
    while len(family):
        before = len(family.items)
        family = _reduced(family)
        removed = before - len(family.items)
        if not removed:
            return False
        if removed < _SLOW * before:
            return _has_junction_tree(family)
        require_time("looking for a junction tree of regions", "use bp")
    return True


def _reduced(family: SetFamily) -> SetFamily:
    """One round: without items that one set or all sets hold, and without sets inside others."""
    held = family.holders.sizes
    shared = ((held > 1) & (held < len(family)))[family.items]
    sizes = np.bincount(family.owners[shared], minlength=len(family))
    sizes = sizes[sizes > 0]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return sets.maximal(SetFamily(family.items[shared], offsets, family.n_items))


def _has_junction_tree(family: SetFamily) -> bool:
    """Whether the heaviest spanning tree of the overlaps holds every item together."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import minimum_spanning_tree

    held = family.holders.sizes
    if np.sum(held**2) > max(_FEW_PAIRS, _PAIRS_PER_MEMBER * len(family.items)):
        return False
    ones = np.ones(len(family.items))
    places = family.items.astype(np.int32), family.offsets.astype(np.int32)  # as SciPy 1.13 needs
    incidence = csr_array((ones, *places), shape=(len(family), family.n_items))
    overlaps = (incidence @ incidence.T).tocsr()
    overlaps.setdiag(0)
    overlaps.eliminate_zeros()
    weight = -minimum_spanning_tree(-overlaps).sum()
    return bool(weight == len(family.items) - np.sum(held > 0))
