"""The transposed representation: pixels as rows, so that features, not outputs, are sparse.

Reference: TEH-M21.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError
from kikuchi.energy.expert_ica import ExpertICA

_COMPONENTS = 256


class TransposedFeatures(NamedTuple):
    """The model of the pixels, and its features as images (features, pixels)."""

    model: ExpertICA
    features: Array


def transposed_features(images: ArrayLike, model: ExpertICA | None = None) -> TransposedFeatures:
    """Features of images by "architecture I": the model learns from the columns of `images`.

    Every pixel is a row with its values in all images, reduced to principal components (as many as
    the model's `pca_components`, or else 256, and less than there are images and pixels). The
    outputs of a filter over all pixels are an image; since outputs are sparse, such features are
    local, where those of rows that are images are often global.

    Parameters
    ----------
    images : one image per row.
    model : an estimator that is not fitted, with the features, expert and learner to use; None for
        361 Student-t experts.

    >>> images = np.random.default_rng(0).laplace(size=(10, 300))
    >>> found = transposed_features(images, ExpertICA(n_components=12, max_iter=1, random_state=0))
    >>> found.features.shape, found.model.n_features_in_
    ((12, 300), 10)
    """
    from sklearn.base import clone

    used = clone(model) if model is not None else ExpertICA(pca_components=361)
    pixels = prepare_transposed(images, used)
    used.fit(pixels)
    return TransposedFeatures(used, np.asarray(used.transform(pixels), dtype=np.float64).T)


def prepare_transposed(images: ArrayLike, model: ExpertICA) -> Array:
    """The pixels as rows, and the model told how many principal components of them to keep.

    >>> model = ExpertICA(pca_components=5)
    >>> prepare_transposed(np.zeros((10, 300)), model).shape, model.pca_components
    ((300, 10), 5)
    """
    pixels = np.asarray(images, dtype=np.float64).T
    if pixels.ndim != 2 or min(pixels.shape) < 3:
        raise DataError(f"images are rows of pixels, 3 or more of each; got shape {pixels.T.shape}")
    most = min(pixels.shape[0] - 1, pixels.shape[1])
    components = min(model.pca_components or _COMPONENTS, most)
    model.set_params(whiten="pca", pca_components=components)
    return np.ascontiguousarray(pixels)
