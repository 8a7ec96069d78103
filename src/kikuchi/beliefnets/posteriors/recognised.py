"""The recognition network as a posterior: one pass upwards in place of an optimisation per row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kikuchi.beliefnets.models import SigmoidNetwork
from kikuchi.beliefnets.posteriors.base import PosteriorFit, Start, UnitPosterior
from kikuchi.beliefnets.recognition import draw_hidden, importance_bound, upward
from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Clock
from kikuchi.core.errors import MethodError
from kikuchi.core.numerics import logsumexp
from kikuchi.core.options import option
from kikuchi.training.model import Parameters


@dataclass(frozen=True)
class RecognisedUnits(UnitPosterior):
    """Draws of the recognition network, weighted by P / q: probabilities of the hidden units.

    Its bound is importance-weighted: below the log-likelihood in expectation over the draws, not of
    each draw. `log_likelihood` with method="importance" draws from it. It answers for rows of
    visible units only.

    Reference: LIU-L7.
    """

    name: ClassVar[str] = "recognition"
    summary: ClassVar[str] = "weighted draws of the recognition network"
    main_option: ClassVar[str] = "draws"
    draws: int = option(100, "draws of the hidden units per row", low=1)

    def check(self, network: SigmoidNetwork) -> None:
        """It must have been learnt."""
        upward(network)

    def fit_group(
        self, network: SigmoidNetwork, states: Array, free: Ints, rng: np.random.Generator,
        start: Start | None, clock: Clock,
    ) -> PosteriorFit:  # fmt: skip
        """Weighted means of draws; blocks of rows keep the memory small."""
        if not np.array_equal(np.sort(free), network.hidden):
            raise MethodError(
                "a recognition network answers given all visible units and nothing else; use "
                "posterior='mean-field' for other evidence"
            )
        means, bound = np.where(np.isnan(states), 0.0, states), np.empty(len(states))
        size = max(1, 4_000_000 // (self.draws * network.n_units))
        for first in range(0, len(states), size):
            block = slice(first, first + size)
            drawn = draw_hidden(network, states[block][:, network.visible], self.draws, rng)
            logs = drawn.log_weights(network)
            bound[block] = importance_bound(logs)
            shares = np.exp(logs - logsumexp(logs, axis=1)[:, None])
            means[block] = np.einsum("nk,nku->nu", shares, drawn.states)
        means[:, network.visible] = states[:, network.visible]
        n = len(states)
        rows = {"rows": states[:, network.visible]}
        return PosteriorFit(bound, means, np.ones(n, dtype=bool), rows)

    def gradient(self, network: SigmoidNetwork, states: Array, fit: PosteriorFit) -> Parameters:
        """It is learnt by learners of its own."""
        raise MethodError("posterior recognition is learnt by learner='vimco' and its like")

    def draw(
        self, network: SigmoidNetwork, fit: PosteriorFit, row: int, free: Ints, count: int,
        rng: np.random.Generator,
    ) -> tuple[Array, Array]:  # fmt: skip
        """Plain draws, with their log-probabilities."""
        drawn = draw_hidden(network, fit.state["rows"][row : row + 1], count, rng)
        return drawn.states[0][:, free], drawn.log_q[0]
