"""Learners that move networks and log-tables in turn: what those of `neural` share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array
from kikuchi.core.options import option
from kikuchi.core.run import Step, StepAborted
from kikuchi.engines.loops.iterate import iterate
from kikuchi.engines.loops.state import State
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.learner import FitRun, Learned, Learner
from kikuchi.learning.ties import Parameters
from kikuchi.neural.region_energy import AdamVector

UNWATCHED = 10
"""Steps on a network between two checks of the clock."""


@dataclass(frozen=True)
class TurnLearner(Learner):
    """Options of the steps on the log-tables, and the loop of turns."""

    learning_rate: float = option(0.02, "step size of Adam on the log-tables", above=0)
    decay: float = option(0.0, "that of turn t is divided by 1 + decay * t", low=0)
    l2: float = option(0.0, "penalty on the squares of log-weights (half of their sum)", low=0)
    ties: str | None = option(None, "factors that share a table, such as 0-3;4-7, or shape")
    tol: float = option(
        1e-3, "stop when no slope of tables and networks is larger than this", low=0
    )
    max_iter: int = option(300, "maximum number of alternations", low=1)

    def _in_turns(self, turns: Turns, run: FitRun) -> Learned:
        ended = iterate(
            Turns.turn,
            turns,
            run,
            tol=self.tol,
            limit=self.max_iter,
            store=run.store,
        )
        return Learned(turns.tables, turns.objective, ended.converged, ended.iterations)


@dataclass(eq=False, init=False)
class Turns(State, ABC):
    """The state of a fit: theta under Adam, the objective, and how many turns are done."""

    theta: AdamVector
    objective: float
    done: int

    def __init__(self, learner: Any, graph: FactorGraph, run: FitRun) -> None:
        self.learner, self.clock = learner, run.clock
        self.parameters = Parameters(graph, learner.ties)
        self.theta = AdamVector(self.parameters.start.copy(), learner.learning_rate)
        self.objective = np.nan
        self.done = 0
        self.measured = False  # the slope of the present tables

    @property
    def tables(self) -> Array:
        """The present log-tables."""
        return self.parameters.tables(self.theta.values)

    @property
    def penalty(self) -> float:
        """The penalty on the squares of the log-weights."""
        return 0.5 * float(self.learner.l2) * float(self.theta.values @ self.theta.values)

    def slow_down(self) -> None:
        """The step size of this turn."""
        self.theta.rate = self.learner.learning_rate / (1.0 + self.learner.decay * (self.done - 1))

    def require_time(self) -> None:
        """End the fit within a turn whose time is up; its tables are those of the turn before."""
        if self.clock.expired:
            raise StepAborted("seconds")

    def turn(self) -> Step:
        """Steps on the tables, where a turn before has measured their slope; then on the networks.

        The tables are updated only when another alternation begins, so that those of the last one
        remain.
        """
        if self.measured:
            self.move()
            self.measured = False
        self.follow()
        self.done += 1
        self.measured = True
        return self.report()

    @abstractmethod
    def follow(self) -> None:
        """Steps on the networks at the present tables."""

    @abstractmethod
    def report(self) -> Step:
        """The objective, and how far tables and networks are from stationary."""

    @abstractmethod
    def move(self) -> None:
        """Steps on the tables, with the networks held."""

    @abstractmethod
    def measure(self) -> None:
        """Find the slope of the tables, and what else a report finds."""

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a saved state: the turn that was reported still has to move the tables."""
        super().load(arrays)
        self.measure()
        self.measured = True
