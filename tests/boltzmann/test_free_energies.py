"""Mean field, TAP and Bethe energies of machines: values, derivatives, orders, trees."""

from __future__ import annotations

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.boltzmann.conversion import to_factor_graph
from kikuchi.boltzmann.exact import exact
from kikuchi.boltzmann.fixed_point import fixed_point_means, free_energy
from kikuchi.boltzmann.free_energies import ENERGIES, free_energy_named, unit_entropy
from kikuchi.boltzmann.from_graphs import machine_of
from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.units import BinomialUnits, GaussianUnits
from kikuchi.core.errors import MethodError

KINDS = ["mf", "tap", "bethe"]


def symmetric(rng, n, scale, keep=1.0):
    upper = np.triu(scale * rng.normal(size=(n, n)) * (rng.random((n, n)) < keep), 1)
    return upper + upper.T


def lateral_energy(kind, weights, fields, q):
    """F of units of one side in external fields."""
    energy = ENERGIES[kind]
    entropy = -(q * np.log(q) + (1 - q) * np.log(1 - q)).sum(axis=1)
    return energy.lateral(weights, q) - (q * fields).sum(axis=1) - entropy


def bethe_by_tables(weights, fields, q):
    """The Bethe energy from pair tables that scaling makes, and sums over edges and nodes."""
    n = len(q)
    single = np.stack([1 - q, q], axis=1)
    entropy = -(single * np.log(single)).sum(axis=1)
    total = -(fields * q).sum()
    degree = np.zeros(n)
    for i in range(n):
        for j in range(i):
            if weights[i, j] == 0:
                continue
            table = np.array([[1.0, 1.0], [1.0, np.exp(weights[i, j])]])
            for _ in range(5000):
                table *= (single[i] / table.sum(axis=1))[:, None]
                table *= single[j] / table.sum(axis=0)
            total += -weights[i, j] * table[1, 1] + (table * np.log(table)).sum()
            degree[i] += 1
            degree[j] += 1
    return total - ((1 - degree) * entropy).sum()


