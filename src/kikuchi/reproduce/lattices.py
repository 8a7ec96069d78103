"""Random Boltzmann machines on square lattices with an observed border (TEH-E9, TEH-E10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.seeds import generator
from kikuchi.graphs.binary import boltzmann_graph
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.inference.messages.iterative_scaling import IterativeScaling


@dataclass(frozen=True, eq=False)
class ObservedLattice:
    """A Boltzmann machine on bits and the probabilities of 1 wanted of its border."""

    graph: FactorGraph
    targets: dict[int, float]

    @property
    def hidden(self) -> list[int]:
        """Variables inside the border."""
        return [v for v in range(self.graph.n_variables) if v not in self.targets]

    @property
    def marginals(self) -> dict[int, list[float]]:
        """The wanted marginals as evidence."""
        return {v: [1.0 - p, p] for v, p in self.targets.items()}

    @property
    def states(self) -> dict[int, int]:
        """The likelier state of each border variable, as hard evidence: a fair coin."""
        return {v: int(p > 0.5) for v, p in self.targets.items()}


def observed_lattice(
    side: int, seed: int, *, weight: float, bias: float, target: float
) -> ObservedLattice:
    """A lattice of `side` by `side` bits drawn as in section 5.7 of Teh's thesis.

    Weights W ~ N(0, weight^2); biases b_i ~ N(-sum_j W_ij / 2, bias^2), which keeps the means near
    1/2; wanted P(x_i = 1) = 1 / (1 + exp(a_i)) with a_i ~ N(0, target^2) for the border variables.

    >>> lattice = observed_lattice(5, 0, weight=5.0, bias=1.0, target=4.0)
    >>> lattice.graph.n_variables, len(lattice.targets), len(lattice.hidden)
    (25, 16, 9)
    """
    rng = generator(seed)
    edges = lattice_edges(side)
    weights = rng.normal(0.0, weight, len(edges))
    incoming = np.bincount(edges.ravel(), np.repeat(weights, 2), side * side)
    biases = rng.normal(-incoming / 2.0, bias)
    rows, cols = np.divmod(np.arange(side * side), side)
    border = (rows % (side - 1) == 0) | (cols % (side - 1) == 0)
    wanted = 1.0 / (1.0 + np.exp(rng.normal(0.0, target, int(border.sum()))))
    couplings = {(int(i), int(j)): float(w) for (i, j), w in zip(edges, weights, strict=True)}
    targets = dict(zip(np.flatnonzero(border).tolist(), wanted.tolist(), strict=True))
    return ObservedLattice(boltzmann_graph(couplings, biases), targets)


def lattice_edges(side: int) -> Ints:
    """Neighbours in a square lattice, numbered row by row.

    >>> lattice_edges(2).tolist()
    [[0, 1], [2, 3], [0, 2], [1, 3]]
    """
    number = np.arange(side * side).reshape(side, side)
    across = np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()], axis=1)
    down = np.stack([number[:-1].ravel(), number[1:].ravel()], axis=1)
    return np.concatenate([across, down])


def generalised_means(graph: FactorGraph, targets: Mapping[int, float]) -> tuple[Array, float]:
    """P(x = 1) of every bit in the distribution nearest to a machine that meets `targets`.

    Exact (TEH-M24), by the method `is`. Also answers how far a target is missed.

    >>> lattice = observed_lattice(3, 0, weight=1.0, bias=1.0, target=1.0)
    >>> means, missed = generalised_means(lattice.graph, lattice.targets)
    >>> missed < 1e-8, bool(abs(means[0] - lattice.targets[0]) < 1e-8)
    (True, True)
    """
    wanted = {v: [1.0 - p, p] for v, p in targets.items()}
    beliefs = IterativeScaling().run(graph, evidence=wanted)
    return beliefs.flat_marginals[1::2], float(beliefs.diagnostics["residual"])
