"""The amortised bound is a bound whatever the networks say, and near the optimised one (LIU-L8)."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.budget import Budget
from kikuchi.core.errors import BudgetError, KikuchiError, MethodError, ModelError
from kikuchi.learning.data import Data
from kikuchi.learning.learner import FitRun
from kikuchi.learning.likelihood.bound import HiddenRows, MeanFieldMinusTrw
from kikuchi.neural import AmortisedBound, BoundNetworks
from oracle import enumerate_exact, random_model

jax = pytest.importorskip("jax")


def clamped(graph: kk.FactorGraph, row: np.ndarray) -> float:
    """log of the weight of all completions, by enumeration."""
    reduced = graph.condition({v: int(x) for v, x in enumerate(row) if x >= 0}).graph
    return enumerate_exact(reduced)[0] if reduced.n_variables else reduced.log_constant


def machine(seed: int, scale: float = 1.0) -> kk.FactorGraph:
    """Four visible and three hidden units, the hidden ones coupled in a chain."""
    rng = np.random.default_rng(seed)
    pairs = {(i, 4 + j): scale * rng.normal() for i in range(4) for j in range(3)}
    pairs |= {(4, 5): scale * rng.normal(), (5, 6): scale * rng.normal()}
    return kk.boltzmann_graph(pairs, 0.3 * rng.normal(size=7))


def visible(graph: kk.FactorGraph, count: int, seed: int = 1) -> np.ndarray:
    rows = kk.plan(graph).calibrate().sample(count, seed=seed)
    rows[:, 4:] = -1
    return np.unique(rows, axis=0)


MODEL = machine(0)
ROWS = visible(MODEL, 30)
TABLES = np.array(MODEL.log_tables)


@pytest.fixture(scope="module")
def trained() -> BoundNetworks:
    networks = BoundNetworks(MODEL)
    networks.train(TABLES, ROWS, steps=1000, rate=0.01)
    return networks


@pytest.mark.parametrize("seed", range(6))
def test_both_sides_are_bounds_whatever_the_weights(seed: int) -> None:
    """Random weights, from small to absurd: below each row's log-weight, above log Z."""
    networks = BoundNetworks(MODEL)
    rng = np.random.default_rng(seed)
    scale = 10.0 ** (seed - 2)
    networks.networks = jax.tree.map(
        lambda w: scale * rng.standard_normal(w.shape), networks.networks
    )
    exact = np.array([clamped(MODEL, row) for row in ROWS])
    assert np.all(networks.row_bounds(TABLES, ROWS) <= exact + 1e-9)
    assert networks.upper(TABLES) >= enumerate_exact(MODEL)[0] - 1e-9


def test_larger_factors_and_more_states() -> None:
    seed = 0
    rng = np.random.default_rng(seed)
    graph = random_model(rng, 5, 7, 3, 3, scale=1.0)
    rows = kk.plan(graph).calibrate().sample(12, seed=seed)
    rows[rng.random(rows.shape) < 0.3] = -1
    networks = BoundNetworks(graph, seed=seed)
    before = networks.lower(graph.log_tables, rows)
    networks.train(graph.log_tables, rows, steps=200)
    exact = np.mean([clamped(graph, row) for row in rows]) - enumerate_exact(graph)[0]
    assert before < networks.lower(graph.log_tables, rows) <= exact + 1e-9


def test_trained_networks_are_near_the_optimised_bounds(trained: BoundNetworks) -> None:
    """Above: within 0.001 nats of the converged reweighted bound. Below: 0.05 of mean field's."""
    optimum = kk.infer(MODEL, "trw:tol=1e-12").log_z - MODEL.log_constant
    assert optimum - 1e-6 <= trained.upper(TABLES) < optimum + 1e-3
    data = Data.of(ROWS, MODEL).distinct()
    learner = MeanFieldMinusTrw()
    run = FitRun(learner, MODEL, (data.states, data.weights), None, None, None)
    below = HiddenRows(MODEL, data, run, learner).at(TABLES)[0]
    amortised = float(data.weights @ trained.row_bounds(TABLES, ROWS)) / data.total
    assert below - 0.05 < amortised < below + 0.05  # mean field itself may stop at another maximum
    assert amortised <= np.mean([clamped(MODEL, row) for row in ROWS])


def test_rows_and_tables_that_were_not_trained_on(trained: BoundNetworks) -> None:
    """The bounds hold there too, and the networks are better than before any training."""
    unseen = visible(MODEL, 400, seed=7)
    known = {tuple(row) for row in ROWS.tolist()}
    unseen = np.array([row for row in unseen.tolist() if tuple(row) not in known])
    assert len(unseen) >= 2
    exact = np.array([clamped(MODEL, row) for row in unseen])
    found = trained.row_bounds(TABLES, unseen)
    assert np.all(found <= exact + 1e-9)
    assert found.mean() > BoundNetworks(MODEL).row_bounds(TABLES, unseen).mean()
    other = machine(3, 0.7)
    assert trained.upper(other.log_tables) >= enumerate_exact(other)[0] - 1e-9


