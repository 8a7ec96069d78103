"""The posterior as a Markov chain along the units of each layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kikuchi.beliefnets.models import SigmoidNetwork
from kikuchi.beliefnets.posteriors.base import (
    PosteriorFit,
    Start,
    UnitPosterior,
    blocks,
    require_time,
)
from kikuchi.beliefnets.posteriors.tilted import MeanFieldUnits
from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Clock
from kikuchi.core.errors import MethodError
from kikuchi.core.options import option
from kikuchi.training.model import Parameters


@dataclass(frozen=True)
class ChainUnits(UnitPosterior):
    """A Markov chain along each layer of a layered network; layers are independent.

    It begins at the mean field solution, a chain whose transitions ignore the state before.
    `state` holds `odds` (rows, units, 2), the probability that a unit is 1 after 0 and after 1.

    Reference: LAW-I11.

    >>> net = SigmoidNetwork.random((2, 4, 6), random_state=0)
    >>> rows, rng = net.clamped(np.zeros((1, 6))), np.random.default_rng(0)
    >>> chain = ChainUnits().fit(net, rows, rng=rng).bound[0]
    >>> bool(chain > MeanFieldUnits().fit(net, rows, rng=rng).bound[0])
    True
    """

    name: ClassVar[str] = "chain"
    summary: ClassVar[str] = "Markov chain along the units of each layer"

    tol: float = option(1e-4, "stop when no probability moves more in a sweep", above=0)
    max_iter: int = option(1000, "sweeps at most", low=1)

    def check(self, network: SigmoidNetwork) -> None:
        """Chains need layers."""
        if not network.layers:
            raise MethodError("posterior chain needs a layered network; use mean-field or mixture")

    def fit_group(
        self, network: SigmoidNetwork, states: Array, free: Ints, rng: np.random.Generator,
        start: Start | None, clock: Clock,
    ) -> PosteriorFit:  # fmt: skip
        """Mean field, then ascent of the chains."""
        from kikuchi.beliefnets.kernels.chain import ChainBounds, ChainRows, ascend_chains

        if start is None:
            first = MeanFieldUnits().fit_group(network, states, free, rng, None, clock)
            odds = np.repeat(first.means[:, :, None], 2, axis=2)
            xi = first.state["xi"][:, 0].copy()
        else:
            odds = np.repeat(np.where(np.isnan(states), 0.5, states)[:, :, None], 2, axis=2)
            odds[:, free] = start["odds"][:, free]
            xi = start["xi"].copy() if "xi" in start else np.full(states.shape, 0.5)
        n = len(states)
        bounds, residuals = np.full(n, -np.inf), np.full(n, np.inf)
        counts, means = np.zeros(n, dtype=np.int64), np.zeros_like(states)
        is_free = np.zeros(network.n_units)
        is_free[free] = 1.0
        starts = np.cumsum((0, *network.layers))
        for block in blocks(n, network.n_edges * 60.0):
            require_time(clock)
            chains = ChainRows(odds[block], xi[block], means[block])
            found = ChainBounds(bounds[block], residuals[block], counts[block])
            ascend_chains(network.edges, starts, is_free, chains, self.tol, self.max_iter, found)
        return PosteriorFit(bounds, means, residuals <= self.tol, {"odds": odds, "xi": xi})

    def gradient(self, network: SigmoidNetwork, states: Array, fit: PosteriorFit) -> Parameters:
        """The gradient of the sum of the bounds.

        Reference: LAW-L3.
        """
        from kikuchi.beliefnets.kernels.chain import add_chain_gradient

        found = {name: np.zeros_like(array) for name, array in network.parameters.items()}
        starts = np.cumsum((0, *network.layers))
        add_chain_gradient(
            network.edges, starts, fit.state["odds"], fit.state["xi"], found["weights"],
            found["bias"],
        )  # fmt: skip
        return found

    def _drawn(
        self, network: SigmoidNetwork, state: Start, free: Ints, count: int,
        rng: np.random.Generator,
    ) -> tuple[Array, Array]:  # fmt: skip
        """Draws along the chains."""
        odds = state["odds"]
        first_units = set(np.cumsum((0, *network.layers)).tolist())
        states = np.zeros((count, network.n_units))
        log_q = np.zeros(count)
        unknown = set(free.tolist())
        for unit in range(network.n_units):
            before = np.zeros(count) if unit in first_units else states[:, unit - 1]
            p = np.where(before > 0, odds[unit, 1], odds[unit, 0])
            if unit in unknown:
                p = np.clip(p, 1e-6, 1.0 - 1e-6)
                states[:, unit] = rng.random(count) < p
                log_q += np.where(states[:, unit] > 0, np.log(p), np.log1p(-p))
            else:
                states[:, unit] = p
        return states[:, free], log_q
