"""The lower bound on the log evidence, with the gamma posteriors of all precisions at their best.

With q(w) q(alpha) q(beta) the bound is

    N/2 (<ln beta> - ln 2 pi) - <beta> <E_D> + sum_k [<ln alpha_k> - ln 2 pi - <alpha_k> <w_k²>] / 2
    + S(q(w)) - KL(q(alpha) | p(alpha)) - KL(q(beta) | p(beta)),       E_D = sum_n (t_n - f_n)² / 2,

and for given q(w) the best gamma posteriors have shape a + n/2 and rate b + <sum of squares> / 2.
Put in, they leave a function of q(w) alone, which one L-BFGS maximises; what the thesis does in two
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
import numpy as np
from jax.scipy.special import digamma, gammaln

from kikuchi.bayesnn.network import Network, Precisions, precisions
from kikuchi.bayesnn.posteriors import OutputMoments, WeightPosterior, Weights

_LOG_2PI = math.log(2.0 * math.pi)
_FEWEST = 16  # rows of a compiled program
_SURE = 100.0  # a margin whose class is certain in double precision


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
    """Rows of inputs that end with a 1, and targets with Gaussian noise; `present` is 0 for rows
    that only fill a shape.
    """

    x: Any
    y: Any
    present: Any = 1.0

    def expected(self, output: OutputMoments, hyper: Hyper) -> tuple[Any, Any]:
        """Expected log density of the targets less the cost of the noise precision; its posterior.

        Both with the best posterior of the precision for these moments.
        """
        squares = (self.y - output.mean) ** 2 + output.variance
        error = 0.5 * jnp.sum(self.present * squares)
        n = jnp.sum(jnp.broadcast_to(self.present, self.y.shape))
        # at the best rate the bound has no slope by it, so that none need be followed
        rate = jax.lax.stop_gradient(hyper.beta.rate + error)
        beta = GammaDensity(hyper.beta.shape + 0.5 * n, rate)
        value = 0.5 * n * (beta.log_mean - _LOG_2PI) - beta.mean * error
        return value - beta.divergence(hyper.beta), beta

    def loss(self, f: Any, beta: Any) -> Any:
        """Minus the log density of the targets at an output, up to a constant."""
        return 0.5 * beta * jnp.sum(self.present * (self.y - f) ** 2)

    def curvature(self, f: Any, beta: Any) -> Any:
        """Second derivatives of `loss` by the outputs."""
        return jnp.broadcast_to(self.present * beta, f.shape)


class ClassData(NamedTuple):
    """Rows of inputs that end with a 1, and one column per network: of two classes one column of
    -1 and 1, of more a column per class, 1 for that of the row and 0 for others. `present` is 0 for
    rows that only fill a shape.
    """

    x: Any
    y: Any
    present: Any = 1.0

    def expected(self, output: OutputMoments, hyper: Hyper) -> tuple[Any, None]:
        """Lower bound on the expected log probability of the classes.

        Two classes: ln s(t f) >= ln s(xi) + (t f - xi) / 2 - l(xi) (f² - xi²) of the logistic
        function s, whose best xi² is <f²>. More: the softmax is at least the product of
        s(f_k - f_j) over all other classes j, and each factor is bounded in this way.
        """
        mean, square = self._margins(output)
        xi = jnp.sqrt(square)
        each = jax.nn.log_sigmoid(xi) + 0.5 * (mean - xi)
        return jnp.sum(self.present * each), None

    def _margins(self, output: OutputMoments) -> tuple[Any, Any]:
        """Mean and mean square of the margins, which all should be positive."""
        if self.y.shape[1] == 1:
            mean = self.y[:, 0] * output.mean[0]
            return mean, mean**2 + output.variance[0]
        own = self.y.T  # (classes, rows)
        mean = jnp.sum(own * output.mean, axis=0) - output.mean
        square = mean**2 + jnp.sum(own * output.variance, axis=0) + output.variance
        # the margin of a class against itself is left out: ln s(xi) + (mean - xi) / 2 = 0 there
        return jnp.where(own > 0, _SURE, mean), jnp.where(own > 0, _SURE**2, square)

    def loss(self, f: Any, beta: Any) -> Any:
        """Minus the log probability of the classes at outputs (networks, rows)."""
        del beta
        if self.y.shape[1] == 1:
            return -jnp.sum(self.present * jax.nn.log_sigmoid(self.y[:, 0] * f[0]))
        return -jnp.sum(self.present * self.y.T * jax.nn.log_softmax(f, axis=0))

    def curvature(self, f: Any, beta: Any) -> Any:
        """Second derivatives of `loss` by each output."""
        del beta
        p = jax.nn.sigmoid(f) if self.y.shape[1] == 1 else jax.nn.softmax(f, axis=0)
        return self.present * p * (1.0 - p)


Data = RegressionData | ClassData


def filled_size(rows: int) -> int:
    """The least number of rows of a short series, four to a doubling, that holds so many.

    >>> [filled_size(n) for n in (3, 16, 17, 200, 201, 224, 225)]
    [16, 16, 20, 224, 224, 224, 256]
    """
    if rows <= _FEWEST:
        return _FEWEST
    step = 1 << ((rows - 1).bit_length() - 3)
    return -(-rows // step) * step


def filled(data: Data) -> Data:
    """The data with rows that do not count, up to a size of `filled_size`.

    Programs are compiled for each number of rows: with these, tables of similar length share them.
    Rows that do not count repeat the first one, so that all they lead to is finite.
    """
    rows = data.y.shape[0]
    missing = filled_size(rows) - rows
    given = map(np.asarray, data[:2])  # with JAX each operation would be a program of its own
    x, y = (jnp.asarray(np.concatenate([a, np.repeat(a[:1], missing, axis=0)])) for a in given)
    return type(data)(x, y, jnp.asarray(np.repeat([1.0, 0.0], [rows, missing])))


class EvidenceBound(NamedTuple):
    """The bound and what it is made of; `beta` is None where there is no noise."""

    value: Any
    alpha: GammaDensity
    beta: Any
    squares: Any
    output: OutputMoments


def weight_precisions(groups: Precisions, values: Any, one: float) -> Any:
    """A value of each weight from those of its groups: their product (one = 1) or sum (one = 0)."""
    padded = (np if isinstance(values, np.ndarray) else jnp).append(values, one)
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


class PriorTerms(NamedTuple):
    """Return the contribution of the weights of a network to the bound, and the posteriors of its
    precisions.
    """

    value: Any
    alpha: GammaDensity
    squares: Any


def prior_terms(
    network: Network, prior: str, free: Any, moments: tuple[Any, Any], kept: Any, given: Any
) -> PriorTerms:
    """Expected log prior of weights with these means and variances, less the cost of precisions."""
    groups = precisions(network, prior)
    squares = moments[0] ** 2 + moments[1]
    alpha = gamma_posteriors(groups, free, squares, kept, given)
    log_alpha = weight_precisions(groups, alpha.log_mean, 0.0)
    each = kept * (log_alpha - _LOG_2PI) - weight_precisions(groups, alpha.mean, 1.0) * squares
    return PriorTerms(0.5 * jnp.sum(each) - jnp.sum(alpha.divergence(given)), alpha, squares)


def evaluate(
    posterior: WeightPosterior,
    prior: str,
    flat: Any,
    weights: Weights,
    data: Data,
    hyper: Hyper,
) -> EvidenceBound:
    """The bound of a posterior, whose parameters are followed by the free log rates of `prior`."""
    network, count = posterior.network, posterior.n_networks
    q = posterior.read(flat[: posterior.size], weights)
    moments_of_rows = posterior.output(q, data.x)
    expected, beta = data.expected(moments_of_rows, hyper)
    free, moments = flat[posterior.size :], posterior.marginals(q)
    terms = partial(prior_terms, network, prior, given=hyper.alpha)
    if isinstance(data, RegressionData):
        found = terms(free, moments, weights.kept)
    else:
        mean, variance, kept, rates = (a.reshape(count, -1) for a in (*moments, weights.kept, free))
        found = jax.vmap(lambda f, m, v, k: terms(f, (m, v), k))(rates, mean, variance, kept)
    value = expected + jnp.sum(found.value) + posterior.entropy(q, weights)
    return EvidenceBound(value, found.alpha, beta, found.squares, moments_of_rows)


def n_free(network: Network, prior: str) -> int:
    """Return the number of log rates after the parameters of a posterior."""
    return len(precisions(network, prior).free)


# ---------------------------------------------------------------------- compiled


@partial(jax.jit, static_argnames=("posterior", "prior"))
def descent(posterior: WeightPosterior, prior: str, flat: Any, *given: Any) -> Any:
    """Minus the bound, the bound with its parts, and the gradient; compiled once per shape.

    What is `given` are the weights, the data and the hyperparameters, as `evaluate` takes them.
    """

    def loss(parameters: Any) -> Any:
        found = evaluate(posterior, prior, parameters, *given)
        return -found.value, found

    (value, found), slope = jax.value_and_grad(loss, has_aux=True)(flat)
    return value, found, slope


def bound(posterior: WeightPosterior, prior: str, flat: Any, *given: Any) -> EvidenceBound:
    """`evaluate`, compiled."""
    found: EvidenceBound = descent(posterior, prior, jnp.asarray(flat), *given)[1]
    return found


@partial(jax.jit, static_argnames=("posterior",))
def output(posterior: WeightPosterior, flat: Any, weights: Weights, x: Any) -> OutputMoments:
    """Mean and variance of the network at rows that end with a 1."""
    return posterior.output(posterior.read(flat[: posterior.size], weights), x)


def mode_loss(network: Network, data: Data, alpha: Any, beta: Any, w: Any) -> Any:
    """Minus the log posterior of weights at given precisions."""
    return data.loss(outputs_of(network, w, data), beta) + 0.5 * jnp.sum(alpha * w * w)


@partial(jax.jit, static_argnames=("network",))
def mode_descent(network: Network, w: Any, data: Data, alpha: Any, beta: Any) -> Any:
    """`mode_loss` and its gradient."""
    return jax.value_and_grad(partial(mode_loss, network, data, alpha, beta))(w)


@partial(jax.jit, static_argnames=("network",))
def mode_precision(network: Network, w: Any, data: Data, alpha: Any, beta: Any) -> Any:
    """The Gauss-Newton Hessian of minus the log posterior."""
    f = outputs_of(network, w, data)
    slopes = jax.jacobian(lambda at: outputs_of(network, at, data))(w).reshape(-1, w.shape[0])
    curved = slopes.T @ (data.curvature(f, beta).reshape(-1, 1) * slopes)
    return curved + jnp.diag(jnp.broadcast_to(alpha, w.shape))


def outputs_of(network: Network, w: Any, data: Data) -> Any:
    """Outputs of one network, or (networks, rows) of those of classes one after the other."""
    if isinstance(data, RegressionData):
        return network.output(w, data.x)
    each = w.reshape(data.y.shape[1], -1)
    return jax.vmap(lambda own: network.output(own, data.x))(each)
