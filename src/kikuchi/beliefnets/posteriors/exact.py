"""The posterior itself, by enumeration of all states of the unknown units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kikuchi.beliefnets.models import SigmoidNetwork
from kikuchi.beliefnets.posteriors.base import PosteriorFit, Start, UnitPosterior, unknown_groups
from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Clock
from kikuchi.core.errors import BudgetError, MethodError
from kikuchi.core.numerics import logsumexp
from kikuchi.core.options import option
from kikuchi.training.model import Parameters


@dataclass(frozen=True)
class EnumeratedUnits(UnitPosterior):
    """Enumeration of all states of the unknown units: the reference.

    >>> net = SigmoidNetwork.layered([np.array([[2.0]])], [[0.0], [0.0]])
    >>> fit = EnumeratedUnits().fit(net, net.clamped(np.ones((1, 1))), rng=np.random.default_rng(0))
    >>> bool(np.isclose(np.exp(fit.bound[0]), 0.5 * 0.5 + 0.5 / (1 + np.exp(-2))))
    True
    """

    name: ClassVar[str] = "exact"
    summary: ClassVar[str] = "enumeration of all hidden states"

    most_units: int = option(20, "unknown units at most", low=0, high=26)

    def fit_group(
        self, network: SigmoidNetwork, states: Array, free: Ints, rng: np.random.Generator,
        start: Start | None, clock: Clock,
    ) -> PosteriorFit:  # fmt: skip
        """Log-likelihoods and exact means."""
        if len(free) > self.most_units:
            raise BudgetError(
                f"{len(free)} unknown units have 2^{len(free)} states, at most 2^{self.most_units} "
                "are enumerated; use mean-field, mixture:5 or gibbs"
            )
        bound, means = np.empty(len(states)), states.copy()
        bits = (np.arange(1 << len(free))[:, None] >> np.arange(len(free))) & 1
        for row in range(len(states)):
            if clock.expired:
                raise BudgetError("the time ran out while states were enumerated; give more")
            logs = self._log_joints(network, states[row], free)
            bound[row] = logsumexp(logs)
            means[row, free] = np.exp(logs - bound[row]) @ bits
        return PosteriorFit(bound, means, np.ones(len(states), dtype=bool), exact=True)

    def _log_joints(self, network: SigmoidNetwork, state: Array, free: Ints) -> Array:
        from kikuchi.beliefnets.kernels.states import log_joints

        out = np.empty(1 << len(free))
        log_joints(network.edges, free.astype(np.uint32), state.copy(), out)
        return out

    def gradient(self, network: SigmoidNetwork, states: Array, fit: PosteriorFit) -> Parameters:
        """Gradient of the log-likelihood itself."""
        from kikuchi.beliefnets.kernels.states import add_expected_gradient

        found = {name: np.zeros_like(array) for name, array in network.parameters.items()}
        for rows, free in unknown_groups(states):
            for row in rows:
                logs = self._log_joints(network, states[row], free)
                p = np.exp(logs - logsumexp(logs))
                add_expected_gradient(
                    network.edges, free.astype(np.uint32), states[row].copy(), p,
                    found["weights"], found["bias"],
                )  # fmt: skip
        return found

    def draw(
        self, network: SigmoidNetwork, fit: PosteriorFit, row: int, free: Ints, count: int,
        rng: np.random.Generator,
    ) -> tuple[Array, Array]:  # fmt: skip
        """Refused: what the draws would estimate is known."""
        raise MethodError("the exact posterior needs no draws; its bound is the log-likelihood")
