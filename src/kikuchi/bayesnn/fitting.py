"""Climbing the bound: restarts in the diagonal family, then the family asked for from the best.

A restart begins at random weights, goes to a mode of the posterior at fixed precisions, takes the
curvature there for the first variances, and climbs the bound of independent weights. The best of
them begins the last stage, so that correlated weights never end below independent ones.

Reference: LAW-L10.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

from kikuchi.bayesnn.bound import (
    Hyper,
    RegressionData,
    bound,
    descent,
    map_descent,
    map_precisions,
)
from kikuchi.bayesnn.network import Network, precisions
from kikuchi.bayesnn.posteriors import DiagonalPosterior, WeightPosterior, Weights
from kikuchi.core.arrays import Array
from kikuchi.core.lbfgs import Lbfgs
from kikuchi.core.run import State, Step, StepAborted
from kikuchi.training.checkpoint import part, prefixed

_START_ALPHA = 0.3
_START_BETAS = (200.0, 20.0)  # precisions of the noise at the mode where restarts begin, in turn
_START_STEPS = 100
_WINDOW = 10  # steps over which the rise of the bound is judged
_COARSE = 10.0  # how much larger the tolerance of restarts is
_FIRST_ROUND = 50  # steps after which parameters are measured in the standard deviations so far


@dataclass
class RegressionProblem:
    """What is fitted: the family, the prior, and the standardised data."""

    posterior: WeightPosterior
    prior: str
    data: RegressionData
    hyper: Hyper

    def climber(
        self, family: WeightPosterior, flat: Array, weights: Weights, **given: Any
    ) -> Lbfgs:
        """L-BFGS on minus the bound."""

        def objective(at: Array) -> tuple[float, Array]:
            value, slope = descent(
                family, self.prior, jnp.asarray(at), weights, self.data, self.hyper
            )
            return float(value), np.asarray(slope)

        return Lbfgs(objective, flat, **given)


@dataclass
class VariationalFit:
    """The stages of a fit; everything that the next step depends on is in `state`."""

    problem: RegressionProblem
    starts: Array
    max_iter: int
    tol: float
    stage: int = -1
    iterations: int = 0
    round_ends: int = 0
    stuck: bool = False
    bounds: list[float] = field(default_factory=list)
    best_bound: float = -np.inf
    best: dict[str, Array] = field(default_factory=dict)
    scale: Array = field(default_factory=lambda: np.ones(1))
    climber: Lbfgs | None = None

    @property
    def network(self) -> Network:
        """The network."""
        return self.problem.posterior.network

    @property
    def last(self) -> bool:
        """Whether this is the stage of the family asked for."""
        return self.stage == len(self.starts)

    @property
    def family(self) -> WeightPosterior:
        """The family of the present stage."""
        return self.problem.posterior if self.last else DiagonalPosterior(self.network)

    @property
    def weights(self) -> Weights:
        """Units of the parameters."""
        return Weights(jnp.asarray(self.scale), jnp.ones(self.network.n_weights))

    # ------------------------------------------------------------------ going

    def steps(self) -> Iterator[Step]:
        """One step of L-BFGS after the other; the residual of the last stage is the rise of the
        bound in the last steps.
        """
        while True:
            climber = self._advance()
            self.stuck = not climber.step()
            self.iterations += 1
            self.bounds.append(-climber.value)
            if not np.isfinite(self.bounds[-1]):
                raise StepAborted("diverged")
            residual = self._risen if self.last else np.nan
            yield Step(self.iterations, residual, objective=self.bounds[-1])

    @property
    def _risen(self) -> float:
        """The rise of the bound in the last steps; infinite before there were enough."""
        if len(self.bounds) <= _WINDOW and not self.stuck:
            return np.inf
        return self.bounds[-1] - self.bounds[-min(len(self.bounds), _WINDOW + 1)]

    def _advance(self) -> Lbfgs:
        """What takes the next step: another stage, or other units, if it is time."""
        if self.climber is None:
            return self._begin(0)
        spent = len(self.bounds) > self.max_iter
        if self.last:
            if spent or self.stuck:
                raise StepAborted("iterations" if spent else "diverged")
        elif spent or self.stuck or self._risen <= _COARSE * self.tol:
            self._keep()
            return self._begin(self.stage + 1)
        elif len(self.bounds) > self.round_ends:
            return self._rescale()
        return self.climber

    def _begin(self, stage: int) -> Lbfgs:
        self.stage, self.round_ends, self.stuck = stage, _FIRST_ROUND, False
        if self.last:
            mean, sd, free = (self.best[name] for name in ("mean", "sd", "free"))
        else:
            mean, sd = self._mode(self.starts[stage], _START_BETAS[stage % len(_START_BETAS)])
            groups = precisions(self.network, self.problem.prior)
            shapes = float(self.problem.hyper.alpha.shape) + 0.5 * groups.incidence.sum(axis=1)
            free = np.log(shapes[groups.free])  # mean precisions of 1
        climber = self._climb(mean, sd, free)
        self.bounds = [-climber.value]
        return climber

    def _climb(self, mean: Array, sd: Array, free: Array) -> Lbfgs:
        self.scale = sd
        flat = np.concatenate([self.family.initial(mean, sd, sd), free])
        self.climber = self.problem.climber(self.family, flat, self.weights)
        return self.climber

    def _mode(self, start: Array, beta: float) -> tuple[Array, Array]:
        """A mode of the posterior at fixed precisions, and standard deviations there."""

        def objective(at: Array) -> tuple[float, Array]:
            value, slope = map_descent(
                self.network, jnp.asarray(at), self.problem.data, _START_ALPHA, beta
            )
            return float(value), np.asarray(slope)

        descending = Lbfgs(objective, start)
        for _ in range(_START_STEPS):
            if not descending.step():
                break
        found = map_precisions(
            self.network, jnp.asarray(descending.point), self.problem.data, _START_ALPHA, beta
        )
        return descending.point, 1.0 / np.sqrt(np.asarray(found))

    def _moments(self) -> dict[str, Array]:
        """Means and standard deviations of a diagonal stage, and free log rates."""
        assert self.climber is not None
        flat, size = self.climber.point, self.family.size
        q = self.family.read(jnp.asarray(flat[:size]), self.weights)
        return {"mean": np.asarray(q.mean), "sd": np.asarray(q.sd), "free": flat[size:]}

    def _keep(self) -> None:
        if self.bounds[-1] > self.best_bound:
            self.best_bound, self.best = self.bounds[-1], self._moments()

    def _rescale(self) -> Lbfgs:
        now = self._moments()
        self.round_ends += 2 * len(self.bounds)
        return self._climb(now["mean"], now["sd"], now["free"])

    # ------------------------------------------------------------------ the answer

    def answer(self) -> tuple[Array, Weights]:
        """The best posterior so far: parameters and their units."""
        assert self.climber is not None
        if self.last:
            return self.climber.point, self.weights
        self._keep()
        mean, sd, free = (self.best[name] for name in ("mean", "sd", "free"))
        family = self.problem.posterior
        weights = Weights(jnp.asarray(sd), jnp.ones(self.network.n_weights))
        return np.concatenate([family.initial(mean, sd, sd), free]), weights

    # ------------------------------------------------------------------ checkpoints

    def state(self) -> State:
        """Everything that the next step depends on."""
        assert self.climber is not None
        numbers = np.array([self.stage, self.iterations, self.round_ends, self.stuck])
        return {
            "iterations": np.array(self.iterations),
            "numbers": numbers,
            "starts": self.starts,
            "bounds": np.array(self.bounds),
            "best_bound": np.array(self.best_bound),
            "scale": self.scale,
            **prefixed(self.best, "best"),
            **prefixed(self.climber.state, "climber"),
        }

    def restore(self, state: State) -> None:
        """Go on where the state was taken."""
        self.stage, self.iterations, self.round_ends, stuck = (int(n) for n in state["numbers"])
        self.stuck = bool(stuck)
        self.starts, self.scale = np.asarray(state["starts"]), np.asarray(state["scale"])
        self.bounds = state["bounds"].tolist()
        self.best_bound, self.best = float(state["best_bound"]), part(state, "best")
        climbing = part(state, "climber")
        self.climber = self.problem.climber(
            self.family, climbing["point"], self.weights, state=climbing
        )


def random_starts(network: Network, count: int, rng: np.random.Generator) -> Array:
    """Random weights: those into a unit of a size that does not saturate it."""
    starts = rng.standard_normal((count, network.n_weights))
    starts[:, : network.n_into_hidden] /= np.sqrt(network.n_inputs + 1)
    starts[:, network.n_into_hidden :] /= np.sqrt(network.n_hidden)
    return starts


def final_bound(problem: RegressionProblem, flat: Array, weights: Weights) -> Any:
    """The bound with the posteriors of all precisions."""
    return bound(
        problem.posterior, problem.prior, jnp.asarray(flat), weights, problem.data, problem.hyper
    )
