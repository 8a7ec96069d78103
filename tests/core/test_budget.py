"""Budgets, clocks and sizes."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from kikuchi import Budget
from kikuchi.core import budget as budget_module
from kikuchi.core.budget import (
    DEFAULT_BYTES,
    format_bytes,
    parse_bytes,
    require_memory,
    require_time,
)
from kikuchi.core.errors import BudgetError, MethodError, OutOfTimeError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("64", 64),
        ("64B", 64),
        ("500MB", 500_000_000),
        ("500mb", 500_000_000),
        ("2 GB", 2_000_000_000),
        (" 1.5GiB ", 1_610_612_736),
        (".5k", 500),
        ("3KiB", 3072),
        ("1T", 10**12),
        ("2ti", 2**41),
    ],
)
def test_sizes_are_read(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    "text", ["", "GB", "-1GB", "0", "0MB", "1e9", "two", "5ib", "5 XB", "1.2.3"]
)
def test_bad_sizes_are_refused(text: str) -> None:
    with pytest.raises(MethodError, match="is not a size; write for example"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 B"),
        (12, "12 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (2_100_000, "2.1 MB"),
        (151_888_016, "152 MB"),
        (4 * 10**9, "4 GB"),
        (3e12, "3 TB"),
        (10**18, "1 EB"),
        (1e30, "1e+12 EB"),
    ],
)
def test_sizes_are_written_for_people(count: float, expected: str) -> None:
    assert format_bytes(count) == expected


@pytest.mark.parametrize("limit", ["iterations", "seconds", "bytes"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_limits_must_be_positive(limit: str, value: float) -> None:
    with pytest.raises(MethodError, match=f"budget: {limit} must be positive"):
        Budget(**{limit: value})


def test_no_limit_but_memory_is_the_default() -> None:
    budget = Budget()
    assert (budget.iterations, budget.seconds, budget.bytes) == (None, None, DEFAULT_BYTES)
    assert Budget(bytes=None).require_bytes(10**30, "all", "none") is None


def test_too_many_bytes_are_refused_with_the_figures() -> None:
    with pytest.raises(BudgetError) as caught:
        Budget(bytes=parse_bytes("2GB")).require_bytes(3_000_000_000, "the tree", "use bp")
    assert str(caught.value) == "the tree needs 3 GB but the budget is 2 GB; use bp"
    Budget(bytes=100).require_bytes(100, "this", "nothing")


def test_the_clock_runs_and_expires() -> None:
    clock = Budget(seconds=0.02).start()
    assert not clock.expired
    before = clock.seconds
    time.sleep(0.03)
    assert clock.seconds > before + 0.02
    assert clock.expired
    assert not Budget().start().expired


def test_a_set_up_looks_at_the_clock_that_watches_it() -> None:
    clock = Budget(seconds=1e-9, bytes=1000).start()
    require_time("this", "use bp")  # nobody watches
    require_memory(10**30, "this", "use bp")
    with clock.watching():
        with pytest.raises(OutOfTimeError, match="this takes longer than the 1e-09 s"):
            require_time("this", "use bp")
        with pytest.raises(BudgetError, match="this needs 2 kB but the budget is 1 kB"):
            require_memory(2000, "this", "use bp")
        with Budget().start().watching():  # of an inner method
            require_time("this", "use bp")
        clock.setting_up = False  # iterations have begun: they end by themselves
        require_time("this", "use bp")
        require_memory(2000, "this", "use bp")
    require_time("this", "use bp")


def test_the_budget_only_lowers_iterations() -> None:
    assert Budget().start().iterations(100) == 100
    assert Budget(iterations=7).start().iterations(100) == 7
    assert Budget(iterations=700).start().iterations(100) == 100


@pytest.mark.parametrize("text", ["9" * 400, "1" * 50_000 + "x", "1e5", "0.0MB"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(MethodError, match="is not a size"):
        parse_bytes(text)


def test_a_slower_machine_keeps_more_time_for_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(budget_module, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    for setup, ends in ((1.0, 8.0), (0.5, 8.0), (2.0, 6.0), (50.0, 0.0)):
        now[0] = 0.0
        clock = Budget(seconds=10.0).start()
        clock.keep_time(reading=2.0, setup=1.0)
        now[0] = setup
        clock.first_iteration_ended()
        clock.first_iteration_ended()  # of another loop within the same run
        assert clock.budget.seconds == pytest.approx(ends, abs=2e-3)
