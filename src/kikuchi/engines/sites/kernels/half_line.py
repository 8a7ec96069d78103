"""Gaussians cut at zero: the one function behind Laplace, exponential, positive and probit sites.

With x = g / sqrt(lam), R(x) the density of a standard normal over its distribution function,

    integral_0^inf exp(-lam s^2 / 2 + g s) ds = exp(x^2 / 2) Phi(x) sqrt(2 pi / lam),
    mean = (x + R) / sqrt(lam),   variance = (1 - x R - R^2) / lam.

Far on the left both brackets cancel; there R = y + a, a = 1 / (y + c), c = 2 / (y + 3 / (y + ...))
with y = -x, so that x + R = a and 1 - x R - R^2 = a (c - a), without cancellation. There c is taken
as a polynomial of 1 / y^2, and in the middle x + R as one of x, piece by piece: both are fitted
once, at import, and are several times faster than the error function. For many x at once, of which
processors take several in one step, (y + 3) a and (y + 3)^2 a (c - a) are polynomials of
(y - 3) / (y + 3) for every y > 0, without pieces; right of zero R(x) = n R(-x) / (R(-x) - n) with
the normal density n.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erfcx

from kikuchi.core.compiled import njit

_ROOT_HALF = math.sqrt(0.5)
_LOG_ROOT_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_LOG_TWO_PI = math.log(2.0 * math.pi)
_FACTOR = math.sqrt(2.0 / math.pi)
_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)  # of a standard normal at zero
_LEFT = -5.0  # left of it the continued fraction
_RIGHT = 6.0  # right of it the error function, between them the table
_PIECES = 2  # of the table, for every unit of x


_TERMS = 60
_DEGREE = 15
_PIECE_DEGREE = 9
_WHOLE_DEGREE = 12
_MIDDLE = 3.0
FAST = {"reassoc", "contract", "nsz", "arcp"}  # what compiled loops may do with sums and quotients
_LOWEST = -700.0  # exponents below it count as it
_LOG_TWO = 0.693147180369123816490, 1.90821492927058770002e-10  # its first digits, and the others
_TAYLOR = tuple(1.0 / math.factorial(k) for k in range(12, -1, -1))  # of exp
_SHORT_TAYLOR = tuple(1.0 / math.factorial(k) for k in range(6, -1, -1))
_POWERS = np.ldexp(1.0, np.arange(-1022, 1))  # of two, by 1022 more than the exponent


def _fraction(y):
    """c y / 2 by the continued fraction, which has converged at y = 5 with these terms."""
    c = np.zeros_like(y)
    for k in range(_TERMS, 1, -1):
        c = k / (y + c)
    return 0.5 * y * c


def _fit():
    """c y / 2 as a polynomial of w = 2 (5 / y)^2 - 1, through Chebyshev points; 1 at y = inf."""
    w = np.cos(np.pi * (np.arange(64) + 0.5) / 64)
    y = -_LEFT / np.sqrt(0.5 * (w + 1.0))
    series = np.polynomial.chebyshev.chebfit(w, _fraction(y), _DEGREE)
    return np.polynomial.chebyshev.cheb2poly(series)[::-1].copy()


def _fit_pieces():
    """x + R(x) on pieces of length 1 / _PIECES, as polynomials of t in [-1, 1]."""
    rows = []
    t = np.cos(np.pi * (np.arange(32) + 0.5) / 32)
    for k in range(round((_RIGHT - _LEFT) * _PIECES)):
        x = _LEFT + (k + 0.5 * (t + 1.0)) / _PIECES
        shifted = x + _FACTOR / erfcx(-x * _ROOT_HALF)
        series = np.polynomial.chebyshev.chebfit(t, shifted, _PIECE_DEGREE)
        rows.append(np.polynomial.chebyshev.cheb2poly(series)[::-1])
    return np.array(rows)


def _fit_whole():
    """(y + 3) (x + R) and (y + 3)^2 (1 - x R - R^2) at x = -y, as polynomials of
    (y - 3) / (y + 3), in rows.
    """
    u = np.cos(np.pi * (np.arange(200) + 0.5) / 200)
    y = _MIDDLE * (1.0 + u) / (1.0 - u)
    far, near = y[y >= -_LEFT], y[y < -_LEFT]
    c = 2.0 * _fraction(far) / far
    ratio = _FACTOR / erfcx(near * _ROOT_HALF)
    mean = np.concatenate([1.0 / (far + c), ratio - near])
    variance = np.concatenate([(c - mean[: far.size]) / (far + c), 1.0 - ratio * (ratio - near)])
    u, y = np.concatenate([u[y >= -_LEFT], u[y < -_LEFT]]), np.concatenate([far, near])
    rows = [
        np.polynomial.chebyshev.cheb2poly(np.polynomial.chebyshev.chebfit(u, f, _WHOLE_DEGREE))
        for f in ((y + _MIDDLE) * mean, (y + _MIDDLE) ** 2 * variance)
    ]
    return [tuple(float(c) for c in row[::-1]) for row in rows]


_POLYNOMIAL = _fit()
_TABLE = _fit_pieces()
_WHOLE_MEAN, _WHOLE_VARIANCE = _fit_whole()


@njit(cache=True, error_model="numpy", fastmath=FAST, inline="always")
def _polynomial(c, u):
    """Of degree 12, written out so that processors take several u at once."""
    p = c[0] * u + c[1]
    p = p * u + c[2]
    p = p * u + c[3]
    p = p * u + c[4]
    p = p * u + c[5]
    p = p * u + c[6]
    p = p * u + c[7]
    p = p * u + c[8]
    p = p * u + c[9]
    p = p * u + c[10]
    p = p * u + c[11]
    return p * u + c[12]


@njit(cache=True, error_model="numpy", fastmath=FAST, inline="always")
def exponential(x):
    """exp(x) for x <= 0, to a relative error of 2e-15 (1e-13 near the lowest), in a form of which
    processors do several at once: 2^k e^r with |r| <= log(2) / 2, and a Taylor polynomial.
    """
    v = max(x, _LOWEST)
    k = math.floor(v * 1.4426950408889634 + 0.5)
    r = (v - k * _LOG_TWO[0]) - k * _LOG_TWO[1]
    return _polynomial(_TAYLOR, r) * _POWERS[int(k) + 1022]


@njit(cache=True, error_model="numpy", fastmath=FAST, inline="always")
def rough_exponential(x):
    """exp(x) for x <= 0, to a relative error of 2e-7: for weights of draws."""
    v = max(x, _LOWEST)
    k = math.floor(v * 1.4426950408889634 + 0.5)
    r, c = v - k * _LOG_TWO[0], _SHORT_TAYLOR
    p = ((c[0] * r + c[1]) * r + c[2]) * r + c[3]
    return (((p * r + c[4]) * r + c[5]) * r + c[6]) * _POWERS[int(k) + 1022]


@njit(cache=True, error_model="numpy", fastmath=FAST)
def moments_of_many(x, ratio, mean, variance):
    """R(x), x + R(x) and 1 - x R(x) - R(x)^2 of every x, to relative 1e-7."""
    for k in range(x.shape[0]):
        ratio[k] = _DENSITY * exponential(-0.5 * x[k] * x[k])
    for k in range(x.shape[0]):  # apart, as compilers do not see that many arrays are others
        y = abs(x[k])
        scale = 1.0 / (y + _MIDDLE)
        u = (y - _MIDDLE) * scale
        left = _polynomial(_WHOLE_MEAN, u) * scale
        narrow = _polynomial(_WHOLE_VARIANCE, u) * scale * scale
        right = ratio[k] * (y + left) / (y + left - ratio[k])
        negative = x[k] < 0.0
        ratio[k] = y + left if negative else right
        mean[k] = left if negative else y + right
        variance[k] = narrow if negative else 1.0 - right * (y + right)


@njit(cache=True, error_model="numpy", inline="always")
def scaled(x):
    """R(x), x + R(x) and 1 - x R(x) - R(x)^2, to relative 1e-15, 1e-13 and 1e-12."""
    if x < _LEFT:
        t = 1.0 / x
        w = 50.0 * t * t - 1.0  # 2 (5 / x)^2 - 1
        c = 0.0
        for coefficient in _POLYNOMIAL:
            c = c * w + coefficient
        c *= -2.0 * t
        a = 1.0 / (c - x)
        return a - x, a, a * (c - a)
    if x < _RIGHT:
        place = (x - _LEFT) * _PIECES
        k = int(place)
        t = 2.0 * (place - k) - 1.0
        shifted = 0.0
        for coefficient in _TABLE[k]:
            shifted = shifted * t + coefficient
        ratio = shifted - x
        return ratio, shifted, 1.0 - ratio * shifted
    ratio = _FACTOR * math.exp(-0.5 * x * x) / math.erfc(-x * _ROOT_HALF)
    shifted = x + ratio
    return ratio, shifted, 1.0 - ratio * shifted


@njit(cache=True, error_model="numpy", inline="always")
def moments(g, lam):
    """R (scaled by sqrt(lam)), mean and variance; lam = 0 needs g < 0."""
    if lam <= 0.0:
        if lam == 0.0 and g < 0.0:
            return -g, -1.0 / g, 1.0 / (g * g)
        return math.nan, math.nan, math.nan
    root = math.sqrt(lam)
    ratio, mean, variance = scaled(g / root)
    return ratio * root, mean / root, variance / lam


@njit(cache=True, error_model="numpy", inline="always")
def log_integral(g, lam):
    """log of the integral of exp(-lam s^2 / 2 + g s) over s >= 0; lam = 0 needs g < 0."""
    if lam <= 0.0:
        return -math.log(-g) if lam == 0.0 and g < 0.0 else math.nan
    x = g / math.sqrt(lam)
    if x < 0.0:  # exp(x^2 / 2) Phi(x) = 1 / (sqrt(2 pi) R), and sqrt(lam) R stays of the size of g
        return -math.log(scaled(x)[0] * math.sqrt(lam))
    tail = math.log1p(-0.5 * math.erfc(x * _ROOT_HALF))
    return 0.5 * g * (g / lam) + tail + _LOG_ROOT_TWO_PI - 0.5 * math.log(lam)


@njit(cache=True, error_model="numpy")
def mills(x):
    """(1 - Phi(x)) / phi(x) = 1 / R(-x)."""
    return 1.0 / scaled(-x)[0]


@njit(cache=True, error_model="numpy")
def probit_gain(x):
    """R, (x + R) R and log Phi at x, without loss of digits."""
    ratio, shifted, _ = scaled(x)
    if x < 0.0:
        log_phi = -0.5 * (x * x + _LOG_TWO_PI) - math.log(ratio)
    else:
        log_phi = math.log1p(-0.5 * math.erfc(x * _ROOT_HALF))
    return ratio, shifted * ratio, log_phi
