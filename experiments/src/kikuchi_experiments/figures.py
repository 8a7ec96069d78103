"""Figures of experiments: box plots, error maps, paths and small graphs, in the look of `plots`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array
from kikuchi.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Place = tuple[float, float]
Maps = Mapping[tuple[str, str], tuple[NDArray[Any], NDArray[Any]]]


def bias_paths(paths: Mapping[str, Sequence[Sequence[float]]]) -> Figure:
    """Biases of two units after each scaling, one panel for each source of marginals.

    >>> len(bias_paths({"exact": [[0.0, 0.0], [1.0, 0.0]]}).axes)
    1
    """
    columns = min(3, len(paths))
    rows = -(-len(paths) // columns)
    with style.styled():
        figure, axes = style.new_figure(0.6 + 3.2 * columns, 0.5 + 2.1 * rows, columns, rows)
        for panel, (name, path) in zip(axes, paths.items(), strict=False):
            points = np.asarray(path)
            for unit, (colour, line) in enumerate(((style.BLUE, "-"), (style.VERMILLION, "--"))):
                panel.plot(points[:, unit], line, color=colour, lw=1.3, label=f"unit {unit}")
            panel.set(title=name, ylim=(-6.3, 0.8), xlabel="scalings", ylabel="bias")
            style.few_ticks(panel.xaxis, 5, whole=True)
        for panel in axes[len(paths) :]:
            panel.set_axis_off()
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=2)
    return figure


def box_plots(samples: Mapping[str, Sequence[float]], label: str, title: str) -> Figure:
    """Quartiles and whole range of each sample on a logarithmic axis, with every point.

    >>> box_plots({"a": [1, 2, 3], "b": []}, "messages", "Speed").axes[0].get_xscale()
    'log'
    """
    names = list(samples)
    with style.styled():
        figure, (axes,) = style.new_figure(7.2, 1.3 + 0.55 * len(names))
        for row, name in enumerate(names):
            values = np.asarray(samples[name], dtype=np.float64)
            if not values.size:
                axes.text(0.02, row, "no run converged", va="center", color=style.INK)
                continue
            _draw_box(axes, row, values)
        axes.set_xscale("log")
        axes.set_yticks(range(len(names)), [style.plain(name) for name in names])
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set(xlabel=label, title=title)
    return figure


def _draw_box(axes: Axes, row: int, values: Array) -> None:
    low, middle, high = np.percentile(values, [25, 50, 75])
    axes.hlines(row, values.min(), values.max(), color=style.INK, lw=1.0, zorder=2)
    for end in (values.min(), values.max()):
        axes.vlines(end, row - 0.12, row + 0.12, color=style.INK, lw=1.0, zorder=2)
    axes.barh(
        row, high - low, left=low, height=0.44, color="#9fc5de", edgecolor=style.BLUE, zorder=3
    )
    axes.vlines(middle, row - 0.22, row + 0.22, color=style.VERMILLION, lw=2.2, zorder=4)
    shift = np.linspace(-0.1, 0.1, len(values)) if len(values) > 1 else np.zeros(1)
    axes.plot(values, row + shift, ".", color=style.INK, ms=3, alpha=0.45, zorder=5)


def error_maps(maps: Maps, weights: Sequence[float], biases: Sequence[float]) -> Figure:
    """Error by size of weights and biases: one row per method, one column per kind of observation.

    `maps` gives for each (method, observation) the mean errors and the number of failures, both
    with one row per bias and one column per weight.

    >>> nothing = (np.zeros((1, 2)), np.zeros((1, 2), dtype=int))
    >>> len(error_maps({("bp", "all"): nothing}, [1.0, 2.0], [0.5]).axes)
    2
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    methods = list(dict.fromkeys(method for method, _ in maps))
    kinds = list(dict.fromkeys(kind for _, kind in maps))
    highest = max(
        (float(np.nanmax(e)) for e, _ in maps.values() if np.isfinite(e).any()), default=0
    )
    scale = Normalize(0.0, max(highest, 1e-6))
    shade = style.confidence_map()
    with style.styled():
        figure, axes = style.new_figure(
            1.2 + 2.6 * len(kinds), 0.7 + 2.0 * len(methods), len(kinds), len(methods)
        )
        for panel, (method, kind) in zip(
            axes, ((m, k) for m in methods for k in kinds), strict=True
        ):
            errors, failures = maps[method, kind]
            _draw_map(panel, errors, failures, shade, scale)
            panel.set_xticks(range(len(weights)), [f"{w:g}" for w in weights])
            panel.set_yticks(range(len(biases)), [f"{b:g}" for b in biases])
            if method == methods[0]:
                panel.set_title(kind, fontsize=9.5)
            if method == methods[-1]:
                panel.set_xlabel("spread of weights")
            if kind == kinds[0]:
                panel.set_ylabel(f"{method}\nspread of biases")
        figure.colorbar(
            ScalarMappable(scale, shade), ax=axes, shrink=0.8, label="mean absolute error"
        )
    return figure


