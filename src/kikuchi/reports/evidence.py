"""Evidence as plain data: observed states as numbers, observed marginals as lists."""

from __future__ import annotations

from collections.abc import Mapping

from kikuchi.graphs.factor_graph import Evidence, FactorGraph

Observed = Mapping[int, int | list[float]]


def as_observed(graph: FactorGraph, evidence: Evidence | None) -> dict[int, int | list[float]]:
    """Evidence by variable number, checked; a marginal with all its mass on one state is a state.

    >>> as_observed(FactorGraph([2, 2], [], names=["a", "b"]), {"b": 1, "a": [0.25, 0.75]})
    {0: [0.25, 0.75], 1: 1}
    """
    states, targets = graph.observations(evidence)
    found = {**states, **{v: target.tolist() for v, target in targets.items()}}
    return {v: found[v] for v in sorted(found)}


def observed_states(observed: Observed) -> dict[int, int]:
    """The observed states among the evidence.

    >>> observed_states({0: [0.25, 0.75], 1: 1})
    {1: 1}
    """
    return {v: value for v, value in observed.items() if isinstance(value, int)}


def has_marginals(observed: Observed) -> bool:
    """True when some variable has an observed marginal."""
    return len(observed_states(observed)) < len(observed)


def by_label(graph: FactorGraph, observed: Observed) -> dict[str, int | list[float]]:
    """Evidence by the names of the variables, or their numbers as texts, for JSON."""
    return {graph.label(v): value for v, value in observed.items()}
