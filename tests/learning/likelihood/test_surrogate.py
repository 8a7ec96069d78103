"""Surrogate likelihoods: certified bound at every step, slopes, closed forms (LIU-L11)."""

from __future__ import annotations

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.budget import Budget
from kikuchi.engines.messages.tables import message_buffer
from kikuchi.learning.data import Data
from kikuchi.learning.evaluation import mean_log_score
from kikuchi.learning.likelihood.surrogate import Surrogate, WarmEnergy
from kikuchi.learning.local.piecewise import Piecewise, empirical_factors
from oracle import enumerate_exact, random_model


def _rows(graph: kk.FactorGraph, count: int, seed: int = 0) -> np.ndarray:
    return kk.plan(graph).calibrate().sample(count, seed=seed)


def _exact(graph: kk.FactorGraph, rows: np.ndarray) -> float:
    return mean_log_score(graph, Data.of(rows, graph)) - enumerate_exact(graph)[0]


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("inner", [1, 2000])
def test_trw_bounds_the_likelihood_wherever_it_stops(limit: int, inner: int) -> None:
    graph = kk.generate.complete(6, seed=1, coupling=1.5)
    rows = _rows(graph, 80)
    learner = Surrogate(start="graph", l2=0.01, max_iter=limit, inner_max_iter=inner)
    fit = learner.fit(graph.with_log_tables(np.zeros_like(graph.log_tables)), rows)
    exact = _exact(fit.graph, rows)
    assert fit.diagnostics["certified_lower"] <= exact + 1e-9
    assert fit.trace.lower[-1] <= exact + 1e-9
    if inner > 1:
        assert fit.diagnostics["certified_lower"] > exact - 1.5


@pytest.mark.parametrize("kind", ["trw", "bethe"])
def test_slopes_are_those_of_the_value(kind: str) -> None:
    rng = np.random.default_rng(0)
    graph = random_model(rng, 5, 7, 3, 3, scale=0.4)
    energy = WarmEnergy(
        graph, kind, Budget().start(), Surrogate(inner_tol=1e-13, inner_max_iter=5000)
    )
    tables = np.array(graph.log_tables)
    beliefs = energy.at(tables)[1]
    for k in range(0, tables.size, 3):
        up, down = tables.copy(), tables.copy()
        up[k] += 1e-4
        down[k] -= 1e-4
        slope = (energy.at(up)[0] - energy.at(down)[0]) / 2e-4
        assert beliefs[k] == pytest.approx(slope, abs=1e-6)


@pytest.mark.parametrize("kind", ["trw", "bethe"])
def test_the_maximum_has_the_moments_of_the_data(kind: str) -> None:
    graph = kk.grid(3, 3, seed=3, coupling=0.3, field=0.3)
    rows = _rows(graph, 500)
    closed = Surrogate(energy=kind).fit(graph, rows)
    climbed = Surrogate(energy=kind, start="graph").fit(graph, rows)
    assert closed.converged and climbed.converged
    assert climbed.objective == pytest.approx(closed.objective, abs=1e-6)
    method = "trw" if kind == "trw" else "bp"
    beliefs = kk.infer(climbed.graph, method)
    wanted = empirical_factors(graph, Data.of(rows, graph), 0.0)
    np.testing.assert_allclose(beliefs.flat_factors, wanted, atol=1e-5)


def test_exact_on_trees() -> None:
    tree = kk.generate.random_tree(6, seed=0)
    rows = _rows(tree, 300)
    fit = Surrogate(start="graph", tol=1e-7).fit(tree, rows)
    best = Piecewise(prior=0.0).fit(tree, rows)
    assert fit.objective == pytest.approx(fit.log_likelihood, abs=1e-8)
    assert fit.log_likelihood == pytest.approx(best.log_likelihood, abs=1e-7)


def test_zeros_single_states_and_loose_variables() -> None:
    factors = [((0, 1), [[1, 0], [1, 1]]), ((2, 1), np.ones(2)), ((0, 1), np.ones(4))]
    graph = kk.FactorGraph([2, 2, 1, 3], factors)
    rows = [[0, 0, 0, 1], [1, 1, 0, 2], [1, 0, 0, 0], [1, 1, 0, 1]]
    fit = Surrogate(l2=0.01).fit(graph, rows)
    assert fit.graph.table(0)[0, 1] == 0.0
    assert fit.diagnostics["certified_lower"] <= _exact(fit.graph, np.array(rows)) + 1e-9
    assert Surrogate().fit(kk.FactorGraph([2, 2], []), [[0, 1]]).objective == pytest.approx(
        -2 * np.log(2)
    )


@pytest.mark.parametrize("kind", ["trw", "bethe"])
def test_messages_of_single_states_stay_within_their_buffer(kind: str) -> None:
    """The partial sums of a table with many such variables are longer than the table; what is
    written beyond the buffer would be the memory of others.
    """
    cards = [2, 1, 1, 1, 1, 3]
    rng = np.random.default_rng(0)
    tables = [((0, 1, 2, 3, 4, 5), rng.random(6) + 0.5), ((5, 4, 3, 2, 1, 0), rng.random(6) + 0.5)]
    graph = kk.FactorGraph(cards, [*tables, ((0, 5), rng.random(6) + 0.5)])
    half = len(message_buffer(graph)) // 2
    for a in range(graph.n_factors):
        shape = graph.shape(a)
        forwards = sum(int(np.prod(shape[:k])) for k in range(len(shape)))
        backwards = sum(int(np.prod(shape[k:])) for k in range(1, len(shape) + 1))
        assert max(forwards, backwards) <= half
    fit = kk.learn(graph, [[0, 0, 0, 0, 0, 1], [1, 0, 0, 0, 0, 2]], f"surrogate:energy={kind},l2=1")
    assert np.isfinite(fit.graph.log_tables).all()


def test_messages_that_do_not_converge_are_told() -> None:
    graph = kk.generate.complete(8, seed=0, coupling=4.0)
    rows = np.random.default_rng(0).integers(0, 2, (40, 8))
    fit = Surrogate(energy="bethe", start="graph", max_iter=3, inner_max_iter=20).fit(graph, rows)
    assert fit.diagnostics["unconverged"] > 0
    assert any("did not converge" in warning for warning in fit.warnings)


def test_marginals_that_belief_propagation_cannot_believe() -> None:
    """Strong couplings: the Bethe surrogate ends at a kink and says so; TRW has none."""
    graph = kk.grid(6, 6, seed=3, coupling=1.5, field=0.1)
    rows = _rows(graph, 1000)
    blank = graph.with_log_tables(np.zeros_like(graph.log_tables))
    bethe = Surrogate(energy="bethe", inner_max_iter=300).fit(blank, rows, score=False)
    assert not bethe.converged and bethe.stopped == "diverged"
    assert any("no minimum of the Bethe free energy" in w for w in bethe.warnings)
    assert any("has a kink" in w for w in bethe.warnings)
    assert Surrogate(l2=0.01, tol=1e-4).fit(blank, rows, score=False).converged
