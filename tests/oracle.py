"""An oracle and a maker of random models, written apart from the library."""

from __future__ import annotations

import numpy as np

from kikuchi import FactorGraph


def enumerate_exact(graph: FactorGraph) -> tuple[float, list[np.ndarray], list[np.ndarray]]:
    """log Z, variable marginals and factor marginals by summing over every state.

    Written apart from the library (no shared code), so that it can serve as the oracle.
    """
    cards = [int(c) for c in graph.cardinalities]
    weights = np.full(cards, graph.log_constant)
    for a in range(graph.n_factors):
        scope = graph.scope(a)
        order = sorted(range(len(scope)), key=lambda k: scope[k])
        table = np.transpose(graph.log_table(a), order)
        shape = [cards[v] if v in scope else 1 for v in range(len(cards))]
        weights = weights + table.reshape(shape)
    top = weights.max()
    p = np.exp(weights - top)
    total = p.sum()
    p /= total
    axes = range(len(cards))
    singles = [p.sum(axis=tuple(w for w in axes if w != v)) for v in axes]
    tables = []
    for a in range(graph.n_factors):
        scope = graph.scope(a)
        joint = p.sum(axis=tuple(w for w in axes if w not in scope))
        inverse = np.argsort(np.argsort(scope))
        tables.append(np.transpose(joint, inverse))
    return float(top + np.log(total)), singles, tables


def random_model(
    rng: np.random.Generator,
    n: int = 6,
    n_factors: int = 7,
    max_order: int = 3,
    max_card: int = 3,
    zeros: float = 0.0,
    scale: float = 1.0,
) -> FactorGraph:
    """A random mixed model; `zeros` is the share of entries that vanish (one state survives)."""
    cards = rng.integers(1 if max_card > 2 else 2, max_card + 1, size=n)
    alive = [int(rng.integers(c)) for c in cards]
    factors = []
    for _ in range(n_factors):
        order = int(rng.integers(1, min(max_order, n) + 1))
        scope = [int(v) for v in rng.choice(n, size=order, replace=False)]
        table = np.exp(scale * rng.normal(size=[cards[v] for v in scope]))
        table[rng.random(table.shape) < zeros] = 0.0
        table[tuple(alive[v] for v in scope)] = 1.0
        factors.append((scope, table))
    return FactorGraph(cards, factors)
