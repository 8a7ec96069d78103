"""Recordings of spoken digits in a folder, as sequences of cepstral coefficients.

Files are named DIGIT_SPEAKER_NUMBER.wav, as in the free collection of spoken digits at 8 kHz.

Reference: LIU-X7.
"""

from __future__ import annotations

import re
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError

_NAME = re.compile(r"(\d)_([a-z]+)_(\d+)\.wav", re.IGNORECASE)
_WINDOW, _HOP = 0.025, 0.010  # seconds
_BANDS = 26
_REACH = 2  # frames on each side from which slopes are taken


class SpokenDigit(NamedTuple):
    """One spoken digit: frames of coefficients (time, columns), the digit, who spoke, and which."""

    frames: Array
    digit: int
    speaker: str
    number: int


def spoken_digits(
    folder: str | PathLike[str], *, coefficients: int = 13, slopes: bool = True
) -> list[SpokenDigit]:
    """Every recording of a folder, in the order of the names.

    With `slopes` each frame also holds how fast the coefficients change.
    """
    found = sorted(Path(folder).glob("*.wav"))
    named = [(path, match) for path in found if (match := _NAME.fullmatch(path.name))]
    if not named:
        raise DataError(
            f"{folder}: no recordings named DIGIT_SPEAKER_NUMBER.wav; give their folder"
        )
    return [
        SpokenDigit(
            _frames(path, coefficients, slopes),
            int(match.group(1)),
            match.group(2).lower(),
            int(match.group(3)),
        )
        for path, match in named
    ]


def _frames(path: Path, coefficients: int, slopes: bool) -> Array:
    from scipy.io import wavfile

    try:
        rate, sound = wavfile.read(path)
    except ValueError as error:
        raise DataError(f"{path}: is no recording that can be read ({error})") from None
    samples = np.asarray(sound, dtype=np.float64)
    if samples.ndim > 1:
        samples = samples.mean(axis=1)
    frames = cepstra(samples, int(rate), coefficients)
    return np.hstack([frames, _slopes(frames)]) if slopes else frames


def cepstra(samples: Array, rate: int, coefficients: int = 13) -> Array:
    """Mel-frequency cepstral coefficients of frames of 25 ms every 10 ms, without their mean.

    >>> cepstra(np.random.default_rng(0).normal(size=4000), 8000).shape
    (48, 13)
    """
    from scipy.fft import dct

    width, hop = round(_WINDOW * rate), round(_HOP * rate)
    bright = np.append(samples[0], samples[1:] - 0.97 * samples[:-1])
    bright = np.pad(bright, (0, max(width - len(bright), 0)))
    count = 1 + (len(bright) - width) // hop
    index = np.arange(width)[None] + hop * np.arange(count)[:, None]
    size = 1 << (width - 1).bit_length()
    power = np.abs(np.fft.rfft(bright[index] * np.hamming(width), size)) ** 2
    bands = np.log(power @ _mel_bands(rate, size).T + 1e-10 * power.max() + 1e-30)
    found = dct(bands, type=2, norm="ortho", axis=1)[:, :coefficients]
    return np.asarray(found - found.mean(axis=0))


@lru_cache(maxsize=8)
def _mel_bands(rate: int, size: int) -> Array:
    """Triangles that are equally wide in mel."""
    top = 2595.0 * np.log10(1.0 + rate / 2.0 / 700.0)
    edges = 700.0 * (10.0 ** (np.linspace(0.0, top, _BANDS + 2) / 2595.0) - 1.0)
    frequency = np.arange(size // 2 + 1) * rate / size
    low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (frequency - low) / (middle - low), (high - frequency) / (high - middle)
    return np.asarray(np.maximum(0.0, np.minimum(rising, falling)))


def _slopes(frames: Array) -> Array:
    """Slopes of straight lines through the frames around each one."""
    padded = np.pad(frames, ((_REACH, _REACH), (0, 0)), mode="edge")
    steps = np.arange(-_REACH, _REACH + 1)
    parts = [k * padded[_REACH + k : _REACH + k + len(frames)] for k in steps]
    return np.asarray(np.sum(parts, axis=0) / np.sum(steps**2))
