"""Weighted draws around Gaussian posteriors, sample by sample, for priors with closed forms.

Expectation propagation gives each prior a Gaussian factor exp(g s - L s^2 / 2), and a sample the
normal density Q of precision J + diag L. The posterior over Q is then a product over the sources,
p_i(s_i) exp(L_i s_i^2 / 2 - g_i s_i), so that a draw is weighed without a product with J. Draws
come in pairs mean + R z and mean - R z; the same z serve every sample, so that their own density
and that under Q are known beforehand.
"""

from __future__ import annotations

import math

import numpy as np

from kikuchi.core.compiled import njit
from kikuchi.ica.kernels.priors import GAUSSIAN, LAPLACE, tilted_moments

_LEAST_BOTTOM = 0.1  # 1 + (change of L) chi_ii must stay above it
_SHARPEST = 1e8  # greatest precision of a factor, in units of J_ii + 1
_ROUNDING = 1e-10  # of 1 / chi_ii: how far lam stays above zero
_LEAST_PIVOT = 1e-12
CODES = (GAUSSIAN, LAPLACE)  # priors that these loops know the density of
GROUPS = 4  # of draws, of which the jackknife leaves out one
LEFT = (GROUPS - 1.0) / GROUPS
LEAST_LEFT = 0.4  # of the weight, without any group
WIDTHS = 4  # of pairs, in turn
_ABREAST = 8  # numbers that processors take at once
_FAST = {"reassoc", "contract", "nsz", "arcp"}
_LOWEST = -700.0  # exponents below it count as it
_LOG_TWO = 0.693147180369123816490, 1.90821492927058770002e-10  # its first digits, and the others
_POWERS = np.ldexp(1.0, np.arange(-1022, 1))  # of two, by 1022 more than the exponent


@njit(cache=True, error_model="numpy", fastmath=_FAST, inline="always")
def exponential(x):
    """exp(x) for x <= 0, to a relative error of 2e-15 (1e-13 near the lowest), in a form of which
    processors do several at once: 2^k e^r with |r| <= log(2) / 2, and a Taylor polynomial.
    """
    v = max(x, _LOWEST)
    k = math.floor(v * 1.4426950408889634 + 0.5)
    r = (v - k * _LOG_TWO[0]) - k * _LOG_TWO[1]
    p = r / 6227020800.0 + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    return p * _POWERS[int(k) + 1022]


@njit(cache=True, error_model="numpy", fastmath=_FAST)
def _factorise(coupling, precision, root, inverse):
    """L^-1 of the Cholesky factor L of J + diag(precision); the sum of the logarithms of its
    diagonal.
    """
    count = precision.shape[0]
    half_log_det, product = 0.0, 1.0
    for i in range(count):
        for j in range(i):
            value = coupling[i, j]
            for k in range(j):
                value -= root[i, k] * root[j, k]
            root[i, j] = value * inverse[j, j]
        own = coupling[i, i] + precision[i]
        value = own
        for k in range(i):
            value -= root[i, k] * root[i, k]
        value = math.sqrt(max(value, _LEAST_PIVOT * own, 1e-300))
        product *= value
        if product > 1e200 or product < 1e-200:
            half_log_det -= math.log(product)
            product = 1.0
        inverse[i, i] = 1.0 / value
        for j in range(i):
            total = 0.0
            for k in range(j, i):
                total += root[i, k] * inverse[k, j]
            inverse[i, j] = -total * inverse[i, i]
    return half_log_det - math.log(product)


@njit(cache=True, error_model="numpy", fastmath=_FAST)
def _centre(inverse, field, linear, passed, mu, diagonal):
    """mu = L^-T L^-1 (h + linear) and the diagonal of L^-T L^-1; `passed` is room."""
    count = linear.shape[0]
    for i in range(count):
        value = 0.0
        for j in range(i + 1):
            value += inverse[i, j] * (field[j] + linear[j])
        passed[i] = value
        mu[i] = 0.0
        diagonal[i] = 0.0
    for j in range(count):
        row, value = inverse[j], passed[j]
        for i in range(count):
            mu[i] += row[i] * value
            diagonal[i] += row[i] * row[i]


