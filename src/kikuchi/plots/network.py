"""Drawing of a network: a box with bars for each variable, arrows from top to bottom."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.errors import ModelError
from kikuchi.core.text import printable
from kikuchi.plots import style
from kikuchi.plots.layered import Edge, LayeredLayout, layered, rectangular

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_NODES = 100  # boxes: more are not legible on one page

_ROW, _HEAD, _MARGIN = 0.17, 0.25, 0.06  # inches: a state, the name, the rim
_NAME_SIZE, _STATE_SIZE = 8.5, 7.5  # font sizes in points
_BAR, _NUMBER = 0.55, 0.48  # inches: the bar of probability 1, and the number next to it
_MOST_STATES = 6
_LONGEST_NAME, _LONGEST_STATE = 22, 14
_ARROW = "-|>,head_length=4,head_width=2"
_RIM, _EDGE = "#9aa4af", "#6c7681"
_HEAD_FILL, _BODY_FILL, _BAR_FILL = "#e4edf4", "#fbfcfd", style.BLUE
_SEEN_HEAD, _SEEN_BAR = "#fbe3bd", style.AMBER


def draw_network(
    names: Sequence[str],
    edges: Sequence[Edge],
    states: Sequence[Sequence[str]],
    values: Sequence[ArrayLike | None] | None = None,
    *,
    observed: Mapping[int, int] | None = None,
    directed: bool = True,
    percentages: bool = True,
    grid: tuple[int, int] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw the variables of a network as boxes with a bar and a percentage for each state.

    Boxes are laid out in layers, so that arrows point downwards. Of variables with more than six
    states the most probable five are shown.

    Parameters
    ----------
    names : Sequence[str]
        Name of each variable.
    edges : Sequence[Edge]
        Pairs (parent, child) of variable numbers, without a cycle; for undirected models any
        orientation without a cycle.
    states : Sequence[Sequence[str]]
        Names of the states of each variable.
    values : Sequence[array-like or None], optional
        Probability of each state of each variable; None, for one variable or for all, draws the
        name only.
    observed : Mapping[int, int], optional
        Evidence as {variable number: state number}; these boxes have another colour.
    directed : bool, default True
        Whether edges have arrowheads.
    percentages : bool, default True
        Whether the percentage of each state is written next to its bar.
    grid : tuple[int, int], optional
        Rows and columns of a grid whose variables are numbered row by row, to draw it as a grid.
    title : str, optional
        Text above the figure.

    >>> figure = draw_network(["a", "b"], [(0, 1)], [["n", "y"]] * 2, [[0.9, 0.1], [0.5, 0.5]])
    >>> [text.get_text() for text in figure.axes[0].texts][:5]
    ['a', 'n', '90.0%', 'y', '10.0%']
    """
    if len(names) > MOST_NODES:
        raise ModelError(
            f"a picture of {len(names)} variables is not legible; at most {MOST_NODES} are drawn. "
            "Choose some of them with variables=[...]"
        )
    seen = dict(observed or {})
    shown = [
        _shown_states(list(states[v]), None if values is None else values[v], seen.get(v))
        for v in range(len(names))
    ]
    figure_width = _NUMBER if percentages else 0.0
    widths = [_box_width(names[v], shown[v], figure_width) for v in range(len(names))]
    heights = [_HEAD + _MARGIN + (_ROW * len(rows) + _MARGIN if rows else 0.0) for rows in shown]
    if grid is None:
        layout = layered(len(names), edges, widths, heights)
    else:
        layout = rectangular(*grid, edges, max(widths), max(heights))
    right = max([float(layout.x[v]) + widths[v] / 2 for v in range(len(names))] + [layout.width])
    bottom = float(layout.layer_top[-1] + layout.layer_height[-1]) if len(names) else 1.0
    with style.styled():
        figure, axes = _blank(right, bottom, title)
        _draw_edges(axes, layout, edges, widths, heights, directed)
        for v, rows in enumerate(shown):
            corner = (float(layout.x[v]) - widths[v] / 2, float(layout.top[v]))
            _draw_box(axes, corner, widths[v], heights[v], names[v], rows, v in seen, figure_width)
    return figure


