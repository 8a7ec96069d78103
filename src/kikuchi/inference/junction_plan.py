"""`Plan`: a junction tree and what it costs, before anything is paid (TEH-I2, HOJ-I3).

A plan is made from the graph's scopes alone. It knows the cliques, the separators, which factor goes
to which clique, and the memory and operations of the propagation in `junction_engine`. It allocates
no tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.budget import Budget, format_bytes
from kikuchi.graphs.elimination import Elimination, Order, eliminate
from kikuchi.graphs.factor_graph import Conditioned, FactorGraph
from kikuchi.inference.kernels import junction_joins as joins
from kikuchi.inference.kernels import junction_layout as layout
from kikuchi.inference.kernels import junction_program as programs

if TYPE_CHECKING:
    from kikuchi.inference.junction_tree import CalibratedTree

Propagation = Literal["shafer-shenoy", "hugin"]
Mode = Literal["sum", "max"]

_HUGE = 1e300
_LARGEST_RUN = 2.0**50  # table entries; offsets are whole numbers up to here
_NO_ITEMS = np.zeros(0, dtype=np.int64)

WAY_OUT = (
    "raise the memory limit (--memory, Budget(bytes=...)), observe more variables, "
    "or use an approximation: bp, mf or gibbs"
)


@dataclass(frozen=True, eq=False)
class Skeleton:
    """The tree in flat arrays, by rank (see `kernels.junction_layout`); sizes are floats."""

    rank: NDArray[np.int64]
    clique_offsets: NDArray[np.int64]
    clique_vars: NDArray[np.int64]
    residual: NDArray[np.int64]
    parent: NDArray[np.int64]
    home: NDArray[np.int64]
    card: NDArray[np.int64]
    clique_size: NDArray[np.float64]
    separator_size: NDArray[np.float64]
    child_offsets: NDArray[np.int64]
    children: NDArray[np.int64]
    factor_ranks: NDArray[np.int64]
    factor_strides: NDArray[np.int64]
    factor_home: NDArray[np.int64]
    groups: NDArray[np.int64]
    group_offsets: NDArray[np.int64]
    group_vars: NDArray[np.int64]
    group_tables: NDArray[np.int64]
    group_of: NDArray[np.int64]

    @property
    def n_cliques(self) -> int:
        """Number of maximal cliques."""
        return len(self.parent)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays themselves."""
        return sum(array.nbytes for array in vars(self).values())


