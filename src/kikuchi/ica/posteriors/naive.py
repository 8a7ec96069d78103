"""Naive mean field for ICA, its variational reading, and linear response.

Reference: HOJ-I17, HOJ-I18, HOJ-I21.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from kikuchi.core.arrays import Array, Mask
from kikuchi.core.options import option
from kikuchi.ica.free_energy import bound_holds, has_log_z, mean_field_bound
from kikuchi.ica.posteriors.fields import Fields, SolverOptions, solve_fields
from kikuchi.ica.posteriors.posterior import Moments, Posterior, Problem


@dataclass(frozen=True)
class NaivePosterior(Posterior):
    """Independent sources: m_i = f_i(h_i - sum_j J_ij m_j, J_ii), one source after the other.

    Covariances are diagonal and log Z is bounded from below.

    >>> from kikuchi.ica.priors.prior import parse_prior
    >>> problem = Problem([[2, 0.5], [0.5, 1.25]], [[0.3], [0.9]], [parse_prior("binary")] * 2)
    >>> NaivePosterior().solve(problem).mean.ravel().round(6).tolist()
    [-0.065886, 0.731963]
    """

    name: ClassVar[str] = "naive"
    summary: ClassVar[str] = "independent sources; a bound, but it loses sources in noise"
    damping: float = option(0.0, "fraction of the old mean that is kept", low=0.0, below=1.0)
    tol: float = option(1e-8, "largest change of a mean, in units of mean + deviation", above=0.0)
    max_iter: int = option(200, "most Newton steps or sweeps over the sources", low=1)
    solver: Literal["newton", "sweeps"] = option(
        "newton", "newton (unless damped), or sweeps over one source after the other"
    )

    def _solve(self, problem: Problem, start: Moments | None) -> Moments:
        fields = self._fields(problem, start)
        return _answer(problem, fields, np.diag(np.sum(fields.response, axis=1)))

    def _covariances(self, problem: Problem, moments: Moments) -> Array:
        out = np.zeros((problem.n_samples, problem.n_sources, problem.n_sources))
        index = np.arange(problem.n_sources)
        out[:, index, index] = moments.variances.T
        return out

    def _fields(self, problem: Problem, start: Moments | None) -> Fields:
        """The mean field solution of all samples."""
        newton = self.solver == "newton" and self.damping == 0.0
        recipe = SolverOptions(newton, 1.0 - self.damping, self.tol, self.max_iter)
        return solve_fields(problem, None if start is None else start.mean, recipe)


@dataclass(frozen=True)
class VariationalPosterior(NaivePosterior):
    """The same solution read as coordinate ascent of the bound: no damping, so that no step can
    lower it.
    """

    name: ClassVar[str] = "variational"
    summary: ClassVar[str] = "coordinate ascent of the mean field bound"
    damping: float = option(0.0, "none: every step must raise the bound", low=0.0, high=0.0)
    solver: Literal["sweeps"] = option("sweeps", "sweeps over one source after the other")


class LinearResponsePosterior(NaivePosterior):
    """Mean field means with linear response covariances.

    Exact for Gaussian sources. log Z is corrected by -log det(K) / 2 and is not a bound. Samples
    whose solution is not stable keep diagonal covariances; their fraction is in `warnings`.

    >>> from kikuchi.ica.priors.prior import parse_prior
    >>> problem = Problem([[2, 0.5], [0.5, 1.25]], [[0.3], [0.9]], [parse_prior("binary")] * 2)
    >>> LinearResponsePosterior().solve(problem).covariance_sum.round(6).tolist()
    [[1.125743, -0.261302], [-0.261302, 0.524882]]
    """

    name: ClassVar[str] = "lr"

    def _solve(self, problem: Problem, start: Moments | None) -> Moments:
        return _answer(problem, *respond(problem, self._fields(problem, start)))

    def _covariances(self, problem: Problem, moments: Moments) -> Array:
        return response_covariances(problem, moments)


def response_covariances(problem: Problem, moments: Moments) -> Array:
    """Covariance of each sample (N, I, I) as the response of the means to the fields."""
    from kikuchi.ica.kernels.response import response_matrices

    lam = np.ascontiguousarray(moments.lam)
    v = responses(problem, moments.gamma, lam)
    out = np.empty((problem.n_samples, problem.n_sources, problem.n_sources))
    response_matrices(problem.couplings, lam, v, out)
    return out


def respond(problem: Problem, fields: Fields) -> tuple[Fields, Array, Array, Array, Mask]:
    """The fields, the sum of the covariances, variances, log det K / 2 and what was stable."""
    from kikuchi.ica.kernels.response import response_sums

    sums = np.zeros((problem.n_sources, problem.n_sources))
    variances, half_log_det = np.empty(problem.field.shape), np.empty(problem.n_samples)
    definite = np.empty(problem.n_samples, dtype=bool)
    lam, v = fields.lam, fields.response
    response_sums(problem.couplings, lam, v, sums, variances, half_log_det, definite)
    return fields, sums, variances, half_log_det, definite


def responses(problem: Problem, gamma: Array, lam: Array) -> Array:
    """The response of every source and sample (I, N)."""
    pairs = zip(problem.priors, gamma, lam, strict=True)
    return np.array([prior.moments(g, precision)[1] for prior, g, precision in pairs])


def _answer(
    problem: Problem,
    fields: Fields,
    covariance_sum: Array,
    variances: Array | None = None,
    half_log_det: Array | None = None,
    definite: Mask | None = None,
) -> Moments:
    log_z = None
    if has_log_z(problem):
        log_z = mean_field_bound(problem, fields.gamma, fields.lam, fields.mean, fields.response)
        log_z = log_z if half_log_det is None else log_z - half_log_det
    return Moments(
        mean=fields.mean,
        covariance_sum=covariance_sum,
        variances=fields.response if variances is None else variances,
        log_z=log_z,
        gamma=fields.gamma,
        lam=fields.lam,
        converged=fields.converged,
        iterations=fields.iterations,
        is_bound=half_log_det is None and bound_holds(problem),
        warnings=_warnings(fields.converged, definite),
    )


def _warnings(converged: Mask, definite: Mask | None) -> tuple[str, ...]:
    texts = []
    if not np.all(converged):
        fraction = 1.0 - float(np.mean(converged))
        texts.append(f"{fraction:.2%} of the samples have not converged")
    if definite is not None and not np.all(definite):
        fraction = 1.0 - float(np.mean(definite))
        texts.append(f"{fraction:.2%} of the samples are not stable and keep diagonal covariances")
    return tuple(texts)
