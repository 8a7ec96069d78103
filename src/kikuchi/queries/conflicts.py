"""Evidence of probability zero: a small set of observations that cannot be together."""

from __future__ import annotations

import math
import time
from itertools import combinations

import numpy as np

from kikuchi.core.budget import Budget
from kikuchi.core.errors import BudgetError, ImpossibleEvidenceError
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.queries.cache import cache_of
from kikuchi.queries.patterns import log_of
from kikuchi.queries.question import Given, state_labels

_SECONDS = 1.0  # of a search for a small set
_MEMORY = 2**28  # bytes of a tree in which all evidence may be taken back
_SHOWN = 10  # observations of a set in a message
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
    named = ", ".join(texts[:_SHOWN])
    if len(texts) > _SHOWN:
        named += f" and {len(texts) - _SHOWN} more"
    return ImpossibleEvidenceError(
        f"the evidence has probability zero: {named} together are impossible{smaller}; take one of "
        "them out"
    )


def conflicting(graph: FactorGraph, known: Given) -> tuple[list[int], bool]:
    """Variables whose evidence is impossible together, and whether none of them can be spared.

    There are none if the model is impossible without any evidence. Single observations and pairs
    are all tried, so that such a set is the smallest there is. Of larger ones observations are
    taken away one by one; one without which the rest is possible is kept.
    """
    evidence = {v: log_of(np.eye(graph.cardinalities[v])[k]) for v, k in known.states.items()}
    evidence |= {v: log_of(w) for v, w in known.weights.items()}
    order = tuple(sorted(evidence))
    clock = Budget(seconds=10 * _SECONDS, bytes=_MEMORY).start()
    cache = cache_of(graph)

    def are_impossible(sets: list[tuple[int, ...]]) -> list[bool]:
        """Return for each set of observations whether it has probability zero."""
        engine = cache.engine((), order, set(), (), clock, rows=len(sets))
        weights = np.zeros((len(sets), int(engine.weight_at[-1])))
        for row, kept in zip(weights, sets, strict=True):
            for k, v in enumerate(order):
                if v in kept:
                    row[engine.weight_at[k] : engine.weight_at[k + 1]] = evidence[v]
        states = np.zeros((len(sets), 0), dtype=np.int32)
        return [bool(log_z == -np.inf) for log_z in engine.run(states, weights, clock)[0]]

    def all_of(size: int) -> list[tuple[int, ...]]:
        """All sets of a size; none where they would take too long."""
        count = math.comb(len(order), size)
        engine = cache.engine((), order, set(), (), clock, rows=count)
        few = count <= (_MOST_SETS if engine.many_rows_are_cheap else 1)
        return list(combinations(order, size)) if few else []

    kept = order
    began = time.perf_counter()
    try:
        for size in (0, 1, 2):
            sets = all_of(size)
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
