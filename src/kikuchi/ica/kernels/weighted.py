"""Weighted draws around Gaussian posteriors, sample by sample, for priors with closed forms.

Expectation propagation gives each prior a Gaussian factor exp(g s - L s^2 / 2), and a sample the
normal density Q of precision J + diag L. The posterior over Q is then a product over the sources,
p_i(s_i) exp(L_i s_i^2 / 2 - g_i s_i), so that a draw is weighed without a product with J. Draws
come in pairs mean + R z and mean - R z; the same z serve every sample, so that their own density
and that under Q are known beforehand.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.compiled import njit
from kikuchi.engines.sites.kernels.densities import GAUSSIAN, LAPLACE, MIXTURE
from kikuchi.engines.sites.kernels.half_line import (
    FAST,
    exponential,
    moments_of_many,
    rough_exponential,
)

_LEAST_BOTTOM = 0.1  # 1 + (change of L) chi_ii must stay above it
_SHARPEST = 1e8  # greatest precision of a factor, in units of J_ii + 1
_ROUNDING = 1e-10  # of 1 / chi_ii: how far lam stays above zero
_LEAST_PIVOT = 1e-12
_LEAST_FACTOR = 1e-3  # precision of a factor, in units of J_ii + 1, where lower ones do not fit J
CODES = (GAUSSIAN, LAPLACE, MIXTURE)  # priors that these loops know the density of
GROUPS = 4  # of draws, of which the jackknife leaves out one
LEFT = (GROUPS - 1.0) / GROUPS
LEAST_LEFT = 0.4  # of the weight, without any group
WIDTHS = 4  # of pairs, in turn
_ABREAST = 8  # numbers that processors take at once
_LANES = 32  # samples whose factors are found together


class Sources(NamedTuple):
    """Codes and numbers of the priors, and precision and linear part of factors like them."""

    codes: Ints
    numbers: Array
    first: Array


class SampleFields(NamedTuple):
    """Couplings (1 or n, I, I) and fields (I, n) of the samples, and gamma and lam (I, n) of
    expectation propagation.
    """

    couplings: Array
    field: Array
    gamma: Array
    lam: Array


class PairedDraws(NamedTuple):
    """`normals` (sets, I, pairs) are in units of R; sample n takes set places[n], beyond the last
    set with other axes and signs. `shares` (sets, pairs) is the density of a draw under Q over its
    own, the sum over all draws being one.
    """

    normals: Array
    shares: Array
    places: Ints


class WeightedMoments(NamedTuple):
    """Means (I, n), second moments (n, I, I) and log Z of every sample."""

    mean: Array
    second: Array
    log_z: Array


class BlockFactors(NamedTuple):
    """Factors of a block of samples: precisions, linear terms, means and variances of Q, and minus
    log det L. The samples are the last axis.
    """

    precision: Array
    linear: Array
    mu: Array
    diagonal: Array
    half_log_det: Array


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _factorise(coupling, precision, root, inverse, half_log_det):
    """L^-1 of the Cholesky factor L of J + diag(precision), and minus the sum of the logarithms of
    its diagonal, for a block of samples: they are the last axis of every array, so that processors
    take several at once. Returns the smallest pivot, in units of its diagonal.
    """
    count, lanes = precision.shape
    smallest = 1.0
    for s in range(lanes):
        half_log_det[s] = 0.0
    for i in range(count):
        for j in range(i):
            here, first = root[i, j], coupling[i, j]
            for s in range(lanes):
                here[s] = first[s]
            for k in range(j):
                one, other = root[i, k], root[j, k]
                for s in range(lanes):
                    here[s] -= one[s] * other[s]
            scale = inverse[j, j]
            for s in range(lanes):
                here[s] *= scale[s]
        pivot, own, more = inverse[i, i], coupling[i, i], precision[i]
        for s in range(lanes):
            pivot[s] = own[s] + more[s]
        for k in range(i):
            one = root[i, k]
            for s in range(lanes):
                pivot[s] -= one[s] * one[s]
        for s in range(lanes):
            least = _LEAST_PIVOT * (own[s] + more[s])
            smallest = min(smallest, pivot[s] / max(abs(own[s] + more[s]), 1e-300))
            pivot[s] = 1.0 / math.sqrt(max(pivot[s], least, 1e-300))
        if i % 2 or i == count - 1:  # the product of two cannot overflow
            last = inverse[i - i % 2, i - i % 2]
            for s in range(lanes):
                half_log_det[s] += math.log(pivot[s] * last[s] if i % 2 else pivot[s])
        for j in range(i):
            here = inverse[i, j]
            for s in range(lanes):
                here[s] = 0.0
            for k in range(j, i):
                one, other = root[i, k], inverse[k, j]
                for s in range(lanes):
                    here[s] -= one[s] * other[s]
            for s in range(lanes):
                here[s] *= pivot[s]
    return smallest


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _centre(inverse, field, linear, mu, diagonal):
    """mu = L^-T L^-1 (h + linear) and the diagonal of L^-T L^-1, for a block of samples."""
    count, lanes = linear.shape
    passed = np.empty(lanes)
    for i in range(count):
        for s in range(lanes):
            mu[i, s] = 0.0
            diagonal[i, s] = 0.0
    for j in range(count):
        for s in range(lanes):
            passed[s] = 0.0
        for i in range(j + 1):
            row, one, other = inverse[j, i], field[i], linear[i]
            for s in range(lanes):
                passed[s] += row[s] * (one[s] + other[s])
        for i in range(j + 1):
            row, here, size = inverse[j, i], mu[i], diagonal[i]
            for s in range(lanes):
                here[s] += row[s] * passed[s]
            for s in range(lanes):
                size[s] += row[s] * row[s]


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _square(inverse, chi):
    """The lower half of chi = L^-T L^-1, for a block of samples."""
    count, lanes = inverse.shape[1:]
    for i in range(count):
        for j in range(i + 1):
            here = chi[i, j]
            for s in range(lanes):
                here[s] = 0.0
            for k in range(i, count):
                one, other = inverse[k, i], inverse[k, j]
                for s in range(lanes):
                    here[s] += one[s] * other[s]


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _tilted_mixture(parameters, gamma, lam, mean, spread):
    """Moments of a mixture of Gaussians, tilted, of every sample of a block; lam is above zero."""
    lanes, count = gamma.shape[0], int(parameters[0])
    masses, peak, total = np.empty((count, lanes)), np.empty(lanes), np.empty(lanes)
    for s in range(lanes):
        peak[s], total[s], mean[s], spread[s] = -math.inf, 0.0, 0.0, 0.0
    for k in range(count):
        middle, width, mass = parameters[2 + 3 * k], parameters[3 + 3 * k], masses[k]
        for s in range(lanes):
            gain = gamma[s] * (middle + 0.5 * gamma[s] * width) - 0.5 * lam[s] * middle * middle
            mass[s] = gain / (1.0 + lam[s] * width)
            peak[s] = max(peak[s], mass[s])
    for k in range(count):
        weight, middle, width = parameters[1 + 3 * k], parameters[2 + 3 * k], parameters[3 + 3 * k]
        mass = masses[k]
        for s in range(lanes):
            bottom = 1.0 + lam[s] * width
            mass[s] = weight * exponential(mass[s] - peak[s]) / math.sqrt(bottom)
            total[s] += mass[s]
            mean[s] += mass[s] * (gamma[s] * width + middle) / bottom
    for s in range(lanes):
        mean[s] /= total[s]
    for k in range(count):
        middle, width, mass = parameters[2 + 3 * k], parameters[3 + 3 * k], masses[k]
        for s in range(lanes):
            c = 1.0 / (1.0 + lam[s] * width)
            apart = (gamma[s] * width + middle) * c - mean[s]
            spread[s] += mass[s] * (width * c + apart * apart)
    for s in range(lanes):
        spread[s] /= total[s]


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _heights(numbers, components):
    """Number of components of a mixture, and for each the logarithm of its density at its middle,
    that middle and half its precision.
    """
    count = int(numbers[0])
    for c in range(count):
        weight, middle, width = numbers[1 + 3 * c], numbers[2 + 3 * c], numbers[3 + 3 * c]
        components[c, 0] = math.log(weight / math.sqrt(2.0 * math.pi * width))
        components[c, 1], components[c, 2] = middle, 0.5 / width
    return count


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _weigh_mixture(components, count, values, exponent, factor, room):
    """Multiply the density of a mixture at `values` to the weights exp(exponent) factor of draws:
    the highest component goes to the exponent, the sum in units of it to the factor.
    """
    pairs = values.shape[0]
    peak, total = room[count], room[count + 1]
    for k in range(pairs):
        peak[k], total[k] = -math.inf, 0.0
    for c in range(count):
        height, middle, tight, term = components[c, 0], components[c, 1], components[c, 2], room[c]
        for k in range(pairs):
            apart = values[k] - middle
            term[k] = height - tight * apart * apart
            peak[k] = max(peak[k], term[k])
    for c in range(count):
        term = room[c]
        for k in range(pairs):
            total[k] += rough_exponential(term[k] - peak[k])
    for k in range(pairs):
        exponent[k] += peak[k]
        factor[k] *= total[k]


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _tilted(code, parameters, gamma, lam, room, mean, spread):
    """Moments of one source of every sample of a block, tilted by gamma and lam."""
    lanes = gamma.shape[0]
    if code == MIXTURE:
        _tilted_mixture(parameters, gamma, lam, mean, spread)
        return
    if code == GAUSSIAN:
        tight = 1.0 / parameters[0]
        for s in range(lanes):
            spread[s] = 1.0 / (tight + lam[s])
            mean[s] = gamma[s] * spread[s]
        return
    rate, x, ratio, first, second = parameters[0], room[0], room[1], room[2], room[3]
    for s in range(lanes):
        root = math.sqrt(lam[s])
        x[s], x[lanes + s] = (gamma[s] - rate) / root, (-gamma[s] - rate) / root
    moments_of_many(x, ratio, first, second)
    for s in range(lanes):
        w = ratio[lanes + s] / (ratio[lanes + s] + ratio[s])
        gap = first[s] + first[lanes + s]
        mean[s] = (w * gap - first[lanes + s]) / math.sqrt(lam[s])
        each = w * second[s] + (1.0 - w) * second[lanes + s]
        spread[s] = (each + w * (1.0 - w) * gap * gap) / lam[s]


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _sweep(sources, coupling, state, chi, tol, residual):
    """One update of every factor of the samples of a block whose residual is above the tolerance;
    that becomes the largest change of a mean or variance, in deviations. Answers how many remain
    above it.
    """
    codes, numbers, _ = sources
    precision, linear, mu, _, _ = state
    count, lanes = precision.shape
    column, worst, active = np.empty((count, lanes)), np.zeros(lanes), np.empty(lanes)
    gamma, lam, mean, spread = np.empty(lanes), np.empty(lanes), np.empty(lanes), np.empty(lanes)
    factor, move = np.empty(lanes), np.empty(lanes)
    room = np.empty((4, 2 * lanes))
    for s in range(lanes):
        active[s] = 0.0 if residual[s] <= tol else 1.0
    for i in range(count):
        own, here, now, slope = chi[i, i], mu[i], precision[i], linear[i]
        for s in range(lanes):
            raw = 1.0 / own[s] - now[s]
            lam[s] = max(raw, _ROUNDING / own[s])
            gamma[s] = here[s] / own[s] - slope[s] + (lam[s] - raw) * here[s]
        _tilted(codes[i], numbers[i], gamma, lam, room, mean, spread)
        top = coupling[i, i]
        for s in range(lanes):
            v = max(spread[s], 1e-300)
            wanted = min(1.0 / v - lam[s], _SHARPEST * (top[s] + 1.0))
            change = wanted - now[s]
            step = active[s] * min(1.0, (1.0 - _LEAST_BOTTOM) / max(-change * own[s], 1e-300))
            shift = abs(mean[s] - here[s]) / math.sqrt(v)
            worst[s] = max(worst[s], shift, abs(v - own[s]) / (v + own[s]))
            change *= step
            linear_change = step * (mean[s] * (wanted + lam[s]) - gamma[s] - slope[s])
            now[s] += change
            slope[s] += linear_change
            bottom = 1.0 + change * own[s]
            factor[s] = change / bottom
            move[s] = (linear_change - change * here[s]) / bottom
        for j in range(count):
            one, other, centre = column[j], chi[max(i, j), min(i, j)], mu[j]
            for s in range(lanes):
                one[s] = other[s]
            for s in range(lanes):
                centre[s] += one[s] * move[s]
        for j in range(count):
            for k in range(j + 1):
                here, one, other = chi[j, k], column[j], column[k]
                for s in range(lanes):
                    here[s] -= factor[s] * one[s] * other[s]
    left = 0
    for s in range(lanes):
        if not residual[s] <= tol:
            residual[s] = worst[s]
            left += not worst[s] <= tol
    return left


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _propagate(sources, warm, tol, sweeps, coupling, field, state, room):
    """Expectation propagation of a block of samples, from the factors in `state`, whose means and
    variances are at first, if `warm`, those of the tilted sources. `room` is for L, L^-1, chi, and
    the last change of a moment of each sample, in deviations.
    """
    precision, linear, mu, diagonal, half_log_det = state
    root, inverse, chi, residual = room
    count, lanes = linear.shape
    mean, spread = mu.copy(), diagonal.copy()
    if _factorise(coupling, precision, root, inverse, half_log_det) < _LEAST_PIVOT:
        for i in range(count):  # factors of densities that are not log-concave, with another J
            top, now = coupling[i, i], precision[i]
            for s in range(lanes):
                now[s] = max(now[s], _LEAST_FACTOR * (top[s] + 1.0))
        _factorise(coupling, precision, root, inverse, half_log_det)
    _centre(inverse, field, linear, mu, diagonal)
    left = 0
    for s in range(lanes):
        residual[s] = 0.0 if warm else math.inf
        if warm:
            for i in range(count):
                shift = abs(mu[i, s] - mean[i, s]) / math.sqrt(max(spread[i, s], 1e-300))
                size = abs(spread[i, s] - diagonal[i, s]) / (spread[i, s] + diagonal[i, s])
                residual[s] = max(residual[s], shift, size)
        left += not residual[s] <= tol
    if left:
        _square(inverse, chi)
        for _ in range(sweeps):
            left = _sweep(sources, coupling, state, chi, tol, residual)
            if not left:
                break
        _factorise(coupling, precision, root, inverse, half_log_det)
        _centre(inverse, field, linear, mu, diagonal)


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _begin(sources, given, warm, begin, coupling, here, state):
    """Take a block of samples, the last of all again in place of those that it lacks: couplings,
    fields and factors, those of `first` or if `warm` those that the fields of each prior imply.
    """
    codes, numbers, first = sources
    precision, linear, mu, diagonal, _ = state
    couplings, field, gamma, lam = given
    count, lanes = linear.shape
    tilt, room = np.empty((2, lanes)), np.empty((4, 2 * lanes))
    last = field.shape[1] - 1
    if begin == 0 or couplings.shape[0] > 1:
        for s in range(lanes):
            n = min(begin + s, couplings.shape[0] - 1)
            for i in range(count):
                for j in range(count):
                    coupling[i, j, s] = couplings[n, i, j]
    for i in range(count):
        for s in range(lanes):
            n = min(begin + s, last)
            here[i, s], tilt[0, s], tilt[1, s] = field[i, n], gamma[i, n], lam[i, n]
            precision[i, s], linear[i, s] = first[i, 0], first[i, 1]
        if warm:
            _tilted(codes[i], numbers[i], tilt[0], tilt[1], room, mu[i], diagonal[i])
            for s in range(lanes):
                sharpest = _SHARPEST * (coupling[i, i, s] + 1.0)
                wanted = min(1.0 / max(diagonal[i, s], 1e-300) - tilt[1, s], sharpest)
                precision[i, s] = wanted
                linear[i, s] = mu[i, s] * (wanted + tilt[1, s]) - tilt[0, s]


@njit(cache=True, error_model="numpy", fastmath=FAST)
def weighted_moments(sources, given, warm, tol, sweeps, draws, found):
    """Means, second moments and log Z of every sample by weighted draws, into `found`. Expectation
    propagation begins from gamma and lam if `warm`, and leaves its own there.

    Weights that sum to one are biased by one part in the number of draws; a jackknife over groups
    of them takes that away. Returns the sum over samples of log(1 + relative variance of the
    weights), and the number of samples in which expectation propagation has not converged.
    """
    codes, numbers, _ = sources
    _, field, gamma, lam = given
    normals, shares, places = draws
    mean, second, log_z = found
    count, total = field.shape
    pairs = normals.shape[2]
    square = count, count, _LANES  # rows are indexed: those of an unpacked array are not known to
    roots, inverses = np.zeros(square), np.zeros(square)  # be contiguous
    chi, coupling = np.zeros(square), np.zeros(square)
    fields, factors = np.empty((count, _LANES)), np.zeros((4, count, _LANES))
    residual, half_log_det = np.empty(_LANES), np.empty(_LANES)
    state = BlockFactors(factors[0], factors[1], factors[2], factors[3], half_log_det)
    precision, linear = np.empty(count), np.empty(count)
    mu, diagonal = np.empty(count), np.empty(count)
    wide = pairs + count + -count % _ABREAST
    moves = np.zeros((count, wide))  # of draws, then L^-T, whose products are chi
    inverse, axis, sign = np.zeros((count, count)), np.empty(count, np.int64), np.empty(count)
    plus, minus = np.empty(wide), np.empty(pairs)
    values, more, less = np.empty(pairs), np.ones(pairs), np.ones(pairs)
    most = max(1, (numbers.shape[1] - 1) // 3)  # components of a mixture
    components, sizes = np.empty((count, most, 3)), np.zeros(count, np.int64)
    terms, mixed = np.empty((most + 2, pairs)), False
    group, known = np.empty(GROUPS), np.empty(GROUPS)
    spread, failed = 0.0, 0
    constant = 0.5 * count * math.log(2.0 * math.pi)
    for i in range(count):
        if codes[i] == LAPLACE:
            constant += math.log(0.5 * numbers[i, 0])
        elif codes[i] == MIXTURE:
            sizes[i], mixed = _heights(numbers[i], components[i]), True
        else:
            constant -= 0.5 * math.log(2.0 * math.pi * numbers[i, 0])
    for n in range(total):
        s = n % _LANES
        if s == 0:
            _begin(sources, given, warm, n, coupling, fields, state)
            room = roots, inverses, chi, residual
            _propagate(sources, warm, tol, sweeps, coupling, fields, state, room)
        failed += not residual[s] <= tol
        base = constant + half_log_det[s]
        for i in range(count):
            precision[i], linear[i] = factors[0, i, s], factors[1, i, s]
            mu[i], diagonal[i] = factors[2, i, s], factors[3, i, s]
            for j in range(i + 1):
                inverse[i, j] = inverses[i, j, s]
            base += 0.5 * mu[i] * (field[i, n] + linear[i])
        place, cycle = places[n] % normals.shape[0], places[n] // normals.shape[0]
        z, share = normals[place], shares[place]
        for i in range(count):
            axis[i] = (i + cycle) % count
            sign[i] = 1.0 - 2.0 * ((cycle * 40503 >> i) & 1)
        for k in range(pairs):
            plus[k] = 0.0
            minus[k] = 0.0
            more[k] = 1.0
            less[k] = 1.0
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
            elif codes[i] == MIXTURE:
                for k in range(pairs):
                    both = even + half * d[k] * d[k]
                    plus[k] += both + odd * d[k]
                    minus[k] += both - odd * d[k]
                    values[k] = here + d[k]
                _weigh_mixture(components[i], sizes[i], values, plus, more, terms)
                for k in range(pairs):
                    values[k] = here - d[k]
                _weigh_mixture(components[i], sizes[i], values, minus, less, terms)
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
            if mixed:
                plus[k] *= more[k]
                minus[k] *= less[k]
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
