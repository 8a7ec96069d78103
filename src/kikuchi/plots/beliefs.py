"""Figures of marginals: bars for a few variables, images for grids, histograms otherwise.

With `max_product` the numbers are max-marginals and are labelled as such.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.errors import ModelError
from kikuchi.core.trace import Trace
from kikuchi.plots import style
from kikuchi.plots.convergence import draw_convergence

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_BARS = 40
_MOST_IMAGES = 6
_MOST_PIXELS = 400  # a side; beyond it neighbouring cells are averaged
_BAR_INCHES = 0.27

Marginals = Sequence[Array]
Names = Sequence[str] | None
States = Sequence[Sequence[str]] | None


def grid_beliefs(
    p: ArrayLike, rows: int, cols: int, title: str | None = None, *, max_product: bool = False
) -> Figure:
    """Beliefs of a grid as images, variables in row-major order.

    `p` has one number per variable (the probability of state 1), or a row of state probabilities
    for each: two states give one image of state 1, up to six states an image each, and more
    states the most probable state with its probability.

    >>> len(grid_beliefs(np.full(6, 0.5), 2, 3).axes)  # the image and its colour bar
    2
    """
    images = _grid_images(np.asarray(p, dtype=np.float64), rows, cols, max_product)
    with style.styled():
        width, height = _image_inches(rows, cols, 2.4 if len(images) > 1 else 3.7)
        figure, axes = style.new_figure((width + 0.6) * len(images) + 0.7, height, len(images))
        for panel, (label, image, top) in zip(axes, images, strict=True):
            _draw_image(figure, panel, label, image, top, bar=panel is axes[-1] or top != 1.0)
        style.set_headline(figure, title)
    return figure


def marginal_bars(
    marginals: Marginals,
    names: Names = None,
    states: States = None,
    *,
    max_product: bool = False,
    title: str | None = None,
) -> Figure:
    """Draw each marginal as a stacked bar with one segment per state, for at most `MOST_BARS`
    variables.

    >>> figure = marginal_bars([np.array([0.2, 0.8])], ["rain"], [["no", "yes"]])
    >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
    ['rain']
    """
    if len(marginals) > MOST_BARS:
        raise ModelError(
            f"bars for {len(marginals)} variables would not be legible; "
            f"give at most {MOST_BARS} marginals, or use histogram"
        )
    with style.styled():
        figure, axes = style.new_figure(7.0, 0.9 + _BAR_INCHES * max(len(marginals), 2))
        _draw_bars(axes[0], marginals, names, states, max_product)
        if title is not None:
            axes[0].set_title(style.plain(title))
    return figure


def histogram(marginals: Marginals, *, max_product: bool = False) -> Figure:
    """Draw a histogram of P(x=1) if all variables are binary, else of the largest probabilities."""
    with style.styled():
        figure, axes = style.new_figure(5.2, 3.1)
        _draw_histogram(axes[0], marginals, max_product)
    return figure


def overview(
    marginals: Marginals,
    trace: Trace,
    title: str,
    names: Names = None,
    states: States = None,
    grid: tuple[int, int] | None = None,
    *,
    max_product: bool = False,
) -> Figure:
    """Draw convergence on the left, and the marginals in a form suited to their number on the
    right.

    >>> len(overview([np.array([0.3, 0.7])], Trace(), "bp").axes)
    2
    """
    binary_grid = grid is not None and all(len(m) == 2 for m in marginals)
    few = len(marginals) <= MOST_BARS
    height = 3.6
    if few and not binary_grid:
        height = max(height, 0.9 + _BAR_INCHES * len(marginals))
    with style.styled():
        figure, (left, right) = style.new_figure(10.4, height, 2)
        draw_convergence(left, trace)
        if grid is not None and binary_grid:
            second = np.array([m[1] for m in marginals])
            label, image, top = _grid_images(second, *grid, max_product)[0]
            _draw_image(figure, right, label, image, top, bar=True)
        elif few:
            _draw_bars(right, marginals, names, states, max_product)
        else:
            _draw_histogram(right, marginals, max_product)
        style.set_headline(figure, title)
    return figure


# ---------------------------------------------------------------------- grids


def _of_state(k: int, max_product: bool) -> str:
    return f"Max-marginal of x = {k}" if max_product else f"P(x = {k})"


def _grid_images(
    p: Array, rows: int, cols: int, max_product: bool
) -> list[tuple[str, Array, float]]:
    """Title, picture and largest value of each image."""
    if rows < 1 or cols < 1 or p.ndim not in (1, 2) or len(p) != rows * cols:
        raise ModelError(f"beliefs of shape {p.shape} do not fill a grid of {rows} by {cols}")
    if p.ndim == 1 or p.shape[1] == 2:
        second = _coarse((p if p.ndim == 1 else p[:, 1]).reshape(rows, cols))
        return [(_of_state(1, max_product), second, 1.0)]
    states = p.shape[1]
    if states <= _MOST_IMAGES:
        return [
            (_of_state(k, max_product), _coarse(p[:, k].reshape(rows, cols)), 1.0)
            for k in range(states)
        ]
    likely = p.argmax(axis=1).astype(np.float64).reshape(rows, cols)
    step = _reduction(rows, cols)
    return [
        ("Most probable state", likely[::step, ::step], float(states - 1)),
        (
            "Its max-marginal" if max_product else "Its probability",
            _coarse(p.max(axis=1).reshape(rows, cols)),
            1.0,
        ),
    ]


def _image_inches(rows: int, cols: int, side: float) -> tuple[float, float]:
    """Width of an image and height of its figure; a long side may grow to twice `side`."""
    stretch = min(max(cols / rows, rows / cols), 2.0)
    width = side * stretch if cols > rows else side * stretch * cols / rows
    return max(width, 0.8), max(width * rows / cols, 1.2) + 0.8


def _reduction(rows: int, cols: int) -> int:
    return -(-max(rows, cols) // _MOST_PIXELS)


def _coarse(image: Array) -> Array:
    """Return the image, or averages over square blocks if it has too many cells to show."""
    step = _reduction(*image.shape)
    if step == 1:
        return image
    down = np.add.reduceat(image, np.arange(0, image.shape[0], step), axis=0)
    both = np.add.reduceat(down, np.arange(0, image.shape[1], step), axis=1)
    ones = np.ones(image.shape)
    counts = np.add.reduceat(ones, np.arange(0, image.shape[0], step), axis=0)
    counts = np.add.reduceat(counts, np.arange(0, image.shape[1], step), axis=1)
    return np.asarray(both / counts)


def _draw_image(
    figure: Figure, axes: Axes, label: str, image: Array, top: float, *, bar: bool
) -> None:
    of_state = label.endswith(tuple("0123456789)"))
    colours: Any = style.probability_map() if of_state else style.confidence_map()
    shown = axes.imshow(image, cmap=colours, vmin=0.0, vmax=top, aspect="equal")
    axes.set_title(label)
    axes.set(xlabel="column", ylabel="row")
    style.hide_frame(axes)
    for axis in (axes.xaxis, axes.yaxis):
        style.few_ticks(axis, whole=True)
    if bar:
        scale = figure.colorbar(shown, ax=axes, shrink=0.85, pad=0.02)
        name = "max-marginal" if "ax-marginal" in label else "probability"
        scale.set_label(name if top == 1.0 else "state")
        scale.outline.set_visible(False)


# ---------------------------------------------------------------------- bars and histograms


def _draw_bars(
    axes: Axes, marginals: Marginals, names: Names, states: States, max_product: bool
) -> None:
    widest = max((len(m) for m in marginals), default=1)
    colours = style.state_colours(widest)
    for v, marginal in enumerate(marginals):
        left = 0.0
        for k, p in enumerate(marginal):
            axes.barh(v, p, left=left, height=0.8, color=colours[k], edgecolor="white", lw=0.6)
            label = _segment_label(states[v][k] if states else str(k), float(p))
            if label:
                colour = style.text_on(colours[k])
                middle = left + float(p) / 2
                axes.text(middle, v, label, ha="center", va="center", fontsize=7.5, color=colour)
            left += float(p)
    labels = [style.plain(style.shorten(n)) for n in names] if names else None
    axes.set_yticks(range(len(marginals)), labels or [f"x{v}" for v in range(len(marginals))])
    axes.set(
        ylim=(len(marginals) - 0.4, -0.6),
        xlim=(0.0, 1.0),
        xlabel="max-marginal, scaled to sum to 1" if max_product else "probability",
        title="Max-marginals" if max_product else "Marginals",
    )
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _segment_label(state: str, p: float) -> str:
    """Return the state and probability, as far as they fit into a segment of width `p`."""
    width = int(p * 62)
    state, number = style.plain(state), f"{p:.3f}"
    if len(state) + len(number) + 2 <= width:
        return f"{state}: {number}"
    return style.shorten(state, width) if width >= 3 else ""


def _draw_histogram(axes: Axes, marginals: Marginals, max_product: bool) -> None:
    binary = all(len(m) == 2 for m in marginals)
    values = np.array([m[1] if binary else m.max() for m in marginals])
    axes.hist(values, bins=40, range=(0.0, 1.0), color=style.BLUE, edgecolor="white", lw=0.4)
    axes.set(
        xlabel=_of_state(1, max_product)
        if binary
        else f"{'max-marginal' if max_product else 'probability'} of the most probable state",
        ylabel="variables",
        title=f"{'Max-marginals' if max_product else 'Marginals'} of {len(values)} variables",
    )
    axes.grid(False, axis="x")
