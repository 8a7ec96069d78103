"""`BoltzmannMachine` as an estimator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

from kikuchi.boltzmann import BoltzmannMachine
from kikuchi.boltzmann.exact import clamped, log_likelihood
from kikuchi.core.errors import ModelError

PATTERNS = np.array([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1], [1, 0, 1, 0, 1, 0]])
ROWS = PATTERNS[np.random.default_rng(0).integers(0, 3, 200)]


def test_scikit_learn_accepts_the_estimator() -> None:
    check_estimator(BoltzmannMachine(2, max_iter=1, limits="data", random_state=0))


@pytest.mark.parametrize("architecture", ["brf", "hrf", "poe", "fcrf"])
@pytest.mark.parametrize("learner", ["cf:energy=mf,k=1", "cd", "exact"])
def test_every_architecture_learns(architecture: str, learner: str) -> None:
    """WH-M1, WH-M2."""
    options = {"architecture": architecture, "learner": learner, "random_state": 0}
    machine = BoltzmannMachine(3, max_iter=15, dtype="float64", **options).fit(ROWS)
    start = BoltzmannMachine(3, max_iter=1, learning_rate=1e-9, **options).fit(ROWS)
    assert machine.model_.architecture == architecture
    gain = log_likelihood(machine.model_, ROWS).mean() - log_likelihood(start.model_, ROWS).mean()
    assert gain > 0.5
    assert machine.transform(ROWS).shape == (200, 3)
    assert machine.reconstruct(ROWS).shape == ROWS.shape
    assert machine.sample(5, steps=3).shape == (5, 6)


def test_exact_energy_gives_exact_answers(tmp_path: Path) -> None:
    machine = BoltzmannMachine(3, energy="exact", dtype="float64", random_state=0).fit(ROWS)
    truth = clamped(machine.model_, ROWS)
    assert np.allclose(machine.transform(ROWS), truth.hidden)
    assert np.allclose(machine.free_energy(ROWS), -truth.log_weights)
    machine.log_z("exact")
    assert np.allclose(machine.score_samples(ROWS), log_likelihood(machine.model_, ROWS))
    machine.save(tmp_path / "m.safetensors")
    back = BoltzmannMachine.load(tmp_path / "m.safetensors")
    assert np.array_equal(back.score_samples(ROWS), machine.score_samples(ROWS))


def test_mean_field_free_energy_is_never_below_the_exact_one() -> None:
    machine = BoltzmannMachine(4, architecture="fcrf", random_state=0, max_iter=30).fit(ROWS)
    exact = -clamped(machine.model_, ROWS).log_weights
    assert np.all(machine.free_energy(ROWS) >= exact - 1e-5)


def test_masks_and_visible_machines() -> None:
    ring = np.roll(np.eye(6, dtype=bool), 1, axis=1)
    masks = {"visible_weights": ring | ring.T}
    machine = BoltzmannMachine(0, masks=masks, learner="pseudo", random_state=0).fit(ROWS)
    weights = machine.model_.visible_weights
    assert np.all(weights[~masks["visible_weights"]] == 0)
    assert np.all(weights[masks["visible_weights"]] != 0)
    weak = (np.random.default_rng(0).random((500, 6)) < 0.4).astype(float)
    shot = BoltzmannMachine(0, architecture="poe", learner="one-shot").fit(weak)
    assert shot.stopped_ == "converged"
    shot = BoltzmannMachine(0, architecture="poe", learner="one-shot").fit(ROWS)
    assert not shot.converged_  # three patterns only: worse than independent units
    assert any("independent" in warning for warning in shot.warnings_)
    with pytest.raises(ModelError, match="no connections"):
        BoltzmannMachine(2, masks={"w": ring}).fit(ROWS)
    with pytest.raises(ModelError, match="must be one of"):
        BoltzmannMachine(2, architecture="deep").fit(ROWS)
