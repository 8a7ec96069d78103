"""An exponential that processors take several of at once, in single and double precision."""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import overload

_LOG2E, _LN2_HIGH, _LN2_LOW = 1.4426950408889634, 0.693145751953125, 1.4286068203094172e-06


def exp_negative(x):
    """exp(x) for x <= 0."""
    raise NotImplementedError


@overload(exp_negative, inline="always")
def _exp_negative_impl(x):
    if x == types.float32:

        def single(x):
            y = max(x, np.float32(-87.0))
            t = y * np.float32(_LOG2E) + np.float32(12582912.0)  # 1.5 * 2**23: rounds
            n = t - np.float32(12582912.0)
            r = (y - n * np.float32(_LN2_HIGH)) - n * np.float32(_LN2_LOW)
            p = np.float32(1 / 720) * r + np.float32(1 / 120)
            p = p * r + np.float32(1 / 24)
            p = p * r + np.float32(1 / 6)
            p = p * r + np.float32(0.5)
            p = p * r + np.float32(1.0)
            p = p * r + np.float32(1.0)
            power = np.int32(np.int32(n) + np.int32(127)) << np.int32(23)
            return p * np.int32(power).view(np.float32)

        return single

    def double(x):
        y = max(x, -708.0)
        t = y * _LOG2E + 6755399441055744.0  # 1.5 * 2**52: rounds, and holds n in its last bits
        n = t - 6755399441055744.0
        r = (y - n * _LN2_HIGH) - n * _LN2_LOW
        p = r * (1 / 479001600) + 1 / 39916800
        p = p * r + 1 / 3628800
        p = p * r + 1 / 362880
        p = p * r + 1 / 40320
        p = p * r + 1 / 5040
        p = p * r + 1 / 720
        p = p * r + 1 / 120
        p = p * r + 1 / 24
        p = p * r + 1 / 6
        p = p * r + 0.5
        p = p * r + 1.0
        p = p * r + 1.0
        power = (np.float64(t).view(np.int64) + np.int64(1023)) << np.int64(52)
        return p * np.int64(power).view(np.float64)

    return double


# ---------------------------------------------------------------------- random numbers
