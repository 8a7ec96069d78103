"""Dates of rows: parsed from a column of strings, checked for regularity, and extrapolated."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Ints
from kikuchi.core.errors import DataError

Style = Literal["year", "quarter", "month", "day", "time"]

_ISO = re.compile(r"(\d{4})-(\d{2})-(\d{2})(?:[T ](\d{2}):(\d{2})(?::(\d{2}))?Z?)?")
_MONTH = re.compile(r"(\d{4})-(\d{2})")
_QUARTER = re.compile(r"(\d{4})-?[Qq]([1-4])")
_YEAR = re.compile(r"[12]\d{3}")
_LOCAL = re.compile(r"(\d{1,2})([/.-])(\d{1,2})\2(\d{4})")
_DAY = 86400
_MOST_GAPS = 20  # average steps per row; above this, the dates are irregular
_UNITS = {1: "second", 60: "minute", 3600: "hour", _DAY: "day", 7 * _DAY: "week"}


@dataclass(frozen=True)
class DateIndex:
    """Regularly spaced dates: the first date, the step and the number of steps.

    `step` is a number of units: months ("M"), business days ("B") or seconds ("s").
    """

    style: Style
    unit: Literal["M", "B", "s"]
    step: int
    first: int
    day: int  # day of the month, if the unit is months; 31 is the last day
    count: int

    @property
    def name(self) -> str:
        """Name of the step: day, month, 15 minutes.

        >>> read_dates(["2020-01", "2020-02", "2020-04"])[0].name
        'month'
        """
        if self.unit == "B":
            return "business day"
        if self.unit == "M":
            known = {1: "month", 3: "quarter", 12: "year"}
            return known.get(self.step, f"{self.step} months")
        size = max(unit for unit in _UNITS if self.step % unit == 0)
        return _UNITS[size] if self.step == size else f"{self.step // size} {_UNITS[size]}s"

    def times(self, start: int = 0, count: int | None = None) -> NDArray[Any]:
        """Return the dates from step `start` on, as datetime64."""
        steps = np.arange(start, start + (self.count if count is None else count))
        if self.unit == "B":
            epoch = np.datetime64(0, "D")
            days = np.busday_offset(epoch, self.first + steps, roll="forward")
            return np.asarray(days, dtype="M8[s]")
        at = self.first + self.step * steps
        if self.unit == "s":
            return np.asarray(at, dtype="M8[s]")
        months = at.astype("M8[M]")
        last = (months + 1).astype("M8[D]") - 1
        days = np.minimum(months.astype("M8[D]") + (self.day - 1), last)
        return np.asarray(days, dtype="M8[s]")

    def labels(self, start: int = 0, count: int | None = None) -> list[str]:
        """Return the dates from step `start` on, in the format of the dates that were read.

        >>> read_dates(["2020-01-31", "2020-02-29", "2020-03-31"])[0].labels(3, 2)
        ['2020-04-30', '2020-05-31']
        """
        times = self.times(start, count)
        if self.style == "quarter":
            months = times.astype("M8[M]").astype(int)
            return [f"{1970 + m // 12}-Q{m % 12 // 3 + 1}" for m in months.tolist()]
        unit = {"year": "Y", "month": "M", "day": "D", "time": "s"}[self.style]
        return [str(word) for word in np.datetime_as_string(times, unit=unit)]  # type: ignore[call-overload]


def looks_like_date(word: str) -> bool:
    """Return whether a string may be a date: ISO with or without a time, a month, a quarter or
    D/M/Y.

    >>> [looks_like_date(word) for word in ("2020-01-31", "2020-03", "31/12/2020", "2020", "x")]
    [True, True, True, False, False]
    """
    return any(form.fullmatch(word) for form in (_ISO, _MONTH, _QUARTER, _LOCAL))


def read_dates(
    words: Sequence[str], *, place: str = "the dates", lines: Sequence[int] | None = None
) -> tuple[DateIndex, Ints]:
    """Return the regular dates and the step of each row.

    Parameters
    ----------
    words : Sequence[str]
        The dates of the rows: ISO dates with or without a time of day, months (2020-03), quarters
        (2020-Q1), years, or D/M/Y and M/D/Y if a day above 12 shows which.
    place : str, default "the dates"
        Their location, for messages.
    lines : Sequence[int], optional
        The line of each row in its file, for messages.

    >>> index, steps = read_dates(["2021-03-01", "2021-03-02", "2021-03-05"])
    >>> index.name, index.count, steps.tolist()
    ('day', 5, [0, 1, 4])
    """

    def where(row: int) -> str:
        return f"{place}, " + (f"row {row + 1}" if lines is None else f"line {lines[row]}")

    local = _local_order(words, place)
    seconds = np.empty(len(words), dtype=np.int64)
    styles: set[Style] = set()
    for row, word in enumerate(words):
        try:
            time, style = _instant(word, local)
            seconds[row] = np.datetime64(time, "s").astype(np.int64)
        except ValueError:
            raise DataError(
                f"{where(row)}: '{word}' is not a date such as 2020-01-31, 2020-01-31 12:00, "
                "2020-01, 2020-Q1 or 2020"
            ) from None
        styles.add(style)
    if len(styles - {"day", "time"}) > (0 if styles & {"day", "time"} else 1):
        raise DataError(f"{place}: the dates have different formats ({', '.join(styles)})")
    wrong = np.flatnonzero(np.diff(seconds) <= 0)
    if len(wrong):
        row = int(wrong[0]) + 1
        how = "is there twice" if seconds[row] == seconds[row - 1] else "comes after a later date"
        raise DataError(f"{where(row)}: {words[row]} {how}; sort the rows, one for each date")
    return _regular(seconds, "time" if "time" in styles else styles.pop(), place)


def _local_order(words: Sequence[str], place: str) -> str:
    """Return whether dates with slashes or dots are "dmy" or "mdy"; raise an error if this is
    ambiguous.
    """
    found = [match for word in words if (match := _LOCAL.fullmatch(word))]
    if not found:
        return ""
    first, second = max(int(m[1]) for m in found), max(int(m[3]) for m in found)
    if first > 12 >= second:
        return "dmy"
    if second > 12 >= first:
        return "mdy"
    raise DataError(
        f"{place}: '{found[0][0]}' may be day/month or month/day; write dates as 2020-01-31"
    )


def _instant(word: str, local: str) -> tuple[str, Style]:
    """Return a date in ISO form and its format; raise ValueError if it is not a date."""
    if match := _ISO.fullmatch(word):
        return word.rstrip("Z"), "time" if match[4] else "day"
    if match := _QUARTER.fullmatch(word):
        return f"{match[1]}-{3 * int(match[2]) - 2:02}", "quarter"
    if _MONTH.fullmatch(word):
        return word, "month"
    if _YEAR.fullmatch(word):
        return word, "year"
    if match := _LOCAL.fullmatch(word):
        day, month = (match[1], match[3]) if local == "dmy" else (match[3], match[1])
        return f"{match[4]}-{int(month):02}-{int(day):02}", "day"
    raise ValueError(word)


def _regular(seconds: Ints, style: Style, place: str) -> tuple[DateIndex, Ints]:
    """The step of which all differences are multiples, and the step of each date."""
    times = seconds.astype("M8[s]")
    days = times.astype("M8[D]")
    if len(seconds) < 2:
        raise DataError(f"{place}: a single date has no step; give at least two rows")
    if (days == times).all():
        months = days.astype("M8[M]").astype(np.int64)
        of_month = (days - days.astype("M8[M]").astype("M8[D]")).astype(np.int64) + 1
        last = ((days + 1).astype("M8[M]") != days.astype("M8[M]")).all()
        if last or (of_month == of_month[0]).all():
            day = 31 if last else int(of_month[0])
            return _index(months, style, "M", day, place, "months")
        if (np.is_busday(days)).all() and (np.diff(days.astype(np.int64)) == 1).any():
            count = np.busday_count(np.datetime64(0, "D"), days).astype(np.int64)
            if _ends_at_weekends(days):
                return _index(count, style, "B", 0, place, "business days")
    return _index(seconds, style, "s", 0, place, "seconds")


def _ends_at_weekends(days: NDArray[Any]) -> bool:
    """Return whether the rows skip weekends."""
    weeks = (days.astype(np.int64) + 3) // 7  # the first day, 1970-01-01, was a Thursday
    return bool(weeks[-1] > weeks[0])


def _index(
    at: Ints, style: Style, unit: Literal["M", "B", "s"], day: int, place: str, words: str
) -> tuple[DateIndex, Ints]:
    steps = np.diff(at)
    step = math.gcd(*steps.tolist())
    usual = Counter(steps.tolist()).most_common(1)[0][0]
    count = int((at[-1] - at[0]) // step) + 1
    if usual != step or (unit == "B" and step != 1) or count > _MOST_GAPS * len(at):
        size = _DAY if words == "seconds" and step % _DAY == 0 else 1
        named = "days" if size > 1 else words
        seen = ", ".join(str(s // size) for s, _ in Counter(steps.tolist()).most_common(4))
        raise DataError(
            f"{place}: the dates are irregular (steps of {seen} {named}); give one row for each "
            "day, month or other regular step, or leave the dates out to number the rows"
        )
    if unit == "B":
        step = 1
    index = DateIndex(style, unit, step, int(at[0]), day, count)
    return index, (at - at[0]) // step
