"""Runs that keep their state: what is saved, when, and never from the middle of a step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from kikuchi.core.budget import Budget
from kikuchi.core.progress import silent
from kikuchi.core.run import Run, State, Step, StepAborted
from kikuchi.core.trace import Trace


class _Store:
    def __init__(self, due: bool = False) -> None:
        self.due = due
        self.saved: list[dict[str, np.ndarray]] = []

    def save(self, state: State) -> None:
        self.saved.append({name: array.copy() for name, array in state.items()})


class _Pair:
    """Two numbers that are equal between steps and differ within one; `fails` maps a step to the
    exception that cuts it short.
    """

    def __init__(self, fails: dict[int, BaseException] | None = None) -> None:
        self.pair = np.zeros(2)
        self.fails = fails or {}

    def steps(self) -> Iterator[Step]:
        for k in range(1, 100):
            self.pair[0] += 1
            if k in self.fails:
                raise self.fails[k]
            self.pair[1] += 1
            yield Step(k, residual=1.0 / k)

    def state(self) -> dict[str, np.ndarray]:
        return {"pair": self.pair}


def _run() -> Run:
    return Run(Budget().start(), silent, Trace())


@pytest.mark.parametrize(
    ("cut", "stopped"),
    [
        (KeyboardInterrupt(), "interrupted"),
        (StepAborted("seconds"), "seconds"),
        (StepAborted("diverged"), "diverged"),
    ],
)
@pytest.mark.parametrize("at", [2, 7])
def test_a_step_that_is_cut_short_leaves_a_whole_state(
    cut: BaseException, stopped: str, at: int
) -> None:
    work, store, run = _Pair({at: cut}), _Store(), _run()
    done, converged = run.iterate_saving(work.steps(), work.state, store, tol=0, limit=50)
    assert (done, converged, run.stopped) == (at - 1, False, stopped)
    first, second = store.saved[-1]["pair"]
    assert first == second and 1 <= first < at


def test_nothing_is_saved_before_the_first_step_is_complete() -> None:
    work, store, run = _Pair({1: KeyboardInterrupt()}), _Store(), _run()
    assert run.iterate_saving(work.steps(), work.state, store, tol=0, limit=50) == (0, False)
    assert store.saved == []


def test_the_state_is_saved_when_due_and_at_the_end_unless_converged() -> None:
    work, store = _Pair(), _Store(due=True)
    assert _run().iterate_saving(work.steps(), work.state, store, tol=0, limit=5) == (5, False)
    assert [state["pair"][0] for state in store.saved] == [1, 2, 3, 4, 5]
    work, store = _Pair(), _Store()
    assert _run().iterate_saving(work.steps(), work.state, store, tol=0.2, limit=9) == (5, True)
    assert store.saved == []


def test_a_run_without_a_store_iterates() -> None:
    work = _Pair()
    assert _run().iterate_saving(work.steps(), work.state, None, tol=0, limit=4) == (4, False)


@pytest.mark.parametrize("at", [1, 3])
def test_a_step_that_is_done_is_recorded_although_ctrl_c_comes_first(
    at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, run, record = _Pair(), _run(), Run.record
    cuts = [KeyboardInterrupt()]

    def late(self: Run, step: Step, limit: int) -> None:
        if step.iterations == at and cuts:
            raise cuts.pop()
        record(self, step, limit)

    monkeypatch.setattr(Run, "record", late)
    assert run.iterate(work.steps(), tol=0, limit=50) == (at, False)
    assert run.stopped == "interrupted" and run.trace.iterations == list(range(1, at + 1))
