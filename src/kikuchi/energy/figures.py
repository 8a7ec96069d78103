"""The figures of the report page of a trained energy model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kikuchi.core import text
from kikuchi.core.arrays import Array
from kikuchi.core.page import Item, Picture, Sections, Tile
from kikuchi.plots import energy as plots
from kikuchi.plots.ica import time_courses
from kikuchi.plots.images import image_rows, tiles
from kikuchi.training.answer import training_picture

_SHOWN = 12  # pieces in a row
_MOST_FILTERS = 400
_SAMPLE_SWEEPS = 200


def model_figures(evaluation: Any) -> Sections:
    """Filters and what they look like, samples beside data, and how the training went."""
    return {
        "Filters": _filters(evaluation),
        "Samples": _samples(evaluation),
        "Training": [training_picture(evaluation.estimator), _measures(evaluation)],
    }


def pieces(groups: dict[str, Array], shape: tuple[int, ...]) -> Picture:
    """A few pieces of each kind: pictures in rows, or sounds as courses."""
    caption = f"Pieces, each on its own scale: {' and '.join(groups)}."
    if len(shape) == 1:
        rows = np.concatenate([group[:4] for group in groups.values()])
        names = [f"{name} {k + 1}" for name, group in groups.items() for k in range(len(group[:4]))]
        return Picture(time_courses(rows, names=names), caption)
    stretched = {name: _stretched(group[:_SHOWN]) for name, group in groups.items()}
    return Picture(image_rows(stretched, (shape[0], shape[1]), "Pieces"), caption)


def _stretched(rows: Array) -> Array:
    """Each row from 0 to 1, its mean in the middle of grey."""
    centred = rows - rows.mean(axis=1, keepdims=True)
    return np.asarray(
        0.5 + 0.5 * centred / np.maximum(np.abs(centred).max(axis=1, keepdims=True), 1e-12)
    )


def model_tiles(evaluation: Any) -> list[Tile]:
    """Features, Gabor fits and densities."""
    entries = [Tile("features", text.whole(evaluation.estimator._n_features_out))]
    if evaluation.gabors is not None:
        entries.append(Tile("Gabor R² above 0.8", f"{evaluation.gabors.share():.0%}"))
    if evaluation.likelihood is not None:
        low, high = evaluation.likelihood
        between = f"{low:.2f}" if high - low < 0.005 else f"{low:.2f} to {high:.2f}"
        entries.append(Tile(f"log-density, {evaluation.judged}", between))
        entries.append(Tile("of a normal distribution", f"{evaluation.gaussian:.2f}"))
    return entries


def _filters(evaluation: Any) -> list[Item]:
    filters, shape = evaluation.filters, evaluation.shape
    if filters is None or shape is None:
        return []
    if evaluation.sounds is not None:
        found = evaluation.sounds
        return [
            Picture(
                plots.sound_filters(filters, found.power, found.rate),
                "The filters of largest norm in the space of the sounds, and their power spectra.",
            ),
            Picture(
                plots.time_frequency_tiling(
                    found.coverage, found.rate, found.time, found.frequency, found.time_spread,
                    found.frequency_spread,
                ),
                "Left: mean and standard deviation of each filter's squared envelope and power "
                "spectrum. Right: where both are above half their peaks, summed over filters.",
            ),
        ]  # fmt: skip
    size = (shape[0], shape[1])
    few = filters[:_MOST_FILTERS]
    scaled = few / np.maximum(np.abs(few).max(axis=1, keepdims=True), 1e-300)
    columns = max(10, math.isqrt(len(few) - 1) + 1)
    more = f"; {len(filters) - len(few)} more are not shown" if len(filters) > len(few) else ""
    shows = "What each filter of the pixels answers at every pixel" if evaluation.transposed else (
        "What each feature looks for, in the space of the data (the whitening undone)"
    )  # fmt: skip
    items: list[Item] = [
        Picture(
            tiles(scaled, size, "Filters", columns=columns, signed=True),
            f"{shows}, the largest norm first, each on a scale of its own{more}.",
        )
    ]
    if evaluation.gabors is not None:
        g = evaluation.gabors
        items.append(
            Picture(
                plots.gabor_tiling(
                    size, g.centre, g.orientation, g.frequency, g.spread, g.r_squared
                ),
                "Gabor functions fitted to the filters: their places, the orientation of their "
                "bars (0° is horizontal) with their frequency in cycles per pixel, and how much "
                "of each filter they explain.",
            )
        )
    return items


def _samples(evaluation: Any) -> list[Item]:
    shape = evaluation.shape
    if shape is None or evaluation.transposed or not evaluation.estimator.has_density:
        return []  # single pixels are no pictures, and without density there are no samples
    told = evaluation.estimator.preparation_
    rows = evaluation.rows if evaluation.held_out is None else evaluation.held_out
    drawn = evaluation.estimator.sample(200, sweeps=_SAMPLE_SWEEPS, random_state=0)
    some = rows[:: max(len(rows) // 200, 1)][:200]
    data, samples = (r if told is None else told.undo(r) for r in (some, drawn))
    exact = "exact ones" if evaluation.estimator.is_square else (
        f"chains of {_SAMPLE_SWEEPS} moves that began at rows of the data"
    )  # fmt: skip
    rate = None if told is None else told.rate
    return [
        pieces({"data": data, "samples": samples}, shape),
        Picture(
            _power(data, samples, shape, rate),
            f"Mean power spectra of data and of samples of the model, {exact}.",
        ),
    ]


def _power(data: Array, samples: Array, shape: tuple[int, ...], rate: float | None) -> Any:
    groups = {"data": data, "samples": samples}
    if len(shape) == 1:
        waves = np.fft.rfftfreq(shape[0], 1.0 / (rate or 1.0))
        means = {n: np.mean(np.abs(np.fft.rfft(r, axis=1)) ** 2, axis=0) for n, r in groups.items()}
        unit = "Hz" if rate else "cycles per sample"
        return plots.spectra({n: (waves[1:], m[1:]) for n, m in means.items()}, unit)
    rings = np.hypot(*np.meshgrid(*(np.fft.fftfreq(n) for n in shape), indexing="ij"))
    edges = np.arange(0.5 / max(shape), 0.5 + 1.0 / max(shape), 1.0 / max(shape))
    number = np.digitize(rings.ravel(), edges)
    used = np.arange(1, len(edges))
    found = {}
    for name, rows in groups.items():
        power = np.mean(np.abs(np.fft.fft2(rows.reshape(-1, *shape))) ** 2, axis=0).ravel()
        found[name] = (0.5 * (edges[1:] + edges[:-1]),
                       np.array([power[number == k].mean() for k in used]))  # fmt: skip
    return plots.spectra(found, "cycles per pixel")


def _measures(evaluation: Any) -> Picture | None:
    figure = plots.training_measures(evaluation.estimator.trace_)
    if figure is None:
        return None
    return Picture(
        figure,
        "What tells how the training goes: acceptance and step size of the chains, the norm of the "
        "longest filter, and the score-matching loss of rows held out, which falls as the density "
        "gets better. The energy gap itself is no measure of progress.",
    )
