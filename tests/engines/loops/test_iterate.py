"""The driver of iterative work: how loops end, what they leave behind and what they save."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest

from kikuchi.core.budget import Budget
from kikuchi.core.named_arrays import part
from kikuchi.core.progress import silent
from kikuchi.core.run import Run, Step, StepAborted
from kikuchi.core.trace import Trace
from kikuchi.engines.loops.iterate import Ended, iterate, iterate_to_best
from kikuchi.engines.loops.state import Part, Rounds, State


@dataclass(eq=False)
class _Counter(State):
    values: np.ndarray
    done: int = 0


class _Store:
    def __init__(self, due: bool = False, *saved: Mapping[str, np.ndarray]) -> None:
        self.due = due
        self.saved = [dict(arrays) for arrays in saved]

    def save(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.saved.append(dict(arrays))

    def resume(self, state: Part, trace: Trace) -> bool:
        if not self.saved:
            return False
        state.load(self.saved[-1])
        trace.restore(part(self.saved[-1], "trace"))
        return True


def _run() -> Run:
    return Run(Budget().start(), silent, Trace())


def _counter() -> _Counter:
    return _Counter(np.zeros(1))


class _Steps:
    """Steps with the given residuals; None ends them, and an exception cuts the step short."""

    def __init__(self, *residuals: float | BaseException | None) -> None:
        self.residuals = residuals

    def __call__(self, state: _Counter) -> Step | None:
        residual = self.residuals[state.done]
        state.values += 1.0
        if isinstance(residual, BaseException):
            raise residual
        state.done += 1
        return None if residual is None else Step(state.done, residual)


@pytest.mark.parametrize(
    ("residuals", "limit", "ended", "stopped"),
    [
        ((0.5, 0.25, 0.1), 9, Ended(3, True, 0.1), "converged"),
        ((0.5, 0.25, 0.1), 2, Ended(2, False, 0.25), "iterations"),
        ((0.5, 0.25, None), 9, Ended(2, False, 0.25), "diverged"),
        ((0.5, KeyboardInterrupt()), 9, Ended(1, False, 0.5), "interrupted"),
    ],
)
def test_how_loops_end(residuals: tuple, limit: int, ended: Ended, stopped: str) -> None:
    run = _run()
    assert iterate(_Steps(*residuals), _counter(), run, tol=0.1, limit=limit) == ended
    assert run.stopped == stopped and len(run.trace) == ended.iterations


def test_a_report_before_the_first_step_may_end_the_loop() -> None:
    state, run = _counter(), _run()
    ended = iterate(
        _Steps(), state, run, tol=0.1, limit=9, first=lambda state: Step(4, residual=0.05)
    )
    assert ended == Ended(4, True, 0.05) and state.done == 0


def test_the_best_state_is_left_behind_unless_the_last_converged() -> None:
    state = _counter()
    ended = iterate_to_best(_Steps(0.5, 0.2, 0.2, 0.4), state, _run(), tol=0.1, limit=4)
    assert ended == Ended(4, False, 0.2) and state.values.tolist() == [3.0]  # the later of equals
    state = _counter()
    ended = iterate_to_best(_Steps(0.5, 0.2, 0.1), state, _run(), tol=0.1, limit=4)
    assert ended == Ended(3, True, 0.1) and state.values.tolist() == [3.0]


def test_without_a_step_the_state_is_as_it_was() -> None:
    state = _counter()
    assert iterate_to_best(_Steps(None), state, _run(), tol=0.1, limit=4) == Ended(0, False, np.inf)
    assert state.values.tolist() == [0.0]


@pytest.mark.parametrize(
    ("cut", "stopped"),
    [
        (KeyboardInterrupt(), "interrupted"),
        (StepAborted("seconds"), "seconds"),
        (StepAborted("diverged"), "diverged"),
    ],
)
def test_the_last_whole_state_is_saved(cut: BaseException, stopped: str) -> None:
    store, state, run = _Store(), _counter(), _run()
    ended = iterate(_Steps(0.5, cut), state, run, tol=0.1, limit=9, store=store)
    assert (ended.iterations, run.stopped) == (1, stopped)
    assert state.values.tolist() == [2.0]  # cut short
    assert [(saved["values"].tolist(), int(saved["done"])) for saved in store.saved] == [([1.0], 1)]
    assert store.saved[0]["trace/residual"].tolist() == [0.5]


def test_nothing_is_saved_before_the_first_step_is_complete() -> None:
    store = _Store()
    iterate(_Steps(KeyboardInterrupt()), _counter(), _run(), tol=0.1, limit=9, store=store)
    assert store.saved == []


def test_the_state_is_saved_when_due_and_at_the_end() -> None:
    store = _Store(due=True)
    iterate(_Steps(0.5, 0.4, 0.1), _counter(), _run(), tol=0.1, limit=9, store=store)
    assert [int(saved["done"]) for saved in store.saved] == [1, 2, 3]
    store = _Store()
    iterate(_Steps(0.5, 0.1), _counter(), _run(), tol=0.1, limit=3, store=store)
    assert [int(saved["done"]) for saved in store.saved] == [2]


def test_a_saved_loop_goes_on_and_ends_as_an_unbroken_one() -> None:
    residuals = (0.5, 0.4, 0.3, 0.05)
    whole, unbroken = _counter(), _run()
    ended = iterate(_Steps(*residuals), whole, unbroken, tol=0.1, limit=9)
    store, state, run = _Store(), _counter(), _run()
    iterate(_Steps(0.5, 0.4), _counter(), _run(), tol=0.1, limit=2, store=store)
    assert iterate(_Steps(*residuals), state, run, tol=0.1, limit=9, store=store) == ended
    assert state.values.tolist() == whole.values.tolist()
    assert run.trace.residual == unbroken.trace.residual and len(run.trace) == 4


@pytest.mark.parametrize(
    ("tol", "limit", "converged", "stopped"),
    [(0.4, 9, True, "converged"), (0.1, 2, False, "iterations")],
)
def test_the_last_saved_step_is_judged_again(
    tol: float, limit: int, converged: bool, stopped: str
) -> None:
    store = _Store()
    iterate(_Steps(0.5, 0.4), _counter(), _run(), tol=0.1, limit=2, store=store)
    run = _run()
    ended = iterate(_Steps(), _counter(), run, tol=tol, limit=limit, store=store)
    assert ended == Ended(2, converged, 0.4) and run.stopped == stopped


def test_a_resumed_loop_makes_no_first_report() -> None:
    store = _Store()
    iterate(_Steps(0.5), _counter(), _run(), tol=0.1, limit=1, store=store)
    run = _run()
    iterate(
        _Steps(0.5, 0.4), _counter(), run, tol=0.1, limit=2, store=store,
        first=lambda state: Step(0, residual=0.9),
    )  # fmt: skip
    assert run.trace.residual == [0.5, 0.4]


def test_rounds_are_saved_as_they_began_with_the_steps_before() -> None:
    state, store = Rounds(), _Store()

    def step(state: Rounds) -> Step:
        if state.done % 3 == 0:
            state.mark()
        state.done += 1
        return Step(state.done, residual=1.0 / state.done)

    iterate(step, state, _run(), tol=0, limit=5, store=store)
    assert int(store.saved[-1]["done"]) == 3
    assert store.saved[-1]["trace/iterations"].tolist() == [1, 2, 3]
    state.unmark()
    assert int(state.to_arrays()["done"]) == 5


def test_parts_of_an_iteration_are_saved_by_a_state_that_knows_when_it_is_whole() -> None:
    @dataclass(eq=False)
    class Halves(State):
        done: int = 0
        half: int = 0
        whole = True

    def step(state: Halves) -> Step:
        if state.half == 1 and state.done == 1:
            raise KeyboardInterrupt
        state.done, state.half = (state.done + state.half, 1 - state.half)
        return Step(state.done, 0.5, partial=state.half == 1)

    store, run = _Store(), _run()
    ended = iterate(step, Halves(), run, tol=0.1, limit=9, store=store)
    assert ended == Ended(1, False, 0.5) and len(run.trace) == 1
    assert [(int(s["done"]), int(s["half"])) for s in store.saved] == [(1, 1)]
