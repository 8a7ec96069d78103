"""Machines as graphs and spins and back."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.boltzmann.conversion import spin_ascent, to_factor_graph, to_spins
from kikuchi.boltzmann.exact import clamped, exact
from kikuchi.boltzmann.from_graphs import from_factor_graph, from_spins, machine_of
from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.units import GaussianUnits
from kikuchi.core.errors import ModelError
from kikuchi.graphs.binary import boltzmann_graph


def machine(architecture="fcrf", seed=0):
    rng = np.random.default_rng(seed)
    made = Machine.random(3, 2, architecture=architecture, scale=0.7, random_state=rng)
    made.visible_bias[:], made.hidden_bias[:] = rng.normal(size=3), rng.normal(size=2)
    return made


@pytest.mark.parametrize("architecture", ["brf", "hrf", "poe", "fcrf"])
def test_graph_scores_every_state_as_the_machine(architecture):
    """TEH-M4."""
    source = machine(architecture)
    graph = to_factor_graph(source)
    assert graph.names == ("v0", "v1", "v2", "h0", "h1")
    for x in itertools.product([0, 1], repeat=5):
        assert graph.log_score(x) == pytest.approx(-source.energy(x[:3], x[3:])[0], abs=1e-12)
    back, constant = from_factor_graph(graph, hidden=["h0", "h1"])
    assert constant == pytest.approx(0.0, abs=1e-12)
    assert back.architecture == architecture
    for name, array in source.parameters.items():
        np.testing.assert_allclose(back.parameters[name], array, atol=1e-12)


def test_graph_with_hidden_variables_in_the_middle_and_a_constant():
    graph = kk.ising({(0, 1): 0.5, (1, 2): -1.0, (0, 2): 0.3}, [0.1, 0.2, -0.3])
    found, constant = from_factor_graph(graph, hidden=[1])
    assert (found.n_visible, found.n_hidden) == (2, 1)
    assert exact(found).log_z + constant == pytest.approx(kk.infer(graph, "jt").log_z, abs=1e-12)
    beliefs = kk.infer(graph, "jt")
    expected = [beliefs[0][1], beliefs[2][1]]
    np.testing.assert_allclose(exact(found).statistics["visible_bias"], expected, atol=1e-12)


def test_spins_and_their_gradient():
    """LAW-L6: the ascent in spins is the difference of <s s'> and <s>."""
    source = machine()
    spins = to_spins(source)
    back, constant = from_spins(spins.couplings, spins.fields, 3, constant=spins.constant)
    assert constant == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(back.weights, source.weights, atol=1e-12)
    data = np.array([[1, 0, 1], [1, 1, 0]], dtype=float)
    positive, negative = clamped(source, data).statistics, exact(source).statistics
    ascent = {name: positive[name] - negative[name] for name in positive}
    couplings, fields = spin_ascent(source, ascent)
    step = 1e-5
    for i, j in [(0, 1), (0, 3), (3, 4)]:
        values = []
        for sign in (1, -1):
            moved = spins.couplings.copy()
            moved[i, j] += sign * step
            moved[j, i] += sign * step
            values.append(_likelihood(moved, spins.fields, data))
        assert couplings[i, j] == pytest.approx((values[0] - values[1]) / (2 * step), abs=1e-8)
    values = []
    for sign in (1, -1):
        moved = spins.fields.copy()
        moved[4] += sign * step
        values.append(_likelihood(spins.couplings, moved, data))
    assert fields[4] == pytest.approx((values[0] - values[1]) / (2 * step), abs=1e-8)


def _likelihood(couplings, fields, data):
    model, _ = from_spins(couplings, fields, 3)
    return float(clamped(model, data).log_weights.mean() - exact(model).log_z)


def test_missing_connections_have_no_slope():
    source = machine("brf")
    ones = {name: np.ones(a.shape) for name, a in source.parameters.items()}
    couplings, _ = spin_ascent(source, ones)
    assert not couplings[:3, :3].any() and not couplings[3:, 3:].any()


def test_refusals():
    with pytest.raises(ModelError, match="3 states"):
        from_factor_graph(kk.FactorGraph([3, 2], [((0, 1), np.ones(6))]))
    with pytest.raises(ModelError, match="twice"):
        from_factor_graph(boltzmann_graph({(0, 1): 1.0}), hidden=[0, 0])
    with pytest.raises(ModelError, match="gaussian"):
        to_factor_graph(Machine.random(2, 2, visible=GaussianUnits()))
    with pytest.raises(ModelError, match="fit together"):
        machine_of(np.zeros((3, 3)), np.zeros(2), 1)
    with pytest.raises(ModelError, match="spins"):
        to_spins(Machine.random(2, 2, visible=GaussianUnits()))
