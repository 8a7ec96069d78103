"""Coordinate ascent of mean field in layered sigmoid networks, with the quadratic local bound.

    log(1 + e^z) <= lambda (z^2 - e^2) + (z - e) / 2 + log(1 + e^e),   lambda = tanh(e / 2) / (4 e),

for every e. Its expectation needs the mean and the variance of z only, so that a sweep costs what a
few matrix products cost, without a transcendental function per edge. With lambda held the bound is
linear in every single mean: each is set to its exact optimum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kikuchi.core.arrays import U4, Array
from kikuchi.core.compiled import njit

_FAST = {"reassoc", "contract", "nsz"}  # sums may be taken in any order


class LayerPair(NamedTuple):
    """By row: means of a layer and <z> of it, the same of the layer below, whose lambda are
    `curves`, and sum_i lambda_i w_i^2 of each unit above.
    """

    above: Array
    inputs: Array
    below: Array
    below_inputs: Array
    curves: Array
    bends: Array


@njit(cache=True, error_model="numpy", fastmath=_FAST)
def _steps_and_pulls(
    a: Array, b: Array, step_a: float, step_b: float, p: Array, q: Array, rest: Array,
    curves: Array,
) -> tuple[float, float, float]:  # fmt: skip
    """Take the steps of two units with weights a and b, and give sum_i w_i rest_i of the next two,
    with weights p and q, and sum_i p_i curves_i q_i, in a single pass.
    """
    pull_p, pull_q, both = 0.0, 0.0, 0.0
    for i in range(len(rest)):
        value = rest[i] - curves[i] * (step_a * a[i] + step_b * b[i])
        rest[i] = value
        pull_p += p[i] * value
        pull_q += q[i] * value
        both += p[i] * curves[i] * q[i]
    return pull_p, pull_q, both


@njit(cache=True, error_model="numpy", fastmath=_FAST)
def sweep_layer(weights: Array, units: U4, layers: LayerPair, repeats: int, changes: Array) -> None:
    """The free `units` of a layer `repeats` times, row by row; `weights` is (above, below).

    `changes` becomes at least the largest change of a mean in the last round, by row. Units are
    taken two by two, so that the layer below is read half as often: the second one sees the step
    of the first through their common children.
    """
    above, inputs, below, below_inputs, curves, bends = layers
    n_below = weights.shape[1]
    rest, nothing = np.empty(n_below), np.zeros(n_below)
    for r in range(len(above)):
        for i in range(n_below):
            rest[i] = below[r, i] - 0.5 - 2.0 * curves[r, i] * below_inputs[r, i]
        step_a, step_b, a, b, largest = 0.0, 0.0, nothing, nothing, 0.0
        for _ in range(repeats):
            largest = 0.0
            for k in range(0, len(units), 2):
                single = k + 1 == len(units)
                one, two = units[k], units[k if single else k + 1]
                p, q = weights[one], nothing if single else weights[two]
                pull, other, both = _steps_and_pulls(
                    a, b, 2.0 * step_a, 2.0 * step_b, p, q, rest, curves[r]
                )
                step_a, step_b, a, b = 0.0, 0.0, p, q
                was = above[r, one]
                field = inputs[r, one] + pull + bends[r, one] * (2.0 * was - 1.0)
                above[r, one] = 1.0 / (1.0 + np.exp(-field))
                step_a = above[r, one] - was
                largest = max(largest, abs(step_a))
                if not single:
                    was = above[r, two]
                    pull = other - 2.0 * step_a * both
                    field = inputs[r, two] + pull + bends[r, two] * (2.0 * was - 1.0)
                    above[r, two] = 1.0 / (1.0 + np.exp(-field))
                    step_b = above[r, two] - was
                    largest = max(largest, abs(step_b))
        changes[r] = max(changes[r], largest)
        _steps_and_pulls(a, b, 2.0 * step_a, 2.0 * step_b, nothing, nothing, rest, curves[r])
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
def set_free(inputs: Array, units: U4, means: Array, changes: Array) -> None:
    """Units without children follow their parents."""
    for r in range(inputs.shape[0]):
        for k in units:
            new = 1.0 / (1.0 + np.exp(-inputs[r, k]))
            changes[r] = max(changes[r], abs(new - means[r, k]))
            means[r, k] = new
