"""Loops over states of sigmoid networks: enumeration in Gray order, Gibbs sweeps, statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kikuchi.core.arrays import U4, U8, Array
from kikuchi.core.compiled import njit
from kikuchi.core.copying import copy_into

if TYPE_CHECKING:
    from kikuchi.beliefnets.models import Edges

_U = np.uint64
_LEAST_GAIN = 1e-11  # nats that a step in xi must promise


@njit(cache=True, error_model="numpy")
def softplus(z: float) -> float:
    """log(1 + e^z)."""
    return float(max(z, 0.0) + np.log1p(np.exp(-abs(z))))


@njit(cache=True, error_model="numpy")
def xi_step(
    xi: float, low: float, high: float, mean_input: float,
    tilts: tuple[float, float, float, float, float, float],
) -> tuple[float, float, float, bool]:  # fmt: skip
    """One Newton step of xi <z> + log(A + B) in a bracket: xi, the bracket, and whether to stop.

    `tilts` are log A and log B, and mean and variance of z under both. A step is taken only if it
    promises a gain; one that leaves the bracket becomes a bisection.
    """
    log_a, log_b, mean_a, mean_b, var_a, var_b = tilts
    share = 1.0 / (1.0 + np.exp(log_a - log_b))
    mean = (1.0 - share) * mean_a + share * mean_b
    slope = mean_input - mean
    curve = (1.0 - share) * (var_a + mean_a**2) + share * (var_b + mean_b**2) - mean**2
    if slope * slope <= 2.0 * _LEAST_GAIN * curve or high - low < 1e-15:
        return xi, low, high, True
    if slope > 0.0:
        high = xi
    else:
        low = xi
    moved = xi - slope / curve if curve > 0.0 else 0.5 * (low + high)
    return moved if low < moved < high else 0.5 * (low + high), low, high, False


@njit(cache=True, error_model="numpy")
def set_inputs(net: Edges, state: Array, inputs: Array) -> None:
    """z of every unit, or <z> if the states are means."""
    copy_into(inputs, 0, net.bias, 0, len(inputs))
    for e in range(len(net.weights)):
        inputs[net.heads[e]] += net.weights[e] * state[net.tails[e]]


@njit(cache=True, error_model="numpy")
def log_odds(net: Edges, unit: int, state: Array, inputs: Array, share: Array) -> float:
    """log P(s = 1 | rest) / P(s = 0 | rest); `share` tempers the term of each unit."""
    odds = share[unit] * inputs[unit]
    for e in range(net.first[unit], net.first[unit + 1]):
        i, w = net.heads[e], net.weights[e]
        without = inputs[i] - w * state[unit]
        odds += share[i] * (w * state[i] - softplus(without + w) + softplus(without))
    return float(odds)


@njit(cache=True, error_model="numpy")
def flip(net: Edges, unit: int, new: float, state: Array, inputs: Array) -> None:
    """Give a unit another state."""
    step = new - state[unit]
    if step != 0.0:
        state[unit] = new
        for e in range(net.first[unit], net.first[unit + 1]):
            inputs[net.heads[e]] += net.weights[e] * step


@njit(cache=True, error_model="numpy")
def log_joints(net: Edges, free: U4, state: Array, out: Array) -> None:
    """log P of the 2^F states of the free units; bit f of the index is the state of free[f]."""
    inputs = np.empty(len(state))
    n = len(free)
    for f in range(n):
        state[free[f]] = 0.0
    set_inputs(net, state, inputs)
    total = 0.0
    for i in range(len(state)):
        total += state[i] * inputs[i] - softplus(inputs[i])
    out[0] = total
    ones = np.ones(len(state))
    index = 0
    for step in range(1, 1 << n):
        f = 0
        while not (step >> f) & 1:
            f += 1
        unit = free[f]
        odds = log_odds(net, unit, state, inputs, ones)
        if state[unit] == 0.0:
            total += odds
            flip(net, unit, 1.0, state, inputs)
        else:
            total -= odds
            flip(net, unit, 0.0, state, inputs)
        index ^= 1 << f
        out[index] = total


@njit(cache=True, error_model="numpy")
def add_expected_gradient(
    net: Edges, free: U4, state: Array, probabilities: Array, to_weights: Array, to_bias: Array
) -> None:
    """Add E[(s_i - sigmoid(z_i)) s_j] over the states of the free units, and of the biases."""
    inputs = np.empty(len(state))
    for index in range(len(probabilities)):
        p = probabilities[index]
        if p > 0.0:
            for f in range(len(free)):
                state[free[f]] = (index >> f) & 1
            set_inputs(net, state, inputs)
            add_state_gradient(net, state, inputs, p, to_weights, to_bias)


@njit(cache=True, error_model="numpy")
def add_state_gradient(
    net: Edges, state: Array, inputs: Array, share: float, to_weights: Array, to_bias: Array
) -> None:
    """Add share times the gradient of log P at one state."""
    for i in range(len(state)):
        inputs[i] = share * (state[i] - 1.0 / (1.0 + np.exp(-inputs[i])))
        to_bias[i] += inputs[i]
    for e in range(len(net.weights)):
        if state[net.tails[e]] != 0.0:
            to_weights[e] += inputs[net.heads[e]] * state[net.tails[e]]


@njit(cache=True, error_model="numpy")
def uniform(words: U8, chain: int) -> float:
    """The next number on (0, 1) of a chain (xorshift64*)."""
    x = words[chain]
    x ^= x >> _U(12)
    x ^= x << _U(25)
    x ^= x >> _U(27)
    words[chain] = x
    return float(((x * _U(2685821657736338717)) >> _U(11)) * (1.0 / 9007199254740992.0))


@njit(cache=True, error_model="numpy")
def gibbs_sweeps(
    net: Edges, free: U4, states: Array, share: Array, sweeps: int, words: U8, means: Array
) -> None:
    """Sweeps over the free units of every chain in turn; adds the probabilities to `means`.

    Adding the conditional probabilities in place of the states lowers the variance of the means.
    """
    inputs = np.empty(states.shape[1])
    for r in range(len(states)):
        state = states[r]
        set_inputs(net, state, inputs)
        for _ in range(sweeps):
            for f in range(len(free)):
                unit = free[f]
                on = 1.0 / (1.0 + np.exp(-log_odds(net, unit, state, inputs, share)))
                means[r, unit] += on
                flip(net, unit, 1.0 if uniform(words, r) < on else 0.0, state, inputs)


@njit(cache=True, error_model="numpy")
def add_states_gradient(net: Edges, states: Array, to_weights: Array, to_bias: Array) -> None:
    """Add the gradient of log P at every state."""
    inputs = np.empty(states.shape[1])
    for r in range(len(states)):
        set_inputs(net, states[r], inputs)
        add_state_gradient(net, states[r], inputs, 1.0, to_weights, to_bias)
