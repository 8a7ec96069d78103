"""Many small images side by side: data, reconstructions, samples, filters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.errors import ModelError
from kikuchi.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDE = 6.4  # inches of a whole figure
_FEWEST = 5  # number of images in a row


def tiles(
    images: ArrayLike,
    shape: tuple[int, int],
    title: str,
    *,
    columns: int = 10,
    signed: bool = False,
) -> Figure:
    """Draw images of `shape` (height, width) in rows of `columns`.

    Values from 0 to 1 are grey; `signed` values are blue below zero and vermillion above, on a
    common scale with a colour bar.

    >>> len(tiles(np.zeros((4, 6)), (2, 3), "filters", columns=2, signed=True).axes)
    2
    """
    stack = as_images(images, shape)
    missing = min(columns, _FEWEST) - len(stack)
    if missing > 0:  # a few images are no larger than those of a row
        stack = np.concatenate([stack, np.full((missing, *shape), np.nan)])
    rows = -(-len(stack) // columns)
    height = _WIDE * (rows * (shape[0] + 1)) / (min(columns, len(stack)) * (shape[1] + 1))
    with style.styled():
        figure, (axes,) = style.new_figure(_WIDE, min(max(height, 1.0), 9.0) + 0.4)
        picture = draw_tiles(axes, stack, columns=columns, signed=signed)
        axes.set_title(style.plain(title))
        if signed:
            bar = figure.colorbar(picture, ax=axes, shrink=0.7, aspect=25, pad=0.02)
            bar.outline.set_visible(False)
    return figure


def image_rows(groups: Mapping[str, ArrayLike], shape: tuple[int, int], title: str) -> Figure:
    """Draw labelled rows of images, such as data above their reconstructions.

    >>> figure = image_rows({"data": np.zeros((3, 4)), "again": np.ones((3, 4))}, (2, 2), "rows")
    >>> [axes.get_ylabel() for axes in figure.axes]
    ['data', 'again']
    """
    stacks = {label: as_images(images, shape) for label, images in groups.items()}
    most = max(map(len, stacks.values()))
    height = _WIDE * shape[0] / (most * shape[1])
    with style.styled():
        figure, panels = style.new_figure(
            _WIDE, (max(height, 0.5) + 0.1) * len(stacks) + 0.4, 1, len(stacks)
        )
        for axes, (label, stack) in zip(panels, stacks.items(), strict=True):
            draw_tiles(axes, stack, columns=most)
            axes.set_ylabel(style.plain(label), rotation=0, ha="right", va="center")
        panels[0].set_title(style.plain(title))
    return figure


def draw_tiles(
    axes: Axes,
    images: Array,
    *,
    columns: int = 10,
    signed: bool = False,
    scale: float | None = None,
) -> Any:
    """Draw a stack of images (number, height, width) into axes and return the image artist.

    `scale` is the value of the strongest colour, by default the largest absolute value.
    """
    if scale is None:
        scale = float(np.nanmax(np.abs(images), initial=0.0)) or 1.0
    colours: Any = style.probability_map() if signed else "gray"
    limits = (-scale, scale) if signed else (0.0, 1.0)
    picture = axes.imshow(
        mosaic(images, columns), cmap=colours, vmin=limits[0], vmax=limits[1], aspect="equal"
    )
    axes.set(xticks=[], yticks=[])
    style.hide_frame(axes)
    return picture


def mosaic(images: Array, columns: int) -> Array:
    """Return one array with the images side by side, separated by lines of NaN.

    >>> mosaic(np.ones((3, 2, 2)), 2).shape
    (5, 5)
    """
    count, height, width = images.shape
    columns = max(min(columns, count), 1)
    rows = -(-count // columns)
    out = np.full((rows * (height + 1) - 1, columns * (width + 1) - 1), np.nan)
    for k, image in enumerate(images):
        top, left = k // columns * (height + 1), k % columns * (width + 1)
        out[top : top + height, left : left + width] = image
    return out


def as_images(images: ArrayLike, shape: tuple[int, int]) -> Array:
    """Return images, or rows of pixels, as a stack (number, height, width)."""
    array = np.asarray(images, dtype=np.float64)
    if array.size == 0 or array.size % (shape[0] * shape[1]) or array.ndim < 2:
        raise ModelError(
            f"images: an array of shape {array.shape} does not contain images of "
            f"{shape[0]}x{shape[1]} pixels"
        )
    return array.reshape(-1, *shape)


def square_shape(pixels: int) -> tuple[int, int] | None:
    """Return the height and width of a square image with this many pixels; None if it is not a
    square number.

    >>> square_shape(64), square_shape(65)
    ((8, 8), None)
    """
    side = round(pixels**0.5)
    return (side, side) if side > 1 and side * side == pixels else None
