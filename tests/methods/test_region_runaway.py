"""The double loop where a short inner loop fails, and numbers beyond what tables can hold."""

from __future__ import annotations

import numpy as np
import pytest

from kikuchi import Budget, grid, infer, read
from kikuchi.core.errors import BudgetError
from kikuchi.engines.regions.double_loop import DoubleLoop
from kikuchi.engines.regions.engine import RegionBeliefs
from kikuchi.generate import random_graph
from kikuchi.graphs.regions.builders import region_graph
from kikuchi.methods.kikuchi import Kikuchi


def test_a_run_that_runs_away_goes_back(shared) -> None:
    """One inner sweep a step runs away here: the free energy rose by 424 and came to rest there."""
    model = read(shared / "reference" / "uai2014" / "Alchemy_11.uai")
    exact = infer(model, "jt")
    found = infer(model, "kikuchi:regions=junction:4,tol=1e-6")
    assert found.converged
    assert found.log_z == pytest.approx(exact.log_z, abs=0.05)
    assert np.abs(found.flat_marginals - exact.flat_marginals).max() < 0.01
    fixed_point = infer(model, "gbp:regions=junction:4")
    assert found.log_z == pytest.approx(fixed_point.log_z, abs=1e-4)


def test_one_inner_sweep_alone_would_run_away(shared) -> None:
    """What the run above is saved from."""
    model = read(shared / "reference" / "uai2014" / "Alchemy_11.uai")
    beliefs = RegionBeliefs(region_graph(model, "junction:4"), Budget())
    loop = DoubleLoop(beliefs)
    for step in range(120):
        if step:
            loop.outer_step()
        loop.inner_sweep()
    assert beliefs.collapsed() and beliefs.disagreement() > 0.9


def test_a_state_can_be_taken_up_again() -> None:
    beliefs = RegionBeliefs(region_graph(grid(4, 4), "faces"), Budget())
    loop = DoubleLoop(beliefs)
    loop.inner_sweep()
    kept, beliefs_in_place = loop.now.copy(), beliefs.b
    energy = beliefs.free_energy()
    loop.outer_step()
    loop.inner_sweep()
    assert beliefs.free_energy() != energy
    loop.now.assign(kept)
    assert beliefs.free_energy() == energy
    assert beliefs.b is beliefs_in_place and loop.now.b is beliefs.b


@pytest.mark.parametrize("seed", range(6))
def test_junction_graphs_of_strongly_coupled_models(seed: int) -> None:
    """It comes to rest, and not above where an inner loop that is run out comes to rest.

    A free energy may have several minima; both ways find good ones.
    """
    model = random_graph(16, 0.35, seed=seed, coupling=1.5, field=0.3)
    for text in ("junction:4", "ijgp:4", "hubs:2"):
        found = Kikuchi(regions=text, tol=1e-7).run(model, budget=Budget(seconds=10))
        assert found.converged
        assert found.diagnostics["disagreement"] < 1e-5
        strict = Kikuchi(regions=text, tol=1e-7, inner=200).run(model)
        assert found.log_z > strict.log_z - 0.5


def test_weights_beyond_the_numbers() -> None:
    """Tables that span more than 460 nats are truncated, with a warning if that matters."""
    harmless = grid(4, 4, coupling=300.0, seed=1)
    exact, found = infer(harmless, "jt"), infer(harmless, "kikuchi:regions=faces")
    assert found.converged and found.log_z == pytest.approx(exact.log_z, abs=1e-6)
    wrong = infer(grid(6, 6, coupling=1000.0, seed=1), "kikuchi:regions=faces")
    assert not wrong.converged and wrong.stopped == "diverged"
    assert "depends on truncated values" in wrong.warnings[0]
    assert np.isfinite(wrong.flat_marginals).all()


def test_memory_of_the_messages_is_asked_for() -> None:
    regions = region_graph(grid(12, 12), "blocks:3x3")
    beliefs = RegionBeliefs(regions, Budget())
    beliefs.budget = Budget(bytes=1000)
    with pytest.raises(BudgetError, match="messages between"):
        DoubleLoop(beliefs)


def test_advice_of_the_method_itself() -> None:
    stopped = infer(grid(6, 6, field=0.1), "kikuchi:regions=faces,max_iter=3")
    assert not stopped.converged and "smaller regions" in stopped.warnings[0]
    diverged = infer(grid(6, 6, field=0.1), "gbp:regions=faces,max_iter=3")
    assert "kikuchi" in diverged.warnings[0]
