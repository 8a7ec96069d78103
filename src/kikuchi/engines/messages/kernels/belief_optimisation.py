"""The Bethe free energy of a Boltzmann machine as a function of its single marginals.

Given q_i = P(x_i = 1) and q_j, the best pair belief is the table with these margins whose odds
ratio is exp W_ij. In terms of k = exp -|W|, c = 1 - k, d = q_i - q_j and the discriminant r below
each cell has a form without cancellation, also for couplings that saturate (negative ones by
flipping j):

    b11 = 2 q_i q_j / (k + c (q_i + q_j) + r),    b10 = 2 k q_i (1 - q_j) / (k - c d + r),
    r^2 = (c d)^2 + k (k + 2 c (q_i (1 - q_j) + q_j (1 - q_i))),

b00 and b01 as b11 and b10 with q and 1 - q, or i and j, exchanged.

Reference: WH-I4.
"""

from __future__ import annotations

import numpy as np

from kikuchi.core.compiled import njit

_LOG2 = 0.6931471805599453


@njit(cache=True, error_model="numpy", inline="always")
def _small_cell(k, c, w, d, r, log_p, p):
    """Cell and its logarithm for a pair that the coupling disfavours: 2 k p / (k - c d + r)."""
    u = k - c * d
    if u >= 0.0:
        scale = u + r
        return 2.0 * k * p / scale, _LOG2 - w + log_p - np.log(scale)
    cell = (r - u) / (2.0 * c)
    return cell, np.log(cell)


@njit(cache=True, error_model="numpy")
def cells(w, first, second):
    """Pair belief (b00, b01, b10, b11) and its logarithms.

    Arguments are the coupling, and for each variable (q, 1 - q, log q, log(1 - q)).
    """
    if w < 0.0:
        q, p, lq, lp = second
        b01, b00, b11, b10, l01, l00, l11, l10 = _attractive(-w, first, (p, q, lp, lq))
    else:
        b00, b01, b10, b11, l00, l01, l10, l11 = _attractive(w, first, second)
    return b00, b01, b10, b11, l00, l01, l10, l11


@njit(cache=True, error_model="numpy", inline="always")
def _attractive(w, first, second):
    qi, pi, li, ki = first
    qj, pj, lj, kj = second
    k = np.exp(-w)
    c = -np.expm1(-w)
    d = qi - qj if qi + qj <= 1.0 else pj - pi
    r = np.hypot(c * d, np.exp(-0.5 * w) * np.sqrt(k + 2.0 * c * (qi * pj + qj * pi)))
    scale = k + c * (qi + qj) + r
    b11 = 2.0 * qi * qj / scale
    l11 = _LOG2 + li + lj - np.log(scale)
    scale = k + c * (pi + pj) + r
    b00 = 2.0 * pi * pj / scale
    l00 = _LOG2 + ki + kj - np.log(scale)
    b10, l10 = _small_cell(k, c, w, d, r, li + kj, qi * pj)
    b01, l01 = _small_cell(k, c, w, -d, r, lj + ki, qj * pi)
    return b00, b01, b10, b11, l00, l01, l10, l11


@njit(cache=True, error_model="numpy")
def _singles(theta, q, p, lq, lp):
    """q = sigmoid(theta), p = 1 - q and their logarithms, each to full relative accuracy."""
    for i in range(theta.size):
        tail = np.exp(-abs(theta[i]))
        near = -np.log1p(tail)
        if theta[i] >= 0.0:
            q[i] = 1.0 / (1.0 + tail)
            p[i] = tail / (1.0 + tail)
            lq[i] = near
            lp[i] = near - theta[i]
        else:
            q[i] = tail / (1.0 + tail)
            p[i] = 1.0 / (1.0 + tail)
            lq[i] = near + theta[i]
            lp[i] = near


@njit(cache=True, error_model="numpy")
def value_and_gradient(theta, biases, first, second, weights, degrees, singles, gradient):
    """F at logits theta; `gradient` gets dF / dq_i. Rows of `singles`: q, 1 - q and their logs."""
    q, p, lq, lp = singles[0], singles[1], singles[2], singles[3]
    _singles(theta, q, p, lq, lp)
    value = 0.0
    for i in range(theta.size):
        rest = 1.0 - degrees[i]
        value += rest * (q[i] * lq[i] + p[i] * lp[i]) - biases[i] * q[i]
        gradient[i] = rest * theta[i] - biases[i]
    for e in range(first.size):
        i = first[e]
        j = second[e]
        w = weights[e]
        b00, b01, b10, b11, l00, l01, l10, l11 = cells(
            w, (q[i], p[i], lq[i], lp[i]), (q[j], p[j], lq[j], lp[j])
        )
        for b, log_b in ((b00, l00), (b01, l01), (b10, l10)):
            if b > 0.0:
                value += b * log_b
        if b11 > 0.0:
            value += b11 * (l11 - w)
        gradient[i] += l10 - l00
        gradient[j] += l01 - l00
    return value


@njit(cache=True, error_model="numpy")
def hessian(first, second, weights, degrees, singles, diagonal, coupling):
    """Second derivatives in q, scaled by sqrt(q (1 - q)) of both variables: diagonal and pairs."""
    q, p, lq, lp = singles[0], singles[1], singles[2], singles[3]
    for i in range(q.size):
        diagonal[i] = 1.0 - degrees[i]
    for e in range(first.size):
        i = first[e]
        j = second[e]
        b00, b01, b10, b11, _, _, _, _ = cells(
            weights[e], (q[i], p[i], lq[i], lp[i]), (q[j], p[j], lq[j], lp[j])
        )
        # With x the belief b11: dx / dq_i = (1/b10 + 1/b00) / sum of 1/b, and so for j.
        total = 1.0 / b00 + 1.0 / b01 + 1.0 / b10 + 1.0 / b11
        away_i = 1.0 / b10 + 1.0 / b00
        away_j = 1.0 / b01 + 1.0 / b00
        vi = q[i] * p[i]
        vj = q[j] * p[j]
        diagonal[i] += vi * away_i * (1.0 - away_i / total)
        diagonal[j] += vj * away_j * (1.0 - away_j / total)
        coupling[e] = np.sqrt(vi) * np.sqrt(vj) * (1.0 / b00 - away_i * away_j / total)


@njit(cache=True, error_model="numpy")
def pair_beliefs(first, second, weights, singles, out):
    """Pair beliefs, four numbers for each pair (first variable slow)."""
    q, p, lq, lp = singles[0], singles[1], singles[2], singles[3]
    for e in range(first.size):
        i = first[e]
        j = second[e]
        b00, b01, b10, b11, _, _, _, _ = cells(
            weights[e], (q[i], p[i], lq[i], lp[i]), (q[j], p[j], lq[j], lp[j])
        )
        total = b00 + b01 + b10 + b11
        out[4 * e] = b00 / total
        out[4 * e + 1] = b01 / total
        out[4 * e + 2] = b10 / total
        out[4 * e + 3] = b11 / total
