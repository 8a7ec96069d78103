"""Tilted densities, p(s) exp(-lam s^2 / 2 + gamma s), element by element.

A density is a code and a row of numbers. Where the integral does not exist the answer is NaN: the
callers look for it and refuse.

Reference: HOJ-L7, HOJ-M8a to M8j.
"""

from __future__ import annotations

import math

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.compiled import njit
from kikuchi.engines.sites.kernels.half_line import log_integral
from kikuchi.engines.sites.kernels.half_line import moments as half_moments

GAUSSIAN = 0  # variance
TWO_STATES = 1  # low, high, log p(low), log p(high)
LAPLACE = 2  # rate
EXPONENTIAL = 3  # rate
MIXTURE = 4  # number, then weight, mean and variance of each
TWO_GAUSSIANS = 5  # mean, variance
POWER_LAW = 6  # alpha, k
POSITIVE_GAUSSIAN = 7  # mean / variance, 1 / variance
# 8 is the uniform source: low, high

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)
_STEP_NODES = 0.5 * (_NODES + 1.0)  # on [0, 1]
_STEP_WEIGHTS = 0.5 * _WEIGHTS
_DROP = 40.0  # the integrand is followed until it has fallen by exp(-_DROP)


# ---------------------------------------------------------------------- closed forms


@njit(cache=True, error_model="numpy", inline="always")
def _log_odds(p, gamma, lam):
    low, high = p[0], p[1]
    return p[3] - p[2] + gamma * (high - low) - 0.5 * lam * (high - low) * (high + low)


@njit(cache=True, error_model="numpy", inline="always")
def _two_states(p, gamma, lam):
    """Variance from both probabilities, so that neither is lost next to one."""
    x = _log_odds(p, gamma, lam)
    gap = p[1] - p[0]
    tail = math.exp(-abs(x))
    share = 1.0 / (1.0 + tail)
    response = gap * gap * tail * share * share
    if p[0] == -p[1]:
        return p[1] * math.tanh(0.5 * x), response
    return p[0] + gap * (share if x >= 0.0 else tail * share), response


@njit(cache=True, error_model="numpy", inline="always")
def _laplace(rate, gamma, lam):
    """Two exponential halves; 1 / R is the mass of each, up to a common factor."""
    right_r, right_m, right_v = half_moments(gamma - rate, lam)
    left_r, left_m, left_v = half_moments(-gamma - rate, lam)
    w = left_r / (left_r + right_r)
    u = right_r / (left_r + right_r)
    gap = right_m + left_m
    return w * right_m - u * left_m, w * right_v + u * left_v + w * u * gap * gap


@njit(cache=True, error_model="numpy", inline="always")
def _component(weight, mean, variance, gamma, lam):
    """log of a component's mass, its mean and its variance; a variance of 0 is a point."""
    c = 1.0 / (1.0 + lam * variance)
    if not (c > 0.0 and c < np.inf):
        return math.nan, math.nan, math.nan
    gain = (gamma * (mean + 0.5 * gamma * variance) - 0.5 * lam * mean * mean) * c
    mass = math.log(weight) - 0.5 * math.log1p(lam * variance) + gain
    return mass, (gamma * variance + mean) * c, variance * c


@njit(cache=True, error_model="numpy")
def _mixture(p, gamma, lam):
    """log Z0, mean and variance."""
    count = int(p[0])
    peak = -np.inf
    for k in range(count):
        if p[1 + 3 * k] > 0.0:
            mass = _component(p[1 + 3 * k], p[2 + 3 * k], p[3 + 3 * k], gamma, lam)[0]
            if not mass <= np.inf:
                return math.nan, math.nan, math.nan
            peak = max(peak, mass)
    total = 0.0
    first = 0.0
    for k in range(count):
        if p[1 + 3 * k] > 0.0:
            mass, m, _ = _component(p[1 + 3 * k], p[2 + 3 * k], p[3 + 3 * k], gamma, lam)
            share = math.exp(mass - peak)
            total += share
            first += share * m
    mean = first / total
    spread = 0.0
    for k in range(count):
        if p[1 + 3 * k] > 0.0:
            mass, m, v = _component(p[1 + 3 * k], p[2 + 3 * k], p[3 + 3 * k], gamma, lam)
            spread += math.exp(mass - peak) * (v + (m - mean) * (m - mean))
    return peak + math.log(total), mean, spread / total


