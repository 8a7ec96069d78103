"""The junction tree of an elimination order: maximal cliques and the separators that join them.

Exact inference, region graphs, structured mean field and iterative scaling all build on this tree.

Reference: HOJ-I3, TEH-I2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import Ints
from kikuchi.core.errors import BudgetError
from kikuchi.graphs.elimination import Elimination

Clique = tuple[int, ...]
Separator = tuple[int, int, tuple[int, ...]]  # two cliques, by number, and what they share


class CliqueTree(NamedTuple):
    """A junction tree (a forest, if the graph is not connected) in flat arrays.

    Variables are renumbered by rank: the last one eliminated has rank 0. The ranks of clique c are
    `ranks[offsets[c]:offsets[c + 1]]`, in increasing order; its last `residual[c]` variables are
    eliminated in it, and the others are its separator, contained in clique `parent[c]` (-1 for a
    root). Children come before their parents. `home[r]` is the clique that eliminates rank r,
    `rank[v]` the rank of variable v.
    """

    rank: Ints
    offsets: Ints
    ranks: Ints
    residual: Ints
    parent: Ints
    home: Ints

    @property
    def ranked_cliques(self) -> list[Clique]:
        """Variables of each clique, the last eliminated first: separator, then residual."""
        variable = np.empty(len(self.rank), dtype=np.int64)
        variable[self.rank] = np.arange(len(self.rank))
        members = np.split(variable[self.ranks], self.offsets[1:-1]) if len(self.parent) else []
        return [tuple(m.tolist()) for m in members]

    @property
    def cliques(self) -> list[Clique]:
        """Variables of each clique, sorted."""
        return [tuple(sorted(members)) for members in self.ranked_cliques]

    @property
    def separators(self) -> list[Separator]:
        """(clique, its parent, their common variables) for every clique except the roots."""
        sizes = (np.diff(self.offsets) - self.residual).tolist()
        rows = zip(self.ranked_cliques, self.parent.tolist(), sizes, strict=True)
        return [(c, p, tuple(sorted(m[:k]))) for c, (m, p, k) in enumerate(rows) if p >= 0]


def junction_tree(
    elimination: Elimination, advice: str = "use junction:K, faces, loops:4 or bethe"
) -> CliqueTree:
    """The junction tree of a complete elimination.

    An abandoned elimination has no tree and raises an error that ends with `advice`.

    >>> import kikuchi as kk
    >>> from kikuchi.graphs.elimination import eliminate
    >>> tree = junction_tree(eliminate(kk.grid(1, 3, seed=0)))
    >>> tree.cliques, tree.separators
    ([(0, 1), (1, 2)], [(0, 1, (1,))])
    """
    from kikuchi.graphs.kernels.junction_tree import clique_tree

    if not elimination.complete:
        raise BudgetError(
            f"the junction tree needs a table of at least 2^{elimination.log2_weight:.0f} states; "
            f"{advice}"
        )
    return CliqueTree(
        *clique_tree(
            elimination.n_variables,
            elimination.order,
            elimination.neighbour_offsets,
            elimination.neighbours,
        )
    )
