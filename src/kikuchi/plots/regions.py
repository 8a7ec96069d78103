"""Drawings of region graphs: over the grid that they cover, in layers by size, or as bars.

Reference: LIU-I10.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import ModelError
from kikuchi.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Variables = Sequence[Sequence[int]]

MOST_IN_LAYER = 20
MOST_LAYERED = 60
_SHOWN_SIDE = 10  # rows and columns of a large grid that are drawn
_LABELLED_SIDE = 6
_WIDEST_REGION = 3
_LABEL_WIDTH = 15

_FILLS = {1: "#9fc5de", 0: "#dfe3e8", -1: "#f2b98f"}  # counting number +, 0, -
_LINES = {1: style.BLUE, 0: style.SOFT, -1: style.VERMILLION}
_WHITE: Any = {"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none"}
_WORDS = {1: "counted +", 0: "counted 0", -1: "counted −"}


def draw_regions(
    regions: Variables,
    counting: ArrayLike,
    edges: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    grid: tuple[int, int] | None = None,
    periodic: bool = False,
    title: str = "Regions",
) -> Figure:
    """Draw regions (their variables), counting numbers and edges (parent, child).

    Regions that are small patches of a `grid` (rows, columns) are drawn over it. Next to it, or
    alone, few regions are drawn as a diagram with large ones on top, and many as bars by size.

    >>> figure = draw_regions([(0, 1), (1, 2), (1,)], [1, 1, -1], [(0, 2), (1, 2)])
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['0 1', '+1', '1 2', '+1', '1', '−1']
    """
    if not len(regions):
        raise ModelError("there are no regions to draw")
    c = np.asarray(counting)
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    over_grid = grid is not None and _is_patchwork(regions, grid, periodic)
    layered = layers_drawable(_levels(regions, pairs))
    with style.styled():
        if over_grid and grid is not None:
            levels = _levels(regions, pairs) if layered else None
            figure, axes = style.new_figure(*_size_with_grid(levels), columns=2)
            _draw_over_grid(axes[0], regions, c, grid, periodic)
        elif layered:
            figure, axes = style.new_figure(*_size_of_layers(_levels(regions, pairs)))
        else:
            figure, axes = style.new_figure(6.5, 0.9 + 0.32 * max(len(_kinds(regions, c)), 3))
        if layered:
            _draw_layers(axes[-1], regions, c, pairs, names)
        else:
            _draw_bars(axes[-1], regions, c)
        if over_grid or layered:
            _legend(axes[0], c)
        figure.suptitle(style.plain(title), x=0.01, ha="left", fontsize=10.5, fontweight="bold")
    return figure


def layers_drawable(levels: ArrayLike) -> bool:
    """Return whether a diagram with these rows, one number per region, is legible.

    >>> layers_drawable([2, 2, 1]), layers_drawable([1] * 100)
    (True, False)
    """
    rows = np.unique(np.asarray(levels), return_counts=True)[1]
    return int(rows.sum()) <= MOST_LAYERED and int(rows.max(initial=0)) <= MOST_IN_LAYER


# ---------------------------------------------------------------------- sizes and colours


def _size_of_layers(levels: Ints) -> tuple[float, float]:
    rows = np.unique(levels, return_counts=True)[1]
    width = float(np.clip(0.78 * rows.max(initial=1) + 1.2, 4.5, 13.0))
    return width, float(np.clip(1.15 * len(rows) + 0.7, 2.6, 9.0))


def _size_with_grid(levels: Ints | None) -> tuple[float, float]:
    width, height = (5.5, 4.0) if levels is None else _size_of_layers(levels)
    return 2 * max(width, 4.8), max(height, 4.8)


def _sign(count: float) -> int:
    return int(np.sign(count))


def _signed(count: float) -> str:
    return "0" if count == 0 else f"{count:+g}".replace("-", "−")


# ---------------------------------------------------------------------- over a grid


def _is_patchwork(regions: Variables, grid: tuple[int, int], periodic: bool) -> bool:
    """Return whether all regions except the outermost are patches of at most three rows and
    columns.
    """
    wide = 0
    for region in regions:
        height, width = _extent(region, grid)
        around = periodic and (height == grid[0] - 1 or width == grid[1] - 1)
        wide += max(height, width) >= _WIDEST_REGION and not around
    return wide <= 1


def _extent(region: Sequence[int], grid: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns between the outermost variables of a region."""
    cols = [v % grid[1] for v in region]
    return max(region) // grid[1] - min(region) // grid[1], max(cols) - min(cols)


