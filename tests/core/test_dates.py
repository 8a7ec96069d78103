"""Dates of rows: which texts are dates, regular steps, gaps and what comes after."""

from __future__ import annotations

import numpy as np
import pytest

from kikuchi.core.dates import looks_like_date, read_dates
from kikuchi.core.errors import DataError

DAYS = [str(day) for day in np.arange("2021-03-01", "2021-03-21", dtype="M8[D]")]
WORKDAYS = [day for day in DAYS if np.is_busday(np.datetime64(day))]


@pytest.mark.parametrize(
    ("words", "name", "count", "after"),
    [
        (DAYS, "day", 20, "2021-03-21"),
        ([DAYS[0], DAYS[1], DAYS[4]], "day", 5, "2021-03-06"),
        (WORKDAYS, "business day", 15, "2021-03-22"),
        (WORKDAYS[:6] + WORKDAYS[7:], "business day", 15, "2021-03-22"),
        (DAYS[::7], "week", 3, "2021-03-22"),
        (["2020-01", "2020-02", "2020-04"], "month", 4, "2020-05"),
        (["2020-01-31", "2020-02-29", "2020-03-31"], "month", 3, "2020-04-30"),
        (["2019-11-30", "2019-12-30", "2020-01-30"], "month", 3, "2020-02-29"),
        (["2020-Q1", "2020Q2", "2020-Q4"], "quarter", 4, "2021-Q1"),
        (["2020-03-31", "2020-06-30"], "quarter", 2, "2020-09-30"),
        (["1999", "2000", "2003"], "year", 5, "2004"),
        (["2020-01-01 22:00", "2020-01-01T23:00"], "hour", 2, "2020-01-02T00:00:00"),
        (["2020-01-01 00:00", "2020-01-01 00:15"], "15 minutes", 2, "2020-01-01T00:30:00"),
        (["30/01/2020", "31/01/2020", "01/02/2020"], "day", 3, "2020-02-02"),
        (["1/30/2020", "1/31/2020", "2/1/2020"], "day", 3, "2020-02-02"),
    ],
)
def test_regular_steps(words: list[str], name: str, count: int, after: str) -> None:
    index, steps = read_dates(words)
    assert (index.name, index.count) == (name, count)
    assert index.labels(count, 1) == [after]
    assert steps[0] == 0 and steps[-1] == count - 1 and (np.diff(steps) > 0).all()
    if index.style != "time" and "/" not in words[0] and "Q" not in words[1]:
        assert [index.labels()[step] for step in steps] == words


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["01/02/2020", "02/02/2020"], "'01/02/2020' may be day/month or month/day"),
        (["2020-01-01", "2020-01-04", "2020-01-09"], "irregular \\(steps of 3, 5 days\\)"),
        (["2020-01-02", "2020-01-01"], "line 3: 2020-01-01 comes after a later date"),
        (["2020-01-02", "2020-01-02"], "line 3: 2020-01-02 is there twice"),
        (["2020-01-02", "2020-13-02"], "line 3: '2020-13-02' is not a date such as"),
        (["2020-01-02", ""], "line 3: '' is not a date such as"),
        (["2020-01-02", "2020-02"], "different formats"),
        (["2020-01-02"], "a single date"),
    ],
)
def test_dates_that_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_dates(words, place="x.csv", lines=range(2, 9))


def test_numbers_are_no_dates() -> None:
    assert not any(map(looks_like_date, ["2020", "1.5", "3-4", "20200101", "north"]))
