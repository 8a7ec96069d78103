"""Centred directions: reparametrised gradients, the same whichever state of a unit is called 1."""

from __future__ import annotations

import numpy as np
import pytest

from kikuchi.boltzmann import BoltzmannMachine, Machine
from kikuchi.boltzmann.rules import parse_rule
from kikuchi.boltzmann.sampling import MachinePhase, MachineSampler
from kikuchi.core.errors import MethodError


def _direction(machine: Machine, rows: np.ndarray, chains: np.ndarray, centred: bool) -> dict:
    state: dict = {}
    sampler = MachineSampler(machine, state)
    if centred:
        state |= sampler.centres(rows)
    rng = np.random.default_rng(0)
    positive = sampler.clamp(rows, np.arange(len(rows)), rng, sweeps=1, start=None, draw=False)
    layer = sampler.layers.hidden(chains, None, name="other")
    found = sampler.contrast(positive, [MachinePhase(chains, layer)], 1)
    return {name: array.copy() for name, array in found.ascent.items()}


@pytest.fixture
def phases() -> tuple[Machine, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    machine = Machine.random(6, 4, scale=1.0, random_state=2)
    rows = (rng.random((30, 6)) < [0.9, 0.8, 0.1, 0.5, 0.7, 0.3]).astype(float)
    return machine, rows, (rng.random((20, 6)) < 0.5).astype(float)


@pytest.mark.parametrize("centred", [True, False])
def test_directions_follow_units_whose_states_change_places(phases, centred):
    machine, rows, chains = phases
    flips = np.array([True, False, True, False, True, False])
    sign = np.where(flips, -1.0, 1.0)
    other = machine.copy()
    other.weights[...] = sign[:, None] * machine.weights
    other.visible_bias[...] = sign * machine.visible_bias
    other.hidden_bias[...] = machine.hidden_bias + machine.weights[flips].sum(axis=0)
    here = _direction(machine, rows, chains, centred)
    there = _direction(other, np.abs(rows - flips), np.abs(chains - flips), centred)
    same = np.allclose(there["weights"], sign[:, None] * here["weights"], atol=1e-10)
    assert same == centred
    moved = here["hidden_bias"] + here["weights"][flips].sum(axis=0)
    assert np.allclose(there["hidden_bias"], moved, atol=1e-10) == centred


def test_centred_directions_climb(phases):
    plain, centred = (_direction(*phases, centred=c) for c in (False, True))
    climb = sum(float(np.vdot(plain[name], centred[name])) for name in plain)
    assert climb > 0
    assert not np.allclose(plain["weights"], centred["weights"])


def test_centres_follow_the_rows_and_pass_through_training():
    rows = np.tile([[1.0, 0.0, 1.0, 1.0]], (50, 1))
    rule = parse_rule("pcd:k=1,chains=10,centred=true")
    machine, rng = Machine.random(4, 3, random_state=0), np.random.default_rng(0)
    state = rule.begin(machine, rows, rng)
    assert state["centre_visible"].tolist() == [1.0, 0.0, 1.0, 1.0]
    rule.gradient(machine, 1.0 - rows, np.arange(50), state, rng)
    assert np.allclose(state["centre_visible"], [0.99, 0.01, 0.99, 0.99])


@pytest.mark.parametrize("learner", ["cd:centred=true", "brief-gibbs:centred=true"])
def test_connected_layers_are_refused(learner):
    machine = BoltzmannMachine(3, architecture="poe", learner=learner, max_iter=1)
    with pytest.raises(MethodError, match="centred: only machines without connections"):
        machine.fit(np.eye(4))
