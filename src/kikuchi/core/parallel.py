"""Parallel work: `map` applies a function to items (seeds, restarts, cases) on several workers.

The workers are processes of this machine (`core.worker_processes`) unless an executor is given,
such as a Dask cluster (`core.cluster`). Only these two modules start processes. Items are sent to
workers in chunks of about a fifth of a second, measured during the run. `map_threads` uses threads
of this process, for compiled loops over parts of one array.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from kikuchi.core.budget import Budget
from kikuchi.core.chunks import Job, Stopped, call
from kikuchi.core.errors import KikuchiError
from kikuchi.core.interrupts import watched_interrupts
from kikuchi.core.progress import Progress, silent

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass
class Mapped(Generic[Result]):
    """Result of `map`: results by index of the item, and why it stopped.

    `results` contains the finished items, in the order of the items; `stopped` is "finished",
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
        """Number of chunks processed at a time."""
        ...

    def run(self, job: Job) -> Stopped:
        """Run the job, pass each result to it, and return why the work ended."""
        ...


_CURRENT: ContextVar[Executor | None] = ContextVar("executor", default=None)


@contextmanager
def using(executor: Executor | None) -> Iterator[None]:
    """Context manager in which every `map` of this thread uses these workers; None changes nothing.

    The argument `processes` of `map` is then ignored.
    """
    before = _CURRENT.set(executor or _CURRENT.get())
    try:
        yield
    finally:
        _CURRENT.reset(before)


def in_this_process(processes: int | None) -> bool:
    """Return whether a `map` over several items with this many processes would run in this
    process.
    """
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
    """Apply `function` to every item, on several cores or machines if available.

    `processes` is the number of worker processes, by default one per core and at most one per item;
    with 1 the work runs in this process. `executor` replaces them, for example by a Dask cluster
    (`core.cluster.open_cluster`). Unless the work runs in this process, `function`, items and
    results must be picklable. `finished(number, result)` is called in this process soon after an
    item is done.

    Ctrl-C and the end of `budget.seconds` stop the workers; the result contains the finished items,
    and an interrupted item is not included. Without workers the time is checked between items. An
    error in an item is raised with the label of the item, after the results before it have been
    passed to `finished`: as `KikuchiError` if it is one, otherwise as `RuntimeError` with the
    traceback.

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

    This is faster only for work that releases the GIL, such as loops compiled with `nogil`. The
    first error of an item is raised unchanged, once all threads have ended.

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
    """Return the number of workers to start: the requested number or that of the cores, at most one
    per item.

    >>> worker_count(8, 3), worker_count(2, 100)
    (3, 2)
    """
    if processes is not None and processes < 1:
        raise KikuchiError(f"processes must be at least 1, got {processes}")
    return min(processes or available_cores(), items)


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _ThisProcess:
    """The executor that runs all items in this process, one after the other."""

    workers = 1

    def run(self, job: Job) -> Stopped:
        try:
            with watched_interrupts() as interrupted:
                for number, item in enumerate(job.items):
                    if job.clock.expired:
                        return "seconds"
                    outcome = call(job.function, item)
                    if interrupted.is_set():  # the function caught Ctrl-C: its result is partial
                        return "interrupted"
                    job.deliver(number, outcome)
        except KeyboardInterrupt:
            return "interrupted"
        return "finished"
