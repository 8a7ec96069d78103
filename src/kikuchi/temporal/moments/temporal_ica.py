"""`TemporalICA`: sources that walk by Laplace steps, mixed linearly, by three schemes.

The moment-passing scheme of the document matches the moments of the predicted state: the Laplace
step enters by its variance alone, and what remains is a Kalman filter. The other two project after
the evidence: `tap` finds the Gaussians in place of the steps of one frame by adaptive TAP and goes
on, `ep` refits those of all frames in the light of all outputs until none changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError, ModelError
from kikuchi.core.methods import constructor
from kikuchi.core.options import option
from kikuchi.engines.sites.kernels.densities import laplace_of
from kikuchi.engines.sites.propagation import SiteModel, propagate
from kikuchi.temporal import kinds
from kikuchi.temporal.base import Fitted, RowsEstimator, total_log_likelihood
from kikuchi.temporal.kernels import information as info_kernels
from kikuchi.temporal.kernels.information import CanonicalChain
from kikuchi.temporal.sequences import Sequences, check_steps
from kikuchi.temporal.state_space.inference import (
    canonical_chain,
    filter_states,
    forecast_states,
    smooth_states,
)
from kikuchi.temporal.state_space.parameters import StateSpace
from kikuchi.temporal.state_space.results import EqualSteps, Forecast, SmoothedStates, deviations
from kikuchi.training.checkpoint import Arrays

Scheme = Literal["kalman", "tap", "ep"]

_LEAST = 1e-10  # precision of a Gaussian in place of a step


@dataclass(frozen=True, eq=False)
class LaplaceWalks:
    """Sources that walk by Laplace steps, seen through a mixing with Gaussian noise.

    A source is `persistence` times the one before plus a Laplace step: 1 walks, 0 draws sources
    anew at each frame, which is independent component analysis with noise. The first state is a
    step from 0.

    Parameters
    ----------
    mixing : (D, M), one column per source.
    noise : (D,), variances of the outputs.
    rates : (M,), of the Laplace steps of each source.
    persistence : between 0 and 1.

    Reference: HOJ-M14, HOJ-M5.
    """

    mixing: Array
    noise: Array
    rates: Array
    persistence: float = 1.0

    def __post_init__(self) -> None:
        mixing, noise, rates = (
            np.array(v, dtype=np.float64) for v in (self.mixing, self.noise, self.rates)
        )
        if mixing.ndim != 2 or noise.shape != mixing.shape[:1] or rates.shape != mixing.shape[1:]:
            raise ModelError(
                f"mixing {mixing.shape}, noise {noise.shape} and rates {rates.shape}; give (D, M), "
                "(D,) and (M,)"
            )
        if not ((noise > 0).all() and (rates > 0).all() and np.isfinite(mixing).all()):
            raise ModelError("noise and rates must be positive, the mixing finite")
        if not 0.0 <= self.persistence <= 1.0:
            raise ModelError(f"persistence lies between 0 and 1, got {self.persistence:g}")
        for name, value in (("mixing", mixing), ("noise", noise), ("rates", rates)):
            object.__setattr__(self, name, value)

    def equivalent(self) -> StateSpace:
        """The Gaussian walk with the same variances of steps, 2 / rate^2: what moment passing
        through the prediction makes of the model.

        Reference: HOJ-I24.
        """
        m = len(self.rates)
        steps = np.diag(2.0 / self.rates**2)
        return StateSpace(
            self.persistence * np.eye(m), self.mixing, steps, np.diag(self.noise),
            initial_covariance=steps,
        )  # fmt: skip

    def to_arrays(self) -> Arrays:
        """Everything by name."""
        return {
            "mixing": self.mixing, "noise": self.noise, "rates": self.rates,
            "persistence": np.array(self.persistence),
        }  # fmt: skip

    def sample(self, steps: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Sources (`steps`, M) and outputs (steps, D), drawn by the generator `rng`."""
        check_steps(steps, "sample")
        walk = rng.laplace(size=(steps, len(self.rates))) / self.rates
        for t in range(1, steps):
            walk[t] += self.persistence * walk[t - 1]
        noise = np.sqrt(self.noise) * rng.normal(size=(steps, len(self.noise)))
        return walk, walk @ self.mixing.T + noise


