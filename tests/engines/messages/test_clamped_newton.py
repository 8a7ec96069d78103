"""Newton's method under UPS: steps on trees, the Hessian in the clamped marginals, tree metrics.

Rows TEH-I16, TEH-I17.
"""

from __future__ import annotations

import numpy as np
import pytest

import kikuchi as kk
from kikuchi import Budget, FactorGraph
from kikuchi.core.lbfgs import Memory
from kikuchi.engines.messages import clamped_directions
from kikuchi.engines.messages.clamped_messages import ClampedMessages
from kikuchi.engines.messages.kernels import bp_messages
from kikuchi.engines.messages.tree_metric import TreeMetric
from kikuchi.engines.messages.update_order import UpdateOrder, Walks, make_update_order
from kikuchi.graphs.cutsets import greedy_cutsets
from oracle import random_model


def solved(
    graph: FactorGraph, held: np.ndarray, marginals: np.ndarray
) -> tuple[ClampedMessages, Walks]:
    """All trees solved by Newton's method from the first walk on."""
    schedule = schedule_of(graph, held)
    messages = ClampedMessages(graph, bp_messages.LOG_SUM)
    messages.clamp(held, marginals)
    messages.collect(schedule)
    progress = Walks.begin(schedule)
    messages.newton(schedule, progress, 200, 1e-13)
    messages.distribute(schedule)
    return messages, progress


def schedule_of(graph: FactorGraph, held: np.ndarray) -> UpdateOrder:
    schedule = make_update_order(graph, held)
    assert schedule is not None
    return schedule


def some_marginals(rng: np.random.Generator, graph: FactorGraph) -> np.ndarray:
    return np.concatenate([rng.dirichlet(np.full(c, 2.0)) for c in graph.cardinalities])