@njit(cache=True, error_model="numpy", inline="always")
def _two_gaussians(p, gamma, lam):
    c = 1.0 / (1.0 + lam * p[1])
    if not c > 0.0:
        return math.nan, math.nan
    tail = math.exp(-2.0 * abs(gamma * p[0] * c))
    rest = 4.0 * tail / ((1.0 + tail) * (1.0 + tail))  # 1 - tanh^2 without cancellation
    mean = c * (gamma * p[1] + p[0] * math.tanh(gamma * p[0] * c))
    return mean, c * p[1] + c * p[0] * c * p[0] * rest


@njit(cache=True, error_model="numpy", inline="always")
def _power_law(p, gamma, lam):
    """The mean function of a power-law source in terms of t = gamma / sqrt(lam)."""
    if not lam > 0.0:
        return math.nan, math.nan
    root = math.sqrt(lam)
    t = gamma / root
    square = t * t
    alpha = p[0]
    bottom = p[1] * alpha + square
    mean = t * (alpha * (p[1] - 1.0) + square) / bottom / root
    rest = alpha * alpha * p[1] * (p[1] - 1.0) / bottom  # zero in the original, k = 1
    slope = (square * (square + (2.0 * p[1] + 1.0) * alpha) / bottom + rest) / bottom
    return mean, slope / lam


# ---------------------------------------------------------------------- the uniform source


@njit(cache=True, error_model="numpy", inline="always")
def _stretch(slope, lam, room):
    """How far from its peak, downhill with `slope`, the integrand matters; at most `room`."""
    if lam >= 0.0:  # slope u + lam u^2 / 2 = drop
        root = math.sqrt(slope * slope + 2.0 * lam * _DROP)
        return min(room, 2.0 * _DROP / (slope + root)) if slope + root > 0.0 else room
    return min(room, 2.0 * _DROP / slope) if slope > 0.0 else room  # it falls at half slope or more


@njit(cache=True, error_model="numpy")
def _piece(slope, lam, length):
    """Integral, first and second moment of exp(-slope u - lam u^2 / 2) on [0, length]."""
    total = 0.0
    first = 0.0
    second = 0.0
    for k in range(_STEP_NODES.size):
        u = length * _STEP_NODES[k]
        weight = _STEP_WEIGHTS[k] * math.exp(-u * (slope + 0.5 * lam * u))
        total += weight
        first += weight * u
        second += weight * u * u
    return total * length, first * length, second * length


@njit(cache=True, error_model="numpy")
def _uniform(p, gamma, lam):
    """log Z0, mean and variance, by quadrature from the peak (lam >= 0) or from both ends."""
    low, high = p[0], p[1]
    if lam > 0.0 or (lam == 0.0 and gamma == 0.0):
        peak = min(max(gamma / lam, low), high) if lam > 0.0 else low
        tilt = gamma - lam * peak
        inside = peak > low and peak < high
        down = 0.0 if inside else abs(tilt)
        right = _stretch(down, lam, high - peak)
        left = _stretch(down, lam, peak - low)
        a0, a1, a2 = _piece(down, lam, right)
        b0, b1, b2 = _piece(down, lam, left)
        total = a0 + b0
        shift = (a1 - b1) / total
        if a0 == 0.0 or b0 == 0.0:
            shift = a1 / a0 if b0 == 0.0 else -b1 / b0
        spread = (a2 + b2) / total - shift * shift
        height = gamma * peak - 0.5 * lam * peak * peak
        return height + math.log(total / (high - low)), peak + shift, spread
    return _uniform_ends(low, high, gamma, lam)


