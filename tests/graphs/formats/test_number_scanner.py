"""Both scanners give the double nearest to every decimal, and agree on what is a number."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kikuchi.graphs.formats.kinds import BAD, INTEGER, REAL, TINY
from kikuchi.graphs.formats.tokens import _CHUNK, Tokens, _span, tokenise
from kikuchi.graphs.kernels import scanner

RANDOM = 200_000


def scanned(words: list[str], compiled: bool) -> Tokens:
    return tokenise("x", " ".join(words).encode(), compiled=compiled)


def check_all(words: list[str]) -> Tokens:
    """Python's `float` is the judge of values; the two scanners must agree on kinds."""
    fast, slow = scanned(words, True), scanned(words, False)
    exact = np.array([float(word) for word in words])
    same = (fast.values.view(np.uint64) == exact.view(np.uint64)) | (fast.kinds == TINY)
    assert same.all(), words[int(np.argmin(same))]
    assert np.array_equal(fast.kinds, slow.kinds)
    assert np.array_equal(fast.values, slow.values, equal_nan=True)
    return fast


def test_a_million_reprs_are_read_to_the_last_bit() -> None:
    rng = np.random.default_rng(0)
    for values in (
        rng.random(4 * RANDOM),
        np.exp(5.0 * rng.normal(size=4 * RANDOM)),
        np.exp(300.0 * rng.uniform(-1, 1, size=RANDOM)),
    ):
        words = list(map(repr, values.tolist()))
        read = scanned(words, True)
        wrong = np.flatnonzero(read.values.view(np.uint64) != values.view(np.uint64))
        assert not wrong.size, words[wrong[0]]


def test_doubles_of_any_exponent_are_read_to_the_last_bit() -> None:
    bits = np.random.default_rng(1).integers(0, 2**63, size=RANDOM, dtype=np.uint64)
    values = bits.view(np.float64)
    check_all(list(map(repr, values[np.isfinite(values)].tolist())))


def test_subnormal_numbers_are_read_to_the_last_bit() -> None:
    bits = np.random.default_rng(2).integers(0, 2**52, size=20_000, dtype=np.uint64)
    check_all(list(map(repr, bits.view(np.float64).tolist())))


@pytest.mark.parametrize("form", ["{:.25e}", "{:.17f}", "{:.18g}", "{:.30f}", "{:+.3E}"])
def test_many_digits_and_few_are_read_to_the_last_bit(form: str) -> None:
    values = np.exp(8.0 * np.random.default_rng(3).normal(size=20_000))
    check_all([form.format(x) for x in values.tolist()])


def test_numbers_half_way_between_doubles_round_to_even() -> None:
    rng = np.random.default_rng(4)
    words = []
    with localcontext() as context:
        context.prec = 1200
        for mantissa in rng.integers(2**52, 2**53, size=2000).tolist():
            half = Decimal(2 * mantissa + 1) * Decimal(2) ** int(rng.integers(-60, 60))
            words += [f"{half:f}", f"{half:f}" + ("01" if "." in f"{half:f}" else ".01")]
    check_all(words)


def test_whole_numbers_beyond_2_to_the_53_round_as_float_does() -> None:
    rng = np.random.default_rng(5)
    words = [str(k) for k in rng.integers(2**53, 2**63, size=20_000).tolist()]
    assert (check_all(words).kinds == INTEGER).all()


def test_huge_and_tiny_exponents() -> None:
    words = ["1e308", "1.7976931348623157e308", "1.7976931348623159e308", "1e309", "9" * 400]
    words += ["1e999999999999", "0e999999999999", "2.2250738585072011e-308", "5e-324", "3e-324"]
    words += ["0." + "0" * 400 + "1e401", "1" + "0" * 400 + "e-400", "1e-99999999", "0.0e-5"]
    words += ["0." + "0" * 100_000 + "1e1000000", "0." + "0" * 320 + "123456789", "-0", "-0.0"]
    read = check_all(words)
    by_word = dict(zip(words, read.kinds.tolist(), strict=True))
    assert by_word["1e-99999999"] == TINY
    assert by_word["5e-324"] == by_word["3e-324"] == REAL
    assert by_word["0.0e-5"] == REAL
    assert np.isinf(read.values[words.index("1e309")])


def test_2e_minus_324_is_not_quietly_zero() -> None:
    for compiled in (True, False):
        read = scanned(["2e-324", "0.0"], compiled)
        assert read.kinds.tolist() == [TINY, REAL]
        assert np.isnan(read.values[0])


NOT_NUMBERS = ["nan", "inf", "-inf", "Infinity", "1_000", "1e", "e5", ".", "+", "-", "--1", "1.2.3"]
NOT_NUMBERS += ["0x10", "1,5", "1e+", "1e5.", "١", "1\x00", "\x00", "#", "MARKOV", "1d5", "+.e1"]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("word", NOT_NUMBERS)
def test_what_is_not_a_decimal_number_is_bad(word: str, compiled: bool) -> None:
    read = scanned(["1", word, "2"], compiled)
    assert read.kinds.tolist() == [INTEGER, BAD, INTEGER]
    assert np.isnan(read.values[1])


@given(st.lists(st.text("0123456789.eE+-_ \n\tnaif#", max_size=12), max_size=20))
def test_the_scanners_agree_on_anything(words: list[str]) -> None:
    fast, slow = scanned(words, True), scanned(words, False)
    assert np.array_equal(fast.kinds, slow.kinds)
    assert np.array_equal(fast.values, slow.values, equal_nan=True)


@given(st.binary(max_size=60))
def test_the_scanners_agree_on_any_bytes(data: bytes) -> None:
    fast, slow = tokenise("x", data, compiled=True), tokenise("x", data, compiled=False)
    assert len(fast) == len(data.split())
    assert np.array_equal(fast.kinds, slow.kinds)
    assert np.array_equal(fast.values, slow.values, equal_nan=True)


def test_tokens_are_found_again_across_chunks() -> None:
    gap = b" " * (_CHUNK - 4)
    data = b"one" + gap + b"two three" + gap + b"\nfour"
    spans = [_span(data, k) for k in range(4)]
    assert [data[a:b] for a, b in spans] == [b"one", b"two", b"three", b"four"]
    tokens = tokenise("big", data, compiled=False)
    assert str(tokens.error(3, "a number")) == "big, line 2: found 'four'; expected a number"


def test_the_table_of_powers_is_the_floor_of_the_true_power() -> None:
    for q in (-342, -100, -23, -1, 0, 1, 22, 55, 56, 308):
        row = q - scanner.MIN_POWER
        word = (int(scanner.POWER_HIGH[row]) << 64) + int(scanner.POWER_LOW[row])
        exponent = int(scanner.POWER_EXPONENT[row])
        assert 2**127 <= word < 2**128
        with localcontext() as context:
            context.prec = 500
            exact = Decimal(10) ** q / Decimal(2) ** exponent
            assert word <= exact < word + 1
