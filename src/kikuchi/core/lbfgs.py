"""L-BFGS, one step at a time, with a state of plain arrays that can be saved.

Limited-memory quasi-Newton descent with a weak Wolfe search. With an l1 penalty it is orthant-wise:
the direction uses the one-sided gradient along which the objective decreases, and no coordinate
crosses zero within a step, so that exact zeros arise. SciPy's implementation cannot be paused,
saved and resumed between two steps. Line searches with their own metric or stopping rule share
`Memory`, which contains the pairs and computes the direction.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array

Objective = Callable[[Array], tuple[float, Array]]
Metric = Callable[[Array], Array]

_SUFFICIENT = 1e-4  # fraction of the predicted decrease that a step must achieve
_CURVATURE = 0.9  # fraction of the slope that may remain after a step
_TRIALS = 30
_ROUNDING = 1e-14  # of a value
_CURVED = 1e-12  # smallest informative cosine between a step and the change of the gradient
_PAIRS = 20


class Memory:
    """The last steps and the changes of the gradient along them.

    >>> memory = Memory()
    >>> memory.add(np.array([1.0, 0.0]), np.array([4.0, 0.0]))
    >>> memory.direction(np.array([8.0, 1.0])).tolist()
    [-2.0, -0.25]
    """

    def __init__(self, pairs: int = _PAIRS) -> None:
        self.pairs: deque[tuple[Array, Array, float]] = deque(maxlen=pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def clear(self) -> None:
        """Remove all pairs."""
        self.pairs.clear()

    def load(self, steps: Iterable[Array], changes: Iterable[Array]) -> None:
        """Replace the pairs by those of a saved memory, oldest first."""
        self.clear()
        for step, change in zip(steps, changes, strict=True):
            product = float(step @ change)
            if not product > 0:  # `add` stores no such pair
                raise ValueError("a step of L-BFGS along which the gradient did not increase")
            self.pairs.append((step, change, product))

    def add(self, step: Array, change: Array) -> None:
        """Add a step of a minimisation, if the gradient increased along it."""
        product = float(step @ change)
        if product > _CURVED * math.sqrt(float(step @ step) * float(change @ change)):
            self.pairs.append((step, change, product))

    def direction(self, gradient: Array, metric: Metric | None = None, first: float = 1.0) -> Array:
        """Return minus the inverse Hessian times the gradient (two-loop recursion), or -first
        metric(gradient) at the start.

        `metric` is an initial approximation of the inverse Hessian, as a function of a vector, by
        default the identity; its scale is fitted to the last step.
        """
        rest = -gradient
        weights = []
        for step, change, product in reversed(self.pairs):
            weight = float(step @ rest) / product
            rest = rest - weight * change
            weights.append(weight)
        share = first
        if self.pairs:
            _, change, product = self.pairs[-1]
            share = product / float(change @ (change if metric is None else metric(change)))
        rest = share * (rest if metric is None else metric(rest))
        for (step, change, product), weight in zip(self.pairs, reversed(weights), strict=True):
            rest = rest + (weight - float(change @ rest) / product) * step
        if not self.pairs or rest @ gradient < 0:
            return rest
        self.clear()
        return -first * (gradient if metric is None else metric(gradient))


class Lbfgs:
    """Minimise `objective(x) + sum_i l1_i |x_i|` from `point`; each `step` decreases it, up to
    rounding.

    `objective` returns a value and its gradient; a value that is not finite is treated as too high.
    `longest` limits the change of a coordinate in the first trial of a step, as one number or one
    per coordinate. Near the optimum a step is also taken if its decrease is below rounding, unless
    `strict`. `evaluated` is the point of the last evaluation, for objectives that store arrays: it
    may differ from `point`, since a line search may return an earlier trial.

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
        longest: float | Array = np.inf,
        strict: bool = False,
        state: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        self.objective = objective
        self.l1 = np.broadcast_to(np.asarray(l1, dtype=np.float64), np.shape(point))
        self.penalised = bool(self.l1.any())
        self.memory = Memory(memory)
        self.longest = longest
        self.strict = strict
        self.evaluations = 0
        self.converged = False
        if state is not None:
            self.point = np.array(state["point"], dtype=np.float64)
            self.gradient = np.array(state["gradient"], dtype=np.float64)
            self.smooth = float(state["smooth"])
            moves = np.array(state["moves"], dtype=np.float64)
            changes = np.array(state["changes"], dtype=np.float64)
            self._check(point, moves, changes)
            self.memory.load(moves, changes)
            self.evaluations = int(state["evaluations"])
            self.evaluated = self.point
        else:
            self.point = np.array(point, dtype=np.float64)
            self.smooth, self.gradient = self._at(self.point)

    def _check(self, point: Array, moves: Array, changes: Array) -> None:
        """Raise an error unless the state is that of a descent from a point of this shape."""
        size = np.shape(point)
        fits = self.point.shape == self.gradient.shape == size and moves.ndim == 2
        if not fits or not moves.shape == changes.shape == (len(moves), *size):
            raise ValueError(f"a state of L-BFGS for another point than one of shape {size}")
        arrays = self.point, self.gradient, moves, changes
        if not all(np.isfinite(array).all() for array in arrays):
            raise ValueError("a state of L-BFGS with numbers that are not finite")

    # ------------------------------------------------------------------ state

    @property
    def state(self) -> dict[str, NDArray[Any]]:
        """Return everything that the next step depends on, as arrays; pass it as `state=` to
        continue.
        """
        shape = len(self.memory), len(self.point)
        moves = [step for step, _, _ in self.memory.pairs]
        changes = [change for _, change, _ in self.memory.pairs]
        return {
            "point": self.point,
            "gradient": self.gradient,
            "smooth": np.array(self.smooth),
            "moves": np.array(moves, dtype=np.float64).reshape(shape),
            "changes": np.array(changes, dtype=np.float64).reshape(shape),
            "evaluations": np.array(self.evaluations),
        }

    @property
    def value(self) -> float:
        """The objective including the l1 penalty."""
        return self._whole(self.point, self.smooth)

    @property
    def residual(self) -> float:
        """The largest component of the gradient, or of the least subgradient with a penalty."""
        return float(np.abs(self._slope()).max(initial=0.0))

    def _whole(self, point: Array, smooth: float) -> float:
        return smooth + float(self.l1 @ np.abs(point)) if self.penalised else smooth

    def _slope(self) -> Array:
        """The subgradient of smallest norm: 0 where the objective decreases in neither
        direction.
        """
        if not self.penalised:
            return self.gradient
        right, left = self.gradient + self.l1, self.gradient - self.l1
        at_zero = np.where(right < 0, right, np.where(left > 0, left, 0.0))
        return np.where(
            self.point > 0, right, np.where(self.point < 0, left, at_zero)
        )  # the ordinary gradient away from zero

    # ------------------------------------------------------------------ steps

    def steps(self, limit: int, *, least_decrease: float = 0.0, tol: float = 0.0) -> Iterator[int]:
        """Take at most `limit` steps and yield the number of each after it.

        `converged` is True if a criterion was met: the residual is at most `tol`, or a step
        decreased the value by at most `least_decrease` times max(|value|, 1). The steps also end,
        without convergence, if no lower point is found.

        >>> descent = Lbfgs(lambda x: (float(x @ x), 2 * x), np.ones(3))
        >>> max(descent.steps(100, tol=1e-9)) < 10, descent.converged
        (True, True)
        """
        self.converged = self.residual <= tol
        for number in range(1, limit + 1):
            before = self.value
            if self.converged or not self.step():
                return
            size = max(abs(before), abs(self.value), 1.0)
            small = before - self.value <= least_decrease * size
            self.converged = self.residual <= tol or (least_decrease > 0 and small)
            yield number

    def step(self) -> bool:
        """Take one descent step; return False if there is no lower point even along the
        gradient.
        """
        slope = self._slope()
        if self._search(slope, self._direction(slope)):
            return True
        if not len(self.memory):
            return False
        self.memory.clear()
        return self._search(slope, self._direction(slope))

    def _direction(self, slope: Array) -> Array:
        first = 1.0 / max(1.0, float(np.linalg.norm(slope)))
        rest = self.memory.direction(slope, first=first)
        if self.penalised:
            rest = np.where(rest * slope < 0, rest, 0.0)
        return rest

    def _search(self, slope: Array, direction: Array) -> bool:
        fall = float(direction @ slope)
        if not fall < 0.0:
            return False
        bounded = self.penalised
        length, low, high = self._first_length(direction), 0.0, np.inf
        best: tuple[Array, float, Array] | None = None
        now = self.value
        for _ in range(_TRIALS):
            point = self.point + length * direction
            if bounded:  # stay in the orthant where there is a penalty
                side = np.where(self.point != 0, np.sign(self.point), -np.sign(slope))
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

    def _level(self, value: float, now: float, left: float, fall: float) -> bool:
        """Return whether a decrease is below rounding: nearly equal values and a smaller slope.

        Near the optimum, gradients are accurate long after differences of values are lost to
        rounding.
        """
        if self.strict or abs(value - now) > _ROUNDING * max(1.0, abs(now)):
            return False
        return (2 * _SUFFICIENT - 1) * fall >= left > fall

    def _first_length(self, direction: Array) -> float:
        return 1.0 / max(1.0, float((np.abs(direction) / self.longest).max()))

    def _at(self, point: Array) -> tuple[float, Array]:
        self.evaluations += 1
        self.evaluated = point
        value, gradient = self.objective(point)
        return float(value), np.asarray(gradient, dtype=np.float64)

    def _accept(self, point: Array, smooth: float, gradient: Array) -> None:
        move, change = point - self.point, gradient - self.gradient
        self.point, self.smooth, self.gradient = point, smooth, gradient
        self.memory.add(move, change)
