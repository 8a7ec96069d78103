"""L-BFGS for objectives whose evaluation is a run of inference: the memory and the direction."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Metric = Callable[[Array], Array]

_PAIRS = 20
_CURVED = 1e-12  # cosine between a step and the change of the gradient: less says nothing


class Memory:
    """The last steps and what the gradient changed along them.

    `metric` is a first guess of the inverse Hessian, as a function of a vector; its size is fitted
    to the last step.

    >>> memory = Memory()
    >>> memory.add(np.array([1.0, 0.0]), np.array([4.0, 0.0]))
    >>> memory.direction(np.array([8.0, 1.0]), lambda v: v, 1.0).tolist()
    [-2.0, -0.25]
    """

    def __init__(self, pairs: int = _PAIRS) -> None:
        self.pairs: deque[tuple[Array, Array]] = deque(maxlen=pairs)

    def clear(self) -> None:
        """Forget everything."""
        self.pairs.clear()

    def add(self, step: Array, change: Array) -> None:
        """Remember a step of a minimisation, if the gradient grew along it."""
        product = float(step @ change)
        if product > _CURVED * math.sqrt(float(step @ step) * float(change @ change)):
            self.pairs.append((step, change))

    def direction(self, gradient: Array, metric: Metric, first: float) -> Array:
        """Minus the inverse Hessian times the gradient, or -first metric(gradient) at the start."""
        rest = -gradient
        weights = []
        for step, change in reversed(self.pairs):
            weight = float(step @ rest) / float(step @ change)
            rest = rest - weight * change
            weights.append(weight)
        share = first
        if self.pairs:
            step, change = self.pairs[-1]
            share = float(step @ change) / float(change @ metric(change))
        rest = share * metric(rest)
        for (step, change), weight in zip(self.pairs, reversed(weights), strict=True):
            rest = rest + (weight - float(change @ rest) / float(step @ change)) * step
        if rest @ gradient < 0:
            return rest
        self.clear()
        return -first * metric(gradient)
