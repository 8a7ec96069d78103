"""Figures of a fitted model: its moments compared with the data, and its strongest factors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.plots import style
from kikuchi.plots.comparison import probability_pairs, write_note

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def moments(data: ArrayLike, model: ArrayLike, label: str = "model") -> Figure:
    """Draw frequencies in the data against probabilities of the model, one dot per table entry.

    >>> moments([0.2, 0.8], [0.25, 0.75]).axes[0].get_xlabel()
    'frequency in the data'
    """
    with style.styled():
        figure, axes, gap = probability_pairs(data, model, label)
        write_note(axes, f"largest difference {gap.max():.2g}\nmean difference {gap.mean():.2g}")
        axes.set(xlabel="frequency in the data", title="Moments of the factors")
    return figure


def strengths(labels: Sequence[str], values: ArrayLike) -> Figure:
    """Draw bars of the strength of the dependence in each factor, strongest first.

    >>> len(strengths(["a, b", "b, c"], [0.4, 0.1]).axes[0].patches)
    2
    """
    bars = np.asarray(values, dtype=np.float64)
    with style.styled():
        figure, (axes,) = style.new_figure(6.4, 0.9 + 0.24 * max(len(bars), 2))
        rows = np.arange(len(bars))
        axes.barh(rows, bars, height=0.65, color=style.BLUE)
        axes.set_yticks(rows, [style.plain(style.shorten(label, 32)) for label in labels])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set(xlabel="nats that the variables tell about each other", title="Strongest factors")
        style.few_ticks(axes.xaxis)
    return figure
