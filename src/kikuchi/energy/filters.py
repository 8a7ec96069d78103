"""What learnt filters look like: Gabor functions fitted to those of pictures, power spectra, and
time and frequency of those of sounds.

A Gabor function is a wave under a bell: with (u, v) the distances from its centre along and across
the direction of the wave,

    g = exp(-u² / 2 a² - v² / 2 b²) (p cos 2 pi f u + q sin 2 pi f u).

The best places in a large dictionary of such functions are where nonlinear least squares begins, by
all filters at once.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError
from kikuchi.plots.images import as_images

_ROUNDS = 60  # of least squares
_STARTS = 4
_PLACES = 8  # centres along each side
_DIRECTIONS = 8
_WAVES = (0.03, 0.06, 0.09, 0.13, 0.19, 0.27, 0.38, 0.5, 0.64)  # cycles per pixel
_SPREADS = (0.06, 0.13, 0.28)  # of the side
_ASPECTS = (0.5, 1.0, 2.0)
_HALF = math.sqrt(2.0 * math.log(2.0))  # a Gaussian falls to half at so many deviations
_FASTEST = math.sqrt(0.5)  # cycles per pixel along the diagonal


# ---------------------------------------------------------------------- Gabor functions


@dataclass(frozen=True)
class GaborFits:
    """Gabor functions, one per filter.

    `centre` (row and column) and `spread` (standard deviations of the bell along and across the
    wave) are in pixels, `frequency` in cycles per pixel. `orientation` is that of the bars in
    degrees, counter-clockwise: 0 is horizontal. `bandwidth` is the width of the spectrum at half
    its height in octaves (infinite if it reaches frequency 0), `orientation_bandwidth` that in
    degrees. `r_squared` is the part of the variance of the filter's pixels that is explained.
    """

    shape: tuple[int, int]
    centre: Array
    orientation: Array
    frequency: Array
    spread: Array
    phase: Array
    r_squared: Array
    fitted: Array

    @property
    def bandwidth(self) -> Array:
        """Octaves between the frequencies at which the spectrum has half its height."""
        half = _HALF / (2.0 * np.pi * self.spread[:, 0])
        low = self.frequency - half
        with np.errstate(divide="ignore", invalid="ignore"):
            octaves = np.log2((self.frequency + half) / low)
        return np.asarray(np.where(low > 0, octaves, np.inf))

    @property
    def orientation_bandwidth(self) -> Array:
        """Degrees between the orientations at which the spectrum has half its height."""
        half = _HALF / (2.0 * np.pi * self.spread[:, 1])
        return np.asarray(2.0 * np.degrees(np.arctan2(half, self.frequency)))

    def share(self, above: float = 0.8) -> float:
        """Share of the filters whose fit explains more than this."""
        return float(np.mean(self.r_squared > above))

    def to_dict(self) -> dict[str, Any]:
        """Plain data: one list per quantity."""
        names = ("centre", "orientation", "frequency", "spread", "bandwidth", "r_squared")
        told = {name: np.asarray(getattr(self, name)).tolist() for name in names}
        told["bandwidth"] = [None if math.isinf(b) else b for b in told["bandwidth"]]
        return told


def fit_gabors(filters: ArrayLike, shape: tuple[int, int]) -> GaborFits:
    """The Gabor function nearest to each filter, a row of pixels of a picture of this shape.

    `filters` has one row per filter, `shape` is (height, width).

    >>> y, x = np.mgrid[:12, :12]
    >>> bars = np.exp(-((x - 5) ** 2 + (y - 7) ** 2) / 8) * np.cos(2 * np.pi * 0.2 * (x - 5))
    >>> fit = fit_gabors(bars.reshape(1, -1), (12, 12))
    >>> bool(fit.r_squared[0] > 0.999), fit.centre.round(2).tolist(), fit.orientation.round()
    (True, [[7.0, 5.0]], array([90.]))
    """
    pixels = as_images(filters, shape).reshape(-1, shape[0] * shape[1])
    if not np.isfinite(pixels).all():
        raise DataError("filters that are not finite have no Gabor functions")
    sizes = np.linalg.norm(pixels, axis=1)
    unit = (pixels / np.where(sizes > 0, sizes, 1.0)[:, None]).astype(np.float32)
    starts = _starts(unit, shape)
    count = len(unit)
    repeated = np.repeat(unit, starts.shape[1], axis=0)
    found, errors = _least_squares(jnp.asarray(repeated), jnp.asarray(starts.reshape(-1, 8)), shape)
    errors = np.asarray(errors, dtype=np.float64).reshape(count, -1)
    best = np.argmin(errors, axis=1)
    chosen = np.asarray(found, dtype=np.float64).reshape(count, -1, 8)[np.arange(count), best]
    spread = unit.astype(np.float64).var(axis=1) * unit.shape[1]
    left = errors.min(axis=1)
    explained = np.where(spread > 1e-9, 1.0 - left / np.maximum(spread, 1e-9), 0.0)
    fitted = np.asarray(_gabors(jnp.asarray(chosen, jnp.float32), shape)) * sizes[:, None]
    return _named(chosen, explained, fitted, shape)


def _named(p: Array, explained: Array, fitted: Array, shape: tuple[int, int]) -> GaborFits:
    """Parameters in the words of `GaborFits`."""
    wave = np.degrees(p[:, 2])  # where the wave runs, from columns towards rows, which go down
    return GaborFits(
        shape=shape,
        centre=p[:, :2],
        orientation=np.mod(90.0 - wave, 180.0),
        frequency=np.exp(p[:, 3]),
        spread=np.exp(p[:, 4:6]),
        phase=np.arctan2(-p[:, 7], p[:, 6]),
        r_squared=explained,
        fitted=fitted,
    )


def _waves(p: Any, shape: tuple[int, int]) -> tuple[Any, Any]:
    """Cosine and sine wave of one function under its bell; p is row and column of the centre,
    direction, logs of frequency and of the two spreads.
    """
    y, x = jnp.mgrid[: shape[0], : shape[1]]
    y, x = y.ravel() - p[0], x.ravel() - p[1]
    along = x * jnp.cos(p[2]) + y * jnp.sin(p[2])
    across = y * jnp.cos(p[2]) - x * jnp.sin(p[2])
    bell = jnp.exp(-0.5 * ((along * jnp.exp(-p[4])) ** 2 + (across * jnp.exp(-p[5])) ** 2))
    angle = 2.0 * jnp.pi * jnp.exp(p[3]) * along
    return bell * jnp.cos(angle), bell * jnp.sin(angle)


def _gabor(p: Any, shape: tuple[int, int]) -> Any:
    even, odd = _waves(p, shape)
    return p[6] * even + p[7] * odd


@partial(jax.jit, static_argnames="shape")
def _gabors(parameters: Any, shape: tuple[int, int]) -> Any:
    return jax.vmap(lambda p: _gabor(p, shape))(parameters)


def _limits(shape: tuple[int, int]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Centres near the picture, waves that pixels can show, bells of half a pixel or more."""
    tall, wide = shape
    widest = math.log(2.0 * max(shape))
    low = [-0.25 * tall, -0.25 * wide, -np.inf, math.log(0.1 / max(shape)), math.log(0.4)]
    high = [1.25 * tall, 1.25 * wide, np.inf, math.log(_FASTEST), widest]
    every = [np.inf, np.inf]
    return (
        np.array([*low, low[4], -np.inf, -np.inf], np.float32),
        np.array([*high, widest, *every], np.float32),
    )


