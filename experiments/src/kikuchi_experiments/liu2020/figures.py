"""Figures of chapters 3 and 4 of Liu's thesis (LIU-E1 to E10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.plots import style
from kikuchi_experiments.liu2020.tables import Column

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def singular_values(spreads: Array, lines: Mapping[str, tuple[Array, Array, Array]]) -> Figure:
    """Mean largest singular value, mean spectral radius and published values by spread.

    >>> one = np.array([0.5, 1.0])
    >>> len(singular_values(one, {"a": (one, one, one)}).axes)
    1
    """
    with style.styled():
        figure, (axes,) = style.new_figure(7.4, 4.0)
        for colour, (name, (sigma, radius, published)) in zip(
            style.COLOURS, lines.items(), strict=False
        ):
            axes.plot(spreads, sigma, color=colour, label=name)
            axes.plot(spreads, radius, "--", color=colour, lw=1.2)
            axes.plot(spreads, published, "o", color=colour, ms=4)
        axes.axhline(1.0, color=style.SOFT, lw=1.0)
        axes.annotate(
            "certain below",
            (float(spreads[-1]), 1.0),
            xytext=(0, -4),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=8.5,
            color=style.SOFT,
        )
        axes.set(
            xlabel="spread of the couplings",
            ylabel="bound of the certificate",
            title="Largest singular value (lines), spectral radius (dashed)",
        )
        figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper")
    return figure


def traces(panels: Mapping[str, tuple[Array, Mapping[int, float]]]) -> Figure:
    """Distances from the last messages by sweep: mean, range and published means.

    >>> len(traces({"a": (np.ones((2, 3)), {0: 0.0})}).axes)
    1
    """
    with style.styled():
        figure, axes = style.new_figure(0.8 + 3.6 * len(panels), 3.4, len(panels))
        for panel, (title, (paths, published)) in zip(axes, panels.items(), strict=True):
            sweeps = np.arange(paths.shape[1] - 1)
            shown = np.maximum(paths[:, :-1], 1e-17)
            panel.fill_between(
                sweeps, shown.min(axis=0), shown.max(axis=0), color="#9fc5de", alpha=0.6, lw=0
            )
            panel.plot(sweeps, shown.mean(axis=0), color=style.BLUE, label="mean")
            theirs = [10.0**value for value in published.values()]
            panel.plot(
                list(published), theirs, "o", color=style.VERMILLION, ms=4, label="published"
            )
            panel.set(yscale="log", ylim=(1e-18, 10.0))
            panel.set_title(title, fontsize=9.5)
            panel.set(xlabel="sweeps", ylabel="relative distance")
        axes[0].legend(loc="lower left")
    return figure


def symbol_error_curves(ratios: Array, curves: Mapping[str, tuple[Array, Array, Array]]) -> Figure:
    """Symbol errors by ratio on a logarithmic axis: ours with two standard errors, and published.

    >>> one = np.array([0.1, 0.2])
    >>> symbol_error_curves(one, {"bp": (one, one, one)}).axes[0].get_yscale()
    'log'
    """
    with style.styled():
        figure, (axes,) = style.new_figure(7.8, 4.6)
        for k, (name, (mean, error, published)) in enumerate(curves.items()):
            colour = style.COLOURS[k % len(style.COLOURS)]
            line = style.LINE_STYLES[k // len(style.COLOURS)]
            seen = mean > 0
            axes.errorbar(
                ratios[seen],
                mean[seen],
                yerr=np.minimum(2 * error[seen], 0.9 * mean[seen]),
                color=colour,
                linestyle=line,
                lw=1.4,
                elinewidth=0.9,
                label=name,
            )
            axes.plot(ratios, published, "o", color=colour, ms=3.6, mfc="white", mew=1.1)
        axes.set(
            yscale="log",
            xlabel="ratio of signal to noise variance",
            ylabel="share of wrong symbols",
            title="Symbol error: ours (lines), published (circles)",
        )
        figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper")
    return figure


# ---------------------------------------------------------------------- chapter 4


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

    >>> from kikuchi_experiments.liu2020.tables import Errors
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
