"""Moment passing: Gaussian posteriors that take one output after the other.

Each output depends on one linear function of the state. The Gaussian is fitted to the moments of
the tilted one, which changes its covariance by rank one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.compiled import njit
from kikuchi.core.copying import copy_into, copy_matrix
from kikuchi.engines.sites.kernels.half_line import probit_gain
from kikuchi.engines.sites.kernels.likelihoods import PROBIT, log_likelihood, tilted
from kikuchi.temporal.kernels.small import affine_into, sandwich_into


class Motion(NamedTuple):
    """Dynamics x' = A x + drift + noise, the prior, and the linear predictor w' x + offset.

    Every array but those of the prior has one row for each step, or one for all.
    """

    transition: Array
    noise: Array
    drift: Array
    design: Array
    offsets: Array
    mean: Array
    covariance: Array


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def _predictor(w, mean, cov, along):
    """Mean and variance of w' x; `along` gets cov w."""
    n = len(w)
    f, v = 0.0, 0.0
    for i in range(n):
        f += w[i] * mean[i]
        s = 0.0
        for k in range(n):
            s += cov[i, k] * w[k]
        along[i] = s
        v += w[i] * s
    return f, v


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def _condition(mean, cov, along, gain, shrink):
    """mean + gain along, and cov - shrink along along', in place."""
    n = len(mean)
    for i in range(n):
        mean[i] += gain * along[i]
        s = shrink * along[i]
        for j in range(n):
            cov[i, j] -= s * along[j]


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def assumed_density(kind, extra, motion, y, means, covs, sites):
    """Filter with a Gaussian fitted after each output by its moments.

    sites[t] gets the precision and shift of the Gaussian that has the effect of the output.
    Returns (log-evidence, failure step or -1).
    """
    a, q, drift, design, offsets, mean0, cov0 = motion
    steps, n = means.shape
    m, p = mean0.copy(), cov0.copy()
    work, pw = np.empty((n, n)), np.empty(n)
    log_z = 0.0
    for t in range(steps):
        if t > 0:
            at, qt = a[t if len(a) > 1 else 0], q[t if len(q) > 1 else 0]
            b = drift[t if len(drift) > 1 else 0]
            affine_into(b, at, m, pw)
            copy_into(m, 0, pw, 0, len(m))
            sandwich_into(qt, at, p, work, p)
        sites[t, 0] = 0.0
        sites[t, 1] = 0.0
        if not math.isnan(y[t]):
            w = design[t if len(design) > 1 else 0]
            shift = offsets[t if len(offsets) > 1 else 0]
            f, v = _predictor(w, m, p, pw)
            f += shift
            if v > 1e-300:
                step, new_f, new_v = tilted(kind, y[t], f, v, extra)
                if not (new_v > 0.0 and step > -np.inf):
                    return log_z, t
                log_z += step
                _condition(m, p, pw, (new_f - f) / v, (v - new_v) / (v * v))
                sites[t, 0] = 1.0 / new_v - 1.0 / v
                sites[t, 1] = (new_f - shift) / new_v - (f - shift) / v
            else:
                log_z += log_likelihood(kind, y[t], f, extra)
        copy_into(means[t], 0, m, 0, len(m))
        copy_matrix(covs[t], p)
    return log_z, -1


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def probit_pass(x, y, drift, mean, cov, chances):
    """On-line probit classification: one pass over rows, weights that drift by a random walk.

    y is 1, -1 or 0 (no label); chances[t] gets the probability of label 1 before it is seen; mean
    and cov are updated in place. Answers the log-evidence of the labels.
    """
    rows, n = x.shape
    pw = np.empty(n)
    log_z = 0.0
    for t in range(rows):
        w = x[t]
        for i in range(n):
            cov[i, i] += drift
        f, v = _predictor(w, mean, cov, pw)
        c = math.sqrt(1.0 + v)
        chances[t] = 0.5 * math.erfc(-f / (c * math.sqrt(2.0)))
        if y[t] == 0.0:
            continue
        r, h, step = probit_gain(y[t] * f / c)
        log_z += step
        _condition(mean, cov, pw, y[t] * r / c, h / (c * c))
    return log_z


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def probit_refit(x, y, sites, mean, cov, log_masses):
    """One pass that takes each label's Gaussian out and fits it again, for weights that stand
    still; sites[t] is its precision and shift along x[t]. Answers the largest change of a linear
    predictor in standard deviations; log_masses[t] gets log Z of the label less that of its
    Gaussian, both under the cavity.
    """
    rows, n = x.shape
    pw = np.empty(n)
    largest = 0.0
    for t in range(rows):
        w = x[t]
        f, v = _predictor(w, mean, cov, pw)
        precision = 1.0 / v - sites[t, 0]
        if not precision > 0.0:
            continue
        spread = 1.0 / precision
        centre = (f / v - sites[t, 1]) * spread
        log_z, new_f, new_v = tilted(PROBIT, y[t], centre, spread, pw)
        sites[t, 0] = 1.0 / new_v - precision
        sites[t, 1] = new_f / new_v - centre * precision
        total = precision + sites[t, 0]
        shift = centre * precision + sites[t, 1]
        log_site = 0.5 * (shift * shift / total - centre * centre * precision)
        log_masses[t] = log_z - log_site + 0.5 * math.log(total * spread)
        largest = max(largest, abs(new_f - f) / math.sqrt(v))
        _condition(mean, cov, pw, (new_f - f) / v, (v - new_v) / (v * v))
    return largest
