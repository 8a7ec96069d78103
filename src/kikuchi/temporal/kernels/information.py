"""Filter and smoother in canonical (information) form: flat priors, any Gaussian evidence.

A message is exp(-x' Lambda x / 2 + gamma' x). Evidence comes as canonical parameters, so that
outputs, sites of expectation propagation and missing outputs (zero precision) look alike. The
precision of the state noise must exist; `a` and `noise_precision` have a leading axis of length 1
or of the sequence.

The predicted precision is the sum of two positive terms, as of a minimised sum of squares:
(I - A G)' Lq (I - A G) + G' Lambda G with G = (Lambda + A' Lq A)^-1 A' Lq, instead of the
difference Lq - Lq A (...)^-1 A' Lq, which loses all digits for small noise.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import U4, Array
from kikuchi.core.compiled import njit
from kikuchi.temporal.kernels.small import (
    affine_into,
    backward_solve,
    cholesky,
    forward_solve,
    inverse_from_cholesky,
    residual_into,
    sandwich_into,
    solve_rows,
)

_LOG_2PI = math.log(2.0 * math.pi)
_ALL_DIGITS = 1e14  # magnification of rounding that leaves none


@njit(cache=True, error_model="numpy", inline="always")
def lost_digits(matrix, factor):
    """Sum over rows of the diagonal of a matrix over the squared one of its Cholesky factor: by how
    much its inverse and determinant magnify rounding. 1 each for a diagonal matrix.
    """
    s = 0.0
    for i in range(len(matrix)):
        s += matrix[i, i] / (factor[i, i] * factor[i, i])
    return s


class CanonicalChain(NamedTuple):
    """Dynamics, with evidence[which[t]] and shifts[t] of step t, and the prior of the first."""

    a: Array
    noise_precision: Array
    drift: Array
    evidence: Array
    which: U4
    shifts: Array
    gamma0: Array
    lambda0: Array


class CanonicalSteps(NamedTuple):
    """Canonical parameters after each step, and of each transition G, K^-1 with
    K = Lambda + A' Lq A, and the mean of x_t if x_t+1 were its drift, if there is room.
    """

    gammas: Array
    lambdas: Array
    gains: Array
    inverses: Array
    centres: Array


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def information_forward(chain, kept):
    """Canonical parameters after each step, and what the smoother needs, into `kept`.

    Returns (log of the integral over all states, without the
    constants of evidence and noise; the size of the terms of this sum, by which rounding is
    magnified; failure step or -1).
    """
    a, noise_precision, drift, evidence, which, shifts, gamma0, lambda0 = chain
    gammas, lambdas, gains, inverses, centres = kept
    steps, n = shifts.shape
    gamma, precision = gamma0.copy(), lambda0.copy()
    space, zero = np.empty((5, n, n)), np.zeros((n, n))
    k_matrix, factor, work, gain, residual = space[0], space[1], space[2], space[3], space[4]
    centre, pull = np.empty(n), np.empty(n)
    whole_a, whole_q, whole_b = len(a) > 1, len(noise_precision) > 1, len(drift) > 1
    keep = len(gains) > 0
    log_z, size = 0.0, 0.0
    for t in range(steps):
        j = evidence[which[t]]
        for i in range(n):
            gamma[i] += shifts[t, i]
            for k in range(n):
                precision[i, k] += j[i, k]
        gammas[t] = gamma
        lambdas[t] = precision
        if t == steps - 1:
            break
        at, lq = a[t + 1 if whole_a else 0], noise_precision[t + 1 if whole_q else 0]
        b = drift[t + 1 if whole_b else 0]
        affine_into(zero[0], lq, b, pull)
        constant = 0.0
        for i in range(n):
            constant += pull[i] * b[i]
            s = gamma[i]
            for k in range(n):
                s -= at[k, i] * pull[k]
            centre[i] = s
        sandwich_into(precision, at.T, lq, gain, k_matrix)  # gain = A' Lq for now
        if not cholesky(k_matrix, factor):
            return log_z, size, t
        work[:] = gain.T
        solve_rows(factor, work)  # rows of Lq A K^-1 = G'
        affine_into(pull, work, centre, gamma)  # A' Lq at its centre, before that is solved for
        forward_solve(factor, centre)
        log_z += 0.5 * (n * _LOG_2PI - constant)
        size += 0.5 * abs(constant) + lost_digits(k_matrix, factor)
        for i in range(n):
            square = 0.5 * centre[i] * centre[i]
            log_z += square - math.log(factor[i, i])
            size += square
        backward_solve(factor, centre)
        gain[:] = work.T
        if keep:
            gains[t] = gain
            centres[t] = centre
            inverse_from_cholesky(factor, work, inverses[t])
        residual_into(at, gain, residual)
        sandwich_into(zero, gain.T, precision, work, k_matrix)
        sandwich_into(k_matrix, residual.T, lq, work, precision)
    if not cholesky(precision, factor):
        return log_z, size, steps - 1
    centre[:] = gamma
    forward_solve(factor, centre)
    log_z += 0.5 * n * _LOG_2PI
    size += lost_digits(precision, factor)
    for i in range(n):
        square = 0.5 * centre[i] * centre[i]
        log_z += square - math.log(factor[i, i])
        size += square
    return log_z, size, -1


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def information_backward(kept, means, covs, pairs):
    """Means, covariances and covariances of neighbours given all evidence: each covariance is a sum
    of positive terms, V_t = K_t^-1 + G_t V_t+1 G_t'. False if the last precision is not positive.
    """
    gammas, lambdas, gains, inverses, centres = kept
    steps, n = gammas.shape
    factor, work = np.empty((n, n)), np.empty((n, n))
    if not cholesky(lambdas[steps - 1], factor):
        return False
    inverse_from_cholesky(factor, work, covs[steps - 1])
    means[steps - 1] = gammas[steps - 1]
    forward_solve(factor, means[steps - 1])
    backward_solve(factor, means[steps - 1])
    for t in range(steps - 2, -1, -1):
        affine_into(centres[t], gains[t], means[t + 1], means[t])
        sandwich_into(inverses[t], gains[t], covs[t + 1], pairs[t], covs[t])
    return True


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def moments(gammas, lambdas, means, covs, lost):
    """Mean and covariance of each canonical pair, where it has them.

    lost[t] is the largest factor by which a diagonal entry of the inverse precision exceeds the
    inverse of that of the precision: rounding is magnified by it. It is infinite, and there are no
    moments, where all digits are lost.
    """
    steps, n = gammas.shape
    factor, work = np.empty((n, n)), np.empty((n, n))
    for t in range(steps):
        lost[t] = math.inf
        if not cholesky(lambdas[t], factor):
            continue
        inverse_from_cholesky(factor, work, covs[t])
        largest = 0.0
        for i in range(n):
            largest = max(largest, lambdas[t, i, i] * covs[t, i, i])
        if largest < _ALL_DIGITS:
            lost[t] = largest
            means[t] = gammas[t]
            forward_solve(factor, means[t])
            backward_solve(factor, means[t])
