"""Pseudo-likelihood against its definition, finite differences, enumeration and its optimum."""

from __future__ import annotations

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.budget import Budget
from kikuchi.core.errors import BudgetError, DataError
from kikuchi.learning.data import Data
from kikuchi.learning.local.conditionals import pseudo_log_likelihood
from kikuchi.learning.local.pseudo import (
    LocalConfigurations,
    PseudoLikelihood,
)
from kikuchi.methods.gibbs import conditional
from oracle import random_model


def _rows(graph: kk.FactorGraph, count: int, seed: int = 0) -> np.ndarray:
    return kk.plan(graph).calibrate().sample(count, seed=seed)


def _by_definition(graph: kk.FactorGraph, states: np.ndarray, weights: np.ndarray) -> float:
    """sum_i log p(x_i | rest) through log-weights of whole states alone."""
    total = 0.0
    for row, weight in zip(states, weights, strict=True):
        for v in range(graph.n_variables):
            others = np.repeat(row[None], int(graph.cardinalities[v]), axis=0)
            others[:, v] = np.arange(int(graph.cardinalities[v]))
            scores = graph.log_score(others)
            total += weight * (scores[row[v]] - np.logaddexp.reduce(scores))
    return total / weights.sum()


@pytest.mark.parametrize("seed", range(6))
def test_the_value_is_its_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_model(rng, 5, 6, 3, 4, zeros=0.2 if seed % 2 else 0.0)
    states = _rows(graph, 40, seed)
    weights = rng.random(40)
    data = Data.of(states, graph, weights=weights)
    expected = _by_definition(graph, states, weights)
    assert pseudo_log_likelihood(graph, data) == pytest.approx(expected, abs=1e-11)
    value, _ = LocalConfigurations(graph, data).value_and_gradient(np.array(graph.log_tables))
    assert value == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("seed", range(4))
