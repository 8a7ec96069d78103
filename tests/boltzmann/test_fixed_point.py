"""Settling of means: descent, convergence, independence of rows, speed."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from kikuchi.boltzmann.exact import exact
from kikuchi.boltzmann.fixed_point import (
    fixed_point_means,
    free_energy,
    hidden_means,
    joint_means,
    mean_field_bound,
    reconstruct_means,
    visible_means,
)
from kikuchi.boltzmann.free_energies import ENERGIES, MEAN_FIELD
from kikuchi.boltzmann.from_graphs import machine_of
from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.units import BinaryUnits, GaussianUnits
from kikuchi.core.errors import DataError, ModelError

KINDS = ["mf", "tap", "bethe"]


def symmetric(rng, n, scale):
    upper = np.triu(scale * rng.normal(size=(n, n)), 1)
    return upper + upper.T


def machine_for(architecture, seed=0, scale=0.8, sizes=(6, 4)):
    rng = np.random.default_rng(seed)
    machine = Machine.random(*sizes, architecture=architecture, scale=scale, random_state=rng)
    machine.visible_bias[:] = rng.normal(size=sizes[0])
    machine.hidden_bias[:] = rng.normal(size=sizes[1])
    return machine


def value(kind, weights, fields, q):
    inside = (q > 0) & (q < 1)
    safe = np.where(inside, q, 0.5)
    entropy = np.where(inside, -safe * np.log(safe) - (1 - safe) * np.log(1 - safe), 0.0)
    return ENERGIES[kind].lateral(weights, q) - ((fields * q) + entropy).sum(axis=1)


@pytest.mark.parametrize("kind", KINDS)
@given(
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([0.1, 1.0, 4.0, 12.0, 40.0]),
    damping=st.sampled_from([0.0, 0.5, 0.9]),
    corner=st.booleans(),
)
def test_no_sweep_raises_the_free_energy(kind, seed, scale, damping, corner):
    """WH-I2 to I4: descent from anywhere, also from data, also with strong weights."""
    rng = np.random.default_rng(seed)
    weights = np.clip(symmetric(rng, 6, scale), -150.0, 150.0)  # beyond, bethe is refused
    fields = scale * rng.normal(size=(3, 6))
    q = rng.random((3, 6))
    if corner:
        q = np.round(q)
    before = value(kind, weights, fields, q)
    for _ in range(6):
        q = fixed_point_means(
            weights, fields, q, energy=kind, tol=0.0, max_iter=1, damping=damping
        ).means
        assert np.all((q >= 0) & (q <= 1))
        after = value(kind, weights, fields, q)
        assert np.all(after <= before + 1e-9 * (1 + np.abs(before)))
        before = after


@pytest.mark.parametrize("kind", KINDS)
def test_strong_weights_converge(kind):
    rng = np.random.default_rng(1)
    weights, fields = symmetric(rng, 12, 3.0), rng.normal(size=(40, 12))
    found = fixed_point_means(weights, fields, energy=kind, tol=1e-9)
    assert found.converged and found.residual <= 1e-9
    again = fixed_point_means(weights, fields, found.means, energy=kind, tol=0.0, max_iter=1)
    np.testing.assert_allclose(again.means, found.means, atol=1e-8)


def test_mean_field_is_a_fixed_point_and_rows_do_not_depend_on_their_company():
    rng = np.random.default_rng(2)
    weights, fields = symmetric(rng, 9, 0.7), rng.normal(size=(75, 9))
    found = fixed_point_means(weights, fields, tol=1e-9)
    np.testing.assert_allclose(found.means, expit(fields + found.means @ weights), atol=1e-8)
    for kind in KINDS:
        together = fixed_point_means(weights, fields, energy=kind).means
        alone = np.vstack([fixed_point_means(weights, f, energy=kind).means for f in fields])
        assert np.array_equal(together, alone)


def test_logistic_function_of_the_loops_is_right_to_rounding():
    x = np.concatenate([np.linspace(-700, 700, 4001), np.linspace(-2, 2, 999)])
    found = fixed_point_means(np.zeros((1, 1)), x[:, None], tol=0.0, max_iter=1).means[:, 0]
    np.testing.assert_allclose(found, expit(x), rtol=1e-15 * 4, atol=0)


@pytest.mark.parametrize("architecture", ["brf", "hrf", "poe", "fcrf"])
def test_settling_from_data_falls_and_stays_above_minus_log_z(architecture):
    """WH-T2."""
    machine = machine_for(architecture)
    rng = np.random.default_rng(3)
    data = (rng.random((20, 6)) < 0.5).astype(float)
    floor = -exact(machine).log_z
    q = hidden_means(machine, data).means
    values = [MEAN_FIELD.value(machine, data, q, clamped=True)]
    np.testing.assert_allclose(values[0], MEAN_FIELD.value(machine, data, q), atol=1e-12)
    r = data
    for _ in range(4):
        r = visible_means(machine, q, r, tol=0.0, max_iter=3).means
        values.append(MEAN_FIELD.value(machine, r, q))
        q = hidden_means(machine, r, q, tol=0.0, max_iter=3).means
        values.append(MEAN_FIELD.value(machine, r, q))
    steps = np.diff(np.array(values), axis=0)
    assert np.all(steps <= 1e-10)
    assert np.all(values[-1] >= floor - 1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_rounds_never_raise_the_free_energy_and_end_where_all_units_rest(kind):
    """WH-I6 and WH-T8: many rounds are MF_infinity; for mean field all units are then at rest."""
    machine = machine_for("fcrf", 4, scale=0.6)
    rng = np.random.default_rng(5)
    data = (rng.random((15, 6)) < 0.5).astype(float)
    energy = ENERGIES[kind]
    q0 = hidden_means(machine, data, energy=kind).means
    last = energy.value(machine, data, q0, clamped=True)
    for rounds in (1, 2, 5):
        r, q, done, _ = reconstruct_means(machine, data, q0, rounds=rounds, energy=kind)
        assert done == rounds
        now = energy.value(machine, r, q)
        assert np.all(now <= last + 1e-10)
        last = now
    ended = reconstruct_means(machine, data, q0, rounds=0, energy=kind, tol=1e-10)
    assert ended.converged
    many = reconstruct_means(machine, data, q0, rounds=400, energy=kind)
    np.testing.assert_allclose(ended.visible, many.visible, atol=1e-8)
    if kind == "mf":
        joint = joint_means(machine, ended.visible, ended.hidden, tol=1e-10)
        np.testing.assert_allclose(joint.visible, ended.visible, atol=1e-8)
        np.testing.assert_allclose(joint.hidden, ended.hidden, atol=1e-8)


def test_contrast_is_a_difference_of_divergences():
    """WH-T8, identity (8): F_0 - F_k = KL[Q_0 || P] - KL[Q_k || P], by enumeration."""
    machine = machine_for("fcrf", 6, sizes=(4, 3))
    log_z = exact(machine).log_z
    data = np.array([[1.0, 0, 1, 1]])
    q0 = hidden_means(machine, data).means
    r, q, _, _ = reconstruct_means(machine, data, q0, rounds=2)
    states = np.array(np.meshgrid(*[[0.0, 1.0]] * 7)).T.reshape(-1, 7)
    log_p = -machine.energy(states[:, :4], states[:, 4:]) - log_z

    def divergence(means):
        p = np.prod(np.where(states == 1, means, 1 - means), axis=1)
        kept = p > 0
        return float((p[kept] * (np.log(p[kept]) - log_p[kept])).sum())

    first = divergence(np.concatenate([data[0], q0[0]]))
    last = divergence(np.concatenate([r[0], q[0]]))
    gap = MEAN_FIELD.value(machine, data, q0, clamped=True) - MEAN_FIELD.value(machine, r, q)
    assert gap[0] == pytest.approx(first - last, abs=1e-10)


def test_joint_with_inputs_held_and_temperatures():
    """LAW-I14: held units stay, the bound is below log Z, annealing ends at temperature one."""
    machine = machine_for("fcrf", 7)
    inputs = np.array([True, True, False, False, False, False])
    data = np.array([[1.0, 0, 1, 0, 0, 1], [0, 0, 1, 1, 0, 1]])
    hidden = np.full((2, 4), 0.5)
    found = joint_means(machine, data, hidden, inputs=inputs, temperatures=(8, 4, 2), tol=1e-9)
    assert found.converged
    assert np.array_equal(found.visible[:, :2], data[:, :2])
    weights, biases = machine.visible_weights, machine.visible_bias
    fields = found.visible @ weights + found.hidden @ machine.weights.T + biases
    np.testing.assert_allclose(found.visible[:, 2:], expit(fields)[:, 2:], atol=1e-8)
    free = joint_means(machine, data, hidden, tol=1e-9)
    bounds = mean_field_bound(machine, free.visible, free.hidden)
    assert np.all(bounds <= exact(machine).log_z + 1e-12)


def test_without_weights_mean_field_is_exact():
    machine = machine_of(np.zeros((4, 4)), [0.3, -1.0, 2.0, 0.0], 3)
    found = joint_means(machine, np.full((1, 3), 0.5), np.full((1, 1), 0.5))
    bound = mean_field_bound(machine, found.visible, found.hidden)[0]
    assert bound == pytest.approx(exact(machine).log_z, abs=1e-12)


def test_saturated_means_are_reported_not_clipped():
    found = fixed_point_means(np.zeros((2, 2)), [[50.0, 1.0]])
    assert found.saturated == 1 and found.means[0, 0] == 1.0
    bethe = fixed_point_means([[0, 3.0], [3.0, 0]], [[60.0, -1.0]], [[1.0, 0.0]], energy="bethe")
    assert bethe.converged and bethe.means[0, 1] == pytest.approx(expit(2.0), abs=1e-8)


def test_not_converged_is_said():
    rng = np.random.default_rng(8)
    weights, fields = symmetric(rng, 8, 1.0), rng.normal(size=(3, 8))
    found = fixed_point_means(weights, fields, tol=1e-12, max_iter=2)
    assert not found.converged and found.residual > 1e-12


def test_refusals():
    with pytest.raises(DataError, match="fit together"):
        fixed_point_means(np.zeros((2, 2)), np.zeros((1, 3)))
    with pytest.raises(ModelError, match="beyond 150"):
        fixed_point_means([[0, 200.0], [200.0, 0]], np.zeros((1, 2)), energy="bethe")
    connected = Machine.random(3, 2, architecture="poe", visible=GaussianUnits())
    with pytest.raises(ModelError, match="binary units"):
        visible_means(connected, np.zeros((1, 2)))
    with pytest.raises(ModelError, match="binary units"):
        joint_means(Machine.random(3, 2, visible=GaussianUnits()), np.zeros(3), np.zeros(2))
    with pytest.raises(DataError, match="3 visible"):
        free_energy(Machine.random(3, 2, visible=BinaryUnits()), np.zeros((1, 2)))


def test_settling_600_digits_takes_a_few_milliseconds():
    """Figure of issue 6: at most 20 ms of CPU for a pass over 64 + 25 connected units."""
    from sklearn.datasets import load_digits

    data = (load_digits().data[:600] > 7.5).astype(float)
    machine = Machine.random(64, 25, architecture="fcrf", scale=0.2, random_state=0)
    hidden_means(machine, data)  # loads the loops
    times = []
    for _ in range(3):
        began = time.process_time()
        found = hidden_means(machine, data, tol=1e-6)
        times.append(time.process_time() - began)
        assert found.converged
    assert min(times) < 0.02
