"""Work that splits: `map` applies a function to items (seeds, restarts, cases) on several workers.

The workers are processes of this machine (`core.worker_processes`) unless an executor is given,
such as a Dask cluster (`core.cluster`). Those two modules start processes; nothing else does. Items
go to workers in chunks of about a fifth of a second, as measured while the work goes on.
`map_threads` is for compiled loops over parts of one array: threads of this process.
"""

from __future__ import annotations

import math
import os
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from multiprocessing.reduction import ForkingPickler
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from kikuchi.core.budget import Budget, Clock
from kikuchi.core.errors import KikuchiError
from kikuchi.core.interrupts import watched_interrupts
from kikuchi.core.progress import Progress, silent

Item = TypeVar("Item")
Result = TypeVar("Result")

Stopped = Literal["finished", "seconds", "interrupted"]

CHUNK_SECONDS = 0.2  # work in a chunk: a Dask task costs 3 to 5 ms
TICK = 0.2  # seconds between two looks at the clock
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


@dataclass
class Mapped(Generic[Result]):
    """What `map` did: results by number of the item, and why it stopped.

    `results` has the items that were finished, in the order of the items; `stopped` is "finished",
    "seconds" (the budget ended) or "interrupted" (Ctrl-C).
    """

    total: int
    results: dict[int, Result] = field(default_factory=dict)
    stopped: Stopped = "finished"

    @property
    def complete(self) -> bool:
        """Whether every item was finished."""
        return len(self.results) == self.total

    def values(self) -> list[Result]:
        """Results of the finished items, in the order of the items."""
        return list(self.results.values())


class Executor(Protocol):
    """Workers that `map` can use: processes of this machine, or a cluster."""

    @property
    def workers(self) -> int:
        """How many chunks are worked on at a time."""
        ...

    def run(self, job: Job) -> Stopped:
        """Do the job, pass each result to it, and return why the work ended."""
        ...


_CURRENT: ContextVar[Executor | None] = ContextVar("executor", default=None)


@contextmanager
def using(executor: Executor | None) -> Iterator[None]:
    """A block in which every `map` of this thread uses these workers; None changes nothing.

    The number of `processes` that a map asks for is then left aside.
    """
    before = _CURRENT.set(executor or _CURRENT.get())
    try:
        yield
    finally:
        _CURRENT.reset(before)


def in_this_process(processes: int | None) -> bool:
    """Whether a `map` over several items with so many processes would use this one only."""
    return _CURRENT.get() is None and worker_count(processes, 2) == 1


def map(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    processes: int | None = None,
    executor: Executor | None = None,
    budget: Budget | None = None,
    progress: Progress = silent,
    finished: Callable[[int, Result], None] | None = None,
) -> Mapped[Result]:
    """Apply `function` to every item, on several cores or machines if there are any.

    `processes` is the number of worker processes: by default one for each core, and no more than
    items; with one the work is done in this process. `executor` replaces them, for example by a
    Dask cluster (`core.cluster.open_cluster`). Unless the work is done in this process, `function`,
    items and results must be picklable. `finished(number, result)` is called in this process soon
    after an item is done.

    Ctrl-C and the end of `budget.seconds` stop the workers; the answer has what is finished, and an
    item that is cut short counts as not done. In this process the time is looked at between items.
    An error in an item is raised with the item's name, after the results before it have been passed
    to `finished`: as `KikuchiError` if it is one, as `RuntimeError` with its traceback otherwise.

    >>> from math import factorial
    >>> map(factorial, [3, 4], processes=1).values()
    [6, 24]
    """
    clock = (budget or Budget()).start()
    mapped: Mapped[Result] = Mapped(len(items))

    def keep(number: int, result: Result) -> None:
        mapped.results[number] = result
        if finished is not None:
            finished(number, result)
        progress(len(mapped.results), len(items), residual=None, objective=None)

    job = Job(function, items, clock, keep)
    mapped.stopped = _executor(processes, executor, len(items)).run(job)
    mapped.results = dict(sorted(mapped.results.items()))
    return mapped


