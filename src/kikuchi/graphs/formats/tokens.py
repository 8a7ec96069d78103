"""`Tokens`: a file as numbers, with the location of each in the file.

Both number formats (UAI, libDAI) are words between white space, so one scan turns a file into two
arrays: the value of every token and its kind. Small files are scanned by Python itself, large ones
by compiled code; values, kinds and so the errors are the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array, Mask
from kikuchi.core.errors import FormatError
from kikuchi.core.files import require_room
from kikuchi.core.text import printable
from kikuchi.graphs.formats.kinds import BAD, HARD, INTEGER, REAL, TINY

COMPILED_FROM = 1_000_000  # bytes; below, importing the compiler costs more than it saves
LARGEST_COUNT = 2**31 - 1
SMALLEST_WEIGHT = "5e-324"

_NUMBER = re.compile(rb"[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?").fullmatch
_SPACES = np.isin(np.arange(256), list(b" \t\n\r\v\f"))
_CHUNK = 1 << 22
_BYTES_PER_TOKEN = 40  # of values, kinds, places and tables, as measured
_SHOWN = 30  # characters of an invalid token that an error quotes

Walk = Callable[..., Any]
Describe = Callable[[int], str]


@dataclass(frozen=True)
class Check:
    """A test of many tokens: `good[k]`, the token of index k, and what was expected there."""

    good: Mask
    token: Callable[[int], int]
    expected: Describe


@dataclass(frozen=True, eq=False)
class Tokens:
    """Values (NaN where a token is not a number) and kinds of all tokens of one file."""

    path: str
    data: bytes
    values: Array
    kinds: NDArray[np.uint8]
    compiled: bool

    def __len__(self) -> int:
        return len(self.values)

    # ------------------------------------------------------------------ locations

    def text(self, token: int) -> str:
        """Return the token as written in the file."""
        start, end = _span(self.data, token)
        return self.data[start:end].decode("utf-8", "backslashreplace")

    def error(self, token: int, expected: str, found: str | None = None) -> FormatError:
        """Return the error for a token and its line; a token after the last is the end of the
        file.
        """
        if token >= len(self):
            line = self.data.rstrip().count(b"\n") + 1
            return FormatError(self.path, line, "found the end of the file", f"expected {expected}")
        start, end = _span(self.data, token)
        line = self.data.count(b"\n", 0, start) + 1
        if found is None:
            word = self.data[start:end]
            found = f"found {shown(word)}"
            if word.startswith((b"#", b"//", b"/*")):
                found += ", and comments are not part of this format"
            if self.kinds[token] == TINY:
                found += f", which is below the smallest number, {SMALLEST_WEIGHT}"
        return FormatError(self.path, line, found, f"expected {expected}")

    # ------------------------------------------------------------------ checked reading

    def require(self, *checks: Check) -> None:
        """Raise the error of the first token in the file that fails any of the checks."""
        failures = []
        for check in checks:
            if not check.good.all():
                k = int(np.argmin(check.good))
                failures.append((check.token(k), k, check))
        if failures:
            token, k, check = min(failures, key=lambda failure: failure[0])
            raise self.error(token, check.expected(k))

    def whole(self, token: int, what: str, low: int = 0, high: int = LARGEST_COUNT) -> int:
        """One whole number in low..high."""
        return int(self.wholes(token, 1, lambda _: what, low, high)[0])

    def wholes(
        self, first: int, count: int, what: Describe, low: int = 0, high: int = LARGEST_COUNT
    ) -> Array:
        """`count` whole numbers in low..high from token `first` on; `what(k)` names the k-th."""
        values = self.values[first : first + count]
        good = (self.kinds[first : first + count] == INTEGER) & (values >= low) & (values <= high)
        span = _range_text(low, high)
        self.require(Check(good, lambda k: first + k, lambda k: f"{what(k)}, a whole number{span}"))
        if len(values) < count:
            raise self.error(len(self), what(len(values)))
        return values

    def weights(self, first: int, count: int, what: Describe) -> Array:
        """`count` weights from token `first` on."""
        values = self.values[first : first + count]
        self.require(
            Check(is_weight(values), lambda k: first + k, lambda k: f"{what(k)}, {WEIGHT}")
        )
        if len(values) < count:
            raise self.error(len(self), what(len(values)))
        return values

    def end(self, token: int, after: str) -> None:
        """Raise an error if a token follows."""
        if token < len(self):
            raise self.error(token, f"the end of the file after {after}")

    def walk(self, walk: Walk, *arguments: Any) -> Any:
        """Run a pass of `_walk` over the values, compiled if the scanner was compiled."""
        if self.compiled:
            from kikuchi.graphs.kernels import scanner

            return getattr(scanner, walk.__name__)(self.values, self.kinds, *arguments)
        with np.errstate(over="ignore"):  # a table size may be infinite
            return walk(self.values.tolist(), self.kinds.tolist(), *arguments)

    def capacity(self, count: int, first: int) -> int:
        """`count`, or the number of tokens from `first` on if that is less: never more memory."""
        return max(0, min(count, len(self) - first))


WEIGHT = "a finite number that is not negative"


def is_weight(values: Array) -> Mask:
    """Return which values can be entries of a table.

    >>> is_weight(np.array([0.0, 2.5, -1.0, np.nan, np.inf])).tolist()
    [True, True, False, False, False]
    """
    good: Mask = (values >= 0) & (values < np.inf)
    return good


def shown(word: bytes | str) -> str:
    """Return a token for an error message: quoted, printable, and shortened.

    >>> print(shown(b"a\\x00b"), shown("x" * 100))
    'a\\x00b' 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...'
    """
    text = word.decode("utf-8", "backslashreplace") if isinstance(word, bytes) else word
    short = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
    return f"'{printable(short)}'"


def _range_text(low: int, high: int) -> str:
    if low == high:
        return f" equal to {low}"
    return f" >= {low}" if high == LARGEST_COUNT else f" in {low}..{high}"


def _span(data: bytes, token: int) -> tuple[int, int]:
    """Return where a token begins and ends in the bytes."""
    before = 0
    blank = True
    for offset in range(0, len(data), _CHUNK):
        space = _SPACES[np.frombuffer(data, np.uint8, min(_CHUNK, len(data) - offset), offset)]
        begins = np.flatnonzero(~space & np.concatenate([[blank], space[:-1]]))
        if before + len(begins) > token:
            start = offset + int(begins[token - before])
            match = re.compile(rb"\S+").match(data, start)
            return start, start if match is None else match.end()
        before += len(begins)
        blank = bool(space[-1])
    raise IndexError(token)


# ---------------------------------------------------------------------- scanning


def tokenise(path: str, data: bytes, *, names: int = 0, compiled: bool | None = None) -> Tokens:
    """Scan a file whose first `names` tokens are words; `compiled` None chooses by its size.

    >>> tokens = tokenise("x", b"MARKOV 2 0.5 .e", names=1)
    >>> tokens.values[1:].tolist(), tokens.kinds.tolist()
    ([2.0, 0.5, nan], [2, 0, 1, 2])
    """
    large = len(data) >= COMPILED_FROM if compiled is None else compiled
    values, kinds = _scan_compiled(path, data) if large else _scan_python(data, names)
    values[:names] = np.nan
    kinds[:names] = BAD
    return Tokens(path, data, values, kinds, large)


def _scan_python(data: bytes, names: int) -> tuple[Array, NDArray[np.uint8]]:
    words = data.split()
    try:
        values = np.array([np.nan] * names + list(map(float, words[names:])))[: len(words)]
        strict = b"_" not in data and bool(np.isfinite(values[names:]).all())
    except ValueError:
        strict = False
    if not strict:  # a bad token, or one that only Python takes: 1_0, nan, infinity
        values = np.array([float(w) if _NUMBER(w) else np.nan for w in words])
    kinds = np.where([word.isdigit() for word in words], INTEGER, REAL).astype(np.uint8)
    kinds[np.isnan(values)] = BAD
    for k in np.flatnonzero(values == 0):
        if _is_tiny(words[k]):
            values[k], kinds[k] = np.nan, TINY
    return values, kinds


def _scan_compiled(path: str, data: bytes) -> tuple[Array, NDArray[np.uint8]]:
    from kikuchi.graphs.kernels import scanner as kernels

    text = np.frombuffer(data, dtype=np.uint8)
    count = kernels.count_tokens(text)
    require_room(path, len(data) + _BYTES_PER_TOKEN * int(count), f"a model of {count} numbers")
    values = np.empty(count)
    kinds = np.empty(count, dtype=np.uint8)
    hard = kernels.scan(
        text,
        values,
        values.view(np.uint64),
        kinds,
        kernels.POWER_HIGH,
        kernels.POWER_LOW,
        kernels.POWER_EXPONENT,
        kernels.EXACT_POWERS,
    )
    if hard:
        starts, ends = np.empty(hard, dtype=np.int64), np.empty(hard, dtype=np.int64)
        kernels.spans_of_kind(text, kinds, HARD, starts, ends)
        for k, start, end in zip(np.flatnonzero(kinds == HARD), starts, ends, strict=True):
            word = data[start:end]
            values[k], kinds[k] = float(word), INTEGER if word.isdigit() else REAL
            if values[k] == 0:
                values[k], kinds[k] = np.nan, TINY
    return values, kinds


def _is_tiny(word: bytes) -> bool:
    """Whether a number that `float` rounds to zero is not zero."""
    return bool(word.lower().partition(b"e")[0].strip(b"+-.0"))