@njit(cache=True, error_model="numpy")
def _uniform_ends(low, high, gamma, lam):
    """The same where the exponent is straight or bent upwards: largest at the ends."""
    middle = low if gamma > 0.0 else high
    if lam < 0.0:
        middle = min(max(gamma / lam, low), high)
    slope_high = gamma - lam * high
    slope_low = lam * low - gamma
    a0, a1, a2 = _piece(slope_high, lam, _stretch(slope_high, lam, high - middle))
    b0, b1, b2 = _piece(slope_low, lam, _stretch(slope_low, lam, middle - low))
    top = gamma * high - 0.5 * lam * high * high
    bottom = gamma * low - 0.5 * lam * low * low
    if b0 == 0.0:
        offset = a1 / a0
        return top + math.log(a0 / (high - low)), high - offset, a2 / a0 - offset * offset
    if a0 == 0.0:
        offset = b1 / b0
        return bottom + math.log(b0 / (high - low)), low + offset, b2 / b0 - offset * offset
    # the difference of the heights by its factors, so that large terms do not cancel
    lead = (high - low) * (gamma - 0.5 * lam * (high + low)) + math.log(a0 / b0)
    share = 1.0 / (1.0 + math.exp(-lead))
    rest = 1.0 / (1.0 + math.exp(lead))
    down, up = a1 / a0, b1 / b0
    gap = (high - low) - down - up
    within = share * (a2 / a0 - down * down) + rest * (b2 / b0 - up * up)
    spread = within + share * rest * gap * gap
    if lead >= 0.0:
        return top + math.log(a0 / share / (high - low)), high - down - rest * gap, spread
    return bottom + math.log(b0 / rest / (high - low)), low + up + share * gap, spread


# ---------------------------------------------------------------------- one element, any prior


@njit(cache=True, error_model="numpy")
def _tilted_moments(code, p, gamma, lam):
    """Mean and response of one tilted source, neither Laplace nor a mixture."""
    if code == TWO_STATES:
        return _two_states(p, gamma, lam)
    if code == GAUSSIAN:
        c = 1.0 / (1.0 / p[0] + lam)
        return (gamma * c, c) if c > 0.0 else (math.nan, math.nan)
    if code == EXPONENTIAL:
        _, mean, response = half_moments(gamma - p[0], lam)
        return mean, response
    if code == POSITIVE_GAUSSIAN:
        _, mean, response = half_moments(gamma + p[0], lam + p[1])
        return mean, response
    if code == TWO_GAUSSIANS:
        return _two_gaussians(p, gamma, lam)
    if code == POWER_LAW:
        return _power_law(p, gamma, lam)
    _, mean, response = _uniform(p, gamma, lam)
    return mean, response


@njit(cache=True, error_model="numpy", inline="always")
def _log_add(a, b):
    top = max(a, b)
    return top + math.log1p(math.exp(min(a, b) - top)) if top > -np.inf else top


@njit(cache=True, error_model="numpy", inline="always")
def _log_laplace(rate, gamma, lam):
    """log of both halves together, (1 / r + 1 / r') while both ratios are well above rounding."""
    size = abs(gamma)
    if lam > 0.0 and size - rate < 2.0 * math.sqrt(lam):
        near = half_moments(size - rate, lam)[0]
        far = half_moments(-size - rate, lam)[0]
        return math.log((near + far) / (near * far))
    return _log_add(log_integral(size - rate, lam), log_integral(-size - rate, lam))


@njit(cache=True, error_model="numpy")
def _tilted_log_partition(code, p, gamma, lam):
    """log Z0 of one tilted source; of the power law a potential whose gamma-slope is the mean."""
    if code == LAPLACE:
        return math.log(0.5 * p[0]) + _log_laplace(p[0], gamma, lam)
    if code == TWO_STATES:
        low = p[2] + gamma * p[0] - 0.5 * lam * p[0] * p[0]
        high = p[3] + gamma * p[1] - 0.5 * lam * p[1] * p[1]
        return _log_add(low, high)
    if code == GAUSSIAN:
        c = 1.0 + lam * p[0]
        return 0.5 * gamma * gamma * p[0] / c - 0.5 * math.log(c) if c > 0.0 else math.nan
    if code == EXPONENTIAL:
        return math.log(p[0]) + log_integral(gamma - p[0], lam)
    if code == POSITIVE_GAUSSIAN:
        return log_integral(gamma + p[0], lam + p[1]) - log_integral(p[0], p[1])
    if code == MIXTURE:
        return _mixture(p, gamma, lam)[0]
    if code == TWO_GAUSSIANS:
        c = 1.0 + lam * p[1]
        if not c > 0.0:
            return math.nan
        size = abs(gamma * p[0]) / c
        cosh = size + math.log1p(math.exp(-2.0 * size)) - math.log(2.0)
        gain = 0.5 * (gamma * gamma * p[1] - lam * p[0] * p[0]) / c
        return gain + cosh - 0.5 * math.log1p(lam * p[1])
    if code == POWER_LAW:
        if not lam > 0.0:
            return math.nan
        square = gamma * (gamma / lam)
        return 0.5 * (square - p[0] * math.log1p(square / (p[0] * p[1])))
    return _uniform(p, gamma, lam)[0]