def _draw_over_grid(
    axes: Axes, regions: Variables, counting: NDArray[Any], grid: tuple[int, int], periodic: bool
) -> None:
    shown = (min(grid[0], _SHOWN_SIDE), min(grid[1], _SHOWN_SIDE))
    left_out = False
    for region, count in sorted(zip(regions, counting, strict=True), key=lambda r: -len(r[0])):
        height, width = _extent(region, grid)
        wraps = periodic and (height == grid[0] - 1 or width == grid[1] - 1)
        left_out |= wraps
        outside = any(v // grid[1] >= shown[0] or v % grid[1] >= shown[1] for v in region)
        if wraps or outside:
            continue
        rows, cols = np.divmod(np.asarray(region), grid[1])
        _draw_patch(axes, np.stack([cols, -rows], axis=1).astype(float), float(count), shown)
    row, col = np.divmod(np.arange(shown[0] * shown[1]), shown[1])
    axes.scatter(col, -row, s=9, color=style.INK, zorder=6)
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.margins(0.06)
    parts = ["over the grid"]
    if shown != grid:
        parts.append(f"first {shown[0]} rows and {shown[1]} columns of {grid[0]} by {grid[1]}")
    if left_out:
        parts.append("those around the border are left out")
    axes.set_title(", ".join(parts), fontweight="normal")


def _draw_patch(axes: Axes, points: Array, count: float, shown: tuple[int, int]) -> None:
    """A face as a patch, an edge as a bar, a variable as a disc, each with its counting number."""
    sign = _sign(count)
    middle = points.mean(axis=0)
    labelled = max(shown) <= _LABELLED_SIDE
    if len(points) == 1:
        _disc(axes, middle, sign, 330 if labelled else 70)
    elif _is_line(points):
        ends = points[np.lexsort(points.T)][[0, -1]]
        ends = middle + 0.62 * (ends - middle)
        axes.plot(
            *ends.T,
            color=_LINES[sign],
            linewidth=7 if labelled else 3.5,
            alpha=0.75,
            solid_capstyle="round",
            zorder=3,
        )
    elif np.ptp(points, axis=0).max() >= _WIDEST_REGION:
        _outline(axes, points, _LINES[sign])
        middle = np.array([middle[0], points[:, 1].max() + 0.28])
    else:
        _fill(axes, middle + 0.74 * (points - middle), sign)
        if len(points) == 3:  # away from the number of the face behind it
            corner = points[np.argmin(np.linalg.norm(points - points.mean(axis=0), axis=1))]
            middle = (middle + corner) / 2
    if labelled:
        back = None if len(points) in (1, 4) else _WHITE
        where = float(middle[0]), float(middle[1])
        axes.text(
            *where, s=_signed(count), ha="center", va="center", fontsize=8, zorder=7, bbox=back
        )


def _disc(axes: Axes, position: Array, sign: int, area: float) -> None:
    axes.scatter(
        position[:1],
        position[1:],
        s=area,
        color=_FILLS[sign],
        zorder=6.5,
        edgecolors=_LINES[sign],
        linewidths=1.0,
    )


def _is_line(points: Array) -> bool:
    return bool(np.linalg.matrix_rank(points - points[0]) < 2)


def _fill(axes: Axes, points: Array, sign: int) -> None:
    from matplotlib.patches import Polygon
    from scipy.spatial import ConvexHull

    corners = points[ConvexHull(points).vertices]
    axes.add_patch(
        Polygon(
            corners,
            closed=True,
            facecolor=_FILLS[sign],
            alpha=0.7,
            edgecolor=_LINES[sign],
            linewidth=1.0,
            joinstyle="round",
            zorder=2,
        )
    )


def _outline(axes: Axes, points: Array, colour: str) -> None:
    from matplotlib.patches import Rectangle

    low, high = points.min(axis=0) - 0.28, points.max(axis=0) + 0.28
    axes.add_patch(
        Rectangle(
            (float(low[0]), float(low[1])),
            *(high - low),
            fill=False,
            edgecolor=colour,
            linewidth=2.0,
            linestyle="--",
            zorder=2,
        )
    )


def _legend(axes: Axes, counting: NDArray[Any]) -> None:
    from matplotlib.patches import Patch

    signs = sorted({_sign(c) for c in counting}, reverse=True)
    handles = [Patch(facecolor=_FILLS[s], edgecolor=_LINES[s], label=_WORDS[s]) for s in signs]
    axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=3)


# ---------------------------------------------------------------------- layers