def _blank(right: float, bottom: float, title: str | None) -> tuple[Figure, Axes]:
    """An empty figure whose units are inches, counted downwards."""
    head = 0.3 if title else 0.0
    figure = style.plain_figure(max(right, 1.5) + 0.2, bottom + head + 0.2)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    axes.set_xlim(-0.1, max(right, 1.5) + 0.1)
    axes.set_ylim(bottom + 0.1, -0.1 - head)
    if title:
        text = style.plain(printable(title))
        axes.text(0.0, -0.1 - head / 2, text, fontweight="bold", va="center", fontsize=10)
    return figure, axes


# ---------------------------------------------------------------------- boxes


Row = tuple[str, float, bool]
"""A state: its label, its probability, and whether it was observed."""


def _shown_states(labels: list[str], values: ArrayLike | None, observed: int | None) -> list[Row]:
    if values is None:
        return []
    p = np.asarray(values, dtype=np.float64)
    chosen = list(range(len(labels)))
    if len(labels) > _MOST_STATES:
        order = np.argsort(-p, kind="stable")[: _MOST_STATES - 1].tolist()
        chosen = sorted(order if observed is None or observed in order else [*order[:-1], observed])
    rows: list[Row] = [(_label(labels[k]), float(p[k]), k == observed) for k in chosen]
    if len(chosen) < len(labels):
        rows.append((f"{len(labels) - len(chosen)} more", float(1.0 - p[chosen].sum()), False))
    return rows


def _label(text: str, longest: int = _LONGEST_STATE) -> str:
    return style.plain(style.shorten(printable(text), longest))


def _box_width(name: str, rows: list[Row], figure_width: float) -> float:
    title = text_width(_label(name, _LONGEST_NAME), _NAME_SIZE, "bold")
    states = max((text_width(label, _STATE_SIZE) for label, *_ in rows), default=0.0)
    body = states + 0.08 + _BAR + figure_width if rows else 0.0
    return max(title + 0.04, body, 0.5) + 2 * _MARGIN


@lru_cache(maxsize=4096)
def text_width(text: str, size: float, weight: str = "normal") -> float:
    """Return the width of a text in inches at a font size in points.

    >>> text_width("WWWW", 8.0) > 2 * text_width("iiii", 8.0)
    True
    """
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    font = FontProperties(size=size, weight=weight)
    with warnings.catch_warnings(action="ignore"):  # a character that the font does not have
        points, *_ = TextToPath().get_text_width_height_descent(text, font, ismath=False)
    return float(points) / 72.0


def percentage(p: float) -> str:
    """Return a probability as a percentage that is never rounded to certainty.

    >>> percentage(0.25), percentage(1.0), percentage(0.99999), percentage(1e-5)
    ('25.0%', '100%', '>99.9%', '<0.1%')
    """
    if p in (0.0, 1.0):
        return f"{100 * p:.0f}%"
    if p < 0.0005:
        return "<0.1%"
    return ">99.9%" if p > 0.9995 else f"{100 * p:.1f}%"


