"""Recordings: samples of several sensors, read from and written to files.

Tables (CSV, Parquet, npz, npy), sound (several wave files are the sensors of one recording) and
brain scans (NIfTI, with `kikuchi[fmri]`).
"""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError, MethodError, suggestion
from kikuchi.core.files import (
    atomic_write,
    guarded_reading,
    read_bytes,
    require_room,
    suffix_of,
)
from kikuchi.core.tables import Table, as_numbers, read_table
from kikuchi.core.text import spreadsheet_cell
from kikuchi.ica.fmri import read_nifti
from kikuchi.ica.recording import LARGEST, File, Recording

SUFFIXES = (".csv", ".tsv", ".parquet", ".npz", ".npy", ".wav", ".nii")


def read_recording(
    paths: File | Sequence[File], *, rate: float | None = None, mask: Any = "auto"
) -> Recording:
    """The recording in a file, or in several wave files of equal rate and length.

    A .csv or .tsv file has one line per sample, perhaps below a line of names; empty cells are
    missing (NaN). An .npz file has an array `data` (or just one array) and perhaps `sensors` and
    `rate`. For .nii and .nii.gz see `kikuchi.ica.fmri.read_nifti`. `rate` overrides the file's.

    `paths` is one file or several, `mask` the voxels of scans to take ("auto": those that are
    bright).
    """
    files = [Path(p) for p in ([paths] if isinstance(paths, str | PathLike) else paths)]
    if not files:
        raise DataError("no files were given; name at least one recording")
    suffixes = {suffix_of(place) for place in files}
    for place in files:
        if suffix_of(place) not in SUFFIXES:
            raise DataError(f"{place}: not a recording; {suggestion(suffix_of(place), SUFFIXES)}")
        if not place.is_file():
            raise DataError(f"{place}: no such file")
    if rate is not None and not 0 < rate < np.inf:
        raise MethodError(f"rate must be a positive number of samples per second, got {rate!r}")
    if len(files) > 1 and suffixes != {".wav"}:
        raise DataError("several files make one recording only if all are .wav; give one file")
    if suffixes == {".wav"}:
        return _with_rate(_read_waves(files), rate)
    if suffixes == {".nii"}:
        return _with_rate(read_nifti(files[0], mask=mask), rate)
    return _with_rate(_read_table(files[0]), rate)


def write_recording(path: File, recording: Recording) -> float:
    """Write as .csv, .tsv, .npz or .wav by the suffix; returns the gain (1 but for sound)."""
    place = Path(path)
    suffix = suffix_of(place)
    if suffix == ".wav":
        if recording.rate is None:
            raise DataError(f"{place}: a wave file needs the rate of the recording")
        return write_wav(place, recording.data, recording.rate)
    if suffix == ".npz":
        extra: dict[str, Any] = {} if recording.rate is None else {"rate": recording.rate}
        names = np.array(recording.names)
        with atomic_write(place, "wb") as file:
            np.savez_compressed(file, data=recording.data, sensors=names, **extra)
        return 1.0
    if suffix not in (".csv", ".tsv"):
        raise DataError(
            f"{place}: cannot write this; {suggestion(suffix, ['.csv', '.tsv', '.npz', '.wav'])}"
        )
    write_matrix(place, recording.data, recording.names)
    return 1.0


def write_matrix(
    path: File,
    values: Array,
    columns: Sequence[str],
    rows: Sequence[str] | None = None,
    of_rows: str = "",
) -> None:
    """Write a matrix as .csv or .tsv with a line of column names; with names of the `rows` as first
    column, `of_rows` being its title. NaN becomes an empty cell.
    """
    place = Path(path)
    head = list(columns) if rows is None else [of_rows, *columns]
    with atomic_write(place) as file:
        tab = "\t" if suffix_of(place) == ".tsv" else ","
        writer = csv.writer(file, lineterminator="\n", delimiter=tab)
        writer.writerow(map(spreadsheet_cell, head))
        for k, row in enumerate(values.tolist()):
            first = [] if rows is None else [spreadsheet_cell(rows[k])]
            writer.writerow([*first, *("" if value != value else repr(value) for value in row)])


def write_wav(path: File, signal: ArrayLike, rate: float, *, peak: float = 0.9) -> float:
    """Write a signal (samples,) or (samples, channels) as 16-bit sound whose loudest sample is
    `peak` of full scale; returns the gain: what was written is `gain * signal`.

    >>> import tempfile, pathlib
    >>> target = pathlib.Path(tempfile.mkdtemp()) / "tone.wav"
    >>> write_wav(target, np.array([0.0, 0.3, -0.1]), 8000)
    3.0
    """
    from scipy.io import wavfile

    values = np.asarray(signal, dtype=np.float64)
    if values.ndim not in (1, 2) or values.size == 0 or not np.isfinite(values).all():
        raise DataError(f"{path}: sound is (samples,) or (samples, channels) of finite numbers")
    if not 0 < peak <= 1:
        raise MethodError(f"peak must be in (0, 1], got {peak!r}")
    if rate < 1 or rate != int(rate):
        raise DataError(f"{path}: a wave file needs a whole rate in samples per second, got {rate}")
    loudest = float(np.abs(values).max())
    gain = peak / loudest if loudest > 0 else 1.0
    scaled = np.round(gain * values * 32767).astype(np.int16)
    with atomic_write(path, "wb") as file:
        wavfile.write(file, int(rate), scaled)
    return gain


