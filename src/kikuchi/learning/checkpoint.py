"""Checkpoints: the state of a long fit in one file of plain arrays, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.errors import DataError
from kikuchi.core.files import atomic_write
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.data import Data

State = Mapping[str, NDArray[Any]]
_EVERY = 5.0  # seconds
_KEY = "__key__"


class Checkpoint:
    """Where a fit keeps its state; it is read again only by the same fit.

    The file knows the learner, the graph and the data that it belongs to. `load` answers None when
    there is nothing to go on from, and refuses a file that belongs to another fit.
    """

    def __init__(self, path: Path, learner: str, graph: FactorGraph, data: Data) -> None:
        self.path = path
        self.key = fingerprint(learner, graph, data)
        self._last = time.monotonic()

    def load(self) -> dict[str, NDArray[Any]] | None:
        """The state that was saved last."""
        if not self.path.exists():
            return None
        try:
            with np.load(self.path, allow_pickle=False) as file:
                state = {name: file[name] for name in file.files}
            key = str(state.pop(_KEY))
        except (OSError, ValueError, KeyError, EOFError) as error:
            raise DataError(
                f"{self.path}: not a checkpoint that can be read ({error}); delete it or choose "
                "another name"
            ) from None
        if key != self.key:
            raise DataError(
                f"{self.path}: belongs to another learner, model or data; delete it or choose "
                "another name"
            )
        return state

    @property
    def due(self) -> bool:
        """Whether so many seconds have passed that the state should be saved."""
        return time.monotonic() - self._last >= _EVERY

    def save(self, state: State) -> None:
        """Write the state in place of the one before."""
        with atomic_write(self.path, "wb") as file:
            np.savez(file, **{_KEY: np.array(self.key)}, **state)  # type: ignore[arg-type]
        self._last = time.monotonic()

    def remove(self) -> None:
        """Delete the file: the fit is complete."""
        self.path.unlink(missing_ok=True)


def fingerprint(learner: str, graph: FactorGraph, data: Data) -> str:
    """A text that differs when the learner, the model or the data do."""
    digest = hashlib.sha256(json.dumps([learner]).encode())
    arrays = (
        graph.cardinalities,
        graph.scopes,
        graph.scope_offsets,
        graph.log_tables,
        data.states,
        data.weights,
    )
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