def test_the_gradient_is_the_slope_of_the_value(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_model(rng, 5, 6, 3, 3, zeros=0.0)
    local = LocalConfigurations(graph, Data.of(_rows(graph, 30), graph))
    tables = np.array(graph.log_tables)
    gradient = local.value_and_gradient(tables)[1]
    for k in range(tables.size):
        up, down = tables.copy(), tables.copy()
        up[k] += 1e-5
        down[k] -= 1e-5
        slope = (local.value_and_gradient(up)[0] - local.value_and_gradient(down)[0]) / 2e-5
        assert gradient[k] == pytest.approx(slope, abs=1e-8)


def test_the_gradient_is_data_counts_minus_one_flip_counts() -> None:
    """TEH-L10 (2.64): J times the difference of the data and the data with one cell redrawn."""
    # TEH-T29
    graph = kk.grid(2, 3, seed=1)
    states = _rows(graph, 25)
    gradient = LocalConfigurations(graph, Data.of(states, graph)).value_and_gradient(
        np.array(graph.log_tables)
    )[1]
    expected = np.zeros_like(gradient)
    for row in states:
        for v in range(graph.n_variables):
            p = conditional(graph, v, row)
            for x in range(2):
                flipped = row.copy()
                flipped[v] = x
                for a in range(graph.n_factors):
                    scope = list(graph.scope(a))
                    for state, sign in ((row, p[x]), (flipped, -p[x])):
                        place = np.ravel_multi_index(tuple(state[scope]), graph.shape(a))
                        expected[graph.table_offsets[a] + place] += sign / len(states)
    np.testing.assert_allclose(gradient, expected, atol=1e-12)


def test_blankets_in_tables_by_sorting_and_by_row_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = kk.generate.complete(8, seed=2)
    data = Data.of(_rows(graph, 200), graph)
    tables = np.array(graph.log_tables)
    in_tables = LocalConfigurations(graph, data)
    monkeypatch.setattr("kikuchi.learning.local.pseudo._SMALL_TABLE", 1)
    few = data.like(data.states[:100], data.weights[:100])
    sorted_rows = LocalConfigurations(graph, few)
    monkeypatch.setattr("kikuchi.learning.local.pseudo._WORD", 1.0)
    by_row = LocalConfigurations(graph, few)
    assert by_row.size == 8 * 100 >= sorted_rows.size
    assert in_tables.size <= 8 * 2**7
    one, other = sorted_rows.value_and_gradient(tables), by_row.value_and_gradient(tables)
    assert one[0] == pytest.approx(other[0], abs=1e-12)
    np.testing.assert_allclose(one[1], other[1], atol=1e-12)
    assert one[0] == pytest.approx(pseudo_log_likelihood(graph, few), abs=1e-12)


def test_a_blanket_of_many_variables() -> None:
    """A hundred neighbours have more states than a number can count."""
    star = kk.boltzmann_graph({(0, k): 0.1 for k in range(1, 101)}, [0.0] * 101)
    states = np.random.default_rng(0).integers(0, 2, (50, 101))
    local = LocalConfigurations(star, Data.of(states, star))
    assert local.value_and_gradient(np.array(star.log_tables))[0] == pytest.approx(
        pseudo_log_likelihood(star, states), abs=1e-10
    )


def test_equals_the_likelihood_of_independent_variables() -> None:
    graph = kk.FactorGraph([2, 3], [((0,), np.ones(2)), ((1,), np.ones(3))])
    rows = [[0, 0], [1, 2], [1, 1], [1, 2]]
    fit = kk_fit(graph, rows)
    assert fit.graph.table(1) / fit.graph.table(1).sum() == pytest.approx([0.25, 0.25, 0.5], 1e-5)
    assert fit.objective == pytest.approx(fit.log_likelihood, abs=1e-9)


def kk_fit(graph: kk.FactorGraph, rows: object, **options: object) -> object:
    return PseudoLikelihood(**options).fit(graph, rows)  # type: ignore[arg-type]


def test_recovers_the_couplings_of_a_grid() -> None:
    truth = kk.grid(3, 3, seed=4, coupling=0.6, field=0.3)
    fit = PseudoLikelihood().fit(_blank(truth), _rows(truth, 60_000))
    assert fit.converged
    from kikuchi.graphs.binary import couplings_and_fields

    found, wanted = couplings_and_fields(fit.graph), couplings_and_fields(truth)
    assert abs(found.couplings - wanted.couplings).max() < 0.04
    assert np.abs(found.fields - wanted.fields).max() < 0.04


def test_recovers_mixed_tables() -> None:
    rng = np.random.default_rng(3)
    truth = random_model(rng, 4, 4, 3, 3, zeros=0.0, scale=0.7)
    fit = PseudoLikelihood().fit(_blank(truth), _rows(truth, 60_000))
    exact, found = kk.infer(truth, "enumerate"), kk.infer(fit.graph, "enumerate")
    assert np.abs(exact.flat_factors - found.flat_factors).max() < 0.02


def test_zeros_stay_and_impossible_rows_are_refused() -> None:
    graph = kk.FactorGraph([2, 2], [((0, 1), [[1, 0], [1, 1]])])
    fit = PseudoLikelihood(l2=0.01).fit(graph, [[0, 0], [1, 1], [1, 0], [1, 1]])
    assert fit.graph.table(0)[0, 1] == 0.0 and np.all(fit.graph.table(0)[1] > 0)
    with pytest.raises(DataError, match="row 1 is impossible"):
        PseudoLikelihood().fit(graph, [[0, 0], [0, 1]])
    assert pseudo_log_likelihood(graph, [[0, 0], [0, 1]]) == -np.inf


def test_directed_tables_stay_normalised() -> None:
    net = kk.example("asia")
    fit = PseudoLikelihood(l2=1e-3, max_iter=50).fit(net, _rows(net, 500))
    assert kk.infer(fit.graph, "jt").log_z == pytest.approx(0.0, abs=1e-9)


def test_penalties() -> None:
    truth = kk.grid(3, 3, seed=4)
    rows = _rows(truth, 300)
    plain, squared = kk_fit(_blank(truth), rows), kk_fit(_blank(truth), rows, l2=0.1)
    sparse = kk_fit(_blank(truth), rows, l1=0.02)
    assert np.abs(squared.graph.log_tables).sum() < np.abs(plain.graph.log_tables).sum()
    assert np.mean(sparse.graph.log_tables == 0) > 0.2
    local = LocalConfigurations(truth, Data.of(rows, truth))
    slope = local.value_and_gradient(np.array(squared.graph.log_tables))[1]
    np.testing.assert_allclose(slope, 0.1 * squared.graph.log_tables, atol=2e-6)
    value, slope = local.value_and_gradient(np.array(sparse.graph.log_tables))
    assert np.abs(slope[sparse.graph.log_tables == 0]).max() <= 0.02 + 1e-6
    penalty = 0.02 * np.abs(sparse.graph.log_tables).sum()
    assert sparse.objective == pytest.approx(value - penalty, abs=1e-9)


def test_ties_share_tables() -> None:
    truth = kk.grid(3, 3, seed=0, coupling=0.0, field=0.0)
    fit = PseudoLikelihood(ties="shape").fit(truth, _rows(kk.grid(3, 3, seed=1), 200))
    tables = [fit.graph.table(a) for a in range(9, fit.graph.n_factors)]
    assert all(np.array_equal(t, tables[0]) for t in tables)


def test_odd_models() -> None:
    single = kk.FactorGraph([1, 2], [((0, 1), [[1, 1]])])
    assert kk_fit(single, [[0, 1], [0, 0]]).objective == pytest.approx(-np.log(2))
    loose = kk.FactorGraph([3, 2], [((1,), [1, 1])])
    assert kk_fit(loose, [[0, 1], [2, 0]]).objective == pytest.approx(-np.log(6))
    twice = kk.FactorGraph([2, 2], [((0, 1), np.ones(4)), ((1, 0), np.ones(4))])
    fit = kk_fit(twice, [[0, 0], [1, 1], [0, 1], [0, 0]], l2=0.01)
    assert fit.converged
    empty = kk.FactorGraph([2, 2], [])
    assert kk_fit(empty, [[0, 1]]).objective == pytest.approx(-2 * np.log(2))


def test_refusals() -> None:
    graph = kk.generate.complete(5)
    with pytest.raises(DataError, match="does not say the state of 1"):
        PseudoLikelihood().fit(graph, [[0, -1, 0, 0, 0]])
    rows = np.random.default_rng(0).integers(0, 2, (500, 5))
    with pytest.raises(BudgetError, match="local configurations needs"):
        PseudoLikelihood().fit(graph, rows, budget=Budget(bytes=100))


def _blank(graph: kk.FactorGraph) -> kk.FactorGraph:
    return graph.with_log_tables(np.where(np.isneginf(graph.log_tables), -np.inf, 0.0))