# ---------------------------------------------------------------------- arrays


@njit(cache=True, error_model="numpy")
def moments_of_others(code, p, gamma, lam, mean, response):
    """The same of priors without loops of their own."""
    for n in range(gamma.size):
        mean[n], response[n] = _tilted_moments(code, p, gamma[n], lam[n])


@njit(cache=True, error_model="numpy")
def moments_of_laplace(p, gamma, lam, mean, response):
    """The same of a Laplace source."""
    for n in range(gamma.size):
        mean[n], response[n] = _laplace(p[0], gamma[n], lam[n])


@njit(cache=True, error_model="numpy")
def moments_of_mixture(p, gamma, lam, mean, response):
    """The same of a mixture of Gaussians."""
    for n in range(gamma.size):
        _, mean[n], response[n] = _mixture(p, gamma[n], lam[n])


def moments_of(code: int, p: Array, gamma: Array, lam: Array, mean: Array, response: Array) -> None:
    """Mean and response of every element of flat arrays.

    The priors of default fits have loops of their own, which take a fraction of the time to compile
    that one for all takes.
    """
    if code == LAPLACE:
        moments_of_laplace(p, gamma, lam, mean, response)
    elif code == MIXTURE:
        moments_of_mixture(p, gamma, lam, mean, response)
    else:
        moments_of_others(code, p, gamma, lam, mean, response)


@njit(cache=True, error_model="numpy")
def log_partition_of(code, p, gamma, lam, out):
    """log Z0 of every element of flat arrays."""
    for n in range(gamma.size):
        out[n] = _tilted_log_partition(code, p, gamma[n], lam[n])


@njit(cache=True, error_model="numpy")
def laplace_of(rates, means, variances, log_z, new_means, new_variances):
    """Log-mass, mean and variance of N(s; mean, variance) times a Laplace density of the rate of
    its column.
    """
    for t in range(means.shape[0]):
        for k in range(rates.size):
            rate, lam = rates[k], 1.0 / variances[t, k]
            gamma = means[t, k] * lam
            new_means[t, k], new_variances[t, k] = _laplace(rate, gamma, lam)
            height = 0.5 * (gamma * means[t, k] + math.log(2.0 * math.pi * variances[t, k]))
            log_z[t, k] = math.log(0.5 * rate) + _log_laplace(rate, gamma, lam) - height


@njit(cache=True, error_model="numpy")
def mean_size_of(rate, gamma, lam, out):
    """Posterior mean of |s| of a Laplace source."""
    for n in range(gamma.size):
        right_r, right_m, _ = half_moments(gamma[n] - rate, lam[n])
        left_r, left_m, _ = half_moments(-gamma[n] - rate, lam[n])
        out[n] = (left_r * right_m + right_r * left_m) / (left_r + right_r)


@njit(cache=True, error_model="numpy")
def component_sums(p, gamma, lam, sums):
    """Add to sums[k] the responsibilities of component k, times 1, s and s^2."""
    count = int(p[0])
    for n in range(gamma.size):
        total = _mixture(p, gamma[n], lam[n])[0]
        for k in range(count):
            if p[1 + 3 * k] > 0.0:
                mass, m, v = _component(p[1 + 3 * k], p[2 + 3 * k], p[3 + 3 * k], gamma[n], lam[n])
                share = math.exp(mass - total)
                sums[k, 0] += share
                sums[k, 1] += share * m
                sums[k, 2] += share * (v + m * m)
