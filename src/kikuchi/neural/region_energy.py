"""Descent of the penalised region free energy over the logits of the root beliefs.

The logits are the outputs of a network or free tables, under the same optimiser. Inference
(`region_networks`) descends for one model; min-max learning (`min_max`) goes on while the model
changes.

Reference: LIU-I14, LIU-I14b, LIU-M10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import require_memory
from kikuchi.core.options import option
from kikuchi.core.run import Step
from kikuchi.engines.loops.state import Iterations, Part, State
from kikuchi.engines.regions.engine import RegionBeliefs
from kikuchi.engines.regions.penalty import PenalisedEnergy
from kikuchi.neural.attention import NetworkDescent, network_bytes, padded_roots


class Logits(Part, Protocol):
    """Protocol of the source of the logits of the root beliefs, and of steps against their
    gradient.
    """

    def logits(self) -> Array:
        """The present logits."""

    def step(self, gradient: Array) -> Array:
        """Make one step against the gradient; return the next logits."""


@dataclass(frozen=True)
class EnergySettings:
    """Options of a region free energy over the beliefs of a network."""

    regions: str = option("auto", "choice of regions; `kikuchi regions --help` lists them")
    penalty: float = option(5.0, "weight of the squared disagreement of regions", low=0)
    network: Literal["attention", "none"] = option(
        "attention", "what writes the root beliefs: the network, or free tables"
    )
    embedding: int = option(32, "numbers in the embedding of a variable", low=1)
    rate: float = option(0.003, "step size of Adam on the network", above=0)


@dataclass(eq=False, init=False)
class AdamVector(State):
    """Adam on a vector of numbers.

    >>> adam = AdamVector(np.zeros(2), 0.1)
    >>> adam.step(np.array([3.0, -0.5])).round(6).tolist()
    [-0.1, 0.1]
    """

    values: Array
    mean: Array
    square: Array
    count: int

    def __init__(self, start: Array, rate: float) -> None:
        self.values, self.rate = start, rate
        self.mean, self.square, self.count = np.zeros(len(start)), np.zeros(len(start)), 0

    def logits(self) -> Array:
        """The present values."""
        return self.values

    def step(self, gradient: Array) -> Array:
        """Make one step against the gradient; return the next values."""
        self.count += 1
        self.mean += 0.1 * (gradient - self.mean)
        self.square += 0.001 * (gradient**2 - self.square)
        size = np.sqrt(self.square / (1.0 - 0.999**self.count)) + 1e-8
        self.values = self.values - self.rate * self.mean / (1.0 - 0.9**self.count) / size
        return self.values


class EnergyDescent:
    """One descent: the logits, the energy, and the beliefs of the lowest one so far.

    Parameters
    ----------
    beliefs : RegionBeliefs
        The tables of all regions, which the descent writes.
    settings : EnergySettings
        Penalty, network (attention or none), embedding and rate.
    seed : int
        Seed of the first weights.
    """

    def __init__(self, beliefs: RegionBeliefs, settings: EnergySettings, seed: int) -> None:
        self.beliefs = beliefs
        self.energy = PenalisedEnergy(beliefs)
        self.energy.weight = settings.penalty
        self.least = np.inf
        self.best = beliefs.b.copy()
        self.source: Logits
        if settings.network == "none":
            rng = np.random.default_rng(seed)
            start = 0.01 * rng.standard_normal(self.energy.end)
            self.source = AdamVector(start, settings.rate)
        else:
            self.source = _network(beliefs, settings, seed)
        self._slope = np.zeros(0)

    def evaluate(self) -> float:
        """The penalised energy of the present logits; the beliefs are theirs afterwards."""
        value, self._slope = self.energy.value(self.source.logits()[self.energy.alive])
        return value

    def descend(self) -> None:
        """One step against the gradient of the last evaluation."""
        gradient = np.zeros(self.energy.end)
        gradient[self.energy.alive] = self._slope
        self.source.step(gradient)

    def step(self, state: Iterations) -> Step:
        """Descend, except at first, and evaluate; the beliefs of the lowest energy are kept."""
        if state.done:
            self.descend()
        value = self.evaluate()
        state.done += 1
        if value < self.least:
            self.least = value
            self.best[:] = self.beliefs.b
        return Step(state.done, self.gap(), -self.beliefs.free_energy())

    def gap(self) -> float:
        """By how much moving all of one root's belief to one state lowers the energy, per unit.

        The gradient in the logits is b (G - <b, G>), and vanishes also on the plateaus of the
        softmax; <b, G> - min G does not.
        """
        b = self.beliefs.b[: self.energy.end][self.energy.alive]
        if np.any(b == 0.0):
            return np.inf
        return float(-(self._slope / b).min())

    def take_best(self) -> None:
        """Go back to the beliefs of the lowest penalised energy."""
        self.beliefs.b[:] = self.best


def _network(beliefs: RegionBeliefs, settings: EnergySettings, seed: int) -> NetworkDescent:
    regions: Any = beliefs.regions
    scopes = [regions.regions[r].variables for r in range(regions.n_roots)]
    sizes = regions.sizes[: regions.n_roots].astype(np.int64)
    padded = padded_roots(beliefs.graph.n_variables, scopes, sizes)
    require_memory(
        network_bytes(padded, settings.embedding),
        f"a network over {beliefs.graph.n_variables} variables and {len(scopes)} regions",
        "give network=none or a smaller embedding, or use kikuchi",
    )
    return NetworkDescent(padded, settings.embedding, settings.rate, seed)
