"""Symbol detection in many small complete models at once.

One reweighted sum-product update serves belief propagation (weight 1, step 1), damped belief
propagation (1, step < 1), tree-reweighted (weight < 1) and alpha-belief propagation (weight
1 / alpha, step alpha): with z the log-ratio of a message and L_t = 2 theta_t + weight sum_w z_wt,

    z_ts <- (1 - step) z_ts + step H(L_t - z_st; 2 theta_ts / weight),
    H(d; k) = log((e^(k + d) + 1) / (e^d + e^k)) = 2 atanh(tanh(k / 2) tanh(d / 2)).

Reference: LIU-E3 to E5, LIU-I6, LIU-I8, LIU-I16.
"""

from __future__ import annotations

import numpy as np

from kikuchi.core.compiled import njit

_TINY = 1e-300


@njit(cache=True, error_model="numpy", inline="always")
def _h(d, k, decay):
    """H(d; k) with decay = exp(-|k|); no number here can overflow."""
    size = abs(d)
    e = np.exp(-size)
    down = decay + e
    value = np.log((1.0 + decay * e) / down) if down > _TINY else min(size, abs(k))
    return value if (d >= 0.0) == (k >= 0.0) else -value


@njit(cache=True, error_model="numpy", inline="always")
def _damped(old, new, step, linear):
    """A step from old to new, in log-ratios or in probabilities."""
    if step == 1.0:
        return new
    if not linear:
        return (1.0 - step) * old + step * new
    # log((1-s) p + s q) - log((1-s)(1-p) + s (1-q)) for p, q the logistic of old, new
    top = max(abs(old), abs(new))
    a = (1.0 - step) / (1.0 + np.exp(-old)) + step / (1.0 + np.exp(-new))
    b = (1.0 - step) / (1.0 + np.exp(old)) + step / (1.0 + np.exp(new))
    if a < _TINY or b < _TINY:
        return top if a > b else -top
    return np.log(a / b)


@njit(cache=True, error_model="numpy")
def _parallel_sweep(z, spare, total, k, decay, field, share, weight, step, linear):
    """All messages from the old ones; answers the largest change before damping."""
    n = len(field)
    change = 0.0
    for i in range(n):
        for j in range(n):
            if i != j:
                new = _h(total[i] - z[j, i], k[i, j], decay[i, j])
                change = max(change, abs(new - z[i, j]))
                spare[i, j] = _damped(z[i, j], new, step, linear)
    for j in range(n):
        total[j] = 2.0 * share * field[j]
        for i in range(n):
            if i != j:
                z[i, j] = spare[i, j]
                total[j] += weight * z[i, j]
    return change


@njit(cache=True, error_model="numpy")
def _sequential_sweep(z, total, k, decay, weight, step, linear):
    """For each pair i < j first what i sends, then what j sends, each put in place at once."""
    n = len(total)
    change = 0.0
    for i in range(n):
        for j in range(i + 1, n):
            new = _h(total[i] - z[j, i], k[i, j], decay[i, j])
            change = max(change, abs(new - z[i, j]))
            new = _damped(z[i, j], new, step, linear)
            total[j] += weight * (new - z[i, j])
            z[i, j] = new
            new = _h(total[j] - z[i, j], k[i, j], decay[i, j])
            change = max(change, abs(new - z[j, i]))
            new = _damped(z[j, i], new, step, linear)
            total[i] += weight * (new - z[j, i])
            z[j, i] = new
    return change


@njit(cache=True, error_model="numpy")
def messages(
    couplings,
    fields,
    weight,
    step,
    first,
    ramp,
    linear,
    parallel,
    max_iter,
    tol,
    odds,
    converged,
):
    """Log-odds of every symbol after message passing; one model per row.

    The fields count with the share `first` in the first sweep; after each sweep it moves towards
    1 by the share `ramp` of the way: with ramp = alpha that is rule (3.16) for factors
    of one variable, begun at uniform (first = 0) or at themselves (first = 1).
    """
    uses, n = fields.shape
    z = np.empty((n, n))
    spare = np.empty((n, n))
    k = np.empty((n, n))
    decay = np.empty((n, n))
    total = np.empty(n)
    for use in range(uses):
        field = fields[use]
        share = first
        for i in range(n):
            total[i] = 2.0 * share * field[i]
            for j in range(n):
                z[i, j] = 0.0
                k[i, j] = 2.0 * couplings[use, i, j] / weight
                decay[i, j] = np.exp(-abs(k[i, j]))
        converged[use] = False
        for _ in range(max_iter):
            ahead = 1.0 - (1.0 - share) * (1.0 - ramp)
            if parallel:
                change = _parallel_sweep(
                    z, spare, total, k, decay, field, ahead, weight, step, linear
                )
            else:
                change = _sequential_sweep(z, total, k, decay, weight, step, linear)
                for i in range(n):
                    total[i] += 2.0 * (ahead - share) * field[i]
            if change <= tol and 1.0 - share <= tol:
                converged[use] = True
                break
            share = ahead
        for j in range(n):
            value = 2.0 * field[j]
            for i in range(n):
                if i != j:
                    value += weight * z[i, j]
            odds[use, j] = value


@njit(cache=True, error_model="numpy")
def mean_field(couplings, fields, max_iter, tol, odds, converged):
    """Log-odds of every symbol by m_i = tanh(theta_i + sum_j theta_ij m_j), one after the other.

    A diagonal of the couplings acts as written: the published curve has one.
    """
    uses, n = fields.shape
    means = np.empty(n)
    for use in range(uses):
        means[:] = 0.0
        converged[use] = False
        for _ in range(max_iter):
            change = 0.0
            for i in range(n):
                field = fields[use, i]
                for j in range(n):
                    field += couplings[use, i, j] * means[j]
                new = np.tanh(field)
                change = max(change, abs(new - means[i]))
                means[i] = new
                odds[use, i] = 2.0 * field
            if change <= tol:
                converged[use] = True
                break


@njit(cache=True, error_model="numpy")
def most_probable(couplings, fields, best):
    """The symbols of largest weight, by a walk through all sign vectors that flips one at a time.

    With u = theta + Theta x the log-weight changes by -2 x_i u_i when symbol i flips.
    """
    uses, n = fields.shape
    x = np.empty(n)
    u = np.empty(n)
    for use in range(uses):
        for i in range(n):
            x[i] = -1.0
        for i in range(n):
            u[i] = fields[use, i]
            for j in range(n):
                if i != j:
                    u[i] -= couplings[use, i, j]
        value = top = 0.0
        best[use, :] = x
        for number in range(1, 1 << n):
            i = 0
            while not (number >> i) & 1:
                i += 1
            value -= 2.0 * x[i] * u[i]
            x[i] = -x[i]
            for j in range(n):
                if j != i:
                    u[j] += 2.0 * couplings[use, i, j] * x[i]
            if value > top:
                top = value
                best[use, :] = x
