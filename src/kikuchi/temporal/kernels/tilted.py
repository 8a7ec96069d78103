"""Moments of a Gaussian times a likelihood of one number, for each kind of emission.

Closed forms for probit and quantised outputs; otherwise Gauss-Legendre panels whose ends are laid
around the Gaussian and around the likelihood, so that neither can slip between the nodes.
"""

from __future__ import annotations

import math

import numpy as np

from kikuchi.core.compiled import njit
from kikuchi.core.copying import copy_into, copy_matrix
from kikuchi.temporal.kernels.small import affine_into, sandwich_into

PROBIT, LOGISTIC, POISSON, STUDENT, QUANTISED, LAPLACE = range(6)

_ROOT_2PI = math.sqrt(2.0 * math.pi)
_LOG_2PI = math.log(2.0 * math.pi)
_ENDS = np.array([-9.0, -6.0, -4.0, -2.5, -1.0, 0.0, 1.0, 2.5, 4.0, 6.0, 9.0])
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(10)
_FAR = 5.0  # beyond it, tails are continued fractions


@njit(cache=True, error_model="numpy")
def mills(t):
    """(1 - Phi(t)) / phi(t) for t >= 0."""
    if t < _FAR:
        return 0.5 * math.erfc(t / math.sqrt(2.0)) * math.exp(0.5 * t * t) * _ROOT_2PI
    return 1.0 / (t + _excess(t))


@njit(cache=True, error_model="numpy")
def _excess(t):
    """phi(t) / (1 - Phi(t)) - t = 1 / (t + 2 / (t + 3 / (t + ...))), for large t."""
    s = t
    for k in range(80, 1, -1):
        s = t + k / s
    return 1.0 / s


@njit(cache=True, error_model="numpy")
def probit_gain(kappa):
    """(r, H, log Phi) at kappa: r = phi / Phi, H = (kappa + r) r, without loss of digits."""
    if kappa > -_FAR:
        p = 0.5 * math.erfc(-kappa / math.sqrt(2.0))
        r = math.exp(-0.5 * kappa * kappa) / (_ROOT_2PI * p)
        return r, (kappa + r) * r, math.log(p)
    t = -kappa
    excess = _excess(t)
    r = t + excess
    return r, excess * r, -0.5 * (t * t + _LOG_2PI) - math.log(r)


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
    if kind == LAPLACE:
        return _laplace(mean, variance, extra[0])
    return _by_panels(kind, y, mean, variance, extra)


@njit(cache=True, error_model="numpy")
def _laplace(mean, variance, rate):
    """Moments of a Gaussian times a Laplace density of this rate: two half Gaussians."""
    s = math.sqrt(variance)
    up, down = mean - rate * variance, mean + rate * variance
    r_up, h_up, log_up = probit_gain(up / s)
    r_down, h_down, log_down = probit_gain(-down / s)
    log_up += rate * (0.5 * rate * variance - mean)
    log_down += rate * (0.5 * rate * variance + mean)
    top = max(log_up, log_down)
    p, q = math.exp(log_up - top), math.exp(log_down - top)
    log_z = top + math.log(p + q) + math.log(0.5 * rate)
    p, q = p / (p + q), q / (p + q)
    m_up, m_down = up + s * r_up, down - s * r_down
    apart = m_up - m_down
    spread = p * variance * (1.0 - h_up) + q * variance * (1.0 - h_down) + p * q * apart * apart
    return log_z, p * m_up + q * m_down, spread


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
def assumed_density(kind, extra, a, q, drift, design, offsets, y, mean0, cov0, means, covs, sites):
    """Filter with a Gaussian fitted after each output by its moments.

    design[t] (or design[0]) is the row w of the linear predictor w' x + offset. sites[t] gets the
    precision and shift of the Gaussian that has the effect of the output. Answers (log-evidence,
    failure step or -1).
    """
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
