"""How sequences are learnt: EM, L-BFGS along the gradient, and EM that ends along the gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import ModelError
from kikuchi.core.lbfgs import Lbfgs, Objective
from kikuchi.core.run import State, Step
from kikuchi.training.checkpoint import Arrays, part, prefixed

_ROUNDING = 1e-6  # fall of an objective, relative to its size, that may be rounding
_WINDOW = 10  # iterations over which the gain of an ascent is judged
_MEMORY = 60  # pairs of L-BFGS


class ArrayModel(Protocol):
    """Parameters that can be written as plain arrays."""

    def to_arrays(self) -> Arrays:
        """Parameters by name."""


Model = TypeVar("Model", bound=ArrayModel)


class Coordinates(Protocol[Model]):
    """Models about one of them as vectors."""

    def vector(self, model: Model) -> Array:
        """The vector of a model."""

    def model(self, vector: Array) -> Model:
        """The model of a vector."""

    def gradient(self, model: Model, statistics: Any, vector: Array) -> Array:
        """Gradient of the objective along the vector of the model."""


class ExpectationMaximisation(Generic[Model]):
    """Expectation and maximisation in turn; the objective is the log-likelihood (or a bound on it).

    `expectation` returns the objective and the statistics of a model, `maximisation` the model of
    statistics. The step that is reported is that of the model in hand, whose objective is known.
    With `rises` an objective that falls ends the steps.
    """

    varying = ("carried/",)

    def __init__(
        self,
        model: Model,
        expectation: Callable[[Model], tuple[float, Any]],
        maximisation: Callable[[Model, Any], Model],
        read: Callable[[Arrays], Model],
        rows: int,
        carried: Callable[[], Arrays] = dict,
        restore_carried: Callable[[Arrays], None] = lambda arrays: None,
        rises: bool = False,
    ) -> None:
        self.model, self.rows, self.rises = model, rows, rises
        self.carried, self.restore_carried = carried, restore_carried
        self.expectation, self.maximisation, self.read = expectation, maximisation, read
        self.iterations, self.before = 0, -math.inf
        self._statistics: Any = None
        self.failure = ""

    def state(self) -> State:
        """Everything that the next step depends on."""
        now = {"iterations": np.array(self.iterations), "before": np.array(self.before)}
        beside = prefixed(self.carried(), "carried")
        return {**now, **prefixed(self.model.to_arrays(), "model"), **beside}

    def restore(self, state: State) -> None:
        """Go on where the state was taken."""
        self.model = self.read(part(state, "model"))
        self.iterations, self.before = int(state["iterations"]), float(state["before"])
        self.restore_carried(part(state, "carried"))
        self._statistics = self.expectation(self.model)[1]

    def steps(self) -> Iterator[Step]:
        """One step per round; the residual is the change of the objective per row.

        They end where the next model has no objective; `failure` is then the reason.
        """
        while True:
            try:
                model = self._next()
                objective, statistics = self.expectation(model)
                self._check(objective)
            except (ModelError, np.linalg.LinAlgError) as error:
                if not self.iterations:
                    raise
                self.failure = str(error)
                return
            self.model, self._statistics = model, statistics
            change = abs(objective - self.before) / self.rows
            self.iterations += 1
            self.before = objective
            yield Step(self.iterations, change, objective)

    def statistics(self) -> Any:
        """Those of the model in hand."""
        if self._statistics is None:
            self._statistics = self.expectation(self.model)[1]
        return self._statistics

    def _check(self, objective: float) -> None:
        if not math.isfinite(objective):
            raise ModelError("the log-likelihood is not finite")
        fall = self.before - objective
        if self.rises and fall > _ROUNDING * max(abs(objective), self.rows):
            raise ModelError(f"rounding made the log-likelihood fall by {fall:.3g}")

    def _next(self) -> Model:
        if self._statistics is None:
            return self.model
        return self.maximisation(self.model, self._statistics)


class GradientAscent:
    """L-BFGS steps up the log-likelihood, `objective` being minus it per row with its gradient.

    Where no step goes up, they have converged if the gradient is as small as a gain of `tol` makes
    it; otherwise they end, and `failure` is the reason.
    """

    varying = ("moves", "changes")

    def __init__(
        self,
        objective: Objective,
        start: Array,
        rows: int,
        tol: float,
        unpack: Callable[[Array], Any],
    ) -> None:
        self.objective, self.rows, self.unpack, self.failure = objective, rows, unpack, ""
        self.flat = 10.0 * math.sqrt(max(tol, 1e-12))
        self.descent = Lbfgs(objective, start)
        self.iterations = 0

    @property
    def model(self) -> Any:
        """The best model so far."""
        return self.unpack(self.descent.point)

    def state(self) -> State:
        """Everything that the next step depends on."""
        return {"iterations": np.array(self.iterations), **self.descent.state}

    def restore(self, state: State) -> None:
        """Go on where the state was taken."""
        self.iterations = int(state["iterations"])
        self.descent = Lbfgs(self.objective, self.descent.point, state=state)

    def steps(self) -> Iterator[Step]:
        """One step per round; the residual is the gain per row, 0 where no step goes up."""
        while True:
            before = self.descent.value
            moved = self.descent.step()
            if not moved and self.descent.residual > self.flat:
                self.failure = (
                    f"no step increases the log-likelihood, although its gradient per row is "
                    f"{self.descent.residual:.2g}: the parameters are at a limit of what can be "
                    "computed"
                )
                return
            self.iterations += 1
            gain = max(before - self.descent.value, 0.0) if moved else 0.0
            yield Step(self.iterations, gain, -self.descent.value * self.rows)


class SeriesAscent(Generic[Model]):
    """EM until it gains less than `near` per row in an iteration, then L-BFGS in `coordinates`
    about the model that it reached.

    With `near` 0 there is EM alone, with infinity L-BFGS from the start. The residual is what an
    iteration may still gain per row: the larger of the gain of the last ten iterations and, along
    the gradient, the gain that the quadratic model of L-BFGS predicts.
    """

    varying = ("carried/", "descent/")

    def __init__(
        self,
        em: ExpectationMaximisation[Model],
        coordinates: Callable[[Model, Any], Coordinates[Model]],
        near: float,
        tol: float,
    ) -> None:
        self.em, self.make, self.near, self.tol = em, coordinates, near, tol
        self.window = np.full(_WINDOW, -math.inf)  # objectives of the last iterations
        self.iterations, self.failure = 0, ""
        self.coordinates: Coordinates[Model] | None = None
        self.descent: Lbfgs | None = None

    @property
    def model(self) -> Model:
        """The best model so far."""
        if self.coordinates is None or self.descent is None:
            return self.em.model
        return self.coordinates.model(self.descent.point)

    def state(self) -> State:
        """Everything that the next step depends on."""
        now = {
            **self.em.state(),
            "window": self.window.copy(),
            "iterations": np.array(self.iterations),
        }
        if self.descent is not None:
            now |= prefixed(self.descent.state, "descent")
        return now

    def restore(self, state: State) -> None:
        """Go on where the state was taken."""
        self.em.restore(state)
        self.window = np.array(state["window"], dtype=np.float64)
        self.iterations = int(state["iterations"])
        descent = part(state, "descent")
        if descent:
            self._turn(descent)

    def steps(self) -> Iterator[Step]:
        """One step per round; they end where the objective cannot be raised or computed."""
        if self.descent is None:
            for step in self.em.steps():
                self.iterations = step.iterations
                yield Step(step.iterations, self._gain(step.objective), step.objective)
                if step.residual < self.near or math.isinf(self.near):
                    break
            else:
                self.failure = self.em.failure
                return
            self._turn()
        yield from self._climb()

    def _climb(self) -> Iterator[Step]:
        descent = self.descent
        assert descent is not None
        left = math.inf
        while True:
            moved = descent.step()
            if moved:
                left = -0.5 * float(descent.memory.direction(descent.gradient) @ descent.gradient)
            value = -descent.value * self.em.rows
            if not moved and left > self.tol:
                self.failure = (
                    f"no step increases the log-likelihood, although its gradient promises "
                    f"{left:.2g} per row: the parameters are at a limit of what can be computed"
                )
                return
            self.iterations += 1
            gain = self._gain(value)
            yield Step(self.iterations, max(gain, left) if moved else left, value)

    def _gain(self, objective: float) -> float:
        """Gain per row since ten iterations ago."""
        gain = (objective - float(self.window[0])) / self.em.rows
        self.window = np.append(self.window[1:], objective)
        return abs(gain)

    def _turn(self, descent: State | None = None) -> None:
        """Begin L-BFGS about the model of EM."""
        em = self.em
        coordinates = self.make(em.model, em.statistics())

        def objective(vector: Array) -> tuple[float, Array]:
            try:
                model = coordinates.model(vector)
                value, statistics = em.expectation(model)
                slope = coordinates.gradient(model, statistics, vector)
            except (ValueError, np.linalg.LinAlgError):  # outside the domain: it steps back
                return math.inf, np.zeros_like(vector)
            return -value / em.rows, -slope / em.rows

        begin = coordinates.vector(em.model)
        self.coordinates = coordinates
        self.descent = Lbfgs(objective, begin, memory=_MEMORY, state=descent)
