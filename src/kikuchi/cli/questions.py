"""What the commands about questions share: evidence and likelihoods as words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from kikuchi.cli.options import option
from kikuchi.core.errors import EvidenceError

if TYPE_CHECKING:
    from kikuchi.graphs.factor_graph import FactorGraph

Observations = Annotated[
    list[str] | None,
    option(
        "--evidence -e E",
        'Observations such as "dysp=yes,smoke=no", or a file; x=0.3:0.7 is an observed marginal. '
        "May be repeated.",
    ),
]
LikelihoodTexts = Annotated[
    list[str] | None,
    option(
        "--likelihood W", "Weights of the states of a variable: smoke=0.8,0.3. May be repeated."
    ),
]


def evidence_of(
    graph: FactorGraph, words: list[str] | None
) -> tuple[dict[int, int], dict[int, list[float]]]:
    """Observed states and observed marginals of all `--evidence`."""
    from kikuchi.cli.inputs import load_evidence

    states: dict[int, int] = {}
    marginals: dict[int, list[float]] = {}
    for word in words or []:
        for v, value in load_evidence(graph, word).items():
            known: Any = states.get(v, marginals.get(v, value))
            if known != value:
                raise EvidenceError(f"variable {graph.label(v)} is observed twice, differently")
            if isinstance(value, int):
                states[v] = value
            else:
                marginals[v] = value
    return states, marginals


def likelihoods_of(graph: FactorGraph, words: list[str] | None) -> dict[int, list[float]]:
    """Weights of the states of each variable of all `--likelihood`."""
    from kikuchi.cli.inputs import variable_number

    weights: dict[int, list[float]] = {}
    for word in words or []:
        name, equals, numbers = (part.strip() for part in word.partition("="))
        try:
            values = [float(number) for number in numbers.replace(":", ",").split(",")]
        except ValueError:
            values = []
        if not (name and equals and values):
            raise EvidenceError(f"'{word}' is no likelihood; write for example smoke=0.8,0.3")
        v = variable_number(graph, name)
        if v in weights:
            raise EvidenceError(f"variable {graph.label(v)} has two likelihoods")
        weights[v] = values
    return weights


def named(graph: FactorGraph, v: int) -> int | str:
    """A variable as questions take it for certain: by name, as a name may be a number."""
    return v if graph.names is None else graph.names[v]


def by_name(graph: FactorGraph, known: Mapping[int, Any]) -> dict[int | str, Any]:
    """What is known of variables, by their names; observed states by theirs."""
    states = graph.states
    return {
        named(graph, v): states[v][value] if states and isinstance(value, int) else value
        for v, value in known.items()
    }


def given_text(graph: FactorGraph, states: dict[int, int]) -> str:
    """Observed states in one line."""
    from kikuchi.queries.question import state_labels

    pairs = [f"{graph.label(v)}={state_labels(graph, v)[k]}" for v, k in states.items()]
    return ", ".join(pairs) or "nothing"
