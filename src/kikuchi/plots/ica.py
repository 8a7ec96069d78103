"""Figures of ICA from plain arrays: mixtures, directions, brain maps and time courses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError
from kikuchi.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure


_MOST_POINTS = 3000  # keeps the SVG of a long recording small
_MOST_COURSE = 2000
_CLOUD = "#aeb7c1"


# ---------------------------------------------------------------------- scatter


def mixture_scatter(
    samples: ArrayLike,
    directions: Mapping[str, ArrayLike],
    *,
    true: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw samples (N, D) of up to three sensors, the true directions and the estimated ones.

    `directions` maps a name to columns (D, sources); each set has a colour. Directions are lines
    through the origin, since neither sign nor length of a column is determined.

    >>> figure = mixture_scatter(np.eye(2), {"found": np.eye(2)}, true=np.eye(2))
    >>> len(figure.axes)
    1
    """
    points = np.asarray(samples, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] < 2:
        raise DataError(f"a scatter needs samples of 2 or more sensors, got {points.shape}")
    points = points - points.mean(axis=0)
    pairs = list(combinations(range(min(points.shape[1], 3)), 2))
    labels = names or [f"sensor {k + 1}" for k in range(points.shape[1])]
    shown = points[_thinned(len(points), _MOST_POINTS)]
    with style.styled():
        figure, axes = style.new_figure(4.1 * len(pairs), 4.5, columns=len(pairs))
        for panel, pair in zip(axes, pairs, strict=True):
            _draw_scatter(panel, shown, pair, directions, true)
            panel.set(xlabel=style.plain(labels[pair[0]]), ylabel=style.plain(labels[pair[1]]))
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=4)
        style.set_headline(figure, title)
    return figure


def _draw_scatter(
    axes: Axes,
    points: Array,
    pair: tuple[int, int],
    directions: Mapping[str, ArrayLike],
    true: ArrayLike | None,
) -> None:
    x, y = points[:, pair[0]], points[:, pair[1]]
    reach = 1.06 * max(float(np.quantile(np.hypot(x, y), 0.995)), 1e-12)
    axes.scatter(x, y, s=7, color=_CLOUD, alpha=0.7, linewidths=0, rasterized=len(x) > 800)
    if true is not None:
        _draw_lines(axes, true, pair, reach, "true", {"color": style.INK, "lw": 5, "alpha": 0.25})
    for k, (name, columns) in enumerate(directions.items()):
        colour = style.COLOURS[k % len(style.COLOURS)]
        dash = style.LINE_STYLES[k % len(style.LINE_STYLES)]
        _draw_lines(axes, columns, pair, reach, name, {"color": colour, "lw": 1.8, "ls": dash})
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    style.few_ticks(axes.xaxis, 5)
    style.few_ticks(axes.yaxis, 5)


def _draw_lines(
    axes: Axes, columns: ArrayLike, pair: tuple[int, int], reach: float, name: str, look: Any
) -> None:
    """Draw columns as lines, projected onto the plane of the pair."""
    matrix = np.atleast_2d(np.asarray(columns, dtype=np.float64))
    length = np.linalg.norm(matrix, axis=0)
    for k in np.flatnonzero(length > 0):
        tip = 0.95 * reach * matrix[list(pair), k] / length[k]
        label = style.plain(name) if k == np.flatnonzero(length > 0)[0] else None
        axes.plot([-tip[0], tip[0]], [-tip[1], tip[1]], solid_capstyle="round", label=label, **look)


# ---------------------------------------------------------------------- brains


