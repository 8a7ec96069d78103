"""Small models by one table of all joint states: an answer before a tree would be planned."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.graphs.factor_graph import FactorGraph

MOST_STATES = 4096  # joint states of a model that is enumerated


class SmallAnswer(NamedTuple):
    """Where the marginals of a row of answers are, as a `PatternTree` says it."""

    number: Ints
    target_at: Ints
    target_size: Ints


def enumerated(
    graph: FactorGraph, observed: dict[int, int], weights: dict[int, Array], together: list[int]
) -> tuple[SmallAnswer, float, Array] | None:
    """log Z and all marginals (or the joint of some variables) of a small model, else None."""
    cards = [int(c) for c in graph.cardinalities]
    size = 1
    for v, c in enumerate(cards):
        size *= 1 if v in observed else c
        if size > MOST_STATES:
            return None
    if len(cards) > 24:
        return None
    shape = [1 if v in observed else c for v, c in enumerate(cards)]
    total = np.zeros(shape)
    for a in range(graph.n_factors):
        scope = graph.scope(a)
        table = graph.log_table(a)[
            tuple(
                slice(observed[v], observed[v] + 1) if v in observed else slice(None) for v in scope
            )
        ]
        order = sorted(range(len(scope)), key=scope.__getitem__)
        own = [1] * len(cards)
        for v in scope:
            own[v] = shape[v]
        total += table.transpose(order).reshape(own)
    for v, values in weights.items():
        own = [1] * len(cards)
        own[v] = cards[v]
        with np.errstate(divide="ignore"):
            total += np.log(values).reshape(own)
    top = float(total.max())
    free = [v for v in range(len(cards)) if v not in observed]
    number = np.cumsum([v not in observed for v in range(len(cards))]) - 1
    if top == -np.inf:
        return SmallAnswer(number, number, number), -np.inf, np.zeros(0)
    p = np.exp(total - top)
    mass = float(p.sum())
    p /= mass
    log_z = top + float(np.log(mass)) + graph.log_constant
    if together:
        axes = tuple(v for v in range(len(cards)) if v not in together)
        return SmallAnswer(number, number, number), log_z, p.sum(axis=axes).ravel()
    flat = p.reshape([shape[v] for v in free])
    sizes = np.array([cards[v] for v in free], dtype=np.int64)
    row = np.empty(int(sizes.sum()))
    at = 0
    before, after = 1, flat.size
    for c in sizes.tolist():
        after //= c
        row[at : at + c] = flat.reshape(before, c, after).sum(axis=(0, 2))
        before *= c
        at += c
    return SmallAnswer(number, np.cumsum(sizes) - sizes, sizes), log_z, row
