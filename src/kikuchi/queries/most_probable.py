"""The most probable states of all variables: the best, and the m best.

The m best are found by splitting the space of states. A part of it knows its best state and, by
its max-marginals, the best one that differs from it, in which variable and how; taking that one
out of the queue splits the part in two. Every answer costs two propagations.

Reference: HOJ-I5.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Clock, RunLimits, limits, named_limits
from kikuchi.core.errors import KikuchiError
from kikuchi.core.labelled import pandas_module
from kikuchi.core.text import html_text, printable
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.queries.cache import cache_of
from kikuchi.queries.conflicts import impossible
from kikuchi.queries.converters import as_model
from kikuchi.queries.patterns import PatternEngine, States, log_of
from kikuchi.queries.question import Given, given, state_labels

_SHOWN_VARIABLES = 12


class Explanation(Mapping[str, str]):
    """One state of all variables: names of states by names of variables.

    `log_weight` is the logarithm of its probability together with the evidence, `probability` that
    given the evidence.
    """

    __slots__ = ("log_weight", "numbers", "probability", "states")

    def __init__(
        self, states: dict[str, str], numbers: Ints, log_weight: float, probability: float
    ) -> None:
        self.states = states
        self.numbers = numbers
        self.log_weight = log_weight
        self.probability = probability

    def __getitem__(self, variable: str) -> str:
        return self.states[variable]

    def __iter__(self) -> Iterator[str]:
        return iter(self.states)

    def __len__(self) -> int:
        return len(self.states)

    def __repr__(self) -> str:
        shown = [f"{name}={state}" for name, state in list(self.states.items())[:_SHOWN_VARIABLES]]
        more = len(self.states) - len(shown)
        rest = f", and {more} more" if more > 0 else ""
        return printable(f"{self.probability:.6g}: {', '.join(shown)}{rest}")


@dataclass(frozen=True, eq=False, repr=False)
class Explanations(Sequence[Explanation]):
    """The m best states, the best first.

    >>> import kikuchi as kk
    >>> kk.most_probable(kk.example("asia"), {"dysp": "yes"}, best=2)[0]["bronc"]
    'yes'
    """

    items: tuple[Explanation, ...]
    log_evidence: float

    def __getitem__(self, place: Any) -> Any:
        return self.items[place]

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.items))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "log_evidence": self.log_evidence,
            "most_probable": [
                {
                    "probability": item.probability,
                    "log_weight": item.log_weight,
                    "states": dict(item),
                }
                for item in self.items
            ],
        }

    def to_pandas(self) -> Any:
        """A DataFrame with one row for each answer: probability, log_weight, and each variable."""
        rows = [{"probability": i.probability, "log_weight": i.log_weight, **i} for i in self.items]
        return pandas_module().DataFrame(rows)

    def _repr_html_(self) -> str:
        names = list(self.items[0]) if self.items else []
        head = "".join(f"<th>{html_text(name)}</th>" for name in names)
        body = "".join(
            f"<tr><td>{item.probability:.6g}</td>"
            + "".join(f"<td>{html_text(item[name])}</td>" for name in names)
            + "</tr>"
            for item in self.items
        )
        return (
            f"<table><thead><tr><th>probability</th>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table>"
        )


@named_limits
def most_probable(
    model: Any,
    evidence: Mapping[Any, Any] | None = None,
    *,
    best: int = 1,
    likelihood: Mapping[Any, Any] | None = None,
    **within: Unpack[RunLimits],
) -> Explanations:
    """The `best` most probable states of all variables given evidence, exactly, in order.

    Parameters
    ----------
    model, evidence, likelihood
        As in `query`.
    best : int, default 1
        How many; fewer come back if fewer states have a positive probability.
    budget, seconds, memory
        Limits of the run: a budget, or seconds and memory. A tree that does not fit is refused with
        its price.

    >>> import kikuchi as kk
    >>> for answer in kk.most_probable(kk.example("asia"), {"xray": "yes"}, best=2):
    ...     print(answer)
    0.235139: asia=no, tub=no, smoke=yes, lung=yes, bronc=yes, either=yes, xray=yes, dysp=yes
    0.138564: asia=no, tub=no, smoke=no, lung=no, bronc=no, either=no, xray=yes, dysp=no
    """
    graph = model if isinstance(model, FactorGraph) else as_model(model)
    if not isinstance(best, int | np.integer) or isinstance(best, bool) or best < 1:
        raise KikuchiError(f"best must be an integer of at least 1, got {best!r}")
    clock = limits(**within).start()
    known = given(graph, evidence, likelihood)
    search = _BestFirst(graph, known, clock)
    found = list(search.states(int(best)))
    names = [graph.label(v) for v in range(graph.n_variables)]
    labels = [state_labels(graph, v) for v in range(graph.n_variables)]
    items = tuple(
        Explanation(
            {name: labels[v][int(state[v])] for v, name in enumerate(names)},
            state,
            weight,
            float(np.exp(weight - search.log_z)),
        )
        for state, weight in found
    )
    return Explanations(items, search.log_z)


class _BestFirst:
    """Parts of the space of states, the one with the best unseen state first."""

    def __init__(self, graph: FactorGraph, known: Given, clock: Clock) -> None:
        self.graph, self.known, self.clock = graph, known, clock
        cache = cache_of(graph)
        observed = tuple(sorted(known.states))
        free = tuple(
            v
            for v in range(graph.n_variables)
            if v not in known.states and (graph.cardinalities[v] > 1 or v in known.weights)
        )
        self.engine: PatternEngine = cache.engine(observed, free, set(free), (), clock)
        self.row: States = np.array([known.states[v] for v in observed], dtype=np.int32)
        start = [known.weights.get(v, np.ones(int(graph.cardinalities[v]))) for v in free]
        self.log_weights = log_of(np.concatenate([np.zeros(0), *start]))
        self.at = self.engine.weight_at
        log_z, _ = self.engine.run(self.row[None], self.log_weights[None], clock)
        if log_z[0] == -np.inf:
            raise impossible(graph, known)
        self.log_z = float(log_z[0])

    def states(self, most: int) -> Iterator[tuple[Ints, float]]:
        """The best states and their log-weights."""
        first = self._solve(self.log_weights)
        assert first is not None  # log Z is above -inf
        yield first[0], self._weight(first[0])
        queue: list[tuple[float, int, int, int, Array, Ints]] = []
        self.count = 0
        self._push(queue, self.log_weights, *first)
        for _ in range(most - 1):
            if not queue:
                return
            _, _, variable, state, weights, parent = heapq.heappop(queue)
            inside = weights.copy()
            inside[self.at[variable] : self.at[variable + 1]] = -np.inf
            place = self.at[variable] + state
            inside[place] = weights[place]
            outside = weights.copy()
            outside[place] = -np.inf
            found = self._solve(inside)
            assert found is not None  # its log max-marginal is finite
            yield found[0], self._weight(found[0])
            self._push(queue, inside, *found)
            rest = self._solve(outside)
            if rest is not None:
                self._push(queue, outside, parent, rest[1])

    def _solve(self, log_weights: Array) -> tuple[Ints, Array] | None:
        """The best state of a part, in numbers of the whole model, and the logarithms of its
        max-marginals.
        """
        found = self.engine.best(self.row, log_weights, self.clock)
        return None if found is None else (self._whole(found[0]), found[1])

    def _whole(self, state: Ints) -> Ints:
        out = np.zeros(self.graph.n_variables, dtype=np.int64)
        out[self.engine.open] = state
        for v, k in self.known.states.items():
            out[v] = k
        return out

    def _weight(self, state: Ints) -> float:
        total = float(self.graph.log_score(state))
        for v, weights in self.known.weights.items():
            total += float(np.log(weights[state[v]]))
        return total

    def _push(self, queue: list[Any], log_weights: Array, best: Ints, maxima: Array) -> None:
        """Put a part into the queue by its second best state."""
        score = self._weight(best)
        top = (-np.inf, 0, 0)
        for k, v in enumerate(self.engine.weighted.tolist()):
            values = self.engine.marginal(maxima, v).copy()
            own = values[best[v]]
            values[best[v]] = -np.inf
            other = int(np.argmax(values))
            if values[other] > -np.inf:
                top = max(top, (score + float(values[other] - own), k, other))
        if top[0] > -np.inf:
            self.count += 1
            heapq.heappush(queue, (-top[0], self.count, top[1], top[2], log_weights, best))
