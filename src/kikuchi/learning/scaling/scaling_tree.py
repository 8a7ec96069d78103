"""`ScalingTree`: the tables of a junction tree, scaled and propagated in place.

A decomposable model is the product of its clique tables over the product of its separators. One
clique that holds everything is the full table of IPF; the cliques of an elimination order
give effective IPF and UPS-JT. All run on the same compiled loops.

Reference: TEH-L14, TEH-L15, TEH-L16, TEH-M26.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from kikuchi.core.arrays import U8, Array, Ints, Mask, offsets_of
from kikuchi.core.budget import Budget
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.numerics import count_states
from kikuchi.engines.tables import StateMaps
from kikuchi.graphs.elimination import Order, eliminate
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.junction_tree import Clique, Separator, junction_tree
from kikuchi.learning.scaling.kernels import scaling as kernels

Form = Literal["auto", "table", "tree"]

_ALLOW = "use loopy-is, gradient with an approximate method, or allow more memory"
_MOST_STATES = 2.0**31


class ScalingTree:
    """Clique and separator tables of a model over the scopes of `graph`, always calibrated.

    It begins with `log_tables` as the model and knows its `log_z`. `weights` collects what scaling
    has added to the log-tables.

    >>> graph = FactorGraph([2, 2, 2], [((0, 1), np.ones(4)), ((1, 2), np.ones(4))])
    >>> tree = ScalingTree(graph, Budget())
    >>> len(tree.cliques), len(tree.separators), round(tree.log_z, 6)
    (2, 1, 2.079442)
    """

    def __init__(
        self,
        graph: FactorGraph,
        budget: Budget,
        *,
        log_tables: Array | None = None,
        form: Form = "tree",
        order: Order = "min-fill",
    ) -> None:
        self.graph = graph
        self.cliques, self.separators = _chosen(graph, form, order)
        self._sizes = _sizes(graph, self.cliques)
        self._require(budget)
        self.home = _homes(graph, self.cliques, self._sizes.tolist())
        self.layout = self._layout()
        self.roots, self.down, self.walk = self._walk()
        widest = max(
            int(np.diff(graph.table_offsets).max(initial=1)),
            int(np.diff(self.layout.separator_at.astype(np.int64)).max(initial=1)),
        )
        self.work = np.empty(widest)
        self.stack = np.empty((len(self.cliques) + 1, 2), dtype=np.uint64)
        self.weights = np.zeros(graph.log_tables.size)
        self.load(np.zeros(graph.log_tables.size) if log_tables is None else log_tables)

    # ------------------------------------------------------------------ set-up

    def _require(self, budget: Budget) -> None:
        largest = float(self._sizes.max(initial=1.0))
        maps = sum(self._sizes[c] + self._sizes[d] for c, d, _ in self.separators)
        maps += largest * self.graph.n_factors  # at most: equal maps are kept once
        needed = int(min(16 * self._sizes.sum() + 4 * maps, 2.0**62))
        what = f"a junction tree with a clique of {largest:.3g} states"
        budget.require_bytes(needed, what, _ALLOW)
        if largest >= _MOST_STATES:
            raise MethodError(f"{what} is too large; {_ALLOW}")

    def _layout(self) -> kernels.ScalingLayout:
        graph, maps = self.graph, StateMaps(self.graph.cardinalities)
        cards: list[int] = graph.cardinalities.tolist()
        ends: list[tuple[int, int, int, int]] = []  # sender, receiver and their maps, per message
        widths: list[int] = []
        for c, d, shared in self.separators:
            of_c, of_d = maps.offset(self.cliques[c], shared), maps.offset(self.cliques[d], shared)
            ends += [(c, d, of_c, of_d), (d, c, of_d, of_c)]
            widths.append(math.prod(cards[v] for v in shared))
        sender, receiver, sender_map, receiver_map = (
            np.array(ends, dtype=np.uint64).reshape(-1, 4).T.copy()
        )
        sent = np.bincount(sender.astype(np.int64), minlength=len(self.cliques))
        factor_map = [
            maps.offset(self.cliques[c], graph.scope(a)) for a, c in enumerate(self.home.tolist())
        ]
        return kernels.ScalingLayout(
            clique_at=offsets_of(self._sizes).view(np.uint64),
            separator_at=offsets_of(np.array(widths, dtype=np.int64)).view(np.uint64),
            maps=maps.flat(),
            sender=sender,
            receiver=receiver,
            sender_map=sender_map,
            receiver_map=receiver_map,
            outgoing_at=offsets_of(sent).view(np.uint64),
            outgoing=np.argsort(sender, kind="stable").astype(np.uint64),
            home=self.home.astype(np.uint64),
            factor_map=np.array(factor_map, dtype=np.uint64),
            factor_at=graph.table_offsets.astype(np.uint64),
            clique_factors_at=offsets_of(np.bincount(self.home, minlength=len(self.cliques))).view(
                np.uint64
            ),
            clique_factors=np.argsort(self.home, kind="stable").astype(np.uint64),
        )

    def _walk(self) -> tuple[U8, U8, kernels.Walk]:
        """Roots, messages outwards from them, and the depth-first walk."""
        layout = self.layout
        bounds = layout.outgoing_at[1:-1].astype(np.int64)
        outgoing = [part.tolist() for part in np.split(layout.outgoing, bounds)]
        seen = np.zeros(len(self.cliques), dtype=bool)
        roots, down, visits, messages = [], [], [], []
        for root in range(len(self.cliques)):
            if seen[root]:
                continue
            roots.append(root)
            seen[root] = True
            path = [(root, iter(outgoing[root]), None)]
            while path:
                clique, untried, back = path[-1]
                message = next((h for h in untried if h != back), None)
                visits.append(clique)
                if message is None:
                    path.pop()
                    messages.append(int(kernels.NO_MESSAGE) if back is None else back)
                    continue
                child = int(layout.receiver[message])
                seen[child] = True
                down.append(message)
                messages.append(message)
                path.append((child, iter(outgoing[child]), message ^ 1))
        first = np.zeros(len(visits), dtype=bool)
        first[np.unique(visits, return_index=True)[1]] = True
        numbers = [np.array(x, dtype=np.uint64) for x in (roots, down, visits, messages)]
        return numbers[0], numbers[1], kernels.Walk(numbers[2], first, numbers[3])

    # ------------------------------------------------------------------ the model

    def load(self, log_tables: Array, *, strict: bool = True) -> None:
        """Make the tables those of exp(log_tables), calibrated, and find its log Z.

        Unless `strict`, weights too small for the numbers become zero.
        """
        s = self.layout
        logs = np.zeros(int(s.clique_at[-1]))
        given = np.flatnonzero(self._differs(log_tables))
        for a, c in zip(given.tolist(), self.home[given].tolist(), strict=True):
            begin = int(self.graph.table_offsets[a])
            part = self._part(c)
            at = int(s.factor_map[a])
            logs[part] += log_tables[begin + s.maps[at : at + part.stop - part.start]]
        tops = np.maximum.reduceat(logs, s.clique_at[:-1].astype(np.int64))
        if np.isneginf(tops).any():
            raise MethodError(
                "the tables allow no common state of variables "
                f"{self.cliques[int(tops.argmin())]}; give at least one a positive weight"
            )
        logs -= np.repeat(tops, self._sizes.astype(np.int64))
        shift = float(tops.sum())
        p = np.exp(logs)
        if strict and np.any((p == 0) & (logs > -np.inf)):
            raise MethodError(
                "the weights of one clique range over more than e^700, beyond what scaling can "
                "hold; start from smaller tables (base=none) or use gradient"
            )
        self.tables = kernels.Tables(p, np.ones(int(s.separator_at[-1])))
        self.log_z = shift + self.calibrate()
        if not np.isfinite(self.log_z) or not np.all(np.isfinite(self.tables.p)):
            raise MethodError("the tables allow no state at all, or need numbers beyond 1e300")

    def _differs(self, log_tables: Array) -> Mask:
        """Which factors have a table other than of ones."""
        owners = np.repeat(np.arange(self.graph.n_factors), np.diff(self.graph.table_offsets))
        differs = np.zeros(self.graph.n_factors, dtype=bool)
        differs[owners[log_tables != 0.0]] = True
        return differs

    def calibrate(self) -> float:
        """Collect and distribute; answers log of the mass before, 0 if all tables agreed."""
        with np.errstate(divide="ignore"):
            return float(
                kernels.calibrate(self.layout, self.tables, self.roots, self.down, self.work)
            )

    def _part(self, clique: int) -> slice:
        at = self.layout.clique_at
        return slice(int(at[clique]), int(at[clique + 1]))

    def clique(self, clique: int) -> Array:
        """The table of a clique, normalised, with one axis for each of its variables."""
        table = self.tables.p[self._part(clique)]
        shape = [int(self.graph.cardinalities[v]) for v in self.cliques[clique]]
        return np.asarray(table / table.sum()).reshape(shape)

    def factor_marginals(self) -> Array:
        """Probabilities of all factors, laid out as the graph's tables."""
        out = np.empty(self.graph.log_tables.size)
        kernels.factor_marginals(self.layout, self.tables, out, self.work)
        return out

    # ------------------------------------------------------------------ updates

    def ups_sweep(
        self, targets: Array, active: Mask, features: tuple[kernels.Columns, Array, Array] | None
    ) -> tuple[float, float, int, int, int]:
        """Algorithm 6.1, one walk: (distance, gain, impossible factor, propagations, scalings)."""
        tables, weights, work = self.tables, self.weights, self.work
        return kernels.ups_sweep(  # type: ignore[no-any-return]
            self.layout, tables, self.walk, targets, active, weights, work, features
        )

    def ipf_sweep(self, targets: Array, active: Mask) -> tuple[float, float, int, int, int]:
        """Effective IPF, each factor once; answers as `ups_sweep`."""
        return kernels.ipf_sweep(  # type: ignore[no-any-return]
            self.layout, self.tables, targets, active, self.weights, self.stack, self.work
        )

    def add(self, steps: Array, active: Mask) -> None:
        """Add to the log-tables of all active factors at once."""
        self.weights += steps
        kernels.scale_all(self.layout, self.tables, steps, active, self.work)
        self.log_z += self.calibrate()
        if not np.isfinite(self.log_z):
            raise DataError(
                "targets: together they exclude every state; give marginals of one distribution"
            )


