"""Work that splits: the one place that starts processes.

Items (seeds, restarts, cases) are handed to worker processes of the standard library. Each worker
is a fresh interpreter (`spawn`: safe with compiled loops and threads) whose numerical libraries use
one thread, so that many workers do not fight over the cores. A program that uses more than one
process must keep its own work under `if __name__ == "__main__":`, as workers read it again.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Generic, Literal, TypeVar

from kikuchi.core.budget import Budget, Clock
from kikuchi.core.errors import KikuchiError
from kikuchi.core.progress import Progress, silent

Item = TypeVar("Item")
Result = TypeVar("Result")

Stopped = Literal["finished", "seconds", "interrupted"]

THREAD_LIMITS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
_TICK = 0.2  # seconds between two looks at the clock
_AHEAD = 4  # items given to each worker before it asks
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

    def _in_order(self) -> Mapped[Result]:
        self.results = dict(sorted(self.results.items()))
        return self


def map(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    processes: int | None = None,
    budget: Budget | None = None,
    progress: Progress = silent,
    finished: Callable[[int, Result], None] | None = None,
) -> Mapped[Result]:
    """Apply `function` to every item, on several cores if there are any.

    `processes` is the number of workers: by default one for each core, and no more than items; with
    one the work is done in this process. `function`, items and results must be picklable unless it
    is one. `finished(number, result)` is called in this process as soon as an item is done.

    Ctrl-C and the end of `budget.seconds` stop the workers and answer with what is finished; an
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

    workers = worker_count(processes, len(items))
    if workers <= 1:
        mapped.stopped = _here(function, items, clock, keep)
    else:
        mapped.stopped = _in_workers(function, items, workers, clock, keep)
    return mapped._in_order()


def worker_count(processes: int | None, items: int) -> int:
    """How many workers to start: the number asked for or that of the cores, at most one an item.

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


# ---------------------------------------------------------------------- in this process


def _here(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    clock: Clock,
    keep: Callable[[int, Result], None],
) -> Stopped:
    try:
        with _watched_interrupts() as interrupted:
            for number, item in enumerate(items):
                if clock.expired:
                    return "seconds"
                outcome = _call(function, item)
                if interrupted.is_set():  # the function swallowed Ctrl-C and came back half done
                    return "interrupted"
                keep(number, _unpacked(number, item, outcome))
    except KeyboardInterrupt:
        return "interrupted"
    return "finished"


@contextmanager
def _watched_interrupts() -> Iterator[threading.Event]:
    """Remember Ctrl-C even if whoever is running catches it; signals reach the main thread only."""
    seen = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield seen
        return

    def remember(number: int, frame: FrameType | None) -> None:
        seen.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, remember)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)


# ---------------------------------------------------------------------- in workers


def _in_workers(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    workers: int,
    clock: Clock,
    keep: Callable[[int, Result], None],
) -> Stopped:
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_ignore_interrupts)
    clean = False
    try:
        stopped = _collect(pool, function, items, workers * _AHEAD, clock, keep)
        clean = stopped == "finished"
        return stopped
    except KeyboardInterrupt:
        return "interrupted"
    except BrokenProcessPool as error:
        raise KikuchiError(
            "a worker process ended before its work (not enough memory, or a program without "
            'if __name__ == "__main__":); use processes=1'
        ) from error
    finally:
        _close(pool, clean)


def _collect(
    pool: ProcessPoolExecutor,
    function: Callable[[Item], Result],
    items: Sequence[Item],
    ahead: int,
    clock: Clock,
    keep: Callable[[int, Result], None],
) -> Stopped:
    """Keep `ahead` items with the pool until all are done."""
    waiting = deque(range(len(items)))
    pending: dict[Future[_Outcome], int] = {}
    while waiting or pending:
        if waiting and len(pending) < ahead:
            with _single_threaded(), _interrupts_deferred():
                while waiting and len(pending) < ahead:
                    number = waiting.popleft()
                    pending[pool.submit(_call, function, items[number])] = number
        done, _ = wait(pending, timeout=_TICK, return_when=FIRST_COMPLETED)
        for future in sorted(done, key=pending.__getitem__):
            number = pending.pop(future)
            keep(number, _unpacked(number, items[number], future.result()))
        if clock.expired and (waiting or pending):
            return "seconds"
    return "finished"


def _close(pool: ProcessPoolExecutor, clean: bool) -> None:
    """Let idle workers go; end those that still work on something nobody waits for."""
    workers = [] if clean else list((pool._processes or {}).values())
    pool.shutdown(wait=clean, cancel_futures=True)
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join()


@contextmanager
def _single_threaded() -> Iterator[None]:
    """Workers started inside the block inherit a limit of one thread for each library."""
    before = {name: os.environ.get(name) for name in THREAD_LIMITS}
    os.environ.update(dict.fromkeys(THREAD_LIMITS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Workers started inside the block never see Ctrl-C, as they inherit that it is blocked; this
    process acts on it when the block ends. Ignoring it here would lose it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen = threading.Event()
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.set())
    blocked = _block_interrupts()
    try:
        yield
    finally:
        if blocked is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)  # lets a waiting one through
        signal.signal(signal.SIGINT, before)
    if seen.is_set():
        raise KeyboardInterrupt


def _block_interrupts() -> set[int] | None:
    """Block Ctrl-C in this thread; answers what was blocked before, None where there is no mask."""
    if not hasattr(signal, "pthread_sigmask"):
        return None
    return {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})}


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


# ---------------------------------------------------------------------- outcomes


@dataclass(frozen=True)
class _Failure:
    """An error as texts: not every error survives the way between two processes."""

    text: str
    expected: bool
    trace: str


_Outcome = tuple[Any, _Failure | None]


def _call(function: Callable[[Any], Any], item: Any) -> _Outcome:
    try:
        return function(item), None
    except KikuchiError as error:
        return None, _Failure(str(error), True, "")
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return None, _Failure(text, False, traceback.format_exc())


def _unpacked(number: int, item: Any, outcome: _Outcome) -> Any:
    result, failure = outcome
    if failure is None:
        return result
    label = repr(item)
    if len(label) > _LONGEST_LABEL:
        label = label[: _LONGEST_LABEL - 1] + "…"
    message = f"item {number}, {label}: {failure.text}"
    if failure.expected:
        raise KikuchiError(message)
    error = RuntimeError(message)
    error.add_note(failure.trace)
    raise error
