r"""Adaptive TAP for ICA, solved as expectation propagation.

Every prior is replaced by a Gaussian factor exp(g s - L s^2 / 2). With chi = (J + diag L)^-1 and
mu = chi (h + g), the field that all others put on source i is

    lam_i = 1 / chi_ii - L_i,   gamma_i = mu_i / chi_ii - g_i,

and the factor is chosen so that mean and variance of the tilted prior are mu_i and chi_ii. At the
fixed point gamma = h - (J - diag lam) m and chi_ii = v_i: the self-consistent lam of adaptive TAP.
Changing one factor changes chi by rank one, which keeps it positive definite as long as the change
is not too negative. lam is kept inside the plane of its prior: a Laplace source may end on the
border lam = 0, which is reported. A sample that does not converge returns to its best factors with
more damping, and in the end begins again with small steps; one that never converges gets linear
response instead and is counted in the warnings. This still works where the plain iteration of lam
diverges.

Reference: HOJ-I19.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array, Mask
from kikuchi.core.options import option
from kikuchi.ica.free_energy import has_log_z, tap_value
from kikuchi.ica.posteriors.naive import (
    LinearResponsePosterior,
    respond,
    response_covariances,
    responses,
)
from kikuchi.ica.posteriors.posterior import Moments, Posterior, Problem

_SHARPEST = (
    1e8  # greatest precision of a factor, in units of J_ii + 1: beyond it rounding takes over
)
_ROUNDING = 1e-10  # of 1 / chi_ii: how far lam must stay above its border
_LEAST_BOTTOM = 0.1  # 1 + (change of L) chi_ii must stay above it
_PATIENCE = 8  # sweeps without a better residual before more damping
_LEAST_STEP = 0.1  # of a step; a sample that needs less begins again, slowly
_SLOW_STEP = 0.07
_USABLE = 1e-3  # residual above which a sample that was given up gets linear response
_COMPACT = 0.75
_TINY = 1e-300


@dataclass(frozen=True)
class AdaptiveTapPosterior(Posterior):
    """Adaptive TAP: cavity fields with self-consistent variances.

    Exact for Gaussian sources; log Z is not a bound.

    >>> from kikuchi.ica.priors.prior import parse_prior
    >>> problem = Problem([[2, 0.5], [0.5, 1.25]], [[0.3], [0.9]], [parse_prior("binary")] * 2)
    >>> answer = AdaptiveTapPosterior().solve(problem)
    >>> answer.mean.ravel().round(6).tolist(), answer.lam.ravel().round(6).tolist()
    ([-0.020059, 0.645306], [1.870793, 1.028685])
    """

    name: ClassVar[str] = "adatap"
    damping: float = option(
        0.0, "fraction of the old factor that is kept, at first", low=0.0, below=1.0
    )
    tol: float = option(1e-8, "largest relative disagreement of means and variances", above=0.0)
    max_iter: int = option(400, "most sweeps over the sources", low=1)

    def _solve(self, problem: Problem, start: Moments | None) -> Moments:
        shape = problem.field.shape
        out = [np.empty(shape) for _ in range(4)]
        half_log_det, converged = np.empty(shape[1]), np.zeros(shape[1], dtype=bool)
        sums = np.zeros((shape[0], shape[0]))
        iterations, replaced, bordered = 0, 0, 0
        for part in problem.chunks(4 * shape[0] ** 2):
            piece = problem.take(part)
            first = None if start is None else start.take(part)
            sites = _Sites(piece, *_first_factors(piece, first))
            done = sites.run(1.0 - self.damping, self.tol, self.max_iter)
            iterations = max(iterations, done)
            answers = sites.answers()
            for target, values in zip(out, answers, strict=True):
                target[:, part] = values
            half_log_det[part], converged[part] = sites.half_log_det, sites.converged
            sums += sites.covariance_sum
            replaced, bordered = replaced + sites.replaced, bordered + sites.bordered
        gamma, lam, mean, response = out
        log_z = tap_value(problem, gamma, lam, mean, half_log_det) if has_log_z(problem) else None
        warnings = _warnings(converged, replaced, bordered)
        return Moments(
            mean, sums, response, log_z, gamma, lam, converged, iterations, False, warnings
        )

    def _covariances(self, problem: Problem, moments: Moments) -> Array:
        return response_covariances(problem, moments)


def _warnings(converged: Mask, replaced: int, bordered: int) -> tuple[str, ...]:
    texts = []
    if bordered:
        texts.append(
            f"{bordered / converged.size:.2%} of the samples have a source whose lam is at its "
            "border"
        )
    if not np.all(converged):
        texts.append(f"{1.0 - float(np.mean(converged)):.2%} of the samples have not converged")
    if replaced:
        texts.append(f"{replaced / converged.size:.2%} of the samples have linear response instead")
    return tuple(texts)


def _first_factors(problem: Problem, start: Moments | None) -> tuple[Array, Array]:
    """Precisions and linear parts: of the start, or of Gaussians like the priors."""
    shape = problem.field.shape
    spread = np.array([prior.mean_variance[1] for prior in problem.priors])[:, None]
    centre = np.array([prior.mean_variance[0] for prior in problem.priors])[:, None]
    site_precision = np.broadcast_to(1.0 / spread, shape).copy()
    site_linear = np.broadcast_to(centre / spread, shape).copy()
    if start is None:
        return site_precision, site_linear
    v = np.maximum(responses(problem, start.gamma, start.lam), _TINY)
    warm = np.minimum(1.0 / v - start.lam, _SHARPEST * (problem.diagonal + 1.0))
    good = np.all(warm + problem.diagonal > 0.0, axis=0)
    site_precision[:, good] = warm[:, good]
    site_linear[:, good] = (start.mean * (warm + start.lam) - start.gamma)[:, good]
    return site_precision, site_linear


def _coupling_size(problem: Problem, size: Array) -> Array:
    """sum_j |J_ij| size_j: how large the terms of J m are."""
    coupling = np.abs(problem.coupling)
    return np.asarray(
        np.einsum("nij,jn->in", coupling, size) if problem.per_sample else coupling @ size
    )


class _Sites:
    """The Gaussian factors of a chunk of samples and the posterior they make."""

    def __init__(self, problem: Problem, site_precision: Array, site_linear: Array) -> None:
        self.whole, self.problem = problem, problem
        self.precision, self.linear = site_precision, site_linear
        self.all_precision, self.all_linear = site_precision.copy(), site_linear.copy()
        self.index = np.arange(problem.n_samples)
        self.converged = np.zeros(problem.n_samples, dtype=bool)
        self.step_size = np.ones(problem.n_samples)
        self.slow = np.zeros(problem.n_samples, dtype=bool)
        self.best = np.full(problem.n_samples, np.inf)
        self.best_precision, self.best_linear = site_precision.copy(), site_linear.copy()
        self.all_best = self.best.copy()
        self.stalled_sweeps = np.zeros(problem.n_samples, dtype=np.int64)
        self._allocate()

    def run(self, step_size: float, tol: float, limit: int) -> int:
        """Sweep until every sample has converged; returns the number of sweeps."""
        self.step_size *= step_size
        self._refresh(restart=True)
        for done in range(1, limit + 1):
            begun = self.precision.copy(), self.linear.copy()
            residual = self._sweep()
            self._damp_stalled(residual, tol, *begun)
            if self._retire_converged(self.best <= tol):
                return done
            self._refresh()
        self._store(np.arange(self.index.size))
        return limit

    def answers(self) -> tuple[Array, Array, Array, Array]:
        """gamma, lam, mean and response of all samples, from fresh inversions."""
        self.problem, self.index = self.whole, np.arange(self.whole.n_samples)
        self.precision, self.linear = self.all_precision, self.all_linear
        self._allocate()
        self._refresh()
        shape = self.precision.shape
        gamma, lam, mean, response = (np.empty(shape) for _ in range(4))
        border = np.zeros(shape[1], dtype=bool)
        for i in range(shape[0]):
            gamma[i], lam[i], _ = self._cavity(i)
            mean[i], response[i] = self.problem.priors[i].moments(gamma[i], lam[i])
            excess = (lam[i] - self.problem.priors[i].least_lam) * self.chi[i, i]
            border |= (excess < 2.0 * _ROUNDING) & (self.problem.diagonal[i] > 0.0)
        self.bordered = int(np.count_nonzero(border & self.converged))
        self._sharpen(gamma, lam, mean, response)
        scale = np.sum(np.log(np.maximum(lam + self.precision, _TINY)), axis=0)
        self.half_log_det = 0.5 * (self.log_det - scale)
        poor = np.flatnonzero(~self.converged & ~(self.all_best <= _USABLE))
        self.replaced = poor.size
        self.chi[:, :, poor] = 0.0
        self.covariance_sum = np.sum(self.chi, axis=2)
        if poor.size:
            self._replace(poor, (gamma, lam, mean, response))
        return gamma, lam, mean, response

    def _sharpen(self, gamma: Array, lam: Array, mean: Array, response: Array) -> None:
        """gamma = h - (J - diag lam) m for converged sources that are almost certain.

        The difference mu / chi_ii - g loses digits when the factors are sharp, this expression when
        the couplings are strong: the one with the smaller terms is used.
        """
        size = np.abs(mean)
        terms = np.abs(self.problem.field) + _coupling_size(self.problem, size)
        sharp = size / np.maximum(np.einsum("iin->in", self.chi), _TINY)
        fresh = self.problem.field - self.problem.couple(mean) + lam * mean
        for i, prior in enumerate(self.problem.priors):
            at = np.flatnonzero(self.converged & (terms[i] < sharp[i]))
            gamma[i, at] = fresh[i, at]
            mean[i, at], response[i, at] = prior.moments(fresh[i, at], lam[i, at])

    def _replace(self, poor: NDArray[np.intp], out: tuple[Array, ...]) -> None:
        """Linear response for samples that adaptive TAP has no solution for."""
        part = self.whole.take(poor)
        fields, sums, _, half_log_det, _ = respond(
            part, LinearResponsePosterior()._fields(part, None)
        )
        for target, values in zip(
            out, (fields.gamma, fields.lam, fields.mean, fields.response), strict=True
        ):
            target[:, poor] = values
        self.half_log_det[poor] = half_log_det
        self.covariance_sum = self.covariance_sum + sums

    def _allocate(self) -> None:
        count, total = self.precision.shape
        self.chi, self.mu = np.zeros((count, count, total)), np.zeros((count, total))
        self.log_det, self.definite = np.zeros(total), np.ones(total, dtype=bool)
        self.work = np.empty((count + 2, total))

    def _refresh(self, restart: bool = False) -> None:
        """Invert afresh; at the start, factors that leave no posterior become those of priors."""
        from kikuchi.ica.kernels.cavity import refresh

        for _ in range(2):
            total = self.problem.field + self.linear
            out = self.chi, self.mu, self.log_det, self.definite
            refresh(self.problem.couplings, self.precision, total, *out)
            bad = np.flatnonzero(~self.definite)
            if not (restart and bad.size):
                return
            site_precision, site_linear = _first_factors(self.problem.take(bad), None)
            self.precision[:, bad], self.linear[:, bad] = site_precision, site_linear

    def _cavity(self, i: int) -> tuple[Array, Array, Mask]:
        """gamma and lam of one source, and where they are usable.

        Where lam is kept inside the plane of the prior, gamma = h - (J - diag lam) mu still holds.
        """
        own = self.chi[i, i]
        fine = self.definite & (own > _TINY) & np.isfinite(self.mu[i])
        width = 1.0 / np.where(fine, own, 1.0)
        border = self.problem.priors[i].least_lam + _ROUNDING * width
        raw = np.where(fine, width - self.precision[i], 1.0)
        lam = np.maximum(raw, border)
        gamma = self.mu[i] * width - self.linear[i] + (lam - raw) * self.mu[i]
        return np.where(fine, gamma, 0.0), lam, fine

    def _sweep(self) -> Array:
        """One update of every factor; the largest disagreement of each sample, before it."""
        worst = np.zeros(self.index.size)
        for i in range(self.precision.shape[0]):
            np.maximum(worst, self._update(i), out=worst)
        return worst

    def _update(self, i: int) -> Array:
        from kikuchi.ica.kernels.cavity import change_site

        gamma, lam, fine = self._cavity(i)
        mean, response = self.problem.priors[i].moments(gamma, lam)
        sharpest = _SHARPEST * (self.problem.diagonal[i] + 1.0)
        wanted = np.minimum(1.0 / np.maximum(response, _TINY) - lam, sharpest)
        own = np.where(fine, self.chi[i, i], 1.0)
        change = wanted - self.precision[i]
        linear_change = mean * (wanted + lam) - gamma - self.linear[i]
        allowed = (1.0 - _LEAST_BOTTOM) / np.maximum(-change * own, _TINY)
        whole = np.minimum(1.0, allowed)
        spread = 1.0 / (wanted + lam)
        aim = np.where(
            lam > 1.0 / own - self.precision[i], own, spread
        )  # the variance cannot be met on the border
        shift = np.abs(mean - self.mu[i]) / (np.abs(mean) + np.sqrt(spread))
        residual = np.maximum(shift, np.abs(aim - own) / (aim + own))
        step_size = np.where(fine, self.step_size * whole, 0.0)
        change, linear_change = change * step_size, linear_change * step_size
        work = self.work[0], self.work[1], self.work[2:]
        change_site(self.chi, self.mu, i, change, linear_change, *work)
        self.precision[i] += change
        self.linear[i] += linear_change
        return np.where(fine, residual, np.inf)

    def _damp_stalled(
        self, residual: Array, tol: float, site_precision: Array, site_linear: Array
    ) -> None:
        """Back to the best factors and more damping for samples that have not improved for a
        while, and small steps from the start for those that this does not help.

        `site_precision` and `site_linear` are what `residual` belongs to. Where it reaches `tol`,
        the factors of this sweep are kept, so that no result depends on the other samples.
        """
        better = (residual < self.best) & (self.best > tol)
        self.best = np.where(better, residual, self.best)
        done = residual <= tol
        site_precision = np.where(done, self.precision, site_precision)
        site_linear = np.where(done, self.linear, site_linear)
        self.best_precision = np.where(better, site_precision, self.best_precision)
        self.best_linear = np.where(better, site_linear, self.best_linear)
        self.stalled_sweeps = np.where(better, 0, self.stalled_sweeps + 1)
        stalled = (self.stalled_sweeps >= _PATIENCE) & ~self.slow | ~np.isfinite(residual)
        self.stalled_sweeps[stalled] = 0
        self.precision = np.where(stalled, self.best_precision, self.precision)
        self.linear = np.where(stalled, self.best_linear, self.linear)
        self.step_size = np.where(stalled, 0.5 * self.step_size, self.step_size)
        pace = np.where(better, 1.1 * self.step_size, 0.5 * self.step_size)
        self.step_size = np.where(self.slow, np.clip(pace, _SLOW_STEP, 1.0), self.step_size)
        again = np.flatnonzero((self.step_size < _LEAST_STEP) & ~self.slow)
        if again.size:
            self.slow[again] = True
            self.step_size[again] = _SLOW_STEP
            first = _first_factors(self.problem.take(again), None)
            self.precision[:, again], self.linear[:, again] = first

    def _retire_converged(self, done: Mask) -> bool:
        """Retire converged samples once they are many; True when none is left."""
        left = int(np.count_nonzero(~done))
        if left and left > _COMPACT * done.size:
            return False
        gone, stay = np.flatnonzero(done), np.flatnonzero(~done)
        self._store(gone)
        self.converged[self.index[gone]] = True
        self.index = self.index[stay]
        if not left:
            return True
        self.problem = self.problem.take(stay)
        for name in ("precision", "linear", "mu", "best_precision", "best_linear"):
            setattr(self, name, np.ascontiguousarray(getattr(self, name)[:, stay]))
        for name in ("step_size", "slow", "best", "stalled_sweeps", "log_det", "definite"):
            setattr(self, name, getattr(self, name)[stay])
        self.chi = np.ascontiguousarray(self.chi[:, :, stay])
        self.work = np.empty((self.work.shape[0], left))
        return False

    def _store(self, chosen: NDArray[np.intp]) -> None:
        where = self.index[chosen]
        self.all_precision[:, where] = self.best_precision[:, chosen]
        self.all_linear[:, where] = self.best_linear[:, chosen]
        self.all_best[where] = self.best[chosen]
