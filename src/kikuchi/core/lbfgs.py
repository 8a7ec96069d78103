"""L-BFGS, one step at a time, with its whole state in plain arrays so that it can be saved.

Limited-memory quasi-Newton descent with a weak Wolfe search. With an l1 penalty it works orthant
by orthant: the direction uses the gradient of the side on which the objective falls, and no
coordinate crosses zero within a step, so that exact zeros arise. SciPy's own cannot be paused
between two steps, nor saved and resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Objective = Callable[[Array], tuple[float, Array]]

_SUFFICIENT = 1e-4  # share of the promised fall that a step must keep
_CURVATURE = 0.9  # share of the slope that may be left after a step
_TRIALS = 30
_ROUNDING = 1e-14  # of a value
_CURVED = 1e-12  # cosine between a step and the change of the gradient: less says nothing


class Lbfgs:
    """Minimise `objective(x) + sum_i l1_i |x_i|` from `point`; each `step` lowers it, up to
    rounding.

    `objective` answers a value and its gradient; a value that is not finite counts as too high.
    `longest` bounds how far one coordinate moves in the first trial of a step.

    >>> descent = Lbfgs(lambda x: (float((x - 3) @ (x - 3)), 2 * (x - 3)), np.zeros(2), l1=1.0)
    >>> while descent.residual > 1e-9 and descent.step():
    ...     pass
    >>> descent.point.round(6).tolist()
    [2.5, 2.5]
    """

    def __init__(
        self,
        objective: Objective,
        point: Array,
        *,
        l1: float | Array = 0.0,
        memory: int = 10,
        longest: float = np.inf,
        state: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        self.objective = objective
        self.l1 = np.broadcast_to(np.asarray(l1, dtype=np.float64), np.shape(point))
        self.memory = memory
        self.longest = longest
        self.evaluations = 0
        self.moves = np.zeros((0, len(point)))
        self.changes = np.zeros((0, len(point)))
        if state is not None:
            self.point = np.array(state["point"], dtype=np.float64)
            self.gradient = np.array(state["gradient"], dtype=np.float64)
            self.smooth = float(state["smooth"])
            self.moves = np.array(state["moves"], dtype=np.float64)
            self.changes = np.array(state["changes"], dtype=np.float64)
            self.evaluations = int(state["evaluations"])
        else:
            self.point = np.array(point, dtype=np.float64)
            self.smooth, self.gradient = self._at(self.point)

    # ------------------------------------------------------------------ asking

    @property
    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that the next step depends on, as arrays; `state=` goes on from it."""
        return {
            "point": self.point,
            "gradient": self.gradient,
            "smooth": np.array(self.smooth),
            "moves": self.moves,
            "changes": self.changes,
            "evaluations": np.array(self.evaluations),
        }

    @property
    def value(self) -> float:
        """The objective with its l1 penalty."""
        return self._whole(self.point, self.smooth)

    @property
    def residual(self) -> float:
        """The largest component of the gradient, or of the least subgradient with a penalty."""
        return float(np.abs(self._slope()).max(initial=0.0))

    def _whole(self, point: Array, smooth: float) -> float:
        return smooth + float(self.l1 @ np.abs(point))

    def _slope(self) -> Array:
        """The subgradient of least size: 0 where neither side goes down."""
        if not self.l1.any():
            return self.gradient
        right, left = self.gradient + self.l1, self.gradient - self.l1
        at_zero = np.where(right < 0, right, np.where(left > 0, left, 0.0))
        return np.where(
            self.point > 0, right, np.where(self.point < 0, left, at_zero)
        )  # the gradient proper off zero

    # ------------------------------------------------------------------ going

    def step(self) -> bool:
        """One step down; False if no better point is found, even along the gradient itself."""
        slope = self._slope()
        if self._search(slope, self._direction(slope)):
            return True
        if not len(self.moves):
            return False
        self.moves, self.changes = self.moves[:0], self.changes[:0]
        return self._search(slope, self._direction(slope))

    def _direction(self, slope: Array) -> Array:
        """Minus the inverse curvature times the slope (two-loop recursion)."""
        if not len(self.moves):
            return np.asarray(-slope / max(1.0, float(np.linalg.norm(slope))))
        rest = -slope
        shares = np.zeros(len(self.moves))
        products = np.einsum("ij,ij->i", self.moves, self.changes)
        for k in range(len(self.moves) - 1, -1, -1):
            shares[k] = float(self.moves[k] @ rest) / products[k]
            rest = rest - shares[k] * self.changes[k]
        rest = rest * (products[-1] / float(self.changes[-1] @ self.changes[-1]))
        for k in range(len(self.moves)):
            part = float(self.changes[k] @ rest) / products[k]
            rest = rest + (shares[k] - part) * self.moves[k]
        if self.l1.any():
            rest = np.where(rest * slope < 0, rest, 0.0)
        return rest

    def _search(self, slope: Array, direction: Array) -> bool:
        fall = float(direction @ slope)
        if not fall < 0.0:
            return False
        side = np.where(self.point != 0, np.sign(self.point), -np.sign(slope))
        bounded = bool(self.l1.any())
        length, low, high = self._first_length(direction), 0.0, np.inf
        best: tuple[Array, float, Array] | None = None
        now = self.value
        for _ in range(_TRIALS):
            point = self.point + length * direction
            if bounded:  # stay in the orthant wherever there is a penalty
                point = np.where((self.l1 > 0) & (point * side < 0), 0.0, point)
            smooth, gradient = self._at(point)
            value = self._whole(point, smooth)
            promised = float(slope @ (point - self.point)) if bounded else length * fall
            left = fall if bounded else float(direction @ gradient)
            enough = value <= now + _SUFFICIENT * promised and value < now
            if not (np.isfinite(value) and (enough or self._level(value, now, left, fall))):
                high = length
            else:
                best = (point, smooth, gradient)
                if bounded or left >= _CURVATURE * fall:
                    break
                low = length
            length = 0.5 * (low + high) if np.isfinite(high) else 2.0 * low
        if best is None:
            return False
        self._accept(*best)
        return True

    @staticmethod
    def _level(value: float, now: float, left: float, fall: float) -> bool:
        """Whether only rounding hides a fall: values as good as equal, and a slope that shrank.

        Near the optimum gradients stay exact long after differences of values are lost.
        """
        if abs(value - now) > _ROUNDING * max(1.0, abs(now)):
            return False
        return (2 * _SUFFICIENT - 1) * fall >= left > fall

    def _first_length(self, direction: Array) -> float:
        return min(1.0, self.longest / float(np.abs(direction).max()))

    def _at(self, point: Array) -> tuple[float, Array]:
        self.evaluations += 1
        value, gradient = self.objective(point)
        return float(value), np.asarray(gradient, dtype=np.float64)

    def _accept(self, point: Array, smooth: float, gradient: Array) -> None:
        move, change = point - self.point, gradient - self.gradient
        self.point, self.smooth, self.gradient = point, smooth, gradient
        product = float(move @ change)
        if product > _CURVED * np.sqrt(float(move @ move) * float(change @ change)):
            self.moves = np.concatenate([self.moves, move[None]])[-self.memory :]
            self.changes = np.concatenate([self.changes, change[None]])[-self.memory :]
