"""The simulated brain is what it says, and the real recordings are read."""

from __future__ import annotations

import numpy as np
import pytest

from kikuchi.core.errors import DataError, MethodError, MissingExtraError
from kikuchi_experiments.data.brain import brain_file, simulate_brain


def test_scans_are_maps_times_courses_plus_noise():
    brain = simulate_brain((32, 32, 12), 80, noise=0.5, seed=4)
    clean = np.einsum("kxyz,kt->xyzt", brain.maps, brain.courses) + brain.anatomy[..., None]
    rest = brain.scans - clean
    assert rest.std() == pytest.approx(0.5, rel=0.01)
    assert abs(rest.mean()) < 0.01
    assert not brain.maps[:, ~brain.mask].any()
    assert brain.matrix.shape == (80, brain.mask.sum())
    assert np.abs(brain.matrix.mean(axis=0)).max() < 1e-9
    quiet = simulate_brain((32, 32, 12), 80, noise=0.0, seed=4)
    assert np.abs(quiet.scans - clean).max() < 1e-4


def test_the_default_has_the_size_of_the_target():
    brain = simulate_brain()
    assert brain.scans.shape == (64, 64, 20, 100)
    assert brain.scans.dtype == np.float32
    assert 20_000 < brain.mask.sum() < 45_000
    # With the true courses known, least squares gives every map with a correlation above 0.9.
    maps = np.linalg.lstsq(brain.courses.T, brain.matrix, rcond=None)[0]
    own = [np.corrcoef(a, b)[0, 1] for a, b in zip(maps, brain.voxel_maps, strict=True)]
    assert min(own) > 0.9
    assert np.abs(np.corrcoef(brain.voxel_maps) - np.eye(5)).max() < 0.15


def test_the_first_component_follows_the_stimulus():
    brain = simulate_brain((16, 16, 8), 100)
    assert np.corrcoef(brain.courses[0], brain.response)[0, 1] == pytest.approx(1.0)
    lagged = [np.corrcoef(brain.stimulus[: 100 - k], brain.response[k:])[0, 1] for k in range(6)]
    assert 1 <= int(np.argmax(lagged)) <= 4  # about 5 s late at 2 s a scan
    assert set(np.unique(brain.stimulus)) == {0.0, 1.0}
    assert brain.response.min() >= 0
    assert brain.response.max() == pytest.approx(1.0)


def test_seeds():
    same = [simulate_brain((12, 12, 8), 30, seed=1).scans for _ in range(2)]
    assert np.array_equal(*same)
    assert not np.array_equal(same[0], simulate_brain((12, 12, 8), 30, seed=2).scans)


@pytest.mark.parametrize(
    "options",
    [
        {"shape": (4, 9, 9)},
        {"n_scans": 5},
        {"interval": 0.0},
        {"noise": -1.0},
        {"block": 1.0},
        {"block": 1e4},
    ],
)
def test_impossible_brains(options):
    with pytest.raises(MethodError):
        simulate_brain(**options)


def test_real_recordings():
    pytest.importorskip("nitime")
    assert brain_file("fmri2").is_file()
    with pytest.raises(DataError, match="did you mean 'fmri"):
        brain_file("fmri3")


def test_without_the_package(monkeypatch):
    monkeypatch.setattr("kikuchi.data.images.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="pip install"):
        brain_file("fmri1")
