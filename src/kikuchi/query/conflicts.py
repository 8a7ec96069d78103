"""Evidence of probability zero: a small set of observations that cannot be together."""

from __future__ import annotations

import math
import time
from itertools import combinations

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget
from kikuchi.core.errors import BudgetError, ImpossibleEvidenceError
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.query.cache import cache_of
from kikuchi.query.question import Given, state_labels

_SECONDS = 1.0  # of a search for a small set
_MOST_SETS = 2000  # of one size that are tried at once


def impossible(graph: FactorGraph, known: Given) -> ImpossibleEvidenceError:
    """The error for evidence of probability zero, with what contradicts what."""
    likely = {v: w for v, w in known.weights.items() if (w == 0).any()}
    if known.marginals or not (known.states or likely):
        return ImpossibleEvidenceError(
            "the model gives no state that agrees with the evidence a positive weight"
        )
    conflict, minimal = conflicting(graph, known)
    if not conflict:
        return ImpossibleEvidenceError(
            "the model gives no state a positive weight, whatever is observed"
        )
    texts = [
        f"{graph.label(v)}={state_labels(graph, v)[known.states[v]]}"
        if v in known.states
        else f"the likelihood of {graph.label(v)}"
        for v in conflict
    ]
    if len(texts) == 1:
        return ImpossibleEvidenceError(
            f"the evidence has probability zero: {texts[0]} alone is impossible; take it out"
        )
    smaller = "" if minimal else " (there may be a smaller set)"
    return ImpossibleEvidenceError(
        f"the evidence has probability zero: {', '.join(texts)} together are impossible"
        f"{smaller}; take one of them out"
    )


def conflicting(graph: FactorGraph, known: Given) -> tuple[list[int], bool]:
    """Variables whose evidence is impossible together, and whether none of them can be spared.

    Single observations and pairs are all tried, so that such a set is the smallest there is. Of
    larger ones observations are taken away one by one; one without which the rest is possible is
    kept.
    """
    from kikuchi.query.pattern_tree import EvidencePattern

    evidence = {**{v: _indicator(graph, v, k) for v, k in known.states.items()}, **known.weights}
    order = tuple(sorted(evidence))
    clock = Budget(seconds=10 * _SECONDS).start()
    tree = cache_of(graph).tree(EvidencePattern((), order), clock)

    def are_impossible(sets: list[tuple[int, ...]]) -> list[bool]:
        """Of each set of observations, whether it has probability zero."""
        rows = [
            np.concatenate([evidence[u] if u in kept else np.ones(len(evidence[u])) for u in order])
            for kept in sets
        ]
        states = np.zeros((len(sets), 0), dtype=np.int32)
        return [bool(log_z == -np.inf) for log_z in tree.run(states, np.array(rows), clock)[0]]

    kept = order
    began = time.perf_counter()
    try:
        for size in (1, 2):
            if math.comb(len(order), size) <= (_MOST_SETS if tree.side_by_side else 1):
                sets = list(combinations(order, size))
                for found, bad in zip(sets, are_impossible(sets), strict=True):
                    if bad:
                        return list(found), True
        for v in order:
            if time.perf_counter() - began > _SECONDS:
                return list(kept), False
            rest = tuple(u for u in kept if u != v)
            if are_impossible([rest])[0]:
                kept = rest
    except BudgetError:
        return list(kept), False
    return list(kept), True


def _indicator(graph: FactorGraph, v: int, state: int) -> Array:
    out = np.zeros(int(graph.cardinalities[v]))
    out[state] = 1.0
    return out
