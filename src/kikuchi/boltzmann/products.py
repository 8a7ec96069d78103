"""The matrix products of a machine: by BLAS, or by tables of sums where one side is 0 or 1.

Draws of binary units are 0 or 1, and data often are. A large product with them takes 0.5 to 0.7 of
the time of BLAS on one core by kernels/binary_products.py. Whether a matrix is 0 or 1 is found
while its bits are packed; grey levels go to BLAS.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_ROWS, _COLUMNS, _WORK = 64, 96, 4_000_000  # of a product for which tables of sums pay


def layer_product(left: Array, right: Array, out: Array) -> None:
    """out = left right.

    >>> out = np.empty((1, 2))
    >>> layer_product(np.ones((1, 3)), np.ones((3, 2)), out)
    >>> out.tolist()
    [[3.0, 3.0]]
    """
    if not (_pays(left, right, out, len(right)) and _by_columns(left, right, out)):
        np.matmul(left, right, out=out)


def add_product(
    left: Array, right: Array, scale: float, out: Array, *, fresh: bool = False
) -> None:
    """out += scale * left' right in place, or out = that product if `fresh`.

    >>> out = np.ones((2, 1))
    >>> add_product(np.ones((3, 2)), np.ones((3, 1)), 0.5, out)
    >>> out.tolist()
    [[2.5], [2.5]]
    """
    from scipy.linalg.blas import dgemm, sgemm

    if out.size == 0:
        return
    if _pays(left, right, out, len(left)) and _by_rows(left, right, scale, out, fresh):
        return
    gemm = sgemm if out.dtype == np.float32 else dgemm
    gemm(scale, right.T, left.T, 0.0 if fresh else 1.0, out.T, trans_b=True, overwrite_c=True)


def contrast(
    lefts: tuple[Array, Array], rights: tuple[Array, Array], scales: tuple[float, float], out: Array
) -> None:
    """out = s0 left0' right0 + s1 left1' right1.

    >>> out = np.empty((1, 1))
    >>> ones = np.ones((2, 1))
    >>> contrast((ones, ones), (ones, ones), (1.0, -0.5), out)
    >>> out.tolist()
    [[1.0]]
    """
    from kikuchi.boltzmann.kernels.binary_products import pattern_products

    pairs = list(zip(lefts, rights, strict=True))
    if all(_pays(left, right, out, len(left)) for left, right in pairs):
        first, second = _packed(lefts[0]), _packed(lefts[1])
        if first is not None and second is not None:
            s, t = (out.dtype.type(scale) for scale in scales)
            pattern_products(((first, rights[0], s), (second, rights[1], t)), out, True)
            return
    add_product(lefts[0], rights[0], scales[0], out, fresh=True)
    add_product(lefts[1], rights[1], scales[1], out)


def _pays(left: Array, right: Array, out: Array, inner: int) -> bool:
    """Whether tables of sums suit these arrays and are worth their making."""
    rows, columns = out.shape
    large = rows >= _ROWS and columns >= _COLUMNS and rows * columns * inner >= _WORK
    whole = left.flags.c_contiguous and right.flags.forc and out.flags.c_contiguous
    return large and whole and left.dtype == right.dtype == out.dtype


def _by_columns(left: Array, right: Array, out: Array) -> bool:
    """The product by tables; False, with nothing done, if a number of `left` is not 0 or 1."""
    from kikuchi.boltzmann.kernels.binary_products import pack_columns, pattern_products

    patterns = np.empty((len(left), _groups(len(right))), np.uint8)
    if not pack_columns(left, patterns):
        return False
    pattern_products(((patterns.T, right, out.dtype.type(1.0)),), out, True)
    return True


def _by_rows(left: Array, right: Array, scale: float, out: Array, fresh: bool) -> bool:
    """The same for left' right."""
    from kikuchi.boltzmann.kernels.binary_products import pattern_products

    patterns = _packed(left)
    if patterns is None:
        return False
    pattern_products(((patterns, right, out.dtype.type(scale)),), out, fresh)
    return True


def _packed(left: Array) -> NDArray[np.uint8] | None:
    """The bits of each column; None if a number is not 0 or 1."""
    from kikuchi.boltzmann.kernels.binary_products import pack_rows

    patterns = np.empty((_groups(len(left)), left.shape[1]), np.uint8)
    return patterns if pack_rows(left, patterns) else None


def _groups(rows: int) -> int:
    """Tables for so many rows, filled up to a multiple of those that are read together."""
    from kikuchi.boltzmann.kernels.binary_products import AT_ONCE, TABLES

    return -(-rows // AT_ONCE) * TABLES
