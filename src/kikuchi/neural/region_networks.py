"""Region-energy networks: RENN and the Inference Net, as inference methods.

As methods they serve learning too: `GradientML(inference="renn", optimiser="adam")`.

Reference: LIU-I14, LIU-I14b, LIU-I15, LIU-L4, LIU-M10.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import require_memory
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.inference.method import Method, MethodRun, Solution, Step, option
from kikuchi.inference.regions.engine import RegionBeliefs, region_beliefs
from kikuchi.inference.regions.generalised_bp import read_regions
from kikuchi.inference.regions.kikuchi import PenalisedEnergy
from kikuchi.neural.attention import NetworkDescent, network_bytes, padded_roots

_ADVICE = "more max_iterations, a larger penalty, or kikuchi, which minimises the same energy"


@dataclass(frozen=True)
class Renn(Method):
    r"""Region free energy over beliefs that a network writes down.

    The logits of the root beliefs are the outputs of a network with one embedding per variable, an
    attention layer and two residual blocks; smaller regions take the mean of their parents'
    marginals. Adam minimises F + penalty sum |b_R - marginal of each parent|^2 over the weights.
    The network does not see the tables and is trained anew for each model. `network=none` has free
    tables in its place, under the same optimiser and budget; `kikuchi` minimises the same energy
    with the agreement exact.

    The default penalty is one value for all models. `converged` means that the energy is stationary
    to `tol` nats, which the usual number of steps rarely reaches (a softmax can also stall where it
    has almost decided): the answer is then that of the lowest penalised energy seen, marked as not
    converged.

    >>> import kikuchi as kk
    >>> grid = kk.grid(3, 3, seed=1, coupling=0.5)
    >>> beliefs = kk.infer(grid, "renn:regions=faces,max_iterations=150")
    >>> exact = kk.infer(grid, "jt")
    >>> bool(abs(beliefs.flat_marginals - exact.flat_marginals).mean() < 0.05)
    True
    """

    name: ClassVar[str] = "renn"
    summary: ClassVar[str] = "region free energy over the beliefs of a network (RENN)"
    objective_name: ClassVar[str] = "Kikuchi log Z"

    regions: str = option("auto", "which regions; `kikuchi regions --help` lists them")
    penalty: float = option(5.0, "weight of the squared disagreement of regions", low=0)
    network: Literal["attention", "none"] = option(
        "attention", "what writes the root beliefs: the network, or free tables"
    )
    embedding: int = option(32, "numbers in the embedding of a variable", low=1)
    rate: float = option(0.003, "step size of Adam", above=0)
    tol: float = option(1e-3, "slope of the energy towards any state to stop at, nats", low=0)
    max_iterations: int = option(300, "most steps of Adam", low=1)
    seed: int = option(0, "seed of the first weights", low=0)

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        beliefs = region_beliefs(graph, self.regions, run)
        descent = _EnergyDescent(self, beliefs)
        iterations, converged = run.iterate(
            descent.steps(), tol=self.tol, limit=self.max_iterations
        )
        descent.restore()
        solution = read_regions(beliefs, iterations, converged, beliefs.disagreement(), _ADVICE)
        solution.diagnostics["penalty"] = self.penalty
        return solution


@dataclass(frozen=True)
class BetheNet(Renn):
    """Inference Net: the Bethe free energy over the beliefs of a network.

    The network of `renn` on the region graph of factors and variables.

    >>> import kikuchi as kk
    >>> grid = kk.grid(3, 3, seed=1, coupling=0.5)
    >>> beliefs = kk.infer(grid, "bethe-net:max_iterations=150")
    >>> bool(abs(beliefs.log_z - kk.infer(grid, "jt").log_z) < 1.0)
    True
    """

    name: ClassVar[str] = "bethe-net"
    summary: ClassVar[str] = "Bethe free energy over the beliefs of a network (Inference Net)"
    objective_name: ClassVar[str] = "Bethe log Z"

    regions: str = option("bethe", "which regions; the Bethe approximation by default")


class _Logits(Protocol):
    def logits(self) -> Array: ...

    def step(self, gradient: Array) -> Array: ...


class _FreeTables:
    """Adam on the logits themselves."""

    def __init__(self, size: int, rate: float, seed: int) -> None:
        self._logits = 0.01 * np.random.default_rng(seed).standard_normal(size)
        self._mean, self._square = np.zeros(size), np.zeros(size)
        self._rate, self._count = rate, 0

    def logits(self) -> Array:
        return self._logits

    def step(self, gradient: Array) -> Array:
        self._count += 1
        self._mean += 0.1 * (gradient - self._mean)
        self._square += 0.001 * (gradient**2 - self._square)
        size = np.sqrt(self._square / (1.0 - 0.999**self._count)) + 1e-8
        self._logits = self._logits - self._rate * self._mean / (1.0 - 0.9**self._count) / size
        return self._logits


class _EnergyDescent:
    """One run: the logits, the energy, and the beliefs of the lowest one so far."""

    def __init__(self, method: Renn, beliefs: RegionBeliefs) -> None:
        self.beliefs = beliefs
        self.energy = PenalisedEnergy(beliefs)
        self.energy.weight = method.penalty
        self.least = np.inf
        self.best = beliefs.b.copy()
        regions = beliefs.regions
        self.source: _Logits
        if method.network == "none":
            self.source = _FreeTables(self.energy.end, method.rate, method.seed)
        else:
            scopes = [regions.regions[r].variables for r in range(regions.n_roots)]
            sizes = regions.sizes[: regions.n_roots].astype(np.int64)
            padded = padded_roots(beliefs.graph.n_variables, scopes, sizes)
            require_memory(
                network_bytes(padded, method.embedding),
                f"a network over {beliefs.graph.n_variables} variables and {len(scopes)} regions",
                "give network=none, or use kikuchi",
            )
            self.source = NetworkDescent(padded, method.embedding, method.rate, method.seed)

    def steps(self) -> Iterator[Step]:
        alive = self.energy.alive
        logits = self.source.logits()
        gradient = np.zeros(self.energy.end)
        done = 0
        while True:
            value, slope = self.energy.value(logits[alive])
            done += 1
            if value < self.least:
                self.least = value
                self.best[:] = self.beliefs.b
            gradient[alive] = slope
            yield Step(done, self._gap(slope), -self.beliefs.free_energy())
            logits = self.source.step(gradient)

    def _gap(self, slope: Array) -> float:
        """By how much moving all of one root's belief to one state lowers the energy, per unit.

        The gradient in the logits is b (G - <b, G>), and vanishes also on the plateaus of the
        softmax; <b, G> - min G does not.
        """
        b = self.beliefs.b[: self.energy.end][self.energy.alive]
        if np.any(b == 0.0):
            return np.inf
        return float(-(slope / b).min())

    def restore(self) -> None:
        """Go back to the beliefs of the lowest penalised energy."""
        self.beliefs.b[:] = self.best