def brain_components(
    maps: ArrayLike,
    courses: ArrayLike,
    *,
    anatomy: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    remarks: Sequence[str] | None = None,
    reference: ArrayLike | None = None,
    stimulus: ArrayLike | None = None,
    interval: float | None = None,
    n_slices: int = 5,
    fraction: float = 0.05,
    title: str | None = None,
) -> Figure:
    """Draw one row per component: its map on slices through the anatomy, and its time course.

    `maps` is (components, x, y, z) with 0 or NaN outside the brain. Only the voxels of largest
    magnitude are coloured, a `fraction` of the nonzero ones (by default 5 % of all), and each row
    has its own scale. Blocks of the `stimulus` are shaded, `reference` is dashed.

    >>> maps = np.random.default_rng(0).normal(size=(2, 8, 8, 4))
    >>> figure = brain_components(maps, np.zeros((2, 30)), n_slices=3)
    >>> len(figure.axes)
    8
    """
    volumes = np.nan_to_num(np.asarray(maps, dtype=np.float64))
    rows = np.asarray(courses, dtype=np.float64)
    if volumes.ndim != 4 or len(volumes) != len(rows):
        raise DataError(
            f"maps are (components, x, y, z) with one course each, got {volumes.shape} and "
            f"{rows.shape}"
        )
    volumes, ground = _cropped(volumes, _ground(volumes, anatomy))
    slices = _slices(volumes, ground, n_slices)
    with style.styled():
        figure, grid = _brain_grid(volumes, len(slices))
        for k in range(len(volumes)):
            name = names[k] if names else f"component {k + 1}"
            _draw_slices(grid[k][:-1], volumes[k], ground, slices, fraction, heading=k == 0)
            _draw_row_name(grid[k][0], name)
            panel = grid[k][-1]
            _draw_course(panel, rows[k], reference, stimulus, interval, style.VERMILLION)
            if remarks:
                panel.set_title(style.plain(remarks[k]), fontsize=8.5, fontweight="normal", pad=3)
            panel.set_yticks([])
            if k < len(volumes) - 1:
                panel.tick_params(labelbottom=False)
            else:
                panel.set_xlabel("scan" if interval is None else "seconds")
        _brain_legend(figure, fraction, stimulus is not None, reference is not None)
        style.set_headline(figure, title)
    return figure


