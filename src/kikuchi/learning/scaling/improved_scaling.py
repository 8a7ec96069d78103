"""Improved iterative scaling: each feature by its own step.

Reference: TEH-L5, TEH-L18..
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.run import Step
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.learner import FitRun, Learned
from kikuchi.learning.scaling.scaling import FeatureLearner, FeatureScaling, TargetMoments
from kikuchi.learning.scaling.scaling_tree import ScalingTree
from kikuchi.learning.structure.features import Features

Sweep = Callable[[], Step]

_NEWTON_STEPS = 200
_NEWTON_TOL = 1e-14


class ImprovedScalingML(FeatureLearner):
    """Improved iterative scaling: features, each by its own step.

    delta_i solves E[s_i e^(t delta_i)] = S_i, where t is the sum of the features that are updated
    together. With `form=table` these are all of them, and tied parameters are allowed. With
    `form=tree` they are those of one factor, so that t is local, and the factors are visited along
    the walk of `ups-jt`: an IIS step takes the place of the scaling. The likelihood never falls.
    Where every factor's features sum to 1 a step of the tree is a step of IPF.

    >>> from kikuchi.learning.structure.features import Feature
    >>> graph = FactorGraph([2, 2], [((0, 1), np.ones(4))])
    >>> one, both = Feature.table((0, 1), [[0, 0], [1, 1]]), Feature.where((0, 1), (1, 1))
    >>> some = Features(graph, [both, one])
    >>> fit = ImprovedScalingML(features=some).fit(graph, [[0, 0], [1, 1], [0, 1], [1, 1], [1, 0]])
    >>> np.exp(fit.diagnostics["theta"]).round(6).tolist()
    [2.0, 1.0]
    """

    name: ClassVar[str] = "iis"

    def _scale(self, graph: FactorGraph, wanted: TargetMoments, run: FitRun) -> Learned:
        features = self._features(graph)
        base = self._start(graph)
        budget = run.clock.budget
        form = "table" if features.is_tied and self.form == "auto" else self.form
        tree = ScalingTree(graph, budget, log_tables=base, form=form, order=self.order)
        scaling = FeatureScaling(self, base, tree, wanted, features)
        whole = len(tree.cliques) == 1 and len(tree.cliques[0]) == graph.n_variables
        if whole and self.form != "tree":
            return scaling.run(run, self._together(scaling, budget))
        if features.is_tied:
            raise MethodError(
                "learner iis: a parameter that acts on several factors needs form=table; use gis "
                "or gradient on larger models"
            )
        return scaling.run(run, self._by_factor(scaling))

    def _by_factor(self, scaling: FeatureScaling) -> Sweep:
        tree, wanted = scaling.tree, scaling.wanted
        features = scaling.features.columns(), scaling.theta, np.empty_like(tree.work)

        def sweep() -> Step:
            moved = tree.ups_sweep(wanted.features, wanted.tables.active, features)
            tree.log_z += scaling.record(moved)
            return scaling.step()

        return sweep

    def _together(self, scaling: FeatureScaling, budget: Budget) -> Sweep:
        tree, wanted, features = scaling.tree, scaling.wanted, scaling.features
        split = _SplitByTotal(tree, features, budget)

        def sweep() -> Step:
            moments = split.moments()
            means = moments.sum(axis=1)
            distance = float(np.abs(means - wanted.features).max(initial=0.0))
            delta = improved_steps(moments, split.totals, wanted.features)
            scaling.state.theta += delta
            tree.add(features.log_tables(delta), wanted.tables.active)
            scaling.record((distance, 0.0, -1, 0, len(features)))
            return scaling.step()

        return sweep


class _SplitByTotal:
    """E[s_i 1(t = tau)] for all features and values tau of t, from the table of all states."""

    def __init__(self, tree: ScalingTree, features: Features, budget: Budget) -> None:
        self.tree = tree
        self.features = features
        s = tree.layout
        states = int(s.clique_at[1])
        self.maps = [s.maps[int(at) : int(at) + states] for at in s.factor_map]
        self.offsets = features.graph.table_offsets
        t = np.zeros(states)
        for a, states_of in enumerate(self.maps):
            t += features.entry_sums[self.offsets[a] + states_of]
        self.totals, self.which = np.unique(t.round(12), return_inverse=True)
        budget.require_bytes(
            8 * len(self.totals) * (len(features) + features.graph.log_tables.size),
            f"IIS with {len(self.totals)} different sums of features",
            "use gis, or form=tree",
        )

    def moments(self) -> Array:
        """One row per feature, one column per value of t."""
        p = self.tree.tables.p / self.tree.tables.p.sum()
        n = len(self.totals)
        parts = [
            np.bincount(
                states.astype(np.int64) * n + self.which,
                p,
                int(self.offsets[a + 1] - self.offsets[a]) * n,
            ).reshape(-1, n)
            for a, states in enumerate(self.maps)
        ]
        joint = np.concatenate([np.zeros((0, n)), *parts])
        return np.asarray(self.features.matrix.T @ joint)


def improved_steps(moments: Array, totals: Array, wanted: Array) -> Array:
    """delta_i with sum_tau moments[i, tau] e^(tau delta_i) = wanted[i], all by safeguarded Newton.

    -inf where nothing is wanted of a feature that is there.

    >>> improved_steps(np.array([[0.25, 0.5]]), np.array([0.0, 1.0]), np.array([1.25])).round(6)
    array([0.693147])
    """
    means = moments.sum(axis=1)
    if np.any((wanted > 0) & (means <= 0)):
        raise DataError(
            "targets: a feature shall have a positive mean, but the model excludes all states "
            "where it is not 0; give expectations of one distribution"
        )
    delta = np.where((wanted <= 0) & (means > 0), -np.inf, 0.0)
    live = np.flatnonzero(wanted > 0)
    if not live.size:
        return delta
    own, goal = moments[live], np.log(wanted[live])
    step = np.zeros(len(live))
    low, high = np.full(len(live), -np.inf), np.full(len(live), np.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(_NEWTON_STEPS):
            terms = np.where(own > 0, own * np.exp(totals * step[:, None]), 0.0)
            value = terms.sum(axis=1)
            off = np.log(value) - goal
            high = np.where(off > 0, np.minimum(high, step), high)
            low = np.where(off <= 0, np.maximum(low, step), low)
            if np.all(np.abs(off) <= _NEWTON_TOL):
                break
            new = step - off * value / (terms @ totals)
            outside = ~((new > low) & (new < high)) & np.isfinite(low) & np.isfinite(high)
            step = np.where(outside, 0.5 * (low + high), new)
    delta[live] = step
    return delta
