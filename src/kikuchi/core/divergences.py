"""Divergences between non-negative measures, and projections that minimise them.

Measures are arrays of any equal shape; they need not sum to 1.

Reference: LIU-D1, LIU-D2, LIU-I5.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.errors import ModelError
from kikuchi.core.numerics import log, normalise_log

_LIMIT = 1e-4  # nearer to alpha = 0 or 1 the expansion about the limit is used


def kl_divergence(p: ArrayLike, q: ArrayLike) -> float:
    """KL(p || q) = sum p log(p / q) + sum (q - p), extended to measures of any mass.

    0 log 0 is 0. The divergence is infinite if p has mass where q has none, never negative, and 0
    only for p = q.

    `p` and `q` are weights in arrays of the same shape.

    >>> round(kl_divergence([0.5, 0.5], [0.25, 0.75]), 6)
    0.143841
    >>> kl_divergence([1.0, 1.0], [1.0, 0.0])
    inf
    """
    p, q = _measures(p, q)
    if np.any((p > 0) & (q == 0)):
        return math.inf
    both = p > 0
    ratio = log(q[both]) - log(p[both])
    # p (r - 1 - log r) with r = q / p avoids cancellation where p is near q.
    return float(np.sum(p[both] * (np.expm1(ratio) - ratio)) + np.sum(q[~both]))


def alpha_divergence(p: ArrayLike, q: ArrayLike, alpha: float) -> float:
    """D_alpha(p || q), the alpha-divergence of Amari, for any real alpha.

    sum [alpha p + (1 - alpha) q - p^alpha q^(1 - alpha)] / (alpha (1 - alpha)). alpha = 1 is
    KL(p || q), alpha = 0 is KL(q || p), alpha = 1/2 twice the squared distance of the square roots;
    D_alpha(p || q) = D_{1-alpha}(q || p). For alpha >= 1 it is infinite when p has mass where q has
    none, for alpha <= 0 when q has some where p has none.

    `p` and `q` are weights in arrays of the same shape, `alpha` the order.

    >>> round(alpha_divergence([0.36, 0.64], [0.64, 0.36], 0.5), 6)
    0.16
    >>> alpha_divergence([0.5, 0.5], [1.0, 0.0], 1.0)
    inf
    """
    p, q = _measures(p, q)
    if not math.isfinite(alpha):
        raise ModelError(f"alpha must be a finite number, got {alpha}")
    only_p, only_q = (p > 0) & (q == 0), (q > 0) & (p == 0)
    if (alpha >= 1 and only_p.any()) or (alpha <= 0 and only_q.any()):
        return math.inf
    both = (p > 0) & (q > 0)
    alone = 0.0
    if only_p.any():
        alone += float(p[only_p].sum()) / (1.0 - alpha)
    if only_q.any():
        alone += float(q[only_q].sum()) / alpha
    x, y = p[both], q[both]
    ratio = log(x) - log(y)
    if abs(alpha) < _LIMIT:
        return alone + _near_limit(x, -ratio, alpha)
    if abs(1.0 - alpha) < _LIMIT:
        return alone + _near_limit(y, ratio, 1.0 - alpha)
    # y (alpha (e^r - 1) - (e^(alpha r) - 1)) with r = log(x / y)
    with np.errstate(over="ignore"):
        terms = y * (alpha * np.expm1(ratio) - np.expm1(alpha * ratio))
    return alone + float(terms.sum()) / (alpha * (1.0 - alpha))


def _near_limit(base: Array, ratio: Array, small: float) -> float:
    """Return the alpha-divergence near a limit, with an error of order small^2.

    With P = base e^r, r = log(P / base) and alpha = 1 - small the sum of
    base (alpha (e^r - 1) - (e^(alpha r) - 1)) / (alpha small) is KL(P || base) to first order plus
    small times (P r - P + base - P r^2 / 2).
    """
    mass = base * np.exp(ratio)
    kl = mass * ratio - base * np.expm1(ratio)
    return float(np.sum(kl + small * (kl - 0.5 * mass * ratio**2)))


def alpha_projection(
    p: ArrayLike,
    alpha: float,
    *,
    start: list[Array] | None = None,
    tol: float = 1e-12,
    max_iter: int = 10_000,
) -> tuple[list[Array], bool]:
    """Return a product of marginals that is a stationary point of D_alpha(p || .), and whether the
    iteration converged.

    q <- proj[p^alpha q^(1 - alpha)], where proj is the nearest product in KL, which has the same
    marginals. To first order the step is proportional to alpha, so a small alpha is slow; alpha = 0
    would not change q and raises an error (naive mean field, the method `mf`, is the limit). The
    iteration is a heuristic without guarantee; outside (0, 2) it rarely converges.

    `p` is a table with one axis for each variable; q starts uniform, or at `start`.

    `alpha` is the order; the iteration ends when no marginal changes by more than `tol`, or after
    `max_iter`.

    >>> q, met = alpha_projection([[0.4, 0.1], [0.1, 0.4]], 1.0)
    >>> [m.round(6).tolist() for m in q], met
    ([[0.5, 0.5], [0.5, 0.5]], True)
    """
    table = np.asarray(p, dtype=np.float64)
    if table.ndim == 0 or not np.all(np.isfinite(table)) or table.min() < 0 or table.max() == 0:
        raise ModelError("alpha_projection needs a table of finite non-negative weights, not all 0")
    if alpha == 0 or not math.isfinite(alpha):
        raise ModelError(
            f"alpha must be finite and not 0, got {alpha}; its limit 0 is naive mean field, mf"
        )
    if alpha < 0 and table.min() == 0:
        raise ModelError("alpha below 0 needs a table without zeros")
    log_p = log(table)
    q = (
        [np.full(k, 1.0 / k) for k in table.shape]
        if start is None
        else [np.array(m) for m in start]
    )
    for _ in range(max_iter):
        moved = _projected(log_p, q, alpha)
        change = max(float(np.abs(new - old).max()) for new, old in zip(moved, q, strict=True))
        q = moved
        if change <= tol:
            return q, True
    return q, False


def _projected(log_p: Array, q: list[Array], alpha: float) -> list[Array]:
    """Return the marginals of p^alpha q^(1 - alpha); zeros of p or q remain zero."""
    log_q = np.zeros(log_p.shape)
    for axis, marginal in enumerate(q):
        shape = [1] * log_p.ndim
        shape[axis] = -1
        log_q = log_q + log(marginal).reshape(shape)
    allowed = (log_p > -np.inf) & (log_q > -np.inf)
    mixed = np.full(log_p.shape, -np.inf)
    mixed[allowed] = alpha * log_p[allowed] + (1.0 - alpha) * log_q[allowed]
    joint = normalise_log(mixed)
    axes = range(joint.ndim)
    return [joint.sum(axis=tuple(k for k in axes if k != axis)) for axis in axes]


def _measures(p: ArrayLike, q: ArrayLike) -> tuple[Array, Array]:
    x, y = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    if x.shape != y.shape:
        raise ModelError(f"a divergence needs equal shapes, got {x.shape} and {y.shape}")
    for name, z in (("p", x), ("q", y)):
        if z.size and not (np.all(np.isfinite(z)) and z.min() >= 0):
            raise ModelError(f"a divergence needs finite non-negative weights; {name} has others")
    return x, y
