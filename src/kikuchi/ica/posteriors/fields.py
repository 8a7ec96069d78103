r"""The mean field equations of ICA, m_i = f_i(h_i - sum_{j != i} J_ij m_j, J_ii), for many samples.

Two ways to a fixed point. Sweeps set one source after the other to its tilted mean, which is
coordinate ascent of the bound: safe, but as slow as the couplings are strong. Newton
steps in the fields gamma need a handful of iterations. With rho = h - C m - gamma, the slope of the
bound in m (C is J without its diagonal), the step is

    dm = (V^-1 + C)^-1 rho,   dgamma = rho - C dm,

an ascent direction where the linear response matrix is positive definite. A step is shortened when
the slope at its end points back: for log-concave priors the bound is concave in m, and so never
falls. Where the matrix is not definite, or no step helps, a sweep is done instead and a ridge is
put on the matrix, which shrinks again with every good step.

Reference: HOJ-I17.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array, Mask
from kikuchi.ica.posteriors.posterior import Problem

_LEAST_LAM = 1e-8  # of the largest J_ii, or of 1: below it a column is dead
_COMPACT = 0.75  # go on with the unfinished samples alone when fewer than this fraction are left
_OVERSHOOT = 0.5  # how far the slope at the end of a step may point back
_SHORTEST = 1e-4  # fraction of a step below which it is given up for a sweep
_LONGEST = 10.0  # a step, in units of the largest mean and deviation of the sample
_LEAST_RIDGE = 1e-9  # on K, whose diagonal is about 1
_FIRST_RIDGE = 0.1
_NO_RIDGE = 1e-6  # a fixed point counts when the ridge is not above this
_FIRST_SWEEPS = 10  # before Newton steps, where the bound may have several peaks
_TINY = 1e-300
_BY_SOURCE = (  # arrays (I, n) of a chunk
    *("lam", "mean", "gamma", "response", "tilted"),
    *("old_mean", "old_gamma", "old_slope", "step"),
)


class Fields(NamedTuple):
    """A mean field solution: fields, quadratic parameters, means and responses (I, N)."""

    gamma: Array
    lam: Array
    mean: Array
    response: Array
    converged: Mask
    iterations: int


class SolverOptions(NamedTuple):
    """How to look for the fixed point."""

    newton: bool
    keep: float  # fraction of a step that is taken
    tol: float
    limit: int


def solve_fields(problem: Problem, start: Array | None, recipe: SolverOptions) -> Fields:
    """The mean field solution of all samples, chunk by chunk."""
    shape = problem.field.shape
    lam = np.broadcast_to(floored_diagonal(problem), shape).copy()
    gamma, mean, response = np.empty(shape), np.empty(shape), np.empty(shape)
    converged = np.zeros(shape[1], dtype=bool)
    iterations = 0
    for part in problem.chunks():
        piece = problem.take(part)
        first = linear_start(piece) if start is None else start[:, part].copy()
        state = _Chunk(piece, np.ascontiguousarray(lam[:, part]), first)
        if recipe.newton and start is None:
            state.initial_sweeps()
        done = state.newton(recipe) if recipe.newton else state.sweeps(recipe)
        iterations = max(iterations, done)
        gamma[:, part], mean[:, part], response[:, part] = state.out
        converged[part] = state.converged
    return Fields(gamma, lam, mean, response, converged, iterations)


def floored_diagonal(problem: Problem) -> Array:
    """J_ii, not below a small fraction of the largest, so that dead columns keep an integral."""
    largest = max(1.0, float(np.max(problem.diagonal, initial=0.0)))
    return np.maximum(problem.diagonal, _LEAST_LAM * largest)


def linear_start(problem: Problem) -> Array:
    """Posterior means as if every prior were a Gaussian with its mean and variance."""
    centre, spread = (
        np.array(a) for a in zip(*(p.mean_variance for p in problem.priors), strict=True)
    )
    precision = 1.0 / spread
    matrix = problem.coupling + np.diag(precision)
    field = problem.field + (precision * centre)[:, None]
    if problem.per_sample:
        return np.ascontiguousarray(np.linalg.solve(matrix, field.T[..., None])[..., 0].T)
    return np.ascontiguousarray(np.linalg.solve(matrix, field))


class _Chunk:
    """The samples of a chunk that are still being solved, and where their results go."""

    def __init__(self, problem: Problem, lam: Array, mean: Array) -> None:
        self.problem, self.lam, self.mean = problem, lam, mean
        self.gamma = problem.field - _couple_others(problem, mean)
        self.response = np.empty(mean.shape)
        self.index = np.arange(mean.shape[1])
        self.out = tuple(np.empty(mean.shape) for _ in range(3))
        self.converged = np.zeros(mean.shape[1], dtype=bool)
        self.tilted = mean  # the mean of q at gamma; `mean` trails it when damped
        # the last Newton step: where it began, the slope there, the step and the fraction taken
        self.old_mean, self.old_gamma, self.old_slope, self.step = mean, self.gamma, mean, mean
        self.fraction = np.zeros(mean.shape[1])  # 0: there was none
        self.ridge = np.full(mean.shape[1], _LEAST_RIDGE)

    # ------------------------------------------------------------------ sweeps

    def sweeps(self, recipe: SolverOptions) -> int:
        """One source after the other until no mean moves."""
        for done in range(1, recipe.limit + 1):
            moving = self._sweep(recipe.keep, recipe.tol)
            if self._retire_converged(moving, self.tilted):
                return done
        self._write(np.arange(self.index.size), self.tilted)
        return recipe.limit

    def _sweep(self, keep: float, tol: float) -> Mask:
        """One update of every source; answers which samples still move.

        `mean` trails the tilted means when `keep`, the fraction of a step that is taken, is not 1.
        """
        tilted = np.empty(self.mean.shape)
        moving = np.zeros(self.mean.shape[1], dtype=bool)
        for i, prior in enumerate(self.problem.priors):
            gamma = self.problem.field[i] - self.problem.off_diagonal(i, self.mean)
            tilted[i], self.response[i] = prior.moments(gamma, self.lam[i])
            change = tilted[i] - self.mean[i]
            moving |= np.abs(change) > tol * (np.abs(tilted[i]) + np.sqrt(self.response[i]))
            self.gamma[i] = gamma
            self.mean[i] = tilted[i] if keep == 1.0 else self.mean[i] + keep * change
        self.tilted = tilted
        return moving

    # ------------------------------------------------------------------ Newton

    def initial_sweeps(self) -> None:
        """A few sweeps from a cold start, for they choose among peaks better than Newton steps."""
        concave = all(prior.log_concave for prior in self.problem.priors)
        for _ in range(1 if concave else _FIRST_SWEEPS):
            self._sweep(1.0, 0.0)

    def newton(self, recipe: SolverOptions) -> int:
        """Newton steps with sweeps where they fail."""
        spreads = [math.sqrt(prior.mean_variance[1]) for prior in self.problem.priors]
        self.width = max(spreads)
        for done in range(1, recipe.limit + 1):
            slope = self._evaluate()
            bad, shorter = self._overshoots(slope)
            move, step, definite = self._newton_step(slope)
            size = np.abs(self.mean) + np.sqrt(self.response)
            fixed = definite & np.all(np.abs(move) <= recipe.tol * size, axis=0)
            fixed &= self.ridge <= _NO_RIDGE
            reach = _LONGEST * (np.max(size, axis=0) + self.width)
            first = np.minimum(1.0, reach / np.maximum(np.max(np.abs(move), axis=0), _TINY))
            fraction = np.where(bad, shorter, first)
            if self._retire_converged(
                ~fixed, self.mean, fresh=(slope, step, bad, fraction, definite)
            ):
                return done
        self._evaluate()
        self._write(np.arange(self.index.size), self.mean)
        return recipe.limit

    def _evaluate(self) -> Array:
        """Tilted moments at gamma, and the slope of the bound there."""
        mean = np.empty(self.gamma.shape)
        for i, prior in enumerate(self.problem.priors):
            mean[i], self.response[i] = prior.moments(self.gamma[i], self.lam[i])
        self.mean = mean
        slope = self.problem.field - _couple_others(self.problem, mean)
        slope -= self.gamma
        return slope

    def _overshoots(self, slope: Array) -> tuple[Mask, Array]:
        """Which steps went too far, and what fraction of them to take instead."""
        move = self.mean - self.old_mean
        begin = np.einsum("in,in->n", self.old_slope, move)
        end = np.einsum("in,in->n", slope, move)
        bad = (self.fraction > 0.0) & ~(end >= -_OVERSHOOT * np.abs(begin))
        back = np.where(bad & (begin > end), begin - end, 1.0)
        cut = np.clip(np.where(bad, begin, 0.0) / back, 0.1, 0.7)
        return bad, self.fraction * cut

    def _newton_step(self, slope: Array) -> tuple[Array, Array, Mask]:
        from kikuchi.ica.kernels.response import newton_steps

        move, step = np.empty(slope.shape), np.empty(slope.shape)
        definite = np.empty(slope.shape[1], dtype=bool)
        couplings = self.problem.couplings
        newton_steps(couplings, self.lam, self.response, self.ridge, slope, move, step, definite)
        return move, step, definite

    def _take(self, slope: Array, step: Array, bad: Mask, fraction: Array, definite: Mask) -> None:
        """Newton steps where they may be trusted; where the last one was bad, less of it."""
        if np.any(bad):
            keep = np.flatnonzero(bad)
            for new, old in ((slope, self.old_slope), (step, self.step)):
                new[:, keep] = old[:, keep]
            self.mean[:, keep] = self.old_mean[:, keep]
            self.gamma[:, keep] = self.old_gamma[:, keep]
        self.old_mean, self.old_slope = self.mean, slope
        self.old_gamma, self.step = self.gamma, step
        self.fraction = fraction
        self.gamma = self.old_gamma + self.fraction * step
        swept = np.flatnonzero((~definite & ~bad) | (self.fraction < _SHORTEST))
        if swept.size:
            part = _Chunk(
                self.problem.take(swept), _columns(self.lam, swept), _columns(self.mean, swept)
            )
            part._sweep(1.0, 0.0)
            self.gamma[:, swept] = part.gamma
            self.fraction[swept] = 0.0
        self.ridge = np.where(bad, self.ridge, np.maximum(0.25 * self.ridge, _LEAST_RIDGE))
        self.ridge[swept] = np.maximum(16.0 * self.ridge[swept], _FIRST_RIDGE)

    # ------------------------------------------------------------------ leaving

    def _retire_converged(
        self, moving: Mask, mean: Array, fresh: tuple[Array, Array, Mask, Array, Mask] | None = None
    ) -> bool:
        """Retire converged samples once they are many; True when none is left.

        Those that stay take their next Newton step, `fresh`.
        """
        left = int(np.count_nonzero(moving))
        stay = left > _COMPACT * moving.size
        if not stay:
            gone = np.flatnonzero(~moving)
            self._write(gone, mean)
            self.converged[self.index[gone]] = True
            if not left:
                return True
            chosen = np.flatnonzero(moving)
            self._compact(chosen)
            if fresh is not None:
                slope, step, bad, fraction, definite = fresh
                fresh = (
                    _columns(slope, chosen),
                    _columns(step, chosen),
                    bad[chosen],
                    fraction[chosen],
                    definite[chosen],
                )
        if fresh is not None:
            self._take(*fresh)
        return False

    def _compact(self, chosen: NDArray[np.intp]) -> None:
        self.problem = self.problem.take(chosen)
        for name in _BY_SOURCE:
            setattr(self, name, _columns(getattr(self, name), chosen))
        self.fraction, self.ridge = self.fraction[chosen], self.ridge[chosen]
        self.index = self.index[chosen]

    def _write(self, chosen: NDArray[np.intp], mean: Array) -> None:
        where = self.index[chosen]
        for out, values in zip(self.out, (self.gamma, mean, self.response), strict=True):
            out[:, where] = values[:, chosen]


def _couple_others(problem: Problem, mean: Array) -> Array:
    """C m: the couplings to the other sources."""
    return problem.couple(mean) - problem.diagonal * mean


def _columns(values: Array, chosen: NDArray[np.intp]) -> Array:
    return np.ascontiguousarray(values[:, chosen])
