"""`Rule`: the interface of gradient estimates from a batch; `LossRule` for losses in JAX.

A rule returns the direction in which the parameters should move: data statistics minus those of a
negative phase, or minus the gradient of a loss. The trainer uses nothing else of it.
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
"""The state of a rule between batches (chains, means of the joint), as plain arrays for a
checkpoint. Names that begin with "_" are workspace, which is not saved.
"""

UNCONVERGED = "unconverged_rows"
"""Name in the state of a rule for the number of rows that had not converged within the limit of
sweeps.
"""

M = TypeVar("M", bound=Trainable)


@dataclass
class GradientEstimate:
    """Result of a rule for one batch: the ascent direction of each array of parameters (means over
    the rows), and the objective of the rule per row, or None. The arrays may be overwritten by the
    next call; the trainer projects them onto directions that the model allows.
    """

    ascent: Parameters
    objective: float | None = None


@dataclass(frozen=True)
class BaseRule(Configured, ABC, kind="learner"):
    """Base class of all rules: the interface used by the trainer."""

    objective_name: ClassVar[str] = "objective"

    def score(self, model: Any, rows: Any) -> float:
        """Return the fit of the model to rows that are not training rows; larger is better.

        Early stopping compares these scores.
        """
        raise MethodError(
            f"learner {self.name} has no score for validation rows; give the trainer one with "
            f"score=, or omit validation"
        )

    def stationarity(self, gradient: Array, values: Array) -> Array:
        """Return the vector that vanishes at convergence: a mean gradient at some parameters, minus
        what the projection of the rule reverses. Rules without a projection return the gradient
        itself.
        """
        return gradient

    def warnings(self, state: State) -> list[str]:
        """Return warnings about the result."""
        return []

    def measures(self, parameters: Any, state: State) -> dict[str, float]:
        """Return further quantities that the trace records after each epoch, by name."""
        return {}


@dataclass(frozen=True)
class Rule(BaseRule, Generic[M]):
    """Base class of the rules that estimate gradients of NumPy parameters."""

    takes_sparse: ClassVar[bool] = False  # whether `begin` and `solve` support sparse data
    carries: ClassVar[bool] = False  # whether the state is also valid for other data

    def begin(self, model: M, data: Any, rng: np.random.Generator) -> State:
        """Return the state before the first batch; raise an error for models that the rule does not
        support.
        """
        return {}

    def solve(self, model: M, data: Any) -> Parameters | None:
        """Return the parameters, for rules that compute them in one step; None for all others."""
        return None

    def doubts(self, model: M, data: Any, solution: Parameters) -> list[str]:
        """Return warnings if the result of `solve` is not a solution; it then counts as not
        converged.
        """
        return []

    @abstractmethod
    def gradient(
        self, model: M, batch: Any, rows: Ints, state: State, rng: np.random.Generator
    ) -> GradientEstimate:
        """Return the direction for one batch; `rows` are its row numbers in the data, `state` may
        change.

        `batch` has one row per case, in the model's `batch_dtype`.
        """

    def gradient_within(
        self, model: M, batch: Any, rows: Ints, state: State, rng: np.random.Generator, clock: Clock
    ) -> GradientEstimate | None:
        """Return `gradient`, or None with an unchanged state if the time ended first. Rules with
        slow batches override it.
        """
        return self.gradient(model, batch, rows, state, rng)

    def warnings(self, state: State) -> list[str]:
        """Return a warning about rows whose fixed-point iterations did not converge."""
        unconverged = int(np.sum(state.get(UNCONVERGED, 0)))
        if not unconverged:
            return []
        return [
            f"the means of {unconverged} rows (over all epochs) had not converged at the limit of "
            "sweeps; raise max_iter or damping, or lower learning_rate"
        ]

    def project(self, model: M, rate: float) -> None:
        """Project the parameters onto the allowed ones, after an update at this learning rate
        (proximal steps shrink by it). Most rules allow all.
        """


def count_unconverged(state: State, converged: bool, rows: int) -> None:
    """Add rows whose fixed-point iteration did not converge to the count in the state."""
    if not converged:
        state[UNCONVERGED] = state.get(UNCONVERGED, np.zeros(1, dtype=np.int64)) + rows


@dataclass(frozen=True)
class LossRule(BaseRule):
    """Minimise any `loss(parameters, batch, key)` that JAX can differentiate.

    `parameters` is the model's pytree, `batch` the rows of the data (a tuple if the data are one),
    `key` a random key of this update; it returns the mean loss of the rows, a number. Chunks of
    updates run in one compiled loop. `project`, if given, maps the parameters after each update to
    the allowed ones. A loss with memory (chains, a step size) has `begin(parameters, data, key)`,
    which returns the initial memory as named arrays; then `loss(parameters, batch, key, memory)`
    returns the mean loss and the next memory, which checkpoints contain. Pass functions of a module
    or frozen dataclasses, not new functions per call: the compiled loop is cached for each
    combination of them.

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
        """Skip the check of ranges, which functions do not have."""

    def __repr__(self) -> str:
        """Return the names of the functions, which checkpoints compare."""
        project = "" if self.project is None else f", project={function_name(self.project)}"
        return f"LossRule({function_name(self.loss)}{project})"

    def score(self, model: Any, rows: Any) -> float:
        """Return minus the loss of these rows, with a fixed key; a loss with memory has no such
        score.
        """
        from kikuchi.training.losses import loss_of

        if self.begin is not None:
            return super().score(model, rows)
        return -loss_of(self.loss, model.parameters, rows)


def function_name(function: Any) -> str:
    """Return the module and name of a function, or the fields of a frozen dataclass, for comparison
    in checkpoints.
    """
    if is_dataclass(function) and not isinstance(function, type):
        return repr(function)
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"
