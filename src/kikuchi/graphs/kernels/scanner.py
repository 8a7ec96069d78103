"""Compiled scanner for large files: numbers straight from bytes, correctly rounded.

Only this module imports Numba, and it is imported only for large files (see `tokens`).
"""

from __future__ import annotations

import numpy as np

from kikuchi.core.compiled import njit
from kikuchi.graphs.formats import count_walks
from kikuchi.graphs.formats.kinds import BAD, HARD, INTEGER, REAL

scopes = njit(cache=True, error_model="numpy")(count_walks.scopes)
block_starts = njit(cache=True, error_model="numpy")(count_walks.block_starts)

# ---------------------------------------------------------------------- powers of ten

MIN_POWER, MAX_POWER = -342, 308


def _power_tables():
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
_NINETEEN_DIGITS = 19  # the number of digits that always fit into 64 bits
_FAR = 100_000  # larger exponents are left to Python's own float


@njit(cache=True, error_model="numpy")
def _product_high(a, b):
    """The upper 64 bits of a * b."""
    a0, a1 = a & _LOW_HALF, a >> _32
    b0, b1 = b & _LOW_HALF, b >> _32
    middle = a1 * b0 + (a0 * b0 >> _32)
    other = a0 * b1 + (middle & _LOW_HALF)
    return a1 * b1 + (middle >> _32) + (other >> _32)


@njit(cache=True, error_model="numpy")
def nearest_double(digits, power, high, low, exponents):
    """Return the bits of the double nearest to digits * 10**power; 0 if undecided.

    `digits` (not 0), shifted until its top bit is set, times the 128-bit power gives 128 bits C of
    which the true product lies in [C, C + 2): one unit is lost with the low part of the product and
    less than one with the power. The rounding to 53 bits is certain unless half a unit of the 53rd
    bit lies in that interval. Then, and outside the normal doubles, the result is 0.
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


@njit(cache=True, error_model="numpy")
def _is_space(byte):
    return byte == 32 or (byte >= 9 and byte <= 13)


@njit(cache=True, error_model="numpy")
def _is_digit(byte):
    return byte >= 48 and byte <= 57


@njit(cache=True, error_model="numpy")
def count_tokens(text):
    """Number of runs of bytes that are not white space."""
    count = 0
    inside = False
    for k in range(len(text)):
        filled = not _is_space(text[k])
        if filled and not inside:
            count += 1
        inside = filled
    return count


@njit(cache=True, error_model="numpy")
def _is_sign(byte):
    return byte == 43 or byte == 45


@njit(cache=True, error_model="numpy", inline="always")
def _read_digits(text, place, digits, kept, cut, fraction):
    """Read digits from `place` on; `fraction` is 1 after the decimal point and 0 before it.

    `digits` contains the first `kept` significant digits, at most nineteen; `cut` is set if a
    nonzero digit was omitted. Returns (place, digits, kept, cut, change of the power of ten).
    """
    size = np.uintp(len(text))
    power = 0
    while place < size and _is_digit(text[place]):
        digit = np.uint64(text[place]) - np.uint64(48)
        if kept < _NINETEEN_DIGITS:
            digits = digits * _10 + digit
            power -= fraction
            if digits != _0:
                kept += 1
        else:
            power += 1 - fraction
            cut = cut or digit != _0
        place += _1
    return place, digits, kept, cut, power


@njit(cache=True, error_model="numpy")
def _read_exponent(text, place):
    """The exponent written from `place` on, as (place, exponent, whether it has digits).

    For exponents beyond _FAR the result is _FAR with their sign.
    """
    size = np.uintp(len(text))
    negative = False
    if place < size and _is_sign(text[place]):
        negative = text[place] == 45
        place += _1
    first = place
    exponent = 0
    while place < size and _is_digit(text[place]):
        if exponent < _FAR:
            exponent = exponent * 10 + int(text[place]) - 48
        place += _1
    exponent = min(exponent, _FAR)
    return place, -exponent if negative else exponent, place > first


@njit(cache=True, error_model="numpy")
def scan(text, values, bits, kinds, high, low, exponents, exact):
    """Value and kind of every token; `bits` is the same memory as `values`.

    Tokens that `nearest_double` cannot decide get the kind HARD; returns their number.
    """
    size = np.uintp(len(text))
    place = _0
    hard = 0
    for token in range(len(values)):
        while _is_space(text[place]):
            place += _1
        negative = False
        plain = True
        if _is_sign(text[place]):
            negative = text[place] == 45
            plain = False
            place += _1
        first = place
        place, digits, kept, cut, power = _read_digits(text, place, _0, 0, False, 0)
        n_digits = place - first
        if place < size and text[place] == 46:  # .
            plain = False
            place += _1
            first = place
            place, digits, kept, cut, change = _read_digits(text, place, digits, kept, cut, 1)
            power += change
            n_digits += place - first
        good = n_digits > _0
        if good and place < size and (text[place] == 101 or text[place] == 69):  # e E
            plain = False
            place, exponent, good = _read_exponent(text, place + _1)
            power = exponent if abs(exponent) == _FAR else power + exponent
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
            value = np.float64(digits)
            value = value * exact[power] if power >= 0 else value / exact[-power]
            values[token] = -value if negative else value
        else:
            double = nearest_double(digits, power, high, low, exponents)
            if cut and double != nearest_double(digits + _1, power, high, low, exponents):
                double = _0
            if double == _0:
                kinds[token] = HARD
                hard += 1
            bits[token] = double | _TOP_BIT if negative else double
    return hard


@njit(cache=True, error_model="numpy")
def spans_of_kind(text, kinds, kind, starts, ends):
    """Return where the tokens of one kind begin and end in the bytes."""
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
