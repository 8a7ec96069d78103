r"""Moments and likelihood by importance sampling around the adaptive TAP posterior.

The energy of adaptive TAP is too high where the posterior is narrow in one direction and far from
normal in others, by some hundredths for each sample: enough to draw one sensor's noise to zero when
every sensor has a noise of its own. The mean weight of draws has the likelihood as its expectation,
and moments of weighted draws are its gradient, so that a fit maximises the likelihood itself.

Reference: HOJ-L6.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import ModelError
from kikuchi.core.options import option
from kikuchi.ica.posteriors.adaptive_tap import AdaptiveTapPosterior
from kikuchi.ica.posteriors.posterior import Moments, Posterior, Problem
from kikuchi.ica.priors.mixture import MixturePrior
from kikuchi.ica.priors.prior import CompiledPrior, SourcePrior

_WIDTHS = np.array([1.1, 1.1, 1.1, 2.0])  # deviations of the draws, in turn
_PAIRS = 16  # of draws: the least number, and every other is a multiple
_POOL = 2**17  # normal numbers, in so many sets of draws as they fill
_SPREAD = 997.0  # of the values of a sample, so that their digits choose a set
_MANY = 2.0  # mean of log(1 + relative variance of weights), above which they say little
_LEAST_SETS = 8
_SEED = 20010401


@dataclass(frozen=True)
class ImportancePosterior(Posterior):
    """Draws around adaptive TAP, weighted: the posterior itself as draws increase.

    For sources with a density, up to about a dozen. The values of a sample choose among sets of
    draws, so that its answer does not depend on other samples; in fits its number does, so that it
    keeps its draws while the model changes.

    >>> from kikuchi.ica.priors.prior import parse_prior
    >>> problem = Problem([[2, 0.5], [0.5, 1.25]], [[0.3], [0.9]], [parse_prior("gaussian")] * 2)
    >>> ImportancePosterior(draws=1000).solve(problem).mean.ravel().round(2).tolist()
    [0.03, 0.39]
    """

    name: ClassVar[str] = "importance"
    summary: ClassVar[str] = "importance sampling around adaptive TAP: the likelihood itself"
    draws: int = option(256, "draws of each sample, rounded up to a multiple of 32", low=8)
    tol: float = option(1e-4, "tolerance of adaptive TAP", above=0.0)
    max_iter: int = option(100, "most sweeps of adaptive TAP", low=1)
    numbered: bool = option(False, "draws by the number of the sample, not by its values")

    def _solve(self, problem: Problem, start: Moments | None) -> Moments:
        shape = problem.field.shape
        mean, variances, gamma, lam = (np.empty(shape) for _ in range(4))
        log_z, second = np.empty(shape[1]), np.zeros((shape[0], shape[0]))
        converged, warnings = np.empty(shape[1], dtype=bool), set()
        for part in problem.chunks(2 * shape[0] ** 2):
            first = None if start is None else start.take(part)
            found, each = self.joint(problem.take(part), first, part.start)
            mean[:, part], gamma[:, part], lam[:, part] = found.mean, found.gamma, found.lam
            variances[:, part], log_z[part] = found.variances, found.log_z
            converged[part] = found.converged
            second += each.sum(axis=0)
            warnings |= set(found.warnings)
        sums = second - mean @ mean.T
        iterations = self.max_iter
        rest = converged, iterations, False, tuple(sorted(warnings))
        return Moments(mean, sums, variances, log_z, gamma, lam, *rest)

    def _covariances(self, problem: Problem, moments: Moments) -> Array:
        found, second = self.joint(problem, moments)
        middle = found.mean.T
        return np.asarray(second - middle[:, :, None] * middle[:, None, :])

    def joint(
        self, problem: Problem, start: Moments | None = None, begin: int = 0
    ) -> tuple[Moments, Array]:
        """Moments, and second moments of every sample (N, I, I); `begin` is the number of the first
        sample among all of them.
        """
        for prior in problem.priors:
            if not prior.is_proper or prior.states is not None:
                raise ModelError(
                    f"posterior importance: prior {prior.name} has no density; use adatap or lr"
                )
        from kikuchi.ica.kernels.weighted import CODES

        codes = [
            p.code if isinstance(p, CompiledPrior) and not _has_points(p) else -1
            for p in problem.priors
        ]
        if all(code in CODES for code in codes):
            return self._compiled(problem, codes, start, begin)
        return self._around_factors(problem, start, begin)

    @property
    def _pairs(self) -> int:
        return _PAIRS * -(-self.draws // (2 * _PAIRS))

    def _places(self, problem: Problem, begin: int, sets: int) -> Ints:
        """Which set of draws each sample takes."""
        if self.numbered:
            return np.arange(begin, begin + problem.n_samples, dtype=np.int64)
        digits = np.abs(problem.field).sum(axis=0) * _SPREAD
        return np.asarray((digits % 1.0) * sets, dtype=np.int64)

    def _compiled(
        self, problem: Problem, codes: list[int], start: Moments | None, begin: int
    ) -> tuple[Moments, Array]:
        from kikuchi.ica.kernels.weighted import (
            PairedDraws,
            SampleFields,
            Sources,
            WeightedMoments,
            weighted_moments,
        )

        count, total = problem.field.shape
        normals, shares = normal_draws(count, self._pairs)
        numbers = _padded([prior.numbers for prior in problem.priors])  # type: ignore[attr-defined]
        spread = np.array([prior.mean_variance[1] for prior in problem.priors])
        first = np.array([1.0 / spread, np.zeros(count)]).T.copy()
        mean, second = np.empty((count, total)), np.empty((total, count, count))
        log_z = np.empty(total)
        gamma, lam = np.zeros((count, total)), np.ones((count, total))
        if start is not None:
            gamma[:], lam[:] = start.gamma, start.lam
        relative, failed = weighted_moments(
            Sources(np.array(codes), numbers, first),
            SampleFields(problem.couplings, problem.field, gamma, lam),
            start is not None,
            self.tol,
            self.max_iter,
            PairedDraws(normals, shares, self._places(problem, begin, len(normals))),
            WeightedMoments(mean, second, log_z),
        )
        warnings = _few_count(relative / total)
        if failed and self.max_iter > 10:
            warnings += ("adaptive TAP, which draws are made around, has not converged everywhere",)
        variances = np.einsum("nii->in", second) - mean * mean
        done = np.full(total, failed == 0)
        rest = done, self.max_iter, False, warnings
        moments = Moments(
            mean, second.sum(axis=0) - mean @ mean.T, variances, log_z, gamma, lam, *rest
        )
        return moments, second

    def _around_factors(
        self, problem: Problem, start: Moments | None, begin: int
    ) -> tuple[Moments, Array]:
        """The same for any density: adaptive TAP, then draws whose densities NumPy computes."""
        solver = AdaptiveTapPosterior(tol=self.tol, max_iter=self.max_iter)
        if start is not None:
            start = replace(start, mean=tilted_means(problem, start))
        around = solver.solve(problem, start)
        chi = solver.covariances(problem, around)
        centre = around.mean.T  # (N, I), as everything here
        precision = (1.0 / around.variances - around.lam).T
        linear = (around.mean / around.variances - around.gamma).T
        root = np.linalg.cholesky(chi)
        normals, shares = normal_draws(problem.n_sources, self._pairs)
        places = self._places(problem, begin, len(normals)) % len(normals)
        moves = root @ normals[places]
        share = np.concatenate([shares, shares], axis=1)[places]
        s = centre[:, :, None] + np.concatenate([moves, -moves], axis=2)
        weight = np.einsum("ni,nik->nk", -linear, s)
        weight += 0.5 * np.einsum("ni,nik->nk", precision, s * s)
        for i, prior in enumerate(problem.priors):
            weight += prior.log_density(s[:, i])
        top = weight.max(axis=1, keepdims=True)
        weight = share * np.exp(weight - top)
        total = weight.sum(axis=1, keepdims=True)
        half_log_det = np.log(np.einsum("nii->ni", root)).sum(axis=1)
        height = 0.5 * np.einsum("ni,ni->n", centre, problem.field.T + linear)
        log_z = top[:, 0] + np.log(total[:, 0]) + half_log_det + height
        log_z += 0.5 * problem.n_sources * np.log(2.0 * np.pi)
        relative = float(np.mean(np.log((weight**2 / share).sum(axis=1) / total[:, 0] ** 2)))
        extra = weight / total - share  # what each draw adds to the moments of the normal density
        mean = centre + np.einsum("nk,nik->ni", extra, s)
        second = chi + centre[:, :, None] * centre[:, None, :]
        second += (s * extra[:, None]) @ s.swapaxes(1, 2)
        variances = np.einsum("nii->in", second) - mean.T**2
        moments = replace(
            around,
            mean=np.ascontiguousarray(mean.T),
            covariance_sum=second.sum(axis=0) - mean.T @ mean,
            variances=variances,
            log_z=log_z,
            warnings=around.warnings + _few_count(relative),
        )
        return moments, second


def _has_points(prior: SourcePrior) -> bool:
    """Whether a component of a mixture is a point, which has no density."""
    return isinstance(prior, MixturePrior) and not prior.parameters[2].all()


def _padded(rows: list[Array]) -> Array:
    """Rows of different lengths as a matrix, with zeros behind the shorter ones."""
    out = np.zeros((len(rows), max(row.size for row in rows)))
    for place, row in zip(out, rows, strict=True):
        place[: row.size] = row
    return out


def _few_count(relative: float) -> tuple[str, ...]:
    if relative <= _MANY:
        return ()
    return ("few of the draws count in some samples: use posterior adatap, or more draws",)


@lru_cache(maxsize=1)
def _pool() -> Array:
    return np.random.default_rng(_SEED).standard_normal(_POOL)


@lru_cache(maxsize=8)
def normal_draws(sources: int, pairs: int) -> tuple[Array, Array]:
    """Normal draws of several widths (sets, I, pairs), and their density under the standard normal
    over their own (sets, pairs), which with that of their mirror images sums to one.
    """
    each = sources * pairs
    if each > _POOL // _LEAST_SETS:
        normals = np.random.default_rng(_SEED).standard_normal((_LEAST_SETS, sources, pairs))
    else:
        normals = _pool()[: _POOL // each * each].reshape(-1, sources, pairs)
    normals = normals * _WIDTHS[np.arange(pairs) % _WIDTHS.size]
    square = np.einsum("sik,sik->sk", normals, normals)
    sizes, counts = np.unique(_WIDTHS, return_counts=True)
    density = np.zeros(square.shape)
    for width, count in zip(sizes, counts, strict=True):
        density += count / _WIDTHS.size / width**sources * np.exp(-0.5 * square / width**2)
    shares = np.exp(-0.5 * square) / density
    return normals, shares / (2.0 * shares.sum(axis=1, keepdims=True))


def tilted_means(problem: Problem, around: Moments) -> Array:
    """Means of adaptive TAP from its fields."""
    pairs = zip(problem.priors, around.gamma, around.lam, strict=True)
    return np.array([prior.moments(gamma, lam)[0] for prior, gamma, lam in pairs])