def _brain_legend(figure: Figure, fraction: float, stimulus: bool, reference: bool) -> None:
    """Draw the legend of colours, shades and dashes."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    strongest = f"of the {100 * fraction:g} % strongest voxels"
    entries: list[tuple[Any, str]] = [
        (Patch(color=heat_map()(0.85)), f"positive {strongest}"),
        (Patch(color=heat_map()(0.15)), "negative"),
    ]
    if stimulus:
        entries.append((Patch(color=style.GRID), "stimulus on"))
    if reference:
        entries.append((Line2D([], [], **_DASHED), "expected course"))
    handles, labels = zip(*entries, strict=True)
    figure.legend(handles, labels, loc="outside lower left", ncols=len(entries))


def _cropped(volumes: Array, ground: Array) -> tuple[Array, Array]:
    """Maps and anatomy without empty margins at the sides."""
    used = (ground > 0) | (volumes != 0).any(axis=0)
    if not used.any():
        raise DataError("all maps are zero, so there is nothing to draw")
    across, along = (np.flatnonzero(used.any(axis=other)) for other in ((1, 2), (0, 2)))
    box = (slice(across[0], across[-1] + 1), slice(along[0], along[-1] + 1))
    return volumes[:, *box], ground[box]


def _brain_grid(volumes: Array, n_slices: int) -> tuple[Figure, list[list[Axes]]]:
    from matplotlib.figure import Figure

    wide, tall = volumes.shape[1], volumes.shape[2]
    height = 1.25
    width = height * wide / tall
    figure = Figure(
        figsize=(n_slices * (width + 0.08) + 4.6, len(volumes) * height + 1.0), layout="constrained"
    )
    figure.get_layout_engine().set(w_pad=0.03, h_pad=0.05)  # type: ignore[union-attr, call-arg]
    axes = figure.subplots(
        len(volumes), n_slices + 1, squeeze=False, width_ratios=[width] * n_slices + [3.6]
    )
    return figure, [list(row) for row in axes]


def _ground(volumes: Array, anatomy: ArrayLike | None) -> Array:
    """Return the grey anatomy below the maps; without one, the outline of the voxels that have
    values.
    """
    if anatomy is None:
        return np.asarray(0.75 * (volumes != 0).any(axis=0))
    ground = np.nan_to_num(np.asarray(anatomy, dtype=np.float64))
    if ground.shape != volumes.shape[1:]:
        raise DataError(f"the anatomy has shape {ground.shape}, maps {volumes.shape[1:]}")
    top = float(np.quantile(ground[ground > 0], 0.995)) if (ground > 0).any() else 1.0
    return np.asarray(np.clip(ground / top, 0.0, 1.0))


def _slices(volumes: Array, ground: Array, wanted: int) -> NDArray[np.intp]:
    """Evenly spaced axial slices through the part of the volume that is not empty."""
    used = np.flatnonzero((ground > 0).any(axis=(0, 1)) | (volumes != 0).any(axis=(0, 1, 2)))
    if len(used) <= wanted:
        return used
    margin = 0.12 * (used[-1] - used[0])
    heights = np.linspace(used[0] + margin, used[-1] - margin, min(wanted, len(used)))
    return np.unique(np.round(heights).astype(np.intp))


def _draw_slices(
    panels: Sequence[Axes],
    volume: Array,
    ground: Array,
    slices: NDArray[np.intp],
    fraction: float,
    *,
    heading: bool,
) -> None:
    sizes = np.abs(volume[volume != 0])
    limit = float(np.quantile(sizes, 1 - fraction)) if len(sizes) else np.inf
    top = float(np.quantile(sizes, 1 - 0.1 * fraction)) if len(sizes) else 1.0
    for panel, z in zip(panels, slices, strict=True):
        shown = np.ma.masked_where(np.abs(volume[:, :, z]) < limit, volume[:, :, z])
        outside = np.ma.masked_where(ground[:, :, z] == 0, ground[:, :, z])
        panel.imshow(outside.T, cmap="gray", vmin=-0.15, vmax=1.15, origin="lower")
        panel.imshow(shown.T, cmap=heat_map(), vmin=-top, vmax=top, origin="lower")
        panel.set(xticks=[], yticks=[])
        style.hide_frame(panel)
        if heading:
            panel.set_title(f"z = {z}", fontsize=8, fontweight="normal", loc="center", pad=2)


def _draw_row_name(axes: Axes, name: str) -> None:
    text = style.plain(style.shorten(name, 18))
    axes.set_ylabel(text, rotation=0, ha="right", va="center", labelpad=6, fontweight="bold")


def heat_map() -> LinearSegmentedColormap:
    """Colours on grey anatomy: light blue to blue below zero, amber to red above."""
    from matplotlib.colors import LinearSegmentedColormap

    stops = ["#7fe3ff", "#1583d8", "#0b3c8c", "#a3150c", "#f0541e", "#ffd84a"]
    return LinearSegmentedColormap.from_list("heat", stops)


# ---------------------------------------------------------------------- time courses


def time_courses(
    courses: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    remarks: Sequence[str] | None = None,
    reference: ArrayLike | None = None,
    stimulus: ArrayLike | None = None,
    interval: float | None = None,
    title: str | None = None,
) -> Figure:
    """Draw signals (components, time) below each other on a common time axis.

    `interval` is the time between two samples in seconds; `remarks` are written on the right.

    >>> len(time_courses(np.zeros((3, 50)), interval=2.0).axes)
    3
    """
    rows = np.atleast_2d(np.asarray(courses, dtype=np.float64))
    with style.styled():
        figure, axes = style.new_figure(8.2, 0.95 * len(rows) + 0.75, rows=len(rows))
        figure.get_layout_engine().set(h_pad=0.02)  # type: ignore[union-attr, call-arg]
        for k, panel in enumerate(axes):
            colour = style.COLOURS[k % len(style.COLOURS)]
            _draw_course(panel, rows[k], reference, stimulus, interval, colour)
            panel.set_yticks([])
            _draw_row_name(panel, names[k] if names else f"source {k + 1}")
            if remarks:
                beside: Any = {"transform": panel.transAxes, "ha": "left", "va": "center"}
                panel.text(1.015, 0.5, style.plain(remarks[k]), fontsize=8.5, **beside)
            if k < len(rows) - 1:
                panel.tick_params(labelbottom=False)
        axes[-1].set_xlabel("sample" if interval is None else "seconds")
        style.set_headline(figure, title)
    return figure


def _draw_course(
    axes: Axes,
    course: Array,
    reference: ArrayLike | None,
    stimulus: ArrayLike | None,
    interval: float | None,
    colour: str,
) -> None:
    step = 1.0 if interval is None else interval
    time = step * np.arange(len(course))
    if stimulus is not None:
        _shade_blocks(axes, np.asarray(stimulus, dtype=np.float64), step)
    if reference is not None:
        axes.plot(time, _fitted(np.asarray(reference, dtype=np.float64), course), **_DASHED)
    envelope = len(course) > _MOST_COURSE
    if envelope:  # a long signal: draw the range of each piece, not a few of its samples
        edges = np.linspace(0, len(course), _MOST_COURSE // 2 + 1).astype(np.intp)[:-1]
        low, high = np.minimum.reduceat(course, edges), np.maximum.reduceat(course, edges)
        axes.fill_between(time[edges], low, high, color=colour, lw=0.4)
    else:
        axes.plot(time, course, color=colour, lw=1.4)
    axes.set_xlim(time[0], time[-1] if len(time) > 1 else step)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)


_DASHED: Any = {"color": style.SOFT, "lw": 1.3, "ls": (0, (4, 2)), "zorder": 1.5}


def _shade_blocks(axes: Axes, stimulus: Array, step: float) -> None:
    """Grey where the stimulus is above the middle of its range."""
    on = stimulus > 0.5 * (stimulus.min() + stimulus.max())
    edges = np.flatnonzero(np.diff(np.concatenate([[False], on, [False]]).astype(np.int8)))
    for begin, end in edges.reshape(-1, 2):
        axes.axvspan(step * (begin - 0.5), step * (end - 0.5), color=style.GRID, lw=0, zorder=0)


def _fitted(reference: Array, course: Array) -> Array:
    """Return the reference scaled to the course (least squares)."""
    centred = reference - reference.mean()
    power = float(centred @ centred)
    scale = float(centred @ (course - course.mean())) / power if power > 0 else 0.0
    return np.asarray(course.mean() + scale * centred)


# ---------------------------------------------------------------------- agreement


def draw_agreement(
    axes: Axes,
    correlation: ArrayLike,
    true_names: Sequence[str] | None = None,
    found_names: Sequence[str] | None = None,
) -> None:
    """Draw the absolute correlation of each true source (row) with each recovered one (column)."""
    values = np.abs(np.asarray(correlation, dtype=np.float64))
    axes.imshow(values, cmap=style.confidence_map(), vmin=0, vmax=1)
    for (i, j), value in np.ndenumerate(values):
        ink = style.text_on(style.confidence_map()(value))
        axes.text(j, i, f"{value:.2f}", ha="center", va="center", color=ink, size=9)
    left = true_names or [f"true {k + 1}" for k in range(values.shape[0])]
    below = found_names or [f"found {k + 1}" for k in range(values.shape[1])]
    axes.set_yticks(range(len(left)), [style.plain(style.shorten(t, 16)) for t in left])
    axes.set_xticks(range(len(below)), [style.plain(style.shorten(t, 10)) for t in below])
    axes.tick_params(length=0)
    style.hide_frame(axes)


def _thinned(count: int, most: int) -> NDArray[np.intp]:
    if count <= most:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, most).astype(np.intp))
