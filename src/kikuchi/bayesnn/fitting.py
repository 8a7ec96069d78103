"""Ascent of the bound: restarts in the diagonal family, then the family asked for from the best.

A restart begins at random weights, goes to a mode of the posterior at fixed precisions, takes the
curvature there for the first variances, and maximises the bound of independent weights. The best of
them begins the last stages, so that correlated weights never end below independent ones. Components
of a mixture begin where the Gaussian of the curvature at the best has its mass, along the ridges
that no component can follow alone, and have equal probabilities until they have settled. They do so
from several distances, of which the best goes on.

Reference: LAW-L10.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from kikuchi.bayesnn.bound import (
    Data,
    EvidenceBound,
    Hyper,
    RegressionData,
    bound,
    descent,
    filled,
    mode_descent,
    mode_precision,
    weight_precisions,
)
from kikuchi.bayesnn.network import Network, precisions
from kikuchi.bayesnn.networks import NetworksPosterior
from kikuchi.bayesnn.posteriors import DiagonalPosterior, WeightPosterior, Weights
from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError
from kikuchi.core.lbfgs import Lbfgs
from kikuchi.core.run import Step, StepAborted
from kikuchi.engines.loops.state import Held, State
from kikuchi.training.checkpoint import check_sizes, prefixed

_START_ALPHA = 0.3
_START_BETAS = (200.0, 20.0)  # precisions of the noise at the mode where restarts begin, in turn
_START_STEPS = 100
_WINDOW = 10  # steps over which the rise of the bound is judged
_COARSE = 10.0  # how much larger the tolerance of restarts is
_FIRST_ROUND = 50  # steps after which parameters are measured in the standard deviations so far
_HELD_STEPS = 150  # maximum number of steps with fixed probabilities of components
_APART = (4.5, 7.0, 3.0, 4.5, 7.0, 3.0, 0.5)  # distances of components from the best, in standard
# deviations of the curvature there; each is tried in directions of its own until its components
# have settled, the last one only where all others end below independent weights, and the best
# bound goes on
MOST_HELD = len(_APART) * (_HELD_STEPS + 1)
"""Most steps of these trials."""


@dataclass
class NetworkProblem:
    """The fitting problem: the family, the prior, and the standardised data."""

    posterior: WeightPosterior
    prior: str
    data: Data
    hyper: Hyper

    @cached_property
    def filled(self) -> Data:
        """The data as compiled programs take them, see `bound.filled`."""
        return filled(self.data)

    @property
    def diagonal(self) -> WeightPosterior:
        """The family of restarts."""
        network = self.posterior.network
        if isinstance(self.data, RegressionData):
            return DiagonalPosterior(network)
        return NetworksPosterior(network, DiagonalPosterior(network), self.posterior.n_networks)

    def ascent(
        self,
        family: WeightPosterior,
        flat: Array,
        weights: Weights,
        hold: bool = False,
        **given: Any,
    ) -> Lbfgs:
        """L-BFGS on minus the bound, with some parameters of the family held if asked for."""
        held = np.flatnonzero(family.held) if hold else np.zeros(0, dtype=np.int64)

        def objective(at: Array) -> tuple[float, Array]:
            value, _, slope = descent(
                family, self.prior, jnp.asarray(at), weights, self.filled, self.hyper
            )
            gradient = np.array(slope)
            gradient[held] = 0.0
            return float(value), gradient

        return Lbfgs(objective, flat, **given)

    def mode(self, start: Array, alpha: float | Array, beta: float, steps: int) -> Array:
        """A mode of the posterior of weights at fixed precisions."""
        network = self.posterior.network

        def objective(at: Array) -> tuple[float, Array]:
            value, slope = mode_descent(
                network, jnp.asarray(at), self.filled, jnp.asarray(alpha), beta
            )
            return float(value), np.asarray(slope)

        descending = Lbfgs(objective, start)
        for _ in range(steps):
            if not descending.step():
                break
        return descending.point

    def curvature(self, mean: Array, alpha: float | Array, beta: float) -> Array:
        """The Gauss-Newton Hessian of minus the log posterior there."""
        network = self.posterior.network
        found = mode_precision(network, jnp.asarray(mean), self.filled, jnp.asarray(alpha), beta)
        return np.asarray(found)

    def precisions_of(self, found: EvidenceBound) -> tuple[Array, float]:
        """Mean precision of each weight, and that of the noise (1 where there is none)."""
        groups = precisions(self.posterior.network, self.prior)
        means = np.asarray(found.alpha.mean).reshape(-1, len(groups.names))
        alpha = [weight_precisions(groups, own, 1.0) for own in means]
        return np.concatenate(alpha), 1.0 if found.beta is None else float(found.beta.mean)


@dataclass(eq=False, init=False)
class VariationalFit(State):
    """The stages of a fit: a restart each, the family asked for with some parameters held, and that
    family.

    Attributes
    ----------
    stage
        The stage of the last step; -1 before the first.
    done
        Steps of all stages.
    tried
        Distances of components from the best that were tried.
    round_ends
        The step of the stage after which parameters are measured in other units.
    stuck
        Whether the last step found no better point.
    starts
        Weights that restarts begin with.
    bounds
        The bound after each step of the stage.
    best_bound, best
        The best of the restarts: its bound, means, standard deviations and free log rates.
    scale
        Units of the parameters.
    held_bound, held
        The best of the distances.
    descent
        L-BFGS of the stage.
    """

    varying: ClassVar[tuple[str, ...]] = ("bounds", "held", "scale", "best/", "descent/")

    stage: int
    done: int
    tried: int
    round_ends: int
    stuck: bool
    starts: Array
    bounds: list[float]
    best_bound: float
    best: dict[str, Array]
    scale: Array
    held_bound: float
    held: Array
    descent: Held[Lbfgs]

    def __init__(self, problem: NetworkProblem, starts: Array, max_iter: int, tol: float) -> None:
        self.problem, self.starts, self.max_iter, self.tol = problem, starts, max_iter, tol
        self.stage, self.done, self.tried, self.round_ends, self.stuck = -1, 0, 0, 0, False
        self.bounds, self.best_bound, self.best = [], -np.inf, {}
        self.scale, self.held_bound, self.held = np.ones(1), -np.inf, np.zeros(0)
        self.descent = Held(None, self._read_descent, lambda descent: descent.state)

    @property
    def ascent(self) -> Lbfgs | None:
        """L-BFGS of the stage; None before the first step."""
        return self.descent.value

    @ascent.setter
    def ascent(self, ascent: Lbfgs | None) -> None:
        self.descent.value = ascent

    @property
    def network(self) -> Network:
        """The network."""
        return self.problem.posterior.network

    @property
    def holding(self) -> bool:
        """Whether this is the stage of the family asked for with some of its parameters held."""
        return self.stage == len(self.starts)

    @property
    def last(self) -> bool:
        """Whether this is the last stage, of the family asked for."""
        return self.stage == len(self.starts) + 1

    @property
    def family(self) -> WeightPosterior:
        """The family of the present stage."""
        asked = self.holding or self.last
        return self.problem.posterior if asked else self.problem.diagonal

    @property
    def weights(self) -> Weights:
        """Units of the parameters."""
        kept = np.ones(self.problem.posterior.n_weights)
        return Weights(jnp.asarray(self.scale), jnp.asarray(kept))

    # ------------------------------------------------------------------ going

    def step(self) -> Step:
        """Take a step of L-BFGS; the residual of the last stage is the rise of the bound in the
        last steps.
        """
        with self._whole_or_not_at_all():
            ascent = self._advance()
        self.stuck = not ascent.step()
        self.done += 1
        self.bounds.append(-ascent.value)
        if not np.isfinite(self.bounds[-1]):
            raise StepAborted("diverged")
        residual = self._risen if self.last else np.nan
        return Step(self.done, residual, objective=self.bounds[-1])

    @property
    def _risen(self) -> float:
        """The rise of the bound in the last steps; infinite before there were enough."""
        if len(self.bounds) <= _WINDOW and not self.stuck:
            return np.inf
        return self.bounds[-1] - self.bounds[-min(len(self.bounds), _WINDOW + 1)]

    @contextmanager
    def _whole_or_not_at_all(self) -> Iterator[None]:
        """Undo what a change of stage or units has done if Ctrl-C comes in between: the answer is
        read from what belongs together.
        """
        names = ("stage", "tried", "round_ends", "stuck", "bounds", "scale", "ascent")
        before = {name: getattr(self, name) for name in names}
        try:
            yield
        except BaseException:
            for name, value in before.items():
                setattr(self, name, value)
            raise

    def _advance(self) -> Lbfgs:
        """Return the next stage of the fit, or one with other units, if it is due."""
        if self.ascent is None:
            return self._begin(0)
        spent = len(self.bounds) > self.max_iter
        if self.last:
            if spent or self.stuck:
                raise StepAborted("iterations" if spent else "diverged")
        elif self.holding:
            if self.stuck or len(self.bounds) > _HELD_STEPS or self._risen <= self.tol:
                self._keep_held()
                self.tried += 1
                enough = len(_APART) - (self.held_bound >= self.best_bound)
                return self._begin(self.stage + (self.tried >= enough))
        elif spent or self.stuck or self._risen <= _COARSE * self.tol:
            self._keep()
            return self._begin(self.stage + 1)
        elif len(self.bounds) > self.round_ends:
            return self._rescale()
        return self.ascent

    def _begin(self, stage: int) -> Lbfgs:
        if stage == len(self.starts) and not self.problem.posterior.held.any():
            stage += 1  # nothing to hold
        self.stage, self.round_ends, self.stuck = stage, _FIRST_ROUND, False
        if self.last and self.problem.posterior.held.any():
            ascent = self.problem.ascent(self.family, self.held, self.weights)
        elif self.last or self.holding:
            ascent = self._ascend(*(self.best[name] for name in ("mean", "sd", "free")))
        else:
            beta = _START_BETAS[stage % len(_START_BETAS)]
            mean = self.problem.mode(self.starts[stage], _START_ALPHA, beta, _START_STEPS)
            sd = 1.0 / np.sqrt(np.diag(self.problem.curvature(mean, _START_ALPHA, beta)))
            groups = precisions(self.network, self.problem.prior)
            shapes = float(self.problem.hyper.alpha.shape) + 0.5 * groups.incidence.sum(axis=1)
            free = np.log(shapes[groups.free])  # mean precisions of 1
            ascent = self._ascend(mean, sd, np.tile(free, self.problem.posterior.n_networks))
        self.ascent, self.bounds = ascent, [-ascent.value]
        return ascent

    def _ascend(self, mean: Array, sd: Array, free: Array) -> Lbfgs:
        self.scale = sd
        flat = np.concatenate([self._first(mean, sd, free), free])
        hold = self.holding
        self.ascent = self.problem.ascent(self.family, flat, self.weights, hold=hold)
        return self.ascent

    def _first(self, mean: Array, sd: Array, free: Array) -> Array:
        """Parameters of the family around independent weights with these means."""
        count, problem = self.family.n_apart, self.problem
        if not count:
            return np.asarray(self.family.initial(mean, sd, sd))
        flat = np.concatenate([problem.diagonal.initial(mean, sd, sd), free])
        found = bound(
            problem.diagonal, problem.prior, flat, self.weights, problem.filled, problem.hyper
        )
        whole = problem.curvature(mean, *problem.precisions_of(found))
        noise = np.random.default_rng(self.tried).standard_normal((count, len(mean)))
        noise -= noise.mean(axis=0)
        # noise with the covariance of the inverse curvature
        away = np.linalg.solve(np.linalg.cholesky(whole).T, noise.T).T
        places = mean + _APART[self.tried] / np.sqrt(len(mean)) * away
        return np.asarray(self.family.initial_apart(mean, sd, sd, places))

    def _moments(self) -> dict[str, Array]:
        """Means and standard deviations of a diagonal stage, and free log rates."""
        assert self.ascent is not None
        flat, size = self.ascent.point, self.family.size
        q = self.family.read(jnp.asarray(flat[:size]), self.weights)
        return {"mean": np.ravel(q.mean), "sd": np.ravel(q.sd), "free": flat[size:]}

    def _keep(self) -> None:
        if self.bounds[-1] > self.best_bound:
            self.best_bound, self.best = self.bounds[-1], self._moments()

    def _keep_held(self) -> None:
        """Remember the parameters if no distance tried before has a better bound."""
        assert self.ascent is not None
        if self.bounds[-1] > self.held_bound:
            self.held_bound, self.held = self.bounds[-1], self.ascent.point.copy()

    def _rescale(self) -> Lbfgs:
        now = self._moments()
        self.round_ends += 2 * len(self.bounds)
        return self._ascend(now["mean"], now["sd"], now["free"])

    # ------------------------------------------------------------------ the answer

    def answer(self) -> tuple[Array, Weights]:
        """The best posterior so far: parameters and their units."""
        assert self.ascent is not None
        if self.last:
            return self.ascent.point, self.weights
        if self.holding:
            self._keep_held()
            return self.held, self.weights
        self._keep()
        mean, sd, free = (self.best[name] for name in ("mean", "sd", "free"))
        family = self.problem.posterior
        weights = Weights(jnp.asarray(sd), jnp.ones(family.n_weights))
        return np.concatenate([family.initial(mean, sd, sd), free]), weights

    # ------------------------------------------------------------------ checkpoints

    def _read_descent(self, arrays: dict[str, Any]) -> Lbfgs:
        """L-BFGS of a saved stage; refuses a stage or sizes that are not those of this problem."""
        posterior = self.problem.posterior
        if not 0 <= self.stage <= len(self.starts) + 1 or not self.bounds:
            raise DataError(f"there is no stage {self.stage} with {len(self.bounds)} steps")
        free = posterior.n_networks * len(precisions(self.network, self.problem.prior).free)
        sizes = {"point": self.family.size + free, "held": posterior.size + free, "free": free}
        layout = {"scale": "weights", "descent/point": "point"}
        if self.best or self.stage >= len(self.starts):
            layout |= {"best/mean": "weights", "best/sd": "weights", "best/free": "free"}
        if self.held.size or (self.last and posterior.held.any()):
            layout["held"] = "held"
        state = {"scale": self.scale, "held": self.held, "descent/point": arrays["point"]}
        state |= prefixed(self.best, "best")
        check_sizes(state, layout, weights=posterior.n_weights, **sizes)
        return self.problem.ascent(
            self.family, arrays["point"], self.weights, hold=self.holding, state=arrays
        )


def random_starts(
    network: Network, count: int, rng: np.random.Generator, networks: int = 1
) -> Array:
    """Random weights: those into a unit of a size that does not saturate it."""
    starts = rng.standard_normal((count, networks, network.n_weights))
    starts[..., : network.n_into_hidden] /= np.sqrt(network.n_inputs + 1)
    starts[..., network.n_into_hidden :] /= np.sqrt(network.n_hidden)
    return starts.reshape(count, -1)


def final_bound(problem: NetworkProblem, flat: Array, weights: Weights) -> EvidenceBound:
    """The bound with the posteriors of all precisions."""
    return bound(problem.posterior, problem.prior, flat, weights, problem.filled, problem.hyper)
