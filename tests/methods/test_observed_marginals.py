"""Observed marginals: every method against exact generalised inference on the joint table.

Rows TEH-M24, I12, I13, I14, I15, E8; tests T12, T13, T14, T17, T20 of the catalogue.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import kikuchi as kk
from kikuchi import Budget, FactorGraph
from kikuchi.cli.main import app
from kikuchi.core.errors import EvidenceError, MethodError
from kikuchi.engines.messages.local_consistency import consistent_marginals
from kikuchi.engines.messages.tables import TableMessages
from kikuchi.methods.plug_in import plug_in_scaling
from oracle import random_model

EXACT = ["is", "is:solver=scaling", "gis"]
BETHE = ["loopy-is", "is-bp", "gis-bp", "ups"]
ALL = [*EXACT, *BETHE, "ups-t"]

CHAIN = kk.boltzmann_graph({(0, 1): 1.0, (1, 2): -2.0}, [0.5, -0.3, 0.2])
CHAIN_TARGETS = {0: [0.3, 0.7], 2: [0.6, 0.4]}
CYCLE = kk.boltzmann_graph(
    {(0, 1): 2.0, (1, 2): -1.5, (2, 3): 1.0, (0, 3): 3.0}, [0.1, -0.4, 0.3, -1.0]
)


def joint(graph: FactorGraph) -> np.ndarray:
    cards = [int(c) for c in graph.cardinalities]
    log_p = np.full(cards, graph.log_constant)
    for a in range(graph.n_factors):
        scope = graph.scope(a)
        order = sorted(range(len(scope)), key=lambda k: scope[k])
        shape = [cards[v] if v in scope else 1 for v in range(len(cards))]
        log_p = log_p + np.transpose(graph.log_table(a), order).reshape(shape)
    return np.exp(log_p)


def margin(table: np.ndarray, v: int) -> np.ndarray:
    return table.sum(axis=tuple(u for u in range(table.ndim) if u != v))


def fitted(graph: FactorGraph, targets: dict[int, np.ndarray]) -> tuple[float, np.ndarray, float]:
    """log Z - KL and Q by iterative proportional fitting of the joint table; and its residual."""
    weights = joint(graph)
    q = weights / weights.sum()
    worst = 0.0
    for _ in range(4000):
        worst = 0.0
        for v, target in targets.items():
            now = margin(q, v)
            worst = max(worst, float(np.abs(now - target).max()))
            ratio = np.divide(target, now, out=np.zeros_like(now), where=now > 0)
            q = q * ratio.reshape([-1 if u == v else 1 for u in range(q.ndim)])
        if worst < 1e-14:
            break
    on = q > 0
    free_energy = float((q[on] * (np.log(q[on]) - np.log(weights[on]))).sum())
    return -free_energy, q, worst


def random_targets(
    rng: np.random.Generator, graph: FactorGraph, count: int
) -> dict[int, np.ndarray]:
    hidden = np.flatnonzero(graph.cardinalities > 1)
    chosen = rng.choice(hidden, size=min(count, len(hidden)), replace=False)
    return {int(v): rng.dirichlet(np.full(graph.cardinalities[v], 2.0)) for v in chosen}


def check_consistent(beliefs: kk.Beliefs, tol: float) -> None:
    for a in range(beliefs.graph.n_factors):
        table = beliefs.factor(a)
        for position, v in enumerate(beliefs.graph.scope(a)):
            np.testing.assert_allclose(margin(table, position), beliefs[v], atol=tol)


# ---------------------------------------------------------------------- golden values


@pytest.mark.parametrize("method", ALL)
def test_golden_chain(method: str) -> None:
    found = kk.infer(CHAIN, method, evidence=CHAIN_TARGETS)
    assert found.converged
    assert found[1][1] == pytest.approx(0.4305981691, abs=2e-9)
    assert found.log_z == pytest.approx(2.3600796816, abs=1e-9)
    pairs = {CHAIN.scope(a): found.factor(a).ravel() for a in range(CHAIN.n_factors)}
    first = [0.2193388122, 0.0806611878, 0.3500630187, 0.3499369813]
    second = [0.2377738040, 0.3316280270, 0.3622261960, 0.0683719730]
    np.testing.assert_allclose(pairs[0, 1], first, atol=2e-9)
    np.testing.assert_allclose(pairs[1, 2], second, atol=2e-9)
    tilts = found.diagnostics["tilts"]
    assert tilts[0][1] - tilts[0][0] == pytest.approx(-0.0325044303, abs=1e-8)
    assert tilts[2][1] - tilts[2][0] == pytest.approx(0.1326941219, abs=1e-8)


@pytest.mark.parametrize("method", EXACT)
def test_golden_kl(method: str) -> None:
    chain = kk.infer(CHAIN, method, evidence=CHAIN_TARGETS)
    assert chain.diagnostics["kl"] == pytest.approx(0.0022901460, abs=1e-9)
    cycle = kk.infer(CYCLE, method, evidence={0: [0.75, 0.25]})
    wanted = [0.25, 0.3499687871, 0.5683318599, 0.5315047205]
    np.testing.assert_allclose([m[1] for m in cycle.marginals], wanted, atol=1e-9)
    assert cycle.diagnostics["kl"] == pytest.approx(1.8173114725, abs=1e-9)


@pytest.mark.parametrize("method", [*BETHE, "ups-t"])
def test_golden_bethe_cycle(method: str) -> None:
    # TEH-T5
    found = kk.infer(CYCLE, method, evidence={0: [0.75, 0.25]})
    wanted = [0.25, 0.3514122461, 0.5663923281, 0.5263601618]
    np.testing.assert_allclose([m[1] for m in found.marginals], wanted, atol=2e-9)
    assert 4.8426189099 - found.log_z == pytest.approx(1.8007559768, abs=1e-8)
    observed = kk.infer(CYCLE, method, evidence={0: 1})
    wanted = [1.0, 0.6645551187, 0.5454133145, 0.9199452361]
    np.testing.assert_allclose([m[1] for m in observed.marginals], wanted, atol=1e-9)


# ---------------------------------------------------------------------- against the joint table


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("method", EXACT)
def test_exact_methods_are_exact(method: str, seed: int) -> None:
    # TEH-T13
    rng = np.random.default_rng(seed)
    graph = random_model(rng, n=6, n_factors=7, zeros=0.1 * (seed % 2))
    targets = random_targets(rng, graph, 3)
    log_z, q, worst = fitted(graph, targets)
    if worst > 1e-9:
        with pytest.raises(EvidenceError, match="contradict"):
            kk.infer(graph, method, evidence=targets)
        return
    options = ("," if ":" in method else ":") + "tol=1e-11,max_iter=100000"
    found = kk.infer(graph, method + options, evidence=targets)
    assert found.converged
    assert found.log_z == pytest.approx(log_z, abs=1e-8)
    assert found.log_z_lower is None and found.log_z < found.log_z_upper < found.log_z + 1e-10
    for v in range(graph.n_variables):
        np.testing.assert_allclose(found[v], margin(q, v), atol=1e-8)
    check_consistent(found, 1e-9)


def random_tree_model(seed: int) -> FactorGraph:
    """A forest of factors over two or three variables of two to four states."""
    rng = np.random.default_rng(seed)
    cards = rng.integers(2, 5, size=7)
    factors = [((v,), rng.random(cards[v]) + 0.1) for v in range(7)]
    waiting = list(range(1, 7))
    while waiting:
        new = [waiting.pop() for _ in range(min(len(waiting), int(rng.integers(1, 3))))]
        old = int(rng.choice([v for v in range(7) if v not in waiting and v not in new]))
        scope = [int(v) for v in rng.permutation([old, *new])]
        factors.append((scope, np.exp(1.5 * rng.normal(size=[cards[v] for v in scope]))))
    return FactorGraph(cards, factors)


@pytest.mark.parametrize("seed", range(8))
def test_every_method_is_exact_on_forests(seed: int) -> None:
    # TEH-T17
    rng = np.random.default_rng(100 + seed)
    graph = random_tree_model(seed)
    assert graph.is_forest
    targets = random_targets(rng, graph, 3)
    log_z, q, _ = fitted(graph, targets)
    for method in (*BETHE, "ups-t"):
        found = kk.infer(graph, method, evidence=targets)
        assert found.converged, method
        assert found.log_z == pytest.approx(log_z, abs=1e-8)
        for v in range(7):
            np.testing.assert_allclose(found[v], margin(q, v), atol=1e-8)
        for v, target in targets.items():
            np.testing.assert_allclose(found[v], target, atol=1e-8)
        check_consistent(found, 1e-8)


@pytest.mark.parametrize("method", [*BETHE, "is"])
def test_tilts_give_back_the_posterior(method: str) -> None:  # T14, Theorem 5.5.2
    # TEH-T14
    graph = random_tree_model(3)
    rng = np.random.default_rng(0)
    inner = int(np.argmax(np.bincount(graph.scopes)))
    targets = {inner: rng.dirichlet(np.ones(graph.cardinalities[inner]))}
    targets |= random_targets(rng, graph, 2)
    found = kk.infer(graph, method, evidence=targets)
    weights = joint(graph)
    for v, tilt in found.diagnostics["tilts"].items():
        weights = weights * np.exp(tilt).reshape([-1 if u == v else 1 for u in range(7)])
    q = weights / weights.sum()
    for v in range(7):
        np.testing.assert_allclose(found[v], margin(q, v), atol=1e-8)


@pytest.mark.parametrize("seed", range(6))
def test_bethe_methods_agree_on_graphs_with_cycles(seed: int) -> None:
    graph = kk.grid(4, 4, seed=seed, states=2 + seed % 2, coupling=0.6)
    rng = np.random.default_rng(seed)
    targets = random_targets(rng, graph, 5)
    first = kk.infer(graph, "ups:tol=1e-11", evidence=targets)
    assert first.converged
    for method in ("loopy-is:tol=1e-12", "is-bp:tol=1e-11", "gis-bp", "loopy-is:schedule=parallel"):
        found = kk.infer(graph, method, evidence=targets)
        assert found.converged, method
        np.testing.assert_allclose(found.flat_marginals, first.flat_marginals, atol=1e-8)
        np.testing.assert_allclose(found.flat_factors, first.flat_factors, atol=1e-8)
        assert found.log_z == pytest.approx(first.log_z, abs=1e-8)


# ---------------------------------------------------------------------- special cases


@pytest.mark.parametrize("method", ALL)
def test_delta_targets_are_conditioning(method: str) -> None:  # T12, Observation 5.4.1
    # TEH-T12
    graph = kk.generate.random_tree(8, seed=1, states=3)
    delta = kk.infer(graph, method, evidence={2: [0.0, 1.0, 0.0], 5: 2})
    states = kk.infer(graph, "jt", evidence={2: 1, 5: 2})
    np.testing.assert_allclose(delta.flat_marginals, states.flat_marginals, atol=1e-10)
    assert delta.log_z == pytest.approx(states.log_z, abs=1e-10)


@pytest.mark.parametrize("method", ALL)
def test_near_delta_targets_approach_conditioning(method: str) -> None:
    almost = [1e-13, 1.0 - 1e-13]
    found = kk.infer(CHAIN, method, evidence={0: almost, 2: [0.6, 0.4]})
    wanted = kk.infer(CHAIN, "is", evidence={0: 1, 2: [0.6, 0.4]})
    np.testing.assert_allclose(found.flat_marginals, wanted.flat_marginals, atol=1e-8)


@pytest.mark.parametrize("method", ALL)
def test_hard_evidence_beside_targets(method: str) -> None:
    graph = kk.generate.random_tree(7, seed=2)
    targets = {1: np.array([0.2, 0.8]), 6: np.array([0.55, 0.45])}
    reduced = graph.condition({3: 1})
    renumbered = {int(np.searchsorted(reduced.variables, v)): t for v, t in targets.items()}
    log_z, q, _ = fitted(reduced.graph, renumbered)
    found = kk.infer(graph, method, evidence={3: 1, **targets})
    assert found[3].tolist() == [0.0, 1.0]
    assert found.log_z == pytest.approx(log_z, abs=1e-8)
    assert set(found.diagnostics["tilts"]) == set(targets)
    for k, v in enumerate(reduced.variables):
        np.testing.assert_allclose(found[int(v)], margin(q, k), atol=1e-8)


@pytest.mark.parametrize("method", ALL)
def test_one_edge_is_matrix_scaling(method: str) -> None:  # T17: Sinkhorn
    # TEH-T17
    rng = np.random.default_rng(4)
    table = rng.random((3, 4)) + 0.05
    rows, cols = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(4))
    scaled = table.copy()
    for _ in range(2000):
        scaled *= (rows / scaled.sum(axis=1))[:, None]
        scaled *= cols / scaled.sum(axis=0)
    found = kk.infer(FactorGraph([3, 4], [((0, 1), table)]), method, evidence={0: rows, 1: cols})
    np.testing.assert_allclose(found.factor(0), scaled, atol=1e-8)


@pytest.mark.parametrize("method", ALL)
def test_targets_that_hold_already_change_nothing(method: str) -> None:
    graph = kk.generate.random_tree(6, seed=5, states=3)
    prior = kk.infer(graph, "jt")
    found = kk.infer(graph, method, evidence={0: prior[0], 4: prior[4]})
    assert found.log_z == pytest.approx(prior.log_z, abs=1e-9)
    np.testing.assert_allclose(found.flat_marginals, prior.flat_marginals, atol=1e-9)


@pytest.mark.parametrize("method", [m for m in ALL if m != "ups-t"])
def test_without_targets_it_is_ordinary_inference(method: str) -> None:
    graph = kk.grid(3, 3, seed=0, coupling=0.5)
    plain = kk.infer(graph, "jt" if method in EXACT else "bp:tol=1e-12")
    found = kk.infer(graph, method)
    assert found.converged
    np.testing.assert_allclose(found.flat_marginals, plain.flat_marginals, atol=1e-8)
    np.testing.assert_allclose(found.flat_factors, plain.flat_factors, atol=1e-8)
    assert found.log_z == pytest.approx(plain.log_z, abs=1e-9)


def test_independent_variables_take_their_targets() -> None:
    graph = FactorGraph([2, 2], [((0,), [1, 3])])
    for method in ALL:
        found = kk.infer(graph, method, evidence={1: [0.1, 0.9], 0: [0.5, 0.5]})
        np.testing.assert_allclose(found.flat_marginals, [0.5, 0.5, 0.1, 0.9], atol=1e-12)
        log_z, _, _ = fitted(graph, {0: np.array([0.5, 0.5]), 1: np.array([0.1, 0.9])})
        assert found.log_z == pytest.approx(log_z, abs=1e-10)


# ---------------------------------------------------------------------- duals


@pytest.mark.parametrize("method", EXACT)
@pytest.mark.parametrize("seed", range(3))
def test_dual_is_monotone(method: str, seed: int) -> None:  # T13
    # TEH-T13
    rng = np.random.default_rng(seed)
    graph = kk.grid(3, 3, seed=seed, states=3)
    found = kk.infer(graph, method, evidence=random_targets(rng, graph, 4))
    dual = -np.array(found.trace.objective)
    assert len(dual) > 5
    assert np.all(np.diff(dual) >= -1e-11)


def test_scaled_variable_matches_at_once() -> None:
    found = kk.infer(CHAIN, "is:solver=scaling,max_iter=2", evidence=CHAIN_TARGETS)
    assert not found.converged
    np.testing.assert_allclose(found[0], [0.3, 0.7], atol=1e-12)
    one = kk.infer(CHAIN, "gis", evidence={0: [0.3, 0.7]})
    assert one.iterations == 2  # with one target gis is is: exact after one scaling


def test_quasi_newton_is_exact_where_scaling_is_slow() -> None:
    """A lattice of weights N(0, 20^2): some hundred runs of the tree, scaling needs 10000."""
    rng = np.random.default_rng(3)
    edges = [(i, i + 1) for i in range(16) if i % 4 < 3] + [(i, i + 4) for i in range(12)]
    weights = {edge: float(rng.normal(0, 20)) for edge in edges}
    pulled = np.zeros(16)
    for (i, j), w in weights.items():
        pulled[[i, j]] -= w / 2
    graph = kk.boltzmann_graph(weights, pulled)
    high = dict(zip((0, 3, 6, 12, 15), rng.uniform(0.2, 0.8, 5), strict=True))
    targets = {v: [1 - p, p] for v, p in high.items()}
    found = kk.infer(graph, "is", evidence=targets)
    assert found.converged and found.diagnostics["runs"] < 400
    assert np.all(np.diff(found.trace.objective) <= 1e-9)
    for v, target in targets.items():
        np.testing.assert_allclose(found[v], target, atol=1e-8)
    # By Theorem 5.5.2 the answer is the model times the tilts: infer that exactly, by other means.
    tilted = [((v,), np.exp(tilt)) for v, tilt in found.diagnostics["tilts"].items()]
    factors = [(graph.scope(a), graph.table(a)) for a in range(graph.n_factors)]
    exact = kk.infer(FactorGraph([2] * 16, [*factors, *tilted]), "enumerate")
    np.testing.assert_allclose(found.flat_marginals, exact.flat_marginals, atol=1e-9)
    np.testing.assert_allclose(
        found.flat_factors, exact.flat_factors[: graph.log_tables.size], atol=1e-9
    )
    pull = sum(float(np.dot(targets[v], t)) for v, t in found.diagnostics["tilts"].items())
    plain = kk.infer(graph, "enumerate").log_z
    assert found.log_z == pytest.approx(exact.log_z - pull, abs=1e-8)
    assert found.diagnostics["kl"] == pytest.approx(plain - found.log_z, abs=1e-8)


@pytest.mark.parametrize("method", EXACT)
def test_kl_with_a_target_of_zero(method: str) -> None:
    graph = kk.generate.random_tree(6, seed=3, states=3)
    targets = {0: np.array([0.4, 0.0, 0.6]), 4: np.array([0.2, 0.3, 0.5])}
    log_z, _, _ = fitted(graph, targets)
    found = kk.infer(graph, method, evidence=targets)
    plain = kk.infer(graph, "jt").log_z
    assert found.diagnostics["kl"] == pytest.approx(plain - log_z, abs=1e-8)


# ---------------------------------------------------------------------- zeros and contradictions

EQUAL = FactorGraph([2, 2, 2], [((0, 1), np.eye(2)), ((1, 2), [[2, 1], [1, 2]])])


@pytest.mark.parametrize("method", ALL)
def test_contradicting_targets_are_refused_or_not_converged(method: str) -> None:
    targets = {0: [0.3, 0.7], 1: [0.4, 0.6]}
    try:
        found = kk.infer(EQUAL, method, evidence=targets, budget=Budget(iterations=3000))
    except EvidenceError as error:
        assert "contradict" in str(error)
    else:
        assert not found.converged and found.warnings
        assert np.isfinite(found.flat_marginals).all()
    if method in (*EXACT, "ups-t", "ups"):
        with pytest.raises(EvidenceError, match="contradict"):
            kk.infer(EQUAL, method, evidence=targets)


@pytest.mark.parametrize("method", ALL)
def test_target_on_an_impossible_state_is_refused(method: str) -> None:
    graph = FactorGraph([2, 3], [((0, 1), [[1, 0, 2], [3, 0, 1]])])
    with pytest.raises(EvidenceError, match="contradict"):
        kk.infer(graph, method, evidence={1: [0.5, 0.1, 0.4]})


@pytest.mark.parametrize("method", ALL)
def test_zeros_and_zero_targets_that_fit(method: str) -> None:
    graph = FactorGraph([3, 2, 2], [((0, 1), [[1, 0], [0, 2], [1, 1]]), ((1, 2), [[1, 2], [3, 1]])])
    targets = {0: np.array([0.4, 0.0, 0.6]), 2: np.array([0.3, 0.7])}
    log_z, q, worst = fitted(graph, targets)
    assert worst < 1e-12
    found = kk.infer(graph, method, evidence=targets)
    assert found.converged
    assert found.log_z == pytest.approx(log_z, abs=1e-8)
    np.testing.assert_allclose(found[1], margin(q, 1), atol=1e-8)


def test_linear_programme_agrees_with_feasibility() -> None:
    rng = np.random.default_rng(2)
    outcomes = set()
    for _ in range(40):
        graph = random_model(rng, n=5, n_factors=4, zeros=0.35)
        targets = random_targets(rng, graph, 2)
        marginals = consistent_marginals(graph, targets)
        if graph.is_forest:  # elsewhere local consistency is weaker
            feasible = fitted(graph, targets)[2] < 1e-9
            outcomes.add(feasible)
            assert (marginals is not None) == feasible
        if marginals is not None:
            for v, target in targets.items():
                lo = graph.state_offsets[v]
                np.testing.assert_allclose(marginals[lo : lo + len(target)], target, atol=1e-9)
    assert outcomes == {True, False}


@given(st.integers(0, 10**6))
def test_never_nan(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_model(rng, n=5, n_factors=6, zeros=float(rng.choice([0.0, 0.3])), scale=3.0)
    targets = random_targets(rng, graph, int(rng.integers(0, 4)))
    method = str(rng.choice(["loopy-is", "is-bp", "ups", "ups-t", "is"]))
    budget = Budget(seconds=0.5, iterations=200)
    try:
        found = kk.infer(graph, method, evidence=targets, budget=budget)
    except (EvidenceError, MethodError):
        return
    assert np.isfinite(found.flat_marginals).all() and np.isfinite(found.log_z)
    assert found.converged or found.warnings
    if found.converged:
        for v, target in targets.items():
            np.testing.assert_allclose(found[v], target, atol=1e-8)


# ---------------------------------------------------------------------- other marginals inside


def test_mean_field_inside_cycles_for_ever() -> None:  # T20, TEH-I13, TEH-E8
    # TEH-T20
    pair = kk.boltzmann_graph({(0, 1): 5.0}, [-2.5, -2.5])
    targets = {0: np.array([0.7, 0.3]), 1: np.array([0.7, 0.3])}
    path = plug_in_scaling(pair, targets, kk.methods.MeanField(restarts=0, tol=1e-12), sweeps=60)
    assert not path.converged and path.residuals[-12:].min() > 0.2
    biases = -2.5 + path.tilts[-6:][:, [1, 3]]
    np.testing.assert_allclose(np.unique(biases.round(2)), [-5.45, -2.42, -0.88])
    np.testing.assert_allclose(path.tilts[-6:], path.tilts[-12:-6], atol=1e-6)  # a cycle of six
    for method in (kk.methods.BeliefPropagation(tol=1e-13), kk.methods.Enumeration()):
        path = plug_in_scaling(pair, targets, method, sweeps=200, tol=1e-12)
        assert path.converged
        np.testing.assert_allclose(-2.5 + path.tilts[-1][[1, 3]], -2.9594661, atol=1e-6)


# ---------------------------------------------------------------------- options, budgets, commands


def test_damping_reaches_the_same_point_and_is_validated() -> None:
    graph = kk.grid(4, 4, seed=3, coupling=0.5)
    targets = {0: [0.2, 0.8], 10: [0.6, 0.4]}
    plain = kk.infer(graph, "loopy-is", evidence=targets)
    for options in (
        "damping=0.5",
        "damping=0.5,damping_kind=geometric",
        "damping_end=0.99,anneal=4000",
        "schedule=parallel,damping=0.3",
    ):
        found = kk.infer(graph, f"loopy-is:{options}", evidence=targets)
        assert found.converged
        np.testing.assert_allclose(found.flat_marginals, plain.flat_marginals, atol=1e-7)
    with pytest.raises(MethodError, match="damping"):
        kk.methods.parse_method("loopy-is:damping=1")
    with pytest.raises(MethodError, match="inner_tol"):
        kk.methods.parse_method("is-bp:inner_tol=0")


@pytest.mark.parametrize("method", ALL)
def test_budgets_and_traces(method: str) -> None:
    graph = kk.generate.random_tree(12, seed=0, states=3, coupling=2.0)
    rng = np.random.default_rng(0)
    targets = random_targets(rng, graph, 5)
    few = kk.infer(graph, method, evidence=targets, budget=Budget(iterations=1))
    assert few.iterations == 1 and len(few.trace) == 1
    if method != "ups":  # one iteration of ups is all of ups-t
        assert not few.converged and few.stopped == "iterations" and few.warnings
    found = kk.infer(graph, method, evidence=targets)
    assert found.trace.iterations[-1] == found.iterations


def test_inner_failure_is_said() -> None:
    graph = kk.grid(5, 5, seed=1, coupling=3.0, field=0.3)
    found = kk.infer(graph, "is-bp:inner_max_iter=200", evidence={0: [0.5, 0.5]})
    assert not found.converged and found.stopped == "diverged"
    assert "belief propagation did not converge" in found.warnings[0]
    loopy = kk.infer(graph, "loopy-is:max_iter=100", evidence={0: [0.5, 0.5]})
    assert not loopy.converged and "ups" in loopy.warnings[0]


def test_strong_factors_use_logarithms_and_agree() -> None:
    rng = np.random.default_rng(7)
    tree = kk.generate.random_tree(6, seed=7)
    steeper = 300.0 * rng.normal(size=tree.log_tables.size)
    steep = FactorGraph.from_arrays(tree.cardinalities, tree.scopes, tree.scope_offsets, steeper)
    exact = kk.infer(steep, "jt")
    for method in ("loopy-is", "is-bp", "ups", "ups-t"):
        found = kk.infer(steep, method)
        assert found.diagnostics["arithmetic"] == "logarithms"
        np.testing.assert_allclose(found.flat_marginals, exact.flat_marginals, atol=1e-8)


def test_command_line_reads_distributions(tmp_path) -> None:
    evidence = tmp_path / "evidence.json"
    evidence.write_text(json.dumps({"rain": [0.3, 0.7], "sprinkler": "no"}))
    for method in ("is", "ups", "loopy-is"):
        words = ["infer", "example:sprinkler", "--evidence", str(evidence), "-m", method]
        result = CliRunner().invoke(app, [*words, "--json", "-"])
        assert result.exit_code == 0, result.output
        answer = json.loads(result.stdout)
        graph = kk.example("sprinkler")
        rain = graph.index("rain")
        np.testing.assert_allclose(answer["marginals"][rain], [0.3, 0.7], atol=1e-8)
        observed = kk.read_evidence(evidence, graph)
        assert answer["log_z"] == pytest.approx(kk.infer(graph, method, evidence=observed).log_z)
    result = CliRunner().invoke(app, [*words[:-1], "jt"])
    assert result.exit_code == 2


def test_many_tilts_are_refreshed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    refresh = TableMessages.refresh

    def counted(self: TableMessages) -> None:
        calls.append(1)
        refresh(self)

    monkeypatch.setattr(TableMessages, "refresh", counted)
    evidence = {v: [0.4, 0.6] for v in range(50)}
    found = kk.infer(kk.grid(10, 10, seed=0), "gis-bp:max_iter=3", evidence=evidence)
    assert len(calls) <= found.iterations + 2