def map_threads(
    function: Callable[[Item], Result], items: Sequence[Item], threads: int
) -> list[Result]:
    """Apply `function` to every item in threads of this process; results in the order of items.

    Only work that releases Python's lock, such as loops compiled with `nogil`, gains by it. The
    first error of an item is raised as it is, once all threads have ended.

    >>> map_threads(abs, [-1, -2, 3], 2)
    [1, 2, 3]
    """
    if threads < 1:
        raise KikuchiError(f"threads must be at least 1, got {threads}")
    if threads == 1 or len(items) < 2:
        return [function(item) for item in items]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(threads, len(items))) as pool:
        return list(pool.map(function, items))


def _executor(processes: int | None, executor: Executor | None, items: int) -> Executor:
    if executor is not None:
        if processes is not None:
            raise KikuchiError("give a number of processes or an executor, not both")
        return executor
    current = _CURRENT.get()
    if current is not None:
        return current
    workers = worker_count(processes, items)
    if workers <= 1:
        return _ThisProcess()
    from kikuchi.core.worker_processes import WorkerProcesses

    return WorkerProcesses(workers)


def worker_count(processes: int | None, items: int) -> int:
    """How many workers to start: the number asked for or that of the cores, at most one per item.

    >>> worker_count(8, 3), worker_count(2, 100)
    (3, 2)
    """
    if processes is not None and processes < 1:
        raise KikuchiError(f"processes must be at least 1, got {processes}")
    return min(processes or available_cores(), items)


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _ThisProcess:
    """The executor that does everything here, one item after the other."""

    workers = 1

    def run(self, job: Job) -> Stopped:
        try:
            with watched_interrupts() as interrupted:
                for number, item in enumerate(job.items):
                    if job.clock.expired:
                        return "seconds"
                    outcome = _call(job.function, item)
                    if interrupted.is_set():  # the function swallowed Ctrl-C: its answer is partial
                        return "interrupted"
                    job.deliver(number, outcome)
        except KeyboardInterrupt:
            return "interrupted"
        return "finished"


# ---------------------------------------------------------------------- what executors share


class Failure(NamedTuple):
    """An error as texts: not every error survives the way between two processes."""

    text: str
    expected: bool
    trace: str = ""


class Packed(NamedTuple):
    """A result as the bytes that travel from a worker."""

    data: bytes


class ChunkReport(NamedTuple):
    """What a worker answers: outcomes of the first items of a chunk, and the seconds they took."""

    outcomes: list[Packed | Failure]
    seconds: float


class Job:
    """The items of one `map` on their way to workers and back.

    An executor asks for the numbers of the next items (`next_chunk`), sends them to `run_chunk` in
    a worker, tells what came back (`arrived`) and hands over the outcomes (`deliver`).
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
        """Numbers of the next items for one worker: `CHUNK_SECONDS` of work as far as is known.

        Until something is measured that is one item, and never more than an equal part of the rest.
        """
        wanted = 1
        if self._seconds_per_item is not None:
            wanted = math.ceil(CHUNK_SECONDS / max(self._seconds_per_item, 1e-6))
        size = max(1, min(wanted, len(self.waiting) // workers))
        return [self.waiting.popleft() for _ in range(min(size, len(self.waiting)))]

    def arrived(
        self, numbers: Sequence[int], report: ChunkReport
    ) -> list[tuple[int, Packed | Failure]]:
        """Take the time of a chunk, put back the items it did not reach; answers the others."""
        done = len(report.outcomes)
        self._seconds_per_item = report.seconds / max(done, 1)
        self.waiting.extendleft(reversed(numbers[done:]))
        return list(zip(numbers, report.outcomes, strict=False))

    def deliver(self, number: int, outcome: Any) -> None:
        """Pass the result of an item on, or raise its error with the item's name."""
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
        outcomes.append(_packed(_call(function, item)))
        if isinstance(outcomes[-1], Failure) or time.perf_counter() - begin >= CHUNK_SECONDS:
            break
    return ChunkReport(outcomes, time.perf_counter() - begin)


def _call(function: Callable[[Any], Any], item: Any) -> Any:
    """The result of the function, or a `Failure`; a call of sys.exit is one too."""
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
    """What a chunk comes to whose function or items cannot be sent to a worker or read there."""
    return ChunkReport([_unsendable("function or item", error)], 0.0)
