"""Learning of sigmoid networks: generalised EM on the bound of any posterior, and relevance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kikuchi.beliefnets.models import SigmoidNetwork
from kikuchi.beliefnets.posteriors.base import (
    PosteriorFit,
    UnitPosterior,
    parse_posterior,
    require_time,
)
from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Budget, Clock
from kikuchi.core.errors import BudgetError, MethodError
from kikuchi.core.options import option
from kikuchi.training.model import Parameters
from kikuchi.training.rule import GradientEstimate, Rule, State

_SHAPE, _RATE = 1e-2, 1.0  # of the gamma prior of precisions: weights of size 1 are not unusual
_SEEN = "seen"


@dataclass(frozen=True)
class BoundRule(Rule[SigmoidNetwork]):
    """Gradient of the bound at the posteriors of a batch, which go on from epoch to epoch.

    The total derivative of the bound equals the partial one at the optimum of the posterior; a few
    sweeps per update are a generalised E-step. With `ard` the weights that leave a hidden unit have
    a Gaussian prior of one precision, which has a gamma prior and is eliminated.

    Reference: LAW-L2.
    """

    name: ClassVar[str] = "bound"
    objective_name: ClassVar[str] = "bound per row"

    posterior: str = option("mean-field", "posterior of the hidden units")
    sweeps: int = option(20, "sweeps of the posterior for each update at most", low=1)
    ard: bool = option(False, "precision of the weights of each hidden unit")
    n_rows: int = option(1, "rows of the data", low=1)

    def _family(self) -> UnitPosterior:
        return parse_posterior(self.posterior).partial(self.sweeps)

    def begin(self, model: SigmoidNetwork, data: Any, rng: np.random.Generator) -> State:
        """No posteriors yet."""
        self._family().check(model)
        return {_SEEN: np.zeros(len(data), dtype=bool)}

    def gradient(
        self, model: SigmoidNetwork, batch: Any, rows: Ints, state: State, rng: np.random.Generator
    ) -> GradientEstimate:
        """Fit the posteriors of the batch, then the gradient of their bound."""
        return self._estimate(model, batch, rows, state, rng, Budget().start())

    def gradient_within(
        self, model: SigmoidNetwork, batch: Any, rows: Ints, state: State,
        rng: np.random.Generator, clock: Clock,
    ) -> GradientEstimate | None:  # fmt: skip
        """As `gradient`; None if the time ended while posteriors were fitted."""
        try:
            found = self._estimate(model, batch, rows, state, rng, clock)
        except BudgetError:
            if not clock.expired:
                raise
            return None
        return found

    def _estimate(
        self, model: SigmoidNetwork, batch: Any, rows: Ints, state: State,
        rng: np.random.Generator, clock: Clock,
    ) -> GradientEstimate:  # fmt: skip
        family = self._family()
        states = model.clamped(batch)
        start = None
        if np.all(state[_SEEN][rows]):
            start = {name: state[name][rows] for name in state if name not in _OTHERS}
        fit = family.fit(model, states, rng=rng, start=start, clock=clock)
        require_time(clock)  # posteriors that were cut short are not learnt from
        self._remember(fit, rows, state)
        found = family.gradient(model, states, fit)
        ascent = {name: array / len(rows) for name, array in found.items()}
        if self.ard:
            add_relevance_prior(model, ascent, self.n_rows)
        objective = float(np.mean(fit.bound)) if family.bounds else None
        return GradientEstimate(ascent, objective)

    def _remember(self, fit: PosteriorFit, rows: Ints, state: State) -> None:
        for name, array in fit.state.items():
            if name == "bounds":
                continue
            if name not in state:
                state[name] = np.zeros((len(state[_SEEN]), *array.shape[1:]))
            state[name][rows] = array
        state[_SEEN][rows] = True

    def score(self, model: Any, rows: Any) -> float:
        """Mean bound of rows that were not learnt from."""
        return float(np.mean(self.row_scores(model, rows)))

    def row_scores(self, model: SigmoidNetwork, rows: Any, clock: Clock | None = None) -> Array:
        """Bound of each row, with as many sweeps of the posterior as an update has."""
        family = self._family()
        if not family.bounds:
            raise MethodError(f"posterior {family.name} has no bound to judge by")
        states = model.clamped(np.asarray(rows, dtype=np.float64))
        return family.fit(model, states, rng=np.random.default_rng(0), clock=clock).bound


_OTHERS = (_SEEN,)


def relevance(network: SigmoidNetwork) -> Array:
    """Root mean square of the weights that leave each hidden unit, in the order of `hidden`.

    >>> relevance(SigmoidNetwork.layered([np.array([[3.0, 4.0]])], [[0.0], [0.0, 0.0]])).round(3)
    array([3.536])
    """
    squares = np.bincount(
        network.tails, network.parameters["weights"] ** 2, minlength=network.n_units
    )
    counts = np.maximum(np.bincount(network.tails, minlength=network.n_units), 1)
    return np.asarray(np.sqrt(squares / counts)[network.hidden])


def add_relevance_prior(network: SigmoidNetwork, ascent: Parameters, n_rows: int) -> None:
    """Add the gradient of the log prior per row, precisions at their best given the weights.

    A precision with prior gamma(a, b) and n weights is at its best (a + n / 2) / (b + sum w^2 / 2).
    """
    weights = network.parameters["weights"]
    squares = np.bincount(network.tails, weights**2, minlength=network.n_units)
    counts = np.bincount(network.tails, minlength=network.n_units)
    precision = (_SHAPE + counts / 2.0) / (_RATE + squares / 2.0)
    ascent["weights"] -= precision[network.tails] * weights / n_rows


def switched_off(network: SigmoidNetwork) -> Ints:
    """Positions in `hidden` of units whose weights are next to nothing beside the largest."""
    size = relevance(network)
    return np.flatnonzero(size < 0.05 * max(float(size.max(initial=0.0)), 1e-12))
