"""`auto`: exact where it fits, otherwise an estimate between bounds."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.brackets import auto_exact, auto_search
from kikuchi.core.errors import BudgetError
from kikuchi.core.progress import silent
from kikuchi.engines.run import MethodRun
from oracle import enumerate_exact, random_model


@pytest.mark.parametrize("seed", range(10))
def test_small_models_are_exact(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_model(rng, zeros=0.2 if seed % 2 else 0.0, scale=2.0)
    log_z, singles, _ = enumerate_exact(graph)
    beliefs = kk.infer(graph)
    assert beliefs.method == "auto"
    assert beliefs.log_z == pytest.approx(log_z, abs=1e-10)
    np.testing.assert_allclose(beliefs.flat_marginals, np.concatenate(singles), atol=1e-12)
    assert beliefs.log_z_lower < beliefs.log_z < beliefs.log_z_upper < beliefs.log_z_lower + 1e-9


def test_it_says_what_it_chose_and_why() -> None:
    found = kk.infer(kk.grid(6, 6, seed=0)).diagnostics
    assert found["chosen"] == "jt"
    assert "exact inference fits (width" in found["why"]


@pytest.fixture(scope="module")
def grid() -> kk.FactorGraph:
    return kk.grid(14, 14, seed=2, coupling=1.0, field=0.1)


@pytest.fixture(scope="module")
def approximate(grid: kk.FactorGraph) -> kk.Beliefs:
    for method in ("mf", "tree-mf", "trw", "wmb:ibound=3", "bp", "kikuchi:regions=blocks:2x2"):
        kk.infer(kk.grid(4, 4), method)  # compiled loops are loaded before the clock runs
    return kk.infer(grid, "auto:exact=false", budget=kk.Budget(seconds=4))


def test_an_estimate_lies_between_bounds(grid: kk.FactorGraph, approximate: kk.Beliefs) -> None:
    exact = kk.infer(grid, "jt")
    low, high = approximate.log_z_lower, approximate.log_z_upper
    assert low is not None
    assert high is not None
    assert exact.log_z is not None
    assert low - 1e-9 <= exact.log_z <= high + 1e-9
    assert "not requested" in approximate.diagnostics["why"]
    assert approximate.diagnostics["chosen"] != "jt"


def test_the_estimate_beats_belief_propagation(
    grid: kk.FactorGraph, approximate: kk.Beliefs
) -> None:
    exact, plain = kk.infer(grid, "jt"), kk.infer(grid, "bp")
    ours = np.abs(approximate.flat_marginals - exact.flat_marginals).mean()
    theirs = np.abs(plain.flat_marginals - exact.flat_marginals).mean()
    assert ours < theirs


def test_the_trace_holds_the_bracket(approximate: kk.Beliefs) -> None:
    lower = np.array(approximate.trace.lower)
    upper = np.array(approximate.trace.upper)
    assert np.all(np.diff(lower[np.isfinite(lower)]) >= 0)
    assert np.all(np.diff(upper[np.isfinite(upper)]) <= 0)
    assert lower[-1] == approximate.log_z_lower


def test_exact_can_be_refused_and_the_bounds_then_meet_anyway() -> None:
    graph = kk.grid(4, 4, seed=1)
    beliefs = kk.infer(graph, "auto:exact=false", budget=kk.Budget(seconds=5))
    exact = kk.infer(graph, "jt")
    assert beliefs.diagnostics["chosen"] != "jt"
    assert beliefs.log_z == pytest.approx(exact.log_z, abs=1e-6)
    np.testing.assert_allclose(beliefs.flat_marginals, exact.flat_marginals, atol=1e-5)


def test_observed_marginals_are_met() -> None:
    graph = kk.grid(4, 4, seed=0)
    evidence = {3: [0.3, 0.7], 7: 1}
    beliefs = kk.infer(graph, evidence=evidence)
    assert beliefs.diagnostics["chosen"] == "is"
    np.testing.assert_allclose(beliefs[3], [0.3, 0.7], atol=1e-8)


def test_observed_marginals_are_met_where_exact_inference_does_not_fit() -> None:
    # Scaled belief propagation ends here after one iteration, 0.3 from its targets.
    graph = kk.grid(12, 12, coupling=1.0, field=0.1, seed=0)
    evidence = {v: [0.3, 0.7] for v in range(0, 144, 12)}
    beliefs = kk.infer(graph, evidence=evidence, budget=kk.Budget(seconds=3, bytes=400_000))
    assert beliefs.diagnostics["chosen"] == "ups:start=bp"
    assert beliefs.diagnostics["tried"] == ["loopy-is", "ups:start=bp"]
    for v in evidence:
        np.testing.assert_allclose(beliefs[v], [0.3, 0.7], atol=1e-8)


def test_exact_inference_is_tried_with_an_estimate_in_reserve(
    grid: kk.FactorGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_slow(*_: object, **__: object) -> None:
        raise BudgetError("the time is over")

    monkeypatch.setattr(kk.methods.JunctionTree, "solve_planned", too_slow)
    monkeypatch.setattr(auto_exact, "_SURE", 0.0)
    beliefs = kk.infer(grid, "auto", budget=kk.Budget(seconds=1))
    assert "would have taken too long" in beliefs.diagnostics["why"]
    assert beliefs.diagnostics["tried"][0] == "bp:tol=1e-07"


def test_factors_and_covariances_come_from_the_choice(approximate: kk.Beliefs) -> None:
    pair = next(
        a for a in range(approximate.graph.n_factors) if len(approximate.graph.scope(a)) == 2
    )
    assert approximate.factor(pair).sum() == pytest.approx(1.0)
    assert kk.infer(kk.grid(3, 3, seed=0)).covariance([0, 1]).shape == (4, 4)


def test_no_time_at_all_still_gives_an_answer() -> None:
    graph = kk.grid(30, 30, seed=0)
    beliefs = kk.infer(graph, "auto", budget=kk.Budget(seconds=0.3))
    assert "does not fit 4 GB" in beliefs.diagnostics["why"]
    assert np.all(np.isfinite(beliefs.flat_marginals))
    assert (
        beliefs.log_z_lower is None
        or beliefs.log_z_upper is None
        or (beliefs.log_z_lower <= beliefs.log_z_upper)
    )


@pytest.mark.parametrize("seed", range(5))
def test_few_states_are_enumerated_without_compiled_loops(seed: int) -> None:
    graph = random_model(np.random.default_rng(seed), n=6, zeros=0.2)
    log_z, singles, _ = enumerate_exact(graph)
    beliefs = kk.infer(graph)
    assert beliefs.diagnostics["chosen"] == "enumerate"
    assert beliefs.log_z_lower is not None
    assert beliefs.log_z_lower <= log_z <= beliefs.log_z_upper
    assert beliefs.log_z == pytest.approx(log_z, abs=1e-12)
    np.testing.assert_allclose(beliefs.flat_marginals, np.concatenate(singles), atol=1e-13)
    walked = kk.infer(graph, "jt")
    np.testing.assert_allclose(beliefs.flat_factors, walked.flat_factors, atol=1e-12)


def test_more_states_than_a_float_holds_are_no_overflow() -> None:
    graph = kk.grid(2, 600, coupling=0.3, seed=0)
    with np.errstate(over="raise"):
        assert kk.infer(graph).diagnostics["chosen"] == "jt"


def test_regions_are_not_made_without_time_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """To make the windows of a large grid takes longer than to propagate on it."""
    monkeypatch.setattr(auto_search, "region_graph", lambda *_, **__: pytest.fail("regions made"))
    beliefs = kk.infer(kk.grid(400, 400, seed=0), "auto", budget=kk.Budget(seconds=1.5))
    assert beliefs.log_z_lower < beliefs.log_z < beliefs.log_z_upper


def test_an_estimate_outside_the_bounds_is_taken_only_without_another() -> None:
    run = MethodRun(kk.Budget().start(), silent, kk.Trace(), 0.0)
    search = auto_search.Search(kk.grid(3, 3, seed=0), run)
    search.portfolio.bounds.lower, search.portfolio.bounds.upper = 1.0, 2.0
    outside, inside = (
        SimpleNamespace(converged=False, log_z=log_z, diagnostics={"residual": residual})
        for log_z, residual in ((0.5, 0.1), (1.5, 0.9))
    )
    search.estimates = [outside, inside]
    assert search.best is inside
    search.estimates = [outside]
    assert search.best is outside