def independent_components(mixing: Any, noise: Any, rates: Any) -> LaplaceWalks:
    """Independent component analysis with Laplace sources and noise, as sources without memory.

    `mixing` (outputs, sources), `noise` the variances of the outputs, `rates` of the sources.

    >>> ica = independent_components([[1.0, 0.5], [0.2, 1.0]], [0.1, 0.1], [1.4, 1.4])
    >>> walk_posterior(ica, np.array([[1.0, 1.0]])).mean.shape
    (1, 2)

    Reference: HOJ-M5.
    """
    return LaplaceWalks(mixing, noise, rates, persistence=0.0)


class WalkPosterior(NamedTuple):
    """Sources given the outputs: mean (T, M), covariance (T, M, M), pair_covariance, log_likelihood
    (an approximation), converged.
    """

    mean: Array
    covariance: Array
    pair_covariance: Array
    log_likelihood: float
    converged: bool

    @property
    def deviation(self) -> Array:
        """Standard deviation of each source."""
        return deviations(self.covariance)


def walk_posterior(
    model: LaplaceWalks, y: Array, scheme: Scheme = "ep", *, max_iter: int = 100,
    tol: float = 1e-6, damping: float = 0.3,
) -> WalkPosterior:  # fmt: skip
    """Sources given all outputs by one of the three schemes; NaN is missing.

    Reference: HOJ-I24.

    Parameters
    ----------
    model : the walks
    y : outputs (T, D)
    scheme : kalman, tap (adaptive TAP per frame, then backwards) or ep
    max_iter, tol, damping : of ep; `tol` is the largest change of a mean step in standard
        deviations
    """
    if scheme == "kalman":
        s = smooth_states(model.equivalent(), y)
        return WalkPosterior(s.mean, s.covariance, s.pair_covariance, s.log_likelihood, True)
    chain = _StepSites(model, y)
    if scheme == "tap":
        factors, converged = chain.per_frame(tol)
        s = chain.condition(factors)
    else:
        factors, s, converged, _ = propagate(
            chain, chain.start(), tol=tol, limit=max_iter, damping=damping
        )
    evidence = s.log_likelihood + chain.log_masses(factors, s)
    return WalkPosterior(s.mean, s.covariance, s.pair_covariance, evidence, converged)


