"""Weighted mini-buckets: certified upper and lower bounds on log Z that tighten with the i-bound.

Bucket elimination with its buckets split into mini-buckets of at most `ibound` + 1 variables, which
share each variable by Hölder's inequality: all weights positive bound log Z from above, all but one
negative from below. Cost shifts between the mini-buckets of a variable, over all that they have in
common, and the weights are optimised by L-BFGS on the exact gradient, which a forward and a
backward pass give (`bounds`). Every point on the way is a bound.

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

    `ibound` is the most variables that a message may have; tables have one more. Without it the
    largest is taken whose tables have a modest size, smaller where the budget has few seconds or
    bytes. Once it reaches the width of the order the answer is exact. Several random orders are
    tried by successive halving: after 8, 16, 32, ... iterations the worse half of them is dropped,
    for each bound on its own.
    The lower bound, which is not concave, is also sought by way of weakened factors.

    `log_z` is the middle of the bounds (or the one bound that was asked for). Marginals and factor
    beliefs are those of the mini-buckets at the upper bound (with `bound="lower"`, at the lower
    one); those of one variable agree as far as the search has converged. It has once 10
    iterations together gain less than `tol` nats on each bound.

    With `ibound=1` on a pairwise model the mini-buckets are trees: the upper bound is then of the
    tree-reweighted kind, the lower one, a single positive weight, its negative.

    A zero in a mini-bucket of negative weight forbids all that it meets, so models with many zeros
    may have no finite lower bound of this kind. It is then sought for the model restricted to
    likely states that exclude each other nowhere, a far looser bound; if none are found either it
    is None and a warning says so.

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

    ibound: int | None = option(None, "most variables of a message; none chooses by size", low=0)
    bound: Literal["both", "upper", "lower"] = option("both", "which bounds to seek")
    order: SplitOrder = option("min-split", "elimination order")
    orders: int = option(16, "orders that are tried, fewer where tables are large", low=1)
    tol: float = option(1e-5, "stop when ten iterations gain less than this many nats", low=0.0)
    max_iter: int = option(1000, "most steps of each search", low=0)
    seed: int = option(0, "seed of the ties in the orders after the first", low=0)

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        live = live_graph(graph)
        if self.bound == "lower":
            run.trace.objective_name = "lower bound"
        if live.graph.n_factors == 0:
            return _decided(live)
        return MiniBucketSearch(self, live, run).solution()


def _decided(live: LiveGraph) -> Solution:
    """Zeros decide every factor: what is left is uniform, and exact."""
    cards = live.graph.cardinalities
    log_z = live.constant
    return Solution(
        live.marginals(np.repeat(1.0 / cards, cards)),
        log_z,
        log_z_lower=log_z,
        log_z_upper=log_z,
        factor_tables=lambda: live.factor_tables(np.zeros(0)),
    )
