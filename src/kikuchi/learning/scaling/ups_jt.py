"""Unified propagation and scaling on a junction tree (Algorithm 6.1).

Reference: TEH-L16, TEH-M26.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kikuchi.core.options import option
from kikuchi.core.run import Step
from kikuchi.graphs.elimination import Order
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.learner import FitRun, Learned
from kikuchi.learning.scaling.scaling import ScalingLearner, TargetMoments, TreeScaling
from kikuchi.learning.scaling.scaling_tree import ScalingTree


@dataclass(frozen=True)
class UnifiedScalingML(ScalingLearner):
    """Exact maximum likelihood of tables by one walk on a junction tree.

    A depth-first walk over the junction tree scales all factors of a clique when it first comes
    there and takes what it changed along to the next clique. The clique that is visited always
    holds its exact marginal under the present model, so each scaling is a step of IPF and the
    likelihood never falls; a sweep costs two propagations per separator where effective IPF (`ipf`)
    needs one for each pair of factor and separator. `diagnostics` counts both.

    >>> import numpy as np
    >>> pairs = [((0, 1), np.ones(4)), ((1, 2), np.ones(4)), ((0, 2), np.ones(4))]
    >>> rows = [[0, 0, 0], [0, 1, 1], [1, 1, 0], [1, 1, 1]]
    >>> fit = UnifiedScalingML(smoothing=1.0).fit(FactorGraph([2] * 3, pairs), rows)
    >>> fit.converged, round(fit.objective, 6)
    (True, -1.765028)
    """

    name: ClassVar[str] = "ups-jt"

    order: Order = option("min-fill", "elimination order of the junction tree")

    def _scale(self, graph: FactorGraph, wanted: TargetMoments, run: FitRun) -> Learned:
        base = self._start(graph)
        tree = ScalingTree(graph, run.clock.budget, log_tables=base, order=self.order)
        scaling = TreeScaling(self, base, tree, wanted)
        targets = wanted.tables

        def sweep() -> Step:
            scaling.record(tree.ups_sweep(targets.tables, targets.active, None))
            return scaling.step()

        return scaling.run(run, sweep)