@partial(jax.jit, static_argnames="shape")
def _least_squares(filters: Any, starts: Any, shape: tuple[int, int]) -> tuple[Any, Any]:
    """Parameters and squared errors after rounds of Levenberg and Marquardt's method."""
    low, high = _limits(shape)

    def error(p: Any, target: Any) -> Any:
        return jnp.sum((_gabor(p, shape) - target) ** 2)

    def one(target: Any, start: Any) -> tuple[Any, Any]:
        def step(_: Any, state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
            p, best, damping = state
            slopes = jax.jacfwd(_gabor)(p, shape)
            curvature = slopes.T @ slopes
            downhill = slopes.T @ (target - _gabor(p, shape))
            ridge = damping * jnp.diag(curvature) + 1e-9
            new = jnp.clip(p + jnp.linalg.solve(curvature + jnp.diag(ridge), downhill), low, high)
            found = error(new, target)
            better = found < best
            damping = jnp.clip(jnp.where(better, damping / 3.0, damping * 4.0), 1e-7, 1e7)
            return jnp.where(better, new, p), jnp.where(better, found, best), damping

        first = (start, error(start, target), jnp.float32(1e-2))
        p, best, _ = jax.lax.fori_loop(0, _ROUNDS, step, first)
        return p, best

    return jax.vmap(one)(filters, starts)


def _starts(unit: NDArray[np.float32], shape: tuple[int, int]) -> NDArray[np.float32]:
    """For each filter the best functions of a dictionary, at most one per frequency (n, k, 8)."""
    rows = np.arange(len(unit))
    best_share, best = [], []
    centres = [(np.arange(_PLACES) + 0.5) * side / _PLACES - 0.5 for side in shape]
    angles = np.arange(_DIRECTIONS) * np.pi / _DIRECTIONS
    bells = [(s, s * a) for s in _SPREADS for a in _ASPECTS]
    for wave in _WAVES:
        grid = itertools.product(*centres, angles, [wave], bells)
        table = np.array([(r, c, t, np.log(f), *np.log(np.multiply(b, max(shape))))
                          for r, c, t, f, b in grid], np.float32)  # fmt: skip
        share, amplitudes = _projections(jnp.asarray(unit), jnp.asarray(table), shape)
        at = np.asarray(jnp.argmax(share, axis=1))
        best_share.append(np.asarray(share)[rows, at])
        best.append(np.hstack([table[at], np.asarray(amplitudes)[rows, at]]))
    order = np.argsort(-np.array(best_share), axis=0)[:_STARTS]
    return np.array(best, np.float32)[order, rows].transpose(1, 0, 2)


@partial(jax.jit, static_argnames="shape")
def _projections(filters: Any, table: Any, shape: tuple[int, int]) -> tuple[Any, Any]:
    """How much of each filter each function of the table explains, with the best amplitudes."""
    even, odd = jax.vmap(lambda p: _waves(p, shape))(table)
    a, b, c = (jnp.sum(x * y, axis=1) for x, y in ((even, even), (even, odd), (odd, odd)))
    determinant = a * c - b * b
    sure = determinant > 1e-6 * a * c
    scale = jnp.where(sure, 1.0 / jnp.where(sure, determinant, 1.0), 0.0)
    left, right = filters @ even.T, filters @ odd.T
    p, q = (c * left - b * right) * scale, (a * right - b * left) * scale
    return p * left + q * right, jnp.stack([p, q], axis=-1)


# ---------------------------------------------------------------------- sounds


@dataclass(frozen=True)
class TimeFrequency:
    """Where filters of sounds lie in time (seconds) and frequency (Hz), with standard deviations.

    `envelope` is the square of the size of the analytic signal, `power` the spectrum at
    `frequencies`. `coverage` is the sum over filters, weighted by their power, of where both are
    above half their peaks, gaps shorter than 6 samples or 3 frequencies filled: (frequency, time).
    """

    rate: float
    time: Array
    frequency: Array
    time_spread: Array
    frequency_spread: Array
    envelope: Array
    power: Array
    frequencies: Array
    coverage: Array

    def to_dict(self) -> dict[str, Any]:
        """Plain data: one list per quantity."""
        names = ("time", "frequency", "time_spread", "frequency_spread")
        return {name: getattr(self, name).tolist() for name in names}


def time_frequency(filters: ArrayLike, rate: float) -> TimeFrequency:
    """Time and frequency of filters of windows, one per row, at `rate` samples per second.

    Means and spreads are moments of the squared envelope and of the power spectrum.

    `filters` has one row per filter.

    >>> seconds = np.arange(100) / 8000
    >>> tone = np.exp(-(((seconds - 0.005) / 0.001) ** 2)) * np.cos(2 * np.pi * 2000 * seconds)
    >>> found = time_frequency(tone[None], 8000)
    >>> found.time.round(4).tolist(), found.frequency.round(-1).tolist()
    ([0.005], [2000.0])
    """
    from scipy.signal import hilbert

    rows = np.atleast_2d(np.asarray(filters, dtype=np.float64))
    if rows.ndim != 2 or rows.shape[1] < 4 or not np.isfinite(rows).all():
        raise DataError(f"filters of windows are rows of 4 samples or more, got {rows.shape}")
    envelope = np.abs(hilbert(rows, axis=1)) ** 2
    power, frequencies = power_spectra(rows, rate)
    time, time_spread = _moments(envelope, np.arange(rows.shape[1]) / rate)
    frequency, frequency_spread = _moments(power, frequencies)
    coverage = np.zeros((len(frequencies), rows.shape[1]))
    for bell, spectrum, strength in zip(envelope, power, np.sum(rows**2, axis=1), strict=True):
        coverage += strength * np.outer(_above_half(spectrum, 3), _above_half(bell, 6))
    return TimeFrequency(rate, time, frequency, time_spread, frequency_spread, envelope, power,
                         frequencies, coverage)  # fmt: skip


def power_spectra(filters: Array, rate: float = 1.0) -> tuple[Array, Array]:
    """Power of each filter (a row) at the frequencies from 0 to half the rate, and these."""
    power = np.abs(np.fft.rfft(filters, axis=1)) ** 2
    return np.asarray(power), np.asarray(np.fft.rfftfreq(filters.shape[1], 1.0 / rate))


def _moments(weights: Array, places: Array) -> tuple[Array, Array]:
    total = np.maximum(weights.sum(axis=1), 1e-300)
    mean = weights @ places / total
    spread = np.sqrt(np.maximum(weights @ places**2 / total - mean**2, 0.0))
    return mean, spread


def _above_half(values: Array, gap: int) -> NDArray[np.bool_]:
    """Where values are above half their peak, with gaps shorter than `gap` filled."""
    above: NDArray[np.bool_] = values > 0.5 * values.max()
    inside = np.flatnonzero(above)
    for left, right in itertools.pairwise(inside):
        if right - left <= gap:
            above[left:right] = True
    return above
