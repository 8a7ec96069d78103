"""Assumed-density filtering, expectation propagation and particles for non-Gaussian outputs.

The states have the linear Gaussian dynamics of a `StateSpace` with one output row w: outputs depend
on f_t = w' x_t + offset. One forward pass that fits a Gaussian by moments after each output is the
assumed-density filter; removing each output's Gaussian again and refitting it in the light of all
the others, until nothing changes, is expectation propagation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError, MethodError, ModelError
from kikuchi.core.seeds import Seed, generator
from kikuchi.engines.sites.propagation import Propagated, SiteModel, propagate
from kikuchi.temporal.gaussian import is_positive, symmetric_inverse
from kikuchi.temporal.kernels import information as info_kernels
from kikuchi.temporal.kernels.information import CanonicalChain
from kikuchi.temporal.kernels.moments import Motion, assumed_density
from kikuchi.temporal.moments.emissions import ScalarEmission
from kikuchi.temporal.state_space.inference import (
    canonical_chain,
    noise_constant,
    smooth_states,
)
from kikuchi.temporal.state_space.parameters import StateSpace
from kikuchi.temporal.state_space.results import EqualSteps, SmoothedStates, deviations

_WEAK = 1e-12  # precision of a site that is as good as none


@dataclass(eq=False)
class MomentStates:
    """States by moment passing.

    Attributes
    ----------
    mean (T, n), covariance (T, n, n), log_evidence (an approximation), sites (T, 2): precision and
    shift of the Gaussian in place of each output, converged, iterations.
    """

    mean: Array
    covariance: Array
    log_evidence: float
    sites: Array
    converged: bool = True
    iterations: int = 1

    @property
    def deviation(self) -> Array:
        """Standard deviation of each state, (T, n)."""
        return deviations(self.covariance)


def _checked(model: StateSpace, emission: ScalarEmission, y: Array) -> Array:
    column = np.ascontiguousarray(np.asarray(y, dtype=np.float64).reshape(-1))
    if not len(column):
        raise DataError("no outputs; give at least one")
    if model.n_outputs != 1:
        raise ModelError(f"outputs depend on one linear predictor, the model has {model.n_outputs}")
    if model.initial_covariance is None:
        raise ModelError("moment passing needs a proper prior; give initial_covariance")
    for name in model.varying:
        if len(getattr(model, name)) < len(column):
            raise DataError(f"{name} is given for fewer than {len(column)} steps")
    if np.isinf(column).any():
        raise DataError(f"row {int(np.argmax(np.isinf(column)))} has an infinite output")
    return emission.check(column)


def _leading(value: Any, axes: int) -> Array:
    array = np.asarray(value, dtype=np.float64)
    return np.ascontiguousarray(array if array.ndim > axes else array[None])


def moment_filter(model: StateSpace, emission: ScalarEmission, y: Array) -> MomentStates:
    """Assumed-density filter: a Gaussian fitted by moments after each output.

    Parameters
    ----------
    model : dynamics, prior, and the row w (1, n) or (T, 1, n) and offset of the linear predictor;
        output_noise is not used
    emission : what y is given the linear predictor
    y : outputs (T,); NaN is missing

    >>> from kikuchi.temporal.moments.emissions import Probit
    >>> walk = StateSpace([[1.0]], [[1.0]], [[0.1]], [[0.0]], initial_covariance=[[1.0]])
    >>> f = moment_filter(walk, Probit(), np.array([1.0, 1.0, -1.0]))
    >>> f.mean.round(2).ravel().tolist(), round(f.log_evidence, 3)
    ([0.56, 0.89, 0.2], -2.496)

    Reference: HOJ-I22, HOJ-I23.
    """
    column = _checked(model, emission, y)
    steps, n = len(column), model.n_states
    means, covs, sites = np.empty((steps, n)), np.empty((steps, n, n)), np.empty((steps, 2))
    motion = Motion(
        _leading(model.transition, 2),
        _leading(model.state_noise, 2),
        _leading(model.state_offset, 1),
        np.ascontiguousarray(_leading(model.output, 2)[:, 0]),
        np.ascontiguousarray(_leading(model.output_offset, 1)[:, 0]),
        model.initial_mean,
        model.initial_covariance,
    )
    value, failed = assumed_density(
        emission.code, emission.numbers(), motion, column, means, covs, sites
    )
    if failed >= 0 or not math.isfinite(value):
        raise ModelError(f"the moments of step {failed} do not exist; check the scale of the state")
    return MomentStates(means, covs, float(value), sites)


def expectation_propagation(
    model: StateSpace, emission: ScalarEmission, y: Array, *, max_iter: int = 100,
    tol: float = 1e-8, damping: float = 0.0,
) -> MomentStates:  # fmt: skip
    """Expectation propagation: Gaussians in place of the outputs, refitted until none changes.

    `model` holds the dynamics, `emission` the outputs given f, `y` (T,) the outputs; it ends after
    `max_iter` sweeps at the latest.

    Parameters as of `moment_filter`; `tol` is the largest change of a mean of f in its standard
    deviations, `damping` the share of the old Gaussian that is kept. The evidence of a model with
    Gaussian outputs would be exact.

    Reference: HOJ-I22.
    """
    chain, found = _propagated(model, emission, y, max_iter, tol, damping)
    factors, smoothed, converged, iterations = found
    evidence = chain.log_evidence(factors, smoothed)
    return MomentStates(
        smoothed.mean, smoothed.covariance, evidence, factors, converged, iterations
    )


def site_smoother(
    model: StateSpace, emission: ScalarEmission, y: Array, damping: float = 0.2
) -> tuple[float, SmoothedStates]:
    """Log-evidence, and the Gaussian smoother with the Gaussians of expectation propagation in
    place of the outputs.
    """
    chain, (factors, smoothed, _, _) = _propagated(model, emission, y, 100, 1e-6, damping)
    return chain.log_evidence(factors, smoothed), smoothed


def _propagated(
    model: StateSpace, emission: ScalarEmission, y: Array, max_iter: int, tol: float,
    damping: float,
) -> tuple[_OutputSites, Propagated[SmoothedStates]]:  # fmt: skip
    column = _checked(model, emission, y)
    chain = _OutputSites(model, emission, column)
    start = moment_filter(model, emission, column).sites
    return chain, propagate(chain, start, tol=tol, limit=max_iter, damping=damping)


class _OutputSites(SiteModel[SmoothedStates]):
    """The Gaussian chain with a factor in place of each output."""

    def __init__(self, model: StateSpace, emission: ScalarEmission, y: Array) -> None:
        self.model, self.emission, self.y = model, emission, y
        self.steps = len(y)
        rows = _leading(model.output, 2)[:, 0]
        self.design = np.broadcast_to(rows[: self.steps], (self.steps, model.n_states))
        offsets = _leading(model.output_offset, 1)[:, 0]
        self.offsets = np.broadcast_to(offsets[: self.steps], (self.steps,))
        noise = _leading(model.state_noise, 2)
        self.regular = all(is_positive(part) for part in noise) and is_positive(
            model.initial_covariance
        )

    def condition(self, factors: Array) -> SmoothedStates:
        """Return moments of the states, with the log of the integral of all factors."""
        if not self.regular:
            return self._pseudo_outputs(factors)
        m, n = self.model, self.model.n_states
        noise = _leading(m.state_noise, 2)
        precision = symmetric_inverse(m.initial_covariance)
        pull = precision @ m.initial_mean
        evidence = factors[:, :1, None] * self.design[:, :, None] * self.design[:, None, :]
        chain = CanonicalChain(
            _leading(m.transition, 2), symmetric_inverse(noise), _leading(m.state_offset, 1),
            np.ascontiguousarray(evidence), np.arange(self.steps, dtype=np.uint32),
            factors[:, 1:] * self.design, pull, precision,
        )  # fmt: skip
        log_z, _, kept = canonical_chain(chain, keep=True)
        constant = 0.5 * float(np.linalg.slogdet(2 * np.pi * m.initial_covariance)[1])
        constant += 0.5 * float(pull @ m.initial_mean) + noise_constant(noise, self.steps)
        means, covs = np.empty((self.steps, n)), np.empty((self.steps, n, n))
        pairs = np.empty((self.steps - 1, n, n))
        info_kernels.information_backward(kept, means, covs, pairs)
        return SmoothedStates(
            means, log_z - constant, "information", EqualSteps(covs), EqualSteps(pairs)
        )

    def _pseudo_outputs(self, factors: Array) -> SmoothedStates:
        """The same with Gaussian outputs of the same effect, for singular dynamics."""
        known = factors[:, 0] > _WEAK
        if (factors[:, 0] < -_WEAK).any():
            raise ModelError("outputs of negative precision need state noise that is not singular")
        weights = np.where(known, factors[:, 0], 1.0)
        outputs = np.where(known, factors[:, 1] / weights, np.nan)[:, None]
        pseudo = self.model.updated(
            output=self.design[:, None, :],
            output_noise=(1.0 / weights)[:, None, None],
            output_offset=np.zeros(1),
        )
        found = smooth_states(pseudo, outputs)
        scale = 0.5 * (np.log(2 * np.pi / weights) + factors[:, 1] ** 2 / weights)
        found.log_likelihood += float(scale[known].sum())
        return found

    def marginals(self, posterior: SmoothedStates) -> tuple[Array, Array]:
        """Return mean and variance of w' x (without offset) of each step."""
        mean = np.einsum("tn,tn->t", self.design, posterior.mean)
        variance = np.einsum("ti,tij,tj->t", self.design, posterior.covariance, self.design)
        return mean, np.maximum(variance, 1e-300)

    def tilted(self, mean: Array, variance: Array) -> tuple[Array, Array, Array]:
        """Return log-mass, mean and variance of each predictor given its output alone."""
        log_mass, moved, shrunk = self.emission.tilted(self.y, mean + self.offsets, variance)
        return log_mass, np.where(np.isnan(self.y), mean, moved - self.offsets), shrunk

    def log_evidence(self, factors: Array, smoothed: SmoothedStates) -> float:
        """Return the log of the approximate integral of prior and outputs."""
        return smoothed.log_likelihood + self.log_masses(factors, smoothed)


