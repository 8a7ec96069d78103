"""Expectation and maximisation in turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from numpy.typing import NDArray

from kikuchi.core.run import Step
from kikuchi.engines.loops.state import Held, Part, State

Model = TypeVar("Model")
Expectation = Callable[[Model], tuple[float, Any]]
Maximisation = Callable[[Model, Any], Model]


@dataclass(eq=False, init=False)
class ExpectationMaximisation(State, Generic[Model]):
    """Expectation and maximisation in turn: the driver of `iterate`, and its state.

    `expectation` returns the objective (the log-likelihood, or a bound on it) and the statistics of
    a model, `maximisation` the model of statistics. The step that is reported is that of the model
    in hand, whose objective is known.

    Attributes
    ----------
    model
        The model so far.
    statistics
        Those of the model; unless they are given as a part that is saved, they are found again.
    beside
        What expectations and maximisations depend on beside the model, such as a random generator.
    objective
        That of the model.
    done
        The number of iterations.

    >>> import numpy as np
    >>> def read(arrays):
    ...     return float(arrays["level"])
    >>> em = ExpectationMaximisation(
    ...     Held(8.0, read, lambda level: {"level": np.array(level)}),
    ...     lambda level: (-level, level), lambda level, statistics: statistics / 2,
    ... )
    >>> [em.advance().objective for _ in range(3)]
    [-8.0, -4.0, -2.0]
    """

    varying: ClassVar[tuple[str, ...]] = ("beside/",)

    model: Held[Model]
    statistics: Held[Any]
    beside: Part
    objective: float
    done: int

    def __init__(
        self,
        model: Held[Model],
        expectation: Expectation[Model],
        maximisation: Maximisation[Model],
        *,
        statistics: Held[Any] | None = None,
        beside: Part | None = None,
        rows: float = 1.0,
    ) -> None:
        self.model, self.beside = model, beside or State()
        self.statistics = statistics or Held(None, dict, lambda found: {})
        self.expectation, self.maximisation, self.rows = expectation, maximisation, rows
        self.objective, self.done = -math.inf, 0

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take the values that `to_arrays` described."""
        super().load(arrays)
        self.expect()

    @property
    def now(self) -> Model:
        """The model in hand."""
        return self.model.now

    def expect(self) -> Any:
        """Return the statistics of the model in hand."""
        if self.statistics.value is None:
            self.statistics.value = self.expectation(self.now)[1]
        return self.statistics.value

    def begin(self, model: Model) -> Step:
        """Report on the model to begin with, before the first iteration."""
        self.model.value = model
        self.objective, self.statistics.value = self.expectation(model)
        return Step(0, math.inf, self.objective)

    def step(self) -> Step | None:
        """Take one iteration, for `iterate`."""
        return self.advance()

    def advance(self) -> Step:
        """Take one iteration: both parts, or without statistics expectation alone."""
        model = self.now
        if self.statistics.value is not None:
            model = self.maximisation(model, self.statistics.value)
        objective, statistics = self.expectation(model)
        self._check(objective)
        change = self._change(model, objective, statistics)
        self.model.value, self.statistics.value, self.objective = model, statistics, objective
        self.done += 1
        return Step(self.done, change, objective)

    def _check(self, objective: float) -> None:
        """Refuse the next model by an exception, for its objective."""

    def _change(self, model: Model, objective: float, statistics: Any) -> float:
        """The residual of the next model: the change of the objective per row."""
        return abs(objective - self.objective) / self.rows
