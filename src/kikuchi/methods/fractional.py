"""Fractional belief propagation: mutual information weighted by the inverse of a fraction.

Reference: LIU-D6, LIU-I6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import MethodError
from kikuchi.engines.run import MethodRun, Solution
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.lists import numbers_of, numbers_text
from kikuchi.methods.method import more_damping, option
from kikuchi.methods.power_messages import SMALLEST, PowerMethod, pass_messages


@dataclass(frozen=True)
class FractionalBP(PowerMethod):
    """Fractional belief propagation: the reweighted free energy with weights 1 / fraction.

    The fixed points are those of `alpha` with alpha = fraction; the updates are the plain
    reweighted ones, without the built-in step of alpha-BP. fraction = 1 is belief propagation;
    fractions below 1 increase the weight of the mutual information and approach mean field, those
    above 1 decrease it, like tree-reweighted weights, which makes the free energy flatter and
    easier to minimise. `fraction` is one number, or one for each factor, `[0.5, 0.7, ...]` or
    `0.5/0.7/...`, all above 0. `log_z` is an estimate, not a bound: see `trw` for weights that give
    one.

    >>> import kikuchi as kk
    >>> ring = kk.boltzmann_graph({(0, 1): 2.0, (1, 2): -1.5, (2, 3): 1.0, (0, 3): 3.0}, [0.1] * 4)
    >>> round(FractionalBP(fraction=0.5).run(ring).log_z, 4)
    6.0908
    """

    name: ClassVar[str] = "fractional"
    summary: ClassVar[str] = "fractional BP: belief propagation with weighted mutual information"

    fraction: str | float | Sequence[float] = option(
        "0.8", "fraction of each factor: one number, or one per factor such as 0.8/1"
    )
    schedule: Literal["parallel", "sequential"] = option(
        "sequential", "order of updates: all at once, or variable by variable"
    )
    damping: float = option(0.0, "weight on the old log-message", low=0, below=1)
    tol: float = option(1e-9, "stop when no message changes by more than this; 0: never", low=0)
    max_iter: int = option(1000, "maximum number of sweeps over all messages", low=1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fraction", numbers_text(self.name, "fraction", self.fraction))
        super().__post_init__()

    def _powers(self, graph: FactorGraph, run: MethodRun) -> Array:
        assert isinstance(self.fraction, str)
        fraction = numbers_of(self.name, "fraction", self.fraction, run)
        many = np.diff(graph.scope_offsets) > 1
        if np.any(fraction[many] < SMALLEST):
            raise MethodError(
                f"method fractional: fractions must be above 0, got {fraction[many].min():g}; the "
                "limit at 0 is naive mean field, use mf"
            )
        return np.where(many, fraction, 1.0)

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        way_out = f"try {more_damping(self.damping)}, a larger fraction, or trw"
        return pass_messages(self, graph, run, self._powers(graph, run), 1.0, way_out)[0]
