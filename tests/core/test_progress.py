"""Bars on a terminal: what they show and when, and that pipes get nothing of them."""

from __future__ import annotations

import io
import sys
import threading
import time
from contextlib import contextmanager

import pytest

import kikuchi as kk
from kikuchi.brackets.live import BoundsBar
from kikuchi.core import progress
from kikuchi.core.progress import CommandBar, ProgressBar, hide_bars, part_done, phase


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@contextmanager
def terminal():
    """Standard error as a terminal; a fixture would do it before the capture of pytest."""
    stream = Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", "120")
        yield stream
    assert not progress._OPEN
    assert not progress._PHASES


def wait_for(stream, text, seconds=5.0):
    end = time.monotonic() + seconds
    while text not in stream.getvalue():
        assert time.monotonic() < end, stream.getvalue()
        time.sleep(0.02)


def test_a_run_that_reports_nothing_shows_its_phase():
    with terminal() as screen, ProgressBar("energy"), phase("start by ICA"):
        wait_for(screen, "start by ICA")
    assert "start by ICA  0:0" in screen.getvalue()


def test_the_next_run_is_shown_before_its_first_report():
    with terminal() as screen, ProgressBar("jt") as bar:
        bar(1, 10, residual=None, objective=None)
        bar.relabel("bp")
        wait_for(screen, "bp")


def test_a_quick_run_shows_nothing(monkeypatch):
    held = []

    class Held(threading.Timer):
        """Runs when the test starts it, and then at once: too late to be cancelled."""

        def __init__(self, interval, function):
            super().__init__(0.0, function)
            held.append(self)

        def start(self):
            pass

        def cancel(self):
            pass

    monkeypatch.setattr(progress.threading, "Timer", Held)
    with terminal() as screen:
        with ProgressBar("bp"), phase("sweeps"):
            pass
        (timer,) = held
        threading.Thread.start(timer)
        timer.join()
    assert screen.getvalue() == ""


def test_a_timer_that_ends_during_a_run_shows_it():
    with terminal() as screen, ProgressBar("bp") as bar, phase("sweeps"):
        bar.hide()
        bar.appear_later(0.0)
        wait_for(screen, "sweeps")


def test_the_time_left_follows_from_the_speed_and_parts_of_an_iteration_count(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    bar = ProgressBar("energy", quiet=True)
    bar.shown, bar._open = True, lambda: None
    bar(0, 10, residual=None, objective=None)
    assert bar.seconds_left() is None
    now[0] = 130.0
    bar.part_done(0.5)  # half an iteration in 30 seconds: 9.5 are left
    assert bar.seconds_left() == pytest.approx(570.0)
    bar(2, 10, residual=None, objective=-1.5)
    now[0] = 220.0
    assert bar.seconds_left() == pytest.approx(480.0)
    assert bar.texts() == ["2/10", "2:00, up to 8:00 left", "objective -1.5"]
    bar(1, 5, residual=None, objective=None)  # another run
    assert bar.seconds_left() is None


def test_the_innermost_bar_is_shown_and_parts_reach_it():
    with terminal() as screen, CommandBar("kikuchi train") as outer, ProgressBar("energy") as bar:
        part_done(0.25)
        assert (bar._part, outer._part) == (0.25, 0.0)
        bar(1, 4, residual=0.5, objective=None)
        wait_for(screen, "residual 0.5")
        assert outer._live is None
        hide_bars()
        assert bar._live is None


def test_answers_printed_below_a_bar_stay_on_standard_output(capsys):
    with terminal() as screen, ProgressBar("bp") as bar:
        bar(1, 4, residual=0.5, objective=None)
        print("the answer")
        wait_for(screen, "residual 0.5")
        assert "the answer" not in screen.getvalue()
    assert capsys.readouterr().out == "the answer\n"


def test_pipes_get_nothing(capsys):
    with CommandBar("kikuchi infer") as bar:
        bar(1, 4, residual=0.5, objective=None)
        bar.refresh()
    assert capsys.readouterr().err == ""


def test_bounds_are_shown_while_they_close():
    """The bar of a real run ends at the bounds of the run, and shows each step between."""
    seen = []

    class Recorded(BoundsBar):
        def bounded(self, lower, upper):
            super().bounded(lower, upper)
            seen.append((self.lower, self.upper))

    grid = kk.grid(6, 6, seed=1)
    with terminal() as screen, Recorded(3.0) as bar:
        found = kk.bounds(grid, seconds=3, progress=bar)
        wait_for(screen, "gap ")
    assert seen[-1] == (found.lower, found.upper)
    assert len(set(seen)) > 3
    gaps = [upper - lower for lower, upper in seen]
    assert gaps == sorted(gaps, reverse=True)
    exact = kk.infer(grid, "jt").log_z
    assert all(lower <= exact + 1e-9 and exact - 1e-9 <= upper for lower, upper in seen)
    assert "/3 s" in "".join(bar.texts())
