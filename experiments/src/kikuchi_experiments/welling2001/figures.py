"""Figures of the digits of Welling and Hinton (WH-E1 to E3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.plots import images, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Errors = Mapping[tuple[str, str], Mapping[int, float]]
"""Test errors in percent by seed, of each architecture and method."""

_LINES = ("--", ":")


def draw_errors(
    panels: Mapping[str, tuple[Errors, Mapping[str, Sequence[float]]]],
    published: Mapping[tuple[str, str], tuple[float, float]],
    methods: Sequence[str],
    architectures: Sequence[str],
) -> Figure:
    """Errors by method, a colour an architecture; hollow marks are those of the paper (table 1)."""
    with style.styled():
        figure, all_axes = style.new_figure(4.4 * len(panels) + 0.8, 3.8, len(panels))
        for axes, (name, (errors, baselines)) in zip(all_axes, panels.items(), strict=True):
            shown = [m for m in methods if any(m == method for _, method in errors)]
            for k, architecture in enumerate(architectures):
                colour, shift = style.COLOURS[k], 0.14 * (k - (len(architectures) - 1) / 2)
                _draw_architecture(axes, errors, published, architecture, shown, colour, shift)
            for line, (baseline, values) in zip(_LINES, baselines.items(), strict=False):
                axes.axhline(float(np.mean(values)), color=style.SOFT, ls=line, label=baseline)
            axes.set_xticks(range(len(shown)), [_shown(m) for m in shown])
            axes.set(title=style.plain(style.shorten(name, 40)), ylim=(0.0, None))
        all_axes[0].set_ylabel("test error (%)")
        handles: dict[str, Any] = {}
        for axes in all_axes:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4)
    return figure


def _draw_architecture(
    axes: Axes,
    errors: Errors,
    published: Mapping[tuple[str, str], tuple[float, float]],
    architecture: str,
    methods: Sequence[str],
    colour: str,
    shift: float,
) -> None:
    have = [m for m in methods if (architecture, m) in errors]
    if not have:
        return
    at = np.array([methods.index(m) for m in have]) + shift
    values = [np.array(list(errors[architecture, m].values())) for m in have]
    spread = [float(v.std(ddof=1)) if len(v) > 1 else 0.0 for v in values]
    means = [float(v.mean()) for v in values]
    axes.errorbar(
        at, means, spread, fmt="o", ms=5, color=colour, capsize=2, label=architecture.upper()
    )
    paper = [published[architecture, m][0] for m in have]
    axes.plot(at, paper, "s", mfc="none", mec=colour, ms=5, alpha=0.7)


_FORMULAS = {"MF_inf": r"MF$_\infty$", "MF_1": r"MF$_1$", "MF_*": r"MF$_*$"}


def _shown(method: str) -> str:
    return _FORMULAS.get(method, method)


def draw_rotations(errors: Mapping[str, Sequence[float]], published: Mapping[str, float]) -> Figure:
    """Test errors of each method in every rotation and seed, beside those of the paper (WH-E2)."""
    with style.styled():
        figure, (axes,) = style.new_figure(5.6, 3.2)
        for k, (name, values) in enumerate(errors.items()):
            spread = np.linspace(-0.12, 0.12, len(values)) if len(values) > 1 else [0.0]
            axes.plot(np.full(len(values), float(k)) + spread, values, ".", color=style.SKY, ms=6)
            axes.plot([k], [np.mean(values)], "o", color=style.BLUE, label=None if k else "mean")
            axes.plot(
                [k], [published[name]], "s", mfc="none", mec=style.VERMILLION,
                label=None if k else "published, on another set",
            )  # fmt: skip
        axes.set_xticks(range(len(errors)), list(errors))
        axes.set(xlim=(-0.5, len(errors) - 0.5), ylim=(0.0, None), ylabel="test error (%)")
        axes.legend(loc="upper left")
    return figure


def draw_weights(
    patches: ArrayLike | None, filters: Mapping[str, ArrayLike], shape: tuple[int, int]
) -> Figure:
    """Weights among visible units of the 8 as patches (None: not computed), and weights of hidden
    units by class (WH-E3).
    """
    with style.styled():
        figure, (left, right) = style.new_figure(10.4, 5.2, 2)
        left.set_title("Visible-visible weights of the 8, a patch per unit")
        shown = []
        if patches is None:
            style.remark(left, "not computed")
        else:
            stack = images.as_images(patches, shape)
            side = int(np.ceil(np.sqrt(len(stack))))
            shown.append((left, images.draw_tiles(left, stack, columns=side, signed=True)))
        rows = [images.as_images(filters[name], shape) for name in filters]
        most = max(map(len, rows))
        wide = np.full((len(rows), most, *shape), np.nan)
        for k, row in enumerate(rows):
            wide[k, : len(row)] = row
        other = images.draw_tiles(
            right, wide.reshape(-1, *shape), columns=most, signed=True, scale=_strong(wide)
        )
        right.set_title("Weights of hidden units, a row per class")
        height = shape[0] + 1
        right.set_yticks([height * k + shape[0] / 2 for k in range(len(rows))], list(filters))
        right.tick_params(axis="y", length=0)
        for axes, drawn in (*shown, (right, other)):
            bar = figure.colorbar(drawn, ax=axes, shrink=0.7, aspect=25, pad=0.02)
            bar.outline.set_visible(False)
    return figure


def _strong(values: Any) -> float:
    """A value that few weights exceed, so that single ones do not drown the others."""
    return float(np.nanquantile(np.abs(values), 0.995)) or 1.0
