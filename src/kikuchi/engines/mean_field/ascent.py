"""Ascent of a lower bound from several starts: what all kinds of mean field share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kikuchi.core import seeds
from kikuchi.core.arrays import Array, Ints, Mask
from kikuchi.engines.loops.iterate import iterate
from kikuchi.engines.loops.state import Iterations
from kikuchi.engines.run import MethodRun, Step


@dataclass
class LocalOptimum:
    """Where the ascent from one start ended: beliefs (variables or cliques) and their bound."""

    bound: float
    beliefs: Array
    converged: bool
    residual: float


class MultiStartAscent:
    """Sweeps from several starts under one budget; `done` counts them all."""

    def __init__(self, seed: int, run: MethodRun) -> None:
        self.run = run
        self.rng = seeds.generator(seed)
        self.done = 0

    @property
    def must_end(self) -> bool:
        """Whether the budget is used up or the user has interrupted."""
        used_up = self.run.clock.iterations(self.done + 1) <= self.done
        return self.run.stopped in ("seconds", "interrupted") or used_up or self.run.clock.expired

    def take(self, step: Callable[[Iterations], Step | None], tol: float, limit: int) -> bool:
        """Take steps until they converge or must end; return whether they converged."""
        ended = iterate(step, Iterations(self.done), self.run, tol=tol, limit=limit)
        self.done = max(self.done, ended.iterations)
        return ended.converged

    def record_stop(self, converged: bool) -> None:
        """Record that the iterations ended the run, unless time or the user did."""
        if self.run.stopped not in ("seconds", "interrupted"):
            self.run.stopped = "converged" if converged else "iterations"


def normalised(masses: Array, offsets: Ints, fallback: Mask | None = None) -> Array:
    """Masses divided by their sum in each variable; where that is 0, equal on `fallback`."""
    cards = np.diff(offsets)
    sums = np.repeat(np.add.reduceat(masses, offsets[:-1]), cards)
    if fallback is not None and np.any(sums == 0.0):
        masses = np.where(sums == 0.0, fallback, masses)
        sums = np.repeat(np.add.reduceat(masses, offsets[:-1]), cards)
    return np.asarray(masses / sums)
