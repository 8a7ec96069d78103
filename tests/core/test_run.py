"""Runs: what is recorded of their steps."""

from __future__ import annotations

import pytest

from kikuchi.core.budget import Budget
from kikuchi.core.progress import silent
from kikuchi.core.run import Run, Step
from kikuchi.core.trace import Trace


def _run() -> Run:
    return Run(Budget().start(), silent, Trace())


def test_parts_of_an_iteration_are_not_recorded_and_see_the_clock() -> None:
    run = _run()
    steps = [Step(1), Step(1, partial=True), Step(2), Step(2, partial=True)]
    assert run.iterate(steps, tol=0, limit=50) == (2, False)
    assert run.trace.iterations == [1, 2]
    run = Run(Budget(seconds=1e-9).start(), silent, Trace())
    assert run.iterate([Step(3, partial=True), Step(4)], tol=0, limit=50, done=3) == (3, False)
    assert run.stopped == "seconds" and len(run.trace) == 0


@pytest.mark.parametrize("at", [1, 3])
def test_a_step_that_is_done_is_recorded_although_ctrl_c_comes_first(
    at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, record = _run(), Run.record
    cuts = [KeyboardInterrupt()]

    def late(self: Run, step: Step, limit: int) -> None:
        if step.iterations == at and cuts:
            raise cuts.pop()
        record(self, step, limit)

    monkeypatch.setattr(Run, "record", late)
    assert run.iterate([Step(k) for k in range(1, 9)], tol=0, limit=50) == (at, False)
    assert run.stopped == "interrupted" and run.trace.iterations == list(range(1, at + 1))
