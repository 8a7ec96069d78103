"""Removing hidden units and inputs of a fitted network, tested by the bound.

A unit (or an input) is removed on trial together with its weights and their precisions, the bound
is climbed again, and the removal stays if the bound has risen. Candidates come in the order of
their effective number of parameters, the sum of 1 - <alpha> var(w), which is 0 where the posterior
of the weights is their prior.

Reference: LAW-L11, LAW-T21.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

from kikuchi.bayesnn.bound import weight_precisions
from kikuchi.bayesnn.fitting import RegressionProblem, final_bound
from kikuchi.bayesnn.network import Indices, precisions
from kikuchi.bayesnn.posteriors import Weights
from kikuchi.core.arrays import Array
from kikuchi.core.run import Step

_TRIAL_STEPS = 50
_AGAIN = 10  # steps over which the rise of the bound is judged


@dataclass(frozen=True)
class Removal:
    """One trial: what was removed, the bound before and after, and whether it stayed removed."""

    what: str
    index: int
    before: float
    after: float

    @property
    def kept(self) -> bool:
        """Whether the removal raised the bound."""
        return self.after > self.before


@dataclass
class Pruning:
    """Greedy removal of units and inputs from a posterior."""

    problem: RegressionProblem
    flat: Array
    weights: Weights
    tol: float
    trials: list[Removal] = field(default_factory=list)

    def effective_parameters(self) -> Array:
        """1 - <alpha> var(w) of each weight; 0 for weights that were removed."""
        found = final_bound(self.problem, self.flat, self.weights)
        family, network = self.problem.posterior, self.problem.posterior.network
        q = family.read(jnp.asarray(self.flat[: family.size]), self.weights)
        alpha = weight_precisions(precisions(network, self.problem.prior), found.alpha.mean, 1.0)
        determined = 1.0 - alpha * family.marginals(q)[1]
        return np.asarray(determined * self.weights.kept, dtype=np.float64)

    def steps(self) -> Iterator[Step]:
        """One trial after the other, until neither a unit nor an input can go."""
        network = self.problem.posterior.network
        bound = float(final_bound(self.problem, self.flat, self.weights).value)
        going = {"unit": network.units, "input": network.inputs}
        while going:
            for what, owners in list(going.items()):
                index = self._candidate(owners)
                removal = None if index is None else self._try(what, owners, index, bound)
                if removal is None or not removal.kept:
                    del going[what]
                if removal is not None:
                    self.trials.append(removal)
                    bound = max(bound, removal.after)
                    yield Step(len(self.trials), objective=bound)

    def _candidate(self, owners: Indices) -> int | None:
        """The unit or input with the fewest effective parameters; None if only one is left."""
        kept = np.asarray(self.weights.kept) > 0
        left = np.unique(owners[kept & (owners >= 0)])
        if len(left) < 2:
            return None
        effective = self.effective_parameters()
        return int(left[np.argmin([effective[owners == n].sum() for n in left])])

    def _try(self, what: str, owners: Indices, index: int, before: float) -> Removal:
        kept = jnp.where(jnp.asarray(owners == index), 0.0, self.weights.kept)
        weights = Weights(self.weights.scale, kept)
        climber = self.problem.climber(self.problem.posterior, self.flat, weights)
        last: list[float] = [climber.value]
        for _ in range(_TRIAL_STEPS):
            if not climber.step():
                break
            last.append(climber.value)
            if len(last) > _AGAIN and last[-1 - _AGAIN] - last[-1] <= self.tol:
                break
        removal = Removal(what, index, before, -climber.value)
        if removal.kept:
            self.flat, self.weights = climber.point, weights
        return removal

    def path(self) -> list[dict[str, Any]]:
        """The trials as plain data."""
        return [
            {"what": t.what, "index": t.index, "before": t.before, "after": t.after}
            for t in self.trials
        ]