# ---------------------------------------------------------------------- particles


@dataclass(eq=False)
class ParticleStates:
    """States by particles: mean (T, n), covariance (T, n, n), log_evidence (unbiased in its
    exponential), effective (T,): effective number of particles, particles (T, N, n).
    """

    mean: Array
    covariance: Array
    log_evidence: float
    effective: Array
    particles: Array


def particle_filter(
    model: StateSpace,
    log_likelihood: Callable[[int, Array], Array],
    steps: int,
    *,
    particles: int = 1000,
    seed: Seed = None,
) -> ParticleStates:
    """Bootstrap particle filter of any outputs: states move by the dynamics of the model.

    The state may be all weights of a network: then this is on-line classification by a network
    whose weights drift.

    Parameters
    ----------
    model : dynamics and prior; its outputs are not used
    log_likelihood : function of the step t and states (N, n) that answers log p(y_t | state), (N,)
    steps : length of the sequence
    particles, seed : how many, and randomness

    >>> walk = StateSpace([[1.0]], [[1.0]], [[0.1]], [[1.0]], initial_covariance=[[1.0]])
    >>> y = np.array([0.5, 1.0])
    >>> f = particle_filter(walk, lambda t, x: -0.5 * (y[t] - x[:, 0]) ** 2, 2, seed=0)
    >>> f.mean.shape
    (2, 1)

    Reference: HOJ-X3.
    """
    kept = _particles(model, log_likelihood, steps, particles, seed)
    return kept[0]