@njit(cache=True, error_model="numpy", fastmath=_FAST)
def _square(inverse, chi):
    """chi = L^-T L^-1."""
    count = inverse.shape[0]
    for i in range(count):
        for j in range(i + 1):
            total = 0.0
            for k in range(i, count):
                total += inverse[k, i] * inverse[k, j]
            chi[i, j] = total
            chi[j, i] = total


@njit(cache=True, error_model="numpy", fastmath=_FAST)
def _sweep(codes, numbers, coupling, precision, linear, chi, mu):
    """One update of every factor; the largest change of a mean or variance, in deviations."""
    count = precision.shape[0]
    worst = 0.0
    for i in range(count):
        own = chi[i, i]
        raw = 1.0 / own - precision[i]
        lam = max(raw, _ROUNDING / own)
        gamma = mu[i] / own - linear[i] + (lam - raw) * mu[i]
        mean, spread = tilted_moments(codes[i], numbers[i], gamma, lam)
        wanted = min(1.0 / max(spread, 1e-300) - lam, _SHARPEST * (coupling[i, i] + 1.0))
        change = wanted - precision[i]
        linear_change = mean * (wanted + lam) - gamma - linear[i]
        step = min(1.0, (1.0 - _LEAST_BOTTOM) / max(-change * own, 1e-300))
        shift = abs(mean - mu[i]) / math.sqrt(max(spread, 1e-300))
        worst = max(worst, shift, abs(spread - own) / (spread + own))
        change *= step
        linear_change *= step
        precision[i] += change
        linear[i] += linear_change
        factor = change / (1.0 + change * own)
        move = (linear_change - change * mu[i]) / (1.0 + change * own)
        for j in range(count):
            mu[j] += chi[j, i] * move
        for j in range(count):
            if j != i:
                scale = factor * chi[j, i]
                for k in range(count):
                    chi[j, k] -= scale * chi[i, k]
        for k in range(count):
            chi[i, k] /= 1.0 + change * own
        for j in range(count):
            chi[j, i] = chi[i, j]
    return worst


