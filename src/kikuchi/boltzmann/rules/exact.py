"""Maximum likelihood with the exact negative phase, for small machines.

Reference: WH-L1.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kikuchi.boltzmann.exact import ascent, clamped, exact
from kikuchi.boltzmann.machine import Machine
from kikuchi.training.rule import GradientEstimate, Ints, Rule, State

Array = NDArray[Any]


class ExactLikelihood(Rule[Machine]):
    """Maximum likelihood with log Z by enumeration.

    Restricted machines are summed over the smaller side, others over all units; machines with too
    many states are refused before training begins.

    >>> from kikuchi.training.trainer import train
    >>> rows = np.array([[1.0, 1.0], [0.0, 0.0]])
    >>> start = Machine.random(2, 0, masks={"visible_weights": np.ones((2, 2))}, random_state=0)
    >>> done = train(start, rows, "exact", optimiser="sgd:learning_rate=1", epochs=200, seed=0)
    >>> bool(done.trace.objective[-1] > -0.75)  # the best is -log 2
    True
    """

    name: ClassVar[str] = "exact"
    objective_name: ClassVar[str] = "log-likelihood per row"
    takes_sparse: ClassVar[bool] = True

    def begin(self, machine: Machine, data: Array, rng: np.random.Generator) -> State:
        """Refuses machines that are too large."""
        exact(machine)
        return {}

    def score(self, model: Machine, rows: Array) -> float:
        """Log-likelihood per row."""
        return float(np.mean(clamped(model, rows).log_weights)) - exact(model).log_z

    def gradient(
        self, machine: Machine, batch: Array, rows: Ints, state: State, rng: np.random.Generator
    ) -> GradientEstimate:
        """Posterior statistics of the batch minus those of the model."""
        positive, free = clamped(machine, batch), exact(machine)
        objective = float(np.mean(positive.log_weights)) - free.log_z
        return GradientEstimate(ascent(machine, positive.statistics, free.statistics), objective)
