"""Iterative scaling with the marginals of any method inside.

Reference: TEH-I13.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget
from kikuchi.core.errors import MethodError
from kikuchi.engines.dual_ascent import DualAscent, with_tilts
from kikuchi.engines.loops.state import Iterations, State
from kikuchi.engines.response.linear_response import Response
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.beliefs import Beliefs
from kikuchi.methods.method import Method


@dataclass(frozen=True, eq=False)
class ScalingPath:
    """Result of `plug_in_scaling`: tilts after each scaling, and the distance of the marginals from
    their targets.

    `tilts[t]` are the log-tilts of all observed variables, flat in the order of `variables`, each
    shifted so that its first entry is 0; for a binary variable the other entry is the change of its
    bias.
    """

    variables: tuple[int, ...]
    tilts: Array
    residuals: Array
    marginals: Array
    converged: bool


def plug_in_scaling(
    graph: FactorGraph,
    targets: Mapping[int, Array],
    method: Method,
    *,
    sweeps: int = 100,
    tol: float = 1e-9,
) -> ScalingPath:
    """Sequential scaling with the marginals of any method instead of the exact ones.

    Each scaling is followed by a run of `method` on the tilted model. In general no objective is
    maximised: with mean field it can cycle forever. With exact marginals it is the method `is`.

    `graph` is the model, `targets` are the target marginals by variable number; it ends after
    `sweeps` over them, or when none differs by more than `tol`.

    >>> from kikuchi import boltzmann_graph
    >>> from kikuchi.methods import Enumeration
    >>> pair = boltzmann_graph({(0, 1): 5.0}, [-2.5, -2.5])
    >>> wanted = {0: np.array([0.7, 0.3]), 1: np.array([0.7, 0.3])}
    >>> path = plug_in_scaling(pair, wanted, Enumeration(), sweeps=1000)
    >>> path.converged, (-2.5 + path.tilts[-1][[1, 3]]).round(6).tolist()
    (True, [-2.959466, -2.959466])
    """
    engine = MethodEngine(with_tilts(graph, targets), method)
    ascent = DualAscent(engine, graph, targets, Budget().start(), certifies=False)
    order = list(targets)
    tilts, residuals = [], []
    state = Iterations()
    converged = False
    for _ in range(sweeps * len(order) + 1):
        step = ascent.step(state)
        if step is None:
            break
        first = np.repeat(ascent.tilts[ascent.starts[:-1]], ascent.sizes)
        tilts.append(ascent.tilts - first)
        residuals.append(step.residual)
        if step.residual <= tol:
            converged = True
            break
    return ScalingPath(
        tuple(order), np.array(tilts), np.array(residuals), ascent.marginals, converged
    )


class MethodEngine:
    """Any method as an engine: each sweep is a run on the current tables."""

    def __init__(self, graph: FactorGraph, method: Method) -> None:
        self.graph = graph
        self.method = method
        self._beliefs: Beliefs | None = None

    @property
    def beliefs(self) -> Beliefs:
        """The result of the method for the current tables."""
        if self._beliefs is None:
            self._beliefs = self.method.run(self.graph)
        return self._beliefs

    @property
    def state(self) -> State:
        """An empty state, since a run cannot continue from it."""
        return State()

    def set_tables(self, log_tables: Array) -> None:
        """Use other log-tables."""
        self.graph = self.graph.replaced(log_tables=log_tables)
        self._beliefs = None

    def sweep(self, damping: float = 0.0) -> float:
        """Run the method; return 0 if it converged."""
        return 0.0 if self.beliefs.converged else math.inf

    def marginals(self) -> Array:
        """Marginals of all variables, flat."""
        return self.beliefs.flat_marginals

    def factor_marginals(self) -> Array:
        """Marginals of all factors, flat as the tables."""
        return self.beliefs.flat_factors

    def log_z(self) -> float:
        """Return the estimate of log Z, NaN if the method has none."""
        found = self.beliefs.log_z
        return math.nan if found is None else found - self.graph.log_constant

    def response(self) -> Response:
        """Return the response of the engine of the method, if it has one."""
        raise MethodError(f"{self.method.text} is run as a whole, and has no linear response here")
