"""How far the chains of `sample` can be trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.diagnostics import MIN_DRAWS, split_rhat

Array = NDArray[Any]

_DIRECTIONS, _RECORDED = 4, 50  # projections, and steps at which they are recorded
_MIXED = 1.1  # largest R-hat of chains that agree


@dataclass(frozen=True)
class SamplingReport:
    """How the rows of `sample` were drawn.

    Attributes
    ----------
    start : where the chains began: "persistent chains" of the training, or "training rows".
    chains, steps : number of chains, one for each row, and Gibbs steps of each.
    r_hat : the largest split R-hat, over the second half of the steps, of the sum of the visible
        units and of their projections on the first principal directions of the training rows;
        infinite if a chain never moves along a direction in which the chains differ. None for one
        chain or too few steps.

    >>> SamplingReport("training rows", 200, 1000, 1.52)
    SamplingReport(200 chains from training rows, 1000 steps, R-hat 1.52: not mixed)
    """

    start: str
    chains: int
    steps: int
    r_hat: float | None

    @property
    def mixed(self) -> bool | None:
        """Whether R-hat is below 1.1, so that each chain saw what the others did; None: unknown."""
        return None if self.r_hat is None else self.r_hat < _MIXED

    def __repr__(self) -> str:
        verdict = {None: "R-hat unknown", True: "mixed", False: "not mixed"}[self.mixed]
        told = verdict if self.r_hat is None else f"R-hat {self.r_hat:.3g}: {verdict}"
        return f"SamplingReport({self.chains} chains from {self.start}, {self.steps} steps, {told})"


class ChainRecord:
    """Projections of the states of chains over the second half of `steps` steps."""

    def __init__(self, rows: Array, steps: int) -> None:
        centred = np.asarray(rows, dtype=np.float64) - np.mean(rows, axis=0, dtype=np.float64)
        axes = np.linalg.svd(centred, full_matrices=False)[2][:_DIRECTIONS]
        self.directions = np.vstack([np.ones(rows.shape[1]), axes]).T
        self.first = steps // 2
        self.every = max((steps - self.first) // _RECORDED, 1)
        self.seen: list[Array] = []

    def add(self, step: int, visible: Array) -> None:
        """Note where the chains are after a step."""
        if step >= self.first and (step - self.first) % self.every == 0:
            self.seen.append(visible @ self.directions)

    def r_hat(self) -> float | None:
        """The largest split R-hat of the projections."""
        if len(self.seen) < MIN_DRAWS or len(self.seen[0]) < 2:
            return None
        draws = np.stack(self.seen, axis=1)  # chains, draws, directions
        return float(np.max(split_rhat(draws)))
