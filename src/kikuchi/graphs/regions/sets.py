"""Families of sets in flat arrays: containment, intersections and closure without a Python loop.

What `regions` needs of set theory; nothing here knows of variables, factors or models.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from kikuchi.core.arrays import U8, Ints, Mask
from kikuchi.core.errors import BudgetError
from kikuchi.core.numerics import distinct

MOST_OVERLAPS = 25_000_000
"""Families with more pairs of sets that meet, counted by item, are refused: a minute of work."""

_PAIRS_AT_ONCE = 300_000  # pairs of sets looked at together: bounds the working memory


@dataclass(frozen=True, eq=False)
class SetFamily:
    """Sets of whole numbers in 0..n_items-1, one after the other; none is empty, each is rising.

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
        """For each item the sets that hold it (items held by none have empty rows)."""
        order = np.argsort(self.items, kind="stable")
        counts = np.bincount(self.items, minlength=self.n_items)
        return SetFamily(self.owners[order], offsets_of(counts), len(self))

    def place(self, sets: Ints, items: Ints) -> Ints:
        """Position in `items` of a member of a set, which must hold it."""
        return np.searchsorted(self.keys, sets * self.n_items + items)

    def has(self, sets: Ints, items: Ints) -> Mask:
        """True where the set holds the item, pair by pair."""
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

    def below(self, limit: int) -> SetFamily:
        """The members below `limit` of each set."""
        small = self.items < limit
        counts = np.bincount(self.owners[small], minlength=len(self))
        return SetFamily(self.items[small], offsets_of(counts), limit)

    def tuples(self) -> list[tuple[int, ...]]:
        """The sets as tuples of plain numbers."""
        items = tuple(self.items.tolist())
        at = self.offsets.tolist()
        return [items[at[k] : at[k + 1]] for k in range(len(self))]


