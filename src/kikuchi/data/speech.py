"""Synthetic speech-like sources: silent half of the time, heavy-tailed, modulated.

Reference: HOJ-E5.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import MethodError
from kikuchi.core.seeds import Seed, generator

_BLOCK = 0.025  # seconds, about the length of a stationary piece of speech
_SILENT = 0.55  # fraction of the blocks
_SYLLABLE = 0.2
_VOWELS = (  # first three resonances of some vowels, in Hz
    (730.0, 1090.0, 2440.0),
    (270.0, 2290.0, 3010.0),
    (300.0, 870.0, 2240.0),
    (530.0, 1840.0, 2480.0),
    (570.0, 840.0, 2410.0),
)
_WIDTHS = (60.0, 90.0, 150.0)


def speech_like(
    n_sources: int = 3,
    seconds: float = 1.0,
    rate: int = 8000,
    *,
    kind: Literal["gated", "voiced"] = "gated",
    seed: Seed = 0,
) -> Array:
    """Return independent signals (samples, sources), each scaled to maximum absolute value 1.

    `gated`: Laplace noise, silent in 55 % of its blocks of 25 ms, with gamma amplitudes and a
    smooth envelope. `voiced`: syllables of a buzz with its own pitch through the resonances of
    vowels, or of hiss, with pauses.

    >>> sources = speech_like(3, seed=1)
    >>> sources.shape, float(np.abs(sources).max())
    ((8000, 3), 1.0)
    """
    if n_sources < 1 or rate < 1000 or not seconds * rate >= 2 * _BLOCK * rate:
        raise MethodError(
            f"speech needs at least 1 source, 1000 samples per second and {2 * _BLOCK} seconds, "
            f"got {n_sources}, {rate} and {seconds}"
        )
    if kind not in ("gated", "voiced"):
        raise MethodError(f"speech is gated or voiced, got {kind!r}")
    rng = generator(seed)
    n_samples = round(seconds * rate)
    make = _gated if kind == "gated" else _voiced
    signals = np.stack([make(n_samples, rate, rng) for _ in range(n_sources)], axis=1)
    return np.asarray(signals / np.abs(signals).max(axis=0))


def _gated(n_samples: int, rate: int, rng: np.random.Generator) -> Array:
    """Laplace noise under a gated envelope."""
    width = round(_BLOCK * rate)
    blocks = -(-n_samples // width) + 1
    open_ = rng.random(blocks) >= _SILENT
    if not open_.any():
        open_[rng.integers(blocks)] = True
    amplitudes = open_ * rng.gamma(1.0, 1.0, blocks)
    envelope = np.repeat(amplitudes, width)
    window = np.hanning(width + 2)[1:-1]
    smooth = np.convolve(envelope, window / window.sum(), mode="same")[:n_samples]
    return np.asarray(smooth * rng.laplace(size=n_samples))


def _voiced(n_samples: int, rate: int, rng: np.random.Generator) -> Array:
    """Syllables one after the other, with pauses."""
    pitch = rng.uniform(90.0, 230.0)
    out = np.zeros(n_samples)
    start = 0
    while start < n_samples:
        length = min(round(rate * _SYLLABLE * rng.uniform(0.5, 1.5)), n_samples - start)
        if rng.random() > 0.3 or not out.any():
            out[start : start + length] = _syllable(length, rate, pitch, rng)
        start += length
    return out if out.any() else _gated(n_samples, rate, rng)


def _syllable(length: int, rate: int, pitch: float, rng: np.random.Generator) -> Array:
    from scipy.signal import lfilter

    envelope = np.hanning(length + 2)[1:-1] * rng.gamma(2.0, 0.5)
    if rng.random() < 0.25:  # a consonant: differences of white noise are bright
        noise = rng.standard_normal(length + 1)
        return np.asarray(0.3 * envelope * np.diff(noise))
    glide = pitch * (1 + 0.1 * rng.standard_normal() * np.linspace(-1, 1, length))
    turns = np.cumsum(glide / rate) + rng.random()
    sound = np.diff(np.floor(turns), prepend=0.0) + 0.02 * rng.standard_normal(length)
    for resonance, width in zip(_VOWELS[rng.integers(len(_VOWELS))], _WIDTHS, strict=True):
        if resonance < 0.45 * rate:
            radius = np.exp(-np.pi * width / rate)
            turn = 2 * np.cos(2 * np.pi * resonance / rate)
            sound = lfilter([1 - radius], [1.0, -radius * turn, radius**2], sound)
    return np.asarray(envelope * sound / max(float(np.abs(sound).max()), 1e-12))
