"""Mean field and mixtures of mean fields, with the tilted bound on log(1 + e^z)."""

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
from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Clock
from kikuchi.core.options import option
from kikuchi.training.model import Parameters

_SPREAD = 0.3  # how far a split component may begin from the one that it was split from
_JITTER = 0.05  # around one half, where ascents begin: far starts end in poor optima
_SETTLED = 0.05  # no mean further than this from 0 or 1
_NO_WEIGHT = 1e-6
_SAME = 1e-3
_NO_GAIN = 1e-6  # nats that a component adds to the bound


@dataclass(frozen=True)
class MixtureUnits(UnitPosterior):
    """Mixture of product distributions with Lawrence's bound on its information.

    Components are added one by one, each split from the heaviest, so that the bound never falls
    with their number. `state` holds `means` (rows, components, units), `xi`, `weights`, `smoothing`
    and `bounds`: the bound with 1, 2, ... components.

    Reference: LAW-I10, LAW-I9.

    >>> net = SigmoidNetwork.random((2, 4, 6), random_state=0)
    >>> rows = net.clamped(np.zeros((1, 6)))
    >>> fit = MixtureUnits(components=3).fit(net, rows, rng=np.random.default_rng(0))
    >>> bool(np.all(np.diff(fit.state["bounds"][0]) > 0)), bool(fit.converged[0])
    (True, True)
    """

    name: ClassVar[str] = "mixture"
    summary: ClassVar[str] = "mixture of mean fields with smoothing distributions"
    main_option: ClassVar[str] = "components"

    components: int = option(5, "product distributions in the mixture", low=1)
    tol: float = option(1e-3, "stop when no probability moves more in a sweep", above=0)
    max_iter: int = option(2000, "maximum number of sweeps for each number of components", low=1)

    def fit_group(
        self, network: SigmoidNetwork, states: Array, free: Ints, rng: np.random.Generator,
        start: Start | None, clock: Clock,
    ) -> PosteriorFit:  # fmt: skip
        """Ascend the bound of each row, one component after the other."""
        begun = self._begin(states, free, rng, start)
        size = begun["weights"].shape[1]
        history = []
        while True:
            found = self._ascend(network, free, begun, clock)
            history.append(found.bound)
            if size == self.components:
                break
            begun, size = self._split(begun, free, rng), size + 1
        if start is None:
            begun["bounds"] = np.stack(history, axis=1)
        found.state = begun
        found.remarks += self._collapsed(begun, free)
        return found

    def _begin(
        self, states: Array, free: Ints, rng: np.random.Generator, start: Start | None
    ) -> dict[str, Array]:
        n, units = states.shape
        known = np.where(np.isnan(states), 0.5, states)
        if start is not None and start["weights"].shape[1] == self.components:
            means = np.repeat(known[:, None, :], self.components, axis=1)
            means[:, :, free] = start["means"][:, :, free]
            xi = start["xi"].copy() if "xi" in start else np.full(means.shape, 0.5)
            weights, smoothing = start["weights"].copy(), start["smoothing"].copy()
        else:
            means = known[:, None, :].copy()
            means[:, :, free] += rng.uniform(-_JITTER, _JITTER, size=(n, 1, len(free)))
            xi = np.full((n, 1, units), 0.5)
            weights, smoothing = np.ones((n, 1)), np.ones((n, 1, 2 * len(free)))
        return {"means": means, "xi": xi, "weights": weights, "smoothing": smoothing}

    def _split(
        self, state: dict[str, Array], free: Ints, rng: np.random.Generator
    ) -> dict[str, Array]:
        """One component more, near the heaviest one of each row."""
        weights = state["weights"]
        n, m = weights.shape
        heaviest = (np.arange(n), np.argmax(weights, axis=1))
        new = state["means"][heaviest]
        moved = new[:, free] + rng.uniform(-_SPREAD, _SPREAD, size=(n, len(free)))
        settled = np.minimum(new[:, free], 1.0 - new[:, free]).max(axis=1, initial=0.0) < _SETTLED
        elsewhere = rng.uniform(size=moved.shape)  # what has settled would come back
        new[:, free] = np.where(settled[:, None], elsewhere, np.clip(moved, 0.02, 0.98))
        share = 1.0 / (m + 1)
        join = np.concatenate
        return {
            "means": join([state["means"], new[:, None, :]], axis=1),
            "xi": join([state["xi"], state["xi"][heaviest][:, None, :]], axis=1),
            "weights": join([weights * (1.0 - share), np.full((n, 1), share)], axis=1),
            "smoothing": join([state["smoothing"], np.ones((n, 1, 2 * len(free)))], axis=1),
        }

    def _ascend(
        self, network: SigmoidNetwork, free: Ints, state: dict[str, Array], clock: Clock
    ) -> PosteriorFit:
        from kikuchi.beliefnets.kernels.tilted import RowBounds, RowComponents, ascend

        n, m, _ = state["means"].shape
        bounds, told, residuals = np.full(n, -np.inf), np.zeros(n), np.full(n, np.inf)
        counts, units = np.zeros(n, dtype=np.int64), free.astype(np.uint32)
        for block in blocks(n, m * (network.n_edges + m * len(free)) * 20.0):
            require_time(clock)
            ascend(
                network.edges,
                units,
                RowComponents(*(state[name][block] for name in RowComponents._fields)),
                self.tol,
                self.max_iter,
                RowBounds(bounds[block], told[block], residuals[block], counts[block]),
            )
        means = np.einsum("nm,nmu->nu", state["weights"], state["means"])
        return PosteriorFit(bounds, means, residuals <= self.tol)

    def _collapsed(self, state: dict[str, Array], free: Ints) -> list[str]:
        """A remark if components have lost their weight, have become equal or gained nothing."""
        weights, means = state["weights"], state["means"][:, :, free]
        m = weights.shape[1]
        lost = weights < _NO_WEIGHT
        for k in range(m):
            for j in range(k):
                apart = np.abs(means[:, k] - means[:, j]).max(axis=1, initial=0.0)
                lost[:, k] |= (apart < _SAME) & ~lost[:, j]
        if "bounds" in state:
            lost[:, 1:] |= np.diff(state["bounds"], axis=1) < _NO_GAIN
        rows = int(np.sum(lost.any(axis=1)))
        if m == 1 or not rows:
            return []
        return [
            "components of the mixture have collapsed (no weight, equal to another, or no gain) in "
            f"{rows} of {len(weights)} rows: {m - lost.sum(axis=1).mean():.3g} of {m} are left on "
            "average"
        ]

    def gradient(self, network: SigmoidNetwork, states: Array, fit: PosteriorFit) -> Parameters:
        """The gradient of the sum of the bounds.

        Reference: LAW-L2.
        """
        from kikuchi.beliefnets.kernels.tilted import add_gradient

        found = {name: np.zeros_like(array) for name, array in network.parameters.items()}
        add_gradient(
            network.edges,
            fit.state["means"],
            fit.state["xi"],
            fit.state["weights"],
            found["weights"],
            found["bias"],
        )
        return found

    def _drawn(
        self, network: SigmoidNetwork, state: Start, free: Ints, count: int,
        rng: np.random.Generator,
    ) -> tuple[Array, Array]:  # fmt: skip
        """Draws from the mixture itself; components are summed over in their probability."""
        weights = state["weights"]
        means = np.clip(state["means"][:, free], 1e-6, 1.0 - 1e-6)
        which = rng.choice(len(weights), size=count, p=weights / weights.sum())
        states = (rng.random((count, len(free))) < means[which]).astype(np.float64)
        each = states @ np.log(means).T + (1.0 - states) @ np.log1p(-means).T
        with np.errstate(divide="ignore"):
            return states, np.logaddexp.reduce(each + np.log(weights / weights.sum()), axis=1)


@dataclass(frozen=True)
class MeanFieldUnits(MixtureUnits):
    """Product distribution, with one free number per unit for its intractable normaliser.

    Reference: LAW-I8, LAW-I7.

    >>> net = SigmoidNetwork.layered([np.zeros((2, 3))], [np.zeros(2), np.zeros(3)])
    >>> rows = net.clamped(np.ones((1, 3)))
    >>> fit = MeanFieldUnits().fit(net, rows, rng=np.random.default_rng(0))
    >>> bool(np.isclose(fit.bound[0], 3 * np.log(0.5)))
    True
    """

    name: ClassVar[str] = "mean-field"
    summary: ClassVar[str] = "product distribution with the tilted bound"
    main_option: ClassVar[str] = ""

    components: int = option(1, "always 1; more are a mixture", low=1, high=1)
    tol: float = option(1e-5, "stop when no probability moves more in a sweep", above=0)
