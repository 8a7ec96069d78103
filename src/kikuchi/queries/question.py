"""A question in numbers: what is observed, weighted and asked, with every name checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import EvidenceError, ModelError
from kikuchi.core.labels import AmbiguousNumberError, place_of
from kikuchi.graphs.factor_graph import FactorGraph, Variable

Weights = Mapping[Any, Any]


@dataclass(frozen=True)
class Given:
    """Given information: observed states, likelihoods and observed marginals, by variable number.

    An observed marginal with all its mass on one state is among the `states`; `certain` names the
    variables with such a marginal.
    """

    states: dict[int, int]
    weights: dict[int, Array]
    marginals: dict[int, Array]
    certain: frozenset[int] = field(default=frozenset(), repr=False)

    @property
    def evidence(self) -> set[int]:
        """Variables that were given as evidence; answers about all others leave these out."""
        return set(self.states) - self.certain

    @property
    def variables(self) -> set[int]:
        """All variables that something is known about."""
        return {*self.states, *self.weights, *self.marginals}


def given(
    graph: FactorGraph,
    evidence: Mapping[Any, Any] | None = None,
    likelihood: Weights | None = None,
    observed_marginals: Weights | None = None,
) -> Given:
    """The three kinds of evidence as numbers, each variable in one of them at most.

    >>> graph = FactorGraph([2, 2], [], names=["a", "b"])
    >>> given(graph, {"a": 1}, {"b": [0.8, 0.4]})
    Given(states={0: 1}, weights={1: array([0.8, 0.4])}, marginals={})
    """
    states: dict[int, int] = {}
    for variable, value in _pairs(evidence, "evidence", "{'smoke': 'yes'}"):
        v = _number(graph, variable)
        if np.ndim(value) or isinstance(value, Mapping):
            raise EvidenceError(
                f"variable {graph.label(v)}: evidence is a state; give weights of states by "
                "likelihood=, or the marginal that it shall have by observed_marginals="
            )
        state = state_number(graph, v, value)
        if states.get(v, state) != state:
            raise EvidenceError(f"variable {graph.label(v)} is observed twice, differently")
        states[v] = state
    weights = _weights(graph, likelihood)
    wanted = {}
    for variable, value in _pairs(
        observed_marginals, "observed_marginals", "{'smoke': [0.9, 0.1]}"
    ):
        v = _number(graph, variable)
        wanted[v] = _in_order(graph, v, value)
    exact, marginals = graph.observations(wanted)
    _apart(graph, states, weights, {**exact, **marginals})
    return Given({**states, **exact}, weights, marginals, frozenset(exact))


def _pairs(given: Any, what: str, example: str) -> Iterable[tuple[Any, Any]]:
    """Return the variables and the information given for each."""
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise EvidenceError(
            f"{what} must be a mapping such as {example}, got {type(given).__name__}"
        )
    return given.items()


def _weights(graph: FactorGraph, likelihood: Weights | None) -> dict[int, Array]:
    weights = {}
    for variable, value in _pairs(likelihood, "likelihood", "{'smoke': [0.8, 0.3]}"):
        v = _number(graph, variable)
        count = int(graph.cardinalities[v])
        ordered = _in_order(graph, v, value)
        try:
            numbers = np.asarray(ordered, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise EvidenceError(
                f"variable {graph.label(v)}: {value!r} is not a list of weights"
            ) from error
        if numbers.shape != (count,):
            raise EvidenceError(
                f"variable {graph.label(v)} has {count} states; a likelihood needs as many weights"
            )
        if not np.isfinite(numbers).all() or numbers.min() < 0 or not numbers.max() > 0:
            raise EvidenceError(
                f"variable {graph.label(v)}: weights must be finite, >= 0 and not all 0, got "
                f"{numbers.tolist()}"
            )
        if v in weights:
            raise EvidenceError(f"variable {graph.label(v)} has two likelihoods")
        weights[v] = numbers
    return weights


def _in_order(graph: FactorGraph, v: int, value: Any) -> Any:
    """Weights in the order of the states, also if they were given by the states' names."""
    if not isinstance(value, Mapping):
        return value
    ordered = [0.0] * int(graph.cardinalities[v])
    for state, weight in value.items():
        ordered[state_number(graph, v, state)] = weight
    return ordered


def _apart(graph: FactorGraph, *kinds: Iterable[int]) -> None:
    seen: set[int] = set()
    for kind in kinds:
        twice = seen & set(kind)
        if twice:
            raise EvidenceError(
                f"variable {graph.label(min(twice))} is given in two ways; give it as a state, a "
                "likelihood or an observed marginal"
            )
        seen |= set(kind)


def asked_variables(graph: FactorGraph, variables: Any, what: str) -> list[int]:
    """Return the numbers of the queried variables, in order and without repetition."""
    single = isinstance(variables, str) or not isinstance(variables, Iterable)
    named = [variables] if single else list(variables)
    chosen = [variable_number(graph, v) for v in named]
    if len(set(chosen)) != len(chosen):
        raise ModelError(f"{what}: a variable is repeated in {named}")
    return chosen


def _number(graph: FactorGraph, variable: Variable) -> int:
    try:
        return variable_number(graph, variable)
    except ModelError as error:
        raise EvidenceError(str(error)) from error


# ---------------------------------------------------------------------- names


def variable_number(graph: FactorGraph, variable: Variable) -> int:
    """The number of a variable; a number that is also the name of another one is refused."""
    if graph.names is None or isinstance(variable, str):
        return graph.index(variable)
    try:
        found = place_of(graph.names, variable)
    except AmbiguousNumberError as error:
        raise ModelError(f"variable {error}") from None
    return graph.index(variable) if found is None else found


def state_number(graph: FactorGraph, v: int, state: Any) -> int:
    """The number of a state of a variable; a number that is also the name of another is refused.

    >>> graph = FactorGraph([3, 2], [], names=["a", "b"], states=[["1", "5", "9"], ["no", "True"]])
    >>> state_number(graph, 0, "1"), state_number(graph, 0, 9), state_number(graph, 1, True)
    (0, 2, 1)
    """
    if graph.states is None:
        return graph.state_index(v, state)
    try:
        found = place_of(graph.states[v], state)
    except AmbiguousNumberError as error:
        raise EvidenceError(f"variable {graph.label(v)}: state {error}") from None
    return graph.state_index(v, state) if found is None else found


def state_labels(graph: FactorGraph, v: int) -> tuple[str, ...]:
    """Names of a variable's states, or their numbers as texts."""
    if graph.states is not None:
        return graph.states[v]
    return tuple(map(str, range(int(graph.cardinalities[v]))))
