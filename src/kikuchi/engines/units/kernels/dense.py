"""Sweeps of mean field, TAP and Bethe over units with dense weights, many rows at once.

Data rows are worked off in blocks; inside a block the rows lie beside each other for each unit, so
that every inner loop runs over rows and is vectorised. Rows do not influence each other: each one
stops by itself, and its answer does not depend on its company.

Every update moves one mean between its old value and the minimum of the free energy over that mean
alone. All three free energies are convex in each single mean, so no update can raise them:
for mean field and TAP the minimum itself is found, for Bethe a point that is not beyond it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.compiled import njit
from kikuchi.engines.units.kernels.exponential import exp_negative

F8 = NDArray[np.float64]
I8 = NDArray[np.int64]

_ROWS = 32  # of data in a block, fewer where there are fewer
_FARTHEST = 36.0  # log-odds beyond which a probability is 0 or 1 in 53 bits
_CLOSE = 1e-13  # relative step at which Newton's method ends
_FLUSH = 300.0  # logarithms that are multiplied up before one logarithm is taken


@njit(cache=True, error_model="numpy")
def _logistic(x: F8, out: F8) -> None:
    """1 / (1 + exp(-x)) of each entry."""
    for r in range(len(x)):
        e = exp_negative(-abs(x[r]))
        out[r] = (1.0 if x[r] >= 0.0 else e) / (1.0 + e)


@njit(cache=True, error_model="numpy")
def _linear_field(row: F8, theta: F8, q: F8, out: F8) -> None:
    """theta + sum_j w_j q_j for each data row, four units at a time."""
    n = len(row)
    for r in range(len(out)):
        out[r] = theta[r]
    whole = n - n % 4
    for j in range(0, whole, 4):
        a, b, c, d = row[j], row[j + 1], row[j + 2], row[j + 3]
        qa, qb, qc, qd = q[j], q[j + 1], q[j + 2], q[j + 3]
        for r in range(len(out)):
            out[r] += (a * qa[r] + b * qb[r]) + (c * qc[r] + d * qd[r])
    for j in range(whole, n):
        a, qa = row[j], q[j]
        for r in range(len(out)):
            out[r] += a * qa[r]


@njit(cache=True, error_model="numpy")
def _tap_target(field: F8, bend: F8, out: F8, moves: F8) -> None:
    """The log-odds x that solve x = field - bend tanh(x / 2) / 2, the minimum over one mean.

    `out` holds where to start. From the near side of the solution Newton's method approaches it
    without passing it, and after one step it is on that side.
    """
    for r in range(len(out)):
        x = out[r] if field[r] >= 0.0 else -out[r]
        out[r] = min(max(x, 0.0), abs(field[r]))
        moves[r] = 1.0
    for _ in range(60):
        for r in range(len(out)):
            a, half, x = abs(field[r]), 0.5 * bend[r], out[r]
            e = exp_negative(-x)
            t = (1.0 - e) / (1.0 + e)
            move = (x - a + half * t) / (1.0 + 0.5 * half * (1.0 - t * t))
            rests = moves[r] <= _CLOSE  # by itself, not when the whole block does
            out[r] = x if rests else max(x - move, 0.0)
            moves[r] = moves[r] if rests else abs(move) / (1.0 + a)
        if moves.max() <= _CLOSE:
            break
    for r in range(len(out)):
        out[r] = out[r] if field[r] >= 0.0 else -out[r]


@njit(cache=True, error_model="numpy", inline="always")
def _sums(x: float, y: float, up: float) -> tuple[float, float, float]:
    """1 + a (x + y), 1 + a (2 - x - y) and 1 - a (x - y) for a = up - 1, exact also near a = -1."""
    return (
        (1.0 - x - y) + up * (x + y),
        (x + y - 1.0) + up * (2.0 - x - y),
        (1.0 + x - y) + up * (y - x),
    )


@njit(cache=True, error_model="numpy", inline="always")
def _root(x: float, y: float, a: float, up: float, both: float) -> float:
    """S of a pair, from sums of numbers that are not negative."""
    d = x - y
    above = 1.0 + a * (2.0 * (x + y - 2.0 * x * y) + a * d * d)
    below = both * both - 4.0 * a * up * x * y
    return float(np.sqrt(above if a > 0.0 else below))


@njit(cache=True, error_model="numpy")
def _bethe_field(i: int, row: F8, odds: F8, theta: F8, mine: F8, q: F8, out: F8, room: F8) -> None:
    """x - dF/dq_i as a function of q_i = `mine`, and in room[0] d(dF/dq_i)/dx >= 1, for log-odds
    x of q_i.

    `odds` is exp(w) of each neighbour. With S^2 = (1 + a (q_i + q_j))^2 - 4 a (1 + a) q_i q_j and
    a = exp(w) - 1 the pair table is P11 = 2 exp(w) q_i q_j / (1 + a (q_i + q_j) + S) and alike for
    the other three entries, without differences of nearly equal numbers.
    """
    n, slope, product = len(row), room[0], room[1]
    for r in range(len(out)):
        out[r] = theta[r]
        slope[r] = 1.0
        product[r] = 1.0
    held = 0.0
    for j in range(n):
        w = row[j]
        if w == 0.0 or j == i:
            continue
        up = odds[j]
        a = np.expm1(w)
        other = q[j]
        for r in range(len(out)):
            x, y = mine[r], other[r]
            both, none, one = _sums(x, y, up)
            root = _root(x, y, a, up, both)
            none = (
                none + root if none > 0.0 else -4.0 * a * up * (1.0 - x) * (1.0 - y) / (root - none)
            )
            one = one + root if one > 0.0 else 4.0 * a * x * (1.0 - y) / (root - one)
            both = both + root if both > 0.0 else -4.0 * a * up * x * y / (root - both)
            product[r] *= up * one / none
            slope[r] += both * none / (4.0 * up * root) - 1.0
        held += abs(w)
        if held > _FLUSH:
            for r in range(len(out)):
                out[r] += np.log(product[r])
                product[r] = 1.0
            held = 0.0
    for r in range(len(out)):
        out[r] += np.log(product[r])


@njit(cache=True, error_model="numpy")
def _bethe_target(
    i: int, row: F8, odds: F8, steepest: float, theta: F8, q: F8, out: F8, room: F8
) -> None:
    """Log-odds nearer to the minimum over q_i than those of q_i and not beyond it.

    The derivative g of F rises with the log-odds x, with a slope between 1 and `steepest`. One
    Newton step is tried. If it has not passed the zero of g it is kept and bettered by g /
    steepest, which never passes; if it has, stepping back by g does not stop short of the zero.
    """
    mine, first, trial, second, x = room[0], room[1], room[2], room[3], room[4]
    more = room[5:]
    slope = more[0]
    _bethe_field(i, row, odds, theta, q[i], q, first, more)
    for r in range(len(out)):
        p = q[i, r]
        x[r] = np.log(p / (1.0 - p)) if 0.0 < p < 1.0 else (_FARTHEST if p > 0.5 else -_FARTHEST)
        far = abs(x[r]) >= _FARTHEST
        trial[r] = first[r] if far else x[r] - (x[r] - first[r]) / slope[r]
    _logistic(trial, mine)
    _bethe_field(i, row, odds, theta, mine, q, second, more)
    for r in range(len(out)):
        before, after = x[r] - first[r], trial[r] - second[r]
        if before * after >= 0.0:
            out[r] = trial[r] - after / steepest
        else:
            back, short = trial[r] - after, x[r] - before / steepest
            out[r] = min(back, short) if before > 0.0 else max(back, short)
            if (out[r] - x[r]) * before > 0.0:  # rounding: stay
                out[r] = x[r]


# ---------------------------------------------------------------------- blocks of rows


@njit(cache=True, error_model="numpy", inline="always")
def _block_width(count: int) -> int:
    """Rows of a block, a multiple of four: small batches are not filled up with copies."""
    return min(_ROWS, count + (-count) % 4)


@njit(cache=True, error_model="numpy")
def _load(fields: F8, means: F8, first: int, step: float, theta: F8, q: F8, active: F8) -> int:
    """Copy a block of rows, units first; places beyond the last row repeat it and do not move."""
    wide = q.shape[1]
    here: int = min(wide, len(means) - first)
    for r in range(wide):
        source = first + min(r, here - 1)
        active[r] = step if r < here else 0.0
        for i in range(len(q)):
            q[i, r] = means[source, i]
            theta[i, r] = fields[source, i]
    return here


@njit(cache=True, error_model="numpy")
def _move(fresh: F8, active: F8, mine: F8, change: F8) -> None:
    """Move the means of one unit towards `fresh`."""
    for r in range(len(mine)):
        change[r] = max(change[r], abs(fresh[r] - mine[r]))
        mine[r] = (1.0 - active[r]) * mine[r] + active[r] * fresh[r]


@njit(cache=True, error_model="numpy")
def _still_running(
    change: F8, tol: float, done: int, here: int, active: F8, sweeps: I8, changes: F8
) -> bool:
    """Stop the rows that no longer move; answers whether any is left."""
    running = False
    for r in range(here):
        if active[r] > 0.0:
            sweeps[r] = done
            changes[r] = change[r]
            if change[r] <= tol:
                active[r] = 0.0
            else:
                running = True
    return running


@njit(cache=True, error_model="numpy")
def sweep_means(
    tap: bool,
    weights: F8,
    fields: F8,
    means: F8,
    pace: tuple[float, float, int],
    sweeps: I8,
    changes: F8,
) -> None:
    """Sequential sweeps of all rows of `means` in place, until no mean of a row would move by more
    than `tol`, or `most` sweeps. `step` is the part of each move that is made (1 - damping);
    `pace` holds the three.
    """
    step, tol, most = pace
    count, n = means.shape
    wide = _block_width(count)
    q, theta, spread = np.empty((n, wide)), np.empty((n, wide)), np.empty((n, wide))
    targets, field, fresh = np.empty((n, wide)), np.empty(wide), np.empty(wide)
    bend, change, active = np.empty(wide), np.empty(wide), np.empty(wide)
    zeros, moves = np.zeros(wide), np.empty(wide)
    squares = weights * weights if tap else weights
    for first in range(0, count, wide):
        here = _load(fields, means, first, step, theta, q, active)
        for i in range(n):
            for r in range(wide):
                targets[i, r] = theta[i, r]
                spread[i, r] = q[i, r] * (1.0 - q[i, r])
        for sweep in range(most):
            change[:] = 0.0
            for i in range(n):
                _linear_field(weights[i], theta[i], q, field)
                if tap:
                    _linear_field(squares[i], zeros, spread, bend)
                    _tap_target(field, bend, targets[i], moves)
                    _logistic(targets[i], fresh)
                else:
                    _logistic(field, fresh)
                _move(fresh, active, q[i], change)
                if tap:
                    for r in range(wide):
                        spread[i, r] = q[i, r] * (1.0 - q[i, r])
            if not _still_running(
                change, tol, sweep + 1, here, active, sweeps[first:], changes[first:]
            ):
                break
        for r in range(here):
            for i in range(n):
                means[first + r, i] = q[i, r]


@njit(cache=True, error_model="numpy")
def sweep_bethe_means(
    weights: F8, fields: F8, means: F8, pace: tuple[float, float, int], sweeps: I8, changes: F8
) -> None:
    """As `sweep_means`, for the Bethe energy."""
    step, tol, most = pace
    count, n = means.shape
    wide = _block_width(count)
    q, theta, room = np.empty((n, wide)), np.empty((n, wide)), np.empty((7, wide))
    target, fresh = np.empty(wide), np.empty(wide)
    change, active = np.empty(wide), np.empty(wide)
    odds, steepest = np.exp(weights), np.ones(n)
    for i in range(n):
        for j in range(n):
            steepest[i] += np.sinh(0.25 * weights[i, j]) ** 2
    for first in range(0, count, wide):
        here = _load(fields, means, first, step, theta, q, active)
        for sweep in range(most):
            change[:] = 0.0
            for i in range(n):
                _bethe_target(i, weights[i], odds[i], steepest[i], theta[i], q, target, room)
                _logistic(target, fresh)
                _move(fresh, active, q[i], change)
            if not _still_running(
                change, tol, sweep + 1, here, active, sweeps[first:], changes[first:]
            ):
                break
        for r in range(here):
            for i in range(n):
                means[first + r, i] = q[i, r]


@njit(cache=True, error_model="numpy")
def bethe_parts(weights: F8, means: F8, values: F8, pairs: F8) -> None:
    """Of each row, sum_{i<j} (-w xi + sum p ln (p / (q_i q_j))) over the four states of each pair;
    and the sums over rows of xi = P(both on) in `pairs`.
    """
    count, n = means.shape
    for i in range(n):
        for j in range(i):
            w = weights[i, j]
            total = 0.0
            up, a = np.exp(w), np.expm1(w)
            for r in range(count):
                x, y = means[r, i], means[r, j]
                if w == 0.0:
                    total += x * y
                    continue
                plain_both, plain_none, plain_mine = _sums(x, y, up)
                root = _root(x, y, a, up, plain_both)
                # each entry over the product of its means, by the nearer of two equal forms
                both = _ratio(plain_both, root, up, -4.0 * a * up * x * y)
                none = _ratio(plain_none, root, up, -4.0 * a * up * (1.0 - x) * (1.0 - y))
                mine = _ratio(plain_mine, root, 1.0, 4.0 * a * x * (1.0 - y))
                other = _ratio(_sums(y, x, up)[2], root, 1.0, 4.0 * a * y * (1.0 - x))
                xi = both * x * y
                total += xi
                part = -w * xi
                if xi > 0.0:
                    part += xi * np.log(both)
                if x < 1.0 and y < 1.0:
                    part += none * (1.0 - x) * (1.0 - y) * np.log(none)
                if x > 0.0 and y < 1.0:
                    part += mine * x * (1.0 - y) * np.log(mine)
                if x < 1.0 and y > 0.0:
                    part += other * (1.0 - x) * y * np.log(other)
                values[r] += part
            pairs[i, j] = total
            pairs[j, i] = total


@njit(cache=True, error_model="numpy", inline="always")
def _ratio(plain: float, root: float, factor: float, product: float) -> float:
    """2 factor / (plain + root), by product / (root - plain) where that sum would cancel."""
    below = plain + root if plain > 0.0 else product / (root - plain)
    return 2.0 * factor / below
