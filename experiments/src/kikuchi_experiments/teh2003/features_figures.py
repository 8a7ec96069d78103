"""Figures of section 4.7 of Teh's thesis (TEH-E4 to TEH-E7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.plots import images, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def tiles(panels: Mapping[str, Array]) -> Figure:
    """Signed pictures (number, height, width), one panel for each title.

    >>> len(tiles({"filters": np.zeros((4, 2, 2))}).axes)
    1
    """
    with style.styled():
        figure, axes = style.new_figure(0.4 + 4.6 * len(panels), 4.6, len(panels))
        for panel, (title, pictures) in zip(axes, panels.items(), strict=True):
            images.draw_tiles(panel, pictures, columns=8, signed=True, scale=1.0)
            panel.set_title(title)
    return figure


def photographs(pictures: Array, centres: ArrayLike, waves: ArrayLike, side: int) -> Figure:
    """Filters, centres of their Gabor functions, and their frequencies by direction.

    >>> len(photographs(np.zeros((4, 2, 2)), [[1.0, 1.0]], [[0.2, 90.0]], 2).axes)
    3
    """
    places, found = np.reshape(centres, (-1, 2)), np.reshape(waves, (-1, 2))
    with style.styled():
        figure, (shown, space, frequency) = style.new_figure(12.6, 4.4, 3)
        images.draw_tiles(shown, pictures, columns=8, signed=True, scale=1.0)
        shown.set_title("(a) Filters of white patches")
        space.plot(places[:, 1], places[:, 0], ".", color=style.BLUE, ms=4, alpha=0.6)
        space.set(xlim=(-1, side), ylim=(side, -1), xlabel="pixel", ylabel="pixel")
        space.set_title("(b) Centres")
        # bars at 0 degrees are horizontal: their wave runs upwards
        angle = np.radians(found[:, 1] + 90.0)
        across, up = found[:, 0] * np.cos(angle), found[:, 0] * np.sin(angle)
        for sign in (1.0, -1.0):
            frequency.plot(sign * across, sign * up, ".", color=style.VERMILLION, ms=4, alpha=0.5)
        frequency.set(xlabel="cycles per pixel", ylabel="cycles per pixel", aspect="equal")
        frequency.set_title("(c) Frequencies and directions")
    return figure


def speech(filters: ArrayLike, power: ArrayLike, rate: float) -> Figure:
    """The strongest filters over time, and the power of all filters over time and frequency.

    >>> len(speech(np.zeros((2, 10)), np.ones((6, 10)), 8000.0).axes)
    2
    """
    rows, table = np.asarray(filters, dtype=np.float64), np.asarray(power, dtype=np.float64)
    milliseconds = 1e3 * rows.shape[1] / rate
    with style.styled():
        figure, (shown, spread) = style.new_figure(9.6, 4.2, 2)
        times = np.linspace(0.0, milliseconds, rows.shape[1])
        for k, row in enumerate(rows):
            size = 2.2 * float(np.abs(row).max()) or 1.0
            shown.plot(times, row / size - k, color=style.BLUE, lw=1.0)
        shown.set(xlabel="ms", yticks=[], title="(a) The strongest filters")
        spread.imshow(
            table, origin="lower", aspect="auto", cmap="magma",
            extent=(0.0, milliseconds, 0.0, rate / 2e3),
        )  # fmt: skip
        spread.set(xlabel="ms", ylabel="kHz", title="(b) Power over time and frequency")
    return figure
