"""Convergence of iterative methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.trace import Trace
from kikuchi.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_POINTS = 1500  # keeps the SVG of a long run small
_SMALLEST = 1e-17  # position of an exact zero on the logarithmic axis


def convergence(
    traces: Mapping[str, Trace], title: str | None = None, *, unit: str = "iterations"
) -> Figure:
    """Residual (logarithmic) and objective of each trace against iterations, or another `unit`.

    A panel appears only if some trace has at least two values for it; traces without steps are
    omitted. Objectives or residuals with different names are different quantities with a panel
    each.

    >>> trace = Trace()
    >>> for k in range(1, 5):
    ...     trace.record(k, residual=10.0**-k)
    >>> len(convergence({"bp": trace}).axes)
    1
    """
    panels = _panels(traces)
    looks = {name: _look(k) for k, name in enumerate(traces)}
    with style.styled():
        count = max(len(panels), 1)
        columns = count if count <= 3 else 2
        rows = -(-count // columns)
        width = (4.9 if columns < 3 else 3.7) * columns
        figure, axes = style.new_figure(width, 3.0 * rows + 0.1, columns, rows)
        for unused in axes[count:]:
            unused.set_axis_off()
        if not panels:
            style.remark(axes[0], "No iterations were recorded: the method took one step.")
        for panel, (column, shown) in zip(axes, panels, strict=False):
            _draw(panel, shown, column, looks)
            panel.set_xlabel(unit)
        if len({name for _, shown in panels for name in shown}) > 1:
            _legend(figure, axes)
        style.set_headline(figure, title)
    return figure


def draw_convergence(axes: Axes, trace: Trace) -> None:
    """Draw the most informative panel of a run: its residual, or else its objective."""
    panels = _panels({"": trace})
    if not panels:
        style.remark(axes, "No iterations were recorded:\nthe method took one step.")
    else:
        column, shown = panels[0]
        _draw(axes, shown, column, {"": _look(0)})


def _panels(traces: Mapping[str, Trace]) -> list[tuple[str, dict[str, Trace]]]:
    """Column and traces of each panel: residuals, then objectives, each by their name."""
    panels = []
    for column in ("residual", "objective"):
        some = {name: trace for name, trace in traces.items() if _has(trace, column)}
        for label in dict.fromkeys(_label(trace, column) for trace in some.values()):
            same = {name: t for name, t in some.items() if _label(t, column) == label}
            if any(len(_points(t, column)[0]) > 1 for t in same.values()):
                panels.append((column, same))
    return panels


def _label(trace: Trace, column: str) -> str:
    return trace.residual_name if column == "residual" else trace.objective_name


def _look(number: int) -> tuple[str, str]:
    """Colour and dashes of a trace, the same in every panel."""
    colours, dashes = style.COLOURS, style.LINE_STYLES
    return colours[number % len(colours)], dashes[number // len(colours) % len(dashes)]


def _draw(
    axes: Axes, shown: Mapping[str, Trace], column: str, looks: Mapping[str, tuple[str, str]]
) -> None:
    for name, trace in shown.items():
        x, y = _points(trace, column)
        colour, dash = looks[name]
        mark = "o" if len(x) <= 30 else None
        axes.plot(x, y, dash, color=colour, label=style.plain(name), marker=mark, markersize=3)
    label = _label(next(iter(shown.values())), column)
    if column == "residual":
        axes.set(yscale="log", title="Residual", ylabel=style.plain(label))
    else:
        axes.set(title=style.plain(label[:1].upper() + label[1:]), ylabel="nats")
    axes.set_xlabel("iterations")
    style.few_ticks(axes.xaxis, whole=True)


def _legend(figure: Figure, axes: list[Axes]) -> None:
    handles: dict[str, Any] = {}
    for panel in axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    # An entry is about as wide as its text and its line; take as many columns as fit.
    inches = 0.7 + 0.085 * max(len(label) for label in handles)
    columns = max(1, min(3, int(figure.get_figwidth() / inches)))
    figure.legend(handles.values(), handles.keys(), loc="outside lower left", ncols=columns)


def _has(trace: Trace, column: str) -> bool:
    return bool(np.isfinite(np.array(getattr(trace, column), dtype=np.float64)).any())


def _points(trace: Trace, column: str) -> tuple[NDArray[Any], NDArray[Any]]:
    x = np.array(trace.iterations)
    y = np.array(getattr(trace, column), dtype=np.float64)
    good = np.isfinite(y)
    x, y = x[good], y[good]
    if column == "residual":
        y = np.maximum(y, _SMALLEST)
    if len(x) > _MOST_POINTS:
        keep = np.unique(np.linspace(0, len(x) - 1, _MOST_POINTS).astype(np.int64))
        x, y = x[keep], y[keep]
    return x, y
