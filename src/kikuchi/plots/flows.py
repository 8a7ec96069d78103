"""Flows: samples beside the data, held-out scores by epoch, and responsibilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_POINTS = 1500


def samples_beside_data(
    rows: ArrayLike, samples: ArrayLike, labels: ArrayLike, names: tuple[str, str]
) -> Figure:
    """Two columns of the data and of samples, and the data coloured by their components.

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


def held_out_scores(scores: ArrayLike, gaussian: float) -> Figure:
    """Held-out log-likelihood by epoch, with the Gaussian mixture that the flow began from.

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
        axes.scatter([steps[best]], [values[best]], s=28, color=style.BLUE, zorder=3)
        low = min(gaussian, float(np.quantile(values, 0.1)))
        high = max(gaussian, float(values.max()))
        reach = max(high - low, 1e-6)
        axes.set_ylim(low - 0.5 * reach, high + 0.15 * reach)
        axes.set(xlabel="epoch", ylabel="held-out log-likelihood per row")
        style.few_ticks(axes.xaxis, whole=True)
        axes.legend(loc="lower right", frameon=False)
    return figure
