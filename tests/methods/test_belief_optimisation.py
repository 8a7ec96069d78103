"""Belief optimisation against belief propagation, finite differences and the direct formulas.

Rows TEH-I9, WH-I4; test T10 of the catalogue.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime, brentq

import kikuchi as kk
from kikuchi import Budget, FactorGraph
from kikuchi.core.errors import MethodError
from kikuchi.engines.messages.kernels.belief_optimisation import cells, value_and_gradient
from kikuchi.engines.run import MethodRun
from kikuchi.graphs.binary import boltzmann_parameters
from kikuchi.methods import BeliefOptimisation
from kikuchi.methods.belief_optimisation import _Energy
from oracle import enumerate_exact


def random_machine(
    seed: int, n: int = 6, scale: float = 1.0, p: float = 0.6
) -> tuple[FactorGraph, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    weights = np.triu(rng.normal(0, scale, (n, n)) * (rng.random((n, n)) < p), 1)
    weights += weights.T
    biases = rng.normal(-0.5 * weights.sum(axis=1), 0.5)
    return kk.boltzmann_graph(weights, biases), weights, biases


def bethe(q: np.ndarray, weights: np.ndarray, biases: np.ndarray) -> float:
    """F^be of WH-I4 as printed, with the pair belief found by root finding."""
    value = -float(biases @ q)
    degree = (weights != 0).sum(axis=1)
    for i, x in enumerate(q):
        value += (1 - degree[i]) * (x * np.log(x) + (1 - x) * np.log(1 - x))
    for i, j in zip(*np.nonzero(np.triu(weights)), strict=True):
        low, high = max(0.0, q[i] + q[j] - 1), min(q[i], q[j])

        def odds(xi: float, i: int = i, j: int = j) -> float:
            table = np.log([xi, 1 + xi - q[i] - q[j], q[i] - xi, q[j] - xi])
            return float(table[0] + table[1] - table[2] - table[3] - weights[i, j])

        width = high - low
        xi = brentq(odds, low + 1e-13 * width, high - 1e-13 * width, xtol=1e-15, rtol=1e-14)
        table = np.array([xi, q[i] - xi, q[j] - xi, 1 + xi - q[i] - q[j]])
        value += float((table * np.log(table)).sum()) - weights[i, j] * xi
    return value


def energy_of(graph: FactorGraph, targets: dict[int, np.ndarray] | None = None) -> _Energy:
    run = MethodRun.__new__(MethodRun)
    run.targets = targets or {}
    bits = boltzmann_parameters(graph)
    assert bits is not None
    return _Energy(bits, graph, run)


@pytest.mark.parametrize("seed", range(5))
def test_value_is_the_formula_and_gradient_its_derivative(seed: int) -> None:
    # WH-T4
    graph, weights, biases = random_machine(seed, scale=2.0)
    energy = energy_of(graph)
    logits = np.random.default_rng(seed).normal(0, 1.5, 6)
    value, gradient = energy.at(logits)
    assert value == pytest.approx(bethe(1 / (1 + np.exp(-logits)), weights, biases), abs=1e-8)
    numeric = approx_fprime(logits, lambda x: energy.at(x)[0], 1e-6)
    np.testing.assert_allclose(gradient, numeric, atol=1e-4)
    # the Hessian, scaled as it is, by differences of dF/dq
    energy.at(logits)
    q = energy.singles[0].copy()
    scaled = energy.hessian().toarray()
    root = np.sqrt(q * (1 - q))
    for j in range(6):
        step = np.zeros(6)
        step[j] = 1e-5
        energy.at(logits + step)
        high = energy.gradient_q.copy()
        energy.at(logits - step)
        slope = (high - energy.gradient_q) / 2e-5  # d/dtheta_j = q (1 - q) d/dq_j
        np.testing.assert_allclose(scaled[:, j], slope / root[j] ** 2 * root * root[j], atol=1e-5)


@pytest.mark.parametrize("weight", [0.0, 1e-9, 0.3, 5.0, 40.0, 300.0, 1300.0])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("logits", [(0.0, 0.0), (3.0, -2.0), (30.0, 29.0), (-40.0, 2.0)])
def test_pair_belief_has_its_margins_and_odds(
    weight: float, sign: float, logits: tuple[float, float]
) -> None:
    singles = []
    for t in logits:
        q, p = 1 / (1 + np.exp(-t)), 1 / (1 + np.exp(t))
        singles.append((q, p, -np.logaddexp(0, -t), -np.logaddexp(0, t)))
    b00, b01, b10, b11, *logs = cells(sign * weight, *singles)
    (qi, pi, _, _), (qj, pj, _, _) = singles
    for got, wanted in ((b10 + b11, qi), (b00 + b01, pi), (b01 + b11, qj), (b00 + b10, pj)):
        assert got == pytest.approx(wanted, rel=1e-12)
    odds = logs[0] + logs[3] - logs[1] - logs[2]
    assert odds == pytest.approx(sign * weight, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_bp_and_ups_at_weak_coupling(seed: int) -> None:  # T10
    # TEH-T10
    graph, _, _ = random_machine(seed, n=8, scale=0.8)
    found = kk.infer(graph, "bo")
    assert found.converged
    for text in ("bp:tol=1e-12", "ups:tol=1e-11"):
        other = kk.infer(graph, text)
        assert other.converged
        np.testing.assert_allclose(found.flat_marginals, other.flat_marginals, atol=1e-8)
        np.testing.assert_allclose(found.flat_factors, other.flat_factors, atol=1e-8)
        assert found.log_z == pytest.approx(other.log_z, abs=1e-9)


def test_golden_cycles() -> None:
    weights = {(0, 1): 2.0, (1, 2): -1.5, (2, 3): 1.0, (0, 3): 3.0}
    cycle = kk.boltzmann_graph(weights, [0.1, -0.4, 0.3, -1.0])
    found = kk.infer(cycle, "bo")
    wanted = [0.9541356350, 0.6456501152, 0.5463677573, 0.8950052559]
    np.testing.assert_allclose([m[1] for m in found.marginals], wanted, atol=1e-9)
    assert found.log_z == pytest.approx(4.8463225686, abs=1e-9)
    clamped = kk.infer(cycle, "bo", evidence={0: [0.75, 0.25]})
    wanted = [0.25, 0.3514122461, 0.5663923281, 0.5263601618]
    np.testing.assert_allclose([m[1] for m in clamped.marginals], wanted, atol=1e-9)


def test_exact_on_trees_with_constant_and_evidence() -> None:
    # WH-T5
    tree = kk.generate.random_tree(9, seed=3)
    shifted = FactorGraph.from_arrays(
        tree.cardinalities, tree.scopes, tree.scope_offsets, tree.log_tables, log_constant=2.5
    )
    for evidence in ({}, {4: 1}):
        exact = kk.infer(shifted, "enumerate", evidence=evidence)
        found = kk.infer(shifted, "bo", evidence=evidence)
        np.testing.assert_allclose(found.flat_marginals, exact.flat_marginals, atol=1e-8)
        assert found.log_z == pytest.approx(exact.log_z, abs=1e-9)


def test_converges_to_a_stationary_point_where_bp_does_not() -> None:
    graph = kk.grid(5, 5, seed=1, coupling=3.0, field=0.3)
    assert not kk.infer(graph, "bp").converged
    found = kk.infer(graph, "bo")
    assert found.converged
    assert found.log_z == pytest.approx(77.0161792943, abs=1e-7)  # as ups finds it
    energy = energy_of(graph)
    logits = np.log([m[1] / m[0] for m in found.marginals])
    _, gradient = energy.at(logits)
    assert np.abs(gradient).max() < 1e-7


def test_descent_is_monotone_and_restarts_keep_the_best() -> None:
    graph, _, _ = random_machine(3, n=10, scale=2.0)
    one = kk.infer(graph, "bo:restarts=0")
    assert np.all(np.diff(one.trace.objective) >= -1e-9)
    many = kk.infer(graph, "bo:restarts=4")
    assert many.log_z >= one.log_z - 1e-9
    assert len(many.diagnostics["log_z_of_starts"]) == 5


def test_zero_field_symmetry_is_left_by_restarts() -> None:
    """Uniform marginals are stationary, but not the minimum of a strong ferromagnet."""
    ring = kk.ising({(i, j): 1.0 for i in range(5) for j in range(i + 1, 5)}, np.zeros(5))
    stuck = kk.infer(ring, "bo:restarts=0")
    found = kk.infer(ring, "bo:restarts=2")
    assert stuck.converged and found.converged
    assert found.log_z > stuck.log_z + 1e-3


def test_merged_pairs_count_once() -> None:
    half = [[1.0, 1.0], [1.0, np.exp(0.5)]]
    twice = FactorGraph([2, 2], [((0, 1), half), ((1, 0), half)])
    found = kk.infer(twice, "bo")
    exact, _, tables = enumerate_exact(twice)
    assert found.log_z == pytest.approx(exact, abs=1e-9)
    np.testing.assert_allclose(found.factor(1), tables[1], atol=1e-9)


@pytest.mark.parametrize(
    "graph",
    [
        FactorGraph([3, 2], [((0, 1), np.ones(6))]),
        FactorGraph([2, 2, 2], [((0, 1, 2), np.ones(8))]),
        FactorGraph([2, 2], [((0, 1), np.eye(2))]),
        kk.boltzmann_graph({(0, 1): 2000.0}, [0.0, 0.0]),
    ],
)
def test_other_models_are_refused(graph: FactorGraph) -> None:
    with pytest.raises(MethodError, match="use ups"):
        BeliefOptimisation().run(graph)


def test_budget_is_kept() -> None:
    graph = kk.grid(8, 8, seed=0, coupling=2.0)
    few = kk.infer(graph, "bo", budget=Budget(iterations=7))
    assert few.iterations <= 7 and not few.converged and few.stopped == "iterations"
    assert few.warnings
    short = kk.infer(graph, "bo", budget=Budget(seconds=0.05))
    assert short.stopped == "seconds"
    with pytest.raises(MethodError, match="tol"):
        BeliefOptimisation(tol=0.0)


def test_kernel_leaves_its_inputs_alone() -> None:
    graph, _, _ = random_machine(0)
    energy = energy_of(graph)
    logits = np.zeros(6)
    value_and_gradient(
        logits, energy.bits.biases, energy.first, energy.second, energy.weights, energy.degrees,
        energy.singles, energy.gradient_q,
    )  # fmt: skip
    assert not logits.any()


def test_factor_beliefs_where_a_coupling_is_zero() -> None:
    graph = kk.ising({(0, 1): 0.0, (1, 2): 1.0, (0, 2): 0.0}, [0.3, -0.2, 0.9])
    _, _, tables = enumerate_exact(graph)
    beliefs = BeliefOptimisation().run(graph)
    flat = np.concatenate([t.ravel() for t in tables])
    np.testing.assert_allclose(beliefs.flat_factors, flat, atol=1e-9)
