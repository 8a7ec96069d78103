"""Figures of time series from plain arrays: courses with bands, state probabilities, matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST = 1500  # points of a course
_ROWS = 6  # panels of a figure
_NAMED = 12  # states with a name in the legend


def bands(
    mean: Array,
    deviation: Array,
    *,
    data: Array | None = None,
    names: Sequence[str] = (),
    start: int = 0,
    first: int = 0,
    title: str | None = None,
    times: Array | None = None,
) -> Figure:
    """Draw courses (T, n) with bands of two standard deviations, one panel each.

    `data` are additional points: rows before `start` (where a forecast begins) or at the times of
    the courses; infinite deviations have no band. `first` is the number of the first row of `data`
    in its series. `times` are the dates (datetime64) of the steps, instead of their numbers.

    >>> len(bands(np.zeros((5, 2)), np.ones((5, 2))).axes)
    2
    """
    shown = min(mean.shape[1], _ROWS)
    with style.styled():
        figure, axes = style.new_figure(8.0, 0.9 + 1.5 * shown, rows=shown)
        for k, panel in enumerate(axes):
            at = _thinned(len(mean))
            x, m, s = (
                _at(start + at, times, first),
                mean[at, k],
                np.where(np.isfinite(deviation[at, k]), deviation[at, k], np.nan),
            )
            if data is not None:
                points = _thinned(len(data))
                panel.plot(
                    _at(points, times, first), data[points, k], ".", color=style.SOFT,
                    markersize=2.5, label="data",
                )  # fmt: skip
            panel.fill_between(x, m - 2 * s, m + 2 * s, color=style.SKY, alpha=0.35, linewidth=0,
                               label="two standard deviations")  # fmt: skip
            panel.plot(x, m, color=style.BLUE, linewidth=1.1, label="mean")
            panel.set_ylabel(style.plain(style.shorten(names[k] if k < len(names) else f"{k + 1}")))
        _name_time(axes[-1], times)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=3)
        style.set_headline(figure, title)
    return figure


def probabilities(
    parts: Sequence[Array],
    names: Sequence[str] = (),
    times: Array | None = None,
    *,
    first: int = 0,
) -> Figure:
    """Draw the state probabilities (T, K) of each chain as stacked areas, one panel per chain, with
    a legend for up to twelve states. `times` are the dates of the steps; without them `first` is
    the number of the first step.

    >>> len(probabilities([np.full((4, 2), 0.5)]).axes)
    1
    """
    shown = list(parts[:_ROWS])
    with style.styled():
        figure, axes = style.new_figure(8.0, 0.7 + 1.5 * len(shown), rows=len(shown))
        most = max(p.shape[1] for p in shown)
        colours = style.state_colours(most)
        for k, (panel, p) in enumerate(zip(axes, shown, strict=True)):
            at = _thinned(len(p))
            labels = [f"state {j}" for j in range(p.shape[1])]
            x = _at(at, times, first)
            panel.stackplot(x, p[at].T, colors=colours[: p.shape[1]], linewidth=0, labels=labels)
            panel.set(ylim=(0, 1), xlim=(x[0], x[-1]) if len(x) > 1 else (0, 1))
            panel.set_ylabel(style.plain(names[k] if k < len(names) else f"chain {k + 1}"))
            panel.grid(visible=False)
        _name_time(axes[-1], times)
        if most <= _NAMED:
            widest = next(a for a, p in zip(axes, shown, strict=True) if p.shape[1] == most)
            handles, labels = widest.get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower left", ncols=min(most, 6))
    return figure


def coloured_series(
    data: Array,
    states: Ints,
    names: Sequence[str] = (),
    times: Array | None = None,
    *,
    first: int = 0,
) -> Figure:
    """Draw the columns of a series (T, n), one panel each, with points in the colour of the state.

    Parameters
    ----------
    data : array
        The series; NaN is missing.
    states : array of int
        The state at each step.
    names : Sequence[str]
        Names of the columns.
    times : array, optional
        Dates of the steps (datetime64), instead of their numbers.
    first : int, default 0
        The number of the first step.

    >>> figure = coloured_series(np.zeros((4, 1)), np.array([0, 0, 1, 1]), ["load"])
    >>> [text.get_text() for text in figure.legends[0].get_texts()]
    ['state 0', 'state 1']
    """
    shown = min(data.shape[1], _ROWS)
    count = int(states.max(initial=0)) + 1
    colours = style.COLOURS if count <= len(style.COLOURS) else style.state_colours(count)
    at = _thinned(len(data))
    with style.styled():
        figure, axes = style.new_figure(8.0, 0.9 + 1.5 * shown, rows=shown)
        for k, panel in enumerate(axes):
            panel.plot(
                _at(at, times, first), data[at, k], color=style.GRID, linewidth=0.8, zorder=1
            )
            for state in range(count):
                own = at[states[at] == state]
                panel.scatter(
                    _at(own, times, first), data[own, k], s=7, lw=0, color=colours[state],
                    zorder=2, label=f"state {state}",
                )  # fmt: skip
            if len(data) > 1:
                panel.set_xlim(*_at(np.array([0, len(data) - 1]), times, first))
            panel.set_ylabel(style.plain(style.shorten(names[k] if k < len(names) else f"{k + 1}")))
        _name_time(axes[-1], times)
        if count <= _NAMED:
            handles, labels = axes[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower left", ncols=6, markerscale=2)
    return figure


def matrices(
    tables: Sequence[Array],
    names: Sequence[str],
    *,
    signed: bool = False,
    rows: Sequence[Sequence[str]] = (),
    columns: Sequence[Sequence[str]] = (),
) -> Figure:
    """Draw matrices side by side with colours and numbers: transitions, gains, outputs.

    `rows` and `columns` name those of each matrix.

    >>> len(matrices([np.eye(2)], ["A"]).axes)
    1
    """
    with style.styled():
        figure, axes = style.new_figure(min(3.2 * len(tables), 12.0), 3.2, columns=len(tables))
        for number, (panel, table, name) in enumerate(zip(axes, tables, names, strict=True)):
            top = float(np.abs(table).max()) or 1.0
            low = -top if signed else 0.0
            colours = "RdBu_r" if signed else style.confidence_map()
            high = top if signed else 1.0
            picture = panel.imshow(table, cmap=colours, vmin=low, vmax=high, aspect="auto")
            panel.grid(visible=False)
            panel.set_title(style.plain(name))
            panel.set_xticks(range(table.shape[1]), _labels(columns, number, table.shape[1]))
            panel.set_yticks(range(table.shape[0]), _labels(rows, number, table.shape[0]))
            if table.shape[1] > 4 and columns:
                panel.tick_params(axis="x", rotation=45)
            if table.size <= 64:
                for (i, j), value in np.ndenumerate(table):
                    ink = style.text_on(picture.to_rgba(np.atleast_1d(value))[0])
                    panel.text(
                        j, i, f"{value:z.2f}", ha="center", va="center", fontsize=7, color=ink
                    )
    return figure


def _labels(names: Sequence[Sequence[str]], number: int, count: int) -> list[str]:
    """Names of the rows or columns of a matrix, or their numbers."""
    if number < len(names):
        return [style.plain(style.shorten(name, 12)) for name in names[number]]
    return [str(k) for k in range(count)]


def _at(steps: Ints, times: Array | None, first: int = 0) -> Array:
    """Return the positions of steps on the time axis: their dates, or their numbers from `first`
    on.
    """
    return np.asarray(first + steps if times is None else times[steps])


def _name_time(panel: Axes, times: Array | None) -> None:
    """Label the time axis, with short dates."""
    if times is None:
        panel.set_xlabel("time")
        return
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    panel.xaxis.set_major_locator(locator)
    formatter = ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]
    panel.xaxis.set_major_formatter(formatter)


def _thinned(count: int) -> np.ndarray:
    return np.unique(np.linspace(0, count - 1, min(count, _MOST)).round().astype(np.int64))
