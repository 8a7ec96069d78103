"""Mean field with the quadratic bound on log(1 + e^z): the fast one, for wide layers."""

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
from kikuchi.beliefnets.posteriors.tilted import MixtureUnits
from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Clock
from kikuchi.core.errors import MethodError
from kikuchi.core.options import option
from kikuchi.training.model import Parameters


@dataclass(frozen=True)
class QuadraticUnits(UnitPosterior):
    """Product distribution with the quadratic bound of Jaakkola and Jordan: layered networks.

    It needs no transcendental function per edge, so that wide layers cost little more than their
    matrix products. Where inputs are uncertain and near zero it is tighter than the tilted bound
    of `mean-field`, in the tails it is looser. `state` holds `means` (rows, 1, units).

    >>> net = SigmoidNetwork.random((2, 4, 6), random_state=0)
    >>> rows, rng = net.clamped(np.zeros((1, 6))), np.random.default_rng(0)
    >>> fit = QuadraticUnits().fit(net, rows, rng=rng)
    >>> from kikuchi.beliefnets.posteriors.exact import EnumeratedUnits
    >>> gap = EnumeratedUnits().fit(net, rows, rng=rng).bound[0] - fit.bound[0]
    >>> bool(0 < gap < 0.2)
    True
    """

    name: ClassVar[str] = "quadratic"
    summary: ClassVar[str] = "product distribution with the quadratic bound, for wide layers"

    tol: float = option(1e-4, "stop when no probability moves more in a sweep", above=0)
    max_iter: int = option(500, "sweeps at most", low=1)
    inner: int = option(2, "sweeps for each update of the local bounds", low=1)

    def check(self, network: SigmoidNetwork) -> None:
        """It needs layers."""
        if not network.layers:
            raise MethodError(
                "posterior quadratic needs a layered network; use mean-field or mixture"
            )

    def fit_group(
        self, network: SigmoidNetwork, states: Array, free: Ints, rng: np.random.Generator,
        start: Start | None, clock: Clock,
    ) -> PosteriorFit:  # fmt: skip
        """Sweeps over the layers, all rows of a block at once."""
        n = len(states)
        means = np.where(np.isnan(states), 0.5, states)
        if start is not None:
            means[:, free] = start["means"][:, 0, free]
        bounds, changes = np.full(n, -np.inf), np.full(n, np.inf)
        for block in blocks(n, network.n_edges * 1.0):
            problem = _Layers(network, means[block], free)
            done, change = 0, np.full(len(problem.means[0]), np.inf)
            while done < self.max_iter and change.max(initial=0.0) > self.tol:
                change = problem.sweep(self.inner)
                done += self.inner
                require_time(clock)
            bounds[block], changes[block] = problem.bound(), change
            means[block] = np.concatenate(problem.means, axis=1)
        state = {"means": means[:, None, :], "weights": np.ones((n, 1))}
        return PosteriorFit(bounds, means.copy(), changes <= self.tol, state)

    def gradient(self, network: SigmoidNetwork, states: Array, fit: PosteriorFit) -> Parameters:
        """The gradient of the sum of the bounds."""
        problem = _Layers(network, fit.state["means"][:, 0], np.empty(0, dtype=np.int64))
        to_weights, to_bias = [], []
        for layer, means in enumerate(problem.means):
            z, curves = problem.inputs[layer], problem.curves[layer]
            pull = means - 0.5 - 2.0 * curves * z
            to_bias.append(pull.sum(axis=0))
            if layer:
                above = problem.means[layer - 1]
                spread = (above * (1.0 - above)).T @ curves
                found = above.T @ pull - 2.0 * problem.weights[layer - 1] * spread
                to_weights.append(found.ravel())
        return {"weights": np.concatenate(to_weights), "bias": np.concatenate(to_bias)}

    _drawn = MixtureUnits._drawn


class _Layers:
    """Means, inputs and local bounds of some rows, layer by layer."""

    def __init__(self, network: SigmoidNetwork, means: Array, free: Ints) -> None:
        slices = network.layer_slices()
        inside = [free[(free >= s.start) & (free < s.stop)] - s.start for s in slices]
        self.weights = network.matrices()
        self.squares = [w * w for w in self.weights]
        self.biases = [network.parameters["bias"][s] for s in slices]
        self.means = [np.ascontiguousarray(means[:, s]) for s in slices]
        self.free = [units.astype(np.uint32) for units in inside]
        self.inputs = [np.tile(self.biases[0], (len(means), 1))]
        for above, w, b in zip(self.means[:-1], self.weights, self.biases[1:], strict=True):
            self.inputs.append(above @ w + b)
        self.curves = [np.empty_like(z) for z in self.inputs]
        self.set_curves()

    def set_curves(self) -> None:
        """The best local bounds."""
        from kikuchi.beliefnets.kernels.quadratic import set_curves

        for layer, variance in enumerate(self.variances()):
            set_curves(self.inputs[layer], variance, self.curves[layer])

    def variances(self) -> list[Array]:
        """Variance of the input of every unit."""
        found = [np.zeros_like(self.inputs[0])]
        return found + [
            (m * (1.0 - m)) @ s for m, s in zip(self.means[:-1], self.squares, strict=True)
        ]

    def sweep(self, inner: int) -> Array:
        """Every layer `inner` times, then the local bounds; the last change of each row."""
        from kikuchi.beliefnets.kernels.quadratic import LayerPair, set_free, sweep_layer

        last = len(self.means) - 1
        bends = {
            layer: self.curves[layer + 1] @ self.squares[layer].T
            for layer in range(last)
            if len(self.free[layer])
        }
        changes = np.zeros(len(self.means[0]))
        for layer, bend in bends.items():
            pair = LayerPair(
                self.means[layer], self.inputs[layer], self.means[layer + 1],
                self.inputs[layer + 1], self.curves[layer + 1], bend,
            )  # fmt: skip
            sweep_layer(self.weights[layer], self.free[layer], pair, inner, changes)
        if len(self.free[last]):
            set_free(self.inputs[last], self.free[last], self.means[last], changes)
        self.set_curves()
        return changes

    def bound(self) -> Array:
        """The bound of each row, local bounds at their best."""
        total = np.zeros(len(self.means[0]))
        for layer, variance in enumerate(self.variances()):
            m, z = self.means[layer], self.inputs[layer]
            e = np.sqrt(z * z + variance)
            total += np.sum((m - 0.5) * z + 0.5 * e - np.logaddexp(0.0, e), axis=1)
            inside = np.clip(m, 1e-300, 1.0)
            outside = np.clip(1.0 - m, 1e-300, 1.0)
            total -= np.sum(m * np.log(inside) + (1.0 - m) * np.log(outside), axis=1)
        return total
