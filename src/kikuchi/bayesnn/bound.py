"""The lower bound on the log evidence, with the gamma posteriors of all precisions at their best.

With q(w) q(alpha) q(beta) the bound is

    N/2 (<ln beta> - ln 2 pi) - <beta> <E_D> + sum_k [<ln alpha_k> - ln 2 pi - <alpha_k> <w_k²>] / 2
    + S(q(w)) - KL(q(alpha) | p(alpha)) - KL(q(beta) | p(beta)),       E_D = sum_n (t_n - f_n)² / 2,

and for given q(w) the best gamma posteriors have shape a + n/2 and rate b + <sum of squares> / 2.
Put in, they leave a function of q(w) alone, which one L-BFGS climbs; what the thesis does in two
alternating stages is done at every step. Under node relevance precisions multiply: the rates of
hidden units and output are parameters beside those of q(w), all others are eliminated.

Reference: LAW-I20, LAW-I21, LAW-I23, LAW-L10.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma, gammaln

from kikuchi.bayesnn.network import Network, Precisions, precisions
from kikuchi.bayesnn.posteriors import OutputMoments, WeightPosterior, Weights

_LOG_2PI = math.log(2.0 * math.pi)


class GammaDensity(NamedTuple):
    """A gamma distribution, or several: density b^a x^(a-1) exp(-b x) / Gamma(a)."""

    shape: Any
    rate: Any

    @property
    def mean(self) -> Any:
        """<x>."""
        return self.shape / self.rate

    @property
    def log_mean(self) -> Any:
        """<ln x>."""
        return digamma(self.shape) - jnp.log(self.rate)

    def divergence(self, prior: GammaDensity) -> Any:
        """KL(self | prior)."""
        own = self.shape * jnp.log(self.rate) - gammaln(self.shape)
        others = prior.shape * jnp.log(prior.rate) - gammaln(prior.shape)
        log_ratio = (self.shape - prior.shape) * self.log_mean
        return own - others + log_ratio - (self.rate - prior.rate) * self.mean


class Hyper(NamedTuple):
    """Gamma priors of the precisions of weights (alpha) and of the noise (beta)."""

    alpha: GammaDensity
    beta: GammaDensity


class RegressionData(NamedTuple):
    """Rows of inputs that end with a 1, and targets."""

    x: Any
    y: Any


class EvidenceBound(NamedTuple):
    """The bound and what it is made of."""

    value: Any
    alpha: GammaDensity
    beta: GammaDensity
    squares: Any


def weight_precisions(groups: Precisions, values: Any, one: float) -> Any:
    """A value of each weight from those of its groups: their product (one = 1) or sum (one = 0)."""
    padded = jnp.append(values, one)
    first, second = padded[groups.first], padded[groups.second]
    return first * second if one else first + second


def gamma_posteriors(
    groups: Precisions, free_log_rates: Any, squares: Any, kept: Any, prior: GammaDensity
) -> GammaDensity:
    """Posteriors of the precisions of groups; only those of `groups.free` are given."""
    incidence = jnp.asarray(groups.incidence)
    counts = incidence @ kept
    shape = prior.shape + 0.5 * counts
    rates = jnp.full(len(groups.names), prior.rate)
    if len(groups.free):
        given = jnp.where(counts[groups.free] > 0, jnp.exp(free_log_rates), prior.rate)
        rates = rates.at[groups.free].set(given)
        means = shape / rates
        # the precision of each weight without that of the group that it is eliminated from
        is_free = jnp.zeros(len(groups.names) + 1).at[groups.free].set(1.0).at[-1].set(1.0)
        padded = jnp.append(means, 1.0)
        ends = (groups.first, groups.second)
        other = math.prod(jnp.where(is_free[end] > 0, padded[end], 1.0) for end in ends)
        eliminated = prior.rate + 0.5 * incidence @ (other * squares)
        return GammaDensity(shape, rates + (eliminated - rates) * (1.0 - is_free[:-1]))
    return GammaDensity(shape, prior.rate + 0.5 * incidence @ squares)


def evaluate(
    posterior: WeightPosterior,
    prior: str,
    flat: Any,
    weights: Weights,
    data: RegressionData,
    hyper: Hyper,
) -> EvidenceBound:
    """The bound of a posterior, whose parameters are followed by the free log rates of `prior`."""
    groups = precisions(posterior.network, prior)
    q = posterior.read(flat[: posterior.size], weights)
    output = posterior.output(q, data.x)
    error = 0.5 * jnp.sum((data.y - output.mean) ** 2 + output.variance)
    mean, variance = posterior.marginals(q)
    squares = mean**2 + variance
    alpha = gamma_posteriors(groups, flat[posterior.size :], squares, weights.kept, hyper.alpha)
    n = data.y.shape[0]
    beta = GammaDensity(hyper.beta.shape + 0.5 * n, hyper.beta.rate + error)
    likelihood = 0.5 * n * (beta.log_mean - _LOG_2PI) - beta.mean * error
    log_alpha = weight_precisions(groups, alpha.log_mean, 0.0)
    each = weights.kept * (log_alpha - _LOG_2PI)
    log_prior = 0.5 * jnp.sum(each - weight_precisions(groups, alpha.mean, 1.0) * squares)
    cost = jnp.sum(alpha.divergence(hyper.alpha)) + beta.divergence(hyper.beta)
    value = likelihood + log_prior + posterior.entropy(q, weights) - cost
    return EvidenceBound(value, alpha, beta, squares)


def n_free(network: Network, prior: str) -> int:
    """How many log rates follow the parameters of a posterior."""
    return len(precisions(network, prior).free)


# ---------------------------------------------------------------------- compiled


@partial(jax.jit, static_argnames=("posterior", "prior"))
def bound(
    posterior: WeightPosterior,
    prior: str,
    flat: Any,
    weights: Weights,
    data: RegressionData,
    hyper: Hyper,
) -> EvidenceBound:
    """`evaluate`, compiled once per family and shape."""
    return evaluate(posterior, prior, flat, weights, data, hyper)


@partial(jax.jit, static_argnames=("posterior", "prior"))
def descent(
    posterior: WeightPosterior,
    prior: str,
    flat: Any,
    weights: Weights,
    data: RegressionData,
    hyper: Hyper,
) -> Any:
    """Minus the bound, and its gradient, compiled once per family and shape."""

    def loss(parameters: Any) -> Any:
        return -evaluate(posterior, prior, parameters, weights, data, hyper).value

    return jax.value_and_grad(loss)(flat)


@partial(jax.jit, static_argnames=("posterior",))
def output(posterior: WeightPosterior, flat: Any, weights: Weights, x: Any) -> OutputMoments:
    """Mean and variance of the network at rows that end with a 1."""
    return posterior.output(posterior.read(flat[: posterior.size], weights), x)


@partial(jax.jit, static_argnames=("network",))
def map_descent(network: Network, w: Any, data: RegressionData, alpha: Any, beta: Any) -> Any:
    """Minus the log posterior of weights at given precisions, and its gradient."""

    def loss(w: Any) -> Any:
        residual = data.y - network.output(w, data.x)
        return 0.5 * beta * jnp.sum(residual**2) + 0.5 * alpha * jnp.sum(w * w)

    return jax.value_and_grad(loss)(w)


@partial(jax.jit, static_argnames=("network",))
def map_precisions(network: Network, w: Any, data: RegressionData, alpha: Any, beta: Any) -> Any:
    """Diagonal of the Gauss-Newton Hessian of minus the log posterior."""
    slopes = jax.jacobian(lambda at: network.output(at, data.x))(w)
    return alpha + beta * jnp.sum(slopes**2, axis=0)
