"""The common style of all figures, and their export.

Figures are plain `matplotlib.figure.Figure` objects, created without pyplot, so that drawing has no
global state and needs no display. Colours are those of Okabe and Ito, which can be distinguished
with any common form of colour blindness.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from kikuchi.core.text import printable_lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

INK = "#20262e"  # text, axes; reports replace it by their own colour, so nothing else may use it
SOFT = "#8a939e"  # reference lines, remarks
GRID = "#dfe3e8"
BLUE, VERMILLION, GREEN, PURPLE, SKY, AMBER = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#b5618f",
    "#56b4e9",
    "#e69f00",
)
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, AMBER, SKY)
STATE_COLOURS = ("#9fc5de", "#f2b98f", "#93d3bf", "#dfb6cf", "#f3d48a", "#c9ced4")
LINE_STYLES = ("-", "--", "-.", ":")

_RC: Any = {
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 8.0,
    "axes.labelsize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.6,
    "figure.facecolor": "none",
    "figure.constrained_layout.w_pad": 0.08,
    "figure.constrained_layout.h_pad": 0.08,
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "svg.fonttype": "none",  # text as text: small files, searchable pages
    "svg.hashsalt": "kikuchi",  # identical figures give identical bytes
    "image.interpolation": "none",
}


@contextmanager
def styled() -> Iterator[None]:
    """Context manager that applies the common style inside the block only."""
    from matplotlib import rc_context

    with rc_context(_RC):
        yield


def new_figure(
    width: float, height: float, columns: int = 1, rows: int = 1
) -> tuple[Figure, list[Axes]]:
    """A figure of the given size in inches and its axes, row by row; call inside `styled()`."""
    figure = notebook_figure()(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).ravel())


def plain_figure(width: float, height: float) -> Figure:
    """A figure of the given size in inches without axes; call inside `styled()`."""
    figure: Figure = notebook_figure()(figsize=(width, height))
    return figure


@cache
def notebook_figure() -> Any:
    """Return the class of our figures: matplotlib's, extended so that notebooks show it without
    pyplot.
    """
    from matplotlib.figure import Figure

    class NotebookFigure(Figure):
        """A figure that notebooks show as a PNG picture."""

        def _repr_png_(self) -> bytes:
            return to_png_bytes(self)

    return NotebookFigure


def probability_map() -> LinearSegmentedColormap:
    """Colours of a probability: blue at 0, near white at 1/2 (undecided), vermillion at 1."""
    from matplotlib.colors import LinearSegmentedColormap

    stops = ["#00598c", "#5aa2cd", "#f4f4f2", "#ec9355", "#b84d00"]
    return LinearSegmentedColormap.from_list("probability", stops)


def confidence_map() -> LinearSegmentedColormap:
    """Colours of a quantity between 0 and 1 without a middle: near white to dark blue."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("confidence", ["#f4f4f2", "#5aa2cd", "#003f66"])


def state_colours(count: int) -> list[Any]:
    """One fill colour per state: distinct ones for a few states, a ramp for many."""
    if count <= len(STATE_COLOURS):
        return list(STATE_COLOURS[:count])
    ramp = confidence_map()
    return [ramp(0.1 + 0.75 * k / (count - 1)) for k in range(count)]


def text_on(fill: Any) -> str:
    """Return dark or white, whichever is legible on `fill`."""
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(fill)
    return "#14181d" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"


def set_headline(figure: Figure, title: str | None) -> None:
    """Write a title over the whole figure, if there is one."""
    if title:
        figure.suptitle(plain(title), x=0.01, ha="left", fontweight="bold")


def hide_frame(axes: Axes) -> None:
    """Remove the grid and the frame."""
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def few_ticks(axis: Axis, count: int = 6, *, whole: bool = False) -> None:
    """Set at most `count` ticks on round numbers, or on integers only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=count, integer=whole))


def remark(axes: Axes, text: str) -> None:
    """Write a remark in the middle of otherwise empty axes."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes, wrap=True)


def plain(text: str) -> str:
    """Escape a name for matplotlib.

    Otherwise a dollar sign would begin a formula, and a control character would make the SVG
    malformed.

    >>> plain("cost$"), plain("bell\\x07")
    ('cost\\\\$', 'bell\\\\x07')
    """
    return printable_lines(text).replace("$", r"\$")


def shorten(text: str, length: int = 24) -> str:
    """Shorten a name to fit next to an axis.

    >>> shorten("a" * 30, 8)
    'aaaaaaa…'
    """
    return text if len(text) <= length else text[: length - 1] + "…"


def to_svg(figure: Figure) -> str:
    """The figure as a standalone SVG text, the same for the same figure."""
    metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
    buffer = io.StringIO()
    with styled():
        figure.savefig(buffer, format="svg", metadata=metadata)
    return buffer.getvalue()


def to_png_bytes(figure: Figure, dpi: int = 150) -> bytes:
    """The figure as the bytes of a PNG picture on white."""
    buffer = io.BytesIO()
    with styled():
        figure.savefig(buffer, format="png", dpi=dpi, facecolor="white")
    return buffer.getvalue()
