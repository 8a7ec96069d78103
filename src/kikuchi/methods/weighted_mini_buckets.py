"""Weighted mini-buckets: certified upper and lower bounds on log Z that tighten with the i-bound.

Bucket elimination with its buckets split into mini-buckets of at most `ibound` + 1 variables, which
share each variable by Hölder's inequality: positive weights bound log Z from above; weights that
are all negative except one bound it from below. Cost shifts between the mini-buckets of a variable,
over all their common variables, and the weights are optimised by L-BFGS on the exact gradient from
a forward and a backward pass (`bounds`). Every iterate is a bound.

Reference: LIU-I17.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from kikuchi.core.options import option
from kikuchi.engines.mini_buckets.plan import MiniBucketPlan, SplitOrder, mini_bucket_plan
from kikuchi.engines.mini_buckets.successive_halving import MiniBucketSearch
from kikuchi.engines.mini_buckets.support import LiveGraph, live_graph
from kikuchi.engines.run import MethodRun, Solution
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.method import Method

__all__ = ["MiniBucketPlan", "WeightedMiniBuckets", "mini_bucket_plan"]


@dataclass(frozen=True)
class WeightedMiniBuckets(Method):
    """Upper and lower bounds on log Z by weighted mini-bucket elimination (Liu and Ihler 2011).

    `ibound` is the maximum number of variables of a message; tables have one more. By default it is
    the largest with tables of modest size, smaller if the budget has few seconds or bytes. If it
    reaches the width of the order, the result is exact. Several random orders are tried by
    successive halving: after 8, 16, 32, ... iterations the worse half is dropped, separately for
    each bound. The lower bound, which is not concave, is also optimised through a sequence of
    weakened factors.

    `log_z` is the midpoint of the bounds (or the single requested bound). Marginals and factor
    beliefs are those of the mini-buckets at the upper bound (with `bound="lower"`, at the lower
    one); those of one variable agree up to convergence. The search has converged when 10 iterations
    together gain less than `tol` nats on each bound.

    With `ibound=1` on a pairwise model the mini-buckets are trees: the upper bound is then of the
    tree-reweighted kind, and the lower one, with a single positive weight, its negative
    counterpart.

    A zero in a mini-bucket of negative weight forbids all states that contain it, so models with
    many zeros may have no finite lower bound of this kind. Then the model is restricted to likely
    states that never exclude each other, which gives a much looser bound; if there are none, the
    bound is None and a warning is issued.

    >>> import kikuchi as kk
    >>> grid = kk.grid(5, 5, seed=0)
    >>> beliefs = kk.infer(grid, "wmb:ibound=3")
    >>> beliefs.log_z_lower <= kk.infer(grid, "jt").log_z <= beliefs.log_z_upper
    True
    """

    name: ClassVar[str] = "wmb"
    summary: ClassVar[str] = "weighted mini-buckets: certified bounds on log Z from both sides"
    objective_name: ClassVar[str] = "upper bound"
    certifies = ("lower", "upper")

    ibound: int | None = option(
        None, "maximum number of variables of a message; none: chosen by size", low=0
    )
    bound: Literal["both", "upper", "lower"] = option("both", "bounds to compute")
    order: SplitOrder = option("min-split", "elimination order")
    orders: int = option(16, "number of orders tried, fewer if tables are large", low=1)
    tol: float = option(1e-5, "stop when ten iterations gain less than this many nats", low=0.0)
    max_iter: int = option(1000, "maximum number of steps of each search", low=0)
    seed: int = option(0, "seed of the ties in the orders after the first", low=0)

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        live = live_graph(graph)
        if self.bound == "lower":
            run.trace.objective_name = "lower bound"
        if live.graph.n_factors == 0:
            return _decided(live)
        return MiniBucketSearch(self, live, run).solution()


def _decided(live: LiveGraph) -> Solution:
    """Return the exact result if zeros determine every factor: a uniform distribution."""
    cards = live.graph.cardinalities
    log_z = live.constant
    return Solution(
        live.marginals(np.repeat(1.0 / cards, cards)),
        log_z,
        log_z_lower=log_z,
        log_z_upper=log_z,
        factor_tables=lambda: live.factor_tables(np.zeros(0)),
    )
