"""First filters of experts: independent components, rows of the data, or random directions.

An expert whose filter begins far from any structure of the data loses its weight before it finds
some: its shape falls, and with it the gradient that would turn the filter. Independent components
are structure already. With more features than columns several sets of them are taken, each of other
rows and from another beginning: in data that are no mixture of independent sources, as photographs
and speech, the sets differ.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array
from kikuchi.energy.whitening import Whitening

STARTS = ("ica", "rows", "random")

_FEW = 10  # rows for each column, below which components are those of chance
_STAGES = ((60, 10_000, 100), (200, 30_000, 60))  # rows a column, rows at least, passes at most
_TOL = 1e-3


def directions_of_rows(rows: Array, otherwise: Array, rng: np.random.Generator) -> Array:
    """Filters of length 1 along different rows of the data; those of `otherwise` where there are
    not enough rows, or a row has no direction.

    >>> directions_of_rows(np.array([[0.0, 2.0]]), np.eye(2), np.random.default_rng(0)).tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """
    filters = np.array(otherwise)
    chosen = rows[rng.permutation(len(rows))[: len(filters)]]
    lengths = np.linalg.norm(chosen, axis=1, keepdims=True)
    known = np.flatnonzero(lengths > 0)
    filters[known] = chosen[known] / lengths[known]
    return filters


def independent_components(
    rows: Array,
    otherwise: Array,
    rng: np.random.Generator,
    going: Callable[[], bool] = lambda: True,
) -> Array:
    """Filters of length 1 that FastICA finds, one set of components after the other until there are
    enough; along rows of the data where there are fewer than ten for each column.

    Passes over few rows come first, then passes over many. They end early when `going` answers
    false: the components are then those found so far.

    >>> rows = np.random.default_rng(0).laplace(size=(2000, 2))
    >>> found = independent_components(rows, np.eye(3, 2), np.random.default_rng(0))
    >>> found.shape, np.abs(found).max(axis=1).round(1).tolist()
    ((3, 2), [1.0, 1.0, 1.0])
    """
    filters = directions_of_rows(rows, otherwise, rng)
    centred = rows - rows.mean(axis=0)
    rank = int(np.linalg.matrix_rank(centred.T @ centred / len(rows), hermitian=True))
    if not rank or len(rows) < _FEW * rank:
        return filters
    whitening = Whitening.fit(rows, "pca", rank)
    white = whitening(rows).astype(np.float32)
    for first in range(0, len(filters), rank):
        found = _components(white, rng, going) @ whitening.forward
        found = found / np.linalg.norm(found, axis=1, keepdims=True)
        filters[first : first + rank] = found[: len(filters) - first]
    return filters


def _components(
    white: NDArray[np.float32], rng: np.random.Generator, going: Callable[[], bool]
) -> Array:
    """One set: a square matrix with orthogonal rows.

    FastICA of scikit-learn also inverts the matrix, by a decomposition that does not converge for
    some matrices with orthogonal rows.
    """
    n, columns = white.shape
    found: Array = np.linalg.qr(rng.normal(size=(columns, columns)))[0]
    for per_column, least, passes in _STAGES:
        some = white[rng.permutation(n)[: max(per_column * columns, least)]]
        for _ in range(passes):
            if not going():
                break
            before, found = found, _fixed_point_step(some, found)
            if np.max(np.abs(np.abs(np.sum(before * found, axis=1)) - 1.0)) < _TOL:
                break
    return found


def _fixed_point_step(white: NDArray[np.float32], filters: Array) -> Array:
    """One step of symmetric FastICA for sources that log cosh tells from normal ones."""
    curved = np.tanh(white @ filters.T.astype(white.dtype))
    slopes = np.asarray(1.0 - np.mean(curved * curved, axis=0, dtype=np.float64))
    moved = (curved.T @ white) / len(white) - slopes[:, None] * filters
    lengths, axes = np.linalg.eigh(moved @ moved.T)
    scale = 1.0 / np.sqrt(np.maximum(lengths, np.finfo(np.float64).tiny))
    return np.asarray((axes * scale) @ axes.T @ moved)