def test_models_of_one_structure_share_compilations(trained: BoundNetworks) -> None:
    before = trained.functions.train._cache_size()
    other = BoundNetworks(machine(9), seed=4)
    other.train(machine(9).log_tables, ROWS, steps=7)
    assert other.functions is trained.functions
    assert trained.functions.train._cache_size() == before


@pytest.fixture(scope="module")
def fit() -> kk.Fit:
    return AmortisedBound(l2=0.01, decay=0.02).fit(machine(5, 0.3), ROWS)


def test_learning_climbs_a_certified_bound(fit: kk.Fit) -> None:
    graph = fit.graph
    exact = np.mean([clamped(graph, row) for row in ROWS]) - enumerate_exact(graph)[0]
    assert fit.diagnostics["certified_lower"] <= exact + 1e-9
    assert fit.trace.lower[-1] == pytest.approx(fit.diagnostics["certified_lower"], abs=1e-9)
    assert fit.trace.lower[-1] > fit.trace.lower[0] + 0.05
    assert fit.log_likelihood == pytest.approx(exact, abs=1e-9)
    assert not fit.converged and fit.stopped == "iterations"


def test_the_amortised_fit_is_near_the_one_with_both_problems_solved(fit: kk.Fit) -> None:
    solved = MeanFieldMinusTrw(l2=0.01).fit(machine(5, 0.3), ROWS)
    assert fit.objective > solved.objective - 0.1
    assert fit.objective < solved.objective + 0.1


def test_what_is_refused() -> None:
    zero = kk.FactorGraph([2, 2], [((0, 1), [[1, 0], [1, 1]])])
    with pytest.raises(KikuchiError, match="without zeros"):
        AmortisedBound().fit(zero, [[0, -1], [1, -1]])
    with pytest.raises(KikuchiError, match="use learner em or gradient"):
        AmortisedBound().fit(kk.example("asia"), -np.ones((3, 8), dtype=int))
    with pytest.raises(BudgetError, match="mean field of"):
        AmortisedBound().fit(MODEL, ROWS, budget=Budget(bytes=2000))


def test_a_state_of_weight_zero_bounds_only_the_rows_that_meet_it() -> None:
    """Both were nan: nothing times minus infinity."""
    pair = kk.FactorGraph([2, 2], [((0, 1), [[1, 2], [3, 4]])])
    bounds = BoundNetworks(pair).row_bounds([-np.inf, 0.5, 0.0, 0.0], [[0, 0], [0, 1]])
    assert bounds.tolist() == [-np.inf, 0.5]


def test_no_training_spoils_the_networks() -> None:
    networks = BoundNetworks(MODEL)
    upper = networks.upper(TABLES)
    with pytest.raises(ModelError, match="tables without zeros"):
        networks.train(np.append(-np.inf, TABLES[1:]), ROWS, steps=3)
    with pytest.raises(KikuchiError, match=r"diverged.*smaller rate"):
        networks.train(TABLES, ROWS, steps=3, rate=1e308)
    assert networks.upper(TABLES) == upper


@pytest.mark.parametrize("options", [{"steps": -1}, {"steps": 2.5}, {"steps": 1, "rate": -1.0}])
def test_steps_and_rates_out_of_range_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(MethodError, match="steps must be a whole number and rate positive"):
        BoundNetworks(MODEL).train(TABLES, ROWS, **options)  # type: ignore[arg-type]


def test_tables_of_another_size_are_refused() -> None:
    networks = BoundNetworks(MODEL)
    for ask in (networks.row_bounds, lambda tables, rows: networks.train(tables, rows, steps=1)):
        with pytest.raises(ModelError, match="table entries, there are 3"):
            ask(np.zeros(3), ROWS)


def test_pickled_networks_answer_the_same(trained: BoundNetworks) -> None:
    again = pickle.loads(pickle.dumps(trained))
    np.testing.assert_array_equal(again.messages(TABLES), trained.messages(TABLES))
    assert again.lower(TABLES, ROWS) == trained.lower(TABLES, ROWS)


def test_seconds_end_a_turn_of_many_steps() -> None:
    fit = AmortisedBound(network_steps=30_000).fit(MODEL, ROWS, seconds=0.2)
    assert (fit.stopped, fit.iterations) == ("seconds", 0)


def test_a_turn_of_many_steps_is_that_of_one_training() -> None:
    """Looking at the clock in between changes nothing."""
    fit = AmortisedBound(network_steps=23, max_iter=1, noise=0.0).fit(MODEL, ROWS)
    networks = BoundNetworks(MODEL)
    networks.train(TABLES, ROWS, steps=23)
    assert fit.diagnostics["certified_lower"] == networks.lower(TABLES, ROWS)
