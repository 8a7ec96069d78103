"""Certified bounds on log Z closing in time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ZOOM = 4.0  # height ratio of the first bounds to the last at which a second panel appears


def bounds_over_time(
    seconds: Sequence[float],
    lower: Sequence[float],
    upper: Sequence[float],
    methods: Sequence[str],
    *,
    estimate: float | None = None,
    title: str | None = None,
) -> Figure:
    """Draw the lower and upper bounds on log Z against time, with the method of each section.

    Unknown bounds are NaN. A second panel enlarges the end of the run if the first bounds were much
    wider.

    >>> figure = bounds_over_time([0.1, 0.2], [1.0, 1.5], [3.0, 2.0], ["mf", "wmb"], estimate=1.7)
    >>> figure.axes[0].get_ylabel()
    'log Z (nats)'
    """
    t, low, high = (np.asarray(x, dtype=np.float64) for x in (seconds, lower, upper))
    near = _near(low, high)
    with style.styled():
        figure, axes = style.new_figure(9.2 if near else 6.4, 3.6, 2 if near else 1)
        for panel in axes:
            _draw(panel, t, low, high, estimate)
        _name_methods(axes[0], t, methods)
        axes[0].set_title(style.plain(title or "Bounds on log Z"))
        if near:
            axes[1].set(ylim=near, title="The end from near", ylabel="")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=3)
    return figure


def _draw(axes: Axes, t: Array, low: Array, high: Array, estimate: float | None) -> None:
    axes.fill_between(t, low, high, step="post", color=style.BLUE, alpha=0.12, lw=0)
    axes.step(t, high, color=style.VERMILLION, label="upper bound", where="post", lw=1.8)
    axes.step(t, low, color=style.BLUE, label="lower bound", where="post", lw=1.8)
    if estimate is not None:
        axes.axhline(estimate, color=style.GREEN, ls="--", lw=1.2, label="estimate")
    axes.set(xlabel="seconds", ylabel="log Z (nats)", xlim=(0.0, None))
    style.few_ticks(axes.xaxis)
    style.few_ticks(axes.yaxis)


def _name_methods(axes: Axes, t: Array, methods: Sequence[str]) -> None:
    """Write the name of the method at the start of each section of time, if there is enough
    space.
    """
    span = float(t[-1]) if len(t) else 1.0
    last = -np.inf
    for k, name in enumerate(methods):
        if (k and methods[k - 1] == name) or t[k] - last < 0.09 * span:
            continue
        last = float(t[k])
        axes.axvline(last, color=style.GRID, lw=1.0, zorder=0)
        axes.annotate(
            style.plain(style.shorten(name.partition(":")[0], 12)),
            (last, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(2, -2),
            textcoords="offset points",
            va="top",
            fontsize=7.5,
            color=style.SOFT,
            rotation=90,
        )


def _near(low: Array, high: Array) -> tuple[float, float] | None:
    """Return the limits of a panel around the last bounds, if the first were much wider."""
    known = np.isfinite(low) & np.isfinite(high)
    if not known.any():
        return None
    last = float(high[known][-1] - low[known][-1])
    first = float(np.nanmax(high[known]) - np.nanmin(low[known]))
    if first < _ZOOM * max(last, 1e-9):
        return None
    margin = max(1.5 * last, 0.02 * first, 1e-6)
    return float(low[known][-1]) - margin, float(high[known][-1]) + margin
