"""Figures of flows: samples and data, held-out scores by epoch, and responsibilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_POINTS = 1500
MOST_COLUMNS = 6  # of a pair plot


def samples_beside_data(
    rows: ArrayLike, samples: ArrayLike, labels: ArrayLike, names: tuple[str, str]
) -> Figure:
    """Draw two columns of the data and of samples, and the data coloured by component.

    >>> points = np.random.default_rng(0).normal(size=(20, 2))
    >>> len(samples_beside_data(points, points, np.zeros(20, int), ("a", "b")).axes)
    3
    """
    data, drawn = (np.asarray(a, dtype=np.float64)[:_MOST_POINTS] for a in (rows, samples))
    which = np.asarray(labels)[:_MOST_POINTS]
    with style.styled():
        figure, axes = style.new_figure(10.2, 3.7, 3)
        for ax, points, title, colour in (
            (axes[0], data, "Data", style.INK),
            (axes[1], drawn, "Samples", style.BLUE),
        ):
            ax.scatter(points[:, 0], points[:, 1], s=6, color=colour, lw=0, alpha=0.6)
            ax.set(title=title)
        colours = style.state_colours(int(which.max()) + 1)
        for k, colour in enumerate(colours):
            own = data[which == k]
            axes[2].scatter(own[:, 0], own[:, 1], s=8, color=colour, lw=0)
        axes[2].set(title="Most probable component")
        span = [np.quantile(data[:, j], [0.0, 1.0]) for j in (0, 1)]
        reach = [0.15 * max(float(high - low), 1e-12) for low, high in span]
        for ax in axes:
            ax.set_xlim(span[0][0] - reach[0], span[0][1] + reach[0])
            ax.set_ylim(span[1][0] - reach[1], span[1][1] + reach[1])
            ax.set_xlabel(style.plain(names[0]))
        axes[0].set_ylabel(style.plain(names[1]))
    return figure


def pair_plot(rows: ArrayLike, samples: ArrayLike, names: Sequence[str]) -> Figure:
    """Draw all pairs of columns: data below the diagonal, samples above it, histograms of both on
    it.

    Parameters
    ----------
    rows, samples : array-like
        Arrays with the same columns, at most six of which are drawn.
    names : Sequence[str]
        Those of the columns.

    >>> points = np.random.default_rng(0).normal(size=(20, 3))
    >>> len(pair_plot(points, points, ["a", "b", "c"]).axes)
    9
    """
    data, drawn = (np.asarray(a, dtype=np.float64)[:_MOST_POINTS] for a in (rows, samples))
    count = min(data.shape[1], MOST_COLUMNS)
    spans = [_span(data[:, k]) for k in range(count)]
    with style.styled():
        side = 8.4 if count > 3 else 2.6 * count
        figure, axes = style.new_figure(side, side, count, count)
        for place, panel in enumerate(axes):
            i, j = divmod(place, count)
            if i == j:
                edges = np.linspace(spans[j][0], spans[j][1], 25).tolist()
                for values, colour in ((data, style.SOFT), (drawn, style.BLUE)):
                    panel.hist(values[:, j], edges, density=True, histtype="step", color=colour)
            else:
                points, colour = (data, style.INK) if i > j else (drawn, style.BLUE)
                panel.scatter(points[:, j], points[:, i], s=3, color=colour, lw=0, alpha=0.5)
                panel.set_ylim(*spans[i])
            panel.set_xlim(*spans[j])
            style.few_ticks(panel.xaxis, 4)
            style.few_ticks(panel.yaxis, 4)
            if i == j:
                panel.set_yticks([])
            if i == count - 1:
                panel.set_xlabel(style.plain(style.shorten(names[j])))
            if j == 0:
                panel.set_ylabel(style.plain(style.shorten(names[i])))
    return figure


def _span(values: NDArray[np.float64]) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    reach = 0.1 * max(high - low, 1e-12)
    return low - reach, high + reach


def held_out_scores(scores: ArrayLike, gaussian: float) -> Figure:
    """Draw the held-out log-likelihood by epoch, and that of the Gaussian mixture from which the
    flow started. A dot marks the selected epoch, if the flow was better than the mixture.

    >>> len(held_out_scores([-2.0, -1.5], -2.2).axes)
    1
    """
    values = np.asarray(scores, dtype=np.float64)
    steps = np.arange(1, len(values) + 1)
    best = int(np.argmax(values))
    with style.styled():
        figure, [axes] = style.new_figure(6.2, 3.6)
        axes.axhline(gaussian, color=style.VERMILLION, lw=1.2, label="Gaussian mixture")
        axes.plot(steps, values, color=style.BLUE, label="flow")
        if values[best] > gaussian:
            axes.scatter([steps[best]], [values[best]], s=28, color=style.BLUE, zorder=3)
        low = min(gaussian, float(np.quantile(values, 0.1)))
        high = max(gaussian, float(values.max()))
        reach = max(high - low, 1e-6)
        axes.set_ylim(low - 0.5 * reach, high + 0.15 * reach)
        axes.set(xlabel="epoch", ylabel="held-out log-likelihood per row")
        style.few_ticks(axes.xaxis, whole=True)
        axes.legend(loc="lower right", frameon=False)
    return figure
