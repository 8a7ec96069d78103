"""Gaussians tilted by a likelihood of one number, for each kind of output.

Closed forms for probit and quantised outputs; otherwise Gauss-Legendre panels whose ends are laid
around the Gaussian and around the likelihood, so that neither can slip between the nodes.
"""

from __future__ import annotations

import math

import numpy as np

from kikuchi.core.compiled import njit
from kikuchi.engines.sites.kernels.half_line import mills, probit_gain

PROBIT, LOGISTIC, POISSON, STUDENT, QUANTISED = range(5)

_ROOT_2PI = math.sqrt(2.0 * math.pi)
_LOG_2PI = math.log(2.0 * math.pi)
_ENDS = np.array([-9.0, -6.0, -4.0, -2.5, -1.0, 0.0, 1.0, 2.5, 4.0, 6.0, 9.0])
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(10)


@njit(cache=True, error_model="numpy")
def log_likelihood(kind, y, f, extra):
    """Log-likelihood of output y at the linear predictor f; `extra` are the emission's numbers."""
    if kind == PROBIT:
        return probit_gain(y * f)[2]
    if kind == LOGISTIC:
        z = y * f
        return -math.log1p(math.exp(-z)) if z > 0.0 else z - math.log1p(math.exp(z))
    if kind == POISSON:
        return y * f - math.exp(min(f, 700.0)) - math.lgamma(y + 1.0)
    if kind == STUDENT:
        nu, scale = extra[0], extra[1]
        z = (y - f) / scale
        constant = math.lgamma(0.5 * (nu + 1.0)) - math.lgamma(0.5 * nu)
        constant -= 0.5 * math.log(nu * math.pi) + math.log(scale)
        return constant - 0.5 * (nu + 1.0) * math.log1p(z * z / nu)
    s = extra[0]
    k = int(y)
    a, b = (extra[1 + k] - f) / s, (extra[2 + k] - f) / s
    return _interval(a, b)[0]


@njit(cache=True, error_model="numpy")
def _interval(a, b):
    """(log Z, d1, d2) of a standard normal between a < b: d1 = (phi(a) - phi(b)) / Z and
    d2 = (a phi(a) - b phi(b)) / Z.
    """
    if a < 0.0 < b:
        z = 1.0
        if a > -np.inf:
            z -= 0.5 * math.erfc(-a / math.sqrt(2.0))
        if b < np.inf:
            z -= 0.5 * math.erfc(b / math.sqrt(2.0))
        pa = math.exp(-0.5 * a * a) / _ROOT_2PI if a > -np.inf else 0.0
        pb = math.exp(-0.5 * b * b) / _ROOT_2PI if b < np.inf else 0.0
        da = a * pa if pa > 0.0 else 0.0
        db = b * pb if pb > 0.0 else 0.0
        return math.log(z), (pa - pb) / z, (da - db) / z
    flipped = b <= 0.0
    low, high = (-b, -a) if flipped else (a, b)
    ratio = math.exp(-0.5 * (high - low) * (high + low)) if high < np.inf else 0.0
    width = mills(low) - (ratio * mills(high) if ratio > 0.0 else 0.0)
    log_z = -0.5 * (low * low + _LOG_2PI) + math.log(width)
    d1 = (1.0 - ratio) / width
    d2 = (low - (high * ratio if ratio > 0.0 else 0.0)) / width
    return log_z, -d1 if flipped else d1, d2


@njit(cache=True, error_model="numpy")
def tilted(kind, y, mean, variance, extra):
    """(log Z, mean, variance) of N(f; mean, variance) times the likelihood of y at f."""
    if kind == PROBIT:
        c = math.sqrt(1.0 + variance)
        r, h, log_z = probit_gain(y * mean / c)
        return log_z, mean + y * variance * r / c, variance - variance * variance * h / (c * c)
    if kind == QUANTISED:
        s = math.sqrt(variance + extra[0] * extra[0])
        k = int(y)
        log_z, d1, d2 = _interval((extra[1 + k] - mean) / s, (extra[2 + k] - mean) / s)
        share = variance / s
        return log_z, mean + share * d1, variance + share * share * (d2 - d1 * d1)
    return _by_panels(kind, y, mean, variance, extra)


@njit(cache=True, error_model="numpy")
def _by_panels(kind, y, mean, variance, extra):
    """The same by quadrature."""
    spread = math.sqrt(variance)
    centre, width = 0.0, 2.0
    if kind == POISSON:
        centre, width = math.log(y + 0.5), 1.0 / math.sqrt(y + 0.5)
    elif kind == STUDENT:
        centre, width = y, extra[1]
    low, high = mean - 9.0 * spread, mean + 9.0 * spread
    if kind == POISSON:  # evidence far above the Gaussian draws it there
        high = max(high, min(centre + 9.0 * width, mean + 40.0 * spread))
    count = len(_ENDS)
    ends = np.empty(2 * count + 2)
    for i in range(count):
        ends[i] = mean + spread * _ENDS[i]
        ends[count + i] = min(max(centre + width * _ENDS[i], low), high)
    ends[2 * count], ends[2 * count + 1] = low, high
    ends.sort()
    nodes = len(_NODES)
    logs = np.empty((2 * count + 1) * nodes)
    places = np.empty_like(logs)
    top = -np.inf
    used = 0
    for k in range(2 * count + 1):
        half = 0.5 * (ends[k + 1] - ends[k])
        if half <= 0.0:
            continue
        middle = 0.5 * (ends[k + 1] + ends[k])
        for i in range(nodes):
            f = middle + half * _NODES[i]
            z = (f - mean) / spread
            value = log_likelihood(kind, y, f, extra) - 0.5 * z * z + math.log(half * _WEIGHTS[i])
            places[used], logs[used] = f, value
            top = max(top, value)
            used += 1
    total, first, second = 0.0, 0.0, 0.0
    for i in range(used):
        w = math.exp(logs[i] - top)
        e = places[i] - mean
        total += w
        first += w * e
        second += w * e * e
    first /= total
    second /= total
    log_z = top + math.log(total) - 0.5 * math.log(2.0 * math.pi * variance)
    return log_z, mean + first, second - first * first


@njit(cache=True, error_model="numpy")
def tilted_rows(kind, y, means, variances, extra, log_z, new_means, new_variances):
    """`tilted` of each row; rows with y = NaN stay as they are, with log Z = 0."""
    for t in range(len(y)):
        if math.isnan(y[t]):
            log_z[t], new_means[t], new_variances[t] = 0.0, means[t], variances[t]
        else:
            a, b, c = tilted(kind, y[t], means[t], variances[t], extra)
            log_z[t], new_means[t], new_variances[t] = a, b, c
