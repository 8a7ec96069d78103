"""Noise of regression with heavy tails: Student's t, its degrees of freedom found by the bound.

A target is t_n = f_n + e_n with e_n | u_n ~ N(0, 1 / (beta u_n)) and u_n ~ Gamma(nu/2, nu/2), which
makes e_n Student's t with nu degrees of freedom. For one nu the bound with q(w) q(beta) prod q(u_n)
is, with s_n = <(t_n - f_n)²>,

    sum_n [<ln beta> + <ln u_n> - ln 2 pi - <beta> <u_n> s_n] / 2 - sum_n KL(q(u_n) | p(u_n))
    - KL(q(beta) | p(beta)).

Its best q(u_n) is Gamma((nu + 1)/2, (nu + <beta> s_n)/2), the E step of EM for Student's t. Put in,
it leaves

    N [<ln beta> / 2 + ln Gamma((nu + 1)/2) - ln Gamma(nu/2) - ln(2 pi) / 2 + nu/2 ln(nu/2)]
    - (nu + 1)/2 sum_n ln((nu + <beta> s_n)/2) - KL(q(beta) | p(beta)),

and the best q(beta) has shape A = a + N/2 and the rate r that solves

    r = b + sum_n <u_n> s_n / 2,    <u_n> = (nu + 1) / (nu + A s_n / r),

one number, found by Newton's method to rounding. As the bound is stationary in both posteriors, its
gradient by s_n is that at fixed ones: - <beta> <u_n> / 2, a target far off counts little.

nu has equal prior probability at the values of `DEGREES`, with Gaussian noise as the last. The
bound L_nu of each gives ln mean exp L_nu, a bound for the whole; it is never more than ln 7 = 1.9
nats below that of Gaussian noise with the same q(w). All values are above 2, so that the noise has
a standard deviation.

Reference: LAW-I20 (the Gaussian case).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from scipy.special import logsumexp, ndtr

from kikuchi.bayesnn.bound import GammaDensity, Hyper, RegressionData
from kikuchi.bayesnn.posteriors import OutputMoments
from kikuchi.core.arrays import Array

DEGREES = (2.5, 3.0, 4.0, 6.0, 10.0, 20.0, math.inf)
"""Values of the degrees of freedom; the last is Gaussian noise."""

_LOG_2PI = math.log(2.0 * math.pi)
_FINITE = np.array(DEGREES[:-1])
_NEWTON_STEPS = 15
_AT_START = 4.0  # degrees of freedom at the modes where fits begin
_LOG_SCALES = np.arange(-24.0, 4.0, 0.2)  # of u, where its density is not 0 to double precision
_NO_SHARE = 1e-40
_HALVINGS = 60


class StudentPosterior(NamedTuple):
    """Probabilities of the degrees of freedom, and for each the posterior of the precision."""

    probability: Any
    beta: GammaDensity

    @property
    def mean(self) -> Any:
        """Mean precision."""
        return jnp.sum(self.probability * self.beta.mean)


class StudentData(RegressionData):
    """Rows of inputs that end with a 1, and targets with Student noise."""

    __slots__ = ()

    def expected(self, output: OutputMoments, hyper: Hyper) -> tuple[Any, StudentPosterior]:
        """Lower bound on the expected log density of the targets less the cost of the noise."""
        squares = (self.y - output.mean) ** 2 + output.variance
        present = jnp.broadcast_to(self.present, self.y.shape)
        n = jnp.sum(present)
        shape = hyper.beta.shape + 0.5 * n
        still = jax.lax.stop_gradient(squares)
        rates = _best_rates(shape, hyper.beta.rate, present, still)
        gaussian = hyper.beta.rate + 0.5 * jnp.sum(present * still)
        beta = GammaDensity(jnp.full(len(DEGREES), shape), jnp.append(rates, gaussian))
        nu = _FINITE[:, None]
        tails = jnp.log(0.5 * (nu + beta.mean[:-1, None] * squares))
        each = gammaln(0.5 * (nu + 1.0)) - gammaln(0.5 * nu) + 0.5 * nu * jnp.log(0.5 * nu)
        student = jnp.sum(present * (each - 0.5 * (nu + 1.0) * tails), axis=1)
        normal = -0.5 * beta.mean[-1] * jnp.sum(present * squares)
        values = 0.5 * n * (beta.log_mean - _LOG_2PI) - beta.divergence(hyper.beta)
        values = values + jnp.append(student, normal)
        probability = jax.nn.softmax(values)
        value = jax.scipy.special.logsumexp(values) - math.log(len(DEGREES))
        return value, StudentPosterior(probability, beta)

    def loss(self, f: Any, beta: Any) -> Any:
        """Minus the log density of the targets at an output, up to a constant, at 4 degrees."""
        squares = beta * (self.y - f) ** 2 / _AT_START
        return 0.5 * (_AT_START + 1.0) * jnp.sum(self.present * jnp.log1p(squares))

    def curvature(self, f: Any, beta: Any) -> Any:
        """Second derivatives of `loss` by the outputs with the scales u of the rows as they are."""
        scales = (_AT_START + 1.0) / (_AT_START + beta * (self.y - f) ** 2)
        return self.present * beta * scales


def _best_rates(shape: Any, first: Any, present: Any, squares: Any) -> Any:
    """Rates of the precision for each finite nu.

    With H(r) = b / r + sum (nu + 1)/2 s_n / (nu r + A s_n) the root of H(r) = 1 is sought. 1 / H
    rises and is concave, so that Newton's steps from r = b, below the root, rise to it.
    """
    nu = _FINITE[:, None]

    def step(_: Any, rate: Any) -> Any:
        below = nu * rate[:, None] + shape * squares
        part = 0.5 * (nu + 1.0) * present * squares / below
        value = first / rate + jnp.sum(part, axis=1)
        slope = -first / rate**2 - jnp.sum(part * nu / below, axis=1)
        return rate + value * (1.0 - value) / slope

    start = jnp.full(len(_FINITE), first)
    return jax.lax.fori_loop(0, _NEWTON_STEPS, step, start)


# ---------------------------------------------------------------------- predictions


class NoiseMixture(NamedTuple):
    """Noise as a mixture of Gaussians of the same mean: variances and their probabilities; `total`
    is the variance of the noise.
    """

    variance: Array
    probability: Array
    total: float

    def scaled(self, unit: float) -> NoiseMixture:
        """The noise in `unit` times as many of the units."""
        square = unit * unit
        return NoiseMixture(square * self.variance, self.probability, square * self.total)

    def draws(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Independent noise."""
        chosen = rng.choice(len(self.variance), size=shape, p=self.probability)
        return np.asarray(rng.standard_normal(shape) * np.sqrt(self.variance[chosen]))

    def log_density(self, distance: Array, variance: Array) -> Array:
        """ln p of targets this far from means with Gaussian errors of this variance."""
        spread = variance[:, None] + self.variance
        each = -0.5 * (distance[:, None] ** 2 / spread + np.log(spread) + _LOG_2PI)
        return np.asarray(logsumexp(each + np.log(self.probability), axis=1))

    def reach(self, level: float, variance: Array) -> Array:
        """Half widths of the central intervals of probability `level`."""
        spread = np.sqrt(variance[:, None] + self.variance)
        low, high = np.zeros(len(variance)), np.full(len(variance), float(spread.max()))
        while True:
            short = self._inside(high, spread) < level
            if not short.any():
                break
            high[short] *= 2.0
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            short = self._inside(middle, spread) < level
            low, high = np.where(short, middle, low), np.where(short, high, middle)
        return np.asarray(0.5 * (low + high))

    def _inside(self, reach: Array, spread: Array) -> Array:
        return np.asarray((2.0 * ndtr(reach[:, None] / spread) - 1.0) @ self.probability)


