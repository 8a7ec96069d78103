"""Mean field minus TRW: certified below the exact log-likelihood wherever it stops (LIU-L8)."""

from __future__ import annotations

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.budget import Budget
from kikuchi.core.errors import BudgetError, MethodError
from kikuchi.learning.data import Data
from kikuchi.learning.learner import FitRun
from kikuchi.learning.likelihood.bound import HiddenRows, MeanFieldMinusTrw
from oracle import enumerate_exact, random_model


def _clamped(graph: kk.FactorGraph, row: np.ndarray) -> float:
    """log of the weight of all completions, by enumeration."""
    seen = {v: int(x) for v, x in enumerate(row) if x >= 0}
    reduced = graph.condition(seen).graph
    if reduced.n_variables == 0:
        return reduced.log_constant
    return enumerate_exact(reduced)[0]


def _log_likelihood(graph: kk.FactorGraph, rows: np.ndarray) -> float:
    return float(np.mean([_clamped(graph, row) for row in rows])) - enumerate_exact(graph)[0]


def _rbm(seed: int = 0, visible: int = 4, hidden: int = 2, scale: float = 1.0) -> kk.FactorGraph:
    rng = np.random.default_rng(seed)
    n = visible + hidden
    pairs = {(i, visible + j): scale * rng.normal() for i in range(visible) for j in range(hidden)}
    return kk.boltzmann_graph(pairs, 0.3 * rng.normal(size=n))


def _visible_rows(graph: kk.FactorGraph, hidden: int, count: int = 60) -> np.ndarray:
    rows = kk.plan(graph).calibrate().sample(count, seed=1)
    rows[:, -hidden:] = -1
    return rows


@pytest.mark.parametrize("limit", [1, 2, 4, 8, 30])
def test_the_bound_holds_wherever_it_stops(limit: int) -> None:
    # LIU-C20, LAW-I7
    rbm = _rbm(scale=2.0)
    rows = _visible_rows(rbm, 2)
    fit = MeanFieldMinusTrw(max_iter=limit).fit(_rbm(seed=5, scale=0.5), rows)
    exact = _log_likelihood(fit.graph, rows)
    assert fit.diagnostics["certified_lower"] <= exact + 1e-9
    assert fit.trace.lower[-1] <= exact + 1e-9
    assert fit.log_likelihood == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_the_bound_holds_for_any_tables_and_gaps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_model(rng, 5, 7, 3, 3, scale=1.0)
    rows = kk.plan(graph).calibrate().sample(20, seed=seed)
    rows[rng.random(rows.shape) < 0.3] = -1
    for inner in (1, 1000):
        fit = MeanFieldMinusTrw(max_iter=6, inner_max_iter=inner, l2=0.01).fit(graph, rows)
        assert fit.diagnostics["certified_lower"] <= _log_likelihood(fit.graph, rows) + 1e-9


def test_mean_field_is_exact_for_a_restricted_machine() -> None:
    """The gap is then that of the tree-reweighted bound alone."""
    # LIU-M11, LIU-C20
    rbm = _rbm()
    rows = _visible_rows(rbm, 2)
    data = Data.of(rows, rbm)
    run = FitRun(MeanFieldMinusTrw(), rbm, (data.states, data.weights), None, None, None)
    below, counts = HiddenRows(rbm, data, run, MeanFieldMinusTrw()).at(np.array(rbm.log_tables))
    assert below == pytest.approx(np.mean([_clamped(rbm, row) for row in rows]), abs=1e-9)
    from kikuchi.learning.likelihood.clamped import clamped_statistics

    exact = clamped_statistics(rbm, data)[1] / len(rows)
    np.testing.assert_allclose(counts, exact, atol=1e-7)


def test_the_objective_rises_and_its_slope_is_right() -> None:
    rbm = _rbm()
    rows = _visible_rows(rbm, 2)
    fit = MeanFieldMinusTrw(l2=0.01).fit(_rbm(seed=5, scale=0.3), rows)
    objective = np.array(fit.trace.objective)
    assert fit.converged and np.all(np.diff(objective) > -1e-9)
    before = _log_likelihood(_rbm(seed=5, scale=0.3), rows)
    assert fit.log_likelihood > before + 0.05


def test_flat_tables_are_left_by_noise() -> None:
    """On a star the tree-reweighted bound is exact, so that couplings pay; zeros are a saddle."""
    star = kk.boltzmann_graph({(0, 3): 3.0, (1, 3): 3.0, (2, 3): 3.0}, [-1.5, -1.5, -1.5, -4.5])
    rows = _visible_rows(star, 1, 300)
    flat = star.with_log_tables(np.zeros_like(star.log_tables))
    fit = MeanFieldMinusTrw(l2=0.001).fit(flat, rows)
    stuck = MeanFieldMinusTrw(l2=0.001, noise=0.0).fit(flat, rows)
    assert fit.log_likelihood > stuck.log_likelihood + 0.1
    assert fit.diagnostics["certified_lower"] == pytest.approx(fit.log_likelihood, abs=1e-6)


def test_refusals() -> None:
    zero = kk.FactorGraph([2, 2], [((0, 1), [[1, 0], [1, 1]])])
    with pytest.raises(MethodError, match="is hidden and factor 0 has zeros"):
        MeanFieldMinusTrw().fit(zero, [[0, -1], [1, -1]])
    with pytest.raises(MethodError, match="use learner em or gradient"):
        MeanFieldMinusTrw().fit(kk.example("asia"), -np.ones((3, 8), dtype=int))
    with pytest.raises(BudgetError, match="mean field of 2 distinct rows"):
        MeanFieldMinusTrw().fit(_rbm(), np.array([[0] * 6, [1] * 6]), budget=Budget(bytes=200))