class _StepSites(SiteModel[SmoothedStates]):
    """A Gaussian chain with a factor in place of each step of each source, (T, M, 2)."""

    least = _LEAST

    def __init__(self, model: LaplaceWalks, y: Array) -> None:
        self.model, self.y = model, y
        known = ~np.isnan(y)
        weights = known / model.noise
        self.evidence = np.einsum("di,td,dj->tij", model.mixing, weights, model.mixing)
        self.shifts = (weights * np.nan_to_num(y)) @ model.mixing
        self.constant = -0.5 * float(
            (weights * np.nan_to_num(y) ** 2).sum()
            + (known * np.log(2 * np.pi * model.noise)).sum()
        )
        self.which = np.arange(len(y), dtype=np.uint32)

    def start(self) -> Array:
        """Gaussian steps of the same variance."""
        factors = np.zeros((*self.shifts.shape, 2))
        factors[:, :, 0] = 0.5 * self.model.rates**2
        return factors

    def condition(self, factors: Array) -> SmoothedStates:
        """Return moments of the sources; the first state is a step from zero."""
        steps, m = self.shifts.shape
        precision = np.zeros((steps, m, m))
        precision[:, np.arange(m), np.arange(m)] = factors[:, :, 0]
        drift = factors[:, :, 1] / factors[:, :, 0]
        chain = CanonicalChain(
            self.model.persistence * np.eye(m)[None], precision, np.ascontiguousarray(drift),
            np.ascontiguousarray(self.evidence), self.which, self.shifts,
            np.ascontiguousarray(factors[0, :, 1]), precision[0].copy(),
        )  # fmt: skip
        log_z, _, kept = canonical_chain(chain, keep=True)
        log_z += 0.5 * float((factors[1:, :, 1] ** 2 / factors[1:, :, 0]).sum())
        means, covs = np.empty((steps, m)), np.empty((steps, m, m))
        pairs = np.empty((steps - 1, m, m))
        info_kernels.information_backward(kept, means, covs, pairs)
        return SmoothedStates(
            means, log_z + self.constant, "information", EqualSteps(covs), EqualSteps(pairs)
        )

    def marginals(self, posterior: SmoothedStates) -> tuple[Array, Array]:
        """Return mean and variance of each step of each source."""
        kept = self.model.persistence
        mean = posterior.mean.copy()
        mean[1:] -= kept * posterior.mean[:-1]
        own = np.diagonal(posterior.covariance, axis1=1, axis2=2)
        variance = own.copy()
        pairs = np.diagonal(posterior.pair_covariance, axis1=1, axis2=2)
        variance[1:] += kept * (kept * own[:-1] - 2.0 * pairs)
        return mean, np.maximum(variance, 1e-300)

    def tilted(self, mean: Array, variance: Array) -> tuple[Array, Array, Array]:
        """Return log-mass, mean and variance of cavities times Laplace densities."""
        return laplace_moments(mean, variance, self.model.rates)

    def per_frame(self, tol: float) -> tuple[Array, bool]:
        """Gaussians in place of the steps of each frame, given the outputs up to it: the fixed
        point of adaptive TAP with Laplace sources, and whether all were found.
        """
        factors, every = self.start(), True
        m, kept = len(self.model.rates), self.model.persistence
        mean, cov = np.zeros(m), np.zeros((m, m))
        for t in range(len(self.y)):
            mean, cov = kept * mean, kept**2 * cov
            j, h = self.evidence[t], self.shifts[t]
            # with the state before integrated out
            inner = np.linalg.solve(np.eye(m) + j @ cov, np.column_stack([j, h - j @ mean]))
            frame = _FrameSites(self.model, inner[:, :m], inner[:, m])
            found = propagate(frame, factors[t], tol=tol, limit=100, damping=0.3)
            factors[t] = found.factors
            every &= found.converged
            predicted = cov + np.diag(1.0 / factors[t, :, 0])
            start = mean + factors[t, :, 1] / factors[t, :, 0]
            inverse = np.linalg.inv(predicted)
            cov = np.linalg.inv(inverse + j)
            mean = cov @ (inverse @ start + h)
        return factors, every


@dataclass(frozen=True, eq=False)
class _FrameSites(SiteModel[tuple[Array, Array]]):
    """The steps of one frame, with precision `coupling` and linear part `field` from outputs."""

    model: LaplaceWalks
    coupling: Array
    field: Array
    least = _LEAST

    def condition(self, factors: Array) -> tuple[Array, Array]:
        """Return mean and covariance of the steps."""
        precision = self.coupling + np.diag(factors[:, 0])
        covariance = np.asarray(np.linalg.inv(precision), dtype=np.float64)
        return covariance @ (self.field + factors[:, 1]), covariance

    def marginals(self, posterior: tuple[Array, Array]) -> tuple[Array, Array]:
        """Return mean and variance of each step."""
        variance: Array = posterior[1].diagonal()
        return posterior[0], variance

    def tilted(self, mean: Array, variance: Array) -> tuple[Array, Array, Array]:
        """Return log-mass, mean and variance of cavities times Laplace densities."""
        found = laplace_moments(mean[None], variance[None], self.model.rates)
        return found[0][0], found[1][0], found[2][0]