# ---------------------------------------------------------------------- parts


def _chosen(graph: FactorGraph, form: Form, order: Order) -> tuple[list[Clique], list[Separator]]:
    everything = tuple(range(graph.n_variables))
    if form == "table" or not everything:
        return [everything], []
    tree = junction_tree(eliminate(graph, order), _ALLOW)
    cliques, separators = tree.cliques, tree.separators
    if form == "auto":
        whole = count_states(graph.cardinalities)
        if whole <= 2.0 * _sizes(graph, cliques).sum():
            return [everything], []
    return cliques, separators


def _sizes(graph: FactorGraph, cliques: Sequence[Clique]) -> Array:
    cards = graph.cardinalities.astype(np.float64).tolist()
    with np.errstate(over="ignore"):
        return np.array([math.prod(cards[v] for v in c) for c in cliques], dtype=np.float64)


def _homes(graph: FactorGraph, cliques: Sequence[Clique], sizes: Sequence[float]) -> Ints:
    """The smallest clique that holds each factor."""
    holding: list[set[int]] = [set() for _ in range(graph.n_variables)]
    for c, clique in enumerate(cliques):
        for v in clique:
            holding[v].add(c)
    scopes, at = graph.scopes.tolist(), graph.scope_offsets.tolist()
    homes = [
        min(
            set.intersection(*(holding[v] for v in scopes[at[a] : at[a + 1]])),
            key=lambda c: (sizes[c], c),
        )
        for a in range(graph.n_factors)
    ]
    return np.array(homes, dtype=np.int64)
