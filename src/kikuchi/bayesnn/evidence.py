"""Estimates of the log evidence, for comparison with the bound and between networks.

Precisions of weights and noise are summed out exactly, so that only weights are drawn:

    p(w) = prod_g Gamma(a_g) / Gamma(a) b^a (2 pi)^(-K_g / 2) (b + |w_g|² / 2)^(-a_g),
    a_g = a + K_g / 2,

and likewise p(y | w) with the squared errors. Draws come from a density q that is built around the
fitted posterior and has the same value at all mirror images of the weights (`images`), so that no
image of a mode is missed. Importance sampling averages p(y, w) / q(w). Sequential Monte Carlo moves
the draws from q to the posterior through geometric averages of both, with Hamiltonian moves and
resampling; it is repeated independently, and the spread of the repetitions gives the error.

The average of importance sampling is unbiased. That of sequential Monte Carlo is so up to the
choice of temperatures from the draws. The logarithm of either is too low on average, by about half
of the squared error.

Reference: HOJ-X5, LAW-I21.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from kikuchi.bayesnn.bound import Data, GammaDensity, Hyper, RegressionData, bound, outputs_of
from kikuchi.bayesnn.images import MOST_UNITS, ImageProposal, NetworkModel, unit_blocks
from kikuchi.bayesnn.network import Network, precisions
from kikuchi.bayesnn.posteriors import Weights
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
_BATCH = 1000  # draws whose densities are computed at once
_REPEATS = 8  # independent runs of sequential Monte Carlo
_STUDENT = 2.365 / 1.96  # widens the error of eight runs, so that two of it hold 95 %
_FEWEST_DRAWS = 80
_TRUSTED = 50.0  # effective number of draws below which the error is not reliable,
_TRUSTED_SHARE = 0.1  # and its share of the draws: where it is small, draws that matter are missed


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
        raise _not_summed_out(prior)
    incidence = jnp.asarray(groups.incidence)
    count = incidence.sum(axis=1)
    total = jnp.sum(summed_out(hyper.alpha, count, 0.5 * incidence @ (w * w)))
    f = outputs_of(network, w, data)
    if not isinstance(data, RegressionData):
        return total - data.loss(f, 1.0)
    error = 0.5 * jnp.sum((data.y - f) ** 2)
    return total + summed_out(hyper.beta, float(data.y.shape[0]), error)


def _not_summed_out(prior: str) -> MethodError:
    return MethodError(f"precisions of prior '{prior}' cannot be summed out; use another prior")


@dataclass(frozen=True)
class EvidenceEstimate:
    """An estimate of the log evidence.

    `error` is the standard error of `log_evidence`: without `warnings`, two of them hold the true
    value in about 95 % of the runs. `steps` is the largest number of tempering steps (0 for
    importance sampling). `effective` is the effective number of draws; for sequential Monte Carlo
    it counts the first draws from which the last ones descend. `warnings` lists reasons not to rely
    on the error.
    """

    log_evidence: float
    error: float
    steps: int
    effective: float
    warnings: tuple[str, ...] = ()


def log_evidence(
    net: BayesianMLPRegressor,
    method: Literal["importance", "smc"] = "importance",
    *,
    draws: int = 1000,
    random_state: Seed = None,
) -> EvidenceEstimate:
    """Estimate the log evidence of a fitted regressor, on the scale of its `bound_`.

    All 2^H H! images of the weights under sign changes and permutations of the H hidden units are
    counted, so that networks with different numbers of units can be compared.

    Parameters
    ----------
    net : fitted BayesianMLPRegressor
        With at most 12 hidden units, no removed weights, and a prior other than `nrd`.
    method : "importance" or "smc", default "importance"
        Importance sampling is fast and suits few hidden units. Sequential Monte Carlo takes longer
        and is more accurate where importance sampling warns of few effective draws.
    draws : int >= 80, default 1000
        Number of draws; `smc` divides them among eight independent runs.
    random_state : int or Generator, optional
        Seed of the draws.

    >>> from kikuchi.bayesnn import BayesianMLPRegressor
    >>> X = np.linspace(-1, 1, 20)[:, None]
    >>> net = BayesianMLPRegressor(1, "diagonal", "grouped", n_init=1, random_state=0)
    >>> found = log_evidence(net.fit(X, X[:, 0] + 0.1 * np.sin(50 * X[:, 0])), random_state=0)
    >>> net.bound_ < found.log_evidence
    True
    """
    _check(net, method, draws)
    rng = generator(random_state)
    with jax.enable_x64(True):
        given = (net._network, net.prior, _proposal(net), net._problem_.data, net._problem_.hyper)
        found = _tempered(given, draws, rng) if method == "smc" else _average(given, draws, rng)
    warnings = _doubts(found.effective, draws, method)
    return replace(found, log_evidence=found.log_evidence + net._shift(), warnings=warnings)


def _doubts(effective: float, draws: int, method: str) -> tuple[str, ...]:
    if effective >= max(_TRUSTED, _TRUSTED_SHARE * draws):
        return ()
    other = "" if method == "smc" else ", or method='smc'"
    return (
        f"only {effective:.0f} of {draws} draws are effective: the estimate may be too low and its "
        f"error too small; use draws={10 * draws}{other}",
    )


def _check(net: BayesianMLPRegressor, method: str, draws: int) -> None:
    problem = getattr(net, "_problem_", None)
    if problem is None or not isinstance(problem.data, RegressionData):
        raise MethodError("log_evidence: a regressor that was fitted here, not read from a file")
    if net.noise != "gaussian":
        raise MethodError(f"log_evidence: for Gaussian noise, not noise='{net.noise}'")
    if not np.all(net._weights.kept > 0):
        raise MethodError("log_evidence: not of networks from which prune has removed weights")
    units = net._network.n_hidden
    if units > MOST_UNITS:
        raise MethodError(
            f"log_evidence: {units} hidden units: the sum over images of the weights is for at "
            f"most {MOST_UNITS} hidden units"
        )
    if method not in ("importance", "smc"):
        raise MethodError(f"log_evidence: method is 'importance' or 'smc', got '{method}'")
    if draws < _FEWEST_DRAWS:
        raise MethodError(f"log_evidence: draws = {draws}; at least {_FEWEST_DRAWS} are needed")


def _proposal(net: BayesianMLPRegressor) -> ImageProposal:
    """Units as the fitted posterior has them, and widths and precisions at its bound."""
    problem, network = net._problem_, net._network
    weights, flat = Weights(*map(jnp.asarray, net._weights)), jnp.asarray(net._flat)
    q = problem.posterior.read(flat[: problem.posterior.size], weights)
    found = bound(problem.posterior, net.prior, flat, weights, problem.filled, problem.hyper)
    groups = precisions(network, net.prior)
    if len(groups.free):
        raise _not_summed_out(net.prior)
    wide = 1.0 / jnp.sqrt(found.alpha.mean[groups.first[: network.n_inputs + 1]])
    return ImageProposal(unit_blocks(network, q), wide, found.alpha.mean, found.beta.mean)


def _log_target(proposal: ImageProposal, model: NetworkModel, position: Any) -> Any:
    """log p(targets, weights) as a density of the position."""
    w, log_size = proposal.weights(model, position)
    return log_joint(model.network, model.prior, w, model.data, model.hyper) + log_size


# ---------------------------------------------------------------------- importance sampling


@partial(jax.jit, static_argnames=("network", "prior", "count"))
def _log_ratios(
    network: Network, prior: str, proposal: ImageProposal, data: Any, hyper: Hyper, key: Any,
    count: int,
) -> Any:  # fmt: skip
    """log p(targets, w) / q(w) of draws."""
    model = NetworkModel(network, prior, data, hyper)

    def one(own: Any) -> Any:
        at = proposal.draw(model, own)
        return _log_target(proposal, model, at) - proposal.log_density(model, at)

    return jax.lax.map(one, jax.random.split(key, count), batch_size=_BATCH)


def _average(given: Any, draws: int, rng: np.random.Generator) -> EvidenceEstimate:
    logs = np.asarray(_log_ratios(*given, _key(rng), draws))
    value, error = _log_mean(logs)
    ratios = np.exp(logs - logs.max())
    return EvidenceEstimate(value, error, 0, float(ratios.sum() ** 2 / np.sum(ratios**2)))


def _log_mean(logs: Array) -> tuple[float, float]:
    """log of the mean of independent estimates, and its standard error."""
    top = float(logs.max())
    ratios = np.exp(logs - top)
    mean = float(ratios.mean())
    return top + math.log(mean), float(ratios.std(ddof=1) / mean / math.sqrt(len(logs)))


def _key(rng: np.random.Generator) -> Any:
    return jax.random.key(int(rng.integers(2**31)))


# ---------------------------------------------------------------------- sequential Monte Carlo


def _algorithm(proposal: ImageProposal, model: NetworkModel) -> Any:
    """Tempering of draws from the proposal to the posterior, by steps that keep most of their
    effective number.
    """
    with extras_named():
        from blackjax import adaptive_tempered_smc, hmc
        from blackjax.smc import resampling

    def log_ratio(at: Any) -> Any:
        return _log_target(proposal, model, at) - proposal.log_density(model, at)

    into = jnp.tile(proposal.spread(), model.network.n_hidden)
    spread = jnp.concatenate([into, jnp.ones(model.network.n_output)])
    return adaptive_tempered_smc(
        lambda at: proposal.log_density(model, at),
        log_ratio,
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


@partial(jax.jit, static_argnames=("network", "prior", "count"))
def _first_state(
    network: Network, prior: str, proposal: ImageProposal, data: Any, hyper: Hyper, key: Any,
    count: int,
) -> Any:  # fmt: skip
    model = NetworkModel(network, prior, data, hyper)
    points = jax.vmap(lambda own: proposal.draw(model, own))(jax.random.split(key, count))
    return _algorithm(proposal, model).init(points)


@partial(jax.jit, static_argnames=("network", "prior"))
def _tempering_step(
    network: Network, prior: str, proposal: ImageProposal, data: Any, hyper: Hyper, key: Any,
    state: Any,
) -> Any:  # fmt: skip
    state, told = _algorithm(proposal, NetworkModel(network, prior, data, hyper)).step(key, state)
    return state, told.log_likelihood_increment, told.ancestors


def _tempered(given: Any, draws: int, rng: np.random.Generator) -> EvidenceEstimate:
    runs = [_tempered_once(given, draws // _REPEATS, rng) for _ in range(_REPEATS)]
    value, error = _log_mean(np.array([run.log_evidence for run in runs]))
    steps, effective = max(run.steps for run in runs), sum(run.effective for run in runs)
    return EvidenceEstimate(value, _STUDENT * error, steps, effective)


def _tempered_once(given: Any, draws: int, rng: np.random.Generator) -> EvidenceEstimate:
    state, total, steps = _first_state(*given, _key(rng), draws), 0.0, 0
    first = np.arange(draws)
    while float(state.tempering_param) < 1.0:
        if steps == _MOST_STEPS:
            raise MethodError(
                f"log_evidence: tempering did not end in {steps} steps; use draws={10 * draws}"
            )
        state, increment, ancestors = _tempering_step(*given, _key(rng), state)
        first, total, steps = first[np.asarray(ancestors)], total + float(increment), steps + 1
    left = np.bincount(first)
    return EvidenceEstimate(total, 0.0, steps, float(draws**2 / np.sum(left**2)))
