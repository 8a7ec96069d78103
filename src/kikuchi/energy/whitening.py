"""Whitening that can be undone: centred rows with unit covariance, by PCA or ZCA."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError, MethodError

WHITENINGS = ("none", "pca", "zca")

_LARGEST = 1e100  # squares of larger values may overflow
_TINY = 1e-10  # eigenvalues below this fraction of the largest are rounding


@dataclass(frozen=True)
class Whitening:
    """white = (rows - mean) @ forward.T; rows = white @ backward.T + mean within the space kept.

    `log_det` is the log of the volume by which `forward` stretches the space kept: densities of
    rows (in that space) are those of white rows times exp(log_det). `dropped` is the fraction of
    the variance outside.

    `mean` and the matrices `forward` and `backward` are those of the formulas, `kind` is "pca",
    "zca" or "none".
    """

    mean: Array
    forward: Array
    backward: Array
    log_det: float
    dropped: float
    kind: str

    @classmethod
    def fit(cls, rows: NDArray[Any], kind: str, components: int | None = None) -> Whitening:
        """Whitening of `rows` (rows, columns) by `kind` pca, zca or none; columns without variance
        of their own are refused, unless fewer `components` are kept. White rows of PCA have as many
        columns; those of ZCA have all columns and vary in as many directions.

        >>> rows = np.random.default_rng(0).normal(size=(500, 3)) @ np.diag([1.0, 2.0, 3.0])
        >>> white = Whitening.fit(rows, "zca")(rows)
        >>> np.allclose(white.T @ white / len(white), np.eye(3))
        True
        """
        if kind not in WHITENINGS:
            raise MethodError(f"whiten is {', '.join(WHITENINGS)}, got '{kind}'")
        rows = np.asarray(rows, dtype=np.float64)
        n, d = rows.shape
        if np.abs(rows).max(initial=0.0) > _LARGEST:
            raise DataError(f"some values are outside +-{_LARGEST:g}; divide the rows first")
        if kind == "none":
            return cls(np.zeros(d), np.eye(d), np.eye(d), 0.0, 0.0, kind)
        kept = d if components is None else components
        if kept > min(n - 1, d):
            raise DataError(
                f"{n} rows of {d} columns cannot be whitened to {kept} components; give more rows, "
                "or whiten by pca to fewer components"
            )
        mean = rows.mean(axis=0)
        values, axes = np.linalg.eigh((rows - mean).T @ (rows - mean) / n)
        values, axes = values[::-1], axes[:, ::-1]
        if values[kept - 1] <= _TINY * values[0]:
            rank = int(np.sum(values > _TINY * values[0]))
            if not rank:
                raise DataError("the rows are all alike, or differ too little for float numbers")
            raise DataError(
                f"the rows vary in {rank} of {d} directions (constant or dependent columns); drop "
                f"those columns, or whiten by pca to at most {rank} components"
            )
        scales, axes = np.sqrt(values[:kept]), axes[:, :kept]
        forward, backward = axes.T / scales[:, None], axes * scales
        if kind == "zca":
            forward, backward = axes @ forward, backward @ axes.T
        dropped = float(values[kept:].sum() / values.sum())
        return cls(mean, forward, backward, -float(np.log(scales).sum()), dropped, kind)

    def __call__(self, rows: NDArray[Any]) -> Array:
        """White rows."""
        return np.asarray((np.asarray(rows, dtype=np.float64) - self.mean) @ self.forward.T)

    def undo(self, white: NDArray[Any]) -> Array:
        """The rows whose white rows are `white`."""
        return np.asarray(np.asarray(white, dtype=np.float64) @ self.backward.T + self.mean)

    def normal_log_densities(self, white: NDArray[Any], base: NDArray[Any]) -> Array:
        """Return the log-density of each row of `white` under the normal distribution of the
        training rows: the standard one, or that of the rows `base` where these are not white.
        """
        at = np.asarray(white, dtype=np.float64)
        constant = 0.5 * at.shape[1] * np.log(2 * np.pi)
        if self.kind == "none":
            own = np.asarray(base, dtype=np.float64)
            covariance = np.cov(own, rowvar=False).reshape(at.shape[1], at.shape[1])
            factor = np.linalg.cholesky(covariance)
            at = np.linalg.solve(factor, (at - own.mean(axis=0)).T).T
            constant += np.log(np.diag(factor)).sum()
        return np.asarray(-0.5 * np.sum(at**2, axis=1) - constant)

    def arrays(self) -> dict[str, Array]:
        """What a file holds."""
        return {"mean": self.mean, "forward": self.forward, "backward": self.backward}

    @classmethod
    def restored(cls, arrays: Mapping[str, Array], facts: Mapping[str, Any]) -> Whitening:
        """The whitening of a file: `arrays` as `arrays()` and `facts` as `facts()` gave them."""
        mean, forward, backward = (arrays[n] for n in ("mean", "forward", "backward"))
        told = cls(mean, forward, backward, float(facts["log_det"]), float(facts["dropped"]),
                   str(facts["kind"]))  # fmt: skip
        if not math.isfinite(told.log_det) or not math.isfinite(told.dropped):
            raise DataError("its whitening has numbers that are not finite")
        return told

    def facts(self) -> dict[str, Any]:
        """What a file says besides the arrays."""
        return {"log_det": self.log_det, "dropped": self.dropped, "kind": self.kind}
