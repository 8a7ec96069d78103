"""The run of an engine: its clock, its observed marginals, and the solution that it ends with."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from kikuchi.core import run as core_run
from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Clock
from kikuchi.core.progress import Progress
from kikuchi.core.run import Step
from kikuchi.core.trace import Trace
from kikuchi.engines.engine import Engine
from kikuchi.engines.start import Start
from kikuchi.graphs.factor_graph import Conditioned, FactorGraph

__all__ = ["Covariance", "FactorTables", "Joint", "MethodRun", "Solution", "Step", "rounding_error"]

FactorTables = Callable[[], Array]
Covariance = Callable[[Ints], Array]  # of the states of some variables
Joint = Callable[[list[int]], Array | None]  # of some variables, an axis each; None: not held


@dataclass
class Solution:
    """What `_solve` answers about the reduced graph; log-weights exclude `graph.log_constant`.

    `engine` is what the answer was read from, if its linear response and its state are those of the
    answer. `joint` gives the joint of some variables where the method holds it, else None; it goes
    into pickles, so it is a function of a module or a method of plain data, with its arguments.
    """

    marginals: Array
    log_z: float | None = None
    converged: bool = True
    iterations: int = 1
    log_z_lower: float | None = None
    log_z_upper: float | None = None
    factor_tables: FactorTables | None = None
    covariance: Covariance | None = None
    joint: Joint | None = None
    engine: Engine | None = None
    state: Ints | None = None
    score: float | None = None
    warnings: list[str] = field(default_factory=list)
    diagnostics: dict[str, Any] = field(default_factory=dict)


class MethodRun(core_run.Run):
    """A run of a method: besides the work in progress, the observed marginals.

    `targets` holds them by variable of the reduced graph; it is empty unless the method
    says `takes_observed_marginals`. `reduced` is the way back to the graph before evidence, for
    methods whose options or messages name variables. `start` is what an earlier run has reached,
    if this one is to go on from there. Bounds are recorded with their `rounding`.
    """

    def __init__(
        self,
        clock: Clock,
        progress: Progress,
        trace: Trace,
        offset: float,
        targets: dict[int, Array] | None = None,
        reduced: Conditioned | None = None,
        start: Start | None = None,
    ) -> None:
        super().__init__(clock, progress, trace, offset)
        self.start = start
        self.targets = targets or {}
        self.reduced = reduced

    @cached_property
    def rounding(self) -> float:
        """The most by which rounding can move a bound, in nats."""
        return 0.0 if self.reduced is None else rounding_error(self.reduced.original)

    @property
    def variables(self) -> Ints:
        """The numbers that the variables of the reduced graph have in the original."""
        return np.zeros(0, dtype=np.int64) if self.reduced is None else self.reduced.variables

    def record(self, step: Step, limit: int) -> None:
        """As any run, with the bounds moved outwards by what rounding may have taken from them."""
        if not (math.isnan(step.lower) and math.isnan(step.upper)):
            lower, upper = step.lower - self.rounding, step.upper + self.rounding
            step = replace(step, lower=lower, upper=upper)
        super().record(step, limit)


def rounding_error(graph: FactorGraph) -> float:
    """The most, in nats, by which rounding can move a figure of log Z of a graph.

    Such a figure, whatever the method, adds up logarithms of table entries, entropies and
    logarithms of sums. In all there are fewer than N = (states of all variables) + 2 (factors) +
    (entries of the largest table) additions and products one after the other on the way of any
    entry into it, and what is added up is at most S = sum_a max |log phi_a| + sum_i log |X_i| +
    |log constant| + N in absolute value; each operation errs by at most eps times its result.
    Hence N eps S, eps being twice the error of one operation.

    >>> rounding_error(FactorGraph([2], [((0,), [1, 3])])) < 1e-13
    True
    """
    sizes = np.abs(graph.log_tables)
    sizes[np.isinf(sizes)] = 0.0
    largest = np.maximum.reduceat(sizes, graph.table_offsets[:-1]) if graph.n_factors else sizes
    count = float(graph.state_offsets[-1]) + 2.0 * graph.n_factors
    count += float(np.diff(graph.table_offsets).max(initial=1))
    total = float(largest.sum()) + float(np.log(graph.cardinalities).sum())
    return float(np.finfo(np.float64).eps) * count * (total + abs(graph.log_constant) + count)