def test_bethe_value_is_that_of_scaled_pair_tables():
    rng = np.random.default_rng(0)
    weights = symmetric(rng, 5, 1.5, keep=0.7)
    q, fields = rng.uniform(0.05, 0.95, size=5), rng.normal(size=5)
    found = lateral_energy("bethe", weights, fields, q[None])[0]
    assert found == pytest.approx(bethe_by_tables(weights, fields, q), abs=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_weight_gradient_is_the_pair_statistic(kind):
    """WH-T3."""
    rng = np.random.default_rng(1)
    weights, q = symmetric(rng, 4, 0.9), rng.uniform(0.1, 0.9, size=(3, 4))
    energy, step = ENERGIES[kind], 1e-5
    pairs = energy.pairs(weights, q)
    for i, j in [(0, 1), (2, 3)]:
        values = []
        for sign in (1, -1):
            moved = weights.copy()
            moved[i, j] += sign * step
            moved[j, i] += sign * step
            values.append(energy.lateral(moved, q).mean())
        assert pairs[i, j] == pytest.approx(-(values[0] - values[1]) / (2 * step), abs=1e-9)
    assert not np.diag(pairs).any()


@pytest.mark.parametrize("kind", KINDS)
def test_settled_means_are_stationary_and_satisfy_the_field_formulas(kind):
    """WH-T4: the fixed point has no slope, and TAP's field has the factor (1 - 2 q)."""
    # WH-I3
    rng = np.random.default_rng(2)
    weights, fields = symmetric(rng, 5, 0.8), rng.normal(size=(2, 5))
    found = fixed_point_means(weights, fields, energy=kind, tol=1e-12)
    assert found.converged
    q = found.means
    for i in range(5):
        step = np.zeros(5)
        step[i] = 1e-5
        slope = lateral_energy(kind, weights, fields, q + step)
        slope = (slope - lateral_energy(kind, weights, fields, q - step)) / 2e-5
        np.testing.assert_allclose(slope, 0.0, atol=1e-8)
    if kind == "tap":
        spread = q * (1 - q)
        field = fields + q @ weights + 0.5 * (1 - 2 * q) * (spread @ weights**2)
        np.testing.assert_allclose(np.log(q / (1 - q)), field, atol=1e-9)


def test_bethe_is_exact_on_trees_and_equals_belief_propagation_on_loops():
    """WH-T5, and stationary points of the Bethe energy are those of loopy propagation."""
    rng = np.random.default_rng(3)
    tree = np.zeros((6, 6))
    for child in range(1, 6):
        parent = int(rng.integers(child))
        tree[child, parent] = tree[parent, child] = 1.5 * rng.normal()
    fields = rng.normal(size=6)
    found = fixed_point_means(tree, fields[None], energy="bethe", tol=1e-12)
    machine = machine_of(tree, fields, 6)
    truth = exact(machine)
    np.testing.assert_allclose(found.means[0], truth.statistics["visible_bias"], atol=1e-9)
    value = lateral_energy("bethe", tree, fields[None], found.means)[0]
    assert value == pytest.approx(-truth.log_z, abs=1e-10)
    pairs = ENERGIES["bethe"].pairs(tree, found.means)
    edges = tree != 0
    np.testing.assert_allclose(pairs[edges], truth.statistics["visible_weights"][edges], atol=1e-9)

    loopy = symmetric(rng, 6, 0.5)
    found = fixed_point_means(loopy, fields[None], energy="bethe", tol=1e-12)
    beliefs = kk.infer(to_factor_graph(machine_of(loopy, fields, 6)), "bp:tol=1e-12")
    np.testing.assert_allclose(found.means[0], [beliefs[i][1] for i in range(6)], atol=1e-8)
    value = lateral_energy("bethe", loopy, fields[None], found.means)[0]
    assert value == pytest.approx(-beliefs.log_z, abs=1e-8)


def test_orders_of_the_three_in_the_weights():
    """WH-T6: TAP - MF falls as the square, Bethe - TAP as the cube of the weights."""
    rng = np.random.default_rng(4)
    weights, fields = symmetric(rng, 5, 1.0), rng.normal(size=(1, 5))
    values = {}
    for scale in (0.08, 0.04):
        for kind in KINDS:
            q = fixed_point_means(scale * weights, fields, energy=kind, tol=1e-14).means
            values[kind, scale] = lateral_energy(kind, scale * weights, fields, q)[0]
    second = [values["tap", s] - values["mf", s] for s in (0.08, 0.04)]
    third = [values["bethe", s] - values["tap", s] for s in (0.08, 0.04)]
    assert second[0] / second[1] == pytest.approx(4.0, rel=0.15)
    assert third[0] / third[1] == pytest.approx(8.0, rel=0.3)


def test_typical_errors_on_small_random_machines():
    """WH-I4 [REF]: five units, weights N(0, 0.4^2); MF off by some 3e-2, the others by some 3e-3.

    The catalogue's machine is not stored; these are medians over machines of its kind.
    """
    gaps, errors = {k: [] for k in KINDS}, {k: [] for k in KINDS}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        weights, fields = symmetric(rng, 5, 0.4), 0.4 * rng.normal(size=(1, 5))
        truth = exact(machine_of(weights, fields[0], 5))
        for kind in KINDS:
            q = fixed_point_means(weights, fields, energy=kind, tol=1e-10).means
            gaps[kind].append(lateral_energy(kind, weights, fields, q)[0] + truth.log_z)
            errors[kind].append(np.sqrt(np.mean((q[0] - truth.statistics["visible_bias"]) ** 2)))
    assert min(gaps["mf"]) >= -1e-12
    assert 1e-2 < np.median(gaps["mf"]) < 1e-1
    assert np.median(np.abs(gaps["tap"])) < 0.15 * np.median(gaps["mf"])
    assert np.median(np.abs(gaps["bethe"])) < 0.15 * np.median(gaps["mf"])
    for kind in ("tap", "bethe"):
        assert np.median(errors[kind]) < 0.3 * np.median(errors["mf"])


@pytest.mark.parametrize("kind", KINDS)
def test_values_of_a_whole_machine(kind):
    """F of data is that of its settled hidden side; mf is above the exact one (WH-M1)."""
    rng = np.random.default_rng(5)
    machine = Machine.random(5, 4, architecture="fcrf", scale=0.6, random_state=rng)
    data = (rng.random((6, 5)) < 0.5).astype(float)
    found = free_energy(machine, data, kind, tol=1e-10)
    fields = data @ machine.weights + machine.hidden_bias
    q = fixed_point_means(machine.hidden_weights, fields, energy=kind, tol=1e-10).means
    expected = lateral_energy(kind, machine.hidden_weights, fields, q)
    expected = expected - data @ machine.visible_bias
    expected = expected - 0.5 * ((data @ machine.visible_weights) * data).sum(axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    exactly = free_energy(machine, data, "exact")
    assert np.all(free_energy(machine, data, "mf") >= exactly - 1e-12)
    assert np.abs(found - exactly).max() < 0.2


def test_restricted_machines_know_one_free_energy_only():
    """WH-T7, values: all kinds are exact and the same, for units of all kinds."""
    data = np.array([[0, 1, 3], [2, 0, 1]], dtype=float)
    for visible in (BinomialUnits(replicas=3), GaussianUnits()):
        machine = Machine.random(3, 4, scale=0.7, visible=visible, random_state=0)
        values = [free_energy(machine, data, kind) for kind in ["exact", *KINDS]]
        for value in values[1:]:
            np.testing.assert_allclose(value, values[0], atol=1e-10)


def test_entropy_of_units_is_the_legendre_transform():
    fields = np.array([-2.0, 0.3, 1.7])
    for units in (BinomialUnits(replicas=4), GaussianUnits()):
        means = units.mean(fields)
        expected = units.log_partition(fields) - fields * means
        np.testing.assert_allclose(unit_entropy(units, means), expected, atol=1e-12)


def test_unknown_free_energy():
    with pytest.raises(MethodError, match="did you mean 'bethe'"):
        free_energy_named("bete")
