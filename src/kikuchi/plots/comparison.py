"""Comparison of approximate with exact results, and of methods with each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.core.arrays import Array
from kikuchi.core.errors import ModelError
from kikuchi.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_VECTOR_POINTS = 1500  # more points are rasterised inside the SVG
_FLOOR = 1e-12  # smaller errors are rounding errors, drawn at the edge of the axis

Numbers = Sequence[float | None]


def scatter(
    exact: ArrayLike, approximate: ArrayLike, label: str, errors: tuple[float, float] | None = None
) -> Figure:
    """Draw the marginal probabilities of a method against the exact ones, with the errors as text.

    `errors` are the largest and the mean error to display; by default those of the points.

    >>> scatter([0.2, 0.8], [0.3, 0.7], "bp").axes[0].get_xlabel()
    'exact probability'
    """
    with style.styled():
        figure, axes, gap = probability_pairs(exact, approximate, label)
        largest, mean = errors or (float(gap.max()), float(gap.mean()))
        write_note(axes, f"largest error {_short(largest)}\nmean error {_short(mean)}")
        axes.set(xlabel="exact probability", title="Marginals against exact")
    return figure


def probability_pairs(
    reference: ArrayLike, answer: ArrayLike, label: str
) -> tuple[Figure, Axes, Array]:
    """Draw the probabilities of a result against a reference, and return their absolute
    differences.

    Each is a dot, compared with the diagonal; `label` names the result. Call inside `styled()`.
    """
    x = np.asarray(reference, dtype=np.float64).ravel()
    y = np.asarray(answer, dtype=np.float64).ravel()
    if x.shape != y.shape or not x.size:
        raise ModelError(
            f"{x.size} exact and {y.size} approximate values; their numbers must be equal"
        )
    figure, (axes,) = style.new_figure(4.3, 4.3)
    axes.plot([0, 1], [0, 1], color=style.SOFT, lw=1.0, zorder=1)
    axes.scatter(
        x,
        y,
        s=24 if len(x) <= 100 else 14 if len(x) <= 1000 else 5,
        color=style.BLUE,
        alpha=0.6 if len(x) <= 5000 else 0.15,
        linewidths=0,
        zorder=2,
        rasterized=len(x) > _MOST_VECTOR_POINTS,
    )
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
    axes.set_ylabel(style.plain(f"probability by {style.shorten(label, 40)}"))
    return figure, axes, np.abs(x - y)


def write_note(axes: Axes, text: str) -> None:
    """Write lines into the upper left corner."""
    axes.text(0.04, 0.96, text, transform=axes.transAxes, va="top", linespacing=1.5)


def error_bars(labels: Sequence[str], largest: Numbers, mean: Numbers) -> Figure:
    """Largest and mean error of the marginals of each method, on a logarithmic axis."""
    with style.styled():
        figure, (axes,) = style.new_figure(6.4, _height(labels))
        _draw_errors(axes, labels, largest, mean)
        figure.legend(loc="outside lower left", ncols=2)
    return figure


def comparison(
    labels: Sequence[str],
    *,
    log_z: Numbers,
    lower: Numbers,
    upper: Numbers,
    largest: Numbers,
    mean: Numbers,
    exact_log_z: float | None = None,
) -> Figure:
    """log Z of each method with its certified bounds, and the errors of its marginals if known.

    >>> none = [None, None]
    >>> figure = comparison(["jt", "bp"], log_z=[1.0, 1.1], lower=none, upper=none,
    ...                     largest=none, mean=none)
    >>> len(figure.axes)
    1
    """
    errors = any(value is not None for value in largest)
    with style.styled():
        figure, axes = style.new_figure(9.6 if errors else 6.0, _height(labels), 1 + errors)
        _draw_log_z(axes[0], labels, log_z, lower, upper, exact_log_z)
        if errors:
            _draw_errors(axes[1], labels, largest, mean)
            axes[1].set_yticklabels([])
        figure.legend(loc="outside lower left", ncols=6)
    return figure


def _draw_log_z(
    axes: Axes,
    labels: Sequence[str],
    log_z: Numbers,
    lower: Numbers,
    upper: Numbers,
    exact: float | None,
) -> None:
    y = np.arange(len(labels))
    if exact is not None:
        axes.axvline(exact, color=style.SOFT, lw=1.2, label="exact")
    low, high, middle = (_numbers(v) for v in (lower, upper, log_z))
    marks = {"lower bound": (low, ">"), "upper bound": (high, "<")}
    axes.hlines(y, low, high, color=style.GREEN, lw=1.2)
    for name, (values, mark) in marks.items():
        if np.isfinite(values).any():
            axes.plot(
                values, y, mark, color=style.GREEN, mfc="none", ms=12, label=f"certified {name}"
            )
    axes.plot(middle, y, "o", color=style.BLUE, ms=5, label="estimate")
    _method_axis(axes, labels)
    axes.set(xlabel="log Z (nats)", title="log Z")
    axes.margins(x=0.12)
    style.few_ticks(axes.xaxis, 5)


def _draw_errors(axes: Axes, labels: Sequence[str], largest: Numbers, mean: Numbers) -> None:
    low, high = _error_range(np.concatenate([_numbers(largest), _numbers(mean)]))
    axes.set(xscale="log", xlim=(low, high))
    y = np.arange(len(labels))
    for values, colour, name, shift in (
        (_numbers(largest), style.VERMILLION, "largest error", -0.17),
        (_numbers(mean), style.AMBER, "mean error", 0.17),
    ):
        shown = np.where(values > _FLOOR, values, np.nan)
        axes.plot(shown, y + shift, "o", color=colour, ms=6, label=name)
        for row in np.flatnonzero(np.isfinite(values)):
            value = float(values[row])
            axes.annotate(
                _short(value),
                (value if value > _FLOOR else low, row + shift),
                xytext=(7, 0),
                textcoords="offset points",
                va="center",
                fontsize=7.5,
            )
    _method_axis(axes, labels)
    axes.set(
        xlabel="absolute error of a marginal probability",
        title="Error of the marginals against exact",
    )


def _error_range(errors: NDArray[Any]) -> tuple[float, float]:
    real = errors[np.isfinite(errors) & (errors > _FLOOR)]
    if not real.size:
        return _FLOOR, 1.0
    return float(real.min()) / 8.0, float(real.max()) * 12.0


def _method_axis(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), [style.plain(style.shorten(text, 34)) for text in labels])
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _height(labels: Sequence[str]) -> float:
    return 1.5 + 0.42 * len(labels)


def _numbers(values: Numbers) -> NDArray[Any]:
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)


def _short(value: float) -> str:
    return "0" if value == 0 else f"{value:.2g}"
