"""The attack on questions sees what it looks for, in both engines."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import kikuchi as kk
from attack.questions import QUESTIONS, Asked, Question, faults, log_weights
from kikuchi.queries.pattern_table import PatternTable
from kikuchi.queries.pattern_tree import PatternTree

FAR = np.exp(-400)
CONFLICT = kk.FactorGraph([2, 2, 2], [((0,), [1, 2]), ((0, 1), np.eye(2)), ((2,), [1, 3])])


def asked(graph: kk.FactorGraph, evidence: dict[int, int]) -> Asked:
    """Questions about a model without likelihoods."""
    weights = log_weights(graph, evidence)
    free = [v for v in range(graph.n_variables) if v not in evidence]
    count = int(graph.cardinalities[free[0]])
    even = [1 / count] * count
    rows = [{free[-1]: 0}, {free[-1]: 1}, {}]
    entry = None
    if graph.n_factors:
        entry = graph.n_factors - 1, (0,) * len(graph.scope(graph.n_factors - 1))
    return Asked(
        graph, evidence, {}, free[-2:], free[0], even, rows, entry, weights, weights,
    )  # fmt: skip


def tables(first: int, second: int) -> kk.FactorGraph:
    """Tables of one variable whose product is about 10^-330 in each state."""
    own = [((0,), [0.9, 0.1])] * first + [((0,), [0.1, 0.9])] * second
    return kk.FactorGraph([2, 2], [*own, ((0, 1), [[0.7, 0.3], [0.4, 0.6]])])


@pytest.mark.parametrize("trees", [False, True], ids=["table", "tree"])
@pytest.mark.parametrize(
    ("graph", "evidence"),
    [
        (tables(339, 340), {}),
        (tables(350, 350), {}),
        (kk.FactorGraph([2] * 3, [(p, [[1, FAR], [FAR, 1]]) for p in ((0, 1), (1, 2))]), {2: 0}),
        (kk.FactorGraph([2], [((0,), [FAR, 1]), ((0,), [FAR, 1])]), {}),
        (kk.FactorGraph([3, 2], [((0,), [0, 800, -800]), ((0, 1), np.zeros(6))], log=True), {}),
        (kk.FactorGraph([2, 3], []), {}),
        (CONFLICT, {0: 0, 1: 1}),
        (kk.FactorGraph([2, 2], [((0, 1), np.eye(2)), ((0, 1), 1 - np.eye(2))]), {0: 0}),
    ],
    ids=["near", "equal", "gain", "far", "decades", "empty", "conflict", "no weight"],
)
def test_every_question_three_times(
    graph: kk.FactorGraph, evidence: dict[int, int], trees: bool
) -> None:
    assert faults(asked(graph, evidence), trees=trees) == []


@pytest.mark.parametrize("right", [1, 2], ids=["second", "third"])
@pytest.mark.parametrize("engine", [PatternTable, PatternTree])
def test_a_later_answer_that_differs_is_seen(
    engine: type[Any], right: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = asked(tables(3, 2), {})
    run, seen = engine.run, Counter[Any]()

    def once(self: Any, *arguments: Any, **options: Any) -> Any:
        log_z, out = run(self, *arguments, **options)
        key = (self.pattern, *(a.tobytes() for a in arguments[:2]))
        shift = 0.1 * (seen[key] >= right)
        seen[key] += 1
        return log_z + shift, out

    monkeypatch.setattr(engine, "run", once)
    found = faults(model, trees=engine is PatternTree)
    named = {fault.partition(":")[0] for fault in found if "asked again" in fault}
    assert {"most_probable", "predict_proba"} <= named


def altered(answer: Any) -> Any:
    """An answer with all its numbers but whole ones a little larger."""
    if isinstance(answer, float):
        return answer + 0.01
    if isinstance(answer, dict):
        return {key: altered(value) for key, value in answer.items()}
    return type(answer)(map(altered, answer)) if isinstance(answer, list | tuple) else answer


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_a_wrong_answer_is_seen(question: Question) -> None:
    soft = kk.FactorGraph([2, 2, 2], [((0, 1), [[2, 1], [1, 3]]), ((0, 2), [[1, 2], [3, 5]])])
    possible, impossible = asked(soft, {1: 0}), asked(CONFLICT, {0: 0, 1: 1})
    answer = question.ask(possible)
    assert list(question.wrong(possible, answer)) == []
    if question.name == "draw_samples":  # states are whole numbers: of variable 1 the other one
        assert list(question.wrong(possible, [[row[0], 1, row[2]] for row in answer]))
    elif question.name == "conflict":
        assert list(question.wrong(impossible, ([0], True)))
        assert list(question.wrong(impossible, ([0, 1, 2], True)))
    else:
        assert list(question.wrong(possible, altered(answer)))
        assert question.name == "predict_proba" or list(question.wrong(impossible, answer))
