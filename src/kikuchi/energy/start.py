"""First filters of experts: independent components, rows of the data, or random directions.

Random directions must first find what rows of the data already show, and rows what independent
components do. With more features than columns several sets of components are taken, each of other
rows and from another beginning; learning then turns them away from each other.
"""

from __future__ import annotations

import warnings

import numpy as np

from kikuchi.core.arrays import Array

STARTS = ("ica", "rows", "random")

_PASSES = 30  # of FastICA: learning does the rest
_ROWS, _LEAST_ROWS = 60, 10_000  # for each column, and at least, of which one set is found


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


def independent_components(rows: Array, otherwise: Array, rng: np.random.Generator) -> Array:
    """Filters of length 1 that FastICA finds in white rows, one set after the other until there are
    enough; those of `otherwise` where there are fewer rows than columns.

    >>> rows = np.random.default_rng(0).laplace(size=(2000, 2)) / np.sqrt(2)
    >>> found = independent_components(rows, np.eye(3, 2), np.random.default_rng(0))
    >>> found.shape, np.abs(found).max(axis=1).round(1).tolist()
    ((3, 2), [1.0, 1.0, 1.0])
    """
    from sklearn.decomposition import FastICA
    from sklearn.exceptions import ConvergenceWarning

    count, columns = otherwise.shape
    if len(rows) <= columns:
        return np.array(otherwise)
    sets, enough = [], max(_ROWS * columns, _LEAST_ROWS)
    for _ in range(-(-count // columns)):
        some = rows[rng.permutation(len(rows))[:enough]]
        ica = FastICA(whiten=False, max_iter=_PASSES, random_state=int(rng.integers(2**31)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            sets.append(ica.fit(some).components_)
    filters = np.concatenate(sets)[:count]
    lengths = np.linalg.norm(filters, axis=1, keepdims=True)
    return np.asarray(filters / lengths, dtype=otherwise.dtype)
