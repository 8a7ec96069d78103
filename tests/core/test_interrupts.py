"""Ctrl-C where it must not be raised."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import numpy as np
import pytest

from kikuchi.core.interrupts import safe_interrupts, unraisable

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")


@pytest.mark.parametrize(
    "module", ["numba.core.serialize", "namedtuple_Graph", "numpy._core._internal"]
)
def test_ctrl_c_waits_for_what_compiled_code_calls(module: str) -> None:
    program = "def build(press):\n    press()\n    done.append(1)\n"
    done: list[int] = []
    names = {"__name__": module, "done": done}
    exec(program, names)
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt), safe_interrupts():
        names["build"](lambda: signal.raise_signal(signal.SIGINT))  # type: ignore[operator]
        assert done == [1]
        time.sleep(60)
    assert time.monotonic() - begin < 30
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_is_not_lost_where_python_drops_errors() -> None:
    done: list[int] = []

    class Dropped:
        object = type("", (), {"__name__": "__del__"})()

        @property
        def exc_type(self) -> type[BaseException]:
            if not done:
                signal.raise_signal(signal.SIGINT)
            done.append(1)
            return AttributeError

    seen = threading.Event()
    seen.set()
    with pytest.raises(KeyboardInterrupt), safe_interrupts():
        unraisable(seen, Dropped())
        assert done
        time.sleep(60)


def test_numpy_compares_records_by_the_module_that_handlers_spare() -> None:
    seen: list[str] = []
    sys.setprofile(lambda frame, event, value: seen.append(frame.f_globals.get("__name__", "")))
    try:
        np.unique(np.array([[1, 2], [1, 2]]), axis=0)
    finally:
        sys.setprofile(None)
    assert "numpy._core._internal" in seen


def test_ctrl_c_elsewhere_is_raised_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), safe_interrupts():
        signal.raise_signal(signal.SIGINT)
        pytest.fail("it went on")


def test_a_handler_of_the_program_is_left_alone() -> None:
    pressed: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        with safe_interrupts():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    assert pressed == [signal.SIGINT]
