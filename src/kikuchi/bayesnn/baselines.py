"""Baselines in the interface of `BayesianMLPRegressor`: Laplace's Gaussian with the evidence
procedure, and weights sampled by NUTS.

Reference: LAW-I3, LAW-I16, LAW-I17.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from functools import partial
from os import PathLike
from typing import Any, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from kikuchi.bayesnn import kinds
from kikuchi.bayesnn.bound import Data, Hyper, RegressionData, mode_loss
from kikuchi.bayesnn.evidence import log_joint
from kikuchi.bayesnn.fitting import NetworkProblem, random_starts
from kikuchi.bayesnn.images import log_distinct_images
from kikuchi.bayesnn.network import Network, precisions
from kikuchi.bayesnn.posteriors import DiagonalPosterior, WeightPosterior
from kikuchi.bayesnn.regressor import BayesianMLPRegressor, network_outputs
from kikuchi.core.arrays import Array
from kikuchi.core.errors import MethodError
from kikuchi.core.extras import extras_named
from kikuchi.core.interrupts import safe_interrupts
from kikuchi.core.options import fixed, option
from kikuchi.core.seeds import generator
from kikuchi.training.checkpoint import Arrays

_START_ALPHA, _START_BETA = 0.3, 200.0
_MODE_STEPS = 500
_SETTLED = 0.05  # determined parameters by which the last cycle may still differ


@partial(jax.jit, static_argnames=("network",))
def _hessian(network: Network, w: Any, data: Data, alpha: Any, beta: Any) -> Any:
    """Second derivatives of minus the log posterior of weights at given precisions."""
    return jax.hessian(partial(mode_loss, network, data, alpha, beta))(w)


@partial(jax.jit, static_argnames=("network",))
def _linearised(network: Network, w: Any, covariance: Any, x: Any) -> tuple[Any, Any]:
    """Output at the mode, and its variance by the slopes there."""
    slopes = jax.jacobian(lambda at: network.output(at, x))(w)
    return network.output(w, x), jnp.sum((slopes @ covariance) * slopes, axis=1)


class BaselineResults:
    """Further fitted attributes of baselines; as annotations of a dataclass they would be
    options.
    """

    log_evidence_: float
    r_hat_: float
    effective_size_: float
    acceptance_: float
    divergences_: int


@dataclass(eq=False, repr=False)
class _Baseline(BayesianMLPRegressor, BaselineResults):
    """Regression by other posteriors of the weights; they have no bound, and are not saved."""

    posterior: str = fixed("diagonal")
    _: KW_ONLY
    seconds: float | None = fixed(None)
    checkpoint: str | PathLike[str] | None = fixed(None)
    tol: float = fixed(0.01)
    prior: Literal["single", "grouped", "ard"] = option(
        "ard", "Weights that share a precision: single, grouped or ard (by input)."
    )
    noise: Literal["gaussian", "student"] = fixed("gaussian")

    def _family(self) -> WeightPosterior:
        return DiagonalPosterior(self._network)

    def _begin(self, X: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
        self._check_options()
        rows, targets = self._read(X, y, reset=True)
        self._network = Network(rows.shape[1], self._n_hidden, self.skip)
        return rows, targets

    def _ending(self, iterations: int, remarks: list[str]) -> None:
        network = self._network
        self.pruning_, self.columns_ = [], []
        self.hidden_kept_ = np.ones(network.n_hidden, dtype=bool)
        self.inputs_kept_ = np.ones(network.n_inputs, dtype=bool)
        self.n_iter_ = iterations
        self.stopped_ = "converged" if self.converged_ else "iterations"
        self.warnings_, self.trace_ = remarks, self._bound_run().trace

    def prune(
        self, X: ArrayLike | None = None, y: ArrayLike | None = None, *, weights: bool = False
    ) -> Self:
        """Refused, whatever `X`, `y` and `weights` are: removal is tested by a bound."""
        raise MethodError(f"{type(self).__name__} has no bound to test removals by")

    def _fitted_state(self) -> tuple[Arrays, dict[str, Any], dict[str, Any]]:
        raise MethodError(f"{type(self).__name__} is a baseline and is not saved")


class LaplaceFit(NamedTuple):
    """A mode, the inverse Hessian there, precisions, the log evidence, and by how many the last
    cycle changed the parameters that the data determine.
    """

    mode: Array
    covariance: Array
    alpha: Array
    beta: float
    log_evidence: float
    change: float


@dataclass(eq=False, repr=False)
class LaplaceMLPRegressor(_Baseline):
    """Laplace's approximation with the evidence procedure: a Gaussian at a mode, whose precisions
    maximise the approximate evidence.

    Ten cycles of a mode and new precisions from each of `n_init` random starts; the largest
    approximate `log_evidence_` is kept. It is that of the final precisions and counts the images of
    the mode under sign changes and permutations of hidden units. Predictions are outputs at the
    mode, with the variance that slopes there give: averages over the Gaussian itself are mostly far
    off.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(60, 1))
    >>> net = LaplaceMLPRegressor(3, prior="grouped", n_init=1, random_state=0)
    >>> net = net.fit(X, np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=60))
    >>> bool(0.05 < net.noise_ < 0.2)
    True

    Reference: LAW-I3, LAW-I16.
    """

    kind = kinds.LAPLACE
    _: KW_ONLY
    max_iter: int = option(
        10, "Largest number of updates of the precisions, from each start.", low=1
    )
    weight_shape: float = fixed(3e-4)
    weight_rate: float = fixed(1e-3)
    noise_shape: float = fixed(0.02)
    noise_rate: float = fixed(1e-4)

    @safe_interrupts()
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to rows `X` (rows, inputs) and targets `y` (rows,) by the evidence procedure."""
        rows, targets = self._begin(X, y)
        with jax.enable_x64(True):
            problem = self._problem(rows, targets)
            starts = random_starts(self._network, self.n_init, generator(self.random_state))
            fits = [self._procedure(problem, start) for start in starts]
            self._fit_ = max(fits, key=lambda fit: fit.log_evidence)
            n = len(targets)
            found = self._fit_
            self._set_noise(0.5 * n, 0.5 * n / found.beta)
            names = precisions(self._network, self.prior)
            each = [found.alpha[names.first == g][0] for g in range(len(names.names))]
            self.precisions_ = dict(zip(names.names, map(float, each), strict=True))
            slope = jax.jacobian(lambda r: self._network.output(jnp.asarray(found.mode), r).sum())
            slopes = np.asarray(slope(problem.data.x))[:, :-1]
            self.relevance_ = np.sqrt(np.mean(slopes**2, axis=0))
        self.log_evidence_ = found.log_evidence + self._shift()
        self.converged_ = found.change < _SETTLED
        remarks = []
        if not self.converged_:
            remarks = [
                "the last cycle changed the count of parameters that the data determine by "
                f"{found.change:.2g}: raise max_iter"
            ]
        self._ending(self.max_iter * self.n_init, remarks)
        return self

    def _procedure(self, problem: NetworkProblem, start: Array) -> LaplaceFit:
        groups = precisions(self._network, self.prior)
        data = problem.data
        assert isinstance(data, RegressionData)
        n, incidence = len(data.y), groups.incidence
        alpha, beta, w = np.full(len(start), _START_ALPHA), _START_BETA, start
        before = np.zeros(len(incidence))
        for _ in range(self.max_iter):
            w = problem.mode(w, alpha, beta, _MODE_STEPS)
            covariance, _ = self._inverse(w, data, alpha, beta)
            error = self._error(w, data)
            determined = np.maximum(incidence @ (1.0 - alpha * np.diag(covariance)), 1e-6)
            new = determined / np.maximum(incidence @ w**2, 1e-12)
            alpha = np.minimum(new, 1e10)[groups.first]
            beta = max(n - determined.sum(), 1e-3 * n) / max(2.0 * error, 1e-12)
            change = float(np.abs(determined - before).sum())
            before = determined
        w = problem.mode(w, alpha, beta, _MODE_STEPS)
        covariance, log_size = self._inverse(w, data, alpha, beta)
        value = -beta * self._error(w, data) - 0.5 * float(alpha @ w**2) - 0.5 * log_size
        value += 0.5 * float(np.log(alpha).sum()) + 0.5 * n * math.log(beta / (2 * math.pi))
        value += log_distinct_images(self._network, w, covariance)
        return LaplaceFit(w, covariance, alpha, float(beta), value, change)

    def _error(self, w: Array, data: RegressionData) -> float:
        f = self._network.output(jnp.asarray(w), data.x)
        return 0.5 * float(jnp.sum((data.y - f) ** 2))

    def _inverse(
        self, w: Array, data: RegressionData, alpha: Array, beta: float
    ) -> tuple[Array, float]:
        """Inverse and log determinant of the Hessian.

        Where the data bend the posterior upwards their curvature counts as 0: there the prior
        decides, and no group has less than 0 or more than all of its parameters determined.
        """
        found = np.asarray(_hessian(self._network, jnp.asarray(w), data, jnp.asarray(alpha), beta))
        unit = 1.0 / np.sqrt(alpha)
        values, axes = np.linalg.eigh(unit[:, None] * found * unit)
        values, axes = np.maximum(values, 1.0), unit[:, None] * axes
        return (axes / values) @ axes.T, float(np.log(values).sum() + np.log(alpha).sum())

    def _moments(self, rows: Array) -> tuple[Array, Array]:
        with jax.enable_x64(True):
            mode, covariance = jnp.asarray(self._fit_.mode), jnp.asarray(self._fit_.covariance)
            found = _linearised(self._network, mode, covariance, self._inputs(rows))
            return np.asarray(found[0]), np.maximum(np.asarray(found[1]), 0.0)

    def _draws(self, count: int, rng: np.random.Generator) -> Any:
        factor = np.linalg.cholesky(self._fit_.covariance + 1e-12 * np.eye(len(self._fit_.mode)))
        noise = rng.standard_normal((count, len(factor)))
        return jnp.asarray(self._fit_.mode + noise @ factor.T)


