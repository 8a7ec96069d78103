"""Region-energy networks: what they minimise, against free tables and exact answers (LIU-C20)."""

from __future__ import annotations

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.engines.regions.engine import RegionBeliefs
from kikuchi.engines.regions.penalty import PenalisedEnergy
from kikuchi.graphs.regions.builders import region_graph
from kikuchi.neural.attention import NetworkDescent, _functions, padded_roots

jax = pytest.importorskip("jax")


def engine(graph: kk.FactorGraph, regions: str = "faces") -> RegionBeliefs:
    return RegionBeliefs(region_graph(graph, regions), kk.Budget())


def test_energy_of_exact_marginals_has_no_disagreement() -> None:
    """LIU-M10: roots that hold the marginals of one joint give descendants that agree."""
    graph = kk.grid(3, 3, seed=1, coupling=0.5)
    beliefs = engine(graph)
    energy = PenalisedEnergy(beliefs)
    exact = kk.infer(graph, "jt")
    scopes = [beliefs.regions.regions[r].variables for r in range(beliefs.regions.n_roots)]
    logits = np.concatenate([np.log(exact.joint(list(scope))).ravel() for scope in scopes])
    energy.weight = 0.0
    without = energy.value(logits)[0]
    energy.weight = 1000.0
    assert energy.value(logits)[0] == pytest.approx(without, abs=1e-9)
    assert beliefs.disagreement() < 1e-9


def test_network_gradient_is_that_of_the_energy() -> None:
    """One small step of Adam moves every weight against the sign of finite differences."""
    # LIU-M10
    graph = kk.grid(2, 3, seed=2)
    beliefs = engine(graph)
    energy = PenalisedEnergy(beliefs)
    regions = beliefs.regions
    scopes = [regions.regions[r].variables for r in range(regions.n_roots)]
    sizes = regions.sizes[: regions.n_roots].astype(np.int64)
    net = NetworkDescent(padded_roots(6, scopes, sizes), 8, 1e-5, seed=0)
    logits = net.logits()
    value, slope = energy.value(logits)
    along = net.step(slope) - logits
    moved = energy.value(logits + along)[0] - value
    assert moved < 0
    assert moved == pytest.approx(float(slope @ along), rel=0.05)


def test_network_and_free_tables_reach_the_same_minimum() -> None:
    # LIU-I14
    graph = kk.grid(3, 3, seed=4, coupling=0.7, field=0.3)
    network = kk.infer(graph, "renn:regions=faces,max_iter=400")
    free = kk.infer(graph, "renn:regions=faces,network=none,rate=0.05,max_iter=1000")
    assert network.log_z == pytest.approx(free.log_z, abs=0.03)
    np.testing.assert_allclose(network.flat_marginals, free.flat_marginals, atol=0.02)


def test_one_root_that_holds_everything_is_exact() -> None:
    """LIU-I14: with a single region the energy is the exact one."""
    # LIU-I15
    graph = kk.FactorGraph([2, 3, 2], [((0, 1, 2), np.arange(1.0, 13.0))])
    beliefs = kk.infer(graph, "bethe-net:max_iter=600,rate=0.01")
    exact = kk.infer(graph, "jt")
    assert beliefs.log_z == pytest.approx(exact.log_z, abs=1e-3)
    np.testing.assert_allclose(beliefs.flat_marginals, exact.flat_marginals, atol=0.01)


def test_a_small_penalty_overestimates_log_z() -> None:
    """LIU-I14: disagreement that costs little lets the energy fall below the constrained one."""
    graph = kk.grid(4, 4, seed=3, coupling=1.0, field=0.1)
    kikuchi = kk.infer(graph, "kikuchi:regions=faces")
    loose = kk.infer(graph, "renn:regions=faces,network=none,rate=0.05,penalty=1")
    assert loose.log_z > kikuchi.log_z
    assert loose.diagnostics["disagreement"] > 1e-3


def test_models_of_like_size_share_one_compilation() -> None:
    step = _functions().step
    kk.infer(kk.grid(3, 3, seed=0), "bethe-net:max_iter=3")
    before = step._cache_size()
    for rows, cols in ((2, 3), (3, 3), (2, 4), (3, 4)):
        kk.infer(kk.grid(rows, cols, seed=1), "renn:regions=bethe,max_iter=3")
    sizes = step._cache_size() - before
    assert sizes <= 2  # 32 roots, and 16


def test_budget_and_best_so_far() -> None:
    graph = kk.grid(3, 3, seed=0)
    short = kk.infer(graph, "bethe-net", budget=kk.Budget(iterations=5))
    assert short.iterations == 5 and not short.converged and short.warnings
    np.testing.assert_allclose(
        np.add.reduceat(short.flat_marginals, graph.state_offsets[:-1]), 1.0, atol=1e-9
    )


@pytest.mark.parametrize(
    "inner", ["renn:regions=faces,max_iter=80,rate=0.01", "renn:network=none,rate=0.1"]
)
def test_learning_with_the_network_inside(inner: str) -> None:
    """LIU-L4: the beliefs of the inner minimum in the gradient of the outer maximum."""
    truth = kk.grid(2, 3, seed=1, coupling=0.8)
    rows = kk.plan(truth).calibrate().sample(400, seed=0)
    flat = truth.with_log_tables(np.zeros(truth.log_tables.size))
    learner = kk.learning.GradientML(
        inference=inner, solver="adam", learning_rate=0.1, max_iter=20, on_divergence="continue"
    )
    fit = learner.fit(flat, rows)

    def loss(graph: kk.FactorGraph) -> float:
        scores = graph.log_score(rows).mean() - graph.log_constant
        return float(kk.infer(graph, "jt").log_z - graph.log_constant - scores)

    assert loss(fit.graph) < loss(truth) + 0.1 < loss(flat)
