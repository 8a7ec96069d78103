"""Pairwise forms: any model with factors over two variables at most, and the phi form.

Reference: LIU-M5, TEH-M22.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Budget, limits
from kikuchi.core.errors import ModelError
from kikuchi.graphs.binary import weighted_counts
from kikuchi.graphs.factor_graph import FactorGraph


@dataclass(frozen=True)
class Pairwise:
    """A pairwise model and the mapping back to the original model.

    Variables 0..n-1 of `graph` are those of `original`; variable n + k stands for all variables
    of factor `factors[k]` together, and its states are the rows of `configurations[k]`.
    """

    graph: FactorGraph
    original: FactorGraph
    factors: tuple[int, ...]
    configurations: tuple[Ints, ...]

    def restrict_marginals(self, flat_marginals: Array) -> Array:
        """Return flat marginals of the original variables from those of the pairwise model."""
        return flat_marginals[: int(self.original.state_offsets[-1])]

    def restrict_states(self, states: Ints) -> Ints:
        """Return a state vector, or rows of state vectors, of the original model."""
        return states[..., : self.original.n_variables]

    def extend_states(self, states: Ints) -> Ints:
        """Return the state of the pairwise model that corresponds to a state of the original.

        There is none if a replaced factor gives the original state weight zero.
        """
        rows = np.atleast_2d(np.asarray(states, dtype=np.int64))
        extra = [self._added_state(k, rows) for k in range(len(self.factors))]
        extended = np.concatenate([rows, *(column[:, None] for column in extra)], axis=1)
        return extended if np.ndim(states) > 1 else extended[0]

    def factor_marginal(self, flat_marginals: Array, factor: int) -> Array:
        """Marginal table of a replaced factor of the original from the pairwise marginals."""
        if factor not in self.factors:
            raise ModelError(f"factor {factor} was not replaced; its pairwise belief is its own")
        k = self.factors.index(factor)
        start = self.graph.state_offsets[self.original.n_variables + k]
        chosen = self.configurations[k]
        table = np.zeros(self.original.shape(factor))
        table[tuple(chosen.T)] = flat_marginals[start : start + len(chosen)]
        return table

    def _added_state(self, k: int, rows: Ints) -> Ints:
        shape = self.original.shape(self.factors[k])
        number = np.full(shape, -1, dtype=np.int64)
        number[tuple(self.configurations[k].T)] = np.arange(len(self.configurations[k]))
        state: Ints = number[tuple(rows[:, self.original.scope(self.factors[k])].T)]
        if np.any(state < 0):
            raise ModelError(f"the state has weight zero in factor {self.factors[k]}")
        return state


def to_pairwise(
    graph: FactorGraph, *, budget: Budget | None = None, memory: int | str | None = None
) -> Pairwise:
    """Convert to a model with factors over at most two variables (Weiss and Freeman 2001).

    Each factor over three or more variables becomes a new variable whose states are its
    configurations of positive weight. The weights become a factor of the new variable, and a 0/1
    factor ties it to each member. The weights of all states and log Z are unchanged.

    `graph` is the model; `budget`, or `memory` in bytes or as "2GB", limits the size of the new
    tables.

    >>> triple = FactorGraph([2, 2, 2], [((0, 1, 2), [1, 0, 0, 1, 0, 1, 1, 0])])
    >>> pairwise = to_pairwise(triple)
    >>> pairwise.graph
    FactorGraph(4 variables, 4 factors, 28 table entries)
    >>> pairwise.configurations[0].tolist()
    [[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]]
    """
    orders = np.diff(graph.scope_offsets)
    replaced = [int(a) for a in np.flatnonzero(orders > 2)]
    configurations = [np.argwhere(graph.log_table(a) > -np.inf) for a in replaced]
    _require_bytes(graph, replaced, configurations, limits(budget, None, memory))
    kept = np.flatnonzero(orders <= 2)
    scopes = [graph.scope(int(a)) for a in kept]
    tables = [graph.log_table(int(a)).ravel() for a in kept]
    for k, (a, states) in enumerate(zip(replaced, configurations, strict=True)):
        added = graph.n_variables + k
        scopes.append((added,))
        tables.append(graph.log_table(a)[tuple(states.T)])
        for position, v in enumerate(graph.scope(a)):
            scopes.append((v, added))
            tables.append(_agreement(states[:, position], int(graph.cardinalities[v])))
    cards = np.concatenate([graph.cardinalities, [len(states) for states in configurations]])
    pairwise = FactorGraph.from_arrays(
        cards.astype(np.uint32),
        np.array([v for scope in scopes for v in scope], dtype=np.uint32),
        np.concatenate([[0], np.cumsum([len(scope) for scope in scopes])]),
        np.concatenate([np.zeros(0), *tables]),
        names=_extended_names(graph, replaced),
        states=_extended_states(graph, configurations),
        log_constant=graph.log_constant,
    )
    return Pairwise(pairwise, graph, tuple(replaced), tuple(configurations))


def phi_form(graph: FactorGraph) -> FactorGraph:
    """The phi form of a pairwise model, equal to it on every state.

    prod_ij psi_ij prod_i psi_i = prod_ij phi_ij prod_i phi_i^(1 - n_i), where phi_i = psi_i,
    phi_ij = psi_ij psi_i psi_j and n_i counts the neighbours of i. Factors over the same variables
    are merged. The first n factors are phi_i^(1 - n_i), followed by one phi_ij for each edge i < j
    in lexicographic order. A zero of psi_i is represented in the phi_ij only.

    >>> graph = FactorGraph([2, 2], [((0,), [1, 3]), ((0, 1), [[1, 2], [2, 1]])])
    >>> phi_form(graph).table(2).round(12).tolist()
    [[1.0, 2.0], [6.0, 3.0]]
    """
    orders = np.diff(graph.scope_offsets)
    if np.any(orders > 2):
        raise ModelError(
            f"factor {np.flatnonzero(orders > 2)[0]} has more than two variables; "
            "the phi form needs a pairwise model, see to_pairwise"
        )
    n = graph.n_variables
    cards = graph.cardinalities.astype(np.int64)
    psi = _merged_unary(graph, orders)
    edges, starts, pair = _merged_pairs(graph, orders)
    owner, position = _expand(np.diff(starts))
    i, j = edges[owner, 0], edges[owner, 1]
    pair += psi[graph.state_offsets[i] + position // cards[j]]
    pair += psi[graph.state_offsets[j] + position % cards[j]]
    degrees = np.bincount(edges.ravel(), minlength=n)
    power = np.repeat(1 - degrees, cards)
    carried = np.repeat(degrees > 0, cards) & (psi == -np.inf)
    psi[carried] = 0.0
    return graph.replaced(
        scopes=np.concatenate([np.arange(n), edges.ravel()]),
        scope_offsets=np.append(np.arange(n + 1), n + 2 * np.arange(1, len(edges) + 1)),
        log_tables=np.concatenate([psi * power, pair]),
        children=None,
        validate=True,
    )


# ---------------------------------------------------------------------- helpers of to_pairwise


def _agreement(states: Ints, cardinality: int) -> Array:
    """Return the flat log of the 0/1 table [member state, configuration] that enforces
    agreement.
    """
    agrees = np.arange(cardinality)[:, None] == states
    return np.where(agrees, 0.0, -np.inf).ravel()


def _require_bytes(
    graph: FactorGraph, replaced: list[int], configurations: list[Ints], budget: Budget | None
) -> None:
    entries = sum(
        len(states) * (1 + sum(graph.shape(a)))
        for a, states in zip(replaced, configurations, strict=True)
    )
    needed = 8 * (entries + graph.log_tables.size)
    (budget or Budget()).require_bytes(
        needed, "the pairwise form", "raise the budget or use a method for general factors"
    )


def _extended_names(graph: FactorGraph, replaced: list[int]) -> list[str] | None:
    if graph.names is None:
        return None
    taken = set(graph.names)
    names = list(graph.names)
    for a in replaced:
        name = f"factor_{a}"
        while name in taken:
            name += "_"
        taken.add(name)
        names.append(name)
    return names


def _extended_states(graph: FactorGraph, configurations: list[Ints]) -> list[list[str]] | None:
    if graph.states is None:
        return None
    added = [["-".join(map(str, row)) for row in states.tolist()] for states in configurations]
    return [*(list(group) for group in graph.states), *added]


# ---------------------------------------------------------------------- helpers of phi_form


def _expand(sizes: Ints) -> tuple[Ints, Ints]:
    """Return the table of each entry of concatenated tables, and its index within the table."""
    owner = np.repeat(np.arange(len(sizes)), sizes)
    starts = np.cumsum(sizes) - sizes
    return owner, np.arange(len(owner)) - starts[owner]


def _entries_of_order(
    graph: FactorGraph, orders: Ints, order: int
) -> tuple[Ints, Ints, Ints, Array]:
    """Scopes of all factors of one order, and of every table entry: factor, place, log-value."""
    chosen = np.flatnonzero(orders == order)
    scopes = graph.scopes[graph.scope_offsets[chosen][:, None] + np.arange(order)]
    owner, position = _expand(np.diff(graph.table_offsets)[chosen])
    values = graph.log_tables[graph.table_offsets[chosen][owner] + position]
    return scopes.astype(np.int64), owner, position, values


def _merged_unary(graph: FactorGraph, orders: Ints) -> Array:
    """log psi_i of every variable, flat over the states."""
    scopes, owner, position, values = _entries_of_order(graph, orders, 1)
    target = graph.state_offsets[scopes[owner, 0]] + position
    return weighted_counts(target, values, int(graph.state_offsets[-1]))


def _merged_pairs(graph: FactorGraph, orders: Ints) -> tuple[Ints, Ints, Array]:
    """Return the edges i < j, the offset of each table, and flat log psi_ij."""
    cards = graph.cardinalities.astype(np.int64)
    scopes, owner, position, values = _entries_of_order(graph, orders, 2)
    low, high = scopes.min(axis=1), scopes.max(axis=1)
    keys, edge_of_factor = np.unique(low * graph.n_variables + high, return_inverse=True)
    edges = np.stack([keys // graph.n_variables, keys % graph.n_variables], axis=1)
    starts = np.concatenate([[0], np.cumsum(cards[edges[:, 0]] * cards[edges[:, 1]])])
    first, second = np.divmod(position, cards[scopes[owner, 1]])
    swapped = (scopes[:, 0] > scopes[:, 1])[owner]
    row, column = np.where(swapped, second, first), np.where(swapped, first, second)
    edge = edge_of_factor[owner]
    target = starts[edge] + row * cards[edges[edge, 1]] + column
    return edges, starts.astype(np.int64), weighted_counts(target, values, int(starts[-1]))
