"""Loops of two-layer noisy-or networks: exact sums over sets of findings, and Gibbs sweeps.

Findings that are summed exactly have a bit each. Causes are taken in one after the other; entry S
of a vector is the probability that exactly the findings of S are on so far. All numbers are
positive, so that nothing cancels, as it does where inclusion and exclusion alternate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kikuchi.beliefnets.kernels.states import uniform
from kikuchi.core.arrays import U8, Array, Ints
from kikuchi.core.compiled import njit
from kikuchi.core.copying import copy_into


class CauseEdges(NamedTuple):
    """Edges of cause j, first[j] to first[j + 1]: their findings and weights."""

    first: Ints
    findings: Ints
    weights: Array


@njit(cache=True, error_model="numpy")
def log_all_on(
    leaks: Array, off: Array, on: Array, first: Ints, bits: Ints, weights: Array
) -> float:
    """log P(all findings on), with causes that weigh e^off when absent and e^on when present.

    `leaks` are those of the findings; edges of cause j are first[j] to first[j + 1].
    """
    n = len(leaks)
    size = 1 << n
    current, active = np.zeros(size), np.empty(size)
    current[0] = 1.0
    for i in range(n):
        _fire(current, i, leaks[i])
    total = 0.0
    for j in range(len(off)):
        top = max(off[j], on[j])
        absent, present = np.exp(off[j] - top), np.exp(on[j] - top)
        total += top
        copy_into(active, 0, current, 0, size)
        for e in range(first[j], first[j + 1]):
            _fire(active, bits[e], weights[e])
        largest = 0.0
        for s in range(size):
            value = absent * current[s] + present * active[s]
            current[s] = value
            largest = max(largest, value)
        if largest < 1e-100:
            for s in range(size):
                current[s] /= largest
            total += np.log(largest)
    return float(total + np.log(current[size - 1]))


@njit(cache=True, error_model="numpy")
def _fire(vector: Array, bit: int, strength: float) -> None:
    """One finding is turned on with probability 1 - e^-strength, if it is not on already."""
    mask = 1 << bit
    stay = np.exp(-strength)
    for s in range(len(vector)):
        if not s & mask:
            vector[s | mask] += vector[s] * (1.0 - stay)
            vector[s] *= stay


@njit(cache=True, error_model="numpy")
def gibbs_causes(
    leaks: Array, odds: Array, edges: CauseEdges, state: Array, sweeps: int, words: U8, means: Array
) -> None:
    """Sweeps over the causes with positive findings clamped; adds the probabilities to `means`.

    `odds` are the log-odds of the causes, what negative findings say included.
    """
    first, findings, weights = edges
    inputs = leaks.copy()
    for j in range(len(odds)):
        if state[j] > 0.0:
            for e in range(first[j], first[j + 1]):
                inputs[findings[e]] += weights[e]
    for _ in range(sweeps):
        for j in range(len(odds)):
            log_odds = odds[j]
            for e in range(first[j], first[j + 1]):
                i = findings[e]
                without = max(inputs[i] - state[j] * weights[e], leaks[i])
                log_odds += np.log(-np.expm1(-(without + weights[e])))
                log_odds -= np.log(max(-np.expm1(-without), 1e-300))
            p = 1.0 / (1.0 + np.exp(-log_odds))
            means[j] += p
            new = 1.0 if uniform(words, 0) < p else 0.0
            if new != state[j]:
                for e in range(first[j], first[j + 1]):
                    inputs[findings[e]] += (new - state[j]) * weights[e]
                state[j] = new