def _draw_map(
    axes: Axes, errors: NDArray[Any], failures: NDArray[Any], shade: Any, scale: Any
) -> None:
    axes.grid(False)
    axes.imshow(errors, cmap=shade, norm=scale, origin="lower", aspect="auto")
    for (row, col), value in np.ndenumerate(errors):
        if not np.isfinite(value):
            continue
        text = f"{value:.3f}".removeprefix("0")
        if failures[row, col]:
            text += f"\n{failures[row, col]} failed"
        ink = style.text_on(shade(scale(value)))
        axes.text(col, row, text, ha="center", va="center", fontsize=6.8, color=ink)


# ---------------------------------------------------------------------- small graphs


def graph_panels(
    places: Mapping[str, Place],
    panels: Sequence[tuple[str, Sequence[tuple[str, str]], Sequence[tuple[str, str]], bool]],
    trees: Sequence[tuple[str, Sequence[str], Sequence[tuple[int, int, str]]]],
) -> Figure:
    """Graphs over the same nodes, and trees of cliques below the last of them.

    Each panel is (title, edges, added edges drawn dashed, whether edges are arrows); each tree is
    (title, cliques, joins (clique, clique, separator)).

    >>> at = {"A": (0.0, 0.0), "B": (1.0, 0.0)}
    >>> figure = graph_panels(at, [("one", [("A", "B")], [], True)], [("two", ["A B"], [])])
    >>> len(figure.axes)
    2
    """
    columns = max(len(panels), len(trees))
    with style.styled():
        figure, axes = style.new_figure(0.4 + 2.7 * columns, 5.0, columns, 2)
        for panel in axes:
            panel.set_axis_off()
        for panel, (title, edges, added, directed) in zip(axes, panels, strict=False):
            _draw_small_graph(panel, places, edges, added, directed)
            panel.set_title(title, fontsize=9.5)
        below = axes[2 * columns - len(trees) :]
        for panel, (title, cliques, joins) in zip(below, trees, strict=True):
            _draw_clique_tree(panel, cliques, joins)
            panel.set_title(title, fontsize=9.5)
    unused = [*axes[len(panels) : columns], *axes[columns : 2 * columns - len(trees)]]
    for panel in unused:
        figure.delaxes(panel)
    return figure


def _draw_small_graph(
    axes: Axes,
    places: Mapping[str, Place],
    edges: Sequence[tuple[str, str]],
    added: Sequence[tuple[str, str]],
    directed: bool,
) -> None:
    for one, other in edges:
        arrow = "-|>" if directed else "-"
        _draw_line(axes, places[one], places[other], arrow, style.INK, "-")
    for one, other in added:
        _draw_line(axes, places[one], places[other], "-", style.VERMILLION, (0, (4, 2)))
    x, y = zip(*places.values(), strict=True)
    axes.scatter(x, y, s=330, color="#9fc5de", edgecolor=style.INK, linewidth=1.0, zorder=3)
    for name, (across, up) in places.items():
        axes.text(across, up, name, ha="center", va="center", zorder=4, color="#14181d")
    axes.set(xlim=(min(x) - 0.35, max(x) + 0.35), ylim=(min(y) - 0.35, max(y) + 0.35))


def _draw_line(axes: Axes, start: Place, end: Place, arrow: str, colour: str, line: Any) -> None:
    axes.annotate(
        "",
        end,
        start,
        arrowprops={
            "arrowstyle": arrow,
            "color": colour,
            "linestyle": line,
            "linewidth": 1.4,
            "shrinkA": 10,
            "shrinkB": 10,
        },
    )


def _draw_clique_tree(
    axes: Axes, cliques: Sequence[str], joins: Sequence[tuple[int, int, str]]
) -> None:
    """Cliques from top to bottom in the order of the tree, separators on the lines."""
    order, above = _tree_order(len(cliques), joins)
    height = {clique: -float(k) for k, clique in enumerate(order)}
    for clique in order:
        if above[clique] is not None:
            parent, separator = above[clique]
            axes.plot([0, 0], [height[parent], height[clique]], color=style.INK, lw=1.4, zorder=1)
            middle = (height[parent] + height[clique]) / 2
            box = {"boxstyle": "square,pad=0.25", "facecolor": "#f2b98f", "edgecolor": style.INK}
            axes.text(
                0,
                middle,
                separator,
                ha="center",
                va="center",
                fontsize=8,
                bbox=box,
                color="#14181d",
            )
        box = {"boxstyle": "round,pad=0.4", "facecolor": "#9fc5de", "edgecolor": style.INK}
        axes.text(
            0, height[clique], cliques[clique], ha="center", va="center", bbox=box, color="#14181d"
        )
    axes.set(xlim=(-1, 1), ylim=(-max(3.4, len(cliques) - 0.6), 0.4))


def _tree_order(
    count: int, joins: Sequence[tuple[int, int, str]]
) -> tuple[list[int], dict[int, Any]]:
    """A walk along the longest chain first: begin at a clique with one neighbour."""
    near: dict[int, list[tuple[int, str]]] = {k: [] for k in range(count)}
    for one, other, separator in joins:
        near[one].append((other, separator))
        near[other].append((one, separator))
    start = min(near, key=lambda k: (len(near[k]), k))
    above: dict[int, Any] = {start: None}
    order, stack = [], [start]
    while stack:
        k = stack.pop()
        order.append(k)
        for other, separator in near[k]:
            if other not in above:
                above[other] = (k, separator)
                stack.append(other)
    return order, above
