"""Fits that can be stopped and taken up again: the state of an algorithm in a checkpoint file.

A fit that was killed, interrupted or ran out of time goes on from its last whole step and ends with
the same numbers as one that was never stopped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError
from kikuchi.core.run import Run, State, Step, Store
from kikuchi.training.checkpoint import Checkpoint, check_like, check_sizes, restoring
from kikuchi.training.rows import fingerprint

_STEPS = "steps"  # iterations, residual and objective of every step so far
_NOT_COMPARED = frozenset({"seconds", "processes", "progress", "checkpoint", "random_state"})


class Restorable(Protocol):
    """What has a state of arrays and can be set to one."""

    def state(self) -> State:
        """Everything that the next step depends on, as arrays."""

    def restore(self, state: State) -> None:
        """Go on where the state was taken."""


class Resumable(Restorable, Protocol):
    """An algorithm whose steps depend on nothing but its state.

    `state` has an entry `iterations`, the number of the last step that it includes. Arrays of a
    saved state must be like those of `state()` before the first step; attributes `varying` and
    `logarithms` of the class name those that need not be (see `checkpoint.check_like`).
    """


class StateStore(Store, Protocol):
    """A place for the state of one algorithm; `path` is the file that messages name."""

    @property
    def path(self) -> Path:
        """The file."""

    def load(self) -> State | None:
        """The state that was kept last, if there is one."""


class StateFile:
    """A checkpoint file that holds the state of one algorithm."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint

    @property
    def path(self) -> Path:
        """The file."""
        return self.checkpoint.path

    @property
    def due(self) -> bool:
        """Whether enough time has passed since the last state was written."""
        return self.checkpoint.due

    def load(self) -> State | None:
        """The state in the file; None if there is no file."""
        saved = self.checkpoint.load()
        return None if saved is None else saved.arrays

    def save(self, state: State) -> None:
        """Write a state in place of the one before."""
        self.checkpoint.save(state, {})


def restore_checked(
    fresh: State,
    restore: Callable[[State], None],
    saved: State,
    path: Path,
    *,
    varying: Sequence[str] = (),
    logarithms: Sequence[str] = (),
    shared: bool = False,
) -> None:
    """Let work that has not begun go on from a saved state; refuse a state of other work.

    Names, types, shapes and finiteness of the arrays are compared with those of a fresh state (see
    `checkpoint.check_like`), and whatever `restore` raises is a `DataError` that names the file. A
    `shared` state has arrays of others too, which are left to them.
    """
    with restoring(path):
        own = {n: a for n, a in saved.items() if n in fresh or not (shared or n == _STEPS)}
        check_like(own, fresh, varying=varying, logarithms=logarithms)
        restore(saved)


def _check_history(history: Sequence[Step], done: int) -> None:
    """Refuse steps that do not lead to the state after `done` iterations."""
    numbers = [step.iterations for step in history]
    if numbers != sorted(set(numbers)) or [0, *numbers][-1] != done:
        raise DataError(f"its {len(history)} steps do not lead to iteration {done}")


def iterate_resumable(
    run: Run,
    work: Resumable,
    steps: Iterable[Step],
    store: StateStore | None,
    *,
    tol: float,
    limit: int,
) -> tuple[int, bool]:
    """`Run.iterate` over the steps of `work`, which goes on from its state in `store` if one is
    there, and keeps it there from time to time.

    The last step before the interruption is judged again, so that a fit that had just converged
    does not take one step more.
    """
    if store is None:
        return run.iterate(steps, tol=tol, limit=limit)
    history: list[Step] = []
    saved = store.load()
    if saved is not None:
        varying, logarithms = getattr(work, "varying", ()), getattr(work, "logarithms", ())
        restore_checked(
            work.state(), work.restore, saved, store.path, varying=varying, logarithms=logarithms
        )
        with restoring(store.path):
            check_sizes(saved, {_STEPS: "steps columns"}, columns=3)
            history += [Step(int(row[0]), float(row[1]), float(row[2])) for row in saved[_STEPS]]
            _check_history(history, int(saved["iterations"]))

    def resumed() -> Iterator[Step]:
        for step in history[:-1]:
            objective = step.objective + run.offset
            run.trace.record(step.iterations, residual=step.residual, objective=objective)
        yield from history[-1:]
        for step in steps:
            history.append(step)
            yield step

    def state() -> State:
        now = work.state()
        done = int(now["iterations"])
        rows = [[s.iterations, s.residual, s.objective] for s in history if s.iterations <= done]
        return {**now, _STEPS: np.array(rows, dtype=np.float64).reshape(-1, 3)}

    return run.iterate_saving(resumed(), state, store, tol=tol, limit=limit)


def fit_checkpoint(estimator: Any, rows: Array) -> Checkpoint | None:
    """The checkpoint that an estimator asks for; only the same fit to the same rows may use it.

    A seed that is not a whole number cannot be compared and is left out.
    """
    if estimator.checkpoint is None:
        return None
    checkpoint = Checkpoint(estimator.checkpoint)
    given = estimator.get_params(deep=False).items()
    seed = estimator.random_state
    checkpoint.identity = {
        "estimator": type(estimator).__name__,
        "options": {name: _plain(value) for name, value in given if name not in _NOT_COMPARED},
        "random_state": int(seed) if isinstance(seed, int | np.integer) else None,
        "data": fingerprint(rows),
    }
    return checkpoint


def _plain(value: Any) -> Any:
    """A value as a file can hold it, for comparison."""
    if isinstance(value, np.ndarray):
        return fingerprint(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, str | int | float):
        return value
    return getattr(value, "text", repr(value))


def json_array(facts: Mapping[str, Any]) -> NDArray[np.uint8]:
    """Facts as the bytes of a JSON text, for states that hold nothing but arrays.

    >>> from_json_array(json_array({"kind": "isotropic"}))
    {'kind': 'isotropic'}
    """
    text = json.dumps(facts, default=lambda array: array.tolist())
    return np.frombuffer(text.encode(), dtype=np.uint8)


def from_json_array(array: NDArray[Any]) -> dict[str, Any]:
    """The inverse of `json_array`."""
    facts: dict[str, Any] = json.loads(array.tobytes())
    return facts
