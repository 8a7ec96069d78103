"""`Rule`: how a gradient is estimated from a batch, behind one interface; `LossRule` for JAX.

A rule answers with the direction in which the parameters should move: data statistics minus those
of a negative phase, or minus the gradient of a loss. The trainer knows nothing else about it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.budget import Clock
from kikuchi.core.errors import MethodError
from kikuchi.core.options import Configured
from kikuchi.training.model import Parameters, Trainable

Array = NDArray[Any]
Ints = NDArray[np.int64]
State = dict[str, Array]
"""What a rule keeps from batch to batch (chains, means of the joint), as plain arrays, so that a
checkpoint can hold it. Names that begin with "_" are workspace, which no checkpoint holds."""

UNCONVERGED = "unconverged_rows"
"""Name in a rule's state: how many rows had not converged when the limit of sweeps was reached."""

M = TypeVar("M", bound=Trainable)


@dataclass
class GradientEstimate:
    """Answer of a rule to one batch: the ascent direction of each array of parameters (means over
    the rows), and the rule's own objective per row if it has one (None otherwise). The arrays may
    be overwritten by the next call; the trainer constrains them to directions the model can take.
    """

    ascent: Parameters
    objective: float | None = None


@dataclass(frozen=True)
class BaseRule(Configured, ABC, kind="learner"):
    """What the trainer asks of every rule."""

    objective_name: ClassVar[str] = "objective"

    def score(self, model: Any, rows: Any) -> float:
        """How well the model fits rows that it did not learn from; larger is better.

        Early stopping compares these scores.
        """
        raise MethodError(
            f"learner {self.name} has no score of its own for validation rows; give the trainer "
            "one with score=, or leave out validation"
        )

    def stationarity(self, gradient: Array, values: Array) -> Array:
        """What must vanish at convergence: a mean gradient at some parameters, less whatever the
        rule's own projection takes back. Rules without one give the gradient itself.
        """
        return gradient

    def warnings(self, state: State) -> list[str]:
        """What a reader of the result must know."""
        return []

    def measures(self, parameters: Any, state: State) -> dict[str, float]:
        """Further quantities that the trace records after each epoch, by name."""
        return {}


@dataclass(frozen=True)
class Rule(BaseRule, Generic[M]):
    """Base of the rules that estimate gradients of NumPy parameters."""

    takes_sparse: ClassVar[bool] = False  # whether `begin` and `solve` read sparse data
    carries: ClassVar[bool] = False  # whether the state suits other data as well

    def begin(self, model: M, data: Any, rng: np.random.Generator) -> State:
        """State before the first batch; refuses models that the rule cannot learn."""
        return {}

    def solve(self, model: M, data: Any) -> Parameters | None:
        """The parameters themselves, for rules that find them in one go; None for all others."""
        return None

    def doubts(self, model: M, data: Any, solution: Parameters) -> list[str]:
        """Warnings where what `solve` answered is no solution; it then counts as unconverged."""
        return []

    @abstractmethod
    def gradient(
        self, model: M, batch: Any, rows: Ints, state: State, rng: np.random.Generator
    ) -> GradientEstimate:
        """Direction for one batch; `rows` are its row numbers in the data, `state` may change.

        `batch` has one row per case, in the model's `batch_dtype`.
        """

    def gradient_within(
        self, model: M, batch: Any, rows: Ints, state: State, rng: np.random.Generator, clock: Clock
    ) -> GradientEstimate | None:
        """As `gradient`; None, with the state as it was, if the time ended before the direction was
        known. Rules that need long for one batch override it.
        """
        return self.gradient(model, batch, rows, state, rng)

    def warnings(self, state: State) -> list[str]:
        """Rows whose fixed-point iterations were cut short."""
        unconverged = int(np.sum(state.get(UNCONVERGED, 0)))
        if not unconverged:
            return []
        return [
            f"the means of {unconverged} rows (over all epochs) had not converged at the limit of "
            "sweeps; raise max_iter or damping, or lower learning_rate"
        ]

    def project(self, model: M, rate: float) -> None:
        """Move the parameters to the nearest ones that the rule allows, after an update at this
        learning rate (proximal steps shrink by it). Most rules allow all.
        """


def count_unconverged(state: State, converged: bool, rows: int) -> None:
    """Add rows whose fixed-point iteration was cut short to the count in the state."""
    if not converged:
        state[UNCONVERGED] = state.get(UNCONVERGED, np.zeros(1, dtype=np.int64)) + rows


@dataclass(frozen=True)
class LossRule(BaseRule):
    """Minimise any `loss(parameters, batch, key)` that JAX can differentiate.

    `parameters` is the model's pytree, `batch` the rows of the data (a tuple if the data are one),
    `key` a random key of this update; the answer is the mean loss of the rows, a number. Chunks of
    updates run in one compiled loop. `project`, if given, maps the parameters after each update to
    those that are allowed. A loss with memory (chains, a step size) has `begin(parameters, data,
    key)`, which gives the first memory, arrays by name; it then is `loss(parameters, batch, key,
    memory)` and answers the mean loss and the next memory, which checkpoints hold. Give functions
    of a module or frozen dataclasses, not new functions per call: the compiled loop is kept for
    each combination of them.

    >>> from kikuchi.training.model import PytreeModel
    >>> from kikuchi.training.trainer import train
    >>> rule = LossRule(lambda p, batch, key: ((batch - p["mean"]) ** 2).mean())
    >>> rows = np.array([[1.0], [3.0]], dtype=np.float32)
    >>> done = train(PytreeModel({"mean": np.zeros(1, np.float32)}), rows, rule, epochs=100, seed=0)
    >>> round(float(done.model.parameters["mean"][0]), 3)
    2.0
    """

    name: ClassVar[str] = "loss"
    summary: ClassVar[str] = "gradient of a loss that JAX differentiates"
    objective_name: ClassVar[str] = "loss per row"

    loss: Callable[..., Any]
    project: Callable[[Any], Any] | None = None
    begin: Callable[[Any, Any, Any], Any] | None = None

    def __post_init__(self) -> None:
        """Functions have no range to be checked."""

    def __repr__(self) -> str:
        """The names of the functions: what a checkpoint compares."""
        project = "" if self.project is None else f", project={function_name(self.project)}"
        return f"LossRule({function_name(self.loss)}{project})"

    def score(self, model: Any, rows: Any) -> float:
        """Minus the loss of these rows, with a fixed key; a loss with memory has no such score."""
        from kikuchi.training.losses import loss_of

        if self.begin is not None:
            return super().score(model, rows)
        return -loss_of(self.loss, model.parameters, rows)


def function_name(function: Any) -> str:
    """Module and name of a function, or the fields of a frozen dataclass: what a checkpoint
    compares.
    """
    if is_dataclass(function) and not isinstance(function, type):
        return repr(function)
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"
