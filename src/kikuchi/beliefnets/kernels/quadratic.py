"""Coordinate ascent of mean field in layered sigmoid networks, with the quadratic local bound.

    log(1 + e^z) <= lambda (z^2 - e^2) + (z - e) / 2 + log(1 + e^e),   lambda = tanh(e / 2) / (4 e),

for every e. Its expectation needs the mean and the variance of z only, so that a sweep costs what a
few matrix products cost, without a transcendental function per edge. With lambda held the bound is
linear in every single mean: each is set to its exact optimum.
"""

from __future__ import annotations

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.compiled import njit

_FAST = {"reassoc", "contract", "nsz"}  # sums may be taken in any order


@njit(cache=True, error_model="numpy", fastmath=_FAST)
def _step_and_pull(before: Array, step: float, weights: Array, rest: Array, curves: Array) -> float:
    """Take a step of the unit before, and give sum_i w_i rest_i of this one, in a single pass."""
    pull = 0.0
    for i in range(len(weights)):
        value = rest[i] - step * (curves[i] * before[i])
        rest[i] = value
        pull += weights[i] * value
    return pull


@njit(cache=True, error_model="numpy", fastmath=_FAST)
def sweep_layer(
    weights: Array, free: Array, above: Array, inputs: Array, below: Array, below_inputs: Array,
    curves: Array, bends: Array, repeats: int, changes: Array,
) -> None:  # fmt: skip
    """Every free unit of a layer `repeats` times, row by row; `weights` is (above, below).

    `above` and `below` are means, `inputs` and `below_inputs` are <z>, `curves` lambda of the layer
    below, `bends` sum_i lambda_i w_i^2 of each unit above; `changes` becomes at least the largest
    change of a mean in the last round, by row.
    """
    n_above, n_below = weights.shape
    rest, nothing = np.empty(n_below), np.zeros(n_below)
    for r in range(len(above)):
        for i in range(n_below):
            rest[i] = below[r, i] - 0.5 - 2.0 * curves[r, i] * below_inputs[r, i]
        step, before, largest = 0.0, nothing, 0.0
        for _ in range(repeats):
            largest = 0.0
            for k in range(n_above):
                if free[k] > 0.0:
                    pull = _step_and_pull(before, 2.0 * step, weights[k], rest, curves[r])
                    was = above[r, k]
                    field = inputs[r, k] + pull + bends[r, k] * (2.0 * was - 1.0)
                    above[r, k] = 1.0 / (1.0 + np.exp(-field))
                    step, before = above[r, k] - was, weights[k]
                    largest = max(largest, abs(step))
        changes[r] = max(changes[r], largest)
        _step_and_pull(before, 2.0 * step, nothing, rest, curves[r])
        for i in range(n_below):
            below_inputs[r, i] = (below[r, i] - 0.5 - rest[i]) / (2.0 * curves[r, i])


@njit(cache=True, error_model="numpy")
def set_curves(inputs: Array, variances: Array, curves: Array) -> None:
    """lambda at its optimum, e^2 = <z^2>."""
    for r in range(inputs.shape[0]):
        for i in range(inputs.shape[1]):
            e = np.sqrt(inputs[r, i] * inputs[r, i] + variances[r, i])
            if e < 1e-4:
                curves[r, i] = 0.125
            else:
                t = np.exp(-e)
                curves[r, i] = (1.0 - t) / (1.0 + t) / (4.0 * e)


@njit(cache=True, error_model="numpy")
def set_free(inputs: Array, free: Ints, means: Array, changes: Array) -> None:
    """Units without children follow their parents."""
    for r in range(inputs.shape[0]):
        for k in range(inputs.shape[1]):
            if free[k] > 0.0:
                new = 1.0 / (1.0 + np.exp(-inputs[r, k]))
                changes[r] = max(changes[r], abs(new - means[r, k]))
                means[r, k] = new
