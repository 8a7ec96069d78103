"""The driver of iterative work: how loops end, what they leave behind and what they save."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest

from kikuchi.core.budget import Budget
from kikuchi.core.progress import silent
from kikuchi.core.run import Run, Step
from kikuchi.core.trace import Trace
from kikuchi.engines.loops.iterate import Ended, iterate, iterate_to_best
from kikuchi.engines.loops.state import State


@dataclass(eq=False)
class _Counter(State):
    values: np.ndarray
    done: int = 0


class _Store:
    due = False

    def __init__(self) -> None:
        self.saved: list[dict[str, np.ndarray]] = []

    def save(self, state: Mapping[str, np.ndarray]) -> None:
        self.saved.append(dict(state))


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


def test_the_last_whole_state_is_saved() -> None:
    store, state = _Store(), _counter()
    iterate(_Steps(0.5, KeyboardInterrupt()), state, _run(), tol=0.1, limit=9, store=store)
    assert state.values.tolist() == [2.0]  # cut short
    assert [(saved["values"].tolist(), int(saved["done"])) for saved in store.saved] == [([1.0], 1)]
