"""Removing hidden units, inputs and single weights of a fitted network, tested by the bound.

What is removed on trial goes with its weights and their precisions, the bound is raised again, and
the removal stays if the bound has risen. Candidates come in the order of their effective number of
parameters, the sum of 1 - <alpha> var(w), which is 0 where the posterior of the weights is their
prior. Of single weights whole shares are tried at once, and half of a share that may not go.

Reference: LAW-L11, LAW-T21.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kikuchi.bayesnn.bound import EvidenceBound
from kikuchi.bayesnn.fitting import NetworkProblem, final_bound
from kikuchi.bayesnn.network import Indices
from kikuchi.bayesnn.posteriors import WeightPosterior, Weights
from kikuchi.core.arrays import Array
from kikuchi.core.run import Step

_TRIAL_STEPS = 50
_AGAIN = 10  # steps over which the rise of the bound is judged


@partial(jax.jit, static_argnames=("posterior",))
def _variances(posterior: WeightPosterior, flat: Any, weights: Weights) -> Any:
    """Variance of each weight; one program in place of one for each operation."""
    return posterior.marginals(posterior.read(flat[: posterior.size], weights))[1]


@dataclass(frozen=True)
class Removal:
    """One trial: what was removed, the bound before and after, and whether it stayed removed."""

    what: str
    index: int
    count: int
    before: float
    after: float

    @property
    def kept(self) -> bool:
        """Whether the removal raised the bound."""
        return self.after > self.before


@dataclass
class Pruning:
    """Greedy removal of units and inputs from a posterior."""

    problem: NetworkProblem
    flat: Array
    weights: Weights
    tol: float
    single: bool = False
    trials: list[Removal] = field(default_factory=list)
    going: list[str] | None = None  # kinds of which some may go, the next first
    share: int = 0  # of single weights, tried next
    bound: float = -np.inf

    def effective_parameters(self, found: EvidenceBound | None = None) -> Array:
        """1 - <alpha> var(w) of each weight; 0 for weights that were removed."""
        if found is None:
            found = final_bound(self.problem, self.flat, self.weights)
        variances = _variances(self.problem.posterior, jnp.asarray(self.flat), self.weights)
        alpha, _ = self.problem.precisions_of(found)
        determined = 1.0 - alpha * np.asarray(variances)
        return np.asarray(determined * np.asarray(self.weights.kept), dtype=np.float64)

    def owners(self) -> dict[str, Indices]:
        """The hidden unit and the input of each weight (-1: none); inputs of all networks belong
        together.
        """
        network, count = self.problem.posterior.network, self.problem.posterior.n_networks
        shift = np.arange(count).repeat(network.n_weights) * network.n_hidden
        units = np.tile(network.units, count)
        return {
            "unit": np.where(units >= 0, units + shift, -1),
            "input": np.tile(network.inputs, count),
        }

    def step(self) -> Step | None:
        """Try a removal: of the units and inputs in turn until neither can go, then of weights;
        None where nothing is left to try.
        """
        if self.going is None:
            self.bound = float(final_bound(self.problem, self.flat, self.weights).value)
            self.going = list(self.owners())
            self.share = self.weights.kept.shape[0] // 4 if self.single else 0
        while self.going:
            what = self.going.pop(0)
            owners = self.owners()[what]
            index = self._candidate(owners)
            if index is None:
                continue
            if self._try(what, owners == index, index, self.bound).kept:
                self.going.append(what)
            return self._report()
        if not self.share:
            return None
        order = self._weights_by_effect()
        gone = np.zeros(self.weights.kept.shape[0], dtype=bool)
        gone[order[: self.share]] = True
        removal = self._try("weight", gone, int(order[0]), self.bound)
        left = len(self._weights_by_effect())
        self.share = min(self.share, left // 2) if removal.kept else self.share // 2
        return self._report()

    def _report(self) -> Step:
        self.bound = max(self.bound, self.trials[-1].after)
        return Step(len(self.trials), objective=self.bound)

    def _weights_by_effect(self) -> Indices:
        """Weights that are left, those with the fewest effective parameters first; no biases of the
        output, without which nothing has a level.
        """
        network, count = self.problem.posterior.network, self.problem.posterior.n_networks
        constant = np.tile(network.sources == network.sources.max(), count)
        left = (np.asarray(self.weights.kept) > 0) & ~constant
        return np.flatnonzero(left)[np.argsort(self.effective_parameters()[left])]

    def _candidate(self, owners: Indices) -> int | None:
        """The unit or input with the fewest effective parameters; None if only one is left."""
        kept = np.asarray(self.weights.kept) > 0
        left = np.unique(owners[kept & (owners >= 0)])
        if len(left) < 2:
            return None
        effective = self.effective_parameters()
        return int(left[np.argmin([effective[owners == n].sum() for n in left])])

    def _try(self, what: str, gone: Any, index: int, before: float) -> Removal:
        kept = jnp.where(jnp.asarray(gone), 0.0, self.weights.kept)
        count = int(np.sum(gone & (np.asarray(self.weights.kept) > 0)))
        weights = Weights(self.weights.scale, kept)
        ascent = self.problem.ascent(self.problem.posterior, self.flat, weights)
        last: list[float] = [ascent.value]
        for _ in range(_TRIAL_STEPS):
            if not ascent.step():
                break
            last.append(ascent.value)
            if len(last) > _AGAIN and last[-1 - _AGAIN] - last[-1] <= self.tol:
                break
        removal = Removal(what, index, count, before, -ascent.value)
        self.trials.append(removal)
        if removal.kept:
            self.flat, self.weights = ascent.point, weights
        return removal

    def path(self) -> list[dict[str, Any]]:
        """The trials as plain data; `weights` is how many weights went, `index` the first."""
        return [
            {
                "what": t.what, "index": t.index, "weights": t.count,
                "before": t.before, "after": t.after,
            }
            for t in self.trials
        ]  # fmt: skip