class Targets(NamedTuple):
    """Marginals to read: their axes (ranks and strides), place and size in the result, and which
    of them belong to each clique and to the separator above each clique.
    """

    offsets: NDArray[np.int64]
    ranks: NDArray[np.int64]
    strides: NDArray[np.int64]
    places: NDArray[np.int64]
    sizes: NDArray[np.int64]
    clique_offsets: NDArray[np.int64]
    in_clique: NDArray[np.int64]
    separator_offsets: NDArray[np.int64]
    in_separator: NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays themselves."""
        return sum(array.nbytes for array in self)


class Measure(NamedTuple):
    """What a propagation takes (see `kernels.junction_program.measure`)."""

    up: NDArray[np.float64]
    down: NDArray[np.float64]
    up_room: NDArray[np.int64]
    down_room: NDArray[np.int64]
    scratch: NDArray[np.int64]
    up_results: float
    down_results: float
    read_results: float

    @property
    def operations(self) -> float:
        """Multiply-adds of both passes."""
        return float(self.up.sum() + self.down.sum())

    def temporary(self, logs: bool) -> float:
        """Entries for the results of a walk; sums of exponentials take as many again."""
        if logs:
            return max(
                2 * max(self.up_results, self.down_results),
                self.down_results + 2 * self.read_results,
            )
        return max(self.up_results, self.down_results + self.read_results)

    @property
    def index_bytes(self) -> int:
        """Bytes of both programs and of the scratch that one walk uses."""
        tile, operands, table, axes = (int(x) for x in self.scratch)
        ops, dims, steps, bases, actions = (int(x) for x in self.up_room + self.down_room)
        lists = programs.COLUMNS * ops + dims + steps + 2 * bases + 6 * actions
        return 8 * (lists + tile + 2 * operands + 2 * table + 3 * axes)


@dataclass(frozen=True, eq=False)
class Plan:
    """A junction tree for one graph and evidence: its shape and its price.

    `width` is the size of the largest clique less one, `largest_clique` its number of states,
    `bytes` the peak working memory and `operations` the multiply-adds of all single-variable
    marginals and log Z by Shafer-Shenoy propagation. If `complete` is False no order was found that
    any machine could pay for; the search stopped, and the figures are lower bounds for this order.

    >>> import kikuchi as kk
    >>> plan = kk.plan(kk.grid(4, 4, seed=0))
    >>> plan.width, plan.largest_clique, plan.complete
    (4, 32, True)
    >>> print(plan)
    junction tree: width 4, 11 cliques, largest 32 states, 8.4 kB, 1.3e+03 multiply-adds
    """

    conditioned: Conditioned
    order: Order
    seed: int | None
    elimination: Elimination
    skeleton: Skeleton | None

    # ------------------------------------------------------------------ price

    @property
    def complete(self) -> bool:
        """False if the search for an order stopped early: all figures are then lower bounds."""
        return self.skeleton is not None

    @property
    def width(self) -> int:
        """Size of the largest clique less one."""
        return self.elimination.width

    @cached_property
    def largest_clique(self) -> int:
        """Number of states of the largest clique."""
        if self.skeleton is None:
            return int(2 ** int(self.elimination.log2_weight))
        return _whole(self.skeleton.clique_size.max(initial=1.0))

    @cached_property
    def bytes(self) -> int:
        """Peak working memory of all single-variable marginals, in bytes."""
        if self.skeleton is None:
            # The heaviest clique sends a message over all its variables but the one summed out.
            return 8 * self.largest_clique // int(self.graph.cardinalities.max(initial=1))
        return self._bytes_for(self.variable_targets)

    @cached_property
    def operations(self) -> int:
        """Multiply-adds of all single-variable marginals."""
        if self.skeleton is None:
            return _whole(2 * self.elimination.cost)
        return _whole(self.measure(self.variable_targets).operations)

    def bytes_for(
        self,
        targets: Targets,
        *,
        logs: bool = False,
        keep: bool = False,
        hugin: bool = False,
        decode: bool = False,
    ) -> int:
        """Peak working memory of a run that reads `targets`.

        `logs` is for sums of exponentials, `keep` for messages of both directions held at once,
        `hugin` for clique tables held as well, `decode` for a best state or samples besides.
        """
        if targets is self.variable_targets and not (logs or keep or hugin or decode):
            return self.bytes
        return self._bytes_for(targets, logs, keep, hugin, decode)

    def _bytes_for(
        self,
        targets: Targets,
        logs: bool = False,
        keep: bool = False,
        hugin: bool = False,
        decode: bool = False,
    ) -> int:
        skeleton = self._skeleton
        measure = self.measure(targets, hugin=hugin)
        entries = (
            float(skeleton.group_tables[-1])  # products of factors
            + float(skeleton.separator_size.sum()) * (2 if keep and not hugin else 1)
            + measure.temporary(logs)
            + float(targets.sizes.sum())
        )
        if hugin:
            entries += float(skeleton.clique_size.sum())
        if decode:
            entries += self.largest_residual
        return _whole(8 * entries) + measure.index_bytes + skeleton.nbytes + targets.nbytes

    @cached_property
    def variable_targets(self) -> Targets:
        """The marginal of every variable, each from the smallest table that holds it."""
        return variable_targets(self)

    @cached_property
    def _usual_measure(self) -> Measure:
        return self._measure(self.variable_targets, hugin=False)

    def measure(self, targets: Targets, *, hugin: bool = False) -> Measure:
        """Work by clique, and room for programs and results."""
        if targets is self.variable_targets and not hugin:
            return self._usual_measure
        return self._measure(targets, hugin=hugin)

    def _measure(self, targets: Targets, *, hugin: bool) -> Measure:
        skeleton = self._skeleton
        return Measure(
            *programs.measure(
                hugin,
                skeleton.card,
                skeleton.clique_offsets,
                skeleton.clique_vars,
                skeleton.residual,
                skeleton.parent,
                skeleton.child_offsets,
                skeleton.children,
                skeleton.clique_size,
                skeleton.separator_size,
                skeleton.groups,
                targets.sizes,
                targets.clique_offsets,
                targets.in_clique,
                targets.separator_offsets,
                targets.in_separator,
            )
        )

    @property
    def largest_residual(self) -> float:
        """States of the variables that one clique sums out, at most."""
        s = self._skeleton
        return float(np.rint(s.clique_size / s.separator_size).max(initial=1.0))

    # ------------------------------------------------------------------ shape

    @property
    def graph(self) -> FactorGraph:
        """The graph that is propagated on: reduced by the evidence and by single states."""
        return self.conditioned.graph

    @property
    def _skeleton(self) -> Skeleton:
        assert self.skeleton is not None, "an incomplete plan has no tree"
        return self.skeleton

    @cached_property
    def variable_of_rank(self) -> NDArray[np.int64]:
        """Number in the reduced graph of the variable of each rank."""
        return np.asarray(self.elimination.order[::-1], dtype=np.int64)

    @cached_property
    def elimination_order(self) -> list[int]:
        """Variables of the given graph in the order of their elimination, without observed ones."""
        return [int(v) for v in self.conditioned.variables[self.elimination.order]]

    @cached_property
    def cliques(self) -> list[tuple[int, ...]]:
        """Variables of each maximal clique, sorted; children come before their parents."""
        s = self._skeleton
        return [
            self._names(s.clique_vars[s.clique_offsets[c] : s.clique_offsets[c + 1]])
            for c in range(s.n_cliques)
        ]

    @cached_property
    def separators(self) -> list[tuple[int, ...]]:
        """What each clique shares with its parent, sorted; empty for roots."""
        s = self._skeleton
        ends = s.clique_offsets[1:] - s.residual
        return [
            self._names(s.clique_vars[s.clique_offsets[c] : ends[c]]) for c in range(s.n_cliques)
        ]

    @property
    def parents(self) -> list[int]:
        """Parent of each clique, -1 for roots: one root for each component of the graph."""
        return [int(p) for p in self._skeleton.parent]

    @cached_property
    def factor_cliques(self) -> dict[int, int]:
        """The clique that each factor is multiplied into; factors all observed have none."""
        homes = self._skeleton.factor_home
        return {int(a): int(c) for a, c in zip(self.conditioned.factors, homes, strict=True)}

    def _names(self, ranks: NDArray[np.int64]) -> tuple[int, ...]:
        variables = self.conditioned.variables[self.variable_of_rank[ranks]]
        return tuple(sorted(int(v) for v in variables))

    # ------------------------------------------------------------------ words

    def __str__(self) -> str:
        about = "" if self.complete else "at least "
        cliques = f"{self._skeleton.n_cliques} cliques, " if self.complete else ""
        return (
            f"junction tree: width {about}{self.width}, {cliques}"
            f"largest {about}{_number(self.largest_clique)} states, "
            f"{about}{format_bytes(self.bytes)}, {about}{self.operations:.2g} multiply-adds"
        )

    def describe(self) -> str:
        """The plan in several lines, for people."""
        about = "" if self.complete else "at least "
        tries = "1 try" if self.elimination.tries == 1 else f"best of {self.elimination.tries}"
        lines = [
            f"elimination order   {self.order} ({tries})",
            f"variables           {self.graph.n_variables} "
            f"({len(self.conditioned.observed)} fixed beforehand)",
            f"width               {about}{self.width}",
            f"largest clique      {about}{_number(self.largest_clique)} states",
            f"memory              {about}{format_bytes(self.bytes)}",
            f"multiply-adds       {about}{self.operations:.3g}",
        ]
        if self.complete:
            roots = int(np.count_nonzero(self._skeleton.parent < 0))
            trees = "1 tree" if roots == 1 else f"{roots} trees"
            lines.insert(2, f"cliques             {self._skeleton.n_cliques} in {trees}")
        else:
            lines.append("the search stopped: no machine can pay for this order")
        return "\n".join(lines)

    # ------------------------------------------------------------------ running

    def calibrate(
        self,
        *,
        propagation: Propagation = "shafer-shenoy",
        budget: Budget | None = None,
    ) -> CalibratedTree:
        """Pay the price: a tree that answers any number of questions exactly.

        >>> import kikuchi as kk
        >>> tree = kk.plan(kk.FactorGraph([2, 2], [((0, 1), [[1, 2], [3, 4]])])).calibrate()
        >>> tree.joint([1, 0]).round(6).tolist()
        [[0.1, 0.3], [0.2, 0.4]]
        """
        from kikuchi.inference.junction_tree import CalibratedTree

        return CalibratedTree(self, propagation, budget or Budget())

    @property
    def runnable(self) -> bool:
        """False if the tables could not even be addressed."""
        return self.complete and self.bytes < 8 * _LARGEST_RUN


def make_plan(conditioned: Conditioned, order: Order, seed: int | None) -> Plan:
    """Plan exact inference on a conditioned graph."""
    graph = conditioned.graph
    elimination = eliminate(graph, order, seed=seed)
    skeleton = _skeleton(graph, elimination) if elimination.complete else None
    return Plan(conditioned, order, seed, elimination, skeleton)


def _skeleton(graph: FactorGraph, found: Elimination) -> Skeleton:
    n = graph.n_variables
    rank, offsets, names, residual, parent, home = layout.clique_tree(
        n, found.order, found.neighbour_offsets, found.neighbours
    )
    card, clique_size, separator_size = layout.sizes(
        graph.cardinalities, rank, offsets, names, residual
    )
    ranks, strides = layout.ranked_scopes(
        rank, graph.cardinalities, graph.scopes, graph.scope_offsets
    )
    # A factor belongs where the first of its variables to go is eliminated: its largest rank.
    factor_home = home[ranks[graph.scope_offsets[1:] - 1]]
    nodes = joins.join_nodes(
        card, offsets, names, parent, residual, clique_size, factor_home, graph.scope_offsets, ranks
    )
    n_joins = len(nodes[0])
    if n_joins:
        offsets, names, residual, parent, home, factor_home = joins.with_joins(
            offsets, names, residual, parent, home, factor_home, *nodes
        )
        card, clique_size, separator_size = layout.sizes(
            graph.cardinalities, rank, offsets, names, residual
        )
    grouped = layout.group_factors(
        factor_home, graph.scope_offsets, ranks, card, offsets, clique_size
    )
    return Skeleton(
        rank,
        offsets,
        names,
        residual,
        parent,
        home,
        card,
        np.minimum(clique_size, _HUGE),
        np.minimum(separator_size, _HUGE),
        *layout.lists_by(parent, len(parent)),
        ranks,
        strides,
        factor_home,
        *grouped,
    )


# ---------------------------------------------------------------------- what to read


def variable_targets(plan: Plan) -> Targets:
    """The marginal of every variable, each from the smallest table that holds it."""
    s, graph = plan._skeleton, plan.graph
    in_clique, in_separator = layout.smallest_tables(
        s.rank,
        s.home,
        s.parent,
        s.residual,
        s.clique_offsets,
        s.clique_vars,
        s.clique_size,
        s.separator_size,
    )
    n = graph.n_variables
    return Targets(
        np.arange(n + 1),
        s.rank,
        np.ones(n, dtype=np.int64),
        graph.state_offsets[:-1].copy(),
        graph.cardinalities.astype(np.int64),
        *layout.lists_by(in_clique, s.n_cliques),
        *layout.lists_by(in_separator, s.n_cliques),
    )


def factor_targets(plan: Plan) -> Targets:
    """The marginal of every factor, from the clique that it was multiplied into."""
    s, graph = plan._skeleton, plan.graph
    return Targets(
        graph.scope_offsets.copy(),
        s.factor_ranks,
        s.factor_strides,
        graph.table_offsets[:-1].copy(),
        np.diff(graph.table_offsets),
        *layout.lists_by(s.factor_home, s.n_cliques),
        np.zeros(s.n_cliques + 1, dtype=np.int64),
        _NO_ITEMS,
    )


def joint_target(plan: Plan, variables: list[int], clique: int) -> Targets:
    """The joint marginal of some variables of the reduced graph, all in one clique."""
    s = plan._skeleton
    cards = plan.graph.cardinalities[variables].astype(np.int64)
    strides = np.append(np.cumprod(cards[::-1])[::-1], 1)[1:]
    ranks = s.rank[variables]
    by_rank = np.argsort(ranks)
    lists = np.zeros(s.n_cliques + 1, dtype=np.int64)
    lists[clique + 1 :] = 1
    return Targets(
        np.array([0, len(variables)]),
        ranks[by_rank],
        strides[by_rank],
        np.zeros(1, dtype=np.int64),
        np.array([int(np.prod(cards))]),
        lists,
        np.zeros(1, dtype=np.int64),
        np.zeros(s.n_cliques + 1, dtype=np.int64),
        _NO_ITEMS,
    )


def no_targets(plan: Plan) -> Targets:
    """Nothing to read: log Z, samples and best states need the upward pass only."""
    none = np.zeros(plan._skeleton.n_cliques + 1, dtype=np.int64)
    return Targets(
        np.zeros(1, dtype=np.int64), *(_NO_ITEMS,) * 4, none, _NO_ITEMS, none, _NO_ITEMS
    )


def _whole(value: float) -> int:
    return int(min(value, _HUGE))


def _number(value: int) -> Any:
    return value if value < 10**6 else f"{float(min(value, int(_HUGE))):.3g}"
