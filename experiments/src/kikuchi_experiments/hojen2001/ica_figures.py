"""Figures of mean field ICA (HOJ-E1 to E7), in the look of `plots`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.plots import style
from kikuchi.plots.ica import draw_agreement

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_CLOUD = "#aeb7c1"
_MOST_POINTS = 1200
_MARKS = ("o", "s", "^", "D")


def mean_functions(surfaces: Mapping[str, Any], curves: Mapping[str, Any]) -> Figure:
    """Means by gamma: a panel a prior with one line a lambda, then all of figure 4.3 in one.

    >>> one = {"gamma": [0.0, 1.0], "mean": [[0.0, 0.5]], "lams": [1.0]}
    >>> len(mean_functions({"a": one}, {"b": one}).axes)
    2
    """
    count = len(surfaces) + bool(curves)
    columns = min(3, count)
    with style.styled():
        figure, axes = style.new_figure(
            9.6, 2.6 * -(-count // columns), columns, -(-count // columns)
        )
        for panel, (name, found) in zip(axes, surfaces.items(), strict=False):
            for k, (lam, mean) in enumerate(zip(found["lams"], found["mean"], strict=True)):
                colour = style.COLOURS[k % len(style.COLOURS)]
                panel.plot(found["gamma"], mean, color=colour, label=f"lambda = {lam:g}")
            middle = int(np.argmin(np.abs(np.array(found["lams"]) - 1.0)))
            limit = 1.05 * float(np.abs(found["mean"][middle]).max())
            panel.set(
                ylim=(-limit if np.min(found["mean"]) < 0 else -0.1 * limit, limit), title=name
            )
        if surfaces:
            axes[0].legend(loc="best")
        for k, (name, found) in enumerate(curves.items()):
            gamma, mean = np.array(found["gamma"]), np.array(found["mean"][0])
            colour, dash = style.COLOURS[k % 6], style.LINE_STYLES[k // 6]
            axes[count - 1].plot(
                gamma[gamma >= 0], mean[gamma >= 0], dash, color=colour, label=name
            )
        if curves:
            axes[count - 1].set_title("lambda = 1")
            axes[count - 1].legend(loc="best", fontsize=6.5)
        for panel in axes[count:]:
            panel.remove()
        for panel in axes[max(0, count - columns) : count]:
            panel.set_xlabel("gamma")
    return figure


# ---------------------------------------------------------------------- directions


def mixture_panels(
    samples: Array,
    true: Array,
    found: Mapping[str, Any],
    angles: Mapping[str, Sequence[float]],
    noise: float,
    methods: Mapping[str, str],
    *,
    binary: bool,
) -> Figure:
    """Samples with the columns, or with the means of binary sources that the columns make; noise
    and columns by iteration; angles of all runs.
    """
    with style.styled():
        figure, axes = style.new_figure(9.6, 7.2, 2, 2)
        _cloud(axes[0], samples)
        draw = _prototypes if binary else _columns
        size: Any = {"s": 130, "marker": "o", "alpha": 0.3} if binary else {"lw": 6, "alpha": 0.25}
        draw(axes[0], true, {"color": style.INK, **size})
        for k, name in enumerate(methods):
            look: Any = {"lw": 1.8, "ls": style.LINE_STYLES[k]}
            if binary:
                look = {"s": 46, "marker": _MARKS[k], "lw": 1.6, "facecolors": "none"}
            draw(axes[0], np.array(found[name]["mixing"]), {"color": style.COLOURS[k], **look})
        axes[0].set_title(f"Samples and the {'four places' if binary else 'columns'} found")
        _draw_traces(figure, axes, true, found, noise, methods)
        _strips(axes[3], angles)
    return figure


def _draw_traces(
    figure: Figure,
    axes: Sequence[Axes],
    true: Array,
    found: Mapping[str, Any],
    noise: float,
    methods: Mapping[str, str],
) -> None:
    for k, (name, label) in enumerate(methods.items()):
        run = found[name]
        colour, dash = style.COLOURS[k], style.LINE_STYLES[k]
        axes[1].plot(run["steps"], run["noise_trace"], dash, color=colour, label=label)
        paths = np.array(run["column_trace"])
        for i in range(paths.shape[2]):
            axes[2].plot(paths[:, 0, i], paths[:, 1, i], dash, color=colour, lw=1.2)
            axes[2].plot(*paths[-1, :, i], _MARKS[k], color=colour, ms=6, mfc="none", mew=1.6)
    axes[1].axhline(noise, color=style.INK, lw=3, alpha=0.3, label="truth")
    axes[1].set_yscale("log")
    _plain_ticks(axes[1], (0.1, 0.2, 0.3, 0.5, 1, 1.5, 2, 3, 5, 10, 20, 50))
    axes[1].set(title="Noise variance", xlabel="iterations")
    for sign in (1, -1):
        axes[2].scatter(sign * true[0], sign * true[1], s=130, color=style.INK, alpha=0.3, lw=0)
    axes[2].axhline(0, color=style.GRID, lw=1)
    axes[2].axvline(0, color=style.GRID, lw=1)
    axes[2].set_title("Columns of the mixing matrix")
    axes[2].set_aspect("equal", adjustable="datalim")
    figure.legend(*axes[1].get_legend_handles_labels(), loc="outside lower left", ncols=4)


def _cloud(axes: Axes, samples: Array) -> None:
    keep = np.unique(np.linspace(0, len(samples) - 1, min(len(samples), _MOST_POINTS)).astype(int))
    axes.scatter(samples[keep, 0], samples[keep, 1], s=6, color=_CLOUD, lw=0, rasterized=True)
    axes.set_aspect("equal", adjustable="datalim")
    axes.set(xlabel="sensor 1", ylabel="sensor 2")


def _prototypes(axes: Axes, mixing: Array, look: Any) -> None:
    """Sums of the columns with all signs: where binary sources put the samples."""
    signs = np.array([[a, b] for a in (-1, 1) for b in (-1, 1)], dtype=np.float64)
    places = signs @ mixing.T
    axes.scatter(places[:, 0], places[:, 1], zorder=3, **look)


def _columns(axes: Axes, mixing: Array, look: Any) -> None:
    for column in mixing.T:
        axes.plot([-column[0], column[0]], [-column[1], column[1]], solid_capstyle="round", **look)


def _strips(axes: Axes, values: Mapping[str, Sequence[float]], limit: float = 10.0) -> None:
    """One point per run, side by side when they are many; `limit` is what counts as right."""
    for k, numbers in enumerate(values.values()):
        shift = np.linspace(-0.25, 0.25, len(numbers)) if len(numbers) > 1 else np.zeros(1)
        axes.plot(
            k + shift, sorted(numbers), _MARKS[k % 4], color=style.COLOURS[k], ms=4, mfc="none"
        )
    axes.axhline(limit, color=style.SOFT, lw=1.1, ls="--")
    axes.set_xticks(range(len(values)), [name.replace(" ", "\n", 1) for name in values])
    axes.set_yscale("log")
    _plain_ticks(axes, (0.3, 1, 3, 10, 30, 90))
    axes.set_title("Worst angle of each run, degrees")


def _plain_ticks(axes: Axes, ticks: Sequence[float]) -> None:
    """These ticks, as far as they are inside, on a logarithmic axis."""
    low, high = axes.get_ylim()
    shown = [tick for tick in ticks if low <= tick <= high]
    axes.set_yticks(shown, [f"{tick:g}" for tick in shown])
    axes.minorticks_off()


# ---------------------------------------------------------------------- how many sources


def order_panels(
    curves: Mapping[str, Mapping[str, float]],
    rates: Sequence[Sequence[float]],
    true_rates: Sequence[float],
) -> Figure:
    """A criterion by number of sources, and learned rates beside the true ones.

    >>> len(order_panels({"a": {"1": -2.0, "2": -1.0}}, [[0.2, 0.8]], [0.2, 0.8]).axes)
    2
    """
    with style.styled():
        figure, axes = style.new_figure(9.6, 3.6, 2)
        for k, (name, values) in enumerate(curves.items()):
            numbers = sorted(map(int, values))
            heights = [values[str(n)] for n in numbers]
            best = int(np.argmax(heights))
            colour, dash = style.COLOURS[k], style.LINE_STYLES[k % 4]
            axes[0].plot(
                numbers, heights, dash, color=colour, marker=_MARKS[k % 4], ms=4, label=name
            )
            axes[0].plot(numbers[best], heights[best], "o", ms=12, mfc="none", color=colour)
        axes[0].set(title="BIC (circles: the largest)", xlabel="sources", ylabel="nats")
        style.few_ticks(axes[0].xaxis, 10, whole=True)
        axes[0].legend(loc="lower right")
        for value in set(true_rates):
            axes[1].axhline(value, color=style.INK, lw=3, alpha=0.25)
        for k, learned in enumerate(rates):
            axes[1].plot([k + 1] * len(learned), learned, "o", color=style.BLUE, mfc="none", ms=6)
        axes[1].set(
            ylim=(0.0, 1.0),
            xlim=(0.3, len(rates) + 0.7),
            title="Rates of five sources",
            xlabel="data set",
            xticks=range(1, len(rates) + 1),
        )
    return figure


# ---------------------------------------------------------------------- speech and digits


def speaker_panels(
    mixed: Array, runs: Mapping[str, Any], true: Sequence[float], shown: str
) -> Figure:
    """Angles by iteration of each run, then samples, directions and correlations of one."""
    with style.styled():
        figure, axes = style.new_figure(9.6, 7.0, 3, 2)
        for panel, (name, run) in zip(axes, runs.items(), strict=False):
            angles = np.array(run["angles"])
            for angle in true:
                panel.axhline(angle, color=style.INK, lw=3, alpha=0.25)
            for k in range(angles.shape[1]):
                panel.plot(angles[:, k], ".", ms=3, color=style.COLOURS[k])
            panel.set(ylim=(-92, 92), yticks=[-90, -45, 0, 45, 90])
            panel.set_title(name.replace(", ", ",\n", 1), fontsize=9)
            panel.set_xlabel("iterations")
        axes[0].set_ylabel("angle of a column, degrees")
        _cloud(axes[4], mixed)
        reach = float(np.quantile(np.linalg.norm(mixed, axis=1), 0.999))
        columns = np.array(runs[shown]["mixing"])
        radians = np.deg2rad(np.array(true))
        look: Any = {"color": style.INK, "lw": 6, "alpha": 0.25}
        _columns(axes[4], reach * np.stack([np.cos(radians), np.sin(radians)]), look)
        unit = reach * columns / np.linalg.norm(columns, axis=0)
        _columns(axes[4], unit, {"color": style.VERMILLION, "lw": 1.8})
        axes[4].set_title("Microphones,\n" + shown.split(",")[0], fontsize=9)
        speakers = [f"speaker {k + 1}" for k in range(len(true))]
        draw_agreement(axes[5], runs[shown]["correlation"], speakers)
        axes[5].set_title("Correlation,\n" + shown.split(",")[0], fontsize=9)
    return figure


def part_sheets(sheets: Mapping[str, Array], shape: tuple[int, int]) -> Figure:
    """Sheets of hidden images side by side, each image on its own scale.

    >>> len(part_sheets({"a": np.ones((4, 6))}, (2, 3)).axes)
    1
    """
    from kikuchi.plots.images import as_images, draw_tiles

    with style.styled():
        figure, axes = style.new_figure(3.4 * len(sheets), 3.8, len(sheets))
        for panel, (title, parts) in zip(axes, sheets.items(), strict=True):
            scaled = parts / np.maximum(np.abs(parts).max(axis=1, keepdims=True), 1e-300)
            draw_tiles(panel, as_images(scaled, shape), columns=5, signed=True, scale=1.0)
            panel.set_title(title, fontsize=9)
    return figure
