"""The posterior by Gibbs sampling, one chain per row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kikuchi.beliefnets.models import SigmoidNetwork
from kikuchi.beliefnets.posteriors.base import PosteriorFit, Start, UnitPosterior
from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Clock
from kikuchi.core.options import option
from kikuchi.core.seeds import kernel_seeds
from kikuchi.training.model import Parameters


@dataclass(frozen=True)
class GibbsUnits(UnitPosterior):
    """Gibbs sampling of the unknown units, one chain per row, which go on from update to update.

    There is no bound. `state` holds `states`, the last state of each chain.

    Reference: LAW-I2.

    >>> net = SigmoidNetwork.layered([np.array([[2.0]])], [[0.0], [0.0]])
    >>> rows, rng = net.clamped(np.ones((1, 1))), np.random.default_rng(0)
    >>> fit = GibbsUnits(sweeps=5000).fit(net, rows, rng=rng)
    >>> on = 0.5 / (1 + np.exp(-2))
    >>> bool(abs(fit.means[0, 0] - on / (on + 0.25)) < 0.02)
    True
    """

    name: ClassVar[str] = "gibbs"
    summary: ClassVar[str] = "Gibbs sampling, one chain per row"
    main_option: ClassVar[str] = "sweeps"
    bounds: ClassVar[bool] = False

    sweeps: int = option(20, "sweeps of each fit, of which the means are taken", low=1)
    burn_in: int = option(100, "sweeps of new chains before that", low=0)

    def fit_group(
        self, network: SigmoidNetwork, states: Array, free: Ints, rng: np.random.Generator,
        start: Start | None, clock: Clock,
    ) -> PosteriorFit:  # fmt: skip
        """Run the chains."""
        from kikuchi.beliefnets.kernels.states import gibbs_sweeps

        chains, units = states.copy(), free.astype(np.uint32)
        words = kernel_seeds(rng, len(states))
        means, full = np.zeros_like(states), np.ones(network.n_units)
        if start is None:
            chains[:, free] = rng.integers(0, 2, size=(len(states), len(free)))
            gibbs_sweeps(network.edges, units, chains, full, self.burn_in, words, means)
        else:
            chains[:, free] = start["states"][:, free]
        means[...] = 0.0
        gibbs_sweeps(network.edges, units, chains, full, self.sweeps, words, means)
        means /= self.sweeps
        known = np.setdiff1d(np.arange(network.n_units), free)
        means[:, known] = states[:, known]
        nothing = np.full(len(states), np.nan)
        # chains have no criterion of their own; what they are used for judges them
        return PosteriorFit(nothing, means, np.ones(len(states), dtype=bool), {"states": chains})

    def gradient(self, network: SigmoidNetwork, states: Array, fit: PosteriorFit) -> Parameters:
        """Gradient of log P at the last states of the chains."""
        from kikuchi.beliefnets.kernels.states import add_states_gradient

        found = {name: np.zeros_like(array) for name, array in network.parameters.items()}
        add_states_gradient(network.edges, fit.state["states"], found["weights"], found["bias"])
        return found


@dataclass(frozen=True)
class ProposedUnits(GibbsUnits):
    """Gibbs sweeps that alternate with proposals of all unknown units from a variational fit.

    A mean field fit alone is too narrow to be a good proposal, and single-unit sweeps alone do not
    leave a mode; together one finds mass and the other explores it. A proposed state h' is accepted
    with probability min(1, P(h') Q(h) / (P(h) Q(h'))), which leaves the posterior unchanged.

    Reference: HOJ-X2.

    >>> net = SigmoidNetwork.layered([np.array([[2.0]])], [[0.0], [0.0]])
    >>> rows, rng = net.clamped(np.ones((1, 1))), np.random.default_rng(0)
    >>> bool(abs(ProposedUnits(sweeps=2000).fit(net, rows, rng=rng).means[0, 0] - 0.638) < 0.03)
    True
    """

    name: ClassVar[str] = "gibbs-proposals"
    summary: ClassVar[str] = "Gibbs sweeps and block proposals from mean field"

    components: int = option(5, "product distributions of the proposal", low=1)

    def fit_group(
        self, network: SigmoidNetwork, states: Array, free: Ints, rng: np.random.Generator,
        start: Start | None, clock: Clock,
    ) -> PosteriorFit:  # fmt: skip
        """Run the chains, with a proposal after each sweep."""
        from kikuchi.beliefnets.kernels.states import gibbs_sweeps
        from kikuchi.beliefnets.posteriors.tilted import MixtureUnits

        family = MixtureUnits(components=self.components)
        fitted = family.fit_group(network, states, free, rng, None, clock)
        weights = fitted.state["weights"]
        inside = np.clip(fitted.state["means"][:, :, free], 1e-3, 1.0 - 1e-3)
        chains, units = states.copy(), free.astype(np.uint32)
        words, full = kernel_seeds(rng, len(states)), np.ones(network.n_units)
        means = np.zeros_like(states)
        if start is None:
            chains[:, free] = rng.integers(0, 2, size=(len(states), len(free)))
        else:
            chains[:, free] = start["states"][:, free]
        burn = self.burn_in if start is None else 0
        for turn in range(burn + self.sweeps):
            if turn == burn:
                means[...] = 0.0
            gibbs_sweeps(network.edges, units, chains, full, 1, words, means)
            proposed = chains.copy()
            which = (weights.cumsum(axis=1) < rng.random((len(states), 1))).sum(axis=1)
            which = np.minimum(which, weights.shape[1] - 1)
            p = inside[np.arange(len(states)), which]
            proposed[:, free] = rng.random(p.shape) < p
            gain = network.log_joint(proposed) - network.log_joint(chains)
            gain += _log_q(chains[:, free], inside, weights)
            gain -= _log_q(proposed[:, free], inside, weights)
            taken = np.log(rng.random(len(states))) < gain
            chains[taken] = proposed[taken]
        means /= self.sweeps
        known = np.setdiff1d(np.arange(network.n_units), free)
        means[:, known] = states[:, known]
        nothing = np.full(len(states), np.nan)
        return PosteriorFit(nothing, means, np.ones(len(states), dtype=bool), {"states": chains})


def _log_q(states: Array, means: Array, weights: Array) -> Array:
    """Log-probability of one state per row under the row's mixture."""
    each = np.where(states[:, None, :] > 0, np.log(means), np.log1p(-means)).sum(axis=2)
    with np.errstate(divide="ignore"):
        return np.asarray(np.logaddexp.reduce(each + np.log(weights), axis=1))
