"""Evidence as plain data: observed states as numbers, observed marginals as lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kikuchi import __version__
from kikuchi.graphs.factor_graph import Evidence, FactorGraph

Observed = Mapping[int, int | list[float]]


def as_observed(graph: FactorGraph, evidence: Evidence | None) -> dict[int, int | list[float]]:
    """Evidence by variable number, checked; a marginal with all its mass on one state is a state.

    >>> as_observed(FactorGraph([2, 2], [], names=["a", "b"]), {"b": 1, "a": [0.25, 0.75]})
    {0: [0.25, 0.75], 1: 1}
    """
    states, targets = graph.observations(evidence)
    observed = {**states, **{v: target.tolist() for v, target in targets.items()}}
    return {v: observed[v] for v in sorted(observed)}


def observed_states(observed: Observed) -> dict[int, int]:
    """The observed states among the evidence.

    >>> observed_states({0: [0.25, 0.75], 1: 1})
    {1: 1}
    """
    return {v: value for v, value in observed.items() if isinstance(value, int)}


def has_marginals(observed: Observed) -> bool:
    """True when some variable has an observed marginal."""
    return len(observed_states(observed)) < len(observed)


def question(model: str, graph: FactorGraph, observed: Observed) -> dict[str, Any]:
    """The head of an answer as JSON: the model, the version, and evidence by variable name."""
    evidence = {graph.label(v): value for v, value in observed.items()}
    return {"model": model, "version": __version__, "evidence": evidence}