def checked_samples(estimator: Any, X: Any, *, reset: bool) -> Array:
    """Rows that an estimator can use: finite, of moderate size, and no sensor constant in a fit."""
    from kikuchi.training.estimator import validate_data

    samples = validate_data(
        estimator,
        X,
        reset=reset,
        dtype=np.float64,
        ensure_all_finite=False,
        ensure_min_samples=2 if reset else 1,
    )
    name = type(estimator).__name__
    bad = ~(np.abs(samples) <= LARGEST)
    if bad.any():
        row, sensor = (int(k) for k in np.argwhere(bad)[0])
        what = "NaN" if np.isnan(samples[row, sensor]) else f"inf or beyond {LARGEST:g}"
        raise DataError(
            f"{name}: row {row}, sensor {sensor} is {what}; fill or remove such values first"
        )
    if reset:
        _check_constant(name, samples)
    return np.asarray(samples)


def checked_sources(estimator: Any, sources: ArrayLike, count: int) -> Array:
    """Rows of `count` finite source values, for `inverse_transform`."""
    if np.iscomplexobj(sources):
        raise DataError(f"{type(estimator).__name__}: sources are real numbers, got complex ones")
    rows = np.asarray(sources, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != count or not np.isfinite(rows).all():
        raise DataError(
            f"{type(estimator).__name__}: sources are finite numbers of shape (samples, {count}), "
            f"got shape {rows.shape}"
        )
    return rows


def _check_constant(name: str, samples: Array) -> None:
    size = np.abs(samples).max(axis=0)
    constant = np.flatnonzero(np.ptp(samples, axis=0) <= 1e-14 * size)
    if len(constant):
        shown = ", ".join(map(str, constant[:5])) + (", ..." if len(constant) > 5 else "")
        if len(constant) == 1:
            raise DataError(f"{name}: sensor {shown} never changes; remove it before the fit")
        raise DataError(f"{name}: sensors {shown} never change; remove them before the fit")


# ---------------------------------------------------------------------- tables


def _with_rate(recording: Recording, rate: float | None) -> Recording:
    return recording if rate is None else replace(recording, rate=float(rate))


def _read_table(place: Path) -> Recording:
    table = read_table(place, what="a recording")
    values = table.values[:, None] if table.values.ndim == 1 else table.values
    names = table.names or np.atleast_1d(table.others.get("sensors", np.array([])))
    return Recording(values, tuple(map(str, names)), _rate_of(place, table), source=str(place))


def _rate_of(place: Path, table: Table) -> float | None:
    if "rate" not in table.others:
        return None
    given = as_numbers(table.others["rate"], f"{place}: rate")
    if given.size != 1 or not 0 < float(given.ravel()[0]) < np.inf:
        raise DataError(f"{place}: 'rate' must be one positive number")
    return float(given.ravel()[0])


# ---------------------------------------------------------------------- sound


def _read_waves(files: list[Path]) -> Recording:
    sounds = [_read_wave(place) for place in files]
    for place, (rate, signal) in zip(files, sounds, strict=True):
        first_rate, first = sounds[0]
        if rate != first_rate:
            raise DataError(
                f"{place}: {rate} samples per second, but {files[0]} has {first_rate}; "
                "bring all files to one rate"
            )
        if len(signal) != len(first):
            raise DataError(
                f"{place}: {len(signal)} samples, but {files[0]} has {len(first)}; "
                "cut all files to one length"
            )
    sensors = [
        place.stem if signal.shape[1] == 1 else f"{place.stem} {channel + 1}"
        for place, (_, signal) in zip(files, sounds, strict=True)
        for channel in range(signal.shape[1])
    ]
    data = np.concatenate([signal for _, signal in sounds], axis=1)
    return Recording(data, tuple(sensors), float(sounds[0][0]), source=", ".join(map(str, files)))


def _read_wave(place: Path) -> tuple[int, Array]:
    """Rate and signal in [-1, 1], (samples, channels)."""
    from scipy.io import wavfile

    content = read_bytes(place)
    with guarded_reading(place, "a wave file"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=wavfile.WavFileWarning)
        warnings.filterwarnings("error", message=".*(EOF|premature|incomplete).*")
        rate, signal = wavfile.read(io.BytesIO(content))
    if rate <= 0 or signal.size == 0:
        raise DataError(f"{place}: the wave file holds no samples or no rate")
    require_room(place, 8 * signal.size, f"sound of {signal.size} samples")
    values = signal.astype(np.float64)
    if signal.dtype == np.uint8:
        values = (values - 128.0) / 128.0
    elif signal.dtype.kind == "i":
        values /= -float(np.iinfo(signal.dtype).min)
    if not np.isfinite(values).all():
        raise DataError(f"{place}: the wave file holds NaN or infinite samples")
    return int(rate), values[:, None] if values.ndim == 1 else values
