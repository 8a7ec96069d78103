"""Maximum likelihood by gradients, with any inference inside (TEH-L1, LIU-L1 to L3, L5, HOJ-L1)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.errors import MethodError
from kikuchi.core.lbfgs import Lbfgs
from kikuchi.core.options import option
from kikuchi.core.run import Step
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.inference.registry import parse_method
from kikuchi.learning.ascent import few_rows
from kikuchi.learning.checkpoint import State
from kikuchi.learning.data import Data
from kikuchi.learning.learner import FitRun, Learned, Learner
from kikuchi.learning.likelihood.objective import Diverged, Likelihood, TimeOver, input_variables
from kikuchi.learning.stochastic import Ascent
from kikuchi.learning.ties import FeatureMatrix, Parameters

Array = NDArray[np.float64]

_LONGEST = 5.0  # nats that a parameter may move in the first trial of a step


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
    optimiser: Literal["lbfgs", "adam", "sgd"] = option("lbfgs", "how the objective is climbed")
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
        for text in (self.inference, self.clamped):
            if text not in ("auto", "exact"):
                parse_method(text)
        if self.on_divergence not in ("damp", "continue", "stop"):
            parse_method(self.on_divergence)

    def _fit(self, graph: FactorGraph, data: Data, run: FitRun) -> Learned:
        rows = data.distinct() if self.batch is None else data
        parameters = Parameters(graph, self.ties, self.features)
        likelihood = Likelihood(
            graph,
            rows,
            parameters,
            run.clock,
            inference=self.inference,
            clamped=self.clamped,
            inputs=input_variables(graph, self.inputs),
            on_divergence=self.on_divergence,
            l2=self.l2,
            response=self.correlations == "response",
        )
        if run.resumed is not None and not len(run.resumed):
            run.resumed = None
        if run.resumed is not None:
            likelihood.restore(run.resumed["levels"])
        notes = few_rows(graph, data, parameters, self.l1, self.l2)
        climb = _Quasi if self.optimiser == "lbfgs" else _Stochastic
        return climb(self, likelihood, run, notes).learned()


class _Climb(ABC):
    """What both ways to climb share: the generator of steps, the state, the answer."""

    def __init__(
        self, learner: GradientML, likelihood: Likelihood, run: FitRun, notes: list[str]
    ) -> None:
        self.learner, self.likelihood, self.run, self.notes = learner, likelihood, run, notes
        self.resumed = run.resumed
        self.done = 0 if self.resumed is None else int(self.resumed["done"])
        self.levels = likelihood.levels

    def learned(self) -> Learned:
        """Climb and answer."""
        done, converged = self.run.iterate_saving(
            self._steps(),
            self._whole_state,
            self.run.checkpoint,
            tol=self.learner.tol,
            limit=self.learner.epochs,
        )
        theta, value = self._answer()
        warnings = [*self.notes, *self.likelihood.warnings]
        diagnostics: dict[str, Any] = dict(self.likelihood.diagnostics)
        if self.likelihood.parameters.matrix is not None:
            diagnostics["theta"] = theta.tolist()
        return Learned(
            self.likelihood.parameters.tables(theta),
            objective=None if np.isnan(value) else float(value),
            converged=converged,
            iterations=done,
            warnings=warnings,
            diagnostics=diagnostics,
        )

    def _steps(self) -> Iterator[Step]:
        step = Step(self.done)
        try:
            first = True
            while True:
                try:
                    following = self._start() if first else self._next()
                except TimeOver:
                    yield step  # the clock has expired: this ends the run
                    return
                if following is None:
                    return
                step, first = following, False
                self.levels = self.likelihood.levels
                yield step
        except Diverged:
            self.notes.append("stopped: inner inference did not converge (on_divergence=stop)")

    def _whole_state(self) -> State:
        kept = self._state()
        if not kept:  # the time ended before the first evaluation: nothing to go on from
            return {}
        return {
            **kept,
            "done": np.array(self.done),
            "levels": self.levels,
        }

    @abstractmethod
    def _start(self) -> Step:
        """The first evaluation."""

    @abstractmethod
    def _next(self) -> Step | None:
        """One step, None if there is no better point."""

    @abstractmethod
    def _answer(self) -> tuple[Array, float]:
        """Parameters and objective reached."""

    @abstractmethod
    def _state(self) -> State:
        """All that the next step depends on."""


class _Quasi(_Climb):
    """L-BFGS, orthant-wise with l1."""

    def __init__(
        self, learner: GradientML, likelihood: Likelihood, run: FitRun, notes: list[str]
    ) -> None:
        super().__init__(learner, likelihood, run, notes)
        self.descent: Lbfgs | None = None

    def _start(self) -> Step:
        self.descent = Lbfgs(
            self.likelihood.descent,
            self.likelihood.parameters.start,
            l1=self.learner.l1,
            memory=self.learner.memory,
            longest=_LONGEST,
            state=self.resumed,
        )
        return self._report(self.descent)

    def _next(self) -> Step | None:
        assert self.descent is not None
        if not self.descent.step():
            self.notes.append(
                "no better point along the gradient: objective and gradient of the inner inference "
                f"agree no further (largest component left {self.descent.residual:.1e}, "
                f"tol {self.learner.tol:g})"
            )
            return None
        self.done += 1
        return self._report(self.descent)

    def _report(self, descent: Lbfgs) -> Step:
        return Step(self.done, residual=descent.residual, objective=-descent.value)

    def _answer(self) -> tuple[Array, float]:
        if self.descent is None:
            return self.likelihood.parameters.start, np.nan
        return self.descent.point, -self.descent.value

    def _state(self) -> State:
        return self.resumed or {} if self.descent is None else self.descent.state


class _Stochastic(_Climb):
    """Adam or gradient ascent, in mini-batches."""

    def __init__(
        self, learner: GradientML, likelihood: Likelihood, run: FitRun, notes: list[str]
    ) -> None:
        super().__init__(learner, likelihood, run, notes)
        assert learner.optimiser != "lbfgs"
        self.ascent = Ascent(
            learner.optimiser,
            likelihood.parameters.start,
            rate=learner.learning_rate,
            decay=learner.decay,
            l1=learner.l1,
            seed=learner.seed,
            state=self.resumed,
        )
        self.value, self.gradient = np.nan, np.zeros(0)
        self.saved = self.ascent.state

    def _start(self) -> Step:
        return self._report()

    def _next(self) -> Step | None:
        for rows in self.ascent.batches(self.likelihood.data.n_rows, self.learner.batch):
            gradient = (
                self.gradient if rows is None else self.likelihood.at(self.ascent.theta, rows)[1]
            )
            self.ascent.step(gradient)
        self.ascent.epoch += 1
        self.done += 1
        return self._report()

    def _report(self) -> Step:
        """Objective and gradient over all rows, and the point that is kept."""
        theta = self.ascent.theta
        value, self.gradient = self.likelihood.at(theta)
        self.value = value - self.learner.l1 * float(np.abs(theta).sum())
        self.saved = self.ascent.state
        return Step(self.done, residual=self._residual(theta), objective=self.value)

    def _residual(self, theta: Array) -> float:
        l1, g = self.learner.l1, self.gradient
        at_zero = np.sign(g) * np.maximum(np.abs(g) - l1, 0.0)
        slope = np.where(theta == 0, at_zero, g - l1 * np.sign(theta))
        return float(np.abs(slope).max(initial=0.0))

    def _answer(self) -> tuple[Array, float]:
        return np.array(self.saved["theta"]), self.value

    def _state(self) -> State:
        return self.saved
