"""Chunks of items of a `parallel.map` and their outcomes, shared by all executors."""

from __future__ import annotations

import math
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any, Literal, NamedTuple

from kikuchi.core.budget import Clock
from kikuchi.core.errors import KikuchiError

Stopped = Literal["finished", "seconds", "interrupted"]

CHUNK_SECONDS = 0.2  # work in a chunk: a Dask task costs 3 to 5 ms
TICK = 0.2  # seconds between two checks of the clock
THREAD_LIMITS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
_LONGEST_LABEL = 80


class Failure(NamedTuple):
    """An error as strings, since not every exception can be sent between processes."""

    text: str
    expected: bool
    trace: str = ""


class Packed(NamedTuple):
    """A pickled result."""

    data: bytes


class ChunkReport(NamedTuple):
    """The report of a worker: outcomes of the first items of a chunk, and the seconds they took."""

    outcomes: list[Packed | Failure]
    seconds: float


class Job:
    """The items of one `map`, their chunks and their outcomes.

    An executor takes the indices of the next items (`next_chunk`), sends them to `run_chunk` in a
    worker, records the report (`record_chunk`) and passes on the outcomes (`deliver`).
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        items: Sequence[Any],
        clock: Clock,
        keep: Callable[[int, Any], None],
    ) -> None:
        self.function = function
        self.items = items
        self.clock = clock
        self.waiting = deque(range(len(items)))
        self._keep = keep
        self._seconds_per_item: float | None = None

    def next_chunk(self, workers: int) -> list[int]:
        """Return the indices of the next items for one worker: about `CHUNK_SECONDS` of work.

        It is one item until a time has been measured, and never more than an equal share of the
        remaining items.
        """
        wanted = 1
        if self._seconds_per_item is not None:
            wanted = math.ceil(CHUNK_SECONDS / max(self._seconds_per_item, 1e-6))
        size = max(1, min(wanted, len(self.waiting) // workers))
        return [self.waiting.popleft() for _ in range(min(size, len(self.waiting)))]

    def record_chunk(
        self, numbers: Sequence[int], report: ChunkReport
    ) -> list[tuple[int, Packed | Failure]]:
        """Record the time of a chunk, requeue its unprocessed items, and return the processed
        ones.
        """
        done = len(report.outcomes)
        self._seconds_per_item = report.seconds / max(done, 1)
        self.waiting.extendleft(reversed(numbers[done:]))
        return list(zip(numbers, report.outcomes, strict=False))

    def deliver(self, number: int, outcome: Any) -> None:
        """Pass on the result of an item, or raise its error with the label of the item."""
        if isinstance(outcome, Packed):
            try:
                outcome = ForkingPickler.loads(outcome.data)
            except Exception as error:
                outcome = _unsendable("result", error)
        if not isinstance(outcome, Failure):
            self._keep(number, outcome)
            return
        message = f"item {number}, {self._label(number)}: {outcome.text}"
        if outcome.expected:
            raise KikuchiError(message)
        failed = RuntimeError(message)
        failed.add_note(outcome.trace)
        raise failed

    def _label(self, number: int) -> str:
        label = repr(self.items[number])
        return label if len(label) <= _LONGEST_LABEL else label[: _LONGEST_LABEL - 1] + "…"


def run_chunk(function: Callable[[Any], Any], items: Sequence[Any]) -> ChunkReport:
    """Apply `function` to items in a worker, until one fails or `CHUNK_SECONDS` have passed.

    >>> len(run_chunk(abs, [-1, "one", 2]).outcomes)
    2
    """
    outcomes: list[Packed | Failure] = []
    begin = time.perf_counter()
    for item in items:
        outcomes.append(_packed(call(function, item)))
        if isinstance(outcomes[-1], Failure) or time.perf_counter() - begin >= CHUNK_SECONDS:
            break
    return ChunkReport(outcomes, time.perf_counter() - begin)


def call(function: Callable[[Any], Any], item: Any) -> Any:
    """Return the result of the function, or a `Failure`; a call of sys.exit is also a failure."""
    try:
        return function(item)
    except KikuchiError as error:
        return Failure(str(error), True)
    except (Exception, SystemExit) as error:
        return Failure(f"{type(error).__name__}: {error}", False, traceback.format_exc())


def _packed(outcome: Any) -> Packed | Failure:
    if isinstance(outcome, Failure):
        return outcome
    try:
        return Packed(bytes(ForkingPickler.dumps(outcome)))
    except Exception as error:
        return _unsendable("result", error)


def _unsendable(what: str, error: Exception) -> Failure:
    text = f"its {what} cannot be sent between processes ({type(error).__name__}: {error}); "
    return Failure(text + "use plain data and functions of modules, or processes=1", True)


def unsendable_chunk(error: Exception) -> ChunkReport:
    """Return the report of a chunk whose function or items cannot be pickled or unpickled."""
    return ChunkReport([_unsendable("function or item", error)], 0.0)
