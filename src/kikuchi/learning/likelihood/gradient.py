"""Maximum likelihood by gradients, with any inference inside.

Given `inputs`, it is that of the others conditionally on them: a conditional random field.

Reference: HOJ-L1, LIU-L1 to L3, LIU-L2, LIU-L3, LIU-L5, TEH-L1, TEH-X2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import MethodError
from kikuchi.core.options import option
from kikuchi.core.run import StepAborted
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.ascent import Ascent, check_bounded, few_rows
from kikuchi.learning.data import Data
from kikuchi.learning.graph_model import GraphModel, PenalisedRule, penalty
from kikuchi.learning.learner import FitRun, Learned, Learner
from kikuchi.learning.likelihood.objective import Likelihood, check_methods, input_variables
from kikuchi.learning.ties import FeatureMatrix, Parameters
from kikuchi.training.optimiser import Adam, Sgd
from kikuchi.training.rule import GradientEstimate, State

_LONGEST_STEP = 5.0  # nats that a parameter may move in the first trial of a step


@dataclass(frozen=True)
class GradientML(Learner):
    """Maximum likelihood by gradients, any inference inside.

    For every factor, the gradient by its log-table is how often each joint state occurs in the rows
    less how probable the model says it is. Missing cells make the first
    term an expectation too, clamped minus free. `inputs` are variables that are always
    observed: the conditional likelihood log p(rest | inputs) is then maximised. `l2` subtracts
    l2/2 |theta|^2 from the mean log-likelihood, a Gaussian prior of variance 1 / (l2 rows), `l1`
    subtracts l1 |theta|_1. Directed graphs keep normalised tables and need no free phase. With
    approximate inference the objective is that method's estimate, a surrogate.
    `correlations=response` takes pair probabilities from the linear response of `mf`, `tap`, `bp`
    and others, where their beliefs are worse; that is the gradient of no objective, so that it
    needs adam or sgd.

    >>> import kikuchi as kk
    >>> coin = kk.FactorGraph([2], [((0,), [1, 1])])
    >>> fit = GradientML().fit(coin, [[1], [1], [0], [1]])
    >>> kk.infer(fit.graph, "jt")[0].round(4).tolist()
    [0.25, 0.75]
    """

    name: ClassVar[str] = "gradient"
    takes_missing: ClassVar[bool] = True

    inference: str = option("auto", "method of the free phase; auto is exact where that is fast")
    correlations: Literal["beliefs", "response"] = option(
        "beliefs", "pairs of the free phase: the method's beliefs, or its linear response"
    )
    clamped: str = option("auto", "clamped phase of missing cells: auto, exact or a method")
    solver: Literal["lbfgs", "adam", "sgd"] = option("lbfgs", "how the objective is maximised")
    l1: float = option(0.0, "weight of the sum of |theta|, against the mean of a row", low=0)
    l2: float = option(0.0, "weight of half the sum of theta^2, against a row's mean", low=0)
    learning_rate: float = option(0.05, "step of adam and sgd", above=0)
    decay: float = option(0.0, "adam and sgd: the rate is divided by 1 + decay * epoch", low=0)
    batch: int | None = option(None, "rows in a step of adam and sgd; all by default", low=1)
    max_iter: int = option(500, "steps of lbfgs, passes over the rows of adam and sgd", low=1)
    tol: float = option(1e-6, "largest component of the gradient at convergence", low=0)
    memory: int = option(10, "pairs of steps that lbfgs remembers", low=1)
    precision: float = option(
        0.01,
        "adam and sgd: inner inference ends where it moves by this fraction of the largest slope; "
        "0 for its own tol",
        low=0,
        below=1,
    )
    inputs: str | None = option(None, "variables always observed, for a conditional model: a,b")
    ties: str | None = option(None, "factors that share a table: shape, or groups 0-3,8;4-7")
    features: FeatureMatrix | None = option(None, "log-linear features, from Python")
    on_divergence: str = option("damp", "inner inference: damp, continue, stop, or a method")
    seed: int = option(0, "order of the mini-batches", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.l1 and self.solver == "adam":
            raise MethodError("learner gradient: l1 needs solver lbfgs or sgd")
        if self.batch is not None and self.solver == "lbfgs":
            raise MethodError("learner gradient: batch needs solver adam or sgd")
        if self.correlations == "response" and self.solver == "lbfgs":
            raise MethodError(
                "learner gradient: correlations=response is no gradient of an objective, which "
                "lbfgs needs; use solver adam or sgd"
            )
        check_methods((self.inference, self.clamped), self.on_divergence)

    def _fit(self, graph: FactorGraph, data: Data, run: FitRun) -> Learned:
        rows = data.distinct() if self.batch is None else data
        parameters = Parameters(graph, self.ties, self.features)
        likelihood = Likelihood(
            graph,
            rows,
            run.clock,
            inference=self.inference,
            clamped=self.clamped,
            inputs=input_variables(graph, self.inputs),
            on_divergence=self.on_divergence,
            response=self.correlations == "response",
        )
        if self.solver == "lbfgs":
            learned, theta = self._quasi_newton(likelihood, parameters, run)
        else:
            learned, theta = self._stochastic(likelihood, parameters, run)
        learned.warnings += likelihood.warnings
        learned.diagnostics |= likelihood.diagnostics
        if parameters.matrix is not None:
            learned.diagnostics["theta"] = theta.tolist()
        return learned

    def _quasi_newton(
        self, likelihood: Likelihood, parameters: Parameters, run: FitRun
    ) -> tuple[Learned, Array]:
        ascent = Ascent(
            likelihood.graph,
            likelihood.data,
            parameters,
            likelihood.known_at,
            l1=self.l1,
            l2=self.l2,
            longest=_LONGEST_STEP,
            memory=self.memory,
            accepted=lambda tables: likelihood.follow(),
            beside=likelihood,
        )
        learned = ascent.maximise(run, tol=self.tol, limit=self.max_iter)
        return learned, ascent.point

    def _stochastic(
        self, likelihood: Likelihood, parameters: Parameters, run: FitRun
    ) -> tuple[Learned, Array]:
        graph, data = likelihood.graph, likelihood.data
        kind = Adam if self.solver == "adam" else Sgd
        done, learned = LikelihoodRule(self, likelihood).train(
            GraphModel(graph, self.ties, self.features),
            data,
            run,
            optimiser=kind(
                learning_rate=self.learning_rate, schedule=f"inverse-time:decay={self.decay}"
            ),
            batch_size=self.batch or data.n_rows,
        )
        theta = done.model.theta
        if done.state is not None:
            likelihood.load(done.state.rule)
        learned.warnings += few_rows(graph, data, parameters, self.l1, self.l2)
        likelihood.loosen(0.0)
        try:
            value, gradient = likelihood.at(learned.log_tables)
            value -= penalty(theta, self.l1, self.l2)
            if self.l1 == self.l2 == 0:
                slope = parameters.pull_back(learned.log_tables, gradient)
                check_bounded(learned, run, graph, data, parameters, slope)
        except StepAborted:  # no time is left: the mean over the last epoch
            value = run.trace.objective[-1] if len(run.trace) else np.nan
        learned.objective = None if np.isnan(value) else value
        return learned, theta


@dataclass(frozen=True)
class LikelihoodRule(PenalisedRule):
    """The gradient of the mean log-likelihood of a batch, by the inference of the learner."""

    name: ClassVar[str] = "likelihood"
    objective_name: ClassVar[str] = "log-likelihood per row"

    likelihood: Likelihood

    def begin(self, model: GraphModel, data: Any, rng: np.random.Generator) -> State:
        """How far inner inference has been damped."""
        return {**self.likelihood.to_arrays(), "slope": np.array(0.0)}

    def unpenalised(
        self, model: GraphModel, batch: Any, rows: Ints, state: State, rng: np.random.Generator
    ) -> GradientEstimate:
        """Clamped minus free statistics."""
        likelihood, tables = self.likelihood, model.tables
        likelihood.load(state)
        likelihood.loosen(self.learner.precision * float(state["slope"]))
        every = len(rows) == likelihood.data.n_rows
        value, gradient = likelihood.at(tables, None if every else rows)
        state.update(likelihood.to_arrays())
        state["slope"] = np.array(np.abs(gradient).max(initial=0.0))
        ascent = {"theta": model.map.pull_back(tables, gradient)}
        return GradientEstimate(ascent, None if np.isnan(value) else value)