def particle_smoother(
    model: StateSpace,
    log_likelihood: Callable[[int, Array], Array],
    steps: int,
    *,
    particles: int = 1000,
    paths: int = 200,
    seed: Seed = None,
) -> ParticleStates:
    """Backward simulation over the particles of the filter: `paths` draws of all states together.

    `model`, `log_likelihood`, `steps`, `particles` and `seed` are those of `particle_filter`. The
    state noise must not be singular.

    Reference: HOJ-X3.
    """
    noise = np.asarray(model.state_noise)
    if noise.ndim > 2 or not is_positive(noise):
        raise MethodError("the particle smoother needs constant state noise that is not singular")
    rng = generator(seed)
    filtered, clouds, weights = _particles(model, log_likelihood, steps, particles, rng)
    inverse = np.linalg.inv(noise)
    drawn = np.empty((steps, paths, model.n_states))
    chosen = rng.choice(particles, size=paths, p=weights[-1])
    drawn[-1] = clouds[-1][chosen]
    for t in range(steps - 2, -1, -1):
        error = drawn[t + 1][:, None] - _moved(model, clouds[t], t + 1)[None]
        logs = np.log(np.maximum(weights[t], 1e-300)) - 0.5 * np.einsum(
            "pni,ij,pnj->pn", error, inverse, error
        )
        logs += rng.gumbel(size=logs.shape)  # the largest is a draw
        drawn[t] = clouds[t][logs.argmax(axis=1)]
    mean = drawn.mean(axis=1)
    centred = drawn - mean[:, None]
    covariance = np.einsum("tpi,tpj->tij", centred, centred) / max(paths - 1, 1)
    return ParticleStates(mean, covariance, filtered.log_evidence, filtered.effective, drawn)


