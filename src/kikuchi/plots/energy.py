"""Filters of energy models: Gabor fits of image filters, time and frequency of sound filters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.trace import Trace
from kikuchi.plots import style

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BAR = 0.5  # length of a bar in standard deviations of the envelope across the wave
_LONGEST = 0.15  # half of a bar, of the side of the picture
_FEW = 10  # filters of sounds that are drawn one by one


def gabor_tiling(
    shape: tuple[int, int],
    centre: ArrayLike,
    orientation: ArrayLike,
    frequency: ArrayLike,
    spread: ArrayLike,
    r_squared: ArrayLike,
    *,
    good: float = 0.8,
) -> Figure:
    """Draw Gabor functions by position, by orientation and frequency, and by goodness of fit. The
    first two panels show only those with R² above `good`.

    >>> one = np.ones(1)
    >>> len(gabor_tiling((8, 8), [[4, 4]], 45 * one, 0.2 * one, [[1, 2]], one).axes)
    4
    """
    from matplotlib.figure import Figure

    fits = np.asarray(r_squared, dtype=np.float64)
    kept = fits > good
    waves = np.asarray(frequency, dtype=np.float64)[kept]
    angles = np.radians(np.asarray(orientation, dtype=np.float64)[kept])
    with style.styled():
        figure = Figure(figsize=(10.2, 3.5), layout="constrained")
        place = figure.add_subplot(1, 3, 1)
        wheel: Any = figure.add_subplot(1, 3, 2, projection="polar")
        quality = figure.add_subplot(1, 3, 3)
        lines = _draw_bars(place, shape, np.asarray(centre)[kept], angles, waves,
                           np.asarray(spread, dtype=np.float64)[kept])  # fmt: skip
        figure.colorbar(lines, ax=place, shrink=0.8, label="cycles per pixel")
        both = np.concatenate([angles, angles + np.pi])
        wheel.scatter(both, np.tile(waves, 2), s=7, color=style.BLUE, alpha=0.55, linewidths=0)
        wheel.set_title("Orientation of the bars and frequency")
        wheel.set_ylim(0, max(0.5, 1.05 * waves.max(initial=0.0)))
        wheel.set_rlabel_position(22.5)
        wheel.tick_params(labelsize=8)
        wheel.set_yticks([0.1, 0.2, 0.3, 0.4, 0.5])
        quality.hist(np.clip(fits, 0, 1), bins=25, range=(0, 1), color=style.BLUE)
        quality.axvline(good, color=style.VERMILLION, lw=1.2)
        quality.set(xlabel="R² of the Gabor function", ylabel="filters", xlim=(0, 1))
        quality.set_title(f"{np.mean(kept):.0%} of {len(fits)} above {good:g}")
    return figure


def _draw_bars(
    axes: Axes, shape: tuple[int, int], centre: Array, angles: Array, waves: Array, spread: Array
) -> Any:
    """A bar at the centre of each function, along its stripes, coloured by its frequency."""
    from matplotlib.collections import LineCollection

    half = np.minimum(_BAR * spread[:, 1], _LONGEST * max(shape)) if len(spread) else np.zeros(0)
    steps = np.stack([np.cos(angles) * half, -np.sin(angles) * half], axis=1)  # rows go down
    middle = np.asarray(centre, dtype=np.float64).reshape(-1, 2)[:, ::-1]
    ends = np.stack([middle - steps, middle + steps], axis=1)
    lines = LineCollection(list(ends), array=waves, cmap="viridis", linewidths=1.1, alpha=0.85)
    lines.set_clim(0, max(0.5, waves.max(initial=0.0)))
    axes.add_collection(lines)
    axes.set(xlim=(-0.5, shape[1] - 0.5), ylim=(shape[0] - 0.5, -0.5), aspect="equal")
    axes.set_title("Places in the patch")
    axes.grid(visible=False)
    return lines


def time_frequency_tiling(
    coverage: ArrayLike,
    rate: float,
    time: ArrayLike,
    frequency: ArrayLike,
    time_spread: ArrayLike,
    frequency_spread: ArrayLike,
) -> Figure:
    """Draw sound filters as ellipses of one standard deviation, and their coverage of the plane.

    >>> one = np.ones(1)
    >>> len(time_frequency_tiling(np.ones((5, 8)), 8000, one, one, one, one).axes)
    2
    """
    from matplotlib.collections import EllipseCollection

    covered = np.asarray(coverage, dtype=np.float64)
    length, top = 1e3 * covered.shape[1] / rate, 5e-4 * rate
    with style.styled():
        figure, (each, every) = style.new_figure(9.4, 3.6, 2)
        ellipses = EllipseCollection(
            2e3 * np.asarray(time_spread),
            2e-3 * np.asarray(frequency_spread),
            np.zeros(len(np.asarray(time))),
            units="xy",
            offsets=np.column_stack([1e3 * np.asarray(time), 1e-3 * np.asarray(frequency)]),
            offset_transform=each.transData,
            facecolors="none",
            edgecolors=style.BLUE,
            linewidths=0.7,
            alpha=0.6,
        )
        each.add_collection(ellipses)
        each.set_title("Filters: time and frequency")
        every.imshow(covered, origin="lower", aspect="auto", extent=(0, length, 0, top),
                     cmap=style.confidence_map())  # fmt: skip
        every.set_title("Coverage, weighted by power")
        every.grid(visible=False)
        for axes in (each, every):
            axes.set(xlabel="milliseconds", ylabel="kHz", xlim=(0, length), ylim=(0, top))
    return figure


def sound_filters(filters: ArrayLike, power: ArrayLike, rate: float) -> Figure:
    """Draw the first sound filters and their power spectra, one pair per row.

    >>> len(sound_filters(np.ones((2, 8)), np.ones((2, 5)), 8000.0).axes)
    4
    """
    rows, spectra = (np.asarray(a, dtype=np.float64)[:_FEW] for a in (filters, power))
    time = 1e3 * np.arange(rows.shape[1]) / rate
    waves = np.linspace(0, 5e-4 * rate, spectra.shape[1])
    with style.styled():
        figure, axes = style.new_figure(8.4, 0.62 * len(rows) + 0.7, 2, len(rows))
        for k, (row, spectrum) in enumerate(zip(rows, spectra, strict=True)):
            left, right = axes[2 * k], axes[2 * k + 1]
            left.plot(time, row, color=style.BLUE, lw=1.1)
            right.fill_between(waves, spectrum, color=style.VERMILLION, alpha=0.75, lw=0)
            for panel in (left, right):
                panel.set_yticks([])
                panel.grid(visible=False)
                panel.spines["left"].set_visible(False)
                panel.tick_params(labelbottom=k == len(rows) - 1)
        axes[-2].set_xlabel("milliseconds")
        axes[-1].set_xlabel("kHz")
    return figure


def spectra(
    groups: Mapping[str, tuple[ArrayLike, ArrayLike]], unit: str, what: str = "power"
) -> Figure:
    """Draw spectra by name, each as positions (in `unit`) and positive values of `what`, on a
    logarithmic axis.

    >>> len(spectra({"data": ([0, 1], [1, 0.1]), "samples": ([0, 1], [1, 0.2])}, "kHz").axes)
    1
    """
    with style.styled():
        figure, (axes,) = style.new_figure(5.2, 3.2)
        for k, (name, (waves, power)) in enumerate(groups.items()):
            look: Any = {"color": style.COLOURS[k], "ls": style.LINE_STYLES[k]}
            axes.plot(np.asarray(waves), np.asarray(power), label=style.plain(name), **look)
        axes.set(xlabel=unit, ylabel=what, yscale="log")
        if len(groups) > 1:
            axes.legend()
    return figure


def training_measures(trace: Trace) -> Figure | None:
    """Draw the measures of a trace against epochs, one panel each; None if it has none.

    >>> trace = Trace()
    >>> trace.record(1, measures={"acceptance": 0.9, "step size": 0.1})
    >>> len(training_measures(trace).axes)
    2
    """
    if not trace.measures:
        return None
    columns = min(len(trace.measures), 4)
    rows = -(-len(trace.measures) // columns)
    with style.styled():
        figure, axes = style.new_figure(2.6 * columns, 2.1 * rows, columns, rows)
        for panel in axes[len(trace.measures) :]:
            panel.set_axis_off()
        for panel, (name, values) in zip(axes, trace.measures.items(), strict=False):
            known = np.isfinite(values)
            panel.plot(np.asarray(trace.iterations)[known], np.asarray(values)[known],
                       color=style.BLUE, marker="." if known.sum() < 30 else "")  # fmt: skip
            panel.set_title(style.plain(name), fontsize=9)
            panel.set_xlabel("epoch")
            style.few_ticks(panel.xaxis, 4, whole=True)
    return figure
