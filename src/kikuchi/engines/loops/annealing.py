"""Batches of annealed chains in both directions, until the bracket on log Z is narrow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget
from kikuchi.core.errors import BudgetError
from kikuchi.core.progress import silent
from kikuchi.core.run import Run, Step
from kikuchi.core.trace import Trace
from kikuchi.engines.loops.iterate import iterate
from kikuchi.engines.loops.state import Iterations
from kikuchi.engines.sampling.annealing import LogZ


class AnnealedBatches(ABC):
    """Log weights of all batches so far; a family leads the chains.

    Attributes
    ----------
    name
        Of the work, in errors.
    forward, backward
        Log weights of each batch, from the base to the model and back.
    run
        The clock and the trace.
    """

    name: ClassVar[str] = "ais"

    def __init__(self, run: Run | None) -> None:
        self.run = run or Run(Budget().start(), silent, Trace(objective_name="log Z"))
        self.forward: list[Array] = []
        self.backward: list[Array] = []

    def batches(self, width: float, most: int) -> LogZ:
        """Run batches until the bracket is at most `width` wide, at most so many."""
        iterate(lambda _: self._batch(), Iterations(), self.run, tol=width, limit=most)
        if self.run.stopped == "diverged":  # the last batch was cut short by the clock
            self.run.stopped = "seconds"
        if not self.forward and self.run.stopped == "interrupted":
            raise KeyboardInterrupt
        if not self.forward:
            raise BudgetError(
                f"{self.name}: the time was over before one batch of chains was; use fewer betas "
                "or chains, or more seconds"
            )
        return self.bracket()

    def _batch(self) -> Step | None:
        """Lead one batch in both directions; None if the time ended before."""
        both = self.lead()
        if both is None:
            return None
        forward, backward = both
        self.forward.append(forward)
        self.backward.append(backward)
        found = self.bracket()
        return Step(
            len(self.forward),
            found.width,
            objective=found.estimate,
            lower=found.lower,
            upper=found.upper,
        )

    @property
    def weights(self) -> tuple[Array, Array]:
        """Those of all batches."""
        return np.concatenate(self.forward), np.concatenate(self.backward)

    @abstractmethod
    def lead(self) -> tuple[Array, Array] | None:
        """Log weights of a batch in both directions (the second may be empty); None if the time
        ended before.
        """

    @abstractmethod
    def bracket(self) -> LogZ:
        """The bracket of all finished batches."""