@dataclass(eq=False, repr=False)
class SampledMLPRegressor(_Baseline):
    """Weights sampled by NUTS, with the precisions summed out exactly.

    Chains begin at modes of the posterior from random starts and adapt step and metric for `warmup`
    steps. `r_hat_` and `effective_size_` are the worst of those of the outputs at the training
    rows: weights themselves have equal modes by the dozen, between which chains need not agree.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(40, 1))
    >>> net = SampledMLPRegressor(2, prior="grouped", n_chains=2, warmup=100, samples=100)
    >>> net = net.fit(X, X[:, 0] ** 2 + 0.1 * rng.normal(size=40))  # doctest: +SKIP
    >>> net.r_hat_ < 1.1, net.effective_size_ > 20  # doctest: +SKIP
    (True, True)

    Reference: LAW-I17.
    """

    kind = kinds.SAMPLED
    _: KW_ONLY
    n_init: int = fixed(1)
    max_iter: int = fixed(1)
    n_chains: int = option(4, "Chains.", low=2)
    warmup: int = option(500, "Steps of adaptation of each chain.", low=20)
    samples: int = option(500, "Steps of each chain that are kept.", low=4)
    largest_tree: int = option(8, "Largest depth of the tree of a step.", low=1)

    @safe_interrupts()
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Sample the weights given rows `X` (rows, inputs) and targets `y` (rows,)."""
        rows, targets = self._begin(X, y)
        rng = generator(self.random_state)
        with jax.enable_x64(True):
            problem = self._problem(rows, targets)
            starts = random_starts(self._network, self.n_chains, rng)
            modes = [problem.mode(s, _START_ALPHA, 20.0, _MODE_STEPS) for s in starts]
            states, told = self._sample(problem, np.array(modes), int(rng.integers(2**31)))
            self._chains_ = np.asarray(states.position)
            flat = self._chains_.reshape(-1, self._network.n_weights)
            outputs = np.asarray(network_outputs(self._network, jnp.asarray(flat), problem.data.x))
            slope = jax.vmap(jax.jacobian(lambda r, w: self._network.output(w, r).sum()), (None, 0))
            few = jnp.asarray(flat[:: max(len(flat) // 50, 1)])
            slopes = np.asarray(slope(problem.data.x, few)).mean(axis=0)
        self.relevance_ = np.sqrt(np.mean(slopes[:, :-1] ** 2, axis=0))
        squares = flat**2 @ precisions(self._network, self.prior).incidence.T
        counts = precisions(self._network, self.prior).incidence.sum(axis=1)
        means = (self.weight_shape + 0.5 * counts) / (self.weight_rate + 0.5 * squares)
        names = precisions(self._network, self.prior).names
        self.precisions_ = dict(zip(names, means.mean(axis=0).tolist(), strict=True))
        errors = 0.5 * np.sum((np.asarray(problem.data.y)[:, None] - outputs) ** 2, axis=0)
        self._rates = self.noise_rate + errors
        self._set_noise(self.noise_shape + 0.5 * len(targets), float(self._rates.mean()))
        self.divergences_ = int(np.asarray(told.is_divergent).sum())
        self.acceptance_ = float(np.asarray(told.acceptance_rate).mean())
        self._diagnose(outputs.reshape(len(targets), self.n_chains, self.samples))
        self.converged_ = self.r_hat_ < 1.05
        remarks = [] if self.converged_ else [f"chains do not agree: R-hat {self.r_hat_:.2f}"]
        if self.divergences_:
            remarks.append(f"{self.divergences_} of {len(flat)} steps diverged")
        self._ending(self.n_chains * self.samples, remarks)
        return self

    def _sample(self, problem: NetworkProblem, modes: Array, seed: int) -> Any:
        with extras_named():
            import blackjax
        network, prior, most = self._network, self.prior, self.largest_tree
        warmup, samples = self.warmup, self.samples

        def chain(key: Any, start: Any, data: Data, hyper: Hyper) -> Any:
            def density(w: Any) -> Any:
                return log_joint(network, prior, w, data, hyper)

            first, second = jax.random.split(key)
            adapting = blackjax.window_adaptation(blackjax.nuts, density, max_num_doublings=most)
            (state, parameters), _ = adapting.run(first, start, num_steps=warmup)
            kernel = blackjax.nuts(density, **parameters).step

            def one(state: Any, key: Any) -> Any:
                state, told = kernel(key, state)
                return state, (state, told)

            return jax.lax.scan(one, state, jax.random.split(second, samples))[1]

        keys = jax.random.split(jax.random.key(seed), len(modes))
        run = jax.jit(jax.vmap(chain, in_axes=(0, 0, None, None)))
        return run(keys, jnp.asarray(modes), problem.data, problem.hyper)

    def _diagnose(self, outputs: Array) -> None:
        from blackjax.diagnostics import effective_sample_size, potential_scale_reduction

        with jax.enable_x64(True):
            each = jnp.moveaxis(jnp.asarray(outputs), 0, 2)
            self.r_hat_ = float(jnp.max(potential_scale_reduction(each)))
            self.effective_size_ = float(jnp.min(effective_sample_size(each)))

    def _moments(self, rows: Array) -> tuple[Array, Array]:
        flat = self._chains_.reshape(-1, self._network.n_weights)
        with jax.enable_x64(True):
            f = np.asarray(network_outputs(self._network, jnp.asarray(flat), self._inputs(rows)))
        return f.mean(axis=1), f.var(axis=1)

    def _draws(self, count: int, rng: np.random.Generator) -> Any:
        flat = self._chains_.reshape(-1, self._network.n_weights)
        self._chosen = rng.integers(len(flat), size=count)
        return jnp.asarray(flat[self._chosen])

    def _noise_draws(self, count: int, rng: np.random.Generator) -> Array:
        rates: Array = self._rates[self._chosen]
        return np.asarray(rng.gamma(self._noise.shape, 1.0, size=count) / rates)
