"""Covariances with a structure: full, diagonal or isotropic; fitted, packed and differentiated."""

from __future__ import annotations

from typing import Literal

import numpy as np

from kikuchi.core.arrays import Array

Structure = Literal["full", "diagonal", "isotropic"]
CovarianceType = Literal["full", "diag", "spherical", "tied", "tied-diag", "tied-spherical"]
_STRUCTURES: dict[str, Structure] = {
    "full": "full", "diag": "diagonal", "spherical": "isotropic", "tied": "full",
}  # fmt: skip


def covariance_structure(covariance_type: str) -> tuple[Structure, bool]:
    """The structure that a `covariance_type` names, and whether all states share the covariance.

    >>> covariance_structure("diag"), covariance_structure("tied")
    (('diagonal', False), ('full', True))
    """
    tied = covariance_type.startswith("tied")
    return _STRUCTURES[covariance_type.removeprefix("tied-")], tied


def structured(scatter: Array, structure: str, floor: Array) -> Array:
    """The covariance of a structure of greatest likelihood, given the scatter per sample.

    `floor` is the least variance of each coordinate.

    >>> structured(np.array([[2.0, 1.0], [1.0, 4.0]]), "isotropic", np.zeros(2)).tolist()
    [[3.0, 0.0], [0.0, 3.0]]
    """
    variances = np.maximum(np.diagonal(scatter), floor)
    if structure == "diagonal":
        return np.diag(variances)
    if structure == "isotropic":
        return np.eye(len(scatter)) * float(variances.mean())
    values, vectors = np.linalg.eigh(0.5 * (scatter + scatter.T))
    return np.asarray((vectors * np.maximum(values, floor.min())) @ vectors.T)


def packed_length(size: int, structure: str) -> int:
    """How many numbers `pack_covariance` needs."""
    return {"full": size * (size + 1) // 2, "diagonal": size, "isotropic": 1}[structure]


def pack_covariance(covariance: Array, structure: str) -> Array:
    """Logarithms of variances, or the Cholesky factor with logarithms on its diagonal."""
    if structure == "diagonal":
        return np.log(np.diagonal(covariance))
    if structure == "isotropic":
        return np.log([np.diagonal(covariance).mean()])
    factor = np.linalg.cholesky(covariance)
    factor[np.diag_indices(len(factor))] = np.log(np.diagonal(factor))
    return np.asarray(factor[np.tril_indices(len(factor))])


def unpack_covariance(vector: Array, size: int, structure: str) -> Array:
    """The inverse of `pack_covariance`."""
    if structure != "full":
        return np.diag(np.exp(np.broadcast_to(vector, (size,))))
    factor = np.zeros((size, size))
    factor[np.tril_indices(size)] = vector
    factor[np.diag_indices(size)] = np.exp(np.diagonal(factor))
    return factor @ factor.T


def covariance_slope(scatter: Array, count: float, covariance: Array, structure: str) -> Array:
    """Slope along `pack_covariance` of the log-density of `count` errors with this scatter."""
    inverse = np.linalg.inv(covariance)
    g = 0.5 * (inverse @ scatter @ inverse - count * inverse)
    if structure != "full":
        slopes = np.diagonal(g) * np.diagonal(covariance)
        return np.asarray(slopes if structure == "diagonal" else [slopes.sum()])
    factor = np.linalg.cholesky(covariance)
    slope = 2.0 * g @ factor
    slope[np.diag_indices(len(factor))] *= np.diagonal(factor)
    return np.asarray(slope[np.tril_indices(len(factor))])