@pytest.mark.parametrize("scale", [1.0, 10.0, 40.0])
@pytest.mark.parametrize("seed", range(4))
def test_newton_meets_the_pins_where_walks_do_not(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    graph = random_model(rng, n=8, n_factors=11, scale=scale)
    held = greedy_cutsets(graph)[0] | (rng.random(8) < 0.3)
    if not held.any():
        pytest.skip("a forest")
    messages, progress = solved(graph, held, some_marginals(rng, graph))
    assert progress.worst <= 1e-12
    tables = np.split(messages.factor_marginals(), graph.table_offsets[1:-1])
    beliefs = np.split(messages.marginals(), graph.state_offsets[1:-1])
    for a, table in enumerate(tables):
        joint = table.reshape(graph.shape(a))
        for k, v in enumerate(graph.scope(a)):
            margin = joint.sum(axis=tuple(u for u in range(joint.ndim) if u != k))
            np.testing.assert_allclose(margin, beliefs[v], atol=1e-11)


def test_strong_chain_takes_few_steps() -> None:
    """Scaling needs tens of thousands of walks here."""
    chain = kk.ising({(v, v + 1): 8.0 for v in range(11)}, np.linspace(-0.3, 0.3, 12))
    targets = {0: [0.5, 0.5], 5: [0.501, 0.499], 11: [0.45, 0.55]}
    found = kk.infer(chain, "ups", evidence=targets)
    assert found.converged and found.diagnostics["walks"] < 500
    slow = kk.infer(chain, "ups-t:max_iter=900", evidence=targets)
    assert not slow.converged
    exact = kk.infer(chain, "is:tol=1e-11", evidence=targets)
    np.testing.assert_allclose(found.flat_marginals, exact.flat_marginals, atol=1e-9)
    assert found.log_z == pytest.approx(exact.log_z, abs=1e-9)
    whole = kk.infer(chain, "ups-t", evidence=targets)
    assert whole.converged
    assert np.all(np.diff(whole.trace.objective) <= 1e-9)
    np.testing.assert_allclose(whole.flat_marginals, exact.flat_marginals, atol=1e-9)


@pytest.mark.parametrize("seed", [1, 6, 8])
def test_gradient_and_hessian_against_differences(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_model(rng, n=8, n_factors=12, scale=0.7)
    held = greedy_cutsets(graph)[0]
    schedule, marginals, free = (
        schedule_of(graph, held),
        some_marginals(rng, graph),
        np.zeros(8, dtype=bool),
    )
    messages, _ = solved(graph, held, marginals)
    states = np.flatnonzero(np.repeat(held, graph.cardinalities))
    changes = messages._towards(states)

    def gradient(at: np.ndarray) -> np.ndarray:
        return changes @ solved(graph, held, at)[0].gradient(free)

    def energy(at: np.ndarray) -> float:
        found, _ = solved(graph, held, at)
        return -found.log_z(found.marginals())

    h = 1e-5
    ends = [(marginals + h * change, marginals - h * change) for change in changes]
    slopes = [(energy(up) - energy(down)) / (2 * h) for up, down in ends]
    np.testing.assert_allclose(gradient(marginals), slopes, atol=1e-7)
    rows = [(gradient(up) - gradient(down)) / (2 * h) for up, down in ends]
    np.testing.assert_allclose(messages.curvature(schedule, held), rows, atol=1e-5)


def test_metric_is_the_covariance_of_a_tree() -> None:
    graph = kk.generate.random_tree(6, seed=1, states=3)
    exact = kk.infer(graph, "enumerate")
    metric = TreeMetric(graph)
    metric.update(exact.flat_factors, exact.flat_marginals)
    found = np.stack([metric(unit) for unit in np.eye(18)])
    log_p = np.zeros([3] * 6)
    for a in range(graph.n_factors):
        scope = graph.scope(a)
        table = np.transpose(graph.log_table(a), np.argsort(scope))
        log_p = log_p + table.reshape([3 if v in scope else 1 for v in range(6)])
    p = np.exp(log_p - log_p.max()).ravel()
    p /= p.sum()
    states = np.array(list(np.ndindex(*log_p.shape)))
    bits = (states[:, :, None] == np.arange(3)).reshape(len(states), 18).astype(float)
    mean = p @ bits
    wanted = (bits * p[:, None]).T @ bits - np.outer(mean, mean)
    np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_memory_finds_the_minimum_of_a_quadratic() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(6, 6))
    hessian, best = root @ root.T + 0.1 * np.eye(6), rng.normal(size=6)
    memory, x = Memory(), np.zeros(6)
    for _ in range(40):
        gradient = hessian @ (x - best)
        step = memory.direction(gradient, lambda v: v, 0.1)
        step *= -(gradient @ step) / (step @ hessian @ step)
        memory.add(step, hessian @ step)
        x = x + step
        if np.abs(x - best).max() < 1e-12:
            break
    np.testing.assert_allclose(x, best, atol=1e-8)


def test_large_sets_go_by_quasi_newton_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = kk.grid(7, 7, seed=1, coupling=1.5, field=0.3)
    small = kk.infer(graph, "ups", budget=Budget(seconds=20))
    monkeypatch.setattr(clamped_directions, "NEWTON_STATES", 0)
    monkeypatch.setattr("kikuchi.engines.messages.clamped_descent.NEWTON_STATES", 0)
    large = kk.infer(graph, "ups", budget=Budget(seconds=20))
    plain = kk.infer(graph, "ups:accelerate=false", budget=Budget(iterations=large.iterations))
    for found in (small, large, plain):
        assert np.all(np.diff(found.trace.objective) >= -1e-9)
    assert small.converged and large.converged and not plain.converged
    assert small.log_z == pytest.approx(large.log_z, abs=1e-7)
    assert plain.log_z < large.log_z


def test_looks_at_the_clock_change_no_step() -> None:
    """Newton's steps in parts, with the refreshing that begins each, are the same steps."""
    rng = np.random.default_rng(3)
    graph = random_model(rng)
    held = greedy_cutsets(graph)[0]
    marginals = np.concatenate([rng.dirichlet(np.ones(int(c))) for c in graph.cardinalities])
    answers = []
    for clock in (Budget().start(), Budget(seconds=1000).start()):
        schedule = schedule_of(graph, held)
        messages = ClampedMessages(graph, bp_messages.LOG_SUM, clock)
        messages.clamp(held, marginals)
        messages.collect(schedule)
        messages.newton(schedule, Walks.begin(schedule), 40, 1e-13)
        answers.append(messages.m.copy())
    assert np.array_equal(*answers)