def _draw_box(
    axes: Axes,
    corner: tuple[float, float],
    width: float,
    height: float,
    name: str,
    rows: list[Row],
    observed: bool,
    figure_width: float,
) -> None:
    from matplotlib.patches import Rectangle

    left, top = corner
    axes.add_patch(
        Rectangle(corner, width, height, facecolor=_BODY_FILL, edgecolor="none", zorder=3)
    )
    head = _SEEN_HEAD if observed else _HEAD_FILL
    head_height = _HEAD if rows else height
    axes.add_patch(
        Rectangle(corner, width, head_height, facecolor=head, edgecolor="none", zorder=4)
    )
    axes.add_patch(
        Rectangle(corner, width, height, facecolor="none", edgecolor=_RIM, lw=0.8, zorder=6)
    )
    axes.text(
        left + width / 2, top + head_height / 2, _label(name, _LONGEST_NAME), ha="center",
        va="center", fontsize=_NAME_SIZE, fontweight="bold", zorder=7,
    )  # fmt: skip
    start = left + width - _MARGIN - figure_width - _BAR
    for k, (label, p, seen) in enumerate(rows):
        y = top + _HEAD + _MARGIN + _ROW * (k + 0.5)
        axes.text(left + _MARGIN, y, label, ha="left", va="center", fontsize=_STATE_SIZE, zorder=7)
        axes.add_patch(
            Rectangle(
                (start, y - 0.05), _BAR * min(max(p, 0.0), 1.0), 0.10,
                facecolor=_SEEN_BAR if observed or seen else _BAR_FILL, edgecolor="none", zorder=5,
            )
        )  # fmt: skip
        if figure_width:
            end = left + width - _MARGIN
            text = percentage(p)
            axes.text(end, y, text, ha="right", va="center", fontsize=_STATE_SIZE, zorder=7)


# ---------------------------------------------------------------------- edges


def _draw_edges(
    axes: Axes,
    layout: LayeredLayout,
    edges: Sequence[Edge],
    widths: Sequence[float],
    heights: Sequence[float],
    directed: bool,
) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    leave = _docks(layout, edges, widths, side=0)
    arrive = _docks(layout, edges, widths, side=1)
    for e, (u, v) in enumerate(edges):
        if layout.layer[u] == layout.layer[v]:  # neighbours in a row of a grid
            height = float(layout.top[u]) + min(heights[u], heights[v]) / 2
            ends = [float(layout.x[u]) + widths[u] / 2, float(layout.x[v]) - widths[v] / 2]
            axes.plot(ends, [height, height], color=_EDGE, lw=0.9, zorder=2)
            continue
        points = [(leave[e], float(layout.top[u]) + heights[u])]
        for place, x in layout.routes[e]:
            top = float(layout.layer_top[place])
            points += [(x, top), (x, top + float(layout.layer_height[place]))]
        points.append((arrive[e], float(layout.top[v]) - 0.01))
        vertices, codes = _smooth(points)
        axes.add_patch(
            FancyArrowPatch(
                path=Path(vertices, codes), arrowstyle=_ARROW if directed else "-",
                color=_EDGE, lw=0.9, shrinkA=0, shrinkB=0, zorder=2,
            )
        )  # fmt: skip


def _docks(
    layout: LayeredLayout, edges: Sequence[Edge], widths: Sequence[float], side: int
) -> list[float]:
    """Return the point where each edge meets its box, spread along the side in the order of the
    other ends.
    """
    ends: dict[int, list[tuple[float, int]]] = {}
    for e, edge in enumerate(edges):
        if layout.layer[edge[0]] == layout.layer[edge[1]]:
            continue
        route = layout.routes[e]
        near = route[-side][1] if route else float(layout.x[edge[1 - side]])
        ends.setdefault(edge[side], []).append((near, e))
    docks = [0.0] * len(edges)
    for v, items in ends.items():
        step = min(0.18, 0.7 * widths[v] / max(len(items), 1))
        for k, (_, e) in enumerate(sorted(items)):
            docks[e] = float(layout.x[v]) + step * (k - (len(items) - 1) / 2)
    return docks


def _smooth(points: list[tuple[float, float]]) -> tuple[Array, list[Any]]:
    """Return a path through the points that is vertical at each of them."""
    from matplotlib.path import Path

    vertices, codes = [points[0]], [Path.MOVETO]
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if x0 == x1:
            vertices.append((x1, y1))
            codes.append(Path.LINETO)
            continue
        half = (y0 + y1) / 2
        vertices += [(x0, half), (x1, half), (x1, y1)]
        codes += [Path.CURVE4] * 3
    return np.array(vertices), codes
