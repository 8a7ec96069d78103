"""Drawings of small factor graphs: variables as circles, factors as squares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.errors import ModelError
from kikuchi.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_NODES = 60
_LONGEST_NAME = 16


def drawable(n_variables: int, n_factors: int) -> bool:
    """Return whether a drawing with this many nodes is legible.

    >>> drawable(8, 8), drawable(100, 180)
    (True, False)
    """
    return n_variables + n_factors <= MOST_NODES


def draw_graph(
    scopes: Sequence[Sequence[int]],
    n_variables: int,
    *,
    belief: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    children: Sequence[int] | None = None,
    observed: Sequence[int] = (),
    belief_label: str = "P(x = 1)",
    centred: bool = True,
) -> Figure:
    """The bipartite graph of variables and factors, for at most `MOST_NODES` nodes together.

    `belief` (one number in [0, 1] a variable) shades the circles, with white at 1/2 if `centred`
    and at 0 otherwise; observed variables get a heavy rim; in directed models (`children`) arrows
    point from each factor to its child.

    >>> figure = draw_graph([(0, 1)], 2, belief=[0.1, 0.9], names=["a", "b"])
    >>> sorted(text.get_text() for text in figure.axes[0].texts)[-2:]
    ['a', 'b']
    """
    if not drawable(n_variables, len(scopes)):
        raise ModelError(
            f"a drawing of {n_variables + len(scopes)} nodes would not be legible; "
            f"the limit is {MOST_NODES}"
        )
    positions = layout(scopes, n_variables)
    span = np.ptp(positions, axis=0) if len(positions) else np.ones(2)
    width = float(np.clip(1.5 + 0.95 * span[0], 5.4, 10.0))
    height = float(np.clip(1.2 + 0.85 * span[1], 3.0, 8.5))
    with style.styled():
        figure, (axes,) = style.new_figure(width, height)
        axes.set_axis_off()
        axes.set_aspect("equal", adjustable="datalim")  # space for the circles of flat graphs
        axes.margins(0.08)
        _draw_edges(axes, scopes, n_variables, positions, children)
        _draw_factors(axes, positions[n_variables:])
        shade = style.probability_map() if centred else style.confidence_map()
        fills = _draw_variables(axes, positions[:n_variables], belief, observed, shade)
        if belief is not None:
            _colour_bar(figure, axes, shade, belief_label)
        _write_names(axes, scopes, positions, names, fills)
        axes.set_title("Factor graph: circles are variables, squares are factors")
    return figure


def layout(scopes: Sequence[Sequence[int]], n_variables: int) -> Array:
    """Positions of the variables, then of the factors; one edge is about one unit long.

    Every component is laid out by graph distance (Kamada and Kawai), which uses no random numbers,
    and the components are placed side by side, the largest first.

    >>> layout([(0,)], 1).shape
    (2, 2)
    """
    import networkx as nx

    graph = nx.Graph()
    graph.add_nodes_from(range(n_variables + len(scopes)))
    for a, scope in enumerate(scopes):
        graph.add_edges_from((int(v), n_variables + a) for v in scope)
    positions = np.zeros((len(graph), 2))
    corner = np.zeros(2)
    shelf = 0.0
    parts = sorted(nx.connected_components(graph), key=lambda part: (-len(part), min(part)))
    shelf_width = _shelf_width([len(part) for part in parts])
    for part in parts:
        nodes = sorted(part)
        local = _component_layout(nx, graph.subgraph(nodes), nodes)
        size = np.ptp(local, axis=0)
        if corner[0] > 0 and corner[0] + size[0] > shelf_width:
            corner = np.array([0.0, corner[1] - shelf - 1.4])
            shelf = 0.0
        positions[nodes] = local - [local[:, 0].min(), local[:, 1].max()] + corner
        corner[0] += size[0] + 1.4
        shelf = max(shelf, float(size[1]))
    return positions


def _shelf_width(sizes: list[int]) -> float:
    """Width at which components wrap into the next row: about twice as wide as tall."""
    return 2.2 * float(np.sqrt(sum(sizes))) if sizes else 1.0


def _component_layout(nx: Any, part: Any, nodes: list[int]) -> Array:
    if len(nodes) == 1:
        return np.zeros((1, 2))
    circle = nx.circular_layout(part)
    unscaled = nx.kamada_kawai_layout(part, pos=circle)
    local = np.array([unscaled[node] for node in nodes])
    lengths = [np.linalg.norm(np.subtract(unscaled[a], unscaled[b])) for a, b in part.edges]
    local /= max(float(np.mean(lengths)), 1e-9)
    if np.ptp(local[:, 1]) > np.ptp(local[:, 0]):
        local = local[:, ::-1]
    return local


def _draw_edges(
    axes: Axes,
    scopes: Sequence[Sequence[int]],
    n_variables: int,
    positions: Array,
    children: Sequence[int] | None,
) -> None:
    from matplotlib.collections import LineCollection

    lines = [(positions[v], positions[n_variables + a]) for a, s in enumerate(scopes) for v in s]
    axes.add_collection(LineCollection(lines, colors=style.SOFT, linewidths=1.1, zorder=1))
    for a, child in enumerate(children if children is not None else ()):
        axes.annotate(
            "",
            xy=tuple(positions[child]),
            xytext=tuple(positions[n_variables + a]),
            arrowprops={
                "arrowstyle": "-|>",
                "color": style.SOFT,
                "shrinkA": 4,
                "shrinkB": 10.5,
                "lw": 1.1,
                "mutation_scale": 11,
            },
            zorder=1,
        )


def _draw_factors(axes: Axes, positions: Array) -> None:
    axes.scatter(positions[:, 0], positions[:, 1], s=58, marker="s", color="#6b7480", zorder=3)


def _draw_variables(
    axes: Axes, positions: Array, belief: ArrayLike | None, observed: Sequence[int], shade: Any
) -> list[Any]:
    """Draw the circles and return their colours."""
    rims = np.full(len(positions), 1.0)
    rims[list(observed)] = 3.0
    common: dict[str, Any] = {"s": 330, "edgecolors": "#4a525c", "linewidths": rims, "zorder": 4}
    if belief is None:
        axes.scatter(positions[:, 0], positions[:, 1], color="#e8eef3", **common)
        return ["#e8eef3"] * len(positions)
    p = np.asarray(belief, dtype=np.float64)
    axes.scatter(positions[:, 0], positions[:, 1], c=p, cmap=shade, vmin=0, vmax=1, **common)
    return list(shade(p))


def _colour_bar(figure: Figure, axes: Axes, shade: Any, label: str) -> None:
    from matplotlib.cm import ScalarMappable

    scale = figure.colorbar(ScalarMappable(cmap=shade), ax=axes, shrink=0.6, pad=0.02, aspect=18)
    scale.set_label(style.plain(label))
    scale.outline.set_visible(False)


def _write_names(
    axes: Axes,
    scopes: Sequence[Sequence[int]],
    positions: Array,
    names: Sequence[str] | None,
    fills: list[Any],
) -> None:
    """Write short names inside the circles, and longer ones next to them where no edge passes."""
    for v, fill in enumerate(fills):
        name = style.plain(style.shorten(names[v] if names else str(v), _LONGEST_NAME))
        if len(name) <= 2:
            dx, dy, colour = 0.0, 0.0, style.text_on(fill)
        else:
            around = [len(fills) + a for a, scope in enumerate(scopes) if v in scope]
            dx, dy = _free_side(positions[around] - positions[v])
            colour = style.INK
        axes.annotate(
            name,
            tuple(positions[v]),
            xytext=(12.0 * dx, 12.0 * dy),
            textcoords="offset points",
            ha="center" if dx == 0 else "left" if dx > 0 else "right",
            va="center" if dy == 0 else "bottom" if dy > 0 else "top",
            fontsize=8,
            color=colour,
            zorder=5,
        )


def _free_side(edges: Array) -> tuple[float, float]:
    """Return the side (below, above, right or left) with the largest angle to every edge."""
    sides = np.array([[0.0, -1.0], [0.0, 1.0], [1.0, 0.0], [-1.0, 0.0]])
    if not len(edges):
        return 0.0, -1.0
    directions = edges / np.maximum(np.linalg.norm(edges, axis=1, keepdims=True), 1e-9)
    nearest = (sides @ directions.T).max(axis=1)
    dx, dy = sides[int(np.argmin(nearest.round(3)))]
    return float(dx), float(dy)
