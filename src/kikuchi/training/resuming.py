"""Fits that can be stopped and resumed: the state of iterative work in a checkpoint file.

A fit that was killed, interrupted or ran out of time continues from its last complete step and ends
with the same numbers as an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError
from kikuchi.core.named_arrays import part
from kikuchi.core.trace import Trace
from kikuchi.engines.loops.state import Part, names_of
from kikuchi.training.checkpoint import Checkpoint, check_like, restoring
from kikuchi.training.rows import fingerprint

_NOT_COMPARED = frozenset({"seconds", "processes", "progress", "checkpoint", "random_state"})


class StateFile:
    """A checkpoint file with the state of some work and the trace of its steps."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint

    @property
    def due(self) -> bool:
        """Return whether a save is due."""
        return self.checkpoint.due

    def save(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Replace the saved state."""
        self.checkpoint.save(arrays)

    def resume(self, state: Part, trace: Trace) -> bool:
        """Load the state in the file, if there is one."""
        saved = self.checkpoint.load()
        if saved is not None:
            load_checked(saved.arrays, state, trace, self.checkpoint.path)
        return saved is not None


def load_checked(saved: Mapping[str, NDArray[Any]], state: Part, trace: Trace, path: Path) -> None:
    """Load arrays of a file into a new `state` and `trace`; raise an error for those of other work.

    Names, types, shapes and finiteness of the arrays are compared with those of the new state (see
    `checkpoint.check_like`), and any exception of `state.load` becomes a `DataError` that names the
    file.
    """
    with restoring(path):
        columns = part(saved, "trace")
        own = {n: a for n, a in saved.items() if not n.startswith("trace/")}
        free = {kind: names_of(state, kind) for kind in ("varying", "logarithms")}
        check_like(own, state.to_arrays(), **free)
        trace.restore(columns)
        numbers = trace.iterations
        last = numbers[-1] if numbers else 0
        if numbers != sorted(set(numbers)) or own.get("done", last) != last:
            raise DataError(f"its {len(numbers)} steps do not lead to its state")
        state.load(own)


def fit_checkpoint(estimator: Any, rows: Array) -> Checkpoint | None:
    """Return the checkpoint of an estimator's options; only the same fit to the same rows may use
    it.

    A seed that is not an integer cannot be compared and is omitted.
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


def fit_store(estimator: Any, rows: Array) -> StateFile | None:
    """Return the file for the state of a fit to `rows`, if the estimator has a checkpoint."""
    checkpoint = fit_checkpoint(estimator, rows)
    return None if checkpoint is None else StateFile(checkpoint)


def _plain(value: Any) -> Any:
    """Return a value as stored in a file, for comparison."""
    if isinstance(value, np.ndarray):
        return fingerprint(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, str | int | float):
        return value
    return getattr(value, "text", repr(value))
