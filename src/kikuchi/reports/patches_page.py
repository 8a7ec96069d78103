"""The page of patches, prepared for learning."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from kikuchi.core import text
from kikuchi.core.arrays import Array
from kikuchi.core.page import Facts, Page, Picture, Tile
from kikuchi.energy.figures import pieces
from kikuchi.plots import energy as plots
from kikuchi.reports.page import write_page

if TYPE_CHECKING:
    from kikuchi.energy.preparation import Patches

_SHOWN = 12  # pieces in a row


def patches_report(
    patches: Patches, path: str | PathLike[str], *, command: str | None = None
) -> None:
    """Write one self-contained page: the steps, what was rejected, and pieces before and after."""
    told = patches.preparation
    kept = f"{told.flat / told.drawn:.0%}" if told.drawn else "0%"
    some = slice(0, 3 * _SHOWN)
    white = patches.rows[some] @ _turned_back(told).T
    page = Page(
        title=f"{text.whole(len(patches))} pieces of {', '.join(told.sources) or 'arrays'}",
        subtitle="Patches of pictures or windows of sounds, prepared for learning",
        warnings=told.warnings(),
        tiles=[
            Tile("kept", text.whole(len(patches))),
            Tile("flat, rejected", kept),
            Tile("directions", str(told.rank)),
        ],
        sections={
            "Steps": [Facts(told.facts())],
            "Pieces": [
                pieces({"prepared": patches.undone()[some], "white": white}, told.shape),
                _variances(told.whitening.backward),
            ],
        },
        python='from kikuchi.energy import Patches\npatches = Patches.load("PATCHES.npz")',
    )
    write_page(page, path, command)


def _turned_back(told: Any) -> Array:
    """Turns white rows so that they look as those of ZCA, whatever the whitening."""
    values, axes = np.linalg.eigh(told.whitening.backward @ told.whitening.backward.T)
    scales = np.where(values > 1e-10 * values[-1], 1.0 / np.sqrt(np.maximum(values, 1e-300)), 0.0)
    return np.asarray((axes * scales) @ axes.T @ told.whitening.backward)


def _variances(backward: Array) -> Picture:
    """Draw the variance of prepared pieces by principal component."""
    values = np.linalg.svd(backward, compute_uv=False) ** 2
    values = values[values > 1e-10 * values[0]]
    numbers = np.arange(1, len(values) + 1)
    shares = {"pieces": (numbers, values / values.sum())}
    figure = plots.spectra(shares, "principal component", "share of the variance")
    return Picture(figure, "Share of the variance that each principal component holds.")
