"""Compares what a page shows with what a run prints: text exactly, figures within a tolerance.

Pages and notebooks keep real output. Another processor rounds differently, and times differ from
run to run, so two outputs are the same if

* their words are equal, whatever the white space and the length of rules (`---`);
* each figure is within the relative tolerance of the other, or within one unit of the last digit
  shown. Counts below 1000 therefore agree exactly with the default tolerance of `TOLERANCE`;
* a time is where a time was: numbers before `s`, `ms` and other units of time, and the columns of
  a table that are headed by `seconds` or a similar word, may have any value.

A line `...` stands for lines that are left out.
"""

from __future__ import annotations

import math
import re

TOLERANCE = 1e-3
NEGLIGIBLE = 1e-12  # rounding errors around zero

_FIGURE = r"(?<![\w.])[-+−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?(?:e[-+]?\d+)?"  # not in a name
NUMBER = re.compile(_FIGURE + r"(?!,?\w|\.\d|-\d)")  # nor in a version or a date
_TIME = re.compile(_FIGURE + r"\s?(?:ns|µs|us|ms|s|min|h|seconds?|minutes?|hours?)(?![\w/])")
_TIME_HEADS = {"seconds", "time", "s", "ms"}
_RULE = re.compile(r"\s*-{2,}(?:\s+-{2,})+")
_LEFT_OUT = "..."


def same(shown: str, got: str, tolerance: float = TOLERANCE) -> bool:
    """Whether two outputs are alike.

    >>> same("log Z 96.627 in 3.1 ms", "log Z 96.628 in 12 ms")
    True
    >>> same("log Z 96.627", "log Z 97.1"), same("log Z 96.6", "log W 96.6")
    (False, False)
    """
    return _lines_match(_prepared(shown), _prepared(got), tolerance)


def times(text: str) -> list[tuple[int, int]]:
    """Where an output has times, which are not compared: first and last character of each."""
    found = [match.span() for match in _TIME.finditer(text)]
    start = 0
    timed: list[tuple[int, int]] = []
    above = ""
    for line in text.splitlines(keepends=True):
        if _RULE.fullmatch(line.rstrip()):
            columns = [match.span() for match in re.finditer(r"-+", line)]
            timed = [(a, b) for a, b in columns if above[a:b].strip().lower() in _TIME_HEADS]
        for first, last in timed:
            cell = NUMBER.fullmatch(line[first:last].strip())
            if cell:
                place = start + line.index(cell[0], first)
                found.append((place, place + len(cell[0])))
        start += len(line)
        above = line
    return sorted(found)


def _prepared(text: str) -> list[str]:
    for first, last in reversed(times(text)):
        text = f"{text[:first]}<time>{text[last:]}"
    plain = (" ".join(re.sub(r"-{3,}", "---", line).split()) for line in text.splitlines())
    return [line for line in plain if line]


def _lines_match(shown: list[str], got: list[str], tolerance: float) -> bool:
    """Line by line; where lines are left out, wherever the next shown ones are found."""
    if not shown:
        return not got
    if shown[0] == _LEFT_OUT:
        return any(_lines_match(shown[1:], got[k:], tolerance) for k in range(len(got) + 1))
    alike = bool(got) and _line_matches(shown[0], got[0], tolerance)
    return alike and _lines_match(shown[1:], got[1:], tolerance)


def _line_matches(shown: str, got: str, tolerance: float) -> bool:
    if _words(shown) != _words(got):
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(got), strict=True)
    return all(close(a, b, tolerance) for a, b in pairs)


def _words(line: str) -> str:
    return re.sub(r"\s+", "", NUMBER.sub("#", line))


def close(shown: str, got: str, tolerance: float = TOLERANCE) -> bool:
    """Whether two printed figures agree.

    >>> close("0.084", "0.085"), close("0.084", "0.09"), close("33", "34"), close("2,500", "2501")
    (True, False, False, True)
    """
    a, b = _value(shown), _value(got)
    unit = min(_last_digit(shown), _last_digit(got))
    return math.isclose(a, b, rel_tol=tolerance, abs_tol=max(1.001 * unit, NEGLIGIBLE))


def _value(figure: str) -> float:
    return float(figure.replace(",", "").replace("−", "-"))


def _last_digit(figure: str) -> float:
    """One unit of the last digit after the point; 0 for counts, which are exact."""
    mantissa, _, exponent = figure.partition("e")
    digits = len(mantissa.partition(".")[2])
    if not digits and not exponent:
        return 0.0
    return 10.0 ** (int(exponent or 0) - digits)
