"""Formatting of numbers and strings, the same in the terminal, on a page and in a message."""

from __future__ import annotations

import html
import math
import re
import unicodedata
from collections.abc import Mapping

UNKNOWN = "–"


def printable(text: str) -> str:
    """Return a text for a terminal, with control characters replaced by their codes.

    >>> print(printable("red\\x1b[31m"))
    red\\x1b[31m
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def printable_lines(text: str) -> str:
    """Return a text of several lines, with other control characters replaced by their codes.

    >>> print(printable_lines("two\\nbells\\x07"))
    two
    bells\\x07
    """
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


def html_attribute(text: object) -> str:
    """Return a text that is safe in an HTML attribute and in an HTML title.

    Control characters, including those that change the writing direction, are replaced by their
    codes.

    >>> html_attribute('<b> & "x"\\u202e')
    '&lt;b&gt; &amp; &quot;x&quot;\\\\u202e'
    """
    return html.escape(printable_lines(str(text)), quote=True)


def html_text(text: object) -> str:
    """Return a text that is safe between HTML tags.

    Right-to-left words are isolated, so that they do not change the order of the text next to them.

    >>> html_text("<b>"), html_text("\\u05d0")
    ('&lt;b&gt;', '<bdi>\u05d0</bdi>')
    """
    shown = html_attribute(text)
    return f"<bdi>{shown}</bdi>" if any(map(_from_the_right, shown)) else shown


def _from_the_right(letter: str) -> bool:
    return unicodedata.bidirectional(letter) in ("R", "AL", "AN")


def spreadsheet_cell(text: str) -> str:
    """Return a text as a table cell that a spreadsheet does not execute; `from_cell` reverses it.

    >>> spreadsheet_cell("=1+1"), spreadsheet_cell("-1.5"), from_cell("'=1+1")
    ("'=1+1", '-1.5', '=1+1')
    """
    return f"'{text}" if _RUNS.match(text) and not _is_number(text) else text


def from_cell(cell: str) -> str:
    """Return the text of a cell that `spreadsheet_cell` wrote."""
    return cell[1:] if cell.startswith("'") and _RUNS.match(cell) else cell


_RUNS = re.compile(r"'*[=+\-@\t\r]")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_whole(word: str) -> bool:
    """Return whether a string is a non-negative integer of at most 18 digits that `int` can parse.

    >>> is_whole("12"), is_whole("-1"), is_whole("²"), is_whole("9" * 5000)
    (True, False, False, False)
    """
    return word.isdecimal() and len(word) <= 18


def one_line(text: str) -> str:
    """Return a text in one line, with every run of white space replaced by one space.

    >>> one_line("two\\n  lines")
    'two lines'
    """
    return " ".join(text.split())


def figure(value: float | None, digits: int = 12) -> str:
    """Return a number to a given number of significant digits; a dash if it is unknown.

    >>> figure(165.647464292), figure(None), figure(math.inf)
    ('165.647464292', '–', 'inf')
    """
    return UNKNOWN if value is None or math.isnan(value) else f"{value:.{digits}g}"


def log_z(value: float | None, decimals: int = 9) -> str:
    """Return log Z to nine decimals, as printed in reference tables.

    >>> log_z(165.6474642921), log_z(-1e-16), log_z(None)
    ('165.647464292', '0.000000000', '–')
    """
    if value is None or math.isnan(value):
        return UNKNOWN
    return (
        figure(value, 16) if abs(value) >= 1e7 else f"{round(value, decimals) + 0.0:.{decimals}f}"
    )


def power_of_ten(exponent: float) -> str:
    """Return a number given by its decimal logarithm, written out if that is short.

    >>> power_of_ten(2.1072), power_of_ten(90.3)
    ('128', '10^90.3')
    """
    return whole(round(10**exponent)) if exponent < 9 else f"10^{exponent:.1f}"


def error(value: float | None) -> str:
    """Return an error to three digits.

    >>> error(0.107834), error(0.0), error(None)
    ('0.108', '0', '–')
    """
    return figure(value, 3)


def seconds(value: float) -> str:
    """Return a duration with its unit.

    >>> seconds(0.00321), seconds(2.5), seconds(75.0), seconds(9.2e-7)
    ('3.2 ms', '2.5 s', '75 s', 'less than 0.1 ms')
    """
    if value < 1e-4:
        return "less than 0.1 ms"
    return (
        f"{value * 1e3:.2g} ms"
        if value < 0.0995
        else f"{value:.2g} s"
        if value < 9.95
        else (f"{value:.0f} s")
    )


def count(number: float, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun; large numbers are in scientific notation.

    >>> count(1, "factor"), count(1234, "factor"), count(2, "entry", "entries")
    ('1 factor', '1,234 factors', '2 entries')
    """
    word = noun if number == 1 else plural or noun + "s"
    return f"{whole(number)} {word}"


def whole(number: float) -> str:
    """Return an integer with separators, or in scientific notation if it is very long.

    >>> whole(90000), whole(2**80)
    ('90,000', '1.21e+24')
    """
    return f"{int(number):,}" if number < 1e15 else f"{float(min(number, 1e300)):.3g}"


def tally(counts: Mapping[int, int]) -> str:
    """Return a histogram of a few values in one line.

    >>> tally({2: 37, 4: 1})
    '2 (37 times), 4 (once)'
    """
    shown = list(counts.items())[:8]
    parts = [f"{k} ({'once' if c == 1 else f'{c:,} times'})" for k, c in shown]
    more = len(counts) - len(shown)
    return ", ".join(parts) + (f", and {more} more" if more else "")
