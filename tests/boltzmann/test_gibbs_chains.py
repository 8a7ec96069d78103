"""Block Gibbs chains and replica exchange against enumeration."""

from __future__ import annotations

import numpy as np
import pytest

from kikuchi.boltzmann.exact import clamped, exact, exact_given_inputs, exact_samples, side_states
from kikuchi.boltzmann.gibbs_chains import GibbsChains, TemperedChains
from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.units import BinomialUnits, GaussianUnits
from kikuchi.core.errors import DataError, MethodError, ModelError

ARCHITECTURES = ["brf", "hrf", "poe", "fcrf"]


def machine_for(architecture, seed=0, scale=0.7, sizes=(4, 3)):
    rng = np.random.default_rng(seed)
    machine = Machine.random(*sizes, architecture=architecture, scale=scale, random_state=rng)
    machine.visible_bias[:] = 0.5 * rng.normal(size=sizes[0])
    machine.hidden_bias[:] = 0.5 * rng.normal(size=sizes[1])
    return machine


def assert_close_to(found, truth, error):
    for name, expected in truth.items():
        np.testing.assert_allclose(found[name], expected, atol=error, err_msg=name)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_free_chains_have_the_statistics_of_the_model(architecture):
    """WH-I1. 4000 chains of 10 averaged sweeps each: an error of 0.5 / sqrt(4000), five times."""
    machine = machine_for(architecture)
    chains = GibbsChains(machine, 4000, random_state=1).run(30)
    assert_close_to(chains.average(10), exact(machine).statistics, 5 * 0.5 / np.sqrt(4000))


@pytest.mark.parametrize("architecture", ["hrf", "fcrf"])
def test_clamped_and_conditional_chains(architecture):
    """WH-I1 clamped; LAW-M5 with inputs held only."""
    machine = machine_for(architecture, 2)
    rows = np.array([[1.0, 0, 1, 1], [0, 1, 1, 0]])
    visible = np.repeat(rows, 2000, axis=0)
    all_held = np.ones(4, dtype=bool)
    chains = GibbsChains(machine, visible=visible, held=all_held, random_state=0).run(30)
    assert np.array_equal(chains.visible, visible)
    assert_close_to(chains.average(5), clamped(machine, rows).statistics, 0.04)
    inputs = np.array([True, False, False, True])
    chains = GibbsChains(machine, visible=visible, held=inputs, random_state=0).run(30)
    assert np.array_equal(chains.visible[:, inputs], visible[:, inputs])
    truth = exact_given_inputs(machine, rows, inputs).statistics
    assert_close_to(chains.average(5), truth, 0.04)


def test_units_of_other_kinds():
    for units, error in ((BinomialUnits(replicas=3), 0.12), (GaussianUnits(), 0.12)):
        machine = Machine.random(3, 2, scale=0.7, visible=units, random_state=3)
        chains = GibbsChains(machine, 4000, random_state=1).run(30)
        assert_close_to(chains.average(5), exact(machine).statistics, error)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_exact_samples(architecture):
    machine = machine_for(architecture, 4)
    v, h = exact_samples(machine, 20000, np.random.default_rng(0))
    truth = exact(machine).statistics
    np.testing.assert_allclose(v.T @ h / 20000, truth["weights"], atol=0.02)
    np.testing.assert_allclose(v.mean(axis=0), truth["visible_bias"], atol=0.02)
    if architecture == "fcrf":
        second = h.T @ h / 20000
        np.fill_diagonal(second, 0)
        np.testing.assert_allclose(second, truth["hidden_weights"], atol=0.02)
    assert side_states(machine) == {"brf": 8, "hrf": 8, "poe": 16, "fcrf": 128}[architecture]


def two_modes(strength=12.0, units=6):
    """All units on or all off; plain chains do not go from one to the other."""
    weights = np.full((units, 2), strength)
    return Machine(weights, -np.full(units, strength), -np.full(2, strength * units / 2))


def test_tempering_crosses_where_plain_chains_do_not():
    machine = two_modes()
    truth = exact(machine).statistics["visible_bias"]
    np.testing.assert_allclose(truth, 0.5, atol=1e-6)
    start = np.ones((200, 6))
    plain = GibbsChains(machine, visible=start, random_state=0).run(200)
    assert plain.visible.mean() == 1.0
    tempered = TemperedChains(machine, 200, betas=15, random_state=0)
    tempered._v[:] = 1.0  # every replica in one mode
    tempered._h[:] = 1.0
    tempered.run(200)
    assert abs(tempered.visible.mean() - 0.5) < 5 * 0.5 / np.sqrt(200)
    assert np.all(tempered.acceptance > 0.05) and np.all(tempered.acceptance <= 1)
    assert tempered.round_trips > 200
    assert tempered.attempts.sum() == 200 * 100 * 14  # half of the pairs in each sweep


@pytest.mark.parametrize("architecture", ["brf", "fcrf"])
def test_tempered_statistics(architecture):
    machine = machine_for(architecture, 5, scale=1.2)
    chains = TemperedChains(machine, 3000, betas=[0.2, 0.6, 1.0], random_state=0).run(40)
    first = chains.visible.mean(axis=0)
    np.testing.assert_allclose(first, exact(machine).statistics["visible_bias"], atol=0.05)
    cross = chains.visible.T @ chains.hidden / 3000
    np.testing.assert_allclose(cross, exact(machine).statistics["weights"], atol=0.05)


def test_same_seed_same_chains():
    machine = machine_for("fcrf")
    one, two = (GibbsChains(machine, 5, random_state=3).run(5) for _ in range(2))
    assert np.array_equal(one.visible, two.visible) and np.array_equal(one.hidden, two.hidden)


def test_refusals():
    machine = machine_for("brf")
    with pytest.raises(MethodError, match="give their number"):
        GibbsChains(machine)
    with pytest.raises(DataError, match="4 of them, but 2"):
        GibbsChains(machine, 4, visible=np.zeros((2, 4)))
    with pytest.raises(DataError, match="held at"):
        GibbsChains(machine, 4, held=np.ones(4, dtype=bool))
    for betas in ([1.0, 0.0], [0.5, 0.9], [1.0], 1):
        with pytest.raises(MethodError, match="betas must rise"):
            TemperedChains(machine, 4, betas=betas)
    with pytest.raises(ModelError, match="binary units"):
        GibbsChains(Machine.random(3, 2, architecture="poe", visible=GaussianUnits()), 2).run()
