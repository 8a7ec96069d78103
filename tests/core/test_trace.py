"""Traces."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kikuchi import Trace


def test_steps_are_kept_in_order() -> None:
    trace = Trace(objective_name="bound")
    trace.record(1, residual=0.5, objective=-3.0, seconds=0.1)
    trace.record(5, residual=0.25)
    assert len(trace) == 2
    assert trace.iterations == [1, 5]
    assert trace.last_residual == 0.25
    assert math.isnan(trace.objective[1])
    assert math.isnan(trace.seconds[1])


def test_an_empty_trace_has_no_residual() -> None:
    assert len(Trace()) == 0
    assert math.isnan(Trace().last_residual)


def test_two_traces_share_nothing() -> None:
    one, other = Trace(), Trace()
    one.record(1, residual=1.0)
    assert len(other) == 0


def test_numbers_become_plain() -> None:
    trace = Trace()
    trace.record(np.int64(3), residual=np.float32(0.5))  # type: ignore[arg-type]
    assert type(trace.iterations[0]) is int
    assert type(trace.residual[0]) is float


def test_columns_as_arrays() -> None:
    trace = Trace()
    trace.record(2, residual=0.1, objective=1.0, seconds=0.5)
    arrays = trace.arrays()
    numbers = {"residual", "objective", "seconds", "lower", "upper"}
    assert set(arrays) == {"iterations", *numbers}
    assert arrays["iterations"].dtype == np.int64
    assert all(arrays[name].dtype == np.float64 for name in numbers)
    assert arrays["residual"].tolist() == [0.1]


def test_clear_begins_anew() -> None:
    trace = Trace()
    trace.record(2, residual=0.1)
    trace.clear()
    assert len(trace) == 0
    assert all(len(column) == 0 for column in trace.arrays().values())


class _Interrupting(list[float]):
    """A column in which Ctrl-C comes once, before a value is appended."""

    pressed = False

    def append(self, value: float) -> None:
        if not self.pressed:
            self.pressed = True
            raise KeyboardInterrupt
        super().append(value)


def test_ctrl_c_within_a_row_leaves_it_whole() -> None:
    trace = Trace()
    trace.lower = _Interrupting()
    with pytest.raises(KeyboardInterrupt):
        trace.record(1, residual=0.5, measures={"acceptance": 0.9})
    assert {len(column) for column in trace.arrays().values()} == {1}
    assert trace.last_residual == 0.5 and trace.measures["acceptance"] == [0.9]
