"""`Machine`: energies, fields, masks and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.parameters import ARCHITECTURES
from kikuchi.core.errors import ModelError


@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
def test_fields_are_differences_of_energies(architecture: str) -> None:
    """WH-M2, WH-M3: the field on a unit is the energy at 0 minus the energy at 1."""
    machine = Machine.random(5, 4, architecture=architecture, scale=1.0, random_state=0)
    rng = np.random.default_rng(1)
    machine.visible_bias[:], machine.hidden_bias[:] = rng.normal(size=5), rng.normal(size=4)
    v, h = (rng.random(5) < 0.5).astype(float), (rng.random(4) < 0.5).astype(float)
    on_hidden = machine.hidden_field(v[None], h[None])[0]
    on_visible = machine.visible_field(h[None], v[None])[0]
    for j in range(4):
        one, zero = h.copy(), h.copy()
        one[j], zero[j] = 1, 0
        gap = machine.energy(v, zero)[0] - machine.energy(v, one)[0]
        assert on_hidden[j] == pytest.approx(gap)
    for i in range(5):
        one, zero = v.copy(), v.copy()
        one[i], zero[i] = 1, 0
        gap = machine.energy(zero, h)[0] - machine.energy(one, h)[0]
        assert on_visible[i] == pytest.approx(gap)
    assert machine.architecture == architecture
    assert machine.restricted == (architecture == "brf")


def test_masks_leave_connections_out() -> None:
    mask = np.array([[True, False], [False, True], [True, True]])
    lateral = np.ones((3, 3), dtype=bool)
    machine = Machine.random(3, 2, masks={"weights": mask, "visible_weights": lateral}, scale=1.0)
    assert np.all(machine.weights[~mask] == 0) and np.all(machine.weights[mask] != 0)
    assert list(machine.masks) == ["weights"]  # a full lateral block is no mask
    assert machine.architecture == "poe"
    twin = machine.copy(np.float32)
    assert twin.dtype == np.float32 and twin.masks is machine.masks
    twin.weights[0, 0] = 9
    assert machine.weights[0, 0] != 9


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Machine.random(0, 2), "at least one visible"),
        (lambda: Machine.random(2, 2, architecture="rbm"), "must be one of brf"),
        (lambda: Machine.random(2, 2, masks={"weight": np.ones((2, 2))}), "no connections"),
        (lambda: Machine.random(2, 2, masks={"weights": np.ones((3, 2))}), "must be"),
        (
            lambda: Machine.random(2, 2, masks={"visible_weights": np.triu(np.ones((2, 2)))}),
            "symmetric",
        ),
        (lambda: Machine(np.zeros((2, 2)), np.zeros(3), np.zeros(2)), "visible_bias has shape"),
        (lambda: Machine(np.full((2, 2), np.nan), np.zeros(2), np.zeros(2)), "not finite"),
        (
            lambda: Machine(np.zeros((2, 1)), np.zeros(2), np.zeros(1), np.eye(2)),
            "zeros on the diagonal",
        ),
    ],
)
def test_bad_machines_are_refused(make, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        make()
