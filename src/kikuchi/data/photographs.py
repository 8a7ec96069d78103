"""Photographs from installed packages, by name, or from image files."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError, MissingExtraError, suggestion
from kikuchi.core.extras import install
from kikuchi.core.files import guarded_reading, require_room, suffix_of

SUFFIXES = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".pgm", ".ppm")

_LUMA = (0.299, 0.587, 0.114)
_PACKAGES = {  # folder in the package, and which of its images are photographs
    "sklearn": ("datasets/images", ("china.jpg", "flower.jpg")),
    "matplotlib": ("mpl-data/sample_data", ("grace_hopper.jpg",)),
    "skimage": (
        "data",
        (
            "astronaut.png", "brick.png", "camera.png", "chelsea.png", "coffee.png", "coins.png",
            "grass.png", "gravel.png", "moon.png", "motorcycle_left.png", "rocket.jpg",
        ),
    ),
}  # fmt: skip
COLLECTIONS = ("photographs", *_PACKAGES)
"""Names of collections: `photographs` means all from installed packages."""


class Photograph(NamedTuple):
    """Grey values in [0, 1] by rows and columns, and a name."""

    name: str
    grey: Array


def photographs(*sources: str) -> list[Photograph]:
    """Load photographs of the collections `sklearn`, `matplotlib` and `skimage`, or `photographs`
    for all of these that are installed; of files; and of all image files of a folder.

    >>> [(p.name, p.grey.shape) for p in photographs("sklearn")]
    [('china.jpg', (427, 640)), ('flower.jpg', (427, 640))]
    """
    found = [read_photograph(place) for source in sources for place in _files(source)]
    if not found:
        raise DataError("no photographs were given; name a file, a folder or a collection")
    return found


def _files(source: str) -> list[Path]:
    if source == "photographs":
        found = [place for package in _PACKAGES for place in _of_package(package)]
        if not found:
            raise MissingExtraError(
                "photographs come with scikit-learn or scikit-image; "
                f"{install('learn')}, or give files"
            )
        return found
    if source in _PACKAGES:
        found = _of_package(source)
        if not found:
            raise MissingExtraError(f"{source} is not installed, or contains no photographs")
        return found
    place = Path(source)
    if place.is_dir():
        inside = sorted(p for p in place.iterdir() if suffix_of(p) in SUFFIXES and p.is_file())
        if not inside:
            raise DataError(f"{place}: the folder contains no images ({', '.join(SUFFIXES)})")
        return inside
    if not place.is_file():
        raise DataError(f"{place}: no such file; {suggestion(source, COLLECTIONS)}")
    return [place]


def _of_package(package: str) -> list[Path]:
    """Yield photographs of an installed package, without importing the package."""
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        return []
    folder, names = _PACKAGES[package]
    places = [Path(next(iter(found.submodule_search_locations))) / folder / n for n in names]
    return [place for place in places if place.is_file()]


def read_photograph(path: str | Path) -> Photograph:
    """Return the grey values of an image file; colours are weighted by perceived brightness."""
    from PIL import Image

    place = Path(path)
    if suffix_of(place) not in SUFFIXES:
        raise DataError(f"{place}: not a picture; {suggestion(suffix_of(place), SUFFIXES)}")
    with guarded_reading(place, "a picture"), Image.open(place) as picture:
        wide, tall = picture.size
        require_room(place, 32 * wide * tall, f"a picture of {wide} x {tall} pixels")
        deep = picture.mode.startswith("I")
        values = np.asarray(picture if deep else picture.convert("RGB"), dtype=np.float64)
    return Photograph(place.name, values / 65535.0 if deep else values @ np.array(_LUMA) / 255.0)
