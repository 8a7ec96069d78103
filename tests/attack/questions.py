"""Every question about random models, asked three times in one process, against enumeration.

The models are those of the attack `models`; some have hundreds of tables of one variable, some name
the children of their conditional tables. All answers to a question must be the same numbers, and
those of a sum over all states in long double. Every fifth model is answered by trees, though it is
small enough for a table of all states. `python -m attack.questions 100000` in the folder `tests`
runs so many models, and another number after it sets the seed.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

import kikuchi as kk
from attack.models import _log_sum as log_sum
from attack.models import _weights as log_weights
from attack.models import make as random_model
from attack.tally import Tally
from kikuchi.core.errors import EvidenceError, ImpossibleEvidenceError
from kikuchi.queries.conflicts import conflicting
from kikuchi.queries.question import Given

TIMES = 3  # that each question is asked
METHODS = ("jt", "bp", "mf", "auto")
DRAWS = 5  # samples
BEST = 4  # states
ROWS = 4  # cases
MANY_TABLES = 0.03  # share of the models
TREES_EVERY = 5  # models
PRECISION = 1e-9  # of probabilities
LARGE = 700.0  # logarithm of a derivative that floating-point numbers may not hold

Logs = NDArray[Any]  # log-weights of all joint states, in long double
Answer = Any  # plain data, or a `Failure`


@dataclass(frozen=True)
class Failure:
    """The error that a question ended with."""

    kind: type[Exception]
    message: str


@dataclass(frozen=True)
class Asked:
    """A model, what is known, what is asked, and the weights of all joint states: with evidence,
    and with evidence and likelihoods.
    """

    graph: kk.FactorGraph
    evidence: dict[int, int]
    likelihood: dict[int, list[float]]
    pair: list[int]
    target: int
    wanted: list[float]  # an observed marginal of the target
    rows: list[dict[int, int]]
    entry: tuple[int, tuple[int, ...]] | None  # a factor and a place in its table
    given: Logs
    weighted: Logs

    @property
    def free(self) -> list[int]:
        """The variables that are not observed."""
        return [v for v in range(self.graph.n_variables) if v not in self.evidence]

    @property
    def scale(self) -> float:
        """What rounding may do to a sum of log-weights."""
        logs = self.graph.log_tables
        size = float(np.abs(logs[np.isfinite(logs)]).sum()) + abs(self.graph.log_constant)
        return 1e-13 * (10.0 + size)


def make(seed: int, number: int) -> Asked:
    """The questions of a number."""
    model = random_model(seed, number)
    rng = np.random.default_rng([seed, number, 2])
    graph = _with_children(model.graph)
    if rng.random() < MANY_TABLES:
        graph = _with_many_tables(rng, graph)
    cards = [int(c) for c in graph.cardinalities]
    evidence = model.evidence if len(model.evidence) < len(cards) else {}
    free = [v for v in range(len(cards)) if v not in evidence]
    likelihood = {v: _likelihood(rng, cards[v]) for v in free if rng.random() < 0.2}
    given = log_weights(graph, evidence)
    weighted = given
    for v, values in likelihood.items():
        weighted = weighted + _along(v, _log(values), len(cards))
    target = int(rng.choice(free))
    return Asked(
        graph,
        evidence,
        likelihood,
        rng.choice(free, min(2, len(free)), replace=False).tolist(),
        target,
        _distribution(rng, cards[target]),
        [
            {v: int(rng.integers(c)) for v, c in enumerate(cards) if rng.random() < 0.4}
            for _ in range(ROWS)
        ],
        _entry(rng, graph),
        given,
        weighted,
    )


def attack(count: int, seed: int, seconds: float) -> Tally:
    """Random models, every question three times."""
    tally = Tally("questions")
    end = time.monotonic() + seconds
    for number in range(count):
        if time.monotonic() > end:
            break
        tally.faults += [
            f"make({seed}, {number}): {fault}"
            for fault in faults(make(seed, number), trees=number % TREES_EVERY == 0)
        ]
        tally.tried += 1
    return tally


def faults(asked: Asked, *, trees: bool) -> list[str]:
    """What is wrong with the answers about a model: all questions in turn, then all twice more."""
    never = mock.patch("kikuchi.queries.cache.fits", lambda *_: False)
    with warnings.catch_warnings(), never if trees else nullcontext():
        warnings.simplefilter("error", RuntimeWarning)
        first, *later = (
            [_answer(question.ask, asked) for question in QUESTIONS] for _ in range(TIMES)
        )
    found = []
    for k, (question, answer) in enumerate(zip(QUESTIONS, first, strict=True)):
        again = next((answers[k] for answers in later if answers[k] != answer), answer)
        if answer != again:
            found.append(f"{question.name}: {answer}, asked again {again}")
        found += [f"{question.name}: {fault}" for fault in question.wrong(asked, answer)]
    return found


def _answer(ask: Callable[[Asked], Answer], asked: Asked) -> Answer:
    try:
        return ask(asked)
    except Exception as error:  # what an attack looks for
        return Failure(type(error), str(error))


# ---------------------------------------------------------------------- questions


def _ask_query(asked: Asked) -> Answer:
    found = kk.query(asked.graph, evidence=asked.evidence, likelihood=asked.likelihood)
    return found.log_evidence, {int(v): found[v].values_array.tolist() for v in found}


def _ask_joint(asked: Asked) -> Answer:
    found = kk.query(
        asked.graph, joint=asked.pair, evidence=asked.evidence, likelihood=asked.likelihood
    )
    return found.log_evidence, {0: found.table.ravel().tolist()}


def _ask_observed_marginals(asked: Asked) -> Answer:
    found = kk.query(
        asked.graph, evidence=asked.evidence, observed_marginals={asked.target: asked.wanted}
    )
    return found.converged, {int(v): found[v].values_array.tolist() for v in found}


def _ask_best(asked: Asked) -> Answer:
    found = kk.most_probable(asked.graph, asked.evidence, likelihood=asked.likelihood, best=BEST)
    items = [(tuple(i.numbers.tolist()), i.log_weight, i.probability) for i in found]
    return found.log_evidence, items


def _ask_map(asked: Asked) -> Answer:
    found = kk.marginal_map(asked.graph, asked.pair, asked.evidence, likelihood=asked.likelihood)
    return found.exact, {int(v): int(k) for v, k in found.states.items()}, found.log_weight


def _ask_cases(asked: Asked) -> Answer:
    names = [str(v) for v in range(asked.graph.n_variables)]
    cases = [{name: row.get(v) for v, name in enumerate(names)} for row in asked.rows]
    numbers = kk.predict_proba(asked.graph, cases, impossible="missing").to_numpy()
    return np.where(np.isnan(numbers), None, numbers).tolist()


def _ask_gain(asked: Asked) -> Answer:
    found = kk.information_gain(asked.graph, asked.target, asked.evidence)
    return {int(v): value for v, value in found.items()}


def _ask_sensitivity(asked: Asked) -> Answer:
    """Of an entry that changes alone, also in a conditional table."""
    if asked.entry is None:
        return None
    a, place = asked.entry
    alone = asked.graph.replaced(children=None)
    found = kk.sensitivity(alone, asked.target, 0, asked.evidence, tables=[a])
    return found.probability, float(found.derivatives[a][place])


def _ask_conflict(asked: Asked) -> Answer:
    if log_sum(asked.weighted) > -np.inf:
        return None
    weights = {v: np.array(w) for v, w in asked.likelihood.items()}
    return conflicting(asked.graph, Given(asked.evidence, weights, {}))


def _ask_methods(asked: Asked) -> Answer:
    """log Z and marginals by some methods of inference."""
    found = [kk.infer(asked.graph, method, evidence=asked.evidence) for method in METHODS]
    return [(b.log_z, b.log_z_lower, b.log_z_upper, b.flat_beliefs.tolist()) for b in found]


def _ask_samples(asked: Asked) -> Answer:
    return kk.learning.draw_samples(
        asked.graph, DRAWS, evidence=asked.evidence, seed=0
    ).states.tolist()


# ---------------------------------------------------------------------- truth


def _wrong_methods(asked: Asked, answer: Answer) -> Iterator[str]:
    log_z = log_sum(asked.given)
    if isinstance(answer, Failure) or log_z == -np.inf:
        yield from _as_possible(log_z, answer)
        return
    room = asked.scale + 1e-9 * max(1.0, abs(float(log_z)))
    for method, (found, lower, upper, _) in zip(METHODS, answer, strict=True):
        if method in ("jt", "auto") and not abs(found - log_z) <= room:
            yield f"{method}: log Z {found}, not {float(log_z)!r}"
        if not (
            (lower is None or lower <= log_z + room) and (upper is None or log_z - room <= upper)
        ):
            yield f"{method}: log Z {float(log_z)!r} is not within {lower} and {upper}"


def _wrong_samples(asked: Asked, answer: Answer) -> Iterator[str]:
    log_z = log_sum(asked.given)
    if isinstance(answer, Failure) or log_z == -np.inf:
        yield from _as_possible(log_z, answer)
        return
    for row in answer:
        if asked.given[tuple(row)] == -np.inf:
            yield f"{row} has probability zero"


def _wrong_query(asked: Asked, answer: Answer) -> Iterator[str]:
    yield from _off(asked, answer, lambda: _singles(asked.weighted, asked.free))


def _wrong_joint(asked: Asked, answer: Answer) -> Iterator[str]:
    def truth() -> dict[int, Any]:
        return {0: np.exp(_onto(asked.weighted, asked.pair) - log_sum(asked.weighted)).ravel()}

    yield from _off(asked, answer, truth)


def _off(asked: Asked, answer: Answer, truth: Callable[[], dict[int, Any]]) -> Iterator[str]:
    """Differences of log Z and probabilities from those of enumeration."""
    log_z = log_sum(asked.weighted)
    if isinstance(answer, Failure) or log_z == -np.inf:
        yield from _as_possible(log_z, answer)
        return
    if not abs(answer[0] - log_z) <= asked.scale:
        yield f"log evidence {answer[0]}, not {float(log_z)!r}"
    yield from _unequal(answer[1], truth())


def _wrong_observed_marginals(asked: Asked, answer: Answer) -> Iterator[str]:
    own, log_z = _onto(asked.given, [asked.target]), log_sum(asked.given)
    wanted = _log(asked.wanted)
    if isinstance(answer, Failure) or log_z == -np.inf:
        excluded = log_z == -np.inf or bool(((own == -np.inf) & (wanted > -np.inf)).any())
        expected = (ImpossibleEvidenceError, EvidenceError)
        if not excluded or not issubclass(getattr(answer, "kind", int), expected):
            yield f"{answer}"
        return
    if not answer[0]:
        yield "the observed marginal is not met"
    tilted = asked.given + _along(asked.target, wanted - _finite(own), asked.given.ndim)
    yield from _unequal(answer[1], _singles(tilted, asked.free))


def _wrong_best(asked: Asked, answer: Answer) -> Iterator[str]:
    weights, log_z = asked.weighted, log_sum(asked.weighted)
    if isinstance(answer, Failure) or log_z == -np.inf:
        yield from _as_possible(log_z, answer)
        return
    best = np.sort(weights[weights > -np.inf].ravel())[::-1][:BEST]
    states = {state for state, _, _ in answer[1]}
    if not len(answer[1]) == len(best) == len(states):
        yield f"{len(states)} different states of {len(answer[1])}, expected {len(best)}"
        return
    for (state, weight, probability), expected in zip(answer[1], best, strict=True):
        if not max(abs(weight - expected), abs(weight - weights[state])) <= asked.scale:
            yield f"{state} has log-weight {float(weights[state])}, not {weight}, nor {expected}"
        if not abs(probability - np.exp(expected - log_z)) <= PRECISION:
            yield f"{state} has probability {float(np.exp(expected - log_z))}, not {probability}"


def _wrong_map(asked: Asked, answer: Answer) -> Iterator[str]:
    log_z = log_sum(asked.weighted)
    if isinstance(answer, Failure) or log_z == -np.inf:
        yield from _as_possible(log_z, answer)
        return
    exact, states, weight = answer
    table = _onto(asked.weighted, asked.pair)
    own = table[tuple(states[v] for v in asked.pair)]
    if not (exact and max(abs(own - weight), table.max() - own) <= asked.scale):
        yield f"{states} has log-weight {own}, not {weight}; the best has {table.max()}"


def _wrong_cases(asked: Asked, answer: Answer) -> Iterator[str]:
    if isinstance(answer, Failure):
        yield f"{answer}"
        return
    for (*found, log_evidence), seen in zip(answer, asked.rows, strict=True):
        weights = log_weights(asked.graph, seen)
        log_z = log_sum(weights)
        if log_z == -np.inf:
            if any(x is not None for x in found):
                yield f"{seen} is impossible, not {found}"
        elif log_evidence is None or not abs(log_evidence - log_z) <= asked.scale:
            yield f"{seen}: log evidence {log_evidence}, not {float(log_z)!r}"
        else:
            singles = _singles(weights, range(weights.ndim)).values()
            yield from _unequal({0: found}, {0: np.concatenate(list(singles))})


def _wrong_gain(asked: Asked, answer: Answer) -> Iterator[str]:
    log_z = log_sum(asked.given)
    if isinstance(answer, Failure) or log_z == -np.inf:
        yield from _as_possible(log_z, answer)
        return
    if set(answer) != set(asked.free) - {asked.target}:
        yield f"gains of {sorted(answer)}"
        return
    for v, value in answer.items():
        joint = _onto(asked.given, [asked.target, v]) - log_z
        own, other = _onto(asked.given, [asked.target]) - log_z, _onto(asked.given, [v]) - log_z
        apart = _finite(own)[:, None] + _finite(other)[None, :]
        truth = (np.exp(joint) * np.where(joint > -np.inf, joint - apart, 0.0)).sum()
        if not (value >= 0.0 and abs(value - truth) <= asked.scale + 1e-6 * truth):
            yield f"the gain of {v} is {value}, not {float(truth)}"


def _wrong_sensitivity(asked: Asked, answer: Answer) -> Iterator[str]:
    log_z = log_sum(asked.given)
    if asked.entry is None:
        return
    if log_z == -np.inf:
        yield from _as_possible(log_z, answer)
        return
    a, place = asked.entry
    scope = asked.graph.scope(a)
    logs = asked.graph.log_tables.copy()
    logs[asked.graph.table_offsets[a] : asked.graph.table_offsets[a + 1]] = 0.0
    without = log_weights(asked.graph.replaced(log_tables=logs), asked.evidence) - log_z
    if isinstance(answer, Failure):
        if "too large for floating-point" not in answer.message or without.max() < LARGE:
            yield f"{answer}"
        return
    for v, k in zip(scope, place, strict=True):
        states = np.where(np.arange(without.shape[v]) == k, 0.0, -np.inf)
        without = without + _along(v, states, without.ndim)
    p = np.exp(_onto(asked.given, [asked.target])[0] - log_z)
    slope = np.exp(log_sum(without))
    in_state = np.exp(_onto(without, [asked.target])[0])
    room = 1e-8 * (in_state + p * slope) + 1e-11
    if not (abs(answer[0] - p) <= PRECISION and abs(answer[1] - (in_state - p * slope)) <= room):
        yield f"derivative {answer[1]}, not {float(in_state - p * slope)}"


def _wrong_conflict(asked: Asked, answer: Answer) -> Iterator[str]:
    if answer is None:
        return
    if isinstance(answer, Failure):
        yield f"{answer}"
        return
    named, minimal = answer
    if _possible(asked, named):
        yield f"{named} are possible together"
    for v in named if minimal else ():
        if not _possible(asked, [u for u in named if u != v]):
            yield f"{named} are impossible also without {v}"


@dataclass(frozen=True)
class Question:
    """How a question is asked, and what is wrong with an answer."""

    name: str
    ask: Callable[[Asked], Answer]
    wrong: Callable[[Asked, Answer], Iterator[str]]


QUESTIONS = (
    Question("query", _ask_query, _wrong_query),
    Question("joint", _ask_joint, _wrong_joint),
    Question("observed marginals", _ask_observed_marginals, _wrong_observed_marginals),
    Question("most_probable", _ask_best, _wrong_best),
    Question("marginal_map", _ask_map, _wrong_map),
    Question("predict_proba", _ask_cases, _wrong_cases),
    Question("information_gain", _ask_gain, _wrong_gain),
    Question("sensitivity", _ask_sensitivity, _wrong_sensitivity),
    Question("conflict", _ask_conflict, _wrong_conflict),
    Question("infer", _ask_methods, _wrong_methods),
    Question("draw_samples", _ask_samples, _wrong_samples),
)


# ---------------------------------------------------------------------- parts


def _as_possible(log_z: Any, answer: Answer) -> Iterator[str]:
    """A fault unless the answer says that the evidence is impossible, and it is."""
    refused = isinstance(answer, Failure) and issubclass(answer.kind, ImpossibleEvidenceError)
    if not refused or log_z > -np.inf:
        yield f"log Z is {float(log_z)}, but: {answer}"


def _unequal(found: dict[int, Any], truth: dict[int, Any]) -> Iterator[str]:
    if set(found) != set(truth):
        yield f"answers about {sorted(found)}, not {sorted(truth)}"
        return
    for v, expected in truth.items():
        error = np.abs(np.array(found[v]) - expected).max(initial=0.0)
        if not error <= PRECISION:
            yield f"probabilities {found[v]}, not {expected.astype(float).tolist()}"


def _possible(asked: Asked, variables: Iterable[int]) -> bool:
    """Whether what is known of some variables is possible."""
    kept = set(variables)
    weights = log_weights(asked.graph, {v: k for v, k in asked.evidence.items() if v in kept})
    for v in kept & set(asked.likelihood):
        weights = weights + _along(v, _log(asked.likelihood[v]), weights.ndim)
    return bool(log_sum(weights) > -np.inf)


def _log(values: Any) -> Logs:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.asarray(values, dtype=np.longdouble)))


def _finite(logs: Logs) -> Logs:
    return np.where(logs > -np.inf, logs, 0.0)


def _along(v: int, values: Any, n: int) -> Logs:
    """One value for each state of a variable, as an array over n variables."""
    shape = [1] * n
    shape[v] = -1
    return np.asarray(values).reshape(shape)


def _onto(weights: Logs, variables: list[int]) -> Logs:
    """Logarithms of sums over all other variables."""
    moved = np.moveaxis(weights, variables, range(len(variables)))
    kept = moved.shape[: len(variables)]
    return np.asarray(log_sum(moved.reshape(*kept, -1), len(kept)))


def _singles(weights: Logs, variables: Iterable[int]) -> dict[int, Any]:
    log_z = log_sum(weights)
    return {v: np.exp(_onto(weights, [v]) - log_z) for v in variables}


def _with_children(graph: kk.FactorGraph) -> kk.FactorGraph:
    """The same model as a directed one, if its tables are conditional ones."""
    n = graph.n_variables
    if graph.n_factors != n or any(graph.scope(v)[-1] != v for v in range(n)):
        return graph
    sums = [graph.table(v).sum(axis=-1) for v in range(n)]
    conditional = all(np.allclose(s, 1.0, atol=1e-12) for s in sums)
    return graph.replaced(children=np.arange(n)) if conditional else graph


def _with_many_tables(rng: np.random.Generator, graph: kk.FactorGraph) -> kk.FactorGraph:
    """Hundreds of tables of one variable, whose product is far beyond floating-point numbers."""
    v = int(rng.integers(graph.n_variables))
    card = int(graph.cardinalities[v])
    tables = [_log(rng.permutation(np.r_[0.9, np.full(card - 1, 0.1)])) for _ in range(3)]
    count = int(rng.integers(50, 400))
    fields = [(v, tables[k % 3].astype(np.float64)) for k in range(count)]
    return graph.with_fields(fields)


def _likelihood(rng: np.random.Generator, card: int) -> list[float]:
    weights = np.exp(rng.normal(size=card) * float(rng.choice([1.0, 100.0])))
    weights[rng.random(card) < 0.2] = 0.0
    return (weights if weights.max() > 0.0 else np.ones(card)).tolist()


def _distribution(rng: np.random.Generator, card: int) -> list[float]:
    weights = rng.gamma(1.0, size=card) * (rng.random(card) < 0.8)
    weights[int(rng.integers(card))] += 0.1
    return (weights / weights.sum()).tolist()


def _entry(rng: np.random.Generator, graph: kk.FactorGraph) -> tuple[int, tuple[int, ...]] | None:
    if not graph.n_factors:
        return None
    a = int(rng.integers(graph.n_factors))
    return a, tuple(int(rng.integers(c)) for c in graph.shape(a))


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]] or [1000]
    result = attack(numbers[0], numbers[1] if len(numbers) > 1 else 0, np.inf)
    print(f"{result.tried} models, {len(result.faults)} faults", *result.faults, sep="\n")
    sys.exit(bool(result.faults))
