"""Families of sets in flat arrays: containment, intersections and closure without a Python loop.

Set operations for `regions`, independent of variables, factors and models.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from kikuchi.core.arrays import U8, Ints, Mask, offsets_of
from kikuchi.core.budget import require_memory, require_time
from kikuchi.core.errors import BudgetError

MOST_OVERLAPS = 25_000_000
"""Largest number of overlapping pairs of sets, counted by item: about a minute of work."""

_PAIRS_AT_ONCE = 3_000_000  # pairs of sets processed between two checks of the clock
_MEMBER_BYTES = 400  # of all lists while a region graph is built, per member of a region
_FEWER = "choose fewer or smaller regions (bethe, loops:4)"


@dataclass(frozen=True, eq=False)
class SetFamily:
    """Non-empty sorted sets of integers in 0..n_items-1, in flat arrays.

    >>> family = SetFamily.of([(0, 2), (1, 2, 3)], 4)
    >>> family.items.tolist(), family.offsets.tolist()
    ([0, 2, 1, 2, 3], [0, 2, 5])
    """

    items: Ints
    offsets: Ints
    n_items: int

    @classmethod
    def of(cls, sets: Iterable[Iterable[int]], n_items: int) -> SetFamily:
        """From any sets of numbers; members are sorted."""
        rows = [sorted(s) for s in sets]
        items = np.fromiter(chain.from_iterable(rows), dtype=np.int64)
        return cls(items, offsets_of([len(row) for row in rows]), n_items)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Ints:
        """Number of members of each set."""
        return np.diff(self.offsets)

    @cached_property
    def owners(self) -> Ints:
        """The set that each entry of `items` belongs to."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @cached_property
    def keys(self) -> Ints:
        """One number for each (set, member), rising."""
        return self.owners * self.n_items + self.items

    @cached_property
    def holders(self) -> SetFamily:
        """The sets that contain each item (items in no set have empty rows)."""
        order = np.argsort(self.items, kind="stable")
        counts = np.bincount(self.items, minlength=self.n_items)
        return SetFamily(self.owners[order], offsets_of(counts), len(self))

    def place(self, sets: Ints, items: Ints) -> Ints:
        """Return the position in `items` of a member of a set, which must contain it."""
        return np.searchsorted(self.keys, sets * self.n_items + items)

    def has(self, sets: Ints, items: Ints) -> Mask:
        """Return whether the set contains the item, pair by pair."""
        wanted = sets * self.n_items + items
        position = np.searchsorted(self.keys, wanted)
        held = np.zeros(len(wanted), dtype=bool)
        inside = position < len(self.keys)
        held[inside] = self.keys[position[inside]] == wanted[inside]
        return held

    def take(self, rows: Ints) -> SetFamily:
        """The family of the chosen sets, in the order of `rows`."""
        position, _ = spread(self.offsets[rows], self.sizes[rows])
        return SetFamily(self.items[position], offsets_of(self.sizes[rows]), self.n_items)

    def row(self, number: int) -> Ints:
        """The members of one set."""
        return self.items[self.offsets[number] : self.offsets[number + 1]]

    def below(self, limit: int) -> SetFamily:
        """The members below `limit` of each set."""
        small = self.items < limit
        counts = np.bincount(self.owners[small], minlength=len(self))
        return SetFamily(self.items[small], offsets_of(counts), limit)

    def above(self, limit: int) -> SetFamily:
        """The members from `limit` on of each set, counted from there."""
        large = self.items >= limit
        counts = np.bincount(self.owners[large], minlength=len(self))
        return SetFamily(self.items[large] - limit, offsets_of(counts), self.n_items - limit)

    def tuples(self) -> list[tuple[int, ...]]:
        """The sets as tuples of plain numbers."""
        items = tuple(self.items.tolist())
        at = self.offsets.tolist()
        return [items[at[k] : at[k + 1]] for k in range(len(self))]


