"""Pictures of a fitted model: its moments beside those of the data, and its strongest factors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.errors import ModelError
from kikuchi.plots import style
from kikuchi.plots.comparison import draw_pairs

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def moments(data: ArrayLike, model: ArrayLike, label: str = "model") -> Figure:
    """Frequencies in the data against probabilities of the model, one dot for each table entry.

    >>> moments([0.2, 0.8], [0.25, 0.75]).axes[0].get_xlabel()
    'frequency in the data'
    """
    x = np.asarray(data, dtype=np.float64).ravel()
    y = np.asarray(model, dtype=np.float64).ravel()
    if x.shape != y.shape or not x.size:
        raise ModelError(f"{x.size} frequencies and {y.size} probabilities; give as many")
    with style.styled():
        figure, (axes,) = style.new_figure(4.3, 4.3)
        draw_pairs(axes, x, y)
        gap = np.abs(x - y)
        text = f"largest difference {gap.max():.2g}\nmean difference {gap.mean():.2g}"
        axes.text(0.04, 0.96, text, transform=axes.transAxes, va="top", linespacing=1.5)
        axes.set_xlabel("frequency in the data")
        axes.set_ylabel(style.plain(f"probability by {style.shorten(label, 40)}"))
        axes.set_title("Moments of the factors")
    return figure


def strengths(labels: Sequence[str], values: ArrayLike) -> Figure:
    """Bars of how much each factor binds its variables, strongest first.

    >>> len(strengths(["a, b", "b, c"], [0.4, 0.1]).axes[0].patches)
    2
    """
    bars = np.asarray(values, dtype=np.float64)
    with style.styled():
        figure, (axes,) = style.new_figure(6.4, 0.9 + 0.24 * max(len(bars), 2))
        places = np.arange(len(bars))
        axes.barh(places, bars, height=0.65, color=style.BLUE)
        axes.set_yticks(places, [style.plain(style.shorten(label, 32)) for label in labels])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("nats that the variables tell about each other")
        axes.set_title("Strongest factors")
        style.few_ticks(axes.xaxis)
    return figure
