"""Prior marginals from parts of a directed model, where the whole is too wide."""

from __future__ import annotations

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.budget import Budget
from kikuchi.queries.barren import marginals_by_parts, normalised_tables

ROOTS, FINDINGS, PARENTS = 24, 16, 9


def findings(error: float = 0.0) -> kk.FactorGraph:
    """Independent causes and findings of nine of them each: the moral graph of the whole is wide.

    Rows of the findings miss 1 by `error`.
    """
    rng = np.random.default_rng(0)
    factors = [((v,), rng.dirichlet([1.0, 1.0])) for v in range(ROOTS)]
    for child in range(ROOTS, ROOTS + FINDINGS):
        parents = tuple(map(int, rng.choice(ROOTS, PARENTS, replace=False)))
        table = rng.dirichlet([1.0, 1.0], size=(2,) * PARENTS) * (1.0 + error)
        factors.append(((*parents, child), table))
    count = ROOTS + FINDINGS
    return kk.FactorGraph([2] * count, factors, children=range(count))


def expected(graph: kk.FactorGraph, child: int) -> np.ndarray:
    """The marginal of a finding: its table averaged over independent causes."""
    table = graph.table(child)
    for parent in graph.scope(child)[:-1]:
        table = np.tensordot(graph.table(parent), table, axes=(0, 0))
    return np.asarray(table / table.sum())


@pytest.fixture(scope="module")
def graph() -> kk.FactorGraph:
    return findings()


def test_marginals_of_parts_are_those_of_the_model(graph: kk.FactorGraph) -> None:
    flat = marginals_by_parts(
        graph, range(graph.n_variables), normalised_tables(graph), Budget().start()
    )
    assert flat is not None
    found = flat.reshape(-1, 2)
    for root in range(ROOTS):
        assert found[root] == pytest.approx(graph.table(root), abs=1e-13)
    for child in range(ROOTS, ROOTS + FINDINGS):
        assert found[child] == pytest.approx(expected(graph, child), abs=1e-13)


def test_questions_use_them_and_keep_them(
    graph: kk.FactorGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = kk.query(graph)
    monkeypatch.setattr("kikuchi.queries.cache.marginals_by_parts", None)
    monkeypatch.setattr("kikuchi.queries.cache.ModelCache.engine", None)
    again = kk.query(graph)  # would fail without what was kept
    for name in again:
        assert again[name] == first[name]
    assert first.log_evidence == 0.0 and first.converged


@pytest.mark.parametrize(("error", "rounded"), [(3e-7, True), (1e-5, False)])
def test_rows_that_miss_one_by_the_digits_of_a_file(error: float, rounded: bool) -> None:
    graph = findings(error)
    normalised = normalised_tables(graph)
    assert normalised[:ROOTS].all() and bool(normalised[ROOTS:].all()) == rounded
    flat = marginals_by_parts(graph, range(graph.n_variables), normalised, Budget().start())
    assert (flat is not None) == rounded


def test_a_question_with_evidence_is_answered_by_a_tree(graph: kk.FactorGraph) -> None:
    child = ROOTS
    cause = graph.scope(child)[0]
    answer = kk.query(graph, [cause], evidence={child: 1})
    table = graph.table(child)[..., 1]
    for parent in reversed(graph.scope(child)[1:-1]):
        table = np.tensordot(table, graph.table(parent), axes=(-1, 0))
    weight = table * graph.table(cause)
    assert list(answer[cause].values()) == pytest.approx((weight / weight.sum()).tolist())
