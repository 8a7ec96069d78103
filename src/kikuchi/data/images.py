"""`Images`: grey images of one size with their labels, and image files."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.util import find_spec
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import DataError, MissingExtraError
from kikuchi.core.extras import extra_of, install
from kikuchi.core.seeds import Seed, generator
from kikuchi.core.tables import as_numbers, read_table

Shape = tuple[int, int]

_LARGEST_LABEL = 2.0**53  # beyond it not every integer is a double
_LEVELS = (1.0, 16.0, 255.0)
_IMAGE_NAMES = ("images", "data")
_LABEL_NAMES = ("labels", "people", "target")


@dataclass(frozen=True)
class Images:
    """Images as rows of grey values in [0, 1], with an integer label each.

    `labels` is None if there are no labels. `shape` contains the rows and columns of pixels;
    `source` is the origin of the images, for messages.

    >>> two = Images.of([[0, 16], [8, 4]], shape=(1, 2), labels=[0, 1])
    >>> two.pixels.tolist(), two.thresholded().pixels.tolist()
    ([[0.0, 1.0], [0.5, 0.25]], [[0.0, 1.0], [1.0, 0.0]])
    """

    pixels: Array
    shape: Shape
    labels: Ints | None = None
    source: str = "array"

    @classmethod
    def of(
        cls,
        pixels: ArrayLike,
        *,
        shape: Shape | None = None,
        labels: ArrayLike | None = None,
        source: str = "array",
    ) -> Images:
        """Return checked images, given as a stack (n, rows, columns) or one per row with `shape`
        (else square).

        Grey values are in [0, 1], [0, 16] or [0, 255], the smallest range that fits; [-1, 1] is
        mapped to [0, 1].
        """
        rows, found = _as_rows(_numbers(pixels, source), shape, source)
        known = None if labels is None else _as_labels(labels, len(rows), source)
        return cls(_scaled(rows, source), found, known, source)

    def __len__(self) -> int:
        return len(self.pixels)

    def required_labels(self) -> Ints:
        """Return the labels; raise an error if there are none."""
        if self.labels is None:
            raise DataError(
                f"{self.source}: the pictures have no labels; give them as an array "
                f"'{_LABEL_NAMES[0]}' of an .npz file or as the last column"
            )
        return self.labels

    def at(self, rows: ArrayLike) -> Images:
        """Return some of the images, given row numbers or a Boolean mask."""
        chosen = np.asarray(rows)
        labels = None if self.labels is None else self.labels[chosen]
        return Images(self.pixels[chosen], self.shape, labels, self.source)

    def of_class(self, label: int) -> Images:
        """Return the images with one label; raise an error if there are none."""
        rows = np.flatnonzero(self.required_labels() == label)
        if not len(rows):
            raise DataError(f"{self.source}: no picture has the label {label}")
        return self.at(rows)

    def thresholded(self, level: float = 0.5) -> Images:
        """Return binary images: 1 where the grey value is at least `level`."""
        return Images(
            (self.pixels >= level).astype(np.float64), self.shape, self.labels, self.source
        )

    def resized(self, shape: Shape) -> Images:
        """Return images with fewer pixels, each the average of the area that it covers.

        >>> Images.of([[0, 0, 1, 0, 1, 1]], shape=(1, 6)).resized((1, 2)).pixels.round(3).tolist()
        [[0.333, 0.667]]
        """
        if shape == self.shape:
            return self
        if not (1 <= shape[0] <= self.shape[0] and 1 <= shape[1] <= self.shape[1]):
            raise DataError(
                f"{self.source}: pictures of {self.shape[0]} x {self.shape[1]} pixels cannot be "
                f"averaged to {shape[0]} x {shape[1]}; {shape[0] * shape[1]} pixels are needed"
            )
        tall, wide = _area_weights(self.shape[0], shape[0]), _area_weights(self.shape[1], shape[1])
        stacked = self.pixels.reshape(-1, *self.shape)
        small = np.einsum("ij,njk,lk->nil", tall, stacked, wide, optimize=True)
        return Images(small.reshape(len(self), -1), shape, self.labels, self.source)

    def split(self, train: int, test: int, seed: Seed = None) -> tuple[Images, Images]:
        """Return two disjoint sets with `train` and `test` images of every label, shuffled.

        >>> few = Images.of(np.eye(6), shape=(2, 3), labels=[0, 1, 0, 1, 0, 1])
        >>> [sorted(part.labels.tolist()) for part in few.split(2, 1, seed=0)]
        [[0, 0, 1, 1], [0, 1]]
        """
        labels = self.required_labels()
        if train < 1 or test < 0:
            raise DataError(f"a split needs train >= 1 and test >= 0, got {train} and {test}")
        rng = generator(seed)
        names, counts = np.unique(labels, return_counts=True)
        if counts.min() < train + test:
            scarce = names[counts.argmin()]
            raise DataError(
                f"{self.source}: label {scarce} has {counts.min()} pictures, the split needs "
                f"{train} + {test}; request fewer"
            )
        mixed = [rng.permutation(np.flatnonzero(labels == name)) for name in names]
        first = np.concatenate([rows[:train] for rows in mixed])
        second = np.concatenate([rows[train : train + test] for rows in mixed])
        return self.at(rng.permutation(first)), self.at(rng.permutation(second))


def _area_weights(old: int, new: int) -> Array:
    """Return the fraction of each old cell in each new one, when `old` cells are merged into
    `new`.
    """
    edges = np.linspace(0.0, old, new + 1)
    upper = np.minimum(edges[1:, None], np.arange(1, old + 1))
    lower = np.maximum(edges[:-1, None], np.arange(old))
    shares: Array = np.maximum(upper - lower, 0.0) * (new / old)
    return shares


# ---------------------------------------------------------------------- files


def read_images(path: str | PathLike[str], shape: Shape | None = None) -> Images:
    """Read images from a file: one per row in .csv, .tsv, .parquet or .npy, optionally with the
    label as the last column; a stack of images in .npy; or arrays `images` and optionally `labels`
    in .npz.

    `shape` is the required shape; without it rows are square images.
    """
    source = str(path)
    table = read_table(path, arrays=_IMAGE_NAMES, what="a file of pictures")
    values = table.values
    labels = next((table.others[name] for name in _LABEL_NAMES if name in table.others), None)
    if values.ndim == 2 and labels is None:
        width = _picture_width(values.shape[1], shape, source)
        labels = values[:, width] if width < values.shape[1] else None
        values = values[:, :width]
    return _expected(Images.of(values, shape=shape, labels=labels, source=source), shape)


def package_folder(package: str, what: str) -> Path:
    """Return the folder of an installed package with data, without importing the package."""
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        how = install(extra_of(package))
        raise MissingExtraError(f"{what} come with {package}; {how}, or give a file")
    return Path(next(iter(found.submodule_search_locations)))


def _expected(images: Images, shape: Shape | None) -> Images:
    if shape is not None and images.shape != shape:
        raise DataError(
            f"{images.source}: pictures of {shape[0]} x {shape[1]} pixels are needed, got "
            f"{images.shape[0]} x {images.shape[1]}"
        )
    return images


def _picture_width(columns: int, shape: Shape | None, source: str) -> int:
    """Return how many columns are pixels: all, or all but the last."""
    for width in (columns, columns - 1):
        if width > 0 and (
            width == shape[0] * shape[1] if shape is not None else math.isqrt(width) ** 2 == width
        ):
            return width
    needed = "a square number of" if shape is None else str(shape[0] * shape[1])
    raise DataError(
        f"{source}: rows of {needed} pixels are needed, with or without a last column of labels; "
        f"got {columns} columns"
    )


# ---------------------------------------------------------------------- checks


def _numbers(values: ArrayLike, source: str) -> Array:
    array = as_numbers(values, source)
    if not np.all(np.isfinite(array)):
        raise DataError(f"{source}: some values are missing or not finite; complete them first")
    return array


def _as_rows(pixels: Array, shape: Shape | None, source: str) -> tuple[Array, Shape]:
    if pixels.ndim not in (2, 3):
        raise DataError(f"{source}: pictures are (n, rows, columns) or (n, pixels) numbers")
    if not pixels.size:
        raise DataError(f"{source}: there are no pictures; an array of shape {pixels.shape}")
    if pixels.ndim == 3:
        return pixels.reshape(len(pixels), -1), (pixels.shape[1], pixels.shape[2])
    side = math.isqrt(pixels.shape[1])
    found = shape or (side, side)
    if found[0] * found[1] != pixels.shape[1]:
        raise DataError(
            f"{source}: {pixels.shape[1]} pixels are not an image of {found[0]} x {found[1]}"
        )
    return pixels, found


def _as_labels(labels: ArrayLike, count: int, source: str) -> Ints:
    array = _numbers(labels, source).ravel()
    if len(array) != count:
        raise DataError(f"{source}: {len(array)} labels for {count} pictures")
    if np.any(array != np.round(array)) or np.any(np.abs(array) > _LARGEST_LABEL):
        raise DataError(f"{source}: labels must be integers of at most 2^53")
    return array.astype(np.int64)


def _scaled(pixels: Array, source: str) -> Array:
    low, high = float(pixels.min()), float(pixels.max())
    if -1.0 <= low < 0.0 and high <= 1.0:
        return (pixels + 1.0) / 2.0
    level = next((level for level in _LEVELS if high <= level), None)
    if low < 0.0 or level is None:
        raise DataError(
            f"{source}: grey values from {low:g} to {high:g}; they must be in [0, 1], [-1, 1], "
            "0..16 or 0..255"
        )
    return pixels / level
