"""Figures of sections 3.4 and 3.5 of Teh's thesis (TEH-E1, TEH-E2)."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.plots import images, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Pictures = Mapping[str, Array]


def face_model(
    pictures: Mapping[str, Pictures], shares: Mapping[str, Array], names: Mapping[str, str]
) -> Figure:
    """Fields with free and non-negative weights, reconstructions, and shares in a quarter.

    >>> none = face_model({}, {"free": np.array([0.3, 0.4])}, {"free": "free weights"})
    >>> len(none.axes)
    4
    """
    with style.styled():
        figure, (free, held, again, spread) = style.new_figure(9.6, 8.2, 2, 2)
        _draw_fields(free, pictures.get("free"), "(a) Fields with free weights")
        _draw_fields(held, pictures.get("nonnegative"), "(b) Fields with non-negative weights")
        _draw_reconstructions(again, pictures)
        bins = np.linspace(0.2, 1.0, 33).tolist()
        kinds = [name for name in ("free", "nonnegative") if name in shares]
        for colour, kind in zip(style.COLOURS, kinds, strict=False):
            spread.hist(shares[kind], bins, color=colour, alpha=0.75, label=names[kind])
        spread.set(
            xlabel="share of squared weight in the best quarter",
            ylabel="fields",
            title="(d) How local the fields are",
        )
        spread.legend(loc="upper center")
    return figure


def recognition(panels: Mapping[str, Mapping[str, Array]], ranks: Sequence[int]) -> Figure:
    """Errors by rank: for each condition and way an array (partitions, ranks).

    >>> figure = recognition({"one": {"correlation": np.ones((2, 2)) / 2}}, (1, 2))
    >>> len(figure.axes)
    1
    """
    with style.styled():
        figure, axes = style.new_figure(0.9 + 3.2 * len(panels), 4.2, len(panels))
        for panel, (title, ways) in zip(axes, panels.items(), strict=True):
            for k, (name, errors) in enumerate(ways.items()):
                mean = 100 * errors.mean(axis=0)
                error = (
                    100 * errors.std(axis=0, ddof=1) / math.sqrt(len(errors))
                    if (len(errors) > 1)
                    else None
                )
                panel.errorbar(
                    range(len(ranks)),
                    mean,
                    yerr=error,
                    fmt=("-" if "RBM" in name else "--") + "osD^v<"[k % 7],
                    color=style.COLOURS[k % len(style.COLOURS)],
                    ms=4,
                    capsize=2,
                    label=name,
                )
            panel.set_title(title)
            panel.set_xticks(range(len(ranks)), [str(rank) for rank in ranks])
            panel.set(xlabel="rank", ylim=(0, None))
        axes[0].set_ylabel("error (%)")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def packed(pictures: Array) -> list[str]:
    """Rows of [0, 1] as short texts, for files of results."""
    grey = np.round(255 * np.clip(pictures, 0, 1)).astype(np.uint8)
    return [base64.b64encode(row.tobytes()).decode() for row in grey]


def unpacked(texts: Sequence[str]) -> Array:
    """The rows again, to 1/255."""
    return np.array([np.frombuffer(base64.b64decode(t), np.uint8) for t in texts]) / 255.0


# ---------------------------------------------------------------------- parts


def _draw_fields(axes: Axes, pictures: Pictures | None, title: str) -> None:
    axes.set_title(title)
    if pictures is None:
        style.remark(axes, "not computed")
        return
    images.draw_tiles(axes, 2.0 * pictures["fields"] - 1.0, columns=5, signed=True, scale=1.0)


def _draw_reconstructions(axes: Axes, pictures: Mapping[str, Pictures]) -> None:
    axes.set_title("(c) Faces, and rebuilt by both")
    if not pictures:
        style.remark(axes, "not computed")
        return
    first = next(iter(pictures.values()))
    rows = [first["originals"]]
    rows += [pictures[m]["reconstructions"] for m in ("free", "nonnegative") if m in pictures]
    images.draw_tiles(axes, np.concatenate(rows), columns=len(rows[0]))
