"""Blocks of hidden units that are kept together: structured mean field by the method `tree-mf`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from kikuchi.beliefnets.models import SigmoidNetwork
from kikuchi.beliefnets.posteriors.base import PosteriorFit, Start, UnitPosterior, require_time
from kikuchi.beliefnets.posteriors.third_order import (
    QuadraticForm,
    add_quadratic_gradient,
    dense_weights,
    local_points,
    quadratic_form,
)
from kikuchi.beliefnets.posteriors.tilted import MeanFieldUnits
from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Budget, Clock
from kikuchi.core.options import option
from kikuchi.graphs.binary import ising
from kikuchi.methods.structured_mean_field import StructuredMeanField
from kikuchi.training.model import Parameters


@dataclass(frozen=True)
class StructuredUnits(UnitPosterior):
    """Distribution of the hidden units on a narrow subgraph, with the quadratic bound on
    log(1 + e^z).

    With quadratic local bounds the weight of the hidden units is that of a Boltzmann machine, and
    `tree-mf` finds the best distribution on a forest of cliques of it: `subgraph` auto keeps the
    strongest couplings, `tree` a spanning tree, `subsets:0-3/4-7` sets of units, counted among the
    unknown ones from the top. Local bounds are renewed as long as that gains. For small networks.

    Reference: HOJ-I10.

    >>> net = SigmoidNetwork.random((2, 4, 6), random_state=0)
    >>> rows, rng = net.clamped(np.zeros((1, 6))), np.random.default_rng(0)
    >>> from kikuchi.beliefnets.posteriors.exact import EnumeratedUnits
    >>> from kikuchi.beliefnets.posteriors.quadratic import QuadraticUnits
    >>> exact = EnumeratedUnits().fit(net, rows, rng=rng).bound[0]
    >>> kinds = (QuadraticUnits(), StructuredUnits(), StructuredUnits(width=1))
    >>> gaps = [exact - kind.fit(net, rows, rng=rng).bound[0] for kind in kinds]
    >>> bool(0 < gaps[1] < gaps[2] < gaps[0])
    True
    """

    name: ClassVar[str] = "tree-mf"
    summary: ClassVar[str] = "blocks of units kept together (structured mean field)"
    main_option: ClassVar[str] = "width"
    costly: ClassVar[bool] = True

    width: int = option(3, "units of a block less one, at most (auto)", low=0)
    subgraph: str = option("auto", "what is kept: auto, tree, strips:K, subsets:0-3/4-7")
    tol: float = option(1e-6, "stop when no block belief moves more", above=0)
    inner_max_iter: int = option(200, "sweeps at most, in each round", low=1)
    max_iter: int = option(10, "renewals of the local bounds at most", low=1)

    def partial(self, sweeps: int) -> Self:
        """The local bounds are renewed once per update, as the posteriors go on between updates."""
        return replace(self, inner_max_iter=sweeps, max_iter=1)

    def _method(self) -> StructuredMeanField:
        return StructuredMeanField(
            subgraph=self.subgraph, width=self.width, tol=self.tol, max_iter=self.inner_max_iter
        )

    def fit_group(
        self, network: SigmoidNetwork, states: Array, free: Ints, rng: np.random.Generator,
        start: Start | None, clock: Clock,
    ) -> PosteriorFit:  # fmt: skip
        """Row by row, from mean field or from where the last fit ended."""
        n, units = states.shape
        matrix = dense_weights(network)
        if start is not None and "local" in start:
            local = start["local"].copy()
        else:
            means = MeanFieldUnits().fit_group(network, states, free, rng, None, clock).means
            local = np.array([local_points(network, matrix, row) for row in means])
        bounds, done = np.empty(n), np.zeros(n, dtype=bool)
        means, second = np.empty((n, units)), np.empty((n, units, units))
        for row in range(n):
            found = self._ascend(network, matrix, states[row], free, local[row], clock)
            bounds[row], means[row], second[row], local[row], done[row] = found
        return PosteriorFit(bounds, means, done, {"second": second, "local": local})

    def _ascend(
        self, network: SigmoidNetwork, matrix: Array, known: Array, free: Ints, local: Array,
        clock: Clock,
    ) -> tuple[float, Array, Array, Array, bool]:  # fmt: skip
        method, best = self._method(), None
        for _ in range(self.max_iter):
            require_time(clock)
            form = quadratic_form(network, matrix, known, free, local)
            bound, mean, second, done = _structured(method, form, known, free, clock)
            if best is not None and bound <= best[0] + self.tol:
                break
            best = (bound, mean, second, local, done)
            bias = network.parameters["bias"]
            squares = bias * (bias + 2.0 * mean @ matrix)
            squares = squares + np.einsum("li,lm,mi->i", matrix, second, matrix, optimize=True)
            local = np.sqrt(np.maximum(squares, 0.0))
        assert best is not None
        return best

    def gradient(self, network: SigmoidNetwork, states: Array, fit: PosteriorFit) -> Parameters:
        """The gradient of the sum of the bounds, blocks and local bounds held."""
        matrix, bias = dense_weights(network), network.parameters["bias"]
        to_weights, to_bias = np.zeros_like(matrix), np.zeros(network.n_units)
        for mean, second, local in zip(
            fit.means, fit.state["second"], fit.state["local"], strict=True
        ):
            add_quadratic_gradient(matrix, bias, mean, second, local, to_weights, to_bias)
        return {"weights": to_weights[network.tails, network.heads], "bias": to_bias}


def _structured(
    method: StructuredMeanField, form: QuadraticForm, known: Array, free: Ints, clock: Clock
) -> tuple[float, Array, Array, bool]:
    """Bound, means and mean products of all units (bits), and whether the blocks settled."""
    mean = np.where(np.isnan(known), 0.0, known)
    if not len(free):
        return form.spins.constant, mean, np.outer(mean, mean), True
    spins = form.spins
    rows, columns = form.pairs
    upper = rows < columns
    pairs: Any = {
        (int(i), int(j)): float(c)
        for i, j, c in zip(rows[upper], columns[upper], spins.couplings[upper], strict=True)
    }
    left = clock.seconds_left
    budget = Budget(seconds=left if 0 < left < math.inf else None)
    beliefs = method.run(ising(pairs, spins.fields), budget=budget)
    tables = beliefs.flat_factors
    mean[free] = beliefs.flat_marginals[1::2]
    second = np.outer(mean, mean)
    both = tables[2 * len(free) + 3 :: 4]
    i, j = free[rows[upper]], free[columns[upper]]
    second[i, j] = second[j, i] = both
    second[free, free] = mean[free]
    assert beliefs.log_z_lower is not None
    return beliefs.log_z_lower + spins.constant, mean, second, bool(beliefs.converged)
