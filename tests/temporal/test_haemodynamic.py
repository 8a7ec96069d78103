"""A hidden on-off state seen through the response of the blood (HOJ-X4)."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from kikuchi.core.errors import KikuchiError
from kikuchi.temporal.chains.haemodynamic import BloodModel, HaemodynamicHMM, blood_response
from kikuchi.temporal.sequences import read_sequences


def test_posterior_equals_enumeration() -> None:
    model = BloodModel(0.3, 0.4, np.array([0.5]), np.array([[0.2, 1.0, 0.4]]), np.array([0.3]))
    rows = np.random.default_rng(0).normal(size=(7, 1)) + 0.5
    hmm = HaemodynamicHMM(lags=3)
    hmm.model_, hmm.n_features_in_ = model, 1
    total, on = 0.0, np.zeros(7)
    for path in itertools.product((0, 1), repeat=7):
        p, before = 1.0, 0
        for t, s in enumerate(path):
            p *= [[0.7, 0.3], [0.4, 0.6]][before][s]
            mean = 0.5 + sum(h * path[t - lag] for lag, h in enumerate((0.2, 1.0, 0.4)) if t >= lag)
            p *= np.exp(-0.5 * (rows[t, 0] - mean) ** 2 / 0.3) / np.sqrt(2 * np.pi * 0.3)
            before = s
        total += p
        on += p * np.array(path)
    found = hmm.smooth(rows)
    assert np.allclose(found.probability, on / total)
    assert np.isclose(found.log_likelihood, np.log(total))


def test_state_and_response_are_found_again() -> None:
    rng = np.random.default_rng(1)
    shape = blood_response(6, 2.0)
    truth = BloodModel(
        0.06, 0.08, np.array([10.0, -3.0]), np.array([[4.0], [2.0]]) * shape, np.array([0.2, 0.2])
    )
    maker = HaemodynamicHMM(lags=6)
    maker.model_ = truth
    rows, on = maker.sample(250, random_state=2, return_latents=True)
    rows[rng.random(rows.shape) < 0.05] = np.nan
    brain = HaemodynamicHMM(lags=6, tol=1e-5).fit(rows)
    assert np.diff(brain.trace_.objective).min() > -1e-6
    found = brain.smooth(rows)
    assert np.mean((found.probability > 0.5) == (on > 0.5)) > 0.93
    for k in range(2):
        assert np.corrcoef(brain.model_.response[k], truth.response[k])[0, 1] > 0.9


def test_gradient_fit_and_forecast() -> None:
    shape = blood_response(4, 2.0)
    truth = BloodModel(0.1, 0.2, np.array([1.0]), 3.0 * shape[None], np.array([0.3]))
    maker = HaemodynamicHMM(lags=4)
    maker.model_, maker.n_features_in_ = truth, 1
    rows = maker.sample(120, random_state=3)
    sequences = read_sequences(rows)
    at = maker._pack(truth)
    slope = maker._gradient(truth, maker._expectation(truth, sequences)[1])
    for i in range(len(at)):
        step = np.zeros(len(at))
        step[i] = 1e-5
        high, low = (
            maker._expectation(maker._unpack(truth, at + s), sequences)[0] for s in (step, -step)
        )
        assert np.isclose(slope[i], (high - low) / 2e-5, rtol=1e-4, atol=1e-4)
    em = HaemodynamicHMM(lags=4, tol=1e-7).fit_em(rows)
    up = HaemodynamicHMM(lags=4, tol=1e-9, learner="gradient").fit(rows)
    assert np.isclose(em.log_likelihood_, up.log_likelihood_, atol=0.05)
    ahead = maker.forecast(rows, 200)
    assert np.isclose(ahead.probability[-1], 0.1 / 0.3, atol=1e-6)  # what the chain tends to
    assert np.isclose(ahead.mean[-1, 0], 1.0 + 3.0 * 0.1 / 0.3, atol=1e-6)
    far = maker.sample(20_000, random_state=0)
    assert np.isclose(ahead.variance[-1, 0], far.var(), rtol=0.1)
    with pytest.raises(KikuchiError, match="at least 1"):
        maker.forecast(rows, 0)


def test_small_real_scans(tmp_path: Path) -> None:
    pytest.importorskip("nitime")
    nibabel = pytest.importorskip("nibabel")
    from kikuchi_experiments.data.brain import brain_file

    scans = np.asarray(nibabel.load(brain_file("fmri1")).dataobj, dtype=float).reshape(-1, 40)
    inside = scans[scans.mean(axis=1) > 0.5 * scans.mean(axis=1).max()]
    loud = inside[np.argsort(inside.std(axis=1))[-30:]]
    course = ((loud - loud.mean(axis=1, keepdims=True)) / loud.std(axis=1, keepdims=True)).mean(
        axis=0
    )
    brain = HaemodynamicHMM(lags=5, interval=2.0).fit(course[:, None])
    found = brain.smooth(course[:, None])
    flat = -0.5 * 40 * (np.log(2 * np.pi * course.var()) + 1)
    assert found.log_likelihood > flat and np.isfinite(found.probability).all()
    brain.save(tmp_path / "b.safetensors")
    again = HaemodynamicHMM.load(tmp_path / "b.safetensors")
    assert np.array_equal(again.smooth(course[:, None]).probability, found.probability)


def test_a_large_offset_does_not_change_a_fit() -> None:
    rng = np.random.default_rng(1)
    on = np.repeat([0.0, 1.0, 0.0, 1.0, 0.0], 12)
    rows = np.convolve(on, blood_response(4, 2.0))[:60][:, None] + 0.2 * rng.normal(size=(60, 1))
    rows = np.round(256 * rows) / 256
    near, far = (HaemodynamicHMM(lags=4, max_iter=15).fit(rows + k) for k in (0.0, 2.0**24))
    assert np.isclose(near.log_likelihood_, far.log_likelihood_, rtol=1e-4)
    assert np.isclose(near.log_likelihood_, near.score_samples(rows).sum())
    ahead = near.forecast(rows, 2), far.forecast(rows + 2.0**24, 2)
    assert np.allclose(ahead[0].deviation, ahead[1].deviation, rtol=1e-4)
