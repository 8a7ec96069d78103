"""What rows of evidence on one junction tree have in common, and the maps that they share."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Ints, Mask, offsets_of
from kikuchi.core.budget import Clock
from kikuchi.engines.tables import strides
from kikuchi.engines.trees.kernels import row_program
from kikuchi.engines.trees.kernels.response import separator_strides
from kikuchi.engines.trees.kernels.row_program import MapItems, RowProgram
from kikuchi.engines.trees.plan import TreePlan, make_plan, unconditioned
from kikuchi.engines.trees.shape import TreeLayout
from kikuchi.graphs.factor_graph import FactorGraph

States = NDArray[np.int32]

_NONE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class RowLayout:
    """What some rows of evidence have in common.

    Parameters
    ----------
    is_open : variables that are summed over.
    column : of each variable, its column in the states of a row; -1 for those without one.
    factors : factors with open variables, in rising order.
    seen : open variables that a row may observe all the same (-1 where it does not).
    weighted : open variables with a weight for each state.
    read : marginals of all open variables, one joint, or expected counts of the factors' states.
    together : the open variables of the joint.
    """

    is_open: Mask
    column: Ints
    factors: Ints
    seen: Ints = field(default_factory=lambda: _NONE)
    weighted: Ints = field(default_factory=lambda: _NONE)
    read: Literal["variables", "joint", "counts"] = "variables"
    together: tuple[int, ...] = ()

    @cached_property
    def open(self) -> Ints:
        """Numbers of the open variables."""
        return np.flatnonzero(self.is_open)

    @cached_property
    def number(self) -> Ints:
        """Of each variable, its place in `open`, if it is there."""
        return np.asarray(np.cumsum(self.is_open) - 1, dtype=np.int64)

    def edges(self, graph: FactorGraph) -> tuple[Ints, Ints]:
        """The edges of the factors to open variables, and to observed ones."""
        chosen = np.zeros(graph.n_factors, dtype=bool)
        chosen[self.factors] = True
        inside = chosen[graph.edge_factors]
        is_open = self.is_open[graph.scopes]
        observed = inside & ~is_open & (self.column[graph.scopes] >= 0)
        return np.flatnonzero(inside & is_open), np.flatnonzero(observed)

    def template(self, graph: FactorGraph) -> FactorGraph:
        """The reduced graph: the factors, one more for each variable that is seen or weighted, and
        one over the joint.
        """
        inside, _ = self.edges(graph)
        sizes = np.bincount(graph.edge_factors[inside], minlength=graph.n_factors)[self.factors]
        extra = [[v] for v in (*self.seen.tolist(), *self.weighted.tolist())]
        if len(self.together) > 1:
            extra.append(list(self.together))
        sizes = np.concatenate([sizes, np.array([len(s) for s in extra], dtype=np.int64)])
        names = np.array([v for scope in extra for v in scope], dtype=np.int64)
        scopes = self.number[np.concatenate([graph.scopes[inside].astype(np.int64), names])]
        cards = graph.cardinalities[self.is_open]
        offsets = offsets_of(sizes)
        entries = 0
        if len(sizes):
            entries = int(
                np.multiply.reduceat(cards[scopes].astype(np.float64), offsets[:-1]).sum()
            )
        return FactorGraph.from_arrays(
            cards, scopes.astype(np.uint32), offsets, np.zeros(entries), validate=False
        )

    def plan(self, graph: FactorGraph, clock: Clock | None = None, *, uses: int = 1) -> TreePlan:
        """The cheapest tree for rows of this kind, for so many `uses`."""
        return make_plan(unconditioned(self.template(graph)), "cheapest", None, clock, uses)


class RowCuts(NamedTuple):
    """Where the entries of all cut tables are among the flat tables of a graph: the place of each
    where observed variables are in state 0, the factor it belongs to, and the edges to observed
    variables with their factors, strides and columns in a row.
    """

    places: Ints
    factors: Ints
    n_factors: int
    edge_factors: Ints
    strides: Ints
    columns: Ints

    @classmethod
    def of(cls, graph: FactorGraph, layout: RowLayout, template: FactorGraph) -> RowCuts:
        """The cuts of a layout, in the order of its factors."""
        n = len(layout.factors)
        inside, observed = layout.edges(graph)
        place = np.cumsum(np.isin(np.arange(graph.n_factors), layout.factors)) - 1
        at = template.table_offsets[: n + 1].astype(np.int64)
        out = np.empty(int(at[-1]), dtype=np.int32)
        row_program.write_maps(
            template.cardinalities.astype(np.int64),
            template.scope_offsets,
            template.scopes.astype(np.int64),
            MapItems(
                np.arange(n),
                template.scope_offsets[: n + 1],
                template.scopes.astype(np.int64),
                graph.edge_strides[inside].astype(np.int64),
                graph.table_offsets[layout.factors],
            ),
            at,
            out,
        )
        return cls(
            out.astype(np.int64),
            np.repeat(np.arange(n), np.diff(at)),
            n,
            place[graph.edge_factors[observed]],
            graph.edge_strides[observed].astype(np.int64),
            layout.column[graph.scopes[observed]],
        )

    def at(self, states: States) -> Ints:
        """The place of each entry at the observed states of one row."""
        if not len(self.columns):
            return self.places
        shifts = np.zeros(self.n_factors, dtype=np.int64)
        np.add.at(shifts, self.edge_factors, self.strides * states[self.columns])
        return np.asarray(self.places + shifts[self.factors])


# ---------------------------------------------------------------------- programs


class RowProgramBuilder:
    """Writes down the maps of a tree."""

    def __init__(self, graph: FactorGraph, layout: RowLayout, tree: TreeLayout) -> None:
        self.graph, self.layout, self.tree = graph, layout, tree
        self.size = np.rint(tree.clique_size).astype(np.int64)
        self.maps: list[NDArray[np.int32]] = []
        self.used = 0
        homes = tree.factor_home[: len(layout.factors)]
        _, self.observed = layout.edges(graph)
        shifts = np.bincount(graph.edge_factors[self.observed], minlength=graph.n_factors)
        self.n_shifts = shifts[layout.factors]
        order = np.argsort(homes, kind="stable")
        is_cut = self.n_shifts[order] > 0
        self.whole, self.cut = order[~is_cut], order[is_cut]  # places among the layout's factors

    @property
    def cut_factors(self) -> Ints:
        """The factors with observed variables, by their cliques."""
        return np.asarray(self.layout.factors[self.cut])

    def program(self) -> RowProgram:
        """The whole program."""
        tree = self.tree
        separator = np.rint(tree.separator_size).astype(np.int64)
        return RowProgram(
            clique_at=offsets_of(self.size),
            separator_at=offsets_of(separator),
            residual=self.size // separator,
            parent=tree.parent,
            child_map=self._separators(),
            child_of=tree.child_offsets,
            children=tree.children,
            **self._factors(),
            **self._evidence(),
            **self._targets(),
            maps=np.concatenate([np.zeros(0, dtype=np.int32), *self.maps]),
        )

    def _write(
        self, homes: Ints, offsets: Ints, names: Ints, steps: Ints, starts: Ints | None = None
    ) -> Ints:
        """Write maps of the entries of cliques (`homes`) into tables; where each of them begins."""
        tree = self.tree
        at = offsets_of(self.size[homes])
        out = np.empty(int(at[-1]), dtype=np.int32)
        if starts is None:
            starts = np.zeros(len(homes), dtype=np.int64)
        items = MapItems(homes, offsets, names, steps, starts)
        row_program.write_maps(tree.card, tree.clique_offsets, tree.clique_vars, items, at, out)
        self.maps.append(out)
        places = self.used + at[:-1]
        self.used += len(out)
        return np.asarray(places)

    def _single(self, homes: Ints, ranks: Ints) -> Ints:
        """Maps into the states of one variable each."""
        n = len(ranks)
        return self._write(homes, np.arange(n + 1), ranks, np.ones(n, dtype=np.int64))

    def _separators(self) -> Ints:
        """Of each clique with a parent, the map of the parent's entries into its separator."""
        tree = self.tree
        kids = np.flatnonzero(tree.parent >= 0)
        ends = tree.clique_offsets[1:] - tree.residual
        owner = np.repeat(np.arange(tree.n_nodes), np.diff(tree.clique_offsets))
        inside = (np.arange(len(owner)) < ends[owner]) & (tree.parent[owner] >= 0)
        steps = separator_strides(tree.card, tree.clique_offsets, tree.clique_vars, tree.residual)
        offsets = offsets_of((ends - tree.clique_offsets[:-1])[kids])
        out = np.zeros(tree.n_nodes, dtype=np.int64)
        out[kids] = self._write(tree.parent[kids], offsets, tree.clique_vars[inside], steps[inside])
        return out

    def _factors(self) -> dict[str, Ints]:
        """Whole factors and cut ones by clique, with the shifts of the latter."""
        graph, layout, tree = self.graph, self.layout, self.tree
        inside, _ = layout.edges(graph)
        homes = tree.factor_home[: len(layout.factors)]
        orders = np.bincount(graph.edge_factors[inside], minlength=graph.n_factors)[layout.factors]
        begins = offsets_of(orders)
        ranks = tree.rank[layout.number[graph.scopes[inside]]]
        steps = graph.edge_strides[inside].astype(np.int64)
        found = []
        for chosen in (self.whole, self.cut):
            edges = _ranges(begins[chosen], orders[chosen])
            starts = graph.table_offsets[layout.factors[chosen]]
            offsets = offsets_of(orders[chosen])
            found.append(self._write(homes[chosen], offsets, ranks[edges], steps[edges], starts))
        edges = self.observed[_ranges(offsets_of(self.n_shifts)[self.cut], self.n_shifts[self.cut])]
        return {
            "whole_of": _by_clique(homes[self.whole], tree.n_nodes),
            "whole_map": found[0],
            "cut_of": _by_clique(homes[self.cut], tree.n_nodes),
            "cut_map": found[1],
            "shift_offsets": offsets_of(self.n_shifts[self.cut]),
            "shift_columns": layout.column[graph.scopes[edges]],
            "shift_strides": graph.edge_strides[edges].astype(np.int64),
        }

    def _evidence(self) -> dict[str, Ints]:
        """Variables that a row may observe, and those with weights, by clique."""
        layout, tree = self.layout, self.tree
        found: dict[str, Ints] = {}
        for kind, variables in (("seen", layout.seen), ("soft", layout.weighted)):
            ranks = tree.rank[layout.number[variables]]
            homes = tree.home[ranks]
            order = np.argsort(homes, kind="stable")
            found[kind + "_of"] = _by_clique(homes[order], tree.n_nodes)
            found[kind + "_map"] = self._single(homes[order], ranks[order])
            if kind == "seen":
                found["seen_columns"] = layout.column[variables[order]]
                continue
            sizes = self.graph.cardinalities[variables].astype(np.int64)
            found["soft_at"] = offsets_of(sizes)[:-1][order]
            found["soft_size"] = sizes[order]
        return found

    def _targets(self) -> dict[str, Ints]:
        """What is read, by clique."""
        layout, tree = self.layout, self.tree
        cards = self.graph.cardinalities.astype(np.int64)
        together = list(layout.together)
        homes, maps, places = _NONE, _NONE, _NONE
        if layout.read == "joint" and together:
            ranks = tree.rank[layout.number[together]]
            homes = tree.home[[ranks.max()]]
            steps = np.array(strides(cards[together].tolist()), dtype=np.int64)
            maps = self._write(homes, np.array([0, len(ranks)]), ranks, steps)
            places = np.zeros(1, dtype=np.int64)
        elif layout.read == "variables":
            ranks = tree.rank[layout.number[layout.open]]
            all_homes = self._smallest()[ranks]
            order = np.argsort(all_homes, kind="stable")
            homes = all_homes[order]
            maps = self._single(homes, ranks[order])
            places = offsets_of(cards[layout.open])[:-1][order]
        by_clique = _by_clique(homes, tree.n_nodes)
        return {"target_of": by_clique, "target_map": maps, "target_at": places}

    def _smallest(self) -> Ints:
        """Of each rank, the smallest clique with it."""
        tree = self.tree
        owner = np.repeat(np.arange(tree.n_nodes), np.diff(tree.clique_offsets))
        order = np.argsort(-self.size[owner], kind="stable")
        smallest = np.zeros(len(tree.rank), dtype=np.int64)
        smallest[tree.clique_vars[order]] = owner[order]  # of equal places the last one stays
        return smallest


def _ranges(begins: Ints, sizes: Ints) -> Ints:
    """begins[0], begins[0] + 1, ... for each range."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    return np.asarray(np.arange(total) + np.repeat(begins - (ends - sizes), sizes))


def _by_clique(homes: Ints, n: int) -> Ints:
    """Where the items of each clique begin, the items being sorted by clique."""
    return offsets_of(np.bincount(homes, minlength=n))
