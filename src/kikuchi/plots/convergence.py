"""How iterative methods approached their answer."""

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
_SMALLEST = 1e-17  # an exact zero stands here on the logarithmic axis


def convergence(traces: Mapping[str, Trace], title: str | None = None) -> Figure:
    """Residual (logarithmic) and objective of each trace against iterations.

    A panel appears only if some trace has numbers for it; a trace without steps is left out.

    >>> trace = Trace()
    >>> for k in range(1, 5):
    ...     trace.record(k, residual=10.0**-k)
    >>> len(convergence({"bp": trace}).axes)
    1
    """
    known = [c for c in ("residual", "objective") if any(_has(t, c) for t in traces.values())]
    with style.styled():
        figure, axes = style.new_figure(4.9 * max(len(known), 1), 3.1, max(len(known), 1))
        if not known:
            style.remark(axes[0], "No iterations were recorded: the method took one step.")
        for panel, column in zip(axes, known, strict=False):
            _panel(panel, traces, column)
        if title:
            figure.suptitle(style.plain(title), x=0.01, ha="left", fontweight="bold")
    return figure


def draw_convergence(axes: Axes, trace: Trace) -> None:
    """The one panel that says most about a run: its residual, or else its objective."""
    column = next((c for c in ("residual", "objective") if _has(trace, c)), None)
    if column is None:
        style.remark(axes, "No iterations were recorded:\nthe method took one step.")
    else:
        _panel(axes, {"": trace}, column)


def _panel(axes: Axes, traces: Mapping[str, Trace], column: str) -> None:
    shown = [(name, t) for name, t in traces.items() if _has(t, column)]
    for k, (name, trace) in enumerate(shown):
        x, y = _points(trace, column)
        colour = style.COLOURS[k % len(style.COLOURS)]
        dash = style.LINE_STYLES[k // len(style.COLOURS) % len(style.LINE_STYLES)]
        mark = "o" if len(x) <= 30 else None
        axes.plot(x, y, dash, color=colour, label=style.plain(name), marker=mark, markersize=3)
    names = {t.objective_name for _, t in shown}
    if column == "residual":
        axes.set_yscale("log")
        axes.set_title("Residual")
        axes.set_ylabel("largest change in one iteration")
    else:
        label = names.pop() if len(names) == 1 else "objective"
        axes.set_title(style.plain(label[:1].upper() + label[1:]))
        axes.set_ylabel(style.plain(f"{label} (nats)"))
    axes.set_xlabel("iterations")
    style.few_ticks(axes.xaxis, whole=True)
    if len(shown) > 1:
        axes.legend()


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
