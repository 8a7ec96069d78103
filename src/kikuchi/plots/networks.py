"""Figures of Bayesian neural networks: predictions, calibration, relevance and pruning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_BARS = 24


def predictions(
    y: ArrayLike, mean: ArrayLike, low: ArrayLike, high: ArrayLike, target: str = "target"
) -> Figure:
    """Draw targets against predictions with intervals, and both in the order of the predictions.

    >>> len(predictions([1, 2], [1.1, 1.9], [0, 1], [2, 3]).axes)
    2
    """
    truth, middle, bottom, top = (np.asarray(a, dtype=np.float64) for a in (y, mean, low, high))
    inside = (bottom <= truth) & (truth <= top)
    with style.styled():
        figure, axes = style.new_figure(9.8, 3.9, 2)
        ends = [float(min(truth.min(), middle.min())), float(max(truth.max(), middle.max()))]
        axes[0].plot(ends, ends, color=style.SOFT, lw=1)
        span = np.abs(np.stack([middle - bottom, top - middle]))
        axes[0].errorbar(middle, truth, xerr=span, fmt="none", ecolor=style.GRID, lw=1, zorder=1)
        for kept, colour in ((inside, style.BLUE), (~inside, style.VERMILLION)):
            axes[0].scatter(middle[kept], truth[kept], s=11, color=colour, lw=0, zorder=3)
        axes[0].set(title="Predicted and true", xlabel="predicted", ylabel=style.plain(target))
        order = np.argsort(middle, kind="stable")
        place = np.arange(len(order))
        axes[1].fill_between(place, bottom[order], top[order], color="#b8d4e6", lw=0)
        axes[1].plot(place, middle[order], color=style.BLUE)
        axes[1].scatter(place, truth[order], s=8, color=style.INK, lw=0, alpha=0.7)
        axes[1].set(title="Bands", xlabel="rows by prediction", ylabel=style.plain(target))
    return figure


def calibration(
    expected: ArrayLike, found: ArrayLike, count: int, *, xlabel: str, ylabel: str
) -> Figure:
    """Draw observed against expected fractions, with the range expected by chance.

    >>> len(calibration([0.5, 0.9], [0.4, 0.95], 30, xlabel="a", ylabel="b").axes)
    1
    """
    x, y = np.asarray(expected, dtype=np.float64), np.asarray(found, dtype=np.float64)
    line = np.linspace(0, 1, 60)
    reach = 1.96 * np.sqrt(line * (1 - line) / max(count, 1))
    with style.styled():
        figure, axes = style.new_figure(4.4, 3.9)
        bottom, top = np.maximum(line - reach, 0), np.minimum(line + reach, 1)
        axes[0].fill_between(line, bottom, top, color=style.GRID, lw=0)
        axes[0].plot([0, 1], [0, 1], color=style.SOFT, lw=1)
        axes[0].plot(x, y, "o-", color=style.BLUE, markersize=5)
        axes[0].set(title="Calibration", xlabel=xlabel, ylabel=ylabel, xlim=(0, 1), ylim=(0, 1.02))
    return figure


def relevances(
    inputs: Mapping[str, float], kept: ArrayLike, units: ArrayLike, units_kept: ArrayLike
) -> Figure:
    """Draw bars of the relevance of inputs and of hidden units; removed ones are grey.

    >>> len(relevances({"a": 1.0}, [True], [2.0, 0.1], [True, False]).axes)
    2
    """
    values = np.array(list(inputs.values()))
    order = np.argsort(values, kind="stable")[-_MOST_BARS:]
    names = [style.plain(style.shorten(list(inputs)[k])) for k in order]
    sizes, there = np.ravel(np.asarray(units)), np.ravel(np.asarray(units_kept))
    chosen = np.argsort(sizes, kind="stable")[-_MOST_BARS:]
    with style.styled():
        height = 1.2 + 0.24 * max(len(order), len(chosen), 5)
        figure, axes = style.new_figure(9.8, height, 2)
        looks: list[tuple[Any, Sequence[str], Any, Any]] = [
            (axes[0], names, values[order], np.asarray(kept)[order]),
            (axes[1], [f"unit {k}" for k in chosen], sizes[chosen], there[chosen]),
        ]
        for panel, labels, size, left in looks:
            colours = [style.BLUE if on else style.GRID for on in left]
            panel.barh(np.arange(len(size)), size, color=colours)
            panel.set_yticks(np.arange(len(size)), labels)
            panel.grid(visible=False, axis="y")
        axes[0].set(title="Relevance of inputs", xlabel="root mean square slope, standardised")
        axes[1].set(title="Relevance of hidden units", xlabel="effective number of parameters")
    return figure


def pruning_path(trials: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the bound after each trial, for removed and for retained units and inputs.

    >>> trial = {"what": "unit", "index": 1, "before": -3.0, "after": -2.0}
    >>> len(pruning_path([trial]).axes)
    1
    """
    colours = {"unit": style.BLUE, "input": style.GREEN, "weight": style.PURPLE}
    best = [max(t["before"], t["after"]) for t in trials]
    with style.styled():
        figure, axes = style.new_figure(9.8, 3.4)
        axes[0].step(np.arange(1, len(best) + 1), best, where="mid", color=style.SOFT, lw=1)
        seen = set()
        for number, trial in enumerate(trials, 1):
            stays = trial["after"] > trial["before"]
            kind = trial["what"]
            label = f"{kind} removed" if stays else f"{kind} kept"
            colour = colours[kind]
            axes[0].plot(
                number, trial["after"], "o" if stays else "x", color=colour, markersize=5,
                label=None if label in seen else label,
            )  # fmt: skip
            seen.add(label)
        low = min(min(t["before"], t["after"]) for t in trials)
        axes[0].set(title="Pruning", xlabel="trial", ylabel="bound, nats")
        axes[0].set_ylim(max(low, best[0] - 3 * (best[-1] - best[0] + 5)) - 1, None)
        axes[0].legend(loc="lower right", ncols=3)
        style.few_ticks(axes[0].xaxis, whole=True)
    return figure
