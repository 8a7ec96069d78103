"""How sequences are learnt: EM, L-BFGS along the gradient, and EM that ends along the gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array
from kikuchi.core.errors import ModelError
from kikuchi.core.lbfgs import Lbfgs, Objective
from kikuchi.core.run import Step
from kikuchi.engines.loops.em import ExpectationMaximisation, Model
from kikuchi.engines.loops.lbfgs import HeldDescent
from kikuchi.engines.loops.state import Held, Part, State

_ROUNDING = 1e-6  # fall of an objective, relative to its size, that may be rounding
_WINDOW = 10  # iterations over which the gain of an ascent is judged
_MEMORY = 60  # pairs of L-BFGS


class Coordinates(Protocol[Model]):
    """Models about one of them as vectors."""

    def vector(self, model: Model) -> Array:
        """The vector of a model."""

    def model(self, vector: Array) -> Model:
        """The model of a vector."""

    def gradient(self, model: Model, statistics: Any, vector: Array) -> Array:
        """Gradient of the objective along the vector of the model."""


class SeriesEM(ExpectationMaximisation[Model]):
    """EM of sequences, which ends where the next model has no objective; `failure` is then the
    reason. With `rises` an objective that falls ends it too.
    """

    rises = False
    failure = ""

    def step(self) -> Step | None:
        """Take one iteration; the residual is the change of the objective per row."""
        try:
            return self.advance()
        except (ModelError, np.linalg.LinAlgError) as error:
            if not self.done:
                raise
            self.failure = str(error)
            return None

    def _check(self, objective: float) -> None:
        if not math.isfinite(objective):
            raise ModelError("the log-likelihood is not finite")
        fall = self.objective - objective
        if self.rises and fall > _ROUNDING * max(abs(objective), self.rows):
            raise ModelError(f"rounding made the log-likelihood fall by {fall:.3g}")


@dataclass(eq=False, init=False)
class GradientAscent(State):
    """L-BFGS steps up the log-likelihood, `objective` being minus it per row with its gradient, and
    `beside` what that depends on beside the point.

    Where no step goes up, they have converged if the gradient is as small as a gain of `tol` makes
    it; otherwise they end, and `failure` is the reason.
    """

    varying: ClassVar[tuple[str, ...]] = ("descent/moves", "descent/changes", "beside/")

    descent: Held[Lbfgs]
    beside: Part
    done: int

    def __init__(
        self,
        objective: Objective,
        start: Array,
        rows: int,
        tol: float,
        unpack: Callable[[Array], Any],
        beside: Part | None = None,
    ) -> None:
        self.rows, self.unpack, self.failure = rows, unpack, ""
        self.flat = 10.0 * math.sqrt(max(tol, 1e-12))
        self.descent, self.done = HeldDescent(objective, start), 0
        self.beside = beside or State()

    @property
    def now(self) -> Any:
        """The best model so far."""
        return self.unpack(self.descent.now.point)

    def step(self) -> Step | None:
        """Take one step; the residual is the gain per row, 0 where no step goes up."""
        descent = self.descent.now
        before = descent.value
        moved = descent.step()
        if not moved and descent.residual > self.flat:
            self.failure = (
                f"no step increases the log-likelihood, although its gradient per row is "
                f"{descent.residual:.2g}: the parameters are at a limit of what can be computed"
            )
            return None
        self.done += 1
        gain = max(before - descent.value, 0.0) if moved else 0.0
        return Step(self.done, gain, -descent.value * self.rows)


@dataclass(eq=False, init=False)
class SeriesAscent(State, Generic[Model]):
    """EM until it gains less than `near` per row in an iteration, then L-BFGS in `coordinates`
    about the model that it reached.

    With `near` 0 there is EM alone, with infinity L-BFGS from the start. The residual is what an
    iteration may still gain per row: the larger of the gain of the last ten iterations and, along
    the gradient, the gain that the quadratic model of L-BFGS predicts.

    Attributes
    ----------
    em
        Stage 0.
    stage
        The stage of the next step.
    descent
        Stage 1, None before it.
    window
        The objectives of the last iterations.
    left
        What stage 1 may still gain per row.
    """

    varying: ClassVar[tuple[str, ...]] = ("descent/",)

    em: SeriesEM[Model]
    stage: int
    descent: Held[Lbfgs]
    window: Array
    left: float
    done: int

    def __init__(
        self,
        em: SeriesEM[Model],
        coordinates: Callable[[Model, Any], Coordinates[Model]],
        near: float,
        tol: float,
    ) -> None:
        self.em, self.make, self.near, self.tol = em, coordinates, near, tol
        self.descent = Held(None, self._begun, lambda descent: descent.state)
        self.window, self.left, self.done = np.full(_WINDOW, -math.inf), math.inf, 0
        self.stage, self.failure = 0, ""
        self.coordinates: Coordinates[Model] | None = None

    @property
    def now(self) -> Model:
        """The best model so far."""
        if self.coordinates is None or self.descent.value is None:
            return self.em.now
        return self.coordinates.model(self.descent.value.point)

    def step(self) -> Step | None:
        """Take one step; None where the objective cannot be raised or computed."""
        if not self.stage:
            report = self.em.step()
            if report is None:
                self.failure = self.em.failure
                return None
            self.done = report.iterations
            self.stage = int(report.residual < self.near or math.isinf(self.near))
            return Step(self.done, self._gain(report.objective), report.objective)
        if self.descent.value is None:
            self.descent.value = self._begun()
        return self._climb(self.descent.value)

    def _climb(self, descent: Lbfgs) -> Step | None:
        moved = descent.step()
        if moved:
            self.left = -0.5 * float(descent.memory.direction(descent.gradient) @ descent.gradient)
        value = -descent.value * self.em.rows
        if not moved and self.left > self.tol:
            self.failure = (
                f"no step increases the log-likelihood, although its gradient promises "
                f"{self.left:.2g} per row: the parameters are at a limit of what can be computed"
            )
            return None
        self.done += 1
        gain = self._gain(value)
        return Step(self.done, max(gain, self.left) if moved else self.left, value)

    def _gain(self, objective: float) -> float:
        """Gain per row since ten iterations ago."""
        gain = (objective - float(self.window[0])) / self.em.rows
        self.window = np.append(self.window[1:], objective)
        return abs(gain)

    def _begun(self, saved: Mapping[str, NDArray[Any]] | None = None) -> Lbfgs:
        """L-BFGS about the model of EM."""
        em = self.em
        coordinates = self.make(em.now, em.expect())

        def objective(vector: Array) -> tuple[float, Array]:
            try:
                model = coordinates.model(vector)
                value, statistics = em.expectation(model)
                slope = coordinates.gradient(model, statistics, vector)
            except (ValueError, np.linalg.LinAlgError):  # outside the domain: it steps back
                return math.inf, np.zeros_like(vector)
            return -value / em.rows, -slope / em.rows

        self.coordinates = coordinates
        return Lbfgs(objective, coordinates.vector(em.now), memory=_MEMORY, state=saved)
