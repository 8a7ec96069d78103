"""Maximum likelihood by gradients, with any inference inside (TEH-L1, LIU-L1 to L3, L5, HOJ-L1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.errors import MethodError
from kikuchi.core.options import option
from kikuchi.core.run import State, Step
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.ascent import Ascent, few_rows, penalised
from kikuchi.learning.data import Data
from kikuchi.learning.learner import FitRun, Learned, Learner
from kikuchi.learning.likelihood.objective import Likelihood, check_methods, input_variables
from kikuchi.learning.stochastic import StochasticSteps
from kikuchi.learning.ties import FeatureMatrix, Parameters

Array = NDArray[np.float64]

_LONGEST_STEP = 5.0  # nats that a parameter may move in the first trial of a step


@dataclass(frozen=True)
class GradientML(Learner):
    """Gradient ascent of the mean log-likelihood; its gradient is data minus model expectations.

    For every factor, the gradient by its log-table is how often each joint state occurs in the rows
    less how probable the model says it is (TEH-L1, LIU-L2, HOJ-L1). Missing cells make the first
    term an expectation too, clamped minus free (LIU-L5). `inputs` are variables that are always
    observed: the conditional likelihood log p(rest | inputs) is then maximised. `l2` subtracts
    l2/2 |theta|^2 from the mean log-likelihood, a Gaussian prior of variance 1 / (l2 rows)
    (LIU-L3), `l1` subtracts l1 |theta|_1. Directed graphs keep normalised tables and need no free
    phase. With approximate inference the objective is that method's estimate, a surrogate.
    `correlations=response` takes pair probabilities from the linear response of `mf`, `tap`, `bp`
    and others, where their beliefs are worse (HOJ-L1); that is the gradient of no objective, so
    that it needs adam or sgd.

    >>> import kikuchi as kk
    >>> coin = kk.FactorGraph([2], [((0,), [1, 1])])
    >>> fit = GradientML().fit(coin, [[1], [1], [0], [1]])
    >>> kk.infer(fit.graph, "jt")[0].round(4).tolist()
    [0.25, 0.75]
    """

    name: ClassVar[str] = "gradient"
    summary: ClassVar[str] = "maximum likelihood by gradients, any inference inside"
    takes_missing: ClassVar[bool] = True

    inference: str = option("auto", "method of the free phase; auto is exact where that is fast")
    correlations: Literal["beliefs", "response"] = option(
        "beliefs", "pairs of the free phase: the method's beliefs, or its linear response"
    )
    clamped: str = option("auto", "clamped phase of missing cells: auto, exact or a method")
    optimiser: Literal["lbfgs", "adam", "sgd"] = option("lbfgs", "how the objective is maximised")
    l1: float = option(0.0, "weight of the sum of |theta|, against the mean of a row", low=0)
    l2: float = option(0.0, "weight of half the sum of theta^2, against a row's mean", low=0)
    learning_rate: float = option(0.05, "step of adam and sgd", above=0)
    decay: float = option(0.0, "adam and sgd: the rate is divided by 1 + decay * epoch", low=0)
    batch: int | None = option(None, "rows in a step of adam and sgd; all by default", low=1)
    epochs: int = option(500, "steps of lbfgs, passes over the rows of adam and sgd", low=1)
    tol: float = option(1e-6, "largest component of the gradient at convergence", low=0)
    memory: int = option(10, "pairs of steps that lbfgs remembers", low=1)
    inputs: str | None = option(None, "variables always observed, for a conditional model: a,b")
    ties: str | None = option(None, "factors that share a table: shape, or groups 0-3,8;4-7")
    features: FeatureMatrix | None = option(None, "log-linear features, from Python")
    on_divergence: str = option("damp", "inner inference: damp, continue, stop, or a method")
    seed: int = option(0, "order of the mini-batches", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.l1 and self.optimiser == "adam":
            raise MethodError("learner gradient: l1 needs optimiser lbfgs or sgd")
        if self.batch is not None and self.optimiser == "lbfgs":
            raise MethodError("learner gradient: batch needs optimiser adam or sgd")
        if self.correlations == "response" and self.optimiser == "lbfgs":
            raise MethodError(
                "learner gradient: correlations=response is no gradient of an objective, which "
                "lbfgs needs; use optimiser adam or sgd"
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
        if run.resumed is not None:
            likelihood.restore(run.resumed["levels"])
        if self.optimiser == "lbfgs":
            learned, theta = self._quasi_newton(likelihood, parameters, run)
        else:
            ascent = _StochasticAscent(self, likelihood, parameters, run)
            learned, theta = ascent.learned(), ascent.kept_theta
        learned.warnings += few_rows(graph, data, parameters, self.l1, self.l2)
        learned.warnings += likelihood.warnings
        learned.diagnostics |= likelihood.diagnostics
        if parameters.matrix is not None:
            learned.diagnostics["theta"] = theta.tolist()
        return learned

    def _quasi_newton(
        self, likelihood: Likelihood, parameters: Parameters, run: FitRun
    ) -> tuple[Learned, Array]:
        ascent = Ascent(
            parameters,
            likelihood.known_at,
            l1=self.l1,
            l2=self.l2,
            longest=_LONGEST_STEP,
            memory=self.memory,
            rounding=0.0,
            extra=lambda: {"levels": likelihood.levels},
        )
        learned = ascent.maximise(run, tol=self.tol, limit=self.epochs)
        if ascent.stuck and not learned.converged:
            learned.warnings.append(
                "no better point along the gradient: objective and gradient of the inner inference "
                f"agree no further (largest component left {ascent.residual:.1e}, "
                f"tol {self.tol:g})"
            )
        return learned, ascent.point


class _StochasticAscent:
    """Adam or gradient ascent, in mini-batches."""

    def __init__(
        self, learner: GradientML, likelihood: Likelihood, parameters: Parameters, run: FitRun
    ) -> None:
        assert learner.optimiser != "lbfgs"
        self.learner, self.likelihood, self.parameters = learner, likelihood, parameters
        self.run = run
        self.done = 0 if run.resumed is None else int(run.resumed["done"])
        self.ascent = StochasticSteps(
            learner.optimiser,
            parameters.start,
            rate=learner.learning_rate,
            decay=learner.decay,
            l1=learner.l1,
            seed=learner.seed,
            state=run.resumed,
        )
        self.value, self.gradient = np.nan, np.zeros(0)
        self.kept_theta = self.ascent.theta

    def learned(self) -> Learned:
        """Ascend and answer."""
        done, converged = self.run.iterate_saving(
            self._steps(),
            self._state,
            self.run.checkpoint,
            tol=self.learner.tol,
            limit=self.learner.epochs,
        )
        value = None if np.isnan(self.value) else self.value
        return Learned(self.parameters.tables(self.kept_theta), value, converged, done)

    def _steps(self) -> Iterator[Step]:
        yield self._report()
        while True:
            for rows in self.ascent.batches(self.likelihood.data.n_rows, self.learner.batch):
                self.ascent.step(
                    self.gradient if rows is None else self._at(self.ascent.theta, rows)[1]
                )
            self.ascent.epoch += 1
            self.done += 1
            yield self._report()

    def _at(self, theta: Array, rows: NDArray[np.int64] | None = None) -> tuple[float, Array]:
        objective = partial(self.likelihood.at, rows=rows)
        return penalised(objective, self.parameters, theta, self.learner.l2)

    def _report(self) -> Step:
        """Objective and gradient over all rows, and the point that is kept."""
        theta = self.ascent.theta
        value, self.gradient = self._at(theta)
        self.value = value - self.learner.l1 * float(np.abs(theta).sum())
        self.kept_theta = theta
        return Step(self.done, residual=self._residual(theta), objective=self.value)

    def _residual(self, theta: Array) -> float:
        l1, g = self.learner.l1, self.gradient
        at_zero = np.sign(g) * np.maximum(np.abs(g) - l1, 0.0)
        slope = np.where(theta == 0, at_zero, g - l1 * np.sign(theta))
        return float(np.abs(slope).max(initial=0.0))

    def _state(self) -> State:
        return {
            **self.ascent.state,
            "done": np.array(self.done),
            "levels": self.likelihood.levels,
        }