def student_mixture(probability: Array, shape: float, rates: Array) -> NoiseMixture:
    """Student noise as a mixture over the scale u, whose density is smooth in ln u.

    >>> from scipy.stats import t
    >>> noise = student_mixture(np.eye(7)[2], 101.0, np.full(7, 100.0))
    >>> found = noise.log_density(np.array([0.0, 3.0, 30.0]), np.zeros(3))
    >>> bool(np.abs(found - t(4.0).logpdf([0.0, 3.0, 30.0])).max() < 1e-9)
    True
    """
    scales = np.exp(_LOG_SCALES)
    variances, shares, total = [], [], 0.0
    for own, nu, rate in zip(probability, DEGREES, rates, strict=True):
        unit = rate / max(shape - 1.0, 0.5 * shape)
        if math.isinf(nu):
            variances.append(np.array([unit]))
            shares.append(np.array([own]))
            total += own * unit
            continue
        total += own * unit * nu / (nu - 2.0)
        logs = 0.5 * nu * (_LOG_SCALES - scales)
        density = np.exp(logs - logs.max())
        variances.append(unit / scales)
        shares.append(own * density / density.sum())
    variance, share = np.concatenate(variances), np.concatenate(shares)
    kept = share > _NO_SHARE
    return NoiseMixture(variance[kept], share[kept] / share[kept].sum(), float(total))
