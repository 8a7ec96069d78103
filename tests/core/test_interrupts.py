"""Ctrl-C where it must not be raised."""

from __future__ import annotations

import os
import signal
import time

import pytest

from kikuchi.core.interrupts import safe_interrupts

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")


@pytest.mark.parametrize("module", ["numba.core.serialize", "namedtuple_Graph"])
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
