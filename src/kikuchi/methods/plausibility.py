"""Compare the log Z of a region method with belief propagation and with mean field.

Region free energies are not bounds, and a converged run may be at a poor fixed point or use
unsuitable regions. Two cheap runs detect most such cases: log Z must not be below the lower bound L
of mean field, and regions that correct belief propagation change its log Z by a fraction of the
difference between belief propagation and L.

Measured on 480 random models with known log Z (complete, random, grids, triples of variables, two
or three states, weak to strong couplings) and 13 choices of method and regions. Poor means an error
of more than 0.2 nats, and of 0.1 more than that of belief propagation. Converged runs that gave no
other warning:

| belief propagation | warned if the distance exceeds | poor ones found | others warned of |
|---|---|---|---|
| converged | max(0.5, 0.25 (bp - L)) | 42 of 57 | 53 of 4343 |
| not converged | max(1, bp - L) | 21 of 92 | 19 of 499 |

With max(1, 0.5 (bp - L)) in the first row it would be 35 of 57 and 7 of 4343.
"""

from __future__ import annotations

from kikuchi.core.errors import BudgetError
from kikuchi.core.progress import silent
from kikuchi.core.trace import Trace
from kikuchi.engines.run import MethodRun, Solution
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.belief_propagation import BeliefPropagation
from kikuchi.methods.mean_field import MeanField
from kikuchi.methods.method import Method

_PROPAGATION = BeliefPropagation(max_iter=100, tol=1e-4)
_MEAN_FIELD = MeanField(restarts=0, max_iter=20, tol=1e-4)
_NEAR, _PART = (
    0.5,
    0.25,
)  # nats, and fraction of the difference between propagation and the lower bound
_SLACK = 1e-6  # of log Z, or nats
_TIME = 0.1  # fraction of the remaining seconds that the comparison may take


def warn_if_implausible(graph: FactorGraph, solution: Solution, run: MethodRun) -> None:
    """Add a warning to a converged `solution` whose log Z is below the bound of mean field, or far
    from that of belief propagation.
    """
    log_z = solution.log_z
    if log_z is None or not solution.converged or run.targets:
        return
    try:
        field, propagated = (_quick(m, graph, run) for m in (_MEAN_FIELD, _PROPAGATION))
    except BudgetError:
        return  # no time for a comparison: no warning
    lower, bethe = field.log_z_lower, propagated.log_z
    shift = graph.log_constant
    if lower is not None and log_z < lower - _SLACK * max(1.0, abs(lower)):
        solution.warnings.append(
            f"log Z {log_z + shift:.6g} is below the lower bound {lower + shift:.6g} of `mf`: "
            "these marginals are not reliable; use kikuchi, bp, or auto for bounds"
        )
        return
    if bethe is None or lower is None:
        return
    scale = 1.0 if propagated.converged else 1.0 / _PART
    far = max(_NEAR * min(scale, 2.0), _PART * scale * (bethe - lower))
    if abs(log_z - bethe) > far:
        state = "" if propagated.converged else ", which does not converge"
        solution.warnings.append(
            f"log Z {log_z + shift:.6g} is far from the {bethe + shift:.6g} of bp{state}: one of "
            "them is inaccurate; compare with regions=cycles and with the bounds of auto"
        )


def _quick(method: Method, graph: FactorGraph, run: MethodRun) -> Solution:
    """Run another method within a fraction of the remaining time of `run`."""
    beside = MethodRun(run.clock.left(_TIME).start(), silent, Trace(), 0.0)
    return method.solve(graph, beside)
