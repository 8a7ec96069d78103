"""Compiled scanner for large files: numbers straight from bytes, correctly rounded.

Numba is imported only with this module, and this module only for large files (see `tokens`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

from kikuchi.graphs.formats import _walk
from kikuchi.graphs.formats.kinds import BAD, HARD, INTEGER, REAL

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """`numba.njit` with the options of this project, for the eyes of a type checker."""
    return cast(F, njit(cache=True, error_model="numpy")(function))


scopes = compiled(_walk.scopes)
block_starts = compiled(_walk.block_starts)

# ---------------------------------------------------------------------- powers of ten

MIN_POWER, MAX_POWER = -342, 308


def _power_tables() -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int64]]:
    """10**q = (high * 2**64 + low + e) * 2**exponent, 0 <= e < 1, with the top bit of high set."""
    high, low, exponents = [], [], []
    for q in range(MIN_POWER, MAX_POWER + 1):
        # 400 guard bits: far more than 128 for every power, so that the quotient is a true floor.
        scaled = 10**q << 400 if q >= 0 else (1 << 1600) // 10**-q
        shift = scaled.bit_length() - 128
        word = scaled >> shift
        high.append(word >> 64)
        low.append(word & (2**64 - 1))
        exponents.append(shift - (400 if q >= 0 else 1600))
    return (
        np.array(high, dtype=np.uint64),
        np.array(low, dtype=np.uint64),
        np.array(exponents, dtype=np.int64),
    )


POWER_HIGH, POWER_LOW, POWER_EXPONENT = _power_tables()
EXACT_POWERS = np.array([10.0**k for k in range(23)])

# Numba turns uint64 with int64 into float64, so every constant of the arithmetic is unsigned.
_0, _1, _10, _11, _32, _52 = (np.uint64(k) for k in (0, 1, 10, 11, 32, 52))
_LOW_HALF = np.uint64(2**32 - 1)
_ALL_ONES = np.uint64(2**64 - 1)
_TOP_BIT = np.uint64(2**63)
_FRACTION = np.uint64(2**52 - 1)
_TWO_52 = np.uint64(2**52)
_TWO_53 = np.uint64(2**53)
_NINETEEN_DIGITS = 19  # the most that fit in 64 bits whatever they are
_FAR = 100_000  # larger exponents are left to Python's own float


@compiled
def _product_high(a: np.uint64, b: np.uint64) -> np.uint64:
    """The upper 64 bits of a * b."""
    a0, a1 = a & _LOW_HALF, a >> _32
    b0, b1 = b & _LOW_HALF, b >> _32
    middle = a1 * b0 + (a0 * b0 >> _32)
    other = a0 * b1 + (middle & _LOW_HALF)
    return a1 * b1 + (middle >> _32) + (other >> _32)


@compiled
def nearest_double(
    digits: np.uint64,
    power: int,
    high: NDArray[np.uint64],
    low: NDArray[np.uint64],
    exponents: NDArray[np.int64],
) -> np.uint64:
    """Bits of the double nearest to digits * 10**power; 0 where this cannot decide.

    `digits` (not 0), shifted until its top bit is set, times the 128-bit power gives 128 bits C of
    which the true product lies in [C, C + 2): one unit is lost with the low part of the product and
    less than one with the power. The rounding to 53 bits is certain unless half a unit of the 53rd
    bit lies in that interval. Then, and outside the normal doubles, the answer is 0.
    """
    if power < MIN_POWER or power > MAX_POWER:
        return _0
    shifted = digits
    shift = 0
    while shifted & _TOP_BIT == _0:
        shifted = shifted << _1
        shift += 1
    row = np.intp(power - MIN_POWER)
    top = _product_high(shifted, high[row])
    bottom = shifted * high[row]
    carry = _product_high(shifted, low[row])
    bottom += carry
    if bottom < carry:
        top += _1
    dropped = _11 if top & _TOP_BIT != _0 else _10
    half = _1 << (dropped - _1)
    rest = top & ((half << _1) - _1)
    if (rest == half and bottom == _0) or (rest == half - _1 and bottom == _ALL_ONES):
        return _0
    mantissa = top >> dropped
    exponent = exponents[row] + 128 + np.int64(dropped) - shift
    if rest >= half:
        mantissa += _1
        if mantissa == _TWO_53:
            mantissa = _TWO_52
            exponent += 1
    biased = exponent + 52 + 1023
    if biased < 1 or biased > 2046:
        return _0
    return (np.uint64(biased) << _52) | (mantissa & _FRACTION)


# ---------------------------------------------------------------------- tokens


@compiled
def _is_space(byte: Any) -> Any:
    return byte == 32 or (byte >= 9 and byte <= 13)


@compiled
def _is_digit(byte: Any) -> Any:
    return byte >= 48 and byte <= 57


@compiled
def count_tokens(text: NDArray[np.uint8]) -> int:
    """Number of runs of bytes that are not white space."""
    count = 0
    inside = False
    for k in range(len(text)):
        filled = not _is_space(text[k])
        if filled and not inside:
            count += 1
        inside = filled
    return count


@compiled
def scan(
    text: NDArray[np.uint8],
    values: NDArray[np.float64],
    bits: NDArray[np.uint64],
    kinds: NDArray[np.uint8],
    high: NDArray[np.uint64],
    low: NDArray[np.uint64],
    exponents: NDArray[np.int64],
    exact: NDArray[np.float64],
) -> int:
    """Value and kind of every token; `bits` is the same memory as `values`.

    Tokens that `nearest_double` cannot decide get the kind HARD; answers how many there are.
    """
    size = np.uintp(len(text))
    place = _0
    hard = 0
    for token in range(len(values)):
        while _is_space(text[place]):
            place += _1
        negative = False
        plain = True
        if text[place] == 43 or text[place] == 45:  # + -
            negative = text[place] == 45
            plain = False
            place += _1
        digits = _0
        seen = 0  # digits of any kind
        kept = 0  # significant digits in `digits`
        power = 0
        cut = False  # a digit that is not 0 was left out
        while place < size and _is_digit(text[place]):
            digit = np.uint64(text[place]) - np.uint64(48)
            if kept < _NINETEEN_DIGITS:
                digits = digits * _10 + digit
                if digits != _0:
                    kept += 1
            else:
                power += 1
                cut = cut or digit != _0
            seen += 1
            place += _1
        if place < size and text[place] == 46:  # .
            plain = False
            place += _1
            while place < size and _is_digit(text[place]):
                digit = np.uint64(text[place]) - np.uint64(48)
                if kept < _NINETEEN_DIGITS:
                    digits = digits * _10 + digit
                    power -= 1
                    if digits != _0:
                        kept += 1
                else:
                    cut = cut or digit != _0
                seen += 1
                place += _1
        good = seen > 0
        if good and place < size and (text[place] == 101 or text[place] == 69):  # e E
            plain = False
            place += _1
            below = False
            if place < size and (text[place] == 43 or text[place] == 45):
                below = text[place] == 45
                place += _1
            good = False
            written = 0
            while place < size and _is_digit(text[place]):
                good = True
                if written < _FAR:
                    written = written * 10 + int(text[place]) - 48
                place += _1
            if written >= _FAR:
                power = 0  # not counted to the end: leave the token to Python
                written = _FAR
            power += -written if below else written
        if place < size and not _is_space(text[place]):
            good = False
            while place < size and not _is_space(text[place]):
                place += _1
        if not good:
            values[token] = np.nan
            kinds[token] = BAD
            continue
        kinds[token] = INTEGER if plain else REAL
        if digits == _0:
            values[token] = -0.0 if negative else 0.0
        elif not cut and digits <= _TWO_53 and power >= -22 and power <= 22:
            size_of = np.float64(digits)
            size_of = size_of * exact[power] if power >= 0 else size_of / exact[-power]
            values[token] = -size_of if negative else size_of
        else:
            found = nearest_double(digits, power, high, low, exponents)
            if cut and found != nearest_double(digits + _1, power, high, low, exponents):
                found = _0
            if found == _0:
                kinds[token] = HARD
                hard += 1
            bits[token] = found | _TOP_BIT if negative else found
    return hard


@compiled
def spans_of_kind(
    text: NDArray[np.uint8],
    kinds: NDArray[np.uint8],
    kind: int,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> None:
    """Where the tokens of one kind begin and end in the bytes."""
    size = len(text)
    place = 0
    found = 0
    for token in range(len(kinds)):
        while _is_space(text[place]):
            place += 1
        start = place
        while place < size and not _is_space(text[place]):
            place += 1
        if kinds[token] == kind:
            starts[found] = start
            ends[found] = place
            found += 1
