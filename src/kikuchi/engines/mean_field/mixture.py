"""The arrays of a mixture of product distributions, which compiled loops change."""

from __future__ import annotations

from typing import NamedTuple

from kikuchi.core.arrays import Array, Ints


class Mixture(NamedTuple):
    """What the sweeps change: weights, components, smoothing functions, lambda, overlaps."""

    weights: Array
    q: Array
    smoothing: Array
    log_scale: Array
    overlap: Array
    disjoint: Ints
    gains: Array
    row: Array

    def copy(self) -> Mixture:
        """An independent copy."""
        return self._replace(**{name: array.copy() for name, array in self._asdict().items()})
