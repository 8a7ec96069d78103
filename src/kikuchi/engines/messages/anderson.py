"""Anderson acceleration of sweeps over messages.

Reference: LIU-I8.
"""

from __future__ import annotations

import math

import numpy as np

from kikuchi.core.arrays import Array

_JUMP = 10.0  # rise of the residual at which past sweeps are forgotten
_LARGEST_MESSAGE = 1e6  # that is extrapolated


class Anderson:
    """Anderson acceleration: the combination of past sweeps whose changes cancel best."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.clear()

    def clear(self) -> None:
        """Forget all sweeps."""
        self._last: tuple[Array, Array] | None = None  # where it ended and how it moved
        self._moves: list[Array] = []
        self._rises: list[Array] = []
        self._products = np.zeros((0, 0))
        self._least = math.inf

    def combined(self, before: Array, after: Array, residual: float) -> Array | None:
        """Messages to go on from after a sweep, None for those that the sweep gave."""
        if self.depth == 0:
            return None
        if residual > _JUMP * self._least:
            self.clear()
        self._least = min(self._least, residual)
        change = after - before
        last, self._last = self._last, (after, change)
        if last is None:
            return None
        self._remember(after - last[0], change - last[1])
        scale = np.trace(self._products)
        if not scale > 0:
            return None
        matrix = self._products + 1e-12 * scale * np.eye(len(self._products))
        weights = np.linalg.solve(matrix, np.array([rise @ change for rise in self._rises]))
        out = after.copy()
        for weight, move in zip(weights, self._moves, strict=True):
            out -= weight * move
        return out if np.abs(out).max() < _LARGEST_MESSAGE else None

    def _remember(self, move: Array, rise: Array) -> None:
        """Keep the last `depth` differences, and the products of the rises with each other."""
        self._moves = [*self._moves, move][-self.depth :]
        self._rises = [*self._rises, rise][-self.depth :]
        old = self._products[-(self.depth - 1) :, -(self.depth - 1) :] if self.depth > 1 else None
        size = len(self._rises)
        self._products = np.empty((size, size))
        if old is not None and size > 1:
            self._products[:-1, :-1] = old
        self._products[-1] = self._products[:, -1] = [other @ rise for other in self._rises]
