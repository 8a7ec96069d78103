"""Speech-like sources: heavy-tailed, silent for a while, independent (HOJ-E5)."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kurtosis

from kikuchi.core.errors import MethodError
from kikuchi.data.speech import speech_like


@pytest.mark.parametrize("kind", ["gated", "voiced"])
def test_sources_are_like_speech(kind):
    sources = speech_like(4, 2.0, kind=kind, seed=3)
    assert sources.shape == (16000, 4)
    assert np.abs(sources).max(axis=0) == pytest.approx(1.0)
    assert (kurtosis(sources) > 5).all()
    correlation = np.abs(np.corrcoef(sources.T) - np.eye(4))
    assert correlation.max() < 0.1
    # Loudness lasts: squares of neighbours 5 ms apart are alike, those half a second apart not.
    power = sources**2 - (sources**2).mean(axis=0)
    size = (power**2).mean(axis=0)
    near = (power[40:] * power[:-40]).mean(axis=0) / size
    far = (power[4000:] * power[:-4000]).mean(axis=0) / size
    assert (near > far).all()
    frames = np.abs(sources[: 16000 // 200 * 200].reshape(-1, 200, 4)).max(axis=1)
    assert ((frames < 0.05).mean(axis=0) > 0.1).all()


def test_gated_sources_are_silent_about_half_of_the_time():
    sources = speech_like(1, 60.0, seed=0)
    blocks = np.abs(sources[:, 0].reshape(-1, 200)).max(axis=1)
    both_closed = 0.55**2  # a smooth envelope is silent only where neighbours are
    assert (blocks == 0).mean() == pytest.approx(both_closed * 0.55, abs=0.25)
    assert 0.1 < (blocks < 1e-3).mean() < 0.6


def test_voices_have_a_pitch():
    sources = speech_like(1, 3.0, kind="voiced", seed=1)[:, 0]
    spectrum = np.abs(np.fft.rfft(np.abs(sources) - np.abs(sources).mean())) ** 2
    pitch = np.fft.rfftfreq(len(sources), 1 / 8000)
    band = (pitch > 70) & (pitch < 260)
    rest = (pitch > 1000) & (pitch < 3000)
    assert spectrum[band].max() > 20 * spectrum[rest].mean()


def test_seeds_and_bad_options():
    assert np.array_equal(speech_like(2, seed=5), speech_like(2, seed=5))
    assert not np.array_equal(speech_like(2, seed=5), speech_like(2, seed=6))
    for options in ({"n_sources": 0}, {"rate": 10}, {"seconds": 0.01}, {"kind": "sung"}):
        with pytest.raises(MethodError):
            speech_like(**options)
