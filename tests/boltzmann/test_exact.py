"""Enumeration of machines against sums written apart, and against graph methods."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.boltzmann.conversion import to_factor_graph
from kikuchi.boltzmann.exact import (
    clamp_inputs,
    clamped,
    exact,
    exact_given_inputs,
    log_likelihood,
)
from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.units import BinomialUnits, GaussianUnits
from kikuchi.core.errors import BudgetError, DataError, ModelError

ARCHITECTURES = ["brf", "hrf", "poe", "fcrf"]


def random_machine(d, k, architecture, seed, scale=0.8):
    rng = np.random.default_rng(seed)
    machine = Machine.random(d, k, architecture=architecture, scale=scale, random_state=rng)
    machine.visible_bias[:] = rng.normal(size=d)
    machine.hidden_bias[:] = rng.normal(size=k)
    return machine


def brute(machine):
    """log Z and E[(v, h)(v, h)'] with plain loops over states."""
    d, k = machine.n_visible, machine.n_hidden
    x = np.array(list(itertools.product([0.0, 1.0], repeat=d + k)))
    scores = -machine.energy(x[:, :d], x[:, d:])
    top = scores.max()
    p = np.exp(scores - top)
    z = p.sum()
    p /= z
    return top + np.log(z), x.T @ (p[:, None] * x), p, x


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("sizes", [(5, 3), (3, 5), (4, 0)])
def test_joint_statistics_are_those_of_all_states(architecture, sizes):
    d, k = sizes
    machine = random_machine(d, k, architecture, 3)
    log_z, second, _, _ = brute(machine)
    answer = exact(machine)
    assert answer.log_z == pytest.approx(log_z, abs=1e-12)
    assert set(answer.statistics) == set(machine.parameters)
    np.testing.assert_allclose(answer.statistics["weights"], second[:d, d:], atol=1e-12)
    np.testing.assert_allclose(answer.statistics["visible_bias"], np.diag(second)[:d], atol=1e-12)
    np.testing.assert_allclose(answer.statistics["hidden_bias"], np.diag(second)[d:], atol=1e-12)
    off = second - np.diag(np.diag(second))
    for name, block in (("visible_weights", off[:d, :d]), ("hidden_weights", off[d:, d:])):
        if name in machine.parameters:
            np.testing.assert_allclose(answer.statistics[name], block, atol=1e-12)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_clamped_sums_and_likelihood(architecture):
    """LAW-T12: the likelihood's finite differences are clamped minus free moments."""
    machine = random_machine(4, 3, architecture, 5)
    _, _, p, x = brute(machine)
    data = np.array([[0, 1, 1, 0], [1, 1, 0, 1], [0, 0, 0, 0]], dtype=float)
    expected = [np.log(p[np.all(x[:, :4] == row, axis=1)].sum()) for row in data]
    np.testing.assert_allclose(log_likelihood(machine, data), expected, atol=1e-12)
    held = clamped(machine, data)
    for n, row in enumerate(data):
        match = np.all(x[:, :4] == row, axis=1)
        conditional = p[match] / p[match].sum()
        np.testing.assert_allclose(held.hidden[n], conditional @ x[match, 4:], atol=1e-12)
    free = exact(machine).statistics
    for name, array in machine.parameters.items():
        slope = held.statistics[name] - free[name]
        place = (0, 1) if array.ndim == 2 else (1,)
        step = 1e-5
        values = []
        for sign in (1, -1):
            array[place] += sign * step
            if name in ("visible_weights", "hidden_weights"):
                array[place[::-1]] += sign * step
            values.append(log_likelihood(machine, data).mean())
            array[place] -= sign * step
            if name in ("visible_weights", "hidden_weights"):
                array[place[::-1]] -= sign * step
        assert slope[place] == pytest.approx((values[0] - values[1]) / (2 * step), abs=1e-8)


@pytest.mark.parametrize("architecture", ["brf", "fcrf"])
def test_inputs_held_in_both_phases(architecture):
    """LAW-M5: the conditional machine, against probabilities of all states."""
    machine = random_machine(4, 2, architecture, 8)
    _, _, p, x = brute(machine)
    inputs = np.array([True, False, True, False])
    data = np.array([[1, 0, 0, 1], [1, 1, 0, 0], [0, 1, 1, 1]], dtype=float)
    expected, moments = [], np.zeros((6, 6))
    for row in data:
        given = np.all(x[:, [0, 2]] == row[[0, 2]], axis=1)
        both = given & np.all(x[:, :4] == row, axis=1)
        expected.append(np.log(p[both].sum() / p[given].sum()))
        q = p[given] / p[given].sum()
        moments += x[given].T @ (q[:, None] * x[given]) / 3
    np.testing.assert_allclose(log_likelihood(machine, data, inputs=inputs), expected, atol=1e-12)
    found = exact_given_inputs(machine, data, inputs).statistics
    np.testing.assert_allclose(found["weights"], moments[:4, 4:], atol=1e-12)
    np.testing.assert_allclose(found["visible_bias"], np.diag(moments)[:4], atol=1e-12)
    if architecture == "fcrf":
        off = moments - np.diag(np.diag(moments))
        np.testing.assert_allclose(found["visible_weights"], off[:4, :4], atol=1e-12)
        np.testing.assert_allclose(found["hidden_weights"], off[4:, 4:], atol=1e-12)


def test_symmetric_biases_give_means_of_one_half():
    """TEH-M4: with b_i = -sum_j W_ij / 2 every mean is exactly one half."""
    machine = random_machine(5, 3, "fcrf", 2)
    machine.visible_bias[:] = -0.5 * (machine.visible_weights.sum(1) + machine.weights.sum(1))
    machine.hidden_bias[:] = -0.5 * (machine.hidden_weights.sum(1) + machine.weights.sum(0))
    found = exact(machine).statistics
    np.testing.assert_allclose(found["visible_bias"], 0.5, atol=1e-13)
    np.testing.assert_allclose(found["hidden_bias"], 0.5, atol=1e-13)


def test_many_units_on_the_other_side_and_strong_weights():
    machine = random_machine(40, 9, "brf", 1, scale=4.0)
    beliefs = kk.infer(to_factor_graph(machine), "jt")
    answer = exact(machine)
    assert answer.log_z == pytest.approx(beliefs.log_z, abs=1e-9)
    expected = [beliefs[f"v{i}"][1] for i in range(40)]
    np.testing.assert_allclose(answer.statistics["visible_bias"], expected, atol=1e-9)


def test_units_of_other_kinds():
    counts = random_machine(3, 2, "brf", 4)
    counts = Machine(**counts.parameters, visible=BinomialUnits(replicas=3))
    graph = kk.infer(to_factor_graph(counts), "enumerate")
    assert exact(counts).log_z == pytest.approx(graph.log_z, abs=1e-12)
    expected = [graph[f"v{i}"] @ np.arange(4) for i in range(3)]
    np.testing.assert_allclose(exact(counts).statistics["visible_bias"], expected, atol=1e-12)
    real = Machine(**random_machine(2, 3, "brf", 4).parameters, visible=GaussianUnits())
    grid = np.linspace(-12, 12, 401)
    v = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    total = np.log(np.exp(clamped(real, v).log_weights).sum() * (grid[1] - grid[0]) ** 2)
    assert exact(real).log_z == pytest.approx(total, abs=1e-9)


def test_refusals():
    with pytest.raises(BudgetError, match="30 visible units"):
        exact(Machine.random(30, 40, architecture="poe"))
    with pytest.raises(BudgetError, match="connections on both sides"):
        exact(Machine.random(20, 10, architecture="fcrf"))
    with pytest.raises(BudgetError, match="connected hidden"):
        clamped(Machine.random(3, 30, architecture="hrf"), np.zeros((2, 3)))
    with pytest.raises(DataError, match="3 visible"):
        clamped(Machine.random(3, 2), np.zeros((2, 4)))
    with pytest.raises(DataError, match="not finite"):
        clamped(Machine.random(3, 2), [[0, np.nan, 1]])
    with pytest.raises(DataError, match="booleans"):
        exact_given_inputs(Machine.random(3, 2), np.zeros((1, 3)), np.array([0, 1, 1]))
    with pytest.raises(ModelError, match="gaussian"):
        exact(Machine.random(3, 2, architecture="poe", visible=GaussianUnits()))


def test_held_inputs_keep_all_energies():
    machine = random_machine(4, 2, "fcrf", 6)
    inputs = np.array([False, True, True, False])
    reduced, constant = clamp_inputs(machine, inputs, np.array([1.0, 0.0]))
    for free in itertools.product([0.0, 1.0], repeat=4):
        v = np.array([free[0], 1.0, 0.0, free[1]])
        h = np.array(free[2:])
        whole = -machine.energy(v, h)[0]
        part = -reduced.energy(np.array(free[:2]), h)[0] + constant
        assert whole == pytest.approx(part, abs=1e-12)