@njit(cache=True, error_model="numpy", fastmath=_FAST)
def weighted_moments(
    codes,
    numbers,
    first,
    couplings,
    field,
    gamma,
    lam,
    warm,
    tol,
    sweeps,
    normals,
    shares,
    places,
    mean,
    second,
    log_z,
):
    """Means (I, n), second moments (n, I, I) and log Z of every sample by weighted draws; gamma
    and lam are the fields of expectation propagation, from which it begins if `warm`.

    `first` (I, 2) are factors like the priors. `normals` (sets, I, pairs) are in units of R; sample
    n takes set places[n], beyond the last set with other axes and signs. `shares` (sets, pairs) is
    the density of a draw under Q over its own, the sum over all draws being one. Weights that sum
    to one are biased by one part in the number of draws; a jackknife over groups of them takes that
    away. Answers the sum over samples of log(1 + relative variance of the weights), and the number
    of samples in which expectation propagation has not converged.
    """
    count, total = field.shape
    pairs = normals.shape[2]
    root, inverse = np.zeros((count, count)), np.zeros((count, count))
    chi, mu = np.empty((count, count)), np.empty(count)
    diagonal, passed = np.empty(count), np.empty(count)
    precision, linear, spreads = np.empty(count), np.empty(count), np.empty(count)
    axis, sign = np.empty(count, np.int64), np.empty(count)
    wide = pairs + count + -count % _ABREAST
    moves = np.zeros((count, wide))  # of draws, then L^-T, whose products are chi
    plus, minus = np.empty(wide), np.empty(pairs)
    group, known = np.empty(GROUPS), np.empty(GROUPS)
    spread, failed = 0.0, 0
    constant = 0.5 * count * math.log(2.0 * math.pi)
    for i in range(count):
        if codes[i] == LAPLACE:
            constant += math.log(0.5 * numbers[i, 0])
        else:
            constant -= 0.5 * math.log(2.0 * math.pi * numbers[i, 0])
    for n in range(total):
        coupling = couplings[0 if couplings.shape[0] == 1 else n]
        for i in range(count):
            precision[i], linear[i] = first[i, 0], first[i, 1]
            if warm:
                m, v = tilted_moments(codes[i], numbers[i], gamma[i, n], lam[i, n])
                sharpest = _SHARPEST * (coupling[i, i] + 1.0)
                precision[i] = min(1.0 / max(v, 1e-300) - lam[i, n], sharpest)
                linear[i] = m * (precision[i] + lam[i, n]) - gamma[i, n]
                mean[i, n], spreads[i] = m, v
        base = _factorise(coupling, precision, root, inverse)
        _centre(inverse, field[:, n], linear, passed, mu, diagonal)
        residual = 0.0 if warm else math.inf
        if warm:
            for i in range(count):
                shift = abs(mu[i] - mean[i, n]) / math.sqrt(max(spreads[i], 1e-300))
                size = abs(spreads[i] - diagonal[i]) / (spreads[i] + diagonal[i])
                residual = max(residual, shift, size)
        if not residual <= tol:
            _square(inverse, chi)
            for _ in range(sweeps):
                residual = _sweep(codes, numbers, coupling, precision, linear, chi, mu)
                if residual <= tol:
                    break
            if not residual <= tol:
                failed += 1
            base = _factorise(coupling, precision, root, inverse)
            _centre(inverse, field[:, n], linear, passed, mu, diagonal)
        base += constant
        for i in range(count):
            base += 0.5 * mu[i] * (field[i, n] + linear[i])
        place, cycle = places[n] % normals.shape[0], places[n] // normals.shape[0]
        z, share = normals[place], shares[place]
        for i in range(count):
            axis[i] = (i + cycle) % count
            sign[i] = 1.0 - 2.0 * ((cycle * 40503 >> i) & 1)
        for k in range(pairs):
            plus[k] = 0.0
            minus[k] = 0.0
        for i in range(count):
            width = 1.0 / diagonal[i]
            raw = width - precision[i]
            lam[i, n] = max(raw, _ROUNDING * width)
            gamma[i, n] = mu[i] * width - linear[i] + (lam[i, n] - raw) * mu[i]
            d = moves[i]
            for k in range(pairs):
                d[k] = 0.0
            for j in range(i, count):
                scale, normal = inverse[j, i] * sign[j], z[axis[j]]
                for k in range(pairs):
                    d[k] += scale * normal[k]
            here, half = mu[i], 0.5 * precision[i]
            odd = precision[i] * here - linear[i]
            even = (half * here - linear[i]) * here
            if codes[i] == LAPLACE:
                rate = numbers[i, 0]
                for k in range(pairs):
                    both = even + half * d[k] * d[k]
                    plus[k] += both + odd * d[k] - rate * abs(here + d[k])
                    minus[k] += both - odd * d[k] - rate * abs(here - d[k])
            else:
                tight = 1.0 / numbers[i, 0]
                half -= 0.5 * tight
                odd -= tight * here
                even -= 0.5 * tight * here * here
                for k in range(pairs):
                    both = even + half * d[k] * d[k]
                    plus[k] += both + odd * d[k]
                    minus[k] += both - odd * d[k]
        top = -math.inf
        for k in range(pairs):
            top = max(top, plus[k], minus[k])
        weights, power = 0.0, 0.0
        for g in range(GROUPS):
            group[g], known[g] = 0.0, 0.0
        for k in range(pairs):
            plus[k] = share[k] * exponential(plus[k] - top)
            minus[k] = share[k] * exponential(minus[k] - top)
            power += (plus[k] * plus[k] + minus[k] * minus[k]) / share[k]
        for begin in range(0, pairs, WIDTHS * GROUPS):
            for g in range(GROUPS):
                for k in range(begin + g * WIDTHS, begin + (g + 1) * WIDTHS):
                    group[g] += plus[k] + minus[k]
                    known[g] += 2.0 * share[k]
        for g in range(GROUPS):
            weights += group[g]
        spread += math.log(power / (weights * weights))
        log_ratio, sum_w, sum_s, least = GROUPS * math.log(weights), 0.0, 0.0, 1.0
        for g in range(GROUPS):
            group[g], known[g] = weights - group[g], 1.0 - known[g]
            least = min(least, group[g] / weights)
        if least < LEAST_LEFT:  # a few draws have all the weight: no use in leaving them out
            log_ratio = math.log(weights)
            for g in range(GROUPS):
                group[g], known[g] = 1.0 / weights, 1.0
        else:
            for g in range(GROUPS):
                log_ratio -= LEFT * math.log(group[g] / known[g])
                sum_w += 1.0 / group[g]
                sum_s += 1.0 / known[g]
            for g in range(GROUPS):
                group[g] = GROUPS / weights - LEFT * (sum_w - 1.0 / group[g])
                known[g] = GROUPS - LEFT * (sum_s - 1.0 / known[g])
        log_z[n] = base + top + log_ratio
        for k in range(pairs):  # what each pair adds to the moments of Q
            g = (k // WIDTHS) % GROUPS
            up, down = plus[k] * group[g], minus[k] * group[g]
            plus[k] = up - down
            minus[k] = up + down - 2.0 * share[k] * known[g]
        for i in range(count):
            d = moves[i]
            value = 0.0
            for k in range(pairs):
                value += plus[k] * d[k]
            mean[i, n] = value
        for i in range(count):
            d = moves[i]
            for j in range(i, count):
                d[pairs + j] = inverse[j, i]
        for i in range(count):
            d = moves[i]
            for k in range(pairs):
                plus[k] = minus[k] * d[k]
            for k in range(pairs, wide):
                plus[k] = d[k]
            for j in range(i + 1):
                other = moves[j]
                value = mu[i] * mu[j] + mean[i, n] * mu[j] + mu[i] * mean[j, n]
                for k in range(wide):
                    value += plus[k] * other[k]
                second[n, i, j] = value
                second[n, j, i] = value
        for i in range(count):
            mean[i, n] += mu[i]
    return spread, failed


@njit(cache=True, error_model="numpy", fastmath=_FAST)
def sample_scores(residuals, observed, stretched_x, stretched_mixing, mean, second, own, scores):
    """Gradients of log p(x) of every sample (n, D I + noise): in the mixing, after the linear map
    that `stretched_x` (D, n) and `stretched_mixing` have passed, and in the log variances.

    All are in units of the noise; `residuals` (n, D) are the mean squares that sources leave of
    each channel. `observed` (D, n) has no rows if nothing is missing, else the map must be the
    identity. `own` tells whether each channel has a variance of its own; without it there is one,
    or none is learned if `scores` has no room.
    """
    channels, total = stretched_x.shape
    count = stretched_mixing.shape[1]
    noise = scores.shape[1] - channels * count
    product = np.empty(count)
    for n in range(total):
        for c in range(noise):
            scores[n, channels * count + c] = 0.0
        for d in range(channels):
            at = d * count
            seen = observed.shape[0] == 0 or observed[d, n]
            if not seen:
                for i in range(count):
                    scores[n, at + i] = 0.0
                continue
            value = stretched_x[d, n]
            for i in range(count):
                product[i] = value * mean[i, n]
            for j in range(count):
                value, row = stretched_mixing[d, j], second[n, j]
                for i in range(count):
                    product[i] -= value * row[i]
            for i in range(count):
                scores[n, at + i] = product[i]
            if noise:
                scores[n, channels * count + (d if own else 0)] += 0.5 * (residuals[n, d] - 1.0)
