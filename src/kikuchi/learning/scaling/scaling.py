"""Maximum entropy by scaling, exact: IPF, GIS and IIS.

The distribution of largest entropy with given marginals on the factors' scopes is the one of
largest likelihood, P = exp(sum_a lambda_a) / Z, and scaling finds it without a step size. With a
base model P0 (`base=graph`) the distribution nearest to P0 is found, P = P0 exp(sum_a ...) / Z:
inference in P0 with observed joint marginals.

Reference: TEH-L5, TEH-L14, TEH-L15, TEH-L18, TEH-M25, TEH-X1.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.interrupts import safe_interrupts
from kikuchi.core.options import option
from kikuchi.core.progress import Progress
from kikuchi.core.run import Step
from kikuchi.engines.loops.iterate import iterate
from kikuchi.engines.loops.state import State
from kikuchi.graphs.elimination import Order
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.data import Data
from kikuchi.learning.fit import Fit
from kikuchi.learning.learner import FitRun, Learned, Learner, check_undirected
from kikuchi.learning.scaling.scaling_tree import Form, ScalingTree
from kikuchi.learning.scaling.targets import Targets
from kikuchi.learning.structure.features import Features, table_features

_ROUNDING = 1e-9


@dataclass(frozen=True)
class ScalingLearner(Learner):
    """What all scaling learners share: targets, base model, and what must hold for both."""

    base: Literal["none", "graph"] = option(
        "none", "model to stay close to: none (most entropy), or the graph's own tables"
    )
    smoothing: float = option(
        0.0, "rows spread over all states that are added to the data", low=0.0
    )
    tol: float = option(1e-9, "stop when no marginal is further than this from its target", above=0)
    max_iter: int = option(100_000, "most sweeps over all factors", low=1)

    @safe_interrupts()
    def fit_targets(
        self,
        graph: FactorGraph,
        targets: Targets | ArrayLike,
        *,
        budget: Budget | None = None,
        progress: Progress | None = None,
        checkpoint: str | Path | None = None,
    ) -> Fit:
        """Fit the tables of `graph` to wanted marginals instead of data: `targets` are `Targets`,
        or expectations of the features. `budget`, `progress` and `checkpoint` are those of `fit`.

        Factors without a target keep the tables of the base model. No data means no score.

        >>> graph = FactorGraph([2, 2], [((0, 1), np.ones(4)), ((0,), np.ones(2))])
        >>> fit = ProportionalFitting().fit_targets(graph, Targets.given(graph, {1: [0.2, 0.8]}))
        >>> fit.graph.table(1).round(6).tolist()
        [0.4, 1.6]
        """
        check_undirected(self.name, graph)
        wanted = self._target_moments(graph, targets)
        arrays = (wanted.tables.tables, wanted.features)
        run = FitRun(self, graph, arrays, budget, progress, checkpoint)
        return self._answer(graph, self._scale(graph, wanted, run), run, None)

    def _fit(self, graph: FactorGraph, data: Data, run: FitRun) -> Learned:
        check_undirected(self.name, graph)
        targets = Targets.of(graph, data, smoothing=self.smoothing)
        learned = self._scale(graph, self._target_moments(graph, targets), run)
        unseen = int(np.count_nonzero((targets.tables == 0) & np.isfinite(graph.log_tables)))
        if unseen and np.isneginf(learned.log_tables).any():
            learned.warnings.append(
                f"{unseen} table entries never occur in the data and became zeros: rows with them "
                "get probability 0; use smoothing to avoid that"
            )
        return learned

    @abstractmethod
    def _scale(self, graph: FactorGraph, wanted: TargetMoments, run: FitRun) -> Learned:
        """The learner itself."""

    def _target_moments(self, graph: FactorGraph, targets: Targets | ArrayLike) -> TargetMoments:
        if isinstance(targets, Targets):
            return TargetMoments.of(graph, targets, None)
        raise MethodError(f"learner {self.name} takes Targets, one table per factor")

    def _start(self, graph: FactorGraph) -> Array:
        """log-tables of the base model; zeros of the graph are zeros of every base."""
        if self.base == "graph":
            return np.array(graph.log_tables)
        return np.where(np.isneginf(graph.log_tables), -np.inf, 0.0)


@dataclass(frozen=True)
class TargetMoments:
    """What the scaling shall reach: tables, or expectations of features alone.

    `known` tells that the expected log-weights of factors with a target are known.
    """

    tables: Targets
    features: Array
    known: bool = True

    @classmethod
    def of(cls, graph: FactorGraph, targets: Targets, features: Features | None) -> TargetMoments:
        """From tables; features get their expectations under them."""
        same = np.array_equal(graph.table_offsets, targets.graph.table_offsets)
        if not same or not np.array_equal(graph.scopes, targets.graph.scopes):
            raise DataError("targets: they belong to another graph; make them for this one")
        means = np.zeros(0) if features is None else features.expectations(targets.tables)
        return cls(targets, means)

    def most_likelihood(self, base: Array) -> float:
        """What the objective cannot pass if some distribution q has what is wanted.

        E_q[log P] <= -H(q), and H(q) is at least the entropy of each target; what the objective
        leaves out, the mean of base tables without a target, is at least the sum of their minima.
        """
        targets = self.tables
        offsets = targets.graph.table_offsets
        bound = -targets.least_entropy
        for a in range(targets.graph.n_factors):
            if not (self.known and targets.active[a]):
                own = base[offsets[a] : offsets[a + 1]]
                bound -= float(own[np.isfinite(own)].min())
        return bound


@dataclass(eq=False)
class ScalingState(State):
    """All that the next sweep depends on: the tables of the cliques and of the separators, the
    weights that scaling has added, theta of the features if there are any, and the counters.
    """

    logarithms: ClassVar[tuple[str, ...]] = ("weights", "theta")

    p: Array
    s: Array
    weights: Array
    theta: Array
    log_z: float
    distance: float = np.inf
    sweeps: int = 0
    propagations: int = 0
    scalings: int = 0


class TreeScaling:
    """A scaling in progress: the tree, the counts, and what every learner reports."""

    def __init__(
        self,
        learner: ScalingLearner,
        base: Array,
        tree: ScalingTree,
        wanted: TargetMoments,
        n_features: int = 0,
    ) -> None:
        self.learner = learner
        self.base = base
        self.tree = tree
        self.wanted = wanted
        self.base_mean = wanted.tables.mean_of(base)
        self.bound = wanted.most_likelihood(base)
        tables, theta = tree.tables, np.zeros(n_features)
        self.state = ScalingState(tables.p, tables.s, tree.weights, theta, tree.log_z)
        self.sweeping = False  # Ctrl-C may end a sweep between two updates

    def objective(self) -> float:
        """Mean log-likelihood of a row: sum p (base + weights) - log Z."""
        return self.wanted.tables.mean_of(self.tree.weights) + self.base_mean - self.tree.log_z

    def record(self, answer: tuple[float, float, int, int, int]) -> float:
        """Take in the answer of a sweep; gives back its second figure, a change of log Z."""
        self.state.distance, gain, impossible, propagations, scalings = answer
        if impossible >= 0:
            raise impossible_target(int(impossible))
        self.state.sweeps += 1
        self.state.propagations += propagations
        self.state.scalings += scalings
        return gain

    def step(self) -> Step:
        """The report of a sweep; targets that no distribution has are noticed here."""
        value = self.objective()
        self.check(value)
        return Step(self.state.sweeps, residual=self.state.distance, objective=value)

    def check(self, value: float) -> None:
        """Refuse when the likelihood is higher than that of the targets themselves could be."""
        if value > self.bound + _ROUNDING * max(1.0, abs(value)):
            raise DataError(
                "targets: no distribution has them all: the log-likelihood rose to "
                f"{value:.6g}, above the {self.bound:.6g} that is possible; give marginals "
                "of one distribution"
            )

    def recalibrate(self) -> None:
        """Make the tables follow from the weights again, after a sweep that was cut short."""
        if self.sweeping:
            self.tree.load(self.base + self.tree.weights, strict=False)
            self.sweeping = False

    def run(self, run: FitRun, sweep: Callable[[], Step]) -> Learned:
        """Sweep until every target is met; then the answer."""
        state = self.state

        def step(state: ScalingState) -> Step:
            self.tree.log_z = state.log_z
            self.sweeping = True
            report = sweep()
            self.sweeping = False
            state.log_z = self.tree.log_z
            return report

        ended = iterate(
            step,
            state,
            run,
            tol=self.learner.tol,
            limit=self.learner.max_iter,
            store=run.store,
        )
        self.tree.log_z = state.log_z
        self.recalibrate()
        warnings = [] if ended.converged else [not_converged(state.distance, run.stopped)]
        return Learned(
            self.base + self.tree.weights,
            objective=self.objective(),
            converged=ended.converged,
            iterations=ended.iterations,
            warnings=warnings,
            diagnostics={
                "cliques": len(self.tree.cliques),
                "largest_clique": max(map(len, self.tree.cliques)),
                "propagations": state.propagations,
                "scalings": state.scalings,
                "distance": state.distance,
            },
        )


def impossible_target(factor: int) -> DataError:
    """The error for a target that asks for states which cannot occur."""
    return DataError(
        f"targets: factor {factor} wants weight on states that its other factors exclude (zeros of "
        "the tables or of other targets); give marginals of one distribution"
    )


def not_converged(distance: float, stopped: str) -> str:
    """The warning of a scaling that ended early."""
    return (
        f"not converged ({stopped}): the marginals are still up to {distance:.2g} from their "
        "targets; where data leave a table entry empty the weights go to infinity slowly: "
        "smoothing helps"
    )


# ---------------------------------------------------------------------- IPF


@dataclass(frozen=True)
class ProportionalFitting(ScalingLearner):
    """Iterative proportional fitting: exact maximum likelihood of tables.

    One factor after the other is scaled to its marginal in the data, lambda_a += log p_a - log P_a;
    the likelihood never falls. `form=table` keeps the table of all states; `form=tree` the cliques
    of a junction tree, which are all told of every scaling (effective IPF); `auto` takes the
    smaller. `ups-jt` reaches the same optimum with far fewer propagations.

    >>> pairs = [((0, 1), np.ones(4)), ((1, 2), np.ones(4)), ((0, 2), np.ones(4))]
    >>> rows = [[0, 0, 0], [0, 1, 1], [1, 1, 0], [1, 1, 1]]
    >>> fit = ProportionalFitting(smoothing=1.0).fit(FactorGraph([2] * 3, pairs), rows)
    >>> fit.converged, round(fit.objective, 6)
    (True, -1.765028)
    """

    name: ClassVar[str] = "ipf"

    form: Form = option("auto", "table of all states, junction tree, or the smaller")
    order: Order = option("min-fill", "elimination order of the junction tree")

    def _scale(self, graph: FactorGraph, wanted: TargetMoments, run: FitRun) -> Learned:
        base = self._start(graph)
        tree = ScalingTree(
            graph, run.clock.budget, log_tables=base, form=self.form, order=self.order
        )
        scaling = TreeScaling(self, base, tree, wanted)
        targets = wanted.tables

        def sweep() -> Step:
            scaling.record(tree.ipf_sweep(targets.tables, targets.active))
            return scaling.step()

        return scaling.run(run, sweep)


# ---------------------------------------------------------------------- features


@dataclass(frozen=True)
class FeatureLearner(ScalingLearner):
    """What GIS and IIS share: features, their targets, and theta."""

    features: Features | None = option(
        None, "Features of a log-linear model, in Python; without them all table entries are free"
    )
    form: Form = option("auto", "table of all states, junction tree, or the smaller")
    order: Order = option("min-fill", "elimination order of the junction tree")

    def _features(self, graph: FactorGraph) -> Features:
        if self.features is None:
            return table_features(graph)
        self.features.check_graph(graph)
        return self.features

    def _target_moments(self, graph: FactorGraph, targets: Targets | ArrayLike) -> TargetMoments:
        features = self._features(graph)
        if isinstance(targets, Targets):
            return TargetMoments.of(graph, targets, features)
        means = np.asarray(targets, dtype=np.float64)
        if means.shape != (len(features),) or not np.all(np.isfinite(means)) or np.any(means < 0):
            raise DataError(
                f"targets: one number from 0 up for each of {len(features)} features is needed, "
                f"got shape {means.shape}"
            )
        nothing = np.zeros(graph.log_tables.size)
        everywhere = np.ones(graph.n_factors, dtype=bool)
        return TargetMoments(Targets(graph, nothing, everywhere), means, known=False)


class FeatureScaling(TreeScaling):
    """A scaling of features: theta, from which the weights of the tables follow."""

    def __init__(
        self,
        learner: FeatureLearner,
        base: Array,
        tree: ScalingTree,
        wanted: TargetMoments,
        features: Features,
    ) -> None:
        super().__init__(learner, base, tree, wanted, len(features))
        self.features = features

    @property
    def theta(self) -> Array:
        """The parameters of the features."""
        return self.state.theta

    def objective(self) -> float:
        """theta . S + mean of the base - log Z; without the middle one if only S is known."""
        finite = np.where(self.wanted.features > 0, self.theta, 0.0)
        return float(finite @ self.wanted.features) + self.base_mean - self.tree.log_z

    def recalibrate(self) -> None:
        """Weights follow from theta."""
        if self.sweeping:
            self.tree.weights[:] = self.features.log_tables(self.theta)
        super().recalibrate()

    def run(self, run: FitRun, sweep: Callable[[], Step]) -> Learned:
        """The answer has theta by feature."""
        learned = super().run(run, sweep)
        if self.features.features and not self.learner_is_full:
            learned.diagnostics["theta"] = self.theta.tolist()
        return learned

    @property
    def learner_is_full(self) -> bool:
        """Whether the features are just the table entries."""
        assert isinstance(self.learner, FeatureLearner)
        return self.learner.features is None


class GeneralisedScalingML(FeatureLearner):
    """Generalised iterative scaling: features, all at once.

    theta_i += log(S_i / E[s_i]) / T where the features of every state sum to T; if they do not, a
    slack feature fills them up. Tied parameters are allowed. The likelihood never falls. Without
    `features` every table entry is one, and T is the number of factors.

    >>> from kikuchi.learning.structure.features import Feature
    >>> graph = FactorGraph([2, 2], [((0, 1), np.ones(4))])
    >>> equal = Features(graph, [Feature.table((0, 1), np.eye(2))])
    >>> fit = GeneralisedScalingML(features=equal).fit(graph, [[0, 0], [1, 1], [0, 1], [1, 1]])
    >>> fit.graph.log_table(0).round(6).tolist()
    [[1.098612, 0.0], [0.0, 1.098612]]
    """

    name: ClassVar[str] = "gis"

    def _scale(self, graph: FactorGraph, wanted: TargetMoments, run: FitRun) -> Learned:
        features = self._features(graph)
        base = self._start(graph)
        tree = ScalingTree(
            graph, run.clock.budget, log_tables=base, form=self.form, order=self.order
        )
        scaling = FeatureScaling(self, base, tree, wanted, features)
        rule = _GeneralisedSteps(features, wanted)

        def sweep() -> Step:
            means = features.expectations(tree.factor_marginals())
            delta = rule.steps(means)
            scaling.state.theta += delta
            tree.add(features.log_tables(delta), wanted.tables.active)
            distance = float(np.abs(means - wanted.features).max(initial=0.0))
            scaling.record((distance, 0.0, -1, 2 * len(tree.separators), len(features)))
            return scaling.step()

        return scaling.run(run, sweep)


class _GeneralisedSteps:
    """The steps of GIS: the bound T, and the correction by the slack feature."""

    def __init__(self, features: Features, wanted: TargetMoments) -> None:
        self.features = features
        self.wanted = wanted.features
        at = features.graph.table_offsets
        sums = [features.entry_sums[at[a] : at[a + 1]] for a in range(features.graph.n_factors)]
        self.bound = float(sum(part.max() for part in sums))
        self.constant = all(np.ptp(part) <= 1e-12 * part.max(initial=1.0) for part in sums)
        if not self.constant and self.bound - self.wanted.sum() <= 1e-6 * self.bound:
            self.bound *= 1.25  # any bound will do, but the slack must not be wanted empty

    def steps(self, means: Array) -> Array:
        """delta of every feature; -inf where it must vanish."""
        short = np.flatnonzero((self.wanted > 0) & (means <= 0))
        if short.size:
            raise DataError(
                f"targets: feature {self.features.label(int(short[0]))} shall have mean "
                f"{self.wanted[short[0]]:.3g}, but the model excludes all states where it is not 0"
            )
        delta = np.where(means > 0, -np.inf, 0.0)
        live = self.wanted > 0
        delta[live] = np.log(self.wanted[live] / means[live]) / self.bound
        if not self.constant:
            slack = self.bound - self.wanted.sum()
            if slack <= 0:
                raise DataError(
                    "targets: the wanted means sum to more than the features can; give "
                    "expectations of one distribution"
                )
            delta -= np.log(slack / (self.bound - means.sum())) / self.bound
        return delta
