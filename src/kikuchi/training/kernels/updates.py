"""One step of stochastic ascent over flat arrays: decay, momentum, step and a look at the size."""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import overload

from kikuchi.core.compiled import njit

# Numba compiles an overload only if its signature carries no annotations.


def _bits(x):
    """The size of x as a whole number in the same order; greatest for what is not a number."""
    raise NotImplementedError


@overload(_bits, inline="always")
def _bits_impl(x):
    if x == types.float32:
        return lambda x: np.float32(abs(x)).view(np.int32)
    return lambda x: np.float64(abs(x)).view(np.int64)


def _number(bits):
    """The number that `_bits` came from."""
    raise NotImplementedError


@overload(_number, inline="always")
def _number_impl(bits):
    if bits == types.int32:
        return lambda bits: np.float64(np.int32(bits).view(np.float32))
    return lambda bits: np.int64(bits).view(np.float64)


@njit(cache=True, error_model="numpy")
def ascend(weights, ascent, rate, decay):
    """weights += rate * (ascent - decay * weights); answers the largest size of a weight.

    The answer is not finite if any weight is not.
    """
    largest = _bits(rate - rate)
    for i in range(len(weights)):
        x = weights[i] + rate * (ascent[i] - decay * weights[i])
        weights[i] = x
        largest = max(largest, _bits(x))
    return _number(largest)


@njit(cache=True, error_model="numpy")
def ascend_with_momentum(weights, velocity, ascent, rate, momentum, decay):
    """velocity = momentum * velocity + ascent - decay * weights; weights += rate * velocity.

    Answers as `ascend` does.
    """
    largest = _bits(rate - rate)
    for i in range(len(weights)):
        moved = momentum * velocity[i] + (ascent[i] - decay * weights[i])
        velocity[i] = moved
        x = weights[i] + rate * moved
        weights[i] = x
        largest = max(largest, _bits(x))
    return _number(largest)


@njit(cache=True, error_model="numpy")
def ascend_looking_ahead(weights, velocity, ascent, rate, momentum, decay):
    """As `ascend_with_momentum`, with the step of Nesterov: the velocity that the next step would
    have if the gradient stayed as it is.
    """
    largest = _bits(rate - rate)
    for i in range(len(weights)):
        gradient = ascent[i] - decay * weights[i]
        moved = momentum * velocity[i] + gradient
        velocity[i] = moved
        x = weights[i] + rate * (momentum * moved + gradient)
        weights[i] = x
        largest = max(largest, _bits(x))
    return _number(largest)
