"""Mean field with a bound of third order: closer to the log-likelihood than any KL bound of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from kikuchi.beliefnets.models import SigmoidNetwork
from kikuchi.beliefnets.posteriors.base import PosteriorFit, Start, UnitPosterior, require_time
from kikuchi.beliefnets.posteriors.tilted import MeanFieldUnits, MixtureUnits
from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Clock
from kikuchi.core.options import option
from kikuchi.engines.units.spins import SpinModel
from kikuchi.methods.third_order import ascend_bound, bound_moments
from kikuchi.training.model import Parameters

_TRAINING_TOL = 1e-2  # of the gradient by the fields of units, within a training


@dataclass(frozen=True)
class ThirdOrderUnits(UnitPosterior):
    """Independent units with a bound of third order, for small networks.

    With quadratic local bounds the weight of the hidden units is that of a Boltzmann machine, whose
    sum over states is bounded to third order in place of first. Units are moved to where the bound
    is highest, then the local bounds are renewed, as long as that gains. The bound is never below
    that of independent units with the same local bounds. A row costs the cube of the number of
    hidden units: for small networks.

    Reference: HOJ-X8.

    >>> net = SigmoidNetwork.random((2, 4, 6), random_state=0)
    >>> rows, rng = net.clamped(np.zeros((1, 6))), np.random.default_rng(0)
    >>> from kikuchi.beliefnets.posteriors.exact import EnumeratedUnits
    >>> from kikuchi.beliefnets.posteriors.quadratic import QuadraticUnits
    >>> exact = EnumeratedUnits().fit(net, rows, rng=rng).bound[0]
    >>> kinds = (QuadraticUnits(), ThirdOrderUnits())
    >>> gaps = [exact - kind.fit(net, rows, rng=rng).bound[0] for kind in kinds]
    >>> bool(0 < gaps[1] < 0.6 * gaps[0])
    True
    """

    name: ClassVar[str] = "third-order"
    costly: ClassVar[bool] = True

    tol: float = option(1e-4, "stop when no component of the gradient is larger", above=0)
    inner_max_iter: int = option(100, "steps of the ascent at most, in each round", low=1)
    max_iter: int = option(5, "renewals of the local bounds at most", low=1)

    def partial(self, sweeps: int) -> Self:
        """The local bounds are renewed once per update, as the posteriors go on between updates."""
        return replace(self, inner_max_iter=sweeps, max_iter=1, tol=max(self.tol, _TRAINING_TOL))

    def fit_group(
        self, network: SigmoidNetwork, states: Array, free: Ints, rng: np.random.Generator,
        start: Start | None, clock: Clock,
    ) -> PosteriorFit:  # fmt: skip
        """Row by row, from mean field or from where the last fit ended."""
        n, units = states.shape
        if start is not None and "means" in start:
            means = np.where(np.isnan(states), start["means"][:, 0], states)
        else:
            means = MeanFieldUnits().fit_group(network, states, free, rng, None, clock).means
        bounds, done = np.empty(n), np.zeros(n, dtype=bool)
        local = np.empty((n, units))
        matrix = dense_weights(network)
        for row in range(n):
            require_time(clock)
            found = self._ascend(
                network, matrix, states[row], free, means[row], self.inner_max_iter
            )
            bounds[row], means[row], local[row], done[row] = found
        state = {"means": means[:, None, :], "weights": np.ones((n, 1)), "local": local}
        return PosteriorFit(bounds, means.copy(), done, state)

    def _ascend(
        self, network: SigmoidNetwork, matrix: Array, known: Array, free: Ints, means: Array,
        limit: int,
    ) -> tuple[float, Array, Array, bool]:  # fmt: skip
        best: tuple[float, Array, Array, bool] | None = None
        for _ in range(self.max_iter if len(free) else 1):
            local = local_points(network, matrix, means)
            form = quadratic_form(network, matrix, known, free, local)
            value, x, done = ascend_bound(form.spins, _half_logits(means[free]), limit, self.tol)
            if best is not None and value + form.spins.constant <= best[0] + self.tol:
                break
            means = np.where(np.isnan(known), 0.0, known)
            means[free] = 1.0 / (1.0 + np.exp(-2.0 * x))
            best = (value + form.spins.constant, means, local, done)
        assert best is not None
        return best

    def gradient(self, network: SigmoidNetwork, states: Array, fit: PosteriorFit) -> Parameters:
        """The gradient of the sum of the bounds, units and local bounds held."""
        matrix, bias = dense_weights(network), network.parameters["bias"]
        to_weights, to_bias = np.zeros_like(matrix), np.zeros(network.n_units)
        for row, known in enumerate(states):
            free = np.flatnonzero(np.isnan(known))
            local = fit.state["local"][row]
            form = quadratic_form(network, matrix, known, free, local)
            x = _half_logits(fit.state["means"][row, 0, free])
            mean, second = form.moments(known, free, x)
            add_quadratic_gradient(matrix, bias, mean, second, local, to_weights, to_bias)
        found = to_weights[network.tails, network.heads]
        return {"weights": found, "bias": to_bias}

    _drawn = MixtureUnits._drawn


def dense_weights(network: SigmoidNetwork) -> Array:
    """Weights (parent, child) of all pairs of units."""
    matrix = np.zeros((network.n_units, network.n_units))
    matrix[network.tails, network.heads] = network.parameters["weights"]
    return matrix


def local_points(network: SigmoidNetwork, matrix: Array, means: Array) -> Array:
    """Where the quadratic bound of each unit touches: the root of the mean square of its input."""
    z = network.parameters["bias"] + means @ matrix
    variance = (means * (1.0 - means)) @ matrix**2
    return np.asarray(np.sqrt(z * z + variance))


def _half_logits(means: Array) -> Array:
    """Fields of spins with these probabilities of +1."""
    q = np.clip(means, 1e-15, 1.0 - 1e-15)
    return np.asarray(0.5 * (np.log(q) - np.log1p(-q)))


def local_curves(local: Array) -> Array:
    """tanh(e / 2) / (4 e), 1/8 at 0."""
    e = np.maximum(local, 1e-8)
    return np.asarray(np.tanh(0.5 * e) / (4.0 * e))


def add_quadratic_gradient(
    matrix: Array, bias: Array, mean: Array, second: Array, local: Array, to_weights: Array,
    to_bias: Array,
) -> None:  # fmt: skip
    """Add the gradient of E[sum_i (x_i - 1/2) z_i - c_i z_i^2] by weights and biases, from means
    and mean products of the units.
    """
    curves = local_curves(local)
    to_bias += mean - 0.5 - 2.0 * curves * (bias + mean @ matrix)
    spread = np.outer(mean, bias) + second @ matrix
    to_weights += second - 0.5 * mean[:, None] - 2.0 * curves * spread


class QuadraticForm(NamedTuple):
    """A Boltzmann machine below the weight of the free units, in spins."""

    spins: SpinModel
    pairs: tuple[Any, Any]

    def moments(self, known: Array, free: Ints, x: Array) -> tuple[Array, Array]:
        """What the bound takes for E[s] and E[s s'] of all units, as bits."""
        mean = np.where(np.isnan(known), 0.0, known)
        found = bound_moments(self.spins, x)
        mean[free] = 0.5 * (1.0 + found.means)
        second = np.outer(mean, mean)
        rows, columns = self.pairs
        table = 0.25 * (1.0 + found.means[rows] + found.means[columns] + found.correlations)
        second[free[rows], free[columns]] = table
        second[free, free] = mean[free]
        return mean, second


def quadratic_form(
    network: SigmoidNetwork, matrix: Array, known: Array, free: Ints, local: Array
) -> QuadraticForm:
    """log P >= sum_i (x_i - 1/2) z_i - c_i z_i^2 + const_i as a spin model of the free units."""
    state = np.where(np.isnan(known), 0.0, known)
    curves = local_curves(local)
    z = network.parameters["bias"] + state @ matrix
    w = matrix[free]
    pull = state - 0.5 - 2.0 * curves * z
    linear = w @ pull + z[free] - (w * w) @ curves
    pairs = matrix[np.ix_(free, free)]
    pairs = pairs + pairs.T - 2.0 * (w * curves) @ w.T
    np.fill_diagonal(pairs, 0.0)
    constant = float(state @ z - 0.5 * z.sum() - curves @ (z * z))
    constant += float(np.sum(0.5 * local - np.logaddexp(0.0, local) + curves * local**2))
    constant += 0.5 * float(linear.sum()) + 0.125 * float(pairs.sum())
    fields = 0.5 * linear + 0.25 * pairs.sum(axis=1)
    rows, columns = np.nonzero(pairs)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(free)))])
    spins = SpinModel(
        np.ascontiguousarray(fields), offsets.astype(np.uint32), columns.astype(np.uint32),
        0.25 * pairs[rows, columns], constant,
    )  # fmt: skip
    return QuadraticForm(spins, (rows, columns))