def laplace_moments(mean: Array, variance: Array, rates: Array) -> tuple[Array, Array, Array]:
    """Log-mass, mean and variance of N(s; mean, variance) times a Laplace density, by column.

    >>> log_z, m, v = laplace_moments(np.zeros((1, 1)), np.ones((1, 1)), np.array([1.0]))
    >>> m.tolist(), bool(v[0, 0] < 1)
    ([[0.0]], True)
    """
    log_z, moved, shrunk = np.empty(mean.shape), np.empty(mean.shape), np.empty(mean.shape)
    laplace_of(rates, mean, np.ascontiguousarray(variance), log_z, moved, shrunk)
    return log_z, moved, shrunk


@dataclass(eq=False, repr=False)
class TemporalICA(RowsEstimator, Fitted[LaplaceWalks]):
    """Sources that walk by Laplace steps, mixed linearly with Gaussian noise.

    Learnt with the moments of a scheme: `kalman` is moment passing through the prediction,
    which is a Kalman smoother; `tap` and `ep` keep what the outputs say about each step. With the
    last two the objective is an approximation that need not rise at every step.

    Attributes
    ----------
    model_ (mixing, noise, rates), log_likelihood_, trace_, converged_, stopped_, n_iter_,
    warnings_.

    >>> rng = np.random.default_rng(0)
    >>> walks = LaplaceWalks([[1.0, 0.5], [0.2, 1.0]], [0.1, 0.1], [1.4, 1.4])
    >>> sources, X = walks.sample(300, rng)
    >>> ica = TemporalICA(2, posterior="kalman", max_iter=5, random_state=0).fit(X)
    >>> ica.smooth(X).mean.shape
    (300, 2)

    Reference: HOJ-M14, HOJ-I24.
    """

    kind = kinds.WALKS
    file_kind: ClassVar[str] = "temporal-ica"

    n_components: int = option(2, "Number of sources.", low=1)
    _: KW_ONLY
    posterior: Scheme = option("ep", "Moments: ep, tap (per frame) or kalman.")
    learner: Literal["gradient", "em"] = option("gradient", "How `fit` learns: gradient or em.")
    rate: float = option(math.sqrt(2.0), "Rate of the Laplace steps; fixes the scale.", above=0)
    tol: float = option(
        1e-5, "The fit has converged when an iteration gains less log-likelihood per row.", low=0
    )
    persistence: float = option(
        1.0, "Share of a source that stays from frame to frame; 0: sources without memory.",
        low=0, high=1,
    )  # fmt: skip
    start: LaplaceWalks | None = option(None, "Parameters before learning; by default random.")

    @constructor
    def from_parameters(cls, model: LaplaceWalks, **options: Any) -> Self:
        """An estimator that holds the parameters of `model`, as if it had been fitted to them;
        `options` are those of the class.
        """
        made = cls(len(model.rates), persistence=model.persistence, **options)
        return made._given(model, len(model.noise))

    def _begin(self, sequences: Sequences, rng: np.random.Generator) -> LaplaceWalks:
        if self.start is not None:
            return self.start
        kept = self.persistence
        rows = np.vstack([t[1:] - kept * t[:-1] for t in sequences.tables if len(t) > 1] or
                         [sequences.stacked()])  # fmt: skip
        products = np.nan_to_num(rows)
        values, axes = np.linalg.eigh(products.T @ products / len(rows))
        values, axes = np.maximum(values[::-1], 1e-12), axes[:, ::-1]
        m, d = self.n_components, sequences.width
        mixing = np.zeros((d, m))
        mixing[:, : min(m, d)] = (axes * np.sqrt(values))[:, : min(m, d)]
        turn = np.linalg.qr(rng.normal(size=(m, m)))[0]
        scale = self.rate / math.sqrt(2.0)
        return LaplaceWalks(
            scale * mixing @ turn, 0.1 * np.diagonal(products.T @ products) / len(rows) + 1e-12,
            np.full(m, self.rate), kept,
        )  # fmt: skip

    def _expectation(self, model: LaplaceWalks, sequences: Sequences) -> tuple[float, Any]:
        d, m = model.mixing.shape
        total, yx, xx = 0.0, np.zeros((d, m)), np.zeros((d, m, m))
        yy, counts = np.zeros(d), np.zeros(d)
        for y in sequences.tables:
            p = walk_posterior(model, y, self.posterior)
            total += p.log_likelihood
            known = ~np.isnan(y)
            filled = np.nan_to_num(y)
            second = p.covariance + p.mean[:, :, None] * p.mean[:, None]
            yx += filled.T @ p.mean
            xx += np.einsum("td,tij->dij", known.astype(np.float64), second)
            yy += (filled**2).sum(axis=0)
            counts += known.sum(axis=0)
        return total, (yx, xx, yy, counts)

    def _maximisation(self, model: LaplaceWalks, statistics: Any) -> LaplaceWalks:
        yx, xx, yy, counts = statistics
        mixing = np.linalg.solve(xx, yx[:, :, None])[:, :, 0]
        noise = yy - 2 * (mixing * yx).sum(axis=1) + np.einsum("di,dij,dj->d", mixing, xx, mixing)
        floor = 1e-8 * yy / np.maximum(counts, 1.0) + 1e-300
        noise = np.maximum(noise / np.maximum(counts, 1.0), floor)
        return replace(model, mixing=mixing, noise=noise)

    def _pack(self, model: LaplaceWalks) -> Array:
        return np.concatenate([model.mixing.ravel(), np.log(model.noise)])

    def _unpack(self, model: LaplaceWalks, vector: Array) -> LaplaceWalks:
        d, m = model.mixing.shape
        mixing = vector[: d * m].reshape(d, m)
        return replace(model, mixing=mixing, noise=np.exp(vector[d * m :]))

    def _gradient(self, model: LaplaceWalks, statistics: Any) -> Array:
        yx, xx, yy, counts = statistics
        a = model.mixing
        slope = (yx - np.einsum("dij,dj->di", xx, a)) / model.noise[:, None]
        scatter = yy - 2 * (a * yx).sum(axis=1) + np.einsum("di,dij,dj->d", a, xx, a)
        return np.concatenate([slope.ravel(), 0.5 * (scatter / model.noise - counts)])

    def _read_model(self, arrays: Arrays) -> LaplaceWalks:
        mixing, noise, rates = (np.array(arrays[n]) for n in ("mixing", "noise", "rates"))
        kept = float(arrays["persistence"]) if "persistence" in arrays else 1.0
        return LaplaceWalks(mixing, noise, rates, kept)

    def _restore_state(
        self, arrays: Arrays, facts: Mapping[str, Any], about: Mapping[str, Any]
    ) -> None:
        super()._restore_state(arrays, facts, about)
        if len(self.model_.rates) != self.n_components:
            raise DataError("its parameters are not those of its options")

    # ------------------------------------------------------------------ asking

    def smooth(self, X: Any, *, posterior: Scheme | None = None) -> Any:
        """Sources given all outputs `X` (time, outputs): `WalkPosterior`, or a list for a list;
        `posterior` replaces that of the estimator.
        """
        sequences, model = self._sequences(X), self._model
        chosen: Scheme = posterior or self.posterior
        return sequences.answer([walk_posterior(model, y, chosen) for y in sequences.tables])

    def filter(self, X: Any) -> Any:
        """Sources given the outputs `X` up to each step, by a Kalman filter (scheme `kalman`)."""
        sequences, model = self._sequences(X), self._model.equivalent()
        return sequences.answer([filter_states(model, y) for y in sequences.tables])

    def _total(self, X: Any) -> float:
        return total_log_likelihood(self.smooth(X))

    def _ahead(self, rows: Array, steps: int) -> Forecast:
        """Outputs and sources, with exact variances of steps."""
        model = self._model
        p = walk_posterior(model, rows, self.posterior)
        return forecast_states(model.equivalent(), p.mean[-1], p.covariance[-1], steps)

    def _drawn(self, steps: int, rng: np.random.Generator) -> tuple[Array, Array]:
        model: LaplaceWalks = self._model
        return model.sample(steps, rng)
