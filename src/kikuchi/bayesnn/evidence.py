"""Estimates of the evidence that a bound must stay below, by draws from the posterior.

Precisions of weights and noise are summed out exactly, so that only weights are drawn:

    p(w) = prod_g Gamma(a_g) / Gamma(a) b^a (2 pi)^(-K_g / 2) (b + |w_g|² / 2)^(-a_g),
    a_g = a + K_g / 2,

and alike p(y | w) with the squared errors. Importance sampling averages p(y, w) / q(w) over draws
of q. Sequential Monte Carlo moves them from q to the posterior through geometric means of both,
with Hamiltonian moves and resampling. Both estimate the evidence without bias, so that their
logarithm is below it on average.

Reference: HOJ-X5, LAW-I21.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import gammaln

from kikuchi.bayesnn.bound import Data, GammaDensity, Hyper, RegressionData, outputs_of
from kikuchi.bayesnn.network import Network, precisions
from kikuchi.bayesnn.posteriors import (
    DiagonalPosterior,
    FullFactor,
    FullPosterior,
    LayeredFactor,
    LayeredPosterior,
    MixturePosterior,
    WeightMixture,
    Weights,
)
from kikuchi.core.arrays import Array
from kikuchi.core.errors import MethodError
from kikuchi.core.extras import extras_named
from kikuchi.core.seeds import Seed, generator

if TYPE_CHECKING:
    from kikuchi.bayesnn.regressor import BayesianMLPRegressor

_LOG_2PI = math.log(2.0 * math.pi)
_KEPT_SIZE = 0.9  # effective share of particles after a step of tempering
_LEAPFROGS = 10
_MOVES = 5
_STEP = 0.2  # of the leapfrog steps, in standard deviations of the posterior
_MOST_STEPS = 500


def summed_out(prior: GammaDensity, count: Any, half_squares: Any) -> Any:
    """log of the mean of prod N(0, 1 / precision) over a gamma prior of the precision, of `count`
    values with this half sum of squares.

    >>> from scipy.stats import t
    >>> with jax.enable_x64(True):
    ...     ours = float(summed_out(GammaDensity(2.0, 2.0), 1.0, 0.5 * 1.5**2))
    >>> bool(abs(ours - t(4).logpdf(1.5)) < 1e-12)
    True
    """
    shape = prior.shape + 0.5 * count
    first = gammaln(shape) - gammaln(prior.shape) + prior.shape * jnp.log(prior.rate)
    return first - 0.5 * count * _LOG_2PI - shape * jnp.log(prior.rate + half_squares)


def log_joint(network: Network, prior: str, w: Any, data: Data, hyper: Hyper) -> Any:
    """log p(targets, weights) of one vector of weights, without its precisions."""
    groups = precisions(network, prior)
    if len(groups.free):
        raise MethodError(f"precisions of prior '{prior}' cannot be summed out; use another prior")
    incidence = jnp.asarray(groups.incidence)
    count = incidence.sum(axis=1)
    total = jnp.sum(summed_out(hyper.alpha, count, 0.5 * incidence @ (w * w)))
    f = outputs_of(network, w, data)
    if not isinstance(data, RegressionData):
        return total - data.loss(f, 1.0)
    error = 0.5 * jnp.sum((data.y - f) ** 2)
    return total + summed_out(hyper.beta, float(data.y.shape[0]), error)


def _normal(w: Any, mean: Any, factor: Any) -> Any:
    white = solve_triangular(factor, w - mean, lower=True)
    size = jnp.sum(jnp.log(jnp.diagonal(factor)))
    return -0.5 * jnp.sum(white**2) - size - 0.5 * len(w) * _LOG_2PI


def _independent(w: Any, mean: Any, sd: Any) -> Any:
    return jnp.sum(-0.5 * ((w - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * _LOG_2PI, axis=-1)


def log_density(q: Any, w: Any) -> Any:
    """log q(w) of one vector of weights, none of which was removed."""
    if isinstance(q, WeightMixture):
        return jax.nn.logsumexp(q.log_weights + _independent(w, *q.components))
    if isinstance(q, LayeredFactor):
        hidden, inputs = q.units.shape[:2]
        into = jax.scipy.linalg.block_diag(*q.units)
        below = jnp.concatenate([q.cross.reshape(len(q.output), hidden * inputs), q.output], axis=1)
        above = jnp.concatenate([into, jnp.zeros((len(into), len(q.output)))], axis=1)
        return _normal(w, q.mean, jnp.concatenate([above, below]))
    if isinstance(q, FullFactor):
        return _normal(w, q.mean, q.factor)
    return _independent(w, q.mean, q.sd)


_KNOWN = (DiagonalPosterior, LayeredPosterior, FullPosterior, MixturePosterior)


@dataclass(frozen=True)
class EvidenceEstimate:
    """log evidence with its standard error (by importance: of the log), steps of tempering, and the
    effective number of draws.
    """

    log_evidence: float
    error: float
    steps: int
    effective: float


@partial(jax.jit, static_argnames=("family", "prior"))
def _log_ratios(
    family: Any, prior: str, flat: Any, weights: Weights, draws: Any, data: Data, hyper: Hyper
) -> Any:
    q = family.read(flat[: family.size], weights)

    def one(w: Any) -> Any:
        return log_joint(family.network, prior, w, data, hyper) - log_density(q, w)

    return jax.vmap(one)(draws)


def log_evidence(
    net: BayesianMLPRegressor,
    method: Literal["importance", "smc"] = "importance",
    *,
    draws: int = 1000,
    random_state: Seed = None,
) -> EvidenceEstimate:
    """Estimate the log evidence of a fitted regressor, on the scale of its `bound_`.

    `method` is importance sampling or sequential Monte Carlo (`smc`), each with `draws` draws.

    `net` is the fitted regressor, `random_state` the seed of the draws.

    >>> from kikuchi.bayesnn import BayesianMLPRegressor
    >>> X = np.linspace(-1, 1, 20)[:, None]
    >>> net = BayesianMLPRegressor(1, "diagonal", "grouped", restarts=1, random_state=0)
    >>> found = log_evidence(net.fit(X, X[:, 0] + 0.1 * np.sin(50 * X[:, 0])), random_state=0)
    >>> net.bound_ < found.log_evidence
    True
    """
    problem = getattr(net, "_problem_", None)
    if problem is None or not isinstance(problem.posterior, _KNOWN):
        raise MethodError("log_evidence: a regressor that was fitted here, not read from a file")
    if not np.all(net._weights.kept > 0):
        raise MethodError("log_evidence: not of networks from which prune has removed weights")
    rng = generator(random_state)
    with jax.enable_x64(True):
        weights = Weights(*map(jnp.asarray, net._weights))
        flat, points = jnp.asarray(net._flat), net._draws(draws, rng)
        given = (problem.posterior, net.prior, flat, weights)
        if method == "importance":
            logs = np.asarray(_log_ratios(*given, points, problem.data, problem.hyper))
            found = _average(logs)
        elif method == "smc":
            found = _tempered(given, points, problem.data, problem.hyper, rng)
        else:
            raise MethodError(f"log_evidence: method is 'importance' or 'smc', got '{method}'")
    return EvidenceEstimate(found[0] + net._shift(), *found[1:])


def _average(logs: Array) -> tuple[float, float, int, float]:
    top = float(logs.max())
    ratios = np.exp(logs - top)
    mean = float(ratios.mean())
    effective = float(ratios.sum() ** 2 / np.sum(ratios**2))
    error = float(ratios.std() / mean / math.sqrt(len(logs)))
    return top + math.log(mean), error, 0, effective


def _algorithm(given: Any, spread: Any, data: Data, hyper: Hyper) -> Any:
    """Tempering of draws from q to the posterior, by steps that keep most of their effective
    number.
    """
    with extras_named():
        from blackjax import adaptive_tempered_smc, hmc
        from blackjax.smc import resampling
    family, prior, flat, weights = given
    q = family.read(flat[: family.size], weights)
    return adaptive_tempered_smc(
        lambda w: log_density(q, w),
        lambda w: log_joint(family.network, prior, w, data, hyper) - log_density(q, w),
        hmc.build_kernel(),
        hmc.init,
        {
            "step_size": jnp.array([_STEP]),
            "inverse_mass_matrix": spread[None],
            "num_integration_steps": jnp.array([_LEAPFROGS]),
        },
        resampling.systematic,
        target_ess=_KEPT_SIZE,
        num_mcmc_steps=_MOVES,
    )


@partial(jax.jit, static_argnames=("family", "prior"))
def _tempering_step(
    family: Any, prior: str, flat: Any, weights: Weights, spread: Any, data: Data, hyper: Hyper,
    key: Any, state: Any,
) -> Any:  # fmt: skip
    return _algorithm((family, prior, flat, weights), spread, data, hyper).step(key, state)


def _tempered(
    given: Any, points: Any, data: Data, hyper: Hyper, rng: np.random.Generator
) -> tuple[float, float, int, float]:
    spread = jnp.var(points, axis=0)
    state, total, steps = _algorithm(given, spread, data, hyper).init(points), 0.0, 0
    key = jax.random.key(int(rng.integers(2**31)))
    while float(state.tempering_param) < 1.0:
        if steps == _MOST_STEPS:
            raise MethodError(
                f"log_evidence: tempering did not end in {steps} steps; give more draws"
            )
        key, now = jax.random.split(key)
        state, told = _tempering_step(*given, spread, data, hyper, now, state)
        total += float(told.log_likelihood_increment)
        steps += 1
    effective = len(points) * _KEPT_SIZE
    return total, math.sqrt(max(steps, 1) * (1 / _KEPT_SIZE - 1) / len(points)), steps, effective
