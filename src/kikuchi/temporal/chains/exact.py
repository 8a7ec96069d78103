"""Several hidden chains that share their outputs: exact answers where their product fits."""

from __future__ import annotations

from typing import Any

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import BudgetError
from kikuchi.temporal.chains.inference import chain_posterior
from kikuchi.temporal.chains.structured import ChainsPosterior, HiddenChains, check_product

MOST_STATES = 4096
"""Most states of a product chain that is computed exactly."""


def exact_chains(model: HiddenChains, rows: Array, *, smooth: bool = True) -> ChainsPosterior:
    """Exact probabilities: by the product chain if all lags are equal, or by a junction tree."""
    check_product(model.sizes, MOST_STATES, "the product chain")
    if len(set(model.lags)) > 1:
        if not smooth:
            raise BudgetError("chains of different lags have no exact filter; use mean field")
        return _junction_tree(model, rows)
    start: Any = np.ones(1)
    transition: Any = np.ones((1, 1))
    for s, matrix in zip(model.starts, model.transitions, strict=True):
        start, transition = np.kron(start, s), np.kron(transition, matrix)
    logs = model.emission.table(rows, model.sizes).reshape(len(rows), -1)
    p = chain_posterior(
        start,
        np.ascontiguousarray(transition),
        logs,
        lag=model.lags[0],
        counts=smooth,
        smooth=smooth,
    )
    joint = p.probabilities.reshape(len(rows), *model.sizes)
    axes = range(len(model.sizes))
    parts = [joint.sum(axis=tuple(a + 1 for a in axes if a != c)) for c in axes]
    counts = []
    if smooth:
        pairs = p.transitions.reshape(*model.sizes, *model.sizes)
        n = len(model.sizes)
        counts = [pairs.sum(axis=tuple(a for a in range(2 * n) if a % n != c)) for c in axes]
    return ChainsPosterior(parts, p.log_likelihood, True, True, 1, counts)


def _junction_tree(model: HiddenChains, rows: Array) -> ChainsPosterior:
    from kikuchi.graphs.factor_graph import FactorGraph
    from kikuchi.methods.registry import METHODS

    count, steps = len(model.sizes), len(rows)
    table = model.emission.table(rows, model.sizes)
    top = table.max(axis=tuple(range(1, table.ndim)), keepdims=True)
    factors: list[Any] = []
    for t in range(steps):
        scope = tuple(range(t * count, (t + 1) * count))
        factors.append((scope, np.exp(table[t] - top[t])))
        for c, lag in enumerate(model.lags):
            if t < lag:
                factors.append(((scope[c],), model.starts[c]))
            else:
                factors.append((((t - lag) * count + c, scope[c]), model.transitions[c]))
    graph = FactorGraph(list(model.sizes) * steps, factors)
    beliefs = METHODS.parse("jt").run(graph)
    parts = [
        np.array([beliefs.marginals[t * count + c] for t in range(steps)]) for c in range(count)
    ]
    assert beliefs.log_z is not None
    log_z = float(beliefs.log_z) + float(top.sum())
    return ChainsPosterior(parts, log_z, True, True, 1, [])