def offsets_of(sizes: Ints | list[int]) -> Ints:
    """Where each of several rows begins if they stand one after the other.

    >>> offsets_of([2, 3]).tolist()
    [0, 2, 5]
    """
    out = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=out[1:])
    return out


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

    Only the sets of `large` that hold the rarest member of a small set are looked at.

    >>> family = SetFamily.of([(0, 1, 2), (1, 2), (2,)], 3)
    >>> [part.tolist() for part in subset_pairs(family, family)]
    [[0, 1, 1, 2, 2, 2], [0, 0, 1, 0, 1, 2]]
    """
    if not len(small):
        return small.items, small.items
    held = large.holders.sizes
    by_rarity = np.lexsort((held[small.items], small.owners))
    rarest = small.items[by_rarity[small.offsets[:-1]]]
    blocks = [
        _subsets_in_block(small, large, rarest, rows) for rows in _blocks_of_rows(held[rarest])
    ]
    rows = np.concatenate([part[0] for part in blocks])
    cols = np.concatenate([part[1] for part in blocks])
    order = np.lexsort((cols, rows))
    return rows[order], cols[order]


def _subsets_in_block(
    small: SetFamily, large: SetFamily, rarest: Ints, chosen: Ints
) -> tuple[Ints, Ints]:
    """The pairs of `subset_pairs` for the chosen small sets."""
    rare = rarest[chosen]
    position, row = spread(large.holders.offsets[rare], large.holders.sizes[rare])
    rows, cols = chosen[row], large.holders.items[position]
    sizes = small.sizes
    fits = large.sizes[cols] >= sizes[rows]
    rows, cols = rows[fits], cols[fits]
    pairs = []
    for k in range(int(sizes[chosen].max())):
        ended = sizes[rows] == k
        pairs.append((rows[ended], cols[ended]))
        rows, cols = rows[~ended], cols[~ended]
        fits = large.has(cols, small.items[small.offsets[rows] + k])
        rows, cols = rows[fits], cols[fits]
    pairs.append((rows, cols))
    return np.concatenate([f[0] for f in pairs]), np.concatenate([f[1] for f in pairs])


def _blocks_of_rows(work: Ints) -> Iterator[Ints]:
    """Rows in blocks with about as much work in each."""
    blocks = np.cumsum(work) // _PAIRS_AT_ONCE
    ends = np.flatnonzero(np.diff(blocks, append=-1)) + 1
    for begin, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
        yield np.arange(begin, end)


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
        salt += 2  # two different sets share a fingerprint: once in 10^7 years


def _fingerprints(family: SetFamily, salt: int) -> U8:
    """A 64-bit number for each set that differs between different sets."""
    words = np.random.default_rng([salt, 0x5E75]).integers(
        0, 2**64, size=family.n_items, dtype=np.uint64
    )
    if not len(family):
        return np.zeros(0, dtype=np.uint64)
    return np.add.reduceat(words[family.items], family.offsets[:-1])


def maximal(family: SetFamily) -> SetFamily:
    """The sets that lie in no other one, each once, in their order.

    >>> maximal(SetFamily.of([(0, 1), (1,), (2,), (2,)], 3)).tuples()
    [(0, 1), (2,)]
    """
    family = family.take(first_copies(family))
    rows, cols = subset_pairs(family, family)
    inside = np.zeros(len(family), dtype=bool)
    inside[rows[rows != cols]] = True
    return family.take(np.flatnonzero(~inside))


def closure(roots: SetFamily, n_essential: int, limit: int) -> SetFamily:
    """The sets of `roots` and all their intersections that hold an item below `n_essential`.

    Two sets that share an item must share one below `n_essential`. Refuses beyond `limit` sets.

    >>> closure(SetFamily.of([(0, 1), (1, 2), (0, 2)], 3), 3, 100).tuples()
    [(0, 1), (1, 2), (0, 2), (1,), (0,), (2,)]
    """
    roots = roots.take(first_copies(roots))
    sets = fresh = roots
    # An intersection of many roots is one root cut with another again and again.
    while len(fresh):
        before = len(sets)
        met = roots.holders.sizes[fresh.items] * (fresh.items < n_essential)
        for rows in _blocks_of_rows(np.add.reduceat(met, fresh.offsets[:-1])):
            sets = joined(sets, _cut(fresh, rows, roots, n_essential))
            sets = sets.take(first_copies(sets))
            if len(sets) > limit:
                raise BudgetError(
                    f"the roots have more than {limit} regions as intersections; "
                    "choose smaller or fewer roots"
                )
        fresh = sets.take(np.arange(before, len(sets)))
    return sets


def require_few_overlaps(family: SetFamily) -> None:
    """Refuse a family whose closure would take very long, before any of it is done."""
    held = family.holders.sizes.astype(np.float64)
    if (held**2).sum() > MOST_OVERLAPS:
        raise BudgetError(
            f"{len(family)} roots overlap too often, one variable is in {held.max():.0f} of them; "
            "use fewer roots, for example tree-robust, cycles or bethe"
        )


def _cut(fresh: SetFamily, chosen: Ints, roots: SetFamily, n_essential: int) -> SetFamily:
    """Distinct intersections of chosen sets with roots that they meet but do not lie in."""
    one = fresh.take(chosen)
    shared = np.flatnonzero(one.items < n_essential)
    items = one.items[shared]
    position, entry = spread(roots.holders.offsets[items], roots.holders.sizes[items])
    rows, cols = one.owners[shared][entry], roots.holders.items[position]
    if fresh is roots:  # each pair of roots once
        later = cols > chosen[rows]
        rows, cols = rows[later], cols[later]
    pairs = distinct(rows * len(roots) + cols)
    rows, cols = pairs // len(roots), pairs % len(roots)
    position, pair = spread(one.offsets[rows], one.sizes[rows])
    common = roots.has(cols[pair], one.items[position])
    counts = np.bincount(pair[common], minlength=len(pairs))
    new = counts < one.sizes[rows]
    common &= new[pair]
    intersections = SetFamily(one.items[position[common]], offsets_of(counts[new]), one.n_items)
    return intersections.take(first_copies(intersections))
