"""Closed forms from counts: exact on forests, moments as fixed points (LIU-L11)."""

from __future__ import annotations

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.engines.messages.reweighted import ReweightedMessages
from kikuchi.learning.data import Data
from kikuchi.learning.local.piecewise import Piecewise, empirical_factors, pseudo_moments
from oracle import enumerate_exact


def _rows(graph: kk.FactorGraph, count: int, seed: int = 0) -> np.ndarray:
    return kk.plan(graph).calibrate().sample(count, seed=seed)


def test_pieces_are_the_empirical_distributions() -> None:
    graph = kk.grid(2, 2, seed=0)
    rows = _rows(graph, 100)
    fit = Piecewise(form="pieces", prior=0.0).fit(graph, rows)
    for a in range(graph.n_factors):
        counts = Data.of(rows, graph).counts(graph.scope(a))
        np.testing.assert_allclose(fit.graph.table(a), counts / 100, atol=1e-12)
    assert fit.objective <= fit.log_likelihood


def test_pieces_maximise_each_factor_alone() -> None:
    """No other normalised table of a factor gives its rows more."""
    rng = np.random.default_rng(0)
    graph = kk.grid(2, 2, seed=0)
    rows = _rows(graph, 100)
    fit = Piecewise(form="pieces", prior=0.0).fit(graph, rows)
    counts = Data.of(rows, graph).counts(graph.scope(4)) / 100
    best = float((counts * np.log(fit.graph.table(4))).sum())
    for _ in range(20):
        other = fit.graph.table(4) * np.exp(0.1 * rng.normal(size=(2, 2)))
        assert float((counts * np.log(other / other.sum())).sum()) < best


@pytest.mark.parametrize("seed", range(3))
def test_bethe_form_is_maximum_likelihood_on_trees(seed: int) -> None:
    tree = kk.generate.random_tree(7, seed=seed, states=3)
    rows = _rows(tree, 500, seed)
    fit = Piecewise(prior=0.0).fit(tree, rows)
    tables = enumerate_exact(fit.graph)[2]
    data = Data.of(rows, tree)
    for a in range(tree.n_factors):  # moments match: the gradient of the likelihood vanishes
        np.testing.assert_allclose(tables[a], data.counts(tree.scope(a)) / 500, atol=1e-10)
    assert kk.infer(fit.graph, "jt").log_z == pytest.approx(0.0, abs=1e-10)


def test_bethe_form_is_a_fixed_point_on_loops() -> None:
    graph = kk.grid(3, 3, seed=2, coupling=0.4, field=0.2)
    rows = _rows(graph, 2000)
    fit = Piecewise(prior=0.0).fit(graph, rows)
    beliefs = kk.infer(fit.graph, "bp")
    wanted = empirical_factors(graph, Data.of(rows, graph), 0.0)
    np.testing.assert_allclose(beliefs.flat_factors, wanted, atol=1e-7)


def test_reweighted_form_is_a_fixed_point() -> None:
    graph = kk.generate.complete(5, seed=2, coupling=0.4, field=0.2)
    rows = _rows(graph, 2000)
    from kikuchi.graphs.appearances import uniform_appearances

    weights = uniform_appearances(graph).weights
    wanted = empirical_factors(graph, Data.of(rows, graph), 1.0)
    model = graph.with_log_tables(pseudo_moments(graph, wanted, weights))
    engine = ReweightedMessages(model, weights)
    engine.sweeps(500)
    np.testing.assert_allclose(engine.factor_marginals(), wanted, atol=1e-8)


def test_nested_and_repeated_scopes_count_once() -> None:
    factors = [((0, 1), np.ones(4)), ((1, 0), np.ones(4)), ((0,), np.ones(2)), ((1,), np.ones(2))]
    graph = kk.FactorGraph([2, 2], factors)
    rows = [[0, 0], [0, 1], [1, 1], [0, 0], [1, 0]]
    fit = Piecewise(prior=0.0).fit(graph, rows)
    _, _, tables = enumerate_exact(fit.graph)
    np.testing.assert_allclose(tables[0], [[0.4, 0.2], [0.2, 0.2]], atol=1e-12)


def test_what_never_occurs() -> None:
    graph = kk.FactorGraph([2, 2], [((0, 1), np.ones(4))])
    rows = [[0, 0], [1, 1]]
    assert Piecewise(prior=0.0).fit(graph, rows).graph.table(0)[0, 1] == 0.0
    kept = Piecewise(prior=1.0).fit(graph, rows).graph.table(0)
    assert kept[0, 1] == pytest.approx(0.25 / 3, rel=1e-9)
    zero = kk.FactorGraph([2, 2], [((0, 1), [[1, 0], [1, 1]])])
    assert Piecewise().fit(zero, rows).graph.table(0)[0, 1] == 0.0
