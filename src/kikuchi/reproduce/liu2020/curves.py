"""Figures of Liu's tables: errors of marginals and of log Z by size or field (LIU-E6 to E10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kikuchi.plots import style
from kikuchi.reproduce.liu2020.tables import Column

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOOKS = {
    "mean field": (style.AMBER, "o"),
    "loopy BP": (style.GREEN, "s"),
    "damped BP": (style.SKY, "D"),
    "GBP": (style.PURPLE, "^"),
    "Inference Net": (style.SOFT, "v"),
    "RENN": (style.SOFT, "P"),
}
_BEST = (style.BLUE, "o")
_OTHER = (style.VERMILLION, "s")


def error_curves(
    ours: Mapping[str, Column], theirs: Mapping[str, Column], best: str, label: str
) -> Figure:
    """l1 errors and log Z errors on logarithmic axes: ours solid, published dashed.

    A method has one colour and mark.

    >>> from kikuchi.reproduce.liu2020.tables import Errors
    >>> column = {25: Errors(0.1, 0.9, 0.5), 100: Errors(0.2, 0.8, 0.9)}
    >>> len(error_curves({"BP": column}, {"BP": column}, "BP", "n =").axes)
    2
    """
    with style.styled():
        figure, axes = style.new_figure(9.6, 4.6, 2)
        for panel, field, title in zip(
            axes, ("l1", "log_z"), ("l1 error of marginals", "error of log Z (nats)"), strict=True
        ):
            for name, column in theirs.items():
                _draw(panel, column, field, _look(name, best), f"{name}, published", dashed=True)
            for name, column in ours.items():
                _draw(panel, column, field, _look(name, best), f"{name}, ours", dashed=False)
            panel.set(
                yscale="log",
                title=title,
                xlabel="variables" if label.startswith("n") else "deviation of the fields",
            )
            ticks = sorted({x for column in ours.values() for x in column})
            panel.set_xticks(ticks, [f"{x:g}" for x in ticks])
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=4)
    return figure


def _look(name: str, best: str) -> tuple[str, str]:
    return _BEST if name == best else _LOOKS.get(name, _OTHER)


def _draw(
    axes: Axes, column: Column, field: str, look: tuple[str, str], name: str, *, dashed: bool
) -> None:
    points = [(x, getattr(errors, field)) for x, errors in sorted(column.items())]
    shown = [(x, y) for x, y in points if y is not None and y > 0.0]
    if not shown:
        return
    colour, mark = look
    axes.plot(
        [x for x, _ in shown],
        [y for _, y in shown],
        "--" if dashed else "-",
        color=colour,
        marker=mark,
        markersize=4,
        markerfacecolor="white" if dashed else colour,
        lw=1.0 if dashed else 1.6,
        label=name,
    )
