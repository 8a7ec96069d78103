"""One step of stochastic ascent over flat arrays: decay, momentum, step and size check."""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import overload

from kikuchi.core.compiled import njit

# Numba compiles an overload only if its signature has no annotations.


def _bits(x):
    """Return an integer with the same order as |x|, largest for NaN."""
    raise NotImplementedError


@overload(_bits, inline="always")
def _bits_impl(x):
    if x == types.float32:
        return lambda x: np.float32(abs(x)).view(np.int32)
    return lambda x: np.float64(abs(x)).view(np.int64)


def _number(bits):
    """Return the number encoded by `_bits`."""
    raise NotImplementedError


@overload(_number, inline="always")
def _number_impl(bits):
    if bits == types.int32:
        return lambda bits: np.float64(np.int32(bits).view(np.float32))
    return lambda bits: np.int64(bits).view(np.float64)


@njit(cache=True, error_model="numpy")
def ascend(weights, ascent, rate, decay):
    """Do weights += rate * (ascent - decay * weights); return the largest |weight|.

    The result is not finite if any weight is not.
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

    Returns the same as `ascend`.
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
    """Like `ascend_with_momentum`, with the step of Nesterov: the velocity that the next step would
    have with the same gradient.
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
