"""Sites of split factors in the trees of structured mean field, as columns for compiled loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from kikuchi.core.arrays import Ints
from kikuchi.engines.tables import places, strides


@dataclass
class GrowingColumns:
    """Growing columns of `Shape` and `FactorParts` that are filled factor by factor."""

    columns: dict[str, list[int]] = field(default_factory=dict)

    def __getattr__(self, name: str) -> list[int]:
        return self.columns.setdefault(name, [])

    def array(self, name: str) -> Ints:
        """A finished column."""
        return np.array(self.columns.get(name, []), dtype=np.int64)


@dataclass
class Branch:
    """One neighbour of a site: variables behind it, variables on this side, pending tables."""

    edge: int
    up: int
    behind: list[int]
    here: list[int]
    incoming: int
    outgoing: int


@dataclass
class Site:
    """A clique between the variables of a split part."""

    clique: int
    table: int
    own: list[int]
    branches: list[Branch] = field(default_factory=list)
    table_steps: dict[int, int] = field(default_factory=dict)

    def write(self, lists: GrowingColumns, cards: Sequence[int], in_clique: dict[int, int]) -> None:
        """Append this site to the columns."""
        lists.site_table.append(self.table)
        lists.site_owns.append(len(lists.own_strides))
        for v in self.own:
            lists.own_strides.append(in_clique[v])
            lists.own_cards.append(cards[v])
            lists.own_steps.append(self.table_steps[v])
        lists.site_branches.append(len(lists.branch_edge))
        for branch in self.branches:
            behind = [cards[v] for v in branch.behind]
            here = [cards[v] for v in branch.here]
            lists.branch_edge.append(branch.edge)
            lists.branch_up.append(branch.up)
            lists.branch_in.append(branch.incoming)
            lists.branch_out.append(branch.outgoing)
            lists.branch_below.append(prod(behind))
            lists.branch_above.append(prod(here))
            lists.branch_places.append(len(lists.shifts))
            lists.shifts.extend(places(behind, [self.table_steps[v] for v in branch.behind]))
            self._write_out(
                lists, cards, branch, dict(zip(branch.here, strides(here), strict=True))
            )

    def _write_out(
        self, lists: GrowingColumns, cards: Sequence[int], branch: Branch, steps: dict[int, int]
    ) -> None:
        """Where entries and the other branches' states go in the table sent over a branch."""
        lists.out_own.append(len(lists.out_steps))
        lists.out_steps.extend(steps.get(v, 0) for v in self.own)
        lists.out_from.append(len(lists.out_places))
        for other in self.branches:
            lists.out_places.append(len(lists.shifts))
            if other is not branch:
                behind = [cards[v] for v in other.behind]
                lists.shifts.extend(places(behind, [steps[v] for v in other.behind]))