def spread(starts: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Indices starts[k], ..., starts[k] + counts[k] - 1 of every row k, and the k of each.

    >>> [part.tolist() for part in spread(np.array([5, 0]), np.array([2, 1]))]
    [[5, 6, 0], [0, 0, 1]]
    """
    row = np.repeat(np.arange(len(counts)), counts)
    first = np.cumsum(counts) - counts
    return np.arange(len(row)) + (starts - first)[row], row


def joined(one: SetFamily, other: SetFamily) -> SetFamily:
    """All sets of two families over the same items."""
    return SetFamily(
        np.concatenate([one.items, other.items]),
        np.concatenate([one.offsets, one.offsets[-1] + other.offsets[1:]]),
        one.n_items,
    )


def subset_pairs(small: SetFamily, large: SetFamily) -> tuple[Ints, Ints]:
    """All (i, j) with set i of `small` inside set j of `large`, sorted.

    Only the sets of `large` that contain the rarest member of a small set are examined.

    >>> family = SetFamily.of([(0, 1, 2), (1, 2), (2,)], 3)
    >>> [part.tolist() for part in subset_pairs(family, family)]
    [[0, 1, 1, 2, 2, 2], [0, 0, 1, 0, 1, 2]]
    """
    if not len(small):
        return small.items, small.items
    from kikuchi.graphs.kernels import sets as kernels

    held = large.holders.sizes
    by_rarity = np.lexsort((held[small.items], small.owners))
    rarest = small.items[by_rarity[small.offsets[:-1]]]
    family = kernels.Lists(small.items, small.offsets)
    above = kernels.Lists(large.items, large.offsets)
    holders = kernels.Lists(large.holders.items, large.holders.offsets)
    none = np.zeros(0, dtype=np.int64)
    blocks = []
    for span in _blocks(held[rarest]):
        count = kernels.subsets(family, rarest, above, holders, span, none, none)
        rows, cols = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
        if count:
            kernels.subsets(family, rarest, above, holders, span, rows, cols)
        blocks.append((rows, cols))
        require_time("finding which regions contain which", _FEWER)
    return np.concatenate([b[0] for b in blocks]), np.concatenate([b[1] for b in blocks])


def _blocks(work: Ints) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows with about the same work in each."""
    ends = np.flatnonzero(np.diff(np.cumsum(work) // _PAIRS_AT_ONCE, append=-1)) + 1
    begin = 0
    for end in ends.tolist():
        yield begin, end
        begin = end


def first_copies(family: SetFamily) -> Ints:
    """Numbers of the sets that equal no earlier one, rising.

    >>> first_copies(SetFamily.of([(0, 1), (1,), (1, 0)], 2)).tolist()
    [0, 1]
    """
    salt = 0
    while True:
        print_one, print_two = (_fingerprints(family, salt + k) for k in (0, 1))
        _, first, group = np.unique(print_one, return_index=True, return_inverse=True)
        if np.array_equal(print_two, print_two[first[group]]):
            return np.sort(first)
        salt += 2  # two different sets share a fingerprint with negligible probability


def _fingerprints(family: SetFamily, salt: int) -> U8:
    """A 64-bit number for each set that differs between different sets."""
    words = np.random.default_rng([salt, 0x5E75]).integers(
        0, 2**64, size=family.n_items, dtype=np.uint64
    )
    if not len(family):
        return np.zeros(0, dtype=np.uint64)
    return np.add.reduceat(words[family.items], family.offsets[:-1])


def maximal(family: SetFamily) -> SetFamily:
    """Return the sets that are contained in no other one, each once, in their order.

    >>> maximal(SetFamily.of([(0, 1), (1,), (2,), (2,)], 3)).tuples()
    [(0, 1), (2,)]
    """
    family = family.take(first_copies(family))
    rows, cols = subset_pairs(family, family)
    inside = np.zeros(len(family), dtype=bool)
    inside[rows[rows != cols]] = True
    return family.take(np.flatnonzero(~inside))


def closure(roots: SetFamily, n_essential: int, limit: int) -> SetFamily:
    """Return the sets of `roots` and all their intersections that contain an item below
    `n_essential`.

    Two sets that share an item must share one below `n_essential`. Raises an error for more than
    `limit` sets.

    >>> closure(SetFamily.of([(0, 1), (1, 2), (0, 2)], 3), 3, 100).tuples()
    [(0, 1), (1, 2), (0, 2), (0,), (1,), (2,)]
    """
    from kikuchi.graphs.kernels import sets as kernels

    roots = roots.take(first_copies(roots))
    n, marks = len(roots), np.full(len(roots), -1)
    sets, slots = _Growing(roots), np.full(16, -1)
    holders = kernels.Lists(roots.holders.items, roots.holders.offsets)
    first = kernels.Roots(n, holders, n_essential)
    count, row, before = n, 0, 0
    # An intersection of many roots is a sequence of intersections with single roots.
    while row < count:
        if row == before:  # the first time, and when space ran out
            sets.double()
            slots = np.full(2 * len(sets.offsets), -1)
            kernels.enter(sets.items, sets.offsets, count, slots)
        before = row
        family = kernels.Lists(sets.items, sets.offsets)
        count, row = kernels.cut(family, count, row, first, slots, marks, _PAIRS_AT_ONCE)
        if count > limit:
            raise BudgetError(
                f"the roots have more than {limit} regions as intersections; "
                "choose smaller or fewer roots"
            )
        require_time(f"intersecting {n} regions", _FEWER)
        require_lists(sets.offsets[count])
    return sets.first(count)


class _Growing:
    """A growing family of sets."""

    def __init__(self, family: SetFamily) -> None:
        self.items, self.offsets, self.n_items = family.items, family.offsets, family.n_items

    def double(self) -> None:
        """Double the capacity."""
        size = 2 ** len(self.offsets).bit_length()
        self.items = np.concatenate([self.items, np.zeros_like(self.items)])
        self.offsets = np.concatenate(
            [self.offsets, np.zeros(2 * size - len(self.offsets), np.int64)]
        )

    def first(self, count: int) -> SetFamily:
        """The first sets."""
        offsets = self.offsets[: count + 1].copy()
        return SetFamily(self.items[: offsets[-1]].copy(), offsets, self.n_items)


def require_lists(members: int) -> None:
    """Raise an error if the lists of regions exceed the memory limit, given their total number of
    members.
    """
    require_memory(_MEMBER_BYTES * int(members), "listing the regions", _FEWER)


def require_few_overlaps(family: SetFamily) -> None:
    """Raise an error if the closure of a family would take very long, before it is computed."""
    held = family.holders.sizes.astype(np.float64)
    if (held**2).sum() > MOST_OVERLAPS:
        raise BudgetError(
            f"{len(family)} roots overlap too often, one variable is in {held.max():.0f} of them; "
            "use fewer roots, for example tree-robust, cycles or bethe"
        )
