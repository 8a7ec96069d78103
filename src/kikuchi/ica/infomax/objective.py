"""What infomax maximises, with gradients: the entropy of squashed outputs.

Filters are rows of `B` (M, D), data columns of `X` (D, N), `u = B x`. Both objectives leave out the
entropy of the data, which no filter changes.

Reference: TEH-L12, TEH-L13, TEH-M15, TEH-M17, TEH-M18.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.ica.infomax.densities import Density

_CHUNK = 4_000_000  # numbers in one working table
_VANISHED = 1e-280


def square_objective(filters: Array, data: Array, densities: Sequence[Density]) -> float:
    """Mean log density `log |det B| + sum_i log p_i(u_i)` of noiseless ICA."""
    log_det = float(np.linalg.slogdet(filters)[1])
    return log_det - float(per_source(filters @ data, densities, "energy").sum(axis=0).mean())


def square_gradient(filters: Array, data: Array, densities: Sequence[Density]) -> Array:
    """Gradient by the filters: `B^-T - <p-slope x^T>` (the printed one is transposed)."""
    slopes = per_source(filters @ data, densities, "slope")
    return np.asarray(np.linalg.inv(filters).T - slopes @ data.T / data.shape[1])


def relative_gradient(outputs: Array, densities: Sequence[Density]) -> Array:
    """Gradient by `E` of the objective at `(I + E) B`: `I - <slope u^T>`; the natural gradient is
    this times `B`.
    """
    slopes = per_source(outputs, densities, "slope")
    return np.asarray(np.eye(len(outputs)) - slopes @ outputs.T / outputs.shape[1])


def per_source(outputs: Array, densities: Sequence[Density], part: str) -> Array:
    """Energy, slope or curvature of each row under its own density."""
    out = np.empty_like(outputs)
    for density in dict.fromkeys(densities):
        rows = [k for k, other in enumerate(densities) if other is density]
        out[rows] = getattr(density, part)(outputs[rows])
    return out


def manifold_objective(
    filters: Array, data: Array, densities: Sequence[Density]
) -> tuple[float, Array]:
    """Mean of `1/2 log det J^T J`, `J = diag(f'(u)) B`, and its gradient, for at least as many
    filters as sensors.

    Slopes `f'` differ by many orders of magnitude between filters. They are divided by the largest
    at each sample and rows go into the QR factorisation in falling order, which keeps small ones
    accurate. The value is -inf where all but too few of them vanish.
    """
    n_filters, n_sensors = filters.shape
    n_samples = data.shape[1]
    width = max(1, _CHUNK // (n_filters * n_sensors))
    value, gradient = 0.0, np.zeros_like(filters)
    for start in range(0, n_samples, width):
        part = data[:, start : start + width]
        outputs = filters @ part
        log_slopes = -per_source(outputs, densities, "energy").T  # f' = p, (n, M)
        order = np.argsort(-log_slopes, axis=1, kind="stable")
        peak = log_slopes.max(axis=1)
        relative = np.exp(np.take_along_axis(log_slopes, order, axis=1) - peak[:, None])
        base, corner = np.linalg.qr(relative[:, :, None] * filters[order])  # J, rows by size
        scale = np.abs(np.einsum("nii->ni", corner))
        if not (scale > _VANISHED).all():
            return -np.inf, np.zeros_like(filters)
        value += float(np.log(scale).sum() + n_sensors * peak.sum())
        back = np.argsort(order, axis=1)[:, :, None]
        direct = relative[:, :, None] * (base @ np.linalg.inv(corner).transpose(0, 2, 1))
        gradient += np.take_along_axis(direct, back, axis=1).sum(axis=0)
        leverage = np.take_along_axis(np.sum(base**2, axis=2), back[:, :, 0], axis=1)
        gradient -= (leverage.T * per_source(outputs, densities, "slope")) @ part.T
    return value / n_samples, gradient / n_samples
