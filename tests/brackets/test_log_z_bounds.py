"""Bounds on log Z that close in time."""

from __future__ import annotations

import math

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.brackets.log_z_bounds import LogZBounds, Portfolio, bound_schedule, bounds
from kikuchi.core.errors import MethodError
from kikuchi.engines.run import MethodRun, Solution
from oracle import enumerate_exact, random_model


@pytest.mark.parametrize("seed", range(12))
def test_bounds_hold_on_mixed_models_with_zeros_and_strong_tables(seed: int) -> None:
    rng = np.random.default_rng(seed)
    zeros, scale = (0.0, 1.0) if seed % 3 else (0.3, 4.0)
    graph = random_model(rng, n=8, n_factors=11, zeros=zeros, scale=scale)
    exact = enumerate_exact(graph)[0]
    found = bounds(graph, ibound=2, budget=kk.Budget(seconds=0.5))
    slack = 1e-9 * max(1.0, abs(exact))
    for step in found.history:
        assert step.lower <= exact + slack
        assert step.upper >= exact - slack
    assert math.isfinite(found.lower)
    assert math.isfinite(found.upper)


def test_bounds_only_ever_tighten_and_meet_at_full_width() -> None:
    graph = kk.grid(5, 5, seed=3)
    found = bounds(graph, budget=kk.Budget(seconds=5))
    lower = [step.lower for step in found.history]
    upper = [step.upper for step in found.history]
    assert lower == sorted(lower)
    assert upper == sorted(upper, reverse=True)
    assert found.closed
    assert found.lower == pytest.approx(kk.infer(graph, "jt").log_z, abs=1e-7)


def test_bounds_given_evidence_are_those_of_the_reduced_model() -> None:
    graph = kk.grid(4, 4, seed=0)
    evidence = {0: 1, 5: 0}
    exact = kk.infer(graph, "jt", evidence=evidence).log_z
    found = bounds(graph, evidence=evidence, ibound=1, budget=kk.Budget(seconds=0.5))
    assert exact is not None
    assert found.lower <= exact <= found.upper


def test_the_reference_grid_is_bracketed_with_small_tables(shared) -> None:
    graph = kk.read(shared / "reference" / "grids" / "g10.uai")
    found = bounds(graph, ibound=7, budget=kk.Budget(seconds=4))
    assert found.lower <= 165.647464292 + 1e-9
    assert found.upper >= 165.647464292 - 1e-9
    assert found.gap <= 0.2
    heights = [int(m.partition("ibound=")[2].split(",")[0]) for m in _methods(found) if "wmb" in m]
    assert max(heights) <= 7


def test_an_i_bound_below_the_largest_factor_is_refused() -> None:
    graph = kk.FactorGraph([2, 2, 2, 2], [((0, 1, 2, 3), np.ones(16))])
    with pytest.raises(MethodError, match="use at least 3"):
        bounds(graph, ibound=2, budget=kk.Budget(seconds=0.5))


def test_a_method_that_cannot_take_the_model_is_left_out_with_its_reason() -> None:
    portfolio = Portfolio(kk.grid(2, 2, seed=0, states=3), *_clock())
    assert portfolio.attempt(kk.methods.parse_method("tap")) is None
    assert "binary" in portfolio.bounds.skipped["tap"]


def test_time_is_kept() -> None:
    graph = kk.grid(40, 40, seed=0)
    bounds(graph, ibound=1, budget=kk.Budget(seconds=0.2))  # loads the loops
    clock = kk.Budget().start()
    bounds(graph, budget=kk.Budget(seconds=1.0))
    assert clock.seconds < 10.0


def test_bounds_are_plain_data() -> None:
    found = LogZBounds()
    assert found.gap == math.inf
    assert found.to_dict()["lower"] is None
    found.update(kk.infer(kk.grid(3, 3, seed=0), "mf"))
    data = found.to_dict()
    assert data["lower_method"] == "mf"
    assert data["upper"] is None
    assert found.plot().axes[0].get_ylabel() == "log Z (nats)"


def test_the_schedule_rises() -> None:
    portfolio = Portfolio(kk.grid(8, 8, seed=0), *_clock())
    texts = [method.text for method, _ in bound_schedule(portfolio)]
    heights = [int(t.partition("ibound=")[2].split(",")[0]) for t in texts if t.startswith("wmb")]
    assert texts[0] == "mf"
    assert heights == sorted(set(heights))


def _clock() -> tuple[object, object, float]:
    return kk.Budget(seconds=20).start(), lambda *_, **__: None, 20.0


def _methods(found: LogZBounds) -> list[str]:
    return [step.method for step in found.history]


def test_crossed_bounds_are_refused_and_say_who_proved_them() -> None:
    found = LogZBounds()
    found._improve(1.0, 2.0, 0.1, "mf")
    with pytest.raises(kk.KikuchiError, match=r"at least 3\.0 by wmb, at most 2\.0 by mf"):
        found._improve(3.0, 4.0, 0.2, "wmb")


def test_a_method_with_crossed_bounds_gives_no_answer() -> None:
    class Crossed(kk.methods.MeanField):
        def _solve(self, graph: kk.FactorGraph, run: MethodRun) -> Solution:
            solution = super()._solve(graph, run)
            solution.log_z_upper = solution.log_z_lower - 1e-6
            return solution

    with pytest.raises(kk.KikuchiError, match="cross"):
        Crossed().run(kk.grid(2, 2, seed=0))