def _moved(model: StateSpace, x: Array, t: int) -> Array:
    a, b = _leading(model.transition, 2), _leading(model.state_offset, 1)
    return np.asarray(x @ a[t if len(a) > 1 else 0].T + b[t if len(b) > 1 else 0])


def _particles(
    model: StateSpace, log_likelihood: Any, steps: int, count: int, seed: Seed
) -> tuple[ParticleStates, Array, Array]:
    if steps < 1 or count < 2:
        raise DataError(f"{steps} steps of {count} particles; give at least 1 and 2")
    if model.initial_covariance is None:
        raise ModelError("particles need a proper prior; give initial_covariance")
    rng = generator(seed)
    n = model.n_states
    q = _leading(model.state_noise, 2)
    root0, roots = (_root(p) for p in (model.initial_covariance[None], q))
    x = model.initial_mean + rng.normal(size=(count, n)) @ root0[0].T
    clouds, weights = np.empty((steps, count, n)), np.empty((steps, count))
    w, total = np.full(count, -math.log(count)), 0.0
    for t in range(steps):
        if t:
            noise = rng.normal(size=(count, n)) @ roots[t if len(roots) > 1 else 0].T
            x = _moved(model, x, t) + noise
        logs = np.asarray(log_likelihood(t, x), dtype=np.float64)
        if logs.shape != (count,) or np.isnan(logs).any():
            raise DataError(f"log_likelihood of step {t} must answer {count} numbers")
        w = w + logs
        step = float(logsumexp(w))
        if not math.isfinite(step):
            raise ModelError(f"no particle explains step {t}; use more particles")
        total += step
        w = w - step
        clouds[t], weights[t] = x, np.exp(w)
        if 1.0 / (weights[t] ** 2).sum() < 0.5 * count:
            places = (rng.random() + np.arange(count)) / count
            edges = np.cumsum(weights[t])
            x = x[np.minimum(np.searchsorted(edges, places * edges[-1]), count - 1)]
            w = np.full(count, -math.log(count))
    mean = np.einsum("tp,tpi->ti", weights, clouds)
    centred = clouds - mean[:, None]
    covariance = np.einsum("tp,tpi,tpj->tij", weights, centred, centred)
    effective = 1.0 / (weights**2).sum(axis=1)
    return ParticleStates(mean, covariance, total, effective, clouds), clouds, weights


def _root(covariances: Array) -> Array:
    values, vectors = np.linalg.eigh(covariances)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :])