def _draw_layers(
    axes: Axes, regions: Variables, counting: NDArray[Any], edges: Ints, names: Sequence[str] | None
) -> None:
    positions = layer_positions(_levels(regions, edges), edges)
    axes.set_axis_off()
    axes.set(xlim=(-0.04, 1.04), ylim=(-0.45, positions[:, 1].max() + 0.3))
    for parent, child in edges:
        axes.plot(*positions[[parent, child]].T, color=style.SOFT, linewidth=0.8, zorder=1)
    for region, count, position in zip(regions, counting, positions, strict=True):
        sign = _sign(count)
        text = _folded([names[v] if names else str(v) for v in region])
        box: Any = {
            "boxstyle": "round,pad=0.28",
            "facecolor": _FILLS[sign],
            "edgecolor": _LINES[sign],
        }
        where = float(position[0]), float(position[1])
        middle: Any = {"ha": "center", "va": "center", "in_layout": False}
        axes.text(*where, s=style.plain(text), fontsize=8, bbox=box, zorder=4, **middle)
        axes.annotate(
            _signed(count),
            where,
            xytext=(0, -9 - 5.5 * (text.count("\n") + 1)),
            textcoords="offset points",
            fontsize=7.5,
            color=_LINES[sign],
            bbox=_WHITE,
            zorder=3,
            **middle,
        )
    axes.set_title("large regions above, with counting numbers", fontweight="normal")


def _levels(regions: Variables, edges: Ints) -> Ints:
    """Return two rows if no region has both parents and children, else one for each size."""
    if not np.intersect1d(edges[:, 0], edges[:, 1]).size:
        is_child = np.isin(np.arange(len(regions)), edges[:, 1])
        return np.where(is_child, 0, 1)
    return np.array([len(region) for region in regions])


def _folded(words: list[str]) -> str:
    """Names with spaces between, broken into lines of about equal width."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 1 + len(word) <= _LABEL_WIDTH:
            lines[-1] += " " + word
        else:
            lines.append(style.shorten(word, _LABEL_WIDTH))
    kept = lines if len(lines) <= 4 else [*lines[:3], "…"]
    return "\n".join(kept)


def layer_positions(sizes: ArrayLike, edges: ArrayLike) -> Array:
    """Return positions in one row for each size, large sizes on top, with few crossings of edges.

    Each row is repeatedly sorted by the mean positions of its neighbours in other rows.

    >>> layer_positions([2, 2, 1], [(0, 2), (1, 2)])[:, 1].tolist()
    [1.0, 1.0, 0.0]
    """
    size = np.asarray(sizes)
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    levels = np.unique(size)
    positions = np.zeros((len(size), 2))
    positions[:, 1] = np.searchsorted(levels, size)
    rows = [np.flatnonzero(size == level) for level in levels[::-1]]
    around: list[list[int]] = [[] for _ in size]
    for i, j in pairs.tolist():
        around[i].append(j)
        around[j].append(i)
    for row in rows:
        _space(positions, row)
    for sweep in range(24):
        for row in rows if sweep % 2 else rows[::-1]:
            wish = [np.mean(positions[around[k], 0]) if around[k] else positions[k, 0] for k in row]
            _space(positions, row[np.argsort(wish, kind="stable")])
    return positions


def _space(positions: Array, row: Ints) -> None:
    positions[row, 0] = (np.arange(len(row)) + 0.5) / len(row)


# ---------------------------------------------------------------------- bars


def _kinds(regions: Variables, counting: NDArray[Any]) -> list[tuple[int, float, int]]:
    """(variables, counting number, how many), large regions first."""
    kinds = Counter((len(r), float(c)) for r, c in zip(regions, counting, strict=True))
    return [(size, c, count) for (size, c), count in sorted(kinds.items(), reverse=True)]


def _draw_bars(axes: Axes, regions: Variables, counting: NDArray[Any]) -> None:
    kinds = _kinds(regions, counting)
    heights = np.arange(len(kinds))
    colours = [_FILLS[_sign(c)] for _, c, _ in kinds]
    rims = [_LINES[_sign(c)] for _, c, _ in kinds]
    counts = [count for *_, count in kinds]
    axes.barh(heights, counts, color=colours, edgecolor=rims, height=0.62)
    axes.set_yticks(heights, [f"{s} variable{'s' * (s > 1)}, {_signed(c)}" for s, c, _ in kinds])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    for height, count in zip(heights, counts, strict=True):
        axes.annotate(
            f"{count}",
            (count, height),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axes.margins(x=0.12)
    style.few_ticks(axes.xaxis, 5, whole=True)
    axes.set_xlabel("regions")
    axes.set_title("by size and counting number", fontweight="normal")
